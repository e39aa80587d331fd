//! Where the user is, and where this repository is.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Which crate is meant.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Place {
    /// The Cargo.toml of the crate, or of its program [default: that of the current directory, or the next one above].
    #[arg(long, value_name = "PATH", global = true)]
    pub manifest_path: Option<PathBuf>,
}

impl Place {
    /// The directory that is meant.
    ///
    /// # Errors
    /// If there is no current directory.
    pub(crate) fn directory(&self) -> anyhow::Result<PathBuf> {
        match &self.manifest_path {
            Some(path) => {
                let path = std::path::absolute(path).context("`--manifest-path` is no path")?;
                Ok(path.parent().map_or_else(|| path.clone(), Path::to_owned))
            }
            None => std::env::current_dir().context("there is no current directory"),
        }
    }
}

/// What was asked for cannot be done: as `clap` says of flags that it does not know, and as programs over operations do.
pub(crate) const REFUSED: u8 = 2;

/// The repository that this program was built from.
pub(crate) fn repository() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent);
    crates.expect("this crate is a directory of the repository's `crates`")
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
