//! `tilewright sanitize`: the kernels under the tools of NVIDIA's `compute-sanitizer`, on a GPU.
//!
//! ```text
//!  each tool ──┬── a kernel with the fault that the tool is for     has to be reported, by the kernel's name
//!              └── every kernel, on small products of odd shapes    has to end well, without an error
//!                     │
//!                     └── compute-sanitizer --tool … tilewright …   a process of its own, for a limited time: child
//!                                │
//!                                └── log                            what the tool says, and how many errors it counts: log
//! ```
//!
//! A tool that says nothing of its fault says nothing of a kernel either; nor does one whose log cannot be read. Both count as
//! failures.

pub mod args;
mod log;
mod report;
mod tool;

use std::ffi::OsString;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cuda_std::KernelFacts;
use testkit::Description;

use crate::child::{self, Ended};
use crate::files;
use crate::{Error, planted};
use log::Counts;
pub use report::{Outcome, SanitizeReport, ToolReport};
use tilewright::device::{Device, DeviceInfo};
use tilewright::kernels::{self, Family, KernelInfo};
use tilewright::plan::Storage;
pub use tool::Tool;

/// The code with which a tool ends that has something to report, if the program has ended well: one that the program never has.
const FOUND_SOMETHING: i32 = 86;

/// How long `compute-sanitizer` may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// The lines of a program's output, or of a log, that a report has at most.
const LINES: usize = 12;

/// What to look for, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tools; all if there are none.
    pub tools: Vec<Tool>,
    /// The names of the kernels; all that the GPU runs if there are none.
    pub kernels: Vec<String>,
    /// The number of the GPU.
    pub ordinal: usize,
    /// `compute-sanitizer`, by its name or path.
    pub compute_sanitizer: PathBuf,
    /// The program that runs the kernels: this one, if it is `tilewright`.
    pub program: PathBuf,
    /// How long one run of a program may take under a tool.
    pub limit: Duration,
    /// Where to write the report as JSON.
    pub output: Option<PathBuf>,
}

/// Runs the tools on their planted faults and on the kernels, and gives `print` what there is to read, as it comes. What a tool
/// finds is in the report, and no error.
///
/// # Errors
/// [`UnknownName`](tilewright::Error::UnknownName), [`Error::File`] and [`Error::Program`], before anything runs; [`DeviceError::Driver`](runtime::Error::Driver) where there is no GPU;
/// [`DeviceError::KernelForOtherGpus`](runtime::Error::KernelForOtherGpus) for a kernel that was asked for and does not run on this one.
pub fn run(options: &Options, mut print: impl FnMut(&str)) -> Result<SanitizeReport, Error> {
    let subjects = subjects(&options.kernels)?;
    if let Some(path) = &options.output {
        files::check_writable(path)?;
    }
    let version = version(&options.compute_sanitizer)?;
    let (device, subjects) = what_runs(options.ordinal, subjects, options.kernels.is_empty())?;
    let mut report = SanitizeReport::begin(device, options.compute_sanitizer.clone(), version);
    print(&report.heading());
    for &tool in if options.tools.is_empty() { &Tool::ALL[..] } else { &options.tools } {
        let one = check(tool, &subjects, options)?;
        print(&format!("{}\n", one.line()));
        report.tools.push(one);
    }
    print(&report.table());
    if let Some(path) = &options.output {
        files::write_json(path, &report)?;
    }
    Ok(report)
}

/// What is run under a tool: a kernel in a product, or an operation.
struct Subject {
    kernels: Vec<KernelFacts>,
    /// What the program is told, but for the device.
    arguments: String,
}

impl Subject {
    /// What the program is told.
    fn arguments(&self, ordinal: usize) -> Vec<OsString> {
        format!("{} --device cuda:{ordinal}", self.arguments).split(' ').map(OsString::from).collect()
    }
}

/// The kernels of products by themselves, and the operations of other kernels; of both only those in which a kernel of these names
/// runs, if there are any.
fn subjects(names: &[String]) -> Result<Vec<Subject>, Error> {
    let products =
        kernels::ALL.iter().map(|kernel| Subject { kernels: vec![kernel.facts], arguments: product_arguments(kernel) });
    let operations = gpu_kernels::OPERATIONS.iter().map(|operation| {
        let Description { name, kernels, small, sizes, .. } = operation.describe();
        // The last of the small cases is the largest, and an odd one.
        let last = small.last().map(Vec::as_slice).unwrap_or_default();
        let sizes: Vec<String> = sizes.iter().zip(last).map(|(name, size)| format!("{name}={size}")).collect();
        let arguments = format!("run --op {name} --sizes {}", sizes.join(","));
        Subject { kernels, arguments }
    });
    let all: Vec<Subject> = products.chain(operations).collect();
    let known = || all.iter().flat_map(|subject| &subject.kernels).map(|kernel| kernel.name);
    if let Some(name) = names.iter().find(|name| !known().any(|known| known == *name)) {
        return Err(Error::unknown_name("kernel", name, known().collect()));
    }
    let is_wanted =
        |subject: &Subject| subject.kernels.iter().any(|kernel| names.iter().any(|name| name == kernel.name));
    Ok(all.into_iter().filter(|subject| names.is_empty() || is_wanted(subject)).collect())
}

/// The GPU, and what runs on it: all of it, unless some may be left out. It is closed again: the tools run other processes.
fn what_runs(ordinal: usize, subjects: Vec<Subject>, may_leave_out: bool) -> Result<(DeviceInfo, Vec<Subject>), Error> {
    let device = Device::cuda(ordinal)?;
    let mut running = Vec::new();
    for subject in subjects {
        match subject.kernels.iter().try_for_each(|kernel| device.has_kernel(kernel)) {
            Ok(()) => running.push(subject),
            Err(_) if may_leave_out => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((device.describe(), running))
}

/// Runs one tool: on its fault, and on the kernels that it can judge.
fn check(tool: Tool, subjects: &[Subject], options: &Options) -> Result<ToolReport, Error> {
    let fault = tool.fault();
    let planted = under(tool, &planted_arguments(fault, options.ordinal), options)?;
    let names_the_fault = planted.log.contains(fault.kernel());
    let by_tensor_maps = |subject: &Subject| subject.kernels.iter().any(|kernel| kernel.tensor_maps > 0);
    let (judged, left_out): (Vec<&Subject>, Vec<_>) =
        subjects.iter().partition(|subject| tool.can_judge(by_tensor_maps(subject)));
    let start = Instant::now();
    let mut outcome = Outcome::default();
    for subject in &judged {
        outcome.add(under(tool, &subject.arguments(options.ordinal), options)?.judge());
    }
    let names = |subjects: &[&Subject]| {
        subjects.iter().flat_map(|subject| &subject.kernels).map(|kernel| kernel.name.to_owned()).collect()
    };
    Ok(ToolReport {
        tool,
        planted: fault,
        planted_reported: names_the_fault && planted.counts.as_ref().is_ok_and(|counts| counts.errors > 0),
        planted_log: planted.excerpt(),
        kernels: names(&judged),
        left_out: names(&left_out),
        outcome,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// What the program is told to run a planted fault.
fn planted_arguments(fault: planted::Fault, ordinal: usize) -> Vec<OsString> {
    ["planted", fault.name(), "--device", &format!("cuda:{ordinal}")].map(OsString::from).to_vec()
}

/// What the program is told to run a kernel on a small product of odd shape.
fn product_arguments(kernel: &KernelInfo) -> String {
    let is_transposed = |needs: Option<Storage>| (needs == Some(Storage::ByColumns)).to_string();
    let n = if kernel.family() == Family::Gemv { 1 } else { 68 };
    let k = kernel.most_terms().map_or(131, |most| most.min(50));
    let (a, b) = (is_transposed(kernel.a), is_transposed(kernel.b));
    format!(
        "run --problem large-k --kernel {} --precision {} --m 131 --n {n} --k {k} --trans-a {a} --trans-b {b} --runs 1",
        kernel.name,
        kernel.scheme.precision().name()
    )
}

/// What has come of a program under a tool.
struct Run {
    /// What the program was told.
    what: String,
    ended: Ended,
    /// What the tool has written.
    log: String,
    /// The errors and warnings in it, or why nobody can tell.
    counts: Result<Counts, String>,
    /// What the program has written last.
    output: String,
}

/// Runs the program under a tool.
fn under(tool: Tool, arguments: &[OsString], options: &Options) -> Result<Run, Error> {
    let failed = |action: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    };
    let folder = tempfile::tempdir().map_err(failed("write", &std::env::temp_dir()))?;
    let log = folder.path().join("log");
    let mut command = Command::new(&options.compute_sanitizer);
    command.args(["--tool", tool.name(), "--error-exitcode", &FOUND_SOMETHING.to_string(), "--log-file"]);
    command.arg(&log).arg(&options.program).args(arguments);
    let (ended, output) = output_of(&mut command, options.limit)
        .map_err(|source| Error::Program { program: options.compute_sanitizer.clone(), reason: source.to_string() })?;
    // Without a log there is nothing to be read in it, which is what the counts say then.
    let log = std::fs::read(&log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let what = arguments.join(" ".as_ref()).to_string_lossy().into_owned();
    Ok(Run { what, ended, counts: Counts::of(tool, &log), log, output })
}

/// Runs a program for a limited time: how it has ended, and what it has written to its standard output and its standard error.
fn output_of(command: &mut Command, limit: Duration) -> io::Result<(Ended, String)> {
    // Not a pipe: what the program has started may hold the other end for longer than it runs itself.
    let mut file = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let ended = child::run(command, Some(limit))?;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((ended, String::from_utf8_lossy(&bytes).into_owned()))
}

impl Run {
    /// The first lines that the tool has written, and the last ones of the program.
    fn excerpt(&self) -> Vec<String> {
        let output: Vec<&str> = self.output.lines().collect();
        let last = &output[output.len().saturating_sub(LINES)..];
        self.log.lines().take(LINES).chain(last.iter().copied()).map(str::to_owned).collect()
    }

    /// The outcome for kernels that should have no fault.
    fn judge(self) -> Outcome {
        let Counts { errors, warnings } = *self.counts.as_ref().unwrap_or(&Counts::default());
        let problem = match (self.ended, &self.counts, log::own_failure(&self.log)) {
            (Ended::TimeLimit, ..) => Some("it did not end within the time limit".to_owned()),
            (_, _, Some(failure)) => Some(format!("the tool says: {failure}")),
            (_, Err(reason), _) => Some(reason.clone()),
            (Ended::Exited(status), Ok(_), _) => match status.code() {
                Some(0) => None,
                Some(FOUND_SOMETHING) if errors > 0 || warnings > 0 => None,
                Some(FOUND_SOMETHING) => Some("the tool ends as with errors, and its log has none".to_owned()),
                _ => Some(format!("the program did not end well: {status}")),
            },
        };
        let is_clean = errors == 0 && warnings == 0 && problem.is_none();
        let excerpt = if is_clean { Vec::new() } else { self.excerpt() };
        let problems = problem.map(|problem| format!("{}: {problem}", self.what)).into_iter().collect();
        Outcome { errors, warnings, problems, excerpt }
    }
}

/// What `compute-sanitizer` says of its version.
fn version(compute_sanitizer: &Path) -> Result<String, Error> {
    let program = |reason: String| Error::Program { program: compute_sanitizer.to_owned(), reason };
    let output = output_of(Command::new(compute_sanitizer).arg("--version"), VERSION_LIMIT);
    let (ended, text) = output.map_err(|error| program(error.to_string()))?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix("Version "));
    match (ended, version) {
        (Ended::Exited(status), Some(version)) if status.success() => Ok(version.trim().to_owned()),
        (Ended::Exited(_), _) => Err(program(format!("asked for its version it said: {}", text.trim()))),
        (Ended::TimeLimit, _) => {
            Err(program(format!("asked for its version it has not ended after {} s", VERSION_LIMIT.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests;
