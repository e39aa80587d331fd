//! The products of [`super::fp16_pairs`] for a C that TMA stores: six of the eight parts of a tile while consumers write the others, the last two while
//! tensor cores compute the next tile.
//!
//! ```text
//!  accumulators of a warpgroup,       shared memory, two buffers        global memory
//!  128×128, 64×32 of them at a time
//!                                     ┌────┐ ┌────┐
//!  · units, first steps ───────────►  │ 8K │ │ 8K │ ─── TMA store ───►  pieces of rows of 128 bytes
//!                                     └────┘ └────┘
//!                                      one is written while TMA reads the other (a storing warp for each warpgroup)
//! ```
//!
//! A tile whose k is small takes no longer than to store it. Consumers that store it themselves wait for the memory, and
//! the tensor cores wait for them. Here consumers only write to shared memory: a part as soon as TMA has read the part before the previous one.
//!
//! TMA leaves out what lies outside of C, in units of 16 bytes: so the rows of C have a multiple of 4 elements. Where the old C counts,
//! a warp reads its elements before it writes those of the part, and TMA stores the part behind the barrier that follows.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 227 KB of shared memory, one block on a multiprocessor.

use blocks::epilogue::Steps;
use blocks::named_barrier::NamedBarriers;
use blocks::shared_layout::SharedArray;
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};
use cuda_std::{async_copy, hopper};

use super::exceptions::TileExceptions;
use super::first_steps::{COLUMNS_AT_A_TIME, FirstSteps, PARTS_OF_HALF};
use super::fp16_pairs::{Results, multiply_pairs};
use super::pairs_frame::{HALF, HALF_ROWS, TILE, begin};
use super::pairs_info::{PairInfo, fallback};
#[cfg(not(target_arch = "nvptx64"))]
use super::pairs_info::{describes, describes_factors};
use super::pipeline::warp_and_warpgroup;
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::{grid, stores_results_of};
use super::promotion::{ACCUMULATORS, Units};
use crate::Triangle;
use crate::gemm::staged_steps::StagedLines;
use crate::gemm::sum_lines::{SumLines, Together};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};
use crate::gemm::tiles::{Tile, TiledGemm};

/// The box of a TMA store: columns, rows.
pub const PART: [u32; 2] = [COLUMNS_AT_A_TIME, HALF_ROWS];
/// The elements of a part.
const LEN: u32 = PART[0] * PART[1];
/// The parts of a tile that a warpgroup has.
const PARTS: u32 = 2 * PARTS_OF_HALF;
/// The buffers of a warpgroup.
const BUFFERS: u32 = 2;
/// The consumer warpgroups.
const WARPGROUPS: u32 = 2;
/// The threads that meet at a barrier: a warpgroup and its storing warp.
const THREADS: u32 = 128 + warp::LANES;
/// The elements of results that may stay in the second-level cache, for whoever reads them next: half of what that of an H200 holds. More of them would only
/// take the room of operands.
const MOST_IN_CACHE: u64 = 25 << 18;
/// The rows of a part that a warp has.
const ROWS: u32 = 16;

/// The shared memory and the named barriers of the kernel.
struct Memory {
    results: SharedArray<f32>,
    /// For each warpgroup, the biases of its columns, if the first step is a sum with these.
    biases: SharedArray<f32>,
    /// Where a storing warp arrives when a buffer may be written, and the biases are there.
    empty: NamedBarriers<WARPGROUPS, THREADS>,
    /// Where a warpgroup arrives when it has written one.
    full: NamedBarriers<WARPGROUPS, THREADS>,
    bytes: u32,
}

const MEMORY: Memory = {
    let (_, mut layout, mut ids) = begin();
    let results = layout.aligned(WARPGROUPS * BUFFERS * LEN, 1024);
    let biases = layout.aligned(WARPGROUPS * HALF, 16);
    Memory { results, biases, empty: ids.group(), full: ids.group(), bytes: layout.bytes() }
};

/// The buffer of a warpgroup for one of its parts.
///
/// # Safety
/// The block has the shared memory of [`MEMORY`].
#[inline(always)]
unsafe fn buffer(warpgroup: u32, part: u32) -> SharedSlice<f32> {
    // SAFETY: the caller's promise.
    unsafe { MEMORY.results.part((warpgroup * BUFFERS + part % BUFFERS) * LEN, LEN) }
}

/// The biases of the columns of a warpgroup.
///
/// # Safety
/// The block has the shared memory of [`MEMORY`].
#[inline(always)]
unsafe fn biases_of(warpgroup: u32) -> SharedSlice<f32> {
    // SAFETY: the caller's promise.
    unsafe { MEMORY.biases.part(warpgroup * HALF, HALF) }
}

/// Where an element of a part is in its buffer: rows of 128 bytes, in each of which the pieces of 16 bytes are exchanged, as TMA does. So the eight rows that a
/// warp writes to at a time share banks by twos, not all of them.
#[inline(always)]
fn place(row: u32, col: u32) -> u32 {
    row * COLUMNS_AT_A_TIME + (col ^ (row % 8 * 4))
}

/// TMA stores them.
#[derive(Clone, Copy)]
struct ByTma<'a>(TensorMapMut<'a>);

impl Results for ByTma<'_> {
    #[inline(always)]
    unsafe fn begin(self, _: &Tile<'_>, _: &Steps<'_>) {}

    #[inline(always)]
    unsafe fn finish(
        self,
        tile: Tile<'_>,
        info: [PairInfo<'_>; 2],
        steps: &Steps<'_>,
        units: [Units; 2],
        accumulators: &[[f32; ACCUMULATORS]; 2],
    ) {
        // SAFETY: all lanes come here, and each warp has rows of its own in each part. A buffer is written, with what exceptions and steps change in it, when the
        // storing warp has said that TMA has read it, and stored behind the next barrier; the warp meets before it reads what another lane has written. Biases
        // are there from the first of these barriers on, and are fetched anew behind the last one.
        unsafe {
            let (warp, warpgroup) = warp_and_warpgroup();
            let [first_row, first_col] = [tile.row, tile.col + warpgroup * HALF];
            let (lane, down) = (warp::lane_id(), warp * ROWS);
            let units = units.map(|units| units.of_rows());
            let exceptions = TileExceptions::of(&tile, info.map(|info| info.exceptions));
            // Where nothing else comes before the steps.
            let is_sum = !exceptions.any() && tile.overwrites() && tile.factor() == 1.0;
            let (first, steps) = FirstSteps::of(steps, is_sum, biases_of(warpgroup));
            MEMORY.empty.at(warpgroup).sync();
            let mut part = 0;
            while part < PARTS {
                let (half, part_of_half) = (part / PARTS_OF_HALF, part % PARTS_OF_HALF);
                let sums = first.sums(part, units, accumulators);
                // (For the first one the warpgroup has waited, above: biases come with it.)
                if part > 0 {
                    MEMORY.empty.at(warpgroup).sync();
                }
                let memory = buffer(warpgroup, part);
                for group in 0..COLUMNS_AT_A_TIME / 8 {
                    for second in 0..2 {
                        let at = place(down + lane / 4 + 8 * second, 8 * group + 2 * (lane & 3));
                        let first = (4 * group + 2 * second) as usize;
                        memory.write2(at as usize, [sums[first], sums[first + 1]]);
                    }
                }
                if !is_sum || !steps.is_empty() {
                    warp::sync_warp(warp::ALL_LANES);
                    let at = [first_row + half * HALF_ROWS + down, first_col + part_of_half * COLUMNS_AT_A_TIME];
                    if exceptions.any() {
                        exceptions.add(&tile, at, ROWS, &memory, |[row, col]| place(down + row, col));
                    }
                    let staged = StagedLines {
                        lines: SumLines { are_columns: false, count: ROWS, length: COLUMNS_AT_A_TIME },
                        first: at,
                        memory: &memory,
                        place: |line, at| place(down + line, at),
                    };
                    let threads = Together { number: lane, count: warp::LANES };
                    staged.combine(&tile, threads);
                    staged.apply(steps, tile.product, [tile.c.rows(), tile.c.cols()], threads);
                    // Lanes have had different numbers of elements, and come to the barrier together.
                    warp::sync_warp(warp::ALL_LANES);
                }
                hopper::fence_async_shared();
                MEMORY.full.at(warpgroup).arrive();
                part = hint::keep_rolled(part + 1);
            }
        }
    }

    #[inline(always)]
    unsafe fn store(
        self,
        warp: u32,
        gemm: TiledGemm<'_>,
        triangle: Triangle,
        info: [PairInfo<'_>; 2],
        steps: &Steps<'_>,
    ) {
        if warp > WARPGROUPS {
            return;
        }
        let warpgroup = warp - 1;
        let is_streamed = u64::from(gemm.m()) * u64::from(gemm.n()) * u64::from(gemm.c().count()) > MOST_IN_CACHE;
        let mut block = thread::block_idx_x();
        // SAFETY: all lanes come here. The warpgroup writes the same parts of the same tiles, in this order. One lane, always the same, issues the stores and
        // waits for them, before the others arrive and the warpgroup writes again. What has been written is visible to TMA: all threads have made it so
        // before they came to the barrier. Buffers begin at multiples of 1024 bytes, and the map describes C in boxes like them, as the caller promises with C.
        // Nobody else writes the biases, and the warpgroup has read those of the tile before when it has written the last part of that.
        unsafe {
            while let Some(tile) = gemm.tile_of_triangle(TILE, triangle, block) {
                if !fallback(info).contains(&tile) {
                    FirstSteps::fetch(&tile, warpgroup, steps, &biases_of(warpgroup));
                    async_copy::wait_group::<0>();
                    let mut part = 0;
                    while part < PARTS {
                        wait_until_read::<{ BUFFERS - 1 }>();
                        MEMORY.empty.at(warpgroup).arrive();
                        MEMORY.full.at(warpgroup).sync();
                        if hopper::elect_one() {
                            let from = buffer(warpgroup, part);
                            let row = tile.row + part / PARTS_OF_HALF * HALF_ROWS;
                            let col = tile.col + warpgroup * HALF + part % PARTS_OF_HALF * COLUMNS_AT_A_TIME;
                            let at = [col, row, tile.product];
                            if is_streamed {
                                hopper::store_tile_streamed(from, 0, self.0, at);
                            } else {
                                hopper::store_tile(from, 0, self.0, at);
                            }
                            hopper::commit_stores();
                        }
                        part = hint::keep_rolled(part + 1);
                    }
                }
                block += thread::grid_dim_x();
            }
            wait_until_read::<0>();
        }
    }
}

/// Waits until TMA has read all that this warp has stored, but for the last `LATEST` parts.
///
/// # Safety
/// Called by all lanes of a storing warp.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
unsafe fn wait_until_read<const LATEST: u32>() {
    // SAFETY: all lanes come here.
    unsafe {
        if hopper::elect_one() {
            hopper::wait_for_stores::<LATEST>();
        }
        warp::sync_warp(warp::ALL_LANES);
    }
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
                gemm.splits() == 1,
                gemm.blocks(TILE) <= MAX_BLOCKS,
                describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], TILE.m),
                describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], TILE.n),
                describes_factors(&factors_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], TILE.m),
                describes_factors(&factors_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], TILE.n),
                info_a.are_of_pairs(gemm.a().distinct(), gemm.m(), gemm.a().first().cols()),
                info_b.are_of_pairs(gemm.b().distinct(), gemm.n(), gemm.b().first().rows()),
                fallback([info_a, info_b]).has_flags_of(&gemm),
                gemm.n().is_multiple_of(4),
                stores_results_of(&map_c, &gemm, PART, TileSwizzle::Bytes128),
                steps_fit(&steps, &gemm)
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            factors_a: TensorMap<'_>,
            factors_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            map_c: TensorMapMut<'_>,
            triangle: Triangle,
            info_a: PairInfo<'_>,
            info_b: PairInfo<'_>,
            steps: Steps<'_>,
            blocks: u32,
        ) {
            _ = blocks; // for the grid alone
            let (maps, factors, info) = ([map_a, map_b], [factors_a, factors_b], [info_a, info_b]);
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe and what goes with them: that of C is of these results.
            unsafe { multiply_pairs(maps, factors, gemm, triangle, info, steps, ByTma(map_c)) }
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
    gemm_wgmma_packed_staged_fp32_3xfp16,
        "`C = α·A·B + β·C` in fp32, of packed operands, except for what belongs to lines with elements that are too different, for a C that TMA stores.";
    gemm_wgmma_packed_staged_fp32_normwise,
        "`C = α·A·B + β·C`, accurate against the largest elements of the rows of A and the columns of B, of packed operands, for a C that TMA stores.";
}
