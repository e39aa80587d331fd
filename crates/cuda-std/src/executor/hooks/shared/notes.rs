//! Accesses as the race detector's shadow of shared memory gets to know them, and the reports of what is wrong with one.

use core::ops::Range;
use core::panic::Location;
use core::ptr;

use super::super::super::backtraces::Spot;
use super::super::super::barriers::require_no_barrier;
use super::super::super::context::{Context, current};
use super::super::super::copies;
use super::super::super::fault::{AccessKind, FaultKind, OtherAccess};
use super::super::super::identity::{DYNAMIC, SharedIdentity};
use super::super::super::remote;
use super::super::super::shared_memory::{Conflict, Content, WORD, WordBytes};
use super::super::super::tma::require_idle;
use crate::Dim3;

/// Enters a read into the shadow. The word is inside the array, which has keys.
#[inline(never)]
pub(in super::super::super) fn note_read(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    note_read_of(array, word, WordBytes::ALL, location);
}

/// Enters a read of these bytes of a word into the shadow. The word is inside the array, which has keys.
#[inline]
pub(super) fn note_read_of(
    array: &'static SharedIdentity,
    word: usize,
    bytes: WordBytes,
    location: &'static Location<'static>,
) {
    let context = current();
    if ptr::eq(array, &DYNAMIC) {
        require_no_barrier(context, context, word..word + 1, AccessKind::Read, location);
    }
    enter_read(context, array, word, bytes, location, false);
}

/// Enters a use of a barrier, which its word is of, into the shadow, where it is a read. The word is inside the dynamic shared memory, which has
/// keys.
pub(in super::super::super) fn note_barrier_use(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    enter_read(current(), array, word, WordBytes::ALL, location, false);
}

#[inline(always)]
pub(super) fn enter_read(
    context: &Context<'_>,
    array: &'static SharedIdentity,
    word: usize,
    bytes: WordBytes,
    location: &'static Location<'static>,
    by_engine: bool,
) {
    // SAFETY: the callers have checked the word, and that the running block uses the array, with keys.
    match unsafe { context.memory.shared.note_read(array, word, bytes, context.current.get(), location) } {
        Ok(Content::Written) => {}
        Ok(Content::Unwritten) => unwritten(array, bytes.in_array(word), location),
        Err(conflict) => race(array, word, location, (AccessKind::Read, by_engine), conflict),
    }
    remote::note_own(context, array, word, bytes, AccessKind::Read, location);
}

/// Enters a write into the shadow. The word is inside the array, which has keys.
#[inline(never)]
pub(in super::super::super) fn note_write(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    note_write_of(array, word, WordBytes::ALL, location, false);
}

/// Enters a write of these bytes of a word into the shadow. The word is inside the array, which has keys.
#[inline]
pub(super) fn note_write_of(
    array: &'static SharedIdentity,
    word: usize,
    bytes: WordBytes,
    location: &'static Location<'static>,
    by_engine: bool,
) {
    let context = current();
    context.note_change();
    if ptr::eq(array, &DYNAMIC) {
        require_no_barrier(context, context, word..word + 1, AccessKind::Write, location);
        require_idle(context, word, location);
    }
    // SAFETY: as for `enter_read`.
    let result = unsafe { context.memory.shared.note_write(array, word, bytes, context.current.get(), location) };
    if let Err(conflict) = result {
        race(array, word, location, (AccessKind::Write, by_engine), conflict);
    }
    remote::note_own(context, array, word, bytes, AccessKind::Write, location);
}

/// Enters an atomic operation into the shadow. The word is inside the array, which has keys.
#[inline(never)]
pub(in super::super::super) fn note_atomic(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    if enter_atomic(array, word, location) == Content::Unwritten {
        unwritten(array, word * WORD, location);
    }
}

/// Enters an atomic store into the shadow: of what nobody had written, it is the first write.
pub(in super::super::super) fn note_atomic_store(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    enter_atomic(array, word, location);
}

/// Returns whether the word had been written.
fn enter_atomic(array: &'static SharedIdentity, word: usize, location: &'static Location<'static>) -> Content {
    let context = current();
    if ptr::eq(array, &DYNAMIC) {
        let access = context.atomic_access.get();
        require_no_barrier(context, context, word..word + 1, access, location);
        require_idle(context, word, location);
    }
    // SAFETY: as for `enter_read`.
    let content = match unsafe { context.memory.shared.note_atomic(array, word, context.current.get(), location) } {
        Ok(content) => content,
        Err(conflict) => race(array, word, location, (context.atomic_access.get(), false), conflict),
    };
    let kind = context.atomic_access.get();
    remote::note_own(context, array, word, WordBytes::ALL, kind, location);
    content
}

/// Enters a write that has not happened yet into the shadow: it conflicts as a write does, and leaves the word unwritten.
pub(in super::super::super) fn note_pending_write(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    note_pending_write_by(array, word, location, false);
}

/// The same for a write by TMA.
pub(in super::super::super) fn note_pending_load(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
) {
    note_pending_write_by(array, word, location, true);
}

fn note_pending_write_by(
    array: &'static SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
    by_engine: bool,
) {
    note_write_of(array, word, WordBytes::ALL, location, by_engine);
    // SAFETY: as for `enter_read`.
    unsafe { current().memory.shared.forget_write(array, word) };
}

/// Keeps in mind that nobody has written what this thread reads at a byte. It is reported when the epoch ends, unless another thread
/// writes it until then: that is a race, which the order of this executor made look like this.
#[cold]
#[inline(never)]
fn unwritten(array: &SharedIdentity, byte: usize, location: &'static Location<'static>) {
    let context = current();
    context.require_headroom();
    let earlier = context.unwritten_read.take();
    context.unwritten_read.set(earlier.or_else(|| {
        let pending = if ptr::eq(array, &DYNAMIC) { pending_write(context, byte / WORD) } else { None };
        let kind = FaultKind::UnwrittenShared { array: array.name(), element: array.index_of_byte(byte), pending };
        Some(context.report(Some(location.into()), kind))
    }));
}

/// The load by TMA, or the asynchronous copy, that is to write a word of the dynamic shared memory.
fn pending_write(context: &Context<'_>, word: usize) -> Option<OtherAccess> {
    let load = context.engine.pending_load(word);
    let (issuer, location) = load.or_else(|| copies::pending_copy(context, word))?;
    let thread = context.threads[issuer].index;
    Some(context.other_access(thread, location, AccessKind::Write, Spot::dynamic_word(word)))
}

/// The thread that accesses shared memory, by its number and line: TMA writes for the one that has asked it to.
fn asking(context: &Context<'_>, number: usize, location: &'static Location<'static>) -> Dim3 {
    let issuer = || context.engine.issuer(location).map_or(0, |(issuer, _)| issuer);
    context.threads.get(number).unwrap_or_else(|| &context.threads[issuer()]).index
}

/// Ends the launch if words of the dynamic shared memory have been written since a copy to them began that takes place now.
pub(in super::super::super) fn require_no_write_since(
    context: &Context<'_>,
    target: &Range<usize>,
    location: &'static Location<'static>,
) {
    let written = target.clone().find_map(|word| context.memory.shared.last_write(&DYNAMIC, word));
    if let Some((number, line)) = written {
        let thread = asking(context, number, line);
        let spot = Spot::shared(&DYNAMIC, target.start * WORD..target.end * WORD);
        let other = context.other_access(thread, line, AccessKind::Write, spot);
        let (byte_offset, bytes) = (target.start * WORD, target.len() * WORD);
        context.fail(location, FaultKind::WriteUnderWay { byte_offset, bytes, other })
    }
}

/// Ends the launch because of a race. `by_engine`: the access is not by the running thread itself, but by TMA or tensor cores.
#[cold]
#[inline(never)]
fn race(
    array: &SharedIdentity,
    word: usize,
    location: &'static Location<'static>,
    (access, by_engine): (AccessKind, bool),
    conflict: Conflict,
) -> ! {
    let context = current();
    context.require_headroom();
    let thread = asking(context, conflict.thread, conflict.location);
    let byte = word * WORD + conflict.byte;
    let other = context.other_access(thread, conflict.location, conflict.access, Spot::shared(array, byte..byte + 1));
    let words = ptr::eq(array, &DYNAMIC).then_some(word..word + 1);
    let missing = context.missing(conflict.thread, conflict.interval, words);
    let (array, element) = (array.name(), array.index_of_byte(byte));
    context.fail(location, FaultKind::Race { array, element, access, by_engine, other, missing })
}
