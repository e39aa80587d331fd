//! Where things are, and running other programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::Context;
pub(crate) use workbench::{first_line, table};

/// The repository's root: that of the checkout which cargo runs this program in, or which the current directory is in, since the program may have
/// been built elsewhere. Where neither is one, the checkout that it was built in.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let of_cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let starts = of_cargo.into_iter().chain(std::env::current_dir().ok());
        starts.filter_map(|start| checkout_of(&start)).next().unwrap_or_else(|| {
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace").to_owned()
        })
    });
    &ROOT
}

/// The checkout of this repository that a directory is in.
fn checkout_of(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().find(|ancestor| ancestor.join("xtask/src/workspace.rs").is_file()).map(Path::to_owned)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_is_found_from_a_directory_in_it_wherever_it_is() {
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(checkout_of(elsewhere.path()), None);
        let source = elsewhere.path().join("xtask/src");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("workspace.rs"), "").unwrap();
        assert_eq!(checkout_of(&source), Some(elsewhere.path().to_owned()));
        assert_eq!(root(), Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    }
}
