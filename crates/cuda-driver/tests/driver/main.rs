//! The crate without a driver and with a fake one. A process opens a driver's library only once, so each test runs in a
//! process of its own, with a library of its own.

mod copies;
mod fake_driver;
mod fake_library;
mod giving_back;
mod host_memory;
mod isolated;
mod no_driver;
mod pools;
mod streams;
mod tensor_maps;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fake_library::compile;
use tilewright_cuda_driver::LIBRARY_VARIABLE;

/// Runs `body` in a new process that has `library` for its driver, and the given environment variables. `test` is the name of the
/// calling test.
fn isolated(test: &str, library: fn() -> &'static Path, variables: &[(&str, &str)], body: fn()) {
    let prepare = |command: &mut Command| {
        command.env(LIBRARY_VARIABLE, library()).envs(variables.iter().copied());
    };
    isolated::isolated(test, prepare, body);
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
