//! Products on CUDA cores with tiles in registers: [`gpu_kernels::gemm::register_tiled`].

use gpu_kernels::gemm::register_tiled::*;

use super::contract::{KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::{Common, Tiled, tiled_kernels};
use crate::order::Order::{ColumnMajor, RowMajor};

/// The kernels with large tiles.
const LARGE: Common = Common {
    idea: "a thread loads once what its accumulators share: 8x16 of them in registers",
    scheme: Scheme::Fp32,
    sums: SumOrder::OneByOne,
    tile: TILE,
    performance: Performance::new(1, 0.83).block(4.8).unaligned(1.03).old_values(1.5),
};

/// The kernels with tiles for which every GPU has enough shared memory.
const MEDIUM: Common = Common {
    idea: "the same with tiles of 128x128, for GPUs with less shared memory",
    tile: TILE_128,
    performance: Performance::new(1, 0.748).block(2.9).unaligned(1.03).old_values(1.5),
    ..LARGE
};

/// The kernels with small tiles.
const SMALL: Common = Common {
    idea: "the same with smaller tiles, for products that would have too few large ones",
    tile: TILE_64,
    performance: Performance::new(4, 0.687).block(1.78).unaligned(1.06).old_values(2.5),
    ..LARGE
};

tiled_kernels! {
    /// Tiles of 64×64.
    pub static REGISTER_TILED_64 = SMALL:
        gemm_register_tiled_64_nn_fp32 RowMajor RowMajor,
        gemm_register_tiled_64_nt_fp32 RowMajor ColumnMajor,
        gemm_register_tiled_64_tn_fp32 ColumnMajor RowMajor,
        gemm_register_tiled_64_tt_fp32 ColumnMajor ColumnMajor;
    /// Tiles of 128×128.
    pub static REGISTER_TILED_128 = MEDIUM:
        gemm_register_tiled_128_nn_fp32 RowMajor RowMajor,
        gemm_register_tiled_128_nt_fp32 RowMajor ColumnMajor,
        gemm_register_tiled_128_tn_fp32 ColumnMajor RowMajor,
        gemm_register_tiled_128_tt_fp32 ColumnMajor ColumnMajor;
    /// Tiles of 128×256.
    pub static REGISTER_TILED = LARGE:
        gemm_register_tiled_nn_fp32 RowMajor RowMajor,
        gemm_register_tiled_nt_fp32 RowMajor ColumnMajor,
        gemm_register_tiled_tn_fp32 ColumnMajor RowMajor,
        gemm_register_tiled_tt_fp32 ColumnMajor ColumnMajor;
}
