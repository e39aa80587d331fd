//! [`GemmPlan`], the result of planning: the chosen kernel, the workspace it needs, and the explanation of the choice.

use std::ops::Range;

use cuda_std::KernelFacts;

use super::explanation::Explanation;
use super::kernel_candidate::KernelCandidate;
use super::preparation::Preparation;
use super::workspace::Workspace;
use crate::description::Description;
use crate::kernels::KernelInfo;
use crate::{Device, Error, Precision};

/// A product that is ready to be computed, on operands that are placed as described.
#[derive(Clone, Debug)]
pub struct GemmPlan {
    pub(super) product: Description,
    pub(super) candidate: KernelCandidate,
    pub(super) explanation: Explanation,
}

impl GemmPlan {
    /// The product.
    pub fn product(&self) -> &Description {
        &self.product
    }

    /// The kernel that multiplies.
    pub fn kernel(&self) -> &'static KernelInfo {
        self.candidate.kernel
    }

    /// The precision asked for, which the kernel keeps; where an [accuracy](crate::Accuracy) is, that of the kernel.
    pub fn precision(&self) -> Precision {
        self.explanation.precision
    }

    /// Among how many blocks each sum is divided.
    pub fn splits(&self) -> u32 {
        self.candidate.splits
    }

    /// Whether A and B are read as they were packed before ([`PackedMatrix`](crate::PackedMatrix)), and not as they are.
    ///
    /// ```
    /// use tilewright::plan::{Description, GemmPlan, Options, Placement};
    /// use tilewright::{Device, Precision, Sizes};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let placed = Placement::row_major;
    /// let product = Description::new(Sizes { m: 1, n: 1, k: 1 }, 1, placed(1), placed(1), placed(1))?;
    /// let plan = GemmPlan::new(&device, &product, &Options::from(Precision::Fp32))?;
    /// assert_eq!(plan.reads_packed(), [false, false]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn reads_packed(&self) -> [bool; 2] {
        let [a, b] = self.candidate.preparations.each_ref().map(Preparation::was_packed);
        if self.candidate.transposed { [b, a] } else { [a, b] }
    }

    /// The memory that [`GemmPlan::run`] needs besides the operands.
    pub fn workspace_bytes(&self) -> usize {
        self.candidate.workspace_bytes
    }

    /// The parts of the workspace that [`GemmPlan::run`] writes to, in elements and in their order: of A and of B packed words,
    /// extremes, factors, flags, ends of zeros, exceptions and a copy, then the partial sums, and the tile mask. What the plan does not
    /// need is empty.
    pub fn workspace_parts(&self) -> [Range<usize>; 16] {
        let KernelCandidate { preparations, partials, tile_mask, .. } = &self.candidate;
        let [[a0, a1, a2, a3, a4, a5, a6], [b0, b1, b2, b3, b4, b5, b6]] =
            preparations.each_ref().map(Preparation::parts);
        [a0, a1, a2, a3, a4, a5, a6, b0, b1, b2, b3, b4, b5, b6, partials.clone(), tile_mask.clone()]
    }

    /// All kernels that [`GemmPlan::run`] may launch, in their order.
    pub fn kernels(&self) -> Vec<KernelFacts> {
        self.candidate.kernels()
    }

    /// How many kernels [`GemmPlan::run`] launches: each of [`GemmPlan::kernels`] once, but for one that computes a product of a
    /// batch at a time, which nobody gets unasked.
    pub fn launches(&self) -> u64 {
        if self.product.is_empty() {
            return 0;
        }
        let each = if self.kernel().contract.is_batched() { 1 } else { self.candidate.product.batch as u64 };
        self.kernels().len() as u64 - 1 + each
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
        Workspace::new(device, self.candidate.workspace_bytes)
    }

    /// What the plan does, and why.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }
}
