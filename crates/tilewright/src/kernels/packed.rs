//! Products on tensor cores whose operands are multiplied as the copy engine loads them, for compute capability 9.0:
//! [`gpu_kernels::gemm::hopper::rounded`], [`gpu_kernels::gemm::hopper::fp16_pairs`] and [`gpu_kernels::gemm::hopper::short_k`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::{KernelFacts, TensorMap};
use gpu_kernels::gemm::hopper::fp16_pairs::*;
use gpu_kernels::gemm::hopper::rounded::*;
use gpu_kernels::gemm::hopper::short_k::*;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};

use super::wgmma::{map_of_a, map_of_b};
use super::{Common, Format, KernelInfo, Launch, PackedOperand, Performance, Scheme};
use crate::Error;
use crate::device::{Device, TensorLayout, TensorTile};
use crate::plan::Storage::{ByColumns, ByRows};

/// The shares of the peak are those of 2048×4096×8192 on an H200 at the model's clock.
const ONE_TF32: Common = Common {
    idea: "the copy engine rounds operands to TF32 on their way to tensor cores",
    scheme: Scheme::Tf32,
    tile: TILE_TF32,
    performance: Performance { blocks_per_multiprocessor: 1, share_of_peak: 0.92 },
};
const ONE_BF16: Common = Common {
    idea: "operands are rounded and packed first; the copy engine feeds tensor cores with them",
    scheme: Scheme::Bf16,
    tile: TILE_HALF,
    performance: Performance { blocks_per_multiprocessor: 1, share_of_peak: 0.85 },
};
const ONE_FP16: Common = Common { scheme: Scheme::Fp16, ..ONE_BF16 };
const NORMWISE: Common = Common {
    idea: "operands are scaled, split and packed first; the copy engine feeds tensor cores with the parts",
    scheme: Scheme::Fp32ScaledFp16,
    tile: TILE,
    performance: Performance { blocks_per_multiprocessor: 1, share_of_peak: 0.85 },
};
const THREE_FP16: Common = Common { scheme: Scheme::Fp32ThreeFp16, ..NORMWISE };

/// A kernel of operands that are rounded by the copy engine. B is stored by columns, and copied where it is not.
macro_rules! rounding {
    ($kernel:ident, $a:ident) => {
        KernelInfo {
            transposing: true,
            ..ONE_TF32.of(
                $kernel::FACTS,
                $a,
                ByColumns,
                Launch::Tiled(|device, gemm| {
                    let map_a = map_of_a(device, gemm.a(), $a, TILE_TF32, TensorElement::Tf32)?;
                    let map_b = map_of_b(device, gemm.b(), ByColumns, TILE_TF32, TensorElement::Tf32)?;
                    device.launch($kernel { map_a, map_b, gemm, blocks: blocks(device) })
                }),
            )
        }
    };
}

/// A kernel of rounded operands.
macro_rules! rounded {
    ($kernel:ident, $common:ident, $format:ident) => {
        packed(
            $common,
            $kernel::FACTS,
            Launch::Packed {
                format: Format::$format,
                launch: |device, gemm, _, operands| {
                    let [map_a, map_b] = maps_of(device, &gemm, operands, Format::$format, TILE_HALF)?;
                    device.launch($kernel { map_a, map_b, gemm, blocks: blocks(device) })
                },
                leaves_out: false,
            },
        )
    };
}

/// A kernel of operands that are scaled and split.
macro_rules! scaled {
    ($kernel:ident, $common:ident, $element_by_element:literal) => {
        packed(
            $common,
            $kernel::FACTS,
            Launch::Packed {
                format: Format::ScaledFp16 { element_by_element: $element_by_element },
                launch: |device, gemm, part, [a, b]| {
                    let format = Format::ScaledFp16 { element_by_element: $element_by_element };
                    let [map_a, map_b] = maps_of(device, &gemm, [a, b], format, TILE)?;
                    let (info_a, info_b, triangle) = (a.scales, b.scales, part);
                    device.launch($kernel { map_a, map_b, gemm, triangle, info_a, info_b, blocks: blocks(device) })
                },
                leaves_out: true,
            },
        )
    };
}

/// Packing takes operands from anywhere.
const fn packed(common: Common, facts: KernelFacts, launch: Launch) -> KernelInfo {
    KernelInfo { a: None, b: None, ..common.of(facts, ByRows, ByColumns, launch) }
}

/// One TF32 product.
pub static WGMMA_TF32: [KernelInfo; 2] =
    [rounding!(gemm_wgmma_nt_tf32, ByRows), rounding!(gemm_wgmma_tt_tf32, ByColumns)];
/// One bf16 product.
pub static WGMMA_BF16: [KernelInfo; 1] = [rounded!(gemm_wgmma_packed_bf16, ONE_BF16, Bf16)];
/// One fp16 product.
pub static WGMMA_FP16: [KernelInfo; 1] = [rounded!(gemm_wgmma_packed_fp16, ONE_FP16, Fp16)];
/// Three fp16 products, accurate element by element.
pub static WGMMA_FP32_3XFP16: [KernelInfo; 1] = [scaled!(gemm_wgmma_packed_fp32_3xfp16, THREE_FP16, true)];
/// Three fp16 products, accurate element by element, of few terms.
pub static WGMMA_SHORT_FP32_3XFP16: [KernelInfo; 1] = [KernelInfo {
    idea: "as packed operands are multiplied, with few terms; the copy engine stores the results",
    tile: Some(SHORT_K_TILE),
    divides_sums: false,
    stores_by_tensor_map: true,
    most_terms: Some(MAX_K),
    ..packed(
        THREE_FP16,
        gemm_wgmma_packed_short_fp32_3xfp16::FACTS,
        Launch::Packed {
            format: ELEMENT_BY_ELEMENT,
            launch: |device, gemm, _, [a, b]| {
                let [map_a, map_b] = maps_of(device, &gemm, [a, b], ELEMENT_BY_ELEMENT, SHORT_K_TILE)?;
                let [length, lines] = STORED;
                let tile = TensorTile { element: TensorElement::Fp32, length, lines, swizzle: TensorSwizzle::None };
                let map_c = device.tensor_map_of_results(&gemm.c(), &tile)?;
                let (info_a, info_b, blocks) = (a.scales, b.scales, blocks(device));
                let kernel = gemm_wgmma_packed_short_fp32_3xfp16 { map_a, map_b, gemm, map_c, info_a, info_b, blocks };
                device.launch(kernel)
            },
            leaves_out: false,
        },
    )
}];
/// How operands are packed whose products are accurate element by element.
const ELEMENT_BY_ELEMENT: Format = Format::ScaledFp16 { element_by_element: true };
/// Three fp16 products, accurate against the largest elements of rows and columns.
pub static WGMMA_FP32_NORMWISE: [KernelInfo; 1] = [scaled!(gemm_wgmma_packed_fp32_normwise, NORMWISE, false)];

/// The blocks that the GPU runs at a time: these kernels take a multiprocessor each, and go from tile to tile.
fn blocks(device: &Device) -> u32 {
    device.gpu_properties().map_or(1, |gpu| gpu.multiprocessors)
}

/// Tensor maps of operands that are packed as two numbers to a word; a tile has as many lines as `tile`, of 128 bytes.
fn maps_of<'a>(
    device: &Device,
    gemm: &TiledGemm<'_>,
    [a, b]: [PackedOperand<'a>; 2],
    format: Format,
    tile: TileShape,
) -> Result<[TensorMap<'a>; 2], Error> {
    let (terms, matrices) = (gemm.a().first().cols(), gemm.a().count());
    let line_stride = 2 * u64::from(format.pitch(terms));
    let (element, length) = match format {
        Format::Bf16 => (TensorElement::Bf16, terms.into()),
        Format::Fp16 => (TensorElement::Fp16, terms.into()),
        // A number has two parts, in groups that are always full.
        Format::ScaledFp16 { .. } => (TensorElement::Fp16, line_stride),
    };
    let swizzle = TensorSwizzle::Bytes128;
    let map = |operand: PackedOperand<'a>, lines: u32, tile_lines: u32| {
        let layout = TensorLayout {
            length,
            lines: lines.into(),
            line_stride,
            matrices: matrices.into(),
            matrix_stride: u64::from(lines) * line_stride,
        };
        device.tensor_map(operand.words, &layout, &TensorTile { element, length: 64, lines: tile_lines, swizzle })
    };
    Ok([map(a, gemm.m(), tile.m)?, map(b, gemm.n(), tile.n)?])
}
