//! The CPU side of atomic operations and fences: what they do to memory, what they tell the race detector, and when a thread lets others
//! run.

use core::panic::Location;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::format;

use super::Checks;
use super::barriers::clocked;
use super::context::{Context, State, current};
use super::costs::CostKind;
use super::fault::{AccessKind, FaultKind, OldValue};
use super::global_memory::{AtomicElement, GlobalMemory};
use super::hooks::{dynamic_words, note_atomic, note_atomic_store, static_offset, words_to_access};
use super::identity::{DYNAMIC, SharedIdentity};
use super::known::{Carried, Known, Released};
use super::older::Here;
use super::remote;
use super::shared_memory::WORD;
use super::spins::Awaited;
use super::steps::{Access, StepKind};
use crate::atomic::{Order, Place, Scope};
use crate::shared::SharedArray;

/// Where the element at an index of a static array is.
#[inline(always)]
#[track_caller]
pub(crate) fn static_atomic<A: SharedArray>(array: &'static SharedIdentity, index: A::Index) -> Place {
    Place::Shared(array, static_offset::<A>(array, index, Location::caller()))
}

/// Where an element of a slice of the dynamic shared memory is. The slice is given as for [`dynamic_words`].
#[track_caller]
pub(crate) fn dynamic_atomic(slice: (usize, usize, usize), index: usize) -> Place {
    let words = dynamic_words(slice, index, slice.2, Location::caller());
    Place::Shared(&DYNAMIC, words.start * WORD)
}

/// What an operation does to an element.
enum Change<'a> {
    Load,
    Store(u64),
    CompareExchange { expected: u64, new: u64 },
    Modify(&'a dyn Fn(u64) -> u64),
}

impl Change<'_> {
    /// What a change of it is listed under: see [`super::changes`].
    fn name(&self) -> &'static str {
        match self {
            Self::Load => "atomic-load",
            Self::Store(_) => "atomic-store",
            Self::CompareExchange { .. } => "atomic-compare-exchange",
            Self::Modify(_) => "atomic-modify",
        }
    }
}

#[track_caller]
pub(crate) fn atomic_load(place: Place, bytes: usize, order: Order, scope: Scope) -> u64 {
    carry_out(place, bytes, order, scope, &Change::Load)
}

#[track_caller]
pub(crate) fn atomic_store(place: Place, bytes: usize, order: Order, scope: Scope, bits: u64) {
    carry_out(place, bytes, order, scope, &Change::Store(bits));
}

#[track_caller]
pub(crate) fn atomic_compare_exchange(
    place: Place,
    bytes: usize,
    order: Order,
    scope: Scope,
    expected: u64,
    new: u64,
) -> u64 {
    carry_out(place, bytes, order, scope, &Change::CompareExchange { expected, new })
}

#[track_caller]
pub(crate) fn atomic_modify(
    place: Place,
    bytes: usize,
    order: Order,
    scope: Scope,
    change: &dyn Fn(u64) -> u64,
) -> u64 {
    carry_out(place, bytes, order, scope, &Change::Modify(change))
}

/// Carries out an operation of the running thread. Returns the bits before.
#[track_caller]
fn carry_out(place: Place, bytes: usize, order: Order, scope: Scope, change: &Change<'_>) -> u64 {
    let (context, location) = (current(), Location::caller());
    context.require_headroom();
    // Of shared memory, all threads that there can be are of the block.
    let has_scope = matches!(place, Place::Global(..));
    let (order, scope) = context.change_order(change.name(), location, (order, scope), has_scope);
    let access = AccessKind::Atomic { scope, bytes: bytes as u8 };
    let address = match place {
        Place::Global(address, is_for_waiting) => {
            if !is_for_waiting && order != Order::Relaxed {
                context.fail(location, FaultKind::OrderedOutsideOfAtomics);
            }
            if context.checks == Checks::Full {
                context.note_global(address.addr(), bytes, access, location);
                if !matches!(change, Change::Store(_)) {
                    context.require_values(address.addr(), bytes, location);
                }
                if !matches!(change, Change::Load) {
                    context.note_values(address.addr(), bytes);
                }
            }
            address
        }
        Place::Remote(rank, array, offset) => {
            let stores = matches!(change, Change::Store(_));
            remote::atomic_address(context, (rank, array, offset), bytes, access, stores, location)
        }
        Place::Shared(array, offset) => {
            context.atomic_access.set(access);
            let words = offset / WORD..(offset + bytes) / WORD;
            let note = if matches!(change, Change::Store(_)) { note_atomic_store } else { note_atomic };
            words_to_access(array, words, location, note).wrapping_add(offset)
        }
    };
    let (kind, at) = match (place, change) {
        (Place::Global(address, _), Change::Load) => (CostKind::GlobalAtomicLoad, address.addr()),
        (Place::Global(address, _), Change::Store(_)) => (CostKind::GlobalStore, address.addr()),
        (Place::Global(address, _), _) => (CostKind::GlobalAtomic, address.addr()),
        (Place::Shared(_, offset) | Place::Remote(_, _, offset), Change::Load) => (CostKind::SharedLoad, offset),
        (Place::Shared(_, offset) | Place::Remote(_, _, offset), Change::Store(_)) => (CostKind::SharedStore, offset),
        (Place::Shared(_, offset) | Place::Remote(_, _, offset), _) => (CostKind::SharedAtomic, offset),
    };
    context.note_cost(kind, (at, bytes), location);
    context.note_access(Access::Atomic(change.name()), place, bytes, location);
    let (before, after) = match bytes {
        // SAFETY: in bounds and aligned, as whoever made the place has checked; all other accesses at the same time are atomic ones.
        4 => apply(|next| change_32(unsafe { &*address.cast::<AtomicU32>() }, next), change),
        // SAFETY: as above.
        _ => apply(|next| change_64(unsafe { &*address.cast::<AtomicU64>() }, next), change),
    };
    let seen = match context.checks {
        Checks::Full => tell(context, (place, bytes, location), (order, scope), change, (before, after)),
        Checks::Bounds => before,
    };
    context.details().awaited.set(Some(Awaited::by_atomics(place, access)));
    context.let_others_run(location, before != after);
    seen
}

/// The bits before and after.
fn apply(exchange: impl Fn(&dyn Fn(u64) -> u64) -> u64, change: &Change<'_>) -> (u64, u64) {
    let next = |before: u64| match change {
        Change::Load => before,
        Change::Store(bits) => *bits,
        Change::CompareExchange { expected, new } => {
            if before == *expected {
                *new
            } else {
                before
            }
        }
        Change::Modify(change) => change(before),
    };
    let before = exchange(&next);
    (before, next(before))
}

fn change_32(element: &AtomicU32, next: &dyn Fn(u64) -> u64) -> u64 {
    let change = |before: u32| Some(next(before.into()) as u32);
    let (Ok(before) | Err(before)) = element.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    before.into()
}

fn change_64(element: &AtomicU64, next: &dyn Fn(u64) -> u64) -> u64 {
    let (Ok(before) | Err(before)) =
        element.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| Some(next(before)));
    before
}

/// Has the running thread learn what it acquires from an element, and the element carry what the thread releases. Returns the bits that the
/// thread sees.
fn tell(
    context: &Context<'_>,
    (place, bytes, location): (Place, usize, &'static Location<'static>),
    (order, scope): (Order, Scope),
    change: &Change<'_>,
    (before, after): (u64, u64),
) -> u64 {
    let is_write = match change {
        Change::Load => false,
        Change::Store(_) | Change::Modify(_) => true,
        Change::CompareExchange { expected, .. } => before == *expected,
    };
    let is_read = !matches!(change, Change::Store(_));
    let block = context.block_number.get();
    if order == Order::SeqCst {
        order_by_fence(context, order, scope);
    }
    let mut old_values = match place {
        Place::Global(_, true) => context.global.and_then(GlobalMemory::old_values),
        _ => None,
    };
    let mut seen = before;
    context.with_element(place, |AtomicElement { carried, released, stores }| {
        let mut ordered = context.details().ordered.take();
        let old = match (change, &mut old_values) {
            (Change::Load, Some(old_values)) => {
                let old = stores.load(context, bytes, before, old_values);
                let note = old.as_ref().map(|(value, _)| OldValue {
                    block: context.block.get(),
                    thread: context.thread().index,
                    location: location.into(),
                    seen: *value,
                    newest: before,
                });
                old_values.note_load(context, place_of(place), note);
                old
            }
            (_, Some(_)) if !is_write => {
                stores.see_newest(context);
                None
            }
            _ => None,
        };
        let old = old.map(|(value, carried)| {
            seen = value;
            carried
        });
        let of_seen = old.as_ref().unwrap_or(carried);
        if is_read && !of_seen.is_nothing() {
            if order.acquires() {
                learn(context, &of_seen.acquired(context, scope));
            } else {
                ordered.read.keep_for_fence(context, scope, of_seen);
            }
        }
        if is_write {
            let by = Here::now(context);
            let carried_before = (old_values.is_some() && !carried.is_large()).then(|| carried.clone());
            if !is_read {
                // What was released before is carried on by operations that read it, and by no others.
                *carried = Carried::default();
            }
            let thread = context.current.get();
            if order.releases() {
                let known = everything(context);
                carried.release(block, scope, &known);
                *released = Some(Released { block, thread, scope, known });
            } else {
                ordered.release(carried, scope);
                if let Some(of_thread) = released.as_ref().filter(|of| (of.block, of.thread) == (block, thread)) {
                    carried.release(block, scope.min(of_thread.scope), &of_thread.known);
                }
            }
            if old_values.is_some() {
                stores.note((bytes, by), (before, carried_before.as_ref()), (after, carried));
            }
        }
        context.details().ordered.set(ordered);
    });
    seen
}

/// The address of an element in global memory.
fn place_of(place: Place) -> usize {
    match place {
        Place::Global(address, _) => address.addr(),
        Place::Shared(_, offset) | Place::Remote(_, _, offset) => offset,
    }
}

/// A fence of the running thread.
#[track_caller]
pub(crate) fn fence(order: Order, scope: Scope) {
    let (context, location) = (current(), Location::caller());
    let Some(scope) = context.change_fence(location, scope) else { return };
    context.note_step(StepKind::Fence, location, |note, _| note.text(format!("{scope:?}").to_lowercase()));
    if context.checks != Checks::Full {
        return;
    }
    context.require_headroom();
    order_by_fence(context, order, scope);
}

/// What a fence of the running thread orders.
fn order_by_fence(context: &Context<'_>, order: Order, scope: Scope) {
    let mut ordered = context.details().ordered.take();
    let (block, at) = (context.block_number.get(), Here::now(context));
    learn(context, &ordered.read.acquired(context, scope));
    let known = everything(context);
    ordered.fenced.release(block, scope, &known);
    context.details().ordered.set(ordered);
    if order == Order::SeqCst
        && let Some(mut old_values) = context.global.and_then(GlobalMemory::old_values)
    {
        old_values.note_fence(context, at, scope, &known);
    }
}

/// Has the running thread know what others knew.
pub(super) fn learn(context: &Context<'_>, known: &Known) {
    if !known.is_nothing()
        && let Some(shared) = clocked(context)
    {
        shared.learn(context.current.get(), known, context.block_number.get());
    }
}

/// Everything that the running thread did and knows of, if races are looked for. It begins an interval.
pub(super) fn everything(context: &Context<'_>) -> Known {
    let Some(shared) = clocked(context) else { return Known::default() };
    let (interval, known) = shared.everything(context.current.get(), context.block_number.get());
    context.begin_interval(interval);
    known
}

/// Ends the launch unless all blocks run at the same time.
#[track_caller]
pub(crate) fn require_cooperative() {
    let (context, location) = (current(), Location::caller());
    if !context.is_cooperative {
        context.fail(location, FaultKind::NotCooperative);
    }
}

impl Context<'_> {
    /// Lets other threads run, and other blocks, after an atomic operation: always if it changed nothing, because this may be a thread
    /// that waits, and sometimes otherwise, as the seed decides.
    fn let_others_run(&self, location: &'static Location<'static>, has_changed: bool) {
        if has_changed {
            self.has_changed.set(true);
            self.note_change();
            let mut random = self.random.get();
            let runs_on = random.next() & 3 != 0;
            self.random.set(random);
            if runs_on {
                return;
            }
        }
        self.suspend(State::Yielded, location);
    }
}
