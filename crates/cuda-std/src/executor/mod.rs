//! Runs kernels on the CPU, and checks what they do.
//!
//! ```standalone_crate
//! # extern crate tilewright_cuda_std as cuda_std;
//! use cuda_std::executor::{Checks, Executor};
//! use cuda_std::prelude::*;
//!
//! #[kernel(block = 64)]
//! pub fn doubles(x: GlobalSliceMut<'_, f32>) {
//!     let i = thread::index_1d();
//!     // SAFETY: no other thread has this i. But is it below x.len()?
//!     unsafe { x.set_unchecked(i, 2.0 * x.get_unchecked(i)) }
//! }
//!
//! let mut x = vec![1.0; 100];
//! let kernel = doubles { x: GlobalSliceMut::new(&mut x) };
//! // SAFETY: the only view is of a slice of this program.
//! let error = unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(2)) }.unwrap_err();
//! let message = error.to_string();
//! let what = "kernel `doubles`, block (1, 0, 0), thread (36, 0, 0): element 100 is out of bounds of view `x`, which has 100";
//! assert!(message.starts_with(what)); // and the line of source, and what to do
//! ```
//!
//! # How a grid is run
//!
//! Each thread of a block is a coroutine: a stack of its own, and a switch of a few nanoseconds in place of waiting. Each
//! worker, a thread of the rayon pool, has one set of coroutines, shared arrays and stacks, and runs one block after the
//! other with it. Blocks are given out in linear order, some at a time.
//!
//! ```text
//!  grid        block 0 │ block 1 │ block 2 │ block 3 │ …        given out in order
//!                 │                   │
//!  workers     worker A            worker B                     one for each thread of the pool
//!                 │
//!  warps       warp 0                  warp 1            …      one after the other
//!              0  1  2  3 … 31         32 33 34 35 … 63
//!  lanes       ●──●──●──●───●          ●──●──●──●────●          each runs until it waits or returns
//!              ╎  ╎  ╎  ╎   ╎ shuffle  ╎  ╎  ╎  ╎    ╎          when all its lanes have come: exchange, run again
//!              ●──●──●──●───●          ╎  ╎  ╎  ╎    ╎
//!              ═══════════════════════════════════════ barrier  when all threads have come: a new epoch, from warp 0
//!              ●──●──●──●───●          ●──●──●──●────●
//! ```
//!
//! Blocks of a launch with a [`GlobalAtomics`](crate::GlobalAtomics) among its parameters can wait for one another. Some of them, a
//! [window](Executor::window), and all of a cooperative launch, run at the same time, each with a worker of its own; one after the other has its turn, in an order that a
//! [seed](Executor::schedule) decides, and each turn ends at an atomic operation. What is found with a seed is found with it again.
//!
//! The blocks of a cluster run at the same time, too, and take turns, beside those of other clusters (`cluster.rs`).
//!
//! So a thread runs alone between two waits, in an order that is always the same. When no thread can go on and not all have
//! returned, some wait for others that never come: that is how a barrier in a divergent branch, or a shuffle without all of
//! its lanes, becomes a report with the lines where they are.
//!
//! # What is checked
//!
//! | | how |
//! |---|---|
//! | accesses to global and shared memory | the index against the length, at every access |
//! | loops that wait for a value | that somebody is left to write it: many turns in a row that change nothing are a report; of loops of plain reads with [`Checks::Full`] |
//! | barriers, shuffles, votes | who waits where when nobody can go on; for threads that have returned, nobody waits |
//! | values that shuffles give | that they come from a lane that takes part |
//! | clusters | who waits at their barrier; ranks; memory of blocks that have not begun or have ended |
//! | barriers of a part of the block, registers | the same, with what is missing |
//! | stacks | guard pages, and a canary for each stack |
//! | panics | caught, with message and line; nothing is printed |
//! | threads that never stop | after a [limit](Executor::thread_limit), which ends the process |
//! | asynchronous copies | that threads wait for them, and read what they write after that only |
//! | TMA, products of warpgroups | the same; that what they read is there and visible to them, and stays until they have read it |
//! | products of warpgroups | that all four warps come to the same ones in the same order |
//! | registers of products of warpgroups | that a fence stands between the last group, or the wait that sums came through, and the next product |
//! | races in shared memory, reads of what nobody wrote | a shadow of each 4 bytes, with [`Checks::Full`] |
//! | races in global memory, within a block and between blocks | the same, of all memory that views to write are of |
//! | global memory that was allocated without values | a bit for each byte: see [`Executor::without_values`] |
//! | orders, scopes and fences of atomic operations | vector clocks: what each thread knows of what others did, with [`Checks::Full`] |
//! | fences that are `SeqCst`, and what may be seen late | loads that see older values than the newest, with [`Checks::Full`] and a seed other than 0 (`older.rs`) |
//!
//! A thread that waits at a barrier of a part of the block, or for registers, runs on when it is its warp's turn and what it waits
//! for has come; warps take turns until nobody can go on.
//!
//! Whether there is a race is not a matter of the order in which threads happen to run: accesses conflict unless a barrier
//! or a `sync_warp` orders them, or atomic operations of which one releases and the other acquires, with scopes that include both threads.
//! Without [`Checks::Full`], shared memory that the block has not written reads as NaN.
//!
//! After a fault the block's threads are unwound, so that what they own is dropped. Only if a stack has overflowed they are
//! abandoned, because then nothing is known of the stacks.
//!
//! # What is not checked
//!
//! (`docs/book/src/checker.md` in the repository has a table of the mistakes in small kernels that are found and not found, from running tests.)
//!
//! Races between kernels that run at the same time in several streams: launches here run one after the other. Where atomic operations
//! order blocks, the shadow has up to 1024 readers of each 4 bytes of global memory, and as many atomic operations, those of a warp counted
//! once: a writer that is ordered behind these, and not behind another one, is missed. An atomic operation of an element that is not of a
//! `GlobalAtomics` orders nothing. TMA and asynchronous copies read and write
//! global memory, for the shadow, when they are issued.
//! Without [`Checks::Full`], a loop that waits for a value by plain loads waits forever, or until the [limit](Executor::thread_limit).
//! Whether a thread writes to registers between its fence and the product is not looked at. Accumulators that are read before they are
//! waited for are NaNs until then, and reported where such a NaN is stored, or goes to another lane or into a product: not where a
//! comparison, a conversion or a function of `math` has made something else of it. The shadow has the first lane of a warp read for its products. Race reports can
//! miss a conflict where `sync_warp` is called with a mask for a part of a warp (see the end of the description in
//! `shared_memory.rs`), but never invent one. Overflows that no guard page stops are reported by the canary, unless the thread
//! skips it: a frame with more than 32 bytes that it does not write. That takes a kernel of Linux older than 6.13, or another
//! system.

mod atomics;
mod backtraces;
mod barriers;
mod block;
mod changes;
mod clocks;
mod cluster;
mod context;
mod copies;
mod costs;
mod exchange;
mod fault;
mod global_memory;
mod hooks;
mod identity;
mod known;
mod meetings;
mod older;
mod overflow;
mod panics;
mod prints;
mod products;
mod remote;
mod shared_memory;
mod spins;
mod stacks;
mod steps;
mod stop;
mod tma;
mod turns;
mod unwritten;
mod values;
mod watchdog;
mod workers;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

pub(crate) use atomics::{
    atomic_compare_exchange, atomic_load, atomic_modify, atomic_store, dynamic_atomic, fence, require_cooperative,
    static_atomic,
};
pub use backtraces::{Backtraces, Callers, SOURCES};
pub(crate) use barriers::*;
pub use changes::{Change, ChangedCall, Changes};
pub(crate) use changes::{change_array_index, change_index, change_operand};
pub(crate) use cluster::*;
pub(crate) use context::{PAYLOAD, Payload};
pub(crate) use copies::{commit_copies, copy_to_shared, wait_for_copies};
pub use costs::{Cost, CostKind, Costs, KernelCosts, LineCost};
pub use fault::{
    AccessKind, BarrierName, BlockOperation, Elsewhere, Fault, FaultKind, LastWrite, LaunchError, Missing, OldValue,
    OtherAccess, Place, RemoteBarrierProblem, SharedArrayName, SourceLine, ViewElement, WarpOperation,
};
pub(crate) use global_memory::note_global_access;
pub(crate) use hooks::*;
pub(crate) use identity::SharedIdentity;
pub(crate) use meetings::*;
pub(crate) use prints::print;
pub(crate) use products::{
    OperandA, SharedTile, commit_products, fence_products, multiply, require_awaited, tile_distance, wait_for_products,
};
pub(crate) use remote::{
    offset_in_array, remote_place, remote_place_in_slice, remote_read, remote_read_slice, remote_write,
    remote_write_slice,
};
pub(crate) use spins::note_vector;
pub use steps::{
    Left, RecordedArray, RecordedBlock, RecordedLaunch, Step, StepActor, StepBarrier, StepKind, StepMemory,
    StepOptions, Steps,
};
pub use stop::Stop;
pub(crate) use tma::{
    commit_stores, fence_async, load_pixels, load_tile, load_tile_to_blocks, store_tile, wait_for_stores,
};
pub use unwritten::{UnwrittenElements, UnwrittenMemory};
pub use values::{FirstUnusual, Unusual, ValueTrace};
pub(crate) use values::{is_tracing, trace_atomic, trace_function, trace_in, trace_out, trace_sum};

use cluster::{Clusters, Team};
use context::Memory;
use global_memory::GlobalMemory;
use shared_memory::SharedMemory;
use stacks::Stacks;
use turns::Turns;
use unwritten::Allocations;
use watchdog::Watchdog;
use workers::{Launch, Leaves, MemoryState, Worker};

use gpu_facts::{KernelFacts, Limits};

use crate::print::PrintSink;
use crate::{Dim3, ErasedKernel, Kernel};

/// The most threads that a block can have on any GPU: as many stacks there are.
const MAX_THREADS: usize = Limits::of_hopper().threads_per_block as usize;

/// What a launch checks besides what it always does.
///
/// ```standalone_crate
/// # use cuda_std::{executor::{Checks, Executor, LaunchError}, prelude::*};
/// # extern crate tilewright_cuda_std as cuda_std;
/// /// Each thread writes the same element: a race.
/// #[kernel(block = 32)]
/// fn race(x: GlobalSliceMut<'_, u32>) {
///     // SAFETY: none: other threads write it, too.
///     unsafe { x.set_unchecked(0, thread::thread_idx_x()) }
/// }
/// # let launch = |checks| {
/// #     let mut x = [0];
/// #     // SAFETY: the view is of an array of this program.
/// #     unsafe { Executor::new(checks).launch(race { x: GlobalSliceMut::new(&mut x) }, Dim3::from(1)) }
/// # };
/// assert!(launch(Checks::Bounds).is_ok());
/// assert!(matches!(launch(Checks::Full), Err(LaunchError::Fault(_))));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checks {
    /// Indices, barriers, warp operations and stacks: what is always checked.
    Bounds,
    /// Also races in shared and global memory, and reads of shared memory that nobody has written.
    Full,
}

/// Runs kernels on this processor, on the threads of the current rayon pool.
///
/// ```standalone_crate
/// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
/// # extern crate tilewright_cuda_std as cuda_std;
/// #[kernel(block = 32)]
/// fn squares(x: DisjointSlice<'_, u32>) {
///     if let Some(x) = x.own() {
///         x.set((x.index() * x.index()) as u32);
///     }
/// }
/// let (executor, mut x) = (Executor::new(Checks::Full), [0; 40]);
/// // SAFETY: the only view is of an array of this program.
/// unsafe { executor.launch(squares { x: DisjointSlice::new(&mut x) }, Dim3::from(2)) }.unwrap();
/// assert_eq!(x[39], 39 * 39);
/// ```
#[derive(Clone)]
pub struct Executor {
    checks: Checks,
    stack_bytes: usize,
    changes: Option<Arc<Changes>>,
    backtraces: Option<Arc<Backtraces>>,
    costs: Option<Arc<Costs>>,
    steps: Option<Arc<Steps>>,
    trace: Option<Arc<ValueTrace>>,
    thread_limit: Option<Duration>,
    limits: Limits,
    multiprocessors: u32,
    window: usize,
    seed: u64,
    sink: PrintSink,
    /// Memory that was allocated without values.
    allocations: Arc<Allocations>,
    /// What workers of earlier launches have left: reserving stacks takes longer than many a launch.
    idle: Arc<Mutex<Vec<Memory>>>,
}

impl core::fmt::Debug for Executor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Executor").field("checks", &self.checks).field("stack_bytes", &self.stack_bytes).finish()
    }
}

impl Executor {
    /// The size of each thread's stack unless [`Executor::stack_bytes`] chooses another, in bytes.
    pub const DEFAULT_STACK_BYTES: usize = 64 << 10;

    /// How many blocks run at the same time, where they can wait for one another, unless [`Executor::window`] chooses another number.
    pub const DEFAULT_WINDOW: usize = 4;

    /// On how many multiprocessors the blocks of a cooperative launch run at the same time, unless [`Executor::multiprocessors`] chooses
    /// another number: as many as an H100 SXM or an H200 has.
    pub const DEFAULT_MULTIPROCESSORS: u32 = 132;

    /// An executor that checks what `checks` says.
    ///
    /// ```
    /// # use tilewright_cuda_std::{executor::{Checks, Executor}};
    /// assert_eq!(Executor::new(Checks::Full).checks(), Checks::Full);
    /// ```
    pub fn new(checks: Checks) -> Self {
        Self {
            checks,
            stack_bytes: Self::DEFAULT_STACK_BYTES,
            changes: None,
            backtraces: None,
            costs: None,
            steps: None,
            trace: None,
            thread_limit: None,
            limits: Limits::of_hopper(),
            multiprocessors: Self::DEFAULT_MULTIPROCESSORS,
            window: Self::DEFAULT_WINDOW,
            seed: 0,
            sink: PrintSink::default(),
            allocations: Arc::default(),
            idle: Arc::default(),
        }
    }

    /// The same executor with stacks of at least `bytes` bytes for each thread of a block, and no fewer than 16 KiB. They
    /// take address space at once, but memory only as far as kernels use them. A kernel that says what it needs (`stack = …`) gets at
    /// least that; but a function takes more of a stack here than on a GPU, several times as much without optimization.
    ///
    /// ```
    /// # use tilewright_cuda_std::{executor::{Checks, Executor}};
    /// // For kernels that call themselves, or have large arrays of their own.
    /// let executor = Executor::new(Checks::Full).stack_bytes(1 << 20);
    /// assert!(format!("{executor:?}").contains("stack_bytes: 1048576"));
    /// ```
    pub fn stack_bytes(self, bytes: usize) -> Self {
        Self { stack_bytes: bytes.clamp(*stacks::SIZES.start(), *stacks::SIZES.end()), idle: Arc::default(), ..self }
    }

    /// The same executor, which notes what in its kernels it can do in another way than they ask for, or does one thing so, as `changes`
    /// says: for tests of the checks themselves.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Changes, Checks, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use std::sync::Arc;
    /// #[kernel(block = 64)]
    /// fn meet() {
    ///     // SAFETY: all threads come here.
    ///     unsafe { thread::sync_threads() }
    /// }
    /// // Which calls there are that it could carry out in another way.
    /// let changes = Arc::new(Changes::default());
    /// let executor = Executor::new(Checks::Full).with_changes(Arc::clone(&changes));
    /// // SAFETY: there are no views.
    /// unsafe { executor.launch(meet {}, Dim3::from(1)) }.unwrap();
    /// assert_eq!(changes.take_met()[0].function, "sync_threads");
    /// ```
    pub fn with_changes(self, changes: Arc<Changes>) -> Self {
        changes.switch_on();
        Self { changes: Some(changes), ..self }
    }

    /// The same executor, which ends the process, with a report on standard error, when a thread of a kernel has run for so long and has
    /// neither returned nor stopped at a barrier, an atomic operation or anything else that lets others run: a loop that never ends and does
    /// nothing but compute. There is no other way to stop it, and without a limit it goes on forever. All other loops that never end are faults
    /// that [`Executor::launch`] returns. A limit has to leave time for what the slowest machine does between two stops.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use core::time::Duration;
    /// #[kernel(block = 32)]
    /// fn counts(x: DisjointSlice<'_, u32>) {
    ///     if let Some(x) = x.own() {
    ///         let (mut i, mut steps) = (x.get(), 0);
    ///         while i != 1 { // with 0 it would never end
    ///             i /= 2;
    ///             steps += 1;
    ///         }
    ///         x.set(steps);
    ///     }
    /// }
    /// let (executor, mut x) = (Executor::new(Checks::Full).thread_limit(Duration::from_secs(60)), [1024; 32]);
    /// // SAFETY: the only view is of an array of this program.
    /// unsafe { executor.launch(counts { x: DisjointSlice::new(&mut x) }, Dim3::from(1)) }.unwrap();
    /// assert_eq!(x, [10; 32]);
    /// ```
    pub fn thread_limit(self, limit: Duration) -> Self {
        Self { thread_limit: Some(limit), ..self }
    }

    /// The same executor, which refuses what a GPU with these limits would refuse. Without this call they are those of compute
    /// capability 9.0, the largest that there are.
    ///
    /// ```
    /// # use tilewright_cuda_std::{ComputeCapability, Limits, executor::{Checks, Executor}};
    /// let ada = Limits::of(ComputeCapability::new(8, 9)).unwrap();
    /// let executor = Executor::new(Checks::Full).with_limits(ada);
    /// assert_eq!(executor.limits().shared_bytes, 99 << 10);
    /// ```
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The same executor, which refuses a cooperative launch as a GPU with so many multiprocessors would.
    ///
    /// ```
    /// # use tilewright_cuda_std::{KernelFacts, executor::{Checks, Executor}};
    /// let kernel = KernelFacts { block: [1024, 1, 1], ..KernelFacts::new("large") };
    /// let executor = Executor::new(Checks::Full).multiprocessors(10);
    /// assert_eq!(executor.resident_blocks(&kernel), 20, "2048 threads on each of 10 multiprocessors");
    /// ```
    pub fn multiprocessors(self, multiprocessors: u32) -> Self {
        Self { multiprocessors, ..self }
    }

    /// How many blocks of a kernel run at the same time on the GPU that the executor stands for, as far as shared memory, threads and
    /// blocks say: the largest grid of a cooperative launch. Registers may leave fewer.
    ///
    /// ```
    /// # use tilewright_cuda_std::{KernelFacts, executor::{Checks, Executor}};
    /// let kernel = KernelFacts { block: [1024, 1, 1], ..KernelFacts::new("large") };
    /// assert_eq!(Executor::new(Checks::Full).resident_blocks(&kernel), 264, "2 on each of 132 multiprocessors");
    /// ```
    pub fn resident_blocks(&self, kernel: &KernelFacts) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.limits.resident_blocks(kernel))
    }

    /// The same executor, which runs so many blocks at the same time, at least one, where they can wait for one another. A GPU promises no
    /// more than one, unless the launch is a cooperative one, of which all blocks run at the same time whatever the window is. Clusters are
    /// never divided: those of which one block runs, run as a whole.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// /// Each block waits until all have come: more blocks than run at the same time would wait forever.
    /// #[kernel(block = 1, any_grid, requires(come.len() == 1))]
    /// fn meet(come: GlobalAtomics<'_, u32>) {
    ///     let Some(come) = come.get(0) else { return };
    ///     come.fetch_add(1, atomic::Relaxed, atomic::Scope::Device);
    ///     while come.load(atomic::Relaxed, atomic::Scope::Device) < thread::grid_dim_x() {}
    /// }
    /// # let launch = |window| {
    /// #     let mut come = [0];
    /// #     let kernel = meet { come: GlobalAtomics::new(&mut come) };
    /// #     // SAFETY: the view is of an array of this program.
    /// #     unsafe { Executor::new(Checks::Full).window(window).launch(kernel, Dim3::from(6)) }
    /// # };
    /// assert!(launch(6).is_ok());
    /// assert!(launch(5).is_err()); // and the report says who waits for what
    /// ```
    pub fn window(self, blocks: usize) -> Self {
        Self { window: blocks.max(1), ..self }
    }

    /// The same executor with another order in which blocks that can wait for one another take turns. With [`Checks::Full`] and a seed other than 0,
    /// atomic loads of a [`GlobalAtomics`](crate::GlobalAtomics) sometimes see an older value than the newest, where they may on a GPU, and
    /// [`warp::active_mask`](crate::warp::active_mask) names other lanes, too.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// /// The order in which blocks come, when they have all begun.
    /// #[kernel(block = 1, any_grid, requires(next.len() == 1))]
    /// fn tickets(next: GlobalAtomics<'_, u32>, tickets: GlobalSliceMut<'_, u32>) {
    ///     let Some(next) = next.get(0) else { return };
    ///     next.fetch_add(1, atomic::Relaxed, atomic::Scope::Device);
    ///     while next.load(atomic::Relaxed, atomic::Scope::Device) < thread::grid_dim_x() {}
    ///     let ticket = next.fetch_add(1, atomic::Relaxed, atomic::Scope::Device);
    ///     // SAFETY: an element for each block.
    ///     unsafe { tickets.set_unchecked(thread::index(), ticket) }
    /// }
    /// # let order = |seed| {
    /// #     let (mut next, mut order) = ([0], [0; 8]);
    /// #     let kernel = tickets { next: GlobalAtomics::new(&mut next), tickets: GlobalSliceMut::new(&mut order) };
    /// #     // SAFETY: the views are of arrays of this program.
    /// #     unsafe { Executor::new(Checks::Full).window(8).schedule(seed).launch(kernel, Dim3::from(8)) }.unwrap();
    /// #     order
    /// # };
    /// assert_eq!(order(1), order(1), "the same seed, the same order");
    /// assert!((2..50).any(|seed| order(seed) != order(1)));
    /// ```
    pub fn schedule(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same executor, which shows lines that kernels [print](crate::print) by `sink`, in place of the standard output.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor}, prelude::*, print::PrintSink};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use std::sync::{Arc, Mutex};
    /// #[kernel(block = 2)]
    /// fn greet() {
    ///     gpu_println!("thread {}", thread::thread_idx_x());
    /// }
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// let kept = Arc::clone(&lines);
    /// let sink = PrintSink::new(move |printed| kept.lock().unwrap().push(printed.to_string()));
    /// // SAFETY: there are no views.
    /// unsafe { Executor::new(Checks::Full).print_to(sink).launch(greet {}, Dim3::from(1)) }.unwrap();
    /// assert_eq!(*lines.lock().unwrap(), ["thread 0", "thread 1"]);
    /// ```
    pub fn print_to(self, sink: PrintSink) -> Self {
        Self { sink, ..self }
    }

    /// What a block and a grid can have at most.
    ///
    /// ```
    /// # use tilewright_cuda_std::{executor::{Checks, Executor}};
    /// assert_eq!(Executor::new(Checks::Full).limits().threads_per_block, 1024);
    /// ```
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What launches check.
    ///
    /// ```
    /// # use tilewright_cuda_std::{executor::{Checks, Executor}};
    /// assert_eq!(Executor::new(Checks::Bounds).checks(), Checks::Bounds);
    /// ```
    pub fn checks(&self) -> Checks {
        self.checks
    }

    /// Runs a kernel on a grid of blocks.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, Executor, LaunchError}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// /// One over each number; zero has none.
    /// #[kernel(block = 32, any_grid)]
    /// fn invert(x: DisjointSlice<'_, f32>) {
    ///     for x in x.own_elements() {
    ///         gpu_assert!(x.get() != 0.0, "element {} is zero", x.index());
    ///         x.set(1.0 / x.get());
    ///     }
    /// }
    /// let mut x = [2.0, 4.0, 0.0];
    /// // SAFETY: the only view is of an array of this program.
    /// let result = unsafe { Executor::new(Checks::Full).launch(invert { x: DisjointSlice::new(&mut x) }, Dim3::from(1)) };
    /// let Err(LaunchError::Fault(fault)) = result else { panic!("{result:?}") };
    /// assert_eq!(fault.thread.x, 2);
    /// ```
    ///
    /// # Errors
    /// See [`LaunchError`]. After a [fault](LaunchError::Fault), or when it was [stopped](Stop), some blocks have run and others have not.
    ///
    /// # Panics
    /// If called from within a kernel.
    ///
    /// # Safety
    /// All views among the kernel's arguments are of memory of this processor that is valid during the launch, and views
    /// that the kernel may write to overlap no other.
    pub unsafe fn launch<K: Kernel>(&self, kernel: K, grid: Dim3) -> Result<(), LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_erased(&kernel, grid) }
    }

    /// [`Executor::launch`] of a kernel of any type, as [`ErasedKernel`] shows.
    ///
    /// ```standalone_crate
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use cuda_std::{ErasedKernel, executor::{Checks, Executor, LaunchError}, prelude::*};
    /// /// Reads an element too far.
    /// #[kernel(block = 4)]
    /// fn shift(x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
    ///     for y in y.own_elements() {
    ///         // SAFETY: none: that is the mistake.
    ///         y.set(unsafe { x.get_unchecked(y.index() + 1) });
    ///     }
    /// }
    /// let (x, mut y) = ([0.0; 4], [0.0; 4]);
    /// let kernel = shift { x: GlobalSlice::new(&x), y: DisjointSlice::new(&mut y) };
    /// // SAFETY: the views are of arrays of this program.
    /// let result = unsafe { Executor::new(Checks::Full).launch_erased(&kernel, Dim3::from(1)) };
    /// assert!(matches!(result, Err(LaunchError::Fault(fault)) if fault.thread.x == 3));
    /// ```
    ///
    /// # Errors
    /// Those of [`Executor::launch`].
    ///
    /// # Panics
    /// As [`Executor::launch`].
    ///
    /// # Safety
    /// As for [`Executor::launch`].
    pub unsafe fn launch_erased(&self, kernel: &dyn ErasedKernel, grid: Dim3) -> Result<(), LaunchError> {
        kernel.check()?;
        let (declared, facts) = (kernel.declared(), kernel.facts());
        let excess = |excess| LaunchError::Excess { kernel: declared.name, excess };
        if facts.stack_bytes as usize > self.stack_bytes {
            let larger = self.clone().stack_bytes(facts.stack_bytes as usize);
            // SAFETY: the caller's promise.
            return unsafe { larger.launch_erased(kernel, grid) };
        }
        self.limits.check(&facts).and(self.limits.check_grid(grid.into())).map_err(excess)?;
        facts.check_clusters(grid.into()).map_err(excess)?;
        facts.check_cooperative(grid.into(), self.resident_blocks(&facts)).map_err(excess)?;
        assert!(context::try_current().is_none(), "a kernel cannot launch kernels");
        panics::install_hook();
        overflow::install();

        if let Some(costs) = &self.costs {
            costs.begin(declared.name, u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z));
        }
        let mut launch = Launch::new(declared.name, grid, self.seed);
        launch.clusters = Clusters::new(grid, facts.cluster);
        launch.watchdog =
            self.thread_limit.and_then(|limit| Watchdog::new(declared.name, grid, facts.block.into(), limit));
        launch.number = self.trace.as_ref().map_or(0, |trace| trace.begin());
        if self.checks == Checks::Full {
            let sees_old_values = self.seed != 0;
            launch.global =
                Some(GlobalMemory::new(&self.allocations, sees_old_values, |visit| kernel.visit_views(visit)));
        }
        let work = |launch: &Launch, place: Worker<'_>| {
            let result = self.take_memory().map(|memory| {
                // SAFETY: the caller's promise, and the check above.
                let state = unsafe { launch.work(kernel, self, &memory, place) };
                if state == MemoryState::Reusable {
                    self.idle().push(memory);
                }
            });
            if let Err(error) = result {
                launch.fail(0, error);
            }
        };
        let in_turns = declared.is_cooperative || global_memory::is_for_waiting(|visit| kernel.visit_views(visit));
        launch.is_recorded = self.steps.as_ref().is_some_and(|steps| {
            let recorded = || RecordedLaunch {
                kernel: declared.name,
                grid,
                block: facts.block.into(),
                cluster: launch.clusters.dim(),
                seed: self.seed,
                blocks: Vec::new(),
            };
            steps.begin(recorded, declared.name, in_turns || launch.clusters.blocks() == launch.total)
        });
        if in_turns || facts.cluster.is_some() {
            launch.portion = 1;
            let blocks = launch.clusters.blocks();
            let window = match declared.is_cooperative {
                true => launch.total,
                // Of whole clusters.
                false => (self.window as u64).next_multiple_of(blocks).min(launch.total),
            };
            // How many workers take turns with one another, and how many such groups there are.
            let (workers, groups) = match in_turns {
                true => (window, 1),
                false => (blocks, (rayon::current_num_threads() as u64).min(launch.total / blocks)),
            };
            let (workers, blocks, threads) = (workers as usize, blocks as usize, facts.threads() as usize);
            let turns: Vec<_> = (0..groups).map(|_| Turns::new(workers, self.seed)).collect();
            let teams = |turns| {
                let team = |first| Team::new(launch.clusters, turns, first, !in_turns, self.seed, threads);
                let starts = (0..workers).step_by(blocks);
                starts.filter(|_| facts.cluster.is_some()).map(team).collect::<Vec<_>>()
            };
            let groups: Vec<_> = turns.iter().map(|turns| (turns, teams(turns))).collect();
            let (launch, work) = (&launch, &work);
            std::thread::scope(|scope| {
                for (turns, teams) in &groups {
                    for worker in 0..workers {
                        let team = teams.get(worker / blocks).map(|team| (team, worker % blocks));
                        scope.spawn(move || {
                            turns.begin(worker);
                            let _leaves = Leaves { turns, worker, launch };
                            work(launch, Worker { turns: Some((turns, worker)), team });
                        });
                    }
                }
            });
        } else {
            let workers = (rayon::current_num_threads() as u64).min(launch.total.div_ceil(launch.portion));
            let (launch, work) = (&launch, &work);
            rayon::scope(|scope| (0..workers).for_each(|_| scope.spawn(move |_| work(launch, Worker::default()))));
        }
        // Which blocks behind one that has failed have run is chance, unless they took turns.
        let first_failed = launch.first_failed.load(Ordering::Relaxed);
        let (prints, kernel) = (core::mem::take(&mut launch.prints), launch.kernel);
        prints.show(kernel, (!in_turns).then_some(first_failed), &self.sink);
        launch.result()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_memory(&self) -> Result<Memory, LaunchError> {
        if let Some(memory) = self.idle().pop() {
            return Ok(memory);
        }
        let bytes = Stacks::reserved_bytes(self.stack_bytes);
        let stacks = Stacks::new(self.stack_bytes).map_err(|source| LaunchError::Stacks { bytes, source })?;
        Ok(Memory { stacks, shared: SharedMemory::new() })
    }
}
