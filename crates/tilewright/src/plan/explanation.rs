//! The explanation of a plan, as text and as JSON: the chosen kernel, the steps, and each other kernel with its estimated time or the
//! reason why it cannot compute the product.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::description::Description;
use crate::device_facts::DeviceFacts;
use crate::{Bytes, Precision};

/// Why a plan is what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The product.
    pub product: Description,
    /// The device.
    pub device: DeviceFacts,
    /// The precision asked for; where an accuracy is, that of the kernel.
    pub precision: Precision,
    /// The kernel that was chosen.
    pub kernel: String,
    /// What it makes of its operands, in words.
    pub scheme: String,
    /// Why it was chosen.
    pub reason: Reason,
    /// What is worth knowing besides, in a sentence each.
    pub notes: Vec<String>,
    /// The part of C that a block computes and the terms that it loads at a time: m, n, k.
    pub tile: Option<[u32; 3]>,
    /// Among how many blocks each sum is divided.
    pub splits: u32,
    /// The blocks of the kernel that multiplies.
    pub blocks: u64,
    /// The memory that the plan needs besides the operands.
    pub workspace_bytes: u64,
    /// What runs, in order.
    pub steps: Vec<String>,
    /// The time that the model estimates, in milliseconds; none on the CPU executor.
    pub estimated_ms: Option<f64>,
    /// The constants that the model went by, in words; none on the CPU executor, or in explanations from before they could be measured.
    #[serde(default)]
    pub constants: Option<String>,
    /// All kernels, those that can compute the product first, the fastest of them by the model first.
    pub candidates: Vec<Candidate>,
}

/// Why a kernel was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Reason {
    /// It was asked for by its name.
    Name,
    /// It was measured to be the fastest for this product on this GPU.
    Table {
        /// Where the measurement is from: date and commit of the table.
        source: String,
        /// The product that was measured, as `NT m=2048 n=4096 k=8192`.
        measured: String,
        /// What it took, in microseconds.
        median_us: f64,
    },
    /// The model estimates it to be the fastest.
    Model,
    /// The CPU executor takes the last of the basic kernels that can compute the product: times there say nothing.
    Ladder,
}

/// A kernel, as the choice saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name.
    pub kernel: String,
    /// Among how many blocks it would best divide each sum.
    pub splits: u32,
    /// The time that the model estimates, in milliseconds; none for those that cannot compute the product, and on the CPU
    /// executor.
    pub estimated_ms: Option<f64>,
    /// Why it cannot compute the product, or may not unless it is named.
    pub refusal: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "it was asked for by its name"),
            Self::Table { source, measured, median_us } => {
                write!(f, "measured as the fastest: {median_us:.1} us for {measured} (table of {source})")
            }
            Self::Model => write!(f, "the model estimates it to be the fastest"),
            Self::Ladder => write!(f, "the highest rung that can do it; times on the CPU executor say nothing"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { product, device, precision, kernel, scheme, reason, .. } = self;
        writeln!(f, "Plan for {product}")?;
        writeln!(f, "  device     {device}")?;
        writeln!(f, "  precision  {precision}: {}", precision.summary())?;
        writeln!(f, "  kernel     {kernel} ({scheme})")?;
        writeln!(f, "  because    {reason}")?;
        for note in &self.notes {
            writeln!(f, "  note       {note}")?;
        }
        let tile = self.tile.map(|[m, n, k]| format!("{m}x{n}, {k} terms at a time")).unwrap_or("none".to_owned());
        writeln!(f, "  tile       {tile}; {} blocks, sums divided among {}", self.blocks, self.splits)?;
        writeln!(f, "  workspace  {}", Bytes(self.workspace_bytes.into()))?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  step {}     {step}", number + 1)?;
        }
        if let Some(estimate) = self.estimated_ms {
            writeln!(f, "  estimate   {estimate:.4} ms")?;
        }
        if let Some(constants) = &self.constants {
            writeln!(f, "  constants  {constants}")?;
        }
        if self.reason == Reason::Name {
            return Ok(());
        }
        writeln!(f, "  kernels that can compute it:")?;
        for Candidate { kernel, splits, estimated_ms, .. } in self.candidates.iter().filter(|it| it.refusal.is_none()) {
            let estimate = estimated_ms.map(|estimate| format!(", estimated {estimate:.4} ms")).unwrap_or_default();
            let splits = if *splits > 1 { format!(", {splits} splits") } else { String::new() };
            writeln!(f, "    {kernel}{splits}{estimate}")?;
        }
        writeln!(f, "  others:")?;
        // Those with the same reason together, in the order of the first of them.
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for candidate in &self.candidates {
            let Some(refusal) = candidate.refusal.as_deref() else { continue };
            match groups.iter_mut().find(|(reason, _)| *reason == refusal) {
                Some((_, kernels)) => kernels.push(&candidate.kernel),
                None => groups.push((refusal, vec![&candidate.kernel])),
            }
        }
        for (refusal, kernels) in groups {
            writeln!(f, "    {}: {refusal}", kernels.join(", "))?;
        }
        Ok(())
    }
}
