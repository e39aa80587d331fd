//! The operands of benchmarks: ordinary ones, and those that show what a precision is worth.

use std::fmt;
use std::str::FromStr;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::input::{Distribution, random};

/// How the elements of A and B are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Inputs {
    /// Uniform in [0, 1]: nothing cancels, which flatters low precision. What times are measured on, unless it is left out.
    #[serde(rename = "uniform-01")]
    Uniform01,
    /// Uniform in [−1, 1]: sums cancel, as they do in practice.
    #[serde(rename = "uniform-11")]
    Uniform11,
    /// Of either sign, with a magnitude from 2⁻²⁰ to 2²⁰ whose logarithm is uniform.
    #[serde(rename = "log-uniform")]
    LogUniform,
    /// Half of A's columns are of the order of 2²⁰ and meet zeros in B; the other half are of the order of 2⁻²⁰. The result
    /// is made of small numbers alone, in rows whose largest element is large: what is accurate against the maxima of rows
    /// and columns only is wrong here.
    ///
    /// ```text
    ///        columns: even  odd                    rows:
    ///      A = │ ±2²⁰  ±2⁻²⁰ ±2²⁰  ±2⁻²⁰ … │   B = │ 0  0  0 … │ even      each times a number from U[−1, 1]
    ///                                              │ b  b  b … │ odd
    /// ```
    #[serde(rename = "graded")]
    Graded,
}

/// How far from 1 magnitudes go, as a power of two.
const EXPONENT: i32 = 20;

impl Inputs {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 4] = [Self::Uniform01, Self::Uniform11, Self::LogUniform, Self::Graded];

    /// The name, as `--inputs` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform01 => "uniform-01",
            Self::Uniform11 => "uniform-11",
            Self::LogUniform => "log-uniform",
            Self::Graded => "graded",
        }
    }

    /// A matrix A of `rows` stored rows of `cols`; `terms_are_rows` if it is stored transposed, with k rows.
    pub fn a(self, rows: usize, cols: usize, terms_are_rows: bool, seed: u64) -> Vec<f32> {
        let mut numbers = self.numbers(rows * cols, seed, 0);
        if self == Self::Graded {
            let scale = [2f32.powi(EXPONENT), 2f32.powi(-EXPONENT)];
            by_term(&mut numbers, cols, terms_are_rows, |term, number| number * scale[term % 2]);
        }
        numbers
    }

    /// A matrix B of `rows` stored rows of `cols`; `terms_are_rows` unless it is stored transposed.
    pub fn b(self, rows: usize, cols: usize, terms_are_rows: bool, seed: u64) -> Vec<f32> {
        let mut numbers = self.numbers(rows * cols, seed, 1);
        if self == Self::Graded {
            by_term(&mut numbers, cols, terms_are_rows, |term, number| if term % 2 == 0 { 0.0 } else { number });
        }
        numbers
    }

    fn numbers(self, len: usize, seed: u64, operand: u64) -> Vec<f32> {
        match self {
            Self::Uniform01 => random(len, Distribution::Uniform01, seed, operand),
            Self::Uniform11 | Self::Graded => random(len, Distribution::Uniform11, seed, operand),
            Self::LogUniform => {
                let mut numbers = random(len, Distribution::Uniform11, seed, operand);
                numbers.par_iter_mut().with_min_len(1 << 14).for_each(|number| *number = spread(*number));
                numbers
            }
        }
    }
}

/// A number of [−1, 1] as one whose logarithm is uniform: its sign stays, its magnitude becomes the logarithm.
fn spread(number: f32) -> f32 {
    let exponent = f64::from(EXPONENT) * (2.0 * f64::from(number.abs()) - 1.0);
    (exponent.exp2() as f32).copysign(number)
}

/// Changes every element by the number of the term that it belongs to.
fn by_term(numbers: &mut [f32], cols: usize, terms_are_rows: bool, change: impl Fn(usize, f32) -> f32 + Sync) {
    numbers.par_chunks_mut(cols.max(1)).enumerate().for_each(|(row, numbers)| {
        for (col, number) in numbers.iter_mut().enumerate() {
            *number = change(if terms_are_rows { row } else { col }, *number);
        }
    });
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Inputs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|inputs| inputs.name() == text)
            .ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for inputs in Inputs::ALL {
            assert_eq!(inputs.name().parse(), Ok(inputs));
            assert_eq!(serde_json::to_string(&inputs).unwrap(), format!("\"{inputs}\""));
        }
        assert!("graded2".parse::<Inputs>().unwrap_err().contains("log-uniform"));
    }

    #[test]
    fn logarithms_are_uniform_over_forty_powers_of_two() {
        let numbers = Inputs::LogUniform.a(300, 1000, false, 7);
        let (least, most) = (2f32.powi(-EXPONENT), 2f32.powi(EXPONENT));
        assert!(numbers.iter().all(|number| (least..=most).contains(&number.abs())));
        let share = |low: i32, high: i32| {
            let (low, high) = (2f32.powi(low), 2f32.powi(high));
            numbers.iter().filter(|number| (low..high).contains(&number.abs())).count() as f64 / numbers.len() as f64
        };
        for quarter in [-20, -10, 0, 10] {
            assert!((share(quarter, quarter + 10) - 0.25).abs() < 0.01, "from 2^{quarter}");
        }
        let negative = numbers.iter().filter(|number| **number < 0.0).count() as f64 / numbers.len() as f64;
        assert!((negative - 0.5).abs() < 0.01);
    }

    #[test]
    fn graded_operands_are_small_where_they_count() {
        let (m, n, k) = (3, 5, 8);
        // Stored as they are used, and transposed: the same terms are large in both.
        let (a, at) = (Inputs::Graded.a(m, k, false, 1), Inputs::Graded.a(k, m, true, 1));
        let (b, bt) = (Inputs::Graded.b(k, n, true, 1), Inputs::Graded.b(n, k, false, 1));
        for term in 0..k {
            let (large, zero) = (term % 2 == 0, term % 2 == 0);
            for row in 0..m {
                for number in [a[row * k + term], at[term * m + row]] {
                    assert_eq!(number.abs() > 1.0, large, "term {term}: {number}");
                }
            }
            for col in 0..n {
                assert!([b[term * n + col], bt[col * k + term]].iter().all(|&number| (number == 0.0) == zero));
            }
        }
    }

    #[test]
    fn a_and_b_differ_and_a_seed_repeats() {
        for inputs in Inputs::ALL {
            assert_ne!(inputs.a(4, 4, false, 1), inputs.b(4, 4, false, 1));
            assert_eq!(inputs.a(4, 4, false, 1), inputs.a(4, 4, false, 1));
            assert_ne!(inputs.a(4, 4, false, 1), inputs.a(4, 4, false, 2));
        }
    }
}
