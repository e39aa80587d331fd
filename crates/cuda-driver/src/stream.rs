//! CUDA streams besides a GPU's own: each runs what is started there in order, and beside what runs on the others.

use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::ptr;

use cust::sys::{self, CUstream};

use crate::error::Error;
use crate::event::Event;
use crate::gpu::Gpu;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// A stream that ends with this.
#[derive(Debug)]
pub(crate) struct FurtherStream {
    raw: CUstream,
    /// A handle by which things run on the GPU's own stream.
    gpu: Gpu,
}

// SAFETY: the driver's functions may be called with a stream from any thread on which its context is current.
unsafe impl Send for FurtherStream {}
// SAFETY: as for `Send`.
unsafe impl Sync for FurtherStream {}

impl FurtherStream {
    pub(crate) fn new(gpu: Gpu, priority: i32) -> Result<Self, Error> {
        gpu.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` may be written to.
        gpu.call(|| unsafe { sys::cuStreamCreateWithPriority(&mut raw, NON_BLOCKING, priority) })?;
        Ok(Self { raw, gpu })
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }
}

impl Drop for FurtherStream {
    /// Waits for nothing: the driver ends the stream when what was started there has finished. Errors stay unseen: nobody is left to
    /// tell, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the stream is of the context that is current now, and this was its last use.
            let _ = self.gpu.call(|| unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

impl Gpu {
    /// The priorities that streams can have: from the first, whose blocks the GPU takes first, to the last. On a GPU that knows none,
    /// 0 alone.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    pub fn stream_priorities(&self) -> Result<RangeInclusive<i32>, Error> {
        self.bind()?;
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        // SAFETY: both numbers may be written to.
        self.call(|| unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) })?;
        Ok(greatest..=least)
    }

    /// Has everything that is started from now on on this handle's stream wait for what the event was last recorded behind. This does
    /// not wait itself, and the event may be recorded again, or dropped, at once.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.bind()?;
        // SAFETY: the stream is of the context that is current now, and the event is there.
        Ok(self.call(|| unsafe { sys::cuStreamWaitEvent(self.stream(), event.raw(), 0) })?)
    }
}
