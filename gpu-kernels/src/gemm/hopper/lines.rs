//! The rows of A, or columns of B, of a tile of [`divided_steps`](super::divided_steps) or [`few_columns`](super::few_columns), 64 or 16 of
//! them: copied to shared memory from wherever rows of memory begin, and read from there.
//!
//! Copies have 16 bytes and begin at multiples of 16 bytes, also where rows of memory do not: a row is copied from the multiple before its
//! first element on, and stands in shared memory as many places further on (its *shift*, of 0 to 3).
//!
//! ```text
//!  memory           … │ · a b c │ d e f g │ h · · · │ …            a row of 8 elements, shift 1
//!  shared memory      │ · a b c │ d e f g │ h · · · │
//! ```
//!
//! That costs one copy more for each row, and little else: of A threads read single elements, and of a K-major B whole pieces, among whose
//! elements they choose. All rows that a thread reads have the same shift, because their numbers differ by multiples of 4.

use core::marker::PhantomData;

use cuda_std::async_copy;
use cuda_std::prelude::*;

use super::operand::{Fragments, Major, ROW};
use crate::Matrix;

/// The threads of a warpgroup, which copy a step together.
pub(super) const PART_THREADS: u32 = 128;
/// The rows of A of a tile, and in most kernels the columns of B.
pub(super) const LINES: u32 = 64;
/// The k of a step of a warpgroup.
pub(super) const DEPTH: u32 = ROW;

/// The `COUNT` lines of an operand that a tile needs, rows of A or columns of B: a multiple of 16. The rows of `matrix` are lines, and its
/// columns are k.
pub(super) struct Lines<'a, O, const COUNT: u32> {
    matrix: Matrix<'a>,
    first: u32,
    order: PhantomData<O>,
}

impl<'a, O: Major, const COUNT: u32> Lines<'a, O, COUNT> {
    /// The rows of memory that a step takes, and the elements of each.
    const ROWS: u32 = if O::K { COUNT } else { DEPTH };
    const WIDTH: u32 = if O::K { DEPTH } else { COUNT };
    /// The pieces of a thread, and how many rows of memory they are apart.
    const PIECES: u32 = COUNT * DEPTH / 4 / PART_THREADS;
    const APART: u32 = Self::ROWS / Self::PIECES;
    /// The elements from one row to the next in shared memory: there is room for a row with any shift, and the lanes of a
    /// [`Lines::load`] meet different banks.
    pub(super) const PITCH: u32 = if O::K { DEPTH + 4 } else { COUNT + 8 };
    /// The elements of a tile in shared memory.
    pub(super) const TILE: u32 = Self::ROWS * Self::PITCH;
    /// The elements from a line to the next in shared memory, and from a k to the next.
    const LINE: u32 = if O::K { Self::PITCH } else { 1 };
    const TERM: u32 = if O::K { 1 } else { Self::PITCH };

    /// The lines from `first` on, a multiple of `COUNT`.
    #[inline(always)]
    pub(super) fn new(matrix: Matrix<'a>, first: u32) -> Self {
        Self { matrix, first, order: PhantomData }
    }

    /// The elements from one row of memory to the next.
    #[inline(always)]
    fn pitch(&self) -> u64 {
        if O::K { self.matrix.row_stride() } else { self.matrix.col_stride() }
    }

    /// The shift of row `row` of memory, a line where rows are lines, otherwise a k. Rows whose numbers differ by a multiple of 4 have
    /// the same.
    #[inline(always)]
    fn shift(&self, row: u32) -> u32 {
        self.matrix.shift(self.pitch(), row)
    }

    /// Whether all rows of memory begin at multiples of 16 bytes: no shift.
    #[inline(always)]
    fn is_aligned(&self) -> bool {
        self.matrix.has_lines_of_vectors(self.pitch())
    }

    /// Which row of memory of a step the first piece of thread `thread` is in, and where in it; its other pieces are [`Lines::APART`] rows
    /// apart.
    #[inline(always)]
    fn first_piece(thread: u32) -> (u32, u32) {
        (thread / (Self::WIDTH / 4), thread % (Self::WIDTH / 4) * 4)
    }

    /// Thread `thread`'s copies of all steps whose k begins at `k`, `k + distance`, and so on, and ends at `end`.
    #[inline(always)]
    pub(super) fn copies(&self, thread: u32, k: u32, distance: u32, end: u32) -> LineCopies<'a, O, COUNT> {
        let (across, along) = if O::K { (self.first, k) } else { (k, self.first) };
        let element = |row: u32, place: u32| {
            let line = across.wrapping_add(row);
            let shift = self.shift(line);
            (u64::from(line) * self.pitch() + u64::from(along) + u64::from(place)).wrapping_sub(u64::from(shift))
        };
        // With a shift, what is before the first piece of a row, or behind its last one, may not exist.
        let room = if self.is_aligned() { 0 } else { 4 };
        let lines_exist = if O::K {
            self.first + COUNT <= self.matrix.rows()
        } else {
            self.first >= room && self.first + COUNT + room <= self.matrix.rows()
        };
        let (least, behind) = if O::K { (room, room) } else { (0, 0) };
        let (row, piece) = Self::first_piece(thread);
        LineCopies {
            lines: Lines::new(self.matrix, self.first),
            whole_from: least,
            whole_to: if lines_exist { end.saturating_sub(DEPTH + behind - 1) } else { 0 },
            end,
            pieces: element(row, piece),
            last: element(thread % Self::ROWS, Self::WIDTH),
            advance: u64::from(distance) * if O::K { 1 } else { self.pitch() },
        }
    }

    /// Issues the copies of a step, from `k`, a multiple of 32, to below `end`, to the tile at `tile` in shared memory, with zeros for what
    /// does not exist. The threads of a warpgroup together copy all of it; this is number `thread`.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. `end` is at most the k of the product.
    #[inline(always)]
    unsafe fn copy(&self, shared: &SharedSlice<f32>, tile: u32, k: u32, end: u32, thread: u32) {
        let (lines, terms) = ((self.first, self.matrix.rows()), (k, end));
        let (across, along) = if O::K { (lines, terms) } else { (terms, lines) };
        let area = Area { across, along };
        // SAFETY: the caller's promise; each piece has one thread.
        unsafe {
            self.copy_pieces(shared, tile, &area, thread);
            if !self.is_aligned() {
                if thread < Self::ROWS {
                    self.copy_last_piece(shared, tile, &area, thread);
                }
                if along.0 == 0 {
                    self.copy_first_elements(shared, tile, &area, thread);
                }
            }
        }
    }

    /// Issues the copies of a thread's pieces, four elements as they stand in shared memory, of a row each, but not those that begin
    /// before the row does.
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_pieces(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, thread: u32) {
        let &Area { across, along } = area;
        let (row, piece) = Self::first_piece(thread);
        // The rows are 8 or 16 apart: they have the same shift.
        let shift = self.shift(across.0 + row);
        let (from, data) = (along.0 + piece, self.matrix.data());
        if from < shift {
            return;
        }
        let to = |i: u32| (tile + (row + i * Self::APART) * Self::PITCH + piece) as usize;
        let mut element = u64::from(across.0 + row) * self.pitch() + u64::from(from - shift);
        let count = (along.1 + shift).saturating_sub(from).min(4);
        let mut i = 0;
        while i < Self::PIECES {
            let count = if across.0 + row + i * Self::APART < across.1 { count } else { 0 };
            // SAFETY: the caller's promise. What is copied is inside the operand: elements of the row from `from - shift` on, and no
            // more than it has. The address is a multiple of 16 bytes by the definition of the shift.
            unsafe { async_copy::copy_async::<4, _>(shared, to(i), &data, element as usize, count) };
            element += self.pitch() * u64::from(Self::APART);
            i = hint::keep_rolled(i + 1);
        }
    }

    /// Issues the copy of what the shift of row `row` moves beyond the pieces of [`Lines::copy_pieces`].
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_last_piece(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, row: u32) {
        let &Area { across, along } = area;
        let shift = self.shift(across.0 + row);
        let from = along.0 + Self::WIDTH - shift;
        let count = if across.0 + row < across.1 { along.1.saturating_sub(from).min(4) } else { 0 };
        let element = u64::from(across.0 + row) * self.pitch() + u64::from(from);
        let to = (tile + row * Self::PITCH + Self::WIDTH) as usize;
        // SAFETY: as above.
        unsafe { async_copy::copy_async::<4, _>(shared, to, &self.matrix.data(), element as usize, count) };
    }

    /// Issues the copies of the first elements of rows that begin between two pieces, where this is where they begin: one by one,
    /// because what is before them is not the operand's. That is zero in shared memory.
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_first_elements(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, thread: u32) {
        let &Area { across, along } = area;
        for i in 0..(Self::ROWS * 4).div_ceil(PART_THREADS) {
            let (row, place) = ((thread + i * PART_THREADS) / 4, thread % 4);
            let shift = self.shift(across.0 + row);
            if shift > 0 && row < Self::ROWS {
                let element = place.saturating_sub(shift);
                let count = u32::from(place >= shift && element < along.1 && across.0 + row < across.1);
                let element = u64::from(across.0 + row) * self.pitch() + u64::from(element);
                let to = (tile + row * Self::PITCH + place) as usize;
                // SAFETY: as above.
                unsafe { async_copy::copy_async::<1, _>(shared, to, &self.matrix.data(), element as usize, count) };
            }
        }
    }

    /// Where a lane's first number of 16 lines is in a tile, those from `line` on, a multiple of 16: that of line g and k = q.
    #[inline(always)]
    pub(super) fn fragment_offset(&self, line: u32, lane: u32) -> u32 {
        let (g, q) = (line + lane / 4, lane % 4);
        g * Self::LINE + q * Self::TERM + self.shift(if O::K { self.first + g } else { q })
    }

    /// Reads a lane's part of 16 lines and all k of a step, of a tile of whose numbers its first is at `offset`: for each 8 of k, lines g and g + 8
    /// for k = q, then for k = q + 4.
    ///
    /// # Safety
    /// The tile is complete; the offset is that of [`Lines::fragment_offset`].
    #[inline(always)]
    pub(super) unsafe fn load(shared: &SharedSlice<f32>, offset: u32) -> Fragments<f32> {
        core::array::from_fn(|i| {
            let skipped = i as u32 / 2 * 4 * Self::TERM + i as u32 % 2 * 8 * Self::LINE;
            // SAFETY: inside the tile, by the caller's promise.
            unsafe { shared.skip(skipped as usize).read(offset as usize) }
        })
    }

    /// Where the numbers are that a thread of a warpgroup converts of a tile of 16 lines: four neighbours in k of a line. Those of a K-major tile
    /// are as many places further on as its rows are shifted.
    #[inline(always)]
    pub(super) fn piece_sources(&self, thread: u32) -> [u32; 4] {
        let (line, k) = Self::piece_of_thread(thread);
        core::array::from_fn(|i| {
            let shift = if O::K { 0 } else { self.shift(i as u32) };
            line * Self::LINE + (k + i as u32) * Self::TERM + shift
        })
    }

    /// The line that a thread converts of 16, and its first k, a multiple of four: neighbouring threads read neighbours in memory.
    #[inline(always)]
    pub(super) fn piece_of_thread(thread: u32) -> (u32, u32) {
        if O::K { (thread / (DEPTH / 4), thread % (DEPTH / 4) * 4) } else { (thread % 16, thread / 16 * 4) }
    }

    /// The shift of the row that a thread converts of a K-major tile of 16 lines.
    #[inline(always)]
    pub(super) fn piece_shift(&self, thread: u32) -> u32 {
        if O::K { self.shift(self.first + Self::piece_of_thread(thread).0) } else { 0 }
    }

    /// Reads what a thread converts of a tile of 16 lines.
    ///
    /// # Safety
    /// The tile at `tile` is complete; the offsets are those of [`Lines::piece_sources`], and the shift is that of [`Lines::piece_shift`].
    #[inline(always)]
    pub(super) unsafe fn load_piece(shared: &SharedSlice<f32>, tile: u32, sources: &[u32; 4], shift: u32) -> [f32; 4] {
        // SAFETY: inside the tile, at pieces where these are read, by the caller's promise. The piece behind the last of a row is there
        // if there is a shift.
        unsafe {
            if !O::K {
                return sources.map(|source| shared.read((tile + source) as usize));
            }
            let place = (tile + sources[0]) as usize;
            choose(shift, [shared.read4(place), if shift > 0 { shared.skip(4).read4(place) } else { [0.0; 4] }])
        }
    }

    /// Where the numbers are that a lane of warp `warp` of a warpgroup converts of a tile, in the first of two rounds: four neighbours
    /// in k, of eight. Those of a K-major tile are as many places further on as its rows are shifted.
    #[inline(always)]
    pub(super) fn source_offsets(&self, warp: u32, lane: u32) -> [u32; 4] {
        if O::K {
            let first = (warp * 16 + lane % 8) * Self::PITCH + lane / 8 * 8;
            core::array::from_fn(|i| first + i as u32)
        } else {
            let line = warp / 2 * 32 + lane;
            let k = warp % 2 * 16;
            core::array::from_fn(|i| line + (k + i as u32) * Self::PITCH + self.shift(i as u32))
        }
    }

    /// The shift of the rows that a lane converts, of a K-major tile.
    #[inline(always)]
    pub(super) fn source_shift(&self, lane: u32) -> u32 {
        if O::K { self.shift(self.first + lane % 8) } else { 0 }
    }

    /// Reads what a lane converts in round `round` of two: eight k of a line.
    ///
    /// # Safety
    /// The tile at `tile` is complete; the offsets are those of [`Lines::source_offsets`], and the shift is that of
    /// [`Lines::source_shift`].
    #[inline(always)]
    pub(super) unsafe fn load_unit(
        shared: &SharedSlice<f32>,
        tile: u32,
        sources: &[u32; 4],
        shift: u32,
        round: u32,
    ) -> [f32; 8] {
        let shared = shared.skip((round * 8 * if O::K { Self::LINE } else { Self::TERM }) as usize);
        if !O::K {
            // SAFETY: inside the tile, by the caller's promise.
            return core::array::from_fn(|i| unsafe {
                let later = if i < 4 { 0 } else { 4 * Self::TERM };
                shared.skip(later as usize).read((tile + sources[i % 4]) as usize)
            });
        }
        // Whole pieces, of which lanes meet different banks, and then a choice among neighbours. The last piece of a row without a
        // shift is not there.
        let piece = |i: usize| shared.skip(4 * i);
        // SAFETY: inside the tile, at pieces, by the caller's promise.
        let pieces = unsafe {
            let place = (tile + sources[0]) as usize;
            [piece(0).read4(place), piece(1).read4(place), if shift > 0 { piece(2).read4(place) } else { [0.0; 4] }]
        };
        let (first, second) = (choose(shift, [pieces[0], pieces[1]]), choose(shift, [pieces[1], pieces[2]]));
        core::array::from_fn(|i| if i < 4 { first[i] } else { second[i - 4] })
    }
}

/// The four elements of two pieces that begin so many places further on.
#[inline(always)]
fn choose(shift: u32, pieces: [[f32; 4]; 2]) -> [f32; 4] {
    let one = |later: bool, [first, second]: [f32; 2]| if later { second } else { first };
    let value = |i: usize| pieces[i / 4][i % 4];
    let by_two: [f32; 5] = core::array::from_fn(|i| one(shift & 2 != 0, [value(i), value(i + 2)]));
    core::array::from_fn(|i| one(shift & 1 != 0, [by_two[i], by_two[i + 1]]))
}

/// A thread's copies of an operand, step after step.
pub(super) struct LineCopies<'a, O, const COUNT: u32> {
    lines: Lines<'a, O, COUNT>,
    /// The k of the steps all of which exists, as it is copied: from the first to below the second.
    whole_from: u32,
    whole_to: u32,
    end: u32,
    /// Which element the thread's first piece of the next step begins at, and the piece that a shift moves beyond them.
    pieces: u64,
    last: u64,
    /// The elements from one step to the next.
    advance: u64,
}

impl<'a, O: Major, const COUNT: u32> LineCopies<'a, O, COUNT> {
    /// The next step's are of this matrix, which is as large and lies as that of the steps before.
    #[inline(always)]
    pub(super) fn set_matrix(&mut self, matrix: Matrix<'a>) {
        self.lines = Lines::new(matrix, self.lines.first);
    }

    /// Issues the copies of the next step, which begins at `k`, to the tile at `tile` in shared memory, with zeros for what does not exist.
    /// The threads of a warpgroup together copy all of it; this is number `thread`.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. The thread is that of [`Lines::copies`], and the k is that of the next step,
    /// below `end`, which is at most that of the product.
    #[inline(always)]
    pub(super) unsafe fn issue(&mut self, shared: &SharedSlice<f32>, tile: u32, k: u32, thread: u32) {
        if self.whole_from <= k && k < self.whole_to {
            let rows_apart = Lines::<O, COUNT>::APART;
            let (row, piece) = Lines::<O, COUNT>::first_piece(thread);
            let (data, to) = (self.lines.matrix.data(), tile + row * Lines::<O, COUNT>::PITCH + piece);
            // SAFETY: all of it exists, as just compared: rows of memory, and in each the pieces from its shift before the step's first
            // element to beyond the last. Addresses are multiples of 16 bytes by the definition of the shift.
            unsafe {
                for i in 0..Lines::<O, COUNT>::PIECES {
                    let element = self.pieces + u64::from(i * rows_apart) * self.lines.pitch();
                    let shared = shared.skip((i * rows_apart * Lines::<O, COUNT>::PITCH) as usize);
                    async_copy::copy_async::<4, _>(&shared, to as usize, &data, element as usize, 4);
                }
                if !self.lines.is_aligned() && thread < Lines::<O, COUNT>::ROWS {
                    let to = (tile + thread * Lines::<O, COUNT>::PITCH + Lines::<O, COUNT>::WIDTH) as usize;
                    async_copy::copy_async::<4, _>(shared, to, &data, self.last as usize, 4);
                }
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.lines.copy(shared, tile, k, self.end, thread) };
        }
        self.pieces = self.pieces.wrapping_add(self.advance);
        self.last = self.last.wrapping_add(self.advance);
    }
}

/// What a step takes of an operand: from where to where it exists, across the rows of memory and along them.
struct Area {
    across: (u32, u32),
    along: (u32, u32),
}
