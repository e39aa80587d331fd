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
//! A block computes a tile of 256×128 in K-steps of 32; or, for few columns, of 256×64 or 256×32, with more raw stages in the memory that is
//! left: then the time is that of reading A. (With few rows, the transposes have few columns.) Its roles, each of which has a function (README.md has their protocol):
//!
//! - **Converter warps**, 0 to 3 (`converter`): each issues the TMA loads of its quarter of a raw stage, and decomposes 32 columns
//!   of B, 32×32 numbers in each step (of narrower tiles a half or a quarter of them). The high part goes back to where the number came from if B is K-major, otherwise to a tile
//!   of its own, transposed, because TF32 operands have to be K-major. What a warp does in a step is unrolled, so that most of its
//!   addresses are constants. The tile is high rather than wide because only B goes through the converters.
//! - **Consumer warpgroups**, two: each has 128 rows, as two halves of 64. They decompose A in registers, multiply, and *promote*:
//!   tensor cores add up 32 products, cutting off what does not fit, and these partial accumulators are added to the accumulators
//!   in fp32, rounded to nearest. Without promotion, the error would grow with k, all of it towards zero.
//!
//! A step takes the tensor cores 3072 clocks, in proportion less for fewer columns. Loading 256 rows of A takes 1,700 at the bandwidth of an
//! H200. The consumer warpgroups alternate
//! ([`blocks::ping_pong`]): tensor cores multiply a half of one warpgroup while the other one promotes, loads and decomposes.
//!
//! # Operands that cannot be decomposed
//!
//! See [`crate::gemm::decompose`]. Numbers that are too large show in the accumulators, which are not finite then. Numbers that are too
//! small show nowhere, and the operands are scanned for them (`scan_schedule`). There are two ways:
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
//! warpgroup 0 gives up all but 40, so that the others have 232; 192 to 225 KB of shared memory, one block on a multiprocessor.

use blocks::epilogue::Steps;
use blocks::named_barrier::{NamedBarrier, NamedBarrierIds, NamedBarriers};
use blocks::ping_pong::{self, PingPong};
use blocks::ring::{Consumer, Ring};
use blocks::uniform::{uniform, warp_number};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums};

use super::converter::ByTma;
use super::decomposed_block::{
    A_TILE, Block, CONSUMER_WARPS, CONVERTER_WARPS, FIRST_CONSUMER, Found, Loads, Memory, SECOND_STAGES, THREADS,
    b_tile, raw_stage_len, raw_stages, second_stage_len,
};
pub use super::decomposed_block::{BOX_OF_A, TILE, box_of_b, tile_of};
use super::fallback::Fallback;
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::describes;
use super::operand::{Fragments, KMajor, Major, MnMajor, ROW, fragment_offset, load_fragments};
use super::scan_schedule::{ScanSchedule, found_in_sums};
use super::scheme::{Scheme, ThreeTf32, ThreeTf32OfTransposes, parts_of_a};
use super::whole_rows;
use crate::gemm::fp32_tile::{self, Again, Made, Region, ToShared};
use crate::gemm::scan::{self, NOT_FINITE, Scan};
use crate::gemm::sum_lines::is_column_major;
use crate::gemm::tiles::TiledGemm;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};

const _: () = assert!(THREADS == 384, "the entry points' blocks are of as many threads");

/// The rows of C that a warpgroup computes at a time.
const HALF: u32 = 64;
/// The threads of the consumers.
const CONSUMER_THREADS: u32 = CONSUMER_WARPS * warp::LANES;
/// The rows that a warp has in each half.
const WARP_ROWS: u32 = 16;

/// That sums find room in the place of the stages.
const fn results_fit(columns: u32, raw_stages: u32, in_place: bool) -> bool {
    let room = raw_stages * raw_stage_len(columns) + SECOND_STAGES * second_stage_len(columns, in_place);
    tile_of(columns).m / WARP_ROWS * whole_rows::len(columns) <= room
}

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
/// Called by all threads of a block of 384, launched with the shared memory of [`Memory`], with what the loads need of A and of B of `gemm`,
/// in the layouts that `A` and `B` say; `only` covers `gemm`.
#[inline(always)]
pub(super) unsafe fn multiply_decomposed<
    A: Major,
    B: Major,
    S: Scheme,
    L: Loads,
    const COLUMNS: u32,
    const ACCUMULATORS: usize,
    const RAW_STAGES: u32,
>(
    memory: Memory<COLUMNS, RAW_STAGES>,
    loads: L,
    gemm: TiledGemm<'_>,
    tile_mask: GlobalSliceMut<'_, u32>,
    only: Fallback<'_>,
    steps: Steps<'_>,
) where
    [f32; ACCUMULATORS]: Sums<Number = f32>,
{
    const {
        assert!(ACCUMULATORS as u32 == COLUMNS / 2 && results_fit(COLUMNS, RAW_STAGES, B::K && L::IN_PLACE));
    }
    let shape = tile_of(COLUMNS);
    let Some(tile) = gemm.tile(shape, thread::block_idx_x()) else { return };
    // SAFETY: the caller's promise.
    if unsafe { !only.contains(&tile) } {
        return;
    }
    // SAFETY: the caller's promise.
    let block = unsafe {
        Block {
            gemm,
            memory: memory.stages.slice(),
            raw: Ring::new(memory.raw),
            second: Ring::new(memory.second),
            found: Found::new(memory.found, BARRIERS.found),
            steps: (tile.k_end - tile.k_begin).div_ceil(shape.k),
            scans: [
                ScanSchedule::new(
                    if tile_mask.is_empty() { 1 } else { gemm.n().div_ceil(shape.n) },
                    tile.col / shape.n,
                ),
                ScanSchedule::new(
                    if tile_mask.is_empty() { 1 } else { gemm.m().div_ceil(shape.m) },
                    tile.row / shape.m,
                ),
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
            loads.prepare();
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        let (mut converter, mut consumer) = (block.raw.producer_consumer(), block.raw.consumer());
        let warp = warp_number();
        if warp < FIRST_CONSUMER {
            hopper::release_registers::<40>();
            let found = loads.convert::<A, B, COLUMNS, RAW_STAGES>(&block, &mut converter, warp);
            block.found.arrive(found);
        } else {
            hopper::acquire_registers::<232>();
            multiply::<A, B, S, L, COLUMNS, ACCUMULATORS, RAW_STAGES>(&block, &mut consumer, tile_mask, &steps);
        }
    }
}

/// What a consumer thread keeps from step to step.
struct ConsumerState<const ACCUMULATORS: usize> {
    /// Where its part of A is, in the raw stage that comes next.
    offset_in_a: u32,
    /// What it has loaded of that: the first half of its rows.
    raw: Fragments<f32>,
    accumulators: [[f32; ACCUMULATORS]; 2],
    /// Of A.
    scan: Scan,
    step: u32,
    ping_pong: PingPong,
}

impl<const ACCUMULATORS: usize> ConsumerState<ACCUMULATORS>
where
    [f32; ACCUMULATORS]: Sums<Number = f32>,
{
    /// Does one K-step of both halves, and loads the first half of the next step.
    ///
    /// # Safety
    /// As for [`multiply_decomposed`]; called by all lanes of a consumer warpgroup, when the next raw stage is full.
    #[inline(always)]
    unsafe fn step<
        A: Major,
        B: Major,
        S: Scheme,
        L: Loads,
        const COLUMNS: u32,
        const RAW_STAGES: u32,
        const SCAN: bool,
    >(
        &mut self,
        block: &Block<'_, COLUMNS, RAW_STAGES>,
        raw: &mut Consumer<RAW_STAGES>,
        steps: u32,
    ) {
        let memory = block.memory;
        let second_ring = block.second.consumer_after(self.step);
        let raw_stage = raw.stage() * raw_stage_len(COLUMNS);
        let in_place = const { B::K && L::IN_PLACE };
        let second_offset =
            RAW_STAGES * raw_stage_len(COLUMNS) + second_ring.stage() * second_stage_len(COLUMNS, in_place);
        let high_b = Descriptor::at(memory, (if in_place { raw_stage + A_TILE } else { second_offset }) as usize);
        let low_b =
            Descriptor::at(memory, (if in_place { second_offset } else { second_offset + b_tile(COLUMNS) }) as usize);
        // SAFETY: a stage is read when it is full, and released when the products that read it have finished. A K-major B is
        // read from the raw stage to the end of the step.
        unsafe {
            let parts_of_a = self.decompose::<SCAN>();
            second_ring.wait();
            let mut partial = [0f32; ACCUMULATORS];
            self.ping_pong.wait();
            wgmma::fence();
            S::multiply(&mut partial, &parts_of_a, high_b, low_b);
            wgmma::commit();
            self.ping_pong.pass();
            partial.wait::<0>();
            self.raw = load_fragments::<A>(memory.skip((HALF * ROW) as usize), self.offset_in_a);
            promote(&mut self.accumulators[0], &partial);

            let parts_of_a = self.decompose::<SCAN>();
            let mut partial = [0f32; ACCUMULATORS];
            self.ping_pong.wait();
            wgmma::fence();
            S::multiply(&mut partial, &parts_of_a, high_b, low_b);
            wgmma::commit();
            self.ping_pong.pass();
            if !in_place {
                raw.release(); // A is in registers, and the converters are done: nobody reads it any more
            }
            raw.advance();
            self.offset_in_a = if raw.stage() == 0 {
                self.offset_in_a - (RAW_STAGES - 1) * raw_stage_len(COLUMNS)
            } else {
                self.offset_in_a + raw_stage_len(COLUMNS)
            };
            self.step += 1;
            partial.wait::<0>();
            second_ring.release(); // and where high parts of B are in place, the raw stage with it
            if self.step < steps {
                raw.wait();
            }
            // After the last step these are bytes without meaning that nothing uses: a load that is made only sometimes
            // costs registers. The executor, which has enough of them, would report it.
            if cfg!(target_arch = "nvptx64") || self.step < steps {
                self.raw = load_fragments::<A>(memory, self.offset_in_a);
            }
            promote(&mut self.accumulators[1], &partial);
        }
    }

    /// Decomposes what has been loaded of A.
    #[inline(always)]
    fn decompose<const SCAN: bool>(&mut self) -> [Fragments<u32>; 2] {
        if SCAN {
            self.scan.scan_now(&self.raw);
        }
        parts_of_a(&self.raw)
    }
}

/// The consumers: main loop, and epilogue or fallback.
///
/// # Safety
/// As for [`multiply_decomposed`]; called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply<
    A: Major,
    B: Major,
    S: Scheme,
    L: Loads,
    const COLUMNS: u32,
    const ACCUMULATORS: usize,
    const RAW_STAGES: u32,
>(
    block: &Block<'_, COLUMNS, RAW_STAGES>,
    raw: &mut Consumer<RAW_STAGES>,
    tile_mask: GlobalSliceMut<'_, u32>,
    steps: &Steps<'_>,
) where
    [f32; ACCUMULATORS]: Sums<Number = f32>,
{
    // SAFETY: all lanes come here.
    let offset_in_a = unsafe { fragment_offset::<A>(first_row(warp_number()), warp::lane_id()) };
    // SAFETY: likewise.
    let ping_pong = unsafe { PingPong::new(BARRIERS.ping_pong, (warp_number() - FIRST_CONSUMER) / 4) };
    let (accumulators, scan) = ([[0.0; ACCUMULATORS]; 2], Scan::new());
    let mut state = ConsumerState { offset_in_a, raw: [0.0; 16], accumulators, scan, step: 0, ping_pong };
    // SAFETY: all lanes of all four warps of the warpgroup come here together: the number of steps is the same for the whole
    // block.
    unsafe {
        let steps = if L::SCAN { uniform(block.steps) } else { block.steps };
        if steps > 0 {
            raw.wait();
            state.raw = load_fragments::<A>(block.memory, offset_in_a);
        }
        if L::SCAN || COLUMNS == TILE.n && block.scans[0].shared {
            while state.step < steps {
                state.step::<A, B, S, L, COLUMNS, RAW_STAGES, false>(block, raw, steps);
            }
        } else {
            while state.step < steps {
                state.step::<A, B, S, L, COLUMNS, RAW_STAGES, true>(block, raw, steps);
            }
        }
        ping_pong.end();
    }
    let ConsumerState { accumulators, scan: of_a, .. } = state;
    let found = of_a.found_of(scan::A) | found_in_sums(&accumulators);
    // SAFETY: the converters come there as well, and each warp once.
    let found = unsafe { block.found.arrive_and_wait(found) };
    let mut found_here = found;
    if !tile_mask.is_empty() {
        if thread::thread_idx_x() == FIRST_CONSUMER * 32 {
            // SAFETY: a launch has checked that the mask has a word for each block, and one thread of each writes it.
            unsafe { tile_mask.set_unchecked(thread::block_idx_x() as usize, found & !NOT_FINITE) };
        }
        found_here = found & NOT_FINITE;
    }
    // SAFETY: all lanes come here.
    let warp = unsafe { warp_number() };
    // Where a warp's 16 rows of a half are.
    let memory = |row: u32| block.memory.skip((row / WARP_ROWS * whole_rows::len(COLUMNS)) as usize);
    let is_column_major = is_column_major(&block.gemm.c().first());
    // SAFETY: all lanes come here. The consumers have met when all stages had been read, and each warp has memory of its own.
    // (Not a loop, whose index would put the accumulators into memory.)
    unsafe {
        let sums_of = |half: usize| {
            let accumulators = &accumulators[half];
            move |group: u32, half: u32| [0, 1].map(|i| accumulators[position_of((4 * group + 2 * half + i) as usize)])
        };
        whole_rows::write::<A, COLUMNS>(&memory(first_row(warp)), is_column_major, sums_of(0));
        whole_rows::write::<A, COLUMNS>(&memory(first_row(warp) + HALF), is_column_major, sums_of(1));
    }
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = block.gemm.tile(tile_of(COLUMNS), thread::block_idx_x()) else { return };
    // SAFETY: all consumers come here, and have found the same. Barriers separate what they have written from what others read, and each
    // warp has rows and columns of its own, which begin at multiples of 4.
    unsafe {
        let again = Again::of(&tile, tile_of(COLUMNS), found_here, block.gemm.has_exact_selections());
        if let Some(again) = again {
            BARRIERS.sums.sync();
            let place = |row, col| {
                let place = whole_rows::place::<A>(COLUMNS, is_column_major, [row % WARP_ROWS, col]);
                row / WARP_ROWS * whole_rows::len(COLUMNS) + place
            };
            let sums = ToShared { memory: block.memory, factor: 1.0, place };
            let made = |row, col| Made::Sum(block.memory.read(place(row, col) as usize));
            let thread = thread::thread_idx_x() - FIRST_CONSUMER * warp::LANES;
            let region = Region::all_of(&tile, tile_of(COLUMNS));
            fp32_tile::recompute_to(&tile, region, thread, CONSUMER_THREADS, again, made, &sums);
            BARRIERS.sums.sync();
        }
        warp::sync_warp(warp::ALL_LANES);
        let mut half = 0;
        while half < 2 {
            let row = first_row(warp) + half * HALF;
            whole_rows::store::<A, COLUMNS>(
                &tile,
                steps.left(),
                &memory(row),
                is_column_major,
                [tile.row + row, tile.col],
            );
            half = hint::keep_rolled(half + 1);
        }
    }
}

/// The first row of a consumer warp: a warpgroup has two halves of 64 rows, and each of its warps 16 rows of each half.
#[inline(always)]
fn first_row(warp: u32) -> u32 {
    let warp = warp - FIRST_CONSUMER;
    warp / 4 * 2 * HALF + warp % 4 * 16
}

/// Adds a product to accumulators, rounding to nearest, when the tensor cores have all of it.
///
/// # Safety
/// As for [`Scheme::multiply`], which fences and commits are made around here.
#[inline(always)]
pub(super) unsafe fn add_product<S: Scheme, const COUNT: usize>(
    accumulators: &mut [f32; COUNT],
    parts_of_a: &[Fragments<u32>; 2],
    high_b: Descriptor,
    low_b: Descriptor,
) where
    [f32; COUNT]: Sums<Number = f32>,
{
    let mut partial = [0f32; COUNT];
    // SAFETY: the caller's promise.
    unsafe {
        wgmma::fence();
        S::multiply(&mut partial, parts_of_a, high_b, low_b);
        wgmma::commit();
        partial.wait::<0>();
    }
    promote(accumulators, &partial);
}

/// Adds partial accumulators, rounding to nearest.
#[inline(always)]
fn promote<const COUNT: usize>(accumulators: &mut [f32; COUNT], partial: &[f32; COUNT]) {
    for i in 0..COUNT {
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

/// Makes the entry points: all have the same parameters and differ in types, and in the columns of their tiles.
macro_rules! entry_points {
    ($columns:literal: $($name:ident, $a:ident, $b:ident, $scheme:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = Memory::<$columns, { raw_stages($columns, $b::K) }>::new($b::K, 0).bytes,
            requires(
                gemm.blocks(tile_of($columns)) <= MAX_BLOCKS,
                tile_mask.is_empty() || tile_mask.len() as u64 >= gemm.blocks(tile_of($columns)),
                tile_mask.is_empty() || gemm.overwrites() && tile_of($columns) == TILE,
                describes::<$a>(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], BOX_OF_A.m, BOX_OF_A.k),
                describes::<$b>(
                    &map_b,
                    [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()],
                    box_of_b($columns, $b::K).n,
                    box_of_b($columns, $b::K).k
                ),
                only.covers(&gemm),
                steps_fit(&steps, &gemm),
                steps.is_empty() || tile_mask.is_empty(),
                only.is_everything() || tile_mask.is_empty()
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            tile_mask: GlobalSliceMut<'_, u32>,
            only: Fallback<'_>,
            steps: Steps<'_>,
        ) {
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe, and that there are enough flags.
            unsafe {
                multiply_decomposed::<$a, $b, $scheme, ByTma<'_>, $columns, { $columns / 2 }, { raw_stages($columns, $b::K) }>(
                    const { Memory::new($b::K, 0) },
                    ByTma { map_a, map_b },
                    gemm,
                    tile_mask,
                    only,
                    steps,
                )
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_of($columns))
            }
        }
    )* };
}

entry_points! { 128:
    gemm_wgmma_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B row-major.";
    gemm_wgmma_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A row-major and B column-major.";
    gemm_wgmma_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A column-major and B row-major.";
    gemm_wgmma_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B column-major.";
}

entry_points! { 64:
    gemm_wgmma_256x64_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A and B row-major.";
    gemm_wgmma_256x64_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A row-major and B column-major.";
    gemm_wgmma_256x64_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A column-major and B row-major.";
    gemm_wgmma_256x64_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×64, A and B column-major.";
}

entry_points! { 32:
    gemm_wgmma_256x32_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A and B row-major.";
    gemm_wgmma_256x32_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A row-major and B column-major.";
    gemm_wgmma_256x32_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A column-major and B row-major.";
    gemm_wgmma_256x32_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32OfTransposes,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 256×32, A and B column-major.";
}
