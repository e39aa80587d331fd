//! Barriers of a part of a block, by which warps with different roles hand each other work: each protocol right, and with one thing
//! wrong.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, fault, line_of, lines_of_race, succeed};
use cuda_std::executor::{Checks, Fault, FaultKind, Missing, Place, WarpOperation};
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
