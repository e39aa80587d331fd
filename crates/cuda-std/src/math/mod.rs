//! Arithmetic whose rounding a kernel relies on, and functions that have the same bits on the GPU and on the CPU.
//!
//! Errors are in units in the last place. Where one is given as found, it is the largest over all 2³² arguments, subnormal numbers
//! and results included; CUDA’s is the maximum in the table of its programming guide. Of two arguments there are too many: those functions
//! were run on pairs drawn by chance.
//!
//! | function | largest error found | CUDA's maximum | made of |
//! |---|---|---|---|
//! | [`exp`] | 1.870 | 2 | Cody–Waite reduction, polynomial of degree 5 |
//! | [`exp2`] | 0.879 | 2 | exact reduction, polynomial of degree 6 |
//! | [`exp10`] | 1.004 | 2 | Cody–Waite reduction, polynomial of degree 6 |
//! | [`expm1`] | 0.944 | 1 | Cody–Waite reduction, polynomial of degree 7 |
//! | [`log`] | 0.883 | 1 | exponent and polynomial of degree 10, sums with remainders |
//! | [`log2`] | 0.911 | 1 | as `log`, polynomial of degree 11 |
//! | [`log10`] | 1.116 | 2 | as `log2` |
//! | [`log1p`] | 0.930 | 1 | as `log`, with what the addition loses |
//! | [`sqrt`] | 0.5: correctly rounded | 0.5 | one operation |
//! | [`rsqrt`] | 0.5: correctly rounded | 2 | an approximation, Householder’s method |
//! | [`cbrt`] | 0.735 | 1 | a guess from the exponent, polynomial of degree 3, Newton’s method |
//! | [`rcbrt`] | 0.829 | 1 | as `cbrt` |
//! | [`sin`] | 0.884 | 2 | Cody–Waite or Payne–Hanek reduction, polynomial of degree 7 |
//! | [`cos`] | 0.883 | 2 | the same, polynomial of degree 8 |
//! | [`tan`] | 1.264 | 4 | the same, polynomial of degree 15, a division |
//! | [`sinpi`] | 0.965 | 1 | exact reduction, polynomial of degree 9 |
//! | [`cospi`] | 0.875 | 1 | exact reduction, polynomial of degree 8 |
//! | [`asin`] | 1.184 | 2 | polynomial of degree 11, a square root |
//! | [`acos`] | 1.140 | 2 | as `asin` |
//! | [`atan`] | 1.380 | 2 | a reciprocal, polynomial of degree 17 |
//! | [`sinh`] | 1.620 | 3 | polynomial of degree 9, or eˣ and a reciprocal |
//! | [`cosh`] | 1.346 | 2 | eˣ, a reciprocal |
//! | [`tanh`] | 1.583 | 2 | polynomial of degree 11, or e²ˣ and a reciprocal |
//! | [`asinh`] | 2.356 | 3 | polynomial of degree 11, or a square root and `log` |
//! | [`acosh`] | 1.899 | 4 | a square root and `log` |
//! | [`atanh`] | 0.932 | 3 | polynomial of degree 13, or a division and `log1p` |
//! | [`erf`] | 1.139 | 2 | polynomial of degree 15, or 1 − 2ᵖ with one of degree 6 |
//! | [`erfc`] | 2.420 | 4 | the same polynomial, or eˣ in two parts, a reciprocal, polynomial of degree 8 |
//! | [`tgamma`] | 3.821 | 5 | a division and polynomial of degree 10, or Stirling’s formula |
//! | [`lgamma`] | 5.325 outside of −10.001 to −2.264 | 6 (outside of −10.001 to −2.264) | polynomials, or Stirling’s formula |
//! | [`floor`] | 0 | 0 | one operation |
//! | [`ceil`] | 0 | 0 | one operation |
//! | [`trunc`] | 0 | 0 | one operation |
//! | [`round_ties_even`] | 0 | 0 | one operation |
//! | [`round`] | 0 | 0 | an addition and `trunc` |
//! | [`abs`] | 0 | 0 | integer operations |
//! | [`sincos`] | those of `sin` and `cos`, with the same bits | 2 | one reduction |
//! | [`sincospi`] | those of `sinpi` and `cospi`, with the same bits | 1 | one reduction |
//! | [`pow`], [`powi`] | 0.908 in 10⁸ pairs | 4 | log₂ x in two parts, then as `exp2` |
//! | [`atan2`] | 1.736 in 10⁸ pairs | 3 | a division, the polynomial of `atan` |
//! | [`hypot`] | 1.002 in 10⁸ pairs | 3 | powers of 2, a fused sum of squares, a square root |
//! | [`fmod`], [`remainder`] | 0 in 10⁸ pairs | 0 | quotients, and subtractions that are exact |
//! | [`fma`], [`min`], [`max`], [`minimum`], [`maximum`] | exact, or correctly rounded | the same | one operation |
//! | [`copysign`], [`ldexp`], [`frexp`], [`ilogb`] | exact; `ldexp` correctly rounded | the same | integer operations, products with powers of 2 |
//!
//! `lgamma` is 0 again and again between −10.001 and −2.264; what counts there is the absolute error, at most 1.7·10⁻⁶. Where a
//! division, a square root or the integer next to a number is one operation, f64 has it, too: [`fma_f64`], [`sqrt_f64`], [`floor_f64`]
//! and so on. [`fast`] has the functions of the hardware, with larger errors and other bits.
//!
//! The bounds are tested against functions in f64: on some numbers of each exponent by the ordinary tests, and on all 2³² by these (about
//! a minute each on one core):
//!
//! ```sh
//! RUSTFLAGS="-C target-cpu=native" cargo test --release -p tilewright-cuda-std --test math -- --ignored --nocapture --test-threads 1
//! ```
//!
//! # Why the bits are the same
//!
//! Both sides compile one source, of operations that IEEE 754 defines to the last bit: `fma`, `+`, `−`, `·`, `/`, the square root and the
//! rounding to an integer, rounded to nearest, with subnormal numbers, and integer operations. rustc contracts nothing, and neither does
//! the builder: the PTX says `.rn` of each of them and never `.ftz`. No CPU has the bits of the hardware's approximations (`ex2.approx`,
//! `rsqrt.approx`). Where one is used, what follows ends at the same number whatever the approximation is, which a test tries for all
//! of them: the number nearest to a root ([`rsqrt`], [`asin`], [`acos`]) or to the inverse of a number of 16 bits, or the one multiple that
//! [`fmod`] can subtract. What IEEE 754 leaves open is the bits of a NaN: here they are always the GPU's, `0x7FFFFFFF`.
//!
//! The methods of std (`x.exp()`) are other functions: they call the C library of the machine, and no GPU has them. The builder refuses what `core`
//! has for both and with other bits, names the line, and says what to write: [`fmod`] for `x % y` of f32, of which LLVM makes a division that is
//! rounded; [`max`] and [`min`] for `x.max(y)` and `x.min(y)`, which leave open which zero they choose of +0 and −0. Where one of the two is a
//! constant and no zero, as in `x.min(14.5)`, nothing is open, and nothing is refused. The executor lets all of them pass, with the CPU's bits.
//!
//! # How they are made
//!
//! There is no table, because one that is indexed at run time would be in memory. There is no f64, because many GPUs have little of it,
//! but for three operations where a sine has an argument above 105615. Where 24 bits do not do, a number is the sum of two. Branches
//! are for what is rare (large arguments of sines, or of [`exp`] and [`exp10`]) or has nothing in common (`tgamma` near 0 and far from
//! it); everywhere else both sides are computed, and one is selected. [`exp2`] and the logarithms have none: kernels that compute many at
//! once have them side by side, which a branch would keep apart.
//!
//! # Sources
//!
//! The reductions are those of W. J. Cody and W. Waite, "Software Manual for the Elementary Functions" (1980), and of M. H. Payne and
//! R. N. Hanek, "Radian reduction for trigonometric functions" (1983). Sums and products in two parts are T. J. Dekker's, "A
//! floating-point technique for extending the available precision" (1971), products with a fused operation. The polynomials are minimax,
//! most of them in the relative error of the result, found by Remez's exchange algorithm in 30 digits and more. The first coefficients
//! were rounded to `f32` one after the other, and those behind them found again each time. What else a function rests on, it says.

mod double;
mod error_function;
mod exponential;
pub mod fast;
mod gamma;
mod hyperbolic;
mod logarithm;
mod power;
mod rounding;
mod trigonometric;

pub use double::{
    abs_f64, ceil_f64, copysign_f64, floor_f64, fma_f64, max_f64, min_f64, round_f64, round_ties_even_f64, sqrt_f64,
    trunc_f64,
};
pub use error_function::{erf, erfc};
pub use exponential::{exp, exp2, exp10, expm1};
pub use gamma::{lgamma, tgamma};
pub use hyperbolic::{acosh, asinh, atanh, cosh, sinh, tanh};
pub use logarithm::{log, log1p, log2, log10};
pub use power::{cbrt, hypot, pow, powi, rcbrt, rsqrt};
pub use rounding::{ceil, floor, fmod, frexp, ilogb, ldexp, remainder, round, round_ties_even, trunc};
pub use trigonometric::{acos, asin, atan, atan2, cos, cospi, sin, sincos, sincospi, sinpi, tan};

/// `a·b + c` with one rounding (IEEE 754 fusedMultiplyAdd): `fma.rn.f32` on the GPU.
///
/// Rust never contracts `a * b + c` into this; where a kernel wants the fused operation, it has to say so.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// // The product is not rounded: x² − x² rounded is what the rounding has left out.
/// let x = 1.0 + f32::EPSILON;
/// assert_eq!(math::fma(x, x, -(x * x)), f32::EPSILON * f32::EPSILON);
/// ```
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
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::sqrt(2.25), 1.5);
/// assert!(math::sqrt(-1.0).is_nan());
/// ```
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        core::intrinsics::sqrtf32(x)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        observed("`math::sqrt`", [x], x.sqrt())
    }
}

/// The magnitude of x: of −0 it is +0, of a NaN NaN. Exact.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::abs(-1.5), 1.5);
/// ```
#[inline(always)]
pub fn abs(x: f32) -> f32 {
    let bits = x.to_bits() & !SIGN;
    f32::from_bits(if bits > INFINITY { NAN.to_bits() } else { bits })
}

/// The magnitude of x with the sign of y, which may be a zero or a NaN. That of a NaN x is NaN. Exact.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::copysign(1.5, -0.0), -1.5);
/// ```
#[inline(always)]
pub fn copysign(x: f32, y: f32) -> f32 {
    let bits = x.to_bits() & !SIGN;
    f32::from_bits(if bits > INFINITY { NAN.to_bits() } else { bits | y.to_bits() & SIGN })
}

/// The smaller number, and −0 of ±0. If one is a NaN, it is the other: a NaN is missing data (IEEE 754-2019 minimumNumber); only if
/// both are, it is NaN. `min.f32` on the GPU.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::min(1.0, -2.0), -2.0);
/// assert_eq!(math::min(1.0, f32::NAN), 1.0);
/// ```
#[inline(always)]
pub fn min(x: f32, y: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "min.f32 {result}, {x}, {y};",
                result = out(reg32) result, x = in(reg32) x, y = in(reg32) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let smaller = if x < y { x } else { y };
        // Of the zeros, −0 has a bit more; everything else that is equal is the same.
        let smaller = if x == y { f32::from_bits(x.to_bits() | y.to_bits()) } else { smaller };
        let smaller = if x.is_nan() { y } else { smaller };
        with_gpu_nan(if y.is_nan() { x } else { smaller })
    }
}

/// The larger number, and +0 of ±0. If one is a NaN, it is the other: a NaN is missing data (IEEE 754-2019 maximumNumber); only if
/// both are, it is NaN. `max.f32` on the GPU.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::max(1.0, -2.0), 1.0);
/// assert_eq!(math::max(f32::NAN, 1.0), 1.0);
/// ```
#[inline(always)]
pub fn max(x: f32, y: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "max.f32 {result}, {x}, {y};",
                result = out(reg32) result, x = in(reg32) x, y = in(reg32) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        with_gpu_nan(-min(-x, -y))
    }
}

/// The smaller number, and −0 of ±0; NaN if either is (IEEE 754-2019 minimum). `min.NaN.f32` on the GPU.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::minimum(1.0, -2.0), -2.0);
/// assert!(math::minimum(1.0, f32::NAN).is_nan());
/// ```
#[inline(always)]
pub fn minimum(x: f32, y: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "min.NaN.f32 {result}, {x}, {y};",
                result = out(reg32) result, x = in(reg32) x, y = in(reg32) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if x.is_nan() || y.is_nan() { NAN } else { min(x, y) }
    }
}

/// The larger number, and +0 of ±0; NaN if either is (IEEE 754-2019 maximum). `max.NaN.f32` on the GPU.
///
/// ```
/// # use tilewright_cuda_std::{math};
/// assert_eq!(math::maximum(1.0, -2.0), 1.0);
/// assert!(math::maximum(f32::NAN, 1.0).is_nan());
/// ```
#[inline(always)]
pub fn maximum(x: f32, y: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "max.NaN.f32 {result}, {x}, {y};",
                result = out(reg32) result, x = in(reg32) x, y = in(reg32) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if x.is_nan() || y.is_nan() { NAN } else { max(x, y) }
    }
}

/// The NaN of a GPU.
const NAN: f32 = f32::from_bits(0x7FFF_FFFF);
const SIGN: u32 = 1 << 31;
const INFINITY: u32 = f32::INFINITY.to_bits();

/// A number of about 48 bits, as the sum of two; the low part is at most half a unit in the last place of the high one, or about that.
#[derive(Clone, Copy)]
struct Pair {
    high: f32,
    low: f32,
}

impl Pair {
    /// The sum, exactly, if `larger` is 0 or has the larger magnitude (T. J. Dekker, 1971).
    #[inline(always)]
    fn sum(larger: f32, smaller: f32) -> Self {
        let high = larger + smaller;
        Self { high, low: smaller - (high - larger) }
    }

    /// The sum, exactly (D. E. Knuth, "The Art of Computer Programming", volume 2).
    #[inline(always)]
    fn sum_of_any(a: f32, b: f32) -> Self {
        let high = a + b;
        let of_b = high - a;
        Self { high, low: (a - (high - of_b)) + (b - of_b) }
    }

    /// The product, exactly, where nothing of it is below 2⁻¹⁴⁹.
    #[inline(always)]
    fn product(a: f32, b: f32) -> Self {
        let high = a * b;
        Self { high, low: fma(a, b, -high) }
    }

    #[inline(always)]
    fn rounded(self) -> f32 {
        self.high + self.low
    }
}

/// Numbers from 2²³ to 2²⁴ are integers, and as far apart as their bits are: added to this, a number becomes an integer.
const ROUND: f32 = 12_582_912.0;

/// The integer nearest to `x·factor`, which is below 2²² in magnitude, as both kinds of number. Of a NaN: NaN, and any integer.
#[inline(always)]
fn nearest(x: f32, factor: f32) -> (f32, i32) {
    let (n, bits) = nearest_bits(x, factor);
    (n, (bits as i32).wrapping_sub(ROUND.to_bits() as i32))
}

/// As [`nearest`], but what comes as the other kind of number is the integer's last bits alone: its 22 below many others.
#[inline(always)]
fn nearest_bits(x: f32, factor: f32) -> (f32, u32) {
    let rounded = fma(x, factor, ROUND);
    (rounded - ROUND, rounded.to_bits())
}

/// 2ⁿ for n from −126 to 127, of the last bits of n.
#[inline(always)]
fn power_of_two(bits: u32) -> f32 {
    f32::from_bits(1.0f32.to_bits().wrapping_add(bits << 23))
}

/// `x·2ⁿ` for positive x where this is normal, of the last bits of n: one operation. No NaN.
#[inline(always)]
fn add_to_exponent(x: f32, bits: u32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(bits << 23))
}

/// `x·2ⁿ`, rounded once, for positive x from 2⁻³⁰ to 2³⁰ and n from −220 to 130, of which it takes what [`nearest_bits`] gives: if that
/// was of a NaN, x is NaN, and so is the result.
#[inline(always)]
fn scale_bits(x: f32, bits: u32) -> f32 {
    // 2ⁿ itself may be too large or too small for a number. What is in front of the last bits of n is shifted out of both.
    let half = ((bits as i32) >> 1) as u32;
    let rest = bits.wrapping_sub(half);
    // With the one NaN of a GPU, `rest << 23` is 0, and x stays a NaN; other processors have others.
    let of_rest = if cfg!(target_arch = "nvptx64") { add_to_exponent(x, rest) } else { x * power_of_two(rest) };
    of_rest * power_of_two(half)
}

/// `x·2ⁿ`, rounded once, for x from 2⁻³⁰ to 2³⁰ and n from −220 to 130. Of a NaN it is NaN, whatever n is.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    // 2ⁿ itself may be too large or too small for a number; the first of the two products is exact.
    let half = n >> 1;
    x * power_of_two(half as u32) * power_of_two(n.wrapping_sub(half) as u32)
}

/// What [`reciprocal`] takes of x: 16 bits.
#[inline(always)]
fn most_of(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0xFF)
}

/// `1/most_of(x)`, correctly rounded, for x with a magnitude from 2⁻¹²⁵ to 2¹²⁵: within 2⁻¹⁵ of 1/x.
///
/// On a GPU, a step of Newton's method from the hardware's approximation. Of numbers of 16 bits it ends at the nearest number, whichever
/// of the nine around it the approximation is: a test tries all. So there is no range to be checked, as a division does.
#[inline(always)]
fn near_reciprocal(x: f32) -> f32 {
    let most = most_of(x);
    if cfg!(target_arch = "nvptx64") { near_reciprocal_from(most, fast::rcp_of_normal(most)) } else { 1.0 / most }
}

/// One over a number of 16 bits, from a number near it.
#[inline(always)]
fn near_reciprocal_from(most: f32, near: f32) -> f32 {
    // It is `near` that is negated, because that costs nothing: `most` is made by a logical operation.
    fma(near, fma(most, -near, 1.0), near)
}

/// 1/x within 0.51 units in the last place, for x with a magnitude from 2⁻¹²⁵ to 2¹²⁵. Of a NaN: NaN.
#[inline(always)]
fn reciprocal(x: f32) -> f32 {
    let y = near_reciprocal(x);
    fma(y, fma(-x, y, 1.0), y)
}

/// The square root, correctly rounded, for x from 2⁻⁹⁰ to 2¹²⁰ and 0. Of negative numbers and NaNs: NaN.
///
/// On a GPU, two steps from the hardware's approximation of 1/√x, which end at the nearest number whatever that is: so there is no range
/// to be checked, as [`sqrt`] does.
#[inline(always)]
fn root(x: f32) -> f32 {
    // Changes nothing but 0, which has no inverse.
    const LITTLE: f32 = f32::from_bits((127 - 120) << 23);
    if cfg!(target_arch = "nvptx64") { root_from(x, fast::rsqrt_of_normal(x + LITTLE)) } else { sqrt(x) }
}

/// √x from a number near 1/√x (R. E. Goldschmidt's method, and a last step with the remainder).
#[inline(always)]
fn root_from(x: f32, near: f32) -> f32 {
    let (root, half) = (x * near, 0.5 * near);
    let e = fma(-half, root, 0.5);
    let (root, half) = (fma(root, e, root), fma(half, e, half));
    fma(fma(-root, root, x), half, root)
}

/// x or −x, as the highest bit is 0 or 1. By a multiplication, which on a GPU makes one NaN of all.
#[inline(always)]
fn with_sign(x: f32, bits: u32) -> f32 {
    x * f32::from_bits(1.0f32.to_bits() | bits & SIGN)
}

/// The result of a public function of this module for these arguments, if NaN with the bits that it has on a GPU. Where a launch on the CPU looks for
/// the first NaN and the like, it looks at this.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
fn observed<const N: usize>(_function: &'static str, _arguments: [f32; N], result: f32) -> f32 {
    let result = with_gpu_nan(result);
    #[cfg(not(target_arch = "nvptx64"))]
    if crate::executor::is_tracing() {
        let location = core::panic::Location::caller();
        // What is called by `unobserved` is called in one of this module's files.
        if !location.file().starts_with(file!().trim_end_matches("mod.rs")) {
            crate::executor::trace_function(_function, _arguments, result, location);
        }
    }
    result
}

/// Calls a public function of this module from another one: nobody looks at what it makes. (By `#[track_caller]`, which goes on from function to
/// function but not into closures, it would else be called where the other one is.)
#[inline(always)]
fn unobserved(function: impl FnOnce() -> f32) -> f32 {
    function()
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
        let bits = x.to_bits();
        f32::from_bits(if bits & !SIGN > INFINITY { NAN.to_bits() } else { bits })
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    #[test]
    fn roots_do_not_depend_on_their_start() {
        assert_eq!(root_from(0.0, 2f32.powi(60)), 0.0);
        let step = if cfg!(debug_assertions) { 101 } else { 1 };
        for bits in (1f32.to_bits()..4f32.to_bits()).step_by(step) {
            let x = f32::from_bits(bits);
            for off in -4i32..=4 {
                let near = f32::from_bits((1.0 / x.sqrt()).to_bits().wrapping_add_signed(off));
                assert_eq!(root_from(x, near), x.sqrt(), "{x:e}, {off} units in the last place off");
            }
        }
    }

    #[test]
    fn reciprocals_do_not_depend_on_their_start() {
        for bits in (1f32.to_bits()..2f32.to_bits()).step_by(256) {
            let x = f32::from_bits(bits);
            for off in -4i32..=4 {
                let near = f32::from_bits((1.0 / x).to_bits().wrapping_add_signed(off));
                assert_eq!(near_reciprocal_from(x, near), 1.0 / x, "{x:e}, {off} units in the last place off");
            }
        }
    }
}
