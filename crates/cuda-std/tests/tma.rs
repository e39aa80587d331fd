//! Tiles that TMA loads and stores: right, and with one thing wrong.

#![allow(clippy::undocumented_unsafe_blocks, reason = "many of these kernels break the contracts on purpose")]

extern crate tilewright_cuda_std as cuda_std;

mod common;

use common::{ALL_CHECKS, fault, line_of, succeed};
use cuda_std::executor::{AccessKind, Checks, Fault, FaultKind, Missing};
use cuda_std::hopper::{self, Barrier};
use cuda_std::prelude::*;
use cuda_std::{TensorMap, TensorMapMut, TileElement, TileLayout, TileSwizzle};

const SOURCE: &str = include_str!("tma.rs");

fn line(mark: &str) -> u32 {
    line_of(SOURCE, mark)
}

/// The elements of a line of a tile, 128 bytes, and its lines.
const LENGTH: usize = 32;
const LINES: usize = 8;
const TILE: usize = LENGTH * LINES;

/// Two matrices of 10 rows of 50, the rows 52 apart and the matrices 600.
const EXTENTS: [u64; 3] = [50, 10, 2];
const STRIDES: [usize; 3] = [1, 52, 600];

fn layout(element: TileElement, swizzle: TileSwizzle) -> TileLayout {
    let byte_strides = STRIDES.map(|stride| 4 * stride as u64);
    TileLayout { element, extents: EXTENTS, byte_strides, tile: [LENGTH as u32, LINES as u32, 1], swizzle }
}

fn map<'a>(memory: &'a [f32], layout: TileLayout) -> TensorMap<'a> {
    // SAFETY: the extents are inside of a thousand elements and more; the executor does not look at the words.
    unsafe { TensorMap::from_raw_parts([0; 16], memory.as_ptr().cast(), size_of_val(memory), layout) }
}

fn memory() -> Vec<f32> {
    (0..1200).map(|i| i as f32 + 0.7).collect()
}

/// The element at these coordinates; zero outside.
fn element(memory: &[f32], at: [u64; 3]) -> f32 {
    if (0..3).all(|i| at[i] < EXTENTS[i]) {
        memory[(0..3).map(|i| at[i] as usize * STRIDES[i]).sum::<usize>()]
    } else {
        0.0
    }
}

const NOTHING: u32 = 0;
const NO_WAIT: u32 = 1;
const MORE_BYTES: u32 = 2;
const FEWER_BYTES: u32 = 3;
const NO_FENCE: u32 = 4;
const MISALIGNED: u32 = 5;
const OVERWRITTEN: u32 = 6;
const NOT_AWAITED: u32 = 7;
const WAITS_ELSEWHERE: u32 = 8;
const TOO_FAR_BACK: u32 = 9;
/// No mistake: `fence.proxy.async` makes a barrier visible to TMA, too.
const OTHER_FENCE: u32 = 10;
/// Another thread than that which has initialized the barrier.
const FENCE_OF_ANOTHER: u32 = 11;

/// Where a tile begins.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
struct At {
    x: u32,
    y: u32,
    z: u32,
}

impl From<[u32; 3]> for At {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

/// Copies a tile to `out`, word by word as it lies in shared memory.
#[kernel(block = 64, dynamic_shared = 2048 + 16)]
fn loads(map: TensorMap<'_>, at: At, wrong: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, 512);
        let barriers: SharedSlice<u64> = dynamic_shared(2048, 2);
        let (full, other) = (Barrier::at(barriers, 0), Barrier::at(barriers, 1));
        let begin = match wrong {
            MISALIGNED => 32,
            TOO_FAR_BACK => 288,
            _ => 256,
        };
        let me = thread::thread_idx_x();
        if me == 0 {
            full.init(1); // <init>
            other.init(1);
            match wrong {
                NO_FENCE | FENCE_OF_ANOTHER => {}
                OTHER_FENCE => hopper::fence_async_shared(),
                _ => hopper::fence_barrier_init(),
            }
        }
        thread::sync_threads();
        if me == 32 {
            if wrong == FENCE_OF_ANOTHER {
                hopper::fence_barrier_init();
                hopper::fence_async_shared();
            }
            let bytes = 4 * TILE as u32;
            full.arrive_expecting(match wrong {
                MORE_BYTES => bytes + 128,
                FEWER_BYTES => bytes - 128,
                _ => bytes,
            });
            hopper::load_tile(memory, begin, map, [at.x, at.y, at.z], full); // <load>
            if wrong == OVERWRITTEN {
                memory.write(begin + 17, 1.0); // <overwrite>
            }
        }
        if wrong == NOT_AWAITED {
            return;
        }
        if wrong == WAITS_ELSEWHERE {
            // The lane that waits for the tile is not the one that tells of it, and a vote does not order memory.
            if me < 32 {
                if me == 0 {
                    full.wait(0);
                }
                if warp::warp_vote_all(warp::ALL_LANES, true) && me == 1 {
                    other.arrive();
                }
                return;
            }
            other.wait(0);
        } else if wrong != NO_WAIT {
            full.wait(0); // <wait>
        }
        for i in 0..TILE / 64 {
            let place = 64 * i + me as usize;
            let in_block = thread::block_idx_x() as usize * TILE + place;
            out.set_unchecked(in_block, memory.read(begin + place)); // <read>
        }
    }
}

fn run_loads(checks: Checks, wrong: u32) -> Fault {
    run_loads_at(checks, [0; 3], wrong)
}

fn run_loads_at(checks: Checks, at: [u32; 3], wrong: u32) -> Fault {
    let (memory, mut out) = (memory(), vec![0.0; TILE]);
    let map = map(&memory, layout(TileElement::Bytes4, TileSwizzle::None));
    fault(checks, loads { map, at: at.into(), wrong, out: GlobalSliceMut::new(&mut out) }, 1)
}

#[test]
fn a_tile_is_what_the_layout_says_and_zero_outside() {
    let memory = memory();
    for checks in ALL_CHECKS {
        for (element_kind, swizzle) in [
            (TileElement::Bytes4, TileSwizzle::None),
            (TileElement::Bytes4, TileSwizzle::Bytes128),
            (TileElement::Tf32, TileSwizzle::Bytes128),
        ] {
            for at in [
                [0, 0, 0],
                [32, 0, 1],
                [20, 7, 0],
                [4, 9, 1],
                [52, 0, 0],
                [0, 0, 2],
                [4u32.wrapping_neg(), 0, 0],
                [0, u32::MAX, 0],
            ] {
                let mut out = vec![f32::NAN; 2 * TILE];
                let map = map(&memory, layout(element_kind, swizzle));
                succeed(checks, loads { map, at: at.into(), wrong: NOTHING, out: GlobalSliceMut::new(&mut out) }, 2);
                for (i, found) in out.into_iter().enumerate() {
                    let (row, place) = (i % TILE / LENGTH, i % LENGTH);
                    let piece = if swizzle == TileSwizzle::None { place / 4 } else { (place / 4) ^ (row % 8) };
                    let in_line = (4 * piece + place % 4) as u64;
                    // Coordinates are signed, and before the array there is nothing.
                    let coordinate = |i: usize, offset: u64| (at[i].cast_signed() as u64).wrapping_add(offset);
                    let from = [coordinate(0, in_line), coordinate(1, row as u64), coordinate(2, 0)];
                    let mut expected = element(&memory, from);
                    if element_kind == TileElement::Tf32 {
                        expected = convert::tf32(expected);
                    }
                    assert_eq!(found, expected, "{element_kind:?} {swizzle:?} {at:?}, element {i}");
                }
            }
        }
    }
}

/// What comes before the memory is there, so that lines are further on, but is no number; and what is before it in the same memory is not read.
#[test]
fn elements_before_the_memory_are_no_numbers() {
    let memory = memory();
    let described = layout(TileElement::Bytes4, TileSwizzle::None);
    let mut out = vec![0.0; TILE];
    for (checks, x) in [(Checks::Bounds, 0u32), (Checks::Full, 4)] {
        // SAFETY: of this memory; the executor has no use for the bytes.
        let map = unsafe { map(&memory, described).with_elements_before(3) };
        assert_eq!(map.elements_before(), 3);
        let at = At::from([x, 1, 0]);
        succeed(checks, loads { map, at, wrong: NOTHING, out: GlobalSliceMut::new(&mut out) }, 1);
        for (i, found) in out.iter().enumerate() {
            let [line, place] = [1 + i as u64 / LENGTH as u64, u64::from(x) + i as u64 % LENGTH as u64];
            match place.checked_sub(3) {
                // (The array ends where it did: the last elements of a line of the memory are not of it.)
                Some(_) if place >= described.extents[0] => assert_eq!(*found, 0.0, "{x} {i}"),
                Some(element_of_line) => assert_eq!(*found, element(&memory, [element_of_line, line, 0]), "{x} {i}"),
                None => assert!(found.is_nan(), "{x} {i}: {found}"),
            }
        }
    }
}

#[test]
fn tma_rounds_ties_to_even_and_knows_one_nan() {
    let words =
        [0x3F80_1000, 0x3F80_3000, 0xBF80_2FFF, 0xBF80_3001, 0x7F7F_FFFF, 0xFF80_0000, 0x7F80_0001, 0xFFC0_0000];
    let rounded =
        [0x3F80_0000, 0x3F80_4000, 0xBF80_2000, 0xBF80_4000, 0x7F80_0000, 0xFF80_0000, 0x7FFF_E000, 0x7FFF_E000];
    let (mut memory, mut out) = (memory(), vec![0.0; TILE]);
    memory[..8].copy_from_slice(&words.map(f32::from_bits));
    let map = map(&memory, layout(TileElement::Tf32, TileSwizzle::None));
    for wrong in [NOTHING, OTHER_FENCE] {
        succeed(Checks::Full, loads { map, at: At::from([0; 3]), wrong, out: GlobalSliceMut::new(&mut out) }, 1);
    }
    assert_eq!(out.iter().take(8).map(|number| number.to_bits()).collect::<Vec<_>>(), rounded);
}

#[test]
fn who_reads_a_tile_has_waited_for_it() {
    // The readers come first here: the load is the one that is too early.
    let raced = run_loads(Checks::Full, NO_WAIT);
    let FaultKind::Race { other, by_engine: true, missing: Missing::HandOver, .. } = &raced.kind else {
        panic!("{raced}")
    };
    assert_eq!((other.access, other.location.line), (AccessKind::Read, line("read")));
    assert!(raced.to_string().ends_with("have it wait at the barrier of the load before"), "{raced}");
    assert_eq!(raced.location.unwrap().line, line("load"));
    // That another lane has waited is not enough.
    let raced = run_loads(Checks::Full, WAITS_ELSEWHERE);
    let FaultKind::Race { other, missing: Missing::WaitForLoad(barrier), .. } = &raced.kind else { panic!("{raced}") };
    assert_eq!((other.access, other.thread.x, other.location.line), (AccessKind::Write, 32, line("load")));
    assert_eq!(barrier.byte_offset, 2048, "{raced}");
    assert_eq!(raced.location.unwrap().line, line("read"));
}

/// The same with the largest block: one thread loads a tile, and reads it without waiting, or not.
#[kernel(block = 1024, dynamic_shared = 1024 + 8)]
fn loads_for_many(map: TensorMap<'_>, wrong: u32, out: GlobalSliceMut<'_, f32>) {
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, TILE);
        let full = Barrier::at(dynamic_shared(1024, 1), 0);
        let me = thread::thread_idx_x() as usize;
        if me == 0 {
            full.init(1);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        if me == 0 {
            full.arrive_expecting(4 * TILE as u32);
            hopper::load_tile(memory, 0, map, [0; 3], full); // <load for many>
            if wrong == NO_WAIT {
                out.set_unchecked(0, memory.read(1)); // <read of many>
            }
        }
        full.wait(0);
        out.set_unchecked(me, memory.read(me % TILE));
    }
}

#[test]
fn tma_is_nobody_else_in_the_largest_block() {
    let memory = memory();
    let map = map(&memory, layout(TileElement::Bytes4, TileSwizzle::None));
    let mut out = vec![f32::NAN; 1024];
    for checks in ALL_CHECKS {
        succeed(checks, loads_for_many { map, wrong: NOTHING, out: GlobalSliceMut::new(&mut out) }, 1);
        assert_eq!(out[1023], element(&memory, [31, 7, 0]));
    }
    let raced = fault(Checks::Full, loads_for_many { map, wrong: NO_WAIT, out: GlobalSliceMut::new(&mut out) }, 1);
    let text = raced.to_string();
    assert!(
        text.contains("has not been waited for") && text.contains(&format!("tma.rs:{}", line("load for many"))),
        "{text}"
    );
    assert_eq!(raced.location.unwrap().line, line("read of many"));
}

#[test]
fn bytes_have_to_add_up() {
    for checks in ALL_CHECKS {
        for (wrong, missing) in [
            (MORE_BYTES, "lacks 0 of 1 arrivals and 128 bytes"),
            (FEWER_BYTES, "lacks 0 of 1 arrivals and has got 128 bytes more than it expects"),
        ] {
            let fault = run_loads(checks, wrong);
            let FaultKind::Deadlock { waits_for, .. } = &fault.kind else { panic!("{fault}") };
            assert!(waits_for.ends_with(missing), "{waits_for}");
            assert_eq!(fault.location.unwrap().line, line("wait"));
        }
    }
}

#[test]
fn tiles_need_a_barrier_that_tma_sees_a_place_and_somebody_who_waits() {
    for checks in ALL_CHECKS {
        for wrong in [NO_FENCE, FENCE_OF_ANOTHER] {
            assert_eq!(run_loads(checks, wrong).kind, FaultKind::BarrierNotFenced { byte_offset: 2048 }, "{wrong}");
        }
        let fault = run_loads(checks, NOT_AWAITED);
        assert_eq!((fault.kind, fault.location.unwrap().line), (FaultKind::LoadNotAwaited, line("load")));
        let memory = memory();
        let map = map(&memory, layout(TileElement::Bytes4, TileSwizzle::Bytes128));
        let mut out = vec![0.0; TILE];
        let misaligned = common::fault(
            checks,
            loads { map, at: At::from([0; 3]), wrong: MISALIGNED, out: GlobalSliceMut::new(&mut out) },
            1,
        );
        assert!(matches!(misaligned.kind, FaultKind::SharedMisaligned { index: 32, bytes: 1024, .. }), "{misaligned}");
        let too_far_back = run_loads(checks, TOO_FAR_BACK);
        let FaultKind::SharedOutOfBounds { index, .. } = &too_far_back.kind else { panic!("{too_far_back}") };
        assert_eq!((index.as_str(), too_far_back.location.unwrap().line), ("288..544", line("load")));
    }
    let overwritten = run_loads(Checks::Full, OVERWRITTEN);
    let FaultKind::InFlight { element, other } = &overwritten.kind else { panic!("{overwritten}") };
    assert_eq!((element.as_str(), other.access, other.location.line), ("273", AccessKind::Write, line("load")));
    assert_eq!(overwritten.location.unwrap().line, line("overwrite"));
}

#[test]
fn tiles_begin_where_tma_can() {
    for checks in ALL_CHECKS {
        for coordinate in [-1i32, 1, 50] {
            let at = [coordinate.cast_unsigned(), 0, 0];
            for (fault, place) in
                [(run_loads_at(checks, at, NOTHING), "load"), (*stored(checks, at, NOTHING).unwrap_err(), "store")]
            {
                let expected = FaultKind::TileMisaligned { coordinate, element_bytes: 4 };
                assert_eq!((fault.kind, fault.location.unwrap().line), (expected, line(place)));
            }
        }
        for (dimension, coordinate) in [(0, -4i32), (1, -1), (2, -1)] {
            let mut at = [0; 3];
            at[dimension] = coordinate.cast_unsigned();
            let fault = *stored(checks, at, NOTHING).unwrap_err();
            let expected = FaultKind::StoreBeforeArray { dimension, coordinate };
            assert_eq!((fault.kind, fault.location.unwrap().line), (expected, line("store")));
        }
    }
}

const NO_ASYNC_FENCE: u32 = 1;
const NO_BARRIER: u32 = 2;
const NO_WAIT_FOR_STORE: u32 = 3;
const WRITES_AGAIN: u32 = 4;

/// Fills a tile, and has it stored.
#[kernel(block = 64, dynamic_shared = 1024)]
fn stores(c: GlobalSliceMut<'_, f32>, map: TensorMapMut<'_>, at: At, wrong: u32) {
    _ = c;
    unsafe {
        let memory: SharedSlice<f32> = dynamic_shared(0, TILE);
        let me = thread::thread_idx_x() as usize;
        for i in 0..TILE / 64 {
            memory.write(64 * i + me, (64 * i + me) as f32); // <fill>
        }
        if wrong != NO_ASYNC_FENCE || me != 40 {
            hopper::fence_async_shared();
        }
        if wrong != NO_BARRIER {
            thread::sync_threads();
        }
        if me == 0 {
            hopper::store_tile(memory, 0, map, [at.x, at.y, at.z]); // <store>
            hopper::commit_stores();
            if wrong == WRITES_AGAIN {
                memory.write(5, 0.0); // <write again>
            }
            if wrong != NO_WAIT_FOR_STORE {
                hopper::wait_for_stores::<0>();
            }
            memory.write(5, 0.0);
        }
    }
}

fn stored(checks: Checks, at: [u32; 3], wrong: u32) -> Result<Vec<f32>, Box<Fault>> {
    stored_within(checks, 1200, at, wrong)
}

/// Stores a tile into so many elements.
fn stored_within(checks: Checks, elements: usize, at: [u32; 3], wrong: u32) -> Result<Vec<f32>, Box<Fault>> {
    let mut memory = memory();
    let layout = layout(TileElement::Bytes4, TileSwizzle::Bytes128);
    let (pointer, bytes) = (memory.as_mut_ptr().cast::<u8>(), size_of_val(&memory[..elements]));
    // SAFETY: as in `map`; nothing else accesses the memory meanwhile.
    let map = unsafe { TensorMapMut::new(TensorMap::from_raw_parts([0; 16], pointer, bytes, layout)) };
    let c = unsafe { GlobalSliceMut::from_raw_parts(pointer.cast::<f32>(), 1200) };
    match common::launch(checks, stores { c, map, at: at.into(), wrong }, 1) {
        Ok(()) => Ok(memory),
        Err(cuda_std::executor::LaunchError::Fault(fault)) => Err(fault),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_stored_tile_is_where_the_layout_says_and_nothing_else_changes() {
    for checks in ALL_CHECKS {
        for at in [[0, 0, 0], [32, 4, 1], [48, 9, 1], [52, 0, 0]] {
            let (before, after) = (memory(), stored(checks, at, NOTHING).unwrap());
            let mut expected = before;
            for (row, place) in (0..LINES).flat_map(|row| (0..LENGTH).map(move |place| (row, place))) {
                let to = [u64::from(at[0]) + place as u64, u64::from(at[1]) + row as u64, at[2].into()];
                // What follows in the same 16 bytes is stored as well.
                if to[0] < EXTENTS[0].next_multiple_of(4) && (1..3).all(|i| to[i] < EXTENTS[i]) {
                    let swizzled = 4 * ((place / 4) ^ (row % 8)) + place % 4;
                    expected[(0..3).map(|i| to[i] as usize * STRIDES[i]).sum::<usize>()] =
                        (row * LENGTH + swizzled) as f32;
                }
            }
            assert_eq!(after, expected, "{at:?}");
        }
    }
}

#[test]
fn the_last_piece_of_a_line_needs_room() {
    // The last line of the last matrix.
    let end = 600 + 9 * 52 + 50;
    for checks in ALL_CHECKS {
        assert!(stored_within(checks, end + 2, [48, 9, 1], NOTHING).is_ok());
        let fault = stored_within(checks, end + 1, [48, 9, 1], NOTHING).unwrap_err();
        let expected = FaultKind::StoreBehindArray { byte: 4 * (end + 1), bytes: 4 * (end + 1) };
        assert_eq!((fault.kind, fault.location.unwrap().line), (expected, line("store")));
    }
}

#[test]
fn what_is_stored_has_been_written_made_visible_and_waits() {
    let fault = |wrong| *stored(Checks::Full, [0; 3], wrong).unwrap_err();
    let not_fenced = fault(NO_ASYNC_FENCE);
    let FaultKind::NotFenced { element, thread, location } = &not_fenced.kind else { panic!("{not_fenced}") };
    assert_eq!((element.as_str(), thread.x, location.line), ("40", 40, line("fill")));
    assert_eq!(not_fenced.location.unwrap().line, line("store"));

    let raced = fault(NO_BARRIER);
    assert!(matches!(&raced.kind, FaultKind::Race { .. }), "{raced}");

    let overwritten = fault(WRITES_AGAIN);
    let FaultKind::InFlight { element, other } = &overwritten.kind else { panic!("{overwritten}") };
    assert_eq!((element.as_str(), other.access, other.location.line), ("5", AccessKind::Read, line("store")));
    assert_eq!(overwritten.location.unwrap().line, line("write again"));

    let not_awaited = *stored(Checks::Bounds, [0; 3], NO_WAIT_FOR_STORE).unwrap_err();
    assert_eq!((not_awaited.kind, not_awaited.location.unwrap().line), (FaultKind::StoreNotAwaited, line("store")));
}
