//! The sum of each row of a rows × cols fp32 matrix: a block of 256 threads for each row.
//!
//! ```text
//!  row     │ 0 1 2 … 255 │ 256 257 … 511 │ …        thread t has elements t, t + 256, t + 512, …
//!            └─────────────────┐
//!  shared  │ s₀ s₁ s₂ …        s₂₅₅ │               a sum for each thread
//!          │ s₀+s₁₂₈ …   s₁₂₇+s₂₅₅ │                halves are added until one is left,
//!            ⋮                                      with a barrier before each step
//! ```

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The threads of a block.
const THREADS: usize = row_sums::BLOCK.x as usize;

/// The sum of each row of a matrix.
#[kernel(
    block = 256,
    grid = rows.max(1),
    requires(a.len() == rows as usize * cols as usize, sums.len() == rows as usize)
)]
pub fn row_sums(rows: u32, cols: u32, a: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[f32; 256]> = Shared::new();
    let (row, cols, t) = (
        thread::block_idx_x() as usize,
        cols as usize,
        thread::thread_idx_x() as usize,
    );
    if row >= rows as usize {
        return; // the same for the whole block
    }
    let mut sum = 0.0;
    let mut col = t;
    while col < cols {
        // SAFETY: row < rows and col < cols, and the launch has checked that A has as many elements
        // as their product.
        sum += unsafe { a.get_unchecked(row * cols + col) };
        col += THREADS;
    }
    // SAFETY: t < 256, and so is t + half. All threads of the block reach the barriers, which
    // separate each step from the one before. The sum of a row has one thread.
    unsafe {
        SUMS.write(t, sum);
        let mut half = THREADS / 2;
        while half > 0 {
            thread::sync_threads();
            if t < half {
                SUMS.write(t, SUMS.read(t) + SUMS.read(t + half));
            }
            half /= 2;
        }
        if t == 0 {
            sums.set_unchecked(row, SUMS.read(0));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::RowSums;

/// The operation as the host sees it: rows and columns, the matrix as input, the sums as output,
/// the launch, and sums in f64 with a bound for each. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes,
        Values, Views,
    };

    use super::{THREADS, row_sums};

    /// Sums of the rows of a matrix.
    pub struct RowSums;

    impl Operation for RowSums {
        fn describe(&self) -> Description {
            Description {
                name: "row-sums",
                idea: "the sum of each row of a matrix, a block for each row",
                sizes: &["rows", "cols"],
                kernels: vec![row_sums::FACTS],
                // Nothing, one, and about the ends of warps and blocks.
                small: testkit::every(&[&[0, 1, 3], &[0, 1, 31, 33, 255, 256, 257, 1000]]),
                large: vec![vec![16_384, 16_384]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("a", &[rows, cols], Distribution::Normal),
                Argument::output("sums", &[rows]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            Ok(device.launch(row_sums {
                rows,
                cols,
                a: views.read("a")?,
                sums: views.write("sums")?,
            })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], a) = (sizes.get(["rows", "cols"])?, values.of("a")?);
            // Those that an element meets on its way: in its thread, and in eight steps among threads.
            let roundings = cols.div_ceil(THREADS) + 8;
            let one = |row: usize| {
                let row = &a[row * cols..(row + 1) * cols];
                Expected::rounded(
                    row.iter().sum(),
                    roundings,
                    row.iter().map(|element| element.abs()).sum(),
                )
            };
            Ok(vec![(0..rows).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes
                .get(["rows", "cols"])
                .map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
