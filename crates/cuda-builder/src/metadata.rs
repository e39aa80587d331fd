//! What cargo says of a package.

use std::path::Path;

use serde_json::Value;

use crate::toolchain::Toolchain;
use crate::{Error, environment};

/// `cargo metadata` of the package in `crate_dir`, with these options.
pub(crate) fn metadata(toolchain: &Toolchain, crate_dir: &Path, options: &[&str]) -> Result<Value, Error> {
    let mut command = environment::command(&toolchain.cargo);
    command
        .args(["metadata", "--format-version=1", "--manifest-path"])
        .arg(crate_dir.join("Cargo.toml"))
        .args(options)
        .current_dir(crate_dir)
        .env("RUSTC", &toolchain.rustc)
        // Here the question is what the caller's cargo uses.
        .envs(std::env::var_os("CARGO_TARGET_DIR").map(|directory| ("CARGO_TARGET_DIR", directory)));
    let output = command.output().map_err(Error::io("run", &toolchain.cargo))?;
    match serde_json::from_slice(&output.stdout) {
        Ok(metadata) if output.status.success() => Ok(metadata),
        _ => Err(Error::Tool {
            tool: format!("{} metadata", toolchain.cargo.display()),
            status: output.status,
            place: None,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            function: None,
            log: None,
        }),
    }
}
