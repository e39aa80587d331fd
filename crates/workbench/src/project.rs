//! The crate that the user is in: its kernels, and its program.
//!
//! ```text
//!  mine/            depends on testkit, has one binary      the program
//!  mine/kernels/    depends on cuda_std and kernel_digest   the kernels, of which the program depends
//! ```
//!
//! Where a workspace has several of either, a kernel's name decides, by the sources that have it; then the package that the user is in; then
//! what manifests say:
//!
//! ```toml
//! [package.metadata.tilewright]     # of a package that users are often in
//! kernels = "gpu-kernels"           # the package with its kernels
//! program = "host"                  # the package with the program over their operations
//!
//! [workspace.metadata.tilewright]   # the same for all packages, and other workspaces that a kernel's name is looked for in
//! also = ["examples/*"]
//! ```

mod metadata;
pub(crate) mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::Deserialize;

use crate::Place;
use crate::nearest::{Kind, unknown};
use metadata::{Metadata, Package};

/// A crate of kernels and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The directory of the crate of kernels.
    pub kernels: PathBuf,
    /// The manifest of the program's package, if any depends on the kernels.
    pub program: Option<PathBuf>,
    /// Where cargo keeps what it builds of them.
    pub target_dir: PathBuf,
    /// The directories of the packages that both are made of: those of the workspace, and those outside that they name by a path.
    pub packages: Vec<PathBuf>,
}

/// An operation of the program, as its task `list --json` names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OperationEntry {
    /// Its name.
    pub name: String,
    /// What it is, in a line.
    pub idea: String,
    /// The names of its sizes.
    pub sizes: Vec<String>,
    /// The kernels that it launches.
    pub kernels: Vec<String>,
}

impl Project {
    /// Finds the project that a directory belongs to.
    ///
    /// # Errors
    /// If cargo knows no package there, if none of its workspace has kernels, or if several have and nothing says which is meant.
    pub fn find(place: &Place) -> anyhow::Result<Self> {
        let metadata = Metadata::of(place.manifest_path.as_deref())?;
        let here = place.directory()?;
        Self::among(&metadata, &here, None)
    }

    /// Finds the project that has a kernel: the one that a directory belongs to, or another of its workspace.
    ///
    /// # Errors
    /// Those of [`find`](Self::find). If no source has a kernel of that name, with the three names that are nearest.
    pub fn with_kernel(place: &Place, kernel: &str) -> anyhow::Result<Self> {
        let metadata = Metadata::of(place.manifest_path.as_deref())?;
        let here = place.directory()?;
        Self::among(&metadata, &here, Some(kernel))
    }

    fn among(metadata: &Metadata, here: &Path, kernel: Option<&str>) -> anyhow::Result<Self> {
        let crates = metadata.kernel_crates(here)?;
        let Some(kernel) = kernel.filter(|_| !crates.is_empty()) else {
            return Self::of(&chosen(&crates, metadata, here)?.0, here);
        };
        let has = |(package, workspace): &(Package, Metadata)| {
            sources::Sources::read(package.directory()).has(kernel).map(|how| (how, package.clone(), workspace.clone()))
        };
        let mut found: Vec<_> = crates.iter().filter_map(has).collect();
        if found.is_empty() {
            let known = crates.iter().flat_map(|(package, _)| sources::Sources::read(package.directory()).kernels());
            bail!(unknown(Kind::Kernel, kernel, &known.collect::<Vec<_>>()));
        }
        // An entry point by that name, rather than a word of a macro's.
        let best = found.iter().map(|(how, ..)| *how).max();
        found.retain(|(how, ..)| Some(*how) == best);
        let found: Vec<_> = found.into_iter().map(|(_, package, workspace)| (package, workspace)).collect();
        let (choice, _) = chosen(&found, metadata, here).with_context(|| format!("several crates have `{kernel}`"))?;
        Self::of(&choice, here)
    }

    /// The project of a crate of kernels.
    fn of((package, workspace): &(Package, Metadata), here: &Path) -> anyhow::Result<Self> {
        let program = workspace.program_of(package, here)?;
        let of =
            |package: &Package| [package.directory().to_owned()].into_iter().chain(workspace.reached_from(package));
        let packages: BTreeSet<PathBuf> = of(package).chain(program.into_iter().flat_map(of)).collect();
        Ok(Self {
            kernels: package.directory().to_owned(),
            program: program.map(|program| program.manifest_path.clone()),
            target_dir: workspace.target_directory.clone(),
            packages: packages.into_iter().collect(),
        })
    }

    /// The kernels' names that their sources have: those that a macro makes are not all among them.
    pub fn kernel_names(&self) -> Vec<String> {
        sources::Sources::read(&self.kernels).kernels()
    }

    /// The manifest of the program's package.
    ///
    /// # Errors
    /// If there is no program.
    pub fn program_manifest(&self) -> anyhow::Result<&Path> {
        self.program.as_deref().ok_or_else(|| {
            anyhow!(
                "{} has kernels, but no package with a program over operations depends on it: one with a binary whose `main` calls \
                 `testkit::main`. `cargo tilewright new --help` writes such a crate; if there is one, name it in \
                 `[package.metadata.tilewright] program = \"…\"` of the kernels' Cargo.toml",
                self.kernels.display()
            )
        })
    }

    /// The program, to be run with these arguments: cargo builds it first.
    ///
    /// # Errors
    /// If there is no program.
    pub fn program(&self, arguments: &[String]) -> anyhow::Result<Command> {
        let mut command = Command::new(cargo());
        command.args(["run", "--quiet", "--manifest-path"]).arg(self.program_manifest()?).arg("--").args(arguments);
        Ok(command)
    }

    /// The operations of the program, which cargo builds first.
    ///
    /// # Errors
    /// If there is no program, if it does not build, or says nothing that can be read.
    pub fn operations(&self) -> anyhow::Result<Vec<OperationEntry>> {
        let output = self.program(&["list".to_owned(), "--json".to_owned()])?.output().context("cannot run cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        operations_of(&output.stdout)
    }
}

/// What `list --json` says: a line for each operation.
///
/// # Errors
/// If a line cannot be read.
pub(crate) fn operations_of(stdout: &[u8]) -> anyhow::Result<Vec<OperationEntry>> {
    let lines = stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let entry = |line: &[u8]| {
        serde_json::from_slice(line)
            .with_context(|| format!("`list --json` of the program says {}", String::from_utf8_lossy(line)))
    };
    lines.map(entry).collect()
}

/// The crate of kernels that is meant, and whether the user is in it or in what depends on it.
fn chosen(
    crates: &[(Package, Metadata)],
    metadata: &Metadata,
    here: &Path,
) -> anyhow::Result<((Package, Metadata), bool)> {
    if let [only] = crates {
        return Ok((only.clone(), true));
    }
    ensure!(
        !crates.is_empty(),
        "no package of this workspace has kernels (one that depends on `cuda_std`, and for its build script on `kernel_digest`): \
         `cargo tilewright new DIR` writes one"
    );
    let named = metadata.named(here, |said| said.kernels.as_deref());
    if let Some(name) = named {
        let found = crates.iter().find(|(package, _)| package.name == name);
        return found.map(|found| (found.clone(), true)).ok_or_else(|| {
            let names: Vec<_> = crates.iter().map(|(package, _)| package.name.clone()).collect();
            anyhow!(unknown(Kind::KernelCrate, name, &names))
        });
    }
    // The package that the user is in, or the kernels of the program that the user is in.
    let own = metadata.package_at(here);
    let is_own =
        |(package, _): &&(Package, Metadata)| own.is_some_and(|own| own.manifest_path == package.manifest_path);
    if let Some(found) = crates.iter().find(is_own) {
        return Ok((found.clone(), true));
    }
    let used: Vec<_> = own.into_iter().flat_map(|own| metadata.reached_from(own)).collect();
    let is_used = |(package, _): &&(Package, Metadata)| used.iter().any(|used| used == package.directory());
    let of_own: Vec<_> = crates.iter().filter(is_used).collect();
    if let [only] = of_own[..] {
        return Ok((only.clone(), true));
    }
    let names: Vec<_> = crates.iter().map(|(package, _)| package.name.as_str()).collect();
    bail!(
        "several packages have kernels: {}. Name a kernel, go into one of them, or say which by `--manifest-path`, or by \
         `[workspace.metadata.tilewright] kernels = \"…\"` in the workspace's Cargo.toml",
        names.join(", ")
    )
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

#[cfg(test)]
mod tests;
