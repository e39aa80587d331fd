//! The kernels that there are: by name, with what each stands for, what it can compute, and how to launch it.

use gpu_kernels::gemm::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;
use gpu_kernels::{gemm::Gemm, gemv::Gemv};

use crate::device::{Device, Embedded};
use crate::{DeviceMatrix, Error};

// SAFETY (all five): a kernel of `gpu_kernels`, which the build script compiles to the embedded PTX. Its body is defined
// for whatever its arguments' safe constructors let through, on the grid that it names, as its source explains. It has
// static shared memory only.
// SAFETY: see above.
unsafe impl Embedded for gemv_block_reduction_fp32<'_> {}
// SAFETY: see above.
unsafe impl Embedded for gemm_naive_1d_fp32<'_> {}
// SAFETY: see above.
unsafe impl Embedded for gemm_naive_2d_fp32<'_> {}
// SAFETY: see above.
unsafe impl Embedded for gemm_tiled_16_fp32<'_> {}
// SAFETY: see above.
unsafe impl Embedded for gemm_tiled_32_fp32<'_> {}

/// Which product a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `y = α·A·x + β·y`.
    Gemv,
    /// `C = α·A·B + β·C`.
    Gemm,
}

/// A kernel of the ladder.
#[derive(Debug)]
pub struct KernelInfo {
    /// The name, which is that of the PTX entry point.
    pub name: &'static str,
    /// The idea that it stands for, in one line.
    pub idea: &'static str,
    launch: Launch,
}

#[derive(Debug)]
enum Launch {
    Gemv(fn(&Device, Gemv<'_>) -> Result<(), Error>),
    Gemm(fn(&Device, Gemm<'_>) -> Result<(), Error>),
}

/// One block for each row: a tree of sums in shared memory.
pub static GEMV_BLOCK_REDUCTION_FP32: KernelInfo = KernelInfo {
    name: "gemv_block_reduction_fp32",
    idea: "a block shares one long sum: 256 threads per row, a tree of sums in shared memory",
    launch: Launch::Gemv(|device, gemv| device.launch(gemv_block_reduction_fp32 { gemv })),
};

/// One thread for each element of C, numbered along a line.
pub static GEMM_NAIVE_1D_FP32: KernelInfo = KernelInfo {
    name: "gemm_naive_1d_fp32",
    idea: "one thread per element of C, numbered along a line",
    launch: Launch::Gemm(|device, gemm| device.launch(gemm_naive_1d_fp32 { gemm })),
};

/// One thread for each element of C, arranged like C.
pub static GEMM_NAIVE_2D_FP32: KernelInfo = KernelInfo {
    name: "gemm_naive_2d_fp32",
    idea: "one thread per element of C, arranged like C in blocks of 32x8",
    launch: Launch::Gemm(|device, gemm| device.launch(gemm_naive_2d_fp32 { gemm })),
};

/// Tiles of 16×16 in shared memory.
pub static GEMM_TILED_16_FP32: KernelInfo = KernelInfo {
    name: "gemm_tiled_16_fp32",
    idea: "a block shares what its threads would all load: 16x16 tiles in shared memory",
    launch: Launch::Gemm(|device, gemm| device.launch(gemm_tiled_16_fp32 { gemm })),
};

/// Tiles of 32×32 in shared memory.
pub static GEMM_TILED_32_FP32: KernelInfo = KernelInfo {
    name: "gemm_tiled_32_fp32",
    idea: "a block shares what its threads would all load: 32x32 tiles in shared memory",
    launch: Launch::Gemm(|device, gemm| device.launch(gemm_tiled_32_fp32 { gemm })),
};

/// All kernels, in the order of the ladder.
pub static ALL: [&KernelInfo; 5] =
    [&GEMV_BLOCK_REDUCTION_FP32, &GEMM_NAIVE_1D_FP32, &GEMM_NAIVE_2D_FP32, &GEMM_TILED_16_FP32, &GEMM_TILED_32_FP32];

/// The kernel of this name.
///
/// # Errors
/// [`Error::UnknownName`], with the name that is most like it.
pub fn find(name: &str) -> Result<&'static KernelInfo, Error> {
    let known = || ALL.iter().map(|kernel| kernel.name).collect();
    ALL.iter().copied().find(|kernel| kernel.name == name).ok_or_else(|| Error::unknown_name("kernel", name, known()))
}

/// The kernels of a family.
pub fn of(family: Family) -> impl Iterator<Item = &'static KernelInfo> {
    ALL.iter().copied().filter(move |kernel| kernel.family() == family)
}

impl KernelInfo {
    /// Which product the kernel computes.
    pub fn family(&self) -> Family {
        match self.launch {
            Launch::Gemv(_) => Family::Gemv,
            Launch::Gemm(_) => Family::Gemm,
        }
    }

    /// Whether the kernel can compute an m×n result from sums over k, whatever it is best at.
    ///
    /// # Errors
    /// [`Error::Ineligible`], with what to choose instead.
    pub fn eligible(&self, m: usize, n: usize, k: usize) -> Result<(), Error> {
        match self.family() {
            Family::Gemv if n != 1 => Err(Error::Ineligible {
                kernel: self.name,
                product: format!("a product of {m} x {k} and {k} x {n}"),
                reason: "it multiplies a matrix and a vector, so n must be 1: choose --n 1, or one of the gemm kernels"
                    .to_owned(),
            }),
            Family::Gemv | Family::Gemm => Ok(()),
        }
    }

    /// Queues `C = α·A·B + β·C` on a device. B and C of a matrix–vector kernel have one column.
    ///
    /// # Errors
    /// [`Error::Ineligible`]; [`Error::Shape`] for operands that do not make a product; and those of [`Device::launch`].
    pub fn launch(
        &self,
        device: &Device,
        alpha: f32,
        a: &DeviceMatrix,
        b: &DeviceMatrix,
        beta: f32,
        c: &mut DeviceMatrix,
    ) -> Result<(), Error> {
        self.eligible(c.rows(), c.cols(), a.cols())?;
        match self.launch {
            Launch::Gemv(launch) => launch(device, Gemv::new(alpha, a.matrix()?, b.vector()?, beta, c.vector_mut()?)?),
            Launch::Gemm(launch) => launch(device, Gemm::new(alpha, a.matrix()?, b.matrix()?, beta, c.matrix_mut()?)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_entry_points_and_are_found() {
        use cuda_std::Kernel;
        let names: Vec<_> = ALL.iter().map(|kernel| kernel.name).collect();
        assert_eq!(
            names,
            [
                gemv_block_reduction_fp32::NAME,
                gemm_naive_1d_fp32::NAME,
                gemm_naive_2d_fp32::NAME,
                gemm_tiled_16_fp32::NAME,
                gemm_tiled_32_fp32::NAME
            ]
        );
        for kernel in ALL {
            assert_eq!(find(kernel.name).unwrap().name, kernel.name);
        }
        let message = find("gemm_tiled_23").unwrap_err().to_string();
        assert!(message.contains("did you mean `gemm_tiled_32_fp32`?"), "{message}");
    }

    #[test]
    fn a_matrix_vector_kernel_takes_one_column_only() {
        assert!(GEMV_BLOCK_REDUCTION_FP32.eligible(3, 1, 5).is_ok());
        assert!(GEMM_TILED_16_FP32.eligible(3, 1, 5).is_ok());
        let message = GEMV_BLOCK_REDUCTION_FP32.eligible(3, 2, 5).unwrap_err().to_string();
        assert!(message.contains("3 x 5") && message.contains("--n 1"), "{message}");
    }
}
