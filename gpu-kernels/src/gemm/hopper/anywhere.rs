//! The kernels of [`decomposed`](super::decomposed) for operands whose rows of memory begin anywhere, which TMA loads shifted (`shifted`). Their sums have
//! the bits of those, and a step takes 1.3 to 1.8 times as long: each number passes through shared memory once more.

use blocks::epilogue::Steps;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::decomposed::multiply_decomposed;
pub use super::decomposed_block::tile_of;
use super::decomposed_block::{Memory, RAW_STAGES_OF_SHIFTED, shifted_stages};
use super::fallback::Fallback;
use super::operand::{KMajor, MnMajor};
use super::scheme::{ThreeTf32, ThreeTf32OfTransposes};
pub use super::shifted::box_of;
#[cfg(not(target_arch = "nvptx64"))]
use super::shifted::describe_fours;
use super::shifted::{ByFours, Fours};
use crate::gemm::tiles::TiledGemm;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};

/// The shared memory of a kernel with tiles of so many columns.
const fn memory<const COLUMNS: u32>() -> Memory<COLUMNS, RAW_STAGES_OF_SHIFTED> {
    Memory::new(false, shifted_stages(COLUMNS))
}

/// Makes the entry points: all have the same parameters and differ in types, and in the columns of their tiles.
macro_rules! entry_points {
    ($columns:literal: $($name:ident, $a:ident, $b:ident, $scheme:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = memory::<$columns>().bytes,
            requires(
                gemm.blocks(tile_of($columns)) <= MAX_BLOCKS,
                describe_fours::<$a>(
                    [&map_a0, &map_a1, &map_a2, &map_a3],
                    rows_of_a,
                    gemm.a().first(),
                    gemm.a().distinct(),
                    tile_of($columns).m
                ),
                describe_fours::<$b>(
                    [&map_b0, &map_b1, &map_b2, &map_b3],
                    rows_of_b,
                    gemm.b().first().transposed(),
                    gemm.b().distinct(),
                    $columns
                ),
                only.covers(&gemm),
                steps_fit(&steps, &gemm)
            )
        )]
        pub fn $name(
            map_a0: TensorMap<'_>,
            map_a1: TensorMap<'_>,
            map_a2: TensorMap<'_>,
            map_a3: TensorMap<'_>,
            map_b0: TensorMap<'_>,
            map_b1: TensorMap<'_>,
            map_b2: TensorMap<'_>,
            map_b3: TensorMap<'_>,
            rows_of_a: u32,
            rows_of_b: u32,
            gemm: TiledGemm<'_>,
            only: Fallback<'_>,
            steps: Steps<'_>,
        ) {
            const MEMORY: Memory<$columns, RAW_STAGES_OF_SHIFTED> = memory::<$columns>();
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe, and that there are enough flags.
            unsafe {
                let loads = ByFours::<'_, { shifted_stages($columns) }> {
                    a: Fours { maps: [map_a0, map_a1, map_a2, map_a3], rows_of_matrix: rows_of_a },
                    b: Fours { maps: [map_b0, map_b1, map_b2, map_b3], rows_of_matrix: rows_of_b },
                    barriers: MEMORY.shifted_barriers.slice(),
                    memory: MEMORY.shifted.slice(),
                };
                multiply_decomposed::<$a, $b, $scheme, _, $columns, { $columns / 2 }, RAW_STAGES_OF_SHIFTED>(
                    MEMORY,
                    loads,
                    gemm,
                    GlobalSliceMut::new(&mut []),
                    only,
                    steps,
                )
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_of($columns))
            }
        }
    )* };
}

entry_points! { 128:
    gemm_wgmma_anywhere_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B row-major, whose rows begin anywhere.";
    gemm_wgmma_anywhere_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A row-major and B column-major, whose rows and columns begin anywhere.";
    gemm_wgmma_anywhere_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A column-major and B row-major, whose columns and rows begin anywhere.";
    gemm_wgmma_anywhere_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B column-major, whose columns begin anywhere.";
}

entry_points! { 64:
    gemm_wgmma_anywhere_256x64_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A and B row-major, whose rows begin anywhere.";
    gemm_wgmma_anywhere_256x64_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A row-major and B column-major, whose rows and columns begin anywhere.";
    gemm_wgmma_anywhere_256x64_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A column-major and B row-major, whose columns and rows begin anywhere.";
    gemm_wgmma_anywhere_256x64_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A and B column-major, whose columns begin anywhere.";
}

entry_points! { 32:
    gemm_wgmma_anywhere_256x32_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A and B row-major, whose rows begin anywhere.";
    gemm_wgmma_anywhere_256x32_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A row-major and B column-major, whose rows and columns begin anywhere.";
    gemm_wgmma_anywhere_256x32_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A column-major and B row-major, whose columns and rows begin anywhere.";
    gemm_wgmma_anywhere_256x32_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A and B column-major, whose columns begin anywhere.";
}
