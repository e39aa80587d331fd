//! Sums that blocks hand over to one another by flags, as a scan with decoupled look-back and a Stream-K product do, and one order, fence or
//! scope too weak.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::pattern::Class::{Order, Scope as TooSmall};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in global memory";
const SHARED: &str = "race in shared memory";

/// What a block has told of itself: the sum of its own numbers, or of all up to its last one.
const OWN: u32 = 1;
const ALL: u32 = 2;

/// An inclusive scan. A block tells the others of the sum of its own numbers, and then looks back, block by block: what it finds are such sums,
/// until it finds one of all numbers up to there.
///
/// After D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016).
#[kernel(block = 32)]
fn look_back(wrong: u32, sums: GlobalSliceMut<'_, u32>, states: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static BEFORE: Shared<[u32; 1]> = Shared::new();
    let (me, block, blocks) = (thread::thread_idx_x(), thread::block_idx_x() as usize, thread::grid_dim_x() as usize);
    let tell = |sum: u32, state: u32| {
        let Some(told) = states.get(block) else { return };
        // SAFETY: one place for each block and state.
        unsafe { sums.set_unchecked(block + blocks * (state as usize - 1), sum) }; // <look back: sum>
        match wrong {
            1 => told.store(state, Relaxed, Scope::Device),
            3 => told.store(state, Release, Scope::Block), // <look back: narrow store>
            _ => told.store(state, Release, Scope::Device), // <look back: store>
        }
    };
    let find = |before: usize| {
        let Some(told) = states.get(before) else { return (ALL, 0) };
        let load = || match wrong {
            4 => told.load(Relaxed, Scope::Block),  // <look back: narrow load>
            _ => told.load(Relaxed, Scope::Device), // <look back: load>
        };
        let mut state = load();
        while state == 0 {
            state = load();
        }
        if wrong != 2 {
            fence(AcqRel, if wrong == 5 { Scope::Block } else { Scope::Device });
        }
        // SAFETY: in bounds; and where nothing is wrong, the block has told of it.
        (state, unsafe { sums.get_unchecked(before + blocks * (state as usize - 1)) }) // <look back: find>
    };
    unsafe {
        if me == 0 {
            let mut sum = 0;
            if block > 0 {
                tell(32, OWN);
                for before in (0..block).rev() {
                    let (state, found) = find(before);
                    sum += found;
                    if state == ALL {
                        break;
                    }
                }
            }
            tell(sum + 32, ALL);
            BEFORE.write(0, sum); // <look back: before>
        }
        if wrong != 6 {
            thread::sync_threads();
        }
        y.set_unchecked(32 * block + me as usize, BEFORE.read(0) + me + 1); // <look back: use>
    }
}

/// The steps of a tile, and those of a block: the last steps of the first tile are the second block's, as is the first one of the second tile.
const OF_TILE: usize = 3;
const OF_BLOCK: usize = 2;

/// Two tiles by three blocks, each of which takes as many steps. The block that has a tile's first step waits for what the next one has added
/// up of it.
///
/// After M. Osama et al., "Stream-K: Work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU" (2023).
#[kernel(block = 64)]
fn stream_k(wrong: u32, partials: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (me, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let steps = OF_BLOCK * block..OF_BLOCK * (block + 1);
    for tile in 0..2 {
        let of_tile = OF_TILE * tile..OF_TILE * (tile + 1);
        let (first, end) = (steps.start.max(of_tile.start), steps.end.min(of_tile.end));
        if first >= end {
            continue;
        }
        let mut sum = (first..end).map(|step| step as u32).sum::<u32>();
        unsafe {
            if first > of_tile.start {
                partials.set_unchecked(64 * block + me, sum); // <stream: partial>
                if wrong != 3 {
                    thread::sync_threads();
                }
                if let Some(flag) = flags.get(block)
                    && me == 0
                {
                    if wrong != 2 {
                        fence(AcqRel, if wrong == 5 { Scope::Block } else { Scope::Device });
                    }
                    match wrong {
                        6 => flag.store(1, Relaxed, Scope::Block),  // <stream: narrow store>
                        _ => flag.store(1, Relaxed, Scope::Device), // <stream: store>
                    }
                }
                continue;
            }
            if end < of_tile.end {
                if let Some(flag) = flags.get(block + 1)
                    && me == 0
                {
                    while match wrong {
                        1 => flag.load(Relaxed, Scope::Device),
                        7 => flag.load(Acquire, Scope::Block), // <stream: narrow load>
                        _ => flag.load(Acquire, Scope::Device), // <stream: load>
                    } == 0
                    {}
                }
                if wrong != 4 {
                    thread::sync_threads();
                }
                sum += partials.get_unchecked(64 * (block + 1) + me); // <stream: add>
            }
            y.set_unchecked(64 * tile + me, sum);
        }
    }
}

/// The scan, whose results are looked at where it is right.
fn run_look_back(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut sums, mut states, mut y) = (vec![0; 12], vec![0; 6], vec![0; 192]);
    let (sums, states) = (GlobalSliceMut::new(&mut sums), GlobalAtomics::new(&mut states));
    launch(executor, look_back { wrong, sums, states, y: GlobalSliceMut::new(&mut y) }, 6)?;
    if wrong == 0 {
        assert!((1..).zip(y).all(|(expected, y)| y == expected));
    }
    Ok(())
}

/// The tiles, likewise.
fn run_stream_k(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut partials, mut flags, mut y) = (vec![0; 192], vec![0; 3], vec![0; 128]);
    let (partials, flags) = (GlobalSliceMut::new(&mut partials), GlobalAtomics::new(&mut flags));
    launch(executor, stream_k { wrong, partials, flags, y: GlobalSliceMut::new(&mut y) }, 3)?;
    if wrong == 0 {
        assert_eq!(y, [[3; 64], [12; 64]].concat());
    }
    Ok(())
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("handed_over.rs"),
    patterns: &[
        Pattern {
            name: "look_back",
            run: run_look_back,
            mistakes: &[
                found(Order, "a state is stored relaxed", RACE, &["look back: sum", "look back: find"]),
                found(Order, "no fence behind the load of a state", RACE, &["look back: sum", "look back: find"]),
                found(
                    TooSmall,
                    "a state is stored for the own block",
                    RACE,
                    &["look back: narrow store", "look back: load"],
                ),
                found(
                    TooSmall,
                    "a state is loaded for the own block",
                    RACE,
                    &["look back: store", "look back: narrow load"],
                ),
                found(TooSmall, "a fence for the own block", RACE, &["look back: sum", "look back: find"]),
                found(Order, "no barrier behind the look back", SHARED, &["look back: before", "look back: use"]),
            ],
        },
        Pattern {
            name: "stream_k",
            run: run_stream_k,
            mistakes: &[
                found(Order, "the flag is loaded relaxed", RACE, &["stream: partial", "stream: add"]),
                found(Order, "no fence before the flag", RACE, &["stream: partial", "stream: add"]),
                found(Order, "no barrier before the flag", RACE, &["stream: partial", "stream: add"]),
                found(Order, "no barrier behind the wait", RACE, &["stream: partial", "stream: add"]),
                found(TooSmall, "a fence for the own block", RACE, &["stream: partial", "stream: add"]),
                found(
                    TooSmall,
                    "the flag is stored for the own block",
                    RACE,
                    &["stream: narrow store", "stream: load"],
                ),
                found(
                    TooSmall,
                    "the flag is loaded for the own block",
                    RACE,
                    &["stream: store", "stream: narrow load"],
                ),
            ],
        },
    ],
};
