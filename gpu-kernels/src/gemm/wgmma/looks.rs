//! Looking for operands that cannot be split, and for sums that are not finite: who looks when, and who is told.

use cuda_std::prelude::*;

use crate::gemm::repair::{MARK_A, MARK_B};

/// What a block tells the threads that multiply about sums that are infinite or NaN, beside the marks.
pub(super) const NOT_FINITE: u32 = 4;

/// In which steps a block looks at an operand for numbers that are too small.
#[derive(Clone, Copy)]
pub(super) struct Looks {
    /// Whether it shares the steps with the blocks that have the same rows of A (columns of B).
    pub(super) shared: bool,
    /// Its place among those.
    place: u32,
}

impl Looks {
    /// How many blocks share the steps. With more, some look at the same.
    const SHARERS: u32 = 8;

    #[inline(always)]
    pub(super) fn new(sharers: u32, place: u32) -> Self {
        Self { shared: sharers >= Self::SHARERS, place }
    }

    /// Whether it looks in step `step`.
    #[inline(always)]
    pub(super) fn at(&self, step: u32) -> bool {
        !self.shared || self.place.wrapping_sub(step).is_multiple_of(Self::SHARERS)
    }
}

/// What a block has found: [`MARK_A`] and [`MARK_B`] for operands too small to be split, [`NOT_FINITE`] for sums.
///
/// # Safety
/// All threads of the block call this once, with what they have found themselves. `votes` has an element for each warp.
#[inline(always)]
pub(super) unsafe fn found_by_any(votes: SharedSlice<u32>, found: u32) -> u32 {
    // SAFETY: one lane of each warp writes its element, and all threads wait before they read.
    unsafe {
        let mut vote = 0;
        for what in [MARK_A, MARK_B, NOT_FINITE] {
            if warp::warp_vote_any(warp::ALL_LANES, found & what != 0) {
                vote |= what;
            }
        }
        if warp::lane_id() == 0 {
            votes.write((thread::thread_idx_x() / 32) as usize, vote);
        }
        thread::sync_threads();
        let mut any = 0;
        for warp in 0..votes.len() {
            any |= votes.read(warp);
        }
        any
    }
}

/// Whether no sum is infinite or NaN.
#[inline(always)]
pub(super) fn are_finite<const SUMS: usize>(sums: &[[f32; SUMS]; 2]) -> bool {
    // Zero times anything finite is zero.
    let mut zero = 0.0;
    for i in 0..SUMS {
        zero = math::fma(sums[0][i], 0.0, zero);
        zero = math::fma(sums[1][i], 0.0, zero);
    }
    zero == 0.0
}
