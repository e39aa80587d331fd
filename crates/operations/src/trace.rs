//! Where the kernels of an operation make the first NaN, the first infinity, the first subnormal number, and lose the first addend.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cuda_std::executor::{Checks, FirstUnusual, ValueTrace};
use runtime::Device;
use serde::{Serialize, Serializer};

use crate::Error;
use crate::executor::executor;
use crate::operation::{Operation, Sizes};
use crate::trial::Trial;

/// What came up in cases of an operation.
#[derive(Debug, Serialize)]
pub struct TraceReport {
    /// The operation.
    pub operation: &'static str,
    /// For each kernel and each kind of number the first one, with the sizes of the first case that shows it.
    pub found: Vec<Shown>,
}

/// A number, and the case that shows it.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// The sizes, as `--sizes` takes them.
    pub sizes: String,
    /// The operation of the kernel.
    #[serde(serialize_with = "as_text")]
    pub first: FirstUnusual,
}

fn as_text<S: Serializer>(first: &FirstUnusual, serializer: S) -> Result<S::Ok, S::Error> {
    first.to_string().serialize(serializer)
}

/// Runs cases on the executor with all its checks, and looks for unusual numbers; whether the results are right does not matter.
/// `schedule` decides the order of blocks that can wait for one another.
///
/// # Errors
/// What is wrong with a case otherwise.
pub fn trace(operation: &dyn Operation, cases: Vec<Sizes>, seed: u64, schedule: u64) -> Result<TraceReport, Error> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    for sizes in cases {
        let trace = Arc::new(ValueTrace::default());
        let device = Device::with_executor(executor(Checks::Full)?.schedule(schedule).with_trace(Arc::clone(&trace)));
        let text = sizes.to_string();
        Trial::new(operation, sizes, seed)?.run(&device)?;
        let new = trace.first().into_iter().filter(|first| known.insert((first.kernel, first.unusual)));
        found.extend(new.map(|first| Shown { sizes: text.clone(), first }));
    }
    Ok(TraceReport { operation: operation.describe().name, found })
}

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, found } = self;
        match found.len() {
            0 => write!(f, "{operation}: no kernel makes a NaN, an infinity or a subnormal number, or loses an addend"),
            _ => write!(f, "{operation}:"),
        }?;
        found.iter().try_for_each(|Shown { sizes, first }| write!(f, "\nwith {sizes}, {first}"))
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Unusual;

    use super::*;
    use crate::testing::Twice;

    #[test]
    fn the_first_case_that_shows_a_number_is_told() {
        let operation = Twice { wrong: false };
        let cases = ["n=0", "n=31", "n=100"].map(|sizes| operation.describe().parse_sizes(sizes).unwrap());
        let report = trace(&operation, cases.into(), 1, 0).unwrap();
        // Twice the largest number is infinite; of NaNs there are only those that are given.
        let found: Vec<_> = report.found.iter().map(|it| (&*it.sizes, it.first.unusual)).collect();
        assert!(found.iter().any(|(_, unusual)| *unusual == Unusual::Infinity), "{report}");
        assert!(found.iter().all(|(sizes, unusual)| *sizes != "n=0" && *unusual != Unusual::Nan), "{report}");
        assert!(serde_json::to_string(&report).unwrap().contains("the first infinity"), "{report}");
    }
}
