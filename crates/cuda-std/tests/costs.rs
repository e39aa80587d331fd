//! What accesses would cost on a GPU, by line: sectors of global memory, bank conflicts, lanes that take part.

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::sync::Arc;

use cuda_std::atomic::{Acquire, Relaxed, Scope};
use cuda_std::executor::{Checks, Cost, CostKind, Costs, Executor, KernelCosts};
use cuda_std::ldmatrix::ldmatrix_x4;
use cuda_std::prelude::*;
use cuda_std::{Dim3, Kernel};

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

#[repr(align(128))]
struct Aligned<T>(T);

fn costs<K: Kernel>(kernel: K) -> KernelCosts {
    let costs = Arc::new(Costs::default());
    let executor = Executor::new(Checks::Bounds).with_costs(costs.clone());
    // SAFETY: the views are of slices that the callers borrow.
    unsafe { executor.launch(kernel, Dim3::from(1)) }.unwrap();
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
    // To memory, an atomic load is a load.
    assert_eq!(of_line(&costs, CostKind::GlobalLoad, "atomic load").sectors, 4);
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
