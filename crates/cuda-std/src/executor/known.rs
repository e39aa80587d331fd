//! What threads know of other blocks, for the race detector: vector clocks with an entry for each block whose work is known of, and what
//! atomic elements carry from one thread to another.
//!
//! ```text
//! block 7, thread 0    writes x ─ barrier ─ fetch_add(release) ──┐      the element carries: of block 7, each thread's work
//!                                                               ▼      until its last tick
//! block 9, thread 4                          load(acquire) ──── knows of block 7 ─ reads x
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec::Vec;

use super::context::Context;
use crate::atomic::Scope;

/// For each block of which something is known: for each of its threads, the tick before which everything that it did is known.
#[derive(Clone, Default)]
pub(super) struct Known(Option<Arc<BTreeMap<u64, Arc<Vec<u64>>>>>);

impl Known {
    /// Whether there is nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// The ticks of the threads of a block.
    pub(super) fn of(&self, block: u64) -> Option<&Arc<Vec<u64>>> {
        self.0.as_ref()?.get(&block)
    }

    /// Whether what a thread of a block did in an interval is known.
    pub(super) fn includes(&self, block: u64, thread: usize, interval: u64) -> bool {
        self.of(block).and_then(|ticks| ticks.get(thread)).is_some_and(|tick| interval < *tick)
    }

    /// Adds what is known of a block.
    pub(super) fn add(&mut self, block: u64, ticks: &Arc<Vec<u64>>) {
        match self.of(block) {
            Some(known) if Arc::ptr_eq(known, ticks) => return,
            Some(known) if known.len() >= ticks.len() && known.iter().zip(&**ticks).all(|(a, b)| a >= b) => return,
            _ => {}
        }
        let blocks = Arc::make_mut(self.0.get_or_insert_default());
        match blocks.get_mut(&block) {
            None => {
                blocks.insert(block, Arc::clone(ticks));
            }
            Some(known) => {
                let known = Arc::make_mut(known);
                known.resize(known.len().max(ticks.len()), 0);
                known.iter_mut().zip(&**ticks).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
    }

    /// Adds what somebody else knows.
    pub(super) fn join(&mut self, other: &Self) {
        match (&self.0, &other.0) {
            (_, None) => {}
            (None, Some(_)) => *self = other.clone(),
            (Some(mine), Some(others)) if Arc::ptr_eq(mine, others) => {}
            (Some(_), Some(others)) => others.iter().for_each(|(block, ticks)| self.add(*block, ticks)),
        }
    }
}

/// What an atomic element carries, or what a fence has yet to acquire: what was released, by the block that did so, and for whom.
#[derive(Clone, Default)]
pub(super) struct Carried(BTreeMap<(u64, Scope), Known>);

/// As far as a scope reaches in one launch.
pub(super) fn reach(scope: Scope) -> Scope {
    scope.min(Scope::Device)
}

impl Carried {
    /// Whether there is nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it takes long to copy it.
    pub(super) fn is_large(&self) -> bool {
        self.0.len() > 64
    }

    /// Adds what a thread of a block releases.
    pub(super) fn release(&mut self, block: u64, scope: Scope, known: &Known) {
        self.0.entry((block, reach(scope))).or_default().join(known);
    }

    /// What a thread of the running block acquires by an operation of this scope: an order holds where both scopes include both threads.
    pub(super) fn acquired(&self, context: &Context<'_>, scope: Scope) -> Known {
        let mut all = Known::default();
        self.within(context, scope).for_each(|(_, known)| all.join(known));
        all
    }

    /// What was released to a thread of the running block that acquires with this scope.
    fn within(&self, context: &Context<'_>, scope: Scope) -> impl Iterator<Item = (&(u64, Scope), &Known)> {
        let block = context.block_number.get();
        self.0.iter().filter(move |((by, of), _)| context.is_within(scope.min(*of), *by, block))
    }

    /// Adds what a thread of the running block would acquire by an operation of this scope, for a fence that may follow.
    pub(super) fn keep_for_fence(&mut self, context: &Context<'_>, scope: Scope, carried: &Self) {
        for (by, known) in carried.within(context, scope) {
            self.0.entry(*by).or_default().join(known);
        }
    }
}

/// What a thread has released by an operation on an element: its later stores to that element, whatever their order, release it as well (a release
/// pattern of PTX).
pub(super) struct Released {
    pub(super) block: u64,
    pub(super) thread: usize,
    pub(super) scope: Scope,
    pub(super) known: Known,
}

/// What a thread has done about the order of its atomic operations.
#[derive(Default)]
pub(super) struct Ordered {
    /// What its fences have released, for the stores that follow: a fence of a small scope takes nothing from an earlier one of a larger.
    pub(super) fenced: Carried,
    /// What its loads have read that a fence would acquire.
    pub(super) read: Carried,
}

impl Ordered {
    /// Has an element carry what a relaxed operation of a thread releases: what was before its fences, as far as both scopes reach.
    pub(super) fn release(&self, carried: &mut Carried, scope: Scope) {
        for ((by, of), known) in &self.fenced.0 {
            carried.release(*by, scope.min(*of), known);
        }
    }
}
