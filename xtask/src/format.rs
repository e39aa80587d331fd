//! `cargo xtask format`: rustfmt on every source file of the repository.
//!
//! `cargo fmt` follows `mod` declarations from the roots of the workspace's crates. So it does not see modules that a macro declares
//! (`operations!` in gpu-kernels), programs that tests compile, or crates outside of the workspace: the examples, fixtures.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::workspace::{command, root};

/// The options of `format`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; show what would change, and fail if there is anything.
    #[arg(long)]
    check: bool,
}

/// What is no Rust: templates before names are put in, and the lines of a source that a test shows.
const OTHERS: [&str; 2] = ["crates/workbench/src/new/template", "crates/workbench/src/trace/testdata"];

fn is_source(path: &Path) -> bool {
    !OTHERS.iter().any(|other| path.starts_with(other))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut rustfmt = command("rustfmt", &["--edition", "2024"]);
    if arguments.check {
        rustfmt.arg("--check");
    }
    let status = rustfmt.args(sources()?).status().context("rustfmt cannot be run")?;
    ensure!(status.success(), "rustfmt {status}: `cargo xtask format` formats all files");
    Ok(())
}

/// The source files that are committed or may be, from the repository's root.
fn sources() -> anyhow::Result<Vec<PathBuf>> {
    let mut list = command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.rs"]);
    let output = list.output().context("git cannot be run, which knows the repository's files")?;
    ensure!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("a file whose name is not UTF-8")?;
    let paths = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    // Git also lists what was deleted and not committed.
    Ok(paths.filter(|path| is_source(path) && root().join(path).is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cargo_fmt_does_not_see_are_among_the_sources() {
        let sources = sources().expect("the repository's files");
        for path in ["gpu-kernels/src/rms_norm.rs", "host/src/baseline/fake_cublas.rs", "examples/01-axpy/src/main.rs"]
        {
            assert!(sources.contains(&PathBuf::from(path)), "{path}");
        }
        assert!(sources.iter().all(|path| is_source(path)));
        assert!(!is_source(Path::new("crates/workbench/src/new/template/main.rs")));
    }
}
