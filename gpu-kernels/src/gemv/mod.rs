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

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::alpha_beta::AlphaBeta;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::TiledGemm;
use crate::geometry::divide;
use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Vector, VectorMut};

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

/// Matrix–vector products whose sums are divided among blocks, one for each of a batch: each of `splits` parts of the columns of A gives
/// a partial result of its own.
///
/// ```text
///             columns of A:  split 0   split 1   …             outputs of product i:  i · splits + s has the sums of split s
/// ```
///
/// The kernels of [`split_k`](crate::gemm::split_k) add them up.
///
/// Invariant, which the constructors establish and kernels rely on: every A is m×k, every x is k×1 and every output m×1; there are
/// as many of A and of x as products, and `splits` times as many outputs, with at least one split.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct SplitGemv<'a> {
    a: MatrixBatch<'a>,
    x: MatrixBatch<'a>,
    outputs: MatrixBatchMut<'a>,
    alpha_beta: AlphaBeta,
    splits: u64,
}

/// One of the products, and one of its splits.
#[derive(Clone, Copy)]
struct SplitProduct<'a> {
    a: Matrix<'a>,
    x: Vector<'a>,
    output: MatrixMut<'a>,
    alpha_beta: AlphaBeta,
    k: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> SplitGemv<'a> {
    /// `y = α·A·x + β·y` in one pass: a single split.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is m×k, x has k elements and y has m.
    pub fn new(alpha: f32, a: Matrix<'a>, x: Vector<'a>, beta: f32, y: VectorMut<'a>) -> Result<Self, ShapeError> {
        let column = MatrixMut::new(y.data(), y.len() as usize, 1, y.stride() as usize, 0)?;
        Self::with(a.into(), Self::column(x)?, column.into(), AlphaBeta { alpha, beta }, 1)
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
        let first = MatrixMut::new(partials.data(), partials.cols() as usize, 1, partials.col_stride() as usize, 0)?;
        let splits = partials.rows();
        let outputs = MatrixBatchMut::new(first, partials.row_stride() as usize, splits as usize)?;
        Self::with(a.into(), Self::column(x)?, outputs, AlphaBeta { alpha: 1.0, beta: 0.0 }, splits)
    }

    /// The products of a batch whose matrices B have one column: whole ones, or partial sums if there is more than one split.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] if B has more columns.
    pub fn batch(alpha: f32, beta: f32, gemm: &TiledGemm<'a>) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(("the number of columns of B", gemm.n()), ("the columns of a vector", 1))?;
        Self::with(gemm.a(), gemm.b(), gemm.c(), AlphaBeta { alpha, beta }, gemm.splits())
    }

    fn column(x: Vector<'a>) -> Result<MatrixBatch<'a>, ShapeError> {
        Ok(Matrix::new(x.data(), x.len() as usize, 1, x.stride() as usize, 0)?.into())
    }

    fn with(
        a: MatrixBatch<'a>,
        x: MatrixBatch<'a>,
        outputs: MatrixBatchMut<'a>,
        alpha_beta: AlphaBeta,
        splits: u32,
    ) -> Result<Self, ShapeError> {
        let (first_a, first_x, first_output) = (a.first(), x.first(), outputs.first());
        let mismatch = ShapeError::unless_equal;
        mismatch(("the number of columns of A", first_a.cols()), ("the length of x", first_x.rows()))?;
        mismatch(("the number of rows of A", first_a.rows()), ("the length of the result", first_output.rows()))?;
        Ok(Self { a, x, outputs, alpha_beta, splits: u64::from(splits.max(1)) })
    }

    /// The matrices A.
    pub fn a(&self) -> MatrixBatch<'a> {
        self.a
    }

    /// The factor β.
    pub fn beta(&self) -> f32 {
        self.alpha_beta.beta
    }
}

impl<'a> SplitGemv<'a> {
    /// The number of rows of every A and of elements of a result.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.outputs.first().rows()
    }

    /// The number of columns of every A and of elements of x.
    #[inline(always)]
    pub fn k(&self) -> u32 {
        self.a.first().cols()
    }

    /// The number of terms of each sum: none if α is zero, because then neither A nor x may be read.
    #[inline(always)]
    pub fn effective_k(&self) -> u32 {
        self.alpha_beta.effective_k(self.k())
    }

    /// The number of products.
    #[inline(always)]
    pub fn products(&self) -> u32 {
        self.a.count()
    }

    /// The number of splits.
    #[inline(always)]
    pub fn splits(&self) -> u32 {
        self.splits as u32
    }

    /// Split `split` of product `product`, where `splits` of them are written apart.
    ///
    /// # Safety
    /// `product < self.products()`, and `split < self.splits()`.
    #[inline(always)]
    unsafe fn product(&self, product: u32, split: u32) -> SplitProduct<'a> {
        // SAFETY: the caller's promise: there are as many of A and of x as products, and `splits` times as many outputs.
        let (a, x, output) =
            unsafe { (self.a.at(product), self.x.at(product), self.outputs.at(product * self.splits() + split)) };
        SplitProduct { a, x: Vector::of_column(x), output, alpha_beta: self.alpha_beta, k: self.effective_k() }
    }
}

impl SplitProduct<'_> {
    /// The epilogue of one element: `α·sum + β·y[row]`. It is not read if β is zero.
    ///
    /// # Safety
    /// `row < m`, and no other thread accesses this element.
    #[inline(always)]
    #[track_caller]
    unsafe fn epilogue(&self, row: u32, sum: f32) {
        // SAFETY: inside the output, and this thread's alone, by the caller's promise.
        let value = self.alpha_beta.combine(self.k, sum, || unsafe { self.output.at(row, 0) });
        // SAFETY: as above.
        unsafe { self.output.set(row, 0, value) }
    }

    /// Adds α·sum to one element of the output, whatever other threads add to it.
    ///
    /// # Safety
    /// `row < m`, and no thread accesses the element in another way.
    #[inline(always)]
    #[track_caller]
    unsafe fn add(&self, row: u32, sum: f32) {
        let offset = self.output.offset(row, 0);
        // SAFETY: inside the output, by the caller's promise.
        unsafe {
            let element = self.output.data().atomic_unchecked(offset);
            element.fetch_add(self.alpha_beta.alpha * sum, Relaxed, Scope::Device);
        }
    }
}

/// The threads of a block of the kernels whose sums are divided among blocks.
const THREADS: u32 = 256;
/// The warps of such a block.
const WARPS: usize = THREADS as usize / warp::LANES as usize;

/// The part of `total` pieces that split `split` of `splits` has: from a multiple of `step` pieces to before another, or the total. They are
/// divided as evenly as steps allow.
#[inline(always)]
fn range_of_split(split: u32, splits: u32, total: u32, step: u32) -> [u32; 2] {
    if splits == 1 {
        return [0, total]; // a division takes some 300 clocks
    }
    let steps = u64::from(total.div_ceil(step.max(1)));
    [split, split + 1].map(|split| {
        let (first, _) = divide(steps * u64::from(split), splits.into());
        (first as u32).saturating_mul(step).min(total)
    })
}

/// The blocks that run at a time on a multiprocessor, and how many of them on each keep the memory busy.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCKS_AT_A_TIME: u64 = 3;
#[cfg(not(target_arch = "nvptx64"))]
const BUSY: f64 = 2.4;

/// The elements of A that each multiprocessor reads in the time that the second pass takes, and in what a round of blocks takes besides.
#[cfg(not(target_arch = "nvptx64"))]
const SECOND_PASS: f64 = 26_000.0;
#[cfg(not(target_arch = "nvptx64"))]
const ROUND: f64 = 5_000.0;

/// The number of splits for a kernel of which `blocks` blocks would compute so many m×k matrices without any, each in `steps` steps.
///
/// Each split has at least four steps (or one, where that would leave multiprocessors without work), and there are no more splits than
/// eight for each multiprocessor. Of a huge product with few blocks there are so many that the last ones to finish do not count. Of any other
/// there are as few as cost about the least time: blocks run in rounds, a round in which there are too few of them to keep the memory
/// busy takes as long as one with enough, and the second pass is another launch.
#[cfg(not(target_arch = "nvptx64"))]
fn balanced_splits(blocks: u64, steps: u32, matrices: [u32; 3], multiprocessors: u32) -> u32 {
    let (blocks, multiprocessors) = (blocks.max(1), u64::from(multiprocessors.max(1)));
    let most = match u64::from(steps) / 4 {
        most if most > 1 && most * blocks < multiprocessors => u64::from(steps),
        most => most,
    };
    let most = most.min(8 * multiprocessors).max(1);
    let at_a_time = BLOCKS_AT_A_TIME * multiprocessors;
    let elements: u128 = matrices.into_iter().map(u128::from).product();
    if elements >= 0x1000_0000 && blocks < 4 * at_a_time {
        return (128 * multiprocessors).div_ceil(blocks).min(most) as u32;
    }
    // The time, as the elements that would be read in it.
    let busy = BUSY * multiprocessors as f64;
    let time = |splits: u64| {
        let all = blocks * splits;
        let blocks_of_round = |blocks: u64| if blocks == 0 { 0.0 } else { (blocks as f64).max(busy) };
        let rounds = (all / at_a_time) as f64 * blocks_of_round(at_a_time) + blocks_of_round(all % at_a_time);
        let besides = all.div_ceil(at_a_time) as f64 * ROUND + if splits > 1 { SECOND_PASS } else { 0.0 };
        elements as f64 / all as f64 * rounds + besides * multiprocessors as f64
    };
    let least = (1..=most).map(time).fold(f64::INFINITY, f64::min);
    (1..=most).find(|&splits| time(splits) <= 1.03 * least).unwrap_or(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_as_many_as_a_gpu_is_full_with() {
        assert_eq!(balanced_splits(512, 512, [1, 2048, 1 << 20], 132), 33);
        assert_eq!(balanced_splits(1, 1 << 17, [1, 1, 1 << 28], 132), 8 * 132); // one long row
        assert_eq!(balanced_splits(16, 512, [1, 64, 1 << 20], 132), 20); // a round that keeps the memory busy
        assert_eq!(balanced_splits(512, 16, [1, 8192, 8192], 132), 3); // four rounds
        assert_eq!(balanced_splits(16, 40, [1, 64, 1 << 20], 132), 10); // at least four steps each
        assert_eq!(balanced_splits(1, 64, [1, 1, 1 << 17], 132), 53); // a dot product
        assert_eq!(balanced_splits(256, 16, [32, 128, 4096], 132), 1); // as long as a few launches
        assert_eq!(balanced_splits(100, 64, [1, 1600, 8192], 132), 3); // likewise, of few blocks
        assert_eq!(balanced_splits(157, 256, [1, 2512, 16384], 132), 2); // too few blocks to keep the memory busy
        assert_eq!(balanced_splits(20_000, 512, [1, 80_000, 1 << 20], 132), 1); // blocks enough
        assert_eq!(balanced_splits(1, 3, [1, 1, 5000], 132), 1); // too short
        assert_eq!(balanced_splits(0, 0, [0; 3], 0), 1); // nothing at all
    }

    #[test]
    fn splits_have_all_pieces_once() {
        for (splits, total, step) in [(1, 7, 2), (3, 100, 8), (5, 3, 4), (4, 0, 8), (70, 33, 1)] {
            let ranges: [_; 70] = core::array::from_fn(|split| range_of_split(split as u32, splits, total, step));
            let ranges = &ranges[..splits as usize];
            assert_eq!((ranges[0][0], ranges[splits as usize - 1][1]), (0, total));
            assert!(ranges.windows(2).all(|pair| pair[0][1] == pair[1][0] && pair[0][0] <= pair[0][1]));
        }
    }
}
