//! Tiles in registers, on CUDA cores: a thread keeps 8×16 accumulators, so that what it loads from shared memory once, it multiplies
//! many times.
//!
//! ```text
//!                  TILE.n             loads from global memory for each multiplication, by tiles of
//!              ┌──────────┐
//!       k = 16 │ panel  B │             128×256   3/256
//!              └──────────┘             128×128   1/64
//!         16   ┌────┬────┬┄             64×64     1/32
//!        ┌──┐  │8×16│8×16│
//! TILE.m │ A│  ├────┼────┼┄           loads from shared memory for each multiplication, by accumulators of a thread
//!        │  │  │8×16│8×16│
//!        └──┘  └────┴────┴┄             8×16      24/128            4×8       12/32
//! ```
//!
//! The idea: [`tiled`](super::basic::tiled) needs two loads from shared memory for each multiplication. Here 24 numbers are loaded
//! for 128 of them. The body, with the picture of what a block does, is [`blocks::register_tiled`], which is generic over the order of
//! the operands in memory and over the epilogue. The kernels of this module are the body for each of four layouts, in tiles of three
//! sizes, with α and β.
//!
//! | kernels | tile | what a block needs |
//! |---|---|---|
//! | `gemm_register_tiled_*` | [`TILE`], 128×256 | 256 threads of at most 255 registers, 180 KiB of shared memory: compute capability 9.0 to 11.0 |
//! | `gemm_register_tiled_128_*` | [`TILE_128`] | 256 threads, 98 KiB, which every device has |
//! | `gemm_register_tiled_64_*` | [`TILE_64`] | 128 threads of at most 128 registers, 34 KiB |
//!
//! Source: V. Volkov, J. Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008), for accumulators in registers.

use blocks::major::{KMajor, MnMajor};
use blocks::register_tiled::{
    TILE_64X64, TILE_128X128, TILE_128X256, shared_bytes, tile_64x64, tile_128x128, tile_128x256,
};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::MAX_BLOCKS;
use super::tiles::{TileShape, TiledGemm};

/// The tile of a block of 256 threads.
pub const TILE: TileShape = TILE_128X256;

/// The tile of a block of 256 threads on devices whose blocks have less shared memory.
pub const TILE_128: TileShape = TILE_128X128;

/// The tile of a block of 128 threads, for products too small to give every multiprocessor one of [`TILE`].
pub const TILE_64: TileShape = TILE_64X64;

macro_rules! kernels {
    ($(
        $large:ident, $medium:ident, $small:ident, $a:ident, $b:ident, $a_order:ident, $b_order:ident, $layouts:literal;
    )*) => { $(
        #[doc = concat!("`C = α·A·B + β·C` in fp32, ", $layouts, ", by tiles of 128×256.")]
        #[kernel(block = 256, min_blocks = 1, dynamic_shared = shared_bytes(TILE), requires(
            gemm.a().first().$a(), gemm.b().first().$b(), gemm.blocks(TILE) <= MAX_BLOCKS
        ))]
        pub fn $large(gemm: TiledGemm<'_>) {
            let Some(tile) = gemm.tile(TILE, thread::block_idx_x()) else { return };
            // SAFETY: all threads of the block come here, with the shared memory of the tile, which is this block's alone; the
            // launch has checked the layouts.
            unsafe { tile_128x256::<$a_order, $b_order>(&tile.product(), &tile) }
        }

        #[doc = concat!("`C = α·A·B + β·C` in fp32, ", $layouts, ", by tiles of 128×128.")]
        #[kernel(block = 256, min_blocks = 1, dynamic_shared = shared_bytes(TILE_128), requires(
            gemm.a().first().$a(), gemm.b().first().$b(), gemm.blocks(TILE_128) <= MAX_BLOCKS
        ))]
        pub fn $medium(gemm: TiledGemm<'_>) {
            let Some(tile) = gemm.tile(TILE_128, thread::block_idx_x()) else { return };
            // SAFETY: as for tiles of 128×256.
            unsafe { tile_128x128::<$a_order, $b_order>(&tile.product(), &tile) }
        }

        #[doc = concat!("`C = α·A·B + β·C` in fp32, ", $layouts, ", by tiles of 64×64.")]
        #[kernel(block = 128, min_blocks = 4, dynamic_shared = shared_bytes(TILE_64), requires(
            gemm.a().first().$a(), gemm.b().first().$b(), gemm.blocks(TILE_64) <= MAX_BLOCKS
        ))]
        pub fn $small(gemm: TiledGemm<'_>) {
            let Some(tile) = gemm.tile(TILE_64, thread::block_idx_x()) else { return };
            // SAFETY: as for tiles of 128×256.
            unsafe { tile_64x64::<$a_order, $b_order>(&tile.product(), &tile) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $large<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(TILE)
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $medium<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(TILE_128)
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $small<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(TILE_64)
            }
        }
    )* };
}

kernels! {
    gemm_register_tiled_nn_fp32, gemm_register_tiled_128_nn_fp32, gemm_register_tiled_64_nn_fp32,
        is_contiguous_along_rows, is_contiguous_along_rows, KMajor, MnMajor, "A and B row-major";
    gemm_register_tiled_nt_fp32, gemm_register_tiled_128_nt_fp32, gemm_register_tiled_64_nt_fp32,
        is_contiguous_along_rows, is_contiguous_along_cols, KMajor, KMajor, "A row-major and B column-major";
    gemm_register_tiled_tn_fp32, gemm_register_tiled_128_tn_fp32, gemm_register_tiled_64_tn_fp32,
        is_contiguous_along_cols, is_contiguous_along_rows, MnMajor, MnMajor, "A column-major and B row-major";
    gemm_register_tiled_tt_fp32, gemm_register_tiled_128_tt_fp32, gemm_register_tiled_64_tt_fp32,
        is_contiguous_along_cols, is_contiguous_along_cols, MnMajor, KMajor, "A and B column-major";
}
