//! # 17. `vectors`: four numbers in one load
//!
//! A load of 16 bytes is one instruction in place of four: `get4_unchecked(i)` is
//! `reinterpret_cast<float4 *>(x)[i / 4]`. It asks for an address that is a multiple of 16 bytes.
//! An array begins at such an address; a row of a matrix does only if the rows before it have a
//! multiple of 4 elements.
//!
//! ```text
//!  16 bytes   │ 0 1 2 3 │ 4 5 6 7 │ 8 9 …
//!  row 0      │ 0 1 2 3 │ 4 5 6 │                   7 columns
//!  row 1                        │ 7   8 9 10 …      begins at element 7: no vector begins there
//! ```
//!
//! A GPU ends a kernel for a misaligned address. The executor says where.
//!
//! **Write:** the condition under which rows are copied by vectors. The score counts instructions:
//! where all rows begin at such an address, vectors have to be.
//@ hint Row r begins at element r·cols. When is that a multiple of 4 for all r?
//@ hint `cols.is_multiple_of(4)`

use cuda_std::prelude::*;

/// `Y = 2·X`, a row for each block.
#[kernel(
    block = 64,
    grid = rows.max(1),
    requires(x.len() == rows as usize * cols as usize, y.len() == x.len())
)]
pub fn double_rows(rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (row, cols, t) =
        (thread::block_idx_x() as usize, cols as usize, thread::thread_idx_x() as usize);
    if row >= rows as usize {
        return;
    }
    //@ blank
    let by_vectors = cols.is_multiple_of(4);
    //@ instead
    //| let by_vectors = true;
    //@ end
    let whole = if by_vectors { cols - cols % 4 } else { 0 };
    let mut col = 4 * t;
    while col < whole {
        // SAFETY: four columns from col on are inside of the row; if this row's beginning is a
        // multiple of 4 elements, so is the address.
        unsafe {
            y.set4_unchecked(row * cols + col, x.get4_unchecked(row * cols + col).map(|x| 2.0 * x))
        };
        col += 4 * 64;
    }
    let mut col = whole + t;
    while col < cols {
        // SAFETY: inside of the row; no other thread has this column.
        unsafe { y.set_unchecked(row * cols + col, 2.0 * x.get_unchecked(row * cols + col)) };
        col += 64;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::double_rows;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "vectors",
        file: file!(),
        source: include_str!("p17_vectors.rs"),
        operation: &DoubleRows,
        fails: "Misaligned",
        lesson: "If the number of columns is no multiple of 4, some rows begin where no vector of \
                 4 elements can.",
        reference: Score { sectors: 512, global: 32, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits { global: Some(32), ..Limits::NONE },
        judge: None,
    };

    struct DoubleRows;

    impl Operation for DoubleRows {
        fn describe(&self) -> Description {
            Description {
                name: "vectors",
                idea: "rows, doubled, by vectors of four",
                sizes: &["rows", "cols"],
                kernels: vec![double_rows::FACTS],
                small: testkit::cases(&[[0, 4], [1, 3], [3, 8], [2, 33], [3, 66], [4, 512]]),
                large: vec![vec![16_384, 4096]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [rows, cols] = sizes.get(["rows", "cols"])?;
            Ok(vec![
                Argument::input("x", &[rows, cols], Distribution::Special),
                Argument::output("y", &[rows, cols]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [rows, cols] = sizes.get_u32(["rows", "cols"])?;
            Ok(device.launch(double_rows {
                rows,
                cols,
                x: views.read("x")?,
                y: views.write("y")?,
            })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            Ok(vec![values.of("x")?.iter().map(|x| Expected::exact(2.0 * x)).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
