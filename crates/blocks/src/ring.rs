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

mod consumer;
mod producer;

use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;

use crate::shared_layout::{SharedArray, SharedLayout};

/// The barriers of a ring of `STAGES` stages: what all roles share.
///
/// ```
/// use blocks::ring::Ring;
/// use blocks::shared_layout::{SharedArray, SharedLayout};
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// /// Two stages of 32 numbers each.
/// const STAGES: u32 = 2;
///
/// struct Memory {
///     numbers: SharedArray<f32>,
///     barriers: SharedArray<u64>,
///     bytes: u32,
/// }
///
/// const MEMORY: Memory = {
///     let mut layout = SharedLayout::new();
///     let (numbers, barriers) = (layout.array(STAGES * 32), Ring::<STAGES>::barriers(&mut layout));
///     Memory { numbers, barriers, bytes: layout.bytes() }
/// };
///
/// /// The first warp loads 32 numbers at a time, and the second one adds them to sums.
/// #[kernel(block = 64, arch = "sm_90a", dynamic_shared = MEMORY.bytes, requires(x.len() % 32 == 0, sums.len() == 32))]
/// fn add_up(x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
///     let (t, lane) = (thread::thread_idx_x(), warp::lane_id() as usize);
///     // SAFETY: one thread initializes the barriers before the block meets. Each role goes through all stages, and accesses one between
///     // `acquire` and `commit`, or `wait` and `release`, before which the lanes of its warp meet. A lane has elements of its own.
///     unsafe {
///         let (numbers, ring) = (MEMORY.numbers.slice(), Ring::<STAGES>::new(MEMORY.barriers));
///         if t == 0 {
///             ring.init(1, 1);
///         }
///         thread::sync_threads();
///         if t < 32 {
///             let mut producer = ring.producer();
///             for first in (0..x.len()).step_by(32) {
///                 producer.acquire();
///                 numbers.write(producer.stage() as usize * 32 + lane, x.get_unchecked(first + lane));
///                 warp::sync_warp(warp::ALL_LANES);
///                 producer.commit();
///                 producer.advance();
///             }
///         } else {
///             let (mut consumer, mut sum) = (ring.consumer(), 0.0);
///             for _ in 0..x.len() / 32 {
///                 consumer.wait();
///                 sum += numbers.read(consumer.stage() as usize * 32 + 31 - lane);
///                 warp::sync_warp(warp::ALL_LANES);
///                 consumer.release();
///                 consumer.advance();
///             }
///             sums.set_unchecked(lane, sum);
///         }
///     }
/// }
///
/// let (x, mut sums) = (Vec::from_iter((0..5 * 32).map(|i| (i % 32) as f32)), [0.0; 32]);
/// let arguments = add_up { x: GlobalSlice::new(&x), sums: GlobalSliceMut::new(&mut sums) };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(1)) }?;
/// assert_eq!((sums[0], sums[31]), (5.0 * 31.0, 0.0));
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
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
///
/// ```
/// # use blocks::{examples::ring, ring::*};
/// # use cuda_std::{examples::run, prelude::*};
/// // Four steps in a ring of two stages, by one warp, which another one reads after.
/// let read = run(64, || {
///     static NUMBERS: Shared<[u32; 2 * 32]> = Shared::new();
///     let lane = thread::index() % 32;
///     // SAFETY: the lanes meet before they commit and release.
///     unsafe {
///         let ring = ring::<2>(1, 1);
///         if thread::index() < 32 {
///             let mut producer: Producer<2> = ring.producer();
///             for step in 0..4 {
///                 producer.acquire(); // from step 2 on it waits for the other warp
///                 NUMBERS.write(producer.stage() as usize * 32 + lane, step);
///                 warp::sync_warp(warp::ALL_LANES);
///                 producer.commit();
///                 producer.advance();
///             }
///             return [0; 4];
///         }
///         let mut consumer = ring.consumer();
///         [(); 4].map(|()| {
///             consumer.wait();
///             let read = NUMBERS.read(consumer.stage() as usize * 32 + 31 - lane);
///             warp::sync_warp(warp::ALL_LANES);
///             consumer.release();
///             consumer.advance();
///             read
///         })
///     }
/// });
/// assert_eq!(read[63], [0, 1, 2, 3]);
/// ```
#[derive(Clone, Copy)]
pub struct Producer<const STAGES: u32> {
    ring: Ring<STAGES>,
    position: Position,
}

/// A stage that a producer has TMA fill.
///
/// ```
/// # use blocks::{examples::ring, ring::*};
/// # use cuda_std::{examples::{Matrix, run_over}, hopper, prelude::*};
/// // A matrix with rows of 32 numbers; each number is that of its tile.
/// let mut x = Vec::from_iter((0..5 * 256).map(|i| (i / 256) as f32));
/// let sums = run_over(64, &mut x, |Matrix { map, .. }: Matrix<'_>| {
///     let lane = warp::lane_id() as usize;
///     // SAFETY: one lane of the first warp asks for tiles, each of which has room in a stage; the second warp reads a stage between `wait`
///     // and `release`.
///     unsafe {
///         let (tiles, ring) = (dynamic_shared::<f32>(1024, 512), ring::<2>(1, 1));
///         if thread::index() < 32 {
///             let mut producer = ring.producer();
///             for step in 0..5 {
///                 producer.acquire();
///                 if hopper::elect_one() {
///                     let stage: TmaStage = producer.tma_stage();
///                     stage.commit_bytes(4 * 256);
///                     stage.load_tile(tiles, 256 * producer.stage() as usize, map, [0, 8 * step, 0]);
///                 }
///                 producer.advance();
///             }
///             return 0.0;
///         }
///         let (mut consumer, mut sum) = (ring.consumer(), 0.0);
///         for _ in 0..5 {
///             consumer.wait();
///             sum += tiles.read(256 * consumer.stage() as usize + 32 * 7 + lane);
///             warp::sync_warp(warp::ALL_LANES);
///             consumer.release();
///             consumer.advance();
///         }
///         sum
///     }
/// });
/// assert_eq!(sums[32..], [10.0; 32]);
/// ```
#[derive(Clone, Copy)]
pub struct TmaStage {
    full: Barrier,
}

/// The handle of a role that reads stages. The next one is the consumer's from [`Consumer::wait`] until its release.
///
/// ```
/// # use blocks::{examples::ring, ring::*};
/// # use cuda_std::{examples::run, prelude::*};
/// // One warp fills stages, and two read them: each stage is empty when both have released it.
/// let read = run(96, || {
///     static NUMBERS: Shared<[u32; 2 * 32]> = Shared::new();
///     let lane = thread::index() % 32;
///     // SAFETY: the lanes meet before they commit and release.
///     unsafe {
///         let ring = ring::<2>(1, 2);
///         if thread::index() < 32 {
///             let mut producer = ring.producer();
///             for step in 0..4 {
///                 producer.acquire();
///                 NUMBERS.write(producer.stage() as usize * 32 + lane, step);
///                 warp::sync_warp(warp::ALL_LANES);
///                 producer.commit();
///                 producer.advance();
///             }
///             return 0;
///         }
///         let (mut consumer, mut sum): (Consumer<2>, _) = (ring.consumer(), 0);
///         for _ in 0..4 {
///             consumer.wait();
///             sum += NUMBERS.read(consumer.stage() as usize * 32 + 31 - lane);
///             warp::sync_warp(warp::ALL_LANES);
///             consumer.release();
///             consumer.advance();
///         }
///         sum
///     }
/// });
/// assert_eq!(read[32..], [6; 64]);
/// ```
#[derive(Clone, Copy)]
pub struct Consumer<const STAGES: u32> {
    ring: Ring<STAGES>,
    position: Position,
}

/// The handle of a warp that fills the stages of a ring and reads them, too. It stands where it reads.
///
/// ```
/// # use blocks::{examples::ring, ring::*};
/// # use cuda_std::{examples::run, prelude::*};
/// let sums = run(32, || {
///     static NUMBERS: Shared<[u32; 4 * 32]> = Shared::new();
///     let lane = thread::index();
///     // SAFETY: the lanes meet before they commit and release.
///     unsafe {
///         let ring = ring::<4>(1, 1);
///         let fill = |producer: Producer<4>, step: u32| {
///             producer.acquire();
///             NUMBERS.write(producer.stage() as usize * 32 + lane, step);
///             warp::sync_warp(warp::ALL_LANES);
///             producer.commit();
///         };
///         for step in 0..4 {
///             fill(ring.producer_after(step), step); // all stages are empty
///         }
///         let (mut both, mut sum) = (ring.producer_consumer(), 0);
///         for step in 0..8 {
///             if step >= 2 && step + 2 < 8 {
///                 fill(both.producer_ahead(), step + 2); // the stage that was read two steps ago
///             }
///             both.consumer().wait();
///             sum += NUMBERS.read(both.consumer().stage() as usize * 32 + 31 - lane);
///             warp::sync_warp(warp::ALL_LANES);
///             both.consumer().release();
///             both.advance();
///         }
///         sum
///     }
/// });
/// assert_eq!(sums, [28; 32]);
/// ```
#[derive(Clone, Copy)]
pub struct ProducerConsumer<const STAGES: u32> {
    consumer: Consumer<STAGES>,
}

/// A stage that a consumer has not released yet, wherever its handle stands. It has to be released, once.
///
/// ```
/// # use blocks::{examples::ring, ring::*};
/// # use cuda_std::{examples::run, prelude::*};
/// // Sums of neighbouring stages: a stage is released when the one after it has been read, too.
/// let sums = run(64, || {
///     static NUMBERS: Shared<[u32; 2 * 32]> = Shared::new();
///     let lane = thread::index() % 32;
///     // SAFETY: the lanes meet before they commit and release.
///     unsafe {
///         let ring = ring::<2>(1, 1);
///         if thread::index() < 32 {
///             for step in 0..4 {
///                 let producer = ring.producer_after(step);
///                 producer.acquire();
///                 NUMBERS.write(producer.stage() as usize * 32 + lane, 1 << step);
///                 warp::sync_warp(warp::ALL_LANES);
///                 producer.commit();
///             }
///             return [0; 3];
///         }
///         let mut consumer = ring.consumer();
///         let read = |consumer: Consumer<2>| NUMBERS.read(consumer.stage() as usize * 32 + 31 - lane);
///         consumer.wait();
///         [(); 3].map(|()| {
///             let mut sum = read(consumer);
///             let before: Unreleased = consumer.advance_holding();
///             consumer.wait();
///             sum += read(consumer);
///             warp::sync_warp(warp::ALL_LANES);
///             before.release();
///             sum
///         })
///     }
/// });
/// assert_eq!(sums[32..], [[0b11, 0b110, 0b1100]; 32]);
/// ```
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
    ///
    /// ```
    /// # use blocks::{ring::*, shared_layout::*};
    /// let mut layout = SharedLayout::new();
    /// // Of each stage one that says it is full, and one that says it is empty.
    /// assert_eq!(Ring::<3>::barriers(&mut layout).len(), 6);
    /// ```
    pub const fn barriers(layout: &mut SharedLayout) -> SharedArray<u64> {
        layout.array(2 * STAGES)
    }

    /// The ring with these barriers.
    ///
    /// ```
    /// # use blocks::{ring::*, shared_layout::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// const BARRIERS: SharedArray<u64> = Ring::<2>::barriers(&mut SharedLayout::new());
    /// let read = run(32, || {
    ///     static NUMBERS: Shared<[u32; 2 * 32]> = Shared::new();
    ///     let lane = thread::index();
    ///     // SAFETY: the barriers are inside of the dynamic shared memory, and nothing else uses them; the warp fills a stage, and reads it.
    ///     unsafe {
    ///         let ring = Ring::<2>::new(BARRIERS);
    ///         if lane == 0 {
    ///             ring.init(1, 1);
    ///         }
    ///         thread::sync_threads();
    ///         NUMBERS.write(lane, lane as u32);
    ///         warp::sync_warp(warp::ALL_LANES);
    ///         ring.producer().commit();
    ///         ring.consumer().wait();
    ///         NUMBERS.read(31 - lane)
    ///     }
    /// });
    /// assert_eq!((read[0], read[31]), (31, 0));
    /// ```
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
    /// ```
    /// # use blocks::{ring::*, shared_layout::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// const BARRIERS: SharedArray<u64> = Ring::<2>::barriers(&mut SharedLayout::new());
    /// let sums = run(96, || {
    ///     static NUMBERS: Shared<[u32; 96]> = Shared::new();
    ///     let t = thread::index();
    ///     // SAFETY: one thread initializes the barriers before the block meets; one warp reads a stage, and two fill it.
    ///     unsafe {
    ///         let ring = Ring::<2>::new(BARRIERS);
    ///         if t == 0 {
    ///             ring.init(2, 1); // the warps that fill a stage together, and those that read it
    ///         }
    ///         thread::sync_threads();
    ///         if t < 32 {
    ///             ring.consumer().wait();
    ///             return (32..96).map(|i| NUMBERS.read(i)).sum();
    ///         }
    ///         ring.producer().acquire();
    ///         NUMBERS.write(t, 1);
    ///         warp::sync_warp(warp::ALL_LANES);
    ///         ring.producer().commit();
    ///         0
    ///     }
    /// });
    /// assert_eq!(sums[..32], [64; 32]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // The first round: both stages are empty, and `acquire` returns at once.
    /// let stages = run(32, || {
    ///     // SAFETY: the warp fills each stage once.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         let mut producer = ring.producer();
    ///         [(); 2].map(|()| {
    ///             producer.acquire();
    ///             producer.commit(); // of what the warp has written to this stage
    ///             let stage = producer.stage();
    ///             producer.advance();
    ///             stage
    ///         })
    ///     }
    /// });
    /// assert_eq!(stages, [[0, 1]; 32]);
    /// ```
    #[inline(always)]
    pub fn producer(&self) -> Producer<STAGES> {
        Producer { ring: *self, position: Position::START }
    }

    /// The producer's handle after so many stages: for a role that counts them anyway.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // A warp that counts the steps, and fills and reads stages itself.
    /// let read = run(32, || {
    ///     static NUMBERS: Shared<[u32; 2 * 32]> = Shared::new();
    ///     let lane = thread::index();
    ///     // SAFETY: the lanes meet before they commit and release.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         [0, 1, 2, 3, 4].map(|step| {
    ///             let (producer, consumer) = (ring.producer_after(step), ring.consumer_after(step));
    ///             producer.acquire();
    ///             NUMBERS.write(producer.stage() as usize * 32 + lane, 10 * step + producer.stage());
    ///             warp::sync_warp(warp::ALL_LANES);
    ///             producer.commit();
    ///             consumer.wait();
    ///             let read = NUMBERS.read(consumer.stage() as usize * 32 + 31 - lane);
    ///             warp::sync_warp(warp::ALL_LANES);
    ///             consumer.release();
    ///             read
    ///         })
    ///     }
    /// });
    /// assert_eq!(read[0], [0, 11, 20, 31, 40]);
    /// ```
    #[inline(always)]
    pub fn producer_after(&self, steps: u32) -> Producer<STAGES> {
        Producer { ring: *self, position: Position::after::<STAGES>(steps) }
    }

    /// The consumer's handle, before the first stage.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let read = run(64, || {
    ///     static MAIL: Shared<[u32; 2]> = Shared::new();
    ///     // SAFETY: the first warp fills a stage, and the second one reads it.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         if thread::index() < 32 {
    ///             if warp::lane_id() == 0 {
    ///                 MAIL.write(ring.producer().stage() as usize, 42);
    ///             }
    ///             warp::sync_warp(warp::ALL_LANES);
    ///             ring.producer().commit();
    ///             return 0;
    ///         }
    ///         let consumer = ring.consumer();
    ///         consumer.wait();
    ///         MAIL.read(consumer.stage() as usize)
    ///     }
    /// });
    /// assert_eq!(read[32..], [42; 32]);
    /// ```
    #[inline(always)]
    pub fn consumer(&self) -> Consumer<STAGES> {
        Consumer { ring: *self, position: Position::START }
    }

    /// The consumer's handle after so many stages.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(32, || {
    ///     // SAFETY: the warp fills three stages and reads each before the next.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         [0, 1, 2].map(|step| {
    ///             ring.producer_after(step).acquire();
    ///             ring.producer_after(step).commit();
    ///             let consumer = ring.consumer_after(step);
    ///             consumer.wait(); // of step 2 for the second phase of stage 0
    ///             consumer.release();
    ///             consumer.stage()
    ///         })
    ///     }
    /// });
    /// assert_eq!(stages, [[0, 1, 0]; 32]);
    /// ```
    #[inline(always)]
    pub fn consumer_after(&self, steps: u32) -> Consumer<STAGES> {
        Consumer { ring: *self, position: Position::after::<STAGES>(steps) }
    }

    /// The handle of a warp with both roles, before the first stage.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let both = ring::<3>(1, 1).producer_consumer();
    ///     // It reads step 0, and the next to be filled would be step 1, were not all stages filled at the beginning.
    ///     (both.consumer().stage(), both.producer_ahead().stage())
    /// });
    /// assert_eq!(stages, [(0, 1)]);
    /// ```
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
