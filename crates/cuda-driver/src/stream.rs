//! What streams of a GPU can have: priorities, and waits for what others do.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use cust::sys;

use crate::error::Error;
use crate::event::Event;
use crate::gpu::Gpu;

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
