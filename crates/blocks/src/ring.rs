//! A ring of stages in shared memory: one role of a block fills them, another reads them, over and over.
//!
//! ```text
//!            stage 0      stage 1      stage 2
//!          ┌────────────┬────────────┬────────────┐      full[i]:  a phase ends when stage i has been filled
//!          │ k-tile 3   │ k-tile 1   │ k-tile 2   │      empty[i]: a phase ends when all consumers have read stage i
//!          └────────────┴────────────┴────────────┘
//!            ▲ filled next  ▲ read next
//! ```
//!
//! The words are those of CUTLASS's pipelines (`sm90_pipeline.hpp`): stage, phase, producer, consumer.

use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;

use crate::shared_layout::{SharedArray, SharedLayout};

/// Where one role stands in a ring of `STAGES` stages. Each role has its own.
#[derive(Clone, Copy)]
pub struct Ring<const STAGES: u32> {
    /// `STAGES` barriers `full`, then `STAGES` barriers `empty`.
    barriers: SharedSlice<u64>,
    /// The stage that comes next.
    pub stage: u32,
    /// The parity of its phase.
    phase: u32,
}

impl<const STAGES: u32> Ring<STAGES> {
    /// Adds the barriers of a ring to a kernel's shared memory.
    pub const fn barriers(layout: &mut SharedLayout) -> SharedArray<u64> {
        layout.array(2 * STAGES)
    }

    /// The ring with these barriers.
    ///
    /// # Safety
    /// As for [`SharedArray::slice`]; they are those of [`Ring::barriers`], and nothing else uses them.
    #[inline(always)]
    pub unsafe fn new(barriers: SharedArray<u64>) -> Self {
        // SAFETY: the caller's promise.
        Self { barriers: unsafe { barriers.slice() }, stage: 0, phase: 0 }
    }

    /// The ring as it stands after so many steps from the beginning: for a role that has their number anyway.
    #[inline(always)]
    pub fn after(&self, steps: u32) -> Self {
        Self { stage: steps % STAGES, phase: (steps / STAGES) & 1, ..*self }
    }

    /// The ring as it stands for a role that is `STAGES - 2` steps ahead: it comes to the stage of the step before the last.
    #[inline(always)]
    pub fn ahead(&self) -> Self {
        match self.stage {
            0 | 1 => Self { stage: self.stage + STAGES - 2, ..*self },
            stage => Self { stage: stage - 2, phase: self.phase ^ 1, ..*self },
        }
    }

    /// Prepares the barriers: a stage is full after `producers` arrivals, and empty after `consumers`.
    ///
    /// # Safety
    /// One thread of the block calls this, and a barrier of the block separates it from every other use.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn init(&self, producers: u32, consumers: u32) {
        for stage in 0..STAGES {
            // SAFETY: the caller's promise; each barrier is initialized once.
            unsafe {
                Barrier::at(self.barriers, stage as usize).init(producers);
                Barrier::at(self.barriers, (STAGES + stage) as usize).init(consumers);
            }
        }
    }

    /// The barrier whose phase ends when the next stage is full.
    #[inline(always)]
    pub fn full(&self) -> Barrier {
        Barrier::at(self.barriers, self.stage as usize)
    }

    /// The barrier whose phase ends when the next stage is empty.
    #[inline(always)]
    pub fn empty(&self) -> Barrier {
        Barrier::at(self.barriers, (STAGES + self.stage) as usize)
    }

    /// Waits until the next stage is full.
    ///
    /// # Safety
    /// The barriers are initialized, and this role has passed every stage before.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait_full(&self) {
        // SAFETY: a consumer is at most one phase behind the producers of the stage.
        unsafe { self.full().wait(self.phase) }
    }

    /// Waits until the next stage is empty: at once in the first round.
    ///
    /// # Safety
    /// As for [`Ring::wait_full`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait_empty(&self) {
        // SAFETY: a producer of the stage is at most one phase ahead of the consumers.
        unsafe { self.empty().wait(self.phase ^ 1) }
    }

    /// On to the stage after the next.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.stage += 1;
        if self.stage == STAGES {
            self.stage = 0;
            self.phase ^= 1;
        }
    }
}
