//! A launch has to give every argument.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;

#[kernel(block = 32)]
fn scale(factor: f32, x: GlobalSliceMut<'_, f32>) {
    let _ = (factor, x.len());
}

fn main() {
    let mut x = [1.0f32; 32];
    let kernel = scale { x: GlobalSliceMut::new(&mut x) };
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
}
