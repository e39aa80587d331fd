//! The register-tiled kernels and the reduction of splits on the CPU executor, with all its checks, against a reference in
//! double precision.

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor};
use cuda_std::{ContractViolation, GlobalSlice, GlobalSliceMut, Kernel as _};
use gpu_kernels::gemm::register_tiled::{
    gemm_register_tiled_64_nn_fp32, gemm_register_tiled_64_nt_fp32, gemm_register_tiled_64_tn_fp32,
    gemm_register_tiled_64_tt_fp32, gemm_register_tiled_nn_fp32, gemm_register_tiled_nt_fp32,
    gemm_register_tiled_tn_fp32, gemm_register_tiled_tt_fp32,
};
use gpu_kernels::gemm::split_k::{
    MANY_SPLITS, SplitReduction, gemm_split_reduction_fp32, gemm_split_reduction_many_fp32,
};
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixBatchMut, MatrixMut, ShapeError};
use tests::{Layout, Layouts, Operand, Problem, Sizes};
use tilewright::Order;

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

/// The tiles of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tiles {
    Of128x256,
    Of64x64,
}

fn launch(kernel: impl Grid) {
    let grid = kernel.grid();
    // SAFETY: the views are of slices that outlive the launch, the one of C borrowed mutably.
    unsafe { EXECUTOR.launch(kernel, grid) }.unwrap_or_else(|error| panic!("{error}"));
}

/// Launches the kernel for the layouts of A and B.
fn launch_for(tiles: Tiles, layouts: Layouts, gemm: TiledGemm<'_>) {
    use Order::{ColumnMajor, RowMajor};
    match (tiles, layouts.a.order, layouts.b.order) {
        (Tiles::Of128x256, RowMajor, RowMajor) => launch(gemm_register_tiled_nn_fp32 { gemm }),
        (Tiles::Of128x256, RowMajor, ColumnMajor) => launch(gemm_register_tiled_nt_fp32 { gemm }),
        (Tiles::Of128x256, ColumnMajor, RowMajor) => launch(gemm_register_tiled_tn_fp32 { gemm }),
        (Tiles::Of128x256, ColumnMajor, ColumnMajor) => launch(gemm_register_tiled_tt_fp32 { gemm }),
        (Tiles::Of64x64, RowMajor, RowMajor) => launch(gemm_register_tiled_64_nn_fp32 { gemm }),
        (Tiles::Of64x64, RowMajor, ColumnMajor) => launch(gemm_register_tiled_64_nt_fp32 { gemm }),
        (Tiles::Of64x64, ColumnMajor, RowMajor) => launch(gemm_register_tiled_64_tn_fp32 { gemm }),
        (Tiles::Of64x64, ColumnMajor, ColumnMajor) => launch(gemm_register_tiled_64_tt_fp32 { gemm }),
    }
}

/// The matrix without its first column (by rows) or first row (by columns): its base is not aligned to more than an element.
fn without_first<'a>(matrix: Matrix<'a>, order: Order) -> Matrix<'a> {
    let (rows, cols) = (matrix.rows() as usize, matrix.cols() as usize);
    let (row_stride, col_stride) = (matrix.row_stride() as usize, matrix.col_stride() as usize);
    let [down, across] = if order == Order::RowMajor { [0, 1] } else { [1, 0] };
    // SAFETY: the matrix has the element at (down, across).
    let data = unsafe { matrix.data().from_unchecked(down * row_stride + across * col_stride) };
    Matrix::new(data, rows - down, cols - across, row_stride, col_stride).unwrap()
}

/// Computes the product with one kernel in one pass, and looks at everything.
#[track_caller]
fn check(tiles: Tiles, layouts: Layouts, problem: &Problem) {
    let mut computed = problem.clone();
    let (a, b) = (problem.a.view().matrix().unwrap(), problem.b.view().matrix().unwrap());
    let c = computed.c.view_mut().matrix_mut().unwrap();
    launch_for(tiles, layouts, TiledGemm::new(problem.alpha, a, b, problem.beta, c).unwrap());
    judge(problem, &computed.c, &format!("{tiles:?}, {layouts:?}"));
}

#[track_caller]
fn judge(problem: &Problem, result: &Operand, what: &str) {
    if let Err(reason) = problem.expected().check(result) {
        panic!("{what}, {problem:?}: {reason}");
    }
}

#[test]
fn products_of_any_extents_in_any_layout() {
    let mut seed = 0;
    for m in [0, 1, 7, 63, 64, 65, 131] {
        for n in [0, 1, 4, 31, 64, 67] {
            for k in [0, 1, 15, 16, 17, 36] {
                for layouts in Layouts::ALL {
                    seed += 1;
                    check(Tiles::Of64x64, layouts, &Problem::new(Sizes { m, n, k }, layouts, seed));
                }
            }
        }
    }
    for (m, n, k) in
        [(1, 1, 1), (0, 5, 3), (128, 256, 16), (128, 256, 32), (127, 255, 33), (130, 260, 20), (257, 3, 48)]
    {
        for layouts in Layouts::ALL {
            check(Tiles::Of128x256, layouts, &Problem::new(Sizes { m, n, k }, layouts, 7));
        }
    }
}

#[test]
fn leading_dimensions_with_gaps_and_any_layout_of_c() {
    let c_layouts =
        [Layout::ROWS.padded(7), Layout::COLUMNS, Layout::COLUMNS.padded(2), Layout::ROWS.spread(3).padded(1)];
    for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
        for (c, padding) in c_layouts.into_iter().zip([3, 4, 8, 5]) {
            // Where the padding is a multiple of 4, so is the leading dimension: loads are of vectors, with gaps.
            let layouts = Layouts { a: layouts.a.padded(padding), b: layouts.b.padded(padding), c };
            for (m, n, k) in [(72, 80, 68), (33, 18, 21), (64, 64, 64)] {
                let problem = Problem::new(Sizes { m, n, k }, layouts, seed as u64);
                check(Tiles::Of64x64, layouts, &problem.clone().scaled(1.0, 0.0));
                check(Tiles::Of64x64, layouts, &problem.scaled(-0.5, 2.0));
            }
            let problem = Problem::new(Sizes { m: 132, n: 264, k: 20 }, layouts, seed as u64);
            check(Tiles::Of128x256, layouts, &problem.scaled(-0.5, 2.0));
        }
    }
}

#[test]
fn operands_whose_base_is_not_aligned() {
    for layouts in Layouts::ALL {
        for (m, n, k) in [(64, 64, 32), (70, 66, 45)] {
            let shift = |order| if order == Order::RowMajor { [0, 1] } else { [1, 0] };
            let ([a_down, a_across], [b_down, b_across]) = (shift(layouts.a.order), shift(layouts.b.order));
            // With leading dimensions that are multiples of 4 for the first shape, so that only the base decides.
            let a = Operand::random(m + a_down, k + a_across, layouts.a.padded(3), 1);
            let b = Operand::random(k + b_down, n + b_across, layouts.b.padded(3), 2);
            let mut problem = Problem::new(Sizes { m, n, k }, layouts, 3).scaled(2.0, 0.0);
            problem.a = Operand::from_fn(m, k, layouts.a, |row, col| a.at(row + a_down, col + a_across));
            problem.b = Operand::from_fn(k, n, layouts.b, |row, col| b.at(row + b_down, col + b_across));
            let mut c = problem.c.clone();
            let a = without_first(a.view().matrix().unwrap(), layouts.a.order);
            let b = without_first(b.view().matrix().unwrap(), layouts.b.order);
            assert_ne!(a.data().as_ptr().addr() % 16, 0);
            let gemm = TiledGemm::new(2.0, a, b, 0.0, c.view_mut().matrix_mut().unwrap()).unwrap();
            launch_for(Tiles::Of64x64, layouts, gemm);
            judge(&problem, &c, "unaligned");
        }
    }
}

#[test]
fn any_factors_and_nothing_read_that_does_not_count() {
    let factors = [0.0, 1.0, -1.0, 0.37];
    for (alpha, beta) in factors.into_iter().flat_map(|alpha| factors.map(|beta| (alpha, beta))) {
        for k in [0, 1, 35] {
            let mut problem = Problem::new(Sizes { m: 17, n: 66, k }, Layouts::ALL[1], 5).scaled(alpha, beta);
            if alpha == 0.0 {
                problem.a.fill(f32::NAN);
                problem.b.fill(f32::NAN);
            }
            if beta == 0.0 {
                problem.c.fill(f32::NAN);
            }
            check(Tiles::Of64x64, Layouts::ALL[1], &problem);
        }
    }
    let mut problem = Problem::new(Sizes { m: 129, n: 5, k: 40 }, Layouts::ALL[0], 5);
    problem.c.fill(f32::NAN);
    check(Tiles::Of128x256, Layouts::ALL[0], &problem);
}

/// After 1024 terms the sums begin anew; so do they after 2048.
#[test]
fn sums_longer_than_a_partial_sum() {
    for (tiles, k) in [(Tiles::Of64x64, 1024), (Tiles::Of64x64, 1025), (Tiles::Of64x64, 3100), (Tiles::Of128x256, 2050)]
    {
        let layouts = Layouts::ALL[k % 4];
        check(tiles, layouts, &Problem::new(Sizes { m: 9, n: 10, k }, layouts, 1).scaled(0.5, -1.0));
    }
    // All positive, and so many that one running sum would lose them: 2²⁴ + 1 = 2²⁴.
    let k = 4096;
    let layouts = Layouts::ALL[0];
    let mut problem = Problem::new(Sizes { m: 1, n: 1, k }, layouts, 1);
    problem.a.fill(1.0);
    problem.b.fill(1.0);
    problem.a.set(0, 0, 16_777_216.0);
    let mut c = problem.c.clone();
    let (a, b) = (problem.a.view().matrix().unwrap(), problem.b.view().matrix().unwrap());
    let gemm = TiledGemm::new(1.0, a, b, 0.0, c.view_mut().matrix_mut().unwrap()).unwrap();
    launch_for(Tiles::Of64x64, layouts, gemm);
    assert_eq!(c.at(0, 0), 16_777_216.0 + 3072.0);
}

/// As many matrices side by side as `count`: by rows below each other, by columns beside each other. The distance from one to
/// the next is that of `rows` rows or `cols` columns.
struct Batch {
    all: Operand,
    rows: usize,
    cols: usize,
    order: Order,
}

impl Batch {
    fn random(count: usize, rows: usize, cols: usize, layout: Layout, seed: u64) -> Self {
        let (all_rows, all_cols) = match layout.order {
            Order::RowMajor => (count * rows, cols),
            Order::ColumnMajor => (rows, count * cols),
        };
        Self { all: Operand::random(all_rows, all_cols, layout, seed), rows, cols, order: layout.order }
    }

    fn distance(&self, row_stride: u64, col_stride: u64) -> usize {
        match self.order {
            Order::RowMajor => self.rows * row_stride as usize,
            Order::ColumnMajor => self.cols * col_stride as usize,
        }
    }

    fn view(&self, count: usize) -> MatrixBatch<'_> {
        let all = self.all.view().matrix().unwrap();
        let (row_stride, col_stride) = (all.row_stride(), all.col_stride());
        let first = Matrix::new(all.data(), self.rows, self.cols, row_stride as usize, col_stride as usize).unwrap();
        MatrixBatch::new(first, self.distance(row_stride, col_stride), count).unwrap()
    }

    fn view_mut(&mut self, count: usize) -> MatrixBatchMut<'_> {
        let (rows, cols, order) = (self.rows, self.cols, self.order);
        let all = self.all.view_mut().matrix_mut().unwrap();
        let (row_stride, col_stride) = (all.row_stride() as usize, all.col_stride() as usize);
        let first = MatrixMut::new(all.data(), rows, cols, row_stride, col_stride).unwrap();
        let distance = if order == Order::RowMajor { rows * row_stride } else { cols * col_stride };
        MatrixBatchMut::new(first, distance, count).unwrap()
    }

    fn at(&self, index: usize) -> Operand {
        let layout = Layout { order: self.order, ..Layout::ROWS };
        Operand::from_fn(self.rows, self.cols, layout, |row, col| match self.order {
            Order::RowMajor => self.all.at(index * self.rows + row, col),
            Order::ColumnMajor => self.all.at(row, index * self.cols + col),
        })
    }
}

/// Batches, with and without splits, with partials and results in several layouts, against each product by itself.
#[test]
fn batches_and_splits() {
    let c_layouts = [Layout::ROWS, Layout::ROWS.padded(1), Layout::COLUMNS.padded(3), Layout::COLUMNS];
    let cases = [
        (3, 1, Sizes { m: 20, n: 36, k: 40 }),
        (1, 5, Sizes { m: 70, n: 66, k: 200 }),
        (2, 12, Sizes { m: 5, n: 7, k: 100 }), // more splits than there are panels of terms
        (2, 9, Sizes { m: 8, n: 64, k: 1 }),
        (1, 17, Sizes { m: 64, n: 1, k: 640 }),
        (2, 3, Sizes { m: 1, n: 33, k: 64 }),
    ];
    for (layouts, c_layout) in Layouts::ALL.into_iter().zip(c_layouts) {
        for (count, splits, Sizes { m, n, k }) in cases {
            for (alpha, beta) in [(1.0, 0.0), (-0.5, 2.0), (0.0, 3.0)] {
                let a = Batch::random(count, m, k, layouts.a, 1);
                let b = Batch::random(count, k, n, layouts.b, 2);
                let mut c = Batch::random(count, m, n, c_layout, 3);
                let before: Vec<_> = (0..count).map(|i| c.at(i)).collect();
                if splits == 1 {
                    let gemm = TiledGemm::new(alpha, a.view(count), b.view(count), beta, c.view_mut(count)).unwrap();
                    launch_for(Tiles::Of64x64, layouts, gemm);
                } else {
                    let mut partials = Batch::random(count * splits, m, n, c_layout.padded(n % 5), 4);
                    let gemm = TiledGemm::split_k(
                        a.view(count),
                        b.view(count),
                        partials.view_mut(count * splits),
                        splits as u32,
                    );
                    launch_for(Tiles::Of64x64, layouts, gemm.unwrap());
                    partials.all.check_surroundings().unwrap();
                    if alpha == 0.0 {
                        partials.all.fill(f32::NAN);
                    }
                    let view = partials.view(count * splits);
                    let reduction = SplitReduction::new(alpha, view, splits as u32, beta, c.view_mut(count)).unwrap();
                    launch(gemm_split_reduction_fp32 { reduction });
                }
                c.all.check_surroundings().unwrap();
                for (i, c_before) in before.into_iter().enumerate() {
                    let problem = Problem { alpha, a: a.at(i), b: b.at(i), beta, c: c_before };
                    judge(
                        &problem,
                        &c.at(i),
                        &format!("product {i} of {count}, {splits} splits, {layouts:?}, {c_layout:?}"),
                    );
                }
            }
        }
    }
}

/// The sum is that of the partials in their order, or of four, 32 or 128 sums of a part of them if they are many, those of a quarter of the
/// threads as a tree: bit by bit, along rows and along columns, aligned or not, in one block and in several.
#[test]
fn partials_are_added_in_their_order() {
    for splits in [1, 2, 7, 8, 9, 15, 16, 19, 63, 64, 66, 471] {
        for layout in [Layout::ROWS, Layout::ROWS.padded(1), Layout::COLUMNS, Layout::COLUMNS.padded(1)] {
            for (m, n) in [(8, 12), (3, 5), (1, 9), (9, 1), (20, 36)] {
                let partials = Batch::random(splits, m, n, layout, 1);
                let mut c = Operand::random(m, n, layout, 2);
                c.fill(f32::NAN);
                let to = c.view_mut().matrix_mut().unwrap();
                let reduction = SplitReduction::new(1.0, partials.view(splits), splits as u32, 0.0, to).unwrap();
                match reduction.splits() {
                    MANY_SPLITS.. => launch(gemm_split_reduction_many_fp32 { reduction }),
                    _ => launch(gemm_split_reduction_fp32 { reduction }),
                }
                c.check_surroundings().unwrap();
                let parts: Vec<_> = (0..splits).map(|split| partials.at(split)).collect();
                let sharers = match splits {
                    ..16 => 1,
                    16..64 => 4,
                    64..256 => 32,
                    256.. => 128,
                };
                for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                    let shares: Vec<f32> = (0..sharers)
                        .map(|i| &parts[i * splits / sharers..(i + 1) * splits / sharers])
                        .map(|share| share.iter().fold(0.0, |sum, part| sum + part.at(row, col)))
                        .collect();
                    let sum = shares.chunks(sharers.div_ceil(4)).map(tree).fold(0.0, |sum, warp| sum + warp);
                    assert_eq!(c.at(row, col).to_bits(), sum.to_bits(), "({row}, {col}), {splits} splits, {layout:?}");
                }
            }
        }
    }
}

/// A sum as lanes of a warp make it: the upper half is added to the lower one, until one number is left.
fn tree(numbers: &[f32]) -> f32 {
    let mut left = numbers.to_vec();
    while left.len() > 1 {
        let upper = left.split_off(left.len() / 2);
        left.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += upper);
    }
    left[0]
}

#[test]
fn scaling_reads_nothing_that_does_not_count() {
    for beta in [0.0, 1.0, -2.5] {
        let mut c = Operand::random(5, 6, Layout::ROWS.padded(2), 1);
        if beta == 0.0 {
            c.fill(f32::NAN);
        }
        let before = c.clone();
        let reduction = SplitReduction::scaling(beta, c.view_mut().matrix_mut().unwrap()).unwrap();
        launch(gemm_split_reduction_fp32 { reduction });
        c.check_surroundings().unwrap();
        for (row, col) in (0..5).flat_map(|row| (0..6).map(move |col| (row, col))) {
            let should = if beta == 0.0 { 0.0 } else { beta * before.at(row, col) };
            assert_eq!(c.at(row, col), should);
        }
    }
}

#[test]
fn a_reduction_needs_as_many_partials_as_results_times_splits() {
    let data = [0.0; 24];
    let partial = Matrix::new(GlobalSlice::new(&data), 2, 3, 3, 1).unwrap();
    let mut results = [0.0; 12];
    let c = MatrixMut::new(GlobalSliceMut::new(&mut results), 2, 3, 3, 1).unwrap();
    let c = MatrixBatchMut::new(c, 6, 2).unwrap();
    let partials = |count| MatrixBatch::new(partial, 6, count).unwrap();
    assert!(SplitReduction::new(1.0, partials(4), 2, 0.0, c).is_ok());
    for (count, splits) in [(3, 2), (4, 1), (4, 3), (4, 0)] {
        let refused = SplitReduction::new(1.0, partials(count), splits, 0.0, c);
        assert!(matches!(refused, Err(ShapeError::Mismatch { .. })), "{count}, {splits}");
    }
    let turned = Matrix::new(GlobalSlice::new(&data), 3, 2, 2, 1).unwrap();
    let turned = MatrixBatch::new(turned, 6, 4).unwrap();
    assert!(matches!(SplitReduction::new(1.0, turned, 2, 0.0, c), Err(ShapeError::Mismatch { .. })));
}

#[test]
fn each_kernel_refuses_other_layouts() {
    let data = vec![0.0; 64];
    let [by_rows, by_cols] =
        [(8, 1), (1, 8)].map(|(row, col)| Matrix::new(GlobalSlice::new(&data), 8, 8, row, col).unwrap());
    let mut result = vec![0.0; 64];
    let c = MatrixMut::new(GlobalSliceMut::new(&mut result), 8, 8, 8, 1).unwrap();
    let gemm = |a, b| TiledGemm::new(1.0, a, b, 0.0, c).unwrap();
    let refused = |result: Result<(), ContractViolation>, condition: &str| {
        assert!(result.is_err_and(|violation| violation.condition.contains(condition)), "{condition}");
    };
    let (nn, nt, tn) = (gemm(by_rows, by_rows), gemm(by_rows, by_cols), gemm(by_cols, by_rows));
    gemm_register_tiled_nn_fp32 { gemm: nn }.check().unwrap();
    refused(gemm_register_tiled_nn_fp32 { gemm: nt }.check(), "b()");
    refused(gemm_register_tiled_nn_fp32 { gemm: tn }.check(), "a()");
    refused(gemm_register_tiled_64_nt_fp32 { gemm: nn }.check(), "b()");
    refused(gemm_register_tiled_64_tn_fp32 { gemm: nn }.check(), "a()");
    refused(gemm_register_tiled_tt_fp32 { gemm: nt }.check(), "a()");
}

/// Where NaN and infinities come in, they come out in the class that the sum in order gives, and other elements stay finite.
#[test]
fn special_values_come_out_in_their_class() {
    let (m, n, k) = (40, 70, 50);
    for layouts in Layouts::ALL {
        let mut problem = Problem::new(Sizes { m, n, k }, layouts, 9);
        problem.a.set(3, 5, f32::INFINITY);
        problem.a.set(7, 2, f32::NAN);
        problem.a.set(9, 0, f32::INFINITY);
        problem.a.set(9, 49, f32::NEG_INFINITY);
        problem.b.set(11, 60, f32::NEG_INFINITY);
        problem.a.set(20, 1, f32::MAX);
        problem.a.set(20, 2, f32::MAX);
        problem.b.set(1, 30, 2.0);
        problem.b.set(2, 30, 2.0);
        for tiles in [Tiles::Of64x64, Tiles::Of128x256] {
            let mut c = problem.c.clone();
            let (a, b) = (problem.a.view().matrix().unwrap(), problem.b.view().matrix().unwrap());
            let gemm = TiledGemm::new(1.0, a, b, 0.0, c.view_mut().matrix_mut().unwrap()).unwrap();
            launch_for(tiles, layouts, gemm);
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                let sum = (0..k).fold(0.0f32, |sum, l| problem.a.at(row, l).mul_add(problem.b.at(l, col), sum));
                let found = c.at(row, col);
                if sum.is_finite() {
                    assert_eq!(found.to_bits(), sum.to_bits(), "({row}, {col})");
                } else {
                    assert!(found == sum || found.is_nan() && sum.is_nan(), "({row}, {col}): {found} for {sum}");
                }
            }
        }
    }
}
