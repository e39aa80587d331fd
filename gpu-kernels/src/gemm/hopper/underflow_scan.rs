//! Who scans which operands for numbers that are too small to be decomposed: a block its own, or in every eighth K-step, if others
//! have the same operand and scan it in the other steps. Numbers that are too large show in the accumulators, which are not finite.

use blocks::reduce::Finite;

/// The bit of a block that has found operands in A that are too small to be decomposed.
pub const UNDERFLOW_A: u32 = 1;
/// The bit of a block that has found such operands in B.
pub const UNDERFLOW_B: u32 = 2;
/// The bit of accumulators that are infinite or NaN, beside these, in what the warps of a block have found.
pub(super) const NOT_FINITE: u32 = 4;

/// In which K-steps a block scans an operand for numbers that are too small.
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

/// Whether no accumulator is infinite or NaN.
#[inline(always)]
pub(super) fn are_finite<const COUNT: usize, const PARTS: usize>(accumulators: &[[f32; COUNT]; PARTS]) -> bool {
    let mut finite = Finite::new();
    for i in 0..COUNT {
        for part in accumulators {
            finite.see(part[i]);
        }
    }
    finite.all()
}
