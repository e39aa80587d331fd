use ndarray::Array2;

use super::*;
use crate::input::{Distribution, random};

/// Operands with sums long enough to show a loss of precision.
fn operands(m: usize, n: usize, k: usize) -> (Array2<f32>, Array2<f32>) {
    let matrix = |rows, cols, operand| {
        Array2::from_shape_vec((rows, cols), random(rows * cols, Distribution::Uniform11, 7, operand)).unwrap()
    };
    (matrix(m, k, 0), matrix(k, n, 1))
}

fn reference(a: &Array2<f32>, b: &Array2<f32>) -> Reference {
    let c = Array2::zeros((a.nrows(), b.ncols()));
    Reference::new(1.0, a.view(), b.view(), 0.0, c.view())
}

/// The product as a kernel computes it: a chain of fused multiply-adds in fp32.
fn in_fp32(a: &Array2<f32>, b: &Array2<f32>) -> Array2<f32> {
    Array2::from_shape_fn((a.nrows(), b.ncols()), |(row, col)| {
        a.row(row).iter().zip(b.column(col)).fold(0.0, |sum, (&a, &b)| f32::mul_add(a, b, sum))
    })
}

/// To the ten bits of fraction that TF32 has, to nearest.
fn to_tf32(matrix: &Array2<f32>) -> Array2<f32> {
    matrix.mapv(|x| f32::from_bits((x.to_bits() + 0x0FFF + ((x.to_bits() >> 13) & 1)) & !0x1FFF))
}

#[test]
fn fp32_passes_and_tf32_does_not() {
    for (m, n, k) in [(37, 41, 64), (20, 300, 1000), (130, 3, 20_000)] {
        let (a, b) = operands(m, n, k);
        let reference = reference(&a, &b);
        let outcome = reference.check(in_fp32(&a, &b).view());
        assert!(outcome.passed, "{m} x {n} x {k}: {outcome:?}");
        assert_eq!((outcome.elements, outcome.bad), ((m * n) as u64, 0));

        // Even with sums in double precision, because the operands have lost too much.
        let rounded = to_tf32(&a).mapv(f64::from).dot(&to_tf32(&b).mapv(f64::from)).mapv(|x| x as f32);
        let outcome = reference.check(rounded.view());
        assert!(
            !outcome.passed && outcome.frobenius_error > 2.0 * outcome.frobenius_bound,
            "{m} x {n} x {k}: {outcome:?}"
        );
    }
}

#[test]
fn the_reference_is_the_product_in_double_precision() {
    let (m, n, k) = (BLOCK_ROWS + 3, BLOCK_COLS + 5, SEGMENT_TERMS + BLOCK_TERMS + 7);
    let (a, b) = operands(m, n, k);
    let c = Array2::from_shape_fn((m, n), |(row, col)| (row as f32) - (col as f32));
    let reference = Reference::new(-2.0, a.view(), b.view(), 0.5, c.view());
    for (row, col) in [(0, 0), (m - 1, n - 1), (BLOCK_ROWS, BLOCK_COLS), (5, BLOCK_COLS - 1)] {
        let terms =
            a.row(row).iter().zip(b.column(col)).map(|(&a, &b)| f64::from(a) * f64::from(b)).collect::<Vec<_>>();
        let c = f64::from(c[(row, col)]);
        let expected = -2.0 * terms.iter().sum::<f64>() + 0.5 * c;
        let magnitude = 2.0 * terms.iter().map(|term| term.abs()).sum::<f64>() + 0.5 * c.abs();
        assert!((reference.expected[(row, col)] - expected).abs() < 1e-9 * magnitude);
        assert!((reference.magnitude[(row, col)] - magnitude).abs() < 1e-9 * magnitude);
    }
}

#[test]
fn one_wrong_element_fails_and_is_named() {
    let (a, b) = operands(200, 30, 50);
    let reference = reference(&a, &b);
    let mut result = in_fp32(&a, &b);
    result[(150, 17)] += 0.01;
    let outcome = reference.check(result.view());
    assert!(!outcome.passed);
    assert_eq!(outcome.bad, 1);
    let worst = outcome.worst.unwrap();
    assert_eq!((worst.row, worst.col, worst.value), (150, 17, f64::from(result[(150, 17)])));
    assert!((worst.value - worst.expected - 0.01).abs() < 1e-4);
    assert_eq!(outcome.first_bad, [worst]);
}

#[test]
fn nan_and_infinity_fail_where_the_reference_is_finite() {
    let (a, b) = operands(3, 4, 5);
    let reference = reference(&a, &b);
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut result = in_fp32(&a, &b);
        result[(1, 2)] = wrong;
        let outcome = reference.check(result.view());
        assert!(!outcome.passed && outcome.bad == 1, "{wrong}: {outcome:?}");
        assert_eq!((outcome.frobenius_error, outcome.max_error), (f64::INFINITY, f64::INFINITY));
        let worst = outcome.worst.unwrap();
        assert_eq!((worst.row, worst.col), (1, 2));
    }
    let all = reference.check(Array2::from_elem((3, 4), f32::NAN).view());
    assert!(!all.passed);
    assert_eq!((all.bad, all.first_bad.len()), (12, 8));
}

#[test]
fn where_the_reference_is_not_finite_the_result_must_be_the_same() {
    let (mut a, b) = operands(3, 4, 5);
    a[(0, 0)] = f32::NAN;
    a[(1, 0)] = f32::INFINITY;
    let reference = reference(&a, &b);
    let right = in_fp32(&a, &b);
    assert!(reference.check(right.view()).passed);
    for (row, wrong) in [(0, 1.0), (0, f32::INFINITY), (1, 1.0), (1, f32::NAN), (1, -right[(1, 0)])] {
        let mut result = right.clone();
        result[(row, 0)] = wrong;
        let outcome = reference.check(result.view());
        assert!(!outcome.passed && outcome.bad == 1, "{wrong} in row {row}: {outcome:?}");
    }
}

#[test]
fn without_terms_the_result_is_beta_c() {
    let c = Array2::from_shape_fn((3, 4), |(row, col)| (row + 2 * col) as f32);
    for (alpha, k) in [(1.0, 0), (0.0, 5)] {
        // With α = 0 the operands may be anything.
        let (a, b) = (Array2::from_elem((3, k), f32::NAN), Array2::from_elem((k, 4), f32::NAN));
        let reference = Reference::new(alpha, a.view(), b.view(), 3.0, c.view());
        assert!(reference.check(c.mapv(|x| 3.0 * x).view()).passed);
        assert!(!reference.check(c.mapv(|x| 3.01 * x).view()).passed);
        let nan = Array2::from_elem((3, 4), f32::NAN);
        let reference = Reference::new(alpha, a.view(), b.view(), 0.0, nan.view());
        assert!(reference.check(Array2::zeros((3, 4)).view()).passed, "with β = 0 the old C does not count");
        assert!(!reference.check(Array2::from_elem((3, 4), 1e-30).view()).passed);
        assert!(!reference.check(nan.view()).passed);
    }
}

#[test]
fn a_result_without_elements_passes() {
    let (a, b) = (Array2::zeros((0, 3)), Array2::zeros((3, 4)));
    let outcome = reference(&a, &b).check(Array2::zeros((0, 4)).view());
    assert!(outcome.passed && outcome.worst.is_none() && outcome.elements == 0);
}

#[test]
fn a_sum_that_cancels_by_chance_passes() {
    // 1 + 2^-24 - 1 in fp32 is 0 or 2^-23: either is a relative error of 1, and either is as good as fp32 gets.
    let a = ndarray::array![[1.0, 0.5f32.powi(24), -1.0]];
    let b = Array2::from_elem((3, 1), 1.0);
    let outcome = reference(&a, &b).check(in_fp32(&a, &b).view());
    assert!(outcome.passed, "{outcome:?}");
}
