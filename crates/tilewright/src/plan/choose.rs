//! The choice: all kernels, those that can compute a product, the one that should.

use super::explanation::{Candidate, Explanation, Reason};
use super::gemm_plan::GemmPlan;
use super::model;
use super::options::Options;
use super::table::Table;
use super::way::Way;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::kernels::contract::Copies;
use crate::kernels::{ALL, Family, KernelInfo, Scheme};
use crate::placement::Storage;
use crate::refusal::Refusal;
use crate::{Device, Error, Precision};

impl GemmPlan {
    /// Makes a plan for a device.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if no kernel of the precision can compute the product, with the reason for each;
    /// [`Error::Ineligible`] if the kernel that is asked for cannot, with the reason and with those that could;
    /// [`Error::TableForOtherGpu`] for a table of another GPU; [`Error::Usage`] for no splits at all.
    pub fn new(device: &Device, product: &Description, options: &Options) -> Result<Self, Error> {
        let is_loaded = |kernel: &KernelInfo| device.has_kernel(&kernel.facts).is_ok();
        choose(&ALL, &DeviceFacts::of(device), product, options, is_loaded)
    }
}

/// Makes a plan for a device that need not be there.
///
/// # Errors
/// As for [`GemmPlan::new`].
pub fn plan(device: &DeviceFacts, product: &Description, options: &Options) -> Result<GemmPlan, Error> {
    choose(&ALL, device, product, options, |_| true)
}

/// A way to compute the product, and the time that the model estimates.
struct Estimated {
    way: Way,
    ms: f64,
}

/// A kernel, and the best way in which it can compute the product, or why it cannot.
type Judged = (&'static KernelInfo, Result<Estimated, Refusal>);

/// What a choice is made from.
struct Question<'a> {
    /// The kernels that there are.
    kernels: &'a [&'static KernelInfo],
    device: &'a DeviceFacts,
    product: &'a Description,
    precision: Precision,
    splits: Option<u32>,
}

/// As [`plan`], of these kernels as far as the device has them.
pub(super) fn choose(
    kernels: &[&'static KernelInfo],
    device: &DeviceFacts,
    product: &Description,
    options: &Options,
    is_loaded: impl Fn(&KernelInfo) -> bool,
) -> Result<GemmPlan, Error> {
    if options.splits == Some(0) {
        return Err(Error::Usage("splits is 0: sums are divided among at least one block".to_owned()));
    }
    let precision = options.precision();
    let table = options.tables.table(device)?;
    let question = Question { kernels, device, product, precision, splits: options.splits };
    let mut ways: Vec<Judged> = (kernels.iter())
        .map(|&kernel| {
            let way = match is_loaded(kernel) {
                true => question.way(kernel, options.kernel.is_some_and(|named| std::ptr::eq(named, kernel))),
                false => Err(Refusal::NotInPtx { device: device.to_string() }),
            };
            (kernel, way)
        })
        .collect();

    let (chosen, reason) = match options.kernel {
        Some(named) => match ways.iter().position(|(kernel, _)| std::ptr::eq(*kernel, named)) {
            Some(index) if ways[index].1.is_ok() => (index, Reason::Name),
            Some(_) | None => return Err(question.ineligible(named, &ways)),
        },
        None => match table.and_then(|table| question.measured(&mut ways, table)) {
            Some(choice) => choice,
            None => question.preferred(&ways).ok_or_else(|| question.no_kernel(&ways))?,
        },
    };
    Ok(question.plan(ways, chosen, reason))
}

impl Question<'_> {
    /// How a kernel would compute the product.
    fn way(&self, kernel: &'static KernelInfo, named: bool) -> Result<Estimated, Refusal> {
        // Where all operands may have to be copied, of the transposes perhaps less.
        if kernel.contract.copies() == Copies::Everything {
            let ways = [false, true].map(|transposed| self.way_of(kernel, named, transposed));
            return match ways {
                [Ok(one), Ok(other)] => Ok(if other.ms < one.ms { other } else { one }),
                [Err(_), Ok(way)] => Ok(way),
                [way, Err(_)] => way,
            };
        }
        // The transposes, too, where C is stored by columns, or is a row that is a column then.
        let by_columns = self.product.c.storage() == Storage::ByColumns || self.product.m == 1;
        if by_columns && let Ok(way) = self.way_of(kernel, named, true) {
            return Ok(way);
        }
        self.way_of(kernel, named, false)
    }

    fn way_of(&self, kernel: &'static KernelInfo, named: bool, transposed: bool) -> Result<Estimated, Refusal> {
        let product = if transposed { self.product.transposed() } else { *self.product };
        match kernel.refusal(self.device, &product, self.precision, self.splits) {
            Some(refusal) if !(named && refusal.yields_to_name()) => return Err(refusal),
            Some(_) | None => {}
        }
        let candidates = match self.splits {
            Some(splits) => vec![splits],
            None if self.device.is_cpu() => vec![1],
            None => model::candidate_splits(kernel, self.device, &product),
        };
        let ways = candidates.into_iter().map(|splits| {
            let way = Way::of(kernel, self.device, product, transposed, splits)?;
            Ok(Estimated { ms: model::estimate(self.device, &way), way })
        });
        // The fastest; if there is none, the reason of the first.
        ways.reduce(|best, way| match (&best, &way) {
            (Ok(one), Ok(other)) if other.ms < one.ms => way,
            (Err(_), Ok(_)) => way,
            _ => best,
        })
        .unwrap_or(Err(Refusal::NoTerms))
    }

    /// The way that a table has as the fastest of those that there are, and why.
    fn measured(&self, ways: &mut [Judged], table: &Table) -> Option<(usize, Reason)> {
        // A kernel that is newer than the table, and should be faster than all others.
        if self.preferred(ways).is_some_and(|(index, _)| !table.has(ways[index].0.name)) {
            return None;
        }
        let (entry, exact) = table.nearest(self.product, self.precision)?;
        let position = |name: &str| ways.iter().position(|(kernel, way)| kernel.name == name && way.is_ok());
        let (index, time) = entry.times.iter().find_map(|time| Some((position(&time.kernel)?, time)))?;
        if exact && self.splits.is_none() {
            let splits = Some(time.splits);
            if let Ok(way) = (Question { splits, ..*self }).way(ways[index].0, false) {
                ways[index].1 = Ok(way);
            }
        }
        let (source, measured, median_us) = (table.source(), entry.product(), time.median_us);
        Some((index, Reason::Table { source, measured, median_us }))
    }

    /// The way that is taken if no kernel is named and nothing is measured, and why.
    fn preferred(&self, ways: &[Judged]) -> Option<(usize, Reason)> {
        let possible = || ways.iter().enumerate().filter_map(|(index, (_, way))| Some((index, way.as_ref().ok()?)));
        if self.device.is_cpu() {
            let (index, _) = possible().max_by_key(|(index, way)| (way.way.kernel.family() == Family::Gemv, *index))?;
            return Some((index, Reason::Ladder));
        }
        let (index, _) = possible().min_by(|(_, one), (_, other)| one.ms.total_cmp(&other.ms))?;
        Some((index, Reason::Model))
    }

    fn ineligible(&self, named: &'static KernelInfo, ways: &[Judged]) -> Error {
        let refusal =
            ways.iter().find(|(kernel, _)| std::ptr::eq(*kernel, named)).and_then(|(_, way)| way.as_ref().err());
        Error::Ineligible {
            kernel: named.name,
            product: self.product.to_string(),
            reason: Box::new(refusal.cloned().unwrap_or(Refusal::NotInPtx { device: self.device.to_string() })),
            others: ways.iter().filter(|(_, way)| way.is_ok()).map(|(kernel, _)| kernel.name).collect(),
        }
    }

    fn no_kernel(&self, ways: &[Judged]) -> Error {
        let of_the_precision = ways.iter().filter_map(|(kernel, way)| match way {
            Err(Refusal::Precision { .. }) | Ok(_) => None,
            Err(refusal) => Some((kernel.name, refusal.clone())),
        });
        let precisions = Precision::ALL.into_iter().filter(|&precision| {
            let question = Question { precision, ..*self };
            self.kernels.iter().any(|kernel| question.way(kernel, false).is_ok())
        });
        Error::NoKernel {
            precision: self.precision,
            product: self.product.to_string(),
            device: self.device.to_string(),
            refusals: of_the_precision.collect(),
            precisions: precisions.collect(),
        }
    }

    fn plan(&self, mut ways: Vec<Judged>, chosen: usize, reason: Reason) -> GemmPlan {
        let timed = !self.device.is_cpu();
        let mut candidates: Vec<Candidate> = (ways.iter())
            .map(|(kernel, way)| Candidate {
                kernel: kernel.name.to_owned(),
                splits: way.as_ref().map_or(1, |way| way.way.splits),
                estimated_ms: way.as_ref().ok().filter(|_| timed).map(|way| way.ms),
                refusal: way.as_ref().err().map(Refusal::to_string),
            })
            .collect();
        candidates.sort_by(|one, other| {
            let key = |it: &Candidate| (it.refusal.is_some(), it.estimated_ms.unwrap_or(0.0));
            let ((refused, estimate), (other_refused, other_estimate)) = (key(one), key(other));
            refused.cmp(&other_refused).then(estimate.total_cmp(&other_estimate))
        });
        let Ok(Estimated { way, ms }) = ways.swap_remove(chosen).1 else {
            unreachable!("what is chosen can compute the product")
        };
        let explanation = Explanation {
            product: *self.product,
            device: self.device.clone(),
            precision: self.precision,
            kernel: way.kernel.name.to_owned(),
            scheme: way.kernel.scheme.words().to_owned(),
            reason,
            notes: self.notes(&way),
            tile: way.kernel.tile.map(|tile| [tile.m, tile.n, tile.k]),
            splits: way.splits,
            blocks: u64::try_from(way.kernel.blocks(&way.product, way.splits)).unwrap_or(u64::MAX),
            workspace_bytes: way.workspace_bytes as u64,
            steps: way.steps(),
            estimated_ms: timed.then_some(ms),
            candidates,
        };
        GemmPlan { product: *self.product, way, explanation }
    }

    /// What is worth knowing besides, in a sentence each.
    fn notes(&self, way: &Way) -> Vec<String> {
        let mut notes = way.notes();
        if self.precision == Precision::Fp32 && way.kernel.scheme == Scheme::Fp32 {
            notes.push("no tensor cores: all operations are fused fp32 ones, as for fp32-strict".to_owned());
        }
        if let Some(refusal) = way.kernel.refusal(self.device, &way.product, self.precision, self.splits) {
            notes.push(format!("not chosen unasked: {refusal}"));
        }
        if self.product.is_empty() {
            notes.push("there is no element to compute, so nothing runs".to_owned());
        }
        notes
    }
}
