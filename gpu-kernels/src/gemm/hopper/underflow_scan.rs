//! Looking for operands that cannot be split, and for sums that are not finite: who looks when, and who is told.

use blocks::reduce::Finite;

/// What a block tells the threads that multiply about sums that are infinite or NaN, beside the marks.
pub(super) const NOT_FINITE: u32 = 4;

/// In which steps a block looks at an operand for numbers that are too small.
#[derive(Clone, Copy)]
pub(super) struct Looks {
    /// Whether it shares the steps with the blocks that have the same rows of A (columns of B).
    pub(super) shared: bool,
    /// Its place among those.
    place: u32,
}

impl Looks {
    /// How many blocks share the steps. With more, some look at the same.
    const SHARERS: u32 = 8;

    #[inline(always)]
    pub(super) fn new(sharers: u32, place: u32) -> Self {
        Self { shared: sharers >= Self::SHARERS, place }
    }

    /// Whether it looks in step `step`.
    #[inline(always)]
    pub(super) fn at(&self, step: u32) -> bool {
        !self.shared || self.place.wrapping_sub(step).is_multiple_of(Self::SHARERS)
    }
}

/// Whether no sum is infinite or NaN.
#[inline(always)]
pub(super) fn are_finite<const SUMS: usize>(sums: &[[f32; SUMS]; 2]) -> bool {
    let mut finite = Finite::new();
    for i in 0..SUMS {
        finite.see(sums[0][i]);
        finite.see(sums[1][i]);
    }
    finite.all()
}
