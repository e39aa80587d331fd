//! What a plan is for: the sizes of a product, and where its matrices lie.

use std::fmt;

use gpu_kernels::Triangle;
use serde::{Deserialize, Serialize};

use crate::Sizes;
use crate::{DeviceMatrix, Error};

/// The products of a batch, `C = α·A·B + β·C` each, as far as a plan depends on them: everything but the numbers.
///
/// Strides along an extent of one element or none mean nothing; they are given values here that suit most kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Description {
    /// The rows of A and C.
    pub m: usize,
    /// The columns of B and C.
    pub n: usize,
    /// The columns of A and rows of B.
    pub k: usize,
    /// The number of products.
    pub batch: usize,
    /// Where A lies.
    pub a: Placement,
    /// Where B lies.
    pub b: Placement,
    /// Where C lies.
    pub c: Placement,
    /// Whether α is zero, so that neither A nor B may be read.
    pub alpha_is_zero: bool,
    /// Whether β is zero, so that C may not be read.
    pub beta_is_zero: bool,
    /// Which elements of the result are wanted; the others become zero, whatever they were.
    #[serde(default, with = "NamesOfParts")]
    pub part: Triangle,
}

/// How parts are written to files.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Triangle", rename_all = "kebab-case")]
enum NamesOfParts {
    All,
    Upper,
    Lower,
}

/// Where the elements of the matrices of a batch lie: strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// From one row to the next.
    pub row_stride: usize,
    /// From one column to the next.
    pub col_stride: usize,
    /// From one matrix to the next; 0 if all products share one.
    pub batch_stride: usize,
    /// The alignment of the first element, in bytes: a power of two.
    pub alignment: usize,
}

/// Which elements are neighbours in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Those of a row: `N` in the name of a layout.
    ByRows,
    /// Those of a column, as in a transposed matrix that is read in place: `T` in the name of a layout.
    ByColumns,
    /// None: both strides are larger than one.
    Spread,
}

/// What addresses and strides of tensor maps are multiples of, in bytes.
const TENSOR_MAP_ALIGNMENT: usize = 16;

impl Placement {
    /// A matrix without gaps that is stored by rows of `cols` elements, in memory aligned as every allocation is.
    pub fn by_rows(cols: usize) -> Self {
        Self { row_stride: cols, col_stride: 1, batch_stride: 0, alignment: 256 }
    }

    /// A matrix without gaps that is stored by columns of `rows` elements, in memory aligned as every allocation is.
    pub fn by_columns(rows: usize) -> Self {
        Self::by_rows(rows).transposed()
    }

    /// The transpose: the same elements.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Which elements are neighbours.
    pub fn storage(&self) -> Storage {
        match (self.row_stride, self.col_stride) {
            (_, 1) => Storage::ByRows,
            (1, _) => Storage::ByColumns,
            _ => Storage::Spread,
        }
    }

    /// The elements from one stored row, or column, to the next.
    pub fn leading_dimension(&self) -> usize {
        match self.storage() {
            Storage::ByRows => self.row_stride,
            Storage::ByColumns | Storage::Spread => self.col_stride,
        }
    }

    /// Whether a tensor map can describe a batch of `rows`×`cols` matrices that lie like this: neighbours in a row or a
    /// column, no two lines or matrices in the same place, everything else at multiples of 16 bytes.
    pub fn fits_tensor_map(&self, rows: usize, cols: usize, batch: usize) -> bool {
        let (lines, length) = match self.storage() {
            Storage::ByRows => (rows, cols),
            Storage::ByColumns => (cols, rows),
            Storage::Spread => return false,
        };
        // Strides of tensor maps have 40 bits.
        let fits = |stride: usize| stride.is_multiple_of(TENSOR_MAP_ALIGNMENT / size_of::<f32>()) && stride < 1 << 38;
        self.alignment.is_multiple_of(TENSOR_MAP_ALIGNMENT)
            && (lines <= 1 || (fits(self.leading_dimension()) && self.leading_dimension() >= length))
            && (batch <= 1 || (fits(self.batch_stride) && self.batch_stride > 0))
    }

    /// The same places, with values for the strides that mean nothing.
    pub(crate) fn canonical(self, rows: usize, cols: usize, batch: usize) -> Self {
        let (row_stride, col_stride) = match (rows > 1, cols > 1) {
            (true, true) => (self.row_stride, self.col_stride),
            (true, false) if self.row_stride == 1 => (1, rows),
            (true, false) => (self.row_stride, 1),
            (false, true) if self.col_stride == 1 => (cols, 1),
            (false, true) => (1, self.col_stride),
            (false, false) => (1, 1),
        };
        Self { row_stride, col_stride, batch_stride: if batch > 1 { self.batch_stride } else { 0 }, ..self }
    }

    /// Refuses what no memory can hold.
    fn check(&self, matrix: &'static str, rows: usize, cols: usize, batch: usize) -> Result<(), Error> {
        if !self.alignment.is_power_of_two() || self.alignment < align_of::<f32>() {
            let alignment = self.alignment;
            return Err(Error::Usage(format!(
                "the alignment of {matrix} is {alignment} bytes: it has to be a power of two, and at least 4"
            )));
        }
        if rows == 0 || cols == 0 || batch == 0 {
            return Ok(());
        }
        // No overflow: extents are below 2³¹.
        let along = |extent: usize, stride: usize| (extent as u128 - 1) * stride as u128;
        let last = along(rows, self.row_stride) + along(cols, self.col_stride) + along(batch, self.batch_stride);
        if (last + 1) * size_of::<f32>() as u128 > isize::MAX as u128 {
            let Self { row_stride, col_stride, batch_stride, .. } = *self;
            return Err(Error::PlacementOverflow { matrix, rows, cols, batch, row_stride, col_stride, batch_stride });
        }
        Ok(())
    }
}

impl Description {
    /// Products of m×k and k×n matrices, with α and β other than zero.
    ///
    /// # Errors
    /// [`Error::ExtentTooLarge`] for an extent or a batch of more than 2³¹ − 1; [`Error::PlacementOverflow`] for a matrix
    /// that ends beyond what can be addressed; [`Error::Usage`] for an alignment that is none.
    pub fn new(sizes: Sizes, batch: usize, a: Placement, b: Placement, c: Placement) -> Result<Self, Error> {
        let Sizes { m, n, k } = sizes;
        for (what, extent) in [("m", m), ("n", n), ("k", k), ("batch", batch)] {
            if extent > i32::MAX as usize {
                return Err(Error::ExtentTooLarge { what, extent });
            }
        }
        let placed = |matrix, placement: Placement, rows, cols| {
            let placement = placement.canonical(rows, cols, batch);
            placement.check(matrix, rows, cols, batch).map(|()| placement)
        };
        let (a, b, c) = (placed("A", a, m, k)?, placed("B", b, k, n)?, placed("C", c, m, n)?);
        Ok(Self { m, n, k, batch, a, b, c, alpha_is_zero: false, beta_is_zero: false, part: Triangle::All })
    }

    /// The same with these factors.
    pub fn with_factors(self, alpha: f32, beta: f32) -> Self {
        Self { alpha_is_zero: alpha == 0.0, beta_is_zero: beta == 0.0, ..self }
    }

    /// The same, of which only a part is wanted.
    pub fn with_part(self, part: Triangle) -> Self {
        Self { part, ..self }
    }

    /// The product of matrices in a device's memory.
    ///
    /// # Errors
    /// Those of [`Description::new`], and [`Error::Operands`] if these do not make a product.
    pub fn of(alpha: f32, a: &DeviceMatrix, b: &DeviceMatrix, beta: f32, c: &DeviceMatrix) -> Result<Self, Error> {
        for (left, left_extent, right, right_extent) in [
            ("the number of columns of A", a.cols(), "the number of rows of B", b.rows()),
            ("the number of rows of A", a.rows(), "the number of rows of C", c.rows()),
            ("the number of columns of B", b.cols(), "the number of columns of C", c.cols()),
            ("the number of matrices A", a.count(), "the number of matrices B", b.count()),
            ("the number of matrices A", a.count(), "the number of matrices C", c.count()),
        ] {
            if left_extent != right_extent {
                return Err(Error::Operands { left, left_extent, right, right_extent });
            }
        }
        let sizes = Sizes { m: c.rows(), n: c.cols(), k: a.cols() };
        let one = Self::new(sizes, c.count(), a.placement(), b.placement(), c.placement())?;
        Ok(one.with_factors(alpha, beta))
    }

    /// The terms of each sum: none if α is zero.
    pub fn terms(&self) -> usize {
        if self.alpha_is_zero { 0 } else { self.k }
    }

    /// Whether there is no element to compute.
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }

    /// The operations, counting a multiplication and an addition as two.
    pub fn operations(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.terms() as f64 * self.batch as f64
    }

    /// The bytes of the operands and the results, each counted once.
    pub fn traffic(&self) -> f64 {
        let (m, n, k, batch) = (self.m as f64, self.n as f64, self.terms() as f64, self.batch as f64);
        let matrices = |placement: Placement| if placement.batch_stride == 0 { 1.0 } else { batch };
        let times_c = if self.beta_is_zero { 1.0 } else { 2.0 };
        4.0 * (m * k * matrices(self.a) + k * n * matrices(self.b) + times_c * m * n * batch)
    }

    /// The product of the transposes: `Cᵀ = α·Bᵀ·Aᵀ + β·Cᵀ`, the same numbers in the same places.
    pub(crate) fn transposed(self) -> Self {
        let (a, b, c) = (self.b.transposed(), self.a.transposed(), self.c.transposed());
        Self { m: self.n, n: self.m, a, b, c, part: self.part.transposed(), ..self }
    }

    /// What differs between the product that a plan is for and the one that it is given, if that matters: sizes, strides
    /// and whether α is zero. Memory may be better aligned than planned.
    pub(crate) fn difference(&self, given: &Self) -> Option<(&'static str, String, String)> {
        let sizes = |it: &Self| (it.m, it.n, it.k, it.batch);
        if sizes(self) != sizes(given) {
            let shown = |it: &Self| format!("{} of m={} n={} k={}", it.batch, it.m, it.n, it.k);
            return Some(("the products are", shown(self), shown(given)));
        }
        if self.alpha_is_zero != given.alpha_is_zero {
            let shown = |it: &Self| if it.alpha_is_zero { "zero" } else { "not zero" }.to_owned();
            return Some(("alpha is", shown(self), shown(given)));
        }
        let pairs = [("A lies", self.a, given.a), ("B lies", self.b, given.b), ("C lies", self.c, given.c)];
        pairs.into_iter().find_map(|(what, planned, given)| {
            let strides = |it: Placement| (it.row_stride, it.col_stride, it.batch_stride);
            let same = strides(planned) == strides(given) && given.alignment >= planned.alignment.min(16);
            (!same).then(|| (what, planned.to_string(), given.to_string()))
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.storage() {
            Storage::ByRows => write!(f, "by rows, {} apart", self.row_stride)?,
            Storage::ByColumns => write!(f, "by columns, {} apart", self.col_stride)?,
            Storage::Spread => write!(f, "with strides {} and {}", self.row_stride, self.col_stride)?,
        }
        if self.batch_stride > 0 {
            write!(f, ", matrices {} apart", self.batch_stride)?;
        }
        if self.alignment < 16 { write!(f, ", aligned to {} bytes", self.alignment) } else { Ok(()) }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, batch, a, b, c, part, .. } = self;
        if *batch != 1 {
            write!(f, "{batch} times ")?;
        }
        write!(f, "m={m} n={n} k={k} (A {a}; B {b}; C {c})")?;
        match part {
            Triangle::All => Ok(()),
            Triangle::Upper => write!(f, ", upper triangle"),
            Triangle::Lower => write!(f, ", lower triangle"),
        }
    }
}
