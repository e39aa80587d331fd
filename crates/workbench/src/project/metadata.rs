//! What cargo says of a workspace, and what of it matters here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::cargo;
use crate::nearest::{Kind, unknown};

/// A workspace.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
    pub(super) target_directory: PathBuf,
    workspace_root: PathBuf,
    #[serde(default)]
    metadata: Option<Said>,
}

/// A package of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
    #[serde(default)]
    default_run: Option<String>,
    #[serde(default)]
    metadata: Option<Said>,
}

#[derive(Clone, Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// What manifests have under `metadata`.
#[derive(Clone, Debug, Default, Deserialize)]
struct Said {
    #[serde(default)]
    tilewright: Option<OfTilewright>,
}

/// `[package.metadata.tilewright]`, or of the workspace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfTilewright {
    /// The package with the kernels.
    pub(super) kernels: Option<String>,
    /// The package with the program.
    pub(super) program: Option<String>,
    /// Other workspaces, by directories from the root of this one; the last part may be `*`.
    #[serde(default)]
    also: Vec<String>,
}

impl Package {
    fn depends_on(&self, name: &str, kind: Option<&str>) -> bool {
        self.dependencies.iter().any(|dependency| dependency.name == name && dependency.kind.as_deref() == kind)
    }

    /// Its build script gives the host's compile the digest of its kernels.
    fn has_kernels(&self) -> bool {
        self.depends_on("tilewright-cuda-std", None) && self.depends_on("tilewright-kernel-digest", Some("build"))
    }

    /// It has a program, and it is clear which.
    fn is_program(&self) -> bool {
        let programs = self.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "bin")).count();
        self.depends_on("tilewright-testkit", None) && (programs == 1 || self.default_run.is_some())
    }

    pub(super) fn directory(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }

    /// The directories of the packages that it is built with.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.dependencies.iter().filter(|dependency| dependency.kind.is_none()).filter_map(|it| it.path.as_ref())
    }
}

impl Metadata {
    /// That of the workspace that a manifest belongs to, or the current directory.
    pub(super) fn of(manifest_path: Option<&Path>) -> anyhow::Result<Self> {
        let mut cargo = Command::new(cargo());
        cargo.args(["metadata", "--format-version=1", "--no-deps"]);
        if let Some(path) = manifest_path {
            cargo.arg("--manifest-path").arg(path);
        }
        let output = cargo.output().context("cannot run cargo")?;
        let message = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let message = message.trim().trim_start_matches("error: ");
            bail!(
                "{message}\n`cargo tilewright` works in a crate of kernels, or in one that depends on it: `cargo tilewright new DIR` writes one"
            );
        }
        serde_json::from_slice(&output.stdout).context(
            "cargo metadata says something that cannot be read; `[package.metadata.tilewright]` has `kernels` and `program`, that of \
             the workspace also `also`",
        )
    }

    /// The package whose directory is the nearest one above a directory.
    pub(super) fn package_at(&self, here: &Path) -> Option<&Package> {
        let around = self.packages.iter().filter(|package| here.starts_with(package.directory()));
        around.max_by_key(|package| package.directory().components().count())
    }

    /// What the package that the user is in, or else the workspace, says.
    pub(super) fn named(&self, here: &Path, what: impl Fn(&OfTilewright) -> Option<&str>) -> Option<&str> {
        let own = self.package_at(here).and_then(|package| package.metadata.as_ref());
        let said = [own, self.metadata.as_ref()].into_iter().flatten();
        said.filter_map(|said| said.tilewright.as_ref()).find_map(what)
    }

    /// The directories of all packages that one is built with.
    pub(super) fn reached_from(&self, package: &Package) -> BTreeSet<PathBuf> {
        let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
        let mut left: Vec<PathBuf> = package.paths().cloned().collect();
        while let Some(path) = left.pop() {
            if reached.insert(path.clone()) {
                let next = self.packages.iter().find(|package| package.directory() == path);
                left.extend(next.into_iter().flat_map(Package::paths).cloned());
            }
        }
        reached
    }

    /// The crates of kernels, each with the workspace that it is built in: those of this one, those outside that its packages depend on,
    /// and those of the workspaces that it names.
    pub(super) fn kernel_crates(&self, here: &Path) -> anyhow::Result<Vec<(Package, Self)>> {
        let mut crates = Vec::new();
        for package in self.packages.iter().filter(|package| package.has_kernels()) {
            crates.push((package.clone(), self.workspace_of(package)?));
        }
        if crates.is_empty() {
            let own = self.package_at(here).into_iter().chain(&self.packages);
            let outside: BTreeSet<&PathBuf> =
                own.flat_map(Package::paths).filter(|path| !path.starts_with(&self.workspace_root)).collect();
            for path in outside {
                let other = Self::of(Some(&path.join("Cargo.toml")))?;
                let found = other.packages.iter().find(|package| package.directory() == path && package.has_kernels());
                crates.extend(found.map(|package| (package.clone(), self.clone())));
            }
        }
        for directory in self.also()? {
            let other = Self::of(Some(&directory.join("Cargo.toml")))?;
            let new: Vec<_> = other.packages.iter().filter(|package| package.has_kernels()).cloned().collect();
            let is_known =
                |package: &Package| crates.iter().any(|(known, _)| known.manifest_path == package.manifest_path);
            let new: Vec<_> = new.into_iter().filter(|package| !is_known(package)).collect();
            crates.extend(new.into_iter().map(|package| (package, other.clone())));
        }
        Ok(crates)
    }

    /// A workspace of its own between this one's root and a package, to which cargo counts the package when it is asked from there.
    fn workspace_of(&self, package: &Package) -> anyhow::Result<Self> {
        let between = package.directory().ancestors().take_while(|directory| *directory != self.workspace_root);
        let is_root = |directory: &&Path| {
            let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
            manifest.lines().any(|line| line.trim() == "[workspace]")
        };
        match between.filter(|_| package.directory().starts_with(&self.workspace_root)).find(is_root) {
            Some(directory) => Self::of(Some(&directory.join("Cargo.toml"))),
            None => Ok(self.clone()),
        }
    }

    /// The other workspaces that this one names.
    fn also(&self) -> anyhow::Result<Vec<PathBuf>> {
        let said = self.metadata.as_ref().and_then(|said| said.tilewright.as_ref());
        let mut found = Vec::new();
        for pattern in said.into_iter().flat_map(|said| &said.also) {
            let Some(parent) = pattern.strip_suffix("/*") else {
                found.push(self.workspace_root.join(pattern));
                continue;
            };
            let directory = self.workspace_root.join(parent);
            let entries = std::fs::read_dir(&directory);
            let entries = entries.with_context(|| {
                format!(
                    "`[workspace.metadata.tilewright] also` names {pattern}, and {} cannot be read",
                    directory.display()
                )
            })?;
            let mut entries: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
            entries.retain(|path| path.join("Cargo.toml").is_file());
            entries.sort();
            found.extend(entries);
        }
        Ok(found)
    }

    /// The package with the program over a crate's kernels; none, if no package with a program depends on it.
    pub(super) fn program_of(&self, kernels: &Package, here: &Path) -> anyhow::Result<Option<&Package>> {
        let said = kernels.metadata.as_ref().and_then(|said| said.tilewright.as_ref());
        let named = said.and_then(|said| said.program.as_deref());
        if let Some(name) = named.or_else(|| self.named(here, |said| said.program.as_deref())) {
            let found = self.packages.iter().find(|package| package.name == name);
            let names: Vec<_> = self.packages.iter().map(|package| package.name.clone()).collect();
            ensure!(found.is_some(), "{}", unknown(Kind::Program, name, &names));
            return Ok(found);
        }
        let depends = |package: &&Package| {
            package.is_program()
                && (package.manifest_path == kernels.manifest_path
                    || self.reached_from(package).contains(kernels.directory()))
        };
        let programs: Vec<_> = self.packages.iter().filter(depends).collect();
        let own = self.package_at(here);
        if let Some(own) = own.filter(|own| programs.iter().any(|program| program.manifest_path == own.manifest_path)) {
            return Ok(Some(own));
        }
        let direct = |package: &&&Package| package.paths().any(|path| path == kernels.directory());
        let directly: Vec<&Package> = programs.iter().filter(direct).copied().collect();
        match (&programs[..], &directly[..]) {
            ([], _) => Ok(None),
            ([only], _) | (_, [only]) => Ok(Some(only)),
            _ => {
                let names: Vec<_> = programs.iter().map(|package| package.name.as_str()).collect();
                bail!(
                    "several packages have a program over the kernels of `{}`: {}. Go into one of them, or say which by \
                     `[package.metadata.tilewright] program = \"…\"` in {}",
                    kernels.name,
                    names.join(", "),
                    kernels.manifest_path.display()
                )
            }
        }
    }
}
