//! What the workers of a launch share, and how each of them runs its blocks.
//!
//! ```text
//!  Launch      next: 7 ──┬────────────┬───────────────  blocks are taken in order, some at a time
//!                        ▼            ▼
//!  workers     0: blocks 3, 4    1: blocks 5, 6         each with its memory, its context and its coroutines
//!                        │
//!              block 4 fails: blocks before it still run, those behind it do not
//! ```

use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::sync::{Mutex, PoisonError};

use super::block::Block;
use super::cluster::{Clusters, Stage, Team};
use super::context::{Context, Memory};
use super::fault::{Fault, LaunchError};
use super::global_memory::GlobalMemory;
use super::prints::Prints;
use super::turns::Turns;
use super::watchdog::Watchdog;
use super::{Executor, Stop};
use crate::{Dim3, ErasedKernel};

/// Ends the last turn of a worker, also if it panics.
pub(super) struct Leaves<'a> {
    pub(super) turns: &'a Turns,
    pub(super) worker: usize,
    pub(super) launch: &'a Launch,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.turns.leave(self.worker, self.launch.has_failed());
    }
}

/// With whom a worker takes turns, and for which rank of which clusters it works, by whom these are run together.
#[derive(Clone, Copy, Default)]
pub(super) struct Worker<'a> {
    pub(super) turns: Option<(&'a Turns, usize)>,
    pub(super) team: Option<(&'a Team<'a>, usize)>,
}

/// What a launch has left of a worker's memory.
#[derive(PartialEq, Eq)]
pub(super) enum MemoryState {
    Reusable,
    /// A stack overflowed: canaries may be lost, and what the thread was changing may be half changed.
    Damaged,
}

/// What the workers of a launch share.
pub(super) struct Launch {
    pub(super) kernel: &'static str,
    /// What may ask it to end.
    pub(super) stop: Option<Stop>,
    pub(super) grid: Dim3,
    /// How its blocks are divided into clusters.
    pub(super) clusters: Clusters,
    /// The number of blocks. It fits: the extents have 31, 16 and 16 bits.
    pub(super) total: u64,
    /// How many blocks a worker takes at a time.
    pub(super) portion: u64,
    /// The first block, in linear order, that no worker has taken; the first cluster, if there are any.
    pub(super) next: AtomicU64,
    /// The first block that is known to fail.
    pub(super) first_failed: AtomicU64,
    pub(super) failure: Mutex<Option<(u64, LaunchError)>>,
    /// The first block, in linear order, that has read global memory without values.
    pub(super) read_without_values: Mutex<Option<(u64, Box<Fault>)>>,
    /// What the race detector knows of global memory, if races are looked for.
    pub(super) global: Option<GlobalMemory>,
    /// Its number among those whose values are traced.
    pub(super) number: u64,
    /// Whether what some of its blocks do is recorded.
    pub(super) is_recorded: bool,
    /// Decides the order of blocks that can wait for one another.
    pub(super) seed: u64,
    /// What its blocks have printed.
    pub(super) prints: Prints,
    /// What ends the process if a thread never stops.
    pub(super) watchdog: Option<Watchdog>,
}

impl Launch {
    pub(super) fn new(kernel: &'static str, grid: Dim3, seed: u64) -> Self {
        let total = u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z);
        // Many portions for each worker, so that all finish together, but not one access to a shared counter per block.
        let portion = (total / (64 * rayon::current_num_threads() as u64)).clamp(1, 256);
        Self {
            kernel,
            stop: Stop::listened_to(),
            grid,
            clusters: Clusters::new(grid, None),
            total,
            portion,
            next: AtomicU64::new(0),
            first_failed: AtomicU64::new(u64::MAX),
            failure: Mutex::new(None),
            read_without_values: Mutex::new(None),
            global: None,
            number: 0,
            is_recorded: false,
            seed,
            prints: Prints::default(),
            watchdog: None,
        }
    }

    /// Runs blocks until none is left. Blocks are taken in order, and one that comes before a block known to fail is run
    /// nevertheless; so the failure that is left in the end does not depend on how the work was shared.
    ///
    /// # Safety
    /// As for [`Executor::launch`], and the kernel's [`ErasedKernel::check`] has succeeded.
    pub(super) unsafe fn work(
        &self,
        kernel: &dyn ErasedKernel,
        executor: &Executor,
        memory: &Memory,
        place: Worker<'_>,
    ) -> MemoryState {
        let Worker { turns, team } = place;
        let visit_views = |visit: &mut dyn FnMut(crate::View<'_>)| kernel.visit_views(visit);
        let mut context = Context::new(executor, &kernel.facts(), self, memory, &visit_views, place);
        context.trace = executor.trace.as_deref().map(|trace| (trace, self.number));
        let _entered = context.enter();
        // SAFETY: the caller's promise; the context is entered, and dropped after the block.
        let mut block = unsafe { Block::new(&context, kernel) };
        // Dropped before what it has others find.
        let _joined = team.map(|(team, rank)| team.join(rank, &context));
        loop {
            // Blocks of clusters are counted in the order of these, and of their ranks.
            let first = match team {
                None => self.next.fetch_add(self.portion, Ordering::Relaxed),
                Some((team, rank)) => match team.next(rank, self) {
                    Some(cluster) => cluster * self.clusters.blocks() + rank as u64,
                    None => return MemoryState::Reusable,
                },
            };
            for index in first..self.total.min(first.saturating_add(self.portion)) {
                // Where blocks wait for one another, one that fails ends all of them.
                let is_over = match team {
                    None => index > self.first_failed.load(Ordering::Relaxed) || turns.is_some() && self.has_failed(),
                    // Clusters are begun by all of their blocks, or not at all.
                    Some((team, _)) => !team.is_alone() && self.has_failed(),
                };
                if is_over {
                    return MemoryState::Reusable;
                }
                if self.stop.as_ref().is_some_and(Stop::is_asked) {
                    self.fail(index, LaunchError::Stopped { kernel: self.kernel });
                    return MemoryState::Reusable;
                }
                let number = match team {
                    None => index,
                    Some((team, rank)) => {
                        team.set_stage(rank, Stage::Running);
                        self.clusters.block(index / self.clusters.blocks(), rank)
                    }
                };
                context.print_order.set(match (turns, team) {
                    (None, _) => Some(index),
                    (Some(_), Some((team, rank))) if team.is_alone() => Some(index - rank as u64),
                    (Some(_), _) => None,
                });
                let result = block.run(number, self.seed);
                self.prints.take(&context.block_prints);
                if let Some(fault) = context.read_without_values.take() {
                    keep_first(&self.read_without_values, index, fault);
                }
                if block.is_abandoned() {
                    return MemoryState::Reusable;
                }
                if let Err(fault) = result {
                    self.fail(index, LaunchError::Fault(fault));
                    return if block.is_damaged() { MemoryState::Damaged } else { MemoryState::Reusable };
                }
                if let Some((team, rank)) = team {
                    team.set_stage(rank, Stage::Ended);
                }
            }
            if first >= self.total {
                return MemoryState::Reusable;
            }
        }
    }

    /// The next cluster, unless there is none, or one before it has failed.
    pub(super) fn next_cluster(&self) -> Option<u64> {
        let (cluster, blocks) = (self.next.fetch_add(1, Ordering::Relaxed), self.clusters.blocks());
        let is_wanted = cluster * blocks < self.total && cluster * blocks <= self.first_failed.load(Ordering::Relaxed);
        is_wanted.then_some(cluster)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.first_failed.load(Ordering::Relaxed) != u64::MAX
    }

    pub(super) fn fail(&self, index: u64, error: LaunchError) {
        self.first_failed.fetch_min(index, Ordering::Relaxed);
        keep_first(&self.failure, index, error);
    }

    pub(super) fn result(self) -> Result<(), LaunchError> {
        let failure = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let read = self.read_without_values.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (failure, read) {
            (None, None) => Ok(()),
            (None, Some((_, read))) => Err(LaunchError::Fault(read)),
            // What a block does after it has read anything at all is not its first fault, unless somebody wrote there meanwhile.
            (Some((block, LaunchError::Fault(fault))), Some((reader, read)))
                if reader <= block && !fault.kind.is_race() =>
            {
                Err(LaunchError::Fault(read))
            }
            (Some((_, error)), _) => Err(error),
        }
    }
}

/// Keeps what has come of the first block in linear order of which something has.
fn keep_first<T>(kept: &Mutex<Option<(u64, T)>>, block: u64, new: T) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.as_ref().is_none_or(|(known, _)| block < *known) {
        *kept = Some((block, new));
    }
}
