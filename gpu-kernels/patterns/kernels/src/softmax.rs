//! The softmax of the rows of a matrix, `yⱼ = exp(xⱼ − max x) / Σ exp(xᵢ − max x)`: each row is read from memory once.
//!
//! ```text
//!  columns        the threads of a row       what is kept of it                                    kernel
//!  up to 256      a warp                     all of it, in registers: 8 numbers of each lane       softmax_short_fp32
//!  up to 1024     a warp                     32 numbers of each lane                               softmax_of_warp_fp32
//!  up to 8192     a block of 256             32 numbers of each thread                             softmax_of_block_fp32
//!  more           a block of 1024            40,960 in shared memory; what is behind them is       softmax_long_fp32
//!                                            read three times, twice from a cache if that has room
//!  more, and      blocks of 256, as many     nothing: the first launch finds maximum and sum of    softmax_parts_fp32,
//!  few rows       as fill the GPU            each part, the second one reads x again               softmax_of_parts_fp32
//!
//!  a row          max x ─► eᵢ = exp(xᵢ − max x), in the place of xᵢ ─► Σ eᵢ ─► yᵢ = eᵢ · (1 / Σ)
//!                   └ lanes by shuffles, warps by shared memory ┘
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
//! have how much of a row is chosen for an SM of 64 K registers and 163 KB of shared memory (sm_80).

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES, Needed, Team, of_block, of_lanes, plus, sum_of_four};

/// The most columns of [`softmax_short_fp32`].
pub const SHORT: usize = 256;

/// The most columns of [`softmax_of_warp_fp32`].
pub const OF_WARP: usize = 1024;

/// The most columns of [`softmax_of_block_fp32`].
pub const OF_BLOCK: usize = 8192;

/// The threads of a block, and those of one that has a long row.
const THREADS: usize = softmax_of_block_fp32::BLOCK.x as usize;
const MANY_THREADS: usize = softmax_long_fp32::BLOCK.x as usize;

/// The warps of both.
const WARPS: usize = THREADS / LANES;
const MANY_WARPS: usize = MANY_THREADS / LANES;

/// The groups that a thread of a long row loads at once, and those that it keeps in shared memory.
const AT_ONCE: usize = 4;
const KEPT: usize = 10;

/// The bytes of what is kept.
const KEPT_BYTES: u32 = (KEPT * MANY_THREADS * FOUR * size_of::<f32>()) as u32;

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

/// The softmax of the row of this warp, of `8 · blocks` rows.
///
/// # Safety
/// All threads of a block of 256 come here together; there are as many elements as rows and columns say, in x and in y.
#[inline(always)]
unsafe fn of_warp<const GROUPS: usize>(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (me, cols) = (thread::thread_idx_x() as usize, cols as usize);
    let row = thread::block_idx_x() as usize * WARPS + me / LANES;
    if row >= rows as usize {
        return; // the same for the whole warp
    }
    let team = Team::<LANES>::new(me % LANES, cols, x.as_ptr().addr() | y.as_mut_ptr().addr());
    // SAFETY: the row is inside, and this warp's alone, all of whose lanes come here.
    unsafe {
        in_registers::<LANES, GROUPS>(team, x, y, row * cols, |max| of_lanes(max, larger), |sum| of_lanes(sum, plus));
    }
}

/// The softmax of each row of up to 256 numbers.
#[kernel(
    block = 256,
    grid = rows.div_ceil(WARPS as u32).max(1),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= SHORT)
)]
pub fn softmax_short_fp32(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    // SAFETY: the launch has checked it.
    unsafe { of_warp::<{ SHORT / (FOUR * LANES) }>(rows, cols, x, y) }
}

/// The softmax of each row of up to 1024 numbers.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = rows.div_ceil(WARPS as u32).max(1),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= OF_WARP)
)]
pub fn softmax_of_warp_fp32(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    // SAFETY: the launch has checked it.
    unsafe { of_warp::<{ OF_WARP / (FOUR * LANES) }>(rows, cols, x, y) }
}

/// The softmax of each row of up to 8192 numbers.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = rows.max(1),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= OF_BLOCK)
)]
pub fn softmax_of_block_fp32(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static MAXIMA: Shared<[f32; WARPS]> = Shared::new();
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    let (row, cols) = (thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let addresses = x.as_ptr().addr() | y.as_mut_ptr().addr();
    let team = Team::<THREADS>::new(thread::thread_idx_x() as usize, cols, addresses);
    // SAFETY: the row is inside, and this block's alone, all of whose threads come here.
    unsafe {
        in_registers::<THREADS, { OF_BLOCK / (FOUR * THREADS) }>(
            team,
            x,
            y,
            row * cols,
            |max| of_block(&MAXIMA, max, f32::NEG_INFINITY, larger),
            |sum| of_block(&SUMS, sum, 0.0, plus),
        );
    }
}

/// The softmax of each row, however long.
#[kernel(
    block = 1024,
    grid = rows.max(1),
    dynamic_shared = KEPT_BYTES,
    requires(x.len() == rows as usize * cols as usize, cols <= i32::MAX as u32, y.len() == x.len())
)]
pub fn softmax_long_fp32(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static MAXIMA: Shared<[f32; MANY_WARPS]> = Shared::new();
    static SUMS: Shared<[f32; MANY_WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let first = row * cols;
    let team = Team::<MANY_THREADS>::new(me, cols, x.as_ptr().addr() | y.as_mut_ptr().addr());
    let groups = team.groups();
    // SAFETY: as many bytes as the launch has.
    let kept = unsafe { dynamic_shared::<f32>(0, KEPT * MANY_THREADS * FOUR) };
    let place = |group: usize| (group * MANY_THREADS + me) * FOUR;
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
        let max = of_block(&MAXIMA, max, f32::NEG_INFINITY, larger);

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
        let factor = 1.0 / of_block(&SUMS, sum, 0.0, plus);

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
pub use operation::Softmax;

/// What the kernels are for. No GPU sees this.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, FP32_ROUNDING, Operation, Sizes, Values,
        Views,
    };

    use super::{
        AT_ONCE, MANY_THREADS, OF_BLOCK, OF_WARP, SHORT, THREADS, part_len, parts_of, softmax_long_fp32,
        softmax_of_block_fp32, softmax_of_parts_fp32, softmax_of_warp_fp32, softmax_parts_fp32, softmax_short_fp32,
    };
    use crate::row::{FOUR, roundings_of_sum};

    /// The softmax of the rows of a matrix.
    pub struct Softmax {
        name: &'static str,
        numbers: Distribution,
        large: &'static [[usize; 2]],
    }

    impl Softmax {
        /// Of numbers as they come.
        pub const NORMAL: Self = Self {
            name: "softmax",
            numbers: Distribution::Normal,
            large: &[[1 << 20, 128], [131_072, 1000], [4096, 50_257], [8, 10_000_000], [16_384, 4096]],
        };
        /// Of infinities, NaN, and the largest and smallest numbers among others.
        pub const SPECIAL: Self = Self { name: "softmax-special", numbers: Distribution::Special, large: Self::FEW };
        /// Of numbers most of whose exponentials are subnormal or 0.
        pub const WIDE: Self =
            Self { name: "softmax-wide", numbers: Distribution::Uniform(-120.0, 120.0), large: Self::FEW };
        /// Of numbers of all magnitudes: only with the largest of all subtracted does no exponential overflow.
        pub const HUGE: Self =
            Self { name: "softmax-huge", numbers: Distribution::LogUniform(1e-30, 3e38), large: Self::FEW };

        /// Large cases of numbers that are not as they come: one for each kernel.
        const FEW: &[[usize; 2]] = &[[10_000, 100], [1000, 1000], [1000, 4096], [100, 50_257]];
    }

    /// The softmax of a row, with a bound for what a kernel may make of it.
    ///
    /// With u = 2⁻²⁴ and m the largest number: an exponential has the rounding of `xᵢ − m`, which is `u·(m − xᵢ)` in the exponent, and 2u
    /// of its own (1 unit in the last place). The sum has those of its terms, weighted by them, and the roundings of its additions. The
    /// result has its own exponential's, the sum's, an inverse's and a product's. To that come subnormal results, off by 1 unit of 2⁻¹⁴⁹
    /// in the exponential and half of one in the product.
    ///
    /// Where a row has parts, and a part is read in steps, its sum is scaled at each: by an exponential of a difference, so the distances
    /// together are as far as above, with 2u for each exponential, and a product each.
    fn expected_row(row: &[f64], parts: usize) -> Vec<Expected> {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponential = |x: &f64| (x - max).exp();
        // Beyond 200 an exponential is 0 on both sides, and its relative error of no interest.
        let distance = |x: &f64| (max - x).min(200.0);
        let sum: f64 = row.iter().map(exponential).sum();
        let mean = row.iter().map(|x| exponential(x) * distance(x)).sum::<f64>() / sum;
        // A row of few numbers has as many groups of a warp as a longer one has of a block, at most.
        let groups = row.len().div_ceil(FOUR * MANY_THREADS).next_multiple_of(AT_ONCE).max(OF_BLOCK / (FOUR * 256));
        // What a thread of a part reads at a time, the threads' sums, and those of the parts.
        let len = part_len(row.len() as u32, parts as u32) as usize;
        let scalings = if parts > 1 { len.div_ceil(FOUR * THREADS * AT_ONCE) + 2 } else { 0 };
        let steps = roundings_of_sum(groups) + 3 * scalings + 4;
        let one = |x: &f64| {
            let exponent = FP32_ROUNDING * (distance(x) + mean + (2 + 2 + steps + 2) as f64);
            let value = exponential(x) / sum;
            if value.is_nan() {
                return Expected::exact(value);
            }
            Expected::within(value, value * exponent.exp_m1() + 2.0 * f64::from(f32::from_bits(1)))
        };
        row.iter().map(one).collect()
    }

    impl Operation for Softmax {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "the softmax of each row of a matrix, which is kept in registers or shared memory: read once",
                sizes: &["rows", "cols"],
                kernels: vec![
                    softmax_short_fp32::FACTS,
                    softmax_of_warp_fp32::FACTS,
                    softmax_of_block_fp32::FACTS,
                    softmax_long_fp32::FACTS,
                    softmax_parts_fp32::FACTS,
                    softmax_of_parts_fp32::FACTS,
                ],
                // Nothing, one, both ways of loading, about the ends of what each kernel can do, and more than is kept of a long row.
                small: testkit::cases(&[
                    [0, 5],
                    [3, 0],
                    [1, 1],
                    [9, 31],
                    [17, 128],
                    [2, 256],
                    [3, 257],
                    [9, 1024],
                    [2, 1025],
                    [3, 3000],
                    [1, 8192],
                    [1, 8193],
                    [1, 12_000],
                    [1, 45_060],
                    [1, 70_001],
                    [2, 131_072],
                ]),
                large: testkit::cases(self.large),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            // The maximum and the sum of each part of a row, if rows have parts.
            let parts = parts_of(rows, cols);
            Ok(vec![
                Argument::input("x", &[rows, cols], self.numbers),
                Argument::output("y", &[rows, cols]),
                Argument::scratch("found", &[if parts > 1 { rows * parts } else { 0 }, 2]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            let (x, y) = (views.read("x")?, views.write("y")?);
            if cols as usize <= SHORT {
                device.launch(softmax_short_fp32 { rows, cols, x, y })?;
            } else if cols as usize <= OF_WARP {
                device.launch(softmax_of_warp_fp32 { rows, cols, x, y })?;
            } else if cols as usize <= OF_BLOCK {
                device.launch(softmax_of_block_fp32 { rows, cols, x, y })?;
            } else {
                let parts = parts_of(rows as usize, cols as usize) as u32;
                if parts == 1 {
                    device.launch(softmax_long_fp32 { rows, cols, x, y })?;
                } else {
                    device.launch(softmax_parts_fp32 { rows, cols, parts, x, found: views.write("found")? })?;
                    let found = views.read("found")?;
                    device.launch(softmax_of_parts_fp32 { rows, cols, parts, x, found, y })?;
                }
            }
            Ok(())
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], x) = (sizes.get(["rows", "cols"])?, values.of("x")?);
            Ok(vec![testkit::each_row(rows, |row| {
                expected_row(&x[row * cols..(row + 1) * cols], parts_of(rows, cols))
            })])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            // A maximum, a difference, an exponential, an addition and a product for each.
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 5.0 * rows as f64 * cols as f64)
        }
    }
}
