//! The fake driver's functions that were called, by name. See `fake_faults.rs` of `cuda_driver`'s tests.

use super::fake_driver;

/// The functions that were called since [`Log::begin`] was.
pub(crate) struct Log {
    /// Begins anew. The call of this number, and maybe those after it, fail with a code: none with 0.
    pub(crate) begin: extern "C" fn(usize, u32, u32),
    calls: extern "C" fn() -> usize,
    call_name: unsafe extern "C" fn(usize, *mut usize) -> *const u8,
}

impl Log {
    pub(crate) fn of_this_process() -> Self {
        // The library is opened by the first call of a function.
        cuda_driver::driver_version().unwrap();
        // SAFETY: these are the types of the functions of these names in `fake_faults.rs`.
        unsafe {
            Self {
                begin: fake_driver::function(c"fake_begin"),
                calls: fake_driver::function(c"fake_calls"),
                call_name: fake_driver::function(c"fake_call_name"),
            }
        }
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> usize {
        (self.calls)()
    }

    /// The functions that were called after so many calls, in their order.
    pub(crate) fn names(&self, after: usize) -> impl Iterator<Item = &'static str> {
        (after + 1..=self.count()).map(|number| {
            let mut length = 0;
            // SAFETY: there are as many calls, and the length may be written to. A name is a constant of a library that is
            // never closed.
            let bytes = unsafe { std::slice::from_raw_parts((self.call_name)(number, &mut length), length) };
            std::str::from_utf8(bytes).unwrap()
        })
    }
}
