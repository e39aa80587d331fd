//! Grids, and which tile a block of one has.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::thread;

/// CUDA's limit for the `x` extent of a grid.
#[cfg(not(target_arch = "nvptx64"))]
const MAX_GRID_X: u64 = (1 << 31) - 1;
/// CUDA's limit for the `y` extent of a grid, and for the `z` extent.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const MAX_GRID_Y: u32 = 65_535;

/// A grid of one block for each of `count` pieces of work in a row.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn line_of_blocks(count: u64) -> Dim3 {
    Dim3::new(count.clamp(1, MAX_GRID_X) as u32, 1, 1)
}

/// A grid of one block for each tile of an m×n matrix: tiles side by side along `x`, one below the other along `y`, and where
/// there are more rows of tiles than `y` can count, along `z` as well. [`first_row`] is where a block's tile begins.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn grid_of_tiles(m: u32, n: u32, tile_rows: u32, tile_cols: u32) -> Dim3 {
    let across = n.div_ceil(tile_cols).max(1);
    let down = m.div_ceil(tile_rows).max(1);
    Dim3::new(across, down.min(MAX_GRID_Y), down.div_ceil(MAX_GRID_Y))
}

/// The first row of this block's tile of `height` rows, in a grid made by [`grid_of_tiles`]. It may lie below the last row
/// of the matrix: then the whole block has nothing to do.
#[inline(always)]
pub(crate) fn first_row(height: u32) -> u32 {
    (thread::block_idx_z() * thread::grid_dim_y() + thread::block_idx_y()) * height
}

/// Quotient and remainder. (Written with `/` alone, a divisor that might be zero brings panic code with it.)
#[inline(always)]
pub(crate) fn divide(dividend: u64, divisor: u64) -> (u64, u64) {
    let quotient = dividend.checked_div(divisor).unwrap_or(u64::MAX);
    (quotient, dividend.wrapping_sub(quotient.wrapping_mul(divisor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_the_matrix_within_cudas_limits() {
        assert_eq!(grid_of_tiles(2048, 4096, 8, 32), Dim3::new(128, 256, 1));
        assert_eq!(grid_of_tiles(9, 33, 8, 32), Dim3::new(2, 2, 1));
        assert_eq!(grid_of_tiles(0, 0, 8, 32), Dim3::new(1, 1, 1));
        assert_eq!(grid_of_tiles(i32::MAX as u32, 1, 8, 32), Dim3::new(1, 65_535, 4097));
        assert_eq!(grid_of_tiles(65_535 * 8 + 1, 1, 8, 32), Dim3::new(1, 65_535, 2));
        assert_eq!(grid_of_tiles(1, i32::MAX as u32, 8, 32), Dim3::new(1 << 26, 1, 1));
        assert_eq!(line_of_blocks(0), Dim3::new(1, 1, 1));
        assert_eq!(line_of_blocks(1 << 40), Dim3::new(i32::MAX as u32, 1, 1));
    }
}
