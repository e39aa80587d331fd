//! fp32-accurate products with few columns on tensor cores, `C = α·A·B + β·C`, by tiles of 64×16: with few rows they are these, transposed.
//! The time is that of reading A, which has to be the larger operand.
//!
//! ```text
//!  a block, one warpgroup, goes through k in steps of 32:
//!
//!  global memory     raw stages, of 3     registers
//!                   ┌──────────┐
//!  A, 64 rows  ───► │ A        │ ──────► decompose ──► high, low ──────────────┐
//!   (cp.async)      ├──────────┤                                               ├─► wgmma ─► partial ─► accumulators
//!  B, 16 cols  ───► │ B        │ ──────► decompose ──► high, low of B, K-major ┘                           (fp32)
//!                   └──────────┘                       in shared memory
//! ```
//!
//! It does for 16 columns what [`divided_steps`](super::divided_steps) does for 64, with `lines` that begin anywhere, and makes the same bits:
//! those of the transposes, because that is what it is mostly for. So the products with the low parts of B come first, which are those of A
//! in the product that is transposed.
//!
//! A multiprocessor has five blocks, so that 80 KB of copies are under way while they decompose: 16 of these are for the products of a
//! clock. 128 threads with up to 96 registers and 41 KB of shared memory.

use blocks::block_or::{BlockSize, or_of_threads};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::swizzle::piece_of_row;
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;
use cuda_std::wgmma::Descriptor;
use cuda_std::{async_copy, hopper};

use super::decomposed::{add_product, position_of};
use super::lines::{DEPTH, LINES, Lines, PART_THREADS};
use super::operand::{KMajor, Major, MnMajor};
use super::scan_schedule::found_in_sums;
use super::scheme::{self, ThreeTf32OfTransposes, parts_of_a};
use crate::gemm::fp32_tile::{self, Again, Made, Region};
use crate::gemm::scan::{self, Scan};
use crate::gemm::sum_lines::{SumLines, SumsByLines, Together, is_column_major, read_neighbours};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The columns of a tile.
const COLUMNS: u32 = 16;
/// The tile of a block.
pub const TILE: TileShape = TileShape { m: LINES, n: COLUMNS, k: DEPTH };
/// The steps that are in shared memory at a time, as loaded.
const STAGES: u32 = 3;
/// The elements of the high, or the low, parts of B.
const B_TILE: u32 = COLUMNS * DEPTH;
/// The accumulators of a thread.
const ACCUMULATORS: usize = (LINES * COLUMNS / PART_THREADS) as usize;
/// The elements from one column of sums to the next in shared memory, so that the lanes of a write meet different banks.
const SUMS_PITCH: u32 = LINES + 4;

/// The shared memory of a block for operands in these layouts.
struct Memory {
    /// The high parts of B and the low ones.
    parts_of_b: SharedArray<f32>,
    /// The stages, and in the end the sums.
    raw: SharedArray<f32>,
    bytes: u32,
}

impl Memory {
    const fn new<A: Major, B: Major>() -> Self {
        let mut layout = SharedLayout::new();
        let parts_of_b = layout.aligned(2 * B_TILE, 1024);
        let raw = layout.aligned(STAGES * stage_len::<A, B>(), 16);
        assert!(COLUMNS * SUMS_PITCH <= STAGES * stage_len::<A, B>(), "sums take the place of the stages");
        Self { parts_of_b, raw, bytes: layout.bytes() }
    }
}

/// The elements of a stage: those of A, then those of B.
const fn stage_len<A: Major, B: Major>() -> u32 {
    Lines::<A, LINES>::TILE + Lines::<B, COLUMNS>::TILE
}

/// A block: one warpgroup.
struct Block;

impl BlockSize for Block {
    const THREADS: u32 = PART_THREADS;
}

/// The body of all kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 128, launched with the shared memory of [`Memory`]; A and B are arranged as `A` and `B` say.
#[inline(always)]
unsafe fn multiply<A: Major, B: Major>(gemm: TiledGemm<'_>) {
    let Some(tile) = gemm.tile_soon(TILE, thread::block_idx_x()) else { return };
    let (thread, lane) = (thread::thread_idx_x(), thread::thread_idx_x() % warp::LANES);
    // SAFETY: all lanes of each warp come here.
    let warp = unsafe { warp_number() };
    // SAFETY: the caller's promise.
    let (raw, parts_of_b) =
        unsafe { (const { Memory::new::<A, B>() }.raw.slice(), const { Memory::new::<A, B>() }.parts_of_b.slice()) };
    let a = Lines::<A, LINES>::new(tile.a, tile.row);
    let b = Lines::<B, COLUMNS>::new(tile.b.transposed(), tile.col);
    let fragments = a.fragment_offset(warp * 16, lane);
    let (sources, shift) = (b.piece_sources(thread), b.piece_shift(thread));
    let (line, term) = Lines::<B, COLUMNS>::piece_of_thread(thread);
    let target = piece_of_row(line, term / 4);
    let (high_b, low_b) = (Descriptor::at(parts_of_b, 0), Descriptor::at(parts_of_b, B_TILE as usize));

    let mut left = (tile.k_end - tile.k_begin).div_ceil(DEPTH);
    let steps = left;
    let mut k = tile.k_begin;
    let mut copies_of_a = a.copies(thread, k, DEPTH, tile.k_end);
    let mut copies_of_b = b.copies(thread, k, DEPTH, tile.k_end);
    let mut accumulators = [0f32; ACCUMULATORS];
    let mut scan = Scan::new();
    // Round t issues the copies of step t, and multiplies the step before the last.
    let (mut round, mut stage) = (0, 0);
    while round < steps + STAGES - 1 {
        async_copy::wait_group::<{ STAGES - 2 }>();
        // SAFETY: the number of steps is the same for all threads of the block. The first barrier makes the copies of all of
        // its threads visible to all, and separates what they have read in the step before, and what tensor cores have read of the
        // parts of B, from what is written from here on. The second one comes after every thread's fence.
        unsafe {
            thread::sync_threads();
            if left > 0 {
                let place = stage * stage_len::<A, B>();
                copies_of_a.issue(&raw, place, k, thread);
                copies_of_b.issue(&raw, place + Lines::<A, LINES>::TILE, k, thread);
                k += DEPTH;
                left -= 1;
            }
            async_copy::commit_group();
            stage = if stage == STAGES - 1 { 0 } else { stage + 1 };
            round += 1;
            if round < STAGES {
                continue;
            }
            let place = stage * stage_len::<A, B>();
            let values = Lines::<B, COLUMNS>::load_piece(&raw, place + Lines::<A, LINES>::TILE, &sources, shift);
            scan.scan_now(&values);
            let [high, low] = scheme::parts_of_b(values);
            parts_of_b.write4(target as usize, high);
            parts_of_b.write4((B_TILE + target) as usize, low);
            hopper::fence_async_shared();
            let values = Lines::<A, LINES>::load(&raw, place + fragments);
            scan.scan_now(&values);
            let parts_of_a = parts_of_a(&values);
            thread::sync_threads();
            add_product::<ThreeTf32OfTransposes, ACCUMULATORS>(&mut accumulators, &parts_of_a, high_b, low_b);
        }
    }

    // Numbers of the last step, which are still there: of B, the high parts.
    let mut others = [false; 2];
    if steps > 0 {
        // SAFETY: they have been read in that step, or written, with a barrier between.
        others = unsafe {
            let of_a = raw.read((stage * stage_len::<A, B>() + fragments) as usize);
            scan::others(&[of_a], &[parts_of_b.read(thread as usize)])
        };
    }

    // Found again, rather than kept in registers all the time.
    let Some(tile) = gemm.tile_soon(TILE, thread::block_idx_x()) else { return };
    // SAFETY: all threads come here, with no copies under way: the last steps waited for all. The function begins with a barrier; all
    // threads find the same, and the tile is this block's alone.
    unsafe {
        let found = scan.found_of_both(others) | found_in_sums(&[accumulators]);
        let found = or_of_threads::<Block, { scan::BITS }>(&raw, found);
        let again = Again::of(&tile, TILE, found, gemm.has_exact_selections());
        store_sums(&tile, &raw, &accumulators, again);
    }
}

/// Stores the sums in C, neighbours in memory by neighbouring lanes; or, if so, in place of those elements that are to be computed again
/// what they are in fp32.
///
/// # Safety
/// All threads of the block come here, with the same `again`; the tile is this block's alone, and nothing asynchronous is under way to
/// `shared`.
#[inline(always)]
unsafe fn store_sums(
    tile: &Tile<'_>,
    shared: &SharedSlice<f32>,
    accumulators: &[f32; ACCUMULATORS],
    again: Option<Again>,
) {
    let thread = thread::thread_idx_x();
    let (warp, lane) = (thread / warp::LANES, thread % warp::LANES);
    // SAFETY: the barriers separate these writes from what the stages held before, and from the reads. Each lane has its own
    // elements, and so has each thread in the end.
    unsafe {
        thread::sync_threads();
        for i in 0..ACCUMULATORS {
            let (row, col) =
                (warp * 16 + lane / 4 + i as u32 / 2 % 2 * 8, i as u32 / 4 * 8 + lane % 4 * 2 + i as u32 % 2);
            shared.write(place(row, col), accumulators[position_of(i)]);
        }
        thread::sync_threads();
        if let Some(again) = again {
            let made = |row, col| Made::Sum(shared.read(place(row, col)));
            fp32_tile::recompute(tile, Region::all_of(tile, TILE), thread, PART_THREADS, again, made);
            return;
        }
        let threads = Together { number: thread, count: PART_THREADS };
        let (are_columns, all) = (is_column_major(&tile.c), [LINES, COLUMNS]);
        let [length, count] = if are_columns { all } else { [all[1], all[0]] };
        let sums = WrittenSums { shared: *shared, are_columns };
        SumLines { are_columns, count, length }.store::<1, 1, true>(tile, [tile.row, tile.col], threads, &sums);
    }
}

/// Where a sum is in shared memory.
#[inline(always)]
fn place(row: u32, col: u32) -> usize {
    (col * SUMS_PITCH + row) as usize
}

/// The sums of a tile in shared memory, by rows or by columns.
struct WrittenSums {
    shared: SharedSlice<f32>,
    are_columns: bool,
}

impl SumsByLines for WrittenSums {
    #[inline(always)]
    #[track_caller]
    unsafe fn sums<const N: usize>(&self, line: u32, at: u32) -> [f32; N] {
        // SAFETY: inside the tile; rows are multiples of 4 where vectors are read.
        unsafe {
            if N == 4 && self.are_columns {
                return read_neighbours(&self.shared, place(at, line));
            }
            core::array::from_fn(|i| {
                let [row, col] = if self.are_columns { [at + i as u32, line] } else { [line, at + i as u32] };
                self.shared.read(place(row, col))
            })
        }
    }
}

/// Makes the entry points.
macro_rules! entry_points {
    ($($name:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 128,
            min_blocks = 5,
            arch = "sm_90a",
            dynamic_shared = Memory::new::<$a, $b>().bytes,
            requires(
                gemm.a().first().$a_contiguous(),
                gemm.b().first().$b_contiguous(),
                gemm.blocks(TILE) <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: TiledGemm<'_>) {
            // SAFETY: the block and its shared memory are as large as the body needs; the layouts are as the launch has checked.
            unsafe { multiply::<$a, $b>(gemm) }
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
    gemm_wgmma_64x16_nn_fp32_3xtf32, KMajor is_contiguous_along_rows, MnMajor is_contiguous_along_rows,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×16, A and B row-major.";
    gemm_wgmma_64x16_nt_fp32_3xtf32, KMajor is_contiguous_along_rows, KMajor is_contiguous_along_cols,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×16, A row-major and B column-major.";
    gemm_wgmma_64x16_tn_fp32_3xtf32, MnMajor is_contiguous_along_cols, MnMajor is_contiguous_along_rows,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×16, A column-major and B row-major.";
    gemm_wgmma_64x16_tt_fp32_3xtf32, MnMajor is_contiguous_along_cols, KMajor is_contiguous_along_cols,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×16, A and B column-major.";
}
