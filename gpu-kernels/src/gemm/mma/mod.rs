//! Tensor cores on any GPU that has them from sm_80 on: `cp.async`, `ldmatrix`, `mma.sync`.
//!
//! ```text
//!                    256 columns
//!               ┌─────────┬─────────┐             a block: 8 warps, a tile of 128×256 of C, 16 terms at a time
//!          16 k │         │         │ B           a stage, of 4 in shared memory: 8 KB of A and 16 KB of B
//!               └─────────┴─────────┘
//!       16 k    ┌─────────┬─────────┐             round t:  the copies of step t-3 have arrived
//!      ┌────┐   │   w0    │   w4    │                       barrier
//!      ├────┤   ├─────────┼─────────┤                       issue the copies of step t, to slot t mod 4
//! 128  ├────┤   │   w1    │   w5    │ C                     multiply step t-3
//! rows ├────┤   ├─────────┼─────────┤
//!      └────┘   │   w2    │   w6    │             a warp: 32×128
//!        A      ├─────────┼─────────┤
//!               │   w3    │   w7    │
//!               └─────────┴─────────┘
//! ```
//!
//! For each step a lane loads the terms of its rows of A, prepares them (rounds them, or splits them in two parts), and then
//! does so with its columns of B, two at a time. What is prepared is used at once, from registers. That is why a warp has many
//! more columns than rows: the parts of A stay in registers for the step, beside 128 sums.
//!
//! **Promotion.** Tensor cores cut off the sums that they keep ([`cuda_std::mma`]); over 8192 terms that alone would be an
//! error of 10⁻⁴. So they sum up 16 terms, from zero, and the sum of those sums is kept by ordinary additions, rounded to
//! nearest. All precisions do this.
//!
//! **Any k order.** Which term of a step is in which place of a fragment is free as long as A and B agree. The module
//! `operand` uses this to load the four terms that a lane needs of a line, for any layout, in one instruction for each line or
//! term, and `scheme` to make fragments of 8 TF32 numbers and of 16 bf16 numbers from the same registers. Which rows and
//! columns of C a fragment has is free as well: a lane's eight columns of a block of 32 are neighbours, and it stores four at a
//! time.
//!
//! **What cannot be split** ends up exact: below about 2⁻¹⁰⁰ a part of an operand loses bits; [`Extremes`] sees it.
//! Infinities, NaNs and numbers that are too large for their rounded part make an infinity or a NaN of the sum. Where a block
//! finds either, it computes its tile again in fp32 (module `exact`).
//!
//! | precision | products of tensor cores for 16 terms | error |
//! |---|---|---|
//! | `fp32_mixed` | 2 TF32 and 2 bf16 | that of fp32 sums ([`split`](super::split)) |
//! | `fp32_3xtf32` | 6 TF32 | that of fp32 sums |
//! | `tf32` | 2 TF32 | operands rounded to 11 bits |
//! | `bf16` | 1 bf16 | operands rounded to 8 bits |
//! | `fp16` | 1 fp16 | operands rounded to 11 bits; beyond 65504 they are infinite, below 3·10⁻⁸ zero |
//!
//! On one H200 (sm_80's PTX, 2026-11-21, A·Bᵀ of 2048×4096 with 8192 terms): `fp32_mixed` 2.19 ms, `fp32_3xtf32` 2.52 ms,
//! `tf32` 1.80 ms, `bf16` and `fp16` 1.02 ms, where cuBLAS takes 2.69 ms in fp32. Profiled with
//! steps of 32 terms, which takes as long, `fp32_mixed` keeps tensor cores busy for 40 % of the time, and issues instructions
//! in 45 % of the cycles: with two warps to a scheduler, what a product waits for is not hidden. More warps, of 32×64, did not
//! help, because they have too few registers. Where no line is aligned, `fp32_mixed` takes
//! 2.85 ms.
//!
//! Copies are of 16 bytes where every line, or term, of an operand begins at a multiple of 16 bytes, and of 4 bytes elsewhere.
//! 256 threads with up to 255 registers, so one block on a multiprocessor; 96 KB of shared memory, which every device from
//! sm_80 on has.

mod operand;
mod scheme;

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::async_copy;
use cuda_std::prelude::*;

use operand::{AlongLines, AlongTerms, Arrangement, BLOCK_LINES, BLOCK_TERMS, Lines};
use scheme::{Mixed, OneBf16, OneFp16, OneTf32, Scheme, ThreeTf32};

use super::exact;
use super::split::Extremes;
#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::MAX_BLOCKS;
use super::tiles::{Tile, TileShape, TiledGemm};

/// The rows of C of a block.
const ROWS: u32 = 128;
/// The columns of C of a block.
const COLS: u32 = 256;
/// The terms of a step.
const DEPTH: u32 = 16;
/// The tile of a block of any kernel of this module.
pub const SHAPE: TileShape = TileShape { m: ROWS, n: COLS, k: DEPTH };

/// The threads of a block.
const THREADS: u32 = 256;
/// The rows of C of a warp.
const WARP_ROWS: u32 = BLOCK_LINES;
/// The columns of C of a warp.
const WARP_COLS: u32 = 128;
/// The warps one below the other.
const WARPS_DOWN: u32 = ROWS / WARP_ROWS;

/// Tiles of 16 rows of a warp.
const DOWN: usize = WARP_ROWS as usize / 16;
/// Tiles of 8 columns of a warp.
const ACROSS: usize = WARP_COLS as usize / 8;
/// Blocks of columns of a warp, of which each is four tiles.
const BLOCKS: usize = (WARP_COLS / BLOCK_LINES) as usize;

/// The steps that are in shared memory at a time.
const STAGES: u32 = 4;
/// The elements of a stage: those of A, then those of B.
const STAGE: u32 = (ROWS + COLS) * DEPTH;
/// The launch-sized shared memory, in bytes.
const SHARED_BYTES: u32 = STAGES * STAGE * size_of::<f32>() as u32;

/// The sums of a warp: by tile of 16 rows and by tile of 8 columns, as tensor cores have them.
type Sums = [[[f32; 4]; ACROSS]; DOWN];

/// A kernel for each layout of A and B and each precision.
macro_rules! kernels {
    ($(
        $name:ident, $scheme:ident, $a:ident $a_contiguous:ident, $b:ident $b_contiguous:ident, $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 256,
            min_blocks = 1,
            dynamic_shared = SHARED_BYTES,
            requires(
                gemm.a().first().$a_contiguous(),
                gemm.b().first().$b_contiguous(),
                gemm.blocks(SHAPE) <= MAX_BLOCKS
            )
        )]
        pub fn $name(gemm: TiledGemm<'_>) {
            // SAFETY: a block of 256 threads, all of which come here, with the shared memory that the kernel names; the
            // layouts are as the launch has checked.
            unsafe { multiply::<$scheme, $a, $b>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(SHAPE)
            }
        }
    )* };
}

/// The four layouts of one precision.
macro_rules! layouts {
    ($scheme:ident, $precision:literal, $nn:ident $nt:ident $tn:ident $tt:ident) => {
        kernels! {
            $nn, $scheme, AlongTerms is_contiguous_along_rows, AlongLines is_contiguous_along_rows,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A and B stored by rows.");
            $nt, $scheme, AlongTerms is_contiguous_along_rows, AlongTerms is_contiguous_along_cols,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A stored by rows and B by columns.");
            $tn, $scheme, AlongLines is_contiguous_along_cols, AlongLines is_contiguous_along_rows,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A stored by columns and B by rows.");
            $tt, $scheme, AlongLines is_contiguous_along_cols, AlongTerms is_contiguous_along_cols,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A and B stored by columns.");
        }
    };
}

layouts!(Mixed, "fp32, split in TF32 and bf16 products",
    gemm_mma_nn_fp32_mixed gemm_mma_nt_fp32_mixed gemm_mma_tn_fp32_mixed gemm_mma_tt_fp32_mixed);
layouts!(ThreeTf32, "fp32, split in three TF32 products",
    gemm_mma_nn_fp32_3xtf32 gemm_mma_nt_fp32_3xtf32 gemm_mma_tn_fp32_3xtf32 gemm_mma_tt_fp32_3xtf32);
layouts!(OneTf32, "TF32, operands rounded to nearest",
    gemm_mma_nn_tf32 gemm_mma_nt_tf32 gemm_mma_tn_tf32 gemm_mma_tt_tf32);
layouts!(OneBf16, "bf16, operands rounded to nearest",
    gemm_mma_nn_bf16 gemm_mma_nt_bf16 gemm_mma_tn_bf16 gemm_mma_tt_bf16);
layouts!(OneFp16, "fp16, operands rounded to nearest",
    gemm_mma_nn_fp16 gemm_mma_nt_fp16 gemm_mma_tn_fp16 gemm_mma_tt_fp16);

/// The body of all kernels.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`] with [`SHARED_BYTES`] of launch-sized shared memory; A and B are arranged
/// as `A` and `B` say.
#[inline(always)]
unsafe fn multiply<S: Scheme, A: Arrangement, B: Arrangement>(gemm: TiledGemm<'_>) {
    let Some(tile) = gemm.tile(SHAPE, thread::block_idx_x()) else { return };
    // SAFETY: as large as the launch made it.
    let shared = unsafe { dynamic_shared::<f32>(0, (STAGES * STAGE) as usize) };
    let a = Lines { matrix: tile.a, first: tile.row };
    let b = Lines { matrix: tile.b.transposed(), first: tile.col };
    let (vectors_a, vectors_b) = (a.take_vectors::<A>(), b.take_vectors::<B>());

    let (warp_row, warp_col) = warp_origin(thread::thread_idx_x());
    let has_work = tile.row + warp_row < tile.c.rows() && tile.col + warp_col < tile.c.cols();
    let mut sums: Sums = [[[0.0; 4]; ACROSS]; DOWN];
    let mut seen = Extremes::new();

    // Round t issues the copies of step t and multiplies step t + 1 - STAGES.
    let steps = (tile.k_end - tile.k_begin).div_ceil(DEPTH);
    let mut round = 0;
    while round < steps + STAGES - 1 {
        // Of the copies of each round that has been, which may be none, those of the two latest may still be under way.
        async_copy::wait_group::<{ STAGES - 2 }>();
        // SAFETY: the number of rounds is the same for all threads of the block. The barrier makes the copies of all threads
        // visible to all of them, and separates the reads of the slot that is copied to next from these copies.
        unsafe { thread::sync_threads() };
        if round < steps {
            let (slot, term) = (round % STAGES * STAGE, tile.k_begin + round * DEPTH);
            // SAFETY: the slot is inside the shared memory, as is the step inside the terms. The barrier above, and the one
            // after the wait, separate the copies from reads; all are waited for, because the last copies are issued in
            // round `steps - 1`, and STAGES - 1 rounds follow.
            unsafe {
                a.copy::<S, A, ROWS>(&shared, slot, term, tile.k_end, vectors_a);
                b.copy::<S, B, COLS>(&shared, slot + ROWS * DEPTH, term, tile.k_end, vectors_b);
            }
        }
        async_copy::commit_group();
        if round >= STAGES - 1 && has_work {
            let slot = (round + 1) % STAGES * STAGE;
            // SAFETY: `has_work` is the same for the warp, and the copies of this slot were waited for before the barrier.
            unsafe { multiply_step::<S, A, B>(&shared, slot, &mut sums, &mut seen) };
        }
        round += 1;
    }

    // Found again, rather than kept in registers all the time.
    let Some(tile) = gemm.tile(SHAPE, thread::block_idx_x()) else { return };
    if S::EXACT {
        // SAFETY: all threads come here, after the last read of a stage but for the rounds' own; the function begins with a
        // barrier.
        let inexact = unsafe { any_thread(&shared, seen.any() || !are_finite(&sums)) };
        if inexact {
            // SAFETY: all threads of the block, or none, come here; the tile is this block's alone.
            unsafe { exact::compute_tile(&tile, SHAPE, thread::thread_idx_x(), THREADS) };
            return;
        }
    }
    // SAFETY: all threads come here, or none of the block, and the tile is this block's alone.
    unsafe { finish(&tile, &shared, &sums) };
}

/// The number of this thread in the block, read anew: what is computed from it is computed again where it is needed, instead
/// of taking registers all the time.
#[inline(always)]
fn this_thread() -> u32 {
    let mut thread = [thread::thread_idx_x()];
    hint::pin(&mut thread);
    thread[0]
}

/// The first row and the first column of the warp of a thread in the tile of the block.
#[inline(always)]
fn warp_origin(thread: u32) -> (u32, u32) {
    let warp = thread / warp::LANES;
    (warp % WARPS_DOWN * WARP_ROWS, warp / WARPS_DOWN * WARP_COLS)
}

/// Multiplies the step in the slot that begins at `slot`, and adds the products to `sums`.
///
/// # Safety
/// The whole warp calls this function together; the slot is written, and a barrier separates the writes from this call.
#[inline(always)]
#[track_caller]
unsafe fn multiply_step<S: Scheme, A: Arrangement, B: Arrangement>(
    shared: &SharedSlice<f32>,
    slot: u32,
    sums: &mut Sums,
    seen: &mut Extremes,
) {
    let thread = thread::thread_idx_x();
    let ((row, col), lane) = (warp_origin(thread), thread % warp::LANES);
    for part in 0..DEPTH / BLOCK_TERMS {
        let term = part * BLOCK_TERMS;
        // SAFETY: the caller's promise; the slot begins with A.
        let rows = unsafe { A::load(shared, slot, ROWS, (row, term), lane) }.map(|terms| S::prepare(terms, seen));
        // Line 4g + 2i is row g of tile i, and line 4g + 2i + 1 is row g + 8.
        let rows = [[rows[0], rows[1]], [rows[2], rows[3]]];
        for block in 0..BLOCKS {
            let first = (col + block as u32 * BLOCK_LINES, term);
            // SAFETY: the caller's promise; B comes after A.
            let terms = unsafe { B::load(shared, slot + ROWS * DEPTH, COLS, first, lane) };
            for pair in 0..2 {
                let columns = [S::prepare(terms[2 * pair], seen), S::prepare(terms[2 * pair + 1], seen)];
                // SAFETY: the caller's promise.
                let products = unsafe { S::multiply(rows, columns) };
                for i in 0..DOWN {
                    for j in 0..2 {
                        for element in 0..4 {
                            sums[i][4 * block + 2 * pair + j][element] += products[i][j][element];
                        }
                    }
                }
            }
            if S::EXACT {
                // SAFETY: all lanes come here. Loads do not cross it: otherwise the compiler has those of all blocks under
                // way, for which a scheme with two parts of each operand leaves too few registers.
                unsafe { warp::sync_warp(warp::ALL_LANES) };
            }
        }
    }
}

/// Whether no sum is infinite or NaN.
#[inline(always)]
fn are_finite(sums: &Sums) -> bool {
    let mut zero = 0.0;
    for row in sums {
        for tile in row {
            for &sum in tile {
                // Zero, or NaN.
                zero = math::fma(sum, 0.0, zero);
            }
        }
    }
    zero == 0.0
}

/// Whether `predicate` is true in any thread of the block.
///
/// # Safety
/// All threads of the block call this function together, and none has copies under way to `shared`.
#[inline(always)]
#[track_caller]
unsafe fn any_thread(shared: &SharedSlice<f32>, predicate: bool) -> bool {
    let thread = thread::thread_idx_x();
    let (warp, lane) = (thread / warp::LANES, thread % warp::LANES);
    // SAFETY: all lanes come here. One lane of each warp writes, to an element of its own; barriers separate that from what
    // the stages held before, and from the reads.
    unsafe {
        let any = warp::warp_vote_any(warp::ALL_LANES, predicate);
        thread::sync_threads();
        if lane == 0 {
            shared.write(warp as usize, if any { 1.0 } else { 0.0 });
        }
        thread::sync_threads();
        let other = shared.read((lane % (THREADS / warp::LANES)) as usize);
        warp::warp_vote_any(warp::ALL_LANES, other != 0.0)
    }
}

/// Completes the elements of C that this warp has the sums of: a block of columns at a time, by way of shared memory, so that
/// a warp stores whole lines of 128 bytes.
///
/// # Safety
/// All threads of the block call this function together, and none has copies under way to `shared`. No other block has this
/// tile.
#[inline(always)]
#[track_caller]
unsafe fn finish(tile: &Tile<'_>, shared: &SharedSlice<f32>, sums: &Sums) {
    /// The pieces of four columns in a row of a block.
    const PIECES: u32 = BLOCK_LINES / 4;
    let thread = thread::thread_idx_x();
    let lane = thread % warp::LANES;
    let (g, q) = (lane / 4, lane % 4);
    let (row, col) = warp_origin(thread);
    // The warp's own part of shared memory, in pieces of four, of which those of neighbouring fours of rows are exchanged, so
    // that the lanes of a write meet different banks.
    let begin = thread / warp::LANES * WARP_ROWS * BLOCK_LINES;
    let place = |line: u32, piece: u32| (begin + line * BLOCK_LINES + (piece ^ (line / 4 % 2)) * 4) as usize;

    // SAFETY: every thread of the block comes here. What the block has read from shared memory, it has read before.
    unsafe { thread::sync_threads() };
    for block in 0..BLOCKS {
        for line in 0..4 {
            for half in 0..2 {
                // Line 4g + 2i + r of A is row g + 8r of tile i, and column c of tile j of a block is line 4c + j of B; this
                // lane has the columns 2q and 2q + 1 of a tile.
                let element = line % 2 * 2 + half;
                let values: [f32; 4] = core::array::from_fn(|j| sums[line / 2][4 * block + j][element]);
                // SAFETY: inside the warp's own part, and each lane has its own rows and pieces.
                unsafe { shared.write4(place(g * 4 + line as u32, q * 2 + half as u32), values) };
            }
        }
        // SAFETY: all lanes come here.
        unsafe { warp::sync_warp(warp::ALL_LANES) };
        let piece = lane % PIECES;
        let (row, col) = (tile.row + row, tile.col + col + block as u32 * BLOCK_LINES + piece * 4);
        let mut line = lane / PIECES;
        while line < WARP_ROWS {
            // SAFETY: written, before the `sync_warp`. The column is a multiple of 4, because the tile begins at one, and no
            // other lane has this row and this piece.
            unsafe { tile.finish(row + line, col, shared.read4(place(line, piece))) };
            line = hint::keep_rolled(line + warp::LANES / PIECES);
        }
        // SAFETY: as above; it separates these reads from the writes of the next block.
        unsafe { warp::sync_warp(warp::ALL_LANES) };
    }
}
