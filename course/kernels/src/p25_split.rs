//! # 25. `split`: fp32 from tensor cores
//!
//! TF32 has 11 significant bits, fp32 has 24. But a number of fp32 is the sum of a *high part*, its TF32 rounding, and a *low part*, the rest, which
//! is rounded to TF32 again: together 22 bits and more. Of the four products of parts only three matter:
//!
//! ```text
//!  a = a_high + a_low        a·b = a_high·b_high                      2⁰
//!  b = b_high + b_low            + a_high·b_low + a_low·b_high        2⁻¹¹
//!                                + a_low·b_low                        2⁻²²: left out
//! ```
//!
//! So three instructions of tensor cores make a product that is about as accurate as one of fp32. This is how most of Tilewright's fp32 products work
//! (`3xtf32`). Small sums are added first, so that they are not lost beside the large ones.
//!
//! `convert::tf32(x)` is x rounded to TF32, as an f32. `x - convert::tf32(x)` is exact.
//!
//! **Write:** the parts of `of_a` and `of_b`, and the three products. `of_a.map(convert::tf32)` rounds all.
//@ hint high: `of_a.map(convert::tf32)`; low: what is left of each, rounded to TF32 as well.
//@ hint `let low_a = core::array::from_fn(|i| convert::tf32(of_a[i] - high_a[i]));`
//@ hint `sums = mma_m16n8k8_tf32(low_a, high_b, sums);`, then high_a with low_b, then high_a with high_b.

use cuda_std::mma::mma_m16n8k8_tf32;
use cuda_std::prelude::*;

/// `C = A·B` as accurate as fp32, a tile of 16 × 8 for each warp; A is m×k by rows, B is k×n by columns. m, n and k are multiples of 16, 8 and 8.
#[kernel(
    block = 32,
    grid = (n / 8, m / 16),
    requires(
        m % 16 == 0 && n % 8 == 0 && k % 8 == 0 && m > 0 && n > 0,
        a.len() == m as usize * k as usize,
        b.len() == n as usize * k as usize,
        c.len() == m as usize * n as usize
    )
)]
pub fn product_3xtf32(
    m: u32,
    n: u32,
    k: u32,
    a: GlobalSlice<'_, f32>,
    b: GlobalSlice<'_, f32>,
    c: GlobalSliceMut<'_, f32>,
) {
    let _ = m;
    let (n, k, lane) = (n as usize, k as usize, warp::lane_id() as usize);
    let (g, q) = (lane / 4, lane % 4);
    let (row, col) = (16 * thread::block_idx_y() as usize, 8 * thread::block_idx_x() as usize);
    let mut sums = [0.0f32; 4];
    let mut first = 0;
    while first < k {
        let element = |row: usize, term: usize| (row * k) + first + term;
        // SAFETY: rows, columns and terms are inside, because extents are multiples of those of a tile; all lanes come to the product.
        unsafe {
            let of_a = [
                a.get_unchecked(element(row + g, q)),
                a.get_unchecked(element(row + g + 8, q)),
                a.get_unchecked(element(row + g, q + 4)),
                a.get_unchecked(element(row + g + 8, q + 4)),
            ];
            let of_b = [b.get_unchecked(element(col + g, q)), b.get_unchecked(element(col + g, q + 4))];
            //@ blank
            let (high_a, high_b) = (of_a.map(convert::tf32), of_b.map(convert::tf32));
            let low_a = core::array::from_fn(|i| convert::tf32(of_a[i] - high_a[i]));
            let low_b = core::array::from_fn(|i| convert::tf32(of_b[i] - high_b[i]));
            sums = mma_m16n8k8_tf32(low_a, high_b, sums);
            sums = mma_m16n8k8_tf32(high_a, low_b, sums);
            sums = mma_m16n8k8_tf32(high_a, high_b, sums);
            //@ instead
            //| sums = mma_m16n8k8_tf32(of_a.map(convert::tf32), of_b.map(convert::tf32), sums);
            //@ end
        }
        first += 8;
    }
    for i in 0..4 {
        // SAFETY: inside of C; no other lane has this element.
        unsafe { c.set_unchecked((row + g + i / 2 * 8) * n + col + 2 * q + i % 2, sums[i]) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::product_3xtf32;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "split",
        file: file!(),
        source: include_str!("p25_split.rs"),
        operation: &Product,
        fails: "Wrong",
        lesson: "The low bits of the operands are rounded away, and with them half of the digits of the result.",
        best: Score { sectors: 1664, global: 208, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "split",
                idea: "C = A·B in fp32, by three products of tensor cores",
                sizes: &["m", "n", "k"],
                kernels: vec![product_3xtf32::FACTS],
                small: testkit::cases(&[[16, 8, 0], [16, 8, 8], [32, 16, 64]]),
                large: vec![vec![2048, 2048, 2048]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Uniform(-1.0, 1.0);
            let (a, b) = (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let (a, b, c) = (views.read("a")?, views.read("b")?, views.write("c")?);
            Ok(device.launch(product_3xtf32 { m, n, k, a, b, c })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            let one = |at: usize| {
                let terms = || (0..k).map(|l| a[at / n * k + l] * b[at % n * k + l]);
                // As many roundings as a sum in fp32 has, and what is left out of the parts: three times 2⁻²², which are 12.
                Expected::rounded(sum(terms()), k + 12, sum(terms().map(f64::abs)))
            };
            Ok(vec![testkit::each(m * n, one)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * k as f64)
        }

        fn units(&self) -> Units {
            Units::TensorCores
        }
    }
}
