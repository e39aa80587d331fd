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
///
/// ```
/// use blocks::block_or::BlockOr;
/// use blocks::named_barrier::{NamedBarrier, NamedBarrierIds};
/// use blocks::shared_layout::{SharedArray, SharedLayout};
/// use cuda_std::executor::{Checks, Executor};
/// use cuda_std::prelude::*;
///
/// struct Memory {
///     words: SharedArray<u32>,
///     bytes: u32,
///     barrier: NamedBarrier<96>,
/// }
///
/// const MEMORY: Memory = {
///     let mut layout = SharedLayout::new();
///     // SAFETY: the only value of this kind in the kernel.
///     let mut ids = unsafe { NamedBarrierIds::new() };
///     let words = BlockOr::<96, 2>::words(&mut layout);
///     Memory { words, bytes: layout.bytes(), barrier: ids.group::<1, 96>().at(0) }
/// };
///
/// /// Two warps look at numbers, and the third one says what they have found: bit 0 a NaN, bit 1 an infinity.
/// #[kernel(block = 96, dynamic_shared = MEMORY.bytes, requires(x.len() == 64, found.len() == 1))]
/// fn look(x: GlobalSlice<'_, f32>, found: GlobalSliceMut<'_, u32>) {
///     let t = thread::thread_idx_x();
///     // SAFETY: the launch has as much memory, each warp comes to one of the two, and one thread writes.
///     unsafe {
///         let all = BlockOr::<96, 2>::new(MEMORY.words, MEMORY.barrier);
///         if t < 64 {
///             let x = x.get_unchecked(t as usize);
///             all.arrive(u32::from(x.is_nan()) | u32::from(x.is_infinite()) << 1);
///         } else {
///             let any = all.arrive_and_wait(0);
///             if t == 64 {
///                 found.set_unchecked(0, any);
///             }
///         }
///     }
/// }
///
/// let (mut x, mut found) = ([1.0; 64], [9]);
/// x[50] = f32::INFINITY;
/// let arguments = look { x: GlobalSlice::new(&x), found: GlobalSliceMut::new(&mut found) };
/// // SAFETY: the views are of arrays of this program.
/// unsafe { Executor::new(Checks::Full).launch(arguments, Dim3::from(1)) }?;
/// assert_eq!(found, [0b10]);
/// # Ok::<(), cuda_std::executor::LaunchError>(())
/// ```
#[derive(Clone, Copy)]
pub struct BlockOr<const THREADS: u32, const BITS: u32> {
    words: SharedSlice<u32>,
    barrier: NamedBarrier<THREADS>,
}

impl<const THREADS: u32, const BITS: u32> BlockOr<THREADS, BITS> {
    /// Adds the words of shared memory that it takes to a kernel's layout: one for each warp.
    ///
    /// ```
    /// # use blocks::{block_or::*, shared_layout::*};
    /// let mut layout = SharedLayout::new();
    /// assert_eq!(BlockOr::<256, 3>::words(&mut layout).len(), 8); // a block of 256 has eight warps
    /// ```
    pub const fn words(layout: &mut SharedLayout) -> SharedArray<u32> {
        layout.array(THREADS / warp::LANES)
    }

    /// The OR over these words.
    ///
    /// ```
    /// # use blocks::{block_or::*, named_barrier::*, shared_layout::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// const WORDS: SharedArray<u32> = BlockOr::<64, 1>::words(&mut SharedLayout::new());
    /// const BARRIER: NamedBarrier<64> = {
    ///     // SAFETY: the only value of this kind in the kernel.
    ///     let mut ids = unsafe { NamedBarrierIds::new() };
    ///     ids.group::<1, 64>().at(0)
    /// };
    /// let found = run(64, || {
    ///     // SAFETY: the words are inside of the dynamic shared memory, and nothing else uses them or the barrier; each warp comes once.
    ///     unsafe {
    ///         let any = BlockOr::<64, 1>::new(WORDS, BARRIER);
    ///         any.arrive_and_wait(u32::from(thread::thread_idx_x() == 40))
    ///     }
    /// });
    /// assert_eq!(found, [1; 64]);
    /// ```
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
    /// ```
    /// # use blocks::{block_or::*, named_barrier::*, shared_layout::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// # const WORDS: SharedArray<u32> = BlockOr::<64, 1>::words(&mut SharedLayout::new());
    /// # const BARRIER: NamedBarrier<64> = {
    /// #     // SAFETY: the only value of this kind in the kernel.
    /// #     let mut ids = unsafe { NamedBarrierIds::new() };
    /// #     ids.group::<1, 64>().at(0)
    /// # };
    /// let found = run(64, || {
    ///     let t = thread::thread_idx_x();
    ///     // SAFETY: as for `BlockOr::new`; the first warp comes here, and the other one waits.
    ///     unsafe {
    ///         let any = BlockOr::<64, 1>::new(WORDS, BARRIER);
    ///         if t < 32 {
    ///             any.arrive(u32::from(t == 17)); // and on to something else
    ///             return 0;
    ///         }
    ///         any.arrive_and_wait(0)
    ///     }
    /// });
    /// assert_eq!(found[32..], [1; 32]);
    /// ```
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
    /// ```
    /// # use blocks::{block_or::*, named_barrier::*, shared_layout::*};
    /// # use cuda_std::{examples::run, prelude::*};
    /// # const WORDS: SharedArray<u32> = BlockOr::<96, 2>::words(&mut SharedLayout::new());
    /// # const BARRIER: NamedBarrier<96> = {
    /// #     // SAFETY: the only value of this kind in the kernel.
    /// #     let mut ids = unsafe { NamedBarrierIds::new() };
    /// #     ids.group::<1, 96>().at(0)
    /// # };
    /// // The lowest two bits of what two threads of different warps have found; a third one is not asked for.
    /// let found = run(96, || {
    ///     let found = [(3, 0b001), (40, 0b010), (95, 0b100)];
    ///     let own = found.iter().find(|(thread, _)| *thread == thread::thread_idx_x()).map_or(0, |(_, found)| *found);
    ///     // SAFETY: as for `BlockOr::new`; each warp comes once.
    ///     unsafe { BlockOr::<96, 2>::new(WORDS, BARRIER).arrive_and_wait(own) }
    /// });
    /// assert_eq!(found, [0b011; 96]);
    /// ```
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
///
/// ```
/// # use blocks::block_or::*;
/// # use cuda_std::{examples::run, prelude::*};
/// /// The blocks of a kernel: `#[kernel(block = Block::THREADS, …)]`.
/// struct Block;
///
/// impl BlockSize for Block {
///     const THREADS: u32 = 128;
/// }
///
/// let found = run(Block::THREADS, || {
///     // SAFETY: all threads come here, and nothing else uses the memory, which has an element for each of the four warps.
///     unsafe { or_of_threads::<Block, 1>(&dynamic_shared(0, 4), u32::from(thread::thread_idx_x() == 100)) }
/// });
/// assert_eq!(found, [1; 128]);
/// ```
pub trait BlockSize {
    /// The threads of a block: whole warps.
    const THREADS: u32;
}

/// The OR of the lowest `BITS` bits of a word over all threads of the block, which have no roles. The first elements of `memory`, one for each warp,
/// are overwritten; what they hold is whatever the block has left there.
///
/// ```
/// # use blocks::block_or::*;
/// # use cuda_std::{examples::run, prelude::*};
/// # struct Block;
/// # impl BlockSize for Block {
/// #     const THREADS: u32 = 64;
/// # }
/// /// Whether any number of a tile is negative. When all have read it, the tile is room for the words.
/// fn any_negative(x: f32) -> bool {
///     // SAFETY: all threads of the block come here, and the tile is inside of the dynamic shared memory.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 64);
///         tile.write(thread::index(), x);
///         thread::sync_threads();
///         let other = tile.read(63 - thread::index());
///         or_of_threads::<Block, 1>(&tile, u32::from(other < 0.0)) != 0
///     }
/// }
///
/// let (none, one) = (run(64, || any_negative(1.0)), run(64, || any_negative(thread::index() as f32 - 0.5)));
/// assert_eq!((none, one), (vec![false; 64], vec![true; 64]));
/// ```
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
/// ```
/// # use blocks::block_or::*;
/// # use cuda_std::{examples::run, prelude::*};
/// // Lane 5 of each of two warps has found something else.
/// let found = run(64, || {
///     let own = if warp::lane_id() == 5 { 1 + thread::thread_idx_x() / 32 } else { 0 };
///     // SAFETY: all lanes come here.
///     unsafe { or_of_warp::<2>(own) }
/// });
/// assert_eq!((found[0], found[63]), (1, 2));
/// ```
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
