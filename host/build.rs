//! Notes the commit that the program is built from.

use std::path::Path;
use std::process::Command;

fn main() {
    note_commit();
}

/// Sets `TILEWRIGHT_COMMIT`, where this is a checkout that git knows.
fn note_commit() {
    // Whatever of the program changes may make the checkout differ from the commit.
    for source in ["src", "build.rs", "Cargo.toml", "../Cargo.lock", "../crates", "../gpu-kernels/src"] {
        println!("cargo::rerun-if-changed={source}");
    }
    let Some(directory) = git(&["rev-parse", "--absolute-git-dir"]) else { return };
    // A line is added with every commit and checkout. (A path that does not exist would run this script every time.)
    let log = Path::new(&directory).join("logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    let dirty = git(&["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])
        .is_none_or(|changes| !changes.is_empty());
    println!("cargo::rustc-env=TILEWRIGHT_COMMIT={commit}{}", if dirty { "-dirty" } else { "" });
}

/// What a git command says, if git is there and the command succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
