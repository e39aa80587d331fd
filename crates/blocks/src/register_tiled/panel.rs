//! A panel of an operand: where its elements lie in shared memory, and its way there from global memory.

use core::marker::PhantomData;

use cuda_std::prelude::*;

use crate::major::Major;
use crate::matrix::Matrix;

/// The k of a panel.
pub(super) const PANEL_K: usize = 16;

/// The k that a round of the inner loop multiplies: two, so that what is loaded for one goes to other registers than what is
/// loaded for the next, and no more, so that the assembler does not find another order for them.
pub(super) const ROUND: usize = 2;

/// The elements by which a row of a panel, and of the tile of accumulators, is longer than it has to be.
pub(super) const PADDING: usize = 4;

/// The elements between the rows of one round and those of the next: so many that what four threads write at a time, which
/// have the same columns of rows four apart, lies in different banks of shared memory.
const GAP: usize = 4;

/// The elements of the rows of a round in a panel of so many columns.
pub(super) const fn round_len(width: usize) -> usize {
    ROUND * (width + PADDING) + GAP
}

/// The elements of a panel of so many columns.
pub(super) const fn panel_len(width: usize) -> usize {
    PANEL_K / ROUND * round_len(width)
}

/// A panel of an operand: [`PANEL_K`] rows, each with the tile's rows of A or columns of B, and what of it a thread loads:
/// `LOADS` times four elements that are neighbours in memory. If the operand is K-major, these lie below each other in the panel,
/// else side by side.
pub(super) struct Panel<'a, O: Major, const LOADS: usize> {
    /// Its rows are k.
    matrix: Matrix<'a>,
    /// The first row of the panel in the matrix, and the row where the block's k ends.
    row: u32,
    row_end: u32,
    /// The first column of the panel in the matrix.
    col: u32,
    /// The offset of this thread's first element.
    offset: u64,
    /// Whether all columns of the panel are inside the matrix.
    is_inside: bool,
    /// Whether four neighbours are one aligned vector.
    has_vectors: bool,
    thread: usize,
    threads: usize,
    order: PhantomData<O>,
}

impl<'a, O: Major, const LOADS: usize> Panel<'a, O, LOADS> {
    /// The first panel of a tile with k from `row` to `row_end`, which are rows of the matrix.
    #[inline(always)]
    pub(super) fn new(matrix: Matrix<'a>, col: u32, row: u32, row_end: u32, thread: usize, threads: usize) -> Self {
        let multiple_of_4 = |value: u64| value & 3 == 0;
        let (other_stride, width) =
            (if O::K { matrix.col_stride() } else { matrix.row_stride() }, (LOADS * 4 * threads / PANEL_K) as u32);
        let mut panel = Self {
            matrix,
            row,
            row_end,
            col,
            offset: 0,
            is_inside: matrix.cols() >= width && col <= matrix.cols() - width,
            has_vectors: multiple_of_4(other_stride)
                && multiple_of_4(matrix.data().as_ptr() as u64 / size_of::<f32>() as u64),
            thread,
            threads,
            order: PhantomData,
        };
        let (row, col) = panel.position(0);
        panel.offset = panel.place(panel.row + row as u32, panel.col + col as u32);
        panel
    }

    /// The offset of an element in memory, one of whose strides is known to be 1.
    #[inline(always)]
    fn place(&self, row: u32, col: u32) -> u64 {
        let (row, col) = (u64::from(row), u64::from(col));
        if O::K { row + col * self.matrix.col_stride() } else { row * self.matrix.row_stride() + col }
    }

    /// Where in the panel the first of the four elements of load `load` is.
    #[inline(always)]
    fn position(&self, load: usize) -> (usize, usize) {
        let width = LOADS * 4 * self.threads / PANEL_K;
        let i = self.thread + load * self.threads;
        if O::K {
            (self.thread % 4 * 4, self.thread / 4 * LOADS + load) // four threads for a column
        } else {
            (i / (width / 4), i % (width / 4) * 4)
        }
    }

    /// The distance in memory from the first element of load 0 to that of load `load`: the same for all threads.
    #[inline(always)]
    fn distance(&self, load: usize) -> u64 {
        let width = LOADS * 4 * self.threads / PANEL_K;
        let i = load * self.threads;
        if O::K { load as u64 * self.matrix.col_stride() } else { (i / (width / 4)) as u64 * self.matrix.row_stride() }
    }

    /// Goes to the panel with the following k.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.row += PANEL_K as u32;
        self.offset += PANEL_K as u64 * if O::K { 1 } else { self.matrix.row_stride() };
    }

    /// Loads this thread's part, with zeros outside the matrix and beyond the block's k.
    ///
    /// # Safety
    /// The stride along which `O` says that elements are neighbours is 1.
    #[inline(always)]
    pub(super) unsafe fn load(&self) -> [[f32; 4]; LOADS] {
        let data = self.matrix.data();
        let at = |load: usize| (self.offset + self.distance(load)) as usize;
        if self.is_inside && self.row + PANEL_K as u32 <= self.row_end {
            if self.has_vectors {
                // SAFETY: the whole panel is inside the matrix; and aligned: the base is, its stride is a multiple of four
                // elements, and so are the panel's first row, its first column and the position in it.
                return core::array::from_fn(|load| unsafe { data.get4_streaming_unchecked(at(load)) });
            }
            return core::array::from_fn(|load| {
                // SAFETY: the whole panel is inside the matrix.
                core::array::from_fn(|j| unsafe { data.get_unchecked(at(load) + j) })
            });
        }
        core::array::from_fn(|load| {
            let (row, col) = self.position(load);
            let (row, col) = (self.row + row as u32, self.col + col as u32);
            core::array::from_fn(|j| {
                let (row, col) = if O::K { (row + j as u32, col) } else { (row, col + j as u32) };
                if row < self.row_end && col < self.matrix.cols() {
                    // SAFETY: inside the matrix: the block's k ends with its rows or before.
                    unsafe { data.get_unchecked(at(load) + j) }
                } else {
                    0.0
                }
            })
        })
    }

    /// Writes what [`Panel::load`] loaded to the panel that begins at element `first` of `panels`.
    ///
    /// # Safety
    /// The panel lies within `panels`, at a multiple of four elements, and barriers separate this from reads.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store(&self, values: [[f32; 4]; LOADS], panels: SharedSlice<f32>, first: usize) {
        let pitch = LOADS * 4 * self.threads / PANEL_K + PADDING;
        let place = |(row, col): (usize, usize)| first + place_of_row(row, pitch) + col;
        // SAFETY: inside the panel, and this thread's own. Aligned: the pitch is a multiple of four, and so is the column, or
        // of two where two elements are written.
        unsafe {
            if O::K {
                let (row, col) = self.position(0);
                for j in 0..4 {
                    let place = place((row + j, col));
                    match LOADS {
                        2 => panels.write2(place, [values[0][j], values[1][j]]),
                        _ => panels.write4(place, core::array::from_fn(|load| values[load][j])),
                    }
                }
            } else {
                for (load, four) in values.into_iter().enumerate() {
                    panels.write4(place(self.position(load)), four);
                }
            }
        }
    }
}

/// Where a row of a panel begins.
#[inline(always)]
fn place_of_row(row: usize, pitch: usize) -> usize {
    row * pitch + row / ROUND * GAP
}
