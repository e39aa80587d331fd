//! All cases on the CPU executor with all its checks. No GPU is needed.

use functions_kernels::Functions;

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&Functions);
}
