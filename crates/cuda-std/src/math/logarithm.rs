//! Logarithms.

use super::{Pair, fma, observed, reciprocal, with_gpu_nan};

/// A number as 2ᵉ·(1 + f), −1/3 ≤ f ≤ 1/3.
struct Split {
    e: f32,
    f: f32,
}

/// The lowest 1 + f: two thirds.
const LOWEST: u32 = 0x3F2A_AAAB;
/// Where the exponent of a number is in its bits, with the sign.
const EXPONENT: u32 = 0xFF80_0000;
const TWO_TO_23: f32 = 8_388_608.0;

/// For positive numbers; anything else is split into something.
#[inline(always)]
fn split(x: f32, lowest: u32) -> Split {
    let is_small = x < f32::MIN_POSITIVE;
    let bits = (if is_small { x * TWO_TO_23 } else { x }).to_bits();
    let exponent = bits.wrapping_sub(lowest) & EXPONENT;
    let f = f32::from_bits(bits.wrapping_sub(exponent)) - 1.0;
    // Where it is, it is the exponent times 2²³.
    Split { e: fma(exponent as i32 as f32, 1.0 / TWO_TO_23, if is_small { -23.0 } else { 0.0 }), f }
}

/// e, where it is in the bits of a number, and f, for normal positive numbers.
#[inline(always)]
fn split_normal(x: f32) -> (u32, f32) {
    let exponent = x.to_bits().wrapping_sub(LOWEST) & EXPONENT;
    (exponent, f32::from_bits(x.to_bits().wrapping_sub(exponent)) - 1.0)
}

/// An exponent that is where it is in the bits of a number.
#[inline(always)]
fn exponent_of(bits: u32) -> f32 {
    bits as i32 as f32 * (1.0 / TWO_TO_23)
}

/// What there is where a logarithm is no finite number: `inside` for positive finite arguments.
#[inline(always)]
fn at_the_ends(x: f32, inside: f32) -> f32 {
    // As unsigned integers, the negative ones are above all of these. ∞·∞ + ∞ is ∞, and anything negative times ∞, +∞, is NaN.
    let is_inside = x.to_bits() < super::INFINITY;
    let result = if is_inside { inside } else { fma(x, f32::INFINITY, f32::INFINITY) };
    with_gpu_nan(if x == 0.0 { f32::NEG_INFINITY } else { result })
}

/// (ln(1 + f) − f)/f² for |f| ≤ 1/3.
#[inline(always)]
fn beyond_f(f: f32) -> f32 {
    let p = fma(f, -1.287_938e-1, 1.398_565_3e-1);
    let p = fma(f, p, -1.218_742_95e-1);
    let p = fma(f, p, 1.400_553_7e-1);
    let p = fma(f, p, -1.668_022_3e-1);
    let p = fma(f, p, 2.001_043_6e-1);
    let p = fma(f, p, -2.499_980_5e-1);
    let p = fma(f, p, 3.333_321_5e-1);
    fma(f, p, -0.5)
}

/// e·ln 2 + ln(1 + f + low), for a low part of f, if there is one, of at most some units in its last place.
#[inline(always)]
fn of_split(e: f32, f: f32, low: Option<f32>) -> Pair {
    // The first part of ln 2 has so few bits that its products with exponents are exact.
    const LN_2_HIGH: f32 = f32::from_bits(0x3F31_7200);
    const LN_2_LOW: f32 = 1.428_606_8e-6;
    let p = beyond_f(f);
    // Either e is 0, and then there is nothing but f, or the product is the larger one: what rounding takes is exact.
    let high = fma(e, LN_2_HIGH, f);
    let lost = f - fma(-e, LN_2_HIGH, high);
    let lost = if let Some(low) = low { lost + low } else { lost };
    Pair { high, low: fma(f * f, p, fma(e, LN_2_LOW, lost)) }
}

/// The natural logarithm, off by at most 0.89 units in the last place.
///
/// That of 1 is 0, that of ±0 is −∞, that of ∞ is ∞, that of a negative number or a NaN is NaN.
///
/// x = 2ᵉ·(1 + f) with −1/3 ≤ f ≤ 1/3, and ln x = e·ln 2 + f + f²·p(f) with a minimax polynomial p, summed with the remainders of
/// the additions (T. J. Dekker, "A floating-point technique for extending the available precision", 1971).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn log(x: f32) -> f32 {
    let Split { e, f } = split(x, LOWEST);
    observed("`math::log`", [x], at_the_ends(x, of_split(e, f, None).rounded()))
}

/// The logarithm to base 2, off by at most 0.92 units in the last place; exact for powers of 2.
///
/// That of 1 is 0, that of ±0 is −∞, that of ∞ is ∞, that of a negative number or a NaN is NaN.
///
/// As [`log`]: e + f·log₂ e + f²·p(f), with log₂ e in two parts and the remainder of the product.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn log2(x: f32) -> f32 {
    const LOG2_E_LOW: f32 = 1.925_963e-8;
    let Split { e, f } = split(x, LOWEST);
    // (log₂(1 + f) − f·log₂ e)/f²
    let p = fma(f, 1.844_039_9e-1, -1.911_620_2e-1);
    let p = fma(f, p, 1.529_104_7e-1);
    let p = fma(f, p, -1.743_775_6e-1);
    let p = fma(f, p, 2.064_977_1e-1);
    let p = fma(f, p, -2.407_788e-1);
    let p = fma(f, p, 2.885_314_2e-1);
    let p = fma(f, p, -3.606_661_6e-1);
    let p = fma(f, p, 4.808_983_8e-1);
    let p = fma(f, p, -7.213_476e-1);
    let high = fma(f, core::f32::consts::LOG2_E, e);
    let low = fma(f, core::f32::consts::LOG2_E, e - high);
    observed("`math::log2`", [x], at_the_ends(x, high + fma(f, fma(f, p, LOG2_E_LOW), low)))
}

/// The logarithm to base 10, off by at most 1.12 units in the last place; exact for powers of 10 that are numbers.
///
/// That of 1 is 0, that of ±0 is −∞, that of ∞ is ∞, that of a negative number or a NaN is NaN.
///
/// As [`log2`], with e·log₁₀ 2 in two parts, the first of them exact.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn log10(x: f32) -> f32 {
    const LOG10_E_LOW: f32 = -1.010_305e-8;
    const LOG10_2_HIGH: f32 = f32::from_bits(0x3E9A_2000);
    const LOG10_2_LOW: f32 = 4.605_039e-6;
    let Split { e, f } = split(x, LOWEST);
    // (log₁₀(1 + f) − f·log₁₀ e)/f²
    let p = fma(f, 5.193_58e-2, -5.554_979e-2);
    let p = fma(f, p, 4.675_317e-2);
    let p = fma(f, p, -5.301_094_4e-2);
    let p = fma(f, p, 6.212_056_4e-2);
    let p = fma(f, p, -7.243_696e-2);
    let p = fma(f, p, 8.685_715e-2);
    let p = fma(f, p, -1.085_727_3e-1);
    let p = fma(f, p, 1.447_648_4e-1);
    let p = fma(f, p, -2.171_472_5e-1);
    let of_e = e * LOG10_2_HIGH;
    let high = fma(f, core::f32::consts::LOG10_E, of_e);
    let low = fma(f, core::f32::consts::LOG10_E, of_e - high);
    let low = fma(e, LOG10_2_LOW, low);
    observed("`math::log10`", [x], at_the_ends(x, high + fma(f, fma(f, p, LOG10_E_LOW), low)))
}

/// ln(1 + x), without the loss that the addition has where x is small; off by at most 0.94 units in the last place.
///
/// That of ±0 is ±0, that of −1 is −∞, that of ∞ is ∞, that of a number below −1 or a NaN is NaN.
///
/// 1 + x = 2ᵉ·(1 + f), f and what rounding takes from it from 2⁻ᵉ·x + (2⁻ᵉ − 1); then as [`log`].
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn log1p(x: f32) -> f32 {
    // Where x is at least 2⁻²⁴ in magnitude or e is 0, its exponent minus e is one that a number can have.
    let one_more = 1.0 + x;
    let exponent = one_more.to_bits().wrapping_sub(LOWEST) & EXPONENT;
    let scaled = f32::from_bits(x.to_bits().wrapping_sub(exponent));
    // A quarter of 2⁻ᵉ can be too small for a normal number, four times it cannot.
    let minus_one = fma(0.25, f32::from_bits(4.0f32.to_bits().wrapping_sub(exponent)), -1.0);
    // It is 0, or at least half of the other one: of what is half to twice as large, and has the other sign, the sum is exact.
    let Pair { high: f, low } = Pair::sum(minus_one, scaled);
    let inside = of_split(exponent_of(exponent), f, Some(fma(-low, f, low))).rounded();
    // The sign is that of x; the sum loses that of a zero.
    let inside = f32::from_bits(inside.to_bits() & !super::SIGN | x.to_bits() & super::SIGN);
    observed("`math::log1p`", [x], at_the_ends(one_more, inside))
}

/// ln(high + low) as a sum of two, of which the second is not that small, for normal `high` and a low part of some units in its last place.
#[inline(always)]
pub(super) fn log_of_pair(high: f32, low: f32) -> Pair {
    let (exponent, f) = split_normal(high);
    // 2⁻ᵉ is a normal number for e up to 126, and beyond that nobody needs the low part.
    let low = 0.25 * (low * f32::from_bits(4.0f32.to_bits().wrapping_sub(exponent)));
    of_split(exponent_of(exponent), f, Some(fma(-low, f, low)))
}

/// ln x as a sum of two, of which the second is not that small, for normal positive x.
#[inline(always)]
pub(super) fn log_of_normal(x: f32) -> Pair {
    let (exponent, f) = split_normal(x);
    of_split(exponent_of(exponent), f, None)
}

/// log₂ x as a pair with a relative error of about 2⁻³⁴, for positive finite numbers.
///
/// x = 2ᵉ·m; with q = (m − 1)/(m + 1), ln m = 2·artanh q = 2·(q + q³/3 + q⁵/5 + …), |q| ≤ 0.172.
#[inline(always)]
pub(super) fn log2_pair(x: f32) -> Pair {
    const LOWEST: u32 = 0x3F35_04F3;
    const THIRD: f32 = 1.0 / 3.0;
    const THIRD_LOW: f32 = -9.934_108e-9;
    const TWO_LOG2_E: f32 = 2.885_39;
    const TWO_LOG2_E_LOW: f32 = 3.851_926e-8;
    let Split { e, f: numerator } = split(x, LOWEST);

    // m − 1 is exact, m + 1 has two parts; the quotient has, too.
    let denominator = numerator + 2.0;
    let denominator_low = numerator - (denominator - 2.0);
    let inverse = reciprocal(denominator);
    let q = numerator * inverse;
    let remainder = fma(-q, denominator_low, fma(-q, denominator, numerator));
    let q_low = remainder * inverse;
    // q² and q³
    let square = Pair::product(q, q);
    let square_low = fma(2.0 * q, q_low, square.low);
    let cube = Pair::product(square.high, q);
    let cube_low = fma(square_low, q, fma(square.high, q_low, cube.low));
    // 1/3 + q²/5 + …
    let w = square.high;
    let p = fma(w, 1.170_995e-1, 1.427_354_2e-1);
    let p = w * fma(w, p, 2.000_007_6e-1);
    let factor = Pair::sum(THIRD, p);
    let beyond = Pair::product(cube.high, factor.high);
    let beyond_low = fma(cube.high, factor.low + THIRD_LOW, fma(cube_low, factor.high, beyond.low));
    let sum = Pair::sum(q, beyond.high);
    let sum_low = sum.low + (q_low + beyond_low);
    let log = Pair::product(sum.high, TWO_LOG2_E);
    let log_low = fma(sum.high, TWO_LOG2_E_LOW, fma(sum_low, TWO_LOG2_E, log.low));
    let result = Pair::sum(e, log.high);
    Pair::sum(result.high, result.low + log_low)
}
