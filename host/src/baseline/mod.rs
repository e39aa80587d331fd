//! What there is to beat: cuBLAS, in the same process, on the same stream and in the same memory.
//!
//! ```text
//!  CuBlas::open ──► libcublas.so.13 or .12, opened when asked for ──► handle on the device's own stream
//!       │
//!       └─ prepare(routine, math, A, B, C) ──► Prepared ── run(α, A, B, β, C) ──► queued, as our kernels are
//! ```
//!
//! Nothing is linked: a program with these baselines starts on machines without cuBLAS, where [`CuBlas::open`] says what
//! it has tried. Nor are they a part of any product that this library computes.
//!
//! | [`Routine`] | what is called |
//! |---|---|
//! | [`Routine::Gemm`] | `cublasSgemm`, or `cublasSgemmStridedBatched` for more than one product |
//! | [`Routine::Gemv`] | `cublasSgemv`, for a B of one column |
//! | [`Routine::Lt`] | `cublasLtMatmul` with the algorithm that its heuristics name first, for a workspace of 32 MiB |
//!
//! | [`Math`] | what cuBLAS may do |
//! |---|---|
//! | [`Math::Fp32`] | `CUBLAS_DEFAULT_MATH` and `CUBLAS_COMPUTE_32F`: products and sums in fp32, no TF32 |
//! | [`Math::Tf32`] | `CUBLAS_TF32_TENSOR_OP_MATH` and `CUBLAS_COMPUTE_32F_FAST_TF32`: operands rounded to TF32 |

mod api;
mod cublas;
mod lt;
mod product;
mod search;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cublas::{CuBlas, Prepared, SquareFormat};
pub use search::LIBRARY_VARIABLE;

/// The bytes of memory that cuBLAS and cuBLASLt get to work in.
pub const WORKSPACE_BYTES: usize = 32 << 20;

/// What a baseline may do to operands of fp32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// fp32 throughout: cuBLAS's default.
    Fp32,
    /// Operands rounded to TF32, sums in fp32.
    Tf32,
}

impl fmt::Display for Math {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
        })
    }
}

/// A way to compute a product with cuBLAS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Routine {
    /// `cublasSgemm` or `cublasSgemmStridedBatched`.
    Gemm,
    /// `cublasSgemv`.
    Gemv,
    /// `cublasLtMatmul`.
    Lt,
}

impl Routine {
    /// The name of the function, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "cublasSgemm",
            Self::Gemv => "cublasSgemv",
            Self::Lt => "cublasLtMatmul",
        }
    }
}

/// Why there is no baseline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// No libcublas that works.
    #[error(
        "cuBLAS cannot be used: {}. Install it (the Python package nvidia-cublas will do), or name the library with the \
         environment variable {LIBRARY_VARIABLE}",
        .tried.join("; ")
    )]
    NoLibrary {
        /// Each library that was tried, with the reason why it was not taken.
        tried: Vec<String>,
    },

    /// The device is no GPU.
    #[error("cuBLAS runs on CUDA GPUs only, not on {device}")]
    NoGpu {
        /// The device.
        device: String,
    },

    /// Memory of another device.
    #[error("cuBLAS was opened on {device}, and an operand is in the memory of another device")]
    OtherDevice {
        /// The device that cuBLAS was opened on.
        device: String,
    },

    /// A cuBLAS function has failed.
    #[error("{function} failed with status {status}{}", status_text(.name))]
    Call {
        /// The function.
        function: &'static str,
        /// `cublasStatus_t`.
        status: i32,
        /// What cuBLAS calls the status, where it has a name for it.
        name: Option<String>,
    },

    /// cuBLASLt has no algorithm for a product.
    #[error("cublasLtMatmulAlgoGetHeuristic knows no algorithm for this product within 32 MiB of workspace")]
    NoAlgorithm,

    /// A matrix that no BLAS takes.
    #[error(
        "cuBLAS cannot take {matrix}, {rows} x {cols} with strides {row_stride} and {col_stride}: either rows or columns have \
         to be contiguous, and at least as far apart as they are long, in at most 2147483647 elements"
    )]
    Layout {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// Its rows.
        rows: u32,
        /// Its columns.
        cols: u32,
        /// Elements from one row to the next.
        row_stride: u64,
        /// Elements from one column to the next.
        col_stride: u64,
    },

    /// Shapes that do not make a product, or operands of another shape than what was prepared.
    #[error("no product: {} times {} into {}", count_and_shape(.a), count_and_shape(.b), count_and_shape(.c))]
    Shape {
        /// The number of matrices, rows and columns of A.
        a: [u32; 3],
        /// Those of B.
        b: [u32; 3],
        /// Those of C.
        c: [u32; 3],
    },

    /// Operands that are laid out otherwise than those that a call was prepared for.
    #[error("these operands are laid out otherwise than those that the call was prepared for: prepare another one")]
    Unprepared,

    /// `cublasSgemv` and more than one column, or more than one product.
    #[error("cublasSgemv multiplies one matrix and one vector, not {count} times {n} columns: use cublasSgemm")]
    NoVector {
        /// The number of products.
        count: u32,
        /// The columns of B.
        n: u32,
    },
}

fn status_text(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
}

fn count_and_shape([count, rows, cols]: &[u32; 3]) -> String {
    if *count == 1 { format!("{rows} x {cols}") } else { format!("{count} of {rows} x {cols}") }
}
