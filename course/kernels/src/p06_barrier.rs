//! # 6. `barrier`: who has written before I read?
//!
//! Warps of a block run in any order, each at its own pace. What one thread writes to shared
//! memory, another may read only if something orders the two: a *barrier*, at which all threads of
//! the block wait for one another. Without, it is a *race*: right on most days.
//!
//! ```text
//!  x     │ 0 1 2 … 127 │
//!          ╲ ╲ ╲                 each thread writes its own element of the tile,
//!  tile  │ 0 1 2 … 127 │
//!              ╳                 and reads the one that thread 127 − t has written
//!  y     │ 127 … 2 1 0 │
//! ```
//!
//! The executor keeps, for each element, who wrote and who read it, and what was ordered before. So
//! it reports a race whatever the order in which the threads happened to run, with the lines of
//! both accesses.
//!
//! **Write:** one line.
//@ hint The report names two lines. Which of them has to come first, for all threads?
//@ hint `thread::sync_threads()`, between the write and the read. All threads of the block have to reach it.

use cuda_std::prelude::*;

/// Reverses each block of 128 elements.
#[kernel(
    block = 128,
    grid = crate::puzzle::blocks(y.len(), 128),
    requires(x.len() == y.len(), y.len() % 128 == 0)
)]
pub fn reverse(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 128]> = Shared::new();
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    if i - t >= y.len() {
        return; // the whole block
    }
    // SAFETY: i is below the length, which is a multiple of 128; each thread writes its own element
    // of the tile and of y.
    unsafe {
        TILE.write(t, x.get_unchecked(i));
        //@ blank
        thread::sync_threads();
        //@ instead
        //| // What orders the line above and the line below?
        //@ end
        y.set_unchecked(i, TILE.read(127 - t));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::reverse;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "barrier",
        file: file!(),
        source: include_str!("p06_barrier.rs"),
        operation: &Reverse,
        fails: "Race",
        lesson: "A thread reads an element of the tile that another thread may not have written \
                 yet.",
        reference: Score { sectors: 96, global: 24, shared: 12, conflicts: 0, waits: 12 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Reverse;

    impl Operation for Reverse {
        fn describe(&self) -> Description {
            Description {
                name: "barrier",
                idea: "blocks of 128 elements, reversed",
                sizes: &["blocks"],
                kernels: vec![reverse::FACTS],
                small: testkit::every(&[&[0, 1, 3]]),
                large: vec![vec![1 << 19]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [blocks] = sizes.get(["blocks"])?;
            let x = Argument::input("x", &[128 * blocks], Distribution::Special);
            Ok(vec![x, Argument::output("y", &[128 * blocks])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(reverse { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let reversed =
                |block: &[f64]| block.iter().rev().map(|x| Expected::exact(*x)).collect::<Vec<_>>();
            Ok(vec![values.of("x")?.chunks(128).flat_map(reversed).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
