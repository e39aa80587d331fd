//! A digest of everything that a crate of kernels is compiled from.
//!
//! The host's half of a kernel (the arguments of a launch, the block, the grid) and its PTX come out of two compiles of the same
//! sources. Each compile can name the digest of what it was made from, and a program can see that they belong together:
//!
//! ```text
//!  build script of the kernel crate ── emit() ──▶ env!("TILEWRIGHT_KERNEL_DIGEST")     in the host's compile
//!  cuda_builder::CudaBuilder ───────── of()  ───▶ Build::digest, PTX, embedded file    beside the PTX
//! ```
//!
//! A kernel crate's build script is one line:
//!
//! ```no_run
//! # use tilewright_kernel_digest as kernel_digest;
//! fn main() {
//!     kernel_digest::emit();
//! }
//! ```
//!
//! # What is in it
//!
//! - of the crate and of each path dependency that it has at run time, on whatever target but hosts alone: name, version, edition, dependencies,
//!   `Cargo.toml`, `build.rs`, and every file beside and below the root of its library;
//! - of each dependency from a registry or from git: name, version, source and checksum, as in `Cargo.lock`;
//! - the crate's enabled features;
//! - the profile that kernels are built with.
//!
//! Not in it: the toolchain, which the two compiles need not share, the place of the checkout, dependencies for tests and
//! for build scripts, and those that are declared for `cfg(not(target_arch = "nvptx64"))`: no kernel is made of them. Of a path dependency that only a `[patch]` section names, the name and the version are.
//!
//! A crate of its own, because the build script of a kernel crate needs no more of `cuda_builder` than this.

mod lock;
mod packages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use sha2::{Digest as _, Sha256};

use lock::Lock;
use packages::{Package, Packages};

/// The environment variable that [`emit`] sets for the crate's compile.
pub const VARIABLE: &str = "TILEWRIGHT_KERNEL_DIGEST";

/// The profile that kernels are built with, whatever the workspace says about `release`, as environment variables of cargo: one
/// optimized module of code that cannot unwind.
pub const PROFILE: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
];

/// What cargo sets for a build script for each feature.
const FEATURE: &str = "CARGO_FEATURE_";

/// A digest, and what it is of.
///
/// ```
/// # use tilewright_kernel_digest as kernel_digest;
/// # use std::{env, path::Path};
/// let (directory, cargo) = (env!("CARGO_MANIFEST_DIR"), env::var("CARGO").unwrap_or("cargo".to_owned()));
/// let digest = kernel_digest::of(Path::new(directory), Path::new(&cargo), &kernel_digest::Features::Default)?;
/// assert_eq!(digest.hex.len(), 64);
/// assert!(digest.sources.iter().any(|source| source.ends_with("Cargo.lock")));
/// # Ok::<(), kernel_digest::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// 64 hexadecimal digits.
    pub hex: String,
    /// Files and directories: if none of them changes, and no file in them, the digest is the same.
    pub sources: Vec<PathBuf>,
}

/// Which features of the crate are enabled.
///
/// ```
/// # use tilewright_kernel_digest as kernel_digest;
/// # use std::{collections::BTreeSet, env, path::Path};
/// # let (directory, cargo) = (env!("CARGO_MANIFEST_DIR"), env::var("CARGO").unwrap_or("cargo".to_owned()));
/// let digest = |features| kernel_digest::of(Path::new(directory), Path::new(&cargo), &features);
/// let fast = kernel_digest::Features::Only(BTreeSet::from(["FAST".to_owned()]));
/// assert_ne!(digest(fast)?.hex, digest(kernel_digest::Features::Default)?.hex);
/// # Ok::<(), kernel_digest::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Features {
    /// Those that are without being asked for.
    Default,
    /// These, and no others. In capitals and with underscores, as cargo names them to a build script.
    Only(BTreeSet<String>),
}

/// Why there is no digest.
///
/// ```
/// # use tilewright_kernel_digest as kernel_digest;
/// # use std::path::Path;
/// let nowhere = kernel_digest::of(Path::new("nowhere"), Path::new("cargo"), &kernel_digest::Features::Default);
/// assert!(nowhere.unwrap_err().to_string().starts_with("cannot read nowhere: "));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Cargo could not be run, or a file not be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Io {
        /// Which program or file.
        path: PathBuf,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// Cargo knows nothing of a package.
    #[error("cargo says nothing of the package in {}: {message}", .directory.display())]
    Cargo {
        /// The package.
        directory: PathBuf,
        /// What it said.
        message: String,
    },
    /// A dependency is not in the lock file.
    #[error("{} does not have the package `{package}`: `cargo update --workspace` brings it up to date", .path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The package.
        package: String,
    },
}

impl Error {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |reason| Self::Io { path, reason }
    }
}

/// The whole of a kernel crate's build script: the compile that follows can name the digest as
/// `env!("TILEWRIGHT_KERNEL_DIGEST")`, and the script runs again when what it is of changes, new files included.
///
/// ```no_run
/// # use tilewright_kernel_digest as kernel_digest;
/// // build.rs
/// fn main() {
///     kernel_digest::emit();
/// }
/// ```
///
/// # Panics
/// If it is not called from a build script. What else goes wrong ends the program with exit code 1.
pub fn emit() {
    let variable =
        |name: &str| env::var_os(name).unwrap_or_else(|| panic!("`emit` is for build scripts: {name} is not set"));
    let (crate_dir, cargo) = (PathBuf::from(variable("CARGO_MANIFEST_DIR")), PathBuf::from(variable("CARGO")));
    let features = env::vars().filter_map(|(name, _)| name.strip_prefix(FEATURE).map(str::to_owned)).collect();
    match of(&crate_dir, &cargo, &Features::Only(features)) {
        Ok(digest) => {
            for path in &digest.sources {
                println!("cargo::rerun-if-changed={}", path.display());
            }
            println!("cargo::rustc-env={VARIABLE}={}", digest.hex);
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}

/// The digest of the crate in `crate_dir`, by what `cargo` says of it.
///
/// ```
/// # use tilewright_kernel_digest as kernel_digest;
/// # use std::{env, path::Path};
/// let (directory, cargo) = (env!("CARGO_MANIFEST_DIR"), env::var("CARGO").unwrap_or("cargo".to_owned()));
/// let digest = || kernel_digest::of(Path::new(directory), Path::new(&cargo), &kernel_digest::Features::Default);
/// assert_eq!(digest()?, digest()?, "the same sources, the same digest");
/// # Ok::<(), kernel_digest::Error>(())
/// ```
///
/// # Errors
/// [`Error`], if files or cargo cannot be read.
pub fn of(crate_dir: &Path, cargo: &Path, features: &Features) -> Result<Digest, Error> {
    let crate_dir = fs::canonicalize(crate_dir).map_err(Error::io(crate_dir))?;
    let mut packages = Packages::new(cargo);
    let root = packages.at(&crate_dir)?;
    let lock = Lock::read(&root.workspace, cargo)?;

    let mut sources = BTreeSet::from([lock.path.clone(), root.workspace.join("Cargo.toml")]);
    let mut hash = Hash(Sha256::new());
    hash.field("tilewright kernels", "1");
    for (name, value) in PROFILE {
        hash.field(name, value);
    }
    for feature in features.of(&root) {
        hash.field("feature", &feature);
    }

    // Path dependencies by their names, so that it does not matter where they lie.
    let mut local = vec![root];
    let mut foreign = BTreeSet::new();
    let mut seen = BTreeSet::new();
    while let Some(at) = local.iter().position(|package| !seen.contains(&package.directory)) {
        let package = local[at].clone();
        seen.insert(package.directory.clone());
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.is_for_hosts) {
            match &dependency.path {
                Some(directory) => local.push(packages.at(directory)?),
                None => foreign.extend(lock.reached_from(&package, dependency)?),
            }
        }
    }
    local.sort_by(|a, b| (&a.name, &a.version, &a.directory).cmp(&(&b.name, &b.version, &b.directory)));
    local.dedup_by(|a, b| a.directory == b.directory);
    for package in &local {
        hash.field("package", &format!("{} {} {}", package.name, package.version, package.edition));
        for dependency in &package.dependencies {
            hash.field("dependency", &dependency.declaration);
        }
        hash_files(package, &mut hash, &mut sources)?;
    }
    for package in foreign {
        hash.field("dependency", &package);
    }
    Ok(Digest { hex: hash.hex(), sources: sources.into_iter().collect() })
}

/// The files of a package that compile into its library.
fn hash_files(package: &Package, hash: &mut Hash, sources: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
    let manifest = package.directory.join("Cargo.toml");
    let mut files = BTreeSet::from([manifest]);
    files.extend(package.build_script.clone());
    if package.library_dir == package.directory {
        // A library without a directory of its own: everything beside it, but nothing that was built.
        collect(&package.library_dir, &mut files, sources, false)?;
    } else {
        collect(&package.library_dir, &mut files, sources, true)?;
    }
    for file in files {
        let name = file.strip_prefix(&package.directory).or_else(|_| file.strip_prefix(&package.library_dir));
        let name = name.unwrap_or(&file);
        hash.field("file", &name.to_string_lossy());
        hash.bytes(&fs::read(&file).map_err(Error::io(&file))?);
        sources.insert(file);
    }
    Ok(())
}

/// The files in a directory and, if `deep`, below it. Hidden ones are none of the source's.
fn collect(
    directory: &Path,
    files: &mut BTreeSet<PathBuf>,
    sources: &mut BTreeSet<PathBuf>,
    deep: bool,
) -> Result<(), Error> {
    // With the directory, so that a new file is seen. All of a package's own would be too much: it may have a target directory.
    if deep {
        sources.insert(directory.to_owned());
    }
    for entry in fs::read_dir(directory).map_err(Error::io(directory))? {
        let entry = entry.map_err(Error::io(directory))?;
        let (path, hidden) = (entry.path(), entry.file_name().to_string_lossy().starts_with('.'));
        if path.is_file() && !hidden && (deep || path.extension().is_some_and(|extension| extension == "rs")) {
            files.insert(path);
        } else if deep && path.is_dir() && !hidden {
            collect(&path, files, sources, deep)?;
        }
    }
    Ok(())
}

impl Features {
    /// The enabled features, as cargo names them to a build script.
    fn of(&self, package: &Package) -> BTreeSet<String> {
        match self {
            Self::Only(features) => features.clone(),
            Self::Default => {
                let enabled = package.with_what_they_enable("default");
                enabled.iter().map(|name| name.to_uppercase().replace('-', "_")).collect()
            }
        }
    }
}

/// A hash of named values, none of which can be taken for another.
struct Hash(Sha256);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn field(&mut self, name: &str, value: &str) {
        self.bytes(name.as_bytes());
        self.bytes(value.as_bytes());
    }

    fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
