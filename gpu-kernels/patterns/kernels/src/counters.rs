//! Counters in a block's shared memory, for histograms: of each counter there are COPIES copies, and thread t adds to copy t mod COPIES, so that
//! the lanes of a warp seldom meet at a bank. A counter's value is the sum of its copies.
//!
//! ```text
//!  COPIES = 16      bank 0   1   2   …   15 │ 16  17  …   31
//!  counter 0, 1          l₀  l₁  l₂  …  l₁₅ │ l₀  l₁  …  l₁₅        lanes 0 and 16 have copy 0 of each counter, and so on
//!  counter 2, 3          l₀  l₁  l₂  …  l₁₅ │ l₀  l₁  …  l₁₅
//! ```
//!
//! With one copy, 32 lanes that count different things at random meet at some bank three or four times; with 16 copies, twice at most, and
//! that many copies do not cost a multiprocessor its threads. Where all lanes count the same, the hardware adds up those that are at one
//! place.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::row::FOUR;
use crate::words::{get4, is_aligned};

/// `COUNTERS` counters at the beginning of the dynamic shared memory of a block.
#[derive(Clone, Copy)]
pub(crate) struct Counters<const COUNTERS: usize, const COPIES: usize> {
    copies: SharedSlice<u32>,
}

impl<const COUNTERS: usize, const COPIES: usize> Counters<COUNTERS, COPIES> {
    /// The bytes of dynamic shared memory that they take.
    pub(crate) const BYTES: u32 = (COUNTERS * COPIES * size_of::<u32>()) as u32;

    /// Counters at zero.
    ///
    /// # Safety
    /// All threads of a one-dimensional block come here together, with that much dynamic shared memory, which nobody accesses otherwise.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        const { assert!((COUNTERS * COPIES).is_multiple_of(FOUR), "whole vectors") };
        // SAFETY: the caller's promise; a vector has one writer, and the barrier is between that and what others do.
        unsafe {
            let copies = dynamic_shared::<u32>(0, COUNTERS * COPIES);
            let mut place = thread::thread_idx_x() as usize * FOUR;
            while place < COUNTERS * COPIES {
                copies.write_vector(place, [0; FOUR]);
                place += thread::block_dim_x() as usize * FOUR;
            }
            thread::sync_threads();
            Self { copies }
        }
    }

    /// Counts one more.
    ///
    /// # Safety
    /// The counter is below `COUNTERS`; no sum was asked for yet.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn add_one(self, counter: usize) {
        let copy = thread::thread_idx_x() as usize % COPIES;
        // SAFETY: inside, by the caller's promise; until then all accesses are atomic.
        unsafe { self.copies.atomic(counter * COPIES + copy) }.fetch_add(1, Relaxed, Scope::Block);
    }

    /// What a counter has come to.
    ///
    /// # Safety
    /// The counter is below `COUNTERS`. A barrier of the block is between the last addition and this.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn sum(self, counter: usize) -> u32 {
        let mut sum = 0;
        for copy in 0..COPIES {
            // Each lane begins at a bank of its own.
            let copy = (copy + thread::thread_idx_x() as usize) % COPIES;
            // SAFETY: inside, and behind the barrier, by the caller's promise.
            sum += unsafe { self.copies.read(counter * COPIES + copy) };
        }
        sum
    }
}

/// Hands each of some words to one thread of a one-dimensional grid.
#[inline(always)]
pub(crate) fn for_each_word(words: GlobalSlice<'_, u32>, of_word: impl Fn(u32)) {
    /// The vectors that a thread loads at once.
    const VECTORS: usize = 2;
    let by_vectors = is_aligned(words.as_ptr().addr());
    let step = thread::grid_dim_x() as usize * thread::block_dim_x() as usize * FOUR;
    let mut index = thread::index_1d() * FOUR;
    while index < words.len() {
        // Both loads are under way before the first word is handed over.
        let is_whole = |vector: usize| by_vectors && index + vector * step + FOUR <= words.len();
        let vectors: [[u32; FOUR]; VECTORS] = core::array::from_fn(|vector| {
            if is_whole(vector) {
                // SAFETY: all four are inside, and begin at a multiple of four of what is aligned.
                unsafe { get4(words, index + vector * step) }
            } else {
                [0; FOUR]
            }
        });
        for vector in 0..VECTORS {
            for i in 0..FOUR {
                if is_whole(vector) {
                    of_word(vectors[vector][i]);
                } else if let Some(word) = words.get(index + vector * step + i) {
                    of_word(word);
                }
            }
        }
        index += VECTORS * step;
    }
}
