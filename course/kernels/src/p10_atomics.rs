//! # 10. `atomics`: sums that many threads add to
//!
//! A histogram cannot be turned round as the last puzzle's sums could: which threads meet in a bin
//! depends on the numbers. An *atomic operation* reads, adds and writes as one, so that no addition
//! is lost, in whatever order threads come.
//!
//! ```text
//!  x      │ 3 │ 0 │ 3 │ 3 │ 1 │ …         one thread for each
//!           │   │   │   │
//!  bins   │ 0 │ 1 │ 2 │ 3 │ …             three threads add to bin 3
//! ```
//!
//! CUDA C++ writes `atomicAdd(&bins[b], 1)`. Here an atomic operation says two things more. Its
//! *order* says what else it orders: `Relaxed` is nothing else, and enough for a counter. Its
//! *scope* says between whom: `Scope::Device` is all threads of the GPU, `Scope::Block` the block's
//! own.
//!
//! **Write:** the addition, by `bins.atomic_unchecked(bin).fetch_add(…, Relaxed, Scope::…)`, with
//! `use cuda_std::atomic::{Relaxed, Scope};` before.
//@ hint The report shows the same line twice: two threads read and write one bin, and nothing orders them.
//@ hint `fetch_add(1, Relaxed, …)` gives back what was there before, which nobody needs here.
//@ hint Threads of different blocks add to the same bins, so the scope is `Scope::Device`.

use cuda_std::prelude::*;

/// The bins.
const BINS: usize = 16;

/// Adds to bin `x % 16` the number of such x.
#[kernel(block = 64, grid = crate::puzzle::blocks(x.len(), 64), requires(bins.len() == BINS))]
pub fn histogram(x: GlobalSlice<'_, u32>, bins: GlobalSliceMut<'_, u32>) {
    if let Some(x) = x.get(thread::index_1d()) {
        let bin = x as usize % BINS;
        //@ blank
        use cuda_std::atomic::{Relaxed, Scope};
        // SAFETY: bin < 16; nobody accesses the bins in another way.
        unsafe { bins.atomic_unchecked(bin).fetch_add(1, Relaxed, Scope::Device) };
        //@ instead
        //| // SAFETY: bin < 16. Is this thread the only one that has this bin?
        //| unsafe { bins.set_unchecked(bin, bins.get_unchecked(bin) + 1) };
        //@ end
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{BINS, histogram};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "atomics",
        file: file!(),
        source: include_str!("p10_atomics.rs"),
        operation: &Histogram,
        fails: "GlobalRace",
        lesson: "Two threads count in the same bin at the same time, and nothing that holds for \
                 both of them makes the read and the write of each one step.",
        reference: Score { sectors: 58, global: 20, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct Histogram;

    impl Operation for Histogram {
        fn describe(&self) -> Description {
            Description {
                name: "atomics",
                idea: "a histogram",
                sizes: &["n"],
                kernels: vec![histogram::FACTS],
                small: testkit::every(&[&[0, 1, 64, 300]]),
                large: vec![vec![1 << 22]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = Distribution::Integers(0, 1000);
            let (x, bins) =
                (Argument::input("x", &[n], numbers), Argument::in_out("bins", &[BINS], numbers));
            Ok(vec![x.of(Element::U32), bins.of(Element::U32)])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(histogram { x: views.read("x")?, bins: views.write("bins")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let mut bins = values.of("bins")?.to_vec();
            values.of("x")?.iter().for_each(|x| bins[*x as usize % BINS] += 1.0);
            Ok(vec![bins.into_iter().map(Expected::exact).collect()])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
