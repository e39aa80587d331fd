//! # 9. `gather`: two threads, one element
//!
//! A barrier orders threads of one block. Between blocks there is none: if two threads of a launch
//! access the same element of global memory, and one of them writes, nothing orders them, and it is
//! a race. Often the way out is to turn the question round: not "where does my input go?"
//! (*scatter*), but "what does my output need?" (*gather*). Then each element of the output has one
//! thread.
//!
//! ```text
//!  scatter:  x │ 0 │ 1 │ 2 │ 3 │ …        gather:   x │ 0 │ 1 │ 2 │ 3 │ …
//!              ╲   ╱   ╲   ╱                          ╲   ╱   ╲   ╱
//!  y +=         │ 0 │   │ 1 │             y +=          0       1
//!            a thread for each x: a race               a thread for each y
//! ```
//!
//! Here even `y[j] += …` of two lanes of one warp is a race: each reads, adds and writes, and one
//! of the two sums is lost.
//!
//! **Write:** `y[j] = y[j] + x[2j] + x[2j + 1]`, by one thread for each element of y. (Atomic
//! additions, as the next puzzle has them, would let two threads add to one element, one after the
//! other. Nobody needs them here.)
//@ hint Give the index of the thread to y, and let the thread read two elements of x.
//@ hint `if j < y.len()`, then one `set_unchecked(j, …)` with `x.get_unchecked(2 * j)` and its neighbour in it.

use cuda_std::prelude::*;

/// `y[j] += x[2j] + x[2j + 1]`.
#[kernel(block = 64, grid = crate::puzzle::blocks(x.len(), 64), requires(x.len() == 2 * y.len()))]
pub fn add_pairs(x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    //@ blank
    let j = thread::index_1d();
    if j < y.len() {
        // SAFETY: j is below y.len(), so 2j + 1 is below x.len(); no other thread has this j.
        unsafe {
            let pair = x.get_unchecked(2 * j) + x.get_unchecked(2 * j + 1);
            y.set_unchecked(j, y.get_unchecked(j) + pair);
        }
    }
    //@ instead
    //| let i = thread::index_1d();
    //| if i < x.len() {
    //|     // SAFETY: i is below x.len(), so i / 2 is below y.len(). Has another thread this i / 2?
    //|     unsafe { y.set_unchecked(i / 2, y.get_unchecked(i / 2) + x.get_unchecked(i)) };
    //| }
    //@ end
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::add_pairs;
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "gather",
        file: file!(),
        source: include_str!("p09_gather.rs"),
        operation: &AddPairs,
        fails: "GlobalRace",
        lesson: "Two threads read, add to and write one element of y, and one of the two additions \
                 may be lost.",
        reference: Score { sectors: 76, global: 16, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: Some(nobody_adds_atomically),
    };

    /// No access is atomic: each element of y has one thread.
    fn nobody_adds_atomically(trace: &Trace) -> Result<(), String> {
        let mut steps = trace.blocks.iter().flat_map(|block| &block.steps);
        let Some(step) = steps.find(|step| step.kind == Kind::GlobalAtomic) else { return Ok(()) };
        let place = step.place.and_then(|place| trace.places.get(place));
        Err(format!(
            "several threads add to one element, atomically, where each element of y can have a \
             thread of its own\n  --> {}",
            place.map_or("", |place| place)
        ))
    }

    struct AddPairs;

    impl Operation for AddPairs {
        fn describe(&self) -> Description {
            Description {
                name: "gather",
                idea: "sums of pairs",
                sizes: &["n"],
                kernels: vec![add_pairs::FACTS],
                small: testkit::every(&[&[0, 1, 32, 100]]),
                large: vec![vec![1 << 25]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = Distribution::Normal;
            Ok(vec![Argument::input("x", &[2 * n], numbers), Argument::in_out("y", &[n], numbers)])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(add_pairs { x: views.read("x")?, y: views.write("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (x, y) = (values.of("x")?, values.of("y")?);
            let one = |(x, y): (&[f64], &f64)| {
                Expected::rounded(y + x[0] + x[1], 2, y.abs() + x[0].abs() + x[1].abs())
            };
            Ok(vec![x.chunks(2).zip(y).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| 2.0 * n as f64)
        }
    }
}
