//! Vector clocks for the race detector: for each pair of threads of a block, how much of the second's work happened before what
//! the first does now. Barriers that only some threads use (`mbarrier`, named barriers) need them.
//!
//! A barrier of the whole block orders everything, and `sync_warp` the lanes of a warp: for these, [`super::shared_memory`]
//! compares ticks. Barriers that some threads come to and others wait for order pairs of threads:
//!
//! ```text
//! thread 3   writes x ─ arrives at b ──────┐             known[40][3] = the tick of the arrival:
//!                                          ▼             what thread 3 did in earlier intervals comes before
//! thread 40           waits for b ──────── goes on ── reads x
//! ```
//!
//! After F. Mattern ("Virtual time and global states of distributed systems", 1989), with a row for each thread
//! that knows, and a column for each that is known of.

use core::cell::{Cell, RefCell};
use std::vec::Vec;

use super::known::Known;

/// For each thread, the tick before which everything that it did is known. Empty if nothing is known.
#[derive(Clone, Default)]
pub(super) struct Clock {
    ticks: Vec<u64>,
    /// The same of other blocks.
    pub(super) known: Known,
}

impl Clock {
    /// Adds what another clock knows.
    pub(super) fn join(&mut self, other: &Self) {
        self.join_ticks(&other.ticks);
        self.known.join(&other.known);
    }

    /// Adds what is known of threads of this block.
    pub(super) fn join_ticks(&mut self, other: &[u64]) {
        if self.ticks.len() < other.len() {
            self.ticks.resize(other.len(), 0);
        }
        for (known, other) in self.ticks.iter_mut().zip(other) {
            *known = (*known).max(*other);
        }
    }

    /// The ticks.
    pub(super) fn ticks(&self) -> &[u64] {
        &self.ticks
    }
}

/// A clock for each thread of the running block. There are none until a block needs them: most never do.
#[derive(Default)]
pub(super) struct Clocks {
    /// Row after row.
    known: RefCell<Vec<u64>>,
    /// The threads of the block: the length of a row. Zero if there are no clocks.
    threads: Cell<usize>,
}

impl Clocks {
    /// Forgets everything.
    pub(super) fn reset(&self) {
        self.threads.set(0);
    }

    /// Whether there are clocks.
    pub(super) fn are_in_use(&self) -> bool {
        self.threads.get() != 0
    }

    /// Makes clocks for a block of so many threads, if there are none.
    pub(super) fn require(&self, threads: usize) {
        if !self.are_in_use() {
            let mut known = self.known.borrow_mut();
            known.clear();
            known.resize(threads * threads, 0);
            self.threads.set(threads);
        }
    }

    /// The tick before which `me` knows of everything that `other` did.
    pub(super) fn known(&self, me: usize, other: usize) -> u64 {
        match self.threads.get() {
            0 => 0,
            threads => self.known.borrow()[me * threads + other],
        }
    }

    /// What `thread` knows.
    pub(super) fn with_row<R>(&self, thread: usize, look: impl FnOnce(&mut [u64]) -> R) -> R {
        let threads = self.threads.get();
        look(&mut self.known.borrow_mut()[thread * threads..(thread + 1) * threads])
    }

    /// Has all of these threads know what any of them does.
    pub(super) fn share(&self, threads: impl Iterator<Item = usize> + Clone) {
        let mut all = Clock::default();
        threads.clone().for_each(|thread| self.with_row(thread, |row| all.join_ticks(row)));
        threads.for_each(|thread| self.with_row(thread, |row| row.copy_from_slice(all.ticks())));
    }
}
