//! Runs the suite of `tests::suite` by kernels, and can leave out one of the calls by which they order what their threads do: what
//! `cargo xtask mutants` starts.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use cuda_std::executor::{Checks, Executor, OrderingCalls};
use tests::suite;
use tilewright::{Device, kernels};

/// The input is bad.
const REFUSED: u8 = 2;
/// What `timeout` returns for a program that takes too long.
const TOO_LATE: i32 = 124;

/// Runs kernels on the executor, with all its checks, and compares what they compute with double precision.
#[derive(Parser)]
struct Arguments {
    /// A kernel to run; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// List the kernels that there are, and run none
    #[arg(long)]
    list: bool,

    /// List the calls by which the kernels order what their threads do
    #[arg(long)]
    calls: bool,

    /// Leave out this call, as `--calls` lists it
    #[arg(long, value_name = "CALL")]
    without: Option<String>,

    /// End after so many seconds, with code 124, also while a kernel runs
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { kernel: names, list, calls: wants_calls, without, limit } = Arguments::parse();
    if let Some(seconds) = limit {
        // Here rather than where this is started, which may be ended itself.
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(seconds));
            std::process::exit(TOO_LATE);
        });
    }
    if list {
        kernels::ALL.iter().for_each(|kernel| println!("{}", kernel.name));
        return ExitCode::SUCCESS;
    }
    let calls = Arc::new(without.map_or_else(OrderingCalls::default, OrderingCalls::without));
    let device = Device::with_executor(Executor::new(Checks::Full).with_ordering_calls(calls.clone()));
    let found: Result<Vec<_>, _> = names.iter().map(|name| kernels::find(name)).collect();
    let wanted = match found {
        Ok(_) if names.is_empty() => kernels::ALL.to_vec(),
        Ok(found) => found,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    for kernel in wanted {
        let start = Instant::now();
        match suite::run(&device, kernel) {
            Ok(computed) if !wants_calls => {
                println!("{}: {computed} products, {:.2} s", kernel.name, start.elapsed().as_secs_f64());
            }
            Ok(_) => {}
            Err(reason) => {
                println!("{reason}");
                return ExitCode::FAILURE;
            }
        }
    }
    if wants_calls {
        calls.met().iter().for_each(|call| println!("{call}"));
    }
    ExitCode::SUCCESS
}
