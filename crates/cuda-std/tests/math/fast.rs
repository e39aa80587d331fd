//! The functions of `cuda_std::math::fast`, as the CPU has them: within the bounds that their table states.

use tilewright_cuda_std::math::fast;

/// A function, what it shall be, and the most that it may be off at an argument, as a part of the result or besides it.
type Function = (&'static str, fn(f32) -> f32, fn(f64) -> f64, fn(f64) -> f64, fn(f64) -> f64);

const FUNCTIONS: [Function; 11] = [
    ("exp2", fast::exp2, f64::exp2, |_| 2f64.powi(-22), |_| 0.0),
    ("exp2_or_zero", fast::exp2_or_zero, f64::exp2, |_| 2f64.powi(-22), |_| f64::from(f32::MIN_POSITIVE)),
    ("exp", fast::exp, f64::exp, |x| 2f64.powi(-22) + x.abs() * 2f64.powi(-23), |_| 0.0),
    ("log2", fast::log2, f64::log2, |_| 2f64.powi(-22), |_| 0.0),
    ("log", fast::log, f64::ln, |_| 2f64.powi(-21), |_| 0.0),
    ("sin", fast::sin, f64::sin, |_| 0.0, |_| 2f64.powf(-20.5)),
    ("cos", fast::cos, f64::cos, |_| 0.0, |_| 2f64.powf(-20.4)),
    ("tanh", fast::tanh, f64::tanh, |_| 2f64.powi(-11), |_| 0.0),
    ("rcp", fast::rcp, |x| 1.0 / x, |_| 2f64.powi(-23), |_| 0.0),
    ("sqrt", fast::sqrt, f64::sqrt, |_| 2f64.powi(-23), |_| 0.0),
    ("rsqrt", fast::rsqrt, |x| 1.0 / x.sqrt(), |_| 2f64.powf(-22.9), |_| 0.0),
];

#[test]
fn the_table_of_bounds_holds_on_the_cpu() {
    for (name, of, exact, of_result, besides) in FUNCTIONS {
        for bits in (0..=u32::MAX).step_by(40_009) {
            let x = f32::from_bits(bits);
            let (found, exact) = (f64::from(of(x)), exact(f64::from(x)));
            let rounded = f64::from(exact as f32);
            if !found.is_finite() || !rounded.is_finite() {
                assert!(
                    found == rounded || found.is_nan() && rounded.is_nan(),
                    "{name}({x:e}) = {found:e}, not {rounded:e}"
                );
                continue;
            }
            let x = f64::from(x);
            // Subnormal results have fewer bits.
            let allowed = exact.abs() * of_result(x) + besides(x) + 2f64.powi(-149);
            assert!((found - exact).abs() <= allowed, "{name}({x:e}) = {found:e}, not {exact:e}");
        }
    }
    assert_eq!((fast::div(1.0, 3.0), fast::div(-1.0, 0.0)), (1.0 / 3.0, f32::NEG_INFINITY));
    assert!(fast::div(0.0, 0.0).is_nan() && fast::div(f32::NAN, 1.0).is_nan());
}
