//! Who [scans](crate::gemm::scan) which operands: a block its own, or in every eighth K-step, if others
//! have the same operand and scan it in the other steps. Numbers that are too large show in the accumulators, which are not finite.

use crate::gemm::scan::ScanOfSums;

/// In which K-steps a block scans an operand.
#[derive(Clone, Copy)]
pub(super) struct ScanSchedule {
    /// Whether it shares the scan with the blocks that have the same rows of A (columns of B).
    pub(super) shared: bool,
    /// Its number among those.
    number: u32,
}

impl ScanSchedule {
    /// How many blocks share a scan. Where there are more, some scan the same.
    const SHARERS: u32 = 8;

    /// The schedule of block `number` of `blocks` that have the operand.
    #[inline(always)]
    pub(super) fn new(blocks: u32, number: u32) -> Self {
        Self { shared: blocks >= Self::SHARERS, number }
    }

    /// Whether it scans in step `step`.
    #[inline(always)]
    pub(super) fn at(&self, step: u32) -> bool {
        !self.shared || self.number.wrapping_sub(step).is_multiple_of(Self::SHARERS)
    }
}

/// What is [found](crate::gemm::scan) of accumulators.
#[inline(always)]
pub(super) fn found_in_sums<const COUNT: usize, const PARTS: usize>(accumulators: &[[f32; COUNT]; PARTS]) -> u32 {
    let mut scan = ScanOfSums::new();
    for i in 0..COUNT {
        for part in accumulators {
            scan.see(part[i]);
        }
    }
    scan.found()
}
