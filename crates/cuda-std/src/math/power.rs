//! Roots and powers.

use super::exponential::exp2_near_zero;
use super::logarithm::log2_pair;
use super::{NAN, Pair, fast, fma, nearest_bits, observed, round_ties_even, scale_bits, sqrt, unobserved, with_sign};

/// One over the square root, correctly rounded. That of ±0 is ±∞, that of ∞ is 0, that of a negative number NaN.
///
/// The hardware's approximation, and one step of Householder's method with a remainder in two parts. After that it is the number nearest
/// to the root, whichever it began with of those within 2⁻²²·⁷ of the root: a test tries all of them for all significands. So the bits
/// are the same, though those of the approximation are not.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn rsqrt(x: f32) -> f32 {
    const UP: f32 = f32::from_bits((127 + 64) << 23);
    const ROOT_OF_UP: f32 = f32::from_bits((127 + 32) << 23);
    // Of 0, ∞, a subnormal or negative number or a NaN, this is a NaN.
    let result = rsqrt_from(x, fast::rsqrt_of_normal(x));
    if !result.is_nan() {
        return result;
    }
    core::hint::cold_path();
    let scaled = x * UP;
    let of_subnormal = rsqrt_from(scaled, fast::rsqrt_of_normal(scaled)) * ROOT_OF_UP;
    let of_zero = f32::from_bits(x.to_bits() & super::SIGN | super::INFINITY);
    let special = if x == 0.0 { of_zero } else { NAN };
    let special = if x == f32::INFINITY { 0.0 } else { special };
    observed("`math::rsqrt`", [x], if x > 0.0 && x < f32::INFINITY { of_subnormal } else { special })
}

/// One over the square root of a normal number, from a number near it.
#[inline(always)]
fn rsqrt_from(x: f32, near: f32) -> f32 {
    // e = 1 − x·y²
    let root = Pair::product(x, near);
    let e = fma(-root.low, near, fma(-root.high, near, 1.0));
    // 1/√(1 − e) = 1 + e/2 + 3e²/8 + …; with 0.4 in place of 3/8 nothing is so near to the middle of two numbers that it would matter
    // which one it began with.
    fma(near * e, fma(0.4, e, 0.5), near)
}

/// The cube root, off by at most 0.74 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±∞, that of a NaN is NaN.
///
/// With y near 1/∛|x|, it is x·y², and one step of Newton's method.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn cbrt(x: f32) -> f32 {
    let result = cbrt_of_plain(x);
    if has_plain_cube_root(x) {
        return result;
    }
    core::hint::cold_path();
    let result = cbrt_of_plain(x * f32::from_bits((127 + 96) << 23)) * f32::from_bits((127 - 32) << 23);
    observed("`math::cbrt`", [x], if x != 0.0 && x.abs() < f32::INFINITY { result } else { x + x })
}

/// The cube root of a number that has a plain one.
#[inline(always)]
fn cbrt_of_plain(x: f32) -> f32 {
    let y = near_rcbrt(x);
    let square = y * y;
    let root = x * square;
    let remainder = fma(-(root * root), root, x);
    fma(remainder, square * THIRD, root)
}

/// One over the cube root, off by at most 0.83 units in the last place.
///
/// That of ±0 is ±∞, that of ±∞ is ±0, that of a NaN is NaN.
///
/// A guess from the exponent, made better by a polynomial, and one step of Newton's method with the remainder of a product.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn rcbrt(x: f32) -> f32 {
    let result = rcbrt_of_plain(x);
    if has_plain_cube_root(x) {
        return result;
    }
    core::hint::cold_path();
    let result = rcbrt_of_plain(x * f32::from_bits((127 + 96) << 23)) * f32::from_bits((127 + 32) << 23);
    observed("`math::rcbrt`", [x], if x != 0.0 && x.abs() < f32::INFINITY { result } else { 1.0 / x })
}

/// One over the cube root of a number that has a plain one.
#[inline(always)]
fn rcbrt_of_plain(x: f32) -> f32 {
    let y = near_rcbrt(x);
    let (square, product) = (Pair::product(y, y), y * x.abs());
    let remainder = fma(-square.low, product, fma(-square.high, product, 1.0));
    with_sign_of(fma(y * remainder, THIRD, y), x)
}

/// The magnitude of a positive number with the sign of x.
#[inline(always)]
fn with_sign_of(positive: f32, x: f32) -> f32 {
    f32::from_bits(positive.to_bits() | x.to_bits() & super::SIGN)
}

const THIRD: f32 = 1.0 / 3.0;

/// Whether the magnitude is finite and from 2⁻⁶⁴ on: below that, remainders would be subnormal.
#[inline(always)]
fn has_plain_cube_root(x: f32) -> bool {
    const LEAST: u32 = (127 - 64) << 23;
    // Without the sign; as unsigned integers, all others are below these numbers or above them.
    (x.to_bits() << 1).wrapping_sub(LEAST << 1) < (super::INFINITY - LEAST) << 1
}

/// 1/∛|x| within 3·10⁻⁶ of it, for normal x.
#[inline(always)]
fn near_rcbrt(x: f32) -> f32 {
    // Within 3.7 % of it: an exponent is a logarithm, and its third is that of the root.
    const OFFSET: u32 = 0x54A1_F400;
    let a = x.abs();
    let y = f32::from_bits(OFFSET.wrapping_sub(a.to_bits() / 3));
    // With t = |x|·y³, from 0.897 to 1.102, 1/∛|x| = y·t^(−1/3); the polynomial is minimax.
    let t = y * y * (y * a);
    let p = fma(t, -1.746_154e-1, 7.475_814e-1);
    let p = fma(t, p, -1.304_644_8);
    y * fma(t, p, 1.731_676_8)
}

/// √(x² + y²), without the overflow or underflow of squares; off by at most 1.1 units in the last place.
///
/// If either is ±∞, it is ∞, even if the other is a NaN; else if either is a NaN, it is NaN.
///
/// Scaled by a power of 2; then a fused sum of squares and its square root.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn hypot(x: f32, y: f32) -> f32 {
    const LARGE: f32 = f32::from_bits((127 + 62) << 23);
    const SMALL: f32 = f32::from_bits((127 - 40) << 23);
    const DOWN: f32 = f32::from_bits((127 - 70) << 23);
    const UP: f32 = f32::from_bits((127 + 100) << 23);
    let (x, y) = (x.abs(), y.abs());
    let (a, b) = if x < y { (y, x) } else { (x, y) };
    let (factor, back) = if a > LARGE { (DOWN, 1.0 / DOWN) } else { (1.0, 1.0) };
    let (factor, back) = if a < SMALL { (UP, 1.0 / UP) } else { (factor, back) };
    let (a, b) = (a * factor, b * factor);
    let result = unobserved(|| sqrt(fma(a, a, b * b))) * back;
    observed("`math::hypot`", [x, y], if x == f32::INFINITY || y == f32::INFINITY { f32::INFINITY } else { result })
}

/// x to the power of y, off by at most 1 units in the last place.
///
/// As C has it: x⁰ and 1ʸ are 1, even of a NaN. Of other NaNs it is NaN, and so it is of a negative x and a y that is no integer. Of
/// ±0 it is 0 or, for negative y, ∞, with the sign of x if y is an odd integer, and of ±∞ the other way round. (−1)^±∞ is 1.
///
/// log₂ x in two parts with a relative error of about 2⁻³⁴, their product with y in two parts, and then as [`exp2`](super::exp2).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn pow(x: f32, y: f32) -> f32 {
    let half = 0.5 * y;
    let is_integer = round_ties_even(y) == y;
    // Numbers from 2²⁴ on are even.
    let is_odd = is_integer && round_ties_even(half) != half;
    let result = pow_of_magnitude(x.abs(), y, 0.0, is_odd && x.is_sign_negative());
    let result = if x < 0.0 && x > f32::NEG_INFINITY && !is_integer { NAN } else { result };
    let result = if x.is_nan() || y.is_nan() { NAN } else { result };
    observed("`math::pow`", [x, y], if x == 1.0 || y == 0.0 { 1.0 } else { result })
}

/// x to the power of an integer, off by at most 1 units in the last place.
///
/// x⁰ is 1, even of a NaN; other powers of a NaN are NaN. Of ±0 it is 0 or, for negative n, ∞, with the sign of x if n is odd, and of
/// ±∞ the other way round.
///
/// As [`pow`], and not by multiplications, which would lose more for large n, and take longer.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn powi(x: f32, n: i32) -> f32 {
    let y = n as f32;
    // Exact: y is an integer, and the two are near to each other.
    let y_low = (i64::from(n) - y as i64) as f32;
    let result = pow_of_magnitude(x.abs(), y, y_low, n & 1 != 0 && x.is_sign_negative());
    let result = if x.is_nan() { NAN } else { result };
    observed("`math::powi`", [x], if n == 0 { 1.0 } else { result })
}

/// a^(y + y_low) for a ≥ 0, with a sign.
#[inline(always)]
fn pow_of_magnitude(a: f32, y: f32, y_low: f32, is_negative: bool) -> f32 {
    let log = log2_pair(a);
    let high = if a == 0.0 { f32::NEG_INFINITY } else { log.high };
    let high = if a == f32::INFINITY { a } else { high };
    let product = Pair::product(high, y);
    let low = fma(high, y_low, fma(log.low, y, product.low));
    // An infinite power of 1, and one of a NaN that is none of these.
    let (high, low) = if a == 1.0 { (0.0, 0.0) } else { (product.high, low) };
    // Beyond these there is nothing but ∞ and 0, and the low part is none.
    let low = if high.abs() < 200.0 { low } else { 0.0 };
    let high = if high > 129.0 { 129.0 } else { high };
    let high = if high < -151.0 { -151.0 } else { high };
    let (n, bits) = nearest_bits(high, 1.0);
    let result = scale_bits(exp2_near_zero((high - n) + low), bits);
    with_sign(result, u32::from(is_negative) << 31)
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    /// Of every significand and parity of the exponent, or of every `step`-th: all numbers within 2⁻²²·⁷ of the root, where the
    /// hardware's approximation is within 2⁻²²·⁹.
    fn assert_that_rsqrt_does_not_depend_on_its_start(step: usize) {
        for bits in (1f32.to_bits()..4f32.to_bits()).step_by(step) {
            let x = f32::from_bits(bits);
            let exact = 1.0 / f64::from(x).sqrt();
            for off in -4i32..=4 {
                let near = f32::from_bits((exact as f32).to_bits().wrapping_add_signed(off));
                if (f64::from(near) / exact - 1.0).abs() <= 2f64.powf(-22.7) {
                    // No root is so near to the middle of two numbers that rounding to f64 first would matter.
                    assert_eq!(rsqrt_from(x, near), exact as f32, "{x:e}, {off} units in the last place off");
                }
            }
        }
    }

    #[test]
    fn rsqrt_does_not_depend_on_its_start() {
        assert_that_rsqrt_does_not_depend_on_its_start(if cfg!(debug_assertions) { 101 } else { 1 });
    }
}
