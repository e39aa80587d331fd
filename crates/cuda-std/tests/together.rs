//! Barriers, and what the lanes of a warp do together.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::executor::{Checks, Elsewhere, Fault, FaultKind, Place, SourceLine, WarpOperation};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("together.rs");

fn line(mark: &str) -> SourceLine {
    SourceLine { file: file!().into(), line: line_of(SOURCE, mark) }
}

fn barrier_divergence(fault: &Fault) -> (usize, &[Elsewhere]) {
    match &fault.kind {
        FaultKind::BarrierDivergence { waiting, absent } => (*waiting, absent),
        _ => panic!("{fault}"),
    }
}

/// Threads up to `limit` take a branch with a barrier; the others take one with another barrier, if `both`.
#[kernel(block = (16, 4, 2))]
fn branches(limit: u32, both: u32) {
    let t = thread::thread_idx_x() + 16 * (thread::thread_idx_y() + 4 * thread::thread_idx_z());
    unsafe {
        if t < limit {
            thread::sync_threads(); // <then>
        } else if both != 0 {
            thread::sync_threads(); // <else>
        }
    }
}

#[test]
fn a_barrier_that_some_threads_never_reach_is_reported() {
    for checks in ALL_CHECKS {
        for limit in [1, 70, 127] {
            let fault = fault(checks, branches { limit, both: 0 }, (2, 2));
            assert_eq!((fault.block, fault.thread), (at(0, 0, 0), at(0, 0, 0)));
            assert_eq!(fault.location, Some(line("then")));
            let first = at(limit % 16, limit / 16 % 4, limit / 64);
            let absent = [Elsewhere { first, count: 128 - limit as usize, place: Place::Returned }];
            assert_eq!(barrier_divergence(&fault), (limit as usize, &absent[..]));
        }
        // None or all; or two calls for different warps, which is one barrier.
        succeed(checks, branches { limit: 0, both: 0 }, 3);
        succeed(checks, branches { limit: 128, both: 0 }, 3);
        succeed(checks, branches { limit: 32, both: 1 }, 3);
        succeed(checks, branches { limit: 96, both: 1 }, 3);
    }
    let message = fault(Checks::Bounds, branches { limit: 127, both: 0 }, 1).to_string();
    for expected in
        ["127 threads wait at a barrier that the others never reach\n", "note: thread (15, 3, 1) has returned\n"]
    {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_warp_that_is_split_between_two_barriers_is_reported() {
    for checks in ALL_CHECKS {
        // The warp of thread 50 has 18 threads at one barrier and 14 at the other.
        let fault = fault(checks, branches { limit: 50, both: 1 }, 3);
        assert_eq!((fault.block, fault.thread), (at(0, 0, 0), at(0, 2, 0)));
        assert_eq!(fault.location, Some(line("then")));
        let elsewhere = vec![Elsewhere { first: at(2, 3, 0), count: 14, place: Place::Barrier(line("else")) }];
        assert_eq!(fault.kind, FaultKind::WarpSplitAtBarriers { waiting: 18, elsewhere });
        let elsewhere =
            format!("note: 14 threads, the first of them (2, 3, 0), wait at the barrier at {}\n", line("else"));
        for expected in
            ["18 threads of the warp wait at this barrier, and others of the same warp at another\n", &elsewhere]
        {
            assert!(fault.to_string().contains(expected), "{fault}");
        }
    }
}

/// Two calls on one line, which lane 31 takes the second of.
#[kernel(block = 64)]
fn branches_on_one_line() {
    let calls: [fn(); 2] = [|| unsafe { thread::sync_threads() }, || unsafe { thread::sync_threads() }]; // <one line>
    calls[usize::from(warp::lane_id() == 31)]();
}

#[test]
fn two_barriers_on_one_line_are_two() {
    let fault = fault(Checks::Bounds, branches_on_one_line {}, 1);
    let place = Place::Barrier(line("one line"));
    let elsewhere = vec![Elsewhere { first: at(31, 0, 0), count: 1, place }];
    assert_eq!(fault.kind, FaultKind::WarpSplitAtBarriers { waiting: 31, elsewhere });
    assert_eq!(fault.location, Some(line("one line")));
}

/// Returns early in whole blocks, or in single threads.
#[kernel(block = 40)]
fn returns_early(blocks: u32, threads: u32, out: GlobalSliceMut<'_, u32>) {
    static ARRAY: Shared<[u32; 40]> = Shared::new();
    let (t, block) = (thread::thread_idx_x(), thread::block_idx_x());
    if block < blocks || t < threads {
        return;
    }
    unsafe {
        ARRAY.write(t as usize, t + block);
        thread::sync_threads(); // <after return>
        out.set_unchecked(thread::index_1d(), ARRAY.read(39 - t as usize));
    }
}

#[test]
fn a_whole_block_may_return_before_a_barrier_but_not_a_part_of_it() {
    for checks in ALL_CHECKS {
        let mut out = [9; 160];
        succeed(checks, returns_early { blocks: 2, threads: 0, out: GlobalSliceMut::new(&mut out) }, 4);
        assert_eq!(out[..80], [9; 80]);
        assert!((80..160).all(|i| out[i] == 39 - i as u32 % 40 + i as u32 / 40));

        let fault = fault(checks, returns_early { blocks: 2, threads: 33, out: GlobalSliceMut::new(&mut out) }, 4);
        assert_eq!((fault.block, fault.thread), (at(2, 0, 0), at(33, 0, 0)));
        let absent = [Elsewhere { first: at(0, 0, 0), count: 33, place: Place::Returned }];
        assert_eq!(barrier_divergence(&fault), (7, &absent[..]));
        assert_eq!(fault.location, Some(line("after return")));
    }
}

/// Lanes from `limit` on wait somewhere else than the shuffle that the others are in.
#[kernel(block = 64)]
fn shuffles_in_a_branch(limit: u32, elsewhere: u32, mask: u32) {
    let lane = warp::lane_id();
    unsafe {
        if lane < limit {
            warp::warp_shuffle_down(mask, lane, 1, 32); // <shuffle>
        } else if elsewhere == 1 {
            thread::sync_threads(); // <instead>
        } else if elsewhere == 2 {
            warp::warp_vote_any(mask, true); // <vote>
        }
    }
}

#[test]
fn a_shuffle_that_some_of_its_lanes_never_reach_is_reported() {
    for checks in ALL_CHECKS {
        let at_barrier = fault(checks, shuffles_in_a_branch { limit: 30, elsewhere: 1, mask: u32::MAX }, 1);
        assert_eq!((at_barrier.thread, &at_barrier.location), (at(0, 0, 0), &Some(line("shuffle"))));
        let place = Place::Barrier(line("instead"));
        assert_eq!(
            at_barrier.kind,
            FaultKind::WarpDivergence {
                operation: WarpOperation::ShuffleDown,
                mask: u32::MAX,
                absent: vec![Elsewhere { first: at(30, 0, 0), count: 2, place }],
            }
        );

        let in_vote = fault(checks, shuffles_in_a_branch { limit: 31, elsewhere: 2, mask: u32::MAX }, 1);
        let FaultKind::WarpDivergence { absent, .. } = &in_vote.kind else { panic!("{in_vote}") };
        let place = Place::Warp { operation: WarpOperation::VoteAny, mask: u32::MAX, location: line("vote") };
        assert_eq!(*absent, [Elsewhere { first: at(31, 0, 0), count: 1, place }]);
        assert!(
            in_vote.to_string().contains("thread (31, 0, 0) waits in `warp_vote_any` with mask 0xffffffff at"),
            "{in_vote}"
        );

        succeed(checks, shuffles_in_a_branch { limit: 32, elsewhere: 1, mask: u32::MAX }, 1);
        // Those that have returned are not waited for, but lane 29 would get the value of one of them.
        let inactive = fault(checks, shuffles_in_a_branch { limit: 30, elsewhere: 0, mask: u32::MAX }, 1);
        let (operation, mask) = (WarpOperation::ShuffleDown, u32::MAX);
        assert_eq!(inactive.kind, FaultKind::InactiveLane { operation, mask, lane: 29, source_lane: 30 });
        assert_eq!((inactive.thread, inactive.location), (at(29, 0, 0), Some(line("shuffle"))));
    }
}

/// Two halves of a warp at different operations, each with its own mask, before a common barrier.
#[kernel(block = 32)]
fn halves(out: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    unsafe {
        let value = if lane < 16 {
            warp::warp_shuffle_xor(0xFFFF, lane, 15, 32).0
        } else {
            warp::sync_warp(0xFFFF_0000);
            warp::warp_vote_ballot(0xFFFF_0000, lane.is_multiple_of(3))
        };
        thread::sync_threads();
        out.set_unchecked(lane as usize, value);
    }
}

#[test]
fn lanes_with_different_masks_do_not_wait_for_each_other() {
    for checks in ALL_CHECKS {
        let mut out = [0; 32];
        succeed(checks, halves { out: GlobalSliceMut::new(&mut out) }, 1);
        let ballot = (16..32).filter(|lane| lane % 3 == 0).map(|lane| 1 << lane).sum::<u32>();
        let expected: Vec<u32> = (0..32).map(|lane| if lane < 16 { 15 - lane } else { ballot }).collect();
        assert_eq!(out[..], expected);
    }
}

#[kernel(block = 32)]
fn calls_with(mask: u32) {
    unsafe { warp::sync_warp(mask) } // <own mask>
}

#[test]
fn a_lane_has_to_be_named_in_its_own_mask() {
    for checks in ALL_CHECKS {
        succeed(checks, calls_with { mask: u32::MAX }, 1);
        let fault = fault(checks, calls_with { mask: !(1 << 5) }, 1);
        let kind = FaultKind::LaneNotInMask { operation: WarpOperation::Sync, mask: !(1 << 5), lane: 5 };
        assert_eq!((fault.thread, fault.kind), (at(5, 0, 0), kind));
        assert_eq!(fault.location, Some(line("own mask")));
    }
}

/// All shuffles of each lane's number plus 100, for one operand and width.
#[kernel(block = 32)]
fn all_shuffles(b: u32, width: u32, out: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    let value = lane + 100;
    unsafe {
        let shuffled = [
            warp::warp_shuffle_up(u32::MAX, value, b, width),
            warp::warp_shuffle_down(u32::MAX, value, b, width),
            warp::warp_shuffle_xor(u32::MAX, value, b, width),
            warp::warp_shuffle_idx(u32::MAX, value, b, width),
        ];
        for (i, (value, inside)) in shuffled.into_iter().enumerate() {
            out.set_unchecked(8 * lane as usize + 2 * i, value);
            out.set_unchecked(8 * lane as usize + 2 * i + 1, inside.into());
        }
    }
}

/// The source lane as the description of `__shfl_*_sync` in CUDA's programming guide has it, in terms of segments of
/// `width` lanes. `None` where there is no source in reach.
fn source(shuffle: usize, lane: u32, b: u32, width: u32) -> Option<u32> {
    let (segment, place) = (lane / width * width, lane % width);
    let b = b % 32;
    match shuffle {
        0 => (b <= place).then(|| lane - b),
        1 => (place + b < width).then(|| lane + b),
        // Exchanging with an earlier segment is allowed, with a later one not.
        2 => ((lane ^ b) < segment + width).then_some(lane ^ b),
        _ => Some(segment + b % width),
    }
}

#[test]
fn shuffles_move_values_as_on_a_gpu() {
    for width in [1, 2, 4, 8, 16, 32] {
        for b in (0..34).chain([63, 64, u32::MAX]) {
            let mut out = [0; 256];
            succeed(Checks::Bounds, all_shuffles { b, width, out: GlobalSliceMut::new(&mut out) }, 1);
            for lane in 0..32 {
                for shuffle in 0..4 {
                    let at = 8 * lane as usize + 2 * shuffle;
                    let source = source(shuffle, lane, b, width);
                    let expected = [source.unwrap_or(lane) + 100, source.is_some().into()];
                    assert_eq!(out[at..at + 2], expected, "shuffle {shuffle}, lane {lane}, {b}, width {width}");
                }
            }
        }
    }
}

#[test]
fn the_width_of_a_shuffle_is_checked() {
    for width in [0, 3, 64] {
        let mut out = [0; 256];
        let fault = fault(Checks::Bounds, all_shuffles { b: 1, width, out: GlobalSliceMut::new(&mut out) }, 1);
        let FaultKind::Panic { message } = &fault.kind else { panic!("{fault}") };
        assert!(message.contains(&format!("this one has {width}")), "{message}");
        assert_eq!(fault.location.unwrap().file, file!());
    }
}

/// Sums by shuffles, with elements of 8 and of 4 bytes.
#[kernel(block = 64)]
fn sums(doubles: GlobalSliceMut<'_, f64>, integers: GlobalSliceMut<'_, i64>, floats: GlobalSliceMut<'_, f32>) {
    static PARTS: Shared<[f64; 2]> = Shared::new();
    let t = thread::thread_idx_x() as usize;
    unsafe {
        let mut double = doubles.get_unchecked(t);
        let mut integer = integers.get_unchecked(t);
        let mut float = floats.get_unchecked(t);
        for delta in [16, 8, 4, 2, 1] {
            double += warp::warp_shuffle_down(u32::MAX, double, delta, 32).0;
            integer ^= warp::warp_shuffle_xor(u32::MAX, integer, delta, 32).0;
            float += warp::warp_shuffle_xor(u32::MAX, float, delta, 32).0;
        }
        if warp::lane_id() == 0 {
            PARTS.write(t / 32, double);
        }
        thread::sync_threads();
        doubles.set_unchecked(t, PARTS.read(0) + PARTS.read(1));
        integers.set_unchecked(t, integer);
        floats.set_unchecked(t, float);
    }
}

#[test]
fn eight_byte_elements_keep_all_their_bits() {
    for checks in ALL_CHECKS {
        let mut doubles: Vec<f64> = (0..64).map(|i| f64::from(i) * (1.0 + f64::EPSILON)).collect();
        let mut integers: Vec<i64> = (0..64).map(|i: i64| -0x0123_4567_89AB_CDEF ^ i << 40 ^ i).collect();
        let mut floats: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let sum: f64 = doubles.iter().sum();
        let xors = [0, 32].map(|first| integers[first..first + 32].iter().fold(0, |xor, value| xor ^ value));
        let kernel = sums {
            doubles: GlobalSliceMut::new(&mut doubles),
            integers: GlobalSliceMut::new(&mut integers),
            floats: GlobalSliceMut::new(&mut floats),
        };
        succeed(checks, kernel, 1);
        assert!(doubles.iter().all(|value| (value - sum).abs() < 1e-9), "{doubles:?}");
        for i in 0..64 {
            assert_eq!((integers[i], floats[i]), (xors[i / 32], [496.0, 1520.0][i / 32]));
        }
    }
}

/// The votes of the lanes in `mask`, each lane's predicate being its bit in `predicates`.
#[kernel(block = 32)]
fn votes(mask: u32, predicates: u32, out: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    if mask >> lane & 1 == 0 {
        return;
    }
    let predicate = predicates >> lane & 1 != 0;
    unsafe {
        let all = warp::warp_vote_all(mask, predicate);
        let any = warp::warp_vote_any(mask, predicate);
        let ballot = warp::warp_vote_ballot(mask, predicate);
        out.set_unchecked(2 * lane as usize, ballot);
        out.set_unchecked(2 * lane as usize + 1, u32::from(all) << 1 | u32::from(any));
    }
}

#[test]
fn votes_count_the_lanes_of_the_mask() {
    for mask in [u32::MAX, 1, 0xF0F0_0001, 1 << 31] {
        for predicates in [0, u32::MAX, 1, 0xF0F0_0000, 1 << 31] {
            let mut out = [77; 64];
            succeed(Checks::Full, votes { mask, predicates, out: GlobalSliceMut::new(&mut out) }, 1);
            let ballot = mask & predicates;
            let expected = [ballot, u32::from(ballot == mask) << 1 | u32::from(ballot != 0)];
            for lane in 0..32 {
                let expected = if mask >> lane & 1 == 1 { expected } else { [77, 77] };
                assert_eq!(out[2 * lane..2 * lane + 2], expected, "{mask:x} {predicates:x} {lane}");
            }
        }
    }
}

/// Blocks of 40 threads: the second warp has 8 lanes.
#[kernel(block = (8, 5))]
fn partial_warp(width: u32, floats: GlobalSliceMut<'_, f32>, ballots: GlobalSliceMut<'_, u32>) {
    let t = (thread::thread_idx_x() + 8 * thread::thread_idx_y()) as usize;
    unsafe {
        let (value, inside) = warp::warp_shuffle_down(u32::MAX, t as f32, 4, width);
        warp::sync_warp(u32::MAX);
        floats.set_unchecked(t, if inside { value } else { -1.0 });
        ballots.set_unchecked(t, warp::warp_vote_ballot(u32::MAX, true));
    }
}

#[test]
fn lanes_that_a_partial_warp_lacks_are_not_waited_for() {
    for checks in ALL_CHECKS {
        let (mut floats, mut ballots) = ([0.0; 40], [0; 40]);
        let whole = (GlobalSliceMut::new(&mut floats), GlobalSliceMut::new(&mut ballots));
        let inactive = fault(checks, partial_warp { width: 32, floats: whole.0, ballots: whole.1 }, 1);
        let (operation, mask) = (WarpOperation::ShuffleDown, u32::MAX);
        assert_eq!(inactive.kind, FaultKind::InactiveLane { operation, mask, lane: 4, source_lane: 8 });
        assert_eq!(inactive.thread, at(4, 4, 0));
        let parts = (GlobalSliceMut::new(&mut floats), GlobalSliceMut::new(&mut ballots));
        succeed(checks, partial_warp { width: 8, floats: parts.0, ballots: parts.1 }, 1);
        for t in 0..40 {
            assert_eq!(ballots[t], if t < 32 { u32::MAX } else { 0xFF });
            assert_eq!(floats[t], if t % 8 < 4 { t as f32 + 4.0 } else { -1.0 });
        }
    }
}
