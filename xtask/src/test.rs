//! `cargo xtask test`: everything that CI runs, in order.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::workspace::{cargo, command, first_line, table, target_dir};
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
    Failed,
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
    Run(Command),
    Skip(String),
}

const STEPS: &[Step] = &[
    Step { name: "setup", thorough: true, action: |_| Action::Run(xtask(&["setup", "--yes"])) },
    Step { name: "format", thorough: false, action: |_| Action::Run(xtask(&["format", "--check"])) },
    Step { name: "circles", thorough: false, action: |_| Action::Run(xtask(&["circles"])) },
    Step { name: "clippy", thorough: false, action: |_| Action::Run(clippy()) },
    Step { name: "tests", thorough: false, action: |_| Action::Run(xtask(&["side-by-side"])) },
    Step { name: "first path", thorough: false, action: |_| Action::Run(xtask(&["first-path", "--short"])) },
    Step { name: "mutants", thorough: false, action: |_| Action::Run(mutants()) },
    Step { name: "documentation", thorough: true, action: |_| Action::Run(xtask(&["documentation"])) },
    Step { name: "book", thorough: true, action: |_| Action::Run(xtask(&["book", "--check"])) },
    Step { name: "licences and advisories", thorough: true, action: |_| deny() },
    Step {
        name: "other systems",
        thorough: true,
        action: |_| portable::obstacle().map_or_else(|| Action::Run(xtask(&["portable"])), Action::Skip),
    },
    Step {
        name: "python",
        thorough: false,
        action: |arguments| {
            let python::Arguments { with_torch, release } = arguments.python;
            let options = [(with_torch, "--with-torch"), (release, "--release")];
            let given = options.iter().filter(|(is_given, _)| *is_given).map(|(_, option)| *option);
            Action::Run(xtask(&["python"].into_iter().chain(given).collect::<Vec<_>>()))
        },
    },
    Step {
        name: "browser",
        thorough: true,
        action: |_| match browser::prepare() {
            Ok(_) => Action::Run(xtask(&["browser"])),
            Err(missing) => Action::Skip(format!("{missing:#}")),
        },
    },
    Step { name: "PTX", thorough: false, action: |_| Action::Run(xtask(&["build-ptx", "--strict"])) },
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut results = Vec::new();
    for step in STEPS.iter().filter(|step| !(arguments.quick && step.thorough)) {
        println!("\n==> {}", step.name);
        let start = Instant::now();
        let outcome = match (step.action)(arguments) {
            Action::Run(command) => execute(command),
            Action::Skip(why) => {
                println!("skipped: {why}");
                Outcome::Skipped(why)
            }
        };
        println!("<== {} took {}", step.name, seconds(start.elapsed()));
        results.push((step.name, outcome, start.elapsed()));
    }

    let mut rows = table(["step", "result", "time"]);
    for (name, outcome, time) in &results {
        let result = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        rows.add_row([(*name).to_owned(), result, seconds(*time)]);
    }
    println!("\n{rows}");
    let failed: Vec<_> =
        results.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed)).map(|(name, ..)| *name).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn execute(mut command: Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => {
            println!("failed: {status}");
            Outcome::Failed
        }
        Err(error) => {
            println!("{} cannot be run: {error}", command.get_program().display());
            Outcome::Failed
        }
    }
}

fn xtask(arguments: &[&str]) -> Command {
    let program = env::current_exe().unwrap_or_default();
    command(&program.to_string_lossy(), arguments)
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
fn mutants() -> Command {
    let suite = target_dir().join("debug/suite");
    xtask(&["mutants", "--sample", "100", "--suite", &suite.to_string_lossy()])
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
