//! The errors of a result, ours or cuBLAS's, against f64.
//!
//! A reference in f64 for every element would take longer than all else, so it is computed for whole rows of the result,
//! chosen at random: as many as cost 1.6·10¹⁰ multiplications, and all of them where that is enough. Each of
//! these rows is compared in every column. (`tilewright run` compares every element.)

use ndarray::{Array2, ArrayView2, Axis};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::index;
use serde::{Deserialize, Serialize};

use crate::check::Reference;
use crate::report::number;

/// The multiplications that a reference may cost.
const REFERENCE_PRODUCTS: f64 = 1.6e10;

/// The fewest rows that are compared, where there are that many.
const FEWEST_ROWS: usize = 16;

/// How far a result is from the exact product.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// `‖C − C₆₄‖ / ‖C₆₄‖`, in Frobenius norms over the rows that are compared.
    #[serde(with = "number")]
    pub frobenius: f64,
    /// The largest `|c − c₆₄| / Σ|a||b|` of an element.
    #[serde(with = "number")]
    pub max: f64,
}

/// The exact product, in some rows.
pub struct Sample {
    rows: Vec<usize>,
    reference: Reference,
}

/// The rows to compare, in order: all, or some by chance, which depend on the seed alone.
pub fn sampled_rows(m: usize, n: usize, k: usize, seed: u64) -> Vec<usize> {
    let each = (n as f64 * k as f64).max(1.0);
    let affordable = (REFERENCE_PRODUCTS / each) as usize;
    let count = affordable.max(FEWEST_ROWS);
    if count >= m {
        return (0..m).collect();
    }
    let mut rows = index::sample(&mut StdRng::seed_from_u64(seed), m, count).into_vec();
    rows.sort_unstable();
    rows
}

impl Sample {
    /// The exact product of these rows of A, m×k, and B, k×n.
    pub fn new(rows: Vec<usize>, a: ArrayView2<'_, f32>, b: ArrayView2<'_, f32>) -> Self {
        let some = a.select(Axis(0), &rows);
        let no_result = Array2::zeros((rows.len(), b.ncols()));
        let reference = Reference::new(1.0, some.view(), b, 0.0, no_result.view());
        Self { rows, reference }
    }

    /// How many rows are compared.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The errors of an m×n result. (Where chance makes rows vanish, [`Reference`] measures by their terms instead.)
    pub fn errors(&self, result: ArrayView2<'_, f32>) -> Errors {
        let outcome = self.reference.check(result.select(Axis(0), &self.rows).view());
        Errors { frobenius: outcome.frobenius_error, max: outcome.max_error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_results_are_compared_whole_and_large_ones_in_rows() {
        assert_eq!(sampled_rows(5, 7, 9, 0), [0, 1, 2, 3, 4]);
        assert_eq!(sampled_rows(2048, 1, 1 << 20, 0).len(), 2048, "a matrix times a vector");
        let rows = sampled_rows(8192, 8192, 8192, 1);
        assert!(rows.len() > FEWEST_ROWS && rows.len() < 8192 && rows.is_sorted(), "{}", rows.len());
        assert!(rows.iter().all(|&row| row < 8192) && rows.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(rows, sampled_rows(8192, 8192, 8192, 1));
        assert_ne!(rows, sampled_rows(8192, 8192, 8192, 2));
        assert_eq!(sampled_rows(1 << 20, 1 << 20, 1 << 10, 0).len(), FEWEST_ROWS);
    }

    #[test]
    fn errors_are_those_of_the_rows_that_are_compared() {
        let a = Array2::from_shape_fn((4, 3), |(row, col)| (row + col) as f32);
        let b = Array2::from_shape_fn((3, 2), |(row, col)| (row * 2 + col) as f32 - 2.0);
        let sample = Sample::new(vec![1, 3], a.view(), b.view());
        let mut result = a.dot(&b);
        assert_eq!(sample.errors(result.view()), Errors { frobenius: 0.0, max: 0.0 });
        result[(0, 0)] = 99.0;
        assert_eq!(sample.errors(result.view()).max, 0.0, "row 0 is not compared");
        result[(3, 1)] += 0.5;
        let magnitude: f32 = (0..3).map(|l| (a[(3, l)] * b[(l, 1)]).abs()).sum();
        let errors = sample.errors(result.view());
        assert!((errors.max - 0.5 / f64::from(magnitude)).abs() < 1e-12, "{errors:?}");
        result[(1, 0)] = f32::NAN;
        assert_eq!(sample.errors(result.view()).frobenius, f64::INFINITY);
    }
}
