//! A product in the words of a column-major BLAS.
//!
//! cuBLAS stores matrices by columns. A matrix stored by rows is, in its eyes, the transpose; and the transpose of a product
//! is the product of the transposes in the other order. So for a C stored by rows the operands change places:
//!
//! ```text
//!  ours, by rows:       C   =  A · B            m×n = m×k · k×n
//!  the same memory,
//!  read by columns:     Cᵀ  =  Bᵀ · Aᵀ          n×m = n×k · k×m        first operand: B, second: A
//! ```

use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use super::BaselineError;

/// A product as a column-major BLAS takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnMajor {
    /// Whether the first operand is B and the second A.
    pub(super) exchanged: bool,
    /// Rows of the stored result.
    pub(super) m: u32,
    /// Columns of the stored result.
    pub(super) n: u32,
    /// Terms of each sum.
    pub(super) k: u32,
    /// The operand on the left.
    pub(super) first: Operand,
    /// The operand on the right.
    pub(super) second: Operand,
    /// The result, which is never transposed.
    pub(super) result: Operand,
    /// The number of products.
    pub(super) count: u32,
}

/// A matrix stored by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// Whether the transpose of what is stored is meant.
    pub(super) transpose: bool,
    /// Rows as stored.
    pub(super) rows: u32,
    /// Columns as stored.
    pub(super) cols: u32,
    /// Elements from one stored column to the next.
    pub(super) leading_dimension: i32,
    /// Elements from one matrix of the batch to the next.
    pub(super) batch_stride: i64,
}

/// Shape and strides of a matrix, or of each of a batch.
#[derive(Clone, Copy, Debug)]
struct Strided {
    name: &'static str,
    rows: u32,
    cols: u32,
    row_stride: u64,
    col_stride: u64,
    batch_stride: u64,
}

impl Strided {
    /// The matrix, or its transpose, as one that is stored by columns, itself or its transpose.
    fn by_columns(self, transposed: bool) -> Result<Operand, BaselineError> {
        let Self { name, rows, cols, row_stride, col_stride, batch_stride } = self;
        // Read by columns, memory with contiguous columns holds the matrix, memory with contiguous rows its transpose.
        let stored = |rows: u32, cols: u32, step: u64, stride: u64, transpose: bool| {
            // The step along a line of one element and the distance to a line that is not there mean nothing.
            let contiguous = step == 1 || rows <= 1;
            let least = u64::from(rows.max(1));
            let leading_dimension = if cols <= 1 { least } else { stride };
            let fits = leading_dimension >= least && leading_dimension <= i32::MAX as u64;
            (contiguous && fits).then_some((rows, cols, leading_dimension as i32, transpose))
        };
        let found = stored(cols, rows, col_stride, row_stride, !transposed)
            .or_else(|| stored(rows, cols, row_stride, col_stride, transposed));
        let (rows, cols, leading_dimension, transpose) =
            found.ok_or(BaselineError::Layout { matrix: name, rows, cols, row_stride, col_stride })?;
        let batch_stride = i64::try_from(batch_stride).map_err(|_| BaselineError::Layout {
            matrix: name,
            rows,
            cols,
            row_stride,
            col_stride,
        })?;
        Ok(Operand { transpose, rows, cols, leading_dimension, batch_stride })
    }
}

impl ColumnMajor {
    /// The words for `C = α·A·B + β·C`.
    ///
    /// # Errors
    /// [`BaselineError::Shape`] unless the shapes make a product of one number of matrices, [`BaselineError::Layout`] for
    /// strides that no BLAS takes: neither rows nor columns contiguous, or closer together than they are long.
    pub(super) fn new(a: &MatrixBatch<'_>, b: &MatrixBatch<'_>, c: &MatrixBatchMut<'_>) -> Result<Self, BaselineError> {
        let read = |name, matrix: Matrix<'_>, batch_stride| Strided {
            name,
            rows: matrix.rows(),
            cols: matrix.cols(),
            row_stride: matrix.row_stride(),
            col_stride: matrix.col_stride(),
            batch_stride,
        };
        let written = |matrix: MatrixMut<'_>, batch_stride| Strided {
            name: "C",
            rows: matrix.rows(),
            cols: matrix.cols(),
            row_stride: matrix.row_stride(),
            col_stride: matrix.col_stride(),
            batch_stride,
        };
        let count = c.count();
        let (a, counts_a) = (read("A", a.first(), a.stride()), a.count());
        let (b, counts_b) = (read("B", b.first(), b.stride()), b.count());
        let c = written(c.first(), c.stride());
        if (a.rows, a.cols, b.cols) != (c.rows, b.rows, c.cols) || (counts_a, counts_b) != (count, count) {
            return Err(BaselineError::Shape {
                a: [counts_a, a.rows, a.cols],
                b: [counts_b, b.rows, b.cols],
                c: [count, c.rows, c.cols],
            });
        }
        // By rows if C can be taken so: its transpose is then stored by columns, as it is.
        let transposed = c.by_columns(true)?;
        if !transposed.transpose {
            let (first, second) = (b.by_columns(true)?, a.by_columns(true)?);
            return Ok(Self {
                exchanged: true,
                m: c.cols,
                n: c.rows,
                k: a.cols,
                first,
                second,
                result: transposed,
                count,
            });
        }
        let (first, second, result) = (a.by_columns(false)?, b.by_columns(false)?, c.by_columns(false)?);
        Ok(Self { exchanged: false, m: c.rows, n: c.cols, k: a.cols, first, second, result, count })
    }

    /// A and B in the order in which the BLAS takes them.
    pub(super) fn in_order<T>(&self, a: T, b: T) -> (T, T) {
        if self.exchanged { (b, a) } else { (a, b) }
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::{GlobalSlice, GlobalSliceMut};

    use super::*;

    const SPACE: usize = 4000;

    /// Words for a 5×7 result with 3 terms, from the strides of A, B and C.
    fn words(a: [usize; 2], b: [usize; 2], c: [usize; 2]) -> Result<ColumnMajor, BaselineError> {
        let (data, mut written) = ([0.0; SPACE], [0.0; SPACE]);
        let a = Matrix::new(GlobalSlice::new(&data), 5, 3, a[0], a[1]).unwrap();
        let b = Matrix::new(GlobalSlice::new(&data), 3, 7, b[0], b[1]).unwrap();
        let c = MatrixMut::new(GlobalSliceMut::new(&mut written), 5, 7, c[0], c[1]).unwrap();
        ColumnMajor::new(&a.into(), &b.into(), &c.into())
    }

    #[test]
    fn operands_of_a_result_by_rows_change_places() {
        let words = words([3, 1], [7, 1], [7, 1]).unwrap();
        let plain = |rows, cols, leading_dimension| Operand {
            transpose: false,
            rows,
            cols,
            leading_dimension,
            batch_stride: 0,
        };
        assert_eq!(
            words,
            ColumnMajor {
                exchanged: true,
                m: 7,
                n: 5,
                k: 3,
                first: plain(7, 3, 7),
                second: plain(3, 5, 3),
                result: plain(7, 5, 7),
                count: 1
            }
        );
        assert_eq!(words.in_order("a", "b"), ("b", "a"));
    }

    #[test]
    fn transposes_and_gaps_are_told() {
        // A stored as 3 rows of 5 in lines of 11, B as 7 rows of 3 in lines of 13, C in lines of 17.
        let words = words([1, 11], [1, 13], [17, 1]).unwrap();
        assert!(words.first.transpose && words.second.transpose && !words.result.transpose);
        let leading = [words.first, words.second, words.result].map(|operand| operand.leading_dimension);
        assert_eq!(leading, [13, 11, 17]);
        assert_eq!((words.first.rows, words.first.cols), (3, 7));
        assert_eq!((words.second.rows, words.second.cols), (5, 3));
    }

    #[test]
    fn a_result_by_columns_is_taken_as_it_stands() {
        let words = words([1, 5], [7, 1], [1, 5]).unwrap();
        assert!(!words.exchanged && !words.first.transpose && words.second.transpose);
        assert_eq!((words.m, words.n, words.in_order("a", "b")), (5, 7, ("a", "b")));
    }

    #[test]
    fn strides_that_no_blas_takes_are_refused_by_name() {
        let refused = |a, b, c| words(a, b, c).unwrap_err().to_string();
        assert!(refused([6, 2], [7, 1], [7, 1]).starts_with("cuBLAS cannot take A"));
        assert!(refused([3, 1], [0, 1], [7, 1]).starts_with("cuBLAS cannot take B"));
        assert!(refused([3, 1], [7, 1], [14, 2]).starts_with("cuBLAS cannot take C"));
    }

    #[test]
    fn shapes_that_make_no_product_are_refused() {
        let (data, mut written) = ([0.0; SPACE], [0.0; SPACE]);
        let matrix = |rows, cols| Matrix::new(GlobalSlice::new(&data), rows, cols, cols, 1).unwrap();
        let c = MatrixMut::new(GlobalSliceMut::new(&mut written), 5, 7, 7, 1).unwrap();
        let refused = ColumnMajor::new(&matrix(5, 3).into(), &matrix(4, 7).into(), &c.into()).unwrap_err();
        assert!(matches!(refused, BaselineError::Shape { .. }), "{refused}");
        let two = MatrixBatch::new(matrix(5, 3), 15, 2).unwrap();
        assert!(ColumnMajor::new(&two, &matrix(3, 7).into(), &c.into()).is_err(), "two times one is one");
    }

    #[test]
    fn a_single_row_or_column_has_whatever_distance_to_the_next() {
        let (data, mut written) = ([0.0; SPACE], [0.0; SPACE]);
        let a = Matrix::new(GlobalSlice::new(&data), 5, 3, 3, 1).unwrap();
        let x = Matrix::new(GlobalSlice::new(&data), 3, 1, 1, 0).unwrap();
        let y = MatrixMut::new(GlobalSliceMut::new(&mut written), 5, 1, 1, 1).unwrap();
        let words = ColumnMajor::new(&a.into(), &x.into(), &y.into()).unwrap();
        assert!(words.exchanged && words.first.leading_dimension >= 1 && words.result.leading_dimension >= 1);
    }
}
