//! Decides whether a kernel can compute a product, and with which reason it refuses. The [planner](crate::plan) chooses among
//! the kernels that can.

use gpu_kernels::gemm::tiles::MAX_BLOCKS;

use super::contract::{Copies, KernelInfo};
use super::scheme::Scheme;
use crate::Wanted;
use crate::description::Description;
use crate::device_facts::{DeviceFacts, Processor};
use crate::refusal::Refusal;

impl KernelInfo {
    /// Whether it may compute products of so many terms. Where nothing is multiplied, nothing is rounded: what computes in fp32 is right
    /// in every precision.
    pub(super) fn may_serve(&self, wanted: Wanted, terms: usize) -> bool {
        self.scheme.may_serve(wanted, terms) || (terms == 0 && self.scheme == Scheme::Fp32)
    }

    /// Why the kernel cannot compute a product in a precision, or as accurately as that, on a device, or may not unless it is named;
    /// `None` if it can. What it is best at does not matter here.
    pub fn refusal(
        &self,
        device: &DeviceFacts,
        product: &Description,
        wanted: impl Into<Wanted>,
        splits: Option<u32>,
    ) -> Option<Refusal> {
        let wanted = wanted.into();
        if !self.may_serve(wanted, product.terms()) {
            return Some(match wanted {
                Wanted::Precision(wanted) => Refusal::Precision { has: self.precision(), wanted },
                Wanted::Accuracy(wanted) => Refusal::Accuracy {
                    has: self.scheme.bounds(product.terms()).map(|bounds| wanted.of(bounds)),
                    wanted,
                },
            });
        }
        let most = self.most();
        if product.n > most.n {
            return Some(Refusal::ManyColumns { most: most.n, n: product.n });
        }
        if product.terms() > most.k {
            return Some(Refusal::LongK { most: most.k });
        }
        if let (Some(needs), Processor::Gpu { sm_90a: false, .. }) = (self.facts.arch, device.processor) {
            return Some(Refusal::Architecture { needs, device: device.to_string() });
        }
        if let Err(excess) = device.limits.check(&self.facts) {
            return Some(Refusal::Excess { device: device.to_string(), excess });
        }
        for (operand, needs, has) in [("A", self.a, product.a), ("B", self.b, product.b)] {
            let can_be_copied = match self.contract.copies() {
                Copies::Nothing => false,
                Copies::Spread => has.order().is_none(),
                Copies::Everything => true,
            };
            // Without terms, operands may not be read.
            let is_copied = can_be_copied && product.terms() > 0;
            if let Some(needs) = needs
                && has.order() != Some(needs)
                && !is_copied
            {
                return Some(Refusal::Layout { operand, needs, has: has.order_in_words() });
            }
        }
        if self.loads_by_tensor_maps() && product.terms() == 0 && !product.is_empty() {
            return Some(Refusal::EmptyK);
        }
        let (own, own_unless_named) = match self.contract.refusal(product) {
            Some(refusal) if refusal.yields_to_name() => (None, Some(refusal)),
            refusal => (refusal, None),
        };
        own.or_else(|| self.refusal_of_grid(product, splits.unwrap_or_else(|| self.contract.fewest_splits(product))))
            .or(own_unless_named)
            .or_else(|| self.refusal_unless_named(device, product))
    }

    /// Why it cannot compute a product in so many blocks.
    fn refusal_of_grid(&self, product: &Description, splits: u32) -> Option<Refusal> {
        let fewest = self.contract.fewest_splits(product);
        if splits < fewest {
            return Some(Refusal::TooFewSplits { splits, fewest });
        }
        if splits > 1 && !self.divides_sums {
            return Some(Refusal::NoSplits { splits });
        }
        let most = self.pieces(product);
        if splits > most {
            return Some(Refusal::TooManySplits { splits, most });
        }
        if let Some(refusal) = self.contract.refusal_of_grid(self.tile, product, splits) {
            return Some(refusal);
        }
        let parts = if splits > 1 { self.scheme.parts_of_sums() } else { 1 };
        let results = product.batch as u128 * u128::from(splits) * parts as u128;
        (self.divides_sums && results > u128::from(MAX_BLOCKS)).then_some(Refusal::TooManyBlocks { blocks: results })
    }

    /// Why it may not compute a product unless it is named.
    fn refusal_unless_named(&self, device: &DeviceFacts, product: &Description) -> Option<Refusal> {
        if product.batch > 1 && !self.contract.is_batched() {
            return Some(Refusal::LaunchForEach { batch: product.batch });
        }
        // The executor's models of Hopper's instructions are slow.
        if device.is_cpu() && self.facts.arch.is_some() {
            return Some(Refusal::SlowOnCpu);
        }
        (!self.deterministic).then_some(Refusal::NotDeterministic)
    }
}
