//! fp32-accurate products on tensor cores by tiles of 64×64, `C = α·A·B + β·C`, for products that have not enough large tiles for all
//! multiprocessors, or little k. A multiprocessor runs three warpgroups, each of which loads, decomposes and multiplies by itself: k of
//! its own of a tile that the three of a block share, or, where there are tiles enough, a tile of its own.
//!
//! ```text
//!                         k  0 … 31   32 … 63   64 … 95   96 … 127  …
//!  blocks of three           0         1         2         0        …        warpgroup, of one tile of 64×64
//!  blocks of one             0         0         0         0        …        one tile; three blocks on a multiprocessor
//!
//!  a step of a warpgroup, 64×64×32:
//!
//!  global memory     raw stages, of 3     registers
//!                   ┌──────────┐
//!  A, 64 rows  ───► │ A        │ ──────► decompose ──► high, low ──────────────┐
//!   (cp.async)      ├──────────┤                                               ├─► wgmma ─► partial ─► accumulators
//!  B, 64 cols  ───► │ B        │ ──────► decompose ──► high, low of B, K-major ┘                           (fp32)
//!                   └──────────┘                       in shared memory
//! ```
//!
//! Each warpgroup has a named barrier of its own, at which its threads meet twice in a step, so that the three run out of step with each
//! other: while one decomposes, or loads its first step, or stores its results, the tensor cores work for another one. The accumulators of
//! a tile that three share are added up in shared memory, in the order of the warpgroups.
//!
//! **Any alignment.** `lines` copies rows from wherever they begin.
//!
//! What cannot be decomposed is found as in [`decomposed`](super::decomposed): every warpgroup scans what it decomposes, and a block that
//! finds anything computes those rows and columns of its tile in plain fp32.
//!
//! 384 threads with up to 168 registers and 210 KB of shared memory on a multiprocessor: one block, or three of 128.

pub mod grouped;

use blocks::block_or::{BlockSize, or_of_threads};
use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{this_thread, warp_number};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;
use cuda_std::wgmma::Descriptor;
use cuda_std::{async_copy, hopper};

use super::decomposed::{add_product, position_of};
use super::lines::{DEPTH, LINES, LineCopies, Lines, PART_THREADS};
use super::operand::{KMajor, Major, MnMajor, Share, store_unit};
use super::scan_schedule::found_in_sums;
use super::scheme::{self, Scheme, ThreeTf32, parts_of_a};
use crate::Matrix;
use crate::gemm::fp32_tile::{self, Again, Made, Region};
use crate::gemm::scan::{self, Scan};
use crate::gemm::sum_lines::{SumLines, SumsByLines, Together, is_column_major, read_neighbours};
use crate::gemm::tile_source::TileSource;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block of `parts` warpgroups.
pub const fn tile_of(parts: u32) -> TileShape {
    TileShape { m: LINES, n: LINES, k: parts * DEPTH }
}

/// The steps of a warpgroup that are in shared memory at a time, as loaded.
const STAGES: u32 = 3;
/// The elements of an operand in such a stage.
const RAW_TILE: u32 = Lines::<KMajor, LINES>::TILE;
const _: () = assert!(RAW_TILE == Lines::<MnMajor, LINES>::TILE, "in either order it takes as much");
/// The elements of a stage: those of A, then those of B.
const RAW_STAGE: u32 = 2 * RAW_TILE;
/// The elements of the high, or the low, parts of B.
const B_TILE: u32 = LINES * DEPTH;
/// The accumulators of a thread.
const ACCUMULATORS: usize = (LINES * LINES / PART_THREADS) as usize;
/// The elements from one row of accumulators to the next in shared memory, so that the lanes of a write meet different banks.
const SUMS_PITCH: u32 = LINES + 8;
const _: () =
    assert!(LINES * SUMS_PITCH <= STAGES * RAW_STAGE, "a warpgroup's accumulators take the place of its stages");

/// The shared memory of a block of `PARTS` warpgroups.
struct Memory<const PARTS: u32> {
    /// For each warpgroup, the high parts of B and the low ones.
    parts_of_b: SharedArray<f32>,
    /// For each warpgroup, its stages.
    raw: SharedArray<f32>,
    bytes: u32,
}

impl<const PARTS: u32> Memory<PARTS> {
    const NEW: Self = {
        let mut layout = SharedLayout::new();
        let parts_of_b = layout.aligned(PARTS * 2 * B_TILE, 1024);
        let raw = layout.aligned(PARTS * STAGES * RAW_STAGE, 16);
        Self { parts_of_b, raw, bytes: layout.bytes() }
    };
}

/// A block of `PARTS` warpgroups.
struct Block<const PARTS: u32>;

impl<const PARTS: u32> Block<PARTS> {
    /// A barrier for each warpgroup.
    const BARRIERS: NamedBarriers<PARTS, PART_THREADS> = {
        // SAFETY: the kernels have no others.
        let mut ids = unsafe { NamedBarrierIds::new() };
        ids.group()
    };
}

impl<const PARTS: u32> BlockSize for Block<PARTS> {
    const THREADS: u32 = PARTS * PART_THREADS;
}

/// What a thread copies for its warpgroup.
struct Copies<'a, A, B, G> {
    /// Where the tile is from, and of which product it is.
    gemm: G,
    product: u32,
    operands: [Matrix<'a>; 2],
    a: LineCopies<'a, A, LINES>,
    b: LineCopies<'a, B, LINES>,
    /// The warpgroup's stages.
    raw: SharedSlice<f32>,
    /// Where the next step begins, how far it is to the one after it, and how many there are left.
    k: u32,
    distance: u32,
    steps: u32,
}

impl<'a, A: Major, B: Major, G: TileSource<'a>> Copies<'a, A, B, G> {
    /// Issues the copies of the next step, if there is one, to stage `stage`: in any case a group of copies that can be waited for.
    ///
    /// # Safety
    /// All threads of the warpgroup come here. Nobody reads the stage before all of them have waited for the group and met at a
    /// barrier, and a barrier separates this from whatever was read there before.
    #[inline(always)]
    unsafe fn issue(&mut self, stage: u32) {
        if self.steps > 0 {
            let place = stage * RAW_STAGE;
            let [a, b] = self.gemm.operands_in_loop(self.product, self.operands);
            self.a.set_matrix(a);
            self.b.set_matrix(b.transposed());
            // SAFETY: the caller's promise; the stage is inside the warpgroup's.
            unsafe {
                // Read anew: there is hardly a register to keep it in.
                let thread = this_thread() % PART_THREADS;
                self.a.issue(&self.raw, place, self.k, thread);
                self.b.issue(&self.raw, place + RAW_TILE, self.k, thread);
            }
            self.k += self.distance;
            self.steps -= 1;
        }
        async_copy::commit_group();
    }
}

/// The body of all kernels of this module.
///
/// # Safety
/// Called by all threads of a block of `PARTS` warpgroups, launched with the shared memory of [`Memory`]; A and B are arranged as `A` and
/// `B` say.
#[inline(always)]
unsafe fn multiply<'a, A: Major, B: Major, S: Scheme, const PARTS: u32, G: TileSource<'a>>(gemm: G) {
    let Some(tile) = gemm.tile_soon(tile_of(PARTS), thread::block_idx_x()) else { return };
    let thread = thread::thread_idx_x() % PART_THREADS;
    let lane = thread % warp::LANES;
    // SAFETY: all lanes of each warp come here.
    let (part, warp) = unsafe { (warp_number() / 4, warp_number() % 4) };
    // SAFETY: the caller's promise.
    let (raw, parts_of_b) = unsafe {
        (
            Memory::<PARTS>::NEW.raw.slice().skip((part * STAGES * RAW_STAGE) as usize),
            Memory::<PARTS>::NEW.parts_of_b.slice().skip((part * 2 * B_TILE) as usize),
        )
    };
    let a = Lines::<A, LINES>::new(tile.a, tile.row);
    let b = Lines::<B, LINES>::new(tile.b.transposed(), tile.col);
    let fragments = a.fragment_offset(warp * 16, lane);
    let (sources, shift) = (b.source_offsets(warp, lane), b.source_shift(lane));
    let share = Share::of::<B>(warp / 2, lane);
    let (high_target, low_target) = (share.target(0), share.target(B_TILE));
    let (high_b, low_b) = (Descriptor::at(parts_of_b, 0), Descriptor::at(parts_of_b, B_TILE as usize));

    // This warpgroup's steps: every third one, or all of them.
    let steps = ((tile.k_end - tile.k_begin).div_ceil(DEPTH) + PARTS - 1 - part) / PARTS;
    let (first_k, distance) = (tile.k_begin + part * DEPTH, PARTS * DEPTH);
    let mut copies = Copies {
        gemm,
        product: tile.product,
        operands: [tile.a, tile.b],
        a: a.copies(thread, first_k, distance, tile.k_end),
        b: b.copies(thread, first_k, distance, tile.k_end),
        raw,
        k: first_k,
        distance,
        steps,
    };
    let mut accumulators = [0f32; ACCUMULATORS];
    let mut scan = Scan::new();
    // Round t issues the copies of step t, and multiplies the step before the last.
    let (mut round, mut stage) = (0, 0);
    while round < steps + STAGES - 1 {
        async_copy::wait_group::<{ STAGES - 2 }>();
        // SAFETY: the number of steps is the same for all threads of the warpgroup. The first barrier makes the copies of all of
        // its threads visible to all, and separates what they have read in the step before, and what tensor cores have read of the
        // parts of B, from what is written from here on. The second one comes after every thread's fence.
        unsafe {
            Block::<PARTS>::BARRIERS.at(part).sync();
            copies.issue(stage);
            stage = if stage == STAGES - 1 { 0 } else { stage + 1 };
            round += 1;
            if round < STAGES {
                continue;
            }
            let place = stage * RAW_STAGE;
            for round in 0..2 {
                let values = Lines::<B, LINES>::load_unit(&raw, place + RAW_TILE, &sources, shift, round);
                scan.scan_now(&values);
                let [high, low] = scheme::parts_of_b(values);
                let round = warp % 2 * 2 + round;
                store_unit::<B>(parts_of_b, high_target, round, high);
                store_unit::<B>(parts_of_b, low_target, round, low);
            }
            hopper::fence_async_shared();
            let values = Lines::<A, LINES>::load(&raw, place + fragments);
            scan.scan_now(&values);
            let parts_of_a = parts_of_a(&values);
            Block::<PARTS>::BARRIERS.at(part).sync();
            add_product::<S, ACCUMULATORS>(&mut accumulators, &parts_of_a, high_b, low_b);
        }
    }

    // Numbers of the last step of this warpgroup, which are still there: of B, the high parts.
    let mut others = [false; 2];
    if steps > 0 {
        // SAFETY: they have been read in that step, or written, with a barrier between.
        others = unsafe {
            let of_a = raw.read((stage * RAW_STAGE + fragments) as usize);
            scan::others(&[of_a], &[parts_of_b.read(thread as usize)])
        };
    }

    // Found again, rather than kept in registers all the time.
    let shape = tile_of(PARTS);
    let Some(tile) = gemm.tile_soon(shape, thread::block_idx_x()) else { return };
    // SAFETY: all threads come here, with no copies under way: the last steps waited for all. The function begins with a barrier.
    let again = unsafe {
        let found = scan.found_of_both(others) | found_in_sums(&[accumulators]);
        let found = or_of_threads::<Block<PARTS>, { scan::BITS }>(&Memory::<PARTS>::NEW.raw.slice(), found);
        Again::of(&tile, shape, found, gemm.has_exact_selections())
    };
    // SAFETY: likewise. All threads of the block find the same, and the tile is this block's alone.
    unsafe { store_sums::<PARTS>(&tile, &accumulators, again) };
}

/// Adds up the accumulators of the warpgroups and stores them in C, a row by neighbouring lanes; or, if so, in place of those elements that
/// are to be computed again what they are in fp32.
///
/// # Safety
/// All threads of the block come here, with the same `again`, and the tile is this block's alone.
#[inline(always)]
unsafe fn store_sums<const PARTS: u32>(tile: &Tile<'_>, accumulators: &[f32; ACCUMULATORS], again: Option<Again>) {
    let thread = thread::thread_idx_x();
    let (part, warp, lane) = (thread / PART_THREADS, thread / warp::LANES % 4, thread % warp::LANES);
    // SAFETY: the kernels' bodies have the same memory.
    let shared = unsafe { Memory::<PARTS>::NEW.raw.slice() };
    // SAFETY: the barriers separate these writes from what the stages held before, and from the reads. Each lane has its own
    // elements, and so has each thread in the end. Columns are even, and multiples of 4 where vectors are read.
    unsafe {
        thread::sync_threads();
        for group in 0..ACCUMULATORS / 4 {
            for half in 0..2 {
                let pair = [0, 1].map(|i| accumulators[position_of(4 * group + 2 * half + i)]);
                let (row, col) = (warp * 16 + lane / 4 + 8 * half as u32, group as u32 * 8 + lane % 4 * 2);
                shared.write2(place(part, row, col), pair);
            }
        }
        thread::sync_threads();
        if let Some(again) = again {
            let made = |row, col| {
                let mut sum = shared.read(place(0, row, col));
                for part in 1..PARTS {
                    sum += shared.read(place(part, row, col));
                }
                Made::Sum(sum)
            };
            fp32_tile::recompute(
                tile,
                Region::all_of(tile, tile_of(PARTS)),
                thread,
                Block::<PARTS>::THREADS,
                again,
                made,
            );
            return;
        }
        let threads = Together { number: thread, count: Block::<PARTS>::THREADS };
        let sums = SumsOfParts::<PARTS> { shared, by_columns: is_column_major(&tile.c) };
        let lines = SumLines { are_columns: sums.by_columns, count: LINES, length: LINES };
        // Several loads of 128 threads divide the lines, those of 384 do not.
        match PARTS {
            1 => lines.store::<4, 16, true>(tile, [tile.row, tile.col], threads, &sums),
            _ => lines.store::<1, 1, true>(tile, [tile.row, tile.col], threads, &sums),
        }
    }
}

/// Where a sum of a part is in shared memory.
#[inline(always)]
fn place(part: u32, row: u32, col: u32) -> usize {
    (part * STAGES * RAW_STAGE + row * SUMS_PITCH + col) as usize
}

/// The sums of all parts, by rows or by columns.
struct SumsOfParts<const PARTS: u32> {
    shared: SharedSlice<f32>,
    by_columns: bool,
}

impl<const PARTS: u32> SumsByLines for SumsOfParts<PARTS> {
    #[inline(always)]
    #[track_caller]
    unsafe fn sums<const N: usize>(&self, line: u32, at: u32) -> [f32; N] {
        let mut sums = [0.0; N];
        for part in 0..PARTS {
            // SAFETY: inside the tile; columns are multiples of 4 where vectors are read.
            let of_part: [f32; N] = unsafe {
                if N == 4 && !self.by_columns {
                    read_neighbours(&self.shared, place(part, line, at))
                } else {
                    core::array::from_fn(|i| {
                        let [row, col] = if self.by_columns { [at + i as u32, line] } else { [line, at + i as u32] };
                        self.shared.read(place(part, row, col))
                    })
                }
            };
            sums = if part == 0 { of_part } else { core::array::from_fn(|i| sums[i] + of_part[i]) };
        }
        sums
    }
}

/// Makes the entry points.
macro_rules! entry_points {
    ($parts:literal $block:literal $min_blocks:literal: $(
        $name:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $scheme:ident, $doc:literal;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = $min_blocks,
            arch = "sm_90a",
            dynamic_shared = Memory::<$parts>::NEW.bytes,
            requires(
                gemm.a().first().$a_contiguous(),
                gemm.b().first().$b_contiguous(),
                gemm.blocks(tile_of($parts)) <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: TiledGemm<'_>) {
            const { assert!(Block::<$parts>::THREADS == $block) };
            // SAFETY: the block and its shared memory are as large as the body needs; the layouts are as the launch has checked.
            unsafe { multiply::<$a, $b, $scheme, $parts, _>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_of($parts))
            }
        }
    )* };
}

entry_points! {
    3 384 1:
    gemm_wgmma_64x64_nn_fp32_3xtf32, KMajor is_contiguous_along_rows, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by three warpgroups for a tile of 64×64, A and B row-major.";
    gemm_wgmma_64x64_nt_fp32_3xtf32, KMajor is_contiguous_along_rows, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by three warpgroups for a tile of 64×64, A row-major and B column-major.";
    gemm_wgmma_64x64_tn_fp32_3xtf32, MnMajor is_contiguous_along_cols, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by three warpgroups for a tile of 64×64, A column-major and B row-major.";
    gemm_wgmma_64x64_tt_fp32_3xtf32, MnMajor is_contiguous_along_cols, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by three warpgroups for a tile of 64×64, A and B column-major.";
}

entry_points! {
    1 128 3:
    gemm_wgmma_64x64_k32_nn_fp32_3xtf32, KMajor is_contiguous_along_rows, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by one warpgroup for a tile of 64×64, A and B row-major.";
    gemm_wgmma_64x64_k32_nt_fp32_3xtf32, KMajor is_contiguous_along_rows, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by one warpgroup for a tile of 64×64, A row-major and B column-major.";
    gemm_wgmma_64x64_k32_tn_fp32_3xtf32, MnMajor is_contiguous_along_cols, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by one warpgroup for a tile of 64×64, A column-major and B row-major.";
    gemm_wgmma_64x64_k32_tt_fp32_3xtf32, MnMajor is_contiguous_along_cols, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by one warpgroup for a tile of 64×64, A and B column-major.";
}
