//! How tensor cores multiply K-major operands of fp32 or of bf16, by `mma.sync`: what a lane makes of the words that `ldmatrix` gives it,
//! and the products that follow.
//!
//! | scheme | element | a step of 16 words | products of tensor cores for 16 words | error of a sum |
//! |---|---|---|---|---|
//! | [`ThreeTf32`] | fp32 | k = 16 | 6 TF32 of k = 8 | that of fp32 sums ([`decompose`](crate::decompose)) |
//! | [`Bf16Products`] | bf16, kept as words of two | k = 32 | 2 bf16 of k = 16 | operands exact, sums cut off at fp32 |
//!
//! **Promotion.** Tensor cores cut off the sums that they keep ([`cuda_std::mma`]), so long ones are biased toward zero by about 2⁻²⁴ of their
//! size for each product. [`ThreeTf32`] has them sum up k = 16 from zero, and adds that to the accumulators by ordinary additions, rounded
//! to nearest. To bf16 results, of 8 bits, the bias makes no difference.
//!
//! **What [`ThreeTf32`] cannot decompose.** An operand that is not finite, or of magnitude 2¹¹⁵ or more, makes every accumulator infinite or
//! NaN that it goes into: a kernel looks at them at the end, and computes again what is not finite. An operand below 2⁻¹⁰² is off by up to
//! 2⁻¹³⁶, because its low part is cut off there: [`ThreeTf32::bound`] has that in it.

use cuda_std::Bf16;
use cuda_std::mma::{mma_m16n8k8_tf32, mma_m16n8k16_bf16};
use cuda_std::prelude::*;

use crate::decompose::decompose_tf32;

/// The tiles of A, and of B, that are multiplied at a time: four products that do not wait for each other.
pub const TILES: usize = 2;

/// Sums by tile of A and by tile of B.
pub type Sums = [[[f32; 4]; TILES]; TILES];

/// A way to multiply.
pub trait Scheme {
    /// What the operands are made of.
    type Element: Element;
    /// Four words of a line in a lane, prepared.
    type Parts: Copy;
    /// The elements in a word of 32 bits.
    const PER_WORD: u32;
    /// Whether an accumulator that is not finite may be so for the scheme's sake: then it has to be computed again, in plain fp32.
    const RECOMPUTES: bool;

    /// Prepares the words `q`, `q + 4`, `q + 8` and `q + 12` of a line.
    fn prepare(words: [u32; 4]) -> Self::Parts;

    /// Adds the products of two tiles of 16 rows of A with two of 8 columns of B over 16 words. `a[i]` are rows `g` and `g + 8` of tile `i`,
    /// and `b[j]` is column `g` of tile `j`.
    ///
    /// # Safety
    /// The whole warp calls this function together.
    unsafe fn add_products(sums: &mut Sums, a: [[Self::Parts; 2]; TILES], b: [Self::Parts; TILES]);

    /// An element as a number.
    fn to_f32(element: Self::Element) -> f32;

    /// A number as an element, rounded to nearest.
    fn from_f32(number: f32) -> Self::Element;
}

/// fp32 by three TF32 products.
pub struct ThreeTf32;

/// An operand of [`ThreeTf32`]: fp32 numbers as TF32 numbers, and what that leaves of them.
#[derive(Clone, Copy)]
pub struct Decomposed<const N: usize> {
    /// Rounded to the nearest TF32 number.
    pub high: [f32; N],
    /// What is left, exactly; the hardware cuts it off to TF32.
    pub low: [f32; N],
}

impl<const N: usize> Decomposed<N> {
    /// The parts of these numbers.
    #[inline(always)]
    #[must_use]
    pub fn of(numbers: [f32; N]) -> Self {
        let (mut high, mut low) = ([0.0; N], [0.0; N]);
        for i in 0..N {
            (high[i], low[i]) = decompose_tf32(numbers[i]);
        }
        Self { high, low }
    }
}

impl ThreeTf32 {
    /// `sum` and the products of fragments of k = 8, the small ones first.
    ///
    /// # Safety
    /// The whole warp calls this function together.
    #[inline(always)]
    #[track_caller]
    #[must_use]
    pub unsafe fn product(a: Decomposed<4>, b: Decomposed<2>, mut sum: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            sum = mma_m16n8k8_tf32(a.low, b.high, sum);
            sum = mma_m16n8k8_tf32(a.high, b.low, sum);
            mma_m16n8k8_tf32(a.high, b.high, sum)
        }
    }

    /// How far from its value a sum of `terms` products may be that was made by products over k = 16 and fp32 additions of those, for
    /// operands that are finite and below 2¹¹⁵. `magnitude` is Σ|a||b| and `operands` is Σ(|a| + |b|).
    ///
    /// With u = 2⁻²⁴: of a product, low·low is left out (2⁻²²), and each of two low parts is cut off (2⁻²²): 12u. Sums of tensor cores of
    /// k = 16: six, cut off at 2u each. Then an addition for every 16 terms, and as many more as the kernel makes, `additions`. Where
    /// operands are small, cut-off low parts are off by 2⁻¹³⁶ at most, and sums by 2⁻¹⁴⁹ for each operation.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub fn bound(terms: usize, additions: usize, magnitude: f64, operands: f64) -> f64 {
        const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;
        // 2⁻¹³⁶ and 2⁻¹⁴⁹.
        let (cut, smallest) = (f64::from(f32::from_bits(1 << 13)), f64::from(f32::from_bits(1)));
        let sums = terms.div_ceil(16) + additions;
        let roundings = (12 + 12 + sums) as f64 * ROUNDING;
        let gamma = if roundings < 0.5 { roundings / (1.0 - roundings) } else { 2.0 * roundings };
        gamma * magnitude + cut * operands + smallest * (terms + sums) as f64
    }
}

impl Scheme for ThreeTf32 {
    type Element = f32;
    type Parts = Decomposed<4>;
    const PER_WORD: u32 = 1;
    const RECOMPUTES: bool = true;

    #[inline(always)]
    fn prepare(words: [u32; 4]) -> Decomposed<4> {
        Decomposed::of(words.map(f32::from_bits))
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(sums: &mut Sums, a: [[Decomposed<4>; 2]; TILES], b: [Decomposed<4>; TILES]) {
        let mut products = [[[0.0; 4]; TILES]; TILES];
        // The first product has words q and q + 4, the second one q + 8 and q + 12. Small terms come first, and each product of four does
        // not wait for the others.
        for [of_a, of_b] in [[false, true], [true, false], [true, true]] {
            for half in 0..2 {
                let (first, second) = (2 * half, 2 * half + 1);
                for i in 0..TILES {
                    for j in 0..TILES {
                        let [upper, lower] = a[i].map(|row| if of_a { row.high } else { row.low });
                        let column = if of_b { b[j].high } else { b[j].low };
                        let fragment = [upper[first], lower[first], upper[second], lower[second]];
                        // SAFETY: the caller's promise.
                        products[i][j] =
                            unsafe { mma_m16n8k8_tf32(fragment, [column[first], column[second]], products[i][j]) };
                    }
                }
            }
        }
        for i in 0..TILES {
            for j in 0..TILES {
                for element in 0..4 {
                    sums[i][j][element] += products[i][j][element];
                }
            }
        }
    }

    #[inline(always)]
    fn to_f32(element: f32) -> f32 {
        element
    }

    #[inline(always)]
    fn from_f32(number: f32) -> f32 {
        number
    }
}

/// bf16 by bf16 products with fp32 sums, which tensor cores keep.
pub struct Bf16Products;

impl Scheme for Bf16Products {
    type Element = Bf16;
    type Parts = [u32; 4];
    const PER_WORD: u32 = 2;
    const RECOMPUTES: bool = false;

    #[inline(always)]
    fn prepare(words: [u32; 4]) -> [u32; 4] {
        words
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(sums: &mut Sums, a: [[[u32; 4]; 2]; TILES], b: [[u32; 4]; TILES]) {
        for half in 0..2 {
            let (first, second) = (2 * half, 2 * half + 1);
            for i in 0..TILES {
                for j in 0..TILES {
                    let [upper, lower] = a[i];
                    let fragment = [upper[first], lower[first], upper[second], lower[second]];
                    // SAFETY: the caller's promise.
                    sums[i][j] = unsafe { mma_m16n8k16_bf16(fragment, [b[j][first], b[j][second]], sums[i][j]) };
                }
            }
        }
    }

    #[inline(always)]
    fn to_f32(element: Bf16) -> f32 {
        element.to_f32()
    }

    #[inline(always)]
    fn from_f32(number: f32) -> Bf16 {
        Bf16::from_f32(number)
    }
}
