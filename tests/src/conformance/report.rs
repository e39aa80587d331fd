//! What is written about a comparison: a table for people, and everything for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::Options;
use super::fit::Fit;
use super::machine::Machine;
use super::number::Format;
use super::numerics::{Dot, Terms};
use super::outcome::{Outcome, hex};
use super::products::{Answer, Element, of_executor};

/// The scores of a search that are shown to people.
const SHOWN_SCORES: usize = 12;

/// An instruction of tensor cores that was looked at closely.
#[derive(Clone, Debug)]
pub struct ProbedProduct {
    /// The kernel.
    pub name: &'static str,
    /// Of its operands.
    pub format: Format,
    /// What it answers to the probes.
    pub answers: Vec<Answer>,
    /// The parameters that reproduce it.
    pub fit: Fit,
    /// Some of its sums.
    pub kept: Vec<Element>,
}

/// All that has been found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the executor was compared with.
    pub other: String,
    /// What random numbers began with.
    pub seed: u64,
    /// The words compared of each instruction, at least.
    pub elements: usize,
    /// Of each instruction.
    pub outcomes: Vec<Outcome>,
    /// Of some of tensor cores.
    pub products: Vec<ProbedProduct>,
}

#[derive(Serialize)]
struct AnswerRow<'a> {
    question: &'a str,
    a: String,
    b: String,
    c: String,
    executor: String,
    other: String,
    other_value: String,
    best_fit: String,
}

impl Report {
    /// Of nothing yet.
    pub fn new(options: &Options, other: Option<&Machine>) -> Self {
        Self {
            other: other.map_or("the reference".into(), Machine::name),
            seed: options.seed,
            elements: options.elements,
            outcomes: Vec::new(),
            products: Vec::new(),
        }
    }

    /// Whether nothing is different but the bits of NaNs, and nothing has failed.
    pub fn agrees(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.different == 0 && outcome.error.is_none())
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# Single instructions: the executor and {}\n\nSeed {}; at least {} words of results of each instruction, but of \
             tiles all that there are.\n\n| instruction | cases | elements | equal | equal but for NaN payload | different | |\n\
             |---|---|---|---|---|---|---|\n",
            self.other, self.seed, self.elements
        );
        for outcome in &self.outcomes {
            let Outcome { instruction, cases, elements, equal, equal_but_for_nan_payload, different, error, .. } =
                outcome;
            let error = error.as_deref().unwrap_or("").replace('\n', " ");
            line(
                &mut text,
                format!(
                    "| `{instruction}` | {cases} | {elements} | {equal} | {equal_but_for_nan_payload} | {different} | {error} |"
                ),
            );
        }
        for product in &self.products {
            let ProbedProduct { name, fit, .. } = product;
            line(&mut text, format!("\n## `{name}`\n\nParameters of the model, by how many results they reproduce.\n"));
            line(&mut text, format!("| of {} | parameters |\n|---|---|", fit.elements));
            for score in &fit.finalists {
                line(&mut text, format!("| {} | {} |", score.matches, score.numerics));
            }
            line(
                &mut text,
                format!("\nWith zeros' exponent at {:?}: {}.\n", fit.zero_exponents, fit.zero_exponent_matches),
            );
            line(&mut text, format!("| of the sample of {} | parameters |\n|---|---|", fit.sample));
            for score in fit.scores.iter().take(SHOWN_SCORES) {
                line(&mut text, format!("| {} | {} |", score.matches, score.numerics));
            }
            line(&mut text, "\n| probe | executor | other | | best parameters |\n|---|---|---|---|---|".into());
            for row in product.answer_rows() {
                let AnswerRow { question, executor, other, other_value, best_fit, .. } = row;
                let best_fit = if best_fit == other { String::new() } else { best_fit };
                let executor = if executor == other { String::new() } else { executor };
                line(&mut text, format!("| {question} | {executor} | {other} | {other_value} | {best_fit} |"));
            }
        }
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.differences.is_empty()) {
            line(&mut text, format!("\n## Differences of `{}`\n", outcome.instruction));
            line(&mut text, "| element | operands | executor | other |\n|---|---|---|---|".into());
            for difference in outcome.differences.iter().take(16) {
                let super::outcome::Difference { element, operands, executor, other } = difference;
                line(&mut text, format!("| {element} | {operands} | {executor} | {other} |"));
            }
        }
        text
    }

    /// For programs: the outcomes, with more of the differences, all scores and all probes.
    pub fn json(&self) -> Value {
        let products: Vec<Value> = self
            .products
            .iter()
            .map(|product| json!({ "name": product.name, "format": product.format, "fit": product.fit, "probes": product.answer_rows() }))
            .collect();
        json!({
            "other": self.other,
            "seed": self.seed,
            "elements": self.elements,
            "outcomes": self.outcomes,
            "products": products,
        })
    }

    /// Some sums of tensor cores, with which a model can be tried elsewhere: for each its kind, the words of a row of A and of a column
    /// of B, the element of C and both results, in hexadecimal.
    pub fn sums(&self) -> Value {
        let line = |element: &Element| {
            let Element { kind, dot: Dot { a, b, c }, executor, other } = element;
            format!("{kind:?} | {} | {} | {c:08x} | {executor:08x} | {other:08x}", hex(a), hex(b))
        };
        let product = |product: &ProbedProduct| -> Value {
            let sums: Vec<String> = product.kept.iter().map(line).collect();
            json!({
                "name": product.name,
                "format": product.format,
                "columns": "kind | a | b | c | executor | other",
                "sums": sums,
            })
        };
        self.products.iter().map(product).collect()
    }
}

impl ProbedProduct {
    fn answer_rows(&self) -> Vec<AnswerRow<'_>> {
        let best = self.fit.finalists.first().map_or(of_executor(self.format), |score| score.numerics);
        let word = |word: u32| format!("{word:08x}");
        let mut rows = Vec::new();
        for Answer { question, element: Element { dot, executor, other, .. } } in &self.answers {
            rows.push(AnswerRow {
                question,
                a: hex(&dot.a),
                b: hex(&dot.b),
                c: word(dot.c),
                executor: word(*executor),
                other: word(*other),
                other_value: format!("{:e}", f32::from_bits(*other)),
                best_fit: word(best.sum(&Terms::new(self.format, dot))),
            });
        }
        rows
    }
}

fn line(text: &mut String, line: String) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}
