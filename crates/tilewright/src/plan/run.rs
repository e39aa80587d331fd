//! Runs a plan: queues its launches, which prepare the operands, multiply, and add up partial results, on a device.

use cuda_std::GlobalSliceMut;
use gpu_kernels::epilogue::Steps;
use gpu_kernels::gemm::hopper::fallback::Fallback;
use gpu_kernels::gemm::split_k::SplitReduction;
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Triangle};

use super::gemm_plan::GemmPlan;
use super::kernel_candidate::line_of_partials;
use super::preparation::Prepared;
use super::workspace::Workspace;
use crate::description::Description;
use crate::kernels::contract::Call;
use crate::kernels::{PackedOperand, add_partial_sums, apply_epilogue, clear_outside, repair_tiles};
use crate::views::{read, words};
use crate::{Bytes, Device, DeviceMatrix, Epilogue, Error, Operand};

impl GemmPlan {
    /// Queues `C = α·A·B + β·C` for each product of the batch; of a part of C, with zeros elsewhere, if that was planned. Does
    /// not wait for it, allocates nothing, and copies nothing between host and device, so it can be timed as it is.
    ///
    /// The workspace must not be given to anything that runs on another stream meanwhile; plans that use it one after the
    /// other are fine.
    ///
    /// # Errors
    /// [`Error::Operands`] if these do not make a product; [`Error::Shape`] if elements of C share a place in memory;
    /// [`Error::PlanMismatch`] if they are not placed as the plan was made for, or α is zero and was not, or the other way
    /// round; [`Error::WorkspaceTooSmall`]; [`DeviceError::ForeignView`](runtime::Error::ForeignView) if something is not in memory of the device; those of
    /// [`Device::launch`].
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    pub fn run<'a>(
        &self,
        device: &Device,
        alpha: f32,
        a: impl Into<Operand<'a>>,
        b: impl Into<Operand<'a>>,
        beta: f32,
        c: &mut DeviceMatrix,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        self.run_with(device, &Epilogue::new(), alpha, a, b, beta, c, workspace)
    }

    /// The same, and the steps of an epilogue: for a plan of a product with one ([`Description::with_epilogue`]).
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::plan::{Description, GemmPlan, Options};
    /// use tilewright::{Device, DeviceMatrix, Epilogue};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
    /// let (a, b, mut c) = (on_device(array![[2.0]])?, on_device(array![[3.0]])?, on_device(array![[0.0]])?);
    /// let product = Description::of(1.0, &a, &b, 0.0, &c)?.with_epilogue(true);
    /// let plan = GemmPlan::new(&device, &product, &Options::default())?;
    /// let (mut workspace, less) = (plan.workspace(&device)?, Epilogue::new().offset(-1.0));
    /// plan.run_with(&device, &less, 1.0, &a, &b, 0.0, &mut c, &mut workspace)?;
    /// let mut result = array![[0.0]];
    /// c.download(result.view_mut())?;
    /// assert_eq!(result, array![[5.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`GemmPlan::run`], and those of [`multiply_with`](crate::multiply_with).
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, an epilogue, and where to run")]
    pub fn run_with<'a>(
        &self,
        device: &Device,
        epilogue: &Epilogue<'_>,
        alpha: f32,
        a: impl Into<Operand<'a>>,
        b: impl Into<Operand<'a>>,
        beta: f32,
        c: &mut DeviceMatrix,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let (a, b) = (a.into(), b.into());
        let given = Description::of(alpha, a, b, beta, c)?.with_epilogue(!epilogue.is_empty());
        self.check(&given, workspace)?;
        if given.is_empty() {
            // There may be no memory for views of matrices of which there are none.
            return Ok(());
        }
        let packed = [a, b].map(|operand| operand.packed().map(PackedOperand::of));
        let (a, b, c) = (a.matrix().batch()?, b.matrix().batch()?, c.batch_mut(false)?);
        self.run_checked(device, epilogue, alpha, [a, b], packed, beta, c, workspace)
    }

    /// Refuses operands that the plan was not made for, and a workspace that is too small.
    fn check(&self, given: &Description, workspace: &Workspace) -> Result<(), Error> {
        if let Some((what, planned, given)) = self.product.difference(given) {
            return Err(Error::PlanMismatch { kernel: self.kernel().name, what, planned, given });
        }
        if workspace.bytes() < self.workspace_bytes() {
            let (needs, has) = (Bytes(self.workspace_bytes() as u128), Bytes(workspace.bytes() as u128));
            return Err(Error::WorkspaceTooSmall { needs, has });
        }
        Ok(())
    }

    /// The same for views of matrices, as kernels take them.
    ///
    /// # Errors
    /// As for [`GemmPlan::run`].
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    pub fn run_views(
        &self,
        device: &Device,
        alpha: f32,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        beta: f32,
        c: MatrixBatchMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        self.run_views_with(device, &Epilogue::new(), alpha, a, b, beta, c, workspace)
    }

    /// The same, and the steps of an epilogue: for a plan of a product with one ([`Description::with_epilogue`]).
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::plan::{Description, GemmPlan, Options};
    /// use tilewright::{Device, DeviceMatrix, Epilogue};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
    /// let (a, b, mut c) = (on_device(array![[2.0]])?, on_device(array![[3.0]])?, on_device(array![[0.0]])?);
    /// let product = Description::of(1.0, &a, &b, 0.0, &c)?.with_epilogue(true);
    /// let plan = GemmPlan::new(&device, &product, &Options::default())?;
    /// let (mut workspace, less) = (plan.workspace(&device)?, Epilogue::new().offset(-1.0));
    /// plan.run_views_with(&device, &less, 1.0, a.batch()?, b.batch()?, 0.0, c.batch_mut(false)?, &mut workspace)?;
    /// let mut result = array![[0.0]];
    /// c.download(result.view_mut())?;
    /// assert_eq!(result, array![[5.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`GemmPlan::run_with`].
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, an epilogue, and where to run")]
    pub fn run_views_with(
        &self,
        device: &Device,
        epilogue: &Epilogue<'_>,
        alpha: f32,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        beta: f32,
        c: MatrixBatchMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let given = Description::of_views(alpha, &a, &b, beta, &c)?.with_epilogue(!epilogue.is_empty());
        self.check(&given, workspace)?;
        if self.product.is_empty() {
            return Ok(());
        }
        self.run_checked(device, epilogue, alpha, [a, b], [None; 2], beta, c, workspace)
    }

    /// Products of which there are some, and which [`GemmPlan::check`] has passed.
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    fn run_checked(
        &self,
        device: &Device,
        epilogue: &Epilogue<'_>,
        alpha: f32,
        [a, b]: [MatrixBatch<'_>; 2],
        packed: [Option<PackedOperand<'_>>; 2],
        beta: f32,
        c: MatrixBatchMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let (candidate, results) = (&self.candidate, c);
        let [a, b] = [a, b].map(|operand| operand.for_all(c.count()));
        let steps = epilogue.steps(self.product.batch, self.product.m, self.product.n)?;
        let [packed_a, packed_b] = packed;
        let (a, b, c, steps, [packed_a, packed_b]) = match candidate.transposed {
            false => (a, b, c, steps, packed),
            true => (b.transposed(), a.transposed(), c.transposed(), steps.transposed(), [packed_b, packed_a]),
        };
        // Which are done by the kernel, which by the second pass of split-K, and which by a launch after everything else.
        let (with_kernel, with_reduction, after) =
            match (candidate.kernel_does_epilogue(), candidate.reduction_does_epilogue()) {
                (true, _) => (steps, Steps::none(), Steps::none()),
                (_, true) => (Steps::none(), steps, Steps::none()),
                (false, false) => (Steps::none(), Steps::none(), steps),
            };
        let [prepare_a, prepare_b] = &candidate.preparations;
        let parts = workspace.parts(self.workspace_parts())?;
        let [a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6, for_partials, for_mask] = parts;
        let prepared_a = prepare_a.run(device, a, [a0, a1, a2, a3, a4, a5, a6], packed_a)?;
        let prepared_b = prepare_b.run(device, b, [b0, b1, b2, b3, b4, b5, b6], packed_b)?;
        Prepared::finish([&prepared_a, &prepared_b], device)?;
        let Prepared { operand: a, packed: packed_a, .. } = prepared_a;
        let Prepared { operand: b, packed: packed_b, .. } = prepared_b;

        // A plan for β = 0 may be run with another one, and then cannot compute tiles again from what they were.
        let no_mask = GlobalSliceMut::new(&mut []);
        let tile_mask = if beta == 0.0 { words(for_mask) } else { no_mask };
        let multiply = |gemm: TiledGemm<'_>, alpha, beta| {
            let call = Call {
                gemm: gemm.with_exact_selections(!candidate.invariant),
                alpha,
                beta,
                splits: candidate.splits,
                triangle: candidate.product.part,
                packed: [packed_a, packed_b],
                tile_mask,
                steps: with_kernel,
                fallback: Fallback::everything(),
            };
            candidate.kernel.contract.launch(device, &call)?;
            // What the one kernel has skipped, the other one computes, and nothing else.
            let fallback = Fallback { a: packed_a.scales.fallback, b: packed_b.scales.fallback };
            candidate
                .fallback
                .map_or(Ok(()), |kernel| kernel.contract.launch(device, &Call { tile_mask: no_mask, fallback, ..call }))
        };
        let whole = TiledGemm::new(alpha, a, b, beta, c)?;
        if candidate.is_divided() {
            let (m, n) = (c.first().rows() as usize, c.first().cols() as usize);
            let (count, line) = (self.product.batch * candidate.splits as usize, line_of_partials(n));
            let partials = MatrixBatchMut::new(MatrixMut::new(for_partials, m, n, line, 1)?, m * line, count)?;
            multiply(TiledGemm::split_k(a, b, partials, candidate.splits)?, 1.0, 0.0)?;
            let partials = MatrixBatch::new(Matrix::new(read(for_partials), m, n, line, 1)?, m * line, count)?;
            let reduction =
                SplitReduction::new(alpha, partials, candidate.splits, beta, c)?.with_steps(with_reduction)?;
            add_partial_sums(device, reduction, candidate.kernel.scheme.parts_of_sums())?;
        } else {
            multiply(whole, alpha, beta)?;
        }
        if !tile_mask.is_empty() {
            repair_tiles(device, whole, read(tile_mask), candidate.splits)?;
        }
        if !after.is_empty() {
            apply_epilogue(device, c, after)?;
        }
        match self.product.part {
            Triangle::All => Ok(()),
            triangle => clear_outside(device, triangle, results),
        }
    }
}
