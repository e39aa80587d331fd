//! Products of packed operands with small k, for compute capability 9.0: [`gpu_kernels::gemm::hopper::short_k`].

use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::KernelFacts;
use gpu_kernels::gemm::hopper::short_k::*;

use super::auxiliary::Format;
use super::contract::{Call, Contract, KernelInfo, Performance, Stores};
use super::packed::{PAIRS, THREE_FP16, blocks, maps_of, packed};
use crate::description::Description;
use crate::device::{Device, TensorTile};
use crate::refusal::Refusal;
use crate::{Error, Sizes};

/// Three fp16 products, accurate element by element, for small k.
pub static WGMMA_SHORT_FP32_3XFP16: [KernelInfo; 2] = [
    KernelInfo {
        idea: "as packed operands are multiplied, for small k; TMA stores the results",
        performance: Performance::new(1, 1.08).block(3.35).old_values(0.6),
        ..short(gemm_wgmma_packed_short_fp32_3xfp16::FACTS, &Short { by_tma: true })
    },
    KernelInfo {
        idea: "as packed operands are multiplied, for small k; warps of their own store the results, whose rows may begin anywhere",
        performance: Performance::new(1, 1.0).block(8.6).old_values(0.55),
        ..short(gemm_wgmma_packed_short_rows_fp32_3xfp16::FACTS, &Short { by_tma: false })
    },
];

/// What the kernels have in common.
const fn short(facts: KernelFacts, contract: &'static dyn Contract) -> KernelInfo {
    KernelInfo { tile: Some(SHORT_K_TILE), divides_sums: false, ..packed(THREE_FP16, facts, contract) }
}

/// The contract: k of at most [`MAX_K`], and results whose neighbours in a row are neighbours in memory; those that
/// TMA stores, a tensor map can describe.
#[derive(Debug)]
struct Short {
    by_tma: bool,
}

impl Contract for Short {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        let [map_a, map_b] = maps_of(device, call, PAIRS, SHORT_K_TILE)?;
        let &Call { gemm, steps, packed: [a, b], .. } = call;
        let (info_a, info_b, blocks) = (a.scales, b.scales, blocks(device));
        if !self.by_tma {
            let rows = gemm_wgmma_packed_short_rows_fp32_3xfp16 { map_a, map_b, gemm, info_a, info_b, steps, blocks };
            return device.launch(rows);
        }
        let [length, lines] = STORED;
        let tile = TensorTile { element: TensorElement::Fp32, length, lines, swizzle: TensorSwizzle::None };
        let map_c = device.tensor_map_of_results(&gemm.c(), &tile)?;
        device.launch(gemm_wgmma_packed_short_fp32_3xfp16 { map_a, map_b, gemm, map_c, info_a, info_b, steps, blocks })
    }

    fn format(&self) -> Option<Format> {
        Some(PAIRS)
    }

    fn does_steps(&self) -> bool {
        true
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        product.refusal_of_whole_rows(self.by_tma)
    }

    fn most(&self) -> Sizes {
        Sizes { m: usize::MAX, n: usize::MAX, k: MAX_K as usize }
    }

    fn stores(&self) -> Stores {
        if self.by_tma { Stores::Lines } else { Stores::WholeRows }
    }
}
