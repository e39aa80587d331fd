//! Generic kernels, and kernels whose launches choose block and shared memory, as PTX.
//!
//! Builds a crate for real, as `build.rs` does.

mod crates;

use crates::{builder, write_crate};
use tilewright_cuda_builder::Build;
use tilewright_cuda_builder::inspect::{self, normal_form};

/// A generic kernel, and one of its instances written by hand. `KERNEL` is named so in both.
const KERNELS: &str = r#"
#![no_std]
#![deny(warnings)]
use cuda_std::{Dim3, Element, GlobalSlice, GlobalSliceMut, KernelParam, Shared, kernel, shared, thread};

pub trait Change {
    fn change(x: f32) -> f32;
}

pub struct Doubles;

impl Change for Doubles {
    fn change(x: f32) -> f32 {
        x + x
    }
}

pub struct Squares;

impl Change for Squares {
    fn change(x: f32) -> f32 {
        x * x
    }
}

/// Reverses rows of changed elements.
#[kernel(
    block = (N / 2, 2),
    min_blocks = 1 + 1,
    dynamic_shared = 4 * N,
    requires(x.len() == y.len()),
    instances(reverse_doubles = <Doubles, 64, 64>, reverse_squares = <Squares, 128, 128>)
)]
pub fn reverse<C: Change, const N: u32, const LEN: usize>(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static ROW: Shared<[f32; LEN]> = Shared::new();
    let (t, i) = ((thread::thread_idx_y() * (N / 2) + thread::thread_idx_x()) as usize, thread::index());
    if i - t + LEN > x.len() {
        return;
    }
    // SAFETY: in bounds; the barrier is between the write and the read, and all threads of the block reach it.
    unsafe {
        ROW.write(t, C::change(x.get_unchecked(i)));
        thread::sync_threads();
        y.set_unchecked(i, ROW.read(LEN - 1 - t));
    }
}

#[kernel(block = (64, 2), min_blocks = 2, dynamic_shared = 512, requires(x.len() == y.len()))]
pub fn by_hand(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    const LEN: usize = 128;
    static ROW: Shared<[f32; LEN]> = Shared::new();
    let (t, i) = ((thread::thread_idx_y() * 64 + thread::thread_idx_x()) as usize, thread::index());
    if i - t + LEN > x.len() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        ROW.write(t, Squares::change(x.get_unchecked(i)));
        thread::sync_threads();
        y.set_unchecked(i, ROW.read(LEN - 1 - t));
    }
}

/// Fills what a launch wants: a kernel whose blocks and shared memory are the launch's choice.
#[kernel(block <= 256, dynamic_shared, any_grid, instances(fill_f32 = <f32>, fill_u8 = <u8>))]
pub fn fill<T: Element + KernelParam>(x: GlobalSliceMut<'_, T>, value: T) {
    let (i, all) = (thread::index(), shared::all_dynamic_shared::<T>());
    // SAFETY: in bounds; each thread writes and reads its own elements.
    unsafe {
        if i < x.len() && i < all.len() {
            all.write(i, value);
            x.set_unchecked(i, all.read(i));
        }
    }
}

/// So that the block's shape is used as a constant.
pub const SHAPE: Dim3 = reverse::<Doubles, 64, 64>::BLOCK;
"#;

fn ptx(build: &Build, kernel: &str) -> String {
    build.modules[0].kernels.iter().find(|found| found.name == kernel).unwrap().ptx.clone()
}

#[test]
fn instances_are_what_one_would_write_by_hand() {
    let directory = write_crate("instances", "kernels", KERNELS, "");
    let build = builder(&directory).build().unwrap();
    assert_eq!(build.warnings, [""; 0]);
    let mut names: Vec<_> = build.modules[0].kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["by_hand", "fill_f32", "fill_u8", "reverse_doubles", "reverse_squares"]);

    let instance = build.modules[0].kernels.iter().find(|kernel| kernel.name == "reverse_squares").unwrap();
    assert_eq!((instance.block, instance.min_blocks), ([64, 2, 1], Some(2)));
    assert_eq!((instance.shared_bytes, instance.dynamic_shared_bytes), (512, 512));
    let by_hand = ptx(&build, "by_hand").replace("by_hand", "reverse_squares");
    assert_eq!(normal_form(&instance.ptx).unwrap(), normal_form(&by_hand).unwrap());
    let other = build.modules[0].kernels.iter().find(|kernel| kernel.name == "reverse_doubles").unwrap();
    assert_eq!((other.block, other.shared_bytes, other.dynamic_shared_bytes), ([32, 2, 1], 256, 256));

    let alone = builder(&directory).kernels(&["reverse_doubles"]).build().unwrap();
    assert_eq!(alone.warnings, [""; 0]);
    assert_eq!(alone.modules[0].kernels.len(), 1);
    assert_eq!(normal_form(&ptx(&alone, "reverse_doubles")).unwrap(), normal_form(&other.ptx).unwrap());
}

#[test]
fn lines_of_rust_change_no_instruction() {
    let directory = write_crate("lines", "kernels", KERNELS, "");
    let [plain, with_lines] = [false, true].map(|lines| builder(&directory).lines(lines).build().unwrap());
    let line_of = |text: &str| 1 + KERNELS.lines().position(|line| line.contains(text)).unwrap();
    let (store, by_hand) = (line_of("ROW.write(t, C::change"), line_of("ROW.write(t, Squares::change"));
    let [module, module_with_lines] = [&plain, &with_lines].map(|build| &build.modules[0]);
    for (kernel, other) in module.kernels.iter().zip(&module_with_lines.kernels) {
        assert_eq!(normal_form(&kernel.ptx).unwrap(), normal_form(&other.ptx).unwrap());
        assert!(!kernel.ptx.contains(".loc") && !kernel.ptx.contains(".file"), "{}", kernel.ptx);
        let files: Vec<_> = other.ptx.lines().filter(|line| line.starts_with(".file")).collect();
        assert!(matches!(&files[..], [file] if file.ends_with("lines/kernels/src/lib.rs\"")), "{files:?}");
        assert!(!other.ptx.contains(".section"), "{}", other.ptx);
        let instructions = |ptx: &str| ptx.matches("st.shared").count();
        let lines: Vec<&str> = other.ptx.lines().map(str::trim).collect();
        // What stands before the store: the line that it comes from, although `Shared::write` is another crate's.
        let stored = lines.iter().position(|line| line.starts_with("st.shared"));
        if let Some(stored) = stored {
            let location = lines[..stored].iter().rev().find(|line| line.starts_with(".loc")).unwrap();
            let line = location.split_ascii_whitespace().nth(2).unwrap();
            assert!(
                [store, by_hand, line_of("all.write(i")].iter().any(|known| known.to_string() == line),
                "{location}"
            );
        }
        assert_eq!(instructions(&kernel.ptx), instructions(&other.ptx));
        let [cubin, cubin_with_lines] =
            [kernel, other].map(|kernel| inspect::assemble(&kernel.ptx, module.arch).unwrap());
        assert_eq!(cubin.kernels, cubin_with_lines.kernels);
        let contains = |cubin: &[u8], section: &[u8]| cubin.windows(section.len()).any(|part| part == section);
        assert!(contains(&cubin_with_lines.cubin, b".debug_line") && !contains(&cubin.cubin, b".debug_line"));
    }
}

#[test]
fn what_a_launch_chooses_is_bounded_in_the_ptx() {
    let directory = write_crate("choices", "kernels", KERNELS, "");
    let build = builder(&directory).kernels(&["fill_f32", "fill_u8"]).build().unwrap();
    for kernel in &build.modules[0].kernels {
        assert_eq!((kernel.block, kernel.dynamic_shared_bytes), ([256, 1, 1], 0));
        assert!(kernel.ptx.contains(".maxntid 256") && !kernel.ptx.contains(".reqntid"), "{}", kernel.ptx);
        assert!(kernel.ptx.contains("%dynamic_smem_size") && kernel.ptx.contains("%ntid.x"), "{}", kernel.ptx);
        let assembly = inspect::assemble(&kernel.ptx, build.modules[0].arch).unwrap();
        assert!(assembly.kernels[0].is_in_registers(), "{:?}", assembly.kernels);
    }
}

#[test]
fn an_array_in_a_struct_is_in_registers() {
    let source = "#![no_std]\nuse cuda_std::prelude::*;\n#[derive(Clone, Copy, Element, KernelParam)]\n#[repr(C, align(16))]\n\
                  pub struct Body { at: [f32; 3], mass: f32 }\n#[kernel(block = 32, requires(x.len() == y.len()))]\n\
                  pub fn heavier(x: GlobalSlice<'_, Body>, y: DisjointSlice<'_, Body>) {\n\
                  if let Some(y) = y.own() && let Some(mut body) = x.get(y.index()) {\nbody.mass += body.at[1];\ny.set(body);\n}\n}\n";
    let build = builder(&write_crate("bodies", "kernels", source, "")).build().unwrap();
    let ptx = ptx(&build, "heavier");
    assert!(ptx.contains("ld.global.v4.b32") && ptx.contains("st.global.v4.b32"), "{ptx}");
}
