//! What Nsight Compute counts on a GPU, beside what the executor counts: the task `cost --ncu` of a program.
//!
//! ```text
//!  the executor, case by case ─────────────────────────────────────╮
//!                                                                  ├── for each kernel and counter: here, there
//!  ncu --csv --metrics …  program cost --launch-on cuda:0 … ───────╯   (of all cases together)
//! ```
//!
//! The executor counts by the source. What the compiler has joined or left out, it has on the GPU alone: shared loads of neighbours in
//! one vector, say. What waits in a loop reads as often as it has to, which is another number each time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use cuda_std::executor::{Checks, CostKind, KernelCosts};
use runtime::Device;
use serde::Serialize;

use crate::Error;
use crate::child::{self, Ended};
use crate::runner::{Program, Wanted, device_of, show, sizes_for};
use crate::{Operation, Sizes, Trial, cost, costs_of};

/// How long the program may take under `ncu`, which runs each kernel several times.
const LIMIT: Duration = Duration::from_secs(600);

/// What `ncu` says to who may not read a GPU's counters.
const NOT_PERMITTED: &str = "ERR_NVGPUCTRPERM";

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
    /// The number of the GPU for it [default: the first GPU]
    #[arg(long, value_name = "DEVICE", requires = "ncu")]
    pub device: Option<String>,
    /// Print JSON, one line for each operation.
    #[arg(long)]
    pub json: bool,
    /// Only launch the cases on this GPU: what runs under Nsight Compute.
    #[arg(long, value_name = "DEVICE", hide = true, conflicts_with = "ncu")]
    pub launch_on: Option<String>,
}

/// A counter of `ncu`, and the executor's.
struct Counter {
    what: &'static str,
    /// Added up.
    metrics: &'static [&'static str],
    here: fn(&KernelCosts) -> u64,
}

const COUNTERS: [Counter; 7] = [
    Counter {
        what: "global load sectors",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
        // To the GPU, an asynchronous copy is a load.
        here: |costs| costs.total(CostKind::GlobalLoad).sectors + costs.total(CostKind::AsyncCopy).sectors,
    },
    Counter {
        what: "global store sectors",
        metrics: &["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
        here: |costs| costs.total(CostKind::GlobalStore).sectors,
    },
    Counter {
        what: "global atomic sectors",
        metrics: &[
            "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
            "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
        ],
        here: |costs| costs.total(CostKind::GlobalAtomic).sectors,
    },
    Counter {
        what: "shared load conflicts",
        metrics: &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
        here: |costs| costs.total(CostKind::SharedLoad).conflicts,
    },
    Counter {
        what: "shared store conflicts",
        metrics: &["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
        here: |costs| costs.total(CostKind::SharedStore).conflicts,
    },
    Counter {
        what: "shared load wavefronts",
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
        here: |costs| costs.total(CostKind::SharedLoad).wavefronts,
    },
    Counter {
        what: "shared store wavefronts",
        metrics: &["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
        here: |costs| costs.total(CostKind::SharedStore).wavefronts,
    },
];

/// What both have counted for one operation.
#[derive(Debug, Serialize)]
struct CountersReport {
    operation: &'static str,
    kernels: Vec<OfKernel>,
}

#[derive(Debug, Serialize)]
struct OfKernel {
    kernel: String,
    /// How often the executor has launched it, and the GPU. Where a plan depends on the GPU, so may its kernels.
    launches: [u64; 2],
    counters: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    executor: u64,
    gpu: u64,
}

impl fmt::Display for CountersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.operation)?;
        for OfKernel { kernel, launches: [here, there], counters } in &self.kernels {
            if here != there {
                write!(f, "\n  {kernel}: launched {here} times on the executor, {there} times on the GPU")?;
                continue;
            }
            write!(f, "\n  {kernel}, launched {here} times")?;
            for Row { what, executor, gpu } in counters.iter().filter(|row| row.executor != 0 || row.gpu != 0) {
                write!(f, "\n    {what:<23} {executor:>12} {gpu:>12}")?;
                if executor == gpu {
                    write!(f, "   equal")?;
                } else {
                    write!(f, " {:>+7.1} %", 100.0 * (*executor as f64 / (*gpu).max(1) as f64 - 1.0))?;
                }
            }
        }
        if self.kernels.iter().any(OfKernel::is_launched_otherwise) {
            write!(f, "\n  what the kernels are depends on the GPU: nothing is compared")?;
        }
        Ok(())
    }
}

impl OfKernel {
    fn is_launched_otherwise(&self) -> bool {
        self.launches[0] != self.launches[1]
    }
}

/// What `ncu` has counted of a kernel.
#[derive(Debug, Default, PartialEq)]
struct Counted {
    launches: u64,
    /// By metric.
    metrics: BTreeMap<&'static str, u64>,
}

impl Program<'_> {
    /// The task `cost`.
    pub(crate) fn cost(&self, task: &CostTask) -> Result<bool, Error> {
        if let Some(name) = &task.launch_on {
            return self.launch(task, name);
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
        self.each(&task.wanted, |operation| {
            let here = costs_of(operation, cases(operation, task)?, task.seed)?;
            let there = count(ncu, operation, task, ordinal)?;
            let report = CountersReport { operation: operation.describe().name, kernels: beside(&here, &there) };
            Ok(show(&report, task.json, true))
        })
    }

    /// Launches each case once.
    fn launch(&self, task: &CostTask, name: &str) -> Result<bool, Error> {
        let Some(ordinal) = device_of(name)? else {
            return Err(Error::UnknownDevice { name: name.to_owned() });
        };
        let device = Device::cuda(ordinal, self.kernel_sets)?;
        self.each(&task.wanted, |operation| {
            for sizes in cases(operation, task)? {
                let trial = Trial::new(operation, sizes, task.seed)?;
                trial.launch_once(&device)?;
            }
            Ok(true)
        })
    }
}

/// The sizes that were asked for, or all small cases.
fn cases(operation: &dyn Operation, task: &CostTask) -> Result<Vec<Sizes>, Error> {
    let description = operation.describe();
    match &task.sizes {
        Some(text) => Ok(vec![description.parse_sizes(text)?]),
        None => description.cases(false),
    }
}

/// Runs the cases of an operation under `ncu`.
fn count(
    ncu: &Path,
    operation: &dyn Operation,
    task: &CostTask,
    ordinal: usize,
) -> Result<BTreeMap<String, Counted>, Error> {
    let failed = |reason: String| Error::Program { program: ncu.to_owned(), reason };
    let program =
        std::env::current_exe().map_err(|error| failed(format!("this program is not to be found: {error}")))?;
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    let log = folder.path().join("counters.csv");
    let metrics: Vec<&str> = COUNTERS.iter().flat_map(|counter| counter.metrics).copied().collect();
    let mut command = Command::new(ncu);
    command.args(["--csv", "--page", "raw", "--print-units", "base", "--metrics", &metrics.join(",")]);
    command.arg("--log-file").arg(&log).arg(program);
    let name = operation.describe().name;
    let mut arguments: Vec<OsString> =
        ["cost", "--op", name, "--seed", &task.seed.to_string()].map(OsString::from).into();
    arguments.extend(["--launch-on".into(), format!("cuda:{ordinal}").into()]);
    arguments.extend(task.sizes.iter().flat_map(|sizes| ["--sizes".into(), sizes.into()]));
    let (ended, output) =
        child::output_of(command.args(arguments), LIMIT).map_err(|error| failed(error.to_string()))?;
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let said =
        || log.lines().chain(output.lines()).filter(|line| !line.starts_with('"')).collect::<Vec<_>>().join("; ");
    match ended {
        _ if log.contains(NOT_PERMITTED) => Err(failed(
            "the driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM): run it as root, or have the \
             administrator load the driver's module with `NVreg_RestrictProfilingToAdminUsers=0`"
                .to_owned(),
        )),
        Ended::TimeLimit => Err(failed(format!("it has not ended after {} s", LIMIT.as_secs()))),
        Ended::Exited(status) if !status.success() => Err(failed(format!("{status}: {}", said()))),
        Ended::Exited(_) => counted(&log).ok_or_else(|| failed(format!("it has counted nothing: {}", said()))),
    }
}

/// What a table of `ncu --csv --page raw` says: a line with the names of columns, one with units, one for each launch. All fields are
/// quoted.
fn counted(csv: &str) -> Option<BTreeMap<String, Counted>> {
    let mut lines = csv.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix('"'));
    let columns: Vec<&str> = lines.next()?.split("\",\"").collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let kernel = column("Kernel Name")?;
    let metrics: Vec<(&'static str, usize)> = COUNTERS
        .iter()
        .flat_map(|counter| counter.metrics)
        .map(|metric| Some((*metric, column(metric)?)))
        .collect::<Option<_>>()?;
    let mut all: BTreeMap<String, Counted> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split("\",\"").collect();
        let name = fields.get(kernel).filter(|name| !name.is_empty());
        let Some(name) = name else { continue };
        let of_kernel = all.entry((*name).to_owned()).or_default();
        of_kernel.launches += 1;
        for (metric, column) in &metrics {
            // With commas between thousands.
            let digits: String = fields.get(*column)?.chars().filter(|c| *c != ',').collect();
            *of_kernel.metrics.entry(metric).or_default() += digits.parse::<u64>().ok()?;
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Both side by side. If one kernel was launched more often here or there, the others may have been launched for other cases: then there are
/// no counters.
fn beside(here: &[KernelCosts], there: &BTreeMap<String, Counted>) -> Vec<OfKernel> {
    let nothing = Counted::default();
    let of_kernel = |costs: &KernelCosts| {
        let counted = there.get(costs.kernel).unwrap_or(&nothing);
        let row = |counter: &Counter| {
            let gpu = counter.metrics.iter().filter_map(|metric| counted.metrics.get(metric)).sum();
            Row { what: counter.what, executor: (counter.here)(costs), gpu }
        };
        OfKernel {
            kernel: costs.kernel.to_owned(),
            launches: [costs.launches, counted.launches],
            counters: COUNTERS.iter().map(row).collect(),
        }
    };
    let of_gpu_alone = |(name, counted): (&String, &Counted)| {
        let is_alone = !here.iter().any(|costs| costs.kernel == name);
        let kernel = OfKernel { kernel: name.clone(), launches: [0, counted.launches], counters: Vec::new() };
        is_alone.then_some(kernel)
    };
    let mut all: Vec<_> = here.iter().map(of_kernel).chain(there.iter().filter_map(of_gpu_alone)).collect();
    if all.iter().any(OfKernel::is_launched_otherwise) {
        all.iter_mut().for_each(|kernel| kernel.counters.clear());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Twice;

    /// As `ncu` writes it, with metrics in another order.
    fn table(rows: &[(&str, [&str; 8])]) -> String {
        let mut metrics: Vec<&str> = COUNTERS.iter().flat_map(|counter| counter.metrics).copied().collect();
        metrics.reverse();
        let line = |fields: Vec<&str>| format!("\"{}\"\n", fields.join("\",\""));
        let mut csv = "==PROF== Connected to process 501\n".to_owned();
        csv += &line([&["ID", "Kernel Name"], &metrics[..]].concat());
        csv += &line(vec![""; 10]);
        for (kernel, values) in rows {
            csv += &line([&["0", kernel], &values[..]].concat());
        }
        csv
    }

    #[test]
    fn launches_of_a_kernel_are_added_up_and_shown_beside_the_executors() {
        let sizes = Twice { wrong: false }.describe().parse_sizes("n=64").unwrap();
        let here = costs_of(&Twice { wrong: false }, vec![sizes.clone(), sizes], 1).unwrap();
        let launch = ("doubles", ["0", "0", "7", "0", "1", "1", "1,008", "8"]);
        let told = |rows: &[(&str, [&str; 8])]| {
            let kernels = beside(&here, &counted(&table(rows)).unwrap());
            CountersReport { operation: "twice", kernels }.to_string()
        };
        let text = told(&[launch, launch]);
        assert!(text.contains("doubles, launched 2 times"), "{text}");
        assert!(text.contains("global load sectors               16           16   equal"), "{text}");
        assert!(text.contains("global store sectors              16         2016   -99.2 %"), "{text}");
        assert!(text.contains("global atomic sectors              0            4"), "both metrics: {text}");
        let text = told(&[launch, launch, ("other", ["0"; 8])]);
        assert!(text.contains("other: launched 0 times on the executor, 1 times on the GPU"), "{text}");
        assert!(text.contains("nothing is compared") && !text.contains("sectors"), "{text}");
    }

    #[test]
    fn a_table_that_cannot_be_read_is_no_table() {
        let launch = ["0"; 8];
        assert!(counted(&table(&[("doubles", launch)])).is_some());
        for csv in [
            String::new(),
            "==ERROR== no kernels\n".to_owned(),
            table(&[]),
            table(&[("doubles", launch)]).replace("op_red", "op_redo"),
            table(&[("doubles", ["many"; 8])]),
        ] {
            assert_eq!(counted(&csv), None, "{csv}");
        }
    }
}
