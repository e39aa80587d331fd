//! Takes the place of `find_cuda_helper` 0.2.0 from crates.io. It looks for nothing and links nothing.
//!
//! The build scripts of `cust` and `cust_raw` call this crate. The published one panics where it finds no CUDA toolkit,
//! and otherwise tells the linker to add `-lcuda`, so that the finished program does not even start on a machine without
//! a driver. Neither crate needs a toolkit to compile: their declarations are generated in advance. The `cu*` functions
//! come from `tilewright-cuda-driver`, which defines each of them and opens `libcuda.so.1` when the first is called.
//!
//! A workspace opts in with
//!
//! ```toml
//! [patch.crates-io]
//! find_cuda_helper = { path = "crates/find_cuda_helper" }
//! ```
//!
//! The functions are those of the published crate, so that other crates that call them still compile. Each says what is
//! true of a machine without a toolkit.

use std::path::PathBuf;

/// Emits nothing: nothing is linked. This is all that the build scripts of `cust` and `cust_raw` call.
pub fn include_cuda() {}

/// Finds no toolkit.
pub fn find_cuda_root() -> Option<PathBuf> {
    None
}

/// Finds no library directories.
pub fn find_cuda_lib_dirs() -> Vec<PathBuf> {
    Vec::new()
}

/// Ignores the environment variable `CUDA_LIBRARY_PATH`.
pub fn read_env() -> Vec<PathBuf> {
    Vec::new()
}

/// Finds no OptiX installation.
pub fn find_optix_root() -> Option<PathBuf> {
    None
}

/// Finds no libNVVM. The published function panics here, or returns an empty string where it builds documentation.
pub fn find_libnvvm_bin_dir() -> String {
    String::new()
}
