//! What an author of kernels reads when the compiler, LLVM or a check refuses them: what, in which kernel, on which line of Rust.
//!
//! Builds crates for real, as `build.rs` does.

mod crates;

use std::error::Error as _;
use std::fs;

use crates::{builder, write_crate};
use tilewright_cuda_builder::Error;
use tilewright_cuda_builder::inspect::CheckError;

/// Builds a kernel with this body: `a` is an element of `x`, `b` one of `y`. The body begins on line 9.
fn refused(name: &str, features: &str, body: &str) -> Error {
    let source = format!(
        "#![no_std]\n#![allow(internal_features)] {features}\nuse cuda_std::{{GlobalSliceMut, kernel, thread}};\n\
         #[kernel(block = 32)]\npub fn k(x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, u64>) {{\n\
         let i = thread::thread_idx_x() as usize;\nif i < x.len() && i < y.len() {{ unsafe {{\n\
         let (a, b) = (x.get_unchecked(i), y.get_unchecked(i));\n{body}\n}} }}\n}}\n"
    );
    let error = builder(&write_crate("errors", name, &source, "")).build().unwrap_err();
    // Everything is in the message, and nothing twice where a program prints the causes too.
    assert!(error.source().is_none());
    error
}

const NIGHTLY: &str = "#![cfg_attr(target_arch = \"nvptx64\", feature(core_intrinsics, f128))]";

#[test]
fn everything_that_llvm_cannot_do_is_named_with_its_line() {
    let body = "x.set_unchecked(i, core::intrinsics::sinf32(a)\n+ core::intrinsics::expf32(a));\n\
                y.set_unchecked(i, core::intrinsics::powf64(a as f64, 2.1) as u64 + (a as u128 >> 7) as u64);";
    let error = refused("several", NIGHTLY, body);
    let Error::Unsupported { found, log, .. } = &error else { panic!("{error}") };
    let places: Vec<_> = found.iter().map(|one| one.place.as_deref().unwrap()).collect();
    assert_eq!(places.len(), 4, "{error}");
    for (place, what) in
        [("src/lib.rs:9:", "`sin` of f32"), ("src/lib.rs:10:", "`exp` of f32"), ("src/lib.rs:11:", "128 bits")]
    {
        let one = found.iter().find(|one| one.what.contains(what)).unwrap();
        assert!(one.place.as_deref().unwrap().starts_with(place) && one.function == "k", "{one:?}");
    }
    let text = error.to_string();
    assert!(!text.contains("Stack dump") && !text.contains("PLEASE submit"), "{text}");
    assert!(text.contains(log.to_str().unwrap()) && fs::read_to_string(log).unwrap().contains("Stack dump"), "{text}");
}

#[test]
fn a_comparison_that_becomes_a_library_call_is_named() {
    let body = "let s = core::slice::from_raw_parts(x.as_mut_ptr() as *const u8, b as usize);\n\
                let t = core::slice::from_raw_parts(y.as_mut_ptr() as *const u8, b as usize);\n\
                if s == t { x.set_unchecked(i, 1.0); }\nlet _ = a;";
    let error = refused("memcmp", "", body).to_string();
    assert!(
        error.contains("in `k`, src/lib.rs:11:") && error.contains("slices") && error.contains("`memcmp`"),
        "{error}"
    );
}

#[test]
fn what_the_checks_refuse_has_a_line() {
    let error = refused("local", "", "let z = [a, 1.0, b as f32];\nlet w = &z;\nx.set_unchecked(i, w[b as usize]);");
    let Error::Check { reason: CheckError::Local { bytes: 12, .. }, place, .. } = &error else { panic!("{error}") };
    assert!(place.as_deref().unwrap().starts_with("src/lib.rs:11:"), "{error}");
    let text = error.to_string();
    assert!(text.contains("`w[b as usize]`") && text.contains("#[kernel(local_memory)]"), "{error}");
    assert_eq!(text.matches("src/lib.rs:11").count(), 1, "{error}");
    let error = refused("generic", "", "let p = b as *mut f32;\n*p = a;");
    let Error::Check { reason: CheckError::Generic { .. }, place, .. } = &error else { panic!("{error}") };
    assert!(place.as_deref().unwrap().starts_with("src/lib.rs:10:"), "{error}");
    let body = "unsafe extern \"C\" { fn helper(x: f32) -> f32; }\nlet _ = b;\nx.set_unchecked(i, helper(a));";
    let error = refused("undefined", "", body);
    let Error::Check { reason: CheckError::Undefined(name), place, .. } = &error else { panic!("{error}") };
    assert!(name == "helper" && place.as_deref().unwrap().starts_with("src/lib.rs:11:"), "{error}");
}

#[test]
fn methods_of_std_come_with_what_to_write() {
    let error = refused("methods", "", "let _ = b;\nx.set_unchecked(i, a.exp() + a.sqrt());").to_string();
    assert!(error.contains("src/lib.rs:10:") && error.contains("no method named `exp`"), "{error}");
    for name in ["exp", "sqrt"] {
        assert!(error.contains(&format!("such as `{name}`, are not there on a GPU")), "{error}");
        assert!(error.contains(&format!("write `cuda_std::math::{name}(…)`")), "{error}");
    }
    assert!(!error.contains("compiler_builtins"), "{error}");
    let error = refused("feature", "", "let _ = (a, b, core::arch::nvptx::_thread_idx_x());").to_string();
    assert!(error.contains("#![cfg_attr(target_arch = \"nvptx64\", feature(stdarch_nvptx))]"), "{error}");
}

#[test]
fn a_crash_of_the_compiler_is_short() {
    let item = "#[repr(C, align(64))]\npub struct Large([u64; 16]);\n#[unsafe(no_mangle)]\n\
                pub unsafe extern \"ptx-kernel\" fn crash(x: Large) { unsafe { *(x.0[0] as *mut u64) = 1 } }\nlet _ = (a, b);";
    let error = refused("crash", "", item).to_string();
    assert!(error.contains("the compiler has crashed") && error.contains("rustc-crash.log"), "{error}");
    assert!(!error.contains("backtrace"), "{error}");
}
