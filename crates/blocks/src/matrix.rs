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

#[cfg(not(target_arch = "nvptx64"))]
mod construct;

#[cfg(not(target_arch = "nvptx64"))]
pub use construct::ShapeError;

use cuda_std::prelude::*;

/// A matrix that a kernel reads.
///
/// Invariant, which the constructor establishes and kernels rely on: every element lies inside `data`.
///
/// ```
/// use blocks::matrix::{Matrix, MatrixMut};
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// A copy in whatever layout: a thread for each of at most 8×8 elements.
/// #[kernel(block = (8, 8), requires(a.rows() == c.rows(), a.cols() == c.cols(), a.rows() <= 8, a.cols() <= 8))]
/// fn copy(a: Matrix<'_>, c: MatrixMut<'_>) {
///     let (row, col) = (thread::thread_idx_y(), thread::thread_idx_x());
///     if row < c.rows() && col < c.cols() {
///         // SAFETY: inside of both, and no other thread has the element.
///         unsafe { c.set(row, col, a.at(row, col)) }
///     }
/// }
///
/// let (x, mut y) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0; 6]);
/// let a = Matrix::new(GlobalSlice::new(&x), 2, 3, 3, 1)?; // row-major
/// let c = MatrixMut::new(GlobalSliceMut::new(&mut y), 2, 3, 1, 2)?; // column-major
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(copy { a, c }, Dim3::from(1)) }?;
/// assert_eq!(y, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use blocks::matrix::*;
/// # use cuda_std::{examples::run_over, prelude::*};
/// // The diagonal of a matrix with rows of 3 elements in memory, of which it has 2.
/// let mut data = [1.0, 2.0, 3.0, 4.0, 5.0];
/// run_over(2, &mut data, |data: GlobalSliceMut<'_, f32>| {
///     let (c, i) = (MatrixMut::new(data, 2, 2, 3, 1).unwrap(), thread::thread_idx_x());
///     // SAFETY: both are below 2, and each thread has an element of its own.
///     unsafe { c.set(i, i, -c.at(i, i)) }
/// });
/// assert_eq!(data, [-1.0, 2.0, 3.0, 4.0, -5.0]);
/// ```
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
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// let elements = run_over(1, &mut [1.0, 2.0, 3.0, 4.0], |data: GlobalSlice<'_, f32>| {
    ///     // Such as what a table in memory says of one product of many.
    ///     let (extents, strides) = ([2, 2], [1, 2]);
    ///     // SAFETY: four elements, all inside of the data.
    ///     unsafe { Matrix::from_parts(data, extents, strides).at(0, 1) }
    /// });
    /// assert_eq!(elements, [3.0]);
    /// ```
    ///
    /// # Safety
    /// Every element lies inside `data`, and both extents are below 2³¹.
    #[inline(always)]
    pub unsafe fn from_parts(data: GlobalSlice<'a, f32>, [rows, cols]: [u32; 2], strides: [u64; 2]) -> Self {
        let [row_stride, col_stride] = strides;
        Self { data, row_stride, col_stride, rows, cols }
    }

    /// The number of rows.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// assert_eq!(Matrix::new(GlobalSlice::new(&[0.0; 6]), 2, 3, 3, 1)?.rows(), 2);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The number of columns.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// assert_eq!(Matrix::new(GlobalSlice::new(&[0.0; 6]), 2, 3, 3, 1)?.cols(), 3);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// Whether neighbours in a row are neighbours in memory, so that threads with consecutive columns load from
    /// consecutive addresses, which the hardware serves as one access ("coalesced").
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// let a = Matrix::new(GlobalSlice::new(&[0.0; 12]), 3, 4, 4, 1)?;
    /// // Neighbouring threads should have neighbouring columns of A, and of its transpose neighbouring rows.
    /// assert!(a.is_contiguous_along_rows() && !a.transposed().is_contiguous_along_rows());
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn is_contiguous_along_rows(&self) -> bool {
        self.col_stride == 1
    }

    /// The element at (`row`, `col`).
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// let elements = run_over(3, &mut [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], |data: GlobalSlice<'_, f32>| {
    ///     let a = Matrix::new(data, 2, 3, 3, 1).unwrap();
    ///     // SAFETY: there are two rows, and a thread for each of the three columns.
    ///     unsafe { a.at(1, thread::thread_idx_x()) }
    /// });
    /// assert_eq!(elements, [4.0, 5.0, 6.0]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // A tile of 2×4 at the edge of a matrix of 2×3.
    /// let tile = run_over((4, 2), &mut [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], |data: GlobalSlice<'_, f32>| {
    ///     let a = Matrix::new(data, 2, 3, 3, 1).unwrap();
    ///     a.at_or_zero(thread::thread_idx_y(), thread::thread_idx_x())
    /// });
    /// assert_eq!(tile, [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// // Every second element of a row: contiguous along nothing. A column-major matrix of as many.
    /// let of_strides = |row, col| Matrix::new(GlobalSlice::new(&[0.0; 24]), 3, 4, row, col).map(|a| a.is_contiguous_along_cols());
    /// assert_eq!([of_strides(8, 2)?, of_strides(1, 3)?], [false, true]);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn is_contiguous_along_cols(&self) -> bool {
        self.row_stride == 1
    }

    /// The elements between neighbouring rows.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// // Row-major, with a leading dimension of 5.
    /// assert_eq!(Matrix::new(GlobalSlice::new(&[0.0; 15]), 3, 4, 5, 1)?.row_stride(), 5);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn row_stride(&self) -> u64 {
        self.row_stride
    }

    /// The elements between neighbouring columns.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// // Column-major, with a leading dimension of 5.
    /// assert_eq!(Matrix::new(GlobalSlice::new(&[0.0; 20]), 3, 4, 1, 5)?.col_stride(), 5);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn col_stride(&self) -> u64 {
        self.col_stride
    }

    /// The memory, gaps included.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // What a kernel loads four at a time, it loads of the memory.
    /// let mut memory = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    /// let loaded = run_over(1, &mut memory, |data: GlobalSlice<'_, f32>| {
    ///     let a = Matrix::new(data, 2, 3, 4, 1).unwrap();
    ///     // SAFETY: four elements, of which the last one is between two rows; the memory is aligned to 16 bytes.
    ///     (a.data().len(), unsafe { a.data().get4_unchecked(a.offset(0, 0)) })
    /// });
    /// assert_eq!(loaded, [(7, [1.0, 2.0, 3.0, 4.0])]);
    /// ```
    #[inline(always)]
    pub fn data(&self) -> GlobalSlice<'a, f32> {
        self.data
    }

    /// Whether lines that are `pitch` elements apart, its rows or its columns, all begin at multiples of 16 bytes, so that vectors of
    /// four elements can be loaded of them.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// #[repr(align(16))]
    /// struct Aligned([f32; 32]);
    ///
    /// let memory = Aligned([0.0; 32]);
    /// let (a, second) = (GlobalSlice::new(&memory.0), GlobalSlice::new(&memory.0[1..]));
    /// // Rows of 8 elements, rows of 7, and rows of 8 that begin at the second element.
    /// let has = |data, pitch: usize| Matrix::new(data, 3, 5, pitch, 1).map(|a| a.has_lines_of_vectors(a.row_stride()));
    /// assert_eq!([has(a, 8)?, has(a, 7)?, has(second, 8)?], [true, false, false]);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn has_lines_of_vectors(&self, pitch: u64) -> bool {
        pitch.is_multiple_of(4) && (self.data.as_ptr() as u64).is_multiple_of(16)
    }

    /// How many elements before the first one of row `row` of memory the last multiple of 16 bytes is, if rows of memory are `pitch`
    /// elements apart: 0 to 3. Rows whose numbers differ by a multiple of 4 have the same.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// #[repr(align(16))]
    /// struct Aligned([f32; 32]);
    ///
    /// // Rows of 6 elements that begin at the second element of the memory: at element 1, 7, 13, …
    /// let memory = Aligned([0.0; 32]);
    /// let a = Matrix::new(GlobalSlice::new(&memory.0[1..]), 5, 6, 6, 1)?;
    /// assert_eq!([0, 1, 2, 3, 4].map(|row| a.shift(a.row_stride(), row)), [1, 3, 1, 3, 1]);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn shift(&self, pitch: u64, row: u32) -> u32 {
        ((self.data.as_ptr() as u64 / 4) as u32).wrapping_add(row.wrapping_mul(pitch as u32)) % 4
    }

    /// The place of an element in [`Matrix::data`].
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSlice;
    /// let a = Matrix::new(GlobalSlice::new(&[0.0; 15]), 3, 4, 5, 1)?;
    /// assert_eq!((a.offset(2, 3), a.transposed().offset(3, 2)), (13, 13));
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn offset(&self, row: u32, col: u32) -> usize {
        offset(row, col, self.row_stride, self.col_stride)
    }

    /// The matrix of the same shape whose first element is `distance` elements further on.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // The second matrix of a batch.
    /// let elements = run_over(1, &mut [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], |data: GlobalSlice<'_, f32>| {
    ///     let first = Matrix::new(data, 2, 2, 2, 1).unwrap();
    ///     // SAFETY: eight elements are two matrices, and (1, 0) is an element.
    ///     unsafe { first.moved_by(4).at(1, 0) }
    /// });
    /// assert_eq!(elements, [7.0]);
    /// ```
    ///
    /// # Safety
    /// All elements of that matrix lie inside the data.
    #[inline(always)]
    pub unsafe fn moved_by(self, distance: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { data: unsafe { self.data.from_unchecked(distance as usize) }, ..self }
    }

    /// The transpose: the same memory, with the strides exchanged.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // `B = Aᵀ` is no work: a kernel of A·B has A·Bᵀ, too.
    /// let elements = run_over(1, &mut [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], |data: GlobalSlice<'_, f32>| {
    ///     let b = Matrix::new(data, 2, 3, 3, 1).unwrap().transposed();
    ///     (b.rows(), b.cols(), b.at_or_zero(2, 0))
    /// });
    /// assert_eq!(elements, [(3, 2, 3.0)]);
    /// ```
    #[inline(always)]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

impl<'a> MatrixMut<'a> {
    /// A `rows`×`cols` matrix in `data`, with its strides in elements: what a kernel has read from memory.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// let mut data = [0.0; 4];
    /// run_over(1, &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     // Such as what a table in memory says of one product of many.
    ///     let (extents, strides) = ([2, 2], [1, 2]);
    ///     // SAFETY: four elements, all inside of the data and apart; there is one thread.
    ///     unsafe { MatrixMut::from_parts(data, extents, strides).set(0, 1, 5.0) }
    /// });
    /// assert_eq!(data, [0.0, 0.0, 5.0, 0.0]);
    /// ```
    ///
    /// # Safety
    /// Every element lies inside `data`, no two are the same place in memory, and both extents are below 2³¹.
    #[inline(always)]
    pub unsafe fn from_parts(data: GlobalSliceMut<'a, f32>, [rows, cols]: [u32; 2], strides: [u64; 2]) -> Self {
        let [row_stride, col_stride] = strides;
        Self { data, row_stride, col_stride, rows, cols }
    }

    /// The number of rows.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// assert_eq!(MatrixMut::new(GlobalSliceMut::new(&mut [0.0; 6]), 2, 3, 3, 1)?.rows(), 2);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The number of columns.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// assert_eq!(MatrixMut::new(GlobalSliceMut::new(&mut [0.0; 6]), 2, 3, 3, 1)?.cols(), 3);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// The element at (`row`, `col`).
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // `C = 2·C + 1`, which reads the old element.
    /// let mut data = [1.0, 2.0, 3.0, 4.0];
    /// run_over((2, 2), &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let c = MatrixMut::new(data, 2, 2, 1, 2).unwrap();
    ///     let (row, col) = (thread::thread_idx_y(), thread::thread_idx_x());
    ///     // SAFETY: both are below 2, and each element has one thread.
    ///     unsafe { c.set(row, col, 2.0 * c.at(row, col) + 1.0) }
    /// });
    /// assert_eq!(data, [3.0, 5.0, 7.0, 9.0]);
    /// ```
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
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // A column-major C: a thread for each element, which writes its number.
    /// let mut data = [0.0; 6];
    /// run_over((3, 2), &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let c = MatrixMut::new(data, 2, 3, 1, 2).unwrap();
    ///     // SAFETY: there are as many threads as columns and rows.
    ///     unsafe { c.set(thread::thread_idx_y(), thread::thread_idx_x(), thread::index() as f32) }
    /// });
    /// assert_eq!(data, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// let mut data = [0.0; 12];
    /// let c = MatrixMut::new(GlobalSliceMut::new(&mut data), 3, 4, 1, 3)?;
    /// // A kernel that stores along rows would rather compute the transpose.
    /// assert!(!c.is_contiguous_along_rows() && c.transposed().is_contiguous_along_rows());
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn is_contiguous_along_rows(&self) -> bool {
        self.col_stride == 1
    }

    /// The elements between neighbouring rows.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// // Row-major, with a leading dimension of 5.
    /// assert_eq!(MatrixMut::new(GlobalSliceMut::new(&mut [0.0; 15]), 3, 4, 5, 1)?.row_stride(), 5);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn row_stride(&self) -> u64 {
        self.row_stride
    }

    /// The elements between neighbouring columns.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// // Column-major, with a leading dimension of 5.
    /// assert_eq!(MatrixMut::new(GlobalSliceMut::new(&mut [0.0; 20]), 3, 4, 1, 5)?.col_stride(), 5);
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn col_stride(&self) -> u64 {
        self.col_stride
    }

    /// The memory, gaps included.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // What a kernel stores four at a time, it stores to the memory.
    /// let mut memory = vec![0.0; 8];
    /// run_over(2, &mut memory, |data: GlobalSliceMut<'_, f32>| {
    ///     let (c, row) = (MatrixMut::new(data, 2, 4, 4, 1).unwrap(), thread::thread_idx_x());
    ///     // SAFETY: a row of four elements, which has one thread; the memory is aligned to 16 bytes.
    ///     unsafe { c.data().set4_unchecked(c.offset(row, 0), [row as f32, 1.0, 2.0, 3.0]) }
    /// });
    /// assert_eq!(memory, [0.0, 1.0, 2.0, 3.0, 1.0, 1.0, 2.0, 3.0]);
    /// ```
    #[inline(always)]
    pub fn data(&self) -> GlobalSliceMut<'a, f32> {
        self.data
    }

    /// The place of an element in [`MatrixMut::data`].
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::GlobalSliceMut;
    /// let mut data = [0.0; 15];
    /// let c = MatrixMut::new(GlobalSliceMut::new(&mut data), 3, 4, 5, 1)?;
    /// assert_eq!((c.offset(2, 3), c.transposed().offset(3, 2)), (13, 13));
    /// # Ok::<(), ShapeError>(())
    /// ```
    #[inline(always)]
    pub fn offset(&self, row: u32, col: u32) -> usize {
        offset(row, col, self.row_stride, self.col_stride)
    }

    /// The matrix of the same shape whose first element is `distance` elements further on.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // A block for each matrix of a batch.
    /// let mut data = [0.0; 8];
    /// run_over(2, &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let (first, number) = (MatrixMut::new(data, 2, 2, 2, 1).unwrap(), thread::thread_idx_x());
    ///     // SAFETY: eight elements are two matrices, each with a thread of its own, and (1, 0) is an element.
    ///     unsafe { first.moved_by(4 * u64::from(number)).set(1, 0, 5.0 + number as f32) }
    /// });
    /// assert_eq!(data, [0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 6.0, 0.0]);
    /// ```
    ///
    /// # Safety
    /// All elements of that matrix lie inside the data.
    #[inline(always)]
    pub unsafe fn moved_by(self, distance: u64) -> Self {
        // SAFETY: the caller's promise.
        Self { data: unsafe { self.data.from_unchecked(distance as usize) }, ..self }
    }

    /// The transpose: the same memory, with the strides exchanged.
    ///
    /// ```
    /// # use blocks::matrix::*;
    /// # use cuda_std::{examples::run_over, prelude::*};
    /// // `Cᵀ = Bᵀ·Aᵀ`: whoever computes the transpose of C writes to C.
    /// let mut data = [0.0; 6];
    /// run_over(1, &mut data, |data: GlobalSliceMut<'_, f32>| {
    ///     let c = MatrixMut::new(data, 2, 3, 3, 1).unwrap().transposed();
    ///     // SAFETY: there are 3 rows and 2 columns, and one thread.
    ///     unsafe { c.set(2, 1, 7.0) }
    /// });
    /// assert_eq!(data, [0.0, 0.0, 0.0, 0.0, 0.0, 7.0]);
    /// ```
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
