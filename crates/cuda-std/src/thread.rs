//! Which thread this is, how many there are, clocks, and the barrier of a block.

macro_rules! coordinates {
    ($($name:ident, $register:ident, $context:ident, $axis:ident, $last:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        /// ```
        /// # use tilewright_cuda_std::{examples::run_grid, thread};
        /// // A grid of 2×3×4 blocks of 8×6×5 threads.
        #[doc = concat!("let values = run_grid((2, 3, 4), (8, 6, 5), || thread::", stringify!($name), "());")]
        #[doc = concat!("assert_eq!(values.last(), Some(&", $last, "));")]
        /// ```
        #[inline(always)]
        pub fn $name() -> u32 {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: reading a special register has no preconditions.
            unsafe {
                core::arch::nvptx::$register() as u32
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                crate::executor::$context().$axis
            }
        }
    )* };
}

coordinates! {
    thread_idx_x, _thread_idx_x, thread_idx, x, 7, "The x coordinate of this thread in its block.";
    thread_idx_y, _thread_idx_y, thread_idx, y, 5, "The y coordinate of this thread in its block.";
    thread_idx_z, _thread_idx_z, thread_idx, z, 4, "The z coordinate of this thread in its block.";
    block_idx_x, _block_idx_x, block_idx, x, 1, "The x coordinate of this block in the grid.";
    block_idx_y, _block_idx_y, block_idx, y, 2, "The y coordinate of this block in the grid.";
    block_idx_z, _block_idx_z, block_idx, z, 3, "The z coordinate of this block in the grid.";
    block_dim_x, _block_dim_x, block_dim, x, 8, "The x extent of a block, in threads.";
    block_dim_y, _block_dim_y, block_dim, y, 6, "The y extent of a block, in threads.";
    block_dim_z, _block_dim_z, block_dim, z, 5, "The z extent of a block, in threads.";
    grid_dim_x, _grid_dim_x, grid_dim, x, 2, "The x extent of the grid, in blocks.";
    grid_dim_y, _grid_dim_y, grid_dim, y, 3, "The y extent of the grid, in blocks.";
    grid_dim_z, _grid_dim_z, grid_dim, z, 4, "The z extent of the grid, in blocks.";
}

/// [`grid_dim_x`], read where this stands: at the end of a long loop that goes from tile to tile, it takes no register before.
///
/// ```
/// # use tilewright_cuda_std::{examples::run_grid, thread};
/// let values = run_grid(5, 32, || thread::grid_dim_x_anew());
/// assert_eq!(values, [5; 160]);
/// ```
#[inline(always)]
pub fn grid_dim_x_anew() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let extent: u32;
        // SAFETY: reading a special register has no preconditions. Not `pure`, so it is not moved out of loops.
        unsafe {
            core::arch::asm!("mov.u32 {}, %nctaid.x;", out(reg32) extent, options(nomem, nostack, preserves_flags));
        }
        extent
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        grid_dim_x()
    }
}

/// The position of this thread among all threads of a one-dimensional grid. 64 bits wide, unlike rust-cuda's, whose 32 wrap
/// in a grid of more than 2³² threads.
///
/// ```
/// # use tilewright_cuda_std::{examples::run_grid, thread};
/// // Three blocks of 32 threads.
/// let values = run_grid(3, 32, || thread::index_1d());
/// assert_eq!(values, Vec::from_iter(0..96));
/// ```
#[inline(always)]
pub fn index_1d() -> usize {
    block_idx_x() as usize * block_dim_x() as usize + thread_idx_x() as usize
}

/// The position of this thread among all threads of the grid, x running fastest: its block's number times the threads of a block, plus its
/// number in the block. No two threads have the same.
///
/// ```
/// # use tilewright_cuda_std::{examples::run_grid, thread};
/// // Two blocks of 4×2 threads.
/// let values = run_grid(2, (4, 2), || {
///     (thread::block_idx_x(), thread::thread_idx_y(), thread::thread_idx_x(), thread::index())
/// });
/// assert!(values.contains(&(1, 1, 3, 15)));
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn index() -> usize {
    let block = (block_idx_z() as usize * grid_dim_y() as usize + block_idx_y() as usize) * grid_dim_x() as usize
        + block_idx_x() as usize;
    let in_block = (thread_idx_z() * block_dim_y() + thread_idx_y()) * block_dim_x() + thread_idx_x();
    block * threads_of_block() as usize + in_block as usize
}

/// The number of threads of the grid.
///
/// ```
/// # use tilewright_cuda_std::{examples::run_grid, thread};
/// let values = run_grid((2, 3), (4, 2), || thread::count());
/// assert_eq!(values, [48; 48]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn count() -> usize {
    let blocks = grid_dim_x() as usize * grid_dim_y() as usize * grid_dim_z() as usize;
    blocks * threads_of_block() as usize
}

#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn threads_of_block() -> u32 {
    block_dim_x() * block_dim_y() * block_dim_z()
}

macro_rules! clocks {
    ($($name:ident, $kind:ty, $move:literal, $class:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        /// It is read where this stands, behind the loads and stores before and ahead of those that follow, as far as the compiler is
        /// concerned. On the CPU it is a counter that each thread has for itself: it starts at 0, and each time that the thread reads any of
        /// these clocks it is one more. So a difference is positive on both, and says how long something takes on a GPU only.
        ///
        /// ```
        /// # use tilewright_cuda_std::{examples::run, math, thread};
        /// let took = run(32, || {
        #[doc = concat!("    let begin = thread::", stringify!($name), "();")]
        ///     let root = math::sqrt(2.0);
        #[doc = concat!("    (thread::", stringify!($name), "().wrapping_sub(begin), root)")]
        /// });
        /// assert!(took.iter().all(|(time, _)| *time > 0));
        /// ```
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub fn $name() -> $kind {
            #[cfg(target_arch = "nvptx64")]
            {
                let now: $kind;
                // SAFETY: reading a special register has no preconditions. Neither `pure` nor `nomem`, so that it stays where it is.
                unsafe {
                    core::arch::asm!($move, out($class) now, options(nostack, preserves_flags));
                }
                now
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                crate::executor::clock() as $kind
            }
        }
    )* };
}

clocks! {
    clock, u32, "mov.u32 {}, %clock;", reg32,
    "The clock cycles of this thread's multiprocessor, the lower 32 bits (`%clock`): it wraps around after some seconds.";
    clock64, u64, "mov.u64 {}, %clock64;", reg64, "The clock cycles of this thread's multiprocessor (`%clock64`).";
    globaltimer, u64, "mov.u64 {}, %globaltimer;", reg64,
    "The time in nanoseconds, one clock for the whole GPU (`%globaltimer`). It goes on in steps of up to about a microsecond.";
}

/// Waits until all threads of the block have come here (`bar.sync 0`). What they wrote to shared and global memory before,
/// all of them see after.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, prelude::*};
/// let reversed = run(64, || {
///     static TILE: Shared<[u32; 64]> = Shared::new();
///     let t = thread::index();
///     // SAFETY: all threads reach the barrier, which separates the writes from the reads.
///     unsafe {
///         TILE.write(t, (t * t) as u32);
///         thread::sync_threads();
///         TILE.read(63 - t)
///     }
/// });
/// assert_eq!((reversed[0], reversed[63]), (63 * 63, 0));
/// ```
///
/// # Safety
/// All threads of the block reach the same calls in the same order: the call does not stand in a branch that only some of
/// them take, and none has returned before.
///
/// The executor on the CPU reports a barrier that some threads of the block never reach, and threads of one warp that wait
/// at different calls, by file, line and column. Two things it does not report. Threads of different warps may wait at
/// different calls: to the hardware that is one barrier. And threads of one warp that come to the same call in different
/// rounds of a loop, or by different calls of a function around it, are not told apart, although the compiler may have
/// made several instructions of the call.
#[inline(always)]
#[track_caller]
pub unsafe fn sync_threads() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        core::arch::nvptx::_syncthreads();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::barrier(crate::executor::BlockOperation::Sync, false);
}

/// LLVM's intrinsics, for the reason that [`warp`](crate::warp) has.
#[cfg(target_arch = "nvptx64")]
mod intrinsic {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
        pub(super) fn barrier_count(barrier: u32, predicate: bool) -> u32;
        #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.all"]
        pub(super) fn barrier_and(barrier: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
        pub(super) fn barrier_or(barrier: u32, predicate: bool) -> bool;
    }
}

/// Waits as [`sync_threads`] does, and says in how many threads of the block `predicate` is true (`bar.red.popc 0`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, thread};
/// // SAFETY: all threads reach the barrier.
/// let counts = run(96, || unsafe { thread::sync_threads_count(thread::index() % 3 == 0) });
/// assert_eq!(counts, [32; 96]);
/// ```
///
/// # Safety
/// As for [`sync_threads`]; and all threads of the block come to one barrier by the same function, whichever call it is: not some by this
/// one and others by [`sync_threads`] or by another one of those that vote. (The executor on the CPU reports it if not.)
#[inline(always)]
#[track_caller]
pub unsafe fn sync_threads_count(predicate: bool) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::barrier_count(0, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::barrier(crate::executor::BlockOperation::SyncCount, predicate)
    }
}

/// Waits as [`sync_threads`] does, and says whether `predicate` is true in all threads of the block (`bar.red.and 0`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, thread};
/// let below = |bound| {
///     // SAFETY: all threads reach the barrier.
///     run(96, || unsafe { thread::sync_threads_and(thread::index() < bound) })
/// };
/// assert_eq!(below(96), [true; 96]);
/// assert_eq!(below(95), [false; 96]);
/// ```
///
/// # Safety
/// As for [`sync_threads_count`].
#[inline(always)]
#[track_caller]
pub unsafe fn sync_threads_and(predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::barrier_and(0, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::barrier(crate::executor::BlockOperation::SyncAnd, predicate) != 0
    }
}

/// Waits as [`sync_threads`] does, and says whether `predicate` is true in any thread of the block (`bar.red.or 0`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, thread};
/// let is_there = |number| {
///     // SAFETY: all threads reach the barrier.
///     run(96, || unsafe { thread::sync_threads_or(thread::index() == number) })
/// };
/// assert_eq!(is_there(95), [true; 96]);
/// assert_eq!(is_there(96), [false; 96]);
/// ```
///
/// # Safety
/// As for [`sync_threads_count`].
#[inline(always)]
#[track_caller]
pub unsafe fn sync_threads_or(predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::barrier_or(0, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::barrier(crate::executor::BlockOperation::SyncOr, predicate) != 0
    }
}
