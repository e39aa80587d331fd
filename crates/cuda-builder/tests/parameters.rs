//! Structs with arrays among a kernel's parameters, which are indexed by what is not known when the kernel is compiled.
//!
//! Builds crates for real, as `build.rs` does.

mod crates;

use crates::{builder, write_crate};
use tilewright_cuda_builder::inspect::CheckError;
use tilewright_cuda_builder::{Arch, Error};

/// A kernel whose `body` has an index below 12, `i`, and makes `result`.
fn source(body: &str) -> String {
    format!(
        r#"
#![no_std]
use cuda_std::{{GlobalSlice, GlobalSliceMut, KernelParam, kernel, thread}};

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
pub struct Tables<'a> {{
    scale: f32,
    values: [f32; 12],
    bytes: [u8; 24],
    views: [GlobalSlice<'a, f32>; 12],
    pairs: [[u16; 2]; 12],
}}

#[kernel(block = 32)]
pub fn by_tables(tables: Tables<'_>, weights: [f32; 12], which: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, f32>) {{
    let t = thread::index_1d();
    if t < y.len() && t < which.len() {{
        // SAFETY: inside.
        let i = unsafe {{ which.get_unchecked(t) }} as usize % 12;
        {body}
        // SAFETY: inside, and every thread has its own element.
        unsafe {{ y.set_unchecked(t, result) }};
    }}
}}
"#
    )
}

#[test]
fn parameters_are_indexed_where_they_are() {
    let bodies = [
        ("values", "let result = tables.scale * tables.values[i];"),
        ("bytes", "let result = f32::from(tables.bytes[2 * i + 1]);"),
        ("views", "let result = unsafe { tables.views[i].get_unchecked(t) };"),
        ("pairs", "let result = f32::from(tables.pairs[i][1]) - f32::from(tables.pairs[11 - i][0]);"),
        ("weights", "let result = weights[i];"),
        (
            "chain",
            "let mut at = i; for _ in 0..4 { at = usize::from(tables.bytes[at % 24]); } let result = weights[at % 12];",
        ),
    ];
    for (name, body) in bodies {
        let directory = write_crate("parameters", name, &source(body), "");
        for with_lines in [false, true] {
            let built = builder(&directory).archs(&[Arch::Sm80, Arch::Sm90a]).lines(with_lines).build();
            for module in built.unwrap_or_else(|error| panic!("{name}: {error}")).modules {
                let ptx = module.ptx;
                // An address in a register.
                let is_indexed = ptx.lines().any(|line| line.contains("ld.param.") && line.contains(", [%rd"));
                assert!(is_indexed && !ptx.contains(".local"), "{name}: {ptx}");
            }
        }
    }
}

#[test]
fn a_parameter_that_is_changed_is_in_local_memory_and_refused() {
    let body = "let mut own = weights; own[i] = 1.0; let result = own[(i + 5) % 12];";
    let error = builder(&write_crate("parameters", "changed", &source(body), "")).build().unwrap_err();
    assert!(matches!(&error, Error::Check { reason: CheckError::Local { bytes: 48, .. }, .. }), "{error}");
    assert!(
        error.to_string().contains("src/lib.rs:21:") && error.to_string().contains("#[kernel(local_memory)]"),
        "{error}"
    );
}
