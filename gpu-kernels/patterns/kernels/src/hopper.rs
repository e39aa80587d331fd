//! Which devices run the kernels for Hopper (sm_90a), and how many blocks to launch where blocks stay and take one tile after the other. It is
//! compiled for the host only.

use cuda_std::{KernelFacts, Limits};
use runtime::Device;

/// Whether a device runs a kernel for sm_90a: a GPU with that compute capability, or an executor with its limits.
pub(crate) fn runs(device: &Device, kernel: &KernelFacts) -> bool {
    if device.is_cpu() {
        return device.limits() == Limits::of_hopper();
    }
    device.has_kernel(kernel).is_ok() && device.limits().check(kernel).is_ok()
}

/// The blocks of kernels whose blocks stay: one on each multiprocessor. On the executor there are a few, so that each has several tiles.
pub(crate) fn workers(device: &Device) -> u32 {
    if device.is_cpu() { 3 } else { device.multiprocessors().max(1) }
}
