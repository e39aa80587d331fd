//! All cases on the CPU executor with all its checks. No GPU is needed.

use functions_kernels::{Functions, IN_LOOPS};

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&Functions);
}

#[test]
fn every_function_in_a_loop_is_right() {
    IN_LOOPS.iter().for_each(|operation| testkit::assert_checks(operation));
}
