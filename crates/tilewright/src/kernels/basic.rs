//! Registers the basic kernels, from one thread for each element of C to tiles in shared memory. They take operands in any layout.

use cuda_std::KernelFacts;
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_1d::gemm_naive_1d_fp32;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::gemm::basic::tiled::{gemm_tiled_16_fp32, gemm_tiled_32_fp32};
use gpu_kernels::gemm::tiles::TileShape;
use gpu_kernels::gemv::Gemv;
use gpu_kernels::gemv::block_reduction::gemv_block_reduction_fp32;

use super::contract::{Call, Contract, KernelInfo, Performance};
use super::gemv::{result, vector};
use super::scheme::{Family, Scheme, SumOrder};
use crate::description::Description;
use crate::refusal::Refusal;
use crate::{Device, Error};

/// The contract of kernels that compute one product of matrices at a time, in as many blocks as it takes: they spread their
/// tiles along several axes of the grid, or loop.
#[derive(Debug)]
struct OneProduct {
    launch: fn(&Device, Gemm<'_>) -> Result<(), Error>,
    /// The most multiplications of products that it is chosen for.
    most: f64,
}

/// A kernel whose threads compute a sum each is for small products: on larger ones its time depends on how operands lie, by factors.
const MOST_OF_A_NAIVE_KERNEL: f64 = 1e6;

impl Contract for OneProduct {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        call.products().try_for_each(|(a, b, c)| (self.launch)(device, Gemm::new(call.alpha, a, b, call.beta, c)?))
    }

    fn is_batched(&self) -> bool {
        false
    }

    fn refusal(&self, product: &Description) -> Option<Refusal> {
        (product.operations() > 2.0 * self.most).then_some(Refusal::NotNaive { most: self.most })
    }

    fn most_blocks(&self) -> u128 {
        u128::MAX
    }

    fn blocks(&self, tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        let (m, n, batch) = (product.m as u128, product.n as u128, product.batch as u128);
        let blocks = match tile {
            Some(tile) => m.div_ceil(tile.m.into()) * n.div_ceil(tile.n.into()),
            // One thread for each element.
            None => (m * n).div_ceil(256),
        };
        blocks * batch
    }
}

/// The contract of the kernel that computes one product of a matrix and a vector at a time.
#[derive(Debug)]
struct OneVector(fn(&Device, Gemv<'_>) -> Result<(), Error>);

impl Contract for OneVector {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        call.products()
            .try_for_each(|(a, b, c)| (self.0)(device, Gemv::new(call.alpha, a, vector(b)?, call.beta, result(c)?)?))
    }

    fn family(&self) -> Family {
        Family::Gemv
    }

    fn is_batched(&self) -> bool {
        false
    }

    fn most_blocks(&self) -> u128 {
        u128::MAX
    }

    /// One for each row.
    fn blocks(&self, _tile: Option<TileShape>, product: &Description, _splits: u32) -> u128 {
        product.m as u128 * product.batch as u128
    }
}

/// What the kernels have in common. The share of the peak of the naive ones follows from their times on an H200
/// (`docs/results/2026-11-21-h200.md`), for operands whose neighbours lie where they suit the kernel.
pub(super) const fn rung(facts: KernelFacts, idea: &'static str, contract: &'static dyn Contract) -> KernelInfo {
    KernelInfo {
        name: facts.name,
        facts,
        idea,
        scheme: Scheme::Fp32,
        sums: SumOrder::OneByOne,
        a: None,
        b: None,
        tile: None,
        divides_sums: false,
        deterministic: true,
        performance: Performance::new(8, 0.08).block(1.0),
        contract,
    }
}

/// One block for each row: a tree of sums in shared memory.
pub static GEMV_BLOCK_REDUCTION_FP32: KernelInfo = KernelInfo {
    sums: SumOrder::Own,
    performance: Performance::new(8, 0.86),
    ..rung(
        gemv_block_reduction_fp32::FACTS,
        "a block shares one long sum: 256 threads per row, a tree of sums in shared memory",
        &OneVector(|device, gemv| device.launch(gemv_block_reduction_fp32 { gemv })),
    )
};

/// One thread for each element of C, numbered along a line.
pub static GEMM_NAIVE_1D_FP32: KernelInfo = rung(
    gemm_naive_1d_fp32::FACTS,
    "one thread per element of C, numbered along a line",
    &OneProduct { launch: |device, gemm| device.launch(gemm_naive_1d_fp32 { gemm }), most: MOST_OF_A_NAIVE_KERNEL },
);

/// One thread for each element of C, arranged like C.
pub static GEMM_NAIVE_2D_FP32: KernelInfo = KernelInfo {
    tile: Some(TileShape { m: 8, n: 32, k: 1 }),
    ..rung(
        gemm_naive_2d_fp32::FACTS,
        "one thread per element of C, arranged like C in blocks of 32x8",
        &OneProduct { launch: |device, gemm| device.launch(gemm_naive_2d_fp32 { gemm }), most: MOST_OF_A_NAIVE_KERNEL },
    )
};

/// Tiles of 16×16 in shared memory.
pub static GEMM_TILED_16_FP32: KernelInfo = KernelInfo {
    tile: Some(TileShape { m: 16, n: 16, k: 16 }),
    performance: Performance::new(8, 0.142).block(0.3),
    ..rung(
        gemm_tiled_16_fp32::FACTS,
        "a block shares what its threads would all load: 16x16 tiles in shared memory",
        &OneProduct { launch: |device, gemm| device.launch(gemm_tiled_16_fp32 { gemm }), most: f64::INFINITY },
    )
};

/// Tiles of 32×32 in shared memory.
pub static GEMM_TILED_32_FP32: KernelInfo = KernelInfo {
    tile: Some(TileShape { m: 32, n: 32, k: 32 }),
    performance: Performance::new(2, 0.153).block(0.44),
    ..rung(
        gemm_tiled_32_fp32::FACTS,
        "a block shares what its threads would all load: 32x32 tiles in shared memory",
        &OneProduct { launch: |device, gemm| device.launch(gemm_tiled_32_fp32 { gemm }), most: f64::INFINITY },
    )
};

/// The basic kernels, from the simplest on.
pub static BASIC: [&KernelInfo; 5] =
    [&GEMV_BLOCK_REDUCTION_FP32, &GEMM_NAIVE_1D_FP32, &GEMM_NAIVE_2D_FP32, &GEMM_TILED_16_FP32, &GEMM_TILED_32_FP32];
