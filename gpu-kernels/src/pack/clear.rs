//! Zeros where nothing is wanted of a result: what comes after a product of which only a triangle is.
//!
//! ```text
//!  ■ ■ ■ ■        ■ ■ ■ ■
//!  ? ■ ■ ■   ──►  0 ■ ■ ■         what stood there is not read
//!  ? ? ■ ■        0 0 ■ ■
//! ```
//!
//! A warp stores 32 neighbours in memory, whatever the strides. What it costs: writing those elements once. Any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::tile::{self, SIDE, Tiles};
use crate::{MatrixBatchMut, Triangle};

/// Sets the elements of matrices to zero that are outside of a triangle.
#[kernel(block = 256)]
pub fn matrix_clear_outside_fp32(matrices: MatrixBatchMut<'_>, triangle: Triangle) {
    let tiles = tiles(&matrices);
    // SAFETY: all threads of the block come here, for the same tiles. Each element is in one tile, and of one thread there.
    unsafe {
        tiles.for_each(|place| {
            if !triangle.contains_all([place.line, place.term], [SIDE, SIDE]) {
                tile::clear_outside(&matrices.at(place.matrix), place, triangle);
            }
        });
    }
}

#[inline(always)]
fn tiles(matrices: &MatrixBatchMut<'_>) -> Tiles {
    Tiles::of_extents(matrices.first().rows(), matrices.first().cols(), matrices.count())
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_clear_outside_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(tiles(&self.matrices).count)
    }
}
