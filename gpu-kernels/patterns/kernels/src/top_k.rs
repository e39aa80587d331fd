//! The largest k ≤ 64 numbers of each row of a rows × cols fp32 matrix, in descending order, and their columns. A block of 256 threads has
//! a row, and goes through it 4096 columns at a time; a warp has a row of up to 512 columns; few long rows have several blocks each. The
//! result is exact.
//!
//! ```text
//!  4096 columns       16 numbers of each of 256 threads, in registers
//!                       │ the largest of each thread; those of a warp in order; the one of them of which k / 8 are at least as large
//!  a bound            the least of what the 8 warps have: at least k numbers reach it, and for numbers as they come about 2·k do
//!                       │ what reaches it goes to shared memory, in its order: 256 at a time, what there was before among them
//!  at most 256        each counts those that come before it: that is its place
//!                       │ the first k stay; they are the bound for what follows
//!  the next columns   …
//! ```
//!
//! A number and its index are one word: the upper half is in the order of numbers, the lower one counts down. No two are the same, so nothing
//! depends on which thread is first. Of numbers that are equal, the one with the lowest index comes first; +0 and −0 are equal. NaN comes
//! before everything else, as in PyTorch.
//!
//! However the numbers lie, the result is right; where they ascend, more of them go to shared memory. Long rows, if there are few, are divided
//! into parts, and what has been found in those is a row of its own for another launch. Short rows have a warp each ([`of_warp`]).

pub mod of_warp;

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES, Needed, Team};

/// The most numbers that are looked for in a row.
pub const MOST: usize = 64;

/// The threads of a block.
const THREADS: usize = top_k_fp32::BLOCK.x as usize;

/// The warps of a block.
const WARPS: usize = THREADS / LANES;

/// The groups of four numbers of a thread, and its numbers, at a time.
const GROUPS: usize = 4;
const OWN: usize = GROUPS * FOUR;

/// The columns of a block at a time.
pub const COLUMNS: usize = OWN * THREADS;

/// What stands for no number: less than any.
const NOTHING: u64 = 0;

/// The parts of each row: so many that there are blocks enough, but none of few columns.
#[cfg(not(target_arch = "nvptx64"))]
fn parts(rows: usize, cols: usize) -> usize {
    const BLOCKS: usize = 512;
    (BLOCKS / rows.max(1)).min(cols / (2 * COLUMNS)).max(1)
}

/// The columns of each part but the last, which has what is left: a multiple of four, so that a part begins where vectors can be loaded.
#[inline(always)]
fn cols_of_part(cols: usize, parts: usize) -> usize {
    cols.div_ceil(parts).next_multiple_of(FOUR)
}

/// A word that is larger the earlier a number comes; none is 0.
#[inline(always)]
fn order_of(number: f32) -> u32 {
    // −0 becomes +0; a NaN stays one.
    let bits = (number + 0.0).to_bits();
    let sign = 1 << 31;
    let ordered = if bits & sign == 0 { bits | sign } else { !bits };
    if number.is_nan() { u32::MAX } else { ordered }
}

/// What of a thread's keys is in registers: their upper halves, the orders of numbers, or 0 for what is not there or has been taken. The
/// lower halves, indices that count down, are found when they are needed.
struct Keys<L> {
    upper: [u32; OWN],
    lower: L,
}

impl<L: Fn(usize) -> u32> Keys<L> {
    /// A key as one word: the earlier the number comes, the larger. Of equal numbers the one with the lower index is earlier.
    #[inline(always)]
    fn get(&self, i: usize) -> u64 {
        u64::from(self.upper[i]) << 32 | u64::from((self.lower)(i))
    }

    /// Whether a key is there that is above a bound.
    #[inline(always)]
    fn is_above(&self, i: usize, bound: u64) -> bool {
        self.upper[i] != 0 && self.get(i) > bound
    }
}

/// The index in a key.
#[inline(always)]
fn index_of(key: u64) -> usize {
    !(key as u32) as usize
}

/// The words of the lanes of a warp in descending order.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn sorted_lanes(mut word: u32) -> u32 {
    let lane = warp::lane_id();
    for size in [2, 4, 8, 16, 32] {
        for distance in [16, 8, 4, 2, 1] {
            if distance < size {
                // SAFETY: the caller's promise.
                let other = unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, word, distance, warp::LANES) }.0;
                let keeps_larger = (lane & distance == 0) == (lane & size == 0);
                word = if keeps_larger { word.max(other) } else { word.min(other) };
            }
        }
    }
    word
}

/// The shared memory of a block: its candidates, the counts of its warps, and what their largest numbers reach.
#[derive(Clone, Copy)]
struct Memory {
    keys: &'static Shared<[u64; THREADS]>,
    counts: &'static Shared<[u32; WARPS]>,
    reached: &'static Shared<[u32; WARPS]>,
}

/// What `lower` numbers of each warp reach at least, from the order of the first of each thread: the largest `8·lower` keys of the block are
/// above it.
///
/// # Safety
/// All threads of the block come here together, and a barrier is between any two calls.
#[inline(always)]
unsafe fn bound_of_block(memory: Memory, largest: u32, lower: usize) -> u64 {
    let (me, mut bound) = (thread::thread_idx_x() as usize, u32::MAX);
    // SAFETY: all threads come here; each element has one writer, and the barrier is between writes and reads.
    unsafe {
        let sorted = sorted_lanes(largest);
        if me % LANES == lower - 1 {
            memory.reached.write(me / LANES, sorted);
        }
        thread::sync_threads();
        for warp in 0..WARPS {
            bound = bound.min(memory.reached.read(warp));
        }
    }
    // Keys whose upper half is the bound are above this one; where there is none, all keys are.
    (u64::from(bound) << 32).saturating_sub(1)
}

/// How many of something the threads before this one have, and how many all have.
///
/// # Safety
/// As for [`bound_of_block`].
#[inline(always)]
unsafe fn count_of_block(memory: Memory, own: u32) -> [usize; 2] {
    let me = thread::thread_idx_x() as usize;
    let (warp, lane) = (me / LANES, me % LANES);
    // SAFETY: likewise.
    unsafe {
        let mut up_to_lane = own;
        for distance in [1, 2, 4, 8, 16] {
            let (before, is_there) = warp::warp_shuffle_up(warp::ALL_LANES, up_to_lane, distance, warp::LANES);
            up_to_lane += if is_there { before } else { 0 };
        }
        if lane == LANES - 1 {
            memory.counts.write(warp, up_to_lane);
        }
        thread::sync_threads();
        let (mut before, mut all) = (up_to_lane - own, 0);
        for other in 0..WARPS {
            let count = memory.counts.read(other);
            before += if other < warp { count } else { 0 };
            all += count;
        }
        [before as usize, all as usize]
    }
}

/// Leaves the largest k keys of a row in shared memory, in descending order, and behind them [`NOTHING`] if there are fewer. `load` has this
/// thread's keys of the columns from `COLUMNS·i` on, of `segments`. A barrier has been reached behind.
///
/// # Safety
/// All threads of the block come here together, with memory that nobody uses otherwise; k is 1 to 64.
#[inline(always)]
unsafe fn select<L: Fn(usize) -> u32>(memory: Memory, k: usize, segments: usize, load: impl Fn(usize) -> Keys<L>) {
    let me = thread::thread_idx_x() as usize;
    let (mut have, mut kth) = (0, NOTHING);
    // SAFETY: all threads come here, and leave both loops together, because what these ask is the same for all. Indices are below `THREADS`.
    // Each element has one writer between two barriers, one of which is between what is written and what is read.
    unsafe {
        for segment in 0..segments {
            let mut keys = load(segment);
            let mut largest = 0;
            for i in 0..OWN {
                largest = largest.max(keys.upper[i]);
            }
            let mut bound = bound_of_block(memory, largest, k.div_ceil(WARPS)).max(kth);
            loop {
                let mut own = 0;
                for i in 0..OWN {
                    own += u32::from(keys.is_above(i, bound));
                }
                let [before, all] = count_of_block(memory, own);
                if all == 0 {
                    break;
                }
                let mut place = have + before;
                for i in 0..OWN {
                    if keys.is_above(i, bound) {
                        if place < THREADS {
                            memory.keys.write(place, keys.get(i));
                            keys.upper[i] = 0;
                        }
                        place += 1;
                    }
                }
                thread::sync_threads();
                let filled = (have + all).min(THREADS);
                let mine = if me < filled { memory.keys.read(me) } else { NOTHING };
                let mut rank = 0;
                if me < filled {
                    for other in 0..filled {
                        rank += usize::from(memory.keys.read(other) > mine);
                    }
                }
                thread::sync_threads();
                if me < filled && rank < k {
                    memory.keys.write(rank, mine);
                }
                thread::sync_threads();
                let is_all = have + all <= THREADS;
                have = filled.min(k);
                if have == k {
                    kth = memory.keys.read(k - 1);
                    bound = bound.max(kth);
                }
                if is_all {
                    break;
                }
            }
        }
        if me >= have && me < k {
            memory.keys.write(me, NOTHING);
        }
    }
}

/// The keys of a thread among the columns of a row of `x` that begins at `first`, from `from` on; a team has what is left of it.
///
/// # Safety
/// As for [`Team::load`].
#[inline(always)]
unsafe fn keys_of(
    team: Team<THREADS>,
    x: GlobalSlice<'_, f32>,
    first: usize,
    from: usize,
    segment: usize,
) -> Keys<impl Fn(usize) -> u32> {
    // SAFETY: the caller's promise.
    let numbers: [[f32; FOUR]; GROUPS] = unsafe { team.load(x, first + from, segment * GROUPS, 0.0, Needed::Once) };
    let mut upper = [0; OWN];
    for group in 0..GROUPS {
        for i in 0..FOUR {
            if team.has(segment * GROUPS + group, i) {
                upper[group * FOUR + i] = order_of(numbers[group][i]);
            }
        }
    }
    let lower = move |i: usize| !(from as u32 + team.col(segment * GROUPS + i / FOUR, i % FOUR));
    Keys { upper, lower }
}

/// Writes what has been found in a row.
///
/// # Safety
/// All threads of the block come here together, behind [`select`] of a row that has k numbers; there are k places from `to` on in both outputs,
/// which are this block's alone.
#[inline(always)]
unsafe fn write(
    memory: Memory,
    x: GlobalSlice<'_, f32>,
    first: usize,
    [k, to]: [usize; 2],
    values: GlobalSliceMut<'_, f32>,
    indices: GlobalSliceMut<'_, u32>,
) {
    let me = thread::thread_idx_x() as usize;
    if me < k {
        // SAFETY: the caller's promise. Where keys come from another launch, nobody knows that their indices are those of columns.
        unsafe {
            let index = index_of(memory.keys.read(me));
            values.set_unchecked(to + me, x.get(first + index).unwrap_or(f32::NAN));
            indices.set_unchecked(to + me, index as u32);
        }
    }
}

/// The largest k numbers of each row, a block for each.
#[kernel(
    block = 256,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, 0 < k, k as usize <= MOST, cols <= i32::MAX as u32, k <= cols,
        values.len() == rows as usize * k as usize, indices.len() == values.len()
    )
)]
pub fn top_k_fp32(
    rows: u32,
    cols: u32,
    k: u32,
    x: GlobalSlice<'_, f32>,
    values: GlobalSliceMut<'_, f32>,
    indices: GlobalSliceMut<'_, u32>,
) {
    static KEYS: Shared<[u64; THREADS]> = Shared::new();
    static COUNTS: Shared<[u32; WARPS]> = Shared::new();
    static REACHED: Shared<[u32; WARPS]> = Shared::new();
    let memory = Memory { keys: &KEYS, counts: &COUNTS, reached: &REACHED };
    let (row, cols, k) = (thread::block_idx_x() as usize, cols as usize, k as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let first = row * cols;
    let team = Team::<THREADS>::new(thread::thread_idx_x() as usize, cols, x.as_ptr().addr());
    // SAFETY: the launch has checked the lengths, and k. A row is one block's, all of whose threads come here.
    unsafe {
        select(memory, k, cols.div_ceil(COLUMNS), |segment| keys_of(team, x, first, 0, segment));
        write(memory, x, first, [k, row * k], values, indices);
    }
}

/// The keys of the largest k numbers of each part of each row, a block for each part.
#[kernel(
    block = 256,
    grid = (keys.len() / (k as usize).max(1)).max(1) as u32,
    requires(
        x.len() == rows as usize * cols as usize, 0 < k, k as usize <= MOST, cols <= i32::MAX as u32, 0 < parts,
        Some(keys.len()) == (rows as usize * k as usize).checked_mul(parts as usize),
        keys.len() / (k as usize).max(1) <= i32::MAX as usize
    )
)]
pub fn top_k_parts_fp32(
    rows: u32,
    cols: u32,
    k: u32,
    parts: u32,
    x: GlobalSlice<'_, f32>,
    keys: GlobalSliceMut<'_, u64>,
) {
    static KEYS: Shared<[u64; THREADS]> = Shared::new();
    static COUNTS: Shared<[u32; WARPS]> = Shared::new();
    static REACHED: Shared<[u32; WARPS]> = Shared::new();
    let memory = Memory { keys: &KEYS, counts: &COUNTS, reached: &REACHED };
    let (me, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let (row, part) = (block / parts as usize, block % parts as usize);
    let (cols, k) = (cols as usize, k as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let of_part = cols_of_part(cols, parts as usize);
    let from = (part * of_part).min(cols);
    let len = of_part.min(cols - from);
    // Rows begin where vectors can be loaded if there are four columns or a multiple, and then parts do as well.
    let whole_row = Team::<THREADS>::new(me, cols, x.as_ptr().addr());
    let team = whole_row.of(len);
    // SAFETY: the launch has checked the lengths, and k. A part is one block's, all of whose threads come here.
    unsafe {
        select(memory, k, len.div_ceil(COLUMNS), |segment| keys_of(team, x, row * cols, from, segment));
        if me < k {
            keys.set_unchecked(block * k + me, memory.keys.read(me));
        }
    }
}

/// The largest k numbers of each row, from the keys of its parts, of which each row has `candidates`.
#[kernel(
    block = 256,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, 0 < k, k as usize <= MOST, cols <= i32::MAX as u32, k <= cols,
        keys.len() == rows as usize * candidates as usize,
        values.len() == rows as usize * k as usize, indices.len() == values.len()
    )
)]
pub fn top_k_of_parts_fp32(
    rows: u32,
    cols: u32,
    k: u32,
    candidates: u32,
    x: GlobalSlice<'_, f32>,
    keys: GlobalSlice<'_, u64>,
    values: GlobalSliceMut<'_, f32>,
    indices: GlobalSliceMut<'_, u32>,
) {
    static KEYS: Shared<[u64; THREADS]> = Shared::new();
    static COUNTS: Shared<[u32; WARPS]> = Shared::new();
    static REACHED: Shared<[u32; WARPS]> = Shared::new();
    let memory = Memory { keys: &KEYS, counts: &COUNTS, reached: &REACHED };
    let (me, row) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let (cols, k, candidates) = (cols as usize, k as usize, candidates as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let load = |segment: usize| {
        let keys: [u64; OWN] = core::array::from_fn(|i| {
            let candidate = segment * COLUMNS + i * THREADS + me;
            // SAFETY: the launch has checked that there are so many candidates for each row.
            if candidate < candidates { unsafe { keys.get_unchecked(row * candidates + candidate) } } else { NOTHING }
        });
        Keys { upper: keys.map(|key| (key >> 32) as u32), lower: move |i: usize| keys[i] as u32 }
    };
    // SAFETY: the launch has checked the lengths, and k. The parts have had all numbers of the row, of which there are k. A row is one
    // block's, all of whose threads come here.
    unsafe {
        select(memory, k, candidates.div_ceil(COLUMNS), load);
        write(memory, x, row * cols, [k, row * k], values, indices);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::TopK;

/// The operation as the host sees it: rows, columns and k, x as input, values and their columns as outputs, the kernel for so many columns,
/// and a selection on the host, to which both have to be equal. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use std::cmp::Ordering;

    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::of_warp::{columns, top_k_of_warp_4_fp32, top_k_of_warp_16_fp32};
    use super::{parts, top_k_fp32, top_k_of_parts_fp32, top_k_parts_fp32};

    /// The largest numbers of each row.
    pub struct TopK {
        name: &'static str,
        numbers: Distribution,
        large: &'static [[usize; 3]],
    }

    impl TopK {
        /// Of numbers as they come.
        pub const NORMAL: Self = Self {
            name: "top-k",
            numbers: Distribution::Normal,
            large: &[[65_536, 1000, 8], [64, 128_256, 50], [1, 1 << 26, 64], [16_384, 4096, 64]],
        };
        /// Of zeros of both signs, infinities, and many NaN.
        pub const SPECIAL: Self = Self { name: "top-k-special", numbers: Distribution::Special, large: Self::FEW };
        /// Of numbers most of which are equal: more reach the bound than there is room for.
        pub const TIES: Self = Self { name: "top-k-ties", numbers: Distribution::Integers(-2, 0), large: Self::FEW };

        /// Large cases of numbers that are not as they come.
        const FEW: &[[usize; 3]] = &[[1000, 4096, 64], [3, 1_000_000, 50]];
    }

    /// Which of two numbers comes first: NaN, then the larger one.
    fn order(one: f64, other: f64) -> Ordering {
        match (one.is_nan(), other.is_nan()) {
            (false, false) => other.partial_cmp(&one).unwrap_or(Ordering::Equal),
            (one, other) => other.cmp(&one),
        }
    }

    impl Operation for TopK {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "the largest numbers of each row and their indices: a bound from what threads have, then few candidates",
                sizes: &["rows", "cols", "k"],
                kernels: vec![
                    top_k_of_warp_4_fp32::FACTS,
                    top_k_of_warp_16_fp32::FACTS,
                    top_k_fp32::FACTS,
                    top_k_parts_fp32::FACTS,
                    top_k_of_parts_fp32::FACTS,
                ],
                // Nothing, one, all of a row, both ways of loading, several segments, several parts.
                small: testkit::cases(&[
                    [0, 5, 1],
                    [1, 1, 1],
                    [3, 64, 64],
                    [2, 101, 7],
                    [1, 257, 33],
                    [9, 128, 64],
                    [3, 130, 64],
                    [9, 512, 64],
                    [3, 513, 64],
                    [2, 4096, 64],
                    [40, 4, 2],
                    [1, 4097, 64],
                    [20, 8, 8],
                    [1, 8190, 1],
                    [2, 16_387, 64],
                ]),
                large: testkit::cases(self.large),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols, k] = sizes.get(["rows", "cols", "k"])?;
            let parts = parts(rows, cols);
            let keys = if parts > 1 { rows * parts * k } else { 0 };
            Ok(vec![
                Argument::input("x", &[rows, cols], self.numbers),
                Argument::output("values", &[rows, k]),
                Argument::output("indices", &[rows, k]).of(Element::U32),
                Argument::scratch("keys", &[keys]).of(Element::U64),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols, k] = sizes.get_u32(["rows", "cols", "k"])?;
            let parts = parts(rows as usize, cols as usize) as u32;
            let (x, values, indices) = (views.read("x")?, views.write("values")?, views.write("indices")?);
            if cols as usize <= columns(1) {
                return Ok(device.launch(top_k_of_warp_4_fp32 { rows, cols, k, x, values, indices })?);
            }
            if cols as usize <= columns(4) {
                return Ok(device.launch(top_k_of_warp_16_fp32 { rows, cols, k, x, values, indices })?);
            }
            if parts == 1 {
                return Ok(device.launch(top_k_fp32 { rows, cols, k, x, values, indices })?);
            }
            device.launch(top_k_parts_fp32 { rows, cols, k, parts, x, keys: views.write("keys")? })?;
            let (candidates, keys) = (parts * k, views.read("keys")?);
            Ok(device.launch(top_k_of_parts_fp32 { rows, cols, k, candidates, x, keys, values, indices })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [cols, k] = sizes.get(["cols", "k"])?;
            let rows: Vec<_> = values.of("x")?.chunks(cols.max(1)).collect();
            let largest_of = |row: &[f64]| {
                let mut all: Vec<usize> = (0..row.len()).collect();
                let first = |one: &usize, other: &usize| order(row[*one], row[*other]).then(one.cmp(other));
                all.select_nth_unstable_by(k - 1, first);
                all.truncate(k);
                all.sort_unstable_by(first);
                all
            };
            let indices = testkit::each(rows.len(), |row| largest_of(rows[row]));
            let values = indices.iter().zip(&rows).flat_map(|(of_row, row)| of_row.iter().map(|&index| row[index]));
            let values = values.map(Expected::exact).collect();
            Ok(vec![values, indices.iter().flatten().map(|&index| Expected::exact(index as f64)).collect()])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
