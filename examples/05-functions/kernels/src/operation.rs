//! The test cases of the kernels, the f64 reference of each function, and the error that its documentation states.

use testkit::{
    Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
};

use super::{arcs, exponentials, hyperbolic, integers, integrals, logarithms, number, pairs, roots, trigonometric};

/// The functions of any numbers.
pub struct Functions;

/// A function of one number, what it shall be, and within how many units in the last place: the bounds of `cuda_std::math`.
type OfOne = (&'static str, fn(f64) -> f64, f64);
type OfTwo = (&'static str, fn(f64, f64) -> f64, f64);

const OF_ONE: [OfOne; 35] = [
    ("exp", f64::exp, 1.88),
    ("exp2", f64::exp2, 0.88),
    ("exp10", |x| 10f64.powf(x), 1.01),
    ("expm1", f64::exp_m1, 0.95),
    ("log", f64::ln, 0.89),
    ("log2", f64::log2, 0.92),
    ("log10", f64::log10, 1.12),
    ("log1p", f64::ln_1p, 0.94),
    ("sqrt", f64::sqrt, 0.5),
    ("rsqrt", |x| 1.0 / x.sqrt(), 0.500_000_001),
    ("cbrt", f64::cbrt, 0.74),
    ("rcbrt", |x| 1.0 / x.cbrt(), 0.83),
    ("sin", f64::sin, 0.9),
    ("cos", f64::cos, 0.9),
    ("tan", f64::tan, 1.3),
    ("sinpi", |x| sinpi(x), 1.0),
    ("cospi", |x| sinpi(x.abs() % 2.0 + 0.5), 0.9),
    ("asin", f64::asin, 1.2),
    ("acos", f64::acos, 1.2),
    ("atan", f64::atan, 1.4),
    ("sinh", f64::sinh, 1.7),
    ("cosh", f64::cosh, 1.4),
    ("tanh", f64::tanh, 1.6),
    ("asinh", f64::asinh, 2.4),
    ("acosh", f64::acosh, 1.9),
    ("atanh", f64::atanh, 0.95),
    ("erf", libm::erf, 1.2),
    ("erfc", libm::erfc, 2.5),
    ("tgamma", libm::tgamma, 3.9),
    ("lgamma", libm::lgamma, 5.4),
    ("floor", f64::floor, 0.0),
    ("ceil", f64::ceil, 0.0),
    ("trunc", f64::trunc, 0.0),
    ("round", f64::round, 0.0),
    ("round_ties_even", f64::round_ties_even, 0.0),
];

const OF_TWO: [OfTwo; 7] = [
    ("atan2", f64::atan2, 1.8),
    ("pow", f64::powf, 1.0),
    ("hypot", f64::hypot, 1.1),
    ("fmod", |x, y| x % y, 0.0),
    ("remainder", remainder, 0.0),
    ("min", |x, y| if x.is_nan() || y.total_cmp(&x).is_lt() && !y.is_nan() { y } else { x }, 0.0),
    ("max", |x, y| if x.is_nan() || x.total_cmp(&y).is_lt() && !y.is_nan() { y } else { x }, 0.0),
];

/// sin πx: the remainder by 2 is exact.
pub(crate) fn sinpi(x: f64) -> f64 {
    let y = x % 2.0;
    // From −1/2 to 1/2, where the sine is the same.
    let y = if y.abs() > 1.5 {
        y - 2f64.copysign(y)
    } else if y.abs() > 0.5 {
        1f64.copysign(y) - y
    } else {
        y
    };
    let result = (std::f64::consts::PI * y).sin();
    if result == 0.0 { result.copysign(x) } else { result }
}

/// x less the multiple of y that is nearest to it; exact for numbers of 24 bits.
fn remainder(x: f64, y: f64) -> f64 {
    let y = y.abs();
    let r = x.abs() % (2.0 * y);
    let r = if y.is_infinite() || r <= 0.5 * y {
        r
    } else if r < 1.5 * y {
        r - y
    } else {
        r - 2.0 * y
    };
    if x.is_sign_negative() { -r } else { r }
}

/// What a function shall be, within so many units in the last place.
pub(crate) fn within(value: f64, ulps: f64) -> Expected {
    let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    Expected::within(value, ulps * 2f64.powi(exponent - 23))
}

/// Launches a kernel with the arguments of these names.
macro_rules! launch {
    ($device:ident, $views:ident, $kernel:ident: $($function:ident)*) => {
        $device.launch($kernel {
            bits: $views.read("bits")?,
            near: $views.read("near")?,
            $($function: $views.write(stringify!($function))?,)*
        })?
    };
}

impl Operation for Functions {
    fn describe(&self) -> Description {
        Description {
            name: "functions",
            idea: "the functions of cuda_std::math of numbers of all magnitudes, one thread for each number",
            sizes: &["n"],
            kernels: vec![
                exponentials::FACTS,
                logarithms::FACTS,
                roots::FACTS,
                trigonometric::FACTS,
                arcs::FACTS,
                hyperbolic::FACTS,
                integrals::FACTS,
                integers::FACTS,
                pairs::FACTS,
            ],
            small: testkit::every(&[&[0, 1, 255, 257, 20_000]]),
            large: vec![vec![1 << 22]],
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [n] = sizes.get(["n"])?;
        let bits = Argument::input("bits", &[n], Distribution::Integers(0, i64::from(u32::MAX))).of(Element::U32);
        let near = Argument::input("near", &[n], Distribution::LogUniform(0.001, 100.0));
        let names = OF_ONE.iter().map(|(name, ..)| name).chain(OF_TWO.iter().map(|(name, ..)| name));
        let outputs = names.map(|&name| Argument::output(name, &[n]));
        Ok([bits, near].into_iter().chain(outputs).collect())
    }

    fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        launch!(device, views, exponentials: exp exp2 exp10 expm1);
        launch!(device, views, logarithms: log log2 log10 log1p);
        launch!(device, views, roots: sqrt rsqrt cbrt rcbrt);
        launch!(device, views, trigonometric: sin cos tan sinpi cospi);
        launch!(device, views, arcs: asin acos atan);
        launch!(device, views, hyperbolic: sinh cosh tanh asinh acosh atanh);
        launch!(device, views, integrals: erf erfc tgamma lgamma);
        launch!(device, views, integers: floor ceil trunc round round_ties_even);
        launch!(device, views, pairs: atan2 pow hypot fmod remainder min max);
        Ok(())
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let (bits, near) = (values.of("bits")?, values.of("near")?);
        let numbers: Vec<f64> = (0..bits.len()).map(|i| f64::from(number(i, bits[i] as u32, near[i] as f32))).collect();
        let of_one = OF_ONE.iter().map(|&(name, function, bound)| {
            let expected = |&x: &f64| {
                if name == "lgamma" && x > -10.001 && x < -2.264 {
                    // 0 again and again.
                    return Expected::within(function(x), 1.7e-6);
                }
                if bound == 0.0 { Expected::exact(function(x)) } else { within(function(x), bound) }
            };
            numbers.iter().map(expected).collect()
        });
        let of_two = OF_TWO.iter().map(|&(_, function, bound)| {
            let expected = |i: usize| {
                let value = function(numbers[i], numbers[if i + 2 < numbers.len() { i + 2 } else { i }]);
                if bound == 0.0 { Expected::exact(value) } else { within(value, bound) }
            };
            (0..numbers.len()).map(expected).collect()
        });
        Ok(of_one.chain(of_two).collect())
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}
