//! What was measured of the atlas, and what it comes to.

use serde::{Deserialize, Serialize};

use super::super::accuracy::Errors;
use super::super::report::{BaselineTimes, CublasInfo, GpuState};
use super::super::roofline::{Least, Roofline};
use super::super::timing::Times;
use super::shape::Shape;
use tilewright::Precision;
use tilewright::device::DeviceInfo;

/// What the `schema` of a report says.
pub const SCHEMA: &str = "tilewright-atlas";

/// The version of the schema. It changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

pub use pages::sections::atlas::SLOWER;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtlasReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When it began, in UTC (RFC 3339).
    pub date: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from, with `-dirty` if files had been changed; none outside a repository.
    pub commit: Option<String>,
    /// The GPU.
    pub device: DeviceInfo,
    /// Clocks, power and temperature before the first measurement, if the system tells.
    pub state_before: Option<GpuState>,
    /// The same after the last one.
    pub state_after: Option<GpuState>,
    /// The cuBLAS that is compared with.
    pub cublas: Option<CublasInfo>,
    /// Where the table of measured times is from by which plans chose; none if the model had to choose.
    pub table: Option<String>,
    /// The constants that the model went by, in words; none in reports from before they could be measured.
    #[serde(default)]
    pub constants: Option<String>,
    /// What the GPU can do at most.
    pub roofline: Roofline,
    /// The precision that ours had to have.
    pub precision: Precision,
    /// The factor of what C was; 0 in reports from before there could be one.
    #[serde(default)]
    pub beta: f32,
    /// What shapes were drawn by, and operands made from; 0 for the shapes of the atlas itself.
    pub seed: u64,
    /// How many shapes of each class were asked for; none for all.
    pub sample: Option<usize>,
    /// The most runs of each contestant.
    pub runs: usize,
    /// How many shapes were asked for and left out, because time was up or the run was ended.
    pub left_out: usize,
    /// What the classes come to.
    pub summary: Summary,
    /// The shapes, class by class.
    pub results: Vec<Row>,
}

/// One shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its class.
    pub class: String,
    /// What tells it from all others of its class.
    pub id: String,
    /// The shape.
    #[serde(flatten)]
    pub shape: Shape,
    /// What was measured, or why nothing was.
    pub outcome: Outcome,
}

/// What was measured, or why nothing was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Times and errors.
    Measured(Box<Measured>),
    /// Ours could not compute it.
    NotRun {
        /// Why.
        reason: String,
    },
}

/// Times and errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The kernel that multiplies.
    pub kernel: String,
    /// All kernels of the plan.
    pub kernels: Vec<String>,
    /// Among how many blocks each sum is divided.
    pub splits: u32,
    /// What has chosen the plan: `table` or `model`.
    pub chosen_by: String,
    /// The time that the model estimates, in milliseconds.
    pub estimated_ms: Option<f64>,
    /// The memory that it took besides the operands.
    pub workspace_bytes: u64,
    /// The operand sets that launches went through.
    pub operand_sets: usize,
    /// Our times.
    pub times: Times,
    /// The median time of a call on the host, in microseconds.
    pub call_us: f64,
    /// The least time by the measured ceilings.
    pub least: Option<Least>,
    /// cuBLAS's ways, the fastest first.
    pub baselines: Vec<BaselineTimes>,
    /// Why there is none of them.
    pub no_baseline: Option<String>,
    /// How many elements were compared with f64.
    pub compared: usize,
    /// Our errors.
    pub error: Errors,
    /// Those of the fastest of cuBLAS's ways.
    pub cublas_error: Option<Errors>,
    /// By how much the best plan is faster, if that was asked for.
    pub regret: Option<Regret>,
}

/// The chosen plan beside the best one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    /// The plans that were measured, the chosen one among them.
    pub plans: usize,
    /// The time of the chosen one divided by that of the best one; 1 if none is faster.
    pub ratio: f64,
    /// The kernel of the fastest of the others.
    pub best_kernel: String,
    /// Its splits.
    pub best_splits: u32,
    /// Its median, in milliseconds.
    pub best_ms: f64,
    /// That of the chosen one in the same turns.
    pub chosen_ms: f64,
    /// All plans, in turns before that: what the model has to be right about.
    pub times: Vec<PlanTime>,
}

/// The time of a plan beside the model's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTime {
    /// The kernel.
    pub kernel: String,
    /// Among how many blocks each sum was divided.
    pub splits: u32,
    /// What the model estimates, in milliseconds; nothing for the CPU executor.
    pub estimated_ms: Option<f64>,
    /// The measured median, in milliseconds.
    pub median_ms: f64,
}

impl Measured {
    /// The time of the fastest of cuBLAS's ways divided by ours.
    pub fn ratio(&self) -> Option<f64> {
        let ratio = self.baselines.first()?.times.median_ms / self.times.median_ms;
        ratio.is_finite().then_some(ratio)
    }

    /// The least time by the ceilings divided by ours.
    pub fn share(&self) -> Option<f64> {
        let share = self.least.as_ref()?.ms / self.times.median_ms;
        share.is_finite().then_some(share)
    }
}

impl Row {
    /// What was measured.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::NotRun { .. } => None,
        }
    }

    /// The time of the fastest of cuBLAS's ways divided by ours, where both were measured.
    pub fn ratio(&self) -> Option<f64> {
        self.measured()?.ratio().filter(|&ratio| ratio > 0.0)
    }
}

/// What the classes come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The classes, in the order in which they were measured.
    pub classes: Vec<ClassSummary>,
    /// The mean of the classes' geometric means; none if no class has one.
    pub mean: Option<f64>,
}

/// What a class comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// The class.
    pub class: String,
    /// The shapes that were measured.
    pub measured: usize,
    /// Those that ours could not compute.
    pub not_run: usize,
    /// Those with a ratio: cuBLAS has a way for them.
    pub compared: usize,
    /// The geometric mean of the ratios; none without any.
    pub mean: Option<f64>,
    /// The least ratio, and of which shape.
    pub least: Option<(f64, String)>,
    /// How many ratios are below [`SLOWER`].
    pub slower: usize,
    /// The geometric mean of the shares of the limit.
    pub share: Option<f64>,
    /// The geometric mean and the largest of the regrets.
    pub regret: Option<[f64; 2]>,
}

/// The geometric mean of some positive numbers.
fn geometric_mean(numbers: &[f64]) -> Option<f64> {
    let sum: f64 = numbers.iter().map(|number| number.ln()).sum();
    (!numbers.is_empty()).then(|| (sum / numbers.len() as f64).exp())
}

impl Summary {
    /// Of some rows, class by class.
    pub fn of(rows: &[Row]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            if !names.contains(&row.class.as_str()) {
                names.push(&row.class);
            }
        }
        let of_class = |name: &&str| ClassSummary::of(name, rows.iter().filter(|row| row.class == **name));
        let classes: Vec<ClassSummary> = names.iter().map(of_class).collect();
        let means: Vec<f64> = classes.iter().filter_map(|class| class.mean).collect();
        let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
        Self { classes, mean }
    }
}

impl ClassSummary {
    fn of<'a>(class: &str, rows: impl Iterator<Item = &'a Row>) -> Self {
        let rows: Vec<&Row> = rows.collect();
        let measured: Vec<&Measured> = rows.iter().filter_map(|row| row.measured()).collect();
        let ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio()).collect();
        let shares: Vec<f64> = measured.iter().filter_map(|row| row.share()).filter(|&share| share > 0.0).collect();
        let regrets: Vec<f64> = measured.iter().filter_map(|row| Some(row.regret.as_ref()?.ratio)).collect();
        let least = rows.iter().filter_map(|row| Some((row.ratio()?, row.id.clone())));
        Self {
            class: class.to_owned(),
            measured: measured.len(),
            not_run: rows.len() - measured.len(),
            compared: ratios.len(),
            mean: geometric_mean(&ratios),
            least: least.min_by(|one, other| one.0.total_cmp(&other.0)),
            slower: ratios.iter().filter(|&&ratio| ratio < SLOWER).count(),
            share: geometric_mean(&shares),
            regret: geometric_mean(&regrets).map(|mean| [mean, regrets.iter().copied().fold(1.0, f64::max)]),
        }
    }
}
