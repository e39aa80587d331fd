//! `cargo tilewright learn`: a course of puzzles, each of which is one blank in a kernel, checked by the executor. Nothing needs a GPU or a network.
//!
//! ```text
//!  course/ of the repository   kernels with solutions, marks, hints ──embedded──▶ this program
//!                                                                                      │ the blanks cut out
//!  a learner's crate           kernels with blanks, a program that checks them  ◀──────┘
//!                              progress.json: what has passed, which hints were shown
//! ```
//!
//! The crate's own program checks a puzzle (`cargo run -- NAME`), and notes what has passed; `learn check` starts it. Lists, hints and resets are
//! made here, from the embedded course and the learner's files.

mod course;
mod embedded;
#[path = "../../../../course/src/progress.rs"]
mod progress;
mod puzzle;
mod registers;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Subcommand;
use serde::Serialize;

use crate::build::build;
use crate::machine::has_driver;
use crate::new::is_from_repository;
use crate::place::{Place, repository};
use crate::project::Project;
use crate::style::{Style, Tone};
use course::{Course, Reset, State};
use progress::Progress;
use puzzle::Puzzle;
use registers::Registers;

/// The options of `learn`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Where to write the course [default: in a course, shows how it stands; elsewhere ./tilewright-course]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

/// What can be done in a course.
#[derive(Subcommand)]
enum Task {
    /// Lists the puzzles, and how each stands.
    List,
    /// Checks a puzzle: its report, what it means, what the kernel costs.
    Check {
        /// Its name, its number or its file; `all` checks all [default: the first that is not solved]
        name: Option<String>,
        /// Also compiles the kernel for Hopper, and shows how many registers it needs beside the repository's solution: takes longer.
        #[arg(long, conflicts_with = "gpu")]
        registers: bool,
        /// On a GPU: compares every element there, and measures, with the share of what the GPU could do.
        #[arg(long)]
        gpu: bool,
    },
    /// Shows the next hint of a puzzle, and those before.
    Hint {
        /// Its name, its number or its file [default: the first that is not solved]
        name: Option<String>,
    },
    /// Makes a puzzle's file what it was at first, and keeps yours.
    Reset {
        /// Its name, its number or its file
        name: String,
    },
}

/// A puzzle and how it stands, as JSON has it: a line for each.
#[derive(Serialize)]
struct Entry<'a> {
    number: usize,
    name: &'a str,
    title: &'a str,
    file: &'a str,
    state: State,
    hints: usize,
    hints_shown: usize,
}

/// The directory of a course, if none is named.
const DIRECTORY: &str = "tilewright-course";

pub(crate) fn run(place: &Place, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (here, style) = (place.directory()?, Style::of_stdout());
    let found = || {
        let missing =
            || anyhow!("{} is in no course: `cargo tilewright learn` writes one, into ./{DIRECTORY}", here.display());
        Course::around(&here).ok_or_else(missing)
    };
    match &arguments.task {
        None => match (&arguments.directory, Course::around(&here)) {
            (None, Some(course)) => list(&course, arguments.json, style),
            (directory, _) => {
                let directory = directory.as_deref().unwrap_or(Path::new(DIRECTORY));
                let course = Course::write(&here.join(directory), repository(), is_from_repository())?;
                written(&course, directory, arguments.json);
            }
        },
        Some(Task::List) => list(&found()?, arguments.json, style),
        Some(Task::Check { name, registers, gpu }) => {
            return check(&found()?, name.as_deref(), *registers, *gpu, arguments.json);
        }
        Some(Task::Hint { name }) => hint(&found()?, name.as_deref(), arguments.json, style)?,
        Some(Task::Reset { name }) => reset(&found()?, name, arguments.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Says where a course is, and how to begin.
fn written(course: &Course, directory: &Path, json: bool) {
    let (shown, count) = (directory.display(), course.puzzles.len());
    if json {
        println!("{}", serde_json::json!({ "directory": course.directory, "puzzles": count }));
        return;
    }
    println!("{shown} has {count} puzzles, each a kernel with one part that is not right yet. In it:\n");
    println!("    cargo tilewright learn          # how you stand, and what is next");
    println!("    cargo tilewright learn check    # checks the next puzzle, and says what is wrong");
    println!("    cargo tilewright learn hint     # a hint");
    println!("\nBegin with {}.", Path::new(directory).join(course.puzzles[0].file).display());
}

/// What has been done; nothing, with a warning, if that cannot be read.
fn progress_of(course: &Course) -> Progress {
    Progress::read(&course.directory).unwrap_or_else(|why| {
        eprintln!("warning: {why}");
        Progress::default()
    })
}

/// The puzzle of a name, or the next one.
fn wanted<'a>(course: &'a Course, name: Option<&str>, progress: &Progress) -> anyhow::Result<&'a Puzzle> {
    match name {
        Some(name) => course.puzzle(name),
        None => course.next(progress).context("all puzzles are solved: name one"),
    }
}

fn list(course: &Course, json: bool, style: Style) {
    let progress = progress_of(course);
    let mut solved = 0;
    for puzzle in &course.puzzles {
        let Puzzle { number, name, title, file, hints, .. } = puzzle;
        let state = course.state(puzzle, &progress);
        let hints_shown = progress.hints.get(name).copied().unwrap_or(0).min(hints.len());
        solved += usize::from(state == State::Solved);
        if json {
            let entry = Entry { number: *number, name, title, file, state, hints: hints.len(), hints_shown };
            println!("{}", serde_json::to_string(&entry).expect("names, and numbers"));
            continue;
        }
        let (mark, tone, more) = match state {
            State::Open => ("○", Tone::Faint, ""),
            State::Solved => ("●", Tone::Good, ""),
            State::Changed => ("◐", Tone::Warning, "; changed since it has passed"),
            State::Missing => ("✗", Tone::Bad, "; its file is missing: `cargo tilewright learn reset` writes it"),
        };
        let hints = match hints_shown {
            0 => String::new(),
            shown => format!("; hints shown: {shown} of {}", hints.len()),
        };
        println!(
            "{} {number:>2} {name:<16} {title}{}",
            style.paint(tone, mark),
            style.paint(Tone::Faint, format!("{hints}{more}"))
        );
    }
    if json {
        return;
    }
    println!("\n{solved} of {} solved.", course.puzzles.len());
    say_next(course, &progress);
    if !course.is_of_this_version() {
        eprintln!(
            "warning: another version of this program has written this course: hints and resets are those of this one"
        );
    }
}

fn say_next(course: &Course, progress: &Progress) {
    match course.next(progress) {
        Some(Puzzle { number, name, file, .. }) => {
            println!("Next: {number}. {name}, in {file}. Then: cargo tilewright learn check");
        }
        None => println!("All are solved. On a GPU, the same files: cargo tilewright learn check all --gpu"),
    }
}

fn check(course: &Course, name: Option<&str>, registers: bool, gpu: bool, json: bool) -> anyhow::Result<ExitCode> {
    // Before a build that takes a minute.
    ensure!(
        !gpu || has_driver(),
        "there is no NVIDIA driver here (libcuda.so.1), and so no GPU: without `--gpu` puzzles are checked on the processor"
    );
    let name = match name {
        Some("all") => "all".to_owned(),
        _ => wanted(course, name, &progress_of(course))?.name.clone(),
    };
    let project = Project::find(&Place { manifest_path: Some(course.directory.join("Cargo.toml")) })?;
    if !project.target_dir.join(if gpu { "release" } else { "debug" }).exists() {
        eprintln!("Building what the course needs, this time only: one to five minutes, by how many cores there are.");
    }
    let flags: &[&str] = if gpu { &["--quiet", "--release", "--features", "gpu"] } else { &["--quiet"] };
    let program = build(&project, flags, &[])?.context("the course does not compile: the message is above")?;
    let mut command = Command::new(&program);
    command.arg(&name).args(gpu.then_some("--gpu")).args(json.then_some("--json"));
    let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
    if status.success() && registers {
        let is_wanted = |puzzle: &&Puzzle| name == "all" || puzzle.name == name;
        for puzzle in course.puzzles.iter().filter(is_wanted) {
            let registers = Registers::of(course, puzzle)?;
            if json {
                println!("{}", serde_json::to_string(&registers).expect("names, and numbers"));
            } else {
                registers.show();
            }
        }
    }
    if status.success() && !json && !gpu {
        say_next(course, &progress_of(course));
    }
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        None => bail!("the program of the course was ended by a signal ({status})"),
    }
}

fn hint(course: &Course, name: Option<&str>, json: bool, style: Style) -> anyhow::Result<()> {
    // What cannot be read is not written over.
    let mut progress = Progress::read(&course.directory).map_err(anyhow::Error::msg)?;
    let Puzzle { name, file, hints, .. } = wanted(course, name, &progress)?;
    let shown = progress.hints.entry(name.clone()).or_default();
    let were_all = *shown >= hints.len();
    *shown = (*shown + 1).min(hints.len());
    let shown = *shown;
    progress.write(&course.directory).map_err(anyhow::Error::msg)?;
    if json {
        println!("{}", serde_json::json!({ "puzzle": name, "hints": hints[..shown], "of": hints.len() }));
        return Ok(());
    }
    println!("{name} ({file}), hints 1 to {shown} of {}:\n", hints.len());
    for (index, hint) in hints[..shown].iter().enumerate() {
        println!("  {}. {}", index + 1, style.wrap(hint, 5));
    }
    if were_all {
        println!("\nThose are all.");
    }
    Ok(())
}

fn reset(course: &Course, name: &str, json: bool) -> anyhow::Result<()> {
    let puzzle = course.puzzle(name)?;
    let (reset, file) = (course.reset(puzzle)?, puzzle.file);
    let backup = if let Reset::Kept(backup) = &reset { Some(backup) } else { None };
    if json {
        println!("{}", serde_json::json!({ "puzzle": puzzle.name, "file": file, "backup": backup }));
        return Ok(());
    }
    match reset {
        Reset::Unchanged => println!("{file} is as it was at first."),
        Reset::Restored => println!("{file} is there again."),
        Reset::Kept(backup) => println!("{file} is as it was at first. Yours is {}.", backup.display()),
    }
    Ok(())
}
