//! Global memory without anything that orders: sums, stencils, products and histograms whose threads or blocks share elements.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::pattern::Class::GlobalRace;
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in global memory";

/// All threads count themselves.
#[kernel(block = 32)]
fn count(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    unsafe {
        match wrong {
            0 => _ = x.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device),
            1 => x.set_unchecked(0, x.get_unchecked(0) + 1), // <count: plain>
            // The mistake: the first thread only looks, but does so plainly.
            _ if thread::index_1d() == 0 => _ = x.get_unchecked(0), // <count: look>
            _ => _ = x.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device), // <count: add>
        }
    }
}

/// A histogram in global memory by all blocks.
#[kernel(block = 64)]
fn global_histogram(wrong: u32, x: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    unsafe {
        let bin = (x.get_unchecked(thread::index_1d()) % 8) as usize;
        if wrong == 0 {
            bins.atomic_unchecked(bin).fetch_add(1, Relaxed, Scope::Device);
        } else {
            bins.set_unchecked(bin, bins.get_unchecked(bin) + 1); // <bins: plain>
        }
    }
}

/// Means of neighbours, from one array to another one, or in place.
#[kernel(block = 64)]
fn smooth(wrong: u32, x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let right = x.get_unchecked((i + 1) % x.len()); // <smooth: read>
        let mean = 0.5 * (x.get_unchecked(i) + right);
        let to = if wrong == 0 { y } else { x };
        to.set_unchecked(i, mean); // <smooth: write>
    }
}

/// A row of 32 that one warp smooths in place, twice.
#[kernel(block = 32)]
fn smooth_in_a_warp(wrong: u32, x: GlobalSliceMut<'_, f32>) {
    let lane = thread::thread_idx_x() as usize;
    unsafe {
        for _ in 0..2 {
            let mean = 0.5 * (x.get_unchecked(lane) + x.get_unchecked((lane + 1) % 32)); // <warp: read>
            if wrong != 1 {
                warp::sync_warp(warp::ALL_LANES);
            }
            x.set_unchecked(lane, mean); // <warp: write>
            if wrong != 2 {
                warp::sync_warp(warp::ALL_LANES);
            }
        }
    }
}

/// Threads write where others of their block have read, behind a barrier.
#[kernel(block = 64)]
fn rotate_in_a_block(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    let (me, first) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize * 64);
    unsafe {
        // The mistake: the neighbour of the last thread is in the next block.
        let next = if wrong == 1 { (first + me + 1) % x.len() } else { first + (me + 1) % 64 };
        let number = x.get_unchecked(next); // <rotate: read>
        if wrong != 2 {
            thread::sync_threads();
        }
        x.set_unchecked(first + me, number); // <rotate: write>
    }
}

/// Each block has a row.
#[kernel(block = 32)]
fn rows_of_blocks(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (me, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    // The mistakes: rows of 31; blocks that go by twos.
    let row = match wrong {
        1 => 31 * block,
        2 => 32 * (block / 2),
        _ => 32 * block,
    };
    unsafe { y.set_unchecked(row + me, block as u32) } // <rows: write>
}

/// Numbers in pairs, each pair by one thread.
#[kernel(block = 32)]
fn pairs(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let me = thread::index_1d();
    unsafe {
        let first = if wrong == 0 { 2 * me } else { me / 2 * 2 };
        y.set2_unchecked(first, [1.0, 2.0]); // <pairs: write>
    }
}

/// A sum with k divided among blocks: each adds its part to the result.
#[kernel(block = 32)]
fn split_sum(wrong: u32, a: GlobalSlice<'_, f32>, c: GlobalSliceMut<'_, f32>) {
    let (column, part) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    unsafe {
        let mut sum = 0.0;
        for k in 4 * part..4 * part + 4 {
            sum += a.get_unchecked(32 * k + column);
        }
        if wrong == 0 {
            c.atomic_unchecked(column).fetch_add(sum, Relaxed, Scope::Device);
        } else {
            let before = c.get_unchecked(column); // <split: read>
            c.set_unchecked(column, before + sum); // <split: write>
        }
    }
}

/// Block 0 makes zeros for a sum by all blocks.
#[kernel(block = 32)]
fn zero_and_add(wrong: u32, total: GlobalSliceMut<'_, u32>) {
    unsafe {
        if wrong == 1 && thread::index_1d() == 0 {
            total.set_unchecked(0, 0); // <zero: write>
        }
        if wrong == 1 {
            thread::sync_threads();
        }
        total.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device); // <zero: add>
    }
}

/// Transposes a square matrix in place: blocks exchange tiles in pairs.
#[kernel(block = (8, 8))]
fn transpose_in_place(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    let (block_x, block_y) = (thread::block_idx_x() as usize, thread::block_idx_y() as usize);
    let row = 8 * block_y + thread::thread_idx_y() as usize;
    let column = 8 * block_x + thread::thread_idx_x() as usize;
    // The mistake: both blocks of a pair do it. In the right one who is above the diagonal does.
    if wrong == 0 && row >= column {
        return;
    }
    unsafe {
        let (one, two) = (x.get_unchecked(16 * row + column), x.get_unchecked(16 * column + row)); // <in place: read>
        if row != column {
            x.set_unchecked(16 * row + column, two);
            x.set_unchecked(16 * column + row, one); // <in place: write>
        }
    }
}

/// The largest number, by compare and exchange, and where it is.
#[kernel(block = 64)]
fn arg_max(wrong: u32, x: GlobalSlice<'_, u32>, best: GlobalSliceMut<'_, u64>) {
    let i = thread::index_1d();
    unsafe {
        let candidate = u64::from(x.get_unchecked(i)) << 32 | i as u64;
        if wrong == 0 {
            best.atomic_unchecked(0).fetch_max(candidate, Relaxed, Scope::Device);
            return;
        }
        let before = best.get_unchecked(0); // <best: read>
        if candidate > before {
            best.set_unchecked(0, candidate); // <best: write>
        }
    }
}

/// Work that threads take from a common counter, and whose results they write.
#[kernel(block = 32)]
fn work_from_a_counter(wrong: u32, next: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    unsafe {
        loop {
            let item = next.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device) as usize;
            if item >= y.len() {
                return;
            }
            // The mistake: two numbers have one place.
            let place = if wrong == 0 { item } else { item / 2 };
            y.set_unchecked(place, 1); // <work: write>
        }
    }
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("global.rs"),
    patterns: &[
        Pattern {
            name: "count",
            run: |wrong, executor| launch(executor, count { wrong, x: GlobalSliceMut::new(&mut [0]) }, 2),
            mistakes: &[
                found(GlobalRace, "a sum that is not atomic", RACE, &["count: plain", "count: plain"]),
                found(GlobalRace, "a plain read beside atomic sums", RACE, &["count: look", "count: add"]),
            ],
        },
        Pattern {
            name: "global_histogram",
            run: |wrong, executor| {
                let (x, mut bins) = ([3; 128], [0; 8]);
                let (x, bins) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut bins));
                launch(executor, global_histogram { wrong, x, bins }, 2)
            },
            mistakes: &[found(GlobalRace, "sums that are not atomic", RACE, &["bins: plain", "bins: plain"])],
        },
        Pattern {
            name: "smooth",
            run: |wrong, executor| {
                let (mut x, mut y) = ([1.0; 128], [0.0; 128]);
                let (x, y) = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
                launch(executor, smooth { wrong, x, y }, 2)
            },
            mistakes: &[found(GlobalRace, "in place", RACE, &["smooth: read", "smooth: write"])],
        },
        Pattern {
            name: "smooth_in_a_warp",
            run: |wrong, executor| {
                launch(executor, smooth_in_a_warp { wrong, x: GlobalSliceMut::new(&mut [1.0; 32]) }, 1)
            },
            mistakes: &[
                found(GlobalRace, "no `sync_warp` behind the reads", RACE, &["warp: read", "warp: write"]),
                found(GlobalRace, "no `sync_warp` behind the writes", RACE, &["warp: read", "warp: write"]),
            ],
        },
        Pattern {
            name: "rotate_in_a_block",
            run: |wrong, executor| {
                launch(executor, rotate_in_a_block { wrong, x: GlobalSliceMut::new(&mut [7; 192]) }, 3)
            },
            mistakes: &[
                found(GlobalRace, "the neighbour is in the next block", RACE, &["rotate: read", "rotate: write"]),
                found(GlobalRace, "no barrier", RACE, &["rotate: read", "rotate: write"]),
            ],
        },
        Pattern {
            name: "rows_of_blocks",
            run: |wrong, executor| launch(executor, rows_of_blocks { wrong, y: GlobalSliceMut::new(&mut [0; 128]) }, 4),
            mistakes: &[
                found(GlobalRace, "rows that overlap by an element", RACE, &["rows: write", "rows: write"]),
                found(GlobalRace, "two blocks have one row", RACE, &["rows: write", "rows: write"]),
            ],
        },
        Pattern {
            name: "pairs",
            run: |wrong, executor| {
                #[repr(align(8))]
                struct Aligned([f32; 64]);
                launch(executor, pairs { wrong, y: GlobalSliceMut::new(&mut Aligned([0.0; 64]).0) }, 1)
            },
            mistakes: &[found(GlobalRace, "two threads write a pair", RACE, &["pairs: write", "pairs: write"])],
        },
        Pattern {
            name: "split_sum",
            run: |wrong, executor| {
                let (a, mut c) = ([0.5; 512], [0.0; 32]);
                let (a, c) = (GlobalSlice::new(&a), GlobalSliceMut::new(&mut c));
                launch(executor, split_sum { wrong, a, c }, 4)
            },
            mistakes: &[found(GlobalRace, "parts are added plainly", RACE, &["split: read", "split: write"])],
        },
        Pattern {
            name: "zero_and_add",
            run: |wrong, executor| launch(executor, zero_and_add { wrong, total: GlobalSliceMut::new(&mut [0]) }, 3),
            mistakes: &[found(GlobalRace, "zeroed in the same launch", RACE, &["zero: write", "zero: add"])],
        },
        Pattern {
            name: "transpose_in_place",
            run: |wrong, executor| {
                launch(executor, transpose_in_place { wrong, x: GlobalSliceMut::new(&mut [1; 256]) }, (2, 2))
            },
            mistakes: &[found(GlobalRace, "both of a pair exchange", RACE, &["in place: read", "in place: write"])],
        },
        Pattern {
            name: "arg_max",
            run: |wrong, executor| {
                let (x, mut best) = ([5; 128], [0]);
                let (x, best) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut best));
                launch(executor, arg_max { wrong, x, best }, 2)
            },
            mistakes: &[found(GlobalRace, "compared and written plainly", RACE, &["best: read", "best: write"])],
        },
        Pattern {
            name: "work_from_a_counter",
            run: |wrong, executor| {
                let (mut next, mut y) = ([0], [0; 200]);
                let (next, y) = (GlobalSliceMut::new(&mut next), GlobalSliceMut::new(&mut y));
                launch(executor, work_from_a_counter { wrong, next, y }, 2)
            },
            mistakes: &[found(GlobalRace, "two numbers have one place", RACE, &["work: write", "work: write"])],
        },
    ],
};
