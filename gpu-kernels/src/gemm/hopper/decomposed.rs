//! fp32-accurate products on tensor cores, `C = α·A·B + β·C`, in one pass over A and B: converter warps and consumer warpgroups
//! decompose each fp32 number into a high and a low part on its way from shared memory to `wgmma`.
//!
//! ```text
//!  global memory          raw stages                      second stages     registers
//!
//!  A 256×32 ──────────► ┌──────────┐
//!            TMA        │ A        │ ────────────────────────────────────► decompose ─┐
//!                       │          │                consumer warpgroups:              │   high·high
//!  B 32×128 ──────────► │ B        │ ─► decompose ─► ┌──────────┐                     ├─► high·low  ─► partial ─► accumulators
//!          (warps 0 to  └──────────┘   (warps        │ second   │ ────────────────────┘   low·high               (fp32)
//!           3)                └─────── 0 to 3) ──────│ of B     │
//!                              high part of B        └──────────┘
//! ```
//!
//! A block computes a tile of 256×128 in K-steps of 32. Its roles, each of which has a function (README.md has their protocol):
//!
//! - **Converter warps**, 0 to 3 (`converter`): each issues the TMA loads of its quarter of a raw stage, and decomposes 32 columns
//!   of B, 32×32 numbers in each step. The high part goes back to where the number came from if B is K-major, otherwise to a tile
//!   of its own, transposed, because TF32 operands have to be K-major. What a warp does in a step is unrolled, so that most of its
//!   addresses are constants. The tile is high rather than wide because only B goes through the converters.
//! - **Consumer warpgroups**, two: each has 128 rows, as two halves of 64. They decompose A in registers, multiply, and *promote*:
//!   tensor cores add up 32 products, cutting off what does not fit, and these partial accumulators are added to the accumulators
//!   in fp32, rounded to nearest. Without promotion, the error would grow with k, all of it towards zero.
//!
//! A step takes the tensor cores 2048 clocks in the mixed scheme, 3072 with three TF32 products. The consumer warpgroups alternate
//! ([`blocks::ping_pong`]): tensor cores multiply a half of one warpgroup while the other one promotes, loads and decomposes.
//!
//! # Operands that cannot be decomposed
//!
//! See [`crate::gemm::decompose`]. Numbers that are too large show in the accumulators, which are not finite then. Numbers that are too
//! small show nowhere, and the operands are scanned for them (`underflow_scan`). There are two ways:
//!
//! - Without a tile mask, each block scans all its operands: consumers scan A, converters B. A block that finds anything takes
//!   its sums to shared memory and computes, in plain fp32, those of the rows and columns with such operands (`fp32_tile`).
//! - With a tile mask, blocks that have the same rows of A share the scan of them, eight at a time; so do blocks with the same columns
//!   of B. Converters scan both, in shared memory. A block writes what it has found to its word of the mask, and
//!   [`gemm_repair_fp32`](crate::gemm::repair::gemm_repair_fp32), launched next, computes these rows and columns of the tiles whose
//!   operands any block has found. That overwrites C, so β has to be zero. Accumulators that are not finite are the block's own matter in this way,
//!   too.
//!
//! A launch with flags of a [`Fallback`] computes only the tiles that need it.
//!
//! Source of the roles: V. Thakkar et al., CUTLASS 3, "warp-specialized persistent" kernels. 168 registers at launch, of which
//! warpgroup 0 gives up all but 40, so that the others have 232; 208 to 225 KB of shared memory, one block on a multiprocessor.

use blocks::named_barrier::{NamedBarrier, NamedBarrierIds, NamedBarriers};
use blocks::ping_pong::{self, PingPong};
use blocks::ring::{Consumer, Ring};
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums};

use super::converter::convert;
use super::decomposed_block::{
    A_TILE, B_TILE, Block, CONSUMER_WARPS, CONVERTER_WARPS, FIRST_CONSUMER, Found, Memory, RAW_STAGE_LEN, THREADS,
    raw_stages, second_stage_len,
};
pub use super::decomposed_block::{BOXES, TILE};
use super::fallback::Fallback;
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::describes;
use super::operand::{Fragments, KMajor, Major, MnMajor, ROW, fragment_offset, load_fragments, row_of_fragment};
use super::scheme::{Mixed, Scheme, ThreeTf32, parts_of_a};
use super::underflow_scan::{NOT_FINITE, ScanSchedule, UNDERFLOW_A, UNDERFLOW_B, are_finite};
use super::whole_rows::{self, are_better_stored_by_rows, store_by_rows, store_fragments};
use crate::gemm::decompose::UnderflowScan;
use crate::gemm::fp32_tile::{self, Made, Region};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TiledGemm};

const _: () = assert!(THREADS == 384, "the entry points' blocks are of as many threads");

/// The rows of C that a warpgroup computes at a time.
const HALF: u32 = 64;
/// The accumulators of a thread for such a half.
const ACCUMULATORS: usize = 64;
const _: () = assert!(ACCUMULATORS == whole_rows::ACCUMULATORS && TILE.n == whole_rows::COLUMNS);
const _: () = assert!(
    CONSUMER_WARPS * whole_rows::len(whole_rows::COLUMNS) <= raw_stages(false) * RAW_STAGE_LEN,
    "results are stored by way of the memory of the raw stages"
);

/// The threads of the consumers.
const CONSUMER_THREADS: u32 = CONSUMER_WARPS * warp::LANES;
/// The elements from one row of a tile of sums to the next in shared memory, so that the lanes of a write meet different banks.
const SUMS_PITCH: u32 = TILE.n + 8;
const _: () =
    assert!(TILE.m * SUMS_PITCH <= raw_stages(false) * RAW_STAGE_LEN, "sums take the place of the raw stages");

/// The named barriers of a kernel.
struct Barriers {
    ping_pong: NamedBarriers<2, { ping_pong::THREADS }>,
    found: NamedBarrier<THREADS>,
    sums: NamedBarrier<CONSUMER_THREADS>,
}

const BARRIERS: Barriers = {
    // SAFETY: the kernels have no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    Barriers {
        ping_pong: ids.group(),
        found: ids.group::<1, THREADS>().at(0),
        sums: ids.group::<1, CONSUMER_THREADS>().at(0),
    }
};

/// The body of all kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`Memory`], and with tensor maps of A and
/// of B of `gemm`, in the layouts that `A` and `B` say; `only` covers `gemm`.
#[inline(always)]
unsafe fn multiply_decomposed<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32>(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    tile_mask: GlobalSliceMut<'_, u32>,
    only: Fallback<'_>,
) {
    let Some(tile) = gemm.tile(TILE, thread::block_idx_x()) else { return };
    // SAFETY: the caller's promise.
    if unsafe { !only.contains(&tile) } {
        return;
    }
    let memory = const { Memory::<RAW_STAGES>::new(B::K) };
    // SAFETY: the caller's promise.
    let block = unsafe {
        Block {
            gemm,
            memory: memory.stages.slice(),
            raw: Ring::new(memory.raw),
            second: Ring::new(memory.second),
            found: Found::new(memory.found, BARRIERS.found),
            steps: (tile.k_end - tile.k_begin).div_ceil(TILE.k),
            scans: [
                ScanSchedule::new(if tile_mask.is_empty() { 1 } else { gemm.n().div_ceil(TILE.n) }, tile.col / TILE.n),
                ScanSchedule::new(if tile_mask.is_empty() { 1 } else { gemm.m().div_ceil(TILE.m) }, tile.row / TILE.m),
            ],
        }
    };
    let thread = thread::thread_idx_x();
    // SAFETY: one thread prepares the barriers, and all wait for it. Every role passes every stage of the rings it uses, in
    // order, `steps` times.
    unsafe {
        if thread == 0 {
            block.raw.init(CONVERTER_WARPS, CONVERTER_WARPS + CONSUMER_WARPS);
            block.second.init(CONVERTER_WARPS, CONSUMER_WARPS);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        let (mut converter, mut consumer) = (block.raw.producer_consumer(), block.raw.consumer());
        let warp = warp_number();
        if warp < FIRST_CONSUMER {
            hopper::release_registers::<40>();
            let found = convert::<A, B, S, RAW_STAGES>(&block, &mut converter, warp, map_a, map_b);
            block.found.arrive(found);
        } else {
            hopper::acquire_registers::<232>();
            multiply::<A, B, S, RAW_STAGES>(&block, &mut consumer, tile_mask);
        }
    }
}

/// What a consumer thread keeps from step to step.
struct ConsumerState {
    /// Where its part of A is, in the raw stage that comes next.
    offset_in_a: u32,
    /// What it has loaded of that: the first half of its rows.
    raw: Fragments<f32>,
    accumulators: [[f32; ACCUMULATORS]; 2],
    scan: UnderflowScan,
    step: u32,
    ping_pong: PingPong,
}

impl ConsumerState {
    /// Does one K-step of both halves, and loads the first half of the next step.
    ///
    /// # Safety
    /// As for [`multiply_decomposed`]; called by all lanes of a consumer warpgroup, when the next raw stage is full.
    #[inline(always)]
    unsafe fn step<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32, const SCAN: bool>(
        &mut self,
        block: &Block<'_, RAW_STAGES>,
        raw: &mut Consumer<RAW_STAGES>,
    ) {
        let memory = block.memory;
        let second_ring = block.second.consumer_after(self.step);
        let raw_stage = raw.stage() * RAW_STAGE_LEN;
        let second_offset = RAW_STAGES * RAW_STAGE_LEN + second_ring.stage() * second_stage_len(B::K);
        let first_b = Descriptor::at(memory, (if B::K { raw_stage + A_TILE } else { second_offset }) as usize);
        let second_b = Descriptor::at(memory, (if B::K { second_offset } else { second_offset + B_TILE }) as usize);
        // SAFETY: a stage is read when it is full, and released when the products that read it have finished. A K-major B is
        // read from the raw stage to the end of the step.
        unsafe {
            let [first_a, second_a] = self.decompose::<S, SCAN>();
            second_ring.wait();
            let mut partial = [0f32; ACCUMULATORS];
            self.ping_pong.wait();
            wgmma::fence();
            S::multiply(&mut partial, &first_a, &second_a, first_b, second_b);
            wgmma::commit();
            self.ping_pong.pass();
            partial.wait::<0>();
            self.raw = load_fragments::<A>(memory.skip((HALF * ROW) as usize), self.offset_in_a);
            promote(&mut self.accumulators[0], &partial);

            let [first_a, second_a] = self.decompose::<S, SCAN>();
            let mut partial = [0f32; ACCUMULATORS];
            self.ping_pong.wait();
            wgmma::fence();
            S::multiply(&mut partial, &first_a, &second_a, first_b, second_b);
            wgmma::commit();
            self.ping_pong.pass();
            if !B::K {
                raw.release(); // A is in registers, and the converters are done: nobody reads it any more
            }
            raw.advance();
            self.offset_in_a = if raw.stage() == 0 {
                self.offset_in_a - (RAW_STAGES - 1) * RAW_STAGE_LEN
            } else {
                self.offset_in_a + RAW_STAGE_LEN
            };
            self.step += 1;
            partial.wait::<0>();
            second_ring.release(); // and where B is K-major, the raw stage with it
            if self.step < block.steps {
                raw.wait();
            }
            // After the last step these are bytes without meaning that nothing uses: a load that is made only sometimes
            // costs registers. The executor, which has enough of them, would report it.
            if cfg!(target_arch = "nvptx64") || self.step < block.steps {
                self.raw = load_fragments::<A>(memory, self.offset_in_a);
            }
            promote(&mut self.accumulators[1], &partial);
        }
    }

    /// Decomposes what has been loaded of A.
    #[inline(always)]
    fn decompose<S: Scheme, const SCAN: bool>(&mut self) -> [Fragments<u32>; 2] {
        if SCAN {
            self.scan.scan_now(&self.raw);
        }
        parts_of_a::<S>(&self.raw)
    }
}

/// The consumers: main loop, and epilogue or fallback.
///
/// # Safety
/// As for [`multiply_decomposed`]; called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32>(
    block: &Block<'_, RAW_STAGES>,
    raw: &mut Consumer<RAW_STAGES>,
    tile_mask: GlobalSliceMut<'_, u32>,
) {
    // SAFETY: all lanes come here.
    let offset_in_a = unsafe { fragment_offset::<A>(first_row(warp_number()), warp::lane_id()) };
    // SAFETY: likewise.
    let ping_pong = unsafe { PingPong::new(BARRIERS.ping_pong, (warp_number() - FIRST_CONSUMER) / 4) };
    let (accumulators, scan) = ([[0.0; ACCUMULATORS]; 2], UnderflowScan::new());
    let mut state = ConsumerState { offset_in_a, raw: [0.0; 16], accumulators, scan, step: 0, ping_pong };
    // SAFETY: all lanes of all four warps of the warpgroup come here together: the number of steps is the same for the whole
    // block.
    unsafe {
        if block.steps > 0 {
            raw.wait();
            state.raw = load_fragments::<A>(block.memory, offset_in_a);
        }
        if block.scans[0].shared {
            while state.step < block.steps {
                state.step::<A, B, S, RAW_STAGES, false>(block, raw);
            }
        } else {
            while state.step < block.steps {
                state.step::<A, B, S, RAW_STAGES, true>(block, raw);
            }
        }
        ping_pong.end();
    }
    let ConsumerState { accumulators, scan, .. } = state;
    let found = if scan.any() { UNDERFLOW_A } else { 0 } | if are_finite(&accumulators) { 0 } else { NOT_FINITE };
    // SAFETY: the converters come there as well, and each warp once.
    let found = unsafe { block.found.arrive_and_wait(found) };
    let mut inexact = found != 0;
    if !tile_mask.is_empty() {
        if thread::thread_idx_x() == FIRST_CONSUMER * 32 {
            // SAFETY: a launch has checked that the mask has a word for each block, and one thread of each writes it.
            unsafe { tile_mask.set_unchecked(thread::block_idx_x() as usize, found & (UNDERFLOW_A | UNDERFLOW_B)) };
        }
        inexact = found & NOT_FINITE != 0;
    }
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = block.gemm.tile(TILE, thread::block_idx_x()) else { return };
    if inexact {
        // SAFETY: all consumers come here, after all stages had been read, and nobody else writes this tile of C. Each thread writes
        // sums of its own, and a barrier separates that from the reads.
        unsafe {
            let first = first_row(warp_number());
            write_half::<A>(&block.memory, first, &accumulators[0]);
            write_half::<A>(&block.memory, first + HALF, &accumulators[1]);
            BARRIERS.sums.sync();
            let made = |row, col| Made::Sum(block.memory.read((row * SUMS_PITCH + col) as usize));
            let thread = thread::thread_idx_x() - FIRST_CONSUMER * warp::LANES;
            fp32_tile::recompute(&tile, Region::all_of(&tile, TILE), thread, CONSUMER_THREADS, made);
        };
        return;
    }
    // SAFETY: all lanes come here. The warps have met when all stages had been read, and each has memory, rows and columns of its own;
    // columns begin at multiples of 4.
    unsafe {
        let warp = warp_number();
        let memory = block.memory.skip(((warp - FIRST_CONSUMER) * whole_rows::len(whole_rows::COLUMNS)) as usize);
        let first = tile.row + first_row(warp);
        // (Not a loop, whose index would put the accumulators into memory.)
        store_half::<A>(&tile, &memory, first, &accumulators[0]);
        store_half::<A>(&tile, &memory, first + HALF, &accumulators[1]);
    }
}

/// Writes the 16 rows of sums, from row `first` of the tile on, that a warp has of a half to shared memory.
///
/// # Safety
/// Nothing else uses the rows in memory, nor does anything asynchronous.
#[inline(always)]
unsafe fn write_half<A: Major>(memory: &SharedSlice<f32>, first: u32, accumulators: &[f32; ACCUMULATORS]) {
    let lane = warp::lane_id();
    for half in 0..2 {
        let row = first + row_of_fragment::<A>(lane / 4 + 8 * half);
        let place = row * SUMS_PITCH + 2 * (lane & 3);
        for group in 0..ACCUMULATORS / 4 {
            let pair = [0, 1].map(|i| accumulators[position_of(4 * group + 2 * half as usize + i)]);
            // SAFETY: the caller's promise; columns are even.
            unsafe { memory.skip(8 * group).write2(place as usize, pair) };
        }
    }
}

/// The epilogue of the 16 rows, from row `first` on, that a warp has of a half.
///
/// # Safety
/// As for [`store_by_rows`].
#[inline(always)]
unsafe fn store_half<A: Major>(
    tile: &Tile<'_>,
    memory: &SharedSlice<f32>,
    first: u32,
    accumulators: &[f32; ACCUMULATORS],
) {
    let row = |i: u32| first + row_of_fragment::<A>(i);
    let accumulator = |i: usize| accumulators[position_of(i)];
    // SAFETY: the caller's promise.
    unsafe {
        if are_better_stored_by_rows(&tile.c) {
            store_by_rows::<{ whole_rows::COLUMNS }>(tile, memory, row, tile.col, accumulator);
        } else {
            store_fragments(tile, row, tile.col, accumulator);
        }
    }
}

/// The first row of a consumer warp: a warpgroup has two halves of 64 rows, and each of its warps 16 rows of each half.
#[inline(always)]
fn first_row(warp: u32) -> u32 {
    let warp = warp - FIRST_CONSUMER;
    warp / 4 * 2 * HALF + warp % 4 * 16
}

/// Adds partial accumulators, rounding to nearest.
#[inline(always)]
fn promote(accumulators: &mut [f32; ACCUMULATORS], partial: &[f32; ACCUMULATORS]) {
    for i in 0..ACCUMULATORS {
        accumulators[i] += partial[position_of(i)];
    }
    hint::pin(accumulators);
}

/// Which of its accumulators a thread keeps partial accumulator `i` in, and the other way round.
///
/// Registers come in two banks, the even and the odd ones. An addition of two that are in the same bank takes twice as long,
/// and the assembler gives both arrays registers in order, beginning with even ones. With neighbours exchanged, what is added
/// is in different banks.
#[inline(always)]
pub(super) fn position_of(i: usize) -> usize {
    i ^ 1
}

/// Makes the entry points: all have the same parameters and differ in types.
macro_rules! entry_points {
    ($($name:ident, $a:ident, $b:ident, $scheme:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = Memory::<{ raw_stages($b::K) }>::new($b::K).bytes,
            requires(
                gemm.blocks(TILE) <= MAX_BLOCKS,
                tile_mask.is_empty() || tile_mask.len() as u64 >= gemm.blocks(TILE),
                tile_mask.is_empty() || gemm.overwrites(),
                describes::<$a>(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().count()], BOXES.m, BOXES.k),
                describes::<$b>(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().count()], BOXES.n, BOXES.k),
                only.covers(&gemm),
                only.is_everything() || tile_mask.is_empty()
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            tile_mask: GlobalSliceMut<'_, u32>,
            only: Fallback<'_>,
        ) {
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe, and that there are enough flags.
            unsafe { multiply_decomposed::<$a, $b, $scheme, { raw_stages($b::K) }>(map_a, map_b, gemm, tile_mask, only) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(TILE)
            }
        }
    )* };
}

entry_points! {
    gemm_wgmma_nn_fp32_mixed, KMajor, MnMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A and B row-major.";
    gemm_wgmma_nt_fp32_mixed, KMajor, KMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A row-major and B column-major.";
    gemm_wgmma_tn_fp32_mixed, MnMajor, MnMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A column-major and B row-major.";
    gemm_wgmma_tt_fp32_mixed, MnMajor, KMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A and B column-major.";
    gemm_wgmma_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B row-major.";
    gemm_wgmma_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A row-major and B column-major.";
    gemm_wgmma_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A column-major and B row-major.";
    gemm_wgmma_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B column-major.";
}
