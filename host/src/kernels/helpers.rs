//! Kernels that do what comes before or after a product.

use cuda_std::{GlobalSlice, Kernel};
use gpu_kernels::gemm::repair::gemm_repair_fp32;
use gpu_kernels::gemm::split_reduction::{SplitReduction, gemm_split_reduction_fp32};

use gpu_kernels::gemm::tiles::TiledGemm;

use crate::Error;
use crate::device::{Device, Embedded};

// SAFETY: a kernel of `gpu_kernels`, which the build script compiles to the embedded PTX. Its body is defined for whatever
// its arguments' safe constructors let through, on the grid that it names, as its source explains.
unsafe impl Embedded for gemm_split_reduction_fp32<'_> {}
// SAFETY: as above.
unsafe impl Embedded for gemm_repair_fp32<'_> {}

/// The names of the kernels that plans use besides those that multiply.
pub static HELPERS: [&str; 2] = [gemm_split_reduction_fp32::NAME, gemm_repair_fp32::NAME];

/// Adds up the partial sums of a product whose sums were divided.
pub(crate) fn add_partial_sums(device: &Device, reduction: SplitReduction<'_>) -> Result<(), Error> {
    device.launch(gemm_split_reduction_fp32 { reduction })
}

/// Computes those tiles of a product again, in fp32, that [`Launch::Marking`](super::Launch::Marking) has marked.
pub(crate) fn repair_marked_tiles(
    device: &Device,
    gemm: TiledGemm<'_>,
    marks: GlobalSlice<'_, u32>,
    splits: u32,
) -> Result<(), Error> {
    device.launch(gemm_repair_fp32 { gemm, marks, splits })
}
