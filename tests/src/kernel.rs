//! The kernels, and where they run.

use cuda_std::executor::Executor;
use cuda_std::{Dim3, GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemv::Gemv;
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;
use gpu_kernels::{Grid, Matrix, MatrixMut, Vector, VectorMut};

use crate::Problem;

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
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 5] =
        [Self::GemvBlockReduction, Self::GemmNaive1d, Self::GemmNaive2d, Self::GemmTiled16, Self::GemmTiled32];

    /// Those that multiply matrices.
    pub const GEMM: [Self; 4] = [Self::GemmNaive1d, Self::GemmNaive2d, Self::GemmTiled16, Self::GemmTiled32];

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
        let (alpha, beta) = (problem.alpha, problem.beta);
        let (a_range, b_range, c_range) = (problem.a.extent(), problem.b.extent(), problem.c.extent());
        let a = GlobalSlice::new(&problem.a.memory[a_range]);
        let b = GlobalSlice::new(&problem.b.memory[b_range]);
        let (c_shape, c_strides) = ((problem.c.rows(), problem.c.cols()), problem.c.strides());
        let c = GlobalSliceMut::new(&mut problem.c.memory[c_range]);
        let (a_strides, b_strides) = (problem.a.strides(), problem.b.strides());

        let a = Matrix::new(a, problem.a.rows(), problem.a.cols(), a_strides[0], a_strides[1])?;
        if self == Self::GemvBlockReduction {
            assert_eq!((problem.b.cols(), c_shape.1), (1, 1), "a matrix-vector kernel takes vectors");
            let x = Vector::new(b, problem.b.rows(), b_strides[0])?;
            let y = VectorMut::new(c, c_shape.0, c_strides[0])?;
            return place.launch(gemv_block_reduction_fp32 { gemv: Gemv::new(alpha, a, x, beta, y)? });
        }
        let b = Matrix::new(b, problem.b.rows(), problem.b.cols(), b_strides[0], b_strides[1])?;
        let c = MatrixMut::new(c, c_shape.0, c_shape.1, c_strides[0], c_strides[1])?;
        let gemm = Gemm::new(alpha, a, b, beta, c)?;
        match self {
            Self::GemvBlockReduction => unreachable!(),
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
        };
        // SAFETY: the views are of slices that are borrowed for as long as the kernel value lives, the one of C mutably.
        Ok(unsafe { executor.launch(kernel, grid, 0) }?)
    }
}
