//! What layer normalisation makes of rows with special numbers, as its documentation has it.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use patterns_kernels::layer_norm::layer_norm_of_warp_fp32;

/// The row, normalised with γ = 2 and β = 3.
fn normalized(row: [f32; 4]) -> [f32; 4] {
    let (gamma, beta) = ([2.0; 4], [3.0; 4]);
    let (mut y, mut mean, mut inverse) = ([0.0; 4], [0.0; 1], [0.0; 1]);
    let kernel = layer_norm_of_warp_fp32 {
        rows: 1,
        cols: 4,
        epsilon: 1e-5,
        x: GlobalSlice::new(&row),
        gamma: GlobalSlice::new(&gamma),
        beta: GlobalSlice::new(&beta),
        y: GlobalSliceMut::new(&mut y),
        mean: GlobalSliceMut::new(&mut mean),
        inverse: GlobalSliceMut::new(&mut inverse),
    };
    // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
    y
}

#[test]
fn a_row_with_a_nan_or_an_infinity_is_nan() {
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let y = normalized([1.0, 2.0, special, 3.0]);
        assert!(y.iter().all(|y| y.is_nan()), "{special}: {y:?}");
    }
}

#[test]
fn so_is_one_whose_sum_is_too_large_and_where_squares_are_it_is_beta() {
    let y = normalized([f32::MAX, f32::MAX, 1.0, 1.0]);
    assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
    assert_eq!(normalized([f32::MAX, -f32::MAX, 1.0, 1.0]), [3.0; 4]);
}

#[test]
fn a_row_of_equal_numbers_is_beta_whatever_their_size() {
    for number in [0.0, -0.0, 1.0, f32::from_bits(1), 1e30] {
        assert_eq!(normalized([number; 4]), [3.0; 4], "{number:e}");
    }
}
