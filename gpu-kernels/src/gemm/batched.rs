//! Batches of small products, on CUDA cores: several products in a block, a team of threads for each.
//!
//! ```text
//!  products of the batch   │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │ …      tiles of 16×16: eight teams of 16 threads
//!                          └── block 0 ────────────────────┘
//!
//!  a team                      16                    each step of 16 k:
//!                         ┌─────────┐                1. every thread loads its part of the two panels, and writes it to
//!                         │ panel B │ 16 k              shared memory; a barrier
//!                16 k     └─────────┘
//!               ┌─────┐   ┌──┬──┬───┐                2. 16 times: four elements of each panel, 16 products, which are added to
//!            16 │  A  │   │4×4  …   │                   its 4×4 accumulators; a barrier
//!               └─────┘   └──┴──┴───┘
//! ```
//!
//! The idea: a product of 16×16 matrices is too small for a block, and far too small for a launch. Where matrices of a batch follow
//! each other without gaps, so do the loads of a block's teams: a warp reads whole lines of memory, however small the matrices are.
//!
//! | kernel | tile | threads of a team | products of a block | accumulators of a thread | shared memory of a block | blocks on a multiprocessor |
//! |---|---|---|---|---|---|---|
//! | `gemm_batched_4_fp32` | 4×4 | 4 | 32 | 1×4 | 4.5 KiB | 8, of at most 64 registers |
//! | `gemm_batched_8_fp32` | 8×8 | 8 | 16 | 2×4 | 8.5 KiB | 6, of at most 80 |
//! | `gemm_batched_16_fp32` | 16×16 | 16 | 8 | 4×4 | 16.5 KiB | 4, of at most 128 |
//! | `gemm_batched_32_fp32` | 32×32 | 64 | 2 | 4×4 | 16 KiB | 4, of at most 128 |
//!
//! A product that is larger than a tile has several, so any sizes are right; which kernel is best is the planner's matter. Each sum is
//! one fused operation for each k, in the order of k, as in the [naive kernels](super::basic): the same bits on every run, wherever a
//! product stands in its batch.
//!
//! **Operands** may have any strides, 0 included. A thread loads four elements that are neighbours along the shorter stride: as
//! one vector where that stride is 1 and all else allows it, else one by one.
//!
//! **Panels lie k by k in shared memory**, as the products need them. Groups of four neighbours change places from four k to the
//! next (an exclusive or), so that an operand whose neighbours differ in k is turned on the way without two threads of a warp meeting
//! in a bank. Teams of a warp begin in different banks, too.
//!
//! A block has loads of 4 to 16 KiB under way, all at a time, so that few blocks are enough to keep the memory busy. Any device.

use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::tiles::MAX_BLOCKS;
use super::tiles::{Tile, TileShape, TiledGemm};
use crate::{Matrix, MatrixBatch};

/// The threads of a block.
pub(super) const THREADS: u32 = 128;

/// The neighbours that a thread loads, and the columns of its accumulators.
const FOUR: usize = 4;

/// The tile of a team of four threads.
pub const TILE_4: TileShape = square(4);

/// The tile of a team of eight threads.
pub const TILE_8: TileShape = square(8);

/// The tile of a team of 16 threads.
pub const TILE_16: TileShape = square(16);

/// The tile of a team of 64 threads.
pub const TILE_32: TileShape = square(32);

/// A tile whose sides, and whose steps in k, are as long.
const fn square(side: u32) -> TileShape {
    TileShape { m: side, n: side, k: side }
}

/// The rows of a thread's accumulators.
pub(super) const fn rows(side: usize) -> usize {
    if side > 16 { 4 } else { side / 4 }
}

/// The threads of a team.
const fn team(side: usize) -> usize {
    side / rows(side) * (side / FOUR)
}

/// The tiles that a block computes, a team each.
pub const fn tiles_of_a_block(shape: TileShape) -> u32 {
    THREADS / team(shape.m as usize) as u32
}

/// The elements of a team's two panels, and as many more as make the next team begin in another bank.
const fn panels_len(side: usize) -> usize {
    2 * side * side + if team(side) < 32 { side } else { 0 }
}

/// The shared memory of a block.
pub(super) struct Memory {
    panels: SharedArray<f32>,
    pub(super) bytes: u32,
}

pub(super) const fn memory(side: usize) -> Memory {
    let mut layout = SharedLayout::new();
    let panels = layout.aligned(panels_len(side) as u32 * (THREADS / team(side) as u32), 16);
    Memory { panels, bytes: layout.bytes() }
}

/// The blocks of a grid.
#[cfg(not(target_arch = "nvptx64"))]
fn grid(gemm: &TiledGemm<'_>, shape: TileShape) -> Dim3 {
    crate::geometry::line_of_blocks(gemm.blocks(shape).div_ceil(tiles_of_a_block(shape).into()))
}

macro_rules! kernels {
    ($($kernel:ident, $side:literal, $loads:literal, $tile:ident, $min_blocks:literal, $tile_in_words:literal;)*) => { $(
        #[doc = concat!("`C = α·A·B + β·C` in fp32 for each product of a batch, by teams with tiles of ", $tile_in_words, ".")]
        #[kernel(block = 128, min_blocks = $min_blocks, dynamic_shared = memory($side).bytes, requires(
            gemm.splits() == 1, gemm.blocks($tile) <= MAX_BLOCKS
        ))]
        pub fn $kernel(gemm: TiledGemm<'_>) {
            // SAFETY: all threads of the block come here, with the shared memory of the tile, which nothing else uses.
            unsafe { compute::<$side, { rows($side) }, $loads, _>(&gemm, $tile) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $kernel<'_> {
            fn grid(&self) -> Dim3 {
                grid(&self.gemm, $tile)
            }
        }
    )* };
}

kernels! {
    gemm_batched_4_fp32, 4, 1, TILE_4, 8, "4×4";
    gemm_batched_8_fp32, 8, 2, TILE_8, 6, "8×8";
    gemm_batched_16_fp32, 16, 4, TILE_16, 4, "16×16";
    gemm_batched_32_fp32, 32, 4, TILE_32, 4, "32×32";
}

/// Where the teams of a block find their tiles.
pub(super) trait TeamTiles<'a>: Copy {
    /// Whether all tiles have as many k. Where they have not, a team goes on without k of its own until all teams of its block are done.
    const SAME_K: bool;

    /// Tile `number` of all products, or `None` beyond the last.
    fn tile(&self, shape: TileShape, number: u32) -> Option<Tile<'a>>;

    /// What thread `thread` of a team loads of the A and of the B of its tile.
    fn panels<const SIDE: usize, const LOADS: usize>(
        &self,
        tile: Option<Tile<'a>>,
        thread: usize,
    ) -> [Panel<'a, SIDE, LOADS>; 2];

    /// The largest k of the tiles of this block's teams, the same for all of its threads. `memory` is overwritten.
    ///
    /// # Safety
    /// All threads of the block call this function together, with four elements of `memory` that nothing else uses.
    unsafe fn largest_k(&self, tile: Option<Tile<'a>>, memory: SharedSlice<f32>) -> u32;
}

impl<'a> TeamTiles<'a> for TiledGemm<'a> {
    const SAME_K: bool = true;

    #[inline(always)]
    fn tile(&self, shape: TileShape, number: u32) -> Option<Tile<'a>> {
        self.tile_of_batch(shape, number)
    }

    #[inline(always)]
    fn panels<const SIDE: usize, const LOADS: usize>(
        &self,
        tile: Option<Tile<'a>>,
        thread: usize,
    ) -> [Panel<'a, SIDE, LOADS>; 2] {
        let a = Panel::new(self.a().transposed(), tile.map(|tile| (tile.a.transposed(), tile.row)), thread);
        let b = Panel::new(self.b(), tile.map(|tile| (tile.b, tile.col)), thread);
        [a, b]
    }

    #[inline(always)]
    unsafe fn largest_k(&self, _: Option<Tile<'a>>, _: SharedSlice<f32>) -> u32 {
        self.effective_k()
    }
}

/// The body of all kernels: each team computes a tile.
///
/// # Safety
/// Called by all threads of a one-dimensional block of [`THREADS`], launched with the [`memory`] of the side, which nothing else uses.
#[inline(always)]
pub(super) unsafe fn compute<'a, const SIDE: usize, const ROWS: usize, const LOADS: usize, G: TeamTiles<'a>>(
    gemm: &G,
    shape: TileShape,
) {
    const {
        assert!(LOADS * team(SIDE) * FOUR == SIDE * SIDE, "the threads of a team load each element of a panel once");
        assert!(ROWS == rows(SIDE), "the accumulators of a team are a tile");
    }
    let (t, teams) = (thread::thread_idx_x() as usize, THREADS / team(SIDE) as u32);
    let (this_team, t) = (t / team(SIDE), t % team(SIDE));
    // SAFETY: the caller's promise; there is room for the panels of so many teams.
    let all_panels = unsafe { memory(SIDE).panels.slice() };
    let panels = all_panels.skip(this_team * panels_len(SIDE));
    let (panel_a, panel_b) = (panels, panels.skip(SIDE * SIDE));
    let number = thread::block_idx_x() * teams + this_team as u32;

    // A team without a tile loads nothing, and multiplies zeros: it has to come to the barriers.
    let tile = gemm.tile(shape, number);
    let [mut a, mut b] = gemm.panels::<SIDE, LOADS>(tile, t);
    let mut accumulators = [[0.0; FOUR]; ROWS];
    // SAFETY: all threads of the block come here, and nothing is in shared memory yet.
    let mut left = unsafe { gemm.largest_k(tile, all_panels) };
    while left > 0 {
        // SAFETY: the panels look at what is inside their matrices, and there is room for them. All threads of the block have as many
        // steps; a barrier separates the writes of a step from its reads, and these from the writes of the next one. The rows and columns
        // are inside the panels, all of which the team has written.
        unsafe {
            // Pinned, so that places in the panels are computed in each step: kept from step to step, they would take more registers
            // than the accumulators.
            let mut numbers = [t as u32];
            hint::pin(&mut numbers);
            let t = numbers[0] as usize;
            let (row, col) = (t / (SIDE / FOUR) * ROWS, t % (SIDE / FOUR) * FOUR);
            (a.thread, b.thread) = (t, t);
            let loaded = (a.load(), b.load());
            a.store(panel_a, loaded.0);
            b.store(panel_b, loaded.1);
            thread::sync_threads();
            let own = if G::SAME_K { left } else { a.left_k() };
            multiply::<SIDE, ROWS>(&mut accumulators, panel_a, panel_b, row, col, own);
            a.advance();
            b.advance();
            left = left.saturating_sub(SIDE as u32);
            if left > 0 {
                thread::sync_threads();
            }
        }
    }

    // Found again rather than kept until now, which would take registers.
    let mut again = [number];
    hint::pin(&mut again);
    let (row, col) = (t / (SIDE / FOUR) * ROWS, t % (SIDE / FOUR) * FOUR);
    if let Some(tile) = gemm.tile(shape, again[0]) {
        let rows = core::array::from_fn(|i| tile.row + (row + i) as u32);
        // SAFETY: the column is a multiple of four, as that of the tile is; no other thread has these elements.
        unsafe { tile.epilogue_rows::<4, ROWS>(rows, tile.col + col as u32, accumulators) };
    }
}

/// Where in a panel the element of this k and this row of A, or column of B, is.
#[inline(always)]
fn place<const SIDE: usize>(k: usize, x: usize) -> usize {
    let groups = SIDE / FOUR;
    k * SIDE + (((x / FOUR) ^ (k / FOUR)) & (groups - 1)) * FOUR + x % FOUR
}

/// What a thread loads of the panels of an operand, one after the other: fours of neighbours, in lines.
pub(super) struct Panel<'a, const SIDE: usize, const LOADS: usize> {
    data: GlobalSlice<'a, f32>,
    /// Where this thread's first element of the panel is.
    offset: u64,
    /// From line to line, and from neighbour to neighbour.
    strides: [u64; 2],
    /// How many lines, and how many neighbours, the operand has from the panel's first on.
    left: [u32; 2],
    /// Whether neighbours are of different k: else lines are.
    along_k: bool,
    /// Whether four neighbours are one aligned vector.
    has_vectors: bool,
    thread: usize,
}

impl<'a, const SIDE: usize, const LOADS: usize> Panel<'a, SIDE, LOADS> {
    /// The first panel of one of these matrices, whose rows are k, from a column on; or a panel of zeros. How it is loaded is the same
    /// for all matrices of the batch, so that the threads of a block come to the same barriers.
    #[inline(always)]
    pub(super) fn new(batch: MatrixBatch<'a>, operand: Option<(Matrix<'a>, u32)>, thread: usize) -> Self {
        let matrix = batch.first();
        let (k_stride, stride) = (matrix.row_stride(), matrix.col_stride());
        let along_k = k_stride < stride;
        let (strides, neighbours) =
            if along_k { ([stride, k_stride], matrix.rows()) } else { ([k_stride, stride], matrix.cols()) };
        let has_vectors = strides[1] == 1
            && neighbours & 3 == 0
            && matrix.has_lines_of_vectors(strides[0])
            && (batch.count() <= 1 || batch.stride() & 3 == 0);
        let (data, first, [k, others]) = match operand {
            Some((matrix, first)) => (matrix.data(), first, [matrix.rows(), matrix.cols() - first]),
            None => (matrix.data(), 0, [0; 2]),
        };
        let left = if along_k { [others, k] } else { [k, others] };
        let (line, from) = position::<SIDE>(thread, 0);
        let offset = u64::from(first) * stride + line as u64 * strides[0] + from as u64 * strides[1];
        Self { data, offset, strides, left, along_k, has_vectors, thread }
    }

    /// How many k there are from the panel's first on.
    #[inline(always)]
    fn left_k(&self) -> u32 {
        if self.along_k { self.left[1] } else { self.left[0] }
    }

    /// Goes to the next k.
    #[inline(always)]
    fn advance(&mut self) {
        let side = SIDE as u32;
        if self.along_k {
            self.offset += u64::from(side) * self.strides[1];
            self.left[1] = self.left[1].saturating_sub(side);
        } else {
            self.offset += u64::from(side) * self.strides[0];
            self.left[0] = self.left[0].saturating_sub(side);
        }
    }

    /// Loads this thread's part of the panel, with zeros outside the operand. All of it is under way at a time.
    ///
    /// # Safety
    /// As for every access to an operand: its view is valid.
    #[inline(always)]
    #[track_caller]
    unsafe fn load(&self) -> [[f32; FOUR]; LOADS] {
        let mut loaded = [[0.0; FOUR]; LOADS];
        for load in 0..LOADS {
            let (line, from) = position::<SIDE>(self.thread, load);
            let place = self.offset + (load * team(SIDE) / (SIDE / FOUR)) as u64 * self.strides[0];
            let neighbours = if (line as u32) < self.left[0] { self.left[1].saturating_sub(from as u32) } else { 0 };
            if self.has_vectors {
                if neighbours > 0 {
                    // SAFETY: inside the operand: the line is, and the first of the four, which is a multiple of four, as the number of
                    // neighbours is. Aligned, as `has_vectors` says.
                    loaded[load] = unsafe { self.data.get4_unchecked(place as usize) };
                }
            } else {
                for i in 0..FOUR {
                    if (i as u32) < neighbours {
                        let place = place + i as u64 * self.strides[1];
                        // SAFETY: inside the operand, as just compared.
                        loaded[load][i] = unsafe { self.data.get_unchecked(place as usize) };
                    }
                }
            }
        }
        loaded
    }

    /// Writes this thread's part of the panel to shared memory.
    ///
    /// # Safety
    /// The panel lies within `panel`, aligned to four elements, and barriers separate this from reads.
    #[inline(always)]
    #[track_caller]
    unsafe fn store(&self, panel: SharedSlice<f32>, loaded: [[f32; FOUR]; LOADS]) {
        for load in 0..LOADS {
            let (line, from) = position::<SIDE>(self.thread, load);
            // SAFETY: inside the panel, and this thread's own; the first of four neighbours is a multiple of four.
            unsafe {
                if self.along_k {
                    for i in 0..FOUR {
                        panel.write(place::<SIDE>(from + i, line), loaded[load][i]);
                    }
                } else {
                    panel.write4(place::<SIDE>(line, from), loaded[load]);
                }
            }
        }
    }
}

/// Which line of a panel the four elements of load `load` are in, and the first of them in it.
#[inline(always)]
fn position<const SIDE: usize>(thread: usize, load: usize) -> (usize, usize) {
    let i = thread + load * team(SIDE);
    (i / (SIDE / FOUR), i % (SIDE / FOUR) * FOUR)
}

/// Adds the products of `left` k, or of those of a panel, to the accumulators, in order.
///
/// # Safety
/// The panels have been written, those k beyond `left` with zeros, and barriers separate this from writes. `row` is a multiple of
/// `ROWS`, and `col` of four; both are inside the panels.
#[inline(always)]
#[track_caller]
unsafe fn multiply<const SIDE: usize, const ROWS: usize>(
    accumulators: &mut [[f32; FOUR]; ROWS],
    panel_a: SharedSlice<f32>,
    panel_b: SharedSlice<f32>,
    row: usize,
    col: usize,
    left: u32,
) {
    let mut groups = left.min(SIDE as u32).div_ceil(FOUR as u32);
    let mut first = 0;
    while groups > 0 {
        for i in 0..FOUR {
            // SAFETY: the caller's promise.
            let (a, b) = unsafe {
                let at = place::<SIDE>(first + i, row);
                let a: [f32; ROWS] = match ROWS {
                    1 => [panel_a.read(at); ROWS],
                    2 => vector(panel_a.read2(at)),
                    _ => vector(panel_a.read4(at)),
                };
                (a, panel_b.read4(place::<SIDE>(first + i, col)))
            };
            for row in 0..ROWS {
                for col in 0..FOUR {
                    accumulators[row][col] = math::fma(a[row], b[col], accumulators[row][col]);
                }
            }
        }
        first += FOUR;
        groups = hint::keep_rolled(groups - 1);
    }
}

/// An array as one of as many elements, whose number is not known by the same name.
#[inline(always)]
fn vector<const FROM: usize, const TO: usize>(elements: [f32; FROM]) -> [f32; TO] {
    core::array::from_fn(|i| elements[i % FROM])
}
