//! What is left after launches that fail: nothing. Alone in its program, because it watches the memory of the process.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;

static ALIVE: AtomicUsize = AtomicUsize::new(0);
static MADE: AtomicUsize = AtomicUsize::new(0);

/// What a kernel may leave behind if its threads are not unwound.
struct Guard(Box<[u64; 64]>);

impl Guard {
    fn new(value: u64) -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        MADE.fetch_add(1, Ordering::Relaxed);
        Self(Box::new([value; 64]))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Fails in one of several ways while all threads hold something.
#[kernel(block = 48)]
fn fails_holding_things(how: u32, out: GlobalSliceMut<'_, u64>) {
    static ARRAY: Shared<[u64; 2]> = Shared::new();
    let t = thread::thread_idx_x();
    let guard = Guard::new(t.into());
    unsafe {
        thread::sync_threads();
        match (how, t) {
            (0, 40) => _ = out.get_unchecked(out.len()),
            (1, 7) => return,
            (2, 39) => panic!("on purpose"),
            (3, 4) => warp::sync_warp(warp::ALL_LANES),
            (4, _) => ARRAY.write(0, 1),
            _ => {}
        }
        thread::sync_threads();
        out.set_unchecked(thread::index_1d(), guard.0[0]);
    }
}

#[test]
fn nothing_is_left_behind_by_launches_that_fail() {
    let executor = Executor::new(Checks::Full);
    let mut out = [0; 2 * 48];
    let mut failures = 0;
    let mut run = |how| {
        let kernel = fails_holding_things { how, out: GlobalSliceMut::new(&mut out) };
        failures += usize::from(unsafe { executor.launch(kernel, Dim3::from(2)) }.is_err());
    };
    let resident_kilobytes = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    (0..100).for_each(|i| run(i % 5));
    let before = resident_kilobytes();
    (0..1000).for_each(|i| run(i % 5));
    run(5);
    assert_eq!(failures, 1100);
    assert!(MADE.load(Ordering::Relaxed) >= 1100 * 48, "every launch made its things");
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0, "and every one is gone");
    // 1000 launches that left their things would keep 24 MB.
    let after = resident_kilobytes();
    assert!(after < before + 5_000, "{before} kB before, {after} kB after");
}
