//! Random programs on several streams of a GPU, compared with the CPU executor, and copies beside kernels, measured: see
//! `tests::streams`. Needs nothing at run time but the driver, so it can be carried to a machine without Rust.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use cuda_std::executor::Checks;
use runtime::{Device, Error};
use tests::streams::KERNELS;
use tests::streams::overlap::{Amount, measure};
use tests::streams::programs::{Limits, run};

/// Something came out that should not have.
const WRONG: u8 = 1;
/// There is no GPU, or it does not work.
const REFUSED: u8 = 2;

/// Compare random programs on three streams of a GPU with the CPU executor, and measure how far copies and kernels overlap
#[derive(Debug, Parser)]
#[command(
    name = "streams",
    after_help = "Exit codes: 0 everything is right, and copies overlap with kernels; 1 it is not; 2 there is no GPU, or it failed."
)]
struct Flags {
    /// The number of random programs
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    programs: u64,

    /// The seed of the first one; each has the next
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,

    /// The most rounds of a kernel's loop: a round takes some nanoseconds
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    rounds: u32,

    /// Run the programs on the CPU executor in place of a GPU, with all checks, and measure nothing
    #[arg(long)]
    cpu: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match compare(&flags) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

fn compare(flags: &Flags) -> Result<bool, Error> {
    let &Flags { programs, seed, rounds, cpu } = flags;
    let device = if cpu { Device::cpu(Checks::Full) } else { Device::cuda(0, &[&KERNELS])? };
    let in_order = Device::cpu(Checks::Bounds);
    println!("{}: {programs} programs from seed {seed}, at most {rounds} rounds", device.name());
    let (start, mut wrong) = (Instant::now(), Vec::new());
    let limits = Limits { rounds };
    for seed in seed..seed + programs {
        if run(&device, seed, limits)? != run(&in_order, seed, limits)? {
            wrong.push(seed);
        }
    }
    println!("{} of {programs} programs differ, in {:.1} s", wrong.len(), start.elapsed().as_secs_f64());
    if !wrong.is_empty() {
        println!("their seeds begin with {:?}", &wrong[..wrong.len().min(20)]);
    }
    let mut is_right = wrong.is_empty();
    if !cpu {
        is_right &= overlaps(&device)?;
    }
    Ok(is_right)
}

/// Kernels that take about as long as the copies in one direction.
fn overlaps(device: &Device) -> Result<bool, Error> {
    let mut amount = Amount { chunks: 16, elements: 4 << 20, rounds: 1000, streams: 3 };
    let first = measure(device, amount)?;
    let factor = first.copies.as_secs_f64() / 2.0 / first.kernels.as_secs_f64();
    amount.rounds = ((1000.0 * factor) as u32).clamp(1, 1_000_000);
    let measured = measure(device, amount)?;
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let (copies, kernels) = (ms(measured.copies), ms(measured.kernels));
    println!("{} chunks of {} MiB, {} rounds:", amount.chunks, amount.elements >> 18, amount.rounds);
    println!("  copies alone {copies:8.3} ms, kernels alone {kernels:8.3} ms");
    println!(
        "  on one stream {:7.3} ms, on {} streams {:7.3} ms",
        ms(measured.in_order),
        amount.streams,
        ms(measured.beside)
    );
    println!("  results are {}", if measured.is_right { "right" } else { "WRONG" });
    // Copies in both directions and kernels, a third of the time each if all overlap.
    let overlaps = ms(measured.beside) < 0.7 * (copies + kernels);
    println!("  copies and kernels {}", if overlaps { "overlap" } else { "DO NOT OVERLAP" });
    Ok(measured.is_right && overlaps)
}
