//! The kernels under the tools of NVIDIA's `compute-sanitizer`, on a GPU: the task `sanitize` of a program.
//!
//! ```text
//!  each tool ──┬── a kernel with the fault that the tool is for     has to be reported, by the kernel's name
//!              └── every operation, on a small case of odd sizes    has to end well, without an error
//!                     │
//!                     └── compute-sanitizer --tool … program run …  a process of its own, for a limited time: child
//!                                │
//!                                └── log                            what the tool says, and how many errors it counts: log
//! ```
//!
//! A tool that says nothing of its fault says nothing of a kernel either; nor does one whose log cannot be read. Both count as
//! failures. A program that has no planted faults says in its report that nothing shows whether the tools find anything.

mod args;
mod log;
mod report;
mod tool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cuda_std::KernelFacts;
use runtime::Device;

use crate::Error;
use crate::Operation;
use crate::child::{self, Ended};
pub use args::{SanitizeTask, ToolFlags};
use log::Counts;
pub use report::{Outcome, SanitizeReport, ToolReport, passed, table};
pub use tool::Tool;

/// The code with which a tool ends that has something to report, if the program has ended well: one that the program never has.
const FOUND_SOMETHING: i32 = 86;

/// How long `compute-sanitizer` may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// The lines of a program's output, or of a log, that a report has at most.
const LINES: usize = 12;

/// What to look with, and where.
///
/// ```
/// # use std::time::Duration;
/// # use testkit::sanitize::{Options, Tool};
/// # fn compute_sanitizer() -> std::path::PathBuf { "compute-sanitizer".into() }
/// // Every tool on the second GPU, on this program.
/// let options = Options {
///     tools: Tool::ALL.to_vec(),
///     ordinal: 1,
///     compute_sanitizer: compute_sanitizer(),
///     program: std::env::current_exe().unwrap(),
///     limit: Duration::from_secs(600),
/// };
/// let names = Vec::from_iter(options.tools.iter().map(|tool| tool.name()));
/// assert_eq!(names, ["memcheck", "racecheck", "synccheck", "initcheck"]);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The tools.
    pub tools: Vec<Tool>,
    /// The number of the GPU.
    pub ordinal: usize,
    /// `compute-sanitizer`, by its name or path.
    pub compute_sanitizer: PathBuf,
    /// The program that runs the kernels: as a rule the one that runs now.
    pub program: PathBuf,
    /// How long one run of the program may take under a tool.
    pub limit: Duration,
}

/// A kernel with a fault, which a tool has to report.
///
/// ```
/// # use testkit::sanitize::{Planted, Tool};
/// // A program whose `planted out-of-bounds` launches a kernel that reads behind its view says so to `Program::planted`.
/// let planted = Planted {
///     tool: Tool::Memcheck,
///     fault: "a read out of bounds",
///     kernel: "reads_too_far",
///     arguments: vec!["planted".into(), "out-of-bounds".into()],
/// };
/// assert_eq!(planted.tool.name(), "memcheck");
/// ```
#[derive(Clone, Debug)]
pub struct Planted {
    /// The tool.
    pub tool: Tool,
    /// The fault, in a word or two.
    pub fault: &'static str,
    /// The kernel.
    pub kernel: &'static str,
    /// What the program is told to run it, but for the device: `--device cuda:0` follows.
    pub arguments: Vec<OsString>,
}

/// What is run under a tool.
///
/// ```
/// # use cuda_std::KernelFacts;
/// # use testkit::sanitize::Subject;
/// // What is no operation: a task of one's own, `program warm-up --rounds 3`, and the kernel that it launches.
/// let arguments = ["warm-up", "--rounds", "3"].map(Into::into).to_vec();
/// let subject = Subject { kernels: vec![KernelFacts::new("fills_caches")], arguments };
/// assert_eq!(subject.arguments.len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Subject {
    /// The kernels.
    pub kernels: Vec<KernelFacts>,
    /// What the program is told to run it, but for the device: `--device cuda:0` follows.
    pub arguments: Vec<OsString>,
}

impl Subject {
    /// An operation, with the last of its small cases: as a rule the largest, and an odd one.
    ///
    /// ```
    /// # use cuda_std::prelude::*;
    /// # use testkit::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};
    /// # #[kernel(block = 64, grid = x.len().div_ceil(64).max(1) as u32)]
    /// # pub fn doubles(x: DisjointSlice<'_, f32>) {
    /// #     if let Some(x) = x.own() {
    /// #         x.set(2.0 * x.get());
    /// #     }
    /// # }
    /// # struct Twice;
    /// # impl Operation for Twice {
    /// #     fn describe(&self) -> Description {
    /// #         Description { name: "twice", idea: "x = 2·x", sizes: &["n"], kernels: vec![doubles::FACTS],
    /// #             small: vec![vec![0], vec![77]], large: vec![], bits: Bits::Same }
    /// #     }
    /// #     fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
    /// #         let [n] = sizes.get(["n"])?;
    /// #         Ok(vec![Argument::in_out("x", &[n], Distribution::Uniform(-1.0, 1.0))])
    /// #     }
    /// #     fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
    /// #         Ok(device.launch(doubles { x: views.disjoint("x")? })?)
    /// #     }
    /// #     fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
    /// #         Ok(vec![values.of("x")?.iter().map(|x| Expected::exact(2.0 * x)).collect()])
    /// #     }
    /// #     fn operations(&self, _: &Sizes) -> f64 { 0.0 }
    /// # }
    /// # use testkit::sanitize::Subject;
    /// // The small cases of `Twice` have 0 and 77 elements.
    /// let subject = Subject::operation(&Twice, 9)?;
    /// assert_eq!(subject.arguments, ["run", "--op", "twice", "--sizes", "n=77", "--seed", "9"]);
    /// assert_eq!(subject.kernels[0].name, "doubles");
    /// # Ok::<(), testkit::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoCases`] and [`Error::SizesMismatch`] for cases that are none.
    pub fn operation(operation: &dyn Operation, seed: u64) -> Result<Self, Error> {
        let description = operation.describe();
        let last = description.cases(false)?.pop().ok_or(Error::NoCases { operation: description.name })?;
        let sizes = last.to_string();
        let seed = seed.to_string();
        let arguments =
            ["run", "--op", description.name, "--sizes", &sizes, "--seed", &seed].map(OsString::from).into();
        Ok(Self { kernels: description.kernels, arguments })
    }

    fn goes_by_tensor_maps(&self) -> bool {
        self.kernels.iter().any(|kernel| kernel.tensor_maps > 0)
    }
}

/// What runs on a GPU: all of it, unless some may be left out.
///
/// ```
/// # use cuda_std::{KernelFacts, executor::Checks};
/// # use testkit::{Device, Error, sanitize::{Subject, what_runs}};
/// // A GPU leaves out what has no PTX for it; the executor runs every kernel.
/// let device = Device::cpu(Checks::Bounds);
/// let subject = Subject { kernels: vec![KernelFacts::new("doubles")], arguments: vec!["run".into()] };
/// assert_eq!(what_runs(&device, vec![subject], true)?.len(), 1);
/// assert!(matches!(what_runs(&device, vec![], true), Err(Error::NeedsGpu { .. })), "nothing is left");
/// # Ok::<(), testkit::Error>(())
/// ```
///
/// # Errors
/// Those of [`Device::has_kernel`] for what may not be left out; [`Error::NeedsGpu`] if nothing is left.
pub fn what_runs(device: &Device, mut subjects: Vec<Subject>, may_leave_out: bool) -> Result<Vec<Subject>, Error> {
    let runs = |subject: &Subject| subject.kernels.iter().try_for_each(|kernel| device.has_kernel(kernel));
    if may_leave_out {
        subjects.retain(|subject| runs(subject).is_ok());
    }
    subjects.iter().try_for_each(runs)?;
    if subjects.is_empty() {
        let reason = format!("{} runs none of them", device.name());
        return Err(Error::NeedsGpu { what: "`sanitize`", reason });
    }
    Ok(subjects)
}

/// Runs the tools on their planted faults and on the subjects, and gives `print` a line for each tool as it comes. What a tool finds
/// is in its report, and no error.
///
/// ```
/// # use std::time::Duration;
/// # use testkit::{Error, sanitize::{Options, Planted, Tool, run}};
/// let options = Options {
///     tools: vec![Tool::Memcheck, Tool::Racecheck],
///     ordinal: 0,
///     compute_sanitizer: "/no/such/compute-sanitizer".into(),
///     program: std::env::current_exe().unwrap(),
///     limit: Duration::from_secs(600),
/// };
/// # let planted = Planted { tool: Tool::Memcheck, fault: "a read", kernel: "reads", arguments: vec!["planted".into()] };
/// match run(&[planted], &[], &options, |line| println!("{line}")) {
///     Ok(reports) => assert_eq!(reports.len(), options.tools.len()),
///     Err(Error::Program { program, reason }) => println!("{}: {reason}", program.display()),
///     Err(error) => panic!("{error}"),
/// }
/// # assert!(matches!(run(&[], &[], &options, |_| ()), Ok(reports) if reports.len() == 2));
/// ```
///
/// # Errors
/// [`Error::Program`] if `compute-sanitizer` cannot be run; [`Error::File`] if its log has no place.
pub fn run(
    planted: &[Planted],
    subjects: &[Subject],
    options: &Options,
    mut print: impl FnMut(&str),
) -> Result<Vec<ToolReport>, Error> {
    let mut reports = Vec::new();
    for &tool in &options.tools {
        let report = check(tool, planted.iter().find(|planted| planted.tool == tool), subjects, options)?;
        print(&report.line());
        reports.push(report);
    }
    Ok(reports)
}

/// Runs one tool: on its fault, and on the subjects that it can judge.
fn check(tool: Tool, planted: Option<&Planted>, subjects: &[Subject], options: &Options) -> Result<ToolReport, Error> {
    let of_fault = planted.map(|planted| under(tool, &planted.arguments, options)).transpose()?;
    let is_reported = |(planted, run): (&Planted, &Run)| {
        run.log.contains(planted.kernel) && run.counts.as_ref().is_ok_and(|counts| counts.errors > 0)
    };
    let (judged, left_out): (Vec<&Subject>, Vec<_>) =
        subjects.iter().partition(|subject| tool.can_judge(subject.goes_by_tensor_maps()));
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
        planted: planted.map(|planted| planted.fault.to_owned()),
        planted_kernel: planted.map(|planted| planted.kernel.to_owned()),
        planted_reported: planted.zip(of_fault.as_ref()).is_some_and(is_reported),
        planted_log: of_fault.map(|run| run.excerpt()).unwrap_or_default(),
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
fn under(tool: Tool, arguments: &[OsString], options: &Options) -> Result<Run, Error> {
    let arguments = [arguments, &["--device".into(), format!("cuda:{}", options.ordinal).into()]].concat();
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    let log = folder.path().join("log");
    let mut command = Command::new(&options.compute_sanitizer);
    command.args(["--tool", tool.name(), "--error-exitcode", &FOUND_SOMETHING.to_string(), "--log-file"]);
    command.arg(&log).arg(&options.program).args(&arguments);
    let (ended, output) = child::output_of(&mut command, options.limit)
        .map_err(|source| Error::Program { program: options.compute_sanitizer.clone(), reason: source.to_string() })?;
    // Without a log there is nothing to be read in it, which is what the counts say then.
    let log = std::fs::read(&log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    let what = arguments.join(" ".as_ref()).to_string_lossy().into_owned();
    Ok(Run { what, ended, counts: Counts::of(tool, &log), log, output })
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
/// ```
/// # use testkit::{Error, sanitize::version};
/// match version("compute-sanitizer".as_ref()) {
///     Ok(version) => assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}"),
///     Err(error) => assert!(matches!(error, Error::Program { .. }), "{error}"), // it is not installed
/// }
/// ```
///
/// # Errors
/// [`Error::Program`] if it cannot be run, or is another program.
pub fn version(compute_sanitizer: &Path) -> Result<String, Error> {
    let program = |reason: String| Error::Program { program: compute_sanitizer.to_owned(), reason };
    let output = child::output_of(Command::new(compute_sanitizer).arg("--version"), VERSION_LIMIT);
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
