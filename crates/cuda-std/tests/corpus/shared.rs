//! Shared memory: reductions, scans, transposes, tiles, stencils, histograms, buffers that are used again.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::pattern::Class::SharedRace;
use crate::pattern::{Family, Pattern, found, launch};

const RACE: &str = "race in shared memory";

/// Each block adds up its 128 numbers, by a tree.
#[kernel(block = 128)]
fn tree_sum(wrong: u32, x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    static PARTS: Shared<[f32; 128]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        PARTS.write(me, x.get_unchecked(thread::index_1d())); // <tree: load>
        if wrong != 1 {
            thread::sync_threads();
        }
        for stride in [64, 32, 16, 8, 4, 2, 1] {
            if wrong == 3 {
                thread::sync_threads();
            }
            if me < stride {
                let sum = PARTS.read(me) + PARTS.read(me + stride); // <tree: read>
                PARTS.write(me, sum); // <tree: write>
            }
            if wrong != 2 && wrong != 3 {
                thread::sync_threads();
            }
        }
        if me == 1 && wrong == 3 {
            sums.set_unchecked(thread::block_idx_x() as usize, PARTS.read(0)); // <tree: early result>
        } else if me == 0 {
            sums.set_unchecked(thread::block_idx_x() as usize, PARTS.read(0));
        }
    }
}

/// Inclusive sums of 64 numbers, each thread adding what lies a distance before, which doubles.
#[kernel(block = 64)]
fn doubling_scan(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    static SUMS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        SUMS.write(me, x.get_unchecked(me));
        thread::sync_threads();
        for distance in [1, 2, 4, 8, 16, 32] {
            let sum = SUMS.read(me) + if me < distance { 0 } else { SUMS.read(me - distance) }; // <scan: read>
            if wrong != 1 {
                thread::sync_threads();
            }
            SUMS.write(me, sum); // <scan: write>
            if wrong != 2 {
                thread::sync_threads();
            }
        }
        x.set_unchecked(me, SUMS.read(me));
    }
}

/// Exclusive sums of 64 numbers by a tree: up, and down again.
#[kernel(block = 32)]
fn tree_scan(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    static TREE: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        TREE.write(2 * me, x.get_unchecked(2 * me));
        TREE.write(2 * me + 1, x.get_unchecked(2 * me + 1));
        for stride in [1, 2, 4, 8, 16, 32] {
            thread::sync_threads();
            let last = 2 * stride * (me + 1) - 1;
            if last < 64 {
                TREE.write(last, TREE.read(last) + TREE.read(last - stride));
            }
        }
        if me == 0 {
            TREE.write(63, 0);
        }
        for stride in [32, 16, 8, 4, 2, 1] {
            if wrong != 1 {
                thread::sync_threads();
            }
            let last = 2 * stride * (me + 1) - 1;
            if last < 64 {
                let left = TREE.read(last - stride);
                let right = TREE.read(last); // <down: right>
                TREE.write(last - stride, right);
                TREE.write(last, left + right); // <down: write right>
            }
        }
        thread::sync_threads();
        x.set_unchecked(2 * me, TREE.read(2 * me));
        x.set_unchecked(2 * me + 1, TREE.read(2 * me + 1));
    }
}

/// Transposes a matrix of 16×16.
#[kernel(block = (16, 16))]
fn transpose(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[[f32; 17]; 16]> = Shared::new();
    let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    unsafe {
        let place = if wrong == 2 { [row, column / 2] } else { [row, column] };
        TILE.write(place, x.get_unchecked(16 * row + column)); // <transpose: write>
        if wrong != 1 {
            thread::sync_threads();
        }
        let place = if wrong == 2 { [row, column / 2] } else { [column, row] };
        y.set_unchecked(16 * row + column, TILE.read(place)); // <transpose: read>
    }
}

/// A product of two matrices of 32×32, in tiles of 16×16.
#[kernel(block = (16, 16))]
fn tiled_product(wrong: u32, a: GlobalSlice<'_, f32>, b: GlobalSlice<'_, f32>, c: GlobalSliceMut<'_, f32>) {
    static A: Shared<[[f32; 16]; 16]> = Shared::new();
    static B: Shared<[[f32; 16]; 16]> = Shared::new();
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (row, column) = (thread::block_idx_y() as usize * 16 + y, thread::block_idx_x() as usize * 16 + x);
    let mut sum = 0.0;
    unsafe {
        for k in [0, 16] {
            A.write([y, x], a.get_unchecked(row * 32 + k + x)); // <product: write a>
            B.write([y, x], b.get_unchecked((k + y) * 32 + column));
            if wrong != 1 {
                thread::sync_threads();
            }
            for l in 0..16 {
                let of_a = A.read([y, l]); // <product: read a>
                sum += of_a * B.read([l, x]);
            }
            if wrong != 2 {
                thread::sync_threads();
            }
        }
        c.set_unchecked(row * 32 + column, sum);
    }
}

/// Means of three neighbours; the first threads load the edges as well.
#[kernel(block = 64)]
fn stencil(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static ROW: Shared<[f32; 66]> = Shared::new();
    let (me, first) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize * 64);
    let at = |i: usize| if (1..=x.len()).contains(&i) { x.get(i - 1).unwrap_or(0.0) } else { 0.0 };
    unsafe {
        ROW.write(me + 1, at(first + me + 1)); // <stencil: inner>
        if wrong == 2 {
            thread::sync_threads();
        }
        if me < 2 {
            ROW.write(65 * me, at(first + 65 * me)); // <stencil: edge>
        }
        if wrong == 0 {
            thread::sync_threads();
        }
        if wrong == 1 {
            warp::sync_warp(warp::ALL_LANES);
        }
        let right = ROW.read(me + 2); // <stencil: read>
        y.set_unchecked(first + me, right + ROW.read(me + 1) + ROW.read(me));
    }
}

/// Two buffers, one filled while the other is read.
#[kernel(block = 64)]
fn double_buffer(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static BUFFERS: Shared<[[f32; 64]; 2]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let mut sum = 0.0;
    unsafe {
        BUFFERS.write([0, me], x.get_unchecked(me));
        thread::sync_threads();
        for step in 0..4 {
            // The mistake: the buffer that is read in this very step.
            let next = if wrong == 1 { step % 2 } else { (step + 1) % 2 };
            BUFFERS.write([next, me], x.get_unchecked(64 * (step + 1) + me)); // <buffer: fill>
            sum += BUFFERS.read([step % 2, 63 - me]); // <buffer: read>
            if wrong != 2 || step != 1 {
                thread::sync_threads();
            }
        }
        y.set_unchecked(me, sum);
    }
}

/// Counts numbers by their last four bits.
#[kernel(block = 128)]
fn histogram(wrong: u32, x: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    static BINS: Shared<[u32; 16]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 16 {
            BINS.write(me, 0); // <histogram: zero>
        }
        if wrong != 2 {
            thread::sync_threads();
        }
        let bin = (x.get_unchecked(thread::index_1d()) % 16) as usize;
        if wrong == 1 {
            let count = BINS.read(bin); // <histogram: read>
            BINS.write(bin, count + 1); // <histogram: write>
        } else {
            BINS.atomic(bin).fetch_add(1, Relaxed, Scope::Block); // <histogram: add>
        }
        if wrong != 3 {
            thread::sync_threads();
        }
        if me < 16 {
            let count = BINS.read(me); // <histogram: result>
            bins.atomic_unchecked(me).fetch_add(count, Relaxed, Scope::Device);
        }
    }
}

/// Thread 0 chooses a number in each round, and all use it.
#[kernel(block = 96)]
fn broadcast(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static CHOSEN: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    let mut sum = 0;
    unsafe {
        for round in 0..3 {
            if me == 0 {
                CHOSEN.write(0, 10 * round); // <broadcast: write>
            }
            if wrong != 1 {
                thread::sync_threads();
            }
            sum += CHOSEN.read(0); // <broadcast: read>
            if wrong != 2 {
                thread::sync_threads();
            }
        }
        y.set_unchecked(me, sum);
    }
}

/// Reverses 64 numbers in place.
#[kernel(block = 64)]
fn reverse(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, x.get_unchecked(me));
        thread::sync_threads();
        let other = NUMBERS.read(63 - me); // <reverse: read>
        if wrong == 0 {
            thread::sync_threads();
        } else {
            warp::sync_warp(warp::ALL_LANES);
        }
        NUMBERS.write(me, other); // <reverse: write>
        thread::sync_threads();
        x.set_unchecked(me, NUMBERS.read(me));
    }
}

/// Sorts 64 numbers by exchanges of pairs whose distances double and halve.
#[kernel(block = 64)]
fn bitonic_sort(wrong: u32, x: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, x.get_unchecked(me));
        thread::sync_threads();
        for size in [2, 4, 8, 16, 32, 64] {
            let mut distance = size / 2;
            while distance > 0 {
                let other = me ^ distance;
                if me < other {
                    let (one, two) = (NUMBERS.read(me), NUMBERS.read(other)); // <sort: read>
                    if (one > two) == (me & size == 0) {
                        NUMBERS.write(me, two); // <sort: write>
                        NUMBERS.write(other, one);
                    }
                }
                if wrong == 0 || distance != 1 {
                    thread::sync_threads();
                }
                distance /= 2;
            }
        }
        thread::sync_threads();
        x.set_unchecked(me, NUMBERS.read(me));
    }
}

/// Whether any number is odd: whoever sees one says so.
#[kernel(block = 64)]
fn any_odd(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static FOUND: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me == 0 {
            FOUND.write(0, 0);
        }
        thread::sync_threads();
        if x.get_unchecked(me) % 2 == 1 {
            if wrong == 0 {
                FOUND.atomic(0).fetch_or(1, Relaxed, Scope::Block);
            } else {
                FOUND.write(0, 1); // <any: write>
            }
        }
        thread::sync_threads();
        y.set_unchecked(me, FOUND.read(0));
    }
}

/// Two arrays in the shared memory whose size the launch names.
#[kernel(block = 32, dynamic_shared = 256)]
fn two_arrays(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let keys = dynamic_shared::<u32>(0, 32);
        // The mistake: 32 elements are 128 bytes, not 124.
        let values = dynamic_shared::<f32>(if wrong == 0 { 128 } else { 124 }, 32);
        keys.write(me, 7 * me as u32 % 32); // <arrays: key>
        values.write(me, me as f32); // <arrays: value>
        thread::sync_threads();
        y.set_unchecked(me, values.read(keys.read(me) as usize % 32));
    }
}

/// Packs the even numbers, each at the place that a sum over those before it names.
#[kernel(block = 64)]
fn compaction(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static COUNTS: Shared<[u32; 2]> = Shared::new();
    static PACKED: Shared<[u32; 64]> = Shared::new();
    let (me, warp, lane) = (thread::thread_idx_x() as usize, thread::thread_idx_x() / 32, warp::lane_id());
    unsafe {
        PACKED.write(me, 0);
        let number = x.get_unchecked(me);
        let is_even = number.is_multiple_of(2);
        let votes = warp::warp_vote_ballot(warp::ALL_LANES, is_even);
        if lane == 0 {
            COUNTS.write(warp as usize, votes.count_ones());
        }
        thread::sync_threads();
        // The mistake: the second warp begins where the first one did.
        let before = if warp == 1 && wrong == 0 { COUNTS.read(0) } else { 0 };
        if is_even {
            let place = before + (votes & ((1 << lane) - 1)).count_ones();
            PACKED.write(place as usize, number); // <compaction: write>
        }
        thread::sync_threads();
        y.set_unchecked(me, PACKED.read(me));
    }
}

fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i * i * 7 % 101).collect()
}

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 13) as f32 - 6.0).collect()
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("shared.rs"),
    patterns: &[
        Pattern {
            name: "tree_sum",
            run: |wrong, executor| {
                let (x, mut sums) = (floats(256), [0.0; 2]);
                let (x, sums) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut sums));
                launch(executor, tree_sum { wrong, x, sums }, 2)
            },
            mistakes: &[
                found(SharedRace, "no barrier behind the loads", RACE, &["tree: load", "tree: read"]),
                found(SharedRace, "no barrier between the steps", RACE, &["tree: read", "tree: write"]),
                found(
                    SharedRace,
                    "a barrier before each step, and none behind the last",
                    RACE,
                    &["tree: write", "tree: early result"],
                ),
            ],
        },
        Pattern {
            name: "doubling_scan",
            run: |wrong, executor| {
                launch(executor, doubling_scan { wrong, x: GlobalSliceMut::new(&mut numbers(64)) }, 1)
            },
            mistakes: &[
                found(SharedRace, "no barrier between the reads and the writes", RACE, &["scan: read", "scan: write"]),
                found(SharedRace, "no barrier behind the writes", RACE, &["scan: read", "scan: write"]),
            ],
        },
        Pattern {
            name: "tree_scan",
            run: |wrong, executor| launch(executor, tree_scan { wrong, x: GlobalSliceMut::new(&mut numbers(64)) }, 1),
            mistakes: &[found(SharedRace, "no barriers on the way down", RACE, &["down: right", "down: write right"])],
        },
        Pattern {
            name: "transpose",
            run: |wrong, executor| {
                let (x, mut y) = (floats(256), floats(256));
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, transpose { wrong, x, y }, 1)
            },
            mistakes: &[
                found(SharedRace, "no barrier", RACE, &["transpose: write", "transpose: read"]),
                found(SharedRace, "two threads write one element", RACE, &["transpose: write", "transpose: write"]),
            ],
        },
        Pattern {
            name: "tiled_product",
            run: |wrong, executor| {
                let (a, mut c) = (floats(1024), floats(1024));
                let (a, b, c) = (GlobalSlice::new(&a), GlobalSlice::new(&a), GlobalSliceMut::new(&mut c));
                launch(executor, tiled_product { wrong, a, b, c }, (2, 2))
            },
            mistakes: &[
                found(SharedRace, "no barrier behind the loads", RACE, &["product: write a", "product: read a"]),
                found(SharedRace, "no barrier before the next loads", RACE, &["product: write a", "product: read a"]),
            ],
        },
        Pattern {
            name: "stencil",
            run: |wrong, executor| {
                let (x, mut y) = (floats(128), floats(128));
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, stencil { wrong, x, y }, 2)
            },
            mistakes: &[
                found(
                    SharedRace,
                    "the numbers of other warps are ordered by `sync_warp` only",
                    RACE,
                    &["stencil: inner", "stencil: read"],
                ),
                found(
                    SharedRace,
                    "the edges are written behind the barrier",
                    RACE,
                    &["stencil: edge", "stencil: read"],
                ),
            ],
        },
        Pattern {
            name: "double_buffer",
            run: |wrong, executor| {
                let (x, mut y) = (floats(5 * 64), floats(64));
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, double_buffer { wrong, x, y }, 1)
            },
            mistakes: &[
                found(SharedRace, "the buffer is off by one", RACE, &["buffer: fill", "buffer: read"]),
                found(SharedRace, "no barrier in one of the rounds", RACE, &["buffer: fill", "buffer: read"]),
            ],
        },
        Pattern {
            name: "histogram",
            run: |wrong, executor| {
                let (x, mut bins) = (numbers(256), [0; 16]);
                let (x, bins) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut bins));
                launch(executor, histogram { wrong, x, bins }, 2)
            },
            mistakes: &[
                found(SharedRace, "sums that are not atomic", RACE, &["histogram: read", "histogram: write"]),
                found(SharedRace, "no barrier behind the zeros", RACE, &["histogram: zero", "histogram: add"]),
                found(SharedRace, "no barrier behind the sums", RACE, &["histogram: add", "histogram: result"]),
            ],
        },
        Pattern {
            name: "broadcast",
            run: |wrong, executor| launch(executor, broadcast { wrong, y: GlobalSliceMut::new(&mut numbers(96)) }, 1),
            mistakes: &[
                found(SharedRace, "no barrier behind the write", RACE, &["broadcast: write", "broadcast: read"]),
                found(SharedRace, "no barrier before the next write", RACE, &["broadcast: write", "broadcast: read"]),
            ],
        },
        Pattern {
            name: "reverse",
            run: |wrong, executor| launch(executor, reverse { wrong, x: GlobalSliceMut::new(&mut numbers(64)) }, 1),
            mistakes: &[found(
                SharedRace,
                "`sync_warp` where a barrier has to be",
                RACE,
                &["reverse: read", "reverse: write"],
            )],
        },
        Pattern {
            name: "bitonic_sort",
            run: |wrong, executor| {
                launch(executor, bitonic_sort { wrong, x: GlobalSliceMut::new(&mut numbers(64)) }, 1)
            },
            mistakes: &[found(
                SharedRace,
                "no barrier behind the smallest distance",
                RACE,
                &["sort: read", "sort: write"],
            )],
        },
        Pattern {
            name: "any_odd",
            run: |wrong, executor| {
                let (x, mut y) = (numbers(64), numbers(64));
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, any_odd { wrong, x, y }, 1)
            },
            mistakes: &[found(SharedRace, "several threads write the same value", RACE, &["any: write", "any: write"])],
        },
        Pattern {
            name: "two_arrays",
            run: |wrong, executor| launch(executor, two_arrays { wrong, y: GlobalSliceMut::new(&mut floats(32)) }, 1),
            mistakes: &[found(SharedRace, "two arrays overlap by an element", RACE, &["arrays: key", "arrays: value"])],
        },
        Pattern {
            name: "compaction",
            run: |wrong, executor| {
                let (x, mut y) = (numbers(64), numbers(64));
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, compaction { wrong, x, y }, 1)
            },
            mistakes: &[found(
                SharedRace,
                "two warps write from the same place on",
                RACE,
                &["compaction: write", "compaction: write"],
            )],
        },
    ],
};
