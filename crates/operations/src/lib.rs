//! Operations: what kernels are for, and everything that follows from that.
//!
//! An operation says its name, its sizes, its cases, its arguments with their numbers, how its kernels are launched, a reference in
//! double precision with an error bound for each element, and how much work it is. It stands beside its kernels, in one file:
//!
//! ```
//! use cuda_std::prelude::*;
//! use operations::{Argument, Bits, Description, Device, Distribution, Error, Expected, Operation, Sizes, Values, Views};
//!
//! /// `y[i] = 2·x[i] + y[i]`, one thread for each element.
//! #[kernel(block = 256, grid = x.len().div_ceil(256).max(1) as u32, requires(x.len() == y.len()))]
//! pub fn axpy(x: GlobalSlice<'_, f32>, y: DisjointSlice<'_, f32>) {
//!     if let Some(y) = y.own()
//!         && let Some(x) = x.get(y.index())
//!     {
//!         y.set(math::fma(2.0, x, y.get()));
//!     }
//! }
//!
//! pub struct Axpy;
//!
//! impl Operation for Axpy {
//!     fn describe(&self) -> Description {
//!         Description {
//!             name: "axpy",
//!             idea: "y = 2·x + y, one thread for each element",
//!             sizes: &["n"],
//!             kernels: vec![axpy::FACTS],
//!             small: operations::every(&[&[0, 1, 255, 256, 257]]),
//!             large: vec![vec![1 << 26]],
//!             bits: Bits::Same,
//!         }
//!     }
//!
//!     fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
//!         let [n] = sizes.get(["n"])?;
//!         let numbers = Distribution::Uniform(-1.0, 1.0);
//!         Ok(vec![Argument::input("x", &[n], numbers), Argument::in_out("y", &[n], numbers)])
//!     }
//!
//!     fn launch(&self, device: &Device, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
//!         Ok(device.launch(axpy { x: views.read("x")?, y: views.disjoint("y")? })?)
//!     }
//!
//!     fn expected(&self, _: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
//!         let (x, y) = (values.of("x")?, values.of("y")?);
//!         let one = |(x, y): (&f64, &f64)| Expected::rounded(2.0 * x + y, 1, (2.0 * x + y).abs());
//!         Ok(vec![x.iter().zip(y).map(one).collect()])
//!     }
//!
//!     fn operations(&self, sizes: &Sizes) -> f64 {
//!         sizes.get(["n"]).map_or(0.0, |[n]| 2.0 * n as f64)
//!     }
//! }
//!
//! operations::assert_checks(&Axpy);
//! ```
//!
//! # What follows
//!
//! | | what | where |
//! |---|---|---|
//! | [`check()`] | guard words around every argument, outputs that are NaN before, inputs as they were, every element within its bound, the same bits in three runs | any device |
//! | [`check_executor`], [`check_schedules`] | the same with all checks of the executor, in several orders of blocks, also with the limits of lesser GPUs | the executor |
//! | [`cost()`] | by line of the kernels: sectors of global memory, bank conflicts, lanes that take part, as Nsight Compute counts them; with `--ncu` beside what that counts | the executor |
//! | [`trace()`] | where kernels make the first NaN, infinity or subnormal number, or lose an addend | the executor |
//! | [`record_steps`] | what a block does, step by step: accesses, barriers, transfers, products of each warp; as a file, a page, text | the executor |
//! | [`mutants()`] | each call that orders threads is left out in turn: does anybody notice? | the executor |
//! | [`agreement()`] | a GPU's bits against the executor's | both |
//! | [`bench()`] | median and spread, bytes and operations a second as a share of the GPU's peak, in turns with a baseline if there is one, with buffers that are not in the cache | any device |
//!
//! A test is one line: [`assert_checks`], [`assert_mutants`]. A program with all of these, and more, is `testkit::main`: `testkit` has what is
//! here, too. What is made of operations without a program, such as a library, needs no more than this crate.

mod agreement;
mod argument;
mod backtraces;
mod bench;
mod check;
mod cost;
mod error;
mod executor;
mod expected;
mod mutants;
mod numbers;
mod operation;
mod parallel;
mod peak;
mod steps;
#[cfg(test)]
mod testing;
mod trace;
mod trial;

pub use agreement::{Agreement, Disagreement, agreement};
pub use argument::{Argument, Distribution, Element, ElementType, Role, Values, Views};
pub use bench::{MeasuredBaseline, Measurement, Times, bench};
pub use check::{Case, Report, Schedules, assert_checks, check, check_case, check_executor, check_schedules};
pub use cost::{CostReport, cost, costs_of};
pub use error::{Error, Nearest};
pub use executor::executor;
pub use expected::{Expected, FP32_ROUNDING};
pub use mutants::{Mutant, Mutants, Outcome, assert_mutants, assert_mutants_of, mutants};
pub use numbers::Numbers;
pub use operation::{Baseline, Bits, Description, Operation, Sizes, Units, cases, every};
pub use parallel::{each, each_row, sort};
pub use peak::{Least, Peak};
pub use runtime::Device;
pub use steps::{assert_trace_files, record_steps};
pub use trace::{Shown, TraceReport, trace};
pub use trial::{Accuracy, Outputs, Trial};
