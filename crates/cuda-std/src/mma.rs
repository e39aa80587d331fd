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
//! | fp64 | 4 | (g, q), of 8 rows | (q, g) |
//!
//! The lower half of a register with two numbers has the one with the lower k.
//!
//! # How exactly they compute
//!
//! NVIDIA documents that products are exact, and that sums are kept "with at least single precision". What the CPU model does is what
//! an H200 was found to do, bit for bit: see [`tensor_cores`](crate::tensor_cores) (which there is on the CPU only). Sums are cut off,
//! not rounded. So long ones are biased toward zero by about 2⁻²⁴ of their size for each instruction: a kernel that wants fp32's
//! accuracy adds short sums of tensor cores to others of its own, rounded to nearest.
//!
//! fp64 is another matter: each term is a fused multiplication and addition, rounded to nearest, in the order of k. Source: P. Xie et
//! al., "MMA-Sim: bit-accurate reference model of tensor cores and matrix cores", arXiv:2511.10909 (2025).

#[cfg(not(target_arch = "nvptx64"))]
use crate::executor::{self, PAYLOAD, Payload, WarpOperation};
#[cfg(not(target_arch = "nvptx64"))]
use crate::tensor_cores::{Terms, WORDS, sum};
#[cfg(not(target_arch = "nvptx64"))]
use crate::wgmma::Kind;

/// A wrapper: documentation, name, a and b, the instruction, and the CPU's operation and model.
macro_rules! mma {
    ($(#[$doc:meta])* $name:ident, $number:ty, $bits:path, $instruction:literal, $operation:ident, $model:path,
     $operand:literal, $example:literal) => {
        $(#[$doc])*
        ///
        /// ```
        /// # use tilewright_cuda_std::{convert, examples::run, mma, warp};
        /// // A is all ones, column g of B is g, C is all halves. Lane 0 has columns 0 and 1 of rows 0 and 8, lane 3 columns 6 and 7.
        /// let d = run(32, || {
        ///     let g = (warp::lane_id() / 4) as f32;
        #[doc = concat!("    let ", $operand, ";")]
        ///     // SAFETY: all lanes come here together.
        #[doc = concat!("    unsafe { mma::", stringify!($name), "([one; 4], [g; 2], [0.5; 4]) }")]
        /// });
        #[doc = concat!("assert_eq!((d[0], d[3]), ", $example, ");")]
        /// ```
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
                let location = core::panic::Location::caller();
                c.iter().for_each(|c| executor::trace_out(c, "an addend of tensor cores", location));
                let result = executor::collective(WarpOperation::$operation, payload, $model);
                let result = core::array::from_fn(|i| f32::from_bits(result[i]));
                result.iter().for_each(|sum| executor::trace_in(sum, location));
                result
            }
        }
    };
}

mma! {
    /// `A·B + C` for a 16×8 matrix A and an 8×8 matrix B of TF32 numbers: fp32 numbers whose low 13 bits are ignored, not
    /// rounded.
    mma_m16n8k8_tf32, f32, f32::to_bits, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", MmaTf32, multiply_tf32,
    "one = 1.0", "([0.5, 8.5, 0.5, 8.5], [48.5, 56.5, 48.5, 56.5])"
}

mma! {
    /// `A·B + C` for a 16×16 matrix A and a 16×8 matrix B of bf16 numbers, two to a register.
    mma_m16n8k16_bf16, u32, u32::from, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", MmaBf16, multiply_bf16,
    "(one, g) = (convert::bf16x2(1.0, 1.0), convert::bf16x2(g, g))",
    "([0.5, 16.5, 0.5, 16.5], [96.5, 112.5, 96.5, 112.5])"
}

mma! {
    /// `A·B + C` for a 16×16 matrix A and a 16×8 matrix B of fp16 numbers, two to a register.
    mma_m16n8k16_fp16, u32, u32::from, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", MmaFp16, multiply_fp16,
    "(one, g) = (convert::f16x2(1.0, 1.0), convert::f16x2(g, g))",
    "([0.5, 16.5, 0.5, 16.5], [96.5, 112.5, 96.5, 112.5])"
}

/// `A·B + C` for an 8×4 matrix A, a 4×8 matrix B and an 8×8 matrix C of fp64 numbers. Lane (g, q) has element (g, q) of A, (q, g) of B,
/// and (g, 2q) and (g, 2q + 1) of C and of the result.
///
/// GPUs without fast fp64 (all from sm_80 on but 8.0, 9.0 and 10.0) have it, too, at a fraction of the speed.
///
/// `mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64`, sm_80.
///
/// ```
/// # use tilewright_cuda_std::{examples::run, prelude::*, mma};
/// // A is all ones, column g of B is g: lane 0 has columns 0 and 1 of row 0.
/// let d = run(32, || {
///     let g = f64::from(warp::lane_id() / 4);
///     // SAFETY: all lanes come here together.
///     unsafe { mma::mma_m8n8k4_fp64(1.0, g, [0.5; 2]) }
/// });
/// assert_eq!((d[0], d[3]), ([0.5, 4.5], [24.5, 28.5]));
/// ```
///
/// # Safety
/// All 32 lanes of the warp call this function together. (The executor on the CPU reports it if not.)
#[inline(always)]
#[track_caller]
pub unsafe fn mma_m8n8k4_fp64(a: f64, b: f64, c: [f64; 2]) -> [f64; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (d0, d1): (f64, f64);
        // SAFETY: arithmetic on registers, executed by the whole warp by the caller's promise. Not `pure`, as above.
        unsafe {
            core::arch::asm!(
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{d0}, {d1}}}, {{{a}}}, {{{b}}}, {{{c0}, {c1}}};",
                d0 = out(reg64) d0, d1 = out(reg64) d1, a = in(reg64) a, b = in(reg64) b, c0 = in(reg64) c[0], c1 = in(reg64) c[1],
                options(nomem, nostack, preserves_flags),
            );
        }
        [d0, d1]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let mut payload: Payload = [0; PAYLOAD];
        for (i, number) in [a, b, c[0], c[1]].into_iter().enumerate() {
            payload[2 * i..2 * i + 2].copy_from_slice(&words_of(number));
        }
        let location = core::panic::Location::caller();
        [a, b, c[0], c[1]].iter().for_each(|it| executor::trace_out(it, "an operand of tensor cores", location));
        let result = executor::collective(WarpOperation::MmaFp64, payload, multiply_fp64);
        let result = [number_of(&result, 0), number_of(&result, 1)];
        result.iter().for_each(|sum| executor::trace_in(sum, location));
        result
    }
}

/// The words of an fp64 number, the lower one first.
#[cfg(not(target_arch = "nvptx64"))]
fn words_of(number: f64) -> [u32; 2] {
    [number.to_bits() as u32, (number.to_bits() >> 32) as u32]
}

/// The fp64 number of this index in a payload.
#[cfg(not(target_arch = "nvptx64"))]
fn number_of(payload: &Payload, index: usize) -> f64 {
    f64::from_bits(u64::from(payload[2 * index + 1]) << 32 | u64::from(payload[2 * index]))
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_fp64(lanes: &mut [Payload; 32]) {
    let brought = *lanes;
    for (lane, payload) in lanes.iter_mut().enumerate() {
        let (g, q) = (lane / 4, lane % 4);
        for half in 0..2 {
            let col = 2 * q + half;
            let a: [f64; 4] = core::array::from_fn(|k| number_of(&brought[4 * g + k], 0));
            let b: [f64; 4] = core::array::from_fn(|k| number_of(&brought[4 * col + k], 1));
            let c = number_of(&brought[lane], 2 + half);
            let sum = (0..4).fold(c, |sum, k| a[k].mul_add(b[k], sum));
            executor::trace_sum(&a, &b, c, sum, f64::MIN_POSITIVE);
            payload[2 * half..2 * half + 2].copy_from_slice(&words_of(sum));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_tf32(lanes: &mut [Payload; 32]) {
    multiply::<8>(lanes, Kind::Tf32);
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_bf16(lanes: &mut [Payload; 32]) {
    multiply::<16>(lanes, Kind::Bf16);
}

#[cfg(not(target_arch = "nvptx64"))]
fn multiply_fp16(lanes: &mut [Payload; 32]) {
    multiply::<16>(lanes, Kind::Fp16);
}

/// Replaces what the lanes bring by what they take: their elements of `A·B + C`.
#[cfg(not(target_arch = "nvptx64"))]
fn multiply<const K: usize>(lanes: &mut [Payload; 32], kind: Kind) {
    let (mut rows, mut columns) = ([[0; WORDS]; 16], [[0; WORDS]; 8]);
    for (lane, payload) in lanes.iter().enumerate() {
        let (g, q) = (lane / 4, lane % 4);
        for half in 0..2 {
            let word = q + 4 * half;
            rows[g][word] = payload[2 * half];
            rows[g + 8][word] = payload[2 * half + 1];
            columns[g][word] = payload[4 + half];
        }
    }
    let terms = |words: &[u32; WORDS]| Terms::<K>::new(kind, words);
    let (rows, columns) = (rows.each_ref().map(terms), columns.each_ref().map(terms));
    for (lane, payload) in lanes.iter_mut().enumerate() {
        let (g, q) = (lane / 4, lane % 4);
        let mut result = [0; PAYLOAD];
        for i in 0..4 {
            let (row, column) = (&rows[g + 8 * (i / 2)], &columns[2 * q + i % 2]);
            result[i] = sum(row, column, f32::from_bits(payload[6 + i])).to_bits();
        }
        *payload = result;
    }
}
