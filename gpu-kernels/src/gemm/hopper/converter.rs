//! The converter warps of the kernels of [`decomposed`](super::decomposed): they issue the TMA loads, decompose B, and scan operands
//! for numbers that are too small.
//!
//! ```text
//!                 warp 0        warp 1        warp 2        warp 3
//!  A  256 rows    0 … 63        64 … 127      128 … 191     192 … 255        issues their loads, and scans them
//!  B  128 cols    0 … 31        32 … 63       64 … 95       96 … 127         issues their loads, decomposes and scans them
//!
//!  B   64 cols    half of 0 … 31 each         half of 32 … 63 each            likewise: of a K-major B half of the columns, otherwise of the k
//!
//!  a step:   loads for a step to come ─► wait for B ─► decompose B ─► fence, commit ─► scan ─► release the stage
//! ```

use blocks::ring::{Producer, ProducerConsumer, TmaStage};
use blocks::uniform::uniform;
use cuda_std::hopper;
use cuda_std::prelude::*;

use super::decomposed_block::{
    A_TILE, Block, CONVERTER_WARPS, Loads, SECOND_STAGES, WARP_ROWS, b_tile, box_of_b, raw_stage_len, second_stage_len,
    tile_of,
};
use super::operand::{BOX, Major, ROUNDS, ROW, Share, load_unit, store_unit};
use super::scheme::parts_of_b;
use crate::gemm::scan::{self, Scan};

const _: () =
    assert!(SECOND_STAGES == 2, "an empty second stage says that the raw stage of two steps ago is read no more");

/// What the TMA loads of a warp are of.
#[derive(Clone, Copy)]
struct Source<'a> {
    map_a: TensorMap<'a>,
    map_b: TensorMap<'a>,
    /// The first row of A and column of B.
    row: u32,
    col: u32,
    /// Which matrices they are.
    matrices: [u32; 2],
    /// The first k, and how much further on that of B is.
    k: u32,
    k_of_b: u32,
}

/// Issues the TMA loads of a warp's part of the next raw stage, with what step `step` needs, when it is empty.
///
/// # Safety
/// As for the body of the kernels; called by all lanes of the converters' warps, of which this is number `warp`.
#[inline(always)]
unsafe fn load<A: Major, B: Major, const COLUMNS: u32, const RAW_STAGES: u32>(
    memory: SharedSlice<f32>,
    warp: u32,
    raw: Producer<RAW_STAGES>,
    source: Source<'_>,
    step: u32,
) {
    let Source { map_a, map_b, row, col, matrices, k, k_of_b } = source;
    let k = k + step * const { tile_of(COLUMNS).k };
    let (offset, stage) = (raw.stage() * raw_stage_len(COLUMNS), raw.tma_stage());
    let quarter_of_b = const { b_tile(COLUMNS) / CONVERTER_WARPS };
    let (offset_a, offset_b) = (offset + warp * WARP_ROWS * ROW, offset + A_TILE + warp * quarter_of_b);
    // SAFETY: the stage is empty, and full when all its bytes have come, those that each warp announces. Boxes lie
    // at multiples of 1 KB. Where B is K-major, the warp has acquired a second stage after the step before the last, so that
    // the consumers are done with this raw stage; of the converters, this one alone has scanned what it now overwrites.
    unsafe {
        if !B::K {
            raw.acquire();
        }
        if hopper::elect_one() {
            stage.commit_bytes((WARP_ROWS * ROW + quarter_of_b) * 4);
        }
        load_operand::<A>(memory, offset_a, WARP_ROWS, map_a, [k, row, matrices[0]], stage);
        load_operand::<B>(
            memory,
            offset_b,
            const { box_of_b(COLUMNS, B::K).n },
            map_b,
            [k + k_of_b, col, matrices[1]],
            stage,
        );
    }
}

/// Loads `rows` rows of A (columns of B), with 32 elements of each. `at` is the first k, the first row, and which matrix it is.
///
/// # Safety
/// As for [`TmaStage::load_tile`], but called by all lanes of a warp, of which one does the work: where all compute the same,
/// the operands of the loads are in uniform registers, as TMA wants them.
#[inline(always)]
unsafe fn load_operand<O: Major>(
    memory: SharedSlice<f32>,
    offset: u32,
    rows: u32,
    map: TensorMap<'_>,
    at: [u32; 3],
    stage: TmaStage,
) {
    let [k, first, matrix] = at;
    // SAFETY: the caller's promise.
    unsafe {
        if O::K {
            if hopper::elect_one() {
                stage.load_tile(memory, offset as usize, map, [k, first, matrix]);
            }
        } else {
            for i in 0..rows / 32 {
                if hopper::elect_one() {
                    stage.load_tile(memory, (offset + i * BOX) as usize, map, [first + i * 32, k, matrix]);
                }
            }
        }
    }
}

/// TMA loads both operands to where they are read.
#[derive(Clone, Copy)]
pub(super) struct ByTma<'a> {
    pub(super) map_a: TensorMap<'a>,
    pub(super) map_b: TensorMap<'a>,
}

impl Loads for ByTma<'_> {
    const IN_PLACE: bool = true;
    const SCAN: bool = false;

    #[inline(always)]
    unsafe fn convert<A: Major, B: Major, const COLUMNS: u32, const RAW_STAGES: u32>(
        self,
        block: &Block<'_, COLUMNS, RAW_STAGES>,
        raw: &mut ProducerConsumer<RAW_STAGES>,
        warp: u32,
    ) -> u32 {
        let Some(tile) = block.gemm.tile(tile_of(COLUMNS), thread::block_idx_x()) else { return 0 };
        // SAFETY: all lanes come here.
        let [row, col, k] = [tile.row, tile.col, tile.k_begin].map(|value| unsafe { uniform(value) });
        // SAFETY: likewise.
        let matrices = tile.matrices.map(|value| unsafe { uniform(value) });
        let group = const { warps_of_a_group(COLUMNS) };
        let of_b = const { box_of_b(COLUMNS, B::K) };
        let (col, k_of_b) =
            if B::K { (col + warp * of_b.n, 0) } else { (col + warp / group * of_b.n, warp % group * of_b.k) };
        let Self { map_a, map_b } = self;
        let source = Source { map_a, map_b, row: row + warp * WARP_ROWS, col, matrices, k, k_of_b };
        let mut converter = Converter::<COLUMNS>::new::<B>(warp);
        // SAFETY: all stages are empty.
        unsafe {
            let mut step = 0;
            while step < block.steps.min(RAW_STAGES) {
                load::<A, B, COLUMNS, RAW_STAGES>(block.memory, warp, block.raw.producer_after(step), source, step);
                step = hint::keep_rolled(step + 1);
            }
        }
        for step in 0..block.steps {
            let next = step + RAW_STAGES - 2;
            let loads = step >= 2 && next < block.steps;
            let producer = raw.producer_ahead();
            // SAFETY: where B is K-major, loads come after the wait for the second stage.
            unsafe {
                if !B::K && loads {
                    load::<A, B, COLUMNS, RAW_STAGES>(block.memory, warp, producer, source, next);
                }
                converter.step::<A, B, Self, RAW_STAGES>(block, raw, step, || {
                    if B::K && loads {
                        load::<A, B, COLUMNS, RAW_STAGES>(block.memory, warp, producer, source, next);
                    }
                });
            }
        }
        converter.found()
    }
}

/// How many warps convert the same 32 columns.
const fn warps_of_a_group(columns: u32) -> u32 {
    CONVERTER_WARPS * 32 / columns
}

/// What a converter warp keeps from step to step.
pub(super) struct Converter<const COLUMNS: u32> {
    warp: u32,
    share: Share,
    scans: [Scan; 2],
}

impl<const COLUMNS: u32> Converter<COLUMNS> {
    /// That of warp `warp`.
    #[inline(always)]
    pub(super) fn new<B: Major>(warp: u32) -> Self {
        let group = const { warps_of_a_group(COLUMNS) };
        let rounds = ROUNDS / group;
        let share = Share::of::<B>(warp / group, warp::lane_id()).beginning_at::<B>(warp % group * rounds);
        Self { warp, share, scans: [Scan::new(); 2] }
    }

    /// Decomposes this warp's part of B of step `step`, and scans, when the next raw stage is full. `loads` is called when there is a second stage for the
    /// parts of B: what has been read of it before is not read any more then.
    ///
    /// # Safety
    /// As for [`Loads::convert`].
    #[inline(always)]
    pub(super) unsafe fn step<A: Major, B: Major, L: Loads, const RAW_STAGES: u32>(
        &mut self,
        block: &Block<'_, COLUMNS, RAW_STAGES>,
        raw: &mut ProducerConsumer<RAW_STAGES>,
        step: u32,
        loads: impl FnOnce(),
    ) {
        let in_place = const { B::K && L::IN_PLACE };
        let second = block.second.producer_after(step);
        let raw_a = raw.consumer().stage() * raw_stage_len(COLUMNS);
        let raw_b = raw_a + A_TILE;
        let offset = RAW_STAGES * raw_stage_len(COLUMNS) + second.stage() * second_stage_len(COLUMNS, in_place);
        let targets = if in_place { [raw_b, offset] } else { [offset, offset + b_tile(COLUMNS)] };
        // SAFETY: the raw stage is full, and the second empty. The fence and the arrival come after the last store of the
        // warp, and the raw stage is released when the warp has scanned it.
        unsafe {
            raw.consumer().wait();
            convert_tile::<A, B, L, COLUMNS>(block.memory, self.share, raw_b, targets, second);
            hopper::fence_async_shared();
            warp::sync_warp(warp::ALL_LANES);
            second.commit();
            loads();
            if !L::SCAN && block.scans[0].shared && block.scans[0].at(step) {
                let quarter = A_TILE / CONVERTER_WARPS;
                scan_elements(block.memory, raw_a + self.warp * quarter, quarter, &mut self.scans[0]);
            }
            // Where the high parts of B are in its place, they are as large as it, and zero where it is.
            if !L::SCAN && block.scans[1].at(step) {
                let quarter = const { b_tile(COLUMNS) / CONVERTER_WARPS };
                scan_elements(block.memory, raw_b + self.warp * quarter, quarter, &mut self.scans[1]);
            }
            // Only this warp issues loads to what it scans, and not before its lanes have met in the next step.
            if !in_place {
                raw.consumer().release();
            }
        }
        raw.advance();
    }

    /// What has been found.
    #[inline(always)]
    pub(super) fn found(&self) -> u32 {
        self.scans[0].found_of(scan::A) | self.scans[1].found_of(scan::B)
    }
}

/// Decomposes this warp's part of the raw tile of B at `raw` into operands at two other offsets.
///
/// # Safety
/// The raw tile is complete, and nobody else accesses the other tiles; every converter comes here.
#[inline(always)]
unsafe fn convert_tile<A: Major, B: Major, L: Loads, const COLUMNS: u32>(
    memory: SharedSlice<f32>,
    share: Share,
    raw: u32,
    [high, low]: [u32; 2],
    second_ring: Producer<SECOND_STAGES>,
) {
    let sources = share.sources::<B>(raw);
    let (high_target, low_target) = (share.target(high), share.target(low));
    // SAFETY: inside the tiles, and every unit has one lane.
    unsafe {
        let in_place = const { B::K && L::IN_PLACE };
        if !in_place {
            second_ring.acquire();
        }
        let mut values = load_unit::<A, B>(memory, &sources, 0);
        let rounds = const { ROUNDS * COLUMNS / (CONVERTER_WARPS * 32) };
        for round in 0..rounds {
            let [mut high, low] = parts_of_b(values);
            if in_place && round == 0 {
                hint::pin(&mut high);
                second_ring.acquire();
            }
            store_unit::<B>(memory, high_target, round, high);
            // Between the stores, where the fewest registers are needed for anything else.
            if round + 1 < rounds {
                values = load_unit::<A, B>(memory, &sources, round + 1);
            }
            store_unit::<B>(memory, low_target, round, low);
        }
    }
}

/// Scans `count` elements of a raw stage, from element `first` on.
///
/// # Safety
/// They are complete, and begin at a piece; called by all lanes of the warp.
#[inline(always)]
unsafe fn scan_elements(memory: SharedSlice<f32>, first: u32, count: u32, scan: &mut Scan) {
    let offset = first + 4 * warp::lane_id();
    for i in 0..count / 128 {
        // SAFETY: inside what is to be scanned, at a piece.
        let four = unsafe { memory.skip((i * 128) as usize).read4(offset as usize) };
        scan.scan_now(&four);
    }
}
