//! Decides for each call whether it is computed here, and otherwise calls cuBLAS's function.

use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::abi::{EXECUTION_FAILED, NOT_INITIALIZED, SUCCESS, Status};
use crate::compute::compute;
use crate::loader::Original;
use crate::report::{self, is_verbose};
use crate::state::Call;
use crate::why::Why;

thread_local! {
    /// Whether this thread is in a function of this library. A cell of a `Copy` type has no destructor, so threads may call while they end.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes the thread one that is in this library, as long as there is a value of it.
struct Inside;

impl Inside {
    /// None if the thread is here already: then it is cuBLAS that calls.
    fn enter() -> Option<Self> {
        (!IS_INSIDE.replace(true)).then_some(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Computes what `call` finds, or else has cuBLAS compute it: `pass_on` calls the function of an address.
///
/// # Safety
/// What `call` finds is what [`compute`] demands.
pub(crate) unsafe fn intercept(
    original: &'static Original,
    call: impl FnOnce(&'static Original) -> Result<Call, Why>,
    pass_on: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let inside = Inside::enter();
    if inside.is_some() {
        let begin = is_verbose().then(Instant::now);
        let function = original.name.to_str().unwrap_or_default();
        // No state is left half changed that is looked at again: locks count as in order even if poisoned.
        // SAFETY: the caller's promise.
        let computed = catch_unwind(AssertUnwindSafe(|| call(original).and_then(|call| unsafe { compute(&call) })));
        match computed {
            Ok(Ok(done)) => {
                let took = begin.map(|begin| begin.elapsed().as_micros()).unwrap_or_default();
                report::taken(function, format_args!("{done}; {took} us"));
                return SUCCESS;
            }
            Ok(Err(why)) if why.too_late => {
                report::passed_on(function, why.reason, format_args!("it failed halfway: {why}"));
                return EXECUTION_FAILED;
            }
            Ok(Err(why)) => report::passed_on(function, why.reason, why),
            // The panic's own message has been shown.
            Err(_) => report::passed_on(function, "a panic", "a panic, which is a bug in tilewright"),
        }
    }
    match original.address() {
        Some(address) => pass_on(address),
        // Nobody can have a handle without cuBLAS.
        None => NOT_INITIALIZED,
    }
}
