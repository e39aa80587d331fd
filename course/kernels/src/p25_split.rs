//! # 25. `split`: fp32 from tensor cores
//!
//! TF32 has 11 significant bits, fp32 has 24. But a number of fp32 is the sum of a *high part*, its
//! TF32 rounding, and a *low part*, the rest, which is rounded to TF32 again: together 22 bits and
//! more. Of the four products of parts only three matter:
//!
//! ```text
//!  a = a_high + a_low        a·b = a_high·b_high                      2⁰
//!  b = b_high + b_low            + a_high·b_low + a_low·b_high        2⁻¹¹
//!                                + a_low·b_low                        2⁻²²: left out
//! ```
//!
//! So three instructions of tensor cores make a product that is about as accurate as one of fp32.
//! This is how most of Tilewright's fp32 products work (`3xtf32`).
//!
//! There is one more thing to it. Tensor cores do not round when they add to their sums: they *cut
//! off* what does not fit. In a long sum of positive numbers that is always in the same direction,
//! and adds up. So the three products of 8 terms begin with sums of zero, and what comes of them is
//! added to `sums` by ordinary additions, which round (*promotion*). In which order the three
//! products are added matters less; with the small ones first a little less is cut off.
//!
//! `convert::tf32(x)` is x rounded to TF32, as an f32. `x - convert::tf32(x)` is exact.
//!
//! **Write:** the parts of `of_a` and `of_b`, the three products, and the promotion.
//! `of_a.map(convert::tf32)` rounds all.
//@ hint high: `of_a.map(convert::tf32)`; low: what is left of each, rounded to TF32 as well.
//@ hint `let low_a = core::array::from_fn(|i| convert::tf32(of_a[i] - high_a[i]));`
//@ hint `let part = mma_m16n8k8_tf32(low_a, high_b, [0.0; 4]);`, then high_a with low_b added to `part`, then high_a with high_b.
//@ hint The promotion: `for i in 0..4 { sums[i] += part[i]; }`

use cuda_std::mma::mma_m16n8k8_tf32;
use cuda_std::prelude::*;

/// `C = A·B` as accurate as fp32, a tile of 16 × 8 for each warp; A is m×k by rows, B is k×n by
/// columns. m, n and k are multiples of 16, 8 and 8.
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
        // SAFETY: rows, columns and terms are inside, because extents are multiples of those of a
        // tile; all lanes come to the product.
        unsafe {
            let of_a = [
                a.get_unchecked(element(row + g, q)),
                a.get_unchecked(element(row + g + 8, q)),
                a.get_unchecked(element(row + g, q + 4)),
                a.get_unchecked(element(row + g + 8, q + 4)),
            ];
            let of_b =
                [b.get_unchecked(element(col + g, q)), b.get_unchecked(element(col + g, q + 4))];
            //@ blank
            let (high_a, high_b) = (of_a.map(convert::tf32), of_b.map(convert::tf32));
            let low_a = core::array::from_fn(|i| convert::tf32(of_a[i] - high_a[i]));
            let low_b = core::array::from_fn(|i| convert::tf32(of_b[i] - high_b[i]));
            let part = mma_m16n8k8_tf32(low_a, high_b, [0.0; 4]);
            let part = mma_m16n8k8_tf32(high_a, low_b, part);
            let part = mma_m16n8k8_tf32(high_a, high_b, part);
            for i in 0..4 {
                sums[i] += part[i];
            }
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
        lesson: "The low bits of the operands are rounded away, or those of the sums cut off, and \
                 with them digits of the result.",
        reference: Score { sectors: 12416, global: 1552, shared: 0, conflicts: 0, waits: 0 },
        // As many as the loads of `of_a` and `of_b`: sums without tensor cores load more.
        limits: Limits { global: Some(1552), ..Limits::NONE },
        judge: None,
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "split",
                idea: "C = A·B in fp32, by three products of tensor cores",
                sizes: &["m", "n", "k"],
                kernels: vec![product_3xtf32::FACTS],
                small: testkit::cases(&[[16, 8, 0], [16, 8, 8], [32, 16, 512]]),
                large: vec![vec![2048, 2048, 2048]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Uniform(0.5, 1.0);
            let (a, b) =
                (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let (a, b, c) = (views.read("a")?, views.read("b")?, views.write("c")?);
            Ok(device.launch(product_3xtf32 { m, n, k, a, b, c })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            let one = |at: usize| {
                let terms = || (0..k).map(|l| a[at / n * k + l] * b[at % n * k + l]);
                // What is left out of the parts, three times 2⁻²², is 12 roundings. Of the k / 8
                // additions of the promotion half may be off by a whole rounding, all in one
                // direction; sums that are cut off k / 8 times are off by more.
                Expected::rounded(sum(terms()), k / 16 + 12, sum(terms().map(f64::abs)))
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
