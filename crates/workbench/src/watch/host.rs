//! The host's half of a round: cargo builds the program, and that checks the kernel on the CPU executor.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::round::Wanted;
use crate::project::{cargo, operations_of};

/// How often a process is asked whether it has ended.
const STEP: Duration = Duration::from_millis(5);

/// What the checks have come to.
#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Checks {
    /// The program has checked the operations that launch the kernel.
    Checked { operations: Vec<Checked>, right: bool, said: String },
    /// The host's compile of the kernels, or of the program, has failed.
    DoesNotCompile { errors: Vec<String> },
    /// The program has not ended in time.
    DidNotEnd { seconds: u64 },
    /// No operation of the program launches the kernel.
    NoOperation,
    /// There is nothing that could check it.
    NoProgram { why: String },
    /// Something else; the program or cargo says what.
    Failed { why: String },
}

/// The checks of one operation, as `check --json` reports them.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Checked {
    pub(super) operation: String,
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Case {
    pub(super) sizes: String,
    pub(super) accuracy: Option<Accuracy>,
    pub(super) failure: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Accuracy {
    pub(super) elements: u64,
    pub(super) error: f64,
    pub(super) part_of_bound: f64,
}

/// The checks, and what the compiler has warned of.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) checks: Checks,
    pub(super) warnings: Vec<String>,
    /// The operations that there are, if the one that was asked for is not among them.
    pub(super) refused: Option<Vec<String>>,
}

impl Checks {
    pub(super) fn is_right(&self) -> bool {
        match self {
            Self::Checked { right, .. } => *right,
            // A kernel without an operation has nothing that could be wrong, but its compile.
            Self::NoOperation | Self::NoProgram { .. } => true,
            _ => false,
        }
    }
}

/// Builds and checks. None, if meanwhile there is something newer to build.
pub(super) fn run(wanted: &Wanted<'_>, is_superseded: &dyn Fn() -> bool) -> Option<Host> {
    let host = |checks, warnings| Some(Host { checks, warnings, refused: None });
    let manifest = match wanted.project.program_manifest() {
        Ok(manifest) => manifest,
        Err(error) => return host(Checks::NoProgram { why: error.to_string() }, Vec::new()),
    };
    let Built { program, errors, warnings, said } = match build(manifest, is_superseded)? {
        Ok(built) => built,
        Err(error) => return host(Checks::Failed { why: format!("cannot run cargo: {error}") }, Vec::new()),
    };
    let Some(program) = program else {
        let checks = if errors.is_empty() { Checks::Failed { why: said } } else { Checks::DoesNotCompile { errors } };
        return host(checks, warnings);
    };
    let (checks, refused) = match check(&program, wanted, is_superseded)? {
        Ok(checked) => checked,
        Err(error) => (Checks::Failed { why: format!("cannot run {}: {error}", program.display()) }, None),
    };
    Some(Host { checks, warnings, refused })
}

/// What cargo has made of the program.
#[derive(Debug, Default)]
struct Built {
    program: Option<PathBuf>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// What cargo itself says.
    said: String,
}

/// Builds the program, without PTX: the device's half makes that of the one kernel.
fn build(manifest: &Path, is_superseded: &dyn Fn() -> bool) -> Option<std::io::Result<Built>> {
    let mut command = Command::new(cargo());
    command.args(["build", "--quiet", "--message-format=json", "--manifest-path"]).arg(manifest);
    command.env(cuda_builder::SKIP_VARIABLE, "1");
    let Output { status, stdout, stderr, .. } = match output(&mut command, None, is_superseded)? {
        Ok(output) => output,
        Err(error) => return Some(Err(error)),
    };
    let mut built = Built::read(&stdout, manifest);
    built.said = stderr.trim().to_owned();
    if !status.is_some_and(|status| status.success()) {
        built.program = None;
    }
    Some(Ok(built))
}

impl Built {
    /// Reads cargo's messages.
    fn read(stdout: &[u8], manifest: &Path) -> Self {
        let mut built = Self::default();
        let lines = stdout.split(|&byte| byte == b'\n');
        for value in lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
            match value["reason"].as_str() {
                Some("compiler-message") => {
                    let message = &value["message"];
                    let text = message["rendered"].as_str().unwrap_or_default().trim_end().to_owned();
                    // A message about no place is the count at the end.
                    let is_count = message["spans"].as_array().is_none_or(Vec::is_empty) && message["code"].is_null();
                    let list = match message["level"].as_str() {
                        Some("warning") if !is_count => &mut built.warnings,
                        Some(level) if level.starts_with("error") && !text.starts_with("error: aborting") => {
                            &mut built.errors
                        }
                        _ => continue,
                    };
                    if !list.contains(&text) {
                        list.push(text);
                    }
                }
                Some("compiler-artifact") if value["manifest_path"].as_str().map(Path::new) == Some(manifest) => {
                    built.program = value["executable"].as_str().map(PathBuf::from).or(built.program);
                }
                _ => {}
            }
        }
        built
    }
}

type Ended = std::io::Result<(Checks, Option<Vec<String>>)>;

/// Has the program check the kernel.
fn check(program: &Path, wanted: &Wanted<'_>, is_superseded: &dyn Fn() -> bool) -> Option<Ended> {
    let mut command = Command::new(program);
    command.args(["check", "--kernel", wanted.kernel, "--device", "cpu", "--json"]);
    command.args(wanted.operation.into_iter().flat_map(|name| ["--op", name]));
    let Output { status, stdout, stderr, .. } = match output(&mut command, Some(wanted.limit), is_superseded)? {
        Ok(output) => output,
        Err(error) => return Some(Err(error)),
    };
    let Some(status) = status else {
        return Some(Ok((Checks::DidNotEnd { seconds: wanted.limit.as_secs() }, None)));
    };
    // The program refuses what it does not know. What that is, it says in a form for people; which names there are, it says in JSON.
    if status.code() == Some(2) {
        let known = Command::new(program).args(["list", "--json"]).output().ok();
        let known = known.and_then(|output| operations_of(&output.stdout).ok()).unwrap_or_default();
        let is_known = |name: &str| known.iter().any(|operation| operation.name == name);
        if !known.is_empty() && wanted.operation.is_some_and(|name| !is_known(name)) {
            let names = known.into_iter().map(|operation| operation.name).collect();
            return Some(Ok((Checks::NoOperation, Some(names))));
        }
        if !known.is_empty() && !known.iter().any(|operation| operation.kernels.iter().any(|it| it == wanted.kernel)) {
            return Some(Ok((Checks::NoOperation, None)));
        }
        return Some(Ok((Checks::Failed { why: stderr.trim().to_owned() }, None)));
    }
    // Kernels print to the same place.
    let mut operations: Vec<Checked> = Vec::new();
    let mut said = String::new();
    for line in String::from_utf8_lossy(&stdout).lines() {
        match serde_json::from_str(line) {
            Ok(operation) => operations.push(operation),
            Err(_) => said += &format!("{line}\n"),
        }
    }
    said += stderr.trim();
    Some(Ok(match status.code() {
        Some(0 | 1) => (Checks::Checked { operations, right: status.success(), said }, None),
        _ => (Checks::Failed { why: format!("{} has ended with {status}: {said}", program.display()) }, None),
    }))
}

struct Output {
    /// None after the time limit.
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: String,
}

/// Runs a program to its end, for so long at most. None, if it was ended because there is something newer.
fn output(
    command: &mut Command,
    limit: Option<Duration>,
    is_superseded: &dyn Fn() -> bool,
) -> Option<std::io::Result<Output>> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Some(Err(error)),
    };
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let mut looked = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) => {}
            Err(error) => return Some(Err(error)),
        }
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            end(&mut child);
            break None;
        }
        // Files are read for that.
        if looked.elapsed() > Duration::from_millis(100) {
            if is_superseded() {
                end(&mut child);
                return None;
            }
            looked = Instant::now();
        }
        thread::sleep(STEP);
    };
    let text = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    let (stdout, stderr) = (text(stdout), String::from_utf8_lossy(&text(stderr)).into_owned());
    Some(Ok(Output { status, stdout, stderr }))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Ends a process: one that has ended by itself meanwhile is as well.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
