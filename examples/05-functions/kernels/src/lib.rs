//! `exp`, `exp2`, `sqrt` and `rsqrt` of numbers of all magnitudes: one thread for each number.
//!
//! ```text
//!  bits │ 0 1 2 … 255 │ 256 … 511 │ … │        any 32 bits: all exponents are equally likely, and one
//!       │             │           │            number in 128 is an infinity or a NaN
//!  exp, exp2, sqrt, rsqrt: four arrays as long
//! ```
//!
//! The functions of `cuda_std::math` are Rust of operations that IEEE 754 defines, so that `agreement` has to find the same bits on a
//! GPU and on the CPU, for each number. Inputs are words, not numbers, because nothing may change a NaN on its way.

#![cfg_attr(target_arch = "nvptx64", no_std)]

use cuda_std::prelude::*;

/// The blocks for so many elements. More than a grid can have are refused by the launch.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(elements: usize) -> u32 {
    u32::try_from(elements.div_ceil(256).max(1)).unwrap_or(u32::MAX)
}

/// The functions of the number that each word is.
#[kernel(
    block = 256,
    grid = blocks(bits.len()),
    requires(
        exp.len() == bits.len(), exp2.len() == bits.len(), sqrt.len() == bits.len(), rsqrt.len() == bits.len(),
    )
)]
pub fn functions(
    bits: GlobalSlice<'_, u32>,
    exp: GlobalSliceMut<'_, f32>,
    exp2: GlobalSliceMut<'_, f32>,
    sqrt: GlobalSliceMut<'_, f32>,
    rsqrt: GlobalSliceMut<'_, f32>,
) {
    let i = thread::index_1d();
    if i < bits.len() {
        // SAFETY: i < bits.len(), and the launch has checked that the others are as long; no other thread has this i.
        unsafe {
            let x = f32::from_bits(bits.get_unchecked(i));
            exp.set_unchecked(i, math::exp(x));
            exp2.set_unchecked(i, math::exp2(x));
            sqrt.set_unchecked(i, math::sqrt(x));
            rsqrt.set_unchecked(i, math::rsqrt(x));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Functions;

/// What the kernel is for. No GPU sees this.
#[cfg(not(target_arch = "nvptx64"))]
mod operation {
    use testkit::{
        Argument, Bits, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views,
    };

    use super::functions;

    /// Four functions of any numbers.
    pub struct Functions;

    /// What a function shall be, within so many units in the last place.
    fn within(value: f64, ulps: f64) -> Expected {
        let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
        Expected::within(value, ulps * 2f64.powi(exponent - 23))
    }

    impl Operation for Functions {
        fn describe(&self) -> Description {
            Description {
                name: "functions",
                idea: "exp, exp2, sqrt and rsqrt of numbers of all magnitudes, one thread for each number",
                sizes: &["n"],
                kernels: vec![functions::FACTS],
                small: testkit::every(&[&[0, 1, 255, 257, 20_000]]),
                large: vec![vec![1 << 24]],
                bits: Bits::Same,
            }
        }

        fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
            let [n] = sizes.get(["n"])?;
            let bits = Argument::input("bits", &[n], Distribution::Integers(0, i64::from(u32::MAX))).of(Element::U32);
            let outputs = ["exp", "exp2", "sqrt", "rsqrt"].map(|name| Argument::output(name, &[n]));
            Ok([bits].into_iter().chain(outputs).collect())
        }

        fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
            Ok(device.launch(functions {
                bits: views.read("bits")?,
                exp: views.write("exp")?,
                exp2: views.write("exp2")?,
                sqrt: views.write("sqrt")?,
                rsqrt: views.write("rsqrt")?,
            })?)
        }

        fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
            let of_all = |function: fn(f64) -> Expected| -> Result<Vec<Expected>, Error> {
                let numbers = values.of("bits")?.iter().map(|&bits| f64::from(f32::from_bits(bits as u32)));
                Ok(numbers.map(function).collect())
            };
            // The bounds are those of `cuda_std::math`.
            Ok(vec![
                of_all(|x| within(x.exp(), 0.88))?,
                of_all(|x| within(x.exp2(), 0.87))?,
                of_all(|x| within(x.sqrt(), 0.5))?,
                of_all(|x| within(1.0 / x.sqrt(), 0.500_001))?,
            ])
        }

        fn operations(&self, _: &Sizes) -> f64 {
            0.0
        }
    }
}
