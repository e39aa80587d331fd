//! Shows what a crate outside the workspace has to write: see Cargo.toml.

use std::process::ExitCode;

use cuda_driver::{Error, Gpu};

fn main() -> ExitCode {
    match Gpu::open(0) {
        Ok(gpu) => println!("{}", gpu.properties().name),
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => println!("{error}"),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
