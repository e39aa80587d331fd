//! Products on tensor cores whose operands are multiplied as TMA loads them, for compute capability 9.0:
//! [`gpu_kernels::gemm::hopper::rounded`] and [`gpu_kernels::gemm::hopper::fp16_pairs`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::{KernelFacts, TensorMap};
use gpu_kernels::gemm::hopper::digits::{self, gemm_wgmma_packed_fp32_10xint8};
use gpu_kernels::gemm::hopper::fp16_pairs::*;
use gpu_kernels::gemm::hopper::rounded::*;
use gpu_kernels::gemm::tiles::{TileShape, TiledGemm};
use gpu_kernels::pack::pairs::{BLOCK, factor_words};

use super::auxiliary::{Format, PackedOperand, ScaledFormat};
use super::contract::{Call, Contract, Copies, KernelInfo, Performance, Skips, Stores};
use super::scheme::{Scheme, SumOrder};
use super::tiled::Common;
use super::wgmma::{WGMMA_FP32_3XTF32, map_of_a, map_of_b};
use crate::Error;
use crate::description::Description;
use crate::device::{Device, TensorLayout, TensorTile};
use crate::order::Order::{ColumnMajor, RowMajor};

/// The shares of the peak are those of 2048×4096×8192 on an H200 at the model's clock.
const ONE_TF32: Common = Common {
    idea: "TMA rounds operands to TF32 on their way to tensor cores",
    scheme: Scheme::Tf32,
    sums: SumOrder::WgmmaAll,
    tile: TILE_TF32,
    performance: Performance::new(1, 0.92),
};
const ONE_BF16: Common = Common {
    idea: "operands are rounded and packed first; TMA feeds tensor cores with them",
    scheme: Scheme::Bf16,
    sums: SumOrder::WgmmaAll,
    tile: TILE_HALF,
    performance: Performance::new(1, 0.85).block(4.5),
};
const ONE_FP16: Common = Common { scheme: Scheme::Fp16, ..ONE_BF16 };
pub(super) const NORMWISE: Common = Common {
    idea: "operands are scaled, decomposed and packed first; TMA feeds tensor cores with the parts",
    scheme: Scheme::Fp32ScaledFp16,
    // Tiles with flags are computed otherwise.
    sums: SumOrder::Own,
    tile: TILE,
    performance: Performance::new(1, 0.785).block(5.3),
};
pub(super) const THREE_FP16: Common = Common { scheme: Scheme::Fp32ThreeFp16, ..NORMWISE };

const DIGITS: Common = Common {
    idea: "operands are scaled and packed as digits of 8 bits first; int8 tensor cores add up without error",
    scheme: Scheme::Fp32TenInt8,
    sums: SumOrder::Own,
    tile: digits::TILE,
    performance: Performance::new(1, 0.93).block(6.0),
};

/// Pairs of lines whose elements all keep their bits.
pub(super) const PAIRS: Format = Format::Scaled(ScaledFormat::Pairs { element_by_element: true });
/// Pairs of lines that are accurate against their largest elements.
pub(super) const PAIRS_OF_LINES: Format = Format::Scaled(ScaledFormat::Pairs { element_by_element: false });
/// Which lines of pairs are left to the fallback, in words.
pub(super) const SKIPPED_BY_ELEMENT: &str =
    "with infinities, NaN, or several elements too small beside the largest near them";
/// Those of [`PAIRS_OF_LINES`].
pub(super) const SKIPPED_BY_LINE: &str = "with infinities, NaN, or largest elements that are very large or small";

/// The contract of kernels whose operands TMA rounds. B is column-major, and copied where it is not.
#[derive(Debug)]
struct RoundedByTma(fn(&Device, TiledGemm<'_>) -> Result<(), Error>);

impl Contract for RoundedByTma {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.0)(device, call.gemm)
    }

    fn copies(&self) -> Copies {
        Copies::Everything
    }

    fn stores(&self) -> Stores {
        Stores::Squares
    }
}

/// The contract of kernels whose operands are packed.
#[derive(Debug)]
struct Packed {
    format: Format,
    tile: TileShape,
    skips: Option<Skips>,
    /// The most terms that a block adds up.
    most_terms: Option<u32>,
    stores: Stores,
    /// Takes tensor maps of the packed operands.
    launch: for<'a> fn(&Device, &Call<'a>, [TensorMap<'a>; 2]) -> Result<(), Error>,
}

impl Contract for Packed {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, call, maps_of(device, call, self.format, self.tile)?)
    }

    fn format(&self) -> Option<Format> {
        Some(self.format)
    }

    fn skips(&self) -> Option<Skips> {
        self.skips
    }

    fn does_steps(&self) -> bool {
        matches!(self.format, Format::Scaled(ScaledFormat::Pairs { .. }))
    }

    fn fewest_splits(&self, product: &Description) -> u32 {
        let steps = |terms: usize| terms.div_ceil(self.tile.k as usize);
        self.most_terms.map_or(1, |most| steps(product.terms()).div_ceil(steps(most as usize)).max(1) as u32)
    }

    fn stores(&self) -> Stores {
        self.stores
    }
}

/// A kernel of operands that are rounded by TMA.
macro_rules! rounding {
    ($kernel:ident, $a:ident) => {
        ONE_TF32.of(
            $kernel::FACTS,
            $a,
            ColumnMajor,
            &RoundedByTma(|device, gemm| {
                let map_a = map_of_a(device, gemm.a(), $a, TILE_TF32, TensorElement::Tf32)?;
                let map_b = map_of_b(device, gemm.b(), ColumnMajor, TILE_TF32, TensorElement::Tf32)?;
                device.launch($kernel { map_a, map_b, gemm, blocks: blocks(device) })
            }),
        )
    };
}

/// A kernel of rounded operands.
macro_rules! rounded {
    ($kernel:ident, $common:ident, $format:ident) => {
        packed(
            $common,
            $kernel::FACTS,
            &Packed {
                format: Format::$format,
                tile: TILE_HALF,
                skips: None,
                most_terms: None,
                stores: Stores::Rows,
                launch: |device, &Call { gemm, .. }, [map_a, map_b]| {
                    device.launch($kernel { map_a, map_b, gemm, blocks: blocks(device) })
                },
            },
        )
    };
}

/// A kernel of operands that are scaled.
macro_rules! scaled {
    ($kernel:ident, $common:ident, $format:expr, $tile:expr, $most_terms:expr, $stores:ident, $skipped:expr, $launch:expr) => {
        packed(
            $common,
            $kernel::FACTS,
            &Packed {
                format: $format,
                tile: $tile,
                skips: Some(Skips { lines: $skipped, fallbacks: &WGMMA_FP32_3XTF32 }),
                most_terms: $most_terms,
                stores: Stores::$stores,
                launch: $launch,
            },
        )
    };
}

/// The launch of a kernel of pairs.
macro_rules! launch_of_pairs {
    ($kernel:ident) => {
        |device, call, [map_a, map_b]| {
            let [factors_a, factors_b] = maps_of_factors(device, call)?;
            let &Call { gemm, triangle, steps, packed: [a, b], .. } = call;
            let (info_a, info_b, blocks) = (a.scales, b.scales, blocks(device));
            device.launch($kernel { map_a, map_b, factors_a, factors_b, gemm, triangle, info_a, info_b, steps, blocks })
        }
    };
}

/// The description of a kernel of packed operands: packing takes operands from anywhere.
pub(super) const fn packed(common: Common, facts: KernelFacts, contract: &'static dyn Contract) -> KernelInfo {
    KernelInfo { a: None, b: None, ..common.of(facts, RowMajor, ColumnMajor, contract) }
}

/// One TF32 product.
pub static WGMMA_TF32: [KernelInfo; 2] =
    [rounding!(gemm_wgmma_nt_tf32, RowMajor), rounding!(gemm_wgmma_tt_tf32, ColumnMajor)];
/// One bf16 product.
pub static WGMMA_BF16: [KernelInfo; 1] = [rounded!(gemm_wgmma_packed_bf16, ONE_BF16, Bf16)];
/// One fp16 product.
pub static WGMMA_FP16: [KernelInfo; 1] = [rounded!(gemm_wgmma_packed_fp16, ONE_FP16, Fp16)];
/// Three fp16 products, accurate element by element.
pub static WGMMA_FP32_3XFP16: [KernelInfo; 1] = [scaled!(
    gemm_wgmma_packed_fp32_3xfp16,
    THREE_FP16,
    PAIRS,
    TILE,
    None,
    RowsOrLines,
    SKIPPED_BY_ELEMENT,
    launch_of_pairs!(gemm_wgmma_packed_fp32_3xfp16)
)];
/// Three fp16 products, accurate against the largest elements of rows and columns.
pub static WGMMA_FP32_NORMWISE: [KernelInfo; 1] = [scaled!(
    gemm_wgmma_packed_fp32_normwise,
    NORMWISE,
    PAIRS_OF_LINES,
    TILE,
    None,
    RowsOrLines,
    SKIPPED_BY_LINE,
    launch_of_pairs!(gemm_wgmma_packed_fp32_normwise)
)];
/// Exact sums of products of digits, of numbers that are accurate against the largest elements of rows and columns.
pub static WGMMA_FP32_10XINT8: [KernelInfo; 1] = [scaled!(
    gemm_wgmma_packed_fp32_10xint8,
    DIGITS,
    Format::Scaled(ScaledFormat::Digits),
    digits::TILE,
    Some(digits::MOST_TERMS),
    Rows,
    "with infinities, NaN or a largest element that is very large or small",
    |device, &Call { gemm, triangle, packed: [a, b], .. }, [map_a, map_b]| {
        let (info_a, info_b, blocks) = (a.scales, b.scales, blocks(device));
        device.launch(gemm_wgmma_packed_fp32_10xint8 { map_a, map_b, gemm, triangle, info_a, info_b, blocks })
    }
)];

/// The blocks that the GPU runs at a time: these kernels take a multiprocessor each, and go from tile to tile.
pub(super) fn blocks(device: &Device) -> u32 {
    device.multiprocessors()
}

/// Tensor maps of operands that are packed as two numbers to a word; a tile has as many lines as `tile`, of 128 bytes.
pub(super) fn maps_of<'a>(
    device: &Device,
    call: &Call<'a>,
    format: Format,
    tile: TileShape,
) -> Result<[TensorMap<'a>; 2], Error> {
    let Call { gemm, packed: [a, b], .. } = call;
    let terms = gemm.a().first().cols();
    let words = u64::from(format.pitch(terms));
    let (element, length) = match format {
        Format::Bf16 => (TensorElement::Bf16, terms.into()),
        Format::Fp16 => (TensorElement::Fp16, terms.into()),
        // A number has two parts, in groups that are always full.
        Format::Scaled(ScaledFormat::Pairs { .. }) => (TensorElement::Fp16, 2 * words),
        // There is no type for four digits in a word, and it does not matter.
        Format::Scaled(ScaledFormat::Digits) => (TensorElement::Fp32, words),
    };
    let (line_stride, tile_length) = (words * 4 / element.bytes(), (128 / element.bytes()) as u32);
    let swizzle = TensorSwizzle::Bytes128;
    let map = |operand: &PackedOperand<'a>, matrices: u32, lines: u32, tile_lines: u32| {
        let layout = TensorLayout {
            length,
            lines: lines.into(),
            line_stride,
            matrices: matrices.into(),
            matrix_stride: u64::from(lines) * line_stride,
        };
        device.tensor_map(
            operand.words,
            &layout,
            &TensorTile { element, length: tile_length, lines: tile_lines, swizzle },
        )
    };
    Ok([map(a, gemm.a().distinct(), gemm.m(), tile.m)?, map(b, gemm.b().distinct(), gemm.n(), tile.n)?])
}

/// Tensor maps of the factors of operands that are packed as pairs; a tile has as many lines as [`TILE`], for one block of terms.
pub(super) fn maps_of_factors<'a>(device: &Device, call: &Call<'a>) -> Result<[TensorMap<'a>; 2], Error> {
    let Call { gemm, packed: [a, b], .. } = call;
    let terms = gemm.a().first().cols();
    let map = |operand: &PackedOperand<'a>, matrices: u32, lines: u32, tile_lines: u32| {
        // All of a matrix, and those of one block of terms.
        let words = |terms: u32| factor_words(lines, terms, 1) as u64;
        let layout = TensorLayout {
            // Two factors to a word.
            length: lines.div_ceil(2).into(),
            lines: terms.div_ceil(BLOCK).into(),
            line_stride: words(BLOCK),
            matrices: matrices.into(),
            matrix_stride: words(terms),
        };
        let (element, swizzle) = (TensorElement::Fp32, TensorSwizzle::None);
        device.tensor_map(
            operand.scales.factors,
            &layout,
            &TensorTile { element, length: tile_lines / 2, lines: 1, swizzle },
        )
    };
    Ok([map(a, gemm.a().distinct(), gemm.m(), TILE.m)?, map(b, gemm.b().distinct(), gemm.n(), TILE.n)?])
}
