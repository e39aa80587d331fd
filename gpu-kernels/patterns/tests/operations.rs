//! All cases on the CPU executor with all its checks, in several orders of blocks, and each call that orders what threads do left out in
//! turn. No GPU is needed.

use cuda_std::executor::{Checks, Executor};
use patterns_kernels::OPERATIONS;
use testkit::{Device, Trial};

#[test]
fn every_case_is_right() {
    OPERATIONS.iter().for_each(|operation| testkit::assert_checks(*operation));
}

/// Runs the small cases of all kernels, case number i with the schedules `schedules(i)`.
fn assert_right_in_orders(schedules: impl Fn(u64) -> Vec<u64>) {
    // Other data for the same kernels order nothing in another way.
    let mut tried = Vec::new();
    let mut cases = 0;
    for operation in OPERATIONS {
        let description = operation.describe();
        let kernels: Vec<_> = description.kernels.iter().map(|kernel| kernel.name).collect();
        if tried.contains(&kernels) {
            continue;
        }
        tried.push(kernels);
        for sizes in &description.small {
            let sizes = description.sizes_of(sizes).unwrap();
            for schedule in schedules(cases) {
                let device = Device::with_executor(Executor::new(Checks::Full).window(8).schedule(schedule));
                let trial = Trial::new(*operation, sizes.clone(), schedule).unwrap();
                let outcome = trial.run(&device).and_then(|outputs| trial.judge(&outputs));
                let name = description.name;
                assert!(outcome.is_ok(), "{name}, {sizes}, schedule {schedule}: {}", outcome.unwrap_err());
            }
            cases += 1;
        }
    }
    assert!(cases > 0);
}

#[test]
fn every_case_is_right_in_another_order_of_blocks() {
    assert_right_in_orders(|case| vec![1 + case % 3]);
}

#[test]
#[ignore = "three times as long as the one above"]
fn every_case_is_right_in_three_orders_of_blocks() {
    assert_right_in_orders(|_| (1..=3).collect());
}

#[test]
fn nothing_that_orders_threads_can_be_left_out() {
    testkit::assert_mutants_of(OPERATIONS);
}
