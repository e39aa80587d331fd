//! All cases on the CPU executor with all its checks, rows that are hard, and each barrier left out in turn. No GPU is needed.

use std::path::Path;

use cuda_std::executor::{Checks, Executor};
use cuda_std::{Dim3, GlobalSlice, GlobalSliceMut};
use softmax_kernels::{Softmax, expected_row, softmax_fp32};
use testkit::Operation as _;

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&Softmax::NORMAL);
}

#[test]
fn special_wide_and_huge_numbers_are_right() {
    testkit::assert_checks(&Softmax::SPECIAL);
    testkit::assert_checks(&Softmax::WIDE);
    testkit::assert_checks(&Softmax::HUGE);
}

#[test]
fn no_barrier_can_be_left_out() {
    testkit::assert_mutants(&Softmax::NORMAL);
}

/// The softmax of one row, by the kernel.
fn softmax(row: &[f32]) -> Vec<f32> {
    let mut y = vec![0.5; row.len()];
    let kernel =
        softmax_fp32 { rows: 1, cols: row.len() as u32, x: GlobalSlice::new(row), y: GlobalSliceMut::new(&mut y) };
    // SAFETY: the views are of slices of this program.
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(1)) }.unwrap();
    y
}

#[test]
fn infinities_and_nan_are_as_in_torch() {
    const INF: f32 = f32::INFINITY;
    for row in
        [vec![-INF; 1000], vec![-INF], vec![INF, 0.0], vec![0.0, INF, INF], vec![f32::NAN, 1.0], vec![-INF, f32::NAN]]
    {
        assert!(softmax(&row).iter().all(|y| y.is_nan()), "{row:?}");
    }
    assert_eq!(softmax(&[-INF, 3.0, -INF, 3.0]), [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(softmax(&[f32::MAX, f32::MIN, f32::MAX]), [0.5, 0.0, 0.5]);
    // A NaN anywhere, also where a thread meets it before or after everything else.
    for at in [0, 31, 300, 999] {
        let mut row = vec![-INF; 1000];
        (row[at], row[999 - at]) = (f32::NAN, 2.0);
        assert!(softmax(&row).iter().all(|y| y.is_nan()), "NaN at {at}");
    }
}

#[test]
fn rows_whose_maximum_changes_at_every_step_are_within_the_bound() {
    let rows: [fn(usize) -> f32; 4] = [
        |col| col as f32 * 0.01,    // each thread's every element is its largest
        |col| -(col as f32) * 0.01, // none but the first
        |col| (col * 7919 % 4001) as f32 * 0.04 - 80.0,
        |col| 1e4 + (col % 2) as f32 * 88.0 + (col as f32) * 1e-3,
    ];
    for (number, element) in rows.into_iter().enumerate() {
        let row: Vec<f32> = (0..20_000).map(element).collect();
        let expected = expected_row(&row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        for (col, (found, expected)) in softmax(&row).iter().zip(&expected).enumerate() {
            let error = (f64::from(*found) - expected.value).abs();
            assert!(error <= expected.bound, "row {number}, column {col}: {found:e} is {error:e} off {expected:?}");
        }
    }
}

/// What the book shows of this kernel is what it does; `TILEWRIGHT_BLESS=1` writes the files anew.
#[test]
fn its_trace_is_that_in_the_book() {
    let sizes = Softmax::NORMAL.describe().parse_sizes("rows=2,cols=600").unwrap();
    let trace = testkit::record_steps(&Softmax::NORMAL, sizes, 1, 0, Default::default()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the example is in the repository");
    testkit::assert_trace_files(&trace, root, &root.join("docs/book/src/traces/softmax_fp32"));
}
