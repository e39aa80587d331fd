//! Well-known patterns of kernels: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::process::ExitCode;

use patterns_kernels::OPERATIONS;
use runtime::KernelSet;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    testkit::main(OPERATIONS, &[&KERNELS])
}
