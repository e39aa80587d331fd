//! `y[i] = a·x[i] + y[i]` of n fp32 numbers: a thread has one element, a block 256. Each element is rounded once.
//!
//! ```text
//!  x  │ 0 1 2 … 255 │ 256 … 511 │ … │        each element is read once,
//!  y  │ 0 1 2 … 255 │ 256 … 511 │ … │        and y is written once: 12 bytes for 2 operations,
//!       block 0       block 1                so memory is all that counts
//! ```

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The blocks for so many elements. More than a grid can have are refused by the launch.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(elements: usize) -> u32 {
    u32::try_from(elements.div_ceil(256).max(1)).unwrap_or(u32::MAX)
}

/// `y[i] = a·x[i] + y[i]`, rounded once.
///
/// Nothing here is unsafe: the elements of a `DisjointSlice` belong to one thread each, and what x has not, it does not give.
#[kernel(block = 256, grid = blocks(x.len()), requires(x.len() == y.len()))]
pub fn axpy(a: f32, x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
    if let Some(y) = y.own()
        && let Some(x) = x.get(y.index())
    {
        y.set(math::fma(a, x, y.get()));
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Axpy;

/// The operation as the host sees it: n, x as input, y as input and output, the launch, and the same in f64, from which an element may be
/// off by one rounding. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::axpy;

    /// `y = a·x + y`.
    pub struct Axpy;

    /// A number whose products are rounded.
    const A: f32 = -0.37;

    impl Operation for Axpy {
        fn describe(&self) -> Description {
            Description {
                name: "axpy",
                idea: "y = a·x + y, one thread for each element",
                sizes: &["n"],
                kernels: vec![axpy::FACTS],
                small: testkit::every(&[&[0, 1, 255, 256, 257, 1000]]),
                large: vec![vec![1 << 24], vec![(1 << 26) + 1]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = Distribution::LogUniform(1e-3, 1e3);
            Ok(vec![Argument::input("x", &[n], numbers), Argument::in_out("y", &[n], numbers)])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(axpy { a: A, x: views.read("x")?, y: views.disjoint("y")? })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (x, y) = (values.of("x")?, values.of("y")?);
            let one = |(x, y): (&f64, &f64)| {
                let value = f64::from(A) * x + y;
                Expected::rounded(value, 1, value.abs())
            };
            Ok(vec![x.iter().zip(y).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| 2.0 * n as f64)
        }
    }
}
