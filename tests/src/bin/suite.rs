//! Runs kernels of products on the cases of `tests::suite`, and operations on their own small cases; can leave out one of the calls by
//! which kernels order what their threads do. `cargo xtask mutants` starts it.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use cuda_std::executor::{Checks, Executor, OrderingCalls};
use testkit::{Operation, Trial};
use tests::suite;
use tilewright::kernels::{self, KernelInfo};
use tilewright::{Device, Error};

/// The input is bad.
const REFUSED: u8 = 2;
/// What `timeout` returns for a program that takes too long.
const TOO_LATE: i32 = 124;

/// Runs kernels on the executor, with all its checks, and compares what they compute with double precision.
#[derive(Parser)]
struct Arguments {
    /// A kernel of products, or an operation, to run; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// List what there is, and run none
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
        Subject::all().for_each(|subject| println!("{}", subject.name()));
        return ExitCode::SUCCESS;
    }
    let calls = Arc::new(without.map_or_else(OrderingCalls::default, OrderingCalls::without));
    let device = Device::with_executor(Executor::new(Checks::Full).with_ordering_calls(calls.clone()));
    let found: Result<Vec<_>, _> = names.iter().map(|name| Subject::find(name)).collect();
    let wanted = match found {
        Ok(_) if names.is_empty() => Subject::all().collect(),
        Ok(found) => found,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    for subject in wanted {
        let start = Instant::now();
        match subject.run(&device) {
            Ok(computed) if !wants_calls => {
                println!("{}: {computed}, {:.2} s", subject.name(), start.elapsed().as_secs_f64());
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

/// What is run.
#[derive(Clone, Copy)]
enum Subject {
    /// A kernel of products, by itself.
    Kernel(&'static KernelInfo),
    /// An operation of other kernels.
    Operation(&'static dyn Operation),
}

impl Subject {
    fn all() -> impl Iterator<Item = Self> {
        let operations = gpu_kernels::OPERATIONS.iter().copied().map(Self::Operation);
        kernels::ALL.iter().copied().map(Self::Kernel).chain(operations)
    }

    fn find(name: &str) -> Result<Self, Error> {
        let known = || Self::all().map(|subject| subject.name()).collect();
        Self::all().find(|subject| subject.name() == name).ok_or_else(|| Error::unknown_name("kernel", name, known()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kernel(kernel) => kernel.name,
            Self::Operation(operation) => operation.describe().name,
        }
    }

    /// Runs all cases: how many there were, or what is wrong.
    fn run(self, device: &Device) -> Result<String, String> {
        match self {
            Self::Kernel(kernel) => Ok(format!("{} products", suite::run(device, kernel)?.trials)),
            Self::Operation(operation) => {
                let description = operation.describe();
                for sizes in &description.small {
                    let case = || -> Result<(), testkit::Error> {
                        let trial = Trial::new(operation, description.sizes_of(sizes)?, 1)?;
                        trial.judge(&trial.run(device)?).map(drop)
                    };
                    case().map_err(|error| format!("{} {sizes:?}: {error}", description.name))?;
                }
                Ok(format!("{} cases", description.small.len()))
            }
        }
    }
}
