//! Copies from global to shared memory that go on while the thread does something else (`cp.async`, sm_80).
//!
//! ```text
//! copy_async::<4, _>(tile, i, data, j, 4);   ┐ any number of copies …
//! commit_group();                            ┘ … make a group
//! …                                            arithmetic, while the data arrives
//! wait_group::<0>();                           this thread's own copies have arrived, and this thread sees them
//! thread::sync_threads();                      so have those of all other threads, and all see them
//! ```
//!
//! No register holds the data on its way. On the CPU a copy takes place at the wait that covers it and no earlier, so that a
//! read of its target before that is reported, as is a thread that returns without having waited.

use crate::{Element, GlobalSlice, SharedSlice};

/// Issues a copy of `count` elements, from element `from` of `source` on, to the `N` elements from `to` on of `target`. Those
/// of the `N` that are left, from `count` on, become zero; with a `count` of zero `source` is not read at all.
///
/// `cp.async.ca.shared.global` for 4 or 8 bytes, and `cp.async.cg.shared.global` for 16, which goes past the L1 cache; each
/// with the size of the source as the last operand. sm_80.
///
/// ```
/// # use tilewright_cuda_std::{async_copy::*, examples::run_over, prelude::*};
/// let mut x = [1.0; 32];
/// let values = run_over(32, &mut x, |x: GlobalSlice<'_, f32>| {
///     let t = thread::index();
///     // SAFETY: inside of the slice and of the dynamic shared memory; a thread reads what it has itself copied, behind the wait.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 32);
///         // Half of the threads copy an element, the others fill in a zero.
///         copy_async::<1, _>(&tile, t, &x, t, u32::from(t < 16));
///         commit_group();
///         wait_group::<0>();
///         tile.read(t)
///     }
/// });
/// assert_eq!((values[15], values[16]), (1.0, 0.0));
/// ```
///
/// # Panics
/// On the CPU, if `count > N`.
///
/// # Safety
/// - `count <= N`, and `from + count <= source.len()`, unless `count` is zero.
/// - `to + N <= target.len()`.
/// - The addresses of both are multiples of the size of `N` elements.
/// - No other thread accesses the target between this call and a barrier after the [`wait_group`] that covers the copy, nor
///   without a barrier before this call; nor does this thread before that wait.
/// - Before it returns, the thread waits for the copy.
///
/// (All of this is checked on the CPU.)
#[inline(always)]
#[track_caller]
pub unsafe fn copy_async<const N: usize, T: Element>(
    target: &SharedSlice<T>,
    to: usize,
    source: &GlobalSlice<'_, T>,
    from: usize,
    count: u32,
) {
    const { assert!(matches!(N * size_of::<T>(), 4 | 8 | 16), "an asynchronous copy has 4, 8 or 16 bytes") };
    #[cfg(target_arch = "nvptx64")]
    {
        let (target, source) = (target.shared_address(to), source.as_ptr().wrapping_add(from));
        let bytes = count * size_of::<T>() as u32;
        // SAFETY: both are in bounds and aligned, and nobody else accesses the target, by the caller's promise. The
        // instruction reads no more than `bytes` bytes of the source.
        unsafe {
            match N * size_of::<T>() {
                4 => core::arch::asm!(
                    "cp.async.ca.shared.global [{target}], [{source}], 4, {bytes};",
                    target = in(reg32) target, source = in(reg64) source, bytes = in(reg32) bytes,
                    options(nostack, preserves_flags),
                ),
                8 => core::arch::asm!(
                    "cp.async.ca.shared.global [{target}], [{source}], 8, {bytes};",
                    target = in(reg32) target, source = in(reg64) source, bytes = in(reg32) bytes,
                    options(nostack, preserves_flags),
                ),
                _ => core::arch::asm!(
                    "cp.async.cg.shared.global [{target}], [{source}], 16, {bytes};",
                    target = in(reg32) target, source = in(reg64) source, bytes = in(reg32) bytes,
                    options(nostack, preserves_flags),
                ),
            }
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let (count, bytes) = (count as usize, N * size_of::<T>());
        let from = crate::executor::change_index("copy-async-from", from, N);
        let to = crate::executor::change_index("copy-async-to", to, N);
        assert!(count <= N, "a copy of {N} elements cannot take {count} from its source");
        if count > 0 && (from >= source.len() || count > source.len() - from) {
            crate::executor::out_of_bounds(source.as_ptr(), source.len(), from, count);
        }
        let address = source.as_ptr().wrapping_add(from);
        if !address.addr().is_multiple_of(bytes) {
            crate::executor::misaligned(source.as_ptr(), source.len(), from, bytes);
        }
        crate::executor::copy_to_shared(address.cast(), count * size_of::<T>(), target.place(), to, bytes);
    }
}

/// Makes a group of all copies that this thread has issued since the last group; it may be empty (`cp.async.commit_group`,
/// sm_80).
///
/// ```
/// # use tilewright_cuda_std::{async_copy::*, examples::run_over, prelude::*};
/// let mut x = [1.0, 2.0];
/// let sums = run_over(1, &mut x, |x: GlobalSlice<'_, f32>| {
///     // SAFETY: inside of the slice and of the dynamic shared memory, and there is one thread.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 2);
///         copy_async::<1, _>(&tile, 0, &x, 0, 1);
///         copy_async::<1, _>(&tile, 1, &x, 1, 1);
///         commit_group(); // both
///         wait_group::<0>();
///         tile.read(0) + tile.read(1)
///     }
/// });
/// assert_eq!(sums, [3.0]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn commit_group() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the instruction has no preconditions. It touches memory as far as the compiler is concerned, so that it stays
    // between the copies.
    unsafe {
        core::arch::asm!("cp.async.commit_group;", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::commit_copies();
}

/// Waits until all groups of this thread but the `LATEST` most recent ones have arrived (`cp.async.wait_group`, sm_80). This
/// thread then sees what they have written; others see it after a barrier.
///
/// ```
/// # use tilewright_cuda_std::{async_copy::*, examples::run_over, prelude::*};
/// let mut x = [1.0, 2.0];
/// let values = run_over(1, &mut x, |x: GlobalSlice<'_, f32>| {
///     // SAFETY: inside of the slice and of the dynamic shared memory, and there is one thread.
///     unsafe {
///         let tile = dynamic_shared::<f32>(0, 2);
///         copy_async::<1, _>(&tile, 0, &x, 0, 1);
///         commit_group();
///         copy_async::<1, _>(&tile, 1, &x, 1, 1);
///         commit_group();
///         wait_group::<1>(); // for the first group: the second may still be under way
///         let first = tile.read(0);
///         wait_group::<0>();
///         (first, tile.read(1))
///     }
/// });
/// assert_eq!(values, [(1.0, 2.0)]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn wait_group<const LATEST: u32>() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: as for `commit_group`: the reads that follow stay behind it.
    unsafe {
        core::arch::asm!("cp.async.wait_group {latest};", latest = const LATEST, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::wait_for_copies(LATEST.into());
}
