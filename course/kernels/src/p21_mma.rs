//! # 21. `mma`: a warp multiplies
//!
//! *Tensor cores* multiply small matrices: `mma_m16n8k8_tf32` adds to a 16 × 8 matrix the product
//! of 16 × 8 and 8 × 8, by one instruction of a warp. Each lane brings some elements and takes some
//! of the result. Which, is fixed: with g = lane / 4 and q = lane mod 4
//!
//! ```text
//!  A, 16 × 8                                       B, 8 × 8
//!    a[0] = A[g,     q]     a[2] = A[g,     q + 4]    b[0] = B[q,     g]
//!    a[1] = A[g + 8, q]     a[3] = A[g + 8, q + 4]    b[1] = B[q + 4, g]
//!
//!  sums: (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
//! ```
//!
//! Operands are *TF32*: fp32 numbers of which 11 significant bits count. The numbers here are small
//! integers, so nothing is lost. If elements are in wrong places, no access is wrong, and no order:
//! only the numbers are.
//!
//! **Write:** the elements of A and B that a lane brings, and where its four sums belong in C. Term
//! l of row r of A is `a.get_unchecked(element(r, l))`; B lies by columns, so term l of column c is
//! `b.get_unchecked(element(c, l))`. This warp has the tile of C from `row` and `col` on.
//@ hint What stands there is what one would load without a picture: four neighbours for each lane. Which rows and terms does the picture give to lane 5, with g = 1 and q = 1?
//@ hint a[1] is row g + 8, a[2] is term q + 4, a[3] is both. B has g across and q along: `b.get_unchecked(element(col + g, q))` is b[0].
//@ hint Sum i is in row `g + i / 2 * 8`, column `2 * q + i % 2` of the tile.

use cuda_std::mma::mma_m16n8k8_tf32;
use cuda_std::prelude::*;

/// `C = A·B`, a tile of 16 × 8 for each warp; A is m×k by rows, B is k×n by columns. m, n and k are
/// multiples of 16, 8 and 8.
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
pub fn product_mma(
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
            //@ blank
            let of_a = [
                a.get_unchecked(element(row + g, q)),
                a.get_unchecked(element(row + g + 8, q)),
                a.get_unchecked(element(row + g, q + 4)),
                a.get_unchecked(element(row + g + 8, q + 4)),
            ];
            let of_b =
                [b.get_unchecked(element(col + g, q)), b.get_unchecked(element(col + g, q + 4))];
            //@ instead
            //| let of_a =
            //|     [0, 1, 2, 3].map(|i| a.get_unchecked(element(row + lane / 2, lane % 2 * 4 + i)));
            //| let of_b = [0, 1].map(|i| b.get_unchecked(element(col + g, 2 * q + i)));
            //@ end
            sums = mma_m16n8k8_tf32(of_a, of_b, sums);
        }
        first += 8;
    }
    for i in 0..4 {
        //@ blank
        let (row, col) = (row + g + i / 2 * 8, col + 2 * q + i % 2);
        //@ instead
        //| let (row, col) = (row + lane / 2, col + lane % 2 * 4 + i);
        //@ end
        // SAFETY: inside of C; no other lane has this element.
        unsafe { c.set_unchecked(row * n + col, sums[i]) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::product_mma;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "mma",
        file: file!(),
        source: include_str!("p21_mma.rs"),
        operation: &Product,
        fails: "Wrong",
        lesson: "A lane brings numbers in other registers than the picture says, so that tensor \
                 cores take rows for terms, or it stores its sums as other elements of C.",
        reference: Score { sectors: 1088, global: 136, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "mma",
                idea: "C = A·B by tensor cores, a tile for each warp",
                sizes: &["m", "n", "k"],
                kernels: vec![product_mma::FACTS],
                small: testkit::cases(&[[16, 8, 0], [16, 8, 8], [32, 16, 40]]),
                large: vec![vec![2048, 2048, 2048]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Integers(-8, 8);
            let (a, b) =
                (Argument::input("a", &[m, k], numbers), Argument::input("b", &[n, k], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let (a, b, c) = (views.read("a")?, views.read("b")?, views.write("c")?);
            Ok(device.launch(product_mma { m, n, k, a, b, c })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            // Sums of small integers: exact.
            let one = |at: usize| {
                Expected::exact(sum((0..k).map(|l| a[at / n * k + l] * b[at % n * k + l])))
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
