//! What the kernels of an operation would cost on a GPU, by lines of their source, as the executor counts it.

use std::fmt;
use std::sync::Arc;

use cuda_std::executor::{Checks, Cost, CostKind, Costs, KernelCosts};
use runtime::Device;
use serde::{Serialize, Serializer};

use crate::Error;
use crate::executor::executor;
use crate::operation::{Operation, Sizes};
use crate::trial::Trial;

/// What one case of an operation would cost.
#[derive(Debug, Serialize)]
pub struct CostReport {
    /// The operation.
    pub operation: &'static str,
    /// The sizes, as `--sizes` takes them.
    pub sizes: String,
    /// Its kernels.
    #[serde(serialize_with = "as_rows")]
    pub kernels: Vec<KernelCosts>,
}

/// Runs one case on the executor, with all its checks, and counts what its kernels access.
///
/// # Errors
/// What is wrong with the case.
pub fn cost(operation: &dyn Operation, sizes: Sizes, seed: u64) -> Result<CostReport, Error> {
    let text = sizes.to_string();
    let kernels = costs_of(operation, vec![sizes], seed)?;
    Ok(CostReport { operation: operation.describe().name, sizes: text, kernels })
}

/// What some cases of an operation would cost together, each of which is launched once.
///
/// ```
/// # use operations::Operation;
/// # fn first_kernel(operation: &dyn Operation) -> Result<(), operations::Error> {
/// let cases = operation.describe().cases(false)?;
/// let costs = operations::costs_of(operation, cases, 1)?;
/// println!("{}", costs[0]); // by lines of the kernel's source
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What is wrong with one of the cases.
pub fn costs_of(operation: &dyn Operation, cases: Vec<Sizes>, seed: u64) -> Result<Vec<KernelCosts>, Error> {
    let costs = Arc::new(Costs::default());
    let device = Device::with_executor(executor(Checks::Full)?.with_costs(Arc::clone(&costs)));
    for sizes in cases {
        let trial = Trial::new(operation, sizes, seed)?;
        trial.judge(&trial.run(&device)?)?;
    }
    Ok(costs.kernels())
}

impl fmt::Display for CostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}:", self.operation, self.sizes)?;
        self.kernels.iter().try_for_each(|kernel| write!(f, "\n{kernel}\n"))
    }
}

/// A row of a table.
#[derive(Serialize)]
struct Row<'a> {
    /// None for the sum of all lines.
    line: Option<String>,
    what: &'a str,
    requests: u64,
    lanes: u64,
    bytes: u64,
    sectors: u64,
    wavefronts: u64,
    conflicts: u64,
}

impl Row<'_> {
    fn new(line: Option<String>, kind: CostKind, cost: &Cost) -> Self {
        let Cost { requests, lanes, bytes, sectors, wavefronts, conflicts } = *cost;
        Self { line, what: kind.name(), requests, lanes, bytes, sectors, wavefronts, conflicts }
    }
}

#[derive(Serialize)]
struct OfKernel<'a> {
    kernel: &'a str,
    launches: u64,
    rows: Vec<Row<'a>>,
}

fn as_rows<S: Serializer>(kernels: &[KernelCosts], serializer: S) -> Result<S::Ok, S::Error> {
    let of_kernel = |kernel: &KernelCosts| {
        let lines = kernel.lines.iter().map(|line| Row::new(Some(line.line.to_string()), line.kind, &line.cost));
        let totals = CostKind::ALL.into_iter().map(|kind| (kind, kernel.total(kind)));
        let totals = totals.filter(|(_, total)| total.requests > 0);
        let rows = lines.chain(totals.map(|(kind, total)| Row::new(None, kind, &total))).collect();
        OfKernel { kernel: kernel.kernel, launches: kernel.launches, rows }
    };
    serializer.collect_seq(kernels.iter().map(of_kernel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Twice;

    #[test]
    fn the_lines_of_a_kernel_and_their_sums_are_told() {
        let sizes = Twice { wrong: false }.describe().parse_sizes("n=64").unwrap();
        let report = cost(&Twice { wrong: false }, sizes, 1).unwrap();
        assert_eq!(report.kernels.len(), 1);
        let loads = report.kernels[0].total(CostKind::GlobalLoad);
        assert_eq!((loads.requests, loads.lanes, loads.sectors), (2, 64, 8));
        assert!(report.to_string().contains("doubles, launched 1 time:"), "{report}");
        let json = serde_json::to_value(&report).unwrap();
        let rows = json["kernels"][0]["rows"].as_array().unwrap();
        let total = rows.iter().find(|row| row["line"].is_null() && row["what"] == "global load").unwrap();
        assert_eq!(total["sectors"], 8);
    }
}
