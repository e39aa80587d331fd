//! The OR of a word over all threads of a block: what any of them has found.
//!
//! ```text
//!  every thread   ─ found ─►  vote of its warp ─►  one word for each warp, in shared memory
//!                                                      │ barrier
//!                                                      ▼
//!  every thread that waits    ◄───────────────────  OR of all words
//! ```

use cuda_std::prelude::*;

use crate::named_barrier::NamedBarrier;
use crate::shared_layout::{SharedArray, SharedLayout};
use crate::uniform::this_thread;

/// A block-wide OR of the lowest `BITS` bits of a word, over a block of `THREADS` threads whose warps have roles: some of them only say what they
/// have found and go on, the others also wait for what all have found.
#[derive(Clone, Copy)]
pub struct BlockOr<const THREADS: u32, const BITS: u32> {
    words: SharedSlice<u32>,
    barrier: NamedBarrier<THREADS>,
}

impl<const THREADS: u32, const BITS: u32> BlockOr<THREADS, BITS> {
    /// Adds the words of shared memory that it takes to a kernel's layout: one for each warp.
    pub const fn words(layout: &mut SharedLayout) -> SharedArray<u32> {
        layout.array(THREADS / warp::LANES)
    }

    /// The OR over these words.
    ///
    /// # Safety
    /// As for [`SharedArray::slice`]; the words are those of [`BlockOr::words`], and nothing else uses them or the barrier.
    #[inline(always)]
    pub unsafe fn new(words: SharedArray<u32>, barrier: NamedBarrier<THREADS>) -> Self {
        // SAFETY: the caller's promise.
        Self { words: unsafe { words.slice() }, barrier }
    }

    /// Says what the threads of a warp have found.
    ///
    /// # Safety
    /// Each warp of the block comes once, with all its lanes, here or to [`BlockOr::arrive_and_wait`].
    #[inline(always)]
    pub unsafe fn arrive(self, found: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            self.write(found);
            self.barrier.arrive();
        }
    }

    /// Says what the threads of a warp have found, and returns what those of any warp have.
    ///
    /// # Safety
    /// As for [`BlockOr::arrive`].
    #[inline(always)]
    pub unsafe fn arrive_and_wait(self, found: u32) -> u32 {
        // SAFETY: every warp has written its word before it came to the barrier, and none writes after.
        unsafe {
            self.write(found);
            self.barrier.sync();
            let mut any = 0;
            for warp in 0..self.words.len() {
                any |= self.words.read(warp);
            }
            any
        }
    }

    /// Writes the word of a warp.
    ///
    /// # Safety
    /// As for [`BlockOr::arrive`].
    #[inline(always)]
    unsafe fn write(self, found: u32) {
        // SAFETY: one lane of each warp writes its element.
        unsafe {
            let word = or_of_warp::<BITS>(found);
            if warp::lane_id() == 0 {
                self.words.write((thread::thread_idx_x() / warp::LANES) as usize, word);
            }
        }
    }
}

/// The size of a kernel's blocks, of one dimension.
pub trait BlockSize {
    /// The threads of a block: whole warps.
    const THREADS: u32;
}

/// The OR of the lowest `BITS` bits of a word over all threads of the block, which have no roles. The first elements of `memory`, one for each warp,
/// are overwritten; what they hold is whatever the block has left there.
///
/// # Safety
/// All threads of a block of `B` call this function together, with as many elements of `memory` as warps, and none has asynchronous
/// copies under way to them.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn or_of_threads<B: BlockSize, const BITS: u32>(memory: &SharedSlice<f32>, found: u32) -> u32 {
    let thread = this_thread();
    // SAFETY: all lanes come here. One lane of each warp writes, to an element of its own; barriers separate that from
    // what the elements held before, and from the reads.
    unsafe {
        let word = or_of_warp::<BITS>(found);
        thread::sync_threads();
        if thread.is_multiple_of(warp::LANES) {
            memory.write((thread / warp::LANES) as usize, f32::from_bits(word));
        }
        thread::sync_threads();
        let mut any = 0;
        for warp in 0..B::THREADS / warp::LANES {
            any |= memory.read(warp as usize).to_bits();
        }
        any
    }
}

/// The OR of the lowest `BITS` bits of a word over all lanes of a warp.
///
/// # Safety
/// All lanes call this function together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn or_of_warp<const BITS: u32>(found: u32) -> u32 {
    let mut word = 0;
    for bit in 0..BITS {
        // SAFETY: the caller's promise.
        if unsafe { warp::warp_vote_any(warp::ALL_LANES, found & 1 << bit != 0) } {
            word |= 1 << bit;
        }
    }
    word
}
