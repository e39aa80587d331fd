//! What accesses would cost on a GPU, by line: sectors of global memory, bank conflicts, lanes that take part.

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use cuda_std::atomic::{Acquire, Relaxed, Scope};
use cuda_std::executor::{Checks, Cost, CostKind, Costs, Executor, KernelCosts};
use cuda_std::hopper::{self, Barrier};
use cuda_std::ldmatrix::ldmatrix_x4;
use cuda_std::prelude::*;
use cuda_std::{Dim3, Kernel, cluster};

const SOURCE: &str = include_str!("costs.rs");

/// A 32×32 tile is transposed by way of shared memory, whose lines have a gap or not; 8 rows at a time.
#[kernel(block = (32, 8))]
fn transpose(padded: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static PLAIN: Shared<[[f32; 32]; 32]> = Shared::new();
    static PADDED: Shared<[[f32; 33]; 32]> = Shared::new();
    let (column, first) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    // SAFETY: each thread has elements of its own, and a barrier comes between writes and reads.
    unsafe {
        for row in (first..32).step_by(8) {
            let value = x.get_unchecked(32 * row + column); // <load>
            if padded != 0 {
                PADDED.write([row, column], value); // <store padded>
            } else {
                PLAIN.write([row, column], value); // <store plain>
            }
        }
        thread::sync_threads(); // <barrier>
        for row in (first..32).step_by(8) {
            let value = if padded != 0 {
                PADDED.read([column, row]) // <read padded>
            } else {
                PLAIN.read([column, row]) // <read plain>
            };
            y.set_unchecked(32 * row + column, value); // <store>
        }
    }
}

/// Accesses of different kinds by one warp.
#[kernel(block = 32, dynamic_shared = 2048)]
fn many_kinds(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id() as usize;
    // SAFETY: as many bytes as the kernel has.
    let memory = unsafe { dynamic_shared::<f32>(0, 512) };
    // SAFETY: each lane has elements of its own, and `sync_warp` comes between writes and reads.
    unsafe {
        memory.write4(4 * lane, x.get4_unchecked(4 * lane)); // <vectors>
        warp::sync_warp(warp::ALL_LANES);
        let _ = ldmatrix_x4(&memory, 4 * lane); // <matrices>
        if lane < 8 {
            let _ = x.get_unchecked(16 * lane); // <some lanes>
        }
        y.atomic_unchecked(lane / 4).fetch_add(1, Relaxed, Scope::Device); // <atomics>
    }
}

/// Each lane adds to elements of its own in a loop, and lets other blocks run at each; what it read before is not lost by that.
#[kernel(block = 32)]
fn stops_often(x: GlobalSlice<'_, f32>, sums: GlobalAtomics<'_, u32>) {
    let lane = warp::lane_id() as usize;
    for round in 0..4 {
        let Some(value) = x.get(32 * round + lane) else { return }; // <checked>
        if value > 0.5
            && let Some(sum) = sums.get(32 * round + lane)
        {
            sum.fetch_add(1, Relaxed, Scope::Device); // <some add>
        }
    }
    if let Some(sum) = sums.get(lane) {
        sum.load(Acquire, Scope::Device); // <atomic load>
    }
}

const ROUNDS: usize = 3;

/// Two warps meet at a numbered barrier and load, round after round: whoever comes last need not stop at the barrier.
#[kernel(block = 64)]
fn meets_at_number(x: GlobalSlice<'_, f32>) {
    for round in 0..ROUNDS {
        // SAFETY: all threads of the block come to the barrier.
        unsafe { hopper::sync_part::<64>(1) }; // <numbered>
        x.get(64 * round + thread::thread_idx_x() as usize); // <load behind the number>
    }
}

/// A warp arrives for a phase, waits for it and loads, round after round; then it waits for the last phase again, which is over.
#[kernel(block = 32, dynamic_shared = 8)]
fn meets_for_phases(x: GlobalSlice<'_, f32>) {
    let lane = warp::lane_id() as usize;
    // SAFETY: the barrier is initialized before anybody uses it, and for as many arrivals as there are.
    unsafe {
        let barrier = Barrier::at(dynamic_shared(0, 1), 0);
        if lane == 0 {
            barrier.init(32);
        }
        thread::sync_threads();
        for round in 0..ROUNDS {
            barrier.arrive();
            barrier.wait(round as u32 % 2); // <phase>
            x.get(32 * round + lane); // <load behind the phase>
        }
        for round in 0..ROUNDS {
            barrier.wait((ROUNDS as u32 - 1) % 2); // <phase that is over>
            x.get(32 * round + lane); // <load behind the phase that is over>
        }
    }
}

/// Two blocks of a cluster meet and load.
#[kernel(block = 64, cluster = 2)]
fn meets_in_cluster(x: GlobalSlice<'_, f32>) {
    let thread = thread::thread_idx_x() as usize;
    for round in 0..ROUNDS {
        // SAFETY: all threads of the cluster come to it, and none has arrived before.
        unsafe { cluster::sync() }; // <meeting>
        x.get(64 * round + thread); // <load behind the meeting>
    }
    // SAFETY: all threads arrive once, and wait once behind that.
    unsafe {
        cluster::arrive(); // <arrival>
        x.get(thread); // <load behind the arrival>
        cluster::wait(); // <end of the meeting>
    }
}

#[repr(align(128))]
struct Aligned<T>(T);

fn costs<K: Kernel>(kernel: K) -> KernelCosts {
    costs_of_grid(kernel, 1)
}

fn costs_of_grid<K: Kernel>(kernel: K, blocks: u32) -> KernelCosts {
    let costs = Arc::new(Costs::default());
    let executor = Executor::new(Checks::Bounds).with_costs(costs.clone());
    // SAFETY: the views are of slices that the callers borrow.
    unsafe { executor.launch(kernel, Dim3::from(blocks)) }.unwrap();
    let mut kernels = costs.kernels();
    assert_eq!(kernels.len(), 1);
    kernels.remove(0)
}

/// What a marked line costs.
fn of_line(costs: &KernelCosts, kind: CostKind, mark: &str) -> Cost {
    let line = common::line_of(SOURCE, mark);
    let lines: Vec<_> = costs.lines.iter().filter(|it| it.line.line == line && it.kind == kind).collect();
    assert_eq!(lines.len(), 1, "{mark}: {costs}");
    lines[0].cost
}

#[test]
fn a_gap_in_each_line_takes_bank_conflicts_away() {
    for (padded, conflicts) in [(0, 31), (1, 0)] {
        let (x, mut y) = (Aligned([1.0; 1024]), Aligned([0.0; 1024]));
        let (x, y) = (GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut y.0));
        let costs = costs(transpose { padded, x, y });
        let (read, stored) = match padded {
            0 => ("read plain", "store plain"),
            _ => ("read padded", "store padded"),
        };
        // 8 warps have 4 rows each.
        let requests = 32;
        let load = Cost { requests, lanes: 32 * requests, bytes: 4096, sectors: 4 * requests, ..Cost::default() };
        assert_eq!(of_line(&costs, CostKind::GlobalLoad, "load"), load);
        assert_eq!(of_line(&costs, CostKind::GlobalStore, "store"), load);
        let shared = |conflicts| {
            let wavefronts = (1 + conflicts) * requests;
            Cost { sectors: 0, wavefronts, conflicts: conflicts * requests, ..load }
        };
        assert_eq!(of_line(&costs, CostKind::SharedStore, stored), shared(0));
        assert_eq!(of_line(&costs, CostKind::SharedLoad, read), shared(conflicts));
        assert_eq!(of_line(&costs, CostKind::Wait, "barrier").requests, 8);
        assert_eq!(costs.total(CostKind::SharedLoad), shared(conflicts));
        assert_eq!((costs.kernel, costs.launches), ("transpose", 1));
    }
}

#[test]
fn vectors_matrices_and_some_lanes_are_one_request_each() {
    let (x, mut y) = (Aligned([1.0; 128]), Aligned([0; 8]));
    let costs = costs(many_kinds { x: GlobalSlice::new(&x.0), y: GlobalSliceMut::new(&mut y.0) });
    let all = Cost { requests: 1, lanes: 32, bytes: 512, sectors: 0, wavefronts: 0, conflicts: 0 };
    assert_eq!(of_line(&costs, CostKind::GlobalLoad, "vectors"), Cost { sectors: 16, ..all });
    assert_eq!(of_line(&costs, CostKind::SharedStore, "vectors"), Cost { wavefronts: 4, ..all });
    assert_eq!(of_line(&costs, CostKind::SharedLoad, "matrices"), Cost { wavefronts: 4, ..all });
    let some = Cost { lanes: 8, bytes: 32, sectors: 8, ..all };
    assert_eq!(of_line(&costs, CostKind::GlobalLoad, "some lanes"), some);
    // Four lanes add to each of eight elements.
    let atomics = Cost { bytes: 32, sectors: 1, conflicts: 24, ..all };
    assert_eq!(of_line(&costs, CostKind::GlobalAtomic, "atomics"), atomics);
    assert_eq!(some.used(), Some(0.125));
}

#[test]
fn what_a_warp_does_together_is_one_request_though_each_lane_stops_at_its_atomics() {
    // Every lane leaves out one of four rounds.
    let mut x = Aligned([1.0; 128]);
    (0..32).for_each(|lane| x.0[32 * (lane % 4) + lane] = 0.0);
    let mut sums = Aligned([0u32; 128]);
    let sums_view = GlobalAtomics::new(&mut sums.0);
    let costs = costs(stops_often { x: GlobalSlice::new(&x.0), sums: sums_view });
    let read = Cost { requests: 4, lanes: 128, bytes: 512, sectors: 16, ..Cost::default() };
    assert_eq!(of_line(&costs, CostKind::GlobalLoad, "checked"), read);
    assert_eq!(of_line(&costs, CostKind::GlobalAtomic, "some add").requests, 4);
    assert_eq!(of_line(&costs, CostKind::GlobalAtomic, "some add").lanes, 96);
    assert_eq!(of_line(&costs, CostKind::GlobalAtomicLoad, "atomic load").sectors, 4);
}

/// Every warp executes the wait once for a round, and the load behind it once, though not all of its lanes find that they have to wait.
#[test]
fn lanes_that_need_not_wait_are_in_step_with_those_that_do() {
    let x = Aligned([1.0; 64 * ROUNDS]);
    let x = GlobalSlice::new(&x.0);
    let rounds = ROUNDS as u64;
    let require = |costs: &KernelCosts, warps: u64, [wait, load]: [&str; 2]| {
        let waits = Cost { requests: warps, lanes: 32 * warps, ..Cost::default() };
        assert_eq!(of_line(costs, CostKind::Wait, wait), waits, "{wait}: {costs}");
        let loads =
            Cost { requests: warps, lanes: 32 * warps, bytes: 128 * warps, sectors: 4 * warps, ..Cost::default() };
        assert_eq!(of_line(costs, CostKind::GlobalLoad, load), loads, "{load}: {costs}");
    };
    require(&costs(meets_at_number { x }), 2 * rounds, ["numbered", "load behind the number"]);
    let of_phases = costs(meets_for_phases { x });
    require(&of_phases, rounds, ["phase", "load behind the phase"]);
    require(&of_phases, rounds, ["phase that is over", "load behind the phase that is over"]);
    let of_cluster = costs_of_grid(meets_in_cluster { x }, 2);
    require(&of_cluster, 4 * rounds, ["meeting", "load behind the meeting"]);
    require(&of_cluster, 4, ["end of the meeting", "load behind the arrival"]);
    let arrival = common::line_of(SOURCE, "arrival");
    assert!(of_cluster.lines.iter().all(|cost| cost.line.line != arrival), "who arrives does not wait: {of_cluster}");
}

#[test]
fn a_table_has_a_row_for_each_line_and_the_sums() {
    let (x, mut y) = (Aligned([1.0; 1024]), Aligned([0.0; 1024]));
    let (x, y) = (GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut y.0));
    let table = costs(transpose { padded: 0, x, y }).to_string();
    let row = |begin: &str, what: &str| {
        let rows: Vec<_> = table.lines().filter(|row| row.contains(begin) && row.contains(what)).collect();
        assert_eq!(rows.len(), 1, "{table}");
        rows[0].split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    let load = format!("costs.rs:{}", common::line_of(SOURCE, "load"));
    assert_eq!(row(&load, "global load"), "global load 32 32.0 128 4.0 100 %");
    assert_eq!(row("all lines", "shared load"), "lines shared load 32 32.0 1024 992");
}
