//! Functions of two arguments, on pairs of each class of numbers.

use rayon::prelude::*;
use tilewright_cuda_std::math;

use crate::reference::{NAN, error};

/// A function, what it shall be, and the most that it may be off, in units in the last place.
struct Function {
    name: &'static str,
    of: fn(f32, f32) -> f32,
    exact: fn(f64, f64) -> f64,
    bound: f64,
}

const FUNCTIONS: [Function; 10] = [
    Function { name: "atan2", of: math::atan2, exact: f64::atan2, bound: 1.8 },
    Function { name: "pow", of: math::pow, exact: f64::powf, bound: 1.0 },
    Function {
        name: "hypot",
        of: math::hypot,
        exact: |x, y| if x.is_infinite() || y.is_infinite() { f64::INFINITY } else { (x * x + y * y).sqrt() },
        bound: 1.1,
    },
    Function { name: "fmod", of: math::fmod, exact: |x, y| x % y, bound: 0.0 },
    Function { name: "remainder", of: math::remainder, exact: remainder, bound: 0.0 },
    Function { name: "min", of: math::min, exact: |x, y| ordered(x, y).0, bound: 0.0 },
    Function { name: "max", of: math::max, exact: |x, y| ordered(x, y).1, bound: 0.0 },
    Function { name: "minimum", of: math::minimum, exact: |x, y| or_nan(x, y, ordered(x, y).0), bound: 0.0 },
    Function { name: "maximum", of: math::maximum, exact: |x, y| or_nan(x, y, ordered(x, y).1), bound: 0.0 },
    Function { name: "copysign", of: math::copysign, exact: f64::copysign, bound: 0.0 },
];

/// The smaller and the larger of two numbers, −0 below +0, and NaN beyond everything.
fn ordered(x: f64, y: f64) -> (f64, f64) {
    if x.is_nan() || y.is_nan() {
        let number = if x.is_nan() { y } else { x };
        return (number, number);
    }
    if x.total_cmp(&y).is_lt() { (x, y) } else { (y, x) }
}

/// NaN if one of two numbers is, and otherwise a third.
fn or_nan(x: f64, y: f64, otherwise: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { otherwise }
}

/// Exactly, because these numbers have 24 bits and their multiples by 1/2 and 3/2 a few more.
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

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.bits()) * u64::from(n)) >> 32) as u32
    }

    /// Of magnitude 2⁻ⁿ to 2ⁿ.
    fn within(&mut self, n: u32) -> f32 {
        let exponent = 127 - n + self.below(2 * n);
        f32::from_bits(self.bits() & 0x807F_FFFF | exponent << 23)
    }
}

const SPECIAL: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    3.0,
    0.5,
    -0.5,
    1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    1e-40,
    16_777_216.0,
    16_777_215.0,
    -16_777_217.0,
];

/// A pair of some class.
fn pair(class: u32, random: &mut Random) -> (f32, f32) {
    let any = |random: &mut Random| f32::from_bits(random.bits());
    match class {
        0 => (any(random), any(random)),
        1 => (random.within(4), random.within(4)),
        2 => (random.within(20), random.within(20)),
        // Near to each other, and to multiples of each other.
        3 => {
            let x = any(random);
            (x, f32::from_bits(x.to_bits().wrapping_add(random.below(64)).wrapping_sub(32)))
        }
        4 => {
            let y = random.within(30);
            (0.5 * random.below(1000) as f32 * y, y)
        }
        // Integers, and halves of them.
        5 => (random.below(200) as f32 - 100.0, random.below(100) as f32 - 50.0),
        6 => (0.5 * random.below(4000) as f32, 0.5 * random.below(200) as f32),
        // For powers: near to 1 with large exponents, and results of all magnitudes.
        7 => {
            let x = f32::from_bits(0x3F80_0000u32.wrapping_add(random.below(20_000)).wrapping_sub(10_000));
            (x, random.within(20))
        }
        8 => {
            let x = f32::from_bits(random.below(0x7F80_0000));
            (x, (random.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0) * 150.0 / x.log2())
        }
        // Subnormal numbers.
        9 => (f32::from_bits(random.bits() & 0x807F_FFFF), f32::from_bits(random.bits() & 0x80FF_FFFF)),
        10 => (any(random), f32::from_bits(random.bits() & 0x807F_FFFF)),
        _ => {
            let one = SPECIAL[random.below(SPECIAL.len() as u32) as usize];
            let other =
                if random.bits() & 1 == 0 { SPECIAL[random.below(SPECIAL.len() as u32) as usize] } else { any(random) };
            if random.bits() & 1 == 0 { (one, other) } else { (other, one) }
        }
    }
}

const CLASSES: u32 = 12;

fn assert_pairs(pairs_of_class: u64, is_loud: bool) {
    for function in &FUNCTIONS {
        let error_of = |x: f32, y: f32| error((function.of)(x, y), (function.exact)(f64::from(x), f64::from(y)));
        let of_chunk = |(class, chunk): (u32, u64)| {
            let mut random = Random(chunk << 8 | u64::from(class));
            let pairs = (0..pairs_of_class.min(10_000)).map(|_| pair(class, &mut random));
            pairs.map(|(x, y)| (error_of(x, y), x, y)).fold((0.0, 0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
        };
        let chunks = (0..CLASSES)
            .into_par_iter()
            .flat_map(|class| (0..pairs_of_class.div_ceil(10_000)).into_par_iter().map(move |chunk| (class, chunk)));
        let (worst, x, y) = chunks.map(of_chunk).reduce(|| (0.0, 0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        if is_loud {
            println!("{}: {worst} units in the last place, at ({x:e}, {y:e})", function.name);
        }
        assert!(
            worst <= function.bound,
            "{}({x:e}, {y:e}) = {:e} is {worst} units in the last place off {:e}; at most {} are allowed",
            function.name,
            (function.of)(x, y),
            (function.exact)(f64::from(x), f64::from(y)),
            function.bound
        );
    }
}

#[test]
fn pairs_of_every_class_are_within_the_bounds() {
    assert_pairs(10_000, false);
}

#[test]
#[ignore = "10⁹ pairs, which takes minutes: see main.rs"]
fn many_pairs_are_within_the_bounds() {
    assert_pairs(10_000_000, true);
}

#[test]
fn integer_powers_are_within_the_bounds() {
    let mut random = Random(1);
    for k in 0..200_000 {
        let (x, n) = match k % 4 {
            0 => (f32::from_bits(random.bits()), random.bits() as i32),
            1 => (random.within(3), random.below(100) as i32 - 50),
            // Exponents of more than 24 bits.
            2 => (1.0 + (random.below(200) as f32 - 100.0) * f32::EPSILON, random.bits() as i32 >> 4),
            _ => (SPECIAL[random.below(SPECIAL.len() as u32) as usize], random.below(9) as i32 - 4),
        };
        let (found, exact) = (math::powi(x, n), f64::from(x).powf(f64::from(n)));
        let error = error(found, exact);
        assert!(error <= 1.0, "powi({x:e}, {n}) = {found:e} is {error} units in the last place off {exact:e}");
    }
}

#[test]
fn parts_of_a_number_are_exact() {
    let mut random = Random(2);
    for k in 0..100_000 {
        let x = if k % 4 == 0 { SPECIAL[k / 4 % SPECIAL.len()] } else { f32::from_bits(random.bits()) };
        let n = if k % 3 == 0 { random.bits() as i32 } else { random.below(700) as i32 - 350 };
        // In f64 a product with 2ⁿ is exact, and only the conversion rounds.
        let exact = f64::from(x) * 2f64.powi(n.clamp(-400, 400));
        let rounded = if x.is_nan() { NAN } else { (exact as f32).to_bits() };
        assert_eq!(math::ldexp(x, n).to_bits(), rounded, "ldexp({x:e}, {n})");
        let (mantissa, exponent) = math::frexp(x);
        if x == 0.0 || !x.is_finite() {
            let same = if x.is_nan() { NAN } else { x.to_bits() };
            assert_eq!((mantissa.to_bits(), exponent), (same, 0), "frexp({x:e})");
            let of_logarithm = if x.is_infinite() { i32::MAX } else { i32::MIN };
            assert_eq!(math::ilogb(x), of_logarithm, "ilogb({x:e})");
        } else {
            assert!((0.5..1.0).contains(&mantissa.abs()), "frexp({x:e}) = ({mantissa}, {exponent})");
            assert_eq!(f64::from(mantissa) * 2f64.powi(exponent), f64::from(x), "frexp({x:e})");
            assert_eq!(math::ilogb(x), exponent - 1, "ilogb({x:e})");
        }
    }
}
