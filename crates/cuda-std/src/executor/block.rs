//! Runs blocks, one at a time, on one worker.

use core::ptr;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec::Vec;

use corosensei::{Coroutine, CoroutineResult};

use super::context::{Context, Ended, LANES, State, Thread};
use super::exchange::{exchange, lanes_of_warp, meets};
use super::fault::{Elsewhere, Fault, FaultKind, Place};
use super::panics;
use super::shared_memory::set_interval;
use super::stacks::ThreadStack;
use crate::{Dim3, Kernel};

/// The threads of a block as coroutines. They are made once for a launch: each runs the kernel, waits for the next block,
/// and so on.
pub(super) struct Block<'a> {
    context: &'a Context<'a>,
    coroutines: Vec<Coroutine<(), (), Ended, ThreadStack>>,
    /// A thread's stack overflowed and may have written over others: no coroutine may run again, not even to unwind.
    damaged: bool,
}

impl<'a> Block<'a> {
    /// Prepares the threads of a kernel's blocks.
    ///
    /// # Safety
    /// The kernel's [`Kernel::check`] has succeeded; its views are of memory that this processor can access, and mutable
    /// ones overlap no other. The context is entered as long as the result lives, and is used by no other `Block`.
    pub(super) unsafe fn new<K: Kernel>(context: &'a Context<'a>, kernel: &'a K) -> Self {
        let start = |(position, thread): (usize, &'a Thread)| {
            // SAFETY: the context borrows the stacks for longer than the coroutine lives, and no other block uses them.
            let stack = unsafe { context.memory.stacks.stack(position) };
            let body = move |yielder: &_, ()| {
                thread.yielder.set(ptr::from_ref(yielder));
                loop {
                    // SAFETY: the caller's promise, and `resume` has made this the current thread of the context.
                    unsafe { (*kernel).run_thread() };
                    context.suspend(State::Returned, thread.location.get());
                }
            };
            // SAFETY: what the closure borrows, it borrows for 'a, and `Block` drops the coroutine within that.
            let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
            thread.trap_handler.set(Some(coroutine.trap_handler()));
            coroutine
        };
        Self { context, coroutines: context.threads.iter().enumerate().map(start).collect(), damaged: false }
    }

    /// Runs one block.
    pub(super) fn run(&mut self, block: Dim3) -> Result<(), Box<Fault>> {
        self.context.block.set(block);
        self.context.memory.shared.begin_block();
        // A panic in a coroutine comes out of `resume`. Nothing is run after it but the unwinding of the other coroutines.
        let result = catch_unwind(AssertUnwindSafe(|| self.run_threads()));
        let result = result.unwrap_or_else(|payload| {
            let (message, location) = panics::take_report(&*payload);
            Err(self.context.report(location, FaultKind::Panic { message }))
        });
        match result {
            Err(fault) if !matches!(fault.kind, FaultKind::Race { .. }) => {
                // What a thread does after it has read poison is not its first fault.
                Err(self.context.unwritten_read.take().unwrap_or(fault))
            }
            result => result,
        }
    }

    /// Whether a stack has overflowed, which may have left anything.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn run_threads(&mut self) -> Result<(), Box<Fault>> {
        let warps = self.context.threads.len().div_ceil(LANES);
        loop {
            for warp in 0..warps {
                self.run_warp(warp)?;
            }
            // Now every thread waits at the barrier or has returned.
            if let Some(fault) = self.context.unwritten_read.take() {
                return Err(fault);
            }
            let threads = &self.context.threads;
            let waiting = threads.iter().filter(|thread| thread.state.get() == State::Barrier).count();
            if waiting == 0 {
                return Ok(());
            }
            if waiting < threads.len() {
                return Err(self.barrier_divergence(waiting));
            }
            self.context.memory.shared.begin_epoch();
        }
    }

    /// Runs the threads of a warp, all of which are at the beginning or at a barrier that all threads have reached, until
    /// each of them waits at the next barrier or has returned.
    fn run_warp(&mut self, warp: usize) -> Result<(), Box<Fault>> {
        let context = self.context;
        let lanes = lanes_of_warp(context, warp);
        let interval = context.memory.shared.first_interval(warp);
        for thread in lanes {
            thread.state.set(State::Ready);
            thread.interval.set(interval);
        }
        loop {
            let mut wait_for_lanes = false;
            for (lane, thread) in lanes.iter().enumerate() {
                if thread.state.get() == State::Ready {
                    self.resume(warp * LANES + lane)?;
                }
                wait_for_lanes |= thread.state.get() == State::Warp;
            }
            if !wait_for_lanes {
                return Ok(());
            }
            if !exchange(context, warp) {
                return Err(self.warp_divergence(warp));
            }
        }
    }

    /// Runs one thread until it waits, returns or fails.
    #[inline]
    fn resume(&mut self, position: usize) -> Result<(), Box<Fault>> {
        let context = self.context;
        context.current.set(position);
        set_interval(context.threads[position].interval.get());
        let ended = matches!(self.coroutines[position].resume(()), CoroutineResult::Return(Ended::StackOverflow));
        let stacks = &context.memory.stacks;
        if ended || !stacks.intact(position) {
            self.damaged = true;
            return Err(context.report(None, FaultKind::StackOverflow { bytes: stacks.stack_bytes() }));
        }
        if context.threads[position].state.get() == State::Faulted {
            return Err(context.fault.take().expect("a thread that fails leaves a report"));
        }
        Ok(())
    }

    #[cold]
    fn barrier_divergence(&self, waiting: usize) -> Box<Fault> {
        let threads = &self.context.threads;
        let is_waiting = |thread: &&Thread| thread.state.get() == State::Barrier;
        let absent = elsewhere(threads.iter().filter(|thread| !is_waiting(thread)));
        self.report_waiting(
            threads.iter().position(|thread| is_waiting(&thread)),
            FaultKind::BarrierDivergence { waiting, absent },
        )
    }

    #[cold]
    fn warp_divergence(&self, warp: usize) -> Box<Fault> {
        let lanes = lanes_of_warp(self.context, warp);
        let first = lanes.iter().position(|thread| thread.state.get() == State::Warp);
        let request = lanes[first.unwrap_or_default()].request.get();
        let named =
            lanes.iter().enumerate().filter(|(lane, _)| request.mask >> lane & 1 == 1).map(|(_, thread)| thread);
        let absent = named.filter(|thread| match thread.state.get() {
            State::Warp => !meets(&thread.request.get(), &request),
            State::Returned => false,
            _ => true,
        });
        let kind =
            FaultKind::WarpDivergence { operation: request.operation, mask: request.mask, absent: elsewhere(absent) };
        self.report_waiting(first.map(|lane| warp * LANES + lane), kind)
    }

    /// A report on the thread in `position`, which waits.
    fn report_waiting(&self, position: Option<usize>, kind: FaultKind) -> Box<Fault> {
        let position = position.expect("only called when a thread waits");
        self.context.current.set(position);
        self.context.report(Some(self.context.threads[position].location.get().into()), kind)
    }
}

/// Where threads are, with those in the same place taken together.
fn elsewhere<'t>(threads: impl Iterator<Item = &'t Thread>) -> Vec<Elsewhere> {
    let mut places: Vec<Elsewhere> = Vec::new();
    for thread in threads {
        let location = thread.location.get().into();
        let place = match thread.state.get() {
            State::Barrier => Place::Barrier(location),
            State::Warp => {
                let request = thread.request.get();
                Place::Warp { operation: request.operation, mask: request.mask, location }
            }
            State::Ready | State::Returned | State::Faulted => Place::Returned,
        };
        match places.iter_mut().find(|known| known.place == place) {
            Some(known) => known.count += 1,
            None => places.push(Elsewhere { first: thread.index, count: 1, place }),
        }
    }
    places
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
