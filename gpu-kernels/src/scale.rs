//! The factors α and β of `C = α·A·B + β·C`, and what it means that one of them is zero.

use cuda_std::prelude::*;

/// α and β.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub(crate) struct Scale {
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

impl Scale {
    /// The number of terms of a sum over `k`: none if α is zero, because then the operands may not be read.
    #[inline(always)]
    pub(crate) fn terms(&self, k: u32) -> u32 {
        if self.alpha == 0.0 { 0 } else { k }
    }

    /// What a sum of `terms` terms is multiplied by where β is zero: nothing, if there are none, whatever α is.
    #[inline(always)]
    pub(crate) fn factor(&self, terms: u32) -> f32 {
        if terms == 0 { 0.0 } else { self.alpha }
    }

    /// `α·sum + β·before()`, for a sum of `terms` terms. The old value is not asked for if β is zero, so that what it was,
    /// NaN even, does not matter; and a sum without terms is not scaled, so that α does not matter, infinite even.
    #[inline(always)]
    pub(crate) fn combine(&self, terms: u32, sum: f32, before: impl FnOnce() -> f32) -> f32 {
        match (terms == 0, self.beta == 0.0) {
            (true, true) => 0.0,
            (true, false) => self.beta * before(),
            (false, true) => self.alpha * sum,
            (false, false) => math::fma(self.beta, before(), self.alpha * sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_factor_hides_what_it_multiplies() {
        let unread = || -> f32 { unreachable!("C is not read if beta is zero") };
        assert_eq!(Scale { alpha: 2.0, beta: 0.0 }.combine(1, 3.0, unread), 6.0);
        assert_eq!(Scale { alpha: f32::INFINITY, beta: 0.0 }.combine(0, 0.0, unread), 0.0);
        assert_eq!(Scale { alpha: f32::NAN, beta: 2.0 }.combine(0, 0.0, || 3.0), 6.0);
        assert_eq!(Scale { alpha: 2.0, beta: 3.0 }.combine(1, 5.0, || 7.0), 31.0);
        assert_eq!(Scale { alpha: 0.0, beta: 1.0 }.terms(8), 0);
        assert_eq!(Scale { alpha: 0.0, beta: 1.0 }.combine(0, 0.0, || -0.0).to_bits(), (-0.0f32).to_bits());
    }
}
