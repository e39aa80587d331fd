//! Runs kernels of products on the cases of `tests::suite`, and operations of other kernels on their own small cases; notes what in the kernels
//! can be done in another way than they ask for, or does one thing so. `cargo xtask mutants` starts it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use cuda_std::executor::{Changes, Checks, Executor};
use testkit::{Operation, Trial};
use tests::suite;
use tilewright::kernels::{self, KernelInfo};
use tilewright::{Device, Error};

/// The input is bad.
const REFUSED: u8 = 2;
/// The change has not been made: no thread has come to its place.
const NOT_MADE: u8 = 3;
/// What `timeout` returns for a program that takes too long.
const TOO_LATE: i32 = 124;

/// Runs kernels on the executor, with all its checks, and compares what they compute with double precision.
#[derive(Parser)]
struct Arguments {
    /// A kernel of products, or an operation, to run; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// A case to run, by the name of a kernel or operation and a number, such as `scan/3`; may be repeated [default: all]
    #[arg(long, value_name = "NAME/NUMBER")]
    case: Vec<String>,

    /// List what there is, and run none
    #[arg(long)]
    list: bool,

    /// List the changes that can be made of what each case comes to
    #[arg(long)]
    changes: bool,

    /// Make this change, as `--changes` lists it
    #[arg(long, value_name = "CHANGE", conflicts_with = "changes")]
    change: Option<String>,

    /// End if a case takes more than so many seconds, with code 124, also while a kernel runs
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,

    /// Begin no case after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = u64::MAX)]
    budget: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        Subject::all().for_each(|subject| println!("{}", subject.name()));
        return ExitCode::SUCCESS;
    }
    let prepared = arguments.wanted().and_then(|wanted| Ok((wanted, arguments.changes()?)));
    let (wanted, changes) = match prepared {
        Ok((wanted, changes)) => (wanted, Arc::new(changes)),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    let watch = arguments.limit.map(Watch::new);
    let mut executor = Executor::new(Checks::Full);
    if arguments.changes || arguments.change.is_some() {
        executor = executor.with_changes(changes.clone());
    }
    let device = Device::with_executor(executor);
    let begin = Instant::now();
    for (subject, number) in wanted {
        for number in number.map_or(0..subject.cases(), |number| number..number + 1) {
            let start = Instant::now();
            if (start - begin).as_secs() >= arguments.budget {
                break;
            }
            if let Some(watch) = &watch {
                watch.begin();
            }
            match subject.run(number, &device) {
                Ok(false) => {}
                Ok(true) => {
                    println!("{}/{number}: {:.3} s", subject.name(), start.elapsed().as_secs_f64());
                    if arguments.changes {
                        changes.take_met().iter().for_each(|call| println!("  {call}"));
                    }
                }
                Err(reason) => {
                    println!("{reason}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let is_missed = arguments.change.is_some() && !changes.is_made();
    if is_missed { ExitCode::from(NOT_MADE) } else { ExitCode::SUCCESS }
}

impl Arguments {
    /// What is to be run, with the number of a case if it is one.
    fn wanted(&self) -> Result<Vec<(Subject, Option<usize>)>, String> {
        let find = |name: &str| Subject::find(name).map_err(|error| error.to_string());
        let kernels = self.kernel.iter().map(|name| Ok((find(name)?, None)));
        let cases = self.case.iter().map(|case| {
            let (name, number) = case.split_once('/').ok_or_else(|| format!("`{case}` is not NAME/NUMBER"))?;
            let subject = find(name)?;
            let number = number.parse().ok().filter(|number| *number < subject.cases());
            Ok((subject, Some(number.ok_or_else(|| format!("{name} has {} cases, not {case}", subject.cases()))?)))
        });
        let wanted: Vec<_> = cases.chain(kernels).collect::<Result<_, String>>()?;
        Ok(if wanted.is_empty() { Subject::all().map(|subject| (subject, None)).collect() } else { wanted })
    }

    fn changes(&self) -> Result<Changes, String> {
        self.change.as_ref().map_or_else(|| Ok(Changes::default()), |change| Changes::making(change))
    }
}

/// Ends the program when a case takes too long: here rather than where this is started, which may be ended itself.
struct Watch {
    start: Instant,
    limit: u64,
    /// When the case has to be over, in milliseconds since the start.
    end: Arc<AtomicU64>,
}

impl Watch {
    /// A watch for cases of so many seconds.
    fn new(seconds: u64) -> Self {
        let (start, end) = (Instant::now(), Arc::new(AtomicU64::new(u64::MAX)));
        let watched = end.clone();
        thread::spawn(move || {
            while (start.elapsed().as_millis() as u64) < watched.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
            std::process::exit(TOO_LATE);
        });
        Self { start, limit: 1000 * seconds, end }
    }

    fn begin(&self) {
        self.end.store(self.start.elapsed().as_millis() as u64 + self.limit, Ordering::Relaxed);
    }
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
        let operations = gpu_kernels::OPERATIONS.iter().chain(patterns_kernels::OPERATIONS);
        kernels::ALL.iter().copied().map(Self::Kernel).chain(operations.copied().map(Self::Operation))
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

    /// How many cases there are, those among them that a kernel cannot compute.
    fn cases(self) -> usize {
        match self {
            Self::Kernel(kernel) => suite::trials(kernel).len(),
            Self::Operation(operation) => operation.describe().small.len(),
        }
    }

    /// Runs a case: whether the kernel can compute it, or what is wrong.
    fn run(self, number: usize, device: &Device) -> Result<bool, String> {
        match self {
            Self::Kernel(kernel) => suite::trials(kernel)[number].run(device, kernel),
            Self::Operation(operation) => {
                let description = operation.describe();
                let sizes = &description.small[number];
                let case = || -> Result<(), testkit::Error> {
                    let trial = Trial::new(operation, description.sizes_of(sizes)?, 1)?;
                    trial.judge(&trial.run(device)?).map(drop)
                };
                case().map_err(|error| format!("{} {sizes:?}: {error}", description.name))?;
                Ok(true)
            }
        }
    }
}
