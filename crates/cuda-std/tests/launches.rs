//! Grids, stacks and panics, and launches at the same time.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{ALL_CHECKS, WithShared, at, fault, launch, line_of, succeed};
use cuda_std::executor::{Checks, Executor, FaultKind, LaunchError, Stop};
use cuda_std::prelude::*;
use cuda_std::{ComputeCapability, ContractViolation, Excess, Kernel, KernelFacts, Limits, View};

const SOURCE: &str = include_str!("launches.rs");

/// Writes all that a thread knows about its place.
#[kernel(block = (4, 3, 2))]
fn places(out: GlobalSliceMut<'_, u32>) {
    use thread::*;
    let block = block_idx_x() + grid_dim_x() * (block_idx_y() + grid_dim_y() * block_idx_z());
    let t = thread_idx_x() + block_dim_x() * (thread_idx_y() + block_dim_y() * thread_idx_z());
    let threads = block_dim_x() * block_dim_y() * block_dim_z();
    let all = [
        [block_idx_x(), block_idx_y(), block_idx_z()],
        [thread_idx_x(), thread_idx_y(), thread_idx_z()],
        [block_dim_x(), block_dim_y(), block_dim_z()],
        [grid_dim_x(), grid_dim_y(), grid_dim_z()],
    ];
    for (i, value) in all.into_iter().flatten().chain([warp::lane_id(), index_1d() as u32]).enumerate() {
        unsafe { out.set_unchecked(((block * threads + t) * 14) as usize + i, value) };
    }
}

#[test]
fn every_thread_of_every_block_knows_its_place() {
    let (grid, block) = (at(5, 3, 2), places::BLOCK);
    let mut expected = Vec::new();
    for b in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..5).map(move |x| [x, y, z]))) {
        for t in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..4).map(move |x| [x, y, z]))) {
            let lane = t[0] + 4 * (t[1] + 3 * t[2]);
            expected.extend([b, t, [block.x, block.y, block.z], [grid.x, grid.y, grid.z]].concat());
            expected.extend([lane, b[0] * 4 + t[0]]);
        }
    }
    let mut out = vec![u32::MAX; expected.len()];
    succeed(Checks::Full, places { out: GlobalSliceMut::new(&mut out) }, grid);
    assert_eq!(out, expected);
}

#[kernel(block = 1)]
fn nothing() {}

/// A kernel with blocks of the given shape, as `#[kernel]` would not make it.
#[derive(Clone, Copy)]
struct Shaped<const X: u32, const Y: u32, const Z: u32>;

// SAFETY: it is only run on the CPU, and has no parameters.
unsafe impl<const X: u32, const Y: u32, const Z: u32> Kernel for Shaped<X, Y, Z> {
    const FACTS: KernelFacts = KernelFacts { block: [X, Y, Z], ..KernelFacts::new("shaped") };

    fn check(&self) -> Result<(), ContractViolation> {
        Ok(())
    }

    fn visit_params(&self, _: &mut dyn FnMut(*const core::ffi::c_void)) {}

    fn visit_views(&self, _: &mut dyn FnMut(View<'_>)) {}

    unsafe fn run_thread(self) {}
}

#[test]
fn a_launch_has_the_limits_of_cuda() {
    for grid in [at(0, 1, 1), at(1, 0, 1), at(1, 1, 0), at(1 << 31, 1, 1), at(1, 65_536, 1), at(1, 1, 65_536)] {
        let error = launch(Checks::Bounds, nothing {}, grid).unwrap_err();
        let LaunchError::Excess { kernel: "nothing", excess: Excess::Grid { grid: refused, .. } } = error else {
            panic!("{error}")
        };
        assert_eq!(Dim3::from(refused), grid);
    }
    succeed(Checks::Bounds, nothing {}, at(1, 1, 65_535));
    succeed(Checks::Bounds, nothing {}, at(1, 65_535, 1));

    let error = launch(Checks::Bounds, WithShared::<{ (227 << 10) + 1 }, _>(nothing {}), 1).unwrap_err();
    let excess = Excess::Shared { static_bytes: 0, dynamic_bytes: 232_449, limit: 232_448 };
    assert!(matches!(error, LaunchError::Excess { excess: found, .. } if found == excess), "{error}");
    launch(Checks::Bounds, WithShared::<{ 227 << 10 }, _>(nothing {}), 1).unwrap();

    succeed(Checks::Bounds, Shaped::<16, 1, 64>, 1);
    succeed(Checks::Bounds, Shaped::<1024, 1, 1>, 1);
    for error in [
        launch(Checks::Bounds, Shaped::<1025, 1, 1>, 1),
        launch(Checks::Bounds, Shaped::<33, 32, 1>, 1),
        launch(Checks::Bounds, Shaped::<1, 1, 65>, 1),
        launch(Checks::Bounds, Shaped::<1, 0, 1>, 1),
    ] {
        let Err(LaunchError::Excess { excess, .. }) = error else { panic!("{error:?}") };
        assert!(matches!(excess, Excess::Threads { .. } | Excess::BlockExtent { .. }), "{excess}");
    }
}

#[test]
fn the_executor_can_have_the_limits_of_a_smaller_gpu() {
    let ada = Executor::new(Checks::Bounds).with_limits(Limits::of(ComputeCapability::new(8, 9)).unwrap());
    let run = |kernel| unsafe { ada.launch(WithShared::<{ 100 << 10 }, _>(kernel), Dim3::from(1)) };
    let error = run(nothing {}).unwrap_err().to_string();
    assert!(error.contains("102400") && error.contains("101376") && error.contains("`nothing`"), "{error}");
    unsafe { ada.launch(WithShared::<{ 99 << 10 }, _>(nothing {}), Dim3::from(1)) }.unwrap();
}

#[test]
fn a_launch_ends_between_two_blocks_when_it_is_asked_to() {
    // To run all of these blocks would take many minutes.
    let (executor, many) = (Executor::new(Checks::Bounds), at(i32::MAX as u32, 1, 1));
    let (stop, other) = (Stop::new(), Stop::new());
    let launch = |grid| unsafe { executor.launch(nothing {}, grid) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stop.ask();
        });
        let start = Instant::now();
        let error = stop.listen(|| launch(many)).unwrap_err();
        assert!(matches!(error, LaunchError::Stopped { kernel: "nothing" }), "{error}");
        assert!(start.elapsed() > Duration::from_millis(90) && start.elapsed() < Duration::from_secs(20));
    });
    // It goes on asking those that listen, and nobody else.
    assert!(stop.is_asked() && stop.listen(|| launch(1.into())).is_err());
    stop.listen(|| {
        other.listen(|| launch(1.into())).unwrap();
        assert!(launch(1.into()).is_err());
    });
    launch(1.into()).unwrap();
}

#[kernel(block = 32, requires(x.len() == y.len()))]
fn with_contract(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    if i < x.len() {
        unsafe { y.set_unchecked(i, x.get_unchecked(i)) };
    }
}

#[test]
fn arguments_that_break_the_contract_are_refused_before_anything_runs() {
    let mut y = [0.0; 3];
    let kernel = with_contract { x: GlobalSlice::new(&[1.0; 4]), y: GlobalSliceMut::new(&mut y) };
    let error = launch(Checks::Full, kernel, 1).unwrap_err();
    assert!(matches!(&error, LaunchError::Contract(violation) if violation.kernel == "with_contract"), "{error}");
    assert_eq!(y, [0.0; 3]);
}

/// Counts blocks, and fails from the block `first` on.
#[kernel(block = 64)]
fn fails_from(first: u64, counts: GlobalSliceMut<'_, u32>) {
    let block = thread::block_idx_x() as usize + (thread::block_idx_y() as usize * thread::grid_dim_x() as usize);
    let t = thread::thread_idx_x();
    unsafe {
        thread::sync_threads();
        if block >= first as usize && t == 17 {
            counts.get_unchecked(usize::MAX);
        }
        if t == 20 && block < counts.len() {
            counts.set_unchecked(block, counts.get_unchecked(block) + 1);
        }
    }
}

#[test]
fn every_block_runs_once() {
    let mut counts = vec![0; 100_003];
    for round in 1..=2 {
        let kernel = fails_from { first: u64::MAX, counts: GlobalSliceMut::new(&mut counts) };
        succeed(Checks::Bounds, kernel, at(100_003, 1, 1));
        assert!(counts.iter().all(|&count| count == round));
    }
}

#[test]
fn the_first_of_the_failing_blocks_is_reported_whoever_runs_it() {
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for first in [0, 1, 5, 300, 301, 4000] {
            let mut counts = vec![0; 4096];
            let kernel = fails_from { first, counts: GlobalSliceMut::new(&mut counts) };
            // The largest grid that there is: it could not be run to the end.
            let fault = pool.install(|| fault(Checks::Bounds, kernel, at(i32::MAX as u32, 65_535, 1)));
            assert_eq!((fault.block, fault.thread), (at(first as u32, 0, 0), at(17, 0, 0)));
            assert!(counts[..first as usize].iter().all(|&count| count == 1), "blocks before it run nevertheless");
        }
    }
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 20]);
    if depth == 0 { 0 } else { 1 + recurse(depth - 1) + frame[3] / u64::MAX }
}

/// Thread `culprit` needs a stack of at least 160 bytes per step, and `large` more kilobytes.
#[kernel(block = 256)]
fn recurses(culprit: u32, depth: u64, large: u32, depths: GlobalSliceMut<'_, u64>) {
    let t = thread::thread_idx_x();
    unsafe {
        thread::sync_threads();
        if t == culprit {
            depths.set_unchecked(0, if large == 0 { recurse(depth) } else { large_frame() });
        }
        thread::sync_threads();
        depths.set_unchecked(1 + t as usize, t.into());
    }
}

#[inline(never)]
fn large_frame() -> u64 {
    let array = black_box([1u8; 300 << 10]);
    array.iter().map(|&byte| u64::from(byte)).sum()
}

#[test]
fn an_overflowing_stack_is_reported() {
    for checks in ALL_CHECKS {
        // The stacks of threads 0 and 255 have no others on one of their sides.
        for culprit in [0, 1, 31, 100, 255] {
            for (depth, large) in [(1 << 40, 0), (2_000, 0), (0, 1)] {
                let mut depths = [0; 257];
                let kernel = recurses { culprit, depth, large, depths: GlobalSliceMut::new(&mut depths) };
                let fault = fault(checks, kernel, 3);
                assert_eq!((fault.block, fault.thread), (at(0, 0, 0), at(culprit, 0, 0)));
                assert_eq!(fault.kind, FaultKind::StackOverflow { bytes: Executor::DEFAULT_STACK_BYTES, asked: None });
            }
        }
        let mut depths = [0; 257];
        succeed(checks, recurses { culprit: 9, depth: 50, large: 0, depths: GlobalSliceMut::new(&mut depths) }, 1);
        assert!(depths[0] == 50 && (0..256).all(|t| depths[1 + t] == t as u64));
    }
}

#[test]
fn stacks_can_be_made_larger() {
    let executor = Executor::new(Checks::Full).stack_bytes(4 << 20);
    let mut depths = [0; 257];
    for (depth, large) in [(2_000, 0), (0, 1)] {
        let kernel = recurses { culprit: 3, depth, large, depths: GlobalSliceMut::new(&mut depths) };
        unsafe { executor.launch(kernel, at(1, 1, 1)).unwrap() };
    }
    let kernel = recurses { culprit: 3, depth: 1 << 40, large: 0, depths: GlobalSliceMut::new(&mut depths) };
    let Err(LaunchError::Fault(fault)) = (unsafe { executor.launch(kernel, at(1, 1, 1)) }) else { panic!() };
    assert_eq!(fault.kind, FaultKind::StackOverflow { bytes: 4 << 20, asked: None });

    let impossible = Executor::new(Checks::Full).stack_bytes(usize::MAX);
    let error = unsafe { impossible.launch(nothing {}, at(1, 1, 1)) }.unwrap_err();
    assert!(matches!(error, LaunchError::Stacks { .. }), "{error}");
}

/// Calls `action` when `bytes` bytes of the stack below `top` are in use.
fn with_stack_used(top: usize, bytes: usize, action: &dyn Fn()) {
    let frame = black_box([0u8; 64]);
    if top - frame.as_ptr().addr() < bytes {
        with_stack_used(top, bytes, action);
    } else {
        action();
    }
    black_box(&frame);
}

/// In the last thread, something that makes the executor allocate, when `bytes` bytes of its stack are in use.
#[kernel(block = 64)]
fn allocates_deep_down(bytes: u64, how: u32, out: GlobalSliceMut<'_, u32>) {
    static ARRAY: Shared<[u32; 64]> = Shared::new();
    static OTHER: Shared<[u32; 64]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    unsafe { ARRAY.write(t, 1) };
    if t == 63 {
        let top = &raw const t;
        with_stack_used(top.addr(), bytes as usize, &|| unsafe {
            match how {
                0 => OTHER.write(0, 1),
                1 => out.set_unchecked(64, 1),
                2 => ARRAY.write(t + 1, 1),
                3 => ARRAY.write(5, 1),
                _ => warp::sync_warp(1),
            }
        });
    }
}

#[test]
fn the_executor_does_not_allocate_where_little_stack_is_left() {
    for how in 0..5 {
        let mut out = [0; 64];
        let out = GlobalSliceMut::new(&mut out);
        match launch(Checks::Full, allocates_deep_down { bytes: 40 << 10, how, out }, 1) {
            Ok(()) => assert_eq!(how, 0),
            Err(LaunchError::Fault(fault)) => match fault.kind {
                FaultKind::OutOfBounds { .. } => assert_eq!(how, 1),
                FaultKind::SharedOutOfBounds { .. } => assert_eq!(how, 2),
                FaultKind::Race { .. } => assert_eq!(how, 3),
                FaultKind::LaneNotInMask { .. } => assert_eq!(how, 4),
                _ => panic!("{fault}"),
            },
            Err(error) => panic!("{error}"),
        }
        // Of the 64 KiB, and up to a page more, there are still at least some 3 KiB.
        let fault = fault(Checks::Full, allocates_deep_down { bytes: 60 << 10, how, out }, 1);
        assert_eq!(fault.kind, FaultKind::StackOverflow { bytes: Executor::DEFAULT_STACK_BYTES, asked: None }, "{how}");
        assert_eq!(fault.thread, at(63, 0, 0));
    }
}

#[kernel(block = 32)]
fn panics(values: GlobalSlice<'_, u32>, how: u32) {
    let t = thread::thread_idx_x();
    let local = [1, 2, 3];
    unsafe { warp::sync_warp(warp::ALL_LANES) };
    if t == 11 {
        match how {
            0 => assert_eq!(values.len() as u32, t, "the values of {t}"), // <assert>
            1 => _ = black_box(local[values.len()]),                      // <index>
            2 => _ = unsafe { Executor::new(Checks::Full).launch(nothing {}, at(1, 1, 1)) }, // <nested>
            _ => std::panic::panic_any(how),                              // <any>
        }
    }
}

#[test]
fn a_panic_is_reported_with_its_message_and_line() {
    let values = [0; 3];
    for checks in ALL_CHECKS {
        for (how, mark, text) in [
            (0, "assert", "the values of 11"),
            (1, "index", "the len is 3 but the index is 3"),
            (2, "", "a kernel cannot launch kernels"),
            (3, "any", "(not a text)"),
        ] {
            let fault = fault(checks, panics { values: GlobalSlice::new(&values), how }, 2);
            let FaultKind::Panic { message } = &fault.kind else { panic!("{fault}") };
            assert!(message.contains(text), "{message}");
            assert_eq!((fault.block, fault.thread), (at(0, 0, 0), at(11, 0, 0)));
            let location = fault.location.unwrap();
            if !mark.is_empty() {
                assert_eq!((&*location.file, location.line), (file!(), line_of(SOURCE, mark)));
            }
        }
    }
}

/// Sums its block's part of `x` in shared memory.
#[kernel(block = 128)]
fn block_sums(x: GlobalSlice<'_, f32>, sums: GlobalSliceMut<'_, f32>) {
    static PARTS: Shared<[f32; 128]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    unsafe {
        PARTS.write(t, x.get_unchecked(thread::index_1d()));
        thread::sync_threads();
        for stride in [64, 32, 16, 8, 4, 2, 1] {
            if t < stride {
                PARTS.write(t, PARTS.read(t) + PARTS.read(t + stride));
            }
            thread::sync_threads();
        }
        if t == 0 {
            sums.set_unchecked(thread::block_idx_x() as usize, PARTS.read(0));
        }
    }
}

#[test]
fn launches_from_several_threads_do_not_disturb_each_other() {
    let executor = Executor::new(Checks::Full);
    let run = |scale: usize| {
        let x: Vec<f32> = (0..128 * 200).map(|i| (i * scale % 16) as f32).collect();
        let expected: Vec<f32> = x.chunks(128).map(|part| part.iter().sum()).collect();
        for _ in 0..10 {
            let mut sums = [0.0; 200];
            let kernel = block_sums { x: GlobalSlice::new(&x), sums: GlobalSliceMut::new(&mut sums) };
            unsafe { executor.launch(kernel, at(200, 1, 1)) }.unwrap();
            assert_eq!(sums[..], expected);
            let short = block_sums { x: GlobalSlice::new(&x[..128 * 150 + 5]), sums: GlobalSliceMut::new(&mut sums) };
            let Err(LaunchError::Fault(fault)) = (unsafe { executor.launch(short, at(200, 1, 1)) }) else { panic!() };
            assert_eq!((fault.block, fault.thread), (at(150, 0, 0), at(5, 0, 0)));
        }
    };
    std::thread::scope(|scope| {
        for scale in [1, 3, 5] {
            scope.spawn(move || run(scale));
        }
    });
}

#[test]
fn outside_of_a_kernel_the_functions_of_kernels_say_so() {
    static ARRAY: Shared<[f32; 4]> = Shared::new();
    let cases: [(&str, fn()); 4] = [
        ("no kernel is running", || _ = thread::thread_idx_x()),
        ("no kernel is running", || unsafe { thread::sync_threads() }),
        ("no kernel is running", || unsafe { ARRAY.write(1, 1.0) }),
        ("no kernel is running", || unsafe { warp::sync_warp(1) }),
    ];
    for (expected, case) in cases {
        let panic = std::panic::catch_unwind(case).unwrap_err();
        let message = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

/// Writes what `get` finds at `index`, or the length if it finds nothing.
#[kernel(block = 1)]
fn gets(x: GlobalSlice<'_, f32>, index: u64, out: GlobalSliceMut<'_, f32>) {
    let value = x.get(index as usize).unwrap_or(x.len() as f32);
    unsafe { out.set_unchecked(0, value) };
}

#[test]
fn views_are_accessed_inside_kernels_only() {
    let (values, mut out) = ([7.0f32; 4], [0.0f32; 4]);
    for (index, expected) in [(3, 7.0), (4, 4.0)] {
        succeed(Checks::Full, gets { x: GlobalSlice::new(&values), index, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(out[0], expected);
    }

    let view = GlobalSlice::new(&values);
    // An address that this processor cannot access, as that of a GPU's memory. The contract of the view speaks of where
    // kernels run, and none runs with this one: `get` has to be safe here all the same.
    let foreign = unsafe { GlobalSlice::from_raw_parts(std::ptr::without_provenance::<f32>(4096), 4) };
    let view_mut = GlobalSliceMut::new(&mut out);
    let cases: [&dyn Fn(); 6] = [
        &|| _ = view.get(0),
        &|| _ = foreign.get(3),
        &|| _ = unsafe { view.get_unchecked(1) },
        &|| _ = unsafe { view.get4_unchecked(0) },
        &|| _ = unsafe { view_mut.get_unchecked(9) },
        &|| unsafe { view_mut.set_unchecked(0, 1.0) },
    ];
    for case in cases {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)).unwrap_err();
        let message = panic.downcast_ref::<&str>().unwrap();
        assert!(message.starts_with("a view can only be read or written inside a kernel: "), "{message}");
    }
    assert_eq!((view.get(4), out[0]), (None, 4.0));
}
