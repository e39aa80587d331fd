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

mod build;
pub mod code;
pub mod inspect;
mod learn;
mod machine;
mod manual;
mod nearest;
pub mod new;
mod place;
mod profile;
mod program;
mod project;
mod style;
pub mod trace;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

pub use machine::setup::apt;
pub use machine::{first_line, has_driver, python, table};
pub use place::Place;
pub use project::{OperationEntry, Project};

/// Write GPU kernels, see what they were compiled to, what goes wrong, and where the time goes.
#[derive(Parser)]
#[command(name = "cargo tilewright", bin_name = "cargo tilewright", version)]
#[command(
    after_help = "Exit codes: 0 everything is right; 1 something is wrong with a kernel; 2 it cannot be done, and why; 101 a thread of a kernel never\n\
                  stops, or the program of the crate has panicked.\n\
                        Colours: on a terminal; NO_COLOR turns them off, CLICOLOR_FORCE=1 on."
)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    task: Task,
}

/// What can be done.
#[derive(Subcommand)]
pub enum Task {
    /// Writes a crate of kernels: an operation, its tests, and a program.
    New(new::Arguments),
    /// Checks a kernel after every save, and shows what it was compiled to and what has changed.
    Watch(watch::Arguments),
    /// Shows what a kernel was compiled to: Rust, PTX and machine code side by side, registers, occupancy.
    Inspect(inspect::Arguments),
    /// Checks kernels on the CPU executor, and on a GPU if there is one.
    Check(program::Arguments),
    /// Shows what holds a kernel back on a GPU: what Nsight Compute counts, beside what the executor predicts.
    Profile(profile::Arguments),
    /// Shows what a block of a kernel does, step by step, on the CPU executor.
    Trace(trace::Arguments),
    /// Writes a course of puzzles, and checks what you make of them: no GPU is needed.
    Learn(learn::Arguments),
    /// Measures kernels on a GPU.
    Bench(program::Arguments),
    /// Shows what is on this machine and what is missing.
    Doctor(machine::doctor::Arguments),
    /// Gets what is missing for compiling kernels to PTX and for assembling it.
    Setup(machine::setup::Arguments),
    /// Prints completions for a shell.
    Completions(manual::CompletionArguments),
    /// Writes man pages.
    Man(manual::ManArguments),
}

/// Does what was asked for.
///
/// # Errors
/// What of it cannot be done, and what to do instead.
pub fn run(place: &Place, task: &Task) -> anyhow::Result<ExitCode> {
    match task {
        Task::New(arguments) => new::run(arguments).map(|()| ExitCode::SUCCESS),
        Task::Watch(arguments) => watch::run(place, arguments),
        Task::Inspect(arguments) => inspect::run(place, arguments),
        Task::Check(arguments) => program::run(place, "check", arguments),
        Task::Profile(arguments) => profile::run(place, arguments),
        Task::Learn(arguments) => learn::run(place, arguments),
        Task::Bench(arguments) => program::run(place, "bench", arguments),
        Task::Doctor(arguments) => machine::doctor::run(place, arguments).map(|()| ExitCode::SUCCESS),
        Task::Setup(arguments) => machine::setup::run(place, arguments).map(|()| ExitCode::SUCCESS),
        Task::Completions(arguments) => manual::completions(command(), arguments).map(|()| ExitCode::SUCCESS),
        Task::Man(arguments) => manual::man(command(), arguments).map(|()| ExitCode::SUCCESS),
        Task::Trace(arguments) => trace::run(place, arguments),
    }
}

/// The command as a shell knows it.
fn command() -> clap::Command {
    Arguments::command().name("cargo-tilewright").bin_name("cargo-tilewright")
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

/// Has this program end when nobody reads what it prints any more, as with `| head`: Rust's programs otherwise go on, and panic where they
/// print. Programs that it starts begin as they would without it.
fn end_with_the_reader() {
    // SAFETY: no handler is set, only what happens by default; nothing here relies on a write to a closed pipe being an error.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// [`run`], with the error printed, if there is one: then the exit code is 2.
pub fn run_and_report(place: &Place, task: &Task) -> ExitCode {
    end_with_the_reader();
    run(place, task).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(place::REFUSED)
    })
}
