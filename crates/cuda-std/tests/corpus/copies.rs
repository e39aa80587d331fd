//! Copies that go on while threads run on: `cp.async`, and tiles that TMA loads and stores.

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::examples::{Images, OfSlice};
use cuda_std::executor::Executor;
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{TensorMap, TensorMapMut, TileElement, TileLayout, TileSwizzle};

use crate::pattern::Class::{AsyncCopy, Tma};
use crate::pattern::{Family, Pattern, Report, found, launch};

const RACE: &str = "race in shared memory";
const UNWRITTEN: &str = "unwritten shared";
const OVERWRITTEN: &str = "write under way";

/// A tile that is copied, waited for and read by other threads.
#[kernel(block = 16, dynamic_shared = 256)]
fn one_copy(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile = dynamic_shared::<f32>(0, 64);
        if wrong == 5 {
            tile.write(4 * me, 0.0); // <one: zero>
        }
        let from = if wrong == 5 { 15 - me } else { me };
        copy_async::<4, _>(&tile, 4 * from, &x, 4 * me, 4); // <one: copy>
        if wrong != 1 {
            commit_group();
        }
        if wrong == 3 {
            wait_group::<1>();
        } else if wrong != 2 {
            wait_group::<0>();
        }
        if wrong != 4 {
            thread::sync_threads();
        }
        y.set_unchecked(me, tile.read(4 * (15 - me))); // <one: read>
        wait_group::<0>();
    }
}

/// A copy for a later kernel of its block, which never looks at it.
#[kernel(block = 16, dynamic_shared = 256)]
fn copy_ahead(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile = dynamic_shared::<f32>(0, 64);
        copy_async::<4, _>(&tile, 4 * me, &x, 4 * me, 4); // <ahead: copy>
        commit_group();
        y.set_unchecked(me, 1.0);
        if wrong == 0 {
            wait_group::<0>();
        }
    }
}

/// Two tiles by turns: one is copied while the other is read.
#[kernel(block = 16, dynamic_shared = 512)]
fn copy_pipeline(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tiles = dynamic_shared::<f32>(0, 128);
        let copy = |step: usize| {
            // The mistake: the place of the tile that is read at the same time.
            let place = if wrong == 4 && step > 0 { (step + 1) % 2 } else { step % 2 };
            copy_async::<4, _>(&tiles, 64 * place + 4 * me, &x, 64 * step + 4 * me, 4); // <pipeline: copy>
            commit_group();
        };
        copy(0);
        let mut sum = 0.0;
        for step in 0..4 {
            if step < 3 {
                copy(step + 1);
            } else if wrong != 1 {
                // Without a group of its own, the last round waits for too little.
                commit_group();
            }
            if wrong == 5 {
                wait_group::<2>();
            } else {
                wait_group::<1>();
            }
            if wrong != 2 {
                thread::sync_threads();
            }
            sum += tiles.read(64 * (step % 2) + 4 * (15 - me)); // <pipeline: read>
            if wrong != 3 {
                thread::sync_threads();
            }
        }
        wait_group::<0>();
        y.set_unchecked(me, sum);
    }
}

/// Each thread copies a part of a tile, and then another part of it.
#[kernel(block = 16, dynamic_shared = 512)]
fn two_copies(wrong: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile = dynamic_shared::<f32>(0, 128);
        copy_async::<4, _>(&tile, 8 * me, &x, 8 * me, 4); // <two: first>
        if wrong == 3 {
            commit_group();
        }
        let place = if wrong == 1 || wrong == 3 { 8 * me } else { 8 * me + 4 };
        copy_async::<4, _>(&tile, place, &x, 8 * me + 4, 4); // <two: second>
        if wrong == 2 {
            tile.write(8 * me + 7, 0.0); // <two: store>
        }
        commit_group();
        wait_group::<0>();
        y.set_unchecked(me, tile.read(8 * me) + tile.read(place + 3));
    }
}

/// Two tiles, one behind the other, loaded by TMA for the same barrier.
#[kernel(block = 64, dynamic_shared = 2048 + 8)]
fn two_tiles(wrong: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tiles: SharedSlice<f32> = dynamic_shared(0, 512);
        let full = Barrier::at(dynamic_shared(2048, 1), 0);
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        if me == 0 {
            full.arrive_expecting(2048);
            hopper::load_tile(tiles, 0, map, [0; 3], full); // <both: first>
            hopper::load_tile(tiles, if wrong == 1 { 0 } else { 256 }, map, [0, 8, 0], full); // <both: second>
        }
        full.wait(0);
        y.set_unchecked(me, tiles.read(me));
    }
}

/// Two tiles, one after the other in the same place, loaded by TMA.
#[kernel(block = 64, dynamic_shared = 1024 + 8)]
fn tiles_in_turn(wrong: u32, map: TensorMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    let mut sum = 0.0;
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        let full = Barrier::at(dynamic_shared(1024, 1), 0);
        if me == 0 {
            full.init(1);
            if wrong != 1 {
                hopper::fence_barrier_init();
            }
        }
        thread::sync_threads();
        for round in 0..2 {
            if me == 0 {
                full.arrive_expecting(match wrong {
                    2 => 1024 + 128,
                    3 => 1024 - 128,
                    _ => 1024,
                });
                let column = if wrong == 4 { 2 } else { 0 };
                hopper::load_tile(tile, 0, map, [column, 8 * round, 0], full); // <tiles: load>
            }
            if wrong != 5 {
                full.wait(if wrong == 6 { 0 } else { round }); // <tiles: wait>
            }
            for i in 0..4 {
                sum += tile.read(64 * i + me); // <tiles: read>
            }
            if wrong != 7 {
                thread::sync_threads();
            }
        }
        if wrong == 8 && me == 0 {
            full.arrive_expecting(1024);
            hopper::load_tile(tile, 0, map, [0; 3], full); // <tiles: one more>
        }
        y.set_unchecked(me, sum);
    }
}

/// Pixels that TMA loads for two taps, one after the other, and that a thread each reads.
#[kernel(block = 16, dynamic_shared = 520)]
fn pixels_of_taps(wrong: u32, map: ImageMap<'_>, y: GlobalSliceMut<'_, f32>) {
    let me = thread::thread_idx_x() as usize;
    let mut sum = 0.0;
    unsafe {
        let pixels: SharedSlice<f32> = dynamic_shared(0, 128);
        let full = Barrier::at(dynamic_shared(512, 1), 0);
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        for tap in 0..2 {
            if me == 0 {
                full.arrive_expecting(512);
                // Base pixels are at columns and rows -1 to 2.
                let column = if wrong == 1 { 3 } else { u32::MAX };
                let reach = if wrong == 2 { 256 } else { 1 };
                hopper::load_pixels(pixels, 0, map, [0, column, u32::MAX, 0], [tap, reach], full); // <pixels: load>
            }
            full.wait(if wrong == 3 { 0 } else { u32::from(tap) });
            sum += pixels.read(8 * me); // <pixels: read>
            if wrong != 4 {
                thread::sync_threads();
            }
        }
        y.set_unchecked(me, sum);
    }
}

/// A tile that threads fill and TMA stores.
#[kernel(block = 64, dynamic_shared = 1024)]
fn stored_tile(wrong: u32, map: TensorMapMut<'_>) {
    let me = thread::thread_idx_x() as usize;
    unsafe {
        let tile: SharedSlice<f32> = dynamic_shared(0, 256);
        for i in 0..4 {
            tile.write(64 * i + me, me as f32); // <stored: fill>
        }
        // The mistakes: nobody makes it visible; only the thread that stores does, behind the barrier.
        if wrong != 1 && wrong != 2 {
            hopper::fence_async_shared();
        }
        if wrong != 3 {
            thread::sync_threads();
        }
        if me == 0 {
            if wrong == 2 {
                hopper::fence_async_shared();
            }
            let row = if wrong == 7 { 1u32.wrapping_neg() } else { 0 };
            hopper::store_tile(tile, 0, map, [0, row, 0]); // <stored: store>
            if wrong != 4 {
                hopper::commit_stores();
            }
            if wrong != 5 && wrong != 6 {
                hopper::wait_for_stores::<0>();
            }
            if wrong != 5 {
                tile.write(0, 0.0); // <stored: again>
            }
            if wrong == 6 {
                hopper::wait_for_stores::<0>();
            }
        }
    }
}

fn with_copies(
    run: impl FnOnce(GlobalSlice<'_, f32>, GlobalSliceMut<'_, f32>) -> Result<(), Report>,
) -> Result<(), Report> {
    #[repr(align(16))]
    struct Aligned([f32; 256]);
    run(GlobalSlice::new(&Aligned([1.0; 256]).0), GlobalSliceMut::new(&mut [0.0; 16]))
}

/// A matrix of 16 rows of 32, in tiles of 8 rows.
fn layout() -> TileLayout {
    let (element, swizzle) = (TileElement::Bytes4, TileSwizzle::None);
    TileLayout { element, extents: [32, 16, 1], byte_strides: [4, 128, 2048], tile: [32, 8, 1], swizzle }
}

fn with_tiles(run: impl FnOnce(TensorMap<'_>, GlobalSliceMut<'_, f32>) -> Result<(), Report>) -> Result<(), Report> {
    let matrix = [1.0f32; 512];
    // SAFETY: the extents are those of the matrix; the executor does not look at the words.
    let map = unsafe { TensorMap::from_raw_parts([0; 16], matrix.as_ptr().cast(), size_of_val(&matrix), layout()) };
    run(map, GlobalSliceMut::new(&mut [0.0; 64]))
}

fn with_pixels(run: impl FnOnce(ImageMap<'_>, GlobalSliceMut<'_, f32>) -> Result<(), Report>) -> Result<(), Report> {
    let mut image = [1.0f32; 128];
    run(Images::of(&mut image).map, GlobalSliceMut::new(&mut [0.0; 16]))
}

fn run_stored_tile(wrong: u32, executor: &Executor) -> Result<(), Report> {
    let mut matrix = [1.0f32; 512];
    let (pointer, bytes) = (matrix.as_mut_ptr().cast(), size_of_val(&matrix));
    // SAFETY: as above; nothing else accesses the matrix meanwhile.
    let map = unsafe { TensorMapMut::new(TensorMap::from_raw_parts([0; 16], pointer, bytes, layout())) };
    launch(executor, stored_tile { wrong, map }, 1)
}

pub(crate) const FAMILY: Family = Family {
    source: include_str!("copies.rs"),
    patterns: &[
        Pattern {
            name: "one_copy",
            run: |wrong, executor| with_copies(|x, y| launch(executor, one_copy { wrong, x, y }, 1)),
            mistakes: &[
                found(AsyncCopy, "a copy in no group", UNWRITTEN, &["one: copy", "one: read"]),
                found(AsyncCopy, "read before it is waited for", RACE, &["one: copy", "one: read"]),
                found(AsyncCopy, "a wait that leaves out the last group", RACE, &["one: copy", "one: read"]),
                found(AsyncCopy, "no barrier behind the wait", RACE, &["one: copy", "one: read"]),
                found(AsyncCopy, "over what others have just written", RACE, &["one: copy", "one: zero"]),
            ],
        },
        Pattern {
            name: "copy_ahead",
            run: |wrong, executor| with_copies(|x, y| launch(executor, copy_ahead { wrong, x, y }, 1)),
            mistakes: &[found(AsyncCopy, "a copy that nobody waits for", "copy not awaited", &["ahead: copy"])],
        },
        Pattern {
            name: "copy_pipeline",
            run: |wrong, executor| with_copies(|x, y| launch(executor, copy_pipeline { wrong, x, y }, 1)),
            mistakes: &[
                found(AsyncCopy, "too few groups in the last round", UNWRITTEN, &["pipeline: copy", "pipeline: read"]),
                found(AsyncCopy, "no barrier behind the wait", RACE, &["pipeline: copy", "pipeline: read"]),
                found(AsyncCopy, "no barrier before the next copy", RACE, &["pipeline: copy", "pipeline: read"]),
                found(AsyncCopy, "the place is off by one", OVERWRITTEN, &["pipeline: copy", "pipeline: copy"]),
                found(
                    AsyncCopy,
                    "a wait that leaves out one group too many",
                    UNWRITTEN,
                    &["pipeline: copy", "pipeline: read"],
                ),
            ],
        },
        Pattern {
            name: "two_copies",
            run: |wrong, executor| with_copies(|x, y| launch(executor, two_copies { wrong, x, y }, 1)),
            mistakes: &[
                found(AsyncCopy, "two copies to the same place", OVERWRITTEN, &["two: first", "two: second"]),
                found(AsyncCopy, "a store to where a copy goes", OVERWRITTEN, &["two: second", "two: store"]),
                found(AsyncCopy, "the same place in the next group", OVERWRITTEN, &["two: first", "two: second"]),
            ],
        },
        Pattern {
            name: "two_tiles",
            run: |wrong, executor| with_tiles(|map, y| launch(executor, two_tiles { wrong, map, y }, 1)),
            mistakes: &[found(Tma, "two tiles in the same place", "in flight", &["both: first", "both: second"])],
        },
        Pattern {
            name: "tiles_in_turn",
            run: |wrong, executor| with_tiles(|map, y| launch(executor, tiles_in_turn { wrong, map, y }, 1)),
            mistakes: &[
                found(Tma, "the barrier is not made visible", "barrier not fenced", &["tiles: load"]),
                found(Tma, "more bytes are expected than come", "deadlock", &["tiles: wait"]),
                found(Tma, "fewer bytes are expected than come", "deadlock", &["tiles: wait"]),
                found(Tma, "a tile begins where it cannot", "tile misaligned", &["tiles: load"]),
                found(Tma, "nobody waits for the tile", UNWRITTEN, &["tiles: load", "tiles: read"]),
                found(Tma, "always the same parity", UNWRITTEN, &["tiles: load", "tiles: read"]),
                found(Tma, "no barrier before the next tile", UNWRITTEN, &["tiles: load", "tiles: read"]),
                found(Tma, "the block ends before the tile has come", "load not awaited", &["tiles: one more"]),
            ],
        },
        Pattern {
            name: "pixels_of_taps",
            run: |wrong, executor| with_pixels(|map, y| launch(executor, pixels_of_taps { wrong, map, y }, 1)),
            mistakes: &[
                found(
                    Tma,
                    "pixels are loaded from behind the last base pixel on",
                    "not a base pixel",
                    &["pixels: load"],
                ),
                found(Tma, "a tap is further away than TMA reaches", "tap too far", &["pixels: load"]),
                found(Tma, "always the same parity", UNWRITTEN, &["pixels: load", "pixels: read"]),
                found(Tma, "no barrier before the next pixels", UNWRITTEN, &["pixels: load", "pixels: read"]),
            ],
        },
        Pattern {
            name: "stored_tile",
            run: run_stored_tile,
            mistakes: &[
                found(Tma, "what is stored is not made visible", "not fenced", &["stored: fill", "stored: store"]),
                found(
                    Tma,
                    "only the thread that stores makes it visible",
                    "not fenced",
                    &["stored: fill", "stored: store"],
                ),
                found(Tma, "no barrier before the store", RACE, &["stored: fill", "stored: store"]),
                found(Tma, "a store in no group", "in flight", &["stored: store", "stored: again"]),
                found(Tma, "the thread returns before the store has read", "store not awaited", &["stored: store"]),
                found(Tma, "written again before the store has read", "in flight", &["stored: store", "stored: again"]),
                found(Tma, "a tile is stored before the array", "store before array", &["stored: store"]),
            ],
        },
    ],
};
