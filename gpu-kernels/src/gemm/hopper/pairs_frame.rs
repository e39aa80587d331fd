//! What the kernels of [`super::fp16_pairs`] and [`super::staged_pairs`] have in common: their tile, the beginning of their shared memory, and the
//! factors of a K-step, from where TMA loads them to where a thread multiplies by them.
//!
//! ```text
//!  shared memory    │ stages, barriers │ factors: of 128 rows, of 256 columns; for each K-step (two stages) │ what a kernel has besides
//!
//!  producer         TMA loads the factors with the first stage of a K-step, to the same barrier
//!  consumers        a thread reads those of its rows (exponents) and of its columns, two to a word
//! ```

use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::ping_pong;
use blocks::ring::TmaStage;
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::uniform;
use cuda_std::hopper;
use cuda_std::prelude::*;

use super::pipeline::{Beside, PipelineMemory, STAGES, tile_shape, warp_and_warpgroup};
use super::promotion::ColFactors;
use crate::gemm::tiles::{Tile, TileShape};
use crate::pack::pairs::BLOCK;

/// The tile of a block.
pub const TILE: TileShape = tile_shape(64);

/// The columns of what a warpgroup multiplies at a time, and the rows.
pub(super) const HALF: u32 = 128;
pub(super) const HALF_ROWS: u32 = 64;
/// The fp16 numbers of a stage: a high and a low part for each k.
pub(super) const ELEMENTS: u32 = 64;
/// The stages of a K-step, with k = 32 each.
pub(super) const STAGES_OF_STEP: u32 = 2;

/// What the shared memory of each kernel begins with, and its first named barriers.
pub(super) struct Frame {
    pub(super) pipeline: PipelineMemory<STAGES>,
    /// For each K-step that there are stages for, the words with the factors of the rows of A, then those of the columns of B.
    factors: SharedArray<f32>,
    /// For the turns of the consumer warpgroups.
    pub(super) turns: NamedBarriers<2, { ping_pong::THREADS }>,
}

/// The frame, and the shared memory and the named barriers behind it, for what a kernel has besides.
pub(super) const fn begin() -> (Frame, SharedLayout, NamedBarrierIds) {
    let mut layout = SharedLayout::new();
    // SAFETY: a kernel has those of the frame, which are the first ones of every call, and those that its constants take from what one call returns.
    let mut ids = unsafe { NamedBarrierIds::new() };
    let pipeline = PipelineMemory::new(&mut layout);
    // Where TMA loads to begins at a multiple of 128 bytes.
    let factors = layout.aligned(STAGES / STAGES_OF_STEP * FACTORS, 128);
    (Frame { pipeline, factors, turns: ids.group() }, layout, ids)
}

/// The frame of all kernels.
pub(super) const FRAME: Frame = begin().0;

/// The words with the factors of a K-step, two to a word.
const FACTORS: u32 = (TILE.m + TILE.n) / 2;
const _: () = assert!(TILE.k == BLOCK, "a K-step is what has a factor");

/// The factors of a tile, as the producer loads them.
pub(super) struct TileFactors<'a> {
    /// Maps of the factors of A and of B.
    maps: [TensorMap<'a>; 2],
    /// The first row and column of the tile.
    lines: [u32; 2],
    /// The first block of terms.
    block: u32,
    /// Which matrices A and B are.
    matrices: [u32; 2],
}

impl<'a> TileFactors<'a> {
    /// Those of a tile.
    ///
    /// # Safety
    /// All lanes of the warp come here.
    #[inline(always)]
    pub(super) unsafe fn of(tile: &Tile<'_>, maps: [TensorMap<'a>; 2]) -> Self {
        // TMA takes its operands from uniform registers.
        // SAFETY: the caller's promise.
        let [row, col, block] = [tile.row, tile.col, tile.k_begin / TILE.k].map(|value| unsafe { uniform(value) });
        // SAFETY: likewise.
        let matrices = tile.matrices.map(|value| unsafe { uniform(value) });
        Self { maps, lines: [row, col], block, matrices }
    }
}

impl Beside for TileFactors<'_> {
    #[inline(always)]
    fn bytes(&self, number: u32) -> u32 {
        if number.is_multiple_of(STAGES_OF_STEP) { FACTORS * 4 } else { 0 }
    }

    #[inline(always)]
    unsafe fn load(&self, stage: u32, number: u32, to: TmaStage) {
        if !number.is_multiple_of(STAGES_OF_STEP) {
            return;
        }
        let at = [0, TILE.m / 2].map(|first| (stage / STAGES_OF_STEP * FACTORS + first) as usize);
        let block = self.block + number / STAGES_OF_STEP;
        for i in 0..2 {
            // SAFETY: a producer has the shared memory of `FRAME`; there is room for the factors of a step beside its first stage,
            // which is acquired. One lane issues each load.
            unsafe {
                if hopper::elect_one() {
                    to.load_tile(
                        FRAME.factors.slice(),
                        at[i],
                        self.maps[i],
                        [self.lines[i] / 2, block, self.matrices[i]],
                    );
                }
            }
        }
    }
}

/// The factors of a K-step that a thread of a consumer warp multiplies by.
#[derive(Clone, Copy)]
pub(super) struct StepFactors {
    /// From the word with the first of this thread's rows on.
    rows: SharedSlice<f32>,
    /// From the word with the first of this thread's columns on.
    cols: SharedSlice<f32>,
}

impl StepFactors {
    /// Those beside stage `stage`.
    ///
    /// # Safety
    /// All lanes of a consumer warp come here, and the block has the shared memory of [`FRAME`].
    #[inline(always)]
    pub(super) unsafe fn beside(stage: u32) -> Self {
        // SAFETY: the caller's promise.
        let (factors, (row, col)) = unsafe { (FRAME.factors.slice(), place_of_thread()) };
        let factors = factors.skip((stage / STAGES_OF_STEP * FACTORS) as usize);
        Self { rows: factors.skip((row / 2) as usize), cols: factors.skip(((TILE.m + col) / 2) as usize) }
    }

    /// Those of the columns.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    pub(super) unsafe fn of_cols(self) -> ColFactors {
        // SAFETY: the caller's promise; inside the factors of the step. Columns begin at even numbers.
        ColFactors(core::array::from_fn(|pair| unsafe { self.cols.read(4 * pair) }.to_bits()))
    }

    /// The exponents of those of the two rows of half `half`.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    pub(super) unsafe fn of_rows(self, half: u32) -> [u32; 2] {
        // Every second row has the upper half of a word. Rows of a thread are an even number apart.
        let shift = 7 + 16 * (warp::lane_id() / 4 % 2);
        // SAFETY: the caller's promise; inside the factors of the step.
        [0, 8].map(|row| unsafe { self.rows.read(((half * HALF_ROWS + row) / 2) as usize) }.to_bits() >> shift & 0xFF)
    }
}

/// The first row and the first column that this thread of a consumer warp has in a tile: it also has the row eight further on, and the column
/// beside it; the same every eight columns of a half; and the same rows of the second half.
///
/// # Safety
/// All lanes of a consumer warp come here.
#[inline(always)]
unsafe fn place_of_thread() -> (u32, u32) {
    // SAFETY: the caller's promise.
    let (warp, warpgroup) = unsafe { warp_and_warpgroup() };
    let lane = warp::lane_id();
    (warp * 16 + lane / 4, warpgroup * HALF + 2 * (lane & 3))
}
