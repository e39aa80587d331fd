//! # 18. `double-buffer`: copies while others are used
//!
//! `cp.async` copies from global to shared memory while its thread does something else, without a register in between. With two *stages* one chunk is
//! on its way while the one before is used.
//!
//! ```text
//!  stage 0   copy chunk 0 ───► use 0    copy chunk 2 ───► use 2
//!  stage 1              copy chunk 1 ───► use 1    copy chunk 3 …
//! ```
//!
//! A thread issues copies (`copy_async`), makes a *group* of those since the last one (`commit_group`), and waits until all of its groups but the
//! latest few have come: `wait_group::<1>()` leaves one under way. That is about the thread's own copies; a barrier behind it makes it about the
//! block's. `async_copy::copy_async::<4, _>(&stages, to, &x, from, 4)` copies 4 elements.
//!
//! **Write:** the wait. When chunk c is used, its group has to have come; the one of chunk c + 1 may be under way.
//@ hint How many groups has a thread made when it comes to the wait in round c? Which of them is the one of chunk c?
//@ hint The latest one is of chunk c + 1 (or empty, in the last round), so all but one have to have come.
//@ hint `wait_group::<1>();` before the barrier.

use cuda_std::async_copy::{self, commit_group, copy_async};
use cuda_std::prelude::*;

/// The elements of a chunk: four for each thread.
const CHUNK: usize = 256;

/// `y[i] = Σ x[chunk, i]` over the chunks of a block, with i turned round.
#[kernel(
    block = 64,
    dynamic_shared = 2 * 256 * 4,
    grid = blocks,
    requires(
        blocks > 0 && chunks > 0,
        x.len() == blocks as usize * chunks as usize * CHUNK,
        y.len() == blocks as usize * CHUNK
    )
)]
pub fn sum_of_chunks(blocks: u32, chunks: u32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let _ = blocks;
    let (block, t, chunks) = (thread::block_idx_x() as usize, thread::thread_idx_x() as usize, chunks as usize);
    // SAFETY: chunks are inside of x, and stages inside of the shared memory. A stage is used behind the wait for its group and a barrier, and
    // filled again behind another barrier; all threads come to all of them.
    unsafe {
        let stages = dynamic_shared::<f32>(0, 2 * CHUNK);
        let copy = |chunk: usize| {
            if chunk < chunks {
                let from = (block * chunks + chunk) * CHUNK + 4 * t;
                copy_async::<4, _>(&stages, chunk % 2 * CHUNK + 4 * t, &x, from, 4);
            }
            commit_group();
        };
        let mut sums = [0.0f32; 4];
        copy(0);
        for chunk in 0..chunks {
            copy(chunk + 1);
            //@ blank
            async_copy::wait_group::<1>();
            thread::sync_threads();
            //@ instead
            //| async_copy::wait_group::<2>();
            //| thread::sync_threads();
            //@ end
            // What another thread has copied: element t of each 64, counted from the end.
            for i in 0..4 {
                sums[i] += stages.read(chunk % 2 * CHUNK + CHUNK - 1 - (64 * i + t));
            }
            thread::sync_threads();
        }
        for i in 0..4 {
            y.set_unchecked(block * CHUNK + 64 * i + t, sums[i]);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{CHUNK, sum_of_chunks};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "double-buffer",
        file: file!(),
        source: include_str!("p18_double_buffer.rs"),
        operation: &SumOfChunks,
        fails: "UnwrittenShared",
        lesson: "The chunk is still on its way when it is used: the wait lets two groups be under way, and it is one of them.",
        best: Score { sectors: 384, global: 36, shared: 80, conflicts: 0, waits: 40 },
        limits: Limits { conflicts: Some(0), ..Limits::NONE },
    };

    struct SumOfChunks;

    impl Operation for SumOfChunks {
        fn describe(&self) -> Description {
            Description {
                name: "double-buffer",
                idea: "sums of chunks, which are copied two at a time",
                sizes: &["blocks", "chunks"],
                kernels: vec![sum_of_chunks::FACTS],
                small: testkit::cases(&[[1, 1], [2, 2], [2, 5]]),
                large: vec![vec![1024, 256]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [blocks, chunks] = sizes.get(["blocks", "chunks"])?;
            let x = Argument::input("x", &[blocks, chunks, CHUNK], Distribution::Normal);
            Ok(vec![x, Argument::output("y", &[blocks, CHUNK])])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [blocks, chunks] = sizes.get_u32(["blocks", "chunks"])?;
            Ok(device.launch(sum_of_chunks { blocks, chunks, x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let ([blocks, chunks], x) = (sizes.get(["blocks", "chunks"])?, values.of("x")?);
            let one = |at: usize| {
                let first = at / CHUNK * chunks * CHUNK + CHUNK - 1 - at % CHUNK;
                let terms = || (0..chunks).map(|chunk| x[first + chunk * CHUNK]);
                Expected::rounded(terms().sum(), chunks, terms().map(f64::abs).sum())
            };
            Ok(vec![(0..blocks * CHUNK).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["blocks", "chunks"]).map_or(0.0, |[blocks, chunks]| (blocks * chunks * CHUNK) as f64)
        }
    }
}
