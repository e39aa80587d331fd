//! How the partial sums of 64 k of [`fp16_pairs`](super::fp16_pairs) get to a thread's accumulators: times the factor of their column, and
//! in the units of their row.
//!
//! ```text
//!  unit of a row: the largest factor that it has had
//!
//!  factor   2⁴        2⁴        2⁴         2¹             2⁶                                   2⁶
//!  step     += p·c    += p·c    += p·c     += (p·2⁻³)·c   accumulators · 2⁻², then += p·c      += p·c
//!  unit     2⁴        2⁴        2⁴         2⁴             2⁶                                   2⁶        in the end, accumulators · 2⁶
//! ```
//!
//! A multiplication by a power of two is exact, so that results have the same bits as if each partial sum was multiplied by both factors, but for the smallest numbers.
//! Rows whose factors are too far apart for that have units of one.

use cuda_std::prelude::*;

use crate::pack::scaled::scale;

/// The accumulators of a thread for a half: 64×128 of a warpgroup.
pub(super) const ACCUMULATORS: usize = 64;

/// The two factors in a word: of a power of two, the upper half of an fp32 number is all that is not zero. The first is in the lower half.
#[inline(always)]
pub(super) fn factors_of(word: u32) -> [f32; 2] {
    [word << 16, word & 0xFFFF_0000].map(f32::from_bits)
}

/// The words with the factors of a thread's columns.
pub(super) struct ColFactors(pub(super) [u32; ACCUMULATORS / 4]);

/// The units in which a thread has the accumulators of its two rows of a half: the largest factor that the row has had, so that partial sums need not
/// be multiplied by the row's factor where this is the same in all steps.
///
/// A byte each: the exponents of both units, zero until the row has had a number other than zero; and those of the smallest factors, or
/// zeros, if the units are one for good.
#[derive(Clone, Copy)]
pub(super) struct Units(u32);

impl Units {
    /// Before the first step.
    pub(super) const NONE: Self = Self(0xFFFF_0000);

    /// How far apart the factors of a row may be, as powers of two: then what has the smallest one keeps its bits in units of the largest.
    /// Numbers are at least 2^-14 beside the one factor, and 2^-88 beside the other: 24 bits of their product are above 2^-149, even if it is
    /// 2^23 times smaller.
    const SPREAD: u32 = 23;

    /// Byte `i`, as an exponent.
    #[inline(always)]
    fn exponent(self, i: u32) -> u32 {
        self.0 >> (8 * i) & 0xFF
    }

    /// What accumulators are to be multiplied by in the end.
    #[inline(always)]
    pub(super) fn of_rows(self) -> [f32; 2] {
        [0, 1].map(|i| power(self.exponent(i)))
    }

    /// Brings accumulators to the units for a step whose rows have factors with such exponents, and returns what partial sums are to be multiplied by, if
    /// that is anything but one, for any lane.
    ///
    /// # Safety
    /// All lanes of the warp come here.
    #[inline(always)]
    pub(super) unsafe fn next(
        &mut self,
        factors: [u32; 2],
        accumulators: &mut [f32; ACCUMULATORS],
    ) -> Option<[f32; 2]> {
        // SAFETY: the caller's promise: all lanes come to the same conclusions.
        let any = |predicate: bool| unsafe { warp::warp_vote_any(warp::ALL_LANES, predicate) };
        if !any(factors[0] | factors[1] << 8 != self.0 & 0xFFFF) {
            return None;
        }
        let old = [0, 1].map(|i| self.exponent(i));
        // Where all numbers are zero, there is no factor.
        let factors = [0, 1].map(|i| if factors[i] == 0 { old[i] } else { factors[i] });
        if self.0 >> 16 != 0 {
            let most = [0, 1].map(|i| old[i].max(factors[i]));
            let least = [0, 1].map(|i| {
                let least = self.exponent(2 + i as u32);
                if factors[i] == 0 { least } else { least.min(factors[i]) }
            });
            let is_far = |i: usize| least[i] + Self::SPREAD < most[i];
            let new =
                if any(is_far(0) || is_far(1)) { [ONE, ONE, 0, 0] } else { [most[0], most[1], least[0], least[1]] };
            *self = Self(new[0] | new[1] << 8 | new[2] << 16 | new[3] << 24);
            if any(new[0] != old[0] || new[1] != old[1]) {
                let change = [0, 1].map(|i| power(old[i]) * scale(power(new[i])));
                for at in 0..ACCUMULATORS {
                    accumulators[at] *= change[at % 4 / 2];
                }
            }
        }
        let units = self.of_rows();
        Some([0, 1].map(|i| power(factors[i]) * scale(units[i])))
    }
}

/// The exponent of one.
const ONE: u32 = 127;

/// The power of two with such an exponent; zero, if that is zero.
#[inline(always)]
fn power(exponent: u32) -> f32 {
    f32::from_bits(exponent << 23)
}

/// Adds partial sums to accumulators, times the factors of their columns, and `more` for each row.
#[inline(always)]
pub(super) fn promote(
    of_cols: ColFactors,
    more: Option<[f32; 2]>,
    mut partial: [f32; ACCUMULATORS],
    accumulators: &mut [f32; ACCUMULATORS],
) {
    if let Some(more) = more {
        for at in 0..ACCUMULATORS {
            partial[at] *= more[at % 4 / 2];
        }
        hint::pin(&mut partial);
    }
    for pair in 0..ACCUMULATORS / 4 {
        let of_pair = factors_of(of_cols.0[pair]);
        for i in 0..2 {
            for at in [4 * pair + i, 4 * pair + i + 2] {
                accumulators[at] = math::fma(partial[at], of_pair[i], accumulators[at]);
            }
        }
    }
    hint::pin(accumulators);
}
