//! The registry of kernels: for each its name, its idea in a sentence, what it can compute, and how to launch it.
//!
//! ```text
//!  scheme      what kernels compute, and in which arithmetic
//!  auxiliary   kernels that come before or after a product
//!     ▲
//!  contract    KernelInfo and Contract: what a plan has to know of a kernel, and how it is launched
//!     ▲
//!  tiled       registering kernels that differ in little         eligibility    whether a kernel can compute a product
//!     ▲                                                             ▲
//!  basic, batched, gemv, narrow, outer, register_tiled, sliced, mma,  │           the kernels, a family in each file
//!  wgmma ◄─ anywhere, packed ◄─ short_k, staged                       │
//!     ▲                                                             │
//!  grouped    the same bodies, for products that differ                │
//!  registry ────────────────────────────────────────────────────────┘           all of them
//! ```
//!
//! Whether a kernel *can* compute a product ([`KernelInfo::refusal`]) is apart from whether it *should*, which is the
//! [plan](crate::plan)'s matter.

mod anywhere;
mod auxiliary;
mod basic;
mod batched;
pub(crate) mod contract;
mod eligibility;
mod gemv;
mod grouped;
mod mma;
mod narrow;
mod outer;
mod packed;
mod register_tiled;
mod registry;
mod scaling;
mod scheme;
mod short_k;
mod sliced;
mod staged;
mod tiled;
mod wgmma;
mod whole;

pub use anywhere::{WGMMA_ANYWHERE_256X32_FP32_3XTF32, WGMMA_ANYWHERE_256X64_FP32_3XTF32, WGMMA_ANYWHERE_FP32_3XTF32};
pub use auxiliary::AUXILIARY;
pub(crate) use auxiliary::{
    CLEAR, COPY, COPY_FLAGGED, EPILOGUE, Format, PackedOperand, REPAIR, ScaledFormat, ScaledParts, ToScale,
    add_partial_sums, apply_epilogue, clear_outside, copy_flagged, copy_matrices, pack_rounded, pack_scaled, reduction,
    repair_tiles,
};
pub use basic::{
    BASIC, GEMM_NAIVE_1D_FP32, GEMM_NAIVE_2D_FP32, GEMM_TILED_16_FP32, GEMM_TILED_32_FP32, GEMV_BLOCK_REDUCTION_FP32,
};
pub use batched::BATCHED;
pub use contract::KernelInfo;
pub use gemv::{GEMV_SPLIT_ATOMIC_FP32, GEMV_SPLIT_FP32, GEMV_TRANSPOSED_SPLIT_FP32};
pub use grouped::{GROUPED, GROUPED_ROW_TABLE, GroupedKernel};
pub use mma::{
    MMA_64X64_FP32_3XTF32, MMA_64X64_FP32_FP64, MMA_BF16, MMA_FP16, MMA_FP32_3XTF32, MMA_FP32_FP64, MMA_TF32,
};
pub use narrow::{NARROW_2, NARROW_4, NARROW_8, NARROW_16, NARROW_16_3XTF32, NARROW_32_3XTF32};
pub use outer::OUTER;
pub use packed::{WGMMA_BF16, WGMMA_FP16, WGMMA_FP32_3XFP16, WGMMA_FP32_10XINT8, WGMMA_FP32_NORMWISE, WGMMA_TF32};
pub use register_tiled::{REGISTER_TILED, REGISTER_TILED_64, REGISTER_TILED_128};
pub use registry::{ALL, find, of, of_plans};
pub use scaling::SCALING;
pub(crate) use scaling::scale_matrices;
pub use scheme::{Family, Scheme, SumOrder};
pub use short_k::WGMMA_SHORT_FP32_3XFP16;
pub use sliced::SLICED;
pub use staged::{WGMMA_STAGED_FP32_3XFP16, WGMMA_STAGED_FP32_NORMWISE};
pub use wgmma::{
    WGMMA_64X16_FP32_3XTF32, WGMMA_64X64_FP32_3XTF32, WGMMA_64X64_K32_FP32_3XTF32, WGMMA_256X32_FP32_3XTF32,
    WGMMA_256X64_FP32_3XTF32, WGMMA_FP32_3XTF32,
};
pub use whole::{WHOLE, WHOLE_ROWS};
