//! All cases on the CPU executor with all its checks, and each call that orders what threads do left out in turn. No GPU is needed.

use patterns_kernels::OPERATIONS;

#[test]
fn every_case_is_right() {
    OPERATIONS.iter().for_each(|operation| testkit::assert_checks(*operation));
}

#[test]
fn nothing_that_orders_threads_can_be_left_out() {
    OPERATIONS.iter().for_each(|operation| testkit::assert_mutants(*operation));
}
