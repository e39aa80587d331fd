//! Steps of a heat equation along a rod of n points in fp32, all in one cooperative launch. A thread computes the point with its number,
//! and those that come so many later as there are threads; all blocks meet after each step.
//!
//! ```text
//!  step 0   x ──────► y          each point becomes the mean of its two neighbours; the ends stay as warm as they are
//!           all blocks meet      what one block has written, its neighbours read next
//!  step 1   y ──────► x
//!           all blocks meet
//!  …
//! ```
//!
//! Without the meeting that would be a launch for each step, of some microseconds each, however few points there are.
//!
//! Source of the pattern: `conjugateGradientMultiBlockCG` of the CUDA samples (NVIDIA), which writes the meeting with cooperative groups.

use cuda_std::grid;
use cuda_std::prelude::*;

/// `steps` steps from `x`, by way of `y`: the result is in `x` after an even number of steps, otherwise in `y`.
#[kernel(block = 256, cooperative, any_grid, requires(x.len() == y.len(), met.len() == 1))]
pub fn relax_fp32(steps: u32, x: DisjointSlice<'_, f32>, y: DisjointSlice<'_, f32>, met: GlobalAtomics<'_, u32>) {
    let (mut from, mut to) = (x, y);
    let mut step = 0;
    while step < steps {
        let all = from.whole();
        for point in to.own_elements() {
            let i = point.index();
            // SAFETY: below the length, which is that of both. Nobody writes `from` in this step: the meeting sees to that.
            point.set(unsafe {
                if i == 0 || i + 1 == all.len() {
                    all.get_unchecked(i)
                } else {
                    0.5 * (all.get_unchecked(i - 1) + all.get_unchecked(i + 1))
                }
            });
        }
        // SAFETY: the kernel is cooperative, and all threads come here in each step.
        unsafe { grid::sync(met) };
        (from, to) = (to, from);
        step += 1;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Relax;

/// The test cases of the kernel, the same steps computed in f64, and the error bound of each element. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::relax_fp32;
    use crate::zero::zero_u32;

    /// Steps of a heat equation.
    pub struct Relax;

    impl Operation for Relax {
        fn describe(&self) -> Description {
            Description {
                name: "relax",
                idea: "all blocks of a cooperative launch meet after each step",
                sizes: &["n", "steps"],
                kernels: vec![zero_u32::FACTS, relax_fp32::FACTS],
                small: testkit::cases(&[[0, 3], [1, 2], [2, 5], [255, 4], [1000, 7], [1025, 0], [3000, 6]]),
                large: vec![vec![1 << 20, 100], vec![100_003, 1000]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n, _] = sizes.get(["n", "steps"])?;
            Ok(vec![
                Argument::in_out("x", &[n], Distribution::Normal),
                Argument::in_out("y", &[n], Distribution::Normal),
                Argument::scratch("met", &[1]).of(Element::U32),
            ])
        }

        fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            let [n, steps] = sizes.get(["n", "steps"])?;
            device.launch(zero_u32 { words: views.disjoint("met")? })?;
            // As many blocks as have something to do, and run at the same time.
            let blocks =
                (n as u64).div_ceil(relax_fp32::BLOCK.x.into()).clamp(1, device.resident_blocks(&relax_fp32::FACTS)?);
            let (x, y, met) = (views.disjoint("x")?, views.disjoint("y")?, views.atomics("met")?);
            Ok(device.launch_any_grid(blocks as u32, relax_fp32 { steps: steps as u32, x, y, met })?)
        }

        fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let [_, steps] = sizes.get(["n", "steps"])?;
            // Beside the values, the same of their magnitudes: each step adds a rounding of no more than that.
            let with_magnitudes = |values: &[f64]| values.iter().map(|x| (*x, x.abs())).collect::<Vec<_>>();
            let (mut from, mut to) = (with_magnitudes(values.of("x")?), with_magnitudes(values.of("y")?));
            for _ in 0..steps {
                for i in 0..from.len() {
                    to[i] = if i == 0 || i + 1 == from.len() {
                        from[i]
                    } else {
                        (0.5 * (from[i - 1].0 + from[i + 1].0), 0.5 * (from[i - 1].1 + from[i + 1].1))
                    };
                }
                std::mem::swap(&mut from, &mut to);
            }
            let (x, y) = if steps % 2 == 0 { (from, to) } else { (to, from) };
            let expected = |all: Vec<(f64, f64)>| {
                all.into_iter().map(|(value, magnitude)| Expected::rounded(value, steps, magnitude)).collect()
            };
            Ok(vec![expected(x), expected(y)])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n", "steps"]).map_or(0.0, |[n, steps]| 2.0 * n as f64 * steps as f64)
        }
    }
}
