//! `B = Aᵀ` of a rows × cols fp32 matrix: a block of 256 threads moves a tile of 32 × 32.
//!
//! ```text
//!        A            tile in shared memory, 32 × 33       Aᵀ
//!  ┌──────┬──────┐                                    ┌──────┬───
//!  │      │▒▒▒▒▒▒│  rows ──▶  ┌──────┐  columns ──▶   │      │
//!  │      │▒▒▒▒▒▒│            │▒▒▒▒▒▒│                ├──────┼───
//!  ├──────┼──────┤            └──────┘                │▒▒▒▒▒▒│
//!  │      │      │                                    │▒▒▒▒▒▒│
//! ```
//!
//! Neighbouring threads load neighbours of A and store neighbours of Aᵀ, so that both are whole
//! lines of memory. Rows of the tile have one element more than they need: so the elements of a
//! column are in different banks of shared memory.

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The rows and columns of a tile.
const TILE: usize = transpose::BLOCK.x as usize;

/// The rows that a block has at a time.
const STEP: usize = transpose::BLOCK.y as usize;

/// `B = Aᵀ`.
#[kernel(
    block = (32, 8),
    grid = (cols.div_ceil(32).max(1), rows.div_ceil(32).max(1)),
    requires(a.len() == rows as usize * cols as usize, b.len() == a.len())
)]
pub fn transpose(rows: u32, cols: u32, a: GlobalSlice<'_, f32>, b: GlobalSliceMut<'_, f32>) {
    static ELEMENTS: Shared<[[f32; 33]; 32]> = Shared::new();
    let (rows, cols) = (rows as usize, cols as usize);
    let (x, y) = (
        thread::thread_idx_x() as usize,
        thread::thread_idx_y() as usize,
    );
    let (first_row, first_col) = (
        thread::block_idx_y() as usize * TILE,
        thread::block_idx_x() as usize * TILE,
    );
    let mut line = y;
    while line < TILE {
        if first_row + line < rows && first_col + x < cols {
            // SAFETY: the row and the column are inside, and the launch has checked that A has as
            // many elements as their product; line < 32 and x < 32.
            unsafe {
                ELEMENTS.write(
                    [line, x],
                    a.get_unchecked((first_row + line) * cols + first_col + x),
                )
            };
        }
        line += STEP;
    }
    // SAFETY: all threads of the block come here.
    unsafe { thread::sync_threads() };
    let mut line = y;
    while line < TILE {
        if first_col + line < cols && first_row + x < rows {
            // SAFETY: the same of the transpose. The element was written before the barrier, because
            // it is inside; each element of B has one thread.
            unsafe {
                b.set_unchecked(
                    (first_col + line) * rows + first_row + x,
                    ELEMENTS.read([x, line]),
                )
            };
        }
        line += STEP;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Transpose;

/// The operation as the host sees it: rows and columns, A as input, B as output, the launch, and
/// each element where it has to be, with the same bits. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes,
        Values, Views,
    };

    use super::transpose;

    /// The transpose of a matrix.
    pub struct Transpose;

    impl Operation for Transpose {
        fn describe(&self) -> Description {
            Description {
                name: "transpose",
                idea: "the transpose of a matrix, through tiles in shared memory",
                sizes: &["rows", "cols"],
                kernels: vec![transpose::FACTS],
                // Nothing, one, and about the ends of tiles.
                small: testkit::every(&[&[0, 1, 31, 33, 64], &[0, 1, 32, 70]]),
                large: vec![vec![16_384, 8192]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("a", &[rows, cols], Distribution::Special),
                Argument::output("b", &[cols, rows]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            Ok(device.launch(transpose {
                rows,
                cols,
                a: views.read("a")?,
                b: views.write("b")?,
            })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], a) = (sizes.get(["rows", "cols"])?, values.of("a")?);
            let column =
                |col: usize| (0..rows).map(move |row| Expected::exact(a[row * cols + col]));
            Ok(vec![(0..cols).flat_map(column).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
