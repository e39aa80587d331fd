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

pub mod new;
mod program;
mod project;
pub mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

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

/// What can be done.
#[derive(Subcommand)]
pub enum Task {
    /// Writes a crate of kernels: an operation, its tests, and a program.
    New(new::Arguments),
    /// Checks kernels on the CPU executor, and on a GPU if there is one.
    Check(program::Arguments),
    /// Shows what a block of a kernel does, step by step, on the CPU executor.
    Trace(trace::Arguments),
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
        Task::Check(arguments) => program::run(&Project::find(place)?, "check", arguments),
        Task::Trace(arguments) => trace::run(place, arguments),
        Task::Bench(arguments) => program::run(&Project::find(place)?, "bench", arguments),
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

/// [`run`], with the error printed, if there is one.
pub fn run_and_report(place: &Place, task: &Task) -> ExitCode {
    run(place, task).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The repository that this program was built from.
pub(crate) fn repository() -> &'static std::path::Path {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(std::path::Path::parent);
    crates.expect("this crate is a directory of the repository's `crates`")
}
