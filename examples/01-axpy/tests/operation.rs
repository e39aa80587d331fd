//! All cases on the CPU executor with all its checks. No GPU is needed.

use axpy_kernels::Axpy;

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&Axpy);
}
