//! Versions of CUDA.

use std::fmt;

/// A CUDA version, as a driver supports it: `13.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// The part before the point.
    pub major: u32,
    /// The part after the point.
    pub minor: u32,
}

impl DriverVersion {
    /// The lowest that this crate works with: the version whose interface `cust` declares.
    pub const MINIMUM: DriverVersion = DriverVersion { major: 11, minor: 4 };
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
