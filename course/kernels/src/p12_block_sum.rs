//! # 12. `block-sum`: from warps to the block
//!
//! Shuffles stay within a warp. To add up numbers of a whole block, each warp adds up its own, one
//! lane writes the warp's sum to shared memory, and behind a barrier somebody adds up the sums of
//! the warps.
//!
//! ```text
//!  row         │ 0 … 31 │ 32 … 63 │ … │ 224 … 255 │ 256 … │   thread t has t, t + 256, …
//!  warps         Σ₀       Σ₁            Σ₇                  by shuffles: lanes of warp w have Σw
//!  shared      [ Σ₀ │ Σ₁ │ … │ Σ₇ ]                              a barrier
//!  total         Σ₀ + Σ₁ + … + Σ₇
//! ```
//!
//! `warp_shuffle_xor` exchanges numbers of lanes whose numbers differ in one bit, so that all lanes
//! have the sum in the end. The fault here is a wrong number: the report says which element, what
//! was found, what was expected, and how far off it may be.
//!
//! **Write:** the second half: a `static` in shared memory for the sums of 8 warps, the writes, the
//! barrier, and the total, which one thread adds up and stores.
//@ hint As it stands, the row has the sum of warp 0 alone. Which warps are there? `thread::thread_idx_x() / 32`.
//@ hint `static PARTS: Shared<[f32; 8]> = Shared::new();`, written by lane 0 of each warp, read by thread 0 behind `thread::sync_threads()`.
//@ hint In `if t == 0`: `let mut total = 0.0; for w in 0..8 { total += PARTS.read(w); }`, and then the store of `total`.

use cuda_std::prelude::*;

/// The sum of a number of each lane; all lanes get it.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn sum_of_warp(mut sum: f32) -> f32 {
    let mut bit = 16;
    while bit > 0 {
        // SAFETY: the caller's promise.
        sum += unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, sum, bit, 32) }.0;
        bit /= 2;
    }
    sum
}

/// The sum of each row, by a block for each.
#[kernel(
    block = 256,
    grid = rows.max(1),
    requires(x.len() == rows as usize * cols as usize, sums.len() == rows as usize)
)]
pub fn row_sums(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    let (row, cols, t) =
        (thread::block_idx_x() as usize, cols as usize, thread::thread_idx_x() as usize);
    if row >= rows as usize {
        return; // the whole block
    }
    let (mut own, mut col) = (0.0, t);
    while col < cols {
        // SAFETY: row < rows and col < cols, and x has as many elements as their product.
        own += unsafe { x.get_unchecked(row * cols + col) };
        col += 256;
    }
    // SAFETY: all threads of the block come here.
    let of_warp = unsafe { sum_of_warp(own) };
    //@ blank
    static PARTS: Shared<[f32; 8]> = Shared::new();
    // SAFETY: each warp has an element of its own, which is written before the barrier, and read
    // behind it. row < rows, and no other block has this row.
    unsafe {
        if warp::lane_id() == 0 {
            PARTS.write(t / 32, of_warp);
        }
        thread::sync_threads();
        if t == 0 {
            let mut total = 0.0;
            for w in 0..8 {
                total += PARTS.read(w);
            }
            sums.set_unchecked(row, total);
        }
    }
    //@ instead
    //| if t == 0 {
    //|     // SAFETY: row < rows, and no other block has this row.
    //|     unsafe { sums.set_unchecked(row, of_warp) };
    //| }
    //@ end
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::row_sums;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "block-sum",
        file: file!(),
        source: include_str!("p12_block_sum.rs"),
        operation: &RowSums,
        fails: "Wrong",
        lesson: "The total is not that of the block: the sum of each of its 8 warps has to be in \
                 it, once.",
        reference: Score { sectors: 228, global: 60, shared: 24, conflicts: 0, waits: 24 },
        limits: Limits::NONE,
        judge: None,
    };

    struct RowSums;

    impl Operation for RowSums {
        fn describe(&self) -> Description {
            Description {
                name: "block-sum",
                idea: "sums of rows, a block for each",
                sizes: &["rows", "cols"],
                kernels: vec![row_sums::FACTS],
                small: testkit::cases(&[[0, 3], [2, 0], [1, 31], [2, 33], [3, 600]]),
                large: vec![vec![16_384, 16_384]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            let x = Argument::input("x", &[rows, cols], Distribution::Uniform(0.5, 1.5));
            Ok(vec![x, Argument::output("sums", &[rows])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            Ok(device.launch(row_sums {
                rows,
                cols,
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
            let one = |row: usize| {
                let sum = x[row * cols..(row + 1) * cols].iter().sum();
                Expected::rounded(sum, cols.div_ceil(256) + 13, sum)
            };
            Ok(vec![(0..rows).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
