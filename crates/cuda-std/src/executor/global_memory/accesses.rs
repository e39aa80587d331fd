//! What the shadow of global memory remembers of 4 bytes, or of a part of them: the accesses that a later one may conflict with.
//!
//! Of reads, two are enough where blocks are ordered by nothing, and threads of a block by `sync_threads` and `sync_warp`: any writer
//! conflicts with one of two readers in two blocks, or two warps, or of two lanes. Where atomic operations order blocks, or barriers for a
//! part of the block order threads, a writer may be ordered behind any two readers and not behind a third. There all are kept, those of a
//! warp as one *group* (after C. Flanagan and S. N. Freund, "FastTrack", 2009, whose read vector clocks are kept only where they are needed).
//!
//! ```text
//!  reads     ● ●                                                       two, and a key that says that they are enough
//!  groups    block 7 warp 2 ●●●●●●…   block 9 warp 0 ●·······   …      where they are not
//! ```
//!
//! An access that is ordered before a later one of the same kind is no longer needed: who conflicts with it conflicts with that one as well.

use core::panic::Location;
use std::boxed::Box;
use std::collections::HashMap;
use std::vec::Vec;

use super::super::context::{Context, LANES};
use super::super::exchange::lanes_in;
use super::super::fault::AccessKind;
use super::super::known::reach;
use crate::atomic::Scope;

/// How many groups are kept of one record at most, so that one number that everybody adds to cannot take all memory.
const MOST_GROUPS: usize = 1024;

/// From how many groups on some may no longer be needed, for the first time.
const FIRST_PRUNING: usize = 16;

/// How many of the latest groups are looked through for the one that an access belongs to.
const LATEST: usize = 64;

/// An access, as the shadow remembers it.
#[derive(Clone, Copy)]
pub(in super::super) struct Access {
    /// `None` only if there was no access.
    pub(in super::super) location: Option<&'static Location<'static>>,
    pub(in super::super) interval: u64,
    pub(in super::super) block: u64,
    pub(in super::super) thread: u32,
    pub(in super::super) kind: AccessKind,
}

impl Access {
    pub(super) const NONE: Self = Self { location: None, interval: 0, block: 0, thread: 0, kind: AccessKind::Read };
}

/// Accesses by lanes of a warp, in one interval, on one line.
#[derive(Clone, Copy)]
struct Group {
    location: &'static Location<'static>,
    interval: u64,
    block: u64,
    warp: u32,
    lanes: u32,
    kind: AccessKind,
}

impl Group {
    fn accesses(&self) -> impl Iterator<Item = Access> {
        let Self { location, interval, block, warp, lanes, kind } = *self;
        lanes_in(lanes).map(move |lane| {
            let thread = warp * LANES as u32 + lane as u32;
            Access { location: Some(location), interval, block, thread, kind }
        })
    }
}

/// Groups of reads, or of atomic operations, the latest last.
#[derive(Clone, Default)]
struct Groups {
    groups: Vec<Group>,
    /// The length at which to look again for some that are no longer needed.
    next_pruning: usize,
}

/// Accesses where two of a kind are not enough.
#[derive(Clone, Default)]
struct More {
    reads: Groups,
    atomics: Groups,
}

/// What is remembered of a word, or of a part of one: the last write, and accesses since.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) write: Access,
    reads: [Access; 2],
    atomics: [Access; 2],
    more: Option<Box<More>>,
}

/// For whom there are readers enough.
pub(super) enum Enough {
    /// For everybody.
    ByBlocks,
    /// For the block, until its next barrier.
    InEpoch,
    /// For the warp, until it synchronizes.
    InInterval,
}

impl Record {
    pub(super) const NONE: Self =
        Self { write: Access::NONE, reads: [Access::NONE; 2], atomics: [Access::NONE; 2], more: None };

    /// An access with which one of the running thread is a race.
    pub(super) fn conflict(&self, context: &Context<'_>, me: &Access) -> Option<Access> {
        let is_conflict = |other: &&Access| {
            other.location.is_some() && may_conflict(context, other, me) && is_unordered(context, other, me)
        };
        let few = [&self.write].into_iter().chain(&self.reads).chain(&self.atomics).find(is_conflict).copied();
        let more = || {
            let more = self.more.as_deref()?;
            let groups = more.reads.groups.iter().chain(&more.atomics.groups);
            groups.flat_map(Group::accesses).find(|other| is_conflict(&other))
        };
        // What TMA has written says less than who has read that since.
        let by_tma = few.filter(|write| write.thread as usize >= context.threads.len());
        if by_tma.is_some() { more().or(by_tma) } else { few.or_else(more) }
    }

    /// Enters a write of the running thread. What came before is ordered before it, so nobody can conflict with that alone.
    pub(super) fn enter_write(&mut self, me: Access) {
        *self = Self { write: me, ..Self::NONE };
    }

    /// Enters a read of the running thread. Returns for whom there are readers enough.
    pub(super) fn enter_read(&mut self, context: &Context<'_>, me: Access) -> Option<Enough> {
        if needs_all(context) {
            self.more.get_or_insert_default().reads.add(context, &me);
            return None;
        }
        add(context, &mut self.reads, me)
    }

    /// Enters an atomic operation of the running thread.
    pub(super) fn enter_atomic(&mut self, context: &Context<'_>, me: Access) {
        if needs_all(context) {
            self.more.get_or_insert_default().atomics.add(context, &me);
        } else {
            add(context, &mut self.atomics, me);
        }
    }
}

/// Whether a writer may be ordered behind any two accesses and not behind a third.
pub(super) fn needs_all(context: &Context<'_>) -> bool {
    context.turns.is_some() || context.memory.shared.clocks.are_in_use()
}

/// Whether two accesses are a race if nothing orders them.
fn may_conflict(context: &Context<'_>, other: &Access, me: &Access) -> bool {
    match (other.kind, me.kind) {
        (AccessKind::Read, AccessKind::Read) => false,
        // Of two sizes, they are not atomic with respect to one another.
        (AccessKind::Atomic { scope: one, bytes: of_one }, AccessKind::Atomic { scope: two, bytes: of_two }) => {
            of_one != of_two || !context.is_within(one.min(two), other.block, me.block)
        }
        _ => true,
    }
}

/// Whether nothing orders an earlier access before what the running thread does.
fn is_unordered(context: &Context<'_>, other: &Access, me: &Access) -> bool {
    let shared = &context.memory.shared;
    if other.block == me.block {
        return shared.is_unordered(other.thread as usize, other.interval, me.thread as usize);
    }
    !shared.knows(me.thread as usize, other.block, other.thread as usize, other.interval)
}

/// Adds an access to up to two others of its kind since the last write, so that a writer which conflicts with any conflicts with one that is
/// kept. Returns for whom there are enough.
fn add(context: &Context<'_>, known: &mut [Access; 2], me: Access) -> Option<Enough> {
    let is_open = |other: &Access| other.location.is_some() && is_unordered(context, other, &me);
    let mut open = known.iter().copied().filter(is_open);
    let is_far =
        |other: &Access| other.block != me.block || other.thread as usize / LANES != me.thread as usize / LANES;
    let enough = |other: &Access| {
        if other.block != me.block {
            Some(Enough::ByBlocks)
        } else if is_far(other) {
            Some(Enough::InEpoch)
        } else {
            (other.interval == me.interval).then_some(Enough::InInterval)
        }
    };
    match (open.next(), open.next()) {
        (None, _) => {
            *known = [me, Access::NONE];
            None
        }
        (Some(other), None) => {
            *known = [other, me];
            enough(&other)
        }
        (Some(first), Some(second)) if is_far(&first) => {
            // Of two blocks they stay so.
            let of_two_blocks = first.block != second.block;
            *known = if of_two_blocks { [first, second] } else { [first, me] };
            if of_two_blocks { Some(Enough::ByBlocks) } else { enough(&first) }
        }
        (Some(_), Some(_)) => None,
    }
}

impl Groups {
    /// Adds an access of the running thread.
    fn add(&mut self, context: &Context<'_>, me: &Access) {
        let Some(location) = me.location else { return };
        let (warp, lane) = (me.thread / LANES as u32, 1 << (me.thread % LANES as u32));
        let is_same = |known: &&mut Group| {
            (known.block, known.warp, known.interval, known.kind) == (me.block, warp, me.interval, me.kind)
                && core::ptr::eq(known.location, location)
        };
        if let Some(known) = self.groups.iter_mut().rev().take(LATEST).find(is_same) {
            known.lanes |= lane;
            return;
        }
        if self.groups.len() >= self.next_pruning.max(FIRST_PRUNING) {
            self.prune(context, me);
            self.next_pruning = (2 * self.groups.len()).min(MOST_GROUPS);
        }
        if self.groups.len() < MOST_GROUPS {
            let Access { interval, block, kind, .. } = *me;
            self.groups.push(Group { location, interval, block, warp, lanes: lane, kind });
        }
    }

    /// Forgets what a later access of the same kind stands for: of the same thread, or the one of the running thread, which is about to be
    /// added.
    fn prune(&mut self, context: &Context<'_>, me: &Access) {
        let mut seen: HashMap<(u64, u32, Reach), u32> = HashMap::new();
        for group in self.groups.iter_mut().rev() {
            let later = seen.entry((group.block, group.warp, reaches(group.kind))).or_default();
            let lanes = group.lanes & !*later;
            *later |= group.lanes;
            group.lanes = lanes;
        }
        self.groups.retain(|group| {
            let is_open = |other: Access| reaches(other.kind) != reaches(me.kind) || is_unordered(context, &other, me);
            group.accesses().any(is_open)
        });
    }
}

/// With which atomic operations of other blocks an access does not conflict: up to a scope, of a size. None, if it is not atomic.
type Reach = Option<(Scope, u8)>;

/// That of an access.
fn reaches(kind: AccessKind) -> Reach {
    match kind {
        AccessKind::Atomic { scope, bytes } => Some((reach(scope), bytes)),
        _ => None,
    }
}
