//! [`call`], through which this crate calls the driver: if the operation fails, the error says which driver function returned which
//! code.

use cust::error::CudaResult;
use cust::sys::CUresult;

use crate::driver_call::DriverCall;
use crate::error::{Error, code};
use crate::library::{self, FailureKind};

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

impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        match error {
            CallError::Typed(error) => error,
            CallError::Returned(call) if call.code == code::STUB_LIBRARY => Error::NoDriver {
                tried: library::library_name().to_owned(),
                reason:
                    "it is the stub of a CUDA toolkit, for linking only: take the toolkit's `stubs` directory out of \
                         LD_LIBRARY_PATH"
                        .to_owned(),
            },
            CallError::Returned(call) if call.code == code::NO_DEVICE => {
                Error::NoDevice { call, visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok() }
            }
            CallError::Returned(call) if code::CONTEXT_LOST.contains(&call.code) => {
                Error::ContextLost { call, kernels: Vec::new(), report: None }
            }
            CallError::Returned(call) => Error::Call { call },
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
