//! What becomes of `cuda_std::math` on a GPU: operations that IEEE 754 defines, so that the CPU has the same bits. Builds a crate.

mod crates;

use crates::{builder, write_crate};

const KERNELS: &str = r#"
#![no_std]
use cuda_std::prelude::*;

macro_rules! function {
    ($name:ident, $function:expr) => {
        #[kernel(block = 32)]
        pub fn $name(x: GlobalSliceMut<'_, f32>) {
            let i = thread::thread_idx_x() as usize;
            if i < x.len() {
                let function: fn(f32) -> f32 = $function;
                // SAFETY: inside, and every thread has its own element.
                unsafe { x.set_unchecked(i, function(x.get_unchecked(i))) };
            }
        }
    };
}

function!(k_exp, math::exp);
function!(k_exp2, math::exp2);
function!(k_exp10, math::exp10);
function!(k_expm1, math::expm1);
function!(k_log, math::log);
function!(k_log2, math::log2);
function!(k_log10, math::log10);
function!(k_log1p, math::log1p);
function!(k_sqrt, math::sqrt);
function!(k_rsqrt, math::rsqrt);
function!(k_cbrt, math::cbrt);
function!(k_rcbrt, math::rcbrt);
function!(k_sin, math::sin);
function!(k_cos, math::cos);
function!(k_tan, math::tan);
function!(k_sinpi, math::sinpi);
function!(k_cospi, math::cospi);
function!(k_asin, math::asin);
function!(k_acos, math::acos);
function!(k_atan, math::atan);
function!(k_sinh, math::sinh);
function!(k_cosh, math::cosh);
function!(k_tanh, math::tanh);
function!(k_asinh, math::asinh);
function!(k_acosh, math::acosh);
function!(k_atanh, math::atanh);
function!(k_erf, math::erf);
function!(k_erfc, math::erfc);
function!(k_tgamma, math::tgamma);
function!(k_lgamma, math::lgamma);
function!(k_floor, math::floor);
function!(k_ceil, math::ceil);
function!(k_trunc, math::trunc);
function!(k_round, math::round);
function!(k_round_ties_even, math::round_ties_even);
function!(k_abs, math::abs);
function!(k_atan2, |x| math::atan2(x, 2.5 - x));
function!(k_pow, |x| math::pow(x, 2.5 - x));
function!(k_hypot, |x| math::hypot(x, 2.5 - x));
function!(k_fmod, |x| math::fmod(x, 2.5 - x));
function!(k_remainder, |x| math::remainder(x, 2.5 - x));
function!(k_min, |x| math::min(x, 2.5 - x));
function!(k_max, |x| math::max(x, 2.5 - x));
function!(k_minimum, |x| math::minimum(x, 2.5 - x));
function!(k_maximum, |x| math::maximum(x, 2.5 - x));
function!(k_copysign, |x| math::copysign(x, 2.5 - x));
function!(k_sincos, |x| { let (sin, cos) = math::sincos(x); sin - cos });
function!(k_powi, |x| math::powi(x, x.to_bits() as i32));
function!(k_ldexp, |x| math::ldexp(x, x.to_bits() as i32));
function!(k_frexp, |x| { let (mantissa, exponent) = math::frexp(x); mantissa + exponent as f32 });
function!(k_ilogb, |x| f32::from_bits(math::ilogb(x) as u32));
function!(k_not_fused, |x| x * x + x);
function!(fast_exp2, math::fast::exp2);
function!(fast_exp, math::fast::exp);
function!(fast_log2, math::fast::log2);
function!(fast_log, math::fast::log);
function!(fast_sin, math::fast::sin);
function!(fast_cos, math::fast::cos);
function!(fast_tanh, math::fast::tanh);
function!(fast_rcp, math::fast::rcp);
function!(fast_sqrt, math::fast::sqrt);
function!(fast_rsqrt, math::fast::rsqrt);
function!(fast_div, |x| math::fast::div(x, 2.5 - x));
"#;

/// The kernels that begin with an approximation of 1/x somewhere.
const FROM_A_RECIPROCAL: [&str; 10] =
    ["k_atan", "k_sinh", "k_cosh", "k_tanh", "k_erfc", "k_tgamma", "k_lgamma", "k_pow", "k_powi", "k_fmod"];

#[test]
fn every_operation_is_rounded_as_on_the_cpu() {
    let build = builder(&write_crate("math", "functions", KERNELS, "")).build().unwrap();
    for module in &build.modules {
        let bodies: Vec<_> =
            module.ptx.split(".entry ").skip(1).map(|rest| rest.split("\n}").next().unwrap()).collect();
        assert_eq!(bodies.len(), KERNELS.lines().filter(|line| line.starts_with("function!(")).count());
        for body in &bodies {
            // Names of Rust's functions are in comments.
            let calls = body.lines().any(|line| line.split("//").next().is_some_and(|code| code.contains("call")));
            assert!(!calls, "{body}");
            let is_fast = body.starts_with("fast_");
            assert!(!is_fast || body.contains(".approx.") || body.contains("div.full."), "{body}");
            for line in body.lines().map(str::trim).filter(|line| !line.starts_with('.') && !is_fast) {
                // Some functions begin with an approximation, and end where they would from any other.
                let begins_with = |approximation: &str, kernels: &[&str]| {
                    line.starts_with(approximation)
                        && kernels.iter().any(|kernel| body.starts_with(&format!("{kernel}(")))
                };
                if begins_with("rsqrt.approx.ftz.f32", &["k_rsqrt", "k_asin", "k_acos"])
                    || begins_with("rcp.approx.ftz.f32", &FROM_A_RECIPROCAL)
                {
                    continue;
                }
                assert!(!line.contains("ftz") && !line.contains("approx"), "{line}");
                let operation = line.trim_start_matches(|c: char| c != ' ').trim_start();
                let operation = if line.starts_with('@') { operation } else { line };
                let operation = operation.split_whitespace().next().unwrap_or_default();
                // Rounded to an integer, or not at all.
                let exact = [
                    "ld.",
                    "st.",
                    "mov.",
                    "setp.",
                    "selp.",
                    "neg.",
                    "abs.",
                    "copysign.",
                    "min.f32",
                    "max.f32",
                    "min.NaN.f32",
                    "max.NaN.f32",
                    "cvt.rmi.",
                    "cvt.rpi.",
                    "cvt.rzi.",
                    "cvt.rni.",
                    "cvt.f64.f32",
                ];
                let is_exact = exact.iter().any(|of| operation.starts_with(of));
                let is_of_numbers = operation.contains(".f32") || operation.contains(".f64");
                assert!(!is_of_numbers || is_exact || operation.contains(".rn."), "{line}");
            }
        }
        let body = |name: &str| *bodies.iter().find(|body| body.starts_with(&format!("{name}("))).unwrap();
        for (kernel, operation) in
            [("k_exp", "fma.rn.f32"), ("k_exp2", "fma.rn.f32"), ("k_sqrt", "sqrt.rn.f32"), ("k_rsqrt", "fma.rn.f32")]
        {
            assert!(body(kernel).contains(operation), "{}", body(kernel));
        }
        let not_fused = body("k_not_fused");
        assert!(not_fused.contains("mul.rn.f32") && not_fused.contains("add.rn.f32"), "{not_fused}");
    }
}
