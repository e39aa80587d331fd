//! fp32-accurate products of few terms, `C = α·A·B`, whose time is that of writing C.
//!
//! ```text
//!  three places for operands   registers                              64×128 results             global memory
//!
//!  ┌──────────┐                                                       in shared memory
//!  │ A    16K │ ──► tensor ──► a half of   ──► · factors, stored ──►  ┌─────────┬─────────┐
//!  │ B    32K │     cores      the sums, for                          │   16K   │   16K   │ ───► pieces of rows
//!  └──────────┘                a warpgroup 64×128                     └─────────┴─────────┘      of 256 bytes
//!       ▲                                                              copy engine
//!  copy engine: the next tile                                          (a warp for each warpgroup)
//!  (warp 0)
//! ```
//!
//! The kernel of [`super::fp16_pairs`], for so few terms that all of them are in its places at once. So a warpgroup can compute one
//! half of its columns after the other, and keeps nothing but the sums of one. It writes them to shared memory ([`blocks::staging`]),
//! and goes on at once. By the other way, storing from registers, a warp writes 32 bytes in each of eight rows at a time.
//!
//! A tile of few terms takes so little time that nobody may wait for memory on the way. Factors are loaded before the products
//! that they go with. Which tile comes next, and whether its lines can be multiplied at all, the loading warp finds out, some places
//! ahead, and leaves in a `Ticket` beside the place. Who waits for the copy engine, which has a queue, are two warps of their own.
//!
//! Tiles are computed row by row of C: what all blocks write at a time lies together. (Columns of B that stay in shared memory while
//! rows of A pass were tried: with 64 terms that takes 1 or 2 % less time, with 32 as much more.)
//!
//! The copy engine leaves out what lies outside of C, but by 16 bytes: so the rows of C have a multiple of 4 elements.
//!
//! Tiles of lines that cannot be split are computed here, too, in plain fp32 (`gemm::fp32_tile`): that is slow for each term,
//! of which there are few.
//!
//! On an H200, 32768×32768 elements of 32 terms take 1.09 ms, and of 64 terms 1.28 ms, packing included; with [`super::fp16_pairs`] 2.03 ms.
//! Writing C alone would take 0.91 ms (2026-11-22).
//!
//! 168 registers at launch, 240 in the warpgroups that multiply; 208 KB of shared memory, one block on a multiprocessor.

use blocks::named_barrier::NamedBarrierIds;
use blocks::shared_layout::{SharedArray, SharedLayout};
pub use blocks::staging::BOX as STORED;
use blocks::staging::{PAIRS, Staging, StagingMemory};
use blocks::uniform::warp_number;
use cuda_std::hopper;
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileSwizzle};

#[cfg(not(target_arch = "nvptx64"))]
use super::fp16_pairs::describes;
use super::fp16_pairs::{ELEMENTS, HALF, SUMS, Scales, multiply_half, unfit};
use super::operand::{KMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    LOADER_REGISTERS, LOADERS, MULTIPLIER_REGISTERS, PART, Pipeline, PipelineConsumer, PipelineMemory, tile_shape,
    warp_and_part,
};
use crate::gemm::fp32_tile;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const SHORT_TILE: TileShape = tile_shape(32);

/// The most terms that there may be: those of two places.
pub const MOST_TERMS: u32 = 2 * SHORT_TILE.k;

/// The warpgroups that multiply.
const PARTS: u32 = 2;
/// The places for operands.
const RING: u32 = 3;
/// The shared memory and the named barriers of the kernel.
struct Memory {
    pipeline: PipelineMemory<RING>,
    results: StagingMemory,
    tickets: SharedArray<u32>,
    bytes: u32,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    // SAFETY: the kernel has no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    Memory {
        pipeline: PipelineMemory::new(&mut layout),
        results: StagingMemory::new(&mut layout, &mut ids),
        tickets: layout.array(RING * Ticket::WORDS),
        bytes: layout.bytes(),
    }
};
const _: () = assert!(PART == blocks::staging::ROWS && HALF == blocks::staging::COLS, "a half is staged as a whole");

/// What the loading warp tells of a tile: four words for each place, of which those of a tile's first place count.
///
/// ```text
/// │ row │ column │ product │ unfit │     the first row and column of C, and whether lines of it cannot be multiplied
/// ```
#[derive(Clone, Copy)]
struct Ticket {
    row: u32,
    col: u32,
    product: u32,
    unfit: bool,
}

impl Ticket {
    /// The words of a ticket.
    const WORDS: u32 = 4;

    /// The tickets of a block.
    ///
    /// # Safety
    /// The block has the shared memory of [`MEMORY`].
    #[inline(always)]
    unsafe fn all() -> SharedSlice<u32> {
        // SAFETY: the caller's promise.
        unsafe { MEMORY.tickets.slice() }
    }

    /// Leaves the ticket beside a place.
    ///
    /// # Safety
    /// As for [`Ticket::all`]; the place is empty.
    #[inline(always)]
    unsafe fn write(self, place: u32) {
        let words = [self.row, self.col, self.product, u32::from(self.unfit)];
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: the caller's promise; inside the tickets.
            unsafe { Self::all().write((place * Self::WORDS) as usize + index, word) };
        }
    }

    /// The ticket beside a place.
    ///
    /// # Safety
    /// As for [`Ticket::all`]; the place is full.
    #[inline(always)]
    unsafe fn read(place: u32) -> Self {
        let word = |index: u32| {
            // SAFETY: the caller's promise; inside the tickets.
            unsafe { Self::all().read((place * Self::WORDS + index) as usize) }
        };
        Self { row: word(0), col: word(1), product: word(2), unfit: word(3) != 0 }
    }
}

/// The body of the kernel.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A and B
/// of `gemm` as they have been packed, what goes with them, and a tensor map of C.
#[inline(always)]
unsafe fn multiply_short(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    scales: [Scales<'_>; 2],
) {
    // SAFETY: all threads come here, and each role goes through all tiles and places. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(MEMORY.pipeline);
        let (mut producer, consumer) = (pipeline.producer(), pipeline.consumer());
        let warp = warp_number();
        if warp < LOADERS {
            hopper::release_registers::<LOADER_REGISTERS>();
            if warp == 0 {
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile_by_rows(SHORT_TILE, block) {
                    let Tile { row, col, product, .. } = tile;
                    let ticket = Ticket { row, col, product, unfit: unfit(scales).contains(&tile) };
                    producer.load_with::<KMajor, 1, ELEMENTS>(map_a, map_b, &tile, SHORT_TILE, |place| {
                        ticket.write(place);
                    });
                    block += thread::grid_dim_x();
                }
            } else if warp <= PARTS {
                store(gemm, warp - 1, map_c, scales);
            }
        } else {
            hopper::acquire_registers::<MULTIPLIER_REGISTERS>();
            multiply(consumer, gemm, scales);
        }
    }
}

/// Has the copy engine store what warpgroup `part` of those that multiply has completed, tile by tile.
///
/// # Safety
/// Called by all lanes of a warp that nobody else has for this.
#[inline(always)]
unsafe fn store(gemm: TiledGemm<'_>, part: u32, map_c: TensorMapMut<'_>, scales: [Scales<'_>; 2]) {
    let mut block = thread::block_idx_x();
    // SAFETY: all lanes come here. The warpgroup writes the same halves of the same tiles, in this order.
    unsafe {
        let staging = Staging::new(MEMORY.results, part);
        while let Some(tile) = gemm.tile_by_rows(SHORT_TILE, block) {
            if !unfit(scales).contains(&tile) {
                staging.store(map_c, [tile.col, tile.row + part * PART, tile.product]);
                staging.store(map_c, [tile.col + HALF, tile.row + part * PART, tile.product]);
            }
            block += thread::grid_dim_x();
        }
        Staging::wait_until_read();
    }
}

/// Multiplies and completes C, tile by tile.
///
/// # Safety
/// Called by all lanes of the warps that multiply.
#[inline(always)]
unsafe fn multiply(mut pipeline: PipelineConsumer<RING>, gemm: TiledGemm<'_>, scales: [Scales<'_>; 2]) {
    let (tiles, two_places) = (gemm.tiles(SHORT_TILE), gemm.terms() > SHORT_TILE.k);
    let mut block = thread::block_idx_x();
    while block < tiles {
        // SAFETY: all lanes come here, and come to the same conclusions; places are read when they are full, and given back
        // when the products that read them have finished. The tile is this block's alone.
        unsafe {
            let places = [pipeline, pipeline.next()];
            places[0].wait();
            let ticket = Ticket::read(places[0].stage());
            // One lane gives the place back for all of them.
            warp::sync_warp(warp::ALL_LANES);
            if two_places {
                places[1].wait();
                pipeline.advance();
            }
            pipeline.advance();
            if ticket.unfit {
                places[0].release();
                if two_places {
                    places[1].release();
                }
                compute_exactly(gemm, block);
            } else if two_places {
                compute_tile(gemm, ticket, places, scales);
            } else {
                compute_tile(gemm, ticket, [places[0]], scales);
            }
        }
        block += thread::grid_dim_x();
    }
}

/// Computes a tile in plain fp32.
///
/// # Safety
/// Called by all lanes of the warps that multiply, for a tile of this block.
#[inline(always)]
unsafe fn compute_exactly(gemm: TiledGemm<'_>, block: u32) {
    let Some(tile) = gemm.tile_by_rows(SHORT_TILE, block) else { return };
    let first = LOADERS * warp::LANES;
    // SAFETY: the caller's promise; the tile is this block's alone.
    unsafe {
        fp32_tile::compute_tile(&tile, SHORT_TILE, thread::thread_idx_x() - first, thread::block_dim_x() - first)
    };
}

/// Computes a tile, and gives its places back.
///
/// # Safety
/// Called by all lanes of the warps that multiply, for a tile of this block; the places are full, and have all its terms.
#[inline(always)]
unsafe fn compute_tile<const PLACES: usize>(
    gemm: TiledGemm<'_>,
    ticket: Ticket,
    places: [PipelineConsumer<RING>; PLACES],
    [scales_a, scales_b]: [Scales<'_>; 2],
) {
    let lane = warp::lane_id();
    // SAFETY: the caller's promise; the rows and columns of a tile are in one group of lines each, which all have factors.
    unsafe {
        let (warp, part) = warp_and_part();
        let (in_a, row) = (part * PART * ROW, warp * 16 + lane / 4);
        let staging = Staging::new(MEMORY.results, part);
        let of_row = scales_a.factors(ticket.product, gemm.m(), ticket.row + part * PART + row);
        let rows = [of_row.get_unchecked(0), of_row.get_unchecked(8)];
        let cols = scales_b.factors(ticket.product, gemm.n(), ticket.col + 2 * (lane & 3));
        let [mut first, mut second] = [0, HALF]
            .map(|half| core::array::from_fn::<_, PAIRS, _>(|pair| cols.get2_unchecked(half as usize + 8 * pair)));
        let sums = multiply_half(&places, in_a, 0);
        complete(gemm, staging, row, rows, &mut first, &sums);
        let sums = multiply_half(&places, in_a, HALF * ROW * 4);
        for place in places {
            place.release();
        }
        complete(gemm, staging, row, rows, &mut second, &sums);
    }
}

/// Leaves what this thread has of a half to be stored: sums times the factors of their rows, `row` and the eighth one from there, and
/// of their columns.
///
/// # Safety
/// Called by all lanes of the warps that multiply, with what they have of a tile of this block.
#[inline(always)]
unsafe fn complete(
    gemm: TiledGemm<'_>,
    staging: Staging,
    row: u32,
    rows: [f32; 2],
    cols: &mut [[f32; 2]; PAIRS],
    sums: &[f32; SUMS],
) {
    // Not multiplied by each other before: the products of the sums would wait for the factors.
    for pair in &mut *cols {
        hint::pin(pair);
    }
    let alpha = gemm.factor();
    // SAFETY: all lanes come here, each with elements of its own.
    unsafe {
        staging.acquire();
        for second in 0..2 {
            let value =
                |pair: usize, i: usize| alpha * (sums[4 * pair + 2 * second + i] * (rows[second] * cols[pair][i]));
            let values = core::array::from_fn(|pair| [value(pair, 0), value(pair, 1)]);
            staging.write_row(row + 8 * second as u32, values);
        }
        staging.commit();
    }
}

/// Whether a tensor map is of the results of `gemm`.
#[cfg(not(target_arch = "nvptx64"))]
fn stores_results_of(map: &TensorMapMut<'_>, gemm: &TiledGemm<'_>) -> bool {
    let c = gemm.c();
    map.address() == c.first().data().as_mut_ptr().addr()
        && map.layout().extents == [gemm.n().into(), gemm.m().into(), c.count().into()]
        && map.layout().tile == [STORED[0], STORED[1], 1]
        && map.layout().swizzle == TileSwizzle::None
}

/// `C = α·A·B` in fp32, of packed operands of few terms.
#[kernel(
    block = 384,
    min_blocks = 1,
    arch = "sm_90a",
    dynamic_shared = MEMORY.bytes,
    requires(
        gemm.overwrites(),
        gemm.splits() == 1,
        gemm.n().is_multiple_of(4),
        gemm.terms() > 0,
        gemm.a().first().cols() <= MOST_TERMS,
        gemm.blocks(SHORT_TILE) <= MAX_BLOCKS,
        describes(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().count()], SHORT_TILE.m),
        describes(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().count()], SHORT_TILE.n),
        stores_results_of(&map_c, &gemm),
        scales_a.are_of(gemm.a().count(), gemm.m()),
        scales_b.are_of(gemm.b().count(), gemm.n()),
        unfit([scales_a, scales_b]).has_flags_of(&gemm)
    )
)]
pub fn gemm_wgmma_packed_short_fp32_3xfp16(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    map_c: TensorMapMut<'_>,
    scales_a: Scales<'_>,
    scales_b: Scales<'_>,
    blocks: u32,
) {
    _ = blocks; // for the grid alone
    // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the tensor maps
    // describe and what goes with them.
    unsafe { multiply_short(map_a, map_b, gemm, map_c, [scales_a, scales_b]) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for gemm_wgmma_packed_short_fp32_3xfp16<'_> {
    fn grid(&self) -> Dim3 {
        grid(&self.gemm, SHORT_TILE, self.blocks)
    }
}
