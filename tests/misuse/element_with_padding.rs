//! All bytes of an element are those of its fields, which lie where they can be accessed.

use cuda_std::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct WithPadding {
    small: u8,
    large: u32,
}

#[derive(Clone, Copy, Element)]
#[repr(C, packed)]
struct Packed {
    small: u8,
    large: u32,
}

fn main() {}
