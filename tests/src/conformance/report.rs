//! What is written about a comparison: a short text for people, and everything for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::Options;
use super::fit::Fit;
use super::machine::Machine;
use super::number::Format;
use super::numerics::{Dot, Terms};
use super::outcome::{Difference, Outcome, hex};
use super::products::{Answer, Element};

/// The best parameters that are shown to people.
const SHOWN_SCORES: usize = 5;

/// Those that programs get.
const KEPT_SCORES: usize = 40;

/// The differences of an instruction that are shown to people.
const SHOWN_DIFFERENCES: usize = 5;

/// An instruction of tensor cores that was looked at closely.
#[derive(Clone, Debug)]
pub struct FittedProduct {
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
    /// Of some of tensor cores, if parameters were searched for.
    pub fitted: Vec<FittedProduct>,
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
            fitted: Vec::new(),
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
                &format!(
                    "| `{instruction}` | {cases} | {elements} | {equal} | {equal_but_for_nan_payload} | {different} | {error} |"
                ),
            );
        }
        let cuda_std::tensor_cores::Summation { fraction_bits, least_exponent } = cuda_std::tensor_cores::HOPPER;
        line(
            &mut text,
            &format!(
                "\n## The model of tensor cores\n\nProducts are exact. All of an instruction's, and the element of C, are aligned to \
                 the largest exponent among them, or to {least_exponent} if that is larger; the exponent of a product is the sum of \
                 its operands' exponents, and zeros have none. {fraction_bits} bits behind the binary point are kept of a summand \
                 with that exponent, the others cut off toward zero. The sum is exact, and cut off to fp32 toward zero. Zeros that \
                 come out are positive; the only NaN is 7fffffff."
            ),
        );
        for FittedProduct { name, fit, .. } in &self.fitted {
            line(&mut text, &format!("\n## Parameters for `{name}`\n\nBy how many results they reproduce.\n"));
            line(&mut text, &format!("| of {} | parameters |\n|---|---|", fit.elements));
            for score in fit.finalists.iter().take(SHOWN_SCORES) {
                line(&mut text, &format!("| {} | {} |", score.matches, score.numerics));
            }
            let names: Vec<String> = fit
                .least_exponents
                .iter()
                .map(|exponent| exponent.map_or("none".into(), |exponent| exponent.to_string()))
                .collect();
            line(
                &mut text,
                &format!("\nThe best least exponents: {}, with {}.", names.join(", "), fit.least_exponent_matches),
            );
        }
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.differences.is_empty()) {
            line(&mut text, &format!("\n## Differences of `{}`\n", outcome.instruction));
            line(&mut text, "| element | operands | executor | other |\n|---|---|---|---|");
            for Difference { element, operands, executor, other } in outcome.differences.iter().take(SHOWN_DIFFERENCES)
            {
                line(&mut text, &format!("| {element} | {operands} | {executor} | {other} |"));
            }
        }
        text
    }

    /// For programs: the outcomes, with more of the differences, and the best parameters.
    pub fn json(&self) -> Value {
        let fit = |product: &FittedProduct| -> Value {
            let FittedProduct { name, format, fit, .. } = product;
            let Fit { sample, scores, elements, finalists, least_exponents, least_exponent_matches } = fit;
            json!({
                "name": name,
                "format": format,
                "sample": sample,
                "scores": scores.iter().take(KEPT_SCORES).collect::<Vec<_>>(),
                "elements": elements,
                "finalists": finalists,
                "least_exponents": least_exponents,
                "least_exponent_matches": least_exponent_matches,
            })
        };
        json!({
            "other": self.other,
            "seed": self.seed,
            "elements": self.elements,
            "outcomes": self.outcomes,
            "fits": self.fitted.iter().map(fit).collect::<Vec<_>>(),
        })
    }

    /// What tensor cores have answered to the probes, and some of their sums, with which a model can be tried elsewhere: for each its
    /// kind, the words of a row of A and of a column of B, the element of C and both results, in hexadecimal.
    pub fn sums(&self) -> Value {
        let line = |element: &Element| {
            let Element { kind, dot: Dot { a, b, c }, executor, other } = element;
            format!("{kind:?} | {} | {} | {c:08x} | {executor:08x} | {other:08x}", hex(a), hex(b))
        };
        let product = |product: &FittedProduct| -> Value {
            let sums: Vec<String> = product.kept.iter().map(line).collect();
            json!({
                "name": product.name,
                "format": product.format,
                "probes": product.answer_rows(),
                "columns": "kind | a | b | c | executor | other",
                "sums": sums,
            })
        };
        self.fitted.iter().map(product).collect()
    }
}

impl FittedProduct {
    fn answer_rows(&self) -> Vec<AnswerRow<'_>> {
        let best = self.fit.finalists.first().map(|score| score.numerics);
        let word = |word: u32| format!("{word:08x}");
        let rows =
            self.answers.iter().map(|Answer { question, element: Element { dot, executor, other, .. } }| AnswerRow {
                question,
                a: hex(&dot.a),
                b: hex(&dot.b),
                c: word(dot.c),
                executor: word(*executor),
                other: word(*other),
                other_value: format!("{:e}", f32::from_bits(*other)),
                best_fit: best.map_or_else(String::new, |best| word(best.sum(&Terms::new(self.format, dot)))),
            });
        rows.collect()
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}
