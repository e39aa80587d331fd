//! The options of a plan: precision, a kernel by name, the number of splits, tables of measured times.

use super::table::Tables;
use crate::Precision;
use crate::kernels::KernelInfo;

/// What a user wants of a plan. The default is the fastest way to a result that is as accurate as fp32.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The precision; if there is none, that of the kernel, and without a kernel [`Precision::Fp32`].
    pub precision: Option<Precision>,
    /// The kernel, which is used if it can compute the product, whatever is faster.
    pub kernel: Option<&'static KernelInfo>,
    /// Among how many blocks to divide each sum.
    pub splits: Option<u32>,
    /// Which measured times to go by.
    pub tables: Tables,
}

impl Options {
    /// The precision that a plan will have.
    pub(crate) fn precision(&self) -> Precision {
        self.precision.or(self.kernel.map(KernelInfo::precision)).unwrap_or_default()
    }
}

impl From<Precision> for Options {
    fn from(precision: Precision) -> Self {
        Self { precision: Some(precision), ..Self::default() }
    }
}

impl From<&'static KernelInfo> for Options {
    fn from(kernel: &'static KernelInfo) -> Self {
        Self { kernel: Some(kernel), ..Self::default() }
    }
}
