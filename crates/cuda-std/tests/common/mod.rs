//! What the executor's tests have in common.

#![allow(dead_code, reason = "not every test uses everything")]

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor, Fault, FaultKind, LaunchError};
use cuda_std::{ContractViolation, Dim3, Kernel, KernelFacts, View};

/// Both ways to check, for what has to be the same in both.
pub(crate) const ALL_CHECKS: [Checks; 2] = [Checks::Bounds, Checks::Full];

/// Launches a kernel whose views the caller has made of slices.
pub(crate) fn launch<K: Kernel>(checks: Checks, kernel: K, grid: impl Into<Dim3>) -> Result<(), LaunchError> {
    static EXECUTORS: LazyLock<[Executor; 2]> = LazyLock::new(|| ALL_CHECKS.map(Executor::new));
    // SAFETY: the views are of slices that the test borrows, mutably where they are mutable.
    unsafe { EXECUTORS[checks as usize].launch(kernel, grid.into()) }
}

/// Launches a kernel that is right.
pub(crate) fn succeed<K: Kernel>(checks: Checks, kernel: K, grid: impl Into<Dim3>) {
    if let Err(error) = launch(checks, kernel, grid) {
        panic!("{checks:?}: {error}");
    }
}

/// Launches a kernel that is wrong.
pub(crate) fn fault<K: Kernel>(checks: Checks, kernel: K, grid: impl Into<Dim3>) -> Fault {
    match launch(checks, kernel, grid) {
        Err(LaunchError::Fault(fault)) => {
            assert_eq!(fault.kernel, K::NAME);
            *fault
        }
        other => panic!("{checks:?}: expected a fault of `{}`, got {other:?}", K::NAME),
    }
}

/// What went wrong: the first line of a report.
pub(crate) fn what(fault: &Fault) -> String {
    fault.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A kernel with another size of dynamic shared memory than its own.
#[derive(Clone, Copy)]
pub(crate) struct WithShared<const BYTES: u32, K>(pub(crate) K);

// SAFETY: the kernel's own implementation does everything.
unsafe impl<const BYTES: u32, K: Kernel> Kernel for WithShared<BYTES, K> {
    const FACTS: KernelFacts = KernelFacts { dynamic_shared_bytes: BYTES, ..K::FACTS };

    fn check(&self) -> Result<(), ContractViolation> {
        self.0.check()
    }

    fn visit_params(&self, visit: &mut dyn FnMut(*const core::ffi::c_void)) {
        self.0.visit_params(visit);
    }

    fn visit_views(&self, visit: &mut dyn FnMut(View<'_>)) {
        self.0.visit_views(visit);
    }

    unsafe fn run_thread(self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.run_thread() }
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

/// The lines of both sides of a race.
pub(crate) fn lines_of_race(fault: &Fault) -> [u32; 2] {
    let FaultKind::Race { other, .. } = &fault.kind else { panic!("expected a race, got: {fault}") };
    let mut lines = [other.location.line, fault.location.as_ref().unwrap().line];
    lines.sort_unstable();
    lines
}

/// A position from its coordinates.
pub(crate) fn at(x: u32, y: u32, z: u32) -> Dim3 {
    Dim3::new(x, y, z)
}
