//! What the accesses of a kernel would cost on a GPU, line by line: sectors of global memory, bank conflicts, lanes that take part.
//!
//! ```text
//!  lanes        0    1    2    3  …  31
//!  line 12      ●    ●    ●    ●      ●      their first access on the line since the warp last met: one request
//!               │    │    │    │      │
//!  memory       └─── sectors of 32 bytes, each counted once ───┘
//! ```
//!
//! Lanes run one after the other here, so what a warp does in one instruction has to be put together: the n-th accesses of lanes on a line,
//! counted from where the warp has last met, are one *request*; or those after the n-th accesses on the line before, where that costs less, as
//! behind a branch in a loop. Where lanes go through loops in ways that neither tells, this may put together what a GPU does
//! apart, or the other way round. The compiler for a GPU may leave out accesses, or join them; what
//! is counted is what the source says.
//!
//! The figures are those of Nsight Compute by definition:
//!
//! | here | there |
//! |---|---|
//! | requests of global loads, stores | `l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum`, `…_op_st.sum` |
//! | their sectors | `l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum`, `…_op_st.sum` |
//! | conflicts of shared loads, stores | `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum`, `…_op_st.sum` |
//! | their wavefronts | `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum`, `…_op_st.sum` |
//! | lanes in a request | `smsp__thread_inst_executed_per_inst_executed.ratio`, of these instructions alone |

mod recorder;
mod tables;

use core::panic::Location;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::fault::SourceLine;
use super::{Checks, Executor};
pub(super) use recorder::Recorder;

/// What a line does that costs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CostKind {
    /// Loads from global memory.
    GlobalLoad,
    /// Atomic loads from global memory, by which threads wait for others or see how far these are: how many there are is chance, as a rule,
    /// and another number on a GPU. To memory they are loads.
    GlobalAtomicLoad,
    /// Stores to global memory, atomic ones among them.
    GlobalStore,
    /// Atomic operations on global memory that read and write: additions, exchanges and the like.
    GlobalAtomic,
    /// Asynchronous copies (`cp.async`): what they read of global memory.
    AsyncCopy,
    /// Tiles that TMA loads or stores: their bytes in global memory. A thread asks for each, not a warp.
    Tma,
    /// Loads from shared memory, atomic ones and `ldmatrix` among them.
    SharedLoad,
    /// Stores to shared memory, atomic ones among them.
    SharedStore,
    /// Atomic operations on shared memory that read and write.
    SharedAtomic,
    /// Barriers of the block, of a part of it or of the cluster, and waits for a phase or registers: how often warps execute them, whether they
    /// have to wait or not.
    Wait,
}

/// What accesses cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How many instructions warps execute for them.
    pub requests: u64,
    /// How many lanes take part in these, together.
    pub lanes: u64,
    /// How many different bytes the lanes of each request access, together.
    pub bytes: u64,
    /// How many sectors of 32 bytes of global memory they are in.
    pub sectors: u64,
    /// How many passes through shared memory they take.
    pub wavefronts: u64,
    /// How many passes more than without bank conflicts: lanes of a pass that access different words of one bank. Of atomic operations,
    /// how many lanes access an element that another lane of the request accesses as well.
    pub conflicts: u64,
}

impl Cost {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.lanes += other.lanes;
        self.bytes += other.bytes;
        self.sectors += other.sectors;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
    }
}

/// What a line of source costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// The line.
    pub line: SourceLine,
    /// What it does.
    pub kind: CostKind,
    /// What that costs.
    pub cost: Cost,
}

/// What a kernel costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCosts {
    /// The kernel's name.
    pub kernel: &'static str,
    /// How often it was launched.
    pub launches: u64,
    /// How many blocks these launches had together.
    pub blocks: u64,
    /// Its lines, in the order of the source, and what each of them does.
    pub lines: Vec<LineCost>,
}

impl KernelCosts {
    /// What all lines that do this cost together.
    pub fn total(&self, kind: CostKind) -> Cost {
        let mut total = Cost::default();
        self.lines.iter().filter(|line| line.kind == kind).for_each(|line| total.add(&line.cost));
        total
    }
}

/// A line of source, and what it does.
type Key = (&'static str, u32, CostKind);

/// What launches cost: [`Executor::with_costs`].
#[derive(Debug, Default)]
pub struct Costs(Mutex<BTreeMap<&'static str, OfKernel>>);

#[derive(Debug, Default)]
struct OfKernel {
    launches: u64,
    blocks: u64,
    lines: BTreeMap<Key, Cost>,
}

impl Costs {
    /// The kernels that were launched, by their names.
    pub fn kernels(&self) -> Vec<KernelCosts> {
        let of_kernel = |(kernel, costs): (&&'static str, &OfKernel)| {
            let lines = costs.lines.iter().map(|((file, line, kind), cost)| LineCost {
                line: SourceLine { file: (*file).into(), line: *line },
                kind: *kind,
                cost: *cost,
            });
            let OfKernel { launches, blocks, .. } = *costs;
            KernelCosts { kernel, launches, blocks, lines: lines.collect() }
        };
        self.lock().iter().map(of_kernel).collect()
    }

    /// Notes a launch with so many blocks.
    pub(super) fn begin(&self, kernel: &'static str, blocks: u64) {
        let mut kernels = self.lock();
        let of_kernel = kernels.entry(kernel).or_default();
        of_kernel.launches += 1;
        of_kernel.blocks += blocks;
    }

    /// Adds what a line has cost.
    fn add(&self, kernel: &'static str, location: &'static Location<'static>, kind: CostKind, cost: &Cost) {
        let key = (location.file(), location.line(), kind);
        self.lock().entry(kernel).or_default().lines.entry(key).or_default().add(cost);
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, OfKernel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// The same executor, which notes what the accesses of kernels would cost on a GPU, and has [`Checks::Full`], by which it sees them. It
    /// is slower by that, and takes memory for all accesses of a warp between two points where its lanes meet.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Checks, CostKind, Costs, Executor}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use std::sync::Arc;
    /// /// Each lane reads the first number of a row of 32.
    /// #[kernel(block = 32)]
    /// fn first_of_rows(x: GlobalSlice<'_, f32>) {
    ///     _ = x.get(32 * thread::index());
    /// }
    /// let (costs, x) = (Arc::new(Costs::default()), [0.0; 1024]);
    /// let executor = Executor::new(Checks::Full).with_costs(Arc::clone(&costs));
    /// // SAFETY: the only view is of an array of this program.
    /// unsafe { executor.launch(first_of_rows { x: GlobalSlice::new(&x) }, Dim3::from(1)) }.unwrap();
    /// let loads = costs.kernels()[0].total(CostKind::GlobalLoad);
    /// assert_eq!((loads.requests, loads.sectors, loads.bytes), (1, 32, 128), "32 bytes come for each 4");
    /// ```
    pub fn with_costs(self, costs: Arc<Costs>) -> Self {
        Self { checks: Checks::Full, costs: Some(costs), ..self }
    }
}
