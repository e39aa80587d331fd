//! Values that are the same in all lanes of a warp, and numbers that are read anew rather than kept in registers.

use cuda_std::prelude::*;

/// A value that is the same in all lanes, taken from the first of them, so that the assembler knows that it is, and keeps it in a
/// uniform register.
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
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
pub unsafe fn warp_number() -> u32 {
    // SAFETY: the caller's promise.
    unsafe { uniform(thread::thread_idx_x() / warp::LANES) }
}

/// The number of this thread in its one-dimensional block, read anew: what is computed from it is computed again where it is
/// needed, instead of taking registers all the time.
#[inline(always)]
pub fn this_thread() -> u32 {
    let mut thread = [thread::thread_idx_x()];
    hint::pin(&mut thread);
    thread[0]
}
