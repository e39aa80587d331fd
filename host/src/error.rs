//! What can go wrong in the program, with a message that names the cause, the values and what to do about it.

use std::path::PathBuf;
use std::time::Duration;

use gpu_kernels::ShapeError;
use tilewright::plan::TableFault;

/// An error of the program. Its message is complete and stands on its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library, or the device below it.
    #[error("{0}")]
    Library(#[from] tilewright::Error),

    /// Options that contradict each other, or a value that makes no sense.
    #[error("{0}")]
    Usage(String),

    /// What an operation says, or the engine of `sanitize`.
    #[error("{0}")]
    Operations(Box<testkit::Error>),

    /// cuBLAS is not there, or cannot do what was asked of it.
    #[error("{0}")]
    Baseline(#[from] crate::baseline::BaselineError),

    /// A file that was to be a table of measured times is none.
    #[error("{} is no table of measured times: {fault}", .path.display())]
    BadTable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: TableFault,
    },

    /// Constants of a GPU cannot be written to a file.
    #[error("cannot write constants to {}: {reason}. Name another file with --output", .path.display())]
    ConstantsPlace {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },

    /// A leading dimension that is shorter than the rows it separates.
    #[error(
        "the leading dimension of {matrix} is {leading_dimension}, but its stored rows have {cols} elements: it must be at \
         least that"
    )]
    LeadingDimension {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// The leading dimension.
        leading_dimension: usize,
        /// The number of stored columns.
        cols: usize,
    },

    /// A matrix whose size in bytes does not fit into an address range.
    #[error(
        "{matrix}, stored as {rows} rows with a leading dimension of {leading_dimension}, has more bytes than can be \
         addressed: choose smaller sizes"
    )]
    SizeOverflow {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// The number of stored rows.
        rows: usize,
        /// The elements from one stored row to the next.
        leading_dimension: usize,
    },

    /// A program that is needed cannot be run, or is another one.
    #[error("cannot use {}: {reason}. Install it, or name it by its path", .program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },

    /// The program has not ended in the time that it was given, and was ended.
    #[error(
        "not finished after {} s, the time limit: ended. If a kernel waits for something that never comes, the CPU executor tells \
         for what if it checks everything; otherwise allow more time", .limit.as_secs()
    )]
    TimeLimit {
        /// The limit.
        limit: Duration,
    },

    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// An error for a name that is not among `known`, with the most similar of these.
    pub(crate) fn unknown_name(what: &'static str, name: &str, known: Vec<&'static str>) -> Self {
        tilewright::Error::unknown_name(what, name, known).into()
    }

    /// Whether there is nothing that could run PTX, or no PTX to run: see [`runtime::Error::is_absence_of_gpus`].
    pub fn is_absence_of_gpus(&self) -> bool {
        matches!(self, Self::Library(error) if error.is_absence_of_gpus())
    }

    /// Whether a kernel did something wrong, as opposed to a launch or an input that was refused.
    pub fn is_kernel_fault(&self) -> bool {
        matches!(self, Self::Library(error) if error.is_kernel_fault())
    }
}

/// What the device says, or refuses.
impl From<runtime::Error> for Error {
    fn from(error: runtime::Error) -> Self {
        Self::Library(error.into())
    }
}

/// What an operation says; of a device what that says.
impl From<testkit::Error> for Error {
    fn from(error: testkit::Error) -> Self {
        match error {
            testkit::Error::Runtime(error) => error.into(),
            error => Self::Operations(Box::new(error)),
        }
    }
}

/// What the driver says, or refuses.
impl From<cuda_driver::Error> for Error {
    fn from(error: cuda_driver::Error) -> Self {
        Self::Library(error.into())
    }
}

/// Operands that do not make a product.
impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Library(error.into())
    }
}
