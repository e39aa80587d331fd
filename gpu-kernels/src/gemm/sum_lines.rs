//! Stores sums that are in shared memory: the epilogue of kernels whose threads do not have what is side by side in C.
//!
//! ```text
//!  shared memory          C
//!
//!  lines of sums: rows,   vectors of four elements of a line where these are aligned; otherwise single elements, so that neighbouring
//!  or columns where C     threads have neighbours; element by element where C has gaps between them
//!  is column-major
//! ```
//!
//! An instruction more for each element is much here: a block of 256×128 has 32768 of them, two warps on a scheduler, and nothing else to do.
//! So the first two ways have little besides loads, multiplications by α and stores. Where C is read, all that a thread reads at a time is under way
//! before it stores the first of it: C may be far away.

use blocks::epilogue::{store_vector, takes_vectors_of};
use cuda_std::prelude::*;

use super::tiles::Tile;
use crate::MatrixMut;

/// Sums by lines.
pub(crate) trait SumsByLines {
    /// The sums of `N` neighbours in a line, 1 or 4, from number `at` on, a multiple of `N`.
    ///
    /// # Safety
    /// They have been written, before this thread has met those that wrote them.
    unsafe fn sums<const N: usize>(&self, line: u32, at: u32) -> [f32; N];
}

/// `N` neighbours in shared memory, 1 or 4, at once.
///
/// # Safety
/// They are inside, written before, and from a multiple of `N` on.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn read_neighbours<const N: usize>(memory: &SharedSlice<f32>, at: usize) -> [f32; N] {
    const { assert!(matches!(N, 1 | 4)) };
    // SAFETY: the caller's promise.
    let all = unsafe { if N == 1 { [memory.read(at); 4] } else { memory.read4(at) } };
    core::array::from_fn(|i| all[i])
}

/// Whether the lines of C are its columns: neighbours in a column are nearer to one another than those in a row.
#[inline(always)]
pub(crate) fn is_column_major(c: &MatrixMut<'_>) -> bool {
    c.row_stride() < c.col_stride()
}

/// Threads, lanes of a warp or all of a block, that store lines together.
#[derive(Clone, Copy)]
pub(crate) struct Together {
    /// Which of them this is.
    pub(crate) number: u32,
    pub(crate) count: u32,
}

/// So many lines of sums, rows or columns, of a tile.
#[derive(Clone, Copy)]
pub(crate) struct SumLines {
    /// Whether they are columns.
    pub(crate) are_columns: bool,
    pub(crate) count: u32,
    /// 16, 32, 64 or 128.
    pub(crate) length: u32,
}

impl SumLines {
    /// The epilogue of the lines, of which (`row`, `col`) of C has the first sum. Every thread loads `LOADS` vectors, 1 or 4, or `SINGLES` elements
    /// before it stores the first of them. Without `BLENDS`, the tile [overwrites](Tile::overwrites) C: for kernels that have no registers for what C was.
    ///
    /// # Safety
    /// All of the threads come here, with the same arguments; the sums can be [read](SumsByLines::sums), and with several loads, so many lines as that
    /// takes at a time divide the lines. A line has no more elements than the threads load at a time. No other thread accesses these elements of C. `row` and `col` are multiples of 4.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn store<const LOADS: usize, const SINGLES: usize, const BLENDS: bool>(
        self,
        tile: &Tile<'_>,
        [row, col]: [u32; 2],
        threads: Together,
        sums: &impl SumsByLines,
    ) {
        let (c, first) = match self.are_columns {
            true => (tile.c.transposed(), [col, row]),
            false => (tile.c, [row, col]),
        };
        // SAFETY: the caller's promise, and as has been found.
        unsafe {
            if !c.is_contiguous_along_rows() {
                self.store_any(tile, first, threads, sums);
            } else if takes_vectors_of(&c, 4) {
                self.store_vectors::<4, LOADS, BLENDS>(tile, &c, first, threads, sums);
            } else {
                self.store_vectors::<1, SINGLES, BLENDS>(tile, &c, first, threads, sums);
            }
        }
    }

    /// Stores lines of C, which are the rows of `c`, by vectors of `N` elements.
    ///
    /// # Safety
    /// As for [`SumLines::store`]; neighbours in lines of C are neighbours in memory, and vectors of `N` of them are aligned.
    #[inline(always)]
    #[track_caller]
    unsafe fn store_vectors<const N: usize, const LOADS: usize, const BLENDS: bool>(
        self,
        tile: &Tile<'_>,
        c: &MatrixMut<'_>,
        [line, at]: [u32; 2],
        threads: Together,
        sums: &impl SumsByLines,
    ) {
        let width = N as u32;
        // The threads have a piece of a line at a time, or several lines.
        let across = if self.length / width < threads.count { self.length / width } else { threads.count };
        let (pieces, together) = (self.length / width / across, threads.count / across);
        let lines_at_a_time = LOADS as u32 / pieces;
        let (factor, there) = (tile.factor(), c.rows().saturating_sub(line).min(self.count));
        let (first, own) = (threads.number / across, threads.number % across * width);
        let at = at + own;
        let (mut own_line, mut offset) = (first, c.offset(line + first, at));
        let step = c.row_stride() as usize * together as usize;
        while own_line < there {
            // The line and the number in it of a load, both counted from the first; whether it is inside C, and where.
            let skipped = |load: usize| (load as u32 / pieces, load as u32 % pieces * across * width);
            let is_inside = |load| {
                let (i, skipped) = skipped(load);
                own_line + i * together < there && at + skipped + (width - 1) < c.cols()
            };
            let place = |load| {
                let (i, skipped) = skipped(load);
                offset + i as usize * step + skipped as usize
            };
            let sums_of = |load| {
                let (i, skipped) = skipped(load);
                // SAFETY: inside the lines, by the caller's promise.
                unsafe { sums.sums::<N>(own_line + i * together, own + skipped) }
            };
            // SAFETY: only called for what is inside C, and aligned, by the caller's promise; it is this thread's alone.
            let store = |load, values| unsafe { store_vector(c.data(), place(load), values) };
            if !BLENDS || tile.overwrites() {
                let mut values = [[0.0; N]; LOADS];
                for load in 0..LOADS {
                    if is_inside(load) {
                        values[load] = sums_of(load);
                    }
                }
                for load in 0..LOADS {
                    if is_inside(load) {
                        store(load, values[load].map(|sum| factor * sum));
                    }
                }
            } else {
                let mut before = [[0.0; N]; LOADS];
                for load in 0..LOADS {
                    if is_inside(load) {
                        // SAFETY: as for the stores.
                        before[load] = unsafe { c.data().get_vector_unchecked(place(load)) };
                    }
                }
                for load in 0..LOADS {
                    if is_inside(load) {
                        let sums = sums_of(load);
                        store(load, core::array::from_fn(|i| tile.blended(sums[i], before[load][i])));
                    }
                }
            }
            offset += lines_at_a_time as usize * step;
            own_line = hint::keep_rolled(own_line + lines_at_a_time * together);
        }
        if N > 1 && at < c.cols() && at + (width - 1) >= c.cols() {
            // The last columns of C, where they are no whole vector. (A vector is all of a thread's piece of a line then.)
            let mut own_line = first;
            while own_line < there {
                let mut i = 0;
                while at + i < c.cols() {
                    // SAFETY: inside the lines, and inside C.
                    unsafe {
                        let [sum] = sums.sums::<1>(own_line, own + i);
                        let place = c.offset(line + own_line, at + i);
                        let value = match !BLENDS || tile.overwrites() {
                            true => factor * sum,
                            false => tile.blended(sum, c.data().get_unchecked(place)),
                        };
                        c.data().set_unchecked(place, value);
                    }
                    i = hint::keep_rolled(i + 1);
                }
                own_line = hint::keep_rolled(own_line + together);
            }
        }
    }

    /// Stores elements that may have any distance.
    ///
    /// # Safety
    /// As for [`SumLines::store`].
    #[inline(always)]
    #[track_caller]
    unsafe fn store_any(self, tile: &Tile<'_>, [line, at]: [u32; 2], threads: Together, sums: &impl SumsByLines) {
        let mut element = threads.number;
        while element < self.count * self.length {
            let (own_line, own) = match is_column_major(&tile.c) == self.are_columns {
                true => (element / self.length, element % self.length),
                false => (element % self.count, element / self.count),
            };
            let place = [line + own_line, at + own];
            let [row, col] = if self.are_columns { [place[1], place[0]] } else { place };
            // SAFETY: inside the lines; the caller's promise.
            unsafe {
                let [sum] = sums.sums::<1>(own_line, own);
                tile.epilogue_element(row, col, sum);
            }
            element = hint::keep_rolled(element + threads.count);
        }
    }
}
