//! Floating-point numbers of 16 and of 8 bits: to be kept in memory, and widened to fp32 for arithmetic.
//!
//! | type | significant bits | largest number | least positive number | infinities |
//! |---|---|---|---|---|
//! | [`F16`] | 11 | 65504 | 2⁻²⁴ | yes |
//! | [`Bf16`] | 8 | about 3.39·10³⁸ | 2⁻¹³³ | yes |
//! | [`E4m3`] | 4 | 448 | 2⁻⁹ | no: what is larger becomes ±448 |
//! | [`E5m2`] | 3 | 57344 | 2⁻¹⁶ | yes, but what is larger becomes ±57344 |
//!
//! Each has the same bits on the GPU and on the CPU. A conversion from fp32 rounds to nearest, ties to even, and makes one NaN of
//! all: the one with all bits set but the sign.

use core::cmp::Ordering;
use core::fmt;

use super::Element;
use crate::{KernelParam, Layout, convert};

macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident, $bits:ty, $round:expr, $widen:expr;)*) => { $(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Default)]
        pub struct $name($bits);

        impl $name {
            /// The number with these bits.
            #[inline(always)]
            pub const fn from_bits(bits: $bits) -> Self {
                Self(bits)
            }

            /// Its bits.
            #[inline(always)]
            pub const fn to_bits(self) -> $bits {
                self.0
            }

            /// The nearest number to `x`, ties to even.
            #[inline(always)]
            pub fn from_f32(x: f32) -> Self {
                let round: fn(f32) -> $bits = $round;
                Self(round(x))
            }

            /// The same number in fp32: no number is rounded.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                let widen: fn($bits) -> f32 = $widen;
                widen(self.0)
            }
        }

        impl From<$name> for f32 {
            #[inline(always)]
            fn from(x: $name) -> Self {
                x.to_f32()
            }
        }

        /// Compares the numbers, not their bits: zeros of both signs are equal, and a NaN is equal to nothing.
        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            #[inline(always)]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        // SAFETY: the bits of a number that is an element, in the same layout.
        unsafe impl Element for $name {
            #[inline(always)]
            unsafe fn load(source: *const Self) -> Self {
                // SAFETY: the caller's promise; the same layout.
                Self(unsafe { <$bits>::load(source.cast()) })
            }

            #[inline(always)]
            unsafe fn store(target: *mut Self, value: Self) {
                // SAFETY: the caller's promise; the same layout.
                unsafe { <$bits>::store(target.cast(), value.0) }
            }
        }

        // SAFETY: bits: the same on both sides, and no view.
        unsafe impl KernelParam for $name {
            const LAYOUT: u64 = Layout::new(stringify!($name)).fingerprint();

            #[cfg(not(target_arch = "nvptx64"))]
            const HAS_VIEWS: bool = false;

            #[cfg(not(target_arch = "nvptx64"))]
            fn visit_views(&self, _name: crate::ViewName<'_>, _visit: &mut dyn FnMut(crate::View<'_>)) {}
        }

        // SAFETY: transparent bits, all of which may be zero.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl bytemuck::Zeroable for $name {}

        // SAFETY: transparent bits, all patterns of which are values.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl bytemuck::Pod for $name {}
    )* };
}

floats! {
    /// A number of IEEE binary16 (fp16), CUDA's `__half`. From fp32 by `cvt.rn.f16x2.f32`: what is larger than its largest number,
    /// 65504, by half a unit or more becomes infinite. To fp32 by `cvt.f32.f16`: every NaN becomes the one with all bits set but the sign.
    F16, u16, |x| convert::f16x2(x, 0.0) as u16, |bits| convert::from_f16x2(bits.into())[0];

    /// A number of bfloat16, the upper half of an fp32 number, CUDA's `__nv_bfloat16`. From fp32 by `cvt.rn.bf16x2.f32` (sm_80). In fp32
    /// it has the same bits above 16 zeros, a NaN, too.
    Bf16, u16, |x| convert::bf16x2(x, 0.0) as u16, |bits| f32::from_bits(u32::from(bits) << 16);

    /// A number of 8 bits with 4 bits of exponent and 3 of mantissa, CUDA's `__nv_fp8_e4m3`. There are no infinities, and one NaN of
    /// either sign. What is larger than 448, an infinity, too, becomes 448 with its sign, as of `cvt.rn.satfinite.e4m3x2.f32`; but
    /// it is computed from the bits, on every architecture.
    E4m3, u8, |x| Format::E4M3.round(x), |bits| Format::E4M3.widen(bits);

    /// A number of 8 bits with 5 bits of exponent and 2 of mantissa, CUDA's `__nv_fp8_e5m2`: the upper half of an fp16 number. What is
    /// larger than 57344, an infinity, too, becomes 57344 with its sign, as of `cvt.rn.satfinite.e5m2x2.f32`; but it is computed
    /// from the bits, on every architecture.
    E5m2, u8, |x| Format::E5M2.round(x), |bits| Format::E5M2.widen(bits);
}

/// A format of 8 bits: a sign, an exponent, a mantissa.
struct Format {
    mantissa_bits: u32,
    bias: u32,
    /// The code of the largest number. Those behind it are of an infinity, if there is one, and of NaNs.
    largest: u32,
    has_infinity: bool,
}

impl Format {
    const E4M3: Self = Self { mantissa_bits: 3, bias: 7, largest: 0x7E, has_infinity: false };
    const E5M2: Self = Self { mantissa_bits: 2, bias: 15, largest: 0x7B, has_infinity: true };

    /// What a number of fp32 has in its exponent for the exponent 0 of this format.
    const fn exponent_offset(&self) -> u32 {
        127 - self.bias
    }

    /// How many bits of a mantissa of fp32 this format has not.
    const fn cut(&self) -> u32 {
        23 - self.mantissa_bits
    }

    /// The least positive number, of which subnormal ones are multiples, times a power of two.
    const fn least_times_power(&self, power: u32) -> f32 {
        f32::from_bits((self.exponent_offset() + 1 - self.mantissa_bits + power) << 23)
    }

    #[inline(always)]
    fn round(&self, x: f32) -> u8 {
        let (sign, magnitude) = (x.to_bits() >> 24 & 0x80, x.to_bits() & 0x7FFF_FFFF);
        if x.is_nan() {
            return 0x7F;
        }
        let code = if magnitude < (self.exponent_offset() + 1) << 23 {
            // The sum is rounded to a multiple of the least number: its mantissa counts them.
            let base = self.least_times_power(23);
            (f32::from_bits(magnitude) + base).to_bits() - base.to_bits()
        } else {
            let is_odd = magnitude >> self.cut() & 1;
            let rounded = (magnitude + (1 << (self.cut() - 1)) - 1 + is_odd) >> self.cut();
            rounded - (self.exponent_offset() << self.mantissa_bits)
        };
        (code.min(self.largest) | sign) as u8
    }

    #[inline(always)]
    fn widen(&self, bits: u8) -> f32 {
        let (sign, code) = (u32::from(bits & 0x80) << 24, u32::from(bits & 0x7F));
        let magnitude = if code > self.largest {
            if !self.has_infinity || code > self.largest + 1 {
                return f32::from_bits(0x7FFF_FFFF);
            }
            f32::INFINITY
        } else if code >> self.mantissa_bits == 0 {
            code as f32 * self.least_times_power(0)
        } else {
            f32::from_bits((code << self.cut()) + (self.exponent_offset() << 23))
        };
        f32::from_bits(magnitude.to_bits() | sign)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// The value of a code, by the formats' definition.
    fn value(code: u8, mantissa_bits: i32, bias: i32) -> f64 {
        let (exponent, mantissa) = (i32::from(code) >> mantissa_bits, i32::from(code) & ((1 << mantissa_bits) - 1));
        let (leading, exponent) = if exponent == 0 { (0.0, 1) } else { (1.0, exponent) };
        (leading + f64::from(mantissa) * 2f64.powi(-mantissa_bits)) * 2f64.powi(exponent - bias)
    }

    /// Compares all conversions from fp32 numbers near to a number of the format, or between two, with a search for the nearest one.
    fn check(round: fn(f32) -> u8, widen: fn(u8) -> f32, mantissa_bits: i32, bias: i32, largest: u8) {
        let values: Vec<f64> = (0..=largest).map(|code| value(code, mantissa_bits, bias)).collect();
        for (code, &value) in values.iter().enumerate() {
            let code = code as u8;
            assert_eq!(
                (widen(code).to_bits(), widen(code | 0x80).to_bits()),
                ((value as f32).to_bits(), (-value as f32).to_bits())
            );
            assert_eq!((round(value as f32), round(-value as f32)), (code, code | 0x80));
            let Some(&next) = values.get(usize::from(code) + 1) else { continue };
            let middle = ((value + next) / 2.0) as f32;
            assert_eq!(round(middle), code + (code & 1), "ties go to even: between {value} and {next}");
            assert_eq!((round(middle.next_down()), round(middle.next_up())), (code, code + 1));
        }
        for x in [values[usize::from(largest)] as f32 * 1.5, 1e30, f32::INFINITY] {
            assert_eq!((round(x), round(-x)), (largest, largest | 0x80));
        }
        for nan in [0x7FC0_0000, 0xFFFF_FFFF, 0x7F80_0001] {
            assert_eq!(round(f32::from_bits(nan)), 0x7F);
        }
        assert_eq!((widen(0x7F).to_bits(), widen(0xFF).to_bits()), (0x7FFF_FFFF, 0x7FFF_FFFF));
        assert_eq!((round(f32::MIN_POSITIVE), round(-f32::from_bits(1)), round(-0.0)), (0, 0x80, 0x80));
    }

    #[test]
    fn numbers_of_8_bits_are_those_of_their_formats() {
        check(|x| E4m3::from_f32(x).to_bits(), |bits| E4m3::from_bits(bits).to_f32(), 3, 7, 0x7E);
        check(|x| E5m2::from_f32(x).to_bits(), |bits| E5m2::from_bits(bits).to_f32(), 2, 15, 0x7B);
        assert_eq!((E4m3::from_bits(0x7E).to_f32(), E5m2::from_bits(0x7B).to_f32()), (448.0, 57344.0));
        assert_eq!([0x7C, 0xFC].map(|bits| E5m2::from_bits(bits).to_f32()), [f32::INFINITY, f32::NEG_INFINITY]);
        assert!([0x7D, 0x7E, 0xFD].into_iter().all(|bits| E5m2::from_bits(bits).to_f32().is_nan()));
    }

    #[test]
    fn numbers_of_16_bits_come_back_as_they_were() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (F16::from_bits(bits), Bf16::from_bits(bits));
            let same = |is_nan: bool, back: u16| back == if is_nan { 0x7FFF } else { bits };
            assert!(same(half.to_f32().is_nan(), F16::from_f32(half.to_f32()).to_bits()), "{bits:#x}");
            assert!(same(brain.to_f32().is_nan(), Bf16::from_f32(brain.to_f32()).to_bits()), "{bits:#x}");
        }
        assert_eq!((F16::from_f32(65519.9).to_f32(), F16::from_f32(65520.0).to_f32()), (65504.0, f32::INFINITY));
        assert_eq!(Bf16::from_f32(1.0 + 3.0 / 256.0).to_bits(), 0x3F82);
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let nan = F16::from_bits(0x7E00);
        assert!(nan != nan && F16::from_bits(0x8000) == F16::from_bits(0));
        assert!(E4m3::from_f32(-1.0) < E4m3::from_f32(0.5) && nan.partial_cmp(&nan).is_none());
        assert_eq!(std::format!("{:?}", Bf16::from_f32(1.5)), "1.5");
    }
}
