//! The stacks of the coroutines on which the CPU executor runs a block's threads: [`Stacks`] has one for each thread of the largest block,
//! and is used for all blocks that a worker runs.

use core::ops::RangeInclusive;

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
