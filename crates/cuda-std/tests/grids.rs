//! Cooperative launches: all blocks of a grid run at the same time, and meet.

#![allow(clippy::undocumented_unsafe_blocks, reason = "some of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, line_of};
use cuda_std::executor::{Checks, Executor, FaultKind, LaunchError};
use cuda_std::prelude::*;
use cuda_std::{Excess, Limits, grid};

const SOURCE: &str = include_str!("grids.rs");

/// Steps of a heat equation along a rod that all blocks share: each point becomes the mean of its neighbours.
/// `wrong`: 1 is one meeting less, 2 is a block that leaves early.
#[kernel(block = 32, cooperative, any_grid, requires(x.len() == y.len(), met.len() == 1))]
fn relax(wrong: u32, steps: u32, x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, f32>, met: GlobalAtomics<'_, u32>) {
    let (mut from, mut to) = (x, y);
    for step in 0..steps {
        let mut i = thread::index();
        while i < x.len() {
            unsafe {
                let (left, right) = (i.saturating_sub(1), (i + 1).min(x.len() - 1));
                let mean = 0.5 * (from.get_unchecked(left) + from.get_unchecked(right)); // <read>
                to.set_unchecked(i, mean); // <write>
            }
            i += thread::count();
        }
        if wrong == 2 && step == 1 && thread::block_idx_x() == 1 {
            return;
        }
        if wrong != 1 || step != 2 {
            unsafe { grid::sync(met) }; // <meet>
        }
        (from, to) = (to, from);
    }
}

/// Runs the steps on a grid of so many blocks, twice with the same number to meet at.
fn run(executor: &Executor, wrong: u32, blocks: u32) -> Result<Vec<f32>, LaunchError> {
    let (mut x, mut y, mut met) = (vec![0.0; 300], vec![0.0; 300], vec![0]);
    x[40] = 1.0;
    x[299] = 3.0;
    // SAFETY: the vectors outlive the launches.
    let kernel = unsafe {
        relax {
            wrong,
            steps: 4,
            x: GlobalSliceMut::from_raw_parts(x.as_mut_ptr(), x.len()),
            y: GlobalSliceMut::from_raw_parts(y.as_mut_ptr(), y.len()),
            met: GlobalAtomics::from_raw_parts(met.as_mut_ptr(), 1),
        }
    };
    for _ in 0..2 {
        unsafe { executor.launch(kernel, blocks.into())? };
    }
    Ok(x)
}

fn expected() -> Vec<f32> {
    let mut x = vec![0.0f32; 300];
    x[40] = 1.0;
    x[299] = 3.0;
    for _ in 0..8 {
        x = (0..300usize).map(|i| 0.5 * (x[i.saturating_sub(1)] + x[(i + 1).min(299)])).collect();
    }
    x
}

#[test]
fn all_blocks_of_a_cooperative_launch_meet_whatever_the_window_is() {
    for checks in ALL_CHECKS {
        for blocks in [1, 2, 7] {
            for seed in 0..5 {
                let executor = Executor::new(checks).window(1).schedule(seed);
                assert_eq!(run(&executor, 0, blocks).unwrap(), expected(), "{blocks} blocks");
            }
        }
    }
}

#[test]
fn a_meeting_less_is_a_race_and_a_block_that_leaves_is_waited_for() {
    for seed in 0..20 {
        let executor = Executor::new(Checks::Full).schedule(seed);
        let Err(LaunchError::Fault(fault)) = run(&executor, 1, 3) else { panic!("a race is not found") };
        let FaultKind::GlobalRace { other, .. } = &fault.kind else { panic!("{fault}") };
        let mut lines = [other.location.line, fault.location.as_ref().unwrap().line];
        lines.sort_unstable();
        assert_eq!(lines, [line_of(SOURCE, "read"), line_of(SOURCE, "write")], "{fault}");

        let Err(LaunchError::Fault(fault)) = run(&executor, 2, 3) else { panic!("blocks that wait are not found") };
        assert!(matches!(fault.kind, FaultKind::Stuck { blocks: 3, .. }), "{fault}");
        assert_eq!(fault.location.as_ref().unwrap().line, line_of(SOURCE, "meet"), "{fault}");
    }
}

#[test]
fn no_more_blocks_are_launched_than_run_at_the_same_time() {
    let limits = Limits::of_hopper();
    let resident = u64::from(limits.blocks_per_multiprocessor);
    let executor = Executor::new(Checks::Bounds).multiprocessors(1);
    assert_eq!(executor.resident_blocks(&relax::FACTS), resident);
    run(&executor, 0, resident as u32).unwrap();
    let Err(LaunchError::Excess { kernel: "relax", excess }) = run(&executor, 0, resident as u32 + 1) else {
        panic!("not refused")
    };
    assert_eq!(excess, Excess::Cooperative { grid: [resident as u32 + 1, 1, 1], limit: resident });
    assert!(excess.to_string().ends_with("launch no more, and have a block do more"), "{excess}");
}

/// Meets without saying that it will.
#[kernel(block = 32)]
fn unannounced(met: GlobalAtomics<'_, u32>) {
    unsafe { grid::sync(met) }; // <unannounced>
}

#[test]
fn who_meets_says_so() {
    let mut met = [0];
    let result = common::launch(Checks::Bounds, unannounced { met: GlobalAtomics::new(&mut met) }, 1);
    let Err(LaunchError::Fault(fault)) = result else { panic!("not found") };
    assert_eq!(fault.kind, FaultKind::NotCooperative);
    assert_eq!(fault.location.as_ref().unwrap().line, line_of(SOURCE, "unannounced"));
    assert!(fault.to_string().contains("write `cooperative`"), "{fault}");
}
