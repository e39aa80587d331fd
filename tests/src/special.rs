//! Products whose operands are not like random numbers: what kernels that round, scale or split operands have to get right.

use ndarray::Array2;
use tilewright::kernels::Scheme;

use crate::planned::{magnitudes, magnitudes_of_columns};
use crate::{Layouts, Operand, Problem, Sizes};

/// The extents: more than one group of 256 lines in either direction, and sums that are no multiple of anything, long and short.
pub const SHAPES: [Sizes; 2] = [Sizes { m: 301, n: 517, k: 709 }, Sizes { m: 301, n: 520, k: 45 }];

/// What operands are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Uniform in [−1, 1].
    Ordinary,
    /// Rows of A begin with numbers 2⁴⁰ times as large as the others, which meet zeros in some columns of B.
    Graded,
    /// As far apart in each line as a kernel of scaled operands can take element by element, and in a few lines further.
    AtTheLimit,
    /// Some rows of A and columns of B are 2¹⁰⁰ times as large or as small as others.
    HugeAndTiny,
    /// Some rows of A are subnormal.
    Subnormal,
    /// Some infinities and NaNs.
    NotFinite,
    /// Some rows of A and columns of B are zero.
    ZeroLines,
    /// One NaN in each group of lines, so that no tile can be computed with scaled operands.
    NothingFits,
    /// A few single numbers are too small for a kernel of scaled operands, and some elements of C have no other terms than those of such numbers.
    SingleTiny,
}

impl Special {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ordinary,
        Self::Graded,
        Self::AtTheLimit,
        Self::HugeAndTiny,
        Self::Subnormal,
        Self::NotFinite,
        Self::ZeroLines,
        Self::NothingFits,
        Self::SingleTiny,
    ];

    /// Such a product, of one of [`SHAPES`].
    pub fn problem(self, shape: Sizes, layouts: Layouts, seed: u64) -> Problem {
        let mut problem = Problem::new(shape, layouts, seed);
        let Sizes { m, n, k } = shape;
        let power = |exponent: i32| 2f32.powi(exponent);
        let (a, b) = (&mut problem.a, &mut problem.b);
        let scale_row = |a: &mut Operand, row: usize, factor: f32| {
            (0..k).for_each(|l| a.set(row, l, a.at(row, l) * factor));
        };
        let scale_col = |b: &mut Operand, col: usize, factor: f32| {
            (0..k).for_each(|l| b.set(l, col, b.at(l, col) * factor));
        };
        match self {
            Self::Ordinary => {}
            Self::Graded => {
                for l in 0..k {
                    let is_large = l < k / 2;
                    (0..m).for_each(|row| a.set(row, l, a.at(row, l) * power(if is_large { 20 } else { -20 })));
                    (0..n).filter(|col| is_large && col % 3 == 1).for_each(|col| b.set(l, col, 0.0));
                }
            }
            Self::AtTheLimit => {
                // From 1 to 2 times a power of two, either 2²⁸ apart or, in two lines, 2²⁹.
                for (lines, operand) in [(m, &mut *a), (n, &mut *b)] {
                    for line in 0..lines {
                        for l in 0..k {
                            let at = if lines == m { (line, l) } else { (l, line) };
                            let exponent = if l % 5 == 0 { 7 } else { -21 - i32::from(line == 290 && l == 7) };
                            let x = operand.at(at.0, at.1);
                            operand.set(at.0, at.1, (1.0 + x.abs() * 0.999).copysign(x) * power(exponent));
                        }
                    }
                }
            }
            Self::HugeAndTiny => {
                scale_row(a, 5, power(100));
                scale_col(b, 7, power(-100));
                scale_col(b, 300, power(-60));
                scale_row(a, 280, power(-70));
            }
            Self::Subnormal => {
                scale_row(a, 17, 1e-39);
                scale_row(a, 299, 1e-42);
            }
            Self::NotFinite => {
                a.set(3, 4, f32::INFINITY);
                a.set(270, k - 1, f32::NAN);
                b.set(2, 511, f32::NEG_INFINITY);
                b.set(4, 9, 0.0);
                b.set(11, 12, f32::NAN);
            }
            Self::ZeroLines => {
                for row in [0, 63, 64, 256, 300] {
                    scale_row(a, row, 0.0);
                }
                for col in [0, 255, 256, 516] {
                    scale_col(b, col, 0.0);
                }
            }
            Self::NothingFits => {
                a.set(1, 1, f32::NAN);
                a.set(256, 0, f32::NAN);
            }
            Self::SingleTiny => return problem.with_single_tiny_elements(),
        }
        problem
    }

    /// Whether the operands of a scheme can be like this: fp16 has neither the range nor, where numbers are small, the bits.
    pub fn suits(self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Fp16 => matches!(self, Self::Ordinary | Self::NotFinite | Self::ZeroLines | Self::NothingFits),
            // What bf16 and TF32 hold of a subnormal number is less than their share.
            Scheme::Bf16 | Scheme::Tf32 => self != Self::Subnormal,
            _ => true,
        }
    }
}

/// What an error may be for such products, as a part of the sum of magnitudes. What is as accurate as fp32 is held to 10⁻⁶; sums of
/// tensor cores are cut off, which for rounded operands, whose sums stay there, is no more than the rounding.
pub fn bound(scheme: Scheme) -> f64 {
    match scheme {
        Scheme::Bf16 => 2f64.powi(-7),
        Scheme::Tf32 | Scheme::Fp16 => 2f64.powi(-9),
        _ => 1e-6,
    }
}

/// Compares a result with the product in double precision: each element is infinite or NaN where that is, and otherwise off by
/// at most `bound` times the sum of magnitudes, apart from what is below the smallest numbers.
///
/// # Errors
/// What is wrong, in words.
pub fn check(problem: &Problem, result: &Operand, scheme: Scheme, bound: f64) -> Result<(), String> {
    let (alpha, beta) = (f64::from(problem.alpha), f64::from(problem.beta));
    let (a, b) = (problem.a.to_f64(), problem.b.to_f64());
    let mut value = exact(&a, &b) * alpha;
    let finite = |matrix: &Array2<f64>| matrix.mapv(|x| if x.is_finite() { x } else { 0.0 });
    let mut magnitude = magnitudes(scheme, &finite(&a)).dot(&magnitudes_of_columns(scheme, &finite(&b))) * alpha.abs();
    if beta != 0.0 {
        value.scaled_add(beta, &problem.c.to_f64());
        magnitude.scaled_add(beta.abs(), &problem.c.to_f64().mapv(f64::abs));
    }
    let least = problem.a.cols() as f64 * f64::from(f32::from_bits(1));
    for (index, found) in result.to_f64().indexed_iter() {
        let expected = value[index];
        let is_right = if expected.is_finite() {
            (found - expected).abs() <= bound * magnitude[index] + least
        } else {
            found.total_cmp(&expected).is_eq() || (found.is_nan() && expected.is_nan())
        };
        if !is_right {
            return Err(format!(
                "element {index:?} is {found:e} and should be {expected:e}: {:.3e} of the sum of magnitudes, beyond {bound:.3e}",
                (found - expected).abs() / magnitude[index]
            ));
        }
    }
    Ok(())
}

/// The product, with every infinity and NaN where a plain sum has them.
fn exact(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    let (m, n) = (a.nrows(), b.ncols());
    let b = b.t().as_standard_layout().to_owned();
    Array2::from_shape_fn((m, n), |(row, col)| a.row(row).iter().zip(b.row(col)).map(|(a, b)| a * b).sum())
}
