//! Ping-pong scheduling: two warpgroups issue their tensor-core products in alternation, so that one multiplies while the other
//! works on the accumulators it has.
//!
//! ```text
//!  both at the same time                       in alternation
//!
//!  1  ══multiply══ add ══multiply══ add        1  ══multiply══ add · · ══multiply══ add
//!  2  ══multiply══ add ══multiply══ add        2  · · · ══multiply══ add · · ══multiply══
//!     both share     the tensor cores             one has     at any time, one of
//!     the cores      are idle                     all of them the two multiplies
//! ```
//!
//! It takes two named barriers, one for each warpgroup: a warpgroup waits at its own, and arrives at the other's when it has
//! issued its products.
//!
//! Source: J. Shah et al., "FlashAttention-3" (2024), section 3.1, "pingpong scheduling".

use crate::named_barrier::{NamedBarrier, NamedBarriers};

/// The threads of both warpgroups.
pub const THREADS: u32 = 256;

/// The alternation, as seen by one of the two warpgroups.
#[derive(Clone, Copy)]
pub struct PingPong {
    barriers: NamedBarriers<2, THREADS>,
    /// Which of the two warpgroups: 0 or 1.
    warpgroup: u32,
}

impl PingPong {
    /// The alternation as warpgroup `warpgroup` sees it, 0 or 1; warpgroup 0 is first.
    ///
    /// # Safety
    /// Called once by all lanes of both warpgroups, each with its number, and with barriers that the kernel uses for nothing
    /// else.
    #[inline(always)]
    pub unsafe fn new(barriers: NamedBarriers<2, THREADS>, warpgroup: u32) -> Self {
        let this = Self { barriers, warpgroup };
        if warpgroup == 1 {
            // SAFETY: the caller's promise.
            unsafe { this.pass() };
        }
        this
    }

    #[inline(always)]
    fn own(self) -> NamedBarrier<THREADS> {
        self.barriers.at(self.warpgroup)
    }

    #[inline(always)]
    fn other(self) -> NamedBarrier<THREADS> {
        self.barriers.at(1 - self.warpgroup)
    }

    /// Waits until the other warpgroup has passed.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, before each [`PingPong::pass`], as often by one warpgroup as by the other.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(self) {
        // SAFETY: this warpgroup waits here, and the other one has come or comes with its `pass`.
        unsafe { self.own().sync() }
    }

    /// Lets the other warpgroup issue its products.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, after each [`PingPong::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn pass(self) {
        // SAFETY: the other warpgroup waits there, or comes to.
        unsafe { self.other().arrive() }
    }

    /// After the last products: each warpgroup waits once more, so that every arrival has been waited for, and both have waited
    /// as often, which is what compute-sanitizer's racecheck compares.
    ///
    /// # Safety
    /// Called by all lanes of both warpgroups, which have waited and passed as often as each other.
    #[inline(always)]
    pub unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.wait();
            if self.warpgroup == 0 {
                self.pass();
            }
        }
    }
}
