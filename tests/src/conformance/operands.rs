//! What is multiplied: matrices of random numbers of several kinds, each of which is about something else.

use rand::RngExt;
use rand::rngs::StdRng;

use super::number::{Format, Number, Rounding};
use super::numerics::{Dot, WORDS, set_term, term, terms};

/// The operands of one instruction: the words of the rows of A and of the columns of B, and the elements of C by rows.
#[derive(Clone, Debug)]
pub struct Operands {
    /// Of the numbers in A and B.
    pub format: Format,
    /// The rows of A.
    pub a: Vec<[u32; WORDS]>,
    /// The columns of B.
    pub b: Vec<[u32; WORDS]>,
    /// The elements of C.
    pub c: Vec<u32>,
}

/// A kind of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exponents near zero.
    Near,
    /// A spread of exponents, less than the bits of a sum.
    Spread,
    /// More than those.
    Wide,
    /// All exponents there are, subnormal numbers included.
    Whole,
    /// Few bits, so that sums are exact, cancel and tie.
    Coarse,
    /// Products that cancel in pairs, so that what is left shows what has been cut off.
    Pairs,
    /// An element of C that cancels the products.
    Cancelled,
    /// Mostly zeros of both signs.
    Sparse,
    /// Zeros, subnormal numbers, infinities, NaNs, the largest and the smallest numbers, in between others.
    Special,
    /// The smallest results there are.
    Tiny,
    /// The largest ones.
    Huge,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Near,
        Self::Spread,
        Self::Wide,
        Self::Whole,
        Self::Coarse,
        Self::Pairs,
        Self::Cancelled,
        Self::Sparse,
        Self::Special,
        Self::Tiny,
        Self::Huge,
    ];

    /// The exponents of operands, and of C.
    fn exponents(self, format: Format) -> [(i32, i32); 2] {
        let (least, most) = (format.min_exponent() - format.fraction_bits() as i32, format.max_exponent());
        match (self, format) {
            (Self::Near | Self::Special, _) => [(-2, 2), (-3, 5)],
            (Self::Spread | Self::Sparse, _) => [(-7, 7), (-16, 16)],
            (Self::Wide, Format::Fp16) => [(-14, 15), (-30, 32)],
            (Self::Wide, _) => [(-30, 30), (-40, 40)],
            (Self::Whole, Format::Fp16) => [(least, most), (-50, 40)],
            (Self::Whole, _) => [(least, most), (-149, 127)],
            (Self::Coarse, _) => [(-3, 3), (-6, 6)],
            (Self::Pairs, _) => [(-7, 7), (-30, -5)],
            (Self::Cancelled, _) => [(-4, 4), (0, 0)],
            (Self::Tiny, Format::Fp16) => [(least, -10), (-60, -20)],
            (Self::Tiny, _) => [(-90, -50), (-149, -110)],
            (Self::Huge, Format::Fp16) => [(12, most), (20, 40)],
            (Self::Huge, _) => [(50, 66), (105, 127)],
        }
    }
}

/// A random number with an exponent between two, both included; below that of the smallest normal number it is subnormal. `bits` of
/// its fraction are random, the rest zero.
pub fn number(rng: &mut StdRng, format: Format, (least, most): (i32, i32), bits: u32) -> u32 {
    let exponent = rng.random_range(least..=most);
    let fraction = rng.random::<u32>() & ((1u32 << bits) - 1);
    let (magnitude, unit) = (1 << bits | fraction, exponent - bits as i32);
    format.encode(rng.random(), magnitude.into(), unit, false, Rounding::TowardZero)
}

/// The numbers of a format that are special in some way.
pub fn special_numbers(format: Format) -> Vec<u32> {
    let one = |exponent: i32, significand: u128| {
        format.encode(false, significand, exponent - format.fraction_bits() as i32, false, Rounding::TowardZero)
    };
    let (implicit, infinity) = (1u128 << format.fraction_bits(), format.infinity(false));
    let last = infinity & infinity.wrapping_neg(); // of the exponent; half of it, of the fraction
    let lowest = one(format.min_exponent(), 1);
    let mut numbers = vec![
        0,
        lowest,
        one(format.min_exponent(), implicit - 1),
        one(format.min_exponent(), implicit),
        one(format.min_exponent(), implicit + 1),
        one(-1, implicit),
        one(0, implicit),
        one(0, implicit + 1),
        one(0, implicit * 2 - 1),
        one(format.max_exponent(), implicit),
        one(format.max_exponent(), implicit * 2 - 1),
        infinity,
        infinity | last >> 1,          // a quiet NaN
        infinity | last >> 1 | lowest, // with a payload
        infinity | lowest,             // a signalling one
        infinity | (last - 1),         // all ones
    ];
    let negative = format.encode(true, 0, 0, false, Rounding::TowardZero);
    numbers.extend(numbers.clone().into_iter().map(|number| number | negative));
    numbers
}

impl Operands {
    /// Random operands of a kind, for a result of so many rows and columns.
    pub fn random(rng: &mut StdRng, format: Format, kind: Kind, rows: usize, columns: usize) -> Self {
        let [of_operands, of_c] = kind.exponents(format);
        let (special, special_c) = (special_numbers(format), special_numbers(Format::Fp32));
        let operand = |rng: &mut StdRng| {
            let mut bits = match kind {
                Kind::Coarse => number(rng, format, of_operands, 2),
                Kind::Special if rng.random_ratio(1, 12) => special[rng.random_range(0..special.len())],
                // The largest numbers, too: beside zeros, which might count by their exponents.
                Kind::Sparse if rng.random_ratio(1, 8) => {
                    number(rng, format, (format.min_exponent(), format.max_exponent()), format.fraction_bits())
                }
                Kind::Sparse if rng.random_ratio(3, 4) => {
                    format.encode(rng.random(), 0, 0, false, Rounding::TowardZero)
                }
                _ => number(rng, format, of_operands, format.fraction_bits()),
            };
            if format == Format::Tf32 && rng.random_ratio(1, 2) {
                bits |= rng.random::<u32>() & 0x1FFF; // what is ignored
            }
            bits
        };
        let lines = |rng: &mut StdRng, count: usize, sign: u32| -> Vec<[u32; WORDS]> {
            let mut line = |_| {
                let mut words = [0; WORDS];
                for index in 0..terms(format) {
                    let bits = match kind {
                        // Now and then the two of a pair differ.
                        Kind::Pairs if index % 2 == 1 && !rng.random_ratio(1, 24) => {
                            term(format, &words, index - 1) ^ sign
                        }
                        _ => operand(rng),
                    };
                    set_term(format, &mut words, index, bits);
                }
                words
            };
            (0..count).map(&mut line).collect()
        };
        let negative = format.encode(true, 0, 0, false, Rounding::TowardZero);
        let (a, b) = (lines(rng, rows, negative), lines(rng, columns, 0));
        let mut operands = Self { format, a, b, c: vec![0; rows * columns] };
        for index in 0..rows * columns {
            operands.c[index] = match kind {
                Kind::Coarse => number(rng, Format::Fp32, of_c, 3),
                Kind::Special if rng.random_ratio(1, 6) => special_c[rng.random_range(0..special_c.len())],
                Kind::Cancelled => {
                    let (row, column) = (index / columns, index % columns);
                    let sum = -operands.exact(row, column) as f32;
                    sum.to_bits().wrapping_add(rng.random_range(0..4)).wrapping_sub(2)
                }
                _ if rng.random_ratio(1, 8) => u32::from(rng.random::<bool>()) << 31,
                _ => number(rng, Format::Fp32, of_c, 23),
            };
        }
        operands
    }

    /// Nothing but zeros.
    pub fn zeros(format: Format, rows: usize, columns: usize) -> Self {
        Self { format, a: vec![[0; WORDS]; rows], b: vec![[0; WORDS]; columns], c: vec![0; rows * columns] }
    }

    /// What makes up an element of the result.
    pub fn dot(&self, row: usize, column: usize) -> Dot {
        Dot { a: self.a[row], b: self.b[column], c: self.c[row * self.b.len() + column] }
    }

    /// The sum of the products of an element, in f64.
    fn exact(&self, row: usize, column: usize) -> f64 {
        let value = |words: &[u32; WORDS], index: usize| -> f64 {
            let number: Number = self.format.decode(term(self.format, words, index));
            number.value()
        };
        (0..terms(self.format)).map(|index| value(&self.a[row], index) * value(&self.b[column], index)).sum()
    }
}
