//! The same numbers in other places: what comes before a product whose kernel cannot load an operand as it lies.
//!
//! ```text
//!  a b c d e · ·     any strides    ┌────────────┐     a f          any strides: by rows, by columns, aligned,
//!  f g h i j · ·   ───────────────► │ tile 64×64 │ ──► b g          whatever the kernel needs
//!                                   └────────────┘     c h …
//! ```
//!
//! Both the loads and the stores of a warp are of 32 neighbours in memory, also where the copy is a transpose: that is what
//! the tile in shared memory is for. What it costs: reading and writing every number once. 16.6 KB of shared memory; any
//! device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::tile::{self, PITCH, SIDE, Tiles};
use crate::{MatrixBatch, MatrixBatchMut};

/// Whether there are as many matrices of one kind as of the other, of the same shape.
#[cfg(not(target_arch = "nvptx64"))]
fn are_alike(from: &MatrixBatch<'_>, to: &MatrixBatchMut<'_>) -> bool {
    let (one, other) = (from.first(), to.first());
    (one.rows(), one.cols(), from.count()) == (other.rows(), other.cols(), to.count())
}

/// Copies matrices, from whatever strides to whatever strides.
#[kernel(block = 256, min_blocks = 5, requires(are_alike(&from, &to)))]
pub fn matrix_copy_fp32(from: MatrixBatch<'_>, to: MatrixBatchMut<'_>) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    // SAFETY: all threads of the block come here, for the same tiles. A barrier separates what is written to the tile in
    // shared memory from what others read of it, and another one, in `for_each`, those reads from the next writes. A launch
    // has checked that both batches have as many matrices, of one shape; each of their elements is in one tile.
    unsafe {
        Tiles::of(&from).for_each(|place| {
            tile::load(&from.at(place.matrix), place, &TILE);
            thread::sync_threads();
            tile::store(&to.at(place.matrix), place, &TILE);
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_copy_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(Tiles::of(&self.from).count)
    }
}
