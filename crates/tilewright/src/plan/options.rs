//! The options of a plan: precision, a kernel by name, the number of splits, tables of measured times.

use super::table::Tables;
use crate::constants::ConstantsChoice;
use crate::kernels::KernelInfo;
use crate::{Accuracy, Error, Precision, Wanted};

/// What a user wants of a plan. The default is the fastest way to a result that is as accurate as fp32.
///
/// ```
/// use tilewright::plan::{Description, GemmPlan, Options, Placement};
/// use tilewright::{Accuracy, Device, Sizes};
///
/// let device = Device::cpu(cuda_std::executor::Checks::Bounds);
/// let (sizes, placed) = (Sizes { m: 8, n: 8, k: 64 }, Placement::row_major);
/// let product = Description::new(sizes, 1, placed(64), placed(8), placed(8))?;
/// let plan = GemmPlan::new(&device, &product, &Options::from(Accuracy::Guarantee(1e-7)))?;
/// assert!(plan.kernel().scheme.bounds(64).unwrap().guaranteed <= 1e-7);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The precision; if there is none, that of the kernel, and without a kernel [`Precision::Fp32`].
    pub precision: Option<Precision>,
    /// An error that is small enough, in place of a precision: of all kernels that keep it, the fastest is taken.
    pub accuracy: Option<Accuracy>,
    /// The kernel, which is used if it can compute the product, whatever is faster.
    pub kernel: Option<&'static KernelInfo>,
    /// Among how many blocks to divide each sum.
    pub splits: Option<u32>,
    /// Which measured times to go by.
    pub tables: Tables,
    /// Whether a row of C shall have bits that depend on nothing but that row of A, and of the old C, on B, n, k, α and β: not on how many rows
    /// come with it, which, where they lie, or where in a batch the product is. That holds on one GPU, for one precision, version of
    /// this crate and set of [constants](Self::constants). It takes kernels that add up in one order, with splits that n and k alone decide, and no measured times.
    pub invariant: bool,
    /// Which constants the model goes by, where no measured time decides.
    pub constants: ConstantsChoice,
}

impl Options {
    /// What decides which kernels there are to choose from.
    pub(crate) fn wanted(&self) -> Wanted {
        let precision = || self.precision.or(self.kernel.map(KernelInfo::precision)).unwrap_or_default();
        self.accuracy.map_or_else(|| precision().into(), Wanted::from)
    }

    /// Refuses options that contradict one another.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.splits == Some(0) {
            return Err(Error::Usage("splits is 0: sums are divided among at least one block".to_owned()));
        }
        if let (Some(precision), Some(accuracy)) = (self.precision, self.accuracy) {
            return Err(Error::Usage(format!("{precision} and {accuracy} are both asked for: leave one of them out")));
        }
        self.accuracy.map_or(Ok(()), Accuracy::check).map_err(Error::Usage)
    }
}

impl From<Precision> for Options {
    fn from(precision: Precision) -> Self {
        Self { precision: Some(precision), ..Self::default() }
    }
}

impl From<Accuracy> for Options {
    fn from(accuracy: Accuracy) -> Self {
        Self { accuracy: Some(accuracy), ..Self::default() }
    }
}

impl From<Wanted> for Options {
    fn from(wanted: Wanted) -> Self {
        match wanted {
            Wanted::Precision(precision) => precision.into(),
            Wanted::Accuracy(accuracy) => accuracy.into(),
        }
    }
}

impl From<&'static KernelInfo> for Options {
    fn from(kernel: &'static KernelInfo) -> Self {
        Self { kernel: Some(kernel), ..Self::default() }
    }
}
