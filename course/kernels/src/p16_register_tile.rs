//! # 16. `register-tile`: a number read once, used twice
//!
//! A product of matrices reads two numbers for each multiplication. Tiles in shared memory keep them near; but even there each load is an
//! instruction, and a GPU multiplies faster than it loads. If a thread has a small *tile of C in registers*, here 2 × 2, two numbers of A and two
//! of B are enough for four multiplications, in place of eight loads.
//!
//! ```text
//!                  b₀   b₁                     columns x and x + 16 of the tile
//!                ┌────┬────┐
//!            a₀  │ s₀₀│ s₀₁│     4 loads,
//!            a₁  │ s₁₀│ s₁₁│     4 multiplications
//!                └────┴────┘
//!          rows y and y + 16
//! ```
//!
//! The result is right as it stands. What fails is the score: loads of shared memory.
//!
//! **Write:** the loop over `l` so that each number of the tiles is loaded once by a thread, and used twice.
//@ hint Put the loop over l outside, and load in it before the loops over i and j.
//@ hint `let a = [A.read([y, l]), A.read([y + 16, l])];`, the same for b, and then four `math::fma`.

use cuda_std::prelude::*;

/// `C = A·B`, by blocks of 32 × 32 elements of C, with tiles of 16 terms. All extents are multiples of 32.
#[kernel(
    block = (16, 16),
    grid = (n / 32, m / 32),
    requires(
        m % 32 == 0 && n % 32 == 0 && k % 32 == 0 && m > 0 && n > 0,
        a.len() == m as usize * k as usize,
        b.len() == k as usize * n as usize,
        c.len() == m as usize * n as usize
    )
)]
pub fn product_2x2(
    m: u32,
    n: u32,
    k: u32,
    a: GlobalSlice<'_, f32>,
    b: GlobalSlice<'_, f32>,
    c: GlobalSliceMut<'_, f32>,
) {
    static A: Shared<[[f32; 16]; 32]> = Shared::new();
    static B: Shared<[[f32; 32]; 16]> = Shared::new();
    let _ = m;
    let (n, k) = (n as usize, k as usize);
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (row, col) = (32 * thread::block_idx_y() as usize, 32 * thread::block_idx_x() as usize);
    let mut sums = [[0.0f32; 2]; 2];
    let mut first = 0;
    while first < k {
        // SAFETY: rows, columns and terms are inside, because extents are multiples of 32; each element of the tiles has one thread. All threads
        // come to the barriers, which are between writes and reads.
        unsafe {
            for i in 0..2 {
                A.write([y + 16 * i, x], a.get_unchecked((row + y + 16 * i) * k + first + x));
                // A warp has a row of B: its 32 elements are in different banks.
                let (l, across) = ((16 * y + x) / 32 + 8 * i, (16 * y + x) % 32);
                B.write([l, across], b.get_unchecked((first + l) * n + col + across));
            }
            thread::sync_threads();
            //@ blank
            for l in 0..16 {
                let a = [A.read([y, l]), A.read([y + 16, l])];
                let b = [B.read([l, x]), B.read([l, x + 16])];
                for i in 0..2 {
                    for j in 0..2 {
                        sums[i][j] = math::fma(a[i], b[j], sums[i][j]);
                    }
                }
            }
            //@ instead
            //| for i in 0..2 {
            //|     for j in 0..2 {
            //|         for l in 0..16 {
            //|             sums[i][j] = math::fma(A.read([y + 16 * i, l]), B.read([l, x + 16 * j]), sums[i][j]);
            //|         }
            //|     }
            //| }
            //@ end
            thread::sync_threads();
        }
        first += 16;
    }
    for i in 0..2 {
        for j in 0..2 {
            // SAFETY: inside of C; no other thread has this element.
            unsafe { c.set_unchecked((row + y + 16 * i) * n + col + x + 16 * j, sums[i][j]) };
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::product_2x2;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "register-tile",
        file: file!(),
        source: include_str!("p16_register_tile.rs"),
        operation: &Product,
        fails: "Score",
        lesson: "Each of the four sums loads its own two numbers, although neighbouring sums need the same ones.",
        best: Score { sectors: 640, global: 160, shared: 2048, conflicts: 0, waits: 64 },
        limits: Limits { shared: Some(2048), conflicts: Some(0), ..Limits::NONE },
    };

    struct Product;

    impl Operation for Product {
        fn describe(&self) -> Description {
            Description {
                name: "register-tile",
                idea: "C = A·B, 2 × 2 elements for each thread",
                sizes: &["m", "n", "k"],
                kernels: vec![product_2x2::FACTS],
                small: testkit::cases(&[[32, 32, 0], [32, 64, 32], [32, 32, 64]]),
                large: vec![vec![2048, 2048, 2048]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [m, n, k] = sizes.get(["m", "n", "k"])?;
            let numbers = Distribution::Uniform(-1.0, 1.0);
            let (a, b) = (Argument::input("a", &[m, k], numbers), Argument::input("b", &[k, n], numbers));
            Ok(vec![a, b, Argument::output("c", &[m, n])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [m, n, k] = sizes.get_u32(["m", "n", "k"])?;
            let (a, b, c) = (views.read("a")?, views.read("b")?, views.write("c")?);
            Ok(device.launch(product_2x2 { m, n, k, a, b, c })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([m, n, k], a, b) = (sizes.get(["m", "n", "k"])?, values.of("a")?, values.of("b")?);
            let one = |at: usize| {
                let terms = || (0..k).map(|l| a[at / n * k + l] * b[l * n + at % n]);
                Expected::rounded(sum(terms()), k, sum(terms().map(f64::abs)))
            };
            Ok(vec![testkit::each(m * n, one)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["m", "n", "k"]).map_or(0.0, |[m, n, k]| 2.0 * m as f64 * n as f64 * k as f64)
        }
    }
}
