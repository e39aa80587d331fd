//! The crate without a driver and with a fake one. A process opens a driver's library only once, so each test runs in a
//! process of its own, with a library of its own.

mod copies;
mod fake_driver;
mod giving_back;
mod no_driver;
mod tensor_maps;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tilewright_cuda_driver::LIBRARY_VARIABLE;

/// Runs `body` in a new process that has `library` for its driver and the given environment variables. `test` is the
/// name of the calling test: the new process is this same program, told to run the one test with this in its name.
fn isolated(test: &str, library: fn() -> &'static Path, variables: &[(&str, &str)], body: fn()) {
    const MARK: &str = "TILEWRIGHT_ISOLATED_TEST";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env(LIBRARY_VARIABLE, library())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A process that finds no test of this name succeeds as well.
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test}, in its own process ({}):\n{text}",
        output.status
    );
}

/// A path at which there is no library.
fn no_library() -> &'static Path {
    Path::new("/nonexistent/libcuda.so.1")
}

/// The fake driver, compiled when it is first asked for.
fn fake_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("libcuda_fake.so", &[]))
}

/// The fake driver without the function `cuDeviceGetUuid`.
fn fake_library_without_uuid() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("libcuda_fake_without_uuid.so", &["--cfg", "without_uuid"]))
}

/// The fake driver as before CUDA 12: without the function `cuTensorMapEncodeTiled`.
fn fake_library_without_tensor_maps() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("libcuda_fake_without_tensor_maps.so", &["--cfg", "without_tensor_maps"]))
}

fn compile(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver/fake_libcuda.rs");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Each process compiles in its own folder and moves the result into place, so that none opens what another writes.
    let folder = target.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let compiled = folder.join(name);
    let output = Command::new("rustc")
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=cuda",
            "--check-cfg=cfg(without_uuid,without_tensor_maps)",
        ])
        .args(["-Adead_code", "-Anon_snake_case", "-Cpanic=abort"])
        .args(options)
        .arg("-o")
        .args([&compiled, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&compiled, &target).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    target
}
