//! `cargo xtask side-by-side`: what `cargo test --workspace` runs, several programs at a time.
//!
//! `cargo test` runs one program of tests after the other, and many of them leave processors idle: they wait for a compiler, for a time limit, or
//! for their one long test. So cargo builds them here, and only says how it would run each:
//!
//! ```text
//!  cargo test ── builds all, and starts for each program ──▶ this one in its place, which notes program, directory, environment
//!  this task  ── runs what was noted, the longest first, one for each processor, and shows the output of each when it ends
//! ```
//!
//! The examples in documentation, which rustdoc builds and runs, are one program among them.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace::{cargo, host_triple, table};

/// The programs that take longest, the longest first: begun at the end, one of them would run alone. What is not here comes after them.
const LONGEST: &[&str] = &[
    "examples",
    "planned",
    "ptx",
    DOCUMENTATION,
    "commands",
    "course",
    "epilogue",
    "build",
    "constants",
    "invariance",
    "operations",
    "plan_fits",
    "convergence",
    "watch",
    "inspect",
    "workbench",
];

/// Those that build programs other than the workspace's in the repository's target directory, where one would replace what another is about to
/// run: one at a time.
const BUILD_IN_TARGET: &[&str] = &["commands", "course", "examples", "inspect", "watch"];

/// The name of the examples in documentation among the programs.
const DOCUMENTATION: &str = "documentation";

/// More would only make tests with time limits late: each has threads of its own.
const MOST_AT_A_TIME: usize = 4;

/// How many of the longest are shown at the end.
const SHOWN: usize = 12;

/// How many lines of a program that failed are shown once more at the end, where nobody has to look for them.
const REPEATED: usize = 30;

/// Names the directory of notes to this program where it stands in for a program of tests.
const NOTES: &str = "TILEWRIGHT_TEST_NOTES";

/// How cargo would run a program of tests.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Note {
    words: Vec<OsString>,
    directory: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// Notes how a program of tests is run, if cargo takes this program for its runner.
pub(crate) fn stand_in_for_runner() -> Option<ExitCode> {
    let notes = env::var_os(NOTES)?;
    Some(match note(Path::new(&notes)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn note(notes: &Path) -> anyhow::Result<()> {
    let runner = runner_variable()?;
    // Of the runner no program that is started by a test may know.
    let is_others = |name: &OsString| name != NOTES && name.to_str() != Some(&runner);
    let environment = env::vars_os().filter(|(name, _)| is_others(name)).collect();
    let note = Note { words: env::args_os().skip(1).collect(), directory: env::current_dir()?, environment };
    // Cargo starts one after the other.
    let place = notes.join(format!("{:04}.json", fs::read_dir(notes)?.count()));
    fs::write(&place, serde_json::to_vec(&note)?).with_context(|| format!("cannot write {}", place.display()))
}

/// The variable by which cargo is told what runs programs for this machine.
fn runner_variable() -> anyhow::Result<String> {
    Ok(format!("CARGO_TARGET_{}_RUNNER", host_triple()?.to_uppercase().replace('-', "_")))
}

/// The options of `side-by-side`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this package; can be given several times.
    #[arg(long, short)]
    package: Vec<String>,
}

impl Arguments {
    /// A cargo that tests what is asked for.
    fn cargo_test(&self, options: &[&str]) -> Command {
        let mut command = cargo(&["test", "--no-fail-fast"]);
        match &*self.package {
            [] => _ = command.arg("--workspace"),
            packages => packages.iter().for_each(|package| _ = command.args(["--package", package])),
        }
        command.args(options);
        command
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = build(arguments)?;
    ensure!(!programs.is_empty(), "cargo has built no tests");
    let at_a_time = thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_A_TIME);
    println!("{} programs, {at_a_time} at a time", programs.len());

    let queue = Queue::new(programs);
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(program) = queue.next() {
                    let name = program.name.clone();
                    let result = execute(program);
                    queue.has_ended(&name);
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    let (outcome, output, time) = result;
                    println!("\n     Ran {name} in {:.1} s\n{}", time.as_secs_f64(), output.trim_end());
                    ended.push((name, outcome.map_err(|error| format!("{error}\n{}", what_failed(&output))), time));
                }
            });
        }
    });

    let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
    let mut rows = table(["program", "time"]);
    for (name, _, time) in ended.iter().take(SHOWN) {
        rows.add_row([name.clone(), format!("{:.1} s", time.as_secs_f64())]);
    }
    println!("\nThe longest of {}:\n{rows}", ended.len());
    let failures: Vec<_> =
        ended.iter().filter_map(|(name, outcome, _)| Some(format!("{name}: {}", outcome.as_ref().err()?))).collect();
    if failures.is_empty() { Ok(()) } else { bail!("tests have failed:\n{}", failures.join("\n")) }
}

/// A program of tests.
struct Program {
    name: String,
    command: Command,
}

/// Has cargo build all programs of tests; how it would run them.
fn build(arguments: &Arguments) -> anyhow::Result<Vec<Program>> {
    let notes = tempfile::tempdir()?;
    // All but the examples in documentation. `--lib` and `--bins` would take what is not to be tested, too.
    let mut command = arguments.cargo_test(&["--tests"]);
    command.env(NOTES, notes.path()).env(runner_variable()?, env::current_exe()?);
    let status = command.status().context("cargo cannot be run")?;
    ensure!(status.success(), "the tests cannot be built: see above");

    let mut places: Vec<_> =
        fs::read_dir(notes.path())?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    places.sort();
    let program = |place: PathBuf| {
        let note: Note = serde_json::from_slice(&fs::read(&place)?)?;
        let (program, arguments) = note.words.split_first().context("cargo has started nothing")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(note.directory).env_clear().envs(note.environment);
        Ok(Program { name: name_of(Path::new(program)), command })
    };
    let mut programs = places.into_iter().map(program).collect::<anyhow::Result<Vec<_>>>()?;
    programs.push(Program { name: DOCUMENTATION.to_owned(), command: arguments.cargo_test(&["--doc"]) });
    Ok(programs)
}

/// The name of a program of tests, without the digits that cargo gives it.
fn name_of(program: &Path) -> String {
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit_once('-').map_or(&*stem, |(name, _)| name).to_owned()
}

/// Runs a program; what came of it, all its output, and how long it took.
fn execute(mut program: Program) -> (anyhow::Result<()>, String, Duration) {
    let start = Instant::now();
    let mut output = String::new();
    let mut run = || {
        // A file, because a process that a test leaves behind would keep a pipe open.
        let mut file = tempfile::tempfile()?;
        let both = |file: &File| file.try_clone().map(Stdio::from);
        let status = program.command.stdin(Stdio::null()).stdout(both(&file)?).stderr(both(&file)?).status()?;
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        output = String::from_utf8_lossy(&bytes).into_owned();
        ensure!(status.success(), "{status}");
        Ok(())
    };
    let outcome = run();
    (outcome, output, start.elapsed())
}

/// What a program of tests says of those that failed, or the last of what it says.
fn what_failed(output: &str) -> String {
    let lines: Vec<_> = output.trim_end().lines().collect();
    let start = lines.iter().position(|line| *line == "failures:");
    let shown = start.map_or_else(|| &lines[lines.len().saturating_sub(REPEATED)..], |start| &lines[start + 1..]);
    // Where a test was called from says nothing of it.
    let is_of_backtrace = |line: &str| {
        line == "stack backtrace:"
            || line.starts_with("note: ")
            || line
                .split_once(": ")
                .is_some_and(|(frame, _)| frame.starts_with(' ') && frame.trim().parse::<u32>().is_ok())
    };
    let said = shown.iter().filter(|line| !line.is_empty() && !is_of_backtrace(line));
    let indented = said.take(REPEATED).map(|line| format!("    {line}"));
    indented.collect::<Vec<_>>().join("\n")
}

/// Programs that have not begun.
struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified whenever one ends.
    ended: Condvar,
}

struct Waiting {
    programs: Vec<Program>,
    /// Whether one is running that builds other programs in the repository's target directory.
    builds_in_target: bool,
}

impl Queue {
    /// The longest first.
    fn new(mut programs: Vec<Program>) -> Self {
        let place = |name: &str| LONGEST.iter().position(|one| *one == name).unwrap_or(LONGEST.len());
        programs.sort_by_key(|program| place(&program.name));
        Self { waiting: Mutex::new(Waiting { programs, builds_in_target: false }), ended: Condvar::new() }
    }

    /// The next one that can begin, as soon as there is one; `None` if all have begun.
    fn next(&self) -> Option<Program> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while !waiting.programs.is_empty() {
            let is_free =
                |program: &Program| !waiting.builds_in_target || !BUILD_IN_TARGET.contains(&program.name.as_str());
            if let Some(place) = waiting.programs.iter().position(is_free) {
                let program = waiting.programs.remove(place);
                waiting.builds_in_target |= BUILD_IN_TARGET.contains(&program.name.as_str());
                return Some(program);
            }
            waiting = self.ended.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn has_ended(&self, name: &str) {
        if BUILD_IN_TARGET.contains(&name) {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).builds_in_target = false;
        }
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Program> {
        names.iter().map(|name| Program { name: (*name).to_owned(), command: Command::new("true") }).collect()
    }

    #[test]
    fn the_longest_begin_first_and_those_that_share_a_directory_run_one_after_the_other() {
        let queue = Queue::new(named(&["bench", "course", "examples", "planned"]));
        let next = || queue.next().map(|program| program.name);
        assert_eq!([next(), next(), next()].map(Option::unwrap), ["examples", "planned", "bench"]);
        thread::scope(|scope| {
            let waits = scope.spawn(|| queue.next().map(|program| program.name));
            thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "two programs build in one directory");
            queue.has_ended("planned");
            thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "two programs build in one directory");
            queue.has_ended("examples");
            assert_eq!(waits.join().unwrap().as_deref(), Some("course"));
        });
        assert!(queue.next().is_none());
    }

    #[test]
    fn a_program_that_fails_is_an_error_and_its_output_is_there() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            execute(Program { name: String::new(), command })
        };
        let (outcome, output, _) = shell("echo one; echo two >&2; exit 3");
        assert!(outcome.unwrap_err().to_string().contains('3'));
        assert_eq!(output, "one\ntwo\n");
        let (outcome, _, time) = shell("sleep 100 & echo begun");
        assert!(outcome.is_ok() && time < Duration::from_secs(50), "a process that is left behind is not waited for");
        let missing = Program { name: String::new(), command: Command::new("/no/such/program") };
        assert!(execute(missing).0.is_err());
    }

    #[test]
    fn of_a_program_that_failed_the_failures_are_repeated_or_its_end() {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n1 is not 2\nstack backtrace:\n   0: begin\n\n";
        assert_eq!(what_failed(output), "    ---- b stdout ----\n    1 is not 2");
        let ends = what_failed(&(0..100).map(|line| format!("{line}\n")).collect::<String>());
        assert!(ends.starts_with("    70\n    71\n") && ends.ends_with("    99"), "{ends}");
    }

    #[test]
    fn notes_are_read_as_they_are_written() {
        let note = Note {
            words: vec!["target/debug/deps/planned-0123".into(), "--quiet".into()],
            directory: "tests".into(),
            environment: vec![("PATH".into(), "/bin".into())],
        };
        let read: Note = serde_json::from_slice(&serde_json::to_vec(&note).unwrap()).unwrap();
        assert_eq!(read, note);
        assert_eq!(name_of(Path::new("target/debug/deps/plan_fits-f9def73d97ab3dcd")), "plan_fits");
    }
}
