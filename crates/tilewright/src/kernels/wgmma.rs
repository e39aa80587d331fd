//! Products on tensor cores that are fed by TMA, for compute capability 9.0: [`gpu_kernels::gemm::hopper`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::TensorMap;
use gpu_kernels::MatrixBatch;
use gpu_kernels::gemm::hopper::decomposed::*;
use gpu_kernels::gemm::hopper::{divided_steps, few_columns};
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};

use super::contract::{Call, Contract, KernelInfo, Performance, Stores};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use crate::Error;
use crate::description::Description;
use crate::device::{Device, TensorTile};
use crate::order::Order::{self, ColumnMajor, RowMajor};
use crate::refusal::Refusal;

/// The shares of the peak, at the model's clock, and what a block costs are fitted ([`Performance`]).
pub(super) const THREE_TF32: Common = Common {
    idea: "TMA feeds tensor cores; converter warps decompose operands for the consumers",
    scheme: Scheme::Fp32ThreeTf32,
    sums: SumOrder::Wgmma { terms: 32, as_transposes: false },
    tile: TILE,
    performance: Performance::new(1, 0.94).block(6.85).by_columns(0.965, 1.0),
};

/// Tiles of an eighth of the size, and loaded without TMA.
const SMALL_THREE_TF32: Common = Common {
    idea: "three warpgroups share a small tile, each with terms of its own; any alignment",
    sums: SumOrder::Own,
    tile: divided_steps::tile_of(3),
    performance: Performance::new(1, 0.431).block(3.66).unaligned(1.22).parts_of_steps(3).repeated(2.0),
    ..THREE_TF32
};
/// The same, of which a multiprocessor computes three at a time.
const SMALL_K32_THREE_TF32: Common = Common {
    idea: "one warpgroup for a small tile, three blocks on a multiprocessor; any alignment",
    tile: divided_steps::tile_of(1),
    performance: Performance::new(3, 0.438).block(2.97).unaligned(1.24).repeated(2.0),
    ..THREE_TF32
};

/// Tiles of 16 columns.
const FEW_COLUMNS_THREE_TF32: Common = Common {
    idea: "one warpgroup for 64 rows and 16 columns, five blocks on a multiprocessor; the bits of the transposes' large tiles",
    sums: SumOrder::Wgmma { terms: 32, as_transposes: true },
    tile: few_columns::TILE,
    performance: Performance::new(5, 0.207).block(2.66).unaligned(1.38).by_columns(1.1, 1.0).repeated(2.5),
    ..THREE_TF32
};

/// The blocks that have to share the scan of an operand. With fewer, each looks at all of it anyway.
const SHARERS: usize = 8;
/// The k from which on the time saved by sharing is more than that of launching another kernel.
const WORTHWHILE: usize = 1024;

/// Tiles of 64 columns, for few columns, or few rows.
const COLUMNS_64_THREE_TF32: Common = Common {
    idea: "TMA feeds tensor cores; tiles of 64 columns: a large A is read once",
    sums: SumOrder::Wgmma { terms: 32, as_transposes: true },
    tile: tile_of(64),
    performance: Performance::new(1, 0.74).block(5.5).of_bandwidth(1.1),
    ..THREE_TF32
};
/// Tiles of 32 columns.
const COLUMNS_32_THREE_TF32: Common = Common {
    idea: "TMA feeds tensor cores; tiles of 32 columns: a large A is read once",
    tile: tile_of(32),
    performance: Performance::new(1, 0.54).block(4.7).of_bandwidth(1.1),
    ..COLUMNS_64_THREE_TF32
};

/// The contract: each block looks for operands that are too small to be decomposed. Where blocks share that, they leave what
/// they have found in the tile mask.
#[derive(Debug)]
struct Decomposing {
    launch: for<'a> fn(&Device, &Call<'a>) -> Result<(), Error>,
    tile: TileShape,
}

impl Contract for Decomposing {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call)
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        (product.n == 1 && self.tile != TILE).then_some(Refusal::OneColumn)
    }

    fn mask_words(&self, product: &Description, splits: u32) -> u128 {
        let shared = product.n.div_ceil(TILE.n as usize) >= SHARERS;
        let long = product.terms() / splits.max(1) as usize >= WORTHWHILE;
        // Tiles are computed again when the results have been written, so these must not have been needed.
        if self.tile == TILE && shared && long && product.beta_is_zero {
            self.blocks(Some(TILE), product, splits)
        } else {
            0
        }
    }

    fn stores(&self) -> Stores {
        Stores::RowsOrLines
    }
}

/// Registers kernels that take two tensor maps and a `TiledGemm`.
macro_rules! tensor_map_kernels {
    ($($(#[$doc:meta])* pub static $family:ident = $common:ident: $($kernel:ident $a:ident $b:ident),*;)*) => { $(
        $(#[$doc])*
        pub static $family: [KernelInfo; 4] = [$(
            $common.of($kernel::FACTS, $a, $b, &Decomposing {
                launch: |device, &Call { gemm, tile_mask, steps, fallback, .. }| {
                    // Numbers are copied as they are: the kernels split them.
                    let box_of_b = box_of_b($common.tile.n, matches!($b, ColumnMajor));
                    let map_a = map_of_a(device, gemm.a(), $a, BOX_OF_A, TensorElement::Fp32)?;
                    let map_b = map_of_b(device, gemm.b(), $b, box_of_b, TensorElement::Fp32)?;
                    device.launch($kernel { map_a, map_b, gemm, tile_mask, only: fallback, steps })
                },
                tile: $common.tile,
            })
        ),*];
    )* };
}

tensor_map_kernels! {
    /// Three TF32 products.
    pub static WGMMA_FP32_3XTF32 = THREE_TF32:
        gemm_wgmma_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// Three TF32 products, tiles of 256×64.
    pub static WGMMA_256X64_FP32_3XTF32 = COLUMNS_64_THREE_TF32:
        gemm_wgmma_256x64_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_256x64_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_256x64_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_256x64_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// Three TF32 products, tiles of 256×32.
    pub static WGMMA_256X32_FP32_3XTF32 = COLUMNS_32_THREE_TF32:
        gemm_wgmma_256x32_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_256x32_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_256x32_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_256x32_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
}

/// The contract of kernels that need the product alone, and store lines of C whole.
#[derive(Debug)]
struct Small(fn(&Device, TiledGemm<'_>) -> Result<(), Error>);

impl Contract for Small {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.0)(device, call.gemm)
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}

/// Registers kernels that need the product alone.
macro_rules! small_kernels {
    ($(
        $(#[$doc:meta])* pub static $family:ident = $module:ident $common:ident: $($kernel:ident $a:ident $b:ident),*;
    )*) => { $(
        $(#[$doc])*
        pub static $family: [KernelInfo; 4] = [$(
            $common.of(
                $module::$kernel::FACTS,
                $a,
                $b,
                &Small(|device, gemm| device.launch($module::$kernel { gemm })),
            )
        ),*];
    )* };
}

small_kernels! {
    /// Three TF32 products, tiles of 64×64.
    pub static WGMMA_64X64_FP32_3XTF32 = divided_steps SMALL_THREE_TF32:
        gemm_wgmma_64x64_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_64x64_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_64x64_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_64x64_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// The same, with a tile for each warpgroup.
    pub static WGMMA_64X64_K32_FP32_3XTF32 = divided_steps SMALL_K32_THREE_TF32:
        gemm_wgmma_64x64_k32_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_64x64_k32_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_64x64_k32_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_64x64_k32_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// The same, with tiles of 64×16.
    pub static WGMMA_64X16_FP32_3XTF32 = few_columns FEW_COLUMNS_THREE_TF32:
        gemm_wgmma_64x16_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_64x16_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_64x16_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_64x16_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
}

/// A tensor map of A. A box is 128 bytes wide; where terms are neighbours, it has as many rows as `boxes`, otherwise as many terms.
pub(super) fn map_of_a<'a>(
    device: &Device,
    a: MatrixBatch<'a>,
    stored: Order,
    boxes: TileShape,
    element: TensorElement,
) -> Result<TensorMap<'a>, Error> {
    let [lines, _] = stored.lines(boxes.m as usize, boxes.k as usize);
    let tile =
        TensorTile { element, length: length_of(element), lines: lines as u32, swizzle: TensorSwizzle::Bytes128 };
    device.tensor_map_of_batch(&a, stored, &tile)
}

/// The elements of 128 bytes, which the rows of all boxes have.
fn length_of(element: TensorElement) -> u32 {
    128 / element.bytes() as u32
}

/// A tensor map of B, likewise with columns for rows.
pub(super) fn map_of_b<'a>(
    device: &Device,
    b: MatrixBatch<'a>,
    stored: Order,
    boxes: TileShape,
    element: TensorElement,
) -> Result<TensorMap<'a>, Error> {
    let [lines, _] = stored.lines(boxes.k as usize, boxes.n as usize);
    let tile =
        TensorTile { element, length: length_of(element), lines: lines as u32, swizzle: TensorSwizzle::Bytes128 };
    device.tensor_map_of_batch(&b, stored, &tile)
}
