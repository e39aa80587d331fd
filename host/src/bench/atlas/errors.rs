//! The errors of a result against f64, in some of its elements: a reference for all would take longer than all measurements.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::super::accuracy::Errors;
use super::arena::Arena;
use super::shape::{Operand, Shape};

/// The elements that are compared, at most.
const ELEMENTS: usize = 32;

/// Terms that one task adds up.
const SEGMENT: usize = 1 << 16;

/// What some elements should be.
pub(super) struct Sample {
    /// Their places in C.
    places: Vec<usize>,
    /// What each should be, and what its error is measured by: Σ|a||b|.
    expected: Vec<[f64; 2]>,
    /// The length of the sums.
    terms: usize,
}

/// The place of an element of a batch.
fn place(operand: &Operand, [product, row, col]: [usize; 3]) -> usize {
    operand.offset + product * operand.batch_stride + row * operand.row_stride + col * operand.col_stride
}

impl Sample {
    /// The first and the last element, and others by chance, which depend on the seed alone.
    pub(super) fn new(shape: &Shape, arena: &Arena, seed: u64) -> Self {
        let Shape { m, n, k, batch, .. } = *shape;
        let mut generator = SmallRng::seed_from_u64(seed);
        let mut elements = vec![[0, 0, 0], [batch - 1, m - 1, n - 1]];
        let mut below = |extent: usize| generator.random_range(0..extent);
        elements.extend((elements.len()..ELEMENTS).map(|_| [below(batch), below(m), below(n)]));
        elements.sort_unstable();
        elements.dedup();
        let part = |[product, row, col]: [usize; 3], first: usize| {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for term in first..k.min(first + SEGMENT) {
                let (a, b) = (place(&shape.a, [product, row, term]), place(&shape.b, [product, term, col]));
                let [a, b] = arena.numbers(a, b).map(f64::from);
                sum += a * b;
                magnitude += (a * b).abs();
            }
            [sum, magnitude]
        };
        let sum = |&element: &[usize; 3]| {
            let segments = (0..k.div_ceil(SEGMENT)).into_par_iter().map(|segment| part(element, segment * SEGMENT));
            // Added up in order, so that nothing depends on the number of threads.
            let parts: Vec<[f64; 2]> = segments.collect();
            parts.iter().fold([0.0; 2], |[sum, magnitude], part| [sum + part[0], magnitude + part[1]])
        };
        let expected = elements.par_iter().map(sum).collect();
        Self { places: elements.into_iter().map(|element| place(&shape.c, element)).collect(), expected, terms: k }
    }

    /// How many elements are compared.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Where the elements lie in the first set of C.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    /// The errors of results, as [`check`](crate::check) measures them.
    pub(super) fn errors(&self, results: &[f32]) -> Errors {
        let (mut errors, mut squares, mut magnitudes, mut max) = (0.0, 0.0, 0.0, 0.0f64);
        for (&result, &[expected, magnitude]) in results.iter().zip(&self.expected) {
            if !result.is_finite() {
                return Errors { frobenius: f64::INFINITY, max: f64::INFINITY };
            }
            let error = f64::from(result) - expected;
            errors += error * error;
            squares += expected * expected;
            magnitudes += magnitude * magnitude;
            max = max.max(if error == 0.0 { 0.0 } else { error.abs() / magnitude });
        }
        let scale = f64::max(squares, magnitudes / self.terms.max(1) as f64).sqrt();
        Errors { frobenius: if errors == 0.0 { 0.0 } else { errors.sqrt() / scale }, max }
    }
}
