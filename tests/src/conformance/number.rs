//! Floating-point numbers of all formats as whole numbers times powers of two, and back, by integer arithmetic alone.

use std::fmt;

/// A format of operands, or of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// IEEE 754 binary32.
    Fp32,
    /// fp32 with 10 bits of fraction. In a register it has 32 bits, the low 13 of which tensor cores ignore.
    Tf32,
    /// 7 bits of fraction, and the exponents of fp32.
    Bf16,
    /// IEEE 754 binary16.
    Fp16,
}

/// How a number becomes one of fewer bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// The bits behind the last are cut off.
    TowardZero,
    /// To the nearest; of two, the one with an even last bit.
    TiesToEven,
    /// To the nearest; of two, the larger in magnitude.
    TiesAway,
}

/// What the bits of a number say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Not a number.
    Nan,
    /// Infinite.
    Infinite {
        /// Below zero.
        negative: bool,
    },
    /// `significand · 2^unit`, with a sign, which zeros have, too.
    Finite {
        /// Below zero, or −0.
        negative: bool,
        /// Zero, or a whole number.
        significand: u64,
        /// The exponent of its last bit.
        unit: i32,
    },
}

impl Format {
    /// The bits of the fraction.
    pub const fn fraction_bits(self) -> u32 {
        match self {
            Self::Fp32 => 23,
            Self::Tf32 | Self::Fp16 => 10,
            Self::Bf16 => 7,
        }
    }

    /// The exponent of the smallest normal number.
    pub const fn min_exponent(self) -> i32 {
        match self {
            Self::Fp16 => -14,
            _ => -126,
        }
    }

    /// The exponent of the largest number.
    pub const fn max_exponent(self) -> i32 {
        1 - self.min_exponent()
    }

    /// The bits that the format has, from the lowest that counts.
    const fn exponent_bits(self) -> u32 {
        match self {
            Self::Fp16 => 5,
            _ => 8,
        }
    }

    /// The bits of the format's word below those of the number.
    const fn ignored_bits(self) -> u32 {
        match self {
            Self::Tf32 => 13,
            _ => 0,
        }
    }

    /// The bits of a number, and of its word.
    pub const fn word_bits(self) -> u32 {
        1 + self.exponent_bits() + self.fraction_bits() + self.ignored_bits()
    }

    /// What a word says.
    pub fn decode(self, word: u32) -> Number {
        let bits = word >> self.ignored_bits();
        let fraction = u64::from(bits & ((1 << self.fraction_bits()) - 1));
        let field = bits >> self.fraction_bits() & ((1 << self.exponent_bits()) - 1);
        let negative = bits >> (self.fraction_bits() + self.exponent_bits()) & 1 == 1;
        let smallest = self.min_exponent() - self.fraction_bits() as i32;
        match field {
            0 => Number::Finite { negative, significand: fraction, unit: smallest },
            _ if field == (1 << self.exponent_bits()) - 1 => match fraction {
                0 => Number::Infinite { negative },
                _ => Number::Nan,
            },
            _ => Number::Finite {
                negative,
                significand: fraction | 1 << self.fraction_bits(),
                unit: smallest + field as i32 - 1,
            },
        }
    }

    /// The word of zero, or of infinity with a field of ones.
    fn word(self, negative: bool, field: u32, fraction: u32) -> u32 {
        ((u32::from(negative) << self.exponent_bits() | field) << self.fraction_bits() | fraction)
            << self.ignored_bits()
    }

    /// Infinity.
    pub fn infinity(self, negative: bool) -> u32 {
        self.word(negative, (1 << self.exponent_bits()) - 1, 0)
    }

    /// The word of `magnitude · 2^unit`, rounded; `beyond` says that there is something more, less than one unit. What is larger than
    /// the largest number after rounding is infinite.
    pub fn encode(self, negative: bool, magnitude: u128, unit: i32, beyond: bool, rounding: Rounding) -> u32 {
        if magnitude == 0 {
            return self.word(negative, 0, 0);
        }
        let leading = unit + magnitude.ilog2() as i32;
        let last = leading.max(self.min_exponent()) - self.fraction_bits() as i32;
        let shift = last - unit;
        let (mut kept, above_half, half) = match u32::try_from(shift) {
            Ok(0) | Err(_) => (magnitude << shift.unsigned_abs(), false, false),
            Ok(shift @ 1..128) => {
                let rest = magnitude & ((1 << shift) - 1);
                let middle = 1u128 << (shift - 1);
                (magnitude >> shift, rest > middle || rest == middle && beyond, rest == middle && !beyond)
            }
            Ok(_) => (0, false, false),
        };
        let up = match rounding {
            Rounding::TowardZero => false,
            Rounding::TiesToEven => above_half || half && kept & 1 == 1,
            Rounding::TiesAway => above_half || half,
        };
        kept += u128::from(up);
        // A carry into the next power of two goes on into the exponent's field.
        let is_normal = leading >= self.min_exponent();
        let base = if is_normal { (leading - self.min_exponent()) as u128 } else { 0 };
        let bits = (base << self.fraction_bits()) + kept;
        let infinity = self.infinity(false) >> self.ignored_bits();
        let bits = if bits >= u128::from(infinity) { infinity } else { bits as u32 };
        (u32::from(negative) << (self.word_bits() - 1 - self.ignored_bits()) | bits) << self.ignored_bits()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        })
    }
}

impl Number {
    /// Its value, for people: exact but for what an f64 cannot hold, which no number of these formats needs.
    pub fn value(self) -> f64 {
        match self {
            Self::Nan => f64::NAN,
            Self::Infinite { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Self::Finite { negative, significand, unit } => {
                let magnitude = significand as f64 * 2f64.powi(unit);
                if negative { -magnitude } else { magnitude }
            }
        }
    }
}

/// `a·b + c` in fp32 with one rounding to nearest, ties to even.
pub fn fused(a: u32, b: u32, c: u32) -> u32 {
    use Number::{Finite, Infinite, Nan};
    let [a, b, c] = [a, b, c].map(|word| Format::Fp32.decode(word));
    let nan = 0x7FFF_FFFF;
    let is_negative = |number: Number| match number {
        Nan => false,
        Infinite { negative } | Finite { negative, .. } => negative,
    };
    let is_zero = |number: Number| matches!(number, Finite { significand: 0, .. });
    let is_infinite = |number: Number| matches!(number, Infinite { .. });
    let negative = is_negative(a) != is_negative(b);
    if [a, b, c].contains(&Nan) || is_infinite(a) && is_zero(b) || is_zero(a) && is_infinite(b) {
        return nan;
    }
    if is_infinite(a) || is_infinite(b) {
        let cancels = is_infinite(c) && is_negative(c) != negative;
        return if cancels { nan } else { Format::Fp32.infinity(negative) };
    }
    let (Finite { significand: of_a, unit: unit_of_a, .. }, Finite { significand: of_b, unit: unit_of_b, .. }) = (a, b)
    else {
        unreachable!("all other classes have been returned for");
    };
    let Finite { negative: negative_c, significand: of_c, unit: unit_of_c } = c else {
        return Format::Fp32.infinity(is_negative(c));
    };
    let product = (negative, u128::from(of_a * of_b), unit_of_a + unit_of_b);
    let (large, small) = {
        let c = (negative_c, u128::from(of_c), unit_of_c);
        let size = |(_, magnitude, unit): (bool, u128, i32)| match magnitude {
            0 => i32::MIN,
            _ => unit + magnitude.ilog2() as i32,
        };
        if size(product) >= size(c) { (product, c) } else { (c, product) }
    };
    if large.1 == 0 {
        return Format::Fp32.encode(negative && negative_c, 0, 0, false, Rounding::TiesToEven);
    }
    // The larger one with 70 bits more than it has: the smaller one is cut off behind them, which matters for ties alone.
    let unit = large.2 - 70;
    let magnitude = large.1 << 70;
    let (moved, cut) = match small.2 - unit {
        up @ 0.. => (small.1.checked_shl(up as u32).unwrap_or(0), false),
        down => match small.1.checked_shr(down.unsigned_abs()) {
            Some(moved) => (moved, moved << down.unsigned_abs() != small.1),
            None => (0, small.1 != 0),
        },
    };
    let same = large.0 == small.0;
    let (sum, negative, beyond) = match (same, cut) {
        (true, cut) => (magnitude + moved, large.0, cut),
        (false, false) if magnitude >= moved => (magnitude - moved, large.0, false),
        (false, false) => (moved - magnitude, small.0, false),
        // What is cut off is taken away, too: one unit less, and something more.
        (false, true) => (magnitude - moved - 1, large.0, true),
    };
    let negative = if sum == 0 && !beyond { same && negative } else { negative };
    Format::Fp32.encode(negative, sum, unit, beyond, Rounding::TiesToEven)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: [f32; 14] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.0 + f32::EPSILON,
        -3.5,
        1e-45,
        -1e-45,
        1e-40,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];

    #[test]
    fn words_come_back_as_they_were() {
        for format in [Format::Fp32, Format::Tf32, Format::Bf16, Format::Fp16] {
            for word in (0..=u16::MAX).map(|high| u32::from(high) << 16 | 0xA000) {
                let word = if format.word_bits() == 16 { word >> 16 } else { word };
                let Number::Finite { negative, significand, unit } = format.decode(word) else { continue };
                let back = format.encode(negative, significand.into(), unit, false, Rounding::TowardZero);
                assert_eq!(back, word, "{format} {word:#x}");
                assert_eq!(format.decode(back).value(), format.decode(word).value());
            }
        }
    }

    #[test]
    fn rounds_as_the_processor_does() {
        for a in SOME {
            for b in SOME {
                for c in SOME.into_iter().chain([-(a * b), 0.3 * a]) {
                    let (found, expected) = (fused(a.to_bits(), b.to_bits(), c.to_bits()), a.mul_add(b, c));
                    assert!(
                        f32::from_bits(found).is_nan() && expected.is_nan() || found == expected.to_bits(),
                        "{a} {b} {c}"
                    );
                }
            }
            for x in [a, a * 1.1, a * 3e-6, a * 4096.7] {
                let Number::Finite { negative, significand, unit } = Format::Fp32.decode(x.to_bits()) else { continue };
                let to =
                    |format: Format| format.encode(negative, significand.into(), unit, false, Rounding::TiesToEven);
                assert_eq!(to(Format::Bf16), u32::from(half::bf16::from_f32(x).to_bits()), "{x}");
                assert_eq!(to(Format::Fp16), u32::from(half::f16::from_f32(x).to_bits()), "{x}");
            }
        }
    }
}
