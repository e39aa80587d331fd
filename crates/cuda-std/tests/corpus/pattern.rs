//! What a pattern of the corpus is: a kernel that is right, and the mistakes that are made in it.

use cuda_std::executor::{Executor, Fault, FaultKind, LaunchError};
use cuda_std::{Dim3, Kernel};

use crate::common::line_of;

/// Patterns of one kind, in a file of their own.
pub(crate) struct Family {
    pub(crate) source: &'static str,
    pub(crate) patterns: &'static [Pattern],
}

/// A kernel, right and wrong.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    /// Runs the kernel: right with 0, with the first of the mistakes with 1, and so on.
    pub(crate) run: fn(u32, &Executor) -> Result<(), LaunchError>,
    pub(crate) mistakes: &'static [Mistake],
}

/// A mistake, and what the checker says of it.
pub(crate) struct Mistake {
    pub(crate) class: Class,
    /// What is wrong, in a few words.
    pub(crate) what: &'static str,
    pub(crate) expected: Expected,
}

pub(crate) enum Expected {
    /// A fault of a kind by its name, and the marks of its lines: the accesses of a race, otherwise the one place.
    Found { kind: &'static str, marks: &'static [&'static str] },
    /// Nothing, and why.
    Missed { reason: &'static str },
}

/// A mistake that the checker finds.
pub(crate) const fn found(
    class: Class,
    what: &'static str,
    kind: &'static str,
    marks: &'static [&'static str],
) -> Mistake {
    Mistake { class, what, expected: Expected::Found { kind, marks } }
}

/// A mistake that the checker does not find.
pub(crate) const fn missed(class: Class, what: &'static str, reason: &'static str) -> Mistake {
    Mistake { class, what, expected: Expected::Missed { reason } }
}

/// Classes of mistakes, as an author of kernels calls them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    SharedRace,
    WarpRace,
    GlobalRace,
    Order,
    Scope,
    BarrierDivergence,
    WarpDivergence,
    InactiveLane,
    PartBarrier,
    EndlessWait,
    Bounds,
    Unwritten,
    AsyncCopy,
    Tma,
    TensorCores,
    Panic,
}

impl Class {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::SharedRace => {
                "a race in shared memory: a barrier left out or in the wrong place, sums that are not atomic"
            }
            Self::WarpRace => "a race between lanes of a warp: `sync_warp` left out, or with too small a mask",
            Self::GlobalRace => "a race in global memory, within a block or between blocks",
            Self::Order => "an order of an atomic operation too weak, a fence left out, a flag set too early",
            Self::Scope => "a scope too small",
            Self::BarrierDivergence => "a barrier that some threads never reach",
            Self::WarpDivergence => {
                "a shuffle, vote, `sync_warp` or product of a warp that lanes never reach, or reach with another mask"
            }
            Self::InactiveLane => "a value from a lane that does not take part in the shuffle",
            Self::PartBarrier => {
                "a barrier for a part of the block: wrong number, count, parity or arrivals, reads after the arrival"
            }
            Self::EndlessWait => {
                "a wait that never ends: a flag or lock that nobody sets, blocks that do not run at the same time"
            }
            Self::Bounds => "an index out of bounds, a vector at a wrong address",
            Self::Unwritten => "a read of memory that nobody has written",
            Self::AsyncCopy => "an asynchronous copy not waited for, or over what others still read",
            Self::Tma => "a tile of TMA not waited for, not visible, overwritten, at a wrong place, with wrong bytes",
            Self::TensorCores => "operands or sums of tensor cores touched too early, or never waited for",
            Self::Panic => "an assertion that fails, a panic",
        }
    }
}

/// Launches a kernel whose views the caller has made of slices.
pub(crate) fn launch<K: Kernel>(executor: &Executor, kernel: K, grid: impl Into<Dim3>) -> Result<(), LaunchError> {
    // SAFETY: the views are of slices that the caller borrows, mutably where they are mutable.
    unsafe { executor.launch(kernel, grid.into()) }
}

/// The lines that a report names: of both accesses, in the order of the source, or of the one place.
pub(crate) fn lines(fault: &Fault) -> Vec<u32> {
    let other = match &fault.kind {
        FaultKind::Race { other, .. } | FaultKind::GlobalRace { other, .. } | FaultKind::InFlight { other, .. } => {
            Some(other.location.line)
        }
        FaultKind::NotFenced { location, .. } => Some(location.line),
        _ => None,
    };
    let mut lines: Vec<u32> = fault.location.iter().map(|location| location.line).chain(other).collect();
    lines.sort_unstable();
    lines
}

impl Mistake {
    /// Whether a fault is what is expected: in these words, if it is not.
    pub(crate) fn compare(&self, source: &str, fault: &Fault) -> Result<(), String> {
        let Expected::Found { kind, marks } = &self.expected else { return Ok(()) };
        if fault.kind.name() != *kind {
            return Err(format!("expected `{kind}`, found `{}`: {fault}", fault.kind.name()));
        }
        let mut expected: Vec<u32> = marks.iter().map(|mark| line_of(source, mark)).collect();
        expected.sort_unstable();
        if lines(fault) != expected {
            return Err(format!("expected the lines {expected:?}, found {:?}: {fault}", lines(fault)));
        }
        let report = fault.to_string();
        match expected.iter().find(|line| !report.contains(&format!(".rs:{line}\n"))) {
            Some(line) => Err(format!("the report does not show line {line}: {report}")),
            None => Ok(()),
        }
    }
}
