//! Plans: which kernel computes a product, and what has to happen before and after it.
//!
//! ```text
//!  Description ─┐                 eligible?  every kernel of the registry, each with the reason why not
//!  DeviceFacts ─┼─► plan ───────► preferred? a table of measured times, otherwise a model
//!  Options ─────┘     │
//!                     ▼
//!                 GemmPlan        explanation(), workspace(), run()
//!
//!  run:   prepare A, prepare B  ─►  multiply  ─►  multiply what is unfit  ─►  add up partial sums  ─►  clear
//!         └── where needed ──┘                    └── where operands may be ┘  └── of divided sums ┘   └── what is not wanted
//! ```
//!
//! A plan depends on sizes, strides and alignment, not on addresses or numbers: it is made once and run often, on operands
//! that are placed alike. Running allocates nothing, copies nothing between host and device, and does not wait.
//!
//! All sizes are checked when the plan is made, before anything is allocated.
//!
//! ```
//! use tilewright::plan::{Description, GemmPlan, Options};
//! use tilewright::{Device, DeviceMatrix, Precision};
//!
//! let (device, _why_no_gpu) = Device::open()?;
//! let a = DeviceMatrix::upload(&device, ndarray::array![[1.0, 2.0], [3.0, 4.0]].view())?;
//! let mut c = DeviceMatrix::unwritten(&device, ndarray::Array2::zeros((2, 2)).view())?;
//!
//! let product = Description::of(1.0, &a, &a, 0.0, &c)?;
//! let plan = GemmPlan::new(&device, &product, &Options::from(Precision::Fp32Strict))?;
//! println!("{}", plan.explanation());
//! let mut workspace = plan.workspace(&device)?;
//! for _ in 0..3 {
//!     plan.run(&device, 1.0, &a, &a, 0.0, &mut c, &mut workspace)?;
//! }
//! # let mut square = ndarray::Array2::zeros((2, 2));
//! # c.download(square.view_mut())?;
//! # assert_eq!(square, ndarray::array![[7.0, 10.0], [15.0, 22.0]]);
//! # Ok::<(), tilewright::Error>(())
//! ```

mod choose;
mod description;
mod explanation;
mod facts;
mod model;
mod preparation;
mod refusal;
mod run;
pub mod table;
mod workspace;

use std::ops::Range;

pub use choose::plan;
pub use description::{Description, Placement, Storage};
pub use explanation::{Candidate, Explanation, Reason};
pub use facts::{DeviceFacts, Processor};
pub use gpu_kernels::Triangle;
pub use model::candidate_splits;
pub use refusal::Refusal;
pub use table::{Table, TableFault, Tables};
pub use workspace::Workspace;
pub(crate) use workspace::read;

use cuda_std::KernelFacts;

use crate::kernels::{self, KernelInfo};
use crate::{Device, Error, Precision};
use preparation::Preparation;

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

/// A product that is ready to be computed, on operands that are placed as described.
#[derive(Clone, Debug)]
pub struct GemmPlan {
    product: Description,
    /// The transposes are multiplied: `Cᵀ = Bᵀ·Aᵀ`.
    transposed: bool,
    kernel: &'static KernelInfo,
    /// The kernel that computes what the other one leaves out, if it leaves out anything.
    fallback: Option<&'static KernelInfo>,
    splits: u32,
    /// For A and B of the product as it is computed.
    preparations: [Preparation; 2],
    /// Where the partial sums are in the workspace, in elements.
    partials: Range<usize>,
    /// Where the marks of blocks are, likewise.
    marks: Range<usize>,
    workspace_bytes: usize,
    explanation: Explanation,
}

impl GemmPlan {
    /// Makes a plan for a device.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if no kernel of the precision can compute the product, with the reason for each;
    /// [`Error::Ineligible`] if the kernel that is asked for cannot, with the reason and with those that could;
    /// [`Error::TableForOtherGpu`] for a table of another GPU; [`Error::Usage`] for no splits at all.
    pub fn new(device: &Device, product: &Description, options: &Options) -> Result<Self, Error> {
        choose::choose(&DeviceFacts::of(device), product, options, |kernel| device.has_kernel(&kernel.facts).is_ok())
    }

    /// The product.
    pub fn product(&self) -> &Description {
        &self.product
    }

    /// The kernel that multiplies.
    pub fn kernel(&self) -> &'static KernelInfo {
        self.kernel
    }

    /// The precision asked for, which the kernel keeps.
    pub fn precision(&self) -> Precision {
        self.explanation.precision
    }

    /// Among how many blocks each sum is divided.
    pub fn splits(&self) -> u32 {
        self.splits
    }

    /// The memory that [`GemmPlan::run`] needs besides the operands.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// The parts of the workspace that [`GemmPlan::run`] writes to, in elements and in their order: of A and of B packed words,
    /// extremes, factors, flags, ends of zeros and a copy, then the partial sums, and the marks of blocks. What the plan does
    /// not need is empty.
    pub fn workspace_parts(&self) -> [Range<usize>; 14] {
        let [[a0, a1, a2, a3, a4, a5], [b0, b1, b2, b3, b4, b5]] = self.preparations.each_ref().map(Preparation::parts);
        [a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5, self.partials.clone(), self.marks.clone()]
    }

    /// All kernels that [`GemmPlan::run`] may launch, in their order.
    pub fn kernels(&self) -> Vec<KernelFacts> {
        let adds = (self.splits > 1 || self.kernel.varies).then_some(kernels::REDUCTION);
        let repairs = (!self.marks.is_empty()).then_some(kernels::REPAIR);
        let clears = (self.product.part != Triangle::All).then_some(kernels::CLEAR);
        let before = self.preparations.iter().flat_map(Preparation::kernels);
        let after = self.fallback.map(|kernel| kernel.facts).into_iter().chain(adds).chain(repairs).chain(clears);
        before.chain([self.kernel.facts]).chain(after).collect()
    }

    /// Has the device load the kernels of the plan, so that no run has to. Does nothing if they are loaded, or on the CPU.
    ///
    /// # Errors
    /// Those of [`Device::prepare`](runtime::Device::prepare).
    pub fn load(&self, device: &Device) -> Result<(), Error> {
        self.kernels().iter().try_for_each(|kernel| Ok(device.prepare(kernel).map(drop)?))
    }

    /// Allocates the workspace that the plan needs.
    ///
    /// # Errors
    /// As for [`Workspace::new`].
    pub fn workspace(&self, device: &Device) -> Result<Workspace, Error> {
        Workspace::new(device, self.workspace_bytes)
    }

    /// What the plan does, and why.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }
}
