//! Layer normalisation of each row of a rows × cols fp32 matrix, `yⱼ = (xⱼ − mean) / √(variance + ε) · γⱼ + βⱼ`, with γ and β for each column. A
//! warp has a row of up to 1024 columns, a block of 256 or 1024 threads a longer one; up to 8192 columns are kept in registers, and so read
//! once. Sums are made in the same order every time.
//!
//! ```text
//!  columns        the threads of a row       what is kept of it                           kernel
//!  up to 1024     a warp                     all of it: 32 numbers of each lane           layer_norm_of_warp_fp32
//!  up to 8192     a block of 256             all of it: 32 numbers of each thread         layer_norm_of_block_fp32
//!  more           a block of 1024            nothing: it is read three times, twice       layer_norm_long_fp32
//!                                            from a cache if that has room
//!
//!  a row          Σ xⱼ ─► mean ─► Σ (xⱼ − mean)² ─► 1 / √(variance + ε) ─► yⱼ
//! ```
//!
//! Deviations from the mean are squared, not the numbers: rows far from zero lose nothing. The variance is that of all numbers, not
//! estimated from a sample. Mean and `1 / √(variance + ε)` of each row are written too: [`layer_norm_backward`](crate::layer_norm_backward)
//! takes them.
//!
//! With a NaN or an infinity in a row, all of its y are NaN; so they are if the sum of the row is beyond the numbers of fp32. Where only the
//! squares of deviations are, y is β. A row without columns has NaN for both.
//!
//! Source: J. L. Ba, J. R. Kiros and G. E. Hinton, "Layer normalization" (2016).

use cuda_std::prelude::*;

use crate::row::{FOUR, LANES, Needed, Team, of_block, of_lanes, plus, sum_of_four};

/// The most columns of [`layer_norm_of_warp_fp32`].
pub const OF_WARP: usize = 1024;

/// The most columns of [`layer_norm_of_block_fp32`].
pub const OF_BLOCK: usize = 8192;

/// The threads of a block, and those of one that has a long row.
const THREADS: usize = layer_norm_of_block_fp32::BLOCK.x as usize;
const MANY_THREADS: usize = layer_norm_long_fp32::BLOCK.x as usize;

/// The warps of both.
const WARPS: usize = THREADS / LANES;
const MANY_WARPS: usize = MANY_THREADS / LANES;

/// The groups that a thread of a long row loads at once: of x alone, and of x, γ and β.
const AT_ONCE: usize = 4;
const AT_ONCE_OF_EACH: usize = 2;

/// What a kernel is given.
#[derive(Clone, Copy)]
struct Matrices<'a> {
    x: GlobalSlice<'a, f32>,
    gamma: GlobalSlice<'a, f32>,
    beta: GlobalSlice<'a, f32>,
    y: GlobalSliceMut<'a, f32>,
}

impl Matrices<'_> {
    /// Their addresses, combined.
    #[inline(always)]
    fn addresses(&self) -> usize {
        let inputs = self.x.as_ptr().addr() | self.gamma.as_ptr().addr() | self.beta.as_ptr().addr();
        inputs | self.y.as_mut_ptr().addr()
    }
}

/// What a row is normalised with.
#[derive(Clone, Copy)]
struct Moments {
    mean: f32,
    /// One over the standard deviation.
    inverse: f32,
}

impl Moments {
    /// Those of a row of so many columns, from its mean and the sum of the squares of the deviations.
    #[inline(always)]
    fn new(mean: f32, squares: f32, cols: usize, epsilon: f32) -> Self {
        Self { mean, inverse: math::rsqrt(squares / cols as f32 + epsilon) }
    }

    /// Some numbers, normalised.
    #[inline(always)]
    fn of(self, x: [f32; FOUR], gamma: [f32; FOUR], beta: [f32; FOUR]) -> [f32; FOUR] {
        core::array::from_fn(|i| math::fma((x[i] - self.mean) * self.inverse, gamma[i], beta[i]))
    }
}

/// The squares of the deviations of a thread's numbers of a group, added up. What is not there does not count.
#[inline(always)]
fn squares<const THREADS: usize>(team: Team<THREADS>, group: usize, x: [f32; FOUR], mean: f32) -> f32 {
    sum_of_four(core::array::from_fn(|i| {
        let deviation = if team.has(group, i) { x[i] - mean } else { 0.0 };
        deviation * deviation
    }))
}

/// Normalises a row that a team keeps in registers, `GROUPS` groups at most. `sums` find the sum of what each thread has.
///
/// # Safety
/// As for [`Team::load`] and [`Team::store`], of the row from `first` on; what the two functions ask for. There is a γ and a β for each column.
#[inline(always)]
unsafe fn in_registers<const THREADS: usize, const GROUPS: usize>(
    team: Team<THREADS>,
    matrices: Matrices<'_>,
    [first, cols]: [usize; 2],
    epsilon: f32,
    sum: impl Fn(f32) -> f32,
    sum_of_squares: impl Fn(f32) -> f32,
) -> Moments {
    let Matrices { x, gamma, beta, y } = matrices;
    let groups = team.groups();
    // SAFETY: the caller's promise.
    let numbers: [[f32; FOUR]; GROUPS] = unsafe { team.load(x, first, 0, 0.0, Needed::Once) };
    // Groups that are not there are left out: the same for all threads.
    let mut of_thread = 0.0;
    for group in 0..GROUPS {
        if group < groups {
            of_thread += sum_of_four(numbers[group]);
        }
    }
    let mean = sum(of_thread) / cols as f32;
    let mut of_thread = 0.0;
    for group in 0..GROUPS {
        if group < groups {
            of_thread += squares(team, group, numbers[group], mean);
        }
    }
    let moments = Moments::new(mean, sum_of_squares(of_thread), cols, epsilon);
    for group in 0..GROUPS {
        if group < groups {
            // SAFETY: the caller's promise.
            unsafe {
                let [gamma] = team.load(gamma, 0, group, 0.0, Needed::Again);
                let [beta] = team.load(beta, 0, group, 0.0, Needed::Again);
                team.store(y, first, group, [moments.of(numbers[group], gamma, beta)]);
            }
        }
    }
    moments
}

/// Layer normalisation of rows of up to 1024 numbers.
#[kernel(
    block = 256,
    min_blocks = 3,
    grid = rows.div_ceil(WARPS as u32).max(1),
    requires(
        x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= OF_WARP,
        gamma.len() == cols as usize, beta.len() == cols as usize,
        mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_of_warp_fp32(
    rows: u32,
    cols: u32,
    epsilon: f32,
    x: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    beta: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
    mean: GlobalSliceMut<'_, f32>,
    inverse: GlobalSliceMut<'_, f32>,
) {
    let (me, cols) = (thread::thread_idx_x() as usize, cols as usize);
    let row = thread::block_idx_x() as usize * WARPS + me / LANES;
    if row >= rows as usize {
        return; // the same for the whole warp
    }
    let matrices = Matrices { x, gamma, beta, y };
    let team = Team::<LANES>::new(me % LANES, cols, matrices.addresses());
    // SAFETY: the launch has checked the lengths. The row is this warp's alone, all of whose lanes come here.
    unsafe {
        let moments = in_registers::<LANES, { OF_WARP / (FOUR * LANES) }>(
            team,
            matrices,
            [row * cols, cols],
            epsilon,
            |sum| of_lanes(sum, plus),
            |sum| of_lanes(sum, plus),
        );
        if me % LANES == 0 {
            mean.set_unchecked(row, moments.mean);
            inverse.set_unchecked(row, moments.inverse);
        }
    }
}

/// Layer normalisation of rows of up to 8192 numbers.
#[kernel(
    block = 256,
    min_blocks = 4,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, y.len() == x.len(), cols as usize <= OF_BLOCK,
        gamma.len() == cols as usize, beta.len() == cols as usize,
        mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_of_block_fp32(
    rows: u32,
    cols: u32,
    epsilon: f32,
    x: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    beta: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
    mean: GlobalSliceMut<'_, f32>,
    inverse: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    static SUMS_OF_SQUARES: Shared<[f32; WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let matrices = Matrices { x, gamma, beta, y };
    let team = Team::<THREADS>::new(me, cols, matrices.addresses());
    // SAFETY: the launch has checked the lengths. The row is this block's alone, all of whose threads come here.
    unsafe {
        let moments = in_registers::<THREADS, { OF_BLOCK / (FOUR * THREADS) }>(
            team,
            matrices,
            [row * cols, cols],
            epsilon,
            |sum| of_block(&SUMS, sum, 0.0, plus),
            |sum| of_block(&SUMS_OF_SQUARES, sum, 0.0, plus),
        );
        if me == 0 {
            mean.set_unchecked(row, moments.mean);
            inverse.set_unchecked(row, moments.inverse);
        }
    }
}

/// Layer normalisation of rows of any length.
#[kernel(
    block = 1024,
    grid = rows.max(1),
    requires(
        x.len() == rows as usize * cols as usize, cols <= i32::MAX as u32, y.len() == x.len(),
        gamma.len() == cols as usize, beta.len() == cols as usize,
        mean.len() == rows as usize, inverse.len() == rows as usize
    )
)]
pub fn layer_norm_long_fp32(
    rows: u32,
    cols: u32,
    epsilon: f32,
    x: GlobalSlice<'_, f32>,
    gamma: GlobalSlice<'_, f32>,
    beta: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
    mean: GlobalSliceMut<'_, f32>,
    inverse: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; MANY_WARPS]> = Shared::new();
    static SUMS_OF_SQUARES: Shared<[f32; MANY_WARPS]> = Shared::new();
    let (me, row, cols) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize, cols as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let matrices = Matrices { x, gamma, beta, y };
    let team = Team::<MANY_THREADS>::new(me, cols, matrices.addresses());
    let (first, groups) = (row * cols, team.groups());
    // SAFETY: the launch has checked the lengths. The row is this block's alone, all of whose threads come here.
    unsafe {
        let mut of_thread = 0.0;
        for from in (0..groups).step_by(AT_ONCE) {
            let numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, 0.0, Needed::Again);
            for group in 0..AT_ONCE {
                of_thread += sum_of_four(numbers[group]);
            }
        }
        let of_row = of_block(&SUMS, of_thread, 0.0, plus) / cols as f32;
        let mut of_thread = 0.0;
        for from in (0..groups).step_by(AT_ONCE) {
            let numbers: [[f32; FOUR]; AT_ONCE] = team.load(x, first, from, 0.0, Needed::Again);
            for group in 0..AT_ONCE {
                of_thread += squares(team, from + group, numbers[group], of_row);
            }
        }
        let moments = Moments::new(of_row, of_block(&SUMS_OF_SQUARES, of_thread, 0.0, plus), cols, epsilon);
        for from in (0..groups).step_by(AT_ONCE_OF_EACH) {
            let mut numbers: [[f32; FOUR]; AT_ONCE_OF_EACH] = team.load(x, first, from, 0.0, Needed::Again);
            let gamma: [[f32; FOUR]; AT_ONCE_OF_EACH] = team.load(gamma, 0, from, 0.0, Needed::Again);
            let beta: [[f32; FOUR]; AT_ONCE_OF_EACH] = team.load(beta, 0, from, 0.0, Needed::Again);
            for group in 0..AT_ONCE_OF_EACH {
                numbers[group] = moments.of(numbers[group], gamma[group], beta[group]);
            }
            team.store(y, first, from, numbers);
        }
        if me == 0 {
            mean.set_unchecked(row, moments.mean);
            inverse.set_unchecked(row, moments.inverse);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::LayerNorm;

/// The operation as the host sees it: rows and columns, x, γ and β as inputs, y and each row's mean and `1 / √(variance + ε)` as outputs, the
/// kernel for so many columns, and a reference in f64 with a bound for each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, FP32_ROUNDING, Operation, Sizes, Values,
        Views,
    };

    use super::{
        AT_ONCE, MANY_THREADS, OF_BLOCK, OF_WARP, THREADS, layer_norm_long_fp32, layer_norm_of_block_fp32,
        layer_norm_of_warp_fp32,
    };
    use crate::row::{FOUR, roundings_of_sum};

    /// What is added to the variance.
    const EPSILON: f32 = 1e-5;

    /// Layer normalisation of the rows of a matrix.
    pub struct LayerNorm {
        name: &'static str,
        numbers: Distribution,
        large: &'static [[usize; 2]],
    }

    impl LayerNorm {
        /// Of numbers as they come.
        pub const NORMAL: Self = Self {
            name: "layer-norm",
            numbers: Distribution::Normal,
            large: &[[262_144, 768], [65_536, 1023], [4096, 16_384], [16_384, 4096]],
        };
        /// Of numbers far from zero, next to which their deviations are small: a variance from squares of numbers would be wrong.
        pub const OFFSET: Self =
            Self { name: "layer-norm-offset", numbers: Distribution::Uniform(1000.0, 1001.0), large: Self::FEW };
        /// Of numbers of many magnitudes, few of which count.
        pub const WIDE: Self =
            Self { name: "layer-norm-wide", numbers: Distribution::LogUniform(1e-30, 1e16), large: Self::FEW };

        /// Large cases of numbers that are not as they come: one for each kernel.
        const FEW: &[[usize; 2]] = &[[1000, 1000], [1000, 4096], [100, 16_384]];
    }

    /// A row: its numbers, its mean, what its deviations are divided by, inverted; and how far off the last two can be.
    struct Row {
        mean: Expected,
        inverse: Expected,
    }

    impl Row {
        /// With u = 2⁻²⁴ and s the roundings of a sum: the mean is off by δ = `(s + 1)·u·(Σ|xⱼ|/n)` at most. Deviations from a wrong
        /// mean have squares that add up to n·δ² more than those from the right one, because deviations add up to zero. To that come
        /// the roundings of deviations, squares, sum and division. The inverse root of what is between these bounds has 3u more.
        fn of(row: &[f64]) -> Self {
            if row.is_empty() {
                return Self { mean: Expected::exact(f64::NAN), inverse: Expected::exact(f64::NAN) };
            }
            let n = row.len() as f64;
            let groups = row.len().div_ceil(FOUR * MANY_THREADS).next_multiple_of(AT_ONCE);
            let steps = roundings_of_sum(groups.max(OF_BLOCK / (FOUR * THREADS)));
            let mean = row.iter().sum::<f64>() / n;
            let mean = Expected::rounded(mean, steps + 1, row.iter().map(|x| x.abs()).sum::<f64>() / n);
            let variance = row.iter().map(|x| (x - mean.value) * (x - mean.value)).sum::<f64>() / n;
            let more = mean.bound * mean.bound;
            let variance = Expected::rounded(variance, steps + 5, variance + more);
            let off = variance.bound + more;
            let inverse = |variance: f64| (variance.max(0.0) + f64::from(EPSILON)).sqrt().recip();
            let [least, value, most] = [variance.value + off, variance.value, variance.value - off].map(inverse);
            let bound = (most - value).max(value - least) + 3.0 * FP32_ROUNDING * most;
            Self { mean, inverse: Expected::within(value, bound) }
        }

        /// A number of the row, normalised: the product of two that are both off, and four roundings.
        fn normalized(&self, x: f64, gamma: f64, beta: f64) -> Expected {
            let deviation = x - self.mean.value;
            let far = (deviation.abs() + self.mean.bound) * (self.inverse.value + self.inverse.bound) * gamma.abs();
            let value = deviation * self.inverse.value * gamma;
            let rounded = Expected::rounded(value + beta, 4, far + beta.abs());
            Expected::within(rounded.value, far - value.abs() + rounded.bound)
        }
    }

    impl Operation for LayerNorm {
        fn describe(&self) -> Description {
            Description {
                name: self.name,
                idea: "layer normalisation of rows, which are kept in registers: mean, then variance, read once",
                sizes: &["rows", "cols"],
                kernels: vec![
                    layer_norm_of_warp_fp32::FACTS,
                    layer_norm_of_block_fp32::FACTS,
                    layer_norm_long_fp32::FACTS,
                ],
                // Nothing, one, both ways of loading, about the ends of what each kernel can do.
                small: testkit::cases(&[
                    [0, 5],
                    [3, 0],
                    [1, 1],
                    [9, 31],
                    [17, 128],
                    [3, 257],
                    [9, 1024],
                    [2, 1025],
                    [3, 3000],
                    [1, 8192],
                    [1, 8193],
                    [1, 12_000],
                ]),
                large: testkit::cases(self.large),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("x", &[rows, cols], self.numbers),
                Argument::input("gamma", &[cols], Distribution::Normal),
                Argument::input("beta", &[cols], Distribution::Normal),
                Argument::output("y", &[rows, cols]),
                Argument::output("mean", &[rows]),
                Argument::output("inverse", &[rows]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            let (x, gamma, beta) = (views.read("x")?, views.read("gamma")?, views.read("beta")?);
            let (y, mean, inverse) = (views.write("y")?, views.write("mean")?, views.write("inverse")?);
            let epsilon = EPSILON;
            if cols as usize <= OF_WARP {
                device.launch(layer_norm_of_warp_fp32 { rows, cols, epsilon, x, gamma, beta, y, mean, inverse })?;
            } else if cols as usize <= OF_BLOCK {
                device.launch(layer_norm_of_block_fp32 { rows, cols, epsilon, x, gamma, beta, y, mean, inverse })?;
            } else {
                device.launch(layer_norm_long_fp32 { rows, cols, epsilon, x, gamma, beta, y, mean, inverse })?;
            }
            Ok(())
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let (x, gamma, beta) = (values.of("x")?, values.of("gamma")?, values.of("beta")?);
            let (mut y, mut mean, mut inverse) = (Vec::new(), Vec::new(), Vec::new());
            let all = testkit::each(rows, |row| {
                let numbers = &x[row * cols..(row + 1) * cols];
                let row = Row::of(numbers);
                let weights = gamma.iter().zip(beta);
                let y = numbers.iter().zip(weights).map(|(&x, (&gamma, &beta))| row.normalized(x, gamma, beta));
                (y.collect::<Vec<_>>(), row)
            });
            for (of_row, row) in all {
                y.extend(of_row);
                mean.push(row.mean);
                inverse.push(row.inverse);
            }
            Ok(vec![y, mean, inverse])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            // Two additions, a difference and a product twice, a fused multiply-add.
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 8.0 * rows as f64 * cols as f64)
        }
    }
}
