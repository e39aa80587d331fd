//! Arrays in a device's memory, a GPU's or the executor's: allocated, copied, viewed by kernels.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use bytemuck::{Pod, Zeroable};
use cuda_driver::DeviceMemory;
use cuda_std::atomic::AtomicElement;
use cuda_std::{DisjointSlice, Element, GlobalAtomics, GlobalSlice, GlobalSliceMut};

use crate::Error;
use crate::device::{Backend, Device};

/// An array of elements in a device's memory. Views of it are what kernels take.
///
/// Whatever was launched before a copy or before the buffer's end is finished by then: both wait for it.
pub struct Buffer<T: Element + Pod> {
    device: Device,
    memory: Memory<T>,
}

enum Memory<T: Element + Pod> {
    Cuda(DeviceMemory<T>),
    Cpu(AlignedMemory<T>),
    LentCpu(LentMemory<T>),
}

impl Device {
    /// Allocates memory for `len` elements, whose values are unspecified.
    ///
    /// # Errors
    /// [`Error::Driver`] where the GPU has too little free memory, or where the size does not fit an address range.
    pub fn allocate<T: Element + Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let memory = match &self.inner.backend {
            Backend::Cuda(cuda) => Memory::Cuda(self.gpu(cuda).allocate(len)?),
            Backend::Cpu(_) => Memory::Cpu(AlignedMemory::zeroed(len)?),
        };
        let buffer = Buffer { device: self.clone(), memory };
        self.inner.allocations.insert(buffer.address(), buffer.bytes());
        Ok(buffer)
    }

    /// `len` elements at `address`, of memory that another library has allocated. Nothing waits when the buffer is dropped, and
    /// nothing is freed.
    ///
    /// # Safety
    /// The memory is the device's (of this processor, for the CPU executor), aligned as a `T`, and initialized; it stays
    /// allocated until everything that has been started with the buffer, or with views of it, has finished. Until then nobody
    /// writes to it, nor reads what is written here, except in order: behind it on the same stream.
    pub unsafe fn lent<T: Element + Pod>(&self, address: usize, len: usize) -> Buffer<T> {
        let memory = match &self.inner.backend {
            // SAFETY: the caller's promise.
            Backend::Cuda(cuda) => Memory::Cuda(unsafe { self.gpu(cuda).lent(address as u64, len) }),
            Backend::Cpu(_) => {
                let first =
                    if len == 0 { NonNull::dangling().as_ptr() } else { ptr::with_exposed_provenance_mut(address) };
                Memory::LentCpu(LentMemory { first, len, capacity: len })
            }
        };
        let buffer = Buffer { device: self.clone(), memory };
        self.inner.allocations.lend(buffer.address(), buffer.bytes());
        buffer
    }

    /// Allocates memory for a copy of `data`, and copies it there.
    ///
    /// # Errors
    /// As for [`Device::allocate`], and [`Error::Driver`] if an earlier kernel has failed.
    pub fn upload<T: Element + Pod>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        let mut buffer = self.allocate(data.len())?;
        buffer.copy_from(data)?;
        Ok(buffer)
    }
}

impl<T: Element + Pod> Buffer<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Cuda(memory) => memory.len(),
            Memory::Cpu(memory) => memory.len,
            Memory::LentCpu(memory) => memory.len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of elements that the memory was allocated for.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Cuda(memory) => memory.capacity(),
            Memory::Cpu(memory) => memory.capacity,
            Memory::LentCpu(memory) => memory.capacity,
        }
    }

    /// Makes it a buffer of the first `len` elements that there is memory for, whose values are unspecified: for memory that is
    /// used again, for something smaller. Views of it end with the last of these.
    ///
    /// # Panics
    /// If there is memory for fewer.
    pub fn set_len(&mut self, len: usize) {
        let capacity = self.capacity();
        assert!(len <= capacity, "{len} elements in memory for {capacity}");
        let is_lent = self.is_lent();
        self.device.inner.allocations.remove(self.address(), self.bytes(), is_lent);
        match &mut self.memory {
            Memory::Cuda(memory) => memory.set_len(len),
            Memory::Cpu(memory) => memory.len = len,
            Memory::LentCpu(memory) => memory.len = len,
        }
        let allocations = &self.device.inner.allocations;
        match is_lent {
            true => allocations.lend(self.address(), self.bytes()),
            false => allocations.insert(self.address(), self.bytes()),
        }
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Copies `source` into the buffer.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Driver`] if an earlier kernel has failed.
    pub fn copy_from(&mut self, source: &[T]) -> Result<(), Error> {
        self.check_length(source.len())?;
        match &mut self.memory {
            Memory::Cuda(memory) => self.device.after(memory.copy_from_host(source))?,
            Memory::Cpu(memory) => memory.as_mut_slice().copy_from_slice(source),
            Memory::LentCpu(memory) => memory.as_mut_slice().copy_from_slice(source),
        }
        Ok(())
    }

    /// Copies the buffer into `target`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Driver`] if an earlier kernel has failed.
    pub fn copy_to(&self, target: &mut [T]) -> Result<(), Error> {
        self.check_length(target.len())?;
        match &self.memory {
            Memory::Cuda(memory) => self.device.after(memory.copy_to_host(target))?,
            Memory::Cpu(memory) => target.copy_from_slice(memory.as_slice()),
            Memory::LentCpu(memory) => target.copy_from_slice(memory.as_slice()),
        }
        Ok(())
    }

    /// Sets every byte of the buffer. A byte of `0xFF` makes every floating-point element a NaN, which shows where a
    /// kernel has not written.
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed.
    pub fn fill_bytes(&mut self, value: u8) -> Result<(), Error> {
        match &mut self.memory {
            Memory::Cuda(memory) => memory.fill_bytes(value)?,
            Memory::Cpu(memory) => bytemuck::cast_slice_mut(memory.as_mut_slice()).fill(value),
            Memory::LentCpu(memory) => bytemuck::cast_slice_mut(memory.as_mut_slice()).fill(value),
        }
        Ok(())
    }

    /// The buffer as a kernel that only reads takes it.
    pub fn view(&self) -> GlobalSlice<'_, T> {
        match &self.memory {
            // SAFETY: the memory is the buffer's, which the view borrows: until the view's end it is neither freed nor
            // written. A launch on another device refuses the view, and dropping the buffer waits for what was launched.
            Memory::Cuda(memory) => unsafe {
                GlobalSlice::from_raw_parts(ptr::without_provenance(memory.address() as usize), memory.len())
            },
            Memory::Cpu(memory) => GlobalSlice::new(memory.as_slice()),
            // SAFETY: whoever lent the memory has promised that it stays valid as long, and that nobody writes to it.
            Memory::LentCpu(memory) => unsafe { GlobalSlice::from_raw_parts(memory.first, memory.len) },
        }
    }

    /// The buffer as a kernel that writes takes it.
    pub fn view_mut(&mut self) -> GlobalSliceMut<'_, T> {
        match &mut self.memory {
            // SAFETY: as for `view`; the view borrows the buffer mutably, so there is no other one, apart from copies of
            // it, which a launch refuses because they overlap.
            Memory::Cuda(memory) => unsafe {
                GlobalSliceMut::from_raw_parts(ptr::without_provenance_mut(memory.address() as usize), memory.len())
            },
            Memory::Cpu(memory) => GlobalSliceMut::new(memory.as_mut_slice()),
            // SAFETY: the lender has promised that the memory stays valid as long, and that nobody else reads or writes it.
            Memory::LentCpu(memory) => unsafe { GlobalSliceMut::from_raw_parts(memory.first, memory.len) },
        }
    }

    /// The buffer as a kernel takes it each of whose threads has elements of its own.
    pub fn view_disjoint(&mut self) -> DisjointSlice<'_, T> {
        let view = self.view_mut();
        // SAFETY: as for the view, which is given up for this one.
        unsafe { DisjointSlice::from_raw_parts(view.as_mut_ptr(), view.len()) }
    }

    /// The buffer as a kernel takes it whose threads access its elements atomically.
    pub fn view_atomics(&mut self) -> GlobalAtomics<'_, T>
    where
        T: AtomicElement,
    {
        let view = self.view_mut();
        // SAFETY: as for the view, which is given up for this one.
        unsafe { GlobalAtomics::from_raw_parts(view.as_mut_ptr(), view.len()) }
    }

    fn check_length(&self, host: usize) -> Result<(), Error> {
        if host == self.len() { Ok(()) } else { Err(Error::LengthMismatch { host, device: self.len() }) }
    }

    fn address(&self) -> usize {
        match &self.memory {
            Memory::Cuda(memory) => memory.address() as usize,
            Memory::Cpu(memory) => memory.lines.as_ptr().addr(),
            Memory::LentCpu(memory) => memory.first.addr(),
        }
    }

    fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    fn is_lent(&self) -> bool {
        match &self.memory {
            Memory::Cuda(memory) => memory.is_lent(),
            Memory::Cpu(_) => false,
            Memory::LentCpu(_) => true,
        }
    }
}

impl<T: Element + Pod> Drop for Buffer<T> {
    /// Takes the buffer from the list of live ones, before its memory is freed and its address can be another's.
    fn drop(&mut self) {
        self.device.inner.allocations.remove(self.address(), self.bytes(), self.is_lent());
    }
}

impl<T: Element + Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("device", &self.device.name()).field("len", &self.len()).finish()
    }
}

/// Memory of this processor that is somebody else's.
struct LentMemory<T> {
    first: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: as for `&mut [T]`: whoever lent the memory has promised that nobody else uses it otherwise than in order.
unsafe impl<T: Send> Send for LentMemory<T> {}
// SAFETY: as for `&[T]`.
unsafe impl<T: Sync> Sync for LentMemory<T> {}

impl<T: Pod> LentMemory<T> {
    fn as_slice(&self) -> &[T] {
        // SAFETY: initialized and valid, and not written to: the promise of whoever lent it.
        unsafe { std::slice::from_raw_parts(self.first, self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: initialized and valid, by the promise of the lender, and nobody else uses it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len) }
    }
}

/// Memory of this processor, aligned as GPU memory is, so that what a kernel may assume there holds here.
struct AlignedMemory<T> {
    lines: Vec<Line>,
    len: usize,
    capacity: usize,
    elements: PhantomData<T>,
}

/// From this size on, in bytes, an allocation is compared with what is free: to find out takes longer than to allocate little.
const WORTH_ASKING: usize = 64 << 20;

/// CUDA aligns every allocation to at least 256 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Line([u8; 256]);

// SAFETY: bytes, of which all patterns including zero are values.
unsafe impl Zeroable for Line {}
// SAFETY: an array of bytes as large as its alignment: no padding, and every bit pattern is a value.
unsafe impl Pod for Line {}

impl<T: Element + Pod> AlignedMemory<T> {
    fn zeroed(len: usize) -> Result<Self, Error> {
        Self::zeroed_within(len, crate::host_memory::available_host_memory)
    }

    /// `available` tells how many bytes are free, if that is known.
    fn zeroed_within(len: usize, available: impl Fn() -> Option<u128>) -> Result<Self, Error> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize - size_of::<Line>())
            .ok_or(cuda_driver::Error::SizeOverflow { len, element_bytes: size_of::<T>() })?;
        let count = bytes.div_ceil(size_of::<Line>());
        let too_much = |has: Option<u128>| Error::NotEnoughMemory {
            place: "on the host".to_owned(),
            needs: crate::Bytes(bytes as u128),
            has: crate::Bytes(has.unwrap_or(0)),
        };
        // The system may promise more than there is, and end the program when it writes to it.
        if bytes >= WORTH_ASKING
            && let has @ Some(free) = available()
            && bytes as u128 > free
        {
            return Err(too_much(has));
        }
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| too_much(available()))?;
        lines.resize(count, Line([0; 256]));
        Ok(Self { lines, len, capacity: len, elements: PhantomData })
    }

    fn as_slice(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_free_is_refused_before_the_system_is_asked() {
        let len = WORTH_ASKING / size_of::<u64>();
        let refused = AlignedMemory::<u64>::zeroed_within(len, || Some(WORTH_ASKING as u128 - 1)).err().unwrap();
        assert!(matches!(refused, Error::NotEnoughMemory { needs, has, .. } if needs.0 == has.0 + 1), "{refused}");
        for free in [None, Some(WORTH_ASKING as u128)] {
            assert!(AlignedMemory::<u64>::zeroed_within(len, || free).is_ok());
        }
        let little = AlignedMemory::<u64>::zeroed_within(len - 1, || panic!("not worth asking")).unwrap();
        assert_eq!(little.as_slice().len(), len - 1);
    }
}
