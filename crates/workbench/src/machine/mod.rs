//! What is on this machine: the tools that compiling, looking at and measuring kernels need, and how to get those that are missing.
//!
//! In Tilewright's repository, `cargo xtask doctor` and `cargo xtask setup` are the same tasks. There NVIDIA's tools are put into the target
//! directory, elsewhere into the user's own.

pub(crate) mod doctor;
pub(crate) mod ncu;
pub mod python;
pub(crate) mod setup;

use std::path::{Path, PathBuf};
use std::process::Command;

use comfy_table::{ContentArrangement, Table, presets};

use crate::place::repository;

/// Whether the user is in this repository, and may want what only its own tasks need.
fn is_in_repository() -> bool {
    std::env::current_dir().is_ok_and(|directory| directory.starts_with(repository()))
}

/// A command that runs where the user is.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The first line that a program prints, or `None` if it cannot be run or fails.
pub fn first_line(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

/// The directory that pip puts NVIDIA's tools into: where [`CudaTool::find`](cuda_builder::inspect::CudaTool::find) looks for them.
fn tools_directory() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file()).map(Path::to_owned);
    match target.filter(|_| is_in_repository()) {
        Some(target) => Some(target.join("tools/cuda")),
        None => cuda_builder::inspect::user_tools(),
    }
}

/// Whether NVIDIA's driver is there: `libcuda.so.1`, or what `TILEWRIGHT_LIBCUDA` names. Whether it has a GPU, the program says.
pub fn has_driver() -> bool {
    let library = std::env::var_os("TILEWRIGHT_LIBCUDA").unwrap_or_else(|| "libcuda.so.1".into());
    // SAFETY: the driver's library is made to be loaded by any program; its initialisers run once, here at the latest.
    unsafe { libloading::Library::new(library) }.is_ok()
}

/// A table with a heading, without lines.
pub fn table<const N: usize>(heading: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(heading);
    table
}
