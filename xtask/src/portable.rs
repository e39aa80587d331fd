//! `cargo xtask portable`: whether what needs no GPU compiles for other systems than this one.
//!
//! The executor, its checks and the workbench are for laptops, too. Nothing is run: cargo type-checks the crates for each system, which needs
//! the standard library for it, from rustup, and no linker. What differs between systems is in few modules: `system` in `crates/testkit`,
//! `executor/stacks` and `executor/overflow` in `crates/cuda-std`.

use anyhow::{Context as _, ensure};

use crate::workspace::{cargo, command, target_dir};

/// The options of `portable`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The systems, as rustc names them.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', default_values = TARGETS)]
    target: Vec<String>,
}

/// Where authors of kernels sit.
const TARGETS: [&str; 3] = ["aarch64-unknown-linux-gnu", "aarch64-apple-darwin", "x86_64-pc-windows-msvc"];

/// What has to work there, and with it all that it depends on.
const PACKAGES: [&str; 3] = ["tilewright-blocks", "tilewright-testkit", "tilewright-workbench"];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    get(&arguments.target)?;
    let mut clippy = cargo(&["clippy"]);
    for target in &arguments.target {
        clippy.args(["--target", target]);
    }
    for package in PACKAGES {
        clippy.args(["--package", package]);
    }
    // No crate here has kernels to be compiled, which is for a program's build.
    clippy.arg("--target-dir").arg(target_dir().join("portable")).args(["--", "-D", "warnings"]);
    let status = clippy.status().context("cargo cannot be run")?;
    ensure!(status.success(), "the crates do not compile for another system: see above");
    println!("{} compile for {}", PACKAGES.join(", "), arguments.target.join(", "));
    Ok(())
}

/// Has rustup get the standard library for other systems. What is there is not fetched again.
fn get(targets: &[String]) -> anyhow::Result<()> {
    let mut add = command("rustup", &["target", "add"]);
    let status =
        add.args(targets).status().context("rustup cannot be run, which has the standard library for other systems")?;
    ensure!(status.success(), "rustup cannot get the standard library for {}", targets.join(", "));
    Ok(())
}

/// Why this machine cannot do it, if it cannot.
pub(crate) fn obstacle() -> Option<String> {
    get(&TARGETS.map(str::to_owned)).err().map(|error| format!("{error:#}"))
}
