//! Compares single instructions on a GPU with their models on the CPU: see `tests::conformance`. Needs nothing at run time but the
//! driver, so it can be carried to a machine without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use tests::conformance::machine::{Error, Machine};
use tests::conformance::report::Report;
use tests::conformance::{Options, names, run};

/// The two sides do not agree.
const DIFFERENT: u8 = 1;
/// The input is bad, or something is missing.
const REFUSED: u8 = 2;

/// Compare single instructions on a GPU with their models on the CPU; without a GPU, the models with a reference
#[derive(Debug, Parser)]
#[command(
    name = "conformance",
    after_help = "Exit codes: 0 nothing is different but bits of NaNs; 1 something is, or a launch failed; 2 bad input, or \
                        something is missing."
)]
struct Flags {
    /// An instruction, or the beginning of the names of several; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    instruction: Vec<String>,

    /// The words of results to compare of each instruction, at least
    #[arg(long, value_name = "N", default_value_t = 1 << 18)]
    cases: usize,

    /// What the random numbers begin with
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// The directory to write conformance.md and conformance.json to
    #[arg(long, value_name = "DIR")]
    output: PathBuf,

    /// Search for the parameters of tensor cores as well, which takes minutes, and write sums.json, with which to do so elsewhere
    #[arg(long)]
    fit: bool,

    /// Compare with the reference even if there is a GPU
    #[arg(long)]
    reference: bool,
}

fn main() -> ExitCode {
    let Flags { instruction, cases, seed, output, fit, reference } = Flags::parse();
    let names = names();
    if let Some(unknown) = instruction.iter().find(|wanted| !names.iter().any(|name| name.starts_with(wanted.as_str())))
    {
        eprintln!("error: no instruction's name begins with `{unknown}`; there are {}", names.join(", "));
        return ExitCode::from(REFUSED);
    }
    let gpu = match Machine::gpu() {
        _ if reference => None,
        Ok(gpu) => Some(gpu),
        Err(Error::Driver(error @ (cuda_driver::Error::NoDriver { .. } | cuda_driver::Error::NoDevice { .. }))) => {
            eprintln!("{error}: comparing with the reference");
            None
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    let options = Options { instructions: instruction, elements: cases, seed, fits: fit };
    let mut written = Ok(());
    let report = run(&options, gpu.as_ref(), |report| {
        if let Some(outcome) = report.outcomes.last() {
            let (equal, payload, different) = (outcome.equal, outcome.equal_but_for_nan_payload, outcome.different);
            let error = outcome.error.as_deref().unwrap_or("");
            println!(
                "{}: {equal} equal, {payload} but for NaN payload, {different} different {error}",
                outcome.instruction
            );
        }
        written = write(&output, report);
    });
    if let Err(error) = written {
        eprintln!("error: writing to {}: {error}", output.display());
        return ExitCode::from(REFUSED);
    }
    if report.agrees() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) }
}

/// Writes all that is known so far.
fn write(directory: &Path, report: &Report) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("conformance.md"), report.markdown())?;
    fs::write(directory.join("conformance.json"), format!("{}\n", report.json()))?;
    if !report.fitted.is_empty() {
        fs::write(directory.join("sums.json"), format!("{}\n", report.sums()))?;
    }
    Ok(())
}
