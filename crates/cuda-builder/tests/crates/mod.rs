//! Kernel crates for tests that build them, written to where cargo finds them again.

use std::fs;
use std::path::{Path, PathBuf};

use tilewright_cuda_builder::{CudaBuilder, write_atomically};

/// Writes a crate `<name>-<part>` that depends on `cuda_std`, and on what `more` says.
pub(crate) fn write_crate(name: &str, part: &str, source: &str, more: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-builder-fixtures").join(name);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cuda_std = repository.join("crates/cuda-std");
    let manifest = format!(
        "[package]\nname = \"{name}-{part}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         cuda_std = {{ package = \"tilewright-cuda-std\", path = {cuda_std:?} }}\n{more}"
    );
    let directory = place.join(part);
    write_atomically(&directory.join("Cargo.toml"), manifest.as_bytes()).unwrap();
    write_atomically(&directory.join("src/lib.rs"), source.as_bytes()).unwrap();
    if !directory.join("Cargo.lock").is_file() {
        // The versions that are there already.
        fs::copy(repository.join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    }
    directory
}

/// The workspace's target directory.
pub(crate) fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory")
}

/// Builds in the workspace's target directory, so that `core` is compiled once for everything.
pub(crate) fn builder(directory: &Path) -> CudaBuilder {
    CudaBuilder::new(directory).target_dir(target_dir().join("cuda-builder"))
}
