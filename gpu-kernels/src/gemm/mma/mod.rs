//! Tensor-core kernels for any GPU from sm_80 on: `cp.async` loads operands into a ring of stages in shared memory, `ldmatrix` brings
//! them to registers, `mma.sync` multiplies.
//!
//! ```text
//!                    256 columns
//!               ┌─────────┬─────────┐             a block: 8 warps, a tile of 128×256 of C, k = 16 at a time
//!          16 k │         │         │ B           a stage, of 4 in shared memory: 8 KB of A and 16 KB of B
//!               └─────────┴─────────┘
//!       16 k    ┌─────────┬─────────┐             round t:  the copies of step t-3 have arrived
//!      ┌────┐   │   w0    │   w4    │                       barrier
//!      ├────┤   ├─────────┼─────────┤                       issue the copies of step t, to stage t mod 4
//! 128  ├────┤   │   w1    │   w5    │ C                     multiply step t-3
//! rows ├────┤   ├─────────┼─────────┤
//!      └────┘   │   w2    │   w6    │             a warp: 32×128
//!        A      ├─────────┼─────────┤
//!               │   w3    │   w7    │
//!               └─────────┴─────────┘
//! ```
//!
//! For each K-step a lane loads its rows of A, prepares them (rounds them, or decomposes them into two parts), and then does so with
//! its columns of B, two at a time. What is prepared is used at once, from registers. That is why a warp has many more columns than
//! rows: the parts of A stay in registers for the step, beside 128 accumulators.
//!
//! **Promotion.** Tensor cores truncate the sums that they keep ([`cuda_std::mma`]); over k = 8192 that alone would be an
//! error of 10⁻⁴. So they sum up k = 16, from zero, and these sums are added to the accumulators by ordinary additions, rounded to
//! nearest. All precisions do this but `fp32_fp64`, whose tensor cores round each term to nearest, so that they go on with the
//! accumulators; those are fp64.
//!
//! **Any order of k.** Which k of a step is in which position of a fragment is free as long as A and B agree. The module
//! `operand` uses this to load the four numbers that a lane needs of a row of A (or column of B), for any layout, in one instruction
//! for each, and `scheme` to make fragments of 8 TF32 numbers and of 16 bf16 numbers from the same registers. Which rows and
//! columns of C a fragment has is free as well: a lane's eight columns of a block of 32 are neighbours, and it stores four at a
//! time.
//!
//! **Operands that cannot be decomposed.** Below about 2⁻¹⁰⁰ a part of an operand loses bits; a [`Scan`] notices.
//! Infinities, NaNs and numbers that are too large for their rounded part make an infinity or a NaN of an accumulator. Where a block
//! finds either, it computes those rows, columns and elements of its tile in plain fp32 (module `fp32_tile`).
//!
//! | precision | products of tensor cores for k = 16 | error |
//! |---|---|---|
//! | `fp32_3xtf32` | 6 TF32 | that of fp32 sums ([`decompose`](super::decompose)) |
//! | `tf32` | 2 TF32 | operands rounded to 11 bits |
//! | `bf16` | 1 bf16 | operands rounded to 8 bits |
//! | `fp32_fp64` | fp64: 4 for 8 rows and 8 columns | fp64's, and one rounding to fp32 |
//! | `fp16` | 1 fp16 | operands rounded to 11 bits; beyond 65504 they are infinite, below 3·10⁻⁸ zero |
//!
//! Copies are of 16 bytes, also where rows of memory begin between multiples of 16 bytes (module `operand`); the loop of products without
//! such rows is another one, and as short as it can be. The kernels with large tiles have no registers for that, and copy such rows
//! by 4 bytes. 256 threads with up to 255 registers, so one block on a multiprocessor; 96 KB of shared memory, which every device from
//! sm_80 on has.

pub mod grouped;
mod operand;
mod scheme;

use blocks::block_or::{BlockSize, or_of_threads};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::this_thread;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::async_copy;
use cuda_std::prelude::*;

use operand::{Arrangement, BLOCK_LINES, DEPTH, KMajor, Lines, MnMajor, Shifts, load};
use scheme::{Fp64, OneBf16, OneFp16, OneTf32, Scheme, Sum, ThreeTf32};

use super::fp32_tile::{self, Again, Made, Region};
use super::scan::{self, Scan, ScanOfSums};
use super::sum_lines::{SumLines, SumsByLines, Together, read_neighbours};
use super::tile_source::TileSource;
#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::MAX_BLOCKS;
use super::tiles::{Tile, TileShape, TiledGemm};

/// The rows of C of a warp.
const WARP_ROWS: u32 = BLOCK_LINES;
/// Tiles of 16 rows of a warp.
const DOWN: usize = WARP_ROWS as usize / 16;

/// How a block of `THREADS` is divided among its warps: of a tile of `ROWS`×`COLS`, each has 32 rows and `ACROSS` times 8 columns.
struct Division<const ROWS: u32, const COLS: u32, const THREADS: u32, const ACROSS: usize>;

/// The division of the kernels with large tiles: as drawn above.
type Large = Division<128, 256, 256, 16>;
/// The tile of a block of a kernel that does not say another one in its name.
pub const SHAPE: TileShape = Large::SHAPE;

/// The division of the kernels with medium tiles: four warps of 32×32, and so little of everything that a multiprocessor has three blocks.
type Medium = Division<64, 64, 128, 4>;
/// The tile of a block of a kernel with `64x64` in its name, for short sums: while a block waits, others multiply.
pub const SHAPE_64X64: TileShape = Medium::SHAPE;

/// The division of the kernels with fp64 sums, which take twice the registers: warps of 32×64.
type Wide = Division<128, 128, 256, 8>;
/// The tile of a block of a kernel with `128x128` in its name.
pub const SHAPE_128X128: TileShape = Wide::SHAPE;
const _: () = assert!(Large::MEMORY.bytes <= 99 << 10, "what every GPU has");

/// The steps whose copies may be under way when another one is waited for.
const PENDING: u32 = 2;
/// The steps that are in shared memory at a time.
const STAGES: u32 = PENDING + 2;

/// The elements that a warp stages in shared memory at a time, in the epilogue.
const STAGED: u32 = WARP_ROWS * BLOCK_LINES;

/// The dynamic shared memory of a block.
struct Memory {
    stages: SharedArray<f32>,
    bytes: u32,
}

/// The accumulators of a warp: by tile of 16 rows and by tile of 8 columns, as tensor cores have them.
type Accumulators<S, const ACROSS: usize> = [[[S; 4]; ACROSS]; DOWN];

/// A kernel for each layout of A and B and each precision.
macro_rules! kernels {
    ($(
        $name:ident, $division:ident $block:literal $min_blocks:literal, $scheme:ident, $a:ident $a_contiguous:ident,
        $b:ident $b_contiguous:ident, $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = $min_blocks,
            dynamic_shared = $division::MEMORY.bytes,
            requires(
                gemm.a().first().$a_contiguous(),
                gemm.b().first().$b_contiguous(),
                gemm.blocks($division::SHAPE) <= MAX_BLOCKS,
                !<$scheme as Scheme>::Sum::HAS_LOW_PART || gemm.splits() == 1 || gemm.c().is_followed_by_as_many()
            )
        )]
        pub fn $name(gemm: TiledGemm<'_>) {
            // SAFETY: a block of 256 threads, all of which come here, with the shared memory that the kernel names; the
            // layouts are as the launch has checked.
            unsafe { $division::multiply::<$scheme, $a, $b, _>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid($division::SHAPE)
            }
        }
    )* };
}

/// The four layouts of one division and one precision.
macro_rules! layouts {
    ($division:ident $block:literal $min_blocks:literal, $scheme:ident, $precision:literal, $nn:ident $nt:ident $tn:ident $tt:ident) => {
        kernels! {
            $nn, $division $block $min_blocks, $scheme, KMajor is_contiguous_along_rows, MnMajor is_contiguous_along_rows,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A and B row-major.");
            $nt, $division $block $min_blocks, $scheme, KMajor is_contiguous_along_rows, KMajor is_contiguous_along_cols,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A row-major and B column-major.");
            $tn, $division $block $min_blocks, $scheme, MnMajor is_contiguous_along_cols, MnMajor is_contiguous_along_rows,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A column-major and B row-major.");
            $tt, $division $block $min_blocks, $scheme, MnMajor is_contiguous_along_cols, KMajor is_contiguous_along_cols,
                concat!("`C = α·A·B + β·C` in ", $precision, ", with A and B column-major.");
        }
    };
}

layouts!(Large 256 1, ThreeTf32, "fp32, decomposed for three TF32 products",
    gemm_mma_nn_fp32_3xtf32 gemm_mma_nt_fp32_3xtf32 gemm_mma_tn_fp32_3xtf32 gemm_mma_tt_fp32_3xtf32);
layouts!(Medium 128 3, ThreeTf32, "fp32, decomposed for three TF32 products, by tiles of 64×64",
    gemm_mma_64x64_nn_fp32_3xtf32 gemm_mma_64x64_nt_fp32_3xtf32
    gemm_mma_64x64_tn_fp32_3xtf32 gemm_mma_64x64_tt_fp32_3xtf32);
layouts!(Wide 256 1, Fp64, "fp32, by fp64 products and sums, which are rounded to fp32 once",
    gemm_mma_128x128_nn_fp32_fp64 gemm_mma_128x128_nt_fp32_fp64
    gemm_mma_128x128_tn_fp32_fp64 gemm_mma_128x128_tt_fp32_fp64);
layouts!(Medium 128 3, Fp64, "fp32, by fp64 products and sums, which are rounded to fp32 once, by tiles of 64×64",
    gemm_mma_64x64_nn_fp32_fp64 gemm_mma_64x64_nt_fp32_fp64
    gemm_mma_64x64_tn_fp32_fp64 gemm_mma_64x64_tt_fp32_fp64);
layouts!(Large 256 1, OneTf32, "TF32, operands rounded to nearest",
    gemm_mma_nn_tf32 gemm_mma_nt_tf32 gemm_mma_tn_tf32 gemm_mma_tt_tf32);
layouts!(Large 256 1, OneBf16, "bf16, operands rounded to nearest",
    gemm_mma_nn_bf16 gemm_mma_nt_bf16 gemm_mma_tn_bf16 gemm_mma_tt_bf16);
layouts!(Large 256 1, OneFp16, "fp16, operands rounded to nearest",
    gemm_mma_nn_fp16 gemm_mma_nt_fp16 gemm_mma_tn_fp16 gemm_mma_tt_fp16);

impl<const ROWS: u32, const COLS: u32, const THREADS: u32, const ACROSS: usize> BlockSize
    for Division<ROWS, COLS, THREADS, ACROSS>
{
    const THREADS: u32 = THREADS;
}

impl<const ROWS: u32, const COLS: u32, const THREADS: u32, const ACROSS: usize> Division<ROWS, COLS, THREADS, ACROSS> {
    /// The columns of C of a warp.
    const WARP_COLS: u32 = ACROSS as u32 * 8;
    /// The blocks of columns of a warp, of which each is four tiles.
    const BLOCKS: usize = ACROSS / 4;
    /// The warps one below the other.
    const WARPS_DOWN: u32 = ROWS / WARP_ROWS;
    /// The tile of a block.
    const SHAPE: TileShape = TileShape { m: ROWS, n: COLS, k: DEPTH };

    /// The warps of a block.
    const WARPS: u32 = THREADS / warp::LANES;

    /// Whether rows of memory that begin between multiples of 16 bytes are shifted. With 128 accumulators, there are no registers for
    /// that; and a warp has more to multiply for what is copied.
    const TAKES_SHIFTS: bool = ACROSS <= 8;

    /// The elements of a stage: those of A, then those of B.
    const STAGE: u32 = (ROWS + COLS) * DEPTH;
    /// The dynamic shared memory.
    const MEMORY: Memory = {
        let mut layout = SharedLayout::new();
        let stages = layout.aligned(STAGES * Self::STAGE, 128);
        assert!(Self::WARPS * STAGED <= STAGES * Self::STAGE, "the epilogue stages its results there");
        Memory { stages, bytes: layout.bytes() }
    };

    /// The body of all kernels.
    ///
    /// # Safety
    /// Called by all threads of a block of [`Self::THREADS`] with the shared memory of [`Self::MEMORY`]; A and B are arranged
    /// as `A` and `B` say.
    #[inline(always)]
    unsafe fn multiply<'a, S: Scheme, A: Arrangement, B: Arrangement, G: TileSource<'a>>(gemm: G) {
        let Some(tile) = gemm.tile(Self::SHAPE, thread::block_idx_x()) else { return };
        // SAFETY: the caller's promise.
        let shared = unsafe { const { Self::MEMORY }.stages.slice() };
        const { assert!(Self::WARPS_DOWN * (COLS / Self::WARP_COLS) == Self::WARPS) };
        let (a, b) = Self::lines::<A, B>(&tile);
        let mut accumulators: Accumulators<S::Sum, ACROSS> = [[[S::Sum::ZERO; 4]; ACROSS]; DOWN];
        let mut scan = Scan::new();
        // SAFETY: the caller's promise; all threads of the block find the same shifts.
        let others = unsafe {
            if !Self::TAKES_SHIFTS || a.shifts(false).are_none() && b.shifts(false).are_none() {
                Self::add_steps::<S, A, B, G, false>(&gemm, &tile, &shared, &mut accumulators, &mut scan);
                Self::others::<S, G>(&gemm, Some(&shared))
            } else {
                Self::add_steps::<S, A, B, G, true>(&gemm, &tile, &shared, &mut accumulators, &mut scan);
                // Between the rows of such a stage, there is anything.
                Self::others::<S, G>(&gemm, None)
            }
        };

        // Found again, rather than kept in registers all the time.
        let Some(tile) = gemm.tile(Self::SHAPE, thread::block_idx_x()) else { return };
        if S::EXACT {
            // SAFETY: all threads come here, after the last read of a stage but for the rounds' own; the function begins with
            // a barrier.
            let again = unsafe {
                let found = scan.found_of_both(others) | found_in_sums(&accumulators);
                let found = or_of_threads::<Self, { scan::BITS }>(&shared, found);
                Again::of(&tile, Self::SHAPE, found, gemm.has_exact_selections())
            };
            let Some(tile) = gemm.tile(Self::SHAPE, thread::block_idx_x()) else { return };
            if let Some(again) = again {
                // SAFETY: all threads of the block, or none, come here; the tile is this block's alone.
                unsafe { Self::recompute(&tile, &shared, &accumulators, again) };
                return;
            }
        }
        let Some(tile) = gemm.tile(Self::SHAPE, thread::block_idx_x()) else { return };
        // SAFETY: all threads come here, or none of the block, and the tile is this block's alone.
        unsafe { Self::epilogue(&tile, &shared, &accumulators, S::Sum::to_f32) };
        if S::Sum::HAS_LOW_PART {
            // SAFETY: a launch has checked that there is room for the low parts of partial sums.
            let tile = unsafe { gemm.tile_of_low_parts(Self::SHAPE, thread::block_idx_x()) };
            if let Some(tile) = tile {
                // SAFETY: as above; the epilogue begins with a barrier.
                unsafe { Self::epilogue(&tile, &shared, &accumulators, S::Sum::low_part) };
            }
        }
    }

    /// Whether there are numbers other than zero and powers of two among those that this thread looks at, of A and of B: in the stage of the last step,
    /// or else in memory.
    ///
    /// # Safety
    /// The steps of this block's tile have been multiplied. If there is shared memory: without shifts, and nothing has been written there since.
    #[inline(always)]
    unsafe fn others<'a, S: Scheme, G: TileSource<'a>>(gemm: &G, shared: Option<&SharedSlice<f32>>) -> [bool; 2] {
        // Found again, rather than kept in registers all the time.
        let tile = if S::EXACT { gemm.tile(Self::SHAPE, thread::block_idx_x()) } else { None };
        let Some(tile) = tile else { return [false; 2] };
        let (steps, thread) = (tile.steps(Self::SHAPE), this_thread());
        if steps == 0 {
            return [false; 2];
        }
        const { assert!(THREADS <= ROWS * DEPTH && THREADS <= COLS * DEPTH, "each thread looks at one number of either") };
        let Some(shared) = shared else {
            let k = (tile.k_begin + thread / warp::LANES).min(tile.k_end - 1);
            let [row, col] = [tile.row, tile.col].map(|first| first + thread % warp::LANES);
            let (row, col) = (row.min(tile.c.rows() - 1), col.min(tile.c.cols() - 1));
            // SAFETY: inside: there is a tile, and it has terms.
            return unsafe { scan::others(&[tile.a.at(row, k)], &[tile.b.at(k, col)]) };
        };
        let place = ((steps - 1) % STAGES * Self::STAGE + thread) as usize;
        // SAFETY: the stage of the last step has numbers, or zeros, in all places.
        unsafe { scan::others(&[shared.read(place)], &[shared.skip((ROWS * DEPTH) as usize).read(place)]) }
    }

    /// The rows of A and the columns of B of a tile.
    #[inline(always)]
    fn lines<'a, A: Arrangement, B: Arrangement>(
        tile: &Tile<'a>,
    ) -> (Lines<'a, A, ROWS, THREADS>, Lines<'a, B, COLS, THREADS>) {
        (Lines::new(tile.a, tile.row), Lines::new(tile.b.transposed(), tile.col))
    }

    /// Copies and multiplies all steps of a tile, and adds the products to `accumulators`. Rows of memory may be shifted if `SHIFTED`
    /// says so: the loop of products without shifts is as short as it can be.
    ///
    /// # Safety
    /// As for [`Self::multiply`], with its shared memory, of which nothing has been used; all threads of the block call this function
    /// together.
    #[inline(always)]
    unsafe fn add_steps<'a, S: Scheme, A: Arrangement, B: Arrangement, G: TileSource<'a>, const SHIFTED: bool>(
        gemm: &G,
        tile: &Tile<'a>,
        shared: &SharedSlice<f32>,
        accumulators: &mut Accumulators<S::Sum, ACROSS>,
        scan: &mut Scan,
    ) {
        let (a, b) = Self::lines::<A, B>(tile);
        let shifts =
            if Self::TAKES_SHIFTS && !SHIFTED { [Shifts::NONE; 2] } else { [a.shifts(SHIFTED), b.shifts(SHIFTED)] };
        // The last k of a shifted line of a K-major tile are with the next step, so that this has to have arrived, and there is one
        // step more to copy.
        let is_ahead = |is_k_major, shifts: Shifts| is_k_major && !shifts.are_none();
        let ahead = u32::from(SHIFTED && (is_ahead(A::K, shifts[0]) || is_ahead(B::K, shifts[1])));
        if SHIFTED && tile.k_begin >= tile.k_end {
            return;
        }
        let (warp_row, warp_col) = Self::warp_origin(thread::thread_idx_x());
        // Pinned: it would be found out again in every round, from four numbers.
        let mut has_work = [u32::from(tile.row + warp_row < tile.c.rows() && tile.col + warp_col < tile.c.cols())];
        hint::pin(&mut has_work);

        // Round t issues the copies of step t, which begins at `k`, and multiplies step t + 1 - STAGES. How many rounds are
        // left is counted, too: the number of all would be one register more.
        let mut left = (tile.k_end - tile.k_begin).div_ceil(Self::SHAPE.k) + STAGES - 1;
        let mut round = 0;
        while left > 0 {
            // Of the copies of each round that has been, which may be none, those of the latest may still be under way.
            if ahead == 0 {
                async_copy::wait_group::<PENDING>();
            } else {
                async_copy::wait_group::<{ PENDING - 1 }>();
            }
            // SAFETY: the number of rounds is the same for all threads of the block. The barrier makes the copies of all
            // threads visible to all of them, and separates the reads of the stage that is copied to next from these copies.
            unsafe { thread::sync_threads() };
            if left + ahead >= STAGES {
                let stage = round % STAGES * Self::STAGE;
                let k = tile.k_begin + round * Self::SHAPE.k;
                // SAFETY: the stage is inside the shared memory, as is the step inside k, or beyond it. The barrier
                // above, and the one after the wait, separate the copies from reads; all are waited for, because
                // STAGES - 1 rounds follow the last one that issues copies.
                unsafe {
                    let [of_a, of_b] = gemm.operands_in_loop(tile.product, [tile.a, tile.b]);
                    a.of(of_a).copy::<S, SHIFTED>(shared, stage, k, tile.k_end, shifts[0]);
                    b.of(of_b.transposed()).copy::<S, SHIFTED>(shared, stage + ROWS * DEPTH, k, tile.k_end, shifts[1]);
                }
            }
            async_copy::commit_group();
            if round >= STAGES - 1 && has_work[0] != 0 {
                let stage = (round + 1) % STAGES * Self::STAGE;
                // SAFETY: `has_work` is the same for the warp, and the copies of this stage were waited for before the
                // barrier.
                unsafe { Self::multiply_step::<S, A, B, SHIFTED>(shared, stage, shifts, accumulators, scan) };
            }
            (round, left) = (round + 1, hint::keep_rolled(left - 1));
        }
    }

    /// The first row and the first column of the warp of a thread in the tile of the block.
    #[inline(always)]
    fn warp_origin(thread: u32) -> (u32, u32) {
        let warp = thread / warp::LANES;
        (warp % Self::WARPS_DOWN * WARP_ROWS, warp / Self::WARPS_DOWN * Self::WARP_COLS)
    }

    /// Multiplies the step in the stage that begins at `stage`, and adds the products to `accumulators`.
    ///
    /// # Safety
    /// The whole warp calls this function together; the stage is written, and a barrier separates the writes from this call.
    #[inline(always)]
    unsafe fn multiply_step<S: Scheme, A: Arrangement, B: Arrangement, const SHIFTED: bool>(
        shared: &SharedSlice<f32>,
        stage: u32,
        shifts: [Shifts; 2],
        accumulators: &mut Accumulators<S::Sum, ACROSS>,
        scan: &mut Scan,
    ) {
        let few_registers_are_left = ACROSS > 4 || S::Sum::HAS_LOW_PART;
        // The stage with the next k.
        let next = if stage + Self::STAGE < STAGES * Self::STAGE { stage + Self::STAGE } else { 0 };
        let (row, col) = Self::warp_origin(thread::thread_idx_x());
        // SAFETY: the caller's promise; the stage begins with A.
        let rows = unsafe { load::<A, SHIFTED>(shared, [stage, next], ROWS, row, shifts[0], few_registers_are_left) }
            .map(|values| S::prepare(values, scan));
        // Line 4g + 2i is row g of tile i, and line 4g + 2i + 1 is row g + 8.
        let rows = [[rows[0], rows[1]], [rows[2], rows[3]]];
        for block in 0..Self::BLOCKS {
            let first = col + block as u32 * BLOCK_LINES;
            // SAFETY: the caller's promise; B comes after A.
            let values = unsafe {
                let tiles = [stage, next].map(|stage| stage + ROWS * DEPTH);
                load::<B, SHIFTED>(shared, tiles, COLS, first, shifts[1], few_registers_are_left)
            };
            for pair in 0..2 {
                let columns = [S::prepare(values[2 * pair], scan), S::prepare(values[2 * pair + 1], scan)];
                let first = 4 * block + 2 * pair;
                let mut sums = accumulators.each_ref().map(|row| [row[first], row[first + 1]]);
                // SAFETY: the caller's promise.
                unsafe { S::add_products(&mut sums, rows, columns) };
                for i in 0..DOWN {
                    [accumulators[i][first], accumulators[i][first + 1]] = sums[i];
                }
            }
            if S::EXACT {
                // SAFETY: all lanes come here. Loads do not cross it: otherwise the compiler has those of all blocks under
                // way, for which a scheme with two parts of each operand leaves too few registers.
                unsafe { warp::sync_warp(warp::ALL_LANES) };
            }
        }
    }

    /// The epilogue of a tile with elements that are to be computed in fp32: its sums go to shared memory, as many columns at a time as a
    /// warp has.
    ///
    /// # Safety
    /// As for [`Self::epilogue`].
    #[inline(always)]
    unsafe fn recompute<S: Sum>(
        tile: &Tile<'_>,
        shared: &SharedSlice<f32>,
        accumulators: &Accumulators<S, ACROSS>,
        again: Again,
    ) {
        const {
            assert!(ROWS * Self::WARP_COLS <= STAGES * Self::STAGE, "sums take the place of the stages");
        }
        let thread = thread::thread_idx_x();
        let (g, q) = (thread % warp::LANES / 4, thread % 4);
        let (row, col) = Self::warp_origin(thread);
        let place = |row: u32, col: u32| (row * Self::WARP_COLS + col) as usize;
        let mut first = 0;
        while first < COLS {
            // SAFETY: all threads of the block come here. Each writes sums of its own; the barriers separate that from what was read
            // before, and from what is read then. The columns of a piece are multiples of 4, and no other thread has its elements.
            unsafe {
                thread::sync_threads();
                if col == first {
                    for block in 0..Self::BLOCKS {
                        for line in 0..4 {
                            for half in 0..2 {
                                let values: [f32; 4] = core::array::from_fn(|j| {
                                    accumulators[line / 2][4 * block + j][line % 2 * 2 + half].to_f32()
                                });
                                let col = block as u32 * BLOCK_LINES + q * 8 + 4 * half as u32;
                                shared.write4(place(row + g * 4 + line as u32, col), values);
                            }
                        }
                    }
                }
                thread::sync_threads();
                let region = Region { row: tile.row, col: tile.col + first, rows: ROWS, cols: Self::WARP_COLS };
                let made = |row, col| Made::Sum(shared.read(place(row, col)));
                fp32_tile::recompute(tile, region, thread, THREADS, again, made);
            }
            first = hint::keep_rolled(first + Self::WARP_COLS);
        }
    }

    /// The epilogue of the elements of C, or of a part of each, that this warp has accumulators of: a block of columns at a time, by way
    /// of shared memory, so that a warp stores whole lines of 128 bytes.
    ///
    /// # Safety
    /// All threads of the block call this function together, and none has copies under way to `shared`. No other block has
    /// this tile.
    #[inline(always)]
    unsafe fn epilogue<S: Sum>(
        tile: &Tile<'_>,
        shared: &SharedSlice<f32>,
        accumulators: &Accumulators<S, ACROSS>,
        part_of: impl Fn(S) -> f32,
    ) {
        const { assert!(matches!(S::LOADS_OF_C, 1 | 4)) };
        let thread = thread::thread_idx_x();
        let (warp, lane) = (thread / warp::LANES, thread % warp::LANES);
        let (g, q) = (lane / 4, lane % 4);
        let (row, col) = Self::warp_origin(thread);

        // SAFETY: every thread of the block comes here. What the block has read from shared memory, it has read before.
        unsafe { thread::sync_threads() };
        let mut block = 0;
        while block < Self::BLOCKS as u32 {
            // Which one it is, is asked, so that what stores stands once in the code, and no accumulator is indexed.
            for one in 0..Self::BLOCKS {
                if block != one as u32 {
                    continue;
                }
                for line in 0..4 {
                    for half in 0..2 {
                        // Line 4g + 2i + r of A is row g + 8r of tile i, and column c of tile j of a block is line 4c + j of B;
                        // this lane has the columns 2q and 2q + 1 of a tile.
                        let element = line % 2 * 2 + half;
                        let values: [f32; 4] =
                            core::array::from_fn(|j| part_of(accumulators[line / 2][4 * one + j][element]));
                        // SAFETY: inside the warp's own part, and each lane has its own rows and pieces.
                        unsafe { shared.write4(place(warp, g * 4 + line as u32, (q * 2 + half as u32) * 4), values) };
                    }
                }
            }
            // SAFETY: all threads come here.
            unsafe { warp::sync_warp(warp::ALL_LANES) };
            let (row, col) = (tile.row + row, tile.col + col + block * BLOCK_LINES);
            let threads = Together { number: lane, count: warp::LANES };
            let lines = SumLines { are_columns: false, count: WARP_ROWS, length: BLOCK_LINES };
            // SAFETY: written, before the barrier; the rows and columns of the block are this warp's alone, and begin at multiples of 4. The last
            // barrier, where there is one, separates these reads from the writes of the next block.
            unsafe {
                match S::LOADS_OF_C {
                    4 => lines.store::<4, 4, true>(tile, [row, col], threads, &StagedSums { shared, warp }),
                    _ => lines.store::<1, 1, true>(tile, [row, col], threads, &StagedSums { shared, warp }),
                }
                if block + 1 < Self::BLOCKS as u32 {
                    warp::sync_warp(warp::ALL_LANES);
                }
            }
            block = hint::keep_rolled(block + 1);
        }
    }
}

/// Where a sum is in shared memory, of those that a warp stages. Each warp has its own part, in pieces of four, of which those of neighbouring fours of
/// rows are exchanged, so that the lanes of a write meet different banks.
#[inline(always)]
fn place(warp: u32, line: u32, at: u32) -> usize {
    (warp * STAGED + line * BLOCK_LINES + (at ^ (line / 4 % 2 * 4))) as usize
}

/// The rows that a warp stages.
struct StagedSums<'a> {
    shared: &'a SharedSlice<f32>,
    warp: u32,
}

impl SumsByLines for StagedSums<'_> {
    #[inline(always)]
    #[track_caller]
    unsafe fn sums<const N: usize>(&self, line: u32, at: u32) -> [f32; N] {
        // SAFETY: inside the warp's part; pieces of four are not divided.
        unsafe { read_neighbours(self.shared, place(self.warp, line, at)) }
    }
}

/// What is [found](scan) of sums.
#[inline(always)]
pub(super) fn found_in_sums<S: Sum, const ACROSS: usize, const DOWN: usize>(
    accumulators: &[[[S; 4]; ACROSS]; DOWN],
) -> u32 {
    let mut scan = ScanOfSums::new();
    for row in accumulators {
        for tile in row {
            for &sum in tile {
                scan.see(sum.to_f32());
            }
        }
    }
    scan.found()
}
