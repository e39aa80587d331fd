//! A launch has to give every argument the type that the kernel takes.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn scale(factor: f32, x: GlobalSliceMut<'_, f32>) {
    let _ = (factor, x.len());
}

fn main() {
    let mut x = [1.0f64; 32];
    let _ = scale { factor: 2.0, x: GlobalSliceMut::new(&mut x) };
    let mut x = [1.0f32; 32];
    let _ = scale { factor: 2, x: GlobalSliceMut::new(&mut x) };
}
