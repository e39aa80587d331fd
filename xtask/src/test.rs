//! `cargo xtask test`: everything that CI runs, in order. What builds in a directory of its own runs beside what follows it.

use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Parser as _;

use crate::workspace::{cargo, first_line, table, target_dir};
use crate::{browser, portable, python};

/// The options of `test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave out the setup, the documentation, the book and the licences.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    python: python::Arguments,
}

/// What came of a step.
enum Outcome {
    Passed,
    /// And why.
    Failed(anyhow::Error),
    /// And why.
    Skipped(String),
}

struct Step {
    name: &'static str,
    /// Whether `--quick` leaves it out.
    thorough: bool,
    action: fn(&Arguments) -> Action,
}

enum Action {
    /// A task of this program, and its options.
    Task(Vec<String>),
    Run(Command),
    /// Begun, by a process of its own, before the steps that follow, which leave processors idle; its output is shown after theirs.
    Beside(Vec<String>),
    Skip(String),
}

/// How far a step is when the next one begins.
enum Progress {
    Ended(Outcome, Duration),
    /// It runs beside those that follow: what will have come of it, what it has written, and how long it took.
    Beside(JoinHandle<(anyhow::Result<()>, String, Duration)>),
}

const STEPS: &[Step] = &[
    Step { name: "setup", thorough: true, action: |_| task(&["setup", "--yes"]) },
    Step { name: "format", thorough: false, action: |_| task(&["format", "--check"]) },
    Step { name: "circles", thorough: false, action: |_| task(&["circles"]) },
    Step { name: "clippy", thorough: false, action: |_| Action::Run(clippy()) },
    Step { name: "tests", thorough: false, action: |_| task(&["side-by-side"]) },
    Step {
        name: "other systems",
        thorough: true,
        action: |_| portable::obstacle().map_or_else(|| Action::Beside(vec!["portable".to_owned()]), Action::Skip),
    },
    Step { name: "first path", thorough: false, action: |_| task(&["first-path", "--short"]) },
    Step { name: "mutants", thorough: false, action: |_| mutants() },
    Step { name: "documentation", thorough: true, action: |_| task(&["documentation"]) },
    Step { name: "book", thorough: true, action: |_| task(&["book", "--check"]) },
    Step { name: "licences and advisories", thorough: true, action: |_| deny() },
    Step {
        name: "python",
        thorough: false,
        action: |arguments| {
            let python::Arguments { with_torch, release } = arguments.python;
            let options = [(with_torch, "--with-torch"), (release, "--release")];
            let given = options.iter().filter(|(is_given, _)| *is_given).map(|(_, option)| *option);
            task(&["python"].into_iter().chain(given).collect::<Vec<_>>())
        },
    },
    Step {
        name: "browser",
        thorough: true,
        action: |_| match browser::prepare() {
            Ok(_) => task(&["browser"]),
            Err(missing) => Action::Skip(format!("{missing:#}")),
        },
    },
    Step { name: "PTX", thorough: false, action: |_| task(&["build-ptx", "--strict"]) },
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut steps = Vec::new();
    for step in STEPS.iter().filter(|step| !(arguments.quick && step.thorough)) {
        println!("\n==> {}", step.name);
        let start = Instant::now();
        let ended = |outcome| Progress::Ended(outcome, start.elapsed());
        let progress = match (step.action)(arguments) {
            Action::Task(words) => ended(carry_out(&words).into()),
            Action::Run(command) => ended(execute(command).into()),
            Action::Beside(words) => {
                println!("begun, beside what follows");
                Progress::Beside(thread::spawn(move || beside(&words)))
            }
            Action::Skip(why) => {
                println!("skipped: {why}");
                ended(Outcome::Skipped(why))
            }
        };
        println!("<== {} took {}", step.name, seconds(start.elapsed()));
        steps.push((step.name, progress));
    }
    let results: Vec<_> = steps.into_iter().map(|(name, progress)| result(name, progress)).collect();

    let mut rows = table(["step", "result", "time"]);
    for (name, outcome, time) in &results {
        let result = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(_) => "FAILED".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        rows.add_row([(*name).to_owned(), result, seconds(*time)]);
    }
    println!("\n{rows}");
    let failures: Vec<_> = results
        .iter()
        .filter_map(|(name, outcome, _)| match outcome {
            Outcome::Failed(error) => Some(format!("{name}: {error:#}")),
            Outcome::Passed | Outcome::Skipped(_) => None,
        })
        .collect();
    if failures.is_empty() { Ok(()) } else { bail!("failed:\n{}", failures.join("\n")) }
}

/// What has come of a step, and how long it took, when it has ended.
fn result(step: &'static str, progress: Progress) -> (&'static str, Outcome, Duration) {
    match progress {
        Progress::Ended(outcome, time) => (step, outcome, time),
        Progress::Beside(ends) => {
            let (result, output, time) = ends.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            println!("\n==> {step}, which ran beside others\n{}", output.trim_end());
            let outcome = Outcome::from(result);
            println!("<== {step} took {}", seconds(time));
            (step, outcome, time)
        }
    }
}

impl From<anyhow::Result<()>> for Outcome {
    fn from(result: anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => {
                println!("failed: {error:#}");
                Self::Failed(error)
            }
        }
    }
}

fn execute(mut command: Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{} cannot be run", command.get_program().display()))?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// A task by a process of its own; also what it has written, and how long it took.
fn beside(words: &[String]) -> (anyhow::Result<()>, String, Duration) {
    let start = Instant::now();
    let run = || {
        let output = Command::new(env::current_exe()?).args(words).stdin(Stdio::null()).output()?;
        let written = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        anyhow::Ok((output.status, written))
    };
    let (result, written) = match run() {
        Ok((status, written)) if status.success() => (Ok(()), written),
        Ok((status, written)) => (Err(anyhow::anyhow!("{status}: see above")), written),
        Err(error) => (Err(error.context("this program cannot be run")), String::new()),
    };
    (result, written, start.elapsed())
}

fn carry_out(words: &[String]) -> anyhow::Result<()> {
    let words = ["xtask"].into_iter().chain(words.iter().map(String::as_str));
    let code = crate::run(crate::Arguments::try_parse_from(words)?.task)?;
    ensure!(code == ExitCode::SUCCESS, "see above");
    Ok(())
}

fn task(words: &[&str]) -> Action {
    Action::Task(words.iter().map(|word| (*word).to_owned()).collect())
}

fn clippy() -> Command {
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    // In a clone in which nothing has been built, it would wait for the PTX of all kernels, of which it sees nothing. The tests' build makes that
    // while it compiles the kernels for the executor.
    if !target_dir().join("cuda-builder").exists() {
        clippy.env("TILEWRIGHT_SKIP_PTX", "1");
    }
    clippy
}

/// A sample of the changes at the kernels' sites, always the same one, by the program that the tests have built.
fn mutants() -> Action {
    let suite = target_dir().join("debug/suite");
    task(&["mutants", "--sample", "100", "--suite", &suite.to_string_lossy()])
}

fn deny() -> Action {
    match first_line(cargo(&["deny", "--version"])) {
        Some(_) => Action::Run(cargo(&["deny", "check"])),
        None => Action::Skip("cargo-deny is not installed".to_owned()),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
