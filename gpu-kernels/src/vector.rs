//! Vectors in global memory: `data[i · stride]`. The stride is what BLAS calls the increment.

use cuda_std::prelude::*;

use crate::Matrix;

/// A vector that a kernel reads. Invariant: every element lies inside `data`.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Vector<'a> {
    data: GlobalSlice<'a, f32>,
    stride: u64,
    len: u32,
}

/// A vector that a kernel writes, and may read. Invariant: every element lies inside `data`, each in a place of its own.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct VectorMut<'a> {
    data: GlobalSliceMut<'a, f32>,
    stride: u64,
    len: u32,
}

impl<'a> Vector<'a> {
    /// The first column of a matrix, which has one.
    #[inline(always)]
    pub(crate) fn of_column(matrix: Matrix<'a>) -> Self {
        Self { data: matrix.data(), stride: matrix.row_stride(), len: matrix.rows() }
    }

    /// The memory, gaps included.
    #[inline(always)]
    pub fn data(&self) -> GlobalSlice<'a, f32> {
        self.data
    }

    /// The elements between neighbours.
    #[inline(always)]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `index`.
    ///
    /// # Safety
    /// `index < self.len()`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn at(&self, index: u32) -> f32 {
        // SAFETY: in bounds by the invariant.
        unsafe { self.data.get_unchecked((u64::from(index) * self.stride) as usize) }
    }
}

impl<'a> VectorMut<'a> {
    /// The memory, gaps included.
    #[inline(always)]
    pub fn data(&self) -> GlobalSliceMut<'a, f32> {
        self.data
    }

    /// The elements between neighbours.
    #[inline(always)]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `index`.
    ///
    /// # Safety
    /// `index < self.len()`, and no other thread writes the element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn at(&self, index: u32) -> f32 {
        // SAFETY: in bounds by the invariant.
        unsafe { self.data.get_unchecked((u64::from(index) * self.stride) as usize) }
    }

    /// Writes `value` to element `index`.
    ///
    /// # Safety
    /// `index < self.len()`, and no other thread accesses the element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(&self, index: u32, value: f32) {
        // SAFETY: in bounds by the invariant.
        unsafe { self.data.set_unchecked((u64::from(index) * self.stride) as usize, value) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod construct {
    //! The constructors, which only the host calls. A vector is a matrix of one column, so the checks are the matrix's.

    use super::*;
    use crate::{MatrixMut, ShapeError};

    impl<'a> Vector<'a> {
        /// `len` elements in `data`, `stride` apart.
        ///
        /// # Errors
        /// As for [`Matrix::new`], for a matrix of `len` rows and one column.
        pub fn new(data: GlobalSlice<'a, f32>, len: usize, stride: usize) -> Result<Self, ShapeError> {
            let column = Matrix::new(data, len, 1, stride, 1)?;
            Ok(Self { data, stride: stride as u64, len: column.rows() })
        }
    }

    impl<'a> VectorMut<'a> {
        /// `len` elements in `data`, `stride` apart.
        ///
        /// # Errors
        /// As for [`MatrixMut::new`], for a matrix of `len` rows and one column.
        pub fn new(data: GlobalSliceMut<'a, f32>, len: usize, stride: usize) -> Result<Self, ShapeError> {
            let column = MatrixMut::new(data, len, 1, stride, 1)?;
            Ok(Self { data, stride: stride as u64, len: column.rows() })
        }
    }
}
