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
use blocks::ping_pong::PingPong;
use blocks::shared_layout::SharedArray;
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Fp16, Sums};
use cuda_std::{async_copy, hopper};

use super::exceptions::TileExceptions;
use super::first_steps::{COLUMNS_AT_A_TIME, FirstSteps, PARTS_OF_HALF};
use super::operand::{KMajor, ROW};
pub use super::pairs_frame::TILE;
use super::pairs_frame::{ELEMENTS, FRAME, HALF, HALF_ROWS, STAGES_OF_STEP, StepFactors, TileFactors, begin};
use super::pairs_info::{PairInfo, fallback, without_zeros};
#[cfg(not(target_arch = "nvptx64"))]
use super::pairs_info::{describes, describes_factors};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, CONSUMER_REGISTERS, CONSUMER_WARPS, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer,
    warp_and_warpgroup,
};
use super::promotion::{ACCUMULATORS, Units, promote};
use super::whole_rows;
use crate::Triangle;
use crate::gemm::sum_lines::is_column_major;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};
use crate::gemm::tiles::{Tile, TiledGemm};
use crate::pack::pairs::LOW_SCALE;

/// The bytes of a row of 128 that one instruction multiplies.
const STEP: u32 = 32;
/// Where the low parts are in a row.
const LOW: u32 = 64;

/// The shared memory of the kernels whose consumers store results.
struct Memory {
    /// For each consumer warp, where its results go through that are stored row by row.
    rows: SharedArray<f32>,
    /// For each consumer warp, the biases of its columns, if the first step is a sum with these.
    biases: SharedArray<f32>,
    bytes: u32,
}

const MEMORY: Memory = {
    let (_, mut layout, _) = begin();
    let rows = layout.aligned(CONSUMER_WARPS * whole_rows::len(COLUMNS_AT_A_TIME), 16);
    let biases = layout.aligned(CONSUMER_WARPS * HALF, 16);
    Memory { rows, biases, bytes: layout.bytes() }
};

/// How results get to C. [`multiply_pairs`] calls these functions, by what its own caller has promised.
pub(super) trait Results: Copy {
    /// What a consumer warp does before it multiplies the first step of a tile.
    ///
    /// # Safety
    /// Called by all lanes of the consumer warps, for each tile that is not left to the fallback, where [`multiply_pairs`] may be called.
    unsafe fn begin(self, tile: &Tile<'_>, steps: &Steps<'_>);

    /// The epilogue of a tile.
    ///
    /// # Safety
    /// Called by all lanes of the consumer warps behind [`Results::begin`] for the same tile, with the accumulators of it and what goes with the operands, where
    /// [`multiply_pairs`] may be called.
    unsafe fn finish(
        self,
        tile: Tile<'_>,
        info: [PairInfo<'_>; 2],
        steps: &Steps<'_>,
        units: [Units; 2],
        accumulators: &[[f32; ACCUMULATORS]; 2],
    );

    /// What the warps beside the producer do: `warp` is 1, 2 or 3.
    ///
    /// # Safety
    /// Called by all lanes of these warps, once, where [`multiply_pairs`] may be called; consumers come to [`Results::finish`] for all tiles of the block that
    /// are not left to the fallback, in their order.
    unsafe fn store(
        self,
        warp: u32,
        gemm: TiledGemm<'_>,
        triangle: Triangle,
        info: [PairInfo<'_>; 2],
        steps: &Steps<'_>,
    );
}

/// Consumers store them, by whatever rows or columns there are.
#[derive(Clone, Copy)]
struct FromConsumers;

/// The body of all kernels.
///
/// # Safety
/// Called by all threads of a block of 384, whose shared memory and named barriers begin with [`FRAME`] and go on with those of `results`, which can store C
/// of `gemm`; with tensor maps of A and B of `gemm` as they have been packed and of their factors, and what goes with them, as a launch has checked. The
/// steps fit the results.
#[inline(always)]
pub(super) unsafe fn multiply_pairs(
    maps: [TensorMap<'_>; 2],
    maps_of_factors: [TensorMap<'_>; 2],
    gemm: TiledGemm<'_>,
    triangle: Triangle,
    info: [PairInfo<'_>; 2],
    steps: Steps<'_>,
    results: impl Results,
) {
    // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(FRAME.pipeline);
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
            } else {
                results.store(warp, gemm, triangle, info, &steps);
            }
        } else {
            hopper::acquire_registers::<CONSUMER_REGISTERS>();
            multiply(pipeline.consumer(), gemm, triangle, info, &steps, results);
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
    results: impl Results,
) {
    // SAFETY: all lanes of both warpgroups come here, once.
    let (in_b, turns) = unsafe {
        let warpgroup = warp_and_warpgroup().1;
        (warpgroup * HALF * ROW * 4, PingPong::new(FRAME.turns, warpgroup))
    };
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
        // SAFETY: all lanes come here, and come to the same conclusions; stages are read when they are full, and released
        // when the products that read them have finished, and all lanes have read their factors.
        unsafe {
            if !fallback(info).contains(&tile) {
                results.begin(&tile, steps);
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
                // Computed again: kept through the loop, it would take registers there.
                if let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
                    results.finish(tile, info, steps, units, &accumulators);
                }
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

impl Results for FromConsumers {
    #[inline(always)]
    unsafe fn begin(self, tile: &Tile<'_>, steps: &Steps<'_>) {
        // SAFETY: all lanes come here; what other lanes have read, they have read before the warp met in the epilogue of the tile before.
        unsafe { FirstSteps::fetch(tile, warp_and_warpgroup().1, steps, &biases_of_warp()) };
    }

    #[inline(always)]
    unsafe fn finish(
        self,
        tile: Tile<'_>,
        info: [PairInfo<'_>; 2],
        steps: &Steps<'_>,
        units: [Units; 2],
        accumulators: &[[f32; ACCUMULATORS]; 2],
    ) {
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
            let (first, steps) = FirstSteps::of(steps, is_sum, biases_of_warp());
            // (Also for what is not used.)
            async_copy::wait_group::<0>();
            let mut part = 0;
            while part < 2 * PARTS_OF_HALF {
                let (half, part_of_half) = (part / PARTS_OF_HALF, part % PARTS_OF_HALF);
                let sums = first.sums(part, units, accumulators);
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

    #[inline(always)]
    unsafe fn store(self, _: u32, _: TiledGemm<'_>, _: Triangle, _: [PairInfo<'_>; 2], _: &Steps<'_>) {}
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
            unsafe {
                multiply_pairs(
                    [map_a, map_b],
                    [factors_a, factors_b],
                    gemm,
                    triangle,
                    [info_a, info_b],
                    steps,
                    FromConsumers,
                )
            }
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
