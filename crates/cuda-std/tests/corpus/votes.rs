//! Barriers of the block by which its threads also vote: numbers that are kept, rounds until nothing changes, rows that are valid, the last
//! block, keys by their bits.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::pattern::Class::{BarrierDivergence, Order, Scope as TooSmall, SharedRace};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in global memory";
const SHARED: &str = "race in shared memory";
const DIVERGENCE: &str = "barrier divergence";
const MIXED: &str = "barrier mixed";
const SPLIT: &str = "warp split at barriers";

/// Numbers that are kept are put one behind the other. How many a block has, a vote says, which is also the barrier behind what warps count.
#[kernel(block = 64)]
fn keeps_some(wrong: u32, x: GlobalSlice<'_, u32>, end: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static OF_WARPS: Shared<[u32; 2]> = Shared::new();
    static FIRST: Shared<[u32; 1]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    let Some(end) = end.get(0) else { return };
    unsafe {
        if me == 0 {
            FIRST.write(0, 0);
        }
        for tile in 0..2 {
            let i = (2 * tile + thread::block_idx_x() as usize) * 64 + me;
            // The mistake: threads behind the end leave alone.
            if wrong == 1 && i >= x.len() {
                break;
            }
            let number = if i < x.len() { x.get_unchecked(i) } else { 0 };
            let is_kept = number % 3 == 1;
            let kept = warp::warp_vote_ballot(warp::ALL_LANES, is_kept);
            if wrong != 2 && lane == 0 {
                OF_WARPS.write(me / 32, kept.count_ones()); // <keeps: of a warp>
            }
            let count = match wrong {
                // The mistakes: who keeps nothing only waits; a warp that keeps nothing goes on.
                3 if !is_kept => {
                    thread::sync_threads(); // <keeps: waits>
                    0
                }
                7 if kept == 0 => 0,
                _ => thread::sync_threads_count(is_kept), // <keeps: vote>
            };
            // The mistake: all threads take places.
            if me == 0 || wrong == 4 {
                FIRST.write(0, end.fetch_add(count, Relaxed, Scope::Device)); // <keeps: first>
            }
            if wrong != 5 {
                thread::sync_threads(); // <keeps: meet>
            }
            if wrong == 2 && lane == 0 {
                OF_WARPS.write(me / 32, kept.count_ones()); // <keeps: late>
            }
            let before = if me < 32 { 0 } else { OF_WARPS.read(0) }; // <keeps: before>
            if is_kept {
                let place = FIRST.read(0) + before + (kept & ((1 << lane) - 1)).count_ones(); // <keeps: place>
                y.set_unchecked(place as usize, number);
            }
            if wrong != 6 {
                thread::sync_threads();
            }
        }
    }
}

/// Each number becomes the least of its neighbours' and its own, until none of the block changes.
#[kernel(block = 64)]
fn settles_by_votes(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static LEAST: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        LEAST.write(me, x.get_unchecked(me)); // <settles: begin>
        if wrong != 6 {
            thread::sync_threads();
        }
        loop {
            let own = LEAST.read(me);
            let left = LEAST.read(me.saturating_sub(1)); // <settles: left>
            let right = LEAST.read((me + 1).min(63)); // <settles: right>
            let least = own.min(left).min(right);
            let has_changed = least != own;
            // The mistake: the vote stands before what it is about.
            if wrong == 2 && !thread::sync_threads_or(has_changed) {
                break;
            }
            if wrong != 1 && wrong != 2 {
                thread::sync_threads(); // <settles: before>
            }
            LEAST.write(me, least); // <settles: write>
            let goes_on = match wrong {
                2 => true,
                // The mistakes: each thread decides for itself; by another function; by a call of its own.
                3 => {
                    thread::sync_threads();
                    has_changed
                }
                4 if !has_changed => thread::sync_threads_and(false), // <settles: all>
                5 if !has_changed => thread::sync_threads_or(false),  // <settles: other call>
                _ => thread::sync_threads_or(has_changed),            // <settles: any>
            };
            if !goes_on {
                break;
            }
        }
        y.set_unchecked(me, LEAST.read(me));
    }
}

/// Rows are turned round, if they have no number that is too large. The vote on that is the barrier behind what is staged.
#[kernel(block = 64)]
fn valid_rows(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static ROW: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        for row in 0..4 {
            let number = x.get_unchecked(64 * row + me);
            let is_valid = number < 1000;
            ROW.write(me, number); // <valid: write>
            let are_valid = match wrong {
                // The mistakes: the first warp votes, and the other one waits; each warp votes by itself; the thread decides alone.
                1 if me >= 32 => {
                    thread::sync_threads(); // <valid: waits>
                    is_valid
                }
                2 => warp::warp_vote_all(warp::ALL_LANES, is_valid),
                _ => thread::sync_threads_and(is_valid), // <valid: vote>
            };
            match wrong {
                3 if !is_valid => return,
                4 if !is_valid => continue,
                3 | 4 => {}
                _ if !are_valid => continue,
                _ => {}
            }
            y.set_unchecked(64 * row + me, ROW.read(63 - me)); // <valid: read>
            if wrong != 5 {
                thread::sync_threads(); // <valid: next>
            }
        }
    }
}

/// A sum by the block that comes last: which one it is, its first thread finds, and tells the others by a vote.
#[kernel(block = 64)]
fn last_block_by_vote(
    wrong: u32,
    partials: GlobalSliceMut<'_, u32>,
    come: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    let (me, block, blocks) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, thread::grid_dim_x());
    let Some(come) = come.get(0) else { return };
    unsafe {
        partials.set_unchecked(64 * block + me, me as u32); // <last vote: partial>
        if wrong != 1 {
            thread::sync_threads();
        }
        let is_last = me == 0
            && 1 + match wrong {
                2 => come.fetch_add(1, Relaxed, Scope::Device),
                3 => come.fetch_add(1, Release, Scope::Device),
                4 => come.fetch_add(1, Acquire, Scope::Device),
                5 => come.fetch_add(1, AcqRel, Scope::Block), // <last vote: narrow>
                _ => come.fetch_add(1, AcqRel, Scope::Device),
            } == blocks;
        let is_last = match wrong {
            // The mistakes: only the first warp is told; only the first thread votes, and the others wait.
            6 => warp::warp_vote_any(warp::ALL_LANES, is_last),
            7 if me > 0 => {
                thread::sync_threads(); // <last vote: waits>
                false
            }
            _ => thread::sync_threads_or(is_last), // <last vote: vote>
        };
        if is_last {
            let sum = (0..blocks as usize).map(|block| partials.get_unchecked(64 * block + me)).sum(); // <last vote: add>
            y.set_unchecked(me, sum);
        }
    }
}

/// Keys in the order of their lowest bits, one bit after the other: a vote counts the zeros, and lets threads write where others have read.
#[kernel(block = 64)]
fn sorts_by_bits(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static KEYS: Shared<[u32; 64]> = Shared::new();
    static ZEROS: Shared<[u32; 2]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        KEYS.write(me, x.get_unchecked(me));
        thread::sync_threads();
        for bit in 0..3 {
            let key = KEYS.read(me); // <by bits: read>
            let is_zero = key >> bit & 1 == 0;
            let ballot = warp::warp_vote_ballot(warp::ALL_LANES, is_zero);
            if wrong != 2 && lane == 0 {
                ZEROS.write(me / 32, ballot.count_ones());
            }
            let zeros = match wrong {
                // The mistakes: warps count for themselves; threads with a zero vote, and the others do not come.
                3 => 2 * warp::reduce_add(warp::ALL_LANES, u32::from(is_zero)),
                4 if !is_zero => 32,
                _ => thread::sync_threads_count(is_zero), // <by bits: vote>
            };
            // The mistake: written behind the barrier that the vote is.
            if wrong == 2 && lane == 0 {
                ZEROS.write(me / 32, ballot.count_ones()); // <by bits: late>
            }
            let of_warps = if me < 32 { 0 } else { ZEROS.read(0) }; // <by bits: before>
            let before = of_warps + (ballot & ((1 << lane) - 1)).count_ones();
            let place = if is_zero { before } else { zeros + me as u32 - before };
            KEYS.write(place.min(63) as usize, key); // <by bits: write>
            if wrong != 1 {
                thread::sync_threads(); // <by bits: next>
            }
        }
        y.set_unchecked(me, KEYS.read(me));
    }
}

fn run_keeps(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..220).map(|i| i * 5 % 64).collect();
    let (mut end, mut y) = ([0], vec![0; 256]);
    let (end_view, y_view) = (GlobalAtomics::new(&mut end), GlobalSliceMut::new(&mut y));
    launch(executor, keeps_some { wrong, x: GlobalSlice::new(&x), end: end_view, y: y_view }, 2)?;
    if wrong == 0 {
        let mut expected: Vec<u32> = x.into_iter().filter(|x| x % 3 == 1).collect();
        y.truncate(end[0] as usize);
        expected.sort_unstable();
        y.sort_unstable();
        assert_eq!(expected, y);
    }
    Ok(())
}

fn run_until(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: [u32; 64] = std::array::from_fn(|i| if i == 20 { 5 } else { 7 + i as u32 % 3 });
    let mut y = [0; 64];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, settles_by_votes { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    assert!(wrong != 0 || y == [5; 64], "{y:?}");
    Ok(())
}

fn run_rows(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..256).map(|i| if i == 70 { 2000 } else { i }).collect();
    let mut y = vec![0; 256];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, valid_rows { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    if wrong == 0 {
        let expected = |i: usize| if i / 64 == 1 { 0 } else { x[i / 64 * 64 + 63 - i % 64] };
        assert!(y.iter().enumerate().all(|(i, &y)| y == expected(i)), "{y:?}");
    }
    Ok(())
}

fn run_last(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut partials, mut come, mut y) = (vec![0; 256], [0], [0; 64]);
    let (partials, come) = (GlobalSliceMut::new(&mut partials), GlobalAtomics::new(&mut come));
    launch(executor, last_block_by_vote { wrong, partials, come, y: GlobalSliceMut::new(&mut y) }, 4)?;
    assert!(wrong != 0 || y == std::array::from_fn(|i| 4 * i as u32), "{y:?}");
    Ok(())
}

fn run_bits(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut x: [u32; 64] = std::array::from_fn(|i| (i * i / 3 + i) as u32 % 8);
    let mut y = [0; 64];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, sorts_by_bits { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    x.sort_unstable();
    assert!(wrong != 0 || y == x, "{y:?}");
    Ok(())
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("votes.rs"),
    patterns: &[
        Pattern {
            name: "keeps_some",
            run: run_keeps,
            mistakes: &[
                found(BarrierDivergence, "threads behind the end leave alone", DIVERGENCE, &["keeps: vote"]),
                found(SharedRace, "written behind the vote and the barrier", SHARED, &["keeps: late", "keeps: before"]),
                found(BarrierDivergence, "who keeps nothing only waits", MIXED, &["keeps: waits", "keeps: vote"]),
                found(SharedRace, "all threads take places", SHARED, &["keeps: first", "keeps: first"]),
                found(SharedRace, "no barrier behind the vote", SHARED, &["keeps: first", "keeps: place"]),
                found(SharedRace, "no barrier before the next tile", SHARED, &["keeps: before", "keeps: of a warp"]),
                found(BarrierDivergence, "a warp without votes goes on", MIXED, &["keeps: vote", "keeps: meet"]),
            ],
        },
        Pattern {
            name: "settles_by_votes",
            run: run_until,
            mistakes: &[
                found(SharedRace, "no barrier before the numbers change", SHARED, &["settles: left", "settles: write"]),
                found(SharedRace, "the vote stands before the change", SHARED, &["settles: right", "settles: write"]),
                found(BarrierDivergence, "each thread decides for itself", DIVERGENCE, &["settles: before"]),
                found(BarrierDivergence, "threads ask for all and for any", MIXED, &["settles: all", "settles: any"]),
                found(BarrierDivergence, "lanes vote by two calls", SPLIT, &["settles: other call"]),
                found(SharedRace, "no barrier before the first round", SHARED, &["settles: begin", "settles: right"]),
            ],
        },
        Pattern {
            name: "valid_rows",
            run: run_rows,
            mistakes: &[
                found(
                    BarrierDivergence,
                    "a warp waits where the other one votes",
                    MIXED,
                    &["valid: waits", "valid: vote"],
                ),
                found(SharedRace, "a vote of the warp", SHARED, &["valid: write", "valid: read"]),
                found(BarrierDivergence, "who is not valid returns", DIVERGENCE, &["valid: next"]),
                found(BarrierDivergence, "who is not valid goes on", MIXED, &["valid: vote", "valid: next"]),
                found(SharedRace, "no barrier before the next row", SHARED, &["valid: write", "valid: read"]),
            ],
        },
        Pattern {
            name: "last_block_by_vote",
            run: run_last,
            mistakes: &[
                found(Order, "counted before all have written", RACE, &["last vote: partial", "last vote: add"]),
                found(Order, "counted relaxed", RACE, &["last vote: partial", "last vote: add"]),
                found(Order, "counted without acquiring", RACE, &["last vote: partial", "last vote: add"]),
                found(Order, "counted without releasing", RACE, &["last vote: partial", "last vote: add"]),
                found(TooSmall, "counted for the own block", RACE, &["last vote: narrow", "last vote: narrow"]),
                found(Order, "a vote of the warp", RACE, &["last vote: partial", "last vote: add"]),
                found(BarrierDivergence, "only one thread votes", MIXED, &["last vote: waits", "last vote: vote"]),
            ],
        },
        Pattern {
            name: "sorts_by_bits",
            run: run_bits,
            mistakes: &[
                found(SharedRace, "no barrier before the next bit", SHARED, &["by bits: read", "by bits: write"]),
                found(SharedRace, "written behind the vote", SHARED, &["by bits: before", "by bits: late"]),
                found(SharedRace, "sums of warps in place of a vote", SHARED, &["by bits: read", "by bits: write"]),
                found(
                    BarrierDivergence,
                    "threads without a zero do not vote",
                    MIXED,
                    &["by bits: vote", "by bits: next"],
                ),
            ],
        },
    ],
};
