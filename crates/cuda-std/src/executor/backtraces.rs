//! The calls that led to the two accesses of a report: from which functions of the kernel those were called that stand on the report's lines.
//!
//! Walking a stack takes far longer than an access, so no stack is walked before something is wrong. A launch that has failed is made again,
//! from the same numbers and with the same schedule, and does the same again:
//!
//! ```text
//!  first launch     thread A: load_tile(a)    load_tile(b)          thread B: ✗ a race with what A did on this line
//!  second launch    thread A: load_tile(a)    load_tile(b)          thread B: ✗ the same
//!                             ▲ stack, place  ▲ stack, place                  ▲ stack; of A's, the last one with this place
//! ```
//!
//! Only accesses of one thread on one line are looked at, which [`Backtraces::of`] has from the first report.

use core::fmt;
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use std::borrow::{Cow, ToOwned};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::context::Context;
use super::fault::{AccessKind, Fault, FaultKind, OtherAccess, SourceLine};
use super::identity::{DYNAMIC, SharedIdentity};
use super::shared_memory::WORD;
use super::{Executor, stacks};
use crate::Dim3;
use crate::atomic::Place;

/// How many functions may be between a kernel and what it does, the executor's own among them.
const FRAMES: usize = 48;

/// What a thread's stack has to have besides, for debug information to be read on it.
const ROOM: usize = 2 << 20;

/// The folder of this crate's own files, as debug information names it: their functions are no part of a kernel.
#[doc(hidden)]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// How the lines of a kernel are found that a thread is in: a kernel's line calls functions that do what is recorded. The executor does not
/// know: it takes a stack to be walked, and debug information to be read.
#[derive(Clone, Copy)]
pub struct Callers {
    /// Finds return addresses of the running thread, the innermost first, as many as there is room for, and returns how many. It runs on a
    /// stack with a few kilobytes left.
    pub addresses: fn(&mut [usize]) -> usize,
    /// The line in each function of the kernel among these, the innermost first, the kernel itself last; none if the kernel is not among them,
    /// or if the program has no lines. It runs on a stack with some megabytes left.
    pub lines: fn(&[usize]) -> Vec<SourceLine>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    /// The return addresses of the running thread.
    pub(super) fn addresses(&self) -> Vec<usize> {
        let mut addresses = [0; FRAMES];
        let count = (self.addresses)(&mut addresses);
        addresses[..count].to_vec()
    }

    /// From where the function was called that has this line, as [`Fault::callers`].
    fn of(&self, addresses: &[usize], location: &SourceLine) -> Vec<SourceLine> {
        let mut lines = (self.lines)(addresses);
        // Debug information has whole paths. Where a function stands for its caller (`#[track_caller]`), the report's line is further out.
        let root_at = |line: &SourceLine| {
            let root = line.file.strip_suffix(&*location.file).filter(|_| line.line == location.line);
            root.map(str::to_owned)
        };
        let there = lines.iter().enumerate().find_map(|(i, line)| Some((i, root_at(line)?)));
        let (first, root) = there.unwrap_or_default();
        lines.drain(..lines.len().min(first + 1));
        for line in &mut lines {
            if let Some(file) = line.file.strip_prefix(&*root) {
                line.file = Cow::Owned(file.to_owned());
            }
        }
        lines
    }
}

/// Bytes that an access is about: of an array in shared memory by its offset, of global memory (0) by its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    array: usize,
    bytes: Range<usize>,
}

impl Spot {
    pub(super) fn global(bytes: Range<usize>) -> Self {
        Self { array: 0, bytes }
    }

    pub(super) fn shared(array: &SharedIdentity, bytes: Range<usize>) -> Self {
        Self { array: ptr::from_ref(array).addr(), bytes }
    }

    pub(super) fn dynamic_word(word: usize) -> Self {
        Self::shared(&DYNAMIC, word * WORD..(word + 1) * WORD)
    }

    /// Of an access to this place. Whose block's memory it is, a thread says in two ways: it does not matter here.
    pub(super) fn of(place: Place, bytes: usize) -> Self {
        match place {
            Place::Global(address, _) => Self::global(address.addr()..address.addr() + bytes),
            Place::Shared(array, offset) | Place::Remote(_, array, offset) => {
                Self::shared(array, offset..offset + bytes)
            }
        }
    }

    fn touches(&self, other: &Self) -> bool {
        self.array == other.array && self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }
}

/// Finds from where the two accesses of a report were called, in a launch that is made again: [`Executor::with_backtraces`].
#[derive(Debug)]
pub struct Backtraces {
    callers: Callers,
    other: Option<Watched>,
    /// What that thread has done on that line: the place, where it is known, and the stack.
    seen: Mutex<Vec<(Option<Spot>, Vec<usize>)>>,
}

/// A thread, and a line of it.
#[derive(Debug)]
struct Watched {
    kernel: &'static str,
    block: Dim3,
    thread: Dim3,
    line: SourceLine,
}

impl Backtraces {
    /// For a launch that fails as this report says.
    pub fn of(fault: &Fault, callers: Callers) -> Self {
        let other = fault.kind.other().map(|(block, other)| Watched {
            kernel: fault.kernel,
            block: block.unwrap_or(fault.block),
            thread: other.thread,
            line: other.location.clone(),
        });
        Self { callers, other, seen: Mutex::default() }
    }

    /// Whether accesses of a block are looked at.
    pub(super) fn watches(&self, kernel: &str, block: Dim3) -> bool {
        self.other.as_ref().is_some_and(|other| other.kernel == kernel && other.block == block)
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn seen(&self) -> MutexGuard<'_, Vec<(Option<Spot>, Vec<usize>)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executor {
    /// The same executor for a launch that has failed and is made again: its report has the [calls](Fault::callers) that led to both accesses.
    /// Nothing else is different, but for larger stacks, and no steps are recorded.
    ///
    /// ```standalone_crate
    /// # use cuda_std::{executor::{Backtraces, Callers, Checks, Executor, LaunchError}, prelude::*};
    /// # extern crate tilewright_cuda_std as cuda_std;
    /// # use std::sync::Arc;
    /// #[kernel(block = 32)]
    /// fn race(x: GlobalSliceMut<'_, u32>) {
    ///     // SAFETY: none: other threads write it, too.
    ///     unsafe { x.set_unchecked(0, thread::thread_idx_x()) }
    /// }
    /// # // A walk through the stack and debug information, as the crate `backtrace` offers them.
    /// # const CALLERS: Callers = Callers { addresses: |_| 0, lines: |_| Vec::new() };
    /// let launch = |executor: Executor| {
    ///     let mut x = [0];
    ///     // SAFETY: the view is of an array of this program.
    ///     unsafe { executor.launch(race { x: GlobalSliceMut::new(&mut x) }, Dim3::from(1)) }
    /// };
    /// let executor = Executor::new(Checks::Full);
    /// let Err(LaunchError::Fault(fault)) = launch(executor.clone()) else { panic!() };
    /// let backtraces = Arc::new(Backtraces::of(&fault, CALLERS));
    /// let Err(LaunchError::Fault(again)) = launch(executor.with_backtraces(backtraces)) else { panic!() };
    /// assert_eq!(again, fault); // the kernel itself writes: nobody has called it
    /// ```
    pub fn with_backtraces(self, backtraces: Arc<Backtraces>) -> Self {
        let stack_bytes = self.stack_bytes.saturating_add(ROOM).min(*stacks::SIZES.end());
        Self { backtraces: Some(backtraces), steps: None, idle: Arc::default(), stack_bytes, ..self }
    }
}

impl Context<'_> {
    /// From where the running thread has called the function that has this line, if that is of interest.
    pub(super) fn callers_of(&self, location: Option<&SourceLine>) -> Vec<SourceLine> {
        match (self.backtraces, location) {
            (Some(backtraces), Some(location)) => backtraces.callers.of(&backtraces.callers.addresses(), location),
            _ => Vec::new(),
        }
    }

    /// Keeps the stack of the running thread of a block that is looked at, which makes an access, if a report will be about that.
    #[cold]
    #[inline(never)]
    pub(super) fn witness(&self, spot: Option<Spot>, location: &'static Location<'static>) {
        let Some(backtraces) = self.backtraces else { return };
        let is_watched = |other: &Watched| other.thread == self.thread().index && other.line == location.into();
        if backtraces.other.as_ref().is_some_and(is_watched) {
            self.require_headroom();
            let addresses = backtraces.callers.addresses();
            backtraces.seen().push((spot, addresses));
        }
    }

    /// The other access of a report, to these bytes among others, with its calls if those are of interest.
    pub(super) fn other_access(
        &self,
        thread: Dim3,
        location: &'static Location<'static>,
        access: AccessKind,
        spot: Spot,
    ) -> OtherAccess {
        let location = location.into();
        let callers = self.backtraces.map_or_else(Vec::new, |backtraces| {
            let seen = backtraces.seen();
            let there = seen.iter().rfind(|(seen, _)| seen.as_ref().is_some_and(|seen| seen.touches(&spot)));
            // Copies, and loads by TMA, have many places.
            let there = there.or_else(|| seen.iter().rfind(|(seen, _)| seen.is_none()));
            there.map_or_else(Vec::new, |(_, addresses)| backtraces.callers.of(addresses, &location))
        });
        OtherAccess { thread, location, access, callers }
    }
}

impl FaultKind {
    /// The other access, if there is one, and its block, if that is another one.
    fn other(&self) -> Option<(Option<Dim3>, &OtherAccess)> {
        match self {
            Self::Race { other, .. }
            | Self::WriteUnderWay { other, .. }
            | Self::InFlight { other, .. }
            | Self::UnwrittenShared { pending: Some(other), .. } => Some((None, other)),
            Self::GlobalRace { block, other, .. } | Self::ClusterRace { block, other, .. } => Some((*block, other)),
            _ => None,
        }
    }
}
