//! Tilewright's kernels: general matrix products, `C = α·A·B + β·C`, and matrix–vector products, `y = α·A·x + β·y`.
//!
//! One source, compiled twice: by `cuda_builder` to PTX for the GPU, and by the host's compiler for the CPU executor,
//! where every access is checked. The crate knows nothing of devices; it also exports what a launch has to agree with
//! the kernel on (argument types, block shapes, grids), so that the host cannot drift from it.
//!
//! # Reading order
//!
//! Each kernel stands for one idea; read them in this order.
//!
//! | kernel | idea |
//! |---|---|
//! | [`gemm::basic::naive_1d`] | one thread per element of C, numbered along a line |
//! | [`gemm::basic::naive_2d`] | one thread per element of C, arranged like C |
//! | [`gemm::basic::tiled`], 16×16 and 32×32 | a block shares what its threads would all load |
//! | [`gemm::batched`] | a block has several small products |
//! | [`gemm::register_tiled`] | a thread shares what its 128 accumulators would all load |
//! | [`gemm::mma`] | tensor cores, and what they take to be as accurate as fp32 |
//! | [`gemm::hopper`] | TMA, `wgmma`, and a role for each warp |
//! | [`gemv::block_reduction`] | a block shares one long sum |
//! | [`gemv::split`], [`gemv::transposed_split`] | split-K: blocks share one long sum |
//!
//! Besides: [`scaling`], products with diagonal matrices; [`pack`], kernels that bring operands into another form first; [`probe`],
//! kernels that do one thing only, to measure what a GPU can do at most; and [`planted`], kernels with an injected fault each, to
//! see whether tools find it. The parts that kernels are built from are in [`blocks`].
//!
//! # Precision
//!
//! It is part of every kernel's name. `fp32` alone means: operands and result are IEEE 754 binary32, and every multiplication
//! and addition of the sum is one fused operation rounded to nearest. `fp32_3xtf32` and `fp32_3xfp16` compute on
//! tensor cores by parts of the operands, with errors like those of fp32 ([`gemm::decompose`], [`pack::scaled`]); `fp32_normwise` by
//! parts that are accurate beside the largest elements of rows and columns, `fp32_10xint8` by exact sums of such parts
//! ([`pack::digits`]); `tf32`, `bf16` and `fp16` round the operands.
//!
//! # Sizes
//!
//! Rows and columns are at most 2³¹ − 1, as in every BLAS. Offsets into memory are 64-bit: a matrix may have as many
//! elements as fit in memory.

#![no_std]
#![allow(
    clippy::needless_range_loop,
    reason = "an array stays in registers only if it is indexed by constants, which iterators over it hide"
)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate alloc;

mod alpha_beta;
mod batch;
mod geometry;
mod triangle;
mod vector;

pub mod gemm;
pub mod gemv;
pub mod planted;
pub mod probe;

/// Declares modules of kernels that have their operations beside them, and lists the operations.
macro_rules! operations {
    ($($module:ident: $($operation:ident),+;)*) => {
        $(pub mod $module;)*

        /// The operations of this crate: what its kernels are for. Those of products are the planner's matter, and elsewhere.
        #[cfg(not(target_arch = "nvptx64"))]
        pub static OPERATIONS: &[&dyn operations::Operation] = &[$($(&$module::$operation),+),*, &gemm::grouped::GROUPED];
    };
}

operations! {
    pack: COPY, PACK_BF16, PACK_FP16;
    rms_norm: RMS_NORM;
    scaling: SCALE;
}

#[cfg(not(target_arch = "nvptx64"))]
pub use batch::are_without_gaps;
pub use batch::{MatrixBatch, MatrixBatchMut};
#[cfg(not(target_arch = "nvptx64"))]
pub use blocks::elements_overlap;
pub use blocks::epilogue;
#[cfg(not(target_arch = "nvptx64"))]
pub use blocks::matrix::ShapeError;
pub use blocks::matrix::{Matrix, MatrixMut};
#[cfg(not(target_arch = "nvptx64"))]
pub use cuda_std::Grid;
pub use triangle::Triangle;
pub use vector::{Vector, VectorMut};
