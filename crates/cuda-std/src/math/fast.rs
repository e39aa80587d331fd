//! Functions of the hardware: few instructions, larger errors, and other bits than on the CPU.
//!
//! | function | on the GPU | error at most |
//! |---|---|---|
//! | [`exp2`], [`exp2_or_zero`] | `ex2.approx.f32`, `ex2.approx.ftz.f32` | 2⁻²² of the result |
//! | [`exp`] | `ex2.approx.f32` of x·log₂ e | 2⁻²² + abs(x)·2⁻²³ of the result |
//! | [`log2`] | `lg2.approx.f32` | 2⁻²² where x is between 1/2 and 2, elsewhere 2⁻²² of the result |
//! | [`log`] | ln 2 times `lg2.approx.f32` | 2⁻²² where x is between 1/2 and 2, elsewhere 2⁻²¹ of the result |
//! | [`sin`], [`cos`] | `sin.approx.f32`, `cos.approx.f32` | 2⁻²⁰·⁵ and 2⁻²⁰·⁴ where x is between −2π and 2π, 2⁻¹⁴·⁷ between −100π and 100π |
//! | [`tanh`] | `tanh.approx.f32` (sm_75) | 2⁻¹¹ of the result |
//! | [`rcp`], [`rcp_of_normal`] | `rcp.approx.f32`, `rcp.approx.ftz.f32` | 1 unit in the last place |
//! | [`sqrt`] | `sqrt.approx.f32` | 2⁻²³ of the result |
//! | [`rsqrt`] | `rsqrt.approx.f32` | 2⁻²²·⁹ of the result |
//! | [`div`] | `div.full.f32` | 2 units in the last place |
//!
//! These are the bounds of the PTX ISA (9.1), and all arguments that there are have been tried on an H200: of [`cos`] there was 2⁻²⁰·⁴³ for the
//! 2⁻²⁰·⁵ there, of [`exp2`] 2.4 units in the last place for 2. A result below 2⁻¹²⁶ has fewer bits.
//!
//! No CPU has the bits of these instructions. There the functions are those of [`math`](super), or made of its operations, and nearer
//! to what they shall be than the table asks: a kernel that uses them does not agree with the executor in each bit, and whatever
//! compares the two has to allow for the errors above.
//!
//! Subnormal numbers are kept, as arguments and as results: the instructions are those without `.ftz`, but for [`exp2_or_zero`] and
//! [`rcp_of_normal`].

use super::{observed, unobserved};

/// A function of one instruction on the GPU, and another on the CPU.
macro_rules! approximation {
    ($(#[$doc:meta])* $visibility:vis $name:ident, $instruction:literal, ($($argument:ident),+), $on_cpu:expr) => {
        $(#[$doc])*
        #[inline(always)]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        $visibility fn $name($($argument: f32),+) -> f32 {
            #[cfg(target_arch = "nvptx64")]
            {
                let result: f32;
                // SAFETY: arithmetic on registers.
                unsafe {
                    core::arch::asm!(
                        $instruction,
                        result = out(reg32) result, $($argument = in(reg32) $argument),+,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                result
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                $on_cpu
            }
        }
    };
}

approximation! {
    /// 2ˣ. 2^−∞ is 0, 2^∞ is ∞, that of NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::exp2(0.5) - 2f32.sqrt()).abs() < 1e-6);
    /// ```
    pub exp2, "ex2.approx.f32 {result}, {x};", (x), observed("`math::fast::exp2`", [x], unobserved(|| super::exp2(x)))
}

approximation! {
    /// 2ˣ as [`exp2`], but 0 where that is below 2⁻¹²⁶ (`ex2.approx.ftz.f32`): one instruction on the GPU, where the other takes four.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert_eq!(fast::exp2_or_zero(3.0), 8.0);
    /// assert_eq!(fast::exp2_or_zero(-130.0), 0.0);
    /// ```
    pub exp2_or_zero, "ex2.approx.ftz.f32 {result}, {x};", (x), observed("`math::fast::exp2_or_zero`", [x], normal_or_zero(unobserved(|| super::exp2(x))))
}

/// A number that is not below 2⁻¹²⁶, or zero.
#[cfg(not(target_arch = "nvptx64"))]
fn normal_or_zero(x: f32) -> f32 {
    if x < f32::MIN_POSITIVE { 0.0 } else { x }
}

approximation! {
    /// log₂ x. That of ±0 is −∞, that of ∞ is ∞, that of a negative number or a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::log2(10.0) - 10f32.log2()).abs() < 1e-6);
    /// ```
    pub log2, "lg2.approx.f32 {result}, {x};", (x), observed("`math::fast::log2`", [x], unobserved(|| super::log2(x)))
}

approximation! {
    /// The sine of x radians, for x between −100π and 100π: beyond that it can be anything. That of ±∞ or a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::sin(1.0) - 1f32.sin()).abs() < 1e-6);
    /// ```
    pub sin, "sin.approx.f32 {result}, {x};", (x), observed("`math::fast::sin`", [x], unobserved(|| super::sin(x)))
}

approximation! {
    /// The cosine of x radians, for x between −100π and 100π: beyond that it can be anything. That of ±∞ or a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::cos(1.0) - 1f32.cos()).abs() < 1e-6);
    /// ```
    pub cos, "cos.approx.f32 {result}, {x};", (x), observed("`math::fast::cos`", [x], unobserved(|| super::cos(x)))
}

approximation! {
    /// The hyperbolic tangent, with about 11 bits. That of ±∞ is ±1, that of a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::tanh(0.5) - 0.5f32.tanh()).abs() < 5e-4);
    /// ```
    pub tanh, "tanh.approx.f32 {result}, {x};", (x), observed("`math::fast::tanh`", [x], unobserved(|| super::tanh(x)))
}

approximation! {
    /// 1/x. That of ±0 is ±∞, that of ±∞ is ±0, that of a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::rcp(3.0) - 1.0 / 3.0).abs() < 1e-7);
    /// assert_eq!(fast::rcp(-0.0), f32::NEG_INFINITY);
    /// ```
    pub rcp, "rcp.approx.f32 {result}, {x};", (x), observed("`math::fast::rcp`", [x], 1.0 / x)
}

approximation! {
    /// The square root. That of −0 is −0, that of a negative number or a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::sqrt(2.0) - 2f32.sqrt()).abs() < 1e-6);
    /// ```
    pub sqrt, "sqrt.approx.f32 {result}, {x};", (x), observed("`math::fast::sqrt`", [x], unobserved(|| super::sqrt(x)))
}

approximation! {
    /// One over the square root. That of ±0 is ±∞, that of ∞ is 0, that of a negative number or a NaN is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::rsqrt(4.0) - 0.5).abs() < 1e-6);
    /// ```
    pub rsqrt, "rsqrt.approx.f32 {result}, {x};", (x), observed("`math::fast::rsqrt`", [x], unobserved(|| super::rsqrt(x)))
}

approximation! {
    /// One over the square root of a normal number, within 2⁻²²·⁹ of it: without the instructions that subnormal
    /// numbers take.
    pub(super) rsqrt_of_normal, "rsqrt.approx.ftz.f32 {result}, {x};", (x), 1.0 / unobserved(|| super::sqrt(x))
}

approximation! {
    /// 1/x as [`rcp`], of a normal number whose inverse is normal, too (`rcp.approx.ftz.f32`): one instruction on the GPU, where the other takes six.
    /// Of others it is of no use.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::rcp_of_normal(3.0) - 1.0 / 3.0).abs() < 1e-7);
    /// ```
    pub rcp_of_normal, "rcp.approx.ftz.f32 {result}, {x};", (x), observed("`math::fast::rcp_of_normal`", [x], 1.0 / x)
}

approximation! {
    /// x/y. That of numbers other than 0 by ±0 is ±∞, that of ±0 by ±0 or of ±∞ by ±∞ is NaN.
    ///
    /// ```
    /// # use tilewright_cuda_std::{math::fast};
    /// assert!((fast::div(1.0, 3.0) - 1.0 / 3.0).abs() < 1e-7);
    /// ```
    pub div, "div.full.f32 {result}, {x}, {y};", (x, y), observed("`math::fast::div`", [x, y], x / y)
}

/// eˣ as 2^(x·log₂ e). e^−∞ is 0, e^∞ is ∞, that of NaN is NaN.
///
/// ```
/// # use tilewright_cuda_std::{math::fast};
/// assert!((fast::exp(1.0) - core::f32::consts::E).abs() < 2e-6);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn exp(x: f32) -> f32 {
    observed("`math::fast::exp`", [x], unobserved(|| exp2(x * core::f32::consts::LOG2_E)))
}

/// The natural logarithm as log₂ x·ln 2. That of ±0 is −∞, that of ∞ is ∞, that of a negative number or a NaN is NaN.
///
/// ```
/// # use tilewright_cuda_std::{math::fast};
/// assert!((fast::log(10.0) - 10f32.ln()).abs() < 2e-6);
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn log(x: f32) -> f32 {
    observed("`math::fast::log`", [x], unobserved(|| log2(x)) * core::f32::consts::LN_2)
}
