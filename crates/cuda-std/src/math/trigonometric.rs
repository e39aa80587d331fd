//! Sine, cosine, tangent, and their inverses.

use super::{NAN, Pair, fma, nearest, observed, reciprocal, root, round_ties_even, with_sign};

/// The sine of x radians, off by at most 0.9 units in the last place, for every x.
///
/// That of ±0 is ±0, that of ±∞ or a NaN is NaN.
///
/// x = n·π/2 + r, |r| ≤ π/4: up to 105615 with π/2 in three parts (W. J. Cody and W. Waite, "Software Manual for the Elementary
/// Functions", 1980), beyond that, in a branch, with those of 224 bits of 2/π that count (M. H. Payne and R. N. Hanek, "Radian
/// reduction for trigonometric functions", 1983). r has a second part. Then minimax polynomials for sine and cosine.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sin(x: f32) -> f32 {
    let Reduced { r, low, quadrant } = reduce(x.abs());
    let result = sin_or_cos(r, low, quadrant & 1 != 0);
    observed("`math::sin`", [x], with_sign(result, x.to_bits() ^ (quadrant << 30)))
}

/// The cosine of x radians, off by at most 0.9 units in the last place, for every x.
///
/// That of ±0 is 1, that of ±∞ or a NaN is NaN. The algorithm is that of [`sin`].
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn cos(x: f32) -> f32 {
    let Reduced { r, low, quadrant } = reduce(x.abs());
    let quadrant = quadrant.wrapping_add(1);
    let result = sin_or_cos(r, low, quadrant & 1 != 0);
    observed("`math::cos`", [x], with_sign(result, quadrant << 30))
}

/// Sine and cosine, as [`sin`] and [`cos`] give them, with one reduction.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sincos(x: f32) -> (f32, f32) {
    let Reduced { r, low, quadrant } = reduce(x.abs());
    let (even, odd) = (sin_or_cos(r, low, false), sin_or_cos(r, low, true));
    let (sin, cos) = if quadrant & 1 == 0 { (even, odd) } else { (odd, even) };
    let sin = with_sign(sin, x.to_bits() ^ (quadrant << 30));
    let cos = with_sign(cos, quadrant.wrapping_add(1) << 30);
    (observed("`math::sincos`", [x], sin), observed("`math::sincos`", [x], cos))
}

/// The tangent of x radians, off by at most 1.3 units in the last place, for every x.
///
/// That of ±0 is ±0, that of ±∞ or a NaN is NaN. No number is so near to a pole that the result is infinite.
///
/// Reduced as [`sin`]; then a minimax polynomial, and −1/tan r in odd quadrants, with the remainder of the polynomial's last addition.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn tan(x: f32) -> f32 {
    let Reduced { r, low, quadrant } = reduce(x.abs());
    let s = r * r;
    // (tan r − r)/r³
    let p = fma(s, 4.470_605_4e-3, -9.793_28e-5);
    let p = fma(s, p, 1.098_049_5e-2);
    let p = fma(s, p, 2.122_771e-2);
    let p = fma(s, p, 5.407_018_2e-2);
    let p = fma(s, p, 1.333_257_6e-1);
    let p = fma(s, p, 3.333_335_2e-1);
    // The slope of the tangent, 1 + tan², is 1 + s or some more.
    let low = fma(low, s, low);
    let tan = Pair::sum(r, fma(r * s, p, low));
    let inverse = -(1.0 / tan.high);
    let error = fma(inverse, tan.low, fma(inverse, tan.high, 1.0));
    let cotangent = fma(inverse, error, inverse);
    observed("`math::tan`", [x], with_sign(if quadrant & 1 == 0 { tan.high } else { cotangent }, x.to_bits()))
}

/// sin πx, off by at most 1 units in the last place; exact where it is 0 or ±1.
///
/// That of integers and ±0 is 0 with their sign, that of ±∞ or a NaN is NaN.
///
/// x = n/2 + r, exactly, |r| ≤ 1/4; then minimax polynomials, with π in two parts.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sinpi(x: f32) -> f32 {
    let (r, quadrant) = reduce_pi(x);
    let result = sinpi_or_cospi(r, quadrant & 1 != 0);
    let result = if r == 0.0 && quadrant & 1 == 0 {
        // The sign of x, whatever the quadrant.
        x * 0.0
    } else {
        with_sign(result, quadrant << 30)
    };
    observed("`math::sinpi`", [x], result)
}

/// cos πx, off by at most 0.9 units in the last place; exact where it is 0 or ±1.
///
/// That of n + 1/2 is +0, that of ±∞ or a NaN is NaN. The algorithm is that of [`sinpi`].
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn cospi(x: f32) -> f32 {
    let (r, quadrant) = reduce_pi(x.abs());
    let quadrant = quadrant.wrapping_add(1);
    let result = sinpi_or_cospi(r, quadrant & 1 != 0);
    observed("`math::cospi`", [x], if result == 0.0 { 0.0 } else { with_sign(result, quadrant << 30) })
}

/// sin πx and cos πx, as [`sinpi`] and [`cospi`] give them, with one reduction.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sincospi(x: f32) -> (f32, f32) {
    let (r, quadrant) = reduce_pi(x.abs());
    let (even, odd) = (sinpi_or_cospi(r, false), sinpi_or_cospi(r, true));
    let (sin, cos) = if quadrant & 1 == 0 { (even, odd) } else { (odd, even) };
    // As in the two functions, of which one has zeros with the sign of x, and the other one without a sign.
    let is_integer = r == 0.0 && quadrant & 1 == 0;
    let sin = if is_integer { x * 0.0 } else { with_sign(sin, x.to_bits() ^ (quadrant << 30)) };
    let cos = if cos == 0.0 { 0.0 } else { with_sign(cos, quadrant.wrapping_add(1) << 30) };
    (observed("`math::sincospi`", [x], sin), observed("`math::sincospi`", [x], cos))
}

/// The arc sine in radians, from −π/2 to π/2, off by at most 1.2 units in the last place.
///
/// That of ±0 is ±0, that of a number beyond ±1 or a NaN is NaN.
///
/// Up to 1/2 a minimax polynomial; above, π/2 − 2·asin √((1 − x)/2) (W. J. Cody and W. Waite, 1980).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn asin(x: f32) -> f32 {
    let (y, beyond, is_large) = asin_parts(x);
    let of_large = core::f32::consts::FRAC_PI_2 - 2.0 * y;
    // Whatever the subtraction has lost, and what π/2 has.
    let lost = (core::f32::consts::FRAC_PI_2 - of_large) - 2.0 * y + PI_2_MIDDLE;
    let of_large = of_large + fma(-2.0, beyond, lost);
    observed("`math::asin`", [x], with_sign(if is_large { of_large } else { y + beyond }, x.to_bits()))
}

/// The arc cosine in radians, from 0 to π, off by at most 1.2 units in the last place.
///
/// That of 1 is 0, that of a number beyond ±1 or a NaN is NaN.
///
/// With the polynomial of [`asin`]: π/2 − asin x, 2·asin √((1 − x)/2), or π less that.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn acos(x: f32) -> f32 {
    let (y, beyond, is_large) = asin_parts(x);
    // y + beyond twice or once, with the sign of x or against it, and a multiple of π/2.
    let factor = if is_large { 2.0f32 } else { -1.0 };
    let factor = f32::from_bits(factor.to_bits() ^ x.to_bits() & super::SIGN);
    let base = if x < 0.0 { PI } else { 0.0 };
    let base = if is_large { base } else { core::f32::consts::FRAC_PI_2 };
    // The low part of π is in the same proportion.
    let low = base * (PI_LOW / PI);
    observed("`math::acos`", [x], base + fma(factor, y, fma(factor, beyond, low)))
}

/// The arc tangent in radians, from −π/2 to π/2, off by at most 1.4 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±π/2, that of a NaN is NaN.
///
/// A minimax polynomial up to 1; above, π/2 less that of 1/x.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn atan(x: f32) -> f32 {
    let a = x.abs();
    let is_large = a > 1.0;
    // Of a number beyond that there is nothing left in the result.
    let inverse = reciprocal(if a > 1e30 { 1e30 } else { a });
    let t = core::hint::select_unpredictable(is_large, -inverse, a);
    let (base, base_low) = if is_large { (core::f32::consts::FRAC_PI_2, PI_2_MIDDLE) } else { (0.0, 0.0) };
    observed("`math::atan`", [x], with_sign(atan_of_ratio(t, base, base_low), x.to_bits()))
}

/// The angle of the point (x, y), from −π to π; note the order. It is off by at most 1.8 units in the last place.
///
/// As C has it: of (±0, x) it is ±0 for x > 0 or +0, and ±π for x < 0 or −0; of (y, ±0) ±π/2; of (±∞, ±∞) ±π/4 or ±3π/4; if either
/// is NaN, it is NaN.
///
/// The polynomial of [`atan`] for the smaller of the two over the larger one, and a multiple of π/2.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (a, b) = (x.abs(), y.abs());
    let is_steep = b > a;
    let (smaller, larger) = if is_steep { (a, b) } else { (b, a) };
    let ratio = smaller / larger;
    let ratio = if larger == 0.0 { 0.0 } else { ratio };
    let ratio = if smaller == f32::INFINITY { 1.0 } else { ratio };
    let is_left = x.to_bits() >> 31 != 0;
    let (base, base_low) = if is_left { (PI, PI_LOW) } else { (0.0, 0.0) };
    let (base, base_low) = if is_steep { (core::f32::consts::FRAC_PI_2, PI_2_MIDDLE) } else { (base, base_low) };
    let ratio = if is_steep != is_left { -ratio } else { ratio };
    // A NaN is neither larger nor smaller, and may have been lost.
    let result = if x.is_nan() || y.is_nan() { NAN } else { atan_of_ratio(ratio, base, base_low) };
    observed("`math::atan2`", [y, x], with_sign(result, y.to_bits()))
}

const PI: f32 = core::f32::consts::PI;
/// π is PI + PI_LOW + 7·10⁻¹⁵.
const PI_LOW: f32 = -8.742_278e-8;
/// π/2 less its first 24 bits, and what that leaves.
const PI_2_MIDDLE: f32 = -4.371_139e-8;
const PI_2_LOW: f32 = -1.715_124_5e-15;

/// x = n·π/2 + r + low. Of n, the last bits.
struct Reduced {
    r: f32,
    low: f32,
    quadrant: u32,
}

/// For x ≥ 0. Of ∞ and NaN: r is NaN.
#[inline(always)]
fn reduce(x: f32) -> Reduced {
    // Beyond this, the products are no longer what they are meant to be.
    const LARGE: f32 = 105_615.0;
    if x >= LARGE {
        return reduce_large(x);
    }
    let (n, bits) = nearest(x, core::f32::consts::FRAC_2_PI);
    // Exact, because the result is a multiple of 2⁻²³ and below 1.
    let first = fma(n, -core::f32::consts::FRAC_PI_2, x);
    // Where the first number is the smaller one, the difference is exact, because it has few bits.
    let second = Pair::product(n, PI_2_MIDDLE);
    let r = Pair::sum(first, -second.high);
    let low = fma(n, -PI_2_LOW, r.low - second.low);
    let r = r.high;
    Reduced { r, low, quadrant: bits as u32 }
}

/// For x ≥ 2¹⁶.
///
/// x = m·2ᵏ with an integer m of 24 bits. The bits of 2/π that make a multiple of 4 of m·2ᵏ·2/π do not count. Of those behind, 96 are
/// taken: x·2/π mod 4 then has an error below 2⁻⁵⁹, while no `f32` is nearer to a multiple of π/2 than 2⁻³⁰.
#[inline(always)]
fn reduce_large(x: f32) -> Reduced {
    let bits = x.to_bits();
    // k − 2 is at least −9; the words begin with one of 0, so that it counts from there.
    let exponent = (bits >> 23) & 0xFF;
    let skip = exponent.wrapping_sub(150 + 2 - 32);
    // 2/π in words, chosen by selections instead of an array: that would be in memory.
    let words = (0, 0xA2F9_836E, 0x4E44_1529, 0xFC27_57D1, 0xF534_DDC0, 0xDB62_9599, 0x3C43_9041, 0xFE51_63AB);
    let (a, b, c, d) = match skip >> 5 {
        0 => (words.0, words.1, words.2, words.3),
        1 => (words.1, words.2, words.3, words.4),
        2 => (words.2, words.3, words.4, words.5),
        3 => (words.3, words.4, words.5, words.6),
        _ => (words.4, words.5, words.6, words.7),
    };
    let shifted = |high: u32, low: u32| (((u64::from(high) << 32 | u64::from(low)) << (skip & 31)) >> 32) as u32;
    let m = u64::from(bits & 0x007F_FFFF | 0x0080_0000);
    let (first, second, third) = (shifted(a, b), shifted(b, c), shifted(c, d));
    // x·2/π/4 mod 1, times 2⁶⁴
    let product = (m.wrapping_mul(u64::from(first)) << 32)
        .wrapping_add(m.wrapping_mul(u64::from(second)))
        .wrapping_add(m.wrapping_mul(u64::from(third)) >> 32);
    let quadrant = product.wrapping_add(1 << 61) >> 62;
    let fraction = product.wrapping_sub(quadrant << 62) as i64;
    // π/2·2⁻⁶²
    const UNIT: f64 = core::f64::consts::FRAC_PI_2 / (1u64 << 62) as f64;
    let exact = fraction as f64 * UNIT;
    let r = exact as f32;
    let low = (exact - f64::from(r)) as f32;
    let r = if exponent == 0xFF { NAN } else { r };
    Reduced { r, low, quadrant: quadrant as u32 }
}

/// The sine of r + low, or the cosine, for |r| ≤ π/4.
#[inline(always)]
fn sin_or_cos(r: f32, low: f32, is_cos: bool) -> f32 {
    let choose = |of_sin: f32, of_cos: f32| if is_cos { of_cos } else { of_sin };
    let s = fma(r, r, (low + low) * r);
    // (sin r − r)/r³, or (cos r − 1 + s/2)/s²
    let p = fma(s, choose(-1.950_788_4e-4, 2.443_067e-5), choose(8.332_106e-3, -1.388_730_1e-3));
    let p = fma(s, p, choose(-1.666_665_4e-1, 4.166_664_6e-2));
    // sin(r + low) is sin r + low·cos r, and cos r is 1 − s/2.
    let of_sin = r + fma(r * s, p, fma(low * s, -0.5, low));
    let of_cos = fma(s, fma(s, p, -0.5), 1.0);
    choose(of_sin, of_cos)
}

/// x = n/2 + r, |r| ≤ 1/4. Of n, the last bits. Of ±∞ and NaN: r is NaN.
#[inline(always)]
pub(super) fn reduce_pi(x: f32) -> (f32, u32) {
    // Less the nearest even number.
    let y = fma(-2.0, round_ties_even(0.5 * x), x);
    let (n, bits) = nearest(y, 2.0);
    (fma(n, -0.5, y), bits as u32)
}

/// sin πr, or cos πr, for |r| ≤ 1/4.
#[inline(always)]
pub(super) fn sinpi_or_cospi(r: f32, is_cos: bool) -> f32 {
    let choose = |of_sin: f32, of_cos: f32| if is_cos { of_cos } else { of_sin };
    let s = r * r;
    // (sin πr/r − π)/s, or (cos πr − 1)/s
    let p = fma(s, choose(7.915_745e-2, 2.287_545_8e-1), choose(-5.989_812e-1, -1.334_736_2));
    let p = fma(s, p, choose(2.550_154_7, 4.058_696_3));
    let p = fma(s, p, choose(-5.167_712_7, -4.934_802));
    let of_sin = fma(r, PI, r * fma(s, p, PI_LOW));
    let of_cos = fma(s, p, 1.0);
    choose(of_sin, of_cos)
}

/// y and what has to be added for asin y, where y is |x| up to 1/2, and √((1 − |x|)/2) above.
#[inline(always)]
fn asin_parts(x: f32) -> (f32, f32, bool) {
    let a = x.abs();
    let is_large = a > 0.5;
    let z = if is_large { fma(-0.5, a, 0.5) } else { a * a };
    let y = if is_large { root(z) } else { a };
    // (asin y − y)/y³
    let p = fma(z, 4.215_828e-2, 2.418_478_4e-2);
    let p = fma(z, p, 4.546_915e-2);
    let p = fma(z, p, 7.495_309_4e-2);
    let p = fma(z, p, 1.666_675_2e-1);
    (y, y * z * p, is_large)
}

/// base + base_low + atan t, for |t| ≤ 1.
#[inline(always)]
fn atan_of_ratio(t: f32, base: f32, base_low: f32) -> f32 {
    let s = t * t;
    // (atan t − t)/t³
    let p = fma(s, 2.919_462e-3, -1.636_328e-2);
    let p = fma(s, p, 4.320_479_6e-2);
    let p = fma(s, p, -7.551_662e-2);
    let p = fma(s, p, 1.066_576_9e-1);
    let p = fma(s, p, -1.421_100_2e-1);
    let p = fma(s, p, 1.999_376_7e-1);
    let p = fma(s, p, -3.333_315_3e-1);
    base + (t + fma(t * s, p, base_low))
}
