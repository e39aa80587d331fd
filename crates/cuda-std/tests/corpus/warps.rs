//! What the lanes of a warp do together: exchanges through shared memory, shuffles, votes, and the masks of all of these.

use cuda_std::prelude::*;

use crate::pattern::Class::{InactiveLane, WarpDivergence, WarpRace};
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in shared memory";
const DIVERGENCE: &str = "warp divergence";

/// The last 32 sums of a reduction, by one warp, as old code does it: without a barrier.
#[kernel(block = 64)]
fn warp_synchronous_sum(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[f32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        SUMS.write(me, x.get_unchecked(me));
        thread::sync_threads();
        if me < 32 {
            for stride in [32, 16, 8, 4, 2, 1] {
                let sum = SUMS.read(me) + SUMS.read(me + stride); // <old sum: read>
                if me < stride {
                    SUMS.write(me, sum); // <old sum: write>
                }
                if wrong != 1 {
                    warp::sync_warp(warp::ALL_LANES);
                }
            }
        }
        if me == 0 {
            y.set_unchecked(0, SUMS.read(0));
        }
    }
}

/// Lanes hand their numbers to the lane 16 further on.
#[kernel(block = 32)]
fn exchange_of_halves(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 32]> = Shared::new();
    let lane = warp::lane_id() as usize;
    unsafe {
        NUMBERS.write(lane, lane as u32); // <halves: write>
        match wrong {
            0 => warp::sync_warp(warp::ALL_LANES),
            // Each half waits for itself.
            1 => warp::sync_warp(if lane < 16 { 0xFFFF } else { 0xFFFF_0000 }),
            // Lanes wait for one another in a shuffle, which does not order memory.
            2 => _ = warp::warp_shuffle_xor(warp::ALL_LANES, lane as u32, 16, 32),
            _ => _ = warp::warp_vote_any(warp::ALL_LANES, true),
        }
        y.set_unchecked(lane, NUMBERS.read(lane ^ 16)); // <halves: read>
    }
}

/// Each group of eight lanes adds up its numbers through shared memory.
#[kernel(block = 32)]
fn sums_of_groups(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static SUMS: Shared<[u32; 32]> = Shared::new();
    let lane = warp::lane_id() as usize;
    // The mistake: groups of four.
    let group = if wrong == 1 { 0xF << (lane / 4 * 4) } else { 0xFF << (lane / 8 * 8) };
    unsafe {
        SUMS.write(lane, lane as u32); // <groups: first>
        for distance in [4, 2, 1] {
            warp::sync_warp(group);
            let sum = SUMS.read(lane) + SUMS.read(lane ^ distance); // <groups: read>
            warp::sync_warp(group);
            SUMS.write(lane, sum);
        }
        y.set_unchecked(lane, SUMS.read(lane));
    }
}

/// Rows of eight warps, each of which writes a row and reads it in another order, again and again.
#[kernel(block = 256)]
fn row_of_a_warp(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static ROWS: Shared<[[u32; 32]; 8]> = Shared::new();
    let (row, lane) = (thread::thread_idx_x() as usize / 32, warp::lane_id() as usize);
    let mut sum = 0;
    unsafe {
        for round in 0..3 {
            // The mistake: the row is another one in each round, and belongs to another warp.
            let row = if wrong == 2 { (row + round as usize) % 8 } else { row };
            ROWS.write([row, lane], lane as u32 * round); // <row: write>
            warp::sync_warp(warp::ALL_LANES);
            sum += ROWS.read([row, 31 - lane]); // <row: read>
            if wrong != 1 {
                warp::sync_warp(warp::ALL_LANES);
            }
        }
        y.set_unchecked(thread::thread_idx_x() as usize, sum);
    }
}

/// A sum by shuffles, of the lanes that have a number.
#[kernel(block = 32)]
fn sum_of_some_lanes(wrong: u32, count: u32, y: GlobalSliceMut<'_, f32>) {
    let lane = warp::lane_id();
    unsafe {
        let mask = match wrong {
            // The mistake: the mask of all lanes, in a branch that some do not take.
            1 => warp::ALL_LANES,
            // The mistake: only half of those that come.
            2 => 0xFF,
            _ => warp::warp_vote_ballot(warp::ALL_LANES, lane < count),
        };
        if lane < count {
            let mut sum = lane as f32;
            for distance in [8, 4, 2, 1] {
                sum += warp::warp_shuffle_xor(mask, sum, distance, 16).0; // <some lanes: shuffle>
            }
            y.set_unchecked(lane as usize, sum);
        }
        thread::sync_threads();
    }
}

/// Whether all lanes are done, asked in each round.
#[kernel(block = 32)]
fn rounds_until_all_are_done(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    let mut rounds = 0;
    unsafe {
        loop {
            rounds += 1;
            let is_done = rounds > lane / 8;
            // The mistake: lanes that are done leave alone, and the others still ask for them.
            if wrong == 1 && is_done {
                break;
            }
            let all_are_done = warp::warp_vote_all(warp::ALL_LANES, is_done); // <rounds: vote>
            if all_are_done {
                break;
            }
        }
        thread::sync_threads();
        y.set_unchecked(lane as usize, rounds);
    }
}

/// Even and odd lanes exchange with their like.
#[kernel(block = 32)]
fn even_and_odd(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    let (even, odd) = if wrong == 1 { (warp::ALL_LANES, warp::ALL_LANES) } else { (0x5555_5555, 0xAAAA_AAAA) };
    unsafe {
        let other = if lane.is_multiple_of(2) {
            warp::warp_shuffle_xor(even, lane, 2, 32).0 // <even: shuffle>
        } else if wrong == 1 {
            warp::warp_shuffle_up(odd, lane, 2, 32).0
        } else {
            // The mistake: the last lanes name themselves only, and the others wait for them.
            let mask = if wrong == 2 && lane >= 29 { 0xA000_0000 } else { odd };
            warp::warp_shuffle_xor(mask, lane, 2, 32).0 // <odd: shuffle>
        };
        thread::sync_threads();
        y.set_unchecked(lane as usize, other);
    }
}

/// A `sync_warp` behind a branch that lanes leave in another way.
#[kernel(block = 64)]
fn joins_again(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    unsafe {
        let mut sum = 0;
        for i in 0..=lane % 4 {
            sum += i;
            if wrong == 1 && i == 2 {
                warp::sync_warp(warp::ALL_LANES); // <joins: inside>
            }
        }
        if wrong != 1 {
            warp::sync_warp(warp::ALL_LANES);
        }
        thread::sync_threads();
        y.set_unchecked(thread::thread_idx_x() as usize, sum);
    }
}

/// A broadcast from the first lane of those that take part.
#[kernel(block = 32)]
fn leader_tells(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    unsafe {
        let mask = warp::warp_vote_ballot(warp::ALL_LANES, lane >= 5);
        if lane < 5 {
            return;
        }
        // The mistakes: lane 0 has left; or the mask does not name the lane that tells.
        let (mask, leader) = match wrong {
            1 => (mask, 0),
            2 => (if lane < 16 { mask & 0xFFFF } else { mask & 0xFFFF_0000 }, 20),
            _ => (mask, mask.trailing_zeros()),
        };
        let told = warp::warp_shuffle_idx(mask, 100 + lane, leader, 32).0; // <leader: shuffle>
        y.set_unchecked(lane as usize, told);
    }
}

/// A sum over a block whose last warp is not whole.
#[kernel(block = 48)]
fn sum_of_a_partial_warp(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (me, lane) = (thread::thread_idx_x(), warp::lane_id());
    // The lanes that this warp has.
    let lanes = if me < 32 { 32 } else { 16 };
    let mut sum = me;
    unsafe {
        for distance in [16, 8, 4, 2, 1] {
            let (other, _) = match wrong {
                1 => warp::warp_shuffle_down(warp::ALL_LANES, sum, distance, 32), // <partial: shuffle>
                _ => warp::warp_shuffle_idx(warp::ALL_LANES, sum, (lane + distance).min(lanes - 1), 32),
            };
            if lane + distance < lanes || wrong == 1 {
                sum = sum.wrapping_add(other);
            }
        }
        if lane == 0 {
            y.set_unchecked(me as usize / 32, sum);
        }
    }
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("warps.rs"),
    patterns: &[
        Pattern {
            name: "warp_synchronous_sum",
            run: |wrong, executor| {
                let (x, mut y) = ([1.0; 64], [0.0]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, warp_synchronous_sum { wrong, x, y }, 1)
            },
            mistakes: &[found(WarpRace, "no `sync_warp`", RACE, &["old sum: read", "old sum: write"])],
        },
        Pattern {
            name: "exchange_of_halves",
            run: |wrong, executor| {
                launch(executor, exchange_of_halves { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1)
            },
            mistakes: &[
                found(WarpRace, "each half waits for itself only", RACE, &["halves: write", "halves: read"]),
                found(WarpRace, "a shuffle in place of `sync_warp`", RACE, &["halves: write", "halves: read"]),
                found(WarpRace, "a vote in place of `sync_warp`", RACE, &["halves: write", "halves: read"]),
            ],
        },
        Pattern {
            name: "sums_of_groups",
            run: |wrong, executor| launch(executor, sums_of_groups { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[found(
                WarpRace,
                "masks of four lanes for groups of eight",
                RACE,
                &["groups: first", "groups: read"],
            )],
        },
        Pattern {
            name: "row_of_a_warp",
            run: |wrong, executor| launch(executor, row_of_a_warp { wrong, y: GlobalSliceMut::new(&mut [0; 256]) }, 1),
            mistakes: &[
                found(WarpRace, "no `sync_warp` before the next round", RACE, &["row: read", "row: write"]),
                found(WarpRace, "a row that another warp has as well", RACE, &["row: write", "row: write"]),
            ],
        },
        Pattern {
            name: "sum_of_some_lanes",
            run: |wrong, executor| {
                launch(executor, sum_of_some_lanes { wrong, count: 16, y: GlobalSliceMut::new(&mut [0.0; 32]) }, 1)
            },
            mistakes: &[
                found(WarpDivergence, "the mask of all lanes in a branch", DIVERGENCE, &["some lanes: shuffle"]),
                found(
                    WarpDivergence,
                    "a mask without some of those who come",
                    "lane not in mask",
                    &["some lanes: shuffle"],
                ),
            ],
        },
        Pattern {
            name: "rounds_until_all_are_done",
            run: |wrong, executor| {
                launch(executor, rounds_until_all_are_done { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1)
            },
            mistakes: &[found(WarpDivergence, "lanes leave the loop alone", DIVERGENCE, &["rounds: vote"])],
        },
        Pattern {
            name: "even_and_odd",
            run: |wrong, executor| launch(executor, even_and_odd { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[
                found(WarpDivergence, "the mask of all lanes in both branches", DIVERGENCE, &["even: shuffle"]),
                found(WarpDivergence, "masks that differ from lane to lane", DIVERGENCE, &["odd: shuffle"]),
            ],
        },
        Pattern {
            name: "joins_again",
            run: |wrong, executor| launch(executor, joins_again { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[found(
                WarpDivergence,
                "`sync_warp` in a loop of different lengths",
                DIVERGENCE,
                &["joins: inside"],
            )],
        },
        Pattern {
            name: "leader_tells",
            run: |wrong, executor| launch(executor, leader_tells { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[
                found(InactiveLane, "the lane that tells has left", "inactive lane", &["leader: shuffle"]),
                found(
                    InactiveLane,
                    "the mask does not name the lane that tells",
                    "inactive lane",
                    &["leader: shuffle"],
                ),
            ],
        },
        Pattern {
            name: "sum_of_a_partial_warp",
            run: |wrong, executor| {
                launch(executor, sum_of_a_partial_warp { wrong, y: GlobalSliceMut::new(&mut [0; 2]) }, 1)
            },
            mistakes: &[found(
                InactiveLane,
                "lanes that the block does not have",
                "inactive lane",
                &["partial: shuffle"],
            )],
        },
    ],
};
