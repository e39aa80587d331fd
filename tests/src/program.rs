//! The command-line program.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The program, built with the profile of the test, so that it is never an old one.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    // <target directory>/<profile>/deps/<this test>
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.ancestors().nth(2).expect("tests lie in `deps`");
    let target_dir = directory.parent().expect("profiles have directories");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => panic!("what profile is {}?", directory.display()),
    };
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "host", "--bin", "tilewright", "--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the program does not build");
    directory.join("tilewright")
});

/// The program with these arguments, and no driver that it could find: as on a machine without a GPU.
///
/// # Panics
/// If the program does not build.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.args(arguments).env("TILEWRIGHT_LIBCUDA", "/nonexistent/libcuda.so.1").stdin(Stdio::null());
    command
}
