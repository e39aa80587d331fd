//! Sums of few terms, on CUDA cores: `C = α·A·B + β·C` in fp32 for a k of at most 8 or 16. The time is that of writing C.
//!
//! ```text
//!                                      1024 columns                          a block: 8 warps
//!                 ┌─────┬─────┬─────┬───────────────────────────────┐
//!               k │  b  │     │     │  B, in registers              │        a warp has 128 columns, and a lane all terms of four
//!                 └─────┴─────┴─────┴───────────────────────────────┘        of them, of which each is 32 after the one before
//!            k    ┌─────────────────────────────────────────────────┐
//!          ┌───┐  │ ► ► ►   row by row   ► ► ►                      │        for each row of A, which all warps read from
//!  32 rows │ A │  │                                                 │        shared memory, a lane computes the elements of its
//!          └───┘  └─────────────────────────────────────────────────┘        columns, and stores them: a block stores whole rows
//! ```
//!
//! The idea: with few terms nothing is used often, so there is no pipeline and no loop over panels. A block waits for its operands once;
//! meanwhile other blocks of the multiprocessor compute and store. Neighbouring lanes have neighbouring columns, so warps store whole
//! lines of memory wherever the rows of C begin, and one after the other as memory has them. Four terms of a row of A are one load from
//! shared memory, for all columns of a lane.
//!
//! | kernel | terms | tile | a warp at a time | for C with |
//! |---|---|---|---|---|
//! | `gemm_outer_16_fp32` | 16 | 256×16 | 8 rows | up to 16 columns |
//! | `gemm_outer_32_fp32` | 16 | 128×32 | 4 rows | some tens of columns |
//! | `gemm_outer_256_fp32` | 8 | 32×256 | 128 columns of a row | some hundreds of columns, or few rows |
//! | `gemm_outer_1024_fp32` | 16 | 32×1024 | 128 columns of a row | many columns |
//!
//! Where a warp has several rows, the four columns of a lane are neighbours, and one store where C allows it: otherwise they would
//! be stores of a part of a line each.
//!
//! A bias of the columns, a lower bound and a function, the steps of most epilogues, a thread does with the sums that it has: the biases are those of its four
//! columns. For other steps, and where C counts, too, a warp brings up to eight rows of its sums to shared memory, does the steps there (`gemm::staged_steps`), and
//! stores what each lane has written.
//!
//! Each sum is one fused operation for each term, in the order of k, as in the [naive kernels](super::basic): the same bits on every run.
//! (Terms beyond the last are the product of 0 and -0, which changes no sum, whatever its sign.) Operands may have any strides, 0
//! included. Any device.

use blocks::epilogue::{InRegisters, Steps, WithFunction};
use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use crate::Matrix;
use crate::gemm::staged_steps::StagedLines;
use crate::gemm::sum_lines::{SumLines, Together};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::{MAX_BLOCKS, steps_fit};
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The threads of a block.
const THREADS: u32 = 256;

/// The columns of a thread.
const COLUMNS: usize = 4;

/// The most loads of A that a thread has under way at a time.
const LOADS: usize = 8;

/// How a block is divided among its threads: `WIDTH` of them have a row of its tile; of rows, the block has as many at a time as there
/// are groups of such threads, and `ROWS` times as many in all.
/// Sums have at most `TERMS` terms.
struct Division<const WIDTH: u32, const ROWS: u32, const TERMS: usize>;

type Of16 = Division<4, 4, 16>;
type Of32 = Division<8, 4, 16>;
type Of256 = Division<64, 8, 8>;
type Of1024 = Division<256, 32, 16>;

/// The tile of `gemm_outer_16_fp32`.
pub const TILE_16: TileShape = Of16::TILE;
/// The tile of `gemm_outer_32_fp32`.
pub const TILE_32: TileShape = Of32::TILE;
/// The tile of `gemm_outer_256_fp32`.
pub const TILE_256: TileShape = Of256::TILE;
/// The tile of `gemm_outer_1024_fp32`.
pub const TILE_1024: TileShape = Of1024::TILE;

/// The most terms of `gemm_outer_256_fp32`, and of the others.
pub const MOST_TERMS: [u32; 2] = [Of256::MOST_TERMS, Of1024::MOST_TERMS];

macro_rules! kernels {
    ($($kernel:ident, $division:ident, $terms:literal, $min_blocks:literal, $tile_in_words:literal;)*) => { $(
        #[doc = concat!("`C = α·A·B + β·C` in fp32 for a k of at most ", $terms, ", by tiles of ", $tile_in_words, ".")]
        #[kernel(block = 256, min_blocks = $min_blocks, dynamic_shared = $division::MEMORY.bytes, requires(
            gemm.splits() == 1, gemm.a().first().cols() <= $terms, gemm.blocks($division::TILE) <= MAX_BLOCKS,
            steps_fit(&steps, &gemm)
        ))]
        pub fn $kernel(gemm: TiledGemm<'_>, steps: Steps<'_>) {
            // SAFETY: all threads of the block come here, with the shared memory of the division, which nothing else uses, and k is
            // no larger than the launch has checked, as which it has checked the steps, too.
            unsafe {
                const { assert!($division::MOST_TERMS == $terms) };
                $division::compute(&gemm, &steps)
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $kernel<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid($division::TILE)
            }
        }
    )* };
}

kernels! {
    gemm_outer_16_fp32, Of16, 16, 2, "256×16";
    gemm_outer_32_fp32, Of32, 16, 2, "128×32";
    gemm_outer_256_fp32, Of256, 8, 3, "32×256";
    gemm_outer_1024_fp32, Of1024, 16, 2, "32×1024";
}

/// The shared memory of a block: rows of A, and results of each warp.
struct Memory {
    panel: SharedArray<f32>,
    results: SharedArray<f32>,
    bytes: u32,
}

impl<const WIDTH: u32, const ROWS: u32, const TERMS: usize> Division<WIDTH, ROWS, TERMS> {
    /// The most terms of a sum.
    const MOST_TERMS: u32 = TERMS as u32;
    /// The rows that a block computes at a time.
    const GROUPS: u32 = THREADS / WIDTH;
    /// The tile of a block. (Terms are added one by one.)
    const TILE: TileShape = TileShape { m: Self::GROUPS * ROWS, n: WIDTH * COLUMNS as u32, k: 1 };
    /// The lanes of a warp that have a row of the tile.
    const LANES: u32 = if WIDTH < warp::LANES { WIDTH } else { warp::LANES };
    /// Whether a lane's columns are neighbours. Else there is one of each other lane between them.
    const NEIGHBOURS: bool = WIDTH < warp::LANES;
    /// From one of a lane's columns to the next.
    const DISTANCE: u32 = if Self::NEIGHBOURS { 1 } else { Self::LANES };
    /// From a row of the panel to the next: four more than it has terms, so that threads with neighbouring rows write to other banks.
    const PITCH: u32 = TERMS as u32 + 4;
    const MEMORY: Memory = {
        let mut layout = SharedLayout::new();
        let panel = layout.aligned(Self::TILE.m * Self::PITCH, 16);
        let results = layout.aligned(THREADS * COLUMNS as u32 * Self::STEPS_AT_ONCE, 16);
        Memory { panel, results, bytes: layout.bytes() }
    };
    /// The rows that a warp has at a time, and the columns of each.
    const WARP_ROWS: u32 = warp::LANES / Self::LANES;
    const WARP_COLUMNS: u32 = Self::LANES * COLUMNS as u32;
    /// How many times a warp computes so many rows before it does the steps of an epilogue.
    const STEPS_AT_ONCE: u32 = if ROWS < 8 { ROWS } else { 8 };

    /// The body of all kernels.
    ///
    /// # Safety
    /// Called by all threads of a one-dimensional block of [`THREADS`], launched with [`Self::MEMORY`], which nothing else uses; k is at
    /// most `TERMS`; the steps fit the results.
    #[inline(always)]
    unsafe fn compute(gemm: &TiledGemm<'_>, steps: &Steps<'_>) {
        const { assert!(Self::TILE.m.is_power_of_two() && THREADS.is_multiple_of(WIDTH)) };
        let Some(tile) = gemm.tile_by_rows(Self::TILE, thread::block_idx_x()) else { return };
        // SAFETY: the caller's promise.
        let panel = unsafe { const { Self::MEMORY }.panel.slice() };
        let (first_row, across) = (thread::thread_idx_x() / WIDTH, thread::thread_idx_x() % WIDTH);
        let (warps, lanes) = (across / Self::LANES, across % Self::LANES);
        let lanes = if Self::NEIGHBOURS { lanes * COLUMNS as u32 } else { lanes };
        let col = tile.col + warps * (Self::LANES * COLUMNS as u32) + lanes;
        let b = Self::columns(&tile, col);
        // SAFETY: the barrier separates the writes to the panel from all reads.
        unsafe {
            Self::load(panel, tile.a, tile.row, tile.k_end);
            thread::sync_threads();
        }
        let sums_of = |row: u32| {
            let mut sums = [0.0; COLUMNS];
            for four in 0..TERMS / 4 {
                if four > 0 && 4 * four as u32 >= tile.k_end {
                    break;
                }
                // SAFETY: inside the panel, all of which has been written; a row begins at a multiple of four.
                let a = unsafe { panel.read4((row * Self::PITCH) as usize + 4 * four) };
                for i in 0..4 {
                    for j in 0..COLUMNS {
                        sums[j] = math::fma(a[i], b[4 * four + i][j], sums[j]);
                    }
                }
            }
            sums
        };
        // SAFETY: all threads come here; the steps fit the results, and each thread has rows and columns of its own.
        unsafe {
            if steps.is_empty() && tile.overwrites() {
                Self::for_rows(first_row, |row| Self::store(&tile, row, col, sums_of(row)));
                return;
            }
            let (first, mut left) = steps.in_registers(tile.overwrites());
            let function = left.take_without_operand();
            if tile.overwrites() && left.is_empty() {
                let cols = core::array::from_fn(|i| col + i as u32 * Self::DISTANCE);
                let biases = first.biases(tile.product, cols, tile.c.cols());
                let tile = &tile;
                function.dispatch(InRows::<WIDTH, ROWS, TERMS, _> { tile, first, biases, first_row, col, sums_of });
            } else {
                Self::finish(&tile, steps, col, sums_of);
            }
        }
    }

    /// Computes a tile, does the steps of an epilogue, and stores the results: each warp those of neighbouring rows, some at a time. `col` is the first
    /// column of this thread, and `sums_of` makes the sums of its columns and a row of the tile.
    ///
    /// # Safety
    /// As for [`Self::compute`].
    #[inline(always)]
    unsafe fn finish(tile: &Tile<'_>, steps: &Steps<'_>, col: u32, sums_of: impl Fn(u32) -> [f32; COLUMNS]) {
        let (warp, lane) = (thread::thread_idx_x() / warp::LANES, warp::lane_id());
        // Warps that have columns of the same rows are neighbours.
        let group = warp / WIDTH.div_ceil(warp::LANES);
        let lines =
            SumLines { are_columns: false, count: Self::WARP_ROWS * Self::STEPS_AT_ONCE, length: Self::WARP_COLUMNS };
        // SAFETY: the caller's promise.
        let memory = unsafe {
            let len = lines.count * lines.length;
            const { Self::MEMORY }.results.part(warp * len, len)
        };
        let (down, own) = match Self::NEIGHBOURS {
            true => (lane / Self::LANES, lane % Self::LANES * COLUMNS as u32),
            false => (0, lane),
        };
        let place = |line: u32, at: u32| line * Self::WARP_COLUMNS + at;
        let own_place = |line: u32, i: usize| place(line, own + i as u32 * Self::DISTANCE) as usize;
        let threads = Together { number: lane, count: warp::LANES };
        let (mut first, end) = (group * ROWS * Self::WARP_ROWS, (group + 1) * ROWS * Self::WARP_ROWS);
        let finished = tile.of_finished_sums();
        loop {
            let staged = StagedLines { lines, first: [tile.row + first, col - own], memory: &memory, place };
            // SAFETY: all lanes come here. Each has places of its own, and the warp meets before and behind the steps, which other lanes do. Rows and
            // columns are this warp's alone; neighbours begin at a multiple of their number.
            unsafe {
                let mut line = down;
                while line < lines.count {
                    let sums = sums_of(first + line);
                    for i in 0..COLUMNS {
                        memory.write(own_place(line, i), sums[i]);
                    }
                    line = hint::keep_rolled(line + Self::WARP_ROWS);
                }
                warp::sync_warp(warp::ALL_LANES);
                staged.combine(tile, threads);
                staged.apply(steps.left(), tile.product, [tile.c.rows(), tile.c.cols()], threads);
                warp::sync_warp(warp::ALL_LANES);
                let mut line = down;
                while line < lines.count {
                    let values = core::array::from_fn(|i| memory.read(own_place(line, i)));
                    Self::store(&finished, first + line, col, values);
                    line = hint::keep_rolled(line + Self::WARP_ROWS);
                }
            }
            first = hint::keep_rolled(first + lines.count);
            // (Where all rows are done at once, the compiler knows that B is not needed after the sums.)
            if ROWS == Self::STEPS_AT_ONCE || first >= end {
                return;
            }
        }
    }

    /// Stores what this thread has of a row of a tile that [overwrites](Tile::overwrites) C, from column `col` on.
    ///
    /// # Safety
    /// The row and the columns are this thread's alone; neighbours begin at a multiple of their number.
    #[inline(always)]
    unsafe fn store(tile: &Tile<'_>, row: u32, col: u32, sums: [f32; COLUMNS]) {
        let row = tile.row + row;
        // SAFETY: the caller's promise.
        unsafe {
            if Self::NEIGHBOURS {
                tile.epilogue::<COLUMNS>(row, col, sums);
            } else {
                tile.epilogue_groups::<1, COLUMNS>(row, col, Self::DISTANCE, sums.map(|sum| [sum]));
            }
        }
    }

    /// Hands out this thread's rows of the tile, from its first one on.
    #[inline(always)]
    fn for_rows(first: u32, mut visit: impl FnMut(u32)) {
        let mut row = first;
        while row < Self::TILE.m {
            visit(row);
            row = hint::keep_rolled(row + Self::GROUPS);
        }
    }

    /// All terms of this thread's columns of B, from `col` on; -0 for those beyond the last, and for columns beyond the last. Four terms of a column are
    /// one load where B allows it: loads of single terms would be in few banks of the first-level cache, if columns have 8 terms.
    #[inline(always)]
    fn columns(tile: &Tile<'_>, col: u32) -> [[f32; COLUMNS]; TERMS] {
        let mut b = [[-0.0; COLUMNS]; TERMS];
        let cols: [u32; COLUMNS] = core::array::from_fn(|j| col + j as u32 * Self::DISTANCE);
        let is_there = |term: usize| (term as u32) < tile.k_end;
        let by_fours = tile.b.row_stride() == 1
            && tile.b.has_lines_of_vectors(tile.b.col_stride())
            && tile.k_end.is_multiple_of(4);
        // (Asked once: a question for each load would have it wait for the one before.)
        if !by_fours {
            for four in 0..TERMS / 4 {
                // (So that the instructions of terms which there are not are not fetched, either.)
                if four > 0 && !is_there(4 * four) {
                    break;
                }
                for term in 4 * four..4 * four + 4 {
                    for j in 0..COLUMNS {
                        if is_there(term) && cols[j] < tile.b.cols() {
                            // SAFETY: inside B, as just compared.
                            b[term][j] = unsafe { tile.b.at(term as u32, cols[j]) };
                        }
                    }
                }
            }
            return b;
        }
        for four in 0..TERMS / 4 {
            for j in 0..COLUMNS {
                if is_there(4 * four) && cols[j] < tile.b.cols() {
                    // SAFETY: inside B, as just compared: four neighbours from a multiple of 16 bytes on.
                    let terms = unsafe { tile.b.data().get4_unchecked(tile.b.offset(4 * four as u32, cols[j])) };
                    for i in 0..4 {
                        b[4 * four + i][j] = terms[i];
                    }
                }
            }
        }
        b
    }

    /// Writes the panel: the rows of A from `first` on, with zeros for terms and rows beyond the last. Neighbouring threads load what is
    /// nearer in memory, neighbouring terms or neighbouring rows.
    ///
    /// # Safety
    /// Called by all threads of the block, and a barrier separates this from reads.
    #[inline(always)]
    unsafe fn load(panel: SharedSlice<f32>, a: Matrix<'_>, first: u32, terms: u32) {
        let along_terms = a.col_stride() < a.row_stride();
        let mut number = thread::thread_idx_x();
        let place = |number: u32| match along_terms {
            true => (number / TERMS as u32, number % TERMS as u32),
            false => (number % Self::TILE.m, number / Self::TILE.m),
        };
        while number < Self::TILE.m * TERMS as u32 {
            let mut loaded = [0.0; LOADS];
            for load in 0..LOADS {
                let (row, term) = place(number + load as u32 * THREADS);
                if load < Self::LOADS && term < terms && first + row < a.rows() {
                    // SAFETY: inside A, as just compared.
                    loaded[load] = unsafe { a.at(first + row, term) };
                }
            }
            for load in 0..Self::LOADS {
                let (row, term) = place(number + load as u32 * THREADS);
                // SAFETY: inside the panel, and this thread's own: there are as many loads as all threads have of the panel, or a part
                // of them.
                unsafe { panel.write((row * Self::PITCH + term) as usize, loaded[load]) };
            }
            number = hint::keep_rolled(number + Self::LOADS as u32 * THREADS);
        }
    }

    /// The loads of A that a thread has under way at a time.
    const LOADS: usize = {
        let all = Self::TILE.m as usize * TERMS / THREADS as usize;
        assert!(all >= 1 && all.is_multiple_of(if all < LOADS { all } else { LOADS }));
        if all < LOADS { all } else { LOADS }
    };
}

/// The rows of a tile, with the first steps of an epilogue and then a function.
struct InRows<'a, const WIDTH: u32, const ROWS: u32, const TERMS: usize, F> {
    tile: &'a Tile<'a>,
    first: InRegisters<'a>,
    /// Those of this thread's columns.
    biases: [f32; COLUMNS],
    first_row: u32,
    col: u32,
    sums_of: F,
}

impl<const WIDTH: u32, const ROWS: u32, const TERMS: usize, F: Fn(u32) -> [f32; COLUMNS]> WithFunction
    for InRows<'_, WIDTH, ROWS, TERMS, F>
{
    type Result = ();

    /// # Safety
    /// As for [`Division::compute`], of a tile that overwrites C.
    #[inline(always)]
    #[track_caller]
    unsafe fn with(self, function: impl Fn(f32) -> f32) {
        let Self { tile, first, biases, first_row, col, sums_of } = self;
        let (factor, finished) = (tile.factor(), tile.of_finished_sums());
        Division::<WIDTH, ROWS, TERMS>::for_rows(first_row, |row| {
            let values = first.compute(biases, sums_of(row).map(|sum| factor * sum)).map(&function);
            // SAFETY: this thread's rows and columns.
            unsafe { Division::<WIDTH, ROWS, TERMS>::store(&finished, row, col, values) };
        });
    }
}
