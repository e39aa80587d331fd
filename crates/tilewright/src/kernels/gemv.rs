//! Products of matrices and vectors whose sums are divided among blocks: [`gpu_kernels::gemv`].

use gpu_kernels::gemv::split::{gemv_split_atomic_fp32, gemv_split_fp32, gemv_splits, groups_of_rows};
use gpu_kernels::gemv::transposed_split::{self, gemv_transposed_split_fp32, gemv_transposed_splits};

use super::{KernelInfo, Launch, Performance, Scheme};
use crate::plan::Storage;

/// Each sum is added to the result by as many blocks as share it, in whatever order they come.
pub static GEMV_SPLIT_ATOMIC_FP32: KernelInfo = KernelInfo {
    name: gemv_split_atomic_fp32::FACTS.name,
    facts: gemv_split_atomic_fp32::FACTS,
    idea: "the same in one pass: blocks add their partial sums to the result as they come",
    varies: true,
    launch: Launch::AtomicGemv {
        launch: |device, gemv, splits| device.launch(gemv_split_atomic_fp32 { gemv, splits }),
        splits: gemv_splits,
        groups: groups_of_rows,
    },
    ..GEMV_SPLIT
};

/// For a matrix that is stored by rows.
pub static GEMV_SPLIT_FP32: KernelInfo = GEMV_SPLIT;

/// For a matrix that is stored by columns: a transposed matrix, read in place.
pub static GEMV_TRANSPOSED_SPLIT_FP32: KernelInfo = KernelInfo {
    name: gemv_transposed_split_fp32::FACTS.name,
    facts: gemv_transposed_split_fp32::FACTS,
    idea: "blocks share long sums over a matrix that is stored by columns; a second pass adds up, in order",
    a: Some(Storage::ByColumns),
    launch: Launch::SplitGemv {
        launch: |device, gemv| device.launch(gemv_transposed_split_fp32 { gemv }),
        splits: gemv_transposed_splits,
        groups: transposed_split::groups_of_rows,
    },
    ..GEMV_SPLIT
};

/// The share of the bandwidth is rounded down: 2048×1048576 is read at 4.55 TB/s on an H200
/// (`docs/results/2026-11-21-h200-targets.md`), and the model counts with 4.2.
const GEMV_SPLIT: KernelInfo = KernelInfo {
    name: gemv_split_fp32::FACTS.name,
    facts: gemv_split_fp32::FACTS,
    idea: "blocks share long sums, four rows at a time; a second pass adds up what they have, in order",
    scheme: Scheme::Fp32,
    a: Some(Storage::ByRows),
    b: None,
    transposing: false,
    stores_by_tensor_map: false,
    most_terms: None,
    tile: None,
    divides_sums: true,
    varies: false,
    performance: Performance { blocks_per_multiprocessor: 3, share_of_peak: 1.0 },
    launch: Launch::SplitGemv {
        launch: |device, gemv| device.launch(gemv_split_fp32 { gemv }),
        splits: gemv_splits,
        groups: groups_of_rows,
    },
};
