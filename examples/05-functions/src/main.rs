//! Functions of numbers: run, check, measure. `cargo run --release -- --help` lists what it can do.

use std::process::ExitCode;

use functions_kernels::{Approximations, Doubles, Functions, Parts};
use runtime::KernelSet;
use testkit::Operation;

static KERNELS: KernelSet = runtime::kernel_set!("kernels");

fn main() -> ExitCode {
    let in_loops = functions_kernels::IN_LOOPS.iter().map(|operation| operation as &dyn Operation);
    let functions: [&dyn Operation; 4] = [&Functions, &Parts, &Doubles, &Approximations];
    let operations: Vec<&dyn Operation> = functions.into_iter().chain(in_loops).collect();
    testkit::main(&operations, &[&KERNELS])
}
