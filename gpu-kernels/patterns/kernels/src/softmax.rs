//! The softmax of each row of a rows × cols fp32 matrix, `yⱼ = exp(xⱼ − max x) / Σ exp(xᵢ − max x)`. One to 32 lanes of a warp, a block, or
//! several blocks have a row: as many as it takes to keep it, so that all but the longest rows are read from memory once.
//!
//! ```text
//!  columns          the threads of a row       what is kept of it                                  kernel
//!  up to 4 · n      n of a warp: 1, 2, 4, 8    all of it, in registers: 4 numbers of each lane     softmax_lanes_n_fp32
//!                   or 16
//!  up to 128, 256   8 or 16 of a warp          16 numbers of each lane                             softmax_lanes_n_16_fp32
//!  up to 512, 1024  a warp                     16 or 32 numbers of each lane                       softmax_of_warp_n_fp32
//!  up to 2048       a block of 64              32 numbers of each thread                           softmax_of_block_64_fp32
//!  up to 8192       a block of 256             32 numbers of each thread                           softmax_of_block_256_fp32
//!  up to 28,672     a block of 512             all of it, in shared memory                         softmax_long_512_fp32
//!  more             a block of 1024            40,960 in shared memory; what is behind them is     softmax_long_1024_fp32
//!                                              read three times, twice from a cache if that has
//!                                              room
//!  more, and        blocks of 256, as many     nothing: the first launch finds maximum and sum     softmax_parts_fp32,
//!  few rows         as fill the GPU            of each part, the second one reads x again          softmax_of_parts_fp32
//!
//!  a row            max x ─► eᵢ = exp(xᵢ − max x), in the place of xᵢ ─► Σ eᵢ ─► yᵢ = eᵢ · (1 / Σ)
//!                     └ lanes by shuffles, warps by shared memory ┘
//! ```
//!
//! Nothing of a row is computed before all of it is there: the maximum comes first, so that there is one exponential for each number, and no
//! exponential is above 1.
//!
//! A part of a row has its own maximum m and its sum `Σ exp(xᵢ − m)`; the sum of the row is that of the parts' times `exp(m − max)`.
//!
//! Special values are as in PyTorch: a row with a NaN or +∞, and one that has nothing but −∞, is NaN throughout; any other −∞ gives 0.
//!
//! Source: J. Bridle, "Probabilistic interpretation of feedforward classification network outputs" (1990), for the function. Which threads
//! have how much of a row is chosen for an SM of 64 K registers and 163 KB of shared memory (sm_80), or, with rows of 512 threads, 227 KB (sm_90).

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES, Needed, Team, of_block, plus, sum_of_four};

/// The most columns of [`softmax_of_block_64_fp32`] and of [`softmax_of_block_256_fp32`].
pub const OF_SMALL_BLOCK: usize = 2048;
pub const OF_BLOCK: usize = 8192;

/// The most columns of [`softmax_long_512_fp32`].
pub const ALL_KEPT: usize = FEWER_KEPT * FEWER_THREADS * FOUR;

/// The threads of a block that has several rows, or a part of one, and those of the two that have a long row.
const THREADS: usize = softmax_parts_fp32::BLOCK.x as usize;
const FEWER_THREADS: usize = softmax_long_512_fp32::BLOCK.x as usize;

/// The warps of a block that has a part of a row.
const WARPS: usize = THREADS / LANES;

/// The groups that a thread of a long row loads at once, and those that it keeps in shared memory.
const AT_ONCE: usize = 4;
const FEWER_KEPT: usize = 14;
const MANY_KEPT: usize = 10;

/// The largest number that was seen, and this one. A NaN is passed over: its exponential makes the sum NaN.
#[inline(always)]
fn larger(one: f32, other: f32) -> f32 {
    math::max(one, other)
}

/// The largest of four numbers.
#[inline(always)]
fn largest_of_four([a, b, c, d]: [f32; FOUR]) -> f32 {
    larger(larger(a, b), larger(c, d))
}

/// The softmax of a row that a team keeps in registers, `GROUPS` groups at most. `largest` and `sum` find that of what each thread has.
///
/// # Safety
/// As for [`Team::load`] and [`Team::store`]; what the two functions ask for.
#[inline(always)]
unsafe fn in_registers<const THREADS: usize, const GROUPS: usize>(
    team: Team<THREADS>,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
    first: usize,
    largest: impl Fn(f32) -> f32,
    sum: impl Fn(f32) -> f32,
) {
    let groups = team.groups();
    // SAFETY: the caller's promise.
    let mut numbers: [[f32; FOUR]; GROUPS] = unsafe { team.load(x, first, 0, f32::NEG_INFINITY, Needed::Once) };
    // Groups that are not there are left out: the same for all threads.
    let mut max = f32::NEG_INFINITY;
    for group in 0..GROUPS {
        if group < groups {
            max = larger(max, largest_of_four(numbers[group]));
        }
    }
    let max = largest(max);
    let mut of_thread = 0.0;
    for group in 0..GROUPS {
        if group < groups {
            numbers[group] = numbers[group].map(|x| math::exp(x - max));
            of_thread += sum_of_four(numbers[group]);
        }
    }
    let factor = 1.0 / sum(of_thread);
    for group in 0..GROUPS {
        numbers[group] = numbers[group].map(|e| e * factor);
    }
    // SAFETY: the caller's promise.
    unsafe { team.store(y, first, 0, numbers) };
}

/// The blocks for so many rows, `of_block` at a time.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(rows: u32, of_block: usize, groups: usize) -> u32 {
    /// Several times as many as run at the same time on any GPU.
    const ENOUGH: u32 = 1 << 14;
    let blocks = rows.div_ceil(of_block as u32).max(1);
    if groups == 1 { blocks.min(ENOUGH) } else { blocks }
}

/// What an operation makes of a number of each of `OF_ROW` lanes side by side, a power of two; all of them get it, as those of a whole warp do of
/// `row::of_lanes`.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn of_some_lanes<const OF_ROW: usize>(mut value: f32, operation: impl Fn(f32, f32) -> f32) -> f32 {
    let mut distance = OF_ROW / 2;
    while distance > 0 {
        // SAFETY: the caller's promise.
        let other = unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance as u32, warp::LANES) }.0;
        value = operation(value, other);
        distance /= 2;
    }
    value
}

/// The softmax of each row of up to `4 · GROUPS · OF_ROW` numbers, by so many lanes for each row.
#[kernel(
    block = 256,
    min_blocks = if GROUPS == 1 { 6 } else { 4 },
    grid = blocks(rows, THREADS / OF_ROW, GROUPS),
    requires(
        x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= FOUR * GROUPS * OF_ROW
    ),
    instances(
        softmax_lanes_1_fp32 = <1, 1>,
        softmax_lanes_2_fp32 = <2, 1>,
        softmax_lanes_4_fp32 = <4, 1>,
        softmax_lanes_8_fp32 = <8, 1>,
        softmax_lanes_16_fp32 = <16, 1>,
        softmax_lanes_8_16_fp32 = <8, 4>,
        softmax_lanes_16_16_fp32 = <16, 4>,
        softmax_of_warp_16_fp32 = <32, 4>,
        softmax_of_warp_32_fp32 = <32, 8>
    )
)]
pub fn softmax_of_lanes<const OF_ROW: usize, const GROUPS: usize>(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    let (me, rows, cols) = (thread::thread_idx_x() as usize, rows as usize, cols as usize);
    let of_block = THREADS / OF_ROW;
    let all = Team::<OF_ROW>::new(me % OF_ROW, cols, x.as_ptr().addr() | y.as_mut_ptr().addr());
    let mut first = thread::block_idx_x() as usize * of_block;
    while first < rows {
        let row = first + me / OF_ROW;
        // Lanes without a row go along with those of their warp that have one.
        let team = all.of(if row < rows { cols } else { 0 });
        // SAFETY: the row is inside, and this team's alone; the loop is the same for all threads of the block.
        unsafe {
            in_registers::<OF_ROW, GROUPS>(
                team,
                x,
                y,
                row * cols,
                |max| of_some_lanes::<OF_ROW>(max, larger),
                |sum| of_some_lanes::<OF_ROW>(sum, plus),
            );
        }
        if GROUPS > 1 {
            return; // There are blocks for all rows. Of the shortest ones, a block would have too little to do.
        }
        first += hint::keep_rolled(thread::grid_dim_x()) as usize * of_block;
    }
}

/// The softmax of each row of up to `4 · GROUPS · OF_ROW` numbers, by a block of so many threads.
#[kernel(
    block = OF_ROW as u32,
    min_blocks = 1024 / OF_ROW as u32,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= FOUR * GROUPS * OF_ROW
    ),
    instances(softmax_of_block_64_fp32 = <64, 8, 2>, softmax_of_block_256_fp32 = <256, 8, 8>)
)]
pub fn softmax_of_block<const OF_ROW: usize, const GROUPS: usize, const WARPS: usize>(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    static MAXIMA: Shared<[f32; WARPS]> = Shared::new();
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    let (row, cols) = (thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let addresses = x.as_ptr().addr() | y.as_mut_ptr().addr();
    let team = Team::<OF_ROW>::new(thread::thread_idx_x() as usize, cols, addresses);
    // SAFETY: the row is inside, and this block's alone, all of whose threads come here.
    unsafe {
        in_registers::<OF_ROW, GROUPS>(
            team,
            x,
            y,
            row * cols,
            |max| of_block(MAXIMA, max, f32::NEG_INFINITY, larger),
            |sum| of_block(SUMS, sum, 0.0, plus),
        );
    }
}

/// The softmax of each row, however long, by a block of so many threads, each of which keeps so many groups of four.
#[kernel(
    block = OF_ROW as u32,
    grid = rows.max(1),
    dynamic_shared = (KEPT * OF_ROW * FOUR * size_of::<f32>()) as u32,
    requires(x.len() == rows as usize * cols as usize, cols <= i32::MAX as u32, y.len() == x.len()),
    instances(
        softmax_long_512_fp32 = <512, FEWER_KEPT, 16>,
        softmax_long_1024_fp32 = <1024, MANY_KEPT, 32>
    )
)]
pub fn softmax_long<const OF_ROW: usize, const KEPT: usize, const WARPS: usize>(
    rows: u32,
    cols: u32,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    static MAXIMA: Shared<[f32; WARPS]> = Shared::new();
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let first = row * cols;
    let team = Team::<OF_ROW>::new(me, cols, x.as_ptr().addr() | y.as_mut_ptr().addr());
    let groups = team.groups();
    // SAFETY: as many bytes as the launch has.
    let kept = unsafe { dynamic_shared::<f32>(0, KEPT * OF_ROW * FOUR) };
    let place = |group: usize| (group * OF_ROW + me) * FOUR;
    // SAFETY: the row is inside, and this block's alone, all of whose threads come here. What is kept is read by the thread that has written
    // it; its groups are below `KEPT`, and begin at multiples of four elements.
    unsafe {
        let mut max = f32::NEG_INFINITY;
        let mut from = 0;
        while from < groups {
            let numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, f32::NEG_INFINITY, Needed::Again);
            for group in 0..AT_ONCE {
                max = larger(max, largest_of_four(numbers[group]));
                if from + group < KEPT {
                    kept.write4(place(from + group), numbers[group]);
                }
            }
            from += AT_ONCE;
        }
        let max = of_block(MAXIMA, max, f32::NEG_INFINITY, larger);

        let exponentials = |numbers: [f32; FOUR]| numbers.map(|x| math::exp(x - max));
        let mut sum = 0.0;
        for group in 0..groups.min(KEPT) {
            let numbers = exponentials(kept.read4(place(group)));
            sum += sum_of_four(numbers);
            kept.write4(place(group), numbers);
        }
        let mut from = KEPT;
        while from < groups {
            let numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, f32::NEG_INFINITY, Needed::Again);
            for group in 0..AT_ONCE {
                sum += sum_of_four(exponentials(numbers[group]));
            }
            from += AT_ONCE;
        }
        let factor = 1.0 / of_block(SUMS, sum, 0.0, plus);

        for group in 0..groups.min(KEPT) {
            team.store(y, first, group, [kept.read4(place(group)).map(|e| e * factor)]);
        }
        let mut from = KEPT;
        while from < groups {
            let mut numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, f32::NEG_INFINITY, Needed::Again);
            for group in 0..AT_ONCE {
                numbers[group] = exponentials(numbers[group]).map(|e| e * factor);
            }
            team.store(y, first, from, numbers);
            from += AT_ONCE;
        }
    }
}

/// The numbers of a part of a row at least, and the most parts of one.
#[cfg(not(target_arch = "nvptx64"))]
const LEAST_PART: usize = 16_384;
pub const PARTS: usize = 1024;

/// The blocks that fill a GPU, several times: rows of which there are as many are not divided.
#[cfg(not(target_arch = "nvptx64"))]
const ENOUGH_BLOCKS: usize = 2048;

/// The parts of each row, one if rows are not divided.
#[cfg(not(target_arch = "nvptx64"))]
fn parts_of(rows: usize, cols: usize) -> usize {
    let is_long = cols > 4 * LEAST_PART && rows < ENOUGH_BLOCKS / 8;
    if is_long { (ENOUGH_BLOCKS / rows.max(1)).clamp(1, cols.div_ceil(LEAST_PART)).min(PARTS) } else { 1 }
}

/// The numbers of a part: whole groups of four of a block, so that parts begin where vectors do if rows do.
#[inline(always)]
fn part_len(cols: u32, parts: u32) -> u32 {
    cols.div_ceil(parts.max(1)).next_multiple_of((FOUR * THREADS) as u32)
}

/// This block's row and part of it: the first element of the row, and the columns.
#[inline(always)]
fn own_part(rows: u32, cols: u32, parts: u32) -> Option<(usize, core::ops::Range<u32>)> {
    let (row, part) = (thread::block_idx_x() / parts.max(1), thread::block_idx_x() % parts.max(1));
    let len = part_len(cols, parts);
    let first = cols.min(part.saturating_mul(len));
    (row < rows).then(|| (row as usize, first..cols.min(first.saturating_add(len))))
}

/// The first group of four of a block in a part; behind the last one of the row if there is nothing in the part.
#[inline(always)]
fn first_group(columns: &core::ops::Range<u32>) -> usize {
    (columns.start as usize).div_ceil(FOUR * THREADS)
}

/// The blocks of all parts of all rows, if a grid can have as many.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks_of_parts(rows: u32, parts: u32) -> Option<u32> {
    rows.checked_mul(parts).filter(|&blocks| blocks <= i32::MAX as u32)
}

/// The maximum of each part of each row, and the sum of the exponentials of what its numbers are below it: two numbers for each part, row by
/// row.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = blocks_of_parts(rows, parts).unwrap_or(1).max(1),
    requires(
        x.len() == rows as usize * cols as usize,
        cols <= i32::MAX as u32,
        parts >= 1,
        parts as usize <= PARTS,
        blocks_of_parts(rows, parts).is_some(),
        found.len() == 2 * rows as usize * parts as usize
    )
)]
pub fn softmax_parts_fp32(rows: u32, cols: u32, parts: u32, x: GlobalSlice<'_, f32>, found: GlobalSliceMut<'_, f32>) {
    static MAXIMA: Shared<[f32; WARPS]> = Shared::new();
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    let Some((row, columns)) = own_part(rows, cols, parts) else { return }; // the same for the whole block
    let (me, first) = (thread::thread_idx_x() as usize, row * cols as usize);
    let team = Team::<THREADS>::new(me, cols as usize, x.as_ptr().addr()).of(columns.end as usize);
    let (mut from, end) = (first_group(&columns), team.groups());
    // What this thread has seen, and the sum of the exponentials: scaled down where there is a larger number.
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
    // SAFETY: the row is inside, of which a part is read; all threads of the block come to the barriers. One thread writes the part's two
    // numbers.
    unsafe {
        while from < end {
            let numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, f32::NEG_INFINITY, Needed::Again);
            let mut larger_one = max;
            for group in 0..AT_ONCE {
                larger_one = larger(larger_one, largest_of_four(numbers[group]));
            }
            // While there are only −∞, there is no difference to take.
            let base = if larger_one == f32::NEG_INFINITY { 0.0 } else { larger_one };
            sum *= math::exp(max - base);
            max = larger_one;
            for group in 0..AT_ONCE {
                sum += sum_of_four(numbers[group].map(|x| math::exp(x - base)));
            }
            from = hint::keep_rolled((from + AT_ONCE) as u32) as usize;
        }
        let of_part = of_block(&MAXIMA, max, f32::NEG_INFINITY, larger);
        let base = if of_part == f32::NEG_INFINITY { 0.0 } else { of_part };
        let sum = of_block(&SUMS, sum * math::exp(max - base), 0.0, plus);
        if me == 0 {
            let place = 2 * thread::block_idx_x() as usize;
            found.set_unchecked(place, of_part);
            found.set_unchecked(place + 1, sum);
        }
    }
}

/// The softmax of each row, from what [`softmax_parts_fp32`] has found of its parts.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = blocks_of_parts(rows, parts).unwrap_or(1).max(1),
    requires(
        x.len() == rows as usize * cols as usize,
        y.len() == x.len(),
        cols <= i32::MAX as u32,
        parts >= 1,
        parts as usize <= PARTS,
        blocks_of_parts(rows, parts).is_some(),
        found.len() == 2 * rows as usize * parts as usize
    )
)]
pub fn softmax_of_parts_fp32(
    rows: u32,
    cols: u32,
    parts: u32,
    x: GlobalSlice<'_, f32>,
    found: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    static MAXIMA: Shared<[f32; WARPS]> = Shared::new();
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    const OF_THREAD: usize = PARTS / THREADS;
    let Some((row, columns)) = own_part(rows, cols, parts) else { return }; // the same for the whole block
    let (me, first, parts) = (thread::thread_idx_x() as usize, row * cols as usize, parts as usize);
    let addresses = x.as_ptr().addr() | y.as_mut_ptr().addr();
    let team = Team::<THREADS>::new(me, cols as usize, addresses).of(columns.end as usize);
    let (mut from, end) = (first_group(&columns), team.groups());
    // SAFETY: the row is inside, and its part this block's alone, all of whose threads come to the barriers; each part of the row has two
    // numbers.
    unsafe {
        let mut maxima = [f32::NEG_INFINITY; OF_THREAD];
        let mut sums = [0.0; OF_THREAD];
        for i in 0..OF_THREAD {
            if me + i * THREADS < parts {
                let place = 2 * (row * parts + me + i * THREADS);
                (maxima[i], sums[i]) = (found.get_unchecked(place), found.get_unchecked(place + 1));
            }
        }
        let max = of_block(&MAXIMA, largest_of_four(maxima), f32::NEG_INFINITY, larger);
        let mut scaled = [0.0; OF_THREAD];
        for i in 0..OF_THREAD {
            scaled[i] = if me + i * THREADS < parts { sums[i] * math::exp(maxima[i] - max) } else { 0.0 };
        }
        let factor = 1.0 / of_block(&SUMS, sum_of_four(scaled), 0.0, plus);
        while from < end {
            let mut numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, f32::NEG_INFINITY, Needed::Once);
            for group in 0..AT_ONCE {
                numbers[group] = numbers[group].map(|x| math::exp(x - max) * factor);
            }
            team.store(y, first, from, numbers);
            from = hint::keep_rolled((from + AT_ONCE) as u32) as usize;
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod operation;

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Softmax;
