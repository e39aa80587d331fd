//! Stages of asynchronous copies and tiles: pipelines of several stages, counts of bytes, tiles that are stored and loaded again, tiles between blocks
//! of a cluster, flags in the memory of other blocks.

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::Executor;
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{TensorMap, TensorMapMut, TileElement, TileLayout, TileSwizzle, cluster};

use crate::pattern::Class::{AsyncCopy, Cluster, Scope as TooSmall, Tma};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in shared memory";
const IN_CLUSTER: &str = "race in the cluster";

/// Four stages of copies, of which two are on their way while one is read.
#[kernel(block = 32, dynamic_shared = 512)]
fn four_stages(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let stages = dynamic_shared::<f32>(0, 128);
        let copy = |step: usize| {
            if step < 8 {
                copy_async::<1, _>(&stages, 32 * (step % 4) + me, &x, 32 * step + me, 1); // <stages: copy>
            }
            commit_group();
        };
        for step in 0..3 {
            copy(step);
        }
        let mut sum = 0.0;
        for step in 0..8 {
            match wrong {
                // The mistake: one group too few is waited for.
                1 => wait_group::<3>(),
                _ => wait_group::<2>(),
            }
            // A copy goes where all have read in the round before: this barrier orders both.
            if wrong != 2 {
                thread::sync_threads();
            }
            // The mistake: it copies to the stage that is read.
            copy(if wrong == 3 { step + 4 } else { step + 3 });
            sum += stages.read(32 * (step % 4) + 31 - me); // <stages: read>
        }
        wait_group::<0>();
        y.set_unchecked(me, sum);
    }
}

/// A thread copies for itself alone, and needs no barrier.
#[kernel(block = 64, dynamic_shared = 512)]
fn copies_for_itself(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let own = dynamic_shared::<f32>(0, 128);
        copy_async::<1, _>(&own, 2 * me, &x, 2 * me, 1); // <itself: copy>
        commit_group();
        // Elements of a vector, of which the second is zero.
        copy_async::<1, _>(&own, 2 * me + 1, &x, 0, 0);
        commit_group();
        wait_group::<1>();
        let first = own.read(2 * me);
        wait_group::<0>();
        // The mistake: that of the neighbour.
        let other = if wrong == 1 { 2 * (me ^ 1) } else { 2 * me + 1 };
        y.set_unchecked(me, first + own.read(other)); // <itself: read>
    }
}

/// Two tiles for one phase of a barrier, each of 1024 bytes; the bytes are expected behind the loads, before the phase can end.
#[kernel(block = 64, dynamic_shared = 2048 + 8)]
fn two_tiles_in_a_phase(wrong: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tiles: SharedSlice<f32> = dynamic_shared(0, 512);
        let full = Barrier::at(dynamic_shared(2048, 1), 0);
        if me == 0 {
            // The mistake: one arrival is expected, and the second one may come when it has ended the phase.
            full.init(if wrong == 1 { 1 } else { 2 });
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        if me == 0 {
            hopper::load_tile(tiles, 0, map, [0; 3], full);
            full.arrive_expecting(1024);
            hopper::load_tile(tiles, 256, map, [0, 8, 0], full);
            // The mistake: the bytes of the second are not told.
            full.arrive_expecting(if wrong == 2 { 512 } else { 1024 }); // <a phase: arrive again>
        }
        full.wait(0); // <a phase: wait>
        y.set_unchecked(me, tiles.read(me) + tiles.read(256 + me));
    }
}

/// A tile is computed and stored by TMA, in three rounds with one place.
#[kernel(block = 64, dynamic_shared = 1024)]
fn stores_in_rounds(wrong: u32, map: TensorMapMut<'_>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        for round in 0..2 {
            for i in 0..4 {
                tile.write(64 * i + me, (round + me) as f32); // <in rounds: fill>
            }
            hopper::fence_async_shared();
            thread::sync_threads();
            if me == 0 {
                hopper::store_tile(tile, 0, map, [0, 8 * round as u32, 0]); // <in rounds: store>
                hopper::commit_stores();
                // The mistake: the last group may still read.
                if wrong == 1 {
                    hopper::wait_for_stores::<1>();
                } else {
                    hopper::wait_for_stores::<0>();
                }
            }
            // The mistake: the others do not know that it has read.
            if wrong != 2 {
                thread::sync_threads();
            }
        }
        if me == 0 {
            hopper::wait_for_stores::<0>();
        }
    }
}

/// A matrix that threads write and TMA loads in the same launch: what threads write to global memory is not what TMA reads.
#[kernel(block = 64, dynamic_shared = 1024 + 8)]
fn written_and_loaded(wrong: u32, x: GlobalSliceMut<'_, f32>, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        let full = Barrier::at(dynamic_shared(1024, 1), 0);
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        // The mistake: the same rows as those that TMA loads.
        let row = if wrong == 0 { 8 } else { 0 };
        for i in 0..4 {
            x.set_unchecked(32 * row + 64 * i + me, me as f32); // <and loaded: write>
        }
        if wrong == 2 {
            hopper::fence_async_shared();
        }
        thread::sync_threads();
        if me == 0 {
            full.arrive_expecting(1024);
            hopper::load_tile(tile, 0, map, [0; 3], full); // <and loaded: load>
        }
        full.wait(0);
        y.set_unchecked(me, tile.read(me));
    }
}

/// A tile is read by threads, filled by them with generic writes, and then by TMA again.
#[kernel(block = 64, dynamic_shared = 1024 + 8)]
fn threads_and_tma(wrong: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        let full = Barrier::at(dynamic_shared(1024, 1), 0);
        for i in 0..4 {
            tile.write(64 * i + me, 0.0); // <and tma: zero>
        }
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        // The mistake: what is written may come behind what TMA writes.
        if wrong != 1 {
            hopper::fence_async_shared();
        }
        if wrong != 2 {
            thread::sync_threads();
        } else {
            warp::sync_warp(warp::ALL_LANES);
        }
        if me == 0 {
            full.arrive_expecting(1024);
            hopper::load_tile(tile, 0, map, [0; 3], full); // <and tma: load>
        }
        // The barrier itself is known by the block's barrier.
        if wrong == 2 {
            thread::sync_threads();
        }
        full.wait(0);
        y.set_unchecked(me, tile.read(me));
    }
}

/// Blocks of a cluster in a ring: each passes its sum to the next one, with two places in turn.
#[kernel(block = 32, cluster = 4)]
fn ring_of_a_cluster(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static PLACES: Shared<[[u32; 32]; 2]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    let mut sum = rank + 1;
    let mut passed = sum;
    unsafe {
        cluster::sync();
        for round in 0..3 {
            // The mistake: one place for all rounds.
            let place = if wrong == 1 { 0 } else { round % 2 };
            PLACES.of_block((rank + 1) % 4).write([place, me], passed); // <ring of a cluster: write>
            // The mistake: a round without a meeting.
            if wrong != 2 || round != 1 {
                cluster::sync();
            }
            passed = PLACES.read([place, me]); // <ring of a cluster: read>
            sum += passed;
        }
        y.set_unchecked(thread::index_1d(), sum);
    }
}

/// A flag in the memory of another block, which waits for it.
#[kernel(block = 32, cluster = 2)]
fn flag_of_another_block(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static FLAG: Shared<[u32; 1]> = Shared::new();
    static DATA: Shared<[u32; 32]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        if me == 0 {
            FLAG.write(0, 0);
        }
        cluster::sync();
        if rank == 0 {
            DATA.of_block(1).write(me, 5); // <another block: write>
            warp::sync_warp(warp::ALL_LANES);
            if me == 0 {
                let flag = FLAG.of_block(1).atomic(0);
                match wrong {
                    1 => flag.store(1, Relaxed, Scope::Cluster),
                    2 => flag.store(1, Release, Scope::Block), // <another block: narrow>
                    _ => flag.store(1, Release, Scope::Cluster), // <another block: store>
                }
            }
        } else {
            match wrong {
                3 => while FLAG.atomic(0).load(Acquire, Scope::Block) == 0 {}, // <another block: narrow wait>
                _ => while FLAG.atomic(0).load(Acquire, Scope::Cluster) == 0 {}, // <another block: wait>
            }
            y.set_unchecked(me, DATA.read(me)); // <another block: read>
        }
        cluster::sync();
    }
}

/// The best of a cluster: each block writes to the first, which is the last to leave.
#[kernel(block = 32, cluster = 4)]
fn best_of_a_cluster(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static BEST: Shared<[u32; 4]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        cluster::sync();
        if me == 0 {
            // The mistake: all in one place.
            let place = if wrong == 1 { 0 } else { rank as usize };
            BEST.of_block(0).write(place, 10 * rank); // <best: write>
        }
        match wrong {
            // The mistake: the first one does not wait for the others.
            2 if rank == 0 => cluster::arrive(),
            _ => cluster::sync(),
        }
        if rank == 0 && me == 0 {
            y.set_unchecked(thread::block_idx_x() as usize / 4, (0..4).map(|i| BEST.read(i)).max().unwrap_or(0)); // <best: read>
        }
        if wrong == 2 && rank == 0 {
            cluster::wait();
        }
    }
}

/// A matrix of 16 rows of 32, in tiles of 8 rows.
fn layout() -> TileLayout {
    let (element, swizzle) = (TileElement::Bytes4, TileSwizzle::None);
    TileLayout { element, extents: [32, 16, 1], byte_strides: [4, 128, 2048], tile: [32, 8, 1], swizzle }
}

fn map_of(matrix: &mut [f32; 512]) -> TensorMap<'_> {
    // SAFETY: the extents are those of the matrix; the executor does not look at the words.
    unsafe { TensorMap::from_raw_parts([0; 16], matrix.as_mut_ptr().cast(), 2048, layout()) }
}

fn with_copies(
    run: impl FnOnce(GlobalSlice<'_, f32>, GlobalSliceMut<'_, f32>) -> Result<(), Report>,
) -> Result<(), Report> {
    run(GlobalSlice::new(&[1.0; 256]), GlobalSliceMut::new(&mut [0.0; 64]))
}

fn with_tiles(run: impl FnOnce(TensorMap<'_>, GlobalSliceMut<'_, f32>) -> Result<(), Report>) -> Result<(), Report> {
    run(map_of(&mut [1.0; 512]), GlobalSliceMut::new(&mut [0.0; 64]))
}

fn run_written_and_loaded(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut matrix = [1.0; 512];
    let x = unsafe { GlobalSliceMut::from_raw_parts(matrix.as_mut_ptr(), 512) };
    launch(
        executor,
        written_and_loaded { wrong, x, map: map_of(&mut matrix), y: GlobalSliceMut::new(&mut [0.0; 64]) },
        1,
    )
}

fn run_stores(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut matrix = [1.0; 512];
    launch(executor, stores_in_rounds { wrong, map: unsafe { TensorMapMut::new(map_of(&mut matrix)) } }, 1)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("stages.rs"),
    patterns: &[
        Pattern {
            name: "four_stages",
            run: |wrong, executor| with_copies(|x, y| launch(executor, four_stages { wrong, x, y }, 1)),
            mistakes: &[
                found(AsyncCopy, "one group too few is waited for", RACE, &["stages: copy", "stages: read"]),
                found(AsyncCopy, "no barrier behind the wait", RACE, &["stages: copy", "stages: read"]),
                found(AsyncCopy, "a copy to the stage that is read", RACE, &["stages: copy", "stages: read"]),
            ],
        },
        Pattern {
            name: "copies_for_itself",
            run: |wrong, executor| with_copies(|x, y| launch(executor, copies_for_itself { wrong, x, y }, 1)),
            mistakes: &[found(AsyncCopy, "what the neighbour copies", RACE, &["itself: copy", "itself: read"])],
        },
        Pattern {
            name: "two_tiles_in_a_phase",
            run: |wrong, executor| with_tiles(|map, y| launch(executor, two_tiles_in_a_phase { wrong, map, y }, 1)),
            mistakes: &[
                found(Tma, "fewer arrivals are expected than come", "too many arrivals", &["a phase: arrive again"]),
                found(Tma, "fewer bytes than come", "deadlock", &["a phase: wait"]),
            ],
        },
        Pattern {
            name: "stores_in_rounds",
            run: run_stores,
            mistakes: &[
                found(Tma, "one group too few is waited for", "in flight", &["in rounds: fill", "in rounds: store"]),
                found(Tma, "others do not know that it has been read", RACE, &["in rounds: fill", "in rounds: store"]),
            ],
        },
        Pattern {
            name: "written_and_loaded",
            run: run_written_and_loaded,
            mistakes: &[
                found(
                    Tma,
                    "TMA loads what the launch has written",
                    "written before a load",
                    &["and loaded: write", "and loaded: load"],
                ),
                found(
                    Tma,
                    "the same behind a fence for shared memory",
                    "written before a load",
                    &["and loaded: write", "and loaded: load"],
                ),
            ],
        },
        Pattern {
            name: "threads_and_tma",
            run: |wrong, executor| with_tiles(|map, y| launch(executor, threads_and_tma { wrong, map, y }, 1)),
            mistakes: &[
                found(
                    Tma,
                    "no fence between writes of threads and of TMA",
                    "not fenced",
                    &["and tma: zero", "and tma: load"],
                ),
                found(
                    Tma,
                    "no barrier between writes of threads and of TMA",
                    "in flight",
                    &["and tma: zero", "and tma: load"],
                ),
            ],
        },
        Pattern {
            name: "ring_of_a_cluster",
            run: |wrong, executor| {
                let mut y = [0; 256];
                launch(executor, ring_of_a_cluster { wrong, y: GlobalSliceMut::new(&mut y) }, 8)?;
                assert!(wrong != 0 || y == [10; 256]);
                Ok(())
            },
            mistakes: &[
                found(
                    Cluster,
                    "one place for all rounds",
                    IN_CLUSTER,
                    &["ring of a cluster: write", "ring of a cluster: read"],
                ),
                found(
                    Cluster,
                    "a round without a meeting",
                    IN_CLUSTER,
                    &["ring of a cluster: write", "ring of a cluster: read"],
                ),
            ],
        },
        Pattern {
            name: "flag_of_another_block",
            run: |wrong, executor| {
                launch(executor, flag_of_another_block { wrong, y: GlobalSliceMut::new(&mut [0; 32]) }, 2)
            },
            mistakes: &[
                found(
                    Cluster,
                    "the flag is stored relaxed",
                    IN_CLUSTER,
                    &["another block: write", "another block: read"],
                ),
                found(
                    TooSmall,
                    "the flag is stored for the own block",
                    IN_CLUSTER,
                    &["another block: narrow", "another block: wait"],
                ),
                found(
                    TooSmall,
                    "the flag is waited for within the block",
                    IN_CLUSTER,
                    &["another block: store", "another block: narrow wait"],
                ),
            ],
        },
        Pattern {
            name: "best_of_a_cluster",
            run: |wrong, executor| {
                launch(executor, best_of_a_cluster { wrong, y: GlobalSliceMut::new(&mut [0; 2]) }, 8)
            },
            mistakes: &[
                found(Cluster, "all in one place", IN_CLUSTER, &["best: write", "best: write"]),
                found(Cluster, "the first one does not wait", IN_CLUSTER, &["best: write", "best: read"]),
            ],
        },
    ],
};
