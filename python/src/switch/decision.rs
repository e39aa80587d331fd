//! Which products the switch takes: those that a plan can be made for and that are predicted to be faster by more than a call costs.
//!
//! A decision depends on shapes, strides and alignment, never on numbers, so it is made once for each and kept.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tilewright::plan::{GemmPlan, Machine, Options, Processor, Triangle};
use tilewright::{Device, Precision, Wanted};

use crate::engine::{Place, Planned, Stream, descriptions};
use crate::error::Failure;
use crate::shape::{Products, View};

use super::records::{Predicted, Reason, Record, Taken, record};

/// What a launch may cost the processor beside torch's own way, in milliseconds: a product has to be predicted to be faster by more, for each
/// of its launches.
const LAUNCH_MS: f64 = 2e-3;

/// What even the slowest GPU of compute capability 8.0 or higher computes within that time by fp32 instructions: below it, nothing
/// can be gained, and nothing is looked up.
pub(super) const SMALL_OPERATIONS: f64 = 5e6;

/// The decisions that are kept, at most; then all are made again.
const MOST: usize = 4096;

/// What the switch is set to. There is one of each for the whole process, which stays.
pub(super) struct Setting {
    pub(super) precision: String,
    pub(super) wanted: Wanted,
    /// Whether products go to torch that are not predicted to be faster.
    pub(super) only_faster: bool,
    /// Whether it is the CPU executor that computes, for tests.
    pub(super) on_cpu: bool,
    decisions: RwLock<HashMap<Question, Arc<Decision>>>,
}

/// What a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) operator: &'static str,
    pub(super) place: Place,
    /// Of a, b and c.
    pub(super) layouts: [Layout; 3],
    /// Whether β·c is added.
    pub(super) adds: bool,
    /// Whether what is added has to be copied to the result first.
    pub(super) fills: bool,
}

/// Where the elements of a tensor lie, of at most three extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    pub(super) rank: usize,
    pub(super) sizes: [i64; 3],
    pub(super) strides: [i64; 3],
    /// The address, as far as kernels make a difference by it.
    pub(super) alignment: usize,
}

/// What is done with a product.
pub(super) enum Decision {
    PassOn(Reason),
    Take(Box<Take>),
}

/// How a product is computed, and counted.
pub(super) struct Take {
    pub(super) planned: Planned,
    pub(super) record: Arc<Record>,
    pub(super) taken: Taken,
}

impl Layout {
    /// The alignment of an address.
    pub(super) fn aligned(self, address: usize) -> Self {
        Self { alignment: 1 << (16 | address).trailing_zeros(), ..self }
    }

    pub(super) fn sizes(&self) -> &[i64] {
        &self.sizes[..self.rank]
    }

    pub(super) fn strides(&self) -> &[i64] {
        &self.strides[..self.rank]
    }

    /// A tensor without gaps, by rows.
    pub(super) fn contiguous(sizes: &[i64]) -> Self {
        let mut layout = Self { rank: sizes.len(), alignment: 16, ..Self::default() };
        let mut stride = 1;
        for place in (0..sizes.len()).rev() {
            layout.sizes[place] = sizes[place];
            layout.strides[place] = stride;
            stride *= sizes[place].max(1);
        }
        layout
    }

    /// The elements from the first to the last.
    pub(super) fn span(&self) -> usize {
        let distances = self.sizes().iter().zip(self.strides()).map(|(size, stride)| (size - 1).max(0) * stride);
        distances.sum::<i64>() as usize + 1
    }

    pub(super) fn view(&self) -> View {
        let numbers = |values: &[i64]| values.iter().map(|&value| value as usize).collect();
        View { shape: numbers(self.sizes()), strides: numbers(self.strides()) }
    }
}

impl Setting {
    pub(super) fn new(precision: String, wanted: Wanted, only_faster: bool, on_cpu: bool) -> Self {
        Self { precision, wanted, only_faster, on_cpu, decisions: RwLock::default() }
    }

    /// What is done with a product, if that has been decided.
    pub(super) fn known(&self, question: &Question) -> Option<Arc<Decision>> {
        self.decisions.read().unwrap_or_else(PoisonError::into_inner).get(question).cloned()
    }

    /// Decides what is done with a product of tensors at these addresses.
    ///
    /// # Safety
    /// The device is a handle of the place's, made for this stream, which is valid.
    pub(super) unsafe fn decide(
        &self,
        question: Question,
        device: &Device,
        stream: Stream,
        addresses: [usize; 3],
    ) -> Result<Arc<Decision>, Failure> {
        // SAFETY: the caller's promise.
        let made = Arc::new(unsafe { self.make(&question, device, stream, addresses)? });
        let mut decisions = self.decisions.write().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= MOST {
            decisions.clear();
        }
        decisions.insert(question, made.clone());
        Ok(made)
    }

    /// # Safety
    /// As for [`Setting::decide`].
    unsafe fn make(
        &self,
        question: &Question,
        device: &Device,
        stream: Stream,
        addresses: [usize; 3],
    ) -> Result<Decision, Failure> {
        let [a, b, c] = question.layouts.each_ref().map(Layout::view);
        if c.overlaps_itself() {
            return Ok(Decision::PassOn(Reason::Overlap));
        }
        let products = Products::new(&a, &b, &c, Triangle::All, false);
        let sizes = [products.m, products.n, products.k, products.count * products.offsets().count()];
        let options = Options::from(self.wanted);
        // Before kernels are loaded, which may take the driver seconds.
        let predicted = predicted(&products, device, &options, addresses, question)?;
        if self.only_faster && predicted.is_some_and(|(predicted, launches)| !is_worth_it(predicted, launches)) {
            return Ok(Decision::PassOn(Reason::NotFaster));
        }
        // SAFETY: the caller's promise.
        let planned =
            unsafe { Planned::new(question.place, device, stream, &options, products, addresses, question.adds)? };
        let kernel = planned.plans.first().map_or("none", |plan| plan.kernel().name);
        let taken = Taken { operator: question.operator, sizes, precision: self.precision.clone(), kernel };
        let predicted = predicted.map(|(predicted, _)| predicted);
        Ok(Decision::Take(Box::new(Take { record: record(taken.clone(), predicted), planned, taken })))
    }
}

/// Whether a product is faster by more than its launches cost.
fn is_worth_it(Predicted { here, torch }: Predicted, launches: u64) -> bool {
    torch - here > LAUNCH_MS * launches as f64
}

/// What the products should take, and by how many launches; none on the CPU executor, of whose times nothing is known.
///
/// Torch multiplies fp32 by cuBLAS, in fp32 instructions. What the fastest of the kernels here takes that does so stands for it.
fn predicted(
    products: &Products,
    device: &Device,
    options: &Options,
    addresses: [usize; 3],
    question: &Question,
) -> Result<Option<(Predicted, u64)>, Failure> {
    let mut sum = Predicted { here: 0.0, torch: 0.0 };
    let mut launches = u64::from(question.fills);
    for product in descriptions(products, addresses, question.adds) {
        let product = product?;
        let planned = GemmPlan::new(device, &product, options)?;
        let strict = GemmPlan::new(device, &product, &Options::from(Precision::Fp32Strict))?;
        let (Some(here), Some(torch)) = (planned.explanation().estimated_ms, strict.explanation().estimated_ms) else {
            return Ok(None);
        };
        sum = Predicted { here: sum.here + here, torch: sum.torch + torch };
        launches += planned.launches();
        let facts = &planned.explanation().device;
        if question.fills
            && let Processor::Gpu { compute_capability, .. } = facts.processor
        {
            // Copying what is added to the result: another launch, which reads and writes.
            let machine = Machine::built_in(Some(compute_capability), facts.multiprocessors);
            let bytes = 8.0 * product.m as f64 * product.n as f64 * product.batch as f64;
            sum.here += 1e3 * (machine.next_launch_seconds + bytes / machine.bandwidth);
        }
    }
    Ok(Some((sum, launches)))
}
