//! What a block is like after a step: where each warp is, what barriers lack, what is in flight, and what shared memory holds.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::summary::Stage;
use crate::{Barrier, Block, Kind, Memory, Step, Summary};

/// Where a warp is.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// // The consumer waits for the first phase before the tile has come.
/// let warp: &Warp = &State::after(block, &summary, trace.warps(), 3).warps[1];
/// assert_eq!(warp.waits, Some((Barrier::Mbarrier(128), Some(0))));
/// assert!(!warp.has_ended && block.steps[warp.last.unwrap()].kind == Kind::Wait);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warp {
    /// Its last step: the number in [`Block::steps`].
    pub last: Option<usize>,
    /// What lanes of it wait for: the barrier and its phase.
    pub waits: Option<(Barrier, Option<u64>)>,
    /// Whether it has returned.
    pub has_ended: bool,
}

/// What a barrier is like.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// // The producer has arrived and has the phase expect 128 bytes, for which warp 1 waits.
/// let state = State::after(block, &summary, trace.warps(), 3);
/// let expected = OfBarrier { phase: 0, arrived: 1, bytes: 128, waiting: vec![1] };
/// assert_eq!(state.barriers[&Barrier::Mbarrier(128)], expected);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfBarrier {
    /// How often it has been complete.
    pub phase: u64,
    /// How many lanes have arrived in the present phase, or wait, where that is the same.
    pub arrived: u64,
    /// The bytes that the phase expects, less those that have come.
    pub bytes: i64,
    /// The warps that wait.
    pub waiting: Vec<usize>,
}

/// A transfer that has not ended.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// let state = State::after(block, &summary, trace.warps(), 3);
/// assert_eq!(state.in_flight, [InFlight { transfer: 0, issued: 1, bytes: 128 }]);
/// assert!(State::after(block, &summary, trace.warps(), 4).in_flight.is_empty(), "the tile has come");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Its number.
    pub transfer: u64,
    /// The step that asked for it: the number in [`Block::steps`].
    pub issued: usize,
    /// Its bytes.
    pub bytes: u64,
}

/// What a stage holds.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// // The stage is filled, full, and read for the last time.
/// let held = |count| State::after(block, &summary, trace.warps(), count).stages[0];
/// assert_eq!([1, 3, 6, 8].map(held), [Held::Nothing, Held::Filling, Held::Full, Held::Used]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing yet.
    Nothing,
    /// It is being filled.
    Filling,
    /// All of it is there.
    Full,
    /// It has been read for the last time before it is filled again.
    Used,
}

/// What was last done to a part of shared memory.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// // The first half of shared memory while the tile comes.
/// assert_eq!(map(block, 0, 2, 2)[0], Touch::InFlight);
/// assert_eq!(Touch::default(), Touch::Nothing);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// Nothing.
    #[default]
    Nothing,
    /// It was read.
    Read,
    /// It was written.
    Written,
    /// TMA, or an asynchronous copy, is to write it.
    InFlight,
}

/// A block after a step.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// let state: State = State::after(block, &summary, trace.warps(), block.steps.len());
/// let ended = state.warps.iter().filter(|warp| warp.has_ended).count();
/// assert_eq!((ended, state.in_flight.len()), (1, 0), "one warp has returned, and nothing is under way");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// By their numbers.
    pub warps: Vec<Warp>,
    /// Barriers that have been used.
    pub barriers: BTreeMap<Barrier, OfBarrier>,
    /// Loads by TMA that are under way.
    pub in_flight: Vec<InFlight>,
    /// As many as [`Summary::stages`].
    pub stages: Vec<Held>,
}

impl State {
    /// After the first `count` steps of a block with so many warps.
    ///
    /// ```
    /// # use kernel_trace::*;
    /// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
    /// # let block = &trace.blocks[0];
    /// # use replay::*;
    /// # let summary = Summary::of(block);
    /// // Each state of the block, one step after the other.
    /// let waits = |count| State::after(block, &summary, trace.warps(), count).warps[1].waits.is_some();
    /// let counts: Vec<usize> = (0..=block.steps.len()).filter(|count| waits(*count)).collect();
    /// assert_eq!(counts[0], 3, "the consumer waits from the third step on");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn after(block: &Block, summary: &Summary, warps: usize, count: usize) -> Self {
        let mut state = Self {
            warps: vec![Warp::default(); warps],
            barriers: BTreeMap::new(),
            in_flight: Vec::new(),
            stages: Vec::new(),
        };
        let steps = &block.steps[..count.min(block.steps.len())];
        steps.iter().enumerate().for_each(|(at, step)| state.take(at, step));
        let now = steps.last().map_or(0, |step| step.step);
        state.stages = summary.stages.iter().map(|stage| held(stage, now)).collect();
        state
    }

    fn take(&mut self, at: usize, step: &Step) {
        if let Some(warp) = step.warp.and_then(|warp| self.warps.get_mut(warp)) {
            warp.last = Some(at);
            match step.kind {
                Kind::Wait => warp.waits = step.barrier.map(|barrier| (barrier, step.phase)),
                Kind::End => (warp.has_ended, warp.waits) = (true, None),
                Kind::Fault => {}
                _ => warp.waits = None,
            }
        }
        match (step.kind, step.transfer) {
            (Kind::TmaLoad, Some(transfer)) => {
                self.in_flight.push(InFlight { transfer, issued: at, bytes: step.bytes });
            }
            (Kind::TmaLoaded, Some(transfer)) => self.in_flight.retain(|load| load.transfer != transfer),
            _ => {}
        }
        let Some(barrier) = step.barrier else { return };
        let of_barrier = self.barriers.entry(barrier).or_default();
        let lanes = u64::from(step.lanes.count_ones());
        match step.kind {
            Kind::Arrive => {
                of_barrier.arrived += lanes;
                of_barrier.bytes += step.bytes as i64;
            }
            Kind::TmaLoaded => of_barrier.bytes -= step.bytes as i64,
            Kind::Wait => {
                // Waiting is an arrival, but at an mbarrier.
                if matches!(barrier, Barrier::Block | Barrier::Named(_)) {
                    of_barrier.arrived += lanes;
                }
                if let Some(warp) = step.warp.filter(|warp| !of_barrier.waiting.contains(warp)) {
                    of_barrier.waiting.push(warp);
                }
            }
            Kind::Complete => (of_barrier.phase, of_barrier.arrived) = (step.phase.unwrap_or(of_barrier.phase) + 1, 0),
            Kind::Passed | Kind::RegistersAcquired => {
                of_barrier.waiting.retain(|warp| Some(*warp) != step.warp);
            }
            _ => {}
        }
    }
}

fn held(stage: &Stage, now: u64) -> Held {
    let behind = stage.fills.partition_point(|fill| fill.issued <= now);
    let Some(fill) = stage.fills[..behind].last() else { return Held::Nothing };
    match (fill.there, fill.read) {
        (Some(there), Some((_, last))) if there <= now && last <= now => Held::Used,
        (Some(there), _) if there <= now => Held::Full,
        _ => Held::Filling,
    }
}

/// What was last done to each of `cells` equal parts of an array in shared memory, after the first `count` steps.
///
/// ```
/// # use kernel_trace::*;
/// # let trace = Trace::from_json(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/example.json")))?;
/// # let block = &trace.blocks[0];
/// # use replay::*;
/// # let summary = Summary::of(block);
/// // Shared memory in nine parts of 16 bytes, after the product has read the tile: behind it are the barriers.
/// let touched = map(block, 0, 9, 7);
/// assert_eq!(touched, [[Touch::Read; 8].as_slice(), &[Touch::Nothing]].concat());
/// # Ok::<(), Error>(())
/// ```
pub fn map(block: &Block, array: usize, cells: usize, count: usize) -> Vec<Touch> {
    let bytes = block.arrays.get(array).map_or(0, |array| array.bytes);
    let mut touched = vec![Touch::Nothing; cells];
    if bytes == 0 || cells == 0 {
        return touched;
    }
    let cells_of = |range: Range<usize>| {
        let first = range.start * cells / bytes;
        first..(range.end * cells).div_ceil(bytes).clamp(first, cells)
    };
    for step in block.steps.iter().take(count).filter(|step| step.memory == Some(Memory::Shared(array))) {
        let touch = match step.kind {
            Kind::SharedLoad | Kind::Wgmma | Kind::TmaStore => Touch::Read,
            Kind::SharedStore | Kind::SharedAtomic | Kind::TmaLoaded | Kind::AsyncCopyWait => Touch::Written,
            Kind::TmaLoad | Kind::AsyncCopy => Touch::InFlight,
            _ => continue,
        };
        step.ranges().for_each(|range| touched[cells_of(range)].fill(touch));
    }
    touched
}

/// The bytes in flight, and how many stages are full, after each step: what a counter shows.
pub(crate) fn counters(block: &Block, summary: &Summary) -> Vec<(u64, u64, usize)> {
    let mut bytes = 0;
    let mut counters = Vec::new();
    for step in &block.steps {
        let before = bytes;
        match (step.kind, step.transfer) {
            (Kind::TmaLoad, Some(_)) => bytes += step.bytes,
            (Kind::TmaLoaded, Some(_)) => bytes -= step.bytes.min(bytes),
            _ => {}
        }
        let full = summary.stages.iter().filter(|stage| held(stage, step.step) == Held::Full).count();
        if before != bytes || counters.last().is_none_or(|(_, _, last)| *last != full) {
            counters.push((step.step, bytes, full));
        }
    }
    counters
}
