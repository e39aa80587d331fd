//! fp32-accurate products by three fp16 products of packed, scaled operands, `C = α·A·B + β·C`.
//!
//! ```text
//!  a line of a packed operand, 128 bytes for 32 terms:   │ high 0 … 31, fp16 │ low 0 … 31, fp16 │      and its factor
//!
//!  x · scale  =  high  +  low · 2⁻¹¹                     A·B  =  high·high  +  2⁻¹¹ · (high·low + low·high)
//!
//!  partial sums of 64 terms      64×128      low·high, high·low ──► · 2⁻¹¹ ──► + high·high ──► added to the sums, in fp32
//! ```
//!
//! [`crate::pack`] scales each line, a row of A or a column of B, by the power of two that brings its largest element to the
//! top of fp16's range, and splits what comes out into two fp16 numbers of 11 bits each, of which the low one is scaled once
//! more. A product of the tensor cores in fp16 costs half of one in TF32, and there are three of them: three quarters of what
//! the mixed scheme of [`crate::gemm::decompose`] costs, and about half of its error.
//!
//! An element that is very much smaller than the largest of its line loses bits. Packing notices lines with such elements
//! (it says where the limit is), and lines that are not finite; the 256×256 parts of C that these belong to are not computed
//! here, but by a kernel of [`super::decomposed`], restricted to them.
//!
//! Packing also notes from which term to which 256 lines of an operand have other numbers than zeros. The terms outside of what
//! both operands have there are left out: of the product of two triangular matrices that is two thirds. With zeros, everything
//! that is fit gives zeros.
//!
//! The frame is `pipeline`. A warpgroup has 64×256 sums, as two halves of 128 columns, and partial sums
//! for one half. While it scales these and adds them to its sums, the products of the other warpgroup run: the tensor pipe is
//! active 91 % of the time (profiled on an H200).
//!
//! M, N, K = 2048, 4096, 8192 took 0.525 ms on an H200, 262 TFLOP/s, without packing (2026-11-21). With 32 terms between
//! promotions, and A read through registers, it took 0.605 ms; with 64 and A through registers 0.567 ms.
//!
//! 168 registers at launch, 240 in the warpgroups that multiply; 192 KB of shared memory, one block on a multiprocessor.

use blocks::uniform::warp_number;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Fp16, Sums};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};

use super::fallback::{GROUP, Unfit, flags_of};
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::LINE_BYTES;
use super::operand::{KMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, LOADER_REGISTERS, LOADERS, MEMORY, MULTIPLIER_REGISTERS, PART, Pipeline, PipelineConsumer, tile_shape,
    warp_and_part,
};
use crate::Part;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const TILE: TileShape = tile_shape(64);

/// What a low part is scaled by in addition.
pub const LOW_SCALE: f32 = 2048.0;

/// The columns of a half.
pub(super) const HALF: u32 = 128;
/// The sums of a thread for a half.
pub(super) const SUMS: usize = 64;
/// The bytes of the terms that one instruction adds up, in a row of 128.
const STEP: u32 = 32;
/// Where the low parts are in a row.
const LOW: u32 = 64;
/// The fp16 numbers of a place: a high and a low part of each term.
pub(super) const ELEMENTS: u32 = 64;
/// The places for a step, of 32 terms each.
const PLACES: u32 = 2;

/// What goes with an operand that has been scaled line by line.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Scales<'a> {
    /// For each line of each matrix of the batch, what a product with it is to be multiplied by. The lines of a matrix are
    /// filled up to a multiple of [`GROUP`].
    pub factors: GlobalSlice<'a, f32>,
    /// For each group of [`GROUP`] lines of each matrix, whether any of them could not be split: not zero.
    pub unfit: GlobalSlice<'a, u32>,
    /// For each of these groups, two words: terms before the first one, and from the second one on, are zero in all lines.
    pub nonzero: GlobalSlice<'a, u32>,
}

impl Scales<'_> {
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
unsafe fn multiply_scaled(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    part: Part,
    scales: [Scales<'_>; 2],
) {
    // SAFETY: all threads come here, and each role goes through all tiles and places. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(MEMORY.pipeline);
        let mut producer = pipeline.producer();
        let warp = warp_number();
        if warp < LOADERS {
            hopper::release_registers::<LOADER_REGISTERS>();
            if warp == 0 {
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_of_part(TILE, part, block) {
                    if !unfit(scales).contains(&tile) {
                        let tile = without_zeros(tile, scales);
                        producer.load::<KMajor, PLACES, ELEMENTS>(map_a, map_b, &tile, TILE);
                    }
                    block += thread::grid_dim_x();
                }
            }
        } else {
            hopper::acquire_registers::<MULTIPLIER_REGISTERS>();
            multiply(pipeline.consumer(), gemm, part, scales);
        }
    }
}

/// Multiplies and completes C, tile by tile.
///
/// # Safety
/// Called by all lanes of the warps that multiply.
#[inline(always)]
unsafe fn multiply(mut pipeline: PipelineConsumer, gemm: TiledGemm<'_>, part: Part, scales: [Scales<'_>; 2]) {
    // SAFETY: all lanes come here.
    let in_a = unsafe { warp_and_part().1 } * PART * ROW;
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile_of_part(TILE, part, block) {
        // SAFETY: all lanes come here, and come to the same conclusions; places are read when they are full, and given back
        // when the products that read them have finished.
        unsafe {
            if !unfit(scales).contains(&tile) {
                let mut sums = [[0f32; SUMS]; 2];
                for _ in 0..without_zeros(tile, scales).steps(TILE) {
                    let places = [pipeline, pipeline.next()];
                    places[0].wait();
                    places[1].wait();
                    add_half(&mut sums[0], &places, in_a, 0);
                    add_half(&mut sums[1], &places, in_a, HALF * ROW * 4);
                    pipeline.advance_holding().release();
                    pipeline.advance_holding().release();
                }
                finish(gemm, part, block, scales, &sums);
            }
        }
        block += thread::grid_dim_x();
    }
}

/// Adds the products of the terms of two places to `sums`.
///
/// # Safety
/// As for [`multiply_half`].
#[inline(always)]
unsafe fn add_half(sums: &mut [f32; SUMS], places: &[PipelineConsumer; 2], in_a: u32, in_b: u32) {
    // SAFETY: the caller's promise.
    let partial = unsafe { multiply_half(places, in_a, in_b) };
    for i in 0..SUMS {
        sums[i] += partial[i];
    }
    hint::pin(sums);
}

/// The products of the terms of some places, for the rows that begin at word `in_a` of A and 128 columns, which begin `in_b` bytes
/// further on in B.
///
/// # Safety
/// Called by all lanes of the warps that multiply; the places are full.
#[inline(always)]
pub(super) unsafe fn multiply_half<const RING: u32, const PLACES: usize>(
    places: &[PipelineConsumer<RING>; PLACES],
    in_a: u32,
    in_b: u32,
) -> [f32; SUMS] {
    let mut partial = [0f32; SUMS];
    // SAFETY: the caller's promise. The sums are read when the products have finished.
    unsafe {
        let operands = places.map(|place| {
            let at = |index: u32| Descriptor::at(place.memory, (place.place() + index) as usize);
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
        for i in 0..SUMS {
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

/// The tiles that are left to another kernel. There is a flag for each group, so these are never all tiles for want of flags.
#[inline(always)]
pub(super) fn unfit<'a>([a, b]: [Scales<'a>; 2]) -> Unfit<'a> {
    Unfit { a: a.unfit, b: b.unfit }
}

/// The tile without those terms at its beginning and its end for which A or B has nothing but zeros.
///
/// # Safety
/// A launch has checked what goes with the operands; the tile is one of the product.
#[inline(always)]
unsafe fn without_zeros<'a>(mut tile: Tile<'a>, [a, b]: [Scales<'_>; 2]) -> Tile<'a> {
    let [group_a, group_b] = flags_of(&tile);
    // SAFETY: there are two words for each group, by the caller's promise.
    let (begin, end) = unsafe {
        let words = |scales: Scales<'_>, group: usize| [0, 1].map(|i| scales.nonzero.get_unchecked(2 * group + i));
        let (of_a, of_b) = (words(a, group_a), words(b, group_b));
        (of_a[0].max(of_b[0]), of_a[1].min(of_b[1]))
    };
    tile.k_begin = tile.k_begin.max(begin / TILE.k * TILE.k);
    tile.k_end = tile.k_end.min(end).max(tile.k_begin);
    tile
}

/// Completes C.
///
/// # Safety
/// Called by all lanes of the warps that multiply, with the sums of their tile.
#[inline(always)]
unsafe fn finish(gemm: TiledGemm<'_>, part: Part, block: u32, scales: [Scales<'_>; 2], sums: &[[f32; SUMS]; 2]) {
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = gemm.tile_of_part(TILE, part, block) else { return };
    let lane = warp::lane_id();
    // SAFETY: all lanes come here. Rows and columns of this thread alone; columns begin at even numbers.
    unsafe {
        let (warp, part) = warp_and_part();
        let (row, col) = (tile.row + part * PART + warp * 16 + lane / 4, tile.col + 2 * (lane & 3));
        complete::<0>(&tile, gemm, scales, row, col, &sums[0]);
        complete::<1>(&tile, gemm, scales, row + 8, col, &sums[0]);
        complete::<0>(&tile, gemm, scales, row, col + HALF, &sums[1]);
        complete::<1>(&tile, gemm, scales, row + 8, col + HALF, &sums[1]);
    }
}

/// Completes the columns of C that this thread has in one row: the first or the second of the two rows that `sums` is of.
///
/// # Safety
/// No other thread accesses these elements of C; `col` is even.
#[inline(always)]
unsafe fn complete<const SECOND_ROW: usize>(
    tile: &Tile<'_>,
    gemm: TiledGemm<'_>,
    [scales_a, scales_b]: [Scales<'_>; 2],
    row: u32,
    col: u32,
    sums: &[f32; SUMS],
) {
    let mut groups = [[0.0; 2]; SUMS / 4];
    // SAFETY: the product is one of the batch; the tile begins inside of C, and is no larger than a group of lines.
    unsafe {
        let factor = scales_a.factors(tile.product, gemm.m(), row).get_unchecked(0);
        let others = scales_b.factors(tile.product, gemm.n(), col);
        for group in 0..SUMS / 4 {
            let other = others.get2_unchecked(8 * group);
            for i in 0..2 {
                groups[group][i] = sums[4 * group + 2 * SECOND_ROW + i] * (factor * other[i]);
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe { tile.finish_groups::<2, { SUMS / 4 }>(row, col, 8, groups) }
}

/// Whether a tensor map is of `count` packed operands of `lines` lines with `terms` terms, in tiles of `tile_lines` lines.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describes(map: &TensorMap<'_>, [lines, terms, count]: [u32; 3], tile_lines: u32) -> bool {
    let elements = u64::from(terms.div_ceil(ELEMENTS / 2)) * u64::from(ELEMENTS);
    map.line_bytes() == LINE_BYTES
        && map.layout().extents == [elements, u64::from(lines), u64::from(count)]
        && map.layout().tile == [ELEMENTS, tile_lines, 1]
        && map.layout().swizzle == TileSwizzle::Bytes128
}

/// Makes the entry points, which differ in their names only: what is unfit has been decided when the operands were packed.
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
                scales_a.are_of(gemm.a().count(), gemm.m()),
                scales_b.are_of(gemm.b().count(), gemm.n()),
                unfit([scales_a, scales_b]).has_flags_of(&gemm)
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            part: Part,
            scales_a: Scales<'_>,
            scales_b: Scales<'_>,
            blocks: u32,
        ) {
            _ = blocks; // for the grid alone
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe and what goes with them.
            unsafe { multiply_scaled(map_a, map_b, gemm, part, [scales_a, scales_b]) }
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
