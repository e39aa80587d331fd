//! What a role does that reads stages, or fills them, too.

use cuda_std::hopper;

use super::{Consumer, Position, Producer, ProducerConsumer, Unreleased};

impl<const STAGES: u32> Consumer<STAGES> {
    /// The number of the next stage.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let ring = ring::<2>(1, 1);
    ///     [0, 1, 2, 3].map(|step| ring.consumer_after(step).stage())
    /// });
    /// assert_eq!(stages, [[0, 1, 0, 1]]);
    /// ```
    #[inline(always)]
    pub fn stage(&self) -> u32 {
        self.position.stage
    }

    /// Waits until the next stage is full. CUTLASS's `consumer_wait`.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let read = run(64, || {
    ///     static MAIL: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: the first warp fills a stage, and the second one waits for it.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         if thread::index() >= 32 {
    ///             ring.consumer().wait();
    ///             return MAIL.read(0);
    ///         }
    ///         if warp::lane_id() == 0 {
    ///             MAIL.write(0, 42);
    ///         }
    ///         warp::sync_warp(warp::ALL_LANES);
    ///         ring.producer().commit();
    ///         0
    ///     }
    /// });
    /// assert_eq!(read[32..], [42; 32]);
    /// ```
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
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // A ring of one stage, which the first warp fills twice: the second time behind the release.
    /// let read = run(64, || {
    ///     static NUMBERS: Shared<[u32; 32]> = Shared::new();
    ///     let lane = thread::index() % 32;
    ///     // SAFETY: the lanes meet before they commit and release.
    ///     unsafe {
    ///         let ring = ring::<1>(1, 1);
    ///         if thread::index() < 32 {
    ///             for step in 0..2 {
    ///                 ring.producer_after(step).acquire();
    ///                 NUMBERS.write(lane, step);
    ///                 warp::sync_warp(warp::ALL_LANES);
    ///                 ring.producer_after(step).commit();
    ///             }
    ///             return [0; 2];
    ///         }
    ///         [0, 1].map(|step| {
    ///             ring.consumer_after(step).wait();
    ///             let read = NUMBERS.read(31 - lane);
    ///             warp::sync_warp(warp::ALL_LANES); // all lanes have read: one arrives for all of them
    ///             ring.consumer_after(step).release();
    ///             read
    ///         })
    ///     }
    /// });
    /// assert_eq!(read[32..], [[0, 1]; 32]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let mut consumer = ring::<2>(1, 1).consumer();
    ///     consumer.advance();
    ///     let second = consumer.stage();
    ///     consumer.advance();
    ///     [second, consumer.stage()]
    /// });
    /// assert_eq!(stages, [[1, 0]]);
    /// ```
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position.advance::<STAGES>();
    }

    /// On to the stage after the next. The result is the one before, to be released when what reads it has finished.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(32, || {
    ///     // SAFETY: the warp fills both stages, waits for both, and releases both.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         let mut consumer = ring.consumer();
    ///         [0, 1].map(|step| ring.producer_after(step).commit());
    ///         consumer.wait();
    ///         // Asynchronous products of the first stage begin here …
    ///         let first = consumer.advance_holding();
    ///         consumer.wait();
    ///         // … and those of the second here; when the first ones have finished, nobody reads their stage any more.
    ///         first.release();
    ///         let second = consumer.advance_holding();
    ///         second.release();
    ///         ring.producer_after(2).acquire();
    ///         ring.producer_after(3).acquire();
    ///         consumer.stage()
    ///     }
    /// });
    /// assert_eq!(stages, [0; 32]);
    /// ```
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
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// run(32, || {
    ///     // SAFETY: the warp fills and reads the only stage.
    ///     unsafe {
    ///         let ring = ring::<1>(1, 1);
    ///         ring.producer().commit();
    ///         let mut consumer = ring.consumer();
    ///         consumer.wait();
    ///         let stage = consumer.advance_holding();
    ///         stage.release();
    ///         ring.producer_after(1).acquire(); // without the release it would never end, and be reported
    ///     }
    /// });
    /// ```
    ///
    /// # Safety
    /// All lanes of a consumer's warp come here together, once for each stage. What they had read of it they have, and
    /// asynchronous products that read it have finished. One of them arrives for all: where lanes have read it themselves, they have met
    /// ([`sync_warp`](cuda_std::warp::sync_warp)) since.
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
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let mut both = ring::<3>(1, 1).producer_consumer();
    ///     let first = both.consumer().stage();
    ///     both.advance();
    ///     [first, both.consumer().stage()]
    /// });
    /// assert_eq!(stages, [[0, 1]]);
    /// ```
    #[inline(always)]
    pub fn consumer(&self) -> Consumer<STAGES> {
        self.consumer
    }

    /// The role that fills, `STAGES - 2` steps ahead of the one that reads: it comes to the stage of the step before the last.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // In a ring of four: at step 2 it fills stage 0 for step 4, at step 3 stage 1 for step 5, and so on.
    /// let stages = run(1, || {
    ///     let mut both = ring::<4>(1, 1).producer_consumer();
    ///     both.advance();
    ///     [(); 4].map(|()| {
    ///         both.advance();
    ///         both.producer_ahead().stage()
    ///     })
    /// });
    /// assert_eq!(stages, [[0, 1, 2, 3]]);
    /// ```
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
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let mut both = ring::<3>(1, 1).producer_consumer();
    ///     [(); 4].map(|()| {
    ///         let stage = both.consumer().stage();
    ///         both.advance();
    ///         stage
    ///     })
    /// });
    /// assert_eq!(stages, [[0, 1, 2, 0]]);
    /// ```
    #[inline(always)]
    pub fn advance(&mut self) {
        self.consumer.advance();
    }
}
