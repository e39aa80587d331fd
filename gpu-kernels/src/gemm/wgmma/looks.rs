//! Looking for operands that cannot be split, and for sums that are not finite: who looks when, and who is told.

use cuda_std::hopper;
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

/// What the warps of a block of `THREADS` threads have found: [`MARK_A`] and [`MARK_B`] for operands too small to be split,
/// [`NOT_FINITE`] for sums. Some warps only tell, the others also wait for what all of them tell:
///
/// ```text
///  converters    ─ found ─► tell
///                             │
///                     one vote for each warp ───┐
///                             │                 ▼
///  multipliers   ─ found ─► tell ─► wait ─► what any of them has found
/// ```
#[derive(Clone, Copy)]
pub(super) struct Votes<const THREADS: u32>(SharedSlice<u32>);

impl<const THREADS: u32> Votes<THREADS> {
    /// The bytes of shared memory that they take.
    pub(super) const BYTES: u32 = THREADS / 32 * 4;
    /// The barrier for which the threads come: neither that of the whole block nor those of the turns.
    const BARRIER: u32 = 3;

    /// Votes in shared memory, from byte `offset` on.
    ///
    /// # Safety
    /// As for [`dynamic_shared`], with [`Votes::BYTES`] bytes.
    #[inline(always)]
    pub(super) unsafe fn new(offset: usize) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { dynamic_shared(offset, THREADS as usize / 32) })
    }

    /// Tells what the threads of a warp have found.
    ///
    /// # Safety
    /// Each warp of the block comes once, with all its lanes, here or to [`Votes::tell_and_wait`].
    #[inline(always)]
    pub(super) unsafe fn tell(self, found: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            self.write(found);
            hopper::arrive_at_part::<THREADS>(Self::BARRIER);
        }
    }

    /// Tells what the threads of a warp have found, and returns what those of any warp have.
    ///
    /// # Safety
    /// As for [`Votes::tell`].
    #[inline(always)]
    pub(super) unsafe fn tell_and_wait(self, found: u32) -> u32 {
        // SAFETY: every warp has written its vote before it came to the barrier, and none writes after.
        unsafe {
            self.write(found);
            hopper::sync_part::<THREADS>(Self::BARRIER);
            let mut any = 0;
            for warp in 0..self.0.len() {
                any |= self.0.read(warp);
            }
            any
        }
    }

    /// Writes the vote of a warp.
    ///
    /// # Safety
    /// As for [`Votes::tell`].
    #[inline(always)]
    unsafe fn write(self, found: u32) {
        // SAFETY: one lane of each warp writes its element.
        unsafe {
            let mut vote = 0;
            for what in [MARK_A, MARK_B, NOT_FINITE] {
                if warp::warp_vote_any(warp::ALL_LANES, found & what != 0) {
                    vote |= what;
                }
            }
            if warp::lane_id() == 0 {
                self.0.write((thread::thread_idx_x() / 32) as usize, vote);
            }
        }
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
