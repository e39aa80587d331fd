//! The CPU model of `cp.async`, a thread's asynchronous copies from global to shared memory.
//!
//! ```text
//! thread       copy ─ copy ─ commit ─ copy ─ commit ─ wait_group::<1> ─────────────── wait_group::<0>
//! its copies   └── group 0 ──┘        └─ 1 ──┘        group 0 takes place here        group 1 here
//! ```
//!
//! On a GPU a copy takes place some time between its issue and the wait that covers it. Here it takes place *at* that wait,
//! which is the latest: an earlier read of the target is a read of unwritten memory. At its issue a copy counts as a write
//! that has not happened yet: it conflicts with accesses of other threads that no barrier separates from it, what was there
//! is replaced by NaNs, and the words become unwritten. When it takes place it is a write by the thread that waits, so that
//! other threads need a barrier after the wait before they read. If the words have been written until then, by a store or another
//! copy, that is a fault: on a GPU either could come last.

use core::ops::Range;
use core::panic::Location;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::vec::Vec;

use super::context::{Context, current};
use super::costs::CostKind;
use super::fault::{AccessKind, FaultKind};
use super::hooks::{dynamic_words, note_pending_write, note_write, require_no_write_since, words_to_access};
use super::identity::DYNAMIC;
use super::shared_memory::{POISON, WORD, bytes_of};
use super::steps::{Memory, StepKind};

/// The copies of one thread that have not taken place.
#[derive(Default)]
pub(super) struct Copies {
    pending: Vec<Copy>,
    /// The number of groups that have been committed: the number of the group that the next copy belongs to.
    committed: u64,
}

struct Copy {
    source: *const u8,
    /// How many bytes are read from the source. The others of the target become zero.
    source_bytes: usize,
    /// The target, in words of the dynamic shared memory.
    target: Range<usize>,
    group: u64,
    location: &'static Location<'static>,
}

/// Issues a copy of `source_bytes` bytes, followed by zeros up to `bytes` bytes, to element `index` of a slice of shared
/// memory with `len` elements of `element_bytes` bytes from `byte_offset` on.
///
/// The bytes at `source` are in bounds of a view of the launch, and begin at a multiple of 4; the callers have checked it.
#[track_caller]
pub(crate) fn copy_to_shared(
    source: *const u8,
    source_bytes: usize,
    (byte_offset, len, element_bytes): (usize, usize, usize),
    index: usize,
    bytes: usize,
) {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    let target = dynamic_words((byte_offset, len, element_bytes), index, bytes, location);
    let data = words_to_access(&DYNAMIC, target.clone(), location, note_pending_write).cast::<u32>();
    for word in target.clone() {
        // SAFETY: inside the dynamic shared memory: `dynamic_words` has checked it. No other OS thread uses the data.
        unsafe { *data.add(word) = POISON };
    }
    context.note_global(source.addr(), source_bytes, AccessKind::Read, location);
    context.note_cost(CostKind::AsyncCopy, (source.addr(), source_bytes), location);
    let mut copies = context.details().copies.take();
    let group = copies.committed;
    context.note_step(StepKind::AsyncCopy, location, |note, steps| {
        let bytes = core::iter::once(bytes_of(&target));
        note.at(steps, Memory::Shared(&DYNAMIC), bytes).phase(group)
    });
    copies.pending.push(Copy { source, source_bytes, target, group, location });
    context.details().copies.set(copies);
}

/// Makes a group of the copies that this thread has issued since the last one. It may be empty.
#[track_caller]
pub(crate) fn commit_copies() {
    if current().leaves_out("commit_group", Location::caller()) {
        return;
    }
    let copies = &current().details().copies;
    let Copies { pending, committed } = copies.take();
    current().note_step(StepKind::AsyncCopyCommit, Location::caller(), |note, _| note.phase(committed));
    copies.set(Copies { pending, committed: committed + 1 });
}

/// Carries out the copies of all groups of this thread but the `latest` most recent ones.
#[track_caller]
pub(crate) fn wait_for_copies(latest: u64) {
    let context = current();
    let Some(latest) = context.change_pending("wait_group", Location::caller(), latest) else { return };
    context.require_headroom();
    let mut copies = context.details().copies.take();
    let end = copies.committed.saturating_sub(latest);
    // Copies stand in the order of their groups.
    let covered = copies.pending.iter().take_while(|copy| copy.group < end).count();
    context.note_step(StepKind::AsyncCopyWait, Location::caller(), |note, steps| {
        let there = copies.pending[..covered].iter().map(|copy| bytes_of(&copy.target));
        note.at(steps, Memory::Shared(&DYNAMIC), there).phase(end).until_under_way(latest)
    });
    for Copy { source, source_bytes, target, location, .. } in copies.pending.drain(..covered) {
        require_no_write_since(context, &target, location);
        let data = words_to_access(&DYNAMIC, target.clone(), location, note_write).cast::<u32>();
        for (i, word) in target.enumerate() {
            let left = source_bytes.saturating_sub(i * WORD);
            // SAFETY: inside the dynamic shared memory, as for the issue. No other OS thread uses the data.
            unsafe { *data.add(word) = load_word(source.wrapping_add(i * WORD), left) };
        }
    }
    context.details().copies.set(copies);
}

/// The copy that is to write a word of the dynamic shared memory: its thread and its line.
pub(super) fn pending_copy(context: &Context<'_>, word: usize) -> Option<(usize, &'static Location<'static>)> {
    (0..).zip(&context.details).find_map(|(position, details)| {
        let copies = details.copies.take();
        let location = copies.pending.iter().find(|copy| copy.target.contains(&word)).map(|copy| copy.location);
        details.copies.set(copies);
        Some((position, location?))
    })
}

/// The word at an address of global memory, of which only so many bytes are read, if they are less than 4; the others are zero.
fn load_word(source: *const u8, bytes: usize) -> u32 {
    if bytes >= WORD {
        // SAFETY: in bounds of a view, whose memory this processor can access, and aligned (`copy_to_shared`); all concurrent accesses
        // are atomic (`Element`).
        return unsafe { (*source.cast::<AtomicU32>()).load(Ordering::Relaxed) };
    }
    let mut word = [0; WORD];
    for (i, byte) in word[..bytes].iter_mut().enumerate() {
        // SAFETY: as above.
        *byte = unsafe { (*source.add(i).cast::<AtomicU8>()).load(Ordering::Relaxed) };
    }
    u32::from_le_bytes(word)
}

/// Ends the launch if the running thread, which returns from the kernel, has copies under way.
pub(super) fn require_none() {
    let context = current();
    let copies = context.details().copies.take();
    if let Some(copy) = copies.pending.first() {
        let (byte_offset, bytes) = (copy.target.start * WORD, copy.target.len() * WORD);
        context.fail(copy.location, FaultKind::CopyNotAwaited { byte_offset, bytes });
    }
    // What is kept is the allocation; the next block counts its groups anew.
    context.details().copies.set(Copies { pending: copies.pending, committed: 0 });
}
