//! Products of matrices and vectors with split-K, k being divided among blocks: [`gpu_kernels::gemv`].

use cuda_std::KernelFacts;
use gpu_kernels::gemm::split_k::SplitReduction;
use gpu_kernels::gemm::tiles::TileShape;
use gpu_kernels::gemv::SplitGemv;
use gpu_kernels::gemv::split::{self, gemv_split_atomic_fp32, gemv_split_fp32, gemv_splits};
use gpu_kernels::gemv::transposed_split::{self, gemv_transposed_split_fp32, gemv_transposed_splits};
use gpu_kernels::{Matrix, MatrixMut, Vector, VectorMut};

use super::auxiliary::{add_partial_sums, reduction};
use super::contract::{Call, Contract, Copies, KernelInfo, Performance};
use super::scheme::{Family, Scheme, SumOrder};
use crate::description::Description;
use crate::order::Order;
use crate::{Device, Error};

/// How a kernel divides the work.
#[derive(Debug)]
struct Division {
    /// The number of splits that makes good use of all multiprocessors, for the number of products, m and k, on so many multiprocessors.
    splits: fn(u32, u32, u32, u32) -> u32,
    /// The blocks of each split, for the number of products, m and k.
    blocks: fn(u32, u32, u32) -> u64,
}

/// A matrix row-major.
const ROWS: Division = Division { splits: gemv_splits, blocks: split::blocks_of_rows };
/// A matrix column-major.
const COLUMNS: Division = Division { splits: gemv_transposed_splits, blocks: transposed_split::blocks_of_rows };

impl Division {
    fn blocks(&self, product: &Description, splits: u32) -> u128 {
        let blocks = (self.blocks)(product.batch as u32, product.m as u32, product.k as u32);
        u128::from(blocks) * u128::from(splits)
    }

    fn best_splits(&self, product: &Description, multiprocessors: u32) -> u32 {
        (self.splits)(product.batch as u32, product.m as u32, product.terms() as u32, multiprocessors)
    }
}

/// B, which has one column.
pub(super) fn vector(b: Matrix<'_>) -> Result<Vector<'_>, Error> {
    Ok(Vector::new(b.data(), b.rows() as usize, b.row_stride() as usize)?)
}

/// C, which has one column.
pub(super) fn result(c: MatrixMut<'_>) -> Result<VectorMut<'_>, Error> {
    Ok(VectorMut::new(c.data(), c.rows() as usize, c.row_stride() as usize)?)
}

/// The contract of kernels whose partial sums, if there are any, are added up by another kernel.
#[derive(Debug)]
struct Split {
    launch: fn(&Device, SplitGemv<'_>) -> Result<(), Error>,
    division: Division,
}

impl Contract for Split {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        (self.launch)(device, SplitGemv::batch(call.alpha, call.beta, &call.gemm)?)
    }

    fn family(&self) -> Family {
        Family::Gemv
    }

    fn copies(&self) -> Copies {
        Copies::Nothing
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, splits: u32) -> u128 {
        self.division.blocks(product, splits)
    }

    fn best_splits(&self, product: &Description, multiprocessors: u32) -> Option<u32> {
        Some(self.division.best_splits(product, multiprocessors))
    }
}

/// The contract of the kernel whose blocks add to the result, which is scaled by β first.
#[derive(Debug)]
struct Atomic {
    launch: fn(&Device, SplitGemv<'_>, u32) -> Result<(), Error>,
    division: Division,
}

impl Contract for Atomic {
    fn launch(&self, device: &Device, call: &Call<'_>) -> Result<(), Error> {
        add_partial_sums(device, SplitReduction::scaling(call.beta, call.gemm.c())?, 1)?;
        (self.launch)(device, SplitGemv::batch(call.alpha, 1.0, &call.gemm)?, call.splits)
    }

    fn family(&self) -> Family {
        Family::Gemv
    }

    fn copies(&self) -> Copies {
        Copies::Nothing
    }

    fn makes_partial_sums(&self) -> bool {
        false
    }

    fn queues_before(&self) -> &'static [(KernelFacts, &'static str)] {
        const { &[(reduction(1, 1), "scale the result by beta")] }
    }

    fn blocks(&self, _tile: Option<TileShape>, product: &Description, splits: u32) -> u128 {
        self.division.blocks(product, splits)
    }

    fn best_splits(&self, product: &Description, multiprocessors: u32) -> Option<u32> {
        Some(self.division.best_splits(product, multiprocessors))
    }
}

/// Each sum is added to the result by as many blocks as share it, in whatever order they come.
pub static GEMV_SPLIT_ATOMIC_FP32: KernelInfo = KernelInfo {
    name: gemv_split_atomic_fp32::FACTS.name,
    facts: gemv_split_atomic_fp32::FACTS,
    idea: "the same in one pass: blocks add their partial sums to the result as they come",
    deterministic: false,
    contract: &Atomic {
        launch: |device, gemv, splits| device.launch(gemv_split_atomic_fp32 { gemv, splits }),
        division: ROWS,
    },
    ..GEMV_SPLIT
};

/// For a matrix that is row-major.
pub static GEMV_SPLIT_FP32: KernelInfo = GEMV_SPLIT;

/// For a matrix that is column-major: a transposed matrix, read in place.
pub static GEMV_TRANSPOSED_SPLIT_FP32: KernelInfo = KernelInfo {
    name: gemv_transposed_split_fp32::FACTS.name,
    facts: gemv_transposed_split_fp32::FACTS,
    idea: "blocks share long sums over a matrix that is column-major; a second pass adds up, in order",
    a: Some(Order::ColumnMajor),
    performance: Performance::new(3, 1.03).block(0.3).unaligned(1.05),
    contract: &Split { launch: |device, gemv| device.launch(gemv_transposed_split_fp32 { gemv }), division: COLUMNS },
    ..GEMV_SPLIT
};

/// The share of the bandwidth is rounded down: 2048×1048576 is read at 4.55 TB/s on an H200
/// (`docs/results/2026-11-21-h200-targets.md`), and the model counts with 4.2.
const GEMV_SPLIT: KernelInfo = KernelInfo {
    name: gemv_split_fp32::FACTS.name,
    facts: gemv_split_fp32::FACTS,
    idea: "blocks share long sums, four rows at a time; a second pass adds up what they have, in order",
    scheme: Scheme::Fp32,
    sums: SumOrder::Own,
    a: Some(Order::RowMajor),
    b: None,
    tile: None,
    divides_sums: true,
    deterministic: true,
    performance: Performance::new(3, 0.95).block(0.35).unaligned(1.05),
    contract: &Split { launch: |device, gemv| device.launch(gemv_split_fp32 { gemv }), division: ROWS },
};
