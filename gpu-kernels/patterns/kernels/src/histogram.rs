//! Counts how often each of 256 values occurs among the bytes of an array of 32-bit words, and adds the counts to 256 bins. No more blocks
//! of 256 threads than run at the same time stride over the words. Each counts in shared memory, and adds to the bins in global memory
//! once, at its end. Counts are exact, modulo 2³².
//!
//! ```text
//!  bytes      │ 16 in a vector, vectors side by side for the threads of a warp │ …
//!               │ one atomic addition in shared memory for each byte
//!  block      256 counters with a copy for each lane: no two lanes of a warp meet, whatever the bytes are
//!               │ barrier; each thread adds up the counters of one value
//!  bins       at most 256 atomic additions in global memory for each block: none for a count of 0
//! ```
//!
//! Few blocks mean few additions in global memory. Their order makes no difference: sums of integers are the same in any.
//!
//! Source of the idea: V. Podlozhnyuk, "Histogram calculation in CUDA" (NVIDIA, 2007).

use cuda_std::atomic::{Relaxed, Scope};
use cuda_std::prelude::*;

use crate::counters::for_each_word;
use crate::row::LANES;

/// The values of a byte, and the threads of a block: one for each.
pub const BINS: usize = 256;

/// A counter of each lane for each value.
type Counters = crate::counters::Counters<BINS, LANES>;

/// The blocks for so many words: 16 words for each thread, until there are as many as run at the same time. With a few more, all would wait for
/// those.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(words: usize, at_a_time: u32) -> u32 {
    words.div_ceil(16 * BINS).clamp(1, at_a_time.max(1) as usize) as u32
}

/// Adds to each of 256 bins how often its value occurs among the bytes of some words, which so many blocks share.
#[kernel(
    block = 256,
    min_blocks = 6,
    grid = blocks,
    dynamic_shared = Counters::BYTES,
    requires(bins.len() == BINS, blocks > 0, blocks <= i32::MAX as u32)
)]
pub fn histogram_u8(blocks: u32, words: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    _ = blocks; // for the grid alone
    let me = thread::thread_idx_x() as usize;
    // SAFETY: all threads come here, with the shared memory of the counters; a byte is below their number, and so is a thread. The barrier is
    // between additions and sums. Bins are only added to.
    unsafe {
        let counters = Counters::new();
        for_each_word(words, |word| {
            for byte in 0..4 {
                counters.add_one((word >> (8 * byte)) as usize % BINS);
            }
        });
        thread::sync_threads();
        let count = counters.sum(me);
        if count > 0 {
            bins.atomic_unchecked(me).fetch_add(count, Relaxed, Scope::Device);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Histogram;

/// The operation as the host sees it: words as input, 256 bins as output, the two launches, and counts made on the host, which have to be equal.
/// It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::{BINS, blocks, histogram_u8};
    use crate::zero::zero_u32;

    /// How often each byte occurs.
    pub struct Histogram;

    impl Operation for Histogram {
        fn describe(&self) -> Description {
            Description {
                name: "histogram",
                idea: "atomic additions in shared memory, then one for each block and bin in global memory",
                sizes: &["words"],
                kernels: vec![zero_u32::FACTS, histogram_u8::FACTS],
                small: [0, 1, 31, 255, 256, 4096, 4097, 20_000].map(|words| vec![words]).to_vec(),
                large: vec![vec![1 << 24], vec![1 << 28]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [words] = sizes.get(["words"])?;
            // Many have the same high bytes, as data often does.
            let values = Distribution::Integers(0, (1 << 26) - 1);
            Ok(vec![
                Argument::input("words", &[words], values).of(Element::U32),
                Argument::output("bins", &[BINS]).of(Element::U32),
            ])
        }

        fn launch(&self, device: &Device, _sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(zero_u32 { words: views.disjoint("bins")? })?;
            let words = views.read("words")?;
            let at_a_time = device.limits().resident_blocks(&histogram_u8::FACTS) * crate::hopper::workers(device);
            let blocks = blocks(words.len(), at_a_time);
            Ok(device.launch(histogram_u8 { blocks, words, bins: views.write("bins")? })?)
        }

        fn expected(&self, _sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let parts: Vec<_> = values.of("words")?.chunks(1 << 16).collect();
            let of_parts = testkit::each(parts.len(), |part| {
                let mut counts = [0u64; BINS];
                for byte in parts[part].iter().flat_map(|word| (*word as u32).to_le_bytes()) {
                    counts[usize::from(byte)] += 1;
                }
                counts
            });
            let mut counts = [0u64; BINS];
            for (count, more) in of_parts.iter().flat_map(|part| part.iter().enumerate()) {
                counts[count] += more;
            }
            Ok(vec![counts.map(|count| Expected::exact(count as f64)).to_vec()])
        }

        fn operations(&self, _sizes: &Sizes) -> f64 {
            0.0
        }
    }
}
