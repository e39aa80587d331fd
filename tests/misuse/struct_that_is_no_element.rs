//! What memory can hold is laid out as in C, has no parameters, and no fields that memory cannot hold.

use cuda_std::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct WithAForeignField {
    condition: bool,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Generic<T> {
    value: T,
}

#[derive(Clone, Copy, Element)]
struct Unordered {
    value: f32,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Nothing;

#[derive(Clone, Copy, Element)]
#[repr(C)]
enum Either {
    A,
    B,
}

fn main() {}
