//! The unstable features of rustc that every kernel needs, so that no kernel crate has to name them.
//!
//! They go to the crate that is built and to those of its dependencies that are no published packages, but not to `core` or to a
//! crate that names them itself, which rustc would take for an error. Cargo has no flags for this choice of crates, so it runs
//! rustc through a program, `features/wrapper.rs`, which is compiled when it is first needed.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::toolchain::Toolchain;
use crate::{Error, environment};

/// The program's source.
const WRAPPER: &str = include_str!("features/wrapper.rs");

/// The first compiler that warns of features that a crate does not use, unless told otherwise.
const KNOWS_UNUSED: (u32, u32) = (1, 96);

/// The program, which is compiled if it is not there.
pub(crate) fn wrapper(toolchain: &Toolchain, target_dir: &Path) -> Result<PathBuf, Error> {
    let knows_unused = toolchain.is_at_least(KNOWS_UNUSED);
    let mut hasher = DefaultHasher::new();
    (WRAPPER, knows_unused).hash(&mut hasher);
    let path = target_dir.join(format!("rustc-for-kernels-{:016x}{EXE_SUFFIX}", hasher.finish()));
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(target_dir).map_err(Error::io("create the directory", target_dir))?;
    // In a directory of its own, and renamed when it is whole: another build may be doing the same.
    let beside = tempfile::tempdir_in(target_dir).map_err(Error::io("create a directory in", target_dir))?;
    let source = beside.path().join("wrapper.rs");
    fs::write(&source, WRAPPER).map_err(Error::io("write", &source))?;
    let compiled = beside.path().join(format!("wrapper{EXE_SUFFIX}"));
    let mut rustc = environment::command(&toolchain.rustc);
    rustc.args(["--edition=2024", "-Copt-level=1", "-Cdebuginfo=0", "--check-cfg=cfg(knows_unused_features)"]);
    if knows_unused {
        rustc.args(["--cfg", "knows_unused_features"]);
    }
    rustc.arg("-o").arg(&compiled).arg(&source);
    let output = rustc.output().map_err(Error::io("run", &toolchain.rustc))?;
    if !output.status.success() {
        return Err(Error::Tool {
            tool: format!("{} for {}", toolchain.rustc.display(), source.display()),
            status: output.status,
            place: None,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            function: None,
            log: None,
        });
    }
    match fs::rename(&compiled, &path) {
        // On Windows a program that runs cannot be replaced; then it is there.
        Err(_) if path.is_file() => Ok(path),
        renamed => renamed.map_err(Error::io("name", &path)).map(|()| path),
    }
}
