//! The order of what runs on different streams of a GPU: what uses memory waits for what has used it before.
//!
//! ```text
//!  stream 1   copy a ──▶ launch, writes b ──● event
//!                                            └──▶ cuStreamWaitEvent
//!  stream 2   launch, writes c ─────────────────▶ launch, reads b
//! ```
//!
//! An *operation* is a launch, a copy, a fill or the launch of a graph. Each records an event behind it, and each buffer knows, part by
//! part, the last operation that wrote to it, and on each stream the last that has read it since. The next one on another stream waits
//! for those of them that it conflicts with: of two that use a byte, at least one writes it. So whatever the program does with its streams,
//! buffers get what they would get if everything ran in the order of the program. This is no convention that a program has to keep: memory
//! is used by `Device`'s methods only, and all of them come by here. No guard is needed that somebody could forget; and the memory of a
//! forgotten buffer stays, as its entry here does.
//!
//! A wait is left out if the stream is known to be behind: it has waited for that operation, or a later one of that stream. For that each
//! stream has a clock (a vector clock of one step: how far it has waited for each other stream).
//!
//! As long as a device has one stream, no graph and no page-locked buffer, nothing of this is done, as the stream is all the order there
//! is. A new stream begins behind what had been started by then.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cuda_driver::{Event, Gpu};

/// The number of a stream of a device.
pub(crate) type StreamNumber = u64;

/// The device's own stream.
pub(crate) const OWN: StreamNumber = 0;
/// A stream of another library, which has promised to see to the order.
pub(crate) const LENT: StreamNumber = u64::MAX;

/// Memory that an operation uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) range: Range<usize>,
    pub(crate) is_written: bool,
}

impl Use {
    pub(crate) fn new(address: usize, bytes: usize, is_written: bool) -> Self {
        Self { range: address..address + bytes, is_written }
    }

    /// A use of so many bytes; none of no bytes.
    pub(crate) fn of(address: usize, bytes: usize, is_written: bool) -> Vec<Self> {
        if bytes == 0 { Vec::new() } else { vec![Self::new(address, bytes, is_written)] }
    }

    /// Whether the order of the two matters.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        (self.is_written || other.is_written)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }

    fn covers(&self, other: &Self) -> bool {
        self.range.start <= other.range.start && other.range.end <= self.range.end
    }
}

/// What has been started on a stream, and the event behind it.
#[derive(Debug)]
pub(crate) struct Operation {
    stream: StreamNumber,
    /// Counted on its stream, from 1.
    number: u64,
    /// There until it is dropped.
    event: Option<Event>,
    events: Arc<Events>,
}

impl Operation {
    fn event(&self) -> &Event {
        self.event.as_ref().expect("it is there until the operation is dropped")
    }

    /// Whether it is started behind whatever the other one's stream had been given before. Of other libraries' streams, which all have
    /// the same number, nobody knows.
    fn is_on_stream_of(&self, other: &Self) -> bool {
        self.stream == other.stream && self.stream != LENT
    }

    /// Waits until it has finished.
    pub(crate) fn synchronize(&self) -> Result<(), cuda_driver::Error> {
        self.event().synchronize()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.events.give_back(self.event.take());
    }
}

/// Events that can be recorded again: nobody waits for what they were recorded behind, or all who do have begun to.
#[derive(Debug, Default)]
pub(crate) struct Events {
    free: Mutex<Vec<Event>>,
}

impl Events {
    fn take(&self, gpu: &Gpu) -> Result<Event, cuda_driver::Error> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| gpu.new_event(), Ok)
    }

    fn give_back(&self, event: Option<Event>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
    }
}

/// How many uses of one buffer are told apart. More of them come of streams that use many different parts of it.
const MOST_USES: usize = 64;

/// The operations that the next one that uses some memory may have to wait for.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    uses: Vec<(Use, Arc<Operation>)>,
}

impl Uses {
    /// Those that conflict with a use.
    pub(crate) fn conflicts<'a>(&'a self, with: &'a Use) -> impl Iterator<Item = &'a Arc<Operation>> {
        self.uses.iter().filter(move |(before, _)| before.conflicts_with(with)).map(|(_, operation)| operation)
    }

    /// All of them, which are forgotten.
    pub(crate) fn take(&mut self) -> Vec<Arc<Operation>> {
        self.uses.drain(..).map(|(_, operation)| operation).collect()
    }

    /// Forgets operations that have finished.
    pub(crate) fn forget(&mut self, finished: &[Arc<Operation>]) {
        self.uses.retain(|(_, operation)| !finished.iter().any(|other| Arc::ptr_eq(other, operation)));
    }

    /// Notes a use, which is behind all that it conflicts with.
    pub(crate) fn note(&mut self, now: Use, operation: &Arc<Operation>) {
        // Who waits for this one waits for those that it came after, and that stand in nobody else's way.
        self.uses.retain(|(before, of)| {
            let is_behind = now.is_written || (!before.is_written && of.is_on_stream_of(operation));
            !(is_behind && now.covers(before))
        });
        self.uses.push((now, operation.clone()));
        if self.uses.len() > MOST_USES {
            self.join();
        }
    }

    /// Forgets what has finished, and makes one use of all those of a stream, which is at least as much as they are.
    fn join(&mut self) {
        self.uses.retain(|(_, operation)| !operation.event().has_happened().unwrap_or(false));
        let mut joined: Vec<(Use, Arc<Operation>)> = Vec::new();
        for (next, operation) in self.uses.drain(..) {
            match joined.iter_mut().find(|(_, other)| other.is_on_stream_of(&operation)) {
                Some((all, last)) => {
                    all.range = all.range.start.min(next.range.start)..all.range.end.max(next.range.end);
                    all.is_written |= next.is_written;
                    if operation.number > last.number {
                        *last = operation;
                    }
                }
                None => joined.push((next, operation)),
            }
        }
        self.uses = joined;
    }
}

/// A stream, as the order knows it.
#[derive(Debug, Default)]
struct StreamState {
    /// The operations so far.
    count: u64,
    last: Option<Arc<Operation>>,
    /// How many operations of each other stream it has waited for.
    clock: BTreeMap<StreamNumber, u64>,
}

/// The streams of a device.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    states: BTreeMap<StreamNumber, StreamState>,
    /// The number of streams that there have been.
    count: u64,
    /// The last operations of streams that are no more.
    ended: Vec<Arc<Operation>>,
    /// Why nobody knows any more what runs: an operation has been started, but neither recorded nor waited for.
    failure: Option<cuda_driver::Error>,
}

impl Streams {
    /// Adds a stream, and tells its number.
    pub(crate) fn add(&mut self) -> StreamNumber {
        self.count += 1;
        self.count
    }

    /// Notes that nothing more will be started on a stream.
    pub(crate) fn end(&mut self, stream: StreamNumber) {
        self.ended.retain(|operation| !operation.event().has_happened().unwrap_or(false));
        self.ended.extend(self.states.remove(&stream).and_then(|state| state.last));
        self.states.values_mut().for_each(|state| _ = state.clock.remove(&stream));
    }

    /// The number of operations on a stream so far.
    pub(crate) fn count(&self, stream: StreamNumber) -> u64 {
        self.states.get(&stream).map_or(0, |state| state.count)
    }

    /// The last operation on each stream.
    pub(crate) fn last(&self) -> Vec<Arc<Operation>> {
        self.states.values().filter_map(|state| state.last.clone()).chain(self.ended.iter().cloned()).collect()
    }

    /// Whether anything can be put in order.
    pub(crate) fn check(&self) -> Result<(), cuda_driver::Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Notes that a stream has waited for the first `count` operations of another.
    pub(crate) fn has_waited(&mut self, stream: StreamNumber, other: StreamNumber, count: u64) {
        if stream == LENT || other == LENT {
            return;
        }
        let clock = &mut self.states.entry(stream).or_default().clock;
        let known = clock.entry(other).or_default();
        *known = (*known).max(count);
    }

    /// Has a stream, by a handle of it, wait for operations, as far as it is not known to be behind them.
    pub(crate) fn wait(
        &mut self,
        (stream, gpu): (StreamNumber, &Gpu),
        mut operations: Vec<Arc<Operation>>,
    ) -> Result<(), cuda_driver::Error> {
        // The later of two on a stream is behind the earlier one.
        operations.sort_unstable_by_key(|operation| (operation.stream, std::cmp::Reverse(operation.number)));
        for operation in operations {
            let is_known = |state: &StreamState| state.clock.get(&operation.stream) >= Some(&operation.number);
            let is_same = operation.stream == stream && stream != LENT;
            if is_same || self.states.get(&stream).is_some_and(is_known) {
                continue;
            }
            gpu.wait_for(operation.event())?;
            self.has_waited(stream, operation.stream, operation.number);
        }
        Ok(())
    }

    /// Starts an operation on a stream, and records an event behind it. The stream is behind everything that the operation has to come
    /// after.
    pub(crate) fn start<E: From<cuda_driver::Error>>(
        &mut self,
        (stream, gpu): (StreamNumber, &Gpu),
        events: &Arc<Events>,
        start: impl FnOnce() -> Result<(), E>,
    ) -> Result<Arc<Operation>, E> {
        // Before the start, because it may fail.
        let mut event = events.take(gpu)?;
        if let Err(error) = start() {
            events.give_back(Some(event));
            return Err(error);
        }
        if let Err(error) = event.record(gpu) {
            // It runs, and nobody could wait for it. So this does, on the host; if that fails too, nothing is certain any more.
            if let Err(failure) = gpu.synchronize() {
                self.failure = Some(failure);
            }
            return Err(error.into());
        }
        let state = self.states.entry(stream).or_default();
        state.count += 1;
        let operation = Operation { stream, number: state.count, event: Some(event), events: events.clone() };
        let operation = Arc::new(operation);
        state.last = Some(operation.clone());
        Ok(operation)
    }
}

/// Whether operations are put in order: not as long as there is one stream for all of them.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) is_tracked: RwLock<bool>,
    pub(crate) events: Arc<Events>,
}

impl Order {
    /// From now on operations are put in order. Those that have been started without are on the device's own stream.
    pub(crate) fn track(&self) {
        let is_tracked = *self.is_tracked.read().unwrap_or_else(PoisonError::into_inner);
        if !is_tracked {
            // Whoever starts one without holds the lock until it is started.
            *self.is_tracked.write().unwrap_or_else(PoisonError::into_inner) = true;
        }
    }
}
