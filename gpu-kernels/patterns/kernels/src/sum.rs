//! The sum of n fp32 numbers, in one launch. Up to 1024 blocks of 256 threads add up a part each; the block that is done last adds up the
//! parts. The order of additions depends on n alone, so the bits are the same every time.
//!
//! ```text
//!  x          │ block 0's │ block 1's │ … │ block 0's │ block 1's │ …          each thread has every so many-th number
//!               │ a sum of each block: lanes, then warps, always in the same order
//!  parts      [ p₀ │ p₁ │ p₂ │ … ]
//!               │ done.fetch_add(1): releases the part that was written, acquires those of all that came before
//!  last block   adds up all parts, lanes, then warps, in the same order whichever block it is
//! ```
//!
//! The last block leaves the counter at zero, for the next launch.
//!
//! Source of the pattern: `threadFenceReduction` of the CUDA samples (NVIDIA), which writes it with `__threadfence` and `atomicInc`.

use blocks::reduce::sum_of_lanes;
use cuda_std::atomic::{AcqRel, Relaxed, Scope};
use cuda_std::prelude::*;

/// The threads of a block.
const THREADS: usize = 256;

/// The warps of a block.
const WARPS: usize = THREADS / warp::LANES as usize;

/// The numbers of a thread that it loads at once.
const LOADS: usize = 8;

/// The most blocks, and so the most parts.
pub const MOST_BLOCKS: usize = 1024;

/// The blocks for so many numbers.
#[cfg(not(target_arch = "nvptx64"))]
const fn blocks(len: usize) -> usize {
    let blocks = len.div_ceil(THREADS * LOADS);
    if blocks == 0 {
        1
    } else if blocks > MOST_BLOCKS {
        MOST_BLOCKS
    } else {
        blocks
    }
}

/// The sum over the block of a number of each thread; all threads get it.
///
/// # Safety
/// All threads of a block of [`THREADS`] come here together, with memory that nobody accesses without a barrier before.
#[inline(always)]
unsafe fn sum_of_block(memory: &'static Shared<[f32; WARPS]>, value: f32) -> f32 {
    // SAFETY: all threads come here, and the barrier is between writes and reads.
    unsafe {
        let [sum] = sum_of_lanes([value], 1, warp::LANES);
        if warp::lane_id() == 0 {
            memory.write((thread::thread_idx_x() / warp::LANES) as usize, sum);
        }
        thread::sync_threads();
        let mut total = 0.0;
        for warp in 0..WARPS {
            total += memory.read(warp);
        }
        total
    }
}

/// The sum of all numbers.
#[kernel(
    block = 256,
    grid = blocks(x.len()) as u32,
    requires(parts.len() == blocks(x.len()), done.len() == 1, total.len() == 1)
)]
pub fn sum_fp32(
    x: GlobalSlice<'_, f32>,
    parts: GlobalSliceMut<'_, f32>,
    done: GlobalAtomics<'_, u32>,
    total: GlobalSliceMut<'_, f32>,
) {
    static SUMS: Shared<[f32; WARPS]> = Shared::new();
    static SUMS_OF_PARTS: Shared<[f32; WARPS]> = Shared::new();
    static IS_LAST: Shared<[u32; 1]> = Shared::new();
    let (me, block) = (thread::thread_idx_x() as usize, thread::block_idx_x() as usize);
    let step = thread::grid_dim_x() as usize * THREADS;
    let mut sum = 0.0;
    let mut i = thread::index_1d();
    while i < x.len() {
        // Some at once: what the memory takes is the same for one as for many.
        let numbers: [f32; LOADS] = core::array::from_fn(|load| x.get(i + load * step).unwrap_or(0.0));
        for load in 0..LOADS {
            sum += numbers[load];
        }
        i += LOADS * step;
    }
    // SAFETY: all threads reach the barriers, which are between what is written to shared memory and what is read. Each block writes its own
    // part; who reads all parts is behind the operation by which all others have released theirs.
    unsafe {
        let sum = sum_of_block(&SUMS, sum);
        if me == 0 {
            parts.set_unchecked(block, sum);
            let before = done.get_unchecked(0).fetch_add(1, AcqRel, Scope::Device);
            IS_LAST.write(0, u32::from(before == thread::grid_dim_x() - 1));
        }
        thread::sync_threads();
        if IS_LAST.read(0) == 0 {
            return; // the same for the whole block
        }
        let mut sum = 0.0;
        let mut part = me;
        while part < parts.len() {
            sum += parts.get_unchecked(part);
            part += THREADS;
        }
        let sum = sum_of_block(&SUMS_OF_PARTS, sum);
        if me == 0 {
            total.set_unchecked(0, sum);
            done.get_unchecked(0).store(0, Relaxed, Scope::Device);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Sum;

/// The operation as the host sees it: n, the numbers as input, the sum as output, the launches (zero, sum), and the sum in f64 with a
/// bound. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{LOADS, MOST_BLOCKS, THREADS, WARPS, blocks, sum_fp32};
    use crate::zero::zero_u32;

    /// The sum of all numbers.
    pub struct Sum;

    impl Operation for Sum {
        fn describe(&self) -> Description {
            Description {
                name: "sum",
                idea: "the block that is done last adds up the sums of all",
                sizes: &["n"],
                kernels: vec![zero_u32::FACTS, sum_fp32::FACTS],
                small: [0, 1, 100, 2048, 2049, 10_000, 30_001].map(|n| vec![n]).to_vec(),
                large: vec![vec![1 << 20], vec![(1 << 28) + 3]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![
                Argument::input("x", &[n], Distribution::Normal),
                Argument::scratch("parts", &[blocks(n)]),
                Argument::scratch("done", &[1]).of(Element::U32),
                Argument::output("total", &[1]),
            ])
        }

        fn launch(&self, device: &Device, _sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(zero_u32 { words: views.disjoint("done")? })?;
            let (x, parts, total) = (views.read("x")?, views.write("parts")?, views.write("total")?);
            Ok(device.launch(sum_fp32 { x, parts, done: views.atomics("done")?, total })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = values.of("x")?;
            // By parts that do not depend on the number of threads.
            let parts: Vec<_> = numbers.chunks(1 << 16).collect();
            let of_part = |part: usize| parts[part].iter().fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()));
            let sums = testkit::each(parts.len(), of_part);
            let (sum, magnitude) = sums.iter().fold((0.0, 0.0), |(sum, all), part| (sum + part.0, all + part.1));
            // Those that a number meets on its way: in its thread, its warp, its block; and again among the parts.
            let of_thread = n.div_ceil(THREADS * blocks(n)) + LOADS;
            let roundings = of_thread + 5 + WARPS + MOST_BLOCKS / THREADS + 5 + WARPS;
            Ok(vec![vec![Expected::rounded(sum, roundings, magnitude)]])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
