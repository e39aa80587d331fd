//! The crate that the user is in: its kernels, and its program.
//!
//! ```text
//!  mine/            depends on testkit, has a binary        the program
//!  mine/kernels/    depends on cuda_std and kernel_digest   the kernels, of which the program depends
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::Place;

/// What cargo says of the user's workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Clone, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Clone, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    fn depends_on(&self, name: &str, kind: Option<&str>) -> bool {
        self.dependencies.iter().any(|dependency| dependency.name == name && dependency.kind.as_deref() == kind)
    }

    /// Its build script gives the host's compile the digest of its kernels.
    fn has_kernels(&self) -> bool {
        self.depends_on("tilewright-cuda-std", None) && self.depends_on("tilewright-kernel-digest", Some("build"))
    }

    fn is_program(&self) -> bool {
        self.depends_on("tilewright-testkit", None)
            && self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "bin"))
    }

    fn directory(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

/// A crate of kernels and its program.
#[derive(Clone, Debug)]
pub struct Project {
    /// The directory of the crate of kernels.
    pub kernels: PathBuf,
    /// The manifest of the program's package.
    pub program: PathBuf,
    /// Where cargo keeps what it builds of them.
    pub target_dir: PathBuf,
}

impl Project {
    /// Finds the project that a directory belongs to.
    ///
    /// # Errors
    /// If cargo knows no package there, or none of its workspace has kernels, or none has a program over operations.
    pub fn find(place: &Place) -> anyhow::Result<Self> {
        let mut cargo = Command::new(cargo());
        cargo.args(["metadata", "--format-version=1", "--no-deps"]);
        if let Some(path) = &place.manifest_path {
            cargo.arg("--manifest-path").arg(path);
        }
        let output = cargo.output().context("cannot run cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).context("cargo metadata says nothing that can be read")?;
        Self::among(&metadata)
    }

    fn among(metadata: &Metadata) -> anyhow::Result<Self> {
        let one = |what: &str, found: Vec<&Package>| -> anyhow::Result<Package> {
            let names: Vec<_> = found.iter().map(|package| package.name.as_str()).collect();
            match found[..] {
                [package] => Ok(package.clone()),
                [] => anyhow::bail!("no package of this workspace has {what}: see `cargo tilewright new --help`"),
                _ => anyhow::bail!(
                    "several packages of this workspace have {what}: {}; say which by `--manifest-path`",
                    names.join(", ")
                ),
            }
        };
        let packages = &metadata.packages;
        let kernels = one("kernels", packages.iter().filter(|package| package.has_kernels()).collect())?;
        let program =
            one("a program over operations", packages.iter().filter(|package| package.is_program()).collect())?;
        Ok(Self {
            kernels: kernels.directory().to_owned(),
            program: program.manifest_path,
            target_dir: metadata.target_directory.clone(),
        })
    }

    /// The program, to be run with these arguments: cargo builds it first.
    ///
    /// # Errors
    /// None today.
    pub fn program(&self, arguments: &[String]) -> anyhow::Result<Command> {
        let mut command = Command::new(cargo());
        command.args(["run", "--quiet", "--manifest-path"]).arg(&self.program).arg("--").args(arguments);
        Ok(command)
    }
}

/// The cargo that runs this program.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
