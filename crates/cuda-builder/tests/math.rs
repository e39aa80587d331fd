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
function!(k_sqrt, math::sqrt);
function!(k_rsqrt, math::rsqrt);
function!(k_not_fused, |x| x * x + x);
"#;

#[test]
fn every_operation_is_rounded_as_on_the_cpu() {
    let build = builder(&write_crate("math", "functions", KERNELS, "")).build().unwrap();
    for module in &build.modules {
        let lines = module.ptx.lines().map(str::trim);
        let on_numbers: Vec<_> = lines.filter(|line| line.contains(".f32") && !line.starts_with('.')).collect();
        for line in &on_numbers {
            let operation = line.trim_start_matches(|c: char| c != ' ').trim_start();
            let operation = if line.starts_with('@') { operation } else { line };
            let operation = operation.split_whitespace().next().unwrap_or_default();
            let is_exact =
                ["ld.", "st.", "mov.", "setp.", "selp.", "neg.", "abs."].iter().any(|of| operation.starts_with(of));
            assert!(is_exact || operation.contains(".rn."), "{line}");
            assert!(!operation.contains("ftz") && !operation.contains("approx"), "{line}");
        }
        let body = |name: &str| {
            let (_, rest) = module.ptx.split_once(&format!(".entry {name}(")).unwrap();
            rest.split("\n}").next().unwrap_or(rest)
        };
        for (kernel, operation) in
            [("k_exp", "fma.rn.f32"), ("k_exp2", "fma.rn.f32"), ("k_sqrt", "sqrt.rn.f32"), ("k_rsqrt", "rcp.rn.f32")]
        {
            assert!(body(kernel).contains(operation) && !body(kernel).contains("call"), "{}", body(kernel));
        }
        let not_fused = body("k_not_fused");
        assert!(not_fused.contains("mul.rn.f32") && not_fused.contains("add.rn.f32"), "{not_fused}");
    }
}
