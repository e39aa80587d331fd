//! All cases on the CPU executor with all its checks, and each call that orders threads left out in
//! turn. No GPU is needed.

use {{crate}}_kernels::{{Operation}};

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&{{Operation}});
}

#[test]
fn no_barrier_can_be_left_out() {
    testkit::assert_mutants(&{{Operation}});
}
