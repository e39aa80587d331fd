//! Products with diagonal matrices and with numbers, `C = α·diag(r)·B·diag(c)`, in one pass.
//!
//! ```text
//!            c₀   c₁   c₂   c₃   c₄
//!          ┌────────────────────────┐
//!   r₀     │ 0    1    2    3    4  │     elements in their order, row after row and matrix after matrix;
//!   r₁     │ 5    6    7    8    9  │     a block has the next 1024, wherever rows begin and end;
//!   r₂     │ 10   11   12   13   14 │     a thread has eight: two fours of neighbours, with two loads and two stores of
//!          └────────────────────────┘     16 bytes, where memory allows, otherwise each 128 from the one before
//! ```
//!
//! It is to take as long as a copy of B. Blocks that do not
//! end with rows are all full, whatever the shape, and a matrix without gaps is one run of elements if there are no factors, also if
//! its rows are no multiples of four.
//!
//! Each element is multiplied in this order, and rounded each time: by its row's factor, by its column's, by α. Any device; no
//! shared memory.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::geometry::divide;
#[cfg(not(target_arch = "nvptx64"))]
use crate::{Matrix, ShapeError, gemm::tiles::MAX_BLOCKS};
use crate::{MatrixBatch, MatrixBatchMut, Vector};

/// The threads of a block.
const THREADS: u32 = matrix_scaling_fp32::BLOCK.x;
/// The fours of neighbours that a thread has.
const FOURS: usize = 2;
/// The elements of a block.
const CHUNK: u32 = THREADS * 4 * FOURS as u32;

/// Matrices to be multiplied by a number, and each row and each column by a factor of its own: `C = α·diag(r)·B·diag(c)`.
///
/// Invariant: B and C are as many matrices of the same shape, or C is B; there are as many factors of rows as rows or none, and
/// of columns likewise.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct Scaling<'a> {
    /// Empty for factors of one.
    rows: Vector<'a>,
    /// Likewise.
    cols: Vector<'a>,
    /// Empty if C is B.
    b: MatrixBatch<'a>,
    c: MatrixBatchMut<'a>,
    /// How many elements C has.
    elements: u64,
    alpha: f32,
    /// Not zero: C is B.
    in_place: u32,
    /// Not zero: four elements from a multiple of four on are one aligned access of 16 bytes, in B and in C, and so are the factors
    /// of their columns; all four have the same factor of their row.
    in_fours: u32,
    /// Not zero: so they are, and element i of the line of all elements is element i of the memory.
    dense: u32,
    /// Not zero: rows here are the columns that the caller named, so that their factors come second.
    transposed: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a> Scaling<'a> {
    /// `C = α·diag(rows)·B·diag(cols)`, of each matrix of a batch by the same factors.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] if C are not as many matrices as B, or have another shape; or if there are not as many factors
    /// as rows, or columns.
    pub fn new(
        alpha: f32,
        rows: Option<Vector<'a>>,
        b: MatrixBatch<'a>,
        cols: Option<Vector<'a>>,
        c: MatrixBatchMut<'a>,
    ) -> Result<Self, ShapeError> {
        let (from, to) = (b.first(), c.first());
        for (extent_b, extent_c) in [
            (("the number of rows of B", from.rows()), ("the number of rows of C", to.rows())),
            (("the number of columns of B", from.cols()), ("the number of columns of C", to.cols())),
            (("the number of matrices B", b.count()), ("the number of matrices C", c.count())),
        ] {
            ShapeError::unless_equal(extent_b, extent_c)?;
        }
        Self::with(alpha, rows, Some(b), cols, c)
    }

    /// `C = α·diag(rows)·C·diag(cols)`, likewise.
    ///
    /// # Errors
    /// [`ShapeError::Mismatch`] if there are not as many factors as rows, or columns.
    pub fn in_place(
        alpha: f32,
        rows: Option<Vector<'a>>,
        cols: Option<Vector<'a>>,
        c: MatrixBatchMut<'a>,
    ) -> Result<Self, ShapeError> {
        Self::with(alpha, rows, None, cols, c)
    }

    fn with(
        alpha: f32,
        rows: Option<Vector<'a>>,
        b: Option<MatrixBatch<'a>>,
        cols: Option<Vector<'a>>,
        c: MatrixBatchMut<'a>,
    ) -> Result<Self, ShapeError> {
        if let Some(rows) = rows {
            let factors = ("the number of factors of rows", rows.len());
            ShapeError::unless_equal(factors, ("the number of rows", c.first().rows()))?;
        }
        if let Some(cols) = cols {
            let factors = ("the number of factors of columns", cols.len());
            ShapeError::unless_equal(factors, ("the number of columns", c.first().cols()))?;
        }
        // Along rows, neighbours are to be as close in memory as they can be: otherwise it is the transposes that are computed.
        let transposed = is_by_columns(&c);
        let (b, rows, cols, c) = match transposed {
            true => (b.map(MatrixBatch::transposed), cols, rows, c.transposed()),
            false => (b, rows, cols, c),
        };
        let none = Vector::new(GlobalSlice::new(&[]), 0, 1)?;
        let nothing = MatrixBatch::from(Matrix::new(GlobalSlice::new(&[]), 0, 0, 0, 1)?);
        let scaling = Self {
            rows: rows.unwrap_or(none),
            cols: cols.unwrap_or(none),
            b: b.unwrap_or(nothing),
            c,
            elements: elements_of(&c),
            alpha,
            in_place: b.is_none().into(),
            in_fours: 0,
            dense: 0,
            transposed: transposed.into(),
        };
        let (in_fours, dense) = scaling.is_in_fours();
        Ok(Self { in_fours: in_fours.into(), dense: dense.into(), ..scaling })
    }

    /// Whether four elements, counted from a multiple of four on, are always one aligned access of 16 bytes and need one such access
    /// to factors of columns and one factor of a row; and whether all matrices are one run of elements besides.
    fn is_in_fours(&self) -> (bool, bool) {
        let (rows, cols, count) = (self.c.first().rows(), self.c.first().cols(), self.c.count());
        let from = self.b.first();
        let of_b = (from.data().as_ptr().addr(), [self.b.stride(), from.row_stride(), from.col_stride()]);
        let of_c = (self.c.first().data().as_mut_ptr().addr(), strides_of_result(&self.c));
        // Those of matrices that are one run of elements, and those of rows that are runs of fours.
        let dense = [u64::from(rows) * u64::from(cols), cols.into(), 1];
        let is_dense =
            |strides: [u64; 3]| (0..3).all(|axis| [count, rows, cols][axis] == 1 || strides[axis] == dense[axis]);
        let is_whole = |[matrix, row, col]: [u64; 3]| {
            let is_multiple = |extent: u32, stride: u64| extent == 1 || stride.is_multiple_of(4);
            is_multiple(count, matrix) && is_multiple(rows, row) && col == 1 && cols.is_multiple_of(4)
        };
        let both = if self.in_place != 0 { &[of_c][..] } else { &[of_b, of_c] };
        let are_aligned = (self.cols.is_empty() || self.has_cols_in_fours())
            && both.iter().all(|(address, _)| address.is_multiple_of(4 * size_of::<f32>()));
        let are_dense = are_aligned && both.iter().all(|&(_, strides)| is_dense(strides));
        let are_whole = are_aligned && both.iter().all(|&(_, strides)| is_whole(strides));
        let in_fours = are_whole || are_dense && self.rows.is_empty() && self.cols.is_empty();
        (in_fours, in_fours && are_dense)
    }

    fn has_cols_in_fours(&self) -> bool {
        self.cols.stride() == 1 && self.cols.data().as_ptr().addr().is_multiple_of(4 * size_of::<f32>())
    }

    /// Whether neighbours in memory are along rows of one and along columns of the other, so that loads of neighbouring threads
    /// are far apart. Then it is faster to copy B first, by a kernel that exchanges the two on the way.
    pub fn is_across(&self) -> bool {
        /// With fewer rows or columns than that, what a thread needs is still in the cache from a neighbour.
        const MANY: u32 = 32;
        let from = self.b.first();
        from.rows() >= MANY && from.cols() >= MANY && (1..from.col_stride()).contains(&from.row_stride())
    }

    /// The blocks that the kernel takes.
    fn blocks(&self) -> u64 {
        self.elements.div_ceil(CHUNK.into())
    }
}

/// How many elements there are. They are in memory, each in a place of its own, so they can be counted.
#[cfg(not(target_arch = "nvptx64"))]
fn elements_of(c: &MatrixBatchMut<'_>) -> u64 {
    u64::from(c.count()) * u64::from(c.first().rows()) * u64::from(c.first().cols())
}

/// From one matrix, row and column of a result to the next.
#[cfg(not(target_arch = "nvptx64"))]
fn strides_of_result(c: &MatrixBatchMut<'_>) -> [u64; 3] {
    [c.stride(), c.first().row_stride(), c.first().col_stride()]
}

/// Whether neighbours in a column are closer together in memory than those in a row.
#[cfg(not(target_arch = "nvptx64"))]
fn is_by_columns(c: &MatrixBatchMut<'_>) -> bool {
    let first = c.first();
    first.rows() > 1 && (first.cols() == 1 || first.row_stride() < first.col_stride())
}

/// Which element.
#[derive(Clone, Copy)]
struct Place {
    matrix: u32,
    row: u32,
    col: u32,
}

impl Scaling<'_> {
    /// The element of this number.
    #[inline(always)]
    fn place(&self, index: u64) -> Place {
        let (line, col) = divide(index, self.c.first().cols().into());
        let (matrix, row) = divide(line, self.c.first().rows().into());
        Place { matrix: matrix as u32, row: row as u32, col: col as u32 }
    }

    /// The element `distance` further on in the order of elements.
    #[inline(always)]
    fn ahead(&self, Place { matrix, row, col }: Place, distance: u32) -> Place {
        let (rows, cols) = (self.c.first().rows(), self.c.first().cols());
        // No overflow: extents have 31 bits. Most steps do not leave their row, and divisions take long.
        let col = col + distance;
        if col < cols {
            return Place { matrix, row, col };
        }
        let (lines, col) = (col.checked_div(cols).unwrap_or(0), col.checked_rem(cols).unwrap_or(0));
        let row = row + lines;
        if row < rows {
            return Place { matrix, row, col };
        }
        let (matrices, row) = (row.checked_div(rows).unwrap_or(0), row.checked_rem(rows).unwrap_or(0));
        Place { matrix: matrix + matrices, row, col }
    }

    /// Where an element of B is.
    #[inline(always)]
    fn offset_in_b(&self, Place { matrix, row, col }: Place) -> usize {
        (u64::from(matrix) * self.b.stride()) as usize + self.b.first().offset(row, col)
    }

    /// Where an element of C is.
    #[inline(always)]
    fn offset_in_c(&self, Place { matrix, row, col }: Place) -> usize {
        (u64::from(matrix) * self.c.stride()) as usize + self.c.first().offset(row, col)
    }

    /// The factor of a row.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    #[track_caller]
    unsafe fn of_row(&self, row: u32) -> f32 {
        // SAFETY: there are as many factors, or none.
        if self.rows.is_empty() { 1.0 } else { unsafe { self.rows.at(row) } }
    }

    /// An element of C, of the one of B and its factors.
    #[inline(always)]
    fn product(&self, of_row: f32, value: f32, of_col: f32) -> f32 {
        let (first, second) = if self.transposed != 0 { (of_col, of_row) } else { (of_row, of_col) };
        self.alpha * (second * (first * value))
    }

    /// An element of C, of the one of B.
    ///
    /// # Safety
    /// There is such an element.
    #[inline(always)]
    #[track_caller]
    unsafe fn scaled(&self, Place { row, col, .. }: Place, value: f32) -> f32 {
        // SAFETY: there are as many factors, or none.
        unsafe {
            let of_col = if self.cols.is_empty() { 1.0 } else { self.cols.at(col) };
            self.product(self.of_row(row), value, of_col)
        }
    }

    /// Four elements of C, from that of number `first` on, of those of B.
    ///
    /// # Safety
    /// There are such four.
    #[inline(always)]
    #[track_caller]
    unsafe fn four_scaled(&self, first: u64, four: [f32; 4]) -> [f32; 4] {
        if self.rows.is_empty() && self.cols.is_empty() {
            return four.map(|value| self.product(1.0, value, 1.0));
        }
        let Place { row, col, .. } = self.place(first);
        // SAFETY: there are as many factors of columns as columns, and of rows as rows, or none. Rows end with a four, so this one
        // is in one row, and its factors are one access, which is aligned: `Scaling::with` has looked.
        let (of_row, of_cols) = unsafe {
            let all = self.cols.data();
            (self.of_row(row), if all.is_empty() { [1.0; 4] } else { all.get4_unchecked(col as usize) })
        };
        core::array::from_fn(|i| self.product(of_row, four[i], of_cols[i]))
    }
}

/// `C = α·diag(r)·B·diag(c)` in fp32.
#[kernel(block = 128, min_blocks = 16, requires(scaling.blocks() <= MAX_BLOCKS))]
pub fn matrix_scaling_fp32(scaling: Scaling<'_>) {
    let (b, c) = (scaling.b.first().data(), scaling.c.first().data());
    let in_place = scaling.in_place != 0;
    let chunk = u64::from(thread::block_idx_x()) * u64::from(CHUNK);
    if scaling.in_fours != 0 && chunk + u64::from(CHUNK) <= scaling.elements {
        let firsts: [u64; FOURS] =
            core::array::from_fn(|i| chunk + u64::from(4 * (i as u32 * THREADS + thread::thread_idx_x())));
        // Where nothing has to be divided for it, loads are under way at once.
        let offsets = firsts.map(|first| match scaling.dense != 0 {
            true => (first as usize, first as usize),
            false => {
                let place = scaling.place(first);
                (scaling.offset_in_b(place), scaling.offset_in_c(place))
            }
        });
        // SAFETY: all fours of the block are inside, each one aligned access in either matrix, as `Scaling::with` has found, and no
        // other thread has them. Nothing writes to B: a launch refuses views that overlap, and in place B is not looked at.
        unsafe {
            let fours = offsets.map(|(of_b, of_c)| match in_place {
                true => c.get4_unchecked(of_c),
                false => b.get4_unchecked(of_b),
            });
            for i in 0..FOURS {
                c.set4_unchecked(offsets[i].1, scaling.four_scaled(firsts[i], fours[i]));
            }
        }
        return;
    }
    let first = chunk + u64::from(thread::thread_idx_x());
    let mut place = scaling.place(first);
    let mut left = scaling.elements.saturating_sub(first).min(u64::from(CHUNK)) as u32;
    while left > 0 {
        // Pinned: unrolled, the loop takes registers that the other way would have to do without.
        let mut numbers = [left];
        hint::pin(&mut numbers);
        // SAFETY: the element is inside, and no other thread has it.
        unsafe {
            let of_c = scaling.offset_in_c(place);
            let value = if in_place { c.get_unchecked(of_c) } else { b.get_unchecked(scaling.offset_in_b(place)) };
            c.set_unchecked(of_c, scaling.scaled(place, value));
        }
        place = scaling.ahead(place, THREADS);
        left = numbers[0].saturating_sub(THREADS);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for matrix_scaling_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(self.scaling.blocks())
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::SCALE;

/// The operation as the host sees it: how many matrices of which rows and columns, the matrices and both diagonals as inputs, the launch, and the
/// three multiplications of each element, rounded as the kernel rounds them: it has to have the same bits. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use alloc::{vec, vec::Vec};

    use operations::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{Scaling, matrix_scaling_fp32};
    use crate::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, Vector};

    /// The factor of all elements.
    const ALPHA: f32 = 1.7;

    /// Products with diagonal matrices.
    pub static SCALE: Scale = Scale;

    /// `C = α·diag(r)·B·diag(c)`, of row-major matrices one after the other.
    pub struct Scale;

    impl Operation for Scale {
        fn describe(&self) -> Description {
            Description {
                name: "scale",
                idea: "C = α·diag(r)·B·diag(c): each element read once and written once",
                sizes: &["count", "rows", "cols"],
                kernels: vec![matrix_scaling_fp32::FACTS],
                small: operations::every(&[&[1, 3], &[0, 1, 7, 65], &[0, 1, 4, 33, 300]]),
                large: vec![vec![1, 16_384, 8192], vec![37, 1001, 777]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
            Ok(vec![
                Argument::input("r", &[rows], Distribution::Normal),
                Argument::input("b", &[count, rows, cols], Distribution::Special),
                Argument::input("c", &[cols], Distribution::Normal),
                Argument::output("result", &[count, rows, cols]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [count, rows, cols] = sizes.get(["count", "rows", "cols"])?;
            let scaling = || {
                let r = Vector::new(views.read("r")?, rows, 1).map_err(Error::operation)?;
                let c = Vector::new(views.read("c")?, cols, 1).map_err(Error::operation)?;
                let b = Matrix::new(views.read("b")?, rows, cols, cols, 1).map_err(Error::operation)?;
                let b = MatrixBatch::new(b, rows * cols, count).map_err(Error::operation)?;
                let to = MatrixMut::new(views.write("result")?, rows, cols, cols, 1).map_err(Error::operation)?;
                let to = MatrixBatchMut::new(to, rows * cols, count).map_err(Error::operation)?;
                Scaling::new(ALPHA, Some(r), b, Some(c), to).map_err(Error::operation)
            };
            Ok(device.launch(matrix_scaling_fp32 { scaling: scaling()? })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let (r, b, c) = (values.of("r")?, values.of("b")?, values.of("c")?);
            let one = |(index, &element): (usize, &f64)| {
                // Three multiplications, each rounded to fp32: a product of two fp32 numbers is exact in fp64.
                let by_row = (element * r[index / cols % rows]) as f32;
                let by_column = (f64::from(by_row) * c[index % cols]) as f32;
                Expected::exact(f64::from(by_column) * f64::from(ALPHA))
            };
            Ok(vec![b.iter().enumerate().map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes
                .get(["count", "rows", "cols"])
                .map_or(0.0, |[count, rows, cols]| 3.0 * count as f64 * rows as f64 * cols as f64)
        }
    }
}
