//! Errors as Python sees them: classes of `tilewright._errors`, each also one of Python's own.

use std::fmt;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::once::Once;

/// What kind of error it is: the class in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A shape, a layout, a device or an option that does not go: a `ValueError`.
    Argument,
    /// An operand of another type, or with elements of another: a `TypeError`.
    OperandType,
    /// Too little memory: a `MemoryError`.
    OutOfMemory,
    /// The device, its driver or a kernel: a `RuntimeError`.
    Device,
}

/// Something that went wrong, here or in the library, or in Python code that was called.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One of ours, with a message that is complete.
    Ours(Kind, String),
    /// An exception that Python code has raised.
    Python(PyErr),
}

impl Failure {
    /// An error of this kind.
    pub(crate) fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self::Ours(kind, message.to_string())
    }
}

/// An argument that does not go.
pub(crate) fn argument(message: impl fmt::Display) -> Failure {
    Failure::new(Kind::Argument, message)
}

/// An operand of a wrong type.
pub(crate) fn operand_type(message: impl fmt::Display) -> Failure {
    Failure::new(Kind::OperandType, message)
}

/// What kind of error one of the library is.
fn kind_of(error: &tilewright::Error) -> Kind {
    use tilewright::{DeviceError, Error};
    match error {
        Error::InGroup { source, .. } => kind_of(source),
        Error::Shape(_)
        | Error::Operands { .. }
        | Error::ExtentTooLarge { .. }
        | Error::PlacementOverflow { .. }
        | Error::OutsideBuffer { .. }
        | Error::Device(DeviceError::OverlappingViews { .. })
        | Error::NoKernel { .. }
        | Error::NoAccuracy { .. }
        | Error::Group(_)
        | Error::Usage(_) => Kind::Argument,
        Error::Device(
            DeviceError::NotEnoughMemory { .. }
            | DeviceError::Driver(cuda_driver::Error::OutOfMemory { .. } | cuda_driver::Error::SizeOverflow { .. }),
        ) => Kind::OutOfMemory,
        _ => Kind::Device,
    }
}

impl From<tilewright::Error> for Failure {
    fn from(error: tilewright::Error) -> Self {
        use tilewright::{DeviceError, Error};
        let kind = kind_of(&error);
        match &error {
            Error::Device(DeviceError::NotEnoughMemory { place, needs, has }) => Self::new(
                kind,
                format!(
                    "not enough memory {place}: {needs} are needed, {has} are free. Delete arrays that are not needed any more, or \
                     multiply in parts, such as some rows of a at a time"
                ),
            ),
            Error::Device(DeviceError::Driver(cuda_driver::Error::OutOfMemory { .. })) => Self::new(
                kind,
                format!(
                    "{error}. In this process, delete arrays that are not needed any more; torch.cuda.empty_cache() gives back what \
                     torch keeps"
                ),
            ),
            _ => Self::new(kind, error),
        }
    }
}

impl From<tilewright::DeviceError> for Failure {
    fn from(error: tilewright::DeviceError) -> Self {
        tilewright::Error::from(error).into()
    }
}

impl From<cuda_driver::Error> for Failure {
    fn from(error: cuda_driver::Error) -> Self {
        tilewright::Error::from(error).into()
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl<'a, 'py> From<pyo3::CastError<'a, 'py>> for Failure {
    fn from(error: pyo3::CastError<'a, 'py>) -> Self {
        Self::Python(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Ours(kind, message) => Python::attach(|py| match class(py, kind) {
                Ok(class) => Self::from_type(class.clone(), message),
                // Only if the package is not whole.
                Err(_) => PyRuntimeError::new_err(message),
            }),
        }
    }
}

/// The class of a kind.
fn class(py: Python<'_>, kind: Kind) -> PyResult<&Bound<'_, PyType>> {
    static CLASSES: [Once<Py<PyType>>; 4] = [const { Once::new() }; 4];
    let (place, name) = match kind {
        Kind::Argument => (0, "ArgumentError"),
        Kind::OperandType => (1, "OperandTypeError"),
        Kind::OutOfMemory => (2, "OutOfMemoryError"),
        Kind::Device => (3, "DeviceError"),
    };
    CLASSES[place].class(py, "tilewright._errors", name)
}
