//! How precise a product is: what a user names, what is promised for it, and what a check may therefore demand.
//!
//! Operands and results are fp32 in memory, always. The precision says what happens in between. It is a part of every
//! plan, table and report, and nothing changes it silently: where no kernel of the precision asked for can compute a
//! product, there is an error that says so.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The precision of a product. Operands and results are fp32 in memory.
///
/// Errors are given as the relative Frobenius error `‖E‖ / ‖C‖`, and element by element as `|E| / Σ|a||b|`, both against
/// the exact product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Precision {
    /// The sum as if it was computed without error, rounded to fp32 once: above what fp32 arithmetic gives.
    ///
    /// Products of fp32 numbers are exact in fp64, and fp64 sums are off by at most `K·2⁻⁵³·Σ|a||b|`. So
    ///
    /// ```text
    /// |E|  ≤  2⁻²⁴·|c|  +  K·2⁻⁵³·Σ|a||b|             c = A·B exactly, for α = 1 and β = 0
    /// ```
    ///
    /// but for results below 2⁻¹²⁶, which are multiples of 2⁻¹⁴⁹. The result is the nearest fp32 number unless the exact sum is as near
    /// as that to the middle between two of them, or far smaller than its terms. A matrix that selects rows or columns gives each bit of
    /// them, whole numbers whose sums are below 2⁵³ are rounded once, and nothing overflows but the result, or one of its partial
    /// sums where these are divided among blocks. α and β are multiplied in fp32 afterwards, each with a rounding of its own.
    ///
    /// Where sums are not divided among blocks, a row of the result has the same bits whatever other rows there are, wherever it is; where
    /// they are, all but so few as a change of the order of fp64 additions shows in. It takes tensor cores for fp64, which
    /// compute capability 8.0, 9.0 and 10.0 have; others compute the same at a small part of their speed.
    #[serde(rename = "fp32-rounded")]
    Fp32Rounded,

    /// Nearly correctly rounded, by exact sums of int8 products (an Ozaki scheme): about a third of the time of
    /// [`Precision::Fp32Rounded`]. Never chosen unless it is named.
    ///
    /// Each row of A and each column of B is scaled by a power of two and rounded to integers of 30 bits, whose digits tensor cores
    /// multiply and add up without error; products of the smallest digits are left out, and the sum is rounded to fp32 once. So the error
    /// is bounded **against the largest elements of a row and a column**:
    ///
    /// ```text
    /// |E|  ≤  2⁻²⁴·|c|  +  4.02·K·2⁻²⁸ · max|row of A| · max|column of B|       c = A·B exactly, for α = 1 and β = 0
    /// ```
    ///
    /// The second part is that of the worst case: on uniform operands both parts together are 2.5·10⁻⁸ of the result's norm. Elements
    /// that are at least 2⁻⁶ of the largest of their line are exact, so a matrix that selects rows or columns gives each bit of such
    /// elements. Those that are smaller lose a bit for each power of two, as in [`Precision::Fp32Normwise`], of which there are
    /// some more here.
    ///
    /// Where sums are not divided among blocks, the bits of an element depend on its row of A and its column of B alone.
    ///
    /// Rows of A and columns of B with infinities or NaN, or with a largest element below 2⁻⁶⁰ or from 2⁷⁸ up, are noticed;
    /// their parts of the result, 256 by 256 elements each, are computed as in [`Precision::Fp32`].
    #[serde(rename = "fp32-ozaki")]
    Fp32Ozaki,

    /// Every multiplication and addition is one fused operation on a CUDA core, rounded to nearest. No operand is ever
    /// decomposed or rounded.
    ///
    /// As for any sum in fp32, the error grows with the length of the running sums, which is the kernel's matter: about
    /// `√K·2⁻²⁴` for the basic kernels, less where partial sums are added up.
    #[serde(rename = "fp32-strict")]
    Fp32Strict,

    /// As accurate as fp32, element by element, over the whole range of fp32: the default.
    ///
    /// Tensor cores multiply parts of the operands, and fp32 additions, rounded to nearest, collect the products. Two
    /// schemes: three TF32 products (3xTF32); or three fp16 products of scaled operands (3xFP16), which cost half, and packing them
    /// first. The error is at most 3·10⁻⁷ (relative Frobenius), or that of a sum in fp32 if that is larger, and on operands of similar
    /// size `|E| / Σ|a||b|` is at most 10⁻⁶. What holds for all operands, and what for those that were made to show errors, differs from
    /// scheme to scheme: [`Scheme::bounds`](crate::kernels::Scheme::bounds). (Where one number is much larger than all others, the
    /// errors of 3xTF32 were 2·10⁻⁶ at K = 4096.) An
    /// [`Accuracy`](crate::Accuracy) asks for a bound in place of a precision. Whole numbers whose sums are below 2²⁴ have exact
    /// products. And **what is selected keeps all its bits**: where each row of A, or each column of B, has one number other than zero at most,
    /// a power of two, as in the identity, in permutations and selections, the result is the other operand's elements times these, as if
    /// computed exactly. (Two parts of a number have 23 of its 24 bits; such operands are noticed, and elements computed again in fp32. Of a
    /// matrix of which only some columns select, or by a plan for [invariant rows](crate::plan::Options::invariant), the last bit may differ.)
    ///
    /// Operands that cannot be decomposed (not finite, from about 2¹¹⁵ up, or below 2⁻¹⁰⁰ without being zero) are noticed, and the
    /// tiles that they touch are computed as in [`Precision::Fp32Strict`]: infinities and NaN come out in the class that a
    /// sum in fp32 gives. For 3xFP16, more is noticed: rows of A and columns of B with an element that, without being zero, is less than
    /// 2⁻²⁸ of the largest of the 64 elements with which it is scaled (from a multiple of 64 on), or than 2⁻⁸⁸ where that is below 2⁻⁶⁰; or
    /// with one from 2⁷⁸ up. Their parts of the result, 256 by 256 elements each, are computed by 3xTF32. Where no tensor core can be used, the kernels of
    /// [`Precision::Fp32Strict`] compute the product; the explanation of the plan says so.
    #[default]
    #[serde(rename = "fp32")]
    Fp32,

    /// Three fp16 products, of operands scaled per row of A and per column of B, 64 elements at a time: half the cost of 3xTF32. Never
    /// chosen unless it is named.
    ///
    /// **Accurate against the largest elements of a row and a column only**: the error of an element is small beside
    /// `K · max|row of A| · max|column of B|`, not beside the element. This breaks it:
    ///
    /// ```text
    /// A = [2²⁰  2⁻³²]     B = [0]     A·B = 2⁻³² exactly
    ///                         [1]
    /// ```
    ///
    /// Scaled so that the largest of the 64 elements is 2¹⁴, 2⁻³² becomes 2⁻³⁸, of which two fp16 numbers hold nothing: what they
    /// can hold are multiples of 2⁻³⁵. The result is 0, and its error 100 %. An element keeps 22 bits if it is at least 2⁻²⁸ of
    /// the largest of the 64, one bit less for each power of two below that, and none from 2⁻⁵⁰ on. Use it where what is
    /// smaller than that does not count, or meets something in each row and column that is not.
    ///
    /// Rows of A and columns of B with infinities, NaN or an element from 2⁷⁸ up, or of which 64 elements have a largest one below 2⁻⁸⁸
    /// without being zero, are noticed; their parts of the result, 256 by 256 elements each, are computed as in [`Precision::Fp32`].
    #[serde(rename = "fp32-normwise")]
    Fp32Normwise,

    /// One TF32 product: operands rounded to nearest, to 11 significant bits; sums in fp32. `|E| / Σ|a||b|` is at most about
    /// 2⁻¹⁰.
    #[serde(rename = "tf32")]
    Tf32,

    /// Operands rounded to the nearest bf16 number (8 significant bits, the range of fp32); sums in fp32. `|E| / Σ|a||b|` is
    /// at most about 2⁻⁷.
    #[serde(rename = "bf16")]
    Bf16,

    /// Operands rounded to the nearest fp16 number: 11 significant bits. What is 65520 or more in magnitude becomes
    /// infinite, and below 2⁻¹⁴ bits are lost. Sums in fp32. Between these, `|E| / Σ|a||b|` is at most about 2⁻¹⁰.
    #[serde(rename = "fp16")]
    Fp16,
}

/// How large the errors of a result may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The largest relative Frobenius error.
    pub frobenius: f64,
    /// The largest `|E| / Σ|a||b|`.
    pub max: f64,
}

/// The rounding error of one fp32 operation, relative to its result.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

impl Precision {
    /// All precisions.
    pub const ALL: [Self; 8] = [
        Self::Fp32Rounded,
        Self::Fp32Ozaki,
        Self::Fp32Strict,
        Self::Fp32,
        Self::Fp32Normwise,
        Self::Tf32,
        Self::Bf16,
        Self::Fp16,
    ];

    /// The name, as `--precision`, tables and JSON have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32Rounded => "fp32-rounded",
            Self::Fp32Ozaki => "fp32-ozaki",
            Self::Fp32Strict => "fp32-strict",
            Self::Fp32 => "fp32",
            Self::Fp32Normwise => "fp32-normwise",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }

    /// What is rounded to what, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Fp32Rounded => "sums as if without error, rounded to fp32 once",
            Self::Fp32Ozaki => "exact sums of int8 digits of scaled operands, rounded to fp32 once",
            Self::Fp32Strict => "fused fp32 operations on CUDA cores",
            Self::Fp32 => "as accurate as fp32, element by element",
            Self::Fp32Normwise => "accurate against the largest element of a row or column only",
            Self::Tf32 => "operands rounded to TF32, fp32 sums",
            Self::Bf16 => "operands rounded to bf16, fp32 sums",
            Self::Fp16 => "operands rounded to fp16, fp32 sums",
        }
    }

    /// What a check of random operands of similar size may demand for sums of `terms` terms: the errors of independent
    /// roundings in fp32, and what the precision allows on top.
    ///
    /// ```text
    ///               ‖E‖ / ‖C‖                               |E| / S
    ///  fp32-rounded, fp32-ozaki
    ///               2⁻²³                                      2⁻²³
    ///  fp32-strict  2·√K·2⁻²⁴                                4·√K·2⁻²⁴
    ///  fp32         the same, at least 3·10⁻⁷                the same, at least 10⁻⁶
    ///  tf32, fp16   2·√K·2⁻²⁴ + 2⁻¹⁰                         4·√K·2⁻²⁴ + 2⁻¹⁰ (1 + 2⁻¹⁰)
    ///  bf16         2·√K·2⁻²⁴ + 2⁻⁷                          4·√K·2⁻²⁴ + 2⁻⁷ (1 + 2⁻⁷)
    /// ```
    pub fn tolerance(self, terms: usize) -> Tolerance {
        let root = (terms.max(1) as f64).sqrt();
        let fp32 = Tolerance { frobenius: 2.0 * root * ROUNDING, max: 4.0 * root * ROUNDING };
        // Two roundings of relative size u/2 each: u for their sum, and a little for their product.
        let rounded = |u: f64| Tolerance { frobenius: fp32.frobenius + u, max: fp32.max + u * (1.0 + u) };
        match self {
            // One rounding, and one more for α and β.
            Self::Fp32Rounded | Self::Fp32Ozaki => Tolerance { frobenius: 2.0 * ROUNDING, max: 2.0 * ROUNDING },
            Self::Fp32Strict => fp32,
            Self::Fp32 | Self::Fp32Normwise => {
                Tolerance { frobenius: fp32.frobenius.max(3e-7), max: fp32.max.max(1e-6) }
            }
            Self::Tf32 | Self::Fp16 => rounded(1.0 / 1024.0),
            Self::Bf16 => rounded(1.0 / 128.0),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(precision));
            assert_eq!(serde_json::to_string(&precision).unwrap(), format!("\"{precision}\""));
        }
        assert!("FP32".parse::<Precision>().unwrap_err().contains("fp32-normwise"));
        assert_eq!(Precision::default(), Precision::Fp32);
    }

    #[test]
    fn a_lower_precision_tolerates_more() {
        for terms in [0, 1, 2047, 2048, 1 << 19] {
            let of = |precision: Precision| precision.tolerance(terms);
            use Precision::*;
            for (tight, loose) in [(Fp32Rounded, Fp32Strict), (Fp32Strict, Fp32), (Fp32, Tf32), (Tf32, Bf16)] {
                assert!(of(tight).frobenius <= of(loose).frobenius && of(tight).max <= of(loose).max);
            }
        }
        // A result of TF32 operands does not pass as fp32.
        assert!(Precision::Fp32.tolerance(8192).frobenius < 5.5e-5 / 4.0);
    }
}
