//! What a benchmark found: as a table for people, and as JSON for machines and for later comparisons.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::accuracy::Errors;
use super::inputs::Inputs;
use super::roofline::{Least, Roofline};
use super::suite::{Case, Target};
use super::timing::Times;
use crate::Error;
use crate::baseline::Math;
use crate::files::{read_text, write_json};
use tilewright::Precision;
use tilewright::Sizes;
use tilewright::device::DeviceInfo;

/// What the `schema` of a report says.
pub const SCHEMA: &str = "tilewright-bench";

/// The version of the schema. It changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
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
    /// Where the table of measured times is from by which plans chose; none if there is none for the GPU, or the model had to choose.
    pub table: Option<String>,
    /// The version of torch that was timed, if one was.
    pub torch: Option<String>,
    /// What the GPU can do at most.
    pub roofline: Roofline,
    /// The measured runs of each contestant.
    pub runs: usize,
    /// What operands were made from.
    pub seed: u64,
    /// What times were measured on.
    pub timed_inputs: Inputs,
    /// The cases, in the order in which they ran.
    pub results: Vec<CaseReport>,
}

/// Clocks, power and temperature, as `nvidia-smi` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named after what they are")]
pub struct GpuState {
    pub sm_mhz: u32,
    pub memory_mhz: u32,
    pub max_sm_mhz: u32,
    pub power_w: f64,
    pub temperature_c: u32,
}

/// A cuBLAS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CublasInfo {
    /// Its version.
    pub version: String,
    /// Its file.
    pub path: String,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// What tells it from all others.
    pub id: String,
    /// The product's name.
    pub problem: String,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The length of the sums.
    pub k: usize,
    /// `NN`, `NT`, `TN` or `TT`.
    pub layout: String,
    /// The precision that ours had to have.
    pub precision: Precision,
    /// What cuBLAS was allowed.
    pub math: Math,
    /// What was measured, or why nothing was.
    pub outcome: Outcome,
    /// What was to be reached.
    pub target: Option<TargetReport>,
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
    /// Our kernel.
    pub kernel: String,
    /// Among how many blocks it divided each sum.
    pub splits: u32,
    /// The memory that it took besides the operands.
    pub workspace_bytes: u64,
    /// The operand sets that launches went through.
    pub operand_sets: usize,
    /// Our times.
    pub times: Times,
    /// 10¹² operations per second at the median.
    pub tflop_per_s: f64,
    /// 10¹² bytes of operands and result per second at the median.
    pub tb_per_s: f64,
    /// The least time by the measured ceilings.
    pub least: Option<Least>,
    /// cuBLAS's ways, the fastest first.
    pub baselines: Vec<BaselineTimes>,
    /// The median of `torch.matmul` in the run that was given, in milliseconds.
    pub torch_ms: Option<f64>,
    /// The errors, for each kind of inputs.
    pub errors: Vec<ErrorReport>,
}

/// The times of one of cuBLAS's ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineTimes {
    /// The function.
    pub routine: String,
    /// Its times.
    pub times: Times,
}

/// The errors of both on one kind of inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// The inputs.
    pub inputs: Inputs,
    /// How many rows of the result were compared, each in every column.
    pub rows: usize,
    /// Ours.
    pub ours: Errors,
    /// cuBLAS's: by the function that is the first of this list, for each kind of inputs.
    pub cublas: Option<(String, Errors)>,
    /// The most that ours may be, for [`Precision::Fp32`].
    pub bound: Option<Errors>,
}

/// What was to be reached, and whether it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// The least ratio.
    pub floor: f64,
    /// The ratio that is wanted.
    pub goal: Option<f64>,
    /// The least share of the ceilings.
    pub share: Option<f64>,
    /// The group whose geometric mean is to reach a number.
    pub group: Option<(String, f64)>,
}

impl From<Target> for TargetReport {
    fn from(target: Target) -> Self {
        let Target { floor, goal, share, group } = target;
        Self { floor, goal, share, group: group.map(|(name, mean)| (name.to_owned(), mean)) }
    }
}

impl ErrorReport {
    /// Whether our errors are within their bound. Without one, they are.
    pub fn passes(&self) -> bool {
        self.bound.is_none_or(|bound| self.ours.frobenius <= bound.frobenius && self.ours.max <= bound.max)
    }
}

impl Measured {
    /// The time of the fastest baseline divided by ours.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.baselines.first()?.times.median_ms / self.times.median_ms)
    }

    /// The least time by the ceilings, divided by ours.
    pub fn share(&self) -> Option<f64> {
        Some(self.least.as_ref()?.ms / self.times.median_ms)
    }

    /// The time of the fastest baseline divided by that of torch.
    pub fn baseline_to_torch(&self) -> Option<f64> {
        Some(self.baselines.first()?.times.median_ms / self.torch_ms?)
    }
}

impl CaseReport {
    /// A report of a case that has not run.
    pub fn new(case: &Case, reason: String) -> Self {
        let Sizes { m, n, k } = case.sizes;
        Self {
            id: case.id(),
            problem: case.problem.clone(),
            m,
            n,
            k,
            layout: case.orders.to_string(),
            precision: case.precision,
            math: case.math(),
            outcome: Outcome::NotRun { reason },
            target: case.target.map(TargetReport::from),
        }
    }

    /// What was measured.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::NotRun { .. } => None,
        }
    }

    /// Whether the floor was met, errors included; none if there is no floor.
    pub fn floor_met(&self) -> Option<bool> {
        let target = self.target.as_ref()?;
        let Some(measured) = self.measured() else { return Some(false) };
        let fast = measured.ratio().is_some_and(|ratio| ratio >= target.floor);
        let near = target.share.is_none_or(|least| measured.share().is_some_and(|share| share >= least));
        Some(fast && near && measured.errors.iter().all(ErrorReport::passes))
    }
}

impl BenchReport {
    /// Writes the report as JSON. The file is complete or not there: it gets its name when it is written.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write_json(&self, path: &Path) -> Result<(), Error> {
        write_json(path, self)
    }

    /// Reads a report that was written by this version of the schema.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Usage`] for what is no such report.
    pub fn read_json(path: &Path) -> Result<Self, Error> {
        Self::parse(&read_text(path)?)
            .map_err(|reason| Error::Usage(format!("{} is no benchmark report: {reason}", path.display())))
    }

    /// Reads the text of such a report.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match (value["schema"].as_str(), value["schema_version"].as_u64()) {
            (Some(SCHEMA), Some(version)) if version == u64::from(SCHEMA_VERSION) => {}
            (Some(SCHEMA), version) => {
                let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
                return Err(format!(
                    "it has version {version} of the schema, and this program reads {SCHEMA_VERSION}; measure again"
                ));
            }
            _ => return Err(format!("its schema is not `{SCHEMA}`")),
        }
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

impl std::fmt::Display for GpuState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sm_mhz, memory_mhz, max_sm_mhz, power_w, temperature_c } = self;
        write!(f, "{sm_mhz} of {max_sm_mhz} MHz, memory {memory_mhz} MHz, {power_w:.0} W, {temperature_c} °C")
    }
}

impl GpuState {
    /// Asks `nvidia-smi`, if it is there.
    pub fn read(device: &DeviceInfo) -> Option<Self> {
        let DeviceInfo::Cuda { uuid, .. } = device else { return None };
        let query = "--query-gpu=clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu";
        let output = std::process::Command::new("nvidia-smi")
            .args(["-i", uuid, query, "--format=csv,noheader,nounits"])
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Self::parse(&String::from_utf8(output.stdout).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        let values: Vec<&str> = line.trim().split(',').map(str::trim).collect();
        let [sm, memory, max_sm, power, temperature] = values.as_slice() else { return None };
        Some(Self {
            sm_mhz: sm.parse().ok()?,
            memory_mhz: memory.parse().ok()?,
            max_sm_mhz: max_sm.parse().ok()?,
            power_w: power.parse().ok()?,
            temperature_c: temperature.parse().ok()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
