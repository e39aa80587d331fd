//! Values that a load may see although newer ones have been stored. On a GPU nothing but coherence, what has been acquired, and fences that are
//! `SeqCst` say how new a value has to be:
//!
//! ```text
//!  block 0      x = 1 ── fence(AcqRel) ── y? 0                        each looks before the other's store has come to it, which no order of
//!  block 1      y = 1 ── fence(AcqRel) ── x? 0                        their steps can show
//!
//!  stores of x  0 ◄──── 1                                             kept, the last ones
//!               └ what a load of block 1 may see: no store behind it is known to it, or was before a `SeqCst` fence
//! ```
//!
//! With a seed other than 0 the executor keeps the last stores to each element of a `GlobalAtomics`, and a load takes one of those that it may
//! see, by chance. What a thread has seen or stored it never falls behind, nor behind what others have seen or stored of which it knows. Operations
//! that read and write take the newest. What comes before a fence that is `SeqCst`, those know who come behind a later one, as far as both scopes
//! reach. After R. Lidbury and A. Donaldson, "Dynamic Race Detection for C++11" (2017), on PTX's memory model. So what is seen that is
//! old may be seen on a GPU, too; but not everything that a GPU does is seen: no load sees what is stored later.

use std::collections::VecDeque;
use std::vec::Vec;

use super::context::Context;
use super::fault::OldValue;
use super::known::{Carried, Known};
use crate::atomic::Scope;

/// How many stores are kept of an element.
const KEPT: usize = 8;

/// How many fences that are `SeqCst` are kept.
const FENCES: usize = 32;

/// How often in a row a thread may see other than the newest value, so that every loop ends that waits for one.
const IN_A_ROW: u32 = 4;

/// How many notes of what threads have seen are kept of an element.
const MOST_SEEN: usize = 256;

/// Where a thread stood when it did something.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    block: u64,
    thread: usize,
    interval: u64,
}

impl Moment {
    /// Where the running thread stands.
    fn now(context: &Context<'_>) -> Self {
        let thread = context.current.get();
        Self { block: context.block_number.get(), thread, interval: context.threads[thread].interval.get() }
    }

    fn is_of_thread_of(self, other: Self) -> bool {
        (self.block, self.thread) == (other.block, other.thread)
    }

    /// Whether what was done then comes before what a thread of the running block does now.
    fn is_before(self, context: &Context<'_>, now: Self) -> bool {
        let shared = &context.memory.shared;
        if self.block == now.block {
            self.thread == now.thread || !shared.is_unordered(self.thread, self.interval, now.thread)
        } else {
            shared.knows(now.thread, self.block, self.thread, self.interval)
        }
    }
}

/// A store to an element.
struct Store {
    value: u64,
    /// `None` for what was there before.
    by: Option<Moment>,
    /// What those acquire who read it.
    carried: Carried,
}

/// A thread that has seen a store, or made it.
struct Seen {
    by: Moment,
    /// The store's number.
    store: u64,
    /// How often it has since seen other than the newest.
    old_in_a_row: u32,
}

/// The last stores to an element, and who has seen them.
#[derive(Default)]
pub(super) struct Stores {
    bytes: usize,
    /// The number of the first one that is kept.
    first: u64,
    kept: VecDeque<Store>,
    seen: Vec<Seen>,
}

impl Stores {
    /// Begins anew with what is in memory, unless the last store is that.
    fn require(&mut self, bytes: usize, value: u64, carried: &Carried) {
        if self.bytes != bytes || self.kept.back().is_none_or(|store| store.value != value) {
            self.bytes = bytes;
            self.first += self.kept.len() as u64;
            self.kept.clear();
            self.seen.clear();
            self.kept.push_back(Store { value, by: None, carried: carried.clone() });
        }
    }

    /// Notes a store of the running thread, and what those acquire who read it. `before`: what was in memory, and who read that acquired.
    pub(super) fn note(
        &mut self,
        (bytes, by): (usize, Here),
        (before, carried_before): (u64, Option<&Carried>),
        (value, carried): (u64, &Carried),
    ) {
        if carried.is_large() {
            // A copy for each store would take too long. Whoever comes sees the newest.
            *self = Self { first: self.first + self.kept.len() as u64 + 1, ..Self::default() };
            return;
        }
        self.require(bytes, before, carried_before.unwrap_or(carried));
        self.kept.push_back(Store { value, by: Some(by.0), carried: carried.clone() });
        if self.kept.len() > KEPT {
            self.kept.pop_front();
            self.first += 1;
            let first = self.first;
            self.seen.retain(|seen| seen.store > first);
        }
        self.see(by.0, self.newest(), 0);
    }

    /// The number of the newest store. There is one.
    fn newest(&self) -> u64 {
        self.first + self.kept.len() as u64 - 1
    }

    /// Notes that the running thread has seen the newest store by an operation that stores nothing.
    pub(super) fn see_newest(&mut self, context: &Context<'_>) {
        if !self.kept.is_empty() {
            self.see(Moment::now(context), self.newest(), 0);
        }
    }

    /// Notes that a thread has seen a store.
    fn see(&mut self, by: Moment, store: u64, old_in_a_row: u32) {
        if let Some(seen) = self.seen.iter_mut().rev().find(|seen| seen.by.is_of_thread_of(by))
            && seen.store == store
        {
            seen.old_in_a_row = old_in_a_row;
            return;
        }
        if self.seen.len() >= MOST_SEEN {
            // Nobody may see less than the newest any more.
            let newest = self.kept.len() - 1;
            self.first += newest as u64;
            self.kept.drain(..newest);
            self.seen.clear();
        }
        self.seen.push(Seen { by, store, old_in_a_row });
    }

    /// What a load of the running thread sees, where `value` is in memory: that, or, if something newer is there that it need not see, what
    /// was there before; and what those acquire who read it.
    pub(super) fn load(
        &mut self,
        context: &Context<'_>,
        bytes: usize,
        value: u64,
        old_values: &OldValues,
    ) -> Option<(u64, Carried)> {
        if self.bytes != bytes || self.kept.back().is_none_or(|store| store.value != value) {
            return None;
        }
        let now = Moment::now(context);
        let is_past = |by: Moment| by.is_before(context, now) || old_values.is_shown(context, by, now);
        let newest = self.newest();
        let stored = (self.first..).zip(&self.kept).filter(|(_, store)| store.by.is_none_or(is_past));
        let seen = self.seen.iter().filter(|seen| is_past(seen.by)).map(|seen| seen.store);
        let oldest = stored.map(|(number, _)| number).chain(seen).max().unwrap_or(newest);
        let of_thread = self.seen.iter().rev().find(|seen| seen.by.is_of_thread_of(now));
        let old_in_a_row = of_thread.map_or(0, |seen| seen.old_in_a_row);
        let mut random = context.random.get();
        let takes_newest = oldest >= newest || old_in_a_row >= IN_A_ROW || random.next() & 1 == 0;
        let number = if takes_newest { newest } else { oldest + random.next() % (newest - oldest) };
        if oldest < newest {
            context.random.set(random);
        }
        self.see(now, number, if number == newest { 0 } else { old_in_a_row + 1 });
        let store = (number < newest).then(|| &self.kept[(number - self.first) as usize])?;
        Some((store.value, store.carried.clone()))
    }
}

/// Where the running thread stood when it stored, or came to a fence.
#[derive(Clone, Copy)]
pub(super) struct Here(Moment);

impl Here {
    pub(super) fn now(context: &Context<'_>) -> Self {
        Self(Moment::now(context))
    }
}

/// What old values depend on besides: fences that are `SeqCst`; and the loads that have seen old ones.
#[derive(Default)]
pub(super) struct OldValues {
    /// What comes before all those fences, as far as their scopes reach.
    shown: Carried,
    /// The last fences: where they were, and what comes before earlier ones within both scopes.
    fences: VecDeque<(Moment, Known)>,
    /// What came before fences that are forgotten: taken for known to everybody.
    forgotten: Known,
    loads: Vec<(Moment, usize, OldValue)>,
}

impl OldValues {
    /// Notes a fence of the running thread that is `SeqCst`, before which it was `at`, and knew what is `known`.
    pub(super) fn note_fence(&mut self, context: &Context<'_>, at: Here, scope: Scope, known: &Known) {
        self.shown.release(at.0.block, scope, known);
        self.fences.push_back((at.0, self.shown.acquired(context, scope)));
        if self.fences.len() > FENCES {
            self.fences.pop_front().iter().for_each(|(_, known)| self.forgotten.join(known));
        }
    }

    /// Whether fences show to a thread of the running block what was done at a moment.
    fn is_shown(&self, context: &Context<'_>, done: Moment, now: Moment) -> bool {
        let includes = |known: &Known| known.includes(done.block, done.thread, done.interval);
        includes(&self.forgotten)
            || self.fences.iter().any(|(fence, known)| includes(known) && fence.is_before(context, now))
    }

    /// Notes what the running thread has loaded from an address: an old value, or the newest.
    pub(super) fn note_load(&mut self, context: &Context<'_>, address: usize, old: Option<OldValue>) {
        let now = Moment::now(context);
        self.loads.retain(|(by, of, _)| *of != address || !by.is_of_thread_of(now));
        self.loads.extend(old.map(|old| (now, address, old)));
    }
}

impl Context<'_> {
    /// The last load of the launch that has seen an old value, whose thread has not seen a newer one since.
    pub(super) fn old_value(&self) -> Option<OldValue> {
        self.global?.old_values()?.loads.last().map(|(.., old)| old.clone())
    }
}
