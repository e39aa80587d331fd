//! Functions that take a number apart or put one together, two functions at once, and those of f64: one thread for each number.
//!
//! ```text
//!  x │ the number of the thread        y │ that of the thread two after it        n │ from −256 to 255, of the bits of y's
//! ```

use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use crate::blocks;
use crate::number;

/// A kernel whose threads take two numbers each, and write values of these to outputs of their names; for the host, these outputs as arguments,
/// and its launch.
macro_rules! kernels {
    ($(
        $(#[$doc:meta])*
        $kernel:ident($($input:ident: $of:ty),*), ($x:ident, $y:ident, $n:ident) = $numbers:expr, { $($output:ident: $kind:ty = $value:expr;)* }
    )*) => { $(
        $(#[$doc])*
        #[kernel(
            block = 256,
            grid = blocks(bits.len()),
            requires($($input.len() == bits.len(),)* $($output.len() == bits.len(),)*)
        )]
        pub fn $kernel(bits: GlobalSlice<'_, u32>, $($input: GlobalSlice<'_, $of>,)* $($output: DisjointSlice<'_, $kind>,)*) {
            let i = thread::index();
            let next = if i + 2 < bits.len() { i + 2 } else { i };
            let of = |i: usize| Some(($numbers)(i, bits.get(i)?, $($input.get(i)?),*));
            if let (Some($x), Some($y), Some(word)) = (of(i), of(next), bits.get(next)) {
                let $n = exponent(word);
                $(if let Some(own) = $output.own() {
                    own.set($value);
                })*
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl $kernel<'_> {
            fn outputs(n: usize) -> Vec<testkit::Argument> {
                vec![$(operation::output::<$kind>(n, stringify!($output))),*]
            }

            fn launch(device: &testkit::Device, views: &testkit::Views<'_>) -> Result<(), testkit::Error> {
                Ok(device.launch($kernel {
                    bits: views.read("bits")?,
                    $($input: views.read(stringify!($input))?,)*
                    $($output: views.disjoint(stringify!($output))?,)*
                })?)
            }
        }
    )* };
}

/// A number from −256 to 255.
#[inline(always)]
fn exponent(word: u32) -> i32 {
    word as i32 >> 23
}

/// The f64 number that thread `i` takes: any bits; or one of a middling size; or half of a whole number, where numbers are rounded.
#[inline(always)]
fn double(i: usize, high: u32, low: u32, near: f64) -> f64 {
    match i % 3 {
        0 => f64::from_bits(u64::from(high) << 32 | u64::from(low)),
        1 => near,
        _ => 0.5 * math::trunc_f64(near),
    }
}

kernels! {
    /// Functions of f32.
    parts(near: f32), (x, y, n) = number, {
        abs: f32 = math::abs(x);
        copysign: f32 = math::copysign(x, y);
        minimum: f32 = math::minimum(x, y);
        maximum: f32 = math::maximum(x, y);
        ldexp: f32 = math::ldexp(x, n);
        powi: f32 = math::powi(x, n);
        frexp: f32 = math::frexp(x).0;
        frexp_exponent: u32 = math::frexp(x).1 as u32;
        ilogb: u32 = math::ilogb(x) as u32;
        sine_of_two: f32 = math::sincos(x).0;
        cosine_of_two: f32 = math::sincos(x).1;
        sinpi_of_two: f32 = math::sincospi(x).0;
        cospi_of_two: f32 = math::sincospi(x).1;
    }

    /// Functions of f64.
    doubles(low: u32, near: f64), (x, y, n) = double, {
        abs: f64 = math::abs_f64(x);
        copysign: f64 = math::copysign_f64(x, y);
        floor: f64 = math::floor_f64(x);
        ceil: f64 = math::ceil_f64(x);
        trunc: f64 = math::trunc_f64(x);
        round: f64 = math::round_f64(x);
        round_ties_even: f64 = math::round_ties_even_f64(x);
        sqrt: f64 = math::sqrt_f64(x);
        min: f64 = math::min_f64(x, y);
        max: f64 = math::max_f64(x, y);
        fma: f64 = math::fma_f64(x, y, f64::from(n));
    }

    /// The hardware's functions. Beyond 100π sines and cosines could be anything.
    approximations(near: f32), (x, y, _n) = number, {
        exp2: f32 = math::fast::exp2(x);
        exp2_or_zero: f32 = math::fast::exp2_or_zero(x);
        exp: f32 = math::fast::exp(x);
        log2: f32 = math::fast::log2(x);
        log: f32 = math::fast::log(x);
        sin: f32 = math::fast::sin(angle(x));
        cos: f32 = math::fast::cos(angle(x));
        tanh: f32 = math::fast::tanh(x);
        rcp: f32 = math::fast::rcp(x);
        sqrt: f32 = math::fast::sqrt(x);
        rsqrt: f32 = math::fast::rsqrt(x);
        div: f32 = math::fast::div(x, y);
    }
}

/// The number itself, or none where it is beyond 100π.
#[inline(always)]
fn angle(x: f32) -> f32 {
    if x.abs() <= 314.0 { x } else { f32::NAN }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::{Approximations, Doubles, Parts};

/// The cases of the kernels, what they shall give in f64, and how far from that they may be.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{angle, approximations, double, doubles, exponent, parts};
    use crate::number;
    use crate::operation::{sinpi, within};

    /// The functions of f32 in `parts`.
    pub struct Parts;

    /// The functions of f64 in `doubles`.
    pub struct Doubles;

    /// The functions of the hardware in `approximations`, whose bits are those of no CPU.
    pub struct Approximations;

    /// The numbers x and y, and the n, of each thread.
    fn with_next<T: Copy>(bits: &[f64], numbers: &[T]) -> Vec<(T, T, i32)> {
        let of = |i: usize| {
            let next = if i + 2 < numbers.len() { i + 2 } else { i };
            (numbers[i], numbers[next], exponent(bits[next] as u32))
        };
        (0..numbers.len()).map(of).collect()
    }

    /// The numbers of f32 of each thread.
    fn singles(values: &Values<'_>) -> Result<Vec<(f64, f64, i32)>, Error> {
        let (bits, near) = (values.of("bits")?, values.of("near")?);
        let numbers = (0..bits.len()).map(|i| f64::from(number(i, bits[i] as u32, near[i] as f32)));
        Ok(with_next(bits, &numbers.collect::<Vec<_>>()))
    }

    /// A list for each output.
    fn all<const N: usize>(
        numbers: &[(f64, f64, i32)],
        of: impl Fn(f64, f64, i32) -> [Expected; N],
    ) -> Vec<Vec<Expected>> {
        let rows: Vec<_> = numbers.iter().map(|&(x, y, n)| of(x, y, n)).collect();
        (0..N).map(|output| rows.iter().map(|row| row[output]).collect()).collect()
    }

    fn description(name: &'static str, idea: &'static str, kernel: cuda_std::KernelFacts, bits: Bits) -> Description {
        Description {
            name,
            idea,
            sizes: &["n"],
            kernels: vec![kernel],
            small: testkit::every(&[&[0, 1, 255, 257, 20_000]]),
            large: vec![vec![1 << 22]],
            bits,
        }
    }

    /// Any 32 bits, and numbers of a middling size.
    fn inputs(n: usize) -> Vec<Argument> {
        let bits = Argument::input("bits", &[n], Distribution::Integers(0, i64::from(u32::MAX))).of(Element::U32);
        vec![bits, Argument::input("near", &[n], Distribution::LogUniform(0.001, 100.0))]
    }

    /// What outputs are made of.
    pub(super) trait Output {
        const ELEMENT: Element;
    }

    impl Output for f32 {
        const ELEMENT: Element = Element::F32;
    }

    impl Output for f64 {
        const ELEMENT: Element = Element::F64;
    }

    impl Output for u32 {
        const ELEMENT: Element = Element::U32;
    }

    /// An output, a number for each thread.
    pub(super) fn output<T: Output>(n: usize, name: &'static str) -> Argument {
        Argument::output(name, &[n]).of(T::ELEMENT)
    }

    /// A number as f32 has it: the power of 2 that is not above it, and none for what has no such power.
    fn logb(x: f64) -> Option<i32> {
        (x != 0.0 && x.is_finite()).then(|| ((x.to_bits() >> 52 & 0x7FF) as i32) - 1023)
    }

    fn min(x: f64, y: f64) -> f64 {
        if x.is_nan() || y.total_cmp(&x).is_lt() && !y.is_nan() { y } else { x }
    }

    fn max(x: f64, y: f64) -> f64 {
        if x.is_nan() || x.total_cmp(&y).is_lt() && !y.is_nan() { y } else { x }
    }

    impl Operation for Parts {
        fn describe(&self) -> Description {
            let idea = "functions of cuda_std::math that take a number apart or put one together, and two at once";
            description("functions-parts", idea, parts::FACTS, Bits::Same)
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok([inputs(n), parts::outputs(n)].concat())
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            parts::launch(device, views)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let integer = |n: i32| Expected::exact(f64::from(n as u32));
            Ok(all(&singles(values)?, |x, y, n| {
                let (mantissa, exponent) = match logb(x) {
                    Some(exponent) => (x / 2f64.powi(exponent + 1), exponent + 1),
                    None => (x, 0),
                };
                let logb = logb(x).unwrap_or(if x.is_infinite() { i32::MAX } else { i32::MIN });
                let or_nan = |value: f64| Expected::exact(if x.is_nan() || y.is_nan() { f64::NAN } else { value });
                [
                    Expected::exact(x.abs()),
                    Expected::exact(x.copysign(y)),
                    or_nan(x.min(y)),
                    or_nan(x.max(y)),
                    Expected::exact(x * 2f64.powi(n)),
                    within(x.powi(n), 1.0),
                    Expected::exact(mantissa),
                    integer(exponent),
                    integer(logb),
                    within(x.sin(), 0.9),
                    within(x.cos(), 0.9),
                    within(sinpi(x), 1.0),
                    within(sinpi(x.abs() % 2.0 + 0.5), 0.9),
                ]
            }))
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }

    impl Operation for Doubles {
        fn describe(&self) -> Description {
            description("functions-f64", "the functions of cuda_std::math of f64", doubles::FACTS, Bits::Same)
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let word = Distribution::Integers(0, i64::from(u32::MAX));
            let inputs = vec![
                Argument::input("bits", &[n], word).of(Element::U32),
                Argument::input("low", &[n], word).of(Element::U32),
                Argument::input("near", &[n], Distribution::LogUniform(0.001, 1e17)).of(Element::F64),
            ];
            Ok([inputs, doubles::outputs(n)].concat())
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            doubles::launch(device, views)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (bits, low, near) = (values.of("bits")?, values.of("low")?, values.of("near")?);
            let numbers: Vec<_> = (0..bits.len()).map(|i| double(i, bits[i] as u32, low[i] as u32, near[i])).collect();
            Ok(all(&with_next(bits, &numbers), |x, y, n| {
                let results = [
                    x.abs(),
                    x.copysign(y),
                    x.floor(),
                    x.ceil(),
                    x.trunc(),
                    x.round(),
                    x.round_ties_even(),
                    x.sqrt(),
                    min(x, y),
                    max(x, y),
                    x.mul_add(y, f64::from(n)),
                ];
                results.map(Expected::exact)
            }))
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }

    impl Operation for Approximations {
        fn describe(&self) -> Description {
            let idea = "the functions of cuda_std::math::fast, within the errors of their table";
            description("functions-fast", idea, approximations::FACTS, Bits::SameOnOneDevice)
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok([inputs(n), approximations::outputs(n)].concat())
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            approximations::launch(device, views)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            // A part of the result; subnormal results have fewer bits.
            let part = |value: f64, of_it: f64| Expected::within(value, value.abs() * of_it + 2f64.powi(-149));
            let logarithm = |x: f64, value: f64, of_it: f64| match (0.5..=2.0).contains(&x) {
                true => Expected::within(value, 2f64.powi(-22)),
                false => part(value, of_it),
            };
            // The next of the bounds begins above 2π.
            let wave = |x: f64, value: f64, near: f64| {
                Expected::within(value, 2f64.powf(if x.abs() < std::f64::consts::TAU { near } else { -14.7 }))
            };
            Ok(all(&singles(values)?, |x, y, _| {
                let power = x.exp2();
                let or_zero = match power < 2f64.powi(-125) {
                    true => Expected::within(power, f64::from(f32::MIN_POSITIVE)),
                    false => part(power, 2f64.powi(-22)),
                };
                let at = f64::from(angle(x as f32));
                [
                    part(power, 2f64.powi(-22)),
                    or_zero,
                    part(x.exp(), 2f64.powi(-22) + x.abs() * 2f64.powi(-23)),
                    logarithm(x, x.log2(), 2f64.powi(-22)),
                    logarithm(x, x.ln(), 2f64.powi(-21)),
                    wave(at, at.sin(), -20.5),
                    wave(at, at.cos(), -20.4),
                    part(x.tanh(), 2f64.powi(-11)),
                    within(1.0 / x, 1.0),
                    part(x.sqrt(), 2f64.powi(-23)),
                    part(1.0 / x.sqrt(), 2f64.powf(-22.9)),
                    within(x / y, 2.0),
                ]
            }))
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
