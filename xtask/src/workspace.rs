//! Where things are, and running other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
pub(crate) use workbench::{first_line, table};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace")
}

/// The crate whose kernels the tasks build unless told otherwise.
pub(crate) fn kernel_crate() -> PathBuf {
    root().join("gpu-kernels")
}

/// The target directory that this program was built into: the one that bears cargo's cache tag.
pub(crate) fn target_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    target.map_or_else(|| root().join("target"), Path::to_owned)
}

/// Where results of NVIDIA's tools are kept; the tests keep theirs there too.
pub(crate) fn examinations() -> PathBuf {
    target_dir().join("cuda-builder/examined")
}

/// The triple of the machine that cargo builds for unless told otherwise.
pub(crate) fn host_triple() -> anyhow::Result<String> {
    first_line(command("rustc", &["--print", "host-tuple"])).context("rustc does not say what machine this is")
}

/// A command that runs in the repository's root.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs this task.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command(&cargo, arguments)
}
