//! # 14. `flags`: a block waits for the one before
//!
//! A running total needs the total of all blocks before. Each block waits until its neighbour has
//! set a flag, takes the neighbour's total, adds its own sum, and sets its own flag. (Blocks begin
//! in the order of their numbers, so who is waited for has begun. Real kernels take numbers from a
//! counter, to be sure.)
//!
//! ```text
//!  block 0                 block 1                        block 2
//!  totals[0] = s₀
//!  flags[0] = 1  ───────►  while flags[0] == 0 {}
//!   (release)               (acquire)
//!                          totals[1] = totals[0] + s₁
//!                          flags[1] = 1  ─────────────►  …
//! ```
//!
//! A flag is an atomic number, and both sides need an order: the store *releases* what was written
//! before it, the load that sees it *acquires* that. One of the two alone orders nothing. `Relaxed`
//! on either side works on most days, and loses a total on some.
//!
//! **Write:** the orders of the load and of the store, from `atomic::Acquire`, `atomic::Release`
//! and `atomic::Relaxed`.
//@ hint The race is on `totals`, and the flags are what should order it. The store comes behind the write of the total, the load before the read.
//@ hint The load has `atomic::Acquire`, the store `atomic::Release`. The compiler takes only orders that a load or a store can have.

use cuda_std::atomic::{self, Scope};
use cuda_std::prelude::*;

/// Sets the flags to zero, before the launch.
#[kernel(block = 32, grid = 1)]
pub fn reset_flags(flags: DisjointSlice<'_, u32>) {
    flags.own_elements().for_each(|flag| flag.set(0));
}

/// The running totals of blocks of 16 elements.
#[kernel(
    block = 1,
    grid = totals.len() as u32,
    requires(x.len() == 16 * totals.len(), flags.len() == totals.len())
)]
pub fn running_totals(
    x: GlobalSlice<'_, f32>,
    flags: GlobalAtomics<'_, u32>,
    totals: GlobalSliceMut<'_, f32>,
) {
    let block = thread::block_idx_x() as usize;
    // SAFETY: indices are below the lengths, which the launch has checked; a total is written
    // before the flag is set that lets others read it.
    unsafe {
        let mut sum = 0.0;
        for i in 0..16 {
            sum += x.get_unchecked(16 * block + i);
        }
        //@ blank
        if block > 0 {
            while flags.get_unchecked(block - 1).load(atomic::Acquire, Scope::Device) == 0 {}
            sum += totals.get_unchecked(block - 1);
        }
        totals.set_unchecked(block, sum);
        flags.get_unchecked(block).store(1, atomic::Release, Scope::Device);
        //@ instead
        //| if block > 0 {
        //|     while flags.get_unchecked(block - 1).load(atomic::Relaxed, Scope::Device) == 0 {}
        //|     sum += totals.get_unchecked(block - 1);
        //| }
        //| totals.set_unchecked(block, sum);
        //| flags.get_unchecked(block).store(1, atomic::Relaxed, Scope::Device);
        //@ end
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::PUZZLE;

#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use super::{reset_flags, running_totals};
    use crate::puzzle::prelude::*;

    /// The puzzle.
    pub static PUZZLE: Puzzle = Puzzle {
        name: "flags",
        file: file!(),
        source: include_str!("p14_flags.rs"),
        operation: &RunningTotals,
        fails: "GlobalRace",
        lesson: "The flag has been seen, and nothing says that the total which belongs to it can \
                 be seen, too: the store has to come behind the total and release it, and the load \
                 has to acquire it.",
        reference: Score { sectors: 234, global: 233, shared: 0, conflicts: 0, waits: 0 },
        limits: Limits::NONE,
        judge: None,
    };

    struct RunningTotals;

    impl Operation for RunningTotals {
        fn describe(&self) -> Description {
            Description {
                name: "flags",
                idea: "running totals, from block to block",
                sizes: &["blocks"],
                kernels: vec![reset_flags::FACTS, running_totals::FACTS],
                small: testkit::every(&[&[1, 2, 9]]),
                large: vec![vec![1 << 10]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [blocks] = sizes.get(["blocks"])?;
            Ok(vec![
                Argument::input("x", &[16 * blocks], Distribution::Normal),
                Argument::scratch("flags", &[blocks]).of(Element::U32),
                Argument::output("totals", &[blocks]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            device.launch(reset_flags { flags: views.disjoint("flags")? })?;
            let (x, flags, totals) =
                (views.read("x")?, views.atomics("flags")?, views.write("totals")?);
            Ok(device.launch(running_totals { x, flags, totals })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (mut total, mut magnitude) = (0.0, 0.0);
            let next = |(block, x): (usize, &[f64])| {
                total += x.iter().sum::<f64>();
                magnitude += x.iter().map(|x| x.abs()).sum::<f64>();
                Expected::rounded(total, 17 + block, magnitude)
            };
            Ok(vec![values.of("x")?.chunks(16).enumerate().map(next).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["blocks"]).map_or(0.0, |[blocks]| 16.0 * blocks as f64)
        }
    }
}
