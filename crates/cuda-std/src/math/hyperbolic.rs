//! Hyperbolic sine, cosine, tangent, and their inverses.

use super::exponential::{exp_near_zero, reduce_to_bits};
use super::logarithm::log_of_pair;
use super::{NAN, Pair, fma, log1p, nearest_bits, observed, power_of_two, reciprocal, sqrt, unobserved, with_sign};

/// The hyperbolic sine, off by at most 1.7 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±∞, that of a NaN is NaN. Beyond ±89.41599 the result is ±∞.
///
/// Below 1 a minimax polynomial; above, (eˣ − e⁻ˣ)/2.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sinh(x: f32) -> f32 {
    let a = x.abs();
    let result = if a < 1.0 {
        let s = a * a;
        // (sinh x − x)/x³
        let p = fma(s, 2.782_213_2e-6, 1.984_289_6e-4);
        let p = fma(s, p, 8.333_310_5e-3);
        let p = fma(s, p, 1.666_666_7e-1);
        fma(a * s, p, a)
    } else {
        exp_and_inverse(a, -1.0)
    };
    observed("`math::sinh`", [x], with_sign(result, x.to_bits()))
}

/// The hyperbolic cosine, off by at most 1.4 units in the last place.
///
/// That of ±0 is 1, that of ±∞ is ∞, that of a NaN is NaN. Beyond ±89.41599 the result is ∞.
///
/// (eˣ + e⁻ˣ)/2.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn cosh(x: f32) -> f32 {
    observed("`math::cosh`", [x], exp_and_inverse(x.abs(), 1.0))
}

/// (eᵃ ± e⁻ᵃ)/2 for a ≥ 0.
#[inline(always)]
fn exp_and_inverse(a: f32, sign: f32) -> f32 {
    // 2⁻¹³⁰
    const INVERSE: f32 = f32::from_bits(1 << 19);
    const UP: f32 = f32::from_bits((127 + 64) << 23);
    // Beyond this there is nothing but ∞. A NaN is not compared with anything, and stays.
    let a = if a > 90.0 { 90.0 } else { a };
    let (r, n) = reduce_to_bits(a);
    // eᵃ·2⁻⁶⁵: half of eᵃ itself may be too large, or be the last step to ∞.
    let power = exp_near_zero(r) * power_of_two(n.wrapping_sub(65));
    fma(reciprocal(power), sign * INVERSE, power) * UP
}

/// The hyperbolic tangent, off by at most 1.6 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±1, that of a NaN is NaN.
///
/// Below 0.6 a minimax polynomial; above, 1 − 2/(e²ˣ + 1).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let result = if a < 0.6 {
        let s = a * a;
        // (tanh x − x)/x³
        let p = fma(s, -5.897_966_7e-3, 2.079_862_5e-2);
        let p = fma(s, p, -5.378_471_7e-2);
        let p = fma(s, p, 1.333_193_6e-1);
        let p = fma(s, p, -3.333_33e-1);
        fma(a * s, p, a)
    } else {
        // Beyond this there is nothing but 1. A NaN is not compared with anything, and stays.
        let bounded = if a > 10.0 { 10.0 } else { a };
        // e²ᵃ = 2ⁿ·e²ʳ, |r| ≤ 0.174. Where n is so large that n·ln 2 has an error that counts, the power does not.
        let (n, bits) = nearest_bits(bounded, 2.0 * core::f32::consts::LOG2_E);
        let r = fma(n, -0.5 * core::f32::consts::LN_2, bounded);
        // (e²ʳ − 1)/r. The coefficients were then varied for the least error of the result.
        let p = fma(r, 0.264_358_9, 0.670_007_6);
        let p = fma(r, p, 1.333_450_7);
        let p = fma(r, p, 1.999_975_2);
        let p = fma(r, p, 1.999_998_9);
        let power = fma(r, p, 1.0);
        fma(-2.0, reciprocal(fma(power, power_of_two(bits), 1.0)), 1.0)
    };
    observed("`math::tanh`", [x], with_sign(result, x.to_bits()))
}

/// The inverse of the hyperbolic sine, off by at most 2.4 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±∞, that of a NaN is NaN.
///
/// Below 1/2 a minimax polynomial; above, ln(x + √(x² + 1)), with a sum in two parts.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn asinh(x: f32) -> f32 {
    let a = x.abs();
    let result = if a < 0.5 {
        let s = a * a;
        // (arsinh x − x)/x³
        let p = fma(s, -1.322_283_8e-2, 2.816_093_5e-2);
        let p = fma(s, p, -4.438_295_6e-2);
        let p = fma(s, p, 7.498_640_6e-2);
        let p = fma(s, p, -1.666_664_3e-1);
        fma(a * s, p, a)
    } else {
        log_or_twice(a, Pair::sum(unobserved(|| sqrt(fma(a, a, 1.0))), a))
    };
    observed("`math::asinh`", [x], with_sign(result, x.to_bits()))
}

/// The inverse of the hyperbolic cosine, off by at most 1.9 units in the last place.
///
/// That of 1 is 0, that of ∞ is ∞, that of a number below 1 or a NaN is NaN.
///
/// ln(x + √(x² − 1)), with a sum in two parts; with t = x − 1, the root is that of t² + 2t.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn acosh(x: f32) -> f32 {
    let t = x - 1.0;
    let sum = Pair::sum(x, unobserved(|| sqrt(fma(t, t, t + t))));
    let result = log_or_twice(x, sum);
    observed("`math::acosh`", [x], if x < 1.0 { NAN } else { result })
}

/// The inverse of the hyperbolic tangent, off by at most 0.95 units in the last place.
///
/// That of ±0 is ±0, that of ±1 is ±∞, that of a number beyond ±1 or a NaN is NaN.
///
/// Below 1/2 a minimax polynomial; above, ln(1 + 2x/(1 − x))/2.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn atanh(x: f32) -> f32 {
    let a = x.abs();
    let result = if a < 0.5 {
        let s = a * a;
        // (artanh x − x)/x³
        let p = fma(s, 1.763_804e-1, 5.160_32e-2);
        let p = fma(s, p, 1.181_640_9e-1);
        let p = fma(s, p, 1.422_378_4e-1);
        let p = fma(s, p, 2.000_245_3e-1);
        let p = fma(s, p, 3.333_330_2e-1);
        fma(a * s, p, a)
    } else {
        0.5 * unobserved(|| log1p(2.0 * a / (1.0 - a)))
    };
    observed("`math::atanh`", [x], with_sign(result, x.to_bits()))
}

/// ln of the sum; for x from 2³⁰ on, where the square may be too large, ln 2x.
#[inline(always)]
fn log_or_twice(x: f32, sum: Pair) -> f32 {
    let is_large = x > 1.0e9;
    let (high, low) = if is_large { (x, 0.0) } else { (sum.high, sum.low) };
    let log = log_of_pair(high, low);
    let (two, two_low) = if is_large { (core::f32::consts::LN_2, -1.904_654_2e-9) } else { (0.0, 0.0) };
    let result = Pair::sum(log.high, two);
    let result = result.high + (result.low + (log.low + two_low));
    if x < f32::INFINITY { result } else { x + x }
}
