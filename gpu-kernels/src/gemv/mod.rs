//! Matrix–vector products, `y = α·A·x + β·y`: every element of A is used once, so the time is that of reading A.

pub mod block_reduction;

use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::ShapeError;
use crate::scale::Scale;
use crate::{Matrix, Vector, VectorMut};

/// A matrix–vector product to compute: what every kernel of this module takes.
///
/// Invariant, which the constructor establishes and kernels rely on: A is m×k, x has k elements and y has m.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Gemv<'a> {
    a: Matrix<'a>,
    x: Vector<'a>,
    y: VectorMut<'a>,
    scale: Scale,
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
        Ok(Self { a, x, y, scale: Scale { alpha, beta } })
    }

    /// The number of rows of A and of elements of y.
    #[inline(always)]
    pub fn m(&self) -> u32 {
        self.y.len()
    }

    /// The number of terms of each sum: k, the number of columns of A; but none if α is zero, because then neither A nor x
    /// may be read.
    #[inline(always)]
    pub fn terms(&self) -> u32 {
        self.scale.terms(self.a.cols())
    }

    /// Completes one element: `y[row] = α·sum + β·y[row]`. y is not read if β is zero.
    ///
    /// # Safety
    /// `row < self.m()`, and no other thread accesses this element of y.
    #[inline(always)]
    #[track_caller]
    unsafe fn finish(&self, row: u32, sum: f32) {
        // SAFETY: inside y, and this thread's alone, by the caller's promise.
        let value = self.scale.combine(self.terms(), sum, || unsafe { self.y.at(row) });
        // SAFETY: as above.
        unsafe { self.y.set(row, value) }
    }
}
