//! Nearly correctly rounded products, `C = α·A·B + β·C`: numbers are integers of four digits, which int8 tensor cores multiply and add up
//! without error.
//!
//! ```text
//!  x  =  s · (d₀·2²⁴ + d₁·2¹⁶ + d₂·2⁸ + d₃)      digits from -128 to 127; s a power of two, one for each row of A and column of B
//!
//!  a line, packed: four planes of bytes           the products, in this order; sums are integers of 32 bits
//!  │ d₀ of all k │ d₁ … │ d₂ … │ d₃ … │
//!                                                 d₀·e₃  d₁·e₂  d₂·e₁  d₃·e₀   ─► the low byte is kept, sums / 2⁸
//!                                                 d₀·e₂  d₁·e₁  d₂·e₀          ─► the low byte is kept, sums / 2⁸
//!                                                 d₀·e₁  d₁·e₀                 ─► the low byte is kept, sums / 2⁸
//!                                                 d₀·e₀
//!
//!  A·B  =  2ᵖ · (sums · 2²⁴ + three low bytes), converted to fp64 and rounded to fp32 once
//! ```
//!
//! The digits are those of [`crate::pack::digits`]. A tile is ten products of a plane of A and a plane of B, each over all k, one after the
//! other: to the pipeline that is one product of ten times as many k. What is left out, products with a weight of less than d₀·e₃ and the
//! last bits of numbers that are small beside the largest of their line, is bounded in
//! [`crate::pack::digits`].
//!
//! **Sums do not overflow** for up to [`MOST_TERMS`] terms: |d₀| ≤ 64, so the largest ones, those of d₀·e₃ + d₁·e₂ + d₂·e₁ + d₃·e₀, are
//! at most 2·(64·128 + 128·128) = 3·2¹⁴ for each term, and what is carried from the products before is less than 2⁻⁸ of such a sum.
//! For 2¹⁵ terms that is less than 2³¹. Longer sums are divided among blocks, or refused.
//!
//! The frame is `pipeline`, and lines that have no digits are left to the fallback, as in [`fp16_pairs`](super::fp16_pairs). A
//! consumer has 128 accumulators in registers; of the three bytes below each, one is in registers, four to each, and two are in shared
//! memory.
//!
//! Source: K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, "Error-free transformations of matrix multiplication by using fast routines of
//! matrix multiplication and its applications", Numerical Algorithms 59 (2012); H. Ootomo, K. Ozaki, R. Yokota, "DGEMM on integer
//! matrix multiplication unit", IJHPCA 38 (2024), for int8. That carries are taken in between, in the accumulators, is ours.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 208 KB of shared memory, one block on a multiprocessor.

use blocks::ring::Unreleased;
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::warp_number;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Int8, Sums};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};

#[cfg(not(target_arch = "nvptx64"))]
use super::operand::LINE_BYTES;
use super::operand::ROW;
use super::pairs_info::{PairInfo, fallback, without_zeros};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, CONSUMER_REGISTERS, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer, PipelineMemory,
    PipelineProducer, WARPGROUP_ROWS, tile_shape, warp_and_warpgroup,
};
use crate::Triangle;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};
use crate::pack::digits::{DIGITS, pitch};

/// The tile of a block.
pub const TILE: TileShape = tile_shape(128);
/// The most terms that a block adds up.
pub const MOST_TERMS: u32 = 1 << 15;

/// The bytes of a row of 128 that one instruction multiplies.
const STEP: u32 = 32;
/// The instructions for a row.
const STEPS: u32 = 4;
/// The columns that are stored at a time, so that there are registers for their factors.
const COLUMNS: u32 = 32;
/// The groups of eight of them.
const GROUPS: usize = COLUMNS as usize / 8;
/// The accumulators of a thread.
const ACCUMULATORS: usize = 128;
/// The stages: there is room for three beside the low bytes.
const RING: u32 = 3;
/// The words that have a byte for each of them.
const WORDS: usize = ACCUMULATORS / 4;
/// The threads of the consumer warps.
const CONSUMERS: u32 = 256;

struct Memory {
    pipeline: PipelineMemory<RING>,
    /// For each consumer, the low bytes of its sums.
    low_bytes: SharedArray<u32>,
    bytes: u32,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    let pipeline = PipelineMemory::new(&mut layout);
    let low_bytes = layout.aligned(2 * WORDS as u32 * CONSUMERS, 16);
    Memory { pipeline, low_bytes, bytes: layout.bytes() }
};

/// The sums of a thread: the accumulators, and three bytes below each of them, four to a word.
struct WideSums {
    high: [i32; ACCUMULATORS],
    /// The bytes next to the accumulators.
    next: [u32; WORDS],
    /// Those below them.
    low: LowBytes,
}

impl WideSums {
    /// Divides the accumulators by 2⁸, rounded down, and keeps their low bytes in set `SET` of those in shared memory.
    ///
    /// # Safety
    /// Called by the thread that the sums are of.
    #[inline(always)]
    unsafe fn carry_to_memory<const SET: usize>(&mut self) {
        for i in 0..WORDS {
            // SAFETY: the caller's promise.
            unsafe { self.low.write(SET * WORDS + i, self.low_bytes(i)) };
        }
        self.shift();
    }

    /// The same, and keeps them in registers.
    #[inline(always)]
    fn carry(&mut self) {
        for i in 0..WORDS {
            self.next[i] = self.low_bytes(i);
        }
        hint::pin(&mut self.next);
        self.shift();
    }

    /// The low bytes of four accumulators.
    #[inline(always)]
    fn low_bytes(&self, i: usize) -> u32 {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|j| self.high[4 * i + j] as u32 & 0xFF);
        first | second << 8 | third << 16 | fourth << 24
    }

    #[inline(always)]
    fn shift(&mut self) {
        for i in 0..ACCUMULATORS {
            self.high[i] >>= 8;
        }
        hint::pin(&mut self.high);
    }

    /// Sum `i`, in the units that the product of two factors is of. `words` has the bytes of each set in shared memory, for a group of
    /// four.
    #[inline(always)]
    fn sum(&self, i: usize, words: [u32; 2]) -> f64 {
        let [lowest, low] = words.map(|word| byte(word, i));
        let low = byte(self.next[i / 4], i) << 16 | low << 8 | lowest;
        // Exact: an integer of less than 2^53, since accumulators are at most 2^28 in the end. A factor is that of a number brought to
        // 2^14, and the digits are those of one brought to 2^29, which is 2^30 for both; the accumulators are in units of 2^48.
        f64::from(self.high[i]) * f64::from(1 << 18) + f64::from(low) * (1.0 / 64.0)
    }
}

/// Byte `i` of a word, of four that repeat.
#[inline(always)]
fn byte(word: u32, i: usize) -> u32 {
    word >> (8 * (i % 4) as u32) & 0xFF
}

/// The bytes below the accumulators of a thread of the consumer warps that are in shared memory: two sets.
#[derive(Clone, Copy)]
struct LowBytes(SharedSlice<u32>);

impl LowBytes {
    /// Those of this thread.
    ///
    /// # Safety
    /// As for [`SharedArray::slice`], by a thread of a consumer warp.
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { MEMORY.low_bytes.slice() }.skip((thread::thread_idx_x() - PRODUCER_WARPS * warp::LANES) as usize))
    }

    /// Writes word `i`.
    ///
    /// # Safety
    /// This is the thread that it was made by, and there is such a word.
    #[inline(always)]
    unsafe fn write(self, i: usize, word: u32) {
        // SAFETY: inside the array, and this thread's alone.
        unsafe { self.0.skip(i * CONSUMERS as usize).write(0, word) };
    }

    /// Word `i` of each set.
    ///
    /// # Safety
    /// As for [`LowBytes::write`], after it.
    #[inline(always)]
    unsafe fn read(self, i: usize) -> [u32; 2] {
        // SAFETY: as there.
        [0, WORDS].map(|set| unsafe { self.0.skip((set + i) * CONSUMERS as usize).read(0) })
    }
}

/// The body of the kernel.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A and B
/// of `gemm` as they have been packed, and what goes with them; there is room for the low parts of partial sums.
#[inline(always)]
unsafe fn multiply_digits(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info: [PairInfo<'_>; 2],
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
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let plane = pitch(gemm.a().first().cols()) / DIGITS;
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
                    if !fallback(info).contains(&tile) {
                        load(&mut producer, map_a, map_b, &without_zeros(tile, info, TILE), plane);
                    }
                    block += thread::grid_dim_x();
                }
            }
        } else {
            hopper::acquire_registers::<CONSUMER_REGISTERS>();
            multiply(pipeline.consumer(), gemm, triangle, info);
        }
    }
}

/// Issues the TMA loads of a tile: for each product of planes, of `plane` words, those of all k.
///
/// # Safety
/// As for [`PipelineProducer::load`].
#[inline(always)]
unsafe fn load(
    producer: &mut PipelineProducer<RING>,
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    tile: &Tile<'_>,
    plane: u32,
) {
    let mut weight = DIGITS;
    while weight > 0 {
        for digit in 0..weight {
            // SAFETY: the caller's promise.
            unsafe {
                let planes = [digit * plane, (weight - 1 - digit) * plane];
                producer.load_planes::<ROW>(map_a, map_b, tile, TILE, planes);
            }
        }
        weight -= 1;
    }
}

/// The consumers: main loop and epilogue, tile by tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply(
    mut pipeline: PipelineConsumer<RING>,
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info: [PairInfo<'_>; 2],
) {
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
        // SAFETY: all lanes come here, and come to the same conclusions.
        unsafe {
            if fallback(info).contains(&tile) {
                // What the fallback stores has no low parts.
                if gemm.splits() > 1
                    && let Some(tile) = gemm.of_low_parts().tile_of_triangle(TILE, triangle, block)
                {
                    clear(&tile);
                }
            } else {
                let steps = without_zeros(tile, info, TILE).steps(TILE);
                let mut sums = WideSums { high: [0; ACCUMULATORS], next: [0; WORDS], low: LowBytes::new() };
                add_products(&mut sums.high, &mut pipeline, 4 * steps);
                sums.carry_to_memory::<0>();
                add_products(&mut sums.high, &mut pipeline, 3 * steps);
                sums.carry_to_memory::<1>();
                add_products(&mut sums.high, &mut pipeline, 2 * steps);
                sums.carry();
                add_products(&mut sums.high, &mut pipeline, steps);
                let mut left = if gemm.splits() > 1 { 2 } else { 1 };
                while left > 0 {
                    // Pinned, so that they are not converted before the loop, to twice as many registers.
                    hint::pin(&mut sums.high);
                    hint::pin(&mut sums.next);
                    epilogue(gemm, triangle, block, info, &sums, left == 2);
                    left = hint::keep_rolled(left - 1);
                }
            }
        }
        block += thread::grid_dim_x();
    }
}

/// Adds the products of the next `steps` stages.
///
/// # Safety
/// Called by all lanes of the consumer warps; so many stages follow.
#[inline(always)]
unsafe fn add_products(accumulators: &mut [i32; ACCUMULATORS], pipeline: &mut PipelineConsumer<RING>, steps: u32) {
    let mut previous: Option<Unreleased> = None;
    // SAFETY: all lanes come here. A stage is read when it is full, and released when the products that read it have
    // finished, as have the accumulators when they are read.
    unsafe {
        let (_, warpgroup) = warp_and_warpgroup();
        for _ in 0..steps {
            pipeline.wait();
            let at = |index: u32| Descriptor::at(pipeline.memory, (pipeline.offset() + index) as usize);
            let (a, b) = (at(warpgroup * WARPGROUP_ROWS * ROW), at(A_TILE));
            wgmma::fence();
            for step in 0..STEPS {
                accumulators.add_shared::<Int8>(a.offset(step * STEP), b.offset(step * STEP));
            }
            wgmma::commit();
            let read = pipeline.advance_holding();
            accumulators.wait::<1>();
            if let Some(previous) = previous {
                previous.release();
            }
            previous = Some(read);
        }
        accumulators.wait::<0>();
        if let Some(previous) = previous {
            previous.release();
        }
    }
}

/// Stores zeros as the consumer warps' part of a tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn clear(tile: &Tile<'_>) {
    let mut element = thread::thread_idx_x() - PRODUCER_WARPS * warp::LANES;
    while element < TILE.m * TILE.n {
        // SAFETY: each thread has elements of its own.
        unsafe { tile.epilogue_element(tile.row + element / TILE.n, tile.col + element % TILE.n, 0.0) };
        element = hint::keep_rolled(element + CONSUMERS);
    }
}

/// The epilogue of a tile: what sums are, rounded to fp32, or what that leaves of them, for the matrices that follow.
///
/// # Safety
/// Called by all lanes of the consumer warps, with the sums of their tile; there is room for low parts, if these are wanted.
#[inline(always)]
unsafe fn epilogue(
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    block: u32,
    info: [PairInfo<'_>; 2],
    sums: &WideSums,
    is_low: bool,
) {
    // SAFETY: the caller's promise.
    let gemm = if is_low { unsafe { gemm.of_low_parts() } } else { gemm };
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) else { return };
    let lane = warp::lane_id();
    // SAFETY: all lanes come here. Rows and columns of this thread alone; columns begin at even numbers.
    unsafe {
        let (warp, warpgroup) = warp_and_warpgroup();
        let (row, col) = (tile.row + warpgroup * WARPGROUP_ROWS + warp * 16 + lane / 4, tile.col + 2 * (lane & 3));
        epilogue_piece::<0>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<1>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<2>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<3>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<4>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<5>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<6>(&tile, gemm, info, row, col, sums, is_low);
        epilogue_piece::<7>(&tile, gemm, info, row, col, sums, is_low);
    }
}

/// The epilogue of what this thread has in piece `PIECE` of [`COLUMNS`] columns, in two rows. `row` is the first of these, and `col` the
/// first column of the first piece.
///
/// # Safety
/// No other thread accesses these elements of C; `col` is even.
#[inline(always)]
unsafe fn epilogue_piece<const PIECE: usize>(
    tile: &Tile<'_>,
    gemm: TiledGemm<'_>,
    [info_a, info_b]: [PairInfo<'_>; 2],
    row: u32,
    col: u32,
    sums: &WideSums,
    is_low: bool,
) {
    let col = col + PIECE as u32 * COLUMNS;
    let mut rows = [[[0.0; 2]; GROUPS]; 2];
    // SAFETY: the product is one of the batch; the tile begins inside of C, and is no larger than a group of lines.
    unsafe {
        let factors = info_a.factors(tile.matrices[0], gemm.m(), row);
        let factors = [0, 8].map(|i| factors.get_unchecked(i));
        let others = info_b.factors(tile.matrices[1], gemm.n(), col);
        for group in 0..GROUPS {
            let other = others.get2_unchecked(8 * group);
            let word = PIECE * GROUPS + group;
            let words = sums.low.read(word);
            for i in 0..4 {
                let sum = sums.sum(4 * word + i, words);
                let part = if is_low { (sum - f64::from(sum as f32)) as f32 } else { sum as f32 };
                rows[i / 2][group][i % 2] = part * (factors[i / 2] * other[i % 2]);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        tile.epilogue_groups::<2, GROUPS>(row, col, 8, rows[0]);
        tile.epilogue_groups::<2, GROUPS>(row + 8, col, 8, rows[1]);
    }
}

/// Whether a tensor map is of `count` packed operands of `lines` lines with `k` numbers each, in tiles of `tile_lines` lines.
#[cfg(not(target_arch = "nvptx64"))]
fn describes(map: &TensorMap<'_>, [lines, k, count]: [u32; 3], tile_lines: u32) -> bool {
    map.line_bytes() == LINE_BYTES
        && map.layout().extents == [u64::from(pitch(k)), u64::from(lines), u64::from(count)]
        && map.layout().tile == [ROW, tile_lines, 1]
        && map.layout().swizzle == TileSwizzle::Bytes128
}

/// Whether no block adds up more than [`MOST_TERMS`] terms.
#[cfg(not(target_arch = "nvptx64"))]
fn is_divided_enough(gemm: &TiledGemm<'_>) -> bool {
    gemm.a().first().cols().div_ceil(TILE.k).div_ceil(gemm.splits().max(1)) <= MOST_TERMS / TILE.k
}

/// `C = α·A·B + β·C`, sums of products of int8 digits without error, of packed operands.
#[kernel(
    block = 384,
    min_blocks = 1,
    arch = "sm_90a",
    dynamic_shared = MEMORY.bytes,
    requires(
        gemm.blocks(TILE) <= MAX_BLOCKS,
        is_divided_enough(&gemm),
        gemm.splits() == 1 || gemm.c().is_followed_by_as_many(),
        describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], TILE.m),
        describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], TILE.n),
        info_a.are_of(gemm.a().distinct(), gemm.m()),
        info_b.are_of(gemm.b().distinct(), gemm.n()),
        fallback([info_a, info_b]).has_flags_of(&gemm)
    )
)]
pub fn gemm_wgmma_packed_fp32_10xint8(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info_a: PairInfo<'_>,
    info_b: PairInfo<'_>,
    blocks: u32,
) {
    _ = blocks; // for the grid alone
    // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the tensor maps
    // describe, what goes with them, and that there is room for low parts.
    unsafe { multiply_digits(map_a, map_b, gemm, triangle, [info_a, info_b]) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_wgmma_packed_fp32_10xint8<'_> {
    fn grid(&self) -> Dim3 {
        grid(&self.gemm, TILE, self.blocks)
    }
}
