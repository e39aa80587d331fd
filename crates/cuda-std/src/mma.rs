//! Products of small matrices by tensor cores (`mma.sync`, sm_80): the 32 lanes of a warp multiply together, and each holds
//! a part of every operand in registers.
//!
//! ```text
//!                      B, k×8: lane (g, q) has column g                with g = lane / 4, q = lane % 4
//!
//! A, 16×k: lane (g, q) has rows g     ┌──────────────┐
//!                         and g + 8   │ C and D, 16×8│  lane (g, q) has (g, 2q), (g, 2q + 1), (g + 8, 2q), (g + 8, 2q + 1)
//!                                     └──────────────┘
//! ```
//!
//! | | k | a | b |
//! |---|---|---|---|
//! | TF32 | 8 | (g, q), (g+8, q), (g, q+4), (g+8, q+4) | (q, g), (q+4, g) |
//! | bf16, fp16 | 16 | (g, 2q and 2q+1), (g+8, …), (g, 2q+8 and 2q+9), (g+8, …) | (2q and 2q+1, g), (2q+8 and 2q+9, g) |
//!
//! The lower half of a register with two numbers has the one with the lower k.
//!
//! # How exactly they compute
//!
//! NVIDIA documents that products are exact, and that sums are kept "with at least single precision". What the CPU model does
//! is what has been found by experiment: all products of an instruction and the element of C are aligned to the one with the
//! largest exponent, and cut off (not rounded) [two bits](EXTRA_BITS) below an fp32 number of that size; their sum, exact
//! from there on, is cut off to fp32. So long sums are biased towards zero by about 2⁻²⁴ of their size for each instruction:
//! a kernel that wants fp32's accuracy adds short sums of tensor cores to others of its own, rounded to nearest. Subnormal
//! numbers are what they are, on both sides.
//!
//! Source: M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer
//! Science 7:e330 (2021). GPUs differ in how many products they align at a time and in the extra bits. The model's choice, all
//! products at once, is no statement about a certain one, and results differ from a GPU's in the last bits.

#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::{self, PAYLOAD, Payload, WarpOperation};

/// A wrapper: documentation, name, a and b, the instruction, and the CPU's operation and model.
macro_rules! mma {
    ($(#[$doc:meta])* $name:ident, $number:ty, $bits:path, $instruction:literal, $operation:ident, $model:path) => {
        $(#[$doc])*
        ///
        #[doc = concat!("`", $instruction, "`, sm_80.")]
        ///
        /// # Safety
        /// All 32 lanes of the warp call this function together. (The executor on the CPU reports it if not.)
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(a: [$number; 4], b: [$number; 2], c: [f32; 4]) -> [f32; 4] {
            #[cfg(target_arch = "nvptx64")]
            {
                let (d0, d1, d2, d3): (f32, f32, f32, f32);
                // SAFETY: arithmetic on registers, executed by the whole warp by the caller's promise. Not `pure`: then LLVM
                // could move it into a branch that only some of the lanes take.
                unsafe {
                    core::arch::asm!(
                        concat!(
                            $instruction,
                            " {{{d0}, {d1}, {d2}, {d3}}}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{c0}, {c1}, {c2}, {c3}}};"
                        ),
                        d0 = out(reg32) d0, d1 = out(reg32) d1, d2 = out(reg32) d2, d3 = out(reg32) d3,
                        a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                        b0 = in(reg32) b[0], b1 = in(reg32) b[1],
                        c0 = in(reg32) c[0], c1 = in(reg32) c[1], c2 = in(reg32) c[2], c3 = in(reg32) c[3],
                        options(nomem, nostack, preserves_flags),
                    );
                }
                [d0, d1, d2, d3]
            }
            #[cfg(not(target_arch = "nvptx64"))]
            {
                let ([a0, a1, a2, a3], [b0, b1], [c0, c1, c2, c3]) = (a.map($bits), b.map($bits), c.map(f32::to_bits));
                let mut payload: Payload = [0; PAYLOAD];
                payload[..10].copy_from_slice(&[a0, a1, a2, a3, b0, b1, c0, c1, c2, c3]);
                let result = executor::collective(WarpOperation::$operation, payload, $model);
                core::array::from_fn(|i| f32::from_bits(result[i]))
            }
        }
    };
}

mma! {
    /// `A·B + C` for a 16×8 matrix A and an 8×8 matrix B of TF32 numbers: fp32 numbers whose low 13 bits are ignored, not
    /// rounded.
    mma_m16n8k8_tf32, f32, f32::to_bits, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", MmaTf32, multiply_tf32
}

mma! {
    /// `A·B + C` for a 16×16 matrix A and a 16×8 matrix B of bf16 numbers, two to a register.
    mma_m16n8k16_bf16, u32, u32::from, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", MmaBf16, multiply_bf16
}

mma! {
    /// `A·B + C` for a 16×16 matrix A and a 16×8 matrix B of fp16 numbers, two to a register.
    mma_m16n8k16_fp16, u32, u32::from, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", MmaFp16, multiply_fp16
}

/// The bits below an fp32 number of the size of the largest summand that the model keeps of each summand.
#[cfg(not(target_arch = "nvptx64"))]
pub const EXTRA_BITS: i32 = 2;

/// The TF32 number that tensor cores see in a register.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn tf32_number(word: u32) -> f64 {
    f64::from(f32::from_bits(word & 0xFFFF_E000))
}

/// A bf16 number.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn bf16_number(bits: u16) -> f64 {
    half::bf16::from_bits(bits).to_f64()
}

/// An fp16 number.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn fp16_number(bits: u16) -> f64 {
    half::f16::from_bits(bits).to_f64()
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_tf32(lanes: &mut [Payload; 32]) {
    let mut operands = Operands::<8>::ZERO;
    for (lane, payload) in lanes.iter().enumerate() {
        let (g, q) = (lane / 4, lane % 4);
        for half in 0..2 {
            operands.a[g][q + 4 * half] = tf32_number(payload[2 * half]);
            operands.a[g + 8][q + 4 * half] = tf32_number(payload[2 * half + 1]);
            operands.b[g][q + 4 * half] = tf32_number(payload[4 + half]);
        }
    }
    operands.multiply(lanes);
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_bf16(lanes: &mut [Payload; 32]) {
    multiply_pairs(lanes, bf16_number);
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_fp16(lanes: &mut [Payload; 32]) {
    multiply_pairs(lanes, fp16_number);
}

/// A product of operands with two numbers in a register.
#[cfg(not(target_arch = "nvptx64"))]
fn multiply_pairs(lanes: &mut [Payload; 32], number: impl Fn(u16) -> f64) {
    let mut operands = Operands::<16>::ZERO;
    for (lane, payload) in lanes.iter().enumerate() {
        let (g, q) = (lane / 4, lane % 4);
        for half in 0..2 {
            for place in 0..2 {
                let k = 2 * q + 8 * half + place;
                let pick = |word: u32| number((word >> (16 * place)) as u16);
                operands.a[g][k] = pick(payload[2 * half]);
                operands.a[g + 8][k] = pick(payload[2 * half + 1]);
                operands.b[g][k] = pick(payload[4 + half]);
            }
        }
    }
    operands.multiply(lanes);
}

/// The operands of one instruction: the rows of A and the columns of B.
#[cfg(not(target_arch = "nvptx64"))]
struct Operands<const K: usize> {
    a: [[f64; K]; 16],
    b: [[f64; K]; 8],
}

#[cfg(not(target_arch = "nvptx64"))]
impl<const K: usize> Operands<K> {
    const ZERO: Self = Self { a: [[0.0; K]; 16], b: [[0.0; K]; 8] };

    /// Replaces what the lanes bring by what they take: their elements of `A·B + C`.
    fn multiply(&self, lanes: &mut [Payload; 32]) {
        for (lane, payload) in lanes.iter_mut().enumerate() {
            let (g, q) = (lane / 4, lane % 4);
            let mut result = [0; PAYLOAD];
            for i in 0..4 {
                let (row, col) = (g + 8 * (i / 2), 2 * q + i % 2);
                let c = f32::from_bits(payload[6 + i]);
                result[i] = accumulate(&self.a[row], &self.b[col], c).to_bits();
            }
            *payload = result;
        }
    }
}

/// `Σ a·b + c`, as the module's documentation says. The products are exact in f64: they have at most 22 significant bits.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn accumulate<const K: usize>(a: &[f64; K], b: &[f64; K], c: f32) -> f32 {
    const MANTISSA_BITS: i32 = 52;
    const EXPONENT_BIAS: i32 = 1023;
    let products: [f64; K] = core::array::from_fn(|l| a[l] * b[l]);
    let c = f64::from(c);
    let magnitude = |x: f64| x.abs().to_bits();
    let largest = products.iter().fold(magnitude(c), |largest, &product| largest.max(magnitude(product)));
    if largest == 0 || largest >= f64::INFINITY.to_bits() {
        // Zeros, or a class that is not finite: of those, the order of the sum does not matter.
        let sum = products.iter().fold(c, |sum, product| sum + product);
        return if sum.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { sum as f32 };
    }
    // Everything is a normal f64: an fp32 number is at least 2⁻¹⁴⁹, a product of two operands at least its square.
    let exponent = (largest >> MANTISSA_BITS) as i32 - EXPONENT_BIAS;
    let unit = exponent - (f32::MANTISSA_DIGITS as i32 - 1) - EXTRA_BITS;
    let power = |exponent: i32| f64::from_bits(((exponent + EXPONENT_BIAS) as u64) << MANTISSA_BITS);
    let scale = power(-unit);
    let cut = |x: f64| (x * scale) as i64;
    let sum = products.iter().fold(cut(c), |sum, &product| sum + cut(product));
    truncated(sum as f64 * power(unit))
}

/// `x` rounded towards zero. From 2¹²⁸ on the result is infinite.
#[cfg(not(target_arch = "nvptx64"))]
fn truncated(x: f64) -> f32 {
    let nearest = x as f32;
    let beyond = f64::from(nearest).abs() > x.abs() && x.abs() < 2f64.powi(f32::MAX_EXP);
    if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}
