//! Decomposing an fp32 number into a high and a low part that tensor cores multiply.
//!
//! A tensor core takes operands of 11 significant bits (TF32, fp16) or 8 (bf16), multiplies them exactly and adds up in
//! fp32. An fp32 number has 24 bits, so it is cut in two:
//!
//! ```text
//! x  =  1.bbbbbbbbbb|bbbbbbbbbbbbb · 2^e      high: rounded to the nearest TF32 number (11 bits)
//!                                             low:  x - high, exactly (13 bits and a sign)
//! a · b  =  high·high  +  high·low + low·high  +  low·low        the last is below 2⁻²² of the first, and left out
//! ```
//!
//! **3xTF32** is three TF32 products. `low`, rounded to TF32, loses what is below 2⁻²³ of x.
//!
//! Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//! theoretical peak performance", IJHPCA 36 (2022), section 3; the promotion of partial sums is section 3.2's remedy for the
//! tensor cores' truncation.
//!
//! # Where this does not hold
//!
//! If x is not finite, or about 2¹¹⁵ or more (8193·x is not finite then), the parts are infinite or NaN, and with them every
//! accumulator that x goes into: kernels look at their accumulators at the end. Below about 2⁻¹⁰⁰, `low` comes near the smallest
//! normal number and loses bits, which no accumulator shows: a kernel that promises fp32's accuracy for such operands looks at the
//! operands. Either way, the elements that they touch are computed in plain fp32.

use cuda_std::math;

/// Half of the lowest bit that TF32 keeps.
const TF32_HALF: u32 = 0x1000;

/// `(high, low)`: `x` rounded to the nearest TF32 number, and what is left of it, exactly. Both are infinite or NaN if `x` is
/// NaN, infinite, or of magnitude 2¹¹⁵ or more.
///
/// The rounding is that of T. J. Dekker, "A floating-point technique for extending the available precision" (Numerische
/// Mathematik 18, 1971), section 5, in two fused operations: 8193·x is rounded 13 bits above x's last place, and taking
/// 8192·x away again, exactly, leaves x rounded there. Done on the bits instead, a NaN of all ones would become zero.
///
/// ```
/// # use blocks::decompose::*;
/// let x = 1.000_2_f32;
/// let (high, low) = decompose_tf32(x);
/// assert_eq!(high.to_bits() & 0x1FFF, 0, "TF32 has 13 bits less than fp32");
/// assert_eq!(high + low, x);
/// // What a product of three is off by, and what one of high parts alone is.
/// let (exact, three) = (f64::from(x) * f64::from(x), high * high + (high * low + low * high));
/// assert!((f64::from(three) - exact).abs() < 1e-7 && (f64::from(high * high) - exact).abs() > 1e-4);
/// ```
#[inline(always)]
pub fn decompose_tf32(x: f32) -> (f32, f32) {
    let high = math::fma(-8192.0, x, math::fma(8192.0, x, x));
    (high, x - high)
}

/// `x` with half a unit of TF32's last place added, so that hardware that ignores the lower bits of its operand takes the
/// nearest TF32 number. Not for x that is NaN.
///
/// ```
/// # use blocks::decompose::*;
/// // Tensor cores ignore the lower 13 bits, which would cut this off to 1.
/// let x = 1.0 + 0.75 * 2f32.powi(-10);
/// let taken = |x: f32| f32::from_bits(x.to_bits() & !0x1FFF);
/// assert_eq!((taken(x), taken(prepare_tf32(x))), (1.0, 1.0 + 2f32.powi(-10)));
/// ```
#[inline(always)]
pub fn prepare_tf32(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(TF32_HALF))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test, which no GPU sees")]
    const POWER: fn(i32) -> f32 = |exponent| 2f32.powi(exponent);

    #[test]
    fn rounds_to_eleven_bits() {
        let (ulp, high) = (POWER(-10), |x| decompose_tf32(x).0);
        assert_eq!(high(1.0 + 0.49 * ulp), 1.0);
        assert_eq!(high(1.0 + 0.51 * ulp), 1.0 + ulp);
        assert_eq!(high(-1.0 - 0.51 * ulp), -1.0 - ulp);
        assert_eq!(high(2.0 - 0.24 * ulp), 2.0);
        assert_eq!((high(0.0), high(-0.0)), (0.0, 0.0));
    }

    #[test]
    fn the_parts_make_the_whole() {
        let mut x = POWER(-100);
        while x < POWER(113) {
            let (high, low) = decompose_tf32(x);
            assert_eq!(f64::from(high) + f64::from(low), f64::from(x));
            assert!(low.abs() <= high.abs() * POWER(-11));
            assert_eq!(high.to_bits() & (2 * TF32_HALF - 1), 0, "{x:e}");
            assert!((prepare_tf32(x).to_bits() & !(2 * TF32_HALF - 1)).abs_diff(high.to_bits()) <= 2 * TF32_HALF);
            x *= 1.000_976_7;
        }
    }

    #[test]
    fn what_is_not_finite_or_too_large_stays_so() {
        for x in
            [f32::NAN, f32::from_bits(0x7FFF_FFFF), f32::from_bits(0x7F80_0001), f32::INFINITY, f32::MAX, POWER(115)]
        {
            for x in [x, -x] {
                let (high, low) = decompose_tf32(x);
                assert!(!high.is_finite() && !low.is_finite(), "{x:e}");
            }
        }
    }
}
