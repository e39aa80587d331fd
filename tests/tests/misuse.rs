//! What must not compile: launches that do not fit the kernel, and functions that cannot be kernels. Beside each program
//! lies what the compiler says; `TRYBUILD=overwrite cargo test -p tests --test misuse` writes that anew.

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;

#[test]
fn misuse_does_not_compile_and_right_use_does() {
    right_use();
    // trybuild compiles the programs as if they were tests of the package that cargo names here. As tests of this one they
    // would need everything that it depends on; the crate of kernels' parts has what they use, and little else.
    // SAFETY: this is the only test of the program, so no other thread reads the environment.
    unsafe { std::env::set_var("CARGO_MANIFEST_DIR", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/blocks")) };
    let programs = trybuild::TestCases::new();
    programs.compile_fail(concat!(env!("CARGO_MANIFEST_DIR"), "/misuse/*.rs"));
}

/// Arguments of one's own.
#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Scaling<'a> {
    x: GlobalSlice<'a, f32>,
    factor: f32,
}

/// What most of the programs do, done right.
#[kernel(block = (8, 4), requires(scaling.x.len() == 32, y.len() == 32))]
fn scale_and_transpose(scaling: Scaling<'_>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[[f32; 8]; 4]> = Shared::new();
    let (x, y_index) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    // SAFETY: x < 8 and y_index < 4; each thread writes its own element, and reads another's after the barrier.
    unsafe {
        TILE.write([y_index, x], scaling.factor * scaling.x.get_unchecked(8 * y_index + x));
        thread::sync_threads();
        let position = 8 * y_index + x;
        y.set_unchecked(position, TILE.read([position % 4, position / 4]));
    }
}

fn right_use() {
    let x: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let mut y = [0.0f32; 32];
    let scaling = Scaling { x: GlobalSlice::new(&x), factor: 2.0 };
    let kernel = scale_and_transpose { scaling, y: GlobalSliceMut::new(&mut y) };
    // SAFETY: the views are of slices that are borrowed here, the one that is written exclusively.
    unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::new(1, 1, 1)) }.unwrap();
    assert_eq!(y[..5], [0.0, 16.0, 32.0, 48.0, 2.0]);
}
