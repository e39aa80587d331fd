//! Two warpgroups take turns to issue products, so that one multiplies while the other adds up what it has.
//!
//! ```text
//!  left to themselves                          in turns
//!
//!  1  ══multiply══ add ══multiply══ add        1  ══multiply══ add · · ══multiply══ add
//!  2  ══multiply══ add ══multiply══ add        2  · · · ══multiply══ add · · ══multiply══
//!     both share     the tensor cores             one has     all the time, somebody
//!     the cores      have nothing to do           all of them           multiplies
//! ```
//!
//! Source: J. Shah et al., "FlashAttention-3" (2024), section 3.1, "pingpong scheduling".

use cuda_std::hopper;

/// Whose turn it is, as seen by one of two warpgroups.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The barrier at which this warpgroup waits: 1 or 2.
    barrier: u32,
}

impl Turn {
    /// The threads of both warpgroups.
    const THREADS: u32 = 256;

    /// The turns of warpgroup `part`, of 0 and 1. The first turn is that of 0.
    ///
    /// # Safety
    /// Called by all lanes of both warpgroups, of a block that uses the barriers 1 and 2 for nothing else.
    #[inline(always)]
    pub(super) unsafe fn new(part: u32) -> Self {
        let turn = Self { barrier: 1 + part };
        if part == 1 {
            // SAFETY: the caller's promise.
            unsafe { turn.pass() };
        }
        turn
    }

    /// Waits for the turn of this warpgroup.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, before each [`Turn::pass`], as often by one warpgroup as by the other.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait(self) {
        // SAFETY: this warpgroup waits here, and the other one has come or comes with its `pass`.
        unsafe { hopper::sync_part::<{ Self::THREADS }>(self.barrier) }
    }

    /// Ends the turn of this warpgroup.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, after each [`Turn::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn pass(self) {
        // SAFETY: the other warpgroup waits there, or comes to.
        unsafe { hopper::arrive_at_part::<{ Self::THREADS }>(3 - self.barrier) }
    }

    /// After the last turn: an empty one of each, so that every arrival is waited for, and both have waited as often, which is
    /// what compute-sanitizer's racecheck compares.
    ///
    /// # Safety
    /// Called by all lanes of both warpgroups, which have had as many turns.
    #[inline(always)]
    pub(super) unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.wait();
            if self.barrier == 1 {
                self.pass();
            }
        }
    }
}
