//! Plans: which kernel computes a product, and what has to happen before and after it.
//!
//! ```text
//!  Description ─┐                 eligible?  every kernel of the registry, each with the reason why not
//!  DeviceFacts ─┼─► plan ───────► preferred? a table of measured times, otherwise a model
//!  Options ─────┘     │                           with what is known of the GPU: [`Constants`]
//!                     ▼
//!                 GemmPlan        explanation(), workspace(), run()
//!
//!  run:   prepare A, prepare B  ─►  multiply  ─►  multiply the fallback's tiles  ─►  add up partials  ─►  clear
//!         └── where needed ──┘                    └── where there may be any ┘       └── of split-K ┘    └── what is not wanted
//! ```
//!
//! A plan depends on sizes, strides and alignment, not on addresses or numbers: it is made once and run often, on operands
//! that are placed alike. [`Device::plan`](crate::Device::plan) keeps those that were made. Running allocates nothing, copies nothing between host and device, and does not wait.
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

mod cache;
mod choose;
mod explanation;
pub mod fit;
mod gemm_plan;
mod grouped;
mod grouped_choice;
mod grouped_explanation;
mod invariance;
mod kernel_candidate;
mod model;
mod options;
mod packing;
mod preparation;
mod run;
pub mod table;
#[cfg(test)]
mod tests;
mod used_constants;
mod workspace;

pub use crate::constants::{
    Constants, ConstantsChoice, ConstantsFault, KernelConstants, Machine, MeasuredConstants, MeasuredOn,
};
pub use crate::description::Description;
pub use crate::device_facts::{DeviceFacts, Processor};
pub use crate::placement::Placement;
pub use crate::refusal::Refusal;
pub use crate::stored::{CONSTANTS_VARIABLE, StoredConstants, constants_path, read as read_constants};
pub use choose::plan;
pub use explanation::{Candidate, Explanation, Reason};
pub use gemm_plan::GemmPlan;
pub use gpu_kernels::Triangle;
pub use grouped::{GroupedPlan, grouped_plan};
pub(crate) use grouped_choice::grouped_kernel;
pub use grouped_explanation::{GroupedCandidate, GroupedExplanation, GroupedLaunch};
pub use model::{Features, candidate_splits, resident_blocks};
pub use options::Options;
pub use table::{Table, TableFault, Tables};
pub use used_constants::source_of_constants;
pub use workspace::Workspace;
