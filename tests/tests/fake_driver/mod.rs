//! The driver that only pretends, the one of `cuda_driver`'s tests: compiled when it is first asked for, and opened in a process
//! of its own, because a process opens a driver's library only once.

#[path = "../../../crates/cuda-driver/tests/driver/fake_library.rs"]
mod fake_library;
#[path = "../../../crates/cuda-driver/tests/driver/isolated.rs"]
mod isolated;

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use cuda_driver::LIBRARY_VARIABLE;
use tilewright::device::missing_ptx;

/// The fake driver, compiled when it is first asked for.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| fake_library::compile("libcuda_fake.so", &["-O"]));

/// Runs `body` in a new process that has the fake driver, with the given environment variables. `test` is the name of the
/// calling test.
pub(crate) fn isolated(test: &str, variables: &[(&str, &str)], body: fn()) {
    let prepare = |command: &mut Command| {
        command.args(["--exact", "--include-ignored"]).env(LIBRARY_VARIABLE, &*LIBRARY).envs(variables.iter().copied());
    };
    isolated::isolated(test, prepare, || {
        // Without PTX there is nothing to load, and these tests would show nothing.
        assert_eq!(missing_ptx(), None);
        body();
    });
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
