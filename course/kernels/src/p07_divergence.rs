//! # 7. `divergence`: a barrier that some never reach
//!
//! A barrier waits for *all* threads of the block. If some have left before, or stand at another
//! barrier, the others wait for ever, or, on some GPUs, go on without them: either way the program
//! is wrong. That is why "return if there is nothing to do" is right at the beginning of a kernel
//! only if there is no barrier behind it.
//!
//! ```text
//!  threads of the last block     0 1 2 … 43 │ 44 … 63
//!                                    │          └─ no element: return
//!  barrier                       ────┴──────── waits for 64, and 44 come
//! ```
//!
//! **Write:** the first lines so that every thread of a block comes to the barrier, with or without
//! an element.
//@ hint Who has no element has nothing to write to the tile, and still has to come to the barrier.
//@ hint Put the write into `if let Some(own) = x.get(i) { … }`, without `return`.

use cuda_std::prelude::*;

/// `y[i] = x[i] − (the first element of the block)`.
#[kernel(block = 64, grid = crate::puzzle::blocks(y.len(), 64), requires(x.len() == y.len()))]
pub fn from_the_first(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 64]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: each thread writes its own element of the tile and of y, if there is one; reads are
    // behind the barrier.
    unsafe {
        //@ blank
        if let Some(own) = x.get(i) {
            TILE.write(t, own);
        }
        thread::sync_threads();
        //@ instead
        //| let Some(own) = x.get(i) else { return };
        //| TILE.write(t, own);
        //| thread::sync_threads();
        //@ end
        if i < y.len() {
            y.set_unchecked(i, TILE.read(t) - TILE.read(0));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::from_the_first;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "divergence",
        file: file!(),
        source: include_str!("p07_divergence.rs"),
        operation: &FromTheFirst,
        fails: "BarrierDivergence",
        lesson: "The threads without an element have returned, and the others wait for them at the \
                 barrier.",
        reference: Score { sectors: 76, global: 20, shared: 20, conflicts: 0, waits: 10 },
        limits: Limits::NONE,
        judge: None,
    };

    struct FromTheFirst;

    impl Operation for FromTheFirst {
        fn describe(&self) -> Description {
            Description {
                name: "divergence",
                idea: "distances from the first element of each block",
                sizes: &["n"],
                kernels: vec![from_the_first::FACTS],
                small: testkit::every(&[&[64, 300, 63, 1, 0]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![Argument::input("x", &[n], Distribution::Normal), Argument::output("y", &[n])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(from_the_first { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let of_block = |block: &[f64]| -> Vec<_> {
                block
                    .iter()
                    .map(|x| Expected::rounded(x - block[0], 1, (x - block[0]).abs()))
                    .collect()
            };
            Ok(vec![values.of("x")?.chunks(64).flat_map(of_block).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
