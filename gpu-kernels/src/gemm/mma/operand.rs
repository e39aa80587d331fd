//! How an operand comes from global memory to the registers of the lanes that multiply it.
//!
//! A tile of an operand has `LINES` lines, rows of A or columns of B, of [`DEPTH`] terms each. Which of the two are
//! neighbours in memory, lines or terms, is its [`Arrangement`]; both end in the same registers:
//!
//! ```text
//! lane (g, q), g = lane / 4, q = lane % 4, receives of a block of 32 lines and 16 terms
//!
//!            term  q    q + 4    q + 8    q + 12
//! line 4g          ▪      ▪        ▪        ▪          [[f32; 4]; 4]: by line, and by term
//!      4g + 1      ▪      ▪        ▪        ▪
//!      4g + 2      ▪      ▪        ▪        ▪
//!      4g + 3      ▪      ▪        ▪        ▪
//! ```
//!
//! Shared memory has 32 banks of 4 bytes, and serves 8 lanes with 16 bytes each at a time, if these lie in different banks.
//! Each arrangement permutes the pieces of 16 bytes within its tile (a "swizzle") so that they do:
//!
//! ```text
//! along terms, 2 lines in 128 bytes       along lines, a row of LINES for each term
//!
//! piece   = (line % 2)·4 + term / 4       piece   = line / 4
//! stored  = piece ^ (line / 4 % 8)        stored  = piece ^ (term % 4 · 2)
//! loads     ldmatrix: 8 lines 4g + i      loads     ld.shared.v4: 8 lanes with two g and all q
//! ```

use core::marker::PhantomData;

use cuda_std::prelude::*;
use cuda_std::{async_copy, ldmatrix};

use super::scheme::Scheme;
use super::{DEPTH, THREADS, this_thread};
use crate::Matrix;

/// The lines that [`Arrangement::load`] loads at a time.
pub(super) const BLOCK_LINES: u32 = 32;

/// The terms that [`Arrangement::load`] loads at a time.
pub(super) const BLOCK_TERMS: u32 = 16;

/// The terms, or the lines, that make 16 bytes.
const VECTOR: usize = 4;

/// The banks of shared memory.
const BANKS: u32 = 32;

/// What of an operand lies side by side in memory.
pub(super) trait Arrangement {
    /// Whether it is the terms of a line.
    const ALONG_TERMS: bool;

    /// The place of (`line`, `term`) in a tile.
    fn place(lines: u32, line: u32, term: u32) -> u32;

    /// Loads the block of lines and terms that begins at `first`, multiples of 32 and of 16, of a tile of `lines` lines that
    /// begins at `tile` in shared memory. The result is by line and by term, as the module's documentation draws it.
    ///
    /// # Safety
    /// The whole warp calls this function together, each lane with its number; the tile is inside `shared`, is written, and a
    /// barrier separates the writes from this call.
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: (u32, u32), lane: u32) -> [[f32; 4]; 4];
}

/// The terms of a line are neighbours: A stored by rows, B stored by columns.
pub(super) struct AlongTerms;

/// The lines of a term are neighbours: A stored by columns, B stored by rows.
pub(super) struct AlongLines;

impl Arrangement for AlongTerms {
    const ALONG_TERMS: bool = true;

    #[inline(always)]
    fn place(_lines: u32, line: u32, term: u32) -> u32 {
        const LINES: u32 = BANKS / DEPTH; // in all banks
        let piece = line % LINES * (DEPTH / 4) + term / 4;
        line / LINES * BANKS + (piece ^ (line / 4 % 8)) * 4 + term % 4
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: (u32, u32), lane: u32) -> [[f32; 4]; 4] {
        // Lane 8·i + g names line 4g of matrix i, the terms from 4i on.
        core::array::from_fn(|i| {
            let place = Self::place(lines, first.0 + lane % 8 * 4 + i as u32, first.1 + lane / 8 * 4);
            // SAFETY: the caller's promise; a place of a term that is a multiple of 4 is one of 16 bytes.
            unsafe { ldmatrix::ldmatrix_x4(shared, (tile + place) as usize) }
        })
    }
}

impl Arrangement for AlongLines {
    const ALONG_TERMS: bool = false;

    #[inline(always)]
    fn place(lines: u32, line: u32, term: u32) -> u32 {
        term * lines + ((line / 4) ^ (term % 4 * 2)) * 4 + line % 4
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn load(shared: &SharedSlice<f32>, tile: u32, lines: u32, first: (u32, u32), lane: u32) -> [[f32; 4]; 4] {
        let (g, q) = (lane / 4, lane % 4);
        let by_term: [[f32; 4]; 4] = core::array::from_fn(|h| {
            let place = Self::place(lines, first.0 + g * 4, first.1 + q + 4 * h as u32);
            // SAFETY: the caller's promise; a place of a line that is a multiple of 4 is one of 16 bytes.
            unsafe { shared.read4((tile + place) as usize) }
        });
        core::array::from_fn(|i| core::array::from_fn(|h| by_term[h][i]))
    }
}

/// What a block reads of an operand: the lines from `first` on, below the number of rows of `matrix`, whose columns are the
/// terms.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) matrix: Matrix<'a>,
    pub(super) first: u32,
}

impl Lines<'_> {
    /// Whether vectors of 16 bytes can be copied: every line, or every term, begins at a multiple of 16 bytes.
    #[inline(always)]
    pub(super) fn take_vectors<A: Arrangement>(&self) -> bool {
        let pitch = if A::ALONG_TERMS { self.matrix.row_stride() } else { self.matrix.col_stride() };
        pitch % VECTOR as u64 == 0 && (self.matrix.data().as_ptr() as u64).is_multiple_of(16)
    }

    /// Issues the copies of the `LINES` lines, from term `term` to below `end`, to the tile that begins at `tile` in shared
    /// memory, with zeros for what does not exist. All threads of the block together copy all of it.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. `term` is a multiple of 16 or not below `end`; `end` is at most the
    /// number of terms; `vectors` is what [`Lines::take_vectors`] has found.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn copy<S: Scheme, A: Arrangement, const LINES: u32>(
        &self,
        shared: &SharedSlice<f32>,
        tile: u32,
        term: u32,
        end: u32,
        vectors: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if vectors {
                self.copy_pieces::<S, A, LINES, VECTOR>(shared, tile, term, end);
            } else {
                self.copy_pieces::<S, A, LINES, 1>(shared, tile, term, end);
            }
        }
    }

    /// [`Lines::copy`] in pieces of `N` elements.
    ///
    /// # Safety
    /// As there; lines, or terms, begin at multiples of the size of `N` elements.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_pieces<S: Scheme, A: Arrangement, const LINES: u32, const N: usize>(
        &self,
        shared: &SharedSlice<f32>,
        tile: u32,
        term: u32,
        end: u32,
    ) {
        let pitch = if A::ALONG_TERMS { self.matrix.row_stride() } else { self.matrix.col_stride() };
        // Where this block's part of the operand begins and where the operand ends, across and along the order of memory.
        let (lines, terms) = ((self.first, self.matrix.rows()), (term, end));
        let (across, along) = if A::ALONG_TERMS { (lines, terms) } else { (terms, lines) };
        // Where a scheme needs many registers, and for many small pieces, none are kept for what can be computed again.
        let thread = if S::EXACT || N == 1 { this_thread() } else { thread::thread_idx_x() };
        let pieces = Pieces::<A, LINES, N>::of(thread);
        let count = along.1.saturating_sub(along.0 + pieces.along).min(N as u32);
        let mut offset = u64::from(across.0 + pieces.across) * pitch + u64::from(along.0 + pieces.along);
        pieces.each(|row, place| {
            let count = if across.0 + row < across.1 { count } else { 0 };
            // SAFETY: the place is inside the tile, and each thread has its own. The first `count` elements are inside the
            // operand, so inside its data. They are aligned: what is along memory begins at a multiple of N, as does every
            // row by the caller's promise, and the place of such a piece is aligned too.
            unsafe {
                let data = self.matrix.data();
                async_copy::copy_async::<N, _>(shared, (tile + place) as usize, &data, offset as usize, count);
            }
            offset += u64::from(Pieces::<A, LINES, N>::STEP) * pitch;
        });
    }
}

/// The pieces of `N` elements of a tile that one thread copies: in the order of memory, one thread beside the other along it,
/// and as many rows at a time as there are threads for.
struct Pieces<A, const LINES: u32, const N: usize> {
    /// The first row.
    across: u32,
    /// Where in each row.
    along: u32,
    arrangement: PhantomData<A>,
}

impl<A: Arrangement, const LINES: u32, const N: usize> Pieces<A, LINES, N> {
    /// The rows of the tile.
    const ROWS: u32 = if A::ALONG_TERMS { LINES } else { DEPTH };
    /// The pieces of a row.
    const PER_ROW: u32 = if A::ALONG_TERMS { DEPTH } else { LINES } / N as u32;
    /// The rows from one piece of a thread to the next.
    const STEP: u32 = THREADS / Self::PER_ROW;

    #[inline(always)]
    fn of(thread: u32) -> Self {
        let (across, along) = (thread / Self::PER_ROW, thread % Self::PER_ROW * N as u32);
        Self { across, along, arrangement: PhantomData }
    }

    /// Calls `piece` with the row and the place in the tile of each piece.
    #[inline(always)]
    fn each(&self, mut piece: impl FnMut(u32, u32)) {
        const { assert!(THREADS.is_multiple_of(Self::PER_ROW) && Self::ROWS.is_multiple_of(Self::STEP)) };
        let mut row = self.across;
        let mut left = Self::ROWS / Self::STEP;
        while left > 0 {
            let place =
                if A::ALONG_TERMS { A::place(LINES, row, self.along) } else { A::place(LINES, self.along, row) };
            piece(row, place);
            row += Self::STEP;
            // Many pieces of one element each: unrolled, their places in the tile would take registers all the time.
            left = if N == 1 { hint::keep_rolled(left - 1) } else { left - 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::HashSet;

    use super::*;

    /// Every element has a place of its own, and each access of 8 lanes meets 8 different groups of banks.
    fn check<A: Arrangement>(lines: u32, accesses: impl Fn(u32) -> [(u32, u32); 8]) {
        let places: HashSet<u32> =
            (0..lines).flat_map(|line| (0..DEPTH).map(move |term| A::place(lines, line, term))).collect();
        assert_eq!(places.len() as u32, lines * DEPTH);
        assert!(places.iter().all(|&place| place < lines * DEPTH));
        for access in 0..16 {
            let banks: HashSet<u32> =
                accesses(access).into_iter().map(|(line, term)| A::place(lines, line, term) / 4 % 8).collect();
            assert_eq!(banks.len(), 8, "access {access}");
        }
    }

    #[test]
    fn places_are_distinct_and_free_of_bank_conflicts() {
        for lines in [128, 256] {
            // ldmatrix: 8 lines 4g + i, at the same four terms.
            check::<AlongTerms>(lines, |n| core::array::from_fn(|g| (32 + 4 * g as u32 + n % 4, n / 4 * 4)));
            // ld.shared.v4: lanes 8·p to 8·p + 7 have two g and all q.
            check::<AlongLines>(lines, |n| {
                core::array::from_fn(|lane| {
                    let (g, q) = (n % 4 * 2 + lane as u32 / 4, lane as u32 % 4);
                    (64 + 4 * g, q + n / 4 * 4)
                })
            });
        }
    }
}
