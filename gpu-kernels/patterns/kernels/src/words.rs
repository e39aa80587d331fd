//! Four words of 32 bits in one access. `cuda_std` has such accesses of fp32 only; to move it makes no difference what the bits stand for.

use cuda_std::prelude::*;

/// The words of an access.
pub(crate) const FOUR: usize = 4;

/// Whether addresses, combined by `|`, are all such that [`set4`] can begin there.
#[inline(always)]
pub(crate) fn is_aligned(addresses: usize) -> bool {
    addresses.is_multiple_of(FOUR * size_of::<u32>())
}

/// Writes four words from `index` on: one 16-byte store.
///
/// # Safety
/// As for [`GlobalSliceMut::set4_unchecked`].
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn set4(words: GlobalSliceMut<'_, u32>, index: usize, [a, b, c, d]: [u32; FOUR]) {
    // SAFETY: the same memory, written by this function only; a number of fp32 is as large and as aligned as a word, and has all its bits.
    let numbers: GlobalSliceMut<'_, f32> =
        unsafe { GlobalSliceMut::from_raw_parts(words.as_mut_ptr().cast(), words.len()) };
    let numbers_of_bits = [f32::from_bits(a), f32::from_bits(b), f32::from_bits(c), f32::from_bits(d)];
    // SAFETY: the caller's promise.
    unsafe { numbers.set4_unchecked(index, numbers_of_bits) };
}
