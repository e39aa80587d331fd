//! Which `wgmma` products of high and low parts make an fp32-accurate product: three TF32 products, or one TF32 and two bf16 products.
//! [`decompose`](crate::gemm::decompose) says why these are enough.

use cuda_std::prelude::*;
use cuda_std::wgmma::{Bf16, Descriptor, Sums, Tf32};

use super::operand::{Fragments, Pieces};
use crate::gemm::decompose::{decompose_tf32, prepare_tf32};

/// What the second operand of a scheme consists of, and how it is multiplied.
pub(super) trait Scheme {
    /// The second operand of this thread's fragments of A, from them and from what is left of them.
    fn second_of_a(raw: &Fragments<f32>, low: &Fragments<f32>) -> Fragments<u32>;

    /// Where the second operand of B is.
    const SECOND: Pieces;

    /// The second operand of eight numbers of B, from them and from what is left of them.
    fn second_of_b(values: [f32; 8], low: [f32; 8]) -> [f32; 8];

    /// Sets accumulators to the product over k = 32, from the smallest parts to the largest. Asynchronous.
    ///
    /// # Safety
    /// As for [`Sums::set`]; the caller fences before and commits after.
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        first_a: &Fragments<u32>,
        second_a: &Fragments<u32>,
        first_b: Descriptor,
        second_b: Descriptor,
    );
}

/// Three TF32 products.
pub(super) struct ThreeTf32;

/// The same with those of the low parts of B first, as [`ThreeTf32`] has them for the transposes: the same bits as those.
pub(super) struct ThreeTf32OfTransposes;

/// One TF32 product and two bf16 products.
pub(super) struct Mixed;

/// The four registers of step `step`.
#[inline(always)]
fn registers(fragments: &Fragments<u32>, step: usize) -> [u32; 4] {
    [fragments[4 * step], fragments[4 * step + 1], fragments[4 * step + 2], fragments[4 * step + 3]]
}

/// Both operands of this thread's fragments of A.
#[inline(always)]
pub(super) fn parts_of_a<S: Scheme>(raw: &Fragments<f32>) -> [Fragments<u32>; 2] {
    let (mut first, mut low) = ([0; 16], [0.0; 16]);
    for i in 0..16 {
        let (high, rest) = decompose_tf32(raw[i]);
        (first[i], low[i]) = (high.to_bits(), rest);
    }
    let mut second = S::second_of_a(raw, &low);
    hint::pin(&mut first);
    hint::pin(&mut second);
    [first, second]
}

/// The bytes of 8 numbers in TF32, or 16 in bf16.
const STEP: u32 = 32;

impl Scheme for ThreeTf32 {
    const SECOND: Pieces = Pieces::TF32;

    #[inline(always)]
    fn second_of_a(_: &Fragments<f32>, low: &Fragments<f32>) -> Fragments<u32> {
        low.map(|low| prepare_tf32(low).to_bits())
    }

    #[inline(always)]
    fn second_of_b(_: [f32; 8], low: [f32; 8]) -> [f32; 8] {
        core::array::from_fn(|i| prepare_tf32(low[i]))
    }

    #[inline(always)]
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        first_a: &Fragments<u32>,
        second_a: &Fragments<u32>,
        first_b: Descriptor,
        second_b: Descriptor,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            accumulators.set::<Tf32>(registers(second_a, 0), first_b);
            for step in 1..4 {
                accumulators.add::<Tf32>(registers(second_a, step), first_b.offset(step as u32 * STEP));
            }
            for step in 0..4 {
                accumulators.add::<Tf32>(registers(first_a, step), second_b.offset(step as u32 * STEP));
            }
            for step in 0..4 {
                accumulators.add::<Tf32>(registers(first_a, step), first_b.offset(step as u32 * STEP));
            }
        }
    }
}

impl Scheme for ThreeTf32OfTransposes {
    const SECOND: Pieces = ThreeTf32::SECOND;

    #[inline(always)]
    fn second_of_a(raw: &Fragments<f32>, low: &Fragments<f32>) -> Fragments<u32> {
        ThreeTf32::second_of_a(raw, low)
    }

    #[inline(always)]
    fn second_of_b(values: [f32; 8], low: [f32; 8]) -> [f32; 8] {
        ThreeTf32::second_of_b(values, low)
    }

    #[inline(always)]
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        first_a: &Fragments<u32>,
        second_a: &Fragments<u32>,
        first_b: Descriptor,
        second_b: Descriptor,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            accumulators.set::<Tf32>(registers(first_a, 0), second_b);
            for step in 1..4 {
                accumulators.add::<Tf32>(registers(first_a, step), second_b.offset(step as u32 * STEP));
            }
            for (a, b) in [(second_a, first_b), (first_a, first_b)] {
                for step in 0..4 {
                    accumulators.add::<Tf32>(registers(a, step), b.offset(step as u32 * STEP));
                }
            }
        }
    }
}

impl Scheme for Mixed {
    const SECOND: Pieces = Pieces::BF16;

    #[inline(always)]
    fn second_of_a(raw: &Fragments<f32>, low: &Fragments<f32>) -> Fragments<u32> {
        // Two steps of 8 of k make one of 16: registers 0 to 7 have the numbers themselves, 8 to 15 what is left.
        let mut pairs = [0; 16];
        for step in 0..4 {
            for row in 0..2 {
                let at = 4 * step + row;
                pairs[2 * step + row] = convert::bf16x2(raw[at], raw[at + 2]);
                pairs[8 + 2 * step + row] = convert::bf16x2(low[at], low[at + 2]);
            }
        }
        pairs
    }

    #[inline(always)]
    fn second_of_b(values: [f32; 8], low: [f32; 8]) -> [f32; 8] {
        let pair = |x: [f32; 8], i: usize| f32::from_bits(convert::bf16x2(x[i], x[i + 4]));
        core::array::from_fn(|i| if i < 4 { pair(values, i) } else { pair(low, i - 4) })
    }

    #[inline(always)]
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        first_a: &Fragments<u32>,
        second_a: &Fragments<u32>,
        first_b: Descriptor,
        second_b: Descriptor,
    ) {
        // The rows of the second tile of B: 64 bytes of the numbers, then 64 bytes of what is left of them.
        // SAFETY: the caller's promise.
        unsafe {
            accumulators.set::<Bf16>(registers(second_a, 2), second_b);
            accumulators.add::<Bf16>(registers(second_a, 3), second_b.offset(STEP));
            accumulators.add::<Bf16>(registers(second_a, 0), second_b.offset(2 * STEP));
            accumulators.add::<Bf16>(registers(second_a, 1), second_b.offset(3 * STEP));
            for step in 0..4 {
                accumulators.add::<Tf32>(registers(first_a, step), first_b.offset(step as u32 * STEP));
            }
        }
    }
}
