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
}

/// What a tile of an operand holds: `COUNT` lines from `first` on, where `matrix` has them, whose rows they are and whose
/// columns are k. `THREADS` threads copy it: all of a block, unless `SHARES_BLOCK` says that others copy other tiles.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a, A, const COUNT: u32, const THREADS: u32, const SHARES_BLOCK: bool> {
    matrix: Matrix<'a>,
    first: u32,
    arrangement: PhantomData<A>,
}

impl<'a, A: Arrangement, const COUNT: u32, const THREADS: u32, const SHARES_BLOCK: bool>
    Lines<'a, A, COUNT, THREADS, SHARES_BLOCK>
{
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

    /// Whether vectors can be copied.
    #[inline(always)]
    pub(super) fn take_vectors(&self) -> bool {
        self.matrix.has_lines_of_vectors(self.pitch())
    }

    /// Issues the copies of the lines, from `k` to below `end`, to the tile that begins at `tile` in shared memory,
    /// with zeros for what does not exist. The threads together copy all of it.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. `k` is a multiple of 16 or not below `end`; `end` is at most the
    /// k of the product; `vectors` is what [`Lines::take_vectors`] has found.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn copy<S: Scheme>(&self, shared: &SharedSlice<f32>, tile: u32, k: u32, end: u32, vectors: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            if vectors {
                self.copy_pieces::<S, VECTOR>(shared, tile, k, end);
            } else {
                self.copy_pieces::<S, 1>(shared, tile, k, end);
            }
        }
    }

    /// [`Lines::copy`] in pieces of `N` elements: in the order of memory, one thread beside the other along it, and as many
    /// rows at a time as there are threads for.
    ///
    /// # Safety
    /// As there; lines, or rows of one k, begin at multiples of the size of `N` elements.
    #[inline(always)]
    #[track_caller]
    unsafe fn copy_pieces<S: Scheme, const N: usize>(&self, shared: &SharedSlice<f32>, tile: u32, k: u32, end: u32) {
        // Where this block's part of the operand begins and where the operand ends, across and along the order of memory.
        let (lines, terms) = ((self.first, self.matrix.rows()), (k, end));
        let (across, along) = if A::K { (lines, terms) } else { (terms, lines) };
        // The rows of the tile, the pieces of each, and the rows from one piece of a thread to the next.
        let (rows, width) = if A::K { (COUNT, DEPTH) } else { (DEPTH, COUNT) };
        let per_row = width / N as u32;
        let step = THREADS / per_row;
        // Where a scheme needs many registers, and for many small pieces, none are kept for what can be computed again.
        let thread = if S::EXACT || N == 1 { this_thread() } else { thread::thread_idx_x() };
        let thread = if SHARES_BLOCK { thread % THREADS } else { thread };
        let (mut row, column) = (thread / per_row, thread % per_row * N as u32);
        let count = along.1.saturating_sub(along.0 + column).min(N as u32);
        let mut offset = u64::from(across.0 + row) * self.pitch() + u64::from(along.0 + column);
        let mut left = rows / step;
        while left > 0 {
            let offset_in_tile =
                if A::K { A::offset_in_tile(COUNT, row, column) } else { A::offset_in_tile(COUNT, column, row) };
            let count = if across.0 + row < across.1 { count } else { 0 };
            // SAFETY: the offset is inside the tile, and each thread has its own. The first `count` elements are inside the
            // operand, so inside its data. They are aligned: what is along memory begins at a multiple of N, as does every
            // row by the caller's promise, and the offset of such a piece is aligned too.
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
}

/// Whether so many threads can copy tiles of so many lines: each as many pieces as every other, in either arrangement, of 4
/// elements or of one.
const fn divides_tiles(threads: u32, lines: u32) -> bool {
    const fn divides(threads: u32, rows: u32, width: u32) -> bool {
        threads.is_multiple_of(width) && rows.is_multiple_of(threads / width)
    }
    let along_terms = divides(threads, lines, DEPTH / 4) && divides(threads, lines, DEPTH);
    along_terms && divides(threads, DEPTH, lines / 4) && divides(threads, DEPTH, lines)
}
