//! Clusters: shared memory of other blocks, the barrier of the cluster, arrivals at barriers of other blocks, tiles for several blocks.

use cuda_std::atomic::{Acquire, Relaxed, Release, Scope};
use cuda_std::executor::Executor;
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{TensorMap, TileElement, TileLayout, TileSwizzle, cluster};

use crate::pattern::Class::{Cluster, Scope as ScopeClass};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in the cluster";
const OWN_RACE: &str = "race in shared memory";

/// Two rounds in which each block takes what the other one has, after CUTLASS's and the programming guide's examples.
#[kernel(block = 64, cluster = 2)]
fn exchange_in_pairs(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static OWN: Shared<[u32; 64]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        // The mistake: one of the two has nothing to give, and writes nothing.
        if wrong != 6 || rank == 0 {
            OWN.write(me, 100 * rank + me as u32); // <pairs: write>
        }
        match wrong {
            // The mistake: the block meets, and the cluster does not.
            1 => thread::sync_threads(),
            // The mistake: a meeting that orders nothing.
            2 => {
                cluster::arrive_relaxed();
                cluster::wait();
            }
            _ => cluster::sync(),
        }
        // The mistake: the block behind the last one.
        let other = if wrong == 5 { rank + 1 } else { rank ^ 1 };
        let first = OWN.of_block(other).read(63 - me); // <pairs: read>
        // The mistake: no meeting before the next round.
        if wrong != 4 {
            cluster::sync();
        }
        OWN.write(me, first); // <pairs: write again>
        cluster::sync();
        let second = OWN.of_block(rank ^ 1).read(me); // <pairs: read again>
        // The mistake: a block may end while the other one still reads.
        if wrong != 3 {
            cluster::sync();
        }
        y.set_unchecked(thread::index_1d(), second);
    }
}

/// A histogram whose bins are spread over the blocks of a cluster, after the programming guide's.
#[kernel(block = 32, cluster = 4)]
fn spread_histogram(wrong: u32, x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    static BINS: Shared<[u32; 8]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    unsafe {
        if me < 8 {
            BINS.write(me, 0);
        }
        cluster::sync();
        let value = x.get_unchecked(thread::index_1d()) % 32;
        let bins = BINS.of_block(value / 8);
        match wrong {
            // The mistake: sums that are not atomic.
            1 => {
                let before = bins.read(value as usize % 8); // <bins: read>
                bins.write(value as usize % 8, before + 1); // <bins: write>
            }
            // The mistake: atomic for the own block only.
            2 => _ = bins.atomic(value as usize % 8).fetch_add(1, Relaxed, Scope::Block), // <bins: for the block>
            _ => _ = bins.atomic(value as usize % 8).fetch_add(1, Relaxed, Scope::Cluster), // <bins: add>
        }
        // The mistake: the own bins are read before all have added.
        if wrong == 3 {
            thread::sync_threads();
        } else {
            cluster::sync();
        }
        if me < 8 {
            y.set_unchecked(8 * thread::block_idx_x() as usize + me, BINS.read(me)); // <bins: result>
        }
        if wrong == 3 {
            cluster::sync();
        }
    }
}

/// A value of each block, told to all: arrivals, work in between, waits.
#[kernel(block = 64, cluster = 2)]
fn tell_all(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    static TOLD: Shared<[u32; 2]> = Shared::new();
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        cluster::arrive_relaxed(); // <tell: first arrival>
        // The mistake: it arrives again and has not waited.
        if wrong == 1 {
            cluster::arrive(); // <tell: again>
        }
        cluster::wait();
        if me < 2 {
            TOLD.of_block(me).write(rank as usize, 7 + rank);
        }
        // The mistake: a warp of a block meets the others of its block first, and they meet the cluster.
        if wrong == 4 && rank == 1 && me >= 32 {
            thread::sync_threads();
        }
        // The mistake: it has not arrived.
        if wrong != 2 {
            cluster::arrive(); // <tell: arrival>
        }
        let own = me * me;
        // The mistake: it returns, and the others have the value.
        if wrong == 3 && me == 5 {
            return;
        }
        cluster::wait(); // <tell: wait>
        let told = TOLD.read(0) + TOLD.read(1);
        y.set_unchecked(thread::index_1d(), told + own);
    }
}

/// A block writes into the memory of another one, which waits for its arrivals.
#[kernel(block = 64, cluster = 2, dynamic_shared = 256 + 8)]
fn mail(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        let (letters, barriers) = (dynamic_shared::<u32>(0, 64), dynamic_shared::<u64>(256, 1));
        let arrived = Barrier::at(barriers, 0);
        if me == 0 {
            arrived.init(64); // <mail: init>
        }
        // The mistake: the block meets, and the cluster's meeting orders nothing.
        if wrong == 4 {
            thread::sync_threads();
            cluster::arrive_relaxed();
            cluster::wait();
        } else {
            cluster::sync();
        }
        if rank == 1 {
            // The mistake: it arrives before it writes.
            if wrong == 2 {
                arrived.of_block(0).arrive();
            }
            letters.of_block(0).write(me, 3 * me as u32); // <mail: write>
            // The mistake: one thread does not arrive.
            if wrong != 2 && !(wrong == 3 && me == 17) {
                arrived.of_block(0).arrive(); // <mail: arrive>
            }
        } else {
            // The mistake: it waits for threads of its own block only.
            if wrong == 1 {
                arrived.wait(0);
            } else {
                arrived.wait_for_cluster(0); // <mail: wait>
            }
            y.set_unchecked(me, letters.read(me)); // <mail: read>
        }
    }
}

/// A barrier in shared memory that the cluster learns of by a fence and a relaxed arrival, as CUTLASS's kernels do: both blocks arrive at that of
/// each.
#[kernel(block = 64, cluster = 2, dynamic_shared = 8)]
fn barriers_behind_a_fence(wrong: u32, y: GlobalSliceMut<'_, u32>) {
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        let all = Barrier::at(dynamic_shared(0, 1), 0);
        if me == 0 {
            // The mistakes: no fence; a fence before the initialization.
            if wrong == 2 {
                hopper::fence_barrier_init();
            }
            all.init(128); // <fence: init>
            if wrong == 0 || wrong == 4 {
                hopper::fence_barrier_init();
            }
        }
        // The mistake: the fence is that of another thread.
        if wrong == 3 && me == 1 {
            hopper::fence_barrier_init();
        }
        // The first mistake is one for the other block alone.
        if wrong == 1 {
            thread::sync_threads();
        }
        cluster::arrive_relaxed();
        // The mistake: threads of the block itself do not wait for what it has told the cluster.
        if wrong == 4 {
            all.arrive(); // <fence: too early>
        }
        cluster::wait();
        if wrong != 4 {
            all.arrive(); // <fence: own>
        }
        all.of_block(rank ^ 1).arrive(); // <fence: arrive>
        all.wait_for_cluster(0);
        y.set_unchecked(thread::index_1d(), 1);
    }
}

/// The bytes of a tile, and its words.
const TILE: usize = 256;
const TILE_BYTES: u32 = 4 * TILE as u32;

/// One block has TMA load tiles into both blocks of the cluster.
#[kernel(block = 64, cluster = 2, dynamic_shared = 1024 + 8)]
fn tile_for_two(wrong: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        let (tile, barriers) = (dynamic_shared::<f32>(0, TILE), dynamic_shared::<u64>(1024, 1));
        let full = Barrier::at(barriers, 0);
        if me == 0 {
            full.init(1);
            // The mistake: the barrier of the other block is not made visible.
            if !(wrong == 4 && rank == 1) {
                hopper::fence_barrier_init();
            }
        }
        for round in 0..2 {
            if me == 0 {
                // The mistake: the other block does not expect the bytes.
                if wrong == 2 && rank == 1 {
                    full.arrive();
                } else {
                    full.arrive_expecting(TILE_BYTES);
                }
            }
            if round == 0 || wrong != 5 {
                cluster::sync();
            } else {
                // The mistake: the readers of the own block have read, those of the other one need not have.
                thread::sync_threads();
            }
            if me == 0 && rank == 0 {
                // The mistake: a block that there is not.
                let ranks = if wrong == 1 { 0b101 } else { 0b11 };
                hopper::load_tile_to_blocks(tile, 0, map, [0, 8 * round, 0], full, ranks); // <tile: load>
            }
            if round == 0 {
                cluster::sync();
            }
            // The mistake: nobody waits.
            if wrong != 3 {
                full.wait(round);
            }
            if wrong == 5 && round == 0 {
                cluster::sync();
            }
            for i in 0..4 {
                let at = (2 * thread::block_idx_x() + round) as usize * TILE + 64 * i + me;
                y.set_unchecked(at, tile.read(64 * i + me)); // <tile: read>
            }
        }
        cluster::sync();
    }
}

/// A number for the next block, and a flag for the cluster.
#[kernel(block = 32, cluster = 2)]
fn flag_for_the_cluster(wrong: u32, x: GlobalSliceMut<'_, u32>, flags: GlobalAtomics<'_, u32>) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    // The mistake: whom it tells is of another cluster.
    let tells = if wrong == 1 { block == 1 } else { block == 0 };
    let is_told = if wrong == 1 { block == 2 } else { block == 1 };
    let Some(flag) = flags.get(0) else { return };
    unsafe {
        if tells {
            x.set_unchecked(0, 41);
            flag.store(1, Release, Scope::Cluster); // <flag: store>
        } else if is_told {
            // Whether it sees the flag is not a matter of scopes here; what it may rely on then is.
            while flag.load(Acquire, Scope::Cluster) == 0 {} // <flag: load>
            x.set_unchecked(1, x.get_unchecked(0) + 1);
        }
    }
}

fn two_tiles() -> (Vec<f32>, TileLayout) {
    let layout = TileLayout {
        element: TileElement::Bytes4,
        extents: [32, 16, 1],
        byte_strides: [4, 128, 2048],
        tile: [32, 8, 1],
        swizzle: TileSwizzle::None,
    };
    ((0..512).map(|i| i as f32).collect(), layout)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("clusters.rs"),
    patterns: &[
        Pattern {
            name: "exchange_in_pairs",
            run: |wrong, executor: &Executor| {
                let mut y = [0; 256];
                launch(executor, exchange_in_pairs { wrong, y: GlobalSliceMut::new(&mut y) }, 4)?;
                let expected = (0..4).flat_map(|block| (0..64).map(move |t| 100 * (block % 2) + 63 - t));
                assert!(y.into_iter().eq(expected));
                Ok::<(), Report>(())
            },
            mistakes: &[
                found(Cluster, "`sync_threads` where the cluster has to meet", "remote not started", &["pairs: read"]),
                found(Cluster, "a meeting that orders nothing", RACE, &["pairs: write", "pairs: read"]),
                found(Cluster, "no meeting before a block may end", "remote ended", &["pairs: read again"]),
                found(Cluster, "no meeting before the next write", RACE, &["pairs: read", "pairs: write again"]),
                found(Cluster, "the block behind the last one", "cluster rank", &["pairs: read"]),
                found(Cluster, "one of the blocks writes nothing", "unwritten remote", &["pairs: read"]),
            ],
        },
        Pattern {
            name: "spread_histogram",
            run: |wrong, executor| {
                // Threads of one block have bins of their own.
                let x: Vec<u32> = (0..128).map(|i| 5 * i + i / 32).collect();
                let mut y = [0; 32];
                launch(
                    executor,
                    spread_histogram { wrong, x: GlobalSlice::new(&x), y: GlobalSliceMut::new(&mut y) },
                    4,
                )?;
                assert!((0..32).all(|bin| y[bin as usize] as usize == x.iter().filter(|x| **x % 32 == bin).count()));
                Ok(())
            },
            mistakes: &[
                found(Cluster, "sums that are not atomic", RACE, &["bins: read", "bins: write"]),
                found(
                    ScopeClass,
                    "atomic for the own block only",
                    RACE,
                    &["bins: for the block", "bins: for the block"],
                ),
                found(Cluster, "bins are read before all have added", RACE, &["bins: add", "bins: result"]),
            ],
        },
        Pattern {
            name: "tell_all",
            run: |wrong, executor| {
                let mut y = [0; 256];
                launch(executor, tell_all { wrong, y: GlobalSliceMut::new(&mut y) }, 4)?;
                assert!((0..256).all(|i| y[i] as usize == 15 + (i % 64) * (i % 64)));
                Ok(())
            },
            mistakes: &[
                found(
                    Cluster,
                    "a thread arrives twice and does not wait",
                    "cluster arrived twice",
                    &["tell: first arrival", "tell: again"],
                ),
                found(Cluster, "a thread waits and has not arrived", "cluster wait alone", &["tell: wait"]),
                found(Cluster, "a thread arrives and returns", "cluster arrival not awaited", &["tell: arrival"]),
                found(Cluster, "a warp waits at the barrier of its block", "cluster divergence", &["tell: wait"]),
            ],
        },
        Pattern {
            name: "mail",
            run: |wrong, executor| {
                let mut y = [0; 64];
                launch(executor, mail { wrong, y: GlobalSliceMut::new(&mut y) }, 2)?;
                assert!((0..64).all(|i| y[i] as usize == 3 * i));
                Ok(())
            },
            mistakes: &[
                found(Cluster, "a wait for the own block only", RACE, &["mail: write", "mail: read"]),
                found(Cluster, "the arrival stands before the write", RACE, &["mail: write", "mail: read"]),
                found(Cluster, "a thread does not arrive", "deadlock", &["mail: wait"]),
                found(
                    Cluster,
                    "a barrier that is not yet initialized for the cluster",
                    RACE,
                    &["mail: init", "mail: arrive"],
                ),
            ],
        },
        Pattern {
            name: "barriers_behind_a_fence",
            run: |wrong, executor| {
                let mut y = [0; 128];
                launch(executor, barriers_behind_a_fence { wrong, y: GlobalSliceMut::new(&mut y) }, 2)?;
                assert_eq!(y, [1; 128]);
                Ok(())
            },
            mistakes: &[
                found(Cluster, "no fence before a relaxed arrival", RACE, &["fence: init", "fence: arrive"]),
                found(Cluster, "a fence before the initialization", OWN_RACE, &["fence: init", "fence: own"]),
                found(Cluster, "a fence of another thread", OWN_RACE, &["fence: init", "fence: own"]),
                found(
                    Cluster,
                    "arrivals between the relaxed arrival and the wait",
                    OWN_RACE,
                    &["fence: init", "fence: too early"],
                ),
            ],
        },
        Pattern {
            name: "tile_for_two",
            run: |wrong, executor| {
                let (x, layout) = two_tiles();
                // SAFETY: the extents are those of the array.
                let map = unsafe { TensorMap::from_raw_parts([0; 16], x.as_ptr().cast(), size_of_val(&x[..]), layout) };
                let mut y = vec![0.0; 4 * TILE];
                launch(executor, tile_for_two { wrong, map, y: GlobalSliceMut::new(&mut y) }, 2)?;
                assert!(y[..2 * TILE] == x && y[2 * TILE..] == x);
                Ok(())
            },
            mistakes: &[
                found(Cluster, "a tile for a block that there is not", "multicast ranks", &["tile: load"]),
                found(
                    Cluster,
                    "the other block does not expect the bytes",
                    "unwritten shared",
                    &["tile: load", "tile: read"],
                ),
                found(Cluster, "nobody waits for the tile", "unwritten shared", &["tile: load", "tile: read"]),
                found(Cluster, "the barrier of the other block is not made visible", "remote barrier", &["tile: load"]),
                found(Cluster, "the other block may still read the last tile", RACE, &["tile: load", "tile: read"]),
            ],
        },
        Pattern {
            name: "flag_for_the_cluster",
            run: |wrong, executor| {
                let (mut x, mut flags) = ([0; 2], [0]);
                let (x_view, flags) = (GlobalSliceMut::new(&mut x), GlobalAtomics::new(&mut flags));
                launch(executor, flag_for_the_cluster { wrong, x: x_view, flags }, 4)?;
                assert_eq!(x, [41, 42]);
                Ok(())
            },
            mistakes: &[found(
                ScopeClass,
                "the cluster, where blocks of two tell one another",
                "race in global memory",
                &["flag: store", "flag: load"],
            )],
        },
    ],
};
