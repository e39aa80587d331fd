//! What the executor's tests have in common.

#![allow(dead_code, reason = "not every test uses everything")]

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor, Fault, LaunchError};
use cuda_std::{Dim3, Kernel};

/// Both ways to check, for what has to be the same in both.
pub(crate) const ALL_CHECKS: [Checks; 2] = [Checks::Bounds, Checks::Full];

/// Launches a kernel whose views the caller has made of slices.
pub(crate) fn launch<K: Kernel>(
    checks: Checks,
    kernel: K,
    grid: impl Into<Dim3>,
    shared_bytes: usize,
) -> Result<(), LaunchError> {
    static EXECUTORS: LazyLock<[Executor; 2]> = LazyLock::new(|| ALL_CHECKS.map(Executor::new));
    // SAFETY: the views are of slices that the test borrows, mutably where they are mutable.
    unsafe { EXECUTORS[checks as usize].launch(kernel, grid.into(), shared_bytes) }
}

/// Launches a kernel that is right.
pub(crate) fn succeed<K: Kernel>(checks: Checks, kernel: K, grid: impl Into<Dim3>) {
    if let Err(error) = launch(checks, kernel, grid, 0) {
        panic!("{checks:?}: {error}");
    }
}

/// Launches a kernel that is wrong.
pub(crate) fn fault<K: Kernel>(checks: Checks, kernel: K, grid: impl Into<Dim3>) -> Fault {
    match launch(checks, kernel, grid, 0) {
        Err(LaunchError::Fault(fault)) => {
            assert_eq!(fault.kernel, K::NAME);
            *fault
        }
        other => panic!("{checks:?}: expected a fault of `{}`, got {other:?}", K::NAME),
    }
}

/// The number of the line that has the comment `// <mark>`.
pub(crate) fn line_of(source: &str, mark: &str) -> u32 {
    let comment = format!("// <{mark}>");
    let mut lines = (1..).zip(source.lines()).filter(|(_, line)| line.ends_with(&comment));
    match (lines.next(), lines.next()) {
        (Some((number, _)), None) => number,
        _ => panic!("there should be one line with the mark `{mark}`"),
    }
}

/// A position from its coordinates.
pub(crate) fn at(x: u32, y: u32, z: u32) -> Dim3 {
    Dim3::new(x, y, z)
}
