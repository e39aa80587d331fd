//! Grids, and walking through more tiles than a grid has blocks.

use cuda_std::thread;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, Kernel};

/// A kernel that knows the grid its arguments call for.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Grid: Kernel {
    /// The grid, in blocks of [`Kernel::BLOCK`] threads. Every extent is at least 1 and within CUDA's limits; a problem
    /// without any output gives one block, which finds nothing to do.
    fn grid(&self) -> Dim3;
}

/// CUDA's limit for the `x` extent of a grid.
#[cfg(not(target_arch = "nvptx64"))]
const MAX_GRID_X: u64 = (1 << 31) - 1;
/// CUDA's limit for the `y` extent of a grid.
#[cfg(not(target_arch = "nvptx64"))]
const MAX_GRID_Y: u64 = 65_535;

/// A grid of one block for each of `count` pieces of work in a row.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn line_of_blocks(count: u64) -> Dim3 {
    Dim3::new(count.clamp(1, MAX_GRID_X) as u32, 1, 1)
}

/// A grid of one block for each tile of an m×n matrix: tiles side by side along `x`, one below the other along `y`. Where
/// there are more rows of tiles than `y` can count, a block walks on with [`tile_rows`].
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn grid_of_tiles(m: u32, n: u32, tile_rows: u32, tile_cols: u32) -> Dim3 {
    let across = u64::from(n.div_ceil(tile_cols)).clamp(1, MAX_GRID_X);
    let down = u64::from(m.div_ceil(tile_rows)).clamp(1, MAX_GRID_Y);
    Dim3::new(across as u32, down as u32, 1)
}

/// The first row of each tile of `height` rows that falls to this block, among `m` rows in a grid made by
/// [`grid_of_tiles`]. The same for all threads of the block, so there may be barriers in the loop.
#[inline(always)]
pub(crate) fn tile_rows(m: u32, height: u32) -> impl Iterator<Item = u32> {
    // In 64 bits, because the row after the last one of this block may be beyond 2³².
    let step = u64::from(thread::grid_dim_y()) * u64::from(height);
    let mut row = u64::from(thread::block_idx_y()) * u64::from(height);
    core::iter::from_fn(move || {
        let first = row;
        row += step;
        (first < u64::from(m)).then_some(first as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_the_matrix_within_cudas_limits() {
        assert_eq!(grid_of_tiles(2048, 4096, 8, 32), Dim3::new(128, 256, 1));
        assert_eq!(grid_of_tiles(9, 33, 8, 32), Dim3::new(2, 2, 1));
        assert_eq!(grid_of_tiles(0, 0, 8, 32), Dim3::new(1, 1, 1));
        assert_eq!(grid_of_tiles(i32::MAX as u32, 1, 8, 32), Dim3::new(1, 65_535, 1));
        assert_eq!(line_of_blocks(0), Dim3::new(1, 1, 1));
        assert_eq!(line_of_blocks(1 << 40), Dim3::new(i32::MAX as u32, 1, 1));
    }
}
