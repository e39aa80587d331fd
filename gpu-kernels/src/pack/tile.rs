//! A tile of 64 lines of 64 terms each, on its way through shared memory.
//!
//! ```text
//!  global memory                      shared memory                    whoever reads the tile
//!                                     ┌──────────────── ─ ┐
//!  terms side by side:  warp ───────► │ 64 terms of a line│ pad        neighbours along a line or across lines:
//!                                     ├──────────────── ─ ┤            either way in 32 different banks,
//!  lines side by side:  warp ──┐      │                   │            because lines are 65 numbers apart
//!                              ▼      └──────────────── ─ ┘
//!                        down a column
//! ```
//!
//! Whichever numbers are neighbours in memory, a warp loads 32 neighbours at a time: 128 bytes, by loads of 4 bytes, which
//! need no alignment. Each thread has 16 of them under way.

use cuda_std::prelude::*;

use crate::geometry::divide;
use crate::{Matrix, MatrixBatch, MatrixMut, Triangle};

/// The lines of a tile, and the terms of each.
pub(super) const SIDE: u32 = 64;
/// The numbers from one line of a tile to the next.
pub(super) const PITCH: usize = 65;
/// The threads of a block.
pub(super) const THREADS: u32 = 256;
/// The numbers of a tile that each thread loads.
const EACH: u32 = SIDE * SIDE / THREADS;
/// The lines (or terms) of a tile that the threads of a block load at a time.
const AT_A_TIME: u32 = THREADS / SIDE;

/// A tile in shared memory.
pub(super) type Tile = Shared<[[f32; PITCH]; SIDE as usize]>;

/// The tiles of a batch of matrices, the rows of which are lines.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    lines: u32,
    terms: u32,
    across: u64,
    of_a_matrix: u64,
    pub(super) count: u64,
}

/// Which tile.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) matrix: u32,
    /// The first line.
    pub(super) line: u32,
    /// How many tiles there are before it side by side.
    pub(super) across: u32,
    /// The first term.
    pub(super) term: u32,
}

impl Tiles {
    /// Tiles of 64 lines of 64 terms.
    #[inline(always)]
    pub(super) fn of(matrices: &MatrixBatch<'_>) -> Self {
        Self::of_extents(matrices.first().rows(), matrices.first().cols(), matrices.count())
    }

    /// The same of so many matrices with such extents.
    #[inline(always)]
    pub(super) fn of_extents(rows: u32, cols: u32, count: u32) -> Self {
        Self::new(rows, count, SIDE, cols.div_ceil(SIDE), SIDE)
    }

    /// Tiles of `lines` lines, `across` of them side by side with `terms` terms each.
    #[inline(always)]
    pub(super) fn with(matrices: &MatrixBatch<'_>, lines: u32, across: u32, terms: u32) -> Self {
        Self::new(matrices.first().rows(), matrices.count(), lines, across, terms)
    }

    #[inline(always)]
    fn new(rows: u32, count: u32, lines: u32, across: u32, terms: u32) -> Self {
        let of_a_matrix = u64::from(across) * u64::from(rows.div_ceil(lines));
        let count = of_a_matrix.saturating_mul(count.into());
        Self { lines, terms, across: across.into(), of_a_matrix, count }
    }

    /// Tile number `tile`, if there is one.
    #[inline(always)]
    pub(super) fn place(&self, tile: u64) -> Option<Place> {
        if tile >= self.count {
            return None;
        }
        let (matrix, of_matrix) = divide(tile, self.of_a_matrix);
        let (down, across) = divide(of_matrix, self.across);
        let (line, across) = (down as u32 * self.lines, across as u32);
        Some(Place { matrix: matrix as u32, line, across, term: across * self.terms })
    }

    /// Calls `each` with the tiles of this block: one, unless there are more of them than a grid has blocks.
    ///
    /// # Safety
    /// Called by all threads of the block, and `each` may be: it is called by all of them, as often.
    #[inline(always)]
    pub(super) unsafe fn for_each(&self, mut each: impl FnMut(Place)) {
        let mut tile = u64::from(thread::block_idx_x());
        while let Some(place) = self.place(tile) {
            each(place);
            tile += u64::from(thread::grid_dim_x());
            if tile < self.count {
                // SAFETY: all threads of the block come here: they have the same tiles.
                unsafe { thread::sync_threads() };
            }
        }
    }
}

/// Whether terms, rather than lines, are what lies closest together in memory.
#[inline(always)]
pub(super) fn is_along_terms(rows: u32, row_stride: u64, col_stride: u64) -> bool {
    rows == 1 || col_stride <= row_stride
}

/// The numbers of a tile that a thread has: the first, and how far it is to each next one.
#[derive(Clone, Copy)]
struct Share {
    line: u32,
    term: u32,
    line_step: u32,
    term_step: u32,
}

impl Share {
    /// Threads with consecutive numbers have neighbours.
    #[inline(always)]
    fn of_thread(along_terms: bool) -> Self {
        let thread = thread::thread_idx_x();
        let (fast, slow) = (thread % SIDE, thread / SIDE);
        if along_terms {
            Self { line: slow, term: fast, line_step: AT_A_TIME, term_step: 0 }
        } else {
            Self { line: fast, term: slow, line_step: 0, term_step: AT_A_TIME }
        }
    }

    /// The same, computed anew for each tile: whatever follows from it for each number would be kept from tile to tile, in more registers
    /// than there are.
    #[inline(always)]
    fn pinned(self) -> Self {
        let mut numbers = [self.line, self.term, self.line_step, self.term_step];
        hint::pin(&mut numbers);
        let [line, term, line_step, term_step] = numbers;
        Self { line, term, line_step, term_step }
    }

    #[inline(always)]
    fn at(&self, i: u32) -> (u32, u32) {
        (self.line + i * self.line_step, self.term + i * self.term_step)
    }
}

/// What a thread has of a tile in a matrix with such strides: `each` gets the number of the share, whether it is inside the
/// matrix, and the place of the element in the data: of the tile's first, if it is not.
#[inline(always)]
fn walk(
    [rows, cols]: [u32; 2],
    [row_stride, col_stride]: [u64; 2],
    place: Place,
    share: Share,
    mut each: impl FnMut(u32, bool, usize),
) {
    let (line, term) = (place.line + share.line, place.term + share.term);
    // Wrapping: where it would, it is not used.
    let along = |count: u32, stride: u64| u64::from(count).wrapping_mul(stride);
    let first = along(place.line, row_stride).wrapping_add(along(place.term, col_stride));
    let mut offset = along(line, row_stride).wrapping_add(along(term, col_stride));
    let step = along(share.line_step, row_stride).wrapping_add(along(share.term_step, col_stride));
    for i in 0..EACH {
        let is_inside = line + i * share.line_step < rows && term + i * share.term_step < cols;
        each(i, is_inside, if is_inside { offset } else { first } as usize);
        offset = offset.wrapping_add(step);
    }
}

/// Loads a tile of a matrix whose rows are lines, with zeros outside of the matrix.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`], for a tile that has an element of the matrix. Nobody reads or writes the
/// tile without a barrier between.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load(source: &Matrix<'_>, place: Place, tile: &'static Tile) {
    let strides = [source.row_stride(), source.col_stride()];
    let along_terms = is_along_terms(source.rows(), strides[0], strides[1]);
    // SAFETY: the caller's promise; the tile is inside of the matrix where that is asked for.
    unsafe {
        if place.line + SIDE > source.rows() || place.term + SIDE > source.cols() {
            load_part(source, place, tile, Share::of_thread(along_terms));
        } else if along_terms {
            load_whole(source, place, tile, Share::of_thread(true));
        } else {
            load_whole(source, place, tile, Share::of_thread(false));
        }
    }
}

/// The same for a tile that is inside of the matrix: without questions, each element takes a fifth of the instructions.
///
/// # Safety
/// As for [`load`], for such a tile.
#[inline(always)]
#[track_caller]
unsafe fn load_whole(source: &Matrix<'_>, place: Place, tile: &'static Tile, share: Share) {
    let along =
        |line: u32, term: u32| (u64::from(line) * source.row_stride() + u64::from(term) * source.col_stride()) as usize;
    let step = along(share.line_step, share.term_step);
    let mut values = [0.0; EACH as usize];
    // SAFETY: elements of the tile are inside the matrix, so inside the data: those of a share are as far from one another as its steps say.
    unsafe {
        let mut from = source.data().from_unchecked(along(place.line + share.line, place.term + share.term));
        for i in 0..EACH as usize {
            if i > 0 {
                from = from.from_unchecked(step);
            }
            values[i] = from.get_unchecked(0);
        }
    }
    for i in 0..EACH {
        let (line, term) = share.at(i);
        // SAFETY: inside the tile, and every thread has its own numbers.
        unsafe { tile.write([line as usize, term as usize], values[i as usize]) };
    }
}

/// The same for a tile of which a part may be outside of the matrix.
///
/// # Safety
/// As for [`load`].
#[inline(always)]
#[track_caller]
unsafe fn load_part(source: &Matrix<'_>, place: Place, tile: &'static Tile, share: Share) {
    let share = share.pinned();
    let strides = [source.row_stride(), source.col_stride()];
    let mut values = [0.0; EACH as usize];
    walk([source.rows(), source.cols()], strides, place, share, |i, is_inside, offset| {
        // Without a branch: all loads are under way before the first number is needed.
        // SAFETY: the place of an element, which is inside the data.
        let value = unsafe { source.data().get_unchecked(offset) };
        values[i as usize] = if is_inside { value } else { 0.0 };
    });
    for i in 0..EACH {
        let (line, term) = share.at(i);
        // SAFETY: inside the tile, and every thread has its own numbers.
        unsafe { tile.write([line as usize, term as usize], values[i as usize]) };
    }
}

/// Stores a tile to a matrix whose rows are lines. What the tile has outside of the matrix is left out.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`], after a barrier that follows the writes to the tile. No other thread
/// accesses these elements of the matrix.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn store(target: &MatrixMut<'_>, place: Place, tile: &'static Tile) {
    let strides = [target.row_stride(), target.col_stride()];
    let share = Share::of_thread(is_along_terms(target.rows(), strides[0], strides[1]));
    walk([target.rows(), target.cols()], strides, place, share, |i, is_inside, offset| {
        let (line, term) = share.at(i);
        if is_inside {
            // SAFETY: inside the tile; the place of an element, which is inside the data, and this thread's alone.
            unsafe { target.data().set_unchecked(offset, tile.read([line as usize, term as usize])) };
        }
    });
}

/// Sets the elements of a tile to zero that are outside of a triangle of the matrix.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`]. No other thread accesses these elements of the matrix.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn clear_outside(target: &MatrixMut<'_>, place: Place, triangle: Triangle) {
    let strides = [target.row_stride(), target.col_stride()];
    let share = Share::of_thread(is_along_terms(target.rows(), strides[0], strides[1]));
    walk([target.rows(), target.cols()], strides, place, share, |i, is_inside, offset| {
        let (line, term) = share.at(i);
        if is_inside && !triangle.contains(place.line + line, place.term + term) {
            // SAFETY: the place of an element, which is inside the data, and this thread's alone.
            unsafe { target.data().set_unchecked(offset, 0.0) };
        }
    });
}
