//! Waits that never end: flags that nobody sets, locks that nobody gives back, blocks that wait for blocks that cannot run.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::pattern::Class::EndlessWait;
use crate::pattern::{Family, Pattern, Report, found, launch};

const STUCK: &str = "stuck";

/// Each block waits for one of its neighbours.
#[kernel(block = 32)]
fn neighbours(wrong: u32, flags: GlobalAtomics<'_, u32>) {
    let (block, blocks) = (thread::block_idx_x() as usize, thread::grid_dim_x() as usize);
    if thread::thread_idx_x() != 0 {
        return;
    }
    // The mistake: the next one, which may not run before this one has ended.
    let awaited = if wrong == 1 { block + 1 } else { block.wrapping_sub(1) };
    if let Some(flag) = flags.get(awaited)
        && awaited < blocks
    {
        while flag.load(Acquire, Scope::Device) == 0 {} // <neighbours: wait>
    }
    // The mistake: one block does not tell.
    if (wrong != 2 || block != 1)
        && let Some(flag) = flags.get(block)
    {
        flag.store(1, Release, Scope::Device);
    }
}

/// Two blocks exchange numbers.
#[kernel(block = 32)]
fn exchange(wrong: u32, flags: GlobalAtomics<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    let (Some(own), Some(other)) = (flags.get(block), flags.get(1 - block)) else { return };
    let wait = || while other.load(Acquire, Scope::Device) == 0 {}; // <exchange: wait>
    // The mistake: both wait first.
    if wrong == 1 {
        wait();
    }
    own.store(1, Release, Scope::Device);
    if wrong != 1 {
        wait();
    }
}

/// A lock that one path does not give back.
#[kernel(block = 32)]
fn lock_with_a_way_out(wrong: u32, lock: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(lock) = lock.get(0) else { return };
    unsafe {
        while lock.compare_exchange(0, 1, Acquire, Scope::Device).is_err() {} // <way out: take>
        let before = total.get_unchecked(0);
        if wrong == 1 && before >= 1 {
            return;
        }
        total.set_unchecked(0, before + 1);
        lock.store(0, Release, Scope::Device);
    }
}

/// Threads count down, and one waits until all have.
#[kernel(block = 64)]
fn countdown(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static LEFT: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x();
    unsafe {
        let left = LEFT.atomic(0);
        if me == 0 {
            // The mistake: the one that waits does not count itself.
            left.store(if wrong == 1 { 64 } else { 63 }, Relaxed, Scope::Block);
        }
        thread::sync_threads();
        if me == 63 {
            while left.load(Acquire, Scope::Block) != 0 {} // <countdown: wait>
            y.set_unchecked(0, 1);
        } else {
            left.fetch_sub(1, AcqRel, Scope::Block);
        }
    }
}

/// One warp sets a flag for another: before the barrier of the block, or behind it, where it is too late.
#[kernel(block = 64)]
fn flag_and_barrier(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let flag = FLAG.atomic(0);
        if me == 0 {
            flag.store(0, Relaxed, Scope::Block);
        }
        thread::sync_threads();
        if wrong == 0 && me == 0 {
            flag.store(1, Release, Scope::Block);
        }
        if me >= 32 {
            while flag.load(Acquire, Scope::Block) == 0 {} // <flag: wait>
        }
        thread::sync_threads();
        if wrong == 1 && me == 0 {
            flag.store(1, Release, Scope::Block);
        }
        y.set_unchecked(me, 1);
    }
}

/// Each lane has a lock for a moment.
#[kernel(block = 32)]
fn lock_in_a_warp(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static LOCK: Shared<[u32; 1]> = Shared::new();
    let lane = thread::thread_idx_x() as usize;
    unsafe {
        let lock = LOCK.atomic(0);
        if lane == 0 {
            lock.store(0, Relaxed, Scope::Block);
        }
        thread::sync_threads();
        while lock.compare_exchange(0, 1, Acquire, Scope::Block).is_err() {} // <warp lock: take>
        // The mistake: whoever has the lock waits for the others, who wait for the lock.
        if wrong == 1 {
            warp::sync_warp(warp::ALL_LANES);
        }
        y.set_unchecked(lane, 1);
        lock.store(0, Release, Scope::Block);
    }
}

/// A thread waits for a flag of another warp.
#[kernel(block = 64)]
fn plain_flag(wrong: u32, flags: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static FLAGS: Shared<[u32; 2]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 2 {
            FLAGS.write(me, 0); // <plain: zero>
        }
        if me == 0 {
            flags.set_unchecked(0, 0); // <plain: zero in global memory>
        }
        thread::sync_threads();
        if wrong == 0 && me == 0 {
            FLAGS.atomic(0).store(1, Release, Scope::Block);
        }
        if me == 40 {
            // The mistakes: nobody sets it, or not in time, and who looks does so plainly.
            match wrong {
                0 => while FLAGS.atomic(0).load(Acquire, Scope::Block) == 0 {},
                1 | 2 => while FLAGS.read(0) == 0 {},            // <plain: wait>
                3 => while flags.get_unchecked(0) == 0 {},       // <plain: wait in global memory>
                4 => while FLAGS.read(0) + FLAGS.read(1) < 2 {}, // <plain: wait for two>
                _ => {
                    let mut tries = 0u32;
                    while FLAGS.read(1) == 0 && tries < 100_000 {
                        tries += 1;
                    }
                    while FLAGS.read(1) == 0 {} // <plain: wait after many tries>
                }
            }
        }
        thread::sync_threads();
        if wrong == 2 && me == 0 {
            FLAGS.atomic(0).store(1, Release, Scope::Block);
        }
        y.set_unchecked(me, 1);
    }
}

/// Reads one number again and again, and waits for nothing.
#[kernel(block = 32)]
fn long_loop(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static STEP: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me == 0 {
            STEP.write(0, 1013904223); // <long: step>
        }
        thread::sync_threads();
        let mut state = me as u32;
        if me == 3 {
            for _ in 0..2_000_000 {
                state = state.wrapping_mul(x.get_unchecked(0)).wrapping_add(STEP.read(0));
            }
            // The mistake: nothing in the loop changes what it depends on.
            while wrong == 1 && STEP.read(0) % 2 == 1 {} // <long: loop>
        }
        y.set_unchecked(me, state);
    }
}

fn with_flags(count: usize, run: impl FnOnce(GlobalAtomics<'_, u32>) -> Result<(), Report>) -> Result<(), Report> {
    run(GlobalAtomics::new(&mut vec![0; count]))
}

/// Two blocks at the same time: few, so that it shows soon that nothing changes.
fn narrow(executor: &Executor) -> Executor {
    executor.clone().window(2)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("waits.rs"),
    patterns: &[
        Pattern {
            name: "neighbours",
            run: |wrong, executor| with_flags(4, |flags| launch(&narrow(executor), neighbours { wrong, flags }, 4)),
            mistakes: &[
                found(EndlessWait, "blocks wait for later ones", STUCK, &["neighbours: wait"]),
                found(EndlessWait, "a block does not set its flag", STUCK, &["neighbours: wait"]),
            ],
        },
        Pattern {
            name: "exchange",
            run: |wrong, executor| with_flags(2, |flags| launch(&narrow(executor), exchange { wrong, flags }, 2)),
            mistakes: &[found(EndlessWait, "both wait before they tell", STUCK, &["exchange: wait"])],
        },
        Pattern {
            name: "lock_with_a_way_out",
            run: |wrong, executor| {
                let mut total = [0];
                let total = GlobalSliceMut::new(&mut total);
                with_flags(1, |lock| launch(&narrow(executor), lock_with_a_way_out { wrong, lock, total }, 3))
            },
            mistakes: &[found(EndlessWait, "a lock is not given back", STUCK, &["way out: take"])],
        },
        Pattern {
            name: "countdown",
            run: |wrong, executor| launch(executor, countdown { wrong, y: GlobalSliceMut::new(&mut [0]) }, 1),
            mistakes: &[found(EndlessWait, "one more is awaited than there are", STUCK, &["countdown: wait"])],
        },
        Pattern {
            name: "flag_and_barrier",
            run: |wrong, executor| {
                launch(executor, flag_and_barrier { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1)
            },
            mistakes: &[found(EndlessWait, "the flag is set behind the barrier", STUCK, &["flag: wait"])],
        },
        Pattern {
            name: "lock_in_a_warp",
            run: |wrong, executor| launch(executor, lock_in_a_warp { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[found(EndlessWait, "the one with the lock waits for its warp", STUCK, &["warp lock: take"])],
        },
        Pattern {
            name: "plain_flag",
            run: |wrong, executor| {
                let (mut flags, mut y) = ([0], [0; 64]);
                let (flags, y) = (GlobalSliceMut::new(&mut flags), GlobalSliceMut::new(&mut y));
                launch(executor, plain_flag { wrong, flags, y }, 1)
            },
            mistakes: &[
                found(EndlessWait, "plain reads of what nobody writes", STUCK, &["plain: wait", "plain: zero"]),
                found(
                    EndlessWait,
                    "plain reads of what is written behind the barrier",
                    STUCK,
                    &["plain: wait", "plain: zero"],
                ),
                found(
                    EndlessWait,
                    "plain reads of global memory that nobody writes",
                    STUCK,
                    &["plain: wait in global memory", "plain: zero in global memory"],
                ),
                found(EndlessWait, "plain reads of two flags", STUCK, &["plain: wait for two", "plain: zero"]),
                found(
                    EndlessWait,
                    "plain reads behind a loop that gives up",
                    STUCK,
                    &["plain: wait after many tries", "plain: zero"],
                ),
            ],
        },
        Pattern {
            name: "long_loop",
            run: |wrong, executor| {
                let mut y = [0; 32];
                let (x, y) = (GlobalSlice::new(&[1664525]), GlobalSliceMut::new(&mut y));
                launch(executor, long_loop { wrong, x, y }, 1)
            },
            mistakes: &[found(
                EndlessWait,
                "nothing in the loop changes what it depends on",
                STUCK,
                &["long: loop", "long: step"],
            )],
        },
    ],
};
