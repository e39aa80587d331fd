//! What a pattern of the corpus is: a kernel that is right, and the mistakes that are made in it.

use cuda_std::executor::{Executor, Fault, FaultKind, LaunchError, UnwrittenElements};
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
    pub(crate) run: fn(u32, &Executor) -> Result<(), Report>,
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
    /// The same in some orders of blocks, and nothing in the others.
    Sometimes { kind: &'static str, marks: &'static [&'static str] },
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

/// A mistake that the checker finds in some orders of blocks.
pub(crate) const fn sometimes(
    class: Class,
    what: &'static str,
    kind: &'static str,
    marks: &'static [&'static str],
) -> Mistake {
    Mistake { class, what, expected: Expected::Sometimes { kind, marks } }
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
    Cluster,
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
            Self::BarrierDivergence => "a barrier that some threads never reach, or reach by another function",
            Self::WarpDivergence => {
                "a shuffle, vote, match, reduction, `sync_warp` or product of a warp that lanes never reach, or reach with another mask"
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
            Self::Cluster => {
                "blocks of a cluster: accesses that nothing orders, a block that has not begun or has ended, meetings, arrivals, tiles for several"
            }
            Self::TensorCores => "operands or sums of tensor cores touched too early, or never waited for",
            Self::Panic => "an assertion that fails, a panic, calls without an end",
        }
    }
}

/// What the checker says.
#[derive(Debug)]
pub(crate) enum Report {
    /// Of a launch.
    Launch(LaunchError),
    /// When the host reads what a launch has left.
    Unwritten(UnwrittenElements),
}

impl From<LaunchError> for Report {
    fn from(error: LaunchError) -> Self {
        Self::Launch(error)
    }
}

impl From<UnwrittenElements> for Report {
    fn from(error: UnwrittenElements) -> Self {
        Self::Unwritten(error)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Launch(error) => error.fmt(f),
            Self::Unwritten(error) => error.fmt(f),
        }
    }
}

impl Report {
    /// The name of the kind of fault; none where a launch was refused.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Launch(LaunchError::Fault(fault)) => Some(fault.kind.name()),
            Self::Launch(_) => None,
            Self::Unwritten(_) => Some("unwritten elements"),
        }
    }

    /// The lines that it names, in the order of the source.
    fn lines(&self) -> Vec<u32> {
        match self {
            Self::Launch(LaunchError::Fault(fault)) => lines(fault),
            Self::Launch(_) => Vec::new(),
            Self::Unwritten(unwritten) => vec![unwritten.allocated.line],
        }
    }
}

/// Launches a kernel whose views the caller has made of slices.
pub(crate) fn launch<K: Kernel>(executor: &Executor, kernel: K, grid: impl Into<Dim3>) -> Result<(), Report> {
    // SAFETY: the views are of slices that the caller borrows, mutably where they are mutable.
    Ok(unsafe { executor.launch(kernel, grid.into()) }?)
}

/// The lines that a report names: of both accesses, in the order of the source, or of the one place.
fn lines(fault: &Fault) -> Vec<u32> {
    let other = match &fault.kind {
        FaultKind::Race { other, .. }
        | FaultKind::GlobalRace { other, .. }
        | FaultKind::ClusterRace { other, .. }
        | FaultKind::InFlight { other, .. }
        | FaultKind::WriteUnderWay { other, .. }
        | FaultKind::UnwrittenShared { pending: Some(other), .. } => Some(other.location.line),
        FaultKind::NotFenced { location, .. }
        | FaultKind::WrittenBeforeLoad { location, .. }
        | FaultKind::BarrierMeetings { location, .. }
        | FaultKind::BarrierMixed { location, .. } => Some(location.line),
        FaultKind::BarrierArrivedTwice { first, .. } => Some(first.line),
        FaultKind::BarrierAccess { initialized, .. } => Some(initialized.line),
        FaultKind::ClusterArrivedTwice { first } => Some(first.line),
        FaultKind::UnwrittenGlobal { allocated, .. } => Some(allocated.line),
        FaultKind::SumsNotAwaited { product } => Some(product.line),
        FaultKind::Stuck { last_write: Some(write), .. } => Some(write.location.line),
        _ => None,
    };
    let mut lines: Vec<u32> = fault.location.iter().map(|location| location.line).chain(other).collect();
    lines.sort_unstable();
    lines
}

impl Mistake {
    /// Whether it is found, if only in some orders.
    pub(crate) fn is_found(&self) -> bool {
        !matches!(self.expected, Expected::Missed { .. })
    }

    /// Whether a report is what is expected: in these words, if it is not.
    pub(crate) fn compare(&self, source: &str, report: &Report) -> Result<(), String> {
        let (Expected::Found { kind, marks } | Expected::Sometimes { kind, marks }) = &self.expected else {
            return Ok(());
        };
        match report.kind() {
            None => return Err(format!("the launch is refused: {report}")),
            Some(found) if found != *kind => return Err(format!("expected `{kind}`, found `{found}`: {report}")),
            Some(_) => {}
        }
        let mut expected: Vec<u32> = marks.iter().map(|mark| line_of(source, mark)).collect();
        expected.sort_unstable();
        if report.lines() != expected {
            return Err(format!("expected the lines {expected:?}, found {:?}: {report}", report.lines()));
        }
        let report = report.to_string();
        match expected.iter().find(|line| ![':', '\n'].iter().any(|end| report.contains(&format!(".rs:{line}{end}")))) {
            Some(line) => Err(format!("the report does not show line {line}: {report}")),
            None => Ok(()),
        }
    }
}
