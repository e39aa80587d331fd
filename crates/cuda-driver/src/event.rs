//! Marks in a GPU's stream, to measure time between them.

use std::time::Duration;

use cust::event::EventFlags;

use crate::call::call;
use crate::error::Error;
use crate::gpu::Gpu;

/// A mark in a GPU's stream. The GPU notes the time when it has finished everything before the mark.
#[derive(Debug)]
pub struct Event {
    // Dropped from the top: the event before the context.
    event: cust::event::Event,
    gpu: Gpu,
}

impl Gpu {
    /// Sets a mark after everything that was started so far. This does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed.
    pub fn record_event(&self) -> Result<Event, Error> {
        self.bind()?;
        let event = call(|| cust::event::Event::new(EventFlags::DEFAULT))?;
        call(|| event.record(self.stream()))?;
        Ok(Event { event, gpu: self.clone() })
    }
}

impl Event {
    /// The time that the GPU took from `start` to this mark, to about half a microsecond. Waits for this mark.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if a kernel has failed; [`Error::Call`] if `start` is of another GPU, or later than this
    /// mark and not yet reached.
    pub fn elapsed_since(&self, start: &Event) -> Result<Duration, Error> {
        self.gpu.bind()?;
        call(|| self.event.synchronize())?;
        let milliseconds = call(|| self.event.elapsed_time_f32(&start.event))?;
        // Negative where `start` is the later mark.
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // The event's destruction needs the context. If this fails, so does that, and nobody is left to tell.
        let _ = self.gpu.bind();
    }
}
