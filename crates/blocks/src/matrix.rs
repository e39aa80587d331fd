//! Matrices in global memory, in any layout that two strides can describe.
//!
//! ```text
//! element (row, col)  =  data[row · row_stride + col · col_stride]
//!
//! row-major,    leading dimension ld:   row_stride = ld, col_stride = 1
//! column-major, leading dimension ld:   row_stride = 1,  col_stride = ld
//! ```
//!
//! A transposed matrix is the same data with the two strides exchanged, so a kernel that takes these types has all of NN,
//! NT, TN and TT without a word about them: it only has to look at the strides where it chooses which thread loads what.

use cuda_std::prelude::*;

/// A matrix that a kernel reads.
///
/// Invariant, which the constructor establishes and kernels rely on: every element lies inside `data`.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Matrix<'a> {
    data: GlobalSlice<'a, f32>,
    row_stride: u64,
    col_stride: u64,
    rows: u32,
    cols: u32,
}

/// A matrix that a kernel writes, and may read.
///
/// Invariant, which the constructor establishes and kernels rely on: every element lies inside `data`, and no two elements
/// are the same place in memory.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct MatrixMut<'a> {
    data: GlobalSliceMut<'a, f32>,
    row_stride: u64,
    col_stride: u64,
    rows: u32,
    cols: u32,
}

impl<'a> Matrix<'a> {
    /// A `rows`×`cols` matrix in `data`, with its strides in elements: what a kernel has read from memory.
    ///
    /// # Safety
    /// Every element lies inside `data`, and both extents are below 2³¹.
    #[inline(always)]
    pub unsafe fn from_parts(data: GlobalSlice<'a, f32>, [rows, cols]: [u32; 2], strides: [u64; 2]) -> Self {
        let [row_stride, col_stride] = strides;
        Self { data, row_stride, col_stride, rows, cols }
    }

    /// The number of rows.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The number of columns.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// Whether neighbours in a row are neighbours in memory, so that threads with consecutive columns load from
    /// consecutive addresses, which the hardware serves as one access ("coalesced").
    #[inline(always)]
    pub fn is_contiguous_along_rows(&self) -> bool {
        self.col_stride == 1
    }

    /// The element at (`row`, `col`).
    ///
    /// # Safety
    /// `row < self.rows()` and `col < self.cols()`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn at(&self, row: u32, col: u32) -> f32 {
        // SAFETY: in bounds by the invariant, for a row and a column inside the matrix.
        unsafe { self.data.get_unchecked(offset(row, col, self.row_stride, self.col_stride)) }
    }

    /// The element at (`row`, `col`), or zero outside the matrix.
    #[inline(always)]
    #[track_caller]
    pub fn at_or_zero(&self, row: u32, col: u32) -> f32 {
        if row < self.rows && col < self.cols {
            // SAFETY: just compared.
            unsafe { self.at(row, col) }
        } else {
            0.0
        }
    }

    /// Whether neighbours in a column are neighbours in memory.
    #[inline(always)]
    pub fn is_contiguous_along_cols(&self) -> bool {
        self.row_stride == 1
    }

    /// The elements between neighbouring rows.
    #[inline(always)]
    pub fn row_stride(&self) -> u64 {
        self.row_stride
    }

    /// The elements between neighbouring columns.
    #[inline(always)]
    pub fn col_stride(&self) -> u64 {
        self.col_stride
    }

    /// The memory, gaps included.
    #[inline(always)]
    pub fn data(&self) -> GlobalSlice<'a, f32> {
        self.data
    }

    /// Whether lines that are `pitch` elements apart, its rows or its columns, all begin at multiples of 16 bytes, so that vectors of
    /// four elements can be loaded of them.
    #[inline(always)]
    pub fn has_lines_of_vectors(&self, pitch: u64) -> bool {
        pitch.is_multiple_of(4) && (self.data.as_ptr() as u64).is_multiple_of(16)
    }

    /// How many elements before the first one of row `row` of memory the last multiple of 16 bytes is, if rows of memory are `pitch`
    /// elements apart: 0 to 3. Rows whose numbers differ by a multiple of 4 have the same.
    #[inline(always)]
    pub fn shift(&self, pitch: u64, row: u32) -> u32 {
        ((self.data.as_ptr() as u64 / 4) as u32).wrapping_add(row.wrapping_mul(pitch as u32)) % 4
    }

    /// The place of an element in [`Matrix::data`].
    #[inline(always)]
    pub fn offset(&self, row: u32, col: u32) -> usize {
        offset(row, col, self.row_stride, self.col_stride)
    }

    /// The matrix of the same shape whose first element is `distance` elements further on.
    ///
    /// # Safety
    /// All elements of that matrix lie inside the data.
    #[inline(always)]
    pub unsafe fn moved_by(self, distance: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { data: unsafe { self.data.from_unchecked(distance as usize) }, ..self }
    }

    /// The transpose: the same memory, with the strides exchanged.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

impl<'a> MatrixMut<'a> {
    /// A `rows`×`cols` matrix in `data`, with its strides in elements: what a kernel has read from memory.
    ///
    /// # Safety
    /// Every element lies inside `data`, no two are the same place in memory, and both extents are below 2³¹.
    #[inline(always)]
    pub unsafe fn from_parts(data: GlobalSliceMut<'a, f32>, [rows, cols]: [u32; 2], strides: [u64; 2]) -> Self {
        let [row_stride, col_stride] = strides;
        Self { data, row_stride, col_stride, rows, cols }
    }

    /// The number of rows.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The number of columns.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// The element at (`row`, `col`).
    ///
    /// # Safety
    /// `row < self.rows()` and `col < self.cols()`, and no other thread writes the element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn at(&self, row: u32, col: u32) -> f32 {
        // SAFETY: in bounds by the invariant, for a row and a column inside the matrix.
        unsafe { self.data.get_unchecked(offset(row, col, self.row_stride, self.col_stride)) }
    }

    /// Writes `value` to the element at (`row`, `col`).
    ///
    /// # Safety
    /// `row < self.rows()` and `col < self.cols()`, and no other thread accesses the element.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(&self, row: u32, col: u32, value: f32) {
        // SAFETY: in bounds by the invariant, for a row and a column inside the matrix.
        unsafe { self.data.set_unchecked(offset(row, col, self.row_stride, self.col_stride), value) }
    }

    /// Whether neighbours in a row are neighbours in memory.
    #[inline(always)]
    pub fn is_contiguous_along_rows(&self) -> bool {
        self.col_stride == 1
    }

    /// The elements between neighbouring rows.
    #[inline(always)]
    pub fn row_stride(&self) -> u64 {
        self.row_stride
    }

    /// The elements between neighbouring columns.
    #[inline(always)]
    pub fn col_stride(&self) -> u64 {
        self.col_stride
    }

    /// The memory, gaps included.
    #[inline(always)]
    pub fn data(&self) -> GlobalSliceMut<'a, f32> {
        self.data
    }

    /// The place of an element in [`MatrixMut::data`].
    #[inline(always)]
    pub fn offset(&self, row: u32, col: u32) -> usize {
        offset(row, col, self.row_stride, self.col_stride)
    }

    /// The matrix of the same shape whose first element is `distance` elements further on.
    ///
    /// # Safety
    /// All elements of that matrix lie inside the data.
    #[inline(always)]
    pub unsafe fn moved_by(self, distance: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { data: unsafe { self.data.from_unchecked(distance as usize) }, ..self }
    }

    /// The transpose: the same memory, with the strides exchanged.
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// The place of an element in the data. 64 bits: a matrix of 2³¹ elements and more is ordinary.
#[inline(always)]
fn offset(row: u32, col: u32, row_stride: u64, col_stride: u64) -> usize {
    (u64::from(row) * row_stride + u64::from(col) * col_stride) as usize
}

#[cfg(not(target_arch = "nvptx64"))]
mod construct {
    //! The constructors, which only the host calls.

    use super::*;
    use crate::overlap::elements_overlap;

    /// Why operands do not make a matrix, a vector or a product.
    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[non_exhaustive]
    pub enum ShapeError {
        /// A dimension is larger than kernels count.
        #[error("{what} is {extent}, which is more than the largest supported extent, 2147483647 (2^31 - 1)")]
        TooLarge {
            /// Which dimension.
            what: &'static str,
            /// Its extent.
            extent: u64,
        },
        /// The last element lies beyond the end of the data, or its offset does not fit in 64 bits.
        #[error(
            "a {rows} x {cols} matrix with row stride {row_stride} and column stride {col_stride} does not fit in the \
             {len} elements it was given: pass more data or smaller strides"
        )]
        OutOfBounds {
            /// The number of rows.
            rows: u32,
            /// The number of columns.
            cols: u32,
            /// Elements between neighbouring rows.
            row_stride: u64,
            /// Elements between neighbouring columns.
            col_stride: u64,
            /// The number of elements there are.
            len: u64,
        },
        /// Two elements of a matrix that is to be written would be the same place in memory.
        #[error(
            "elements of a {rows} x {cols} output with row stride {row_stride} and column stride {col_stride} are the same \
             place in memory: pass strides that keep them apart"
        )]
        Overlap {
            /// The number of rows.
            rows: u32,
            /// The number of columns.
            cols: u32,
            /// Elements between neighbouring rows.
            row_stride: u64,
            /// Elements between neighbouring columns.
            col_stride: u64,
        },
        /// The last matrix of a batch ends beyond the end of the data.
        #[error(
            "{count} matrices of {span} elements from first to last, each {stride} after the one before, do not fit in the \
             {len} elements they were given: pass more data or a smaller batch stride"
        )]
        BatchOutOfBounds {
            /// The number of matrices.
            count: u64,
            /// Elements between the beginnings of neighbouring matrices.
            stride: u64,
            /// Elements from the first to the last of one matrix.
            span: u64,
            /// The number of elements there are.
            len: u64,
        },
        /// Two elements of a batch of matrices that is to be written would be the same place in memory.
        #[error(
            "elements of {count} outputs of {rows} x {cols} with row stride {row_stride} and column stride {col_stride}, each \
             {stride} after the one before, are the same place in memory: pass strides that keep them apart"
        )]
        BatchOverlap {
            /// The number of matrices.
            count: u64,
            /// The number of rows of each.
            rows: u32,
            /// The number of columns of each.
            cols: u32,
            /// Elements between neighbouring rows.
            row_stride: u64,
            /// Elements between neighbouring columns.
            col_stride: u64,
            /// Elements between the beginnings of neighbouring matrices.
            stride: u64,
        },
        /// A product that takes more blocks than a grid has.
        #[error(
            "{tiles} tiles are more than the blocks of a grid, 2147483647 (2^31 - 1): use fewer splits or smaller batches"
        )]
        TooManyTiles {
            /// The number of tiles of all results and splits.
            tiles: u64,
        },
        /// Operands whose shapes do not make a product.
        #[error("{left} is {left_extent}, but {right} is {right_extent}: they must be equal")]
        Mismatch {
            /// The one extent, in words such as `the number of columns of A`.
            left: &'static str,
            /// Its value.
            left_extent: u32,
            /// The other extent.
            right: &'static str,
            /// Its value.
            right_extent: u32,
        },
    }

    impl ShapeError {
        /// `extent` as kernels count it.
        ///
        /// # Errors
        /// [`ShapeError::TooLarge`] for more than 2³¹ − 1.
        pub fn dimension(what: &'static str, extent: usize) -> Result<u32, Self> {
            match u32::try_from(extent) {
                Ok(small) if small <= i32::MAX as u32 => Ok(small),
                _ => Err(Self::TooLarge { what, extent: extent as u64 }),
            }
        }

        /// Refuses two extents that differ.
        ///
        /// # Errors
        /// [`ShapeError::Mismatch`] if they do.
        pub fn unless_equal(left: (&'static str, u32), right: (&'static str, u32)) -> Result<(), Self> {
            if left.1 == right.1 {
                return Ok(());
            }
            Err(Self::Mismatch { left: left.0, left_extent: left.1, right: right.0, right_extent: right.1 })
        }
    }

    fn check_bounds(rows: u32, cols: u32, row_stride: u64, col_stride: u64, len: u64) -> Result<(), ShapeError> {
        if rows == 0 || cols == 0 {
            return Ok(());
        }
        let along = |extent: u32, stride: u64| u64::from(extent - 1).checked_mul(stride);
        let last = along(rows, row_stride).zip(along(cols, col_stride)).and_then(|(r, c)| r.checked_add(c));
        match last {
            Some(last) if last < len => Ok(()),
            _ => Err(ShapeError::OutOfBounds { rows, cols, row_stride, col_stride, len }),
        }
    }

    impl<'a> Matrix<'a> {
        /// A `rows`×`cols` matrix in `data`, with its strides in elements.
        ///
        /// # Errors
        /// [`ShapeError::TooLarge`] for a dimension of more than 2³¹ − 1, [`ShapeError::OutOfBounds`] if the last element
        /// is not inside `data`. A matrix without elements needs no data.
        pub fn new(
            data: GlobalSlice<'a, f32>,
            rows: usize,
            cols: usize,
            row_stride: usize,
            col_stride: usize,
        ) -> Result<Self, ShapeError> {
            let rows = ShapeError::dimension("the number of rows", rows)?;
            let cols = ShapeError::dimension("the number of columns", cols)?;
            let (row_stride, col_stride) = (row_stride as u64, col_stride as u64);
            check_bounds(rows, cols, row_stride, col_stride, data.len() as u64)?;
            Ok(Self { data, row_stride, col_stride, rows, cols })
        }
    }

    impl<'a> MatrixMut<'a> {
        /// A `rows`×`cols` matrix in `data`, with its strides in elements.
        ///
        /// # Errors
        /// As for [`Matrix::new`], and [`ShapeError::Overlap`] if two elements would be the same place in memory.
        pub fn new(
            data: GlobalSliceMut<'a, f32>,
            rows: usize,
            cols: usize,
            row_stride: usize,
            col_stride: usize,
        ) -> Result<Self, ShapeError> {
            let rows = ShapeError::dimension("the number of rows", rows)?;
            let cols = ShapeError::dimension("the number of columns", cols)?;
            let (row_stride, col_stride) = (row_stride as u64, col_stride as u64);
            check_bounds(rows, cols, row_stride, col_stride, data.len() as u64)?;
            if elements_overlap(&[rows.into(), cols.into()], &[row_stride, col_stride]) {
                return Err(ShapeError::Overlap { rows, cols, row_stride, col_stride });
            }
            Ok(Self { data, row_stride, col_stride, rows, cols })
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use construct::ShapeError;

#[cfg(test)]
mod tests {
    extern crate std;
    use std::format;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_last_element_must_be_inside_the_data() {
        let data = [0.0; 11];
        let view = GlobalSlice::new(&data);
        // 3 x 3 with a leading dimension of 4: the last element is number 2·4 + 2 = 10.
        assert!(Matrix::new(view, 3, 3, 4, 1).is_ok());
        assert!(Matrix::new(view, 3, 3, 1, 4).is_ok());
        assert!(matches!(Matrix::new(view, 3, 4, 4, 1), Err(ShapeError::OutOfBounds { len: 11, .. })));
        assert!(matches!(Matrix::new(view, 2, 2, usize::MAX, 1), Err(ShapeError::OutOfBounds { .. })));
        assert!(matches!(Matrix::new(view, 3, 3, usize::MAX, usize::MAX), Err(ShapeError::OutOfBounds { .. })));
        assert!(Matrix::new(GlobalSlice::new(&[]), 0, 5, 7, 1).is_ok());
        assert!(matches!(Matrix::new(view, 1 << 31, 0, 1, 1), Err(ShapeError::TooLarge { extent: 0x8000_0000, .. })));
    }

    #[test]
    fn an_output_must_not_overlap_itself() {
        let mut data = [0.0; 40];
        let view = GlobalSliceMut::new(&mut data);
        let mut refused = 0;
        for (rows, cols) in (0..5).flat_map(|rows| (0..5).map(move |cols| (rows, cols))) {
            for (row_stride, col_stride) in (0..6).flat_map(|row| (0..6).map(move |col| (row, col))) {
                let mut places: Vec<_> = (0..rows)
                    .flat_map(|row| (0..cols).map(move |col| row * row_stride + col * col_stride))
                    .filter(|&place| place < view.len())
                    .collect();
                if places.len() < rows * cols {
                    continue; // not within the data
                }
                places.sort();
                let distinct = places.windows(2).all(|pair| pair[0] != pair[1]);
                let made = MatrixMut::new(view, rows, cols, row_stride, col_stride);
                let strides = format!("{rows} x {cols}, {row_stride}, {col_stride}");
                assert_eq!(made.is_ok(), distinct, "{strides}");
                if let Err(error) = made {
                    assert!(matches!(error, ShapeError::Overlap { .. }), "{strides}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 50, "{refused}");
    }
}
