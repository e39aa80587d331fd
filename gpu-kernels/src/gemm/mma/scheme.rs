//! The precisions of the `mma.sync` kernels: how a lane prepares fp32 operands in registers, by rounding or decomposing them, and
//! which tensor-core products make one product of them.

use cuda_std::mma::{mma_m8n8k4_fp64, mma_m16n8k8_tf32, mma_m16n8k16_bf16, mma_m16n8k16_fp16};
use cuda_std::prelude::*;

use crate::gemm::decompose::decompose_tf32;
use crate::gemm::scan::Scan;

/// Four numbers of a line in a lane, k = `q`, `q + 4`, `q + 8` and `q + 12`, as fragments of two TF32 products over 8 of k: the
/// first has the first two in the positions `q` and `q + 4`, the second the others.
pub(super) type Tf32 = [f32; 4];

/// The same four as fragments of one product over 16 of k in 16-bit numbers: the positions are `2q`, `2q + 1`, `2q + 8` and
/// `2q + 9`. So a k has another position in a product of this kind than in one of TF32; the sum does not mind, as long as A
/// and B agree.
pub(super) type Pairs = [u32; 2];

/// What products are added up in.
pub(in crate::gemm) trait Sum: Copy {
    const ZERO: Self;
    /// Whether an fp32 number holds less than it.
    const HAS_LOW_PART: bool;
    /// The vectors of C that a thread has under way in the epilogue, 1 or 4: as many as accumulators of this kind leave registers for.
    const LOADS_OF_C: usize;

    /// Rounded to nearest.
    fn to_f32(self) -> f32;

    /// What that leaves, rounded to nearest; not of what is not finite.
    fn low_part(self) -> f32;
}

impl Sum for f32 {
    const ZERO: Self = 0.0;
    const HAS_LOW_PART: bool = false;
    const LOADS_OF_C: usize = 4;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn low_part(self) -> f32 {
        0.0
    }
}

impl Sum for f64 {
    const ZERO: Self = 0.0;
    const HAS_LOW_PART: bool = true;
    const LOADS_OF_C: usize = 1;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn low_part(self) -> f32 {
        let high = self as f32;
        // Where it is too large for an fp32 number, or is none, the high part says all.
        if high.is_finite() { (self - f64::from(high)) as f32 } else { 0.0 }
    }
}

/// A precision: how operands are prepared and multiplied.
pub(super) trait Scheme {
    /// Four numbers of a line, prepared.
    type Parts: Copy;
    /// What the accumulators are.
    type Sum: Sum;

    /// Whether the result is to be as that of fp32, so that a tile with operands that this scheme cannot decompose is computed
    /// again.
    const EXACT: bool;

    /// Prepares four numbers, and scans them if it decomposes them.
    fn prepare(values: [f32; 4], scan: &mut Scan) -> Self::Parts;

    /// Adds the products of [`TILES`] tiles of 16 rows of A with as many of 8 columns of B, over 16 of k. `a[i]` are rows `g` and
    /// `g + 8` of tile `i`, and `b[j]` is column `g` of tile `j`.
    ///
    /// # Safety
    /// The whole warp calls this function together.
    unsafe fn add_products(
        accumulators: &mut Products<Self::Sum>,
        a: [[Self::Parts; 2]; TILES],
        b: [Self::Parts; TILES],
    );
}

/// The tiles of A, and of B, that are multiplied at a time: four products that do not wait for each other.
pub(super) const TILES: usize = 2;

/// Products by tile of A and by tile of B.
pub(super) type Products<S> = [[[S; 4]; TILES]; TILES];

const NOTHING: Products<f32> = [[[0.0; 4]; TILES]; TILES];

/// Adds what tensor cores have summed up from zero: each sum is rounded to nearest.
#[inline(always)]
fn promote(accumulators: &mut Products<f32>, sums: Products<f32>) {
    for i in 0..TILES {
        for j in 0..TILES {
            for element in 0..4 {
                accumulators[i][j][element] += sums[i][j][element];
            }
        }
    }
}

/// Adds the TF32 products over 16 of k to `sums`.
///
/// # Safety
/// The whole warp calls this function together.
#[inline(always)]
#[track_caller]
unsafe fn add_tf32(sums: &mut Products<f32>, a: [[Tf32; 2]; TILES], b: [Tf32; TILES]) {
    for half in 0..2 {
        for i in 0..TILES {
            for j in 0..TILES {
                let [upper, lower] = a[i];
                let (first, second) = (2 * half, 2 * half + 1);
                let a = [upper[first], lower[first], upper[second], lower[second]];
                // SAFETY: the caller's promise.
                sums[i][j] = unsafe { mma_m16n8k8_tf32(a, [b[j][first], b[j][second]], sums[i][j]) };
            }
        }
    }
}

/// Adds the bf16 products over 16 of k to `sums`.
///
/// # Safety
/// The whole warp calls this function together.
#[inline(always)]
#[track_caller]
unsafe fn add_bf16(sums: &mut Products<f32>, a: [[Pairs; 2]; TILES], b: [Pairs; TILES]) {
    for i in 0..TILES {
        for j in 0..TILES {
            let [upper, lower] = a[i];
            // SAFETY: the caller's promise.
            sums[i][j] = unsafe { mma_m16n8k16_bf16([upper[0], lower[0], upper[1], lower[1]], b[j], sums[i][j]) };
        }
    }
}

#[inline(always)]
fn to_bf16(values: [f32; 4]) -> Pairs {
    [convert::bf16x2(values[0], values[1]), convert::bf16x2(values[2], values[3])]
}

/// Three TF32 products ([`crate::gemm::decompose`]).
pub(super) struct ThreeTf32;

/// The parts of an operand of [`ThreeTf32`].
#[derive(Clone, Copy)]
pub(super) struct Tf32Parts {
    high: Tf32,
    /// What is left, cut off to TF32 by the hardware.
    low: Tf32,
}

impl Scheme for ThreeTf32 {
    type Parts = Tf32Parts;
    type Sum = f32;
    const EXACT: bool = true;

    #[inline(always)]
    fn prepare(values: [f32; 4], scan: &mut Scan) -> Tf32Parts {
        values.iter().for_each(|&value| scan.see(value));
        let parts = values.map(decompose_tf32);
        Tf32Parts { high: parts.map(|(high, _)| high), low: parts.map(|(_, low)| low) }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(accumulators: &mut Products<f32>, a: [[Tf32Parts; 2]; TILES], b: [Tf32Parts; TILES]) {
        let mut sums = NOTHING;
        // SAFETY: the caller's promise.
        unsafe {
            add_tf32(&mut sums, a.map(|rows| rows.map(|row| row.low)), b.map(|column| column.high));
            add_tf32(&mut sums, a.map(|rows| rows.map(|row| row.high)), b.map(|column| column.low));
            add_tf32(&mut sums, a.map(|rows| rows.map(|row| row.high)), b.map(|column| column.high));
        }
        promote(accumulators, sums);
    }
}

/// One TF32 product.
pub(super) struct OneTf32;

impl Scheme for OneTf32 {
    type Parts = Tf32;
    type Sum = f32;
    const EXACT: bool = false;

    #[inline(always)]
    fn prepare(values: [f32; 4], _: &mut Scan) -> Tf32 {
        values.map(convert::tf32)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(accumulators: &mut Products<f32>, a: [[Tf32; 2]; TILES], b: [Tf32; TILES]) {
        let mut sums = NOTHING;
        // SAFETY: the caller's promise.
        unsafe { add_tf32(&mut sums, a, b) };
        promote(accumulators, sums);
    }
}

/// One bf16 product.
pub(super) struct OneBf16;

impl Scheme for OneBf16 {
    type Parts = Pairs;
    type Sum = f32;
    const EXACT: bool = false;

    #[inline(always)]
    fn prepare(values: [f32; 4], _: &mut Scan) -> Pairs {
        to_bf16(values)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(accumulators: &mut Products<f32>, a: [[Pairs; 2]; TILES], b: [Pairs; TILES]) {
        let mut sums = NOTHING;
        // SAFETY: the caller's promise.
        unsafe { add_bf16(&mut sums, a, b) };
        promote(accumulators, sums);
    }
}

/// One fp16 product.
pub(super) struct OneFp16;

impl Scheme for OneFp16 {
    type Parts = Pairs;
    type Sum = f32;
    const EXACT: bool = false;

    #[inline(always)]
    fn prepare(values: [f32; 4], _: &mut Scan) -> Pairs {
        [convert::f16x2(values[0], values[1]), convert::f16x2(values[2], values[3])]
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(accumulators: &mut Products<f32>, a: [[Pairs; 2]; TILES], b: [Pairs; TILES]) {
        let mut sums = NOTHING;
        for i in 0..TILES {
            for j in 0..TILES {
                let [upper, lower] = a[i];
                // SAFETY: the caller's promise.
                sums[i][j] = unsafe { mma_m16n8k16_fp16([upper[0], lower[0], upper[1], lower[1]], b[j], sums[i][j]) };
            }
        }
        promote(accumulators, sums);
    }
}

/// fp64 products of fp32 numbers, which are exact, and fp64 sums.
pub(super) struct Fp64;

impl Scheme for Fp64 {
    type Parts = [f64; 4];
    type Sum = f64;
    const EXACT: bool = false;

    #[inline(always)]
    fn prepare(values: [f32; 4], _: &mut Scan) -> [f64; 4] {
        values.map(f64::from)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_products(accumulators: &mut Products<f64>, a: [[[f64; 4]; 2]; TILES], b: [[f64; 4]; TILES]) {
        for terms in 0..4 {
            for i in 0..TILES {
                for j in 0..TILES {
                    for half in 0..2 {
                        let [first, second] = [2 * half, 2 * half + 1];
                        let sums = [accumulators[i][j][first], accumulators[i][j][second]];
                        // SAFETY: the caller's promise.
                        let sums = unsafe { mma_m8n8k4_fp64(a[i][half][terms], b[j][terms], sums) };
                        [accumulators[i][j][first], accumulators[i][j][second]] = sums;
                    }
                }
            }
        }
    }
}
