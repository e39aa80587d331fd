//! Page-locked memory of the host, which kernels write to and which stays when the GPU's context is lost.

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::{self, NonNull};

use cust::memory::bytemuck::Pod;
use cust::sys::{self, CUdeviceptr};

use crate::error::Error;
use crate::gpu::Gpu;

/// Every context can use the memory, and it has an address on the GPU: `CU_MEMHOSTALLOC_PORTABLE`, `CU_MEMHOSTALLOC_DEVICEMAP`.
const FLAGS: u32 = 0x01 | 0x02;

/// An array in the host's memory that the GPU can access, freed when it is dropped. Where its context is lost by then, it stays.
///
/// Kernels may write to it at any time. So it is read element by element, and what is read may be old or half new, unless the program
/// sees to it that the kernel has finished, or has said by a flag behind a fence that it has written everything.
#[derive(Debug)]
pub struct HostMemory<T: Pod> {
    gpu: Gpu,
    first: NonNull<T>,
    len: usize,
    device_address: CUdeviceptr,
    /// Whether it is known that the GPU does not use it any more.
    is_unused: bool,
}

// SAFETY: it owns the memory, and the driver's functions may be called from any thread. It is accessed by volatile reads and writes of
// numbers, which a kernel may access at the same time anyhow.
unsafe impl<T: Pod + Send> Send for HostMemory<T> {}
// SAFETY: as for `Send`; writing takes `&mut`.
unsafe impl<T: Pod + Sync> Sync for HostMemory<T> {}

impl Gpu {
    /// Allocates page-locked memory of the host for `len` elements, all of whose bytes are zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`]; [`Error::Call`] if the host has too little memory; [`Error::ContextLost`] after a kernel has failed.
    ///
    /// # Panics
    /// If there is nothing to allocate.
    pub fn allocate_on_host<T: Pod>(&self, len: usize) -> Result<HostMemory<T>, Error> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(Error::SizeOverflow { len, element_bytes })?;
        assert!(bytes > 0, "memory without bytes has no address");
        self.bind()?;
        let mut first: *mut c_void = ptr::null_mut();
        // SAFETY: `first` may be written to.
        self.call(|| unsafe { sys::cuMemHostAlloc(&mut first, bytes, FLAGS) })?;
        let first = NonNull::new(first.cast::<T>()).expect("the driver has allocated memory");
        // From here on it is freed also if something fails.
        let mut memory = HostMemory { gpu: self.clone(), first, len, device_address: 0, is_unused: false };
        // SAFETY: there are so many bytes, and nobody else has them. Pages are aligned for any number.
        unsafe { first.cast::<u8>().write_bytes(0, bytes) };
        let address = &mut memory.device_address;
        // SAFETY: `address` may be written to, and the memory was allocated for this.
        self.call(|| unsafe { sys::cuMemHostGetDevicePointer_v2(address, first.as_ptr().cast(), 0) })?;
        Ok(memory)
    }
}

impl<T: Pod> HostMemory<T> {
    /// The address of the first element as kernels know it.
    pub fn device_address(&self) -> u64 {
        self.device_address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An element as it is now.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn get(&self, index: usize) -> T {
        // SAFETY: `place` is that of an element, and every bit pattern is one.
        unsafe { self.place(index).read_volatile() }
    }

    /// Writes an element.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn set(&mut self, index: usize, value: T) {
        // SAFETY: `place` is that of an element.
        unsafe { self.place(index).write_volatile(value) };
    }

    /// The address of the first element.
    pub fn as_ptr(&self) -> *mut T {
        self.first.as_ptr()
    }

    /// Frees the memory at once, without waiting for the GPU.
    ///
    /// # Safety
    /// The GPU does not use it any more: what has been started with it has been waited for.
    pub unsafe fn free_unused(mut self) {
        self.is_unused = true;
    }

    fn place(&self, index: usize) -> NonNull<T> {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: the element is within the memory.
        unsafe { self.first.add(index) }
    }
}

impl<T: Pod> Drop for HostMemory<T> {
    /// Waits for the GPU, because any kernel on any stream may still write here. Errors stay unseen: in a lost context nothing can be
    /// freed, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        let waited = if self.is_unused { self.gpu.make_current() } else { self.gpu.synchronize_all() };
        if waited.is_ok() {
            // SAFETY: the memory is from cuMemHostAlloc and has not been freed; the context is current, and nothing there uses it any more.
            let _ = self.gpu.call(|| unsafe { sys::cuMemFreeHost(self.first.as_ptr().cast()) });
        }
    }
}
