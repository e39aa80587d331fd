//! Races in shared memory: each kernel in a right and a wrong version.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::Kernel;
use cuda_std::executor::{AccessKind, Checks, Fault, FaultKind, OtherAccess, SharedArrayName};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("races.rs");

/// The two accesses of a race, the earlier one first: thread, line, what it did.
fn race(fault: &Fault) -> [(Dim3, u32, AccessKind); 2] {
    let FaultKind::Race { access, other: OtherAccess { thread, location, access: other, .. }, .. } = &fault.kind else {
        panic!("expected a race, got: {fault}");
    };
    [(*thread, location.line, *other), (fault.thread, fault.location.as_ref().unwrap().line, *access)]
}

/// The lines of a race and what happens there, in the order of the lines.
fn lines(fault: &Fault) -> [(u32, AccessKind); 2] {
    let mut lines = race(fault).map(|(_, line, access)| (line, access));
    lines.sort_by_key(|(line, _)| *line);
    lines
}

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// `C = A·B` for n×n matrices, n a multiple of 16. `barriers` says which of the two barriers there are.
#[kernel(block = (16, 16), requires(n % 16 == 0, a.len() == (n * n) as usize, b.len() == a.len(), c.len() == a.len()))]
fn tiled(n: u64, barriers: u32, a: GlobalSlice<'_, f32>, b: GlobalSlice<'_, f32>, c: GlobalSliceMut<'_, f32>) {
    static TILE_A: Shared<[[f32; 16]; 16]> = Shared::new(); // <tile a>
    static TILE_B: Shared<[[f32; 16]; 16]> = Shared::new();
    let n = n as usize;
    let (x, y) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (row, column) = (thread::block_idx_y() as usize * 16 + y, thread::block_idx_x() as usize * 16 + x);
    let mut sum = 0.0;
    unsafe {
        for tile in (0..n).step_by(16) {
            TILE_A.write([y, x], a.get_unchecked(row * n + tile + x)); // <write a>
            TILE_B.write([y, x], b.get_unchecked((tile + y) * n + column));
            if barriers & 1 != 0 {
                thread::sync_threads();
            }
            for k in 0..16 {
                sum += TILE_A.read([y, k]) // <read a>
                    * TILE_B.read([k, x]);
            }
            if barriers & 2 != 0 {
                thread::sync_threads();
            }
        }
        c.set_unchecked(row * n + column, sum);
    }
}

fn with_tiled<R>(barriers: u32, test: impl FnOnce(tiled<'_>) -> R) -> (R, bool) {
    let n = 48;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
    let mut c = vec![f32::NAN; n * n];
    let result = test(tiled {
        n: n as u64,
        barriers,
        a: GlobalSlice::new(&a),
        b: GlobalSlice::new(&b),
        c: GlobalSliceMut::new(&mut c),
    });
    let right = (0..n * n).all(|i| {
        let (row, column) = (i / n, i % n);
        c[i] == (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum::<f32>()
    });
    (result, right)
}

#[test]
fn a_tiled_product_with_both_barriers_is_right() {
    for checks in ALL_CHECKS {
        let ((), right) = with_tiled(3, |kernel| succeed(checks, kernel, (3, 3)));
        assert!(right, "{checks:?}");
    }
}

#[test]
fn a_tiled_product_without_one_of_its_barriers_races() {
    for barriers in [0, 1, 2] {
        let (fault, _) = with_tiled(barriers, |kernel| fault(Checks::Full, kernel, (3, 3)));
        assert_eq!(fault.block, at(0, 0, 0));
        assert_eq!(lines(&fault), [(line("write a"), AccessKind::Write), (line("read a"), AccessKind::Read)]);
        let FaultKind::Race { array: SharedArrayName::Static { declared, .. }, element, other, .. } = &fault.kind
        else {
            panic!()
        };
        assert_eq!(declared.line, line("tile a"));
        // The two threads are neighbours along a row, and the element is one that one of them writes.
        let writer = if other.access == AccessKind::Write { other.thread } else { fault.thread };
        assert_eq!(*element, format!("[{}, {}]", writer.y, writer.x));
        assert!(other.thread.y == fault.thread.y && other.thread.x != fault.thread.x);
    }
}

/// Thread `writer` writes an element, thread `reader` reads it, one of them after a barrier if asked to.
#[kernel(block = 1024)]
fn meets(writer: u32, reader: u32, barrier: u32) {
    static ARRAY: Shared<[u64; 3]> = Shared::new();
    let t = thread::thread_idx_x();
    unsafe {
        if t == writer {
            ARRAY.write(1, 5); // <one write>
        }
        if barrier != 0 {
            thread::sync_threads();
        }
        if t == reader {
            ARRAY.read(1); // <one read>
        }
    }
}

#[test]
fn a_race_does_not_depend_on_who_runs_first() {
    for (writer, reader) in [(0, 1), (1, 0), (0, 1023), (1023, 0), (31, 32), (32, 31), (500, 501)] {
        let fault = fault(Checks::Full, meets { writer, reader, barrier: 0 }, 1);
        let mut expected = [
            (at(writer, 0, 0), line("one write"), AccessKind::Write),
            (at(reader, 0, 0), line("one read"), AccessKind::Read),
        ];
        expected.sort_by_key(|(thread, ..)| thread.x);
        assert_eq!(race(&fault), expected);
        succeed(Checks::Full, meets { writer, reader, barrier: 1 }, 1);
    }
    succeed(Checks::Full, meets { writer: 7, reader: 7, barrier: 0 }, 1);
}

/// Two threads write the same value to an element.
#[kernel(block = 64)]
fn both_write(first: u32, second: u32) {
    static ARRAY: Shared<[f32; 64]> = Shared::new();
    let t = thread::thread_idx_x();
    if t == first || t == second {
        unsafe { ARRAY.write(9, 1.0) }; // <both>
    }
}

#[test]
fn two_writes_race_even_with_the_same_value() {
    for (first, second) in [(0, 1), (3, 63)] {
        let fault = fault(Checks::Full, both_write { first, second }, 1);
        let write = |x| (at(x, 0, 0), line("both"), AccessKind::Write);
        assert_eq!(race(&fault), [write(first), write(second)]);
    }
    succeed(Checks::Full, both_write { first: 5, second: 5 }, 1);
}

/// All threads with a bit in `readers` of their number modulo 64 read what thread 0 has written, and thread `writer`
/// writes it again.
#[kernel(block = 128)]
fn one_of_many(readers: u64, writer: u32, early: u32) {
    static ARRAY: Shared<[f32; 2]> = Shared::new();
    let t = thread::thread_idx_x();
    unsafe {
        if t == 0 {
            ARRAY.write(0, 1.0);
        }
        thread::sync_threads();
        if t == writer && early != 0 {
            ARRAY.write(0, 2.0);
        }
        if readers >> (t % 64) & 1 != 0 {
            ARRAY.read(0); // <many>
        }
        if t == writer && early == 0 {
            ARRAY.write(0, 2.0); // <after many>
        }
    }
}

#[test]
fn a_writer_conflicts_with_any_of_many_readers() {
    for readers in [u64::MAX, 1 << 40 | 1 << 3, 0xFF00, 1 << 31 | 1 << 30] {
        for writer in 0..128 {
            for early in [0, 1] {
                let fault = fault(Checks::Full, one_of_many { readers, writer, early }, 1);
                assert!(matches!(fault.kind, FaultKind::Race { .. }), "{readers:x} {writer}: {fault}");
            }
        }
    }
    // The only reader of its lane number in its warp: the other warps have one each.
    let fault = fault(Checks::Full, one_of_many { readers: 1 << 3, writer: 3, early: 0 }, 1);
    assert_eq!(race(&fault).map(|(thread, ..)| thread.x % 64), [3, 3]);
}

/// Reverses 32 elements in place, for which a warp needs no barrier of the block.
#[kernel(block = 64)]
fn reverses_in_a_warp(how: u32) {
    static ARRAY: Shared<[f32; 64]> = Shared::new();
    let (t, lane) = (thread::thread_idx_x() as usize, warp::lane_id() as usize);
    unsafe {
        ARRAY.write(t, t as f32); // <warp write>
        match how {
            0 => {}
            1 => warp::sync_warp(warp::ALL_LANES),
            2 => warp::sync_warp(if lane < 16 { 0xFFFF } else { 0xFFFF_0000 }),
            _ => _ = warp::warp_shuffle_xor(warp::ALL_LANES, 1.0f32, 1, 32),
        }
        ARRAY.read(t - lane + 31 - lane); // <warp read>
    }
}

#[test]
fn only_sync_warp_orders_memory_within_a_warp() {
    succeed(Checks::Full, reverses_in_a_warp { how: 1 }, 1);
    // Without it; with one for each half, but the halves exchange values; with a shuffle, which does not order memory.
    for how in [0, 2, 3] {
        let fault = fault(Checks::Full, reverses_in_a_warp { how }, 1);
        let expected = [(line("warp write"), AccessKind::Write), (line("warp read"), AccessKind::Read)];
        assert_eq!(lines(&fault), expected, "{how}");
        succeed(Checks::Bounds, reverses_in_a_warp { how }, 1);
    }
}

/// Lanes exchange with their neighbours four to the left or right, each group of eight on its own.
#[kernel(block = 32)]
fn exchanges_in_groups(distance: u32) {
    static ARRAY: Shared<[f32; 32]> = Shared::new();
    let lane = warp::lane_id();
    let group = 0xFF << (lane / 8 * 8);
    unsafe {
        ARRAY.write(lane as usize, 1.0);
        for _ in 0..3 {
            warp::sync_warp(group);
            let sum = ARRAY.read(lane as usize) + ARRAY.read((lane ^ distance) as usize);
            warp::sync_warp(group);
            ARRAY.write(lane as usize, sum);
        }
    }
}

#[test]
fn a_sync_of_some_lanes_orders_these_and_no_others() {
    succeed(Checks::Full, exchanges_in_groups { distance: 4 }, 1);
    let fault = fault(Checks::Full, exchanges_in_groups { distance: 8 }, 1);
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

/// Lane 0 hands a value to lane 1, lane 1 to lane 2, and so on.
#[kernel(block = 32)]
fn passes_along(from: u32) {
    static ARRAY: Shared<[f32; 1]> = Shared::new();
    let lane = warp::lane_id();
    unsafe {
        if lane == 0 {
            ARRAY.write(0, 1.0);
        }
        for giver in from..31 {
            if lane == giver || lane == giver + 1 {
                warp::sync_warp(3 << giver);
            }
        }
        if lane == 31 {
            ARRAY.read(0);
        }
    }
}

#[test]
fn the_order_of_accesses_is_transitive() {
    succeed(Checks::Full, passes_along { from: 0 }, 1);
    let fault = fault(Checks::Full, passes_along { from: 1 }, 1);
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

/// Lanes 0 and 1 read an element, synchronize, and lane 0 writes it; lane 2 then reads it, ordered by nothing or by a barrier.
#[kernel(block = 32)]
fn writes_after_some_reads(barrier: u32) {
    static ARRAY: Shared<[f32; 1]> = Shared::new();
    let lane = warp::lane_id();
    unsafe {
        if lane == 3 {
            ARRAY.write(0, 1.0);
        }
        thread::sync_threads();
        if lane < 2 {
            ARRAY.read(0);
            warp::sync_warp(3);
            if lane == 0 {
                ARRAY.write(0, 2.0); // <after some>
            }
        }
        if barrier != 0 {
            thread::sync_threads();
        }
        if lane == 2 {
            // Waits for nobody, but lets the others go first; this does not order memory.
            warp::warp_vote_any(4, true);
            ARRAY.read(0); // <some more>
        }
    }
}

#[test]
fn a_write_ends_what_earlier_reads_have_settled() {
    succeed(Checks::Full, writes_after_some_reads { barrier: 1 }, 1);
    let fault = fault(Checks::Full, writes_after_some_reads { barrier: 0 }, 1);
    let expected =
        [(at(0, 0, 0), line("after some"), AccessKind::Write), (at(2, 0, 0), line("some more"), AccessKind::Read)];
    assert_eq!(race(&fault), expected);
}

/// Sums the numbers of 64 threads; the last steps within a warp, as old code does it.
#[kernel(block = 64)]
fn warp_synchronous_sum(synchronized: u32, out: GlobalSliceMut<'_, f32>) {
    static SUMS: Shared<[f32; 64]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    unsafe {
        SUMS.write(t, t as f32);
        thread::sync_threads();
        if t < 32 {
            let mut sum = SUMS.read(t) + SUMS.read(t + 32);
            for stride in [16, 8, 4, 2, 1] {
                SUMS.write(t, sum); // <sum write>
                if synchronized != 0 {
                    warp::sync_warp(warp::ALL_LANES);
                }
                sum += SUMS.read((t + stride) % 32); // <sum read>
                if synchronized != 0 {
                    warp::sync_warp(warp::ALL_LANES);
                }
            }
            if t == 0 {
                out.set_unchecked(0, sum);
            }
        }
    }
}

#[test]
fn a_warp_synchronous_reduction_needs_sync_warp() {
    let mut out = [0.0];
    for checks in ALL_CHECKS {
        succeed(checks, warp_synchronous_sum { synchronized: 1, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(out, [2016.0]);
    }
    let fault = fault(Checks::Full, warp_synchronous_sum { synchronized: 0, out: GlobalSliceMut::new(&mut out) }, 1);
    assert_eq!(lines(&fault), [(line("sum write"), AccessKind::Write), (line("sum read"), AccessKind::Read)]);
}

/// Writes 4 bytes and reads 8 that begin `read_at` bytes into dynamic shared memory.
#[kernel(block = 2, dynamic_shared = 24)]
fn overlaps(read_at: u64) {
    unsafe {
        let narrow = dynamic_shared::<f32>(0, 4);
        let wide = dynamic_shared::<f64>(read_at as usize, 1);
        if thread::thread_idx_x() == 0 {
            narrow.write(3, 1.0); // <narrow>
            narrow.write(2, 1.0);
        } else {
            wide.write(0, 1.0); // <wide>
        }
    }
}

#[test]
fn slices_of_dynamic_shared_memory_that_overlap_race() {
    let run = |read_at| common::launch(Checks::Full, overlaps { read_at }, 1);
    run(0).unwrap();
    run(16).unwrap();
    let Err(cuda_std::executor::LaunchError::Fault(fault)) = run(8) else { panic!() };
    let FaultKind::Race { array: SharedArrayName::Dynamic, element, .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!(element, "2");
}

/// Thread 0 reads an element, and may use it as an index; thread 1 may write it, with a barrier between or without.
#[kernel(block = 2)]
fn reads_too_early(used: u32, barrier: u32, written: u32, out: GlobalSliceMut<'_, u32>) {
    static ARRAY: Shared<[u32; 2]> = Shared::new();
    let t = thread::thread_idx_x();
    unsafe {
        if t == 0 {
            let index = ARRAY.read(1); // <early>
            if used != 0 {
                out.set_unchecked(index as usize, 1);
            }
        }
        if barrier != 0 {
            thread::sync_threads();
        }
        if t == 1 && written != 0 {
            ARRAY.write(1, 0); // <late>
        }
    }
}

#[test]
fn a_read_of_unwritten_memory_is_reported_as_such_unless_a_later_write_makes_it_a_race() {
    let mut out = [0];
    let mut run = |used, barrier, written| {
        fault(Checks::Full, reads_too_early { used, barrier, written, out: GlobalSliceMut::new(&mut out) }, 1)
    };
    // With `used`, the index is poison, and so the store fails first; but that is not where things went wrong.
    for (used, barrier, written) in [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1)] {
        let fault = run(used, barrier, written);
        assert!(matches!(fault.kind, FaultKind::UnwrittenShared { .. }), "{fault}");
        assert_eq!((fault.thread, fault.location.unwrap().line), (at(0, 0, 0), line("early")));
    }
    let expected = [(line("early"), AccessKind::Read), (line("late"), AccessKind::Write)];
    assert_eq!(lines(&run(0, 0, 1)), expected);
}

/// Every thread reads its neighbour's element, which nobody has written yet, and writes its own.
#[kernel(block = 96)]
fn shifts_without_barrier() {
    static ARRAY: Shared<[f32; 97]> = Shared::new(); // <shift array>
    let t = thread::thread_idx_x() as usize;
    unsafe {
        let next = ARRAY.read(t + 1); // <shift read>
        ARRAY.write(t, next); // <shift write>
    }
}

#[test]
fn reads_that_race_with_later_writes_are_not_taken_for_reads_of_unwritten_memory() {
    let fault = fault(Checks::Full, shifts_without_barrier {}, 1);
    let expected =
        [(at(0, 0, 0), line("shift read"), AccessKind::Read), (at(1, 0, 0), line("shift write"), AccessKind::Write)];
    assert_eq!(race(&fault), expected);
    let expected = format!(
        "kernel `{}`, block (0, 0, 0), thread (1, 0, 0): a race: this thread writes element 1 of the shared array \
         `[f32; 97]` declared at {file}:{}, and thread (0, 0, 0) reads it, with no barrier between them
  --> {file}:{}
  note: the other access is here: thread (0, 0, 0) reads it
  --> {file}:{}
  help: ",
        shifts_without_barrier::NAME,
        line("shift array"),
        line("shift write"),
        line("shift read"),
        file = file!(),
    );
    assert!(fault.to_string().starts_with(&expected), "{fault}");
}
