//! Grouped products: [`gpu_kernels::gemm::grouped`]. Each kernel has the body of one of those for a product alone, and is as accurate,
//! takes the same layouts and takes as long for a tile as that.

use cuda_std::{Kernel, KernelFacts};
use gpu_kernels::gemm::batched::{TILE_4, TILE_8, TILE_16, TILE_32};
use gpu_kernels::gemm::grouped::*;
use gpu_kernels::gemm::hopper::divided_steps::grouped::*;
use gpu_kernels::gemm::hopper::divided_steps::tile_of;
use gpu_kernels::gemm::mma::SHAPE_64X64;
use gpu_kernels::gemm::mma::grouped::*;
use gpu_kernels::gemm::tiles::TileShape;

use super::batched::BATCHED;
use super::contract::KernelInfo;
use super::mma::MMA_64X64_FP32_3XTF32;
use super::wgmma::WGMMA_64X64_K32_FP32_3XTF32;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::order::Order;
use crate::placement::Placement;
use crate::refusal::Refusal;
use crate::{Device, Error, Wanted};

/// A kernel that computes a group of products, or those of a group that are stored as it needs them.
#[derive(Debug)]
pub struct GroupedKernel {
    /// The name, which is that of the PTX entry point.
    pub name: &'static str,
    /// What it needs of a GPU, as its type says.
    pub facts: KernelFacts,
    /// The kernel of products alone that has the same body, and gives every element the same bits.
    pub single: &'static KernelInfo,
    /// The part of a result that a block, or a team of a block, computes, and the k that it loads at a time.
    pub tile: TileShape,
    /// Which of the kernels for other layouts have the same body, in words.
    pub(crate) body: &'static str,
    launch: fn(&Device, GroupedGemm<'_>) -> Result<(), Error>,
}

impl GroupedKernel {
    /// The tiles that a block computes at a time.
    pub fn tiles_of_a_block(&self) -> u32 {
        self.single.contract.tiles_of_a_block()
    }

    /// Queues the kernel.
    pub(crate) fn launch(&self, device: &Device, gemm: GroupedGemm<'_>) -> Result<(), Error> {
        (self.launch)(device, gemm)
    }

    /// Why it cannot compute one of the products of a group in a precision, or as accurately as that, or may not unless it is named;
    /// `None` if it can. Operands are not copied first, so it takes those that lie as it needs them.
    pub fn refusal(&self, device: &DeviceFacts, product: &Description, wanted: Wanted) -> Option<Refusal> {
        // Operands without elements, or that are not read, lie in any way.
        let placed = |needs: Option<Order>, has: Placement, rows, cols| match needs {
            Some(order) if product.terms() == 0 => Placement::dense(order, rows, cols),
            _ => has,
        };
        let Description { m, n, k, .. } = *product;
        let (a, b) = (placed(self.single.a, product.a, m, k), placed(self.single.b, product.b, k, n));
        match self.single.refusal(device, &Description { a, b, ..*product }, wanted, None) {
            // That there are better kernels for one large product alone does not matter here.
            None | Some(Refusal::NotSmall { .. }) => {}
            refusal => return refusal,
        }
        let operands = [("A", self.single.a, a), ("B", self.single.b, b)];
        operands.into_iter().find_map(|(operand, needs, has)| {
            let needs = needs.filter(|&needs| has.order() != Some(needs))?;
            Some(Refusal::Layout { operand, needs, has: has.order_in_words() })
        })
    }
}

/// The kernel that makes the table of products whose sizes only the device knows, for
/// [`Device::prepare`](runtime::Device::prepare).
pub static GROUPED_ROW_TABLE: KernelFacts = grouped_row_table::FACTS;

/// Registers the kernels: the tile, the body, the kernel of products alone.
macro_rules! grouped_kernels {
    ($($kernel:ident $tile:expr, $body:literal, $single:expr;)*) => {
        /// The kernels of grouped products, in the order of those of products alone.
        pub static GROUPED: [GroupedKernel; 12] = [$(GroupedKernel {
            name: $kernel::NAME,
            facts: $kernel::FACTS,
            single: &$single,
            tile: $tile,
            body: $body,
            launch: |device, gemm| device.launch($kernel { gemm }),
        }),*];
    };
}

grouped_kernels! {
    gemm_grouped_4_fp32 TILE_4, "gemm_grouped_4_fp32", BATCHED[0];
    gemm_grouped_8_fp32 TILE_8, "gemm_grouped_8_fp32", BATCHED[1];
    gemm_grouped_16_fp32 TILE_16, "gemm_grouped_16_fp32", BATCHED[2];
    gemm_grouped_32_fp32 TILE_32, "gemm_grouped_32_fp32", BATCHED[3];
    gemm_grouped_mma_64x64_nn_fp32_3xtf32 SHAPE_64X64, "gemm_grouped_mma_64x64_*_fp32_3xtf32", MMA_64X64_FP32_3XTF32[0];
    gemm_grouped_mma_64x64_nt_fp32_3xtf32 SHAPE_64X64, "gemm_grouped_mma_64x64_*_fp32_3xtf32", MMA_64X64_FP32_3XTF32[1];
    gemm_grouped_mma_64x64_tn_fp32_3xtf32 SHAPE_64X64, "gemm_grouped_mma_64x64_*_fp32_3xtf32", MMA_64X64_FP32_3XTF32[2];
    gemm_grouped_mma_64x64_tt_fp32_3xtf32 SHAPE_64X64, "gemm_grouped_mma_64x64_*_fp32_3xtf32", MMA_64X64_FP32_3XTF32[3];
    gemm_grouped_wgmma_64x64_k32_nn_fp32_3xtf32 tile_of(1), "gemm_grouped_wgmma_64x64_k32_*_fp32_3xtf32", WGMMA_64X64_K32_FP32_3XTF32[0];
    gemm_grouped_wgmma_64x64_k32_nt_fp32_3xtf32 tile_of(1), "gemm_grouped_wgmma_64x64_k32_*_fp32_3xtf32", WGMMA_64X64_K32_FP32_3XTF32[1];
    gemm_grouped_wgmma_64x64_k32_tn_fp32_3xtf32 tile_of(1), "gemm_grouped_wgmma_64x64_k32_*_fp32_3xtf32", WGMMA_64X64_K32_FP32_3XTF32[2];
    gemm_grouped_wgmma_64x64_k32_tt_fp32_3xtf32 tile_of(1), "gemm_grouped_wgmma_64x64_k32_*_fp32_3xtf32", WGMMA_64X64_K32_FP32_3XTF32[3];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_named_like_that_of_products_alone() {
        for kernel in &GROUPED {
            let single = kernel.single.name.replace("gemm_batched_", "gemm_");
            assert_eq!(kernel.name.replace("gemm_grouped_", "gemm_"), single);
            let (layout, any) = (kernel.body.split_once('*'), kernel.body == kernel.name);
            let is_of_body = |(before, after)| kernel.name.starts_with(before) && kernel.name.ends_with(after);
            assert!(any || layout.is_some_and(is_of_body), "{}", kernel.name);
            assert_eq!(Some(kernel.tile), kernel.single.tile, "{}", kernel.name);
            assert_eq!((kernel.facts.block, kernel.facts.arch), (kernel.single.facts.block, kernel.single.facts.arch));
        }
    }
}
