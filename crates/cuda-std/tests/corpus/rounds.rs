//! Rounds of work by a block: buffers in turn, work that one thread fetches for all, conditions that all read, sorts within and across warps,
//! barriers of parts of a block with several rounds.

use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::Executor;
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

use crate::pattern::Class::{
    BarrierDivergence, EndlessWait, GlobalRace, InactiveLane, PartBarrier, SharedRace, WarpDivergence, WarpRace,
};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in shared memory";

/// Means of neighbours, from one buffer to the other and back, with one barrier each round.
#[kernel(block = 64)]
fn two_buffers_in_turn(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    static BUFFERS: Shared<[[f32; 64]; 2]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        BUFFERS.write([0, me], me as f32);
        thread::sync_threads();
        for round in 0..4 {
            let from = round % 2;
            // The mistake: in place.
            let to = if wrong == 2 { from } else { 1 - from };
            let mean = (BUFFERS.read([from, me]) + BUFFERS.read([from, (me + 1) % 64])) / 2.0; // <in turn: read>
            BUFFERS.write([to, me], mean); // <in turn: write>
            // The mistake: a round without a barrier.
            if wrong != 1 || round != 2 {
                thread::sync_threads();
            }
        }
        y.set_unchecked(me, BUFFERS.read([0, me]));
    }
}

/// One thread fetches the number of the next tile for all: all have to have read it before the next one is written.
#[kernel(block = 64)]
fn next_tile(wrong: u32, next: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let Some(next) = next.get(0) else { return };
    unsafe {
        loop {
            if me == 0 {
                TILE.write(0, next.fetch_add(1, Relaxed, Scope::Device)); // <next tile: write>
            }
            if wrong != 2 {
                thread::sync_threads();
            }
            let tile = TILE.read(0) as usize; // <next tile: read>
            if tile >= 5 {
                return;
            }
            y.set_unchecked(64 * tile + me, 1);
            // The mistake: the first thread may be quicker than the last.
            if wrong != 1 {
                thread::sync_threads();
            }
        }
    }
}

/// Rounds until nobody has changed anything: all ask the same flag.
#[kernel(block = 64)]
fn until_nothing_changes(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    static CHANGED: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, (me as u32 * 7) % 64);
        thread::sync_threads();
        loop {
            if me == 0 {
                CHANGED.write(0, 0); // <changes: reset>
            }
            thread::sync_threads();
            for parity in 0..2 {
                let at = 2 * (me / 2) + parity;
                if me.is_multiple_of(2) && at + 1 < 64 {
                    let (a, b) = (NUMBERS.read(at), NUMBERS.read(at + 1));
                    if a > b {
                        NUMBERS.write(at, b);
                        NUMBERS.write(at + 1, a);
                        CHANGED.atomic(0).store(1, Relaxed, Scope::Block); // <changes: note>
                    }
                }
                if wrong != 2 || parity == 0 {
                    thread::sync_threads();
                }
            }
            let has_changed = CHANGED.read(0) == 1; // <changes: ask>
            // The mistake: who is quicker resets the flag before others have asked.
            if wrong != 1 {
                thread::sync_threads();
            }
            if !has_changed {
                break;
            }
        }
        y.set_unchecked(me, NUMBERS.read(me));
    }
}

/// A bitonic sort: pairs that are less than a warp apart are exchanged within the warp.
#[kernel(block = 128)]
fn sort_across_warps(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 128]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, (me as u32 * 37) % 128);
        thread::sync_threads();
        let mut size = 2;
        while size <= 128 {
            let mut distance = size / 2;
            while distance > 0 {
                let other = me ^ distance;
                if other > me {
                    let (a, b) = (NUMBERS.read(me), NUMBERS.read(other)); // <sort: read>
                    if (a > b) == (me & size == 0) {
                        NUMBERS.write(me, b); // <sort: write>
                        NUMBERS.write(other, a); // <sort: write other>
                    }
                }
                // Behind this step the next one may come from another warp.
                let is_wide = if wrong == 1 { distance > 32 } else { distance >= 32 || distance == 1 && size >= 32 };
                if is_wide {
                    thread::sync_threads();
                } else if wrong != 2 {
                    warp::sync_warp(warp::ALL_LANES);
                }
                distance /= 2;
            }
            size *= 2;
        }
        y.set_unchecked(me, NUMBERS.read(me));
    }
}

/// Sums of a warp by shuffles, and of the block by the first warp.
#[kernel(block = 128)]
fn sums_by_shuffles(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static SUMS: Shared<[u32; 4]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x(), warp::lane_id());
    let mut sum = me;
    unsafe {
        for distance in [16, 8, 4, 2, 1] {
            // The mistake: half of the lanes are done.
            if wrong == 1 && lane >= 2 * distance {
                break;
            }
            sum += warp::warp_shuffle_down(warp::ALL_LANES, sum, distance, 32).0; // <shuffles: shuffle>
        }
        if lane == 0 {
            SUMS.write(me as usize / 32, sum);
        }
        if wrong != 2 {
            thread::sync_threads();
        }
        if me < 32 {
            let mut sum = if lane < 4 { SUMS.read(lane as usize) } else { 0 }; // <shuffles: read>
            // The mistake: the mask has the lanes of all, and only four come.
            if wrong == 3 && lane >= 4 {
                return;
            }
            for distance in [2, 1] {
                sum += warp::warp_shuffle_down(warp::ALL_LANES, sum, distance, 32).0; // <shuffles: second>
            }
            if lane == 0 {
                y.set_unchecked(0, sum);
            }
        }
    }
}

/// Tiles of 8 by 8 threads: a warp has four rows, and what is beyond them is another warp's.
#[kernel(block = (8, 8))]
fn rows_of_a_tile(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[[u32; 8]; 8]> = Shared::new();
    let (x, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    unsafe {
        TILE.write([row, x], (8 * row + x) as u32); // <rows of a tile: write>
        warp::sync_warp(warp::ALL_LANES);
        // The mistake: the row below is another warp's.
        let other = if wrong == 1 { (row + 1) % 8 } else { row / 4 * 4 + (row + 1) % 4 };
        y.set_unchecked(8 * row + x, TILE.read([other, x])); // <rows of a tile: read>
    }
}

/// Two warps fill, two take: two numbered barriers for each of two places.
#[kernel(block = 128)]
fn two_places_by_numbers(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static PLACES: Shared<[[u32; 64]; 2]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 64 {
            for round in 0..4 {
                let place = round % 2;
                // The mistake: in the second round of a place nobody looks whether it is empty.
                if wrong != 1 || round != 3 {
                    hopper::sync_part::<128>(3 + place as u32);
                }
                PLACES.write([place, me], (round + me) as u32); // <by numbers: fill>
                hopper::arrive_at_part::<128>(1 + place as u32); // <by numbers: full>
            }
        } else {
            let me = me - 64;
            hopper::arrive_at_part::<128>(3);
            hopper::arrive_at_part::<128>(4);
            for round in 0..4 {
                let place = round % 2;
                hopper::sync_part::<128>(1 + place as u32); // <by numbers: take it>
                // The mistake: told before it is read.
                if wrong == 2 && round < 2 {
                    hopper::arrive_at_part::<128>(3 + place as u32);
                }
                // The mistake: the other place.
                let from = if wrong == 3 { 1 - place } else { place };
                y.set_unchecked(64 * round + me, PLACES.read([from, 63 - me])); // <by numbers: take>
                if wrong != 2 && round < 2 {
                    hopper::arrive_at_part::<128>(3 + place as u32);
                }
            }
        }
    }
}

/// A ring of two places with full and empty barriers: one lane of each warp that takes arrives.
#[kernel(block = 96, dynamic_shared = 256 + 32)]
fn ring_of_two(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id() as usize);
    unsafe {
        let (places, barriers) = (dynamic_shared::<u32>(0, 64), dynamic_shared::<u64>(256, 4));
        let (full, empty) = (|place| Barrier::at(barriers, place), |place| Barrier::at(barriers, 2 + place));
        if me == 0 {
            for place in 0..2 {
                full(place).init(32);
                // The mistake: as many as there are threads.
                empty(place).init(if wrong == 1 { 64 } else { 2 });
            }
        }
        thread::sync_threads();
        for round in 0..6 {
            let (place, phase) = (round % 2, (round / 2) as u32 % 2);
            if me < 32 {
                // At first a place is empty: the phase before the first one is over.
                // The mistake: it waits for the first phase at once.
                let parity = if wrong == 2 { phase } else { phase ^ 1 };
                empty(place).wait(parity); // <two: wait empty>
                places.write(32 * place + lane, (round + lane) as u32); // <two: fill>
                full(place).arrive();
            } else {
                // The mistake: the parity of the round and not of the phase.
                let parity = if wrong == 3 { round as u32 % 2 } else { phase };
                full(place).wait(parity);
                y.set_unchecked(64 * round + me - 32, places.read(32 * place + 31 - lane)); // <two: take>
                // The mistake: other lanes may still read.
                if wrong != 4 {
                    warp::sync_warp(warp::ALL_LANES);
                }
                if lane == 0 {
                    empty(place).arrive();
                }
            }
        }
    }
}

/// Blocks of threads of which some have nothing to do: whole warps, or parts.
#[kernel(block = 64)]
fn columns(wrong: u32, width: u32, y: GlobalSliceMut<'_, u32>) {
    static COLUMN: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x();
    unsafe {
        let is_inside = me < width;
        COLUMN.write(me as usize, u32::from(is_inside));
        // The same for all threads.
        if width > 10 {
            thread::sync_threads();
        }
        // The mistake: what is not inside, is not at the barrier.
        if wrong == 1 && !is_inside {
            return;
        }
        let sum = COLUMN.read(me as usize) + COLUMN.read(63 - me as usize);
        thread::sync_threads(); // <columns: barrier>
        COLUMN.write(me as usize, sum);
        if is_inside {
            y.set_unchecked(me as usize, sum);
        }
    }
}

/// A flag by which one warp tells another in shared memory that global memory is written.
#[kernel(block = 64)]
fn told_in_shared_memory(wrong: u32, data: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id() as usize);
    unsafe {
        if me == 0 {
            FLAG.write(0, 0);
        }
        thread::sync_threads();
        if me < 32 {
            data.set_unchecked(lane, lane as u32); // <told in shared: write>
            if wrong != 1 {
                warp::sync_warp(warp::ALL_LANES);
            }
            if lane == 0 {
                match wrong {
                    2 => FLAG.atomic(0).store(1, Relaxed, Scope::Block),
                    _ => FLAG.atomic(0).store(1, Release, Scope::Block),
                }
            }
        } else {
            // One lane asks for all.
            if lane == 0 {
                while FLAG.atomic(0).load(Acquire, Scope::Block) == 0 {}
            }
            if wrong != 3 {
                warp::sync_warp(warp::ALL_LANES);
            }
            y.set_unchecked(lane, data.get_unchecked(31 - lane)); // <told in shared: read>
        }
    }
}

/// Lanes that wait for one another by a flag, with the warp's meeting in the loop of only one of them.
#[kernel(block = 32)]
fn meeting_in_a_branch(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let lane = warp::lane_id() as usize;
    unsafe {
        if lane == 0 {
            FLAG.write(0, 0); // <meeting: zero>
        }
        warp::sync_warp(warp::ALL_LANES);
        if lane == 3 {
            // The mistake: the others are asked for, and wait for this one's flag.
            if wrong == 1 {
                warp::sync_warp(warp::ALL_LANES);
            }
            FLAG.atomic(0).store(1, Release, Scope::Block);
        } else {
            while FLAG.atomic(0).load(Acquire, Scope::Block) == 0 {} // <meeting: wait>
        }
        if wrong != 1 || lane != 3 {
            warp::sync_warp(warp::ALL_LANES);
        }
        y.set_unchecked(lane, 1);
    }
}

fn run_next_tile(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut next, mut y) = ([0], [0; 320]);
    let (next, y) = (GlobalAtomics::new(&mut next), GlobalSliceMut::new(&mut y));
    launch(executor, next_tile { wrong, next, y }, 2)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("rounds.rs"),
    patterns: &[
        Pattern {
            name: "two_buffers_in_turn",
            run: |wrong, executor| {
                launch(executor, two_buffers_in_turn { wrong, y: GlobalSliceMut::new(&mut [0.0; 64]) }, 1)
            },
            mistakes: &[
                found(SharedRace, "a round without a barrier", RACE, &["in turn: read", "in turn: write"]),
                found(SharedRace, "in place", RACE, &["in turn: read", "in turn: write"]),
            ],
        },
        Pattern {
            name: "next_tile",
            run: run_next_tile,
            mistakes: &[
                found(
                    SharedRace,
                    "no barrier before the next one is fetched",
                    RACE,
                    &["next tile: write", "next tile: read"],
                ),
                found(SharedRace, "no barrier behind the fetch", RACE, &["next tile: write", "next tile: read"]),
            ],
        },
        Pattern {
            name: "until_nothing_changes",
            run: |wrong, executor| {
                launch(executor, until_nothing_changes { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1)
            },
            mistakes: &[
                found(SharedRace, "no barrier behind the question", RACE, &["changes: reset", "changes: ask"]),
                found(SharedRace, "no barrier before the question", RACE, &["changes: note", "changes: ask"]),
            ],
        },
        Pattern {
            name: "sort_across_warps",
            run: |wrong, executor| {
                let mut y = [0; 128];
                launch(executor, sort_across_warps { wrong, y: GlobalSliceMut::new(&mut y) }, 1)?;
                assert!(wrong != 0 || y.is_sorted());
                Ok(())
            },
            mistakes: &[
                found(
                    SharedRace,
                    "`sync_warp` where the next step is of several warps",
                    RACE,
                    &["sort: read", "sort: write other"],
                ),
                found(WarpRace, "no `sync_warp` within a warp", RACE, &["sort: read", "sort: write"]),
            ],
        },
        Pattern {
            name: "sums_by_shuffles",
            run: |wrong, executor| launch(executor, sums_by_shuffles { wrong, y: GlobalSliceMut::new(&mut [0]) }, 1),
            mistakes: &[
                found(WarpDivergence, "lanes leave the loop", "warp divergence", &["shuffles: shuffle"]),
                found(SharedRace, "no barrier before the second sum", "unwritten shared", &["shuffles: read"]),
                found(InactiveLane, "lanes without a sum leave", "inactive lane", &["shuffles: second"]),
            ],
        },
        Pattern {
            name: "rows_of_a_tile",
            run: |wrong, executor| launch(executor, rows_of_a_tile { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[found(
                SharedRace,
                "a row of another warp",
                RACE,
                &["rows of a tile: write", "rows of a tile: read"],
            )],
        },
        Pattern {
            name: "two_places_by_numbers",
            run: |wrong, executor| {
                launch(executor, two_places_by_numbers { wrong, y: GlobalSliceMut::new(&mut [0; 256]) }, 1)
            },
            mistakes: &[
                found(
                    PartBarrier,
                    "a place is filled without asking",
                    "barrier meetings",
                    &["by numbers: full", "by numbers: take it"],
                ),
                found(
                    PartBarrier,
                    "a place is given back before it is read",
                    RACE,
                    &["by numbers: fill", "by numbers: take"],
                ),
                found(PartBarrier, "the other place", RACE, &["by numbers: fill", "by numbers: take"]),
            ],
        },
        Pattern {
            name: "ring_of_two",
            run: |wrong, executor| launch(executor, ring_of_two { wrong, y: GlobalSliceMut::new(&mut [0; 384]) }, 1),
            mistakes: &[
                found(PartBarrier, "threads are counted and not warps", "deadlock", &["two: wait empty"]),
                found(PartBarrier, "a place that is empty is waited for", "deadlock", &["two: wait empty"]),
                found(PartBarrier, "the parity of the round", "deadlock", &["two: wait empty"]),
                found(PartBarrier, "a place is given back for other lanes", RACE, &["two: fill", "two: take"]),
            ],
        },
        Pattern {
            name: "columns",
            run: |wrong, executor| {
                launch(executor, columns { wrong, width: 40, y: GlobalSliceMut::new(&mut [0; 64]) }, 1)
            },
            mistakes: &[found(
                BarrierDivergence,
                "threads outside leave before the barrier",
                "barrier divergence",
                &["columns: barrier"],
            )],
        },
        Pattern {
            name: "told_in_shared_memory",
            run: |wrong, executor| {
                let (mut data, mut y) = ([0; 32], [0; 32]);
                let (data, y) = (GlobalSliceMut::new(&mut data), GlobalSliceMut::new(&mut y));
                launch(executor, told_in_shared_memory { wrong, data, y }, 1)
            },
            mistakes: &[
                found(
                    GlobalRace,
                    "the flag is that of one lane",
                    "race in global memory",
                    &["told in shared: write", "told in shared: read"],
                ),
                found(
                    GlobalRace,
                    "the flag is stored relaxed",
                    "race in global memory",
                    &["told in shared: write", "told in shared: read"],
                ),
                found(
                    GlobalRace,
                    "one lane asks, and the others do not wait for it",
                    "race in global memory",
                    &["told in shared: write", "told in shared: read"],
                ),
            ],
        },
        Pattern {
            name: "meeting_in_a_branch",
            run: |wrong, executor| {
                launch(executor, meeting_in_a_branch { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1)
            },
            mistakes: &[found(
                EndlessWait,
                "one lane waits for those who wait for it",
                "stuck",
                &["meeting: zero", "meeting: wait"],
            )],
        },
    ],
};
