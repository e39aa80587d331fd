//! How an operand comes from global memory to the registers of the lanes that multiply it.
//!
//! A tile of an operand has a number of lines, rows of A or columns of B, of [`DEPTH`] numbers each. Whether it is
//! K-major or MN-major in memory, both end in the same registers:
//!
//! ```text
//! lane (g, q), g = lane / 4, q = lane % 4, receives of a block of 32 lines and k = 16
//!
//!               k  q    q + 4    q + 8    q + 12
//! line 4g          ▪      ▪        ▪        ▪          [[f32; 4]; 4]: by line, and by k
//!      4g + 1      ▪      ▪        ▪        ▪
//!      4g + 2      ▪      ▪        ▪        ▪
//!      4g + 3      ▪      ▪        ▪        ▪
//! ```
//!
//! Tiles are swizzled ([`blocks::swizzle`]), so that neither these loads nor the copies have bank conflicts.
//!
//! **Rows that begin anywhere.** Copies have 16 bytes and begin at multiples of 16 bytes, also where rows of memory do not: a row is copied
//! from the multiple before its first element on, so that it stands as many places further on (its [*shift*](Matrix::shift), of 0 to
//! 3). What that moves out of the tile needs no more room:
//!
//! ```text
//! K-major, shift 1     │ · 0 1 2 │ 3 4 5 6 │ 7 8 9 10│11121314│   a line of a tile and of the tile of the next 16 k
//!                      │15161718 │ …                            k = 15 is read there, so it has to have arrived
//!
//! MN-major, shift 1    │63 0 1 2 │ 3 4 5 6 │ … │59606162│       a k, whose last lines stand before the first one
//! ```
//!
//! A first piece of which a part is not of its row is copied by single elements: in MN-major tiles all of them, in K-major ones
//! only where k begins. All rows that a thread copies, and all that lanes read together, have the same shift, because their numbers
//! differ by multiples of 4.

use core::marker::PhantomData;

use blocks::swizzle;
use blocks::uniform::this_thread;
use cuda_std::prelude::*;
use cuda_std::{async_copy, ldmatrix};

use super::scheme::Scheme;
use crate::Matrix;
pub(super) use blocks::major::{KMajor, Major, MnMajor};

/// The lines that [`Arrangement::load`] loads at a time.
pub(super) const BLOCK_LINES: u32 = 32;

/// The k that [`Arrangement::load`] loads at a time.
pub(super) const BLOCK_K: u32 = 16;

/// The k of a tile of an operand in shared memory.
pub(super) const DEPTH: u32 = BLOCK_K;

/// The numbers that make 16 bytes.
const VECTOR: usize = 4;
const PIECE: u32 = VECTOR as u32;

/// The shifts of four rows of memory one below the other, the first of which has a multiple of 4 as its number, two bits for each.
#[derive(Clone, Copy)]
pub(super) struct Shifts(u32);

impl Shifts {
    /// Of an operand without shifts.
    pub(super) const NONE: Self = Self(0);

    /// Whether all rows begin at multiples of 16 bytes.
    #[inline(always)]
    pub(super) fn are_none(self) -> bool {
        self.0 == 0
    }

    /// The same, of which the compiler does not know it: what is computed from it is computed again where it is needed, instead of taking
    /// registers all the time.
    #[inline(always)]
    pub(super) fn anew(self) -> Self {
        let mut rows = [self.0];
        hint::pin(&mut rows);
        Self(rows[0])
    }

    /// That of row `row`.
    #[inline(always)]
    fn of_row(self, row: u32) -> u32 {
        self.0 >> (row % 4 * 2) & 3
    }
}

/// An operand's order in memory, and the swizzled tile and the loads that go with it.
pub(super) trait Arrangement: Major {
    /// The offset of (`line`, `k`) in a tile.
    fn offset_in_tile(lines: u32, line: u32, k: u32) -> u32;

    /// Loads the block of 32 lines that begins at line `first`, a multiple of 32, of a tile of `lines` lines that begins at
    /// `tile` in shared memory. The result is by line and by k, as the module's documentation draws it.
    ///
    /// # Safety
    /// The whole warp calls this function together, each lane with its number; the tile is inside `shared`, is written, and a
    /// barrier separates the writes from this call.
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: u32, lane: u32) -> [[f32; 4]; 4];

    /// The same of a tile whose rows of memory have been shifted, and whose next 16 k are in the tile that begins at `next`.
    ///
    /// # Safety
    /// As for [`Arrangement::load`], also of the next tile where k are neighbours in memory.
    unsafe fn load_shifted(
        shared: &SharedSlice<f32>,
        tile: u32,
        next: u32,
        lines: u32,
        first: u32,
        lane: u32,
        shifts: Shifts,
    ) -> [[f32; 4]; 4];
}

impl Arrangement for KMajor {
    #[inline(always)]
    fn offset_in_tile(_lines: u32, line: u32, k: u32) -> u32 {
        const { assert!(DEPTH == 16) };
        swizzle::lines_of_16(line, k)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: u32, lane: u32) -> [[f32; 4]; 4] {
        // Lane 8·i + g names line 4g of matrix i, k from 4i on.
        core::array::from_fn(|i| {
            let offset_in_tile = Self::offset_in_tile(lines, first + lane % 8 * 4 + i as u32, lane / 8 * 4);
            // SAFETY: the caller's promise; an offset whose k is a multiple of 4 is one of 16 bytes.
            unsafe { ldmatrix::ldmatrix_x4(shared, (tile + offset_in_tile) as usize) }
        })
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load_shifted(
        shared: &SharedSlice<f32>,
        tile: u32,
        next: u32,
        lines: u32,
        first: u32,
        lane: u32,
        shifts: Shifts,
    ) -> [[f32; 4]; 4] {
        // `ldmatrix` would give the lanes other k of other lines, so each reads its own numbers. Those that lanes read together
        // have the same shift, and meet all banks.
        let (g, q) = (lane / 4, lane % 4);
        core::array::from_fn(|i| {
            let place = q + shifts.of_row(i as u32);
            core::array::from_fn(|h| {
                let place = place + 4 * h as u32;
                let tile = if place < DEPTH { tile } else { next };
                let offset_in_tile = Self::offset_in_tile(lines, first + g * 4 + i as u32, place % DEPTH);
                // SAFETY: the caller's promise.
                unsafe { shared.skip(tile as usize).read(offset_in_tile as usize) }
            })
        })
    }
}

impl Arrangement for MnMajor {
    #[inline(always)]
    fn offset_in_tile(lines: u32, line: u32, k: u32) -> u32 {
        swizzle::terms_of_lines(lines, line, k)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: u32, lane: u32) -> [[f32; 4]; 4] {
        let (g, q) = (lane / 4, lane % 4);
        let by_term: [[f32; 4]; 4] = core::array::from_fn(|h| {
            let offset_in_tile = Self::offset_in_tile(lines, first + g * 4, q + 4 * h as u32);
            // SAFETY: the caller's promise; an offset of a line that is a multiple of 4 is one of 16 bytes.
            unsafe { shared.read4((tile + offset_in_tile) as usize) }
        });
        core::array::from_fn(|i| core::array::from_fn(|h| by_term[h][i]))
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load_shifted(
        shared: &SharedSlice<f32>,
        tile: u32,
        _next: u32,
        lines: u32,
        first: u32,
        lane: u32,
        shifts: Shifts,
    ) -> [[f32; 4]; 4] {
        let (g, q) = (lane / 4, lane % 4);
        core::array::from_fn(|i| {
            let place = (first + g * 4 + i as u32 + shifts.of_row(q)) % lines;
            core::array::from_fn(|h| {
                let offset_in_tile = Self::offset_in_tile(lines, place, q + 4 * h as u32);
                // SAFETY: the caller's promise.
                unsafe { shared.skip(tile as usize).read(offset_in_tile as usize) }
            })
        })
    }
}

/// Loads a block of 32 lines of a tile, to which `tiles` has the place and that of the next 16 k, as its rows are shifted if `SHIFTED`. Where
/// few registers are left, none are kept for places that can be found again.
///
/// # Safety
/// As for [`Arrangement::load`] or [`Arrangement::load_shifted`].
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load<A: Arrangement, const SHIFTED: bool>(
    shared: &SharedSlice<f32>,
    [tile, next]: [u32; 2],
    lines: u32,
    first: u32,
    shifts: Shifts,
    few_registers_are_left: bool,
) -> [[f32; 4]; 4] {
    let (thread, shifts) = if SHIFTED && few_registers_are_left {
        (this_thread(), shifts.anew())
    } else {
        (thread::thread_idx_x(), shifts)
    };
    let lane = thread % warp::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        if !SHIFTED || shifts.are_none() {
            A::load(shared, tile, lines, first, lane)
        } else {
            A::load_shifted(shared, tile, next, lines, first, lane, shifts)
        }
    }
}

/// What a tile of an operand holds: `COUNT` lines from `first` on, where `matrix` has them, whose rows they are and whose
/// columns are k. All `THREADS` threads of a block copy it.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a, A, const COUNT: u32, const THREADS: u32> {
    matrix: Matrix<'a>,
    first: u32,
    arrangement: PhantomData<A>,
}

impl<'a, A: Arrangement, const COUNT: u32, const THREADS: u32> Lines<'a, A, COUNT, THREADS> {
    /// The lines from `first` on.
    #[inline(always)]
    pub(super) fn new(matrix: Matrix<'a>, first: u32) -> Self {
        const { assert!(divides_tiles(THREADS, COUNT)) };
        Self { matrix, first, arrangement: PhantomData }
    }

    /// The distance between neighbours across the order of memory.
    #[inline(always)]
    fn pitch(&self) -> u64 {
        if A::K { self.matrix.row_stride() } else { self.matrix.col_stride() }
    }

    /// The same lines of this matrix, which is as large.
    #[inline(always)]
    pub(super) fn of(&self, matrix: Matrix<'a>) -> Self {
        Self { matrix, first: self.first, arrangement: PhantomData }
    }

    /// The shifts of the rows of memory, or, where it is enough to know whether there are any, some that say so.
    #[inline(always)]
    pub(super) fn shifts(&self, are_needed: bool) -> Shifts {
        if !are_needed {
            return Shifts(u32::from(!self.matrix.has_lines_of_vectors(self.pitch())));
        }
        let shift = |row| self.matrix.shift(self.pitch(), row) << (row * 2);
        Shifts(shift(0) | shift(1) | shift(2) | shift(3))
    }

    /// Issues the copies of the lines, from `k` to below `end`, to the tile that begins at `tile` in shared memory,
    /// with zeros for what does not exist. The threads together copy all of it. If `SHIFTED`, rows that begin between multiples of 16 bytes
    /// are shifted, so that of a K-major tile 16 k are copied from as many before `k` on; otherwise they are copied element by
    /// element.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. `k` is a multiple of 16 or not below `end`; `end` is at most the
    /// k of the product; `shifts` is what [`Lines::shifts`] has found.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn copy<S: Scheme, const SHIFTED: bool>(
        &self,
        shared: &SharedSlice<f32>,
        tile: u32,
        k: u32,
        end: u32,
        shifts: Shifts,
    ) {
        // Where this block's part of the operand begins and where the operand ends, across and along the order of memory.
        let (lines, terms) = ((self.first, self.matrix.rows()), (k, end));
        let area = if A::K { Area { across: lines, along: terms } } else { Area { across: terms, along: lines } };
        // Where a scheme needs many registers, and in all loops but the shortest, none are kept for what can be computed again.
        let thread =
            |is_found_anew: bool| if S::EXACT || is_found_anew { this_thread() } else { thread::thread_idx_x() };
        // SAFETY: the caller's promise.
        unsafe {
            if SHIFTED {
                self.copy_pieces::<VECTOR>(shared, tile, &area, thread(true), shifts);
                if !shifts.are_none() && (!A::K || k == 0) {
                    self.copy_first_elements(shared, tile, &area, thread(true), shifts);
                }
            } else if shifts.are_none() {
                self.copy_pieces::<VECTOR>(shared, tile, &area, thread(false), Shifts::NONE);
            } else {
                self.copy_pieces::<1>(shared, tile, &area, thread(true), Shifts::NONE);
            }
        }
    }

    /// The rows of a tile in the order of memory, and the elements of each.
    const ROWS: u32 = if A::K { COUNT } else { DEPTH };
    const WIDTH: u32 = if A::K { DEPTH } else { COUNT };

    /// Where the element is in a tile that has this place in a row of memory.
    #[inline(always)]
    fn offset_in_tile(row: u32, place: u32) -> u32 {
        if A::K { A::offset_in_tile(COUNT, row, place) } else { A::offset_in_tile(COUNT, place, row) }
    }

    /// [`Lines::copy`] in pieces of `N` elements, but for those that begin before their row does: in the order of memory, one thread
    /// beside the other along it, and as many rows at a time as there are threads for.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_pieces<const N: usize>(
        &self,
        shared: &SharedSlice<f32>,
        tile: u32,
        area: &Area,
        thread: u32,
        shifts: Shifts,
    ) {
        let &Area { across, along } = area;
        // The pieces of a row, and the rows from one piece of a thread to the next, which have the same shift.
        let per_row = Self::WIDTH / N as u32;
        let step = THREADS / per_row;
        let (mut row, column) = (thread / per_row, thread % per_row * N as u32);
        let shift = shifts.of_row(row);
        if shift > if A::K { along.0 + column } else { column } {
            return;
        }
        let first = along.0 + column - shift;
        let count = along.1.saturating_sub(first).min(N as u32);
        let mut offset = u64::from(across.0 + row) * self.pitch() + u64::from(first);
        let mut left = Self::ROWS / step;
        while left > 0 {
            let offset_in_tile = Self::offset_in_tile(row, column);
            let count = if across.0 + row < across.1 { count } else { 0 };
            // SAFETY: the offset is inside the tile, and each thread has its own. The first `count` elements are inside the
            // operand, so inside its data. Four are aligned by the definition of the shift.
            unsafe {
                let data = self.matrix.data();
                async_copy::copy_async::<N, _>(shared, (tile + offset_in_tile) as usize, &data, offset as usize, count);
            }
            offset += u64::from(step) * self.pitch();
            row += step;
            // Many pieces of one element each: unrolled, their offsets in the tile would take registers all the time.
            left = if N == 1 { hint::keep_rolled(left - 1) } else { left - 1 };
        }
    }

    /// Issues the copies of what is in the first piece of a row that begins inside it: one by one, because what is before them is not
    /// of the row. Its last elements stand there if that is where they are read.
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_first_elements(
        &self,
        shared: &SharedSlice<f32>,
        tile: u32,
        area: &Area,
        thread: u32,
        shifts: Shifts,
    ) {
        let &Area { across, along } = area;
        let mut single = thread;
        while single < Self::ROWS * PIECE {
            let (row, place) = (single / PIECE, single % PIECE);
            let shift = shifts.of_row(row);
            let is_first = place >= shift;
            if shift > 0 && (is_first || !A::K) {
                let element = along.0 + place + if is_first { 0 } else { Self::WIDTH } - shift;
                let count = u32::from(element < along.1 && across.0 + row < across.1);
                let element = u64::from(across.0 + row) * self.pitch() + u64::from(element);
                let to = (tile + Self::offset_in_tile(row, place)) as usize;
                // SAFETY: as above.
                unsafe { async_copy::copy_async::<1, _>(shared, to, &self.matrix.data(), element as usize, count) };
            }
            single = hint::keep_rolled(single + THREADS);
        }
    }
}

/// What a tile takes of an operand: from where to where it exists, across the order of memory and along it.
struct Area {
    across: (u32, u32),
    along: (u32, u32),
}

/// Whether so many threads can copy tiles of so many lines: each as many pieces as every other, in either arrangement, of one element or
/// of 4 in rows that are multiples of 4 apart.
const fn divides_tiles(threads: u32, lines: u32) -> bool {
    const fn divides(threads: u32, rows: u32, width: u32) -> bool {
        let per_row = width / PIECE;
        let by_pieces = threads.is_multiple_of(4 * per_row) && rows.is_multiple_of(threads / per_row);
        by_pieces && threads.is_multiple_of(width) && rows.is_multiple_of(threads / width)
    }
    divides(threads, lines, DEPTH) && divides(threads, DEPTH, lines) && lines.is_power_of_two()
}
