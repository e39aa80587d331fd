//! Whether a result is right: every element, against a reference in double precision.
//!
//! # What passes
//!
//! With K the length of the sums, E the error of the result C against the reference, and S = |α|·Σ|a||b| + |β||c| element
//! by element:
//!
//! ```text
//!  ‖E‖ / ‖C‖  ≤  2·√K·2⁻²⁴     (Frobenius norms)          and          max |E| / S  ≤  4·√K·2⁻²⁴
//! ```
//!
//! These are the bounds of [`Precision::Fp32Strict`]; the others allow more, as [`Precision::tolerance`] says.
//!
//! 2⁻²⁴ is the rounding error of one fp32 operation, and √K is how such errors add up when they are independent: a sum in
//! fp32 passes in any order, and one whose operands were rounded to TF32 (2⁻¹¹) does not.
//!
//! In place of ‖C‖ stands ‖S‖/√K where that is larger. On the named problems it never is; but a result of few elements can
//! come out near zero by chance, and then an error as small as any would be large beside it.
//!
//! An element that is not finite where the reference is fails; where the reference is not finite in fp32 (because inputs
//! are not, or it is too large), the element must be the same.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, Axis, s};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::progress::Progress;
use crate::report::number;
use tilewright::{Precision, Tolerance};

/// Rows and columns of the result that are computed at once, and terms that are converted to double precision at once.
/// The converted blocks stay in a cache.
const BLOCK_ROWS: usize = 128;
const BLOCK_COLS: usize = 256;
const BLOCK_TERMS: usize = 512;

/// Terms that one task adds up. Long sums of few elements are so shared among threads.
const SEGMENT_TERMS: usize = 16_384;

/// What a product should be, in double precision, and how much its elements may differ.
#[derive(Clone, Debug)]
pub struct Reference {
    /// `α·A·B + β·C`.
    expected: Array2<f64>,
    /// `|α|·|A|·|B| + |β|·|C|`: what errors are measured by.
    magnitude: Array2<f64>,
    /// The length of the sums, at least 1.
    terms: usize,
}

/// Sums over a part of the terms, for a block of the result: `A·B` and `|A|·|B|`.
struct Partial {
    product: Array2<f64>,
    magnitude: Array2<f64>,
}

impl Reference {
    /// Computes what `α·A·B + β·C` should be. As in a BLAS, A and B do not count if α is zero, nor C if β is.
    ///
    /// The operands are converted block by block, so that no copy of them in double precision is ever held.
    ///
    /// # Panics
    /// If the shapes do not make a product.
    pub fn new(alpha: f32, a: ArrayView2<'_, f32>, b: ArrayView2<'_, f32>, beta: f32, c: ArrayView2<'_, f32>) -> Self {
        let ((m, k), (_, n)) = (a.dim(), b.dim());
        assert_eq!(b.nrows(), k, "A is {:?}, B is {:?}", a.dim(), b.dim());
        assert_eq!(c.dim(), (m, n), "C is not as large as A·B");
        let terms = if alpha == 0.0 { 0 } else { k };

        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        let mut expected = Array2::zeros((m, n));
        let mut magnitude = Array2::zeros((m, n));
        let segments = terms.div_ceil(SEGMENT_TERMS);
        let progress =
            Progress::new("computing the reference", m.div_ceil(BLOCK_ROWS) * n.div_ceil(BLOCK_COLS) * segments);
        let row_blocks = (expected.axis_chunks_iter_mut(Axis(0), BLOCK_ROWS).into_par_iter())
            .zip(magnitude.axis_chunks_iter_mut(Axis(0), BLOCK_ROWS))
            .enumerate();
        row_blocks.for_each(|(block, (mut expected, mut magnitude))| {
            let first_row = block * BLOCK_ROWS;
            let a = a.slice(s![first_row..first_row + expected.nrows(), ..]);
            let blocks = (expected.axis_chunks_iter_mut(Axis(1), BLOCK_COLS).into_par_iter())
                .zip(magnitude.axis_chunks_iter_mut(Axis(1), BLOCK_COLS))
                .enumerate();
            blocks.for_each(|(block, (mut expected, mut magnitude))| {
                let first_col = block * BLOCK_COLS;
                let cols = first_col..first_col + expected.ncols();
                let b = b.slice(s![.., cols.clone()]);
                let partials: Vec<Partial> = (0..segments)
                    .into_par_iter()
                    .map(|segment| {
                        let first = segment * SEGMENT_TERMS;
                        let partial = partial_sums(a, b, first..terms.min(first + SEGMENT_TERMS));
                        progress.step();
                        partial
                    })
                    .collect();
                // Added up in order, so that the reference does not depend on the number of threads.
                for partial in partials {
                    expected.scaled_add(alpha, &partial.product);
                    magnitude.scaled_add(alpha.abs(), &partial.magnitude);
                }
                if beta != 0.0 {
                    let c = c.slice(s![first_row..first_row + expected.nrows(), cols]);
                    expected.zip_mut_with(&c, |sum, &c| *sum += beta * f64::from(c));
                    magnitude.zip_mut_with(&c, |sum, &c| *sum += beta.abs() * f64::from(c).abs());
                }
            });
        });
        Self { expected, magnitude, terms: (terms + usize::from(beta != 0.0)).max(1) }
    }

    /// Compares a result with the reference, every element of it, by the bounds of [`Precision::Fp32Strict`].
    ///
    /// # Panics
    /// If the result has another shape than the reference.
    pub fn check(&self, result: ArrayView2<'_, f32>) -> Outcome {
        self.check_in(Precision::Fp32Strict, result)
    }

    /// Compares a result with the reference, every element of it, by the bounds of a precision.
    ///
    /// # Panics
    /// If the result has another shape than the reference.
    pub fn check_in(&self, precision: Precision, result: ArrayView2<'_, f32>) -> Outcome {
        assert_eq!(result.dim(), self.expected.dim(), "the result has another shape than the reference");
        let Tolerance { frobenius: frobenius_bound, max: max_bound } = precision.tolerance(self.terms);

        let tallies: Vec<Tally> = (result.axis_chunks_iter(Axis(0), BLOCK_ROWS).into_par_iter())
            .enumerate()
            .map(|(block, rows)| {
                let mut tally = Tally::default();
                for ((row, col), &value) in rows.indexed_iter() {
                    let row = block * BLOCK_ROWS + row;
                    let index = (row, col);
                    tally.add(row, col, value, self.expected[index], self.magnitude[index], max_bound);
                }
                tally
            })
            .collect();
        // In order: the sums, and which of several worst elements is named, do not depend on the number of threads.
        let total = tallies.into_iter().fold(Tally::default(), Tally::and);

        let scale = total.expected_squares.max(total.magnitude_squares / self.terms as f64).sqrt();
        let error = total.error_squares.sqrt();
        let frobenius_error = if error == 0.0 { 0.0 } else { error / scale };
        let max_error = total.worst.map_or(0.0, |worst| worst.1);
        Outcome {
            passed: total.bad == 0 && frobenius_error <= frobenius_bound && max_error <= max_bound,
            frobenius_error,
            frobenius_bound,
            max_error,
            max_bound,
            worst: total.worst.map(|worst| worst.0),
            elements: result.len() as u64,
            bad: total.bad,
            first_bad: total.first_bad,
        }
    }
}

/// The sums over `terms` of a block of the result.
fn partial_sums(a: ArrayView2<'_, f32>, b: ArrayView2<'_, f32>, terms: std::ops::Range<usize>) -> Partial {
    let shape = (a.nrows(), b.ncols());
    let mut sums = Partial { product: Array2::zeros(shape), magnitude: Array2::zeros(shape) };
    for first in terms.clone().step_by(BLOCK_TERMS) {
        let some = first..terms.end.min(first + BLOCK_TERMS);
        let mut a = a.slice(s![.., some.clone()]).mapv(f64::from);
        let mut b = b.slice(s![some, ..]).mapv(f64::from);
        general_mat_mul(1.0, &a, &b, 1.0, &mut sums.product);
        a.mapv_inplace(f64::abs);
        b.mapv_inplace(f64::abs);
        general_mat_mul(1.0, &a, &b, 1.0, &mut sums.magnitude);
    }
    sums
}

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether both errors are within their bounds and every element is finite where it should be.
    pub passed: bool,
    /// The relative Frobenius error; infinite if there are elements that are not finite but should be.
    #[serde(with = "number")]
    pub frobenius_error: f64,
    /// The most that it may be.
    pub frobenius_bound: f64,
    /// The largest |error| / Σ|a||b|; infinite as above.
    #[serde(with = "number")]
    pub max_error: f64,
    /// The most that it may be.
    pub max_bound: f64,
    /// The element with the largest error; none if there are no elements.
    pub worst: Option<Element>,
    /// The number of elements that were compared: all of them.
    pub elements: u64,
    /// The number of elements whose own error is beyond `max_bound`.
    pub bad: u64,
    /// The first eight of these, by rows.
    pub first_bad: Vec<Element>,
}

impl Outcome {
    /// What is found of no results at all.
    pub(crate) fn of_nothing(precision: Precision) -> Self {
        let Tolerance { frobenius: frobenius_bound, max: max_bound } = precision.tolerance(0);
        let (frobenius_error, max_error, elements, bad, first_bad) = (0.0, 0.0, 0, 0, Vec::new());
        let worst = None;
        Self { passed: true, frobenius_error, frobenius_bound, max_error, max_bound, worst, elements, bad, first_bad }
    }

    /// What is found of a result and of the one after it in a batch: the larger of each error, and elements numbered by
    /// their rows within their own matrix.
    pub(crate) fn and(self, next: Self) -> Self {
        let mut first_bad = self.first_bad;
        first_bad.extend(next.first_bad);
        first_bad.truncate(NAMED);
        Self {
            passed: self.passed && next.passed,
            frobenius_error: self.frobenius_error.max(next.frobenius_error),
            frobenius_bound: self.frobenius_bound,
            worst: if next.max_error > self.max_error { next.worst } else { self.worst },
            max_error: self.max_error.max(next.max_error),
            max_bound: self.max_bound,
            elements: self.elements + next.elements,
            bad: self.bad + next.bad,
            first_bad,
        }
    }
}

/// One element of a result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Element {
    /// The row.
    pub row: usize,
    /// The column.
    pub col: usize,
    /// What it is.
    #[serde(with = "number")]
    pub value: f64,
    /// What it should be.
    #[serde(with = "number")]
    pub expected: f64,
}

/// How many bad elements are named.
const NAMED: usize = 8;

/// What is known about a part of the result.
#[derive(Default)]
struct Tally {
    error_squares: f64,
    expected_squares: f64,
    magnitude_squares: f64,
    worst: Option<(Element, f64)>,
    bad: u64,
    first_bad: Vec<Element>,
}

impl Tally {
    fn add(&mut self, row: usize, col: usize, value: f32, expected: f64, magnitude: f64, bound: f64) {
        let rounded = expected as f32;
        let error = if rounded.is_finite() {
            self.expected_squares += expected * expected;
            self.magnitude_squares += magnitude * magnitude;
            (f64::from(value) - expected).abs()
        } else if value == rounded || (value.is_nan() && rounded.is_nan()) {
            0.0
        } else {
            f64::INFINITY
        };
        // A NaN compares as neither smaller nor larger than anything: call it infinite, so that nothing accepts it.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        self.error_squares += error * error;
        let relative = if error == 0.0 { 0.0 } else { error / magnitude };
        let relative = if relative.is_nan() { f64::INFINITY } else { relative };
        let element = Element { row, col, value: f64::from(value), expected };
        if self.worst.is_none_or(|(_, worst)| relative > worst) {
            self.worst = Some((element, relative));
        }
        if relative > bound {
            self.bad += 1;
            if self.first_bad.len() < NAMED {
                self.first_bad.push(element);
            }
        }
    }

    /// The tally of two parts, the first of which comes first in the result.
    fn and(mut self, other: Self) -> Self {
        self.error_squares += other.error_squares;
        self.expected_squares += other.expected_squares;
        self.magnitude_squares += other.magnitude_squares;
        if let Some((_, worst)) = other.worst
            && self.worst.is_none_or(|(_, known)| worst > known)
        {
            self.worst = other.worst;
        }
        self.bad += other.bad;
        let room = NAMED - self.first_bad.len();
        self.first_bad.extend(other.first_bad.into_iter().take(room));
        self
    }
}

#[cfg(test)]
mod tests;
