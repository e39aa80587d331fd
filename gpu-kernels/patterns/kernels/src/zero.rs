//! Zeros in the words by which blocks tell one another something, before a launch.

use cuda_std::prelude::*;

/// Sets all elements to zero.
#[kernel(block = 256, grid = (words.len().div_ceil(256) as u32).clamp(1, 1024))]
pub fn zero_u64(words: GlobalSliceMut<'_, u64>) {
    let mut i = thread::index_1d();
    while i < words.len() {
        // SAFETY: i < words.len(), and no other thread has this one.
        unsafe { words.set_unchecked(i, 0) };
        i += (thread::grid_dim_x() * thread::block_dim_x()) as usize;
    }
}

/// Sets all elements to zero.
#[kernel(block = 256, grid = (words.len().div_ceil(256) as u32).clamp(1, 1024))]
pub fn zero_u32(words: GlobalSliceMut<'_, u32>) {
    let mut i = thread::index_1d();
    while i < words.len() {
        // SAFETY: as above.
        unsafe { words.set_unchecked(i, 0) };
        i += (thread::grid_dim_x() * thread::block_dim_x()) as usize;
    }
}
