//! Barriers: those of the whole block in branches and loops, those with a number for a part of it, and those in shared memory with phases.

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

use crate::pattern::Class::{BarrierDivergence, PartBarrier};
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in shared memory";
const DIVERGENCE: &str = "barrier divergence";

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
    ],
};
