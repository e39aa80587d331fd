//! The explanation of a plan for grouped products, as text and as JSON: which kernels there is a launch of, and why.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::explanation::Reason;
use crate::Precision;
use crate::device_facts::DeviceFacts;

/// Why a plan of grouped products is what it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupedExplanation {
    /// The device.
    pub device: DeviceFacts,
    /// The precision asked for; where an accuracy is, that of the first kernel.
    pub precision: Precision,
    /// The number of products.
    pub products: usize,
    /// How many of these have no results, so that nothing runs for them.
    pub empty: usize,
    /// Why the kernels were chosen.
    pub reason: Reason,
    /// What is launched, in order: each kernel once.
    pub launches: Vec<GroupedLaunch>,
    /// The time that the model estimates, in milliseconds; none on the CPU executor.
    pub estimated_ms: Option<f64>,
    /// What the model has compared, the fastest first.
    pub candidates: Vec<GroupedCandidate>,
}

/// A launch of grouped products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupedLaunch {
    /// The kernel.
    pub kernel: String,
    /// What it makes of its operands, in words.
    pub scheme: String,
    /// The part of a result that a block, or a team of a block, computes, and the k that it loads at a time: m, n, k.
    pub tile: [u32; 3],
    /// The products that it computes.
    pub products: usize,
    /// Its blocks.
    pub blocks: u64,
}

/// A way to compute all products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupedCandidate {
    /// By which kernels, with `*` for the layouts.
    pub what: String,
    /// The time that the model estimates, in milliseconds.
    pub estimated_ms: f64,
}

impl fmt::Display for GroupedExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, precision, products, empty, reason, .. } = self;
        writeln!(f, "Plan for {products} grouped products")?;
        writeln!(f, "  device     {device}")?;
        writeln!(f, "  precision  {precision}: {}", precision.summary())?;
        writeln!(f, "  because    {reason}")?;
        if *empty > 0 {
            writeln!(f, "  note       nothing runs for {empty} of the products, which have no results")?;
        }
        for (number, launch) in self.launches.iter().enumerate() {
            let GroupedLaunch { kernel, scheme, tile: [m, n, k], products, blocks } = launch;
            writeln!(
                f,
                "  step {}     multiply {products} with {kernel} ({scheme}): {blocks} blocks, tiles of {m}x{n}, k = {k} at a time",
                number + 1
            )?;
        }
        if let Some(estimate) = self.estimated_ms {
            writeln!(f, "  estimate   {estimate:.4} ms")?;
        }
        const SHOWN: usize = 8;
        for GroupedCandidate { what, estimated_ms } in self.candidates.iter().take(SHOWN) {
            writeln!(f, "    {what}: estimated {estimated_ms:.4} ms")?;
        }
        Ok(())
    }
}
