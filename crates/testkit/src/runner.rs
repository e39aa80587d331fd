//! The program over operations, as a library: what `main` of any crate calls.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use cuda_std::executor::Checks;
use runtime::{Device, KernelSet};
use serde::Serialize;

use crate::callers::CALLERS;
use crate::counters::CostTask;
use crate::sanitize::{Planted, SanitizeTask};
use crate::trace_task::TraceTask;
use crate::written::{Provenance, WrittenMeasurement};
use crate::{
    Description, Error, Nearest, Operation, Report, Schedules, Sizes, agreement, bench, check, check_case,
    check_schedules, child, ending, executor, mutants, trace,
};

/// What was asked for cannot be done: as clap says of flags that it does not know.
const REFUSED: u8 = 2;

/// Runs operations, checks them and measures them, on a GPU or on the CPU executor.
#[derive(Parser)]
struct Arguments {
    /// What to do [default: check]
    #[command(subcommand)]
    task: Option<Task>,
}

/// What a program over operations can do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Runs one case of an operation, and compares every element with the reference.
    Run(RunTask),
    /// Measures operations. On the executor it says how long the checks take, and nothing about a GPU.
    Bench(BenchTask),
    /// Runs operations on a GPU under the tools of NVIDIA's compute-sanitizer.
    Sanitize(SanitizeTask),
    #[allow(missing_docs, reason = "what is documented here would be the help of the program")]
    #[command(flatten)]
    Check(CheckTask),
}

/// What a program over operations can do besides running and measuring them.
#[derive(Debug, Subcommand)]
pub enum CheckTask {
    /// Lists the operations, their sizes, their kernels.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print a table for documentation.
        #[arg(long, conflicts_with = "json")]
        markdown: bool,
    },
    /// Checks operations: on the executor with all its checks, and on a GPU if there is one.
    Check {
        /// Only this case: the sizes, as `rows=3,cols=4`. Needs `--op` where operations have other sizes.
        #[arg(long, value_name = "SIZES")]
        sizes: Option<String>,
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        orders: Orders,
        /// Show where kernels make the first NaN, infinity or subnormal number, or lose an addend, on the executor.
        #[arg(long)]
        trace_values: bool,
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        wanted: Wanted,
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        common: Common,
    },
    /// Compares the bits of a GPU's results with those of the executor's.
    Agreement {
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        wanted: Wanted,
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        common: Common,
        /// How many sets of numbers each case is computed with.
        #[arg(long, value_name = "COUNT", default_value_t = 3)]
        seeds: u64,
    },
    /// Counts on the executor what each line of the kernels would cost on a GPU: sectors of global memory, bank conflicts, lanes that take
    /// part.
    Cost(CostTask),
    /// Shows what a block of a kernel does, step by step, on the executor: accesses, barriers, transfers and products of each warp. (Where
    /// NaNs come from, `check --trace-values` shows.)
    Trace(TraceTask),
    /// Leaves out each call that orders threads, and sees whether the checks tell.
    Mutants {
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        wanted: Wanted,
        #[allow(missing_docs, reason = "its flags are documented")]
        #[command(flatten)]
        common: Common,
        /// After how many seconds a kernel counts as one that never ends.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        limit: u64,
    },
}

/// One case of an operation.
#[derive(Args, Clone, Debug)]
pub struct RunTask {
    /// The operation.
    #[arg(long, value_name = "NAME")]
    pub op: String,
    /// The sizes, as `rows=3,cols=4` [default: the last large case on a GPU, the last small one on the executor]
    #[arg(long, value_name = "SIZES")]
    pub sizes: Option<String>,
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub orders: Orders,
    /// Show where kernels make the first NaN, infinity or subnormal number, or lose an addend, on the executor.
    #[arg(long)]
    pub trace_values: bool,
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub common: Common,
}

/// Measurements.
#[derive(Args, Clone, Debug)]
pub struct BenchTask {
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub wanted: Wanted,
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub common: Common,
    /// The sizes, as `rows=3,cols=4` [default: the last large case on a GPU, the last small one on the executor]
    #[arg(long, value_name = "SIZES")]
    pub sizes: Option<String>,
    /// How often each is measured.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub runs: usize,
}

/// Which operations are meant. The default is all.
#[derive(Args, Clone, Debug, Default)]
pub struct Wanted {
    /// Only this operation.
    #[arg(long, value_name = "NAME")]
    pub op: Option<String>,
    /// Only the operations that launch this kernel.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
}

/// The orders in which the executor has blocks take turns that can wait for one another. The default is one.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    /// In how many orders blocks that can wait for one another take turns on the executor, each with all checks.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: u64,
    /// What decides the first of these orders; the others have the numbers after it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub schedule_seed: u64,
}

impl Default for Orders {
    fn default() -> Self {
        let Schedules { first, count } = Schedules::default();
        Self { schedules: count, schedule_seed: first }
    }
}

impl Orders {
    fn schedules(self) -> Schedules {
        Schedules { first: self.schedule_seed, count: self.schedules }
    }

    /// Refuses a GPU, unless nothing was asked for.
    fn require_executor(self, device: &Device) -> Result<(), Error> {
        if device.is_cpu() || self == Self::default() {
            return Ok(());
        }
        Err(Error::SchedulesOnGpu { device: device.name() })
    }
}

/// What all tasks have in common.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// What numbers are generated from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Where to run: `cpu`, or `cuda:N` or N for GPU number N [default: the first GPU, or the executor where there is none]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Print JSON, one line for each operation.
    #[arg(long)]
    pub json: bool,
}

impl Default for Common {
    fn default() -> Self {
        Self { seed: 1, device: None, json: false }
    }
}

/// The program: `fn main() -> ExitCode { testkit::main(&[&Axpy], &[&KERNELS]) }`.
///
/// Without arguments it checks all operations. It exits with 0 only if everything was right, with 1 if something was wrong, and with 2 if
/// what was asked for cannot be done.
pub fn main(operations: &[&'static dyn Operation], kernel_sets: &[&'static KernelSet]) -> ExitCode {
    ending::end_with_the_reader();
    let program = Program { operations, kernel_sets, planted: &[] };
    let task = Arguments::parse().task;
    if matches!(task, Some(Task::Sanitize(_) | Task::Check(CheckTask::Cost(_)))) {
        // These start other processes.
        ending::listen(|signal| {
            child::end_all();
            eprintln!("interrupted");
            ending::exit(ending::SIGNALLED + signal);
        });
    }
    match program.run(task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

/// A program over operations, for one that does other things besides.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The operations.
    pub operations: &'a [&'static dyn Operation],
    /// The PTX of their kernels. Without, everything runs on the executor.
    pub kernel_sets: &'a [&'static KernelSet],
    /// Kernels with a fault each, which the tools of `sanitize` have to report. Without, its report says that nothing shows whether they
    /// find anything.
    pub planted: &'a [Planted],
}

impl Program<'_> {
    /// Why a program without kernel sets has no GPU.
    pub(crate) const NO_KERNEL_SETS: &'static str =
        "this program has no kernel sets: see `cuda_builder::embed` and `runtime::kernel_set!`";

    /// Does what was asked for, and prints what came of it. Whether everything was right. Without a task, it checks everything.
    ///
    /// # Errors
    /// [`Error::UnknownOperation`], [`Error::UnknownKernel`], [`Error::UnknownDevice`]; those of the task. What is wrong with one of
    /// several operations is printed, and is no error.
    ///
    /// [`Task::Sanitize`] starts processes. A program that may be told to end meanwhile calls [`ending::listen`] before.
    pub fn run(&self, task: Option<Task>) -> Result<bool, Error> {
        let check_all = || {
            let (wanted, common, orders) = (Wanted::default(), Common::default(), Orders::default());
            Task::Check(CheckTask::Check { sizes: None, orders, trace_values: false, wanted, common })
        };
        match task.unwrap_or_else(check_all) {
            Task::Run(task) => self.run_one(&task),
            Task::Bench(BenchTask { wanted, common, sizes, runs }) => {
                let device = self.device(&common)?;
                let provenance = Provenance::of(self.kernel_sets, &device);
                self.each(&wanted, |operation| {
                    let sizes = sizes_for(operation, &device, sizes.as_deref())?;
                    let measurement = bench(operation, &device, sizes, runs, common.seed)?;
                    Ok(show(&WrittenMeasurement::new(&provenance, measurement), common.json, true))
                })
            }
            Task::Sanitize(task) => self.sanitize(task),
            Task::Check(CheckTask::List { markdown: true, .. }) => {
                print!("{}", markdown(self.operations));
                Ok(true)
            }
            Task::Check(CheckTask::List { json, .. }) => Ok(self.list(json)),
            Task::Check(CheckTask::Check { sizes, orders, trace_values, wanted, common }) => {
                let sizes = sizes.as_deref();
                let is_right = self.check(&wanted, sizes, orders, &common)?;
                let is_traced = !trace_values
                    || self.each(&wanted, |operation| {
                        let cases = cases_for(operation, sizes)?;
                        Ok(show(&trace(operation, cases, common.seed, orders.schedule_seed)?, common.json, true))
                    })?;
                Ok(is_right && is_traced)
            }
            Task::Check(CheckTask::Agreement { wanted, common, seeds }) => self.agreement(&wanted, &common, seeds),
            Task::Check(CheckTask::Cost(task)) => self.cost(&task),
            Task::Check(CheckTask::Trace(task)) => self.trace(&task),
            Task::Check(CheckTask::Mutants { wanted, common, limit }) => {
                let limit = Duration::from_secs(limit);
                self.each(&wanted, |operation| {
                    let found = mutants(operation, common.seed, limit)?;
                    Ok(show(&found, common.json, found.survivors().next().is_none()))
                })
            }
        }
    }

    /// The operation of this name.
    ///
    /// # Errors
    /// [`Error::UnknownOperation`], with the three names that are nearest.
    pub fn operation(&self, name: &str) -> Result<&'static dyn Operation, Error> {
        Ok(named(self.operations, name)?[0])
    }

    /// Does something for each operation that is meant. What is wrong with one is said, and the others have their turn.
    pub(crate) fn each(
        &self,
        wanted: &Wanted,
        action: impl FnMut(&'static dyn Operation) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        Ok(each_of(&select(self.operations, wanted)?, action))
    }

    fn list(&self, json: bool) -> bool {
        for operation in self.operations {
            let description = operation.describe();
            let kernels: Vec<_> = description.kernels.iter().map(|kernel| kernel.name).collect();
            let (name, idea, sizes) = (description.name, description.idea, description.sizes);
            if json {
                // A case that does not fit its operation is what `check` is there to tell.
                let as_text = |cases: &[Vec<usize>]| -> Vec<String> {
                    let sizes = cases.iter().filter_map(|case| description.sizes_of(case).ok());
                    sizes.map(|sizes| sizes.to_string()).collect()
                };
                let (small, large) = (as_text(&description.small), as_text(&description.large));
                let line = serde_json::json!({
                    "name": name, "idea": idea, "sizes": sizes, "kernels": kernels, "small": small, "large": large
                });
                println!("{line}");
            } else {
                println!("{name}: {idea}\n  sizes {}; kernels {}", sizes.join(", "), kernels.join(", "));
            }
        }
        true
    }

    fn run_one(&self, task: &RunTask) -> Result<bool, Error> {
        let RunTask { op, sizes: wanted_sizes, orders, trace_values, common } = task;
        let operations = select(self.operations, &Wanted { op: Some(op.clone()), kernel: None })?;
        let device = self.device(common)?;
        orders.require_executor(&device)?;
        let mut all_right = true;
        for operation in operations {
            let sizes = sizes_for(operation, &device, wanted_sizes.as_deref())?;
            if *trace_values {
                let traced = trace(operation, vec![sizes.clone()], common.seed, orders.schedule_seed)?;
                show(&traced, common.json, true);
            }
            let report = if device.is_cpu() {
                check_schedules(operation, vec![sizes], common.seed, orders.schedules())?
                    .with_callers(operation, CALLERS)
            } else {
                on_gpu(operation, &device, sizes, common.seed)
            };
            let is_right = report.holds();
            all_right &= show(&report, common.json, is_right);
        }
        Ok(all_right)
    }

    fn check(&self, wanted: &Wanted, sizes: Option<&str>, orders: Orders, common: &Common) -> Result<bool, Error> {
        let device = self.device(common)?;
        if common.device.is_some() {
            orders.require_executor(&device)?;
        }
        self.each(wanted, |operation| {
            let mut all_right = true;
            // On a GPU the executor's checks come first, unless only the GPU was asked for: it may not survive what they find.
            if device.is_cpu() || common.device.is_none() {
                let cases = cases_for(operation, sizes)?;
                let report = check_schedules(operation, cases, common.seed, orders.schedules())?;
                let report = report.with_callers(operation, CALLERS);
                let is_right = report.holds();
                all_right &= show(&report, common.json, is_right);
            }
            if !device.is_cpu() && all_right {
                let report = match sizes {
                    Some(sizes) => on_gpu(operation, &device, operation.describe().parse_sizes(sizes)?, common.seed),
                    None => check(operation, &device, common.seed)?,
                };
                let is_right = report.holds();
                all_right &= show(&report, common.json, is_right);
            }
            Ok(all_right)
        })
    }

    fn agreement(&self, wanted: &Wanted, common: &Common, seeds: u64) -> Result<bool, Error> {
        let executor = Device::with_executor(executor(Checks::Bounds)?);
        // Asked for by name, the executor is compared with itself.
        let device = match self.open(common.device.as_deref())? {
            (device, Some(reason)) if device.is_cpu() => return Err(Error::NeedsGpu { what: "agreement", reason }),
            (device, _) => device,
        };
        self.each(wanted, |operation| {
            let end = common.seed.saturating_add(seeds.max(1));
            let agreement = agreement(operation, &device, &executor, common.seed..end)?;
            let is_right = agreement.holds();
            Ok(show(&agreement, common.json, is_right))
        })
    }

    /// The device that was asked for, with a word on why it is no GPU.
    fn device(&self, common: &Common) -> Result<Device, Error> {
        let (device, reason) = self.open(common.device.as_deref())?;
        if let Some(reason) = reason {
            eprintln!("on the CPU executor: {reason}");
        }
        Ok(device)
    }

    fn open(&self, name: Option<&str>) -> Result<(Device, Option<String>), Error> {
        match name.map(device_of).transpose()? {
            Some(None) => Ok((Device::with_executor(executor(Checks::Bounds)?), None)),
            Some(Some(ordinal)) => Ok((Device::cuda(ordinal, self.kernel_sets)?, None)),
            None if self.kernel_sets.is_empty() => {
                Ok((Device::with_executor(executor(Checks::Bounds)?), Some(Self::NO_KERNEL_SETS.to_owned())))
            }
            None => {
                let (device, reason) = Device::open(self.kernel_sets)?;
                Ok((device, reason.map(|reason| reason.to_string())))
            }
        }
    }
}

/// Does something for each of these operations. What is wrong with one is said, and the others have their turn.
pub(crate) fn each_of(
    operations: &[&'static dyn Operation],
    mut action: impl FnMut(&'static dyn Operation) -> Result<bool, Error>,
) -> bool {
    let mut all_right = true;
    for operation in operations {
        all_right &= action(*operation).unwrap_or_else(|error| {
            eprintln!("error: {}: {error}", operation.describe().name);
            false
        });
    }
    all_right
}

/// The number of the GPU that a name stands for; none for the executor.
pub(crate) fn device_of(name: &str) -> Result<Option<usize>, Error> {
    let number = match name {
        "cpu" => return Ok(None),
        "cuda" => "0",
        _ => name.strip_prefix("cuda:").unwrap_or(name),
    };
    number.parse().map(Some).map_err(|_| Error::UnknownDevice { name: name.to_owned() })
}

/// A table of operations, a row for each.
pub fn markdown(operations: &[&dyn Operation]) -> String {
    let row = |operation: &&dyn Operation| {
        let Description { name, idea, sizes, kernels, small, .. } = operation.describe();
        let listed = match &kernels[..] {
            // The planner's choice is among too many to list.
            many if many.len() > 6 => format!("{} kernels", many.len()),
            few => few.iter().map(|kernel| format!("`{}`", kernel.name)).collect::<Vec<_>>().join(", "),
        };
        format!("| `{name}` | {idea} | {} | {listed} | {} |\n", sizes.join(", "), small.len())
    };
    let rows: String = operations.iter().map(row).collect();
    format!("| operation | idea | sizes | kernels | cases on the executor |\n|---|---|---|---|---|\n{rows}")
}

/// Prints a report. Hands on whether all of it was right.
pub(crate) fn show<R: Display + Serialize>(report: &R, json: bool, is_right: bool) -> bool {
    if json {
        println!("{}", serde_json::to_string(report).expect("reports have no maps, and strings for keys"));
    } else {
        println!("{report}");
    }
    is_right
}

/// The operations that are meant.
pub(crate) fn select(
    operations: &[&'static dyn Operation],
    wanted: &Wanted,
) -> Result<Vec<&'static dyn Operation>, Error> {
    let mut selected = match &wanted.op {
        Some(name) => named(operations, name)?,
        None => operations.to_vec(),
    };
    if let Some(name) = &wanted.kernel {
        let by_kernel = by_kernel(&selected, name);
        if !by_kernel.is_empty() {
            return Ok(by_kernel);
        }
        let known: Vec<_> = selected.iter().flat_map(|it| it.describe().kernels).map(|kernel| kernel.name).collect();
        selected.retain(|operation| operation.describe().kernels.iter().any(|kernel| kernel.name == name));
        if selected.is_empty() {
            return Err(Error::UnknownKernel { name: name.clone(), nearest: Nearest::of(name, &known) });
        }
    }
    Ok(selected)
}

/// The operations of this name, at least one.
fn named(operations: &[&'static dyn Operation], name: &str) -> Result<Vec<&'static dyn Operation>, Error> {
    let mut named = operations.to_vec();
    named.retain(|operation| operation.describe().name == name);
    if named.is_empty() {
        named = by_kernel(operations, name);
    }
    if named.is_empty() {
        let known: Vec<_> = operations.iter().map(|operation| operation.describe().name).collect();
        return Err(Error::UnknownOperation { name: name.to_owned(), nearest: Nearest::of(name, &known) });
    }
    Ok(named)
}

/// What computes by this kernel alone.
fn by_kernel(operations: &[&'static dyn Operation], kernel: &str) -> Vec<&'static dyn Operation> {
    operations.iter().filter_map(|operation| operation.by_kernel(kernel)).collect()
}

/// The one case that was asked for, or all that are meant for the executor.
fn cases_for(operation: &dyn Operation, text: Option<&str>) -> Result<Vec<Sizes>, Error> {
    let description = operation.describe();
    match text {
        Some(text) => Ok(vec![description.parse_sizes(text)?]),
        None => description.cases(false),
    }
}

/// What comes of one case on a GPU.
fn on_gpu(operation: &dyn Operation, device: &Device, sizes: Sizes, seed: u64) -> Report {
    let case = check_case(operation, device, sizes, seed);
    Report { operation: operation.describe().name, device: device.name(), seed, cases: vec![case] }
}

/// The sizes that were asked for, or those of the last case that is meant for the device.
pub(crate) fn sizes_for(operation: &dyn Operation, device: &Device, text: Option<&str>) -> Result<Sizes, Error> {
    let description = operation.describe();
    match text {
        Some(text) => description.parse_sizes(text),
        None => description.last_case(device),
    }
}

#[cfg(test)]
mod tests;
