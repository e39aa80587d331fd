//! What an author of kernels reads when the compiler, LLVM or a check refuses them: what, in which kernel, on which line of Rust.
//!
//! Builds crates for real, as `build.rs` does.

mod crates;

use std::error::Error as _;
use std::fs;

use crates::{builder, write_crate};
use tilewright_cuda_builder::inspect::{CheckError, Needs};
use tilewright_cuda_builder::{Arch, Error, PassError};

/// Builds a kernel with this body: `a` is an element of `x`, `b` one of `y`. The body begins on line 9.
fn refused(name: &str, features: &str, body: &str) -> Error {
    let source = format!(
        "#![no_std]\n#![allow(internal_features)] {features}\nuse cuda_std::{{GlobalSliceMut, Shared, constant, kernel, thread}};\n\
         #[kernel(block = 32)]\npub fn k(x: GlobalSliceMut<'_, f32>, y: GlobalSliceMut<'_, u64>) {{\n\
         let i = thread::thread_idx_x() as usize;\nif i < x.len() && i < y.len() {{ unsafe {{\n\
         let (a, b) = (x.get_unchecked(i), y.get_unchecked(i));\n{body}\n}} }}\n}}\n"
    );
    let error = builder(&write_crate("errors", name, &source, "")).build().unwrap_err();
    // Everything is in the message, and nothing twice where a program prints the causes too.
    assert!(error.source().is_none());
    error
}

/// Checks that a message names this line and the expression there, once.
fn assert_at(error: &Error, line: u32, expression: &str) {
    let text = error.to_string();
    let (of_expression, of_definition) = (format!("src/lib.rs:{line}:"), format!("src/lib.rs:{line} (`{expression}`)"));
    let has_place =
        text.contains(&of_definition) || text.contains(&of_expression) && text.contains(&format!("(`{expression}`)"));
    assert!(has_place, "{line}, `{expression}`: {text}");
    assert_eq!(
        (text.matches("src/lib.rs:").count(), text.matches(&format!("`{expression}`")).count()),
        (1, 1),
        "{text}"
    );
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
    assert!(text.contains(" (`core::intrinsics::expf32(a)`): LLVM has no `exp`"), "{text}");
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
    assert!(error.contains(" (`s`): it compares"), "{error}");
}

#[test]
fn what_the_checks_refuse_has_a_line_and_an_expression() {
    let error = refused("local", "", "let z = [a, 1.0, b as f32];\nlet w = &z;\nx.set_unchecked(i, w[b as usize]);");
    assert!(matches!(error, Error::Check { reason: CheckError::Local { bytes: 12, .. }, .. }), "{error}");
    assert_at(&error, 11, "w[b as usize]");
    assert!(error.to_string().contains("#[kernel(local_memory)]"), "{error}");
    let error = refused("generic", "", "let p = b as *mut f32;\np.write(a);");
    let Error::Check { reason: CheckError::Generic { arguments, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!(arguments.len(), 0, "it is no argument: {error}");
    assert_at(&error, 10, "p.write(a)");
    let body = "unsafe extern \"C\" { fn helper(x: f32) -> f32; }\nlet _ = b;\nx.set_unchecked(i, helper(a));";
    let error = refused("undefined", "", body);
    assert!(matches!(&error, Error::Check { reason: CheckError::Undefined(name), .. } if name == "helper"), "{error}");
    assert_at(&error, 11, "helper(a)");
    let body = "#[constant] static P: [u32; 9000] = [1; 9000];\n#[constant] static Q: [u32; 9000] = [2; 9000];\n\
                let sum = P.get_unchecked(b as usize)\n+ Q.get_unchecked(b as usize);\nx.set_unchecked(i, a + sum as f32);";
    let error = refused("constant", "", body);
    assert!(matches!(error, Error::Check { reason: CheckError::Constant { bytes: 72_000, .. }, .. }), "{error}");
    assert_at(&error, 11, "P.get_unchecked(b as usize)");
}

#[test]
fn a_remainder_that_has_other_bits_than_on_the_cpu_is_refused_with_its_line() {
    let error = refused(
        "remainder",
        "",
        "x.set_unchecked(i, a % 0.75);\ny.set_unchecked(i, (b as f64\n% (a as f64)) as u64 % 7);",
    );
    let Error::Unsupported { found, .. } = &error else { panic!("{error}") };
    let places: Vec<_> = found.iter().map(|one| one.place.as_deref().unwrap()).collect();
    assert!(
        places.len() == 2 && places[0].starts_with("src/lib.rs:9:") && places[1].starts_with("src/lib.rs:10:"),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("(`a % 0.75`): `%` of f32") && text.contains("write `cuda_std::math::fmod(x, y)`"), "{text}");
    assert!(text.contains("`%` of f64") && text.contains("none for f64"), "{text}");
}

#[test]
fn a_maximum_that_leaves_the_zero_open_is_refused_with_its_line() {
    let error = refused(
        "zeros",
        "",
        "let (low, high) = (a.min(14.5), a.clamp(0.0, 1.0)); // which are settled\nx.set_unchecked(i, (low + high).max(0.0));\n\
         y.set_unchecked(i, f64::min(b as f64, a as f64) as u64);",
    );
    let Error::Unsupported { found, .. } = &error else { panic!("{error}") };
    let places: Vec<_> = found.iter().map(|one| one.place.as_deref().unwrap()).collect();
    assert!(
        places.len() == 2 && places[0].starts_with("src/lib.rs:10:") && places[1].starts_with("src/lib.rs:11:"),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("(`(low + high).max(0.0)`): `max` of f32") && text.contains("`cuda_std::math::max(x, y)`"),
        "{text}"
    );
    assert!(text.contains("`min` of f64") && text.contains("`cuda_std::math::min_f64(x, y)`"), "{text}");
    // Those of the library are right whatever the numbers are.
    let source = "#![no_std]\nuse cuda_std::prelude::*;\n#[kernel(block = 32)]\n\
                  pub fn k(x: DisjointSlice<'_, f32>, y: f64) { if let Some(x) = x.own() {\n\
                  x.set(math::max(x.get(), 0.0) + math::min_f64(x.get() as f64, y) as f32) } }\n";
    let built = builder(&write_crate("errors", "right-zeros", source, "")).build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
}

#[test]
fn a_reference_that_a_function_is_given_is_told_from_an_index() {
    let body = "#[inline(never)]\nfn add(to: &mut f32, x: f32) { *to += x }\nlet mut sum = 1.0;\n\
                add(&mut sum, a);\nadd(&mut sum, b as f32);\nx.set_unchecked(i, sum);";
    let error = refused("reference", "", body);
    assert!(matches!(error, Error::Check { reason: CheckError::Local { is_given: true, .. }, .. }), "{error}");
    assert_at(&error, 12, "add(&mut sum, a)");
    let text = error.to_string();
    assert!(
        text.contains("is given a reference") && text.contains("#[inline(always)]") && !text.contains("indexed"),
        "{text}"
    );
}

#[test]
fn a_constant_that_cannot_be_has_the_line_that_asks_for_it() {
    let body = "let _ = (a, b);\nlet [p, q, r] = x.get_vector_unchecked::<3>(i);\nx.set_unchecked(i, p + q + r);";
    let error = refused("vector", "", body).to_string();
    assert_eq!(
        error.matches("error[E0080]: evaluation panicked: a vector of elements has 1, 2, 4, 8 or 16 bytes").count(),
        1,
        "{error}"
    );
    assert!(error.contains("src/lib.rs:10:"), "{error}");
    let source = "#![no_std]\nuse cuda_std::prelude::*;\n#[kernel(block = 32)]\n\
                  pub fn k(x: DisjointSlice<'_, f32>, w: [f32; 1020]) { if let Some(x) = x.own() { x.set(w[3]) } }\n";
    let of_bytes = |source: &str| builder(&write_crate("errors", "parameters", source, "")).build();
    assert_eq!(of_bytes(source).unwrap().warnings, [""; 0]);
    let error = of_bytes(&source.replace("1020", "1021")).unwrap_err().to_string();
    assert!(error.contains("at most 4096 bytes of parameters") && error.contains("src/lib.rs:3:"), "{error}");
}

#[test]
fn what_an_architecture_lacks_is_said_before_what_follows_from_it() {
    let body =
        "let _ = (a, b);\ncuda_std::cluster::sync();\nlet w = [a, 2.0, 3.0, b as f32];\nx.set_unchecked(i, w[i & 3]);";
    let error = refused("before", "", body);
    assert!(matches!(error, Error::Check { reason: CheckError::Architecture { .. }, .. }), "{error}");
}

#[test]
fn a_pointer_that_a_function_is_given_is_named() {
    let body = "#[inline(never)]\nunsafe fn last(n: usize, from: *const f32, to: &mut [u32; 4]) -> f32 { unsafe {\n\
                let mut at = from;\nfor _ in 0..n { if at.read() < 0.5 { at = at.add(2); } }\nto[n & 3] = 1;\nat.read() } }\n\
                let p = y.as_mut_ptr();\nx.set_unchecked(i, last(i, p.cast(), &mut *p.cast()) + last(i * 2, p.add(1).cast(), &mut *p.cast()));\n\
                let _ = (a, b);";
    let error = refused("argument", "", body);
    let Error::Check { reason: CheckError::Generic { function, arguments, .. }, .. } = &error else {
        panic!("{error}")
    };
    assert!(function.ends_with("::last"), "{error}");
    assert_eq!(**arguments, ["from", "to"], "{error}");
    assert_at(&error, 12, "at.read()");
    assert!(error.to_string().contains("one of its arguments `from`, `to`"), "{error}");
}

/// Functions that call themselves, directly and by way of another, in two kernels.
const RECURSIVE: &str = "\
#![no_std]
use cuda_std::{DisjointSlice, kernel};
#[inline(never)]
fn steps(x: u32, left: u32) -> u32 {
    if x <= 1 || left == 0 {
        return 0;
    }
    let next = if x.is_multiple_of(2) { x / 2 } else { x.wrapping_mul(3).wrapping_add(1) };
    let behind = steps(next, left - 1);
    behind + 1 + (behind & x & 1)
}
#[inline(never)]
fn even(x: u32, a: u32) -> u32 {
    if x == 0 { a } else { odd(x - 1, a ^ x).wrapping_mul(a) }
}
#[inline(never)]
fn odd(x: u32, a: u32) -> u32 {
    if x == 0 { 7 } else { even(x - 1, a.wrapping_add(x)).wrapping_mul(a) + 1 }
}
#[kernel(block = 32, STEPS)]
pub fn counts(x: DisjointSlice<'_, u32>) {
    if let Some(x) = x.own() {
        x.set(steps(x.get(), 60));
    }
}
#[kernel(block = 32, PARITY)]
pub fn parity(x: DisjointSlice<'_, u32>) {
    if let Some(x) = x.own() {
        x.set(even(x.get(), 3));
    }
}
";

#[test]
fn functions_call_themselves_only_where_there_is_a_stack() {
    let build = |steps: &str, parity: &str| {
        let source = RECURSIVE.replace("STEPS", steps).replace("PARITY", parity);
        builder(&write_crate("errors", "recursion", &source, "")).build()
    };
    // All of it is in registers, and so it is with local memory.
    for steps in ["min_blocks = 1", "local_memory"] {
        let error = build(steps, "stack = 4096").unwrap_err();
        let Error::Check { reason: CheckError::Recursion { kernel, circle }, .. } = &error else { panic!("{error}") };
        assert!(kernel == "counts" && circle.len() == 1 && circle[0].ends_with("::steps"), "{error}");
        assert_at(&error, 9, "steps(next, left - 1)");
        assert!(error.to_string().contains("`#[kernel(stack = BYTES)]`"), "{error}");
    }
    let error = build("stack = 4096", "local_memory").unwrap_err();
    let Error::Check { reason: CheckError::Recursion { kernel, circle }, .. } = &error else { panic!("{error}") };
    let [even, odd] = &circle[..] else { panic!("{error}") };
    assert!(kernel == "parity" && even.ends_with("::even") && odd.ends_with("::odd"), "{error}");
    assert_at(&error, 14, "odd(x - 1, a ^ x).wrapping_mul(a)");
    let built = build("stack = 4096", "stack = 1 << 10").unwrap();
    assert!(built.modules[0].kernels.iter().all(|kernel| kernel.allows_local && kernel.ptx.contains("call.uni")));
}

/// So whether functions call themselves in the source does not say whether a kernel needs a stack: the executor, which knows the source alone,
/// cannot ask for one.
#[test]
fn a_recursion_that_llvm_makes_a_loop_of_needs_no_stack() {
    let source = "#![cfg_attr(target_arch = \"nvptx64\", no_std)]
use cuda_std::prelude::*;
#[inline(never)]
fn divisor(x: u32, y: u32) -> u32 {
    if y == 0 { x } else { divisor(y, x % y) }
}
#[kernel(block = 32)]
pub fn divides(x: DisjointSlice<'_, u32>) {
    if let Some(x) = x.own() {
        x.set(divisor(x.get(), 360));
    }
}
";
    let built = builder(&write_crate("errors", "loop", source, "")).build().unwrap();
    let [kernel] = &built.modules[0].kernels[..] else { panic!("one kernel") };
    assert!(kernel.name == "divides" && kernel.ptx.contains("rem.u32"), "{}", kernel.ptx);
}

#[test]
fn what_a_compute_capability_lacks_is_refused_with_its_line() {
    let body = "let _ = a;\ny.set_unchecked(i, b + u64::from(cuda_std::cluster::rank()));";
    let error = refused("cluster", "", body);
    let Error::Check { reason: CheckError::Architecture { needs, target, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!((*needs, *target), (Needs::From(Arch::Sm90), Arch::Sm80));
    assert_at(&error, 10, "cuda_std::cluster::rank()");
    let text = error.to_string();
    assert!(text.contains("GPUs have from sm_90 on") && text.contains("`#[kernel(arch = \"sm_90a\")]`"), "{text}");

    // What sm_90a has, and sm_90 has not: only the module for the latter is refused, unless the kernel is for the former.
    let source = |arch: &str| {
        format!(
            "#![no_std]\nuse cuda_std::prelude::*;\nuse cuda_std::hopper::{{Barrier, release_registers}};\n\
             #[kernel(block = 128 {arch})]\npub fn k(x: DisjointSlice<'_, u32>) {{\nif let Some(x) = x.own() {{\nx.set(x.get() + 1);\n\
             // SAFETY: never run.\nunsafe {{ release_registers::<40>() }};\n}}\n}}\n\
             #[kernel(block = 128)]\npub fn plain(x: DisjointSlice<'_, u32>) {{\nif let Some(x) = x.own() {{\nx.set(1);\n}}\n}}\n"
        )
    };
    let build = |arch: &str, target: Arch| {
        builder(&write_crate("errors", "accelerated", &source(arch), "")).arch(target).build()
    };
    assert_eq!(build("", Arch::Sm90a).unwrap().modules[0].kernels.len(), 2);
    for target in [Arch::Sm80, Arch::Sm90, Arch::Sm120] {
        let error = build("", target).unwrap_err();
        assert_at(&error, 9, "release_registers::<40>()");
        assert!(error.to_string().contains("only sm_90a or sm_100a has"), "{error}");
    }
    assert_eq!(build(", arch = \"sm_90a\"", Arch::Sm90).unwrap().modules[0].kernels.len(), 1);
}

#[test]
fn what_the_pass_refuses_has_a_line_and_an_expression() {
    type Is = fn(&PassError) -> bool;
    let cases: [(&str, &str, u32, &str, Is); 7] = [
        (
            "foreign",
            "#[unsafe(no_mangle)]\npub unsafe extern \"ptx-kernel\" fn foreign() {}\nlet _ = (a, b);",
            10,
            "pub unsafe extern \"ptx-kernel\" fn foreign()",
            |reason| matches!(reason, PassError::ForeignEntry { .. }),
        ),
        (
            "malformed",
            "#[unsafe(export_name = \"__tilewright_facts_other\")]\nstatic FACTS: [u64; 2] = [9, 9];\n#[unsafe(no_mangle)]\n\
             pub unsafe extern \"ptx-kernel\" fn other() {\n}\nlet _ = (a, b);",
            12,
            "pub unsafe extern \"ptx-kernel\" fn other()",
            |reason| matches!(reason, PassError::MalformedEntry { .. }),
        ),
        (
            "initial",
            "#[unsafe(link_section = \".shared\")]\nstatic mut TABLE: [u32; 32] = [1; 32];\nlet p = (&raw mut TABLE).cast::<u32>();\n\
             p.add(i).write_volatile(b as u32);\nx.set_unchecked(i, a + p.add(31 - i).read_volatile() as f32);",
            12,
            "p.add(i).write_volatile(b as u32)",
            |reason| matches!(reason, PassError::NotShareable { .. }),
        ),
        (
            "written",
            "#[unsafe(link_section = \".constant\")]\nstatic mut TABLE: [u32; 32] = [1; 32];\nlet p = (&raw mut TABLE).cast::<u32>();\n\
             p.add(i).write_volatile(b as u32);\nx.set_unchecked(i, a + p.add(31 - i).read_volatile() as f32);",
            12,
            "p.add(i).write_volatile(b as u32)",
            |reason| matches!(reason, PassError::NotConstant { .. }),
        ),
        (
            "address",
            "static P: Shared<[f32; 32]> = Shared::new();\nstatic Q: Shared<[f32; 32]> = Shared::new();\n\
             static BOTH: [&Shared<[f32; 32]>; 2] = [&P, &Q];\nlet of = BOTH[b as usize & 1];\nof.write(i, a);\n\
             thread::sync_threads();\nx.set_unchecked(i, of.read(31 - i));",
            12,
            "BOTH[b as usize & 1]",
            |reason| matches!(reason, PassError::SharedAddressInStatic { .. }),
        ),
        (
            "writable",
            "static COUNT: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);\nlet _ = b;\n\
             let n = COUNT.fetch_add(1, core::sync::atomic::Ordering::Relaxed);\nx.set_unchecked(i, a + n as f32);",
            11,
            "COUNT.fetch_add(1, core::sync::atomic::Ordering::Relaxed)",
            |reason| matches!(reason, PassError::WritableStatic { .. }),
        ),
        (
            "marker",
            "unsafe extern \"C\" { fn __tilewright_address_space_global(pointer: *const u8) -> *const u8; }\nlet _ = a;\n\
             y.set_unchecked(i, b + __tilewright_address_space_global as usize as u64);",
            11,
            "b",
            |reason| matches!(reason, PassError::UnknownMarkerUse { .. }),
        ),
    ];
    for (name, body, line, expression, is) in cases {
        let error = refused(name, "", body);
        assert!(matches!(&error, Error::Pass { reason, .. } if is(reason)), "{name}: {error}");
        assert_at(&error, line, expression);
    }
}

#[test]
fn what_llvm_refuses_without_a_word_has_a_line_and_an_expression() {
    const INTRINSICS: &str = "#![cfg_attr(target_arch = \"nvptx64\", feature(link_llvm_intrinsics))]";
    let body = "unsafe extern \"C\" {\n#[link_name = \"llvm.nvvm.barrier.cluster.arrive\"]\nfn arrive();\n}\n\
                x.set_unchecked(i, a + b as f32);\narrive();";
    let error = refused("intrinsic", INTRINSICS, body);
    assert!(matches!(error, Error::Tool { place: Some(_), .. }), "{error}");
    assert_at(&error, 14, "arrive()");
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
