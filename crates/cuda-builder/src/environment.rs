//! Commands that do not see what an outer cargo, or a developer's settings for the host, put into the environment.

use std::ffi::OsStr;
use std::process::Command;

/// What would steer a nested rustc or cargo. The packaged ones must not be told to use rustup's toolchain, nor the device
/// compile be given the host's flags, wrapper or target directory.
const CLEARED: &[&str] = &[
    "CARGO",
    "RUSTC",
    "RUSTC_BOOTSTRAP",
    "RUSTC_LINKER",
    "RUSTC_LOG",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "RUST_RECURSION_COUNT",
];

/// Of the variables that begin with `CARGO_`, those that say how to reach and store packages, or how to share the
/// processors; all others are cleared.
const KEPT: &[&str] = &[
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_MAKEFLAGS",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "CARGO_TERM_",
];

/// A command for `program` with a scrubbed environment.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_cleared) {
            command.env_remove(name);
        }
    }
    // A discovery or a build must not start downloading a toolchain of its own accord.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command
}

fn is_cleared(name: &str) -> bool {
    let kept = || KEPT.iter().any(|kept| name == *kept || (kept.ends_with('_') && name.starts_with(kept)));
    CLEARED.contains(&name) || (name.starts_with("CARGO_") && !kept())
}

#[cfg(test)]
mod tests {
    use super::is_cleared;

    #[test]
    fn clears_what_steers_a_compiler_and_keeps_what_reaches_packages() {
        for name in [
            "CARGO",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER",
        ] {
            assert!(is_cleared(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_X_TOKEN", "CARGO_MAKEFLAGS"] {
            assert!(!is_cleared(name), "{name}");
        }
    }
}
