//! What blocks do, step by step: barriers, races, waits that never end, a pipeline of TMA and tensor cores; and that recording changes nothing.

#![allow(clippy::undocumented_unsafe_blocks, reason = "some of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use common::line_of;
use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::atomic::{AcqRel, Acquire, Relaxed, Release, Scope, fence};
use cuda_std::executor::{
    Checks, Executor, FaultKind, LaunchError, RecordedLaunch, Step, StepActor, StepBarrier, StepKind, StepMemory,
    StepOptions, Steps,
};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums, Tf32};
use cuda_std::{Dim3, Kernel, TensorMap, TileElement, TileLayout, TileSwizzle};

const SOURCE: &str = include_str!("steps.rs");

/// Runs a kernel and records it: how it ended, and what it did.
fn record<K: Kernel>(kernel: K, grid: u32, options: StepOptions) -> (Result<(), LaunchError>, RecordedLaunch) {
    let steps = Arc::new(Steps::new(options));
    let executor = Executor::new(Checks::Full).with_steps(Arc::clone(&steps));
    // SAFETY: the views are of slices that the test borrows, mutably where they are mutable.
    let result = unsafe { executor.launch(kernel, Dim3::from(grid)) };
    (result, steps.launch().expect("the launch was meant"))
}

/// The kinds of what a warp does, each with how many lanes take part.
fn of_warp(launch: &RecordedLaunch, wanted: usize) -> Vec<(StepKind, u32)> {
    let lanes = |step: &Step| match step.by {
        StepActor::Warp { warp, lanes } if warp == wanted => Some((step.kind, lanes.count_ones())),
        _ => None,
    };
    launch.blocks[0].steps.iter().filter_map(lanes).collect()
}

/// Each thread gives its number to the one on the other side.
#[kernel(block = 64)]
fn reverses(has_barrier: u32, out: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 64]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(me, me as u32); // <write>
        if has_barrier != 0 {
            thread::sync_threads(); // <barrier>
        }
        if me.is_multiple_of(2) {
            out.set_unchecked(me, NUMBERS.read(63 - me)); // <even>
        } else {
            out.set_unchecked(me, NUMBERS.read(63 - me)); // <odd>
        }
    }
}

#[test]
fn a_barrier_and_a_branch_are_seen_warp_by_warp() {
    let mut out = [0; 64];
    let kernel = reverses { has_barrier: 1, out: GlobalSliceMut::new(&mut out) };
    let (result, launch) = record(kernel, 1, StepOptions::default());
    result.unwrap();
    use StepKind as K;
    let expected = [
        (K::SharedStore, 32),
        (K::Wait, 32),
        (K::Passed, 32),
        (K::SharedLoad, 16),
        (K::GlobalStore, 16),
        (K::SharedLoad, 16),
        (K::GlobalStore, 16),
        (K::End, 32),
    ];
    for warp in 0..2 {
        assert_eq!(of_warp(&launch, warp), expected);
    }
    let block = &launch.blocks[0];
    assert_eq!((block.more, &block.fault, block.left.len()), (0, &None, 0));
    assert_eq!(block.arrays.len(), 1);
    assert_eq!((block.arrays[0].bytes, block.views[0].0.as_str(), block.views[0].2), (256, "out", 256));
    // One order: the barrier is complete when both warps wait, and before either goes on.
    let numbers: Vec<_> = block.steps.iter().map(|step| step.number).collect();
    assert_eq!(numbers, (1..=block.steps.len() as u64).collect::<Vec<_>>());
    let at = |kind| block.steps.iter().position(|step| step.kind == kind).unwrap();
    let last_wait = block.steps.iter().rposition(|step| step.kind == K::Wait).unwrap();
    assert!(last_wait < at(K::Complete) && at(K::Complete) < at(K::Passed));
    let wait = &block.steps[at(K::Wait)];
    assert_eq!((wait.barrier, wait.phase), (Some(StepBarrier::Block), Some(0)));
    assert_eq!(wait.line.as_ref().unwrap().line, line_of(SOURCE, "barrier"));
    let load = block
        .steps
        .iter()
        .find(|step| step.line.as_ref().is_some_and(|it| it.line == line_of(SOURCE, "even")))
        .unwrap();
    assert_eq!((load.kind, load.memory, load.bytes), (K::SharedLoad, Some(StepMemory::Shared(0)), 64));
    // Of warp 0 every other word from the end on.
    assert_eq!(load.ranges.first(), Some(&(33 * 4..34 * 4)));
    assert_eq!((load.ranges.len(), load.ranges.last()), (16, Some(&(63 * 4..64 * 4))));
}

#[test]
fn a_race_is_the_last_step_and_the_same_as_without_recording() {
    let mut out = [0; 64];
    let kernel = reverses { has_barrier: 0, out: GlobalSliceMut::new(&mut out) };
    let (result, launch) = record(kernel, 1, StepOptions::default());
    let kernel = reverses { has_barrier: 0, out: GlobalSliceMut::new(&mut out) };
    // SAFETY: as for `record`.
    let without = unsafe { Executor::new(Checks::Full).launch(kernel, Dim3::from(1)) };
    let (Err(LaunchError::Fault(fault)), Err(LaunchError::Fault(without))) = (result, without) else { panic!() };
    assert_eq!(fault, without);
    let block = &launch.blocks[0];
    assert_eq!(block.fault.as_ref(), Some(&fault));
    let last = block.steps.last().unwrap();
    assert_eq!((last.kind, last.line.as_ref()), (StepKind::Fault, fault.location.as_ref()));
    assert!(last.text.contains("a race"), "{}", last.text);
    assert!(block.left.iter().any(|left| left.place == "has failed"), "{:?}", block.left);
}

/// The second warp never arrives.
#[kernel(block = 64, dynamic_shared = 8)]
fn waits_forever() {
    unsafe {
        let barrier = Barrier::at(dynamic_shared(0, 1), 0);
        if thread::thread_idx_x() == 0 {
            barrier.init(2);
        }
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            barrier.arrive();
        }
        if thread::thread_idx_x() < 32 {
            barrier.wait(0); // <endless>
        }
    }
}

#[test]
fn who_waits_for_what_is_told_when_nobody_can_go_on() {
    let (result, launch) = record(waits_forever {}, 1, StepOptions::default());
    let Err(LaunchError::Fault(fault)) = result else { panic!() };
    assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
    let [left] = &launch.blocks[0].left[..] else { panic!("{:?}", launch.blocks[0].left) };
    assert_eq!((left.warp, left.threads, left.line.as_ref().unwrap().line), (0, 32, line_of(SOURCE, "endless")));
    assert!(left.place.contains("lacks 1 of 2 arrivals"), "{}", left.place);
    let last_wait = launch.blocks[0].steps.iter().rfind(|step| step.kind == StepKind::Wait).unwrap();
    assert_eq!((last_wait.barrier, last_wait.phase), (Some(StepBarrier::Mbarrier(0)), Some(0)));
}

/// Never ends, and writes something else each time.
#[kernel(block = 32)]
fn counts_forever(out: GlobalSliceMut<'_, u32>) {
    for i in 0.. {
        unsafe { out.set_unchecked((i & 31) as usize, i) }
        if i == u32::MAX {
            break;
        }
    }
}

/// Waits by plain reads for what nobody writes.
#[kernel(block = 32)]
fn reads_forever(out: GlobalSliceMut<'_, u32>) {
    unsafe { while out.get_unchecked(0) == 0 {} }
}

#[test]
fn a_kernel_that_never_ends_is_ended() {
    let mut out = [0; 32];
    let options = StepOptions { limit: 50, budget: 100_000, ..StepOptions::default() };
    let (result, launch) = record(counts_forever { out: GlobalSliceMut::new(&mut out) }, 1, options);
    let Err(LaunchError::Fault(fault)) = result else { panic!() };
    assert_eq!(fault.kind, FaultKind::StepBudget { steps: 100_000 });
    let block = &launch.blocks[0];
    // What is kept of them, and how it ended.
    assert_eq!((block.steps.len(), block.steps.last().unwrap().kind), (51, StepKind::Fault));
    assert!(block.more > 90_000, "{}", block.more);

    // That nothing changes, the executor sees by what is on the stack, where the recorder may leave numbers of its own, as it was compiled.
    // Then the budget ends it.
    let mut out = [0; 32];
    let options = StepOptions { budget: 1_000_000, ..StepOptions::default() };
    let (result, launch) = record(reads_forever { out: GlobalSliceMut::new(&mut out) }, 1, options);
    let Err(LaunchError::Fault(fault)) = result else { panic!() };
    assert!(matches!(fault.kind, FaultKind::Stuck { .. } | FaultKind::StepBudget { .. }), "{fault}");
    let loads: u64 = launch.blocks[0].steps.iter().map(|step| step.times).sum();
    assert!(loads > 4000 && launch.blocks[0].steps.len() < 100, "{loads} in {} steps", launch.blocks[0].steps.len());
}

const STAGES: usize = 2;
const ROWS: usize = 64;
const COLUMNS: usize = 64;
const ROW: usize = 32;
const STAGE: usize = (ROWS + COLUMNS) * ROW;

/// A product of 64 rows and columns: one warp has TMA load A and B into two stages, and a warpgroup multiplies.
#[kernel(block = 160, dynamic_shared = 4 * 2 * (64 + 64) * 32 + 32)]
fn pipeline(steps: u32, a: TensorMap<'_>, b: TensorMap<'_>, out: GlobalSliceMut<'_, f32>) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, STAGES * STAGE);
        let barriers: SharedSlice<u64> = dynamic_shared(4 * STAGES * STAGE, 2 * STAGES);
        let (full, empty) =
            (|stage: usize| Barrier::at(barriers, stage), |stage: usize| Barrier::at(barriers, STAGES + stage));
        let me = thread::thread_idx_x() as usize;
        if me == 0 {
            for stage in 0..STAGES {
                full(stage).init(1);
                empty(stage).init(4);
            }
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        if me >= 128 {
            if me == 128 {
                for step in 0..steps {
                    let (stage, round) = (step as usize % STAGES, step / STAGES as u32);
                    if round > 0 {
                        empty(stage).wait((round - 1) % 2); // <wait empty>
                    }
                    full(stage).arrive_expecting(4 * STAGE as u32);
                    hopper::load_tile(memory, stage * STAGE, a, [ROW as u32 * step, 0, 0], full(stage)); // <load a>
                    hopper::load_tile(memory, stage * STAGE + ROWS * ROW, b, [ROW as u32 * step, 0, 0], full(stage));
                }
            }
            return;
        }
        let mut sums = [0f32; COLUMNS / 2];
        for step in 0..steps {
            let (stage, round) = (step as usize % STAGES, step / STAGES as u32);
            full(stage).wait(round % 2); // <wait full>
            let of_a = Descriptor::at(memory, stage * STAGE);
            let of_b = Descriptor::at(memory, stage * STAGE + ROWS * ROW);
            wgmma::fence();
            for k in 0..4 {
                if step == 0 && k == 0 {
                    sums.set_shared::<Tf32>(of_a, of_b);
                } else {
                    sums.add_shared::<Tf32>(of_a.offset(32 * k), of_b.offset(32 * k)); // <product>
                }
            }
            wgmma::commit();
            sums.wait::<0>();
            if me.is_multiple_of(32) {
                empty(stage).arrive(); // <arrive empty>
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let (g, q) = (me % 32 / 4, me % 4);
            let (row, col) = (me / 32 * 16 + g + i / 2 % 2 * 8, i / 4 * 8 + 2 * q + i % 2);
            out.set_unchecked(row * COLUMNS + col, sum);
        }
    }
}

fn map(memory: &[f32], terms: usize) -> TensorMap<'_> {
    let rows = memory.len() / terms;
    let layout = TileLayout {
        element: TileElement::Bytes4,
        extents: [terms as u64, rows as u64, 1],
        byte_strides: [4, 4 * terms as u64, 4 * memory.len() as u64],
        tile: [ROW as u32, rows as u32, 1],
        swizzle: TileSwizzle::Bytes128,
    };
    // SAFETY: the extents are those of the memory; the executor does not look at the words.
    unsafe { TensorMap::from_raw_parts([0; 16], memory.as_ptr().cast(), size_of_val(memory), layout) }
}

#[test]
fn a_pipeline_of_tma_and_tensor_cores_is_seen_transfer_by_transfer() {
    const STEPS: usize = 5;
    let terms = STEPS * ROW;
    let (a, b) = (vec![1.0; ROWS * terms], vec![0.5; COLUMNS * terms]);
    let mut out = vec![0.0; ROWS * COLUMNS];
    let run = |out: &mut [f32]| {
        let (a, b, out) = (map(&a, terms), map(&b, terms), GlobalSliceMut::new(out));
        let (result, launch) = record(pipeline { steps: STEPS as u32, a, b, out }, 1, StepOptions::default());
        result.unwrap();
        launch
    };
    let launch = run(&mut out);
    assert!(out.iter().all(|sum| *sum == 0.5 * terms as f32));
    let steps = &launch.blocks[0].steps;
    let of = |kind| steps.iter().filter(move |step| step.kind == kind);
    assert_eq!((of(StepKind::TmaLoad).count(), of(StepKind::TmaLoaded).count()), (2 * STEPS, 2 * STEPS));
    for load in of(StepKind::TmaLoad) {
        let loaded = of(StepKind::TmaLoaded).find(|loaded| loaded.transfer == load.transfer).unwrap();
        assert!(load.number < loaded.number && loaded.by == StepActor::Tma);
        assert_eq!((&load.ranges, load.bytes, load.barrier), (&loaded.ranges, 8192, loaded.barrier));
    }
    // Nobody reads a stage before its phase is over, and TMA does not load into it before it has been read.
    let full = |stage: usize| Some(StepBarrier::Mbarrier(4 * STAGES * STAGE + 8 * stage));
    for (step, product) in
        of(StepKind::Wgmma).filter(|it| it.by == StepActor::Warp { warp: 0, lanes: u32::MAX }).enumerate()
    {
        let (stage, round) = (step / 4 % STAGES, (step / 4 / STAGES) as u64);
        let over = |it: &&Step| it.barrier == full(stage) && it.phase == Some(round);
        assert!(of(StepKind::Complete).find(over).unwrap().number < product.number);
        assert!(product.ranges.iter().all(|range| range.start / (4 * STAGE) == stage), "{product:?}");
    }
    assert_eq!(of(StepKind::Arrive).filter(|it| it.text == "expects bytes").count(), STEPS);
    let first = of(StepKind::TmaLoad).next().unwrap();
    assert_eq!(first.text, "tile 32×64×1 of 4 bytes each at (0, 0, 0) of `a`");
    assert_eq!(first.line.as_ref().unwrap().line, line_of(SOURCE, "load a"));
    let last = of(StepKind::TmaLoad).next_back().unwrap();
    assert!(last.text.contains("(128, 0, 0) of `b`"), "{}", last.text);
    // The same again, number by number.
    assert_eq!(launch, run(&mut out));
}

/// Blocks add up their numbers one after the other, in the order of a lock.
#[kernel(block = 32)]
fn takes_turns(lock: GlobalAtomics<'_, u32>, out: GlobalSliceMut<'_, u32>) {
    let me = thread::block_idx_x();
    if thread::thread_idx_x() == 0 {
        while lock.get(0).unwrap().load(Acquire, Scope::Device) != me {}
        unsafe { out.set_unchecked(0, out.get_unchecked(0) * 3 + me) }
        lock.get(0).unwrap().store(me + 1, Release, Scope::Device);
        let _ = lock.get(1).unwrap().fetch_add(1, Relaxed, Scope::Device);
    }
}

#[test]
fn several_blocks_have_one_order_and_results_do_not_change() {
    let blocks = [2, 0, 1].map(|x| Dim3::new(x, 0, 0)).to_vec();
    let run = |options: Option<StepOptions>| {
        let (mut lock, mut out) = ([0u32; 2], [1u32]);
        let steps = options.map(|options| Arc::new(Steps::new(options)));
        let executor = Executor::new(Checks::Full).schedule(7);
        let executor = match &steps {
            Some(steps) => executor.with_steps(Arc::clone(steps)),
            None => executor,
        };
        let kernel = takes_turns { lock: GlobalAtomics::new(&mut lock), out: GlobalSliceMut::new(&mut out) };
        // SAFETY: as for `record`.
        unsafe { executor.launch(kernel, Dim3::from(4)) }.unwrap();
        (out, lock, steps.and_then(|steps| steps.launch()))
    };
    let (out, lock, _) = run(None);
    let options = StepOptions { blocks, kernel: Some("takes_turns".into()), ..StepOptions::default() };
    let (recorded_out, recorded_lock, launch) = run(Some(options.clone()));
    assert_eq!((out, lock), (recorded_out, recorded_lock));
    let launch = launch.unwrap();
    assert_eq!(launch.blocks.iter().map(|block| block.block.x).collect::<Vec<_>>(), [0, 1, 2]);
    let store = |block: usize| {
        launch.blocks[block].steps.iter().find(|step| step.kind == StepKind::GlobalStore).unwrap().number
    };
    assert!(store(0) < store(1) && store(1) < store(2));
    assert!(run(Some(StepOptions { kernel: Some("another".into()), ..options.clone() })).2.is_none());
    assert!(run(Some(StepOptions { launch: 1, ..options })).2.is_none());
}

/// Everything else that is recorded, by two warps.
#[kernel(block = 64, dynamic_shared = 1024)]
fn does_everything(x: GlobalSlice<'_, f32>, out: GlobalSliceMut<'_, f32>, sum: GlobalAtomics<'_, u32>) {
    static TOTAL: Shared<[u32; 1]> = Shared::new();
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, 256);
        let me = thread::thread_idx_x() as usize;
        copy_async::<4, _>(&memory, 4 * me, &x, 4 * me, 4);
        commit_group();
        wait_group::<0>();
        hopper::sync_part::<64>(3);
        let value = memory.read(4 * (me ^ 32));
        let (other, _) = warp::warp_shuffle_xor(warp::ALL_LANES, value, 1, 32);
        let _ = warp::warp_vote_all(warp::ALL_LANES, other > 0.0);
        warp::sync_warp(warp::ALL_LANES);
        if me == 0 {
            TOTAL.write(0, 0);
            gpu_println!("first {}", other);
        }
        thread::sync_threads();
        let _ = TOTAL.atomic(0).fetch_add(1, Relaxed, Scope::Block);
        fence(AcqRel, Scope::Device);
        let _ = sum.get(0).unwrap().fetch_add(1, Relaxed, Scope::Device);
        let _ = thread::clock64();
        out.set_unchecked(me, other);
    }
}

#[test]
fn every_kind_of_step_of_a_warp_is_recorded() {
    use StepKind as K;
    let (x, mut out, mut sum) = ([1.0f32; 256], [0.0; 64], [0u32]);
    let kernel = does_everything {
        x: GlobalSlice::new(&x),
        out: GlobalSliceMut::new(&mut out),
        sum: GlobalAtomics::new(&mut sum),
    };
    let (result, launch) = record(kernel, 1, StepOptions::default());
    result.unwrap();
    let steps = &launch.blocks[0].steps;
    for kind in [
        K::AsyncCopy,
        K::AsyncCopyCommit,
        K::AsyncCopyWait,
        K::SharedLoad,
        K::Shuffle,
        K::Vote,
        K::SyncWarp,
        K::SharedStore,
        K::Print,
        K::Wait,
        K::Passed,
        K::SharedAtomic,
        K::Fence,
        K::GlobalAtomic,
        K::Clock,
        K::GlobalStore,
        K::End,
    ] {
        let lanes: u32 = of_warp(&launch, 0).iter().filter(|(of, _)| *of == kind).map(|(_, lanes)| *lanes).sum();
        let barriers = if matches!(kind, K::Wait | K::Passed) { 2 } else { 1 };
        let expected = if matches!(kind, K::SharedStore | K::Print) { 1 } else { 32 * barriers };
        assert_eq!(lanes, expected, "{kind:?}");
    }
    let one =
        |kind, wanted: &dyn Fn(&Step) -> bool| steps.iter().find(|step| step.kind == kind && wanted(step)).unwrap();
    let copy = one(K::AsyncCopy, &|_| true);
    assert_eq!((copy.bytes, copy.phase, copy.ranges.first()), (512, Some(0), Some(&(0..512))));
    assert_eq!(one(K::AsyncCopyWait, &|_| true).ranges, copy.ranges);
    let named = one(K::Wait, &|step| step.barrier == Some(StepBarrier::Named(3)));
    assert_eq!((named.phase, named.text.as_str()), (Some(0), "64 threads"));
    one(K::Complete, &|step| step.barrier == Some(StepBarrier::Named(3)));
    assert!(one(K::Print, &|_| true).text.starts_with("first 1"));
    assert_eq!(one(K::Fence, &|_| true).text, "device");
    assert_eq!(one(K::GlobalAtomic, &|_| true).memory, Some(StepMemory::View(2)));
}
