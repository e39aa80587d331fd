//! The test cases of the softmax kernels, the softmax of each row computed in f64, and the error bound of each element. It is compiled for the
//! host only.

use testkit::{
    Argument, Bits, Description, Device, Distribution, Error, Expected, FP32_ROUNDING, Operation, Sizes, Values, Views,
};

use super::{
    ALL_KEPT, AT_ONCE, FEWER_THREADS, OF_BLOCK, OF_SMALL_BLOCK, THREADS, part_len, parts_of, softmax_lanes_1_fp32,
    softmax_lanes_2_fp32, softmax_lanes_4_fp32, softmax_lanes_8_16_fp32, softmax_lanes_8_fp32,
    softmax_lanes_16_16_fp32, softmax_lanes_16_fp32, softmax_long_512_fp32, softmax_long_1024_fp32,
    softmax_of_block_64_fp32, softmax_of_block_256_fp32, softmax_of_parts_fp32, softmax_of_warp_16_fp32,
    softmax_of_warp_32_fp32, softmax_parts_fp32,
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
    // A row of few numbers has as many groups of a warp as a longer one has of a block, at most; a long one has the fewest threads.
    let groups = row.len().div_ceil(FOUR * FEWER_THREADS).next_multiple_of(AT_ONCE).max(OF_BLOCK / (FOUR * 256));
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
                softmax_lanes_1_fp32::FACTS,
                softmax_lanes_2_fp32::FACTS,
                softmax_lanes_4_fp32::FACTS,
                softmax_lanes_8_fp32::FACTS,
                softmax_lanes_16_fp32::FACTS,
                softmax_lanes_8_16_fp32::FACTS,
                softmax_lanes_16_16_fp32::FACTS,
                softmax_of_warp_16_fp32::FACTS,
                softmax_of_warp_32_fp32::FACTS,
                softmax_of_block_64_fp32::FACTS,
                softmax_of_block_256_fp32::FACTS,
                softmax_long_512_fp32::FACTS,
                softmax_long_1024_fp32::FACTS,
                softmax_parts_fp32::FACTS,
                softmax_of_parts_fp32::FACTS,
            ],
            // Nothing, one, both ways of loading, about the ends of what each kernel can do, and more than is kept of a long row.
            small: testkit::cases(&[
                [0, 5],
                [3, 0],
                [1, 1],
                [300, 3],
                [257, 4],
                [129, 5],
                [65, 16],
                [9, 31],
                [33, 33],
                [17, 64],
                [17, 128],
                [2, 256],
                [3, 257],
                [2, 513],
                [9, 1024],
                [2, 1025],
                [1, 2048],
                [3, 3000],
                [1, 8192],
                [1, 8193],
                [1, 12_000],
                [1, 28_673],
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
        match cols as usize {
            len if len <= 4 => device.launch(softmax_lanes_1_fp32 { rows, cols, x, y })?,
            len if len <= 8 => device.launch(softmax_lanes_2_fp32 { rows, cols, x, y })?,
            len if len <= 16 => device.launch(softmax_lanes_4_fp32 { rows, cols, x, y })?,
            len if len <= 32 => device.launch(softmax_lanes_8_fp32 { rows, cols, x, y })?,
            len if len <= 64 => device.launch(softmax_lanes_16_fp32 { rows, cols, x, y })?,
            len if len <= 128 => device.launch(softmax_lanes_8_16_fp32 { rows, cols, x, y })?,
            len if len <= 256 => device.launch(softmax_lanes_16_16_fp32 { rows, cols, x, y })?,
            len if len <= 512 => device.launch(softmax_of_warp_16_fp32 { rows, cols, x, y })?,
            len if len <= 1024 => device.launch(softmax_of_warp_32_fp32 { rows, cols, x, y })?,
            len if len <= OF_SMALL_BLOCK => device.launch(softmax_of_block_64_fp32 { rows, cols, x, y })?,
            len if len <= OF_BLOCK => device.launch(softmax_of_block_256_fp32 { rows, cols, x, y })?,
            len if len <= ALL_KEPT => device.launch(softmax_long_512_fp32 { rows, cols, x, y })?,
            _ => {
                let parts = parts_of(rows as usize, cols as usize) as u32;
                if parts == 1 {
                    device.launch(softmax_long_1024_fp32 { rows, cols, x, y })?;
                } else {
                    device.launch(softmax_parts_fp32 { rows, cols, parts, x, found: views.write("found")? })?;
                    let found = views.read("found")?;
                    device.launch(softmax_of_parts_fp32 { rows, cols, parts, x, found, y })?;
                }
            }
        }
        Ok(())
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let ([rows, cols], x) = (sizes.get(["rows", "cols"])?, values.of("x")?);
        Ok(vec![testkit::each_row(rows, |row| expected_row(&x[row * cols..(row + 1) * cols], parts_of(rows, cols)))])
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        // A maximum, a difference, an exponential, an addition and a product for each.
        sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| 5.0 * rows as f64 * cols as f64)
    }
}
