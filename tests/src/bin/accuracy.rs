//! Prints the errors of each scheme on inputs that are made to show them, on the executor or on a GPU: `tests::accuracy`. Needs nothing
//! at run time but the driver, and cuBLAS if there is one.

use clap::Parser;
use cuda_std::executor::Checks;
use host::baseline::CuBlas;
use tests::Error;
use tests::accuracy::{KERNELS, Way, markdown};
use tilewright::{Device, kernels};

/// Prints the errors of each scheme on inputs that are made to show them.
#[derive(Parser)]
struct Arguments {
    /// Compute on the first GPU, and by cuBLAS, too, rather than on the executor
    #[arg(long)]
    gpu: bool,

    /// A kernel to run; may be repeated [default: one of each scheme]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// The terms of the sums; may be repeated
    #[arg(long, value_name = "NUMBER", default_values_t = [2, 8, 64, 512, 4096])]
    k: Vec<usize>,

    /// From how many seeds inputs are made
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    seeds: u64,
}

fn main() -> Result<(), Error> {
    let Arguments { gpu, kernel, k, seeds } = Arguments::parse();
    let device = if gpu { Device::cuda(0)? } else { Device::cpu(Checks::Bounds) };
    let blas = if gpu { CuBlas::open(&device).ok() } else { None };
    let names = if kernel.is_empty() { KERNELS.map(str::to_owned).to_vec() } else { kernel };
    let mut ways = Vec::new();
    for name in &names {
        ways.push(Way::Kernel(kernels::find(name)?));
    }
    ways.extend(blas.as_ref().map(Way::CuBlas));
    println!("# Errors by inputs, on {}\n", device.name());
    println!("The largest error of an element of 24×20 products, in units of 2⁻²⁴ of its Σ|a||b|, over {seeds} seeds.");
    print!("{}", markdown(&device, &ways, &k, seeds)?);
    Ok(())
}
