//! Blocks that run at the same time and can wait for one another: they take turns, in an order that a seed decides.
//!
//! ```text
//!  worker 0   block 0 ●──────╮                ╭──●────── …          ● an atomic operation: another worker may be next
//!  worker 1   block 1        ╰──●──╮          │
//!  worker 2   block 2              ╰─●──╮  ╭──╯
//!  worker 3   block 3                   ╰──●
//! ```
//!
//! Each block has a worker, an OS thread, and only the one whose turn it is runs. So a launch with the same seed does the same
//! thing every time, whatever the machine does, and a fault that one seed has shown can be looked at again.
//!
//! A thread that waits for what another writes reads it again and again. If everybody does that and nothing changes, for many turns,
//! nothing ever will: that is how such a loop becomes a report.

use core::ops::Range;
use std::boxed::Box;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// How much turns in a row that change nothing may count together, for each worker: 5000 tries. A loop that gives up after a thousand is
/// none that waits.
pub(super) const FRUITLESS: u64 = 5000 * TRY;

/// What a turn counts that ends with an atomic operation.
pub(super) const TRY: u64 = 16;

/// What a turn counts whose threads do the same again and again, and know nothing new: see [`super::spins`]. Not so much that one worker
/// could come to the end before the others have had their turns.
pub(super) const REPETITION: u64 = 100 * TRY;

/// What a turn counts in which a thread reads the same place thousands of times, and may come to an end by itself.
pub(super) const LONG_LOOP: u64 = 1;

/// Whose turn it is.
pub(super) struct Turns {
    state: Mutex<State>,
    /// For each worker, what it waits at for its turn.
    begins: Box<[Condvar]>,
}

struct State {
    /// The workers that run, in the order of their numbers.
    running: Vec<usize>,
    /// Those that have work left, and wait until another one wakes them.
    asleep: Vec<usize>,
    turn: usize,
    random: Random,
    fruitless: u64,
    /// One of the blocks has failed, and the others end.
    is_over: bool,
}

/// How a turn has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The launch goes on.
    GoOn,
    /// Nothing has changed for so long that nothing will.
    Stuck,
    /// Another block has failed.
    Over,
}

impl Turns {
    /// Those of so many workers.
    pub(super) fn new(workers: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let turn = random.below(workers);
        let running = (0..workers).collect();
        let state = State { running, asleep: Vec::new(), turn, random, fruitless: 0, is_over: false };
        Self { state: Mutex::new(state), begins: (0..workers).map(|_| Condvar::new()).collect() }
    }

    /// How many workers there were at the beginning.
    pub(super) fn workers(&self) -> usize {
        self.begins.len()
    }

    /// Waits for the first turn of a worker.
    pub(super) fn begin(&self, worker: usize) {
        drop(self.wait_for(self.lock(), worker));
    }

    /// Ends a turn, and waits for the next. If nothing has changed, it counts as much as `weight` says.
    pub(super) fn pass(&self, worker: usize, has_changed: bool, weight: u64) -> Turn {
        let mut state = self.lock();
        state.fruitless = if has_changed { 0 } else { state.fruitless + weight };
        if state.fruitless > FRUITLESS * state.running.len() as u64 {
            return Turn::Stuck;
        }
        self.next(&mut state);
        let state = self.wait_for(state, worker);
        if state.is_over { Turn::Over } else { Turn::GoOn }
    }

    /// Ends a turn, and waits until another worker has woken this one and it has its next turn. Another one is awake.
    pub(super) fn sleep(&self, worker: usize) -> Turn {
        let mut state = self.lock();
        if state.is_over {
            return Turn::Over;
        }
        state.running.retain(|other| *other != worker);
        state.asleep.push(worker);
        self.next(&mut state);
        let state = self.wait_for(state, worker);
        if state.is_over { Turn::Over } else { Turn::GoOn }
    }

    /// Wakes those of some workers that sleep: from now on they have turns again.
    pub(super) fn wake(&self, workers: Range<usize>) {
        let mut state = self.lock();
        let State { running, asleep, fruitless, .. } = &mut *state;
        if asleep.iter().any(|worker| workers.contains(worker)) {
            running.extend(asleep.extract_if(.., |worker| workers.contains(worker)));
            // The order in which they have fallen asleep decides nothing.
            running.sort_unstable();
            *fruitless = 0;
        }
    }

    /// Whether all others of some workers sleep, or have left.
    pub(super) fn is_last_awake(&self, worker: usize, workers: Range<usize>) -> bool {
        self.lock().running.iter().all(|other| *other == worker || !workers.contains(other))
    }

    /// Has the order from here on depend on this seed alone.
    pub(super) fn begin_anew(&self, seed: u64) {
        self.lock().random = Random::new(seed);
    }

    /// Ends the last turn of a worker. `failed`: and those of the others with it.
    pub(super) fn leave(&self, worker: usize, failed: bool) {
        let mut state = self.lock();
        state.is_over |= failed;
        state.fruitless = 0;
        state.running.retain(|other| *other != worker);
        if state.is_over || state.running.is_empty() {
            // They end, too.
            let asleep = core::mem::take(&mut state.asleep);
            state.running.extend(asleep);
            state.running.sort_unstable();
        }
        if !state.running.is_empty() {
            self.next(&mut state);
        }
    }

    fn next(&self, state: &mut State) {
        let position = state.random.below(state.running.len());
        state.turn = state.running[position];
        self.begins[state.turn].notify_one();
    }

    fn wait_for<'a>(&'a self, state: MutexGuard<'a, State>, worker: usize) -> MutexGuard<'a, State> {
        self.begins[worker].wait_while(state, |state| state.turn != worker).unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Numbers that a seed decides: SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Copy, Default)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// One that is less than `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{thread, vec};

    use super::*;

    /// The order in which three workers come to their turns.
    fn order(seed: u64) -> Vec<usize> {
        let (turns, log) = (Turns::new(3, seed), Mutex::new(vec![]));
        let at_once = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..3 {
                let (turns, log, at_once) = (&turns, &log, &at_once);
                scope.spawn(move || {
                    turns.begin(worker);
                    for _ in 0..50 {
                        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                        log.lock().unwrap().push(worker);
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(turns.pass(worker, true, TRY), Turn::GoOn);
                    }
                    turns.leave(worker, false);
                });
            }
        });
        log.into_inner().unwrap()
    }

    #[test]
    fn a_seed_decides_the_order() {
        let orders: Vec<_> = (0..4).map(order).collect();
        assert!(orders.iter().all(|order| order.len() == 150));
        assert_eq!(order(2), orders[2]);
        assert_ne!(orders[0], orders[1]);
    }

    #[test]
    fn who_sleeps_has_no_turn_until_it_is_woken() {
        let (turns, log) = (Turns::new(2, 0), Mutex::new(vec![]));
        let note = |what| log.lock().unwrap().push(what);
        thread::scope(|scope| {
            scope.spawn(|| {
                turns.begin(0);
                note("0 begins");
                assert_eq!(turns.sleep(0), Turn::GoOn);
                note("0 goes on");
                turns.leave(0, false);
            });
            turns.begin(1);
            while !turns.is_last_awake(1, 0..2) {
                assert_eq!(turns.pass(1, true, TRY), Turn::GoOn);
            }
            for _ in 0..50 {
                assert_eq!(turns.pass(1, true, TRY), Turn::GoOn);
            }
            note("1 wakes it");
            turns.wake(0..2);
            turns.leave(1, false);
        });
        assert_eq!(log.into_inner().unwrap(), ["0 begins", "1 wakes it", "0 goes on"]);
    }

    #[test]
    fn who_is_alone_and_changes_nothing_is_stuck_after_a_while() {
        let turns = Turns::new(1, 0);
        turns.begin(0);
        for weight in [TRY, REPETITION, LONG_LOOP] {
            let pass = || turns.pass(0, false, weight);
            assert_eq!(turns.pass(0, true, weight), Turn::GoOn);
            assert!((0..FRUITLESS / weight).all(|_| pass() == Turn::GoOn));
            assert_eq!(turns.pass(0, true, weight), Turn::GoOn);
            assert!((0..FRUITLESS / weight).all(|_| pass() == Turn::GoOn));
            assert_eq!(pass(), Turn::Stuck);
        }
    }
}
