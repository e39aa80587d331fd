//! What the roles of a block of [`decomposed`](super::decomposed) share: its tile, its warps, its stages, and its shared memory.

use blocks::block_or::BlockOr;
use blocks::ring::{ProducerConsumer, Ring};
use blocks::shared_layout::{SharedArray, SharedLayout};
use cuda_std::prelude::*;

use super::fallback::GROUP;
use super::operand::{Major, ROW};
use super::scan_schedule::ScanSchedule;
use crate::gemm::scan;
use crate::gemm::tiles::{TileShape, TiledGemm};

/// The tile of a block with so many columns: 128, 64 or 32.
///
/// # Panics
/// For any other number of columns.
pub const fn tile_of(columns: u32) -> TileShape {
    assert!(matches!(columns, 32 | 64 | 128), "a converter warp has columns of one group of 32");
    TileShape { m: ROWS, n: columns, k: ROW }
}

/// The rows of a tile.
const ROWS: u32 = 256;

/// The largest tile: that of the kernels that leave a tile mask.
pub const TILE: TileShape = tile_of(128);

const _: () = assert!(
    GROUP.is_multiple_of(TILE.m) && GROUP.is_multiple_of(TILE.n),
    "a tile is in one group of rows and of columns"
);

/// The elements of a tile of A, as loaded.
pub(super) const A_TILE: u32 = ROWS * ROW;
/// The elements of a tile of B with so many columns.
pub(super) const fn b_tile(columns: u32) -> u32 {
    columns * ROW
}
/// The elements of a raw stage.
pub(super) const fn raw_stage_len(columns: u32) -> u32 {
    A_TILE + b_tile(columns)
}
/// The stages of the second ring.
pub(super) const SECOND_STAGES: u32 = 2;
/// The warps of the consumer warpgroups.
pub(super) const CONSUMER_WARPS: u32 = 8;
/// The converter warps, each with a quarter of a tile of A and of B.
pub(super) const CONVERTER_WARPS: u32 = 4;
/// The rows of A that such a warp loads. Where A is not K-major, it loads boxes of 32 of them.
pub(super) const WARP_ROWS: u32 = ROWS / CONVERTER_WARPS;
/// The TMA box of such a warp for A.
pub const BOX_OF_A: TileShape = TileShape { m: WARP_ROWS, n: 0, k: ROW };
/// The TMA box of such a warp for B, a quarter of a tile with so many columns: of a K-major B a quarter of the columns, of
/// another one 32 columns, with as many k as make a quarter.
pub const fn box_of_b(columns: u32, b_is_k_major: bool) -> TileShape {
    let quarter = columns / CONVERTER_WARPS;
    if b_is_k_major { TileShape { m: 0, n: quarter, k: ROW } } else { TileShape { m: 0, n: 32, k: quarter } }
}
/// The first consumer warp.
pub(super) const FIRST_CONSUMER: u32 = CONVERTER_WARPS;
/// The threads of a block.
pub(super) const THREADS: u32 = (CONVERTER_WARPS + CONSUMER_WARPS) * 32;

/// The raw stages for tiles with so many columns: what there is room for. Where the high parts of B do not go in place of its numbers, there is
/// a tile for each of its two operands, which leaves room for less.
pub(super) const fn raw_stages(columns: u32, in_place: bool) -> u32 {
    let room = SHARED_WORDS - SECOND_STAGES * second_stage_len(columns, in_place);
    room / raw_stage_len(columns)
}

/// The raw stages of kernels whose operands are [shifted](super::shifted): each is filled just before it is read.
pub(super) const RAW_STAGES_OF_SHIFTED: u32 = 2;

/// The stages that TMA fills for these: what there is room for.
pub(super) const fn shifted_stages(columns: u32) -> u32 {
    let others = SECOND_STAGES * second_stage_len(columns, false) + RAW_STAGES_OF_SHIFTED * raw_stage_len(columns);
    (SHARED_WORDS - others) / shifted_stage_len(columns)
}

/// The elements of a row of memory of such a stage: those of a raw row, and up to three before them, a multiple of 16 bytes.
pub(super) const SHIFTED_ROW: u32 = ROW + 4;

/// The elements of such a stage.
pub(super) const fn shifted_stage_len(columns: u32) -> u32 {
    (ROWS + columns) * SHIFTED_ROW
}

/// The words of shared memory that there are for stages: what is left beside them is for barriers.
const SHARED_WORDS: u32 = (226 << 10) / 4;

/// The elements of a stage of the second ring.
pub(super) const fn second_stage_len(columns: u32, in_place: bool) -> u32 {
    if in_place { b_tile(columns) } else { 2 * b_tile(columns) }
}

/// What the warps of a block have [found](scan), as one.
pub(super) type Found = BlockOr<THREADS, { scan::BITS }>;

/// The shared memory of a kernel with tiles of so many columns and so many raw stages.
pub(super) struct Memory<const COLUMNS: u32, const RAW_STAGES: u32> {
    /// The raw stages, then the second ones.
    pub(super) stages: SharedArray<f32>,
    pub(super) raw: SharedArray<u64>,
    pub(super) second: SharedArray<u64>,
    pub(super) found: SharedArray<u32>,
    /// The stages that TMA fills where operands are shifted, and their barriers.
    pub(super) shifted: SharedArray<f32>,
    pub(super) shifted_barriers: SharedArray<u64>,
    pub(super) bytes: u32,
}

impl<const COLUMNS: u32, const RAW_STAGES: u32> Memory<COLUMNS, RAW_STAGES> {
    pub(super) const fn new(in_place: bool, shifted_stages: u32) -> Self {
        let mut layout = SharedLayout::new();
        Self {
            stages: layout.aligned(
                RAW_STAGES * raw_stage_len(COLUMNS) + SECOND_STAGES * second_stage_len(COLUMNS, in_place),
                1024,
            ),
            shifted: layout.aligned(shifted_stages * shifted_stage_len(COLUMNS), 128),
            shifted_barriers: layout.array(shifted_barriers(shifted_stages)),
            raw: Ring::<RAW_STAGES>::barriers(&mut layout),
            second: Ring::<SECOND_STAGES>::barriers(&mut layout),
            found: Found::words(&mut layout),
            bytes: layout.bytes(),
        }
    }
}

/// What a warp loads and copies at a time of such a stage: halves of its part of A, then that of B. Each has a barrier of its own, so that TMA loads one
/// while the warp copies another.
pub(super) const PARTS: u32 = PARTS_OF_A + 1;
/// The parts of A.
pub(super) const PARTS_OF_A: u32 = 2;

/// The barriers of so many such stages.
pub(super) const fn shifted_barriers(stages: u32) -> u32 {
    stages * CONVERTER_WARPS * PARTS
}

/// How converter warps get numbers from global memory to the raw stages.
pub(super) trait Loads: Copy {
    /// Whether the high parts of a K-major B go in place of its numbers.
    const IN_PLACE: bool;
    /// Whether the loads scan both operands on the way.
    const SCAN: bool;

    /// Prepares barriers, besides those that all have.
    ///
    /// # Safety
    /// One thread of the block calls this, before the block meets.
    unsafe fn prepare(self) {}

    /// What a converter warp does: it has the raw stages loaded, decomposes the tiles of B, and scans the operands. Returns what the scan has
    /// [found](crate::gemm::scan) of them.
    ///
    /// # Safety
    /// As for the body of the kernels; called by all lanes of the converters' warps, of which this is number `warp`.
    unsafe fn convert<A: Major, B: Major, const COLUMNS: u32, const RAW_STAGES: u32>(
        self,
        block: &Block<'_, COLUMNS, RAW_STAGES>,
        raw: &mut ProducerConsumer<RAW_STAGES>,
        warp: u32,
    ) -> u32;
}

/// What all roles of a block share.
pub(super) struct Block<'a, const COLUMNS: u32, const RAW_STAGES: u32> {
    pub(super) gemm: TiledGemm<'a>,
    pub(super) memory: SharedSlice<f32>,
    pub(super) raw: Ring<RAW_STAGES>,
    pub(super) second: Ring<SECOND_STAGES>,
    pub(super) found: Found,
    pub(super) steps: u32,
    pub(super) scans: [ScanSchedule; 2],
}
