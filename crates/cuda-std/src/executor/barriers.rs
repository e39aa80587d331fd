//! The CPU model of barriers for some of a block's threads: `mbarrier`, a barrier in shared memory with phases; and named barriers
//! (`bar.sync` with a number and a count of threads). Also, in [`registers`], `setmaxnreg`, because a warpgroup waits there until enough are free.
//!
//! ```text
//! phase 0                       phase 1
//! arrive ─ arrive ─ arrive ──┐  arrive ─ …         wait(parity 0) returns from here on, until phase 1 is over, too:
//!                   last one └─ over               then it would wait for phase 2, whose parity is 0 again
//! ```

mod numbered;
mod registers;
mod report;

pub(super) use numbered::require_one_call;
pub(crate) use numbered::{arrive_at_number, meet_at_number};
pub(crate) use registers::*;

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::panic::Location;
use std::collections::BTreeMap;
use std::format;

use gpu_facts::Limits;

use super::clocks::Clock;
use super::context::{Context, LANES, State, current};
use super::costs::CostKind;
use super::fault::{AccessKind, FaultKind, RemoteBarrierProblem, counted};
use super::hooks::{note_barrier_use, note_write, words_to_access};
use super::identity::DYNAMIC;
use super::known::Known;
use super::remote;
use super::shared_memory::{SharedMemory, WORD};
use super::steps::{StepActor, StepBarrier, StepKind};
use super::tma::Tma;
use super::{Checks, MAX_THREADS};
use numbered::{NUMBERED, NumberedBarrier};

/// What a thread waits for that is neither a barrier of the whole block nor its warp.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The phase of this parity of the barrier at this byte.
    Phase { barrier: usize, parity: u32 },
    /// The others at the barrier of this number, for the time of this number.
    Numbered { id: usize, time: u64 },
    /// As many registers.
    Registers { count: u32 },
    /// The other threads of the warp to arrive at the barrier of the cluster as often.
    ArrivalsOfWarp { count: u64 },
    /// This phase of the barrier of the cluster, and the other threads of the warp to come to wait as often.
    Cluster { phase: u64, count: u64 },
}

impl Wait {
    /// What a thread has waited for that has not waited yet.
    pub(super) const NOTHING: Self = Self::Registers { count: 0 };
}

/// A barrier in shared memory.
struct PhaseBarrier {
    initialized: &'static Location<'static>,
    /// The arrivals of each phase, and those that the present one lacks.
    arrivals: u32,
    missing: u32,
    /// The bytes that the present one lacks, less those that have come.
    bytes: i64,
    /// The thread that initialized it, and whether it has made it visible to TMA.
    by: usize,
    is_fenced: bool,
    /// Whether that thread has called `fence_barrier_init` since; and for which phase of the barrier of the cluster it has then arrived by
    /// a relaxed arrival, if it has: who has waited for that phase may use the barrier.
    is_released: bool,
    announced: Option<u64>,
    /// Who has ever arrived.
    have_come: Threads,
    /// How many phases are over, and how many of these somebody has waited for.
    over: u64,
    awaited: u64,
    /// What is known to those who wait for the last phase that is over.
    known: Clock,
    /// What those have brought who have arrived in the present phase.
    brought: Clock,
    /// The same of those who have arrived from other blocks of the cluster, which those know who wait for the cluster.
    known_of_cluster: Known,
    brought_by_cluster: Known,
}

/// Some threads of a block.
#[derive(Clone, Copy, Default)]
struct Threads([u64; MAX_THREADS / 64]);

impl Threads {
    fn add(&mut self, thread: usize) {
        self.0[thread / 64] |= 1 << (thread % 64);
    }

    fn include(&self, thread: usize) -> bool {
        self.0.get(thread / 64).is_some_and(|threads| threads >> (thread % 64) & 1 == 1)
    }

    /// Whether any lane of a thread's warp is one of them.
    fn include_warp(&self, thread: usize) -> bool {
        let first = thread / LANES * LANES;
        (first..first + LANES).any(|lane| self.include(lane))
    }
}

/// The barriers of the block that a worker runs.
#[derive(Default)]
pub(super) struct Barriers {
    phases: RefCell<BTreeMap<usize, PhaseBarrier>>,
    /// The words from the first to the last of these: that, and how many.
    span: Cell<(usize, usize)>,
    numbered: RefCell<[NumberedBarrier; NUMBERED]>,
    /// The registers that no thread has.
    free_registers: Cell<u32>,
}

impl Barriers {
    /// Those of a new block of so many threads. Returns the registers that each of them has at the beginning: as many as there are if so
    /// many blocks are on a multiprocessor, as the kernel asks. The block has no others.
    pub(super) fn begin_block(&self, threads: usize, blocks: u32) -> u32 {
        self.phases.borrow_mut().clear();
        self.span.set((0, 0));
        self.numbered.take();
        self.free_registers.set(0);
        Limits::of_hopper().registers_per_thread(threads as u32, blocks)
    }

    fn add_to_span(&self, words: Range<usize>) {
        let (first, count) = self.span.get();
        let (start, end) = if count == 0 { (words.start, words.end) } else { (first, first + count) };
        let start = start.min(words.start);
        self.span.set((start, end.max(words.end) - start));
    }

    /// Whether a barrier may be in these words of the dynamic shared memory. Each access to it asks.
    #[inline(always)]
    fn may_be_in(&self, words: &Range<usize>) -> bool {
        let (first, count) = self.span.get();
        words.start < first + count && first < words.end
    }

    /// The first barrier in these words of the dynamic shared memory: the byte where it begins, and where it was initialized.
    fn first_in(&self, words: &Range<usize>) -> Option<(usize, &'static Location<'static>)> {
        let phases = self.phases.borrow();
        let mut all = phases.iter().map(|(at, barrier)| (*at, barrier.initialized));
        all.find(|(at, _)| {
            let barrier = words_of_barrier(*at);
            barrier.start < words.end && words.start < barrier.end
        })
    }

    /// Whether what a thread waits for has come.
    pub(super) fn has_come(&self, wait: Wait) -> bool {
        match wait {
            Wait::Phase { barrier, parity } => {
                self.phases.borrow().get(&barrier).is_some_and(|barrier| barrier.over % 2 != u64::from(parity))
            }
            Wait::Numbered { id, time } => self.numbered.borrow()[id].times > time,
            Wait::Registers { count } => self.free_registers.get() >= count,
            // The context knows.
            Wait::ArrivalsOfWarp { .. } | Wait::Cluster { .. } => false,
        }
    }

    /// Whether a use of the barrier at a byte has to be ordered behind its initialization by the order of memory accesses: there is a barrier,
    /// and no phase of the barrier of the cluster among the first `met` has announced it.
    pub(super) fn has_unannounced(&self, at: usize, met: u64) -> bool {
        self.phases.borrow().get(&at).is_some_and(|barrier| barrier.announced.is_none_or(|phase| phase >= met))
    }

    /// Makes the barriers that a thread has initialized visible to TMA.
    pub(super) fn show_to_tma(&self, thread: usize) {
        let mut phases = self.phases.borrow_mut();
        phases.values_mut().filter(|barrier| barrier.by == thread).for_each(|barrier| barrier.is_fenced = true);
    }

    /// A thread arrives for a phase of the barrier of the cluster by a relaxed arrival. That orders nothing but the initializations of which
    /// the thread's fence has told: `fence.mbarrier_init.release`.
    pub(super) fn announce(&self, thread: usize, phase: u64) {
        let mut phases = self.phases.borrow_mut();
        let released = phases.values_mut().filter(|barrier| barrier.by == thread && barrier.is_released);
        released.for_each(|barrier| barrier.announced = barrier.announced.or(Some(phase)));
    }

    /// Whether somebody has waited for a phase of the barrier at a byte, or a later one.
    pub(super) fn has_been_awaited(&self, at: usize, phase: u64) -> bool {
        self.phases.borrow().get(&at).is_some_and(|barrier| barrier.awaited > phase)
    }

    /// Whether TMA can tell the barrier at a byte of bytes; `None` if there is none.
    pub(super) fn is_fenced(&self, at: usize) -> Option<bool> {
        self.phases.borrow().get(&at).map(|barrier| barrier.is_fenced)
    }

    /// A barrier whose bytes do not add up at the end of a block: who has initialized it and where, and what is wrong.
    pub(super) fn unbalanced(&self) -> Option<(usize, &'static Location<'static>, FaultKind)> {
        let phases = self.phases.borrow();
        let (&byte_offset, barrier) = phases.iter().find(|(_, barrier)| barrier.bytes != 0)?;
        let kind = FaultKind::UnbalancedBytes { byte_offset, missing: barrier.bytes };
        Some((barrier.by, barrier.initialized, kind))
    }
}

/// Waits until it has come, which a GPU's warp does in an instruction.
pub(super) fn wait_for(context: &Context<'_>, wait: Wait, location: &'static Location<'static>) {
    context.note_cost(CostKind::Wait, (0, 0), location);
    stop_until(context, wait, location);
}

/// Stops until it has come.
pub(super) fn stop_until(context: &Context<'_>, wait: Wait, location: &'static Location<'static>) {
    context.details().wait.set(wait);
    // A warp goes on as a whole on a GPU. Where costs are counted, a lane that need not wait, as the last one to arrive, stops for the lanes that
    // do: what it does next is then counted together with what they do.
    if context.costs.is_some() && context.has_come(context.current.get(), wait) {
        context.suspend(State::Ready, location);
        // What has come stays, but for registers. The next phase of a barrier may be over meanwhile, and is not what this waits for.
        if !matches!(wait, Wait::Registers { .. }) {
            return;
        }
    }
    // Again: what there was, another lane may have taken meanwhile.
    while !context.has_come(context.current.get(), wait) {
        context.suspend(State::Waiting, location);
    }
}

/// The shared memory with clocks for all threads and for TMA, if anything is compared with them.
pub(super) fn clocked<'c>(context: &Context<'c>) -> Option<&'c SharedMemory> {
    let shared = &context.memory.shared;
    (context.checks == Checks::Full).then(|| {
        shared.clocks.require(Tma::number(context.threads.len()) + 1);
        shared
    })
}

/// Adds to a clock what the running thread did until now.
fn bring(context: &Context<'_>, clock: &mut Clock) {
    if let Some(shared) = clocked(context) {
        context.begin_interval(shared.release(context.current.get(), clock));
    }
}

/// Has the running thread know what a clock knows.
fn learn(context: &Context<'_>, clock: &Clock) {
    if let Some(shared) = clocked(context) {
        shared.acquire(context.current.get(), clock);
    }
}

/// The words of the barrier at a byte.
fn words_of_barrier(at: usize) -> Range<usize> {
    at / WORD..at / WORD + 2
}

/// Changes the barrier at a byte of the dynamic shared memory, which has been initialized.
fn with_barrier<R>(
    context: &Context<'_>,
    at: usize,
    location: &'static Location<'static>,
    change: impl FnOnce(&mut PhaseBarrier) -> R,
) -> R {
    context.require_headroom();
    if context.barriers.has_unannounced(at, context.details().meetings.get().met) {
        words_to_access(&DYNAMIC, words_of_barrier(at), location, note_barrier_use);
    }
    let mut phases = context.barriers.phases.borrow_mut();
    match phases.get_mut(&at) {
        Some(barrier) => change(barrier),
        None => {
            drop(phases);
            context.fail(location, FaultKind::BarrierNotInitialized { byte_offset: at });
        }
    }
}

/// Ends the launch if there is a barrier in words of the dynamic shared memory of `owner` which the running thread is about to access: nothing but
/// its own operations may.
#[inline(always)]
pub(super) fn require_no_barrier(
    context: &Context<'_>,
    owner: &Context<'_>,
    words: Range<usize>,
    access: AccessKind,
    location: &'static Location<'static>,
) {
    if owner.barriers.may_be_in(&words) {
        look_for_barrier(context, owner, words, access, location);
    }
}

#[inline(never)]
fn look_for_barrier(
    context: &Context<'_>,
    owner: &Context<'_>,
    words: Range<usize>,
    access: AccessKind,
    location: &'static Location<'static>,
) {
    if let Some((byte_offset, initialized)) = owner.barriers.first_in(&words) {
        let owner = (owner.block_number.get() != context.block_number.get()).then(|| owner.block.get());
        let initialized = initialized.into();
        context.fail(location, FaultKind::BarrierAccess { owner, byte_offset, access, initialized });
    }
}

/// Prepares the barrier at a byte of the dynamic shared memory.
#[track_caller]
pub(crate) fn init_barrier(at: usize, arrivals: u32) {
    let (context, initialized) = (current(), Location::caller());
    let Some((at, arrivals)) = context.change_init(initialized, at, arrivals) else { return };
    context.require_headroom();
    if arrivals == 0 || context.barriers.phases.borrow().contains_key(&at) {
        context.fail(initialized, FaultKind::BarrierInitialization { byte_offset: at, arrivals });
    }
    // From here on all readers are kept: a read of the barrier's words is looked at, whoever has read them before.
    clocked(context);
    // For the shadow, initializing writes the barrier, and whatever uses it reads it: that has to be ordered behind.
    words_to_access(&DYNAMIC, words_of_barrier(at), initialized, note_write);
    let barrier = PhaseBarrier {
        initialized,
        arrivals,
        missing: arrivals,
        bytes: 0,
        by: context.current.get(),
        is_fenced: false,
        is_released: false,
        announced: None,
        have_come: Threads::default(),
        over: 0,
        awaited: 0,
        known: Clock::default(),
        brought: Clock::default(),
        known_of_cluster: Known::default(),
        brought_by_cluster: Known::default(),
    };
    context.barriers.phases.borrow_mut().insert(at, barrier);
    context.barriers.add_to_span(words_of_barrier(at));
    context.note_step(StepKind::BarrierInit, initialized, |note, _| {
        note.barrier(StepBarrier::Mbarrier(at)).text(counted(arrivals, "arrival"))
    });
}

/// Makes the barriers that the running thread has initialized visible to TMA, and to those who wait for its next arrival at the barrier of the
/// cluster.
#[track_caller]
pub(crate) fn fence_barriers() {
    let context = current();
    if context.leaves_out("fence_barrier_init", Location::caller()) {
        return;
    }
    context.note_step(StepKind::BarrierFence, Location::caller(), |note, _| note);
    let me = context.current.get();
    context.barriers.show_to_tma(me);
    let mut phases = context.barriers.phases.borrow_mut();
    phases.values_mut().filter(|barrier| barrier.by == me).for_each(|barrier| barrier.is_released = true);
}

impl PhaseBarrier {
    /// Ends the phase if nothing is missing.
    fn end_phase(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            self.missing = self.arrivals;
            self.over += 1;
            // Who waits for a phase knows of those before it, too.
            self.known.join(&self.brought);
            self.known_of_cluster.join(&self.brought_by_cluster);
        }
    }

    /// An arrival. Returns whether the phase expects it.
    fn arrive(&mut self) -> bool {
        let is_expected = self.missing > 0;
        self.missing = self.missing.saturating_sub(1);
        self.end_phase();
        is_expected
    }
}

/// Arrives at a barrier, and has the phase wait for so many bytes besides.
#[track_caller]
pub(crate) fn arrive_at_barrier(at: usize, bytes: u32) {
    let (context, location) = (current(), Location::caller());
    let Some((at, bytes)) = context.change_arrival(location, at, bytes) else { return };
    let (is_expected, phases) = with_barrier(context, at, location, |barrier| {
        barrier.have_come.add(context.current.get());
        bring(context, &mut barrier.brought);
        barrier.bytes += i64::from(bytes);
        let before = barrier.over;
        (barrier.arrive(), before..barrier.over)
    });
    note_arrival(context, at, bytes, phases, location);
    if !is_expected {
        context.fail(location, FaultKind::TooManyArrivals { byte_offset: at });
    }
}

/// Ends the launch unless TMA can tell the barrier of bytes.
pub(super) fn require_barrier(context: &Context<'_>, at: usize, location: &'static Location<'static>) {
    if !with_barrier(context, at, location, |barrier| barrier.is_fenced) {
        context.fail(location, FaultKind::BarrierNotFenced { byte_offset: at });
    }
}

/// Whether a thread waits for a phase of the barrier at a byte.
pub(super) fn is_awaited(context: &Context<'_>, at: usize) -> bool {
    let mut threads = context.threads.iter().zip(&context.details);
    threads.any(|(thread, details)| {
        let waits_for_it = matches!(details.wait.get(), Wait::Phase { barrier, .. } if barrier == at);
        thread.state.get() == State::Waiting && waits_for_it
    })
}

/// Tells a barrier that TMA, which `engine` stands for, has copied so many bytes.
pub(super) fn complete_bytes(context: &Context<'_>, at: usize, bytes: u32, engine: usize) {
    if let Some(barrier) = context.barriers.phases.borrow_mut().get_mut(&at) {
        if let Some(shared) = clocked(context) {
            shared.release(engine, &mut barrier.brought);
        }
        barrier.bytes -= i64::from(bytes);
        let before = barrier.over;
        barrier.end_phase();
        if barrier.over > before {
            context.note_other_step(StepActor::Block, StepKind::Complete, None, |note, _| {
                note.barrier(StepBarrier::Mbarrier(at)).phase(before)
            });
        }
    }
}

/// Begins to wait for a phase: its number.
fn begin_wait(context: &Context<'_>, at: usize, parity: u32, location: &'static Location<'static>) -> u64 {
    let over = with_barrier(context, at, location, |barrier| barrier.over);
    if parity > 1 {
        context.fail(location, FaultKind::BarrierParity { byte_offset: at, parity });
    }
    // That which is under way, or the one before.
    let phase = if over % 2 == u64::from(parity) { over } else { over.saturating_sub(1) };
    note_wait(context, StepKind::Wait, StepBarrier::Mbarrier(at), phase, location);
    phase
}

/// Records a wait of the running thread, or its end.
fn note_wait(
    context: &Context<'_>,
    kind: StepKind,
    barrier: StepBarrier,
    phase: u64,
    location: &'static Location<'static>,
) {
    context.note_step(kind, location, |note, _| note.barrier(barrier).phase(phase));
}

/// Records an arrival of the running thread in a phase, with the bytes that it has the phase expect, and the end of the phase if that was the
/// last one.
fn note_arrival(
    context: &Context<'_>,
    at: usize,
    bytes: u32,
    phases: Range<u64>,
    location: &'static Location<'static>,
) {
    let barrier = StepBarrier::Mbarrier(at);
    context.note_step(StepKind::Arrive, location, |note, _| {
        let note = note.barrier(barrier).phase(phases.start).bytes(bytes as usize);
        if bytes == 0 { note } else { note.text("expects bytes") }
    });
    for phase in phases {
        context.note_step(StepKind::Complete, location, |note, _| note.barrier(barrier).phase(phase));
    }
}

/// Waits until the phase of this parity is over.
#[track_caller]
pub(crate) fn wait_for_phase(at: usize, parity: u32) {
    let (context, location) = (current(), Location::caller());
    let Some((at, parity)) = context.change_phase(location, at, parity) else { return };
    let phase = begin_wait(context, at, parity, location);
    wait_for(context, Wait::Phase { barrier: at, parity }, location);
    with_barrier(context, at, location, |barrier| {
        barrier.awaited = barrier.over;
        learn(context, &barrier.known);
    });
    note_wait(context, StepKind::Passed, StepBarrier::Mbarrier(at), phase, location);
}

/// Waits until the phase of this parity is over, and knows of what threads of other blocks of the cluster have brought.
#[track_caller]
pub(crate) fn wait_for_phase_of_cluster(at: usize, parity: u32) {
    let (context, location) = (current(), Location::caller());
    if context.leaves_out("Barrier::wait", location) {
        return;
    }
    let phase = begin_wait(context, at, parity, location);
    wait_for(context, Wait::Phase { barrier: at, parity }, location);
    note_wait(context, StepKind::Passed, StepBarrier::Mbarrier(at), phase, location);
    let known = with_barrier(context, at, location, |barrier| {
        barrier.awaited = barrier.over;
        learn(context, &barrier.known);
        barrier.known_of_cluster.clone()
    });
    super::atomics::learn(context, &known);
}

/// Arrives at the barrier at a byte of the dynamic shared memory of the block of a rank.
#[track_caller]
pub(crate) fn arrive_at_remote_barrier(rank: u32, at: usize) {
    let (context, location) = (current(), Location::caller());
    if context.leaves_out("RemoteBarrier::arrive", location) {
        return;
    }
    let Some(owner) = remote::block_with_barrier(context, rank, at, location) else {
        return arrive_at_own_barrier(context, at, location);
    };
    let brought = super::atomics::everything(context);
    let mut phases = owner.barriers.phases.borrow_mut();
    let arrived = match phases.get_mut(&at) {
        None => Err(RemoteBarrierProblem::NotInitialized),
        Some(barrier) => {
            barrier.brought_by_cluster.join(&brought);
            let phase = barrier.over;
            let is_expected = barrier.arrive();
            let by = StepActor::Cluster(context.block.get());
            owner.note_other_step(by, StepKind::Arrive, Some(location), |note, _| {
                note.barrier(StepBarrier::Mbarrier(at)).phase(phase)
            });
            if barrier.over > phase {
                owner.note_other_step(StepActor::Block, StepKind::Complete, None, |note, _| {
                    note.barrier(StepBarrier::Mbarrier(at)).phase(phase)
                });
            }
            if is_expected { Ok(phase) } else { Err(RemoteBarrierProblem::TooManyArrivals) }
        }
    };
    drop(phases);
    match arrived {
        Ok(phase) => {
            context.note_step(StepKind::Arrive, location, |note, _| {
                let note = note.barrier(StepBarrier::Mbarrier(at)).phase(phase);
                note.text(format!("of the block of rank {rank}"))
            });
            remote::note_arrival(context, rank, at, phase, location);
        }
        Err(problem) => {
            let owner = owner.block.get();
            context.fail(location, FaultKind::RemoteBarrier { owner, byte_offset: at, problem });
        }
    }
    if let Some((team, _)) = context.team {
        team.wake();
    }
}

/// An arrival from the cluster at a barrier of the thread's own block.
fn arrive_at_own_barrier(context: &Context<'_>, at: usize, location: &'static Location<'static>) {
    let brought = super::atomics::everything(context);
    let (is_expected, phases) = with_barrier(context, at, location, |barrier| {
        barrier.have_come.add(context.current.get());
        bring(context, &mut barrier.brought);
        barrier.brought_by_cluster.join(&brought);
        let before = barrier.over;
        (barrier.arrive(), before..barrier.over)
    });
    note_arrival(context, at, 0, phases, location);
    if !is_expected {
        context.fail(location, FaultKind::TooManyArrivals { byte_offset: at });
    }
}
