//! What of a kernel can be done in another way, and what happens then.

#![allow(clippy::undocumented_unsafe_blocks, reason = "the kernel is right; the tests take it apart")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use common::line_of;
use cuda_std::executor::{Change, ChangedCall, Changes, Checks, Executor, FaultKind, LaunchError};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("changes.rs");

/// Each thread has the number of its neighbour in the block, and a copy of what that has in its warp.
#[kernel(block = 64)]
fn passes_on(out: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, me as u32);
        thread::sync_threads(); // <block>
        let next = NUMBERS.read((me + 1) % 64); // <read>
        thread::sync_threads(); // <block again>
        NUMBERS.write(me, next);
        warp::sync_warp(warp::ALL_LANES); // <warp>
        out.set_unchecked(thread::index_1d(), NUMBERS.read(me ^ 1));
    }
}

fn launch(changes: &Arc<Changes>) -> Result<Vec<u32>, LaunchError> {
    let mut out = vec![0; 128];
    let executor = Executor::new(Checks::Full).with_changes(changes.clone());
    // SAFETY: the view is of a vector that outlives the launch.
    unsafe { executor.launch(passes_on { out: GlobalSliceMut::new(&mut out) }, 2.into()) }?;
    Ok(out)
}

#[test]
fn what_can_be_changed_is_noted() {
    let changes = Arc::new(Changes::default());
    let out = launch(&changes).unwrap();
    assert_eq!(out[..3], [2, 1, 4]);
    assert_eq!(changes.kernels(), ["passes_on"]);
    let met = changes.take_met();
    let at = |mark: &str| -> Vec<(&str, Change)> {
        let line = line_of(SOURCE, mark);
        met.iter().filter(|call| call.line == line).map(|call| (call.function, call.change)).collect()
    };
    assert_eq!(at("block"), [("sync_threads", Change::Omitted)]);
    assert_eq!(at("warp"), [("sync_warp", Change::Omitted), ("sync_warp", Change::OneLaneLess)]);
    assert_eq!(at("read"), [("shared-load", Change::NextIndex), ("shared-load", Change::PreviousIndex)]);
    assert!(changes.take_met().is_empty(), "taken already");
}

#[test]
fn a_check_or_the_result_tells_of_each_change() {
    let changes = Arc::new(Changes::default());
    let right = launch(&changes).unwrap();
    let met = changes.take_met();
    assert_eq!(met.len(), 2 + 2 + 5 * 2, "barriers of the block and of the warp, and five accesses: {met:?}");
    for call in met {
        let changed = Arc::new(Changes::making(&call.to_string()).unwrap());
        let result = launch(&changed);
        assert!(changed.is_made(), "{call}: the kernel comes there");
        if call.change == Change::Omitted {
            let Err(LaunchError::Fault(fault)) = result else { panic!("nothing is said of {call}") };
            assert!(matches!(fault.kind, FaultKind::Race { .. }), "{call}: {fault}");
        } else {
            assert_ne!(result.ok(), Some(right.clone()), "{call}");
        }
    }
}

#[test]
fn what_no_kernel_comes_to_is_not_changed() {
    let changes = Arc::new(Changes::making("elsewhere.rs:1:1 sync_threads omitted").unwrap());
    assert!(launch(&changes).is_ok() && !changes.is_made());
    for wrong in ["", "a.rs:1:1 sync_threads", "a.rs:1 sync_threads omitted", "a.rs:1:1 sync_threads forgotten"] {
        assert!(Changes::making(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn changes_are_displayed_as_they_are_read() {
    for &change in Change::ALL {
        let call = ChangedCall { file: "a.rs", line: 1, column: 2, function: "f", change };
        assert!(Changes::making(&call.to_string()).is_ok(), "{call}");
        assert!(!change.words().contains(' '), "{call}");
    }
}
