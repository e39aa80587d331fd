//! A performance model: estimates how long a kernel takes for a product, from the GPU's peak rates, for products that have not been
//! measured.
//!
//! ```text
//! time  =  launch  +  max(waves · (steps · time of a step + fixed part), bytes / bandwidth)     the kernel
//!       +  launch  +  bytes of the partial results / bandwidth                                  with split-K
//!       +  launches  +  bytes read and written / bandwidth                                      for each prepared operand
//!       +  launch                                                                               where tiles may be repaired,
//!                                                                                               or left to another kernel
//!
//! waves  =  ⌈blocks / (multiprocessors · blocks on each)⌉        steps  =  ⌈k / (K-step · splits)⌉
//! ```
//!
//! It is a roofline with the steps that tiles make in it. The first line is longer where operands are not aligned, and where elements
//! of C are stored one by one. What it is for is the order of the candidates. The constants of kernels
//! ([`Performance`](crate::kernels::contract::Performance)) are fitted to times of an H200 for shapes drawn by chance: they are off by
//! 10 to 20 percent, and `tilewright bench --suite atlas --replan` says by how much for each kernel.
//!
//! The rates are those that NVIDIA publishes for a multiprocessor of the generation at 1.7 GHz; the bandwidth of the H200 is
//! measured. GPUs of a generation differ in their bandwidth: an RTX 4090 and an L4 come out the same here.

use super::kernel_candidate::KernelCandidate;
use super::preparation::Preparation;
use cuda_std::ComputeCapability;
use gpu_kernels::gemm::tiles::TileShape;

use crate::description::Description;
use crate::device_facts::{DeviceFacts, Processor};
use crate::kernels::contract::Stores;
use crate::kernels::{Family, KernelInfo, Scheme};
use crate::order::Order;

/// What a launch costs, in seconds, as long as the GPU waits for it. Measured on an H200.
const LAUNCH: f64 = 2e-6;

/// What another one costs, which begins when the one before has ended.
const NEXT_LAUNCH: f64 = 3e-6;

/// What a block costs that finds nothing to do, in seconds. Measured on an H200.
const IDLE_BLOCK: f64 = 0.8e-6;

/// The share of the bandwidth that packing and copying operands reaches.
const PREPARING: f64 = 0.7;

/// The share of the bandwidth at which results are stored from registers. Measured on an H200: 0.4 to 0.5.
const STORING: f64 = 0.5;

/// The blocks of a multiprocessor that keep the memory busy by reading alone.
const BUSY: f64 = 1.2;

/// What a wave of blocks costs that have little to read, one after the other, in seconds. Measured on an H200: 1.3 to 1.7 µs.
const WAVE: f64 = 1.3e-6;

/// What elements of a row cost that are stored one by one, in bytes for each byte. Measured on an H200: 3 to 6.
const ONE_BY_ONE: f64 = 4.0;

/// What rows cost that begin anywhere and are stored by lines, in bytes for each byte. Measured on an H200: 1 to 1.5.
const IN_LINES: f64 = 1.0;

/// What a term of a sum costs a thread that loads it from memory itself, in seconds: eight terms are under way at a time.
const TERM: f64 = 600e-9 / 8.0;

/// The rates of a device, in operations and in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// fp32 operations of all multiprocessors.
    fp32: f64,
    /// TF32 operations of all multiprocessors.
    tf32: f64,
    /// fp64 operations of all multiprocessors, on tensor cores.
    fp64: f64,
    /// The memory's bandwidth.
    bandwidth: f64,
}

impl Rates {
    fn of(device: &DeviceFacts) -> Self {
        const CLOCK: f64 = 1.7e9;
        let Processor::Gpu { compute_capability, .. } = device.processor else {
            return Self { fp32: 1e9, tf32: 1e9, fp64: 1e9, bandwidth: 1e9 };
        };
        let (major, minor) = compute_capability;
        // What nobody knows counts as what most have.
        let fp32 = f64::from(ComputeCapability::new(major, minor).fp32_per_clock().unwrap_or(256));
        // TF32 and fp64 operations of a multiprocessor in a clock, and the bandwidth of the memory.
        let (tf32, fp64, bandwidth) = match compute_capability {
            (8, 0) => (1024.0, 128.0, 1.5e12),
            // Where TF32 is no faster than fp32, products of parts are slower: GeForce, and the cards made from the same chips.
            (8, _) => (256.0, 4.0, 0.6e12),
            (9, _) => (2048.0, 256.0, 4.2e12),
            (10, 0) => (1024.0, 128.0, 1.5e12),
            (12, _) => (256.0, 4.0, 1.5e12),
            _ => (1024.0, 4.0, 1.5e12),
        };
        let all = CLOCK * f64::from(device.multiprocessors.max(1));
        Self { fp32: fp32 * all, tf32: tf32 * all, fp64: fp64 * all, bandwidth }
    }

    /// The rate at which a scheme multiplies, in operations of the product.
    fn peak(&self, scheme: Scheme) -> f64 {
        // What a product of the scheme costs, in TF32 products.
        let products = match scheme {
            Scheme::Fp32Fp64 => return self.fp64,
            Scheme::Fp32 => return self.fp32,
            // Int8 is four times as fast.
            Scheme::Fp32TenInt8 => 10.0 / 4.0,
            Scheme::Fp32Mixed => 2.0,
            Scheme::Fp32ThreeTf32 => 3.0,
            Scheme::Fp32ThreeFp16 | Scheme::Fp32ScaledFp16 => 1.5,
            Scheme::Tf32 => 1.0,
            Scheme::Bf16 | Scheme::Fp16 => 0.5,
        };
        self.tf32 / products
    }
}

/// The estimated time of a candidate, in milliseconds.
pub(crate) fn estimate(device: &DeviceFacts, candidate: &KernelCandidate) -> f64 {
    let KernelCandidate { ref product, kernel, splits, ref preparations, .. } = *candidate;
    let rates = Rates::of(device);
    let performance = kernel.performance;
    let slots = f64::from(device.multiprocessors.max(1)) * f64::from(resident_blocks(kernel, device));
    let waves = (kernel.blocks(product, splits) as f64 / slots).ceil();
    let results = 4.0 * product.m as f64 * product.n as f64 * product.batch as f64;
    // The last part is for what takes longer than the bytes alone.
    let stores = kernel.contract.stores();
    let slowly = if stores == Stores::Lines { 0.0 } else { results * (1.0 / STORING - 1.0) };
    let streaming = (product.traffic() + slowly) / rates.bandwidth;

    let block = performance.block_seconds;
    let multiply = match (kernel.family(), kernel.tile) {
        (Family::Gemv, _) => {
            // Reading alone: fewer blocks than it takes to keep the memory busy read less at a time. What has no preference for a
            // layout was written for rows; in a matrix stored otherwise, the loads of a warp come from as many lines as it has lanes.
            let busy = f64::from(device.multiprocessors.max(1)) * BUSY;
            let filled = (kernel.blocks(product, splits) as f64 / busy).clamp(1.0 / busy, 1.0);
            let scattered = if kernel.a.is_none() && product.a.order() != Some(Order::RowMajor) { 8.0 } else { 1.0 };
            let reading = streaming * scattered / (performance.share_of_peak * filled);
            block + reading.max(waves * WAVE)
        }
        (Family::Gemm, Some(tile)) => {
            let steps = (product.terms() as f64 / f64::from(tile.k) / f64::from(splits)).ceil();
            let step = seconds_of_step(&rates, kernel, tile, slots);
            // Neighbours in a column are stored one by one, each in a sector of its own: eight times the bytes. Where a thread
            // has two neighbours of a column, half of a sector is another block's or comes later: twice the bytes.
            let times = if stores == Stores::Squares { 1.0 } else { 7.0 };
            // Partial sums are row-major, and their rows begin at whole vectors. Where C is not, they are read by columns.
            let is_divided = candidate.is_divided();
            let by_columns = product.c.order() != Some(Order::RowMajor);
            // Where vectors of a row are no vectors of memory, lanes store their elements one by one. Those with fragments of `wgmma`
            // have pairs, the others four; of pairs, a store touches twice the sectors.
            let (width, one_by_one) = match (stores, kernel.loads_by_tensor_maps()) {
                (Stores::RowsOrLines, _) => (8, IN_LINES),
                (_, true) => (2, 1.5 * ONE_BY_ONE),
                (_, false) => (4, ONE_BY_ONE),
            };
            let lines_are_vectors = is_divided || product.c.leading_dimension().is_multiple_of(width);
            let in_vectors = stores == Stores::Lines || (product.n.is_multiple_of(width) && lines_are_vectors);
            let scattered = match (by_columns, in_vectors) {
                (true, _) => times * f64::from(splits) * results / rates.bandwidth,
                (false, true) => 0.0,
                (false, false) => one_by_one * f64::from(splits) * results / rates.bandwidth,
            };
            (waves * (steps * step + block)).max(streaming) + scattered
        }
        (Family::Gemm, None) => {
            // A thread computes its sum alone, and waits for its terms.
            let computing = product.operations() / (rates.peak(kernel.scheme) * performance.share_of_peak);
            computing.max(streaming).max(waves * product.terms() as f64 * TERM) + block
        }
    };
    let partials = f64::from(splits) * kernel.scheme.parts_of_sums() as f64;
    let reduction = if splits > 1 { NEXT_LAUNCH + results * (2.0 * partials + 1.0) / rates.bandwidth } else { 0.0 };
    let prepared =
        |(launches, bytes): (u32, f64)| f64::from(launches) * NEXT_LAUNCH + bytes / (PREPARING * rates.bandwidth);
    let preparation: f64 = preparations.iter().map(Preparation::cost).map(prepared).sum();
    let repair = match candidate.fallback {
        Some(_) => NEXT_LAUNCH + waves * IDLE_BLOCK,
        None if !candidate.tile_mask.is_empty() => NEXT_LAUNCH,
        None => 0.0,
    };
    let launches = if kernel.contract.is_batched() { 1.0 } else { product.batch.max(1) as f64 };
    let multiply = if product.is_aligned() { multiply } else { multiply * performance.unaligned };
    (launches * LAUNCH + multiply + reduction + preparation + repair) * 1e3
}

/// What a product takes of a device that computes many at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// The blocks; where a block has tiles of several products, a part of one counts as that.
    pub(super) blocks: f64,
    /// How long a block takes, in seconds.
    pub(super) seconds: f64,
    /// How many blocks the device runs at a time.
    pub(super) slots: f64,
}

/// What a product takes whose tiles are computed beside those of others, by a kernel with tiles.
pub(super) fn share(device: &DeviceFacts, kernel: &KernelInfo, product: &Description) -> Share {
    let (rates, performance) = (Rates::of(device), kernel.performance);
    let slots = f64::from(device.multiprocessors.max(1)) * f64::from(resident_blocks(kernel, device));
    let Some(tile) = kernel.tile else { return Share { blocks: 0.0, seconds: 0.0, slots } };
    let of_a_block = f64::from(kernel.contract.tiles_of_a_block());
    let tiles = (product.m as f64 / f64::from(tile.m)).ceil() * (product.n as f64 / f64::from(tile.n)).ceil();
    let steps = (product.terms() as f64 / f64::from(tile.k)).ceil();
    let seconds = steps * seconds_of_step(&rates, kernel, tile, slots) + performance.block_seconds;
    let seconds = if product.is_aligned() { seconds } else { seconds * performance.unaligned };
    Share { blocks: tiles / of_a_block, seconds, slots }
}

/// How long a block takes for a step, while all others of the device do the same.
fn seconds_of_step(rates: &Rates, kernel: &KernelInfo, tile: TileShape, slots: f64) -> f64 {
    let tiles = f64::from(kernel.contract.tiles_of_a_block());
    let work = 2.0 * f64::from(tile.m) * f64::from(tile.n) * f64::from(tile.k) * tiles;
    work * slots / (rates.peak(kernel.scheme) * kernel.performance.share_of_peak)
}

/// What so many launches cost, one after the other, in seconds.
pub(super) fn seconds_of_launches(count: usize) -> f64 {
    if count == 0 { 0.0 } else { LAUNCH + (count - 1) as f64 * NEXT_LAUNCH }
}

/// The bandwidth of the memory, in bytes per second.
pub(super) fn bandwidth(device: &DeviceFacts) -> f64 {
    Rates::of(device).bandwidth
}

/// The blocks that a multiprocessor runs at a time.
fn resident_blocks(kernel: &KernelInfo, device: &DeviceFacts) -> u32 {
    kernel.performance.blocks_per_multiprocessor.min(device.limits.resident_blocks(&kernel.facts)).max(1)
}

/// The numbers of splits of which one should be the fastest: those that fill whole waves of blocks, and the fewest.
pub fn candidate_splits(kernel: &KernelInfo, device: &DeviceFacts, product: &Description) -> Vec<u32> {
    let most = kernel.pieces(product);
    if let Some(best) = kernel.contract.best_splits(product, device.multiprocessors) {
        return vec![best.clamp(1, most)];
    }
    let slots = u128::from(device.multiprocessors.max(1)) * u128::from(resident_blocks(kernel, device));
    let undivided = kernel.blocks(product, 1).max(1);
    let fewest = kernel.contract.fewest_splits(product);
    let mut candidates = vec![fewest];
    for waves in 1..=4 {
        let splits = (waves * slots / undivided).min(most.into()) as u32;
        if splits > fewest && product.batch as u64 * u64::from(splits) <= i32::MAX as u64 {
            candidates.push(splits);
        }
    }
    candidates.sort_unstable();
    candidates.dedup();
    candidates
}
