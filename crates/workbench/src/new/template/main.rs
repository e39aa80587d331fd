//! Runs the operations, checks and measures them: `cargo run --release -- --help`.

use std::process::ExitCode;

use runtime::KernelSet;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    // Name further operations here.
    testkit::main(&[&{{crate}}_kernels::{{Operation}}], &[&KERNELS])
}
