//! Locks of many kinds: Peterson's, Dekker's, tickets, MCS's queue, readers and writers, sequence locks; each with one order, fence, scope or
//! step that is wrong.
//!
//! After M. Herlihy and N. Shavit, "The Art of Multiprocessor Programming" (2008), J. Mellor-Crummey and M. Scott, "Algorithms for Scalable
//! Synchronization on Shared-Memory Multiprocessors" (1991), and H. Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?"
//! (2012).

use cuda_std::atomic::{AcqRel, Acquire, Atomic, Relaxed, Release, Scope, SeqCst, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::{EndlessWait, GlobalRace, Order, Scope as TooSmall};
use crate::pattern::{Family, Pattern, Report, found, launch, sometimes};

const RACE: &str = "race in global memory";

/// Peterson's lock for two blocks: each says that it wants to enter, and lets the other one go first.
#[kernel(block = 32)]
fn peterson(wrong: u32, flags: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(own), Some(other), Some(turn)) = (flags.get(block), flags.get(1 - block), flags.get(2)) else { return };
    unsafe {
        for _ in 0..3 {
            let fence_as_wanted = || match wrong {
                1 => {}
                2 => fence(AcqRel, Scope::Device),
                3 => fence(SeqCst, Scope::Block),
                _ => fence(SeqCst, Scope::Device),
            };
            own.store(1, Relaxed, Scope::Device);
            // Otherwise the turn may be the other one's before that one knows who wants to enter.
            fence_as_wanted();
            turn.store(1 - block as u32, Release, Scope::Device);
            fence_as_wanted();
            while match wrong {
                4 => other.load(Relaxed, Scope::Device) == 1 && turn.load(Relaxed, Scope::Device) != block as u32,
                _ => other.load(Acquire, Scope::Device) == 1 && turn.load(Acquire, Scope::Device) != block as u32,
            } {}
            let before = total.get_unchecked(0); // <peterson: read>
            total.set_unchecked(0, before + 1); // <peterson: write>
            own.store(0, Release, Scope::Device);
        }
    }
}

/// Dekker's lock, likewise.
#[kernel(block = 32)]
fn dekker(wrong: u32, flags: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(own), Some(other), Some(turn)) = (flags.get(block), flags.get(1 - block), flags.get(2)) else { return };
    let want = || match wrong {
        1 => own.store(1, Release, Scope::Device),
        _ => own.store(1, SeqCst, Scope::Device),
    };
    let is_wanted = || match wrong {
        1 => other.load(Acquire, Scope::Device) == 1,
        _ => other.load(SeqCst, Scope::Device) == 1,
    };
    unsafe {
        for _ in 0..3 {
            want();
            while is_wanted() {
                if turn.load(Acquire, Scope::Device) != block as u32 {
                    own.store(0, Release, Scope::Device);
                    while turn.load(Acquire, Scope::Device) != block as u32 {}
                    want();
                }
            }
            let before = total.get_unchecked(0); // <dekker: read>
            total.set_unchecked(0, before + 1); // <dekker: write>
            turn.store(1 - block as u32, Release, Scope::Device);
            own.store(0, Release, Scope::Device);
        }
        // Whoever is done no longer waits for its turn.
        turn.store(1 - block as u32, Release, Scope::Device);
    }
}

/// A lock with numbers: who comes takes the next one, and waits until it is served.
#[kernel(block = 32)]
fn ticket_lock(wrong: u32, flags: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(next), Some(served)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        let mine = next.fetch_add(1, Relaxed, Scope::Device);
        while match wrong {
            2 => served.load(Relaxed, Scope::Device),
            // The mistake: whoever has a smaller number than what is served goes in, too.
            4 => served.load(Acquire, Scope::Device).max(mine),
            _ => served.load(Acquire, Scope::Device), // <tickets: wait>
        } != mine
        {}
        let before = total.get_unchecked(0); // <tickets: read>
        total.set_unchecked(0, before + 1); // <tickets: write>
        match wrong {
            1 => served.store(mine + 1, Relaxed, Scope::Device),
            3 => served.store(mine + 1, Release, Scope::Block), // <tickets: narrow>
            // The mistake: nobody is served after the last but one.
            5 if mine == 2 => {}
            _ => served.store(mine + 1, Release, Scope::Device),
        }
    }
}

/// MCS's lock: a queue, in which each block waits at a place of its own. Element 0 is the last in the queue, then `next` and `waits` of each block.
#[kernel(block = 32)]
fn queue_lock(wrong: u32, flags: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let me = thread::block_idx_x() + 1;
    let next_of = |who: u32| unsafe { flags.get_unchecked(2 * who as usize - 1) };
    let waits = |who: u32| unsafe { flags.get_unchecked(2 * who as usize) };
    let Some(last) = flags.get(0) else { return };
    unsafe {
        next_of(me).store(0, Relaxed, Scope::Device);
        waits(me).store(1, Relaxed, Scope::Device);
        let before = match wrong {
            1 => last.swap(me, Relaxed, Scope::Device),
            _ => last.swap(me, AcqRel, Scope::Device),
        };
        if before != 0 {
            next_of(before).store(me, Release, Scope::Device);
            while match wrong {
                3 => waits(me).load(Relaxed, Scope::Device),
                _ => waits(me).load(Acquire, Scope::Device), // <queue lock: wait>
            } == 1
            {}
        }
        let count = total.get_unchecked(0); // <queue lock: read>
        total.set_unchecked(0, count + 1); // <queue lock: write>
        if next_of(me).load(Acquire, Scope::Device) == 0 {
            if last.compare_exchange(me, 0, Release, Scope::Device).is_ok() {
                return;
            }
            // The mistake: somebody is about to say that they are next, and is never told.
            if wrong == 4 {
                return;
            }
            while next_of(me).load(Acquire, Scope::Device) == 0 {}
        }
        let next = next_of(me).load(Acquire, Scope::Device);
        match wrong {
            2 => waits(next).store(0, Relaxed, Scope::Device),
            _ => waits(next).store(0, Release, Scope::Device),
        }
    }
}

/// Readers come together, a writer alone.
#[kernel(block = 32)]
fn readers_and_writers(
    wrong: u32,
    flags: GlobalAtomics<'_, u32>,
    data: GlobalSliceMut<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    const WRITER: u32 = 1 << 31;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    let Some(state) = flags.get(0) else { return };
    unsafe {
        if block.is_multiple_of(2) {
            while match wrong {
                1 => state.compare_exchange(0, WRITER, Relaxed, Scope::Device),
                _ => state.compare_exchange(0, WRITER, Acquire, Scope::Device),
            }
            .is_err()
            {}
            data.set_unchecked(0, block as u32); // <readers: write>
            state.fetch_and(!WRITER, Release, Scope::Device);
        } else {
            // The mistake: it looks whether somebody writes before it comes, and not behind.
            if wrong == 3 {
                while state.load(Acquire, Scope::Device) & WRITER != 0 {}
                state.fetch_add(1, Acquire, Scope::Device);
            } else {
                while state.fetch_add(1, Acquire, Scope::Device) & WRITER != 0 {
                    state.fetch_sub(1, Relaxed, Scope::Device);
                }
            }
            y.set_unchecked(block, data.get_unchecked(0)); // <readers: read>
            match wrong {
                2 => _ = state.fetch_sub(1, Relaxed, Scope::Device),
                _ => _ = state.fetch_sub(1, Release, Scope::Device),
            }
        }
    }
}

/// Tests before it sets.
#[kernel(block = 32)]
fn test_and_set(wrong: u32, flags: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(lock) = flags.get(0) else { return };
    unsafe {
        loop {
            while lock.load(Relaxed, Scope::Device) == 1 {}
            // The mistake: between the test and the store another one may have come.
            if wrong == 1 {
                lock.store(1, Relaxed, Scope::Device);
                break;
            }
            if lock.swap(1, Acquire, Scope::Device) == 0 {
                break;
            }
        }
        let before = total.get_unchecked(0); // <test: read>
        total.set_unchecked(0, before + 1); // <test: write>
        lock.store(0, Release, Scope::Device);
    }
}

/// A sequence lock: two numbers that are the same, which a reader takes again if somebody has written meanwhile.
#[kernel(block = 32)]
fn sequence_lock(
    wrong: u32,
    flags: GlobalAtomics<'_, u32>,
    data: GlobalAtomics<'_, u32>,
    plain: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(count), Some(one), Some(two)) = (flags.get(0), data.get(0), data.get(1)) else { return };
    let store = |to: Atomic<'_, u32>, value| to.store(value, Relaxed, Scope::Device);
    unsafe {
        if thread::block_idx_x() == 0 {
            for value in 1..4 {
                store(count, 2 * value - 1);
                // The mistake: the numbers may be there before the count is odd.
                if wrong != 2 {
                    fence(AcqRel, Scope::Device);
                }
                if wrong == 1 {
                    plain.set_unchecked(0, value); // <sequence lock: write>
                }
                store(one, value);
                store(two, value);
                count.store(2 * value, Release, Scope::Device);
            }
            return;
        }
        for _ in 0..3 {
            let (first, second) = loop {
                let before = count.load(Acquire, Scope::Device);
                if wrong == 1 {
                    plain.get_unchecked(0); // <sequence lock: read>
                }
                let numbers = (one.load(Relaxed, Scope::Device), two.load(Relaxed, Scope::Device));
                // The mistake: the numbers may have come later than the count is looked at.
                if wrong != 3 {
                    fence(AcqRel, Scope::Device);
                }
                let behind = count.load(Relaxed, Scope::Device);
                // The mistake: somebody may be in the middle of it.
                if before == behind && (before.is_multiple_of(2) || wrong == 4) {
                    break numbers;
                }
            };
            assert!(first == second, "numbers of two times"); // <sequence lock: assert>
        }
    }
}

fn with_lock(
    run: impl FnOnce(GlobalAtomics<'_, u32>, GlobalSliceMut<'_, u32>) -> Result<(), Report>,
) -> Result<(), Report> {
    with_flags(12, |total, flags, _| run(flags, total))
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("locks.rs"),
    patterns: &[
        Pattern {
            name: "peterson",
            run: |wrong, executor| with_lock(|flags, total| launch(executor, peterson { wrong, flags, total }, 2)),
            mistakes: &[
                sometimes(
                    Order,
                    "no fences between the own flag and the other's",
                    RACE,
                    &["peterson: read", "peterson: write"],
                ),
                sometimes(Order, "fences that are not `SeqCst`", RACE, &["peterson: read", "peterson: write"]),
                sometimes(TooSmall, "fences for the own block", RACE, &["peterson: read", "peterson: write"]),
                found(Order, "waits relaxed", RACE, &["peterson: read", "peterson: write"]),
            ],
        },
        Pattern {
            name: "dekker",
            run: |wrong, executor| with_lock(|flags, total| launch(executor, dekker { wrong, flags, total }, 2)),
            mistakes: &[sometimes(
                Order,
                "release and acquire in place of `SeqCst`",
                RACE,
                &["dekker: read", "dekker: write"],
            )],
        },
        Pattern {
            name: "ticket_lock",
            run: |wrong, executor| with_lock(|flags, total| launch(executor, ticket_lock { wrong, flags, total }, 4)),
            mistakes: &[
                found(Order, "the next one is served relaxed", RACE, &["tickets: read", "tickets: write"]),
                found(Order, "waits relaxed", RACE, &["tickets: read", "tickets: write"]),
                found(
                    TooSmall,
                    "the next one is served for the own block",
                    RACE,
                    &["tickets: narrow", "tickets: wait"],
                ),
                found(GlobalRace, "goes in too early", RACE, &["tickets: read", "tickets: write"]),
                found(EndlessWait, "one does not serve the next", "stuck", &["tickets: wait"]),
            ],
        },
        Pattern {
            name: "queue_lock",
            run: |wrong, executor| with_lock(|flags, total| launch(executor, queue_lock { wrong, flags, total }, 4)),
            mistakes: &[
                sometimes(Order, "comes relaxed", RACE, &["queue lock: read", "queue lock: write"]),
                sometimes(Order, "tells the next one relaxed", RACE, &["queue lock: read", "queue lock: write"]),
                sometimes(Order, "waits relaxed", RACE, &["queue lock: read", "queue lock: write"]),
                sometimes(EndlessWait, "does not wait for who is about to be next", "stuck", &["queue lock: wait"]),
            ],
        },
        Pattern {
            name: "readers_and_writers",
            run: |wrong, executor| {
                with_flags(4, |data, flags, y| launch(executor, readers_and_writers { wrong, flags, data, y }, 4))
            },
            mistakes: &[
                found(Order, "the writer comes relaxed", RACE, &["readers: write", "readers: write"]),
                found(Order, "a reader leaves relaxed", RACE, &["readers: write", "readers: read"]),
                sometimes(GlobalRace, "a reader looks before it comes", RACE, &["readers: write", "readers: read"]),
            ],
        },
        Pattern {
            name: "test_and_set",
            run: |wrong, executor| with_lock(|flags, total| launch(executor, test_and_set { wrong, flags, total }, 4)),
            mistakes: &[found(GlobalRace, "sets without looking", RACE, &["test: read", "test: write"])],
        },
        Pattern {
            name: "sequence_lock",
            run: |wrong, executor: &Executor| {
                let mut data = [0; 2];
                with_lock(|flags, plain| {
                    launch(executor, sequence_lock { wrong, flags, data: GlobalAtomics::new(&mut data), plain }, 3)
                })
            },
            mistakes: &[
                found(GlobalRace, "plain numbers", RACE, &["sequence lock: write", "sequence lock: read"]),
                sometimes(Order, "no fence behind the odd count", "panic", &["sequence lock: assert"]),
                sometimes(Order, "no fence before the second look", "panic", &["sequence lock: assert"]),
                sometimes(GlobalRace, "does not look whether the count is odd", "panic", &["sequence lock: assert"]),
            ],
        },
    ],
};
