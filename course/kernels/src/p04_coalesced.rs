//! # 4. `coalesced`: what one load costs
//!
//! Threads run in *warps* of 32, whose *lanes* execute an instruction together. Memory answers a
//! load of a warp in *sectors* of 32 bytes, each of which is fetched once, however many lanes want
//! something of it. So 32 neighbours of 4 bytes take 4 sectors, and 32 elements that lie 16 bytes
//! apart take 16. Loads of the first kind are called *coalesced*.
//!
//! ```text
//!  the first load of each lane:
//!  lane          0    1    2    3   …             0       1       2       3   …
//!  elements    │ 0  │ 1  │ 2  │ 3  │ …          │ 0 ··· │ 4 ··· │ 8 ··· │ 12 ···
//!  sectors     └─────── 4 for 32 lanes           └────────────── 16 for 32 lanes
//! ```
//!
//! Each thread here has 4 elements of its block's 256. The result is right as it stands: what fails
//! is the score. The executor counts sectors as NVIDIA's profiler does.
//!
//! **Write:** which element a thread has in round `round` of 4, so that a warp's lanes have
//! neighbours in each round.
//@ hint In one round all 64 threads of the block together should have 64 neighbours.
//@ hint Round 0 has elements 0 to 63 of the block, round 1 has 64 to 127, …
//@ hint `64 * round + t`

use cuda_std::prelude::*;

/// `y[i] = √x[i]`, 256 elements for each block of 64 threads.
#[kernel(block = 64, grid = crate::puzzle::blocks(y.len(), 256), requires(x.len() == y.len()))]
pub fn square_roots(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let (first, t) = (256 * thread::block_idx_x() as usize, thread::thread_idx_x() as usize);
    for round in 0..4 {
        //@ blank
        let i = first + 64 * round + t;
        //@ instead
        //| let i = first + 4 * t + round;
        //@ end
        if i < y.len() {
            // SAFETY: i is below the length of both; no other thread, and no other round, has this
            // i.
            unsafe { y.set_unchecked(i, math::sqrt(x.get_unchecked(i))) };
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::square_roots;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "coalesced",
        file: file!(),
        source: include_str!("p04_coalesced.rs"),
        operation: &SquareRoots,
        fails: "Score",
        lesson: "The lanes of a warp have elements 16 bytes apart, so each load fetches every \
                 sector four times in four rounds.",
        reference: Score { sectors: 256, global: 64, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits { sectors: Some(256), ..Limits::NONE },
        judge: None,
    };

    struct SquareRoots;

    impl Operation for SquareRoots {
        fn describe(&self) -> Description {
            Description {
                name: "coalesced",
                idea: "square roots, four for each thread",
                sizes: &["n"],
                kernels: vec![square_roots::FACTS],
                small: testkit::every(&[&[0, 1, 255, 700, 1024]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![
                Argument::input("x", &[n], Distribution::Uniform(0.0, 2.0)),
                Argument::output("y", &[n]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(square_roots { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            Ok(vec![
                values.of("x")?.iter().map(|x| Expected::rounded(x.sqrt(), 1, x.sqrt())).collect(),
            ])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
