//! A program over operations: runs, checks, costs, mutants, measurements, NVIDIA's compute-sanitizer.
//!
//! What an operation is, and what follows from it without a program, is in [`operations`]; all of that is here, too, so that a crate of kernels
//! needs this one alone. The program is one line:
//!
//! ```no_run
//! # use testkit::{Device, Operation};
//! use std::process::ExitCode;
//!
//! # static OPERATIONS: &[&dyn Operation] = &[];
//! fn main() -> ExitCode {
//!     testkit::main(OPERATIONS, &[]) // the operations, and the sets of kernels of which there is PTX
//! }
//! ```
//!
//! | task | what |
//! |---|---|
//! | `list` | the operations, their sizes and kernels |
//! | `run`, `check` | one case, or all, on any device |
//! | `cost` | [`cost()`] by the executor; with `--ncu` beside what Nsight Compute counts |
//! | `trace` | a block step by step, or where the first NaN comes from |
//! | `mutants`, `agreement`, `bench` | [`mutants()`], [`agreement()`], [`bench()`] |
//! | `sanitize` | NVIDIA's compute-sanitizer over every operation: [`sanitize`] |

mod callers;
pub mod child;
mod counters;
pub mod ending;
mod runner;
pub mod sanitize;
mod system;
#[cfg(test)]
mod testing;
mod trace_task;
mod written;

pub use counters::CostTask;
pub use operations::*;
pub use runner::{BenchTask, CheckTask, Common, Orders, Program, RunTask, Task, Wanted, main, markdown};
pub use trace_task::{Format, TraceTask};
