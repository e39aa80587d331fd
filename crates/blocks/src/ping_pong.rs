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
///
/// ```
/// use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
/// use blocks::ping_pong::{PingPong, THREADS};
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// const TURNS: NamedBarriers<2, THREADS> = {
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     ids.group()
/// };
///
/// /// Which warpgroup had each of six turns.
/// #[kernel(block = 256, requires(order.len() == 6))]
/// fn turns(order: GlobalSliceMut<'_, u32>) {
///     static TURN: Shared<[u32; 1]> = Shared::new();
///     let (warpgroup, t) = (thread::thread_idx_x() / 128, thread::thread_idx_x() % 128);
///     // SAFETY: all lanes of both warpgroups come here, and have as many turns, in which one thread of each counts.
///     unsafe {
///         if thread::thread_idx_x() == 0 {
///             TURN.write(0, 0);
///         }
///         let ping_pong = PingPong::new(TURNS, warpgroup);
///         for _ in 0..3 {
///             ping_pong.wait();
///             // A kernel issues its tensor-core products here. That nobody else is here, the executor sees: it reports no race.
///             if t == 0 {
///                 let turn = TURN.read(0);
///                 order.set_unchecked(turn as usize, warpgroup);
///                 TURN.write(0, turn + 1);
///             }
///             ping_pong.pass();
///             // And here, while the other warpgroup multiplies, it works on what has come of them.
///         }
///         ping_pong.end();
///     }
/// }
///
/// let mut order = [9; 6];
/// // SAFETY: the view is of an array of this program.
/// unsafe { Executor::new(Checks::Full).launch(turns { order: GlobalSliceMut::new(&mut order) }, Dim3::from(1)) }?;
/// assert_eq!(order, [0, 1, 0, 1, 0, 1]);
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
#[derive(Clone, Copy)]
pub struct PingPong<const N: u32 = 2> {
    barriers: NamedBarriers<N, THREADS>,
    /// Which of them: below `N`.
    warpgroup: u32,
}

impl<const N: u32> PingPong<N> {
    /// The alternation as warpgroup `warpgroup` sees it, below `N`; warpgroup 0 is first.
    ///
    /// ```
    /// # use blocks::{named_barrier::*, ping_pong::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // Three warpgroups, which take turns in a circle.
    /// const TURNS: NamedBarriers<3, THREADS> = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     ids.group()
    /// };
    /// let turns = run(3 * 128, || {
    ///     static TURN: Shared<[u32; 1]> = Shared::new();
    ///     let (warpgroup, t) = (thread::thread_idx_x() / 128, thread::thread_idx_x() % 128);
    ///     let mut turn = 0;
    ///     // SAFETY: all lanes of the three warpgroups come here, each with its number; one thread of each counts in its turn.
    ///     unsafe {
    ///         let ping_pong = PingPong::new(TURNS, warpgroup);
    ///         ping_pong.wait();
    ///         if t == 0 {
    ///             turn = if warpgroup == 0 { 0 } else { TURN.read(0) };
    ///             TURN.write(0, turn + 1);
    ///         }
    ///         ping_pong.pass();
    ///         ping_pong.end();
    ///     }
    ///     turn
    /// });
    /// assert_eq!([turns[0], turns[128], turns[256]], [0, 1, 2]);
    /// ```
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
    /// ```
    /// # use blocks::examples::ping_pong;
    /// # use cuda_std::{examples::run, prelude::*};
    /// let read = run(256, || {
    ///     static MAIL: Shared<[u32; 128]> = Shared::new();
    ///     let (warpgroup, t) = (thread::index() / 128, thread::index() % 128);
    ///     // SAFETY: all lanes of both warpgroups come here; what one has written in its turn, the other reads in the next.
    ///     unsafe {
    ///         let ping_pong = ping_pong();
    ///         ping_pong.wait();
    ///         let read = if warpgroup == 0 { 0 } else { MAIL.read(127 - t) };
    ///         if warpgroup == 0 {
    ///             MAIL.write(t, t as u32);
    ///         }
    ///         ping_pong.pass();
    ///         ping_pong.end();
    ///         read
    ///     }
    /// });
    /// assert_eq!((read[128], read[255]), (127, 0));
    /// ```
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
    /// ```
    /// # use blocks::examples::ping_pong;
    /// # use cuda_std::{examples::run, prelude::*};
    /// // A sum that each warpgroup adds to in its turn: the second one finds what the first has left.
    /// let sums = run(256, || {
    ///     static SUM: Shared<[u32; 128]> = Shared::new();
    ///     let (warpgroup, t) = (thread::index() / 128, thread::index() % 128);
    ///     let mut sum = 0;
    ///     // SAFETY: all lanes of both warpgroups come here, and have four turns each, in which nobody else has the sums.
    ///     unsafe {
    ///         let ping_pong = ping_pong();
    ///         for turn in 0..4 {
    ///             ping_pong.wait();
    ///             sum = if (warpgroup, turn) == (0, 0) { 1 } else { SUM.read(t) + 1 };
    ///             SUM.write(t, sum);
    ///             ping_pong.pass();
    ///         }
    ///         ping_pong.end();
    ///     }
    ///     sum
    /// });
    /// assert_eq!((sums[0], sums[255]), (7, 8));
    /// ```
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
    /// ```
    /// # use blocks::examples::ping_pong;
    /// # use cuda_std::examples::run;
    /// run(256, || {
    ///     // SAFETY: all lanes of both warpgroups come here, and wait and pass as often as each other.
    ///     unsafe {
    ///         let ping_pong = ping_pong();
    ///         for _ in 0..3 {
    ///             ping_pong.wait();
    ///             ping_pong.pass();
    ///         }
    ///         // Without it there is an arrival that nobody waits for, which is reported.
    ///         ping_pong.end();
    ///     }
    /// });
    /// ```
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
