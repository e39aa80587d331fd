//! The 32 threads that execute together: lane numbers, shuffles, votes and the warp's own barrier.
//!
//! All functions here but [`lane_id`] are carried out by several lanes together: those that `mask` names, bit `i` standing
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
//! What a lane receives from a lane that does not take part is undefined; on the CPU it is a NaN.
//!
//! Only [`sync_warp`] orders accesses to memory. A shuffle or a vote does not, although lanes wait for each other there.

use crate::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::WarpOperation;

/// The number of lanes of a warp.
pub const LANES: u32 = 32;

/// The mask that names all lanes.
pub const ALL_LANES: u32 = u32::MAX;

/// This thread's lane in its warp, 0 to 31.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn lane_id() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let lane: u32;
        // SAFETY: reading a special register has no preconditions.
        unsafe {
            core::arch::asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack, preserves_flags))
        };
        lane
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::lane()
    }
}

/// Waits until all lanes in `mask` have come here (`bar.warp.sync`). What they wrote to memory before, all of them see
/// after.
///
/// # Safety
/// `mask` names the calling lane, and every lane that it names and that has not returned calls this function with the same
/// mask. (The executor on the CPU reports it if not.)
#[inline(always)]
#[track_caller]
pub unsafe fn sync_warp(mask: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise is the instruction's condition. Memory counts as changed: the assembly is not `nomem`.
    unsafe {
        core::arch::asm!("bar.warp.sync {mask};", mask = in(reg32) mask, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::executor::sync_warp(mask);
}

macro_rules! shuffles {
    ($($name:ident, $operand:ident, $mode:literal, $operation:ident, $clamp:literal, $doc:literal;)*) => { $(
        #[doc = $doc]
        ///
        #[doc = concat!("`shfl.sync.", $mode, ".b32`, twice for a value of 8 bytes.")]
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
            #[cfg(target_arch = "nvptx64")]
            {
                // The clamp in bits 0 to 4, and in bits 8 to 12 the bits of a lane's number that are the same for all
                // lanes of its segment.
                let c = LANES.wrapping_sub(width) << 8 | $clamp;
                shuffle_words(value, |word| {
                    let (received, inside): (u32, u32);
                    // SAFETY: the caller's promise is the instruction's condition. The braces make the predicate's name
                    // local to this copy of the text. The instruction must stay where it is, so it is not `pure`.
                    unsafe {
                        core::arch::asm!(
                            "{{",
                            ".reg .pred inside;",
                            concat!("shfl.sync.", $mode, ".b32 {received}|inside, {word}, {b}, {c}, {mask};"),
                            "selp.u32 {inside}, 1, 0, inside;",
                            "}}",
                            received = out(reg32) received, inside = out(reg32) inside,
                            word = in(reg32) word, b = in(reg32) $operand, c = in(reg32) c, mask = in(reg32) mask,
                            options(nomem, nostack, preserves_flags),
                        );
                    }
                    (received, inside != 0)
                })
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                assert!(
                    width.is_power_of_two() && width <= LANES,
                    "the width of a shuffle is 1, 2, 4, 8, 16 or 32; this one has {width}"
                );
                let c = (LANES - width) << 8 | $clamp;
                let operation = WarpOperation::$operation;
                let (bits, inside) =
                    crate::executor::shuffle(operation, mask, size_of::<T>(), to_bits(value), $operand, c);
                (from_bits(bits), inside)
            }
        }
    )* };
}

shuffles! {
    warp_shuffle_down, delta, "down", ShuffleDown, 31,
        "The value of the lane `delta` above this one (`delta` modulo 32), and whether that lane is in this one's segment.";
    warp_shuffle_up, delta, "up", ShuffleUp, 0,
        "The value of the lane `delta` below this one (`delta` modulo 32), and whether that lane is in this one's segment.";
    warp_shuffle_xor, lane_mask, "bfly", ShuffleXor, 31,
        "The value of the lane whose number is this one's with the bits of `lane_mask` flipped, and whether that lane is in \
         this one's segment or in one below.";
    warp_shuffle_idx, lane, "idx", ShuffleIdx, 31,
        "The value of lane `lane`, modulo `width`, of this lane's segment, and `true`.";
}

/// Whether `predicate` is true in all lanes in `mask` that have not returned (`vote.sync.all`).
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: the caller's promise is the instruction's condition. The braces make the predicates' names local to
        // this copy of the text. The instruction must stay where it is, so it is not `pure`.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .pred own, result;",
                "setp.ne.u32 own, {own}, 0;",
                "vote.sync.all.pred result, own, {mask};",
                "selp.u32 {result}, 1, 0, result;",
                "}}",
                result = out(reg32) result, own = in(reg32) u32::from(predicate), mask = in(reg32) mask,
                options(nomem, nostack, preserves_flags),
            );
        }
        result != 0
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteAll, mask, predicate) != 0
    }
}

/// Whether `predicate` is true in any of the lanes in `mask` that have not returned (`vote.sync.any`).
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: as for `warp_vote_all`.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .pred own, result;",
                "setp.ne.u32 own, {own}, 0;",
                "vote.sync.any.pred result, own, {mask};",
                "selp.u32 {result}, 1, 0, result;",
                "}}",
                result = out(reg32) result, own = in(reg32) u32::from(predicate), mask = in(reg32) mask,
                options(nomem, nostack, preserves_flags),
            );
        }
        result != 0
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteAny, mask, predicate) != 0
    }
}

/// The mask of the lanes in `mask` that have not returned and in which `predicate` is true (`vote.sync.ballot`).
///
/// # Safety
/// As for [`sync_warp`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let ballot: u32;
        // SAFETY: as for `warp_vote_all`.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .pred own;",
                "setp.ne.u32 own, {own}, 0;",
                "vote.sync.ballot.b32 {ballot}, own, {mask};",
                "}}",
                ballot = out(reg32) ballot, own = in(reg32) u32::from(predicate), mask = in(reg32) mask,
                options(nomem, nostack, preserves_flags),
            );
        }
        ballot
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        crate::executor::vote(WarpOperation::VoteBallot, mask, predicate)
    }
}

/// Shuffles a value word by word; `shuffle` returns the word received, and a flag that is the same for all words.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn shuffle_words<T: Element>(value: T, shuffle: impl Fn(u32) -> (u32, bool)) -> (T, bool) {
    let bits = to_bits(value);
    let (low, inside) = shuffle(bits as u32);
    if size_of::<T>() == size_of::<u32>() {
        return (from_bits(low.into()), inside);
    }
    let (high, _) = shuffle((bits >> 32) as u32);
    (from_bits(u64::from(high) << 32 | u64::from(low)), inside)
}

/// The bits of a value of 4 or 8 bytes.
#[inline(always)]
fn to_bits<T: Element>(value: T) -> u64 {
    // SAFETY: an element is 4 or 8 bytes without padding, so it can be read as a number of that size.
    unsafe {
        match size_of::<T>() {
            4 => core::mem::transmute_copy::<T, u32>(&value).into(),
            _ => core::mem::transmute_copy::<T, u64>(&value),
        }
    }
}

/// The value with these bits, of which a value of 4 bytes takes the low ones.
#[inline(always)]
fn from_bits<T: Element>(bits: u64) -> T {
    // SAFETY: an element is 4 or 8 bytes, and every pattern of bits is a value of it.
    unsafe {
        match size_of::<T>() {
            4 => core::mem::transmute_copy::<u32, T>(&(bits as u32)),
            _ => core::mem::transmute_copy::<u64, T>(&bits),
        }
    }
}
