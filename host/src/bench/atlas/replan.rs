//! The regret that plans of this build would have, by the times of a report that has been measured: for work on the planner, which then
//! needs no GPU.
//!
//! ```text
//!  report with --regret:  shape ── times of many plans ──┐
//!                           │                            ├──► time of the chosen one / least of all
//!  this build:            plan, by the model ── chosen ──┘
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::report::{AtlasReport, Outcome, PlanTime, Row};
use crate::Error;
use crate::files::read_text;
use runtime::DeviceInfo;
use tilewright::plan::{self, ConstantsChoice, DeviceFacts, GemmPlan, Options, Tables};
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
    let (mut all, mut ratios) = (Vec::new(), Ratios::new());
    for row in &report.results {
        let Outcome::Measured(measured) = &row.outcome else { continue };
        let Some(regret) = &measured.regret else { continue };
        all.extend(replanned(&device, &planned, row, &regret.times)?);
        compare(&device, constants, row, &regret.times, &mut ratios)?;
    }
    if all.is_empty() {
        return Err(not_for_this(path, "it has no times of several plans for a shape: measure with --regret"));
    }
    Ok(text(&all) + &text_of(&ratios))
}

fn not_for_this(path: &Path, why: &str) -> Error {
    Error::Usage(format!("{} cannot be planned again: {why}", path.display()))
}

/// The GPU that a report is of.
fn gpu_of(report: &AtlasReport) -> Option<DeviceFacts> {
    let DeviceInfo::Cuda { name, compute_capability, multiprocessors, memory_bytes, .. } = &report.device else {
        return None;
    };
    let (major, minor) = compute_capability.split_once('.')?;
    let capability = (major.parse().ok()?, minor.parse().ok()?);
    Some(DeviceFacts::of_gpu(name, capability, *multiprocessors, *memory_bytes))
}

/// What this build chooses for a shape, and how long that took; none without times.
fn replanned<'a>(
    device: &DeviceFacts,
    options: &Options,
    row: &'a Row,
    times: &'a [PlanTime],
) -> Result<Option<Replanned<'a>>, Error> {
    let Some(best) = times.iter().min_by(|one, other| one.median_ms.total_cmp(&other.median_ms)) else {
        return Ok(None);
    };
    let plan = plan::plan(device, &row.shape.description()?, options)?;
    let regret = time_of(&plan, times).map(|time| time.median_ms / best.median_ms);
    let chosen = format!("{} /{}", plan.kernel().name, plan.splits());
    Ok(Some(Replanned { row, chosen, regret, best }))
}

/// Compares the times of all plans of a shape with what the model estimates.
fn compare(
    device: &DeviceFacts,
    constants: &ConstantsChoice,
    row: &Row,
    times: &[PlanTime],
    ratios: &mut Ratios,
) -> Result<(), Error> {
    let product = row.shape.description()?;
    for time in times {
        let Ok(kernel) = kernels::find(&time.kernel) else { continue };
        let (splits, constants) = (Some(time.splits), constants.clone());
        let options = Options { splits, tables: Tables::None, constants, ..Options::from(kernel) };
        let Ok(plan) = plan::plan(device, &product, &options) else { continue };
        let Some(estimated_ms) = plan.explanation().estimated_ms else { continue };
        let words = time.kernel.split('_').filter(|word| word.parse::<Orders>().is_err());
        let of_kernel = ratios.entry(words.collect::<Vec<_>>().join("_")).or_default();
        of_kernel[usize::from(!product.is_aligned())].push(time.median_ms / estimated_ms);
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
    let mut line = |name: &str, regrets: &mut Vec<f64>| {
        regrets.sort_by(f64::total_cmp);
        let at = |share: f64| regrets[((regrets.len() - 1) as f64 * share).round() as usize];
        let [median, most] = [at(0.5), at(0.95)];
        let largest = at(1.0);
        let count = regrets.len();
        _ = writeln!(text, "{name:<16}{count:>5} shapes   median {median:.3}   95 % {most:.3}   largest {largest:.3}");
    };
    let mut every: Vec<f64> = classes.values().flatten().copied().collect();
    for (name, regrets) in &mut classes {
        line(name, regrets);
    }
    if !every.is_empty() {
        line("all", &mut every);
    }
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
