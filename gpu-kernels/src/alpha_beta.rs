//! The factors α and β of `C = α·A·B + β·C`, and what it means that one of them is zero.

use cuda_std::prelude::*;

/// α and β.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub(crate) struct AlphaBeta {
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

impl AlphaBeta {
    /// How much of `k` counts: none if α is zero, because then the operands may not be read.
    #[inline(always)]
    pub(crate) fn effective_k(&self, k: u32) -> u32 {
        if self.alpha == 0.0 { 0 } else { k }
    }

    /// What an accumulator over `k` is multiplied by where β is zero: nothing, if k is 0, whatever α is.
    #[inline(always)]
    pub(crate) fn factor(&self, k: u32) -> f32 {
        if k == 0 { 0.0 } else { self.alpha }
    }

    /// `α·accumulator + β·before()`, for an accumulator over `k`. The old value is not asked for if β is zero, so that what it was,
    /// NaN even, does not matter; and an accumulator over k = 0 is not multiplied, so that α does not matter, infinite even.
    #[inline(always)]
    pub(crate) fn combine(&self, k: u32, accumulator: f32, before: impl FnOnce() -> f32) -> f32 {
        match (k == 0, self.beta == 0.0) {
            (true, true) => 0.0,
            (true, false) => self.beta * before(),
            (false, true) => self.alpha * accumulator,
            (false, false) => math::fma(self.beta, before(), self.alpha * accumulator),
        }
    }

    /// The same where β is not zero, of an accumulator that is zero if k is: without a branch.
    #[inline(always)]
    pub(crate) fn blend(&self, k: u32, accumulator: f32, before: f32) -> f32 {
        // What is added to -0 keeps its sign.
        let factor = if k == 0 { -0.0 } else { self.alpha };
        math::fma(self.beta, before, factor * accumulator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_factor_hides_what_it_multiplies() {
        let unread = || -> f32 { unreachable!("C is not read if beta is zero") };
        assert_eq!(AlphaBeta { alpha: 2.0, beta: 0.0 }.combine(1, 3.0, unread), 6.0);
        assert_eq!(AlphaBeta { alpha: f32::INFINITY, beta: 0.0 }.combine(0, 0.0, unread), 0.0);
        assert_eq!(AlphaBeta { alpha: f32::NAN, beta: 2.0 }.combine(0, 0.0, || 3.0), 6.0);
        assert_eq!(AlphaBeta { alpha: 2.0, beta: 3.0 }.combine(1, 5.0, || 7.0), 31.0);
        assert_eq!(AlphaBeta { alpha: 0.0, beta: 1.0 }.effective_k(8), 0);
        for before in [0.0f32, -0.0, 3.0, f32::INFINITY] {
            let of_no_k = AlphaBeta { alpha: f32::NAN, beta: 2.0 };
            let blended = of_no_k.blend(0, 0.0, before).to_bits();
            assert_eq!(blended, of_no_k.combine(0, 0.0, || before).to_bits());
        }
        assert_eq!(AlphaBeta { alpha: 2.0, beta: 3.0 }.blend(1, 5.0, 7.0), 31.0);
        assert_eq!(AlphaBeta { alpha: 0.0, beta: 1.0 }.combine(0, 0.0, || -0.0).to_bits(), (-0.0f32).to_bits());
    }
}
