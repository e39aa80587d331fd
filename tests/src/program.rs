//! The command-line program.

use std::process::{Command, Stdio};

/// The program with these arguments, and no driver that it could find: as on a machine without a GPU.
///
/// It is `program`, a binary of this package, which Cargo builds before any test of the package: the package `host` has its own, but
/// whoever tests this one need not have built that.
///
/// # Panics
/// If this is called by another program than a test of this package.
pub fn program(arguments: &[&str]) -> Command {
    // <target directory>/<profile>/deps/<this test>
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.ancestors().nth(2).expect("tests lie in `deps`");
    let mut command = Command::new(directory.join("program"));
    command.args(arguments).env("TILEWRIGHT_LIBCUDA", "/nonexistent/libcuda.so.1").stdin(Stdio::null());
    command
}
