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
//! It takes a named barrier for each warpgroup: a warpgroup waits at its own, and arrives at the next one's when it has issued its products.
//! Three warpgroups do the same in a circle.
//!
//! Source: J. Shah et al., "FlashAttention-3" (2024), section 3.1, "pingpong scheduling".

use crate::named_barrier::{NamedBarrier, NamedBarriers};

/// The threads that meet at a barrier: those of a warpgroup, and those of the one before.
pub const THREADS: u32 = 256;

/// The alternation of `N` warpgroups, as seen by one of them.
#[derive(Clone, Copy)]
pub struct PingPong<const N: u32 = 2> {
    barriers: NamedBarriers<N, THREADS>,
    /// Which of them: below `N`.
    warpgroup: u32,
}

impl<const N: u32> PingPong<N> {
    /// The alternation as warpgroup `warpgroup` sees it, below `N`; warpgroup 0 is first.
    ///
    /// # Safety
    /// Called once by all lanes of all `N` warpgroups, each with its number, and with barriers that the kernel uses for nothing
    /// else.
    #[inline(always)]
    pub unsafe fn new(barriers: NamedBarriers<N, THREADS>, warpgroup: u32) -> Self {
        let this = Self { barriers, warpgroup };
        if warpgroup == N - 1 {
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
    fn next(self) -> NamedBarrier<THREADS> {
        self.barriers.at(match N {
            2 => 1 - self.warpgroup,
            _ if self.warpgroup == N - 1 => 0,
            _ => self.warpgroup + 1,
        })
    }

    /// Waits until the warpgroup before this one has passed.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, before each [`PingPong::pass`], as often by one warpgroup as by any other.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(self) {
        // SAFETY: this warpgroup waits here, and the one before has come or comes with its `pass`.
        unsafe { self.own().sync() }
    }

    /// Lets the next warpgroup issue its products.
    ///
    /// # Safety
    /// Called by all lanes of the warpgroup, after each [`PingPong::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn pass(self) {
        // SAFETY: the next warpgroup waits there, or comes to.
        unsafe { self.next().arrive() }
    }

    /// After the last products: each warpgroup waits once more, so that every arrival has been waited for, and all have waited
    /// as often, which is what compute-sanitizer's racecheck compares.
    ///
    /// # Safety
    /// Called by all lanes of all warpgroups, which have waited and passed as often as each other.
    #[inline(always)]
    pub unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.wait();
            if self.warpgroup != N - 1 {
                self.pass();
            }
        }
    }
}
