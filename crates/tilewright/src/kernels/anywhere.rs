//! Products on tensor cores that are fed by TMA, of operands whose lines begin anywhere, for compute capability 9.0: [`gpu_kernels::gemm::hopper::anywhere`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::TensorMap;
use gpu_kernels::MatrixBatch;
use gpu_kernels::gemm::hopper::anywhere::*;

use super::contract::{Call, Contract, KernelInfo, Performance, Stores};
use super::scheme::SumOrder;
use super::tiled::Common;
use super::wgmma::THREE_TF32;
use crate::Error;
use crate::description::Description;
use crate::device::{Device, TensorTile};
use crate::order::Order::{self, ColumnMajor, RowMajor};
use crate::placement::Placement;
use crate::refusal::Refusal;

/// The shares of the peak, and what a block costs, are fitted ([`Performance`]).
const COLUMNS_128: Common = Common {
    idea: "TMA loads lines that begin anywhere by four tensor maps; converter warps shift and decompose them",
    performance: Performance::new(1, 0.76).block(7.2).by_columns(0.96, 1.0),
    ..THREE_TF32
};
/// Tiles of 64 columns, for few columns, or few rows.
const COLUMNS_64: Common = Common {
    sums: SumOrder::Wgmma { terms: 32, as_transposes: true },
    tile: tile_of(64),
    performance: Performance::new(1, 0.57).block(7.2).by_columns(0.97, 1.0),
    ..COLUMNS_128
};
/// Tiles of 32 columns.
const COLUMNS_32: Common =
    Common { tile: tile_of(32), performance: Performance::new(1, 0.3).block(5.8).by_columns(0.9, 0.95), ..COLUMNS_64 };

/// The contract: of operands that one tensor map each can describe, another kernel makes less work.
#[derive(Debug)]
struct Anywhere(for<'a> fn(&Device, &Call<'a>) -> Result<(), Error>);

impl Contract for Anywhere {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.0)(device, call)
    }

    fn loads_fours(&self) -> bool {
        true
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        if product.n == 1 {
            return Some(Refusal::OneColumn);
        }
        product.is_aligned().then_some(Refusal::Aligned)
    }

    fn stores(&self) -> Stores {
        Stores::RowsOrLines
    }
}

/// The four tensor maps of an operand of which a tile has `lines` rows of A, or columns of B, and how many rows of memory further on its next matrix begins.
fn maps_of<'a>(
    device: &Device,
    operand: MatrixBatch<'a>,
    order: Order,
    is_k_major: bool,
    lines: u32,
) -> Result<([TensorMap<'a>; 4], u32), Error> {
    let first = operand.first();
    let [rows, cols, matrices] = [first.rows(), first.cols(), operand.distinct()].map(|extent| extent as usize);
    let [row_stride, col_stride, batch_stride] =
        [first.row_stride(), first.col_stride(), operand.stride()].map(|stride| stride as usize);
    let placement = Placement { row_stride, col_stride, batch_stride, alignment: size_of::<f32>() };
    // (What a plan launches has some. A launch refuses what the maps do not describe.)
    let rows_of_matrix = placement.lines_of_fours(rows, cols, matrices, is_k_major).unwrap_or(0);
    let [box_lines, length] = box_of(is_k_major, lines);
    let tile = TensorTile { element: TensorElement::Fp32, length, lines: box_lines, swizzle: TensorSwizzle::None };
    let maps = device.tensor_maps_of_fours(&operand, order, rows_of_matrix, &tile)?;
    Ok((maps, rows_of_matrix as u32))
}

/// Registers kernels with eight tensor maps and a `TiledGemm`.
macro_rules! kernels {
    ($($(#[$doc:meta])* pub static $family:ident = $common:ident: $($kernel:ident $a:ident $b:ident),*;)*) => { $(
        $(#[$doc])*
        pub static $family: [KernelInfo; 4] = [$(
            $common.of($kernel::FACTS, $a, $b, &Anywhere(|device, &Call { gemm, steps, fallback, .. }| {
                let ([map_a0, map_a1, map_a2, map_a3], rows_of_a) =
                    maps_of(device, gemm.a(), $a, matches!($a, RowMajor), $common.tile.m)?;
                let ([map_b0, map_b1, map_b2, map_b3], rows_of_b) =
                    maps_of(device, gemm.b(), $b, matches!($b, ColumnMajor), $common.tile.n)?;
                device.launch($kernel {
                    map_a0, map_a1, map_a2, map_a3, map_b0, map_b1, map_b2, map_b3,
                    rows_of_a, rows_of_b, gemm, only: fallback, steps,
                })
            }))
        ),*];
    )* };
}

kernels! {
    /// Tiles of 256×128.
    pub static WGMMA_ANYWHERE_FP32_3XTF32 = COLUMNS_128:
        gemm_wgmma_anywhere_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_anywhere_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_anywhere_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_anywhere_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// Tiles of 256×64.
    pub static WGMMA_ANYWHERE_256X64_FP32_3XTF32 = COLUMNS_64:
        gemm_wgmma_anywhere_256x64_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_anywhere_256x64_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_anywhere_256x64_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_anywhere_256x64_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
    /// Tiles of 256×32.
    pub static WGMMA_ANYWHERE_256X32_FP32_3XTF32 = COLUMNS_32:
        gemm_wgmma_anywhere_256x32_nn_fp32_3xtf32 RowMajor RowMajor,
        gemm_wgmma_anywhere_256x32_nt_fp32_3xtf32 RowMajor ColumnMajor,
        gemm_wgmma_anywhere_256x32_tn_fp32_3xtf32 ColumnMajor RowMajor,
        gemm_wgmma_anywhere_256x32_tt_fp32_3xtf32 ColumnMajor ColumnMajor;
}
