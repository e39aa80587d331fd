//! Splitting an fp32 number into parts that tensor cores multiply.
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
//! - **3xTF32**: three TF32 products. `low`, rounded to TF32, loses what is below 2⁻²³ of x.
//! - **mixed**: one TF32 product for high·high, and bf16 products for the other two. Those are 2⁻¹² of the whole, so the 8
//!   bits of bf16 leave an error of about 2⁻²⁰: at two thirds of the cost, twice to three times the error.
//!
//! Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//! theoretical peak performance", IJHPCA 36 (2022), section 3; the promotion of partial sums is section 3.2's remedy for the
//! tensor cores' truncation. The mixed scheme is ours.
//!
//! # Where this does not hold
//!
//! If x is not finite, `x - high` is NaN. Near the largest number, rounding up overflows. Below about 2⁻¹⁰⁰, `low` comes
//! near the smallest normal number and loses bits. [`Extremes`] notices such operands, and the kernel computes the tiles
//! that they touch exactly.

/// The bits of an fp32 number that TF32 keeps.
const TF32_BITS: u32 = 0xFFFF_E000;
/// Half of the lowest bit that TF32 keeps.
const TF32_HALF: u32 = 0x1000;

/// `x` rounded to the nearest TF32 number, ties away from zero. Near the largest fp32 number the result is infinite.
#[inline(always)]
pub fn round_to_tf32(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(TF32_HALF) & TF32_BITS)
}

/// `(high, low)`: the nearest TF32 number, and what is left of `x`, exactly.
#[inline(always)]
pub fn split_tf32(x: f32) -> (f32, f32) {
    let high = round_to_tf32(x);
    (high, x - high)
}

/// `x` with half a unit of TF32's last place added, so that hardware that ignores the lower bits of its operand takes the
/// nearest TF32 number: [`round_to_tf32`] in one instruction less.
#[inline(always)]
pub fn prepare_tf32(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(TF32_HALF))
}

/// Notices operands that cannot be split: not finite, of magnitude 2¹²⁶ or more, or below 2⁻¹⁰⁰ without being zero.
///
/// It keeps the largest and the smallest magnitude seen; zero does not count as small. Three integer instructions for each
/// operand, and one comparison at the end.
#[derive(Clone, Copy, Debug)]
pub struct Extremes {
    largest: u32,
    smallest: u32,
}

/// The bits of 2⁻¹⁰⁰ and of 2¹²⁶, shifted left by one to drop the sign.
const RANGE: (u32, u32) = ((127 - 100) << 24, (127 + 126) << 24);

impl Extremes {
    /// Nothing seen yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self { largest: 0, smallest: u32::MAX }
    }

    /// Takes an operand into account.
    #[inline(always)]
    pub fn see(&mut self, x: f32) {
        let magnitude = x.to_bits() << 1;
        self.largest = self.largest.max(magnitude);
        self.smallest = self.smallest.min(magnitude.wrapping_sub(1)); // zero becomes the largest number there is
    }

    /// Whether any operand seen cannot be split.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.largest >= RANGE.1 || self.smallest < RANGE.0 - 1
    }
}

impl Default for Extremes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: fn(i32) -> f32 = |exponent| 2f32.powi(exponent);

    #[test]
    fn rounds_to_eleven_bits() {
        let ulp = POWER(-10);
        assert_eq!(round_to_tf32(1.0 + 0.49 * ulp), 1.0);
        assert_eq!(round_to_tf32(1.0 + 0.5 * ulp), 1.0 + ulp);
        assert_eq!(round_to_tf32(-1.0 - 0.51 * ulp), -1.0 - ulp);
        assert_eq!(round_to_tf32(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(round_to_tf32(f32::MAX), f32::INFINITY);
    }

    #[test]
    fn the_parts_make_the_whole() {
        for x in [1.0, -1.234_567_8, 3.0e-30, 8.0e37, POWER(-100) * 1.999_999_9, 0.0] {
            let (high, low) = split_tf32(x);
            assert_eq!(f64::from(high) + f64::from(low), f64::from(x));
            assert!(low.abs() <= high.abs() * POWER(-11));
            assert_eq!(high.to_bits() & !TF32_BITS, 0);
            assert_eq!(prepare_tf32(x).to_bits() & TF32_BITS, high.to_bits());
        }
    }

    #[test]
    fn notices_exactly_what_cannot_be_split() {
        let noticed = |values: &[f32]| {
            let mut extremes = Extremes::new();
            values.iter().for_each(|&x| extremes.see(x));
            extremes.any()
        };
        assert!(!noticed(&[]));
        assert!(!noticed(&[0.0, -0.0, 1.0, -1.0, POWER(-100), -POWER(-100), POWER(126).next_down(), -1e37]));
        for x in [f32::NAN, f32::INFINITY, f32::MAX, POWER(126), POWER(-100).next_down(), f32::MIN_POSITIVE, 1e-45] {
            assert!(noticed(&[1.0, x, 0.0]) && noticed(&[0.0, -x, 2.0]), "{x:e}");
        }
    }
}
