//! The kernels, and where they run.

use cuda_std::executor::Executor;
use cuda_std::{Dim3, GlobalSlice, GlobalSliceMut, Kernel as _};
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::basic::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemv::Gemv;
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;

use cuda_std::Grid;
use tilewright::device::Device;

use crate::{Problem, View};

/// Any of the errors that running a kernel can give.
pub type Error = Box<dyn std::error::Error>;

/// A kernel of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the kernels")]
pub enum Kernel {
    GemvBlockReduction,
    GemmNaive1d,
    GemmNaive2d,
    GemmTiled16,
    GemmTiled32,
}

/// Where a kernel runs.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// On the CPU executor, on the grid that the kernel asks for.
    Executor(&'a Executor),
    /// On the CPU executor, on another grid.
    ExecutorGrid(&'a Executor, Dim3),
    /// On a device of the library, in memory of that device.
    Device(&'a Device),
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 5] =
        [Self::GemvBlockReduction, Self::GemmNaive1d, Self::GemmNaive2d, Self::GemmTiled16, Self::GemmTiled32];

    /// Those that multiply matrices.
    pub const GEMM: [Self; 4] = [Self::GemmNaive1d, Self::GemmNaive2d, Self::GemmTiled16, Self::GemmTiled32];

    /// The name of the entry point.
    pub fn name(self) -> &'static str {
        match self {
            Self::GemvBlockReduction => gemv_block_reduction_fp32::NAME,
            Self::GemmNaive1d => gemm_naive_1d_fp32::NAME,
            Self::GemmNaive2d => gemm_naive_2d_fp32::NAME,
            Self::GemmTiled16 => gemm_tiled_16_fp32::NAME,
            Self::GemmTiled32 => gemm_tiled_32_fp32::NAME,
        }
    }

    /// Computes a copy of the product, and looks at everything: the result, what surrounds it, and the operands.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(self, place: Place<'_>, problem: &Problem) -> Result<(), String> {
        let mut computed = problem.clone();
        self.run(place, &mut computed).map_err(|error| error.to_string())?;
        problem.expected().check(&computed.c)?;
        for (name, before, after) in [("A", &problem.a, &computed.a), ("B", &problem.b, &computed.b)] {
            after.check_surroundings()?;
            if before.bits() != after.bits() {
                return Err(format!("{name} was changed"));
            }
        }
        Ok(())
    }

    /// Computes the product. Only the elements of C should have changed after that.
    ///
    /// # Errors
    /// What building the arguments or the launch reports.
    pub fn run(self, place: Place<'_>, problem: &mut Problem) -> Result<(), Error> {
        let Problem { alpha, a, b, beta, c } = problem;
        let Place::Device(device) = place else {
            return self.launch(place, *alpha, a.view(), b.view(), *beta, c.view_mut());
        };
        // With the guard words, so that these too are looked at after it.
        let (a_there, b_there) = (device.upload(&a.memory)?, device.upload(&b.memory)?);
        let mut c_there = device.upload(&c.memory)?;
        self.launch(
            place,
            *alpha,
            a.view_of(a_there.view()),
            b.view_of(b_there.view()),
            *beta,
            c.view_of_mut(c_there.view_mut()),
        )?;
        a_there.copy_to(&mut a.memory)?;
        b_there.copy_to(&mut b.memory)?;
        c_there.copy_to(&mut c.memory)?;
        Ok(())
    }

    fn launch(
        self,
        place: Place<'_>,
        alpha: f32,
        a: View<GlobalSlice<'_, f32>>,
        b: View<GlobalSlice<'_, f32>>,
        beta: f32,
        c: View<GlobalSliceMut<'_, f32>>,
    ) -> Result<(), Error> {
        if self == Self::GemvBlockReduction {
            let gemv = Gemv::new(alpha, a.matrix()?, b.vector()?, beta, c.vector_mut()?)?;
            return place.launch(gemv_block_reduction_fp32 { gemv });
        }
        self.launch_gemm(place, Gemm::new(alpha, a.matrix()?, b.matrix()?, beta, c.matrix_mut()?)?)
    }

    /// Launches one of [`Kernel::GEMM`].
    ///
    /// # Errors
    /// What the launch reports.
    ///
    /// # Panics
    /// If the kernel is none of those.
    pub fn launch_gemm(self, place: Place<'_>, gemm: Gemm<'_>) -> Result<(), Error> {
        match self {
            Self::GemvBlockReduction => panic!("{} does not multiply matrices", self.name()),
            Self::GemmNaive1d => place.launch(gemm_naive_1d_fp32 { gemm }),
            Self::GemmNaive2d => place.launch(gemm_naive_2d_fp32 { gemm }),
            Self::GemmTiled16 => place.launch(gemm_tiled_16_fp32 { gemm }),
            Self::GemmTiled32 => place.launch(gemm_tiled_32_fp32 { gemm }),
        }
    }
}

impl Place<'_> {
    fn launch(self, kernel: impl Grid) -> Result<(), Error> {
        let (executor, grid) = match self {
            Self::Executor(executor) => (executor, kernel.grid()),
            Self::ExecutorGrid(executor, grid) => (executor, grid),
            Self::Device(device) => return Ok(device.launch(kernel)?),
        };
        // SAFETY: the views are of slices that are borrowed for as long as the kernel value lives, the one of C mutably.
        Ok(unsafe { executor.launch(kernel, grid) }?)
    }
}
