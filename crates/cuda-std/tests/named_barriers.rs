//! Barriers by number (`barrier.sync`, `barrier.arrive`), to which some warps of a block come: who meets whom, what they know of one another
//! afterwards, and what is wrong.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, lines_of_race, succeed};
use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::{Checks, Elsewhere, FaultKind, Place};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("named_barriers.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
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
