//! A kernel takes numbers, views and structs of these: what means the same on both sides.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn takes_a_string(name: String) {
    let _ = name;
}

#[kernel(block = 32)]
fn takes_usize(count: usize) {
    let _ = count;
}

fn main() {}
