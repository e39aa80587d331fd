//! Whether an operation computes what it says: on any device, and on the executor with all its checks and the limits of several GPUs.

use std::fmt;

use cuda_std::executor::{Checks, LaunchError};
use cuda_std::{ComputeCapability, Limits};
use runtime::Device;
use serde::{Serialize, Serializer};

use crate::Error;
use crate::executor::executor;
use crate::operation::{Bits, Description, Operation, Sizes};
use crate::trial::{Accuracy, Outputs, Trial};

/// How often each case is run, to see whether the bits are the same.
const RUNS: u64 = 3;

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
    /// The schedules with which the executor shows again what was wrong; none if nothing was, or if [`check_schedules`] has not run the case.
    pub schedules: Option<Schedules>,
}

impl Case {
    pub(crate) fn of(sizes: String, result: Result<Accuracy, Error>) -> Self {
        match result {
            Ok(accuracy) => Self { sizes, accuracy: Some(accuracy), failure: None, schedules: None },
            Err(error) => Self { sizes, accuracy: None, failure: Some(error), schedules: None },
        }
    }
}

/// In which orders the executor has blocks take turns that can wait for one another: as
/// [`Executor::schedule`](cuda_std::executor::Executor::schedule) with each of some seeds, one after the other.
///
/// ```
/// use operations::Schedules;
///
/// assert_eq!(Schedules::default(), Schedules { first: 0, count: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schedules {
    /// The first seed.
    pub first: u64,
    /// How many there are. None is taken for one.
    pub count: u64,
}

impl Default for Schedules {
    fn default() -> Self {
        Self { first: 0, count: 1 }
    }
}

impl Schedules {
    /// The seed of a run, counted from 0.
    const fn of_run(self, run: u64) -> u64 {
        self.first.wrapping_add(run)
    }
}

/// As the flags that ask for them, which are left out where they would say nothing new.
impl fmt::Display for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, count } = self;
        if *count > 1 {
            write!(f, " --schedules {count}")?;
        }
        if *first > 0 { write!(f, " --schedule-seed {first}") } else { Ok(()) }
    }
}

pub(crate) fn as_text<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    error.as_ref().map(Error::to_string).serialize(serializer)
}

impl Report {
    /// How many failures are told in full.
    pub(crate) const SHOWN: usize = 3;

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
        write!(f, "{operation} on {device}: {} of {} cases right", right.len(), cases.len())?;
        // Where no element was right, there is no error to speak of.
        if all.elements > 0 {
            write!(
                f,
                ", {} elements, error at most {:.2e}, {:.0} % of what is allowed",
                all.elements,
                all.error,
                100.0 * all.part_of_bound
            )?;
        }
        for case in cases.iter().filter(|case| case.failure.is_some()).take(Self::SHOWN) {
            let Case { sizes, failure: Some(error), schedules, .. } = case else { continue };
            write!(f, "\n  FAILED {sizes}: {error}\n    again: ")?;
            match schedules {
                Some(schedules) => {
                    write!(f, "check --op {operation} --sizes {sizes} --seed {seed} --device cpu{schedules}")?;
                }
                None => write!(f, "run --op {operation} --sizes {sizes} --seed {seed}")?,
            }
        }
        match self.failures().count().saturating_sub(Self::SHOWN) {
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
    let description = operation.describe();
    let cases = description.cases(!device.is_cpu())?;
    let cases = listed(&description, device, || {
        cases.into_iter().map(|sizes| check_case(operation, device, sizes, seed)).collect()
    })?;
    Ok(Report { operation: description.name, device: device.name(), seed, cases })
}

/// What an action gives, if no kernel was loaded for it on a device that the operation does not name.
fn listed<T>(description: &Description, device: &Device, action: impl FnOnce() -> T) -> Result<T, Error> {
    // A device that others have used may have loaded a kernel before.
    let before = device.loaded_kernels().len();
    let result = action();
    let is_listed = |kernel: &str| description.kernels.iter().any(|known| known.name == kernel);
    match device.loaded_kernels().iter().skip(before).find(|kernel| !is_listed(&kernel.name)) {
        Some(unlisted) => Err(Error::UnlistedKernel { operation: description.name, kernel: unlisted.name.clone() }),
        None => Ok(result),
    }
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
    let mut runs = Runs::new(operation, sizes, seed)?;
    for number in 1..=RUNS {
        runs.run(device, || format!("in runs 1 and {number}"))?;
    }
    Ok(runs.accuracy)
}

/// Runs of one case, which are to give the same.
struct Runs<'a> {
    trial: Trial<'a>,
    /// Of the first one.
    outputs: Option<Outputs>,
    accuracy: Accuracy,
}

impl<'a> Runs<'a> {
    fn new(operation: &'a dyn Operation, sizes: Sizes, seed: u64) -> Result<Self, Error> {
        Ok(Self { trial: Trial::new(operation, sizes, seed)?, outputs: None, accuracy: Accuracy::default() })
    }

    /// One more. `beside` names the first one and this, should they differ.
    fn run(&mut self, device: &Device, beside: impl FnOnce() -> String) -> Result<(), Error> {
        let outputs = self.trial.run(device)?;
        match (&self.outputs, self.trial.description.bits) {
            (Some(first), Bits::Same | Bits::SameOnOneDevice) => self.trial.compare(&beside(), first, &outputs)?,
            (None, _) | (_, Bits::Vary) => {
                self.accuracy = self.accuracy.and(self.trial.judge(&outputs)?);
                self.outputs.get_or_insert(outputs);
            }
        }
        Ok(())
    }
}

/// Runs the small cases on the executor as [`check_schedules`] does, with the first schedule.
///
/// # Errors
/// Those of [`check`].
pub fn check_executor(operation: &dyn Operation, seed: u64) -> Result<Report, Error> {
    check_schedules(operation, operation.describe().cases(false)?, seed, Schedules::default())
}

/// Runs cases on the executor with all its checks, with each of some schedules: as [`check`] does with the limits of compute capability
/// 9.0, and with the first schedule once with the limits of each that offers less. What does not fit there has to be refused, and what fits
/// has to run. Each case runs three times at least, each time with the next schedule: runs beyond the schedules that were asked for only
/// show whether bits are the same, with [`Checks::Bounds`].
///
/// ```
/// # use operations::{Error, Operation, Schedules, check_schedules};
/// # fn twenty_orders(operation: &dyn Operation) -> Result<(), Error> {
/// let sizes = operation.describe().parse_sizes("n=1000")?;
/// let report = check_schedules(operation, vec![sizes], 1, Schedules { first: 0, count: 20 })?;
/// assert!(report.holds(), "{report}"); // and with which schedule to look at it again
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::UnlistedKernel`]. What is wrong with a case is in the report.
pub fn check_schedules(
    operation: &dyn Operation,
    cases: Vec<Sizes>,
    seed: u64,
    schedules: Schedules,
) -> Result<Report, Error> {
    let description = operation.describe();
    let schedules = Schedules { count: schedules.count.max(1), ..schedules };
    let mut devices = Vec::new();
    for run in 0..RUNS {
        devices.push(device_of_run(schedules, run)?);
    }
    let cases = listed(&description, &devices[0], || {
        cases.into_iter().map(|sizes| case_with_schedules(operation, &devices, sizes, seed, schedules)).collect()
    })?;
    let device = match schedules.count {
        1 => "the CPU executor with all checks".to_owned(),
        count => format!("the CPU executor with all checks and {count} schedules"),
    };
    Ok(Report { operation: description.name, device, seed, cases })
}

/// The executor of a run, counted from 0: with all checks, unless it is there for the bits alone.
fn device_of_run(schedules: Schedules, run: u64) -> Result<Device, Error> {
    let checks = if run < schedules.count { Checks::Full } else { Checks::Bounds };
    Ok(Device::with_executor(executor(checks)?.schedule(schedules.of_run(run))))
}

/// What is wrong with a case, and the schedules that show it again.
struct Wrong {
    error: Box<Error>,
    again: Schedules,
}

/// One case; `devices` are those of the first runs.
fn case_with_schedules(
    operation: &dyn Operation,
    devices: &[Device],
    sizes: Sizes,
    seed: u64,
    schedules: Schedules,
) -> Case {
    let text = sizes.to_string();
    let with_first = |error| Wrong { error: Box::new(error), again: Schedules { count: 1, ..schedules } };
    let result = Runs::new(operation, sizes.clone(), seed)
        .map_err(with_first)
        .and_then(|runs| run_schedules(runs, devices, schedules))
        .and_then(|accuracy| {
            run_with_lesser_limits(operation, sizes, seed, schedules.first).map(|()| accuracy).map_err(with_first)
        });
    match result {
        Ok(accuracy) => Case::of(text, Ok(accuracy)),
        Err(Wrong { error, again }) => Case { schedules: Some(again), ..Case::of(text, Err(*error)) },
    }
}

/// All runs of a case, each with the next schedule.
fn run_schedules(mut runs: Runs<'_>, devices: &[Device], schedules: Schedules) -> Result<Accuracy, Wrong> {
    for run in 0..schedules.count.max(RUNS) {
        let own;
        let device = match devices.get(run as usize) {
            Some(device) => device,
            None => {
                let with_first = |error| Wrong { error: Box::new(error), again: Schedules { count: 1, ..schedules } };
                own = device_of_run(schedules, run).map_err(with_first)?;
                &own
            }
        };
        let [one, other] = [0, run].map(|run| schedules.of_run(run));
        let beside = || format!("in runs 1 and {}, with schedules {one} and {other}", run + 1);
        runs.run(device, beside).map_err(|error| wrong_in_run(&runs.trial, schedules, run, error))?;
    }
    Ok(runs.accuracy)
}

/// What is wrong in a run, counted from 0. One that was there for the bits alone may say more with all checks, and so is made again.
fn wrong_in_run(trial: &Trial<'_>, schedules: Schedules, run: u64, error: Error) -> Wrong {
    let own = Schedules { first: schedules.of_run(run), count: 1 };
    let error = match run >= schedules.count {
        true => device_of_run(own, 0).and_then(|device| trial.run(&device)).err().unwrap_or(error),
        false => error,
    };
    let again = match error {
        // It takes this run and the first one. There are always as many as this.
        Error::Varies { .. } if run < RUNS => Schedules { count: 1, ..schedules },
        Error::Varies { .. } => Schedules { count: run + 1, ..schedules },
        _ => own,
    };
    Wrong { error: Box::new(error), again }
}

/// One case, with the limits of each set of compute capabilities that offers less than 9.0.
fn run_with_lesser_limits(operation: &dyn Operation, sizes: Sizes, seed: u64, schedule: u64) -> Result<(), Error> {
    for (capability, limits) in lesser_limits() {
        run_with_limits(operation, sizes.clone(), seed, limits, schedule)
            .map_err(|error| Error::OnCapability { capability: capability.to_string(), source: Box::new(error) })?;
    }
    Ok(())
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

fn run_with_limits(
    operation: &dyn Operation,
    sizes: Sizes,
    seed: u64,
    limits: Limits,
    schedule: u64,
) -> Result<(), Error> {
    let device = Device::with_executor(executor(Checks::Full)?.with_limits(limits).schedule(schedule));
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
    fn a_report_speaks_of_errors_where_there_are_some() {
        let report = |result| {
            let cases = vec![Case::of("n=1".to_owned(), result)];
            Report { operation: "sum", device: "a GPU".to_owned(), seed: 1, cases }.to_string()
        };
        let right = report(Ok(Accuracy { elements: 2, error: 0.5, part_of_bound: 0.25 }));
        assert_eq!(
            right,
            "sum on a GPU: 1 of 1 cases right, 2 elements, error at most 5.00e-1, 25 % of what is allowed"
        );
        let wrong = |found, error| {
            let (argument, position, bits) = ("y", "[0]".to_owned(), 7);
            report(Err(Error::Wrong {
                argument,
                position,
                found,
                bits,
                value: 1.0,
                error,
                bound: 0.5,
                wrong: 1,
                len: 1,
            }))
        };
        let number = wrong(3.0, 2.0);
        assert!(number.starts_with("sum on a GPU: 0 of 1 cases right\n  FAILED n=1: output `y`"), "{number}");
        assert!(number.contains("expected 1e0, which is 2.000e0 off, more than 5.000e-1; 1 of 1"), "{number}");
        let none = wrong(f64::NAN, f64::INFINITY);
        assert!(none.contains("found NaN (bits 0x7), expected 1e0; 1 of 1"), "{none}");
    }

    #[test]
    fn limits_that_differ_are_tried_once_each() {
        let shared: Vec<_> = lesser_limits().map(|(_, limits)| limits.shared_bytes >> 10).collect();
        assert_eq!(shared, [163, 99]);
    }
}
