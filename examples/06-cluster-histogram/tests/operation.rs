//! All cases on the CPU executor with all its checks, and each barrier left out in turn. No GPU is needed.

use cluster_histogram_kernels::ClusterHistogram;

#[test]
fn every_case_is_right() {
    testkit::assert_checks(&ClusterHistogram);
}

#[test]
fn no_barrier_can_be_left_out() {
    testkit::assert_mutants(&ClusterHistogram);
}
