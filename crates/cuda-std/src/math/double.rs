//! Operations on f64. Where the result is a NaN, its bits are those of the processor: not the same on a GPU and on the CPU.

/// One intrinsic on the GPU, and one method on the CPU.
macro_rules! operation {
    ($intrinsic:ident, $method:ident, $first:ident $(, $other:ident)*) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            core::intrinsics::$intrinsic($first $(, $other)*)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $first.$method($($other),*)
        }
    }};
}

/// `a·b + c` with one rounding (`fma.rn.f64`).
#[inline(always)]
pub fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    operation!(fmaf64, mul_add, a, b, c)
}

/// The square root, correctly rounded (`sqrt.rn.f64`). That of −0 is −0, that of a negative number NaN.
#[inline(always)]
pub fn sqrt_f64(x: f64) -> f64 {
    operation!(sqrtf64, sqrt, x)
}

/// The nearest integer that is not above x. That of −0 is −0.
#[inline(always)]
pub fn floor_f64(x: f64) -> f64 {
    operation!(floorf64, floor, x)
}

/// The nearest integer that is not below x. That of numbers between −1 and −0 is −0.
#[inline(always)]
pub fn ceil_f64(x: f64) -> f64 {
    operation!(ceilf64, ceil, x)
}

/// The nearest integer that is not beyond x, seen from 0, and with its sign.
#[inline(always)]
pub fn trunc_f64(x: f64) -> f64 {
    operation!(truncf64, trunc, x)
}

/// The nearest integer, the even one of two that are equally near, with the sign of x.
#[inline(always)]
pub fn round_ties_even_f64(x: f64) -> f64 {
    operation!(round_ties_even_f64, round_ties_even, x)
}

/// The nearest integer, the one farther from 0 of two that are equally near, with the sign of x. As [`round`](super::round).
#[inline(always)]
pub fn round_f64(x: f64) -> f64 {
    const HALF: f64 = 0.5f64.next_down();
    copysign_f64(trunc_f64(abs_f64(x) + HALF), x)
}

/// The magnitude of x.
#[inline(always)]
pub fn abs_f64(x: f64) -> f64 {
    x.abs()
}

/// The magnitude of x with the sign of y.
#[inline(always)]
pub fn copysign_f64(x: f64, y: f64) -> f64 {
    x.copysign(y)
}

/// The smaller number, and −0 of ±0; if one is a NaN, the other. As [`min`](super::min).
#[inline(always)]
pub fn min_f64(x: f64, y: f64) -> f64 {
    let smaller = if x < y { x } else { y };
    // Of the zeros, −0 has a bit more; everything else that is equal is the same.
    let smaller = if x == y { f64::from_bits(x.to_bits() | y.to_bits()) } else { smaller };
    let smaller = if x.is_nan() { y } else { smaller };
    if y.is_nan() { x } else { smaller }
}

/// The larger number, and +0 of ±0; if one is a NaN, the other. As [`max`](super::max).
#[inline(always)]
pub fn max_f64(x: f64, y: f64) -> f64 {
    -min_f64(-x, -y)
}
