//! What a thread of a warpgroup does with scores and sums in its registers: weights of the scores, and results of the sums.

use blocks::uniform::this_thread;
use cuda_std::math;
use cuda_std::prelude::*;

use super::of_group;
use crate::quad::transposed;

/// The two rows of scores of which a thread has a quarter: rows g and g + 8 of a warp's 16.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The largest score so far, and this lane's part of the sum of weights.
    pub(super) largest: [f32; 2],
    pub(super) totals: [f32; 2],
    /// What scores are multiplied by.
    pub(super) factor: f32,
}

impl Rows {
    /// Makes weights of scores, `exp(score − maximum)`, with the maximum so far, and adds them to this lane's part of their sum. By how much what
    /// was summed up before has to be scaled, for both rows.
    ///
    /// The maximum is scaled once, and its rounding is common to all weights of a row: a weight is one fused operation and an exponential.
    /// Beyond 2¹⁶ that rounding would be seen, and from 2³¹ on exponentials would be infinite. There the difference is taken first.
    ///
    /// # Safety
    /// The whole warp comes here together.
    #[inline(always)]
    pub(super) unsafe fn weigh<const SCORES: usize>(&mut self, scores: &mut [f32; SCORES]) -> [f32; 2] {
        const LARGE: f32 = 65536.0;
        let (before, factor) = (self.largest, self.factor);
        let mut base = [0.0; 2];
        for row in 0..2 {
            // Two at a time: none waits for the one before.
            let mut max = [before[row], f32::NEG_INFINITY];
            for group in 0..SCORES / 4 {
                for column in 0..2 {
                    max[column] = math::max(max[column], scores[4 * group + 2 * row + column]);
                }
            }
            // SAFETY: the caller's promise.
            let max = unsafe { of_group(math::max(max[0], max[1]), math::max) };
            self.largest[row] = max;
            // While all are −∞, there is no difference to take from it.
            base[row] = if max == f32::NEG_INFINITY { 0.0 } else { max };
        }
        let scaled = base.map(|base| base * factor);
        let is_large = scaled.map(|scaled| math::max(scaled, -scaled) > LARGE);
        let mut totals = [[0.0; 2]; 2];
        // SAFETY: as above.
        let scaling = if unsafe { warp::warp_vote_any(warp::ALL_LANES, is_large[0] || is_large[1]) } {
            for i in 0..SCORES {
                let (row, column) = (i / 2 % 2, i % 2);
                scores[i] = math::fast::exp2_or_zero((scores[i] - base[row]) * factor);
                totals[row][column] += scores[i];
            }
            [0, 1].map(|row| math::fast::exp2_or_zero((before[row] - base[row]) * factor))
        } else {
            for i in 0..SCORES {
                let (row, column) = (i / 2 % 2, i % 2);
                scores[i] = math::fast::exp2_or_zero(math::fma(scores[i], factor, -scaled[row]));
                totals[row][column] += scores[i];
            }
            [0, 1].map(|row| math::fast::exp2_or_zero(before[row] * factor - scaled[row]))
        };
        for row in 0..2 {
            self.totals[row] = math::fma(self.totals[row], scaling[row], totals[row][0] + totals[row][1]);
        }
        scaling
    }
}

/// The weights of all keys as left operands.
#[inline(always)]
pub(super) fn pack<const SCORES: usize, const STEPS: usize>(weights: &[f32; SCORES]) -> [[u32; 4]; STEPS] {
    let mut packed = [[0; 4]; STEPS];
    for step in 0..STEPS {
        for i in 0..4 {
            packed[step][i] = convert::bf16x2(weights[8 * step + 2 * i], weights[8 * step + 2 * i + 1]);
        }
    }
    packed
}

/// Stores the rows of a warp, from row `row` of a head on, as far as there are `queries`.
///
/// # Safety
/// The whole warp comes here together. The head is there, and its rows are no other warp's; O is aligned to 16 bytes.
#[inline(always)]
pub(super) unsafe fn store<const SIZE: u32, const SUMS: usize>(
    o: GlobalSliceMut<'_, Bf16>,
    [head, row, queries]: [u32; 3],
    sums: &[f32; SUMS],
    totals: [f32; 2],
) {
    // Read anew, rather than kept in registers all the time.
    let lane = this_thread() % warp::LANES;
    let (g, c) = (lane / 4, lane % 4);
    // SAFETY: the same memory as words, of which rows have a whole number.
    let words: GlobalSliceMut<'_, u32> = unsafe { GlobalSliceMut::from_raw_parts(o.as_mut_ptr().cast(), o.len() / 2) };
    for half in 0..2 {
        // SAFETY: all lanes come here.
        let total = unsafe { of_group(totals[half], |one, other| one + other) };
        let inverse = 1.0 / total;
        let row = row + g + half as u32 * 8;
        let first = (head as usize * queries as usize + row as usize) * (SIZE as usize / 2);
        for four in 0..SUMS / 16 {
            let pairs = core::array::from_fn(|i| {
                let at = 4 * (4 * four + i) + 2 * half;
                convert::bf16x2(sums[at] * inverse, sums[at + 1] * inverse)
            });
            // SAFETY: all lanes come here; the row is there, and this lane's place in it is 16 bytes that nobody else has.
            unsafe {
                let piece = transposed(pairs, c);
                if row < queries {
                    words.set_vector_unchecked(first + (4 * four + c as usize) * 4, piece);
                }
            }
        }
    }
}
