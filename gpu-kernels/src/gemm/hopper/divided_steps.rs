//! fp32-accurate products on tensor cores by tiles of 64×64, `C = α·A·B + β·C`, for products that have not enough large tiles for all
//! multiprocessors: three warpgroups share a tile, and each loads, decomposes and multiplies k of its own.
//!
//! ```text
//!                 k  0 … 31   32 … 63   64 … 95   96 … 127  …
//!  warpgroup         0         1         2         0        …        of one tile of 64×64
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
//! The accumulators of the three are added up in shared memory, in the order of the warpgroups. Each has a named barrier of its own, at which its
//! threads meet twice in a step, so that the three run out of step with each other: while one decomposes, the tensor cores work for
//! another one.
//!
//! **Any alignment.** Copies have 16 bytes and begin at multiples of 16 bytes, also where rows of memory do not: a row is copied from the
//! multiple before its first element on, and stands in shared memory as many places further on (its *shift*, of 0 to 3).
//!
//! ```text
//!  memory           … │ · a b c │ d e f g │ h · · · │ …            a row of 8 elements, shift 1
//!  shared memory      │ · a b c │ d e f g │ h · · · │
//! ```
//!
//! That costs one copy more for each row, and little else: of A threads read single elements, and of a K-major B whole pieces, among whose
//! elements they choose. All rows that a thread reads have the same shift, because their numbers differ by multiples of 4.
//!
//! What cannot be decomposed is found as in [`decomposed`](super::decomposed): every warpgroup scans what it decomposes, and a block that
//! finds anything computes its tile again, in plain fp32.
//!
//! 384 threads with up to 168 registers and 210 KB of shared memory, one block on a multiprocessor.

use core::marker::PhantomData;

use blocks::block_or::{BlockSize, any_thread};
use blocks::epilogue::takes_vectors_of;
use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums};
use cuda_std::{async_copy, hopper};

use super::decomposed::position_of;
use super::operand::{Fragments, KMajor, Major, MnMajor, Pieces, ROW, Share, store_unit};
use super::scheme::{Scheme, ThreeTf32};
use super::underflow_scan::are_finite;
use crate::Matrix;
use crate::gemm::decompose::{UnderflowScan, decompose_tf32};
use crate::gemm::fp32_tile;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The warpgroups of a block.
const PARTS: u32 = 3;
/// The threads of a warpgroup.
const PART_THREADS: u32 = 128;
/// The threads of a block.
const THREADS: u32 = PARTS * PART_THREADS;
const _: () = assert!(THREADS == 384, "the entry points' blocks are of as many threads");

/// The rows of A, and the columns of B, of a tile.
const LINES: u32 = 64;
/// The k of a step of a warpgroup.
const DEPTH: u32 = ROW;
/// The tile of a block.
pub const TILE: TileShape = TileShape { m: LINES, n: LINES, k: PARTS * DEPTH };

/// The steps of a warpgroup that are in shared memory at a time, as loaded.
const STAGES: u32 = 3;
/// The elements of an operand in such a stage.
const RAW_TILE: u32 = LINES * Lines::<KMajor>::PITCH;
const _: () = assert!(RAW_TILE == DEPTH * Lines::<MnMajor>::PITCH, "in either order it takes as much");
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

struct Memory {
    /// For each warpgroup, the high parts of B and the low ones.
    parts_of_b: SharedArray<f32>,
    /// For each warpgroup, its stages.
    raw: SharedArray<f32>,
    bytes: u32,
}

const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    let parts_of_b = layout.aligned(PARTS * 2 * B_TILE, 1024);
    let raw = layout.aligned(PARTS * STAGES * RAW_STAGE, 16);
    Memory { parts_of_b, raw, bytes: layout.bytes() }
};

/// A barrier for each warpgroup.
const BARRIERS: NamedBarriers<PARTS, PART_THREADS> = {
    // SAFETY: the kernels have no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    ids.group()
};

struct Block;

impl BlockSize for Block {
    const THREADS: u32 = THREADS;
}

/// The 64 lines of an operand that a tile needs, rows of A or columns of B. The rows of `matrix` are lines, and its columns are k.
#[derive(Clone, Copy)]
struct Lines<'a, O> {
    matrix: Matrix<'a>,
    first: u32,
    order: PhantomData<O>,
}

impl<'a, O: Major> Lines<'a, O> {
    /// The rows of memory that a step takes, and the elements of each.
    const ROWS: u32 = if O::K { LINES } else { DEPTH };
    const WIDTH: u32 = if O::K { DEPTH } else { LINES };
    /// The elements from one row to the next in shared memory: there is room for a row with any shift, and the lanes of a
    /// [`Lines::load`] meet different banks.
    const PITCH: u32 = if O::K { DEPTH + 4 } else { LINES + 8 };
    /// The elements from a line to the next in shared memory, and from a k to the next.
    const LINE: u32 = if O::K { Self::PITCH } else { 1 };
    const TERM: u32 = if O::K { 1 } else { Self::PITCH };

    /// The lines from `first` on, a multiple of 64.
    #[inline(always)]
    fn new(matrix: Matrix<'a>, first: u32) -> Self {
        Self { matrix, first, order: PhantomData }
    }

    /// The elements from one row of memory to the next.
    #[inline(always)]
    fn pitch(&self) -> u64 {
        if O::K { self.matrix.row_stride() } else { self.matrix.col_stride() }
    }

    /// The shift of row `row` of memory, a line where rows are lines, otherwise a k. Rows whose numbers differ by a multiple of 4 have
    /// the same.
    #[inline(always)]
    fn shift(&self, row: u32) -> u32 {
        ((self.matrix.data().as_ptr() as u64 / 4) as u32).wrapping_add(row.wrapping_mul(self.pitch() as u32)) % 4
    }

    /// Issues the copies of a step, from `k`, a multiple of 32, to below `end`, to the tile at `tile` in shared memory, with zeros for what
    /// does not exist. The threads of a warpgroup together copy all of it; this is number `thread`.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for the tile. `end` is at most the k of the product.
    #[inline(always)]
    unsafe fn copy(&self, shared: &SharedSlice<f32>, tile: u32, k: u32, end: u32, thread: u32) {
        let (lines, terms) = ((self.first, self.matrix.rows()), (k, end));
        let (across, along) = if O::K { (lines, terms) } else { (terms, lines) };
        let area = Area { across, along };
        // SAFETY: the caller's promise; each piece has one thread.
        unsafe {
            self.copy_pieces(shared, tile, &area, thread);
            if !self.matrix.has_lines_of_vectors(self.pitch()) {
                if thread < Self::ROWS {
                    self.copy_last_piece(shared, tile, &area, thread);
                }
                if along.0 == 0 {
                    self.copy_first_elements(shared, tile, &area, thread);
                }
            }
        }
    }

    /// Issues the copies of a thread's pieces, four elements as they stand in shared memory, of four rows, but not those that begin
    /// before the row does.
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_pieces(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, thread: u32) {
        let &Area { across, along } = area;
        let (piece, row) = (thread % (Self::WIDTH / 4) * 4, thread / (Self::WIDTH / 4));
        // The four rows are 8 or 16 apart: they have the same shift.
        let shift = self.shift(across.0 + row);
        let (from, data) = (along.0 + piece, self.matrix.data());
        if from < shift {
            return;
        }
        let to = |i: u32| (tile + (row + i * (Self::ROWS / 4)) * Self::PITCH + piece) as usize;
        let mut element = u64::from(across.0 + row) * self.pitch() + u64::from(from - shift);
        let exists = across.0 + Self::ROWS <= across.1 && along.0 + Self::WIDTH <= along.1;
        let count = (along.1 + shift).saturating_sub(from).min(4);
        for i in 0..4 {
            // SAFETY: the caller's promise. What is copied is inside the operand: elements of the row from `from - shift` on, and no
            // more than it has. The address is a multiple of 16 bytes by the definition of the shift.
            unsafe {
                if exists {
                    // The usual case has counts that are constants.
                    async_copy::copy_async::<4, _>(shared, to(i), &data, element as usize, 4);
                } else {
                    let count = if across.0 + row + i * (Self::ROWS / 4) < across.1 { count } else { 0 };
                    async_copy::copy_async::<4, _>(shared, to(i), &data, element as usize, count);
                }
            }
            element += self.pitch() * u64::from(Self::ROWS / 4);
        }
    }

    /// Issues the copy of what the shift of row `row` moves beyond the pieces of [`Lines::copy_pieces`].
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_last_piece(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, row: u32) {
        let &Area { across, along } = area;
        let shift = self.shift(across.0 + row);
        let from = along.0 + Self::WIDTH - shift;
        let count = if across.0 + row < across.1 { along.1.saturating_sub(from).min(4) } else { 0 };
        let element = u64::from(across.0 + row) * self.pitch() + u64::from(from);
        let to = (tile + row * Self::PITCH + Self::WIDTH) as usize;
        // SAFETY: as above.
        unsafe { async_copy::copy_async::<4, _>(shared, to, &self.matrix.data(), element as usize, count) };
    }

    /// Issues the copies of the first elements of rows that begin between two pieces, where this is where they begin: one by one,
    /// because what is before them is not the operand's. That is zero in shared memory.
    ///
    /// # Safety
    /// As for [`Lines::copy`].
    #[inline(always)]
    unsafe fn copy_first_elements(&self, shared: &SharedSlice<f32>, tile: u32, area: &Area, thread: u32) {
        let &Area { across, along } = area;
        for i in 0..Self::ROWS * 4 / PART_THREADS {
            let (row, place) = ((thread + i * PART_THREADS) / 4, thread % 4);
            let shift = self.shift(across.0 + row);
            if shift > 0 {
                let element = place.saturating_sub(shift);
                let count = u32::from(place >= shift && element < along.1 && across.0 + row < across.1);
                let element = u64::from(across.0 + row) * self.pitch() + u64::from(element);
                let to = (tile + row * Self::PITCH + place) as usize;
                // SAFETY: as above.
                unsafe { async_copy::copy_async::<1, _>(shared, to, &self.matrix.data(), element as usize, count) };
            }
        }
    }

    /// Where a lane's first number of 16 lines is in a tile, those from `line` on, a multiple of 16: that of line g and k = q.
    #[inline(always)]
    fn fragment_offset(&self, line: u32, lane: u32) -> u32 {
        let (g, q) = (line + lane / 4, lane % 4);
        g * Self::LINE + q * Self::TERM + self.shift(if O::K { self.first + g } else { q })
    }

    /// Reads a lane's part of 16 lines and all k of a step, of a tile of whose numbers its first is at `offset`: for each 8 of k, lines g and g + 8
    /// for k = q, then for k = q + 4.
    ///
    /// # Safety
    /// The tile is complete; the offset is that of [`Lines::fragment_offset`].
    #[inline(always)]
    unsafe fn load(shared: &SharedSlice<f32>, offset: u32) -> Fragments<f32> {
        core::array::from_fn(|i| {
            let skipped = i as u32 / 2 * 4 * Self::TERM + i as u32 % 2 * 8 * Self::LINE;
            // SAFETY: inside the tile, by the caller's promise.
            unsafe { shared.skip(skipped as usize).read(offset as usize) }
        })
    }

    /// Where the numbers are that a lane of warp `warp` of a warpgroup converts of a tile, in the first of two rounds: four neighbours
    /// in k, of eight. Those of a K-major tile are as many places further on as its rows are shifted.
    #[inline(always)]
    fn source_offsets(&self, warp: u32, lane: u32) -> [u32; 4] {
        if O::K {
            let first = (warp * 16 + lane % 8) * Self::PITCH + lane / 8 * 8;
            core::array::from_fn(|i| first + i as u32)
        } else {
            let line = warp / 2 * 32 + lane;
            let k = warp % 2 * 16;
            core::array::from_fn(|i| line + (k + i as u32) * Self::PITCH + self.shift(i as u32))
        }
    }

    /// The shift of the rows that a lane converts, of a K-major tile.
    #[inline(always)]
    fn source_shift(&self, lane: u32) -> u32 {
        if O::K { self.shift(self.first + lane % 8) } else { 0 }
    }

    /// Reads what a lane converts in round `round` of two: eight k of a line.
    ///
    /// # Safety
    /// The tile at `tile` is complete; the offsets are those of [`Lines::source_offsets`], and the shift is that of
    /// [`Lines::source_shift`].
    #[inline(always)]
    unsafe fn load_unit(shared: &SharedSlice<f32>, tile: u32, sources: &[u32; 4], shift: u32, round: u32) -> [f32; 8] {
        let shared = shared.skip((round * 8 * if O::K { Self::LINE } else { Self::TERM }) as usize);
        if !O::K {
            // SAFETY: inside the tile, by the caller's promise.
            return core::array::from_fn(|i| unsafe {
                let later = if i < 4 { 0 } else { 4 * Self::TERM };
                shared.skip(later as usize).read((tile + sources[i % 4]) as usize)
            });
        }
        // Whole pieces, of which lanes meet different banks, and then a choice among neighbours. The last piece of a row without a
        // shift is not there.
        let piece = |i: usize| shared.skip(4 * i);
        // SAFETY: inside the tile, at pieces, by the caller's promise.
        let pieces = unsafe {
            let place = (tile + sources[0]) as usize;
            [piece(0).read4(place), piece(1).read4(place), if shift > 0 { piece(2).read4(place) } else { [0.0; 4] }]
        };
        let choose = |later: bool, [first, second]: [f32; 2]| if later { second } else { first };
        let value = |i: usize| pieces[i / 4][i % 4];
        let by_two: [f32; 9] = core::array::from_fn(|i| choose(shift & 2 != 0, [value(i), value(i + 2)]));
        core::array::from_fn(|i| choose(shift & 1 != 0, [by_two[i], by_two[i + 1]]))
    }
}

/// What a step takes of an operand: from where to where it exists, across the rows of memory and along them.
struct Area {
    across: (u32, u32),
    along: (u32, u32),
}

/// What a thread copies for its warpgroup.
struct Copies<'a, A, B> {
    a: Lines<'a, A>,
    b: Lines<'a, B>,
    /// The warpgroup's stages.
    raw: SharedSlice<f32>,
    /// Where its first step begins, and where k ends.
    first_k: u32,
    end: u32,
    steps: u32,
    thread: u32,
}

impl<A: Major, B: Major> Copies<'_, A, B> {
    /// Issues the copies of step `step`, if there is one, to stage `stage`: in any case a group of copies that can be waited for.
    ///
    /// # Safety
    /// All threads of the warpgroup come here. Nobody reads the stage before all of them have waited for the group and met at a
    /// barrier, and a barrier separates this from whatever was read there before.
    #[inline(always)]
    unsafe fn issue(&self, step: u32, stage: u32) {
        if step < self.steps {
            let (k, place) = (self.first_k + step * TILE.k, stage * RAW_STAGE);
            // SAFETY: the caller's promise; the stage is inside the warpgroup's.
            unsafe {
                self.a.copy(&self.raw, place, k, self.end, self.thread);
                self.b.copy(&self.raw, place + RAW_TILE, k, self.end, self.thread);
            }
        }
        async_copy::commit_group();
    }
}

/// The body of all kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`]; A and B are arranged as `A` and `B` say.
#[inline(always)]
unsafe fn multiply<A: Major, B: Major, S: Scheme>(gemm: TiledGemm<'_>) {
    let Some(tile) = gemm.tile_soon(TILE, thread::block_idx_x()) else { return };
    let thread = thread::thread_idx_x() % PART_THREADS;
    let lane = thread % warp::LANES;
    // SAFETY: all lanes of each warp come here.
    let (part, warp) = unsafe { (warp_number() / 4, warp_number() % 4) };
    // SAFETY: the caller's promise.
    let (raw, parts_of_b) = unsafe {
        (
            MEMORY.raw.slice().skip((part * STAGES * RAW_STAGE) as usize),
            MEMORY.parts_of_b.slice().skip((part * 2 * B_TILE) as usize),
        )
    };
    let a = Lines::<A>::new(tile.a, tile.row);
    let b = Lines::<B>::new(tile.b.transposed(), tile.col);
    let fragments = a.fragment_offset(warp * 16, lane);
    let (sources, shift) = (b.source_offsets(warp, lane), b.source_shift(lane));
    let share = Share::of::<B>(warp / 2, lane);
    let (high_target, low_target) = (share.target(Pieces::TF32, 0), share.target(S::SECOND, B_TILE));
    let (high_b, low_b) = (Descriptor::at(parts_of_b, 0), Descriptor::at(parts_of_b, B_TILE as usize));

    // This warpgroup's steps: every third one.
    let steps = ((tile.k_end - tile.k_begin).div_ceil(DEPTH) + PARTS - 1 - part) / PARTS;
    let copies = Copies { a, b, raw, first_k: tile.k_begin + part * DEPTH, end: tile.k_end, steps, thread };
    let mut accumulators = [0f32; ACCUMULATORS];
    let mut scan = UnderflowScan::new();
    // Round t issues the copies of step t, and multiplies the step before the last.
    let (mut round, mut stage) = (0, 0);
    while round < steps + STAGES - 1 {
        async_copy::wait_group::<{ STAGES - 2 }>();
        // SAFETY: the number of steps is the same for all threads of the warpgroup. The first barrier makes the copies of all of
        // its threads visible to all, and separates what they have read in the step before, and what tensor cores have read of the
        // parts of B, from what is written from here on. The second one comes after every thread's fence.
        unsafe {
            BARRIERS.at(part).sync();
            copies.issue(round, stage);
            stage = if stage == STAGES - 1 { 0 } else { stage + 1 };
            round += 1;
            if round < STAGES {
                continue;
            }
            let place = stage * RAW_STAGE;
            for round in 0..2 {
                let values = Lines::<B>::load_unit(&raw, place + RAW_TILE, &sources, shift, round);
                scan.scan_now(&values);
                let (mut high, mut low) = ([0.0; 8], [0.0; 8]);
                for i in 0..8 {
                    (high[i], low[i]) = decompose_tf32(values[i]);
                }
                let second = S::second_of_b(values, low);
                let round = warp % 2 * 2 + round;
                store_unit::<B>(parts_of_b, Pieces::TF32, high_target, round, high);
                store_unit::<B>(parts_of_b, S::SECOND, low_target, round, second);
            }
            hopper::fence_async_shared();
            let values = Lines::<A>::load(&raw, place + fragments);
            scan.scan_now(&values);
            let (mut first, mut low) = ([0; 16], [0.0; 16]);
            for i in 0..16 {
                let (high, rest) = decompose_tf32(values[i]);
                (first[i], low[i]) = (high.to_bits(), rest);
            }
            let mut second = S::second_of_a(&values, &low);
            hint::pin(&mut first);
            hint::pin(&mut second);
            BARRIERS.at(part).sync();
            let mut partial = [0f32; ACCUMULATORS];
            wgmma::fence();
            S::multiply(&mut partial, &first, &second, high_b, low_b);
            wgmma::commit();
            partial.wait::<0>();
            for i in 0..ACCUMULATORS {
                accumulators[i] += partial[position_of(i)];
            }
            hint::pin(&mut accumulators);
        }
    }

    // Found again, rather than kept in registers all the time.
    let Some(tile) = gemm.tile_soon(TILE, thread::block_idx_x()) else { return };
    // SAFETY: all threads come here, with no copies under way: the last steps waited for all. The function begins with a barrier.
    let inexact = unsafe { any_thread::<Block>(&MEMORY.raw.slice(), scan.any() || !are_finite(&[accumulators])) };
    if inexact {
        // SAFETY: all threads of the block, or none, come here; the tile is this block's alone.
        unsafe { fp32_tile::compute_tile(&tile, TILE, thread::thread_idx_x(), THREADS) };
        return;
    }
    // SAFETY: likewise.
    unsafe { store_sums(&tile, &accumulators) };
}

/// Adds up the accumulators of the warpgroups and stores them in C, a row by neighbouring lanes.
///
/// # Safety
/// All threads of the block come here, and the tile is this block's alone.
#[inline(always)]
unsafe fn store_sums(tile: &Tile<'_>, accumulators: &[f32; ACCUMULATORS]) {
    let thread = thread::thread_idx_x();
    let (part, warp, lane) = (thread / PART_THREADS, thread / warp::LANES % 4, thread % warp::LANES);
    // SAFETY: the kernels' bodies have the same memory.
    let shared = unsafe { MEMORY.raw.slice() };
    let place = |part: u32, row: u32, col: u32| (part * STAGES * RAW_STAGE + row * SUMS_PITCH + col) as usize;
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
        if takes_vectors_of(&tile.c, 4) {
            let mut piece = thread;
            while piece < LINES * LINES / 4 {
                let (row, col) = (piece / (LINES / 4), piece % (LINES / 4) * 4);
                let mut sum = shared.read4(place(0, row, col));
                for part in 1..PARTS {
                    let other = shared.read4(place(part, row, col));
                    sum = core::array::from_fn(|i| sum[i] + other[i]);
                }
                tile.epilogue(tile.row + row, tile.col + col, sum);
                piece = hint::keep_rolled(piece + THREADS);
            }
        } else {
            let mut element = thread;
            while element < LINES * LINES {
                let (row, col) = (element / LINES, element % LINES);
                let mut sum = shared.read(place(0, row, col));
                for part in 1..PARTS {
                    sum += shared.read(place(part, row, col));
                }
                tile.epilogue_element(tile.row + row, tile.col + col, sum);
                element = hint::keep_rolled(element + THREADS);
            }
        }
    }
}

/// Makes the entry points.
macro_rules! entry_points {
    ($($name:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $scheme:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = MEMORY.bytes,
            requires(
                gemm.a().first().$a_contiguous(),
                gemm.b().first().$b_contiguous(),
                gemm.blocks(TILE) <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: TiledGemm<'_>) {
            // SAFETY: the block and its shared memory are as large as the body needs; the layouts are as the launch has checked.
            unsafe { multiply::<$a, $b, $scheme>(gemm) }
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
    gemm_wgmma_64x64_nn_fp32_3xtf32, KMajor is_contiguous_along_rows, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×64, A and B row-major.";
    gemm_wgmma_64x64_nt_fp32_3xtf32, KMajor is_contiguous_along_rows, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×64, A row-major and B column-major.";
    gemm_wgmma_64x64_tn_fp32_3xtf32, MnMajor is_contiguous_along_cols, MnMajor is_contiguous_along_rows, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×64, A column-major and B row-major.";
    gemm_wgmma_64x64_tt_fp32_3xtf32, MnMajor is_contiguous_along_cols, KMajor is_contiguous_along_cols, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 64×64, A and B column-major.";
}
