//! Chooses the kernels of a group: for each product the one that computes it, so that the launches together take as little time as they
//! can. There is a launch for each kernel, whatever the number of products.
//!
//! ```text
//!  products ──► judged once for each description:  which bodies can compute it, and what its tiles take with each
//!                    │
//!                    ▼
//!  ways of all       every body, and every two, each product by the better one; what neither can compute, by what is best for it
//!                    │
//!                    ▼  time = launches + max(Σ tiles · time of a block / blocks at a time, longest block), bytes / bandwidth
//!  the fastest
//! ```

use std::collections::HashMap;

use super::explanation::Reason;
use super::grouped_explanation::{GroupedCandidate, GroupedExplanation, GroupedLaunch};
use super::model;
use super::options::Options;
use super::used_constants::UsedConstants;
use crate::constants::Constants;
use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::kernels::{GROUPED, GroupedKernel, KernelInfo};
use crate::order::Order;
use crate::refusal::Refusal;
use crate::{Device, Error, Precision, Wanted};

/// Which kernel computes a product, and whether as the product of the transposes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    pub(super) kernel: &'static GroupedKernel,
    pub(super) transposed: bool,
}

/// The kernels of a group's products, in the order of the products; none for those without results.
pub(super) struct GroupedChoice {
    pub(super) assigned: Vec<Option<Assigned>>,
    pub(super) explanation: GroupedExplanation,
}

/// A way to compute a product: with a kernel of each body that can.
#[derive(Clone, Copy)]
struct Way {
    assigned: Assigned,
    share: model::Share,
}

/// A product, with its ways in the order of the kernels, or the reason of each kernel.
struct Judged {
    ways: Vec<Way>,
    refusals: Vec<(&'static str, Refusal)>,
    bytes: f64,
}

impl Judged {
    /// The way that takes least of the device, of those with one of these bodies.
    fn best(&self, bodies: &[&str]) -> Option<Way> {
        let takes = |way: &Way| way.share.blocks * way.share.seconds / way.share.slots;
        let ways = self.ways.iter().filter(|way| bodies.contains(&way.assigned.kernel.body));
        ways.min_by(|one, other| takes(one).total_cmp(&takes(other))).copied()
    }

    /// Of all that there are.
    fn best_of_all(&self) -> Way {
        let bodies: Vec<_> = self.ways.iter().map(|way| way.assigned.kernel.body).collect();
        self.best(&bodies).expect("a product that no kernel computes is refused")
    }
}

/// What is asked for, and of which kernels.
struct Request<'a> {
    device: &'a DeviceFacts,
    wanted: Wanted,
    constants: &'a Constants,
    named: Option<&'static KernelInfo>,
    kernels: Vec<(&'static GroupedKernel, bool)>,
}

/// The kernels for these products, of those that the device has.
///
/// # Errors
/// [`Error::InGroup`] with [`Error::NoKernel`], [`Error::NoAccuracy`] or [`Error::Ineligible`] for the first product that no kernel can
/// compute; [`Error::Usage`] for a kernel that has no grouped form, and for more than one split.
pub(super) fn choose(
    device: &DeviceFacts,
    products: &[Description],
    options: &Options,
    constants: &Constants,
    is_loaded: impl Fn(&GroupedKernel) -> bool,
) -> Result<GroupedChoice, Error> {
    options.check()?;
    if options.invariant {
        return Err(Error::Usage(
            "invariant rows are asked for: which kernel computes a product of a group depends on the other products, so leave out invariant"
                .to_owned(),
        ));
    }
    if let Some(splits) = options.splits.filter(|&splits| splits > 1) {
        return Err(Error::Usage(format!(
            "{splits} splits are asked for: the sums of grouped products are not divided among blocks, so leave out the splits"
        )));
    }
    let is_asked_for = |kernel: &&GroupedKernel| options.kernel.is_none_or(|named| std::ptr::eq(named, kernel.single));
    let kernels: Vec<_> = GROUPED.iter().filter(is_asked_for).map(|kernel| (kernel, is_loaded(kernel))).collect();
    if let (Some(named), true) = (options.kernel, kernels.is_empty()) {
        let known: Vec<_> = GROUPED.iter().map(|kernel| kernel.single.name).collect();
        return Err(Error::Usage(format!(
            "kernel `{}` has no form for grouped products; these have one: {}",
            named.name,
            known.join(", ")
        )));
    }
    let request = Request { device, wanted: options.wanted(), constants, named: options.kernel, kernels };
    // Products that lie alike are judged once: a group often has thousands of them.
    let (mut judged, mut of_products): (Vec<Judged>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    let mut known = HashMap::new();
    for (product, description) in products.iter().enumerate() {
        if description.is_empty() {
            of_products.push(None);
            continue;
        }
        let description = description.in_alignment_classes();
        let index = match known.get(&description) {
            Some(&index) => index,
            None => {
                let new = request.judge(&description);
                if new.ways.is_empty() {
                    let source = Box::new(request.refused(&description, new.refusals));
                    return Err(Error::InGroup { product, source });
                }
                judged.push(new);
                known.insert(description, judged.len() - 1);
                judged.len() - 1
            }
        };
        of_products.push(Some(index));
    }
    Ok(request.choice(&judged, &of_products))
}

/// The kernel for so many products that are much like this one, and whether it computes them as those of the transposes; none if they have
/// no results. The last product is one without terms.
///
/// # Errors
/// As for [`choose`].
pub(crate) fn grouped_kernel(
    device: &Device,
    mean: &Description,
    products: usize,
    options: &Options,
    is_loaded: impl Fn(&GroupedKernel) -> bool,
) -> Result<Option<(&'static GroupedKernel, bool)>, Error> {
    let (facts, used) = (DeviceFacts::of(device), UsedConstants::on(device, &options.constants)?);
    let choice = choose(&facts, &vec![*mean; products], options, used.constants(), is_loaded)?;
    Ok(choice.assigned.first().copied().flatten().map(|Assigned { kernel, transposed }| (kernel, transposed)))
}

impl Request<'_> {
    /// Which kernels can compute a product, and what it takes of the device with each.
    fn judge(&self, product: &Description) -> Judged {
        // As for products alone: the transposes first where C is column-major, or is a row that is a column then.
        let by_columns = product.c.order() == Some(Order::ColumnMajor) || product.m == 1;
        let forms = [(by_columns, product.transposed(), true), (true, *product, false)];
        let mut judged = Judged { ways: Vec::new(), refusals: Vec::new(), bytes: product.traffic() };
        for &(kernel, is_loaded) in &self.kernels {
            let mut refusal = None;
            let way = forms.iter().filter(|(is_tried, ..)| *is_tried).find_map(|(_, form, transposed)| {
                refusal = self.refusal(kernel, is_loaded, form);
                let assigned = Assigned { kernel, transposed: *transposed };
                let share = || model::share(self.constants, self.device, kernel.single, form);
                refusal.is_none().then(|| Way { assigned, share: share() })
            });
            judged.ways.extend(way);
            judged.refusals.extend(refusal.map(|refusal| (kernel.name, refusal)));
        }
        judged
    }

    fn refusal(&self, kernel: &GroupedKernel, is_loaded: bool, product: &Description) -> Option<Refusal> {
        if !is_loaded {
            return Some(Refusal::NotInPtx { device: self.device.to_string() });
        }
        kernel
            .refusal(self.device, product, self.wanted)
            .filter(|refusal| self.named.is_none() || !refusal.yields_to_name())
    }

    /// Why no kernel computes a product.
    fn refused(&self, product: &Description, refusals: Vec<(&'static str, Refusal)>) -> Error {
        let (text, device) = (product.to_string(), self.device.to_string());
        if let (Some(_), Some((kernel, reason))) = (self.named, refusals.first()) {
            let unnamed = Request { named: None, kernels: GROUPED.iter().map(|it| (it, true)).collect(), ..*self };
            let others = unnamed.judge(product).ways.iter().map(|way| way.assigned.kernel.single.name).collect();
            return Error::Ineligible { kernel, product: text, reason: Box::new(reason.clone()), others };
        }
        match self.wanted {
            Wanted::Precision(precision) => {
                let serves = |precision: &Precision| {
                    let kernels = self.kernels.clone();
                    let wanted = Wanted::Precision(*precision);
                    !Request { wanted, kernels, ..*self }.judge(product).ways.is_empty()
                };
                let precisions = Precision::ALL.into_iter().filter(serves).collect();
                let of_the_precision = |(_, refusal): &(&str, Refusal)| !matches!(refusal, Refusal::Precision { .. });
                let refusals = refusals.into_iter().filter(of_the_precision).collect();
                Error::NoKernel { precision, product: text, device, refusals, precisions }
            }
            Wanted::Accuracy(wanted) => {
                let bound = |kernel: &GroupedKernel| Some(wanted.of(kernel.single.scheme.bounds(product.terms())?));
                let bounds = self.kernels.iter().filter_map(|(kernel, _)| Some((bound(kernel)?, kernel.name)));
                let best = bounds.min_by(|one, other| one.0.total_cmp(&other.0));
                Error::NoAccuracy { wanted, product: text, device, best }
            }
        }
    }

    fn choice(&self, judged: &[Judged], of_products: &[Option<usize>]) -> GroupedChoice {
        let mut bodies: Vec<&'static str> = self.kernels.iter().map(|(kernel, _)| kernel.body).collect();
        bodies.dedup();
        // With products of each description.
        let mut counts = vec![0u32; judged.len()];
        of_products.iter().flatten().for_each(|&index| counts[index] += 1);
        // Of those that take as long, as where memory is what limits them, the first is taken: a body alone, the one with the largest tiles.
        bodies.reverse();
        let pairs = (0..bodies.len()).flat_map(|i| (i + 1..bodies.len()).map(move |j| vec![i, j]));
        let sets = (0..bodies.len()).map(|i| vec![i]).chain(pairs);
        let sets = sets.map(|set| set.into_iter().map(|index| bodies[index]).collect::<Vec<_>>());
        let candidates: Vec<(String, Vec<Way>)> = if self.device.is_cpu() {
            // Times on the executor say nothing: the last that can do it, as for products alone.
            vec![(String::new(), judged.iter().map(|it| *it.ways.last().expect("there is one")).collect())]
        } else {
            let is_possible =
                |set: &Vec<&str>| set.iter().all(|body| judged.iter().any(|it| it.best(&[body]).is_some()));
            let ways =
                |set: &[&str]| judged.iter().map(|it| it.best(set).unwrap_or_else(|| it.best_of_all())).collect();
            sets.filter(|set| judged.is_empty() || is_possible(set))
                .map(|set| (set.join(" and "), ways(&set)))
                .collect()
        };
        let bytes: f64 = judged.iter().zip(&counts).map(|(it, &count)| it.bytes * f64::from(count)).sum();
        let timed = |ways: &Vec<Way>| self.seconds(ways, &counts, bytes);
        let (_, chosen) = candidates
            .iter()
            .min_by(|(_, one), (_, other)| timed(one).total_cmp(&timed(other)))
            .expect("there is at least one kernel");
        let mut compared: Vec<_> = (candidates.iter().filter(|_| !self.device.is_cpu()))
            .map(|(what, ways)| GroupedCandidate { what: what.clone(), estimated_ms: timed(ways) * 1e3 })
            .collect();
        compared.sort_by(|one, other| one.estimated_ms.total_cmp(&other.estimated_ms));
        let assigned: Vec<_> = of_products.iter().map(|index| index.map(|index| chosen[index].assigned)).collect();
        let explanation = GroupedExplanation {
            device: self.device.clone(),
            precision: match (self.wanted, chosen.first()) {
                (Wanted::Precision(precision), _) => precision,
                (Wanted::Accuracy(_), Some(way)) => way.assigned.kernel.single.precision(),
                (Wanted::Accuracy(_), None) => Precision::default(),
            },
            products: of_products.len(),
            empty: of_products.iter().filter(|index| index.is_none()).count(),
            reason: match (self.named, self.device.is_cpu()) {
                (Some(_), _) => Reason::Name,
                (None, true) => Reason::Ladder,
                (None, false) => Reason::Model,
            },
            launches: launches(&assigned, chosen, of_products),
            estimated_ms: (!self.device.is_cpu()).then(|| timed(chosen) * 1e3),
            candidates: compared,
        };
        GroupedChoice { assigned, explanation }
    }

    /// How long so many products of each description take.
    fn seconds(&self, ways: &[Way], counts: &[u32], bytes: f64) -> f64 {
        let mut by_kernel: Vec<(&str, f64, f64)> = Vec::new();
        for (way, &count) in ways.iter().zip(counts) {
            let model::Share { blocks, seconds, slots } = way.share;
            let work = f64::from(count) * blocks * seconds / slots;
            match by_kernel.iter_mut().find(|(name, ..)| *name == way.assigned.kernel.name) {
                Some((_, all, longest)) => (*all, *longest) = (*all + work, longest.max(seconds)),
                None => by_kernel.push((way.assigned.kernel.name, work, seconds)),
            }
        }
        let computing: f64 = by_kernel.iter().map(|(_, work, longest)| work.max(*longest)).sum();
        let machine = &self.constants.machine;
        model::seconds_of_launches(machine, by_kernel.len()) + computing.max(bytes / machine.bandwidth)
    }
}

/// The launches, in the order of the kernels.
fn launches(assigned: &[Option<Assigned>], ways: &[Way], of_products: &[Option<usize>]) -> Vec<GroupedLaunch> {
    let mut launches: Vec<GroupedLaunch> = Vec::new();
    for kernel in &GROUPED {
        let mut launch = GroupedLaunch {
            kernel: kernel.name.to_owned(),
            scheme: kernel.single.scheme.words().to_owned(),
            tile: [kernel.tile.m, kernel.tile.n, kernel.tile.k],
            products: 0,
            blocks: 0,
        };
        let mut blocks = 0.0;
        for (assigned, index) in assigned.iter().zip(of_products) {
            let (Some(assigned), Some(index)) = (assigned, index) else { continue };
            if std::ptr::eq(assigned.kernel, kernel) {
                launch.products += 1;
                blocks += ways[*index].share.blocks;
            }
        }
        launch.blocks = blocks.ceil() as u64;
        if launch.products > 0 {
            launches.push(launch);
        }
    }
    launches
}
