//! fp32-accurate products of few terms, `C = α·A·B`, whose time is that of writing C.
//!
//! ```text
//!  three places for operands   registers                  a half of C in shared memory        global memory
//!
//!  ┌──────────┐                                           a warp: 16 rows of 128
//!  │ A    16K │ ──► tensor ──► a half of   ─► · factors ─► ┌────┬────┬────┬────┐
//!  │ B    32K │     cores      the sums, for              │ 2K │ 2K │ 2K │ 2K │ ──────────────► whole lines
//!  └──────────┘                a warpgroup 64×128         └────┴────┴────┴────┘  copy engine     of 128 bytes
//!       ▲                                                  32 columns each
//!  copy engine: the next tile
//! ```
//!
//! The kernel of [`super::scaled`], for so few terms that all of them are in its places at once. So a warpgroup can compute one half
//! of its columns after the other, and keeps nothing but the sums of one. It writes them to shared memory, has the copy engine
//! store them, and goes on at once, while the stores go on: those of a half are waited for when the other one has been
//! computed. Factors are loaded before the products that they go with. By the other way, storing from registers, a warp writes
//! 32 bytes in each of eight rows at a time.
//!
//! The copy engine leaves out what lies outside of C, but by 16 bytes: so the rows of C have a multiple of 4 elements.
//!
//! Tiles of lines that cannot be split are computed here, too, in plain fp32 ([`crate::gemm::exact`]): that is slow for each term,
//! of which there are few.
//!
//! 168 registers at launch, 240 in the warpgroups that multiply; 208 KB of shared memory, one block on a multiprocessor.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;

use super::operand::{KMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    LOADER_REGISTERS, LOADERS, M, MULTIPLIER_REGISTERS, PART, Pipeline, give_back, shared_bytes, tile_shape,
    warp_and_part,
};
#[cfg(not(target_arch = "nvptx64"))]
use super::scaled::describes;
use super::scaled::{ELEMENTS, HALF, SUMS, Scales, multiply_half, unfit};
use super::warp_number;
use crate::gemm::exact;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const SHORT_TILE: TileShape = tile_shape(32);

/// The most terms that there may be: those of two places.
pub const MOST_TERMS: u32 = 2 * SHORT_TILE.k;

/// The places for operands.
const RING: u32 = 3;
/// The rows of C of a warp.
const ROWS: u32 = 16;
/// The columns that a store has: 128 bytes.
const COLUMNS: u32 = 32;
/// The part of C that the copy engine stores at a time.
pub const STORED: [u32; 2] = [COLUMNS, ROWS];
/// The elements of such a part.
const BOX: u32 = ROWS * COLUMNS;
/// The elements that a warp has of a half.
const OF_WARP: u32 = ROWS * HALF;
/// The groups of columns of a half of which a thread has two neighbours each.
const GROUPS: usize = SUMS / 4;
/// Where the half of C is in the shared memory, in bytes: behind places and barriers, at a multiple of what a swizzle needs.
const C_OFFSET: u32 = shared_bytes(RING).next_multiple_of(1024);
/// The shared memory of a block, in bytes.
const SHARED_BYTES: u32 = C_OFFSET + M * HALF * 4;

/// The body of the kernel.
///
/// # Safety
/// Called by all threads of a block of 384, launched with [`SHARED_BYTES`] of shared memory, and with tensor maps of A and B
/// of `gemm` as they have been packed, what goes with them, and a tensor map of C.
#[inline(always)]
unsafe fn multiply_short(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    scales: [Scales<'_>; 2],
) {
    // SAFETY: all threads come here, and each role goes through all tiles and places. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let mut pipeline = Pipeline::<RING>::open();
        let warp = warp_number();
        if warp < LOADERS {
            hopper::release_registers::<LOADER_REGISTERS>();
            if warp == 0 {
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile(SHORT_TILE, block) {
                    if !unfit(scales).contains(&tile) {
                        pipeline.load::<KMajor, 1, ELEMENTS>(map_a, map_b, &tile, SHORT_TILE);
                    }
                    block += thread::grid_dim_x();
                }
            }
        } else {
            hopper::acquire_registers::<MULTIPLIER_REGISTERS>();
            multiply(pipeline, gemm, map_c, scales);
        }
    }
}

/// Multiplies and completes C, tile by tile.
///
/// # Safety
/// Called by all lanes of the warps that multiply.
#[inline(always)]
unsafe fn multiply(
    mut pipeline: Pipeline<RING>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    scales: [Scales<'_>; 2],
) {
    let mut block = thread::block_idx_x();
    while let Some(tile) = gemm.tile(SHORT_TILE, block) {
        // SAFETY: all lanes come here, and come to the same conclusions; places are read when they are full, and given back
        // when the products that read them have finished. The tile is this block's alone.
        unsafe {
            if unfit(scales).contains(&tile) {
                let threads = thread::block_dim_x() - LOADERS * warp::LANES;
                exact::compute_tile(&tile, SHORT_TILE, thread::thread_idx_x() - LOADERS * warp::LANES, threads);
            } else {
                let places = [pipeline, pipeline.next()];
                places[0].wait();
                if tile.steps(SHORT_TILE) == 1 {
                    compute_half::<1, 0>(&tile, gemm, [places[0]], map_c, scales);
                    compute_half::<1, HALF>(&tile, gemm, [places[0]], map_c, scales);
                } else {
                    places[1].wait();
                    compute_half::<2, 0>(&tile, gemm, places, map_c, scales);
                    compute_half::<2, HALF>(&tile, gemm, places, map_c, scales);
                    pipeline.advance();
                }
                pipeline.advance();
            }
        }
        block += thread::grid_dim_x();
    }
    // The memory of a block that has ended may be another one's.
    hopper::wait_for_stores::<0>();
}

/// Computes the half of a tile that begins `FIRST` columns from its first, and has the copy engine store it. After the second
/// half the places are given back.
///
/// # Safety
/// Called by all lanes of the warps that multiply, for a tile of this block; the places are full, and have all its terms.
#[inline(always)]
unsafe fn compute_half<const PLACES: usize, const FIRST: u32>(
    tile: &Tile<'_>,
    gemm: TiledGemm<'_>,
    places: [Pipeline<RING>; PLACES],
    map_c: TensorMapMut<'_>,
    [scales_a, scales_b]: [Scales<'_>; 2],
) {
    let lane = warp::lane_id();
    // SAFETY: all lanes come here; `c` is as large as the launch made it, and each warp has a part of it of its own. One lane,
    // always the same, has the stores made and waits for them, before the others write to what they read.
    unsafe {
        let (warp, part) = warp_and_part();
        let first_row = part * PART + warp * ROWS;
        let c = dynamic_shared::<f32>((C_OFFSET + first_row * HALF * 4) as usize, OF_WARP as usize);

        let (row, col) = (tile.row + first_row + lane / 4, tile.col + FIRST + 2 * (lane & 3));
        let factors = scales_a.factors(tile.product, gemm.m(), row);
        let factors = [factors.get_unchecked(0), factors.get_unchecked(8)];
        let others = scales_b.factors(tile.product, gemm.n(), col);
        let others: [[f32; 2]; GROUPS] = core::array::from_fn(|group| others.get2_unchecked(8 * group));

        let sums = multiply_half(&places, part * PART * ROW, FIRST * ROW * 4);
        if FIRST != 0 {
            for place in places {
                give_back(place.read());
            }
        }
        if hopper::elect_one() {
            hopper::wait_for_stores::<0>();
        }
        warp::sync_warp(warp::ALL_LANES);
        for group in 0..GROUPS {
            for second in 0..2 {
                let value = |i: usize| {
                    tile.factor() * (sums[4 * group + 2 * second + i] * (factors[second] * others[group][i]))
                };
                let place = place_in_c(lane / 4 + 8 * second as u32, 8 * group as u32 + 2 * (lane & 3));
                c.write2(place as usize, [value(0), value(1)]);
            }
        }
        hopper::fence_async_shared();
        warp::sync_warp(warp::ALL_LANES);
        if hopper::elect_one() {
            for box_of_c in 0..HALF / COLUMNS {
                let at = [tile.col + FIRST + box_of_c * COLUMNS, tile.row + first_row, tile.product];
                hopper::store_tile(c, (box_of_c * BOX) as usize, map_c, at);
            }
            hopper::commit_stores();
        }
    }
}

/// Where an element of a warp's rows is in its part of a half: a box of 32 columns after the other, and in the rows of 128 bytes of
/// a box the pieces of 16 bytes exchanged, as the copy engine's swizzle has it.
#[inline(always)]
fn place_in_c(row: u32, col: u32) -> u32 {
    let (box_of_c, col) = (col / COLUMNS, col % COLUMNS);
    box_of_c * BOX + row * COLUMNS + ((col / 4) ^ (row % 8)) * 4 + col % 4
}

/// Whether a tensor map is of the results of `gemm`.
#[cfg(not(target_arch = "nvptx64"))]
fn stores_results_of(map: &TensorMapMut<'_>, gemm: &TiledGemm<'_>) -> bool {
    let c = gemm.c();
    map.address() == c.first().data().as_mut_ptr().addr()
        && map.extents() == [gemm.n().into(), gemm.m().into(), c.count().into()]
        && map.tile() == [COLUMNS, ROWS, 1]
}

/// `C = α·A·B` in fp32, of packed operands of few terms.
#[kernel(
    block = 384,
    min_blocks = 1,
    arch = "sm_90a",
    dynamic_shared = SHARED_BYTES,
    requires(
        gemm.overwrites(),
        gemm.splits() == 1,
        gemm.n().is_multiple_of(4),
        gemm.a().first().cols() <= MOST_TERMS,
        gemm.blocks(SHORT_TILE) <= MAX_BLOCKS,
        describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().count()], SHORT_TILE.m),
        describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().count()], SHORT_TILE.n),
        stores_results_of(&map_c, &gemm),
        scales_a.are_of(gemm.a().count(), gemm.m()),
        scales_b.are_of(gemm.b().count(), gemm.n()),
        unfit([scales_a, scales_b]).has_flags_of(&gemm)
    )
)]
pub fn gemm_wgmma_packed_short_fp32_3xfp16(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    scales_a: Scales<'_>,
    scales_b: Scales<'_>,
    blocks: u32,
) {
    _ = blocks; // for the grid alone
    // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the tensor maps
    // describe and what goes with them.
    unsafe { multiply_short(map_a, map_b, gemm, map_c, [scales_a, scales_b]) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_wgmma_packed_short_fp32_3xfp16<'_> {
    fn grid(&self) -> Dim3 {
        grid(&self.gemm, SHORT_TILE, self.blocks)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_element_of_a_warps_rows_has_a_place_and_pairs_stay_together() {
        let places: HashSet<u32> = (0..OF_WARP).map(|i| place_in_c(i / HALF, i % HALF)).collect();
        assert_eq!(places.len(), OF_WARP as usize);
        assert!(places.iter().all(|&place| place < OF_WARP));
        for i in (0..OF_WARP).step_by(2) {
            assert_eq!(place_in_c(i / HALF, i % HALF) + 1, place_in_c(i / HALF, i % HALF + 1));
            assert!(place_in_c(i / HALF, i % HALF).is_multiple_of(2));
        }
    }
}
