//! All cases on the CPU executor with all its checks, and each barrier left out in turn. No GPU is needed.

use column_sums_kernels::ColumnSums;

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&ColumnSums);
}

#[test]
fn no_barrier_can_be_left_out() {
    testkit::assert_mutants(&ColumnSums);
}
