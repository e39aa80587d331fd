//! CUDA events (`cuEvent`): recorded in a GPU's stream, to measure the time between two of them.

use std::ptr;
use std::time::Duration;

use cust::sys::{self, CUevent, CUevent_flags as Flags};

use crate::error::{Error, code};
use crate::gpu::Gpu;

/// An event in a GPU's stream. The GPU records the time when it has finished everything before the event.
#[derive(Debug)]
pub struct Event {
    raw: CUevent,
    gpu: Gpu,
}

// SAFETY: the driver's functions may be called with an event from any thread on which its context is current.
unsafe impl Send for Event {}
// SAFETY: as for `Send`; the one function that changes an event, `record`, takes `&mut`.
unsafe impl Sync for Event {}

/// `CU_EVENT_DISABLE_TIMING`: without a time, waiting for an event takes the driver less.
const WITHOUT_TIME: u32 = Flags::CU_EVENT_DISABLE_TIMING as u32;

impl Gpu {
    /// An event to wait for, without a time. It is behind nothing before it is [recorded](Event::record).
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn new_event(&self) -> Result<Event, Error> {
        self.bind()?;
        self.event(WITHOUT_TIME)
    }

    /// Makes an event. The context is current.
    fn event(&self, flags: u32) -> Result<Event, Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` may be written to.
        self.call(|| unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Event { raw, gpu: self.clone() })
    }

    /// Records an event after everything that was started so far. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn record_event(&self) -> Result<Event, Error> {
        self.bind()?;
        let mut event = self.event(Flags::CU_EVENT_DEFAULT as u32)?;
        event.record(self)?;
        Ok(event)
    }
}

impl Event {
    /// Records the event, again if it has been, after everything that was started so far by such handles as `gpu`. This does not wait.
    /// Who has begun to wait for what the event was recorded behind before, still waits for that.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`] if `gpu` is another GPU.
    pub fn record(&mut self, gpu: &Gpu) -> Result<(), Error> {
        gpu.bind()?;
        // SAFETY: the stream is of the context that is current now, and the event is there.
        Ok(gpu.call(|| unsafe { sys::cuEventRecord(self.raw, gpu.stream()) })?)
    }

    /// Waits until what the event was recorded behind has finished.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed; [`Error::Call`].
    pub fn synchronize(&self) -> Result<(), Error> {
        self.gpu.bind()?;
        // SAFETY: the event is there, and its context is current.
        Ok(self.gpu.call(|| unsafe { sys::cuEventSynchronize(self.raw) })?)
    }

    /// Whether what the event was recorded behind has finished. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed; [`Error::Call`].
    pub fn has_happened(&self) -> Result<bool, Error> {
        self.gpu.bind()?;
        // SAFETY: the event is there, and its context is current.
        match self.gpu.call(|| unsafe { sys::cuEventQuery(self.raw) }) {
            Ok(()) => Ok(true),
            Err(error) => error.returned_any(&[code::NOT_READY]).map(|_| false).map_err(Error::from),
        }
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    /// The time that the GPU took from `start` to this event, to about half a microsecond. Waits for this event.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed; [`Error::Call`] if `start` is of another GPU, or later than this
    /// event and not yet reached.
    pub fn elapsed_since(&self, start: &Event) -> Result<Duration, Error> {
        self.synchronize()?;
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
