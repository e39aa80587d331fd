//! fp32-accurate products of operands that are stored as pairs of fp16 numbers, `C = α·A·B + β·C`, by three fp16 products.
//!
//! ```text
//!  a row of A (column of B), 128 bytes for k = 32:       │ high 0 … 31, fp16 │ low 0 … 31, fp16 │      and a factor for k = 64
//!
//!  x · scale  =  high  +  low · 2⁻¹¹                     A·B  =  high·high  +  2⁻¹¹ · (high·low + low·high)
//!
//!  partial accumulators over k = 64      64×128      low·high, high·low ──► · 2⁻¹¹ ──► + high·high ──► · factors, added to the
//!                                                                                                       accumulators
//! ```
//!
//! [`crate::pack::pairs`] scales each 64 k of a row of A or a column of B by the power of two that brings the largest element among them to
//! the top of fp16's range, and decomposes what comes out into two fp16 numbers of 11 bits each, of which the low one is scaled once
//! more. An fp16 product costs half of a TF32 product, and there are three of them: half of what 3xTF32
//! ([`crate::gemm::decompose`]) costs.
//!
//! The partial accumulators of 64 k have to be added to others in fp32 anyway: a fused multiplication by the factor of their column takes
//! the place of the addition. TMA loads the factors to shared memory, with the first stage of each 64 k. The factor of their row is the
//! unit in which a row's accumulators are kept (`Units`): as long as it is the same, nothing is to be done. Where it changes, a warp also
//! multiplies its partial accumulators by what is missing, and where it grows, all accumulators of the row once.
//!
//! An element that is very much smaller than the largest of its 64 would lose bits. Packing leaves out single ones, whose products are
//! added in the end ([exceptions](crate::pack::exceptions)). It notices rows and columns with many of them, or with numbers that are not finite, and flags their
//! group of 256. The 256×256 blocks of C that flagged groups belong to are left to the fallback, a kernel of [`super::decomposed`].
//!
//! Packing also notes between which k a group of 256 has numbers other than zero. A tile skips all k outside of what both operands
//! have there: of the product of two triangular matrices that is two thirds.
//!
//! The frame is `pipeline`. A consumer warpgroup has 128×128 accumulators, as two halves of 64 rows, and partial accumulators for one
//! half. The warpgroups issue products in turns ([`blocks::ping_pong`]): those with low parts of the one, those of the other, those of the
//! high parts of the one, and of the other. While a warpgroup scales its partial accumulators or adds them, the products of the other run.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 218 KB of shared memory, one block on a multiprocessor.

use blocks::epilogue::Steps;
use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::ping_pong::{self, PingPong};
use blocks::ring::TmaStage;
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{uniform, warp_number};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Fp16, Sums};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileElement, TileSwizzle};
use cuda_std::{async_copy, hopper};

use super::exceptions::TileExceptions;
use super::fallback::{Fallback, GROUP, flags_of};
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::LINE_BYTES;
use super::operand::{KMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, Beside, CONSUMER_REGISTERS, CONSUMER_WARPS, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer,
    PipelineMemory, STAGES, tile_shape, warp_and_warpgroup,
};
use super::promotion::{ACCUMULATORS, ColFactors, Units, promote};
use super::whole_rows;
use crate::Triangle;
use crate::gemm::sum_lines::is_column_major;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};
use crate::pack::exceptions::Exceptions;
use crate::pack::pairs::{BLOCK, LOW_SCALE};

/// The tile of a block.
pub const TILE: TileShape = tile_shape(64);

/// The columns of what a warpgroup multiplies at a time, and the rows.
pub(super) const HALF: u32 = 128;
const HALF_ROWS: u32 = 64;
/// The bytes of a row of 128 that one instruction multiplies.
const STEP: u32 = 32;
/// Where the low parts are in a row.
const LOW: u32 = 64;
/// The fp16 numbers of a stage: a high and a low part for each k.
pub(super) const ELEMENTS: u32 = 64;
/// The stages of a K-step, with k = 32 each.
const STAGES_OF_STEP: u32 = 2;

/// The shared memory of the kernels.
struct Memory {
    pipeline: PipelineMemory<STAGES>,
    /// For each K-step that there are stages for, the words with the factors of the rows of A, then those of the columns of B.
    factors: SharedArray<f32>,
    /// For each consumer warp, where its results go through that are stored row by row.
    rows: SharedArray<f32>,
    /// For each consumer warp, the biases of its columns, if the first step is a sum with these.
    biases: SharedArray<f32>,
    bytes: u32,
    /// For the turns of the consumer warpgroups.
    turns: NamedBarriers<2, { ping_pong::THREADS }>,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    let pipeline = PipelineMemory::new(&mut layout);
    // Where TMA loads to begins at a multiple of 128 bytes.
    let factors = layout.aligned(STAGES / STAGES_OF_STEP * FACTORS, 128);
    let rows = layout.aligned(CONSUMER_WARPS * whole_rows::len(COLUMNS_AT_A_TIME), 16);
    let biases = layout.aligned(CONSUMER_WARPS * HALF, 16);
    // SAFETY: the kernels have no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    Memory { pipeline, factors, rows, biases, bytes: layout.bytes(), turns: ids.group() }
};

/// The columns of results that are stored row by row at a time: as many as there is room for beside the stages.
const COLUMNS_AT_A_TIME: u32 = HALF / PARTS_OF_HALF;
const PARTS_OF_HALF: u32 = 4;
/// The sums of them that a thread has.
const SUMS_AT_A_TIME: usize = ACCUMULATORS / PARTS_OF_HALF as usize;
const _: () = assert!(COLUMNS_AT_A_TIME == warp::LANES, "a lane adds the exceptions of a column");

/// The words with the factors of a K-step, two to a word.
const FACTORS: u32 = (TILE.m + TILE.n) / 2;
const _: () = assert!(TILE.k == BLOCK, "a K-step is what has a factor");

/// What packing knows of an operand that is stored as pairs of fp16 numbers, or as digits. Its *lines* are the rows of A, or the columns
/// of B.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct PairInfo<'a> {
    /// What a product with a line is to be multiplied by. Of digits, for each matrix of the batch, for each line. Of pairs, for each matrix, for
    /// each block of terms, for each two lines, a number that has the bits of two factors (`factors_of` in `promotion`). The lines of a matrix are filled
    /// up to a multiple of [`GROUP`].
    pub factors: GlobalSlice<'a, f32>,
    /// For each group of [`GROUP`] lines of each matrix, whether any of them is left to the fallback: not zero.
    pub fallback: GlobalSlice<'a, u32>,
    /// For each of these groups, two words: all lines are zero at every k below the first one, and from the second one on.
    pub nonzero: GlobalSlice<'a, u32>,
    /// The numbers of pairs that are left out. (Digits have none.)
    pub exceptions: Exceptions<'a>,
}

impl PairInfo<'_> {
    /// Whether there are factors of digits of `count` matrices of `lines` lines.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn are_of(&self, count: u32, lines: u32) -> bool {
        let groups = u64::from(count) * u64::from(lines.div_ceil(GROUP));
        self.factors.len() as u64 >= groups * u64::from(GROUP) && self.nonzero.len() as u64 >= groups * 2
    }

    /// Whether there are factors of pairs of `count` matrices of `lines` lines of `terms` terms.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn are_of_pairs(&self, count: u32, lines: u32, terms: u32) -> bool {
        let groups = u64::from(count) * u64::from(lines.div_ceil(GROUP));
        self.factors.len() as u128 >= crate::pack::pairs::factor_words(lines, terms, count)
            && self.nonzero.len() as u64 >= groups * 2
            && self.exceptions.are_of(count, lines, terms)
    }

    /// The words with the factors of the lines from `line` on, an even number, of matrix `product` with `lines` lines, where there is one block of
    /// terms. Those behind the last line may be anything.
    ///
    /// # Safety
    /// As for [`PairInfo::factors`].
    #[inline(always)]
    pub(super) unsafe fn factor_words(&self, product: u32, lines: u32, line: u32) -> GlobalSlice<'_, f32> {
        let first = u64::from(product) * u64::from(lines.div_ceil(GROUP) * GROUP) + u64::from(line);
        // SAFETY: a launch has checked that every two lines of every group have a word.
        unsafe { self.factors.from_unchecked((first / 2) as usize) }
    }

    /// The factors of the lines from `line` on, of matrix `product` with `lines` lines.
    ///
    /// # Safety
    /// There are such a matrix and such a line; the result is read up to the end of the line's group only.
    #[inline(always)]
    pub(super) unsafe fn factors(&self, product: u32, lines: u32, line: u32) -> GlobalSlice<'_, f32> {
        let first = u64::from(product) * u64::from(lines.div_ceil(GROUP) * GROUP) + u64::from(line);
        // SAFETY: a launch has checked that every line of every group has its factor.
        unsafe { self.factors.from_unchecked(first as usize) }
    }
}

/// The factors of a tile, as the producer loads them.
struct TileFactors<'a> {
    /// Maps of the factors of A and of B.
    maps: [TensorMap<'a>; 2],
    /// The first row and column of the tile.
    lines: [u32; 2],
    /// The first block of terms.
    block: u32,
    /// Which matrices A and B are.
    matrices: [u32; 2],
}

impl<'a> TileFactors<'a> {
    /// Those of a tile.
    ///
    /// # Safety
    /// All lanes of the warp come here.
    #[inline(always)]
    unsafe fn of(tile: &Tile<'_>, maps: [TensorMap<'a>; 2]) -> Self {
        // TMA takes its operands from uniform registers.
        // SAFETY: the caller's promise.
        let [row, col, block] = [tile.row, tile.col, tile.k_begin / TILE.k].map(|value| unsafe { uniform(value) });
        // SAFETY: likewise.
        let matrices = tile.matrices.map(|value| unsafe { uniform(value) });
        Self { maps, lines: [row, col], block, matrices }
    }
}

impl Beside for TileFactors<'_> {
    #[inline(always)]
    fn bytes(&self, number: u32) -> u32 {
        if number.is_multiple_of(STAGES_OF_STEP) { FACTORS * 4 } else { 0 }
    }

    #[inline(always)]
    unsafe fn load(&self, stage: u32, number: u32, to: TmaStage) {
        if !number.is_multiple_of(STAGES_OF_STEP) {
            return;
        }
        let at = [0, TILE.m / 2].map(|first| (stage / STAGES_OF_STEP * FACTORS + first) as usize);
        let block = self.block + number / STAGES_OF_STEP;
        for i in 0..2 {
            // SAFETY: a producer has the shared memory of `MEMORY`; there is room for the factors of a step beside its first stage,
            // which is acquired. One lane issues each load.
            unsafe {
                if hopper::elect_one() {
                    to.load_tile(
                        MEMORY.factors.slice(),
                        at[i],
                        self.maps[i],
                        [self.lines[i] / 2, block, self.matrices[i]],
                    );
                }
            }
        }
    }
}

/// The factors of a K-step that a thread of a consumer warp multiplies by.
#[derive(Clone, Copy)]
struct StepFactors {
    /// From the word with the first of this thread's rows on.
    rows: SharedSlice<f32>,
    /// From the word with the first of this thread's columns on.
    cols: SharedSlice<f32>,
}

impl StepFactors {
    /// Those beside stage `stage`.
    ///
    /// # Safety
    /// All lanes of a consumer warp come here, and the block has the shared memory of [`MEMORY`].
    #[inline(always)]
    unsafe fn beside(stage: u32) -> Self {
        // SAFETY: the caller's promise.
        let (factors, (row, col)) = unsafe { (MEMORY.factors.slice(), place_of_thread()) };
        let factors = factors.skip((stage / STAGES_OF_STEP * FACTORS) as usize);
        Self { rows: factors.skip((row / 2) as usize), cols: factors.skip(((TILE.m + col) / 2) as usize) }
    }

    /// Those of the columns.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn of_cols(self) -> ColFactors {
        // SAFETY: the caller's promise; inside the factors of the step. Columns begin at even numbers.
        ColFactors(core::array::from_fn(|pair| unsafe { self.cols.read(4 * pair) }.to_bits()))
    }

    /// The exponents of those of the two rows of half `half`.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn of_rows(self, half: u32) -> [u32; 2] {
        // Every second row has the upper half of a word. Rows of a thread are an even number apart.
        let shift = 7 + 16 * (warp::lane_id() / 4 % 2);
        // SAFETY: the caller's promise; inside the factors of the step.
        [0, 8].map(|row| unsafe { self.rows.read(((half * HALF_ROWS + row) / 2) as usize) }.to_bits() >> shift & 0xFF)
    }
}

/// The first row and the first column that this thread of a consumer warp has in a tile: it also has the row eight further on, and the column
/// beside it; the same every eight columns of a half; and the same rows of the second half.
///
/// # Safety
/// All lanes of a consumer warp come here.
#[inline(always)]
unsafe fn place_of_thread() -> (u32, u32) {
    // SAFETY: the caller's promise.
    let (warp, warpgroup) = unsafe { warp_and_warpgroup() };
    let lane = warp::lane_id();
    (warp * 16 + lane / 4, warpgroup * HALF + 2 * (lane & 3))
}

/// The body of both kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A and B
/// of `gemm` as they have been packed and of their factors, and what goes with them.
#[inline(always)]
unsafe fn multiply_pairs(
    maps: [TensorMap<'_>; 2],
    maps_of_factors: [TensorMap<'_>; 2],
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info: [PairInfo<'_>; 2],
    steps: Steps<'_>,
) {
    // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(MEMORY.pipeline);
        let mut producer = pipeline.producer();
        let warp = warp_number();
        if warp < PRODUCER_WARPS {
            hopper::release_registers::<PRODUCER_REGISTERS>();
            if warp == 0 {
                for i in 0..2 {
                    hopper::prefetch_tensor_map(maps[i]);
                    hopper::prefetch_tensor_map(maps_of_factors[i]);
                }
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
                    if !fallback(info).contains(&tile) {
                        let tile = without_zeros(tile, info, TILE);
                        let factors = TileFactors::of(&tile, maps_of_factors);
                        producer.load_with::<KMajor, STAGES_OF_STEP, ELEMENTS>(maps[0], maps[1], &tile, TILE, &factors);
                    }
                    block += thread::grid_dim_x();
                }
            }
        } else {
            hopper::acquire_registers::<CONSUMER_REGISTERS>();
            multiply(pipeline.consumer(), gemm, triangle, info, &steps);
        }
    }
}

/// The consumers: main loop and epilogue, tile by tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply(
    mut pipeline: PipelineConsumer,
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info: [PairInfo<'_>; 2],
    steps: &Steps<'_>,
) {
    // SAFETY: all lanes of both warpgroups come here, once.
    let (in_b, turns) = unsafe {
        let warpgroup = warp_and_warpgroup().1;
        (warpgroup * HALF * ROW * 4, PingPong::new(MEMORY.turns, warpgroup))
    };
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
        // SAFETY: all lanes come here, and come to the same conclusions; stages are read when they are full, and released
        // when the products that read them have finished, and all lanes have read their factors.
        unsafe {
            if !fallback(info).contains(&tile) {
                // (Those of the tile before have been read: the warp has met since, in the epilogue.)
                let biases = biases_of_warp();
                let first_col = tile.col + warp_and_warpgroup().1 * HALF;
                steps.in_registers(true).0.fetch(&biases, HALF, [tile.product, first_col], tile.c.cols());
                let (mut accumulators, mut units) = ([[0f32; ACCUMULATORS]; 2], [Units::NONE; 2]);
                for _ in 0..without_zeros(tile, info, TILE).steps(TILE) {
                    let stages = [pipeline, pipeline.next()];
                    let factors = StepFactors::beside(pipeline.stage());
                    stages[0].wait();
                    stages[1].wait();
                    let (partial, (more, of_cols)) = multiply_half(&stages, 0, in_b, Some(turns), || {
                        (units[0].next(factors.of_rows(0), &mut accumulators[0]), factors.of_cols())
                    });
                    promote(of_cols, more, partial, &mut accumulators[0]);
                    let (partial, (more, of_cols)) = multiply_half(&stages, HALF_ROWS * ROW, in_b, Some(turns), || {
                        (units[1].next(factors.of_rows(1), &mut accumulators[1]), factors.of_cols())
                    });
                    promote(of_cols, more, partial, &mut accumulators[1]);
                    // One lane releases a stage for all of them.
                    warp::sync_warp(warp::ALL_LANES);
                    pipeline.advance_holding().release();
                    pipeline.advance_holding().release();
                }
                epilogue(gemm, triangle, block, info, steps, units, &accumulators);
            }
        }
        block += thread::grid_dim_x_anew();
    }
    // SAFETY: both warpgroups have multiplied the same tiles.
    unsafe { turns.end() };
}

/// The products of some stages, for the 64 rows that begin at word `in_a` of A and 128 columns, which begin `in_b` bytes
/// further on in B, issued in turns, if so; and the result of `meanwhile`, which is called when those with low parts have finished.
///
/// # Safety
/// Called by all lanes of the consumer warps; the stages are full. With turns, both warpgroups come here as often.
#[inline(always)]
pub(super) unsafe fn multiply_half<const RING: u32, const STAGES_OF_STEP: usize, T>(
    stages: &[PipelineConsumer<RING>; STAGES_OF_STEP],
    in_a: u32,
    in_b: u32,
    turns: Option<PingPong>,
    meanwhile: impl FnOnce() -> T,
) -> ([f32; ACCUMULATORS], T) {
    let mut partial = [0f32; ACCUMULATORS];
    // SAFETY: the caller's promise. The accumulators are read when the products have finished.
    unsafe {
        let operands = stages.map(|stage| {
            let at = |index: u32| Descriptor::at(stage.memory, (stage.offset() + index) as usize);
            (at(in_a), at(A_TILE).offset(in_b))
        });
        if let Some(turns) = turns {
            turns.wait();
        }
        wgmma::fence();
        for (index, &(a, b)) in operands.iter().enumerate() {
            if index == 0 {
                partial.set_shared::<Fp16>(a.offset(LOW), b);
            } else {
                partial.add_shared::<Fp16>(a.offset(LOW), b);
            }
            partial.add_shared::<Fp16>(a.offset(LOW + STEP), b.offset(STEP));
            partial.add_shared::<Fp16>(a, b.offset(LOW));
            partial.add_shared::<Fp16>(a.offset(STEP), b.offset(LOW + STEP));
        }
        wgmma::commit();
        if let Some(turns) = turns {
            turns.pass();
        }
        partial.wait::<0>();
        let result = meanwhile();
        for i in 0..ACCUMULATORS {
            partial[i] *= 1.0 / LOW_SCALE;
        }
        hint::pin(&mut partial);
        if let Some(turns) = turns {
            turns.wait();
        }
        wgmma::fence();
        for (a, b) in operands {
            partial.add_shared::<Fp16>(a, b);
            partial.add_shared::<Fp16>(a.offset(STEP), b.offset(STEP));
        }
        wgmma::commit();
        if let Some(turns) = turns {
            turns.pass();
        }
        partial.wait::<0>();
        (partial, result)
    }
}

/// The tiles that are left to the fallback. There is a flag for each group, so these are never all tiles for want of flags.
#[inline(always)]
pub(super) fn fallback<'a>([a, b]: [PairInfo<'a>; 2]) -> Fallback<'a> {
    Fallback { a: a.fallback, b: b.fallback }
}

/// The tile without the K-steps at its beginning and its end for which A or B has nothing but zeros.
///
/// # Safety
/// A launch has checked what goes with the operands; the tile is one of the product.
#[inline(always)]
pub(super) unsafe fn without_zeros<'a>(mut tile: Tile<'a>, [a, b]: [PairInfo<'_>; 2], shape: TileShape) -> Tile<'a> {
    let [group_a, group_b] = flags_of(&tile);
    // SAFETY: there are two words for each group, by the caller's promise.
    let (begin, end) = unsafe {
        let words = |info: PairInfo<'_>, group: usize| [0, 1].map(|i| info.nonzero.get_unchecked(2 * group + i));
        let (of_a, of_b) = (words(a, group_a), words(b, group_b));
        (of_a[0].max(of_b[0]), of_a[1].min(of_b[1]))
    };
    tile.k_begin = tile.k_begin.max(begin / shape.k * shape.k);
    tile.k_end = tile.k_end.min(end).max(tile.k_begin);
    tile
}

/// Where the biases of the columns of this warp are.
///
/// # Safety
/// Called by a consumer warp; the block has the shared memory of [`MEMORY`].
#[inline(always)]
unsafe fn biases_of_warp() -> SharedSlice<f32> {
    // SAFETY: the caller's promise.
    unsafe { MEMORY.biases.slice().skip((consumer_warp() * HALF) as usize) }
}

/// The number of this warp among the consumers.
///
/// # Safety
/// Called by a consumer warp.
#[inline(always)]
unsafe fn consumer_warp() -> u32 {
    // SAFETY: the caller's promise.
    let (warp, warpgroup) = unsafe { warp_and_warpgroup() };
    warpgroup * (CONSUMER_WARPS / 2) + warp
}

/// The epilogue of a tile.
///
/// # Safety
/// Called by all lanes of the consumer warps, with the accumulators of their tile and what goes with the operands; the steps fit the results, and the
/// biases of the first ones have been fetched.
#[inline(always)]
unsafe fn epilogue(
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    block: u32,
    info: [PairInfo<'_>; 2],
    steps: &Steps<'_>,
    units: [Units; 2],
    accumulators: &[[f32; ACCUMULATORS]; 2],
) {
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) else { return };
    // SAFETY: all lanes come here, and each warp has memory, rows and columns of its own; its columns begin at a
    // multiple of 4. The warp meets before what another lane has read is overwritten, and before it reads what another lane has written.
    unsafe {
        let (warp, warpgroup) = warp_and_warpgroup();
        let memory = MEMORY.rows.slice().skip((consumer_warp() * whole_rows::len(COLUMNS_AT_A_TIME)) as usize);
        let (row, col) = (tile.row + warp * 16, tile.col + warpgroup * HALF);
        let units = units.map(|units| units.of_rows());
        let is_column_major = is_column_major(&tile.c);
        let exceptions = TileExceptions::of(&tile, info.map(|info| info.exceptions));
        // Where nothing else comes before the steps.
        let is_sum = !exceptions.any() && tile.overwrites() && tile.factor() == 1.0;
        let (in_registers, steps) = steps.in_registers(is_sum);
        let (has_function, mut others) = (is_sum && steps.begin_with_function(), steps);
        let function = others.take_without_operand();
        let steps = if has_function { others } else { steps };
        // (Also for what is not used.)
        async_copy::wait_group::<0>();
        let mut part = 0;
        while part < 2 * PARTS_OF_HALF {
            let (half, part_of_half) = (part / PARTS_OF_HALF, part % PARTS_OF_HALF);
            // (Accumulators that a number chooses would be in memory.)
            let mut sums = match part {
                0 => sums_of_part::<0>(units[0], &accumulators[0]),
                1 => sums_of_part::<1>(units[0], &accumulators[0]),
                2 => sums_of_part::<2>(units[0], &accumulators[0]),
                3 => sums_of_part::<3>(units[0], &accumulators[0]),
                4 => sums_of_part::<0>(units[1], &accumulators[1]),
                5 => sums_of_part::<1>(units[1], &accumulators[1]),
                6 => sums_of_part::<2>(units[1], &accumulators[1]),
                _ => sums_of_part::<3>(units[1], &accumulators[1]),
            };
            if in_registers.is_any() {
                let biases = biases_of_warp().skip((part_of_half * COLUMNS_AT_A_TIME) as usize);
                in_registers.apply(&biases, &mut sums);
            }
            if has_function {
                sums = function.compute(sums);
            }
            warp::sync_warp(warp::ALL_LANES);
            let sums = |group: u32, half: u32| [0, 1].map(|i| sums[(4 * group + 2 * half + i) as usize]);
            whole_rows::write::<KMajor, COLUMNS_AT_A_TIME>(&memory, is_column_major, sums);
            warp::sync_warp(warp::ALL_LANES);
            let place = [row + half * HALF_ROWS, col + part_of_half * COLUMNS_AT_A_TIME];
            if exceptions.any() {
                let of_sum = |sum| whole_rows::place::<KMajor>(COLUMNS_AT_A_TIME, is_column_major, sum);
                exceptions.add(&tile, place, whole_rows::ROWS, &memory, of_sum);
            }
            whole_rows::store::<KMajor, COLUMNS_AT_A_TIME>(&tile, steps, &memory, is_column_major, place);
            part = hint::keep_rolled(part + 1);
        }
    }
}

/// The sums of part `PART` of the columns of a half: accumulators, in the units of the two rows of this thread.
#[inline(always)]
fn sums_of_part<const PART: usize>(units: [f32; 2], accumulators: &[f32; ACCUMULATORS]) -> [f32; SUMS_AT_A_TIME] {
    core::array::from_fn(|i| accumulators[PART * SUMS_AT_A_TIME + i] * units[i / 2 % 2])
}

/// Whether a tensor map is of the factors of `count` packed operands of `lines` lines with `k` numbers each, in tiles of `tile_lines`
/// lines for one block.
#[cfg(not(target_arch = "nvptx64"))]
fn describes_factors(map: &TensorMap<'_>, [lines, k, count]: [u32; 3], tile_lines: u32) -> bool {
    let layout = map.layout();
    layout.element == TileElement::Bytes4
        && layout.extents == [lines.div_ceil(2), k.div_ceil(TILE.k), count].map(u64::from)
        && layout.tile == [tile_lines / 2, 1, 1]
        && layout.swizzle == TileSwizzle::None
}

/// Whether a tensor map is of `count` packed operands of `lines` lines with `k` numbers each, in tiles of `tile_lines` lines.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describes(map: &TensorMap<'_>, [lines, k, count]: [u32; 3], tile_lines: u32) -> bool {
    let elements = u64::from(k.div_ceil(ELEMENTS / 2)) * u64::from(ELEMENTS);
    map.line_bytes() == LINE_BYTES
        && map.layout().extents == [elements, u64::from(lines), u64::from(count)]
        && map.layout().tile == [ELEMENTS, tile_lines, 1]
        && map.layout().swizzle == TileSwizzle::Bytes128
}

/// Makes the entry points, which differ in their names only: which tiles are left to the fallback has been decided when the operands were packed.
macro_rules! entry_points {
    ($($name:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = MEMORY.bytes,
            requires(
                gemm.blocks(TILE) <= MAX_BLOCKS,
                describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], TILE.m),
                describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], TILE.n),
                describes_factors(&factors_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], TILE.m),
                describes_factors(&factors_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], TILE.n),
                info_a.are_of_pairs(gemm.a().distinct(), gemm.m(), gemm.a().first().cols()),
                info_b.are_of_pairs(gemm.b().distinct(), gemm.n(), gemm.b().first().rows()),
                fallback([info_a, info_b]).has_flags_of(&gemm),
                steps_fit(&steps, &gemm)
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            factors_a: TensorMap<'_>,
            factors_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            triangle: Triangle,
            info_a: PairInfo<'_>,
            info_b: PairInfo<'_>,
            steps: Steps<'_>,
            blocks: u32,
        ) {
            _ = blocks; // for the grid alone
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe and what goes with them.
            unsafe { multiply_pairs([map_a, map_b], [factors_a, factors_b], gemm, triangle, [info_a, info_b], steps) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                grid(&self.gemm, TILE, self.blocks)
            }
        }
    )* };
}

entry_points! {
    gemm_wgmma_packed_fp32_3xfp16,
        "`C = α·A·B + β·C` in fp32, of packed operands, except for what belongs to lines with elements that are too different.";
    gemm_wgmma_packed_fp32_normwise,
        "`C = α·A·B + β·C`, accurate against the largest elements of the rows of A and the columns of B, of packed operands.";
}
