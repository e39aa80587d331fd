//! Reports name the calls that led to both accesses. What a stack has, the tests say themselves: each function of a kernel enters its line.

#![allow(clippy::undocumented_unsafe_blocks, reason = "these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::executor::{Backtraces, Callers, Checks, Executor, Fault, FaultKind, LaunchError, SourceLine};
use cuda_std::prelude::*;

thread_local! {
    /// The functions that the thread of each position is in, as it has entered them.
    static CALLS: RefCell<HashMap<u32, Vec<u32>>> = RefCell::default();
}

/// A function that a thread is in, by a number that is no line of this file.
struct Call(u32);

impl Call {
    fn enter(function: u32) -> Self {
        let me = thread::thread_idx_x();
        CALLS.with_borrow_mut(|calls| calls.entry(me).or_default().push(function));
        Self(me)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(|calls| calls.get_mut(&self.0).map(Vec::pop));
    }
}

const CALLERS: Callers = Callers {
    addresses: |found| {
        let me = thread::thread_idx_x();
        let stack = CALLS.with_borrow(|calls| calls.get(&me).cloned().unwrap_or_default());
        stack.iter().rev().zip(found).map(|(function, place)| *place = *function as usize).count()
    },
    lines: |addresses| {
        addresses.iter().map(|&function| SourceLine { file: "kernel.rs".into(), line: function as u32 }).collect()
    },
};

/// Launches a kernel twice, and has the report of the second launch. But for the calls it is that of the first.
fn fault_with_calls(launch: impl Fn(Executor) -> Result<(), LaunchError>) -> Fault {
    let fault = |executor| match launch(executor) {
        Err(LaunchError::Fault(fault)) => *fault,
        result => panic!("expected a fault, got {result:?}"),
    };
    let executor = Executor::new(Checks::Full);
    let first = fault(executor.clone());
    assert!(first.callers.is_empty(), "nobody has looked for them: {first}");
    let again = fault(executor.with_backtraces(Arc::new(Backtraces::of(&first, CALLERS))));
    assert_eq!((&first.location, first.thread, first.kind.name()), (&again.location, again.thread, again.kind.name()));
    again
}

fn functions(callers: &[SourceLine]) -> Vec<u32> {
    callers.iter().map(|line| line.line).collect()
}

/// Of this access and of the other one.
fn functions_of_both(fault: &Fault) -> [Vec<u32>; 2] {
    let (FaultKind::Race { other, .. } | FaultKind::GlobalRace { other, .. }) = &fault.kind else {
        panic!("expected a race, got: {fault}");
    };
    [functions(&fault.callers), functions(&other.callers)]
}

/// Writes an element of a tile.
fn put(tile: &'static Shared<[u32; 8]>, i: usize, value: u32) {
    let _call = Call::enter(1_000_010);
    unsafe { tile.write(i, value) };
}

/// Writes two elements of a tile, by one line that is called from two.
fn put_both(tile: &'static Shared<[u32; 8]>, value: u32) {
    {
        let _line = Call::enter(1_000_021);
        put(tile, 0, value);
    }
    let _line = Call::enter(1_000_022);
    put(tile, 1, value);
}

fn get(tile: &'static Shared<[u32; 8]>, i: usize) -> u32 {
    let _call = Call::enter(1_000_030);
    unsafe { tile.read(i) }
}

#[kernel(block = 2)]
fn race_in_helpers(i: u32, y: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[u32; 8]> = Shared::new();
    if thread::thread_idx_x() == 0 {
        let _line = Call::enter(1_000_001);
        put_both(&TILE, 7);
    } else {
        let _line = Call::enter(1_000_002);
        unsafe { y.set_unchecked(0, get(&TILE, i as usize)) };
    }
}

#[test]
fn the_call_is_found_that_led_to_the_element() {
    for (i, line) in [(0, 1_000_021), (1, 1_000_022)] {
        let fault = fault_with_calls(|executor| {
            let mut y = [0];
            unsafe { executor.launch(race_in_helpers { i, y: GlobalSliceMut::new(&mut y) }, Dim3::from(1)) }
        });
        assert_eq!(functions_of_both(&fault), [vec![1_000_002], vec![line, 1_000_001]], "{fault}");
        let text = fault.to_string();
        let of_other = format!("called from kernel.rs:{line}\n      called from kernel.rs:1000001\n  help:");
        assert!(text.contains("called from kernel.rs:1000002\n  note: the other access"), "{text}");
        assert!(text.contains(&of_other), "{text}");
    }
}

fn store(x: &GlobalSliceMut<'_, u32>, i: usize) {
    let _call = Call::enter(1_000_040);
    unsafe { x.set_unchecked(i, 1) };
}

/// The last thread of each block writes what the first one of the next does.
#[kernel(block = 4)]
fn race_of_blocks(x: GlobalSliceMut<'_, u32>) {
    let _line = Call::enter(1_000_003);
    store(&x, thread::index_1d());
    if thread::thread_idx_x() == 3 {
        let _line = Call::enter(1_000_004);
        store(&x, thread::index_1d() + 1);
    }
}

#[test]
fn the_other_access_may_be_of_another_block() {
    let fault = fault_with_calls(|executor| {
        let mut x = [0; 9];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        pool.install(|| unsafe { executor.launch(race_of_blocks { x: GlobalSliceMut::new(&mut x) }, Dim3::from(2)) })
    });
    assert_eq!(functions_of_both(&fault), [vec![1_000_003], vec![1_000_004, 1_000_003]], "{fault}");
}

/// Beyond the end of `x`: by a store, or by a panic.
#[kernel(block = 4)]
fn beyond_the_end(panics: u32, x: GlobalSliceMut<'_, u32>) {
    let _line = Call::enter(1_000_005);
    let i = thread::index_1d();
    if panics == 1 {
        let _call = Call::enter(1_000_050);
        assert!(i < x.len(), "no element {i}");
    }
    store(&x, i);
}

#[test]
fn what_has_no_other_access_has_its_own_calls() {
    for (panics, name) in [(0, "out of bounds"), (1, "panic")] {
        let fault = fault_with_calls(|executor| {
            let mut x = [0; 3];
            unsafe { executor.launch(beyond_the_end { panics, x: GlobalSliceMut::new(&mut x) }, Dim3::from(1)) }
        });
        assert_eq!((fault.kind.name(), functions(&fault.callers)), (name, vec![1_000_005]), "{fault}");
    }
}

/// A copy whose values are read before they are there.
#[kernel(block = 1, dynamic_shared = 16)]
fn read_too_early(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let _line = Call::enter(1_000_006);
    let tile = unsafe { dynamic_shared::<f32>(0, 4) };
    {
        let _call = Call::enter(1_000_060);
        unsafe { copy_async::<4, _>(&tile, 0, &x, 0, 4) };
    }
    unsafe { y.set_unchecked(0, tile.read(0)) };
    commit_group();
    wait_group::<0>();
}

#[test]
fn a_copy_that_is_not_awaited_has_the_calls_that_asked_for_it() {
    let fault = fault_with_calls(|executor| {
        let (x, mut y) = ([1.0; 4], [0.0]);
        let kernel = read_too_early { x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) };
        unsafe { executor.launch(kernel, Dim3::from(1)) }
    });
    let FaultKind::UnwrittenShared { pending: Some(pending), .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!([functions(&fault.callers), functions(&pending.callers)], [vec![], vec![1_000_006]], "{fault}");
}
