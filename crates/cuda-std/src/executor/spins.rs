//! Loops that wait for a value by plain reads.
//!
//! A thread keeps its turn until it waits for others. So a loop that reads a flag until another thread has set it would never end: after
//! many reads in a row of one place, or of two, and of nothing else, a thread lets the others have their turn, as after an atomic
//! operation that changes nothing. If one of them sets the flag then, that is a race, and is reported as one. If none does, the loop is
//! reported, once it is clear that it does not end by itself:
//!
//! ```text
//!  thread      ●●●●●●●●●… ●●●●●●●●●… ●●●●●●●●●…            ● a read of the same place
//!                        ▲          ▲          ▲
//!                        the same stack and registers, and nobody has written anything: it does the same again, forever
//! ```
//!
//! A loop that counts its tries may give up, and is given far more time.

use core::cell::Cell;
use core::panic::Location;
use core::ptr;
use std::thread_local;

use super::context::{Context, State, current};
use super::costs::CostKind;
use super::fault::AccessKind;
use super::identity::{DYNAMIC, SharedIdentity};
use super::steps::Access;
use super::turns;
use crate::atomic::Place;

/// After how many reads without a write or a wait a thread is looked at.
const READS: u32 = 4096;

/// How many reads are looked at then.
const WINDOW: u32 = 64;

/// How many states of a thread are remembered. A loop that reads two places may be met at either of them.
const REMEMBERED: usize = 8;

/// How far below a frame the registers are that a thread saves when it stops, at most, in bytes.
const BELOW: usize = 512;

/// What is known of the reads of the thread that runs.
struct Reads {
    /// Whether each of them is looked at, because it is counted what it costs, or recorded.
    all: Cell<bool>,
    /// How many more there may be before they are looked at as those of a thread that waits, if all of them are looked at.
    before: Cell<u32>,
    /// How many more there may be before they are looked at.
    left: Cell<u32>,
    /// How many have been looked at.
    seen: Cell<u32>,
    /// Of which places these were.
    places: Cell<[(usize, usize); 2]>,
}

thread_local! {
    static READS_OF_THREAD: Reads =
        const { Reads { all: Cell::new(false), before: Cell::new(READS), left: Cell::new(READS), seen: Cell::new(0), places: Cell::new([(0, 0); 2]) } };
}

/// What a thread waits for that has let others have their turn.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    pub(super) place: Place,
    pub(super) access: AccessKind,
    /// An address in the frame in which it has stopped, if it waits by plain reads.
    frame: Option<usize>,
}

impl Awaited {
    /// What is waited for by an atomic operation.
    pub(super) fn by_atomics(place: Place, access: AccessKind) -> Self {
        Self { place, access, frame: None }
    }
}

/// What a thread was like when it let others have their turn: its stack and registers, as a hash, and how often memory had been changed.
pub(super) type States = [(u64, u64); REMEMBERED];

/// Begins to count the reads of the thread that runs: it has had to wait, or has written something.
#[inline(always)]
pub(super) fn begin() {
    READS_OF_THREAD.with(|reads| {
        reads.left.set(if reads.all.get() { 0 } else { READS });
        reads.before.set(READS);
        reads.seen.set(0);
    });
}

/// Has all reads on this OS thread be looked at, or only those of threads that seem to wait.
pub(super) fn look_at_all(all: bool) {
    READS_OF_THREAD.with(|reads| reads.all.set(all));
    begin();
}

/// Whether all are.
#[inline(always)]
pub(super) fn looks_at_all() -> bool {
    READS_OF_THREAD.with(|reads| reads.all.get())
}

/// Counts a plain read of the thread that runs, and lets others have their turn if it seems to be waiting for a value.
#[inline(always)]
pub(super) fn count_read(place: impl FnOnce() -> Place, bytes: usize, location: &'static Location<'static>) {
    let left = READS_OF_THREAD.with(|reads| {
        let left = reads.left.get();
        reads.left.set(left.saturating_sub(1));
        left
    });
    if left == 0 {
        look_at(place(), bytes, location);
    }
}

#[cold]
#[inline(never)]
fn look_at(place: Place, bytes: usize, location: &'static Location<'static>) {
    if looks_at_all() {
        count_cost(place, bytes, location);
        // Whether a thread waits is seen as without.
        let before = READS_OF_THREAD.with(|reads| reads.before.replace(reads.before.get().saturating_sub(1)));
        if before > 0 {
            return;
        }
    }
    let key = match place {
        Place::Global(address, _) => (address.addr(), 0),
        Place::Shared(array, offset) => (ptr::from_ref::<SharedIdentity>(array).addr(), offset),
        Place::Remote(rank, array, offset) => {
            (ptr::from_ref::<SharedIdentity>(array).addr(), (rank as usize + 1) << 32 | offset)
        }
    };
    let seems_to_wait = READS_OF_THREAD.with(|reads| {
        let mut places = if reads.seen.get() == 0 { [key; 2] } else { reads.places.get() };
        if !places.contains(&key) && places[0] != places[1] {
            begin();
            return false;
        }
        if !places.contains(&key) {
            places[1] = key;
        }
        reads.places.set(places);
        reads.seen.set(reads.seen.get() + 1);
        reads.seen.get() == WINDOW
    });
    if seems_to_wait {
        wait(place, location);
    }
}

/// Counts what a read costs, and records it.
fn count_cost(place: Place, bytes: usize, location: &'static Location<'static>) {
    match place {
        Place::Global(address, _) => {
            current().note_access(Access::Load, place, bytes, location);
            current().note_cost(CostKind::GlobalLoad, (address.addr(), bytes), location);
        }
        Place::Shared(array, offset) => note_shared(CostKind::SharedLoad, array, (offset, bytes), location),
        // It has been counted.
        Place::Remote(..) => {}
    }
}

/// Counts what an access to shared memory costs, and records it, unless it is a part of one that has been counted.
pub(super) fn note_shared(
    kind: CostKind,
    array: &'static SharedIdentity,
    place: (usize, usize),
    location: &'static Location<'static>,
) {
    let context = current();
    if context.steps.as_ref().is_none_or(|steps| !steps.is_part()) {
        let access = if kind == CostKind::SharedLoad { Access::Load } else { Access::Store };
        context.note_access(access, Place::Shared(array, place.0), place.1, location);
    }
    note_cost_of_shared(context, kind, array, place, location);
}

/// Counts what an access to the shared memory of a block of the cluster costs, and records it.
pub(super) fn note_remote(
    kind: CostKind,
    (rank, array): (u32, &'static SharedIdentity),
    place: (usize, usize),
    location: &'static Location<'static>,
) {
    let context = current();
    let access = if kind == CostKind::SharedLoad { Access::Load } else { Access::Store };
    context.note_access(access, Place::Remote(rank, array, place.0), place.1, location);
    note_cost_of_shared(context, kind, array, place, location);
}

fn note_cost_of_shared(
    context: &Context<'_>,
    kind: CostKind,
    array: &SharedIdentity,
    place: (usize, usize),
    location: &'static Location<'static>,
) {
    if let Some(costs) = &context.costs {
        context.require_headroom();
        costs.note_shared(kind, context.current.get(), in_all_arrays(array, place), location);
    }
}

/// The place of an access in the shared memory of the block, as far as banks go: each array begins at the first bank.
fn in_all_arrays(array: &SharedIdentity, (offset, bytes): (usize, usize)) -> (usize, usize) {
    (array.assigned_number() << 32 | offset, bytes)
}

/// Counts what an access to shared memory costs that is made in so many parts, which follow.
#[inline(always)]
pub(crate) fn note_vector(
    kind: AccessKind,
    byte: usize,
    bytes: usize,
    parts: usize,
    location: &'static Location<'static>,
) {
    if looks_at_all() {
        enter_vector(kind, byte, bytes, parts, location);
    }
}

#[cold]
#[inline(never)]
fn enter_vector(kind: AccessKind, byte: usize, bytes: usize, parts: usize, location: &'static Location<'static>) {
    let context = current();
    if let Some(steps) = &context.steps {
        let access = if kind == AccessKind::Read { Access::Load } else { Access::Store };
        context.note_access(access, Place::Shared(&DYNAMIC, byte), bytes, location);
        steps.set_parts(parts);
    }
    let kind = if kind == AccessKind::Read { CostKind::SharedLoad } else { CostKind::SharedStore };
    if let Some(costs) = &context.costs {
        context.require_headroom();
        costs.note_whole(kind, context.current.get(), in_all_arrays(&DYNAMIC, (byte, bytes)), parts, location);
    }
}

fn wait(place: Place, location: &'static Location<'static>) {
    let context = current();
    context.require_headroom();
    let here = 0u8;
    let frame = Some(ptr::from_ref(&here).addr());
    context.details().awaited.set(Some(Awaited { place, access: AccessKind::Read, frame }));
    context.suspend(State::Yielded, location);
    begin();
}

/// How much it counts that a thread has let others have their turn, if nothing changes meanwhile.
pub(super) fn weight(context: &Context<'_>, position: usize) -> u64 {
    let details = &context.details[position];
    let Some(frame) = details.awaited.get().and_then(|awaited| awaited.frame) else { return turns::TRY };
    let Some(stack) = context.memory.stacks.fingerprint(position, frame - BELOW) else { return turns::TRY };
    let state = (stack, context.version());
    let mut states = details.states.get();
    if states.contains(&state) {
        return turns::REPETITION;
    }
    states.rotate_right(1);
    states[0] = state;
    details.states.set(states);
    turns::LONG_LOOP
}
