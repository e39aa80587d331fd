//! What a kernel reads and what it writes cannot be exchanged.

use cuda_std::prelude::*;

#[kernel(block = 32)]
fn copy(source: GlobalSlice<'_, f32>, target: GlobalSliceMut<'_, f32>) {
    let _ = (source.len(), target.len());
}

fn main() {
    let (source, mut target) = ([1.0f32; 32], [0.0f32; 32]);
    let (source, target) = (GlobalSlice::new(&source), GlobalSliceMut::new(&mut target));
    let _ = copy { source: target, target: source };
}
