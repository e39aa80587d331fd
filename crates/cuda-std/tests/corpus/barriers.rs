//! Barriers: those of the whole block in branches and loops, those with a number for a part of it, and those in shared memory with phases.

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

use crate::pattern::Class::{BarrierDivergence, PartBarrier};
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in shared memory";
const DIVERGENCE: &str = "barrier divergence";
const MEETINGS: &str = "barrier meetings";
const OVER: &str = "access to a barrier";

/// Reverses the elements that there are, in blocks of 64.
#[kernel(block = 64)]
fn guarded_reverse(wrong: u32, count: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x();
    unsafe {
        if wrong == 1 && me >= count {
            return;
        }
        NUMBERS.write(me as usize, me);
        if wrong != 2 {
            thread::sync_threads(); // <guarded: barrier>
        } else if me < count {
            thread::sync_threads(); // <guarded: in the branch>
        }
        if me < count {
            y.set_unchecked(me as usize, NUMBERS.read((count - 1 - me) as usize));
        }
    }
}

/// Rounds of work with a barrier in each.
#[kernel(block = 64)]
fn rounds_of_work(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static SUM: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    // The mistakes: the second warp has fewer rounds; threads of a warp have.
    let rounds = match wrong {
        1 => 4 - me / 32,
        2 => 1 + me % 2,
        _ => 4,
    };
    unsafe {
        SUM.write(me, 0);
        for _ in 0..rounds {
            SUM.write(me, SUM.read(me) + 1);
            thread::sync_threads(); // <rounds: barrier>
        }
        y.set_unchecked(me, SUM.read(me));
    }
}

/// Two kinds of work with the same barrier behind both.
#[kernel(block = 64)]
fn two_branches(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    // Whole warps may come to the barrier by two calls, and parts of a warp may not.
    let is_first = if wrong == 0 { me < 32 } else { me.is_multiple_of(2) };
    unsafe {
        if is_first {
            NUMBERS.write(me, 1);
            thread::sync_threads(); // <branches: first>
        } else {
            NUMBERS.write(me, 2);
            thread::sync_threads();
        }
        y.set_unchecked(me, NUMBERS.read(63 - me));
    }
}

/// A search that ends for all threads when one has found what it looks for.
#[kernel(block = 64)]
fn search(wrong: u32, wanted: u32, y: GlobalSliceMut<'_, u32>) {
    static FOUND: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x();
    unsafe {
        if me == 0 {
            FOUND.write(0, u32::MAX);
        }
        thread::sync_threads();
        for step in 0..4 {
            if 64 * step + me == wanted {
                FOUND.write(0, wanted);
                if wrong == 1 {
                    break;
                }
            }
            thread::sync_threads(); // <search: barrier>
            let found = FOUND.read(0);
            thread::sync_threads();
            if found != u32::MAX {
                break;
            }
        }
        y.set_unchecked(me as usize, FOUND.read(0));
    }
}

/// One warp makes numbers, two warps take them, with barriers for these three.
#[kernel(block = 128)]
fn named_barriers(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 32]> = Shared::new();
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id() as usize);
    unsafe {
        match warp {
            0 => {
                NUMBERS.write(lane, 5 * lane as u32); // <named: write>
                match wrong {
                    1 => hopper::sync_part::<64>(1),
                    2 => hopper::arrive_at_part::<96>(2),
                    4 => {}
                    // And at another one, which nobody else comes to.
                    6 => {
                        hopper::arrive_at_part::<96>(1);
                        hopper::arrive_at_part::<96>(3); // <named: alone>
                    }
                    _ => hopper::arrive_at_part::<96>(1),
                }
            }
            1 | 2 => {
                match wrong {
                    3 => hopper::arrive_at_part::<96>(1),
                    5 => hopper::sync_part::<96>(16), // <named: number>
                    _ => hopper::sync_part::<96>(1),  // <named: sync>
                }
                y.set_unchecked(32 * (warp as usize - 1) + lane, NUMBERS.read(31 - lane)); // <named: read>
            }
            _ => {}
        }
    }
}

/// A ring of two places between a warp that fills them and one that reads them, with barriers in shared memory.
#[kernel(block = 64, dynamic_shared = 2 * 32 * 4 + 4 * 8)]
fn ring(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id() as usize);
    unsafe {
        let places: SharedSlice<u32> = dynamic_shared(0, 64);
        let barriers: SharedSlice<u64> = dynamic_shared(256, 4);
        let (full, empty) = (|place| Barrier::at(barriers, place), |place| Barrier::at(barriers, 2 + place));
        if thread::thread_idx_x() == 0 {
            for place in 0..2 {
                full(place).init(if wrong == 1 { 33 } else { 32 });
                empty(place).init(32); // <ring: init empty>
            }
            if wrong == 2 {
                full(0).init(32); // <ring: init again>
            }
        }
        if wrong != 3 {
            thread::sync_threads();
        }
        let mut sum = 0;
        for step in 0..6usize {
            let (place, parity) = (step % 2, step as u32 / 2 % 2);
            if warp == 0 {
                if wrong != 4 {
                    empty(place).wait(parity ^ 1); // <ring: wait for empty>
                }
                // The mistake: the place of the step before.
                let place_of_write = if wrong == 5 && step > 0 { (step + 1) % 2 } else { place };
                places.write(32 * place_of_write + lane, step as u32); // <ring: write>
                full(place).arrive();
            } else {
                // The mistakes: always the first parity; the number of the phase.
                let awaited = match wrong {
                    6 => 0,
                    9 => step as u32 / 2,
                    _ => parity,
                };
                full(place).wait(awaited); // <ring: wait for full>
                if wrong == 7 {
                    empty(place).arrive();
                }
                sum += places.read(32 * place + (lane ^ 1)); // <ring: read>
                if wrong != 7 && (wrong != 8 || lane != 3) {
                    empty(place).arrive();
                }
            }
        }
        if warp == 1 {
            y.set_unchecked(lane, sum);
        }
    }
}

/// A barrier in shared memory at which all warps meet in place of that of the block.
#[kernel(block = 96, dynamic_shared = 96 * 4 + 8)]
fn meets_in_shared_memory(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let numbers: SharedSlice<u32> = dynamic_shared(0, 96);
        let all = Barrier::at(dynamic_shared(384, 1), 0);
        if me == 0 {
            all.init(if wrong == 1 { 64 } else { 96 });
        }
        thread::sync_threads();
        numbers.write(me, me as u32); // <meets: write>
        all.arrive();
        if wrong != 2 {
            all.wait(0);
        }
        y.set_unchecked(me, numbers.read(95 - me)); // <meets: read>
    }
}

/// Warps exchange numbers two by two.
#[kernel(block = 128)]
fn pairs_of_warps(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 128]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let (pair, is_first_half) = (me as u32 / 64, me % 32 < 16);
    unsafe {
        NUMBERS.write(me, me as u32);
        match wrong {
            // The mistakes: who meets whom nothing says; a warp in two branches, half of it, and with two numbers.
            1 => hopper::sync_part::<64>(1), // <pairs: one number>
            2 if is_first_half => hopper::sync_part::<64>(1 + pair), // <pairs: first half>
            2 => hopper::sync_part::<64>(1 + pair),
            3 if is_first_half => hopper::sync_part::<64>(1), // <pairs: half a warp>
            3 => return,
            4 => hopper::sync_part::<64>(1 + me as u32 % 2), // <pairs: two numbers>
            5 if is_first_half => hopper::arrive_at_part::<64>(1 + pair), // <pairs: half arrives>
            _ => hopper::sync_part::<64>(1 + pair),
        }
        y.set_unchecked(me, NUMBERS.read(me ^ 32));
    }
}

/// Two warps fill a place each, and a third one takes what is there, one after the other.
#[kernel(block = 96)]
fn one_after_the_other(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let (me, warp) = (thread::thread_idx_x() as usize, thread::thread_idx_x() / 32);
    unsafe {
        if warp < 2 {
            NUMBERS.write(me, me as u32);
            // The mistake: both come to one barrier, and who is first nothing says.
            hopper::arrive_at_part::<64>(if wrong == 1 { 1 } else { 1 + warp }); // <others: arrive>
        } else {
            hopper::sync_part::<64>(1); // <others: first>
            let first = NUMBERS.read(me - 64);
            hopper::sync_part::<64>(if wrong == 1 { 1 } else { 2 });
            y.set_unchecked(me - 64, first + NUMBERS.read(me - 32));
        }
    }
}

/// A warp fills a place again and again, and another one takes what is there: each tells the other one by a barrier with a number.
#[kernel(block = 64)]
fn numbered_ring(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    const FULL: u32 = 1;
    const EMPTY: u32 = 2;
    static PLACE: Shared<[u32; 32]> = Shared::new();
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id() as usize);
    unsafe {
        let mut sum = 0;
        for step in 0..4 {
            if warp == 0 {
                // The mistake: nobody waits until the place is empty.
                if wrong != 1 && step > 0 {
                    hopper::sync_part::<64>(EMPTY);
                }
                PLACE.write(lane, step);
                hopper::arrive_at_part::<64>(FULL); // <numbered ring: full>
            } else {
                hopper::sync_part::<64>(FULL);
                sum += PLACE.read(31 - lane);
                if wrong != 1 && step < 3 {
                    hopper::arrive_at_part::<64>(EMPTY);
                }
            }
        }
        if warp == 1 {
            y.set_unchecked(lane, sum);
        }
    }
}

/// A table beside a barrier.
#[kernel(block = 64, dynamic_shared = 32 * 4 + 8)]
fn table_beside_a_barrier(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id() as usize);
    unsafe {
        // The mistake: two numbers too many.
        let table: SharedSlice<u32> = dynamic_shared(0, if wrong == 0 { 32 } else { 34 });
        let told = Barrier::at(dynamic_shared(128, 1), 0);
        if thread::thread_idx_x() == 0 {
            told.init(32); // <beside: init>
        }
        thread::sync_threads();
        if warp == 0 {
            for i in (lane..table.len()).step_by(32) {
                match wrong {
                    2 if i >= 32 => _ = table.atomic(i).fetch_add(1, Relaxed, Scope::Block), // <beside: atomic>
                    3 if i >= 32 => {
                        copy_async::<1, _>(&table, i, &x, lane, 1); // <beside: copy>
                        commit_group();
                        wait_group::<0>();
                    }
                    4 if i >= 32 => {}
                    _ => table.write(i, x.get_unchecked(lane)), // <beside: store>
                }
            }
        }
        thread::sync_threads();
        if warp == 0 {
            told.arrive();
        } else {
            told.wait(0);
            let sum = (lane..table.len()).step_by(32).map(|i| table.read(i)).sum(); // <beside: read>
            y.set_unchecked(lane, sum);
        }
    }
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("barriers.rs"),
    patterns: &[
        Pattern {
            name: "guarded_reverse",
            run: |wrong, executor| {
                launch(executor, guarded_reverse { wrong, count: 50, y: GlobalSliceMut::new(&mut [0; 64]) }, 1)
            },
            mistakes: &[
                found(BarrierDivergence, "threads without an element return before", DIVERGENCE, &["guarded: barrier"]),
                found(BarrierDivergence, "the barrier is in the branch", DIVERGENCE, &["guarded: in the branch"]),
            ],
        },
        Pattern {
            name: "rounds_of_work",
            run: |wrong, executor| launch(executor, rounds_of_work { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[
                found(BarrierDivergence, "a warp has fewer rounds", DIVERGENCE, &["rounds: barrier"]),
                found(BarrierDivergence, "threads of a warp have fewer rounds", DIVERGENCE, &["rounds: barrier"]),
            ],
        },
        Pattern {
            name: "two_branches",
            run: |wrong, executor| launch(executor, two_branches { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[found(
                BarrierDivergence,
                "lanes of a warp come to barriers in two branches",
                "warp split at barriers",
                &["branches: first"],
            )],
        },
        Pattern {
            name: "search",
            run: |wrong, executor| {
                launch(executor, search { wrong, wanted: 70, y: GlobalSliceMut::new(&mut [0; 64]) }, 1)
            },
            mistakes: &[found(BarrierDivergence, "who has found leaves alone", DIVERGENCE, &["search: barrier"])],
        },
        Pattern {
            name: "named_barriers",
            run: |wrong, executor| launch(executor, named_barriers { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[
                found(PartBarrier, "another count of threads on one side", "barrier count", &["named: sync"]),
                found(PartBarrier, "another number on one side", "deadlock", &["named: sync"]),
                found(PartBarrier, "readers arrive and do not wait", RACE, &["named: write", "named: read"]),
                found(PartBarrier, "the writer does not arrive", "deadlock", &["named: sync"]),
                found(PartBarrier, "a number that there is none of", "barrier number", &["named: number"]),
                found(
                    PartBarrier,
                    "the writer arrives at one that nobody else comes to",
                    "barrier unmet",
                    &["named: alone"],
                ),
            ],
        },
        Pattern {
            name: "ring",
            run: |wrong, executor| launch(executor, ring { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[
                found(PartBarrier, "one arrival too many is expected", "deadlock", &["ring: wait for empty"]),
                found(PartBarrier, "a barrier is initialized twice", "barrier initialization", &["ring: init again"]),
                found(
                    PartBarrier,
                    "no barrier behind the initialization",
                    RACE,
                    &["ring: init empty", "ring: wait for empty"],
                ),
                found(
                    PartBarrier,
                    "a place is filled without waiting until it is empty",
                    "deadlock",
                    &["ring: wait for full"],
                ),
                found(PartBarrier, "the place is off by one", RACE, &["ring: write", "ring: read"]),
                found(PartBarrier, "always the same parity", "deadlock", &["ring: wait for empty"]),
                found(PartBarrier, "a place is given back before it is read", RACE, &["ring: write", "ring: read"]),
                found(PartBarrier, "a lane does not arrive", "deadlock", &["ring: wait for empty"]),
                found(
                    PartBarrier,
                    "the number of a phase in place of its parity",
                    "barrier parity",
                    &["ring: wait for full"],
                ),
            ],
        },
        Pattern {
            name: "meets_in_shared_memory",
            run: |wrong, executor| {
                launch(executor, meets_in_shared_memory { wrong, y: GlobalSliceMut::new(&mut [0; 96]) }, 1)
            },
            mistakes: &[
                found(
                    PartBarrier,
                    "fewer arrivals are expected than threads come",
                    RACE,
                    &["meets: write", "meets: read"],
                ),
                found(PartBarrier, "nobody waits", RACE, &["meets: write", "meets: read"]),
            ],
        },
        Pattern {
            name: "pairs_of_warps",
            run: |wrong, executor| launch(executor, pairs_of_warps { wrong, y: GlobalSliceMut::new(&mut [0; 128]) }, 1),
            mistakes: &[
                found(PartBarrier, "one number for two pairs", MEETINGS, &["pairs: one number", "pairs: one number"]),
                found(
                    PartBarrier,
                    "lanes of a warp come by two calls",
                    "warp split at barriers",
                    &["pairs: first half"],
                ),
                found(PartBarrier, "half of each warp comes", "warp divergence", &["pairs: half a warp"]),
                found(
                    PartBarrier,
                    "lanes of a warp come to two numbers",
                    "warp split at barriers",
                    &["pairs: two numbers"],
                ),
                found(PartBarrier, "half of each warp does not wait", "warp divergence", &["pairs: half arrives"]),
            ],
        },
        Pattern {
            name: "one_after_the_other",
            run: |wrong, executor| {
                launch(executor, one_after_the_other { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1)
            },
            mistakes: &[found(
                PartBarrier,
                "one number for both, the first and the second",
                MEETINGS,
                &["others: arrive", "others: first"],
            )],
        },
        Pattern {
            name: "numbered_ring",
            run: |wrong, executor| launch(executor, numbered_ring { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[found(
                PartBarrier,
                "a place is filled without waiting until it is empty",
                "barrier arrived twice",
                &["numbered ring: full", "numbered ring: full"],
            )],
        },
        Pattern {
            name: "table_beside_a_barrier",
            run: |wrong, executor| {
                let (x, mut y) = ([1; 32], [0; 32]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, table_beside_a_barrier { wrong, x, y }, 1)
            },
            mistakes: &[
                found(PartBarrier, "a store over the barrier", OVER, &["beside: store", "beside: init"]),
                found(PartBarrier, "an atomic operation over the barrier", OVER, &["beside: atomic", "beside: init"]),
                found(PartBarrier, "an asynchronous copy over the barrier", OVER, &["beside: copy", "beside: init"]),
                found(PartBarrier, "a read of the barrier", OVER, &["beside: read", "beside: init"]),
            ],
        },
    ],
};
