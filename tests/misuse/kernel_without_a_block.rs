//! A kernel has to say the shape of its blocks.

use cuda_std::prelude::*;

#[kernel]
fn without_parentheses(x: GlobalSliceMut<'_, f32>) {
    let _ = x.len();
}

#[kernel(min_blocks = 2)]
fn without_block(x: GlobalSliceMut<'_, f32>) {
    let _ = x.len();
}

fn main() {}
