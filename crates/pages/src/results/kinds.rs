//! What files say, as far as pages need it. The fields are named and have units as where they are written, which each type names.
#![allow(missing_docs, reason = "fields have the names and the meaning that they have where they are written")]

use serde::{Deserialize, Deserializer};

/// A number, which JSON cannot write if it is infinite or none: then it is text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(|_| serde::de::Error::custom(format!("`{text}` is not a number"))),
    }
}

/// `host::bench::timing::Times`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Times {
    #[serde(deserialize_with = "number")]
    pub median_ms: f64,
    /// The interquartile range.
    #[serde(deserialize_with = "number")]
    pub spread_ms: f64,
    #[serde(deserialize_with = "number")]
    pub min_ms: f64,
}

/// `host::bench::roofline::Ceiling`: 10¹² bytes or operations per second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Ceiling {
    pub per_second: f64,
    pub by: String,
}

/// `host::bench::roofline::Roofline`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Roofline {
    pub read: Ceiling,
    pub write: Ceiling,
    pub copy: Ceiling,
    pub fma: Ceiling,
    pub tf32: Option<Ceiling>,
    pub fp64: Option<Ceiling>,
    pub bf16: Option<Ceiling>,
}

/// `host::bench::roofline::Least`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Least {
    #[serde(deserialize_with = "number")]
    pub ms: f64,
    pub bound_by: String,
}

/// `host::bench::accuracy::Errors`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Errors {
    #[serde(deserialize_with = "number")]
    pub frobenius: f64,
    #[serde(deserialize_with = "number")]
    pub max: f64,
}

/// `host::bench::report::BenchReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Bench {
    pub roofline: Roofline,
    pub runs: usize,
    pub results: Vec<Case>,
}

/// `host::bench::report::CaseReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Case {
    pub id: String,
    pub problem: String,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub layout: String,
    pub precision: String,
    pub math: String,
    pub outcome: Outcome<Rates>,
}

/// `host::bench::report::Outcome`, also the atlas's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome<T> {
    Measured(Box<T>),
    NotRun { reason: String },
}

impl<T> Outcome<T> {
    fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(measured) => Some(measured),
            Self::NotRun { .. } => None,
        }
    }

    fn not_run(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::NotRun { reason } => Some(reason),
        }
    }
}

/// `host::bench::report::Measured`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Rates {
    pub kernel: String,
    pub times: Times,
    #[serde(deserialize_with = "number")]
    pub tflop_per_s: f64,
    #[serde(deserialize_with = "number")]
    pub tb_per_s: f64,
    pub least: Option<Least>,
    pub baselines: Vec<Baseline>,
    pub torch_ms: Option<f64>,
    pub errors: Vec<ErrorOn>,
}

/// `host::bench::report::BaselineTimes`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Baseline {
    pub routine: String,
    pub times: Times,
}

/// `host::bench::report::ErrorReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ErrorOn {
    pub inputs: String,
    pub ours: Errors,
    pub cublas: Option<(String, Errors)>,
    pub bound: Option<Errors>,
}

impl Case {
    /// What was measured.
    pub fn measured(&self) -> Option<&Rates> {
        self.outcome.measured()
    }

    /// Why nothing was.
    pub fn not_run(&self) -> Option<&str> {
        self.outcome.not_run()
    }
}

impl Rates {
    /// The time of the fastest baseline divided by ours.
    pub fn ratio(&self) -> Option<f64> {
        positive(self.baselines.first()?.times.median_ms / self.times.median_ms)
    }

    /// The least time by the ceilings divided by ours.
    pub fn share(&self) -> Option<f64> {
        positive(self.least.as_ref()?.ms / self.times.median_ms)
    }
}

/// A quotient that means something.
fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// `host::bench::atlas::report::AtlasReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Atlas {
    pub precision: String,
    pub seed: u64,
    pub results: Vec<AtlasRow>,
}

/// `host::bench::atlas::report::Row`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AtlasRow {
    pub class: String,
    pub id: String,
    pub outcome: Outcome<AtlasTimes>,
}

/// `host::bench::atlas::report::Measured`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AtlasTimes {
    pub kernel: String,
    pub times: Times,
    pub least: Option<Least>,
    pub baselines: Vec<Baseline>,
    pub error: Errors,
}

impl AtlasRow {
    pub fn measured(&self) -> Option<&AtlasTimes> {
        self.outcome.measured()
    }

    pub fn not_run(&self) -> Option<&str> {
        self.outcome.not_run()
    }

    /// The time of the fastest of cuBLAS's ways divided by ours.
    pub fn ratio(&self) -> Option<f64> {
        let measured = self.measured()?;
        positive(measured.baselines.first()?.times.median_ms / measured.times.median_ms)
    }

    /// The least time by the ceilings divided by ours.
    pub fn share(&self) -> Option<f64> {
        let measured = self.measured()?;
        positive(measured.least.as_ref()?.ms / measured.times.median_ms)
    }
}

/// `host::report::Report`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Run {
    pub problems: Vec<RunProblem>,
}

/// `host::report::ProblemReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RunProblem {
    pub problem: String,
    pub formula: String,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub layout: String,
    pub results: Vec<RunResult>,
}

/// `host::report::KernelReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RunResult {
    pub kernel: String,
    pub precision: String,
    pub timing: Timing,
    #[serde(deserialize_with = "number")]
    pub tflop_per_s: f64,
    #[serde(deserialize_with = "number")]
    pub tb_per_s: f64,
    pub check: Check,
}

/// `host::measure::Timing`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Timing {
    #[serde(deserialize_with = "number")]
    pub median_ms: f64,
    #[serde(deserialize_with = "number")]
    pub min_ms: f64,
    #[serde(deserialize_with = "number")]
    pub p90_ms: f64,
}

/// `host::check::Outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Check {
    pub passed: bool,
    #[serde(deserialize_with = "number")]
    pub frobenius_error: f64,
    #[serde(deserialize_with = "number")]
    pub max_error: f64,
}

/// `testkit::Measurement`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Operation {
    pub operation: String,
    pub sizes: String,
    pub device: String,
    #[serde(default)]
    pub is_of_executor: bool,
    #[serde(flatten)]
    pub times: Times,
    pub bytes: f64,
    pub operations: f64,
    pub least: Option<Least>,
    pub baseline: Option<OperationBaseline>,
    pub no_baseline: Option<String>,
    #[serde(default)]
    pub peak: Option<Peak>,
}

/// `testkit::MeasuredBaseline`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OperationBaseline {
    pub name: String,
    #[serde(flatten)]
    pub times: Times,
    pub wrong: Option<String>,
}

/// `testkit::Peak`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Peak {
    pub bytes_per_second: f64,
    pub fp32_per_second: Option<f64>,
}

/// `testkit::counters::CountersReport`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Counted {
    pub kernels: Vec<OfKernel>,
    pub summary: Vec<CountersInGroup>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CountersInGroup {
    pub group: String,
    pub kernels: usize,
    pub equal: usize,
    pub near: usize,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OfKernel {
    pub kernel: String,
    pub operations: Vec<String>,
    pub launches: [u64; 2],
    pub counters: Vec<Counter>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Counter {
    pub what: String,
    pub executor: u64,
    pub gpu: u64,
}

/// What `python/kernelbench/run.py` writes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KernelBench {
    pub geometric_mean: f64,
    pub problems: Vec<KernelBenchProblem>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct KernelBenchProblem {
    pub name: String,
    pub shape: String,
    pub kernel: String,
    pub times: std::collections::BTreeMap<String, KernelBenchTimes>,
    pub speed_up: f64,
    pub error: f64,
    pub torch_error: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct KernelBenchTimes {
    pub median_ms: f64,
    pub spread_ms: f64,
}

/// `tests::agreement`: a kernel on a GPU and on the executor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Agreeing {
    pub kernel: String,
    pub products: u64,
    pub elements: u64,
    pub same_bits: u64,
    #[serde(deserialize_with = "number")]
    pub difference: f64,
    #[serde(deserialize_with = "number")]
    pub error_of_gpu: f64,
    #[serde(deserialize_with = "number")]
    pub error_of_executor: f64,
    #[serde(deserialize_with = "number")]
    pub bound: f64,
}

/// `tests::conformance`: instructions on both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Conformance {
    pub outcomes: Vec<Instruction>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Instruction {
    pub instruction: String,
    pub elements: u64,
    pub equal: u64,
    pub equal_but_for_nan_payload: u64,
    pub different: u64,
    pub error: Option<String>,
}
