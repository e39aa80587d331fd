//! Which lanes of a warp have the same value.

use super::{require_shuffled, to_bits};
use crate::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::WarpOperation;

/// LLVM's intrinsics, as those of the module above.
#[cfg(target_arch = "nvptx64")]
mod intrinsic {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.match.any.sync.i32"]
        pub(super) fn match_any_32(mask: u32, value: u32) -> u32;
        #[link_name = "llvm.nvvm.match.any.sync.i64"]
        pub(super) fn match_any_64(mask: u32, value: u64) -> u32;
    }

    // Two results: no calling convention of C has them as LLVM does.
    #[allow(improper_ctypes, reason = "LLVM's own, which is no function of C")]
    unsafe extern "unadjusted" {
        #[link_name = "llvm.nvvm.match.all.sync.i32p"]
        pub(super) fn match_all_32(mask: u32, value: u32) -> (u32, bool);
        #[link_name = "llvm.nvvm.match.all.sync.i64p"]
        pub(super) fn match_all_64(mask: u32, value: u64) -> (u32, bool);
    }
}

/// The mask of the lanes in `mask` that have not returned and have the same value as this one: this lane is one of them
/// (`match.any.sync`, from compute capability 7.0 on).
///
/// Values are the same if their bits are: 0.0 and −0.0 are not, and a NaN is the same as another one with its bits.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// // SAFETY: all lanes come here together.
/// let masks = run(32, || unsafe { warp::match_any(warp::ALL_LANES, warp::lane_id() % 4) });
/// assert_eq!(masks[..5], [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888, 0x1111_1111]);
/// // SAFETY: all lanes come here together.
/// let masks = run(2, || unsafe { warp::match_any(0b11, if warp::lane_id() == 0 { 0.0 } else { -0.0f32 }) });
/// assert_eq!(masks, [0b01, 0b10]);
/// ```
///
/// # Safety
/// `mask` names the calling lane, and every lane that it names and that has not returned calls this function with the same mask, and a
/// value of as many bits. (The executor on the CPU reports it if not.)
#[inline(always)]
#[track_caller]
pub unsafe fn match_any<T: Element>(mask: u32, value: T) -> u32 {
    const { require_shuffled::<T>() };
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        match size_of::<T>() {
            8 => intrinsic::match_any_64(mask, to_bits(value)),
            _ => intrinsic::match_any_32(mask, to_bits(value) as u32),
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::matched(WarpOperation::MatchAny, mask, size_of::<T>(), to_bits(value))
    }
}

/// Whether all lanes in `mask` that have not returned have the same value (`match.all.sync`, from compute capability 7.0 on), as
/// [`match_any`] compares values.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// let same = |divisor| {
///     // SAFETY: all lanes come here together.
///     run(32, || unsafe { warp::match_all(warp::ALL_LANES, warp::lane_id() / divisor) })
/// };
/// assert_eq!(same(32), [true; 32]);
/// assert_eq!(same(31), [false; 32]);
/// ```
///
/// # Safety
/// As for [`match_any`].
#[inline(always)]
#[track_caller]
pub unsafe fn match_all<T: Element>(mask: u32, value: T) -> bool {
    const { require_shuffled::<T>() };
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        match size_of::<T>() {
            8 => intrinsic::match_all_64(mask, to_bits(value)).1,
            _ => intrinsic::match_all_32(mask, to_bits(value) as u32).1,
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::matched(WarpOperation::MatchAll, mask, size_of::<T>(), to_bits(value)) != 0
    }
}
