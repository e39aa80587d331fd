//! Indices: past the end by one or by far, before the beginning, vectors that are not aligned; memory that nobody has written; assertions.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::pattern::Class::{Bounds, Panic, Unwritten};
use crate::pattern::{Family, Pattern, found, launch};

const OUTSIDE: &str = "out of bounds";
const SHARED: &str = "shared out of bounds";
const UNWRITTEN: &str = "unwritten shared";

/// `y[i] = 2·x[i]` for 100 elements, in blocks of 64.
#[kernel(block = 64)]
fn doubles(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    let is_inside = match wrong {
        1 => true,
        2 => i <= x.len(),
        _ => i < x.len(),
    };
    if is_inside {
        unsafe {
            let number = x.get_unchecked(i); // <doubles: read>
            y.set_unchecked(i, 2.0 * number);
        }
    }
}

/// Differences of neighbours.
#[kernel(block = 32)]
fn differences(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let right = if wrong == 1 || i + 1 < x.len() { x.get_unchecked(i + 1) } else { 0.0 }; // <differences: right>
        let left = if wrong == 2 || i > 0 { x.get_unchecked(i.wrapping_sub(1)) } else { 0.0 }; // <differences: left>
        y.set_unchecked(i, right - left);
    }
}

/// A matrix of 8 rows of 20 columns, by rows.
#[kernel(block = (32, 8))]
fn copies_a_matrix(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (column, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    if column >= 20 {
        return;
    }
    unsafe {
        // The mistake: as if it lay by columns, of 20.
        let place = if wrong == 1 { 20 * column + row } else { 20 * row + column };
        y.set_unchecked(place, x.get_unchecked(20 * row + column)); // <matrix: write>
    }
}

/// Sums of four, by vector loads.
#[kernel(block = 32)]
fn sums_of_four(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::thread_idx_x() as usize;
    let first = match wrong {
        1 => 4 * i + 1,
        2 => 4 * i + 4,
        _ => 4 * i,
    };
    unsafe {
        let four = x.get4_unchecked(first); // <four: read>
        y.set_unchecked(i, four.iter().sum());
    }
}

/// A row with an edge on both sides.
#[kernel(block = 32)]
fn row_with_edges(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static ROW: Shared<[u32; 34]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        ROW.write(me + 1, me as u32);
        if me == 0 && wrong != 2 {
            ROW.write(0, 0);
        }
        if me == 31 {
            ROW.write(33, 0);
        }
        thread::sync_threads();
        // The mistake: two further on, as if the edge were one wider.
        let right = if wrong == 1 { ROW.read(me + 3) } else { ROW.read(me + 2) }; // <row: right>
        let left = ROW.read(me); // <row: left>
        y.set_unchecked(me, left + right);
    }
}

/// A tile with one column more than it needs, so that columns lie in different banks.
#[kernel(block = (8, 8))]
fn padded_tile(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[[u32; 9]; 8]> = Shared::new();
    let (x, row) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    unsafe {
        TILE.write([row, x], (8 * row + x) as u32);
        thread::sync_threads();
        // The mistake: row and column in the wrong order, and one too many.
        let number = if wrong == 1 { TILE.read([x + 1, row]) } else { TILE.read([x, row]) }; // <tile: read>
        y.set_unchecked(8 * row + x, number);
    }
}

/// Slices of the shared memory whose size the launch names.
#[kernel(block = 16, dynamic_shared = 128)]
fn slices(wrong: u32, y: GlobalSliceMut<'_, f64>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let (first, len) = match wrong {
            1 => (64, 16),
            2 => (4, 8),
            _ => (0, 16),
        };
        let numbers = dynamic_shared::<f64>(first, len); // <slices: begin>
        // The mistake: one more than there are.
        let place = if wrong == 3 { me + 1 } else { me };
        numbers.write(place, me as f64); // <slices: write>
        y.set_unchecked(me, numbers.read(place));
    }
}

/// Vectors in shared memory.
#[kernel(block = 8, dynamic_shared = 160)]
fn shared_vectors(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let numbers = dynamic_shared::<f32>(0, 40);
        let place = if wrong == 1 { 5 * me } else { 4 * me };
        numbers.write4(place, [1.0; 4]); // <vectors: write>
        y.set_unchecked(me, numbers.read(place));
    }
}

/// Sums of rows in shared memory, which begin at zero.
#[kernel(block = 32)]
fn accumulators(wrong: u32, y: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[f32; 32]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        // The mistakes: no zeros; zeros but for the last.
        if wrong == 0 || wrong == 2 && me < 31 {
            SUMS.write(me, 0.0);
        }
        thread::sync_threads();
        for i in 0..4 {
            let sum = SUMS.read(me); // <sums: read>
            SUMS.write(me, sum + i as f32);
        }
        y.set_unchecked(me, SUMS.read(me));
    }
}

/// What warps have found, of which the last block has fewer.
#[kernel(block = 64)]
fn parts_of_warps(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static PARTS: Shared<[u32; 4]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        if lane == 0 {
            PARTS.write(me / 32, 1);
        }
        thread::sync_threads();
        if me == 0 {
            // The mistake: as many as the array has, and not as there are warps.
            let warps = if wrong == 1 { 4 } else { 2 };
            let mut sum = 0;
            for warp in 0..warps {
                sum += PARTS.read(warp); // <parts: read>
            }
            y.set_unchecked(thread::block_idx_x() as usize, sum);
        }
    }
}

/// A result for each of 64 elements; half of the threads have one.
#[kernel(block = 64)]
fn results(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        // The mistake: those whose number is odd never write.
        if wrong == 0 || x.get_unchecked(i).is_multiple_of(2) {
            y.set_unchecked(i, 1);
        }
    }
}

/// Sums in a scratch array in global memory, which begin at zero.
#[kernel(block = 32)]
fn scratch(wrong: u32, parts: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        if wrong == 0 || wrong == 3 && i < 16 {
            parts.set_unchecked(i, 0);
        }
        if wrong == 2 {
            parts.atomic_unchecked(i).fetch_add(1, Relaxed, Scope::Device); // <scratch: add>
        }
        for number in 0..3 {
            parts.set_unchecked(i, parts.get_unchecked(i) + number); // <scratch: read>
        }
        y.set_unchecked(i, parts.get_unchecked(i));
    }
}

/// An element of a small table, chosen by what is in memory; the author asserts what they expect.
#[kernel(block = 32)]
fn table(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    let powers = [1, 10, 100, 1000];
    unsafe {
        let digits = x.get_unchecked(i) as usize + if wrong == 1 { 1 } else { 0 };
        if wrong == 2 {
            assert!(digits < 3, "only three digits"); // <table: assertion>
        }
        y.set_unchecked(i, powers[digits]); // <table: index>
    }
}

/// Arrays of 100 elements, aligned for vectors.
#[repr(align(16))]
struct Aligned([f32; 128]);

pub(crate) const FAMILY: Family = Family {
    source: include_str!("bounds.rs"),
    patterns: &[
        Pattern {
            name: "doubles",
            run: |wrong, executor| {
                let (x, mut y) = ([1.0; 100], [0.0; 128]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, doubles { wrong, x, y }, 2)
            },
            mistakes: &[
                found(Bounds, "nothing compares the index with the length", OUTSIDE, &["doubles: read"]),
                found(Bounds, "`<=` in place of `<`", OUTSIDE, &["doubles: read"]),
            ],
        },
        Pattern {
            name: "differences",
            run: |wrong, executor| {
                let (x, mut y) = ([1.0; 64], [0.0; 64]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, differences { wrong, x, y }, 2)
            },
            mistakes: &[
                found(Bounds, "the neighbour of the last", OUTSIDE, &["differences: right"]),
                found(Bounds, "the neighbour of the first", OUTSIDE, &["differences: left"]),
            ],
        },
        Pattern {
            name: "copies_a_matrix",
            run: |wrong, executor| {
                let (x, mut y) = ([1.0; 160], [0.0; 160]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, copies_a_matrix { wrong, x, y }, 1)
            },
            mistakes: &[found(Bounds, "rows taken for columns", OUTSIDE, &["matrix: write"])],
        },
        Pattern {
            name: "sums_of_four",
            run: |wrong, executor| {
                let (x, mut y) = (Aligned([1.0; 128]), [0.0; 32]);
                let (x, y) = (GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut y));
                launch(executor, sums_of_four { wrong, x, y }, 1)
            },
            mistakes: &[
                found(Bounds, "a vector that begins at an odd element", "misaligned", &["four: read"]),
                found(Bounds, "a vector past the end", OUTSIDE, &["four: read"]),
            ],
        },
        Pattern {
            name: "row_with_edges",
            run: |wrong, executor| launch(executor, row_with_edges { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 1),
            mistakes: &[
                found(Bounds, "past the edge by one", SHARED, &["row: right"]),
                found(Unwritten, "an edge that nobody writes", UNWRITTEN, &["row: left"]),
            ],
        },
        Pattern {
            name: "padded_tile",
            run: |wrong, executor| launch(executor, padded_tile { wrong, y: GlobalSliceMut::new(&mut [0; 64]) }, 1),
            mistakes: &[found(Bounds, "a row past the last", SHARED, &["tile: read"])],
        },
        Pattern {
            name: "slices",
            run: |wrong, executor| launch(executor, slices { wrong, y: GlobalSliceMut::new(&mut [0.0; 16]) }, 1),
            mistakes: &[
                found(Bounds, "a slice that does not fit", "dynamic shared bounds", &["slices: begin"]),
                found(Bounds, "a slice that is not aligned", "dynamic shared bounds", &["slices: begin"]),
                found(Bounds, "past the end of a slice by one", SHARED, &["slices: write"]),
            ],
        },
        Pattern {
            name: "shared_vectors",
            run: |wrong, executor| launch(executor, shared_vectors { wrong, y: GlobalSliceMut::new(&mut [0.0; 8]) }, 1),
            mistakes: &[found(Bounds, "vectors five elements apart", "shared misaligned", &["vectors: write"])],
        },
        Pattern {
            name: "accumulators",
            run: |wrong, executor| launch(executor, accumulators { wrong, y: GlobalSliceMut::new(&mut [0.0; 32]) }, 1),
            mistakes: &[
                found(Unwritten, "sums that do not begin at zero", UNWRITTEN, &["sums: read"]),
                found(Unwritten, "one sum that does not begin at zero", UNWRITTEN, &["sums: read"]),
            ],
        },
        Pattern {
            name: "parts_of_warps",
            run: |wrong, executor| launch(executor, parts_of_warps { wrong, y: GlobalSliceMut::new(&mut [0; 2]) }, 2),
            mistakes: &[found(Unwritten, "more parts than there are warps", UNWRITTEN, &["parts: read"])],
        },
        Pattern {
            name: "results",
            run: |wrong, executor| {
                let (x, mut y) = (std::array::from_fn::<u32, 64, _>(|i| i as u32), [0; 64]);
                let unwritten = executor.without_values(y.as_ptr().addr(), size_of_val(&y)); // <results: allocated>
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, results { wrong, x, y }, 1)?;
                Ok(unwritten.map_or(Ok(()), |unwritten| unwritten.check_read::<u32>(0..64))?)
            },
            mistakes: &[found(Unwritten, "outputs that nobody writes", "unwritten elements", &["results: allocated"])],
        },
        Pattern {
            name: "scratch",
            run: |wrong, executor| {
                let (mut parts, mut y) = ([0; 32], [0; 32]);
                let _unwritten = executor.without_values(parts.as_ptr().addr(), size_of_val(&parts)); // <scratch: allocated>
                let (parts, y) = (GlobalSliceMut::new(&mut parts), GlobalSliceMut::new(&mut y));
                launch(executor, scratch { wrong, parts, y }, 1)
            },
            mistakes: &[
                found(
                    Unwritten,
                    "a scratch array in global memory that nobody has written",
                    "unwritten global",
                    &["scratch: read", "scratch: allocated"],
                ),
                found(
                    Unwritten,
                    "atomic sums in memory that nobody has written",
                    "unwritten global",
                    &["scratch: add", "scratch: allocated"],
                ),
                found(
                    Unwritten,
                    "half of the scratch array is zeroed",
                    "unwritten global",
                    &["scratch: read", "scratch: allocated"],
                ),
            ],
        },
        Pattern {
            name: "table",
            run: |wrong, executor| {
                let (x, mut y) = ([3; 32], [0; 32]);
                let (x, y) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
                launch(executor, table { wrong, x, y }, 1)
            },
            mistakes: &[
                found(Panic, "an index behind the end of an array of the thread", "panic", &["table: index"]),
                found(Panic, "an assertion that does not hold", "panic", &["table: assertion"]),
            ],
        },
    ],
};
