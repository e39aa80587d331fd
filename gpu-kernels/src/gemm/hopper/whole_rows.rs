//! How a warp stores the 16 rows of accumulators that `wgmma` has left it: by way of shared memory, so that neighbouring lanes have
//! what are neighbours in C.
//!
//! ```text
//!  registers                           shared memory                  C
//!
//!  lane 4g + q has, of each group      16 lines of up to 128          vectors of four elements of a line; where lines begin
//!  of 8 columns, columns 2q, 2q + 1    columns; or, where C is        between vectors, single elements, side by side
//!  of rows g and g + 8                 column-major, as many lines
//!                                      of 16 rows
//! ```
//!
//! Where there is not enough shared memory for all columns, they go there a quarter at a time.
//!
//! From its registers, a warp would store 32 bytes in each of eight rows at a time; and of rows that begin anywhere, single elements. An
//! instruction more for each element is much here: a block has 32768 of them, two warps on a scheduler, and nothing else to do. So the usual ways
//! have little besides loads, multiplications by α and stores; what reads C has a way of its own.

use blocks::epilogue::{store_vector, takes_vectors_of};
use cuda_std::prelude::*;

use super::operand::{Major, row_of_fragment};
use crate::MatrixMut;
use crate::gemm::tiles::Tile;

/// The rows that a warp has.
const ROWS: u32 = 16;

/// The elements of shared memory that a warp needs for so many columns at a time.
pub(super) const fn len(width: u32) -> u32 {
    let (rows, columns) = (Lines::of_rows(width, true).len(), Lines::of_columns(width).len());
    if rows > columns { rows } else { columns }
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
    let lines = Lines::of::<A>(WIDTH, is_column_major);
    if is_column_major {
        let first = rows.map(|row| 2 * (lane & 3) * lines.pitch + row);
        for group in 0..WIDTH / 8 {
            for half in 0..2 {
                let values = sums(group, half);
                for i in 0..2 {
                    let memory = memory.skip(((8 * group + i) * lines.pitch) as usize);
                    // SAFETY: inside the lines; each lane has elements of its own.
                    unsafe { memory.write(first[half as usize] as usize, values[i as usize]) };
                }
            }
        }
    } else {
        let first = rows.map(|row| row * lines.pitch + 2 * (lane & 3));
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
    let lines = Lines::of::<A>(width, is_column_major);
    let [line, at] = if is_column_major { [col, row] } else { [row, col] };
    line * lines.pitch + at
}

/// The epilogue of 16 rows of `WIDTH` columns of C, from (`row`, `col`) on, by one warp, of sums that it has [written](write).
///
/// # Safety
/// As for [`write`], as which `is_column_major` is; the warp has met since then. No other warp accesses these elements of C. `row` and `col` are
/// multiples of 4.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store<A: Major, const WIDTH: u32>(
    tile: &Tile<'_>,
    memory: &SharedSlice<f32>,
    is_column_major: bool,
    [row, col]: [u32; 2],
) {
    // (Called with what a branch makes plain, because one way stores all lines.)
    // SAFETY: the caller's promise.
    unsafe {
        if is_column_major {
            Lines::of::<A>(WIDTH, true).store(tile, &tile.c.transposed(), memory, [col, row]);
        } else {
            Lines::of::<A>(WIDTH, false).store(tile, &tile.c, memory, [row, col]);
        }
    }
}

/// Writes and stores 16 rows of four times `WIDTH` columns by rows, a part after the other; `sums` has groups of all of them.
///
/// # Safety
/// As for [`write`] and [`store`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store_in_four_parts<A: Major, const WIDTH: u32>(
    tile: &Tile<'_>,
    memory: &SharedSlice<f32>,
    [row, col]: [u32; 2],
    sums: impl Fn(u32, u32) -> [f32; 2],
) {
    // (Not a loop, whose index would put the accumulators into memory.)
    // SAFETY: the caller's promise.
    unsafe {
        store_part::<A, WIDTH, 0>(tile, memory, [row, col], &sums);
        store_part::<A, WIDTH, 1>(tile, memory, [row, col], &sums);
        store_part::<A, WIDTH, 2>(tile, memory, [row, col], &sums);
        store_part::<A, WIDTH, 3>(tile, memory, [row, col], &sums);
    }
}

/// Part `PART` of these.
///
/// # Safety
/// As for [`write`] and [`store`].
#[inline(always)]
#[track_caller]
unsafe fn store_part<A: Major, const WIDTH: u32, const PART: u32>(
    tile: &Tile<'_>,
    memory: &SharedSlice<f32>,
    [row, col]: [u32; 2],
    sums: &impl Fn(u32, u32) -> [f32; 2],
) {
    // SAFETY: the warp meets before what another lane has read is overwritten, and before it reads what another lane has written.
    unsafe {
        warp::sync_warp(warp::ALL_LANES);
        write::<A, WIDTH>(memory, false, |group, half| sums(PART * WIDTH / 8 + group, half));
        warp::sync_warp(warp::ALL_LANES);
        store::<A, WIDTH>(tile, memory, false, [row, col + PART * WIDTH]);
    }
}

/// Whether the lines of C are its columns: neighbours in a column are nearer to one another than those in a row.
#[inline(always)]
pub(super) fn is_column_major(c: &MatrixMut<'_>) -> bool {
    c.row_stride() < c.col_stride()
}

/// Lines in shared memory: rows, or columns, of what a warp stores.
#[derive(Clone, Copy)]
struct Lines {
    are_columns: bool,
    count: u32,
    length: u32,
    /// The elements from one line to the next: so many that the lanes of a write meet different banks.
    pitch: u32,
}

impl Lines {
    /// The rows of so many columns. (Where A is not K-major, neighbours among the fragment's rows are every other row.)
    const fn of_rows(width: u32, a_is_k_major: bool) -> Self {
        Self { are_columns: false, count: ROWS, length: width, pitch: width + if a_is_k_major { 8 } else { 4 } }
    }

    /// The columns, as many as these.
    const fn of_columns(width: u32) -> Self {
        Self { are_columns: true, count: width, length: ROWS, pitch: ROWS + 4 }
    }

    #[inline(always)]
    fn of<A: Major>(width: u32, is_column_major: bool) -> Self {
        if is_column_major { Self::of_columns(width) } else { Self::of_rows(width, A::K) }
    }

    const fn len(self) -> u32 {
        self.count * self.pitch
    }

    /// Stores the lines: (`line`, `at`) is the first element of the first one in `c`, which has the lines of the tile's C as its rows.
    ///
    /// # Safety
    /// As for [`store`].
    #[inline(always)]
    #[track_caller]
    unsafe fn store(self, tile: &Tile<'_>, c: &MatrixMut<'_>, memory: &SharedSlice<f32>, [line, at]: [u32; 2]) {
        // SAFETY: the caller's promise, and as has been found.
        unsafe {
            if !tile.overwrites() || !c.is_contiguous_along_rows() {
                self.store_any(tile, memory, [line, at]);
            } else if takes_vectors_of(c, 4) {
                self.overwrite::<4>(tile, c, memory, [line, at]);
            } else {
                self.overwrite::<1>(tile, c, memory, [line, at]);
            }
        }
    }

    /// Overwrites lines of C, by vectors of `N` elements.
    ///
    /// # Safety
    /// As for [`Lines::store`]; β is zero, neighbours in lines of C are neighbours in memory, and vectors of `N` of them are aligned.
    #[inline(always)]
    #[track_caller]
    unsafe fn overwrite<const N: usize>(
        self,
        tile: &Tile<'_>,
        c: &MatrixMut<'_>,
        memory: &SharedSlice<f32>,
        [line, at]: [u32; 2],
    ) {
        /// The loads from shared memory that are under way before what they load is stored.
        const LOADS: u32 = 4;
        let width = N as u32;
        // A warp has a piece of a line at a time, or several lines.
        let lanes = if self.length / width < warp::LANES { self.length / width } else { warp::LANES };
        let (pieces, together) = (self.length / width / lanes, warp::LANES / lanes);
        let (factor, there) = (tile.factor(), c.rows().saturating_sub(line).min(self.count));
        let lane = warp::lane_id();
        let (mut own_line, own) = (lane / lanes, lane % lanes * width);
        let at = at + own;
        let mut offset = c.offset(line + own_line, at);
        let step = c.row_stride() as usize * together as usize;
        let mut place = own_line * self.pitch + own;
        let lines_at_a_time = LOADS / pieces;
        while own_line < there {
            let values: [[f32; N]; LOADS as usize] = core::array::from_fn(|load| {
                let (i, piece) = (load as u32 / pieces, load as u32 % pieces);
                let skipped = i * together * self.pitch + piece * lanes * width;
                // SAFETY: inside the lines, of which there are a multiple of those that are read at a time; vectors are aligned.
                unsafe { read(&memory.skip(skipped as usize), place as usize) }
            });
            for load in 0..LOADS {
                let (i, at) = (load / pieces, at + load % pieces * lanes * width);
                let values = values[load as usize].map(|sum| factor * sum);
                if own_line + i * together < there && at + (width - 1) < c.cols() {
                    let offset = offset + i as usize * step + (load % pieces * lanes * width) as usize;
                    // SAFETY: inside C, as just compared, and aligned, by the caller's promise.
                    unsafe { store_vector(c.data(), offset, values) };
                }
            }
            offset += lines_at_a_time as usize * step;
            place += lines_at_a_time * together * self.pitch;
            own_line = hint::keep_rolled(own_line + lines_at_a_time * together);
        }
        if N > 1 && at < c.cols() && at + (width - 1) >= c.cols() {
            // The last columns of C, where they are no whole vector.
            let mut own_line = lane / lanes;
            while own_line < there {
                let mut i = 0;
                while at + i < c.cols() {
                    // SAFETY: inside the lines, and inside C.
                    unsafe {
                        let sum = memory.read((own_line * self.pitch + own + i) as usize);
                        c.data().set_unchecked(c.offset(line + own_line, at + i), factor * sum);
                    }
                    i = hint::keep_rolled(i + 1);
                }
                own_line = hint::keep_rolled(own_line + together);
            }
        }
    }

    /// Stores elements that may have any distance, and are read before.
    ///
    /// # Safety
    /// As for [`Lines::store`].
    #[inline(always)]
    #[track_caller]
    unsafe fn store_any(self, tile: &Tile<'_>, memory: &SharedSlice<f32>, [line, at]: [u32; 2]) {
        let mut element = warp::lane_id();
        while element < self.count * self.length {
            let (own_line, own) = (element / self.length, element % self.length);
            let place = [line + own_line, at + own];
            let [row, col] = if self.are_columns { [place[1], place[0]] } else { place };
            // SAFETY: inside the lines; the caller's promise.
            unsafe { tile.epilogue_element(row, col, memory.read((own_line * self.pitch + own) as usize)) };
            element = hint::keep_rolled(element + warp::LANES);
        }
    }
}

/// Reads 1 or 4 elements at once.
///
/// # Safety
/// As for [`SharedSlice::read4`].
#[inline(always)]
#[track_caller]
unsafe fn read<const N: usize>(memory: &SharedSlice<f32>, at: usize) -> [f32; N] {
    const { assert!(N == 1 || N == 4) };
    // SAFETY: the caller's promise.
    unsafe {
        let all = if N == 1 { [memory.read(at); 4] } else { memory.read4(at) };
        core::array::from_fn(|i| all[i])
    }
}
