//! Runs the blocks of a launch on one worker, an OS thread of the CPU: one block at a time, switching between the coroutines that
//! stand for its threads.

use core::mem::{replace, take};
use core::panic::Location;
use core::ptr;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use corosensei::{Coroutine, CoroutineResult};

use super::Checks;
use super::barriers::clocked;
use super::cluster;
use super::context::{Context, Ended, LANES, NOWHERE, Request, State, Thread};
use super::copies;
use super::exchange::{exchange, lanes_in, lanes_of_warp, meets, tell_who_is_active};
use super::fault::{Fault, FaultKind};
use super::panics;
use super::products;
use super::remote;
use super::shared_memory::set_interval;
use super::spins::{self, Awaited};
use super::stacks::ThreadStack;
use super::steps::{StepActor, StepBarrier, StepKind};
use super::tma;
use super::turns::{self, Turn};
use crate::ErasedKernel;

/// The threads of a block as coroutines. They are made once for a launch: each runs the kernel, waits for the next block,
/// and so on.
pub(super) struct Block<'a> {
    context: &'a Context<'a>,
    coroutines: Vec<Coroutine<(), (), Ended, ThreadStack>>,
    /// A thread's stack overflowed and may have written over others: no coroutine may run again, not even to unwind.
    damaged: bool,
    /// How many threads wait at the barrier of the block, and how many have returned.
    at_barrier: usize,
    returned: usize,
    /// Whether threads have yielded since the others had their turn, and how often in a row they have without any change.
    has_yielded: bool,
    /// How much it counts if nothing has changed since.
    weight: u64,
    /// What memory and time were like then.
    version: u64,
    fruitless: u64,
    /// Another block has failed, and this one has not run to its end.
    abandoned: bool,
}

impl<'a> Block<'a> {
    /// Prepares the threads of a kernel's blocks.
    ///
    /// # Safety
    /// The kernel's [`ErasedKernel::check`] has succeeded; its views are of memory that this processor can access, and mutable
    /// ones overlap no other. The context is entered as long as the result lives, and is used by no other `Block`.
    pub(super) unsafe fn new(context: &'a Context<'a>, kernel: &'a dyn ErasedKernel) -> Self {
        let start = |(position, thread): (usize, &'a Thread)| {
            // SAFETY: the context borrows the stacks for longer than the coroutine lives, and no other block uses them.
            let stack = unsafe { context.memory.stacks.stack(position) };
            let body = move |yielder: &_, ()| {
                thread.yielder.set(ptr::from_ref(yielder));
                loop {
                    // SAFETY: the caller's promise, and `resume` has made this the current thread of the context.
                    unsafe { kernel.run_thread() };
                    copies::require_none();
                    tma::require_no_stores();
                    products::require_no_products();
                    cluster::require_waited();
                    context.note_step(StepKind::End, thread.location.get(), |note, _| note.anywhere());
                    context.suspend(State::Returned, thread.location.get());
                }
            };
            // SAFETY: what the closure borrows, it borrows for 'a, and `Block` drops the coroutine within that.
            let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
            context.details[position].trap_handler.set(Some(coroutine.trap_handler()));
            coroutine
        };
        Self {
            context,
            coroutines: context.threads.iter().enumerate().map(start).collect(),
            damaged: false,
            at_barrier: 0,
            returned: 0,
            has_yielded: false,
            weight: u64::MAX,
            version: 0,
            fruitless: 0,
            abandoned: false,
        }
    }

    /// Runs the block of this number in linear order.
    pub(super) fn run(&mut self, number: u64, seed: u64) -> Result<(), Box<Fault>> {
        self.context.begin_block(number, seed);
        self.context.memory.shared.begin_block();
        self.context.begin_recording();
        if self.context.team.is_some() {
            // Any two readers may be ordered before a writer of another block, and a third one not: all are kept from the beginning on.
            clocked(self.context);
        }
        // A panic in a coroutine comes out of `resume`. Nothing is run after it but the unwinding of the other coroutines.
        let result = catch_unwind(AssertUnwindSafe(|| self.run_threads()));
        let result = result.unwrap_or_else(|payload| {
            let (message, place) = panics::take_report(&*payload);
            let (location, callers) = place.unzip();
            let fault = self.context.report(location, FaultKind::Panic { message });
            Err(Box::new(Fault { callers: callers.unwrap_or_default(), ..*fault }))
        });
        let result = match result {
            Err(fault) if !fault.kind.is_race() => {
                // What a thread does after it has read poison is not its first fault.
                Err(self.context.unwritten_read.take().unwrap_or(fault))
            }
            result => result,
        };
        self.context.end_recording(result.as_ref().err().map(|fault| &**fault));
        result
    }

    /// Whether a stack has overflowed, which may have left anything.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Whether the block has not run to its end because another one has failed.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    fn run_threads(&mut self) -> Result<(), Box<Fault>> {
        let context = self.context;
        let threads = context.threads.len();
        let registers = context.barriers.begin_block(threads, context.min_blocks);
        context.details.iter().for_each(|thread| thread.registers.set(registers));
        context.threads.iter().for_each(|thread| thread.location.set(NOWHERE));
        context.engine.begin_block();
        context.warpgroups.begin_block();
        (self.at_barrier, self.returned, self.fruitless) = (0, 0, 0);
        self.let_all_go_on();
        loop {
            let mut ran = false;
            for warp in 0..threads.div_ceil(LANES) {
                ran |= self.run_warp(warp)?;
            }
            if take(&mut self.has_yielded) {
                match self.let_blocks_run() {
                    Turn::GoOn => {}
                    Turn::Stuck => return Err(self.stuck()),
                    Turn::Over => {
                        self.abandoned = true;
                        return Ok(());
                    }
                }
            }
            let is_epoch_over = self.at_barrier + self.returned == threads;
            if is_epoch_over && let Some(fault) = context.unwritten_read.take() {
                return Err(fault);
            }
            if self.returned == threads {
                return self.require_nothing_left();
            }
            if self.at_barrier == threads {
                context.votes.meet();
                context.memory.shared.begin_epoch();
                context.note_other_step(StepActor::Block, StepKind::Complete, None, |note, steps| {
                    note.barrier(StepBarrier::Block).phase(steps.next_epoch())
                });
                self.at_barrier = 0;
                self.let_all_go_on();
            } else if !ran && !tma::complete_load(context) {
                if is_epoch_over {
                    return Err(self.barrier_divergence());
                }
                // Another block of the cluster may do what is waited for.
                match context.team.and_then(|(team, rank)| team.sleep(rank)) {
                    Some(Turn::Over) => {
                        self.abandoned = true;
                        return Ok(());
                    }
                    Some(_) => {}
                    None => return Err(self.cluster_deadlock()),
                }
            }
        }
    }

    /// Lets other blocks run, if any run at the same time.
    fn let_blocks_run(&mut self) -> Turn {
        let weight = replace(&mut self.weight, u64::MAX);
        let version = self.context.version();
        let is_new = version != replace(&mut self.version, version);
        // Who has gone on to write something, or to a barrier, has come to the end of a long loop.
        let has_changed = self.context.has_changed.take() || is_new && weight == turns::LONG_LOOP;
        if let Some((turns, worker)) = self.context.turns {
            return turns.pass(worker, has_changed, weight);
        }
        self.fruitless = if has_changed { 0 } else { self.fruitless + weight };
        if self.fruitless > turns::FRUITLESS { Turn::Stuck } else { Turn::GoOn }
    }

    #[cold]
    fn stuck(&self) -> Box<Fault> {
        let threads = &self.context.threads;
        let first = (0..threads.len()).find(|position| threads[*position].state.get() == State::Yielded);
        let others = self.context.elsewhere((0..threads.len()).filter(|position| Some(*position) != first));
        let blocks = self.context.turns.map_or(1, |(turns, _)| turns.workers());
        let awaited = first.and_then(|first| self.context.details[first].awaited.get());
        let Awaited { place, access, .. } = awaited.expect("who yields says what for");
        let (place, last_write) = (self.context.name_of(place), self.context.last_write(place));
        self.report_waiting(first, FaultKind::Stuck { blocks, place, access, last_write, others })
    }

    /// Checks that a block whose threads have all returned has left nothing undone.
    fn require_nothing_left(&self) -> Result<(), Box<Fault>> {
        let context = self.context;
        let load = context.engine.first_load().map(|(issuer, location)| (issuer, location, FaultKind::LoadNotAwaited));
        if let Some(fault) = remote::accessed_behind_the_end(context) {
            return Err(fault);
        }
        let left = load.or_else(|| context.warpgroups.unmet()).or_else(|| context.barriers.unmet());
        if let Some((position, location, kind)) = left.or_else(|| context.barriers.unbalanced()) {
            context.current.set(position);
            return Err(context.report(Some(location.into()), kind));
        }
        Ok(())
    }

    /// Lets all threads begin an epoch.
    fn let_all_go_on(&self) {
        let context = self.context;
        for (position, thread) in context.threads.iter().enumerate() {
            thread.state.set(State::Ready);
            if context.checks == Checks::Full {
                thread.interval.set(context.memory.shared.first_interval(position / LANES));
            }
        }
    }

    /// Runs the threads of a warp until none of them can go on. Returns whether any could.
    fn run_warp(&mut self, warp: usize) -> Result<bool, Box<Fault>> {
        let context = self.context;
        let lanes = lanes_of_warp(context, warp);
        let mut ready = self.ready(warp);
        if ready == 0 {
            return Ok(false);
        }
        let all_in = |state: State| {
            lanes.iter().enumerate().fold(0, |all, (lane, thread)| all | u32::from(thread.state.get() == state) << lane)
        };
        // From an earlier turn there are some only if lanes of this warp waited for something else.
        let (mut in_operation, mut waiting) = (all_in(State::Warp), all_in(State::Waiting));
        // These go on in the warp's next turn.
        let mut yielded = 0;
        // These go on when all others have come as far as they can.
        let mut asking = 0;
        loop {
            waiting &= !ready;
            in_operation &= !ready;
            for lane in lanes_in(ready) {
                match self.resume(warp * LANES + lane)? {
                    State::Barrier => self.at_barrier += 1,
                    State::Returned => {
                        self.returned += 1;
                        context.has_changed.set(true);
                        cluster::note_return(context);
                    }
                    State::Warp => in_operation |= 1 << lane,
                    State::Asking => asking |= 1 << lane,
                    // One that is ready has stopped for the others.
                    State::Waiting | State::Ready => waiting |= 1 << lane,
                    State::Yielded => {
                        self.weight = self.weight.min(spins::weight(context, warp * LANES + lane));
                        yielded |= 1 << lane;
                    }
                    State::Faulted | State::StackOverflow => {}
                }
            }
            context.have_stopped(warp);
            if let Some(costs) = context.costs.as_ref().filter(|_| yielded == 0) {
                costs.have_met(warp);
            }
            ready = if in_operation != 0 { exchange(context, warp) } else { 0 };
            if let Some(fault) = context.fault.take() {
                return Err(fault);
            }
            if ready == 0 {
                ready = tell_who_is_active(context, warp, take(&mut asking));
            }
            // Lanes that wait for something else may come yet.
            if in_operation != 0 && ready == 0 && waiting == 0 && yielded == 0 {
                return Err(self.warp_divergence(warp));
            }
            if ready == 0 && waiting != 0 {
                ready = self.ready(warp) & !yielded;
            }
            if ready == 0 {
                self.has_yielded |= yielded != 0;
                return match split_at(lanes) {
                    Some(barrier) => Err(self.warp_split_at_barriers(warp, barrier)),
                    None => Ok(true),
                };
            }
        }
    }

    /// The lanes of a warp that can go on.
    fn ready(&self, warp: usize) -> u32 {
        let context = self.context;
        let details = &context.details[warp * LANES..];
        lanes_of_warp(context, warp).iter().zip(details).enumerate().fold(0, |ready, (lane, (thread, details))| {
            let can_go_on = match thread.state.get() {
                State::Ready | State::Yielded => true,
                State::Waiting => context.has_come(warp * LANES + lane, details.wait.get()),
                _ => false,
            };
            ready | u32::from(can_go_on) << lane
        })
    }

    /// Runs one thread until it waits, returns or fails.
    #[inline]
    fn resume(&mut self, position: usize) -> Result<State, Box<Fault>> {
        let context = self.context;
        let thread = &context.threads[position];
        context.current.set(position);
        if context.checks == Checks::Full {
            set_interval(thread.interval.get());
            spins::begin();
        }
        if let Some(turn) = &context.watched_turn {
            let last_stop = thread.location.get();
            let has_stopped = !ptr::eq(last_stop, NOWHERE);
            turn.begin(context.block_number.get(), position, has_stopped.then_some(last_stop));
        }
        let ended = matches!(self.coroutines[position].resume(()), CoroutineResult::Return(Ended::StackOverflow));
        if let Some(turn) = &context.watched_turn {
            turn.end();
        }
        let stacks = &context.memory.stacks;
        if ended || thread.state.get() == State::StackOverflow || !stacks.intact(position) {
            self.damaged = true;
            let kind = FaultKind::StackOverflow { bytes: stacks.stack_bytes(), asked: context.stack_asked };
            return Err(context.report(None, kind));
        }
        match thread.state.get() {
            State::Faulted => Err(context.fault.take().expect("a thread that fails leaves a report")),
            state => Ok(state),
        }
    }

    #[cold]
    fn barrier_divergence(&self) -> Box<Fault> {
        let (threads, waiting) = (&self.context.threads, self.at_barrier);
        let is_waiting = |position: &usize| threads[*position].state.get() == State::Barrier;
        let absent = self.context.elsewhere((0..threads.len()).filter(|position| !is_waiting(position)));
        self.report_waiting((0..threads.len()).find(is_waiting), FaultKind::BarrierDivergence { waiting, absent })
    }

    /// Nobody in the cluster can go on, or in the block, if the kernel has no clusters.
    #[cold]
    fn cluster_deadlock(&self) -> Box<Fault> {
        // What a thread does after it has read poison is not its first fault.
        let unwritten = self.context.blocks_of_cluster().find_map(|context| context.unwritten_read.take());
        unwritten.or_else(|| self.context.cluster_divergence()).unwrap_or_else(|| self.deadlock())
    }

    #[cold]
    fn deadlock(&self) -> Box<Fault> {
        let context = self.context;
        let is_waiting = |position: &usize| context.threads[*position].state.get() == State::Waiting;
        let first = (0..context.threads.len()).find(is_waiting);
        let waits_for =
            first.map_or_else(Default::default, |first| context.barriers.describe(context.details[first].wait.get()));
        let others = self.context.elsewhere((0..context.threads.len()).filter(|&position| Some(position) != first));
        self.report_waiting(first, FaultKind::Deadlock { waits_for, others })
    }

    /// `barrier` is where the first waiting thread of the warp waits.
    #[cold]
    fn warp_split_at_barriers(&self, warp: usize, barrier: &'static Location<'static>) -> Box<Fault> {
        let (threads, first_lane) = (&self.context.threads, warp * LANES);
        let lanes = first_lane..first_lane + lanes_of_warp(self.context, warp).len();
        let (here, others): (Vec<_>, Vec<_>) = lanes
            .filter(|&position| threads[position].state.get() == State::Barrier)
            .partition(|&position| threads[position].location.get() == barrier);
        let kind = FaultKind::WarpSplitAtBarriers {
            waiting: here.len(),
            elsewhere: self.context.elsewhere(others.into_iter()),
        };
        self.report_waiting(here.first().copied(), kind)
    }

    #[cold]
    fn warp_divergence(&self, warp: usize) -> Box<Fault> {
        let (context, first_lane) = (self.context, warp * LANES);
        let positions = first_lane..first_lane + lanes_of_warp(context, warp).len();
        let state = |position: usize| context.threads[position].state.get();
        let first = positions.clone().find(|&position| state(position) == State::Warp);
        let request = context.details[first.unwrap_or(first_lane)].request.get();
        let named = positions.filter(|position| request.mask >> (position - first_lane) & 1 == 1);
        let absent = named.filter(|&position| match state(position) {
            State::Warp => !meets(&context.details[position].request.get(), &request),
            State::Returned => request.operation.is_aligned(),
            _ => true,
        });
        let Request { operation, mask, .. } = request;
        self.report_waiting(
            first,
            FaultKind::WarpDivergence { operation, mask, absent: self.context.elsewhere(absent) },
        )
    }

    /// A report on the thread in `position`, which waits.
    fn report_waiting(&self, position: Option<usize>, kind: FaultKind) -> Box<Fault> {
        let position = position.expect("only called when a thread waits");
        self.context.current.set(position);
        self.context.report(Some(self.context.threads[position].location.get().into()), kind)
    }
}

/// If not all threads of a warp that wait at barriers wait at the same one, the place of the first.
fn split_at(lanes: &[Thread]) -> Option<&'static Location<'static>> {
    let waiting = lanes.iter().filter(|thread| thread.state.get() == State::Barrier);
    let mut barriers = waiting.map(|thread| thread.location.get());
    let first = barriers.next()?;
    // Comparing addresses comes first because it is faster. One place may have several.
    barriers.any(|other| !ptr::eq(first, other) && first != other).then_some(first)
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        for (position, coroutine) in self.coroutines.iter_mut().enumerate() {
            if coroutine.done() {
                continue;
            }
            let between_blocks = self.context.threads[position].state.get() == State::Returned;
            if self.damaged || between_blocks || !coroutine.started() || cfg!(not(panic = "unwind")) {
                // SAFETY: between two blocks, or before the first, there is nothing on the stack but a reference. If
                // stacks are damaged, running destructors is not possible: what is there leaks.
                unsafe { coroutine.force_reset() };
                continue;
            }
            self.context.current.set(position);
            // A panic in a destructor comes too late to be reported.
            let _ = catch_unwind(AssertUnwindSafe(|| coroutine.force_unwind()));
        }
    }
}
