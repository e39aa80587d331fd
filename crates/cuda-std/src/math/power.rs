//! Roots and powers.

use super::exponential::exp2_near_zero;
use super::logarithm::log2_pair;
use super::{
    NAN, Pair, fast, fma, is_normal_and_positive, nearest, round_ties_even, scale, sqrt, with_gpu_nan, with_sign,
};

/// One over the square root, correctly rounded. That of ±0 is ±∞, that of ∞ is 0, that of a negative number NaN.
///
/// The hardware's approximation, one step of Newton's method, and one of Householder's with a remainder in two parts. After that it is the
/// number nearest to the root, whichever of the 17 numbers around the root it began with: a test tries all of them for all
/// significands. So the bits are the same, though those of the approximation are not.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    const UP: f32 = f32::from_bits((127 + 64) << 23);
    const ROOT_OF_UP: f32 = f32::from_bits((127 + 32) << 23);
    if is_normal_and_positive(x) {
        return rsqrt_from(x, fast::rsqrt_of_normal(x));
    }
    let scaled = x * UP;
    let of_subnormal = rsqrt_from(scaled, fast::rsqrt_of_normal(scaled)) * ROOT_OF_UP;
    with_gpu_nan(if x > 0.0 && x < f32::INFINITY { of_subnormal } else { 1.0 / sqrt(x) })
}

/// One over the square root of a normal number, from a number near it.
#[inline(always)]
fn rsqrt_from(x: f32, near: f32) -> f32 {
    let y = near;
    let y = fma(0.5 * y, fma(-(x * y), y, 1.0), y);
    // e = 1 − x·y²
    let root = Pair::product(x, y);
    let e = fma(-root.low, y, fma(-root.high, y, 1.0));
    // 1/√(1 − e) = 1 + e/2 + 3e²/8 + …
    fma(y * e, fma(0.375, e, 0.5), y)
}

/// The cube root, off by at most 0.6 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±∞, that of a NaN is NaN.
///
/// With y near 1/∛x, it is x·y², and one step of Newton's method with a remainder in two parts.
#[inline(always)]
pub fn cbrt(x: f32) -> f32 {
    let (a, is_small) = scaled_for_cube(x);
    let y = near_rcbrt(a);
    let square = y * y;
    let root = a * square;
    let of_root = Pair::product(root, root);
    let remainder = fma(-of_root.low, root, fma(-of_root.high, root, a));
    let result = fma(remainder, square * THIRD, root);
    let result = if is_small { result * f32::from_bits((127 - 32) << 23) } else { result };
    with_gpu_nan(if a > 0.0 && a < f32::INFINITY { with_sign(result, x.to_bits()) } else { x + x })
}

/// One over the cube root, off by at most 0.52 units in the last place.
///
/// That of ±0 is ±∞, that of ±∞ is ±0, that of a NaN is NaN.
///
/// A guess from the exponent, a step of fourth order, and one of Newton's method with a remainder in two parts.
#[inline(always)]
pub fn rcbrt(x: f32) -> f32 {
    let (a, is_small) = scaled_for_cube(x);
    let y = near_rcbrt(a);
    let (square, product) = (Pair::product(y, y), Pair::product(y, a));
    let remainder = fma(-square.high, product.high, 1.0);
    let remainder = remainder - fma(square.high, product.low, square.low * product.high);
    let result = fma(y * remainder, THIRD, y);
    let result = if is_small { result * f32::from_bits((127 + 32) << 23) } else { result };
    let at_end = if a == 0.0 { f32::INFINITY } else { 0.0 };
    let result = if a > 0.0 && a < f32::INFINITY { result } else { at_end };
    with_gpu_nan(if x.is_nan() { x + x } else { with_sign(result, x.to_bits()) })
}

const THIRD: f32 = 1.0 / 3.0;

/// The magnitude of x, or 2⁹⁶ times it where it is so small that remainders would be subnormal.
#[inline(always)]
fn scaled_for_cube(x: f32) -> (f32, bool) {
    let a = x.abs();
    let is_small = a < f32::from_bits((127 - 64) << 23);
    (if is_small { a * f32::from_bits((127 + 96) << 23) } else { a }, is_small)
}

/// 1/∛a within 2·10⁻⁵ of it, for normal a.
#[inline(always)]
fn near_rcbrt(a: f32) -> f32 {
    // Within 3.4 % of it: an exponent is a logarithm, and its third is that of the root.
    const OFFSET: u32 = 0x54A1_F400;
    let y = f32::from_bits(OFFSET.wrapping_sub(a.to_bits() / 3));
    // With h = 1 − a·y³, 1/∛a = y·(1 − h)^(−1/3).
    let h = fma(-(y * y), y * a, 1.0);
    let p = fma(h, 14.0 / 81.0, 2.0 / 9.0);
    fma(y * h, fma(h, p, THIRD), y)
}

/// √(x² + y²), without the overflow or underflow of squares; off by at most 1.1 units in the last place.
///
/// If either is ±∞, it is ∞, even if the other is a NaN; else if either is a NaN, it is NaN.
///
/// Scaled by a power of 2; then a fused sum of squares and its square root.
#[inline(always)]
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
    let result = sqrt(fma(a, a, b * b)) * back;
    with_gpu_nan(if x == f32::INFINITY || y == f32::INFINITY { f32::INFINITY } else { result })
}

/// x to the power of y, off by at most 1 units in the last place.
///
/// As C has it: x⁰ and 1ʸ are 1, even of a NaN. Of other NaNs it is NaN, and so it is of a negative x and a y that is no integer. Of
/// ±0 it is 0 or, for negative y, ∞, with the sign of x if y is an odd integer, and of ±∞ the other way round. (−1)^±∞ is 1.
///
/// log₂ x in two parts with a relative error of about 2⁻³⁴, their product with y in two parts, and then as [`exp2`](super::exp2).
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let half = 0.5 * y;
    let is_integer = round_ties_even(y) == y;
    // Numbers from 2²⁴ on are even.
    let is_odd = is_integer && round_ties_even(half) != half;
    let result = pow_of_magnitude(x.abs(), y, 0.0, is_odd && x.is_sign_negative());
    let result = if x < 0.0 && x > f32::NEG_INFINITY && !is_integer { NAN } else { result };
    let result = if x.is_nan() || y.is_nan() { NAN } else { result };
    with_gpu_nan(if x == 1.0 || y == 0.0 { 1.0 } else { result })
}

/// x to the power of an integer, off by at most 1 units in the last place.
///
/// x⁰ is 1, even of a NaN; other powers of a NaN are NaN. Of ±0 it is 0 or, for negative n, ∞, with the sign of x if n is odd, and of
/// ±∞ the other way round.
///
/// As [`pow`], and not by multiplications, which would lose more for large n, and take longer.
#[inline(always)]
pub fn powi(x: f32, n: i32) -> f32 {
    let y = n as f32;
    // Exact: y is an integer, and the two are near to each other.
    let y_low = (i64::from(n) - y as i64) as f32;
    let result = pow_of_magnitude(x.abs(), y, y_low, n & 1 != 0 && x.is_sign_negative());
    let result = if x.is_nan() { NAN } else { result };
    with_gpu_nan(if n == 0 { 1.0 } else { result })
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
    let (n, bits) = nearest(high, 1.0);
    let result = scale(exp2_near_zero((high - n) + low), bits);
    with_sign(result, u32::from(is_negative) << 31)
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    /// Of every significand and parity of the exponent, or of every `step`-th.
    fn assert_that_rsqrt_does_not_depend_on_its_start(step: usize) {
        for bits in (1f32.to_bits()..4f32.to_bits()).step_by(step) {
            let x = f32::from_bits(bits);
            let exact = 1.0 / f64::from(x).sqrt();
            for off in -8i32..=8 {
                let near = f32::from_bits((exact as f32).to_bits().wrapping_add_signed(off));
                // No root is so near to the middle of two numbers that rounding to f64 first would matter.
                assert_eq!(rsqrt_from(x, near), exact as f32, "{x:e}, {off} units in the last place off");
            }
        }
    }

    #[test]
    fn rsqrt_does_not_depend_on_its_start() {
        assert_that_rsqrt_does_not_depend_on_its_start(if cfg!(debug_assertions) { 101 } else { 1 });
    }
}
