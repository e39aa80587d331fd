//! All cases on the CPU executor with all its checks. No GPU is needed.

use functions_kernels::{Approximations, Doubles, Functions, IN_LOOPS, Parts};

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&Functions);
    testkit::assert_checks(&Parts);
    testkit::assert_checks(&Doubles);
    testkit::assert_checks(&Approximations);
}

#[test]
fn every_function_in_a_loop_is_right() {
    IN_LOOPS.iter().for_each(|operation| testkit::assert_checks(operation));
}
