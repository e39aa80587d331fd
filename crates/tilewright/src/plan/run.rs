//! Running a plan.

use cuda_std::GlobalSliceMut;
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::hopper::fallback::Fallback;
use gpu_kernels::gemm::split_k::SplitReduction;
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::gemv::{Gemv, SplitGemv};
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Triangle, Vector, VectorMut};

use crate::kernels::{Launch, add_partial_sums, clear_outside, repair_marked_tiles};
use crate::plan::preparation::Prepared;
use crate::plan::workspace::{read, words};
use crate::plan::{Description, GemmPlan, Workspace};
use crate::{Bytes, Device, DeviceMatrix, Error};

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
    pub fn run(
        &self,
        device: &Device,
        alpha: f32,
        a: &DeviceMatrix,
        b: &DeviceMatrix,
        beta: f32,
        c: &mut DeviceMatrix,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let given = Description::of(alpha, a, b, beta, c)?;
        self.check(&given, workspace)?;
        if given.is_empty() {
            // There may be no memory for views of matrices of which there are none.
            return Ok(());
        }
        self.run_checked(device, alpha, a.batch()?, b.batch()?, beta, c.batch_mut(false)?, workspace)
    }

    /// Refuses operands that the plan was not made for, and a workspace that is too small.
    fn check(&self, given: &Description, workspace: &Workspace) -> Result<(), Error> {
        if let Some((what, planned, given)) = self.product.difference(given) {
            return Err(Error::PlanMismatch { kernel: self.kernel.name, what, planned, given });
        }
        if workspace.bytes() < self.workspace_bytes {
            let (needs, has) = (Bytes(self.workspace_bytes as u128), Bytes(workspace.bytes() as u128));
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
        self.check(&Description::of_views(alpha, &a, &b, beta, &c)?, workspace)?;
        if self.product.is_empty() {
            return Ok(());
        }
        self.run_checked(device, alpha, a, b, beta, c, workspace)
    }

    /// Products of which there are some, and which [`GemmPlan::check`] has passed.
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    fn run_checked(
        &self,
        device: &Device,
        alpha: f32,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        beta: f32,
        c: MatrixBatchMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let (a, b, c_planned) = match self.transposed {
            false => (a, b, c),
            true => (b.transposed(), a.transposed(), c.transposed()),
        };
        match self.kernel.launch {
            Launch::Tiled(_) | Launch::Marking(_) | Launch::Packed { .. } => {
                self.run_batch(device, alpha, a, b, beta, c_planned, workspace)?;
            }
            _ => {
                (0..c.count()).try_for_each(|index| {
                    // SAFETY: there are as many matrices, of each as many as of C: `check`.
                    let (a, b, c) = unsafe { (a.at(index), b.at(index), c_planned.at(index)) };
                    self.run_one(device, alpha, a, b, beta, c, workspace)
                })?
            }
        }
        match self.product.part {
            Triangle::All => Ok(()),
            part => clear_outside(device, part, c),
        }
    }

    /// All products, by a kernel that takes batches.
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    fn run_batch(
        &self,
        device: &Device,
        alpha: f32,
        a: MatrixBatch<'_>,
        b: MatrixBatch<'_>,
        beta: f32,
        c: MatrixBatchMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        let [prepare_a, prepare_b] = &self.preparations;
        let parts = workspace.parts(self.workspace_parts())?;
        let [a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5, for_partials, for_marks] = parts;
        let Prepared { operand: a, packed: packed_a } = prepare_a.run(device, a, [a0, a1, a2, a3, a4, a5])?;
        let Prepared { operand: b, packed: packed_b } = prepare_b.run(device, b, [b0, b1, b2, b3, b4, b5])?;

        // A plan for β = 0 may be run with another one, and then cannot compute tiles again from what they were.
        let no_marks = GlobalSliceMut::new(&mut []);
        let marks = if beta == 0.0 { words(for_marks) } else { no_marks };
        let part = if self.transposed { self.product.part.transposed() } else { self.product.part };
        let multiply = |gemm| {
            match self.kernel.launch {
                Launch::Tiled(launch) => launch(device, gemm)?,
                Launch::Marking(launch) => launch(device, gemm, marks, Fallback::everything())?,
                Launch::Packed { launch, .. } => launch(device, gemm, part, [packed_a, packed_b])?,
                _ => unreachable!("takes one product at a time"),
            }
            // What is unfit for the one kernel, the other one computes, and nothing else.
            match self.fallback.map(|kernel| &kernel.launch) {
                Some(Launch::Marking(launch)) => launch(
                    device,
                    gemm,
                    no_marks,
                    Fallback { a: packed_a.scales.fallback, b: packed_b.scales.fallback },
                ),
                _ => Ok(()),
            }
        };
        let whole = TiledGemm::new(alpha, a, b, beta, c)?;
        if self.splits == 1 {
            multiply(whole)?;
        } else {
            let (m, n) = (c.first().rows() as usize, c.first().cols() as usize);
            let count = self.product.batch * self.splits as usize;
            let partials = MatrixBatchMut::new(MatrixMut::new(for_partials, m, n, n, 1)?, m * n, count)?;
            multiply(TiledGemm::split_k(a, b, partials, self.splits)?)?;
            let partials = MatrixBatch::new(Matrix::new(read(for_partials), m, n, n, 1)?, m * n, count)?;
            add_partial_sums(device, SplitReduction::new(alpha, partials, self.splits, beta, c)?)?;
        }
        if marks.is_empty() { Ok(()) } else { repair_marked_tiles(device, whole, read(marks), self.splits) }
    }

    /// One product, by a kernel that does not take batches.
    #[allow(clippy::too_many_arguments, reason = "those of a BLAS, and where to run")]
    fn run_one(
        &self,
        device: &Device,
        alpha: f32,
        a: Matrix<'_>,
        b: Matrix<'_>,
        beta: f32,
        c: MatrixMut<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), Error> {
        if let Launch::Gemm(launch) = self.kernel.launch {
            return launch(device, Gemm::new(alpha, a, b, beta, c)?);
        }
        let x = Vector::new(b.data(), b.rows() as usize, b.row_stride() as usize)?;
        let m = c.rows() as usize;
        let y = VectorMut::new(c.data(), m, c.row_stride() as usize)?;
        match self.kernel.launch {
            Launch::Gemv(launch) => launch(device, Gemv::new(alpha, a, x, beta, y)?),
            Launch::SplitGemv { launch, .. } if self.splits == 1 => {
                launch(device, SplitGemv::new(alpha, a, x, beta, y)?)
            }
            Launch::SplitGemv { launch, .. } => {
                let splits = self.splits as usize;
                let [for_partials] = workspace.parts([self.partials.clone()])?;
                let partials = MatrixMut::new(for_partials, splits, m, m, 1)?;
                launch(device, SplitGemv::split(a, x, partials)?)?;
                let partials = Matrix::new(read(for_partials), m, 1, 1, m)?;
                let partials = MatrixBatch::new(partials, m, splits)?;
                add_partial_sums(device, SplitReduction::new(alpha, partials, self.splits, beta, c)?)
            }
            Launch::AtomicGemv { launch, .. } => {
                add_partial_sums(device, SplitReduction::scaling(beta, c)?)?;
                launch(device, SplitGemv::new(alpha, a, x, 1.0, y)?, self.splits)
            }
            Launch::Gemm(_) | Launch::Tiled(_) | Launch::Marking(_) | Launch::Packed { .. } => {
                unreachable!("launched elsewhere")
            }
        }
    }
}
