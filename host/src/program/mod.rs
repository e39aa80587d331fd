//! The command line: reads the flags, runs, and says how it went by its exit code.

pub mod cli;
mod ending;

use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use cuda_std::executor::Checks;
use testkit::Task;
use testkit::child::{self, Ended};
use testkit::ending::SIGNALLED;
use tilewright::device::DeviceChoice;
use tilewright::{Device, DeviceError, Precision, Sizes, kernels};

use crate::Error;
use crate::bench::args::BenchFlags;
use crate::run::{self, Options};
use crate::{operations, problem, tune};
use cli::{Cli, Command, PlantedFlags, RunFlags, TuneFlags, TuneTask};

/// A check failed, or a kernel did something wrong.
const FAILED: u8 = 1;
/// The input is bad, or something is missing.
const REFUSED: u8 = 2;
/// What `timeout` returns for a program that takes too long.
const TOO_LATE: u8 = 124;

/// Set in the process that a time limit is for.
const WITHIN_LIMIT: &str = "TILEWRIGHT_WITHIN_TIME_LIMIT";

/// What kept something from being written to the standard output.
static OUTPUT_ERROR: OnceLock<std::io::Error> = OnceLock::new();

/// The program: reads the command line, does what it says, and tells by the exit code how it went.
pub fn main() -> ExitCode {
    let Cli { command, run, time_limit } = Cli::parse();
    ending::listen();
    let code = match (time_limit, std::env::var_os(WITHIN_LIMIT), command) {
        (Some(seconds), None, _) => within(Duration::from_secs(seconds)),
        (_, _, None) => self::run(run),
        (_, _, Some(Command::Run(flags))) => self::run(flags),
        (_, _, Some(Command::Bench(flags))) => bench(flags),
        (_, _, Some(Command::Tune(flags))) => tune(flags),
        (_, _, Some(Command::Sanitize(flags))) => code_of(flags.run(print)),
        (_, _, Some(Command::Report(flags))) => code_of(flags.run(print)),
        (_, _, Some(Command::Operations(task))) => with_operations(Task::Check(task)),
        (_, _, Some(Command::Planted(flags))) => planted(&flags),
    };
    match OUTPUT_ERROR.get() {
        // What was to be read is not there, so it did not go well.
        Some(error) if code == ExitCode::SUCCESS => {
            let _ = writeln!(std::io::stderr(), "error: cannot write to the standard output: {error}");
            ExitCode::from(REFUSED)
        }
        _ => code,
    }
}

/// Runs this same command in a process of its own, which is ended after the time limit.
fn within(limit: Duration) -> ExitCode {
    let program = std::env::current_exe();
    let ended = program.and_then(|program| {
        let mut command = std::process::Command::new(program);
        command.args(std::env::args_os().skip(1)).env(WITHIN_LIMIT, "1").stdin(Stdio::null());
        child::run(&mut command, Some(limit))
    });
    match ended {
        Ok(Ended::Exited(status)) => {
            let code = status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default());
            ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
        }
        Ok(Ended::TimeLimit) => {
            complain(&Error::TimeLimit { limit });
            ExitCode::from(TOO_LATE)
        }
        Err(error) => {
            complain(&Error::Program { program: "tilewright".into(), reason: error.to_string() });
            ExitCode::from(REFUSED)
        }
    }
}

/// The exit code for what was found, and a message if something kept it from being looked for.
fn code_of(outcome: Result<bool, Error>) -> ExitCode {
    match outcome {
        Ok(passed) => ExitCode::from(if passed { 0 } else { FAILED }),
        Err(error) => {
            complain(&error);
            ExitCode::from(if error.is_kernel_fault() { FAILED } else { REFUSED })
        }
    }
}

/// Does something with operations.
fn with_operations(task: Task) -> ExitCode {
    match operations::program().run(Some(task)) {
        Ok(passed) => ExitCode::from(if passed { 0 } else { FAILED }),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

/// Runs a kernel with a fault.
fn planted(flags: &PlantedFlags) -> ExitCode {
    let device = match flags.device {
        DeviceChoice::Auto => Device::open().map(|(device, _)| device),
        DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal),
        DeviceChoice::Cpu => Ok(Device::cpu(Checks::Full)),
    };
    // SAFETY: this process does nothing else with the device, and ends.
    let ended = device.and_then(|device| unsafe { flags.fault.run(&device) });
    code_of(ended.map(|()| true).map_err(Error::from))
}

/// Runs `run`.
fn run(flags: RunFlags) -> ExitCode {
    if flags.list {
        list();
        return ExitCode::SUCCESS;
    }
    let (device, note) = match open(&flags) {
        Ok(opened) => opened,
        Err(error) => {
            complain_of_device(&error);
            return ExitCode::from(REFUSED);
        }
    };
    // What lies there for this GPU and cannot be used does not keep it from running.
    let note = note.or_else(|| Some(format!("Note: {}.", device.stored_constants().refusal()?)));
    let options = match flags.options() {
        Ok(options) => options,
        Err(error) => {
            complain(&error);
            return ExitCode::from(REFUSED);
        }
    };
    match run::run(&device, &Options { note, ..options }, print) {
        Ok(report) if report.passed() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) if error.is_kernel_fault() => {
            complain(&error);
            ExitCode::from(FAILED)
        }
        Err(error) => {
            complain_of_device(&error);
            ExitCode::from(REFUSED)
        }
    }
}

/// Runs `bench`.
fn bench(flags: BenchFlags) -> ExitCode {
    match flags.operation() {
        Some(task) => with_operations(Task::Bench(task)),
        None => code_of(flags.run(print)),
    }
}

/// Runs `tune`.
fn tune(flags: TuneFlags) -> ExitCode {
    let choice = flags.device;
    let run = || {
        let task = flags.task()?;
        let device = match choice {
            DeviceChoice::Auto => Device::cuda(0),
            DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal),
            DeviceChoice::Cpu => Ok(Device::cpu(Checks::Bounds)),
        }?;
        match &task {
            TuneTask::Table(options) => tune::run(&device, options, print).map(drop),
            TuneTask::Constants(options) => tune::constants::run(&device, options, print).map(drop),
        }
    };
    code_of(run().map(|_| true))
}

/// Opens the device that the flags ask for, and says why it is the CPU if they leave that open.
fn open(flags: &RunFlags) -> Result<(Device, Option<String>), Error> {
    let refuse = |reason: &str| Err(Error::Usage(reason.to_owned()));
    let checks = if flags.check { Checks::Full } else { Checks::Bounds };
    let for_gpus = flags.ptx.as_ref().map(|_| "--ptx").or(flags.arch.as_ref().map(|_| "--arch"));
    let ordinal = match (flags.device, for_gpus) {
        (DeviceChoice::Cpu, Some(flag)) => {
            return refuse(&format!(
                "{flag} is for GPUs: the CPU executor runs no PTX; leave out {flag}, or --device cpu"
            ));
        }
        (_, Some(flag)) if flags.check => {
            return refuse(&format!("{flag} is for GPUs, and --check for the CPU executor; leave out one of the two"));
        }
        (DeviceChoice::Cuda(_), _) if flags.check => {
            return refuse(
                "--check is for the CPU executor: a GPU cannot do it; leave out --check, or choose --device cpu",
            );
        }
        (DeviceChoice::Cpu, None) => return Ok((Device::cpu(checks), None)),
        (DeviceChoice::Auto, None) if flags.check => {
            let note = "No GPU is used: --check needs the CPU executor, which runs the same kernels.";
            return Ok((Device::cpu(checks), Some(note.to_owned())));
        }
        (DeviceChoice::Auto, None) => {
            let (device, reason) = Device::open()?;
            let note = reason.map(|reason| {
                // A reason can quote what somebody else has written, such as a path, on several lines.
                let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
                format!("No GPU is used, the same kernels run on the CPU executor: {reason}.")
            });
            return Ok((device, note));
        }
        (DeviceChoice::Auto, Some(_)) => 0,
        (DeviceChoice::Cuda(ordinal), _) => ordinal,
    };
    let device = match (&flags.ptx, &flags.arch) {
        // SAFETY: that the file has been built from the sources of these kernels is for the user to see to: the
        // documentation of the flag demands it, and no program could find out.
        (Some(path), _) => unsafe { Device::cuda_with_ptx(ordinal, path)? },
        (None, Some(arch)) => Device::cuda_with_arch(ordinal, arch)?,
        (None, None) => Device::cuda(ordinal)?,
    };
    Ok((device, None))
}

/// The same of what may be the fault of a GPU, with a way around it.
fn complain_of_device(error: &Error) {
    complain(error);
    if matches!(error, Error::Library(tilewright::Error::Device(DeviceError::Driver(_)))) {
        let _ = writeln!(std::io::stderr(), "To do without a GPU, run on the CPU: --device cpu");
    }
}

/// Writes to the standard error. As with the standard output: if nobody listens, the exit code has to do.
fn complain(error: &Error) {
    let _ = writeln!(std::io::stderr(), "error: {error}");
    if let Some(advice) = advice(error) {
        let _ = writeln!(std::io::stderr(), "{advice}");
    }
}

/// The flags that help, where the error itself, which is the library's, cannot name them.
fn advice(error: &Error) -> Option<String> {
    use tilewright::Error as LibraryError;
    let advice = match error {
        Error::Library(LibraryError::Device(DeviceError::NotEnoughMemory { .. })) => {
            "For smaller sizes: --m, --n and --k"
        }
        Error::Library(LibraryError::Device(DeviceError::IncapableDevice { .. })) => {
            "To do without a GPU, run on the CPU: --device cpu"
        }
        Error::Library(LibraryError::TableForOtherGpu { .. }) => "To go by no table, leave out --table",
        Error::Library(LibraryError::Constants { .. }) => {
            "To measure this GPU: tilewright tune --constants. To go by what is built in: --constants none"
        }
        Error::Library(LibraryError::NoKernel { precisions, .. }) if !precisions.is_empty() => {
            let precisions: Vec<_> = precisions.iter().map(|precision| precision.name()).collect();
            return Some(format!("For another precision: --precision {}", precisions.join(" or ")));
        }
        Error::TimeLimit { .. } => "To check everything: --check. To allow more time: --time-limit",
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Writes to the standard output. If that has been closed, as by `| head`, there is nobody to tell; if the disk is full, there is.
fn print(text: &str) {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => drop(OUTPUT_ERROR.set(error)),
        _ => {}
    }
}

fn list() {
    let mut text = "Problems (on a GPU; on the CPU executor, in parentheses):\n".to_owned();
    for problem in &problem::ALL {
        let sizes = |sizes: Sizes| format!("m={} n={} k={}", sizes.m, sizes.n, sizes.k);
        let (full, reduced) = (sizes(problem.full), sizes(problem.reduced));
        text += &format!("  {:<8} {:<5} {full} ({reduced})\n", problem.name, problem.formula);
    }
    text += "\nKernels:\n";
    for kernel in kernels::ALL.iter() {
        text += &format!("  {:<32} {}\n", kernel.name, kernel.idea);
    }
    text += "\nPrecisions:\n";
    for precision in Precision::ALL {
        text += &format!("  {:<14} {}\n", precision, precision.summary());
    }
    print(&text);
}
