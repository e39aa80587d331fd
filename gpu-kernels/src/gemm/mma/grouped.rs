//! Grouped products by the kernels with tiles of 64×64: each block finds its tile in a [group](crate::gemm::grouped), and goes on as in
//! a product alone. Four warps of 32×32 are the division that wastes least of a group: its blocks are many, so none has to be divided
//! for the multiprocessors to be full, and three on a multiprocessor hide that each begins with a look at the table.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::Medium;
#[cfg(not(target_arch = "nvptx64"))]
use super::SHAPE_64X64;
use super::operand::{KMajor, MnMajor};
use super::scheme::ThreeTf32;
use crate::gemm::grouped::GroupedGemm;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;

/// A kernel for each layout of A and B.
macro_rules! kernels {
    ($($name:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $layout:literal;)*) => { $(
        #[doc = concat!("`C = α·A·B + β·C` in fp32 by three TF32 products, for each product of a group, ", $layout, ".")]
        #[kernel(
            block = 128,
            min_blocks = 3,
            dynamic_shared = Medium::MEMORY.bytes,
            requires(
                gemm.$a_contiguous(),
                gemm.$b_contiguous(),
                gemm.has_tiles_of(SHAPE_64X64),
                gemm.tiles() <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: GroupedGemm<'_>) {
            // SAFETY: a block of 128 threads, all of which come here, with the shared memory that the kernel names; the layouts are as
            // the launch has checked.
            unsafe { Medium::multiply::<ThreeTf32, $a, $b, _>(gemm) }
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
    gemm_grouped_mma_64x64_nn_fp32_3xtf32, KMajor a_is_contiguous_along_rows, MnMajor b_is_contiguous_along_rows,
        "A and B row-major";
    gemm_grouped_mma_64x64_nt_fp32_3xtf32, KMajor a_is_contiguous_along_rows, KMajor b_is_contiguous_along_cols,
        "A row-major and B column-major";
    gemm_grouped_mma_64x64_tn_fp32_3xtf32, MnMajor a_is_contiguous_along_cols, MnMajor b_is_contiguous_along_rows,
        "A column-major and B row-major";
    gemm_grouped_mma_64x64_tt_fp32_3xtf32, MnMajor a_is_contiguous_along_cols, KMajor b_is_contiguous_along_cols,
        "A and B column-major";
}
