//! General matrix products, `C = α·A·B + β·C`, on CUDA cores.
//!
//! ```text
//!                    n
//!              ┌───────────┐
//!            k │     B     │         C[i, j] = α · Σ A[i, l] · B[l, j]  +  β · C[i, j]
//!              └───────────┘                       l
//!       k
//!    ┌─────┐   ┌───────────┐
//!  m │  A  │ m │     C     │
//!    └─────┘   └───────────┘
//! ```
//!
//! While a thread waits for a load, others compute, so a multiprocessor should hold as many threads as it can schedule:
//! 2048. Each kernel's `min_blocks` keeps its registers few enough for that, 32 for each thread. Left alone, the compiler
//! takes up to 88, for addresses that it could as well compute again, and a quarter of the threads are left.
//!
//! All kernels of this module take a [`Gemm`] and nothing else, for any m, n and k from 0, any strides of A and B (so all
//! of NN, NT, TN and TT), and any strides of C that keep its elements apart.

pub mod basic;
pub mod decompose;
mod fp32_tile;
pub mod hopper;
pub mod mma;
pub mod register_tiled;
pub mod repair;
pub mod split_k;
pub mod tiles;

use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::scale::Scale;
use crate::{Matrix, MatrixMut};

/// A matrix product to compute: what every kernel of this module takes.
///
/// Invariant, which the constructor establishes and kernels rely on: A is m×k, B is k×n and C is m×n. The kernel takes
/// those from [`Gemm::m`], [`Gemm::n`] and [`Gemm::terms`].
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Gemm<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    c: MatrixMut<'a>,
    scale: Scale,
}

impl<'a> Gemm<'a> {
    /// `C = α·A·B + β·C`.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] unless A is m×k, B is k×n and C is m×n for some m, n, k.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn new(alpha: f32, a: Matrix<'a>, b: Matrix<'a>, beta: f32, c: MatrixMut<'a>) -> Result<Self, ShapeError> {
        ShapeError::unless_equal(("the number of columns of A", a.cols()), ("the number of rows of B", b.rows()))?;
        ShapeError::unless_equal(("the number of rows of A", a.rows()), ("the number of rows of C", c.rows()))?;
        ShapeError::unless_equal(("the number of columns of B", b.cols()), ("the number of columns of C", c.cols()))?;
        Ok(Self { a, b, c, scale: Scale { alpha, beta } })
    }

    /// The number of rows of A and of C.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.c.rows()
    }

    /// The number of columns of B and of C.
    #[inline(always)]
    pub fn n(&self) -> u32 {
        self.c.cols()
    }

    /// The number of terms of each sum: k, the number of columns of A and of rows of B; but none if α is zero, because
    /// then the product does not count, and neither A nor B may be read.
    #[inline(always)]
    pub fn terms(&self) -> u32 {
        self.scale.terms(self.a.cols())
    }

    /// The sum of one element: row `row` of A times column `col` of B, from the first term to the last, by this thread
    /// alone.
    ///
    /// A load takes hundreds of cycles, a multiplication four. Eight terms are loaded before the first of them is
    /// multiplied, so that a thread has sixteen loads under way at a time, which is more than the compiler's own order has.
    ///
    /// # Safety
    /// `row < self.m()` and `col < self.n()`.
    #[inline(always)]
    #[track_caller]
    unsafe fn dot(&self, row: u32, col: u32) -> f32 {
        const BATCH: usize = 8;
        let terms = self.terms();
        let mut sum = 0.0;
        let (mut first, mut batches) = (0, terms / BATCH as u32);
        while batches > 0 {
            // SAFETY: inside A, for a row below m and a term below the number of columns.
            let a: [f32; BATCH] = core::array::from_fn(|i| unsafe { self.a.at(row, first + i as u32) });
            // SAFETY: inside B, likewise.
            let b: [f32; BATCH] = core::array::from_fn(|i| unsafe { self.b.at(first + i as u32, col) });
            for i in 0..BATCH {
                sum = math::fma(a[i], b[i], sum);
            }
            first += BATCH as u32;
            batches = hint::keep_rolled(batches - 1);
        }
        for l in first..terms {
            // SAFETY: as above.
            sum = unsafe { math::fma(self.a.at(row, l), self.b.at(l, col), sum) };
        }
        sum
    }

    /// Completes one element: `C[row, col] = α·sum + β·C[row, col]`. C is not read if β is zero, so that what it held
    /// before, NaN even, does not matter.
    ///
    /// # Safety
    /// `row < self.m()` and `col < self.n()`, and no other thread accesses this element of C.
    #[inline(always)]
    #[track_caller]
    unsafe fn finish(&self, row: u32, col: u32, sum: f32) {
        // SAFETY: inside C, and this thread's alone, by the caller's promise.
        let value = self.scale.combine(self.terms(), sum, || unsafe { self.c.at(row, col) });
        // SAFETY: as above.
        unsafe { self.c.set(row, col, value) }
    }
}
