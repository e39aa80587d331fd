//! A performance model: estimates how long a kernel takes for a product, for products that have not been measured.
//!
//! ```text
//! time  =  launch  +  both(waves · (steps · time of a step + fixed part), bytes / bandwidth)    the kernel
//!       +  launch  +  bytes of the partial results / bandwidth                                  with split-K
//!       +  launch  +  bytes of the results, twice / bandwidth                                   where an epilogue is done after it
//!       +  launches  +  bytes read and written / bandwidth                                      for each prepared operand
//!       +  launch                                                                               where tiles may be repaired,
//!                                                                                               or left to another kernel
//!
//! waves  =  ⌈blocks / multiprocessors⌉ / blocks on each           steps  =  ⌈k / (K-step · splits)⌉
//! ```
//!
//! A wave that is not full takes less than a full one, but more than its part, because a block that is alone waits for itself. Both are the longer of the
//! two, or more where they take as long: ∛(x³ + y³).
//! It is a roofline with the steps that tiles make in it. The first line is longer where operands are not aligned, and where elements
//! of C are stored one by one. Where a block copies all that it computes with, what it waits for comes on top of what all of a multiprocessor's blocks share:
//! both(bytes / bandwidth, passes through shared memory) + waves · (fixed part + rounds · terms · time of a term). What it is for is the order of the
//! candidates.
//!
//! ```text
//!  candidate ─► Features          what there is to count: waves, steps, bytes; no constant of a GPU in it
//!                  │   ◄── Constants
//!                  ▼
//!                Line             the time as a function of the kernel's share of the peak, and of the cost of a block
//!                  ▼
//!                 ms
//! ```
//!
//! The [constants](Constants) that are built in are fitted to times of an H200 for shapes drawn by chance: they are off by 10 to 20
//! percent there, and `tilewright bench --suite atlas --replan` says by how much for each kernel. On other GPUs they are a guess, until
//! `tilewright tune --constants` has measured them: [`fit`](super::fit) finds constants by which features have the times that were
//! measured.

use super::gemm_plan::GemmPlan;
use super::kernel_candidate::KernelCandidate;
use super::preparation::Preparation;
use cuda_std::ComputeCapability;
use gpu_kernels::gemm::split_k::MANY_SPLITS;
use gpu_kernels::gemm::tiles::TileShape;

use crate::constants::{Constants, KernelConstants, Machine};
use crate::description::Description;
use crate::device_facts::{DeviceFacts, Processor};
use crate::kernels::contract::{Copying, Stores};
use crate::kernels::{Family, KernelInfo, Scheme};
use crate::order::Order;
use crate::placement::Placement;

/// How long a block takes that has a multiprocessor for itself, as a part of what it takes among all that it has room for.
const ALONE: f64 = 0.55;

/// A kernel whose steps should take less than this part of what anything else takes is not what kept that waiting.
pub(super) const MUCH_FASTER: f64 = 0.5;

/// The blocks of a multiprocessor that keep the memory busy by reading alone.
const BUSY: f64 = 1.2;

/// The operations of one term of a round of a block: 256 threads with 16 sums each.
const OPERATIONS_OF_A_ROUND: f64 = 2.0 * 256.0 * 16.0;

/// How many trips to the second-level cache take as long as one to memory.
const CACHED: f64 = 6.0;

/// The elements of a sector of memory.
const SECTOR: usize = 8;

/// The sides of the tiles by which operands are copied and packed, the blocks of a multiprocessor that do so, and how many times as long one of them
/// takes, however few elements it has, as a block that has little to read: it loads, meets the others at a barrier, and stores.
const SIDE_OF_PREPARED: usize = 64;
const BLOCKS_OF_PREPARED: f64 = 5.0;
const WAVES_OF_PREPARED: f64 = 3.0;

/// What a wave of blocks waits for each element of a tile if C is read, in seconds: a block asks for what C was when it has its sums, some of it at a time.
/// (On an H200, and what most kernels have under way: tiles of 32×32 to 256×128 take 0.3 to 9 µs.)
const OLD_VALUE_SECONDS: f64 = 0.29e-9;

/// How many times as many sectors are touched where the neighbours of a row are pairs, than where they are fours.
const PAIRS: f64 = 1.5;

/// Whether all lines of an operand that is read in place are one: then all blocks ask the same part of the L2 at a time.
fn is_repeated(candidate: &KernelCandidate) -> bool {
    let KernelCandidate { product, preparations: [a, b], .. } = candidate;
    let in_place = |preparation: &Preparation| matches!(preparation, Preparation::InPlace);
    in_place(a) && product.m > 1 && product.a.row_stride == 0
        || in_place(b) && product.n > 1 && product.b.col_stride == 0
}

/// What the time of a candidate depends on, apart from constants of the GPU and of the kernel: what there is to count. Times are in
/// seconds here, and amounts in bytes or operations.
#[derive(Clone, Debug)]
pub struct Features {
    kernel: &'static KernelInfo,
    /// The part of what it loads that begins anywhere.
    unaligned: f64,
    /// Whether all lines of an operand that is read in place are one.
    is_repeated: bool,
    /// Launches of the kernel.
    launches: f64,
    /// Launches before and after it.
    next_launches: f64,
    /// The bytes that preparing operands reads and writes.
    prepared: f64,
    /// The waves of blocks that do so.
    prepared_waves: f64,
    /// Those that adding up partial results does, or an epilogue after the kernel.
    partials: f64,
    /// The trips to memory that doing so takes beside those of every launch.
    trips: f64,
    /// The waves of blocks that find nothing to do.
    idle_waves: f64,
    /// How long blocks wait for what C was.
    old_seconds: f64,
    /// The bytes that the kernel has to read and write, and more where its accesses do not reach the bandwidth.
    traffic: f64,
    /// Those of them that it stores from registers.
    from_registers: f64,
    waves: f64,
    work: Work,
}

/// What a kernel does.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Reads a matrix: so many times as many bytes as it has, on so large a part of the GPU.
    Vector { scattered: f64, filled: f64 },
    /// Multiplies tiles, in so many waves of so many steps of so many operations of all multiprocessors together.
    Tiles { waves: f64, steps: f64, operations: f64, stored: Stored },
    /// Computes each sum by a thread.
    Sums { operations: f64, terms: f64 },
    /// Copies what a block computes from and to memory as it lies, and computes in between: waves of so many operations of all threads. So
    /// many bytes are copied again. Passes through shared memory take as long as so many operations.
    Copies { operations: f64, again: f64, passes: f64 },
}

/// Bytes of results that are stored apart from their neighbours.
#[derive(Clone, Copy, Debug)]
enum Stored {
    /// As many more bytes move.
    Apart(f64),
    /// By elements.
    OneByOne(f64),
    /// By lines, although rows begin anywhere.
    InLines(f64),
}

/// The constants that are built in for a device.
pub(crate) fn built_in(device: &DeviceFacts) -> Constants {
    let compute_capability = match device.processor {
        Processor::Gpu { compute_capability, .. } => Some(compute_capability),
        Processor::Cpu => None,
    };
    Constants::built_in(compute_capability, device.multiprocessors)
}

/// The constants of a kernel.
pub(crate) fn kernel_constants(constants: &Constants, kernel: &KernelInfo) -> KernelConstants {
    constants.kernels.get(kernel.name).copied().unwrap_or_else(|| kernel.built_in_constants())
}

/// The rate at which a scheme multiplies, in operations of the product.
pub(super) fn peak(machine: &Machine, scheme: Scheme) -> f64 {
    // What a product of the scheme costs, in TF32 products.
    let products = match scheme {
        Scheme::Fp32Fp64 => return machine.fp64_rate,
        Scheme::Fp32 => return machine.fp32_rate,
        // Int8 is four times as fast.
        Scheme::Fp32TenInt8 => 10.0 / 4.0,
        Scheme::Fp32ThreeTf32 => 3.0,
        Scheme::Fp32ThreeFp16 | Scheme::Fp32ScaledFp16 => 1.5,
        Scheme::Tf32 => 1.0,
        Scheme::Bf16 | Scheme::Fp16 => 0.5,
    };
    machine.tf32_rate / products
}

/// The time of a candidate on one GPU, as it depends on the constants of its kernel:
///
/// ```text
/// before  +  both(unaligned · per_share / share + blocks · block, floor) + blocks_after · block + scattered
/// ```
///
/// Operands that begin anywhere take more instructions to load, and what goes on meanwhile may hide that, unless less is under way at a time then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Launches, and what happens before and after the kernel.
    pub(super) before: f64,
    /// The time at the peak.
    pub(super) per_share: f64,
    /// The blocks that come one after the other.
    pub(super) blocks: f64,
    /// What else takes as long, at the least.
    pub(super) floor: f64,
    /// Whether that, too, takes longer for operands that begin anywhere.
    pub(super) slows_all: bool,
    /// Blocks whose cost nothing hides.
    pub(super) blocks_after: f64,
    /// Storing what has no neighbours.
    pub(super) scattered: f64,
}

impl Line {
    /// The time of the kernel, in seconds, whose steps take so many times as long as for aligned operands.
    pub(super) fn kernel_seconds(&self, share: f64, block: f64, times: f64) -> f64 {
        let busy = times * self.per_share / share + self.blocks * block;
        let floor = if self.slows_all { times * self.floor } else { self.floor };
        both(busy, floor) + self.blocks_after * block + self.scattered
    }

    /// How many times as long the steps take where the kernel takes so many seconds, and how much that says of it: the part of the time that they are.
    pub(super) fn times_of(&self, seconds: f64, share: f64, block: f64) -> Option<(f64, f64)> {
        let steps = self.per_share / share;
        let kernel = seconds - self.blocks_after * block - self.scattered;
        if self.slows_all {
            return Some((kernel / both(steps, self.floor), kernel / seconds));
        }
        let busy = beside(kernel, self.floor) - self.blocks * block;
        (busy > 0.0 && steps > MUCH_FASTER * self.floor).then(|| (busy / steps, busy / seconds))
    }
}

/// How long two things take that go on at the same time: as the longer one where they differ much. Where they take as long, each waits for the other
/// now and then, and together they take a quarter more.
pub(super) fn both(one: f64, other: f64) -> f64 {
    (one.powi(3) + other.powi(3)).cbrt()
}

/// How long what is done beside `other` takes by itself, if together they take so long: see [`both`].
pub(super) fn beside(together: f64, other: f64) -> f64 {
    (together.powi(3) - other.powi(3)).max(0.0).cbrt()
}

impl Features {
    /// What there is to count of a plan's product on its device.
    pub fn of(plan: &GemmPlan) -> Self {
        Self::of_candidate(&plan.explanation.device, &plan.candidate)
    }

    /// The kernel that multiplies.
    pub fn kernel(&self) -> &'static KernelInfo {
        self.kernel
    }

    /// Whether what it loads begins at multiples of 16 bytes.
    pub fn is_aligned(&self) -> bool {
        self.unaligned == 0.0
    }

    /// How many times as long its steps take as for aligned operands, where they take `unaligned` times as long for those that begin anywhere.
    pub(super) fn times(&self, unaligned: f64) -> f64 {
        1.0 + (unaligned - 1.0) * self.unaligned
    }

    /// How many times as long steps take for operands that begin anywhere, where they take so many times as long for these.
    pub(super) fn of_unaligned(&self, times: f64) -> f64 {
        1.0 + (times - 1.0) / self.unaligned
    }

    /// The time that the model estimates with these constants, in milliseconds.
    pub fn ms(&self, constants: &Constants) -> f64 {
        let KernelConstants { share_of_peak, block_seconds, unaligned } = kernel_constants(constants, self.kernel);
        let line = self.line(&constants.machine);
        let multiply = line.kernel_seconds(share_of_peak, block_seconds, self.times(unaligned));
        let multiply = if self.is_repeated { multiply * self.kernel.performance.repeated } else { multiply };
        (line.before + multiply) * 1e3
    }

    pub(crate) fn of_candidate(device: &DeviceFacts, candidate: &KernelCandidate) -> Self {
        let KernelCandidate { ref product, kernel, splits, ref preparations, .. } = *candidate;
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let slots = multiprocessors * f64::from(resident_blocks(kernel, device));
        let blocks = kernel.blocks(product, splits) as f64;
        let copying = kernel.contract.copying(product, device.multiprocessors);
        let blocks = copying.map_or(blocks, |copying| copying.blocks as f64);
        let waves = (blocks / slots).ceil();
        let results = bytes_of_results(product);
        let stores = kernel.contract.stores();
        let work = match (kernel.family(), kernel.tile) {
            (Family::Gemv, _) => {
                // Reading alone: fewer blocks than it takes to keep the memory busy read less at a time. What has no preference for a
                // layout was written for rows; in a matrix stored otherwise, the loads of a warp come from as many lines as it has
                // lanes.
                let busy = multiprocessors * BUSY;
                let filled = (blocks / busy).clamp(1.0 / busy, 1.0);
                let scattered =
                    if kernel.a.is_none() && product.a.order() != Some(Order::RowMajor) { 8.0 } else { 1.0 };
                Work::Vector { scattered, filled }
            }
            (Family::Gemm, Some(tile)) => {
                let steps = steps(kernel, tile, product, splits);
                let operations = operations_of_step(kernel, tile, slots);
                let stored = stored(candidate, stores);
                Work::Tiles { waves: busy_waves(kernel, device, blocks), steps, operations, stored }
            }
            (Family::Gemm, None) if let Some(Copying { rounds, again, passes, .. }) = copying => {
                let operations = f64::from(rounds) * product.terms() as f64 * OPERATIONS_OF_A_ROUND * slots;
                // On the multiprocessor that has most blocks: the others wait for it.
                let clocks = (blocks / multiprocessors).ceil() * passes;
                Work::Copies { operations, again: 4.0 * again, passes: clocks * operations_of_a_clock(device) }
            }
            (Family::Gemm, None) => Work::Sums { operations: product.operations(), terms: product.terms() as f64 },
        };
        let preparing = Preparation::kernels_of(preparations).len();
        let is_reduced = splits > 1;
        let partials = f64::from(splits) * kernel.scheme.parts_of_sums() as f64;
        let (is_followed, results_again) = match candidate.launches_epilogue() {
            true => (1, 2.0 * results),
            false => (0, 0.0),
        };
        let repairs = candidate.fallback.is_some() || !candidate.tile_mask.is_empty();
        Self {
            kernel,
            unaligned: unaligned(candidate, copying),
            is_repeated: is_repeated(candidate),
            launches: if kernel.contract.is_batched() { 1.0 } else { product.batch.max(1) as f64 },
            next_launches: (preparing + usize::from(is_reduced) + usize::from(repairs) + is_followed) as f64,
            prepared: preparations.iter().map(Preparation::traffic).sum(),
            prepared_waves: prepared_tiles(candidate) / (multiprocessors * BLOCKS_OF_PREPARED),
            partials: results_again + if is_reduced { results * (2.0 * partials + 1.0) } else { 0.0 },
            trips: if is_reduced { trips_of_reduction(product.n, splits) } else { 0.0 },
            idle_waves: if candidate.fallback.is_some() { waves } else { 0.0 },
            old_seconds: match kernel.tile {
                Some(tile) if !product.beta_is_zero && !is_reduced => {
                    let elements = f64::from(tile.m) * f64::from(tile.n);
                    waves * elements * OLD_VALUE_SECONDS * kernel.performance.old_values
                }
                _ => 0.0,
            },
            traffic: product.traffic() / kernel.performance.of_bandwidth * by_few(kernel, blocks, multiprocessors),
            from_registers: if matches!(stores, Stores::WholeRows | Stores::Lines) { 0.0 } else { results },
            waves,
            work,
        }
    }

    /// The time on a machine, as it depends on the constants of the kernel.
    pub(super) fn line(&self, machine: &Machine) -> Line {
        let before = self.launches * machine.launch_seconds
            + self.next_launches * machine.next_launch_seconds
            + self.idle_waves * machine.idle_block_seconds
            + self.partials / machine.bandwidth
            + self.trips * machine.wave_seconds
            + self.old_seconds
            + (self.prepared / (machine.preparing_share * machine.bandwidth))
                .max(self.prepared_waves * WAVES_OF_PREPARED * machine.wave_seconds);
        // The last part is for what takes longer than the bytes alone.
        let slowly = self.from_registers * (1.0 / machine.storing_share - 1.0);
        let streaming = (self.traffic + slowly) / machine.bandwidth;
        let rate = peak(machine, self.kernel.scheme);
        match self.work {
            Work::Vector { scattered, filled } => Line {
                before,
                per_share: streaming * scattered / filled,
                blocks: 0.0,
                floor: self.waves * machine.wave_seconds,
                slows_all: false,
                blocks_after: 1.0,
                scattered: 0.0,
            },
            Work::Tiles { waves, steps, operations, stored } => {
                // What a block costs apart from its steps is hidden by others, where there are some on the multiprocessor.
                let blocks = if self.kernel.performance.waits { [0.0, waves] } else { [waves, 0.0] };
                let stored = match stored {
                    Stored::Apart(bytes) => bytes,
                    Stored::OneByOne(bytes) => machine.stored_one_by_one * bytes,
                    Stored::InLines(bytes) => machine.stored_in_lines * bytes,
                };
                Line {
                    before,
                    per_share: waves * steps * operations / rate,
                    blocks: blocks[0],
                    floor: streaming,
                    slows_all: self.kernel.performance.loads_elements,
                    blocks_after: blocks[1],
                    scattered: stored / machine.bandwidth,
                }
            }
            // Blocks wait for their copies, and threads for the terms that they load, whatever others do meanwhile.
            Work::Copies { operations, again, passes } => Line {
                before,
                per_share: self.waves * operations / rate,
                blocks: self.waves,
                floor: 0.0,
                slows_all: false,
                blocks_after: 0.0,
                scattered: both(
                    (self.traffic + again) / (machine.preparing_share * machine.bandwidth),
                    passes / machine.fp32_rate,
                ),
            },
            // A thread computes its sum alone, and waits for its terms.
            Work::Sums { operations, terms } => Line {
                before,
                per_share: operations / rate,
                blocks: 0.0,
                floor: streaming.max(self.waves * terms * machine.term_seconds),
                slows_all: false,
                blocks_after: 1.0,
                scattered: 0.0,
            },
        }
    }
}

/// How many times as long reading takes where there are fewer blocks than multiprocessors. (Beside steps, that is; for [`Work::Vector`], which only reads, `filled` says it.)
fn by_few(kernel: &KernelInfo, blocks: f64, multiprocessors: f64) -> f64 {
    let [by_rows, by_columns] = kernel.performance.alone;
    let alone = if kernel.a == Some(Order::ColumnMajor) { by_columns } else { by_rows };
    (multiprocessors / (blocks.max(1.0) * alone)).max(1.0)
}

/// The part of what a kernel loads whose lines begin anywhere, and twice as much where no elements are neighbours. Lines at multiples of 8 bytes count as those at
/// 4, unless the kernel copies their elements in pairs: that takes twice as many instructions as fours do, where single elements take four times as many.
/// Operands that are copied or packed first lie as they should.
fn unaligned(candidate: &KernelCandidate, copying: Option<Copying>) -> f64 {
    let KernelCandidate { ref product, kernel, ref preparations, .. } = *candidate;
    let Description { m, n, k, batch, ref a, ref b, .. } = *product;
    let [of_a, of_b] = match (kernel.tile, copying) {
        (_, Some(_)) => return 0.0,
        // The vector is little beside the matrix.
        (None, None) if kernel.family() == Family::Gemv => [1.0, 0.0],
        (None, None) => [0.5, 0.5],
        (Some(tile), None) => [tile.m, tile.n].map(|lines| f64::from(lines) / f64::from(tile.m + tile.n)),
    };
    let part = |preparation: &Preparation, it: &Placement, [rows, cols]: [usize; 2]| match preparation {
        Preparation::Copied(_) | Preparation::Packed(_) => 0.0,
        Preparation::InPlace if it.order().is_none() => 2.0,
        Preparation::InPlace => match it.alignment_of_lines(rows, cols, batch) {
            16.. => 0.0,
            8.. if kernel.performance.copies_pairs => 1.0 / 3.0,
            _ => 1.0,
        },
    };
    of_a * part(&preparations[0], a, [m, k]) + of_b * part(&preparations[1], b, [k, n])
}

/// The trips to memory that adding up partial results takes beside those of every launch, for rows of so many elements.
fn trips_of_reduction(n: usize, splits: u32) -> f64 {
    // Threads that share partials, which wait for each other's sums where they are of several warps.
    let sharers: u32 = match splits {
        ..MANY_SPLITS => 1,
        MANY_SPLITS..64 => 4,
        64..256 => 32,
        _ => 128,
    };
    let meeting = if sharers < 32 { 0.0 } else { 1.0 };
    // The last elements of a row are no vector: when the warp has done its vectors, they are loaded one by one, of two partials at a time, from the
    // second-level cache.
    let pairs = f64::from(splits.div_ceil(2 * sharers));
    let one_by_one = if n.is_multiple_of(4) { 0.0 } else { 0.75 + pairs / CACHED };
    meeting + one_by_one
}

/// The tiles by which operands are copied or packed.
fn prepared_tiles(candidate: &KernelCandidate) -> f64 {
    let KernelCandidate { ref product, ref preparations, .. } = *candidate;
    let Description { m, n, k, batch, ref a, ref b, .. } = *product;
    let of_one = [(a, [m, k]), (b, [k, n])].into_iter().zip(preparations);
    let tiles = of_one.filter(|(_, preparation)| preparation.traffic() > 0.0).map(|((it, lines), _)| {
        let [down, across] = lines.map(|lines| lines.div_ceil(SIDE_OF_PREPARED) as f64);
        down * across * it.distinct(batch) as f64
    });
    tiles.sum()
}

/// The bytes of results that a kernel with tiles stores apart from their neighbours.
fn stored(candidate: &KernelCandidate, stores: Stores) -> Stored {
    let KernelCandidate { ref product, kernel, splits, .. } = *candidate;
    let results = bytes_of_results(product);
    let is_divided = candidate.is_divided();
    let lines = matches!(stores, Stores::RowsOrLines | Stores::Lines) && !is_divided;
    let is_by_columns = match product.c.order() {
        Some(Order::RowMajor) => false,
        Some(Order::ColumnMajor) => true,
        // Whoever stores elements with gaps between them touches a sector for each, or for so many.
        None => return Stored::Apart((product.c.col_stride.clamp(1, SECTOR) - 1) as f64 * results),
    };
    match (is_by_columns, stores) {
        // Partial sums are row-major, and are read by columns then: a sector for each element. Neighbours in a column that are stored one by one
        // touch as many, those of which a thread has two, half.
        (true, _) if is_divided => return Stored::Apart((SECTOR - 1) as f64 * f64::from(splits) * results),
        (true, Stores::Squares) => return Stored::Apart(results),
        (true, _) if !lines => return Stored::Apart((SECTOR - 1) as f64 * results),
        // A tile has a piece of many columns.
        (true, Stores::Lines) => return Stored::Apart(results),
        _ => {}
    }
    // Where vectors of a line are no vectors of memory, lanes store their elements one by one. Those with fragments of `wgmma`
    // have pairs, the others four; of pairs, a store touches twice the sectors.
    let (width, apart) = match (stores, kernel.loads_by_tensor_maps()) {
        (Stores::RowsOrLines | Stores::Lines, _) => (4, Stored::InLines(results)),
        (_, true) => (2, Stored::OneByOne(PAIRS * results)),
        (_, false) => (4, Stored::OneByOne(results)),
    };
    let in_vectors = stores == Stores::WholeRows || is_divided || product.c.leading_dimension().is_multiple_of(width);
    if in_vectors { Stored::Apart(0.0) } else { apart }
}

/// The bytes of the results of all products.
fn bytes_of_results(product: &Description) -> f64 {
    4.0 * product.m as f64 * product.n as f64 * product.batch as f64
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
pub(super) fn share(constants: &Constants, device: &DeviceFacts, kernel: &KernelInfo, product: &Description) -> Share {
    let KernelConstants { share_of_peak, block_seconds, unaligned } = kernel_constants(constants, kernel);
    let slots = f64::from(device.multiprocessors.max(1)) * f64::from(resident_blocks(kernel, device));
    let Some(tile) = kernel.tile else { return Share { blocks: 0.0, seconds: 0.0, slots } };
    let tiles = (product.m as f64 / f64::from(tile.m)).ceil() * (product.n as f64 / f64::from(tile.n)).ceil();
    let steps = steps(kernel, tile, product, 1);
    let step = operations_of_step(kernel, tile, slots) / (peak(&constants.machine, kernel.scheme) * share_of_peak);
    let times = if product.is_aligned() { 1.0 } else { unaligned };
    let seconds = steps * step * times + block_seconds;
    Share { blocks: tiles / f64::from(kernel.contract.tiles_of_a_block()), seconds, slots }
}

/// How many full waves take as long as so many blocks, on the multiprocessor that has most of them: its last ones, which may be fewer than it has
/// room for, share it with fewer others.
fn busy_waves(kernel: &KernelInfo, device: &DeviceFacts, blocks: f64) -> f64 {
    let resident = f64::from(resident_blocks(kernel, device));
    let most = (blocks / f64::from(device.multiprocessors.max(1))).ceil();
    let (whole, rest) = ((most / resident).floor(), most % resident);
    if rest > 0.0 { whole + ALONE + (1.0 - ALONE) * rest / resident } else { whole }
}

/// The steps of the longest split. Where warps divide each among themselves, those that there are no terms for do nothing in the last one.
fn steps(kernel: &KernelInfo, tile: TileShape, product: &Description, splits: u32) -> f64 {
    let (terms, step) = (product.terms() as f64, f64::from(tile.k));
    let longest = ((terms / step / f64::from(splits)).ceil() * step).min(terms);
    let parts = f64::from(kernel.performance.parts_of_steps);
    (longest * parts / step).ceil() / parts
}

/// The operations of a step of so many blocks together.
fn operations_of_step(kernel: &KernelInfo, tile: TileShape, blocks: f64) -> f64 {
    let tiles = f64::from(kernel.contract.tiles_of_a_block());
    2.0 * f64::from(tile.m) * f64::from(tile.n) * f64::from(tile.k) * tiles * blocks
}

/// The fp32 operations that all multiprocessors do in a clock, in which the shared memory of each serves one pass of a warp.
fn operations_of_a_clock(device: &DeviceFacts) -> f64 {
    let of_one = match device.processor {
        Processor::Gpu { compute_capability: (major, minor), .. } => {
            ComputeCapability::new(major, minor).fp32_per_clock()
        }
        Processor::Cpu => None,
    };
    f64::from(device.multiprocessors.max(1)) * f64::from(of_one.unwrap_or(256))
}

/// What so many launches cost, one after the other, in seconds.
pub(super) fn seconds_of_launches(machine: &Machine, count: usize) -> f64 {
    if count == 0 { 0.0 } else { machine.launch_seconds + (count - 1) as f64 * machine.next_launch_seconds }
}

/// The blocks of a kernel that a multiprocessor runs at a time.
pub fn resident_blocks(kernel: &KernelInfo, device: &DeviceFacts) -> u32 {
    kernel.performance.blocks_per_multiprocessor.min(device.limits.resident_blocks(&kernel.facts)).max(1)
}

/// The numbers of splits of which one should be the fastest: those that fill whole waves of blocks, and the fewest; or what the kernel itself knows, and half of it.
pub fn candidate_splits(kernel: &KernelInfo, device: &DeviceFacts, product: &Description) -> Vec<u32> {
    let most = kernel.pieces(product);
    if let Some(best) = kernel.contract.best_splits(product, device.multiprocessors) {
        // With half as many, less is added up behind: where there are few, none.
        let best = best.clamp(1, most);
        return if best > 1 { vec![best / 2, best] } else { vec![best] };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_at_the_same_time_takes_as_long_as_the_longer_or_a_little_more() {
        assert!((both(3.0, 3.0) / 3.0 - 1.26).abs() < 0.001);
        for (one, other) in [(1.0, 0.1), (0.1, 1.0), (1.0, 0.0)] {
            assert!(both(one, other) >= 1.0 && both(one, other) < 1.001);
        }
        for (one, other) in [(2.0, 3.0), (3.0, 2.0), (5.0, 0.0)] {
            assert!((beside(both(one, other), other) - one).abs() < 1e-12);
        }
        assert_eq!(beside(1.0, 2.0), 0.0);
    }
}
