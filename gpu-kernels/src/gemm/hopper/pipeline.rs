//! A block in which the copy engine feeds tensor cores, and nothing comes between: the frame of the kernels whose operands
//! are multiplied as they were copied.
//!
//! ```text
//!  global memory                    places in shared memory, most often four  registers
//!
//!  A: 128 rows of 128 bytes    ──►  ┌──────────┐                              warpgroup 1: 64×256 sums, rows 0 to 63
//!  B: 256 columns of 128 bytes ──►  │ A    16K │ ─────────────────────────►
//!             copy engine           │ B    32K │      tensor cores            warpgroup 2: rows 64 to 127
//!             (warp 0)              └──────────┘
//! ```
//!
//! There are as many blocks as the GPU runs at a time, and each computes one tile of C after the other: block b those of
//! numbers b, b + blocks, and so on. While it completes a tile, the copy engine fills the places for the next one.
//!
//! Warps 1 to 3 have nothing to do: registers are moved between whole warpgroups, and the first one gives up all but 24 of
//! its own, so that those that multiply have 240.
//!
//! Source of the roles: V. Thakkar et al., CUTLASS 3, "warp-specialized" kernels.

use blocks::ring::{Consumer, Producer, Ring, Unreleased};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{uniform, warp_number};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;

use super::operand::{BOX, Major, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::TiledGemm;
use crate::gemm::tiles::{Tile, TileShape};

/// The rows of a tile of C.
pub(super) const M: u32 = 128;
/// The columns of a tile of C.
pub(super) const N: u32 = 256;
/// The rows of C that a warpgroup has.
pub(super) const PART: u32 = 64;

/// The words of 32 bits of a tile of A.
pub(super) const A_TILE: u32 = M * ROW;
/// The words of a place.
const PLACE: u32 = A_TILE + N * ROW;
/// The number of places, where nothing else needs the memory.
const STAGES: u32 = 4;
/// The warps of the warpgroup that loads.
pub(super) const LOADERS: u32 = 4;
/// Their registers, for each thread.
pub(super) const LOADER_REGISTERS: u32 = 24;
/// The registers of a thread that multiplies: 128·24 + 256·240 are the 384·168 of the launch.
pub(super) const MULTIPLIER_REGISTERS: u32 = 240;
/// The warps that multiply.
const MULTIPLIERS: u32 = 8;

/// The shared memory of a pipeline with `RING` places.
pub(super) struct PipelineMemory<const RING: u32> {
    places: SharedArray<f32>,
    barriers: SharedArray<u64>,
}

impl<const RING: u32> PipelineMemory<RING> {
    /// Adds it to the shared memory of a kernel.
    pub(super) const fn new(layout: &mut SharedLayout) -> Self {
        Self { places: layout.aligned(RING * PLACE, 1024), barriers: Ring::<RING>::barriers(layout) }
    }
}

/// The shared memory of a kernel that has a pipeline with the usual number of places, and nothing else.
pub(super) struct Memory {
    pub(super) pipeline: PipelineMemory<STAGES>,
    /// What the kernel is launched with.
    pub(super) bytes: u32,
}

/// The shared memory of such a kernel.
pub(super) const MEMORY: Memory = {
    let mut layout = SharedLayout::new();
    Memory { pipeline: PipelineMemory::new(&mut layout), bytes: layout.bytes() }
};

/// The tile of C of a block that loads so many terms at a time.
pub(super) const fn tile_shape(terms: u32) -> TileShape {
    TileShape { m: M, n: N, k: terms }
}

/// The grid for tiles of this shape, of no more than `blocks` blocks.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn grid(gemm: &TiledGemm<'_>, shape: TileShape, blocks: u32) -> Dim3 {
    let grid = gemm.grid(shape);
    Dim3 { x: grid.x.min(blocks.max(1)), ..grid }
}

/// The places of a block, and the ring of them.
#[derive(Clone, Copy)]
pub(super) struct Pipeline<const RING: u32 = STAGES> {
    memory: SharedSlice<f32>,
    ring: Ring<RING>,
}

/// The pipeline for the warp that loads.
pub(super) struct PipelineProducer<const RING: u32> {
    memory: SharedSlice<f32>,
    ring: Producer<RING>,
}

/// The pipeline for a warp that multiplies.
#[derive(Clone, Copy)]
pub(super) struct PipelineConsumer<const RING: u32 = STAGES> {
    pub(super) memory: SharedSlice<f32>,
    ring: Consumer<RING>,
}

impl<const RING: u32> Pipeline<RING> {
    /// Prepares the block. From then on, the warps below [`LOADERS`] have [`LOADER_REGISTERS`], of which warp 0 loads, and the
    /// others have [`MULTIPLIER_REGISTERS`] and multiply.
    ///
    /// # Safety
    /// Called once by all threads of a block of 384; as for [`SharedArray::slice`].
    #[inline(always)]
    pub(super) unsafe fn open(memory: PipelineMemory<RING>) -> Self {
        // SAFETY: the caller's promise; one thread prepares the barriers, and all wait for it.
        unsafe {
            let pipeline = Self { memory: memory.places.slice(), ring: Ring::new(memory.barriers) };
            if thread::thread_idx_x() == 0 {
                pipeline.ring.init(1, MULTIPLIERS);
                hopper::fence_barrier_init();
            }
            thread::sync_threads();
            pipeline
        }
    }

    /// The pipeline for the warp that loads.
    #[inline(always)]
    pub(super) fn producer(&self) -> PipelineProducer<RING> {
        PipelineProducer { memory: self.memory, ring: self.ring.producer() }
    }

    /// The pipeline for a warp that multiplies.
    #[inline(always)]
    pub(super) fn consumer(&self) -> PipelineConsumer<RING> {
        PipelineConsumer { memory: self.memory, ring: self.ring.consumer() }
    }
}

impl<const RING: u32> PipelineProducer<RING> {
    /// Has the copy engine fill the places for a tile, as [`PipelineProducer::load_with`], and nothing else.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn load<A: Major, const PLACES: u32, const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.load_with::<A, PLACES, ELEMENTS>(map_a, map_b, tile, shape, |_| ()) }
    }

    /// Has the copy engine fill the places for a tile, with `ELEMENTS` elements of each row and column at a time. A step of the
    /// tile takes `PLACES` of them. `note` is called by one lane for each place, with its number, when that is empty: what it writes
    /// to shared memory is seen by those who have waited for the place.
    ///
    /// # Safety
    /// Called by all lanes of the warp that loads; the maps are of A and B of the products, in the layouts that the kernel
    /// needs. B is K-major.
    #[inline(always)]
    pub(super) unsafe fn load_with<A: Major, const PLACES: u32, const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
        note: impl Fn(u32),
    ) {
        // The copy engine takes its operands from registers for the whole warp.
        // SAFETY: all lanes come here.
        let [row, col, product, first] =
            [tile.row, tile.col, tile.product, tile.k_begin / shape.k * PLACES].map(|value| unsafe { uniform(value) });
        for step in 0..PLACES * tile.steps(shape) {
            let (place, stage, k) = (self.ring.stage() * PLACE, self.ring.tma_stage(), (first + step) * ELEMENTS);
            // SAFETY: the place is empty, and counts as full when all its bytes have come. Boxes lie at multiples of 4 KB.
            // One lane of the warp has each copy made.
            unsafe {
                self.ring.acquire();
                if hopper::elect_one() {
                    note(self.ring.stage());
                    stage.commit_bytes(PLACE * 4);
                }
                if A::K {
                    if hopper::elect_one() {
                        stage.load_tile(self.memory, place as usize, map_a, [k, row, product]);
                    }
                } else {
                    for i in 0..M / 32 {
                        if hopper::elect_one() {
                            let place = (place + i * BOX) as usize;
                            stage.load_tile(self.memory, place, map_a, [row + i * 32, k, product]);
                        }
                    }
                }
                if hopper::elect_one() {
                    stage.load_tile(self.memory, (place + A_TILE) as usize, map_b, [k, col, product]);
                }
            }
            self.ring.advance();
        }
    }
}

impl<const RING: u32> PipelineConsumer<RING> {
    /// The number of the next place.
    #[inline(always)]
    pub(super) fn stage(&self) -> u32 {
        self.ring.stage()
    }

    /// Where the next place begins.
    #[inline(always)]
    pub(super) fn place(&self) -> u32 {
        self.ring.stage() * PLACE
    }

    /// Waits until the next place is full.
    ///
    /// # Safety
    /// As for [`Consumer::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.wait() }
    }

    /// Releases the next place.
    ///
    /// # Safety
    /// As for [`Consumer::release`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.release() }
    }

    /// The pipeline one place further on.
    #[inline(always)]
    pub(super) fn next(mut self) -> Self {
        self.ring.advance();
        self
    }

    /// On to the place after the next.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.ring.advance();
    }

    /// On to the place after the next. The result is the one before, to be released when what reads it has finished.
    #[inline(always)]
    pub(super) fn advance_holding(&mut self) -> Unreleased {
        self.ring.advance_holding()
    }
}

/// The number of this warp among the four of its warpgroup, and of the warpgroup among those that multiply.
///
/// # Safety
/// All lanes of a warp that multiplies come here.
#[inline(always)]
pub(super) unsafe fn warp_and_part() -> (u32, u32) {
    // SAFETY: all lanes come here.
    let warp = unsafe { warp_number() };
    (warp % 4, warp / 4 - LOADERS / 4)
}
