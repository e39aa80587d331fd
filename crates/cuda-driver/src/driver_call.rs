//! A failed call of the driver: the function, the code that it returned, and the driver's name and description of the code.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;

use crate::library;

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
    pub(crate) fn new(function: &'static str, code: u32) -> DriverCall {
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
