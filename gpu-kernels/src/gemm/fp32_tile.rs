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
//! on B, and not on the rows that happen to be in the same tile.
//!
//! Infinities and NaNs come out in the class that an fp32 sum gives, because this is one. The code is kept small rather than
//! fast: it stands in every kernel that decomposes operands, and runs for the tiles that need it only.

use cuda_std::prelude::*;

use super::decompose::is_too_small;
use super::tiles::{Tile, TileShape};

/// The rows and the columns of C that a thread computes at a time.
const SIDE: usize = 4;

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

/// Stores the elements of a region of a tile, those that need it computed in fp32, by `threads` threads of which this is number `thread`.
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
            let Sums { sums, too_small } = unsafe { sums(tile, row, col) };
            for i in 0..SIDE {
                let mut is_stored = [false; SIDE];
                let values: [f32; SIDE] = core::array::from_fn(|j| {
                    let is_too_small = too_small & (1 << i | 1 << (SIDE + j)) != 0;
                    match made(down + i as u32, right + j as u32) {
                        Made::Sum(sum) if sum.is_finite() && !is_too_small => return sum,
                        Made::Stored => is_stored[j] = !is_too_small,
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
