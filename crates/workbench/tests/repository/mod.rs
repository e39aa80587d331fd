//! Where tests build: programs of `tests` that run cargo have this module.

use std::path::Path;

/// The target directory of the repository: most of what a program depends on has been compiled there.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}
