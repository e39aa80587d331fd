//! `z[i] = max(x[i] + y[i], 0)` of n fp32 numbers: a thread has one element, a block 256.
//!
//! ```text
//!  x  │ 0 1 2 … 255 │ 256 … 511 │ … │        each element is read once and written once: 12 bytes,
//!  y  │ 0 1 2 … 255 │ 256 … 511 │ … │        so memory is all that counts
//!  z  │ 0 1 2 … 255 │ 256 … 511 │ … │
//!       block 0       block 1
//! ```

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The blocks for so many elements. More than a grid can have are refused by the launch.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(elements: usize) -> u32 {
    u32::try_from(elements.div_ceil(256).max(1)).unwrap_or(u32::MAX)
}

/// `z[i] = max(x[i] + y[i], 0)`.
#[kernel(block = 256, grid = blocks(z.len()), requires(x.len() == z.len(), y.len() == z.len()))]
pub fn add_relu(x: GlobalSlice<'_, f32>, y: GlobalSlice<'_, f32>, z: DisjointSlice<'_, f32>) {
    // The element of z that is this thread's own, if there are so many.
    let Some(z) = z.own() else { return };
    if let (Some(x), Some(y)) = (x.get(z.index()), y.get(z.index())) {
        let sum = x + y;
        z.set(if sum > 0.0 { sum } else { 0.0 });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::AddRelu;

/// The operation as the host sees it: n, x and y as inputs, z as output, the launch, and the same
/// in f64, from which an element may be off by one rounding. It is compiled for the host only.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes,
        Values, Views,
    };

    use super::add_relu;

    /// `z = max(x + y, 0)`.
    pub struct AddRelu;

    impl Operation for AddRelu {
        fn describe(&self) -> Description {
            Description {
                name: "add-relu",
                idea: "z = max(x + y, 0), one thread for each element",
                sizes: &["n"],
                kernels: vec![add_relu::FACTS],
                // Nothing, one, and about the ends of blocks.
                small: testkit::every(&[&[0, 1, 255, 256, 257, 1000]]),
                large: vec![vec![1 << 26]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let numbers = Distribution::Normal;
            Ok(vec![
                Argument::input("x", &[n], numbers),
                Argument::input("y", &[n], numbers),
                Argument::output("z", &[n]),
            ])
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(add_relu {
                x: views.read("x")?,
                y: views.read("y")?,
                z: views.disjoint("z")?,
            })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let (x, y) = (values.of("x")?, values.of("y")?);
            // In double precision; the kernel rounds once.
            let one = |(x, y): (&f64, &f64)| Expected::rounded((x + y).max(0.0), 1, (x + y).abs());
            Ok(vec![x.iter().zip(y).map(one).collect()])
        }

        fn operations(&self, sizes: &Sizes) -> f64 {
            sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
        }
    }
}
