//! An operation whose kernel never ends and does nothing but compute: the test over it ends its program with a report.

use std::hint::black_box;
use std::process::Command;

use cuda_std::prelude::*;
use operations::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};

/// Halves each element until it is 1, which 0 never becomes.
#[kernel(block = 32, grid = x.len().div_ceil(32).max(1) as u32)]
pub fn halves_down(x: DisjointSlice<'_, u32>) {
    if let Some(x) = x.own() {
        let mut number = x.get();
        while black_box(number) != 1 {
            number /= 2;
        }
        x.set(number);
    }
}

struct Endless;

impl Operation for Endless {
    fn describe(&self) -> Description {
        Description {
            name: "endless",
            idea: "x = 1",
            sizes: &["n"],
            kernels: vec![halves_down::FACTS],
            small: vec![vec![20]],
            large: Vec::new(),
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [n] = sizes.get(["n"])?;
        Ok(vec![Argument::in_out("x", &[n], Distribution::Integers(0, 0)).of(operations::Element::U32)])
    }

    fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        Ok(device.launch(halves_down { x: views.disjoint("x")? })?)
    }

    fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        Ok(vec![values.of("x")?.iter().map(|_| Expected::exact(1.0)).collect()])
    }

    fn operations(&self, _: &Sizes) -> f64 {
        0.0
    }
}

#[test]
#[ignore = "never ends by itself: another test runs it in a process of its own"]
fn checks_never_end() {
    operations::assert_checks(&Endless);
}

#[test]
fn a_kernel_that_only_computes_and_never_ends_is_reported() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "checks_never_end", "--ignored"]).env("TILEWRIGHT_THREAD_LIMIT", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected =
        "error: kernel `halves_down`, block (0, 0, 0), thread (0, 0, 0): this thread has run for 1 s since it began";
    assert!(said.contains(expected), "{said}");
    assert_eq!(output.status.code(), Some(101));
}
