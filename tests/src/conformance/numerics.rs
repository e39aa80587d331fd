//! A model of what tensor cores do with the terms of a sum, with everything that is not documented as a parameter.
//!
//! ```text
//!                      ◀── fraction bits ──▶
//!  largest summand     1 x x x x x x x x x x        summands: some products at a time, and what they are added to
//!  another             . . . 1 x x x x x x x x x    ─ ─ ─ what is behind the last bit is cut off
//!  another             . . . . . . . 1 x x x x x x x x
//!                    ──────────────────────────
//!  sum, exact        x x x x x x x x x x x x        rounded to fp32; with the next products it is one of the summands
//! ```
//!
//! It is written anew from this description, with integers, and slowly; nothing of it is shared with the models that it judges.

use std::fmt;

use serde::Serialize;

use super::number::{Format, Number, Rounding};

/// The words of a row of A, and of a column of B, in one instruction.
pub const WORDS: usize = 8;

/// The most products of one instruction.
const MAX_TERMS: usize = 16;

/// What comes out where there is no number.
pub const NAN: u32 = 0x7FFF_FFFF;

/// An element of a product: a row of A, a column of B, and the element of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the formula")]
pub struct Dot {
    pub a: [u32; WORDS],
    pub b: [u32; WORDS],
    pub c: u32,
}

/// The terms that an instruction with operands of this format adds up.
pub fn terms(format: Format) -> usize {
    if format.word_bits() == 16 { 2 * WORDS } else { WORDS }
}

/// Term `index` of those in these words.
pub fn term(format: Format, words: &[u32; WORDS], index: usize) -> u32 {
    if format.word_bits() == 16 { words[index / 2] >> (16 * (index % 2)) & 0xFFFF } else { words[index] }
}

/// Replaces a term.
pub fn set_term(format: Format, words: &mut [u32; WORDS], index: usize, bits: u32) {
    if format.word_bits() == 16 {
        let shift = 16 * (index % 2);
        words[index / 2] = words[index / 2] & !(0xFFFF << shift) | bits << shift;
    } else {
        words[index] = bits;
    }
}

/// What the exponent of a product is to the alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exponent {
    /// The sum of the operands' exponents, those of subnormal operands being that of the smallest normal number.
    OfFields,
    /// The sum of the operands' exponents, those of subnormal operands being that of their first bit.
    OfOperands,
    /// That of the product's first bit.
    OfProduct,
}

/// What is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The low bits of the magnitude.
    TowardZero,
    /// The low bits of the two's complement.
    Down,
}

/// When C is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addend {
    /// It is a summand beside the first products.
    WithProducts,
    /// The products are added up first, and their sum, aligned with C, is added to it.
    AfterProducts,
}

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numerics {
    /// The bits behind the first one that are kept of the largest summand.
    pub fraction_bits: i32,
    /// The products that are added up at a time.
    pub terms: usize,
    /// Whether these are every second, fourth … product, and not neighbours.
    pub interleaved: bool,
    /// Of products.
    pub exponent: Exponent,
    /// The exponent to align to if all summands, but zeros, have smaller ones.
    pub least_exponent: Option<i32>,
    /// How summands are cut.
    pub cut: Cut,
    /// How sums are rounded to fp32.
    pub rounding: Rounding,
    /// How C comes in.
    pub addend: Addend,
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fraction_bits, terms, interleaved, exponent, least_exponent, cut, rounding, addend } = self;
        let order = if *interleaved { "interleaved" } else { "neighbours" };
        let least = least_exponent.map_or("none".into(), |exponent| exponent.to_string());
        write!(
            f,
            "{fraction_bits} bits, {terms} terms ({order}), exponent {exponent:?}, least {least}, cut {cut:?}, \
             result {rounding:?}, C {addend:?}"
        )
    }
}

/// A number to add.
#[derive(Clone, Copy, Debug)]
struct Summand {
    negative: bool,
    significand: u64,
    /// The exponent of the last bit.
    unit: i32,
    /// [`Exponent::OfFields`].
    of_fields: i32,
    /// [`Exponent::OfOperands`].
    of_operands: i32,
}

/// The terms of a sum, ready to be added up in many ways.
#[derive(Clone, Debug)]
pub struct Terms {
    products: [Summand; MAX_TERMS],
    len: usize,
    c: Summand,
    /// What the sum is whatever the way, if it is not finite.
    special: Option<u32>,
}

impl Summand {
    const ZERO: Self = Self { negative: false, significand: 0, unit: 0, of_fields: 0, of_operands: 0 };

    /// Of a number of a format.
    fn new(format: Format, number: Number) -> Self {
        let Number::Finite { negative, significand, unit } = number else { return Self::ZERO };
        let of_operands = match significand {
            0 => format.min_exponent(),
            _ => unit + significand.ilog2() as i32,
        };
        Self { negative, significand, unit, of_fields: unit + format.fraction_bits() as i32, of_operands }
    }

    fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            unit: self.unit + other.unit,
            of_fields: self.of_fields + other.of_fields,
            of_operands: self.of_operands + other.of_operands,
        }
    }

    /// Of an fp32 number that is finite.
    fn of_fp32(word: u32) -> Self {
        Self::new(Format::Fp32, Format::Fp32.decode(word))
    }
}

impl Terms {
    /// The terms of an element of a product of operands of a format.
    pub fn new(format: Format, dot: &Dot) -> Self {
        let len = terms(format);
        let mut products = [Summand::ZERO; MAX_TERMS];
        let (mut is_nan, mut infinite) = (false, [false; 2]);
        for (index, product) in products.iter_mut().enumerate().take(len) {
            let [a, b] = [&dot.a, &dot.b].map(|words| format.decode(term(format, words, index)));
            *product = Summand::new(format, a).times(Summand::new(format, b));
            let is_infinite = |number: Number| matches!(number, Number::Infinite { .. });
            let is_zero = |number: Number| matches!(number, Number::Finite { significand: 0, .. });
            is_nan |= a == Number::Nan || b == Number::Nan;
            is_nan |= is_infinite(a) && is_zero(b) || is_zero(a) && is_infinite(b);
            if is_infinite(a) || is_infinite(b) {
                let is_negative = |number: Number| match number {
                    Number::Nan => false,
                    Number::Infinite { negative } | Number::Finite { negative, .. } => negative,
                };
                infinite[usize::from(is_negative(a) != is_negative(b))] = true;
            }
        }
        let c = Format::Fp32.decode(dot.c);
        is_nan |= c == Number::Nan;
        if let Number::Infinite { negative } = c {
            infinite[usize::from(negative)] = true;
        }
        let special = match infinite {
            _ if is_nan => Some(NAN),
            [true, true] => Some(NAN),
            [true, false] => Some(Format::Fp32.infinity(false)),
            [false, true] => Some(Format::Fp32.infinity(true)),
            [false, false] => None,
        };
        Self { products, len, c: Summand::new(Format::Fp32, c), special }
    }

    /// Whether all operands are finite.
    pub fn are_finite(&self) -> bool {
        self.special.is_none()
    }
}

impl Numerics {
    /// The parameters of the H200, found with [`fit`](super::fit): the reference.
    pub fn of_hopper(format: Format) -> Self {
        Self {
            fraction_bits: 25,
            terms: terms(format),
            interleaved: false,
            exponent: Exponent::OfFields,
            least_exponent: Some(-133),
            cut: Cut::TowardZero,
            rounding: Rounding::TowardZero,
            addend: Addend::WithProducts,
        }
    }

    /// The element, as an fp32 number's bits.
    pub fn sum(&self, terms: &Terms) -> u32 {
        if let Some(special) = terms.special {
            return special;
        }
        let products = &terms.products[..terms.len];
        let steps = terms.len / self.terms;
        let mut sum = match self.addend {
            Addend::WithProducts => terms.c,
            Addend::AfterProducts => Summand::ZERO,
        };
        let mut group = [Summand::ZERO; MAX_TERMS + 1];
        let mut result = 0;
        for step in 0..steps {
            for (i, summand) in group.iter_mut().enumerate().take(self.terms) {
                *summand = products[if self.interleaved { i * steps + step } else { step * self.terms + i }];
            }
            group[self.terms] = sum;
            // An infinite sum stays what it is.
            result = self.fused(&group[..=self.terms]);
            if result << 1 == 0xFF00_0000 {
                return result;
            }
            sum = Summand::of_fp32(result);
        }
        match self.addend {
            Addend::WithProducts => result,
            Addend::AfterProducts => self.fused(&[sum, terms.c]),
        }
    }

    /// Adds up some summands, as the picture shows.
    fn fused(&self, summands: &[Summand]) -> u32 {
        let exponent = |summand: &Summand| match self.exponent {
            Exponent::OfFields => summand.of_fields,
            Exponent::OfOperands => summand.of_operands,
            Exponent::OfProduct => summand.unit + summand.significand.ilog2() as i32,
        };
        let exponents = summands.iter().filter(|summand| summand.significand != 0).map(exponent);
        let Some(largest) = exponents.max() else { return 0 };
        let largest = self.least_exponent.map_or(largest, |least| least.max(largest));
        let unit = largest - self.fraction_bits;
        let mut sum = 0i64;
        for &Summand { negative, significand, unit: of_summand, .. } in summands {
            if significand == 0 {
                continue;
            }
            let shift = of_summand - unit;
            let magnitude = match shift {
                0.. => significand << shift,
                -63.. => significand >> -shift,
                _ => 0,
            };
            let is_cut = shift < 0 && (shift < -63 || magnitude << -shift != significand);
            let magnitude = magnitude + u64::from(is_cut && negative && self.cut == Cut::Down);
            sum += if negative { -(magnitude as i64) } else { magnitude as i64 };
        }
        let result = Format::Fp32.encode(sum < 0, sum.unsigned_abs().into(), unit, false, self.rounding);
        // Zeros are positive.
        if result << 1 == 0 { 0 } else { result }
    }
}
