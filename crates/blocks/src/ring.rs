//! A ring of stages in shared memory: producers fill them, consumers read them, over and over.
//!
//! ```text
//!            stage 0      stage 1      stage 2
//!          ┌────────────┬────────────┬────────────┐      full[i]:  a phase ends when stage i has been filled
//!          │ k-tile 3   │ k-tile 1   │ k-tile 2   │      empty[i]: a phase ends when all consumers have read stage i
//!          └────────────┴────────────┴────────────┘
//!            ▲ the producer's  ▲ the consumer's
//!
//!  Producer   acquire: wait for empty ─► fill the stage ─► commit: arrive at full     ─► advance
//!  Consumer   wait: wait for full     ─► read the stage ─► release: arrive at empty   ─► advance
//! ```
//!
//! A role has a handle of its own, with what this role does and no more: a consumer cannot commit, and a producer cannot
//! release. The words are those of CUTLASS's pipelines (`sm90_pipeline.hpp`): stage, phase, `producer_acquire`,
//! `producer_commit`, `consumer_wait`, `consumer_release`.
//!
//! # Phases
//!
//! A barrier's phases are counted by their parity. Phase `r` of `full[i]` ends when stage `i` has been filled in round `r`, phase `r`
//! of `empty[i]` when it has been read in round `r`. So in round `r` a consumer waits for parity `r mod 2` of `full[i]`, and a
//! producer for the other parity of `empty[i]`, that of round `r - 1`; in round 0 that phase counts as over, and the wait
//! returns at once.

use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

use crate::shared_layout::{SharedArray, SharedLayout};

/// The barriers of a ring of `STAGES` stages: what all roles share.
#[derive(Clone, Copy)]
pub struct Ring<const STAGES: u32> {
    /// `STAGES` barriers `full`, then `STAGES` barriers `empty`.
    barriers: SharedSlice<u64>,
}

/// Where a role stands in a ring: the stage that comes next to it, and the parity of the round.
#[derive(Clone, Copy)]
struct Position {
    stage: u32,
    phase: u32,
}

/// The handle of a role that fills stages. The next one is the producer's from [`Producer::acquire`] until its commit.
#[derive(Clone, Copy)]
pub struct Producer<const STAGES: u32> {
    ring: Ring<STAGES>,
    position: Position,
}

/// A stage that a producer has TMA fill.
#[derive(Clone, Copy)]
pub struct TmaStage {
    full: Barrier,
}

/// The handle of a role that reads stages. The next one is the consumer's from [`Consumer::wait`] until its release.
#[derive(Clone, Copy)]
pub struct Consumer<const STAGES: u32> {
    ring: Ring<STAGES>,
    position: Position,
}

/// The handle of a warp that fills the stages of a ring and reads them, too. It stands where it reads.
#[derive(Clone, Copy)]
pub struct ProducerConsumer<const STAGES: u32> {
    consumer: Consumer<STAGES>,
}

/// A stage that a consumer has not released yet, wherever its handle stands. It has to be released, once.
#[must_use = "a stage that is never released is never filled again"]
pub struct Unreleased {
    empty: Barrier,
}

impl Position {
    const START: Self = Self { stage: 0, phase: 0 };

    /// After `steps` stages, in a ring of `STAGES`.
    #[inline(always)]
    fn after<const STAGES: u32>(steps: u32) -> Self {
        Self { stage: steps % STAGES, phase: (steps / STAGES) & 1 }
    }

    #[inline(always)]
    fn advance<const STAGES: u32>(&mut self) {
        self.stage += 1;
        if self.stage == STAGES {
            self.stage = 0;
            self.phase ^= 1;
        }
    }
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
        Self { barriers: unsafe { barriers.slice() } }
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

    /// The producer's handle, before the first stage.
    #[inline(always)]
    pub fn producer(&self) -> Producer<STAGES> {
        Producer { ring: *self, position: Position::START }
    }

    /// The producer's handle after so many stages: for a role that counts them anyway.
    #[inline(always)]
    pub fn producer_after(&self, steps: u32) -> Producer<STAGES> {
        Producer { ring: *self, position: Position::after::<STAGES>(steps) }
    }

    /// The consumer's handle, before the first stage.
    #[inline(always)]
    pub fn consumer(&self) -> Consumer<STAGES> {
        Consumer { ring: *self, position: Position::START }
    }

    /// The consumer's handle after so many stages.
    #[inline(always)]
    pub fn consumer_after(&self, steps: u32) -> Consumer<STAGES> {
        Consumer { ring: *self, position: Position::after::<STAGES>(steps) }
    }

    /// The handle of a warp with both roles, before the first stage.
    #[inline(always)]
    pub fn producer_consumer(&self) -> ProducerConsumer<STAGES> {
        ProducerConsumer { consumer: self.consumer() }
    }

    #[inline(always)]
    fn full(&self, stage: u32) -> Barrier {
        Barrier::at(self.barriers, stage as usize)
    }

    #[inline(always)]
    fn empty(&self, stage: u32) -> Barrier {
        Barrier::at(self.barriers, (STAGES + stage) as usize)
    }
}

impl<const STAGES: u32> Producer<STAGES> {
    /// The number of the next stage.
    #[inline(always)]
    pub fn stage(&self) -> u32 {
        self.position.stage
    }

    /// Waits until the next stage is empty: at once in the first round. CUTLASS's `producer_acquire`.
    ///
    /// # Safety
    /// The barriers are initialized, and this role has committed every stage before.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn acquire(&self) {
        // SAFETY: a producer of the stage is at most one phase ahead of the consumers.
        unsafe { self.ring.empty(self.position.stage).wait(self.position.phase ^ 1) }
    }

    /// Commits what this warp has written to the next stage: one arrival. CUTLASS's `producer_commit`.
    ///
    /// # Safety
    /// All lanes of the warp come here together, once after each [`Producer::acquire`] and what they have written after it.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn commit(&self) {
        // SAFETY: the caller's promise: one arrival of each warp.
        unsafe {
            if hopper::elect_one() {
                self.ring.full(self.position.stage).arrive();
            }
        }
    }

    /// The next stage, for TMA to fill once it has been acquired.
    #[inline(always)]
    pub fn tma_stage(&self) -> TmaStage {
        TmaStage { full: self.ring.full(self.position.stage) }
    }

    /// On to the stage after the next.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position.advance::<STAGES>();
    }
}

impl TmaStage {
    /// Commits the stage before it is filled: it is full when `bytes` bytes have come. CUTLASS has that in its
    /// `producer_acquire`.
    ///
    /// # Safety
    /// One lane calls this, once after each [`Producer::acquire`]; TMA loads of exactly so many bytes follow, by
    /// [`TmaStage::load_tile`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn commit_bytes(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.full.arrive_expecting(bytes) }
    }

    /// Issues a TMA load to the stage, whose first byte goes to element `index` of `memory`: see [`hopper::load_tile`].
    ///
    /// # Safety
    /// As for [`hopper::load_tile`]; the target is inside the stage, which has been acquired, and [`TmaStage::commit_bytes`]
    /// counts the bytes.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_tile(self, memory: SharedSlice<f32>, index: usize, map: TensorMap<'_>, at: [u32; 3]) {
        // SAFETY: the caller's promise.
        unsafe { hopper::load_tile(memory, index, map, at, self.full) }
    }
}

impl<const STAGES: u32> Consumer<STAGES> {
    /// The number of the next stage.
    #[inline(always)]
    pub fn stage(&self) -> u32 {
        self.position.stage
    }

    /// Waits until the next stage is full. CUTLASS's `consumer_wait`.
    ///
    /// # Safety
    /// The barriers are initialized, and this role has passed every stage before.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(&self) {
        // SAFETY: a consumer is at most one phase behind the producers of the stage.
        unsafe { self.ring.full(self.position.stage).wait(self.position.phase) }
    }

    /// Releases the next stage: one arrival of this warp. CUTLASS's `consumer_release`.
    ///
    /// # Safety
    /// As for [`Unreleased::release`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { Unreleased { empty: self.ring.empty(self.position.stage) }.release() }
    }

    /// On to the stage after the next.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position.advance::<STAGES>();
    }

    /// On to the stage after the next. The result is the one before, to be released when what reads it has finished.
    #[inline(always)]
    pub fn advance_holding(&mut self) -> Unreleased {
        let unreleased = Unreleased { empty: self.ring.empty(self.position.stage) };
        self.position.advance::<STAGES>();
        unreleased
    }
}

impl Unreleased {
    /// Says that this warp does not read the stage any more.
    ///
    /// # Safety
    /// All lanes of a consumer's warp come here together, once for each stage. What they had read of it they have, and
    /// asynchronous products that read it have finished.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn release(self) {
        // SAFETY: the caller's promise: one arrival of each warp.
        unsafe {
            if hopper::elect_one() {
                self.empty.arrive();
            }
        }
    }
}

impl<const STAGES: u32> ProducerConsumer<STAGES> {
    /// The role that reads.
    #[inline(always)]
    pub fn consumer(&self) -> Consumer<STAGES> {
        self.consumer
    }

    /// The role that fills, `STAGES - 2` steps ahead of the one that reads: it comes to the stage of the step before the last.
    #[inline(always)]
    pub fn producer_ahead(&self) -> Producer<STAGES> {
        let Position { stage, phase } = self.consumer.position;
        let position = match stage {
            0 | 1 => Position { stage: stage + STAGES - 2, phase },
            stage => Position { stage: stage - 2, phase: phase ^ 1 },
        };
        Producer { ring: self.consumer.ring, position }
    }

    /// On to the stage after the next.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.consumer.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_after_steps_is_that_of_as_many_advances() {
        let mut position = Position::START;
        for step in 0..20 {
            let after = Position::after::<3>(step);
            assert_eq!((position.stage, position.phase), (after.stage, after.phase), "{step}");
            assert_eq!((after.stage, after.phase), (step % 3, step / 3 % 2), "{step}");
            position.advance::<3>();
        }
    }
}
