//! A candidate of the planner: a kernel for a product, with the auxiliary kernels before and after it, its number of split-K splits,
//! and where in the workspace its buffers are.

use std::ops::Range;

use cuda_std::KernelFacts;
use gpu_kernels::Triangle;

use super::preparation::{OperandOfKernel, Preparation};
use super::workspace::Layout;
use crate::Bytes;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::kernels::{CLEAR, EPILOGUE, KernelInfo, REPAIR, reduction};
use crate::refusal::Refusal;

/// A kernel, and all that it takes to compute a product with it.
#[derive(Clone, Debug)]
pub(crate) struct KernelCandidate {
    /// The product as it is computed.
    pub(super) product: Description,
    /// Whether that is the product of the transposes: `Cᵀ = Bᵀ·Aᵀ`.
    pub(super) transposed: bool,
    pub(super) kernel: &'static KernelInfo,
    /// The kernel that computes the tiles which the other one skips, if it skips any.
    pub(super) fallback: Option<&'static KernelInfo>,
    pub(super) splits: u32,
    /// For A and B.
    pub(super) preparations: [Preparation; 2],
    /// Where the partial results are in the workspace, in elements; empty without split-K.
    pub(super) partials: Range<usize>,
    /// Where the tile mask is in the workspace, in elements; empty if there is none.
    pub(super) tile_mask: Range<usize>,
    pub(super) workspace_bytes: usize,
    /// Whether rows of results are to be invariant.
    pub(super) invariant: bool,
}

impl KernelCandidate {
    /// How a kernel computes a product that it does not refuse, in so many splits. `invariant` is that of
    /// [`Options`](super::Options): an operand that selects is one like any other, and blocks find out by themselves what has to be computed again, because those that share that decide for a
    /// whole sum what the others decide for each split.
    ///
    /// # Errors
    /// [`Refusal::Workspace`].
    pub(super) fn of(
        kernel: &'static KernelInfo,
        device: &DeviceFacts,
        product: Description,
        transposed: bool,
        splits: u32,
        invariant: bool,
    ) -> Result<Self, Refusal> {
        let memory = device.memory_bytes.unwrap_or(u64::MAX);
        let refused = |bytes: u128| Refusal::Workspace { needs: Bytes(bytes), has: Bytes(memory.into()) };
        let operands = operands(kernel, &product, transposed);
        let orders = operands.map(|operand| operand.order_of_fallback());
        let fallback = kernel.fallback(orders);
        let mut layout = Layout::default();
        let preparations = operands.map(|operand| match product.terms() {
            // Operands may not be read.
            0 => Some(Preparation::InPlace),
            _ => operand.prepare(kernel, fallback.is_some(), &mut layout),
        });
        let partials = match is_divided(kernel, splits) {
            true => {
                let results = product.m as u128 * line_of_partials(product.n) as u128 * product.batch as u128;
                results * u128::from(splits) * kernel.scheme.parts_of_sums() as u128
            }
            false => 0,
        };
        let mask_words = if invariant { 0 } else { kernel.contract.mask_words(&product, splits) };
        let (partials, mask) = (layout.part(partials), layout.part(mask_words));
        let ([Some(a), Some(b)], Some(partials), Some(tile_mask)) = (preparations, partials, mask) else {
            return Err(refused(u128::MAX));
        };
        if layout.bytes() as u64 > memory {
            return Err(refused(layout.bytes() as u128));
        }
        let (preparations, workspace_bytes) = ([a, b], layout.bytes());
        Ok(Self {
            product,
            transposed,
            kernel,
            fallback,
            splits,
            preparations,
            partials,
            tile_mask,
            workspace_bytes,
            invariant,
        })
    }

    /// Whether split-K makes partial results, which a second pass adds up.
    pub(super) fn is_divided(&self) -> bool {
        is_divided(self.kernel, self.splits)
    }

    /// Whether the second pass of split-K does an epilogue, as the last that stores elements of results. (A repair of tiles comes after it.)
    pub(super) fn reduction_does_epilogue(&self) -> bool {
        self.is_divided() && self.tile_mask.is_empty()
    }

    /// Whether the kernel does an epilogue before it stores results, and so does the one that computes what it skips. (A repair of tiles comes after it.)
    pub(super) fn kernel_does_epilogue(&self) -> bool {
        let does = |kernel: &KernelInfo| kernel.contract.does_steps();
        !self.is_divided() && self.tile_mask.is_empty() && does(self.kernel) && self.fallback.is_none_or(does)
    }

    /// Whether an epilogue takes a launch of its own.
    pub(super) fn launches_epilogue(&self) -> bool {
        self.product.has_epilogue && !self.reduction_does_epilogue() && !self.kernel_does_epilogue()
    }

    /// The kernels that it launches, in their order. Not all of them in every run.
    pub(super) fn kernels(&self) -> Vec<KernelFacts> {
        let queued_before = self.kernel.contract.queues_before().iter().map(|(kernel, _)| *kernel);
        let before = Preparation::kernels_of(&self.preparations).into_iter().chain(queued_before);
        let fallback = self.fallback.map(|kernel| kernel.facts);
        let adds = self.is_divided().then(|| reduction(self.splits, self.kernel.scheme.parts_of_sums()));
        let repairs = (!self.tile_mask.is_empty()).then_some(REPAIR);
        let clears = (self.product.part != Triangle::All).then_some(CLEAR);
        let epilogue = self.launches_epilogue().then_some(EPILOGUE);
        let after = [fallback, adds, repairs, epilogue, clears].into_iter().flatten();
        before.chain([self.kernel.facts]).chain(after).collect()
    }

    /// What is worth knowing of it, in a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.transposed {
            notes.push("computed as the transpose, C' = B'·A': the same numbers in the same places".to_owned());
        }
        for (operand, preparation) in
            operands(self.kernel, &self.product, self.transposed).iter().zip(&self.preparations)
        {
            notes.extend(preparation.notes(operand.name));
        }
        if let (Some(fallback), Some(skips)) = (self.fallback, self.kernel.contract.skips()) {
            notes.push(format!("rows of A and columns of B {} are left to {}", skips.lines, fallback.name));
        }
        notes
    }

    /// What runs, in words.
    pub(super) fn steps(&self) -> Vec<String> {
        let Self { product, kernel, splits, .. } = self;
        let operands = operands(kernel, product, self.transposed);
        let prepared = || operands.iter().map(|operand| operand.name).zip(&self.preparations);
        let [of_a, of_b] = &self.preparations;
        let others = [of_b, of_a];
        let own = prepared()
            .zip(others)
            .filter_map(|((name, preparation), other)| preparation.step(name, other, self.transposed));
        let of_fallback =
            prepared().filter_map(|(name, preparation)| preparation.step_of_fallback(name, self.transposed));
        let mut steps: Vec<String> = own.chain(of_fallback).collect();
        for (before, what) in kernel.contract.queues_before() {
            steps.push(format!("{what} with {}", before.name));
        }
        let (divided, adds) = (self.is_divided(), !kernel.contract.makes_partial_sums());
        let in_splits = if *splits > 1 || adds { format!(", {splits} splits") } else { String::new() };
        let to = match (divided, adds) {
            (_, true) => ", and add to the result",
            (true, false) => ", to partial sums in the workspace",
            (false, false) => "",
        };
        let times = match product.batch {
            1 => String::new(),
            _ if kernel.contract.is_batched() => String::new(),
            batch => format!(", once for each of {batch} products"),
        };
        let does_epilogue = product.has_epilogue && self.kernel_does_epilogue();
        let and = if does_epilogue { ", and do the steps of the epilogue" } else { "" };
        steps.push(format!("multiply with {}{in_splits}{to}{times}{and}", kernel.name));
        if let Some(fallback) = self.fallback {
            let name = fallback.name;
            steps.push(format!("multiply the tiles left to the fallback, if there are any, with {name}{to}{and}"));
        }
        if divided {
            let name = reduction(self.splits, kernel.scheme.parts_of_sums()).name;
            let does_epilogue = product.has_epilogue && self.reduction_does_epilogue();
            let and = if does_epilogue { ", and do the steps of the epilogue" } else { "" };
            steps.push(format!("add up the partial sums, in order{and}, with {name}"));
        }
        if !self.tile_mask.is_empty() {
            let name = REPAIR.name;
            steps.push(format!(
                "compute tiles again whose operands cannot be decomposed, if there are any, with {name}"
            ));
        }
        if self.launches_epilogue() {
            steps.push(format!("do the steps of the epilogue with {}", EPILOGUE.name));
        }
        if product.part != Triangle::All {
            steps.push(format!("set to zero what is not wanted of the result, with {}", CLEAR.name));
        }
        steps
    }
}

/// The elements from one row of partial results to the next, for rows of so many: a multiple of four, so that they are read in vectors
/// of 16 bytes, unless rows are shorter than that.
pub(super) const fn line_of_partials(n: usize) -> usize {
    if n < 4 { n } else { n.saturating_add(3) / 4 * 4 }
}

fn is_divided(kernel: &KernelInfo, splits: u32) -> bool {
    splits > 1 && kernel.contract.makes_partial_sums()
}

/// The operands of a product, and how a kernel needs them.
fn operands(kernel: &KernelInfo, product: &Description, transposed: bool) -> [OperandOfKernel; 2] {
    let Description { m, n, k, batch, a, b, packed: [packed_a, packed_b], .. } = *product;
    // As the caller calls them.
    let [name_of_a, name_of_b] = if transposed { ["B", "A"] } else { ["A", "B"] };
    let (of_a, of_b) = (OperandOfKernel::left(a, [m, k], batch), OperandOfKernel::right(b, [k, n], batch));
    [
        OperandOfKernel { name: name_of_a, needs: kernel.a, packed: packed_a, ..of_a },
        OperandOfKernel { name: name_of_b, needs: kernel.b, packed: packed_b, ..of_b },
    ]
}
