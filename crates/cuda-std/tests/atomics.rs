//! Atomic operations, and what they order: patterns by which blocks and warps tell one another what they have done, each right and with
//! one order, fence or scope too weak.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, line_of};
use cuda_std::Kernel;
use cuda_std::atomic::{AcqRel, Acquire, Bf16x2, F16x2, Relaxed, Release, Scope, SeqCst, fence};
use cuda_std::executor::{AccessKind, Checks, Executor, Fault, FaultKind, LaunchError};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("atomics.rs");

/// How many orders of blocks each kernel is run in.
const SCHEDULES: u64 = 20;

/// Runs a kernel in many orders of its blocks, with `look` at what each leaves.
fn in_all_orders<K: Kernel>(
    checks: Checks,
    window: usize,
    grid: u32,
    mut run: impl FnMut(&mut dyn FnMut(K) -> Result<(), LaunchError>),
) {
    for seed in 0..SCHEDULES {
        let executor = Executor::new(checks).window(window).schedule(seed);
        run(&mut |kernel| unsafe { executor.launch(kernel, grid.into()) });
    }
}

/// The lines of a race in global memory, the earlier one first, and whether the threads are of two blocks.
fn lines_of_race(fault: &Fault) -> ([u32; 2], bool) {
    let FaultKind::GlobalRace { other, block, .. } = &fault.kind else { panic!("expected a race, got: {fault}") };
    let mut lines = [other.location.line, fault.location.as_ref().unwrap().line];
    lines.sort_unstable();
    (lines, block.is_some())
}

fn fault_of(result: Result<(), LaunchError>) -> Fault {
    match result {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("expected a fault, got {other:?}"),
    }
}

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

// Races that nothing excuses.

/// All threads add to one element.
#[kernel(block = 64)]
fn all_add(how: u32, x: GlobalSliceMut<'_, u32>) {
    unsafe {
        match how {
            0 => x.set_unchecked(0, x.get_unchecked(0) + 1), // <plain sum>
            1 => _ = x.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device),
            2 => _ = x.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Block), // <for its block>
            3 if thread::index_1d() == 70 => _ = x.get_unchecked(0),            // <read beside>
            3 => _ = x.atomic_unchecked(0).fetch_add(1, Relaxed, Scope::Device), // <add beside>
            _ => _ = x.atomic_unchecked(0).fetch_add(1, AcqRel, Scope::Device),
        }
    }
}

#[test]
fn sums_in_one_element_are_races_unless_atomic() {
    let run = |checks, how, blocks: u32| {
        let mut x = [0];
        let result = common::launch(checks, all_add { how, x: GlobalSliceMut::new(&mut x) }, blocks);
        (result, x[0])
    };
    for blocks in [1, 2] {
        assert_eq!(lines_of_race(&fault_of(run(Checks::Full, 0, blocks).0)).0, [line("plain sum"); 2]);
    }
    for checks in ALL_CHECKS {
        let (result, sum) = run(checks, 1, 5);
        result.unwrap();
        assert_eq!(sum, 320);
        run(checks, 2, 1).0.unwrap();
        assert_eq!(fault_of(run(checks, 4, 1).0).kind, FaultKind::OrderedOutsideOfAtomics);
    }
    let fault = fault_of(run(Checks::Full, 2, 2).0);
    assert_eq!(lines_of_race(&fault), ([line("for its block"); 2], true));
    assert!(fault.to_string().contains("atomically, for its own block only, accesses"), "{fault}");
    assert_eq!(lines_of_race(&fault_of(run(Checks::Full, 3, 2).0)).0, [line("read beside"), line("add beside")]);
}

/// Blocks that write and read what others do.
#[kernel(block = 32)]
fn neighbours(how: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    unsafe {
        match how {
            // Each its own.
            0 => y.set_unchecked(i, x.get_unchecked(i)),
            // Everybody reads everything.
            1 => y.set_unchecked(i, (0..x.len()).map(|k| x.get_unchecked(k)).sum()),
            // A stride that is one too small.
            2 => y.set_unchecked(i - thread::block_idx_x() as usize, x.get_unchecked(i)), // <overlap>
            // Each reads what its neighbour has written: in its own block behind a barrier, but not in the next.
            3 => {
                y.set_unchecked(i, 1.0); // <write own>
                thread::sync_threads();
                let next = y.get_unchecked((i + 1) % y.len()); // <read next>
                thread::sync_threads();
                y.set_unchecked(i, next);
            }
            // The same within the block.
            4 => {
                let first = i / 32 * 32;
                y.set_unchecked(i, x.get_unchecked(i));
                thread::sync_threads();
                let next = y.get_unchecked(first + (i + 1) % 32);
                thread::sync_threads();
                y.set_unchecked(i, next);
            }
            // Without the second barrier, but within one warp that is synchronized.
            5 => {
                let first = i / 32 * 32;
                y.set_unchecked(i, x.get_unchecked(i));
                warp::sync_warp(warp::ALL_LANES);
                let next = y.get_unchecked(first + (i + 1) % 32); // <read of warp>
                y.set_unchecked(i, next); // <write of warp>
            }
            // Vectors that overlap by one element.
            _ => y.set2_unchecked(i / 2 * 2, [1.0; 2]), // <pair>
        }
    }
}

#[test]
fn what_blocks_do_to_the_same_elements_is_a_race() {
    #[repr(align(8))]
    struct Aligned([f32; 128]);
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let run = |how| {
        let mut y = Aligned([0.0; 128]);
        let kernel = neighbours { how, x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y.0) };
        common::launch(Checks::Full, kernel, 4).map(|()| y.0)
    };
    assert_eq!(run(0).unwrap()[..], x);
    assert_eq!(run(1).unwrap(), [8128.0; 128]);
    assert_eq!(run(4).unwrap()[..3], [1.0, 2.0, 3.0]);
    let race = |how| lines_of_race(&fault_of(run(how).map(|_| ())));
    assert_eq!(race(2), ([line("overlap"); 2], true));
    assert_eq!(race(3), ([line("write own"), line("read next")], true));
    assert_eq!(race(5), ([line("read of warp"), line("write of warp")], false));
    assert_eq!(race(6), ([line("pair"); 2], false));
}

// The last block adds up.

/// What is too weak.
const RIGHT: u32 = 0;
const RELAXED: u32 = 1;
const ONLY_RELEASE: u32 = 2;
const ONLY_ACQUIRE: u32 = 3;
const BLOCK_SCOPE: u32 = 4;
const BY_FENCES: u32 = 5;
const NO_FENCE_BEFORE: u32 = 6;
const NO_FENCE_BEHIND: u32 = 7;
const FENCE_OF_BLOCK: u32 = 8;
const NO_BARRIER: u32 = 9;
const SMALLER_FENCE_BEHIND: u32 = 10;
const WORK_BEHIND_FENCE: u32 = 11;

/// Each block writes 64 numbers, and the last one adds all of them up, by as many threads.
#[kernel(block = 64)]
fn last_block(weak: u32, parts: GlobalSliceMut<'_, f32>, done: GlobalAtomics<'_, u32>, total: GlobalSliceMut<'_, f32>) {
    static IS_LAST: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        parts.set_unchecked(thread::index_1d(), thread::index_1d() as f32); // <part>
        if weak != NO_BARRIER {
            thread::sync_threads();
        }
        if me == 0 {
            let counter = done.get(0).unwrap();
            let scope = if weak == FENCE_OF_BLOCK { Scope::Block } else { Scope::Device };
            let before = match weak {
                RELAXED => counter.fetch_add(1, Relaxed, Scope::Device),
                ONLY_RELEASE => counter.fetch_add(1, Release, Scope::Device),
                ONLY_ACQUIRE => counter.fetch_add(1, Acquire, Scope::Device),
                BLOCK_SCOPE => counter.fetch_add(1, AcqRel, Scope::Block), // <counted for its block>
                BY_FENCES | NO_FENCE_BEFORE | NO_FENCE_BEHIND | FENCE_OF_BLOCK | SMALLER_FENCE_BEHIND
                | WORK_BEHIND_FENCE => {
                    if weak != NO_FENCE_BEFORE {
                        fence(AcqRel, scope);
                    }
                    if weak == WORK_BEHIND_FENCE {
                        parts.set_unchecked(thread::index_1d(), thread::index_1d() as f32); // <part behind>
                    }
                    if weak >= SMALLER_FENCE_BEHIND {
                        fence(AcqRel, Scope::Block);
                    }
                    let before = counter.fetch_add(1, Relaxed, Scope::Device);
                    if weak != NO_FENCE_BEHIND {
                        fence(SeqCst, scope);
                    }
                    before
                }
                _ => counter.fetch_add(1, AcqRel, Scope::Device),
            };
            IS_LAST.write(0, u32::from(before + 1 == thread::grid_dim_x()));
        }
        thread::sync_threads();
        if IS_LAST.read(0) == 1 {
            let mut sum = 0.0;
            for block in 0..thread::grid_dim_x() as usize {
                sum += parts.get_unchecked(64 * block + me); // <read all>
            }
            total.set_unchecked(me, sum);
        }
    }
}

#[test]
fn the_last_block_knows_what_all_have_done() {
    let run = |weak, launch: &mut dyn FnMut(last_block<'static>) -> Result<(), LaunchError>| {
        let (mut parts, mut done, mut total) = (vec![0.0; 7 * 64], vec![0], vec![0.0; 64]);
        // SAFETY: the vectors outlive the launch.
        let kernel = unsafe {
            last_block {
                weak,
                parts: GlobalSliceMut::from_raw_parts(parts.as_mut_ptr(), parts.len()),
                done: GlobalAtomics::from_raw_parts(done.as_mut_ptr(), 1),
                total: GlobalSliceMut::from_raw_parts(total.as_mut_ptr(), 64),
            }
        };
        launch(kernel).map(|()| total)
    };
    let expected: Vec<f32> = (0..64).map(|i| (0..7).map(|block| (64 * block + i) as f32).sum()).collect();
    for checks in ALL_CHECKS {
        for weak in [RIGHT, BY_FENCES, SMALLER_FENCE_BEHIND] {
            in_all_orders(checks, 4, 7, |launch| assert_eq!(run(weak, launch).unwrap(), expected));
        }
    }
    let race = [line("part"), line("read all")];
    for weak in [RELAXED, ONLY_RELEASE, ONLY_ACQUIRE, NO_FENCE_BEFORE, NO_FENCE_BEHIND, FENCE_OF_BLOCK, NO_BARRIER] {
        in_all_orders(Checks::Full, 4, 7, |launch| {
            let fault = fault_of(run(weak, launch).map(|_| ()));
            assert_eq!(lines_of_race(&fault).0, race, "{weak}: {fault}");
        });
    }
    in_all_orders(Checks::Full, 4, 7, |launch| {
        let fault = fault_of(run(WORK_BEHIND_FENCE, launch).map(|_| ()));
        assert_eq!(lines_of_race(&fault).0, [line("part behind"), line("read all")], "{fault}");
    });
    in_all_orders(Checks::Full, 4, 7, |launch| {
        let fault = fault_of(run(BLOCK_SCOPE, launch).map(|_| ()));
        assert_eq!(lines_of_race(&fault).0, [line("counted for its block"); 2], "{fault}");
    });
}

// Blocks that wait for the one before.

const NOBODY_BEGINS: u32 = 2;

/// Sums of all numbers up to each, block after block: a block waits for the sum of those before it (a chained scan).
#[kernel(block = 32)]
fn chained_scan(wrong: u32, y: GlobalSliceMut<'_, u64>, flags: GlobalAtomics<'_, u32>, sums: GlobalSliceMut<'_, u64>) {
    let (me, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    unsafe {
        if me == 0 {
            let mut sum = 0;
            if block > 0 || wrong == NOBODY_BEGINS {
                let flag = flags.get(block.saturating_sub(1)).unwrap();
                while flag.load(Acquire, Scope::Device) == 0 {} // <wait for the one before>
                sum = sums.get_unchecked(block.saturating_sub(1)); // <read sum>
            }
            for i in 0..32 {
                sum += y.get_unchecked(32 * block + i);
                y.set_unchecked(32 * block + i, sum);
            }
            sums.set_unchecked(block, sum); // <write sum>
            let flag = flags.get(block).unwrap();
            if wrong == RELAXED {
                flag.store(1, Relaxed, Scope::Device);
            } else {
                flag.store(1, Release, Scope::Device);
            }
        }
    }
}

fn run_scan(
    wrong: u32,
    blocks: usize,
    launch: &mut dyn FnMut(chained_scan<'static>) -> Result<(), LaunchError>,
) -> Result<Vec<u64>, LaunchError> {
    let (mut y, mut flags, mut sums) = (vec![1u64; 32 * blocks], vec![0u32; blocks], vec![0u64; blocks]);
    // SAFETY: the vectors outlive the launch.
    let kernel = unsafe {
        chained_scan {
            wrong,
            y: GlobalSliceMut::from_raw_parts(y.as_mut_ptr(), y.len()),
            flags: GlobalAtomics::from_raw_parts(flags.as_mut_ptr(), blocks),
            sums: GlobalSliceMut::from_raw_parts(sums.as_mut_ptr(), blocks),
        }
    };
    launch(kernel).map(|()| y)
}

#[test]
fn blocks_wait_for_those_before_them() {
    for checks in ALL_CHECKS {
        for window in [1, 2, 4, 9] {
            in_all_orders(checks, window, 9, |launch| {
                assert_eq!(run_scan(RIGHT, 9, launch).unwrap(), (1..=288).collect::<Vec<_>>());
            });
        }
        in_all_orders(checks, 4, 3, |launch| {
            let fault = fault_of(run_scan(NOBODY_BEGINS, 3, launch).map(|_| ()));
            assert!(matches!(fault.kind, FaultKind::Stuck { .. }), "{fault}");
            assert_eq!(fault.location.as_ref().unwrap().line, line("wait for the one before"));
            assert!(fault.to_string().contains("31 threads, the first of them (1, 0, 0), have returned"), "{fault}");
        });
    }
    in_all_orders(Checks::Full, 4, 9, |launch| {
        let fault = fault_of(run_scan(RELAXED, 9, launch).map(|_| ()));
        assert_eq!(lines_of_race(&fault).0, [line("read sum"), line("write sum")], "{fault}");
    });
}

/// All blocks meet in the middle: then each reads what the next has written.
#[kernel(block = 32)]
fn meet(weak: u32, x: GlobalSliceMut<'_, u32>, come: GlobalAtomics<'_, u32>) {
    let i = thread::index_1d();
    unsafe {
        x.set_unchecked(i, i as u32); // <before they meet>
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            let come = come.get(0).unwrap();
            if weak == RIGHT {
                come.fetch_add(1, Release, Scope::Device);
            } else {
                come.fetch_add(1, Relaxed, Scope::Device);
            }
            while come.load(Acquire, Scope::Device) < thread::grid_dim_x() {} // <wait for all>
        }
        thread::sync_threads();
        let next = x.get_unchecked((i + 32) % x.len()); // <behind>
        assert_eq!(next as usize, (i + 32) % x.len());
    }
}

#[test]
fn all_blocks_can_meet_if_they_run_at_the_same_time() {
    let run = |weak, launch: &mut dyn FnMut(meet<'static>) -> Result<(), LaunchError>| {
        let (mut x, mut come) = (vec![0; 5 * 32], vec![0]);
        // SAFETY: the vectors outlive the launch.
        launch(unsafe {
            meet {
                weak,
                x: GlobalSliceMut::from_raw_parts(x.as_mut_ptr(), x.len()),
                come: GlobalAtomics::from_raw_parts(come.as_mut_ptr(), 1),
            }
        })
    };
    for checks in ALL_CHECKS {
        in_all_orders(checks, 5, 5, |launch| run(RIGHT, launch).unwrap());
        in_all_orders(checks, 4, 5, |launch| {
            let fault = fault_of(run(RIGHT, launch));
            assert!(matches!(fault.kind, FaultKind::Stuck { blocks: 4, .. }), "{fault}");
            assert_eq!(fault.location.as_ref().unwrap().line, line("wait for all"));
        });
    }
    in_all_orders(Checks::Full, 5, 5, |launch| {
        let fault = fault_of(run(RELAXED, launch));
        assert_eq!(lines_of_race(&fault).0, [line("before they meet"), line("behind")], "{fault}");
    });
}

// Within a block.

/// A histogram in shared memory. `plain`: one thread adds without care.
#[kernel(block = 128)]
fn histogram(wrong: u32, x: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    static BINS: Shared<[u32; 16]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 16 && wrong != 1 {
            BINS.write(me, 0); // <zero>
        }
        if wrong != 2 {
            thread::sync_threads();
        }
        let bin = (x.get_unchecked(thread::index_1d()) % 16) as usize;
        if wrong == 3 && me == 77 {
            BINS.write(bin, BINS.read(bin) + 1); // <plain add>
        } else {
            BINS.atomic(bin).fetch_add(1, Relaxed, Scope::Block); // <add>
        }
        thread::sync_threads();
        if me < 16 {
            bins.atomic_unchecked(me).fetch_add(BINS.read(me), Relaxed, Scope::Device);
        }
    }
}

#[test]
fn threads_of_a_block_add_to_shared_memory() {
    let x: Vec<u32> = (0..512).map(|i| i * i).collect();
    let run = |checks, wrong| {
        let mut bins = vec![0; 16];
        let kernel = histogram { wrong, x: GlobalSlice::new(&x), bins: GlobalSliceMut::new(&mut bins) };
        common::launch(checks, kernel, 4).map(|()| bins)
    };
    let expected: Vec<u32> = (0..16).map(|bin| x.iter().filter(|x| **x % 16 == bin).count() as u32).collect();
    for checks in ALL_CHECKS {
        assert_eq!(run(checks, 0).unwrap(), expected);
    }
    let fault = |wrong| fault_of(run(Checks::Full, wrong).map(|_| ()));
    assert!(matches!(fault(1).kind, FaultKind::UnwrittenShared { .. }), "{}", fault(1));
    for (wrong, lines) in [(2, ["zero", "add"]), (3, ["plain add", "add"])] {
        let fault = fault(wrong);
        let FaultKind::Race { access, other, .. } = &fault.kind else { panic!("{fault}") };
        let mut found = [fault.location.as_ref().unwrap().line, other.location.line];
        found.sort_unstable();
        assert_eq!(found, lines.map(line), "{fault}");
        assert!(matches!(access, AccessKind::Atomic { .. }) || matches!(other.access, AccessKind::Atomic { .. }));
    }
}

/// Warp 0 makes numbers, and warp 1 takes them, by a flag in shared memory and no barrier.
#[kernel(block = 64)]
fn producer_and_consumer(weak: u32, out: GlobalSliceMut<'_, u32>) {
    static PLACE: Shared<[u32; 32]> = Shared::new();
    static FLAGS: Shared<[u32; 1]> = Shared::new();
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() as usize % 32);
    unsafe {
        let flag = FLAGS.atomic(0);
        if thread::thread_idx_x() == 0 {
            flag.store(0, Relaxed, Scope::Block);
        }
        thread::sync_threads();
        for round in 0..5u32 {
            if warp == 0 {
                while flag.load(Acquire, Scope::Block) != 2 * round {} // <wait until taken>
                PLACE.write(lane, 100 * round + lane as u32); // <make>
                warp::sync_warp(warp::ALL_LANES);
                if lane == 0 {
                    if weak == RELAXED {
                        flag.store(2 * round + 1, Relaxed, Scope::Block);
                    } else {
                        flag.store(2 * round + 1, Release, Scope::Block);
                    }
                }
            } else {
                while flag.load(Acquire, Scope::Block) != 2 * round + 1 {}
                out.set_unchecked((32 * round) as usize + lane, PLACE.read(31 - lane)); // <take>
                warp::sync_warp(warp::ALL_LANES);
                if lane == 0 {
                    flag.store(2 * round + 2, Release, Scope::Block);
                }
            }
        }
    }
}

#[test]
fn warps_wait_for_one_another_by_flags() {
    let run = |checks, weak| {
        let mut out = vec![0; 160];
        let result = common::launch(checks, producer_and_consumer { weak, out: GlobalSliceMut::new(&mut out) }, 1);
        result.map(|()| out)
    };
    for checks in ALL_CHECKS {
        let expected: Vec<u32> = (0..160).map(|i| 100 * (i / 32) + 31 - i % 32).collect();
        assert_eq!(run(checks, RIGHT).unwrap(), expected);
    }
    let fault = fault_of(run(Checks::Full, RELAXED).map(|_| ()));
    let FaultKind::Race { other, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!([other.location.line, fault.location.as_ref().unwrap().line], [line("make"), line("take")]);
}

/// Waits for what nobody writes, in a block by itself.
#[kernel(block = 2)]
fn waits_forever(out: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    unsafe {
        let flag = FLAG.atomic(0);
        flag.store(0, Relaxed, Scope::Block);
        if thread::thread_idx_x() == 1 {
            while flag.compare_exchange(1, 2, AcqRel, Scope::Block).is_err() {} // <forever>
        }
        thread::sync_threads(); // <the barrier before>
        out.set_unchecked(0, 1);
    }
}

#[test]
fn who_waits_for_a_value_that_never_comes_is_reported() {
    for checks in ALL_CHECKS {
        let mut out = [0];
        let fault = common::fault(checks, waits_forever { out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(fault.location.as_ref().unwrap().line, line("forever"), "{fault}");
        let FaultKind::Stuck { blocks: 1, .. } = &fault.kind else { panic!("{fault}") };
        let barrier = format!("waits at the barrier at {}:{}", file!(), line("the barrier before"));
        assert!(fault.to_string().contains(&barrier), "{fault}");
    }
}

// What the operations do.

/// All operations of an element type on one element each, by one thread.
macro_rules! operations {
    ($name:ident, $number:ty) => {
        #[kernel(block = 1)]
        fn $name(operand: GlobalSlice<'_, $number>, x: GlobalAtomics<'_, $number>, old: GlobalSliceMut<'_, $number>) {
            let at = |i| x.get(i).unwrap();
            unsafe {
                let b = operand.get_unchecked(0);
                let before = [
                    at(0).fetch_add(b, Relaxed, Scope::Device),
                    at(1).fetch_sub(b, Acquire, Scope::System),
                    at(2).fetch_min(b, Release, Scope::Cluster),
                    at(3).fetch_max(b, AcqRel, Scope::Device),
                    at(4).fetch_and(b, SeqCst, Scope::Device),
                    at(5).fetch_or(b, Relaxed, Scope::Block),
                    at(6).fetch_xor(b, Relaxed, Scope::Device),
                    at(7).swap(b, AcqRel, Scope::Device),
                    at(8).compare_exchange(b, 5, AcqRel, Scope::Device).unwrap_or_else(|other| other),
                ];
                at(9).store(b, Release, Scope::Device);
                for i in 0..9 {
                    old.set_unchecked(i, before[i]);
                }
                old.set_unchecked(9, at(9).load(SeqCst, Scope::Device));
            }
        }
    };
}

operations!(operations_u32, u32);
operations!(operations_i32, i32);
operations!(operations_u64, u64);
operations!(operations_i64, i64);

macro_rules! assert_operations {
    ($kernel:ident, $number:ty, $values:expr) => {
        for (a, b) in $values.into_iter().flat_map(|a: $number| $values.map(|b: $number| (a, b))) {
            let (mut x, mut old) = ([a; 10], [0; 10]);
            common::succeed(
                Checks::Full,
                $kernel {
                    operand: GlobalSlice::new(&[b]),
                    x: GlobalAtomics::new(&mut x),
                    old: GlobalSliceMut::new(&mut old),
                },
                1,
            );
            let exchanged = if a == b { 5 } else { a };
            let expected =
                [a.wrapping_add(b), a.wrapping_sub(b), a.min(b), a.max(b), a & b, a | b, a ^ b, b, exchanged, b];
            assert_eq!(x, expected, "{a} {b}");
            assert_eq!((old[..9].to_vec(), old[9]), (vec![a; 9], b));
        }
    };
}

#[test]
fn whole_numbers_wrap_around_and_are_compared_with_their_signs() {
    assert_operations!(operations_u32, u32, [0, 1, 7, u32::MAX, 0x8000_0000]);
    assert_operations!(operations_i32, i32, [0, 1, -7, i32::MAX, i32::MIN]);
    assert_operations!(operations_u64, u64, [0, 1, 7, u64::MAX, 1 << 40]);
    assert_operations!(operations_i64, i64, [0, 1, -7, i64::MAX, i64::MIN]);
}

/// Sums and extremes of numbers with a point, and of pairs.
#[kernel(block = 1)]
fn sums(
    x: GlobalAtomics<'_, f32>,
    wide: GlobalAtomics<'_, f64>,
    halves: GlobalAtomics<'_, F16x2>,
    bfloats: GlobalAtomics<'_, Bf16x2>,
    shared: GlobalSliceMut<'_, f32>,
) {
    static NUMBER: Shared<[f32; 1]> = Shared::new();
    let tiny = f32::from_bits(3);
    let add = |i: usize, b: f32| _ = x.get(i).unwrap().fetch_add(b, Relaxed, Scope::Device);
    unsafe {
        add(0, 1.5);
        add(1, tiny);
        add(2, f32::INFINITY);
        x.get(3).unwrap().fetch_min(-2.0, Relaxed, Scope::Device);
        x.get(4).unwrap().fetch_max(f32::NAN, Relaxed, Scope::Device);
        x.get(5).unwrap().fetch_max(9.0, Relaxed, Scope::Device);
        wide.get(0).unwrap().fetch_add(0.1, Relaxed, Scope::Device);
        wide.get(1).unwrap().fetch_min(-1.0, AcqRel, Scope::Device);
        halves.get(0).unwrap().fetch_add(F16x2(convert::f16x2(1.0, -70_000.0)), Relaxed, Scope::Device);
        bfloats.get(0).unwrap().fetch_add(Bf16x2(convert::bf16x2(0.5, 256.0)), Relaxed, Scope::Device);
        let number = NUMBER.atomic(0);
        number.store(tiny, Relaxed, Scope::Block);
        number.fetch_add(tiny, Relaxed, Scope::Block);
        shared.set_unchecked(0, number.load(Relaxed, Scope::Block));
    }
}

#[test]
fn sums_are_rounded_as_the_instructions_round_them() {
    let tiny = f32::from_bits(3);
    let (mut x, mut wide) = ([2.0, tiny, f32::NEG_INFINITY, 1.0, 1.0, f32::NAN], [0.2, 3.0]);
    let mut halves = [F16x2(convert::f16x2(2048.0, 5.0))];
    let (mut bfloats, mut shared) = ([Bf16x2(convert::bf16x2(256.0, 1.0))], [0.0]);
    common::succeed(
        Checks::Full,
        sums {
            x: GlobalAtomics::new(&mut x),
            wide: GlobalAtomics::new(&mut wide),
            halves: GlobalAtomics::new(&mut halves),
            bfloats: GlobalAtomics::new(&mut bfloats),
            shared: GlobalSliceMut::new(&mut shared),
        },
        1,
    );
    assert_eq!((x[0], x[1].to_bits(), x[2].to_bits()), (3.5, 0, 0x7FFF_FFFF));
    assert_eq!((x[3], x[4], x[5]), (-2.0, 1.0, 9.0));
    assert_eq!(wide, [0.1 + 0.2, -1.0]);
    assert_eq!(convert::from_f16x2(halves[0].0), [2048.0, f32::NEG_INFINITY], "ties to even");
    assert_eq!(bfloats[0].0, convert::bf16x2(256.0, 256.0), "both ties to even");
    assert_eq!(shared[0].to_bits(), 6, "subnormal numbers stay in shared memory");
}
