//! Elements of all sizes: what conversions, loads and stores have to make of them.

use rand::RngExt;
use rand::rngs::StdRng;

use super::kernels::elements;
use super::machine::Launch;
use super::number::Format;
use super::words::{Content, Instruction, NEAREST, converted, kernel, nearly_tie, to_round};
use crate::device_features::Launcher;

/// All of them.
pub(super) fn instructions() -> Vec<Instruction> {
    let thread = Instruction::of_thread;
    vec![
        thread(
            kernel!(elements::elements_round),
            (1, 4),
            Content::Bits,
            // Every other number is near a tie of a number of 8 bits, or too large for it.
            |rng, case| {
                vec![if case.is_multiple_of(2) { nearly_tie(rng, (-20, 18)) } else { to_round(rng, case / 2)[0] }]
            },
            |x| {
                let number = f32::from_bits(x[0]);
                let of_16 = |format| converted(Format::Fp32, x[0], format, NEAREST);
                vec![of_16(Format::Fp16), of_16(Format::Bf16), E4M3.nearest(number), E5M2.nearest(number)]
            },
        ),
        thread(
            kernel!(elements::elements_widen),
            (1, 4),
            Content::Bits,
            |_, case| vec![case as u32 % (1 << 16)],
            |x| {
                // A NaN of bf16 keeps its bits.
                let half = converted(Format::Fp16, x[0], Format::Fp32, NEAREST);
                let [e4m3, e5m2] = [E4M3, E5M2].map(|format| format.bits_in_fp32(x[0] & 0xFF));
                vec![half, x[0] << 16, e4m3, e5m2]
            },
        ),
        thread(
            kernel!(elements::elements_bytes),
            (elements::WORDS, elements::BYTES_OUTPUTS),
            Content::Bits,
            random_line,
            |x| {
                let bytes = bytes(x);
                let halves: Vec<[u8; 2]> = bytes.chunks(2).map(|half| [half[0], half[1]]).collect();
                let sums = [
                    bytes.iter().map(|&x| i32::from(x)).sum::<i32>(),
                    bytes.iter().map(|&x| i32::from(x as i8)).sum(),
                    halves.iter().map(|&x| i32::from(u16::from_le_bytes(x))).sum(),
                    halves.iter().map(|&x| i32::from(i16::from_le_bytes(x))).sum(),
                ];
                words(&reversed(&bytes, 16, 1)).into_iter().chain(sums.map(|sum| sum as u32)).collect()
            },
        ),
        thread(
            kernel!(elements::elements_vectors),
            (elements::WORDS, elements::VECTORS_OUTPUTS),
            Content::Bits,
            random_line,
            |x| {
                let sizes = [(16, 1), (16, 2), (16, 8), (8, 2), (4, 1), (2, 1)];
                sizes.into_iter().flat_map(|(vector, element)| words(&reversed(&bytes(x), vector, element))).collect()
            },
        ),
        thread(
            kernel!(elements::elements_structs),
            (elements::WORDS, elements::STRUCTS_OUTPUTS),
            Content::Bits,
            random_line,
            |x| {
                let parts = x.iter().map(|x| x >> 8 & 0xFF | (x & 0xFF) << 8 | !x & 0xFFFF_0000);
                [x[1], x[0], x[3], x[2]].into_iter().chain(parts).chain([x[2], x[3], x[0], x[1]]).collect()
            },
        ),
    ]
}

fn random_line(rng: &mut StdRng, _: usize) -> Vec<u32> {
    (0..elements::WORDS).map(|_| rng.random()).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte))).collect()
}

/// The elements of each vector the other way round. Sizes are in bytes.
fn reversed(bytes: &[u8], vector: usize, element: usize) -> Vec<u8> {
    bytes.chunks(vector).flat_map(|vector| vector.chunks(element).rev().flatten().copied()).collect()
}

/// A format of 8 bits, by its numbers.
#[derive(Clone, Copy)]
struct EightBits {
    mantissa_bits: i32,
    bias: i32,
    largest: u32,
}

const E4M3: EightBits = EightBits { mantissa_bits: 3, bias: 7, largest: 0x7E };
const E5M2: EightBits = EightBits { mantissa_bits: 2, bias: 15, largest: 0x7B };

impl EightBits {
    /// The number of a code without a sign.
    fn value(self, code: u32) -> f64 {
        let (exponent, mantissa) = (code as i32 >> self.mantissa_bits, code as i32 & ((1 << self.mantissa_bits) - 1));
        let leading = if exponent == 0 { 0.0 } else { 1.0 };
        (leading + f64::from(mantissa) * 2f64.powi(-self.mantissa_bits)) * 2f64.powi(exponent.max(1) - self.bias)
    }

    /// The code of the number that is nearest, an even one of two; the largest number for whatever is larger.
    fn nearest(self, x: f32) -> u32 {
        if x.is_nan() {
            return 0x7F;
        }
        let magnitude = f64::from(x).abs().min(self.value(self.largest));
        let distance = |code: u32| (self.value(code) - magnitude).abs();
        let nearest = (0..=self.largest)
            .min_by(|&one, &another| distance(one).total_cmp(&distance(another)).then((one & 1).cmp(&(another & 1))));
        nearest.unwrap_or(0) | if x.is_sign_negative() { 0x80 } else { 0 }
    }

    /// The bits of a code's number in fp32.
    fn bits_in_fp32(self, bits: u32) -> u32 {
        let (sign, code) = (bits >> 7 << 31, bits & 0x7F);
        let infinity = 0x1F << self.mantissa_bits;
        if code <= self.largest {
            (self.value(code) as f32).to_bits() | sign
        } else if code == infinity {
            f32::INFINITY.to_bits() | sign
        } else {
            0x7FFF_FFFF
        }
    }
}
