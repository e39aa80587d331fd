//! The softmax of the rows of a matrix: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::process::ExitCode;

use runtime::KernelSet;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    testkit::main(&[&softmax_kernels::Softmax::NORMAL, &softmax_kernels::Softmax::SPECIAL], &[&KERNELS])
}
