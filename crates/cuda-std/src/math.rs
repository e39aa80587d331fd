//! Arithmetic whose rounding a kernel relies on.

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
