//! Two small operations, for the tests of this crate.

use cuda_std::prelude::*;

use crate::{Argument, Description, Device, Distribution, Element, Error, Expected, Operation, Sizes, Values, Views};

#[path = "../../operations/src/testing.rs"]
mod twice;

pub(crate) use twice::{Twice, doubles};

/// `y = x / 2`, rounded down, of integers.
#[kernel(block = 32, grid = x.len().div_ceil(32).max(1) as u32, requires(x.len() == y.len()))]
fn halves(x: GlobalSlice<'_, u32>, y: GlobalSliceMut<'_, u32>) {
    let i = thread::index_1d();
    if i < x.len() {
        // SAFETY: i < x.len(), and y is as long; no other thread has this i.
        unsafe { y.set_unchecked(i, x.get_unchecked(i) / 2) };
    }
}

pub(crate) struct Halved;

impl Operation for Halved {
    fn describe(&self) -> Description {
        Description {
            name: "halved",
            idea: "y = x / 2",
            kernels: vec![halves::FACTS],
            ..Twice { wrong: false }.describe()
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [n] = sizes.get(["n"])?;
        let x = Argument::input("x", &[n], Distribution::Integers(0, i64::from(u32::MAX)));
        Ok(vec![x.of(Element::U32), Argument::output("y", &[n]).of(Element::U32)])
    }

    fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        Ok(device.launch(halves { x: views.read("x")?, y: views.write("y")? })?)
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        Ok(vec![values.of("x")?.iter().map(|x| Expected::exact((x / 2.0).floor())).collect()])
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}
