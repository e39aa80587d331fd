//! The driver's library, opened when its first function is called, and what is remembered of calls that fail.
//!
//! ```text
//! cust ── cuMemAlloc_v2 ──▶ forwarder (this crate) ── dlsym, once ──▶ libcuda.so.1 (dlopen, once)
//!      ◀─ CUresult, clamped ┘        └─▶ thread-local: raw code, function
//! ```
//!
//! A forwarder never fails to return a code: without a driver it is `CUDA_ERROR_NO_DEVICE`, and where the driver lacks
//! the function it is `CUDA_ERROR_NOT_FOUND`. What really happened stays in [`take_failure`] for the message.

use std::cell::Cell;
use std::error::Error as _;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use cust::sys::CUresult;
use libloading::Library;

use crate::results::RESULTS;

/// The environment variable that names the library to open in place of `libcuda.so.1`: a path, or a name that the
/// dynamic loader searches for.
pub const LIBRARY_VARIABLE: &str = "TILEWRIGHT_LIBCUDA";

/// The library that every NVIDIA driver on Linux installs.
const LIBRARY_NAME: &str = "libcuda.so.1";

/// What is known about the library once somebody has tried to open it.
struct Driver {
    /// The name or path that was opened.
    name: String,
    /// The library, or the dynamic loader's reason for not opening it.
    library: Result<Library, String>,
}

/// The driver's library. It is opened by the first call and never closed: its threads may run until the process ends.
fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let name = std::env::var(LIBRARY_VARIABLE)
            .ok()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| LIBRARY_NAME.to_owned());
        // SAFETY: opening a library runs its initializers. That of the NVIDIA driver may run on any thread, once; who
        // names another library in the environment answers for it, as with LD_PRELOAD.
        let library = unsafe { Library::new(&name) }.map_err(|error| {
            // The loader's own words, such as "cannot open shared object file", are the source of the error.
            error.source().map_or_else(|| error.to_string(), ToString::to_string)
        });
        Driver { name, library }
    })
}

/// Why there is no driver, as (what was tried, the loader's reason). Opens the library if nobody has yet.
pub(crate) fn missing_driver() -> Option<(&'static str, &'static str)> {
    let driver = driver();
    driver.library.as_ref().err().map(|reason| (driver.name.as_str(), reason.as_str()))
}

/// The name or path of the driver's library.
pub(crate) fn library_name() -> &'static str {
    &driver().name
}

/// The address of a function in the driver's library; none without a driver, or where the driver lacks it.
pub(crate) fn symbol(name: &str) -> Option<NonNull<c_void>> {
    let library = driver().library.as_ref().ok()?;
    // SAFETY: a symbol is read as a plain address, whatever it is. Who calls it answers for its type.
    let address = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    NonNull::new(*address)
}

/// A call that did not return `CUDA_SUCCESS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// The driver function.
    pub(crate) function: &'static str,
    /// What became of the call.
    pub(crate) kind: FailureKind,
}

/// How a call can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The driver returned this code.
    Returned(u32),
    /// There is no driver.
    NoDriver,
    /// The driver does not have the function.
    MissingFunction,
}

thread_local! {
    // A cell of a `Copy` type has no destructor, so forwarders may be called while a thread ends.
    static FIRST_FAILURE: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// Returns what is remembered of this thread's first failed call since the last time, and forgets it.
pub(crate) fn take_failure() -> Option<Failure> {
    FIRST_FAILURE.take()
}

/// A function of the driver's library, looked up when it is first called.
pub(crate) struct Entry {
    name: &'static str,
    /// Null until the function has been found. It is not remembered that it was not: that path need not be fast.
    address: AtomicPtr<c_void>,
}

impl Entry {
    pub(crate) const fn new(name: &'static str) -> Entry {
        Entry { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Calls the function through `call`, which gets its address and returns its result. A result that `CUresult` does
    /// not have (it is an enum of CUDA 11.4, and newer drivers return more) becomes `CUDA_ERROR_UNKNOWN`.
    #[inline]
    pub(crate) fn forward(&self, call: impl FnOnce(NonNull<c_void>) -> u32) -> CUresult {
        // Relaxed is enough: the address is all that is passed on, and every thread finds the same one.
        let address = NonNull::new(self.address.load(Ordering::Relaxed)).or_else(|| self.look_up());
        match address.map(call) {
            Some(0) => CUresult::CUDA_SUCCESS,
            Some(code) => self.failed(FailureKind::Returned(code)),
            None if missing_driver().is_some() => self.failed(FailureKind::NoDriver),
            None => self.failed(FailureKind::MissingFunction),
        }
    }

    #[cold]
    fn look_up(&self) -> Option<NonNull<c_void>> {
        let address = symbol(self.name)?;
        self.address.store(address.as_ptr(), Ordering::Relaxed);
        Some(address)
    }

    #[cold]
    fn failed(&self, kind: FailureKind) -> CUresult {
        // The first one since somebody asked is the cause: what `cust` calls after it, to clean up, fails as well.
        FIRST_FAILURE.set(FIRST_FAILURE.get().or(Some(Failure { function: self.name, kind })));
        match kind {
            FailureKind::Returned(code) => clamp(code),
            FailureKind::NoDriver => CUresult::CUDA_ERROR_NO_DEVICE,
            FailureKind::MissingFunction => CUresult::CUDA_ERROR_NOT_FOUND,
        }
    }
}

/// The result that `CUresult` has for a code.
pub(crate) fn known_result(code: u32) -> Option<CUresult> {
    let index = RESULTS.binary_search_by_key(&code, |&result| result as u32).ok()?;
    Some(RESULTS[index])
}

/// The result that a code stands for: `CUDA_ERROR_UNKNOWN` for one that `CUresult` does not have.
fn clamp(code: u32) -> CUresult {
    known_result(code).unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_stay_and_others_become_unknown() {
        assert_eq!(clamp(2), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(clamp(719), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        assert_eq!(clamp(999), CUresult::CUDA_ERROR_UNKNOWN);
        // Since CUDA 11.8, 12.0 and 12.9; the last is no code at all.
        for code in [226, 720, 721, u32::MAX] {
            let expected = if code == 720 {
                CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
            } else {
                CUresult::CUDA_ERROR_UNKNOWN
            };
            assert_eq!(clamp(code), expected, "{code}");
        }
    }

    #[test]
    fn results_are_sorted_by_code() {
        assert!(RESULTS.is_sorted_by_key(|&result| result as u32), "binary_search needs them sorted");
    }
}
