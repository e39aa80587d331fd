//! Clusters: positions, memory of other blocks, meetings; right, and with one thing wrong. (The corpus has more mistakes.)

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, launch, line_of, succeed};
use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::{Checks, Executor, FaultKind, LaunchError};
use cuda_std::hopper::Barrier;
use cuda_std::prelude::*;
use cuda_std::{ComputeCapability, Excess, KernelFacts, Limits, cluster};

const SOURCE: &str = include_str!("clusters.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

// Positions.

/// How many numbers a block writes.
const NUMBERS: usize = 17;

const DEPTH: u32 = 2;

/// Where each block is.
#[kernel(block = 1, cluster = (2, 1, DEPTH), any_grid)]
fn positions(y: GlobalSliceMut<'_, u32>) {
    let block = thread::index();
    let numbers = [
        cluster::rank(),
        cluster::blocks(),
        cluster::block_idx_x(),
        cluster::block_idx_y(),
        cluster::block_idx_z(),
        cluster::dim_x(),
        cluster::dim_y(),
        cluster::dim_z(),
        cluster::idx_x(),
        cluster::idx_y(),
        cluster::idx_z(),
        cluster::grid_dim_x(),
        cluster::grid_dim_y(),
        cluster::grid_dim_z(),
        thread::block_idx_x(),
        thread::block_idx_y(),
        thread::block_idx_z(),
    ];
    for (i, number) in numbers.into_iter().enumerate() {
        unsafe { y.set_unchecked(NUMBERS * block + i, number) };
    }
}

#[test]
fn every_block_knows_where_it_is() {
    assert_eq!((positions::CLUSTER, positions::FACTS.cluster), (Dim3::new(2, 1, 2), Some([2, 1, 2])));
    let grid = Dim3::new(4, 3, 6);
    for checks in ALL_CHECKS {
        let mut y = vec![0; NUMBERS * 72];
        succeed(checks, positions { y: GlobalSliceMut::new(&mut y) }, grid);
        for (block, numbers) in y.chunks(NUMBERS).enumerate() {
            let block = block as u32;
            let (x, y, z) = (block % 4, block / 4 % 3, block / 12);
            let within = [x % 2, 0, z % 2];
            let expected =
                [within[0] + 2 * within[2], 4, within[0], 0, within[2], 2, 1, 2, x / 2, y, z / 2, 2, 3, 3, x, y, z];
            assert_eq!(numbers, expected, "block {block}");
        }
    }
}

/// Each block writes the number of its cluster and its own rank to all blocks of the cluster, which add them up.
#[kernel(block = 1, cluster = (2, 2), any_grid)]
fn sums_of_squares(y: GlobalSliceMut<'_, u32>) {
    static ALL: Shared<[u32; 4]> = Shared::new();
    unsafe {
        cluster::arrive_relaxed();
        cluster::wait();
        for rank in 0..4 {
            let value = 100 * (cluster::idx_y() * cluster::grid_dim_x() + cluster::idx_x()) + cluster::rank();
            ALL.of_block(rank).write(cluster::rank() as usize, value);
        }
        cluster::sync();
        y.set_unchecked(thread::index(), (0..4).map(|i| ALL.read(i)).sum());
    }
}

#[test]
fn clusters_of_two_dimensions_reach_their_own_blocks() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; 48];
        succeed(checks, sums_of_squares { y: GlobalSliceMut::new(&mut y) }, (8, 6));
        for (block, sum) in y.into_iter().enumerate() {
            let cluster = block / 8 / 2 * 4 + block % 8 / 2;
            assert_eq!(sum as usize, 400 * cluster + 6, "block {block}");
        }
    }
}

// Launches.

#[test]
fn a_grid_is_made_of_whole_clusters() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; NUMBERS * 64];
        let error = launch(checks, positions { y: GlobalSliceMut::new(&mut y) }, (4, 3, 5)).unwrap_err();
        let LaunchError::Excess { excess, .. } = &error else { panic!("{error}") };
        assert_eq!(*excess, Excess::GridOfClusters { grid: [4, 3, 5], cluster: [2, 1, 2] });
        let text = error.to_string();
        assert!(text.contains("`positions`") && text.contains("4x3x5") && text.contains("2x1x2"), "{text}");
    }
}

#[test]
fn a_gpu_without_clusters_refuses_the_kernel_by_name() {
    let ampere = Limits::of(ComputeCapability::new(8, 0)).unwrap();
    let mut y = vec![0; NUMBERS * 4];
    let kernel = positions { y: GlobalSliceMut::new(&mut y) };
    let error =
        unsafe { Executor::new(Checks::Full).with_limits(ampere).launch(kernel, (2, 1, 2).into()) }.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`positions`") && text.contains("clusters from compute capability 9.0 on"), "{text}");
    let larger = KernelFacts { cluster: Some([16, 1, 1]), ..positions::FACTS };
    assert_eq!(Limits::of_hopper().check(&larger), Err(Excess::Cluster { cluster: [16, 1, 1], limit: 8 }));
}

// Memory of other blocks.

#[derive(Clone, Copy, PartialEq, Debug, Element, KernelParam)]
#[repr(C, align(8))]
struct Pair {
    key: u32,
    value: f32,
}

/// Elements of all sizes, and vectors, from the other block and to it.
#[kernel(block = 32, cluster = 2, dynamic_shared = 1024)]
fn elements(y: GlobalSliceMut<'_, u32>) {
    static BYTES: Shared<[u8; 32]> = Shared::new();
    static HALVES: Shared<[[u16; 16]; 2]> = Shared::new();
    static PAIRS: Shared<[Pair; 32]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    let t = me as usize;
    unsafe {
        let words: SharedSlice<u32> = dynamic_shared(0, 128);
        let wide: SharedSlice<u64> = dynamic_shared(512, 64);
        let other = rank ^ 1;
        cluster::sync();
        // Each block has the other one's numbers.
        BYTES.of_block(other).write(t, (7 * me + rank) as u8);
        HALVES.of_block(other).write([t / 16, t % 16], (1000 * me + rank) as u16);
        PAIRS.of_block(other).write(t, Pair { key: me, value: rank as f32 });
        words.of_block(other).write_vector(4 * t, [me, rank, 3, 4]);
        wide.of_block(other).write_vector(2 * t, [u64::from(me) << 40, u64::from(rank)]);
        cluster::sync();
        let read = BYTES.of_block(other).read(t);
        let half = HALVES.of_block(other).read([t / 16, t % 16]);
        let pair = PAIRS.of_block(other).read(t);
        let [a, b, c, d] = words.of_block(other).read_vector(4 * t);
        let ([w], v) = (wide.of_block(other).read_vector::<1>(2 * t), wide.of_block(other).read(2 * t + 1));
        let is_right = read == (7 * me + rank) as u8
            && half == (1000 * me + rank) as u16
            && pair == Pair { key: me, value: rank as f32 }
            && [a, b, c, d] == [me, rank, 3, 4]
            && (w, v) == (u64::from(me) << 40, u64::from(rank))
            && BYTES.read(t) == (7 * me + other) as u8
            && words.read(4 * t + 1) == other
            // The own block is one of the cluster, too.
            && words.of_block(rank).read(4 * t + 1) == other
            && words.of_block(other).len() == 128;
        y.set_unchecked(thread::index_1d(), u32::from(is_right));
        cluster::sync();
    }
}

#[test]
fn elements_of_all_sizes_come_from_other_blocks_and_go_there() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; 128];
        succeed(checks, elements { y: GlobalSliceMut::new(&mut y) }, 4);
        assert!(y.into_iter().all(|y| y == 1));
    }
}

/// All blocks of a cluster count in the memory of the last one: numbers, bits, and a lock.
#[kernel(block = 40, cluster = 8)]
fn counts_together(y: GlobalSliceMut<'_, u32>) {
    static COUNTS: Shared<[u32; 4]> = Shared::new();
    static SUM: Shared<[f64; 1]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 4 {
            COUNTS.write(me, 0);
            SUM.atomic(0).store(0.0, Relaxed, Scope::Block);
        }
        cluster::sync();
        let counts = COUNTS.of_block(7);
        counts.atomic(0).fetch_add(1, Relaxed, Scope::Cluster);
        counts.atomic(1).fetch_max(thread::index_1d() as u32, Relaxed, Scope::Cluster);
        SUM.of_block(7).atomic(0).fetch_add(0.5, Relaxed, Scope::Device);
        if me == 0 {
            // A lock, and what it guards.
            while counts.atomic(2).compare_exchange(0, 1, Acquire, Scope::Cluster).is_err() {}
            counts.write(3, counts.read(3) + cluster::rank());
            counts.atomic(2).store(0, Release, Scope::Cluster);
        }
        cluster::sync();
        if cluster::rank() == 7 && me == 0 {
            let block = thread::block_idx_x() as usize / 8;
            for i in 0..4 {
                y.set_unchecked(5 * block + i, COUNTS.read(i));
            }
            y.set_unchecked(5 * block + 4, SUM.read(0) as u32);
        }
    }
}

#[test]
fn blocks_count_in_the_memory_of_one_and_a_lock_there_orders_them() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; 15];
        succeed(checks, counts_together { y: GlobalSliceMut::new(&mut y) }, 24);
        for (cluster, y) in y.chunks(5).enumerate() {
            assert_eq!(y, [320, 320 * (cluster as u32 + 1) - 1, 0, 28, 160]);
        }
    }
}

// Meetings.

/// Threads return, and the others go on meeting: who has returned is not waited for.
#[kernel(block = 64, cluster = 2)]
fn fewer_and_fewer(y: GlobalSliceMut<'_, u32>) {
    static OWN: Shared<[u32; 64]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        OWN.write(me as usize, me + rank);
        cluster::sync();
        // A half of a warp in one block, and a whole warp in the other.
        if rank == 0 && me % 32 >= 16 || rank == 1 && me >= 32 {
            return;
        }
        let other = OWN.of_block(rank ^ 1).read(me as usize);
        cluster::sync();
        // All of a block.
        if rank == 0 {
            return;
        }
        cluster::sync();
        y.set_unchecked(me as usize, other);
    }
}

#[test]
fn who_has_returned_is_not_waited_for() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; 64];
        succeed(checks, fewer_and_fewer { y: GlobalSliceMut::new(&mut y) }, 2);
        assert!((0..32).all(|i| y[i] as usize == i) && y[32..].iter().all(|y| *y == 0), "{y:?}");
    }
}

/// Lanes of a warp arrive by two calls. One of the lanes waits for another before it arrives, if that is wanted.
#[kernel(block = 32, cluster = 1)]
fn two_calls(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    let me = thread::thread_idx_x();
    unsafe {
        if me == 0 {
            FLAG.write(0, 0);
        }
        thread::sync_threads();
        if me < 16 {
            cluster::arrive(); // <lower half>
            if wrong == 1 && me == 3 {
                FLAG.atomic(0).store(1, Release, Scope::Block);
            }
        } else {
            // It waits for what comes behind the arrival of another lane, which waits for all lanes of the warp.
            while wrong == 1 && me == 20 && FLAG.atomic(0).load(Acquire, Scope::Block) == 0 {} // <waits for a lane>
            cluster::arrive();
        }
        cluster::wait();
        y.set_unchecked(me as usize, cluster::blocks());
    }
}

#[test]
fn an_arrival_waits_for_the_lanes_of_its_warp() {
    for checks in ALL_CHECKS {
        let mut y = vec![0; 32];
        succeed(checks, two_calls { wrong: 0, y: GlobalSliceMut::new(&mut y) }, 1);
        assert_eq!(y, [1; 32]);
        let stuck = fault(checks, two_calls { wrong: 1, y: GlobalSliceMut::new(&mut y) }, 1);
        assert!(matches!(stuck.kind, FaultKind::Stuck { .. }), "{stuck}");
        assert_eq!(stuck.location.as_ref().unwrap().line, line("waits for a lane"), "{stuck}");
    }
}

const SKIPS: u32 = 1;
const BLOCK_FIRST: u32 = 2;
const PHASE: u32 = 3;

/// Two blocks meet, and one of them does something else.
#[kernel(block = 32, cluster = 2, dynamic_shared = 8)]
fn meets(wrong: u32) {
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        let barrier = Barrier::at(dynamic_shared(0, 1), 0);
        if me == 0 {
            barrier.init(1);
        }
        cluster::sync();
        if rank == 1 && (wrong == PHASE || wrong == BLOCK_FIRST && me == 0) {
            barrier.wait(0); // <phase>
        }
        if rank == 0 || wrong != SKIPS {
            cluster::sync(); // <meets>
        }
    }
}

#[test]
fn a_meeting_to_which_some_never_come_is_reported_with_where_they_are() {
    for checks in ALL_CHECKS {
        succeed(checks, meets { wrong: 0 }, 2);
        // A block that has ended is not waited for.
        succeed(checks, meets { wrong: SKIPS }, 2);
        for (wrong, arrived, where_others_are) in [
            (PHASE, 32, "in block (1, 0, 0), 32 threads, the first of them (0, 0, 0), wait for the phase of parity 0"),
            (BLOCK_FIRST, 63, "in block (1, 0, 0), thread (0, 0, 0) waits for the phase of parity 0"),
        ] {
            let fault = fault(checks, meets { wrong }, 2);
            let FaultKind::ClusterDivergence { arrived: found, threads: 64, .. } = fault.kind else {
                panic!("{fault}")
            };
            assert_eq!((found, fault.location.as_ref().unwrap().line), (arrived, line("meets")), "{fault}");
            assert_eq!(fault.block, at(0, 0, 0), "{fault}");
            assert!(fault.to_string().contains(where_others_are), "{fault}");
        }
    }
}

#[kernel(block = 32)]
fn has_no_cluster(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static OWN: Shared<[u32; 1]> = Shared::new();
    unsafe {
        y.set_unchecked(0, 10 * cluster::blocks() + cluster::rank() + cluster::dim_y());
        match wrong {
            1 => cluster::sync(),             // <sync>
            2 => _ = OWN.of_block(0).read(0), // <of block>
            _ => {}
        }
    }
}

#[test]
fn without_clusters_a_block_is_one_of_its_own_and_meets_nobody() {
    for checks in ALL_CHECKS {
        let mut y = [0];
        let y_of = |y: &mut [u32; 1], wrong| fault(checks, has_no_cluster { wrong, y: GlobalSliceMut::new(y) }, 1);
        for (wrong, mark) in [(1, "sync"), (2, "of block")] {
            let fault = y_of(&mut y, wrong);
            assert_eq!((fault.kind.clone(), fault.location.unwrap().line), (FaultKind::NotClustered, line(mark)));
        }
    }
}

/// A meeting orders accesses to global memory, too.
#[test]
fn a_meeting_of_the_cluster_orders_what_its_blocks_do_in_global_memory() {
    #[kernel(block = 32, cluster = 2)]
    fn passes_on(wrong: u32, x: GlobalSliceMut<'_, u32>, y: GlobalSliceMut<'_, u32>) {
        let me = thread::thread_idx_x() as usize;
        unsafe {
            x.set_unchecked(thread::index_1d(), 5 * me as u32 + cluster::rank()); // <passes on: write>
            if wrong == 0 {
                cluster::sync();
            } else {
                cluster::arrive_relaxed();
                cluster::wait();
            }
            // Of the other block of the same cluster; or of another cluster.
            let block = if wrong == 2 { thread::block_idx_x() ^ 2 } else { thread::block_idx_x() ^ 1 };
            y.set_unchecked(thread::index_1d(), x.get_unchecked(32 * block as usize + 31 - me)); // <passes on: read>
        }
    }
    let (mut x, mut y) = (vec![0; 128], vec![0; 128]);
    succeed(Checks::Full, passes_on { wrong: 0, x: GlobalSliceMut::new(&mut x), y: GlobalSliceMut::new(&mut y) }, 4);
    assert!((0..128).all(|i| y[i] as usize == 5 * (31 - i % 32) + ((i / 32 % 2) ^ 1)));
    for wrong in [1, 2] {
        let kernel = passes_on { wrong, x: GlobalSliceMut::new(&mut x), y: GlobalSliceMut::new(&mut y) };
        let fault = fault(Checks::Full, kernel, 4);
        let FaultKind::GlobalRace { block: Some(_), other, .. } = &fault.kind else { panic!("{fault}") };
        let mut lines = [fault.location.as_ref().unwrap().line, other.location.line];
        lines.sort_unstable();
        assert_eq!(lines, [line("passes on: write"), line("passes on: read")], "{fault}");
    }
}

// Memory of a block that is not there.

const BEFORE: u32 = 1;
const AFTER: u32 = 2;
const STORE: u32 = 3;
const RELAXED: u32 = 4;

#[kernel(block = 32, cluster = 2)]
fn at_the_ends(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static OWN: Shared<[u32; 32]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        let other = OWN.of_block(rank ^ 1);
        if wrong == BEFORE && rank == 1 {
            other.atomic(me).store(1, Relaxed, Scope::Cluster); // <before>
        }
        OWN.atomic(me).store(1, Relaxed, Scope::Cluster);
        cluster::sync();
        if rank == 0 && (wrong == AFTER || wrong == RELAXED) {
            y.set_unchecked(me, other.read(me)); // <after>
        }
        if rank == 0 && wrong == STORE {
            other.write(me, 5); // <store>
        }
        if wrong == RELAXED {
            cluster::arrive_relaxed();
            cluster::wait();
        } else if wrong == 0 {
            cluster::sync();
        }
    }
}

#[test]
fn memory_of_a_block_that_may_not_be_there_is_reported_in_every_order() {
    let mut y = vec![0; 32];
    succeed(Checks::Full, at_the_ends { wrong: 0, y: GlobalSliceMut::new(&mut y) }, 2);
    for seed in 0..20 {
        let executor = Executor::new(Checks::Full).schedule(seed);
        let mut run = |wrong| {
            let kernel = at_the_ends { wrong, y: GlobalSliceMut::new(&mut y) };
            match unsafe { executor.launch(kernel, Dim3::from(2)) } {
                Err(LaunchError::Fault(fault)) => (fault.kind.clone(), fault.location.unwrap().line),
                other => panic!("{wrong}: {other:?}"),
            }
        };
        assert_eq!(run(BEFORE), (FaultKind::RemoteNotStarted { owner: at(0, 0, 0) }, line("before")));
        for wrong in [AFTER, RELAXED] {
            assert_eq!(run(wrong), (FaultKind::RemoteEnded { owner: at(1, 0, 0) }, line("after")));
        }
        assert_eq!(run(STORE), (FaultKind::RemoteEnded { owner: at(1, 0, 0) }, line("store")));
    }
}

/// Without races being looked for, it depends on the order: an access to what is there is right.
#[test]
fn bounds_and_ranks_are_always_checked() {
    #[kernel(block = 1, cluster = 2, dynamic_shared = 64)]
    fn outside(wrong: u32) {
        static OWN: Shared<[u32; 8]> = Shared::new();
        unsafe {
            cluster::sync();
            let slice: SharedSlice<u32> = dynamic_shared(0, 16);
            match wrong {
                0 => OWN.of_block(1).write(8, 0),                // <index>
                1 => slice.of_block(1).write_vector(14, [0; 4]), // <vector>
                2 => slice.of_block(1).write_vector(2, [0; 4]),  // <alignment>
                _ => slice.of_block(2).write(0, 0),              // <rank>
            }
        }
    }
    for checks in ALL_CHECKS {
        for (wrong, mark, name) in [
            (0, "index", "shared out of bounds"),
            (1, "vector", "shared out of bounds"),
            (2, "alignment", "shared misaligned"),
            (3, "rank", "cluster rank"),
        ] {
            let fault = fault(checks, outside { wrong }, 2);
            assert_eq!((fault.kind.name(), fault.location.as_ref().unwrap().line), (name, line(mark)), "{fault}");
        }
    }
}

// Orders.

/// The order of blocks depends on the seed and on the cluster alone: also with several teams of workers.
#[test]
fn a_seed_decides_what_happens_in_each_cluster() {
    #[kernel(block = 1, cluster = 4)]
    fn races_to_be_first(y: GlobalSliceMut<'_, u32>) {
        static ORDER: Shared<[u32; 1]> = Shared::new();
        unsafe {
            ORDER.write(0, 0);
            cluster::sync();
            let place = ORDER.of_block(0).atomic(0).fetch_add(1, Relaxed, Scope::Cluster);
            y.set_unchecked(thread::block_idx_x() as usize, place);
            cluster::sync();
        }
    }
    let run = |seed| {
        let mut y = vec![0; 200];
        let kernel = races_to_be_first { y: GlobalSliceMut::new(&mut y) };
        unsafe { Executor::new(Checks::Full).schedule(seed).launch(kernel, Dim3::from(200)) }.unwrap();
        y
    };
    let orders: Vec<_> = (0..3).map(run).collect();
    assert!((0..3).all(|seed| run(seed as u64) == orders[seed]));
    assert!(orders[0] != orders[1] && orders[0].chunks(4).any(|order| *order != orders[0][..4]));
}

/// The first cluster that is wrong is reported, whatever others do meanwhile.
#[test]
fn the_first_cluster_that_fails_is_reported() {
    #[kernel(block = 32, cluster = 2)]
    fn fails(first: u32) {
        let cluster = cluster::idx_x();
        unsafe {
            cluster::sync();
            gpu_assert!(cluster < first || cluster::rank() == 0, "cluster {}", cluster);
            cluster::sync();
        }
    }
    for first in [0, 1, 17, 49] {
        let fault = fault(Checks::Full, fails { first }, 100);
        assert_eq!((fault.block, fault.kind.name()), (at(2 * first + 1, 0, 0), "panic"), "{fault}");
    }
    succeed(Checks::Full, fails { first: 50 }, 100);
}

/// Blocks of clusters wait for those of others, by a counter in global memory.
#[test]
fn clusters_wait_for_one_another_if_they_run_at_the_same_time() {
    #[kernel(block = 32, cluster = 2, cooperative, any_grid)]
    fn all_meet(met: GlobalAtomics<'_, u32>, y: GlobalSliceMut<'_, u32>) {
        static OWN: Shared<[u32; 1]> = Shared::new();
        unsafe {
            if thread::thread_idx_x() == 0 {
                OWN.write(0, thread::block_idx_x());
            }
            cluster::sync();
            cuda_std::grid::sync(met);
            if thread::thread_idx_x() == 0 {
                let other = OWN.of_block(cluster::rank() ^ 1).read(0);
                y.set_unchecked(thread::block_idx_x() as usize, other);
            }
            cluster::sync();
        }
    }
    for checks in ALL_CHECKS {
        let (mut met, mut y) = ([0], vec![0; 12]);
        succeed(checks, all_meet { met: GlobalAtomics::new(&mut met), y: GlobalSliceMut::new(&mut y) }, 12);
        assert!((0..12).all(|block| y[block] as usize == block ^ 1), "{y:?}");
    }
}
