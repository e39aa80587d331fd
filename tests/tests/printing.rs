//! The kernels of `fixtures/printing`, which print and panic: what the host says of them, on the CPU executor and on a GPU, and their PTX.
//!
//! On a GPU each runs in a process of its own, because a panic takes the GPU's context from the process:
//!
//! ```text
//!  cpu::panics_by_index    in this process
//!  gpu::panics_by_index    ──process──▶ this program again, told by a variable which kernel to run; it writes what came of it
//! ```
//!
//! Where there is no GPU, these are listed as ignored. The program needs nothing at run time but the driver, so it can be carried to a
//! machine with one.

use std::io::Seek as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuda_builder::Arch;
use cuda_builder::inspect::{ToolError, assemble};
use cuda_driver::Error as DriverError;
use cuda_std::executor::Checks;
use cuda_std::print::PrintSink;
use cuda_std::print_record::{CHANNEL, LINES};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use runtime::{Device, Error, KernelSet};
use serde::{Deserialize, Serialize};
use testkit::child::{self, Ended};

// The source itself, because a crate with a workspace of its own cannot be a dependency.
#[path = "../fixtures/printing/src/kernels.rs"]
mod kernels;

#[allow(dead_code, unreachable_pub, reason = "the generated items are `pub`, for whoever wants them so")]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/printing.rs"));
}

/// Of this very source, so no digest has to say so.
static KERNELS: KernelSet = KernelSet::embedded(env!("CARGO_CRATE_NAME"), None, embedded::PTX, embedded::CUBINS);

const SOURCE: &str = include_str!("../fixtures/printing/src/kernels.rs");

/// Tells a process which kernel to run on a GPU.
const KERNEL_VARIABLE: &str = "TILEWRIGHT_PRINTING_KERNEL";

/// How long a process may take: most of it is the driver's start.
const PATIENCE: Duration = Duration::from_secs(120);

/// What stands in the place of a message that only `core` could put together.
const LEFT_OUT: &str = "(a message with values, which a GPU leaves out: `gpu_assert!` and `gpu_panic!` bring them)";

/// The number of blocks of 64 threads that all print: more lines than there is room for.
const PRINTING_BLOCKS: u32 = 200;

/// Each kernel, and how it ends.
const ALL: [(&str, Ending); 10] = [
    ("prints_values", Ending::Well),
    ("prints_of_all_threads", Ending::Well),
    ("is_quiet", Ending::Well),
    ("panics_by_index", Ending::Panic { on_cpu: INDEX, on_gpu: INDEX }),
    ("panics_by_assert", Ending::Panic { on_cpu: "a text of {} its own", on_gpu: "a text of {} its own" }),
    ("panics_by_expect", Ending::Panic { on_cpu: EXPECTATION, on_gpu: EXPECTATION }),
    ("panics_with_values", Ending::Panic { on_cpu: VALUES, on_gpu: VALUES }),
    ("panics_with_a_message", Ending::Panic { on_cpu: "x = 7", on_gpu: LEFT_OUT }),
    ("prints_and_panics", Ending::Panic { on_cpu: CONDITION, on_gpu: CONDITION }),
    ("panics_everywhere", Ending::PanicAnywhere),
];

const INDEX: &str = "index out of bounds: the len is 3 but the index is 9";
const EXPECTATION: &str = "x is shorter than y, {}";
const VALUES: &str = "x = 0.5, i = 101, -1 true";
const CONDITION: &str = "assertion failed: thread::block_idx_x() != BLOCK";

/// How a kernel ends.
#[derive(Clone, Copy)]
enum Ending {
    Well,
    /// By thread 37 of block 1, with a message.
    Panic {
        on_cpu: &'static str,
        on_gpu: &'static str,
    },
    /// By the first thread of any block, or on a GPU by any thread.
    PanicAnywhere,
}

/// What came of a kernel.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    lines: Vec<String>,
    error: Option<String>,
}

fn main() {
    if let Ok(kernel) = std::env::var(KERNEL_VARIABLE) {
        let outcome = Device::cuda(0, &[&KERNELS]).and_then(|device| run(&device, &kernel));
        let outcome = outcome.unwrap_or_else(|error| panic!("{kernel}: {error}"));
        println!("{}", serde_json::to_string(&outcome).expect("it is strings"));
        return;
    }
    let mut trials = vec![Trial::ignorable_test("ptx", ptx)];
    for (kernel, ending) in ALL {
        let on_cpu = move || check(kernel, ending, &run(&Device::cpu(Checks::Full), kernel)?, true);
        trials.push(Trial::test(format!("cpu::{kernel}"), on_cpu));
        trials.push(Trial::ignorable_test(format!("gpu::{kernel}"), move || on_gpu(kernel, ending)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs a kernel, and waits for it.
fn run(device: &Device, kernel: &str) -> Result<Outcome, Error> {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let target = lines.clone();
    device.print_to(PrintSink::new(move |printed| target.lock().expect("nothing panics").push(printed.to_string())));
    let mut y = device.upload(&[0.0f32; 128])?;
    // Only thread 37 of the second block has an element of the longer one and none of the shorter.
    let (x, mut longer) = (device.upload(&[0.0f32; 101])?, device.upload(&[0.0f32; 102])?);
    let launched = match kernel {
        "prints_values" => device.launch(kernels::prints_values { x: 1.5 }),
        "prints_of_all_threads" => device.launch_any_grid(PRINTING_BLOCKS, kernels::prints_of_all_threads {}),
        "is_quiet" => device.launch(kernels::is_quiet { x: 2.0, y: y.view_disjoint() }),
        "panics_by_index" => device.launch(kernels::panics_by_index { index: 9, y: y.view_disjoint() }),
        "panics_by_assert" => device.launch(kernels::panics_by_assert {}),
        "panics_by_expect" => device.launch(kernels::panics_by_expect { x: x.view(), y: longer.view_disjoint() }),
        "panics_with_values" => device.launch(kernels::panics_with_values { x: 0.5 }),
        "panics_with_a_message" => device.launch(kernels::panics_with_a_message { x: 7 }),
        "prints_and_panics" => device.launch(kernels::prints_and_panics {}),
        "panics_everywhere" => device.launch_any_grid(50, kernels::panics_everywhere {}),
        other => panic!("there is no kernel `{other}`"),
    };
    let error = launched.and_then(|()| device.synchronize()).err().map(|error| error.to_string());
    let lines = std::mem::take(&mut *lines.lock().expect("nothing panics"));
    Ok(Outcome { lines, error })
}

/// The same in a process of its own, on a GPU if there is one.
fn on_gpu(kernel: &str, ending: Ending) -> Result<Completion, Failed> {
    if let Err(error) = cuda_driver::Gpu::count() {
        return match error {
            DriverError::NoDriver { .. } | DriverError::NoDevice { .. } => {
                Ok(Completion::ignored_with("skipped: no device"))
            }
            other => Err(other.into()),
        };
    }
    let mut file = tempfile::tempfile()?;
    let mut command = Command::new(std::env::current_exe()?);
    let ended = child::run(command.env(KERNEL_VARIABLE, kernel).stdout(file.try_clone()?), Some(PATIENCE))?;
    file.rewind()?;
    let written = std::io::read_to_string(file)?;
    match ended {
        Ended::Exited(status) if status.success() => {}
        other => return Err(format!("{kernel}, in its own process: {other:?}").into()),
    }
    check(kernel, ending, &serde_json::from_str(&written)?, false)?;
    Ok(Completion::Completed)
}

/// Compares what came of a kernel with what is known in advance.
fn check(kernel: &str, ending: Ending, outcome: &Outcome, on_cpu: bool) -> Result<(), Failed> {
    println!("{kernel}: {:?}, {}", outcome.lines.first(), outcome.error.as_deref().unwrap_or("no error"));
    check_end(kernel, ending, outcome.error.as_deref(), on_cpu)?;
    let missing = match (ending, on_cpu) {
        (Ending::Well, _) | (_, true) => None,
        // Whatever had been printed: nobody knows whether all of it has arrived.
        _ => Some("(lines of kernels may be missing: the GPU's context is lost, and with it what had not yet arrived)"),
    };
    let mut lines = outcome.lines.clone();
    if let Some(missing) = missing {
        let last = lines.pop();
        if last.as_deref() != Some(missing) {
            return Err(format!("the last line is {last:?}").into());
        }
    }
    let expected: Vec<String> = match kernel {
        "prints_values" => vec![
            "no value, {}".to_owned(),
            "u32 4294967295, i32 -2147483648, u64 18446744073709551615, i64 -9223372036854775808".to_owned(),
            "f32 1.5, f64 0.5, bool true, usize 101".to_owned(),
            "eight: 1 2 3 4 5 6 7 8".to_owned(),
        ],
        "prints_and_panics" => vec!["before".to_owned()],
        "prints_of_all_threads" => return check_many(&lines, on_cpu),
        _ => Vec::new(),
    };
    if lines == expected { Ok(()) } else { Err(format!("printed {lines:?}, and not {expected:?}").into()) }
}

/// One line for each thread, as many as there is room for, and the number of the others.
fn check_many(lines: &[String], on_cpu: bool) -> Result<(), Failed> {
    let (last, lines) = lines.split_last().ok_or("nothing was printed")?;
    let all = u64::from(PRINTING_BLOCKS) * 64;
    let expected = format!("({} more lines of kernels are lost: ", all - LINES as u64);
    if !last.starts_with(&expected) {
        return Err(format!("the last line is {last}, and not {expected}…").into());
    }
    let number = |line: &String| line.strip_prefix("thread ")?.parse::<u64>().ok().filter(|thread| *thread < all);
    let mut threads = lines.iter().map(|line| number(line).ok_or_else(|| format!("a line is {line}")));
    let mut threads = threads.by_ref().collect::<Result<Vec<u64>, String>>()?;
    // The order is a GPU's own.
    if !on_cpu {
        threads.sort_unstable();
    }
    let is_ascending = threads.is_sorted_by(|one, next| one < next);
    let are_first = !on_cpu || threads.last() == Some(&(LINES as u64 - 1));
    match threads.len() {
        LINES if is_ascending && are_first => Ok(()),
        others => Err(format!("{others} lines; each thread once: {is_ascending}; the first: {are_first}").into()),
    }
}

/// Compares the error.
fn check_end(kernel: &str, ending: Ending, error: Option<&str>, on_cpu: bool) -> Result<(), Failed> {
    let (error, message) = match (ending, error) {
        (Ending::Well, None) => return Ok(()),
        (Ending::Well, Some(error)) => return Err(error.into()),
        (_, None) => return Err("it has not failed".into()),
        (Ending::Panic { on_cpu: message, .. }, Some(error)) if on_cpu => (error, message.to_owned()),
        (Ending::Panic { on_gpu: message, .. }, Some(error)) => (error, message.to_owned()),
        (Ending::PanicAnywhere, Some(error)) => {
            let block = error.split_once("block (").and_then(|(_, rest)| rest.split_once(',')).ok_or(error)?.0;
            (error, format!("block {block}"))
        }
    };
    let mark = format!("// MARK: {kernel}");
    let line = 1 + SOURCE.lines().position(|line| line.ends_with(&mark)).ok_or("the source has no such mark")?;
    let (thread, rest) = error.split_once(&format!(": the kernel panicked: {message}\n  --> ")).ok_or(error)?;
    let (directory, rest) = rest.split_once(&format!("src/kernels.rs:{line}\n  help: ")).ok_or(error)?;
    let is_thread = match ending {
        Ending::PanicAnywhere => thread.starts_with(&format!("kernel `{kernel}`, block (")),
        _ => thread == format!("kernel `{kernel}`, block (1, 0, 0), thread (37, 0, 0)"),
    };
    let is_lost = rest.contains("\nSo the GPU's context is lost: ");
    let is_right = is_thread && !directory.contains('\n') && is_lost != on_cpu;
    if is_right { Ok(()) } else { Err(format!("the error is {error}").into()) }
}

/// The kernels' PTX: what prints or panics has a channel, what does neither has none; and NVIDIA's assembler finds nothing in memory that
/// could be in registers.
fn ptx() -> Result<Completion, Failed> {
    let archs = match embedded::PTX {
        Ok(archs) => archs,
        Err(reason) => return Ok(Completion::ignored_with(format!("skipped: no PTX: {reason}"))),
    };
    let (_, kernels) = archs.first().ok_or("there is no PTX")?;
    let names: Vec<&str> = kernels.iter().map(|(name, _)| *name).collect();
    let missing = ALL.iter().find(|(name, _)| !names.contains(name));
    if let Some((name, _)) = missing.or_else(|| ALL.first().filter(|_| names.len() != ALL.len())) {
        return Err(format!("{name} is in one of these only: {names:?}").into());
    }
    for (name, ptx) in *kernels {
        if ptx.contains(CHANNEL) == (*name == "is_quiet") {
            return Err(format!("{name}: {ptx}").into());
        }
        // Texts are there as numbers. Only one kernel has a message that stays behind.
        let left_out: Vec<String> = LEFT_OUT.bytes().map(|byte| byte.to_string()).collect();
        if ptx.contains(&left_out.join(", ")) != (*name == "panics_with_a_message") {
            return Err(format!("the message of {name}: {ptx}").into());
        }
        let assembly = match assemble(ptx, Arch::Sm80) {
            Err(ToolError::Missing(tool)) => return Ok(Completion::ignored_with(format!("skipped: no {tool:?}"))),
            assembly => assembly?,
        };
        let kernel = assembly.kernels.iter().find(|kernel| kernel.name == *name).ok_or("ptxas has not seen it")?;
        if !kernel.is_in_registers() || !assembly.warnings.is_empty() {
            return Err(format!("{name}: {kernel:?}, {:?}", assembly.warnings).into());
        }
    }
    Ok(Completion::Completed)
}
