//! A read-only view has nothing to write with, and cannot be made of what is only borrowed for reading as a mutable one.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn fill(x: GlobalSlice<'_, f32>) {
    unsafe { x.set_unchecked(0, 1.0) };
}

fn main() {
    let x = [1.0f32; 32];
    let _ = GlobalSliceMut::new(&x);
}
