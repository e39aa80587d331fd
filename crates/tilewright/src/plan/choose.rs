//! Chooses a kernel for a product: asks each kernel of the registry whether it can compute the product, and takes the fastest, by
//! measured times or by the model.

use super::explanation::{Candidate, Explanation, Reason};
use super::gemm_plan::GemmPlan;
use super::invariance::Arithmetic;
use super::kernel_candidate::KernelCandidate;
use super::model::{self, Features};
use super::options::Options;
use super::table::Table;
use super::used_constants::UsedConstants;
use crate::accuracy::rounded_up;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::kernels::{ALL, Family, KernelInfo, Scheme, SumOrder};
use crate::order::Order;
use crate::refusal::Refusal;
use crate::{Bounds, Device, Error, Precision, Wanted};

impl GemmPlan {
    /// Makes a plan for a device.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if no kernel of the precision can compute the product, with the reason for each;
    /// [`Error::Ineligible`] if the kernel that is asked for cannot, with the reason and with those that could;
    /// [`Error::TableForOtherGpu`] for a table of another GPU, and [`Error::Constants`] for constants of another one, or of other
    /// kernels; [`Error::Usage`] for no splits at all.
    pub fn new(device: &Device, product: &Description, options: &Options) -> Result<Self, Error> {
        let is_loaded = |kernel: &KernelInfo| device.has_kernel(&kernel.facts).is_ok();
        let used = UsedConstants::on(device, &options.constants)?;
        choose_with(&used, &ALL, &DeviceFacts::of(device), product, options, is_loaded)
    }
}

/// Makes a plan for a device that need not be there.
///
/// # Errors
/// As for [`GemmPlan::new`].
pub fn plan(device: &DeviceFacts, product: &Description, options: &Options) -> Result<GemmPlan, Error> {
    choose(&ALL, device, product, options, |_| true)
}

/// How many times as fast as what has been measured a kernel has to be by the model, which is off by a fifth now and then.
const FASTER: f64 = 1.25;

/// A candidate, and the time that the model estimates.
struct Estimated {
    candidate: KernelCandidate,
    ms: f64,
}

/// A kernel, and its fastest candidate for the product, or why it has none.
type Judged = (&'static KernelInfo, Result<Estimated, Refusal>);

/// What a plan is asked for, and the kernels and the device that it is chosen from.
#[derive(Clone, Copy)]
struct Request<'a> {
    /// The kernels that there are.
    kernels: &'a [&'static KernelInfo],
    device: &'a DeviceFacts,
    /// What the model knows of the device.
    constants: &'a UsedConstants,
    product: &'a Description,
    wanted: Wanted,
    splits: Option<u32>,
    invariance: Invariance,
}

/// Whether rows are invariant.
#[derive(Clone, Copy)]
enum Invariance {
    NotAsked,
    /// In this arithmetic.
    By(Arithmetic),
    /// No arithmetic serves for all numbers of rows.
    Impossible,
}

/// As [`plan`], of these kernels as far as the device has them.
pub(super) fn choose(
    kernels: &[&'static KernelInfo],
    device: &DeviceFacts,
    product: &Description,
    options: &Options,
    is_loaded: impl Fn(&KernelInfo) -> bool,
) -> Result<GemmPlan, Error> {
    let used = UsedConstants::without_device(device, &options.constants)?;
    choose_with(&used, kernels, device, product, options, is_loaded)
}

/// The same with these constants.
fn choose_with(
    constants: &UsedConstants,
    kernels: &[&'static KernelInfo],
    device: &DeviceFacts,
    product: &Description,
    options: &Options,
    is_loaded: impl Fn(&KernelInfo) -> bool,
) -> Result<GemmPlan, Error> {
    options.check()?;
    let table = options.tables.table(device)?;
    let is_named = |kernel: &KernelInfo| options.kernel.is_some_and(|named| std::ptr::eq(named, kernel));
    let invariance = Invariance::NotAsked;
    let request =
        Request { kernels, device, constants, product, wanted: options.wanted(), splits: options.splits, invariance };
    // Where nothing is multiplied, there is nothing to add up.
    let request = match options.invariant && product.terms() > 0 {
        true => request.made_invariant(options.kernel, &is_loaded)?,
        false => request,
    };
    let table = table.filter(|_| !options.invariant);
    let mut judged: Vec<Judged> = (kernels.iter())
        .map(|&kernel| {
            let candidate = match is_loaded(kernel) {
                true => request.candidate(kernel, is_named(kernel)),
                false => Err(Refusal::NotInPtx { device: device.to_string() }),
            };
            (kernel, candidate)
        })
        .collect();

    let (chosen, reason) = match options.kernel {
        Some(named) => match judged.iter().position(|(kernel, _)| std::ptr::eq(*kernel, named)) {
            Some(index) if judged[index].1.is_ok() => (index, Reason::Name),
            Some(_) | None => return Err(request.ineligible(named, &judged)),
        },
        None => match table.and_then(|table| request.measured(&mut judged, table)) {
            Some(choice) => choice,
            None => request.preferred(&judged).ok_or_else(|| request.no_kernel(&judged))?,
        },
    };
    Ok(request.plan(judged, chosen, reason))
}

impl Request<'_> {
    /// The same, for rows that are invariant, by the best arithmetic of those that the loaded kernels have; by that of the kernel that is named,
    /// if one is.
    fn made_invariant(
        self,
        named: Option<&KernelInfo>,
        is_loaded: impl Fn(&KernelInfo) -> bool,
    ) -> Result<Self, Error> {
        let may_be_taken = |kernel: &KernelInfo| {
            let orders = |kernel: &KernelInfo| [kernel.sums, kernel.sums.of_transposes()];
            let is_alike = |named: &KernelInfo| {
                let is_common = |order: &SumOrder| *order != SumOrder::Own && orders(named).contains(order);
                kernel.scheme == named.scheme && orders(kernel).iter().any(is_common)
            };
            is_loaded(kernel) && named.is_none_or(is_alike)
        };
        let kernels: Vec<_> = self.kernels.iter().copied().filter(|kernel| may_be_taken(kernel)).collect();
        let time = |product: &Description, arithmetic: Option<&Arithmetic>| {
            let invariance = arithmetic.map_or(Invariance::NotAsked, |it| Invariance::By(*it));
            let request = Request { product, invariance, ..self };
            let able = kernels
                .iter()
                .filter(|kernel| arithmetic.is_none_or(|it| it.is_of(kernel, false) || it.is_of(kernel, true)));
            let times = able.filter_map(|kernel| Some(request.candidate(kernel, named.is_some()).ok()?.ms));
            let least = times.reduce(f64::min)?;
            // On the CPU executor, times say nothing; fewer splits are as good.
            Some(if self.device.is_cpu() { arithmetic.map_or(1.0, |it| it.splits.into()) } else { least })
        };
        let arithmetic = Arithmetic::choose(&kernels, self.product, self.splits, time)?;
        Ok(Self { invariance: arithmetic.map_or(Invariance::Impossible, Invariance::By), ..self })
    }

    /// Whether a kernel would make other bits than are asked for.
    fn makes_other_bits(&self, kernel: &KernelInfo, transposed: bool) -> bool {
        match self.invariance {
            Invariance::NotAsked => false,
            Invariance::By(arithmetic) => !arithmetic.is_of(kernel, transposed),
            Invariance::Impossible => true,
        }
    }

    /// Among how many blocks to divide each sum, if that is given.
    fn splits(&self) -> Option<u32> {
        match self.invariance {
            Invariance::By(arithmetic) => Some(arithmetic.splits),
            Invariance::NotAsked | Invariance::Impossible => self.splits,
        }
    }

    /// How a kernel would compute the product.
    fn candidate(&self, kernel: &'static KernelInfo, named: bool) -> Result<Estimated, Refusal> {
        if kernel.may_transpose(self.device) {
            let both = [false, true].map(|transposed| self.candidate_for(kernel, named, transposed));
            return match both {
                [Ok(one), Ok(other)] => Ok(if other.ms < one.ms { other } else { one }),
                [Err(_), Ok(candidate)] => Ok(candidate),
                [candidate, Err(_)] => candidate,
            };
        }
        // The transposes, too, where C is column-major, or is a row that is a column then.
        let by_columns = self.product.c.order() == Some(Order::ColumnMajor) || self.product.m == 1;
        if by_columns && let Ok(candidate) = self.candidate_for(kernel, named, true) {
            return Ok(candidate);
        }
        self.candidate_for(kernel, named, false)
    }

    fn candidate_for(&self, kernel: &'static KernelInfo, named: bool, transposed: bool) -> Result<Estimated, Refusal> {
        let product = if transposed { self.product.transposed() } else { *self.product };
        let splits = self.splits();
        match kernel.refusal(self.device, &product, self.wanted, splits) {
            Some(refusal) if !(named && refusal.yields_to_name()) => return Err(refusal),
            Some(_) | None => {}
        }
        // After the reasons that nobody can change.
        if self.makes_other_bits(kernel, transposed) {
            return Err(Refusal::NotInvariant);
        }
        let invariant = !matches!(self.invariance, Invariance::NotAsked);
        let candidates = match splits {
            Some(splits) => vec![splits],
            None if self.device.is_cpu() => vec![kernel.contract.fewest_splits(&product)],
            None => model::candidate_splits(kernel, self.device, &product),
        };
        let estimated = candidates.into_iter().map(|splits| {
            let candidate = KernelCandidate::of(kernel, self.device, product, transposed, splits, invariant)?;
            let ms = Features::of_candidate(self.device, &candidate).ms(self.constants.constants());
            Ok(Estimated { ms, candidate })
        });
        // The fastest; if there is none, the reason of the first.
        estimated
            .reduce(|best, candidate| match (&best, &candidate) {
                (Ok(one), Ok(other)) if other.ms < one.ms => candidate,
                (Err(_), Ok(_)) => candidate,
                _ => best,
            })
            .unwrap_or(Err(Refusal::EmptyK))
    }

    /// The candidate that is the fastest by a table of measured times, if it has this product, and why. A kernel that the table has no
    /// time of has to be faster by [`FASTER`], as the model has it.
    fn measured(&self, judged: &mut [Judged], table: &Table) -> Option<(usize, Reason)> {
        let Wanted::Precision(precision) = self.wanted else { return None };
        let entry = table.entry(self.product, precision)?;
        let position =
            |name: &str| judged.iter().position(|(kernel, candidate)| kernel.name == name && candidate.is_ok());
        let (index, time) = entry.times.iter().find_map(|time| Some((position(&time.kernel)?, time)))?;
        let is_timed = |kernel: &KernelInfo| entry.times.iter().any(|time| time.kernel == kernel.name);
        let is_faster = |estimated: &Estimated| estimated.ms * 1e3 * FASTER < time.median_us;
        let newer = |(kernel, candidate): &Judged| !is_timed(kernel) && candidate.as_ref().is_ok_and(is_faster);
        if judged.iter().any(newer) {
            return None;
        }
        if self.splits.is_none() {
            let splits = Some(time.splits);
            if let Ok(candidate) = (Request { splits, ..*self }).candidate(judged[index].0, false) {
                judged[index].1 = Ok(candidate);
            }
        }
        let (source, measured, median_us) = (table.source(), entry.product(), time.median_us);
        Some((index, Reason::Table { source, measured, median_us }))
    }

    /// The candidate that is taken if no kernel is named and nothing is measured, and why.
    fn preferred(&self, judged: &[Judged]) -> Option<(usize, Reason)> {
        let possible =
            || judged.iter().enumerate().filter_map(|(index, (_, candidate))| Some((index, candidate.as_ref().ok()?)));
        if self.device.is_cpu() {
            let (index, _) = possible()
                .max_by_key(|(index, estimated)| (estimated.candidate.kernel.family() == Family::Gemv, *index))?;
            return Some((index, Reason::Ladder));
        }
        let (index, _) = possible().min_by(|(_, one), (_, other)| one.ms.total_cmp(&other.ms))?;
        Some((index, Reason::Model))
    }

    fn ineligible(&self, named: &'static KernelInfo, judged: &[Judged]) -> Error {
        let refusal = judged
            .iter()
            .find(|(kernel, _)| std::ptr::eq(*kernel, named))
            .and_then(|(_, candidate)| candidate.as_ref().err());
        Error::Ineligible {
            kernel: named.name,
            product: self.product.to_string(),
            reason: Box::new(refusal.cloned().unwrap_or(Refusal::NotInPtx { device: self.device.to_string() })),
            others: judged.iter().filter(|(_, candidate)| candidate.is_ok()).map(|(kernel, _)| kernel.name).collect(),
        }
    }

    fn no_kernel(&self, judged: &[Judged]) -> Error {
        let (product, device) = (self.product.to_string(), self.device.to_string());
        let precision = match self.wanted {
            Wanted::Precision(precision) => precision,
            Wanted::Accuracy(wanted) => {
                let can = self.kernels.iter().filter(|kernel| {
                    Request { wanted: kernel.precision().into(), ..*self }.candidate(kernel, false).is_ok()
                });
                let bound = |kernel: &KernelInfo| Some(wanted.of(kernel.scheme.bounds(self.product.terms())?));
                let least = can.filter_map(|kernel| Some((bound(kernel)?, kernel.name)));
                return Error::NoAccuracy { wanted, product, device, best: least.min_by(|a, b| a.0.total_cmp(&b.0)) };
            }
        };
        let of_the_precision = judged.iter().filter_map(|(kernel, candidate)| match candidate {
            Err(Refusal::Precision { .. }) | Ok(_) => None,
            Err(refusal) => Some((kernel.name, refusal.clone())),
        });
        let precisions = Precision::ALL.into_iter().filter(|&precision| {
            let request = Request { wanted: precision.into(), ..*self };
            let request = match self.invariance {
                Invariance::NotAsked => request,
                Invariance::By(_) | Invariance::Impossible => request.made_invariant(None, |_| true).unwrap_or(request),
            };
            self.kernels.iter().any(|kernel| request.candidate(kernel, false).is_ok())
        });
        Error::NoKernel {
            precision,
            product,
            device,
            refusals: of_the_precision.collect(),
            precisions: precisions.collect(),
        }
    }

    fn plan(&self, mut judged: Vec<Judged>, chosen: usize, reason: Reason) -> GemmPlan {
        let timed = !self.device.is_cpu();
        let mut candidates: Vec<Candidate> = (judged.iter())
            .map(|(kernel, candidate)| Candidate {
                kernel: kernel.name.to_owned(),
                splits: candidate.as_ref().map_or(1, |estimated| estimated.candidate.splits),
                estimated_ms: candidate.as_ref().ok().filter(|_| timed).map(|candidate| candidate.ms),
                refusal: candidate.as_ref().err().map(Refusal::to_string),
            })
            .collect();
        candidates.sort_by(|one, other| {
            let key = |it: &Candidate| (it.refusal.is_some(), it.estimated_ms.unwrap_or(0.0));
            let ((refused, estimate), (other_refused, other_estimate)) = (key(one), key(other));
            refused.cmp(&other_refused).then(estimate.total_cmp(&other_estimate))
        });
        let Ok(Estimated { candidate, ms }) = judged.swap_remove(chosen).1 else {
            unreachable!("what is chosen can compute the product")
        };
        let explanation = Explanation {
            product: *self.product,
            device: self.device.clone(),
            precision: match self.wanted {
                Wanted::Precision(precision) => precision,
                Wanted::Accuracy(_) => candidate.kernel.precision(),
            },
            kernel: candidate.kernel.name.to_owned(),
            scheme: candidate.kernel.scheme.words().to_owned(),
            reason,
            notes: self.notes(&candidate),
            tile: candidate.kernel.tile.map(|tile| [tile.m, tile.n, tile.k]),
            splits: candidate.splits,
            blocks: u64::try_from(candidate.kernel.blocks(&candidate.product, candidate.splits)).unwrap_or(u64::MAX),
            workspace_bytes: candidate.workspace_bytes as u64,
            steps: candidate.steps(),
            estimated_ms: timed.then_some(ms),
            constants: timed.then(|| self.constants.source().to_owned()),
            candidates,
        };
        GemmPlan { product: *self.product, candidate, explanation }
    }

    /// What is worth knowing besides, in a sentence each.
    fn notes(&self, candidate: &KernelCandidate) -> Vec<String> {
        let mut notes = candidate.notes();
        if let Wanted::Accuracy(accuracy) = self.wanted
            && let Some(Bounds { guaranteed, expected }) = candidate.kernel.scheme.bounds(self.product.terms())
        {
            notes.push(format!(
                "{accuracy} is asked for: errors of elements are guaranteed to be at most {:.1e} of the sum of |a||b|, and \
                 expected to be at most {:.1e}",
                rounded_up(guaranteed),
                rounded_up(expected)
            ));
        }
        if let Invariance::By(_) = self.invariance {
            notes.push(
                "rows have the same bits whatever rows come with them: the order of the sums and the splits are those for all products \
                 with as many columns and terms"
                    .to_owned(),
            );
        }
        if self.wanted == Wanted::Precision(Precision::Fp32) && candidate.kernel.scheme == Scheme::Fp32 {
            notes.push("no tensor cores: all operations are fused fp32 ones, as for fp32-strict".to_owned());
        }
        if let Some(refusal) = candidate.kernel.refusal(self.device, &candidate.product, self.wanted, self.splits()) {
            notes.push(format!("not chosen unasked: {refusal}"));
        }
        if self.product.is_empty() {
            notes.push("there is no element to compute, so nothing runs".to_owned());
        }
        notes
    }
}
