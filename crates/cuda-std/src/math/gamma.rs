//! The gamma function and its logarithm.

use super::exponential::exp2_near_zero;
use super::logarithm::{log_of_normal, log2_pair};
use super::trigonometric::{reduce_pi, sinpi_or_cospi};
use super::{NAN, Pair, fma, log, nearest, observed, reciprocal, round_ties_even, scale, unobserved, with_sign};

/// The gamma function, off by at most 3.9 units in the last place.
///
/// Γ(n) is (n − 1)!. That of ±0 is ±∞, that of ∞ is ∞, that of a negative integer, −∞ or a NaN is NaN. Above 35.0401 the result is ∞;
/// below −42 it is ±0.
///
/// From −2.5 to 3.5, 1/Γ(1 + f) is a minimax polynomial for |f| ≤ 1/2, and Γ(x + 1) = x·Γ(x) does the rest. Beyond 3.5 it is
/// Stirling's formula, x^(x − 1/2)·e⁻ˣ·p(1/x), with the exponent in two parts, and below −2.5 Γ(−x) = −π/(x·sin(πx)·Γ(x)).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn tgamma(x: f32) -> f32 {
    let result = if x > -2.5 && x < 3.5 { tgamma_near_zero(x) } else { tgamma_far(x) };
    observed("`math::tgamma`", [x], result)
}

/// For x between −2.5 and 3.5.
#[inline(always)]
fn tgamma_near_zero(x: f32) -> f32 {
    let k = round_ties_even(x);
    let f = if k == 0.0 { x } else { x - k };
    // 1/Γ(1 + f)
    let p = fma(f, 1.878_314_7e-4, -1.860_178_9e-4);
    let p = fma(f, p, -1.195_979_4e-3);
    let p = fma(f, p, 7.198_113_5e-3);
    let p = fma(f, p, -9.616_948e-3);
    let p = fma(f, p, -4.219_348e-2);
    let p = fma(f, p, 1.665_383_3e-1);
    let p = fma(f, p, -4.200_295_4e-2);
    let p = fma(f, p, -6.558_780_7e-1);
    let p = fma(f, p, 5.772_157e-1);
    let p = fma(f, p, 1.0);
    // Γ(x) = Γ(1 + f)·numerator/denominator. The numbers are x and its neighbours, all of them exact.
    let denominator = if k < 1.0 { f } else { 1.0 };
    let denominator = if k < 0.0 { denominator * x } else { denominator };
    let denominator = if k < -1.0 { denominator * (x + 1.0) } else { denominator };
    let numerator = if k > 1.0 { x - 1.0 } else { 1.0 };
    let numerator = if k > 2.0 { numerator * (x - 2.0) } else { numerator };
    let is_pole = f == 0.0 && k < 0.0;
    let result = numerator / (denominator * p);
    if is_pole { NAN } else { result }
}

/// For x below −2.5 and above 3.5, and for a NaN.
#[inline(always)]
fn tgamma_far(x: f32) -> f32 {
    let a = x.abs();
    // Beyond this there is nothing but ∞ and 0. A NaN is not compared with anything, and stays.
    let bounded = if a > 50.0 { 50.0 } else { a };
    let log = log2_pair(bounded);
    // log₂ of a^(a − 1/2)·e⁻ᵃ
    let factor = bounded - 0.5;
    let of_log = Pair::product(factor, log.high);
    let of_e = Pair::product(bounded, -core::f32::consts::LOG2_E);
    let high = Pair::sum_of_any(of_log.high, of_e.high);
    let low = high.low + fma(factor, log.low, of_log.low) + fma(bounded, -1.925_963e-8, of_e.low);
    let (n, bits) = nearest(high.high, 1.0);
    let power = exp2_near_zero((high.high - n) + low);
    // Γ(a)·eᵃ/a^(a − 1/2), in 1/a
    let t = reciprocal(bounded);
    let p = fma(t, 1.214_148e-3, -1.414_965e-4);
    let p = fma(t, p, -6.815_813_5e-3);
    let p = fma(t, p, 8.712_227e-3);
    let p = fma(t, p, 2.088_854_3e-1);
    let p = fma(t, p, 2.506_628_3);
    let gamma = p * power;
    // |sin πa|, and whether the number of integers below x is odd.
    let (r, quadrant) = reduce_pi(a);
    let sine = sinpi_or_cospi(r, quadrant & 1 != 0);
    let is_positive = quadrant & 2 != 0;
    let sine = if r < 0.0 && quadrant & 1 == 0 { -sine } else { sine };
    let is_positive = if r < 0.0 && quadrant & 1 == 0 { !is_positive } else { is_positive };
    let with_sine = Pair::product(bounded, sine);
    let divisor = Pair::product(with_sine.high, gamma);
    let reflected = core::f32::consts::PI / divisor.high;
    // What the division leaves, and what the products have lost; π has another part, of −2.8·10⁻⁸ of it.
    let lost = fma(with_sine.low, gamma, divisor.low);
    let left = fma(-reflected, lost, fma(-reflected, divisor.high, core::f32::consts::PI));
    let reflected = fma(reflected, fma(left, core::f32::consts::FRAC_1_PI, -2.782_753_6e-8), reflected);
    let reflected = with_sign(reflected, u32::from(!is_positive) << 31);
    let is_pole = r == 0.0 && quadrant & 1 == 0;
    let is_negative = x < 0.0;
    let result =
        scale(if is_negative { reflected } else { gamma }, if is_negative { bits.wrapping_neg() } else { bits });
    let is_infinite = x > 36.0;
    let result = if is_infinite { x + f32::INFINITY } else { result };
    if is_negative && (is_pole || a == f32::INFINITY) { NAN } else { result }
}

/// ln |Γ(x)|, off by at most 5.4 units in the last place; between −10.001 and −2.264, where it is 0 again and again, by at most
/// 1.7·10⁻⁶.
///
/// That of 1 and 2 is 0, that of ±0, a negative integer or ±∞ is ∞, that of a NaN is NaN.
///
/// Around 1 and 2 minimax polynomials times x − 1 and x − 2, around 0 lnΓ(x + 1) − ln |x|, from 3 on Stirling's formula
/// (x − 1/2)·(ln x − 1) + p(1/x) with the logarithm in two parts up to the subtraction, and for negative x Γ(−x) = −π/(x·sin(πx)·Γ(x)).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn lgamma(x: f32) -> f32 {
    let a = x.abs();
    let is_near_zero = a < 0.25;
    let of_magnitude = if a < 1.5 {
        // Around 0 there is no reflection: both signs are the polynomial's.
        let y = if is_near_zero { x } else { a };
        let is_of_zero = y < 0.75;
        let f = if is_of_zero { y } else { y - 1.0 };
        let of_one = f * lgamma_beside_one(f);
        // Not −0 at 1.
        if is_of_zero { of_one - unobserved(|| log(a)) } else { of_one + 0.0 }
    } else if a < 3.0 {
        let f = a - 2.0;
        f * lgamma_beside_two(f)
    } else {
        lgamma_stirling(a)
    };
    let result = if x < 0.0 && !is_near_zero {
        let (r, quadrant) = reduce_pi(a);
        let sine = sinpi_or_cospi(r, quadrant & 1 != 0).abs();
        let reflected = unobserved(|| log(core::f32::consts::PI / (a * sine))) - of_magnitude;
        if sine == 0.0 { f32::INFINITY } else { reflected }
    } else {
        of_magnitude
    };
    observed("`math::lgamma`", [x], if a == f32::INFINITY { a } else { result })
}

/// lnΓ(1 + f)/f for −1/4 ≤ f ≤ 3/4.
#[inline(always)]
fn lgamma_beside_one(f: f32) -> f32 {
    let p = fma(f, -1.347_661_95e-2, 5.305_715e-2);
    let p = fma(f, p, -9.897_748e-2);
    let p = fma(f, p, 1.279_341_6e-1);
    let p = fma(f, p, -1.462_223_7e-1);
    let p = fma(f, p, 1.698_025_2e-1);
    let p = fma(f, p, -2.073_028_7e-1);
    let p = fma(f, p, 2.705_658_4e-1);
    let p = fma(f, p, -4.006_865_6e-1);
    let p = fma(f, p, 8.224_672e-1);
    fma(f, p, -5.772_157e-1)
}

/// lnΓ(2 + f)/f for −1/2 ≤ f ≤ 1.
#[inline(always)]
fn lgamma_beside_two(f: f32) -> f32 {
    let p = fma(f, -7.100_44e-5, 2.219_808_8e-4);
    let p = fma(f, p, -3.053_64e-4);
    let p = fma(f, p, 4.632_96e-4);
    let p = fma(f, p, -1.141_220_7e-3);
    let p = fma(f, p, 2.894_373_8e-3);
    let p = fma(f, p, -7.395_473_3e-3);
    let p = fma(f, p, 2.058_090_6e-2);
    let p = fma(f, p, -6.735_166e-2);
    let p = fma(f, p, 3.224_670_3e-1);
    fma(f, p, 4.227_843_3e-1)
}

/// lnΓ(a) for a ≥ 3.
#[inline(always)]
fn lgamma_stirling(a: f32) -> f32 {
    // ln √(2π) − 1/2
    const CONSTANT: f32 = 0.418_938_55;
    // A number beyond the first has nothing of its inverse left in the result.
    let t = reciprocal(if a > 1e30 { 1e30 } else { a });
    let s = t * t;
    let p = fma(s, -4.202_044_2e-4, 7.783_499e-4);
    let p = fma(s, p, -2.777_252e-3);
    let p = fma(s, p, 8.333_333e-2);
    let log = log_of_normal(a);
    let less = (log.high - 1.0) + log.low;
    fma(a - 0.5, less, fma(t, p, CONSTANT))
}
