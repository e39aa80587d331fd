//! # 24. `low-bits`: what a long sum loses
//!
//! An fp32 number has 24 significant bits. If a small number is added to a large sum, its low bits do not fit, and are rounded away: each addition loses
//! up to half of the sum's last bit. In a long sum these losses add up.
//!
//! ```text
//!  sum            1 0 1 1 0 1 … 1 0 1                24 bits
//!  + term                         1 0 1 1 0 1 1      the last bits fall off the end
//!                                       └──┬──┘
//!                                      lost: can be worked out, exactly, and kept
//! ```
//!
//! For a sum s and a term x: `t = s + x` is rounded, and `(t − s) − x` is what was added too much, exactly, if s is the larger one. Kept in a second
//! number, `c`, and taken off the next term, it is not lost (W. Kahan, 1965). Rust's compiler does not rearrange such lines.
//!
//! **Write:** the loop of the compensated sum. What is allowed here is three roundings, whatever the length.
//@ hint Have `let mut lost = 0.0f32;` before the loop. A term becomes `x − lost` before it is added.
//@ hint In the loop: `let term = x - lost; let next = sum + term; lost = (next - sum) - term; sum = next;`

use cuda_std::prelude::*;

/// The sum of each column, by a thread for each.
#[kernel(
    block = 64,
    grid = crate::puzzle::blocks(sums.len(), 64),
    requires(x.len() == rows as usize * sums.len())
)]
pub fn column_sums(rows: u32, x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    let (col, cols) = (thread::index_1d(), sums.len());
    if col >= cols {
        return;
    }
    let mut sum = 0.0f32;
    //@ blank
    let mut lost = 0.0f32;
    for row in 0..rows as usize {
        // SAFETY: row < rows and col < cols, whose product x has as its length.
        let term = unsafe { x.get_unchecked(row * cols + col) } - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    //@ instead
    //| for row in 0..rows as usize {
    //|     // SAFETY: row < rows and col < cols, whose product x has as its length.
    //|     sum += unsafe { x.get_unchecked(row * cols + col) };
    //| }
    //@ end
    // SAFETY: col < cols; no other thread has this column.
    unsafe { sums.set_unchecked(col, sum) };
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::column_sums;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "low-bits",
        file: file!(),
        source: include_str!("p24_low_bits.rs"),
        operation: &ColumnSums,
        fails: "Wrong",
        lesson: "Each addition rounds away low bits of its term, and after thousands of them the sum is off by more than its own precision.",
        best: Score { sectors: 11755, global: 4002, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
    };

    struct ColumnSums;

    impl Operation for ColumnSums {
        fn describe(&self) -> Description {
            Description {
                name: "low-bits",
                idea: "sums of columns, as accurate as their last bits",
                sizes: &["rows", "cols"],
                kernels: vec![column_sums::FACTS],
                small: testkit::cases(&[[0, 3], [1, 70], [2000, 33]]),
                large: vec![vec![4096, 16_384]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let x = Argument::input("x", &[rows, cols], Distribution::Uniform(0.0, 1.0));
            Ok(vec![x, Argument::output("sums", &[cols])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows] = sizes.get_u32(["rows"])?;
            Ok(device.launch(column_sums { rows, x: views.read("x")?, sums: views.write("sums")? })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], x) = (sizes.get(["rows", "cols"])?, values.of("x")?);
            let one = |col: usize| {
                let total = sum((0..rows).map(|row| x[row * cols + col]));
                Expected::rounded(total, 3, total)
            };
            Ok(vec![(0..cols).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
