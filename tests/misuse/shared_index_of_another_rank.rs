//! An array is indexed by as many numbers as it has dimensions.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn transpose(x: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[[f32; 8]; 4]> = Shared::new();
    unsafe { x.set_unchecked(0, TILE.read(3)) };
}

fn main() {}
