//! Sums that were made to answer one question each about how tensor cores compute.
//!
//! In the spirit of M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science
//! 7:e330 (2021).

use super::number::{Format, Rounding};
use super::numerics::{Dot, WORDS, set_term, terms};

/// A sum, and what it is asked.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What is asked, and which results would mean what.
    pub question: String,
    /// The sum.
    pub dot: Dot,
}

/// `significand · 2^exponent`: exact in the formats that it is used for.
#[derive(Clone, Copy)]
struct Value(i32, i32);

/// A product of two such.
type Product = (Value, Value);

/// The position of a product, and the bits of its operands.
type Words = (usize, u32, u32);

/// Powers of two.
const fn power(exponent: i32) -> Value {
    Value(1, exponent)
}

impl Value {
    fn bits(self, format: Format) -> u32 {
        let Self(significand, exponent) = self;
        format.encode(significand < 0, significand.unsigned_abs().into(), exponent, false, Rounding::TowardZero)
    }

    const fn negated(self) -> Self {
        Self(-self.0, self.1)
    }
}

/// The probes of a format.
struct Probes {
    format: Format,
    probes: Vec<Probe>,
}

/// All probes for operands of a format.
pub fn probes(format: Format) -> Vec<Probe> {
    let mut probes = Probes { format, probes: Vec::new() };
    probes.kept_bits();
    probes.roundings();
    probes.groups();
    probes.exponents();
    probes.smallest();
    probes.largest();
    probes.classes();
    probes.probes
}

impl Probes {
    /// Adds a probe with products at these positions, and C as bits.
    fn ask_bits(&mut self, question: String, products: &[Words], c: u32) {
        let mut dot = Dot { a: [0; WORDS], b: [0; WORDS], c };
        for &(position, a, b) in products {
            set_term(self.format, &mut dot.a, position, a);
            set_term(self.format, &mut dot.b, position, b);
        }
        self.probes.push(Probe { question, dot });
    }

    fn ask(&mut self, question: String, products: &[(usize, Product)], c: Value) {
        let format = self.format;
        let products: Vec<_> =
            products.iter().map(|&(position, (a, b))| (position, a.bits(format), b.bits(format))).collect();
        self.ask_bits(question, &products, c.bits(Format::Fp32));
    }

    /// How far below the largest summand others are kept.
    fn kept_bits(&mut self) {
        const NOTHING: Value = Value(0, 0);
        // 2^10, and 2^(10 − bits) as a product of operands that fp16 has.
        let large = (power(5), power(5));
        let minus_large = (power(5), Value(-1, 5));
        for bits in 20..=28 {
            let small = (power(-bits / 2), power(10 - bits + bits / 2));
            let minus_small = (small.0, small.1.negated());
            let name = format!("2^10 − 2^10 ± 2^{}", 10 - bits);
            self.ask(
                format!("kept bits of products: {name}; zero if {bits} bits are not kept"),
                &[(0, large), (1, minus_large), (2, small)],
                NOTHING,
            );
            self.ask(
                format!("kept bits of negative products: {name}; the next larger in magnitude if cut downwards"),
                &[(0, large), (1, minus_large), (2, minus_small)],
                NOTHING,
            );
            self.ask(
                format!(
                    "kept bits beside C: {name}, the first of which is C; as the first if C is aligned with products"
                ),
                &[(1, minus_large), (2, small)],
                power(10),
            );
            self.ask(
                format!("kept bits of C, 2^{}, beside products 2^10 − 2^10", 10 - bits),
                &[(0, large), (1, minus_large)],
                power(10 - bits),
            );
            self.ask(
                format!("kept bits of negative C, −2^{}, beside products 2^10 − 2^10", 10 - bits),
                &[(0, large), (1, minus_large)],
                Value(-1, 10 - bits),
            );
        }
        // Many small ones together are more than the last bit of the result, if they are kept.
        for bits in 24..=27 {
            let small = (power(-bits / 2), power(10 - bits + bits / 2));
            let positions: Vec<_> = (0..terms(self.format)).map(|position| (position, small)).collect();
            let count = positions.len();
            self.ask(format!("C = 2^10, and {count} products of 2^{}", 10 - bits), &positions, power(10));
        }
    }

    /// How a sum becomes an fp32 number.
    fn roundings(&mut self) {
        for sign in [1, -1] {
            for quarters in 0..=8 {
                // C = ±(1 + 2^-23), and quarters of 2^-23.
                let small = (Value(sign * quarters, -12), power(-13));
                self.ask(
                    format!("rounding: ±(1 + 2^-23 + {quarters}/4·2^-23), sign {sign}"),
                    &[(0, small)],
                    Value(sign * ((1 << 23) + 1), -23),
                );
                self.ask(
                    format!("rounding: ±(1 + 2^-23 − {quarters}/4·2^-23), sign {sign}"),
                    &[(0, (small.0.negated(), small.1))],
                    Value(sign * ((1 << 23) + 1), -23),
                );
            }
        }
        // A carry makes the sum one bit longer: which are the bits that are lost?
        for last in 0..4 {
            let one = (power(0), power(0));
            let odd = (Value(last, -12), power(-12));
            self.ask(
                format!("rounding after a carry: C = 2 − 2^-23, 1, and {last}·2^-24"),
                &[(0, one), (1, odd)],
                Value((1 << 24) - 1, -23),
            );
        }
    }

    /// Which products are added up together.
    fn groups(&mut self) {
        const NOTHING: Value = Value(0, 0);
        let (large, minus_large) = ((power(7), power(7)), (power(7), Value(-1, 7)));
        let small = (power(-9), power(-9)); // 32 bits below
        let count = terms(self.format);
        for other in 1..count {
            for place in [1, 2, 3, count / 4, count / 2 - 1, count / 2, count / 2 + 1, count - 1] {
                if place != other {
                    self.ask(
                        format!("groups: 2^14 at 0, −2^14 at {other}, 2^-18 at {place}, which is left if it is added after them"),
                        &[(0, large), (other, minus_large), (place, small)],
                        NOTHING,
                    );
                }
            }
        }
        for place in 0..count {
            self.ask(
                format!("groups: C = 2^14, −2^14 at {place}, 2^-18 at all others, which are left if added after"),
                &(0..count).map(|at| (at, if at == place { minus_large } else { small })).collect::<Vec<_>>(),
                power(14),
            );
        }
    }

    /// What the alignment takes for the exponent of a product, of subnormal numbers, of zeros.
    fn exponents(&mut self) {
        const NOTHING: Value = Value(0, 0);
        let format = self.format;
        let (least, most) = (format.min_exponent(), format.max_exponent());
        for bits in 22..=28 {
            // 2.25 is 1.5·1.5.
            let (large, minus_large) = ((Value(3, 4), Value(3, 4)), (Value(3, 4), Value(-3, 4)));
            let small = (power(-bits / 2), power(10 - bits + bits / 2));
            self.ask(
                format!(
                    "exponent of products: 2.25·2^10 − 2.25·2^10 + 2^{}; {bits} bits below the operands' exponents, one more \
                     below the product's",
                    10 - bits
                ),
                &[(0, large), (1, minus_large), (2, small)],
                NOTHING,
            );
        }
        let lowest = power(least - format.fraction_bits() as i32);
        for bits in 22..=(28 + format.fraction_bits() as i32) {
            // The exponents of the operands add up to one if the subnormal one has that of the smallest normal number.
            let (large, minus_large) = ((lowest, power(most)), (lowest, power(most).negated()));
            let exponent = 1 - bits;
            let small = (power(exponent / 2), power(exponent - exponent / 2));
            self.ask(
                format!(
                    "exponent of subnormal operands: x − x + 2^{exponent}, {bits} bits below least·most = 2, x smaller"
                ),
                &[(0, large), (1, minus_large), (2, small)],
                NOTHING,
            );
            self.ask(
                format!("exponent of zeros: 0·2^{most} + 2^{exponent}, {bits} bits below least·most = 2"),
                &[(0, (NOTHING, power(most))), (1, small)],
                NOTHING,
            );
        }
        self.ask(
            "subnormal operands: the smallest times the largest power".into(),
            &[(0, (lowest, power(most)))],
            NOTHING,
        );
    }

    /// Sums near the smallest fp32 numbers.
    fn smallest(&mut self) {
        const NOTHING: Value = Value(0, 0);
        let half = |exponent: i32| (power(exponent / 2), power(exponent - exponent / 2));
        for sign in [1, -1] {
            self.ask(format!("subnormal results: C = {sign}·2^-149"), &[], Value(sign, -149));
            self.ask(
                format!("subnormal results: C = {sign}·(2^-126 − 2^-149)"),
                &[],
                Value(sign * ((1 << 23) - 1), -149),
            );
        }
        if self.format == Format::Fp16 {
            let lowest = (power(-24), power(-24));
            self.ask("the smallest product, 2^-48".into(), &[(0, lowest)], NOTHING);
            self.ask("the smallest product, 2^-48, and C = 2^-149".into(), &[(0, lowest)], power(-149));
            return;
        }
        for below in 0..=40 {
            let (one, small) = (half(-149), half(-150 - below));
            let minus_small = (small.0, small.1.negated());
            self.ask(
                format!(
                    "exponent of zeros: 2^-149 − 2^{}; zero unless that is cut off, and all others are zeros",
                    -150 - below
                ),
                &[(0, one), (1, minus_small)],
                NOTHING,
            );
            self.ask(
                format!("below the smallest number: four times 2^{}", -150 - below),
                &[(0, small), (1, small), (2, small), (3, small)],
                NOTHING,
            );
            self.ask(format!("below the smallest number: −2^{}", -150 - below), &[(0, minus_small)], Value(0, 0));
        }
    }

    /// Sums near the largest fp32 numbers.
    fn largest(&mut self) {
        let largest = Value((1 << 24) - 1, 104);
        let most = power(self.format.max_exponent());
        for sign in [1, -1] {
            let c = Value(sign * largest.0, largest.1);
            self.ask(format!("the largest number as C, sign {sign}"), &[], c);
            self.ask(
                format!("the largest number as C, and most·most, sign {sign}"),
                &[(0, (Value(sign, most.1), most))],
                c,
            );
            self.ask(format!("the largest number as C, and 1, sign {sign}"), &[(0, (Value(sign, 0), power(0)))], c);
        }
        if self.format == Format::Fp16 {
            return;
        }
        for quarters in 0..=8 {
            for sign in [1, -1] {
                self.ask(
                    format!("overflow: the largest number as C, and {quarters}/4 of its last unit, sign {sign}"),
                    &[(0, (Value(sign * quarters, 51), power(51)))],
                    Value(sign * largest.0, largest.1),
                );
            }
        }
        let product = |exponent: i32| (power(exponent / 2), power(exponent - exponent / 2));
        let minus = |(a, b): Product| (a, b.negated());
        for exponent in [127, 128, 129, 200, 254] {
            self.ask(format!("overflow: 2^{exponent}"), &[(0, product(exponent))], Value(0, 0));
            self.ask(format!("overflow: −2^{exponent}"), &[(0, minus(product(exponent)))], Value(0, 0));
            self.ask(
                format!("overflow in between: 2^{exponent} − 2^{exponent}"),
                &[(0, product(exponent)), (1, minus(product(exponent)))],
                Value(0, 0),
            );
            self.ask(
                format!("overflow in between: 2^{exponent} at the first place, −2^{exponent} at the last"),
                &[(0, product(exponent)), (terms(self.format) - 1, minus(product(exponent)))],
                Value(0, 0),
            );
            self.ask(
                format!("overflow: 2^{exponent} twice, and C = −2^127"),
                &[(0, product(exponent)), (1, product(exponent))],
                Value(-1, 127),
            );
        }
        let all: Vec<_> = (0..terms(self.format)).map(|place| (place, product(126))).collect();
        self.ask("overflow: 2^126 at all places".into(), &all, Value(0, 0));
    }

    /// Zeros, infinities and NaNs.
    fn classes(&mut self) {
        let format = self.format;
        let infinity = format.infinity(false);
        let negative = format.encode(true, 0, 0, false, Rounding::TowardZero);
        let one = power(0).bits(format);
        let quiet = infinity | (infinity & infinity.wrapping_neg()) >> 1;
        let payload = 1 << (format.word_bits() - 12);
        let in_fp32 = |value: Value| value.bits(Format::Fp32);
        let (c_infinity, c_negative) = (0x7F80_0000, 0x8000_0000);
        let cases: [(&str, &[Words], u32); 24] = [
            ("NaN: ∞·0", &[(0, infinity, 0)], 0),
            ("NaN: 0·−∞", &[(0, 0, infinity | negative)], 0),
            ("NaN: ∞ − ∞", &[(0, infinity, one), (1, infinity | negative, one)], 0),
            ("NaN: ∞ − ∞, the second C", &[(0, infinity, one)], c_infinity | c_negative),
            ("NaN: a quiet one in A", &[(0, quiet, one)], 0),
            ("NaN: one with a payload in A", &[(0, quiet | payload, one)], 0),
            ("NaN: a negative one in B", &[(0, one, quiet | payload | negative)], 0),
            ("NaN: a signalling one in A", &[(0, infinity | payload, one)], 0),
            ("NaN: one in A times zero", &[(0, quiet, 0)], 0),
            ("NaN: 0x7FC00000 in C", &[], 0x7FC0_0000),
            ("NaN: 0xFFC12345 in C", &[], 0xFFC1_2345),
            ("NaN: 0x7F812345, a signalling one, in C", &[], 0x7F81_2345),
            ("infinity: ∞·1", &[(0, infinity, one)], 0),
            ("infinity: ∞·−1", &[(0, infinity, one | negative)], in_fp32(power(0))),
            ("infinity: C", &[(0, one, one)], c_infinity),
            ("infinity: −C", &[(0, one, one)], c_infinity | c_negative),
            ("zeros: all", &[], 0),
            ("zeros: C = −0, others +0", &[], c_negative),
            ("zeros: 0·−1 at one place, others +0, C = −0", &[(0, 0, one | negative)], c_negative),
            ("zeros: 1 − 1", &[(0, one, one), (1, one, one | negative)], 0),
            ("zeros: −1 + 1, C = −0", &[(0, one | negative, one), (1, one, one)], c_negative),
            ("zeros: 1, and C = −1", &[(0, one, one)], in_fp32(Value(-1, 0))),
            ("zeros: −1, and C = 1", &[(0, one, one | negative)], in_fp32(power(0))),
            ("one", &[(0, one, one)], 0),
        ];
        for (question, products, c) in cases {
            self.ask_bits(question.into(), products, c);
        }
        let all: Vec<_> = (0..terms(format)).map(|place| (place, negative, one)).collect();
        self.ask_bits("zeros: −0·1 at all places, C = −0".into(), &all, c_negative);
        self.ask_bits("zeros: −0·1 at all places, C = +0".into(), &all, 0);
        if format == Format::Tf32 {
            self.ask_bits(
                "ignored bits: 1 + 2^-11, and 1 + 2^-10 − 2^-23".into(),
                &[(0, one | 0x1000, one | 0x1FFF)],
                0,
            );
            self.ask_bits("ignored bits: a NaN by those alone is infinite".into(), &[(0, infinity | 1, one)], 0);
            self.ask_bits(
                "ignored bits: a subnormal number by those alone is zero".into(),
                &[(0, 0x1FFF, infinity - 0x80_0000)],
                0,
            );
        }
    }
}
