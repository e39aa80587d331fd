//! Integers near a number, remainders, and the parts of a number.

use super::{NAN, fast, fma, observed, with_gpu_nan, with_sign};

/// One intrinsic on the GPU, and one method on the CPU.
macro_rules! to_integer {
    ($x:ident, $intrinsic:ident, $method:ident) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            core::intrinsics::$intrinsic($x)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            with_gpu_nan($x.$method())
        }
    }};
}

/// The nearest integer that is not above x. That of −0 is −0, that of ±∞ is ±∞, that of a NaN is NaN. Exact
/// (`cvt.rmi.f32.f32`).
#[inline(always)]
pub fn floor(x: f32) -> f32 {
    to_integer!(x, floorf32, floor)
}

/// The nearest integer that is not below x. That of numbers between −1 and −0 is −0, that of ±∞ is ±∞, that of a NaN is NaN.
/// Exact (`cvt.rpi.f32.f32`).
#[inline(always)]
pub fn ceil(x: f32) -> f32 {
    to_integer!(x, ceilf32, ceil)
}

/// The nearest integer that is not beyond x, seen from 0, and with its sign. That of ±∞ is ±∞, that of a NaN is NaN. Exact
/// (`cvt.rzi.f32.f32`).
#[inline(always)]
pub fn trunc(x: f32) -> f32 {
    to_integer!(x, truncf32, trunc)
}

/// The nearest integer, the even one of two that are equally near, with the sign of x. That of ±∞ is ±∞, that of a NaN is NaN.
/// Exact (`cvt.rni.f32.f32`).
#[inline(always)]
pub fn round_ties_even(x: f32) -> f32 {
    to_integer!(x, round_ties_even_f32, round_ties_even)
}

/// The nearest integer, the one farther from 0 of two that are equally near, with the sign of x, as C's `round` and Rust's have it.
/// That of ±∞ is ±∞, that of a NaN is NaN. Exact.
///
/// What is added before the digits are cut off is the largest number below 1/2: with 1/2 itself, 0.49999997 would become 1.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    const HALF: f32 = 0.5f32.next_down();
    with_gpu_nan(with_sign(trunc(x.abs() + HALF), x.to_bits()))
}

/// x less the multiple of y that is nearest to it on the side of 0: it has the sign of x, and a smaller magnitude than y. Exact.
///
/// For y = ±∞ and finite x, or x = ±0 and y ≠ 0, it is x. For y = 0, x = ±∞ or a NaN it is NaN.
///
/// A quotient that is an integer near x/y, whose product with y is subtracted. If what is left is not between 0 and y, which it is for
/// |x/y| below 2²¹, it is done again, in a branch, by quotients of at most 23 bits, of which there are at most 13.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn fmod(x: f32, y: f32) -> f32 {
    let (a, b) = (x.abs(), y.abs());
    let r = less_multiple(a, b);
    // As unsigned integers: what is negative or a NaN is not below b, and nothing is left of an infinity but a NaN.
    if with_gpu_nan(r).to_bits() < b.to_bits() {
        return f32::from_bits(r.to_bits() | x.to_bits() & super::SIGN);
    }
    core::hint::cold_path();
    let is_valid = a < f32::INFINITY && b > 0.0;
    let r = if is_valid && b < f32::INFINITY { divide(a, b).0 } else { a };
    observed("`math::fmod`", [x, y], if is_valid && !y.is_nan() { with_sign(r, x.to_bits()) } else { NAN })
}

/// a less some multiple of b, which is the right one if this is from 0 to b: then nothing has been rounded.
///
/// The multiple depends on the approximation of 1/b; what it is from 0 to b does not.
#[inline(always)]
fn less_multiple(a: f32, b: f32) -> f32 {
    // Numbers from 2²² to 2²³ are multiples of 1/2.
    const ROUND: f32 = 6_291_456.0;
    // To the nearest half, and then down to an integer: it is one too large only if a/b is 3/4 or more above one that is not, and
    // from there a difference of a and b is exact.
    let rounded = fma(a, fast::rcp_of_normal(b), ROUND);
    let quotient = f32::from_bits(rounded.to_bits() & !1) - ROUND;
    let r = fma(-quotient, b, a);
    if r < 0.0 { r + b } else { r }
}

/// x less the multiple of y that is nearest to it, the even multiple of two that are equally near: at most half of y in magnitude
/// (IEEE 754 remainder). A result of 0 has the sign of x. Exact.
///
/// For y = ±∞ and finite x it is x. For y = 0, x = ±∞ or a NaN it is NaN.
///
/// As [`fmod`], which tells whether the multiple was odd.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn remainder(x: f32, y: f32) -> f32 {
    let (a, b) = (x.abs(), y.abs());
    let is_valid = a < f32::INFINITY && b > 0.0;
    let (r, is_odd) = if is_valid && b < f32::INFINITY { divide(a, b) } else { (a, false) };
    // Where it is not exact, it is larger than r anyway.
    let other = b - r;
    let r = if r > other || (r == other && is_odd) { r - b } else { r };
    observed("`math::remainder`", [x, y], if is_valid && !y.is_nan() { with_sign(r, x.to_bits()) } else { NAN })
}

/// a less the largest multiple of b that is not above it, and whether that is an odd one, for finite a ≥ 0 and b > 0.
#[inline(always)]
fn divide(a: f32, b: f32) -> (f32, bool) {
    let mut r = a;
    let mut is_odd = false;
    // r is below 2^(left + 1) times the power of 2 that is not above b. Of 0 that is a negative number: it is below b.
    let mut left = exponent(a).wrapping_sub(exponent(b));
    while left >= 0 {
        let shift = if left > 22 { left.wrapping_sub(22) } else { 0 };
        let multiple = times_power_of_two(b, shift);
        // At most one too large, as it is rounded; the difference is a multiple of the last place of b, and smaller than b.
        let quotient = trunc(r / multiple);
        let difference = fma(-quotient, multiple, r);
        let is_too_large = difference < 0.0;
        r = if is_too_large { difference + multiple } else { difference };
        is_odd = (quotient as i32 & 1 != 0) != is_too_large;
        left = if shift == 0 { -1 } else { shift };
    }
    (r, is_odd)
}

/// b·2ⁿ for n from 0 to 276, where that is no larger than numbers are.
#[inline(always)]
fn times_power_of_two(b: f32, n: i32) -> f32 {
    let mut result = b;
    let mut left = n;
    for _ in 0..3 {
        let step = if left > 127 { 127 } else { left };
        result *= f32::from_bits((step.wrapping_add(127) as u32) << 23);
        left = left.wrapping_sub(step);
    }
    result
}

/// The exponent of the power of 2 that is not above |x|, for finite x; that of 0 is below all others.
#[inline(always)]
fn exponent(x: f32) -> i32 {
    normalized(x).1
}

/// |x| times a power of 2, with normal bits, and its exponent.
#[inline(always)]
fn normalized(x: f32) -> (u32, i32) {
    let a = x.abs();
    let is_small = a < f32::MIN_POSITIVE;
    let bits = (if is_small { a * 8_388_608.0 } else { a }).to_bits();
    let exponent = ((bits >> 23) as i32).wrapping_sub(if is_small { 127 + 23 } else { 127 });
    (bits, exponent)
}

/// x·2ⁿ, rounded once. That of ±0 and ±∞ is itself, that of a NaN is NaN.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn ldexp(x: f32, n: i32) -> f32 {
    let (bits, exponent) = normalized(x);
    // Beyond these there is nothing but ∞ and 0.
    let n = exponent.saturating_add(n).clamp(-160, 130);
    let half = n >> 1;
    let power_of_two = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    // From 1 to 2, with the sign of x. The first product is exact.
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F80_0000 | x.to_bits() & 0x8000_0000);
    let result = mantissa * power_of_two(half) * power_of_two(n.wrapping_sub(half));
    observed("`math::ldexp`", [x], if x != 0.0 && x.abs() < f32::INFINITY { result } else { x + x })
}

/// A number from 1/2 to 1, or from −1 to −1/2, and the n for which 2ⁿ times it is x, exactly. Of ±0 and ±∞ these are x and 0, of a
/// NaN a NaN and 0.
#[inline(always)]
pub fn frexp(x: f32) -> (f32, i32) {
    let (bits, exponent) = normalized(x);
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F00_0000 | x.to_bits() & 0x8000_0000);
    let is_plain = x != 0.0 && x.abs() < f32::INFINITY;
    let (mantissa, exponent) = if is_plain { (mantissa, exponent.wrapping_add(1)) } else { (x + x, 0) };
    (with_gpu_nan(mantissa), exponent)
}

/// The exponent of the power of 2 that is not above |x|. That of ±0 and of a NaN is `i32::MIN`, that of ±∞ `i32::MAX`.
#[inline(always)]
pub fn ilogb(x: f32) -> i32 {
    let result = if x.abs() < f32::INFINITY { exponent(x) } else { i32::MAX };
    if x == 0.0 || x.is_nan() { i32::MIN } else { result }
}
