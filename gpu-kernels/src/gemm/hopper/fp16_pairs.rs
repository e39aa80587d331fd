//! fp32-accurate products of operands that are stored as pairs of fp16 numbers, `C = α·A·B + β·C`, by three fp16 products.
//!
//! ```text
//!  a row of A (column of B), 128 bytes for k = 32:       │ high 0 … 31, fp16 │ low 0 … 31, fp16 │      and its factor
//!
//!  x · scale  =  high  +  low · 2⁻¹¹                     A·B  =  high·high  +  2⁻¹¹ · (high·low + low·high)
//!
//!  partial accumulators over k = 64      64×128      low·high, high·low ──► · 2⁻¹¹ ──► + high·high ──► added to the accumulators
//! ```
//!
//! [`crate::pack`] scales each row of A and column of B by the power of two that brings its largest element to the top of fp16's
//! range, and decomposes what comes out into two fp16 numbers of 11 bits each, of which the low one is scaled once more. An fp16
//! product costs half of a TF32 product, and there are three of them: three quarters of what the mixed scheme of
//! [`crate::gemm::decompose`] costs.
//!
//! An element that is very much smaller than the largest of its row or column loses bits. Packing notices rows and columns with such
//! elements, or with numbers that are not finite, and flags their group of 256. The 256×256 blocks of C that flagged groups belong to are
//! left to the fallback, a kernel of [`super::decomposed`].
//!
//! Packing also notes between which k a group of 256 has numbers other than zero. A tile skips all k outside of what both operands
//! have there: of the product of two triangular matrices that is two thirds.
//!
//! The frame is `pipeline`. A consumer warpgroup has 64×256 accumulators, as two halves of 128 columns, and partial accumulators for one
//! half. While it scales these and adds them, the products of the other warpgroup run.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 192 KB of shared memory, one block on a multiprocessor.

use blocks::uniform::warp_number;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Fp16, Sums};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};

use super::fallback::{Fallback, GROUP, flags_of};
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::LINE_BYTES;
use super::operand::{KMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, CONSUMER_REGISTERS, MEMORY, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer, WARPGROUP_ROWS,
    tile_shape, warp_and_warpgroup,
};
use crate::Triangle;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const TILE: TileShape = tile_shape(64);

/// What a low part is scaled by in addition.
pub const LOW_SCALE: f32 = 2048.0;

/// The columns of a half.
pub(super) const HALF: u32 = 128;
/// The accumulators of a thread for a half.
pub(super) const ACCUMULATORS: usize = 64;
/// The bytes of a row of 128 that one instruction multiplies.
const STEP: u32 = 32;
/// Where the low parts are in a row.
const LOW: u32 = 64;
/// The fp16 numbers of a stage: a high and a low part for each k.
pub(super) const ELEMENTS: u32 = 64;
/// The stages of a K-step, with k = 32 each.
const STAGES_OF_STEP: u32 = 2;

/// What packing knows of an operand that is stored as pairs of fp16 numbers. Its *lines* are the rows of A, or the columns of B.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct PairInfo<'a> {
    /// For each line of each matrix of the batch, what a product with it is to be multiplied by. The lines of a matrix are
    /// filled up to a multiple of [`GROUP`].
    pub factors: GlobalSlice<'a, f32>,
    /// For each group of [`GROUP`] lines of each matrix, whether any of them is left to the fallback: not zero.
    pub fallback: GlobalSlice<'a, u32>,
    /// For each of these groups, two words: all lines are zero at every k below the first one, and from the second one on.
    pub nonzero: GlobalSlice<'a, u32>,
}

impl PairInfo<'_> {
    /// Whether there are factors of `count` matrices of `lines` lines.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn are_of(&self, count: u32, lines: u32) -> bool {
        let groups = u64::from(count) * u64::from(lines.div_ceil(GROUP));
        self.factors.len() as u64 >= groups * u64::from(GROUP) && self.nonzero.len() as u64 >= groups * 2
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

/// The body of both kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A and B
/// of `gemm` as they have been packed, and what goes with them.
#[inline(always)]
unsafe fn multiply_pairs(
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
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
                    if !fallback(info).contains(&tile) {
                        let tile = without_zeros(tile, info, TILE);
                        producer.load::<KMajor, STAGES_OF_STEP, ELEMENTS>(map_a, map_b, &tile, TILE);
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

/// The consumers: main loop and epilogue, tile by tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply(mut pipeline: PipelineConsumer, gemm: TiledGemm<'_>, triangle: Triangle, info: [PairInfo<'_>; 2]) {
    // SAFETY: all lanes come here.
    let in_a = unsafe { warp_and_warpgroup().1 } * WARPGROUP_ROWS * ROW;
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
        // SAFETY: all lanes come here, and come to the same conclusions; stages are read when they are full, and released
        // when the products that read them have finished.
        unsafe {
            if !fallback(info).contains(&tile) {
                let mut accumulators = [[0f32; ACCUMULATORS]; 2];
                for _ in 0..without_zeros(tile, info, TILE).steps(TILE) {
                    let stages = [pipeline, pipeline.next()];
                    stages[0].wait();
                    stages[1].wait();
                    add_half(&mut accumulators[0], &stages, in_a, 0);
                    add_half(&mut accumulators[1], &stages, in_a, HALF * ROW * 4);
                    pipeline.advance_holding().release();
                    pipeline.advance_holding().release();
                }
                epilogue(gemm, triangle, block, info, &accumulators);
            }
        }
        block += thread::grid_dim_x();
    }
}

/// Adds the products of two stages to `accumulators`.
///
/// # Safety
/// As for [`multiply_half`].
#[inline(always)]
unsafe fn add_half(accumulators: &mut [f32; ACCUMULATORS], stages: &[PipelineConsumer; 2], in_a: u32, in_b: u32) {
    // SAFETY: the caller's promise.
    let partial = unsafe { multiply_half(stages, in_a, in_b) };
    for i in 0..ACCUMULATORS {
        accumulators[i] += partial[i];
    }
    hint::pin(accumulators);
}

/// The products of some stages, for the rows that begin at word `in_a` of A and 128 columns, which begin `in_b` bytes
/// further on in B.
///
/// # Safety
/// Called by all lanes of the consumer warps; the stages are full.
#[inline(always)]
pub(super) unsafe fn multiply_half<const RING: u32, const STAGES_OF_STEP: usize>(
    stages: &[PipelineConsumer<RING>; STAGES_OF_STEP],
    in_a: u32,
    in_b: u32,
) -> [f32; ACCUMULATORS] {
    let mut partial = [0f32; ACCUMULATORS];
    // SAFETY: the caller's promise. The accumulators are read when the products have finished.
    unsafe {
        let operands = stages.map(|stage| {
            let at = |index: u32| Descriptor::at(stage.memory, (stage.offset() + index) as usize);
            (at(in_a), at(A_TILE).offset(in_b))
        });
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
        partial.wait::<0>();
        for i in 0..ACCUMULATORS {
            partial[i] *= 1.0 / LOW_SCALE;
        }
        hint::pin(&mut partial);
        wgmma::fence();
        for (a, b) in operands {
            partial.add_shared::<Fp16>(a, b);
            partial.add_shared::<Fp16>(a.offset(STEP), b.offset(STEP));
        }
        wgmma::commit();
        partial.wait::<0>();
    }
    partial
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

/// The epilogue of a tile.
///
/// # Safety
/// Called by all lanes of the consumer warps, with the accumulators of their tile.
#[inline(always)]
unsafe fn epilogue(
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    block: u32,
    info: [PairInfo<'_>; 2],
    accumulators: &[[f32; ACCUMULATORS]; 2],
) {
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) else { return };
    let lane = warp::lane_id();
    // SAFETY: all lanes come here. Rows and columns of this thread alone; columns begin at even numbers.
    unsafe {
        let (warp, warpgroup) = warp_and_warpgroup();
        let (row, col) = (tile.row + warpgroup * WARPGROUP_ROWS + warp * 16 + lane / 4, tile.col + 2 * (lane & 3));
        epilogue_row::<0>(&tile, gemm, info, row, col, &accumulators[0]);
        epilogue_row::<1>(&tile, gemm, info, row + 8, col, &accumulators[0]);
        epilogue_row::<0>(&tile, gemm, info, row, col + HALF, &accumulators[1]);
        epilogue_row::<1>(&tile, gemm, info, row + 8, col + HALF, &accumulators[1]);
    }
}

/// The epilogue of the columns of C that this thread has in one row: the first or the second of the two rows of `accumulators`.
///
/// # Safety
/// No other thread accesses these elements of C; `col` is even.
#[inline(always)]
unsafe fn epilogue_row<const SECOND_ROW: usize>(
    tile: &Tile<'_>,
    gemm: TiledGemm<'_>,
    [info_a, info_b]: [PairInfo<'_>; 2],
    row: u32,
    col: u32,
    accumulators: &[f32; ACCUMULATORS],
) {
    let mut groups = [[0.0; 2]; ACCUMULATORS / 4];
    // SAFETY: the product is one of the batch; the tile begins inside of C, and is no larger than a group of lines.
    unsafe {
        let factor = info_a.factors(tile.product, gemm.m(), row).get_unchecked(0);
        let others = info_b.factors(tile.product, gemm.n(), col);
        for group in 0..ACCUMULATORS / 4 {
            let other = others.get2_unchecked(8 * group);
            for i in 0..2 {
                groups[group][i] = accumulators[4 * group + 2 * SECOND_ROW + i] * (factor * other[i]);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { tile.epilogue_groups::<2, { ACCUMULATORS / 4 }>(row, col, 8, groups) }
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
                describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().count()], TILE.m),
                describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().count()], TILE.n),
                info_a.are_of(gemm.a().count(), gemm.m()),
                info_b.are_of(gemm.b().count(), gemm.n()),
                fallback([info_a, info_b]).has_flags_of(&gemm)
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            triangle: Triangle,
            info_a: PairInfo<'_>,
            info_b: PairInfo<'_>,
            blocks: u32,
        ) {
            _ = blocks; // for the grid alone
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe and what goes with them.
            unsafe { multiply_pairs(map_a, map_b, gemm, triangle, [info_a, info_b]) }
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
