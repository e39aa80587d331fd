//! # 1. `axpy`: an index, and its bounds
//!
//! A kernel is a function that many threads run at the same time, each with another index. Threads
//! come in *blocks* of one size, here 256, and a launch has as many blocks as it takes, its *grid*.
//! The last block is full, too, whether or not there is something for all its threads.
//!
//! ```text
//!  y        │ 0 1 2 … 255 │ 256 … 511 │ 512 … 599 │            600 elements
//!  threads  │ block 0     │ block 1   │ block 2 ········│      3 blocks of 256 threads: 768
//!                                                 ▲
//!                                    threads without an element
//! ```
//!
//! CUDA C++ writes `blockIdx.x * blockDim.x + threadIdx.x`; here that is `thread::index_1d()`. A
//! view such as `GlobalSlice` knows its length. `get_unchecked` and `set_unchecked` do not compare:
//! you promise that the index is inside, which is why they are `unsafe`. A GPU would read what lies
//! behind the array, or end the program; the executor, which runs the kernel on this computer,
//! tells.
//!
//! **Write:** `y = a·x + y` for each element, and nothing for threads without one.
//! `math::fma(a, x, y)` is `a·x + y`, rounded once; `a * x + y`, rounded twice, is right, too.
//@ hint Which indices have the threads of the last block, if y has 600 elements? Which of them may touch y?
//@ hint Compare the index with `y.len()` before anything is read. What does a thread do whose index is not below it? Nothing.
//@ hint `if i < y.len() { … }` around the line that reads and writes.

use cuda_std::prelude::*;

/// `y[i] = a·x[i] + y[i]`.
#[kernel(block = 256, grid = crate::puzzle::blocks(y.len(), 256), requires(x.len() == y.len()))]
pub fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    //@ blank
    if i < y.len() {
        // SAFETY: i is below the length of both, which is the same; no other thread has this i.
        unsafe { y.set_unchecked(i, math::fma(a, x.get_unchecked(i), y.get_unchecked(i))) };
    }
    //@ instead
    //| // SAFETY: is i always inside?
    //| unsafe { y.set_unchecked(i, math::fma(a, x.get_unchecked(i), y.get_unchecked(i))) };
    //@ end
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::axpy;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "axpy",
        file: file!(),
        source: include_str!("p01_axpy.rs"),
        operation: &Axpy,
        fails: "OutOfBounds",
        lesson: "The grid has more threads than y has elements, and those without one read and \
                 write behind its end.",
        reference: Score { sectors: 225, global: 57, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Axpy;

    impl Operation for Axpy {
        fn describe(&self) -> Description {
            Description {
                name: "axpy",
                idea: "y = a·x + y",
                sizes: &["n"],
                kernels: vec![axpy::FACTS],
                small: testkit::every(&[&[256, 600, 1, 0]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = Distribution::Uniform(-1.0, 1.0);
            Ok(vec![Argument::input("x", &[n], numbers), Argument::in_out("y", &[n], numbers)])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(axpy { a: 0.75, x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (x, y) = (values.of("x")?, values.of("y")?);
            // Two roundings, as of `a * x + y`.
            let one = |(x, y): (&f64, &f64)| {
                Expected::rounded(0.75 * x + y, 2, (0.75 * x).abs() + y.abs())
            };
            Ok(vec![x.iter().zip(y).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| 2.0 * n as f64)
        }
    }
}
