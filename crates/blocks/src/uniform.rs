//! Values that are the same in all lanes of a warp, and numbers that are read anew rather than kept in registers.

use cuda_std::prelude::*;

/// A value that is the same in all lanes, taken from the first of them, so that the assembler knows that it is, and keeps it in a
/// uniform register.
///
/// ```
/// # use blocks::uniform::*;
/// # use cuda_std::{examples::run, prelude::*};
/// // SAFETY: all lanes of both warps come here.
/// let first = run(64, || unsafe { uniform(thread::thread_idx_x()) });
/// assert_eq!((first[31], first[63]), (0, 32));
/// ```
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
pub unsafe fn uniform(value: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { warp::warp_shuffle_idx(warp::ALL_LANES, value, 0, 32).0 }
}

/// The number of this warp in its one-dimensional block. Every call computes it anew, for a role that should not keep it in a
/// register.
///
/// ```
/// # use blocks::uniform::*;
/// # use cuda_std::{examples::run, prelude::*};
/// // The first warp loads, the others multiply, each its own rows.
/// let rows = run(96, || {
///     // SAFETY: all lanes come here.
///     match unsafe { warp_number() } {
///         0 => None,
///         warp => Some(16 * (warp - 1)),
///     }
/// });
/// assert_eq!([rows[31], rows[32], rows[95]], [None, Some(0), Some(16)]);
/// ```
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
pub unsafe fn warp_number() -> u32 {
    // SAFETY: the caller's promise.
    unsafe { uniform(thread::thread_idx_x() / warp::LANES) }
}

/// The number of this thread in its one-dimensional block, read anew: what is computed from it is computed again where it is
/// needed, instead of taking registers all the time.
///
/// ```
/// # use blocks::uniform::*;
/// # use cuda_std::{examples::run, prelude::*};
/// let own = run(64, || {
///     let mut sum = 0;
///     for step in 0..4 {
///         // `4 * this_thread()` takes no register from one step to the next.
///         sum += 4 * this_thread() + step;
///     }
///     sum
/// });
/// assert_eq!(own[63], 4 * 4 * 63 + 6);
/// ```
#[inline(always)]
pub fn this_thread() -> u32 {
    let mut thread = [thread::thread_idx_x()];
    hint::pin(&mut thread);
    thread[0]
}
