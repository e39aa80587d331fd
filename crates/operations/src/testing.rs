//! A small operation, for the tests of this crate and of the program.

use cuda_std::prelude::*;

use crate::{
    Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views, every,
};

/// `y = 2·x`, one thread for each element.
#[kernel(block = 32, grid = x.len().div_ceil(32).max(1) as u32, requires(x.len() == y.len()))]
pub(crate) fn doubles(factor: f32, x: GlobalSlice<'_, f32>, y: GlobalSliceMut<'_, f32>) {
    let i = thread::index_1d();
    if i < x.len() {
        // SAFETY: i < x.len(), and y is as long; no other thread has this i.
        unsafe { y.set_unchecked(i, factor * x.get_unchecked(i)) };
    }
}

pub(crate) struct Twice {
    pub(crate) wrong: bool,
}

impl Operation for Twice {
    fn describe(&self) -> Description {
        Description {
            name: "twice",
            idea: "y = 2·x",
            sizes: &["n"],
            kernels: vec![doubles::FACTS],
            small: every(&[&[0, 1, 31, 32, 100]]),
            large: vec![vec![1 << 20]],
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [n] = sizes.get(["n"])?;
        Ok(vec![Argument::input("x", &[n], Distribution::Special), Argument::output("y", &[n])])
    }

    fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let factor = if self.wrong { 2.5 } else { 2.0 };
        Ok(device.launch(doubles { factor, x: views.read("x")?, y: views.write("y")? })?)
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        Ok(vec![values.of("x")?.iter().map(|x| Expected::exact(2.0 * x)).collect()])
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        sizes.get(["n"]).map_or(0.0, |[n]| n as f64)
    }
}
