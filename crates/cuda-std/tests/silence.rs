//! What happens in kernels prints nothing; panics elsewhere still do. Alone in its program, because a panic hook is for
//! the whole process.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::fault;
use cuda_std::executor::Checks;
use cuda_std::prelude::*;

#[kernel(block = 64)]
fn goes_wrong(how: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe {
        thread::sync_threads();
        match how {
            0 => panic!("in a kernel"),
            1 => out.set_unchecked(5, 1.0),
            _ if thread::thread_idx_x() == 0 => thread::sync_threads(),
            _ => {}
        }
    }
}

#[test]
fn the_panic_hook_is_not_told_of_kernels() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    std::panic::set_hook(Box::new(|_| _ = PANICS.fetch_add(1, Ordering::Relaxed)));
    for how in 0..3 {
        fault(Checks::Full, goes_wrong { how, out: GlobalSliceMut::new(&mut [0.0]) }, 2);
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    assert!(std::panic::catch_unwind(|| panic!("elsewhere")).is_err());
    assert_eq!(PANICS.load(Ordering::Relaxed), 1);
}
