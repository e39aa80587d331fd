//! `cargo xtask coverage`: which lines of the library and of the executor the tests run, on a machine without a GPU.

use std::env;

use anyhow::{Context, bail};
use cuda_builder::toolchain::Toolchain;

use crate::workspace::{command, first_line, kernel_crate, target_dir};

/// The options of `coverage`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Also write the lines of each file, with how often each ran, as a web page into the target directory.
    #[arg(long)]
    html: bool,
    /// Arguments for `cargo test` in place of those for all packages' tests but the longest, such as `-p host`.
    #[arg(last = true)]
    tests: Vec<String>,
}

/// What is not measured: kernels are measured by what they compute, and these are tests and tasks, or run on a GPU alone.
const LEFT_OUT: &str = "/(tests|xtask|python|fuzz|gpu-kernels|crates/blocks|crates/cuda-(builder|driver|std-macros)|crates/find_cuda_helper)/|tests\\.rs$";

/// Not run, unless asked for: where everything is counted it does not end in an hour, and what it runs of this code others run, too.
const TOO_LONG: &str = "every_kernel_computes_the_products_of_the_suite";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if first_line(command("cargo", &["llvm-cov", "--version"])).is_none() {
        bail!("cargo-llvm-cov is missing: `cargo install cargo-llvm-cov --locked` gets it");
    }
    let mut run = command("cargo", &["llvm-cov", "test", "--no-fail-fast", "--ignore-filename-regex", LEFT_OUT]);
    run.env("CARGO_LLVM_COV_TARGET_DIR", target_dir().join("coverage"));
    // All threads count in the same places: two of them take four times as long as one.
    run.envs([("RUST_TEST_THREADS", "1"), ("RAYON_NUM_THREADS", "1")]);
    // rustup's component, or whatever LLVM the kernels are compiled with: it reads what rustc of the same LLVM has written.
    if env::var_os("LLVM_COV").is_none()
        && let Ok(toolchain) = Toolchain::find(&kernel_crate())
    {
        run.env("LLVM_COV", toolchain.llvm_bin.join("llvm-cov"));
        run.env("LLVM_PROFDATA", toolchain.llvm_bin.join("llvm-profdata"));
    }
    if arguments.html {
        run.arg("--html");
    }
    match &arguments.tests[..] {
        [] => run.args(["--workspace", "--", "--skip", TOO_LONG]),
        tests => run.args(tests),
    };
    let status = run.status().context("cargo-llvm-cov cannot be run")?;
    if status.success() {
        Ok(())
    } else {
        bail!("there are tests that failed, or tools of LLVM that are missing: see above")
    }
}
