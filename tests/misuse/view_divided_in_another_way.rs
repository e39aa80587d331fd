//! A launch has to divide a view as the kernel does, and what is a thread's own stays with it.

use cuda_std::examples::{run, run_over};
use cuda_std::prelude::*;

#[kernel(block = 32)]
fn fill(x: DisjointSlice<'_, f32, PerThread<4>>) {
    x.own_chunks().for_each(|chunk| chunk.set_vector([1.0; 4]));
}

fn main() {
    let mut x = [1.0f32; 32];
    let _ = fill { x: DisjointSlice::new(&mut x) };
    let _ = fill { x: DisjointSlice::new(&mut x).divided(PerBlock::<4>::rows(8)) };
    let own = run_over(2, &mut x, |x: DisjointSlice<'_, f32>| x.own());
    run(2, || own[0].unwrap().set(1.0));
}
