//! # 8. `bank-conflicts`: the columns of a tile
//!
//! Shared memory has 32 *banks*. Word i, of 4 bytes, is in bank i mod 32, and a bank gives one word
//! at a time. If lanes of a warp want different words of one bank, the access takes as many passes
//! as there are such words: a *bank conflict*.
//!
//! ```text
//!  tile, 32 × 32           word 32·row + col: bank col
//!    row 0  │ 0 1 2 … 31 │     a row: 32 banks, 1 pass
//!    row 1  │ 0 1 2 … 31 │     a column: 32 words of 1 bank, 32 passes
//! ```
//!
//! This is the transpose of a matrix: rows of the tile are written, and columns are read, so that
//! both rows of A and rows of Aᵀ are whole lines of global memory. The result is right as it
//! stands. What fails is the score: conflicts.
//!
//! **Write:** a shape of the tile for which the elements of a column are in different banks. Rows
//! may have more elements than are used.
//@ hint If a row had R words, in which bank would element (row, 0) be? For which R are these 32 different banks?
//@ hint One more element in each row moves each row by one bank.
//@ hint `[[f32; 33]; 32]` is 32 rows of 33.

use cuda_std::prelude::*;

/// `B = Aᵀ`, by tiles of 32 × 32.
#[kernel(
    block = (32, 8),
    grid = (cols.div_ceil(32).max(1), rows.div_ceil(32).max(1)),
    requires(a.len() == rows as usize * cols as usize, b.len() == a.len())
)]
pub fn transpose(rows: u32, cols: u32, a: GlobalSlice<'_, f32>, b: GlobalSliceMut<'_, f32>) {
    //@ blank
    static TILE: Shared<[[f32; 33]; 32]> = Shared::new();
    //@ instead
    //| static TILE: Shared<[[f32; 32]; 32]> = Shared::new();
    //@ end
    let (rows, cols) = (rows as usize, cols as usize);
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (first_row, first_col) =
        (32 * thread::block_idx_y() as usize, 32 * thread::block_idx_x() as usize);
    let mut line = y;
    while line < 32 {
        if first_row + line < rows && first_col + x < cols {
            // SAFETY: row and column are inside of A; line < 32 and x < 32.
            unsafe {
                TILE.write([line, x], a.get_unchecked((first_row + line) * cols + first_col + x))
            };
        }
        line += 8;
    }
    // SAFETY: all threads of the block come here.
    unsafe { thread::sync_threads() };
    let mut line = y;
    while line < 32 {
        if first_col + line < cols && first_row + x < rows {
            // SAFETY: inside of the transpose; written before the barrier; each element of B has
            // one thread.
            unsafe {
                b.set_unchecked((first_col + line) * rows + first_row + x, TILE.read([x, line]))
            };
        }
        line += 8;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::transpose;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "bank-conflicts",
        file: file!(),
        source: include_str!("p08_bank_conflicts.rs"),
        operation: &Transpose,
        fails: "Score",
        lesson: "Elements of a column of the tile share banks, so reading a column takes more than \
                 one pass: 32 of them, if all are in one bank.",
        reference: Score { sectors: 1024, global: 256, shared: 128, conflicts: 0, waits: 32 },
        limits: Limits { sectors: Some(1024), conflicts: Some(0), ..Limits::NONE },
        judge: None,
    };

    struct Transpose;

    impl Operation for Transpose {
        fn describe(&self) -> Description {
            Description {
                name: "bank-conflicts",
                idea: "the transpose of a matrix, by tiles in shared memory",
                sizes: &["rows", "cols"],
                kernels: vec![transpose::FACTS],
                small: testkit::cases(&[[0, 5], [1, 33], [50, 70], [64, 64]]),
                large: vec![vec![8192, 8192]],
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
