//! Grouped products with small tiles, several in a block, a team of threads for each: the body is that of [`batched`].
//!
//! A block may have tiles of several products, each with a k of its own. Its teams meet at barriers, so all of them take as many steps as
//! the one with the largest k; one that has no k left loads zeros, and multiplies nothing. Operands may lie in any way, those of each
//! product in another one: which loads are vectors differs between the lanes of a warp. The barriers do not depend on it, and have to stay
//! outside of what does: `tests/tests/convergence.rs` sees that the compiler makes no loop with barriers of its own for either.
//!
//! [`batched`]: crate::gemm::batched

use core::ptr;

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::GroupedGemm;
use crate::gemm::batched::*;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape};
use crate::{Matrix, MatrixBatch};

macro_rules! kernels {
    ($($kernel:ident, $side:literal, $loads:literal, $tile:ident, $min_blocks:literal, $tile_in_words:literal;)*) => { $(
        #[doc = concat!("`C = α·A·B + β·C` in fp32 for each product of a group, by teams with tiles of ", $tile_in_words, ".")]
        #[kernel(block = 128, min_blocks = $min_blocks, dynamic_shared = memory($side).bytes, requires(
            gemm.has_tiles_of($tile), gemm.tiles() <= MAX_BLOCKS
        ))]
        pub fn $kernel(gemm: GroupedGemm<'_>) {
            // SAFETY: all threads of the block come here, with the shared memory of the tile, which nothing else uses.
            unsafe { compute::<$side, { rows($side) }, $loads, _>(&gemm, $tile) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $kernel<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tiles_of_a_block($tile))
            }
        }
    )* };
}

kernels! {
    gemm_grouped_4_fp32, 4, 1, TILE_4, 8, "4×4";
    gemm_grouped_8_fp32, 8, 2, TILE_8, 6, "8×8";
    gemm_grouped_16_fp32, 16, 4, TILE_16, 4, "16×16";
    gemm_grouped_32_fp32, 32, 4, TILE_32, 4, "32×32";
}

impl<'a> TeamTiles<'a> for GroupedGemm<'a> {
    const SAME_K: bool = false;

    #[inline(always)]
    #[track_caller]
    fn tile(&self, shape: TileShape, number: u32) -> Option<Tile<'a>> {
        self.tile_by_rows(shape, number)
    }

    #[inline(always)]
    fn panels<const SIDE: usize, const LOADS: usize>(
        &self,
        tile: Option<Tile<'a>>,
        thread: usize,
    ) -> [Panel<'a, SIDE, LOADS>; 2] {
        // SAFETY: no element is in a matrix without any.
        let nothing = unsafe { Matrix::from_parts(GlobalSlice::from_raw_parts(ptr::dangling(), 0), [0; 2], [0; 2]) };
        let panel = |operand: Option<(Matrix<'a>, u32)>| {
            Panel::new(MatrixBatch::of_one(operand.map_or(nothing, |(matrix, _)| matrix)), operand, thread)
        };
        [panel(tile.map(|tile| (tile.a.transposed(), tile.row))), panel(tile.map(|tile| (tile.b, tile.col)))]
    }

    #[inline(always)]
    unsafe fn largest_k(&self, tile: Option<Tile<'a>>, memory: SharedSlice<f32>) -> u32 {
        let mut largest = tile.map_or(0, |tile| tile.k_end);
        let (warp, lane) = (thread::thread_idx_x() / warp::LANES, thread::thread_idx_x() % warp::LANES);
        // SAFETY: all threads of the block come here, so all lanes of each warp. One lane of each writes, to an element of its own;
        // barriers separate the writes from the reads, and these from what is written there next.
        unsafe {
            for distance in [16, 8, 4, 2, 1] {
                let (other, _) = warp::warp_shuffle_xor(warp::ALL_LANES, largest, distance, warp::LANES);
                largest = largest.max(other);
            }
            if lane == 0 {
                memory.write(warp as usize, f32::from_bits(largest));
            }
            thread::sync_threads();
            for warp in 0..THREADS / warp::LANES {
                largest = largest.max(memory.read(warp as usize).to_bits());
            }
            thread::sync_threads();
        }
        largest
    }
}
