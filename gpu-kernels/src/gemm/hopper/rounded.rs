//! Products of rounded operands, `C = α·A·B + β·C`: one product of the tensor cores, in TF32, bf16 or fp16.
//!
//! ```text
//!              A                                                     B
//!  nt   TF32   rows with k = 32, from shared memory                  columns with k = 32
//!  tt   TF32   32 rows for each of 32 k, through registers: TF32     columns with k = 32
//!              operands in shared memory have to be K-major
//!  packed      rows with k = 64, two numbers to a word               columns with k = 64, two numbers to a word
//! ```
//!
//! The frame is `pipeline`. TMA rounds TF32 operands on their way (its element type is `TFLOAT32`); those of 16 bits have been
//! packed by [`crate::pack`]. `A·B` is computed as the transpose, `Bᵀ·Aᵀ`, by `tt`; for `Aᵀ·B` one of the operands has to be copied
//! first.
//!
//! The accumulators stay in the tensor cores from the first k to the last. Tensor cores truncate them, which costs less accuracy than
//! the rounding of the operands does.
//!
//! 168 registers at launch, 240 in the consumer warpgroups; 192 KB of shared memory, one block on a multiprocessor.

use blocks::ring::Unreleased;
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Bf16, Descriptor, Format, Fp16, Sums, Tf32};

#[cfg(not(target_arch = "nvptx64"))]
use super::operand::describes;
use super::operand::{BOX, KMajor, Major, MnMajor, ROW};
#[cfg(not(target_arch = "nvptx64"))]
use super::pipeline::grid;
use super::pipeline::{
    A_TILE, CONSUMER_REGISTERS, MEMORY, PRODUCER_REGISTERS, PRODUCER_WARPS, Pipeline, PipelineConsumer, WARPGROUP_ROWS,
    tile_shape, warp_and_warpgroup,
};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm, row_of};

/// The tile of a block in TF32.
pub const TILE_TF32: TileShape = tile_shape(32);
/// The tile of a block in bf16 and fp16.
pub const TILE_HALF: TileShape = tile_shape(64);

/// The bytes of a row of 128 that one instruction multiplies.
const STEP: u32 = 32;
/// The instructions for a row.
const STEPS: u32 = 4;
/// The columns of a half, which is stored at a time.
const HALF: u32 = 128;
/// The accumulators of a thread.
const ACCUMULATORS: usize = 128;
/// The groups of eight columns of a half.
const GROUPS: usize = ACCUMULATORS / 8;

/// How A gets to the tensor cores.
trait Source: Major {
    /// Adds the product of what a stage has of A and B, for the rows of this warpgroup. Asynchronous.
    ///
    /// # Safety
    /// As for [`Sums::add`]; the stage is full.
    unsafe fn multiply<F: Format<Number = f32>>(
        accumulators: &mut [f32; ACCUMULATORS],
        memory: SharedSlice<f32>,
        offset: u32,
        warpgroup: u32,
        b: Descriptor,
    );

    /// Whether the products of a step may run while those of the next are issued: not where A is in registers, because these are those
    /// of the next step, too.
    const AHEAD: bool;

    /// The epilogue of a tile.
    ///
    /// # Safety
    /// Called by all lanes of the consumer warps, with the accumulators of their tile.
    unsafe fn epilogue(tile: &Tile<'_>, accumulators: &[f32; ACCUMULATORS]);
}

impl Source for KMajor {
    const AHEAD: bool = true;

    #[inline(always)]
    unsafe fn multiply<F: Format<Number = f32>>(
        accumulators: &mut [f32; ACCUMULATORS],
        memory: SharedSlice<f32>,
        offset: u32,
        warpgroup: u32,
        b: Descriptor,
    ) {
        let a = Descriptor::at(memory, (offset + warpgroup * WARPGROUP_ROWS * ROW) as usize);
        // SAFETY: the caller's promise.
        unsafe {
            wgmma::fence();
            for step in 0..STEPS {
                accumulators.add_shared::<F>(a.offset(step * STEP), b.offset(step * STEP));
            }
        }
    }

    #[inline(always)]
    unsafe fn epilogue(tile: &Tile<'_>, accumulators: &[f32; ACCUMULATORS]) {
        // SAFETY: the caller's promise. Rows and columns of this thread alone; columns begin at even numbers.
        unsafe {
            let (warp, warpgroup) = warp_and_warpgroup();
            let (row, col) =
                (tile.row + warpgroup * WARPGROUP_ROWS + warp * 16 + warp::lane_id() / 4, tile.col + first_col());
            let (first, second) = (squares::<0>(accumulators), squares::<1>(accumulators));
            tile.epilogue_groups_together::<2, GROUPS>(row, col, 8, row_of::<0, GROUPS>(&first));
            tile.epilogue_groups_together::<2, GROUPS>(row, col + HALF, 8, row_of::<0, GROUPS>(&second));
            tile.epilogue_groups_together::<2, GROUPS>(row + 8, col, 8, row_of::<1, GROUPS>(&first));
            tile.epilogue_groups_together::<2, GROUPS>(row + 8, col + HALF, 8, row_of::<1, GROUPS>(&second));
        }
    }
}

/// Lane 4·g + q reads k = q and q + 4 of each eight, for two neighbouring rows at a time. The 128 bytes of 32 rows for one
/// k have their eight pieces, of four rows each, exchanged by XOR with k mod 8; so that the sixteen lanes of a half
/// warp, g = 0 to 3 and q = 0 to 3, meet in no bank, lanes g and g + 2 must have pieces that differ by 4:
///
/// ```text
///  g        0  1    2  3    4  5    6  7
///  piece    p       p + 4   p + 1   p + 5        p = 0 for the even warps of 32 rows, 2 for the odd ones
/// ```
impl Source for MnMajor {
    const AHEAD: bool = false;

    #[inline(always)]
    unsafe fn multiply<F: Format<Number = f32>>(
        accumulators: &mut [f32; ACCUMULATORS],
        memory: SharedSlice<f32>,
        offset: u32,
        warpgroup: u32,
        b: Descriptor,
    ) {
        // SAFETY: all lanes come here.
        let (warp, _) = unsafe { warp_and_warpgroup() };
        let (q, row) = (warp::lane_id() % 4, first_of_two_rows(warp));
        let at = offset + warpgroup * (WARPGROUP_ROWS / 32 * BOX) + row / 32 * BOX + q * ROW + ((row % 32) ^ (q * 4));
        let mut a = [[0u32; 4]; STEPS as usize];
        // SAFETY: inside the tile, and even.
        unsafe {
            for step in 0..STEPS {
                let memory = memory.skip((step * 8 * ROW) as usize);
                let first = memory.read2(at as usize);
                let second = memory.skip((4 * ROW) as usize).read2((at ^ 16) as usize);
                a[step as usize] = [first[0], first[1], second[0], second[1]].map(f32::to_bits);
            }
            wgmma::fence();
            for step in 0..STEPS {
                accumulators.add::<F>(a[step as usize], b.offset(step * STEP));
            }
        }
    }

    #[inline(always)]
    unsafe fn epilogue(tile: &Tile<'_>, accumulators: &[f32; ACCUMULATORS]) {
        // SAFETY: as above; rows begin at even numbers, too.
        unsafe {
            let (warp, warpgroup) = warp_and_warpgroup();
            let (row, col) = (tile.row + warpgroup * WARPGROUP_ROWS + first_of_two_rows(warp), tile.col + first_col());
            tile.epilogue_squares::<GROUPS>(row, col, 8, squares::<0>(accumulators));
            tile.epilogue_squares::<GROUPS>(row, col + HALF, 8, squares::<1>(accumulators));
        }
    }
}

/// The first of the two neighbouring rows of its warpgroup that a thread has where A is not K-major.
#[inline(always)]
fn first_of_two_rows(warp: u32) -> u32 {
    let g = warp::lane_id() / 4;
    let piece = (warp % 2) * 2 + (g >> 1 & 1) * 4 + (g >> 2);
    warp / 2 * 32 + piece * 4 + (g & 1) * 2
}

/// The first column of each eight that a thread has.
#[inline(always)]
fn first_col() -> u32 {
    warp::lane_id() % 4 * 2
}

/// The body of all kernels of this module: a stage has `K` numbers of each row and column.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`MEMORY`], and with tensor maps of A, in
/// the layout that `A` says, and of B, K-major, of `gemm`, in the format `F`.
#[inline(always)]
unsafe fn multiply_rounded<A: Source, F: Format<Number = f32>, const K: u32>(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
) {
    let shape = tile_shape(K);
    // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and
    // acquire registers together.
    unsafe {
        let pipeline = Pipeline::open(MEMORY.pipeline);
        let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
        let warp = warp_number();
        if warp < PRODUCER_WARPS {
            hopper::release_registers::<PRODUCER_REGISTERS>();
            if warp == 0 {
                hopper::prefetch_tensor_map(map_a);
                hopper::prefetch_tensor_map(map_b);
                let mut block = thread::block_idx_x();
                while let Some(tile) = gemm.tile(shape, block) {
                    producer.load::<A, 1, K>(map_a, map_b, &tile, shape);
                    block += thread::grid_dim_x();
                }
            }
        } else {
            hopper::acquire_registers::<CONSUMER_REGISTERS>();
            let mut block = thread::block_idx_x();
            while let Some(tile) = gemm.tile(shape, block) {
                let mut accumulators = [0f32; ACCUMULATORS];
                multiply::<A, F>(&mut accumulators, &mut consumer, tile.steps(shape));
                // Computed again: kept through the loop, it would take registers there.
                if let Some(tile) = gemm.tile(shape, block) {
                    A::epilogue(&tile, &accumulators);
                }
                block += thread::grid_dim_x();
            }
        }
    }
}

/// The main loop of the consumers: all steps of a tile.
///
/// # Safety
/// Called by all lanes of the consumer warps.
#[inline(always)]
unsafe fn multiply<A: Source, F: Format<Number = f32>>(
    accumulators: &mut [f32; ACCUMULATORS],
    pipeline: &mut PipelineConsumer,
    steps: u32,
) {
    let mut previous: Option<Unreleased> = None;
    // SAFETY: all lanes come here. A stage is read when it is full, and released when the products that read it have
    // finished, as have the accumulators when they are read.
    unsafe {
        let (_, warpgroup) = warp_and_warpgroup();
        for _ in 0..steps {
            pipeline.wait();
            let offset = pipeline.offset();
            let b = Descriptor::at(pipeline.memory, (offset + A_TILE) as usize);
            A::multiply::<F>(accumulators, pipeline.memory, offset, warpgroup, b);
            wgmma::commit();
            let read = pipeline.advance_holding();
            if A::AHEAD {
                accumulators.wait::<1>();
                if let Some(previous) = previous {
                    previous.release();
                }
                previous = Some(read);
            } else {
                accumulators.wait::<0>();
                // The lanes have read A themselves, and one of them releases the stage for all.
                warp::sync_warp(warp::ALL_LANES);
                read.release();
            }
        }
        if A::AHEAD {
            accumulators.wait::<0>();
            if let Some(previous) = previous {
                previous.release();
            }
        }
    }
}

/// The accumulators that a thread has in the groups of half a tile: of each group of 8 columns, two in each of two rows.
#[inline(always)]
fn squares<const SECOND_HALF: usize>(accumulators: &[f32; ACCUMULATORS]) -> [[[f32; 2]; 2]; GROUPS] {
    let mut squares = [[[0.0; 2]; 2]; GROUPS];
    for group in 0..GROUPS {
        let at = SECOND_HALF * ACCUMULATORS / 2 + 4 * group;
        squares[group] = [[accumulators[at], accumulators[at + 1]], [accumulators[at + 2], accumulators[at + 3]]];
    }
    squares
}

/// Makes the entry points: all have the same parameters and differ in types.
macro_rules! entry_points {
    ($($name:ident, $a:ident, $format:ident, $tile:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = MEMORY.bytes,
            requires(
                gemm.blocks($tile) <= MAX_BLOCKS,
                describes::<$a>(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().distinct()], $tile.m, $tile.k),
                describes::<KMajor>(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().distinct()], $tile.n, $tile.k)
            )
        )]
        pub fn $name(map_a: TensorMap<'_>, map_b: TensorMap<'_>, gemm: TiledGemm<'_>, blocks: u32) {
            _ = blocks; // for the grid alone
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe.
            unsafe { multiply_rounded::<$a, $format, { $tile.k }>(map_a, map_b, gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                grid(&self.gemm, $tile, self.blocks)
            }
        }
    )* };
}

entry_points! {
    gemm_wgmma_nt_tf32, KMajor, Tf32, TILE_TF32,
        "`C = α·A·B + β·C` in TF32, A row-major and B column-major.";
    gemm_wgmma_tt_tf32, MnMajor, Tf32, TILE_TF32,
        "`C = α·A·B + β·C` in TF32, A and B column-major.";
    gemm_wgmma_packed_bf16, KMajor, Bf16, TILE_HALF,
        "`C = α·A·B + β·C` in bf16, of packed operands.";
    gemm_wgmma_packed_fp16, KMajor, Fp16, TILE_HALF,
        "`C = α·A·B + β·C` in fp16, of packed operands.";
}
