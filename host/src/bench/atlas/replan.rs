//! The regret that plans of this build would have, by the times of a report that has been measured: for work on the planner, which then
//! needs no GPU.
//!
//! ```text
//!  report with --regret:  shape ── times of many plans ──┬───────────────► fit ──► constants by which the model has these times
//!                           │                            ├──► time of the chosen one / least of all        │
//!  this build:            plan, by the model ── chosen ──┘                      ▲                          │
//!                                     ▲                                         └── and by those ──────────┘
//!                                     └── constants
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::report::{AtlasReport, Outcome, PlanTime, Row};
use crate::Error;
use crate::files::read_text;
use runtime::DeviceInfo;
use tilewright::plan::fit::{Fit, KernelFit, Observation, fit};
use tilewright::plan::{
    self, Constants, ConstantsChoice, DeviceFacts, Features, GemmPlan, MeasuredConstants, MeasuredOn, Options, Tables,
};
use tilewright::{Orders, kernels};

/// The shapes of most regret that are shown.
const SHOWN: usize = 12;

/// A shape planned again.
struct Replanned<'a> {
    row: &'a Row,
    chosen: String,
    /// The time of what is chosen over that of the best; none if what is chosen has no time in the report.
    regret: Option<f64>,
    best: &'a PlanTime,
}

/// Measured times over those that the model estimates: of kernels that differ in layouts alone, for operands that a tensor map can
/// describe, and for others.
type Ratios = BTreeMap<String, [Vec<f64>; 2]>;

/// Plans the shapes of a report again, and tells the regret of each class, and how far the model is from the times of each kernel.
///
/// # Errors
/// [`Error::File`] for what is no report; [`Error::Usage`] for one that has no regrets, or is not of a GPU.
pub(super) fn replan(path: &Path, tables: &Tables, constants: &ConstantsChoice) -> Result<String, Error> {
    let report: AtlasReport =
        serde_json::from_str(&read_text(path)?).map_err(|error| not_for_this(path, &error.to_string()))?;
    let device = gpu_of(&report).ok_or_else(|| not_for_this(path, "it is not of a GPU"))?;
    let planned = Options { tables: tables.clone(), constants: constants.clone(), ..Options::from(report.precision) };
    let of_all = |planned: &Options| -> Result<Vec<Replanned<'_>>, Error> {
        let rows = report.results.iter().filter_map(|row| Some((row, times(row)?)));
        rows.filter_map(|(row, times)| replanned(&device, planned, report.beta, row, times).transpose()).collect()
    };
    let all = of_all(&planned)?;
    if all.is_empty() {
        return Err(not_for_this(path, "it has no times of several plans for a shape: measure with --regret"));
    }
    let (mut ratios, mut observations) = (Ratios::new(), Vec::new());
    for row in &report.results {
        compare(&device, constants, report.beta, row, times(row).unwrap_or_default(), &mut ratios, &mut observations)?;
    }
    let mut text = text(&all) + &text_of(&ratios);
    if let Some(on) = measured_on(&report) {
        let known = match constants {
            ConstantsChoice::This(measured) => measured.constants.clone(),
            ConstantsChoice::Stored | ConstantsChoice::BuiltIn => {
                Constants::built_in(Some(on.compute_capability), on.multiprocessors)
            }
        };
        let found = fit(&known, &observations);
        let (driver, date) = (String::new(), report.date.clone());
        let constants = MeasuredConstants::new(on, driver, report.commit.clone(), date, found.constants.clone());
        let planned = Options { constants: ConstantsChoice::This(Arc::new(constants)), ..planned };
        text += &text_of_fit(&found, &mut regrets(&of_all(&planned)?));
    }
    Ok(text)
}

/// The times of several plans of a shape, if it has some.
fn times(row: &Row) -> Option<&[PlanTime]> {
    match &row.outcome {
        Outcome::Measured(measured) => Some(&measured.regret.as_ref()?.times),
        _ => None,
    }
}

/// What constants that are fitted to a report hold for; none without the kernels' digest.
fn measured_on(report: &AtlasReport) -> Option<MeasuredOn> {
    let DeviceInfo::Cuda { name, compute_capability, multiprocessors, .. } = &report.device else { return None };
    Some(MeasuredOn {
        gpu: name.clone(),
        compute_capability: numbers_of(compute_capability)?,
        multiprocessors: *multiprocessors,
        kernels_digest: kernels::ALL.first()?.facts.source.digest?.to_owned(),
    })
}

fn not_for_this(path: &Path, why: &str) -> Error {
    Error::Usage(format!("{} cannot be planned again: {why}", path.display()))
}

/// The GPU that a report is of.
fn gpu_of(report: &AtlasReport) -> Option<DeviceFacts> {
    let DeviceInfo::Cuda { name, compute_capability, multiprocessors, memory_bytes, ptx_arch, .. } = &report.device
    else {
        return None;
    };
    let gpu = DeviceFacts::of_gpu(name, numbers_of(compute_capability)?, *multiprocessors, *memory_bytes);
    Some(if ptx_arch == "sm_80" { gpu.with_portable_kernels() } else { gpu })
}

/// The numbers of a compute capability, as `9.0`.
fn numbers_of(compute_capability: &str) -> Option<(u32, u32)> {
    let (major, minor) = compute_capability.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What this build chooses for a shape, and how long that took; none without times.
fn replanned<'a>(
    device: &DeviceFacts,
    options: &Options,
    beta: f32,
    row: &'a Row,
    times: &'a [PlanTime],
) -> Result<Option<Replanned<'a>>, Error> {
    let Some(best) = times.iter().min_by(|one, other| one.median_ms.total_cmp(&other.median_ms)) else {
        return Ok(None);
    };
    let plan = plan::plan(device, &row.shape.description()?.with_factors(1.0, beta), options)?;
    let regret = time_of(&plan, times).map(|time| time.median_ms / best.median_ms);
    let chosen = format!("{} /{}", plan.kernel().name, plan.splits());
    Ok(Some(Replanned { row, chosen, regret, best }))
}

/// Compares the times of all plans of a shape with what the model estimates, and collects them.
fn compare(
    device: &DeviceFacts,
    constants: &ConstantsChoice,
    beta: f32,
    row: &Row,
    times: &[PlanTime],
    ratios: &mut Ratios,
    observations: &mut Vec<Observation>,
) -> Result<(), Error> {
    let product = row.shape.description()?.with_factors(1.0, beta);
    for time in times {
        let Ok(kernel) = kernels::find(&time.kernel) else { continue };
        let (splits, constants) = (Some(time.splits), constants.clone());
        let options = Options { splits, constants, ..Options::from(kernel) };
        let Ok(plan) = plan::plan(device, &product, &options) else { continue };
        let Some(estimated_ms) = plan.explanation().estimated_ms else { continue };
        let words = time.kernel.split('_').filter(|word| word.parse::<Orders>().is_err());
        let of_kernel = ratios.entry(words.collect::<Vec<_>>().join("_")).or_default();
        of_kernel[usize::from(!product.is_aligned())].push(time.median_ms / estimated_ms);
        observations.push(Observation { features: Features::of(&plan), ms: time.median_ms });
    }
    Ok(())
}

/// The means of the ratios, which are geometric, and how far they spread.
fn text_of(ratios: &Ratios) -> String {
    let mut text =
        "Measured over estimated, mean and spread: for operands that begin at multiples of 16 bytes; for others\n"
            .to_owned();
    for (kernel, both) in ratios {
        _ = write!(text, "  {kernel:<36}");
        for of_kind in both {
            let logs = || of_kind.iter().map(|ratio| ratio.ln());
            let count = of_kind.len().max(1) as f64;
            let mean = logs().sum::<f64>() / count;
            let spread = (logs().map(|log| (log - mean).powi(2)).sum::<f64>() / count).sqrt();
            _ = write!(text, "{:>6} times {:.2} ± {spread:.2}", of_kind.len(), mean.exp());
        }
        text.push('\n');
    }
    text
}

/// The time of a plan: with as many splits, or else with about as many.
fn time_of<'a>(plan: &GemmPlan, times: &'a [PlanTime]) -> Option<&'a PlanTime> {
    let distance = |time: &PlanTime| (f64::from(time.splits) / f64::from(plan.splits())).log2().abs();
    let of_kernel = times.iter().filter(|time| time.kernel == plan.kernel().name && distance(time) <= 1.0);
    of_kernel.min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

fn text(all: &[Replanned<'_>]) -> String {
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for one in all {
        let known = one.regret.into_iter();
        known.for_each(|regret| classes.entry(&one.row.class).or_default().push(regret));
    }
    let mut text = String::new();
    let mut every: Vec<f64> = regrets(all);
    for (name, regrets) in &mut classes {
        text += &line(name, regrets);
    }
    text += &line("all", &mut every);
    let unknown = all.iter().filter(|one| one.regret.is_none());
    _ = writeln!(text, "{} shapes are planned in ways that have no time there", unknown.clone().count());
    let mut worst: Vec<_> = all.iter().filter_map(|one| Some((one.regret?, one))).collect();
    worst.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    for (regret, one) in worst.into_iter().take(SHOWN) {
        let PlanTime { kernel, splits, median_ms, .. } = one.best;
        _ = writeln!(
            text,
            "  {regret:.2}  {} {}: {}, not {kernel} /{splits} ({median_ms:.4} ms)",
            one.row.class, one.row.id, one.chosen
        );
    }
    for one in unknown.take(SHOWN) {
        _ = writeln!(text, "     ?  {} {}: {}, not {}", one.row.class, one.row.id, one.chosen, one.best.kernel);
    }
    text
}

/// The regrets of all shapes for which what is chosen has a time.
fn regrets(all: &[Replanned<'_>]) -> Vec<f64> {
    all.iter().filter_map(|one| one.regret).collect()
}

/// A line of regrets.
fn line(name: &str, regrets: &mut [f64]) -> String {
    regrets.sort_by(f64::total_cmp);
    let Some(last) = regrets.len().checked_sub(1) else { return String::new() };
    let at = |share: f64| regrets[(last as f64 * share).round() as usize];
    let [median, most, largest] = [0.5, 0.95, 1.0].map(at);
    let count = regrets.len();
    format!("{name:<16}{count:>5} shapes   median {median:.3}   95 % {most:.3}   largest {largest:.3}\n")
}

/// The constants that are fitted to the times, beside those that were gone by, and the regret of plans by them.
fn text_of_fit(found: &Fit, regrets: &mut [f64]) -> String {
    let mut text =
        "Constants fitted to these times: share of the peak, us of a block, factor of unaligned operands\n".to_owned();
    for KernelFit { kernel, before, after, times, .. } in &found.kernels {
        _ = writeln!(
            text,
            "  {kernel:<40} {:.3} -> {:.3}   {:.2} -> {:.2}   {:.2} -> {:.2}   ({times} times)",
            before.share_of_peak,
            after.share_of_peak,
            before.block_seconds * 1e6,
            after.block_seconds * 1e6,
            before.unaligned,
            after.unaligned
        );
    }
    for of_machine in &found.machine {
        let (name, before, after, times) = (of_machine.name, of_machine.before, of_machine.after, of_machine.times);
        _ = writeln!(text, "  {name:<40} {before:.4e} -> {after:.4e}   ({times} times)");
    }
    text + &line("by those", regrets)
}
