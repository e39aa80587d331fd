//! How a warp stores the 16 rows of accumulators that `wgmma` has left it: by way of shared memory, so that neighbouring lanes have
//! what are neighbours in C.
//!
//! ```text
//!  registers                           shared memory                  C
//!
//!  lane 4g + q has, of each group      16 lines of up to 128          by lines: see `gemm::sum_lines`
//!  of 8 columns, columns 2q, 2q + 1    columns; or, where C is
//!  of rows g and g + 8                 column-major, as many lines
//!                                      of 16 rows
//! ```
//!
//! Where there is not enough shared memory for all columns, they go there a part at a time, and an epilogue's steps are done there, too
//! (`gemm::staged_steps`).
//!
//! From its registers, a warp would store 32 bytes in each of eight rows at a time; and of rows that begin anywhere, single elements.

use blocks::epilogue::StepsLeft;
use cuda_std::prelude::*;

use super::operand::{Major, row_of_fragment};
use crate::gemm::staged_steps::StagedLines;
use crate::gemm::sum_lines::{SumLines, SumsByLines, Together, read_neighbours};
use crate::gemm::tiles::Tile;

/// The rows that a warp has.
pub(super) const ROWS: u32 = 16;

/// The elements of shared memory that a warp needs for so many columns at a time.
pub(super) const fn len(width: u32) -> u32 {
    let (rows, columns) = (ROWS * pitch_of_rows(width, true), width * PITCH_OF_COLUMNS);
    if rows > columns { rows } else { columns }
}

/// The elements from one row to the next in shared memory: so many that the lanes of a write meet different banks, whether fragment rows are
/// neighbours or, where A is not K-major, every other row.
const fn pitch_of_rows(width: u32, a_is_k_major: bool) -> u32 {
    width + if a_is_k_major { 8 } else { 4 }
}

/// Those from one column to the next, likewise.
const PITCH_OF_COLUMNS: u32 = ROWS + 4;

/// What a warp has [written](write).
struct Written<'a> {
    memory: &'a SharedSlice<f32>,
    /// The elements from one line to the next.
    pitch: u32,
}

impl SumsByLines for Written<'_> {
    #[inline(always)]
    #[track_caller]
    unsafe fn sums<const N: usize>(&self, line: u32, at: u32) -> [f32; N] {
        // SAFETY: inside what has been written; lines begin at multiples of 16 bytes.
        unsafe { read_neighbours(self.memory, (line * self.pitch + at) as usize) }
    }
}

/// The elements from one line to the next in shared memory.
#[inline(always)]
fn pitch<A: Major>(width: u32, is_column_major: bool) -> u32 {
    if is_column_major { PITCH_OF_COLUMNS } else { pitch_of_rows(width, A::K) }
}

/// Writes 16 rows of `WIDTH` columns of sums to shared memory: `sums(group, half)` are this lane's columns `2·(lane mod 4)` and the next one of each group
/// of eight, of [fragment row](row_of_fragment) `lane / 4 + 8·half`.
///
/// # Safety
/// All lanes of the warp come here, with [`len`] elements of `memory` that no other warp uses, from a multiple of 16 bytes on, and nothing
/// asynchronous under way to them. What another lane reads there, it has read before.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn write<A: Major, const WIDTH: u32>(
    memory: &SharedSlice<f32>,
    is_column_major: bool,
    sums: impl Fn(u32, u32) -> [f32; 2],
) {
    const { assert!(matches!(WIDTH, 32 | 64 | 128)) };
    let lane = warp::lane_id();
    let rows = [0, 8].map(|half| row_of_fragment::<A>(lane / 4 + half));
    let pitch = pitch::<A>(WIDTH, is_column_major);
    if is_column_major {
        let first = rows.map(|row| 2 * (lane & 3) * pitch + row);
        for group in 0..WIDTH / 8 {
            for half in 0..2 {
                let values = sums(group, half);
                for i in 0..2 {
                    let memory = memory.skip(((8 * group + i) * pitch) as usize);
                    // SAFETY: inside the lines; each lane has elements of its own.
                    unsafe { memory.write(first[half as usize] as usize, values[i as usize]) };
                }
            }
        }
    } else {
        let first = rows.map(|row| row * pitch + 2 * (lane & 3));
        for group in 0..WIDTH / 8 {
            for half in 0..2 {
                // SAFETY: as above; columns are even.
                unsafe { memory.skip((8 * group) as usize).write2(first[half as usize] as usize, sums(group, half)) };
            }
        }
    }
}

/// Where [`write`] has left the sum of a row and a column, both counted from the first of the 16 rows.
#[inline(always)]
pub(super) fn place<A: Major>(width: u32, is_column_major: bool, [row, col]: [u32; 2]) -> u32 {
    let [line, at] = if is_column_major { [col, row] } else { [row, col] };
    line * pitch::<A>(width, is_column_major) + at
}

/// The epilogue of 16 rows of `WIDTH` columns of C, from (`row`, `col`) on, by one warp, of sums that it has [written](write).
///
/// # Safety
/// As for [`write`], as which `is_column_major` is; the warp has met since then. No other warp accesses these elements of C. `row` and `col` are
/// multiples of 4. The steps fit the results of the tile's product.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store<A: Major, const WIDTH: u32>(
    tile: &Tile<'_>,
    steps: StepsLeft<'_>,
    memory: &SharedSlice<f32>,
    is_column_major: bool,
    [row, col]: [u32; 2],
) {
    let threads = Together { number: warp::lane_id(), count: warp::LANES };
    let of_rows = SumLines { are_columns: false, count: ROWS, length: WIDTH };
    let of_columns = SumLines { are_columns: true, count: WIDTH, length: ROWS };
    let mut tile = *tile;
    // SAFETY: the caller's promise. The warp meets again before a lane reads what another one has finished.
    unsafe {
        // What C was is a step, too: here it is in registers one at a time.
        if !steps.is_empty() || !tile.overwrites() {
            let pitch = pitch::<A>(WIDTH, is_column_major);
            let staged = StagedLines {
                lines: if is_column_major { of_columns } else { of_rows },
                first: [row, col],
                memory,
                place: |line, at| line * pitch + at,
            };
            staged.combine(&tile, threads);
            staged.apply(steps, tile.product, [tile.c.rows(), tile.c.cols()], threads);
            warp::sync_warp(warp::ALL_LANES);
            tile = tile.of_finished_sums();
        }
        // (Called with what a branch makes plain, because one way stores all lines.)
        if is_column_major {
            let sums = Written { memory, pitch: pitch::<A>(WIDTH, true) };
            of_columns.store::<4, 4, false>(&tile, [row, col], threads, &sums);
        } else {
            let sums = Written { memory, pitch: pitch::<A>(WIDTH, false) };
            of_rows.store::<4, 4, false>(&tile, [row, col], threads, &sums);
        }
    }
}
