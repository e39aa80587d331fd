//! The functions of `cuda_std::math` against functions in f64.

use rayon::prelude::*;
use tilewright_cuda_std::math;

/// A function, what it shall be, and the most that it may be off, in units in the last place.
struct Function {
    name: &'static str,
    of: fn(f32) -> f32,
    exact: fn(f64) -> f64,
    bound: f64,
}

const FUNCTIONS: [Function; 4] = [
    Function { name: "exp", of: math::exp, exact: f64::exp, bound: 0.88 },
    Function { name: "exp2", of: math::exp2, exact: f64::exp2, bound: 0.87 },
    Function { name: "rsqrt", of: math::rsqrt, exact: |x| 1.0 / x.sqrt(), bound: 0.500_001 },
    Function { name: "sqrt", of: math::sqrt, exact: f64::sqrt, bound: 0.5 },
];

/// The only NaN that there may be.
const NAN: u32 = 0x7FFF_FFFF;

impl Function {
    /// How far off the result is, in units in the last place of the exact one; infinitely, if it is another kind of number.
    fn error(&self, x: f32) -> f64 {
        let (found, exact) = ((self.of)(x), (self.exact)(f64::from(x)));
        let rounded = exact as f32;
        if rounded.is_nan() || found.is_nan() {
            return if rounded.is_nan() && found.to_bits() == NAN { 0.0 } else { f64::INFINITY };
        }
        if !rounded.is_finite() || !found.is_finite() || exact == 0.0 {
            // The largest number and infinity are one unit apart, as if the exponents went on.
            let is_same = found.to_bits() == rounded.to_bits();
            return if is_same { 0.0 } else { f64::INFINITY };
        }
        (f64::from(found) - exact).abs() / ulp(exact)
    }

    /// The largest error over these numbers, and where.
    fn worst(&self, numbers: impl Iterator<Item = u32>) -> (f64, u32) {
        let errors = numbers.map(|bits| (self.error(f32::from_bits(bits)), bits));
        errors.fold((0.0, 0), |worst, one| if one.0 > worst.0 { one } else { worst })
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

/// The distance of the `f32` about a number that is none too small for one.
fn ulp(x: f64) -> f64 {
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.max(-126) - 23)
}

/// All exponents of both signs with the ends and some of the middle of each, and the numbers where something begins or ends.
fn sample() -> Vec<u32> {
    let mut sample = Vec::new();
    let mut state = 1u32;
    for sign_and_exponent in 0..512u32 {
        let first = sign_and_exponent << 23;
        sample.extend((0..64).map(|k| first + k));
        sample.extend((1..=64).map(|k| first + ((1 << 23) - k)));
        for _ in 0..4000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sample.push(first + (state >> 9));
        }
    }
    for edge in
        [88.722_84f32, 89.0, -87.336_55, -103.278_93, -103.972_08, -104.0, 128.0, -126.0, -149.0, -150.0, -151.0]
    {
        sample.extend((0..200).map(|k| edge.to_bits() - 100 + k));
    }
    sample
}

#[test]
fn every_exponent_is_within_the_bounds() {
    let sample = sample();
    for function in &FUNCTIONS {
        function.assert_within(function.worst(sample.iter().copied()));
    }
}

#[test]
#[ignore = "all 2³² numbers, which takes minutes: cargo test --release -p tilewright-cuda-std --test math -- --ignored"]
fn every_number_is_within_the_bounds() {
    for function in &FUNCTIONS {
        let chunks = (0..1u64 << 12).into_par_iter();
        let worst = chunks.map(|chunk| function.worst((0..1u64 << 20).map(move |k| (chunk << 20 | k) as u32)));
        let worst = worst.reduce(|| (0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
        println!("{}: {} units in the last place, at {:#010x}", function.name, worst.0, worst.1);
        function.assert_within(worst);
    }
}

#[test]
fn special_numbers_are_those_of_c() {
    let bits = |of: fn(f32) -> f32, x: f32| of(x).to_bits();
    let of_all: [fn(f32) -> f32; 4] = [math::exp, math::exp2, math::sqrt, math::rsqrt];
    for of in of_all {
        for nan in [0x7FC0_0000, 0xFFC1_2345, 0x7F80_0001, 0xFFFF_FFFF] {
            assert_eq!(bits(of, f32::from_bits(nan)), NAN, "of a NaN");
        }
        assert_eq!(bits(of, f32::INFINITY), if of(0.0) > 1.0 { 0 } else { f32::INFINITY.to_bits() });
    }
    for exponential in [math::exp, math::exp2] {
        assert_eq!([0.0, -0.0, 1e-45, -1e-45, f32::NEG_INFINITY].map(exponential), [1.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(bits(exponential, f32::NEG_INFINITY), 0, "not −0");
        assert_eq!([f32::MAX, f32::MIN].map(exponential), [f32::INFINITY, 0.0]);
    }
    let edge = |exponential: fn(f32) -> f32, x: f32| [exponential(x), exponential(x.next_up())];
    let [last, infinite] = edge(math::exp, 88.722_83);
    assert!(last.is_finite() && infinite == f32::INFINITY, "{last}, {infinite}");
    assert_eq!(edge(math::exp, -103.972_084), [0.0, 1e-45]);
    assert!(edge(math::exp, -87.336_55)[0] < f32::MIN_POSITIVE && edge(math::exp, -87.336_55)[1] > f32::MIN_POSITIVE);
    assert_eq!(edge(math::exp2, 128.0f32.next_down())[1], f32::INFINITY);
    assert_eq!(edge(math::exp2, -150.0), [0.0, 1e-45]);
    for n in -149..128 {
        assert_eq!(f64::from(math::exp2(n as f32)), 2f64.powi(n), "exact for integers: {n}");
    }
    assert_eq!(math::sqrt(-0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!((math::rsqrt(0.0), math::rsqrt(-0.0)), (f32::INFINITY, f32::NEG_INFINITY));
    for negative in [-1.0, -1e-45, f32::MIN, f32::NEG_INFINITY] {
        assert_eq!([bits(math::sqrt, negative), bits(math::rsqrt, negative)], [NAN; 2], "{negative}");
    }
}
