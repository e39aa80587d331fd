//! What the first product of a process costs beyond the creation of the context: planning, loading kernels, allocating, the product.
//! Each shape in a process of its own, without the driver's cache of compiled kernels. Needs nothing at run time but the driver, so
//! that it can be carried to a machine without Rust.
//!
//! ```text
//! TILEWRIGHT_CUBINS=sm_90a cargo build --release -p tests --bin first_call
//! target/release/first_call 512x512x512 8192x8192x8192 --precision fp32
//! ```

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use rand::{RngExt, SeedableRng};
use tilewright::{Device, DeviceMatrix, Error, Order, Orders, Precision};

/// What the first product of a process costs beyond the creation of the context
#[derive(Parser)]
#[command(name = "first_call")]
struct Arguments {
    /// The sizes of products: m, n and k, each in a process of its own
    #[arg(value_name = "MxNxK", required = true, value_parser = parse_sizes)]
    sizes: Vec<[usize; 3]>,

    /// The precision
    #[arg(long, default_value_t = Precision::Fp32)]
    precision: Precision,

    /// How A and B are stored: nn, nt, tn or tt
    #[arg(long, default_value_t = Orders::NN)]
    layout: Orders,

    /// Let the driver take kernels that it has compiled before from its cache
    #[arg(long)]
    with_cache: bool,

    /// Measure in this process
    #[arg(long, hide = true)]
    here: bool,
}

fn parse_sizes(text: &str) -> Result<[usize; 3], String> {
    let numbers = text.split('x').map(|number| number.parse().map_err(|_| format!("`{number}` is no number")));
    let numbers: Vec<usize> = numbers.collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|_| "three numbers are wanted: 512x512x512".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result =
        if arguments.here { measure(&arguments).map_err(|error| error.to_string()) } else { in_processes(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures each product in a process of its own.
fn in_processes(arguments: &Arguments) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program is nowhere to be found: {error}"))?;
    for [m, n, k] in &arguments.sizes {
        let mut command = Command::new(&program);
        command.args(["--here", &format!("{m}x{n}x{k}")]);
        command.args(["--precision", &arguments.precision.to_string(), "--layout", &arguments.layout.to_string()]);
        if !arguments.with_cache {
            command.env("CUDA_CACHE_DISABLE", "1");
        }
        let status = command.status().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
        if !status.success() {
            return Err(format!("the product of {m}x{n}x{k} failed ({status})"));
        }
    }
    Ok(())
}

/// Measures one product, which has to be the first of this process.
fn measure(arguments: &Arguments) -> Result<(), Error> {
    let [m, n, k] = arguments.sizes[0];
    let start = Instant::now();
    let device = Device::cuda(0)?;
    let opened = start.elapsed();
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let mut matrix = |rows: usize, columns: usize, order: Order| {
        let numbers: Vec<f32> = (0..rows * columns).map(|_| random.random_range(-1.0..1.0)).collect();
        let [_, leading_dimension] = order.lines(rows, columns);
        DeviceMatrix::new(device.upload(&numbers)?, rows, columns, order.strides(leading_dimension, 1))
    };
    let a = matrix(m, k, arguments.layout.a)?;
    let b = matrix(k, n, arguments.layout.b)?;
    let mut c = matrix(m, n, Order::RowMajor)?;
    device.synchronize()?;
    let mut product = || -> Result<Duration, Error> {
        let start = Instant::now();
        tilewright::multiply(&device, arguments.precision, 1.0, &a, &b, 0.0, &mut c)?;
        device.synchronize()?;
        Ok(start.elapsed())
    };
    let (first, second) = (product()?, product()?);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{m}x{n}x{k} {} {}: first product {:.1} ms, second {:.2} ms; before them the context in {:.0} ms",
        arguments.layout,
        arguments.precision,
        ms(first),
        ms(second),
        ms(opened)
    );
    for kernel in device.loaded_kernels() {
        let from = match kernel.cubin {
            Some(arch) => format!("machine code for {arch}"),
            None => format!("PTX for {}", kernel.arch),
        };
        println!("    {} from {from}: {:.1} ms", kernel.name, ms(kernel.load_time));
    }
    Ok(())
}
