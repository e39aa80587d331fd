//! The kernels of `gemm::mma` on the CPU executor, with all its checks and its models of the instructions they use.

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut};
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};
use tests::{Layout, Layouts, MmaPrecision, Operand, Problem, Sizes, launch_mma, run_mma};

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

/// Numbers that no precision rounds, and whose products and sums are exact in fp32: quarters from −2 to 2.
fn quarters(row: usize, col: usize, seed: usize) -> f32 {
    let mixed = (row * 31 + col * 17 + seed * 7 + row * col) % 17;
    (mixed as f32 - 8.0) / 4.0
}

/// A product that every precision computes exactly.
fn exact_problem(shape: Sizes, layouts: Layouts, seed: usize) -> Problem {
    let Sizes { m, n, k } = shape;
    Problem {
        alpha: 1.0,
        a: Operand::from_fn(m, k, layouts.a, |row, col| quarters(row, col, seed)),
        b: Operand::from_fn(k, n, layouts.b, |row, col| quarters(row, col, seed + 1)),
        beta: 0.0,
        c: Operand::from_fn(m, n, layouts.c, |row, col| quarters(row, col, seed + 2)),
    }
}

/// Runs a product that every precision computes exactly, and looks at everything.
#[track_caller]
fn check_exact(precision: MmaPrecision, layouts: Layouts, problem: &Problem) {
    let mut computed = problem.clone();
    let what = format!("{precision:?}, {layouts:?}, {problem:?}");
    run_mma(&EXECUTOR, precision, layouts, &mut computed).unwrap_or_else(|error| panic!("{what}: {error}"));
    let Problem { alpha, a, b, beta, c } = problem;
    let mut should = a.to_f64().dot(&b.to_f64()) * f64::from(*alpha);
    if *beta != 0.0 {
        should = should + c.to_f64() * f64::from(*beta);
    }
    for ((row, col), &should) in should.indexed_iter() {
        assert_eq!(f64::from(computed.c.at(row, col)), should, "{what}: element ({row}, {col})");
    }
    for (before, after) in [(a, &computed.a), (b, &computed.b)] {
        assert_eq!(before.bits(), after.bits(), "{what}: an operand was changed");
    }
    for operand in [&computed.a, &computed.b, &computed.c] {
        operand.check_surroundings().unwrap_or_else(|reason| panic!("{what}: {reason}"));
    }
}

/// All layouts, each with leading dimensions as small as they can be, with odd ones, and with multiples of four, which are
/// copied 16 bytes at a time.
fn all_layouts() -> impl Iterator<Item = Layouts> {
    Layouts::ALL.into_iter().flat_map(|layouts| [layouts, layouts.padded(), multiples_of_four(layouts)])
}

/// Leading dimensions that are multiples of four for extents of 1 modulo 4.
fn multiples_of_four(Layouts { a, b, c }: Layouts) -> Layouts {
    Layouts { a: a.padded(3), b: b.padded(7), c: c.padded(3) }
}

#[test]
fn products_of_any_extents_in_any_layout() {
    let mut seed = 0;
    for (m, n) in [(0, 1), (1, 0), (1, 1), (5, 3), (33, 9), (13, 65), (129, 5), (1, 257), (128, 8)] {
        for k in [0, 1, 5, 16, 17, 33, 65, 96] {
            for layouts in all_layouts() {
                // Each precision meets every extent and every layout, though not every combination of them.
                let precision = MmaPrecision::ALL[seed % MmaPrecision::ALL.len()];
                check_exact(precision, layouts, &exact_problem(Sizes { m, n, k }, layouts, seed));
                seed += 1;
            }
            seed += 1;
        }
    }
}

#[test]
fn whole_tiles_and_parts_of_tiles() {
    for (seed, precision) in MmaPrecision::ALL.into_iter().enumerate() {
        for layouts in Layouts::ALL {
            check_exact(precision, layouts, &exact_problem(Sizes { m: 128, n: 256, k: 20 }, layouts, seed));
            check_exact(precision, layouts, &exact_problem(Sizes { m: 131, n: 259, k: 7 }, layouts.padded(), seed));
        }
    }
}

#[test]
fn any_layout_of_c_and_any_factors() {
    let shape = Sizes { m: 37, n: 70, k: 18 };
    let layouts_of_c = [Layout::ROWS, Layout::ROWS.padded(2), Layout::COLUMNS, Layout::COLUMNS.padded(3).spread(2)];
    for (seed, c) in layouts_of_c.into_iter().enumerate() {
        let layouts = Layouts { c, ..Layouts::ALL[seed] };
        for (alpha, beta) in [(1.0, 1.0), (0.0, 2.0), (-0.5, 0.0), (2.0, -4.0), (0.0, 0.0)] {
            let mut problem = exact_problem(shape, layouts, seed).scaled(alpha, beta);
            if alpha == 0.0 {
                problem.a.fill(0.0);
            }
            check_exact(MmaPrecision::ALL[seed], layouts, &problem);
        }
    }
}

#[test]
fn operands_are_not_read_if_alpha_is_zero_nor_the_result_if_beta_is_zero() {
    for precision in MmaPrecision::ALL {
        let layouts = Layouts::ALL[2];
        let mut problem = exact_problem(Sizes { m: 20, n: 12, k: 40 }, layouts, 0);
        problem.c.fill(f32::NAN);
        check_exact(precision, layouts, &problem);
        problem.a.fill(f32::NAN);
        problem.b.fill(f32::INFINITY);
        let mut computed = problem.scaled(0.0, 0.0);
        run_mma(&EXECUTOR, precision, layouts, &mut computed).unwrap();
        assert!(computed.c.bits().iter().all(|&bits| bits == 0), "{precision:?}");
    }
}

#[test]
fn errors_are_those_of_the_precision() {
    for precision in MmaPrecision::ALL {
        for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
            for (m, n, k) in [(40, 40, 1), (33, 50, 100), (7, 9, 1500)] {
                let problem = Problem::new(Sizes { m, n, k }, layouts, seed as u64);
                let mut computed = problem.clone();
                run_mma(&EXECUTOR, precision, layouts, &mut computed).unwrap();
                let (a, b) = (problem.a.to_f64(), problem.b.to_f64());
                let (should, size) = (a.dot(&b), a.mapv(f64::abs).dot(&b.mapv(f64::abs)));
                // The sum of 16 terms is cut off a few times, and the sums are rounded: far less than one rounding each.
                let sum = f64::from(f32::EPSILON) * (2.0 + (k as f64 / 16.0).sqrt());
                let (mut largest, mut error, mut norm) = (0f64, 0.0, 0.0);
                for ((row, col), &should) in should.indexed_iter() {
                    let difference = f64::from(computed.c.at(row, col)) - should;
                    largest = largest.max(difference.abs() / size[(row, col)]);
                    error += difference * difference;
                    norm += size[(row, col)] * size[(row, col)] / k as f64;
                }
                let (bound, relative) = (precision.element_bound() + sum, (error / norm).sqrt());
                let what = format!("{precision:?}, {layouts:?}, {m} x {n} x {k}");
                assert!(largest <= bound, "{what}: {largest:.3e} beyond {bound:.3e}");
                // Errors have either sign: of their norm, the bound is far from reached, but the precision shows.
                assert!(relative <= bound / 2.0, "{what}: {relative:.3e} of the norm, bound {bound:.3e}");
                let reduced = !MmaPrecision::FP32.contains(&precision);
                assert!(!reduced || relative >= bound / 100.0, "{what}: {relative:.3e} is too good to be true");
            }
        }
    }
}

/// A sum of 1000 positive terms near 1 without promotion is off by several units of 2⁻²⁴ for each 16 terms, all to one side.
#[test]
fn long_sums_of_positive_terms_are_not_biased() {
    let shape = Sizes { m: 16, n: 8, k: 4000 };
    for precision in MmaPrecision::FP32 {
        let mut problem = Problem::new(shape, Layouts::ALL[1], 3);
        for l in 0..shape.k {
            (0..shape.m).for_each(|row| problem.a.set(row, l, problem.a.at(row, l).abs()));
            (0..shape.n).for_each(|col| problem.b.set(l, col, problem.b.at(l, col).abs()));
        }
        let mut computed = problem.clone();
        run_mma(&EXECUTOR, precision, Layouts::ALL[1], &mut computed).unwrap();
        let should = problem.a.to_f64().dot(&problem.b.to_f64());
        let mean = should
            .indexed_iter()
            .map(|((row, col), should)| (f64::from(computed.c.at(row, col)) - should) / should)
            .sum::<f64>()
            / should.len() as f64;
        assert!(mean.abs() < 3e-7, "{precision:?}: the mean error is {mean:.2e}");
    }
}

/// The sum as an fp32 loop gives it.
fn sum_in_order(problem: &Problem, row: usize, col: usize) -> f32 {
    (0..problem.a.cols()).fold(0.0, |sum, l| problem.a.at(row, l).mul_add(problem.b.at(l, col), sum))
}

/// Values that cannot be split, those that need the same kind of notice together: one kind in a tile must not hide that
/// another is not noticed.
const SPECIAL: [&[f32]; 4] = [
    &[f32::INFINITY, f32::NEG_INFINITY],
    &[f32::NAN, f32::from_bits(0x7FFF_FFFF), f32::from_bits(0xFF80_0001)],
    &[f32::MAX, -f32::MAX, 1e38, -3e34],
    &[1e-40, -1e-45, f32::MIN_POSITIVE, 1.000_000_1e-33],
];

#[test]
fn special_values_give_what_an_fp32_sum_gives() {
    let shape = Sizes { m: 24, n: 20, k: 40 };
    for (precision, kind) in MmaPrecision::FP32.into_iter().flat_map(|precision| SPECIAL.map(|kind| (precision, kind)))
    {
        for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
            for in_a in [true, false] {
                let mut problem = Problem::new(shape, layouts, seed as u64);
                for (i, &special) in kind.iter().enumerate() {
                    let l = (7 * i + seed) % shape.k;
                    if in_a {
                        problem.a.set(i, l, special)
                    } else {
                        problem.b.set(l, i, special)
                    }
                    // A row of nothing but small numbers: their sum has to be right to the last bits.
                    if special.abs() < 1e-30 {
                        for l in 0..shape.k {
                            let small = special * (l as f32 + 1.0);
                            if in_a { problem.a.set(i, l, small) } else { problem.b.set(l, i, small) }
                        }
                    }
                }
                // The first value meets a zero.
                if in_a {
                    problem.b.set(seed, 3, 0.0)
                } else {
                    problem.a.set(3, seed, 0.0)
                }
                let mut computed = problem.clone();
                run_mma(&EXECUTOR, precision, layouts, &mut computed).unwrap();
                let size = problem.a.to_f64().mapv(f64::abs).dot(&problem.b.to_f64().mapv(f64::abs));
                for (row, col) in (0..shape.m).flat_map(|row| (0..shape.n).map(move |col| (row, col))) {
                    let (found, should) = (computed.c.at(row, col), sum_in_order(&problem, row, col));
                    let what =
                        format!("{precision:?}, {layouts:?}, {kind:?}, ({row}, {col}): {found:e} for {should:e}");
                    if should.is_finite() {
                        // What cannot be decomposed is computed in fp32: elements of these rows and columns, and no others.
                        let is_decomposed = |x: f32| x == 0.0 || (2f32.powi(-100)..2f32.powi(115)).contains(&x.abs());
                        let is_in_parts = (0..shape.k)
                            .all(|l| is_decomposed(problem.a.at(row, l)) && is_decomposed(problem.b.at(l, col)));
                        let relative = if is_in_parts { precision.element_bound().max(1e-6) } else { 1e-6 };
                        let bound = relative * size[(row, col)] + f64::from(f32::from_bits(shape.k as u32));
                        assert!((f64::from(found) - f64::from(should)).abs() <= bound, "{what}");
                    } else {
                        assert!(found == should || found.is_nan() && should.is_nan(), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn infinities_and_nans_reach_the_result_of_every_precision() {
    for precision in MmaPrecision::ALL {
        for layouts in Layouts::ALL {
            let mut problem = exact_problem(Sizes { m: 9, n: 9, k: 30 }, layouts, 5);
            problem.a.set(2, 17, f32::INFINITY);
            problem.a.set(4, 3, f32::from_bits(0x7FFF_FFFF));
            problem.b.set(17, 6, 0.0);
            problem.b.set(17, 7, -1.0);
            problem.b.set(17, 8, 1.0);
            let mut computed = problem;
            run_mma(&EXECUTOR, precision, layouts, &mut computed).unwrap();
            let c = |row, col| computed.c.at(row, col);
            assert!(c(2, 6).is_nan() && c(2, 7) == f32::NEG_INFINITY && c(2, 8) == f32::INFINITY, "{precision:?}");
            assert!((0..9).all(|col| c(4, col).is_nan()), "{precision:?}");
            assert!((0..9).all(|col| c(3, col).is_finite()), "{precision:?}");
        }
    }
}

#[test]
fn batches_and_splits() {
    let (m, n, k, products) = (35, 21, 75, 3);
    // Strides between products that are odd, and a base that is not aligned.
    let (stride_a, stride_b, stride_c) = (m * k + 3, n * k + 1, m * n + 5);
    let memory_a: Vec<f32> = (0..stride_a * products + 1).map(|i| quarters(i, 1, 0)).collect();
    let memory_b: Vec<f32> = (0..stride_b * products + 1).map(|i| quarters(i, 2, 1)).collect();
    let (data_a, data_b) = (&memory_a[1..], &memory_b[1..]);
    for (index, precision) in MmaPrecision::ALL.into_iter().enumerate() {
        let layouts = Layouts::ALL[index % 4];
        let [a_row, a_col] = layouts.a.strides(m, k);
        let [b_row, b_col] = layouts.b.strides(k, n);
        for splits in [1, 2, 5, 7] {
            let outputs = products * splits;
            let mut memory_c = vec![f32::NAN; stride_c * outputs];
            let a = Matrix::new(GlobalSlice::new(data_a), m, k, a_row, a_col).unwrap();
            let b = Matrix::new(GlobalSlice::new(data_b), k, n, b_row, b_col).unwrap();
            let c = MatrixMut::new(GlobalSliceMut::new(&mut memory_c), m, n, n, 1).unwrap();
            let a = MatrixBatch::new(a, stride_a, products).unwrap();
            let b = MatrixBatch::new(b, stride_b, products).unwrap();
            let c = MatrixBatchMut::new(c, stride_c, outputs).unwrap();
            let gemm = TiledGemm::split_k(a, b, c, splits as u32).unwrap();
            launch_mma(&EXECUTOR, precision, layouts, gemm).unwrap();
            for product in 0..products {
                for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                    let should: f32 = (0..k)
                        .map(|l| {
                            data_a[product * stride_a + row * a_row + l * a_col]
                                * data_b[product * stride_b + l * b_row + col * b_col]
                        })
                        .sum();
                    let partials = (0..splits).map(|s| memory_c[(product * splits + s) * stride_c + row * n + col]);
                    assert_eq!(partials.sum::<f32>(), should, "{precision:?}, {splits} splits, ({row}, {col})");
                }
            }
        }
    }
}

#[test]
fn a_layout_that_the_kernel_is_not_for_is_refused() {
    let layouts = Layouts { a: Layout::ROWS.spread(2), ..Layouts::ALL[0] };
    let mut problem = exact_problem(Sizes { m: 5, n: 5, k: 5 }, layouts, 0);
    let error = run_mma(&EXECUTOR, MmaPrecision::Tf32, layouts, &mut problem).unwrap_err().to_string();
    assert!(error.contains("`gemm_mma_nn_tf32`") && error.contains("is_contiguous_along_rows"), "{error}");
}
