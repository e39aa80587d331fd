//! Special values, as C has them (annex F), and IEEE 754 where C has none.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use tilewright_cuda_std::math;

use crate::reference::NAN;

pub(crate) const INFINITY: f32 = f32::INFINITY;
/// The only NaN that a function gives.
pub(crate) const NO_NUMBER: f32 = f32::from_bits(NAN);
/// What NaNs there may be.
pub(crate) const NANS: [u32; 5] = [NAN, 0x7FC0_0000, 0xFFC1_2345, 0x7F80_0001, 0xFFFF_FFFF];

/// A function, and pairs of an argument and the result.
type OfOne = (&'static str, fn(f32) -> f32, &'static [(f32, f32)]);

const OF_ONE: &[OfOne] = &[
    (
        "exp",
        math::exp,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (1e-45, 1.0),
            (INFINITY, INFINITY),
            (-INFINITY, 0.0),
            (f32::MAX, INFINITY),
            (f32::MIN, 0.0),
        ],
    ),
    (
        "exp2",
        math::exp2,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (1e-45, 1.0),
            (INFINITY, INFINITY),
            (-INFINITY, 0.0),
            (f32::MAX, INFINITY),
            (f32::MIN, 0.0),
            (127.0, 1.701_411_8e38),
            (-149.0, 1e-45),
            (-150.0, 0.0),
        ],
    ),
    (
        "exp10",
        math::exp10,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (1e-45, 1.0),
            (1.0, 10.0),
            (2.0, 100.0),
            (10.0, 1e10),
            (INFINITY, INFINITY),
            (-INFINITY, 0.0),
            (f32::MAX, INFINITY),
            (f32::MIN, 0.0),
        ],
    ),
    (
        "expm1",
        math::expm1,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1e-45, 1e-45),
            (-1e-45, -1e-45),
            (INFINITY, INFINITY),
            (-INFINITY, -1.0),
            (f32::MAX, INFINITY),
            (f32::MIN, -1.0),
        ],
    ),
    (
        "log",
        math::log,
        &[
            (1.0, 0.0),
            (0.0, -INFINITY),
            (-0.0, -INFINITY),
            (INFINITY, INFINITY),
            (-1.0, NO_NUMBER),
            (-1e-45, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "log2",
        math::log2,
        &[
            (1.0, 0.0),
            (0.0, -INFINITY),
            (-0.0, -INFINITY),
            (INFINITY, INFINITY),
            (-1.0, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
            (8.0, 3.0),
            (1e-45, -149.0),
        ],
    ),
    (
        "log10",
        math::log10,
        &[
            (1.0, 0.0),
            (0.0, -INFINITY),
            (-0.0, -INFINITY),
            (INFINITY, INFINITY),
            (-1.0, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
            (10.0, 1.0),
            (1000.0, 3.0),
            (1e10, 10.0),
        ],
    ),
    (
        "log1p",
        math::log1p,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1e-45, 1e-45),
            (-1.0, -INFINITY),
            (INFINITY, INFINITY),
            (-1.000_000_1, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "sqrt",
        math::sqrt,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INFINITY, INFINITY),
            (-1.0, NO_NUMBER),
            (-1e-45, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "rsqrt",
        math::rsqrt,
        &[
            (0.0, INFINITY),
            (-0.0, -INFINITY),
            (INFINITY, 0.0),
            (-1.0, NO_NUMBER),
            (-1e-45, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "cbrt",
        math::cbrt,
        &[(0.0, 0.0), (-0.0, -0.0), (INFINITY, INFINITY), (-INFINITY, -INFINITY), (27.0, 3.0), (-0.125, -0.5)],
    ),
    (
        "rcbrt",
        math::rcbrt,
        &[(0.0, INFINITY), (-0.0, -INFINITY), (INFINITY, 0.0), (-INFINITY, -0.0), (8.0, 0.5), (-0.125, -2.0)],
    ),
    ("sin", math::sin, &[(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (INFINITY, NO_NUMBER), (-INFINITY, NO_NUMBER)]),
    ("cos", math::cos, &[(0.0, 1.0), (-0.0, 1.0), (INFINITY, NO_NUMBER), (-INFINITY, NO_NUMBER)]),
    ("tan", math::tan, &[(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (INFINITY, NO_NUMBER), (-INFINITY, NO_NUMBER)]),
    (
        "sinpi",
        math::sinpi,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (0.5, 1.0),
            (1.5, -1.0),
            (1.0, 0.0),
            (-1.0, -0.0),
            (2.0, 0.0),
            (-7.0, -0.0),
            (f32::MAX, 0.0),
            (f32::MIN, -0.0),
            (INFINITY, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "cospi",
        math::cospi,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (0.5, 0.0),
            (-0.5, 0.0),
            (1.5, 0.0),
            (1.0, -1.0),
            (-3.0, -1.0),
            (f32::MAX, 1.0),
            (INFINITY, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "asin",
        math::asin,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1.0, FRAC_PI_2),
            (-1.0, -FRAC_PI_2),
            (1.000_000_1, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    (
        "acos",
        math::acos,
        &[
            (1.0, 0.0),
            (-1.0, PI),
            (0.0, FRAC_PI_2),
            (-0.0, FRAC_PI_2),
            (-1.000_000_1, NO_NUMBER),
            (INFINITY, NO_NUMBER),
        ],
    ),
    ("atan", math::atan, &[(0.0, 0.0), (-0.0, -0.0), (1.0, FRAC_PI_4), (INFINITY, FRAC_PI_2), (-INFINITY, -FRAC_PI_2)]),
    (
        "sinh",
        math::sinh,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1e-45, 1e-45),
            (INFINITY, INFINITY),
            (-INFINITY, -INFINITY),
            (89.42, INFINITY),
            (f32::MIN, -INFINITY),
        ],
    ),
    (
        "cosh",
        math::cosh,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (1e-45, 1.0),
            (INFINITY, INFINITY),
            (-INFINITY, INFINITY),
            (89.42, INFINITY),
            (f32::MIN, INFINITY),
        ],
    ),
    (
        "tanh",
        math::tanh,
        &[(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (INFINITY, 1.0), (-INFINITY, -1.0), (f32::MAX, 1.0)],
    ),
    ("asinh", math::asinh, &[(0.0, 0.0), (-0.0, -0.0), (1e-45, 1e-45), (INFINITY, INFINITY), (-INFINITY, -INFINITY)]),
    (
        "acosh",
        math::acosh,
        &[(1.0, 0.0), (INFINITY, INFINITY), (0.999_999_9, NO_NUMBER), (-1.0, NO_NUMBER), (-INFINITY, NO_NUMBER)],
    ),
    (
        "atanh",
        math::atanh,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1e-45, 1e-45),
            (1.0, INFINITY),
            (-1.0, -INFINITY),
            (1.000_000_1, NO_NUMBER),
            (-INFINITY, NO_NUMBER),
        ],
    ),
    ("erf", math::erf, &[(0.0, 0.0), (-0.0, -0.0), (INFINITY, 1.0), (-INFINITY, -1.0), (f32::MIN, -1.0)]),
    (
        "erfc",
        math::erfc,
        &[(0.0, 1.0), (-0.0, 1.0), (INFINITY, 0.0), (-INFINITY, 2.0), (f32::MAX, 0.0), (f32::MIN, 2.0)],
    ),
    (
        "tgamma",
        math::tgamma,
        &[
            (0.0, INFINITY),
            (-0.0, -INFINITY),
            (1.0, 1.0),
            (2.0, 1.0),
            (3.0, 2.0),
            (-1.0, NO_NUMBER),
            (-2.0, NO_NUMBER),
            (-3.0, NO_NUMBER),
            (-30.0, NO_NUMBER),
            (f32::MIN, NO_NUMBER),
            (INFINITY, INFINITY),
            (-INFINITY, NO_NUMBER),
            (1e-45, INFINITY),
            (f32::MAX, INFINITY),
        ],
    ),
    (
        "lgamma",
        math::lgamma,
        &[
            (0.0, INFINITY),
            (-0.0, INFINITY),
            (1.0, 0.0),
            (2.0, 0.0),
            (-1.0, INFINITY),
            (-2.0, INFINITY),
            (-30.0, INFINITY),
            (f32::MIN, INFINITY),
            (INFINITY, INFINITY),
            (-INFINITY, INFINITY),
            (f32::MAX, INFINITY),
        ],
    ),
    (
        "floor",
        math::floor,
        &[(0.0, 0.0), (-0.0, -0.0), (0.5, 0.0), (-0.5, -1.0), (INFINITY, INFINITY), (-INFINITY, -INFINITY)],
    ),
    (
        "ceil",
        math::ceil,
        &[(0.0, 0.0), (-0.0, -0.0), (0.5, 1.0), (-0.5, -0.0), (INFINITY, INFINITY), (-INFINITY, -INFINITY)],
    ),
    (
        "trunc",
        math::trunc,
        &[(0.0, 0.0), (-0.0, -0.0), (1.5, 1.0), (-0.5, -0.0), (INFINITY, INFINITY), (-INFINITY, -INFINITY)],
    ),
    (
        "round",
        math::round,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (0.5, 1.0),
            (-0.5, -1.0),
            (2.5, 3.0),
            (0.499_999_97, 0.0),
            (-0.3, -0.0),
            (INFINITY, INFINITY),
            (-INFINITY, -INFINITY),
        ],
    ),
    (
        "round_ties_even",
        math::round_ties_even,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (0.5, 0.0),
            (-0.5, -0.0),
            (1.5, 2.0),
            (2.5, 2.0),
            (INFINITY, INFINITY),
            (-INFINITY, -INFINITY),
        ],
    ),
    ("abs", math::abs, &[(-0.0, 0.0), (-1.5, 1.5), (-INFINITY, INFINITY)]),
];

#[test]
fn small_powers_of_10_are_exact() {
    for n in 0u8..=10 {
        assert_eq!(math::exp10(f32::from(n)), 10f64.powi(i32::from(n)) as f32, "exp10({n})");
    }
}

#[test]
fn special_numbers_are_those_of_c() {
    for (name, of, values) in OF_ONE {
        for &(x, result) in *values {
            assert_eq!(of(x).to_bits(), result.to_bits(), "{name}({x:e}) = {:e}, not {result:e}", of(x));
        }
        for nan in NANS {
            assert_eq!(of(f32::from_bits(nan)).to_bits(), NAN, "{name} of the NaN {nan:#x}");
        }
    }
    for x in [0.0, 1.0, INFINITY, NO_NUMBER] {
        assert_eq!(<[f32; 2]>::from(math::sincos(x)).map(f32::to_bits), [math::sin(x), math::cos(x)].map(f32::to_bits));
        let of_pi = <[f32; 2]>::from(math::sincospi(x)).map(f32::to_bits);
        assert_eq!(of_pi, [math::sinpi(x), math::cospi(x)].map(f32::to_bits));
    }
}

/// Where results become infinite, subnormal and 0.
#[test]
fn the_ends_of_the_exponentials_are_where_they_shall_be() {
    let edge = |exponential: fn(f32) -> f32, x: f32| [exponential(x), exponential(x.next_up())];
    for (exponential, last, smallest) in [
        (math::exp as fn(f32) -> f32, 88.722_83f32, -103.972_084f32),
        (math::exp2, 128f32.next_down(), -150.0),
        (math::exp10, 38.531_837, -45.154_503),
    ] {
        let [finite, infinite] = edge(exponential, last);
        assert!(finite.is_finite() && infinite == INFINITY, "{finite}, {infinite}");
        assert_eq!(edge(exponential, smallest), [0.0, 1e-45], "{smallest}");
    }
    let [below, above] = edge(math::exp, -87.336_55);
    assert!(below < f32::MIN_POSITIVE && above > f32::MIN_POSITIVE);
    for n in -149..128 {
        assert_eq!(f64::from(math::exp2(n as f32)), 2f64.powi(n), "exact for integers: {n}");
        assert_eq!(math::log2(math::exp2(n as f32)), n as f32, "exact for powers of 2: {n}");
    }
    for n in 0..=10 {
        let power = 10f32.powi(n);
        assert_eq!((math::exp10(n as f32), math::log10(power)), (power, n as f32), "exact for powers of 10: {n}");
    }
}

#[test]
fn those_of_f64_are_those_of_std() {
    let numbers = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        0.499_999_999_999_999_94,
        1.5,
        2.5,
        -3.7,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    for x in numbers {
        let pairs = [
            (math::sqrt_f64(x), x.sqrt()),
            (math::floor_f64(x), x.floor()),
            (math::ceil_f64(x), x.ceil()),
            (math::trunc_f64(x), x.trunc()),
            (math::round_f64(x), x.round()),
            (math::round_ties_even_f64(x), x.round_ties_even()),
            (math::abs_f64(x), x.abs()),
        ];
        for (found, right) in pairs {
            assert!(
                found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan(),
                "{x}: {found}, not {right}"
            );
        }
        for y in numbers {
            let right = if x.is_nan() {
                [y, y]
            } else if y.is_nan() {
                [x, x]
            } else if x.total_cmp(&y).is_lt() {
                [x, y]
            } else {
                [y, x]
            };
            for (found, right) in [math::min_f64(x, y), math::max_f64(x, y)].into_iter().zip(right) {
                assert!(
                    found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan(),
                    "{x}, {y}: {found}, not {right}"
                );
            }
            assert!(math::copysign_f64(x, y).is_sign_negative() == y.is_sign_negative() || x.is_nan());
            assert!(math::fma_f64(x, y, 1.0) == x.mul_add(y, 1.0) || x.mul_add(y, 1.0).is_nan());
        }
    }
}
