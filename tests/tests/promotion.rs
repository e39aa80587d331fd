//! Products of packed operands whose lines have other magnitudes every 64 terms, on the CPU executor with all checks: partial sums are
//! multiplied by other factors each time that they are promoted.

use cuda_std::executor::Checks;
use tests::{Batch, Layouts, Planned, Problem, Sizes};
use tilewright::{Device, kernels};

/// The terms that have a factor together.
const BLOCK: usize = 64;

/// Checks `A·Bᵀ` with elements of A times powers of two that depend on the row and on the block of terms, and of B on the column and the
/// block, and with zeros where there is none.
#[track_caller]
fn check(power_of_a: impl Fn(usize, usize) -> Option<i32>, power_of_b: impl Fn(usize, usize) -> Option<i32>) {
    let (device, shape) = (Device::cpu(Checks::Full), Sizes { m: 130, n: 70, k: 6 * BLOCK + 10 });
    let mut problem = Problem::new(shape, Layouts::ALL[1], 7);
    for term in 0..shape.k {
        let scaled = |x: f32, power: Option<i32>| {
            power.map_or(0.0, |power| (0.5 + 0.5 * x.abs()) * x.signum() * 2f32.powi(power))
        };
        for row in 0..shape.m {
            let x = problem.a.at(row, term);
            problem.a.set(row, term, scaled(x, power_of_a(row, term / BLOCK)));
        }
        for col in 0..shape.n {
            let x = problem.b.at(term, col);
            problem.b.set(term, col, scaled(x, power_of_b(col, term / BLOCK)));
        }
    }
    let batch = Batch::from(problem);
    for kernel in &kernels::WGMMA_FP32_3XFP16 {
        let mut planned = Planned::new(&device, kernel, Some(1), &batch).unwrap().unwrap();
        planned.check().unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
    }
}

/// A power of two for each row and block, of `powers`, by chance.
fn any_of(powers: &'static [i32]) -> impl Fn(usize, usize) -> Option<i32> {
    move |line, block| {
        Some(powers[(line * 7919 + block * 104_729 + 12_345).wrapping_mul(0x9E37_79B9) / 65_536 % powers.len()])
    }
}

#[test]
fn all_factors_are_the_same() {
    check(|_, _| Some(3), |_, _| Some(-5));
}

#[test]
fn rows_grow_and_shrink() {
    check(|_, block| Some(block as i32), |_, _| Some(0));
    check(|_, block| Some(-(block as i32)), |_, _| Some(0));
    check(|row, block| Some(if row == 77 { 3 - block as i32 } else { 0 }), |_, block| Some(block as i32 % 2));
    check(any_of(&[-3, 0, 1, 9]), any_of(&[-7, 0, 2]));
}

#[test]
fn rows_have_blocks_of_zeros() {
    check(|row, block| (block >= row % 8).then_some(2), |col, block| (block != col % 7).then_some(0));
    check(|row, block| (block < row % 8).then_some(row as i32 % 5), |_, _| Some(0));
    check(|row, _| (row % 3 != 0).then_some(-4), |_, block| (block != 2).then_some(block as i32));
}

#[test]
fn factors_are_too_far_apart_for_one_unit() {
    check(any_of(&[-60, -20, 0, 40]), any_of(&[-20, 0, 20]));
    check(|_, block| Some([70, 60, -50, 50, -60, 0, 3][block]), |_, block| Some([-70, -60, 50, -50, 59, 0, 3][block]));
    // What is small in the row is all that there is, where what is large meets zeros.
    check(|_, block| Some(if block == 1 { 77 } else { -50 }), |_, block| (block != 1).then_some(-58));
    check(|_, block| Some(if block == 5 { 77 } else { -50 }), |_, block| (block != 5).then_some(-58));
}

/// Rows and columns with elements that are too small beside others are left to the fallback, for which operands are copied here, as far as it
/// needs them.
#[test]
fn the_fallback_finds_what_it_needs_of_operands_that_are_copied() {
    let (device, shape) = (Device::cpu(Checks::Full), Sizes { m: 300, n: 290, k: 70 });
    for (in_a, in_b) in [(None, None), (Some(260), None), (None, Some(3)), (Some(5), Some(280))] {
        let mut problem = Problem::new(shape, Layouts::ALL[1].padded(), 8);
        let mut plant = |is_a: bool, at: Option<usize>| {
            if let Some(line) = at {
                if is_a { problem.a.set(line, 11, 1e-20) } else { problem.b.set(11, line, 1e-20) }
            }
        };
        plant(true, in_a);
        plant(false, in_b);
        let batch = Batch::from(problem);
        for kernel in &kernels::WGMMA_FP32_3XFP16 {
            let mut planned = Planned::new(&device, kernel, Some(1), &batch).unwrap().unwrap();
            let steps =
                planned.plan().explanation().steps.iter().filter(|step| step.contains("matrix_copy_flagged_fp32"));
            assert_eq!(steps.count(), 2, "{}", planned.plan().explanation());
            planned.check().unwrap_or_else(|error| panic!("{in_a:?}, {in_b:?}: {error}"));
        }
    }
}
