//! # 20. `tma`: a tile by one instruction
//!
//! Hopper's *TMA* (Tensor Memory Accelerator) copies a whole tile of a matrix to shared memory, by
//! one instruction of one thread. The host describes matrix and tile in a *tensor map*; what a tile
//! has outside of the matrix becomes zero. A barrier tells when the tile is there: somebody arrives
//! and says how many *bytes* the phase has to wait for besides, and TMA counts them off.
//!
//! ```text
//!  one thread:   barrier.arrive_expecting(bytes)      1 arrival, and bytes to come
//!                load_tile(…, barrier)  ─── TMA ───►  32 rows of 32 elements of 4 bytes each
//!  all threads:  barrier.wait(0)                      returns when all bytes have come
//! ```
//!
//! If the count is wrong, the phase ends too early, or never. Coordinates of a tile begin with the
//! one along a row of the matrix: `load_tile(tile, 0, x, [column, row, 0], barrier)`; the 0 at the
//! end is the number of the matrix, of which there is one. TMA finds a barrier that was initialized
//! only behind `hopper::fence_barrier_init()`.
//!
//! **Write:** what one thread does, how the block learns that the barrier is there, and the wait.
//@ hint One thread: `barrier.init(1)`, the fence, `arrive_expecting`, `load_tile`. How many arrivals has the phase, if that thread alone arrives?
//@ hint `arrive_expecting` counts bytes: an f32 has 4, and the tile 32·32 of them: `TILE_BYTES as u32`.
//@ hint All threads wait, behind a barrier of the block: `thread::sync_threads(); barrier.wait(0);`
//@ hint If only matrices of several tiles come out wrong: which coordinate goes first? `[first_col, first_row, 0]`

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

/// The bytes of a tile of 32 × 32 numbers of 4 bytes, behind which the barrier is.
const TILE_BYTES: usize = 4 * 32 * 32;

/// `Y = 2·X`, by tiles of 32 × 32, of which `x` is a map.
#[kernel(
    block = 128,
    arch = "sm_90a",
    dynamic_shared = 4 * 32 * 32 + 8,
    grid = (cols.div_ceil(32), rows.div_ceil(32)),
    requires(
        rows > 0 && cols > 0,
        y.len() == rows as usize * cols as usize,
        x.layout().tile == [32, 32, 1]
    )
)]
pub fn double_tiles(x: TensorMap<'_>, rows: u32, cols: u32, y: GlobalSliceMut<'_, f32>) {
    let (first_row, first_col) = (32 * thread::block_idx_y(), 32 * thread::block_idx_x());
    // SAFETY: one thread initializes the barrier, and all see that behind the block's barrier; the
    // tile has as many bytes as there is room, and nobody reads it before it is there. Rows and
    // columns are compared before a store.
    unsafe {
        let tile = dynamic_shared::<f32>(0, 32 * 32);
        let barrier = Barrier::at(dynamic_shared(TILE_BYTES, 1), 0);
        //@ blank
        if thread::thread_idx_x() == 0 {
            barrier.init(1);
            hopper::fence_barrier_init();
            barrier.arrive_expecting(TILE_BYTES as u32);
            hopper::load_tile(tile, 0, x, [first_col, first_row, 0], barrier);
        }
        thread::sync_threads();
        barrier.wait(0);
        //@ instead
        //| if thread::thread_idx_x() == 0 {
        //|     barrier.init(1);
        //|     hopper::load_tile(tile, 0, x, [first_row, first_col, 0], barrier);
        //| }
        //| thread::sync_threads();
        //@ end
        let mut i = thread::thread_idx_x();
        while i < 32 * 32 {
            let (row, col) = (first_row + i / 32, first_col + i % 32);
            if row < rows && col < cols {
                y.set_unchecked(
                    row as usize * cols as usize + col as usize,
                    2.0 * tile.read(i as usize),
                );
            }
            i += 128;
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use cuda_driver::{TensorElement, TensorSwizzle};
    use runtime::{TensorLayout, TensorTile};

    use super::double_tiles;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "tma",
        file: file!(),
        source: include_str!("p20_tma.rs"),
        operation: &DoubleTiles,
        fails: "BarrierNotFenced",
        lesson: "TMA is told of a barrier that it may not see yet; and then the phase would not \
                 know how many bytes to wait for, and nobody waits.",
        reference: Score { sectors: 1024, global: 132, shared: 128, conflicts: 0, waits: 32 },
        limits: Limits { conflicts: Some(0), ..Limits::NONE },
        judge: None,
    };

    struct DoubleTiles;

    impl Operation for DoubleTiles {
        fn describe(&self) -> Description {
            Description {
                name: "tma",
                idea: "a matrix, doubled, by tiles that TMA loads",
                sizes: &["rows", "cols"],
                kernels: vec![double_tiles::FACTS],
                small: testkit::cases(&[[1, 4], [32, 32], [33, 40], [64, 64]]),
                large: vec![vec![8192, 8192]],
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
            let (length, lines) = (u64::from(cols), u64::from(rows));
            let layout = TensorLayout {
                length,
                lines,
                line_stride: length,
                matrices: 1,
                matrix_stride: length * lines,
            };
            let element = TensorElement::Fp32;
            let tile = TensorTile { element, length: 32, lines: 32, swizzle: TensorSwizzle::None };
            let x = device.tensor_map(views.read::<f32>("x")?, &layout, &tile)?;
            Ok(device.launch(double_tiles { x, rows, cols, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            Ok(vec![values.of("x")?.iter().map(|x| Expected::exact(2.0 * x)).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["rows", "cols"]).map_or(0.0, |[rows, cols]| rows as f64 * cols as f64)
        }
    }
}
