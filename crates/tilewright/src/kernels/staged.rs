//! Products of packed operands whose results TMA stores, for compute capability 9.0: [`gpu_kernels::gemm::hopper::staged_pairs`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::TensorMapMut;
use gpu_kernels::gemm::hopper::staged_pairs::*;

use super::auxiliary::Format;
use super::contract::{Call, Contract, KernelInfo, Performance, Skips, Stores};
use super::packed::{
    NORMWISE, PAIRS, PAIRS_OF_LINES, SKIPPED_BY_ELEMENT, SKIPPED_BY_LINE, THREE_FP16, blocks, maps_of, maps_of_factors,
    packed,
};
use super::tiled::Common;
use super::wgmma::WGMMA_FP32_3XTF32;
use crate::Error;
use crate::description::Description;
use crate::device::{Device, TensorTile};
use crate::refusal::Refusal;

/// Makes the description of a kernel, by its scheme, format, and the lines that it skips.
macro_rules! staged {
    ($kernel:ident, $common:ident, $format:ident, $skipped:ident) => {
        KernelInfo {
            divides_sums: false,
            ..packed(
                Common {
                    idea: "as packed operands are multiplied; consumers go on while TMA stores what they have written",
                    performance: Performance::new(1, 0.785).block(4.7),
                    ..$common
                },
                $kernel::FACTS,
                &Staged {
                    format: $format,
                    skipped: $skipped,
                    launch: |device, call, map_c| {
                        let [map_a, map_b] = maps_of(device, call, $format, $common.tile)?;
                        let [factors_a, factors_b] = maps_of_factors(device, call)?;
                        let &Call { gemm, triangle, steps, packed: [a, b], .. } = call;
                        let (info_a, info_b, blocks) = (a.scales, b.scales, blocks(device));
                        device.launch($kernel {
                            map_a,
                            map_b,
                            factors_a,
                            factors_b,
                            gemm,
                            map_c,
                            triangle,
                            info_a,
                            info_b,
                            steps,
                            blocks,
                        })
                    },
                },
            )
        }
    };
}

/// Three fp16 products, accurate element by element.
pub static WGMMA_STAGED_FP32_3XFP16: [KernelInfo; 1] =
    [staged!(gemm_wgmma_packed_staged_fp32_3xfp16, THREE_FP16, PAIRS, SKIPPED_BY_ELEMENT)];
/// Three fp16 products, accurate against the largest elements of rows and columns.
pub static WGMMA_STAGED_FP32_NORMWISE: [KernelInfo; 1] =
    [staged!(gemm_wgmma_packed_staged_fp32_normwise, NORMWISE, PAIRS_OF_LINES, SKIPPED_BY_LINE)];

/// The contract: a tensor map can describe the results.
#[derive(Debug)]
struct Staged {
    format: Format,
    /// Which lines are left to the fallback, in words.
    skipped: &'static str,
    /// Takes a tensor map of the results.
    launch: for<'a> fn(&Device, &Call<'a>, TensorMapMut<'a>) -> Result<(), Error>,
}

impl Contract for Staged {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        let [length, lines] = PART;
        let tile = TensorTile { element: TensorElement::Fp32, length, lines, swizzle: TensorSwizzle::Bytes128 };
        (self.launch)(device, call, device.tensor_map_of_results(&call.gemm.c(), &tile)?)
    }

    fn format(&self) -> Option<Format> {
        Some(self.format)
    }

    fn skips(&self) -> Option<Skips> {
        Some(Skips { lines: self.skipped, fallbacks: &WGMMA_FP32_3XTF32 })
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        product.refusal_of_whole_rows(true)
    }

    fn stores(&self) -> Stores {
        Stores::Lines
    }
}
