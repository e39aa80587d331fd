//! Activations: functions of one number that networks have behind a product.
//!
//! ```text
//!           z = eᵗ of t = −|x|, between 0 and 1, so that nothing overflows
//!
//!             x ≥ 0                       x < 0
//!  sigmoid    1/(1 + z)                   z/(1 + z)
//!  silu       x/(1 + z)                   x·z/(1 + z)
//!  mish       x·(1 + 2z)/(1 + 2z + 2z²)   x·(z² + 2z)/(z² + 2z + 2)
//! ```
//!
//! Nothing is subtracted in these, so the results keep their bits where they are small: the sigmoid of −80 is 1.8·10⁻³⁵, not 0. The bits are the
//! same on the GPU and on the CPU, as those of [`math`] are.
//!
//! These functions are most of what a product does before it stores results, by a few warps. So there are no branches, and no instructions
//! for subnormal numbers: tanh here is not that of [`math`], which takes four times as many.
//!
//! | activation | largest relative error | where, if not everywhere |
//! |---|---|---|
//! | relu, leaky relu, clamp | half a unit in the last place | |
//! | sigmoid, silu, mish, tanh | 4·10⁻⁷ | |
//! | gelu | 4·10⁻⁷ | x > 0; below, another 5·10⁻⁸·abs(x) comes to it |
//! | gelu-tanh | 5·10⁻⁷ | x > 0; below, another 7·10⁻⁸·abs(x) comes to it |
//!
//! Both gelus of less than −3 are next to nothing, and as far off there as 1 + erf(x/√2) would be; of −5.75 and less they are 0. To the others
//! comes 2⁻¹¹⁹: where e to the power of t would be a subnormal number, it is 0.
//!
//! NaN gives NaN. Of −∞, silu and mish give NaN, as torch's do: −∞·0. The gelus give 0, where torch's give NaN.

use cuda_std::prelude::*;

use super::Epilogue;

/// A function of one number.
///
/// ```
/// use blocks::epilogue::Activation;
///
/// assert_eq!(Activation::Relu.of(-3.0), 0.0);
/// assert_eq!(Activation::LeakyRelu(0.25).of(-2.0), -0.5);
/// assert_eq!(Activation::Clamp { least: -1.0, most: 1.0 }.of(7.0), 1.0);
/// assert!((Activation::Gelu.of(1.0) - 0.841_344_7).abs() < 1e-6);
/// assert!(Activation::Relu.of(f32::NAN).is_nan());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// x, or 0 where x is below 0.
    Relu,
    /// x, or x times this slope where x is below 0.
    LeakyRelu(f32),
    /// x, but no less than `least` and then no more than `most`. Hardtanh is one.
    Clamp {
        /// The least that results.
        least: f32,
        /// The most that results.
        most: f32,
    },
    /// 1/(1 + e⁻ˣ).
    Sigmoid,
    /// x·sigmoid x, also called swish.
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// x·Φ(x), with the distribution function of the normal distribution.
    Gelu,
    /// x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, which is nearly gelu.
    GeluTanh,
    /// x·tanh(ln(1 + eˣ)).
    Mish,
}

impl Activation {
    /// The function of `x`.
    ///
    /// ```
    /// use blocks::epilogue::Activation;
    ///
    /// assert_eq!(Activation::Sigmoid.of(0.0), 0.5);
    /// ```
    #[inline(always)]
    pub fn of(self, x: f32) -> f32 {
        match self {
            Self::Relu => math::maximum(x, 0.0),
            Self::LeakyRelu(slope) => leaky_relu(x, slope),
            Self::Clamp { least, most } => math::minimum(math::maximum(x, least), most),
            Self::Sigmoid => by_exponential(ByExponential::Sigmoid, x),
            Self::Silu => by_exponential(ByExponential::Silu, x),
            Self::Tanh => tanh(x),
            Self::Gelu => gelu(x),
            Self::GeluTanh => gelu_tanh(x),
            Self::Mish => by_exponential(ByExponential::Mish, x),
        }
    }
}

/// The activation of an accumulator, wherever it is.
impl Epilogue for Activation {
    #[inline(always)]
    unsafe fn value(&self, _: u32, _: u32, accumulator: f32) -> f32 {
        self.of(accumulator)
    }
}

#[inline(always)]
pub(super) fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x < 0.0 { x * slope } else { x }
}

/// x·Φ(x), with the distribution function of the normal distribution. 16 instructions.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    like_relu(
        x,
        [
            8.408_964e-1,
            -1.677_340_7e-1,
            -5.019_519_5e-2,
            4.633_798e-3,
            3.835_727e-3,
            -8.732_828_4e-5,
            -2.690_029_5e-4,
            4.182_162_2e-5,
            7.358_438_5e-7,
            -5.482_811_5e-7,
            2.979_510_9e-8,
        ],
    )
}

/// x·Φ(x), where Φ(x) is the sigmoid of 2·√(2/π)·(x + 0.044715·x³). 18 instructions.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    like_relu(
        x,
        [
            8.408_964e-1,
            -1.677_335_5e-1,
            -5.020_311_5e-2,
            4.812_005_4e-3,
            3.824_079_9e-3,
            -1.562_809_3e-5,
            -3.454_744e-4,
            1.756_927_3e-5,
            2.789_190_1e-5,
            -5.933_228_3e-6,
            -1.144_185_55e-7,
            1.377_825_6e-7,
            -1.050_397_8e-8,
        ],
    )
}

/// max(x, 0) − a·Φ(−a) with a = |x|, where Φ(−a) is the fourth power of a polynomial with these coefficients. The fourth root of Φ(−a) falls from 0.84
/// to next to nothing, and where that is small, so is what is wrong with it once it is multiplied by itself.
#[inline(always)]
fn like_relu<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    // A root of the polynomials, as these instructions compute them, so that what is below is 0: Φ(−5.75) is 4·10⁻⁹.
    let a = math::minimum(x.abs(), 5.75);
    let root = polynomial(a, coefficients);
    let square = root * root;
    math::fma(-a, square * square, math::maximum(x, 0.0))
}

/// The hyperbolic tangent: x times a quotient of polynomials of x², up to where that is 1. 18 instructions, and no branch.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    const SIGN: u32 = 1 << 31;
    let a = math::minimum(x.abs(), 8.65);
    let square = a * a;
    let above =
        polynomial(square, [1.0, 1.295_561_5e-1, 2.959_600_9e-3, 9.616_432e-6, -1.380_732_3e-8, 2.083_942_8e-11]);
    let below = polynomial(square, [1.0, 4.628_894e-1, 2.392_292_8e-2, 2.334_316_4e-4]);
    let magnitude = math::minimum(a * above * reciprocal(below), 1.0);
    f32::from_bits(magnitude.to_bits() | x.to_bits() & SIGN)
}

/// Numbers from 2²³ to 2²⁴ are integers, and as far apart as their bits are: an addition rounds to one of them.
const ROUND: f32 = 12_582_912.0;

/// 2ⁿ for n from −126 to 127, and 0 for −127, where `rounded` is n + [`ROUND`].
#[inline(always)]
fn power_of_two(rounded: f32) -> f32 {
    f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23))
}

/// A polynomial, whose last coefficient is that of the highest power.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for i in 1..N {
        sum = math::fma(sum, x, coefficients[N - 1 - i]);
    }
    sum
}

/// 1/x, correctly rounded, for x from 1 to 2¹²⁵. Of a NaN: NaN.
///
/// On a GPU, a step of Newton's method from the hardware's approximation, which is off by one unit in the last place: that ends at the nearest number,
/// but for the number just below a power of two, where it ends at the nearest one only if the approximation is that already (P. Markstein, Computation of
/// elementary functions on the IBM RISC System/6000 processor, 1990). It is: `rcp.rn` is made of the same instructions. Unlike that, there is no branch for
/// numbers of other sizes.
#[inline(always)]
fn reciprocal(x: f32) -> f32 {
    if cfg!(target_arch = "nvptx64") { reciprocal_from(x, math::fast::rcp_of_normal(x)) } else { 1.0 / x }
}

/// 1/x from a number near it.
#[inline(always)]
fn reciprocal_from(x: f32, near: f32) -> f32 {
    math::fma(near, math::fma(-x, near, 1.0), near)
}

/// eᵗ of t = −x for x from 0 on, and 0 where that is below 2⁻¹²⁶. Of a NaN: NaN.
#[inline(always)]
fn exp_of_minus(x: f32) -> f32 {
    // ln 2 in two parts, of which the first one times an integer below 2⁸ is exact.
    const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    // (At the least t, n is −127.)
    let t = -math::minimum(x, 88.0);
    let rounded = math::fma(t, core::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let rest = math::fma(-n, LN_2[1], math::fma(-n, LN_2[0], t));
    polynomial(rest, [1.0, 0.999_999_46, 0.499_991_06, 0.166_681_42, 0.041_901_868, 0.008_265_559])
        * power_of_two(rounded)
}

/// The functions of the picture above.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ByExponential {
    Sigmoid,
    Silu,
    Mish,
}

/// One of these, by an exponential and an inverse.
#[inline(always)]
pub(super) fn by_exponential(which: ByExponential, x: f32) -> f32 {
    let z = exp_of_minus(x.abs());
    let is_negative = x < 0.0;
    let (numerator, denominator) = if which == ByExponential::Mish {
        // 1 + 2z and, of −x, z² + 2z; and what is beyond.
        let numerator = if is_negative { z * (z + 2.0) } else { math::fma(2.0, z, 1.0) };
        (numerator, numerator + if is_negative { 2.0 } else { 2.0 * z * z })
    } else {
        (if is_negative { z } else { 1.0 }, 1.0 + z)
    };
    let quotient = numerator * reciprocal(denominator);
    if which == ByExponential::Sigmoid { quotient } else { x * quotient }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::String;

    use super::*;

    /// What an activation shall be, and by how much it may be off, of its argument and the magnitude of what it shall be.
    type Exact = (Activation, fn(f64) -> f64, fn(f64, f64) -> f64);

    fn sigmoid(x: f64) -> f64 {
        if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
    }

    fn cubic(x: f64) -> f64 {
        2.0 * (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
    }

    fn mish(x: f64) -> f64 {
        x * x.exp().ln_1p().tanh()
    }

    const EXACT: [Exact; 6] = [
        (Activation::Sigmoid, sigmoid, |_, exact| 4e-7 * exact),
        (Activation::Silu, |x| x * sigmoid(x), |_, exact| 4e-7 * exact),
        (Activation::Tanh, f64::tanh, |_, exact| 4e-7 * exact),
        (Activation::Gelu, |x| x * 0.5 * libm::erfc(-x / 2f64.sqrt()), |x, exact| 4e-7 * exact + 5e-8 * (-x).max(0.0)),
        (Activation::GeluTanh, |x| x * sigmoid(cubic(x)), |x, exact| 5e-7 * exact + 7e-8 * (-x).max(0.0)),
        (Activation::Mish, mish, |_, exact| 4e-7 * exact),
    ];

    /// What is wrong at an argument.
    fn judged((activation, exact, bound): Exact, x: f32) -> Result<(), String> {
        let (found, wide) = (f64::from(activation.of(x)), f64::from(x));
        let exact = exact(wide);
        let allowed = bound(wide, exact.abs()) + 2f64.powi(-119);
        // (A result of no other size than the largest number may be infinite.)
        match (found - exact).abs() <= allowed
            || exact.abs() > f64::from(f32::MAX) && found == exact.signum() * f64::INFINITY
        {
            true => Ok(()),
            false => Err(format!("{activation:?}({x:e}) = {found:e}, not {exact:e}")),
        }
    }

    #[test]
    fn errors_are_within_the_bounds_of_the_table() {
        for exact in EXACT {
            for bits in (0..0x7F80_0000u32).step_by(20_011) {
                for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                    judged(exact, x).unwrap();
                }
            }
            // Where something happens.
            for step in -400_000..400_000 {
                judged(exact, step as f32 * 3.7e-4).unwrap();
            }
        }
    }

    #[test]
    fn an_approximation_of_the_hardware_would_be_noticed() {
        let fast = |x: f64| f64::from(math::fast::tanh(x as f32)) * (1.0 + 2f64.powi(-11));
        assert!(judged((Activation::Tanh, fast, |_, exact| 4e-7 * exact), 0.5).is_err());
        assert!(judged((Activation::Gelu, |x| x * sigmoid(cubic(x)), |_, exact| 3e-7 * exact), 0.5).is_err());
    }

    #[test]
    fn special_values_are_those_of_torch_but_for_gelus_limit() {
        let all = [
            (Activation::Relu, f32::INFINITY, 0.0),
            (Activation::LeakyRelu(0.5), f32::INFINITY, f32::NEG_INFINITY),
            (Activation::Clamp { least: -2.0, most: 3.0 }, 3.0, -2.0),
            (Activation::Sigmoid, 1.0, 0.0),
            (Activation::Silu, f32::INFINITY, f32::NAN),
            (Activation::Tanh, 1.0, -1.0),
            (Activation::Gelu, f32::INFINITY, 0.0),
            (Activation::GeluTanh, f32::INFINITY, 0.0),
            (Activation::Mish, f32::INFINITY, f32::NAN),
        ];
        for (activation, of_infinity, of_minus_infinity) in all {
            assert!(activation.of(f32::NAN).is_nan(), "{activation:?}");
            assert_eq!(activation.of(f32::INFINITY), of_infinity, "{activation:?}");
            let found = activation.of(f32::NEG_INFINITY);
            assert!(
                found == of_minus_infinity || found.is_nan() && of_minus_infinity.is_nan(),
                "{activation:?}: {found}"
            );
        }
        let small = Activation::Sigmoid.of(-80.0);
        assert!((small / 1.804_851e-35 - 1.0).abs() < 1e-5, "{small:e}");
        for x in [-5.75, -10.0, f32::MIN] {
            assert_eq!([Activation::Gelu.of(x), Activation::GeluTanh.of(x)], [0.0, 0.0], "{x}");
        }
    }

    #[test]
    fn an_inverse_by_a_step_is_that_of_a_division() {
        for bits in (0..1u32 << 23).step_by(97).chain([1, 2, (1 << 23) - 3, (1 << 23) - 2]) {
            let x = f32::from_bits(bits | 1.0f32.to_bits());
            // The nearest number, and the one on the other side.
            let exact = 1.0 / x;
            let other = if math::fma(-x, exact, 1.0) < 0.0 { exact.next_down() } else { exact.next_up() };
            for near in [exact, other] {
                assert_eq!(reciprocal_from(x, near), exact, "{x:e} from {near:e}");
            }
        }
        // Just below a power of two only from itself.
        let x = 2f32.next_down();
        assert_eq!(reciprocal_from(x, 1.0 / x), 1.0 / x);
        assert_ne!(reciprocal_from(x, (1.0 / x).next_down()), 1.0 / x);
    }
}
