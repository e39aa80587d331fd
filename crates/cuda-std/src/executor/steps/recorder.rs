//! What a worker records of the block that it runs.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use std::boxed::Box;
use std::collections::HashSet;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::super::backtraces::Spot;
use super::super::context::{Context, LANES, State};
use super::super::fault::{Fault, FaultKind, Place as FaultPlace, SharedArrayName, SourceLine, agreeing, counted};
use super::super::identity::SharedIdentity;
use super::merge::{Joins, merge};
use super::{Left, RecordedArray, RecordedBlock, Step, StepActor, StepBarrier, StepKind, StepMemory, Steps};
use crate::Dim3;
use crate::atomic::Place;

/// How many notes of lanes there may be for a step, on average, before they are no longer kept.
const NOTES: usize = LANES;

/// What an access does.
#[derive(Clone, Copy)]
pub(in super::super) enum Access {
    Load,
    Store,
    /// An atomic operation of this name.
    Atomic(&'static str),
}

/// Where memory is that a thread accesses.
#[derive(Clone, Copy)]
pub(in super::super) enum Memory {
    /// Global memory.
    Global,
    /// An array in shared memory.
    Shared(&'static SharedIdentity),
    /// The same of the block of this rank.
    Cluster(u32, &'static SharedIdentity),
}

/// What a thread does, or TMA, before it is put together with what others do.
pub(in super::super) struct Note {
    pub(in super::super) kind: StepKind,
    pub(in super::super) location: Option<&'static Location<'static>>,
    /// Return addresses, if the line of the kernel is looked for.
    pub(in super::super) callers: Vec<usize>,
    pub(in super::super) times: u64,
    pub(in super::super) memory: Option<StepMemory>,
    pub(in super::super) ranges: Vec<Range<usize>>,
    pub(in super::super) bytes: u64,
    pub(in super::super) barrier: Option<StepBarrier>,
    pub(in super::super) phase: Option<u64>,
    pub(in super::super) transfer: Option<u64>,
    pub(in super::super) text: String,
}

impl Note {
    fn new(kind: StepKind, location: Option<&'static Location<'static>>) -> Self {
        Self {
            kind,
            location,
            callers: Vec::new(),
            times: 1,
            memory: None,
            ranges: Vec::new(),
            bytes: 0,
            barrier: None,
            phase: None,
            transfer: None,
            text: String::new(),
        }
    }

    pub(in super::super) fn barrier(self, barrier: StepBarrier) -> Self {
        Self { barrier: Some(barrier), ..self }
    }

    pub(in super::super) fn phase(self, phase: u64) -> Self {
        Self { phase: Some(phase), ..self }
    }

    pub(in super::super) fn bytes(self, bytes: usize) -> Self {
        Self { bytes: bytes as u64, ..self }
    }

    pub(in super::super) fn text(self, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..self }
    }

    /// What a wait for groups waits for.
    pub(in super::super) fn until_under_way(self, latest: u64) -> Self {
        self.text(format!("until {} {} under way", counted(latest, "group"), agreeing(latest, "is", "are")))
    }

    pub(in super::super) fn transfer(self, transfer: u64) -> Self {
        Self { transfer: Some(transfer), ..self }
    }

    /// These bytes of memory: by their addresses in global memory, by their offsets in an array of shared memory.
    pub(in super::super) fn at(
        mut self,
        recorder: &Recorder,
        memory: Memory,
        ranges: impl IntoIterator<Item = Range<usize>>,
    ) -> Self {
        for range in ranges {
            self.bytes += range.len() as u64;
            let (memory, base) = recorder.memory(memory, range.start);
            self.memory = Some(memory);
            if let Some(base) = base {
                self.ranges.push(range.start - base..range.end - base);
            }
        }
        self
    }

    /// Without a place in the source.
    pub(in super::super) fn anywhere(self) -> Self {
        Self { location: None, ..self }
    }

    fn is_again(&self, other: &Self) -> bool {
        self.key() == other.key() && self.ranges == other.ranges && self.text == other.text
    }
}

impl Joins for Note {
    type Key = (StepKind, usize, Option<StepMemory>, Option<StepBarrier>, Option<u64>, Option<u64>);

    fn key(&self) -> Self::Key {
        let place = self.location.map_or(0, |location| ptr::from_ref(location).addr());
        (self.kind, place, self.memory, self.barrier, self.phase, self.transfer)
    }

    fn join(&mut self, other: Self) {
        self.times = self.times.max(other.times);
        match self.kind {
            // Each lane comes to what all of them read.
            StepKind::Wgmma => {}
            _ => {
                self.ranges.extend(other.ranges);
                self.bytes += other.bytes;
            }
        }
    }
}

/// Has ranges be in order, each as long as can be.
fn tidy(ranges: &mut Vec<Range<usize>>) {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
}

/// Records the blocks that a worker runs, if they are meant.
pub(in super::super) struct Recorder {
    steps: std::sync::Arc<Steps>,
    /// Names, addresses and sizes of the views: of an element, and of all.
    views: Vec<(String, Range<usize>, usize)>,
    /// What lanes of the warp that runs have done since it was resumed.
    open: RefCell<Vec<(usize, Note)>>,
    block: RefCell<RecordedBlock>,
    /// What lanes have done since the warp was resumed that its first one has not: the line of the kernel is looked for by whoever comes first.
    seen: RefCell<HashSet<<Note as Joins>::Key>>,
    /// The arrays, in the order of those of the block.
    arrays: RefCell<Vec<&'static SharedIdentity>>,
    /// The last step of each warp, if it may be counted together with the next.
    last: RefCell<Vec<Option<(usize, Note)>>>,
    /// How many accesses to shared memory that follow are parts of one that has been noted.
    parts: Cell<usize>,
    transfers: Cell<u64>,
    /// How often the block's barrier has been complete.
    epoch: Cell<u64>,
    /// What threads have done.
    done: Cell<u64>,
}

impl Recorder {
    pub(in super::super) fn new(
        steps: &std::sync::Arc<Steps>,
        visit_views: &super::super::context::VisitViews<'_>,
    ) -> Self {
        let mut views = Vec::new();
        visit_views(&mut |view| {
            views.push((view.name.to_string(), view.address..view.address + view.bytes, view.element_bytes));
        });
        Self {
            steps: std::sync::Arc::clone(steps),
            views,
            open: RefCell::default(),
            block: RefCell::new(nothing(Dim3::from(0))),
            seen: RefCell::default(),
            arrays: RefCell::default(),
            last: RefCell::default(),
            parts: Cell::new(0),
            transfers: Cell::new(0),
            epoch: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// Whether a block is meant.
    pub(in super::super) fn wants(&self, block: Dim3) -> bool {
        self.steps.options().blocks.contains(&block)
    }

    fn begin(&self, block: Dim3, warps: usize) {
        let views = self.views.iter().map(|(name, range, element)| (name.clone(), *element, range.len())).collect();
        self.block.replace(RecordedBlock { views, ..nothing(block) });
        self.open.borrow_mut().clear();
        self.seen.borrow_mut().clear();
        self.arrays.borrow_mut().clear();
        self.last.replace(std::iter::repeat_with(|| None).take(warps).collect());
        for cell in [&self.transfers, &self.epoch, &self.done] {
            cell.set(0);
        }
        self.parts.set(0);
    }

    /// What memory at a place is, and from where its bytes are counted, unless nobody can say.
    fn memory(&self, memory: Memory, start: usize) -> (StepMemory, Option<usize>) {
        match memory {
            Memory::Global => {
                match self.views.iter().position(|(_, range, _)| range.contains(&start)) {
                    Some(view) => (StepMemory::View(view), Some(self.views[view].1.start)),
                    // An address says nothing, and is another one each time.
                    None => (StepMemory::Global, None),
                }
            }
            Memory::Shared(array) => (StepMemory::Shared(self.array(array)), Some(0)),
            Memory::Cluster(rank, array) => (StepMemory::Cluster(rank, self.array(array)), Some(0)),
        }
    }

    fn array(&self, array: &'static SharedIdentity) -> usize {
        let mut arrays = self.arrays.borrow_mut();
        let known = arrays.iter().position(|known| ptr::eq(*known, array));
        known.unwrap_or_else(|| {
            arrays.push(array);
            arrays.len() - 1
        })
    }

    /// A number for a transfer by TMA.
    pub(in super::super) fn next_transfer(&self) -> u64 {
        self.transfers.set(self.transfers.get() + 1);
        self.transfers.get()
    }

    /// How often the block's barrier has been complete.
    pub(in super::super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    /// Notes that it is complete again: how often it was before.
    pub(in super::super) fn next_epoch(&self) -> u64 {
        self.epoch.replace(self.epoch.get() + 1)
    }

    /// Whether an access to shared memory is a part of one that has been noted.
    pub(in super::super) fn is_part(&self) -> bool {
        let parts = self.parts.get();
        self.parts.set(parts.saturating_sub(1));
        parts > 0
    }

    /// Has so many accesses that follow be parts of one that has been noted.
    pub(in super::super) fn set_parts(&self, parts: usize) {
        self.parts.set(parts);
    }

    fn room(&self) -> usize {
        self.steps.options().limit.saturating_sub(self.block.borrow().steps.len())
    }

    /// Adds steps to those of the block.
    fn add(&self, steps: impl ExactSizeIterator<Item = (StepActor, Note)>) {
        let first = self.steps.numbers(steps.len());
        let mut block = self.block.borrow_mut();
        let mut last = self.last.borrow_mut();
        for (number, (by, mut note)) in (first..).zip(steps) {
            let warp = if let StepActor::Warp { warp, .. } = by { Some(warp) } else { None };
            if note.kind != StepKind::Wgmma {
                tidy(&mut note.ranges);
            }
            if let Some((at, before)) = warp.and_then(|warp| last[warp].as_ref())
                && note.is_again(before)
                && block.steps[*at].by == by
            {
                block.steps[*at].times += note.times;
                continue;
            }
            // What ends the block is kept in any case.
            if block.steps.len() >= self.steps.options().limit && note.kind != StepKind::Fault {
                block.more += 1;
                continue;
            }
            let at = block.steps.len();
            let Note {
                kind,
                location,
                ref callers,
                times,
                memory,
                ref ranges,
                bytes,
                barrier,
                phase,
                transfer,
                ref text,
            } = note;
            let finder = self.steps.options().callers;
            let caller = finder.filter(|_| !callers.is_empty()).and_then(|finder| (finder.lines)(callers).pop());
            block.steps.push(Step {
                number,
                by,
                kind,
                line: location.map(SourceLine::from),
                caller,
                times,
                memory,
                ranges: ranges.clone(),
                bytes,
                barrier,
                phase,
                transfer,
                text: text.clone(),
            });
            if let Some(warp) = warp {
                last[warp] = kind.is_counted_together().then_some((at, note));
            }
        }
    }

    /// Puts together what the lanes of a warp have done that has been resumed.
    fn have_stopped(&self, warp: usize) {
        self.parts.set(0);
        let open = self.open.take();
        self.seen.borrow_mut().clear();
        if !open.is_empty() {
            let steps = merge(open).into_iter().map(|(lanes, note)| (StepActor::Warp { warp, lanes }, note));
            self.add(steps);
        }
    }
}

/// What an array is called, whose places are bytes.
fn name_of(array: &SharedIdentity) -> String {
    match array.name() {
        SharedArrayName::Static { declared, type_name } => format!("`{type_name}` of {declared}"),
        SharedArrayName::Dynamic | SharedArrayName::Slice { .. } => "dynamic shared memory".into(),
    }
}

fn nothing(block: Dim3) -> RecordedBlock {
    RecordedBlock {
        block,
        views: Vec::new(),
        arrays: Vec::new(),
        steps: Vec::new(),
        more: 0,
        fault: None,
        left: Vec::new(),
    }
}

impl Context<'_> {
    /// Notes what the running thread does, if that is recorded.
    #[inline(always)]
    pub(in super::super) fn note_step(
        &self,
        kind: StepKind,
        location: &'static Location<'static>,
        describe: impl FnOnce(Note, &Recorder) -> Note,
    ) {
        if self.is_recording.get() {
            self.witness(None, location);
            self.record(kind, location, describe);
        }
    }

    #[cold]
    #[inline(never)]
    fn record(
        &self,
        kind: StepKind,
        location: &'static Location<'static>,
        describe: impl FnOnce(Note, &Recorder) -> Note,
    ) {
        let Some(recorder) = &self.steps else { return };
        self.require_headroom();
        let (done, budget) = (recorder.done.get() + 1, recorder.steps.options().budget);
        recorder.done.set(done);
        if done > budget {
            self.fail(location, FaultKind::StepBudget { steps: budget });
        }
        let mut note = describe(Note::new(kind, Some(location)), recorder);
        let mut open = recorder.open.borrow_mut();
        let lane = self.current.get() % LANES;
        if kind.is_counted_together()
            && let Some((before, last)) = open.last_mut()
            && *before == lane
            && last.is_again(&note)
        {
            last.times += 1;
            return;
        }
        if open.len() >= recorder.room().saturating_mul(NOTES) {
            let mut block = recorder.block.borrow_mut();
            block.more += 1;
            return;
        }
        if let Some(callers) = recorder.steps.options().callers
            && (open.first().is_none_or(|(first, _)| *first == lane) || recorder.seen.borrow_mut().insert(note.key()))
        {
            note.callers = callers.addresses();
        }
        open.push((lane, note));
    }

    /// Notes an access of the running thread to shared memory, or that of another block, or to global memory.
    pub(in super::super) fn note_access(
        &self,
        access: Access,
        place: Place,
        bytes: usize,
        location: &'static Location<'static>,
    ) {
        use StepKind as K;
        if !self.is_recording.get() {
            return;
        }
        self.witness(Some(Spot::of(place, bytes)), location);
        let [global, shared, cluster] = match access {
            Access::Load => [K::GlobalLoad, K::SharedLoad, K::ClusterLoad],
            Access::Store => [K::GlobalStore, K::SharedStore, K::ClusterStore],
            Access::Atomic(_) => [K::GlobalAtomic, K::SharedAtomic, K::ClusterAtomic],
        };
        let (kind, memory, start) = match place {
            Place::Global(address, _) => (global, Memory::Global, address.addr()),
            Place::Shared(array, offset) => (shared, Memory::Shared(array), offset),
            Place::Remote(rank, array, offset) => (cluster, Memory::Cluster(rank, array), offset),
        };
        self.record(kind, location, |note, recorder| {
            let note = note.at(recorder, memory, core::iter::once(start..start + bytes));
            match access {
                Access::Atomic(operation) => note.text(operation),
                Access::Load | Access::Store => note,
            }
        });
    }

    /// Notes what others than threads of the block do, if that is recorded.
    pub(in super::super) fn note_other_step(
        &self,
        by: StepActor,
        kind: StepKind,
        location: Option<&'static Location<'static>>,
        describe: impl FnOnce(Note, &Recorder) -> Note,
    ) {
        if self.is_recording.get()
            && let Some(recorder) = &self.steps
        {
            recorder.add([(by, describe(Note::new(kind, location), recorder))].into_iter());
        }
    }

    /// Begins to record the block, if it is meant.
    pub(in super::super) fn begin_recording(&self) {
        let recorder = self.steps.as_ref().filter(|recorder| recorder.wants(self.block.get()));
        if let Some(recorder) = recorder {
            recorder.begin(self.block.get(), self.threads.len().div_ceil(LANES));
        }
        let is_watched = self.backtraces.is_some_and(|backtraces| backtraces.watches(self.kernel, self.block.get()));
        let is_looked_at = recorder.is_some() || is_watched;
        if self.is_recording.replace(is_looked_at) != is_looked_at {
            super::super::spins::look_at_all(self.costs.is_some() || is_looked_at);
        }
    }

    /// Notes that the lanes of a warp have stopped which have been resumed together.
    #[inline(always)]
    pub(in super::super) fn have_stopped(&self, warp: usize) {
        if self.is_recording.get()
            && let Some(recorder) = &self.steps
        {
            recorder.have_stopped(warp);
        }
    }

    /// Where a thread is that has not returned, and what it waits for.
    fn left(&self, position: usize) -> Option<(Option<SourceLine>, String)> {
        let place = match self.threads[position].state.get() {
            State::Returned => return None,
            State::Faulted | State::StackOverflow => return Some((None, "has failed".into())),
            State::Ready => return Some((None, "can go on".into())),
            _ => self.elsewhere(core::iter::once(position)).pop()?.place,
        };
        Some(match place {
            FaultPlace::Returned => return None,
            FaultPlace::Barrier(line) => (Some(line), "waits at the barrier of the block".into()),
            FaultPlace::Warp { operation, mask, location } => {
                (Some(location), format!("waits for lanes of its warp in {operation} with mask {mask:#010x}"))
            }
            FaultPlace::Running(line) => (Some(line), "goes on when it is its turn".into()),
            FaultPlace::Waiting { waits_for, location } => (Some(location), format!("waits for {waits_for}")),
        })
    }

    /// Ends to record the block, if it is recorded.
    pub(in super::super) fn end_recording(&self, fault: Option<&Fault>) {
        if !self.is_recording.replace(false) {
            return;
        }
        super::super::spins::look_at_all(self.costs.is_some());
        let Some(recorder) = &self.steps else { return };
        let threads = &self.threads;
        let position = self.current.get().min(threads.len() - 1);
        recorder.have_stopped(position / LANES);
        if let Some(fault) = fault {
            let position = threads.iter().position(|thread| thread.index == fault.thread).unwrap_or(0);
            let note = Note::new(StepKind::Fault, None).text(fault.to_string());
            let by = StepActor::Warp { warp: position / LANES, lanes: 1 << (position % LANES) };
            recorder.add([(by, note)].into_iter());
            if let Some(step) = recorder.block.borrow_mut().steps.last_mut() {
                step.line.clone_from(&fault.location);
            }
        }
        let mut block = recorder.block.replace(nothing(self.block.get()));
        block.fault = fault.map(|fault| Box::new(fault.clone()));
        let arrays = recorder.arrays.borrow();
        let bytes = |array: &'static SharedIdentity| match ptr::eq(array, &super::super::identity::DYNAMIC) {
            true => self.dynamic_bytes,
            false => array.static_bytes(),
        };
        block.arrays = arrays.iter().map(|array| RecordedArray { name: name_of(array), bytes: bytes(array) }).collect();
        for warp in 0..threads.len().div_ceil(LANES) {
            for position in warp * LANES..threads.len().min((warp + 1) * LANES) {
                let Some((line, place)) = self.left(position) else { continue };
                match block.left.iter_mut().find(|left| left.warp == warp && left.place == place && left.line == line) {
                    Some(left) => left.threads += 1,
                    None => block.left.push(Left { warp, threads: 1, line, place }),
                }
            }
        }
        recorder.steps.add(block);
    }
}
