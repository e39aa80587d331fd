//! One thread per element of C, arranged like C.
//!
//! ```text
//!        x: columns of C, 32 per block
//!       ┌────────────────────────┐
//!    y: │ warp 0: row 0, 32 cols │      a warp is one row of the block: it shares a row of A,
//!  rows │ warp 1: row 1          │      and its 32 columns of B lie side by side
//!    8  │ …                      │
//!       │ warp 7: row 7          │      the 8 warps use the same columns of B: the cache sees that
//!       └────────────────────────┘
//! ```
//!
//! The idea: the grid has the shape of the result. There is no division, and a block touches a compact piece of C, so that
//! its eight warps find the columns of B in the cache that one of them has loaded.
//!
//! What it costs: still two loads for each multiplication. Coalesced where B is row-major; the load from A is one
//! address for the whole warp in any layout, so `Aᵀ·B` read in place costs no more than `A·B`. Where B is column-major,
//! nothing helps: the 32 lanes load from 32 different lines.
//!
//! Source: as old as CUDA (NVIDIA's programming guide, "Thread Hierarchy"). 32 registers, no shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::gemm::Gemm;
use crate::geometry::first_row;

/// `C = α·A·B + β·C` in fp32, by one thread for each element, in blocks of 32 columns by 8 rows.
#[kernel(block = (32, 8), min_blocks = 8)]
pub fn gemm_naive_2d_fp32(gemm: Gemm<'_>) {
    let col = thread::block_idx_x() * thread::block_dim_x() + thread::thread_idx_x();
    let row = first_row(thread::block_dim_y()) + thread::thread_idx_y();
    if row >= gemm.m() || col >= gemm.n() {
        return; // rather than a branch around the rest, which would keep the strides out of the uniform registers
    }
    // SAFETY: row < m and col < n, as just compared; no other thread of the grid has this row and this column.
    unsafe { gemm.epilogue(row, col, gemm.dot(row, col)) };
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_naive_2d_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::grid_of_tiles(self.gemm.m(), self.gemm.n(), Self::BLOCK.y, Self::BLOCK.x)
    }
}
