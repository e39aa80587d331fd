//! The program of the course.
//!
//! ```text
//!  cargo run -- NAME                     checks a puzzle on the executor: its name, or its number; `all` checks all
//!  cargo run -- NAME --json              the same for programs: a line of JSON for each puzzle
//!  cargo run --features gpu -- NAME --gpu    runs and measures it on a GPU
//!  cargo run -- check | cost | trace | … what every program over operations can do: see --help
//! ```

mod check;
mod progress;

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use check::Outcome;
use course_kernels::PUZZLES;
use course_kernels::puzzle::Puzzle;
use progress::Progress;
use runtime::KernelSet;

/// The PTX of the kernels, if this was built for a GPU.
#[cfg(feature = "gpu")]
static KERNELS: KernelSet = runtime::kernel_set!("kernels");
#[cfg(feature = "gpu")]
const KERNEL_SETS: &[&KernelSet] = &[&KERNELS];
#[cfg(not(feature = "gpu"))]
const KERNEL_SETS: &[&KernelSet] = &[];

/// What could not be done.
const REFUSED: u8 = 2;

/// After how long a puzzle counts as one that never ends: each takes less than a second.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    testkit::ending::end_with_the_reader();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().map(|word| &**word).partition(|word| word.starts_with('-'));
    let wanted: Option<Vec<&'static Puzzle>> = match names[..] {
        ["all"] => Some(PUZZLES.to_vec()),
        [name] => find(name).map(|puzzle| vec![puzzle]),
        _ => None,
    };
    match (wanted, flags.iter().all(|flag| ["--json", "--gpu"].contains(flag))) {
        (Some(puzzles), true) if flags.contains(&"--gpu") => on_gpu(&puzzles, flags.contains(&"--json")),
        (Some(puzzles), true) => on_executor(&puzzles, flags.contains(&"--json")),
        _ => {
            let operations: Vec<_> = PUZZLES.iter().map(|puzzle| puzzle.operation).collect();
            testkit::main(&operations, KERNEL_SETS)
        }
    }
}

/// The puzzle of this name or number: `votes`, `16` or `p16`.
fn find(name: &str) -> Option<&'static Puzzle> {
    let number = name.strip_prefix('p').unwrap_or(name).parse::<usize>().ok();
    let is_it = |(index, puzzle): &(usize, &&Puzzle)| puzzle.name == name || number == Some(index + 1);
    PUZZLES.iter().enumerate().find(is_it).map(|(_, puzzle)| *puzzle)
}

/// Checks puzzles, shows what has come of each, and notes those that have passed.
fn on_executor(puzzles: &[&'static Puzzle], json: bool) -> ExitCode {
    let course = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut progress = Progress::read(course);
    let mut all_passed = true;
    for (index, puzzle) in puzzles.iter().enumerate() {
        let outcome = within_the_limit(puzzle, || Outcome::of(puzzle));
        all_passed &= outcome.passed();
        if json {
            println!("{}", outcome.to_json());
        } else {
            if index > 0 {
                println!();
            }
            outcome.show();
        }
        if let (true, Ok(progress)) = (outcome.passed(), &mut progress) {
            // What was compiled, whatever stands in the file by now.
            progress.solved.insert(puzzle.name.to_owned(), progress::digest(puzzle.source));
        }
    }
    if let Err(error) = progress.and_then(|progress| progress.write(course)) {
        eprintln!("warning: what has passed is not noted: {error}");
    }
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a puzzle, or ends the program, if that takes too long: what goes on for ever cannot be stopped from outside.
fn within_the_limit<T>(puzzle: &'static Puzzle, check: impl FnOnce() -> T) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    thread::spawn(move || {
        if is_done.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            let Puzzle { name, file, .. } = puzzle;
            eprintln!(
                "{name}: not yet\n\nThe kernel has not ended in {} seconds. Is there a loop whose condition stays true? It may lack the line \
                 that takes it further.\n\nThe puzzle is {file}. A hint: cargo tilewright learn hint {name}",
                LIMIT.as_secs()
            );
            std::process::exit(1);
        }
    });
    let result = check();
    drop(done);
    result
}

/// Runs puzzles on a GPU, compares every element, and measures the last case: with the share of what the GPU could do.
fn on_gpu(puzzles: &[&'static Puzzle], json: bool) -> ExitCode {
    let device = match runtime::Device::open(KERNEL_SETS) {
        Ok((device, None)) => device,
        Ok((_, Some(reason))) => return refuse(&format!("no GPU runs these kernels: {reason}")),
        Err(error) => return refuse(&error.to_string()),
    };
    let mut all_right = true;
    for puzzle in puzzles {
        let measured = testkit::check(puzzle.operation, &device, 1).and_then(|report| {
            all_right &= report.holds();
            if !report.holds() {
                return Ok((report, None));
            }
            let sizes = puzzle.operation.describe().last_case(&device)?;
            Ok((report, Some(testkit::bench(puzzle.operation, &device, sizes, 50, 1)?)))
        });
        match measured {
            Ok((_, Some(measurement))) if json => {
                println!("{}", serde_json::to_string(&measurement).expect("a measurement has names for keys"));
            }
            Ok((report, _)) if json => println!("{}", serde_json::to_string(&report).expect("as a measurement")),
            Ok((report, measurement)) => {
                println!("{report}");
                measurement.iter().for_each(|measurement| println!("{measurement}"));
            }
            Err(error) => {
                all_right = false;
                eprintln!("error: {}: {error}", puzzle.name);
            }
        }
    }
    if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refuse(reason: &str) -> ExitCode {
    let build = if cfg!(feature = "gpu") { "" } else { " (built without PTX: cargo run --features gpu -- NAME --gpu)" };
    eprintln!("error: {reason}{build}");
    ExitCode::from(REFUSED)
}
