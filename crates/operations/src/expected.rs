//! [`Expected`]: the value in double precision that the reference gives an element of an output, and the largest error that a kernel may make there.

use crate::argument::Element;

/// The relative rounding error of one operation in fp32, at most: 2⁻²⁴.
pub const FP32_ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// The smallest subnormal number of fp32, 2⁻¹⁴⁹: a rounding below the normal numbers is off by half of it at most.
const FP32_SMALLEST: f64 = f32::from_bits(1) as f64;

/// What an element shall be, and how far from that it may be.
///
/// NaN stands for any NaN, and an infinity for itself: for these the bound is of no interest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The value in double precision.
    pub value: f64,
    /// How far from it the element may be; 0 for the value itself, rounded to the type of the element. Then the sign of a zero counts,
    /// too.
    pub bound: f64,
}

impl Expected {
    /// The value itself, rounded to the type of the element.
    pub const fn exact(value: f64) -> Self {
        Self { value, bound: 0.0 }
    }

    /// Anything that is no farther than `bound` from the value.
    pub const fn within(value: f64, bound: f64) -> Self {
        Self { value, bound }
    }

    /// What comes of `roundings` operations in fp32 one after the other, by the usual bound of their errors: `γ·magnitude`, with `γ =
    /// k·u / (1 − k·u)` for k roundings and u = 2⁻²⁴. The magnitude is that of a sum without cancellation: `Σ|a||b|` for a sum
    /// of products.
    pub fn rounded(value: f64, roundings: usize, magnitude: f64) -> Self {
        let errors = roundings as f64 * FP32_ROUNDING;
        // Beyond 2²³ roundings the bound says little, but stays one.
        let gamma = if errors < 0.5 { errors / (1.0 - errors) } else { 2.0 * errors };
        Self { value, bound: gamma * magnitude + roundings as f64 * FP32_SMALLEST }
    }

    /// Whether it says what an element shall be.
    pub(crate) fn is_sound(&self) -> bool {
        !self.value.is_finite() || (self.bound.is_finite() && self.bound >= 0.0)
    }

    /// How far off an element is: 0 for what it shall be, infinity for another kind of number, NaN in place of a number for one.
    pub(crate) fn error_of(&self, found: f64, element: Element) -> f64 {
        if self.value.is_nan() || found.is_nan() {
            return if self.value.is_nan() && found.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if !self.value.is_finite() || !found.is_finite() {
            // A finite value may be too large for the element, if that is what it is rounded to.
            let is_same = element.rounded(self.value) == found;
            return if is_same { 0.0 } else { f64::INFINITY };
        }
        if self.bound > 0.0 {
            return (found - self.value).abs();
        }
        let value = element.rounded(self.value);
        if value.to_bits() == found.to_bits() { 0.0 } else { (found - value).abs().max(f64::MIN_POSITIVE) }
    }

    /// Whether an element that is so far off is right.
    pub(crate) fn allows(&self, error: f64) -> bool {
        // What is no number has no bound.
        error == 0.0 || error <= self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_right(expected: Expected, found: f64) -> bool {
        expected.allows(expected.error_of(found, Element::F32))
    }

    #[test]
    fn an_element_is_right_within_the_bound() {
        let third = Expected::rounded(1.0 / 3.0, 1, 1.0 / 3.0);
        assert!(is_right(third, f64::from(1.0f32 / 3.0)));
        assert!(!is_right(third, f64::from((1.0f32 / 3.0).next_up().next_up())));
        assert!(is_right(Expected::exact(1.0 / 3.0), f64::from(1.0f32 / 3.0)));
        assert!(!is_right(Expected::exact(1.0 / 3.0), f64::from((1.0f32 / 3.0).next_up())));
        assert!(!is_right(Expected::exact(0.0), -0.0) && is_right(Expected::exact(-0.0), -0.0));
        assert!(is_right(Expected::within(0.0, 1e-9), -0.0));
        let tiny = Expected::rounded(1e-46, 1, 1e-46);
        assert!(is_right(tiny, 0.0), "rounded to zero");
    }

    #[test]
    fn what_is_no_number_is_expected_or_wrong() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert!(is_right(Expected::exact(nan), nan) && is_right(Expected::within(nan, 1.0), -nan));
        assert!(!is_right(Expected::exact(nan), 1.0) && !is_right(Expected::within(1.0, 1e300), nan));
        assert!(is_right(Expected::within(nan, nan), nan) && !is_right(Expected::within(nan, nan), 1.0));
        assert!(is_right(Expected::exact(infinity), infinity) && !is_right(Expected::exact(infinity), -infinity));
        assert!(!is_right(Expected::within(1.0, 1e300), infinity) && !is_right(Expected::within(infinity, 1.0), 3.0));
        assert!(is_right(Expected::rounded(1e39, 1, 1e39), infinity), "too large for an fp32");
        assert!(!is_right(Expected::rounded(1e38, 1, 1e38), infinity));
    }

    #[test]
    fn bounds_are_numbers() {
        assert!(Expected::exact(f64::NAN).is_sound() && Expected::within(f64::INFINITY, f64::NAN).is_sound());
        for bound in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(!Expected::within(1.0, bound).is_sound());
        }
        assert!(Expected::rounded(1.0, 1 << 40, 1.0).is_sound());
    }
}
