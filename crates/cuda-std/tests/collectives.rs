//! What lanes of a warp, and threads of a block, find out together: which have the same value, what their numbers come to, how many say yes.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::executor::{
    BlockOperation, Change, Changes, Checks, Elsewhere, Executor, FaultKind, Place, SourceLine, WarpOperation,
};
use cuda_std::prelude::*;

const SOURCE: &str = include_str!("collectives.rs");

fn line(mark: &str) -> SourceLine {
    SourceLine { file: file!().into(), line: line_of(SOURCE, mark) }
}

/// What both parts of a warp make of their values: the lanes that `mask` names, and the others.
#[kernel(block = 32, any_grid, requires(x.len() == 32, y.len() == 32 * OF_LANE))]
fn collects(mask: u32, x: GlobalSlice<'_, u64>, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id() as usize;
    unsafe {
        let x = x.get_unchecked(lane);
        let all = |mask: u32| {
            let (small, signed) = (x as u32, x as u32 as i32);
            [
                warp::match_any(mask, x),
                warp::match_any(mask, x.cast_signed()),
                warp::match_any(mask, small),
                warp::match_any(mask, f32::from_bits(small)),
                warp::match_any(mask, x as u8),
                warp::match_all(mask, x).into(),
                warp::match_all(mask, signed).into(),
                warp::reduce_add(mask, small),
                warp::reduce_add(mask, signed).cast_unsigned(),
                warp::reduce_min(mask, small),
                warp::reduce_min(mask, signed).cast_unsigned(),
                warp::reduce_max(mask, small),
                warp::reduce_max(mask, signed).cast_unsigned(),
                warp::reduce_and(mask, small),
                warp::reduce_or(mask, small),
                warp::reduce_xor(mask, signed).cast_unsigned(),
            ]
        };
        // Each part comes to its branch.
        let results = if mask >> lane & 1 == 1 { all(mask) } else { all(!mask) };
        for (i, result) in results.into_iter().enumerate() {
            y.set_unchecked(lane * OF_LANE + i, result);
        }
    }
}

const OF_LANE: usize = 16;

#[test]
fn lanes_of_a_mask_have_what_their_values_come_to() {
    let mixed = |i: u64| (i % 3) << 31 | (i % 5) << 40 | (i / 20);
    let values: [[u64; 32]; 4] = [
        std::array::from_fn(|i| mixed(i as u64)),
        std::array::from_fn(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        [u64::MAX; 32],
        // Zeros of both signs, and numbers that differ in the upper half only.
        std::array::from_fn(|i| (i as u64 % 2) << 31 | (i as u64 / 16) << 33),
    ];
    for (x, mask) in values.iter().flat_map(|x| [u32::MAX, 0x0F0F_3C01, 1 << 31].map(|mask| (x, mask))) {
        let mut y = [77; 32 * OF_LANE];
        succeed(Checks::Full, collects { mask, x: GlobalSlice::new(x), y: GlobalSliceMut::new(&mut y) }, 1);
        for lane in 0..32 {
            let part = if mask >> lane & 1 == 1 { mask } else { !mask };
            let lanes = || (0..32).filter(|lane| part >> lane & 1 == 1);
            let which = |is: &dyn Fn(u64) -> bool| lanes().filter(|&i| is(x[i])).fold(0, |all, i| all | 1 << i);
            let small = || lanes().map(|i| x[i] as u32);
            let signed = || lanes().map(|i| x[i] as u32 as i32);
            let own = x[lane];
            let expected: [u32; OF_LANE] = [
                which(&|x| x == own),
                which(&|x| x == own),
                which(&|x| x as u32 == own as u32),
                which(&|x| x as u32 == own as u32),
                which(&|x| x as u8 == own as u8),
                lanes().all(|i| x[i] == own).into(),
                small().all(|x| x == own as u32).into(),
                small().fold(0, u32::wrapping_add),
                small().fold(0, u32::wrapping_add),
                small().min().unwrap(),
                signed().min().unwrap().cast_unsigned(),
                small().max().unwrap(),
                signed().max().unwrap().cast_unsigned(),
                small().fold(u32::MAX, |all, x| all & x),
                small().fold(0, |all, x| all | x),
                small().fold(0, |all, x| all ^ x),
            ];
            assert_eq!(y[lane * OF_LANE..][..OF_LANE], expected, "lane {lane}, mask {mask:#x}, {x:x?}");
        }
    }
}

/// The second warp has 8 lanes, of which `left` leave; the others name all 32.
#[kernel(block = 40)]
fn without_some(left: u32, y: GlobalSliceMut<'_, u32>) {
    let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
    if t >= 32 && lane < left {
        return;
    }
    unsafe {
        let results = [
            warp::match_any(warp::ALL_LANES, 5u32),
            warp::match_all(warp::ALL_LANES, 5u64).into(),
            warp::reduce_add(warp::ALL_LANES, 1u32),
            warp::reduce_min(warp::ALL_LANES, lane),
        ];
        for (i, result) in results.into_iter().enumerate() {
            y.set_unchecked(4 * t as usize + i, result);
        }
    }
}

#[test]
fn lanes_that_have_left_or_that_the_block_lacks_are_not_waited_for() {
    for checks in ALL_CHECKS {
        let mut y = [77; 160];
        succeed(checks, without_some { left: 3, y: GlobalSliceMut::new(&mut y) }, 1);
        assert_eq!(y[..4], [u32::MAX, 1, 32, 0]);
        assert_eq!((y[4 * 34], &y[4 * 35..][..4]), (77, &[0b1111_1000, 1, 5, 3][..]));
    }
}

/// One of the lanes does something else than the others; which, `wrong` says.
#[kernel(block = 32)]
fn comes_apart(wrong: u32) {
    let lane = warp::lane_id();
    let is_it = lane == 9;
    unsafe {
        match wrong {
            // Another function, a value of another size, a number of another type, another mask.
            0 if is_it => _ = warp::match_all(warp::ALL_LANES, lane),
            0 => _ = warp::match_any(warp::ALL_LANES, lane), // <any>
            1 if is_it => _ = warp::match_any(warp::ALL_LANES, u64::from(lane)),
            1 => _ = warp::match_any(warp::ALL_LANES, lane), // <of 32 bits>
            2 if is_it => _ = warp::reduce_max(warp::ALL_LANES, lane as i32),
            2 => _ = warp::reduce_max(warp::ALL_LANES, lane), // <unsigned>
            3 if is_it => _ = warp::reduce_or(1 << 9, lane),
            3 => _ = warp::reduce_or(warp::ALL_LANES, lane), // <or>
            // It does not name itself; it never comes.
            4 => _ = warp::reduce_xor(!(1 << 9), lane), // <own>
            _ if is_it => thread::sync_threads(),
            _ => _ = warp::match_all(warp::ALL_LANES, lane), // <absent>
        }
        thread::sync_threads();
    }
}

#[test]
fn wrong_masks_and_lanes_that_come_to_something_else_are_reported() {
    use WarpOperation as W;
    let all = [(0, W::MatchAny, "any"), (1, W::MatchAny, "of 32 bits"), (2, W::ReduceMaxU32, "unsigned")];
    for checks in ALL_CHECKS {
        for (wrong, expected, mark) in all.into_iter().chain([(3, W::ReduceOr, "or"), (5, W::MatchAll, "absent")]) {
            let fault = fault(checks, comes_apart { wrong }, 1);
            let FaultKind::WarpDivergence { operation, mask, absent } = &fault.kind else { panic!("{fault}") };
            assert_eq!((*operation, *mask, fault.location.as_ref()), (expected, u32::MAX, Some(&line(mark))));
            assert_eq!((absent.len(), absent[0].first, absent[0].count), (1, at(9, 0, 0), 1), "{fault}");
        }
        let fault = fault(checks, comes_apart { wrong: 4 }, 1);
        let kind = FaultKind::LaneNotInMask { operation: W::ReduceXor, mask: !(1 << 9), lane: 9 };
        assert_eq!((fault.kind, fault.location), (kind, Some(line("own"))));
    }
    let words = fault(Checks::Bounds, comes_apart { wrong: 2 }, 1).to_string();
    assert!(words.contains("`reduce_max` of u32 with mask 0xffffffff waits for lanes that never come\n"), "{words}");
    assert!(words.contains("waits in `reduce_max` of i32 with mask 0xffffffff"), "{words}");
}

/// Adds up in each branch by the lanes that happen to be there together, or as if these were all that take the branch.
#[kernel(block = 32, requires(y.len() == 1))]
fn opportunistic(wrong: u32, y: GlobalAtomics<'_, u32>) {
    let lane = warp::lane_id();
    let Some(y) = y.get(0).filter(|_| lane.is_multiple_of(2)) else { return };
    let mask = warp::active_mask();
    let first = mask.trailing_zeros();
    let sum = unsafe {
        match wrong {
            0 => warp::reduce_add(mask, lane),
            _ => lane + warp::warp_shuffle_xor(mask, lane, 2, 32).0, // <others>
        }
    };
    if lane == first {
        y.fetch_add(sum, atomic::Relaxed, atomic::Scope::Device);
    }
}

#[test]
fn the_active_mask_promises_the_calling_lane_alone() {
    for checks in ALL_CHECKS {
        let mut y = [0];
        succeed(checks, opportunistic { wrong: 0, y: GlobalAtomics::new(&mut y) }, 1);
        assert_eq!(y, [(0..32).step_by(2).sum()]);
        let fault = fault(checks, opportunistic { wrong: 1, y: GlobalAtomics::new(&mut y) }, 1);
        let FaultKind::InactiveLane { mask, lane, source_lane, .. } = fault.kind else { panic!("{fault}") };
        assert_eq!((mask, source_lane), (1 << lane, lane ^ 2));
        assert_eq!(fault.location, Some(line("others")));
    }
}

/// Two branches ask who is active there.
#[kernel(block = 40, requires(y.len() == 40))]
fn who_is_active(y: GlobalSliceMut<'_, u32>) {
    let mask = match warp::lane_id() % 3 {
        0 => warp::active_mask(),
        _ => warp::active_mask(),
    };
    // SAFETY: an element of its own.
    unsafe { y.set_unchecked(thread::index(), mask) }
}

#[test]
fn with_a_seed_lanes_find_some_of_those_that_come_to_the_same_call() {
    let masks = |checks, seed| {
        let mut y = [0; 40];
        let kernel = who_is_active { y: GlobalSliceMut::new(&mut y) };
        unsafe { Executor::new(checks).schedule(seed).launch(kernel, 1.into()) }.unwrap();
        y
    };
    let alone = std::array::from_fn(|t| 1 << (t % 32));
    assert_eq!((masks(Checks::Full, 0), masks(Checks::Bounds, 1)), (alone, alone));
    // Of the first warp, and of the other one, which has 8 lanes.
    let first = (0..32).step_by(3).fold(0u32, |all, lane| all | 1 << lane);
    let branch =
        |t: usize| if (t % 32).is_multiple_of(3) { first } else { !first } & if t < 32 { u32::MAX } else { 0xFF };
    let (mut whole, mut parts) = (0, 0);
    for seed in 1..20 {
        let found = masks(Checks::Full, seed);
        assert_eq!(found, masks(Checks::Full, seed), "the same seed, the same masks");
        for (t, mask) in found.into_iter().enumerate() {
            assert!(mask >> (t % 32) & 1 == 1 && mask & !branch(t) == 0, "seed {seed}, thread {t}: {mask:#x}");
            let lanes = (0..32).filter(|lane| mask >> lane & 1 == 1);
            assert!(lanes.into_iter().all(|lane| found[t / 32 * 32 + lane] == mask), "seed {seed}: {found:x?}");
            *if mask == branch(t) { &mut whole } else { &mut parts } += 1;
        }
    }
    assert!(whole > 100 && parts > 100, "{whole} whole branches, {parts} parts");
}

/// Votes of a block, again and again: those of round `i` are the bits `i` of the threads' numbers.
#[kernel(block = (8, 12), requires(y.len() == 96 * 3 * ROUNDS))]
fn block_votes(y: GlobalSliceMut<'_, u32>) {
    static NUMBERS: Shared<[u64; 96]> = Shared::new();
    let t = thread::index();
    for round in 0..ROUNDS {
        let vote = (t | 64) >> round & 1 == 1;
        unsafe {
            NUMBERS.write(t, (t + round) as u64);
            let count = thread::sync_threads_count(vote);
            assert_eq!(NUMBERS.read(95 - t), (95 - t + round) as u64, "it is a barrier, too");
            thread::sync_threads();
            let all = thread::sync_threads_and(vote);
            let any = thread::sync_threads_or(vote);
            for (i, result) in [count, all.into(), any.into()].into_iter().enumerate() {
                y.set_unchecked((3 * round + i) * 96 + t, result);
            }
        }
    }
}

const ROUNDS: usize = 9;

#[test]
fn all_threads_of_a_block_have_what_their_votes_come_to() {
    for checks in ALL_CHECKS {
        let mut y = [77; 96 * 3 * ROUNDS];
        succeed(checks, block_votes { y: GlobalSliceMut::new(&mut y) }, 1);
        for round in 0..ROUNDS {
            let count = (0..96).filter(|t| (t | 64) >> round & 1 == 1).count() as u32;
            for (i, expected) in [count, u32::from(count == 96), u32::from(count > 0)].into_iter().enumerate() {
                assert_eq!(y[(3 * round + i) * 96..][..96], [expected; 96], "round {round}, {i}");
            }
        }
    }
}

/// Threads from `limit` on do something else.
#[kernel(block = 64)]
fn block_comes_apart(limit: u32, wrong: u32) {
    unsafe {
        if thread::thread_idx_x() < limit {
            thread::sync_threads_or(true); // <votes>
        } else {
            match wrong {
                0 => {}
                1 => thread::sync_threads(),                     // <waits>
                2 => _ = thread::sync_threads_and(false),        // <all>
                _ => _ = thread::sync_threads_or(limit == 1000), // <votes, too>
            }
        }
    }
}

#[test]
fn threads_that_do_not_come_to_vote_are_reported() {
    for checks in ALL_CHECKS {
        succeed(checks, block_comes_apart { limit: 64, wrong: 0 }, 2);
        let absent = fault(checks, block_comes_apart { limit: 40, wrong: 0 }, 1);
        let elsewhere = vec![Elsewhere { first: at(40, 0, 0), count: 24, place: Place::Returned }];
        assert_eq!(absent.kind, FaultKind::BarrierDivergence { waiting: 40, absent: elsewhere });
        assert_eq!(absent.location, Some(line("votes")));
        // One kind of vote by two calls: of one warp, and of two.
        let split = fault(checks, block_comes_apart { limit: 40, wrong: 3 }, 1);
        assert!(matches!(split.kind, FaultKind::WarpSplitAtBarriers { waiting: 8, .. }), "{split}");
        succeed(checks, block_comes_apart { limit: 32, wrong: 3 }, 1);
        for (wrong, operation, mark) in [(1, BlockOperation::Sync, "waits"), (2, BlockOperation::SyncAnd, "all")] {
            for limit in [32, 40] {
                let mixed = fault(checks, block_comes_apart { limit, wrong }, 1);
                let (other, location) = (BlockOperation::SyncOr, line("votes"));
                assert_eq!(
                    mixed.kind,
                    FaultKind::BarrierMixed { operation, other, thread: at(0, 0, 0), location },
                    "{mixed}"
                );
                assert_eq!((mixed.thread, mixed.location), (at(limit, 0, 0), Some(line(mark))));
            }
        }
    }
}

/// Each warp counts in its own way, then the block does.
#[kernel(block = 64, requires(y.len() == 64))]
fn changed(y: GlobalSliceMut<'_, u32>) {
    static COUNTS: Shared<[u32; 64]> = Shared::new();
    let (t, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        let same = warp::match_any(warp::ALL_LANES, lane / 8); // <match any>
        let all = warp::match_all(warp::ALL_LANES, lane / 31); // <match all>
        let most = warp::reduce_max(warp::ALL_LANES, lane as i32); // <reduce>
        COUNTS.write(t, same.count_ones() + most as u32 + u32::from(all));
        let count = thread::sync_threads_count(t % 2 == 0); // <count>
        y.set_unchecked(t, COUNTS.read(t ^ 32) + count);
    }
}

#[test]
fn each_of_them_can_be_changed_and_a_check_or_the_result_tells() {
    let launch = |changes: &Arc<Changes>| {
        let mut y = [0; 64];
        let executor = Executor::new(Checks::Full).with_changes(changes.clone());
        let result = unsafe { executor.launch(changed { y: GlobalSliceMut::new(&mut y) }, 1.into()) };
        result.map(|()| y).map_err(|error| error.to_string())
    };
    let noted = Arc::new(Changes::default());
    let right = launch(&noted).unwrap();
    assert_eq!(right, [8 + 31 + 32; 64]);
    let met = noted.take_met();
    let of = |function| met.iter().filter(|call| call.function == function).map(|call| call.change).collect::<Vec<_>>();
    for function in ["match_any", "match_all", "reduce_max"] {
        assert_eq!(of(function), [Change::OneLaneLess], "{function}");
    }
    assert_eq!(of("sync_threads_count"), [Change::Omitted]);
    let mut told = BTreeSet::new();
    for call in &met {
        let changes = Arc::new(Changes::making(&call.to_string()).unwrap());
        let result = launch(&changes);
        assert!(changes.is_made() && result != Ok(right), "{call}");
        told.insert(call.function);
    }
    assert!(told.len() >= 4, "{told:?}");
}
