//! What happens to an operand before it is multiplied: nothing, or a copy that lies as the kernel needs it.
//!
//! ```text
//!  a b c d e · ·     rows of 5, 7 apart: a tensor map cannot       a b c d e · · ·     in the workspace: rows 8 apart,
//!  f g h i j · ·     describe them                            ──►  f g h i j · · ·     aligned to 256 bytes
//!
//!  a · b · c ·       every other element                      ──►  a b c ·
//!  d · e · f ·                                                     d e f ·
//! ```
//!
//! The copy costs reading and writing the operand once, which is little beside a product of large matrices.

use std::ops::Range;

use cuda_std::GlobalSliceMut;
use gpu_kernels::gemm::split_reduction::SplitReduction;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use crate::kernels::{KernelInfo, add_partial_sums};
use crate::plan::workspace::{Layout, read};
use crate::plan::{Placement, Storage};
use crate::{Device, Error};

/// The elements at whose multiples the lines of copies begin: 16 bytes.
const LINE_ALIGNMENT: usize = 4;

/// How an operand gets to the kernel that multiplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// The kernel reads it where it is.
    InPlace,
    /// It is copied into the workspace.
    Copied {
        /// The part of the workspace, in elements.
        part: Range<usize>,
        /// How the copies lie there.
        placement: Placement,
        /// How many matrices are copied: one where all products share it.
        count: usize,
    },
}

/// An operand of the product as it is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// `A` or `B`.
    pub(crate) name: &'static str,
    pub(crate) placement: Placement,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) batch: usize,
    /// How the kernel needs it to be stored, if that matters.
    pub(crate) needs: Option<Storage>,
}

impl Operand {
    /// What a kernel needs to happen to the operand. Its copy takes a part of the layout; `None` if that is too large.
    pub(crate) fn prepare(&self, kernel: &KernelInfo, layout: &mut Layout) -> Option<Preparation> {
        let Some(needs) = self.needs else { return Some(Preparation::InPlace) };
        let loadable = !kernel.tensor_maps || self.placement.fits_tensor_map(self.rows, self.cols, self.batch);
        if loadable && self.placement.storage() != Storage::Spread {
            return Some(Preparation::InPlace);
        }
        let (lines, length) = if needs == Storage::ByRows { (self.rows, self.cols) } else { (self.cols, self.rows) };
        let line_stride = length.next_multiple_of(LINE_ALIGNMENT);
        // A tensor map has no matrices in one place.
        let shared = self.batch > 1 && self.placement.batch_stride == 0 && !kernel.tensor_maps;
        let count = if shared { 1 } else { self.batch };
        let part = layout.part((lines as u128 * line_stride as u128).checked_mul(count as u128)?)?;
        let batch_stride = if count > 1 { lines * line_stride } else { 0 };
        let by_rows = Placement { row_stride: line_stride, col_stride: 1, batch_stride, alignment: 256 };
        let placement = if needs == Storage::ByRows { by_rows } else { by_rows.transposed() };
        Some(Preparation::Copied { part, placement, count })
    }
}

impl Preparation {
    /// The bytes of the copy, if there is one.
    pub(crate) fn bytes(&self) -> Option<usize> {
        match self {
            Self::InPlace => None,
            Self::Copied { part, .. } => Some(part.len() * size_of::<f32>()),
        }
    }

    /// The part of the workspace that it takes.
    pub(crate) fn part(&self) -> Range<usize> {
        match self {
            Self::InPlace => 0..0,
            Self::Copied { part, .. } => part.clone(),
        }
    }

    /// Queues what has to be done, and gives the operand as the kernel takes it. `memory` is the part of the workspace.
    ///
    /// # Errors
    /// [`Error::Shape`], and those of [`Device::launch`].
    pub(crate) fn run<'a>(
        &self,
        device: &Device,
        operand: MatrixBatch<'a>,
        memory: GlobalSliceMut<'a, f32>,
    ) -> Result<MatrixBatch<'a>, Error> {
        let Self::Copied { placement: Placement { row_stride, col_stride, batch_stride, .. }, count, .. } = *self
        else {
            return Ok(operand);
        };
        let first = operand.first();
        let (rows, cols) = (first.rows() as usize, first.cols() as usize);
        let from = MatrixBatch::new(first, operand.stride() as usize, count)?;
        let to = MatrixMut::new(memory, rows, cols, row_stride, col_stride)?;
        let to = MatrixBatchMut::new(to, batch_stride, count)?;
        // A sum of one part.
        add_partial_sums(device, SplitReduction::new(1.0, from, 1, 0.0, to)?)?;
        let copy = Matrix::new(read(memory), rows, cols, row_stride, col_stride)?;
        Ok(MatrixBatch::new(copy, batch_stride, operand.count() as usize)?)
    }
}
