//! Counts how often each of 65,536 values occurs among 16-bit numbers, two in each word of an array, and adds the counts to as many bins. A
//! cluster of 8 blocks of 256 threads (from sm_90 on) counts in the shared memory of its blocks, each of which has 8192 of the counters; up
//! to 32 clusters stride over the words. Counts are exact, modulo 2³².
//!
//! ```text
//!  numbers    │ 2 in a word, words side by side for the threads of a warp │ …
//!               │ one atomic addition for each number, in the shared memory of the block that has its counter
//!  cluster    block 0            block 1            …  block 7
//!             counters 0 – 8191  8192 – 16,383         57,344 – 65,535        32 KiB each: more than one block has room for
//!               │ the cluster meets; each block adds what its counters have
//!  bins       at most 65,536 atomic additions in global memory for each cluster: none for a count of 0
//! ```
//!
//! The order of additions makes no difference: sums of integers are the same in any. The cluster meets before the first addition, when all
//! counters are zero and all blocks are there, and behind the last one: a block that ended earlier would take its counters with it.
//!
//! Source of the pattern: "Distributed Shared Memory" in the CUDA C++ Programming Guide (NVIDIA).

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::cluster;
use cuda_std::prelude::*;

/// The values of a number.
pub const BINS: usize = 1 << 16;

/// The blocks of a cluster, as many as every GPU with clusters runs together.
const BLOCKS: u32 = 8;

/// The counters of a block.
const COUNTERS: usize = BINS / BLOCKS as usize;

/// The threads of a block.
const THREADS: usize = cluster_histogram_u16::BLOCK.x as usize;

/// The blocks for so many words: 64 words for each thread, until there are more clusters than run at the same time on any GPU.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(words: usize) -> u32 {
    BLOCKS * words.div_ceil(64 * THREADS * BLOCKS as usize).clamp(1, 32) as u32
}

/// Sets all words to zero.
#[kernel(block = 256, grid = words.len().div_ceil(256).max(1) as u32)]
pub fn cluster_histogram_zero(words: DisjointSlice<'_, u32>) {
    if let Some(word) = words.own() {
        word.set(0);
    }
}

/// Adds to each of 65,536 bins how often its value occurs among the 16-bit numbers of some words.
#[kernel(block = 256, cluster = BLOCKS, grid = blocks(words.len()), requires(bins.len() == BINS))]
pub fn cluster_histogram_u16(words: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    static OWN: Shared<[u32; COUNTERS]> = Shared::new();
    let me = thread::thread_idx_x() as usize;
    // SAFETY: a value names a block of the cluster and a counter of it. A thread writes its own counters before the first meeting of the
    // cluster, and reads them behind the last one; between the two, all accesses are atomic, all blocks have begun, and none has ended.
    // All threads come to both. Bins are only added to.
    unsafe {
        for i in 0..COUNTERS / THREADS {
            OWN.write(i * THREADS + me, 0);
        }
        cluster::sync();
        let mut i = thread::index_1d();
        while i < words.len() {
            let word = words.get_unchecked(i);
            for value in [word & 0xFFFF, word >> 16] {
                let counters = OWN.of_block(value / COUNTERS as u32);
                counters.atomic(value as usize % COUNTERS).fetch_add(1, Relaxed, Scope::Cluster);
            }
            i += thread::grid_dim_x() as usize * THREADS;
        }
        cluster::sync();
        let first = COUNTERS * cluster::rank() as usize;
        for i in 0..COUNTERS / THREADS {
            let count = OWN.read(i * THREADS + me);
            if count > 0 {
                bins.atomic_unchecked(first + i * THREADS + me).fetch_add(count, Relaxed, Scope::Device);
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::ClusterHistogram;

/// The operation as the host sees it: words as input, 65,536 bins as output, the two launches, and counts made on the host, which have to
/// be equal. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{BINS, cluster_histogram_u16, cluster_histogram_zero};

    /// How often each 16-bit value occurs.
    pub struct ClusterHistogram;

    impl Operation for ClusterHistogram {
        fn describe(&self) -> Description {
            Description {
                name: "cluster-histogram",
                idea: "atomic additions in the shared memory of eight blocks, which have the counters together",
                sizes: &["words"],
                kernels: vec![cluster_histogram_zero::FACTS, cluster_histogram_u16::FACTS],
                small: [0, 1, 2049, 140_000].map(|words| vec![words]).to_vec(),
                large: vec![vec![1 << 24], vec![1 << 28]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [words] = sizes.get(["words"])?;
            // Many have the same high halves, as data often does.
            let values = Distribution::Integers(0, (1 << 26) - 1);
            Ok(vec![
                Argument::input("words", &[words], values).of(Element::U32),
                Argument::output("bins", &[BINS]).of(Element::U32),
            ])
        }

        fn launch(&self, device: &Device, _sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(cluster_histogram_zero { words: views.disjoint("bins")? })?;
            Ok(device.launch(cluster_histogram_u16 { words: views.read("words")?, bins: views.write("bins")? })?)
        }

        fn expected(&self, _sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let mut counts = vec![0u64; BINS];
            for word in values.of("words")?.iter().map(|word| *word as u32) {
                counts[word as usize & 0xFFFF] += 1;
                counts[word as usize >> 16] += 1;
            }
            Ok(vec![counts.into_iter().map(|count| Expected::exact(count as f64)).collect()])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
