//! The 32 threads that execute together: lane numbers, shuffles, votes, matches, reductions and the warp's own barrier.
//!
//! All functions here but [`lane_id`] and [`active_mask`] are carried out by several lanes together: those that `mask` names, bit `i` standing
//! for lane `i`. Each lane waits until all of them have called the same function with the same mask; lanes that have
//! returned from the kernel are not waited for. On the CPU the executor reports lanes that never come.
//!
//! A shuffle moves a value between lanes. `width` divides the warp into segments: 32, 16, 8, 4, 2 or 1 lanes that keep to
//! themselves. Where the source would lie outside the lane's own segment, the lane keeps its value and is told `false`:
//!
//! ```text
//! lane                         0 1 2 3 │ 4 5 6 7        warp_shuffle_down(ALL_LANES, lane, 1, 4)
//! value received               1 2 3 3 │ 5 6 7 7
//! whether it is another's      t t t f │ t t t f
//! ```
//!
//! What a lane receives from a lane that does not take part, because it has returned, the mask does not name it or the block does not
//! have it, is undefined; the executor on the CPU reports it.
//!
//! Only [`sync_warp`] orders accesses to memory. A shuffle, a vote, a match or a reduction does not, although lanes wait for each other
//! there.

mod matching;
mod reduce;

use crate::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::WarpOperation;

pub use matching::{match_all, match_any};
pub use reduce::{Reduced, reduce_add, reduce_and, reduce_max, reduce_min, reduce_or, reduce_xor};

/// The number of lanes of a warp.
pub const LANES: u32 = 32;

/// The mask that names all lanes.
pub const ALL_LANES: u32 = u32::MAX;

/// This thread's lane in its warp, 0 to 31.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// let lanes = run(64, || warp::lane_id());
/// assert_eq!((lanes[31], lanes[32], lanes[63]), (31, 0, 31));
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn lane_id() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let lane: u32;
        // SAFETY: reading a special register has no preconditions, and there are 32 lanes.
        unsafe {
            core::arch::asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack, preserves_flags));
            // The compiler does not know what the register holds; divisions and masks become shorter where it does.
            core::hint::assert_unchecked(lane < LANES);
        }
        lane
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::lane()
    }
}

/// The mask of lanes that execute this instruction together with this one, at this moment (`activemask`).
///
/// It names this lane, and none that has returned; it promises nothing else. Which lanes execute an instruction together is decided by
/// compiler and GPU: of the lanes that take one branch it may name some, and they need not be together any more on the next line. So it
/// is no mask for "all lanes that come here": that has to be known from what lanes compute, or asked for before the branch by
/// [`warp_vote_ballot`].
///
/// On the CPU lanes run one after the other, and it names the calling lane alone; with all checks and a seed of the schedule other than 0
/// ([`Executor::schedule`](crate::executor::Executor::schedule)) it names the lanes that come to the same call, or some of them, as the seed
/// decides. What is right whatever the mask is, as where lanes that happen to be together let one of them add for all, is right with both;
/// what relies on other lanes is reported ([`FaultKind::InactiveLane`](crate::executor::FaultKind::InactiveLane),
/// [`WarpDivergence`](crate::executor::FaultKind::WarpDivergence)), or gets another result.
///
/// ```
/// # use tilewright_cuda_std::{examples::run_over, prelude::*};
/// let mut counter = [0];
/// run_over(64, &mut counter, |counter: GlobalAtomics<'_, u32>| {
///     // One addition for all lanes that are here together.
///     let mask = warp::active_mask();
///     if warp::lane_id() == mask.trailing_zeros() {
///         counter.get(0)?.fetch_add(mask.count_ones(), atomic::Relaxed, atomic::Scope::Device);
///     }
///     Some(())
/// });
/// assert_eq!(counter, [64]);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn active_mask() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: it has no preconditions.
    unsafe {
        intrinsic::active_mask()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::active_mask(core::panic::Location::caller())
    }
}

/// Waits until all lanes in `mask` have come here (`bar.warp.sync`). What they wrote to memory before, all of them see
/// after.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, prelude::*};
/// let neighbours = run(32, || {
///     static TILE: Shared<[u32; 32]> = Shared::new();
///     let lane = warp::lane_id();
///     // SAFETY: all lanes come here together; that separates the writes from the reads.
///     unsafe {
///         TILE.write(lane as usize, lane);
///         warp::sync_warp(warp::ALL_LANES);
///         TILE.read((lane as usize + 1) % 32)
///     }
/// });
/// assert_eq!((neighbours[0], neighbours[31]), (1, 0));
/// ```
///
/// # Safety
/// `mask` names the calling lane, and every lane that it names and that has not returned calls this function with the same
/// mask. (The executor on the CPU reports it if not.)
#[inline(always)]
#[track_caller]
pub unsafe fn sync_warp(mask: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::bar_warp_sync(mask);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::sync_warp(mask);
}

/// Where a lane takes its value from in a shuffle.
#[derive(Clone, Copy)]
pub(crate) enum Shuffle {
    /// A number of lanes below.
    Up,
    /// A number of lanes above.
    Down,
    /// The lane with some bits flipped.
    Xor,
    /// A lane by its number in the segment.
    Idx,
}

/// The lane whose value `lane` receives in a shuffle, and whether it is within reach, from the operands `b` and `c` of
/// `shfl.sync`, as the PTX ISA defines it: `c` has the clamp value in bits 0 to 4 and the segment mask in bits 8 to 12.
#[inline(always)]
pub(crate) fn source_lane(shuffle: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = ((b & 31) as i32, (c & 31) as i32, (c >> 8 & 31) as i32);
    let lane = lane as i32;
    let min_lane = lane & segment;
    let max_lane = min_lane | clamp & !segment;
    let (source, inside) = match shuffle {
        Shuffle::Up => (lane - b, lane - b >= max_lane),
        Shuffle::Down => (lane + b, lane + b <= max_lane),
        Shuffle::Xor => (lane ^ b, lane ^ b <= max_lane),
        Shuffle::Idx => (min_lane | b & !segment, min_lane | b & !segment <= max_lane),
    };
    (if inside { source } else { lane } as u32, inside)
}

/// LLVM's intrinsics, as `core::arch::nvptx` declares its own. Inline assembly would not do: LLVM may copy it into the
/// branches of a condition, where the lanes would no longer meet. Of an intrinsic it knows better (`convergent`).
#[cfg(target_arch = "nvptx64")]
mod intrinsic {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.activemask"]
        pub(super) fn active_mask() -> u32;
        #[link_name = "llvm.nvvm.bar.warp.sync"]
        pub(super) fn bar_warp_sync(mask: u32);
        #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
        pub(super) fn shfl_up(mask: u32, value: u32, b: u32, c: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
        pub(super) fn shfl_down(mask: u32, value: u32, b: u32, c: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
        pub(super) fn shfl_bfly(mask: u32, value: u32, b: u32, c: u32) -> u32;
        #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
        pub(super) fn shfl_idx(mask: u32, value: u32, b: u32, c: u32) -> u32;
        #[link_name = "llvm.nvvm.vote.all.sync"]
        pub(super) fn vote_all(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.any.sync"]
        pub(super) fn vote_any(mask: u32, predicate: bool) -> bool;
        #[link_name = "llvm.nvvm.vote.ballot.sync"]
        pub(super) fn vote_ballot(mask: u32, predicate: bool) -> u32;
    }
}

macro_rules! shuffles {
    ($($name:ident, $operand:ident, $mode:literal, $intrinsic:ident, $shuffle:ident, $operation:ident, $example:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        #[doc = concat!("`shfl.sync.", $mode, ".b32`, twice for a value of 8 bytes.")]
        ///
        /// ```
        /// # use tilewright_cuda_std::{examples::run, warp};
        /// // SAFETY: all lanes come here together.
        #[doc = concat!(
            "let received = run(32, || unsafe { warp::", stringify!($name), "(warp::ALL_LANES, warp::lane_id(), 1, 32) });"
        )]
        #[doc = concat!("assert_eq!((received[0], received[31]), ", $example, ");")]
        /// ```
        ///
        /// # Panics
        /// On the CPU, if `width` is not 1, 2, 4, 8, 16 or 32; on the GPU the result is then undefined.
        ///
        /// # Safety
        /// `mask` names the calling lane, and every lane that it names and that has not returned calls this function with
        /// the same mask. (The executor on the CPU reports it if not.)
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Element>(mask: u32, value: T, $operand: u32, width: u32) -> (T, bool) {
            const { require_shuffled::<T>() };
            let c = shuffle_operand(Shuffle::$shuffle, width);
            #[cfg(target_arch = "nvptx64")]
            {
                let (_, inside) = source_lane(Shuffle::$shuffle, lane_id(), $operand, c);
                // SAFETY: the caller's promise is the instruction's condition.
                let shuffle = |word| unsafe { intrinsic::$intrinsic(mask, word, $operand, c) };
                let bits = to_bits(value);
                let low = shuffle(bits as u32);
                let high = if size_of::<T>() == 8 { shuffle((bits >> 32) as u32) } else { 0 };
                (from_bits(u64::from(high) << 32 | u64::from(low)), inside)
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let (operation, location) = (WarpOperation::$operation, core::panic::Location::caller());
                crate::executor::trace_out(&value, "a value for other lanes", location);
                let (bits, inside) =
                    crate::executor::shuffle(operation, mask, size_of::<T>(), to_bits(value), $operand, c);
                let value: T = from_bits(bits);
                crate::executor::trace_in(&value, location);
                (value, inside)
            }
        }
    )* };
}

shuffles! {
    warp_shuffle_down, delta, "down", shfl_down, Down, ShuffleDown, "((1, true), (31, false))",
        "The value of the lane `delta` above this one (`delta` modulo 32), and whether that lane is in this one's segment.";
    warp_shuffle_up, delta, "up", shfl_up, Up, ShuffleUp, "((0, false), (30, true))",
        "The value of the lane `delta` below this one (`delta` modulo 32), and whether that lane is in this one's segment.";
    warp_shuffle_xor, lane_mask, "bfly", shfl_bfly, Xor, ShuffleXor, "((1, true), (30, true))",
        "The value of the lane whose number is this one's with the bits of `lane_mask` flipped, and whether that lane is in \
         this one's segment or in one below.";
    warp_shuffle_idx, lane, "idx", shfl_idx, Idx, ShuffleIdx, "((1, true), (1, true))",
        "The value of lane `lane`, modulo `width`, of this lane's segment, and `true`.";
}

/// The operand `c` of `shfl.sync` for segments of `width` lanes.
#[inline(always)]
#[track_caller]
fn shuffle_operand(shuffle: Shuffle, width: u32) -> u32 {
    #[cfg(not(target_arch = "nvptx64"))]
    assert!(
        width.is_power_of_two() && width <= LANES,
        "the width of a shuffle is 1, 2, 4, 8, 16 or 32; this one has {width}"
    );
    let clamp = if matches!(shuffle, Shuffle::Up) { 0 } else { 31 };
    LANES.wrapping_sub(width) << 8 | clamp
}

/// Whether `predicate` is true in all lanes in `mask` that have not returned (`vote.sync.all`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// let below = |bound| {
///     // SAFETY: all lanes come here together.
///     run(32, || unsafe { warp::warp_vote_all(warp::ALL_LANES, warp::lane_id() < bound) })
/// };
/// assert_eq!(below(32), [true; 32]);
/// assert_eq!(below(31), [false; 32]);
/// ```
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::vote_all(mask, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteAll, mask, predicate) != 0
    }
}

/// Whether `predicate` is true in any of the lanes in `mask` that have not returned (`vote.sync.any`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// let is_there = |lane| {
///     // SAFETY: all lanes come here together.
///     run(32, || unsafe { warp::warp_vote_any(warp::ALL_LANES, warp::lane_id() == lane) })
/// };
/// assert_eq!(is_there(7), [true; 32]);
/// assert_eq!(is_there(32), [false; 32]);
/// ```
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::vote_any(mask, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteAny, mask, predicate) != 0
    }
}

/// The mask of the lanes in `mask` that have not returned and in which `predicate` is true (`vote.sync.ballot`).
///
/// ```
/// # use tilewright_cuda_std::{examples::run, warp};
/// // SAFETY: all lanes come here together.
/// let masks = run(32, || unsafe { warp::warp_vote_ballot(warp::ALL_LANES, warp::lane_id() % 4 == 0) });
/// assert_eq!(masks, [0x1111_1111; 32]);
/// ```
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition.
    unsafe {
        intrinsic::vote_ballot(mask, predicate)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteBallot, mask, predicate)
    }
}

/// Does not compile unless a shuffle can exchange such values.
const fn require_shuffled<T: Element>() {
    assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8), "a shuffle exchanges values of 1, 2, 4 or 8 bytes");
}

/// The bits of a value of 1, 2, 4 or 8 bytes.
#[inline(always)]
fn to_bits<T: Element>(value: T) -> u64 {
    const { require_shuffled::<T>() };
    // SAFETY: an element has no padding, so it can be read as a number of its size.
    unsafe {
        match size_of::<T>() {
            1 => core::mem::transmute_copy::<T, u8>(&value).into(),
            2 => core::mem::transmute_copy::<T, u16>(&value).into(),
            4 => core::mem::transmute_copy::<T, u32>(&value).into(),
            _ => core::mem::transmute_copy::<T, u64>(&value),
        }
    }
}

/// The value with these bits, of which a value of less than 8 bytes takes the low ones.
#[inline(always)]
fn from_bits<T: Element>(bits: u64) -> T {
    // SAFETY: an element has one of these sizes, as `to_bits` demands, and every pattern of bits is a value of it.
    unsafe {
        match size_of::<T>() {
            1 => core::mem::transmute_copy::<u8, T>(&(bits as u8)),
            2 => core::mem::transmute_copy::<u16, T>(&(bits as u16)),
            4 => core::mem::transmute_copy::<u32, T>(&(bits as u32)),
            _ => core::mem::transmute_copy::<u64, T>(&bits),
        }
    }
}
