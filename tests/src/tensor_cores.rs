//! The kernels of `gemm::mma` by layout and precision.

use cuda_std::executor::{Executor, LaunchError};
use gpu_kernels::Grid;
use gpu_kernels::gemm::mma::*;
use gpu_kernels::gemm::tiles::TiledGemm;

use crate::{Error, Layouts, Problem};
use tilewright::Orders;

/// What the operands of a product on tensor cores become, and in tiles of which size, if not the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the kernels")]
pub enum MmaPrecision {
    Fp32ThreeTf32,
    Fp32ThreeTf32Of64x64,
    Tf32,
    Bf16,
    Fp16,
}

impl MmaPrecision {
    /// All precisions.
    pub const ALL: [Self; 5] = [Self::Fp32ThreeTf32, Self::Fp32ThreeTf32Of64x64, Self::Tf32, Self::Bf16, Self::Fp16];

    /// Those whose results are those of fp32.
    pub const FP32: [Self; 2] = [Self::Fp32ThreeTf32, Self::Fp32ThreeTf32Of64x64];

    /// How far an element of `A·B` may be from the exact one, as a part of `Σ|a||b|`, but for the rounding of the sum: what
    /// the two operands of a product lose at most.
    ///
    /// With TF32, half a unit in the last of 11 bits each, 2⁻¹¹; with bf16, 2⁻⁸; and the same of what is left for the split
    /// products: two of 2⁻¹¹·2⁻¹⁰, and low·low, 2⁻²².
    pub fn element_bound(self) -> f64 {
        let power = |exponent: i32| 2f64.powi(exponent);
        match self {
            Self::Fp32ThreeTf32 | Self::Fp32ThreeTf32Of64x64 => 2.0 * power(-21) + power(-22),
            Self::Tf32 | Self::Fp16 => 2.0 * power(-11) + power(-22),
            Self::Bf16 => 2.0 * power(-8) + power(-16),
        }
    }
}

/// Launches the kernel of a precision for the layouts of the operands of a product.
///
/// # Errors
/// What the launch reports.
pub fn launch_mma(
    executor: &Executor,
    precision: MmaPrecision,
    layouts: Layouts,
    gemm: TiledGemm<'_>,
) -> Result<(), LaunchError> {
    macro_rules! by_layouts {
        ($nn:ident $nt:ident $tn:ident $tt:ident) => {
            match layouts.orders() {
                Orders::NN => launch(executor, $nn { gemm }),
                Orders::NT => launch(executor, $nt { gemm }),
                Orders::TN => launch(executor, $tn { gemm }),
                Orders::TT => launch(executor, $tt { gemm }),
            }
        };
    }
    match precision {
        MmaPrecision::Fp32ThreeTf32 => by_layouts!(
            gemm_mma_nn_fp32_3xtf32 gemm_mma_nt_fp32_3xtf32 gemm_mma_tn_fp32_3xtf32 gemm_mma_tt_fp32_3xtf32
        ),
        MmaPrecision::Fp32ThreeTf32Of64x64 => by_layouts!(
            gemm_mma_64x64_nn_fp32_3xtf32 gemm_mma_64x64_nt_fp32_3xtf32
            gemm_mma_64x64_tn_fp32_3xtf32 gemm_mma_64x64_tt_fp32_3xtf32
        ),
        MmaPrecision::Tf32 => by_layouts!(gemm_mma_nn_tf32 gemm_mma_nt_tf32 gemm_mma_tn_tf32 gemm_mma_tt_tf32),
        MmaPrecision::Bf16 => by_layouts!(gemm_mma_nn_bf16 gemm_mma_nt_bf16 gemm_mma_tn_bf16 gemm_mma_tt_bf16),
        MmaPrecision::Fp16 => by_layouts!(gemm_mma_nn_fp16 gemm_mma_nt_fp16 gemm_mma_tn_fp16 gemm_mma_tt_fp16),
    }
}

fn launch(executor: &Executor, kernel: impl Grid) -> Result<(), LaunchError> {
    // SAFETY: the views are of slices that are borrowed for as long as the kernel value lives, the one of C mutably.
    unsafe { executor.launch(kernel, kernel.grid()) }
}

/// Computes a product with the kernel of a precision.
///
/// # Errors
/// What building the arguments or the launch reports.
pub fn run_mma(
    executor: &Executor,
    precision: MmaPrecision,
    layouts: Layouts,
    problem: &mut Problem,
) -> Result<(), Error> {
    let Problem { alpha, a, b, beta, c } = problem;
    let (a, b, c) = (a.view(), b.view(), c.view_mut());
    let gemm = TiledGemm::new(*alpha, a.matrix()?, b.matrix()?, *beta, c.matrix_mut()?)?;
    Ok(launch_mma(executor, precision, layouts, gemm)?)
}
