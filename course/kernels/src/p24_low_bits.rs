//! # 24. `low-bits`: what a long sum loses
//!
//! An fp32 number has 24 significant bits. If a small number is added to a large sum, its low bits
//! do not fit, and are rounded away: each addition loses up to half of the sum's last bit. In a
//! long sum these losses add up.
//!
//! ```text
//!  sum            1 0 1 1 0 1 … 1 0 1                24 bits
//!  + term                         1 0 1 1 0 1 1      the last bits fall off the end
//!                                       └──┬──┘
//!                                      lost: can be worked out, exactly, and kept
//! ```
//!
//! For a sum s and a term x: `t = s + x` is rounded, and `(t − s) − x` is what was added too much,
//! exactly, if s is the larger one. Kept in a second number, and taken off the next term before
//! that is added, it is not lost (W. Kahan, 1965). Rust's compiler does not rearrange such lines.
//!
//! That works in any precision, also in the largest that there is, where no wider type could help.
//! So the sum here is of a type `T`, which has a zero, `+` and `−`, and nothing else: no f64 behind
//! f32.
//!
//! **Write:** `add`. What is allowed here is three roundings, whatever the length.
//@ hint `lost` is what was added too much so far: the next term becomes `x − lost` before it is added.
//@ hint What was added too much now? `(next − sum) − term`, with the new sum `next`, the old one, and the term as it was added.
//@ hint `let term = x - self.lost; let next = self.sum + term; self.lost = (next - self.sum) - term; self.sum = next;`

use core::ops::{Add, Sub};

use cuda_std::prelude::*;

/// A sum, and what rounding has added to it too much.
#[derive(Clone, Copy)]
pub struct Compensated<T> {
    /// The sum so far.
    pub sum: T,
    /// What it is too large by.
    pub lost: T,
}

impl<T: Copy + Add<Output = T> + Sub<Output = T>> Compensated<T> {
    /// Adds a term.
    #[inline(always)]
    pub fn add(&mut self, x: T) {
        //@ blank
        let term = x - self.lost;
        let next = self.sum + term;
        self.lost = (next - self.sum) - term;
        self.sum = next;
        //@ instead
        //| self.sum = self.sum + x;
        //@ end
    }

    /// The sum of all terms, without what it is still too large by.
    #[inline(always)]
    pub fn total(self) -> T {
        self.sum - self.lost
    }
}

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
    let mut sum = Compensated { sum: 0.0f32, lost: 0.0 };
    for row in 0..rows as usize {
        // SAFETY: row < rows and col < cols, whose product x has as its length.
        sum.add(unsafe { x.get_unchecked(row * cols + col) });
    }
    // SAFETY: col < cols; no other thread has this column.
    unsafe { sums.set_unchecked(col, sum.total()) };
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
        lesson: "Each addition rounds away low bits of its term, and after thousands of them the \
                 sum is off by more than its own precision.",
        reference: Score { sectors: 11755, global: 4002, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
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
            Ok(device.launch(column_sums {
                rows,
                x: views.read("x")?,
                sums: views.write("sums")?,
            })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
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
