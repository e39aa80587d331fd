//! CUDA events (`cuEvent`): recorded in a GPU's stream, to measure the time between two of them.

use std::ptr;
use std::time::Duration;

use cust::sys::{self, CUevent, CUevent_flags as Flags};

use crate::error::Error;
use crate::gpu::Gpu;

/// An event in a GPU's stream. The GPU records the time when it has finished everything before the event.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    gpu: Gpu,
}

// SAFETY: the driver's functions may be called with an event from any thread on which its context is current.
unsafe impl Send for Event {}
// SAFETY: as for `Send`; none of the functions used here changes an event after it has been recorded.
unsafe impl Sync for Event {}

impl Gpu {
    /// Records an event after everything that was started so far. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn record_event(&self) -> Result<Event, Error> {
        self.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` may be written to.
        self.call(|| unsafe { sys::cuEventCreate(&mut raw, Flags::CU_EVENT_DEFAULT as u32) })?;
        let event = Event { raw, gpu: self.clone() };
        // SAFETY: event and stream are of the context that is current now.
        self.call(|| unsafe { sys::cuEventRecord(event.raw, self.stream()) })?;
        Ok(event)
    }
}

impl Event {
    /// The time that the GPU took from `start` to this event, to about half a microsecond. Waits for this event.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed; [`Error::Call`] if `start` is of another GPU, or later than this
    /// event and not yet reached.
    pub fn elapsed_since(&self, start: &Event) -> Result<Duration, Error> {
        self.gpu.bind()?;
        // SAFETY: the event is there, and its context is current.
        self.gpu.call(|| unsafe { sys::cuEventSynchronize(self.raw) })?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are there, and the number may be written to.
        self.gpu.call(|| unsafe { sys::cuEventElapsedTime(&mut milliseconds, start.raw, self.raw) })?;
        // Negative where `start` is the later event.
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Errors stay unseen here: nobody is left to tell, and the next use of the GPU reports the same error.
        if self.gpu.bind().is_ok() {
            // SAFETY: the event is of the context that is current now, and this was its last use.
            let _ = self.gpu.call(|| unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}
