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
    /// Each row of A has a one and zeros: the result is rows of B, whose every bit counts. Their magnitudes are 0.1 to 1.1.
    #[serde(rename = "one-hot")]
    OneHot,
    /// Each column of B has one number, and zeros: each element of the result is one product of two numbers with all their bits.
    #[serde(rename = "one-product")]
    OneProduct,
    /// Of either sign, with magnitudes whose logarithm is about normal: one standard deviation is a factor of e⁸.
    #[serde(rename = "log-normal")]
    LogNormal,
    /// Terms of A are of the order of 2⁶⁰ and 2⁻⁶⁰ in turns, those of B the other way round: the products are of the order of 1.
    #[serde(rename = "alternating")]
    Alternating,
    /// In each row of A, one term is 2²⁴ times as large as the others.
    #[serde(rename = "one-huge")]
    OneHuge,
    /// The second half of the terms takes the first half back, but for the last bits: almost nothing is left.
    #[serde(rename = "cancelling")]
    Cancelling,
    /// bf16 numbers in [−1, 1], of which one product of any kind has no error.
    #[serde(rename = "bf16-values")]
    Bf16Values,
    /// Whole numbers from −128 to 127.
    #[serde(rename = "integers")]
    Integers,
    /// A has numbers below 2⁻¹²⁶, and B such as are large: from 2⁶⁰ to 2⁶¹.
    #[serde(rename = "subnormal")]
    Subnormal,
}

/// How far from 1 magnitudes go, as a power of two.
const EXPONENT: i32 = 20;
/// The same for [`Inputs::Alternating`].
const FAR: i32 = 60;
/// How much larger than the others the terms of [`Inputs::OneHuge`] are, as a power of two.
const HUGE: i32 = 24;
/// What the second half of the terms of [`Inputs::Cancelling`] leaves of the first one.
const LEFT: f32 = 1.0 / 65_536.0;
/// The standard deviation of the logarithms of [`Inputs::LogNormal`].
const SIGMA: f64 = 8.0;

/// Where an element of an operand is: in which row of A or column of B, and in which of how many terms.
#[derive(Clone, Copy)]
struct Place {
    line: usize,
    term: usize,
    terms: usize,
}

impl Place {
    /// The term of this line that is chosen for it.
    fn is_chosen(self, seed: u64) -> bool {
        // Neighbouring lines have terms far from one another: the multiplier is 2⁶⁴ over the golden ratio.
        let scattered = (self.line as u64 + seed).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.term as u64 == scattered % self.terms.max(1) as u64
    }

    /// The sign of [`FAR`] in this term of A.
    fn sign(self) -> i32 {
        if self.term.is_multiple_of(2) { 1 } else { -1 }
    }
}

impl Inputs {
    /// All of them: first those of [`ORDINARY`](Self::ORDINARY), in the order in which they are run.
    pub const ALL: [Self; 13] = [
        Self::Uniform01,
        Self::Uniform11,
        Self::LogUniform,
        Self::Graded,
        Self::OneHot,
        Self::OneProduct,
        Self::LogNormal,
        Self::Alternating,
        Self::OneHuge,
        Self::Cancelling,
        Self::Bf16Values,
        Self::Integers,
        Self::Subnormal,
    ];

    /// Those that a benchmark shows the errors of, unless it is asked for others.
    pub const ORDINARY: [Self; 4] = [Self::Uniform01, Self::Uniform11, Self::LogUniform, Self::Graded];

    /// The name, as `--inputs` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform01 => "uniform-01",
            Self::Uniform11 => "uniform-11",
            Self::LogUniform => "log-uniform",
            Self::Graded => "graded",
            Self::OneHot => "one-hot",
            Self::OneProduct => "one-product",
            Self::LogNormal => "log-normal",
            Self::Alternating => "alternating",
            Self::OneHuge => "one-huge",
            Self::Cancelling => "cancelling",
            Self::Bf16Values => "bf16-values",
            Self::Integers => "integers",
            Self::Subnormal => "subnormal",
        }
    }

    /// A matrix A of `rows` stored rows of `cols`; `terms_are_rows` if it is stored transposed, with k rows.
    pub fn a(self, rows: usize, cols: usize, terms_are_rows: bool, seed: u64) -> Vec<f32> {
        let mut numbers = self.numbers(rows * cols, seed, 0);
        let stored = Stored { rows, cols, terms_are_rows };
        match self {
            Self::Graded => stored.change(&mut numbers, |place, number| {
                number * power(if place.term % 2 == 0 { EXPONENT } else { -EXPONENT })
            }),
            Self::OneHot => stored.change(&mut numbers, |place, _| f32::from(u8::from(place.is_chosen(seed)))),
            Self::Alternating => stored.change(&mut numbers, |place, number| number * power(place.sign() * FAR)),
            Self::OneHuge => {
                stored.change(
                    &mut numbers,
                    |place, number| {
                        if place.is_chosen(seed) { number * power(HUGE) } else { number }
                    },
                )
            }
            Self::Cancelling => stored.repeat(&mut numbers, 1.0),
            Self::Subnormal => stored.change(&mut numbers, |_, number| number * f32::MIN_POSITIVE),
            _ => {}
        }
        numbers
    }

    /// A matrix B of `rows` stored rows of `cols`; `terms_are_rows` unless it is stored transposed.
    pub fn b(self, rows: usize, cols: usize, terms_are_rows: bool, seed: u64) -> Vec<f32> {
        let mut numbers = self.numbers(rows * cols, seed, 1);
        let stored = Stored { rows, cols, terms_are_rows };
        match self {
            Self::Graded => stored.change(&mut numbers, |place, number| if place.term % 2 == 0 { 0.0 } else { number }),
            Self::OneProduct => {
                stored.change(&mut numbers, |place, number| if place.is_chosen(seed) { number } else { 0.0 })
            }
            Self::Alternating => stored.change(&mut numbers, |place, number| number * power(-place.sign() * FAR)),
            Self::Cancelling => stored.repeat(&mut numbers, -1.0 - LEFT),
            Self::Subnormal => stored.change(&mut numbers, |_, number| number * power(FAR)),
            _ => {}
        }
        numbers
    }

    fn numbers(self, len: usize, seed: u64, operand: u64) -> Vec<f32> {
        let distribution = if self == Self::Uniform01 { Distribution::Uniform01 } else { Distribution::Uniform11 };
        let mut numbers = random(len, distribution, seed, operand);
        let mut change = |change: fn(f32) -> f32| {
            numbers.par_iter_mut().with_min_len(1 << 14).for_each(|number| *number = change(*number));
        };
        match self {
            Self::LogUniform => change(spread),
            Self::LogNormal => change(normal),
            Self::OneHot | Self::OneProduct => change(of_all_bits),
            Self::Bf16Values => change(|number| f32::from_bits(number.to_bits() & 0xFFFF_0000)),
            Self::Integers => change(|number| (number * 128.0).floor().min(127.0)),
            _ => {}
        }
        numbers
    }
}

/// How an operand lies in an array: with k rows, or with k columns.
#[derive(Clone, Copy)]
struct Stored {
    rows: usize,
    cols: usize,
    terms_are_rows: bool,
}

impl Stored {
    /// Changes every element by its place.
    fn change(self, numbers: &mut [f32], change: impl Fn(Place, f32) -> f32 + Sync) {
        let terms = if self.terms_are_rows { self.rows } else { self.cols };
        numbers.par_chunks_mut(self.cols.max(1)).enumerate().for_each(|(row, numbers)| {
            for (col, number) in numbers.iter_mut().enumerate() {
                let (line, term) = if self.terms_are_rows { (col, row) } else { (row, col) };
                *number = change(Place { line, term, terms }, *number);
            }
        });
    }

    /// Makes the second half of the terms the first half times a factor.
    fn repeat(self, numbers: &mut [f32], factor: f32) {
        let first = numbers.to_vec();
        let (half, cols) = (if self.terms_are_rows { self.rows } else { self.cols } / 2, self.cols);
        let at = |place: Place| {
            if self.terms_are_rows { place.term * cols + place.line } else { place.line * cols + place.term }
        };
        self.change(numbers, |place, number| {
            let is_second = (half..2 * half).contains(&place.term);
            if is_second { first[at(Place { term: place.term - half, ..place })] * factor } else { number }
        });
    }
}

/// 2 to this power.
fn power(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

/// A number of [−1, 1] as one of magnitude 0.1 to 1.1 that has every bit of fp32: those of the generator end with zeros.
fn of_all_bits(number: f32) -> f32 {
    ((0.1 + 0.999_9 * f64::from(number.abs())) as f32).copysign(number)
}

/// A number of [−1, 1] as one whose logarithm is uniform: its sign stays, its magnitude becomes the logarithm.
fn spread(number: f32) -> f32 {
    let exponent = f64::from(EXPONENT) * (2.0 * f64::from(number.abs()) - 1.0);
    (exponent.exp2() as f32).copysign(number)
}

/// A number of [−1, 1] as one whose logarithm is normal: its sign stays, and its magnitude becomes the logarithm, by the logistic
/// distribution's quantile, which is the normal one's to 2 % within three standard deviations.
fn normal(number: f32) -> f32 {
    let share = f64::from(number.abs()).clamp(1e-4, 1.0 - 1e-4);
    let deviations = (share / (1.0 - share)).ln() / 1.702;
    ((SIGMA * deviations).exp() as f32).copysign(number)
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
    fn operands_are_the_same_kind_however_they_are_stored() {
        let (m, n, k) = (5, 6, 12);
        for stored_by_terms in [false, true] {
            let size = |lines: usize| if stored_by_terms { (k, lines) } else { (lines, k) };
            let a = |inputs: Inputs, line: usize, term: usize| {
                let (rows, cols) = size(m);
                inputs.a(rows, cols, stored_by_terms, 4)
                    [if stored_by_terms { term * m + line } else { line * k + term }]
            };
            let b = |inputs: Inputs, line: usize, term: usize| {
                let (rows, cols) = size(n);
                inputs.b(rows, cols, stored_by_terms, 4)
                    [if stored_by_terms { term * n + line } else { line * k + term }]
            };
            for line in 0..m {
                let one: Vec<f32> = (0..k).map(|term| a(Inputs::OneHot, line, term)).filter(|&x| x != 0.0).collect();
                assert_eq!(one, [1.0]);
                assert_eq!((0..k).filter(|&term| b(Inputs::OneProduct, line, term) != 0.0).count(), 1);
                assert_eq!((0..k).filter(|&term| a(Inputs::OneHuge, line, term).abs() > 1.0).count(), 1);
                for term in 0..k {
                    let product = a(Inputs::Alternating, line, term) * b(Inputs::Alternating, line, term);
                    assert!(
                        product.abs() <= 1.0 && (a(Inputs::Alternating, line, term).abs() > 1.0) == (term % 2 == 0)
                    );
                    assert!(a(Inputs::Subnormal, line, term).abs() <= f32::MIN_POSITIVE);
                    let whole = a(Inputs::Integers, line, term);
                    assert!(whole == whole.trunc() && (-128.0..=127.0).contains(&whole));
                    let first = term % (k / 2);
                    assert_eq!(a(Inputs::Cancelling, line, term), a(Inputs::Cancelling, line, first));
                    let (of_first, of_term) = (b(Inputs::Cancelling, line, first), b(Inputs::Cancelling, line, term));
                    assert!(
                        (of_term.abs() - of_first.abs()).abs() <= 2.0 * LEFT
                            && (of_term == of_first || of_term * of_first < 0.0)
                    );
                }
            }
        }
        let numbers = Inputs::LogNormal.a(100, 1000, false, 1);
        let within = numbers.iter().filter(|number| number.abs().ln().abs() < SIGMA as f32).count() as f64 / 1e5;
        assert!((within - 0.68).abs() < 0.02, "{within}");
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
