//! All special values against each other, through every kernel: whether results are infinite, NaN or zero, and of which sign, where an
//! fp32 product of the operands is that, as the kernel's precision rounds them.
//!
//! ```text
//!  A: row i has value i as its sixth term, B: column j has value j as its sixth term; all other terms are ¼ and ½
//!  C: value i · value j + the sum of the other terms
//! ```

use std::ops::Range;

use cuda_std::convert::tf32;
use tilewright::Device;
use tilewright::kernels::{KernelInfo, Scheme};

use crate::special::bound;
use crate::{Batch, Layouts, Operand, Planned, Problem, Sizes};

/// Zeros, subnormal numbers, the largest and smallest ones of every format, what rounds to infinity in some, and NaNs.
const VALUES: [u32; 24] = [
    0x0000_0000, // 0
    0x8000_0000, // −0
    0x3F80_0000, // 1
    0xBF80_0000, // −1
    0x0000_0001, // 2⁻¹⁴⁹
    0x8000_0001,
    0x007F_FFFF, // the largest subnormal one
    0x0080_0000, // 2⁻¹²⁶
    0x8080_0000,
    0x3380_0000, // 2⁻²⁴, the smallest one of fp16
    0x477F_E000, // 65504, the largest one of fp16
    0x477F_F000, // rounds to infinity in fp16
    0xC77F_F000,
    0x5F80_0000, // 2⁶⁴: its square is too large
    0xDF80_0000,
    0x7F7F_0000, // the largest one of bf16
    0x7F7F_8000, // rounds to infinity in bf16
    0x7F7F_E000, // the largest one of TF32
    0x7F7F_FFFF, // the largest one, which rounds to infinity in TF32
    0xFF7F_FFFF,
    0x7F80_0000, // infinity
    0xFF80_0000,
    0x7FC0_0000, // NaN
    0x7FFF_FFFF, // NaN with all bits
];

/// The terms of the sums, of as many as a kernel takes, and which of them is special.
const TERMS: usize = 40;
const SPECIAL: usize = 5;

/// The extents of the product.
const SHAPE: Sizes = Sizes { m: VALUES.len(), n: VALUES.len(), k: TERMS };

/// The product of so many terms, with these values in B's columns.
fn problem(layouts: Layouts, terms: usize, of_columns: Range<usize>, (alpha, beta): (f32, f32)) -> Problem {
    let n = of_columns.len();
    let value = |i: usize| f32::from_bits(VALUES[i]);
    let a = Operand::from_fn(SHAPE.m, terms, layouts.a, |row, l| if l == SPECIAL { value(row) } else { 0.25 });
    let b =
        Operand::from_fn(terms, n, layouts.b, |l, col| if l == SPECIAL { value(of_columns.start + col) } else { 0.5 });
    let c = Operand::from_fn(SHAPE.m, n, layouts.c, |row, _| row as f32);
    Problem { alpha, a, b, beta, c }
}

/// Has a kernel compute the product in every layout that it takes, with factors and splits, and compares it.
///
/// # Errors
/// As for [`Planned::check_special_values`]; if there is nothing that the kernel can compute.
pub fn check_all(device: &Device, kernel: &'static KernelInfo) -> Result<(), String> {
    let Sizes { n: most, k: terms, .. } = kernel.within(SHAPE);
    let mut computed = 0;
    for layouts in Layouts::ALL {
        for first in (0..VALUES.len()).step_by(most) {
            let of_columns = first..VALUES.len().min(first + most);
            for (factors, splits) in [((1.0, 0.0), None), ((-1.0, 0.0), Some(1)), ((1.0, -1.0), Some(2))] {
                let batch = Batch::from(problem(layouts, terms, of_columns.clone(), factors));
                computed += usize::from(Planned::check_special_values(device, kernel, splits, &batch)?);
            }
        }
    }
    if computed == 0 { Err(format!("{} has computed nothing", kernel.name)) } else { Ok(()) }
}

/// An operand as a scheme rounds it.
fn rounded(scheme: Scheme, x: f32) -> f32 {
    match scheme {
        Scheme::Tf32 => tf32(x),
        Scheme::Bf16 => half::bf16::from_f32(x).to_f32(),
        Scheme::Fp16 => half::f16::from_f32(x).to_f32(),
        _ => x,
    }
}

/// Compares a result with the product in fp32 of the operands as a scheme rounds them.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn check(scheme: Scheme, problem: &Problem, result: &Operand) -> Result<(), String> {
    let Problem { alpha, a, b, beta, c } = problem;
    let (alpha, beta) = (f64::from(*alpha), f64::from(*beta));
    for row in 0..result.rows() {
        for col in 0..result.cols() {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for l in 0..a.cols() {
                let (x, y) = (f64::from(rounded(scheme, a.at(row, l))), f64::from(rounded(scheme, b.at(l, col))));
                sum += x * y;
                // Schemes that scale lines are measured by the largest of each.
                magnitude += if scheme.scales_lines() { x.abs().max(1.0) * y.abs().max(1.0) } else { (x * y).abs() };
            }
            // First as the fp32 number that the sum is: that may be infinite.
            let sum = f64::from(sum as f32);
            let expected = (alpha * sum + if beta == 0.0 { 0.0 } else { beta * f64::from(c.at(row, col)) }) as f32;
            let found = result.at(row, col);
            let limit = bound(scheme) * (alpha.abs() * magnitude + (beta * f64::from(c.at(row, col))).abs());
            let is_right = if expected.is_nan() {
                found.is_nan()
            } else if expected.is_infinite() || expected == 0.0 {
                found.to_bits() == expected.to_bits()
            } else {
                found.is_finite() && (f64::from(found) - f64::from(expected)).abs() <= limit
            };
            if !is_right {
                return Err(format!(
                    "{:e} · {:e} and {} other terms: element ({row}, {col}) is {found:e} and should be {expected:e}",
                    a.at(row, SPECIAL),
                    b.at(SPECIAL, col),
                    a.cols() - 1
                ));
            }
        }
    }
    Ok(())
}
