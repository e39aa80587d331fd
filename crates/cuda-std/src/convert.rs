//! Conversions to the formats of tensor cores, those of 16 bits two numbers to a register.
//!
//! A NaN becomes the one with all bits set but the sign, whatever its own are; but [`tf32`] cuts off its low bits.

/// Two numbers rounded to bf16 (8 significant bits, the exponents of fp32), to nearest, ties to even: `first` in the lower
/// half of the result, `second` in the upper (`cvt.rn.bf16x2.f32`, sm_80).
///
/// ```
/// # use tilewright_cuda_std::{convert};
/// assert_eq!(convert::bf16x2(1.0, -2.0), 0xC000_3F80);
/// ```
#[inline(always)]
pub fn bf16x2(first: f32, second: f32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rn.bf16x2.f32 {result}, {second}, {first};",
                result = out(reg32) result, first = in(reg32) first, second = in(reg32) second,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let rounded = |x: f32| if x.is_nan() { NAN_16 } else { half::bf16::from_f32(x).to_bits() };
        pair(rounded(first), rounded(second))
    }
}

/// Two numbers rounded to fp16 (11 significant bits, largest 65504), to nearest, ties to even: `first` in the lower half of
/// the result, `second` in the upper (`cvt.rn.f16x2.f32`, sm_80). Larger numbers become infinite.
///
/// ```
/// # use tilewright_cuda_std::{convert};
/// assert_eq!(convert::f16x2(1.0, -2.0), 0xC000_3C00);
/// assert_eq!(convert::f16x2(65504.0, 65520.0), 0x7C00_7BFF, "the largest number, and infinity");
/// ```
#[inline(always)]
pub fn f16x2(first: f32, second: f32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rn.f16x2.f32 {result}, {second}, {first};",
                result = out(reg32) result, first = in(reg32) first, second = in(reg32) second,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let rounded = |x: f32| if x.is_nan() { NAN_16 } else { half::f16::from_f32(x).to_bits() };
        pair(rounded(first), rounded(second))
    }
}

/// The nearest integer, ties to even; the nearest one that 32 bits have where it is beyond, and 0 of NaN (`cvt.rni.s32.f32`).
///
/// ```
/// # use tilewright_cuda_std::{convert};
/// assert_eq!([0.5, 1.5, -2.7, 1e10, f32::NAN].map(convert::nearest_integer), [0, 2, -3, i32::MAX, 0]);
/// ```
#[inline(always)]
pub fn nearest_integer(x: f32) -> i32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: i32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rni.s32.f32 {result}, {x};",
                result = out(reg32) result, x = in(reg32) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        x.round_ties_even() as i32
    }
}

/// The two fp16 numbers of a word as fp32 numbers, exactly: the lower half first (`cvt.f32.f16`, twice).
///
/// ```
/// # use tilewright_cuda_std::{convert};
/// assert_eq!(convert::from_f16x2(0xC000_3C00), [1.0, -2.0]);
/// ```
#[inline(always)]
pub fn from_f16x2(pair: u32) -> [f32; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (first, second): (f32, f32);
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .b16 lower, upper;",
                "mov.b32 {{lower, upper}}, {pair};",
                "cvt.f32.f16 {first}, lower;",
                "cvt.f32.f16 {second}, upper;",
                "}}",
                first = out(reg32) first, second = out(reg32) second, pair = in(reg32) pair,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        [first, second]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let widened = |x: half::f16| if x.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { x.to_f32() };
        [pair as u16, (pair >> 16) as u16].map(half::f16::from_bits).map(widened)
    }
}

/// `x` rounded to TF32 (11 significant bits, the exponents of fp32), to nearest, ties away from zero (`cvt.rna.tf32.f32`,
/// sm_80). Numbers that round up beyond the largest become infinite. Of a NaN the low 13 bits are cut off: if it has no others, it
/// becomes infinite, too.
///
/// ```
/// # use tilewright_cuda_std::{convert};
/// let last_bit = 2f32.powi(-10);
/// assert_eq!(convert::tf32(1.0 + 0.5 * last_bit), 1.0 + last_bit);
/// assert_eq!(convert::tf32(1.0 + 0.4 * last_bit), 1.0);
/// ```
#[inline(always)]
pub fn tf32(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "cvt.rna.tf32.f32 {result}, {x};",
                result = out(reg32) result, x = in(reg32) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        f32::from_bits(result)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        // Found on an H200; the PTX ISA says nothing of NaNs here.
        let half = if x.is_nan() { 0 } else { 0x1000 };
        f32::from_bits((x.to_bits() + half) & 0xFFFF_E000)
    }
}

/// The NaN of bf16 and of fp16 that there is after a conversion.
#[cfg(not(target_arch = "nvptx64"))]
const NAN_16: u16 = 0x7FFF;

#[cfg(not(target_arch = "nvptx64"))]
fn pair(first: u16, second: u16) -> u32 {
    u32::from(second) << 16 | u32::from(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_tf32_with_ties_away_from_zero() {
        let ulp = 2f32.powi(-10);
        assert_eq!(tf32(1.0 + 0.49 * ulp), 1.0);
        assert_eq!((tf32(1.0 + 0.5 * ulp), tf32(-1.0 - 0.5 * ulp)), (1.0 + ulp, -1.0 - ulp));
        assert_eq!((tf32(f32::MAX), tf32(f32::NEG_INFINITY)), (f32::INFINITY, f32::NEG_INFINITY));
        for (nan, result) in [(0x7FFF_FFFF, 0x7FFF_E000), (0xFFC0_1000, 0xFFC0_0000), (0xFF80_0001, 0xFF80_0000)] {
            assert_eq!(tf32(f32::from_bits(nan)).to_bits(), result, "{nan:#x}");
        }
    }

    #[test]
    fn rounds_to_nearest_with_ties_to_even() {
        assert_eq!(bf16x2(1.0, -2.0), 0xC000_3F80);
        assert_eq!(bf16x2(1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0), 0x3F82_3F80);
        assert_eq!(f16x2(1.0, -2.0), 0xC000_3C00);
        assert_eq!(f16x2(65504.0, 65520.0), 0x7C00_7BFF);
        assert_eq!(f16x2(1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0), 0x3C02_3C00);
    }

    #[test]
    fn other_nans_become_one() {
        let (quiet, signalling) = (f32::from_bits(0xFFC1_2345), f32::from_bits(0x7F80_0001));
        assert_eq!((bf16x2(quiet, signalling), f16x2(quiet, signalling)), (0x7FFF_7FFF, 0x7FFF_7FFF));
        assert_eq!(from_f16x2(0xFE00_7C01).map(f32::to_bits), [0x7FFF_FFFF; 2]);
    }

    #[test]
    fn fp16_comes_back_as_it_was() {
        let smallest = 2f32.powi(-24);
        for pair in [[1.0, -2.0], [65504.0, -0.0], [smallest, -1023.0 * smallest], [f32::INFINITY, 0.5]] {
            assert_eq!(from_f16x2(f16x2(pair[0], pair[1])).map(f32::to_bits), pair.map(f32::to_bits));
        }
    }
}
