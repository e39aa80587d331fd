//! Kernels that set an array to zero before another launch: bins that are added to, and counters and flags by which blocks tell one another
//! something. A thread has the word with its number, and those that come so many later as there are threads.

use cuda_std::prelude::*;

/// The blocks for so many words.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(words: usize) -> u32 {
    words.div_ceil(256).clamp(1, 1024) as u32
}

/// Sets all elements to zero.
#[kernel(block = 256, grid = blocks(words.len()))]
pub fn zero_u64(words: DisjointSlice<'_, u64>) {
    words.own_elements().for_each(|word| word.set(0));
}

/// Sets all elements to zero.
#[kernel(block = 256, grid = blocks(words.len()))]
pub fn zero_u32(words: DisjointSlice<'_, u32>) {
    words.own_elements().for_each(|word| word.set(0));
}
