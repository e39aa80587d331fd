//! # 18. `double-buffer`: copies while others are used
//!
//! `cp.async` copies from global to shared memory while its thread does something else, without a
//! register in between. With two *stages* one chunk is on its way while the one before is used.
//!
//! ```text
//!  stage 0   copy chunk 0 ───► use 0    copy chunk 2 ───► use 2
//!  stage 1              copy chunk 1 ───► use 1    copy chunk 3 …
//! ```
//!
//! A thread issues copies (`copy_async`), makes a *group* of those since the last one
//! (`commit_group`; it may be empty), and waits until all of its groups but the latest few have
//! come: `wait_group::<1>()` leaves one under way. That is about the thread's own copies; a barrier
//! behind it makes it about the block's. A stage must not be filled again while somebody still uses
//! it. `copy_async::<4, _>(&stages, to, &x, from, 4)` copies 4 elements.
//!
//! The result is right as it stands. But each chunk is waited for before it is used, and the next
//! one is asked for afterwards: no copy is ever under way while the block computes. A check of this
//! puzzle looks at that, step by step; `cargo tilewright trace sum_of_chunks` shows it to you.
//!
//! **Write:** the loop, so that whenever a chunk is used, the copy of the next one, if there is
//! one, is under way. There is room for two chunks in `stages`.
//@ hint Chunk c has stage c mod 2. Before the loop, ask for chunk 0; in round c, ask for chunk c + 1 first, and then wait for chunk c.
//@ hint How many groups has a thread made when it waits in round c? The latest is that of chunk c + 1. In the last round there is no chunk c + 1: an empty group keeps the count.
//@ hint `wait_group::<1>();`, a barrier, the sums, and a second barrier: the next round fills the stage that this one has used.
//@ hint A closure `copy(chunk)` that asks for the chunk if `chunk < chunks`, and commits in any case, is called as `copy(0)` and as `copy(chunk + 1)`.

use cuda_std::async_copy::{commit_group, copy_async, wait_group};
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
pub fn sum_of_chunks(
    blocks: u32,
    chunks: u32,
    x: GlobalSlice<'_, f32>,
    y: GlobalSliceMut<'_, f32>,
) {
    let _ = blocks;
    let (block, t, chunks) =
        (thread::block_idx_x() as usize, thread::thread_idx_x() as usize, chunks as usize);
    // SAFETY: chunks are inside of x, and stages inside of the shared memory. A stage is used
    // behind the wait for its group and a barrier, and filled again behind another barrier; all
    // threads come to all of them.
    unsafe {
        let stages = dynamic_shared::<f32>(0, 2 * CHUNK);
        let mut sums = [0.0f32; 4];
        //@ blank
        let copy = |chunk: usize| {
            if chunk < chunks {
                let from = (block * chunks + chunk) * CHUNK + 4 * t;
                copy_async::<4, _>(&stages, chunk % 2 * CHUNK + 4 * t, &x, from, 4);
            }
            commit_group();
        };
        copy(0);
        for chunk in 0..chunks {
            copy(chunk + 1);
            wait_group::<1>();
            thread::sync_threads();
            // What another thread has copied: element t of each 64, counted from the end.
            for i in 0..4 {
                sums[i] += stages.read(chunk % 2 * CHUNK + CHUNK - 1 - (64 * i + t));
            }
            thread::sync_threads();
        }
        //@ instead
        //| for chunk in 0..chunks {
        //|     let from = (block * chunks + chunk) * CHUNK + 4 * t;
        //|     copy_async::<4, _>(&stages, 4 * t, &x, from, 4);
        //|     commit_group();
        //|     wait_group::<0>();
        //|     thread::sync_threads();
        //|     // What another thread has copied: element t of each 64, counted from the end.
        //|     for i in 0..4 {
        //|         sums[i] += stages.read(CHUNK - 1 - (64 * i + t));
        //|     }
        //|     thread::sync_threads();
        //| }
        //@ end
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
        fails: "Judge",
        lesson: "Nothing is copied while the block computes: the wait is for the only copy that \
                 there is, and the next one is asked for behind the sums.",
        reference: Score { sectors: 384, global: 36, shared: 80, conflicts: 0, waits: 40 },
        limits: Limits { conflicts: Some(0), ..Limits::NONE },
        judge: Some(copies_overlap),
    };

    /// Whenever a warp uses shared memory, one of its copies is under way, until the last has come.
    fn copies_overlap(trace: &Trace) -> Result<(), String> {
        let steps = || trace.blocks.iter().flat_map(|block| &block.steps);
        for warp in 0..2 {
            let of_warp = || steps().filter(|step| step.warp == Some(warp));
            let copies: Vec<_> = of_warp().filter(|step| step.kind == Kind::AsyncCopy).collect();
            let Some(last) = copies.last() else {
                return Err(format!("warp {warp} has no `copy_async` at all"));
            };
            // The first group that a wait has not covered.
            let mut waited = 0;
            for step in of_warp() {
                if step.kind == Kind::AsyncCopyWait {
                    waited = waited.max(step.phase.unwrap_or(0));
                }
                let place = || step.place.and_then(|place| trace.places.get(place));
                let place = || place().map_or("", |place| place);
                let meets = |other: &[usize; 2]| {
                    step.ranges.iter().any(|range| range[0] < other[1] && other[0] < range[1])
                };
                let before = copies.iter().filter(|copy| copy.step < step.step);
                let mut under_way = before.filter(|copy| copy.phase.is_some_and(|it| it >= waited));
                if step.kind == Kind::AsyncCopy
                    && under_way.clone().any(|copy| copy.ranges.iter().any(meets))
                {
                    return Err(format!(
                        "warp {warp} has a stage filled while another copy into it is under way\n  \
                         --> {}",
                        place()
                    ));
                }
                let is_under_way = under_way.next().is_some();
                let is_last = last.step < step.step && last.phase.is_some_and(|it| it < waited);
                if step.kind == Kind::SharedLoad && !is_under_way && !is_last {
                    return Err(format!(
                        "warp {warp} reads a chunk while none of its copies is under way, and \
                         there are chunks to come\n  --> {}",
                        place()
                    ));
                }
            }
        }
        Ok(())
    }

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
            Ok(device.launch(sum_of_chunks {
                blocks,
                chunks,
                x: views.read("x")?,
                y: views.write("y")?,
            })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([blocks, chunks], x) = (sizes.get(["blocks", "chunks"])?, values.of("x")?);
            let one = |at: usize| {
                let first = at / CHUNK * chunks * CHUNK + CHUNK - 1 - at % CHUNK;
                let terms = || (0..chunks).map(|chunk| x[first + chunk * CHUNK]);
                Expected::rounded(terms().sum(), chunks, terms().map(f64::abs).sum())
            };
            Ok(vec![(0..blocks * CHUNK).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes
                .get(["blocks", "chunks"])
                .map_or(0.0, |[blocks, chunks]| (blocks * chunks * CHUNK) as f64)
        }
    }
}
