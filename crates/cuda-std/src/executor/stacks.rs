//! The stacks of the coroutines on which the CPU executor runs a block's threads: [`Stacks`] has one for each thread of the largest block,
//! and is used for all blocks that a worker runs.

use core::ops::{Range, RangeInclusive};
use core::ptr;

#[cfg(not(windows))]
mod mapped;
#[cfg(windows)]
mod separate;

#[cfg(not(windows))]
pub(super) use mapped::{Stacks, ThreadStack};
#[cfg(windows)]
pub(super) use separate::{Stacks, ThreadStack};

/// The sizes that a stack can be asked to have. With the largest, the address space does not suffice for those of a block,
/// but the arithmetic does.
pub(super) const SIZES: RangeInclusive<usize> = 16 << 10..=1 << 50;

/// A hash of the words in these addresses, the first of them rounded up to a word's.
///
/// # Safety
/// They are initialized memory, whose end is that of a word, and nobody writes there meanwhile.
unsafe fn hash_of(addresses: Range<usize>) -> u64 {
    let mut hash = 0u64;
    for address in (addresses.start.next_multiple_of(size_of::<u64>())..addresses.end).step_by(size_of::<u64>()) {
        // SAFETY: the caller's, and aligned. Volatile, because the compiler does not see that a thread of the kernel has written there.
        let word = unsafe { ptr::with_exposed_provenance::<u64>(address).read_volatile() };
        // The multiplier of FNV-1a; the rotation brings high bits back to where they matter.
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
    }
    hash
}
