//! What a kernel is to a plan: facts that can be read off ([`KernelInfo`]), and a contract ([`Contract`]).
//!
//! ```text
//!  kernels/<family>.rs                              plan/
//!
//!  static GEMM: KernelInfo {
//!      facts, scheme, tile, …            ◄─ reads ──  choose.rs, model.rs, kernel_candidate.rs
//!      contract: &MyContract,
//!  }
//!  impl Contract for MyContract {
//!      copies(), format(), blocks(), …   ◄─ ask ────  choose.rs, model.rs, kernel_candidate.rs, preparation.rs
//!      launch(device, &Call)             ◄─ calls ──  run.rs
//!  }
//! ```
//!
//! Every question but `launch` has an answer that is right for most kernels: products on tiles of C, of whole batches, with
//! operands read where they lie. A kernel that differs answers for itself, in the file that registers it. The planner and the
//! run ask, and know no kernel by its kind.

use std::fmt::Debug;

use cuda_std::{GlobalSliceMut, KernelFacts};
use gpu_kernels::epilogue::Steps;
use gpu_kernels::gemm::hopper::fallback::Fallback;
use gpu_kernels::gemm::tiles::{MAX_BLOCKS, TileShape, TiledGemm};
use gpu_kernels::{Matrix, MatrixMut, Triangle};

use super::auxiliary::{Format, PackedOperand};
use super::scheme::{Family, Scheme, SumOrder};
use crate::constants::KernelConstants;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::order::Order;
use crate::refusal::Refusal;
use crate::{Device, Error, Precision, Sizes};

/// What a plan has to know of a kernel beyond its facts, and how the kernel is launched.
pub(crate) trait Contract: Debug + Sync {
    /// Queues the kernel, so that all products of the call are computed.
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error>;

    /// Which product it computes.
    fn family(&self) -> Family {
        Family::Gemm
    }

    /// Whether one launch computes a whole batch.
    fn is_batched(&self) -> bool {
        true
    }

    /// Which operands are copied first, of those that do not lie as [`KernelInfo::a`] and [`KernelInfo::b`] say.
    fn copies(&self) -> Copies {
        Copies::Spread
    }

    /// Whether it loads operands by four tensor maps each, so that their lines may begin anywhere.
    fn loads_fours(&self) -> bool {
        false
    }

    /// How operands are packed first, if they are. `launch` finds them in [`Call::packed`].
    fn format(&self) -> Option<Format> {
        None
    }

    /// Which tiles it may skip, if it skips any: those that packing has given a flag ([`Call::packed`]), and no others.
    fn skips(&self) -> Option<Skips> {
        None
    }

    /// The words of the tile mask that it writes for a product, where [`Call::tile_mask`] has memory for them. Tiles that the
    /// mask names are computed again, in fp32.
    fn mask_words(&self, _product: &Description, _splits: u32) -> u128 {
        0
    }

    /// Whether it writes partial sums where sums are divided among blocks, and another kernel adds them up. If not, each block
    /// adds to the results, and [`Call::gemm`] is the whole product however many splits there are.
    fn makes_partial_sums(&self) -> bool {
        true
    }

    /// Whether it does the steps of an epilogue, those of [`Call::steps`], before it stores results. For other kernels, a launch after them does.
    fn does_steps(&self) -> bool {
        false
    }

    /// The kernels that `launch` queues before this one, and what they do, in words.
    fn queues_before(&self) -> &'static [(KernelFacts, &'static str)] {
        &[]
    }

    /// Why it cannot compute a product, or may not unless it is named, for reasons of its own. Precision, device, layouts,
    /// splits and the size of the grid are [looked at](KernelInfo::refusal) for all kernels alike.
    fn refusal(&self, _product: &Description) -> Option<Refusal> {
        None
    }

    /// The largest sizes of the products that it computes.
    fn most(&self) -> Sizes {
        let n = if self.family() == Family::Gemv { 1 } else { usize::MAX };
        Sizes { m: usize::MAX, n, k: usize::MAX }
    }

    /// Sizes that it computes: these, or smaller ones.
    fn within(&self, sizes: Sizes) -> Sizes {
        let most = self.most();
        Sizes { m: sizes.m.min(most.m), n: sizes.n.min(most.n), k: sizes.k.min(most.k) }
    }

    /// What blocks do on so many multiprocessors, of a kernel whose blocks copy what they compute with as it lies.
    fn copying(&self, _product: &Description, _multiprocessors: u32) -> Option<Copying> {
        None
    }

    /// The most blocks that its grid can have.
    fn most_blocks(&self) -> u128 {
        MAX_BLOCKS.into()
    }

    /// Why its grid cannot be had. `tile` is [`KernelInfo::tile`].
    fn refusal_of_grid(&self, tile: Option<TileShape>, product: &Description, splits: u32) -> Option<Refusal> {
        let blocks = self.blocks(tile, product, splits);
        (blocks > self.most_blocks()).then_some(Refusal::TooManyBlocks { blocks })
    }

    /// The tiles that a block computes at a time.
    fn tiles_of_a_block(&self) -> u32 {
        1
    }

    /// The blocks of its grid. `tile` is [`KernelInfo::tile`].
    fn blocks(&self, tile: Option<TileShape>, product: &Description, splits: u32) -> u128 {
        let (m, n, batch) = (product.m as u128, product.n as u128, product.batch as u128);
        let TileShape { m: rows, n: cols, .. } = tile.unwrap_or(TileShape { m: 1, n: 1, k: 1 });
        let tiles = m.div_ceil(rows.into()) * n.div_ceil(cols.into()) * batch * u128::from(splits);
        tiles.div_ceil(self.tiles_of_a_block().into())
    }

    /// The fewest splits with which it can compute a product.
    fn fewest_splits(&self, _product: &Description) -> u32 {
        1
    }

    /// The number of splits that makes good use of so many multiprocessors, if the kernel knows it: the model then chooses between that and half of it.
    fn best_splits(&self, _product: &Description, _multiprocessors: u32) -> Option<u32> {
        None
    }

    /// How it stores results.
    fn stores(&self) -> Stores {
        Stores::Rows
    }
}

/// Everything that a launch can need.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The products; or where to write partial sums of them, and of how many splits.
    pub(crate) gemm: TiledGemm<'a>,
    /// The factors of `gemm`: one and zero where it writes partial sums.
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    /// Among how many blocks the plan divides each sum.
    pub(crate) splits: u32,
    /// The elements of the results that are wanted. The others may be computed or not: they are set to zero afterwards.
    pub(crate) triangle: Triangle,
    /// A and B as they have been packed; nothing if the kernel has no [`Contract::format`].
    pub(crate) packed: [PackedOperand<'a>; 2],
    /// Where the kernel writes its tile mask; empty if it is to write none.
    pub(crate) tile_mask: GlobalSliceMut<'a, u32>,
    /// The steps to do before results are stored: none for a kernel that [does](Contract::does_steps) not, and none of partial sums.
    pub(crate) steps: Steps<'a>,
    /// Which tiles to compute. Not all of them only for those kernels that others have in [`Skips::fallbacks`].
    pub(crate) fallback: Fallback<'a>,
}

impl<'a> Call<'a> {
    /// The products one by one: A, B, and the results, or the first of the partial sums. Those of the next split are
    /// `gemm.c().stride()` elements further on.
    pub(crate) fn products(&self) -> impl Iterator<Item = (Matrix<'a>, Matrix<'a>, MatrixMut<'a>)> {
        let (a, b, c, splits) = (self.gemm.a(), self.gemm.b(), self.gemm.c(), self.gemm.splits());
        // SAFETY: there are as many matrices A as B, and `splits` times as many C, which is the invariant of a `TiledGemm`.
        (0..a.count()).map(move |index| unsafe { (a.at(index), b.at(index), c.at(index * splits)) })
    }
}

/// Which operands are copied into the workspace first, where the kernel cannot read them as they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    /// None: such products are refused, because a copy would take as long as the product.
    Nothing,
    /// Those with gaps between all elements.
    Spread,
    /// All. A plan may multiply the transposes, too, if less has to be copied then.
    Everything,
}

/// What blocks do that copy what they compute with as it lies in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copying {
    /// How many of them there are.
    pub(crate) blocks: u64,
    /// How often all threads of a block have sums.
    pub(crate) rounds: u32,
    /// The passes through shared memory that its warps take with them, one in a clock: several for an access of lanes that meet in a bank.
    pub(crate) passes: f64,
    /// The elements that all of them copy beyond those of the operands, as long as what they copy takes: because others copy them, too.
    pub(crate) again: f64,
}

/// Tiles that a kernel skips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skips {
    /// The rows of A and columns of B whose tiles are skipped, in words: those `with …`.
    pub(crate) lines: &'static str,
    /// The kernels that compute skipped tiles, one for each layout of A and B. They look at [`Call::fallback`].
    pub(crate) fallbacks: &'static [KernelInfo],
}

/// How threads store results: what it costs beyond their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// From registers, neighbours in a row of C together.
    Rows,
    /// From registers, neighbours in a row or a column of C together.
    Squares,
    /// By way of shared memory, rows of C, or columns where C is column-major, in vectors; where these begin anywhere, by elements.
    RowsOrLines,
    /// Rows of C, as whole lines of memory by warps, wherever they begin.
    WholeRows,
    /// Lines of C as whole lines of memory, or by TMA: rows, or columns where C is column-major.
    Lines,
}

/// What a model needs to estimate a kernel's time. Where a kernel does not say otherwise, the numbers are fitted to the times of shapes
/// drawn by chance on an H200: `tilewright bench --suite atlas --replan` compares. On other GPUs, `tilewright tune --constants` measures what takes the place
/// of all but the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Performance {
    /// The blocks that a multiprocessor runs at a time, where shared memory and threads are no limit: what registers leave.
    pub(crate) blocks_per_multiprocessor: u32,
    /// The share that a multiprocessor full of blocks reaches: for products of matrices of the peak rate of the units that
    /// the scheme uses, for those with vectors of the memory's bandwidth.
    pub(crate) share_of_peak: f64,
    /// What a block costs apart from its steps, in seconds: filling its pipeline and storing its results.
    pub(crate) block_seconds: f64,
    /// How many times as long its steps take where lines of A and B begin anywhere, not at multiples of 16 bytes.
    pub(crate) unaligned: f64,
    /// Among how many warps, or groups of them, each step is divided.
    pub(crate) parts_of_steps: u32,
    /// Whether it copies lines that begin at multiples of 8 bytes two elements at a time, and others one by one.
    pub(crate) copies_pairs: bool,
    /// Whether nothing hides what a block costs apart from its steps, since it is alone on a multiprocessor and copies nothing ahead.
    pub(crate) waits: bool,
    /// How many times as long it takes where all lines of A or B are one: many blocks then ask one part of the second-level cache for the same memory.
    pub(crate) repeated: f64,
    /// How many times as long as others its blocks wait for what C was.
    pub(crate) old_values: f64,
    /// The share of the memory's bandwidth that its accesses reach, at the most. More than 1 where reading is all that it does.
    pub(crate) of_bandwidth: f64,
    /// How many times its share of the memory's bandwidth a multiprocessor reaches where others have no blocks: with A row-major, and column-major.
    pub(crate) alone: [f64; 2],
    /// How many times as large a share of the peak it reaches where A is column-major, and how many times as much a block costs.
    pub(crate) by_columns: [f64; 2],
    /// Whether it loads operands that begin anywhere element by element, so few bytes at a time that the memory waits, too.
    pub(crate) loads_elements: bool,
}

impl Performance {
    /// With what a block of most kernels costs, which take as long for all operands.
    pub(crate) const fn new(blocks_per_multiprocessor: u32, share_of_peak: f64) -> Self {
        Self {
            blocks_per_multiprocessor,
            share_of_peak,
            block_seconds: 3e-6,
            unaligned: 1.0,
            parts_of_steps: 1,
            copies_pairs: false,
            waits: false,
            repeated: 1.0,
            old_values: 1.0,
            of_bandwidth: 1.0,
            alone: [f64::INFINITY; 2],
            by_columns: [1.0; 2],
            loads_elements: false,
        }
    }

    /// With what a block costs, in microseconds.
    pub(crate) const fn block(self, microseconds: f64) -> Self {
        Self { block_seconds: microseconds * 1e-6, ..self }
    }

    /// With so many warps, or groups of them, among which each step is divided.
    pub(crate) const fn parts_of_steps(self, parts: u32) -> Self {
        Self { parts_of_steps: parts, ..self }
    }

    /// With how many times as long steps take for operands that begin anywhere.
    pub(crate) const fn unaligned(self, times: f64) -> Self {
        Self { unaligned: times, ..self }
    }

    /// The same for a kernel that copies pairs where it can.
    pub(crate) const fn unaligned_but_for_pairs(self, times: f64) -> Self {
        Self { unaligned: times, copies_pairs: true, ..self }
    }

    /// With what a block costs, in microseconds, for a kernel of which that hides nothing.
    pub(crate) const fn block_that_waits(self, microseconds: f64) -> Self {
        Self { waits: true, ..self.block(microseconds) }
    }

    /// With the share of the bandwidth that its accesses reach.
    pub(crate) const fn of_bandwidth(self, share: f64) -> Self {
        Self { of_bandwidth: share, ..self }
    }

    /// With how many times its share of the bandwidth a multiprocessor reaches by itself: with A row-major, and column-major.
    pub(crate) const fn alone(self, rows: f64, columns: f64) -> Self {
        Self { alone: [rows, columns], ..self }
    }

    /// With how many times as large a share of the peak it reaches where A is column-major, and how many times as much a block costs.
    pub(crate) const fn by_columns(self, share: f64, block: f64) -> Self {
        Self { by_columns: [share, block], ..self }
    }

    /// With a column-major A whose columns begin anywhere loaded element by element, few bytes at a time.
    pub(crate) const fn columns_by_elements(self) -> Self {
        Self { loads_elements: true, ..self }
    }

    /// For an A that is stored like this.
    pub(crate) const fn with_a(self, a: Order) -> Self {
        match a {
            Order::RowMajor => Self { loads_elements: false, ..self },
            Order::ColumnMajor => {
                let [share, block] = self.by_columns;
                Self { share_of_peak: share * self.share_of_peak, block_seconds: block * self.block_seconds, ..self }
            }
        }
    }

    /// With how many times as long it takes where all lines are one.
    pub(crate) const fn repeated(self, times: f64) -> Self {
        Self { repeated: times, ..self }
    }

    /// With how many times as long as others its blocks wait for what C was.
    pub(crate) const fn old_values(self, times: f64) -> Self {
        Self { old_values: times, ..self }
    }
}

/// A kernel.
#[derive(Debug)]
pub struct KernelInfo {
    /// The name, which is that of the PTX entry point.
    pub name: &'static str,
    /// What it needs of a GPU, as its type says.
    pub facts: KernelFacts,
    /// The idea that it stands for, in one line.
    pub idea: &'static str,
    /// What it makes of its operands.
    pub scheme: Scheme,
    /// In which order it adds up.
    pub sums: SumOrder,
    /// How A has to be stored, if that matters.
    pub a: Option<Order>,
    /// How B has to be stored, if that matters.
    pub b: Option<Order>,
    /// The part of C that a block computes, and the terms that it loads at a time.
    pub tile: Option<TileShape>,
    /// Whether it can divide its sums among blocks.
    pub divides_sums: bool,
    /// Whether its bits are the same from run to run: the order of its additions never changes.
    pub deterministic: bool,
    pub(crate) performance: Performance,
    pub(crate) contract: &'static dyn Contract,
}

impl KernelInfo {
    /// Which product the kernel computes.
    pub fn family(&self) -> Family {
        self.contract.family()
    }

    /// The precision that it computes in.
    pub fn precision(&self) -> Precision {
        self.scheme.precision()
    }

    /// The constants by which the model estimates its times, unless others were measured.
    pub fn built_in_constants(&self) -> KernelConstants {
        let Performance { share_of_peak, block_seconds, unaligned, .. } = self.performance;
        KernelConstants { share_of_peak, block_seconds, unaligned }
    }

    /// Whether a plan tries the product of the transposes, `Cᵀ = Bᵀ·Aᵀ`, too, wherever C lies: where tiles are not square, or all operands
    /// may have to be copied, it may be the faster one. (Of tiles, the executor's times say nothing.)
    pub(crate) fn may_transpose(&self, device: &DeviceFacts) -> bool {
        let is_square = self.tile.is_none_or(|tile| tile.m == tile.n);
        self.contract.copies() == Copies::Everything || !(is_square || device.is_cpu())
    }

    /// Whether it loads its operands by tensor maps. What these cannot describe is copied into the workspace first.
    pub fn loads_by_tensor_maps(&self) -> bool {
        self.facts.tensor_maps > 0
    }

    /// The largest sizes of the products that it computes.
    pub fn most(&self) -> Sizes {
        self.contract.most()
    }

    /// Sizes that it computes: these, or smaller ones if it is for no product as large.
    #[must_use]
    pub fn within(&self, sizes: Sizes) -> Sizes {
        self.contract.within(sizes)
    }

    /// The blocks of its grid, as far as that is the same on every device.
    pub fn blocks(&self, product: &Description, splits: u32) -> u128 {
        self.contract.blocks(self.tile, product, splits)
    }

    /// The pieces that its sums have: the most splits that there can be.
    pub fn pieces(&self, product: &Description) -> u32 {
        let terms = (product.terms() as u32).max(1);
        match self.tile {
            _ if !self.divides_sums => 1,
            Some(tile) => terms.div_ceil(tile.k),
            None => terms,
        }
    }

    /// The kernels that may compute tiles which this one skips.
    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = &'static Self> {
        self.contract.skips().into_iter().flat_map(|skips| skips.fallbacks)
    }

    /// The one that does, if this one skips tiles. It reads the operands themselves, which are stored like this.
    pub(crate) fn fallback(&self, [a, b]: [Order; 2]) -> Option<&'static Self> {
        self.fallbacks().find(|kernel| (kernel.a, kernel.b) == (Some(a), Some(b)))
    }
}
