//! The list of all kernels, and look-ups in it.

use std::sync::LazyLock;

use cuda_std::KernelFacts;

use super::anywhere::{
    WGMMA_ANYWHERE_256X32_FP32_3XTF32, WGMMA_ANYWHERE_256X64_FP32_3XTF32, WGMMA_ANYWHERE_FP32_3XTF32,
};
use super::auxiliary::AUXILIARY;
use super::basic::BASIC;
use super::batched::BATCHED;
use super::contract::KernelInfo;
use super::gemv::{GEMV_SPLIT_ATOMIC_FP32, GEMV_SPLIT_FP32, GEMV_TRANSPOSED_SPLIT_FP32};
use super::mma::{
    MMA_64X64_FP32_3XTF32, MMA_64X64_FP32_FP64, MMA_BF16, MMA_FP16, MMA_FP32_3XTF32, MMA_FP32_FP64, MMA_TF32,
};
use super::narrow::{NARROW_2, NARROW_4, NARROW_8, NARROW_16, NARROW_16_3XTF32, NARROW_32_3XTF32};
use super::outer::OUTER;
use super::packed::{WGMMA_BF16, WGMMA_FP16, WGMMA_FP32_3XFP16, WGMMA_FP32_10XINT8, WGMMA_FP32_NORMWISE, WGMMA_TF32};
use super::register_tiled::{REGISTER_TILED, REGISTER_TILED_64, REGISTER_TILED_128};
use super::scheme::Family;
use super::short_k::WGMMA_SHORT_FP32_3XFP16;
use super::sliced::SLICED;
use super::staged::{WGMMA_STAGED_FP32_3XFP16, WGMMA_STAGED_FP32_NORMWISE};
use super::wgmma::{
    WGMMA_64X16_FP32_3XTF32, WGMMA_64X64_FP32_3XTF32, WGMMA_64X64_K32_FP32_3XTF32, WGMMA_256X32_FP32_3XTF32,
    WGMMA_256X64_FP32_3XTF32, WGMMA_FP32_3XTF32,
};
use super::whole::{WHOLE, WHOLE_ROWS};
use crate::{Error, Precision};

/// All kernels that multiply, in this order: from the simplest to those that use the most of the hardware.
pub static ALL: LazyLock<Vec<&'static KernelInfo>> = LazyLock::new(|| {
    let gemv = [&GEMV_SPLIT_ATOMIC_FP32, &GEMV_SPLIT_FP32, &GEMV_TRANSPOSED_SPLIT_FP32];
    let narrow = NARROW_2.iter().chain(&NARROW_4).chain(&NARROW_8).chain(&NARROW_16);
    let on_cuda_cores = BATCHED
        .iter()
        .chain([&WHOLE, &WHOLE_ROWS])
        .chain(&OUTER)
        .chain(&REGISTER_TILED_64)
        .chain(&REGISTER_TILED_128)
        .chain(&REGISTER_TILED);
    let of_rounded_operands = MMA_FP16.iter().chain(&MMA_BF16).chain(&MMA_TF32);
    let of_rounded_operands = of_rounded_operands.chain(&WGMMA_FP16).chain(&WGMMA_BF16).chain(&WGMMA_TF32);
    let of_fp64 = MMA_64X64_FP32_FP64.iter().chain(&MMA_FP32_FP64);
    let of_split_operands = SLICED
        .iter()
        .chain(&NARROW_16_3XTF32)
        .chain(&NARROW_32_3XTF32)
        .chain(&MMA_64X64_FP32_3XTF32)
        .chain(&MMA_FP32_3XTF32);
    let of_split_operands = of_split_operands
        .chain(&WGMMA_64X16_FP32_3XTF32)
        .chain(&WGMMA_64X64_K32_FP32_3XTF32)
        .chain(&WGMMA_64X64_FP32_3XTF32)
        .chain(&WGMMA_ANYWHERE_256X32_FP32_3XTF32)
        .chain(&WGMMA_ANYWHERE_256X64_FP32_3XTF32)
        .chain(&WGMMA_ANYWHERE_FP32_3XTF32)
        .chain(&WGMMA_256X32_FP32_3XTF32)
        .chain(&WGMMA_256X64_FP32_3XTF32)
        .chain(&WGMMA_FP32_3XTF32);
    let of_split_operands =
        of_split_operands.chain(&WGMMA_FP32_10XINT8).chain(&WGMMA_FP32_NORMWISE).chain(&WGMMA_STAGED_FP32_NORMWISE);
    let of_split_operands = of_split_operands.chain(&WGMMA_SHORT_FP32_3XFP16).chain(&WGMMA_FP32_3XFP16);
    let of_split_operands = of_split_operands.chain(&WGMMA_STAGED_FP32_3XFP16);
    let families = narrow.chain(on_cuda_cores).chain(of_fp64).chain(of_rounded_operands).chain(of_split_operands);
    BASIC.into_iter().chain(gemv).chain(families).collect()
});

/// The kernel of this name.
///
/// # Errors
/// [`Error::UnknownName`], with the name that is most like it.
pub fn find(name: &str) -> Result<&'static KernelInfo, Error> {
    let known = || ALL.iter().map(|kernel| kernel.name).collect();
    ALL.iter().copied().find(|kernel| kernel.name == name).ok_or_else(|| Error::unknown_name("kernel", name, known()))
}

/// The kernels of a family.
pub fn of(family: Family) -> impl Iterator<Item = &'static KernelInfo> {
    ALL.iter().copied().filter(move |kernel| kernel.family() == family)
}

/// The kernels that a plan of this precision may launch, on whatever device and for whatever product: those that compute in it,
/// or products without terms; those that compute what others skip; and those that come before and after.
pub fn of_plans(precision: Precision) -> Vec<KernelFacts> {
    let mut kernels: Vec<KernelFacts> = Vec::new();
    let mut add = |kernel: KernelFacts| {
        if kernels.iter().all(|known| known.name != kernel.name) {
            kernels.push(kernel);
        }
    };
    for kernel in ALL.iter().filter(|kernel| kernel.may_serve(precision.into(), 0)) {
        kernel.contract.queues_before().iter().for_each(|(before, _)| add(*before));
        add(kernel.facts);
        kernel.fallbacks().for_each(|fallback| add(fallback.facts));
    }
    AUXILIARY.into_iter().for_each(add);
    kernels
}

#[cfg(test)]
mod tests {
    use cuda_std::Kernel;
    use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
    use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
    use gpu_kernels::gemm::basic::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
    use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;

    use super::*;

    #[test]
    fn names_are_those_of_the_entry_points_and_are_found() {
        assert_eq!(
            BASIC.map(|kernel| kernel.name),
            [
                gemv_block_reduction_fp32::NAME,
                gemm_naive_1d_fp32::NAME,
                gemm_naive_2d_fp32::NAME,
                gemm_tiled_16_fp32::NAME,
                gemm_tiled_32_fp32::NAME
            ]
        );
        for (index, kernel) in ALL.iter().enumerate() {
            let found = find(kernel.name).unwrap();
            assert!(std::ptr::eq(found, *kernel), "two kernels are called {}, number {index} is one", kernel.name);
        }
        let message = find("gemm_tiled_23").unwrap_err().to_string();
        assert!(message.contains("did you mean `gemm_tiled_32_fp32`?"), "{message}");
    }
}
