//! How accurate a product has to be, whatever computes it: an error that a user names, and the bounds of each scheme that it is
//! compared with.
//!
//! ```text
//!  guarantee=1e-6  ─►  Accuracy::Guarantee  ─┐                       the fastest kernel whose scheme keeps it,
//!  tolerance=1e-5  ─►  Accuracy::Tolerance  ─┼─►  Bounds of schemes ─►  or an error that says what can be had
//!                                            │
//!  kernels/scheme.rs: Scheme::bounds(K)  ────┘
//! ```
//!
//! All errors are those of an element of `A·B`, as a part of `Σ|a||b|` over its terms. α and β are multiplied afterwards, in fp32.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Precision;

/// The rounding error of one fp32 operation, relative to its result.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// How far elements may be from the exact ones, as a part of `Σ|a||b|`: a positive number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accuracy {
    /// No operands break it: [`Bounds::guaranteed`] is at most this.
    Guarantee(f64),
    /// No operands like those of the tables break it: [`Bounds::expected`] is at most this.
    Tolerance(f64),
}

/// What a scheme's errors are, at most, for sums of so many terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// What is proven, for all operands and every GPU from compute capability 8.0 on, as long as nothing overflows and no result is
    /// below 2⁻¹²⁶.
    pub guaranteed: f64,
    /// Twice the largest error on thirteen kinds of inputs, nine of them made to show errors; and at most what is guaranteed. Of the
    /// form `c₀ + c₁·√K`.
    pub expected: f64,
}

/// What decides which kernels may compute a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// Those of this precision.
    Precision(Precision),
    /// Those that are as accurate as this, of whatever precision.
    Accuracy(Accuracy),
}

impl Accuracy {
    /// The error that is named.
    pub fn error(self) -> f64 {
        match self {
            Self::Guarantee(error) | Self::Tolerance(error) => error,
        }
    }

    /// Whether errors with these bounds are small enough.
    pub fn allows(self, bounds: Bounds) -> bool {
        self.of(bounds) <= self.error()
    }

    /// The bound that counts.
    pub fn of(self, Bounds { guaranteed, expected }: Bounds) -> f64 {
        match self {
            Self::Guarantee(_) => guaranteed,
            Self::Tolerance(_) => expected,
        }
    }

    /// Refuses errors that no result can have, in words.
    pub(crate) fn check(self) -> Result<(), String> {
        match self.error() > 0.0 && self.error().is_finite() {
            true => Ok(()),
            false => Err(format!("{self}: an error is a positive number, as a part of the sum of |a||b|")),
        }
    }
}

impl Bounds {
    /// Of errors in units of 2⁻²⁴: of so much for each product, and so many roundings of the running sum; and of so much that is to
    /// be expected. Nothing, if there are more roundings than fp32 can bear.
    pub(crate) fn of_units(products: f64, roundings: f64, expected: f64) -> Option<Self> {
        let sums = roundings * ROUNDING;
        // Of n roundings: (1 + u)ⁿ − 1 ≤ n·u / (1 − n·u), N. J. Higham, "Accuracy and Stability of Numerical Algorithms", lemma 3.1.
        let guaranteed = (sums < 0.5).then(|| (1.0 + products * ROUNDING) * (1.0 + sums / (1.0 - sums)) - 1.0)?;
        Some(Self { guaranteed, expected: guaranteed.min(expected * ROUNDING) })
    }
}

/// The least number of two digits that is as large: what can be asked for.
pub(crate) fn rounded_up(error: f64) -> f64 {
    let unit = 10f64.powf(error.log10().floor() - 1.0);
    // What has two digits already stays, whatever the division's rounding.
    (error / unit - 1e-9).ceil() * unit
}

impl From<Precision> for Wanted {
    fn from(precision: Precision) -> Self {
        Self::Precision(precision)
    }
}

impl From<Accuracy> for Wanted {
    fn from(accuracy: Accuracy) -> Self {
        Self::Accuracy(accuracy)
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guarantee(error) => write!(f, "guarantee={error:e}"),
            Self::Tolerance(error) => write!(f, "tolerance={error:e}"),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Precision(precision) => precision.fmt(f),
            Self::Accuracy(accuracy) => accuracy.fmt(f),
        }
    }
}

impl FromStr for Accuracy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected `guarantee=` or `tolerance=` and a number, such as `guarantee=1e-6`".to_owned();
        let (kind, error) = text.split_once('=').ok_or_else(expected)?;
        let error = error.parse::<f64>().map_err(|_| expected())?;
        let accuracy = match kind {
            "guarantee" => Self::Guarantee(error),
            "tolerance" => Self::Tolerance(error),
            _ => return Err(expected()),
        };
        accuracy.check().map(|()| accuracy)
    }
}

/// The name of a precision, or as for [`Accuracy`].
impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains('=') {
            true => text.parse().map(Self::Accuracy),
            false => text.parse().map(Self::Precision),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Scheme;

    #[test]
    fn texts_come_back() {
        for text in ["guarantee=1e-6", "tolerance=2.5e-3", "fp32", "fp32-rounded"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        for text in [
            "guarantee=0",
            "tolerance=-1",
            "tolerance=NaN",
            "guarantee=inf",
            "guarantee",
            "bound=1e-6",
            "tolerance=",
            "fp33",
        ] {
            let why = text.parse::<Wanted>().unwrap_err();
            assert!(why.contains("positive number") || why.contains("expected"), "{text}: {why}");
        }
    }

    #[test]
    fn what_a_message_names_can_be_asked_for() {
        for (error, text) in
            [(5.961e-8, "6.0e-8"), (6.01e-8, "6.1e-8"), (9.99e-4, "1.0e-3"), (0.5, "5.0e-1"), (7.0e-6, "7.0e-6")]
        {
            assert_eq!(format!("{:.1e}", rounded_up(error)), text);
        }
    }

    #[test]
    fn bounds_grow_with_the_terms_and_are_in_the_order_of_the_schemes() {
        let schemes = [Scheme::Fp32Fp64, Scheme::Fp32ThreeTf32, Scheme::Fp32ThreeFp16, Scheme::Tf32, Scheme::Bf16];
        let bounds = |scheme: Scheme, terms| scheme.bounds(terms).unwrap();
        for terms in [1, 100, 10_000, 1 << 20] {
            for pair in schemes.windows(2) {
                assert!(bounds(pair[0], terms).guaranteed <= bounds(pair[1], terms).guaranteed, "{pair:?}, {terms}");
            }
            for scheme in schemes {
                let Bounds { guaranteed, expected } = bounds(scheme, terms);
                assert!(
                    expected <= guaranteed && guaranteed <= bounds(scheme, terms + 16).guaranteed,
                    "{scheme:?}, {terms}"
                );
            }
        }
        // Sums of 2²³ roundings and more are anything.
        assert_eq!(Scheme::Fp32.bounds(1 << 23), None);
        assert!(Scheme::Fp32Fp64.bounds(1 << 31).is_some());
        assert_eq!((Scheme::Fp16.bounds(1), Scheme::Fp32ScaledFp16.bounds(1)), (None, None));
    }
}
