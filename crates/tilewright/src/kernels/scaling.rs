//! The kernel of products with diagonal matrices: [`gpu_kernels::scaling`].

use cuda_std::KernelFacts;
use gpu_kernels::scaling::{Scaling, matrix_scaling_fp32};

use super::auxiliary::COPY;
use crate::{Device, Error};

/// The kernels that [`scale`](crate::scale()) uses, for [`Device::prepare`](runtime::Device::prepare).
pub static SCALING: [KernelFacts; 2] = [matrix_scaling_fp32::FACTS, COPY];

/// Multiplies rows and columns by factors of their own.
pub(crate) fn scale_matrices(device: &Device, scaling: Scaling<'_>) -> Result<(), Error> {
    device.launch(matrix_scaling_fp32 { scaling })
}
