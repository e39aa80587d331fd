//! Builds and runs `tests/downstream` of the repository: a crate outside the workspace, with what the documentation
//! says that such a crate has to write.

use std::path::Path;
use std::process::Command;

#[test]
fn a_crate_outside_the_workspace_builds_and_runs_without_a_driver() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/downstream/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream");
    let build = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));

    let program = target.join("debug/downstream");
    let libraries = Command::new("ldd").arg(&program).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    assert!(libraries.contains("libc.so") && !libraries.contains("libcuda"), "{libraries}");

    let run = Command::new(&program).env("TILEWRIGHT_LIBCUDA", "/nonexistent/libcuda.so.1").output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.starts_with("no CUDA driver: cannot use /nonexistent/libcuda.so.1"), "{text}");
}
