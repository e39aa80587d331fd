//! Functions of one argument.

use rayon::prelude::*;
use tilewright_cuda_std::math;

use crate::reference::{NEIGHBOURS, Neighbours, cospi, error, error_of_ordinary, sinpi, tgamma};

/// A function, what it shall be, and the most that it may be off, in units in the last place.
struct Function {
    name: &'static str,
    of: fn(f32) -> f32,
    exact: fn(f64) -> f64,
    bound: f64,
}

/// The table of functions, and a test of all numbers for each.
macro_rules! functions {
    ($($name:ident: $exact:expr, $bound:expr;)*) => {
        const FUNCTIONS: &[Function] = &[$(Function { name: stringify!($name), of: math::$name, exact: $exact, bound: $bound },)*];

        mod every_number {
            $(
                #[test]
                #[ignore = "all 2³² numbers, which takes about a minute: see main.rs"]
                fn $name() {
                    super::assert_every_number(stringify!($name), super::math::$name);
                }
            )*
        }
    };
}

functions! {
    exp: f64::exp, 1.88;
    exp2: f64::exp2, 0.88;
    exp10: |x| 10f64.powf(x), 1.01;
    expm1: f64::exp_m1, 0.95;
    log: f64::ln, 0.89;
    log2: f64::log2, 0.92;
    log10: f64::log10, 1.12;
    log1p: f64::ln_1p, 0.94;
    sqrt: f64::sqrt, 0.5;
    rsqrt: |x| 1.0 / x.sqrt(), 0.500_000_001;
    cbrt: f64::cbrt, 0.74;
    rcbrt: |x| 1.0 / x.cbrt(), 0.83;
    sin: f64::sin, 0.9;
    cos: f64::cos, 0.9;
    tan: f64::tan, 1.3;
    sinpi: sinpi, 1.0;
    cospi: cospi, 0.9;
    asin: f64::asin, 1.2;
    acos: f64::acos, 1.2;
    atan: f64::atan, 1.4;
    sinh: f64::sinh, 1.7;
    cosh: f64::cosh, 1.4;
    tanh: f64::tanh, 1.6;
    asinh: f64::asinh, 2.4;
    acosh: f64::acosh, 1.9;
    atanh: f64::atanh, 0.95;
    erf: libm::erf, 1.2;
    erfc: libm::erfc, 2.5;
    tgamma: tgamma, 3.9;
    lgamma: libm::lgamma, 5.4;
    floor: f64::floor, 0.0;
    ceil: f64::ceil, 0.0;
    trunc: f64::trunc, 0.0;
    round: f64::round, 0.0;
    round_ties_even: f64::round_ties_even, 0.0;
    abs: f64::abs, 0.0;
}

/// Where `lgamma` is 0 again and again, the most that it may be off.
const LGAMMA: f64 = 1.7e-6;

impl Function {
    /// How far off the result is, in units in the last place.
    fn error(&self, x: f32, exact: f64) -> f64 {
        let found = (self.of)(x);
        if self.name == "lgamma" && x > -10.001 && x < -2.264 && exact.is_finite() {
            return (f64::from(found) - exact).abs() / LGAMMA * self.bound;
        }
        error(found, exact)
    }

    fn assert_within(&self, (error, bits): (f64, u32)) {
        let x = f32::from_bits(bits);
        assert!(
            error <= self.bound,
            "{}({x:e}, {bits:#010x}) = {:e} is {error} units in the last place off {:e}; at most {} are allowed",
            self.name,
            (self.of)(x),
            (self.exact)(f64::from(x)),
            self.bound
        );
    }
}

/// The larger error of two, and where.
fn larger(a: (f64, u32), b: (f64, u32)) -> (f64, u32) {
    if b.0 > a.0 { b } else { a }
}

/// All exponents of both signs with the ends and some of the middle of each, and the numbers where something begins or ends.
fn sample() -> Vec<u32> {
    let mut sample = Vec::new();
    let mut state = 1u32;
    for sign_and_exponent in 0..512u32 {
        let first = sign_and_exponent << 23;
        sample.extend((0..64).map(|k| first + k));
        sample.extend((1..=64).map(|k| first + ((1 << 23) - k)));
        for _ in 0..400 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sample.push(first + (state >> 9));
        }
    }
    // Most functions have most to do between 2⁻⁴ and 2⁷.
    for sign_and_exponent in (123..134).chain(256 + 123..256 + 134) {
        for _ in 0..8000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sample.push((sign_and_exponent << 23) + (state >> 9));
        }
    }
    let edges = [
        88.722_84f32,
        89.0,
        -87.336_55,
        -103.278_93,
        -103.972_08,
        -104.0,
        128.0,
        -126.0,
        -149.0,
        -150.0,
        -151.0,
        38.531_84,
        -37.929_78,
        -45.154_5,
        89.415_99,
        -1.0,
        105_615.0,
        0.41,
        0.5,
        0.6,
        1.0,
        3.919,
        9.1945,
        10.0547,
        35.0401,
        -41.0,
        -42.0,
        -43.0,
        3.5,
        -2.5,
        0.25,
        -0.25,
        0.75,
        1.5,
        2.0,
        3.0,
        8_388_608.0,
        16_777_216.0,
    ];
    for edge in edges {
        sample.extend((0..200).map(|k| edge.to_bits() - 100 + k));
    }
    for integer in -50i16..50 {
        let bits = (0.5 * f32::from(integer)).to_bits();
        sample.extend((0..20).map(|k| bits.wrapping_sub(10).wrapping_add(k)));
    }
    sample
}

#[test]
fn every_exponent_is_within_the_bounds() {
    let sample = sample();
    for function in FUNCTIONS {
        let errors = sample.par_iter().map(|&bits| {
            let x = f32::from_bits(bits);
            (function.error(x, (function.exact)(f64::from(x))), bits)
        });
        let worst = errors.reduce(|| (0.0, 0), larger);
        function.assert_within(worst);
    }
}

/// The function once more, so that it is compiled into the loop.
fn assert_every_number(name: &str, of: impl Fn(f32) -> f32 + Sync) {
    let function = FUNCTIONS.iter().find(|function| function.name == name).unwrap();
    let exact = Neighbours::of(function.exact, function.bound > 0.0);
    let worst_of_chunk = |chunk: u32| {
        let mut worst = (0.0, 0);
        for first in (0..1 << 20).step_by(NEIGHBOURS).map(|k| chunk << 20 | k) {
            let exact = exact.after(first);
            let mut found = [0.0; NEIGHBOURS];
            (0..NEIGHBOURS).for_each(|k| found[k] = of(f32::from_bits(first + k as u32)));
            // There the errors are counted otherwise.
            let is_of_zeros = name == "lgamma" && (-10.1..-2.2).contains(&f32::from_bits(first));
            let mut is_extraordinary = [false; NEIGHBOURS];
            for k in 0..NEIGHBOURS {
                // Zeros are right or wrong, whatever the distance.
                let is_zero = (found[k] == 0.0) | (exact[k] == 0.0);
                let error = error_of_ordinary(found[k], exact[k]);
                is_extraordinary[k] = is_zero | error.is_nan() | (error >= worst.0) | is_of_zeros;
            }
            if !is_extraordinary.contains(&true) {
                continue;
            }
            for k in 0..NEIGHBOURS {
                if is_extraordinary[k] {
                    let bits = first + k as u32;
                    worst = larger(worst, (function.error(f32::from_bits(bits), exact[k]), bits));
                }
            }
        }
        worst
    };
    let worst = (0..1u32 << 12).into_par_iter().map(worst_of_chunk).reduce(|| (0.0, 0), larger);
    println!("{name}: {} units in the last place, at {:#010x}", worst.0, worst.1);
    function.assert_within(worst);
}

#[test]
fn both_of_sincos_are_those_of_sin_and_cos() {
    for bits in sample() {
        let x = f32::from_bits(bits);
        let (sin, cos) = math::sincos(x);
        assert_eq!([sin, cos].map(f32::to_bits), [math::sin(x), math::cos(x)].map(f32::to_bits), "{x:e}");
    }
}

#[test]
fn both_of_sincospi_are_those_of_sinpi_and_cospi() {
    // Multiples of a quarter as well: there are the zeros, and the ends of the quadrants.
    let quarters = (-4096..4096).map(|quarter| (quarter as f32 / 4.0).to_bits());
    for bits in sample().into_iter().chain(quarters) {
        let x = f32::from_bits(bits);
        let (sin, cos) = math::sincospi(x);
        assert_eq!([sin, cos].map(f32::to_bits), [math::sinpi(x), math::cospi(x)].map(f32::to_bits), "{x:e}");
    }
}
