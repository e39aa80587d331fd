//! Matrix–vector products, `y = α·A·x + β·y`: every element of A is used once, so the time is that of reading A.
//!
//! | module | idea |
//! |---|---|
//! | [`block_reduction`] | a block shares one long sum |
//! | [`split`] | row-major A: rows divided among blocks (split-K), many loads under way |
//! | [`transposed_split`] | the same for column-major A |

pub mod block_reduction;
pub mod split;
pub mod transposed_split;

use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::alpha_beta::AlphaBeta;
use crate::{Matrix, MatrixMut, Vector, VectorMut};

/// A matrix–vector product to compute: what every kernel of this module takes.
///
/// Invariant, which the constructor establishes and kernels rely on: A is m×k, x has k elements and y has m.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Gemv<'a> {
    a: Matrix<'a>,
    x: Vector<'a>,
    y: VectorMut<'a>,
    alpha_beta: AlphaBeta,
}

impl<'a> Gemv<'a> {
    /// `y = α·A·x + β·y`.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is m×k, x has k elements and y has m.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn new(alpha: f32, a: Matrix<'a>, x: Vector<'a>, beta: f32, y: VectorMut<'a>) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(("the number of columns of A", a.cols()), ("the length of x", x.len()))?;
        ShapeError::unless_equal(("the number of rows of A", a.rows()), ("the length of y", y.len()))?;
        Ok(Self { a, x, y, alpha_beta: AlphaBeta { alpha, beta } })
    }

    /// The number of rows of A and of elements of y.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.y.len()
    }

    /// The number of terms of each sum: k, the number of columns of A; but none if α is zero, because then neither A nor x
    /// may be read.
    #[inline(always)]
    pub fn effective_k(&self) -> u32 {
        self.alpha_beta.effective_k(self.a.cols())
    }

    /// The epilogue of one element: `y[row] = α·sum + β·y[row]`. y is not read if β is zero.
    ///
    /// # Safety
    /// `row < self.m()`, and no other thread accesses this element of y.
    #[inline(always)]
    #[track_caller]
    unsafe fn epilogue(&self, row: u32, sum: f32) {
        // SAFETY: inside y, and this thread's alone, by the caller's promise.
        let value = self.alpha_beta.combine(self.effective_k(), sum, || unsafe { self.y.at(row) });
        // SAFETY: as above.
        unsafe { self.y.set(row, value) }
    }
}

/// A matrix–vector product whose sums are divided among blocks: each of `splits` parts of the columns of A gives a partial
/// result of its own.
///
/// ```text
///             columns of A:  split 0   split 1   …             partials, splits×m:  row s has the partial sums of split s
/// ```
///
/// [`gemm_split_reduction_fp32`](crate::gemm::split_k::gemm_split_reduction_fp32) adds the rows up.
///
/// Invariant, which the constructors establish and kernels rely on: A is m×k, x has k elements, and the outputs are
/// splits×m, with at least one split.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct SplitGemv<'a> {
    a: Matrix<'a>,
    x: Vector<'a>,
    outputs: MatrixMut<'a>,
    alpha_beta: AlphaBeta,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> SplitGemv<'a> {
    /// `y = α·A·x + β·y` in one pass: a single split.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is m×k, x has k elements and y has m.
    pub fn new(alpha: f32, a: Matrix<'a>, x: Vector<'a>, beta: f32, y: VectorMut<'a>) -> Result<Self, ShapeError> {
        let row = MatrixMut::new(y.data(), 1, y.len() as usize, 0, y.stride() as usize)?;
        Self::with(a, x, row, AlphaBeta { alpha, beta })
    }

    /// Partial sums of `A·x`, those of split `s` in row `s` of `partials`, which has as many rows as there are splits.
    ///
    /// # Errors
    /// As for [`SplitGemv::new`], with the columns of `partials` for the elements of y; and [`ShapeError::Mismatch`] if it
    /// has no rows.
    pub fn split(a: Matrix<'a>, x: Vector<'a>, partials: MatrixMut<'a>) -> Result<Self, ShapeError> {
        if partials.rows() == 0 {
            ShapeError::unless_equal(("the number of rows of the partials", 0), ("the least number of splits", 1))?;
        }
        Self::with(a, x, partials, AlphaBeta { alpha: 1.0, beta: 0.0 })
    }

    fn with(a: Matrix<'a>, x: Vector<'a>, outputs: MatrixMut<'a>, alpha_beta: AlphaBeta) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(("the number of columns of A", a.cols()), ("the length of x", x.len()))?;
        ShapeError::unless_equal(("the number of rows of A", a.rows()), ("the length of the result", outputs.cols()))?;
        Ok(Self { a, x, outputs, alpha_beta })
    }

    /// The matrix A.
    pub fn a(&self) -> Matrix<'a> {
        self.a
    }

    /// The factor β.
    pub fn beta(&self) -> f32 {
        self.alpha_beta.beta
    }
}

impl SplitGemv<'_> {
    /// The number of rows of A and of elements of a result.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.outputs.cols()
    }

    /// The number of columns of A and of elements of x.
    #[inline(always)]
    pub fn k(&self) -> u32 {
        self.a.cols()
    }

    /// The number of terms of each sum: none if α is zero, because then neither A nor x may be read.
    #[inline(always)]
    pub fn effective_k(&self) -> u32 {
        self.alpha_beta.effective_k(self.k())
    }

    /// The number of splits.
    #[inline(always)]
    pub fn splits(&self) -> u32 {
        self.outputs.rows()
    }

    /// The first column of split `split` of `splits`, a multiple of `step` columns (or the number of terms): the columns are
    /// divided as evenly as steps allow.
    #[inline(always)]
    fn first_column(&self, split: u32, splits: u32, step: u32) -> u32 {
        let steps = u64::from(self.effective_k().div_ceil(step));
        let first = (steps * u64::from(split)).checked_div(u64::from(splits)).unwrap_or(0);
        (first as u32).saturating_mul(step).min(self.effective_k())
    }

    /// The epilogue of one element of output `split`: `α·sum + β·y[row]`. It is not read if β is zero.
    ///
    /// # Safety
    /// `split < self.splits()`, `row < self.m()`, and no other thread accesses this element.
    #[inline(always)]
    #[track_caller]
    unsafe fn epilogue(&self, split: u32, row: u32, sum: f32) {
        // SAFETY: inside the outputs, and this thread's alone, by the caller's promise.
        let value = self.alpha_beta.combine(self.effective_k(), sum, || unsafe { self.outputs.at(split, row) });
        // SAFETY: as above.
        unsafe { self.outputs.set(split, row, value) }
    }

    /// Adds α·sum to one element of the only output, whatever other threads add to it.
    ///
    /// # Safety
    /// `row < self.m()`, and no thread accesses the element in another way.
    #[inline(always)]
    #[track_caller]
    unsafe fn add(&self, row: u32, sum: f32) {
        let offset = self.outputs.offset(0, row);
        // SAFETY: inside the outputs, by the caller's promise.
        unsafe { self.outputs.data().atomic_add_unchecked(offset, self.alpha_beta.alpha * sum) }
    }
}

/// The threads of a block of the kernels whose sums are divided among blocks.
const THREADS: u32 = 256;
/// The warps of such a block.
const WARPS: usize = THREADS as usize / warp::LANES as usize;
/// The number of rows of which every thread of such a kernel has sums.
const ROWS: usize = 4;

/// The number of splits for a kernel of which `blocks` blocks would compute the product without any, each in `steps` steps.
///
/// 128 blocks for each multiprocessor, as long as each has at least four steps, and no more splits than eight for each
/// multiprocessor: so many blocks that the last ones to finish do not count, and that enough loads are under way even where
/// a matrix has few rows; so few that the partial results, and the second pass over them, do not count either. A product that
/// has as many blocks anyway is computed in one pass.
#[cfg(not(target_arch = "nvptx64"))]
fn balanced_splits(blocks: u64, steps: u64, multiprocessors: u32) -> u32 {
    let multiprocessors = u64::from(multiprocessors);
    let wanted = (128 * multiprocessors).div_ceil(blocks.max(1));
    wanted.min(steps / 4).min(8 * multiprocessors).max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_as_many_as_a_gpu_is_full_with() {
        assert_eq!(balanced_splits(512, 512, 132), 33); // 2048 rows of 2²⁰ columns
        assert_eq!(balanced_splits(1, 1 << 20, 132), 8 * 132); // one long row
        assert_eq!(balanced_splits(16, 512, 132), 128); // at least four steps each
        assert_eq!(balanced_splits(20_000, 512, 132), 1); // blocks enough
        assert_eq!(balanced_splits(1, 3, 132), 1); // too short
        assert_eq!(balanced_splits(0, 0, 0), 1); // nothing at all
    }
}
