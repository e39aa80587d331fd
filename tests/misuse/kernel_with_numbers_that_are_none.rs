//! The numbers of a kernel are constants of type `u32`, within what any GPU has.

use cuda_std::prelude::*;

const MANY: u32 = 2048;
const INDEX: usize = 32;

#[kernel(block = MANY)]
fn too_many() {}

#[kernel(block = INDEX)]
fn of_another_type() {}

#[kernel(block <= 1025)]
fn bound_that_no_gpu_has() {}

#[kernel(block <= 2 * MANY)]
fn bound_of_a_constant() {}

#[kernel(block <= (32, 32))]
fn bound_of_a_shape() {}

fn main() {}
