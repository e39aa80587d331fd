//! The fallback of a product whose blocks have shared the [scan] of its operands: a launch of its own that reads the tile mask, and
//! looks through the tiles whose operands could not be decomposed, or may select, for the elements that have to be computed again.
//!
//! ```text
//!               columns of tiles
//!              ┌────┬────┬────┐
//!              │    │ B! │    │         block (0, 1) has found an operand in B that is too small: all of column 1
//!   rows of    ├────┼────┼────┤
//!   tiles      │ A! │    │    │         block (1, 0) has found one in A: all of row 1
//!              └────┴────┴────┘
//!                                       looked through: (0, 1), and all of row 1
//! ```
//!
//! Whether A selects is asked of a row of tiles, and B of a column. Where nothing has been found, every block finds that out by reading a few words, and ends.

use blocks::block_or::or_of_warp;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::fp32_tile::{self, Again, Made, Region};
use super::hopper::decomposed_block::TILE;
use super::scan::{self, NOT_ZERO, OF_A, OF_B};
#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::MAX_BLOCKS;
use super::tiles::TiledGemm;

/// The threads of a block.
const THREADS: u32 = gemm_repair_fp32::BLOCK.x;

/// Computes `C = α·A·B` in fp32 for the elements, of the tiles that the mask names, whose row of A or column of B has a number that is too
/// small to be decomposed, or one number alone where all of them select, and leaves the others as they are.
///
/// `tile_mask` has a word for each block of a product with `splits` split-K slices and the same tiles.
#[kernel(
    block = 256,
    min_blocks = 2,
    requires(
        gemm.blocks(TILE) <= MAX_BLOCKS,
        gemm.splits() == 1,
        gemm.overwrites(),
        u64::from(splits) * gemm.blocks(TILE) <= tile_mask.len() as u64
    )
)]
pub fn gemm_repair_fp32(gemm: TiledGemm<'_>, tile_mask: GlobalSlice<'_, u32>, splits: u32) {
    static FOUND: Shared<[u32; (THREADS / 32) as usize]> = Shared::new();
    let Some(tile) = gemm.tile(TILE, thread::block_idx_x()) else { return };
    let thread = thread::thread_idx_x();
    let (down, across) = (gemm.m().div_ceil(TILE.m), gemm.n().div_ceil(TILE.n));
    let mut found = 0;
    for split in 0..splits {
        let first = (tile.product * splits + split) * down * across;
        let word = |row, col| {
            let block = first + gemm.position(TILE, row, col);
            // SAFETY: below the number of blocks of all splits, which a launch has compared with that of the tile_mask.
            unsafe { tile_mask.get_unchecked(block as usize) }
        };
        for col in (thread..across).step_by(THREADS as usize) {
            found |= word(tile.row / TILE.m, col) & (OF_A | NOT_ZERO);
        }
        for row in (thread..down).step_by(THREADS as usize) {
            found |= word(row, tile.col / TILE.n) & (OF_B | NOT_ZERO);
        }
    }
    // SAFETY: one lane of each warp writes its element, and all threads wait before they read. Nobody else writes the tile.
    unsafe {
        let of_warp = or_of_warp::<{ scan::BITS }>(found);
        if warp::lane_id() == 0 {
            FOUND.write((thread / 32) as usize, of_warp);
        }
        thread::sync_threads();
        let mut found = 0;
        for warp in 0..THREADS / 32 {
            found |= FOUND.read(warp as usize);
        }
        if let Some(again) = Again::of(&tile, TILE, found, gemm.has_exact_selections()) {
            fp32_tile::recompute(&tile, Region::all_of(&tile, TILE), thread, THREADS, again, |_, _| Made::Stored);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_repair_fp32<'_> {
    fn grid(&self) -> Dim3 {
        self.gemm.grid(TILE)
    }
}
