//! What the roles of a block of [`decomposed`](super::decomposed) share: its tile, its warps, its stages, and its shared memory.

use blocks::block_or::BlockOr;
use blocks::ring::Ring;
use blocks::shared_layout::{SharedArray, SharedLayout};
use cuda_std::prelude::*;

use super::fallback::GROUP;
use super::operand::ROW;
use super::underflow_scan::{NOT_FINITE, ScanSchedule, UNDERFLOW_A, UNDERFLOW_B};
use crate::gemm::tiles::{TileShape, TiledGemm};

/// The tile of a block.
pub const TILE: TileShape = TileShape { m: 256, n: 128, k: ROW };

const _: () = assert!(
    GROUP.is_multiple_of(TILE.m) && GROUP.is_multiple_of(TILE.n),
    "a tile is in one group of rows and of columns"
);

/// The elements of a tile of A, as loaded.
pub(super) const A_TILE: u32 = TILE.m * ROW;
/// The elements of a tile of B.
pub(super) const B_TILE: u32 = TILE.n * ROW;
/// The elements of a raw stage.
pub(super) const RAW_STAGE_LEN: u32 = A_TILE + B_TILE;
/// The stages of the second ring.
pub(super) const SECOND_STAGES: u32 = 2;
/// The warps of the consumer warpgroups.
pub(super) const CONSUMER_WARPS: u32 = 8;
/// The converter warps, each with a quarter of a tile of A and 32 columns of B.
pub(super) const CONVERTER_WARPS: u32 = TILE.n / 32;
/// The TMA box of such a warp for operands that are K-major. Of the others it loads boxes of 32 rows or columns.
pub const BOXES: TileShape = TileShape { m: TILE.m / CONVERTER_WARPS, n: TILE.n / CONVERTER_WARPS, k: TILE.k };
/// The first consumer warp.
pub(super) const FIRST_CONSUMER: u32 = CONVERTER_WARPS;
/// The threads of a block.
pub(super) const THREADS: u32 = (CONVERTER_WARPS + CONSUMER_WARPS) * 32;

/// What depends on the layout of B: a B that is not K-major needs a tile for each of its two operands, which leaves room for
/// one raw stage less.
pub(super) const fn raw_stages(b_is_k_major: bool) -> u32 {
    if b_is_k_major { 4 } else { 3 }
}

/// The elements of a stage of the second ring.
pub(super) const fn second_stage_len(b_is_k_major: bool) -> u32 {
    if b_is_k_major { B_TILE } else { 2 * B_TILE }
}

/// What the warps of a block have found, as one: [`UNDERFLOW_A`], [`UNDERFLOW_B`] and [`NOT_FINITE`].
pub(super) type Found = BlockOr<THREADS, 3>;
const _: () = assert!(UNDERFLOW_A | UNDERFLOW_B | NOT_FINITE == 0b111, "these are its bits");

/// The shared memory of a kernel with so many raw stages.
pub(super) struct Memory<const RAW_STAGES: u32> {
    /// The raw stages, then the second ones.
    pub(super) stages: SharedArray<f32>,
    pub(super) raw: SharedArray<u64>,
    pub(super) second: SharedArray<u64>,
    pub(super) found: SharedArray<u32>,
    pub(super) bytes: u32,
}

impl<const RAW_STAGES: u32> Memory<RAW_STAGES> {
    pub(super) const fn new(b_is_k_major: bool) -> Self {
        let mut layout = SharedLayout::new();
        Self {
            stages: layout.aligned(RAW_STAGES * RAW_STAGE_LEN + SECOND_STAGES * second_stage_len(b_is_k_major), 1024),
            raw: Ring::<RAW_STAGES>::barriers(&mut layout),
            second: Ring::<SECOND_STAGES>::barriers(&mut layout),
            found: Found::words(&mut layout),
            bytes: layout.bytes(),
        }
    }
}

/// What all roles of a block share.
pub(super) struct Block<'a, const RAW_STAGES: u32> {
    pub(super) gemm: TiledGemm<'a>,
    pub(super) memory: SharedSlice<f32>,
    pub(super) raw: Ring<RAW_STAGES>,
    pub(super) second: Ring<SECOND_STAGES>,
    pub(super) found: Found,
    pub(super) steps: u32,
    pub(super) scans: [ScanSchedule; 2],
}
