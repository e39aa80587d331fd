//! # 5. `shared-tile`: numbers that several threads need
//!
//! A block has *shared memory*: small, fast, and seen by all of its threads. What several threads
//! need is loaded from global memory once, into a *tile* there. Here each element becomes the mean
//! of five, and so each is needed by five threads.
//!
//! ```text
//!  x            … │ 126 │ 127 │ 128 … 255 │ 256 │ 257 │ …  block 1 has elements 128 to 255
//!                   └──┬──┘     └──┬──┘     └──┬──┘
//!  tile             │ 0 1 │ 2   …   129 │ 130 131 │     and two more on each side: the *halo*
//! ```
//!
//! `static TILE: Shared<[f32; 132]>` is `__shared__ float tile[132]`. Nothing in it has a value
//! until a thread writes one: a read before that is reported. `thread::sync_threads()` is
//! `__syncthreads()`: the next puzzle is about it.
//!
//! **Write:** the loads of the halo. What lies outside of x counts as zero: `x.get(i)` compares,
//! and is `None` there.
//@ hint Four elements of the tile are still missing: 0, 1, 130 and 131. Which elements of x belong there?
//@ hint The first two threads of the block may load one on each side: tile element t is x[i − 2], and t + 130 is x[i + 128].
//@ hint `i - 2` of an unsigned i below 2 is a panic, so compare first; `x.get(i + 128).unwrap_or(0.0)` is the other side.

use cuda_std::prelude::*;

/// How far a mean reaches.
const RADIUS: usize = 2;
/// The threads of a block.
const THREADS: usize = 128;

/// `y[i] = (x[i − 2] + … + x[i + 2]) / 5`, with zeros outside.
#[kernel(block = 128, grid = crate::puzzle::blocks(y.len(), 128), requires(x.len() == y.len()))]
pub fn means_of_five(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    static TILE: Shared<[f32; 132]> = Shared::new();
    const { assert!(THREADS + 2 * RADIUS == 132) };
    let (i, t) = (thread::index_1d(), thread::thread_idx_x() as usize);
    // SAFETY: each element of the tile is written by one thread; t + 4 < 132.
    unsafe {
        TILE.write(t + RADIUS, x.get(i).unwrap_or(0.0));
        //@ blank
        if t < RADIUS {
            TILE.write(t, if i >= RADIUS { x.get(i - RADIUS).unwrap_or(0.0) } else { 0.0 });
            TILE.write(t + RADIUS + THREADS, x.get(i + THREADS).unwrap_or(0.0));
        }
        //@ instead
        //| // The two elements before the block's own, and the two behind them, are missing.
        //@ end
        thread::sync_threads();
        if i < y.len() {
            let mut sum = 0.0;
            for k in 0..=2 * RADIUS {
                sum += TILE.read(t + k);
            }
            y.set_unchecked(i, 0.2 * sum);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{RADIUS, means_of_five};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "shared-tile",
        file: file!(),
        source: include_str!("p05_shared_tile.rs"),
        operation: &Means,
        fails: "UnwrittenShared",
        lesson: "The first and the last threads of a block read elements of the tile that nobody \
                 has loaded.",
        reference: Score { sectors: 106, global: 32, shared: 65, conflicts: 0, waits: 16 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Means;

    impl Operation for Means {
        fn describe(&self) -> Description {
            Description {
                name: "shared-tile",
                idea: "means of five neighbours",
                sizes: &["n"],
                kernels: vec![means_of_five::FACTS],
                small: testkit::every(&[&[400, 129, 128, 1, 0]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![
                Argument::input("x", &[n], Distribution::Uniform(0.0, 1.0)),
                Argument::output("y", &[n]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(means_of_five { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let x = values.of("x")?;
            let one = |i: usize| {
                let near = &x[i.saturating_sub(RADIUS)..(i + RADIUS + 1).min(x.len())];
                let mean = near.iter().sum::<f64>() / 5.0;
                Expected::rounded(mean, 7, mean)
            };
            Ok(vec![(0..x.len()).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| 6.0 * n as f64)
        }
    }
}
