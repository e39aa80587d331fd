//! What blocks of a cluster tell one another by barriers in shared memory, and tiles by TMA for several blocks: right, and with one thing wrong.
//! (The corpus has more mistakes.)

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, at, fault, line_of, succeed};
use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::executor::{AccessKind, Checks, Executor, FaultKind, LaunchError, RemoteBarrierProblem};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{TensorMap, TensorMapMut, TileElement, TileLayout, TileSwizzle, cluster};

const SOURCE: &str = include_str!("cluster_barriers.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// An array of one tile, of eight lines.
const ONE_TILE: TileLayout = TileLayout {
    element: TileElement::Bytes4,
    extents: [32, 8, 1],
    byte_strides: [4, 128, 1024],
    tile: [32, 8, 1],
    swizzle: TileSwizzle::None,
};

const NOT_INITIALIZED: u32 = 1;
const TOO_MANY: u32 = 2;
const NOT_AWAITED: u32 = 3;
/// No mistake: what the other block has done before it arrived is not of interest.
const AWAITED_BY_BLOCK: u32 = 4;

#[kernel(block = 32, cluster = 2, dynamic_shared = 16)]
fn arrivals(wrong: u32) {
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        let barrier = Barrier::at(dynamic_shared(0, 2), 1);
        if me == 0 && !(wrong == NOT_INITIALIZED && rank == 0) {
            barrier.init(1);
        }
        cluster::sync();
        if me == 0 && rank == 0 && wrong == TOO_MANY {
            barrier.arrive_expecting(16);
        }
        cluster::sync();
        if me == 0 && rank == 1 {
            barrier.of_block(0).arrive(); // <arrival>
            // The own one, as another block's.
            barrier.of_block(1).arrive();
        }
        if rank == 0 && wrong == AWAITED_BY_BLOCK {
            barrier.wait(0);
        } else if rank == 0 && wrong == 0 || rank == 1 {
            barrier.wait_for_cluster(0);
        }
    }
}

#[test]
fn a_barrier_of_another_block_has_to_be_ready() {
    for checks in ALL_CHECKS {
        succeed(checks, arrivals { wrong: 0 }, 2);
        for (wrong, expected) in
            [(NOT_INITIALIZED, RemoteBarrierProblem::NotInitialized), (TOO_MANY, RemoteBarrierProblem::TooManyArrivals)]
        {
            let fault = fault(checks, arrivals { wrong }, 2);
            let FaultKind::RemoteBarrier { owner, byte_offset: 8, problem } = fault.kind else { panic!("{fault}") };
            assert_eq!((owner, problem, fault.block), (at(0, 0, 0), expected, at(1, 0, 0)), "{fault}");
            assert_eq!(fault.location.as_ref().unwrap().line, line("arrival"), "{fault}");
        }
    }
}

/// A block that ends has to have waited for arrivals from others: by whatever wait, and in every order.
#[test]
fn arrivals_at_a_block_are_awaited_before_it_ends() {
    for seed in 0..20 {
        let executor = Executor::new(Checks::Full).schedule(seed);
        let launch = |wrong| unsafe { executor.launch(arrivals { wrong }, Dim3::from(2)) };
        launch(AWAITED_BY_BLOCK).unwrap();
        let LaunchError::Fault(fault) = launch(NOT_AWAITED).unwrap_err() else { panic!("seed {seed}") };
        assert_eq!(fault.kind, FaultKind::RemoteEnded { owner: at(0, 0, 0) }, "{fault}");
        assert_eq!(fault.location.as_ref().unwrap().line, line("arrival"), "{fault}");
    }
}

/// What another block has written, tensor cores and TMA see only behind a fence of who wrote it.
#[kernel(block = 32, cluster = 2, dynamic_shared = 1024)]
fn stores_from_another_block(fences: u32, map: TensorMapMut<'_>) {
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        cluster::sync();
        if rank == 1 {
            for i in 0..8 {
                tile.of_block(0).write(32 * i + me, (32 * i + me) as f32); // <from another block>
            }
            if fences == 1 {
                hopper::fence_async_shared();
            }
        }
        cluster::sync();
        if rank == 0 && me == 0 {
            hopper::store_tile(tile, 0, map, [0; 3]); // <store of it>
            hopper::commit_stores();
            hopper::wait_for_stores::<0>();
        }
    }
}

#[test]
fn what_another_block_writes_has_to_be_made_visible_to_tma() {
    let mut memory = vec![0f32; 256];
    let map = |memory: &mut Vec<f32>| unsafe {
        TensorMapMut::new(TensorMap::from_raw_parts([0; 16], memory.as_mut_ptr().cast(), 1024, ONE_TILE))
    };
    succeed(Checks::Full, stores_from_another_block { fences: 1, map: map(&mut memory) }, 2);
    assert!((0..256).all(|i| memory[i] == i as f32));
    let fault = fault(Checks::Full, stores_from_another_block { fences: 0, map: map(&mut memory) }, 2);
    let FaultKind::NotFenced { location, .. } = &fault.kind else { panic!("{fault}") };
    let lines = (fault.location.as_ref().unwrap().line, location.line);
    assert_eq!(lines, (line("store of it"), line("from another block")), "{fault}");
}

/// A tile for some of four blocks.
#[kernel(block = 32, cluster = 4, dynamic_shared = 1024 + 8)]
fn tile_for_some(ranks: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let (me, rank) = (thread::thread_idx_x() as usize, cluster::rank());
    unsafe {
        let (tile, barrier) = (dynamic_shared::<f32>(0, 256), Barrier::at(dynamic_shared(1024, 1), 0));
        if me == 0 {
            barrier.init(1);
            hopper::fence_barrier_init();
            if ranks >> rank & 1 == 1 {
                barrier.arrive_expecting(1024);
            }
        }
        cluster::sync();
        if me == 0 && rank == 2 {
            hopper::load_tile_to_blocks(tile, 0, map, [0; 3], barrier, ranks as u16);
        }
        if ranks >> rank & 1 == 1 {
            barrier.wait(0);
            for i in 0..8 {
                y.set_unchecked(256 * rank as usize + 32 * i + me, tile.read(32 * i + me));
            }
        }
        // Nobody has to meet: a block that has waited for its tile may end.
    }
}

#[test]
fn tiles_come_to_the_blocks_that_are_named() {
    let x: Vec<f32> = (1..257).map(|i| i as f32).collect();
    for checks in ALL_CHECKS {
        for ranks in 1..16 {
            let map = unsafe { TensorMap::from_raw_parts([0; 16], x.as_ptr().cast(), 1024, ONE_TILE) };
            let mut y = vec![0.0; 1024];
            succeed(checks, tile_for_some { ranks, map, y: GlobalSliceMut::new(&mut y) }, 4);
            for (rank, y) in y.chunks(256).enumerate() {
                assert!(if ranks >> rank & 1 == 1 { y == x } else { y.iter().all(|y| *y == 0.0) }, "{ranks:b} {rank}");
            }
        }
    }
}

/// A barrier in the midst of what is taken for a tile.
#[kernel(block = 32, cluster = 2, dynamic_shared = 1024 + 8)]
fn accesses_a_barrier(how: u32, map: TensorMap<'_>, out: TensorMapMut<'_>) {
    let (me, rank) = (thread::thread_idx_x(), cluster::rank());
    unsafe {
        let (tile, words): (SharedSlice<f32>, SharedSlice<u32>) = (dynamic_shared(0, 256), dynamic_shared(0, 256));
        let (inside, loaded) = (Barrier::at(dynamic_shared(512, 1), 0), Barrier::at(dynamic_shared(1024, 1), 0));
        if me == 0 {
            (0..128).for_each(|i| words.write(i, 0));
            (130..256).for_each(|i| words.write(i, 0));
            inside.init(1); // <init inside>
            loaded.init(1);
            hopper::fence_barrier_init();
            hopper::fence_async_shared();
        }
        cluster::sync();
        if me == 0 && rank == 1 {
            let other = words.of_block(0);
            match how {
                0 => other.write(129, 7),                                          // <remote write>
                1 => _ = other.read(128),                                          // <remote read>
                2 => _ = other.atomic(129).fetch_add(1, Relaxed, Scope::Cluster),  // <remote add>
                3 => hopper::load_tile_to_blocks(tile, 0, map, [0; 3], loaded, 1), // <remote tile>
                4 => hopper::load_tile(tile, 0, map, [0; 3], loaded),              // <own tile>
                5 => hopper::store_tile(tile, 0, out, [0; 3]),                     // <own store>
                // Beside it.
                _ => {
                    other.write(127, 7);
                    other.write(130, other.read(131));
                }
            }
        }
        cluster::sync();
    }
}

#[test]
fn nothing_but_its_own_functions_accesses_a_barrier() {
    let x = vec![1f32; 256];
    let mut y = x.clone();
    let mut kernel = |how| unsafe {
        let map = TensorMap::from_raw_parts([0; 16], x.as_ptr().cast(), 1024, ONE_TILE);
        let out = TensorMapMut::new(TensorMap::from_raw_parts([0; 16], y.as_mut_ptr().cast(), 1024, ONE_TILE));
        accesses_a_barrier { how, map, out }
    };
    let add = AccessKind::Atomic { scope: Scope::Cluster, bytes: 4 };
    for (how, mark, expected, is_remote) in [
        (0, "remote write", AccessKind::Write, true),
        (1, "remote read", AccessKind::Read, true),
        (2, "remote add", add, true),
        (3, "remote tile", AccessKind::Write, true),
        (4, "own tile", AccessKind::Write, false),
        (5, "own store", AccessKind::Read, false),
    ] {
        let fault = fault(Checks::Full, kernel(how), 2);
        let FaultKind::BarrierAccess { owner, byte_offset: 512, access, initialized } = &fault.kind else {
            panic!("{mark}: {fault}")
        };
        assert_eq!((*owner, *access), (is_remote.then(|| at(0, 0, 0)), expected), "{fault}");
        assert_eq!((fault.location.as_ref().unwrap().line, initialized.line), (line(mark), line("init inside")));
    }
    succeed(Checks::Full, kernel(6), 2);
}
