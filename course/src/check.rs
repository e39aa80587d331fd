//! Checks a puzzle on the executor: all cases with all checks, and then what it costs.

use course_kernels::puzzle::{Puzzle, Score};
use cuda_std::executor::{CostKind, LaunchError, StepOptions};
use serde_json::{Value, json};
use testkit::{Error, Sizes};

/// What has come of a puzzle.
pub struct Outcome {
    /// The puzzle.
    pub puzzle: &'static Puzzle,
    /// What is wrong, if something is.
    pub failure: Option<Failure>,
    /// What the kernel costs, if its results are right.
    pub score: Option<Score>,
}

/// What is wrong with a kernel.
pub struct Failure {
    /// The kind of fault by its name in `cuda_std::executor::FaultKind` or `testkit::Error`, or `Score`, or `Judge`.
    pub kind: String,
    /// The sizes of the case.
    pub sizes: String,
    /// The report.
    pub report: String,
}

/// What numbers are made from.
const SEED: u64 = 1;

impl Outcome {
    /// Runs the cases of a puzzle.
    pub fn of(puzzle: &'static Puzzle) -> Self {
        let failure = |sizes: &str, error: &Error| {
            Some(Failure { kind: kind(error), sizes: sizes.to_owned(), report: error.to_string() })
        };
        let wrong = match testkit::check_executor(puzzle.operation, SEED) {
            Ok(report) => report.failures().next().and_then(|(sizes, error)| failure(sizes, error)),
            Err(error) => failure("", &error),
        };
        if wrong.is_some() {
            return Self { puzzle, failure: wrong, score: None };
        }
        match score(puzzle) {
            Ok((sizes, score)) => {
                let shown = sizes.to_string();
                let failure = too_much(puzzle, &shown, &score).or_else(|| judged(puzzle, sizes));
                Self { puzzle, failure, score: Some(score) }
            }
            Err(error) => Self { puzzle, failure: failure("", &error), score: None },
        }
    }

    /// Whether the puzzle is solved.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }

    /// What the failure means, in one sentence.
    pub fn meaning(&self) -> Option<&'static str> {
        let kind = &*self.failure.as_ref()?.kind;
        Some(if kind == self.puzzle.fails { self.puzzle.lesson } else { meaning(kind) })
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let (puzzle, failure) = (self.puzzle, self.failure.as_ref());
        json!({
            "puzzle": puzzle.name,
            "file": puzzle.file,
            "passed": self.passed(),
            "kind": failure.map(|failure| &failure.kind),
            "fails": puzzle.fails,
            "sizes": failure.map(|failure| &failure.sizes),
            "report": failure.map(|failure| &failure.report),
            "meaning": self.meaning(),
            "score": self.score.map(as_json),
            "reference": as_json(puzzle.reference),
        })
    }

    /// For people: the report first, then what it means.
    pub fn show(&self) {
        let Puzzle { name, file, reference, limits, .. } = self.puzzle;
        if let Some(failure) = &self.failure {
            let case = if failure.sizes.is_empty() { String::new() } else { format!(", with {}", failure.sizes) };
            println!("{name}: not yet{case}\n\n{}\n", failure.report);
        } else {
            println!("{name}: solved\n");
        }
        if let Some(score) = self.score {
            println!("  {:<32} {:>9} {:>9} {:>9}", "", "yours", "reference", "most");
            let limits = [limits.sectors, limits.global, limits.shared, limits.conflicts, None];
            for (((what, yours), (_, theirs)), most) in rows(score).into_iter().zip(rows(*reference)).zip(limits) {
                let most = most.map(|most| most.to_string()).unwrap_or_default();
                println!("  {what:<32} {yours:>9} {theirs:>9} {most:>9}");
            }
            println!();
        }
        if let Some(meaning) = self.meaning() {
            println!("{meaning}\n\nThe puzzle is {file}. A hint: cargo tilewright learn hint {name}");
        }
    }
}

/// The numbers of a score, and what they are.
fn rows(score: Score) -> [(&'static str, u64); 5] {
    [
        ("sectors of global memory", score.sectors),
        ("instructions to global memory", score.global),
        ("loads of shared memory", score.shared),
        ("bank conflicts", score.conflicts),
        ("waits at barriers", score.waits),
    ]
}

fn as_json(score: Score) -> Value {
    let Score { sectors, global, shared, conflicts, waits } = score;
    json!({ "sectors": sectors, "global": global, "shared": shared, "conflicts": conflicts, "waits": waits })
}

/// What the largest of the small cases costs: the last one, if several are.
fn score(puzzle: &Puzzle) -> Result<(Sizes, Score), Error> {
    let description = puzzle.operation.describe();
    let no_cases = Error::NoCases { operation: description.name };
    let largest = description.small.iter().max_by_key(|sizes| sizes.iter().product::<usize>());
    let sizes = description.sizes_of(largest.ok_or(no_cases)?)?;
    let report = testkit::cost(puzzle.operation, sizes.clone(), SEED)?;
    let sum = |kinds: &[CostKind], number: fn(&cuda_std::executor::Cost) -> u64| -> u64 {
        let costs = report.kernels.iter().flat_map(|kernel| kinds.iter().map(|kind| kernel.total(*kind)));
        costs.map(|cost| number(&cost)).sum()
    };
    let global = [
        CostKind::GlobalLoad,
        CostKind::GlobalAtomicLoad,
        CostKind::GlobalStore,
        CostKind::GlobalAtomic,
        CostKind::AsyncCopy,
        CostKind::Tma,
    ];
    let shared = [CostKind::SharedLoad, CostKind::SharedStore, CostKind::SharedAtomic];
    let score = Score {
        sectors: sum(&global, |cost| cost.sectors),
        global: sum(&global, |cost| cost.requests),
        shared: sum(&[CostKind::SharedLoad], |cost| cost.requests),
        conflicts: sum(&shared, |cost| cost.conflicts),
        waits: sum(&[CostKind::Wait], |cost| cost.requests),
    };
    Ok((sizes, score))
}

/// What the puzzle's judge says of the steps of the first block.
fn judged(puzzle: &Puzzle, sizes: Sizes) -> Option<Failure> {
    let (judge, shown) = (puzzle.judge?, sizes.to_string());
    let trace = testkit::record_steps(puzzle.operation, sizes, SEED, 0, StepOptions::default());
    let (kind, report) = match trace {
        Ok(trace) => ("Judge".to_owned(), format!("the results are right, but {}", judge(&trace).err()?)),
        Err(error) => (kind(&error), error.to_string()),
    };
    Some(Failure { kind, sizes: shown, report })
}

/// What a right kernel costs more than it may.
fn too_much(puzzle: &Puzzle, sizes: &str, score: &Score) -> Option<Failure> {
    let limits = puzzle.limits;
    let limits = [limits.sectors, limits.global, limits.shared, limits.conflicts, None];
    let over = rows(*score).into_iter().zip(limits).filter_map(|((what, found), most)| {
        let most = most.filter(|most| found > *most)?;
        Some(format!("{found} {what}, where {most} are enough"))
    });
    let over: Vec<_> = over.collect();
    if over.is_empty() {
        return None;
    }
    let report = format!("the results are right, and cost too much: {}", over.join("; "));
    Some(Failure { kind: "Score".to_owned(), sizes: sizes.to_owned(), report })
}

/// The name of a kind of error.
fn kind(error: &Error) -> String {
    match error {
        Error::OnCapability { source, .. } => kind(source),
        Error::Runtime(runtime::Error::Executor(LaunchError::Fault(fault))) => variant(&fault.kind),
        Error::Runtime(runtime::Error::Executor(error)) => variant(error),
        Error::Runtime(error) => variant(error),
        error => variant(error),
    }
}

/// The name of a variant, which comes first where it is shown to programmers.
fn variant(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// What a kind of failure means that a puzzle does not have at first.
fn meaning(kind: &str) -> &'static str {
    match kind {
        "OutOfBounds" | "SharedOutOfBounds" | "DynamicSharedBounds" | "Guard" => {
            "An index is outside of what it is an index of: compare it before the access."
        }
        "Misaligned" | "SharedMisaligned" => "A vector has to begin at a multiple of its own size.",
        "Race" => "Two threads of a block access the same shared memory, and no barrier orders them.",
        "GlobalRace" => "Two threads access the same element of global memory, and nothing orders them.",
        "UnwrittenShared" | "UnwrittenGlobal" => "Something is read before anybody has written it.",
        "Unwritten" => "Some element of the output has no thread that writes it.",
        "BarrierDivergence" | "WarpSplitAtBarriers" => {
            "Some threads of the block never come to a barrier that others wait at."
        }
        "BarrierMixed" => {
            "Threads of the block come to one barrier, some to wait and others to vote, or to vote on something else."
        }
        "WarpDivergence" | "LaneNotInMask" | "InactiveLane" => {
            "Not all lanes that an instruction of the warp names have come to it."
        }
        "Deadlock" | "Stuck" => "Threads wait for something that nobody is left to do.",
        "Wrong" => {
            "There is no race, and no access out of bounds, but the numbers are others: look at the formula, at which elements go into \
             it, and how often each does."
        }
        "Varies" => "The result depends on the order in which threads happen to run.",
        "NotFenced" => "What a thread has written is not visible to TMA or tensor cores without `fence_async_shared`.",
        "InFlight" => "A tile is overwritten while it is still used: wait until it has been read.",
        "WriteUnderWay" => "Something is written to where a copy goes that has not arrived: wait for the copy first.",
        "SumsNotAwaited" | "ProductNotAwaited" | "RegistersNotFenced" => {
            "Products of a warpgroup go on while threads do: fence before, commit and wait behind."
        }
        "CopyNotAwaited" | "LoadNotAwaited" | "StoreNotAwaited" => {
            "A copy is still under way when its thread ends: wait for it."
        }
        "UnbalancedBytes" | "TooManyArrivals" | "BarrierNotInitialized" | "BarrierNotFenced" | "BarrierParity" => {
            "What arrives at a barrier in shared memory is not what it was told to expect."
        }
        "Panic" => "An assertion or an arithmetic check of Rust failed in the kernel.",
        "Judge" => "The results are right, and come about in another way than the puzzle asks for.",
        "Score" => "The kernel is right, and accesses memory more often, or in a worse order, than it has to.",
        _ => "The report says where, and what to do.",
    }
}
