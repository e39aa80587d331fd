//! Looking for operands that cannot be split, and for sums that are not finite: who looks when, and who is told.

use cuda_std::prelude::*;

use crate::gemm::repair::{MARK_A, MARK_B};

/// What a block tells the threads that multiply about sums that are infinite or NaN, beside the marks.
pub(super) const NOT_FINITE: u32 = 4;

/// In which steps a block looks at an operand for numbers that are too small.
#[derive(Clone, Copy)]
pub(super) struct Looks {
    /// Whether it shares the steps with the blocks that have the same rows of A (columns of B).
    shared: bool,
    /// Its place among those.
    pub(super) place: u32,
}

impl Looks {
    /// How many blocks share the steps. With more, some look at the same.
    const SHARERS: u32 = 8;

    #[inline(always)]
    pub(super) fn new(sharers: u32, place: u32) -> Self {
        Self { shared: sharers >= Self::SHARERS, place }
    }

    /// The next step, from `step` on, in which it looks.
    #[inline(always)]
    pub(super) fn next(&self, step: u32) -> u32 {
        if self.shared { step + self.place.wrapping_sub(step) % Self::SHARERS } else { step }
    }
}

/// What a block has found: [`MARK_A`] and [`MARK_B`] for operands too small to be split, [`NOT_FINITE`] for sums.
///
/// # Safety
/// All threads of the block call this once, with what they have found themselves. `votes` has an element for each warp, of
/// which those from `first_multiplier` on have looked at A, and the others at B.
#[inline(always)]
pub(super) unsafe fn found_by_any(
    votes: SharedSlice<u32>,
    first_multiplier: u32,
    [too_small, not_finite]: [bool; 2],
) -> u32 {
    let warp = thread::thread_idx_x() / 32;
    // SAFETY: one lane of each warp writes its element, and all threads wait before they read.
    unsafe {
        let mark = if warp < first_multiplier { MARK_B } else { MARK_A };
        let mut vote = 0;
        if warp::warp_vote_any(warp::ALL_LANES, too_small) {
            vote |= mark;
        }
        if warp::warp_vote_any(warp::ALL_LANES, not_finite) {
            vote |= NOT_FINITE;
        }
        if warp::lane_id() == 0 {
            votes.write(warp as usize, vote);
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
