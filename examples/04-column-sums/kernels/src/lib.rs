//! The sum of each column of a rows × cols fp32 matrix, by two launches. In the first, a block of 8 warps adds up 256 rows of 32 columns; in the
//! second, a thread adds up what the blocks have found of a column. The order of additions is always the same, and so are the bits.
//!
//! ```text
//!            32 columns
//!          ┌───────────┐
//!          │ warp 0    │  rows 0, 8, 16, …  ┐
//!          │ warp 1    │  rows 1, 9, 17, …  │ each thread has a sum, 32 side by side are one load of 128 bytes
//!   256    │   ⋮       │                    │
//!   rows   │ warp 7    │                    ┘
//!          └───────────┘
//!             │ shared memory: 8 × 32 sums, added by the first warp in order
//!             ▼
//!          ┌───────────┐
//!  partial │ slice 0   │  one row of sums for each 256 rows of the matrix
//!          │ slice 1   │
//!          │   ⋮       │
//!          └───────────┘
//!             │ the second kernel: a thread for each column adds them from top to bottom
//!             ▼
//!          │ sums      │
//! ```
//!
//! Blocks of a launch cannot wait for one another, so a second launch adds up what they have found. Atomic additions would need no second
//! launch, but come in another order each time. The matrix is read once; the partial sums are 1/256 of it.

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The rows of a block.
const ROWS: u32 = 256;

/// The warps of a block, each with every eighth of its rows.
const WARPS: u32 = column_sums_partial::BLOCK.y;

/// The rows of partial sums: one for each 256 rows of the matrix, and one for none.
#[cfg(not(target_arch = "nvptx64"))]
const fn slices(rows: u32) -> u32 {
    let slices = rows.div_ceil(ROWS);
    if slices == 0 { 1 } else { slices }
}

/// The sums of each 256 rows of a matrix, by columns.
#[kernel(
    block = (32, 8),
    grid = (cols.div_ceil(32).max(1), slices(rows)),
    requires(
        a.len() == rows as usize * cols as usize,
        partial.len() == slices(rows) as usize * cols as usize,
    )
)]
pub fn column_sums_partial(rows: u32, cols: u32, a: GlobalSlice<'_, f32>, partial: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[[f32; 32]; 8]> = Shared::new();
    let (lane, warp) = (thread::thread_idx_x(), thread::thread_idx_y());
    let (col, slice) = (thread::block_idx_x() * 32 + lane, thread::block_idx_y());
    // No overflow: a grid has at most 65,535 slices.
    let end = rows.min((slice + 1) * ROWS);
    let mut sum = 0.0;
    let mut row = slice * ROWS + warp;
    while row < end && col < cols {
        // SAFETY: row < rows and col < cols, and the launch has checked that A has as many elements as their product.
        sum += unsafe { a.get_unchecked(row as usize * cols as usize + col as usize) };
        row += WARPS;
    }
    // SAFETY: all threads reach the barrier, which separates writes from reads. The indices are those of the block's shape.
    unsafe {
        SUMS.write([warp as usize, lane as usize], sum);
        thread::sync_threads();
    }
    if warp == 0 && col < cols {
        let mut total = 0.0;
        for other in 0..WARPS {
            // SAFETY: as above.
            total += unsafe { SUMS.read([other as usize, lane as usize]) };
        }
        // SAFETY: the grid has as many slices as there are rows of partial sums, as the launch has checked, and col < cols; no
        // other block has this slice of this column, and no other thread of the first warp.
        unsafe { partial.set_unchecked(slice as usize * cols as usize + col as usize, total) };
    }
}

/// The sums of partial sums, by columns, from top to bottom.
#[kernel(
    block = 128,
    grid = cols.div_ceil(128).max(1),
    requires(partial.len() == slices as usize * cols as usize, sums.len() == cols as usize)
)]
pub fn column_sums_total(slices: u32, cols: u32, partial: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    let col = thread::index_1d();
    if col >= cols as usize {
        return;
    }
    let mut total = 0.0;
    for slice in 0..slices as usize {
        // SAFETY: slice < slices and col < cols, and the launch has checked that there are as many partial sums as their product.
        total += unsafe { partial.get_unchecked(slice * cols as usize + col) };
    }
    // SAFETY: col < cols, as many as there are sums; no other thread has this column.
    unsafe { sums.set_unchecked(col, total) };
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::ColumnSums;

/// The operation as the host sees it: rows and columns, the matrix as input, the sums as output, the two launches, and sums in f64 with a
/// bound for each. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{ROWS, WARPS, column_sums_partial, column_sums_total, slices};

    /// Sums of the columns of a matrix.
    pub struct ColumnSums;

    impl Operation for ColumnSums {
        fn describe(&self) -> Description {
            Description {
                name: "column-sums",
                idea: "blocks add parts of columns, and a second kernel adds their sums in order",
                sizes: &["rows", "cols"],
                kernels: vec![column_sums_partial::FACTS, column_sums_total::FACTS],
                small: testkit::every(&[&[0, 1, 7, 256, 257, 1000], &[0, 1, 31, 33, 130]]),
                large: vec![vec![65_536, 4096], vec![1_000_003, 257]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let ([rows, cols], [rows_32]) = (sizes.get(["rows", "cols"])?, sizes.get_u32(["rows"])?);
            Ok(vec![
                Argument::input("a", &[rows, cols], Distribution::Normal),
                Argument::scratch("partial", &[slices(rows_32) as usize, cols]),
                Argument::output("sums", &[cols]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            let (a, partial) = (views.read("a")?, views.write("partial")?);
            device.launch(column_sums_partial { rows, cols, a, partial })?;
            let (slices, partial, sums) = (slices(rows), views.read("partial")?, views.write("sums")?);
            Ok(device.launch(column_sums_total { slices, cols, partial, sums })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            let (mut sums, mut magnitudes) = (vec![0.0; cols as usize], vec![0.0; cols as usize]);
            for row in values.of("a")?.chunks(cols.max(1) as usize) {
                for ((sum, magnitude), element) in sums.iter_mut().zip(&mut magnitudes).zip(row) {
                    *sum += element;
                    *magnitude += element.abs();
                }
            }
            // Those that an element meets on its way: in its warp, among the warps, among the slices.
            let roundings = (rows.min(ROWS).div_ceil(WARPS) + WARPS + slices(rows)) as usize;
            let expected = |(sum, magnitude): (f64, f64)| Expected::rounded(sum, roundings, magnitude);
            Ok(vec![sums.into_iter().zip(magnitudes).map(expected).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
