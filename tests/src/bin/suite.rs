//! Runs the suite of `tests::suite` by kernels, and can leave out one of the calls by which they order what their threads do: what
//! `cargo xtask mutants` starts.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use cuda_std::executor::{Checks, Executor, OrderingCalls};
use tests::suite;
use tilewright::{Device, kernels};

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
}

fn main() -> ExitCode {
    let Arguments { kernel: names, list, calls: wants_calls, without } = Arguments::parse();
    if list {
        kernels::ALL.iter().for_each(|kernel| println!("{}", kernel.name));
        return ExitCode::SUCCESS;
    }
    let calls = Arc::new(without.map_or_else(OrderingCalls::default, OrderingCalls::without));
    let device = Device::with_executor(Executor::new(Checks::Full).with_ordering_calls(calls.clone()));
    let wanted = kernels::ALL.iter().filter(|kernel| names.is_empty() || names.iter().any(|name| name == kernel.name));
    for &kernel in wanted {
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
