//! A block shares one long sum: one block of 256 threads for each row.
//!
//! ```text
//!  row of A   │0 1 2 … 255│256 … 511│ …        thread t adds up elements t, t + 256, t + 512, …:
//!  thread      0 1 2 … 255 0   …  255          in every step a warp loads 128 bytes in a row of memory
//!
//!  256 sums    s0 s1 s2 … s127 s128 … s255     in shared memory
//!  + upper     └────── + ──────┘               128 threads add the upper half to the lower,
//!    half      s0 … s63 s64 … s127             then 64, 32, … 1, with a barrier after each step
//!  …           s0                              the sum of the row
//! ```
//!
//! The tree is [`blocks::reduce::sum_of_block`].
//!
//! The idea: a row of a million elements is too long for one thread, and a tree of sums needs log₂ 256 = 8 steps where a
//! line of them would need 255.
//!
//! What it costs: A is read once, coalesced where it is row-major. x is read by every block, from the caches: as many
//! bytes again, but not from memory.
//!
//! 32 registers, 1 KiB of shared memory; any device.

use blocks::reduce::sum_of_block;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::Gemv;

/// The threads of a block.
const THREADS: u32 = gemv_block_reduction_fp32::BLOCK.x;

/// `y = α·A·x + β·y` in fp32, by one block for each row and a tree of sums in shared memory.
#[kernel(block = 256, min_blocks = 8)]
pub fn gemv_block_reduction_fp32(gemv: Gemv<'_>) {
    static SUMS: Shared<[f32; THREADS as usize]> = Shared::new();
    let row = thread::block_idx_x();
    if row >= gemv.m() {
        return; // the whole block
    }
    let t = thread::thread_idx_x();
    let mut sum = 0.0;
    for l in (t..gemv.effective_k()).step_by(THREADS as usize) {
        // SAFETY: row < m, and l is below the number of columns of A, which is the length of x.
        sum = unsafe { math::fma(gemv.a.at(row, l), gemv.x.at(l), sum) };
    }

    // SAFETY: all threads of the block come here, and nothing else uses the array.
    let sum = unsafe { sum_of_block(&SUMS, sum) };
    if t == 0 {
        // SAFETY: row < m, and the first thread of this block alone accesses this element of y.
        unsafe { gemv.epilogue(row, sum) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemv_block_reduction_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(u64::from(self.gemv.m()))
    }
}
