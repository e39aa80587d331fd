//! What Nsight Compute counts on a GPU, beside what the executor counts: the task `cost --ncu` of a program.
//!
//! ```text
//!  the executor, case by case ─────────────────────────────────────╮
//!                                                                  ├── for each kernel and counter: here, there
//!  ncu --csv --metrics …  program cost --launch-on cuda:0 … ───────╯   (of all operations and cases together)
//! ```
//!
//! An operation that chooses among kernels computes by each of them: what it would choose depends on the GPU. What is launched beside, as
//! copies are, has a kernel's name, too, and is compared if both have launched it as often, with as many blocks.
//!
//! The executor counts by the source. What the compiler has joined or left out, it has on the GPU alone: shared loads of neighbours in
//! one vector, say. What waits in a loop reads as often as it has to, which is another number each time.

mod ncu;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use cuda_std::executor::{Checks, KernelCosts};
use runtime::Device;

use crate::runner::{Program, Wanted, device_of, each_of, select, show, sizes_for};
use crate::{Error, Operation, Sizes, Trial, cost, costs_of};
use report::CountersReport;

/// What the accesses of kernels would cost, on the executor, and what they do cost on a GPU.
#[derive(Args, Clone, Debug)]
pub struct CostTask {
    #[allow(missing_docs, reason = "its flags are documented")]
    #[command(flatten)]
    pub wanted: Wanted,
    /// The sizes, as `rows=3,cols=4` [default: the last small case; with --ncu all small cases, added up]
    #[arg(long, value_name = "SIZES")]
    pub sizes: Option<String>,
    /// What numbers are generated from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Have NVIDIA's Nsight Compute count on a GPU, too, and show both; by its name or path
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "ncu")]
    pub ncu: Option<PathBuf>,
    /// Compare with this table, which Nsight Compute has written for the same cases before, perhaps on another machine; `--ncu --dry-run`
    /// says how
    #[arg(long, value_name = "FILE", conflicts_with = "ncu")]
    pub ncu_table: Option<PathBuf>,
    /// Only show how Nsight Compute would be called.
    #[arg(long, requires = "ncu")]
    pub dry_run: bool,
    /// At most so many of the small cases of each operation, spread over them
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "sizes")]
    pub cases: Option<u16>,
    /// The number of the GPU for it [default: the first GPU]
    #[arg(long, value_name = "DEVICE", requires = "ncu")]
    pub device: Option<String>,
    /// Print JSON: one line for each operation; with --ncu one for everything.
    #[arg(long)]
    pub json: bool,
    /// Only launch the cases on this GPU: what runs under Nsight Compute.
    #[arg(long, value_name = "DEVICE", hide = true, conflicts_with = "ncu")]
    pub launch_on: Option<String>,
    /// Have operations that choose among kernels compute by each of them.
    #[arg(long, hide = true, requires = "launch_on")]
    pub by_each_kernel: bool,
}

/// What the executor has counted of a kernel.
struct OfExecutor {
    costs: KernelCosts,
    /// The operations that have launched it.
    operations: Vec<&'static str>,
}

impl Program<'_> {
    /// The task `cost`.
    pub(crate) fn cost(&self, task: &CostTask) -> Result<bool, Error> {
        if let Some(name) = &task.launch_on {
            return self.launch(task, name);
        }
        if let Some(table) = &task.ncu_table {
            return self.compare(task, || ncu::read(table));
        }
        let executor = Device::cpu(Checks::Full);
        let Some(ncu) = &task.ncu else {
            return self.each(&task.wanted, |operation| {
                let sizes = sizes_for(operation, &executor, task.sizes.as_deref())?;
                Ok(show(&cost(operation, sizes, task.seed)?, task.json, true))
            });
        };
        let needs_gpu = |reason: &str| Error::NeedsGpu { what: "`cost --ncu`", reason: reason.to_owned() };
        let Some(ordinal) = task.device.as_deref().map_or(Ok(Some(0)), device_of)? else {
            return Err(needs_gpu("the executor's own figures come without `--ncu`"));
        };
        if self.kernel_sets.is_empty() {
            return Err(needs_gpu(Self::NO_KERNEL_SETS));
        }
        if task.dry_run {
            println!("{}", ncu::line(ncu, &arguments(task, ordinal))?);
            return Ok(true);
        }
        self.compare(task, || ncu::run(ncu, &arguments(task, ordinal)))
    }

    /// Counts on both, and shows what came of it.
    fn compare(&self, task: &CostTask, there: impl FnOnce() -> Result<ncu::Run, Error>) -> Result<bool, Error> {
        let mut here = BTreeMap::new();
        let all_here = each_of(&by_each_kernel(select(self.operations, &task.wanted)?), |operation| {
            let costs = costs_of(operation, cases(operation, task)?, task.seed)?;
            add(&mut here, operation.describe().name, costs);
            Ok(true)
        });
        let there = there()?;
        there.errors.iter().for_each(|error| eprintln!("error on the GPU: {error}"));
        let all_there = there.errors.is_empty();
        Ok(show(&CountersReport::new(&here, &there.kernels), task.json, all_here && all_there))
    }

    /// Launches each case once.
    fn launch(&self, task: &CostTask, name: &str) -> Result<bool, Error> {
        let Some(ordinal) = device_of(name)? else {
            return Err(Error::UnknownDevice { name: name.to_owned() });
        };
        let device = Device::cuda(ordinal, self.kernel_sets)?;
        let wanted = select(self.operations, &task.wanted)?;
        let operations = if task.by_each_kernel { by_each_kernel(wanted) } else { wanted };
        Ok(each_of(&operations, |operation| {
            for sizes in cases(operation, task)? {
                let trial = Trial::new(operation, sizes, task.seed)?;
                trial.launch_once(&device)?;
            }
            Ok(true)
        }))
    }
}

/// What this program is told to launch the same cases on a GPU.
fn arguments(task: &CostTask, ordinal: usize) -> Vec<OsString> {
    let device = format!("cuda:{ordinal}");
    let mut arguments: Vec<OsString> =
        ["cost", "--seed", &task.seed.to_string(), "--launch-on", &device, "--by-each-kernel"]
            .map(OsString::from)
            .into();
    let Wanted { op, kernel } = &task.wanted;
    let cases = task.cases.map(|cases| cases.to_string());
    for (flag, value) in [("--op", op), ("--kernel", kernel), ("--sizes", &task.sizes), ("--cases", &cases)] {
        arguments.extend(value.iter().flat_map(|value| [flag.into(), value.into()]));
    }
    arguments
}

/// The same operations, but in place of each that chooses among kernels the same by each of these.
fn by_each_kernel(operations: Vec<&'static dyn Operation>) -> Vec<&'static dyn Operation> {
    let mut all: Vec<&'static dyn Operation> = Vec::new();
    for operation in operations {
        let description = operation.describe();
        let by = |name: &str| operation.by_kernel(name);
        let mut by_kernels: Vec<_> = description.kernels.iter().filter_map(|kernel| by(kernel.name)).collect();
        if by_kernels.is_empty() || by(description.name).is_some() {
            by_kernels = vec![operation];
        }
        // Several operations may choose among the same.
        by_kernels.retain(|it| !all.iter().any(|other| other.describe().name == it.describe().name));
        all.extend(by_kernels);
    }
    all
}

/// The sizes that were asked for, or all small cases, or some of these.
fn cases(operation: &dyn Operation, task: &CostTask) -> Result<Vec<Sizes>, Error> {
    let description = operation.describe();
    match &task.sizes {
        Some(text) => Ok(vec![description.parse_sizes(text)?]),
        None => Ok(spread(description.cases(false)?, task.cases.map_or(usize::MAX, usize::from))),
    }
}

/// At most so many of these, the last one of each part of all.
fn spread<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let (len, parts) = (all.len(), most.min(all.len()));
    let ends = |index: usize| (1..=parts).any(|part| part * len / parts == index + 1);
    all.into_iter().enumerate().filter(|(index, _)| ends(*index)).map(|(_, it)| it).collect()
}

/// Adds what the executor has counted of an operation.
fn add(all: &mut BTreeMap<&'static str, OfExecutor>, operation: &'static str, costs: Vec<KernelCosts>) {
    for costs in costs {
        match all.get_mut(costs.kernel) {
            Some(OfExecutor { costs: sum, operations }) => {
                operations.push(operation);
                sum.launches += costs.launches;
                sum.blocks += costs.blocks;
                // A line may be there twice then: only sums of lines are asked for.
                sum.lines.extend(costs.lines);
            }
            None => _ = all.insert(costs.kernel, OfExecutor { costs, operations: vec![operation] }),
        }
    }
}

#[cfg(test)]
mod testing {
    use super::report::COUNTERS;

    /// A kernel, its grid, its metrics from the last one to the first.
    pub(super) type Launch<'a> = (&'a str, &'a str, [&'a str; 8]);

    /// A table as `ncu` writes it, with metrics in another order.
    pub(super) fn table(rows: &[Launch<'_>]) -> String {
        let mut metrics: Vec<&str> = COUNTERS.iter().flat_map(|counter| counter.metrics).copied().collect();
        metrics.reverse();
        let line = |fields: Vec<&str>| format!("\"{}\"\n", fields.join("\",\""));
        let mut csv = "==PROF== Connected to process 501\n".to_owned();
        csv += &line([&["ID", "Kernel Name", "Grid Size"], &metrics[..]].concat());
        csv += &line(vec![""; 11]);
        for (kernel, grid, values) in rows {
            csv += &line([&["0", kernel, grid], &values[..]].concat());
        }
        csv
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Halved, Twice};

    /// Chooses between two, which are operations of their own.
    struct Chooses(&'static str);

    static TWICE: Twice = Twice { wrong: false };

    impl Operation for Chooses {
        fn describe(&self) -> crate::Description {
            let kernels = [TWICE.describe().kernels, Halved.describe().kernels].concat();
            crate::Description { name: self.0, kernels, ..TWICE.describe() }
        }
        fn by_kernel(&self, kernel: &str) -> Option<&'static dyn Operation> {
            static BY_DOUBLES: Chooses = Chooses("doubles");
            (kernel == "doubles").then_some(&BY_DOUBLES)
        }
        fn arguments(&self, sizes: &Sizes) -> Result<Vec<crate::Argument>, Error> {
            TWICE.arguments(sizes)
        }
        fn launch(&self, device: &Device, sizes: &Sizes, views: &crate::Views<'_>) -> Result<(), Error> {
            TWICE.launch(device, sizes, views)
        }
        fn expected(&self, sizes: &Sizes, values: &crate::Values<'_>) -> Result<Vec<Vec<crate::Expected>>, Error> {
            TWICE.expected(sizes, values)
        }
        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }

    #[test]
    fn what_chooses_among_kernels_computes_by_each_of_them_once() {
        let names = |operations: Vec<&'static dyn Operation>| {
            by_each_kernel(operations).iter().map(|it| it.describe().name).collect::<Vec<_>>()
        };
        static FIRST: Chooses = Chooses("first");
        static SECOND: Chooses = Chooses("second");
        assert_eq!(names(vec![&FIRST, &Halved, &SECOND]), ["doubles", "halved"]);
        let by_kernel = FIRST.by_kernel("doubles").unwrap();
        assert_eq!(names(vec![by_kernel]), ["doubles"], "it chooses no more");
    }

    #[test]
    fn some_cases_are_spread_over_all() {
        let of = |len: usize, most| spread((0..len).collect(), most);
        assert_eq!([of(16, 2), of(5, 2), of(3, 1)], [vec![7, 15], vec![1, 4], vec![2]]);
        assert_eq!([of(3, 3), of(3, 9), of(0, 2)], [vec![0, 1, 2], vec![0, 1, 2], vec![]]);
    }

    #[test]
    fn the_gpu_is_told_what_the_executor_was() {
        let task = |line: &str| {
            use clap::Parser;
            #[derive(Parser)]
            struct Line {
                #[command(flatten)]
                task: CostTask,
            }
            Line::try_parse_from(line.split(' ')).unwrap().task
        };
        let told = |line: &str| arguments(&task(line), 1).join(" ".as_ref()).into_string().unwrap();
        let all = "cost --seed 1 --launch-on cuda:1 --by-each-kernel";
        assert_eq!(told("cost --ncu"), all);
        let some = told("cost --ncu --op twice --kernel doubles --sizes n=3");
        assert_eq!(some, format!("{all} --op twice --kernel doubles --sizes n=3"));
        assert!(task(&some).by_each_kernel, "and takes it");
        let few = told("cost --ncu --cases 2");
        assert_eq!((few.clone(), task(&few).cases), (format!("{all} --cases 2"), Some(2)));
    }
}
