//! Computes elements of a tile of C again in plain fp32, straight from global memory: the fallback of kernels that have met operands that
//! they cannot decompose.
//!
//! ```text
//!             4 columns
//!            ┌─────────┐          each thread: 4×4 elements of C at a time, 8 loads for 16 multiplications, straight
//!            │    B    │          from global memory; its neighbours in the warp load from the same rows of A, so the
//!            └─────────┘          first-level cache serves most of it
//!   ┌─────┐  ┌─────────┐
//! 4 │  A  │  │    C    │          32 products are added up, each one fused operation after the other, and then added
//!   └─────┘  └─────────┘          to the accumulator
//! ```
//!
//! **Which elements.** Those whose row of A, or column of B, has a number that is too small to be decomposed, and those that tensor cores
//! have made infinite or NaN of. The others are what tensor cores have made of them. So what a row of C becomes depends on that row of A and
//! on B, and not on the rows that happen to be in the same tile. But for one thing: where all rows of A, or all columns of B, of a tile
//! [select](super::scan), elements of these lines are computed again, too. A plan for invariant rows leaves that out.
//!
//! Infinities and NaNs come out in the class that an fp32 sum gives, because this is one. The code is kept small rather than
//! fast: it stands in every kernel that decomposes operands, and runs for the tiles that need it only.

use cuda_std::prelude::*;

use super::scan::{self, NOT_FINITE, TOO_SMALL_A, TOO_SMALL_B, is_too_small, may_select};
use super::tiles::{Tile, TileShape};
use crate::Matrix;

/// The rows and the columns of C that a thread computes at a time.
const SIDE: usize = 4;

/// The bits of the lines of an operand among those of [`Sums`].
const LINES_OF_OPERAND: u32 = (1 << SIDE) - 1;

/// The rows and the columns of C that a warp computes at a time, 8 threads below and 4 beside each other. The fewer different
/// rows of A and columns of B a load touches, the fewer accesses to the cache it makes.
const WARP_ROWS: u32 = 8 * SIDE as u32;
/// See [`WARP_ROWS`].
const WARP_COLS: u32 = 4 * SIDE as u32;

/// The k that are added up before their sum is added to the accumulator.
const CHUNK: u32 = 32;

/// What there is of an element before it is computed again.
#[derive(Clone, Copy)]
pub(crate) enum Made {
    /// Nothing: it is computed in any case.
    Nothing,
    /// Its sum, from tensor cores.
    Sum(f32),
    /// Its sum, from tensor cores, which is finite and has been stored already.
    Stored,
}

/// What is to be computed again, besides elements that are not finite: elements of lines that have numbers which are too small, and
/// of lines with one number alone, of A and of B, if so.
#[derive(Clone, Copy)]
pub(crate) struct Again {
    /// Of which lines those are that have one number alone: the bits of rows of A, or of columns of B, as in [`Sums`].
    selecting: u32,
}

impl Again {
    /// For elements of which [`Made::Nothing`] is there.
    pub(crate) const ALL: Self = Self { selecting: 0 };

    /// What follows from what a block has [`found`](scan::found) of a tile; nothing if it is to be stored as it is. `exact_selections` is
    /// [`TiledGemm::has_exact_selections`](super::tiles::TiledGemm::has_exact_selections).
    ///
    /// # Safety
    /// All lanes of the warp call this function together, with the same arguments.
    #[inline(always)]
    pub(crate) unsafe fn of(tile: &Tile<'_>, shape: TileShape, found: u32, exact_selections: bool) -> Option<Self> {
        let mut selecting = 0;
        if exact_selections {
            let lines = [(scan::A, tile.a, tile.row, shape.m), (scan::B, tile.b.transposed(), tile.col, shape.n)];
            for i in 0..2 {
                let (operand, matrix, first, count) = lines[i];
                // SAFETY: the caller's promise.
                let selects = may_select(found, operand)
                    && unsafe { first_line_selects(&matrix, [first, count], [tile.k_begin, tile.k_end]) };
                selecting |= if selects { LINES_OF_OPERAND << (i * SIDE) } else { 0 };
            }
        }
        (found & (TOO_SMALL_A | TOO_SMALL_B | NOT_FINITE) != 0 || selecting != 0).then_some(Self { selecting })
    }
}

/// Whether, of `count` rows of a matrix from `first` on, the first one with a number other than zero between two k has only that one.
/// (Of rows of which every one has at most one, it has. Of others it hardly ever has, and what follows is that work is done for nothing.)
///
/// # Safety
/// All lanes of the warp call this function together, with the same arguments; the matrix has as many k.
#[inline(always)]
unsafe fn first_line_selects(matrix: &Matrix<'_>, [first, count]: [u32; 2], [k_begin, k_end]: [u32; 2]) -> bool {
    let (lane, end) = (warp::lane_id(), (first + count).min(matrix.rows()));
    let mut line = first;
    while line < end {
        let (mut numbers, mut k) = (0, k_begin);
        while k < k_end {
            // SAFETY: the line is inside, and so is k, as compared; all lanes come here as often.
            numbers += unsafe {
                let is_number = k_end - k > lane && matrix.at(line, k + lane) != 0.0;
                warp::warp_vote_ballot(warp::ALL_LANES, is_number).count_ones()
            };
            if numbers > 1 {
                return false;
            }
            k = hint::keep_rolled(k + warp::LANES);
        }
        if numbers == 1 {
            return true;
        }
        line = hint::keep_rolled(line + 1);
    }
    false
}

/// A part of C: `rows` by `cols` elements, the first of which is (`row`, `col`).
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) row: u32,
    pub(crate) col: u32,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
}

impl Region {
    /// All of a tile.
    #[inline(always)]
    pub(crate) fn all_of(tile: &Tile<'_>, shape: TileShape) -> Self {
        Self { row: tile.row, col: tile.col, rows: shape.m, cols: shape.n }
    }
}

/// Stores the elements of a region of a tile, those that need it `again` in fp32, by `threads` threads of which this is number `thread`.
/// `made(row, col)` says what there is of an element, whose row and column are counted from the first of the region.
///
/// # Safety
/// All of these threads call this function with the same tile and region, which is one of the tile's, begins at a column that is a multiple
/// of 4, and whose `rows` are 16 or a multiple of 32 and whose `cols` are a multiple of 16; and no other thread accesses these elements of C.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn recompute(
    tile: &Tile<'_>,
    region: Region,
    thread: u32,
    threads: u32,
    again: Again,
    made: impl Fn(u32, u32) -> Made,
) {
    let across = region.cols / WARP_COLS;
    let pieces = region.rows.div_ceil(WARP_ROWS) * across * warp::LANES;
    let mut piece = thread;
    while piece < pieces {
        let (part, lane) = (piece / warp::LANES, piece % warp::LANES);
        let down = part / across * WARP_ROWS + lane / 4 * SIDE as u32;
        let right = part % across * WARP_COLS + lane % 4 * SIDE as u32;
        let (row, col) = (region.row + down, region.col + right);
        if down < region.rows && row < tile.c.rows() && col < tile.c.cols() {
            // SAFETY: the first row and the first column are inside, as just compared.
            let (Sums { sums, too_small }, alone) = unsafe { (sums(tile, row, col), alone(tile, row, col, again)) };
            let lines = too_small | alone;
            for i in 0..SIDE {
                let mut is_stored = [false; SIDE];
                let values: [f32; SIDE] = core::array::from_fn(|j| {
                    let is_wanted = lines & (1 << i | 1 << (SIDE + j)) != 0;
                    match made(down + i as u32, right + j as u32) {
                        Made::Sum(sum) if sum.is_finite() && !is_wanted => return sum,
                        Made::Stored => is_stored[j] = !is_wanted,
                        Made::Nothing | Made::Sum(_) => {}
                    }
                    sums[i][j]
                });
                // SAFETY: the column is a multiple of 4, because the region begins at one, and the pieces do not overlap.
                unsafe {
                    if is_stored == [false; SIDE] {
                        tile.epilogue(row + i as u32, col, values);
                    } else {
                        for j in 0..SIDE {
                            if !is_stored[j] {
                                tile.epilogue_element(row + i as u32, col + j as u32, values[j]);
                            }
                        }
                    }
                }
            }
        }
        piece = hint::keep_rolled(piece + threads);
    }
}

/// The sums of 4×4 elements, and which of the rows of A and columns of B have numbers that are too small to be decomposed.
struct Sums {
    sums: [[f32; SIDE]; SIDE],
    /// A bit for each row, then one for each column: kernels call this with hardly a register left.
    too_small: u32,
}

/// The sums of the 4×4 elements from (`row`, `col`) on. Those outside of C are of other elements of A and B.
///
/// # Safety
/// (`row`, `col`) is inside C.
#[inline(always)]
#[track_caller]
unsafe fn sums(tile: &Tile<'_>, row: u32, col: u32) -> Sums {
    // The last row and the last column stand for those that do not exist.
    let rows: [u32; SIDE] = core::array::from_fn(|i| (row + i as u32).min(tile.c.rows() - 1));
    let cols: [u32; SIDE] = core::array::from_fn(|i| (col + i as u32).min(tile.c.cols() - 1));
    let mut sums = [[0.0; SIDE]; SIDE];
    let mut too_small = 0;
    let mut first = tile.k_begin;
    while first < tile.k_end {
        let end = (first + CHUNK).min(tile.k_end);
        let mut chunk = [[0.0; SIDE]; SIDE];
        let mut l = first;
        while l < end {
            // SAFETY: rows of A and columns of B are those of C, and l is below k.
            let a: [f32; SIDE] = core::array::from_fn(|i| unsafe { tile.a.at(rows[i], l) });
            // SAFETY: as above.
            let b: [f32; SIDE] = core::array::from_fn(|j| unsafe { tile.b.at(l, cols[j]) });
            for i in 0..SIDE {
                too_small |= u32::from(is_too_small(a[i])) << i | u32::from(is_too_small(b[i])) << (SIDE + i);
                for j in 0..SIDE {
                    chunk[i][j] = math::fma(a[i], b[j], chunk[i][j]);
                }
            }
            l = hint::keep_rolled(l + 1);
        }
        for i in 0..SIDE {
            for j in 0..SIDE {
                sums[i][j] += chunk[i][j];
            }
        }
        first = end;
    }
    Sums { sums, too_small }
}

/// Of the rows of A and columns of B of 4×4 elements from (`row`, `col`) on, those that have one number alone, if such are to be computed again, as
/// [`Sums::too_small`] has those. (By a loop of its own: in that of [`sums`] it would take registers.)
///
/// # Safety
/// As for [`sums`].
#[inline(always)]
#[track_caller]
unsafe fn alone(tile: &Tile<'_>, row: u32, col: u32, Again { selecting }: Again) -> u32 {
    if selecting == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let [rows, cols] = unsafe { [alone_of(&tile.a, row, tile), alone_of(&tile.b.transposed(), col, tile)] };
    (rows | cols << SIDE) & selecting
}

/// Which of four rows of a matrix from `first` on have one number alone, between the two k of a tile.
///
/// # Safety
/// The matrix has a row, and all k of the tile.
#[inline(always)]
#[track_caller]
unsafe fn alone_of(matrix: &Matrix<'_>, first: u32, tile: &Tile<'_>) -> u32 {
    let (mut alone, mut i) = (0, 0);
    while i < SIDE as u32 {
        let (line, mut numbers, mut k) = ((first + i).min(matrix.rows() - 1), 0, tile.k_begin);
        while k < tile.k_end && numbers < 2 {
            // SAFETY: the line is inside, and k is below the end.
            numbers += u32::from(unsafe { matrix.at(line, k) } != 0.0);
            k = hint::keep_rolled(k + 1);
        }
        alone |= u32::from(numbers == 1) << i;
        i = hint::keep_rolled(i + 1);
    }
    alone
}
