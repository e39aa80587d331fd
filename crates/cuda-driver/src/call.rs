//! One way to call the driver: [`call`] runs an operation and says, where it fails, which function returned what.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;

use cust::error::CudaResult;
use cust::sys::CUresult;

use crate::error::Error;
use crate::library::{self, FailureKind};

/// A driver function that failed: its name and what it returned.
///
/// The code is the driver's own. `cust`'s enums know the codes of CUDA 11.4; here, newer ones are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCall {
    /// The driver function, such as `cuMemAlloc_v2`.
    pub function: &'static str,
    /// The code that it returned.
    pub code: u32,
    /// The code's name, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// The driver's description of the code, such as `out of memory`; empty if it has none.
    pub description: String,
}

impl DriverCall {
    fn new(function: &'static str, code: u32) -> DriverCall {
        let name = driver_text("cuGetErrorName", code)
            .or_else(|| library::known_result(code).map(|result| format!("{result:?}")))
            .unwrap_or_else(|| "a code that neither the driver nor this program has a name for".to_owned());
        DriverCall { function, code, name, description: driver_text("cuGetErrorString", code).unwrap_or_default() }
    }
}

impl fmt::Display for DriverCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.function, self.name, self.code)?;
        if self.description.is_empty() { Ok(()) } else { write!(f, ": {}", self.description) }
    }
}

/// What the driver says about a code through `cuGetErrorName` or `cuGetErrorString`.
///
/// These are looked up here rather than called through `cust`, whose declarations take the code as an enum.
fn driver_text(function: &str, code: u32) -> Option<String> {
    let address = library::symbol(function)?;
    // SAFETY: both functions have this type in every version of the driver; an enum is passed as an unsigned number.
    let function: unsafe extern "C" fn(u32, *mut *const c_char) -> u32 = unsafe { std::mem::transmute(address) };
    let mut text = ptr::null();
    // SAFETY: `text` may be written to. Neither function needs the driver to be initialized.
    let result = unsafe { function(code, &mut text) };
    if result != 0 || text.is_null() {
        return None;
    }
    // SAFETY: the driver returned success, so this is its constant string.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// A result of a driver function or of a function of `cust`.
pub(crate) trait Outcome {
    /// What a success yields.
    type Value;

    /// The value, or the code as `cust` knows it.
    fn into_result(self) -> Result<Self::Value, u32>;
}

impl Outcome for CUresult {
    type Value = ();

    fn into_result(self) -> Result<(), u32> {
        if self == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(self as u32) }
    }
}

impl<T> Outcome for CudaResult<T> {
    type Value = T;

    fn into_result(self) -> Result<T, u32> {
        self.map_err(|error| error as u32)
    }
}

/// Why an operation failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The driver returned an error.
    Returned(DriverCall),
    /// More is known than a code: there is no driver, it lacks a function, or the context is lost.
    Typed(Error),
}

impl CallError {
    /// What the driver returned, if it was reached and returned one of `codes`.
    pub(crate) fn returned_any(self, codes: &[u32]) -> Result<DriverCall, CallError> {
        match self {
            CallError::Returned(call) if codes.contains(&call.code) => Ok(call),
            other => Err(other),
        }
    }
}

/// Runs an operation that calls the driver.
pub(crate) fn call<R: Outcome>(operation: impl FnOnce() -> R) -> Result<R::Value, CallError> {
    // A failure that somebody ignored earlier must not be taken for one of this operation.
    library::take_failure();
    operation().into_result().map_err(|code| match library::take_failure() {
        Some(failure) => match failure.kind {
            FailureKind::Returned(code) => CallError::Returned(DriverCall::new(failure.function, code)),
            FailureKind::NoDriver => CallError::Typed(Error::no_driver()),
            FailureKind::MissingFunction => CallError::Typed(Error::MissingFunction {
                function: failure.function,
                library: library::library_name().to_owned(),
            }),
        },
        // `cust` refused the operation by itself.
        None => CallError::Returned(DriverCall::new("cust", code)),
    })
}
