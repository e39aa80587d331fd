//! The exceptions of packed operands: numbers that were left out of what tensor cores multiply, whose products are added to the sums in shared
//! memory, before these are stored.
//!
//! ```text
//!           B[k, j …]                               A[i …, k]
//!          ┌─────────┐                             ┌─┐
//!  A[i, k] · · · · · │                  B[k, j]  · │ │
//!          └─────────┘                             │ │         the product of two exceptions is added once
//!  sums:   row i of the tile                       └─┘
//!                                       sums:   column j of the tile
//! ```
//!
//! A number is read where it was before it was packed ([`crate::pack::exceptions`]). Usually there is none, and that costs two loads for a tile.

use cuda_std::prelude::*;

use super::fallback::{GROUP, flags_of};
use crate::gemm::tiles::Tile;
use crate::pack::exceptions::Exceptions;

/// The exceptions of the rows and columns that a tile is one of.
#[derive(Clone, Copy)]
pub(super) struct TileExceptions<'a> {
    /// Those of A and of B.
    operands: [Exceptions<'a>; 2],
    any: bool,
}

impl<'a> TileExceptions<'a> {
    /// Those of a tile.
    ///
    /// # Safety
    /// A launch has checked what goes with the operands; the tile is one of the product.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn of(tile: &Tile<'_>, operands: [Exceptions<'a>; 2]) -> Self {
        let groups = flags_of(tile);
        // SAFETY: there is a list for each group, by the caller's promise.
        let [of_a, of_b] = [0, 1].map(|i| unsafe { operands[i].count(groups[i]) });
        Self { operands, any: of_a | of_b != 0 }
    }

    /// Whether there are any.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.any
    }

    /// Adds their products to the sums of `rows` rows and 32 columns of the tile, from (`row`, `col`) on: `place` is where a sum is, both counted from
    /// there.
    ///
    /// # Safety
    /// All lanes of a warp come here, which has met since the sums were written; it has met again when this is over. No other warp accesses them.
    /// The tile is the one that these are of, and so many rows are at most 32.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn add(
        &self,
        tile: &Tile<'_>,
        [row, col]: [u32; 2],
        rows: u32,
        memory: &SharedSlice<f32>,
        place: impl Fn([u32; 2]) -> u32,
    ) {
        let [of_a, of_b] = self.operands;
        let [group_a, group_b] = flags_of(tile);
        let [first_row, first_col] = [tile.row, tile.col].map(|first| first / GROUP * GROUP);
        // SAFETY: a launch has checked that there are as many matrices as A and B have.
        let [a, b] = unsafe { [of_a.source.at(tile.matrices[0]), of_b.source.at(tile.matrices[1])] };
        let lane = warp::lane_id();
        let is_in_sum = |term: u32| term >= tile.k_begin && term < tile.k_end;
        // SAFETY: the caller's promise; there are so many exceptions, and their lines and terms are there. For each, a lane has one sum of the row or of the
        // column, and the warp meets before the next one.
        unsafe {
            let counts = [of_a.count(group_a), of_b.count(group_b)];
            let mut number = 0;
            while number < counts[0] + counts[1] {
                let is_of_a = number < counts[0];
                let [line, term] =
                    if is_of_a { of_a.get(group_a, number) } else { of_b.get(group_b, number - counts[0]) };
                // The row and the column of this lane's sum, counted from the first ones.
                let down = if is_of_a { (first_row + line).wrapping_sub(row) } else { lane };
                let right = if is_of_a { lane } else { (first_col + line).wrapping_sub(col) };
                let is_there =
                    down < rows && right < warp::LANES && row + down < tile.c.rows() && col + right < tile.c.cols();
                if is_there && is_in_sum(term) && (is_of_a || !of_a.contains(group_a, [row + down - first_row, term])) {
                    let (x, y) = (a.at(row + down, term), b.at(col + right, term));
                    let at = place([down, right]) as usize;
                    memory.write(at, math::fma(x, y, memory.read(at)));
                }
                // The next sums are those of other lanes, where a column follows a row.
                warp::sync_warp(warp::ALL_LANES);
                number = hint::keep_rolled(number + 1);
            }
        }
    }
}
