//! Functions of numbers: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::process::ExitCode;

use runtime::KernelSet;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    testkit::main(&[&functions_kernels::Functions], &[&KERNELS])
}
