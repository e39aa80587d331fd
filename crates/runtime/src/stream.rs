//! Streams and events: what runs in order, and what beside it.
//!
//! The program's order holds for every buffer, on whatever streams it is used: see [`order`](crate::order). So streams are a matter of
//! time alone; what a program computes does not depend on them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::device::{Backend, Device};
use crate::lane::{Lane, StreamLane};
use crate::order::StreamNumber;

/// A stream: what is started by it runs in order, beside what is started by other streams and by the device itself.
///
/// It is a [`Device`] all of whose methods that start something do so here: `stream.launch(…)`, `stream.copy_to_device(…)`,
/// `stream.record_event()`; and it can be passed wherever a `&Device` is expected. Buffers are for all streams of their device. What one
/// stream writes and another then uses, the other waits for, on the GPU and not on the host, without being told:
///
/// ```
/// # use tilewright_runtime as runtime;
/// # use runtime::Device;
/// # use cuda_std::executor::Checks;
/// # let device = Device::cpu(Checks::Full);
/// let (copies, work) = (device.new_stream()?, device.new_stream()?);
/// let mut host = device.allocate_on_host::<f32>(1000)?;
/// host.as_mut_slice()?.fill(1.5);
/// let (mut a, mut b) = (device.allocate::<f32>(1000)?, device.allocate::<f32>(1000)?);
/// copies.copy_to_device(&host, &mut a)?; // Returns at once.
/// work.copy_on_device(&a, &mut b)?; // Runs behind the copy, because it reads what that writes.
/// host.as_mut_slice()?.fill(0.0); // Waits for the copy from this memory, and for nothing else.
/// work.copy_to_host(&b, &mut host)?;
/// assert_eq!(host.as_slice()?, [1.5; 1000]); // Waits for the copy into it.
/// # Ok::<(), runtime::Error>(())
/// ```
///
/// On the CPU executor, what is started on a stream has finished when the call returns: one of the orders that there may be on a GPU, with
/// the same results as all of them.
///
/// When the last handle of a stream is dropped, what has been started there goes on.
#[derive(Clone)]
pub struct Stream {
    device: Device,
}

/// Whose blocks a GPU takes first when several streams have some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamPriority {
    /// That of a device's own stream.
    #[default]
    Normal,
    /// Before the others, as soon as there is room: no block that runs already is interrupted.
    High,
}

impl Device {
    /// A new stream of this device. What is started there comes behind all that has been started on the device's own stream by now.
    ///
    /// Streams are made once and used again: each takes time to make. From the first one on, everything that is started on the device,
    /// on whatever stream, has an event recorded behind it.
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed, or if there is no room for more streams.
    pub fn new_stream(&self) -> Result<Stream, Error> {
        self.new_stream_with_priority(StreamPriority::Normal)
    }

    /// The same with a priority. A GPU that knows none, and the CPU executor, take all streams as equals.
    ///
    /// # Errors
    /// Those of [`Device::new_stream`].
    pub fn new_stream_with_priority(&self, priority: StreamPriority) -> Result<Stream, Error> {
        let gpu = match &self.inner.backend {
            Backend::Cuda(cuda) => {
                cuda.order.track();
                let priorities = match priority {
                    StreamPriority::Normal => 0..=0,
                    StreamPriority::High => cuda.gpu.stream_priorities()?,
                };
                let gpu = cuda.gpu.with_new_stream(*priorities.start())?;
                // What has been started before operations were recorded is on the device's own stream.
                let mut event = cuda.gpu.new_event()?;
                event.record(&cuda.gpu)?;
                gpu.wait_for(&event)?;
                Some(gpu)
            }
            Backend::Cpu(_) => None,
        };
        let lane = Lane::Stream(Arc::new(StreamLane::new(gpu, &self.inner.allocations)));
        Ok(Stream { device: Device { inner: self.inner.clone(), lane } })
    }

    /// Records an event behind everything that has been started on this stream. This does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`] if an earlier kernel has failed.
    pub fn record_event(&self) -> Result<Event, Error> {
        let what = match &self.inner.backend {
            Backend::Cuda(cuda) => {
                // Nothing is started on the stream between the two.
                let live = self.inner.allocations.lock();
                let (stream, count) = (self.lane.number(), live.streams.count(self.lane.number()));
                What::Cuda { event: self.gpu(cuda).record_event()?, stream, count }
            }
            Backend::Cpu(_) => What::Cpu(Instant::now()),
        };
        Ok(Event { device: self.on_own_stream(), what })
    }

    /// Has everything that is started on this stream from now on wait for an event. The host does not wait.
    ///
    /// No buffer needs that: streams that use the same one wait for one another by themselves. It is for what is not seen in
    /// buffers: to begin something later, or to let another library's stream ([`Device::on_stream`]) begin behind this one.
    ///
    /// # Errors
    /// [`Error::ForeignEvent`] for one of another device; [`Error::Driver`] if an earlier kernel has failed.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        if !self.is_same(&event.device) {
            return Err(Error::ForeignEvent { event: event.device.name(), device: self.name() });
        }
        if let (Backend::Cuda(cuda), What::Cuda { event, stream, count }) = (&self.inner.backend, &event.what) {
            let mut live = self.inner.allocations.lock();
            self.gpu(cuda).wait_for(event)?;
            live.streams.has_waited(self.lane.number(), *stream, *count);
        }
        Ok(())
    }

    /// A handle by which everything runs on the device's own stream.
    pub(crate) fn on_own_stream(&self) -> Self {
        Self { inner: self.inner.clone(), lane: Lane::Own }
    }
}

impl Deref for Stream {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device.name())
            .field("number", &self.device.lane.number())
            .finish()
    }
}

/// A point in a stream: what had been started there when it was recorded is before it.
pub struct Event {
    /// On its own stream.
    device: Device,
    what: What,
}

enum What {
    /// Behind the first `count` operations of a stream.
    Cuda {
        event: cuda_driver::Event,
        stream: StreamNumber,
        count: u64,
    },
    Cpu(Instant),
}

impl Event {
    /// Has the host wait until everything before the event has finished. What kernels have printed is shown then.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.what {
            What::Cuda { event, .. } => self.device.after(event.synchronize()),
            What::Cpu(_) => Ok(()),
        }
    }

    /// Whether everything before the event has finished. This does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`] if a kernel has failed.
    pub fn has_happened(&self) -> Result<bool, Error> {
        match &self.what {
            What::Cuda { event, .. } => Ok(event.has_happened()?),
            What::Cpu(_) => Ok(true),
        }
    }

    /// The time from `start` to this event, on a GPU as that measures it, to about half a microsecond; nothing if `start` is the later
    /// one. The host waits for both.
    ///
    /// # Errors
    /// [`Error::ForeignEvent`] for one of another device; [`Error::Driver`] if a kernel has failed.
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration, Error> {
        let foreign = || Error::ForeignEvent { event: start.device.name(), device: self.device.name() };
        if !self.device.is_same(&start.device) {
            return Err(foreign());
        }
        match (&self.what, &start.what) {
            (What::Cuda { event, .. }, What::Cuda { event: start, .. }) => {
                start.synchronize()?;
                Ok(event.elapsed_since(start)?)
            }
            (What::Cpu(end), What::Cpu(start)) => Ok(end.saturating_duration_since(*start)),
            _ => Err(foreign()),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.device.name()).finish_non_exhaustive()
    }
}
