//! Products on tensor cores of any GPU from sm_80 on: [`gpu_kernels::gemm::mma`].

use gpu_kernels::gemm::mma::*;

use super::contract::{KernelInfo, Performance};
use super::scheme::{Scheme, SumOrder};
use super::tiled::{Common, Tiled, tiled_kernels};
use crate::order::Order::{ColumnMajor, RowMajor};

/// The shares of the peak of the schemes for fp32 are fitted to an H200 ([`Performance`]), where `mma.sync` does not reach the peak of the
/// tensor cores.
const THREE_TF32: Common = Common {
    idea: "tensor cores of any GPU from sm_80 on multiply parts of the operands; fp32 additions collect the products",
    scheme: Scheme::Fp32ThreeTf32,
    sums: SumOrder::Mma { terms: 16 },
    tile: SHAPE,
    performance: Performance::new(1, 0.371).block(4.86).unaligned(1.31),
};
/// Those of which a multiprocessor has three blocks.
const MEDIUM_THREE_TF32: Common = Common {
    idea: "the same with three small blocks on a multiprocessor: while one loads or stores, others multiply",
    tile: SHAPE_64X64,
    performance: Performance::new(3, 0.354).block(4.35).unaligned(1.45),
    ..THREE_TF32
};
/// fp64 sums. `mma.sync` of 8×8×4 reaches 0.46 of what cuBLAS does with fp64 on an H200 (4.85 ms for 2048×8192×4096); that of the medium tiles
/// is a guess.
const FP64: Common = Common {
    idea: "tensor cores of any GPU from sm_80 on multiply and add up in fp64",
    scheme: Scheme::Fp32Fp64,
    sums: SumOrder::OneByOne,
    tile: SHAPE_128X128,
    performance: Performance::new(1, 0.5).block(4.0).unaligned(1.05),
};
const MEDIUM_FP64: Common = Common {
    idea: "the same with three small blocks on a multiprocessor",
    tile: SHAPE_64X64,
    performance: Performance::new(3, 0.45).block(2.0).unaligned(1.05),
    ..FP64
};
const ONE_TF32: Common = Common {
    idea: "tensor cores of any GPU from sm_80 on multiply rounded operands",
    scheme: Scheme::Tf32,
    ..THREE_TF32
};
const ONE_BF16: Common = Common { scheme: Scheme::Bf16, ..ONE_TF32 };
const ONE_FP16: Common = Common { scheme: Scheme::Fp16, ..ONE_TF32 };

tiled_kernels! {
    /// One fp16 product.
    pub static MMA_FP16 = ONE_FP16:
        gemm_mma_nn_fp16 RowMajor RowMajor,
        gemm_mma_nt_fp16 RowMajor ColumnMajor,
        gemm_mma_tn_fp16 ColumnMajor RowMajor,
        gemm_mma_tt_fp16 ColumnMajor ColumnMajor;
    /// One bf16 product.
    pub static MMA_BF16 = ONE_BF16:
        gemm_mma_nn_bf16 RowMajor RowMajor,
        gemm_mma_nt_bf16 RowMajor ColumnMajor,
        gemm_mma_tn_bf16 ColumnMajor RowMajor,
        gemm_mma_tt_bf16 ColumnMajor ColumnMajor;
    /// One TF32 product.
    pub static MMA_TF32 = ONE_TF32:
        gemm_mma_nn_tf32 RowMajor RowMajor,
        gemm_mma_nt_tf32 RowMajor ColumnMajor,
        gemm_mma_tn_tf32 ColumnMajor RowMajor,
        gemm_mma_tt_tf32 ColumnMajor ColumnMajor;
    /// fp64 sums, tiles of 64×64.
    pub static MMA_64X64_FP32_FP64 = MEDIUM_FP64:
        gemm_mma_64x64_nn_fp32_fp64 RowMajor RowMajor,
        gemm_mma_64x64_nt_fp32_fp64 RowMajor ColumnMajor,
        gemm_mma_64x64_tn_fp32_fp64 ColumnMajor RowMajor,
        gemm_mma_64x64_tt_fp32_fp64 ColumnMajor ColumnMajor;
    /// fp64 sums.
    pub static MMA_FP32_FP64 = FP64:
        gemm_mma_128x128_nn_fp32_fp64 RowMajor RowMajor,
        gemm_mma_128x128_nt_fp32_fp64 RowMajor ColumnMajor,
        gemm_mma_128x128_tn_fp32_fp64 ColumnMajor RowMajor,
        gemm_mma_128x128_tt_fp32_fp64 ColumnMajor ColumnMajor;
    /// Three TF32 products, tiles of 64×64.
    pub static MMA_64X64_FP32_3XTF32 = MEDIUM_THREE_TF32:
        gemm_mma_64x64_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_mma_64x64_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_mma_64x64_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_mma_64x64_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// Three TF32 products.
    pub static MMA_FP32_3XTF32 = THREE_TF32:
        gemm_mma_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_mma_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_mma_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_mma_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
}
