//! Which parameters of the model reproduce what tensor cores have computed.

use rayon::prelude::*;
use serde::Serialize;

use super::number::{Format, Number, Rounding};
use super::numerics::{Addend, Cut, Exponent, Numerics, Terms, terms};
use super::products::Element;

/// The elements that most parameters are tried on, beside probes.
const SAMPLE: usize = 4096;

/// The parameters that are tried on all elements, the best on the sample first.
const FINALISTS: usize = 32;

/// Those of the sample that all parameters are tried on first.
const FIRST: usize = 512;

/// The parameters that are tried on all of the sample.
const KEPT: usize = 400;

/// The least exponents that are tried, beside none: on everything with the best of the other parameters, and the middle one with all.
const LEAST_EXPONENTS: std::ops::RangeInclusive<i32> = -141..=-125;

/// How many results some parameters reproduce.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// The parameters.
    pub numerics: Numerics,
    /// The elements that come out with the same bits.
    pub matches: usize,
}

/// What the search has found.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The elements of the sample.
    pub sample: usize,
    /// The best of all parameters on a part of the sample, on all of it, the best first.
    pub scores: Vec<Score>,
    /// The elements in all.
    pub elements: usize,
    /// The best of those, on all elements, the best first.
    pub finalists: Vec<Score>,
    /// The least exponents with which the best finalist does best, and how many elements it then reproduces.
    pub least_exponents: Vec<Option<i32>>,
    /// See there.
    pub least_exponent_matches: usize,
}

/// All combinations of parameters that are tried.
fn grid(format: Format) -> Vec<Numerics> {
    let all = terms(format);
    let mut grid = Vec::new();
    let steps = [(all, false), (all / 2, false), (all / 2, true), (all / 4, false), (all / 4, true)];
    for (terms, interleaved) in steps {
        for fraction_bits in 21..=28 {
            for exponent in [Exponent::OfFields, Exponent::OfOperands, Exponent::OfProduct] {
                for least_exponent in [None, Some(i32::midpoint(*LEAST_EXPONENTS.start(), *LEAST_EXPONENTS.end()))] {
                    for cut in [Cut::TowardZero, Cut::Down] {
                        for rounding in [Rounding::TowardZero, Rounding::TiesToEven] {
                            for addend in [Addend::WithProducts, Addend::AfterProducts] {
                                grid.push(Numerics {
                                    fraction_bits,
                                    terms,
                                    interleaved,
                                    exponent,
                                    least_exponent,
                                    cut,
                                    rounding,
                                    addend,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    grid
}

/// Counts the results that are the same.
fn matches(numerics: &Numerics, elements: &[(Terms, u32)]) -> usize {
    elements.iter().filter(|(terms, result)| numerics.sum(terms) == *result).count()
}

/// Sorts by matches, the most first; what is tried earlier stays earlier.
fn sorted(mut scores: Vec<Score>) -> Vec<Score> {
    scores.sort_by_key(|score| std::cmp::Reverse(score.matches));
    scores
}

/// Tries all parameters on what the other side has made of finite operands: of those in `asked`, all of which are in the sample, and of
/// others.
pub fn fit(format: Format, asked: &[Element], others: &[Element]) -> Fit {
    // What is not finite, probes tell about: how sums overflow is no matter of these parameters.
    let finite = |elements: &[Element]| -> Vec<(Terms, u32)> {
        elements
            .iter()
            .filter(|element| matches!(Format::Fp32.decode(element.other), Number::Finite { .. }))
            .map(|element| (Terms::new(format, &element.dot), element.other))
            .filter(|(terms, _)| terms.are_finite())
            .collect()
    };
    let (mut sample, others) = (finite(asked), finite(others));
    let finite = [sample.clone(), others.clone()].concat();
    // Neighbours have operands in common: so take from everywhere.
    let step = (others.len() / SAMPLE).max(1) | 1;
    sample.extend(others.into_iter().step_by(step).take(SAMPLE));
    let score =
        |numerics: Numerics, elements: &[(Terms, u32)]| Score { numerics, matches: matches(&numerics, elements) };
    let first: Vec<_> = sample.iter().step_by((sample.len() / FIRST).max(1)).cloned().collect();
    let mut scores = sorted(grid(format).into_par_iter().map(|numerics| score(numerics, &first)).collect());
    scores.truncate(KEPT);
    let scores = sorted(scores.into_par_iter().map(|before| score(before.numerics, &sample)).collect());
    let best = scores[..FINALISTS].par_iter();
    let finalists = sorted(best.map(|finalist| score(finalist.numerics, &finite)).collect());
    let with_least: Vec<_> = LEAST_EXPONENTS
        .into_par_iter()
        .map(Some)
        .chain([None])
        .map(|least_exponent| {
            let numerics = Numerics { least_exponent, ..finalists[0].numerics };
            (least_exponent, matches(&numerics, &finite))
        })
        .collect();
    let least_exponent_matches = with_least.iter().map(|(_, matches)| *matches).max().unwrap_or(0);
    let best = with_least.iter().filter(|(_, matches)| *matches == least_exponent_matches);
    let least_exponents = best.map(|(exponent, _)| *exponent).collect();
    Fit { sample: sample.len(), scores, elements: finite.len(), finalists, least_exponents, least_exponent_matches }
}
