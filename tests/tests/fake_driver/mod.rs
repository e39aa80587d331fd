//! The driver that only pretends, the one of `cuda_driver`'s tests: compiled when it is first asked for, and opened in a process
//! of its own, because a process opens a driver's library only once.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cuda_driver::LIBRARY_VARIABLE;
use tilewright::device::missing_ptx;

/// Runs `body` in a new process that has the fake driver, with the given environment variables. `test` is the name of the
/// calling test: the new process is this same program, told to run the one test of this name.
pub(crate) fn isolated(test: &str, variables: &[(&str, &str)], body: fn()) {
    const MARK: &str = "TILEWRIGHT_ISOLATED_TEST";
    if std::env::var_os(MARK).is_some() {
        // Without PTX there is nothing to load, and these tests would show nothing.
        assert_eq!(missing_ptx(), None);
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env(LIBRARY_VARIABLE, fake_library())
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
    print!("{text}");
}

/// The fake driver, compiled when it is first asked for.
fn fake_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cuda-driver/tests/driver/fake_libcuda.rs");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda_fake.so");
        // Each process compiles in its own folder and moves the result into place, so that none opens what another writes.
        let folder = target.with_extension(std::process::id().to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let compiled = folder.join("libcuda_fake.so");
        let output = Command::new("rustc")
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-O", "-Cpanic=abort"])
            .args(["--check-cfg=cfg(without_uuid,without_tensor_maps)", "-Adead_code", "-Anon_snake_case"])
            .arg("-o")
            .args([&compiled, &source])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&compiled, &target).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        target
    })
}

/// One of the fake driver's own functions, such as `fake_live_objects`. This process has opened its library already.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
pub(crate) unsafe fn function<F: Copy>(name: &CStr) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let library = CString::new(std::env::var(LIBRARY_VARIABLE).unwrap()).unwrap();
    // SAFETY: the library is open, so none of its initializers runs, and it is never closed; an address of a symbol is read
    // as a pointer to a function of the type that the caller promises, which has the size of a pointer.
    unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "{name:?}");
        std::mem::transmute_copy(&address)
    }
}
