//! Whether an operation computes what it says: on any device, and on the executor with all its checks and the limits of several GPUs.

use std::fmt;

use cuda_std::executor::{Checks, LaunchError};
use cuda_std::{ComputeCapability, Limits};
use runtime::Device;
use serde::{Serialize, Serializer};

use crate::Error;
use crate::executor::executor;
use crate::operation::{Bits, Operation, Sizes};
use crate::trial::{Accuracy, Trial};

/// How often each case is run, to see whether the bits are the same.
const RUNS: usize = 3;

/// How many failures are told in full.
const SHOWN: usize = 3;

/// What has come of the cases of an operation on a device.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The operation.
    pub operation: &'static str,
    /// Where it ran.
    pub device: String,
    /// What the numbers were generated from.
    pub seed: u64,
    /// The cases.
    pub cases: Vec<Case>,
}

/// What has come of one case.
#[derive(Debug, Serialize)]
pub struct Case {
    /// Its sizes, as `--sizes` takes them.
    pub sizes: String,
    /// How accurate the result was, if it was right.
    pub accuracy: Option<Accuracy>,
    /// What was wrong.
    #[serde(serialize_with = "as_text")]
    pub failure: Option<Error>,
}

impl Case {
    pub(crate) fn of(sizes: String, result: Result<Accuracy, Error>) -> Self {
        match result {
            Ok(accuracy) => Self { sizes, accuracy: Some(accuracy), failure: None },
            Err(error) => Self { sizes, accuracy: None, failure: Some(error) },
        }
    }
}

pub(crate) fn as_text<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(Error::to_string).serialize(serializer)
}

impl Report {
    /// Whether there was something to see, and all of it was right.
    pub fn holds(&self) -> bool {
        !self.cases.is_empty() && self.failures().next().is_none()
    }

    /// The cases that were wrong, and what was.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &Error)> {
        self.cases.iter().filter_map(|case| Some((&*case.sizes, case.failure.as_ref()?)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, device, seed, cases } = self;
        let right: Vec<_> = cases.iter().filter_map(|case| case.accuracy).collect();
        let all = right.iter().fold(Accuracy::default(), |all, accuracy| all.and(*accuracy));
        write!(
            f,
            "{operation} on {device}: {} of {} cases right, {} elements, error at most {:.2e}, {:.0} % of what is allowed",
            right.len(),
            cases.len(),
            all.elements,
            all.error,
            100.0 * all.part_of_bound
        )?;
        for (sizes, error) in self.failures().take(SHOWN) {
            write!(f, "\n  FAILED {sizes}: {error}\n    again: run --op {operation} --sizes {sizes} --seed {seed}")?;
        }
        match self.failures().count().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Runs all cases that are meant for a device: the small ones on the executor, all on a GPU. Each runs three times. What is looked at:
/// guard words, inputs, unwritten elements, every element against the reference, and the bits of the three runs.
///
/// # Errors
/// [`Error::NoCases`] and [`Error::SizesMismatch`] for cases that are none. What is wrong with a case is in the report.
pub fn check(operation: &dyn Operation, device: &Device, seed: u64) -> Result<Report, Error> {
    check_on(operation, [device; RUNS], seed)
}

/// The same, each run on a device of its own. The first is the one that the report names.
fn check_on(operation: &dyn Operation, devices: [&Device; RUNS], seed: u64) -> Result<Report, Error> {
    let device = devices[0];
    let description = operation.describe();
    let loaded_before = device.loaded_kernels().len();
    let cases = description.cases(!device.is_cpu())?;
    let case_of = |sizes: Sizes| Case::of(sizes.to_string(), run_on(operation, devices, sizes, seed));
    let cases = cases.into_iter().map(case_of).collect();
    // A device that others have used may have loaded a kernel before.
    let loaded = device.loaded_kernels();
    let is_listed = |kernel: &str| description.kernels.iter().any(|known| known.name == kernel);
    if let Some(unlisted) = loaded.iter().skip(loaded_before).find(|kernel| !is_listed(&kernel.name)) {
        return Err(Error::UnlistedKernel { operation: description.name, kernel: unlisted.name.clone() });
    }
    Ok(Report { operation: description.name, device: device.name(), seed, cases })
}

/// Runs one case three times, and looks at it as [`check()`] does. What is wrong with it is in the result.
pub fn check_case(operation: &dyn Operation, device: &Device, sizes: Sizes, seed: u64) -> Case {
    Case::of(sizes.to_string(), run(operation, device, sizes, seed))
}

/// One case, three times.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn run(operation: &dyn Operation, device: &Device, sizes: Sizes, seed: u64) -> Result<Accuracy, Error> {
    run_on(operation, [device; RUNS], sizes, seed)
}

fn run_on(
    operation: &dyn Operation,
    [first, others @ ..]: [&Device; RUNS],
    sizes: Sizes,
    seed: u64,
) -> Result<Accuracy, Error> {
    let trial = Trial::new(operation, sizes, seed)?;
    let outputs = trial.run(first)?;
    let mut accuracy = trial.judge(&outputs)?;
    for (device, run) in others.into_iter().zip(2..) {
        let again = trial.run(device)?;
        match trial.description.bits {
            Bits::Vary => accuracy = accuracy.and(trial.judge(&again)?),
            Bits::Same | Bits::SameOnOneDevice => {
                trial.compare(&format!("in runs 1 and {run}"), &outputs, &again)?;
            }
        }
    }
    Ok(accuracy)
}

/// Runs the small cases on the executor with all its checks: as [`check`] does with the limits of compute capability 9.0, and once with
/// the limits of each that offers less. What does not fit there has to be refused, and what fits has to run. The second and the third run,
/// which only show whether bits are the same, are with [`Checks::Bounds`].
///
/// # Errors
/// Those of [`check`].
pub fn check_executor(operation: &dyn Operation, seed: u64) -> Result<Report, Error> {
    let [checked, fast] = [executor(Checks::Full)?, executor(Checks::Bounds)?].map(Device::with_executor);
    let mut report = check_on(operation, [&checked, &fast, &fast], seed)?;
    report.device = "the CPU executor with all checks".to_owned();
    let description = operation.describe();
    for (sizes, case) in description.cases(false)?.into_iter().zip(&mut report.cases) {
        // What is wrong everywhere needs no second word.
        if case.failure.is_some() {
            continue;
        }
        let failure = lesser_limits().find_map(|(capability, limits)| {
            let result = run_with_limits(operation, sizes.clone(), seed, limits);
            let source = Box::new(result.err()?);
            Some(Error::OnCapability { capability: capability.to_string(), source })
        });
        if failure.is_some() {
            case.accuracy = None;
            case.failure = failure;
        }
    }
    Ok(report)
}

/// The compute capabilities that refuse other launches than 9.0 does; one for each set of limits.
fn lesser_limits() -> impl Iterator<Item = (ComputeCapability, Limits)> {
    let counts = |limits: &Limits| (limits.threads_per_block, limits.block, limits.grid, limits.shared_bytes);
    let mut seen = vec![counts(&Limits::of_hopper())];
    Limits::known().filter_map(move |capability| {
        let limits = Limits::of(capability)?;
        let is_new = !seen.contains(&counts(&limits));
        seen.push(counts(&limits));
        is_new.then_some((capability, limits))
    })
}

fn run_with_limits(operation: &dyn Operation, sizes: Sizes, seed: u64, limits: Limits) -> Result<(), Error> {
    let device = Device::with_executor(executor(Checks::Full)?.with_limits(limits));
    let trial = Trial::new(operation, sizes, seed)?;
    match trial.run(&device) {
        Ok(outputs) => trial.judge(&outputs).map(drop),
        Err(Error::Runtime(runtime::Error::Executor(LaunchError::Excess { kernel, excess }))) => {
            // A kernel for one architecture has no business elsewhere, whatever fits.
            let fits = |kernel: &cuda_std::KernelFacts| limits.check(kernel).is_ok() && kernel.arch.is_none();
            if trial.description.kernels.iter().all(fits) {
                return Err(runtime::Error::Executor(LaunchError::Excess { kernel, excess }).into());
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The whole of a test: [`check_executor`], with a panic for whatever is wrong.
///
/// # Panics
/// If a case is wrong, with the report.
pub fn assert_checks(operation: &dyn Operation) {
    match check_executor(operation, 1) {
        Ok(report) => assert!(report.holds(), "{report}"),
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_differ_are_tried_once_each() {
        let shared: Vec<_> = lesser_limits().map(|(_, limits)| limits.shared_bytes >> 10).collect();
        assert_eq!(shared, [163, 99]);
    }
}
