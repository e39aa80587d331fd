//! Every kernel on the CPU executor, with all its checks, against a reference in double precision.

use std::sync::LazyLock;

use cuda_std::Dim3;
use cuda_std::executor::{Checks, Executor};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tests::{Kernel, Layout, Layouts, Operand, Place, Problem, Sizes};
use tilewright::Order;

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

#[test]
fn the_kernels_under_test_are_those_of_the_library() {
    let library: Vec<_> = tilewright::kernels::BASIC.iter().map(|kernel| kernel.name).collect();
    assert_eq!(Kernel::ALL.map(Kernel::name).as_slice(), library);
}

/// Runs a kernel on the grid that it asks for, and looks at everything.
#[track_caller]
fn check(kernel: Kernel, problem: &Problem) {
    check_on(kernel, Place::Executor(&EXECUTOR), problem);
}

#[track_caller]
fn check_on(kernel: Kernel, place: Place<'_>, problem: &Problem) {
    if let Err(reason) = kernel.check(place, problem) {
        panic!("{kernel:?} on {problem:?}: {reason}");
    }
}

/// 0, 1, primes, and the extents at the edges of the tiles.
const EXTENTS: [usize; 9] = [0, 1, 7, 15, 16, 17, 31, 32, 33];

/// The factors that mean something of their own, and two that do not.
const FACTORS: [f32; 4] = [0.0, 1.0, -1.0, 0.37];

#[test]
fn gemm_of_any_extents_in_any_layout() {
    let mut seed = 0;
    for m in EXTENTS {
        for n in EXTENTS {
            for k in EXTENTS {
                for layouts in Layouts::ALL {
                    seed += 1;
                    let problem = Problem::new(Sizes { m, n, k }, layouts, seed);
                    for kernel in Kernel::GEMM {
                        check(kernel, &problem);
                    }
                }
            }
        }
    }
}

#[test]
fn gemm_of_extents_beyond_several_tiles() {
    for kernel in Kernel::GEMM {
        for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
            for (m, n, k) in [(65, 97, 61), (97, 65, 129), (1, 300, 67), (300, 1, 67), (5, 3, 1031)] {
                check(kernel, &Problem::new(Sizes { m, n, k }, layouts, seed as u64));
            }
        }
    }
}

#[test]
fn gemm_with_larger_leading_dimensions_and_any_layout_of_c() {
    let c_layouts = [
        Layout::ROWS.padded(7),
        Layout::COLUMNS,
        Layout::COLUMNS.padded(2),
        Layout::ROWS.spread(3).padded(1),
        Layout::COLUMNS.spread(2),
    ];
    for kernel in Kernel::GEMM {
        for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
            for c in c_layouts {
                let layouts = Layouts { c, ..layouts.padded() };
                let problem = Problem::new(Sizes { m: 33, n: 18, k: 21 }, layouts, seed as u64);
                check(kernel, &problem.clone().scaled(1.0, 0.0));
                check(kernel, &problem.scaled(-0.5, 2.0));
            }
        }
    }
}

#[test]
fn gemm_with_operands_neither_of_whose_strides_is_one() {
    let layouts =
        Layouts { a: Layout::ROWS.spread(2).padded(5), b: Layout::COLUMNS.spread(3), c: Layout::COLUMNS.spread(2) };
    for kernel in Kernel::GEMM {
        check(kernel, &Problem::new(Sizes { m: 19, n: 34, k: 35 }, layouts, 1).scaled(2.0, -1.0));
    }
}

#[test]
fn gemm_with_any_factors() {
    for kernel in Kernel::GEMM {
        for alpha in FACTORS {
            for beta in FACTORS {
                for k in [0, 1, 19, 33] {
                    let problem = Problem::new(Sizes { m: 17, n: 34, k }, Layouts::ALL[0], k as u64);
                    check(kernel, &problem.scaled(alpha, beta));
                }
            }
        }
    }
}

/// The lengths at the edges of what 256 threads take at once.
const LENGTHS: [usize; 13] = [0, 1, 2, 31, 127, 128, 255, 256, 257, 511, 512, 513, 1031];

#[test]
fn gemv_of_any_extents_in_any_layout() {
    let vector = Layout::ROWS;
    for m in EXTENTS {
        for k in LENGTHS {
            for a in [Layout::ROWS, Layout::COLUMNS, Layout::ROWS.padded(3), Layout::COLUMNS.padded(2)] {
                let shape = Sizes { m, n: 1, k };
                check(Kernel::GemvBlockReduction, &Problem::new(shape, Layouts { a, b: vector, c: vector }, k as u64));
                let layouts = Layouts { a, b: vector.padded(2), c: vector.padded(4) };
                check(Kernel::GemvBlockReduction, &Problem::new(shape, layouts, k as u64).scaled(-0.5, 2.0));
            }
        }
    }
}

#[test]
fn gemv_with_any_factors() {
    for alpha in FACTORS {
        for beta in FACTORS {
            for k in [0, 1, 255, 300] {
                let problem = Problem::new(Sizes { m: 5, n: 1, k }, Layouts::ALL[0], k as u64);
                check(Kernel::GemvBlockReduction, &problem.scaled(alpha, beta));
            }
        }
    }
}

/// Any kernel with a shape that it can compute.
fn shape_for(kernel: Kernel, m: usize, n: usize, k: usize) -> Sizes {
    Sizes { m, n: if kernel == Kernel::GemvBlockReduction { 1 } else { n }, k }
}

#[test]
fn operands_are_not_read_if_alpha_is_zero_nor_the_result_if_beta_is_zero() {
    for kernel in Kernel::ALL {
        for beta in FACTORS {
            let mut problem = Problem::new(shape_for(kernel, 18, 33, 40), Layouts::ALL[0].padded(), 3);
            problem.a.fill(f32::NAN);
            problem.b.fill(f32::NAN);
            check(kernel, &problem.scaled(0.0, beta));
        }
        for (alpha, k) in [(0.0, 40), (1.0, 0), (-2.0, 40)] {
            let mut problem = Problem::new(shape_for(kernel, 18, 33, k), Layouts::ALL[0].padded(), 3);
            problem.c.fill(f32::NAN);
            check(kernel, &problem.scaled(alpha, 0.0));
        }
        // A sum without terms is not scaled, so that even this α does not matter.
        let problem = Problem::new(shape_for(kernel, 18, 33, 0), Layouts::ALL[0], 3);
        let mut computed = problem.clone().scaled(f32::INFINITY, 2.0);
        kernel.run(Place::Executor(&EXECUTOR), &mut computed).unwrap();
        problem.scaled(0.0, 2.0).expected().check(&computed.c).unwrap();
    }
}

/// The naive kernel along a line promises to work on every grid. The other gemm kernels count rows of tiles along y and z
/// together, in any proportion. A grid with more blocks than there is work for is fine with every kernel.
#[test]
fn grids_of_other_sizes_than_the_kernel_asks_for() {
    let shape = Sizes { m: 130, n: 70, k: 9 };
    let problem = Problem::new(shape, Layouts::ALL[1].padded(), 5).scaled(1.5, -1.0);
    let on = |x, y, z| Place::ExecutorGrid(&EXECUTOR, Dim3::new(x, y, z));
    for x in [1, 2, 3, 35, 36, 100] {
        check_on(Kernel::GemmNaive1d, on(x, 1, 1), &problem);
    }
    for (kernel, tile) in
        [(Kernel::GemmNaive2d, (8, 32)), (Kernel::GemmTiled16, (16, 16)), (Kernel::GemmTiled32, (32, 32))]
    {
        let down = shape.m.div_ceil(tile.0) as u32;
        let across = shape.n.div_ceil(tile.1) as u32;
        for (x, y, z) in [(across, 1, down), (across, 2, down.div_ceil(2)), (across, 4, down), (across + 2, down, 1)] {
            check_on(kernel, on(x, y, z), &problem);
        }
    }
    let problem = Problem::new(Sizes { m: 7, n: 1, k: 300 }, Layouts::ALL[0], 5).scaled(1.5, -1.0);
    for x in [7, 8, 20] {
        check_on(Kernel::GemvBlockReduction, on(x, 1, 1), &problem);
    }
}

#[test]
fn more_rows_of_tiles_than_a_grid_can_have_along_y() {
    let shape = Sizes { m: 65_535 * 8 + 9, n: 1, k: 2 };
    check(Kernel::GemmNaive2d, &Problem::new(shape, Layouts::ALL[0], 5));
}

/// The sum of one element as a gemm kernel computes it: one fused operation after the other.
fn sum_in_order(problem: &Problem, row: usize, col: usize) -> f32 {
    (0..problem.a.cols()).fold(0.0, |sum, l| problem.a.at(row, l).mul_add(problem.b.at(l, col), sum))
}

/// The sum of one element as the gemv kernel computes it: 256 sums, added up as a tree.
fn sum_as_tree(problem: &Problem, row: usize) -> f32 {
    let mut sums = [0.0f32; 256];
    for l in 0..problem.a.cols() {
        sums[l % 256] = problem.a.at(row, l).mul_add(problem.b.at(l, 0), sums[l % 256]);
    }
    for half in [128, 64, 32, 16, 8, 4, 2, 1] {
        for t in 0..half {
            sums[t] += sums[t + half];
        }
    }
    sums[0]
}

/// The bits of a number, all NaNs being one.
fn bits(number: f32) -> u32 {
    if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }
}

/// A matrix in which every value that is special in fp32 occurs, those that spread through sums not too often.
fn special(rows: usize, cols: usize, layout: Layout, offset: usize) -> Operand {
    const RARE: [f32; 4] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX];
    const SMALL: [f32; 6] = [-0.0, 1e-40, -1e-45, f32::MIN_POSITIVE, -1.5e-30, 2e-20];
    Operand::from_fn(rows, cols, layout, |row, col| match (row * cols + col + offset) % 509 {
        rare if rare < RARE.len() => RARE[rare],
        small if small % 7 == 0 => SMALL[small / 7 % SMALL.len()],
        ordinary => (ordinary as f32 - 250.0) / 64.0,
    })
}

#[test]
fn special_values_come_out_as_fused_operations_in_order_give_them() {
    // A multiple of both tiles: the zeros that fill up a tile would turn a sum of -0 into +0.
    let (m, n, k) = (35, 18, 64);
    for layouts in Layouts::ALL {
        let mut a = special(m, k, layouts.a, 0);
        let mut b = special(k, n, layouts.b, 77);
        for l in 0..k {
            a.set(1, l, -1e-45); // times 0.25: so small that it is rounded to -0
            a.set(2, l, 1e-40);
            b.set(l, 3, 0.25);
        }
        let c = Operand::random(m, n, layouts.c, 1);
        let problem = Problem { alpha: 1.0, a, b, beta: 0.0, c };
        let mut seen = [false; 5];
        for kernel in Kernel::GEMM {
            let mut computed = problem.clone();
            kernel.run(Place::Executor(&EXECUTOR), &mut computed).unwrap();
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                let (found, should) = (computed.c.at(row, col), sum_in_order(&problem, row, col));
                assert_eq!(bits(found), bits(should), "{kernel:?}, ({row}, {col}): {found} for {should}");
                seen[0] |= should.is_nan();
                seen[1] |= should.is_infinite();
                seen[2] |= should.is_normal();
                seen[3] |= should.is_subnormal();
                seen[4] |= bits(should) == bits(-0.0);
            }
        }
        assert_eq!(seen, [true; 5], "NaN, infinite, normal, subnormal, -0: not all of them came up");
    }
}

#[test]
fn special_values_come_out_of_gemv_as_its_tree_of_sums_gives_them() {
    let (m, k) = (41, 300);
    let a = special(m, k, Layout::ROWS, 0);
    let b = Operand::random(k, 1, Layout::ROWS, 2);
    let problem = Problem { alpha: 1.0, a, b, beta: 0.0, c: Operand::random(m, 1, Layout::ROWS, 1) };
    let mut computed = problem.clone();
    Kernel::GemvBlockReduction.run(Place::Executor(&EXECUTOR), &mut computed).unwrap();
    let mut seen = [false; 2];
    for row in 0..m {
        let (found, should) = (computed.c.at(row, 0), sum_as_tree(&problem, row));
        assert_eq!(bits(found), bits(should), "row {row}: {found} for {should}");
        seen[0] |= !should.is_finite();
        seen[1] |= should.is_normal();
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_negative_zero_survives_where_nothing_is_added_to_it() {
    for kernel in Kernel::ALL {
        let mut problem = Problem::new(shape_for(kernel, 3, 4, 0), Layouts::ALL[0], 1).scaled(1.0, 1.0);
        problem.c.fill(-0.0);
        kernel.run(Place::Executor(&EXECUTOR), &mut problem).unwrap();
        assert!(problem.c.bits().iter().all(|&bits| bits == (-0.0f32).to_bits()), "{kernel:?}");
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    let order = prop_oneof![Just(Order::RowMajor), Just(Order::ColumnMajor)];
    (order, 1..=3usize, 0..=9usize, 0..=3usize).prop_map(|(order, step, padding, offset)| Layout {
        order,
        step,
        padding,
        offset,
    })
}

fn factor() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0f32), Just(1.0), Just(-1.0), -4.0..4.0f32]
}

fn problem() -> impl Strategy<Value = (Kernel, Problem)> {
    let shape = (0..=70usize, 0..=70usize, 0..=70usize, 0..=1100usize);
    let kernel = proptest::sample::select(Kernel::ALL.as_slice());
    (kernel, shape, (layout(), layout(), layout()), factor(), factor(), any::<u64>()).prop_map(
        |(kernel, (m, n, k, long), (a, b, c), alpha, beta, seed)| {
            let k = if kernel == Kernel::GemvBlockReduction { long } else { k };
            let problem = Problem::new(shape_for(kernel, m, n, k), Layouts { a, b, c }, seed);
            (kernel, problem.scaled(alpha, beta))
        },
    )
}

proptest! {
    // The same cases every time: what passes on one machine passes on the next.
    #![proptest_config(ProptestConfig {
        cases: 400, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_product_in_any_layout((kernel, problem) in problem()) {
        let verdict = kernel.check(Place::Executor(&EXECUTOR), &problem);
        prop_assert_eq!(verdict, Ok(()));
    }
}
