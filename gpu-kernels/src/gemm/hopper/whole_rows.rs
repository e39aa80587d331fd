//! How a warp stores the 16 rows of accumulators that `wgmma` has left it: from its registers, or row by row, by way of shared memory, so
//! that neighbouring lanes have neighbouring columns.
//!
//! ```text
//!  registers                           shared memory             C
//!
//!  lane 4g + q has, of each group      16 rows of up to 128      a row after the other, 128 bytes at a time
//!  of 8 columns, columns 2q, 2q + 1    columns
//!  of rows g and g + 8
//! ```
//!
//! Where there is not enough shared memory for all columns, they go there 32 at a time.
//!
//! Stored from the registers, a warp's 256 bytes go to eight rows, 32 bytes to each. Where rows begin at sectors of the second-level cache, which
//! have as many, that is the shorter way. Where they begin anywhere, each of these pieces touches two sectors, and each sector has to be put
//! together from several stores: that takes longer than the way through shared memory.

use blocks::epilogue::takes_vectors_of;
use cuda_std::prelude::*;

use crate::MatrixMut;
use crate::gemm::tiles::Tile;

/// The elements of shared memory that a warp needs for so many columns at a time.
pub(super) const fn len(width: u32) -> u32 {
    16 * pitch(width)
}

/// The elements from one row to the next in shared memory, so that the lanes of a write meet different banks.
const fn pitch(width: u32) -> u32 {
    width + 8
}

/// The elements of a sector of the second-level cache.
pub(super) const SECTOR: u32 = 8;
/// The rows that are read before the first of them is stored.
const AT_A_TIME: usize = 4;

/// Whether results are better stored row by row: rows of C begin between sectors, or have gaps between their elements, but are not columns.
#[inline(always)]
pub(super) fn are_better_stored_by_rows(c: &MatrixMut<'_>) -> bool {
    !takes_vectors_of(c, SECTOR) && c.col_stride() <= c.row_stride()
}

/// The epilogue of 16 rows of `COLUMNS` columns, 32, 64 or 128, from column `col` on, by one warp, from its registers. Fragment row `i` is row `row(i)` of C, and
/// `accumulator(4·j + 2·h + i)` is this lane's column `8·j + 2·(lane mod 4) + i` of fragment row `lane / 4 + 8·h`.
///
/// # Safety
/// No other thread accesses these elements of C. `col` is even.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store_fragments<const COLUMNS: u32>(
    tile: &Tile<'_>,
    row: impl Fn(u32) -> u32,
    col: u32,
    accumulator: impl Fn(usize) -> f32,
) {
    const { assert!(matches!(COLUMNS, 32 | 64 | 128)) };
    // SAFETY: the caller's promise.
    unsafe {
        match COLUMNS {
            128 => store_fragment_rows::<16>(tile, row, col, accumulator),
            64 => store_fragment_rows::<8>(tile, row, col, accumulator),
            _ => store_fragment_rows::<{ 32 / 8 }>(tile, row, col, accumulator),
        }
    }
}

/// The rows of a lane, of so many groups of 8 columns.
///
/// # Safety
/// As for [`store_fragments`].
#[inline(always)]
#[track_caller]
unsafe fn store_fragment_rows<const GROUPS: usize>(
    tile: &Tile<'_>,
    row: impl Fn(u32) -> u32,
    col: u32,
    accumulator: impl Fn(usize) -> f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        store_fragment_row::<0, GROUPS>(tile, &row, col, &accumulator);
        store_fragment_row::<1, GROUPS>(tile, &row, col, &accumulator);
    }
}

/// The first or the second row of a lane.
///
/// # Safety
/// As for [`store_fragments`].
#[inline(always)]
#[track_caller]
unsafe fn store_fragment_row<const HALF: usize, const GROUPS: usize>(
    tile: &Tile<'_>,
    row: &impl Fn(u32) -> u32,
    col: u32,
    accumulator: &impl Fn(usize) -> f32,
) {
    let lane = warp::lane_id();
    let sum = |group: usize, i: usize| accumulator(4 * group + 2 * HALF + i);
    let groups = core::array::from_fn(|group| [sum(group, 0), sum(group, 1)]);
    // SAFETY: the caller's promise.
    unsafe {
        let row = row(lane / 4 + 8 * HALF as u32);
        tile.epilogue_groups::<2, GROUPS>(row, col + 2 * (lane & 3), 8, groups)
    }
}

/// The same of `COLUMNS` columns, row by row, `WIDTH` of them at a time: a multiple of 32 that divides `COLUMNS`.
///
/// # Safety
/// All lanes of the warp come here, with [`len`] elements of `memory` that no other warp uses, from a multiple of 16 bytes on, and nothing
/// asynchronous under way to them. No other warp accesses these elements of C. `col` is a multiple of 4.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store_by_rows<const COLUMNS: u32, const WIDTH: u32>(
    tile: &Tile<'_>,
    memory: &SharedSlice<f32>,
    row: impl Fn(u32) -> u32,
    col: u32,
    accumulator: impl Fn(usize) -> f32,
) {
    const { assert!(COLUMNS.is_multiple_of(WIDTH) && WIDTH.is_multiple_of(32)) };
    let lane = warp::lane_id();
    let groups = WIDTH as usize / 8;
    for part in 0..(COLUMNS / WIDTH) as usize {
        // SAFETY: each lane writes elements of its own; the warp meets before what another lane has read there is overwritten, and before
        // it reads what another lane has written. Elements of C have one lane each, by the caller's promise.
        unsafe {
            warp::sync_warp(warp::ALL_LANES);
            let first = lane / 4 * pitch(WIDTH) + 2 * (lane & 3);
            for group in 0..groups {
                for half in 0..2 {
                    let i = 4 * (part * groups + group) + 2 * half;
                    let memory = memory.skip(half * 8 * pitch(WIDTH) as usize + 8 * group);
                    memory.write2(first as usize, [accumulator(i), accumulator(i + 1)]);
                }
            }
            warp::sync_warp(warp::ALL_LANES);
            let col = col + part as u32 * WIDTH + lane;
            let mut done = 0;
            while done < 16 {
                let memory = memory.skip((done * pitch(WIDTH)) as usize);
                let rows: [[f32; 4]; AT_A_TIME] = core::array::from_fn(|i| {
                    core::array::from_fn(|j| {
                        let is_there = (j as u32) < WIDTH / 32;
                        let memory = memory.skip(i * pitch(WIDTH) as usize + 32 * j);
                        if is_there { memory.read(lane as usize) } else { 0.0 }
                    })
                });
                for i in 0..AT_A_TIME {
                    for j in 0..WIDTH / 32 {
                        tile.epilogue_element(row(done + i as u32), col + 32 * j, rows[i][j as usize]);
                    }
                }
                done = hint::keep_rolled(done + AT_A_TIME as u32);
            }
        }
    }
}
