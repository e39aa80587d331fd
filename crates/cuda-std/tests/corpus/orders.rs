//! What atomic operations and fences order: blocks and warps that tell one another what they have done, and one order, fence or scope too
//! weak.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, SeqCst, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::pattern::Class::{Order, Scope as TooSmall};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in global memory";
const SHARED: &str = "race in shared memory";

/// Block 0 makes a number, block 1 takes it, by a flag.
#[kernel(block = 32)]
fn message(wrong: u32, data: GlobalSliceMut<'_, u32>, flag: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flag.get(0) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            if wrong != 3 {
                data.set_unchecked(0, 42); // <message: write>
            }
            match wrong {
                1 => flag.store(1, Relaxed, Scope::Device),
                // For scopes that leave out the other block, the two accesses of the flag are a race themselves.
                4 => flag.store(1, Release, Scope::Block), // <message: narrow>
                _ => flag.store(1, Release, Scope::Device),
            }
            if wrong == 3 {
                data.set_unchecked(0, 42); // <message: late write>
            }
        } else {
            let load = || match wrong {
                2 => flag.load(Relaxed, Scope::Device),
                _ => flag.load(Acquire, Scope::Device), // <message: wait>
            };
            while load() == 0 {}
            y.set_unchecked(0, data.get_unchecked(0)); // <message: read>
        }
    }
}

/// The same by fences and relaxed operations.
#[kernel(block = 32)]
fn message_by_fences(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flag: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flag.get(0) else { return };
    let scope = if wrong == 4 { Scope::Block } else { Scope::Device };
    unsafe {
        if thread::block_idx_x() == 0 {
            if wrong == 3 {
                fence(AcqRel, scope);
            }
            data.set_unchecked(0, 42); // <fences: write>
            if wrong != 1 && wrong != 3 {
                fence(AcqRel, scope);
            }
            flag.store(1, Relaxed, Scope::Device);
        } else {
            while flag.load(Relaxed, Scope::Device) == 0 {}
            if wrong != 2 {
                fence(AcqRel, scope);
            }
            y.set_unchecked(0, data.get_unchecked(0)); // <fences: read>
        }
    }
}

/// A sum in one launch: the last block adds up what all have written.
#[kernel(block = 32)]
fn last_block(
    wrong: u32,
    parts: GlobalSliceMut<'_, u32>,
    done: GlobalAtomics<'_, u32>,
    total: GlobalSliceMut<'_, u32>,
) {
    static IS_LAST: Shared<[u32; 1]> = Shared::new();
    let (me, blocks) = (thread::thread_idx_x() as usize, thread::grid_dim_x());
    let Some(done) = done.get(0) else { return };
    unsafe {
        parts.set_unchecked(thread::index_1d(), 1); // <last: part>
        if wrong != 2 {
            thread::sync_threads();
        }
        if me == 0 {
            if wrong != 1 {
                fence(SeqCst, if wrong == 4 { Scope::Block } else { Scope::Device });
            }
            let before = done.fetch_add(1, Relaxed, Scope::Device);
            if wrong != 3 {
                fence(SeqCst, Scope::Device);
            }
            IS_LAST.write(0, u32::from(before + 1 == blocks)); // <last: tell>
        }
        if wrong != 5 {
            thread::sync_threads();
        }
        let is_last = IS_LAST.read(0) == 1; // <last: ask>
        if is_last {
            let mut sum = 0;
            for block in 0..blocks as usize {
                sum += parts.get_unchecked(32 * block + me); // <last: read>
            }
            total.set_unchecked(me, sum);
        }
    }
}

/// Sums of all numbers up to each block: a block waits for the one before.
#[kernel(block = 32)]
fn chained_scan(wrong: u32, sums: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    unsafe {
        let mut sum = 1;
        if block > 0
            && let Some(flag) = flags.get(block - 1)
        {
            while match wrong {
                2 => flag.load(Relaxed, Scope::Device),
                4 => flag.load(Acquire, Scope::Block),  // <chained: narrow load>
                _ => flag.load(Acquire, Scope::Device), // <chained: load>
            } == 0
            {}
            sum += sums.get_unchecked(block - 1); // <chained: read>
        }
        sums.set_unchecked(block, sum); // <chained: write>
        if let Some(flag) = flags.get(block) {
            match wrong {
                1 => flag.store(1, Relaxed, Scope::Device),
                3 => flag.store(1, Release, Scope::Block), // <chained: narrow store>
                _ => flag.store(1, Release, Scope::Device), // <chained: store>
            }
        }
    }
}

/// A lock around a sum that all blocks add to.
#[kernel(block = 32)]
fn lock(wrong: u32, lock: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(lock) = lock.get(0) else { return };
    unsafe {
        while match wrong {
            1 => lock.compare_exchange(0, 1, Relaxed, Scope::Device),
            3 => lock.compare_exchange(0, 1, Acquire, Scope::Block), // <lock: narrow take>
            _ => lock.compare_exchange(0, 1, Acquire, Scope::Device), // <lock: take>
        }
        .is_err()
        {}
        let before = total.get_unchecked(0); // <lock: read>
        total.set_unchecked(0, before + 1); // <lock: write>
        match wrong {
            2 => lock.store(0, Relaxed, Scope::Device),
            4 => lock.store(0, Release, Scope::Block), // <lock: narrow give>
            _ => lock.store(0, Release, Scope::Device),
        }
    }
}

/// All blocks meet, then each reads what the next one has written.
#[kernel(block = 32)]
fn grid_barrier(wrong: u32, x: GlobalSliceMut<'_, u32>, come: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    let Some(come) = come.get(0) else { return };
    unsafe {
        x.set_unchecked(i, i as u32); // <grid: write>
        if wrong != 3 {
            thread::sync_threads();
        }
        if thread::thread_idx_x() == 0 {
            match wrong {
                1 => come.fetch_add(1, Relaxed, Scope::Device),
                5 => come.fetch_add(1, Release, Scope::Block), // <grid: narrow come>
                _ => come.fetch_add(1, Release, Scope::Device), // <grid: come>
            };
            while match wrong {
                2 => come.load(Relaxed, Scope::Device),
                6 => come.load(Acquire, Scope::Block), // <grid: narrow wait>
                _ => come.load(Acquire, Scope::Device),
            } < thread::grid_dim_x()
            {}
        }
        if wrong != 4 {
            thread::sync_threads();
        }
        y.set_unchecked(i, x.get_unchecked((i + 32) % x.len())); // <grid: read>
    }
}

/// Block 0 tells block 1, which tells block 2, which reads what block 0 has written.
#[kernel(block = 32)]
fn told_by_another(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(first), Some(second)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        match thread::block_idx_x() {
            0 => {
                data.set_unchecked(0, 9); // <told: write>
                first.store(1, Release, Scope::Device);
            }
            1 => {
                while match wrong {
                    1 => first.load(Relaxed, Scope::Device),
                    _ => first.load(Acquire, Scope::Device),
                } == 0
                {}
                second.store(1, Release, Scope::Device);
            }
            _ => {
                while second.load(Acquire, Scope::Device) == 0 {}
                y.set_unchecked(0, data.get_unchecked(0)); // <told: read>
            }
        }
    }
}

/// Items that blocks put into a list, and others take from it as soon as they are there.
#[kernel(block = 32)]
fn queue(wrong: u32, items: GlobalSliceMut<'_, u32>, state: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    let Some(place) = state.get(block / 2) else { return };
    unsafe {
        if block.is_multiple_of(2) {
            // The mistake: the place is announced before the item is there.
            if wrong == 1 {
                place.store(1, Release, Scope::Device);
            }
            items.set_unchecked(block / 2, 5); // <queue: put>
            match wrong {
                1 => {}
                2 => _ = place.swap(1, Acquire, Scope::Device),
                _ => _ = place.swap(1, AcqRel, Scope::Device),
            }
        } else {
            while place.load(Acquire, Scope::Device) == 0 {}
            y.set_unchecked(block / 2, items.get_unchecked(block / 2)); // <queue: take>
        }
    }
}

/// A counter of all blocks.
#[kernel(block = 32)]
fn ticket(wrong: u32, next: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static TICKET: Shared<[u32; 1]> = Shared::new();
    let Some(next) = next.get(0) else { return };
    unsafe {
        if thread::thread_idx_x() == 0 {
            let scope = if wrong == 1 { Scope::Block } else { Scope::Device };
            TICKET.write(0, next.fetch_add(1, Relaxed, scope)); // <ticket: take>
        }
        thread::sync_threads();
        let row = if wrong == 1 { thread::block_idx_x() } else { TICKET.read(0) };
        y.set_unchecked((32 * row + thread::thread_idx_x()) as usize, row);
    }
}

/// One warp fills a place in shared memory, another one takes what is there, by a flag beside it.
#[kernel(block = 64)]
fn flag_in_shared_memory(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static PLACE: Shared<[u32; 32]> = Shared::new();
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id() as usize);
    unsafe {
        let flag = FLAG.atomic(0);
        if thread::thread_idx_x() == 0 {
            flag.store(0, Relaxed, Scope::Block);
        }
        thread::sync_threads();
        if warp == 0 {
            PLACE.write(lane, 3 * lane as u32); // <shared flag: write>
            if wrong != 3 {
                warp::sync_warp(warp::ALL_LANES);
            }
            if lane == 0 {
                match wrong {
                    1 => flag.store(1, Relaxed, Scope::Block),
                    _ => flag.store(1, Release, Scope::Block),
                }
            }
        } else {
            while match wrong {
                2 => flag.load(Relaxed, Scope::Block),
                _ => flag.load(Acquire, Scope::Block),
            } == 0
            {}
            y.set_unchecked(lane, PLACE.read(31 - lane)); // <shared flag: read>
        }
    }
}

/// A flag in memory that the launch does not know as a place to wait at.
#[kernel(block = 32)]
fn flag_of_another_kind(wrong: u32, done: GlobalSliceMut<'_, u32>) {
    unsafe {
        let done = done.atomic_unchecked(0);
        match wrong {
            0 => done.fetch_add(1, Relaxed, Scope::Device),
            _ => done.fetch_add(1, AcqRel, Scope::Device), // <another kind: add>
        };
    }
}

/// Arrays for kernels that have data, flags and a result.
pub(crate) fn with_flags(
    size: usize,
    run: impl FnOnce(GlobalSliceMut<'_, u32>, GlobalAtomics<'_, u32>, GlobalSliceMut<'_, u32>) -> Result<(), Report>,
) -> Result<(), Report> {
    let (mut data, mut flags, mut y) = (vec![0; size], vec![0; size], vec![0; size]);
    run(GlobalSliceMut::new(&mut data), GlobalAtomics::new(&mut flags), GlobalSliceMut::new(&mut y))
}

fn run_last_block(wrong: u32, executor: &Executor) -> Result<(), Report> {
    with_flags(160, |parts, done, total| launch(executor, last_block { wrong, parts, done, total }, 5))
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("orders.rs"),
    patterns: &[
        Pattern {
            name: "message",
            run: |wrong, executor| with_flags(1, |data, flag, y| launch(executor, message { wrong, data, flag, y }, 2)),
            mistakes: &[
                found(Order, "the flag is stored relaxed", RACE, &["message: write", "message: read"]),
                found(Order, "the flag is loaded relaxed", RACE, &["message: write", "message: read"]),
                found(
                    Order,
                    "the flag is set before the number is written",
                    RACE,
                    &["message: late write", "message: read"],
                ),
                found(TooSmall, "the flag is stored for the own block", RACE, &["message: narrow", "message: wait"]),
            ],
        },
        Pattern {
            name: "message_by_fences",
            run: |wrong, executor| {
                with_flags(1, |data, flag, y| launch(executor, message_by_fences { wrong, data, flag, y }, 2))
            },
            mistakes: &[
                found(Order, "no fence behind the write", RACE, &["fences: write", "fences: read"]),
                found(Order, "no fence before the read", RACE, &["fences: write", "fences: read"]),
                found(Order, "the fence stands before the write", RACE, &["fences: write", "fences: read"]),
                found(TooSmall, "fences for the own block", RACE, &["fences: write", "fences: read"]),
            ],
        },
        Pattern {
            name: "last_block",
            run: run_last_block,
            mistakes: &[
                found(Order, "no fence before the counter", RACE, &["last: part", "last: read"]),
                found(Order, "no barrier before the counter", RACE, &["last: part", "last: read"]),
                found(Order, "no fence behind the counter", RACE, &["last: part", "last: read"]),
                found(TooSmall, "a fence for the own block", RACE, &["last: part", "last: read"]),
                found(Order, "no barrier behind the answer", SHARED, &["last: tell", "last: ask"]),
            ],
        },
        Pattern {
            name: "chained_scan",
            run: |wrong, executor| {
                with_flags(6, |sums, flags, _| launch(executor, chained_scan { wrong, sums, flags }, 6))
            },
            mistakes: &[
                found(Order, "the flag is stored relaxed", RACE, &["chained: write", "chained: read"]),
                found(Order, "the flag is loaded relaxed", RACE, &["chained: write", "chained: read"]),
                found(
                    TooSmall,
                    "the flag is stored for the own block",
                    RACE,
                    &["chained: narrow store", "chained: load"],
                ),
                found(
                    TooSmall,
                    "the flag is loaded for the own block",
                    RACE,
                    &["chained: store", "chained: narrow load"],
                ),
            ],
        },
        Pattern {
            name: "lock",
            run: |wrong, executor| with_flags(1, |total, key, _| launch(executor, lock { wrong, lock: key, total }, 5)),
            mistakes: &[
                found(Order, "the lock is taken relaxed", RACE, &["lock: read", "lock: write"]),
                found(Order, "the lock is given back relaxed", RACE, &["lock: read", "lock: write"]),
                found(
                    TooSmall,
                    "the lock is taken for the own block",
                    RACE,
                    &["lock: narrow take", "lock: narrow take"],
                ),
                found(TooSmall, "the lock is given back for the own block", RACE, &["lock: take", "lock: narrow give"]),
            ],
        },
        Pattern {
            name: "grid_barrier",
            run: |wrong, executor| {
                with_flags(128, |x, come, y| launch(executor, grid_barrier { wrong, x, come, y }, 4))
            },
            mistakes: &[
                found(Order, "blocks come relaxed", RACE, &["grid: write", "grid: read"]),
                found(Order, "blocks wait relaxed", RACE, &["grid: write", "grid: read"]),
                found(Order, "no barrier of the block before", RACE, &["grid: write", "grid: read"]),
                found(Order, "no barrier of the block behind", RACE, &["grid: write", "grid: read"]),
                found(TooSmall, "blocks come for themselves", RACE, &["grid: narrow come", "grid: narrow come"]),
                found(TooSmall, "blocks wait for themselves", RACE, &["grid: come", "grid: narrow wait"]),
            ],
        },
        Pattern {
            name: "told_by_another",
            run: |wrong, executor| {
                with_flags(2, |data, flags, y| launch(executor, told_by_another { wrong, data, flags, y }, 3))
            },
            mistakes: &[found(Order, "who passes it on loads relaxed", RACE, &["told: write", "told: read"])],
        },
        Pattern {
            name: "queue",
            run: |wrong, executor| {
                with_flags(2, |items, state, y| launch(executor, queue { wrong, items, state, y }, 4))
            },
            mistakes: &[
                found(Order, "a place is announced before the item is there", RACE, &["queue: put", "queue: take"]),
                found(Order, "who announces only acquires", RACE, &["queue: put", "queue: take"]),
            ],
        },
        Pattern {
            name: "ticket",
            run: |wrong, executor| with_flags(128, |_, next, y| launch(executor, ticket { wrong, next, y }, 4)),
            mistakes: &[found(
                TooSmall,
                "a counter of all blocks, each for itself",
                RACE,
                &["ticket: take", "ticket: take"],
            )],
        },
        Pattern {
            name: "flag_in_shared_memory",
            run: |wrong, executor| {
                launch(executor, flag_in_shared_memory { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1)
            },
            mistakes: &[
                found(Order, "the flag is stored relaxed", SHARED, &["shared flag: write", "shared flag: read"]),
                found(Order, "the flag is loaded relaxed", SHARED, &["shared flag: write", "shared flag: read"]),
                found(
                    Order,
                    "one lane tells what the others have not been waited for",
                    SHARED,
                    &["shared flag: write", "shared flag: read"],
                ),
            ],
        },
        Pattern {
            name: "flag_of_another_kind",
            run: |wrong, executor| {
                launch(executor, flag_of_another_kind { wrong, done: GlobalSliceMut::new(&mut [0]) }, 2)
            },
            mistakes: &[found(
                Order,
                "a view that is not of atomics",
                "ordered outside of atomics",
                &["another kind: add"],
            )],
        },
    ],
};
