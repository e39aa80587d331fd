//! The warp-specialized frame that [`rounded`](super::rounded), [`fp16_pairs`](super::fp16_pairs), [`staged_pairs`](super::staged_pairs) and
//! [`short_k`](super::short_k) share: one producer warp issues TMA loads into a ring of stages, and two consumer warpgroups run
//! `wgmma` straight from shared memory.
//!
//! ```text
//!  global memory                    a stage, of 3 or 4                        registers
//!
//!  A: 128 rows of 128 bytes    ──►  ┌──────────┐                              consumer warpgroup 0: 64×256 accumulators,
//!  B: 256 columns of 128 bytes ──►  │ A    16K │ ─────────────────────────►   rows 0 to 63
//!             TMA                   │ B    32K │      tensor cores            consumer warpgroup 1: rows 64 to 127
//!             (warp 0)              └──────────┘
//! ```
//!
//! Blocks are persistent: there are as many as the GPU runs at a time, and block b computes the tiles b, b + blocks, and so on. While
//! the consumers are in the epilogue of a tile, TMA fills the stages for the next one.
//!
//! Warps 1 to 3 have nothing to do, but for two that store results in `staged_pairs` and `short_k`: registers are moved between whole
//! warpgroups, and the first one gives up all but 24 for each thread, so that consumers have 240.
//!
//! Source of the roles: V. Thakkar et al., CUTLASS 3, "warp-specialized" kernels.

use blocks::ring::{Consumer, Producer, Ring, TmaStage, Unreleased};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{uniform, warp_number};
use cuda_std::hopper;
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{Dim3, TileElement, TileSwizzle};

use super::operand::{BOX, KMajor, Major, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::TiledGemm;
use crate::gemm::tiles::{Tile, TileShape};

/// The rows of a tile of C.
pub(super) const M: u32 = 128;
/// The columns of a tile of C.
pub(super) const N: u32 = 256;
/// The rows of C of a consumer warpgroup.
pub(super) const WARPGROUP_ROWS: u32 = 64;

/// The words of 32 bits of a tile of A.
pub(super) const A_TILE: u32 = M * ROW;
/// The words of a stage.
const STAGE_LEN: u32 = A_TILE + N * ROW;
/// The number of stages, where not much else needs the memory.
pub(super) const STAGES: u32 = 4;
/// The warps of the warpgroup of which one is the producer.
pub(super) const PRODUCER_WARPS: u32 = 4;
/// Their registers, for each thread.
pub(super) const PRODUCER_REGISTERS: u32 = 24;
/// The registers of a consumer thread: 128·24 + 256·240 are the 384·168 of the launch.
pub(super) const CONSUMER_REGISTERS: u32 = 240;
/// The warps of the consumer warpgroups.
pub(super) const CONSUMER_WARPS: u32 = 8;

/// The shared memory of a pipeline with `RING` stages.
pub(super) struct PipelineMemory<const RING: u32> {
    stages: SharedArray<f32>,
    barriers: SharedArray<u64>,
}

impl<const RING: u32> PipelineMemory<RING> {
    /// Adds it to the shared memory of a kernel.
    pub(super) const fn new(layout: &mut SharedLayout) -> Self {
        Self { stages: layout.aligned(RING * STAGE_LEN, 1024), barriers: Ring::<RING>::barriers(layout) }
    }
}

/// The shared memory of a kernel that has a pipeline with the usual number of stages, and nothing else.
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

/// The tile of C of a block whose K-blocks are `k` deep.
pub(super) const fn tile_shape(k: u32) -> TileShape {
    TileShape { m: M, n: N, k }
}

/// The grid for tiles of this shape, of no more than `blocks` blocks.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn grid(gemm: &TiledGemm<'_>, shape: TileShape, blocks: u32) -> Dim3 {
    let grid = gemm.grid(shape);
    Dim3 { x: grid.x.min(blocks.max(1)), ..grid }
}

/// Whether a tensor map is of the results of `gemm`, in boxes of so many columns and rows.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn stores_results_of(
    map: &TensorMapMut<'_>,
    gemm: &TiledGemm<'_>,
    box_: [u32; 2],
    swizzle: TileSwizzle,
) -> bool {
    let (c, layout) = (gemm.c(), map.layout());
    let extents = [gemm.n(), gemm.m(), c.count()].map(u64::from);
    let strides = [1, c.first().row_stride(), c.stride()];
    map.address() == c.first().data().as_mut_ptr().addr()
        && layout.element == TileElement::Bytes4
        && layout.extents == extents
        // (Where there is one line, or one matrix, nothing lies a stride further on.)
        && (0..3).all(|i| extents[i] <= 1 || layout.byte_strides[i] == 4 * strides[i])
        && layout.tile == [box_[0], box_[1], 1]
        && layout.swizzle == swizzle
}

/// The stages of a block, and the ring of them.
#[derive(Clone, Copy)]
pub(super) struct Pipeline<const RING: u32 = STAGES> {
    memory: SharedSlice<f32>,
    ring: Ring<RING>,
}

/// What the producer leaves beside a stage, or loads with it. `number` counts the stages of a tile.
pub(super) trait Beside {
    /// The bytes that [`Beside::load`] has TMA load with this stage.
    #[inline(always)]
    fn bytes(&self, _number: u32) -> u32 {
        0
    }

    /// Leaves something beside stage `stage` of the ring, which is acquired: what is written to shared memory is seen by those who have
    /// waited for the stage.
    ///
    /// # Safety
    /// One lane of the producer warp calls this.
    #[inline(always)]
    unsafe fn write(&self, _stage: u32) {}

    /// Issues the loads to stage `stage` of the ring, which is acquired and counts their bytes.
    ///
    /// # Safety
    /// All lanes of the producer warp come here; those of one are to issue each load.
    #[inline(always)]
    unsafe fn load(&self, _stage: u32, _number: u32, _to: TmaStage) {}
}

/// Nothing.
impl Beside for () {}

/// The pipeline for the producer warp.
pub(super) struct PipelineProducer<const RING: u32> {
    memory: SharedSlice<f32>,
    ring: Producer<RING>,
}

/// The pipeline for a consumer warp.
#[derive(Clone, Copy)]
pub(super) struct PipelineConsumer<const RING: u32 = STAGES> {
    pub(super) memory: SharedSlice<f32>,
    ring: Consumer<RING>,
}

impl<const RING: u32> Pipeline<RING> {
    /// Prepares the block. From then on, the warps below [`PRODUCER_WARPS`] have [`PRODUCER_REGISTERS`], of which warp 0 is the
    /// producer, and the others have [`CONSUMER_REGISTERS`] and are consumers.
    ///
    /// # Safety
    /// Called once by all threads of a block of 384; as for [`SharedArray::slice`].
    #[inline(always)]
    pub(super) unsafe fn open(memory: PipelineMemory<RING>) -> Self {
        // SAFETY: the caller's promise; one thread prepares the barriers, and all wait for it.
        unsafe {
            let pipeline = Self { memory: memory.stages.slice(), ring: Ring::new(memory.barriers) };
            if thread::thread_idx_x() == 0 {
                pipeline.ring.init(1, CONSUMER_WARPS);
                hopper::fence_barrier_init();
            }
            thread::sync_threads();
            pipeline
        }
    }

    /// The pipeline for the producer warp.
    #[inline(always)]
    pub(super) fn producer(&self) -> PipelineProducer<RING> {
        PipelineProducer { memory: self.memory, ring: self.ring.producer() }
    }

    /// The pipeline for a consumer warp.
    #[inline(always)]
    pub(super) fn consumer(&self) -> PipelineConsumer<RING> {
        PipelineConsumer { memory: self.memory, ring: self.ring.consumer() }
    }
}

impl<const RING: u32> PipelineProducer<RING> {
    /// Issues the TMA loads of a tile, as [`PipelineProducer::load_with`], and nothing else.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn load<A: Major, const STAGES_OF_STEP: u32, const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.load_with::<A, STAGES_OF_STEP, ELEMENTS>(map_a, map_b, tile, shape, &()) }
    }

    /// Issues the TMA loads of a tile, `ELEMENTS` elements of each row and column to a stage, and what is to be beside it. A K-step of the
    /// tile takes `STAGES_OF_STEP` stages.
    ///
    /// # Safety
    /// Called by all lanes of the producer warp; the maps are of A and B of the products, in the layouts that the kernel
    /// needs. B is K-major.
    #[inline(always)]
    pub(super) unsafe fn load_with<A: Major, const STAGES_OF_STEP: u32, const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
        beside: &impl Beside,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.load_from::<A, STAGES_OF_STEP, ELEMENTS>(map_a, map_b, tile, shape, [0; 2], beside) }
    }

    /// Issues the TMA loads of a tile, as [`PipelineProducer::load`], one stage for each K-step, from elements further on in the rows of A
    /// and in the columns of B: so many.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn load_planes<const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
        skipped: [u32; 2],
    ) {
        // SAFETY: the caller's promise; all lanes come here.
        unsafe {
            let skipped = skipped.map(|value| uniform(value));
            self.load_from::<KMajor, 1, ELEMENTS>(map_a, map_b, tile, shape, skipped, &());
        }
    }

    /// The loads of a tile, from elements further on.
    ///
    /// # Safety
    /// As for [`PipelineProducer::load_with`]; all lanes have the same numbers of elements.
    #[inline(always)]
    unsafe fn load_from<A: Major, const STAGES_OF_STEP: u32, const ELEMENTS: u32>(
        &mut self,
        map_a: TensorMap<'_>,
        map_b: TensorMap<'_>,
        tile: &Tile<'_>,
        shape: TileShape,
        skipped: [u32; 2],
        beside: &impl Beside,
    ) {
        // TMA takes its operands from uniform registers.
        // SAFETY: all lanes come here.
        let [row, col, first] =
            [tile.row, tile.col, tile.k_begin / shape.k * STAGES_OF_STEP].map(|value| unsafe { uniform(value) });
        // SAFETY: likewise.
        let [number_of_a, number_of_b] = tile.matrices.map(|value| unsafe { uniform(value) });
        for step in 0..STAGES_OF_STEP * tile.steps(shape) {
            let (offset, stage) = (self.ring.stage() * STAGE_LEN, self.ring.tma_stage());
            let [k, k_of_b] = skipped.map(|skipped| skipped + (first + step) * ELEMENTS);
            // SAFETY: the stage is acquired, and is full when all its bytes have come. Boxes lie at multiples of 4 KB. One lane of
            // the warp issues each load.
            unsafe {
                self.ring.acquire();
                if hopper::elect_one() {
                    beside.write(self.ring.stage());
                    stage.commit_bytes(STAGE_LEN * 4 + beside.bytes(step));
                }
                beside.load(self.ring.stage(), step, stage);
                if A::K {
                    if hopper::elect_one() {
                        stage.load_tile(self.memory, offset as usize, map_a, [k, row, number_of_a]);
                    }
                } else {
                    for i in 0..M / 32 {
                        if hopper::elect_one() {
                            let offset = (offset + i * BOX) as usize;
                            stage.load_tile(self.memory, offset, map_a, [row + i * 32, k, number_of_a]);
                        }
                    }
                }
                if hopper::elect_one() {
                    stage.load_tile(self.memory, (offset + A_TILE) as usize, map_b, [k_of_b, col, number_of_b]);
                }
            }
            self.ring.advance();
        }
    }
}

impl<const RING: u32> PipelineConsumer<RING> {
    /// The number of the next stage.
    #[inline(always)]
    pub(super) fn stage(&self) -> u32 {
        self.ring.stage()
    }

    /// Where the next stage begins.
    #[inline(always)]
    pub(super) fn offset(&self) -> u32 {
        self.ring.stage() * STAGE_LEN
    }

    /// Waits until the next stage is full.
    ///
    /// # Safety
    /// As for [`Consumer::wait`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn wait(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.wait() }
    }

    /// Releases the next stage.
    ///
    /// # Safety
    /// As for [`Consumer::release`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.release() }
    }

    /// The pipeline one stage further on.
    #[inline(always)]
    pub(super) fn next(mut self) -> Self {
        self.ring.advance();
        self
    }

    /// On to the stage after the next.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.ring.advance();
    }

    /// On to the stage after the next. The result is the one before, to be released when what reads it has finished.
    #[inline(always)]
    pub(super) fn advance_holding(&mut self) -> Unreleased {
        self.ring.advance_holding()
    }
}

/// The number of this consumer warp among the four of its warpgroup, and of its warpgroup among the consumers'.
///
/// # Safety
/// All lanes of a consumer warp come here.
#[inline(always)]
pub(super) unsafe fn warp_and_warpgroup() -> (u32, u32) {
    // SAFETY: all lanes come here.
    let warp = unsafe { warp_number() };
    (warp % 4, warp / 4 - PRODUCER_WARPS / 4)
}
