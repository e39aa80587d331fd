//! The 16 named barriers of a block (`bar.sync` and `bar.arrive` with a number), handed out at compile time so that no two uses
//! of a kernel have the same number.
//!
//! ```text
//!  number   0                 1, 2                      3                        4 … 15
//!           sync_threads()    ids.group::<2, 256>()     ids.group::<1, 384>()    not handed out
//! ```
//!
//! A kernel has one constant with all barriers it uses, made by one [`NamedBarrierIds`].

use cuda_std::hopper;

/// The named barriers of a block.
const COUNT: u32 = 16;

/// Hands out the numbers of a kernel's named barriers, each once.
///
/// ```
/// # use blocks::named_barrier::*;
/// # use cuda_std::{examples::run, prelude::*};
/// struct Barriers {
///     turns: NamedBarriers<2, 128>,
///     written: NamedBarriers<1, 64>,
/// }
/// // All barriers of a kernel, in one constant: 3 of the 15 numbers are used.
/// const BARRIERS: Barriers = {
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     Barriers { turns: ids.group(), written: ids.group() }
/// };
/// // Two halves of a block, each of which meets at a barrier of its own.
/// run(256, || {
///     let half = thread::index() as u32 / 128;
///     // SAFETY: 128 threads come to each of the two.
///     unsafe { BARRIERS.turns.at(half).sync() }
/// });
/// # let _ = BARRIERS.written;
/// ```
pub struct NamedBarrierIds {
    next: u32,
}

/// `N` named barriers, at each of which `THREADS` threads meet.
///
/// ```
/// # use blocks::named_barrier::*;
/// # use cuda_std::{examples::run, prelude::*};
/// const HALVES: NamedBarriers<2, 64> = {
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     ids.group()
/// };
/// let read = run(128, || {
///     static TILE: Shared<[u32; 128]> = Shared::new();
///     let t = thread::index();
///     // SAFETY: a thread has an element of its own; 64 threads come to each of the two barriers.
///     unsafe {
///         TILE.write(t, t as u32);
///         HALVES.at(t as u32 / 64).sync();
///         TILE.read(t ^ 63)
///     }
/// });
/// assert_eq!((read[0], read[127]), (63, 64));
/// ```
#[derive(Clone, Copy)]
pub struct NamedBarriers<const N: u32, const THREADS: u32> {
    first: u32,
}

/// A named barrier at which `THREADS` threads meet: each either waits there, or arrives and goes on.
///
/// ```
/// # use blocks::named_barrier::*;
/// # use cuda_std::{examples::run, prelude::*};
/// const WRITTEN: NamedBarrier<64> = {
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     ids.group::<1, 64>().at(0)
/// };
/// // The first warp writes and goes on; the second waits for it.
/// let read = run(64, || {
///     static MAIL: Shared<[u32; 32]> = Shared::new();
///     let t = thread::index();
///     // SAFETY: both warps come to the barrier, once, before the second one reads.
///     unsafe {
///         if t < 32 {
///             MAIL.write(t, 7 * t as u32);
///             WRITTEN.arrive();
///             return None;
///         }
///         WRITTEN.sync();
///         Some(MAIL.read(t - 32))
///     }
/// });
/// assert_eq!((read[0], read[63]), (None, Some(217)));
/// ```
#[derive(Clone, Copy)]
pub struct NamedBarrier<const THREADS: u32> {
    id: u32,
}

impl NamedBarrierIds {
    /// All numbers but 0, which is that of [`sync_threads`](cuda_std::thread::sync_threads).
    ///
    /// ```
    /// # use blocks::named_barrier::*;
    /// const IDS: (NamedBarriers<2, 256>, NamedBarriers<1, 384>) = {
    ///     // SAFETY: the kernel has no other barriers but `sync_threads`.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     (ids.group(), ids.group())
    /// };
    /// # let _ = IDS;
    /// ```
    ///
    /// # Safety
    /// No other barrier of the kernel comes from another value of this type, or is named by its number.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self { next: 1 }
    }

    /// The next `N` barriers.
    ///
    /// ```
    /// # use blocks::named_barrier::*;
    /// // SAFETY: there is no kernel.
    /// let mut ids = unsafe { NamedBarrierIds::new() };
    /// let all = ids.group::<15, 64>();
    /// // In a constant, as in every kernel, this would not compile.
    /// let one_more = std::panic::catch_unwind(move || ids.group::<1, 64>());
    /// assert!(one_more.is_err());
    /// # let _ = all;
    /// ```
    ///
    /// # Panics
    /// At compile time, in a constant: if the block has no more barriers, or `THREADS` are not whole warps.
    pub const fn group<const N: u32, const THREADS: u32>(&mut self) -> NamedBarriers<N, THREADS> {
        assert!(THREADS.is_multiple_of(32) && THREADS <= 1024, "whole warps of a block meet at a barrier");
        let first = self.next;
        self.next += N;
        assert!(self.next <= COUNT, "a block has 16 named barriers, of which sync_threads has one");
        NamedBarriers { first }
    }
}

impl<const N: u32, const THREADS: u32> NamedBarriers<N, THREADS> {
    /// Barrier `index` of the group, which has to be below `N`.
    ///
    /// ```
    /// # use blocks::named_barrier::*;
    /// # use cuda_std::{examples::run, prelude::*};
    /// const PARTS: NamedBarriers<3, 32> = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     ids.group()
    /// };
    /// run(96, || {
    ///     let warp = thread::index() as u32 / 32;
    ///     // SAFETY: each warp comes to a barrier of its own, which has an index below 3.
    ///     unsafe { PARTS.at(warp).sync() }
    /// });
    /// ```
    #[inline(always)]
    #[must_use]
    pub const fn at(self, index: u32) -> NamedBarrier<THREADS> {
        NamedBarrier { id: self.first + index }
    }
}

impl<const THREADS: u32> NamedBarrier<THREADS> {
    /// Waits until `THREADS` threads have come, here or to [`NamedBarrier::arrive`].
    ///
    /// ```
    /// # use blocks::named_barrier::*;
    /// # use cuda_std::{examples::run, prelude::*};
    /// const WRITTEN: NamedBarrier<64> = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     ids.group::<1, 64>().at(0)
    /// };
    /// let read = run(96, || {
    ///     static TILE: Shared<[u32; 96]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: a thread has an element of its own; the first two warps come to the barrier, and the third one has its own element only.
    ///     unsafe {
    ///         TILE.write(t, t as u32);
    ///         if t < 64 {
    ///             WRITTEN.sync();
    ///         }
    ///         TILE.read(if t < 64 { 63 - t } else { t })
    ///     }
    /// });
    /// assert_eq!((read[0], read[95]), (63, 95));
    /// ```
    ///
    /// # Safety
    /// Exactly `THREADS` threads, in whole warps, come to this barrier before any of them comes again, and all threads of each
    /// such warp do. The barrier's index is within its group.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn sync(self) {
        // SAFETY: the caller's promise; nobody else has this number.
        unsafe { hopper::sync_part::<THREADS>(self.id) }
    }

    /// Comes to the barrier without waiting for the others.
    ///
    /// ```
    /// # use blocks::named_barrier::*;
    /// # use cuda_std::{examples::run, prelude::*};
    /// const WRITTEN: NamedBarrier<64> = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     ids.group::<1, 64>().at(0)
    /// };
    /// let sums = run(64, || {
    ///     static NUMBERS: Shared<[u32; 32]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: both warps come to the barrier, once, before the second one reads.
    ///     unsafe {
    ///         if t < 32 {
    ///             NUMBERS.write(t, 1);
    ///             WRITTEN.arrive(); // and on to the next numbers, say
    ///             return 0;
    ///         }
    ///         WRITTEN.sync();
    ///         (0..32).map(|i| NUMBERS.read(i)).sum()
    ///     }
    /// });
    /// assert_eq!(sums[32..], [32; 32]);
    /// ```
    ///
    /// # Safety
    /// As for [`NamedBarrier::sync`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's promise; nobody else has this number.
        unsafe { hopper::arrive_at_part::<THREADS>(self.id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups that follow each other.
    const IDS: (NamedBarriers<2, 256>, NamedBarriers<1, 384>) = {
        // SAFETY: there is no kernel.
        let mut ids = unsafe { NamedBarrierIds::new() };
        (ids.group(), ids.group())
    };

    #[test]
    fn every_barrier_has_a_number_of_its_own_and_none_has_0() {
        assert_eq!([IDS.0.at(0).id, IDS.0.at(1).id, IDS.1.at(0).id], [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "16 named barriers")]
    fn there_are_no_more_than_a_block_has() {
        // SAFETY: there is no kernel.
        let mut ids = unsafe { NamedBarrierIds::new() };
        let _ = ids.group::<15, 64>();
        let _ = ids.group::<1, 64>();
    }
}
