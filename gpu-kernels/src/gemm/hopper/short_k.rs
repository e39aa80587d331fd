//! fp32-accurate products with k up to 64, `C = α·A·B + β·C`, of operands that are stored as pairs of fp16 numbers: the time is that of
//! writing C, so TMA stores it, or a warp that has nothing else to do.
//!
//! ```text
//!  three stages of operands    registers                              64×128 results             global memory
//!
//!  ┌──────────┐                                                       in shared memory
//!  │ A    16K │ ──► tensor ──► 64×128      ──► · factors, stored ──►  ┌─────────┬─────────┐
//!  │ B    32K │     cores      accumulators                           │   16K   │   16K   │ ───► pieces of rows
//!  └──────────┘                of a warpgroup                         └─────────┴─────────┘      of 256 bytes
//!       ▲                                                              TMA store
//!  TMA load: the next tile                                             (a storing warp for each warpgroup)
//!  (warp 0)
//! ```
//!
//! The kernel of [`super::fp16_pairs`], for a k so small that all of it is in one or two stages. So a consumer warpgroup computes
//! one half of its columns after the other, keeps the accumulators of one half only, leaves the results in shared memory
//! ([`blocks::staging`]), and goes on at once.
//!
//! A tile takes so little time that no consumer may wait for memory on the way. Factors are loaded before the products that they go
//! with. Which tile comes next, and whether it is left to the fallback, the producer warp finds out, some stages ahead, and leaves
//! in a `TileDescriptor` beside the stage. Two storing warps wait for TMA.
//!
//! Tiles are computed row by row of C: what all blocks write at a time lies together.
//!
//! TMA leaves out what lies outside of C, but by 16 bytes: so the rows of C have a multiple of 4 elements. Where they have not, or begin anywhere, the
//! storing warps store them themselves, by single elements: another kernel, which takes no map of C.
//!
//! Tiles of the fallback, and those with exceptions, are computed here, too, in plain fp32 (`gemm::fp32_tile`): that is slow for each k, of which there are
//! few. They take the same way through shared memory, where a warp does the steps of an epilogue (`gemm::staged_steps`) on its rows.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 216 KB of shared memory, one block on a multiprocessor.

use blocks::epilogue::{InRegisters, Steps, StepsLeft};
use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::shared_layout::{SharedArray, SharedLayout};
pub use blocks::staging::BOX as STORED;
use blocks::staging::{PAIRS, Staging, StagingMemory};
use blocks::uniform::warp_number;
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};
use cuda_std::{async_copy, hopper};

use super::exceptions::TileExceptions;
use super::fp16_pairs::multiply_half;
use super::operand::{KMajor, ROW};
use super::pairs_frame::{ELEMENTS, HALF};
#[cfg(not(target_arch = "nvptx64"))]
use super::pairs_info::describes;
use super::pairs_info::{PairInfo, fallback};
use super::pipeline::{
    Beside, CONSUMER_REGISTERS, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer, PipelineMemory,
    WARPGROUP_ROWS, tile_shape, warp_and_warpgroup,
};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::{grid, stores_results_of};
use super::promotion::{ACCUMULATORS, factors_of};
use crate::gemm::fp32_tile::{self, Again, Made, Region, ToShared};
use crate::gemm::staged_steps::StagedLines;
use crate::gemm::sum_lines::{SumLines, Together};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const SHORT_K_TILE: TileShape = tile_shape(32);

/// The largest k: that of two stages.
pub const MAX_K: u32 = 2 * SHORT_K_TILE.k;

/// The consumer warpgroups.
const PARTS: u32 = 2;
/// The threads of each.
const WARPGROUP_THREADS: u32 = 128;
/// The rows of a consumer warp.
const WARP_ROWS: u32 = 16;
/// The rows and columns of what a thread computes in plain fp32.
const SIDE: u32 = fp32_tile::SIDE as u32;
/// The stages of the ring.
const RING: u32 = 3;
/// The shared memory and the named barriers of the kernel.
struct Memory {
    pipeline: PipelineMemory<RING>,
    results: StagingMemory,
    descriptors: SharedArray<u32>,
    /// For each consumer warp, the biases of the columns of a tile, if the first step is a sum with these.
    biases: SharedArray<f32>,
    bytes: u32,
    /// Where each consumer warpgroup meets.
    warpgroups: NamedBarriers<PARTS, WARPGROUP_THREADS>,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    // SAFETY: the kernel has no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    Memory {
        pipeline: PipelineMemory::new(&mut layout),
        results: StagingMemory::new(&mut layout, &mut ids),
        descriptors: layout.array(RING * TileDescriptor::WORDS),
        biases: layout.aligned(PARTS * WARPGROUP_THREADS / warp::LANES * SHORT_K_TILE.n, 16),
        bytes: layout.bytes(),
        warpgroups: ids.group(),
    }
};
const _: () =
    assert!(WARPGROUP_ROWS == blocks::staging::ROWS && HALF == blocks::staging::COLS, "a half is staged as a whole");

/// What the producer warp decides about a tile: four words for each stage, of which those of a tile's first stage count.
///
/// ```text
/// │ row │ column │ product │ fallback │     the first row and column of C, and whether it is left to the fallback
/// ```
#[derive(Clone, Copy)]
struct TileDescriptor {
    row: u32,
    col: u32,
    product: u32,
    fallback: bool,
}

impl TileDescriptor {
    /// The words of a descriptor.
    const WORDS: u32 = 4;

    /// The descriptors of a block.
    ///
    /// # Safety
    /// The block has the shared memory of [`MEMORY`].
    #[inline(always)]
    unsafe fn all() -> SharedSlice<u32> {
        // SAFETY: the caller's promise.
        unsafe { MEMORY.descriptors.slice() }
    }

    /// The descriptor beside a stage.
    ///
    /// # Safety
    /// As for [`TileDescriptor::all`]; the stage is full.
    #[inline(always)]
    unsafe fn read(stage: u32) -> Self {
        let word = |index: u32| {
            // SAFETY: the caller's promise; inside the descriptors.
            unsafe { Self::all().read((stage * Self::WORDS + index) as usize) }
        };
        Self { row: word(0), col: word(1), product: word(2), fallback: word(3) != 0 }
    }
}

impl Beside for TileDescriptor {
    #[inline(always)]
    unsafe fn write(&self, stage: u32) {
        let words = [self.row, self.col, self.product, u32::from(self.fallback)];
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: a producer has the shared memory of `MEMORY`; inside the descriptors, and the stage is acquired.
            unsafe { Self::all().write((stage * Self::WORDS) as usize + index, word) };
        }
    }
}

/// The body of the kernel.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A and B
/// of `gemm` as they have been packed, what goes with them, and a way to store C.
#[inline(always)]
unsafe fn multiply_short(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    info: [PairInfo<'_>; 2],
    steps: &Steps<'_>,
    results: impl Results,
) {
    // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(MEMORY.pipeline);
        let warp = warp_number();
        if warp < PRODUCER_WARPS {
            hopper::release_registers::<PRODUCER_REGISTERS>();
            if warp == 0 {
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let mut producer = pipeline.producer();
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_by_rows(SHORT_K_TILE, block) {
                    let Tile { row, col, product, .. } = tile;
                    // (To add exceptions to sums is more than to compute so short ones again. Both are asked at once: loads take long here.)
                    let fallback = fallback(info).contains(&tile)
                        | TileExceptions::of(&tile, info.map(|info| info.exceptions)).any();
                    let descriptor = TileDescriptor { row, col, product, fallback };
                    producer.load_with::<KMajor, 1, ELEMENTS>(map_a, map_b, &tile, SHORT_K_TILE, &descriptor);
                    block += thread::grid_dim_x();
                }
            } else if warp <= PARTS {
                store(gemm, warp - 1, results);
            }
        } else {
            hopper::acquire_registers::<CONSUMER_REGISTERS>();
            multiply(pipeline.consumer(), gemm, info, steps);
        }
    }
}

/// How the storing warp of a warpgroup stores what has been staged.
trait Results: Copy {
    /// Stores the next results, which are of a tile from this row and column on.
    ///
    /// # Safety
    /// As for [`Staging::store`]; it is a way to store the results of the tile's product.
    unsafe fn store(self, staging: Staging, tile: &Tile<'_>, place: [u32; 2]);

    /// Waits until the shared memory has been read.
    ///
    /// # Safety
    /// Called by all lanes of the storing warp.
    unsafe fn end(self);
}

/// By TMA.
#[derive(Clone, Copy)]
struct ByTma<'a>(TensorMapMut<'a>);

/// By the warp itself.
#[derive(Clone, Copy)]
struct ByRows;

impl Results for ByTma<'_> {
    #[inline(always)]
    unsafe fn store(self, staging: Staging, tile: &Tile<'_>, [row, col]: [u32; 2]) {
        // SAFETY: the caller's promise.
        unsafe { staging.store(self.0, [col, row, tile.product]) };
    }

    #[inline(always)]
    unsafe fn end(self) {
        // SAFETY: the caller's promise.
        unsafe { Staging::wait_until_read() };
    }
}

impl Results for ByRows {
    #[inline(always)]
    unsafe fn store(self, staging: Staging, tile: &Tile<'_>, place: [u32; 2]) {
        // SAFETY: the caller's promise.
        unsafe { staging.store_rows(&tile.c, place) };
    }

    #[inline(always)]
    unsafe fn end(self) {}
}

/// The storing warp of a consumer warpgroup: stores its results, tile by tile.
///
/// # Safety
/// Called by all lanes of one warp for each warpgroup.
#[inline(always)]
unsafe fn store(gemm: TiledGemm<'_>, warpgroup: u32, results: impl Results) {
    let mut block = thread::block_idx_x();
    // SAFETY: all lanes come here. The warpgroup writes the same halves of the same tiles, in this order.
    unsafe {
        let staging = Staging::new(MEMORY.results, warpgroup);
        while let Some(tile) = gemm.tile_by_rows(SHORT_K_TILE, block) {
            let row = tile.row + warpgroup * WARPGROUP_ROWS;
            results.store(staging, &tile, [row, tile.col]);
            results.store(staging, &tile, [row, tile.col + HALF]);
            block += thread::grid_dim_x();
        }
        results.end();
    }
}

/// The consumers, tile by tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply(
    mut pipeline: PipelineConsumer<RING>,
    gemm: TiledGemm<'_>,
    info: [PairInfo<'_>; 2],
    steps: &Steps<'_>,
) {
    let (tiles, two_stages) = (gemm.tiles(SHORT_K_TILE), gemm.effective_k() > SHORT_K_TILE.k);
    let mut block = thread::block_idx_x();
    while block < tiles {
        // SAFETY: all lanes come here, and come to the same conclusions; stages are read when they are full, and released
        // when the products that read them have finished. The tile is this block's alone.
        unsafe {
            let stages = [pipeline, pipeline.next()];
            stages[0].wait();
            let descriptor = TileDescriptor::read(stages[0].stage());
            // One lane releases the stage for all of them.
            warp::sync_warp(warp::ALL_LANES);
            // (Asked once: asked again, the compiler would copy what stands between the questions, one lane's election among it.)
            if two_stages {
                stages[1].wait();
                pipeline.advance();
                if descriptor.fallback {
                    stages[0].release();
                    stages[1].release();
                } else {
                    compute_tile(gemm, descriptor, stages, info, steps);
                }
            } else if descriptor.fallback {
                stages[0].release();
            } else {
                compute_tile(gemm, descriptor, [stages[0]], info, steps);
            }
            pipeline.advance();
            if descriptor.fallback {
                compute_in_fp32(gemm, block, descriptor, steps);
            }
        }
        block += thread::grid_dim_x();
    }
}

/// How many fours of the old C a lane loads before it computes: nothing of the accumulators is in registers then. (Twice as many spill.)
const LOADS_OF_C: usize = 8;

/// Computes a tile in plain fp32.
///
/// # Safety
/// Called by all lanes of the consumer warps, for a tile of this block, and its descriptor; the steps fit the results.
#[inline(always)]
unsafe fn compute_in_fp32(gemm: TiledGemm<'_>, block: u32, descriptor: TileDescriptor, steps: &Steps<'_>) {
    let Some(tile) = gemm.tile_by_rows(SHORT_K_TILE, block) else { return };
    let factor = gemm.factor();
    // SAFETY: the caller's promise; the tile is this block's alone. The warpgroup meets before its warps go on with what others have written.
    unsafe {
        let (_, warpgroup) = warp_and_warpgroup();
        let (staging, thread) = (Staging::new(MEMORY.results, warpgroup), thread::thread_idx_x() % WARPGROUP_THREADS);
        let row = tile.row + warpgroup * WARPGROUP_ROWS;
        let mut half = 0;
        while half < 2 {
            staging.acquire();
            let region = Region { row, col: tile.col + half * HALF, rows: WARPGROUP_ROWS, cols: HALF };
            let results = ToShared { memory: staging.memory(), place: Staging::place, factor };
            let nothing = |_, _| Made::Nothing;
            fp32_tile::recompute_to(&tile, region, thread, WARPGROUP_THREADS, Again::ALL, nothing, &results);
            // TMA reads all of the half, also what it leaves out because it is outside of C. What has been computed are squares that begin inside.
            let mut number = thread;
            while number < WARPGROUP_ROWS * HALF {
                let [down, right] = [number / HALF, number % HALF];
                let [row, col] = [region.row + down / SIDE * SIDE, region.col + right / SIDE * SIDE];
                if row >= gemm.m() || col >= gemm.n() {
                    staging.memory().write(Staging::place(down, right) as usize, 0.0);
                }
                number = hint::keep_rolled(number + WARPGROUP_THREADS);
            }
            MEMORY.warpgroups.at(warpgroup).sync();
            finish(gemm, staging, descriptor, half, steps.left());
            half = hint::keep_rolled(half + 1);
        }
    }
}

/// Computes a tile, and releases its stages.
///
/// # Safety
/// Called by all lanes of the consumer warps, for a tile of this block; the stages are full, and have all of its k. The steps fit the results.
#[inline(always)]
unsafe fn compute_tile<const STAGES_OF_TILE: usize>(
    gemm: TiledGemm<'_>,
    descriptor: TileDescriptor,
    stages: [PipelineConsumer<RING>; STAGES_OF_TILE],
    [info_a, info_b]: [PairInfo<'_>; 2],
    steps: &Steps<'_>,
) {
    let lane = warp::lane_id();
    // SAFETY: the caller's promise; the rows and columns of a tile are in one group of lines each, which all have factors.
    unsafe {
        let (warp, warpgroup) = warp_and_warpgroup();
        let (in_a, row) = (warpgroup * WARPGROUP_ROWS * ROW, warp * WARP_ROWS + lane / 4);
        let staging = Staging::new(MEMORY.results, warpgroup);
        let first_row = descriptor.row + warpgroup * WARPGROUP_ROWS + (row & !1);
        let of_rows = info_a.factor_words(gemm.a().number_of(descriptor.product), gemm.m(), first_row);
        let of_cols =
            info_b.factor_words(gemm.b().number_of(descriptor.product), gemm.n(), descriptor.col + 2 * (lane & 3));
        let factors = |words: GlobalSlice<'_, f32>, word: usize| factors_of(words.get_unchecked(word).to_bits());
        let rows = [0, 4].map(|word| factors(of_rows, word)).map(|pair| if row & 1 == 0 { pair[0] } else { pair[1] });
        let [first, second] = [0, HALF / 2]
            .map(|half| core::array::from_fn::<_, PAIRS, _>(|pair| factors(of_cols, half as usize + 4 * pair)));
        let number = warpgroup * WARPGROUP_THREADS / warp::LANES + warp;
        let biases = MEMORY.biases.slice().skip((number * SHORT_K_TILE.n) as usize);
        let (in_registers, left) = steps.in_registers(gemm.overwrites());
        // (Biases of the tile before have been read: the warp has met since, behind its descriptor.)
        in_registers.fetch(&biases, SHORT_K_TILE.n, [descriptor.product, descriptor.col], gemm.n());
        // (One half after the other by the same code, of which the steps are much.)
        let mut half = 0;
        while half < 2 {
            let (mut accumulators, ()) = multiply_half(&stages, in_a, half * HALF * ROW * 4, None, || ());
            let mut cols: [[f32; 2]; PAIRS] =
                core::array::from_fn(|pair| [0, 1].map(|i| if half == 0 { first[pair][i] } else { second[pair][i] }));
            if half == 1 {
                stages[0].release();
                if STAGES_OF_TILE == 2 {
                    stages[STAGES_OF_TILE - 1].release();
                }
            }
            let biases = biases.skip((half * HALF) as usize);
            epilogue(gemm, staging, row, (rows, &mut cols), (in_registers, &biases), &mut accumulators);
            finish(gemm, staging, descriptor, half, left);
            half = hint::keep_rolled(half + 1);
        }
    }
}

/// The first part of the epilogue of what this thread has of a half: accumulators times the factors of their rows, `row` and the eighth one from
/// there, and of their columns, and the first steps of what that is, with the biases of the half; written to shared memory.
///
/// # Safety
/// Called by all lanes of the consumer warps, with what they have of a tile of this block; the biases have been fetched.
#[inline(always)]
unsafe fn epilogue(
    gemm: TiledGemm<'_>,
    staging: Staging,
    row: u32,
    (rows, cols): ([f32; 2], &mut [[f32; 2]; PAIRS]),
    (in_registers, biases): (InRegisters<'_>, &SharedSlice<f32>),
    accumulators: &mut [f32; ACCUMULATORS],
) {
    // Not multiplied by each other before: the products of the accumulators would wait for the factors.
    for pair in &mut *cols {
        hint::pin(pair);
    }
    let alpha = gemm.factor();
    for i in 0..ACCUMULATORS {
        accumulators[i] = alpha * (accumulators[i] * (rows[i / 2 % 2] * cols[i / 4][i % 2]));
    }
    // SAFETY: all lanes come here, each with elements of its own.
    unsafe {
        if in_registers.is_any() {
            async_copy::wait_group::<0>();
            in_registers.apply(biases, accumulators);
        }
        staging.acquire();
        for second in 0..2 {
            let first = |pair: usize| 4 * pair + 2 * second;
            let values = core::array::from_fn(|pair| [0, 1].map(|i| accumulators[first(pair) + i]));
            staging.write_row(row + 8 * second as u32, values);
        }
    }
}

/// The rest of it: what C was, and the other steps, of the rows of this warp, and then the half is left to be stored.
///
/// # Safety
/// Called by all lanes of the consumer warps, when all sums of the warp's rows of the half are in shared memory; the steps fit the results.
#[inline(always)]
unsafe fn finish(gemm: TiledGemm<'_>, staging: Staging, descriptor: TileDescriptor, half: u32, steps: StepsLeft<'_>) {
    // SAFETY: all lanes come here, and each warp has rows of its own.
    unsafe {
        if !steps.is_empty() || !gemm.overwrites() {
            warp::sync_warp(warp::ALL_LANES);
            let (warp, warpgroup) = warp_and_warpgroup();
            let down = warp * WARP_ROWS;
            let memory = staging.memory();
            let staged = StagedLines {
                lines: SumLines { are_columns: false, count: WARP_ROWS, length: HALF },
                first: [descriptor.row + warpgroup * WARPGROUP_ROWS + down, descriptor.col + half * HALF],
                memory: &memory,
                place: |line, at| Staging::place(down + line, at),
            };
            let threads = Together { number: warp::lane_id(), count: warp::LANES };
            if !gemm.overwrites() {
                let c = gemm.c().at(descriptor.product);
                let plus = |sum, before| gemm.plus_old(sum, before);
                staged.blend::<LOADS_OF_C>(&c, descriptor.product, threads, plus);
            }
            staged.apply(steps, descriptor.product, [gemm.m(), gemm.n()], threads);
            // Lanes have had different numbers of elements, and come to the barrier together.
            warp::sync_warp(warp::ALL_LANES);
        }
        staging.commit();
    }
}

/// What both kernels take: operands as they have been packed, with what goes with them.
#[cfg(not(target_arch = "nvptx64"))]
fn takes(
    gemm: &TiledGemm<'_>,
    [map_a, map_b]: [&TensorMap<'_>; 2],
    [info_a, info_b]: [&PairInfo<'_>; 2],
    steps: &Steps<'_>,
) -> bool {
    let (a, b) = (gemm.a(), gemm.b());
    let k = a.first().cols();
    gemm.splits() == 1
        && gemm.effective_k() > 0
        && k <= MAX_K
        && gemm.blocks(SHORT_K_TILE) <= MAX_BLOCKS
        && describes(map_a, [gemm.m(), k, a.distinct()], SHORT_K_TILE.m)
        && describes(map_b, [gemm.n(), k, b.distinct()], SHORT_K_TILE.n)
        && info_a.are_of_pairs(a.distinct(), gemm.m(), k)
        && info_b.are_of_pairs(b.distinct(), gemm.n(), k)
        && fallback([*info_a, *info_b]).has_flags_of(gemm)
        && steps_fit(steps, gemm)
}

/// `C = α·A·B + β·C` in fp32, of packed operands with a small k, for a C that TMA stores.
#[kernel(
    block = 384,
    min_blocks = 1,
    arch = "sm_90a",
    dynamic_shared = MEMORY.bytes,
    requires(
        takes(&gemm, [&map_a, &map_b], [&info_a, &info_b], &steps),
        gemm.n().is_multiple_of(4),
        stores_results_of(&map_c, &gemm, STORED, TileSwizzle::None)
    )
)]
pub fn gemm_wgmma_packed_short_fp32_3xfp16(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    info_a: PairInfo<'_>,
    info_b: PairInfo<'_>,
    steps: Steps<'_>,
    blocks: u32,
) {
    _ = blocks; // for the grid alone
    // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the tensor maps
    // describe and what goes with them.
    unsafe { multiply_short(map_a, map_b, gemm, [info_a, info_b], &steps, ByTma(map_c)) }
}

/// `C = α·A·B + β·C` in fp32, of packed operands with a small k, for a C whose rows may begin anywhere.
#[kernel(
    block = 384,
    min_blocks = 1,
    arch = "sm_90a",
    dynamic_shared = MEMORY.bytes,
    requires(
        takes(&gemm, [&map_a, &map_b], [&info_a, &info_b], &steps),
        gemm.c().first().is_contiguous_along_rows()
    )
)]
pub fn gemm_wgmma_packed_short_rows_fp32_3xfp16(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    info_a: PairInfo<'_>,
    info_b: PairInfo<'_>,
    steps: Steps<'_>,
    blocks: u32,
) {
    _ = blocks; // for the grid alone
    // SAFETY: as above; C is contiguous along its rows.
    unsafe { multiply_short(map_a, map_b, gemm, [info_a, info_b], &steps, ByRows) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_wgmma_packed_short_fp32_3xfp16<'_> {
    fn grid(&self) -> Dim3 {
        grid(&self.gemm, SHORT_K_TILE, self.blocks)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_wgmma_packed_short_rows_fp32_3xfp16<'_> {
    fn grid(&self) -> Dim3 {
        grid(&self.gemm, SHORT_K_TILE, self.blocks)
    }
}
