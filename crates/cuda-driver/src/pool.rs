//! Memory that a GPU allocates and frees in the order of a stream (`cuMemAllocFromPoolAsync`), from a pool of one's own.
//!
//! ```text
//!  host     allocate ── launch ── drop               nothing waits
//!  stream   allocation ─► kernel ─► free             while the stream is captured, each becomes a node of the graph
//! ```

use std::ptr;

use cust::sys::{self, CUdeviceptr, CUmemoryPool};

use crate::error::Error;
use crate::gpu::Gpu;

/// A pool of a GPU's memory. It ends when it is dropped; memory from it stays until it is freed.
///
/// ```no_run
/// use tilewright_cuda_driver::Gpu;
///
/// # fn main() -> Result<(), tilewright_cuda_driver::Error> {
/// let gpu = Gpu::open(0)?;
/// let pool = gpu.new_pool(64 << 20)?;
/// let memory = pool.allocate(&gpu, 4096)?;
/// // Launches on the stream of `gpu` may use it from here on.
/// assert_ne!(memory.address(), 0);
/// drop(memory); // freed behind them; this does not wait
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MemoryPool {
    raw: CUmemoryPool,
    gpu: Gpu,
}

// SAFETY: the driver's functions may be called with a pool from any thread.
unsafe impl Send for MemoryPool {}
// SAFETY: as for `Send`.
unsafe impl Sync for MemoryPool {}

impl Gpu {
    /// A pool of this GPU's memory, empty at first. Memory that was freed stays with it for what is allocated next, up to `kept_bytes`; what is
    /// beyond that, the driver has back when somebody waits for the stream.
    ///
    /// # Errors
    /// [`Error::Call`] on a GPU, or with a driver, that has no pools; [`Error::ContextLost`] after a kernel has failed.
    pub fn new_pool(&self, kept_bytes: u64) -> Result<MemoryPool, Error> {
        self.bind()?;
        // The driver counts GPUs by 32 bits, and refuses a number that is none of theirs.
        let device = i32::try_from(self.properties().ordinal).unwrap_or(i32::MAX);
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            win32SecurityAttributes: ptr::null_mut(),
            reserved: [0; 64],
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the properties are complete, and `raw` may be written to.
        self.call(|| unsafe { sys::cuMemPoolCreate(&mut raw, &properties) })?;
        let pool = MemoryPool { raw, gpu: self.clone() };
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut kept_bytes = kept_bytes;
        // SAFETY: the pool is there, and the attribute is a number of 64 bits.
        self.call(|| unsafe { sys::cuMemPoolSetAttribute(raw, attribute, (&raw mut kept_bytes).cast()) })?;
        Ok(pool)
    }
}

impl MemoryPool {
    /// Allocates memory on the stream of `gpu`, a handle of the pool's GPU: what is started there from now on may use it. While the stream is
    /// captured, that is a node of the graph, and the memory is there whenever the graph comes to it.
    ///
    /// # Errors
    /// [`Error::Call`] where there is too little memory; [`Error::ContextLost`] after a kernel has failed.
    pub fn allocate(&self, gpu: &Gpu, bytes: usize) -> Result<OrderedMemory, Error> {
        gpu.bind()?;
        let mut address = 0;
        // SAFETY: `address` may be written to; pool and stream are of the context that is current now.
        gpu.call(|| unsafe { sys::cuMemAllocFromPoolAsync(&mut address, bytes, self.raw, gpu.stream()) })?;
        Ok(OrderedMemory { address, gpu: gpu.clone() })
    }
}

impl Drop for MemoryPool {
    /// Errors stay unseen: nobody is left to tell, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: this was its last use. Memory from it that has not been freed yet keeps what the pool has of it.
            let _ = self.gpu.call(|| unsafe { sys::cuMemPoolDestroy(self.raw) });
        }
    }
}

/// Memory of a [`MemoryPool`]. When it is dropped, it is freed in the order of the stream on which it was allocated: behind all that was started
/// there until then.
#[derive(Debug)]
pub struct OrderedMemory {
    address: CUdeviceptr,
    gpu: Gpu,
}

impl OrderedMemory {
    /// The address of the first byte, at a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for OrderedMemory {
    /// Errors stay unseen: nobody is left to tell, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the memory was allocated on this stream, and what uses it has been started there.
            let _ = self.gpu.call(|| unsafe { sys::cuMemFreeAsync(self.address, self.gpu.stream()) });
        }
    }
}
