//! The CPU side of accesses to shared memory: each is looked at by what the race detector knows of its words, and then made.

mod notes;

use core::fmt::Debug;
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use std::format;

use super::super::Checks;
use super::super::barriers::require_no_barrier;
use super::super::context::{Context, current};
use super::super::costs::CostKind;
use super::super::fault::{AccessKind, FaultKind, SharedArrayName};
use super::super::identity::{DYNAMIC, SharedIdentity};
use super::super::products::require_awaited;
use super::super::shared_memory::{WORD, WordBytes, is_read_enough, with_placement};
use super::super::spins;
use super::super::values::{trace_in, trace_out};
use crate::atomic::Place;
use crate::shared::SharedArray;
use crate::{Element, TileSwizzle};

use notes::{enter_read, note_read_of, note_write_of};
pub(in super::super) use notes::{
    note_atomic, note_atomic_store, note_barrier_use, note_pending_load, note_pending_write, note_read, note_write,
    require_no_write_since,
};

/// Element `index` of a static array, as the running block has it.
#[inline(always)]
#[track_caller]
pub(crate) fn shared_read<A: SharedArray>(array: &'static SharedIdentity, index: A::Index) -> A::Element {
    let offset = static_offset::<A>(array, index, Location::caller());
    // SAFETY: the element is inside the array, and aligned. No other OS thread uses the data.
    let value = unsafe { *data_to_read::<A::Element>(array, offset, Location::caller()).add(offset).cast() };
    trace_in(&value, Location::caller());
    value
}

/// Writes element `index` of a static array, as the running block has it.
#[inline(always)]
#[track_caller]
pub(crate) fn shared_write<A: SharedArray>(array: &'static SharedIdentity, index: A::Index, value: A::Element) {
    require_awaited(&value);
    trace_out(&value, "a store to shared memory", Location::caller());
    let offset = static_offset::<A>(array, index, Location::caller());
    // SAFETY: as for `shared_read`.
    unsafe { *data_to_write::<A::Element>(array, offset, Location::caller()).add(offset).cast() = value };
}

/// Ends the launch unless `len` elements of a type at `byte_offset` are aligned there, and fit into the dynamic shared memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_bounds<T>(byte_offset: usize, len: usize) {
    let (context, element_bytes) = (current(), size_of::<T>());
    let available = context.dynamic_bytes;
    let end = len.checked_mul(element_bytes).and_then(|bytes| bytes.checked_add(byte_offset));
    if !byte_offset.is_multiple_of(align_of::<T>()) || end.is_none_or(|end| end > available) {
        let kind = FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes, available };
        context.fail(Location::caller(), kind);
    }
}

/// The dynamic shared memory of the running block.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_bytes() -> usize {
    current().dynamic_bytes
}

/// Element `index` of a slice of the dynamic shared memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_read<T: Element>(byte_offset: usize, len: usize, index: usize) -> T {
    let offset = dynamic_offset::<T>(byte_offset, len, index, Location::caller());
    let data = data_to_read::<T>(&DYNAMIC, offset, Location::caller());
    // SAFETY: as for `shared_read`.
    let value = unsafe { *data.add(offset).cast() };
    trace_in(&value, Location::caller());
    value
}

/// Writes element `index` of a slice of the dynamic shared memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_write<T: Element>(byte_offset: usize, len: usize, index: usize, value: T) {
    require_awaited(&value);
    trace_out(&value, "a store to shared memory", Location::caller());
    let offset = dynamic_offset::<T>(byte_offset, len, index, Location::caller());
    let data = data_to_write::<T>(&DYNAMIC, offset, Location::caller());
    // SAFETY: as for `shared_read`.
    unsafe { *data.add(offset).cast() = value };
}

/// How many bytes into a static array the element at `index` is; ends the launch if there is none.
#[inline(always)]
pub(in super::super) fn static_offset<A: SharedArray>(
    array: &'static SharedIdentity,
    index: A::Index,
    location: &'static Location<'static>,
) -> usize {
    if !A::contains(index) {
        shared_out_of_bounds(array, index, location);
    }
    A::offset(index) * size_of::<A::Element>()
}

/// How many bytes into the dynamic shared memory element `index` of a slice is; ends the launch if there is none.
#[inline(always)]
fn dynamic_offset<T: Element>(
    byte_offset: usize,
    len: usize,
    index: usize,
    location: &'static Location<'static>,
) -> usize {
    if index >= len {
        slice_out_of_bounds((byte_offset, len, size_of::<T>()), index, location);
    }
    require_dynamic((byte_offset, len, size_of::<T>()), location);
    byte_offset.wrapping_add(index.wrapping_mul(size_of::<T>()))
}

/// Ends the launch unless a slice, which is given as for [`dynamic_words`], is inside: it may have been made in another launch, with more
/// memory. (There, its end was a number.)
#[inline(always)]
fn require_dynamic((byte_offset, len, element_bytes): (usize, usize, usize), location: &'static Location<'static>) {
    let available = current().dynamic_bytes;
    if byte_offset.wrapping_add(len.wrapping_mul(element_bytes)) > available {
        slice_of_more_memory((byte_offset, len, element_bytes), available, location);
    }
}

#[cold]
#[inline(never)]
fn slice_of_more_memory(
    (byte_offset, len, element_bytes): (usize, usize, usize),
    available: usize,
    location: &'static Location<'static>,
) -> ! {
    current().fail(location, FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes, available })
}

/// The index is taken by value: for a reference, the fast path would have to store it.
#[cold]
#[inline(never)]
pub(in super::super) fn shared_out_of_bounds<I: Debug>(
    array: &SharedIdentity,
    index: I,
    location: &'static Location<'static>,
) -> ! {
    current().require_headroom();
    let kind = FaultKind::SharedOutOfBounds { array: array.name(), index: format!("{index:?}") };
    current().fail(location, kind)
}

/// The same for a slice of the dynamic shared memory, which is given as for [`dynamic_words`].
#[cold]
#[inline(never)]
pub(in super::super) fn slice_out_of_bounds<I: Debug>(
    slice: (usize, usize, usize),
    index: I,
    location: &'static Location<'static>,
) -> ! {
    current().require_headroom();
    let kind = FaultKind::SharedOutOfBounds { array: slice_name(slice), index: format!("{index:?}") };
    current().fail(location, kind)
}

/// What a slice of the dynamic shared memory is called, which is given as for [`dynamic_words`].
fn slice_name((byte_offset, len, element_bytes): (usize, usize, usize)) -> SharedArrayName {
    SharedArrayName::Slice { byte_offset, len, element_bytes }
}

/// The data of an array, after the read of the element at `offset`, which is inside, has been checked.
#[inline(always)]
pub(in super::super) fn data_to_read<T: Element>(
    array: &'static SharedIdentity,
    offset: usize,
    location: &'static Location<'static>,
) -> *mut u8 {
    if !is_of_words::<T>() {
        return bytes_to_access(array, offset..offset + size_of::<T>(), location, AccessKind::Read);
    }
    let data = with_placement(array, |placement| placement.unchecked.get());
    if data.is_null() { data_to_read_of::<T>(array, offset, location) } else { data }
}

/// The same where accesses are checked, or the block has not used the array before. Not inlined: kernels have many accesses, and would take longer
/// to compile.
#[inline(never)]
fn data_to_read_of<T: Element>(
    array: &'static SharedIdentity,
    offset: usize,
    location: &'static Location<'static>,
) -> *mut u8 {
    let (words, bytes) = (words::<T>(offset), size_of::<T>());
    with_placement(array, |placement| {
        let keys = placement.keys.get();
        if keys.is_null() {
            return data_at_first_access(array, words, location, note_read, CostKind::SharedLoad);
        }
        for word in words {
            // SAFETY: there is a key for each word of the array, and the element is inside.
            if !is_read_enough(unsafe { *keys.add(word) }) {
                note_read(array, word, location);
            }
        }
        spins::count_read(|| Place::Shared(array, offset), bytes, location);
        placement.data.get()
    })
}

/// The data of an array, after the write of the element at `offset`, which is inside, has been checked.
#[inline(always)]
pub(in super::super) fn data_to_write<T: Element>(
    array: &'static SharedIdentity,
    offset: usize,
    location: &'static Location<'static>,
) -> *mut u8 {
    if !is_of_words::<T>() {
        return bytes_to_access(array, offset..offset + size_of::<T>(), location, AccessKind::Write);
    }
    let data = with_placement(array, |placement| placement.unchecked.get());
    if data.is_null() { data_to_write_of::<T>(array, offset, location) } else { data }
}

/// As [`data_to_read_of`].
#[inline(never)]
fn data_to_write_of<T: Element>(
    array: &'static SharedIdentity,
    offset: usize,
    location: &'static Location<'static>,
) -> *mut u8 {
    let (words, bytes) = (words::<T>(offset), size_of::<T>());
    with_placement(array, |placement| {
        if placement.keys.get().is_null() {
            return data_at_first_access(array, words, location, note_write, CostKind::SharedStore);
        }
        if spins::looks_at_all() {
            spins::note_shared(CostKind::SharedStore, array, (offset, bytes), location);
        }
        words.for_each(|word| note_write(array, word, location));
        placement.data.get()
    })
}

/// The data of an array, after a read or a write of `bytes`, which are inside and may be parts of words, has been checked.
#[inline]
fn bytes_to_access(
    array: &'static SharedIdentity,
    bytes: Range<usize>,
    location: &'static Location<'static>,
    kind: AccessKind,
) -> *mut u8 {
    if with_placement(array, |placement| placement.data.get().is_null()) {
        place(array, location);
    }
    // Looked up again: the array may have got its number just now.
    let (data, keys) = with_placement(array, |placement| (placement.data.get(), placement.keys.get()));
    let (first, len) = (bytes.start, bytes.len());
    if !keys.is_null() {
        for (word, bytes) in WordBytes::of_words(bytes) {
            if kind != AccessKind::Read {
                note_write_of(array, word, bytes, location, false);
                continue;
            }
            // SAFETY: there is a key for each word of the array, and the bytes are inside.
            if !is_read_enough(unsafe { *keys.add(word) }) {
                note_read_of(array, word, bytes, location);
            }
        }
        if kind == AccessKind::Read {
            spins::count_read(|| Place::Shared(array, first), len, location);
        } else if spins::looks_at_all() {
            spins::note_shared(CostKind::SharedStore, array, (first, len), location);
        }
    }
    data
}

/// The words of the `bytes` bytes from element `index` of a slice of the dynamic shared memory, which begins at `byte_offset`
/// and has `len` elements of `element_bytes` bytes. Ends the launch unless they are inside the slice and aligned to their
/// size together.
#[inline(always)]
pub(in super::super) fn dynamic_words(
    (byte_offset, len, element_bytes): (usize, usize, usize),
    index: usize,
    bytes: usize,
    location: &'static Location<'static>,
) -> Range<usize> {
    if index >= len || bytes / element_bytes > len - index {
        slice_out_of_bounds((byte_offset, len, element_bytes), index, location);
    }
    require_dynamic((byte_offset, len, element_bytes), location);
    let first = byte_offset.wrapping_add(index.wrapping_mul(element_bytes));
    if !first.is_multiple_of(bytes) {
        misaligned_in_shared((byte_offset, len, element_bytes), index, bytes, location);
    }
    first / WORD..(first + bytes) / WORD
}

/// The data of an array, after `note` has entered an access to `words`, which are inside, into the shadow if there is one.
pub(in super::super) fn words_to_access(
    array: &'static SharedIdentity,
    words: Range<usize>,
    location: &'static Location<'static>,
    note: fn(&'static SharedIdentity, usize, &'static Location<'static>),
) -> *mut u8 {
    with_placement(array, |placement| {
        let (data, keys) = (placement.unchecked.get(), placement.keys.get());
        if !data.is_null() {
            return data;
        }
        if keys.is_null() {
            return place_and_note(array, words, location, note);
        }
        words.for_each(|word| note(array, word, location));
        placement.data.get()
    })
}

/// [`data_to_read`] or [`data_to_write`], by what `note` enters into the shadow, for the block's first access to the array.
#[cold]
#[inline(never)]
fn data_at_first_access(
    array: &'static SharedIdentity,
    words: Range<usize>,
    location: &'static Location<'static>,
    note: fn(&'static SharedIdentity, usize, &'static Location<'static>),
    kind: CostKind,
) -> *mut u8 {
    if spins::looks_at_all() {
        spins::note_shared(kind, array, (words.start * WORD, words.len() * WORD), location);
    }
    place_and_note(array, words, location, note)
}

/// The data of an array that the block has not used before, after `note` has entered an access to `words` into the shadow if there is one.
#[cold]
#[inline(never)]
fn place_and_note(
    array: &'static SharedIdentity,
    words: Range<usize>,
    location: &'static Location<'static>,
    note: fn(&'static SharedIdentity, usize, &'static Location<'static>),
) -> *mut u8 {
    place(array, location);
    if current().checks == Checks::Full {
        words.for_each(|word| note(array, word, location));
    }
    with_placement(array, |placement| placement.data.get())
}

/// Whether elements of a type are words, or several, wherever they are.
const fn is_of_words<T>() -> bool {
    size_of::<T>().is_multiple_of(WORD) && align_of::<T>().is_multiple_of(WORD)
}

/// The words of an element.
#[inline(always)]
fn words<T: Element>(offset: usize) -> Range<usize> {
    offset / WORD..(offset + size_of::<T>()) / WORD
}

/// Gives the running block an array that it has not used before.
fn place(array: &'static SharedIdentity, location: &'static Location<'static>) {
    let context = current();
    context.require_headroom();
    let (shared, dynamic_bytes) = (&context.memory.shared, context.dynamic_bytes);
    let static_bytes = shared.static_bytes_with(array);
    let declared_bytes = context.declared_static_bytes;
    if static_bytes > declared_bytes {
        context.fail(location, FaultKind::SharedUndeclared { array: array.name(), static_bytes, declared_bytes });
    }
    let bytes = if ptr::eq(array, &DYNAMIC) { dynamic_bytes } else { array.static_bytes() };
    shared.place(array, bytes, context.checks == Checks::Full);
}

/// The dynamic shared memory, after a read by TMA, or by tensor cores, of words that are inside has been entered into the shadow, if there is one,
/// for the thread that asks for it.
pub(in super::super) fn words_to_read_by_engine(
    context: &Context<'_>,
    words: Range<usize>,
    location: &'static Location<'static>,
) -> *mut u8 {
    if context.checks == Checks::Full {
        require_no_barrier(context, context, words.clone(), AccessKind::Read, location);
    }
    words_to_access(&DYNAMIC, words, location, |array, word, location| {
        enter_read(current(), array, word, WordBytes::ALL, location, true);
    })
}

/// The byte in the dynamic shared memory where the `bytes` bytes from element `index` of a slice begin; ends the launch unless
/// they are inside the slice and aligned to their size together. The slice is given as for [`dynamic_words`].
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_place(slice: (usize, usize, usize), index: usize, bytes: usize) -> usize {
    dynamic_words(slice, index, bytes, Location::caller()).start * WORD
}

/// The byte in the dynamic shared memory where a tile for tensor cores begins, at element `index` of a slice, which is given as for
/// [`dynamic_words`].
#[track_caller]
pub(crate) fn tile_place((byte_offset, len, element_bytes): (usize, usize, usize), index: usize) -> usize {
    let place = byte_offset + index * element_bytes;
    if index >= len {
        slice_out_of_bounds((byte_offset, len, element_bytes), index, Location::caller());
    }
    require_aligned((byte_offset, len, element_bytes), index, TileSwizzle::Bytes128.alignment(), Location::caller());
    place
}

/// Ends the launch unless element `index` of a slice, which is given as for [`dynamic_words`], is at a multiple of `bytes`.
#[inline(always)]
pub(crate) fn require_aligned(
    slice: (usize, usize, usize),
    index: usize,
    bytes: usize,
    location: &'static Location<'static>,
) {
    let (byte_offset, _, element_bytes) = slice;
    // An index that is far outside may wrap: the access itself reports it.
    if !byte_offset.wrapping_add(index.wrapping_mul(element_bytes)).is_multiple_of(bytes) {
        misaligned_in_shared(slice, index, bytes, location);
    }
}

#[cold]
#[inline(never)]
fn misaligned_in_shared(
    slice: (usize, usize, usize),
    index: usize,
    bytes: usize,
    location: &'static Location<'static>,
) -> ! {
    current().fail(location, FaultKind::SharedMisaligned { array: slice_name(slice), index, bytes })
}
