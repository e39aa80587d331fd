//! Arrays in a device's memory, a GPU's or the executor's: allocated, copied, viewed by kernels.

use std::ops::Range;
use std::{fmt, ptr};

use bytemuck::Pod;
use cuda_driver::DeviceMemory;
use cuda_std::atomic::AtomicElement;
use cuda_std::{DisjointSlice, Element, GlobalAtomics, GlobalSlice, GlobalSliceMut};

use crate::Error;
use crate::cpu_memory::CpuMemory;
use crate::device::{Backend, Device};
use crate::lane::Lane;
use crate::order::Use;

/// An array of elements in a device's memory. Views of it are what kernels take.
///
/// Whatever was launched before a copy or before the buffer's end is finished by then, on whatever stream: both wait for it.
pub struct Buffer<T: Element + Pod> {
    device: Device,
    pub(crate) memory: Memory<T>,
}

pub(crate) enum Memory<T: Element + Pod> {
    Cuda(DeviceMemory<T>),
    Cpu(CpuMemory<T>),
}

impl Device {
    /// Allocates memory for `len` elements, whose values are unspecified. The CPU executor with all checks reports a kernel that reads
    /// elements which nobody has written, with the line of this call.
    ///
    /// # Errors
    /// [`Error::Driver`] where the GPU has too little free memory, or where the size does not fit an address range.
    #[track_caller]
    pub fn allocate<T: Element + Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        let memory = match &self.inner.backend {
            Backend::Cuda(cuda) => Memory::Cuda(self.gpu(cuda).allocate(len)?),
            Backend::Cpu(executor) => {
                let mut memory = CpuMemory::zeroed(len)?;
                memory.take_as_unwritten(executor);
                Memory::Cpu(memory)
            }
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
        // SAFETY: the caller's promise.
        unsafe { self.lend(address, len, false) }
    }

    /// The same for memory whose elements may lie between those of others that are lent so: blocks of one matrix, of which a launch reads some
    /// and writes another. Launches do not refuse views of such buffers for overlapping.
    ///
    /// # Safety
    /// As for [`Device::lent`]. Besides, elements that a launch accesses through views of two such buffers are different ones, if it writes
    /// to either.
    pub unsafe fn lent_between<T: Element + Pod>(&self, address: usize, len: usize) -> Buffer<T> {
        // SAFETY: the caller's promise.
        unsafe { self.lend(address, len, true) }
    }

    /// # Safety
    /// As for [`Device::lent`], or, if it `interleaves`, [`Device::lent_between`].
    unsafe fn lend<T: Element + Pod>(&self, address: usize, len: usize, interleaves: bool) -> Buffer<T> {
        let memory = match &self.inner.backend {
            // SAFETY: the caller's promise.
            Backend::Cuda(cuda) => Memory::Cuda(unsafe { self.gpu(cuda).lent(address as u64, len) }),
            Backend::Cpu(executor) => {
                executor.has_values(address, len * size_of::<T>());
                // SAFETY: the caller's promise.
                Memory::Cpu(unsafe { CpuMemory::lent(address, len) })
            }
        };
        let buffer = Buffer { device: self.clone(), memory };
        self.inner.allocations.lend(buffer.address(), buffer.bytes(), interleaves);
        buffer
    }

    /// Allocates memory for a copy of `data`, and copies it there.
    ///
    /// # Errors
    /// As for [`Device::allocate`], and [`Error::Driver`] if an earlier kernel has failed.
    #[track_caller]
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
        }
    }

    /// Makes it a buffer of the first `len` elements that there is memory for, whose values are unspecified: for memory that is
    /// used again, for something smaller. Views of it end with the last of these. To the CPU executor, these elements are as good as
    /// allocated by this call.
    ///
    /// # Panics
    /// If there is memory for fewer.
    #[track_caller]
    pub fn set_len(&mut self, len: usize) {
        let capacity = self.capacity();
        assert!(len <= capacity, "{len} elements in memory for {capacity}");
        let before = self.bytes();
        match &mut self.memory {
            Memory::Cuda(memory) => memory.set_len(len),
            Memory::Cpu(memory) => {
                memory.len = len;
                if let Backend::Cpu(executor) = &self.device.inner.backend
                    && !memory.is_lent()
                {
                    memory.take_as_unwritten(executor);
                }
            }
        }
        self.device.inner.allocations.resize(self.address(), [before, self.bytes()], self.is_lent());
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
        self.wait_for_uses(true)?;
        let (address, bytes) = (self.address(), self.bytes());
        let uses = || Use::of(address, bytes, true);
        let inner = &self.device.inner;
        match (&inner.backend, &mut self.memory) {
            (Backend::Cuda(cuda), Memory::Cuda(memory)) => {
                let copy = |_: &_| Ok(memory.copy_from_host(source)?);
                self.device.after_in_order(self.device.in_order(cuda, uses, None, copy))
            }
            (Backend::Cpu(_), Memory::Cpu(memory)) => {
                let _claim = inner.claims.claim(format_args!("a copy from the host"), uses())?;
                // SAFETY: the memory is claimed.
                unsafe { memory.write(source) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Copies the buffer into `target`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Driver`] if an earlier kernel has failed. On the CPU executor with all checks,
    /// [`Error::Unwritten`] if nobody has written some of the elements.
    pub fn copy_to(&self, target: &mut [T]) -> Result<(), Error> {
        self.check_length(target.len())?;
        self.wait_for_uses(false)?;
        let uses = || self.uses(false);
        let inner = &self.device.inner;
        match (&inner.backend, &self.memory) {
            (Backend::Cuda(cuda), Memory::Cuda(memory)) => {
                let copy = |_: &_| Ok(memory.copy_to_host(target)?);
                self.device.after_in_order(self.device.in_order(cuda, uses, None, copy))
            }
            (Backend::Cpu(_), Memory::Cpu(memory)) => {
                let _claim = inner.claims.claim(format_args!("a copy to the host"), uses())?;
                memory.check_read(0..memory.len)?;
                // SAFETY: the memory is claimed.
                unsafe { memory.read(target) };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sets every byte of the buffer. A byte of `0xFF` makes every floating-point element a NaN, which shows where a
    /// kernel has not written.
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed.
    pub fn fill_bytes(&mut self, value: u8) -> Result<(), Error> {
        let device = self.device.clone();
        device.fill_bytes(self, value)
    }

    /// Has the CPU executor with all checks take elements for unwritten, as after [`Device::allocate`], though the host has written to
    /// them: to see whether a kernel writes all of its output, or reads what is none of its input. Otherwise it does nothing.
    ///
    /// # Panics
    /// If there are fewer elements.
    #[track_caller]
    pub fn take_as_unwritten(&mut self, elements: Range<usize>) {
        let len = self.len();
        assert!(elements.start <= elements.end && elements.end <= len, "elements {elements:?} of {len}");
        if let (Memory::Cpu(memory), Backend::Cpu(executor)) = (&mut self.memory, &self.device.inner.backend)
            && !memory.is_lent()
        {
            memory.take_as_unwritten(executor);
            memory.note_write(0..elements.start);
            memory.note_write(elements.end..len);
        }
    }

    /// Whether all of these elements have been written, as far as it is known: only the CPU executor with all checks knows.
    ///
    /// # Errors
    /// [`Error::Unwritten`], if not.
    ///
    /// # Panics
    /// If there are fewer elements.
    pub fn check_written(&self, elements: Range<usize>) -> Result<(), Error> {
        match &self.memory {
            Memory::Cpu(memory) => memory.check_read(elements),
            Memory::Cuda(_) => Ok(()),
        }
    }

    /// Has the CPU executor take all elements for written, whatever they are, because it does not matter: for the host to read a buffer
    /// of which a part is scratch.
    pub fn take_as_written(&mut self) {
        if let Memory::Cpu(memory) = &mut self.memory {
            memory.take_as_written();
        }
    }

    /// The buffer as a kernel that only reads takes it.
    pub fn view(&self) -> GlobalSlice<'_, T> {
        // SAFETY: the memory is the buffer's, which the view borrows: until the view's end it is neither freed nor written, but by what was
        // launched before, or by a graph, and both are in order with what is launched with the view. A launch on another device refuses
        // the view, and dropping the buffer waits for what was launched. What is lent stays as long, by the lender's promise.
        unsafe { GlobalSlice::from_raw_parts(self.first(), self.len()) }
    }

    /// The buffer as a kernel that writes takes it.
    pub fn view_mut(&mut self) -> GlobalSliceMut<'_, T> {
        // SAFETY: as for `view`; the view borrows the buffer mutably, so there is no other one, apart from copies of it, which a launch
        // refuses because they overlap, and which several launches use one after the other.
        unsafe { GlobalSliceMut::from_raw_parts(self.first(), self.len()) }
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

    /// The first element, where kernels find it.
    pub(crate) fn first(&self) -> *mut T {
        match &self.memory {
            Memory::Cuda(memory) => ptr::without_provenance_mut(memory.address() as usize),
            Memory::Cpu(memory) => memory.as_ptr(),
        }
    }

    fn address(&self) -> usize {
        self.first().addr()
    }

    /// An operation's use of the whole buffer.
    pub(crate) fn uses(&self, is_written: bool) -> Vec<Use> {
        Use::of(self.address(), self.bytes(), is_written)
    }

    /// Waits for the operations that a copy from or to the host comes after, so that the copy itself, which others cannot start anything
    /// beside, takes no longer than it has to.
    fn wait_for_uses(&self, is_written: bool) -> Result<(), Error> {
        let Backend::Cuda(cuda) = &self.device.inner.backend else { return Ok(()) };
        let mut before = Vec::new();
        {
            // (Nothing is allocated where nothing is in the way.)
            let live = self.device.inner.allocations.lock();
            if !self.is_empty() {
                live.conflicts(&Use::new(self.address(), self.bytes(), is_written), &mut before);
            }
        }
        let waited = if before.is_empty() {
            Ok(())
        } else {
            // What is on this buffer's own stream would hold up the copy, too.
            before
                .iter()
                .try_for_each(|operation| operation.synchronize())
                .and_then(|()| self.device.gpu(cuda).synchronize())
        };
        // What was printed is shown after the copy.
        match waited {
            Ok(()) => Ok(()),
            failed => self.device.after(failed),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    fn is_lent(&self) -> bool {
        match &self.memory {
            Memory::Cuda(memory) => memory.is_lent(),
            Memory::Cpu(memory) => memory.is_lent(),
        }
    }
}

impl<T: Element + Pod> Drop for Buffer<T> {
    /// Takes the buffer from the list of live ones, before its memory is freed and its address can be another's, and waits for what uses
    /// it. Where nobody can tell whether something does, the memory stays allocated.
    fn drop(&mut self) {
        let inner = &self.device.inner;
        // Nobody who would have to wait for this thread uses it: a launch by which the buffer is borrowed has returned.
        let claim = match &inner.backend {
            Backend::Cpu(_) if !self.is_lent() => {
                Some(inner.claims.claim(format_args!("the end of a buffer"), self.uses(true)))
            }
            _ => None,
        };
        let (operations, is_known) = {
            let mut live = inner.allocations.lock();
            (live.remove(self.address(), self.bytes(), self.is_lent()), live.streams.check().is_ok())
        };
        let is_unused = is_known && operations.iter().all(|operation| operation.synchronize().is_ok());
        match std::mem::replace(&mut self.memory, Memory::Cpu(CpuMemory::empty())) {
            Memory::Cuda(memory) if !is_unused => memory.leave(),
            Memory::Cuda(memory) => match &self.device.lane {
                // SAFETY: everything that uses it has been waited for: since there is this stream, all of that is recorded.
                Lane::Stream(_) => unsafe { memory.free_unused() },
                // Waits for what has been started before operations were recorded.
                Lane::Own | Lane::Lent(_) => drop(memory),
            },
            Memory::Cpu(memory) => match claim {
                Some(Err(_)) => memory.leave(),
                _ => drop(memory),
            },
        }
    }
}

impl<T: Element + Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("device", &self.device.name()).field("len", &self.len()).finish()
    }
}
