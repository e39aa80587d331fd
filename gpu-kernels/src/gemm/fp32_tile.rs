//! Computes a tile of C again in plain fp32, straight from global memory: the fallback of kernels that have met operands that they
//! cannot decompose.
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
//! Infinities and NaNs come out in the class that an fp32 sum gives, because this is one. The code is kept small rather than
//! fast: it stands in every kernel that decomposes operands, and runs for the tiles that need it only.

use cuda_std::prelude::*;

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

/// Computes all elements of a tile, by `threads` threads of which this is number `thread`.
///
/// # Safety
/// All of these threads call this function with the same tile and shape, whose `m` is a multiple of 32 and whose `n` of 16, and no other
/// thread accesses these elements of C.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn compute_tile(tile: &Tile<'_>, shape: TileShape, thread: u32, threads: u32) {
    let across = shape.n / WARP_COLS;
    let pieces = shape.m / WARP_ROWS * across * warp::LANES;
    let mut piece = thread;
    while piece < pieces {
        let (part, lane) = (piece / warp::LANES, piece % warp::LANES);
        let row = tile.row + part / across * WARP_ROWS + lane / 4 * SIDE as u32;
        let col = tile.col + part % across * WARP_COLS + lane % 4 * SIDE as u32;
        if row < tile.c.rows() && col < tile.c.cols() {
            // SAFETY: the first row and the first column are inside, as just compared.
            let accumulators = unsafe { accumulators(tile, row, col) };
            for (i, accumulators) in accumulators.iter().enumerate() {
                // SAFETY: `col` is a multiple of 4, because the tile begins at one, and the pieces do not overlap.
                unsafe { tile.epilogue(row + i as u32, col, *accumulators) };
            }
        }
        piece = hint::keep_rolled(piece + threads);
    }
}

/// The accumulators of the 4×4 elements from (`row`, `col`) on. Those outside of C are of other elements of A and B.
///
/// # Safety
/// (`row`, `col`) is inside C.
#[inline(always)]
#[track_caller]
unsafe fn accumulators(tile: &Tile<'_>, row: u32, col: u32) -> [[f32; SIDE]; SIDE] {
    // The last row and the last column stand for those that do not exist.
    let rows: [u32; SIDE] = core::array::from_fn(|i| (row + i as u32).min(tile.c.rows() - 1));
    let cols: [u32; SIDE] = core::array::from_fn(|i| (col + i as u32).min(tile.c.cols() - 1));
    let mut accumulators = [[0.0; SIDE]; SIDE];
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
                for j in 0..SIDE {
                    chunk[i][j] = math::fma(a[i], b[j], chunk[i][j]);
                }
            }
            l = hint::keep_rolled(l + 1);
        }
        for i in 0..SIDE {
            for j in 0..SIDE {
                accumulators[i][j] += chunk[i][j];
            }
        }
        first = end;
    }
    accumulators
}
