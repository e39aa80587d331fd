//! Why a call is passed on to cuBLAS.

use std::borrow::Cow;
use std::fmt;

/// A reason, by which calls are counted, and what there is to add to it for one of them.
#[derive(Debug)]
pub(crate) struct Why {
    pub(crate) reason: &'static str,
    detail: Option<Cow<'static, str>>,
    /// Whether C may have been changed already, so that cuBLAS cannot compute the product any more.
    pub(crate) too_late: bool,
}

impl Why {
    pub(crate) fn new(reason: &'static str) -> Self {
        Self { reason, detail: None, too_late: false }
    }

    pub(crate) fn with(reason: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: Some(detail.into()), too_late: false }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.reason),
            None => f.write_str(self.reason),
        }
    }
}

impl From<tilewright::Error> for Why {
    fn from(error: tilewright::Error) -> Self {
        Self::with("tilewright cannot compute it", error.to_string())
    }
}

impl From<cuda_driver::Error> for Why {
    fn from(error: cuda_driver::Error) -> Self {
        Self::with("the driver", error.to_string())
    }
}
