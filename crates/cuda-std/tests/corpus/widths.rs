//! Elements of several widths in one word or in two, arrays behind two views, parts that nobody writes, and arithmetic of indices.

use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, fence};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::orders::with_flags;
use crate::pattern::Class::{Bounds, GlobalRace, Order, Panic, SharedRace, Unwritten};
use crate::pattern::{Family, Pattern, Report, found, launch, missed};

const RACE: &str = "race in global memory";
const SHARED: &str = "race in shared memory";

/// A byte for each thread, in global and in shared memory: neighbours share a word.
#[kernel(block = 64)]
fn bytes_of_neighbours(wrong: u32, x: GlobalSliceMut<'_, u8>, words: GlobalSliceMut<'_, u32>) {
    static BYTES: Shared<[u8; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        BYTES.write(me, me as u8); // <bytes: write>
        if wrong == 1 && me == 40 {
            BYTES.write(41, 3); // <bytes: neighbour's>
        }
        match wrong {
            // The mistake: the whole word is read and written for one byte of it.
            2 => {
                let word = words.get_unchecked(me / 4); // <bytes: read word>
                words.set_unchecked(me / 4, word | 1 << (8 * (me % 4))); // <bytes: write word>
            }
            // The mistake: one thread looks at the word, while its bytes are written.
            3 if me == 0 => _ = words.get_unchecked(1), // <bytes: look>
            _ => x.set_unchecked(me, 2 * me as u8),     // <bytes: write global>
        }
        thread::sync_threads();
        let next = BYTES.read((me + 1) % 64);
        if wrong == 0 {
            x.set_unchecked(me, x.get_unchecked(me) + next % 2);
        }
    }
}

/// Marks of 128 elements, a bit each.
#[kernel(block = 64)]
fn marks_in_bits(wrong: u32, marks: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        if i.is_multiple_of(3) {
            if wrong == 1 {
                let before = marks.get_unchecked(i / 32); // <marks: read>
                marks.set_unchecked(i / 32, before | 1 << (i % 32)); // <marks: write>
            } else {
                marks.atomic_unchecked(i / 32).fetch_or(1 << (i % 32), Relaxed, Scope::Device);
            }
        }
        // The mistake: a shift by what is no bit of the word.
        if wrong == 2 {
            let shift = i as u32;
            marks.atomic_unchecked(0).fetch_or(1 << shift, Relaxed, Scope::Device); // <marks: shift>
        }
    }
}

/// A pair of numbers in one word of 64 bits, of which other blocks look at a half, atomically as well: of another width.
#[kernel(block = 32)]
fn halves_of_a_word(wrong: u32, word: GlobalAtomics<'_, u64>, halves: GlobalAtomics<'_, u32>) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let (Some(word), Some(half)) = (word.get(0), halves.get(0)) else { return };
    if thread::block_idx_x() == 0 {
        word.store(3 << 32 | 1, Release, Scope::Device); // <halves: store>
    } else if wrong == 1 {
        while half.load(Acquire, Scope::Device) == 0 {} // <halves: load>
    } else {
        while word.load(Acquire, Scope::Device) as u32 == 0 {}
    }
}

/// Numbers in pairs, of which one is written in two steps.
#[kernel(block = 32)]
fn pairs_in_two_steps(wrong: u32, pairs: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        pairs.set_unchecked(2 * me, 1.0);
        // The mistake: the second of the last pair is left out.
        if wrong != 1 || me < 31 {
            pairs.set_unchecked(2 * me + 1, 2.0);
        }
        let [a, b] = pairs.get_vector_unchecked::<2>(2 * me); // <two steps: read>
        y.set_unchecked(me, a + b);
    }
}

/// Rows of 20 numbers that lie 24 apart.
#[kernel(block = 32)]
fn rows_with_gaps(wrong: u32, x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (column, row) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    unsafe {
        if column < 20 {
            x.set_unchecked(24 * row + column, 1.0); // <gaps: write>
        }
        thread::sync_threads();
        // The mistakes: a column too many, which lies in the gap; a row too many.
        let columns = if wrong == 1 { 21 } else { 20 };
        if column < columns {
            let own = x.get_unchecked(24 * row + column); // <gaps: read>
            let behind = if wrong == 2 { x.get_unchecked(24 * (row + 1) + column) } else { 0.0 }; // <gaps: read row>
            if column < 20 {
                y.set_unchecked(20 * row + column, own + behind);
            }
        }
    }
}

/// Differences in place: what is read is behind another view of the same numbers.
#[kernel(block = 32)]
fn two_views_of_one_array(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        match wrong {
            1 => {
                let right = x.get_unchecked((me + 1) % 32); // <two views: read>
                y.set_unchecked(me, right); // <two views: write>
            }
            // The mistake: it reads by a view that promises that nobody writes, what it has itself written.
            2 => {
                y.set_unchecked(me, 3);
                y.set_unchecked(me, x.get_unchecked(me) + 1);
            }
            _ => y.set_unchecked(me, x.get_unchecked(me) + 1),
        }
    }
}

/// Places whose numbers are computed in fewer bits than they need.
#[kernel(block = 256)]
fn narrow_indices(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        match wrong {
            1 => y.set_unchecked(usize::from(i as u8), 1), // <narrow: write>
            2 => {
                let place = (i as u32 + 1) * 0x0100_0000 / 0x0100_0000; // <narrow: product>
                y.set_unchecked(place as usize - 1, 1);
            }
            3 => y.set_unchecked((i as i32 - 300) as usize, 1), // <narrow: negative>
            4 => y.set_unchecked(i / (y.len() / 1024), 1),      // <narrow: quotient>
            5 => y.set_unchecked(i - 1, 1),                     // <narrow: below zero>
            _ => y.set_unchecked(i, 1),
        }
    }
}

/// Counts in shared memory.
#[kernel(block = 64)]
fn shared_counts(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static COUNTS: Shared<[u32; 4]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        // The mistakes: three of four; no barrier.
        if me < if wrong == 1 { 3 } else { 4 } {
            COUNTS.write(me, 0); // <counts: zero>
        }
        if wrong != 2 {
            thread::sync_threads();
        }
        let count = COUNTS.atomic(me % 4);
        count.fetch_add(1, Relaxed, Scope::Block); // <counts: add>
        if wrong != 3 {
            thread::sync_threads();
        }
        if me < 4 {
            y.set_unchecked(me, COUNTS.read(me)); // <counts: read>
        }
    }
}

/// The first 60 results of 64: the rest is for another launch.
#[kernel(block = 32)]
fn results_of_two_launches(first: u32, count: u32, y: GlobalSliceMut<'_, u32>) {
    let i = first as usize + thread::index_1d();
    if i < (first + count) as usize {
        unsafe { y.set_unchecked(i, 1) }
    }
}

/// Blocks append what they have found to one list.
#[kernel(block = 64)]
fn append(wrong: u32, x: GlobalSlice<'_, u32>, length: GlobalAtomics<'_, u32>, list: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    let Some(length) = length.get(0) else { return };
    unsafe {
        let number = x.get_unchecked(i);
        let lanes = warp::warp_vote_ballot(warp::ALL_LANES, number.is_multiple_of(3));
        let before = (lanes & ((1 << warp::lane_id()) - 1)).count_ones();
        let leader = lanes.trailing_zeros();
        let mut first = 0;
        if warp::lane_id() == leader {
            first = match wrong {
                1 => {
                    let first = length.load(Relaxed, Scope::Device);
                    length.store(first + lanes.count_ones(), Relaxed, Scope::Device);
                    first
                }
                // The mistake: one for all of them.
                2 => length.fetch_add(1, Relaxed, Scope::Device),
                _ => length.fetch_add(lanes.count_ones(), Relaxed, Scope::Device),
            };
        }
        let first = warp::warp_shuffle_idx(warp::ALL_LANES, first, leader, 32).0;
        if number.is_multiple_of(3) {
            // The mistake: who is the n-th of the warp is not counted.
            let place = if wrong == 3 { first } else { first + before };
            list.set_unchecked(place as usize, number); // <append: write>
        }
    }
}

/// A message of bytes, with a flag among them in the same word.
#[kernel(block = 32)]
fn bytes_and_a_flag(
    wrong: u32,
    bytes: GlobalSliceMut<'_, u8>,
    flags: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, u32>,
) {
    if thread::thread_idx_x() != 0 {
        return;
    }
    let Some(flag) = flags.get(0) else { return };
    unsafe {
        if thread::block_idx_x() == 0 {
            for i in 0..3 {
                bytes.set_unchecked(i, 7); // <flag bytes: write>
            }
            if wrong != 1 {
                fence(AcqRel, Scope::Device);
            }
            flag.store(1, Relaxed, Scope::Device);
            // Beside them, and for nobody.
            bytes.set_unchecked(3, 9); // <flag bytes: beside>
        } else {
            while flag.load(Acquire, Scope::Device) == 0 {}
            let last = if wrong == 2 { 4 } else { 3 };
            let mut sum = 0;
            for i in 0..last {
                sum += u32::from(bytes.get_unchecked(i)); // <flag bytes: read>
            }
            y.set_unchecked(0, sum);
        }
    }
}

fn run_bytes(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut words = [0u32; 16];
    let bytes = unsafe { GlobalSliceMut::from_raw_parts(words.as_mut_ptr().cast::<u8>(), 64) };
    launch(executor, bytes_of_neighbours { wrong, x: bytes, words: GlobalSliceMut::new(&mut words) }, 1)
}

fn run_halves(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut word = [0u64];
    let halves = unsafe { GlobalAtomics::from_raw_parts(word.as_mut_ptr().cast::<u32>(), 2) };
    launch(executor, halves_of_a_word { wrong, word: GlobalAtomics::new(&mut word), halves }, 2)
}

fn run_pairs(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut pairs, mut y) = (vec![0u64; 32], [0.0; 32]);
    let _unwritten = executor.without_values(pairs.as_ptr().addr(), 256); // <two steps: allocated>
    let pairs = unsafe { GlobalSliceMut::from_raw_parts(pairs.as_mut_ptr().cast::<f32>(), 64) };
    launch(executor, pairs_in_two_steps { wrong, pairs, y: GlobalSliceMut::new(&mut y) }, 1)
}

fn run_gaps(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut x, mut y) = (vec![0.0; 96], [0.0; 80]);
    let _unwritten = executor.without_values(x.as_ptr().addr(), 4 * 96); // <gaps: allocated>
    let (x, y) = (GlobalSliceMut::new(&mut x), GlobalSliceMut::new(&mut y));
    launch(executor, rows_with_gaps { wrong, x, y }, 4)
}

fn run_two_views(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (mut x, mut other) = ([1; 32], [0; 32]);
    let y = if wrong == 0 {
        GlobalSliceMut::new(&mut other)
    } else {
        unsafe { GlobalSliceMut::from_raw_parts(x.as_mut_ptr(), 32) }
    };
    let x = unsafe { GlobalSlice::from_raw_parts(x.as_ptr(), 32) };
    launch(executor, two_views_of_one_array { wrong, x, y }, 1)
}

fn run_results(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut y = [0; 64];
    let unwritten = executor.without_values(y.as_ptr().addr(), size_of_val(&y)); // <two parts: allocated>
    let y = GlobalSliceMut::new(&mut y);
    launch(executor, results_of_two_launches { first: 0, count: 60, y }, 2)?;
    // The mistake: it begins behind what is left.
    let first = if wrong == 1 { 61 } else { 60 };
    launch(executor, results_of_two_launches { first, count: 64 - first, y }, 1)?;
    Ok(unwritten.map_or(Ok(()), |unwritten| unwritten.check_read::<u32>(0..64))?)
}

fn run_append(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (x, mut length, mut list) = (std::array::from_fn::<u32, 128, _>(|i| i as u32), [0], [0; 128]);
    let (x, list) = (GlobalSlice::new(&x), GlobalSliceMut::new(&mut list));
    launch(executor, append { wrong, x, length: GlobalAtomics::new(&mut length), list }, 2)
}

fn run_bytes_and_a_flag(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut bytes = [0; 4];
    with_flags(1, |_, flags, y| {
        launch(executor, bytes_and_a_flag { wrong, bytes: GlobalSliceMut::new(&mut bytes), flags, y }, 2)
    })
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("widths.rs"),
    patterns: &[
        Pattern {
            name: "bytes_of_neighbours",
            run: run_bytes,
            mistakes: &[
                found(SharedRace, "a neighbour's byte", SHARED, &["bytes: write", "bytes: neighbour's"]),
                found(GlobalRace, "whole words for bytes", RACE, &["bytes: read word", "bytes: write word"]),
                found(
                    GlobalRace,
                    "a look at a word whose bytes are written",
                    RACE,
                    &["bytes: look", "bytes: write global"],
                ),
            ],
        },
        Pattern {
            name: "marks_in_bits",
            run: |wrong, executor| {
                launch(executor, marks_in_bits { wrong, marks: GlobalSliceMut::new(&mut [0; 4]) }, 2)
            },
            mistakes: &[
                found(GlobalRace, "bits that are not set atomically", RACE, &["marks: read", "marks: write"]),
                found(Panic, "a shift by more bits than there are", "panic", &["marks: shift"]),
            ],
        },
        Pattern {
            name: "halves_of_a_word",
            run: run_halves,
            mistakes: &[found(GlobalRace, "atomic operations of two widths", RACE, &["halves: store", "halves: load"])],
        },
        Pattern {
            name: "pairs_in_two_steps",
            run: run_pairs,
            mistakes: &[found(
                Unwritten,
                "half of a pair",
                "unwritten global",
                &["two steps: read", "two steps: allocated"],
            )],
        },
        Pattern {
            name: "rows_with_gaps",
            run: run_gaps,
            mistakes: &[
                found(Unwritten, "a column in the gap", "unwritten global", &["gaps: read", "gaps: allocated"]),
                found(GlobalRace, "the next row, which is another block's", RACE, &["gaps: write", "gaps: read row"]),
            ],
        },
        Pattern {
            name: "two_views_of_one_array",
            run: run_two_views,
            mistakes: &[
                found(
                    GlobalRace,
                    "neighbours are written by another view",
                    RACE,
                    &["two views: read", "two views: write"],
                ),
                missed(
                    GlobalRace,
                    "own elements are read by a view behind which nobody may write",
                    "who launches on slices promises that none that is written is behind another view; a `Device` refuses such views",
                ),
            ],
        },
        Pattern {
            name: "narrow_indices",
            run: |wrong, executor| launch(executor, narrow_indices { wrong, y: GlobalSliceMut::new(&mut [0; 512]) }, 2),
            mistakes: &[
                found(GlobalRace, "an index of 8 bits", RACE, &["narrow: write", "narrow: write"]),
                found(Panic, "a product of more than 32 bits", "panic", &["narrow: product"]),
                found(Bounds, "an index below zero", "out of bounds", &["narrow: negative"]),
                found(Panic, "a division by zero", "panic", &["narrow: quotient"]),
                found(Panic, "a difference below zero", "panic", &["narrow: below zero"]),
            ],
        },
        Pattern {
            name: "shared_counts",
            run: |wrong, executor| launch(executor, shared_counts { wrong, y: GlobalSliceMut::new(&mut [0; 4]) }, 1),
            mistakes: &[
                found(
                    Unwritten,
                    "atomic sums, of which one does not begin at zero",
                    "unwritten shared",
                    &["counts: add"],
                ),
                found(SharedRace, "no barrier behind the zeros", SHARED, &["counts: zero", "counts: add"]),
                found(SharedRace, "no barrier behind the sums", SHARED, &["counts: add", "counts: read"]),
            ],
        },
        Pattern {
            name: "results_of_two_launches",
            run: run_results,
            mistakes: &[found(
                Unwritten,
                "an element between two launches",
                "unwritten elements",
                &["two parts: allocated"],
            )],
        },
        Pattern {
            name: "append",
            run: run_append,
            mistakes: &[
                found(GlobalRace, "the length is not added to atomically", RACE, &["append: write", "append: write"]),
                found(GlobalRace, "one place for several", RACE, &["append: write", "append: write"]),
                found(GlobalRace, "all of a warp at one place", RACE, &["append: write", "append: write"]),
            ],
        },
        Pattern {
            name: "bytes_and_a_flag",
            run: run_bytes_and_a_flag,
            mistakes: &[
                found(Order, "no fence before the flag", RACE, &["flag bytes: write", "flag bytes: read"]),
                found(GlobalRace, "a byte too many", RACE, &["flag bytes: beside", "flag bytes: read"]),
            ],
        },
    ],
};
