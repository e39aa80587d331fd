//! A matrix in memory, with guard words before and after it.

use std::fmt;
use std::ops::Range;

use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::{Matrix, MatrixMut, ShapeError, Vector, VectorMut};
use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::Order;

/// What stands in memory where there is no element: in the gaps between rows, and before and after the matrix. It is a
/// NaN, so that a result into which it was read is wrong, and an unusual one, so that a write to its place shows. And a
/// signalling one: whatever is computed with it is quiet, and thus another, so that not even a result into which it was
/// read can take its place unseen.
pub const SENTINEL: f32 = f32::from_bits(0x7F80_DEAD);

/// The guard words on either side: 256 bytes, so that what is between them is aligned as it would be alone.
pub(crate) const GUARD: usize = 64;

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Row-major or column-major.
    pub order: Order,
    /// The elements from one neighbour to the next, at least 1.
    pub step: usize,
    /// The elements by which the leading dimension is larger than it has to be.
    pub padding: usize,
    /// The elements from a multiple of 256 bytes of memory to the first one.
    pub offset: usize,
}

impl Layout {
    /// Row-major, without gaps.
    pub const ROWS: Self = Self { order: Order::RowMajor, step: 1, padding: 0, offset: 0 };
    /// Column-major, without gaps.
    pub const COLUMNS: Self = Self { order: Order::ColumnMajor, step: 1, padding: 0, offset: 0 };

    /// The same with a leading dimension that is larger by `padding`.
    pub const fn padded(self, padding: usize) -> Self {
        Self { padding, ..self }
    }

    /// The same, `offset` elements behind a multiple of 256 bytes.
    pub const fn moved(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The same with neighbours `step` elements apart.
    pub const fn spread(self, step: usize) -> Self {
        Self { step, ..self }
    }

    /// The strides of rows and of columns of a `rows`×`cols` matrix.
    pub const fn strides(self, rows: usize, cols: usize) -> [usize; 2] {
        let [_, length] = self.order.lines(rows, cols);
        self.order.strides(length * self.step + self.padding, self.step)
    }
}

/// A matrix in memory, guarded.
#[derive(Clone)]
pub struct Operand {
    /// Guard words, more of them than [`GUARD`] by the layout's offset; the matrix with its gaps; guard words.
    pub(crate) memory: Vec<f32>,
    pub(crate) geometry: Geometry,
    /// Where the matrix begins in its memory.
    begin: usize,
}

/// The extents of a matrix and its strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

/// A matrix in the memory of a device or of this processor, as kernels take it: `S` is a view of its extent.
#[derive(Clone, Copy)]
pub struct View<S> {
    /// The memory from the first element to the last.
    pub slice: S,
    /// Where in it the elements are.
    pub geometry: Geometry,
}

impl<'a> View<GlobalSlice<'a, f32>> {
    /// The matrix.
    ///
    /// # Errors
    /// As for [`Matrix::new`].
    pub fn matrix(self) -> Result<Matrix<'a>, ShapeError> {
        let Geometry { rows, cols, row_stride, col_stride } = self.geometry;
        Matrix::new(self.slice, rows, cols, row_stride, col_stride)
    }

    /// The matrix, which has one column, as a vector.
    ///
    /// # Errors
    /// As for [`Vector::new`].
    pub fn vector(self) -> Result<Vector<'a>, ShapeError> {
        Vector::new(self.slice, self.geometry.rows, self.geometry.row_stride)
    }
}

impl<'a> View<GlobalSliceMut<'a, f32>> {
    /// The matrix.
    ///
    /// # Errors
    /// As for [`MatrixMut::new`].
    pub fn matrix_mut(self) -> Result<MatrixMut<'a>, ShapeError> {
        let Geometry { rows, cols, row_stride, col_stride } = self.geometry;
        MatrixMut::new(self.slice, rows, cols, row_stride, col_stride)
    }

    /// The matrix, which has one column, as a vector.
    ///
    /// # Errors
    /// As for [`VectorMut::new`].
    pub fn vector_mut(self) -> Result<VectorMut<'a>, ShapeError> {
        VectorMut::new(self.slice, self.geometry.rows, self.geometry.row_stride)
    }
}

impl Operand {
    /// A `rows`×`cols` matrix of random numbers, uniform in [−1, 1].
    pub fn random(rows: usize, cols: usize, layout: Layout, seed: u64) -> Self {
        let mut generator = StdRng::seed_from_u64(seed);
        Self::from_fn(rows, cols, layout, |_, _| generator.random_range(-1.0..=1.0))
    }

    /// A matrix of the elements that `element` gives for rows and columns.
    pub fn from_fn(rows: usize, cols: usize, layout: Layout, mut element: impl FnMut(usize, usize) -> f32) -> Self {
        let [row_stride, col_stride] = layout.strides(rows, cols);
        let len = if rows == 0 || cols == 0 { 0 } else { (rows - 1) * row_stride + (cols - 1) * col_stride + 1 };
        let geometry = Geometry { rows, cols, row_stride, col_stride };
        let begin = GUARD + layout.offset;
        let mut operand = Self { memory: vec![SENTINEL; begin + len + GUARD], geometry, begin };
        for row in 0..rows {
            for col in 0..cols {
                operand.set(row, col, element(row, col));
            }
        }
        operand
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.geometry.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.geometry.cols
    }

    /// The strides of rows and of columns.
    pub fn strides(&self) -> [usize; 2] {
        [self.geometry.row_stride, self.geometry.col_stride]
    }

    /// The matrix as kernels on this processor read it.
    pub fn view(&self) -> View<GlobalSlice<'_, f32>> {
        View { slice: GlobalSlice::new(&self.memory[self.extent()]), geometry: self.geometry }
    }

    /// The matrix as kernels on this processor write it.
    pub fn view_mut(&mut self) -> View<GlobalSliceMut<'_, f32>> {
        let extent = self.extent();
        View { slice: GlobalSliceMut::new(&mut self.memory[extent]), geometry: self.geometry }
    }

    /// The element at (`row`, `col`).
    pub fn at(&self, row: usize, col: usize) -> f32 {
        self.memory[self.position(row, col)]
    }

    /// Makes `value` the element at (`row`, `col`).
    pub fn set(&mut self, row: usize, col: usize, value: f32) {
        let position = self.position(row, col);
        self.memory[position] = value;
    }

    /// Makes `value` every element.
    pub fn fill(&mut self, value: f32) {
        for (row, col) in self.indices() {
            self.set(row, col, value);
        }
    }

    /// The matrix in a copy of its memory, guard words included, as kernels read it.
    pub(crate) fn view_of<'a>(&self, copy: GlobalSlice<'a, f32>) -> View<GlobalSlice<'a, f32>> {
        assert_eq!(copy.len(), self.memory.len(), "a copy is as long as the original");
        // SAFETY: the extent is a part of the copy, whose lifetime the part has.
        let slice = unsafe { GlobalSlice::from_raw_parts(copy.as_ptr().wrapping_add(self.begin), self.extent().len()) };
        View { slice, geometry: self.geometry }
    }

    /// The matrix in a copy of its memory, guard words included, as kernels write it.
    pub(crate) fn view_of_mut<'a>(&self, copy: GlobalSliceMut<'a, f32>) -> View<GlobalSliceMut<'a, f32>> {
        assert_eq!(copy.len(), self.memory.len(), "a copy is as long as the original");
        // SAFETY: the extent is a part of the copy, which is given away.
        let slice =
            unsafe { GlobalSliceMut::from_raw_parts(copy.as_mut_ptr().wrapping_add(self.begin), self.extent().len()) };
        View { slice, geometry: self.geometry }
    }

    /// The part of the memory that the matrix takes: from its first element to its last.
    pub(crate) fn extent(&self) -> Range<usize> {
        self.begin..self.memory.len() - GUARD
    }

    /// The matrix in double precision.
    pub fn to_f64(&self) -> Array2<f64> {
        Array2::from_shape_fn((self.rows(), self.cols()), |(row, col)| f64::from(self.at(row, col)))
    }

    /// All elements, row by row.
    pub fn elements(&self) -> impl Iterator<Item = f32> {
        self.indices().map(|(row, col)| self.at(row, col))
    }

    /// The bits of all elements, by rows.
    pub fn bits(&self) -> Vec<u32> {
        self.elements().map(f32::to_bits).collect()
    }

    /// Whether everything around the elements is as it was made.
    ///
    /// # Errors
    /// The first place that was written to, in words.
    pub fn check_surroundings(&self) -> Result<(), String> {
        let mut is_element = vec![false; self.memory.len()];
        for (row, col) in self.indices() {
            is_element[self.position(row, col)] = true;
        }
        let written =
            (0..self.memory.len()).find(|&i| !is_element[i] && self.memory[i].to_bits() != SENTINEL.to_bits());
        match written {
            Some(position) => Err(format!(
                "the word {} elements after the first of {self:?} is no element, but is now {}",
                position as isize - self.begin as isize,
                self.memory[position]
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Geometry { rows, cols, .. } = self.geometry;
        (0..rows).flat_map(move |row| (0..cols).map(move |col| (row, col)))
    }

    fn position(&self, row: usize, col: usize) -> usize {
        assert!(row < self.rows() && col < self.cols(), "({row}, {col}) of {self:?}");
        self.begin + row * self.geometry.row_stride + col * self.geometry.col_stride
    }
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Geometry { rows, cols, row_stride, col_stride } = self.geometry;
        write!(f, "a {rows} x {cols} matrix with strides ({row_stride}, {col_stride})")
    }
}
