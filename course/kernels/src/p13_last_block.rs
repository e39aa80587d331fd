//! # 13. `last-block`: one launch, one sum
//!
//! Blocks cannot wait for blocks that have not begun, but they can find out which of them is the
//! last: each adds 1 to a counter when it is done, and who finds all others counted adds up what
//! all have left. One launch in place of two.
//!
//! ```text
//!  block       0        1        2            each writes its part,
//!  parts     [ p₀    │  p₁    │  p₂ ]          and then counts: done.fetch_add(1)
//!  done        0 → 1 → 2 → 3
//!                          └─ the block that found 2 adds up p₀ + p₁ + p₂
//! ```
//!
//! That a block has counted does not mean that its part has arrived where others read it: memory
//! shows writes in whatever order. An atomic operation that *releases* lets nobody see it before
//! all that its thread wrote before; one that *acquires* shows its thread all that was released by
//! what it reads. CUDA C++ has `__threadfence()` around a relaxed `atomicAdd`; here the order is a
//! word in the call: `Relaxed`, `Acquire`, `Release`, `AcqRel`.
//!
//! **Write:** the order of the addition. A block both tells the others and learns of them.
//@ hint The report names the write of a part and the read of it by the last block: which operation stands between the two, in both blocks?
//@ hint The one that counts has to release the own part, and to acquire those of all that have counted before.
//@ hint `atomic::AcqRel` in place of `atomic::Relaxed`.

use cuda_std::atomic::{self, Scope};
use cuda_std::prelude::*;

/// Sets the counter to zero, before the launch.
#[kernel(block = 32, grid = 1)]
pub fn reset_counter(done: DisjointSlice<'_, u32>) {
    done.own_elements().for_each(|done| done.set(0));
}

/// The sum of x, whose blocks have 64 elements each.
#[kernel(
    block = 64,
    grid = parts.len() as u32,
    requires(x.len() == 64 * parts.len(), done.len() == 1, total.len() == 1)
)]
pub fn sum_in_one_launch(
    x: GlobalSlice<'_, f32>,
    parts: GlobalSliceMut<'_, f32>,
    done: GlobalAtomics<'_, u32>,
    total: GlobalSliceMut<'_, f32>,
) {
    if thread::thread_idx_x() > 0 {
        return; // one thread for each block: orders are the lesson here, not speed
    }
    let block = thread::block_idx_x() as usize;
    // SAFETY: x has 64 elements for each block, and parts one; only the last block reads parts of
    // others, behind the counter by which they have released them.
    unsafe {
        let mut part = 0.0;
        for i in 0..64 {
            part += x.get_unchecked(64 * block + i);
        }
        parts.set_unchecked(block, part);
        //@ blank
        let before = done.get_unchecked(0).fetch_add(1, atomic::AcqRel, Scope::Device);
        //@ instead
        //| let before = done.get_unchecked(0).fetch_add(1, atomic::Relaxed, Scope::Device);
        //@ end
        if before as usize == parts.len() - 1 {
            let mut sum = 0.0;
            for i in 0..parts.len() {
                sum += parts.get_unchecked(i);
            }
            total.set_unchecked(0, sum);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{reset_counter, sum_in_one_launch};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "last-block",
        file: file!(),
        source: include_str!("p13_last_block.rs"),
        operation: &Sum,
        fails: "GlobalRace",
        lesson: "The counter says that the other blocks are done. With this order, or in this \
                 scope, it does not say that their parts can be seen.",
        reference: Score { sectors: 471, global: 471, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Sum;

    impl Operation for Sum {
        fn describe(&self) -> Description {
            Description {
                name: "last-block",
                idea: "a sum in one launch",
                sizes: &["blocks"],
                kernels: vec![reset_counter::FACTS, sum_in_one_launch::FACTS],
                small: testkit::every(&[&[1, 2, 7]]),
                large: vec![vec![1 << 10]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [blocks] = sizes.get(["blocks"])?;
            Ok(vec![
                Argument::input("x", &[64 * blocks], Distribution::Normal),
                Argument::scratch("parts", &[blocks]),
                Argument::scratch("done", &[1]).of(Element::U32),
                Argument::output("total", &[1]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(reset_counter { done: views.disjoint("done")? })?;
            Ok(device.launch(sum_in_one_launch {
                x: views.read("x")?,
                parts: views.write("parts")?,
                done: views.atomics("done")?,
                total: views.write("total")?,
            })?)
        }

        fn expected(
            &self,
            sizes: &Sizes,
            values: &Values<'_>,
        ) -> Result<Vec<Vec<Expected>>, Error> {
            let ([blocks], x) = (sizes.get(["blocks"])?, values.of("x")?);
            let magnitude = x.iter().map(|x| x.abs()).sum();
            Ok(vec![vec![Expected::rounded(x.iter().sum(), 64 + blocks, magnitude)]])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["blocks"]).map_or(0.0, |[blocks]| 64.0 * blocks as f64)
        }
    }
}
