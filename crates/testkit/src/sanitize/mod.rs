//! The tools of NVIDIA's `compute-sanitizer` over what a program runs on a GPU.
//!
//! ```text
//!  each tool ──┬── a kernel with the fault that the tool is for     has to be reported, by the kernel's name
//!              └── each subject: an operation on small sizes         has to end well, without an error
//!                     │
//!                     └── compute-sanitizer --tool … PROGRAM …      a process of its own, for a limited time: child
//!                                │
//!                                └── log                            what the tool says, and how many errors it counts: log
//! ```
//!
//! A tool that says nothing of an injected fault says nothing of a kernel either; nor does one whose log cannot be read. Both count
//! as failures. A program that has no kernel with such a fault is told that its tools were not tried.

mod log;
mod report;
mod tool;

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cuda_std::KernelFacts;
use runtime::Device;

use crate::Error;
use crate::child::{self, Ended};
use crate::operation::Operation;
use log::Counts;
pub use report::{Outcome, ToolReport};
pub use tool::Tool;

/// The code with which a tool ends that has something to report, if the program has ended well: one that the program never has.
const FOUND_SOMETHING: i32 = 86;

/// How long `compute-sanitizer` may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// The lines of a program's output, or of a log, that a report has at most.
const LINES: usize = 12;

/// How tools are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `compute-sanitizer`, by its name or path.
    pub compute_sanitizer: PathBuf,
    /// The program that runs the subjects: this one, as a rule.
    pub program: PathBuf,
    /// How long one run of the program may take under a tool.
    pub limit: Duration,
}

/// What is run under a tool.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The kernels that it launches.
    pub kernels: Vec<KernelFacts>,
    /// What the program is told.
    pub arguments: Vec<String>,
}

/// A kernel with a fault that a tool has to report.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    /// The fault, in a word or two.
    pub name: String,
    /// The kernel's name, which the report has to have.
    pub kernel: String,
    /// What the program is told.
    pub arguments: Vec<String>,
}

impl Subject {
    /// An operation on the sizes of its last small case, as the [runner](crate::main) takes it. `more` follows.
    ///
    /// # Errors
    /// Those of [`Description::last_case`](crate::Description::last_case).
    pub fn of(operation: &dyn Operation, more: &[&str]) -> Result<Self, Error> {
        let description = operation.describe();
        let sizes = description.last_case(false)?.to_string();
        let words = ["run", "--op", description.name, "--sizes", &sizes].into_iter().chain(more.iter().copied());
        let arguments = words.map(str::to_owned).collect();
        Ok(Self { kernels: description.kernels, arguments })
    }

    /// Those that a GPU can run: the others are left out, or are an error.
    ///
    /// # Errors
    /// Those of [`Device::has_kernel`], unless subjects may be left out.
    pub fn on(device: &Device, all: Vec<Self>, may_leave_out: bool) -> Result<Vec<Self>, Error> {
        let mut running = Vec::new();
        for subject in all {
            match subject.kernels.iter().try_for_each(|kernel| device.has_kernel(kernel)) {
                Ok(()) => running.push(subject),
                Err(_) if may_leave_out => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(running)
    }
}

/// Runs one tool: on a fault that it has to report, if there is one, and on the subjects that it can judge. What it finds is in the
/// report, and no error.
///
/// # Errors
/// [`Error::Program`] where the tool cannot be run; [`Error::Temporary`].
pub fn sanitize(
    tool: Tool,
    fault: Option<&InjectedFault>,
    subjects: &[Subject],
    options: &Options,
) -> Result<ToolReport, Error> {
    let (mut planted_reported, mut planted_log) = (false, Vec::new());
    if let Some(fault) = fault {
        let run = under(tool, &fault.arguments, options)?;
        planted_reported = run.log.contains(&fault.kernel) && run.counts.as_ref().is_ok_and(|counts| counts.errors > 0);
        planted_log = run.excerpt();
    }
    let by_tensor_maps = |subject: &Subject| subject.kernels.iter().any(|kernel| kernel.tensor_maps > 0);
    let (judged, left_out): (Vec<&Subject>, Vec<_>) =
        subjects.iter().partition(|subject| tool.can_judge(by_tensor_maps(subject)));
    let start = Instant::now();
    let mut outcome = Outcome::default();
    for subject in &judged {
        outcome.add(under(tool, &subject.arguments, options)?.judge());
    }
    let names = |subjects: &[&Subject]| {
        subjects.iter().flat_map(|subject| &subject.kernels).map(|kernel| kernel.name.to_owned()).collect()
    };
    Ok(ToolReport {
        tool,
        planted: fault.map(|fault| fault.name.clone()),
        planted_reported,
        planted_log,
        kernels: names(&judged),
        left_out: names(&left_out),
        outcome,
        seconds: start.elapsed().as_secs_f64(),
    })
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
fn under(tool: Tool, arguments: &[String], options: &Options) -> Result<Run, Error> {
    let folder = tempfile::tempdir().map_err(|source| Error::Temporary { path: std::env::temp_dir(), source })?;
    let log = folder.path().join("log");
    let mut command = Command::new(&options.compute_sanitizer);
    command.args(["--tool", tool.name(), "--error-exitcode", &FOUND_SOMETHING.to_string(), "--log-file"]);
    command.arg(&log).arg(&options.program).args(arguments);
    let (ended, output) = output_of(&mut command, options.limit)
        .map_err(|source| Error::Program { program: options.compute_sanitizer.clone(), reason: source.to_string() })?;
    // Without a log there is nothing to be read in it, which is what the counts say then.
    let log = fs::read(&log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    Ok(Run { what: arguments.join(" "), ended, counts: Counts::of(tool, &log), log, output })
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
///
/// # Errors
/// [`Error::Program`] if it cannot be run, or is another program.
pub fn version(compute_sanitizer: &Path) -> Result<String, Error> {
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
