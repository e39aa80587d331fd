//! What a role does that fills stages.

use cuda_std::hopper;
use cuda_std::prelude::*;

use super::{Producer, TmaStage};

impl<const STAGES: u32> Producer<STAGES> {
    /// The number of the next stage.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let mut producer = ring::<3>(1, 1).producer();
    ///     [(); 4].map(|()| {
    ///         let stage = producer.stage();
    ///         producer.advance();
    ///         stage
    ///     })
    /// });
    /// assert_eq!(stages, [[0, 1, 2, 0]]);
    /// ```
    #[inline(always)]
    pub fn stage(&self) -> u32 {
        self.position.stage
    }

    /// Waits until the next stage is empty: at once in the first round. CUTLASS's `producer_acquire`.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // A ring of one stage: the second `acquire` waits until the other warp has released it.
    /// let read = run(64, || {
    ///     static MAIL: Shared<[u32; 1]> = Shared::new();
    ///     // SAFETY: one lane writes and reads, and a warp commits or releases behind that.
    ///     unsafe {
    ///         let ring = ring::<1>(1, 1);
    ///         if thread::index() < 32 {
    ///             for (number, producer) in [(7, ring.producer()), (8, ring.producer_after(1))] {
    ///                 producer.acquire();
    ///                 if warp::lane_id() == 0 {
    ///                     MAIL.write(0, number);
    ///                 }
    ///                 warp::sync_warp(warp::ALL_LANES);
    ///                 producer.commit();
    ///             }
    ///             return [0; 2];
    ///         }
    ///         [ring.consumer(), ring.consumer_after(1)].map(|consumer| {
    ///             consumer.wait();
    ///             let number = if warp::lane_id() == 0 { MAIL.read(0) } else { 0 };
    ///             warp::sync_warp(warp::ALL_LANES);
    ///             consumer.release();
    ///             number
    ///         })
    ///     }
    /// });
    /// assert_eq!(read[32], [7, 8]);
    /// ```
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
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// // Without the meeting of the lanes, what the others have written might not be there yet when one of them arrives: a race is reported.
    /// let read = run(64, || {
    ///     static NUMBERS: Shared<[u32; 32]> = Shared::new();
    ///     let lane = thread::index() % 32;
    ///     // SAFETY: the first warp commits what all of its lanes have written.
    ///     unsafe {
    ///         let ring = ring::<2>(1, 1);
    ///         if thread::index() < 32 {
    ///             ring.producer().acquire();
    ///             NUMBERS.write(lane, lane as u32);
    ///             warp::sync_warp(warp::ALL_LANES);
    ///             ring.producer().commit();
    ///             return 0;
    ///         }
    ///         ring.consumer().wait();
    ///         NUMBERS.read(31 - lane)
    ///     }
    /// });
    /// assert_eq!((read[32], read[63]), (31, 0));
    /// ```
    ///
    /// # Safety
    /// All lanes of the warp come here together, once after each [`Producer::acquire`] and what they have written after it. One of them arrives
    /// for all: they have met ([`sync_warp`](warp::sync_warp)) since they wrote.
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
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, hopper, prelude::*};
    /// let mut x = [1.5; 256];
    /// let read = run_over(32, &mut x, |Matrix { map, .. }: Matrix<'_>| {
    ///     // SAFETY: one lane asks for a tile, and all wait for it.
    ///     unsafe {
    ///         let (tile, ring) = (dynamic_shared::<f32>(1024, 512), ring::<2>(1, 1));
    ///         let producer = ring.producer();
    ///         producer.acquire();
    ///         if hopper::elect_one() {
    ///             let stage = producer.tma_stage(); // in place of `commit`: TMA arrives when the tile has come
    ///             stage.commit_bytes(1024);
    ///             stage.load_tile(tile, 0, map, [0, 0, 0]);
    ///         }
    ///         ring.consumer().wait();
    ///         tile.read(8 * thread::index())
    ///     }
    /// });
    /// assert_eq!(read, [1.5; 32]);
    /// ```
    #[inline(always)]
    pub fn tma_stage(&self) -> TmaStage {
        TmaStage { full: self.ring.full(self.position.stage) }
    }

    /// On to the stage after the next.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// let stages = run(1, || {
    ///     let mut producer = ring::<2>(1, 1).producer();
    ///     producer.advance();
    ///     let second = producer.stage();
    ///     producer.advance();
    ///     [second, producer.stage()]
    /// });
    /// assert_eq!(stages, [[1, 0]]);
    /// ```
    #[inline(always)]
    pub fn advance(&mut self) {
        self.position.advance::<STAGES>();
    }
}

impl TmaStage {
    /// Commits the stage before it is filled: it is full when `bytes` bytes have come. CUTLASS has that in its
    /// `producer_acquire`.
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, hopper, prelude::*};
    /// let mut x = Vec::from_iter((0..512).map(|i| i as f32));
    /// let read = run_over(32, &mut x, |Matrix { map, .. }: Matrix<'_>| {
    ///     // SAFETY: one lane asks for two tiles, which have the bytes that it has committed, and all wait for them.
    ///     unsafe {
    ///         let (tiles, ring) = (dynamic_shared::<f32>(1024, 512), ring::<2>(1, 1));
    ///         if hopper::elect_one() {
    ///             let stage = ring.producer().tma_stage();
    ///             stage.commit_bytes(2 * 1024); // once, for all loads to the stage
    ///             stage.load_tile(tiles, 0, map, [0, 0, 0]);
    ///             stage.load_tile(tiles, 256, map, [0, 8, 0]);
    ///         }
    ///         ring.consumer().wait();
    ///         [tiles.read(0), tiles.read(511)]
    ///     }
    /// });
    /// assert_eq!(read, [[0.0, 511.0]; 32]);
    /// ```
    ///
    /// # Safety
    /// One lane calls this, once after each [`Producer::acquire`]; TMA loads of exactly so many bytes follow, by
    /// [`TmaStage::load_tile`] and [`TmaStage::load_pixels`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn commit_bytes(self, bytes: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.full.arrive_expecting(bytes) }
    }

    /// Issues a TMA load to the stage, whose first byte goes to element `index` of `memory`: see [`hopper::load_tile`].
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::{Matrix, run_over}, hopper, prelude::*};
    /// let mut x = Vec::from_iter((0..512).map(|i| i as f32));
    /// let read = run_over(32, &mut x, |Matrix { map, .. }: Matrix<'_>| {
    ///     // SAFETY: one lane asks for a tile of as many bytes as it has committed, and all wait for it.
    ///     unsafe {
    ///         let (tile, ring) = (dynamic_shared::<f32>(1024, 512), ring::<2>(1, 1));
    ///         if hopper::elect_one() {
    ///             let stage = ring.producer().tma_stage();
    ///             stage.commit_bytes(1024);
    ///             stage.load_tile(tile, 0, map, [4, 10, 0]); // from column 4 and row 10 on
    ///         }
    ///         ring.consumer().wait();
    ///         [tile.read(0), tile.read(31)]
    ///     }
    /// });
    /// assert_eq!(read, [[324.0, 0.0]; 32], "row 10, column 4, and zeros beyond the last column");
    /// ```
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

    /// Issues a TMA load of pixels to the stage, likewise: see [`hopper::load_pixels`].
    ///
    /// ```
    /// # use blocks::{examples::ring, ring::*};
    /// # use cuda_std::{examples::{Images, run_over}, hopper, prelude::*};
    /// let mut x = Vec::from_iter((0..128).map(|i| i as f32));
    /// let read = run_over(32, &mut x, |Images { map, .. }: Images<'_>| {
    ///     // SAFETY: one lane asks for pixels of as many bytes as it has committed, and all wait for them.
    ///     unsafe {
    ///         let (pixels, ring) = (dynamic_shared::<f32>(1024, 128), ring::<2>(1, 1));
    ///         if hopper::elect_one() {
    ///             let stage = ring.producer().tma_stage();
    ///             stage.commit_bytes(512);
    ///             stage.load_pixels(pixels, 0, map, [0, 0, 1, 0], [1, 2]); // a column and two rows further than column 0 of row 1
    ///         }
    ///         ring.consumer().wait();
    ///         pixels.read(0)
    ///     }
    /// });
    /// assert_eq!(read, [104.0; 32], "column 1 of row 3");
    /// ```
    ///
    /// # Safety
    /// As for [`hopper::load_pixels`]; the target is inside the stage, which has been acquired, and [`TmaStage::commit_bytes`]
    /// counts the bytes.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_pixels(
        self,
        memory: SharedSlice<f32>,
        index: usize,
        map: ImageMap<'_>,
        at: [u32; 4],
        tap: [u16; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe { hopper::load_pixels(memory, index, map, at, tap, self.full) }
    }
}
