//! What the kernels with split sums share: adding up the sums of threads.

use cuda_std::prelude::*;

/// The threads of a block.
pub(super) const THREADS: u32 = 256;

/// The warps of a block.
pub(super) const WARPS: usize = THREADS as usize / warp::LANES as usize;

/// The number of rows of which every thread has sums.
pub(super) const ROWS: usize = 4;

/// The sums of all lanes of a warp whose numbers differ only in the bits of `first`, 2·`first`, 4·`first` … up to those of
/// `end` (not included), both powers of two. All lanes get the sums of their own set, added up as a tree.
///
/// # Safety
/// Called by all lanes of the warp, with the same numbers.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn add_lanes(mut sums: [f32; ROWS], first: u32, end: u32) -> [f32; ROWS] {
    let mut distance = end / 2;
    while distance >= first.max(1) {
        for sum in &mut sums {
            // SAFETY: by the caller's promise, all lanes come here.
            *sum += unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, *sum, distance, warp::LANES) }.0;
        }
        distance /= 2;
    }
    sums
}
