//! How tensor cores add up the products of one instruction: the model behind the CPU sides of `mma` and `wgmma`.
//!
//! ```text
//!                            ◀──── fraction bits ────▶
//!  largest exponent   x x . x x x x x x x x x x x x x x      summands: the products, and the element of C
//!  another                  . . . x x x x x x x x x x x x x
//!  another                  . . . . . . . . x x x x x x x x x x x x
//!                    ───────────────────────────────────
//!  sum, exact       x x x . x x x x x x x x x x x x x x        cut off to fp32
//! ```
//!
//! - Products are exact, and not normalised: the exponent of one is the sum of its operands' exponents, also if its value is 2 or more
//!   at that exponent. The exponent of a subnormal number is that of the smallest normal one; zeros have none.
//! - All summands of an instruction are aligned to the largest exponent among them, or to the [least](Summation::least_exponent), if
//!   that is larger. What is behind the last [bit](Summation::fraction_bits) is cut off, toward zero.
//! - Their sum is exact, so their order does not matter. It is cut off to fp32, toward zero: subnormal results are what they are, and
//!   from 2¹²⁸ on results are infinite.
//! - A result of zero is +0, whatever the signs of what was added, and also if it is a negative sum that was cut off.
//! - Without a number there is one NaN, `0x7FFFFFFF`: for any NaN among the operands, ∞·0 and ∞ − ∞.
//!
//! So long sums are biased toward zero by about 2⁻²⁴ of their size for each instruction.
//!
//! Source: measured on an NVIDIA H200 (2026-11-22), where the sums of the program `conformance` (`tests/src/conformance`), of random
//! operands of many kinds and of probes, come out like this bit for bit, for `mma.sync` and `wgmma` with TF32, bf16 and fp16 alike. The
//! questions that the probes ask are those of M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor
//! cores", PeerJ Computer Science 7:e330 (2021). They found other GPUs to differ in the number of bits and of the products that are
//! aligned at a time.

use crate::executor;
use crate::wgmma::Kind;

/// The numbers of the model.
///
/// ```
/// # use tilewright_cuda_std::{tensor_cores::{HOPPER, Summation}};
/// // What is added to a summand of exponent 0 has no bits below 2⁻²⁵.
/// let Summation { fraction_bits, .. } = HOPPER;
/// assert_eq!(fraction_bits, 25);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summation {
    /// The bits of a summand behind the binary point that are kept, if it has the largest exponent: those of an fp32 number, and some
    /// more.
    pub fraction_bits: i32,
    /// The exponent to align to if all summands have smaller ones.
    pub least_exponent: i32,
}

/// Of the H200, in all instructions that there are wrappers of.
pub const HOPPER: Summation = Summation { fraction_bits: 25, least_exponent: -133 };

/// What comes out where there is no number.
const NAN: u32 = 0x7FFF_FFFF;

/// In place of an exponent: less than all others, also with another added to it.
const OF_ZERO: i16 = -8000;

/// In place of an exponent: more than all others, also with [`OF_ZERO`] added to it.
const NOT_FINITE: i16 = 16_000;

/// Exponents from here on are those of products that are not finite: those of finite ones are less than 256.
const FIRST_NOT_FINITE: i32 = (NOT_FINITE + OF_ZERO) as i32;

/// The bits of an f64's fraction.
const FRACTION_BITS: i32 = f64::MANTISSA_DIGITS as i32 - 1;

/// The words of a row of A or a column of B, in one instruction: a number in each, or two, the first in the lower half.
pub(crate) const WORDS: usize = 8;

/// A row of A or a column of B, in one instruction.
pub(crate) struct Terms<const K: usize> {
    values: [f32; K],
    exponents: [i16; K],
}

// Loops over arrays, and `i16`: the compiler makes vectors of any processor of these. Of `from_fn` and larger exponents it does not.
impl<const K: usize> Terms<K> {
    /// The numbers that tensor cores see in these words: 8 of 32 bits, or 16 of 16.
    pub(crate) fn new(kind: Kind, words: &[u32; WORDS]) -> Self {
        let mut values = [0.0; K];
        match kind {
            Kind::Tf32 => {
                for (value, word) in values.iter_mut().zip(words) {
                    *value = f32::from_bits(word & 0xFFFF_E000);
                }
            }
            Kind::Bf16 => {
                for (pair, word) in values.chunks_exact_mut(2).zip(words) {
                    pair[0] = f32::from_bits(word << 16);
                    pair[1] = f32::from_bits(word & 0xFFFF_0000);
                }
            }
            Kind::Fp16 => {
                for (pair, word) in values.chunks_exact_mut(2).zip(words) {
                    pair[0] = number_of_half(word & 0xFFFF);
                    pair[1] = number_of_half(word >> 16);
                }
            }
            Kind::Int8 => unreachable!("sums of integers are exact, and not this model's"),
        }
        // The exponent of the smallest normal number.
        let least = if kind == Kind::Fp16 { -14 } else { -126 };
        let mut exponents = [0; K];
        for (place, value) in exponents.iter_mut().zip(&values) {
            *place = exponent(*value, least);
        }
        Self { values, exponents }
    }
}

/// The fp16 number with these bits.
#[inline(always)]
fn number_of_half(bits: u32) -> f32 {
    // With the exponent of fp16 where fp32 has its own, and the rest of the bias by a product, which is exact, also for subnormal numbers.
    let scaled = f32::from_bits((bits & 0x7FFF) << 13) * f32::from_bits((127 + 112) << 23);
    let is_finite = bits & 0x7C00 != 0x7C00;
    f32::from_bits(scaled.to_bits() | if is_finite { 0 } else { 0x7F80_0000 } | (bits & 0x8000) << 16)
}

/// The exponent of a number of a format, whose smallest normal number has the least.
#[inline(always)]
fn exponent(value: f32, least: i16) -> i16 {
    let magnitude = value.to_bits() & 0x7FFF_FFFF;
    let exponent = ((magnitude >> 23) as i16).wrapping_sub(127).max(least);
    let exponent = if magnitude == 0 { OF_ZERO } else { exponent };
    if magnitude >= 0x7F80_0000 { NOT_FINITE } else { exponent }
}

/// `2^exponent`, of exponents that a normal f64 can have.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + f64::MAX_EXP - 1) as u64) << FRACTION_BITS)
}

/// `Σ a·b + c`, as the module's documentation says.
pub(crate) fn sum<const K: usize>(a: &Terms<K>, b: &Terms<K>, c: f32) -> f32 {
    let result = sum_of_all(a, b, c);
    if executor::is_tracing() {
        executor::trace_sum(&a.values, &b.values, c, result, f32::MIN_POSITIVE);
    }
    result
}

#[inline(always)]
fn sum_of_all<const K: usize>(a: &Terms<K>, b: &Terms<K>, c: f32) -> f32 {
    let mut exponents = [0; K];
    for (exponent, (a, b)) in exponents.iter_mut().zip(a.exponents.iter().zip(&b.exponents)) {
        *exponent = a.wrapping_add(*b);
    }
    let largest = exponents.iter().fold(exponent(c, -126), |largest, exponent| largest.max(*exponent));
    let largest = i32::from(largest).max(HOPPER.least_exponent);
    // Exact: they have at most 22 significant bits, and the exponents of f64 are enough for them.
    let mut products = [0.0; K];
    for (product, (a, b)) in products.iter_mut().zip(a.values.iter().zip(&b.values)) {
        *product = f64::from(*a) * f64::from(*b);
    }
    if largest >= FIRST_NOT_FINITE {
        // The order does not matter to what comes out: infinity, or no number.
        let sum = products.iter().fold(f64::from(c), |sum, product| sum + product);
        return if sum.is_nan() { f32::from_bits(NAN) } else { sum as f32 };
    }
    let unit = largest - HOPPER.fraction_bits;
    let scale = power(-unit);
    // SAFETY: of magnitude less than 2^27, which an i32 has room for: the value of a summand is less than 4·2^(its exponent), because
    // the significands of a product are less than 2 each; its exponent is at most `largest`; and scaling multiplies by
    // 2^(25 − largest), 25 being the fraction bits of `HOPPER`. Zero stays zero. None is infinite or NaN, or `largest` would be
    // `FIRST_NOT_FINITE` or more.
    let cut = |x: f64| -> i32 { unsafe { (x * scale).to_int_unchecked() } };
    let mut summands = [0; K];
    for (summand, product) in summands.iter_mut().zip(products) {
        *summand = cut(product);
    }
    let mut sum = i64::from(cut(c.into()));
    // Eight are less than 2^30.
    for eight in summands.chunks_exact(8) {
        sum = sum.wrapping_add(i64::from(eight.iter().fold(0, |sum: i32, summand| sum.wrapping_add(*summand))));
    }
    cut_to_fp32(sum as f64 * power(unit))
}

/// `x` rounded toward zero. From 2^128 on the result is infinite. Zero is +0.
fn cut_to_fp32(x: f64) -> f32 {
    if x != 0.0 && x.abs() < f32::MIN_POSITIVE.into() {
        const LOWEST: i32 = f32::MIN_EXP - f32::MANTISSA_DIGITS as i32;
        return (f64::from((x * power(-LOWEST)) as i32) * power(LOWEST)) as f32;
    }
    const MORE_BITS: u32 = f64::MANTISSA_DIGITS - f32::MANTISSA_DIGITS;
    f64::from_bits(x.to_bits() >> MORE_BITS << MORE_BITS) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: fn(i32) -> f32 = |exponent| 2f64.powi(exponent) as f32;

    fn sum(a: &[f32], b: &[f32], c: f32) -> f32 {
        let terms =
            |x: &[f32]| Terms::<8>::new(Kind::Tf32, &core::array::from_fn(|i| x.get(i).map_or(0, |x| x.to_bits())));
        super::sum(&terms(a), &terms(b), c)
    }

    #[test]
    fn products_are_aligned_by_the_exponents_of_their_operands() {
        // 2.25, as a product of two numbers with exponent 0, has exponent 0: a bit more is kept than of others of its size.
        assert_eq!(sum(&[1.5, -1.5, POWER(-12)], &[1.5, 1.5, POWER(-13)], 0.0), POWER(-25));
        assert_eq!(sum(&[2.0, -2.0, POWER(-12)], &[1.125, 1.125, POWER(-13)], 0.0), 0.0);
        assert_eq!(sum(&[1.5, POWER(-12)], &[1.5, POWER(-13)], -2.25), 0.0, "aligned to C");
        // A subnormal operand counts as if it had the exponent of the smallest normal number: here 1, and the product is 2^-9.
        let product = |small: f32| sum(&[POWER(-136), -POWER(-136), small], &[POWER(127), POWER(127), 1.0], 0.0);
        assert_eq!((product(POWER(-24)), product(POWER(-25))), (POWER(-24), 0.0));
    }

    #[test]
    fn there_is_a_last_bit_below_the_smallest_numbers() {
        let less = |exponent: i32| sum(&[POWER(-74), -POWER(-79)], &[POWER(-75), POWER(79 + exponent)], 0.0);
        assert_eq!((less(-158), less(-159)), (0.0, POWER(-149)));
    }

    #[test]
    fn zeros_are_positive() {
        assert_eq!(sum(&[-0.0; 8], &[1.0; 8], -0.0).to_bits(), 0);
        assert_eq!(sum(&[POWER(-75)], &[-POWER(-75)], 0.0).to_bits(), 0, "what is cut off of −2^-150");
    }

    #[test]
    fn every_fp16_number_is_the_one_that_it_is_elsewhere() {
        for bits in 0..=u16::MAX {
            let (ours, other) = (number_of_half(bits.into()), half::f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == other.to_bits() || ours.is_nan() && other.is_nan(),
                "{bits:#06x}: {ours} and {other}"
            );
        }
    }

    #[test]
    fn no_number_is_one_pattern() {
        let nan = f32::from_bits(0xFFC1_2000);
        for (a, b, c) in
            [(nan, 1.0, 0.0), (1.0, 0.0, nan), (f32::INFINITY, 0.0, 1.0), (f32::INFINITY, 1.0, -f32::INFINITY)]
        {
            assert_eq!(sum(&[a], &[b], c).to_bits(), NAN, "{a}·{b} + {c}");
        }
    }
}
