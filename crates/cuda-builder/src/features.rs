//! The unstable features of rustc that every kernel needs, so that no kernel crate has to name them.
//!
//! They go to the crate that is built and to those of its dependencies that are no published packages, but not to `core` or to a
//! crate that names them itself, which rustc would take for an error. Cargo has no flags for this choice of crates, so it runs
//! rustc through a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::toolchain::Toolchain;
use crate::{Error, write_atomically};

/// What `#[kernel]` needs, and what `asm!` needs on a GPU.
const FEATURES: &str = "abi_ptx asm_experimental_arch";

/// Not every crate has inline assembly.
const UNUSED: &str = "-Aunused_features";

/// The first compiler that knows of [`UNUSED`].
const KNOWS_UNUSED: (u32, u32) = (1, 96);

/// The script. Cargo gives it the compiler and its arguments; `--cap-lints` stands among those for a published package.
const SCRIPT: &str = "\
#!/bin/sh
# Written by cuda_builder: the compiler, with the unstable features that kernels need.
root= gpu= ours=yes
for argument; do
    case $argument in
        *.rs) root=$argument ;;
        nvptx64-nvidia-cuda) gpu=yes ;;
        --cap-lints | -Zforce-unstable-if-unmarked) ours= ;;
    esac
done
if [ \"$gpu\" ] && [ \"$ours\" ] && [ -f \"$root\" ]; then
    for feature in FEATURES; do
        # A crate that mentions it outside of a comment has it already.
        grep -v '^ *//' \"$root\" | grep -qw \"$feature\" || set -- \"$@\" \"-Zcrate-attr=feature($feature)\"
    done
    set -- \"$@\" UNUSED
fi
exec \"$@\"
";

/// Writes the script, and gives its path.
pub(crate) fn wrapper(toolchain: &Toolchain, target_dir: &Path) -> Result<PathBuf, Error> {
    let unused = if toolchain.is_at_least(KNOWS_UNUSED) { UNUSED } else { "" };
    let script = SCRIPT.replace("FEATURES", FEATURES).replace("UNUSED", unused);
    let path = target_dir.join("rustc-for-kernels");
    write_atomically(&path, script.as_bytes())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(Error::io("make executable", &path))?;
    Ok(path)
}
