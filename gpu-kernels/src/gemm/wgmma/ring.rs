//! Places in shared memory that one role of a block fills and another empties, over and over.
//!
//! ```text
//!            place 0      place 1      place 2
//!          ┌────────────┬────────────┬────────────┐      full[i]:  over when place i has been filled
//!          │ k-tile 3   │ k-tile 1   │ k-tile 2   │      empty[i]: over when everyone has read place i
//!          └────────────┴────────────┴────────────┘
//!            ▲ filled next  ▲ read next
//! ```

use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;

/// Where one role stands in a ring of `STAGES` places. Each role has its own.
#[derive(Clone, Copy)]
pub(super) struct Ring<const STAGES: u32> {
    /// `STAGES` barriers `full`, then `STAGES` barriers `empty`.
    barriers: SharedSlice<u64>,
    /// The place that comes next.
    pub(super) stage: u32,
    parity: u32,
}

impl<const STAGES: u32> Ring<STAGES> {
    /// The number of barriers.
    pub(super) const BARRIERS: u32 = 2 * STAGES;

    /// The ring whose barriers are in `barriers`.
    #[inline(always)]
    pub(super) fn new(barriers: SharedSlice<u64>) -> Self {
        Self { barriers, stage: 0, parity: 0 }
    }

    /// The ring as it stands after so many steps from the beginning: for a role that has their number anyway.
    #[inline(always)]
    pub(super) fn after(&self, steps: u32) -> Self {
        Self { stage: steps % STAGES, parity: (steps / STAGES) & 1, ..*self }
    }

    /// The ring as it stands for a role that is `STAGES - 2` steps ahead: it comes to the place of the step before the last.
    #[inline(always)]
    pub(super) fn ahead(&self) -> Self {
        match self.stage {
            0 | 1 => Self { stage: self.stage + STAGES - 2, ..*self },
            stage => Self { stage: stage - 2, parity: self.parity ^ 1, ..*self },
        }
    }

    /// Prepares the barriers: a place is full after `fillers` arrivals, and empty after `readers`.
    ///
    /// # Safety
    /// One thread of the block calls this, and a barrier of the block separates it from every other use.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn init(&self, fillers: u32, readers: u32) {
        for stage in 0..STAGES {
            // SAFETY: the caller's promise; each barrier is initialized once.
            unsafe {
                Barrier::at(self.barriers, stage as usize).init(fillers);
                Barrier::at(self.barriers, (STAGES + stage) as usize).init(readers);
            }
        }
    }

    /// The barrier that tells that the next place is full.
    #[inline(always)]
    pub(super) fn full(&self) -> Barrier {
        Barrier::at(self.barriers, self.stage as usize)
    }

    /// The barrier that tells that the next place is empty.
    #[inline(always)]
    pub(super) fn empty(&self) -> Barrier {
        Barrier::at(self.barriers, (STAGES + self.stage) as usize)
    }

    /// Waits until the next place is full.
    ///
    /// # Safety
    /// The barriers are initialized, and this role has passed every place before.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait_full(&self) {
        // SAFETY: a reader is at most one phase behind those who fill the place.
        unsafe { self.full().wait(self.parity) }
    }

    /// Waits until the next place is empty: at once in the first round.
    ///
    /// # Safety
    /// As for [`Ring::wait_full`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait_empty(&self) {
        // SAFETY: whoever fills the place is at most one phase ahead of the readers.
        unsafe { self.empty().wait(self.parity ^ 1) }
    }

    /// On to the place after the next.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.stage += 1;
        if self.stage == STAGES {
            self.stage = 0;
            self.parity ^= 1;
        }
    }
}
