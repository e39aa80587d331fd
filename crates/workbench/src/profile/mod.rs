//! `cargo tilewright profile KERNEL`: what holds a kernel back on a GPU, in the words of the roofline, beside what the executor predicts.
//!
//! ```text
//!  a large case:  ncu --metrics … program cost --launch-on cuda:0    time, bytes, shares of the peaks ──▶ which limit, how far from it
//!  a small case:  program cost --ncu …                               sectors, conflicts: executor and GPU
//!                 program cost                                       the same by line of Rust, as the executor counts
//! ```
//!
//! Only the executor's part is there without a GPU or without Nsight Compute; then it says what is missing.

mod roofline;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::build::build;
use crate::machine::has_driver;
use crate::machine::ncu::{ADVICE, version};
use crate::nearest::{Kind, unknown};
use crate::place::{Place, REFUSED};
use crate::project::Project;
use crate::project::{OperationEntry, operations_of};
use crate::style::{Style, Tone};
use roofline::{METRICS, Measured};

/// What `ncu` says to who may not read a GPU's counters.
const NOT_PERMITTED: &str = "ERR_NVGPUCTRPERM";

/// How many lines of Rust are shown.
const LINES: usize = 12;

/// The options of `profile`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel.
    kernel: String,
    /// Only this operation of those that launch the kernel [default: all].
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// The sizes that are measured, as `rows=3,cols=4` [default: the operation's last large case].
    #[arg(long, value_name = "SIZES")]
    sizes: Option<String>,
    /// NVIDIA's Nsight Compute, by its name or path.
    #[arg(long, value_name = "PATH", default_value = "ncu")]
    ncu: PathBuf,
    /// The number of the GPU.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    device: usize,
    /// Print JSON, one line for each operation.
    #[arg(long)]
    json: bool,
}

/// What has come of one operation.
#[derive(Debug, Serialize)]
struct Profile {
    kernel: String,
    operation: String,
    /// The sizes that were measured.
    sizes: String,
    measured: Measured,
    /// The sizes for which both have counted.
    small_sizes: String,
    /// As `cost --ncu --json` has it.
    counters: Value,
    /// As `cost --json` has it.
    predicted: Value,
}

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let project = Project::with_kernel(place, &arguments.kernel)?;
    project.program_manifest()?;
    if let Some(missing) = missing(&arguments.ncu) {
        return without(&project, arguments, &missing);
    }
    // With the lines of Rust in its kernels.
    let lines = [(cuda_builder::LINES_VARIABLE, "1")];
    let Some(program) = build(&project, &["--release"], &lines)? else {
        return Ok(ExitCode::FAILURE);
    };
    for operation in operations(&program, arguments)? {
        let profile = profile(&program, &operation, arguments)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&profile).context("a profile cannot be written as JSON")?);
        } else {
            println!("{}", text(&profile, Style::of_stdout()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What measuring on a GPU needs, and is not there.
fn missing(ncu: &Path) -> Option<String> {
    let driver = (!has_driver()).then(|| "a GPU and its driver (libcuda.so.1 cannot be loaded)".to_owned());
    let tool = version(ncu.as_os_str()).is_none();
    let tool = tool
        .then(|| format!("Nsight Compute (`{}` cannot be run: {ADVICE}; `--ncu PATH` names another)", ncu.display()));
    let all: Vec<_> = driver.into_iter().chain(tool).collect();
    (!all.is_empty()).then(|| all.join(", and "))
}

/// What there is without a GPU: the executor's prediction.
fn without(project: &Project, arguments: &Arguments, missing: &str) -> anyhow::Result<ExitCode> {
    eprintln!("error: `profile` needs {missing}. What the executor predicts, needs neither:\n");
    let mut words = vec!["cost".to_owned(), "--kernel".to_owned(), arguments.kernel.clone()];
    words.extend(arguments.op.iter().flat_map(|name| ["--op".to_owned(), name.clone()]));
    words.extend(arguments.json.then(|| "--json".to_owned()));
    project.program(&words)?.status().context("cannot run cargo")?;
    Ok(ExitCode::from(REFUSED))
}

/// The operations that launch the kernel, or the one that was asked for.
fn operations(program: &Path, arguments: &Arguments) -> anyhow::Result<Vec<OperationEntry>> {
    let all = operations_of(&output(program, &["list", "--json"])?.stdout)?;
    let Arguments { kernel, op, .. } = arguments;
    let mut wanted: Vec<_> = all.iter().filter(|operation| operation.kernels.contains(kernel)).cloned().collect();
    ensure!(!wanted.is_empty(), "no operation of the program launches `{kernel}`");
    if let Some(name) = op {
        wanted.retain(|operation| operation.name == *name);
        let names: Vec<_> = all.into_iter().map(|operation| operation.name).collect();
        ensure!(names.contains(name), unknown(Kind::Operation, name, &names));
        ensure!(!wanted.is_empty(), "`{name}` does not launch `{kernel}`");
    }
    Ok(wanted)
}

fn profile(program: &Path, operation: &OperationEntry, arguments: &Arguments) -> anyhow::Result<Profile> {
    let Arguments { kernel, sizes, ncu, device, .. } = arguments;
    let (name, gpu) = (operation.name.as_str(), format!("cuda:{device}"));
    let last = |cases: &[String], what: &str| {
        cases.last().cloned().with_context(|| format!("`{name}` has no {what} case: name sizes by `--sizes`"))
    };
    let large = sizes.clone().map_or_else(|| last(&operation.large, "large"), Ok)?;
    let small = last(&operation.small, "small")?;

    let folder = tempfile::tempdir().context("there is no directory for temporary files")?;
    let log = folder.path().join("counters.csv");
    let mut command = Command::new(ncu);
    command.args(["--csv", "--page", "raw", "--print-units", "base", "--kernel-name", kernel, "--metrics"]);
    command.arg(METRICS.join(",")).arg("--log-file").arg(&log).arg(program);
    command.args(["cost", "--op", name, "--sizes", &large, "--launch-on", &gpu]);
    let ended = command.output().with_context(|| format!("cannot run {}", ncu.display()))?;
    let csv = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said(&csv, &ended);
    ensure!(!csv.contains(NOT_PERMITTED) && !said.contains(NOT_PERMITTED), not_permitted());
    ensure!(ended.status.success(), "{} has failed ({}): {said}", ncu.display(), ended.status);
    let measured = Measured::read(&csv, kernel)
        .with_context(|| format!("{} has measured nothing of `{kernel}` with {large}: {said}", ncu.display()))?;

    let ncu = ncu.to_str().context("the path of Nsight Compute is not UTF-8")?;
    let both = output(program, &["cost", "--op", name, "--sizes", &small, "--ncu", ncu, "--device", &gpu, "--json"])?;
    let predicted = output(program, &["cost", "--op", name, "--sizes", &small, "--json"])?;
    Ok(Profile {
        kernel: kernel.clone(),
        operation: name.to_owned(),
        sizes: large,
        measured,
        small_sizes: small,
        counters: of_kernel(&both.stdout, kernel)?,
        predicted: of_kernel(&predicted.stdout, kernel)?,
    })
}

/// What to ask for.
fn not_permitted() -> String {
    "the driver does not let this user read the GPU's counters (ERR_NVGPUCTRPERM). Run it as root, or ask the machine's administrator to load \
     the driver's module with the option NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in \
     /etc/modprobe.d, then a restart); in a container, for the capability CAP_SYS_ADMIN. `cargo tilewright check` and what the executor \
     predicts (`cost` of the program) need no such right"
        .to_owned()
}

/// What `ncu` and the program have said besides the table, in a line.
fn said(csv: &str, ended: &Output) -> String {
    let streams = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let lines = csv.lines().chain(streams.iter().flat_map(|text| text.lines()));
    lines.filter(|line| !line.starts_with('"') && !line.trim().is_empty()).collect::<Vec<_>>().join("; ")
}

/// The kernel's part of a report of the program's.
fn of_kernel(stdout: &[u8], kernel: &str) -> anyhow::Result<Value> {
    let lines = stdout.split(|&byte| byte == b'\n');
    let mut reports = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let kernels = reports.find_map(|mut report| report.get_mut("kernels").map(Value::take));
    let of = |value: Value| value.as_array().and_then(|all| all.iter().find(|it| it["kernel"] == kernel).cloned());
    kernels.and_then(of).with_context(|| format!("`cost` of the program says nothing of `{kernel}`"))
}

/// What the program prints.
fn output(program: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.trim().trim_start_matches("error: ");
    if !output.status.success() {
        ensure!(!message.contains(NOT_PERMITTED), not_permitted());
        bail!("{message}");
    }
    Ok(output)
}

fn text(profile: &Profile, style: Style) -> String {
    let Profile { kernel, operation, sizes, measured, small_sizes, counters, predicted } = profile;
    let mut lines = vec![format!("{}  {operation} with {sizes}", style.paint(Tone::Strong, kernel))];
    let mut line = |label: &str, what: String| {
        lines.push(format!("  {}{what}", style.paint(Tone::Faint, format!("{label:<14}"))));
    };
    for (label, what) in measured.lines() {
        line(label, style.wrap(&what, 16));
    }
    line("counted", format!("with {small_sizes}, by the executor and by the GPU"));
    let rows = counters["counters"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or_default();
    for row in rows.iter().filter(|row| number(row, "executor") != 0 || number(row, "gpu") != 0) {
        let (here, there) = (number(row, "executor"), number(row, "gpu"));
        let equal = if here == there {
            "equal".to_owned()
        } else {
            format!("{:+.1} %", 100.0 * (here as f64 / there.max(1) as f64 - 1.0))
        };
        line("", format!("{:<24} {here:>12} {there:>12}   {equal}", row["what"].as_str().unwrap_or_default()));
    }
    let rows = predicted["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let mut of_lines: Vec<&Value> = rows.iter().filter(|row| row["line"].is_string()).collect();
    let work = |row: &Value| number(row, "sectors").max(number(row, "wavefronts"));
    of_lines.sort_by_key(|row| std::cmp::Reverse(work(row)));
    line("lines", "with the most to do, as the executor counts".to_owned());
    for row in of_lines.into_iter().take(LINES) {
        let (place, what) = (row["line"].as_str().unwrap_or_default(), row["what"].as_str().unwrap_or_default());
        let counts = format!("{} sectors, {} conflicts", number(row, "sectors"), number(row, "conflicts"));
        line("", format!("{place}  {what}: {} requests, {counts}", number(row, "requests")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
