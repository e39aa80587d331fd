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
pub struct NamedBarrierIds {
    next: u32,
}

/// `N` named barriers, at each of which `THREADS` threads meet.
#[derive(Clone, Copy)]
pub struct NamedBarriers<const N: u32, const THREADS: u32> {
    first: u32,
}

/// A named barrier at which `THREADS` threads meet: each either waits there, or arrives and goes on.
#[derive(Clone, Copy)]
pub struct NamedBarrier<const THREADS: u32> {
    id: u32,
}

impl NamedBarrierIds {
    /// All numbers but 0, which is that of [`sync_threads`](cuda_std::thread::sync_threads).
    ///
    /// # Safety
    /// No other barrier of the kernel comes from another value of this type, or is named by its number.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self { next: 1 }
    }

    /// The next `N` barriers.
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
    #[inline(always)]
    #[must_use]
    pub const fn at(self, index: u32) -> NamedBarrier<THREADS> {
        NamedBarrier { id: self.first + index }
    }
}

impl<const THREADS: u32> NamedBarrier<THREADS> {
    /// Waits until `THREADS` threads have come, here or to [`NamedBarrier::arrive`].
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
