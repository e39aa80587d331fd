//! Conversions to the 16-bit formats of tensor cores, two numbers to a register.

/// Two numbers rounded to bf16 (8 significant bits, the exponents of fp32), to nearest, ties to even: `first` in the lower
/// half of the result, `second` in the upper (`cvt.rn.bf16x2.f32`, sm_80).
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
        pair(half::bf16::from_f32(first).to_bits(), half::bf16::from_f32(second).to_bits())
    }
}

/// Two numbers rounded to fp16 (11 significant bits, largest 65504), to nearest, ties to even: `first` in the lower half of
/// the result, `second` in the upper (`cvt.rn.f16x2.f32`, sm_80). Larger numbers become infinite.
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
        pair(half::f16::from_f32(first).to_bits(), half::f16::from_f32(second).to_bits())
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn pair(first: u16, second: u16) -> u32 {
    u32::from(second) << 16 | u32::from(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_nearest_with_ties_to_even() {
        assert_eq!(bf16x2(1.0, -2.0), 0xC000_3F80);
        assert_eq!(bf16x2(1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0), 0x3F82_3F80);
        assert_eq!(f16x2(1.0, -2.0), 0xC000_3C00);
        assert_eq!(f16x2(65504.0, 65520.0), 0x7C00_7BFF);
        assert_eq!(f16x2(1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0), 0x3C02_3C00);
    }
}
