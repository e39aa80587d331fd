//! What lanes of a warp find out together, and who of them does something for all: buckets and histograms by lanes with the same key, sums of
//! runs, largest and nearest numbers, work lists, lanes that are active.

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::executor::Executor;
use cuda_std::prelude::*;

use crate::pattern::Class::{GlobalRace, InactiveLane, SharedRace, WarpDivergence, WarpRace};
use crate::pattern::{Family, Pattern, Report, found, launch, sometimes};

const RACE: &str = "race in global memory";
const SHARED: &str = "race in shared memory";
const DIVERGENCE: &str = "warp divergence";
const NOT_IN_MASK: &str = "lane not in mask";
const INACTIVE: &str = "inactive lane";

/// The lanes before this one.
fn lanes_before(lane: u32) -> u32 {
    (1 << lane) - 1
}

/// Numbers are put into four buckets, in any order: one lane for all with the same bucket takes places there, and tells them.
///
/// After A. Adinets, "CUDA Pro Tip: Optimized Filtering with Warp-Aggregated Atomics" (2014).
#[kernel(block = 64)]
fn places_in_buckets(wrong: u32, x: GlobalSlice<'_, u32>, ends: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (i, lane) = (thread::index_1d(), warp::lane_id());
    unsafe {
        let there = warp::warp_vote_ballot(warp::ALL_LANES, i < x.len());
        // The mistake: the mask of all lanes, in a branch that some do not take.
        let mask = if wrong == 1 { warp::ALL_LANES } else { there };
        if i < x.len() {
            let number = x.get_unchecked(i);
            let bucket = (number % 4) as usize;
            let same = warp::match_any(mask, bucket as u32); // <buckets: match>
            // The mistake: the first lane of all takes places, and not that of the bucket.
            let leader = if wrong == 2 { mask.trailing_zeros() } else { same.trailing_zeros() };
            let mut first = 0;
            if lane == leader
                && let Some(end) = ends.get(bucket)
            {
                first = end.fetch_add(same.count_ones(), Relaxed, Scope::Device);
            }
            // The mistake: nobody tells the others.
            if wrong != 3 {
                first = warp::warp_shuffle_idx(same, first, leader, 32).0; // <buckets: tell>
            }
            // The mistake: lanes of other buckets are counted, too.
            let others = if wrong == 4 { mask } else { same };
            let place = first + (others & lanes_before(lane)).count_ones();
            y.set_unchecked(128 * bucket + place as usize, number); // <buckets: put>
        }
        thread::sync_threads();
    }
}

/// Each warp counts in bins of its own: of the lanes with the same bin, the first one adds.
#[kernel(block = 64)]
fn histogram_by_matches(wrong: u32, x: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    static BINS: Shared<[[u32; 8]; 2]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        // The mistake: both warps have the same bins.
        let warp = if wrong == 6 { 0 } else { me / 32 };
        if lane < 8 {
            BINS.write([me / 32, lane as usize], 0); // <matched bins: zero>
        }
        match wrong {
            5 => {}
            6 => thread::sync_threads(),
            _ => warp::sync_warp(warp::ALL_LANES),
        }
        for round in 0..4 {
            let number = x.get_unchecked(64 * round + me);
            let bin = (number % 8) as usize;
            // The mistake: lanes with the same number are found, and not those with the same bin.
            let key = if wrong == 1 { number } else { bin as u32 };
            let same = warp::match_any(warp::ALL_LANES, key);
            // The mistake: every lane adds.
            if wrong == 2 || lane == same.trailing_zeros() {
                let count = BINS.read([warp, bin]) + same.count_ones(); // <matched bins: read>
                BINS.write([warp, bin], count); // <matched bins: write>
            }
            if wrong != 3 {
                warp::sync_warp(warp::ALL_LANES);
            }
        }
        match wrong {
            4 => warp::sync_warp(warp::ALL_LANES),
            _ => thread::sync_threads(),
        }
        if me < 8 {
            let count = BINS.read([0, me]) + BINS.read([1, me]); // <matched bins: result>
            bins.atomic_unchecked(me).fetch_add(count, Relaxed, Scope::Device);
        }
    }
}

/// Sums of numbers with the same key, of keys in order: each warp adds up those that it has.
#[kernel(block = 64)]
fn sums_of_keys(wrong: u32, keys: GlobalSlice<'_, u32>, x: GlobalSlice<'_, u32>, sums: GlobalSliceMut<'_, u32>) {
    let (i, lane) = (thread::index_1d(), warp::lane_id());
    unsafe {
        let (key, number) = (keys.get_unchecked(i), x.get_unchecked(i));
        let same = warp::match_any(warp::ALL_LANES, key);
        let is_first = lane == same.trailing_zeros();
        match wrong {
            // The mistake: the first lane adds up alone.
            1 if is_first => _ = warp::reduce_add(same, number), // <of keys: alone>
            1 => {}
            // The mistake: who has nothing to add does not come.
            2 if number == 0 => {}
            _ => {
                let sum = warp::reduce_add(same, number); // <of keys: sum>
                // The mistakes: sums that are not atomic, though other warps have the key as well; every lane writes the sum.
                if wrong == 3 && is_first || wrong == 4 {
                    sums.set_unchecked(key as usize, sums.get_unchecked(key as usize) + sum); // <of keys: plain>
                } else if is_first {
                    sums.atomic_unchecked(key as usize).fetch_add(sum, Relaxed, Scope::Device);
                }
            }
        }
        thread::sync_threads();
    }
}

/// The same of runs whose lanes are found by where the runs begin.
#[kernel(block = 32)]
fn sums_of_runs(wrong: u32, keys: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (i, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        let key = keys.get_unchecked(i);
        let before = warp::warp_shuffle_up(warp::ALL_LANES, key, 1, 32).0;
        let heads = warp::warp_vote_ballot(warp::ALL_LANES, lane == 0 || key != before);
        // The mistake: the head of a run counts as one of the run before.
        let up_to = if wrong == 1 { lanes_before(lane) | 1 } else { lanes_before(lane) << 1 | 1 };
        let first = 31 - (heads & up_to).leading_zeros();
        let behind = heads & !(lanes_before(lane) << 1 | 1);
        // The mistake: a run without its last lane.
        let end = if wrong == 2 && behind != 0 { behind.trailing_zeros() - 1 } else { behind.trailing_zeros() };
        let run = (lanes_before(end.min(31)) | u32::from(end >= 32) << 31) & !lanes_before(first);
        // The mistake: the sum of all lanes is asked for where only a head is.
        let sum = match wrong {
            3 if lane == first => warp::reduce_add(warp::ALL_LANES, 1u32), // <of runs: head>
            3 => 0,
            _ => warp::reduce_add(run, 1u32), // <of runs: sum>
        };
        thread::sync_threads();
        y.set_unchecked(i, sum);
    }
}

/// The largest of many numbers, by one instruction of each warp, and of the first one.
#[kernel(block = 128)]
fn largest_of_a_block(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static LARGEST: Shared<[u32; 4]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id() as usize);
    unsafe {
        let mut largest = 0;
        for i in (me..x.len()).step_by(128) {
            largest = largest.max(x.get_unchecked(i));
            // The mistake: in a loop that lanes leave at different times.
            if wrong == 1 {
                largest = warp::reduce_max(warp::ALL_LANES, largest);
            }
        }
        largest = warp::reduce_max(warp::ALL_LANES, largest); // <largest: of a warp>
        if lane == 0 {
            LARGEST.write(me / 32, largest); // <largest: write>
        }
        match wrong {
            2 => {}
            // The mistake: a reduction in place of a barrier.
            5 => _ = warp::reduce_or(warp::ALL_LANES, 1u32),
            _ => thread::sync_threads(),
        }
        // The mistakes: all lanes are named where four come; four are named where all come.
        if me < 4 || wrong == 4 && me < 32 {
            let mask = if wrong == 3 { warp::ALL_LANES } else { 0xF };
            let largest = LARGEST.read(me % 4); // <largest: read>
            let largest = warp::reduce_max(mask, largest); // <largest: of the block>
            if me == 0 {
                y.set_unchecked(0, largest);
            }
        }
        thread::sync_threads();
    }
}

/// Which number of a warp is the smallest: one of those who have it says so.
#[kernel(block = 64)]
fn smallest_of_a_warp(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (i, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        let is_there = i < x.len();
        let number = if is_there { x.get_unchecked(i) } else { u32::MAX };
        // The mistake: lanes without a number are not named, and come all the same.
        let mask = if wrong == 3 { warp::warp_vote_ballot(warp::ALL_LANES, is_there) } else { warp::ALL_LANES };
        let is_smallest = number == warp::reduce_min(mask, number); // <smallest: number>
        // The mistake: only those who have it are asked who has it.
        let who = match wrong {
            1 if is_smallest => warp::warp_vote_ballot(warp::ALL_LANES, true), // <smallest: vote>
            1 => 0,
            _ => warp::warp_vote_ballot(warp::ALL_LANES, is_smallest),
        };
        // The mistake: all who have it say so.
        if is_smallest && (wrong == 2 || lane == who.trailing_zeros()) {
            y.set_unchecked(i / 32, i as u32); // <smallest: write>
        }
        thread::sync_threads();
    }
}

/// Threads put what they find on a list, in loops of different lengths: those that happen to be active take places together.
#[kernel(block = 64)]
fn list_of_active_lanes(wrong: u32, x: GlobalSlice<'_, u32>, end: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let lane = warp::lane_id();
    let Some(end) = end.get(0) else { return };
    unsafe {
        let mut number = x.get_unchecked(thread::index_1d());
        while number > 0 {
            // The mistakes: lanes are asked before the branch; or voted for in a loop that lanes leave.
            let before = match wrong {
                3 => warp::active_mask(),
                4 => warp::warp_vote_ballot(warp::ALL_LANES, number % 2 == 1), // <active: vote>
                _ => 0,
            };
            if number % 2 == 1 {
                let mask = match wrong {
                    // The mistake: all lanes, in a branch.
                    1 => warp::ALL_LANES,
                    3 | 4 => before,
                    _ => warp::active_mask(),
                };
                // The mistake: the first lane of the warp takes places.
                let leader = if wrong == 2 { 0 } else { mask.trailing_zeros() };
                let mut first = 0;
                if lane == leader {
                    first = end.fetch_add(mask.count_ones(), Relaxed, Scope::Device);
                }
                // The mistake: those who are active now are asked, and not those whose places were taken.
                let told = if wrong == 5 { warp::active_mask() } else { mask };
                first = warp::warp_shuffle_idx(told, first, leader, 32).0; // <active: tell>
                let place = first + (mask & lanes_before(lane)).count_ones();
                y.set_unchecked(place as usize, number);
            }
            number /= 2;
        }
        thread::sync_threads();
    }
}

/// Each warp counts its lanes in a branch, by who is active there.
#[kernel(block = 64)]
fn counts_of_active_lanes(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let (i, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        let is_odd = x.get_unchecked(i) % 2 == 1;
        let odd = warp::warp_vote_ballot(warp::ALL_LANES, is_odd);
        if is_odd {
            let mask = if wrong == 0 { odd } else { warp::active_mask() };
            if lane == mask.trailing_zeros() {
                match wrong {
                    // The mistake: as if all lanes of the branch were active together.
                    1 => y.set_unchecked(i / 32, mask.count_ones()), // <counts: active>
                    _ => y.set_unchecked(i / 32, odd.count_ones()),  // <counts: write>
                }
            }
        }
    }
}

/// If all lanes have the same key, one of them adds for all.
#[kernel(block = 64)]
fn one_for_all(wrong: u32, keys: GlobalSlice<'_, u32>, sums: GlobalSliceMut<'_, u32>) {
    static KEYS: Shared<[u32; 2]> = Shared::new();
    let (me, lane) = (thread::thread_idx_x() as usize, warp::lane_id());
    unsafe {
        let mut i = me;
        // The mistake: a warp goes on as long as a lane of it has a key, and here each lane alone.
        while if wrong == 1 { i < keys.len() } else { i / 32 * 32 < keys.len() } {
            let key = if i < keys.len() { keys.get_unchecked(i) } else { 0 };
            if lane == 0 {
                KEYS.write(me / 32, key); // <for all: write>
            }
            let is_same = warp::match_all(warp::ALL_LANES, key); // <for all: match>
            // The mistake: a match orders no accesses to memory.
            if wrong != 3 {
                warp::sync_warp(warp::ALL_LANES);
            }
            let first = KEYS.read(me / 32); // <for all: read>
            // The mistake: a lane looks at its own key only.
            if is_same || wrong == 2 && key == first {
                let sum = warp::reduce_add(warp::ALL_LANES, 1u32); // <for all: sum>
                if lane == 0 {
                    match wrong {
                        4 => sums.set_unchecked(key as usize, sums.get_unchecked(key as usize) + sum), // <for all: plain>
                        _ => _ = sums.atomic_unchecked(key as usize).fetch_add(sum, Relaxed, Scope::Device),
                    }
                }
            } else {
                sums.atomic_unchecked(key as usize).fetch_add(1, Relaxed, Scope::Device);
            }
            warp::sync_warp(warp::ALL_LANES);
            i += 64;
        }
        thread::sync_threads();
    }
}

/// Groups of lanes with the same key, without those that have nothing: the first one tells, and all bring what they have.
#[kernel(block = 32)]
fn groups_without_some(wrong: u32, keys: GlobalSlice<'_, u32>, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::thread_idx_x() as usize;
    unsafe {
        let (key, number) = (keys.get_unchecked(i), x.get_unchecked(i));
        let there = warp::warp_vote_ballot(warp::ALL_LANES, number != 0);
        // Of all lanes, those that have nothing among them.
        let of_all = warp::match_any(warp::ALL_LANES, key);
        // The mistakes: groups that are made before lanes leave, whose first lane tells; before lanes do something else.
        if wrong == 1 && number == 0 {
            return;
        }
        if number != 0 {
            let same = match wrong {
                0 => warp::match_any(there, key),
                _ => of_all,
            };
            let first = warp::warp_shuffle_idx(same, number, same.trailing_zeros(), 32).0; // <groups: tell>
            let bits = warp::reduce_or(same, number);
            y.set_unchecked(i, first + bits);
        }
        thread::sync_threads();
    }
}

fn run_places(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..120).map(|i| i * 7 % 31).collect();
    let (mut ends, mut y) = ([0; 4], vec![u32::MAX; 512]);
    let (ends_view, y_view) = (GlobalAtomics::new(&mut ends), GlobalSliceMut::new(&mut y));
    launch(executor, places_in_buckets { wrong, x: GlobalSlice::new(&x), ends: ends_view, y: y_view }, 2)?;
    if wrong == 0 {
        for bucket in 0..4 {
            let mut expected: Vec<u32> = x.iter().copied().filter(|x| x % 4 == bucket).collect();
            let found = &mut y[128 * bucket as usize..][..ends[bucket as usize] as usize];
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(expected, found);
        }
    }
    Ok(())
}

fn run_histogram(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..256).map(|i| (i * i + i / 5) % 24).collect();
    let mut bins = [0; 8];
    let bins_view = GlobalSliceMut::new(&mut bins);
    launch(executor, histogram_by_matches { wrong, x: GlobalSlice::new(&x), bins: bins_view }, 1)?;
    if wrong == 0 {
        assert_eq!(bins, std::array::from_fn(|bin| x.iter().filter(|&&x| x as usize % 8 == bin).count() as u32));
    }
    Ok(())
}

fn run_keys(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (keys, x): (Vec<u32>, Vec<u32>) = (0..128).map(|i| (i / 11, i % 5)).unzip();
    let mut sums = [0; 12];
    let (keys_view, x_view, y) = (GlobalSlice::new(&keys), GlobalSlice::new(&x), GlobalSliceMut::new(&mut sums));
    launch(executor, sums_of_keys { wrong, keys: keys_view, x: x_view, sums: y }, 2)?;
    if wrong == 0 {
        let of_key = |key| keys.iter().zip(&x).filter(|(k, _)| **k as usize == key).map(|(_, x)| x).sum();
        assert_eq!(sums, std::array::from_fn(of_key));
    }
    Ok(())
}

fn run_runs(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let keys: [u32; 32] = std::array::from_fn(|i| i as u32 / 7);
    let mut y = [0; 32];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, sums_of_runs { wrong, keys: GlobalSlice::new(&keys), y: y_view }, 1)?;
    if wrong == 0 {
        assert_eq!(y, std::array::from_fn(|i| if i < 28 { 7 } else { 4 }));
    }
    Ok(())
}

fn run_largest(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..300).map(|i| i * 37 % 301).collect();
    let mut y = [0];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, largest_of_a_block { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    assert!(wrong != 0 || y == [300]);
    Ok(())
}

fn run_smallest(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..50).map(|i| 3 + i * 5 % 7).collect();
    let mut y = [77; 2];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, smallest_of_a_warp { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    assert!(wrong != 0 || y == [0, 35]);
    Ok(())
}

fn run_list(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: Vec<u32> = (0..128).map(|i| i * 29 % 61).collect();
    let (mut end, mut y) = ([0], vec![0; 1024]);
    let (end_view, y_view) = (GlobalAtomics::new(&mut end), GlobalSliceMut::new(&mut y));
    launch(executor, list_of_active_lanes { wrong, x: GlobalSlice::new(&x), end: end_view, y: y_view }, 2)?;
    if wrong == 0 {
        assert_eq!(end, [x.iter().map(|x| x.count_ones()).sum()]);
        assert!(y.iter().take(end[0] as usize).all(|y| y % 2 == 1));
    }
    Ok(())
}

fn run_counts(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let x: [u32; 64] = std::array::from_fn(|i| (i * i / 3) as u32);
    let mut y = [0; 2];
    let y_view = GlobalSliceMut::new(&mut y);
    launch(executor, counts_of_active_lanes { wrong, x: GlobalSlice::new(&x), y: y_view }, 1)?;
    if wrong == 0 {
        assert_eq!(y, std::array::from_fn(|warp| x[32 * warp..][..32].iter().filter(|x| **x % 2 == 1).count() as u32));
    }
    Ok(())
}

fn run_one_for_all(wrong: u32, executor: &Executor) -> Result<(), Report> {
    // The first warp has one key, then two; the second one the same key, then fewer lanes.
    let keys: Vec<u32> = (0..120).map(|i| if i < 64 { 1 } else { 2 + i % 2 }).collect();
    let mut sums = [0; 4];
    let sums_view = GlobalSliceMut::new(&mut sums);
    launch(executor, one_for_all { wrong, keys: GlobalSlice::new(&keys), sums: sums_view }, 1)?;
    // Lanes without a key count as those with key 0.
    assert!(wrong != 0 || sums == [8, 64, 28, 28], "{sums:?}");
    Ok(())
}

fn run_groups(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let (keys, x): (Vec<u32>, Vec<u32>) = (0..32).map(|i| (i % 5, i / 5 % 3)).unzip();
    let mut y = [0; 32];
    let (keys_view, x_view, y_view) = (GlobalSlice::new(&keys), GlobalSlice::new(&x), GlobalSliceMut::new(&mut y));
    launch(executor, groups_without_some { wrong, keys: keys_view, x: x_view, y: y_view }, 1)?;
    // The first one of each group has 1, and both numbers are in it.
    assert!(wrong != 0 || y == std::array::from_fn(|i| if x[i] == 0 { 0 } else { 4 }), "{y:?}");
    Ok(())
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("matches.rs"),
    patterns: &[
        Pattern {
            name: "places_in_buckets",
            run: run_places,
            mistakes: &[
                found(WarpDivergence, "a match of all lanes in a branch", DIVERGENCE, &["buckets: match"]),
                found(InactiveLane, "the lane that tells is not in the group", INACTIVE, &["buckets: tell"]),
                found(GlobalRace, "nobody tells the group", RACE, &["buckets: put", "buckets: put"]),
                found(GlobalRace, "lanes of other groups are counted", RACE, &["buckets: put", "buckets: put"]),
            ],
        },
        Pattern {
            name: "histogram_by_matches",
            run: run_histogram,
            mistakes: &[
                found(
                    WarpRace,
                    "the number is matched, and not its bin",
                    SHARED,
                    &["matched bins: read", "matched bins: write"],
                ),
                found(WarpRace, "every lane adds", SHARED, &["matched bins: read", "matched bins: write"]),
                found(
                    WarpRace,
                    "no `sync_warp` before the next round",
                    SHARED,
                    &["matched bins: read", "matched bins: write"],
                ),
                found(
                    SharedRace,
                    "`sync_warp` in place of a barrier",
                    SHARED,
                    &["matched bins: zero", "matched bins: result"],
                ),
                found(
                    WarpRace,
                    "a match in place of `sync_warp`",
                    SHARED,
                    &["matched bins: zero", "matched bins: read"],
                ),
                found(SharedRace, "one row for two warps", SHARED, &["matched bins: read", "matched bins: write"]),
            ],
        },
        Pattern {
            name: "sums_of_keys",
            run: run_keys,
            mistakes: &[
                found(WarpDivergence, "the first lane reduces alone", DIVERGENCE, &["of keys: alone"]),
                found(WarpDivergence, "who has nothing does not come", DIVERGENCE, &["of keys: sum"]),
                found(GlobalRace, "sums that are not atomic", RACE, &["of keys: plain", "of keys: plain"]),
                found(GlobalRace, "every lane adds", RACE, &["of keys: plain", "of keys: plain"]),
            ],
        },
        Pattern {
            name: "sums_of_runs",
            run: run_runs,
            mistakes: &[
                found(WarpDivergence, "a head counts as one of the run before", DIVERGENCE, &["of runs: sum"]),
                found(WarpDivergence, "masks without the last lane", NOT_IN_MASK, &["of runs: sum"]),
                found(WarpDivergence, "all lanes are named where only heads are", DIVERGENCE, &["of runs: head"]),
            ],
        },
        Pattern {
            name: "largest_of_a_block",
            run: run_largest,
            mistakes: &[
                found(
                    WarpDivergence,
                    "a reduction in a loop of different lengths",
                    DIVERGENCE,
                    &["largest: of a warp"],
                ),
                found(SharedRace, "no barrier", SHARED, &["largest: write", "largest: read"]),
                found(WarpDivergence, "all lanes are named where four come", DIVERGENCE, &["largest: of the block"]),
                found(WarpDivergence, "four lanes are named where all come", NOT_IN_MASK, &["largest: of the block"]),
                found(SharedRace, "a reduction in place of a barrier", SHARED, &["largest: write", "largest: read"]),
            ],
        },
        Pattern {
            name: "smallest_of_a_warp",
            run: run_smallest,
            mistakes: &[
                found(WarpDivergence, "a vote of those who know already", DIVERGENCE, &["smallest: vote"]),
                found(GlobalRace, "all who have it write", RACE, &["smallest: write", "smallest: write"]),
                found(WarpDivergence, "a mask without some of those who come", NOT_IN_MASK, &["smallest: number"]),
            ],
        },
        Pattern {
            name: "list_of_active_lanes",
            run: run_list,
            mistakes: &[
                found(WarpDivergence, "all lanes are named in a branch", DIVERGENCE, &["active: tell"]),
                found(InactiveLane, "the first lane of the warp tells", INACTIVE, &["active: tell"]),
                sometimes(WarpDivergence, "who was active before the branch", DIVERGENCE, &["active: tell"]),
                found(WarpDivergence, "a vote in a loop of different lengths", DIVERGENCE, &["active: vote"]),
                sometimes(InactiveLane, "who is active is asked again", INACTIVE, &["active: tell"]),
            ],
        },
        Pattern {
            name: "counts_of_active_lanes",
            run: run_counts,
            mistakes: &[
                sometimes(
                    GlobalRace,
                    "the lanes of the branch are active together",
                    RACE,
                    &["counts: active", "counts: active"],
                ),
                sometimes(
                    GlobalRace,
                    "one of those who are active writes for all",
                    RACE,
                    &["counts: write", "counts: write"],
                ),
            ],
        },
        Pattern {
            name: "one_for_all",
            run: run_one_for_all,
            mistakes: &[
                found(WarpDivergence, "lanes without a key leave the loop", DIVERGENCE, &["for all: match"]),
                found(WarpDivergence, "a lane looks at its own key only", DIVERGENCE, &["for all: sum"]),
                found(WarpRace, "a match in place of `sync_warp`", SHARED, &["for all: write", "for all: read"]),
                found(GlobalRace, "a sum that is not atomic", RACE, &["for all: plain", "for all: plain"]),
            ],
        },
        Pattern {
            name: "groups_without_some",
            run: run_groups,
            mistakes: &[
                found(InactiveLane, "the first lane of a group has left", INACTIVE, &["groups: tell"]),
                found(WarpDivergence, "lanes of a group do something else", DIVERGENCE, &["groups: tell"]),
            ],
        },
    ],
};
