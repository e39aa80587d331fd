//! The calls that order what threads do, and what happens without one of them.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the kernel is right; the tests take it apart")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use common::line_of;
use cuda_std::executor::{Checks, Executor, FaultKind, LaunchError, OrderingCall, OrderingCalls};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("ordering_calls.rs");

/// Each thread has the number of its neighbour in the block, and a copy of what that has in its warp.
#[kernel(block = 64)]
fn passes_on(out: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, me as u32);
        thread::sync_threads(); // <block>
        let next = NUMBERS.read((me + 1) % 64);
        thread::sync_threads(); // <block again>
        NUMBERS.write(me, next);
        warp::sync_warp(warp::ALL_LANES); // <warp>
        out.set_unchecked(thread::index_1d(), NUMBERS.read(me ^ 1));
    }
}

fn launch(calls: &Arc<OrderingCalls>) -> Result<Vec<u32>, LaunchError> {
    let mut out = vec![0; 128];
    let executor = Executor::new(Checks::Full).with_ordering_calls(calls.clone());
    // SAFETY: the view is of a vector that outlives the launch.
    unsafe { executor.launch(passes_on { out: GlobalSliceMut::new(&mut out) }, 2.into()) }?;
    Ok(out)
}

#[test]
fn calls_are_noted_and_each_can_be_left_out() {
    let calls = Arc::new(OrderingCalls::default());
    let out = launch(&calls).unwrap();
    assert_eq!(out[..3], [2, 1, 4]);
    let met = calls.met();
    let place = |call: &OrderingCall| (call.kernel, call.line, call.function);
    assert_eq!(
        met.iter().map(place).collect::<Vec<_>>(),
        [("block", "sync_threads"), ("block again", "sync_threads"), ("warp", "sync_warp")].map(|(mark, function)| (
            "passes_on",
            line_of(SOURCE, mark),
            function
        ))
    );
    for call in met {
        let without = Arc::new(OrderingCalls::without(call.to_string()));
        let Err(LaunchError::Fault(fault)) = launch(&without) else { panic!("nothing is said of {call}") };
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{call}: {fault}");
        assert!(without.met().contains(&call), "{call} is left out where the kernel comes to it");
    }
}

#[test]
fn what_no_kernel_calls_is_not_left_out() {
    let calls = Arc::new(OrderingCalls::without("passes_on elsewhere.rs:1:1 sync_threads".to_owned()));
    assert!(launch(&calls).is_ok());
    assert_eq!(calls.met().len(), 3);
}
