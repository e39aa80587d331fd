//! The layout of a parameter has to be the same on both sides.

use cuda_std::prelude::*;

#[derive(Clone, Copy, KernelParam)]
struct Unordered<'a> {
    x: GlobalSlice<'a, f32>,
    factor: f32,
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct WithAForeignField {
    name: &'static str,
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
enum Either {
    A,
    B,
}

fn main() {}
