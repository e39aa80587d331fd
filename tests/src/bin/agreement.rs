//! Has every kernel compute generated products on a GPU and on the executor, and compares them: `tests::agreement`. Needs nothing at
//! run time but the driver, so that it can be carried to a machine without Rust.

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use cuda_std::executor::Checks;
use rayon::prelude::*;
use tests::Error;
use tests::agreement::{self, Agreement};
use tilewright::{Device, kernels};

/// Has every kernel compute generated products on a GPU and on the executor, and compares them.
#[derive(Parser)]
struct Arguments {
    /// A kernel to run; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// How many products each kernel computes
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    products: usize,

    /// How often the GPU computes each product: with the same bits every time, but where blocks add by atomic operations
    #[arg(long, value_name = "COUNT", default_value = "2")]
    times: NonZero<usize>,

    /// What the products are generated from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Compare the executor with itself, where there is no GPU
    #[arg(long)]
    without_gpu: bool,

    /// Where to write `agreement.md` and `agreement.json`
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Error> {
    let Arguments { kernel: names, products, times, seed, without_gpu, output } = Arguments::parse();
    let executor = Device::cpu(Checks::Bounds);
    let gpu = if without_gpu { executor.clone() } else { Device::cuda(0)? };
    let wanted = match names.is_empty() {
        true => kernels::ALL.to_vec(),
        false => names.iter().map(|name| kernels::find(name)).collect::<Result<_, _>>()?,
    };
    let agreements = Mutex::new(Vec::new());
    wanted.par_iter().enumerate().for_each(|(index, kernel)| {
        let agreement = agreement::compare(&gpu, &executor, kernel, products, times.get(), seed + index as u64);
        let Agreement { kernel, products, elements, same_bits, unsteady, difference, .. } = &agreement;
        println!(
            "{kernel}: {products} products, {same_bits} of {elements} elements with the same bits, {unsteady} unsteady, difference \
             {difference:.2e}{}",
            if agreement.holds() { "" } else { ": FAILED" }
        );
        agreements.lock().expect("no kernel panics").push((index, agreement));
    });
    let mut agreements = agreements.into_inner().expect("no kernel panics");
    agreements.sort_by_key(|(index, _)| *index);
    let agreements: Vec<_> = agreements.into_iter().map(|(_, agreement)| agreement).collect();
    if let Some(directory) = output {
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("agreement.md"), agreement::markdown(&agreements, &gpu.name(), seed))?;
        fs::write(directory.join("agreement.json"), serde_json::to_string_pretty(&agreements)?)?;
    }
    let all_hold = agreements.iter().all(Agreement::holds);
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
