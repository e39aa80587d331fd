//! The three TF32 products of high and low parts that make an fp32-accurate product, for `wgmma`.
//! [`decompose`](crate::gemm::decompose) says why these are enough.

use cuda_std::prelude::*;
use cuda_std::wgmma::{Descriptor, Sums, Tf32};

use super::operand::Fragments;
use crate::gemm::decompose::{decompose_tf32, prepare_tf32};

/// The order in which the products are added up.
pub(super) trait Scheme {
    /// Sets accumulators to the product over k = 32, from the smallest parts to the largest. Asynchronous.
    ///
    /// # Safety
    /// As for [`Sums::set`]; the caller fences before and commits after.
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        parts_of_a: &[Fragments<u32>; 2],
        high_b: Descriptor,
        low_b: Descriptor,
    );
}

/// The low parts of A first.
pub(super) struct ThreeTf32;

/// The low parts of B first, as [`ThreeTf32`] has them for the transposes: the same bits as those.
pub(super) struct ThreeTf32OfTransposes;

/// The high and the low parts of this thread's fragments of A.
#[inline(always)]
pub(super) fn parts_of_a(raw: &Fragments<f32>) -> [Fragments<u32>; 2] {
    let (mut high, mut low) = ([0; 16], [0; 16]);
    for i in 0..16 {
        let (of_high, rest) = decompose_tf32(raw[i]);
        (high[i], low[i]) = (of_high.to_bits(), prepare_tf32(rest).to_bits());
    }
    hint::pin(&mut high);
    hint::pin(&mut low);
    [high, low]
}

/// The high and the low parts of numbers of B.
#[inline(always)]
pub(super) fn parts_of_b<const COUNT: usize>(values: [f32; COUNT]) -> [[f32; COUNT]; 2] {
    let (mut high, mut low) = (values, values);
    for i in 0..COUNT {
        (high[i], low[i]) = decompose_tf32(values[i]);
    }
    [high, low.map(prepare_tf32)]
}

/// The bytes of 8 numbers.
const STEP: u32 = 32;

/// The registers of step `step` of 8 k.
#[inline(always)]
fn registers(fragments: &Fragments<u32>, step: usize) -> [u32; 4] {
    [fragments[4 * step], fragments[4 * step + 1], fragments[4 * step + 2], fragments[4 * step + 3]]
}

/// Adds the products of the steps from `first` on.
///
/// # Safety
/// As for [`Scheme::multiply`].
#[inline(always)]
unsafe fn add_products(accumulators: &mut impl Sums<Number = f32>, first: usize, a: &Fragments<u32>, b: Descriptor) {
    for step in first..4 {
        // SAFETY: the caller's promise.
        unsafe { accumulators.add::<Tf32>(registers(a, step), b.offset(step as u32 * STEP)) };
    }
}

impl Scheme for ThreeTf32 {
    #[inline(always)]
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        [high_a, low_a]: &[Fragments<u32>; 2],
        high_b: Descriptor,
        low_b: Descriptor,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            accumulators.set::<Tf32>(registers(low_a, 0), high_b);
            add_products(accumulators, 1, low_a, high_b);
            add_products(accumulators, 0, high_a, low_b);
            add_products(accumulators, 0, high_a, high_b);
        }
    }
}

impl Scheme for ThreeTf32OfTransposes {
    #[inline(always)]
    unsafe fn multiply(
        accumulators: &mut impl Sums<Number = f32>,
        [high_a, low_a]: &[Fragments<u32>; 2],
        high_b: Descriptor,
        low_b: Descriptor,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            accumulators.set::<Tf32>(registers(high_a, 0), low_b);
            add_products(accumulators, 1, high_a, low_b);
            add_products(accumulators, 0, low_a, high_b);
            add_products(accumulators, 0, high_a, high_b);
        }
    }
}
