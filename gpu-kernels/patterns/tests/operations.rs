//! All cases on the CPU executor with all its checks, in several orders of blocks, and each call that orders what threads do left out in
//! turn. No GPU is needed.

use cuda_std::executor::{Checks, Executor};
use patterns_kernels::OPERATIONS;
use testkit::{Device, Trial};

#[test]
fn every_case_is_right() {
    OPERATIONS.iter().for_each(|operation| testkit::assert_checks(*operation));
}

#[test]
fn every_case_is_right_in_whatever_order_blocks_run() {
    for schedule in 1..=3 {
        let device = Device::with_executor(Executor::new(Checks::Full).window(8).schedule(schedule));
        // Other data for the same kernels order nothing in another way.
        let mut tried = Vec::new();
        for operation in OPERATIONS {
            let description = operation.describe();
            let kernels: Vec<_> = description.kernels.iter().map(|kernel| kernel.name).collect();
            if tried.contains(&kernels) {
                continue;
            }
            tried.push(kernels);
            for sizes in &description.small {
                let sizes = description.sizes_of(sizes).unwrap();
                let case = sizes.to_string();
                let trial = Trial::new(*operation, sizes, schedule).unwrap();
                let outcome = trial.run(&device).and_then(|outputs| trial.judge(&outputs));
                assert!(outcome.is_ok(), "{}, {case}, schedule {schedule}: {}", description.name, outcome.unwrap_err());
            }
        }
    }
}

#[test]
fn nothing_that_orders_threads_can_be_left_out() {
    testkit::assert_mutants_of(OPERATIONS);
}
