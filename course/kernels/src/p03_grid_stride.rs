//! # 3. `grid-stride`: a grid that does not depend on the size
//!
//! A kernel need not have a thread for each element. With a grid of some fixed size each thread
//! goes on to further elements, a whole grid of threads later: a *grid-stride loop*. So a grid can
//! be as large as the GPU is, whatever the array's length.
//!
//! ```text
//!  y        │ 0 … 255 │ 256 … 511 │ 512 … 767 │ …        4 blocks of 64 threads: 256
//!  thread 0   ▲         ▲           ▲
//!             i         i + 256     i + 512                256 = thread::count()
//! ```
//!
//! Neighbouring threads still have neighbouring elements, which memory likes: puzzle 4 shows why,
//! and the score tells here, too, if they have not.
//!
//! An output that nobody has written is reported, too: the executor knows which elements of memory
//! have been written.
//!
//! **Write:** the loop. `thread::index_1d()` is where a thread begins, `thread::count()` is how
//! many threads the grid has.
//@ hint Which elements are not written, by the report? How many threads are there?
//@ hint `while i < y.len()` in place of `if`, and i has to grow in the loop, or it never ends.
//@ hint `i += thread::count();`, behind the store: the other threads of the grid have the elements in between.

use cuda_std::prelude::*;

/// `y[i] = x[i]²`, by a grid of 4 blocks.
#[kernel(block = 64, grid = 4, requires(x.len() == y.len()))]
pub fn squares(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    //@ blank
    let mut i = thread::index_1d();
    while i < y.len() {
        // SAFETY: i is below the length of both; no other thread ever has this i.
        unsafe {
            let x = x.get_unchecked(i);
            y.set_unchecked(i, x * x);
        }
        i += thread::count();
    }
    //@ instead
    //| let i = thread::index_1d();
    //| if i < y.len() {
    //|     // SAFETY: i is below the length of both; no other thread has this i.
    //|     unsafe {
    //|         let x = x.get_unchecked(i);
    //|         y.set_unchecked(i, x * x);
    //|     }
    //| }
    //@ end
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::squares;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "grid-stride",
        file: file!(),
        source: include_str!("p03_grid_stride.rs"),
        operation: &Squares,
        fails: "Unwritten",
        lesson: "There are fewer threads than elements, and each thread stops after its first one.",
        reference: Score { sectors: 250, global: 64, shared: 0, conflicts: 0, waits: 0 },
        // `x[i] * x[i]` is counted as two loads, which a compiler makes one: 375. A thread that has
        // neighbouring elements for itself takes 1000.
        limits: Limits { sectors: Some(375), ..Limits::NONE },
        judge: None,
    };

    struct Squares;

    impl Operation for Squares {
        fn describe(&self) -> Description {
            Description {
                name: "grid-stride",
                idea: "squares, by a grid of a fixed size",
                sizes: &["n"],
                kernels: vec![squares::FACTS],
                small: testkit::every(&[&[0, 1, 255, 256, 257, 1000]]),
                large: vec![vec![1 << 20]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            Ok(vec![Argument::input("x", &[n], Distribution::Normal), Argument::output("y", &[n])])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(squares { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            Ok(vec![values.of("x")?.iter().map(|x| Expected::rounded(x * x, 1, x * x)).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
