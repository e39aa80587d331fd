//! Arrays in a GPU's memory: allocated, copied to and from, and freed when they are dropped.

use std::marker::PhantomData;
use std::mem::size_of;

use cust::memory::bytemuck::Pod;
use cust::sys::{self, CUdeviceptr};

use crate::call::CallError;
use crate::error::{Error, code};
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;

/// An array of `len` elements in a GPU's memory, freed when it is dropped, unless it is [lent](Gpu::lent).
///
/// [`Pod`] says that every bit pattern is an element, so whatever a kernel has left in the memory can be read back.
#[derive(Debug)]
pub struct DeviceMemory<T: Pod> {
    gpu: Gpu,
    /// 0 where the array has no bytes.
    address: CUdeviceptr,
    len: usize,
    /// The elements that there is memory for.
    capacity: usize,
    /// Whether the memory is somebody else's.
    is_lent: bool,
    /// Whether it is known that nothing uses it any more.
    is_unused: bool,
    elements: PhantomData<T>,
}

impl Gpu {
    /// An array in memory that another library has allocated. Nothing waits when it is dropped, and nothing is freed.
    ///
    /// # Safety
    /// The memory of `len` elements from `address` on is of this GPU, or can be used by it, and so aligned as a `T`; it stays
    /// allocated until everything that has been started with it has finished. Who else uses it meanwhile does so in order.
    pub unsafe fn lent<T: Pod>(&self, address: u64, len: usize) -> DeviceMemory<T> {
        DeviceMemory {
            gpu: self.clone(),
            address,
            len,
            capacity: len,
            is_lent: true,
            is_unused: false,
            elements: PhantomData,
        }
    }

    /// Allocates memory for `len` elements. Their values are arbitrary. An array without bytes is not asked of the
    /// driver.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::SizeOverflow`]; [`Error::ContextLost`] after a kernel has failed.
    pub fn allocate<T: Pod>(&self, len: usize) -> Result<DeviceMemory<T>, Error> {
        let element_bytes = size_of::<T>();
        let bytes = len
            .checked_mul(element_bytes)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(Error::SizeOverflow { len, element_bytes })?;
        self.check_context()?;
        let mut address = 0;
        if bytes > 0 {
            self.bind()?;
            // SAFETY: `address` may be written to.
            let allocated = self.call(|| unsafe { sys::cuMemAlloc_v2(&mut address, bytes) });
            allocated.map_err(|error| self.allocation_error(error, bytes))?;
        }
        Ok(DeviceMemory {
            gpu: self.clone(),
            address,
            len,
            capacity: len,
            is_lent: false,
            is_unused: false,
            elements: PhantomData,
        })
    }

    fn allocation_error(&self, error: CallError, requested: usize) -> Error {
        match error.returned_any(&[code::OUT_OF_MEMORY]) {
            Ok(call) => match self.memory() {
                Ok(memory) => Error::OutOfMemory { requested, free: memory.free, total: memory.total, call },
                Err(error) => error,
            },
            Err(error) => error.into(),
        }
    }
}

impl<T: Pod> DeviceMemory<T> {
    /// The address of the first element in the GPU's memory; 0 if the array has no bytes.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of elements that the memory was allocated for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it an array of the first `len` elements that there is memory for.
    ///
    /// # Panics
    /// If there is memory for fewer.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} elements in memory for {}", self.capacity);
        self.len = len;
    }

    /// Whether the memory is [lent](Gpu::lent).
    pub fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes. It fits: the allocation has checked that.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Copies `source` into this memory, after everything that was started before, and waits for it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] if a kernel has failed.
    pub fn copy_from_host(&mut self, source: &[T]) -> Result<(), Error> {
        self.check_length(source.len())?;
        if self.bytes() == 0 {
            return self.gpu.check_context();
        }
        self.gpu.bind()?;
        let stream = self.gpu.stream();
        // SAFETY: both sides have this many bytes, and this function waits until the copy no longer reads `source`: see
        // `wait_for_copy`.
        (self.gpu).call(|| unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.address, source.as_ptr().cast(), self.bytes(), stream)
        })?;
        self.wait_for_copy()
    }

    /// Copies this memory into `target`, after everything that was started before, and waits for it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] if a kernel has failed.
    pub fn copy_to_host(&self, target: &mut [T]) -> Result<(), Error> {
        self.check_length(target.len())?;
        if self.bytes() == 0 {
            return self.gpu.check_context();
        }
        self.gpu.bind()?;
        let stream = self.gpu.stream();
        // SAFETY: both sides have this many bytes, every bit pattern is a `T`, and this function waits until the copy
        // no longer writes to `target`: see `wait_for_copy`.
        (self.gpu).call(|| unsafe {
            sys::cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), self.address, self.bytes(), stream)
        })?;
        self.wait_for_copy()
    }

    /// Sets every byte to `value`, after everything that was started before. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed.
    pub fn fill_bytes(&mut self, value: u8) -> Result<(), Error> {
        // SAFETY: the memory is not freed before the GPU has finished: see `drop` and `Gpu::lent`. Who accesses it on another stream has
        // seen to the order.
        unsafe { self.start_fill_bytes(&self.gpu, value) }
    }

    /// Starts to copy `source`, which has the same length, into this memory, on the stream of `gpu`. This does not wait.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] if a kernel has failed.
    ///
    /// # Safety
    /// `gpu` is a handle of the same GPU. Until the copy has finished, neither side is freed, nobody else accesses this memory, and
    /// nobody writes to `source`.
    pub unsafe fn start_copy_from_host(&self, gpu: &Gpu, source: &HostMemory<T>) -> Result<(), Error> {
        self.check_length(source.len())?;
        if self.bytes() == 0 {
            return gpu.check_context();
        }
        gpu.bind()?;
        let source = source.as_ptr().cast();
        // SAFETY: both sides have this many bytes; the rest is the caller's promise.
        Ok(gpu.call(|| unsafe { sys::cuMemcpyHtoDAsync_v2(self.address, source, self.bytes(), gpu.stream()) })?)
    }

    /// Starts to copy this memory into `target`, which has the same length, on the stream of `gpu`. This does not wait.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] if a kernel has failed.
    ///
    /// # Safety
    /// `gpu` is a handle of the same GPU. Until the copy has finished, neither side is freed, nobody else accesses `target`, and nobody
    /// writes to this memory.
    pub unsafe fn start_copy_to_host(&self, gpu: &Gpu, target: &HostMemory<T>) -> Result<(), Error> {
        self.check_length(target.len())?;
        if self.bytes() == 0 {
            return gpu.check_context();
        }
        gpu.bind()?;
        let target = target.as_ptr().cast();
        // SAFETY: both sides have this many bytes; the rest is the caller's promise.
        Ok(gpu.call(|| unsafe { sys::cuMemcpyDtoHAsync_v2(target, self.address, self.bytes(), gpu.stream()) })?)
    }

    /// Starts to copy `source`, which has the same length, into this memory, on the stream of `gpu`. This does not wait.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] if a kernel has failed.
    ///
    /// # Safety
    /// All three are of the same GPU. Until the copy has finished, neither side is freed, nobody else accesses this memory, and nobody
    /// writes to `source`.
    pub unsafe fn start_copy_from(&self, gpu: &Gpu, source: &DeviceMemory<T>) -> Result<(), Error> {
        self.check_length(source.len())?;
        if self.bytes() == 0 {
            return gpu.check_context();
        }
        gpu.bind()?;
        // SAFETY: both sides have this many bytes; the rest is the caller's promise.
        Ok(gpu
            .call(|| unsafe { sys::cuMemcpyDtoDAsync_v2(self.address, source.address, self.bytes(), gpu.stream()) })?)
    }

    /// Starts to set every byte to `value`, on the stream of `gpu`. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed.
    ///
    /// # Safety
    /// `gpu` is a handle of the same GPU. Until it has finished, the memory is not freed, and nobody else accesses it.
    pub unsafe fn start_fill_bytes(&self, gpu: &Gpu, value: u8) -> Result<(), Error> {
        if self.bytes() == 0 {
            return gpu.check_context();
        }
        gpu.bind()?;
        // SAFETY: the memory has this many bytes, and every bit pattern is a `T`; the rest is the caller's promise.
        Ok(gpu.call(|| unsafe { sys::cuMemsetD8Async(self.address, value, self.bytes(), gpu.stream()) })?)
    }

    /// Leaves the memory allocated for as long as the process runs: for memory of which nobody can tell whether it is still used.
    pub fn leave(mut self) {
        self.is_lent = true;
    }

    /// Frees the memory at once, without waiting for what was started on its stream.
    ///
    /// # Safety
    /// Nothing uses it any more: what has been started with it, on whatever stream, has been waited for.
    pub unsafe fn free_unused(mut self) {
        self.is_unused = true;
    }

    /// Waits for a copy from or to the host's memory that was just started, while the context is current. Nothing else is asked
    /// of the driver before: if that failed, the copy would go on in memory that its owner has back.
    ///
    /// A failure that leaves the context as it is does not say that the copy has ended, so this waits once more, for all that
    /// the context does. Where that fails too, no more can be done; but then, of memory that is not page-locked, the copy does
    /// not need the host's side any longer: the driver has gone through it before it returned.
    fn wait_for_copy(&self) -> Result<(), Error> {
        let waited = self.gpu.wait().map_err(Error::from);
        if waited.as_ref().is_err_and(|error| !matches!(error, Error::ContextLost { .. })) {
            // SAFETY: it has no arguments. Its failure would say no more than the first one.
            let _ = self.gpu.call(|| unsafe { sys::cuCtxSynchronize() });
        }
        waited
    }

    fn check_length(&self, host_len: usize) -> Result<(), Error> {
        if host_len == self.len { Ok(()) } else { Err(Error::LengthMismatch { host_len, device_len: self.len }) }
    }
}

impl<T: Pod> Drop for DeviceMemory<T> {
    /// Waits for the GPU to finish what was started, so that nothing still uses the memory, and frees it. What is lent is left
    /// alone; and so is memory of which nobody can tell whether it is still used, which might become another array's.
    fn drop(&mut self) {
        if self.address == 0 || self.is_lent {
            return;
        }
        // Errors stay unseen here: with a lost context the memory is gone, and the next use of the GPU reports the same error.
        let waited = if self.is_unused { self.gpu.make_current() } else { self.gpu.synchronize() };
        if waited.is_ok() {
            // SAFETY: the address is from cuMemAlloc and has not been freed. This GPU's context is current and everything on the
            // stream has finished, or else nothing there uses the memory: the wait has succeeded. Whoever used the memory on another stream has seen to the order.
            let _ = self.gpu.call(|| unsafe { sys::cuMemFree_v2(self.address) });
        }
    }
}
