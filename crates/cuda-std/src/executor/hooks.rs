//! The CPU side of what kernels call. The functions that stand in an inner loop do nothing but check an index and load or
//! store; everything else is out of line.

use core::fmt::Debug;
use core::panic::Location;
use std::format;

use super::context::{LANES, Request, State, current, try_current};
use super::fault::{AccessKind, FaultKind, OtherAccess, SharedArrayName, WarpOperation};
use super::shared_memory::{
    Conflict, Content, Declaration, Placement, SharedIdentity, WORD, is_read_enough, placement, unchecked_data,
};
use super::{Checks, MAX_SHARED, MAX_STATIC_SHARED};
use crate::shared::SharedArray;
use crate::{Dim3, Element};

// Positions.

#[inline(always)]
#[track_caller]
pub(crate) fn thread_idx() -> Dim3 {
    current().thread().index
}

#[inline(always)]
#[track_caller]
pub(crate) fn block_idx() -> Dim3 {
    current().block.get()
}

#[inline(always)]
#[track_caller]
pub(crate) fn block_dim() -> Dim3 {
    current().block_dim
}

#[inline(always)]
#[track_caller]
pub(crate) fn grid_dim() -> Dim3 {
    current().grid
}

#[inline(always)]
#[track_caller]
pub(crate) fn lane() -> u32 {
    (current().current.get() % LANES) as u32
}

// Global memory.

/// Ends the launch: an access to `count` elements from `index` of a view that begins at `base` and has `len`. Outside of a
/// kernel it panics.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn out_of_bounds(base: *const u8, index: usize, count: usize, len: usize) -> ! {
    global_fault(base, |view| FaultKind::OutOfBounds { view, index, count, len })
}

/// Ends the launch: an access of `bytes` bytes at element `index` of a view that begins at `base`, at an address that is
/// not a multiple of `bytes`. Outside of a kernel it panics.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn misaligned(base: *const u8, index: usize, bytes: usize) -> ! {
    global_fault(base, |view| FaultKind::Misaligned { view, index, bytes })
}

#[track_caller]
fn global_fault(base: *const u8, kind: impl FnOnce(Option<std::string::String>) -> FaultKind) -> ! {
    match try_current() {
        Some(context) => context.fail(Location::caller(), kind(context.view_name(base.addr()))),
        None => panic!("{}", kind(None)),
    }
}

// Shared memory.

/// Element `index` of a static array, as the running block has it.
#[inline(always)]
#[track_caller]
pub(crate) fn shared_read<A: SharedArray>(identity: &'static SharedIdentity, index: A::Index) -> A::Element {
    let offset = static_offset::<A>(identity, index, Location::caller());
    let mut data = unchecked_data(identity);
    if data.is_null() {
        let placement = static_placement::<A>(identity, Location::caller());
        check_read::<A::Element>(|| Declaration::of_static::<A>(identity), placement, offset, Location::caller());
        data = placement.data;
    }
    // SAFETY: the element is inside the array and its offset is a multiple of its size. Only this OS thread uses the data.
    unsafe { *data.add(offset).cast() }
}

/// Writes element `index` of a static array, as the running block has it.
#[inline(always)]
#[track_caller]
pub(crate) fn shared_write<A: SharedArray>(identity: &'static SharedIdentity, index: A::Index, value: A::Element) {
    let offset = static_offset::<A>(identity, index, Location::caller());
    let mut data = unchecked_data(identity);
    if data.is_null() {
        let placement = static_placement::<A>(identity, Location::caller());
        check_write::<A::Element>(|| Declaration::of_static::<A>(identity), placement, offset, Location::caller());
        data = placement.data;
    }
    // SAFETY: as for `shared_read`.
    unsafe { *data.add(offset).cast() = value };
}

/// Ends the launch unless `len` elements of `element_bytes` bytes at `byte_offset` fit into the launch-sized memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_bounds(byte_offset: usize, len: usize, element_bytes: usize) {
    let context = current();
    let available = context.dynamic_bytes;
    let end = len.checked_mul(element_bytes).and_then(|bytes| bytes.checked_add(byte_offset));
    if !byte_offset.is_multiple_of(element_bytes) || end.is_none_or(|end| end > available) {
        let kind = FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes, available };
        context.fail(Location::caller(), kind);
    }
}

/// Element `index` of a slice of the launch-sized memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_read<T: Element>(byte_offset: usize, len: usize, index: usize) -> T {
    let (placement, offset) = dynamic_placement::<T>(byte_offset, len, index, Location::caller());
    check_read::<T>(dynamic_declaration, placement, offset, Location::caller());
    // SAFETY: as for `shared_read`.
    unsafe { *placement.data.add(offset).cast() }
}

/// Writes element `index` of a slice of the launch-sized memory.
#[inline(always)]
#[track_caller]
pub(crate) fn dynamic_shared_write<T: Element>(byte_offset: usize, len: usize, index: usize, value: T) {
    let (placement, offset) = dynamic_placement::<T>(byte_offset, len, index, Location::caller());
    check_write::<T>(dynamic_declaration, placement, offset, Location::caller());
    // SAFETY: as for `shared_read`.
    unsafe { *placement.data.add(offset).cast() = value };
}

/// How many bytes into a static array the element at `index` is; ends the launch if there is none.
#[inline(always)]
fn static_offset<A: SharedArray>(
    identity: &'static SharedIdentity,
    index: A::Index,
    location: &'static Location<'static>,
) -> usize {
    if !A::contains(index) {
        shared_out_of_bounds(Declaration::of_static::<A>(identity).name(), &index, location);
    }
    A::offset(index) * size_of::<A::Element>()
}

/// Where the running block has a static array.
#[inline(always)]
fn static_placement<A: SharedArray>(
    identity: &'static SharedIdentity,
    location: &'static Location<'static>,
) -> Placement {
    let placement = placement(Some(identity));
    if placement.data.is_null() {
        return place(Some(identity), Declaration::of_static::<A>(identity), location);
    }
    placement
}

/// Where the running block has the launch-sized memory, and how many bytes into it element `index` of the slice is; ends
/// the launch if there is none.
#[inline(always)]
fn dynamic_placement<T: Element>(
    byte_offset: usize,
    len: usize,
    index: usize,
    location: &'static Location<'static>,
) -> (Placement, usize) {
    if index >= len {
        shared_out_of_bounds(SharedArrayName::Dynamic, &index, location);
    }
    let available = current().dynamic_bytes;
    let element_bytes = size_of::<T>();
    // The slice may have been made in another launch, with more memory.
    if byte_offset + len * element_bytes > available {
        current().fail(location, FaultKind::DynamicSharedBounds { byte_offset, len, element_bytes, available });
    }
    let placement = placement(None);
    let placement = if placement.data.is_null() { place(None, dynamic_declaration(), location) } else { placement };
    (placement, byte_offset + index * element_bytes)
}

fn dynamic_declaration() -> Declaration {
    Declaration::of_dynamic(current().dynamic_bytes)
}

#[cold]
#[inline(never)]
fn shared_out_of_bounds(array: SharedArrayName, index: &dyn Debug, location: &'static Location<'static>) -> ! {
    current().fail(location, FaultKind::SharedOutOfBounds { array, index: format!("{index:?}") })
}

/// Gives the running block a static array, or without an identity the launch-sized memory.
#[cold]
#[inline(never)]
fn place(
    identity: Option<&'static SharedIdentity>,
    declaration: Declaration,
    location: &'static Location<'static>,
) -> Placement {
    let context = current();
    let (shared, dynamic_bytes) = (&context.memory.shared, context.dynamic_bytes);
    let static_bytes = shared.static_bytes() + if identity.is_some() { declaration.bytes } else { 0 };
    if static_bytes > MAX_STATIC_SHARED || static_bytes + dynamic_bytes > MAX_SHARED {
        context.fail(location, FaultKind::SharedLimit { array: declaration.name(), static_bytes, dynamic_bytes });
    }
    shared.place(identity, declaration, context.checks == Checks::Full)
}

/// Enters the read of an element into the shadow, if there is one.
#[inline(always)]
fn check_read<T: Element>(
    declaration: impl Fn() -> Declaration,
    placement: Placement,
    offset: usize,
    location: &'static Location<'static>,
) {
    if placement.keys.is_null() {
        return;
    }
    for word in offset / WORD..(offset + size_of::<T>()) / WORD {
        // SAFETY: there is a key for each word of the array, and the element is inside it: the callers have checked.
        if is_read_enough(unsafe { *placement.keys.add(word) }) {
            continue;
        }
        match note_read(placement, word, location) {
            Ok(Content::Written) => {}
            Ok(Content::Unwritten) => unwritten(declaration(), word, location),
            Err(conflict) => race(declaration(), word, location, AccessKind::Read, conflict),
        }
    }
}

/// Enters the write of an element into the shadow, if there is one.
#[inline(always)]
fn check_write<T: Element>(
    declaration: impl Fn() -> Declaration,
    placement: Placement,
    offset: usize,
    location: &'static Location<'static>,
) {
    if placement.keys.is_null() {
        return;
    }
    for word in offset / WORD..(offset + size_of::<T>()) / WORD {
        if let Err(conflict) = note_write(placement, word, location) {
            race(declaration(), word, location, AccessKind::Write, conflict);
        }
    }
}

/// `word` is inside the array, which has keys.
#[inline(never)]
fn note_read(placement: Placement, word: usize, location: &'static Location<'static>) -> Result<Content, Conflict> {
    let context = current();
    // SAFETY: the callers have just got the placement from the running block's, and checked it and the word.
    unsafe { context.memory.shared.note_read(placement, word, context.current.get(), location) }
}

/// `word` is inside the array, which has keys.
#[inline(never)]
fn note_write(placement: Placement, word: usize, location: &'static Location<'static>) -> Result<(), Conflict> {
    let context = current();
    // SAFETY: as for `note_read`.
    unsafe { context.memory.shared.note_write(placement, word, context.current.get(), location) }
}

/// Keeps in mind that nobody has written what this thread reads. It is reported when the epoch ends, unless another thread
/// writes it until then: that is a race, which the order of this executor made look like this.
#[cold]
#[inline(never)]
fn unwritten(declaration: Declaration, word: usize, location: &'static Location<'static>) {
    let context = current();
    let earlier = context.unwritten_read.take();
    context.unwritten_read.set(earlier.or_else(|| {
        let kind = FaultKind::UnwrittenShared { array: declaration.name(), element: declaration.index(word) };
        Some(context.report(Some(location.into()), kind))
    }));
}

#[cold]
#[inline(never)]
fn race(
    declaration: Declaration,
    word: usize,
    location: &'static Location<'static>,
    access: AccessKind,
    conflict: Conflict,
) -> ! {
    let context = current();
    let thread = context.threads[conflict.thread].index;
    let other = OtherAccess { thread, location: conflict.location.into(), access: conflict.access };
    let (array, element) = (declaration.name(), declaration.index(word));
    context.fail(location, FaultKind::Race { array, element, access, other })
}

// Waiting for others.

/// Waits for all threads of the block.
#[inline]
#[track_caller]
pub(crate) fn barrier() {
    current().suspend(State::Barrier, Location::caller());
}

/// Waits for the lanes in `mask`, and with them carries out a shuffle of values of `bytes` bytes with the operands `b` and
/// `c` of `shfl.sync`. Returns the value and the predicate.
#[track_caller]
pub(crate) fn shuffle(operation: WarpOperation, mask: u32, bytes: usize, value: u64, b: u32, c: u32) -> (u64, bool) {
    warp_operation(Request { operation, bytes, mask, value, b, c })
}

/// Waits for the lanes in `mask`, and returns the mask of those with a true predicate, for a ballot; otherwise 0 or 1.
#[track_caller]
pub(crate) fn vote(operation: WarpOperation, mask: u32, predicate: bool) -> u32 {
    warp_operation(Request { operation, bytes: 0, mask, value: predicate.into(), b: 0, c: 0 }).0 as u32
}

/// Waits for the lanes in `mask`; what they wrote before, all of them see after.
#[track_caller]
pub(crate) fn sync_warp(mask: u32) {
    warp_operation(Request { operation: WarpOperation::Sync, bytes: 0, mask, value: 0, b: 0, c: 0 });
}

#[track_caller]
fn warp_operation(request: Request) -> (u64, bool) {
    let context = current();
    let lane = (context.current.get() % LANES) as u32;
    if request.mask >> lane & 1 == 0 {
        let Request { operation, mask, .. } = request;
        context.fail(Location::caller(), FaultKind::LaneNotInMask { operation, mask, lane });
    }
    context.thread().request.set(request);
    context.suspend(State::Warp, Location::caller());
    context.thread().response.get()
}
