//! Writes a crate: all of its files, or none.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// A path as manifests can have it between quotes.
///
/// # Errors
/// If it has characters that would need others there.
pub(crate) fn for_manifest(repository: &Path) -> anyhow::Result<&str> {
    let path = repository.to_str().filter(|path| !path.contains(['"', '\\']) && !path.contains(char::is_control));
    path.context("the path of this repository cannot be written into a manifest: move it")
}

/// Writes files into a directory, which is not there yet or empty. They are written into another directory beside it, which then takes its
/// name.
///
/// # Errors
/// If the directory is not empty, or cannot be made. Then nothing is left of what was written.
pub(crate) fn write_crate<P: AsRef<Path>, T: AsRef<[u8]>>(directory: &Path, files: &[(P, T)]) -> anyhow::Result<()> {
    let shown = directory.display();
    match fs::read_dir(directory) {
        Ok(mut entries) => ensure!(
            entries.next().is_none(),
            "{shown} is there already, and is not empty: choose another directory, or empty it"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => bail!("{shown} cannot be a directory for a crate: {error}"),
    }
    let parent = directory.parent().with_context(|| format!("{shown} has no parent directory"))?;
    let beside = tempfile::Builder::new().prefix(".new-").tempdir_in(parent);
    let beside =
        beside.with_context(|| format!("cannot write into {}: make that directory first", parent.display()))?;
    let crate_dir = beside.path().join("crate");
    for (path, text) in files {
        let path = crate_dir.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&crate_dir))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // An empty directory gives way; one that somebody has filled meanwhile does not.
    fs::rename(&crate_dir, directory).with_context(|| format!("cannot make the crate {shown}"))
}
