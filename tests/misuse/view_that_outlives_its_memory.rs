//! A kernel's arguments cannot outlive the memory that they are views of.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn fill(x: GlobalSliceMut<'_, f32>) {
    let _ = x.len();
}

fn arguments() -> fill<'static> {
    let mut x = [1.0f32; 32];
    fill { x: GlobalSliceMut::new(&mut x) }
}

fn main() {
    let _ = arguments();
}
