//! What blocks do, step by step: every access, barrier, transfer and product of each warp, in the order in which they happened.
//!
//! ```text
//!  lanes        0    1    2    3  …  31
//!  line 12      ●    ●    ●    ●      ●      a load         ─▶  step 40  warp 0  global load   128 bytes of `x`
//!  line 13      ●    ●    ●    ●      ●      an arrival     ─▶  step 41  warp 0  arrive        mbarrier at byte 1024, phase 3
//!                                                           ─▶  step 42  warp 0  phase ends    mbarrier at byte 1024, phase 3
//!  TMA                                       a tile arrives ─▶  step 43  TMA     tile is there 4096 bytes of the dynamic shared memory
//! ```
//!
//! Lanes run one after the other here. What the lanes of a warp do between two points where the warp stops is put together: the n-th time
//! that lanes come to the same place in the source, to the same array and the same phase, is one step of the warp, as it would be one
//! instruction on a GPU. Steps have one order: that of each thread, and across threads that in which barriers, transfers and atomic
//! operations took place in this run. Another [seed](Executor::schedule) may give another one.
//!
//! It is for few blocks, the first one unless others are named, and for one launch. Nothing is recorded of others, which run as fast as
//! without. What is found does not depend on it.

mod merge;
mod recorder;

use core::ops::Range;
use std::boxed::Box;
use std::string::String;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::backtraces::Callers;
use super::fault::{Fault, SourceLine};
use super::{Checks, Executor};
use crate::Dim3;
pub(super) use recorder::{Access, Memory, Recorder};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StepKind {
    /// Loads from global memory.
    GlobalLoad,
    /// Stores to global memory.
    GlobalStore,
    /// An atomic operation on global memory, loads and stores among them.
    GlobalAtomic,
    /// Loads from shared memory.
    SharedLoad,
    /// Stores to shared memory.
    SharedStore,
    /// An atomic operation on shared memory, loads and stores among them.
    SharedAtomic,
    /// Loads from the shared memory of another block of the cluster.
    ClusterLoad,
    /// Stores to the shared memory of another block of the cluster.
    ClusterStore,
    /// An atomic operation on the shared memory of another block of the cluster.
    ClusterAtomic,
    /// Comes to a barrier and does not wait: the cluster's, one with a number, or an `mbarrier`, of which it may have the phase expect bytes.
    Arrive,
    /// Comes to a barrier and waits.
    Wait,
    /// The barrier is complete, or its phase.
    Complete,
    /// Goes on behind a wait.
    Passed,
    /// Initializes an `mbarrier`.
    BarrierInit,
    /// Makes initialized `mbarrier`s visible to TMA.
    BarrierFence,
    /// Has TMA load a tile into shared memory.
    TmaLoad,
    /// A tile that TMA loads is there.
    TmaLoaded,
    /// Has TMA store a tile from shared memory.
    TmaStore,
    /// Makes a group of the stores since the last one.
    TmaStoreCommit,
    /// Waits until TMA has read what it stores.
    TmaStoreWait,
    /// Begins an asynchronous copy (`cp.async`).
    AsyncCopy,
    /// Makes a group of the asynchronous copies since the last one.
    AsyncCopyCommit,
    /// Waits for asynchronous copies: those that are covered are there.
    AsyncCopyWait,
    /// Orders registers before products of a warpgroup.
    WgmmaFence,
    /// A product of a warpgroup.
    Wgmma,
    /// Makes a group of the products since the last one.
    WgmmaCommit,
    /// Waits for products of a warpgroup.
    WgmmaWait,
    /// A product of a warp (`mma.sync`).
    Mma,
    /// Loads matrices from shared memory (`ldmatrix`), together with the loads of the rows.
    LoadMatrices,
    /// Exchanges values among lanes.
    Shuffle,
    /// A vote, a match or a reduction among lanes.
    Vote,
    /// Lanes of a warp meet.
    SyncWarp,
    /// One lane is elected.
    Elect,
    /// A fence for a scope.
    Fence,
    /// Makes writes to shared memory visible to TMA and tensor cores.
    FenceAsync,
    /// Reads a clock.
    Clock,
    /// Prints a line.
    Print,
    /// Gives registers to others (`setmaxnreg.dec`).
    RegistersReleased,
    /// Has got registers of others (`setmaxnreg.inc`).
    RegistersAcquired,
    /// Returns from the kernel.
    End,
    /// Does what ends the launch.
    Fault,
}

impl StepKind {
    /// All kinds.
    pub const ALL: [Self; 41] = [
        Self::GlobalLoad,
        Self::GlobalStore,
        Self::GlobalAtomic,
        Self::SharedLoad,
        Self::SharedStore,
        Self::SharedAtomic,
        Self::ClusterLoad,
        Self::ClusterStore,
        Self::ClusterAtomic,
        Self::Arrive,
        Self::Wait,
        Self::Complete,
        Self::Passed,
        Self::BarrierInit,
        Self::BarrierFence,
        Self::TmaLoad,
        Self::TmaLoaded,
        Self::TmaStore,
        Self::TmaStoreCommit,
        Self::TmaStoreWait,
        Self::AsyncCopy,
        Self::AsyncCopyCommit,
        Self::AsyncCopyWait,
        Self::WgmmaFence,
        Self::Wgmma,
        Self::WgmmaCommit,
        Self::WgmmaWait,
        Self::Mma,
        Self::LoadMatrices,
        Self::Shuffle,
        Self::Vote,
        Self::SyncWarp,
        Self::Elect,
        Self::Fence,
        Self::FenceAsync,
        Self::Clock,
        Self::Print,
        Self::RegistersReleased,
        Self::RegistersAcquired,
        Self::End,
        Self::Fault,
    ];

    /// The name, in words joined by hyphens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GlobalLoad => "global-load",
            Self::GlobalStore => "global-store",
            Self::GlobalAtomic => "global-atomic",
            Self::SharedLoad => "shared-load",
            Self::SharedStore => "shared-store",
            Self::SharedAtomic => "shared-atomic",
            Self::ClusterLoad => "cluster-load",
            Self::ClusterStore => "cluster-store",
            Self::ClusterAtomic => "cluster-atomic",
            Self::Arrive => "arrive",
            Self::Wait => "wait",
            Self::Complete => "complete",
            Self::Passed => "passed",
            Self::BarrierInit => "mbarrier-init",
            Self::BarrierFence => "mbarrier-fence",
            Self::TmaLoad => "tma-load",
            Self::TmaLoaded => "tma-loaded",
            Self::TmaStore => "tma-store",
            Self::TmaStoreCommit => "tma-store-commit",
            Self::TmaStoreWait => "tma-store-wait",
            Self::AsyncCopy => "async-copy",
            Self::AsyncCopyCommit => "async-copy-commit",
            Self::AsyncCopyWait => "async-copy-wait",
            Self::WgmmaFence => "wgmma-fence",
            Self::Wgmma => "wgmma",
            Self::WgmmaCommit => "wgmma-commit",
            Self::WgmmaWait => "wgmma-wait",
            Self::Mma => "mma",
            Self::LoadMatrices => "ldmatrix",
            Self::Shuffle => "shuffle",
            Self::Vote => "vote",
            Self::SyncWarp => "sync-warp",
            Self::Elect => "elect",
            Self::Fence => "fence",
            Self::FenceAsync => "fence-async",
            Self::Clock => "clock",
            Self::Print => "print",
            Self::RegistersReleased => "registers-released",
            Self::RegistersAcquired => "registers-acquired",
            Self::End => "end",
            Self::Fault => "fault",
        }
    }

    /// Whether a step that does again what the warp's last one did is counted as one with it: loops that wait do so very often.
    fn is_counted_together(self) -> bool {
        use StepKind as K;
        matches!(
            self,
            K::GlobalLoad
                | K::GlobalAtomic
                | K::SharedLoad
                | K::SharedAtomic
                | K::ClusterLoad
                | K::ClusterAtomic
                | K::Clock
        )
    }
}

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepBarrier {
    /// That of the block (`sync_threads`).
    Block,
    /// One with a number, for a part of the block.
    Named(u32),
    /// The `mbarrier` at a byte of the dynamic shared memory.
    Mbarrier(usize),
    /// That of the cluster.
    Cluster,
    /// Registers that others give.
    Registers,
}

/// Who makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepActor {
    /// Lanes of a warp.
    Warp {
        /// The number of the warp in its block.
        warp: usize,
        /// A bit for each lane that takes part.
        lanes: u32,
    },
    /// TMA.
    Tma,
    /// The block as a whole: a barrier of it is complete.
    Block,
    /// A thread of another block of the cluster.
    Cluster(Dim3),
}

/// What memory a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepMemory {
    /// A view among the kernel's parameters: the number in [`RecordedBlock::views`].
    View(usize),
    /// Global memory of no view.
    Global,
    /// Shared memory: the number in [`RecordedBlock::arrays`].
    Shared(usize),
    /// The same of the block of this rank in the cluster.
    Cluster(u32, usize),
}

/// A step of a warp, or of TMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number: one order for all steps of the launch, from 1 on.
    pub number: u64,
    /// Who makes it.
    pub by: StepActor,
    /// What it does.
    pub kind: StepKind,
    /// The place in the source.
    pub line: Option<SourceLine>,
    /// The line of the kernel by which it came to this place, if [`StepOptions::callers`] knows.
    pub caller: Option<SourceLine>,
    /// How often in a row: more than once for what does the same again, as a loop does that waits.
    pub times: u64,
    /// The memory that it accesses.
    pub memory: Option<StepMemory>,
    /// The bytes there, of all lanes, in order: those of a product are the ones that it reads, A's behind B's.
    pub ranges: Vec<Range<usize>>,
    /// How many bytes lanes access together, or the transfer has, or an arrival has the phase expect.
    pub bytes: u64,
    /// The barrier that it comes to, or that a transfer tells.
    pub barrier: Option<StepBarrier>,
    /// The phase of the barrier, counted from 0: how often it has been complete before. Of groups of copies, stores or products: its number.
    pub phase: Option<u64>,
    /// The number of the transfer by TMA, to find its end by its beginning.
    pub transfer: Option<u64>,
    /// More, in words: an operation, a mask, coordinates.
    pub text: String,
}

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedArray {
    /// What it is called.
    pub name: String,
    /// Its size in bytes.
    pub bytes: usize,
}

/// Threads of a warp that have not returned, in one place, when the block ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Their warp.
    pub warp: usize,
    /// How many they are.
    pub threads: usize,
    /// The line where they are.
    pub line: Option<SourceLine>,
    /// What they wait for.
    pub place: String,
}

/// What a block has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBlock {
    /// Its coordinates.
    pub block: Dim3,
    /// The views among the kernel's parameters, by their names, with the size of an element and of all.
    pub views: Vec<(String, usize, usize)>,
    /// Arrays in shared memory that it used.
    pub arrays: Vec<RecordedArray>,
    /// What it did.
    pub steps: Vec<Step>,
    /// How many steps of threads there were besides, when the limit had been reached.
    pub more: u64,
    /// What was wrong with it.
    pub fault: Option<Box<Fault>>,
    /// Threads that have not returned: after a fault, or if another block had one.
    pub left: Vec<Left>,
}

/// What blocks of a launch have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLaunch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The extents of the grid, of a block, and of a cluster.
    pub grid: Dim3,
    /// In threads.
    pub block: Dim3,
    /// In blocks. One block if the kernel has no clusters.
    pub cluster: Dim3,
    /// The seed of its [schedule](Executor::schedule).
    pub seed: u64,
    /// The blocks, in linear order.
    pub blocks: Vec<RecordedBlock>,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub struct StepOptions {
    /// Of which kernel; of any, if there is none.
    pub kernel: Option<String>,
    /// Of which of its launches, counted from 0.
    pub launch: u64,
    /// Of which blocks.
    pub blocks: Vec<Dim3>,
    /// How many steps of a block are kept at most.
    pub limit: usize,
    /// How many steps the threads of a block make, each for itself, before the launch is ended: a kernel that never ends is one that makes
    /// more.
    pub budget: u64,
    /// Finds the lines of the kernel that threads are in. Without, these are not recorded.
    pub callers: Option<Callers>,
}

impl StepOptions {
    /// How many steps are kept unless another number is chosen.
    pub const DEFAULT_LIMIT: usize = 100_000;

    /// How many steps threads make unless another number is chosen.
    pub const DEFAULT_BUDGET: u64 = 100_000_000;
}

impl Default for StepOptions {
    /// The first block of the first launch of any kernel.
    fn default() -> Self {
        Self {
            kernel: None,
            launch: 0,
            blocks: std::vec![Dim3::new(0, 0, 0)],
            limit: Self::DEFAULT_LIMIT,
            budget: Self::DEFAULT_BUDGET,
            callers: None,
        }
    }
}

/// What blocks of a launch do: [`Executor::with_steps`].
#[derive(Debug, Default)]
pub struct Steps {
    options: StepOptions,
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// How many launches there have been that might have been meant.
    launches: u64,
    launch: Option<RecordedLaunch>,
    /// The last number of a step.
    last: u64,
    /// Whether the numbers that steps have got are in the order in which they took place.
    is_in_turns: bool,
}

impl Steps {
    /// That records what `options` say.
    pub fn new(options: StepOptions) -> Self {
        Self { options, recorded: Mutex::default() }
    }

    /// What was recorded, if the launch has been that was meant.
    pub fn launch(&self) -> Option<RecordedLaunch> {
        let recorded = self.lock();
        let mut launch = recorded.launch.clone()?;
        let Dim3 { x, y, .. } = launch.grid;
        let number =
            |block: Dim3| (u64::from(block.z) * u64::from(y) + u64::from(block.y)) * u64::from(x) + u64::from(block.x);
        launch.blocks.sort_by_key(|block| number(block.block));
        if !recorded.is_in_turns {
            // Blocks that run beside each other have no order: the numbers would be those of chance.
            (1..)
                .zip(launch.blocks.iter_mut().flat_map(|block| &mut block.steps))
                .for_each(|(i, step)| step.number = i);
        }
        Some(launch)
    }

    /// Notes a launch. Whether it is the one that is meant.
    pub(super) fn begin(&self, launch: impl FnOnce() -> RecordedLaunch, kernel: &str, is_in_turns: bool) -> bool {
        if self.options.kernel.as_ref().is_some_and(|wanted| wanted != kernel) {
            return false;
        }
        let mut recorded = self.lock();
        let number = recorded.launches;
        recorded.launches += 1;
        let is_meant = number == self.options.launch;
        if is_meant {
            (recorded.launch, recorded.last, recorded.is_in_turns) = (Some(launch()), 0, is_in_turns);
        }
        is_meant
    }

    pub(super) fn options(&self) -> &StepOptions {
        &self.options
    }

    /// As many numbers as are asked for: the first one.
    fn numbers(&self, count: usize) -> u64 {
        let mut recorded = self.lock();
        let first = recorded.last + 1;
        recorded.last += count as u64;
        first
    }

    fn add(&self, block: RecordedBlock) {
        if let Some(launch) = &mut self.lock().launch {
            launch.blocks.push(block);
        }
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// The same executor, which records what blocks of a launch do, step by step, and has [`Checks::Full`], by which it sees that. What is
    /// computed, and what is found, is the same as without.
    ///
    /// ```standalone_crate
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// use std::sync::Arc;
    /// use cuda_std::executor::{Checks, Executor, StepKind, Steps};
    /// use cuda_std::prelude::*;
    ///
    /// #[kernel(block = 64)]
    /// pub fn doubles(x: GlobalSliceMut<'_, f32>) {
    ///     // SAFETY: no other thread has this index, and there are as many elements as threads.
    ///     unsafe { x.set_unchecked(thread::index_1d(), 2.0 * x.get_unchecked(thread::index_1d())) }
    /// }
    ///
    /// let (steps, mut x) = (Arc::new(Steps::default()), vec![1.0; 64]);
    /// let executor = Executor::new(Checks::Full).with_steps(Arc::clone(&steps));
    /// // SAFETY: the only view is of a slice of this program.
    /// unsafe { executor.launch(doubles { x: GlobalSliceMut::new(&mut x) }, Dim3::from(1)) }.unwrap();
    /// let launch = steps.launch().unwrap();
    /// // Two warps load, store and return.
    /// let kinds: Vec<_> = launch.blocks[0].steps.iter().map(|step| step.kind).collect();
    /// let of_warp = [StepKind::GlobalLoad, StepKind::GlobalStore, StepKind::End];
    /// assert_eq!(kinds, [of_warp, of_warp].concat());
    /// assert_eq!(launch.blocks[0].steps[0].bytes, 128);
    /// ```
    pub fn with_steps(self, steps: Arc<Steps>) -> Self {
        Self { checks: Checks::Full, steps: Some(steps), backtraces: None, ..self }
    }
}
