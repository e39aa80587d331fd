//! Powers of e, 2 and 10.

use super::{Pair, add_to_exponent, fma, nearest, nearest_bits, observed, scale_bits, with_gpu_nan};

/// ln 2 in two parts: the first has so few bits that its products with integers of 8 bits, and what they leave of x, are exact.
const LN_2_HIGH: f32 = f32::from_bits(0x3F31_7200);
const LN_2_LOW: f32 = 1.428_606_8e-6;

/// eˣ, off by at most 1.88 units in the last place.
///
/// e⁰ is 1, e^−∞ is 0, e^∞ is ∞, that of NaN is NaN. Above 88.722832 the result is ∞, below −87.33654 it is subnormal, and from
/// −103.972084 down it is 0.
///
/// With n the integer nearest to x/ln 2 and r = x − n·ln 2, eˣ = 2ⁿ·eʳ, |r| ≤ 0.347. Up to ±87 n is added to the exponent of eʳ.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn exp(x: f32) -> f32 {
    let (power, n) = exp_parts(x);
    let result = add_to_exponent(power, n);
    // Not true of a NaN.
    observed("`math::exp`", [x], if x.abs() <= 87.0 { result } else { of_any(x, [-104.0, 89.0], exp_parts) })
}

/// 2ⁿ·power of numbers that are large, or none, by their power and n between two numbers, beyond which there is nothing but 0 and ∞.
#[inline(always)]
fn of_any(x: f32, [least, most]: [f32; 2], parts: impl Fn(f32) -> (f32, u32)) -> f32 {
    core::hint::cold_path();
    // A NaN is not compared with anything, and stays.
    let x = if x > most { most } else { x };
    let x = if x < least { least } else { x };
    let (power, n) = parts(x);
    with_gpu_nan(scale_bits(power, n))
}

/// eˣ = 2ⁿ·power, for x between −104 and 89; the last bits of n. Of other numbers: anything.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, u32) {
    let (r, n) = reduce_to_bits(x);
    // (eʳ − 1)/r. The coefficients were then varied for the least error of what is rounded.
    let p = fma(r, 0.008_265_559, 0.041_901_868);
    let p = fma(r, p, 0.166_681_42);
    let p = fma(r, p, 0.499_991_06);
    let p = fma(r, p, 0.999_999_46);
    (fma(r, p, 1.0), n)
}

/// 2ˣ, off by at most 0.88 units in the last place; exact for integers.
///
/// 2^−∞ is 0, 2^∞ is ∞, that of NaN is NaN. From 128 on the result is ∞, up to −150 it is 0; below −126 it is subnormal.
///
/// With n the integer nearest to x and r = x − n, which is exact, 2ˣ = 2ⁿ·2ʳ, |r| ≤ 1/2. No branch: kernels that compute many at once
/// have them side by side.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn exp2(x: f32) -> f32 {
    // Beyond these there is nothing but ∞ and 0. A NaN is not compared with anything, and stays.
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };

    let (n, bits) = nearest_bits(x, 1.0);
    observed("`math::exp2`", [x], scale_bits(exp2_near_zero(x - n), bits))
}

/// 10ˣ, off by at most 1.01 units in the last place; exact for integers from 0 to 10.
///
/// 10^−∞ is 0, 10^∞ is ∞, that of NaN is NaN. Above 38.531837 the result is ∞, below −37.92978 it is subnormal, and from −45.154503
/// down it is 0.
///
/// With n the integer nearest to x·log₂ 10 and r = x − n·log₁₀ 2, 10ˣ = 2ⁿ·10ʳ, |r| ≤ 0.151. Up to ±37.5 n is added to the exponent
/// of 10ʳ.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn exp10(x: f32) -> f32 {
    let (power, n) = exp10_parts(x);
    let result = add_to_exponent(power, n);
    // Not true of a NaN.
    observed("`math::exp10`", [x], if x.abs() <= 37.5 { result } else { of_any(x, [-46.0, 39.0], exp10_parts) })
}

/// 10ˣ = 2ⁿ·power, for x between −46 and 39; the last bits of n. Of other numbers: anything.
#[inline(always)]
fn exp10_parts(x: f32) -> (f32, u32) {
    // As for ln 2.
    const LOG10_2_HIGH: f32 = f32::from_bits(0x3E9A_2000);
    const LOG10_2_LOW: f32 = 4.605_039e-6;
    let (n, bits) = nearest_bits(x, core::f32::consts::LOG2_10);
    let r = fma(n, -LOG10_2_LOW, fma(n, -LOG10_2_HIGH, x));
    // (10ʳ − 1)/r
    let p = fma(r, 0.206_166_48, 0.541_826_4);
    let p = fma(r, p, 1.171_295_2);
    let p = fma(r, p, 2.034_656);
    let p = fma(r, p, 2.650_948_8);
    let p = fma(r, p, core::f32::consts::LN_10);
    (fma(r, p, 1.0), bits)
}

/// eˣ − 1, without the loss that the subtraction has where x is small; off by at most 0.95 units in the last place.
///
/// That of ±0 is ±0, that of −∞ is −1, that of ∞ is ∞, that of NaN is NaN. Above 88.722832 the result is ∞.
///
/// With n and r as in [`exp`], but n = 0 up to |x| = 0.41, it is 2ⁿ·(eʳ − 1) + (2ⁿ − 1), where both terms are known to more bits than
/// the result has.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn expm1(x: f32) -> f32 {
    let is_zero = x == 0.0;
    // Beyond these there is nothing but ∞ and −1. A NaN is not compared with anything, and stays.
    let given = x;
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -30.0 { -30.0 } else { x };

    let (n, bits) = nearest(x, core::f32::consts::LOG2_E);
    let is_near = x.abs() < 0.41;
    let (n, bits) = if is_near { (0.0, 0) } else { (n, bits) };
    let reduced = fma(n, -LN_2_HIGH, x);
    let r = fma(n, -LN_2_LOW, reduced);
    let rest = fma(n, -LN_2_LOW, reduced - r);
    // (eʳ − 1 − r)/r²
    let p = fma(r, 1.984_506_7e-4, 1.395_471_3e-3);
    let p = fma(r, p, 8.333_468e-3);
    let p = fma(r, p, 4.166_626e-2);
    let p = fma(r, p, 1.666_666_6e-1);
    let p = fma(r, p, 0.5);
    // From 2²⁵ on, 2ⁿ − 1 is no number: of 2ⁿ·(eʳ − 1 − 2⁻ⁿ) + 2ⁿ both are.
    let is_large = bits > 24;
    let inverse = f32::from_bits((127i32.wrapping_sub(if bits > 100 { 100 } else { bits }) as u32) << 23);
    let rest = if is_large { rest - inverse } else { rest };
    let of_r = r + fma(r * r, p, rest);
    // 2¹²⁸ is no number: half of it, and twice the result.
    let is_last = bits == 128;
    let power = f32::from_bits((bits.wrapping_add(if is_last { 126 } else { 127 }) as u32) << 23);
    let result = fma(power, of_r, if is_large { power } else { power - 1.0 });
    let result = if is_last { result + result } else { result };
    observed("`math::expm1`", [x], if is_zero { given } else { result })
}

/// x = n·ln 2 + r + rest, |r| ≤ 0.347 and the rest what r has no bits for.
pub(super) struct Reduced {
    pub(super) r: f32,
    pub(super) rest: f32,
    pub(super) n: i32,
}

/// For x between −104 and 90.
#[inline(always)]
pub(super) fn reduce(x: f32) -> Reduced {
    let (n, bits) = nearest(x, core::f32::consts::LOG2_E);
    let reduced = fma(n, -LN_2_HIGH, x);
    let r = fma(n, -LN_2_LOW, reduced);
    // What rounding has taken from r.
    let rest = fma(n, -LN_2_LOW, reduced - r);
    Reduced { r, rest, n: bits }
}

/// x = n·ln 2 + r, |r| ≤ 0.347, for x between −104 and 90; the last bits of n.
#[inline(always)]
pub(super) fn reduce_to_bits(x: f32) -> (f32, u32) {
    let (n, bits) = nearest_bits(x, core::f32::consts::LOG2_E);
    (fma(n, -LN_2_LOW, fma(n, -LN_2_HIGH, x)), bits)
}

/// eʳ for |r| ≤ 0.347.
#[inline(always)]
pub(super) fn exp_near_zero(r: f32) -> f32 {
    // (eʳ − 1)/r
    let p = fma(r, 0.001_383_832_4, 0.008_369_165_5);
    let p = fma(r, p, 0.041_668_102);
    let p = fma(r, p, 0.166_665_17);
    let p = fma(r, p, 0.499_999_94);
    let p = fma(r, p, 1.0);
    fma(r, p, 1.0)
}

/// e^(r + rest) − 1 − r, for |r| ≤ 0.347.
#[inline(always)]
pub(super) fn minus_one_and_r(r: f32, rest: f32) -> f32 {
    // (eʳ − 1 − r)/r²
    let p = fma(r, 0.001_381_460_7, 0.008_368_711);
    let p = fma(r, p, 0.041_668_39);
    let p = fma(r, p, 0.166_665_21);
    let p = fma(r, p, 0.499_999_94);
    fma(r * r, p, rest)
}

/// e^(x + rest) = 2ⁿ·(high + low), for x between −104 and 90 and a rest of at most some units in its last place.
#[inline(always)]
pub(super) fn exp_pair(x: f32, rest: f32) -> (Pair, i32) {
    let reduced = reduce(x);
    let r = Pair::sum(reduced.r, reduced.rest + rest);
    let small = Pair::sum(r.high, minus_one_and_r(r.high, r.low));
    let power = Pair::sum(1.0, small.high);
    (Pair { high: power.high, low: power.low + small.low }, reduced.n)
}

/// 2ʳ for |r| ≤ 1/2.
#[inline(always)]
pub(super) fn exp2_near_zero(r: f32) -> f32 {
    // (2ʳ − 1)/r
    let p = fma(r, 0.000_153_285_96, 0.001_339_098_8);
    let p = fma(r, p, 0.009_618_501);
    let p = fma(r, p, 0.055_503_596);
    let p = fma(r, p, 0.240_226_48);
    let p = fma(r, p, core::f32::consts::LN_2);
    fma(r, p, 1.0)
}
