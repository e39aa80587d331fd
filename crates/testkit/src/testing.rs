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

/// The sum of all elements. Blocks take an element each as they come, and the one with the last element adds all of them up.
#[kernel(block = 1, grid = x.len().max(1) as u32, requires(parts.len() == x.len(), come.len() == 1, y.len() == 1))]
fn sums_too_early(
    x: GlobalSlice<'_, f32>,
    parts: GlobalSliceMut<'_, f32>,
    come: GlobalAtomics<'_, u32>,
    y: GlobalSliceMut<'_, f32>,
) {
    let Some(come) = come.get(0) else { return };
    let (i, n) = (come.fetch_add(1, atomic::AcqRel, atomic::Scope::Device) as usize, x.len());
    // SAFETY: each block has an element of its own, because there are as many blocks. What is not fulfilled is the fault: who has come before
    // need not have written its part.
    unsafe {
        parts.set_unchecked(i, x.get_unchecked(i));
        come.fetch_add(0, atomic::AcqRel, atomic::Scope::Device);
        if i + 1 == n {
            let mut sum = 0.0;
            for part in 0..n {
                sum += parts.get_unchecked(part);
            }
            y.set_unchecked(0, sum);
        }
    }
}

/// An operation that is right where the block with the last element is done last, which the order of blocks decides.
pub(crate) struct SumTooEarly;

impl Operation for SumTooEarly {
    fn describe(&self) -> Description {
        Description {
            name: "sum-too-early",
            idea: "y = the sum of x",
            kernels: vec![sums_too_early::FACTS],
            small: vec![vec![2]],
            ..Twice { wrong: false }.describe()
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [n] = sizes.get(["n"])?;
        let x = Argument::input("x", &[n], Distribution::Integers(1, 9));
        let come = Argument::in_out("come", &[1], Distribution::Integers(0, 0)).of(Element::U32);
        Ok(vec![x, Argument::scratch("parts", &[n]), come, Argument::output("y", &[1])])
    }

    fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let (x, parts) = (views.read("x")?, views.write("parts")?);
        Ok(device.launch(sums_too_early { x, parts, come: views.atomics("come")?, y: views.write("y")? })?)
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let x = values.of("x")?;
        Ok([x.len() as f64, x.iter().sum()].map(|value| vec![Expected::exact(value)]).into())
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}
