//! The transposes of matrices in fp32, by tiles in shared memory: rows of a tile are read as rows, its columns are written as rows.
//!
//! ```text
//!        x, rows × cols                      shared memory, 64 × 65                   y, cols × rows
//!        64 columns                          one place is left free in each row       64 rows of x
//!       ┌──────────┐                        ┌──────────┬┐                            ┌──────────┐
//!    64 │ → → → →  │  a warp reads 32       │ → → → →  ││  a warp reads 32 numbers   │ → → → →  │  and writes them side by side
//!  rows │          │  numbers of a row      │ ↓        ││  of a column               │          │
//!       └──────────┘                        └──────────┴┘                            └──────────┘
//! ```
//!
//! Both ways a warp moves 128 bytes that lie side by side. Numbers of a column are 65 words apart in shared memory, so that the 32 of a warp
//! are in 32 different banks. A thread loads its 16 numbers before it stores the first, so that a multiprocessor waits for about 100 KB at
//! a time.
//!
//! Numbers are moved, not computed with: every bit pattern stays, those of NaN as well.
//!
//! Source of the pattern: G. Ruetsch and P. Micikevicius, "Optimizing matrix transpose in CUDA" (NVIDIA, 2009).

use cuda_std::prelude::*;

/// The rows and the columns of a tile.
pub const TILE: usize = 64;

/// The lanes of a warp.
const LANES: usize = warp::LANES as usize;

/// The warps of a block.
const WARPS: usize = transpose_fp32::BLOCK.x as usize / LANES;

/// The lines of a tile that a warp moves, and the parts of a line.
const LINES: usize = TILE / WARPS;
const PARTS: usize = TILE / LANES;

/// The tiles of all matrices of a batch, a block for each.
#[cfg(not(target_arch = "nvptx64"))]
fn tiles(batch: u32, rows: u32, cols: u32) -> Option<u32> {
    let tiles = |extent: u32| extent.div_ceil(TILE as u32);
    batch.checked_mul(tiles(rows))?.checked_mul(tiles(cols)).filter(|&tiles| tiles <= i32::MAX as u32)
}

/// The lines and numbers of a tile, from its first ones on, for which there is something in a matrix.
#[derive(Clone, Copy)]
struct Extent {
    lines: usize,
    len: usize,
}

impl Extent {
    /// Whether the whole tile is there: then there is nothing to ask for each of its numbers, and the accesses come one after the other.
    #[inline(always)]
    fn is_whole(self) -> bool {
        self.lines >= TILE && self.len >= TILE
    }

    /// Whether this number of this line is there.
    #[inline(always)]
    fn has(self, [line, number]: [usize; 2]) -> bool {
        line < self.lines && number < self.len
    }
}

/// The line, and the place in it, of one of this thread's numbers of a tile: a warp has 32 that lie side by side.
#[inline(always)]
fn own(i: usize, part: usize) -> [usize; 2] {
    let me = thread::thread_idx_x() as usize;
    [me / LANES + i * WARPS, me % LANES + part * LANES]
}

/// This thread's numbers of the tile that begins at `first`, with lines that begin `pitch` apart.
///
/// # Safety
/// What the extent says is there is inside of x.
#[inline(always)]
unsafe fn load(x: GlobalSlice<'_, f32>, first: usize, pitch: usize, extent: Extent) -> [[f32; PARTS]; LINES] {
    let at = |[line, number]: [usize; 2]| first + line * pitch + number;
    // SAFETY: the caller's promise.
    let get = |place| unsafe { x.get_unchecked(at(place)) };
    if extent.is_whole() {
        return core::array::from_fn(|i| core::array::from_fn(|part| get(own(i, part))));
    }
    core::array::from_fn(|i| {
        core::array::from_fn(|part| if extent.has(own(i, part)) { get(own(i, part)) } else { 0.0 })
    })
}

/// Writes them likewise.
///
/// # Safety
/// What the extent says is there is inside of y, and no other thread accesses it.
#[inline(always)]
unsafe fn store(
    y: GlobalSliceMut<'_, f32>,
    first: usize,
    pitch: usize,
    extent: Extent,
    numbers: [[f32; PARTS]; LINES],
) {
    let is_whole = extent.is_whole();
    for i in 0..LINES {
        for part in 0..PARTS {
            let [line, number] = own(i, part);
            if is_whole || extent.has([line, number]) {
                // SAFETY: the caller's promise.
                unsafe { y.set_unchecked(first + line * pitch + number, numbers[i][part]) };
            }
        }
    }
}

/// `y[b, j, i] = x[b, i, j]` for `batch` matrices of so many rows and columns, one after the other.
#[kernel(
    block = 256,
    grid = tiles(batch, rows, cols).unwrap_or(0).max(1),
    requires(
        (rows as usize * cols as usize).checked_mul(batch as usize) == Some(x.len()),
        y.len() == x.len(),
        tiles(batch, rows, cols).is_some()
    )
)]
pub fn transpose_fp32(batch: u32, rows: u32, cols: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static NUMBERS: Shared<[[f32; TILE + 1]; TILE]> = Shared::new();
    if batch == 0 || x.is_empty() {
        return; // the same for all blocks
    }
    let (block, tile) = (thread::block_idx_x(), TILE as u32);
    let (tiles_down, tiles_across) = (rows.div_ceil(tile), cols.div_ceil(tile));
    let (matrix, in_matrix) = (block / (tiles_down * tiles_across), block % (tiles_down * tiles_across));
    let (row, col) = (in_matrix / tiles_across * tile, in_matrix % tiles_across * tile);
    let (left_rows, left_cols) = ((rows - row) as usize, (cols - col) as usize);
    let (rows, cols, row, col) = (rows as usize, cols as usize, row as usize, col as usize);
    let first = matrix as usize * rows * cols;
    // SAFETY: a block has one tile of one matrix, and what is left of the matrix from its first row and column on is inside of x, and of y,
    // which is as long. Each element of y has one thread. The indices in shared memory are below `TILE`; the barrier, which all threads
    // reach, is between the writes and the reads.
    unsafe {
        let numbers = load(x, first + row * cols + col, cols, Extent { lines: left_rows, len: left_cols });
        for i in 0..LINES {
            for part in 0..PARTS {
                NUMBERS.write(own(i, part), numbers[i][part]);
            }
        }
        thread::sync_threads();
        let numbers = core::array::from_fn(|i| {
            core::array::from_fn(|part| {
                let [line, number] = own(i, part);
                NUMBERS.read([number, line])
            })
        });
        store(y, first + col * rows + row, rows, Extent { lines: left_cols, len: left_rows }, numbers);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Transpose;

/// What the kernel is for. No GPU sees this.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::transpose_fp32;

    /// The transposes of a batch of matrices.
    pub struct Transpose;

    impl Operation for Transpose {
        fn describe(&self) -> Description {
            Description {
                name: "transpose",
                idea: "a tile of 64 × 64 in shared memory, whose columns are in different banks; rows are read, rows are written",
                sizes: &["batch", "rows", "cols"],
                kernels: vec![transpose_fp32::FACTS],
                // Nothing in each of the extents, lines and columns, whole tiles, one more and one less.
                small: testkit::cases(&[
                    [0, 3, 5],
                    [2, 0, 5],
                    [2, 3, 0],
                    [1, 1, 1],
                    [1, 1, 130],
                    [1, 70, 1],
                    [1, 64, 64],
                    [1, 128, 64],
                    [3, 33, 31],
                    [2, 63, 65],
                    [1, 65, 129],
                ]),
                large: testkit::cases(&[[64, 1000, 1003], [4096, 128, 64], [1, 3, 20_000_001], [1, 16_384, 16_384]]),
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [batch, rows, cols] = sizes.get(["batch", "rows", "cols"])?;
            Ok(vec![
                Argument::input("x", &[batch, rows, cols], Distribution::Special),
                Argument::output("y", &[batch, cols, rows]),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [batch, rows, cols] = sizes.get_u32(["batch", "rows", "cols"])?;
            Ok(device.launch(transpose_fp32 { batch, rows, cols, x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([rows, cols], x) = (sizes.get(["rows", "cols"])?, values.of("x")?);
            let at = |index: usize| {
                let (matrix, index) = (index / (rows * cols), index % (rows * cols));
                Expected::exact(x[matrix * rows * cols + index % rows * cols + index / rows])
            };
            Ok(vec![testkit::each(x.len(), at)])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
