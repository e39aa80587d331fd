//! `cargo tilewright`: what an author of kernels does all day, in any crate that has some.
//!
//! ```text
//!  a crate of kernels       its sources ───▶ cuda-builder ───▶ PTX, SASS, registers, lines     inspect, watch
//!                           its program ───▶ testkit::main ──▶ checks, costs, traces, times    check, bench, trace, profile, watch
//!                                                                                          all of them: printed, or as JSON
//! ```
//!
//! What a kernel is compiled to, this crate asks of `cuda-builder`. What it does, it asks of the program of the user's crate, whose `main`
//! is `testkit::main`: that program knows the operations, their cases and their kernels, and this one starts it and reads its JSON. So
//! nothing here knows any kernel, and what it shows is what `cargo run` of that crate shows.
//!
//! In this repository `cargo tilewright` is an alias, and `cargo xtask` has the same tasks.

pub mod code;
mod learn;
mod nearest;
pub mod new;
mod program;
mod project;
mod style;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

pub use project::Project;

/// Write GPU kernels, see what they were compiled to, what goes wrong, and where the time goes.
#[derive(Parser)]
#[command(name = "cargo tilewright", bin_name = "cargo tilewright", version)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    task: Task,
}

/// Which crate is meant.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Place {
    /// The Cargo.toml of the crate, or of its program [default: that of the current directory, or the next one above].
    #[arg(long, value_name = "PATH", global = true)]
    pub manifest_path: Option<PathBuf>,
}

impl Place {
    /// The directory that is meant.
    ///
    /// # Errors
    /// If there is no current directory.
    pub(crate) fn directory(&self) -> anyhow::Result<PathBuf> {
        match &self.manifest_path {
            Some(path) => {
                let path = std::path::absolute(path).context("`--manifest-path` is no path")?;
                Ok(path.parent().map_or_else(|| path.clone(), Path::to_owned))
            }
            None => std::env::current_dir().context("there is no current directory"),
        }
    }
}

/// What was asked for cannot be done: as `clap` says of flags that it does not know, and as programs over operations do.
const REFUSED: u8 = 2;

/// What can be done.
#[derive(Subcommand)]
pub enum Task {
    /// Writes a crate of kernels: an operation, its tests, and a program.
    New(new::Arguments),
    /// Checks a kernel after every save, and shows what it was compiled to and what has changed.
    Watch(watch::Arguments),
    /// Checks kernels on the CPU executor, and on a GPU if there is one.
    Check(program::Arguments),
    /// Writes a course of puzzles, and checks what you make of them: no GPU is needed.
    Learn(learn::Arguments),
    /// Measures kernels on a GPU.
    Bench(program::Arguments),
}

/// Does what was asked for.
///
/// # Errors
/// What of it cannot be done, and what to do instead.
pub fn run(place: &Place, task: &Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::New(arguments) => new::run(arguments).map(|()| ExitCode::SUCCESS),
        Task::Watch(arguments) => watch::run(place, arguments),
        Task::Check(arguments) => program::run(place, "check", arguments),
        Task::Learn(arguments) => learn::run(place, arguments),
        Task::Bench(arguments) => program::run(place, "bench", arguments),
    }
}

/// The program `cargo-tilewright`, which cargo runs for `cargo tilewright`.
pub fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    // Cargo gives the name of the subcommand first.
    if words.get(1).is_some_and(|word| word == "tilewright") {
        words.remove(1);
    }
    let arguments = Arguments::parse_from(words);
    run_and_report(&arguments.place, &arguments.task)
}

/// [`run`], with the error printed, if there is one: then the exit code is 2.
pub fn run_and_report(place: &Place, task: &Task) -> ExitCode {
    run(place, task).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(REFUSED)
    })
}

/// The repository that this program was built from.
pub(crate) fn repository() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent);
    crates.expect("this crate is a directory of the repository's `crates`")
}
