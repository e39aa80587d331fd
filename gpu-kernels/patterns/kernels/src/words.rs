//! Loads of four 32-bit words of global memory at once (16 bytes), which leave the first-level cache to others. `cuda_std` has such loads
//! of fp32 only; what the bits stand for makes no difference to a load.

use cuda_std::prelude::*;

use crate::row::FOUR;

/// Whether addresses, combined by `|`, are all such that vectors of four words can begin there.
#[inline(always)]
pub(crate) fn is_aligned(addresses: usize) -> bool {
    addresses.is_multiple_of(FOUR * size_of::<u32>())
}

/// The four words from `index`: one 16-byte load, which leaves the first-level cache to others.
///
/// # Safety
/// As for [`GlobalSlice::get4_streaming_unchecked`].
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn get4(words: GlobalSlice<'_, u32>, index: usize) -> [u32; FOUR] {
    // SAFETY: the same memory, read by this function only; a number of fp32 is as large and as aligned as a word, and has all its bits.
    let numbers: GlobalSlice<'_, f32> = unsafe { GlobalSlice::from_raw_parts(words.as_ptr().cast(), words.len()) };
    // SAFETY: the caller's promise.
    let [a, b, c, d] = unsafe { numbers.get4_streaming_unchecked(index) };
    [a.to_bits(), b.to_bits(), c.to_bits(), d.to_bits()]
}
