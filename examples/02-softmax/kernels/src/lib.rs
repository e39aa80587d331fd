//! The softmax of each row of a rows × cols fp32 matrix, `yⱼ = exp(xⱼ − max x) / Σ exp(xᵢ − max x)`: a block of 256 threads for each row.
//!
//! ```text
//!  row      │ 0 1 2 … 255 │ 256 257 … 511 │ …     thread t has elements t, t + 256, t + 512, …
//!             └────────────────┐
//!  thread   (max, Σ exp(xᵢ − max))                one pass: a larger maximum rescales the sum so far
//!             │ shuffles among the 32 lanes of a warp
//!  warp     (max, sum)
//!             │ shared memory: 8 pairs, combined by every thread in the same order
//!  row      (max, sum)
//!             │ second pass
//!  y        exp(xⱼ − max) · (1 / sum)
//! ```
//!
//! The row is read twice and written once: maximum and sum need one pass together, not two. The second pass finds a row of
//! moderate length in the L2 cache. Sums are made in the same order every time, so the bits are the same; errors have a bound.
//!
//! Special values are as in PyTorch: a row with a NaN or +∞, and one that has nothing but −∞, is NaN throughout; any other −∞ gives 0.
//!
//! Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax" (NVIDIA, 2018).

#![cfg_attr(target_arch = "nvptx64", no_std)]

use blocks::reduce::{Combine, combine_lanes};
use cuda_std::prelude::*;

/// The threads of a block.
const THREADS: usize = softmax_fp32::BLOCK.x as usize;

/// The warps of a block.
const WARPS: usize = THREADS / 32;

/// The largest of some numbers, and the sum of `exp(x − max)` over them.
#[derive(Clone, Copy)]
struct Normalizer {
    /// Never NaN: a NaN among the numbers makes the sum NaN.
    max: f32,
    sum: f32,
}

impl Normalizer {
    /// That of no numbers.
    const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Takes a number into account.
    #[inline(always)]
    fn see(&mut self, x: f32) {
        // One exponential serves both cases, and no lane waits for another.
        let is_larger = x > self.max;
        let (low, high) = if is_larger { (self.max, x) } else { (x, self.max) };
        let factor = weight(low, high);
        self.sum = if is_larger { math::fma(self.sum, factor, 1.0) } else { self.sum + factor };
        self.max = high;
    }

    /// What the sum is divided by, inverted; NaN for a row whose softmax is NaN.
    #[inline(always)]
    fn scale(self) -> f32 {
        // Infinite: there is +∞, or nothing but −∞.
        if self.max.is_finite() { 1.0 / self.sum } else { f32::NAN }
    }
}

impl Combine<2> for Normalizer {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        let max = if other.max > self.max { other.max } else { self.max };
        self.sum = self.sum * weight(self.max, max) + other.sum * weight(other.max, max);
        self.max = max;
    }

    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.max.to_bits(), self.sum.to_bits()]
    }

    #[inline(always)]
    fn of_words([max, sum]: [u32; 2]) -> Self {
        Self { max: f32::from_bits(max), sum: f32::from_bits(sum) }
    }
}

/// `exp(x − max)`, and 1 where both are the same infinity.
#[inline(always)]
fn weight(x: f32, max: f32) -> f32 {
    if x == max { 1.0 } else { math::exp(x - max) }
}

/// The softmax of each row.
#[kernel(
    block = 256,
    grid = rows.max(1),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len())
)]
pub fn softmax_fp32(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static MAXIMA: Shared<[f32; 8]> = Shared::new();
    static SUMS: Shared<[f32; 8]> = Shared::new();
    let (row, cols, t) = (thread::block_idx_x() as usize, cols as usize, thread::thread_idx_x() as usize);
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let first = row * cols;

    let mut of_row = Normalizer::EMPTY;
    let mut col = t;
    while col < cols {
        // SAFETY: row < rows and col < cols, and the launch has checked that x has as many elements as their product.
        of_row.see(unsafe { x.get_unchecked(first + col) });
        col += THREADS;
    }
    // SAFETY: all threads of the block come here, each warp with the same width.
    of_row = unsafe { combine_lanes(of_row, 32) };
    if t % 32 == 0 {
        // SAFETY: t / 32 < 8, and each element has one writer. The barrier below separates writes from reads.
        unsafe {
            MAXIMA.write(t / 32, of_row.max);
            SUMS.write(t / 32, of_row.sum);
        }
    }
    // SAFETY: all threads of the block reach it.
    unsafe { thread::sync_threads() };
    of_row = Normalizer::EMPTY;
    for warp in 0..WARPS {
        // SAFETY: warp < 8, and nobody writes after the barrier.
        of_row.and(unsafe { Normalizer { max: MAXIMA.read(warp), sum: SUMS.read(warp) } });
    }

    let scale = of_row.scale();
    let mut col = t;
    while col < cols {
        // SAFETY: as above, for x; y is as long, as the launch has checked. No other thread has this element.
        unsafe {
            let x = x.get_unchecked(first + col);
            y.set_unchecked(first + col, math::exp(x - of_row.max) * scale);
        }
        col += THREADS;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::{Softmax, expected_row};

/// The operation as the host sees it: rows and columns, x as input, y as output, the launch, and each row's softmax in f64 with a bound for each
/// element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, FP32_ROUNDING, Operation, Sizes, Values,
        Views,
    };

    use super::{THREADS, WARPS, softmax_fp32};

    /// The softmax of the rows of a matrix.
    pub struct Softmax {
        name: &'static str,
        numbers: Distribution,
    }

    impl Softmax {
        /// Of numbers as they come.
        pub const NORMAL: Self = Self { name: "softmax", numbers: Distribution::Normal };
        /// Of infinities, NaN, and the largest and smallest numbers among others.
        pub const SPECIAL: Self = Self { name: "softmax-special", numbers: Distribution::Special };
        /// Of numbers most of whose exponentials are subnormal or 0.
        pub const WIDE: Self = Self { name: "softmax-wide", numbers: Distribution::Uniform(-120.0, 120.0) };
        /// Of numbers of all magnitudes.
        pub const HUGE: Self = Self { name: "softmax-huge", numbers: Distribution::LogUniform(1e-30, 3e38) };
    }

    /// The softmax of a row, with a bound for what the kernel may make of it.
    ///
    /// With u = 2⁻²⁴ and `m` the largest number: on its way to the sum a term meets differences of numbers that add up to `m − xᵢ`,
    /// whose roundings are at most `u·(m − xᵢ)` together in the exponent, and in each step at most an exponential of 2u (1 ulp), a
    /// product and an addition. The result itself has a difference, an exponential, an inverse and a product. To that come
    /// subnormal results, off by 1 unit of 2⁻¹⁴⁹ in the exponential and half of one in the product.
    pub fn expected_row(row: &[f64]) -> Vec<Expected> {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponential = |x: &f64| (x - max).exp();
        // Beyond 200 an exponential is 0 on both sides, and its relative error of no interest.
        let distance = |x: &f64| (max - x).min(200.0);
        let sum: f64 = row.iter().map(exponential).sum();
        let mean = row.iter().map(|x| exponential(x) * distance(x)).sum::<f64>() / sum;
        let steps = row.len().div_ceil(THREADS) + 5 + WARPS;
        let one = |x: &f64| {
            let exponent = FP32_ROUNDING * (distance(x) + mean + 4.0 * (steps + 1) as f64);
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
                idea: "the softmax of each row of a matrix, a block for each row; maximum and sum in one pass",
                sizes: &["rows", "cols"],
                kernels: vec![softmax_fp32::FACTS],
                // Nothing, one, and about the ends of warps and blocks.
                small: testkit::every(&[&[0, 1, 7], &[1, 2, 31, 33, 255, 256, 257, 1000]]),
                large: vec![vec![16_384, 4096], vec![4096, 50_257]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![Argument::input("x", &[rows, cols], self.numbers), Argument::output("y", &[rows, cols])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            Ok(device.launch(softmax_fp32 { rows, cols, x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([cols], x) = (sizes.get(["cols"])?, values.of("x")?);
            Ok(vec![x.chunks(cols.max(1)).flat_map(expected_row).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            // Two exponentials, a difference and a product or a sum for each.
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 6.0 * rows as f64 * cols as f64)
        }
    }
}
