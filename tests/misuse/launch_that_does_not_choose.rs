//! What a kernel leaves to its launches, each of them chooses; what it does not, none does.

use cuda_std::prelude::*;

#[kernel(block <= 256, dynamic_shared, any_grid)]
fn chosen(x: GlobalSlice<'_, f32>) {
    let _ = x.len();
}

#[kernel(block = 256, any_grid)]
fn fixed(x: GlobalSlice<'_, f32>) {
    let _ = x.len();
}

#[kernel(block <= 256, any_grid)]
fn parameter_of_that_name(block: u32) {
    let _ = block;
}

fn main() {
    let x = [0.0; 32];
    let _ = chosen { x: GlobalSlice::new(&x) };
    let _ = chosen { x: GlobalSlice::new(&x), block: 32, dynamic_shared_bytes: 0 };
    let _ = fixed { x: GlobalSlice::new(&x), block: Dim3::from(32) };
}
