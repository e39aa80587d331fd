//! The constructors, which only the host calls.

use super::*;
use crate::overlap::elements_overlap;

/// Why operands do not make a matrix, a vector or a product.
///
/// ```
/// # use blocks::matrix::*;
/// # use cuda_std::GlobalSlice;
/// let error = Matrix::new(GlobalSlice::new(&[0.0; 11]), 3, 4, 4, 1).err().unwrap();
/// assert!(matches!(error, ShapeError::OutOfBounds { rows: 3, cols: 4, len: 11, .. }));
/// assert!(error.to_string().ends_with("in the 11 elements it was given: pass more data or smaller strides"));
/// ```
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
    /// ```
    /// # use blocks::matrix::ShapeError;
    /// assert_eq!(ShapeError::dimension("the number of rows", 7), Ok(7));
    /// let error = ShapeError::dimension("the number of rows", 1 << 31).unwrap_err();
    /// assert_eq!(error, ShapeError::TooLarge { what: "the number of rows", extent: 1 << 31 });
    /// ```
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
    /// ```
    /// # use blocks::matrix::ShapeError;
    /// let of_a = ("the number of columns of A", 3);
    /// assert_eq!(ShapeError::unless_equal(of_a, ("the number of rows of B", 3)), Ok(()));
    /// let error = ShapeError::unless_equal(of_a, ("the number of rows of B", 4)).unwrap_err();
    /// assert_eq!(error.to_string(), "the number of columns of A is 3, but the number of rows of B is 4: they must be equal");
    /// ```
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
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// let data = GlobalSlice::new(&[0.0; 11]);
    /// // Rows of 3 elements, 4 apart: the last element is number 10. A fourth column is not there.
    /// assert!(Matrix::new(data, 3, 3, 4, 1).is_ok());
    /// assert!(matches!(Matrix::new(data, 3, 4, 4, 1), Err(ShapeError::OutOfBounds { .. })));
    /// // One row, as often as there are rows.
    /// assert!(Matrix::new(data, 1000, 11, 0, 1).is_ok());
    /// ```
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
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// let mut data = [0.0; 11];
    /// let data = GlobalSliceMut::new(&mut data);
    /// assert!(MatrixMut::new(data, 3, 3, 4, 1).is_ok());
    /// // Rows that begin 2 elements apart, and have 3: which one would the third be?
    /// assert!(matches!(MatrixMut::new(data, 3, 3, 2, 1), Err(ShapeError::Overlap { .. })));
    /// ```
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
