//! The driver that only pretends, `fake_libcuda.rs`, as a library. Also a part of tests of the package `tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file to compile, and those of its modules.
const SOURCES: [(&str, &str); 3] = [
    ("fake_libcuda.rs", include_str!("fake_libcuda.rs")),
    ("fake_faults.rs", include_str!("fake_faults.rs")),
    ("fake_memory.rs", include_str!("fake_memory.rs")),
];

/// Compiles the fake driver, with further options for `rustc`, to a library of this file name. To be called once for each name in a
/// process; other processes may compile one of the same name at the same time.
pub(crate) fn compile(name: &str, options: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Each process compiles in its own folder and moves the result into place, so that none opens what another writes.
    let folder = target.with_extension(std::process::id().to_string());
    fs::create_dir_all(&folder).unwrap();
    for (file, source) in SOURCES {
        fs::write(folder.join(file), source).unwrap();
    }
    let compiled = folder.join(name);
    let output = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-Cpanic=abort"])
        .args(["--check-cfg=cfg(without_uuid,without_tensor_maps)", "-Adead_code", "-Anon_snake_case"])
        .args(options)
        .arg("-o")
        .args([&compiled, &folder.join(SOURCES[0].0)])
        .output()
        .expect("rustc can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&compiled, &target).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    target
}
