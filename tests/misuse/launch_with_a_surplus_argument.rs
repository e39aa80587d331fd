//! A launch cannot give an argument that the kernel does not have.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn fill(x: GlobalSliceMut<'_, f32>) {
    let _ = x.len();
}

fn main() {
    let mut x = [1.0f32; 32];
    let _ = fill { x: GlobalSliceMut::new(&mut x), value: 1.0 };
}
