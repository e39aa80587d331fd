//! One thread per element of C, numbered along a line.
//!
//! ```text
//!  threads  0 1 2 3 … 255 │ 256 …          element = thread number
//!           └── block 0 ──┘                row = element / n,  col = element % n
//!
//!   A row of A ──────────►                 each thread walks along its row of A and down its column of B,
//!   B column   │                           alone: nothing is shared, every operand is loaded n or m times
//!              ▼
//! ```
//!
//! The idea: the shortest way to a right answer, and the yardstick for the rest.
//!
//! What it costs: two loads for each multiplication. The threads of a warp have the same row and consecutive columns, so
//! the load from A is one broadcast, and the one from B is coalesced where B is row-major. Where B is column-major
//! (`A·Bᵀ` read in place), the 32 lanes load from 32 different lines of the cache, and that decides the time.
//!
//! Source: the textbook's definition of the product. 32 registers, no shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::gemm::Gemm;

/// `C = α·A·B + β·C` in fp32, by one thread for each element, numbered along a line.
#[kernel(block = 256, min_blocks = 8)]
pub fn gemm_naive_1d_fp32(gemm: Gemm<'_>) {
    let (m, n) = (gemm.m() as usize, gemm.n() as usize);
    if n == 0 {
        return; // and the division below never divides by zero
    }
    // The grid may have fewer threads than C has elements: then each takes several, a grid apart.
    let step = thread::grid_dim_x() as usize * thread::block_dim_x() as usize;
    let mut element = thread::index_1d();
    while element < m * n {
        let (row, col) = ((element / n) as u32, (element % n) as u32);
        // SAFETY: element < m·n, so row < m and col < n; every element has one number, and every number falls to one thread.
        unsafe { gemm.epilogue(row, col, gemm.dot(row, col)) };
        element += step;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_naive_1d_fp32<'_> {
    fn grid(&self) -> Dim3 {
        let elements = u64::from(self.gemm.m()) * u64::from(self.gemm.n());
        crate::geometry::line_of_blocks(elements.div_ceil(u64::from(Self::BLOCK.x)))
    }
}
