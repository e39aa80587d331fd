//! Products with few columns: the time is that of reading A once. A product with few rows is one of these, transposed.
//!
//! | module | columns | what multiplies |
//! |---|---|---|
//! | [`cuda_cores`] | at most 16 | fused multiply-adds in fp32 |
//! | [`tensor_cores`] | some tens | three TF32 products of high and low parts |
//!
//! In both, threads load A straight into registers, in vectors of 16 bytes, with many loads under way before the first is used: no
//! element of A is used by two warps, so shared memory would only be a detour.

pub mod cuda_cores;
pub mod tensor_cores;

use cuda_std::prelude::*;

use crate::gemm::tiles::{Tile, TileShape};

/// The threads of a block.
const THREADS: u32 = 256;
/// The warps of a block.
const WARPS: u32 = THREADS / warp::LANES;

/// The sum of what the warps of a block have computed of an element of a tile, in their order. Each warp has written the elements of the
/// whole tile, row by row, to its part of `shared`.
///
/// # Safety
/// `element` is one of the tile's, and a barrier separates the writes from this read.
#[inline(always)]
unsafe fn sum_of_warps(shared: &SharedSlice<f32>, shape: TileShape, element: u32) -> f32 {
    let elements = shape.m * shape.n;
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = shared.read(element as usize);
        for warp in 1..WARPS {
            sum += shared.read((warp * elements + element) as usize);
        }
        sum
    }
}

/// Adds up what the warps of a block have computed of a tile, in their order, and stores the elements that C has. Each warp has written
/// as for [`sum_of_warps`].
///
/// # Safety
/// All threads of a block of [`THREADS`] come here, and no thread accesses `shared` otherwise after this. No other block stores
/// elements of the tile.
#[inline(always)]
unsafe fn store_sums_of_warps(tile: &Tile<'_>, shape: TileShape, shared: &SharedSlice<f32>) {
    let elements = shape.m * shape.n;
    // SAFETY: all threads of the block come here. The barrier separates the writes of the warps from these reads. Each element has one
    // thread, which stores it.
    unsafe {
        thread::sync_threads();
        let mut element = thread::thread_idx_x();
        while element < elements {
            let sum = sum_of_warps(shared, shape, element);
            tile.epilogue_element(tile.row + element / shape.n, tile.col + element % shape.n, sum);
            element = hint::keep_rolled(element + THREADS);
        }
    }
}
