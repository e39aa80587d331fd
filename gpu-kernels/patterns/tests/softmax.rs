//! The softmax of a row that several blocks have, where some of them have nothing but −∞, or a number that is none.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;
use cuda_std::{Grid, Kernel};
use patterns_kernels::softmax::{softmax_lanes_4_fp32, softmax_of_parts_fp32, softmax_parts_fp32};

const COLS: usize = 9000;
const PARTS: usize = 3;

fn softmax(x: &[f32]) -> Vec<f32> {
    softmax_of_parts(x, PARTS)
}

fn softmax_of_parts(x: &[f32], parts: usize) -> Vec<f32> {
    let (mut found, mut y) = (vec![7.0; 2 * parts], vec![7.0; x.len()]);
    let (rows, cols, parts) = (1, x.len() as u32, parts as u32);
    let x = GlobalSlice::new(x);
    launch(softmax_parts_fp32 { rows, cols, parts, x, found: GlobalSliceMut::new(&mut found) });
    let y_view = GlobalSliceMut::new(&mut y);
    launch(softmax_of_parts_fp32 { rows, cols, parts, x, found: GlobalSlice::new(&found), y: y_view });
    y
}

fn launch<K: Kernel + Grid>(kernel: K) {
    let grid = kernel.grid();
    // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
    unsafe { Executor::new(Checks::Full).launch(kernel, grid) }.unwrap();
}

#[test]
fn a_part_of_nothing_but_minus_infinity_has_no_weight() {
    for there in [0..COLS / 3, COLS / 2..COLS / 2 + 1, COLS - 5..COLS] {
        let x: Vec<f32> = (0..COLS).map(|i| if there.contains(&i) { 3e38 } else { f32::NEG_INFINITY }).collect();
        let part = 1.0 / there.len() as f32;
        for (i, y) in softmax(&x).into_iter().enumerate() {
            let expected = if there.contains(&i) { part } else { 0.0 };
            assert!((y - expected).abs() <= expected * 1e-6, "{there:?}, {i}: {y}");
        }
    }
}

#[test]
fn a_row_without_a_number_is_nan() {
    assert!(softmax(&vec![f32::NEG_INFINITY; COLS]).iter().all(|y| y.is_nan()));
    for special in [f32::NAN, f32::INFINITY] {
        let mut x = vec![1.0; COLS];
        x[COLS - 1] = special;
        assert!(softmax(&x).iter().all(|y| y.is_nan()), "{special}");
    }
}

/// Parts are whole groups of numbers, so the last ones may have none: each number counts once all the same.
#[test]
fn parts_without_numbers_count_nothing() {
    for cols in [1, 1000, 1024, 1025, 5000] {
        for parts in [1, 2, 20, 300] {
            let expected = 1.0 / cols as f32;
            for (i, y) in softmax_of_parts(&vec![0.5; cols], parts).into_iter().enumerate() {
                assert!((y - expected).abs() <= expected * 1e-6, "{cols} columns, {parts} parts, {i}: {y}");
            }
        }
    }
}

/// By so few blocks that each comes to further rows, in the last of which some lanes of a warp have none.
#[test]
fn blocks_go_on_to_further_rows() {
    const COLS: usize = 13;
    for rows in [64, 65, 200, 1001] {
        let x: Vec<f32> = (0..rows * COLS).map(|i| (i % 31) as f32 / 8.0).collect();
        let mut y = vec![7.0; x.len()];
        let (x_view, y_view) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
        let kernel = softmax_lanes_4_fp32 { rows: rows as u32, cols: COLS as u32, x: x_view, y: y_view };
        // SAFETY: the views are of memory of this processor, which nobody else accesses meanwhile.
        unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(2)) }.unwrap();
        for (row, (x, y)) in x.chunks(COLS).zip(y.chunks(COLS)).enumerate() {
            let sum: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let expected = f64::from(*x).exp() / sum;
                assert!(
                    (f64::from(*y) - expected).abs() <= expected * 1e-6,
                    "row {row} of {rows}: {y}, not {expected}"
                );
            }
        }
    }
}
