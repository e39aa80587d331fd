//! Whether a GPU and the executor agree, bit by bit.

use std::fmt;

use runtime::Device;
use serde::Serialize;

use crate::Error;
use crate::check::as_text;
use crate::operation::{Bits, Operation, Sizes};
use crate::trial::Trial;

/// What has come of an operation's cases on two devices.
#[derive(Debug, Serialize)]
pub struct Agreement {
    /// The operation.
    pub operation: &'static str,
    /// The one device.
    pub device: String,
    /// The other one.
    pub executor: String,
    /// How many cases both have computed.
    pub cases: usize,
    /// How many elements their outputs have.
    pub elements: usize,
    /// How many of them have the same bits on both; any NaN is the same as any other.
    pub same_bits: usize,
    /// Whether all have to.
    pub has_to_be_same: bool,
    /// What was wrong, by sizes and seed: wrong on one of the two, or other bits where they have to be the same.
    pub failures: Vec<Disagreement>,
}

/// A case in which two devices do not agree.
#[derive(Debug, Serialize)]
pub struct Disagreement {
    /// Its sizes, as `--sizes` takes them.
    pub sizes: String,
    /// What its numbers were generated from.
    pub seed: u64,
    /// What is wrong.
    #[serde(serialize_with = "as_text")]
    pub error: Option<Error>,
}

impl Agreement {
    /// Whether there was something to compare, and all of it was right.
    pub fn holds(&self) -> bool {
        self.cases > 0 && self.failures.is_empty()
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, device, executor, cases, elements, same_bits, has_to_be_same, failures } = self;
        let demand = if *has_to_be_same { "all have to" } else { "none has to" };
        write!(
            f,
            "{operation} on {device} and on {executor}: {cases} cases, {same_bits} of {elements} elements with the same bits ({demand}), \
             {} failed",
            failures.len()
        )?;
        for Disagreement { sizes, seed, error } in failures {
            let error = error.as_ref().map(Error::to_string).unwrap_or_default();
            write!(f, "\n  FAILED {sizes}, seed {seed}: {error}")?;
        }
        Ok(())
    }
}

/// Runs the small cases on a device and on the executor, with the numbers of so many seeds each, and compares both with the reference
/// and, unless the operation says that bits may differ, with each other.
///
/// # Errors
/// [`Error::NoCases`] and [`Error::SizesMismatch`] for cases that are none. What is wrong with a case is in the report.
pub fn agreement(
    operation: &dyn Operation,
    device: &Device,
    executor: &Device,
    seeds: std::ops::Range<u64>,
) -> Result<Agreement, Error> {
    let description = operation.describe();
    let mut agreement = Agreement {
        operation: description.name,
        device: device.name(),
        executor: executor.name(),
        cases: 0,
        elements: 0,
        same_bits: 0,
        has_to_be_same: description.bits == Bits::Same,
        failures: Vec::new(),
    };
    for sizes in description.cases(false)? {
        for seed in seeds.clone() {
            match agreement.compare(operation, [device, executor], sizes.clone(), seed) {
                Ok(()) => agreement.cases += 1,
                Err(error) => {
                    let sizes = sizes.to_string();
                    agreement.failures.push(Disagreement { sizes, seed, error: Some(error) });
                }
            }
        }
    }
    Ok(agreement)
}

impl Agreement {
    fn compare(&mut self, operation: &dyn Operation, on: [&Device; 2], sizes: Sizes, seed: u64) -> Result<(), Error> {
        let trial = Trial::new(operation, sizes, seed)?;
        let [there, here] = [trial.run(on[0])?, trial.run(on[1])?];
        trial.judge(&there)?;
        trial.judge(&here)?;
        let [same_bits, elements] = trial.same_bits(&there, &here);
        self.same_bits += same_bits;
        self.elements += elements;
        if self.has_to_be_same {
            trial.compare(&format!("on {} and on {}", self.device, self.executor), &there, &here)?;
        }
        Ok(())
    }
}
