//! # 2. `off-by-one`: the neighbour of the last element
//!
//! A bound has to hold for each element that a thread touches, and the thread that reads its
//! neighbour touches two.
//!
//! ```text
//!  x  │ 0 │ 1 │ 2 │ … │ n │        n + 1 elements
//!       └─┬─┘ └─┬─┘     │
//!  y  │   0 │ 1 │ … │ n-1 │        n differences: y[i] = x[i + 1] − x[i]
//! ```
//!
//! How many elements x has, the launch checks: `requires(x.len() == y.len() + 1)`. The body may
//! rely on it. On a GPU one element past the end is often memory of somebody else, and the kernel
//! goes on with a number that is nobody's: that is why such a mistake lives long.
//!
//! **Write:** the condition under which a thread has a difference to work out.
//@ hint The report says which index was touched, and how many elements there are. Which thread was it?
//@ hint For i = y.len() the thread would write y[y.len()], which is not there.

use cuda_std::prelude::*;

/// `y[i] = x[i + 1] − x[i]`.
#[kernel(block = 128, grid = crate::puzzle::blocks(y.len(), 128), requires(x.len() == y.len() + 1))]
pub fn differences(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    //@ blank
    let has_one = i < y.len();
    //@ instead
    //| let has_one = i <= y.len();
    //@ end
    if has_one {
        // SAFETY: i is below y.len(), and i + 1 below x.len(), which is one more; no other thread
        // has this i.
        unsafe { y.set_unchecked(i, x.get_unchecked(i + 1) - x.get_unchecked(i)) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::differences;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "off-by-one",
        file: file!(),
        source: include_str!("p02_off_by_one.rs"),
        operation: &Differences,
        fails: "OutOfBounds",
        lesson: "One thread too many takes part: `<=` lets in the index that is the length.",
        reference: Score { sectors: 123, global: 30, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Differences;

    impl Operation for Differences {
        fn describe(&self) -> Description {
            Description {
                name: "off-by-one",
                idea: "differences of neighbours",
                sizes: &["n"],
                kernels: vec![differences::FACTS],
                small: testkit::every(&[&[300, 128, 127, 1, 0]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![
                Argument::input("x", &[n + 1], Distribution::Normal),
                Argument::output("y", &[n]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(differences { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let one =
                |pair: &[f64]| Expected::rounded(pair[1] - pair[0], 1, (pair[1] - pair[0]).abs());
            Ok(vec![values.of("x")?.windows(2).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
