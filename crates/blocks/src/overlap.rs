//! Whether an array that is written overlaps itself: whether two of its elements are one place in memory.
//!
//! ```text
//! extents (2, 3), strides (3, 2):   0 2 4 | 3 5 7         no two are the same, though the rows interleave
//! extents (2, 4), strides (3, 2):   0 2 4 6 | 3 5 7 9     likewise
//! extents (3, 4), strides (3, 2):   0 2 4 6 | … | 6 8 …   row 0, column 3 is row 2, column 0
//! ```
//!
//! Two elements are one place if the differences `d` of their indices, not all zero and each smaller than its extent, have
//! `Σ dᵢ·strideᵢ = 0`. The search for such differences goes through the axes from the largest stride to the smallest. At each axis,
//! two conditions leave few differences to try: what has been added up must be within the reach of the axes behind, and a multiple
//! of the greatest common divisor of their strides. In an array whose rows, matrices and so on lie behind each other, each axis
//! leaves only the difference zero.

extern crate std;

use std::vec::Vec;

/// The differences that are tried, at most: some tens of milliseconds.
const MOST_STEPS: u32 = 1 << 20;

/// The largest distance between two elements that is counted with. No memory has more elements of 4 bytes.
const LONGEST: u64 = 1 << 61;

/// Whether two elements of an array with these extents and strides, in elements, are the same place in memory.
///
/// The answer is exact, with two exceptions, which count as overlapping: arrays that reach over more than 2⁶¹ elements, and arrays
/// for which it is not found in 2²⁰ steps: whose axes interleave in as many ways.
///
/// ```
/// # use blocks::elements_overlap;
/// // Two rows of three elements, in a packed matrix, and in one whose rows begin two elements apart.
/// assert!(!elements_overlap(&[2, 3], &[3, 1]));
/// assert!(elements_overlap(&[2, 3], &[2, 1]));
/// // Rows that interleave and share no element.
/// assert!(!elements_overlap(&[2, 3], &[3, 2]));
/// ```
///
/// # Panics
/// If there are not as many strides as extents.
pub fn elements_overlap(extents: &[u64], strides: &[u64]) -> bool {
    assert_eq!(extents.len(), strides.len(), "each extent has a stride");
    if extents.contains(&0) || are_behind_each_other(extents, strides) {
        return false;
    }
    let mut axes: Vec<_> = extents.iter().zip(strides).filter(|(extent, _)| **extent > 1).collect();
    axes.sort_by_key(|(_, stride)| **stride);
    let (mut levels, mut reach, mut divisor) = (Vec::with_capacity(axes.len()), 0, 0);
    for (&extent, &stride) in axes {
        let most = extent - 1;
        let Some(longer) = most.checked_mul(stride).and_then(|own| own.checked_add(reach)) else { return true };
        if stride == 0 || longer > LONGEST {
            return true;
        }
        levels.push(Level::new(most as i64, stride as i64, reach as i64, divisor));
        (reach, divisor) = (longer, greatest_common_divisor(divisor, stride as i64));
    }
    // More elements than places. This also bounds the search: what has many elements along several axes is found here.
    let elements = extents.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent));
    if elements.is_none_or(|elements| elements > reach + 1) {
        return true;
    }
    levels.reverse();
    Search { levels, steps: 0 }.finds(0, 0, true)
}

/// Whether each axis, from the smallest stride to the largest, steps over all that the axes before it reach: then no two elements are
/// one place. So it is with nearly all arrays, and to see it takes no memory of the heap, because launches ask.
fn are_behind_each_other(extents: &[u64], strides: &[u64]) -> bool {
    let axes = || extents.iter().zip(strides).filter(|(extent, _)| **extent > 1);
    let (mut reach, mut seen) = (0u64, 0);
    // An axis whose stride is not beyond the reach of those before it is never taken, and is missing at the end.
    while let Some((&extent, &stride)) =
        axes().filter(|(_, stride)| **stride > reach).min_by_key(|(_, stride)| **stride)
    {
        let longer = (extent - 1).checked_mul(stride).and_then(|own| own.checked_add(reach));
        let Some(longer) = longer.filter(|&longer| longer <= LONGEST) else { return false };
        (reach, seen) = (longer, seen + 1);
    }
    seen == axes().count()
}

/// One axis, and what those behind it, with smaller strides, can add.
struct Level {
    /// The largest difference of two indices.
    most: i64,
    stride: i64,
    /// The largest sum of the axes behind.
    reach: i64,
    /// The greatest common divisor of this stride and all behind.
    common: i64,
    /// Differences that leave a multiple of the divisor of the strides behind are so far apart; 0 if there is nothing behind.
    step: i64,
    /// The inverse of `stride / common` modulo `step`.
    inverse: i64,
}

impl Level {
    fn new(most: i64, stride: i64, reach: i64, divisor: i64) -> Self {
        let common = greatest_common_divisor(stride, divisor);
        let step = divisor / common;
        Self { most, stride, reach, common, step, inverse: inverse(stride / common, step) }
    }

    /// The smallest difference that is at least `low` and leaves a multiple of the divisor behind, if any does.
    fn first(&self, sum: i64, low: i64) -> i64 {
        let wanted = i128::from(-(sum / self.common)) * i128::from(self.inverse);
        let wanted = wanted.rem_euclid(i128::from(self.step)) as i64;
        low + (wanted - low).rem_euclid(self.step)
    }
}

struct Search {
    levels: Vec<Level>,
    steps: u32,
}

impl Search {
    /// Whether axes from `level` on have differences that make `sum` zero. `is_same`: all differences before were zero, so these
    /// must not all be, and the first one that is not may be taken to be positive.
    fn finds(&mut self, level: usize, sum: i64, is_same: bool) -> bool {
        self.steps += 1;
        if (sum == 0 && !is_same) || self.steps > MOST_STEPS {
            return true;
        }
        let Some(axis) = self.levels.get(level) else { return false };
        if sum % axis.common != 0 {
            return false;
        }
        if axis.step == 0 {
            // The last axis: its difference has to make up for the sum alone.
            return !is_same && (sum / axis.stride).abs() <= axis.most;
        }
        let low = (-axis.reach - sum).div_euclid(axis.stride) + i64::from((-axis.reach - sum) % axis.stride != 0);
        let low = low.max(if is_same { 0 } else { -axis.most });
        let high = (axis.reach - sum).div_euclid(axis.stride).min(axis.most);
        let (stride, step, mut difference) = (axis.stride, axis.step, axis.first(sum, low));
        while difference <= high {
            if self.finds(level + 1, sum + difference * stride, is_same && difference == 0) {
                return true;
            }
            difference += step;
        }
        false
    }
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The inverse of a number modulo another one that it has no divisor in common with; 0 modulo 0 and 1.
fn inverse(number: i64, modulus: i64) -> i64 {
    if modulus <= 1 {
        return 0;
    }
    // Euclid's algorithm: `a ≡ number · x` and `b ≡ number · y` throughout.
    let (mut a, mut b, mut x, mut y) = (modulus, number % modulus, 0i64, 1i64);
    while b != 0 {
        let times = a / b;
        (a, b) = (b, a - times * b);
        (x, y) = (y, x - times * y);
    }
    x.rem_euclid(modulus)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The answer by looking at every element.
    fn by_counting(extents: &[u64], strides: &[u64]) -> bool {
        let elements = extents.iter().product();
        let place = |mut index: u64| {
            let mut place = 0;
            for (extent, stride) in extents.iter().zip(strides) {
                place += index % extent * stride;
                index /= extent;
            }
            place
        };
        (0..elements).map(place).collect::<BTreeSet<_>>().len() as u64 != elements
    }

    #[test]
    fn the_answer_is_that_of_looking_at_every_element() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut found = [0; 2];
        for round in 0..60_000 {
            let axes = 1 + round % 5;
            let most = [0, 40, 10, 5, 4, 3][axes];
            let extents: Vec<_> = (0..axes).map(|_| 1 + random(most)).collect();
            let strides: Vec<_> = (0..axes).map(|_| random([60, 12, 300][round % 3])).collect();
            let expected = by_counting(&extents, &strides);
            assert_eq!(elements_overlap(&extents, &strides), expected, "{extents:?} {strides:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 10_000), "{found:?}");
        // All small ones of three axes.
        for extents in 0..64u64 {
            let extents = [extents % 4, extents / 4 % 4, extents / 16];
            for strides in 0..512u64 {
                let strides = [strides % 8, strides / 8 % 8, strides / 64];
                let expected = by_counting(&extents, &strides);
                assert_eq!(elements_overlap(&extents, &strides), expected, "{extents:?} {strides:?}");
            }
        }
    }

    #[test]
    fn what_is_ordinary_is_found_to_be_so_at_once() {
        let apart =
            |extents: &[u64], strides: &[u64]| assert!(!elements_overlap(extents, strides), "{extents:?} {strides:?}");
        apart(&[], &[]);
        apart(&[1, 1], &[0, 0]);
        apart(&[0, 5], &[0, 0]);
        apart(&[3, 1_000_000, 4], &[4, 12, 1]); // a batch between rows
        apart(&[1 << 20, 1 << 20], &[1, 1 << 20]);
        apart(&[1 << 20, 1 << 20, 3], &[3, 3 << 20, 1]);
        apart(&[2; 40], &(0..40).map(|axis| 1 << axis).collect::<Vec<_>>());
        apart(&[(1 << 31) - 1, (1 << 29) - 1], &[1 << 29, 1]);
        apart(&[5, 1 << 30], &[7 << 30, 7]);
        // Rows that interleave: found by the congruence, not by trying each of a million differences.
        apart(&[999_999, 1_000_000], &[1_000_000, 999_999]);
        let overlaps =
            |extents: &[u64], strides: &[u64]| assert!(elements_overlap(extents, strides), "{extents:?} {strides:?}");
        overlaps(&[3, 4, 4], &[8, 4, 1]);
        overlaps(&[2, 2], &[0, 1]);
        apart(&[1_000_000, 1_000_000], &[1_000_000, 999_999]);
        overlaps(&[1_000_000, 1_000_001], &[1_000_000, 999_999]);
        overlaps(&[1 << 31, 1 << 31, 1 << 31], &[1, 1, 1]);
        overlaps(&[2, 2], &[u64::MAX, 1]);
        overlaps(&[u64::MAX, u64::MAX], &[u64::MAX, u64::MAX]);
    }

    /// As much to try as there is in memory of ordinary size: three axes of thousands of elements each that interleave.
    #[test]
    fn the_answer_is_exact_where_three_long_axes_interleave() {
        let mut found = [0; 2];
        for (extents, strides) in [
            ([4001, 4003, 4007], [16_000_057, 16_000_033, 16_000_003]),
            ([1999, 1997, 1993], [3_999_971, 3_999_949, 3_999_929]),
            ([257, 263, 269], [70_753, 69_133, 67_591]),
            ([211, 223, 227], [1, 50_629, 51_001]),
        ] {
            let [n0, n1, n2] = extents.map(|extent| extent as i64);
            let [s0, s1, s2] = strides.map(|stride| stride as i64);
            let is_made_up_for = |sum: i64| sum % s2 == 0 && (sum / s2).abs() < n2;
            let expected =
                (0..n0).any(|d0| (1 - n1..n1).any(|d1| (d0, d1) > (0, 0) && is_made_up_for(d0 * s0 + d1 * s1)));
            assert_eq!(elements_overlap(&extents, &strides), expected, "{extents:?} {strides:?}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&count| count > 0), "{found:?}");
    }
}
