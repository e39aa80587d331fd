//! Which kernels are in the PTX of a crate: its own, all or those asked for, and none of the crates that it depends on.
//!
//! Builds crates for real, as `build.rs` does.

mod crates;

use std::path::PathBuf;

use crates::{builder, write_crate};
use tilewright_cuda_builder::inspect::normal_form;
use tilewright_cuda_builder::{Build, Error, write_atomically};

/// A kernel, a function for other crates, and inline assembly, without a line about unstable features.
const LOWER: &str = r#"
#![no_std]
#![deny(warnings)]
use cuda_std::{GlobalSliceMut, kernel, thread};

/// Used by nothing but the kernel.
fn only_here(x: f32) -> f32 {
    x * 3.0
}

pub fn factor(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: it does nothing.
    unsafe {
        core::arch::asm!("// by hand")
    };
    x * 2.0
}

#[kernel(block = 32)]
pub fn lower_scale(x: GlobalSliceMut<'_, f32>) {
    let i = thread::thread_idx_x() as usize;
    if i < x.len() {
        // SAFETY: inside, and every thread has its own element.
        unsafe { x.set_unchecked(i, only_here(factor(1.0))) };
    }
}
"#;

const UPPER: &str = r#"
#![no_std]
use cuda_std::{GlobalSliceMut, Shared, kernel, thread};

#[kernel(block = 32)]
pub fn upper_scale(x: GlobalSliceMut<'_, f32>) {
    let i = thread::thread_idx_x() as usize;
    if i < x.len() {
        // SAFETY: inside, and every thread has its own element.
        unsafe { x.set_unchecked(i, helper(lower::factor(i as f32))) };
    }
}

#[kernel(block = 64)]
pub fn upper_reverse(x: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 64]> = Shared::new();
    let i = thread::thread_idx_x() as usize;
    // SAFETY: i < 64, and every thread has its own element.
    unsafe { TILE.write(i, i as f32) };
    // SAFETY: every thread of the block comes here.
    unsafe { thread::sync_threads() };
    if i < x.len() {
        // SAFETY: inside, and every thread has its own element; the barrier is behind all writes.
        unsafe { x.set_unchecked(i, TILE.read(63 - i)) };
    }
}

#[kernel(block = 32, arch = "sm_90a")]
pub fn upper_hopper(_x: GlobalSliceMut<'_, f32>) {}

fn helper(x: f32) -> f32 {
    x + 1.0
}
"#;

/// Writes the two crates, under names of their own: the upper one depends on the lower one.
fn two_crates(name: &str) -> (PathBuf, PathBuf) {
    let dependency = format!("lower = {{ package = \"{name}-lower\", path = \"../lower\" }}\n");
    (write_crate(name, "lower", LOWER, ""), write_crate(name, "upper", UPPER, &dependency))
}

fn names(build: &Build) -> Vec<&str> {
    let mut names: Vec<_> = build.modules[0].kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn ptx(build: &Build, kernel: &str) -> String {
    build.modules[0].kernels.iter().find(|found| found.name == kernel).unwrap().ptx.clone()
}

#[test]
fn a_dependencys_kernels_are_its_own() {
    let (lower, upper) = two_crates("depends");
    for _ in 0..2 {
        // In turns: what was made for one use must not be taken for the other.
        let built = builder(&upper).build().unwrap();
        assert_eq!(names(&built), ["upper_reverse", "upper_scale"]);
        assert_eq!(built.warnings, [""; 0]);
        assert!(!built.modules[0].ptx.contains("lower_scale"), "{}", built.modules[0].ptx);
        let built = builder(&lower).build().unwrap();
        assert_eq!(names(&built), ["lower_scale"]);
        assert_eq!(built.warnings, [""; 0]);
    }
    // What the dependency is made of still decides.
    let before = ptx(&builder(&upper).build().unwrap(), "upper_scale");
    write_atomically(&lower.join("src/lib.rs"), LOWER.replace("x * 2.0", "x * 5.0").as_bytes()).unwrap();
    let after = ptx(&builder(&upper).build().unwrap(), "upper_scale");
    assert_ne!(before, after);
}

#[test]
fn a_kernel_that_is_built_alone_is_the_one_among_all() {
    let (_, upper) = two_crates("alone");
    let all = builder(&upper).build().unwrap();
    assert_eq!(all.title, "alone_upper");
    for kernel in ["upper_reverse", "upper_scale"] {
        let alone = builder(&upper).kernels(&[kernel]).build().unwrap();
        assert_eq!(names(&alone), [kernel]);
        assert_eq!(alone.warnings, [""; 0], "what only other kernels use is no dead code");
        assert_eq!(alone.title, format!("alone_upper.{kernel}"));
        assert_eq!(normal_form(&ptx(&alone, kernel)).unwrap(), normal_form(&ptx(&all, kernel)).unwrap());
    }
    assert_eq!(names(&builder(&upper).kernels(&["upper_scale", "upper_reverse"]).build().unwrap()).len(), 2);
    // A change comes through, and the other results are as they were.
    let changed = UPPER.replace("x + 1.0", "x + 7.0");
    write_atomically(&upper.join("src/lib.rs"), changed.as_bytes()).unwrap();
    let alone = builder(&upper).kernels(&["upper_scale"]).build().unwrap();
    assert_ne!(ptx(&alone, "upper_scale"), ptx(&all, "upper_scale"));
    assert_eq!(names(&builder(&upper).build().unwrap()), ["upper_reverse", "upper_scale"]);
}

#[test]
fn kernels_that_there_are_not_are_named_with_the_nearest() {
    let (_, upper) = two_crates("unknown");
    for unknown in ["uper_scale", "x\", y", ""] {
        let error = builder(&upper).kernels(&["upper_scale", unknown]).build().unwrap_err();
        let Error::UnknownKernels { unknown: found, kernels, .. } = &error else { panic!("{error}") };
        assert_eq!((&found[..], kernels.len()), (&[unknown.to_owned()][..], 3));
        assert!(error.to_string().contains("`upper_scale`"), "{error}");
    }
    // It is there, for another architecture.
    let error = builder(&upper).kernels(&["upper_hopper"]).build().unwrap_err();
    assert!(matches!(error, Error::NoKernel { .. }), "{error}");
}

/// The lines that kernel crates needed before the builder gave them their features.
#[test]
fn a_crate_may_name_its_features_itself() {
    let (lower, upper) = two_crates("features");
    for line in [
        "#![feature(abi_ptx)]\n",
        "#![cfg_attr(target_arch = \"nvptx64\", feature(abi_ptx, asm_experimental_arch))]\n",
        "#![feature(\n    asm_experimental_arch,\n    abi_ptx,\n)]\n",
        "// #![feature(abi_ptx)]\n",
    ] {
        for (directory, source) in [(&lower, LOWER), (&upper, UPPER)] {
            write_atomically(&directory.join("src/lib.rs"), format!("{line}{source}").as_bytes()).unwrap();
        }
        let built = builder(&upper).build().unwrap();
        assert_eq!(built.warnings, [""; 0], "{line}");
    }
}
