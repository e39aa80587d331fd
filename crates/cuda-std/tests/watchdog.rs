//! A thread that runs on and on, and does nothing that lets the executor stop it: what is said, and how the process ends. Each such kernel
//! runs in a process of its own.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the kernels do little, and some of it wrong on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::hint::black_box;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::line_of;
use cuda_std::executor::{Checks, Executor};
use cuda_std::prelude::*;

const LIMIT: Duration = Duration::from_secs(1);

/// The steps of the Collatz sequence of each element, which never ends for 0.
#[kernel(block = 64)]
fn counts_steps(meets: u32, x: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        let (mut number, mut steps) = (x.get_unchecked(i), 0);
        if meets == 1 {
            thread::sync_threads(); // <meets>
        }
        while black_box(number) != 1 {
            number = if number % 2 == 0 { number / 2 } else { 3 * number + 1 };
            steps += 1;
        }
        x.set_unchecked(i, steps);
    }
}

/// Two blocks, of which the second has an element without an end.
fn count(checks: Checks, meets: u32) {
    let mut x = vec![27; 128];
    x[64 + 3] = 0;
    let executor = Executor::new(checks).thread_limit(LIMIT);
    _ = unsafe { executor.launch(counts_steps { meets, x: GlobalSliceMut::new(&mut x) }, Dim3::from(2)) };
}

#[test]
#[ignore = "never ends by itself: another test runs it in a process of its own"]
fn loops_at_once() {
    count(Checks::Full, 0);
}

#[test]
#[ignore = "never ends by itself: another test runs it in a process of its own"]
fn loops_behind_a_barrier() {
    count(Checks::Bounds, 1);
}

/// Runs a test of this file in a process of its own: what it has written, and how long it has taken.
fn run(test: &str) -> (Output, Duration) {
    let start = Instant::now();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--ignored"]).output().unwrap();
    (output, start.elapsed())
}

#[test]
fn a_thread_that_never_stops_is_reported_and_ends_the_process() {
    let meets =
        format!("\n  note: it stopped here\n  --> crates/cuda-std/tests/watchdog.rs:{}\n", line_of(SOURCE, "meets"));
    for (test, since, note) in
        [("loops_at_once", "it began", "\n"), ("loops_behind_a_barrier", "it last stopped", &meets)]
    {
        let (output, duration) = run(test);
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!(
            "error: kernel `counts_steps`, block (1, 0, 0), thread (3, 0, 0): this thread has run for 1 s since {since}, and comes to no \
             barrier, no wait, no atomic operation and not to its end{note}  help: look for a loop"
        );
        assert!(said.contains(&expected), "{test} says {said}");
        assert_eq!(output.status.code(), Some(101), "{test}");
        assert!(duration >= LIMIT, "{test}: {duration:?}");
    }
}

/// Many turns are no long one: a launch may take far longer than the limit.
#[test]
fn threads_that_stop_now_and_then_are_left_alone() {
    let (start, limit) = (Instant::now(), Duration::from_secs(1));
    let executor = Executor::new(Checks::Bounds).thread_limit(limit);
    while start.elapsed() < 2 * limit {
        let mut x = vec![27; 64];
        unsafe { executor.launch(counts_steps { meets: 1, x: GlobalSliceMut::new(&mut x) }, Dim3::from(1)) }.unwrap();
        assert_eq!(x, [111; 64]);
    }
}

const SOURCE: &str = include_str!("watchdog.rs");
