//! A cluster has 1 to 8 blocks.

use cuda_std::prelude::*;

#[kernel(block = 32, cluster = 9)]
fn too_many() {}

#[kernel(block = 32, cluster = (4, 3))]
fn too_many_in_two_dimensions() {}

#[kernel(block = 32, cluster = 0)]
fn empty() {}

#[kernel(block = 32, cluster = (1, 1, 1, 1))]
fn four_dimensions() {}

fn main() {}
