//! The warps that load and convert, in the kernels of [`split`](super::decomposed).
//!
//! ```text
//!                 warp 0        warp 1        warp 2        warp 3
//!  A  256 rows    0 … 63        64 … 127      128 … 191     192 … 255        has them copied, and looks at them
//!  B  128 cols    0 … 31        32 … 63       64 … 95       96 … 127         has them copied, splits and looks at them
//!
//!  a step:   copies for a step to come ─► wait for B ─► split B ─► fence, tell the multipliers ─► look ─► give the place back
//! ```

use blocks::ring::{Producer, ProducerConsumer, TmaStage};
use blocks::uniform::uniform;
use cuda_std::hopper;
use cuda_std::prelude::*;

use super::decomposed::{A_TILE, B_TILE, BOXES, Block, CONVERTERS, RAW, SECOND_STAGES, TILE, second_place};
use super::operand::{BOX, COLUMNS, Major, Pieces, ROW, Share, TURNS, load_unit, store_unit};
use super::scheme::Scheme;
use crate::gemm::decompose::{Extremes, split_tf32};
use crate::gemm::repair::{MARK_A, MARK_B};

const _: () =
    assert!(SECOND_STAGES == 2, "an empty second place says that the raw place of two steps ago is read no more");

/// What a warp has the copy engine load.
#[derive(Clone, Copy)]
struct Source<'a> {
    map_a: TensorMap<'a>,
    map_b: TensorMap<'a>,
    /// The first row of A and column of B.
    row: u32,
    col: u32,
    product: u32,
    /// The first term.
    k: u32,
}

/// Has the copy engine fill a warp's part of the next raw place of a ring with what step `step` needs, when that is empty.
///
/// # Safety
/// As for the body of the kernels; called by all lanes of the converters' warps, of which this is number `warp`.
#[inline(always)]
unsafe fn load<A: Major, B: Major, const RAW_STAGES: u32>(
    memory: SharedSlice<f32>,
    warp: u32,
    raw: Producer<RAW_STAGES>,
    source: Source<'_>,
    step: u32,
) {
    let Source { map_a, map_b, row, col, product, k } = source;
    let k = k + step * TILE.k;
    let (place, stage) = (raw.stage() * RAW, raw.tma_stage());
    let (place_a, place_b) = (place + warp * BOXES.m * ROW, place + A_TILE + warp * BOXES.n * ROW);
    // SAFETY: the place is empty, and counts as full when all its bytes have come, those that each warp announces. Boxes lie
    // at multiples of 4 KB. Where B is K-major, the warp has waited for a second place after the step before the last, so that
    // the multipliers are done with this raw place; of the converters, this one alone has looked at what it now overwrites.
    unsafe {
        if !B::K {
            raw.acquire();
        }
        if hopper::elect_one() {
            stage.commit_bytes((BOXES.m + BOXES.n) * ROW * 4);
        }
        load_operand::<A>(memory, place_a, BOXES.m, map_a, [k, row, product], stage);
        load_operand::<B>(memory, place_b, BOXES.n, map_b, [k, col, product], stage);
    }
}

/// Loads `rows` rows of A (columns of B), with 32 terms of each. `at` is the first term, the first row, and the product.
///
/// # Safety
/// As for [`TmaStage::load_tile`], but called by all lanes of a warp, of which one does the work: where all compute the same,
/// the operands of the copies are in registers for the whole warp, as the copy engine wants them.
#[inline(always)]
unsafe fn load_operand<O: Major>(
    memory: SharedSlice<f32>,
    place: u32,
    rows: u32,
    map: TensorMap<'_>,
    at: [u32; 3],
    stage: TmaStage,
) {
    let [k, first, product] = at;
    // SAFETY: the caller's promise.
    unsafe {
        if O::K {
            if hopper::elect_one() {
                stage.load_tile(memory, place as usize, map, [k, first, product]);
            }
        } else {
            for i in 0..rows / 32 {
                if hopper::elect_one() {
                    stage.load_tile(memory, (place + i * BOX) as usize, map, [first + i * 32, k, product]);
                }
            }
        }
    }
}

/// Has the raw places filled, splits the tiles of B, and looks for operands that are too small. Returns the marks of those of
/// which it has found some.
///
/// # Safety
/// As for the body of the kernels; called by all lanes of the converters' warps, of which this is number `warp`.
#[inline(always)]
pub(super) unsafe fn convert<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32>(
    block: &Block<'_, RAW_STAGES>,
    raw: &mut ProducerConsumer<RAW_STAGES>,
    warp: u32,
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
) -> u32 {
    let Some(tile) = block.gemm.tile(TILE, thread::block_idx_x()) else { return 0 };
    // SAFETY: all lanes come here.
    let (row, col, product, k) =
        unsafe { (uniform(tile.row), uniform(tile.col), uniform(tile.product), uniform(tile.k_begin)) };
    let (row, col) = (row + warp * BOXES.m, col + warp * BOXES.n);
    let source = Source { map_a, map_b, row, col, product, k };
    let share = Share::of::<B>(warp, warp::lane_id());
    let mut extremes = [Extremes::new(); 2];
    // SAFETY: all places are empty.
    unsafe {
        let mut step = 0;
        while step < block.steps.min(RAW_STAGES) {
            load::<A, B, RAW_STAGES>(block.memory, warp, block.raw.producer_after(step), source, step);
            step = hint::keep_rolled(step + 1);
        }
    }
    for step in 0..block.steps {
        let second = block.second.producer_after(step);
        let raw_a = raw.consumer().stage() * RAW;
        let raw_b = raw_a + A_TILE;
        let place = RAW_STAGES * RAW + second.stage() * second_place(B::K);
        let targets = if B::K { [raw_b, place] } else { [place, place + B_TILE] };
        let next = step + RAW_STAGES - 2;
        let loads = step >= 2 && next < block.steps;
        // SAFETY: the raw place is full, and the second empty. The fence and the arrival come after the last store of the
        // warp, and the raw place is given back when the warp has looked at it. Where B is K-major, loads come after the wait
        // for the second place, in `convert_tile`.
        unsafe {
            if !B::K && loads {
                load::<A, B, RAW_STAGES>(block.memory, warp, raw.producer_ahead(), source, next);
            }
            raw.consumer().wait();
            convert_tile::<A, B, S>(block.memory, share, raw_b, targets, second);
            hopper::fence_async_shared();
            warp::sync_warp(warp::ALL_LANES);
            second.commit();
            if B::K && loads {
                load::<A, B, RAW_STAGES>(block.memory, warp, raw.producer_ahead(), source, next);
            }
            if block.looks[0].shared && block.looks[0].at(step) {
                look_at::<{ A_TILE / CONVERTERS }>(
                    block.memory,
                    raw_a + warp * (A_TILE / CONVERTERS),
                    &mut extremes[0],
                );
            }
            // A K-major B is no longer there, but its first parts are: as large as it, and zero where it is.
            if block.looks[1].at(step) {
                look_at::<COLUMNS>(block.memory, raw_b + warp * COLUMNS, &mut extremes[1]);
            }
            // Nobody but this warp has anything copied to where it looks, and not before its lanes have met in the next step.
            if !B::K {
                raw.consumer().release();
            }
        }
        raw.advance();
    }
    let mark = |extremes: Extremes, mark| if extremes.any() { mark } else { 0 };
    mark(extremes[0], MARK_A) | mark(extremes[1], MARK_B)
}

/// Splits this warp's part of the raw tile of B at `raw` into operands at two other places.
///
/// # Safety
/// The raw tile is complete, and nobody else accesses the other places; every converter comes here.
#[inline(always)]
unsafe fn convert_tile<A: Major, B: Major, S: Scheme>(
    memory: SharedSlice<f32>,
    share: Share,
    raw: u32,
    [first, second]: [u32; 2],
    second_ring: Producer<SECOND_STAGES>,
) {
    let sources = share.sources::<B>(raw);
    let (first, second) = (share.target::<B>(Pieces::TF32, first), share.target::<B>(S::SECOND, second));
    // SAFETY: inside the tiles, and every unit has one lane.
    unsafe {
        if !B::K {
            second_ring.acquire();
        }
        let mut values = load_unit::<A, B>(memory, &sources, 0);
        for turn in 0..TURNS {
            let (mut high, mut low) = ([0.0; 8], [0.0; 8]);
            for i in 0..8 {
                (high[i], low[i]) = split_tf32(values[i]);
            }
            let second_of_b = S::second_of_b(values, low);
            if B::K && turn == 0 {
                hint::pin(&mut high);
                second_ring.acquire();
            }
            store_unit::<B>(memory, Pieces::TF32, first, turn, high);
            // Between the stores, where the fewest registers are needed for anything else.
            if turn + 1 < TURNS {
                values = load_unit::<A, B>(memory, &sources, turn + 1);
            }
            store_unit::<B>(memory, S::SECOND, second, turn, second_of_b);
        }
    }
}

/// Looks at `COUNT` elements of a raw place, from element `first` on.
///
/// # Safety
/// They are complete, and begin at a piece; called by all lanes of the warp.
#[inline(always)]
unsafe fn look_at<const COUNT: u32>(memory: SharedSlice<f32>, first: u32, extremes: &mut Extremes) {
    let place = first + 4 * warp::lane_id();
    for i in 0..COUNT / 128 {
        // SAFETY: inside what is to be looked at, at a piece.
        let four = unsafe { memory.skip((i * 128) as usize).read4(place as usize) };
        extremes.see_now(&four);
    }
}
