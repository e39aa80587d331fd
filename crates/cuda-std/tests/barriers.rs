//! Barriers of a part of a block, by which warps with different roles hand each other work: each protocol right, and with one thing
//! wrong.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::{Checks, Elsewhere, Fault, FaultKind, Missing, Place, WarpOperation};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("barriers.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// The steps that the producer and its consumers go through, in places for two.
const STEPS: u32 = 7;
const PLACES: u32 = 2;

/// What is wrong with [`ring`].
const NOTHING: u32 = 0;
const NO_WAIT_FOR_FULL: u32 = 1;
const NO_WAIT_FOR_EMPTY: u32 = 2;
const ARRIVES_BEFORE_IT_READS: u32 = 3;
const WRONG_PARITY: u32 = 4;
const ONE_LANE_DOES_NOT_ARRIVE: u32 = 5;
const NO_FIRST_BARRIER: u32 = 6;
const STOPS_EARLY: u32 = 7;
const NO_SYNC_WARP: u32 = 8;

/// Warp 0 fills places with its numbers; warps 1 and 2 add them up. Each of them has `full` and `empty` wait for one lane of a
/// warp, behind a `sync_warp`.
#[kernel(block = 96, dynamic_shared = 2 * 32 * 4 + 4 * 8)]
fn ring(wrong: u32, sums: GlobalSliceMut<'_, f32>) {
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
    unsafe {
        let places: SharedSlice<f32> = dynamic_shared(0, 64);
        let barriers: SharedSlice<u64> = dynamic_shared(256, 4);
        let (full, empty) = (
            |place: u32| Barrier::at(barriers, place as usize),
            |place: u32| Barrier::at(barriers, (PLACES + place) as usize),
        );
        if thread::thread_idx_x() == 0 && wrong != NO_FIRST_BARRIER {
            for place in 0..PLACES {
                full(place).init(32); // <init full>
                empty(place).init(2); // <init empty>
            }
        }
        thread::sync_threads();
        let mut sum = 0.0;
        for step in 0..STEPS {
            let (place, parity) = (step % PLACES, step / PLACES % 2);
            let element = (32 * place + lane) as usize;
            if warp == 0 {
                if wrong != NO_WAIT_FOR_EMPTY {
                    empty(place).wait(parity ^ 1); // <wait empty>
                }
                places.write(element, (step * 32 + lane) as f32); // <write>
                if wrong != ONE_LANE_DOES_NOT_ARRIVE || lane != 17 || step < 3 {
                    full(place).arrive();
                }
            } else {
                let done = |place: u32| {
                    if wrong != NO_SYNC_WARP {
                        warp::sync_warp(warp::ALL_LANES);
                    }
                    if hopper::elect_one() {
                        empty(place).arrive();
                    }
                };
                if wrong == STOPS_EARLY && warp == 2 && step == 4 {
                    return;
                }
                if wrong != NO_WAIT_FOR_FULL {
                    full(place).wait(if wrong == WRONG_PARITY { parity ^ 1 } else { parity }); // <wait full>
                }
                if wrong == ARRIVES_BEFORE_IT_READS {
                    done(place);
                }
                // Another lane's element, so that lanes are not ordered by themselves.
                sum += places.read(element ^ 31); // <read>
                if wrong != ARRIVES_BEFORE_IT_READS {
                    done(place);
                }
            }
        }
        if warp > 0 {
            sums.set_unchecked((thread::block_idx_x() * 64 + (warp - 1) * 32 + lane) as usize, sum);
        }
    }
}

fn run_ring(checks: Checks, wrong: u32) -> Fault {
    let mut sums = vec![0.0; 64];
    fault(checks, ring { wrong, sums: GlobalSliceMut::new(&mut sums) }, 1)
}

/// The lines of both sides of a race.
fn lines_of_race(fault: &Fault) -> [u32; 2] {
    let FaultKind::Race { other, .. } = &fault.kind else { panic!("expected a race, got: {fault}") };
    let mut lines = [other.location.line, fault.location.as_ref().unwrap().line];
    lines.sort_unstable();
    lines
}

#[test]
fn a_ring_of_places_hands_everything_over() {
    for checks in ALL_CHECKS {
        let mut sums = vec![0.0; 3 * 64];
        succeed(checks, ring { wrong: NOTHING, sums: GlobalSliceMut::new(&mut sums) }, 3);
        for (i, sum) in sums.into_iter().enumerate() {
            let lane = (i as u32 % 32) ^ 31;
            assert_eq!(sum, (0..STEPS).map(|step| (step * 32 + lane) as f32).sum::<f32>());
        }
    }
}

#[test]
fn what_nobody_waits_for_is_a_race() {
    let race = [line("write"), line("read")];
    for wrong in [NO_WAIT_FOR_FULL, ARRIVES_BEFORE_IT_READS, NO_SYNC_WARP] {
        let fault = run_ring(Checks::Full, wrong);
        assert_eq!(lines_of_race(&fault), race, "{wrong}: {fault}");
        let FaultKind::Race { missing, .. } = &fault.kind else { unreachable!() };
        // What it says to do is what the kernel does where nothing is wrong.
        match (wrong, missing) {
            (NO_WAIT_FOR_FULL, Missing::Wait(barrier)) => assert_eq!(barrier.byte_offset, 256),
            (ARRIVES_BEFORE_IT_READS | NO_SYNC_WARP, Missing::LaterArrival { waited, .. }) => {
                assert_eq!((waited.byte_offset, waited.initialized.line), (272, line("init empty")), "{fault}");
            }
            _ => panic!("{wrong}: {fault}"),
        }
        assert!(!fault.to_string().contains("sync_threads"), "a warp with another role would not come: {fault}");
    }
    // Who fills places without waiting is two rounds ahead, and the readers take a phase for the one before the last. With the
    // wrong parity they take it for the next one.
    for wrong in [NO_WAIT_FOR_EMPTY, WRONG_PARITY] {
        let fault = run_ring(Checks::Full, wrong);
        assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
    }
}

#[test]
fn who_waits_forever_is_told_for_what() {
    for checks in ALL_CHECKS {
        let fault = run_ring(checks, ONE_LANE_DOES_NOT_ARRIVE);
        let FaultKind::Deadlock { waits_for, others } = &fault.kind else { panic!("{fault}") };
        assert_eq!(fault.location.as_ref().unwrap().line, line("wait empty"), "{fault}");
        assert!(
            waits_for.contains("parity 1 of the barrier at byte 280") && waits_for.contains("lacks 2 of 2"),
            "{fault}"
        );
        let waiting = others.iter().find_map(|other| match &other.place {
            Place::Waiting { waits_for, location } if other.first.x == 32 => {
                Some((other.count, waits_for, location.line))
            }
            _ => None,
        });
        let (count, waits_for, at) = waiting.unwrap();
        assert_eq!((count, at), (64, line("wait full")));
        assert!(
            waits_for.contains("barrier at byte 264 (initialized at") && waits_for.contains("lacks 1 of 32 arrivals")
        );
        assert!(waits_for.contains(&format!("barriers.rs:{}", line("init full"))), "{waits_for}");

        let fault = run_ring(checks, STOPS_EARLY);
        let FaultKind::Deadlock { waits_for, others } = &fault.kind else { panic!("{fault}") };
        assert!(waits_for.contains("lacks 1 of 2 arrivals"), "{fault}");
        assert!(others.iter().any(|other| other.place == Place::Returned && other.count == 32), "{fault}");
    }
}

#[test]
fn barriers_have_to_be_initialized_once() {
    for checks in ALL_CHECKS {
        let fault = run_ring(checks, NO_FIRST_BARRIER);
        assert_eq!(fault.kind, FaultKind::BarrierNotInitialized { byte_offset: 272 });
        assert_eq!(fault.location.unwrap().line, line("wait empty"));
    }
}

#[kernel(block = 32, dynamic_shared = 8)]
fn initializes(times: u32, arrivals: u32) {
    unsafe {
        let barriers: SharedSlice<u64> = dynamic_shared(0, 1);
        if thread::thread_idx_x() == 0 {
            for _ in 0..times {
                Barrier::at(barriers, 0).init(arrivals);
            }
        }
    }
}

#[test]
fn a_barrier_is_for_arrivals_and_initialized_once() {
    for checks in ALL_CHECKS {
        succeed(checks, initializes { times: 1, arrivals: 1 }, 2);
        for (times, arrivals) in [(2, 5), (1, 0)] {
            let fault = fault(checks, initializes { times, arrivals }, 1);
            assert_eq!(fault.kind, FaultKind::BarrierInitialization { byte_offset: 0, arrivals });
        }
    }
}

/// Warp 0 writes for warp 1, which passes it on to warp 2.
#[kernel(block = 96, dynamic_shared = 8)]
fn passes_on(wrong: u32, out: GlobalSliceMut<'_, u32>) {
    let warp = thread::thread_idx_x() / 32;
    unsafe {
        let memory: SharedSlice<u32> = dynamic_shared(0, 2);
        match warp {
            0 => {
                if thread::thread_idx_x() == 0 {
                    memory.write(0, 42); // <first write>
                }
                hopper::arrive_at_part::<64>(1);
            }
            1 => {
                if wrong == 1 {
                    hopper::sync_part::<64>(2);
                }
                hopper::sync_part::<64>(1);
                hopper::arrive_at_part::<64>(2);
            }
            _ => {
                if wrong == 2 {
                    hopper::arrive_at_part::<64>(2);
                } else {
                    hopper::sync_part::<64>(2); // <second barrier>
                }
                if wrong == 3 {
                    hopper::sync_part::<64>(1);
                }
                let place = thread::block_idx_x() * 32 + thread::thread_idx_x() - 64;
                out.set_unchecked(place as usize, memory.read(0)); // <read what was passed on>
            }
        }
    }
}

#[test]
fn who_meets_at_a_number_knows_what_the_others_knew() {
    for checks in ALL_CHECKS {
        let mut out = vec![0; 64];
        succeed(checks, passes_on { wrong: 0, out: GlobalSliceMut::new(&mut out) }, 2);
        assert_eq!(out, [42; 64]);
        let mut run = |wrong| fault(checks, passes_on { wrong, out: GlobalSliceMut::new(&mut out) }, 1);
        // Both meet at barrier 2, and warp 1 then waits at it a second time.
        if checks == Checks::Full {
            assert_eq!(lines_of_race(&run(1)), [line("first write"), line("read what was passed on")]);
            assert_eq!(lines_of_race(&run(2)), [line("first write"), line("read what was passed on")]);
        }
        let fault = run(3);
        let FaultKind::Deadlock { waits_for, .. } = &fault.kind else { panic!("{fault}") };
        assert!(waits_for.contains("barrier 1, to which"), "{fault}");
    }
}

#[kernel(block = 64)]
fn comes_to(id: u32, wrong_count: u32) {
    unsafe {
        if thread::thread_idx_x() < 32 || wrong_count == 0 {
            hopper::sync_part::<64>(id);
        } else {
            hopper::sync_part::<96>(id);
        }
    }
}

#[test]
fn numbers_and_counts_of_barriers_have_to_fit() {
    for checks in ALL_CHECKS {
        succeed(checks, comes_to { id: 15, wrong_count: 0 }, 1);
        for id in [0, 16] {
            assert_eq!(
                fault(checks, comes_to { id, wrong_count: 0 }, 1).kind,
                FaultKind::BarrierNumber { id, threads: 64 }
            );
        }
        let expected = FaultKind::BarrierCount { id: 3, threads: 96, others: 64 };
        assert_eq!(fault(checks, comes_to { id: 3, wrong_count: 1 }, 1).kind, expected);
    }
}

/// Three warps read what a fourth one then writes, which waits for some of them.
#[kernel(block = 128, dynamic_shared = 4 + 4 + 8)]
fn three_readers(waits_for: u32, out: GlobalSliceMut<'_, u32>) {
    let warp = thread::thread_idx_x() / 32;
    unsafe {
        let memory: SharedSlice<u32> = dynamic_shared(0, 1);
        let read = Barrier::at(dynamic_shared(8, 1), 0);
        if thread::thread_idx_x() == 0 {
            memory.write(0, 7);
            read.init(waits_for);
        }
        thread::sync_threads();
        if warp < 3 {
            out.set_unchecked(thread::thread_idx_x() as usize, memory.read(0)); // <one of three reads>
            warp::sync_warp(warp::ALL_LANES);
            if warp < waits_for && warp::lane_id() == 5 {
                read.arrive();
            }
        } else {
            read.wait(0);
            if thread::thread_idx_x() == 96 {
                memory.write(0, 8); // <write after reads>
            }
        }
    }
}

#[test]
fn a_writer_has_to_wait_for_every_reader() {
    let mut out = vec![0; 96];
    for checks in ALL_CHECKS {
        succeed(checks, three_readers { waits_for: 3, out: GlobalSliceMut::new(&mut out) }, 1);
    }
    for waits_for in [1, 2] {
        let fault = fault(Checks::Full, three_readers { waits_for, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(lines_of_race(&fault), [line("one of three reads"), line("write after reads")]);
    }
}

#[kernel(block = 256)]
fn moves_registers(gives: u32, wrong: u32) {
    unsafe {
        if thread::thread_idx_x() < 128 {
            match gives {
                0 => {}
                _ => hopper::release_registers::<24>(),
            }
            if wrong == 1 {
                hopper::release_registers::<40>();
            }
        } else {
            hopper::acquire_registers::<256>();
            if wrong == 2 {
                hopper::acquire_registers::<24>();
            }
        }
    }
}

#[test]
fn registers_are_waited_for() {
    for checks in ALL_CHECKS {
        // 255 or 256 of each of 256 threads are all that there are, so one more of some needs one less of others.
        succeed(checks, moves_registers { gives: 1, wrong: 0 }, 2);
        assert_eq!(
            fault(checks, moves_registers { gives: 1, wrong: 1 }, 1).kind,
            FaultKind::Registers { has: 24, wanted: 40 }
        );
        assert_eq!(
            fault(checks, moves_registers { gives: 1, wrong: 2 }, 1).kind,
            FaultKind::Registers { has: 256, wanted: 24 }
        );
    }
}

#[kernel(block = 384)]
fn takes_registers_that_nobody_gives(_unused: u32) {
    unsafe {
        if thread::thread_idx_x() >= 128 {
            hopper::acquire_registers::<240>(); // <acquire>
        }
    }
}

#[test]
fn registers_that_nobody_gives_up_are_missed() {
    for checks in ALL_CHECKS {
        let fault = fault(checks, takes_registers_that_nobody_gives { _unused: 0 }, 1);
        let FaultKind::Deadlock { waits_for, .. } = &fault.kind else { panic!("{fault}") };
        // All that there are have been handed out.
        assert!(waits_for.contains("72 more registers, of which"), "{fault}");
        assert_eq!(fault.location.unwrap().line, line("acquire"));
    }
}

/// A block of which two shall be on a multiprocessor has 128 registers for each of its threads, and no more than these.
#[kernel(block = 256, min_blocks = 2)]
fn has_half_of_the_registers(takes_more: u32) {
    unsafe {
        if thread::thread_idx_x() < 128 {
            hopper::release_registers::<24>();
        } else if takes_more == 0 {
            hopper::acquire_registers::<232>();
        } else {
            hopper::acquire_registers::<240>(); // <acquire too many>
        }
    }
}

#[test]
fn blocks_that_share_a_multiprocessor_share_its_registers() {
    for checks in ALL_CHECKS {
        succeed(checks, has_half_of_the_registers { takes_more: 0 }, 2);
        let fault = fault(checks, has_half_of_the_registers { takes_more: 1 }, 1);
        assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
        assert_eq!(fault.location.unwrap().line, line("acquire too many"));
    }
}

/// Warp 0 comes to a barrier for all of the block, at which warp 1 comes `comes` times.
#[kernel(block = 64)]
fn tells(comes: u32) {
    unsafe {
        if thread::thread_idx_x() < 32 && comes == 0 {
            hopper::arrive_at_part::<64>(5); // <come>
        } else if comes > 0 {
            hopper::sync_part::<64>(5);
        }
        if thread::thread_idx_x() >= 32 && comes > 1 {
            hopper::arrive_at_part::<64>(5); // <come again>
        }
    }
}

#[test]
fn a_barrier_to_which_some_never_come_is_reported_at_the_end() {
    for checks in ALL_CHECKS {
        succeed(checks, tells { comes: 1 }, 2);
        for (comes, first, mark) in [(0, 0, "come"), (2, 32, "come again")] {
            let expected = FaultKind::BarrierUnmet { id: 5, come: 32, threads: 64 };
            let fault = fault(checks, tells { comes }, 1);
            assert_eq!((fault.kind, fault.thread), (expected, at(first, 0, 0)));
            assert_eq!(fault.location.unwrap().line, line(mark));
        }
    }
}

/// Half of the lanes of each of four warps come to a barrier for 64 threads, or come by another call than the others, or to another number, or do
/// not wait; or a lane has returned.
#[kernel(block = 128)]
fn parts_of_warps_come(wrong: u32) {
    let t = thread::thread_idx_x();
    unsafe {
        match wrong {
            0 if t % 32 < 16 => hopper::sync_part::<64>(1), // <half>
            0 => {}
            1 if t % 32 < 16 => hopper::sync_part::<64>(1 + t / 64), // <first call>
            1 => hopper::sync_part::<64>(1 + t / 64),                // <second call>
            2 => hopper::sync_part::<64>(1 + t % 2),                 // <two numbers>
            3 if t % 32 < 16 => hopper::sync_part::<64>(1 + t / 64), // <waits>
            3 => hopper::arrive_at_part::<64>(1 + t / 64),           // <does not wait>
            _ if t == 5 => {}
            _ => hopper::sync_part::<64>(1 + t / 64), // <all but one>
        }
    }
}

#[test]
fn warps_come_to_a_numbered_barrier_as_a_whole() {
    let place = |other: &Elsewhere| match &other.place {
        Place::Waiting { waits_for, location } => format!("{waits_for} at {}", location.line),
        Place::Warp { operation, location, .. } => format!("{operation} at {}", location.line),
        Place::Returned => "returned".to_owned(),
        place => panic!("{place:?}"),
    };
    for checks in ALL_CHECKS {
        for (wrong, mark, elsewhere, count) in [
            (0, "half", "returned".to_owned(), 16),
            (1, "first call", format!("barrier 1, for 64 threads at {}", line("second call")), 16),
            (2, "two numbers", format!("barrier 2, for 64 threads at {}", line("two numbers")), 16),
            (3, "waits", format!("`arrive_at_part` at {}", line("does not wait")), 16),
            (4, "all but one", "returned".to_owned(), 1),
        ] {
            let fault = fault(checks, parts_of_warps_come { wrong }, 1);
            assert_eq!(fault.location.as_ref().unwrap().line, line(mark), "{fault}");
            let others = match &fault.kind {
                FaultKind::WarpSplitAtBarriers { waiting: 16, elsewhere } if wrong == 1 || wrong == 2 => elsewhere,
                FaultKind::WarpDivergence { absent, .. } => absent,
                _ => panic!("{fault}"),
            };
            assert_eq!(
                others.iter().map(|other| (place(other), other.count)).collect::<Vec<_>>(),
                [(elsewhere, count)]
            );
        }
    }
}

/// A block of 40 threads, whose second warp has 8: a GPU counts it as 32.
#[kernel(block = 40)]
fn meets_with_a_small_warp(out: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u32; 40]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    unsafe {
        NUMBERS.write(t, t as u32);
        hopper::sync_part::<64>(1);
        out.set_unchecked(t, NUMBERS.read(39 - t));
    }
}

#[test]
fn a_warp_with_fewer_lanes_counts_as_a_whole_one() {
    for checks in ALL_CHECKS {
        let mut out = [0; 40];
        succeed(checks, meets_with_a_small_warp { out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(out, core::array::from_fn(|t| 39 - t as u32));
    }
}

/// Warps 0 and 1 meet, and then 2 and 3, at one barrier. `ordered_by`: by nothing; warp 1 tells warp 2 by a flag, or a lane of each by a barrier
/// in shared memory, and warp 3 is told by warp 2; by a barrier of the block.
#[kernel(block = 128, dynamic_shared = 16)]
fn two_meetings(ordered_by: u32) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id());
    unsafe {
        let barriers: SharedSlice<u64> = dynamic_shared(0, 2);
        let (first, second) = (Barrier::at(barriers, 0), Barrier::at(barriers, 1));
        let flag = FLAG.atomic(0);
        if thread::thread_idx_x() == 0 {
            flag.store(0, Relaxed, Scope::Block);
            first.init(1);
            second.init(1);
        }
        thread::sync_threads();
        if warp < 2 {
            hopper::sync_part::<64>(1); // <first meeting>
            if warp == 1 && lane == 7 {
                match ordered_by {
                    1 => flag.store(1, Release, Scope::Block),
                    2 => first.arrive(),
                    _ => {}
                }
            }
        }
        if ordered_by == 3 {
            thread::sync_threads();
        }
        if warp >= 2 {
            // One lane is told; the barrier is for the whole warp.
            if lane == 9 {
                match (ordered_by, warp) {
                    (1, _) => while flag.load(Acquire, Scope::Block) == 0 {},
                    (2, 2) => {
                        first.wait(0);
                        second.arrive();
                    }
                    (2, _) => second.wait(0),
                    _ => {}
                }
            }
            hopper::sync_part::<64>(1); // <second meeting>
        }
    }
}

#[test]
fn who_meets_whom_has_to_be_ordered() {
    for ordered_by in 1..4 {
        succeed(Checks::Full, two_meetings { ordered_by }, 2);
    }
    let fault = fault(Checks::Full, two_meetings { ordered_by: 0 }, 1);
    let FaultKind::BarrierMeetings { id: 1, threads: 64, thread, location } = &fault.kind else { panic!("{fault}") };
    assert_eq!((*thread, location.line), (at(0, 0, 0), line("first meeting")));
    assert_eq!((fault.thread, fault.location.as_ref().unwrap().line), (at(64, 0, 0), line("second meeting")));
}

/// A warp comes twice to a meeting of two warps.
#[kernel(block = 64)]
fn comes_twice(_unused: u32) {
    unsafe {
        if thread::thread_idx_x() < 32 {
            hopper::arrive_at_part::<64>(1); // <once>
            hopper::arrive_at_part::<64>(1); // <twice>
        } else {
            hopper::sync_part::<64>(1);
        }
    }
}

#[test]
fn a_warp_comes_once_to_a_meeting() {
    for checks in ALL_CHECKS {
        let fault = fault(checks, comes_twice { _unused: 0 }, 1);
        let FaultKind::BarrierArrivedTwice { id: 1, threads: 64, first } = &fault.kind else { panic!("{fault}") };
        assert_eq!((first.line, fault.location.as_ref().unwrap().line), (line("once"), line("twice")));
    }
}

#[kernel(block = 32)]
fn elects(divergent: u32, out: GlobalSliceMut<'_, u32>) {
    unsafe {
        if divergent == 0 || thread::thread_idx_x() < 16 {
            let elected = hopper::elect_one();
            out.set_unchecked(thread::thread_idx_x() as usize, elected.into());
        }
    }
}

#[test]
fn one_lane_is_elected_by_all() {
    for checks in ALL_CHECKS {
        let mut out = vec![7; 32];
        succeed(checks, elects { divergent: 0, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(out.iter().sum::<u32>(), 1);
        let fault = fault(checks, elects { divergent: 1, out: GlobalSliceMut::new(&mut out) }, 1);
        assert!(matches!(fault.kind, FaultKind::WarpDivergence { operation: WarpOperation::Elect, .. }), "{fault}");
    }
}
