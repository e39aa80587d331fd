//! A block has 1 to 1024 threads, at most 64 of them along z.

use cuda_std::prelude::*;

#[kernel(block = 1025)]
fn too_many() {}

#[kernel(block = (32, 33))]
fn too_many_in_two_dimensions() {}

#[kernel(block = (1, 1, 65))]
fn too_deep() {}

#[kernel(block = 0)]
fn empty() {}

#[kernel(block = (1, 1, 1, 1))]
fn four_dimensions() {}

fn main() {}
