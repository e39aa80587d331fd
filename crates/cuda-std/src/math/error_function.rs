//! The error function and its relatives.

use super::exponential::{exp_pair, exp2_near_zero};
use super::{Pair, fma, nearest, observed, reciprocal, scale, with_sign};

/// The error function, 2/√π·∫₀ˣ e^(−t²) dt, off by at most 1.2 units in the last place.
///
/// That of ±0 is ±0, that of ±∞ is ±1, that of a NaN is NaN. Beyond ±3.9193 the result is ±1.
///
/// Below 1 a minimax polynomial; above, 1 − 2^p(x) with a minimax polynomial p for log₂ erfc x.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let near = erf_near_zero(a);
    // Beyond this there is nothing but 1. A NaN is not compared with anything, and stays.
    let a = if a > 3.95 { 3.95 } else { a };
    // log₂ erfc x
    let p = fma(a, 2.688_817e-4, -4.252_507_4e-3);
    let p = fma(a, p, 3.150_540_2e-2);
    let p = fma(a, p, -1.487_510_4e-1);
    let p = fma(a, p, -9.206_490_5e-1);
    let p = fma(a, p, -1.626_045_6);
    let p = fma(a, p, -4.928_098e-4);
    let (n, bits) = nearest(p, 1.0);
    let power = f32::from_bits((bits.wrapping_add(127) as u32) << 23);
    let far = fma(-exp2_near_zero(p - n), power, 1.0);
    observed("`math::erf`", [x], with_sign(if a < 1.0 { near } else { far }, x.to_bits()))
}

/// 1 − erf x, without the loss that the subtraction has where x is large; off by at most 2.5 units in the last place.
///
/// That of −∞ is 2, that of ∞ is 0, that of a NaN is NaN. Above 9.1945 the result is subnormal, and from 10.0542 on it is 0.
///
/// Below 1/2 as [`erf`]. Above, with x² in two parts, erfc x is e^(−x²)/(1 + 2x) times a minimax polynomial in (x − 2)/(x + 2) that is between 1 and 1.3 (after
/// M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x)exp(x²)erfc x in 0 ≤ x < ∞", 1981); that of −x is 2 less
/// that.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn erfc(x: f32) -> f32 {
    if x.abs() < 0.5 {
        return 1.0 - erf_near_zero(x);
    }
    let a = x.abs();
    // Beyond this there is nothing but 0. A NaN is not compared with anything, and stays.
    let a = if a > 10.1 { 10.1 } else { a };
    // One division for two: of the product of the divisors.
    let (first, second) = (a + 2.0, fma(2.0, a, 1.0));
    let of_both = reciprocal(first * second);
    let inverse = of_both * first;
    // What 1/(1 + 2a) still lacks, in parts of itself, with what 1 + 2a has lost.
    let lack = fma(-inverse, fma(2.0, a, 1.0 - second), fma(-inverse, second, 1.0));
    // (a − 2)/(a + 2)
    let q = fma(-4.0, of_both * second, 1.0);
    // (1 + 2a)·e^(a²)·erfc a − 1
    let p = fma(q, -1.369_112e-3, 9.490_429e-4);
    let p = fma(q, p, 8.734_398_5e-3);
    let p = fma(q, p, -7.945_965e-3);
    let p = fma(q, p, -5.422_8e-2);
    let p = fma(q, p, 1.640_417_7e-1);
    let p = fma(q, p, -1.660_296_8e-1);
    let p = fma(q, p, -9.276_353_6e-2);
    let p = fma(q, p, 2.769_783_7e-1);
    let factor = fma(inverse, p + lack, inverse);
    let square = Pair::product(a, a);
    let (power, n) = exp_pair(-square.high, -square.low);
    let product = fma(power.high, factor, power.low * factor);
    // The factor is between 0.04 and 1.
    let positive = scale(product, n);
    observed("`math::erfc`", [x], if x < 0.0 { 2.0 - positive } else { positive })
}

/// erf x for |x| ≤ 1.
#[inline(always)]
fn erf_near_zero(x: f32) -> f32 {
    let s = x * x;
    // erf x/x − 1
    let p = fma(s, 7.806_904e-5, -7.997_853e-4);
    let p = fma(s, p, 5.187_162e-3);
    let p = fma(s, p, -2.685_334_7e-2);
    let p = fma(s, p, 1.128_357_9e-1);
    let p = fma(s, p, -3.761_262_6e-1);
    let p = fma(s, p, 1.283_791_7e-1);
    fma(x, p, x)
}
