//! Functions of numbers: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::iter;
use std::process::ExitCode;

use runtime::KernelSet;
use testkit::Operation;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    let in_loops = functions_kernels::IN_LOOPS.iter().map(|operation| operation as &dyn Operation);
    let operations: Vec<&dyn Operation> =
        iter::once(&functions_kernels::Functions as &dyn Operation).chain(in_loops).collect();
    testkit::main(&operations, &[&KERNELS])
}
