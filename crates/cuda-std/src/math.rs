//! Arithmetic whose rounding a kernel relies on, and functions that have the same bits on the GPU and on the CPU.
//!
//! | function | error, in units in the last place | made of |
//! |---|---|---|
//! | [`fma`], [`sqrt`] | 0.5: correctly rounded | one operation |
//! | [`exp`] | at most 0.88 | Cody–Waite reduction, polynomial of degree 6 |
//! | [`exp2`] | at most 0.87 | exact reduction, polynomial of degree 7 |
//! | [`rsqrt`] | at most 0.500001 | a square root, a division, a correction |
//!
//! The bounds are for every `f32` there is, subnormal results included. They are tested against functions in f64, on some numbers of each
//! exponent by the ordinary tests, and on all 2³² by this (five minutes on one core; the largest errors that it found are 0.87504 of
//! `exp`, 0.86770 of `exp2`, 0.50000003 of `rsqrt`):
//!
//! ```sh
//! cargo test --release -p tilewright-cuda-std --test math -- --ignored
//! ```
//!
//! # Why the bits are the same
//!
//! Both sides compile one source, of operations that IEEE 754 defines to the last bit: `fma`, `+`, `−`, `·`, `/` and the square root,
//! rounded to nearest, with subnormal numbers, and integer operations. rustc contracts nothing, and neither does the builder: the PTX
//! says `.rn` of each of them and never `.ftz`. No approximation of the hardware (`ex2.approx`, `rsqrt.approx`) is used, because no CPU
//! has its bits. What IEEE 754 leaves open is the bits of a NaN: here they are always the GPU's, `0x7FFFFFFF`.
//!
//! The methods of std (`x.exp()`) are other functions: they call the C library of the machine, and no GPU has them.
//!
//! # Sources
//!
//! The reduction is that of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980). The polynomials are
//! minimax in the relative error of the result, found by Remez's exchange algorithm in 60 digits and rounded to `f32` afterwards.

/// `a·b + c` with one rounding (IEEE 754 fusedMultiplyAdd): `fma.rn.f32` on the GPU.
///
/// Rust never contracts `a * b + c` into this; where a kernel wants the fused operation, it has to say so.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::fmaf32(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a.mul_add(b, c)
    }
}

/// The square root, correctly rounded: `sqrt.rn.f32` on the GPU. That of −0 is −0, that of a negative number NaN.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::sqrtf32(x)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        with_gpu_nan(x.sqrt())
    }
}

/// One over the square root, off by at most 0.500001 units in the last place. That of ±0 is ±∞, that of ∞ is 0, that of a negative
/// number NaN.
///
/// Correctly rounded square root and division, and then one step of Newton's method with the remainders of both, which fused
/// operations give exactly.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    // The remainder of the root of a small number would be subnormal, and so not exact.
    const SMALL: f32 = f32::from_bits((127 - 60) << 23);
    const UP: f32 = f32::from_bits((127 + 64) << 23);
    const ROOT_OF_UP: f32 = f32::from_bits((127 + 32) << 23);
    let is_small = x < SMALL;
    let scaled = if is_small { x * UP } else { x };

    let root = sqrt(scaled);
    let inverse = 1.0 / root;
    // scaled = root² + of_root, and 1 = root·inverse + of_inverse.
    let of_root = fma(-root, root, scaled);
    let of_inverse = fma(-root, inverse, 1.0);
    let correction = fma(of_root * inverse, -0.5 * inverse, of_inverse);
    let result = fma(inverse, correction, inverse);

    // Of zeros, infinities and NaN the remainders are NaN.
    let result = if root > 0.0 && root < f32::INFINITY { result } else { inverse };
    with_gpu_nan(if is_small { result * ROOT_OF_UP } else { result })
}

/// eˣ, off by at most 0.88 units in the last place.
///
/// e⁰ is 1, e^−∞ is 0, e^∞ is ∞, that of NaN is NaN. Above 88.722832 the result is ∞, below −87.33654 it is subnormal, and from
/// −103.972084 down it is 0.
///
/// With n the integer nearest to x/ln 2 and r = x − n·ln 2, eˣ = 2ⁿ·eʳ, |r| ≤ 0.347.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // ln 2 in two parts: the first has so few bits that its products with n, and what they leave of x, are exact.
    const LN_2_HIGH: f32 = f32::from_bits(0x3F31_7200);
    const LN_2_LOW: f32 = 1.428_606_8e-6;
    // Beyond these there is nothing but ∞ and 0. A NaN is not compared with anything, and stays.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };

    let (n, bits) = nearest(x, core::f32::consts::LOG2_E);
    let reduced = fma(n, -LN_2_HIGH, x);
    let r = fma(n, -LN_2_LOW, reduced);
    // What rounding has taken from r.
    let rest = fma(n, -LN_2_LOW, reduced - r);
    // (eʳ − 1 − r)/r²
    let p = fma(r, 0.001_381_460_7, 0.008_368_711);
    let p = fma(r, p, 0.041_668_39);
    let p = fma(r, p, 0.166_665_21);
    let p = fma(r, p, 0.499_999_94);
    let power = 1.0 + (r + fma(r * r, p, rest));
    with_gpu_nan(scale(power, bits))
}

/// 2ˣ, off by at most 0.87 units in the last place; exact for integers.
///
/// 2^−∞ is 0, 2^∞ is ∞, that of NaN is NaN. From 128 on the result is ∞, up to −150 it is 0; below −126 it is subnormal.
///
/// With n the integer nearest to x and r = x − n, which is exact, 2ˣ = 2ⁿ·2ʳ, |r| ≤ 1/2.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    // Beyond these there is nothing but ∞ and 0. A NaN is not compared with anything, and stays.
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };

    let (n, bits) = nearest(x, 1.0);
    let r = x - n;
    // (2ʳ − 1)/r
    let p = fma(r, 0.000_015_196_133, 0.000_154_667_56);
    let p = fma(r, p, 0.001_333_393_5);
    let p = fma(r, p, 0.009_618_038);
    let p = fma(r, p, 0.055_504_102);
    let p = fma(r, p, 0.240_226_5);
    let p = fma(r, p, core::f32::consts::LN_2);
    with_gpu_nan(scale(fma(r, p, 1.0), bits))
}

/// The integer nearest to `x·factor`, which is below 2²² in magnitude, as both kinds of number. Of a NaN: NaN, and any integer.
#[inline(always)]
fn nearest(x: f32, factor: f32) -> (f32, i32) {
    // Numbers from 2²³ to 2²⁴ are integers, and as far apart as their bits are: an addition rounds to one of them.
    const ROUND: f32 = 12_582_912.0;
    let rounded = fma(x, factor, ROUND);
    (rounded - ROUND, (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
}

/// `x·2ⁿ`, rounded once, for x in [1/2, 2] and n from −151 to 129. Of a NaN it is NaN, whatever n is.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let power_of_two = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    // 2ⁿ itself may be too large or too small for a number; the first of the two products is exact.
    let half = n >> 1;
    x * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// The result of an operation, if NaN with the bits that it has on a GPU.
#[inline(always)]
fn with_gpu_nan(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        x
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        // In integers, because to LLVM one NaN is as good as another: it takes `if x.is_nan() { NAN } else { x }` for `x`.
        const INFINITY: u32 = f32::INFINITY.to_bits();
        let bits = x.to_bits();
        f32::from_bits(if bits & 0x7FFF_FFFF > INFINITY { 0x7FFF_FFFF } else { bits })
    }
}
