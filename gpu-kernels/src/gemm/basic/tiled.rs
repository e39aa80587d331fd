//! A block shares what its threads would all load: square tiles in shared memory.
//!
//! ```text
//!                          col0
//!                     ┌────┬────┬────┐
//!               k0 →  │    │ tB │    │  B       for each k0 = 0, TILE, 2·TILE, …
//!                     ├────┼────┼────┤            1. every thread loads one element of tile A and one of tile B
//!                     │    │    │    │            2. barrier: both tiles are complete
//!                     └────┴────┴────┘            3. every thread adds TILE products to its element of C
//!         k0                                      4. barrier: nobody reads the tiles any more
//!   ┌────┬────┬────┐  ┌────┬────┬────┐
//!   │    │    │    │  │    │    │    │
//!   ├────┼────┼────┤  ├────┼────┼────┤
//!   │    │ tA │    │  │    │ tC │    │ ← row0      one block of TILE×TILE threads for each tile of C
//!   └────┴────┴────┘  └────┴────┴────┘
//!     A                 C
//! ```
//!
//! The idea: an element that was loaded once is used TILE times, so global memory sees 1/TILE of the loads of
//! [`naive_2d`](super::naive_2d). What is left is two loads from shared memory for each multiplication, which is what
//! bounds this kernel.
//!
//! **The second barrier** is the one that is easily forgotten: without it, a warp that is ahead overwrites the tiles with
//! those of the next k0 while a slower one still reads them. On a GPU that often goes unnoticed; the executor reports it
//! every time.
//!
//! **Coalesced loads in any layout.** Consecutive threads should load consecutive addresses. Which index runs fastest in
//! memory depends on the layout, and step 1 lets `x` follow it: a row-major matrix is loaded as `[y][x]`, a column-major
//! one (`Aᵀ` read in place, say) as `[x][y]`, which writes down a column of the tile.
//!
//! **Pitch.** With rows of TILE elements, all elements of a column of a tile would lie in one of the 32 banks of shared
//! memory, and writing down a column would be a 32-way bank conflict. Four elements of padding spread them over eight banks, and keep
//! rows aligned to 16 bytes, so that step 3 loads four neighbours of a row of tile A at once.
//!
//! Source: the idea is as old as CUDA (NVIDIA's programming guide, "Shared Memory"). TILE² threads of 32 registers,
//! 8·TILE·(TILE + 4) bytes of shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::Matrix;
use crate::gemm::Gemm;
use crate::geometry::first_row;

/// A tile in shared memory: `ROWS` rows of which `PITCH - 4` elements are used.
type Tile<const ROWS: usize, const PITCH: usize> = Shared<[[f32; PITCH]; ROWS]>;

/// `C = α·A·B + β·C` in fp32, by tiles of 32×32 in shared memory, one thread for each element of the tile.
#[kernel(block = (32, 32), min_blocks = 2)]
pub fn gemm_tiled_32_fp32(gemm: Gemm<'_>) {
    static TILE_A: Shared<[[f32; 36]; 32]> = Shared::new();
    static TILE_B: Shared<[[f32; 36]; 32]> = Shared::new();
    // SAFETY: a block of 32×32 threads, all of which come here, with tiles that nothing else uses.
    unsafe { tiled(gemm, &TILE_A, &TILE_B) }
}

/// `C = α·A·B + β·C` in fp32, by tiles of 16×16 in shared memory, one thread for each element of the tile.
#[kernel(block = (16, 16), min_blocks = 8)]
pub fn gemm_tiled_16_fp32(gemm: Gemm<'_>) {
    static TILE_A: Shared<[[f32; 20]; 16]> = Shared::new();
    static TILE_B: Shared<[[f32; 20]; 16]> = Shared::new();
    // SAFETY: a block of 16×16 threads, all of which come here, with tiles that nothing else uses.
    unsafe { tiled(gemm, &TILE_A, &TILE_B) }
}

/// The body of both kernels.
///
/// # Safety
/// Called by all threads of a block of `TILE`×`TILE`, with tiles that nothing else uses. `PITCH >= TILE`.
#[inline(always)]
unsafe fn tiled<const TILE: usize, const PITCH: usize>(
    gemm: Gemm<'_>,
    tile_a: &'static Tile<TILE, PITCH>,
    tile_b: &'static Tile<TILE, PITCH>,
) {
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (first_row, first_col) = (first_row(TILE as u32), thread::block_idx_x() * TILE as u32);
    let mut sum = 0.0;
    let mut k0 = 0;
    while k0 < gemm.effective_k() {
        // SAFETY: x and y are below TILE. Each thread writes its own element of each tile; the first barrier separates the
        // writes from the reads of the other threads, the second one these reads from the next writes. The number of
        // iterations is the same for all threads of the block, so all of them reach both barriers.
        unsafe {
            load_tile(&gemm.a, first_row, k0, tile_a);
            load_tile(&gemm.b, k0, first_col, tile_b);
            thread::sync_threads();
            for l in 0..TILE {
                sum = math::fma(tile_a.read([y, l]), tile_b.read([l, x]), sum);
            }
            thread::sync_threads();
        }
        k0 += TILE as u32;
    }
    let (row, col) = (first_row + y as u32, first_col + x as u32);
    if row < gemm.m() && col < gemm.n() {
        // SAFETY: inside C, as just compared; no other thread of the grid has this row and this column.
        unsafe { gemm.epilogue(row, col, sum) };
    }
}

/// Loads the tile whose first element is (`first_row`, `first_col`) of `matrix`, one element by each thread, with zeros
/// outside the matrix.
///
/// # Safety
/// As for [`tiled`]; the caller separates the writes from reads by other threads with barriers.
#[inline(always)]
#[track_caller]
unsafe fn load_tile<const TILE: usize, const PITCH: usize>(
    matrix: &Matrix<'_>,
    first_row: u32,
    first_col: u32,
    tile: &'static Tile<TILE, PITCH>,
) {
    let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
    let (row, col) = if matrix.is_contiguous_along_rows() { (y, x) } else { (x, y) };
    let value = matrix.at_or_zero(first_row + row, first_col + col);
    // SAFETY: row and col are below TILE, and every thread has its own.
    unsafe { tile.write([row as usize, col as usize], value) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_tiled_32_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::grid_of_tiles(self.gemm.m(), self.gemm.n(), Self::BLOCK.y, Self::BLOCK.x)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_tiled_16_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::grid_of_tiles(self.gemm.m(), self.gemm.n(), Self::BLOCK.y, Self::BLOCK.x)
    }
}
