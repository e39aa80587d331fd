//! What a plan is for: the sizes of a product, and where its matrices lie.

use std::fmt;

use gpu_kernels::{MatrixBatch, MatrixBatchMut, Triangle};
use serde::{Deserialize, Serialize};

use crate::order::Order;
use crate::placement::Placement;
use crate::refusal::Refusal;
use crate::{DeviceMatrix, Error, Operand, Precision, Side, Sizes};

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
    /// Whether something is done to results before they are stored: an [`Epilogue`](crate::Epilogue).
    #[serde(default)]
    pub has_epilogue: bool,
    /// The precision that A, and that B, has been packed for before, if it has: [`PackedMatrix`](crate::PackedMatrix).
    #[serde(default)]
    pub packed: [Option<Precision>; 2],
}

/// How parts are written to files.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Triangle", rename_all = "kebab-case")]
enum NamesOfParts {
    All,
    Upper,
    Lower,
}

/// Matrices, and where they lie.
struct Placed {
    rows: usize,
    cols: usize,
    count: usize,
    placement: Placement,
}

impl Placed {
    fn new(extents: [u32; 3], strides: [u64; 3], address: usize) -> Self {
        let [rows, cols, count] = extents.map(|extent| extent as usize);
        let [row_stride, col_stride, batch_stride] = strides.map(|stride| stride as usize);
        let alignment = Placement::alignment_of(address);
        Self { rows, cols, count, placement: Placement { row_stride, col_stride, batch_stride, alignment } }
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
        let (alpha_is_zero, beta_is_zero, part, has_epilogue, packed) = (false, false, Triangle::All, false, [None; 2]);
        Ok(Self { m, n, k, batch, a, b, c, alpha_is_zero, beta_is_zero, part, has_epilogue, packed })
    }

    /// The same with these factors.
    pub fn with_factors(self, alpha: f32, beta: f32) -> Self {
        Self { alpha_is_zero: alpha == 0.0, beta_is_zero: beta == 0.0, ..self }
    }

    /// Why a kernel does not compute this that stores whole rows of results; `by_tma`: by a tensor map.
    pub(crate) fn refusal_of_whole_rows(&self, by_tma: bool) -> Option<Refusal> {
        let Self { m, n, batch, c, .. } = *self;
        // TMA stores whole pieces of 16 bytes, also at the end of a row.
        let fits = !by_tma || c.fits_tensor_map(m, n, batch) && n.is_multiple_of(4);
        (c.order() != Some(Order::RowMajor) || !fits).then_some(Refusal::Results)
    }

    /// The same, of which only a part is wanted.
    pub fn with_part(self, part: Triangle) -> Self {
        Self { part, ..self }
    }

    /// The same, with an epilogue or without.
    ///
    /// ```
    /// use tilewright::plan::{Description, Placement};
    /// use tilewright::Sizes;
    ///
    /// let (sizes, placed) = (Sizes { m: 8, n: 8, k: 64 }, Placement::row_major);
    /// let product = Description::new(sizes, 1, placed(64), placed(8), placed(8))?.with_epilogue(true);
    /// assert!(product.has_epilogue);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn with_epilogue(self, has_epilogue: bool) -> Self {
        Self { has_epilogue, ..self }
    }

    /// The same, with A and B that have been packed for a precision, or have not.
    ///
    /// ```
    /// use tilewright::plan::{Description, Placement};
    /// use tilewright::{Precision, Sizes};
    ///
    /// let (sizes, placed) = (Sizes { m: 8, n: 8, k: 64 }, Placement::row_major);
    /// let product = Description::new(sizes, 1, placed(64), placed(8), placed(8))?;
    /// let product = product.with_packed([None, Some(Precision::Fp32)]);
    /// assert!(product.to_string().ends_with("packed before: B, for fp32"));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn with_packed(self, packed: [Option<Precision>; 2]) -> Self {
        Self { packed, ..self }
    }

    /// The product of matrices in a device's memory. Where C is a batch, A and B are as many matrices, or one that all products share.
    ///
    /// # Errors
    /// Those of [`Description::new`], [`Error::Operands`] if these do not make a product, and [`Error::Usage`] if one has been packed for the
    /// other side.
    pub fn of<'a>(
        alpha: f32,
        a: impl Into<Operand<'a>>,
        b: impl Into<Operand<'a>>,
        beta: f32,
        c: &DeviceMatrix,
    ) -> Result<Self, Error> {
        let (a, b) = (a.into(), b.into());
        let packed = [packed_for("A", a, Side::Left)?, packed_for("B", b, Side::Right)?];
        let (a, b) = (a.matrix(), b.matrix());
        let placed = |matrix: &DeviceMatrix| Placed {
            rows: matrix.rows(),
            cols: matrix.cols(),
            count: matrix.count(),
            placement: matrix.placement(),
        };
        Ok(Self::of_placed(alpha, [a, b, c].map(placed), beta)?.with_packed(packed))
    }

    /// The product of views of matrices, as kernels take them.
    ///
    /// # Errors
    /// As for [`Description::of`].
    pub fn of_views(
        alpha: f32,
        a: &MatrixBatch<'_>,
        b: &MatrixBatch<'_>,
        beta: f32,
        c: &MatrixBatchMut<'_>,
    ) -> Result<Self, Error> {
        let read = |batch: &MatrixBatch<'_>| {
            let first = batch.first();
            let strides = [first.row_stride(), first.col_stride(), batch.stride()];
            Placed::new([first.rows(), first.cols(), batch.count()], strides, first.data().as_ptr().addr())
        };
        let first = c.first();
        let strides = [first.row_stride(), first.col_stride(), c.stride()];
        let c = Placed::new([first.rows(), first.cols(), c.count()], strides, first.data().as_mut_ptr().addr());
        Self::of_placed(alpha, [read(a), read(b), c], beta)
    }

    fn of_placed(alpha: f32, [a, b, c]: [Placed; 3], beta: f32) -> Result<Self, Error> {
        // One matrix is one that all products share.
        let [a, b] = [a, b].map(|it| match it.count {
            1 => Placed { count: c.count, placement: Placement { batch_stride: 0, ..it.placement }, ..it },
            _ => it,
        });
        for (left, left_extent, right, right_extent) in [
            ("the number of columns of A", a.cols, "the number of rows of B", b.rows),
            ("the number of rows of A", a.rows, "the number of rows of C", c.rows),
            ("the number of columns of B", b.cols, "the number of columns of C", c.cols),
            ("the number of matrices A, not being 1,", a.count, "the number of matrices C", c.count),
            ("the number of matrices B, not being 1,", b.count, "the number of matrices C", c.count),
        ] {
            if left_extent != right_extent {
                return Err(Error::Operands { left, left_extent, right, right_extent });
            }
        }
        let sizes = Sizes { m: c.rows, n: c.cols, k: a.cols };
        Ok(Self::new(sizes, c.count, a.placement, b.placement, c.placement)?.with_factors(alpha, beta))
    }

    /// The same, with each alignment as far as it matters to kernels.
    pub(crate) fn in_alignment_classes(self) -> Self {
        let [a, b, c] = [self.a, self.b, self.c]
            .map(|placement| Placement { alignment: placement.alignment.min(Placement::FULL_ALIGNMENT), ..placement });
        Self { a, b, c, ..self }
    }

    /// Whether tensor maps can describe both operands: neighbours in a row or a column, everything else at multiples of 16 bytes.
    pub fn is_aligned(&self) -> bool {
        let Self { m, n, k, batch, a, b, .. } = *self;
        a.fits_tensor_map(m, k, batch) && b.fits_tensor_map(k, n, batch)
    }

    /// The extent k that is multiplied: 0 if α is zero, and k otherwise.
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
        // (An empty batch has no matrices, but a place for one.)
        let matrices = |placement: Placement| placement.distinct(self.batch.max(1)) as f64;
        let times_c = if self.beta_is_zero { 1.0 } else { 2.0 };
        4.0 * (m * k * matrices(self.a) + k * n * matrices(self.b) + times_c * m * n * batch)
    }

    /// The product of the transposes: `Cᵀ = α·Bᵀ·Aᵀ + β·Cᵀ`, the same numbers in the same places.
    pub(crate) fn transposed(self) -> Self {
        let (a, b, c) = (self.b.transposed(), self.a.transposed(), self.c.transposed());
        let [of_a, of_b] = self.packed;
        Self { m: self.n, n: self.m, a, b, c, part: self.part.transposed(), packed: [of_b, of_a], ..self }
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
        if self.has_epilogue != given.has_epilogue {
            let shown = |it: &Self| if it.has_epilogue { "some steps" } else { "none" }.to_owned();
            return Some(("the epilogue is", shown(self), shown(given)));
        }
        if self.packed != given.packed {
            let shown = |it: &Self| it.names_of_packed().unwrap_or_else(|| "nothing".to_owned());
            return Some(("what has been packed before is", shown(self), shown(given)));
        }
        let pairs = [("A lies", self.a, given.a), ("B lies", self.b, given.b), ("C lies", self.c, given.c)];
        pairs.into_iter().find_map(|(what, planned, given)| {
            let strides = |it: Placement| (it.row_stride, it.col_stride, it.batch_stride);
            let same = strides(planned) == strides(given)
                && given.alignment >= planned.alignment.min(Placement::FULL_ALIGNMENT);
            (!same).then(|| (what, planned.to_string(), given.to_string()))
        })
    }

    /// The operands that have been packed before, in words.
    fn names_of_packed(&self) -> Option<String> {
        match self.packed {
            [None, None] => None,
            [Some(precision), None] => Some(format!("A, for {precision}")),
            [None, Some(precision)] => Some(format!("B, for {precision}")),
            [Some(of_a), Some(of_b)] => Some(format!("A, for {of_a}, and B, for {of_b}")),
        }
    }
}

/// The precision that an operand has been packed for, if it has been.
fn packed_for(name: &str, operand: Operand<'_>, side: Side) -> Result<Option<Precision>, Error> {
    let Some(packed) = operand.packed() else { return Ok(None) };
    if packed.side() != side {
        let is = packed.side();
        return Err(Error::Usage(format!(
            "{name} stands on the {side} side of the product, and has been packed for the {is} side: pack it for the {side} one, or multiply \
             the matrix itself (`PackedMatrix::matrix`)"
        )));
    }
    Ok(Some(packed.precision()))
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, batch, a, b, c, part, has_epilogue, .. } = self;
        if *batch != 1 {
            write!(f, "{batch} times ")?;
        }
        write!(f, "m={m} n={n} k={k} (A {a}; B {b}; C {c})")?;
        match part {
            Triangle::All => {}
            Triangle::Upper => write!(f, ", upper triangle")?,
            Triangle::Lower => write!(f, ", lower triangle")?,
        }
        f.write_str(if *has_epilogue { ", with an epilogue" } else { "" })?;
        match self.names_of_packed() {
            Some(names) => write!(f, "; packed before: {names}"),
            None => Ok(()),
        }
    }
}
