//! Special pairs of arguments, as C has them (annex F), and IEEE 754 where C has none.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use tilewright_cuda_std::math;

use crate::reference::NAN;
use crate::special::{INFINITY, NANS, NO_NUMBER};

/// Three of two numbers: the arguments and the result.
type OfTwo = (&'static str, fn(f32, f32) -> f32, &'static [(f32, f32, f32)]);

const OF_TWO: &[OfTwo] = &[
    (
        "atan2",
        math::atan2,
        &[
            (0.0, 1.0, 0.0),
            (-0.0, 1.0, -0.0),
            (0.0, 0.0, 0.0),
            (-0.0, 0.0, -0.0),
            (0.0, -0.0, PI),
            (-0.0, -0.0, -PI),
            (0.0, -1.0, PI),
            (-0.0, -1.0, -PI),
            (1.0, 0.0, FRAC_PI_2),
            (-1.0, -0.0, -FRAC_PI_2),
            (1.0, INFINITY, 0.0),
            (-1.0, INFINITY, -0.0),
            (1.0, -INFINITY, PI),
            (-1.0, -INFINITY, -PI),
            (INFINITY, 1.0, FRAC_PI_2),
            (-INFINITY, -1.0, -FRAC_PI_2),
            (INFINITY, INFINITY, FRAC_PI_4),
            (-INFINITY, INFINITY, -FRAC_PI_4),
            (INFINITY, -INFINITY, 3.0 * FRAC_PI_4),
            (-INFINITY, -INFINITY, -3.0 * FRAC_PI_4),
            (1.0, NO_NUMBER, NO_NUMBER),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (NO_NUMBER, INFINITY, NO_NUMBER),
            (INFINITY, NO_NUMBER, NO_NUMBER),
            (0.0, NO_NUMBER, NO_NUMBER),
        ],
    ),
    (
        "pow",
        math::pow,
        &[
            (0.0, -3.0, INFINITY),
            (-0.0, -3.0, -INFINITY),
            (0.0, -2.0, INFINITY),
            (-0.0, -2.0, INFINITY),
            (-0.0, -2.5, INFINITY),
            (0.0, -INFINITY, INFINITY),
            (-0.0, -INFINITY, INFINITY),
            (0.0, 3.0, 0.0),
            (-0.0, 3.0, -0.0),
            (-0.0, 2.0, 0.0),
            (-0.0, 2.5, 0.0),
            (-1.0, INFINITY, 1.0),
            (-1.0, -INFINITY, 1.0),
            (1.0, NO_NUMBER, 1.0),
            (1.0, INFINITY, 1.0),
            (NO_NUMBER, 0.0, 1.0),
            (NO_NUMBER, -0.0, 1.0),
            (0.0, 0.0, 1.0),
            (INFINITY, -0.0, 1.0),
            (-8.0, 1.0 / 3.0, NO_NUMBER),
            (-1.5, 0.5, NO_NUMBER),
            (0.5, -INFINITY, INFINITY),
            (2.0, -INFINITY, 0.0),
            (-2.0, -INFINITY, 0.0),
            (0.5, INFINITY, 0.0),
            (-0.5, INFINITY, 0.0),
            (2.0, INFINITY, INFINITY),
            (-2.0, INFINITY, INFINITY),
            (-INFINITY, -3.0, -0.0),
            (-INFINITY, -2.0, 0.0),
            (-INFINITY, -2.5, 0.0),
            (-INFINITY, 3.0, -INFINITY),
            (-INFINITY, 2.0, INFINITY),
            (-INFINITY, 2.5, INFINITY),
            (INFINITY, -1.0, 0.0),
            (INFINITY, 1e-45, INFINITY),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (2.0, NO_NUMBER, NO_NUMBER),
            (-1.0, NO_NUMBER, NO_NUMBER),
            (0.0, NO_NUMBER, NO_NUMBER),
            (-2.0, 3.0, -8.0),
            (-2.0, 16_777_216.0, INFINITY),
            (-1.0, 16_777_215.0, -1.0),
            (3.0, 4.0, 81.0),
            (4.0, 0.5, 2.0),
        ],
    ),
    (
        "hypot",
        math::hypot,
        &[
            (3.0, 4.0, 5.0),
            (0.0, -0.0, 0.0),
            (-1e-45, 0.0, 1e-45),
            (INFINITY, NO_NUMBER, INFINITY),
            (NO_NUMBER, -INFINITY, INFINITY),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (f32::MAX, f32::MAX, INFINITY),
            (f32::MAX, 0.0, f32::MAX),
        ],
    ),
    (
        "fmod",
        math::fmod,
        &[
            (0.0, 1.0, 0.0),
            (-0.0, 1.0, -0.0),
            (-6.0, 3.0, -0.0),
            (5.5, -2.0, 1.5),
            (1.0, 0.0, NO_NUMBER),
            (INFINITY, 1.0, NO_NUMBER),
            (1.0, INFINITY, 1.0),
            (-1.0, -INFINITY, -1.0),
            (INFINITY, INFINITY, NO_NUMBER),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (1.0, NO_NUMBER, NO_NUMBER),
            (-0.0, INFINITY, -0.0),
            (0.0, 0.0, NO_NUMBER),
        ],
    ),
    (
        "remainder",
        math::remainder,
        &[
            (0.0, 1.0, 0.0),
            (-0.0, 1.0, -0.0),
            (-6.0, 3.0, -0.0),
            (5.0, 2.0, 1.0),
            (7.0, 2.0, -1.0),
            (-5.0, 2.0, -1.0),
            (1.0, 0.0, NO_NUMBER),
            (INFINITY, 1.0, NO_NUMBER),
            (1.0, INFINITY, 1.0),
            (-1.0, -INFINITY, -1.0),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (1.0, NO_NUMBER, NO_NUMBER),
            (f32::MAX, f32::MAX, 0.0),
            (1e-45, f32::MAX, 1e-45),
        ],
    ),
    (
        "min",
        math::min,
        &[
            (1.0, 2.0, 1.0),
            (0.0, -0.0, -0.0),
            (-0.0, 0.0, -0.0),
            (NO_NUMBER, 1.0, 1.0),
            (1.0, NO_NUMBER, 1.0),
            (NO_NUMBER, NO_NUMBER, NO_NUMBER),
            (-INFINITY, NO_NUMBER, -INFINITY),
            (INFINITY, 1.0, 1.0),
        ],
    ),
    (
        "max",
        math::max,
        &[
            (1.0, 2.0, 2.0),
            (0.0, -0.0, 0.0),
            (-0.0, 0.0, 0.0),
            (NO_NUMBER, 1.0, 1.0),
            (-1.0, NO_NUMBER, -1.0),
            (NO_NUMBER, NO_NUMBER, NO_NUMBER),
            (-INFINITY, NO_NUMBER, -INFINITY),
            (INFINITY, 1.0, INFINITY),
        ],
    ),
    (
        "minimum",
        math::minimum,
        &[
            (1.0, 2.0, 1.0),
            (0.0, -0.0, -0.0),
            (-0.0, 0.0, -0.0),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (1.0, NO_NUMBER, NO_NUMBER),
            (-INFINITY, NO_NUMBER, NO_NUMBER),
            (INFINITY, 1.0, 1.0),
        ],
    ),
    (
        "maximum",
        math::maximum,
        &[
            (1.0, 2.0, 2.0),
            (0.0, -0.0, 0.0),
            (-0.0, 0.0, 0.0),
            (NO_NUMBER, 1.0, NO_NUMBER),
            (-1.0, NO_NUMBER, NO_NUMBER),
            (NO_NUMBER, INFINITY, NO_NUMBER),
            (INFINITY, 1.0, INFINITY),
        ],
    ),
    (
        "copysign",
        math::copysign,
        &[
            (1.0, -0.0, -1.0),
            (-1.0, 2.0, 1.0),
            (0.0, -1.0, -0.0),
            (INFINITY, -1.0, -INFINITY),
            (NO_NUMBER, -1.0, NO_NUMBER),
            (1.0, f32::from_bits(0xFFC0_0000), -1.0),
        ],
    ),
];

#[test]
fn special_pairs_are_those_of_c() {
    for (name, of, values) in OF_TWO {
        for &(x, y, result) in *values {
            let found = of(x, y);
            assert_eq!(found.to_bits(), result.to_bits(), "{name}({x:e}, {y:e}) = {found:e}, not {result:e}");
        }
        for nan in NANS.map(f32::from_bits) {
            assert_eq!(of(nan, nan).to_bits(), NAN, "{name} of the NaN {:#x}", nan.to_bits());
        }
    }
    assert_eq!(
        [math::powi(NO_NUMBER, 0), math::powi(0.0, 0), math::powi(-2.0, 3), math::powi(-2.0, -2)],
        [1.0, 1.0, -8.0, 0.25]
    );
    assert_eq!(math::powi(-0.0, -3), -INFINITY);
    assert_eq!(math::powi(-1.0, i32::MIN), 1.0);
    assert_eq!(math::powi(-1.0, i32::MAX), -1.0);
    assert_eq!(math::powi(f32::from_bits(0xFFC0_0000), 1).to_bits(), NAN);
}
