//! The first NaN, infinity, subnormal number and lost addend of a kernel: which operation of which thread shows it.

#![allow(clippy::undocumented_unsafe_blocks, reason = "each thread has elements of its own")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::executor::{Checks, Executor, FirstUnusual, Unusual, ValueTrace};
use cuda_std::mma::mma_m16n8k8_tf32;
use cuda_std::prelude::*;
use cuda_std::{Dim3, Kernel};

const SOURCE: &str = include_str!("values.rs");

/// `y = √x`, by way of another lane.
#[kernel(block = 32)]
fn roots(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let x = x.get_unchecked(i); // <roots: load>
        let root = math::sqrt(x); // <roots: root>
        let other = warp::warp_shuffle_xor(warp::ALL_LANES, root, 1, 32).0; // <roots: shuffle>
        y.set_unchecked(i ^ 1, other);
    }
}

/// `y = 0·x/x`, by way of another lane.
#[kernel(block = 32)]
fn quotients(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let x = x.get_unchecked(i); // <quotients: load>
        let other = warp::warp_shuffle_xor(warp::ALL_LANES, 0.0 * x / x, 1, 32).0; // <quotients: shuffle>
        y.set_unchecked(i ^ 1, other);
    }
}

/// One of some functions.
#[kernel(block = 32)]
fn functions(which: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    // SAFETY: each thread has elements of its own.
    unsafe {
        let x = x.get_unchecked(i); // <functions: load>
        let result = match which {
            0 => math::exp(x),       // <functions: exp>
            1 => math::fast::log(x), // <functions: log>
            2 => math::asinh(x),
            _ => math::tanh(0.0 / (x - 1.0)), // <functions: tanh>
        };
        y.set_unchecked(i, result);
    }
}

/// `y = x·x`
#[kernel(block = 32)]
fn squares(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let x = x.get_unchecked(i); // <squares: load>
        y.set_unchecked(i, x * x); // <squares: store>
    }
}

/// Adds all elements to the first.
#[kernel(block = 32)]
fn adds(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        y.atomic_unchecked(0).fetch_add(x.get_unchecked(i), Relaxed, Scope::Device); // <adds: add>
    }
}

/// Products of tensor cores: each lane's first element as all of A, its second as all of B, its third as all of C.
#[kernel(block = 32)]
fn multiplies(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        let [a, b, c] = [x.get_unchecked(0), x.get_unchecked(1), x.get_unchecked(2)];
        let sums = mma_m16n8k8_tf32([a; 4], [b; 2], [c; 4]); // <multiplies: product>
        y.set_unchecked(i, sums[0]);
    }
}

fn trace<K: Kernel>(kernel: K, blocks: u32) -> Vec<FirstUnusual> {
    let trace = Arc::new(ValueTrace::default());
    let executor = Executor::new(Checks::Full).with_trace(trace.clone());
    // SAFETY: the views are of slices that the callers borrow.
    unsafe { executor.launch(kernel, Dim3::from(blocks)) }.unwrap();
    trace.first()
}

fn line(mark: &str) -> u32 {
    common::line_of(SOURCE, mark)
}

/// The kinds, with block, thread, line, and the line since when.
fn places(found: &[FirstUnusual]) -> Vec<(Unusual, u32, u32, u32, Option<u32>)> {
    let place = |it: &FirstUnusual| {
        (it.unusual, it.block.x, it.thread.x, it.line.line, it.since.as_ref().map(|since| since.line))
    };
    found.iter().map(place).collect()
}

#[test]
fn a_number_that_a_thread_has_computed_is_found_where_it_gives_it_away() {
    let (mut x, mut y) = ([1.0; 96], [0.0; 96]);
    (x[70], x[40], x[50]) = (-1.0, -1.0, -2.0);
    let found = trace(roots { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 3);
    assert_eq!(places(&found), [(Unusual::Nan, 1, 8, line("roots: root"), None)]);
    let text = found[0].to_string();
    assert!(
        text.starts_with("kernel `roots`, block (1, 0, 0), thread (8, 0, 0): the first NaN: `math::sqrt` makes it"),
        "{text}"
    );
    let (mut x, mut y) = ([1.0; 96], [0.0; 96]);
    (x[70], x[40], x[50]) = (0.0, 0.0, f32::MIN_POSITIVE);
    let found = trace(quotients { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 3);
    assert_eq!(places(&found), [(Unusual::Nan, 1, 8, line("quotients: shuffle"), Some(line("quotients: load")))]);
    let text = found[0].to_string();
    assert!(
        text.starts_with(
            "kernel `quotients`, block (1, 0, 0), thread (8, 0, 0): the first NaN: a value for other lanes has"
        ),
        "{text}"
    );
    assert!(text.contains(&format!("values.rs:{}", line("quotients: load"))), "{text}");
}

#[test]
fn functions_are_seen_and_what_they_call_is_not() {
    let first = |which: u32, x: f32| {
        let (x, mut y) = ([x; 32], [0.0; 32]);
        trace(functions { which, x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1)
    };
    let made = |which: u32, x: f32| {
        let found = first(which, x);
        assert!(found.iter().all(|it| it.is_made_here), "{found:?}");
        found.iter().map(|it| (it.unusual, it.operation, it.line.line)).collect::<Vec<_>>()
    };
    assert_eq!(made(0, 100.0), [(Unusual::Infinity, "`math::exp`", line("functions: exp"))]);
    assert_eq!(made(0, -100.0), [(Unusual::Subnormal, "`math::exp`", line("functions: exp"))]);
    assert_eq!(made(1, -1.0), [(Unusual::Nan, "`math::fast::log`", line("functions: log"))]);
    // The square of what is under the root is infinite there.
    assert_eq!(made(2, 1e30), []);
    let found = first(3, 1.0);
    let expected = (Unusual::Nan, "an argument of a function", line("functions: tanh"));
    assert_eq!(found.iter().map(|it| (it.unusual, it.operation, it.line.line)).collect::<Vec<_>>(), [expected]);
    assert_eq!(found[0].since.as_ref().map(|since| since.line), Some(line("functions: load")));
}

#[test]
fn what_a_thread_was_given_it_has_not_made() {
    let (x, mut y) = ([f32::NAN; 32], [0.0; 32]);
    assert_eq!(trace(roots { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1), []);
    let x = [f32::INFINITY; 32];
    assert_eq!(trace(squares { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1), []);
    // But infinity less infinity is no infinity.
    let x: [f32; 3] = [f32::INFINITY, 0.0, 0.0];
    let found = trace(multiplies { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(places(&found), [(Unusual::Nan, 0, 0, line("multiplies: product"), None)]);
}

#[test]
fn numbers_that_are_too_large_or_too_small_are_found() {
    let (mut x, mut y) = ([1.0; 32], [0.0; 32]);
    (x[5], x[9], x[11]) = (1e30, 1e-20, 1e-30);
    let found = trace(squares { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1);
    let (store, load) = (line("squares: store"), Some(line("squares: load")));
    assert_eq!(places(&found), [(Unusual::Infinity, 0, 5, store, load), (Unusual::Subnormal, 0, 9, store, load)]);
}

#[test]
fn addends_are_lost_in_sums() {
    let (mut x, mut y) = ([0.0; 32], [1e10; 32]);
    x[7] = 1e-3;
    let found = trace(adds { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(places(&found), [(Unusual::LostAddend, 0, 7, line("adds: add"), None)]);
    assert!(found[0].is_made_here);
    for (x, expected) in
        [([1e-3, 1e-3, 1e10], Some(Unusual::LostAddend)), ([1.0, 1.0, 1.0], None), ([0.0, 1.0, 1.0], None)]
    {
        let found = trace(multiplies { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1);
        assert_eq!(found.first().map(|found| found.unusual), expected);
    }
    // A product that is too large, of operands that are not.
    let x: [f32; 3] = [1e30, 1e30, 0.0];
    let found = trace(multiplies { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) }, 1);
    assert_eq!(places(&found), [(Unusual::Infinity, 0, 0, line("multiplies: product"), None)]);
}
