//! How often each 16-bit value occurs: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::process::ExitCode;

use runtime::KernelSet;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    testkit::main(&[&cluster_histogram_kernels::ClusterHistogram], &[&KERNELS])
}
