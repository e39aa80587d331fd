//! Single instructions: what the models in `cuda_std` make of their operands, bit for bit beside what a GPU makes of them.
//!
//! ```text
//!  random and special operands ──┬──► executor ──┐
//!                                │               ├─► Outcome: equal, equal but for the bits of NaNs, different
//!  probes: single sums that tell ├──► GPU ───────┘             the first differences with all their operands
//!  how tensor cores compute ─────┘     │
//!                                      └──► fit, if asked for: which parameters of a model reproduce all sums
//! ```
//!
//! Without a GPU the executor is compared with a reference, which is written from the description of the instruction, with nothing of
//! `cuda_std` in it.

mod clusters;
mod collectives;
mod elements;
pub mod fit;
pub mod kernels;
mod launches;
pub mod machine;
pub mod number;
pub mod numerics;
pub mod operands;
pub mod outcome;
mod partitions;
pub mod pixels;
pub mod probes;
pub mod products;
pub mod report;
pub mod tiles;
pub mod words;

use rand::SeedableRng;
use rand::rngs::StdRng;

use machine::{Error, Machine};
use outcome::{Outcome, hex};
use pixels::{Pixels, pixels};
use products::{Element, Product, products};
use report::{FittedProduct, Report};
use tiles::{Tiles, tiles};
use words::{Instruction, instructions};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names of the instructions, or their beginnings; all, if there are none.
    pub instructions: Vec<String>,
    /// The words of results to compare of each instruction, at least; of tiles, it is always all that there are.
    pub elements: usize,
    /// What random numbers begin with.
    pub seed: u64,
    /// Whether to search for the parameters of tensor cores, which takes long.
    pub fits: bool,
}

impl Options {
    fn takes(&self, name: &str) -> bool {
        self.instructions.is_empty() || self.instructions.iter().any(|wanted| name.starts_with(wanted.as_str()))
    }
}

/// The names of all instructions.
pub fn names() -> Vec<String> {
    let words = instructions().into_iter().map(|instruction| instruction.name.to_owned());
    let products = products().into_iter().map(|product| product.name.to_owned());
    let loads =
        tiles().into_iter().map(|tiles| tiles.name).chain(pixels().into_iter().map(|pixels| pixels.name.into()));
    words.chain(loads).chain(products).collect()
}

/// Compares the executor with another machine, or with the reference. Calls `progress` after each instruction, so that what is found is
/// not lost if the machine is.
pub fn run(options: &Options, other: Option<&Machine>, mut progress: impl FnMut(&Report)) -> Report {
    let executor = Machine::executor();
    let mut report = Report::new(options, other);
    let mut enter = |report: &mut Report, name: &str, result: Result<Outcome, Error>| {
        let failed = |error: Error| Outcome { error: Some(error.to_string()), ..Outcome::new(name) };
        report.outcomes.push(result.unwrap_or_else(failed));
        progress(report);
    };
    for instruction in instructions().iter().filter(|instruction| options.takes(instruction.name)) {
        let result = compare_words(instruction, &executor, other, options);
        enter(&mut report, instruction.name, result);
    }
    for tiles in tiles().iter().filter(|tiles| options.takes(&tiles.name)) {
        enter(&mut report, &tiles.name, Tiles::compare(tiles, &executor, other, options.seed));
    }
    for pixels in pixels().iter().filter(|pixels| options.takes(pixels.name)) {
        enter(&mut report, pixels.name, Pixels::compare(pixels, &executor, other, options.seed));
    }
    for product in products().iter().filter(|product| options.takes(product.name)) {
        let result = compare_products(product, &executor, other, options).map(|(outcome, fitted)| {
            report.fitted.extend(fitted);
            outcome
        });
        enter(&mut report, product.name, result);
    }
    report
}

fn compare_words(
    instruction: &Instruction,
    executor: &Machine,
    other: Option<&Machine>,
    options: &Options,
) -> Result<Outcome, Error> {
    let Instruction { name, launch, inputs, outputs, cases_of_block, content, operands, reference } = *instruction;
    let mut rng = StdRng::seed_from_u64(options.seed);
    let cases = options.elements.div_ceil(outputs);
    let input: Vec<u32> = (0..cases).flat_map(|case| operands(&mut rng, case)).collect();
    let blocks = cases.div_ceil(cases_of_block) as u32;
    let here = executor.run(launch, blocks, &input, cases * outputs)?;
    let there = match other {
        Some(other) => other.run(launch, blocks, &input, cases * outputs)?,
        None => input.chunks(inputs).flat_map(reference).collect(),
    };
    let mut outcome = Outcome::new(name);
    outcome.cases = cases;
    for (i, (executor, other)) in here.into_iter().zip(there).enumerate() {
        outcome.enter(content, executor, other, || {
            let case = i / outputs;
            (format!("case {case}, word {}", i % outputs), hex(&input[case * inputs..][..inputs]))
        });
    }
    Ok(outcome)
}

/// The sums of an instruction that are written to a file: see [`report::Report::sums`].
const KEPT_SUMS: usize = 4096;

fn compare_products(
    product: &Product,
    executor: &Machine,
    other: Option<&Machine>,
    options: &Options,
) -> Result<(Outcome, Option<FittedProduct>), Error> {
    let fits = product.is_probed && options.fits;
    let (mut outcome, elements) = product.compare(executor, other, options.elements, options.seed, fits)?;
    if !product.is_probed {
        return Ok((outcome, None));
    }
    let answers = product.probe(executor, other, &mut outcome)?;
    if !fits {
        return Ok((outcome, None));
    }
    let asked: Vec<Element> = answers.iter().map(|answer| answer.element).collect();
    let fit = fit::fit(product.format, &asked, &elements);
    // An odd step, so that they are from all rows and columns.
    let step = (elements.len() / KEPT_SUMS).max(1) | 1;
    let kept: Vec<Element> = elements.into_iter().step_by(step).take(KEPT_SUMS).collect();
    Ok((outcome, Some(FittedProduct { name: product.name, format: product.format, answers, fit, kept })))
}
