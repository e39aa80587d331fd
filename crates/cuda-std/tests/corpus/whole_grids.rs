//! Whole grids: meetings of all blocks, blocks that take work until there is none, waits for blocks that have ended or not begun, stacks.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope};
use cuda_std::executor::{Executor, LaunchError};
use cuda_std::grid;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::{EndlessWait, GlobalRace, Order, Panic, Unwritten};
use crate::pattern::{Family, Pattern, Report, found, launch, sometimes};

const RACE: &str = "race in global memory";
const STUCK: &str = "stuck";

/// Rounds of a stencil over the whole grid, from one array to the other.
#[kernel(block = 32, cooperative, any_grid)]
fn rounds_of_a_grid(wrong: u32, x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, f32>, met: GlobalAtomics<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        for round in 0..3 {
            let (from, to) = if round % 2 == 0 { (x, y) } else { (y, x) };
            let mean = (from.get_unchecked(i) + from.get_unchecked((i + 1) % from.len())) / 2.0; // <of a grid: read>
            // The mistake: in place.
            let to = if wrong == 2 { from } else { to };
            to.set_unchecked(i, mean); // <of a grid: write>
            // The mistakes: a round without a meeting; a block that does not come; the block alone.
            match wrong {
                1 if round == 1 => {}
                3 if round == 1 && thread::block_idx_x() == 1 => {}
                4 => thread::sync_threads(),
                _ => grid::sync(met),
            }
        }
    }
}

/// A barrier of the grid by hand: a count and a turn that changes.
#[kernel(block = 32)]
fn turns_by_hand(wrong: u32, x: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    let (Some(count), Some(turn)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        for round in 0..3 {
            x.set_unchecked(block as usize, round); // <by hand: write>
            for meeting in 0..2 {
                let before = turn.load(Relaxed, Scope::Device);
                let mine = match wrong {
                    1 => count.fetch_add(1, Release, Scope::Device),
                    _ => count.fetch_add(1, AcqRel, Scope::Device),
                };
                if mine + 1 == blocks {
                    // The mistake: others may count before the count is zero.
                    if wrong == 3 {
                        turn.store(before ^ 1, Release, Scope::Device);
                        count.store(0, Relaxed, Scope::Device);
                    } else {
                        count.store(0, Relaxed, Scope::Device);
                        turn.store(before ^ 1, Release, Scope::Device);
                    }
                } else {
                    while match wrong {
                        2 => turn.load(Relaxed, Scope::Device),
                        _ => turn.load(Acquire, Scope::Device), // <by hand: wait>
                    } == before
                    {}
                }
                // Between the two meetings all read what the next one has written.
                if meeting == 0 {
                    y.set_unchecked(block as usize, x.get_unchecked((block as usize + 1) % blocks as usize)); // <by hand: read>
                }
            }
        }
    }
}

/// Blocks wait for a place that another launch should fill, or blocks that come later.
#[kernel(block = 32)]
fn waits_for_all(wrong: u32, come: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(come) = come.get(0) else { return };
    let all = come.fetch_add(1, AcqRel, Scope::Device) + 1;
    // The mistake: all wait for all, and there are more than run at a time.
    let awaited = if wrong == 1 { thread::grid_dim_x() } else { all };
    while come.load(Acquire, Scope::Device) < awaited {} // <for all: wait>
    unsafe { y.set_unchecked(thread::block_idx_x() as usize, 1) }
}

/// Blocks that see by plain reads whether the first one has written.
#[kernel(block = 32)]
fn looks_at_the_first(wrong: u32, x: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    unsafe {
        if block == 0 {
            x.set_unchecked(0, 1); // <the first: write>
        } else if wrong == 1 {
            while x.get_unchecked(0) == 0 {} // <the first: read>
        }
        y.set_unchecked(block, 1);
    }
}

/// Work of which a block may make more: it ends when nothing is left.
#[kernel(block = 32)]
fn work_makes_work(wrong: u32, flags: GlobalAtomics<'_, u32>, items: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    // What is put in, what is announced, what is taken, what is not yet done.
    let (Some(put), Some(taken), Some(open)) = (flags.get(0), flags.get(1), flags.get(2)) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            items.set_unchecked(0, 3);
            put.store(1, Release, Scope::Device);
        }
        loop {
            let there = put.load(Acquire, Scope::Device);
            let next = taken.load(Relaxed, Scope::Device);
            if next < there && taken.compare_exchange(next, next + 1, Relaxed, Scope::Device).is_ok() {
                let item = items.get_unchecked(next as usize); // <more work: take>
                if item > 0 {
                    // Whoever puts waits for its turn; the mistake: two may have one place.
                    let place = put.load(Relaxed, Scope::Device);
                    open.fetch_add(1, Relaxed, Scope::Device);
                    items.set_unchecked(place as usize, item - 1); // <more work: put>
                    match wrong {
                        1 => put.store(place + 1, Relaxed, Scope::Device),
                        _ => put.store(place + 1, Release, Scope::Device),
                    }
                }
                open.fetch_add(1 << 16, Relaxed, Scope::Device);
            }
            if open.load(Relaxed, Scope::Device) == 4 << 16 | 3 {
                return;
            }
        }
    }
}

/// A tree that is walked by calls.
#[kernel(block = 32, stack = 65536)]
fn walks_a_tree(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    #[inline(never)]
    fn walk(depth: u32, forever: bool) -> u32 {
        let numbers = std::hint::black_box([depth; 16]);
        if depth == 0 && !forever {
            return 1;
        }
        walk(depth.wrapping_sub(1), forever) + std::hint::black_box(numbers)[3]
    }
    unsafe { y.set_unchecked(thread::index_1d(), walk(6, wrong == 1)) }
}

/// The sum of all, in a scratch array for the blocks, with one place for each.
#[kernel(block = 32)]
fn sums_of_blocks(wrong: u32, sums: GlobalSliceMut<'_, u32>, done: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(done) = done.get(0) else { return };
    unsafe {
        // The mistake: one of the blocks has nothing to add.
        if wrong != 1 || block != 2 {
            sums.set_unchecked(block as usize, block); // <of blocks: write>
        }
        // The mistake: the last but one.
        let last = if wrong == 2 { blocks - 1 } else { blocks };
        if done.fetch_add(1, AcqRel, Scope::Device) + 1 == last {
            y.set_unchecked(0, (0..blocks as usize).map(|i| sums.get_unchecked(i)).sum()); // <of blocks: read>
        }
    }
}

fn run_rounds(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut x, mut y, mut met) = ([1.0; 128], [0.0; 128], [0]);
    let (x, y) = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
    launch(executor, rounds_of_a_grid { wrong, x, y, met: GlobalAtomics::new(&mut met) }, 4)
}

/// With more blocks than a GPU holds at once a cooperative launch is refused.
#[test]
fn a_cooperative_launch_of_too_many_blocks_is_refused() {
    let executor = Executor::new(cuda_std::executor::Checks::Full).multiprocessors(1);
    let blocks = 1000;
    let (mut x, mut y, mut met) = (vec![1.0; 32 * blocks], vec![0.0; 32 * blocks], [0]);
    let (x, y) = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
    let kernel = rounds_of_a_grid { wrong: 0, x, y, met: GlobalAtomics::new(&mut met) };
    match launch(&executor, kernel, blocks as u32) {
        Err(Report::Launch(LaunchError::Fault(fault))) => panic!("{fault}"),
        Err(Report::Launch(error)) => println!("{error}"),
        other => panic!("{other:?}"),
    }
}

fn run_work(wrong: u32, executor: &Executor) -> Result<(), Report> {
    with_flags(8, |items, flags, _| launch(&executor.clone().window(2), work_makes_work { wrong, flags, items }, 2))
}

fn run_sums(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut sums = [0; 4];
    let _unwritten = executor.without_values(sums.as_ptr().addr(), size_of_val(&sums)); // <of blocks: allocated>
    with_flags(1, |_, done, y| {
        launch(executor, sums_of_blocks { wrong, sums: GlobalSliceMut::new(&mut sums), done, y }, 4)
    })
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("whole_grids.rs"),
    patterns: &[
        Pattern {
            name: "rounds_of_a_grid",
            run: run_rounds,
            mistakes: &[
                found(GlobalRace, "a round without a meeting", RACE, &["of a grid: read", "of a grid: write"]),
                found(GlobalRace, "in place", RACE, &["of a grid: read", "of a grid: write"]),
                found(GlobalRace, "a block does not come to a meeting", RACE, &["of a grid: read", "of a grid: write"]),
                found(GlobalRace, "blocks meet alone", RACE, &["of a grid: read", "of a grid: write"]),
            ],
        },
        Pattern {
            name: "turns_by_hand",
            run: |wrong, executor| {
                with_flags(4, |x, flags, y| launch(executor, turns_by_hand { wrong, x, flags, y }, 4))
            },
            mistakes: &[
                found(Order, "the last one does not acquire", RACE, &["by hand: write", "by hand: read"]),
                found(Order, "waits relaxed", RACE, &["by hand: write", "by hand: read"]),
                sometimes(EndlessWait, "the turn changes before the count is zero", STUCK, &["by hand: wait"]),
            ],
        },
        Pattern {
            name: "waits_for_all",
            run: |wrong, executor| with_flags(8, |_, come, y| launch(executor, waits_for_all { wrong, come, y }, 8)),
            mistakes: &[found(EndlessWait, "more blocks than run at a time", STUCK, &["for all: wait"])],
        },
        Pattern {
            name: "looks_at_the_first",
            run: |wrong, executor| with_flags(4, |x, _, y| launch(executor, looks_at_the_first { wrong, x, y }, 4)),
            mistakes: &[found(
                GlobalRace,
                "plain reads of what another block writes",
                RACE,
                &["the first: write", "the first: read"],
            )],
        },
        Pattern {
            name: "work_makes_work",
            run: run_work,
            mistakes: &[sometimes(Order, "work is announced relaxed", RACE, &["more work: put", "more work: take"])],
        },
        Pattern {
            name: "walks_a_tree",
            run: |wrong, executor| launch(executor, walks_a_tree { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[found(Panic, "calls without an end", "stack overflow", &[])],
        },
        Pattern {
            name: "sums_of_blocks",
            run: run_sums,
            mistakes: &[
                found(
                    Unwritten,
                    "a block has nothing to add",
                    "unwritten global",
                    &["of blocks: read", "of blocks: allocated"],
                ),
                found(GlobalRace, "the last but one adds up", RACE, &["of blocks: write", "of blocks: read"]),
            ],
        },
    ],
};
