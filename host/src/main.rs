//! The command line: reads the flags, runs, and says how it went by its exit code.

mod cli;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use tilewright::{kernels, problem, progress, run};

/// A check failed, or a kernel did something wrong.
const FAILED: u8 = 1;
/// The input is bad, or something is missing.
const REFUSED: u8 = 2;
/// What shells report for a program that was interrupted.
const INTERRUPTED: i32 = 130;

fn main() -> ExitCode {
    let Cli { command, run } = Cli::parse();
    let flags = match command {
        None => run,
        Some(Command::Run(flags)) => flags,
    };
    // Without a handler the program ends all the same, only with a progress bar left behind.
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(INTERRUPTED);
    });
    if flags.list {
        list();
        return ExitCode::SUCCESS;
    }
    match run::run(&flags.options(), print) {
        Ok(report) if report.passed() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            // As with the standard output: if nobody listens, the exit code has to do.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(if error.is_kernel_fault() { FAILED } else { REFUSED })
        }
    }
}

/// Writes to the standard output. If that has been closed, as by `| head`, there is nobody to tell.
fn print(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

fn list() {
    let mut text = "Problems (on a GPU; on the CPU executor, in parentheses):\n".to_owned();
    for problem in &problem::ALL {
        let sizes = |sizes: problem::Sizes| format!("m={} n={} k={}", sizes.m, sizes.n, sizes.k);
        let (full, reduced) = (sizes(problem.full), sizes(problem.reduced));
        text += &format!("  {:<8} {:<5} {full} ({reduced})\n", problem.name, problem.formula);
    }
    text += "\nKernels:\n";
    for kernel in kernels::ALL {
        text += &format!("  {:<26} {}\n", kernel.name, kernel.idea);
    }
    print(&text);
}
