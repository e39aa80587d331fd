//! For tests of the checks themselves: does what a kernel asks for in another way at one place of its source, at run time and without a build,
//! to see whether the checks, or the results, tell.
//!
//! ```text
//! ring.rs:57  barrier.wait(parity)      omitted · the other parity · the next barrier
//! ring.rs:61  tile.read(i)              i + 1 · i − 1
//! grid.rs:67  flag.load(Acquire, Device)    relaxed · of the block alone
//! ```
//!
//! Each operation that a kernel can ask for says here which changes of it there are ([`Change`]). A launch either notes all of them that it comes
//! to, or makes one: at whatever thread comes to that place, every time.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::panic::Location;
use core::ptr;
use core::str::FromStr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::boxed::Box;
use std::collections::{BTreeSet, HashSet};
use std::string::{String, ToString};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::WarpOperation;
use super::context::{Context, LANES, current, try_current};
use super::hooks::lane;
use crate::atomic::{Order, Scope};
use crate::shared::SharedArray;

mod tiles;

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident $words:literal;)*) => {
        /// How an operation is carried out, if not as the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Change {
            $($(#[$doc])* $name,)*
        }

        impl Change {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What is done, without a space. Changes whose words begin with the same letters are of the same kind.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

changes! {
    /// The call does nothing.
    Omitted "omitted";
    /// A named barrier has a number that is larger by one.
    NextNumber "number+1";
    /// A named barrier is for a warp more.
    MoreThreads "threads+32";
    /// A named barrier is for a warp less.
    FewerThreads "threads-32";
    /// A barrier is initialized for one arrival more.
    MoreArrivals "arrivals+1";
    /// A barrier is initialized for one arrival less.
    FewerArrivals "arrivals-1";
    /// A phase expects 16 bytes more.
    MoreBytes "bytes+16";
    /// A phase expects 16 bytes less.
    FewerBytes "bytes-16";
    /// A phase expects no bytes.
    NoBytes "bytes=0";
    /// The phase of the other parity is waited for.
    OtherParity "parity^1";
    /// A wait leaves out one group more.
    OneMorePending "pending+1";
    /// A mask lacks its last lane.
    OneLaneLess "mask-1";
    /// A shuffle takes the value of the lane next to the one that it asks for.
    NextLane "lane+1";
    /// The next smaller scope that differs from this one.
    NarrowerScope "scope-1";
    /// An atomic operation orders nothing else.
    Relaxed "order=relaxed";
    /// Of an operation that acquires and releases, only the first is left.
    AcquireOnly "order=acquire";
    /// Of an operation that acquires and releases, only the second is left.
    ReleaseOnly "order=release";
    /// A tile of TMA begins a box further on, in the first dimension.
    NextBoxX "box.x+1";
    /// In the second dimension.
    NextBoxY "box.y+1";
    /// In the third dimension.
    NextBoxZ "box.z+1";
    /// Not this barrier but the one behind it in memory (the one before, if it is the last that memory has a place for).
    NextBarrier "barrier+1";
    /// Not this tile of shared memory but the one behind it.
    NextTile "tile+1";
    /// The index is larger by one, or by as many elements as are accessed at once.
    NextIndex "index+1";
    /// The index is smaller by one, or by as many elements as are accessed at once.
    PreviousIndex "index-1";
}

impl Change {
    /// Whether threads are less ordered for it, and nothing else is changed: what was left out, or an order that is weaker.
    pub const fn only_orders_less(self) -> bool {
        matches!(self, Self::Omitted | Self::Relaxed)
    }
}

/// An operation at a place in the source of a kernel, and a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangedCall {
    /// The file, as the compiler was given it.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1.
    pub column: u32,
    /// What the kernel asks for there.
    pub function: &'static str,
    /// What is done about it.
    pub change: Change,
}

impl fmt::Display for ChangedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, function, change } = self;
        write!(f, "{file}:{line}:{column} {function} {}", change.words())
    }
}

/// A [`ChangedCall`] as it was read.
#[derive(Debug)]
struct Wanted {
    file: String,
    line: u32,
    column: u32,
    function: String,
    change: Change,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let [place, function, words] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
            let [column, line, file] = place.rsplitn(3, ':').collect::<Vec<_>>()[..] else { return None };
            let change = *Change::ALL.iter().find(|change| change.words() == words)?;
            let (line, column) = (line.parse().ok()?, column.parse().ok()?);
            Some(Self { file: file.to_string(), line, column, function: function.to_string(), change })
        };
        parts().ok_or_else(|| std::format!("`{text}` is not `FILE:LINE:COLUMN FUNCTION CHANGE`"))
    }
}

/// Notes which operations kernels come to that can be changed, or has one of them changed:
/// [`Executor::with_changes`](super::Executor::with_changes).
#[derive(Debug, Default)]
pub struct Changes {
    wanted: Option<Wanted>,
    is_made: AtomicBool,
    met: Mutex<Met>,
}

#[derive(Debug, Default)]
struct Met {
    calls: BTreeSet<ChangedCall>,
    kernels: BTreeSet<&'static str>,
}

impl Changes {
    /// Has the change made that is displayed like this, wherever a thread comes to it.
    ///
    /// # Errors
    /// If it is not what a [`ChangedCall`] is displayed like.
    pub fn making(change: &str) -> Result<Self, String> {
        Ok(Self { wanted: Some(change.parse()?), ..Self::default() })
    }

    /// Whether the change has been made: some thread has come to the place.
    pub fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Relaxed)
    }

    /// What kernels have come to since this was last asked, if no change is to be made.
    pub fn take_met(&self) -> Vec<ChangedCall> {
        core::mem::take(&mut self.met().calls).into_iter().collect()
    }

    /// The kernels that have been launched.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.met().kernels.iter().copied().collect()
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on all accesses ask whether they are to be changed.
    pub(super) fn switch_on(&self) {
        IS_ON.store(true, Ordering::Relaxed);
    }
}

/// Whether any executor of this program notes or makes changes: what accesses to memory ask before anything else.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The changes of a launch, for one worker.
pub(super) struct Asked<'a> {
    changes: &'a Changes,
    /// The places and functions that have been noted, by their addresses.
    noted: RefCell<HashSet<(usize, usize)>>,
    /// Some of them, at positions that follow from the addresses: what is asked for again and again is found here, and quickly.
    recent: Box<[Cell<(usize, usize)>; RECENT]>,
}

/// How many places are found quickly: a power of two.
const RECENT: usize = 1 << 10;

impl<'a> Asked<'a> {
    pub(super) fn new(changes: &'a Changes, kernel: &'static str) -> Self {
        changes.met().kernels.insert(kernel);
        Self { changes, noted: RefCell::default(), recent: Box::new([const { Cell::new((0, 0)) }; RECENT]) }
    }

    /// Which of these changes is to be made of a function at a place. Not inlined: kernels have many places, and would take longer to compile.
    #[inline(never)]
    fn change(&self, function: &'static str, location: &'static Location<'static>, all: &[Change]) -> Option<Change> {
        let Some(wanted) = &self.changes.wanted else {
            let key = (ptr::from_ref(location).addr(), function.as_ptr().addr());
            // Locations have 24 bytes.
            let recent = &self.recent[((key.0 / 8) ^ key.1) % RECENT];
            if recent.replace(key) != key {
                self.note(key, function, location, all);
            }
            return None;
        };
        let is_here = (wanted.line, wanted.column) == (location.line(), location.column())
            && wanted.function == function
            && wanted.file == location.file()
            && all.contains(&wanted.change);
        if is_here {
            self.changes.is_made.store(true, Ordering::Relaxed);
        }
        is_here.then_some(wanted.change)
    }

    #[cold]
    #[inline(never)]
    fn note(&self, key: (usize, usize), function: &'static str, location: &'static Location<'static>, all: &[Change]) {
        current().require_headroom();
        if self.noted.borrow_mut().insert(key) {
            let (file, line, column) = (location.file(), location.line(), location.column());
            let calls = all.iter().map(|&change| ChangedCall { file, line, column, function, change });
            self.changes.met().calls.extend(calls);
        }
    }
}

impl Context<'_> {
    /// Which of these changes is to be made of a function that is called at a place.
    #[inline(always)]
    pub(super) fn change(
        &self,
        function: &'static str,
        location: &'static Location<'static>,
        all: &[Change],
    ) -> Option<Change> {
        self.changes_asked.as_ref()?.change(function, location, all)
    }

    /// Whether a call that does nothing but order is to be left out.
    #[inline(always)]
    pub(super) fn leaves_out(&self, function: &'static str, location: &'static Location<'static>) -> bool {
        self.change(function, location, &[Change::Omitted]).is_some()
    }

    /// The barrier at a byte of shared memory, and for how many arrivals it is initialized, unless it is not.
    pub(super) fn change_init(
        &self,
        location: &'static Location<'static>,
        at: usize,
        arrivals: u32,
    ) -> Option<(usize, u32)> {
        use Change::{FewerArrivals, MoreArrivals, NextBarrier, Omitted};
        match self.change("Barrier::init", location, &[Omitted, MoreArrivals, FewerArrivals, NextBarrier]) {
            None => Some((at, arrivals)),
            Some(MoreArrivals) => Some((at, arrivals + 1)),
            Some(FewerArrivals) => Some((at, arrivals.saturating_sub(1))),
            Some(NextBarrier) => Some((self.next_barrier(at), arrivals)),
            Some(_) => None,
        }
    }

    /// The barrier that is arrived at, and the bytes that its phase expects besides, unless nobody arrives.
    pub(super) fn change_arrival(
        &self,
        location: &'static Location<'static>,
        at: usize,
        bytes: u32,
    ) -> Option<(usize, u32)> {
        use Change::{FewerBytes, MoreBytes, NextBarrier, NoBytes, Omitted};
        const UNIT: u32 = 16;
        let change = match bytes {
            0 => self.change("Barrier::arrive", location, &[Omitted, NextBarrier]),
            _ => {
                let all = [Omitted, NextBarrier, MoreBytes, FewerBytes, NoBytes];
                self.change("Barrier::arrive_expecting", location, &all)
            }
        };
        match change {
            None => Some((at, bytes)),
            Some(NextBarrier) => Some((self.next_barrier(at), bytes)),
            Some(MoreBytes) => Some((at, bytes.saturating_add(UNIT))),
            Some(FewerBytes) => Some((at, bytes.saturating_sub(UNIT))),
            Some(NoBytes) => Some((at, 0)),
            Some(_) => None,
        }
    }

    /// The barrier that is waited for, and the parity of the phase, unless nobody waits.
    pub(super) fn change_phase(
        &self,
        location: &'static Location<'static>,
        at: usize,
        parity: u32,
    ) -> Option<(usize, u32)> {
        use Change::{NextBarrier, Omitted, OtherParity};
        match self.change("Barrier::wait", location, &[Omitted, OtherParity, NextBarrier]) {
            None => Some((at, parity)),
            Some(OtherParity) => Some((at, parity ^ 1)),
            Some(NextBarrier) => Some((self.next_barrier(at), parity)),
            Some(_) => None,
        }
    }

    /// The number of a named barrier and its count of threads, unless nobody comes.
    pub(super) fn change_numbered(
        &self,
        function: &'static str,
        location: &'static Location<'static>,
        (id, threads): (u32, u32),
    ) -> Option<(u32, u32)> {
        use Change::{FewerThreads, MoreThreads, NextNumber, Omitted};
        match self.change(function, location, &[Omitted, NextNumber, MoreThreads, FewerThreads]) {
            None => Some((id, threads)),
            Some(NextNumber) => Some((id.wrapping_add(1), threads)),
            Some(MoreThreads) => Some((id, threads.saturating_add(crate::warp::LANES))),
            Some(FewerThreads) => Some((id, threads.saturating_sub(crate::warp::LANES))),
            Some(_) => None,
        }
    }

    /// How many groups a wait leaves out, unless nobody waits.
    pub(super) fn change_pending(
        &self,
        function: &'static str,
        location: &'static Location<'static>,
        pending: u64,
    ) -> Option<u64> {
        match self.change(function, location, &[Change::Omitted, Change::OneMorePending]) {
            None => Some(pending),
            Some(Change::OneMorePending) => Some(pending + 1),
            Some(_) => None,
        }
    }

    /// The order and the scope of an atomic operation; `has_scope` says whether its scope means anything.
    pub(super) fn change_order(
        &self,
        function: &'static str,
        location: &'static Location<'static>,
        (order, scope): (Order, Scope),
        has_scope: bool,
    ) -> (Order, Scope) {
        use Change::{AcquireOnly, NarrowerScope, Relaxed, ReleaseOnly};
        let narrower = narrower(scope).filter(|_| has_scope);
        let all: &[Change] = match (order, narrower.is_some()) {
            (Order::Relaxed, false) => &[],
            (Order::Relaxed, true) => &[NarrowerScope],
            (Order::Acquire | Order::Release, false) => &[Relaxed],
            (Order::Acquire | Order::Release, true) => &[Relaxed, NarrowerScope],
            (Order::AcqRel | Order::SeqCst, false) => &[Relaxed, AcquireOnly, ReleaseOnly],
            (Order::AcqRel | Order::SeqCst, true) => &[Relaxed, AcquireOnly, ReleaseOnly, NarrowerScope],
        };
        match self.change(function, location, all) {
            None => (order, scope),
            Some(AcquireOnly) => (Order::Acquire, scope),
            Some(ReleaseOnly) => (Order::Release, scope),
            Some(NarrowerScope) => (order, narrower.unwrap_or(scope)),
            Some(_) => (Order::Relaxed, scope),
        }
    }

    /// The scope of a fence, unless there is none.
    pub(super) fn change_fence(&self, location: &'static Location<'static>, scope: Scope) -> Option<Scope> {
        let all: &[Change] = match narrower(scope) {
            Some(_) => &[Change::Omitted, Change::NarrowerScope],
            None => &[Change::Omitted],
        };
        match self.change("fence", location, all) {
            None => Some(scope),
            Some(Change::NarrowerScope) => narrower(scope),
            Some(_) => None,
        }
    }

    /// The place of the barrier behind one in shared memory, or before it, if there is no room behind.
    fn next_barrier(&self, at: usize) -> usize {
        const BYTES: usize = size_of::<u64>();
        if at + 2 * BYTES <= self.dynamic_bytes { at + BYTES } else { at.saturating_sub(BYTES) }
    }
}

/// The next smaller scope that is not the same to a grid without clusters.
fn narrower(scope: Scope) -> Option<Scope> {
    match scope {
        Scope::System => Some(Scope::Device),
        Scope::Device | Scope::Cluster => Some(Scope::Block),
        Scope::Block => None,
    }
}

/// The index of an access to `count` elements at once.
#[inline(always)]
#[track_caller]
pub(crate) fn change_index(function: &'static str, index: usize, count: usize) -> usize {
    if IS_ON.load(Ordering::Relaxed) { moved_index(function, index, count, Location::caller()) } else { index }
}

#[cold]
#[inline(never)]
fn moved_index(function: &'static str, index: usize, count: usize, location: &'static Location<'static>) -> usize {
    index.wrapping_add_signed(moved_by(function, location) * count as isize)
}

/// The index of an access to an element of an array.
#[inline(always)]
#[track_caller]
pub(crate) fn change_array_index<A: SharedArray>(function: &'static str, index: A::Index) -> A::Index {
    if !IS_ON.load(Ordering::Relaxed) {
        return index;
    }
    A::moved(index, moved_by(function, Location::caller()))
}

/// By how many elements an access is moved.
#[cold]
#[inline(never)]
fn moved_by(function: &'static str, location: &'static Location<'static>) -> isize {
    // Outside of a kernel the access itself panics.
    match try_current()
        .and_then(|context| context.change(function, location, &[Change::NextIndex, Change::PreviousIndex]))
    {
        None => 0,
        Some(Change::NextIndex) => 1,
        Some(_) => -1,
    }
}

/// Where a tile of an operand of tensor cores begins, in units of `step`, which stand for elements or bytes.
#[inline(always)]
#[track_caller]
pub(crate) fn change_operand(function: &'static str, index: usize, step: usize) -> usize {
    if !IS_ON.load(Ordering::Relaxed) {
        return index;
    }
    // Not in a closure, whose caller is this function.
    let location = Location::caller();
    let change = try_current().and_then(|context| context.change(function, location, &[Change::NextTile]));
    if change.is_some() { index + step } else { index }
}

/// The mask of a barrier of a warp, unless there is none.
#[inline(always)]
#[track_caller]
pub(super) fn change_sync_warp(mask: u32) -> Option<u32> {
    match current().change("sync_warp", Location::caller(), &[Change::Omitted, Change::OneLaneLess]) {
        None => Some(mask),
        Some(Change::OneLaneLess) => Some(one_lane_less(mask)),
        Some(_) => None,
    }
}

/// The mask of a vote, a match or a reduction.
#[inline(always)]
#[track_caller]
pub(super) fn change_mask(operation: WarpOperation, mask: u32) -> u32 {
    match current().change(name_of(operation), Location::caller(), &[Change::OneLaneLess]) {
        None => mask,
        Some(_) => one_lane_less(mask),
    }
}

/// The mask and the source of a shuffle.
#[inline(always)]
#[track_caller]
pub(super) fn change_shuffle(operation: WarpOperation, mask: u32, source: u32) -> (u32, u32) {
    let is_asked = current().changes_asked.is_some();
    if is_asked { changed_shuffle(operation, mask, source, Location::caller()) } else { (mask, source) }
}

#[cold]
#[inline(never)]
fn changed_shuffle(
    operation: WarpOperation,
    mask: u32,
    source: u32,
    location: &'static Location<'static>,
) -> (u32, u32) {
    match current().change(name_of(operation), location, &[Change::OneLaneLess, Change::NextLane]) {
        None => (mask, source),
        Some(Change::NextLane) if operation == WarpOperation::ShuffleXor => {
            // Another mask would do in many a tree: the same one for all lanes only has them meet in another order.
            let lane = lane();
            (mask, lane ^ ((lane ^ source).wrapping_add(1) % LANES as u32))
        }
        Some(Change::NextLane) => (mask, source.wrapping_add(1)),
        Some(_) => (one_lane_less(mask), source),
    }
}

/// A mask without its last lane.
fn one_lane_less(mask: u32) -> u32 {
    mask & !(1 << mask.checked_ilog2().unwrap_or(0))
}

/// The function that a kernel calls for an operation of a warp.
fn name_of(operation: WarpOperation) -> &'static str {
    match operation {
        WarpOperation::ShuffleUp => "warp_shuffle_up",
        WarpOperation::ShuffleDown => "warp_shuffle_down",
        WarpOperation::ShuffleXor => "warp_shuffle_xor",
        WarpOperation::ShuffleIdx => "warp_shuffle_idx",
        WarpOperation::VoteAll => "warp_vote_all",
        WarpOperation::VoteAny => "warp_vote_any",
        WarpOperation::VoteBallot => "warp_vote_ballot",
        WarpOperation::MatchAny => "match_any",
        WarpOperation::MatchAll => "match_all",
        WarpOperation::ReduceAdd => "reduce_add",
        WarpOperation::ReduceMinU32 | WarpOperation::ReduceMinI32 => "reduce_min",
        WarpOperation::ReduceMaxU32 | WarpOperation::ReduceMaxI32 => "reduce_max",
        WarpOperation::ReduceAnd => "reduce_and",
        WarpOperation::ReduceOr => "reduce_or",
        WarpOperation::ReduceXor => "reduce_xor",
        _ => "warp_operation",
    }
}
