//! Batches: matrices of one shape and layout, each the same distance from the one before.
//!
//! ```text
//! matrix i, element (row, col)  =  data[i · stride + row · row_stride + col · col_stride]
//! ```
//!
//! This is what cuBLAS calls a strided batch. One matrix alone is a batch of one. An operand that all products share is a
//! batch with stride 0.

use cuda_std::prelude::*;

use crate::{Matrix, MatrixMut};

/// Matrices that a kernel reads.
///
/// Invariant, which the constructors establish and kernels rely on: every element of every matrix lies inside the data.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct MatrixBatch<'a> {
    first: Matrix<'a>,
    stride: u64,
    count: u64,
}

/// Matrices that a kernel writes, and may read.
///
/// Invariant, which the constructors establish and kernels rely on: every element of every matrix lies inside the data,
/// and no two elements are the same place in memory.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct MatrixBatchMut<'a> {
    first: MatrixMut<'a>,
    stride: u64,
    count: u64,
}

impl<'a> MatrixBatch<'a> {
    /// A batch of one.
    #[inline(always)]
    pub fn of_one(first: Matrix<'a>) -> Self {
        Self { first, stride: 0, count: 1 }
    }

    /// The number of matrices.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// The one matrix of a batch of one, for each of `count` products; any other batch as it is.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn for_all(self, count: u32) -> Self {
        if self.count == 1 { Self { stride: 0, count: count.into(), ..self } } else { self }
    }

    /// How many of them differ: one where all are the same, with a stride of 0.
    #[inline(always)]
    pub fn distinct(&self) -> u32 {
        if self.stride == 0 { self.count().min(1) } else { self.count() }
    }

    /// Which of the [distinct](MatrixBatch::distinct) ones matrix `index` is.
    #[inline(always)]
    pub fn number_of(&self, index: u32) -> u32 {
        if self.stride == 0 { 0 } else { index }
    }

    /// The elements between the beginnings of neighbouring matrices.
    #[inline(always)]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The first matrix, whose shape and layout are those of all.
    #[inline(always)]
    pub fn first(&self) -> Matrix<'a> {
        self.first
    }

    /// The transposes: the same memory, with the strides of rows and of columns exchanged.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { first: self.first.transposed(), ..self }
    }

    /// As many matrices again, which follow these.
    ///
    /// # Safety
    /// They lie inside the data, too: [`MatrixBatch::is_followed_by_as_many`].
    #[inline(always)]
    pub unsafe fn following(&self) -> Self {
        // SAFETY: the caller's promise.
        Self { first: unsafe { self.first.moved_by(self.count * self.stride) }, ..*self }
    }

    /// Matrix `index`.
    ///
    /// # Safety
    /// `index < self.count()`.
    #[inline(always)]
    pub unsafe fn at(&self, index: u32) -> Matrix<'a> {
        // SAFETY: inside the data by the invariant.
        unsafe { self.first.moved_by(u64::from(index) * self.stride) }
    }
}

impl<'a> MatrixBatchMut<'a> {
    /// The number of matrices.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// The elements between the beginnings of neighbouring matrices.
    #[inline(always)]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The first matrix, whose shape and layout are those of all.
    #[inline(always)]
    pub fn first(&self) -> MatrixMut<'a> {
        self.first
    }

    /// The transposes: the same memory, with the strides of rows and of columns exchanged.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { first: self.first.transposed(), ..self }
    }

    /// As many matrices again, which follow these.
    ///
    /// # Safety
    /// They lie inside the data, too: [`MatrixBatchMut::is_followed_by_as_many`].
    #[inline(always)]
    pub unsafe fn following(&self) -> Self {
        // SAFETY: the caller's promise.
        Self { first: unsafe { self.first.moved_by(self.count * self.stride) }, ..*self }
    }

    /// Matrix `index`.
    ///
    /// # Safety
    /// `index < self.count()`.
    #[inline(always)]
    pub unsafe fn at(&self, index: u32) -> MatrixMut<'a> {
        // SAFETY: inside the data by the invariant.
        unsafe { self.first.moved_by(u64::from(index) * self.stride) }
    }
}

/// Whether `count` matrices lie without gaps: rows one after the other, or columns, and matrices one after the other.
#[cfg(not(target_arch = "nvptx64"))]
pub fn are_without_gaps([rows, cols]: [u64; 2], [row_stride, col_stride]: [u64; 2], stride: u64, count: u64) -> bool {
    let one_after_the_other =
        |lines: u64, line: u64, terms: u64, term: u64| (lines <= 1 || line == terms) && (terms <= 1 || term == 1);
    let are_lines = one_after_the_other(rows, row_stride, cols, col_stride)
        || one_after_the_other(cols, col_stride, rows, row_stride);
    are_lines && (count <= 1 || Some(stride) == rows.checked_mul(cols))
}

#[cfg(not(target_arch = "nvptx64"))]
mod construct {
    //! The constructors, which only the host calls.

    use super::*;
    use crate::{ShapeError, elements_overlap};

    /// The elements from the first to the last of a matrix, both included; none for a matrix without elements. It fits: a
    /// matrix that exists lies inside its data.
    fn span(rows: u32, cols: u32, row_stride: u64, col_stride: u64) -> u64 {
        if rows == 0 || cols == 0 {
            return 0;
        }
        u64::from(rows - 1) * row_stride + u64::from(cols - 1) * col_stride + 1
    }

    /// Checks that `count` pieces of `span` elements, each `stride` from the one before, end within `len` elements.
    fn check(span: u64, stride: usize, count: usize, len: usize) -> Result<u64, ShapeError> {
        let number = u64::from(ShapeError::dimension("the number of matrices in a batch", count)?);
        let end = (number.saturating_sub(1)).checked_mul(stride as u64).and_then(|last| last.checked_add(span));
        if number > 0 && span > 0 && end.is_none_or(|end| end > len as u64) {
            return Err(ShapeError::BatchOutOfBounds { count: number, stride: stride as u64, span, len: len as u64 });
        }
        Ok(number)
    }

    impl<'a> MatrixBatch<'a> {
        /// `count` matrices like `first`, each `stride` elements after the one before, in the same data.
        ///
        /// # Errors
        /// [`ShapeError::TooLarge`] for more than 2³¹ − 1 matrices, [`ShapeError::BatchOutOfBounds`] if the last one is not
        /// inside the data.
        pub fn new(first: Matrix<'a>, stride: usize, count: usize) -> Result<Self, ShapeError> {
            let span = span(first.rows(), first.cols(), first.row_stride(), first.col_stride());
            let count = check(span, stride, count, first.data().len())?;
            Ok(Self { first, stride: stride as u64, count })
        }
    }

    impl<'a> MatrixBatchMut<'a> {
        /// `count` matrices like `first`, each `stride` elements after the one before, in the same data.
        ///
        /// # Errors
        /// As for [`MatrixBatch::new`], and [`ShapeError::BatchOverlap`] if two elements would be the same place in memory.
        /// Matrices may lie between the rows of others.
        pub fn new(first: MatrixMut<'a>, stride: usize, count: usize) -> Result<Self, ShapeError> {
            let (rows, cols) = (first.rows(), first.cols());
            let (row_stride, col_stride) = (first.row_stride(), first.col_stride());
            let count = check(span(rows, cols, row_stride, col_stride), stride, count, first.data().len())?;
            let stride = stride as u64;
            if elements_overlap(&[count, rows.into(), cols.into()], &[stride, row_stride, col_stride]) {
                return Err(ShapeError::BatchOverlap { count, rows, cols, row_stride, col_stride, stride });
            }
            Ok(Self { first, stride, count })
        }
    }

    impl MatrixBatch<'_> {
        /// Whether all elements of all matrices are neighbours in memory, row by row or column by column.
        pub fn is_without_gaps(&self) -> bool {
            let it = self.first;
            let strides = [it.row_stride(), it.col_stride()];
            are_without_gaps([it.rows(), it.cols()].map(u64::from), strides, self.stride, self.count)
        }

        /// Whether as many matrices follow in the data, the first of them one stride after the last of these.
        pub fn is_followed_by_as_many(&self) -> bool {
            Self::new(self.first, self.stride as usize, 2 * self.count as usize).is_ok()
        }
    }

    impl MatrixBatchMut<'_> {
        /// As for [`MatrixBatch::is_without_gaps`].
        pub fn is_without_gaps(&self) -> bool {
            let it = self.first;
            let strides = [it.row_stride(), it.col_stride()];
            are_without_gaps([it.rows(), it.cols()].map(u64::from), strides, self.stride, self.count)
        }

        /// As for [`MatrixBatch::is_followed_by_as_many`], and no two elements are the same place.
        pub fn is_followed_by_as_many(&self) -> bool {
            Self::new(self.first, self.stride as usize, 2 * self.count as usize).is_ok()
        }
    }

    impl<'a> From<Matrix<'a>> for MatrixBatch<'a> {
        /// A batch of one.
        fn from(first: Matrix<'a>) -> Self {
            Self::of_one(first)
        }
    }

    impl<'a> From<MatrixMut<'a>> for MatrixBatchMut<'a> {
        /// A batch of one.
        fn from(first: MatrixMut<'a>) -> Self {
            Self { first, stride: 0, count: 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ShapeError;

    #[test]
    fn a_batch_lies_inside_its_data() {
        let data = [0.0; 100];
        let matrix = Matrix::new(GlobalSlice::new(&data), 3, 4, 10, 1).unwrap(); // 24 elements from first to last
        for (stride, count, fits) in
            [(24, 4, true), (25, 4, true), (26, 4, false), (0, 1 << 20, true), (76, 2, true), (77, 2, false)]
        {
            assert_eq!(MatrixBatch::new(matrix, stride, count).is_ok(), fits, "{stride}, {count}");
        }
        assert!(matches!(MatrixBatch::new(matrix, 1, 1 << 31), Err(ShapeError::TooLarge { .. })));
        assert!(matches!(MatrixBatch::new(matrix, usize::MAX, 3), Err(ShapeError::BatchOutOfBounds { .. })));
        let nothing = Matrix::new(GlobalSlice::new(&data), 0, 4, 10, 1).unwrap();
        assert_eq!(MatrixBatch::new(nothing, usize::MAX, 5).unwrap().count(), 5);
        assert_eq!(MatrixBatch::new(matrix, 5, 0).unwrap().count(), 0);
    }

    #[test]
    fn matrices_that_are_written_do_not_overlap() {
        let mut data = [0.0; 100];
        let matrix = MatrixMut::new(GlobalSliceMut::new(&mut data), 3, 4, 10, 1).unwrap();
        assert!(MatrixBatchMut::new(matrix, 24, 4).is_ok());
        // Rows of 4 elements every 10: another matrix has room between them, and a third one has not.
        for (stride, count, is_apart) in
            [(0, 1, true), (0, 2, false), (3, 2, false), (4, 2, true), (4, 3, false), (5, 2, true), (7, 2, false)]
        {
            let made = MatrixBatchMut::new(matrix, stride, count);
            assert_eq!(made.is_ok(), is_apart, "{stride}, {count}");
            assert!(matches!(made, Ok(_) | Err(ShapeError::BatchOverlap { .. })), "{stride}, {count}");
        }
        assert!(MatrixBatchMut::new(matrix, 23, 4).is_err(), "row 2 of each, and row 0 of the next but one");
    }
}
