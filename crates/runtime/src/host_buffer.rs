//! Page-locked memory of the host, from and to which a GPU copies while the host goes on.

use std::fmt;

use bytemuck::Pod;
use cuda_std::Element;

use crate::Error;
use crate::cpu_memory::CpuMemory;
use crate::device::{Backend, Device};
use crate::host_use::HostUses;

/// An array in page-locked memory of the host: the host's side of copies that nobody waits for (`cudaMallocHost`, `cudaMemcpyAsync`).
///
/// The host gets at its elements by [`as_slice`](HostBuffer::as_slice) and [`as_mut_slice`](HostBuffer::as_mut_slice), which wait for the
/// copies that are in their way. So no element is seen half copied, and none is overwritten while it is copied: as long as the slice is
/// borrowed, no copy that conflicts with it can be started. A buffer that is dropped waits, too; one that is forgotten stays allocated.
///
/// Page-locked memory cannot be swapped out: a program should have some buffers that it uses again and again, rather than many.
pub struct HostBuffer<T: Element + Pod> {
    /// On its own stream.
    device: Device,
    pub(crate) memory: HostMemory<T>,
    pub(crate) uses: HostUses,
}

pub(crate) enum HostMemory<T: Element + Pod> {
    /// There is no page-locked memory of no bytes.
    Empty(usize),
    Cuda(cuda_driver::HostMemory<T>),
    Cpu(CpuMemory<T>),
}

impl Device {
    /// Allocates page-locked memory of the host for `len` elements, whose bytes are zero. On the CPU executor it is memory as any other.
    ///
    /// # Errors
    /// [`Error::Driver`] where the host has too little memory for it, and after a kernel has failed; [`Error::NotEnoughMemory`].
    pub fn allocate_on_host<T: Element + Pod>(&self, len: usize) -> Result<HostBuffer<T>, Error> {
        let memory = match &self.inner.backend {
            Backend::Cuda(cuda) if len == 0 || size_of::<T>() == 0 => {
                cuda.gpu.check_context()?;
                HostMemory::Empty(len)
            }
            Backend::Cuda(cuda) => {
                // From now on what uses it is recorded.
                cuda.order.track();
                HostMemory::Cuda(cuda.gpu.allocate_on_host(len)?)
            }
            Backend::Cpu(_) => HostMemory::Cpu(CpuMemory::zeroed(len)?),
        };
        Ok(HostBuffer { device: self.on_own_stream(), memory, uses: HostUses::default() })
    }
}

impl<T: Element + Pod> HostBuffer<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.memory {
            HostMemory::Empty(len) => *len,
            HostMemory::Cuda(memory) => memory.len(),
            HostMemory::Cpu(memory) => memory.len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device that copies from and to it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The elements, after the copies into them: waits for these. Copies from them may go on.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn as_slice(&self) -> Result<&[T], Error> {
        self.device.after(self.uses.wait(false))?;
        // SAFETY: the elements are initialized. What writes to them has been waited for, and nothing else that does is started as long
        // as they are borrowed: that needs `&mut` of this buffer.
        Ok(unsafe { std::slice::from_raw_parts(self.first(), self.len()) })
    }

    /// The elements, to be written: waits for all copies from and to them.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], Error> {
        self.device.after(self.uses.wait(true))?;
        // SAFETY: as in `as_slice`; what reads them has been waited for, too, and nothing is started as long as they are borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.first(), self.len()) })
    }

    fn first(&self) -> *mut T {
        match &self.memory {
            HostMemory::Cuda(memory) => memory.as_ptr(),
            HostMemory::Cpu(memory) => memory.as_ptr(),
            HostMemory::Empty(_) => std::ptr::dangling_mut(),
        }
    }
}

impl<T: Element + Pod> Drop for HostBuffer<T> {
    /// Waits for what uses the memory. Where that fails, it waits for all that the GPU does; where that fails, too, nobody knows whether the
    /// memory is used, and it stays allocated.
    fn drop(&mut self) {
        if let HostMemory::Cuda(memory) = std::mem::replace(&mut self.memory, HostMemory::Empty(0)) {
            match self.uses.wait(true) {
                // SAFETY: all that uses it has been waited for.
                Ok(()) => unsafe { memory.free_unused() },
                Err(_) => drop(memory),
            }
        }
    }
}

impl<T: Element + Pod> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer").field("device", &self.device.name()).field("len", &self.len()).finish()
    }
}
