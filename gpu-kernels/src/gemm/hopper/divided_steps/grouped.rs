//! Grouped products by one warpgroup for each tile of 64×64: each block finds its tile in a [group](crate::gemm::grouped), and goes on as
//! in a product alone. Rows may begin anywhere, and there are no tensor maps, which a list of products would need one of each for.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::tile_of;
use super::{Memory, multiply};
use crate::gemm::grouped::GroupedGemm;
use crate::gemm::hopper::operand::{KMajor, MnMajor};
use crate::gemm::hopper::scheme::ThreeTf32;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;

/// A kernel for each layout of A and B.
macro_rules! kernels {
    ($($name:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $layout:literal;)*) => { $(
        #[doc = concat!(
            "`C = α·A·B + β·C` in fp32 by three TF32 products, by one warpgroup for a tile of 64×64 of each product of a group, ",
            $layout, "."
        )]
        #[kernel(
            block = 128,
            min_blocks = 3,
            arch = "sm_90a",
            dynamic_shared = Memory::<1>::NEW.bytes,
            requires(
                gemm.$a_contiguous(),
                gemm.$b_contiguous(),
                gemm.has_tiles_of(tile_of(1)),
                gemm.tiles() <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: GroupedGemm<'_>) {
            // SAFETY: the block and its shared memory are as large as the body needs; the layouts are as the launch has checked.
            unsafe { multiply::<$a, $b, ThreeTf32, 1, _>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(1)
            }
        }
    )* };
}

kernels! {
    gemm_grouped_wgmma_64x64_k32_nn_fp32_3xtf32, KMajor a_is_contiguous_along_rows, MnMajor b_is_contiguous_along_rows,
        "A and B row-major";
    gemm_grouped_wgmma_64x64_k32_nt_fp32_3xtf32, KMajor a_is_contiguous_along_rows, KMajor b_is_contiguous_along_cols,
        "A row-major and B column-major";
    gemm_grouped_wgmma_64x64_k32_tn_fp32_3xtf32, MnMajor a_is_contiguous_along_cols, MnMajor b_is_contiguous_along_rows,
        "A column-major and B row-major";
    gemm_grouped_wgmma_64x64_k32_tt_fp32_3xtf32, MnMajor a_is_contiguous_along_cols, KMajor b_is_contiguous_along_cols,
        "A and B column-major";
}
