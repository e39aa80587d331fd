//! Several that read a number, or add to it, before another one writes it, which has to be ordered behind all of them: one is forgotten.

use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::hopper;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::Order;
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in global memory";

/// Three blocks read a number that a fourth one then writes, which waits for all of them.
#[kernel(block = 32)]
fn three_readers(wrong: u32, data: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    let wait = |other: usize| {
        if let Some(flag) = flags.get(other) {
            while flag.load(Acquire, Scope::Device) == 0 {}
        }
    };
    unsafe {
        if block == 3 {
            (0..3).for_each(wait);
            data.set_unchecked(0, 1); // <three: write>
            return;
        }
        // The last one reads behind the others, and knows nothing of that.
        if block > 0
            && let Some(flag) = flags.get(block - 1)
        {
            while flag.load(Relaxed, Scope::Device) == 0 {}
        }
        y.set_unchecked(block, data.get_unchecked(0)); // <three: read>
        if let Some(flag) = flags.get(block) {
            // The mistake: the last one does not release what it has read.
            if wrong == 1 && block == 2 {
                flag.store(1, Relaxed, Scope::Device);
            } else {
                flag.store(1, Release, Scope::Device);
            }
        }
    }
}

/// Three blocks add to a sum that a fourth one then writes, which waits for all of them.
#[kernel(block = 32)]
fn three_adders(wrong: u32, data: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let block = thread::block_idx_x() as usize;
    unsafe {
        if block == 3 {
            for other in (0..3).filter_map(|other| flags.get(other)) {
                while other.load(Acquire, Scope::Device) == 0 {}
            }
            data.set_unchecked(0, 1); // <adders: write>
            return;
        }
        // One after the other, and none of them knows of that.
        if let Some(flag) = block.checked_sub(1).and_then(|before| flags.get(before)) {
            while flag.load(Relaxed, Scope::Device) == 0 {}
        }
        y.set_unchecked(block, data.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device)); // <adders: add>
        if let Some(flag) = flags.get(block) {
            // The mistake: one of them does not release what it has added.
            if wrong == block as u32 + 1 {
                flag.store(1, Relaxed, Scope::Device);
            } else {
                flag.store(1, Release, Scope::Device);
            }
        }
    }
}

/// A block reads a number, and tells another one, which adds to it; a third one adds when it knows of the read as well.
#[kernel(block = 32)]
fn read_and_two_adds(
    wrong: u32,
    data: GlobalSliceMut<'_, u32>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(read), Some(added)) = (flags.get(0), flags.get(1)) else { return };
    unsafe {
        match thread::block_idx_x() {
            0 => {
                y.set_unchecked(0, data.get_unchecked(0)); // <two adds: read>
                read.store(1, Release, Scope::Device);
            }
            1 => {
                while read.load(Acquire, Scope::Device) == 0 {}
                data.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device);
                // The mistake: the second one is told of the first addition, and of nothing before.
                if wrong == 1 {
                    added.store(1, Relaxed, Scope::Device);
                } else {
                    added.store(1, Release, Scope::Device);
                }
            }
            2 => {
                while added.load(Acquire, Scope::Device) == 0 {}
                data.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device); // <two adds: add>
            }
            _ => {}
        }
    }
}

/// Three warps read a number in global memory, and a fourth one writes it, for which all of them have come to a barrier of their own.
#[kernel(block = 128)]
fn three_warps_read(wrong: u32, data: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (me, warp) = (thread::thread_idx_x() as usize, thread::thread_idx_x() as usize / 32);
    unsafe {
        if warp == 3 {
            hopper::sync_part::<64>(1);
            hopper::sync_part::<64>(2);
            hopper::sync_part::<64>(3);
            if me == 96 {
                data.set_unchecked(0, 1); // <warps: write>
            }
            return;
        }
        // The mistake: one of them comes to the barrier before it has read.
        let is_late = wrong == warp as u32 + 1;
        if is_late {
            hopper::sync_part::<64>(warp as u32 + 1);
        }
        y.set_unchecked(me, data.get_unchecked(0)); // <warps: read>
        if !is_late {
            hopper::sync_part::<64>(warp as u32 + 1);
        }
    }
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("several.rs"),
    patterns: &[
        Pattern {
            name: "three_readers",
            run: |wrong, executor| {
                with_flags(4, |data, flags, y| launch(executor, three_readers { wrong, data, flags, y }, 4))
            },
            mistakes: &[found(
                Order,
                "the third reader stores its flag relaxed",
                RACE,
                &["three: read", "three: write"],
            )],
        },
        Pattern {
            name: "three_adders",
            run: |wrong, executor| {
                with_flags(4, |data, flags, y| launch(executor, three_adders { wrong, data, flags, y }, 4))
            },
            mistakes: &[
                found(Order, "the first adder stores its flag relaxed", RACE, &["adders: add", "adders: write"]),
                found(Order, "the second adder stores its flag relaxed", RACE, &["adders: add", "adders: write"]),
                found(Order, "the third adder stores its flag relaxed", RACE, &["adders: add", "adders: write"]),
            ],
        },
        Pattern {
            name: "read_and_two_adds",
            run: |wrong, executor| {
                with_flags(3, |data, flags, y| launch(executor, read_and_two_adds { wrong, data, flags, y }, 3))
            },
            mistakes: &[found(
                Order,
                "who adds last is not told of the read",
                RACE,
                &["two adds: read", "two adds: add"],
            )],
        },
        Pattern {
            name: "three_warps_read",
            run: |wrong, executor| {
                let (mut data, mut y) = ([0], [0; 128]);
                let (data, y) = (GlobalSliceMut::new(&mut data), GlobalSliceMut::new(&mut y));
                launch(executor, three_warps_read { wrong, data, y }, 1)
            },
            mistakes: &[
                found(Order, "the first warp comes before it has read", RACE, &["warps: read", "warps: write"]),
                found(Order, "the second warp comes before it has read", RACE, &["warps: read", "warps: write"]),
                found(Order, "the third warp comes before it has read", RACE, &["warps: read", "warps: write"]),
            ],
        },
    ],
};
