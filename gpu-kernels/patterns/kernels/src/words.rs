//! Four words of 32 bits in one access. `cuda_std` has such accesses of fp32 only; to move it makes no difference what the bits stand for.

use cuda_std::prelude::*;

/// The words of an access.
pub(crate) const FOUR: usize = 4;

/// Whether addresses, combined by `|`, are all such that [`get4`] and [`set4`] can begin there.
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

/// Writes four words from `index` on: one 16-byte store.
///
/// # Safety
/// As for [`GlobalSliceMut::set4_unchecked`].
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn set4(words: GlobalSliceMut<'_, u32>, index: usize, [a, b, c, d]: [u32; FOUR]) {
    // SAFETY: as for `get4`.
    let numbers: GlobalSliceMut<'_, f32> =
        unsafe { GlobalSliceMut::from_raw_parts(words.as_mut_ptr().cast(), words.len()) };
    let numbers_of_bits = [f32::from_bits(a), f32::from_bits(b), f32::from_bits(c), f32::from_bits(d)];
    // SAFETY: the caller's promise.
    unsafe { numbers.set4_unchecked(index, numbers_of_bits) };
}
