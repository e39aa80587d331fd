//! Activations: functions of one number that networks have behind a product.
//!
//! ```text
//!           z = eᵗ of t = −|x|, between 0 and 1, so that nothing overflows
//!
//!             x ≥ 0                       x < 0
//!  sigmoid    1/(1 + z)                   z/(1 + z)
//!  silu       x/(1 + z)                   x·z/(1 + z)
//!  gelu-tanh  the same of another t: tanh u = 2·sigmoid(2u) − 1
//!  mish       x·(1 + 2z)/(1 + 2z + 2z²)   x·(z² + 2z)/(z² + 2z + 2)
//! ```
//!
//! Nothing is subtracted, so the results keep their bits where they are small: the sigmoid of −80 is 1.8·10⁻³⁵, not 0. The bits are the
//! same on the GPU and on the CPU, as those of [`math`] are.
//!
//! | activation | largest relative error | where, if not everywhere |
//! |---|---|---|
//! | relu, leaky relu, clamp | half a unit in the last place | |
//! | sigmoid, silu, mish, tanh | 4·10⁻⁷ | |
//! | gelu | 3·10⁻⁷ + 1.2·10⁻⁷·x² | |
//! | gelu-tanh | 4·10⁻⁷ + 2.5·10⁻⁷·abs(t), t = 1.6·x + 0.071·x³ | |
//!
//! The last two have a factor that grows with x because e to the power of something large is as wrong as that is; what there is then is
//! next to nothing. To each of these comes one unit of the smallest subnormal number times x, or 2⁻¹⁴⁹ if x is below 1.
//!
//! NaN gives NaN. Of −∞, silu, gelu and mish give NaN, as torch's do: −∞·0.

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
            Self::Relu => at_least(x, 0.0),
            Self::LeakyRelu(slope) => leaky_relu(x, slope),
            Self::Clamp { least, most } => at_most(at_least(x, least), most),
            Self::Sigmoid => by_exponential(ByExponential::Sigmoid, x),
            Self::Silu => by_exponential(ByExponential::Silu, x),
            Self::Tanh => math::tanh(x),
            Self::Gelu => gelu(x),
            Self::GeluTanh => by_exponential(ByExponential::GeluTanh, x),
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

/// The larger of two numbers; NaN if x is.
#[inline(always)]
pub(super) fn at_least(x: f32, least: f32) -> f32 {
    if x < least { least } else { x }
}

/// The smaller of two numbers; NaN if x is.
#[inline(always)]
pub(super) fn at_most(x: f32, most: f32) -> f32 {
    if x > most { most } else { x }
}

#[inline(always)]
pub(super) fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x < 0.0 { x * slope } else { x }
}

/// x·Φ(x), with Φ(−a) = 2^(−a²·log₂ e/2)·g(a) for a = |x|, where g falls from 1/2 like 1/a: a minimax polynomial in a/(1 + 0.335·a). About 35
/// instructions, none of which is a branch: of what a product does before it stores results, this is the most.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    // Numbers from 2²³ to 2²⁴ are integers, and as far apart as their bits are: an addition rounds to one of them.
    const ROUND: f32 = 12_582_912.0;
    const HALF_LOG2_E: f32 = core::f32::consts::LOG2_E / 2.0;
    // Beyond this Φ(−a) is 0. (Of a NaN this is a number; but it is multiplied by the NaN, or added to it.)
    let a = x.abs().min(14.5);
    let square = a * a;
    // 1/(1 + 0.335·a): a subtraction of bits is within 5.1 % of it, and a step to the third power and one to the second leave nothing of that. A
    // division would branch.
    let divisor = math::fma(a, 0.335, 1.0);
    let near = f32::from_bits(0x7EF3_1000 - divisor.to_bits());
    let lack = math::fma(-divisor, near, 1.0);
    let near = math::fma(near, math::fma(lack, lack, lack), near);
    let inverse = math::fma(near, math::fma(-divisor, near, 1.0), near);
    let u = a * inverse;
    let g = math::fma(u, -2.240_430_3e-5, 1.562_483_8e-4);
    let g = math::fma(u, g, 5.521_576_5e-5);
    let g = math::fma(u, g, -1.870_394_6e-3);
    let g = math::fma(u, g, -1.029_697_9e-2);
    let g = math::fma(u, g, 1.163_628_4e-1);
    let g = math::fma(u, g, -3.989_427e-1);
    let g = math::fma(u, g, 0.5);
    // 2^(n + r), |r| ≤ 1/2.
    let rounded = math::fma(square, -HALF_LOG2_E, ROUND);
    let r = math::fma(square, -HALF_LOG2_E, ROUND - rounded);
    let power = math::fma(r, 1.532_926_4e-4, 1.339_096_9e-3);
    let power = math::fma(r, power, 9.618_499e-3);
    let power = math::fma(r, power, 5.550_359_6e-2);
    let power = math::fma(r, power, 2.402_264_8e-1);
    let power = math::fma(r, power, core::f32::consts::LN_2);
    let power = math::fma(r, power, 1.0);
    // n is between −152 and 0, and 2ⁿ may be subnormal: times 2⁶⁴ it is not.
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add((127 + 64) << 23));
    let of_minus_a = power * g * scale * (1.0 / (1u64 << 32) as f32 / (1u64 << 32) as f32);
    if x < 0.0 { x * of_minus_a } else { math::fma(-a, of_minus_a, x) }
}

/// The functions of the picture above.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ByExponential {
    Sigmoid,
    Silu,
    GeluTanh,
    Mish,
}

/// One of these, by one exponential and one division for all: where which one it is is known at run time only, there is little code.
#[inline(always)]
pub(super) fn by_exponential(which: ByExponential, x: f32) -> f32 {
    // 2·√(2/π), and that times 0.044715.
    const CUBIC: [f32; 2] = [1.595_769, 0.071_354_814];
    let t = if which == ByExponential::GeluTanh { x * math::fma(x * x, CUBIC[1], CUBIC[0]) } else { x };
    let z = math::exp(-t.abs());
    let is_negative = t < 0.0;
    let (numerator, denominator) = if which == ByExponential::Mish {
        // 1 + 2z and, of −x, z² + 2z; and what is beyond.
        let numerator = if is_negative { z * (z + 2.0) } else { math::fma(2.0, z, 1.0) };
        (numerator, numerator + if is_negative { 2.0 } else { 2.0 * z * z })
    } else {
        (if is_negative { z } else { 1.0 }, 1.0 + z)
    };
    let quotient = numerator / denominator;
    if which == ByExponential::Sigmoid { quotient } else { x * quotient }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::String;

    use super::*;

    /// What an activation shall be, and by how much it may be off, as a part of that.
    type Exact = (Activation, fn(f64) -> f64, fn(f64) -> f64);

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
        (Activation::Sigmoid, sigmoid, |_| 4e-7),
        (Activation::Silu, |x| x * sigmoid(x), |_| 4e-7),
        (Activation::Tanh, f64::tanh, |_| 4e-7),
        (Activation::Gelu, |x| x * 0.5 * libm::erfc(-x / 2f64.sqrt()), |x| 3e-7 + 1.2e-7 * x * x),
        (Activation::GeluTanh, |x| x * sigmoid(cubic(x)), |x| 4e-7 + 2.5e-7 * cubic(x).abs()),
        (Activation::Mish, mish, |_| 4e-7),
    ];

    /// What is wrong at an argument.
    fn judged((activation, exact, bound): Exact, x: f32) -> Result<(), String> {
        let (found, wide) = (f64::from(activation.of(x)), f64::from(x));
        let exact = exact(wide);
        let allowed = bound(wide) * exact.abs() + wide.abs().max(1.0) * 2f64.powi(-149);
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
        assert!(judged((Activation::Tanh, fast, |_| 4e-7), 0.5).is_err());
        assert!(judged((Activation::Gelu, |x| x * sigmoid(cubic(x)), |_| 3e-7), 0.5).is_err());
    }

    #[test]
    fn special_values_are_those_of_torch() {
        let all = [
            (Activation::Relu, f32::INFINITY, 0.0),
            (Activation::LeakyRelu(0.5), f32::INFINITY, f32::NEG_INFINITY),
            (Activation::Clamp { least: -2.0, most: 3.0 }, 3.0, -2.0),
            (Activation::Sigmoid, 1.0, 0.0),
            (Activation::Silu, f32::INFINITY, f32::NAN),
            (Activation::Tanh, 1.0, -1.0),
            (Activation::Gelu, f32::INFINITY, f32::NAN),
            (Activation::GeluTanh, f32::INFINITY, f32::NAN),
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
        for (activation, expected) in [(Activation::Sigmoid, 3.8e-44), (Activation::Gelu, -7.619_853e-23)] {
            let x = if activation == Activation::Sigmoid { -100.0 } else { -10.0 };
            let found = activation.of(x);
            assert!((found / expected - 1.0f32).abs() < 0.05, "{activation:?}({x}) = {found:e}");
        }
    }
}
