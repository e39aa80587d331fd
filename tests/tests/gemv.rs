//! The matrix–vector kernels with split sums on the CPU executor, with all its checks, against a reference in double
//! precision.

use std::sync::LazyLock;

use cuda_std::executor::{Checks, Executor};
use cuda_std::{Dim3, GlobalSlice, GlobalSliceMut, Kernel as _};
use gpu_kernels::gemm::split_k::{
    MANY_SPLITS, SplitReduction, gemm_split_reduction_fp32, gemm_split_reduction_many_fp32,
};
use gpu_kernels::gemv::SplitGemv;
use gpu_kernels::gemv::split::{gemv_split_atomic_fp32, gemv_split_fp32, gemv_splits};
use gpu_kernels::gemv::transposed_split::{gemv_transposed_split_fp32, gemv_transposed_splits};
use gpu_kernels::{Grid, Matrix, MatrixBatch, MatrixMut, ShapeError, Vector, VectorMut};
use tests::{Layout, Layouts, Operand, Problem, Sizes, half_of_the_grid};
use tilewright::Order;

static EXECUTOR: LazyLock<Executor> = LazyLock::new(|| Executor::new(Checks::Full));

fn launch(kernel: impl Grid) {
    let grid = kernel.grid();
    launch_blocks(kernel, grid);
}

fn launch_blocks(kernel: impl Grid, grid: Dim3) {
    // SAFETY: the views are of slices that outlive the launch, those that are written borrowed mutably.
    unsafe { EXECUTOR.launch(kernel, grid) }.unwrap_or_else(|error| panic!("{error}"));
}

fn launch_for(order: Order, gemv: SplitGemv<'_>) {
    match order {
        Order::RowMajor => launch(gemv_split_fp32 { gemv }),
        Order::ColumnMajor => launch(gemv_transposed_split_fp32 { gemv }),
    }
}

/// `y = α·Σ P[s] + β·y` over the rows of P, by half of the blocks that there is work for.
fn add_up(alpha: f32, partials: &Operand, beta: f32, y: &mut Operand) {
    let (slice, [row_stride, col_stride]) = (partials.view().slice, partials.strides());
    let row = Matrix::new(slice, partials.cols(), 1, col_stride, 1).unwrap();
    let rows = MatrixBatch::new(row, row_stride, partials.rows()).unwrap();
    let out = y.view_mut().matrix_mut().unwrap();
    let reduction = SplitReduction::new(alpha, rows, partials.rows() as u32, beta, out).unwrap();
    fn launch_half(kernel: impl Grid) {
        let grid = half_of_the_grid(&kernel);
        launch_blocks(kernel, grid);
    }
    match reduction.splits() {
        MANY_SPLITS.. => launch_half(gemm_split_reduction_many_fp32 { reduction }),
        _ => launch_half(gemm_split_reduction_fp32 { reduction }),
    }
}

/// `y = α·A·x + β·y` with A in a layout, x and y spread and shifted, in so many splits.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    k: usize,
    a: Layout,
    x: Layout,
    y: Layout,
    splits: usize,
    alpha: f32,
    beta: f32,
}

impl Case {
    fn new(m: usize, k: usize, a: Layout) -> Self {
        Self { m, k, a, x: Layout::COLUMNS, y: Layout::COLUMNS, splits: 1, alpha: 1.0, beta: 0.0 }
    }

    fn problem(&self, seed: u64) -> Problem {
        let layouts = Layouts { a: self.a, b: self.x, c: self.y };
        Problem::new(Sizes { m: self.m, n: 1, k: self.k }, layouts, seed).scaled(self.alpha, self.beta)
    }

    /// Computes the product and looks at everything.
    #[track_caller]
    fn check(&self) {
        self.check_problem(&self.problem(self.m as u64 + self.k as u64));
    }

    #[track_caller]
    fn check_problem(&self, problem: &Problem) {
        let y = self.run(problem);
        if let Err(reason) = problem.expected().check(&y) {
            panic!("{self:?}: {reason}");
        }
    }

    fn run(&self, problem: &Problem) -> Operand {
        let mut y = problem.c.clone();
        let (a, x) = (problem.a.view().matrix().unwrap(), problem.b.view().vector().unwrap());
        if self.splits == 1 {
            let out = y.view_mut().vector_mut().unwrap();
            launch_for(self.a.order, SplitGemv::new(self.alpha, a, x, self.beta, out).unwrap());
            return y;
        }
        let layout = if self.m.is_multiple_of(2) { Layout::ROWS.padded(3) } else { Layout::COLUMNS };
        let mut partials = Operand::random(self.splits, self.m, layout, 9);
        partials.fill(f32::NAN);
        launch_for(self.a.order, SplitGemv::split(a, x, partials.view_mut().matrix_mut().unwrap()).unwrap());
        partials.check_surroundings().unwrap();
        if self.alpha == 0.0 {
            partials.fill(f32::NAN);
        }
        add_up(self.alpha, &partials, self.beta, &mut y);
        y
    }
}

const LAYOUTS: [Layout; 6] = [
    Layout::ROWS,
    Layout::ROWS.padded(1),
    Layout::ROWS.padded(4),
    Layout::COLUMNS,
    Layout::COLUMNS.padded(3),
    Layout::COLUMNS.padded(8),
];

#[test]
fn products_of_any_extents_and_splits() {
    for m in [0, 1, 2, 3, 4, 5, 8, 17, 64, 131] {
        for k in [0, 1, 3, 4, 7, 8, 9, 31, 64, 100, 257, 520] {
            for a in LAYOUTS {
                for splits in [1, 2, 5] {
                    Case { splits, ..Case::new(m, k, a) }.check();
                }
            }
        }
    }
}

#[test]
fn long_rows_long_columns_and_many_splits() {
    for (m, k, splits) in [(5, 9001, 1), (6, 9001, 3), (7, 8192, 4), (1, 20_000, 40), (2, 50, 70), (33, 4096, 300)] {
        for a in LAYOUTS {
            Case { splits, ..Case::new(m, k, a) }.check();
        }
    }
    for (m, k) in [(1300, 5), (2100, 1), (1025, 40), (4099, 13), (6401, 30), (6403, 75), (6406, 33)] {
        for a in LAYOUTS {
            Case::new(m, k, a).check();
            Case { splits: 3, ..Case::new(m, k, a) }.check();
        }
    }
}

#[test]
fn vectors_with_increments_and_any_factors() {
    let factors = [0.0, 1.0, -1.0, 0.37];
    for (alpha, beta) in factors.into_iter().flat_map(|alpha| factors.map(|beta| (alpha, beta))) {
        for (m, k) in [(9, 0), (9, 70), (70, 9), (4, 64)] {
            for a in [Layout::ROWS, Layout::COLUMNS] {
                for splits in [1, 3] {
                    let case = Case { alpha, beta, splits, ..Case::new(m, k, a) };
                    case.check();
                    Case { x: Layout::COLUMNS.spread(2), y: Layout::COLUMNS.spread(3), ..case }.check();
                    // Nothing is read that does not count.
                    let mut problem = case.problem(3);
                    if alpha == 0.0 {
                        problem.a.fill(f32::NAN);
                        problem.b.fill(f32::NAN);
                    }
                    if beta == 0.0 {
                        problem.c.fill(f32::NAN);
                    }
                    case.check_problem(&problem);
                }
            }
        }
    }
}

/// Without its first elements, a matrix or a vector begins at an address that is no multiple of 16.
#[test]
fn operands_whose_base_is_not_aligned() {
    for order in [Order::RowMajor, Order::ColumnMajor] {
        for (a_shift, x_shift) in [(1, 0), (0, 1), (2, 3)] {
            let (m, k) = (12, 96);
            let layout = Layout { order, padding: 4 - a_shift, ..Layout::ROWS };
            let (down, across) = if order == Order::RowMajor { (0, a_shift) } else { (a_shift, 0) };
            let a = Operand::random(m + down, k + across, layout, 1);
            let x = Operand::random(k + x_shift, 1, Layout::COLUMNS, 2);
            let case = Case::new(m, k, Layout { order, ..Layout::ROWS });
            let mut problem = case.problem(3);
            problem.a = Operand::from_fn(m, k, case.a, |row, col| a.at(row + down, col + across));
            problem.b = Operand::from_fn(k, 1, Layout::COLUMNS, |row, _| x.at(row + x_shift, 0));
            let (whole, all) = (a.view().matrix().unwrap(), x.view().vector().unwrap());
            // SAFETY: the matrix and the vector have these elements.
            let (data, tail) = unsafe { (whole.data().from_unchecked(a_shift), all.data().from_unchecked(x_shift)) };
            let (row_stride, col_stride) = (whole.row_stride() as usize, whole.col_stride() as usize);
            let part = Matrix::new(data, m, k, row_stride, col_stride).unwrap();
            let mut y = problem.c.clone();
            let out = y.view_mut().vector_mut().unwrap();
            let gemv = SplitGemv::new(1.0, part, Vector::new(tail, k, 1).unwrap(), 0.0, out).unwrap();
            launch_for(order, gemv);
            problem.expected().check(&y).unwrap();
        }
    }
}

/// Of a matrix by columns, whether a thread has four neighbours in one load, from where columns begin or not, or rows that are apart.
#[test]
fn sums_have_the_same_bits_wherever_columns_begin() {
    for (m, k) in [(4, 9), (8, 5), (64, 100), (128, 40), (260, 33), (1024, 300), (6400, 40), (6404, 77)] {
        let (case, padding) = (Case::new(m, k, Layout::COLUMNS), Layout::COLUMNS.padded(1));
        let (aligned, mut problem) = (case.problem(7), case.problem(7));
        problem.a = Operand::from_fn(m, k, padding, |row, col| aligned.a.at(row, col));
        let (y, other) = (case.run(&aligned), case.run(&problem));
        for row in 0..m {
            assert_eq!(y.at(row, 0).to_bits(), other.at(row, 0).to_bits(), "row {row} of {m}x{k}");
        }
    }
}

/// The second pass adds up what is there, the same way every time, and nothing else.
#[test]
fn partials_are_added_up() {
    for (splits, m) in [(1, 1), (7, 40), (8, 32), (33, 70), (300, 1), (2100, 2), (7, 1030), (100, 700)] {
        for layout in [Layout::ROWS, Layout::ROWS.padded(2), Layout::COLUMNS] {
            // Small integers, so that every order gives the same sum.
            let partials = Operand::from_fn(splits, m, layout, |split, row| ((split * 7 + row * 3) % 32) as f32);
            let mut y = Operand::random(m, 1, Layout::COLUMNS.spread(2), 1);
            y.fill(2.0);
            add_up(0.5, &partials, -1.0, &mut y);
            y.check_surroundings().unwrap();
            for row in 0..m {
                let sum: f32 = (0..splits).map(|split| partials.at(split, row)).sum();
                assert_eq!(y.at(row, 0), 0.5 * sum - 2.0, "row {row}, {splits} splits");
            }
        }
    }
}

#[test]
fn the_atomic_kernel_adds_to_a_scaled_result() {
    for (m, k, splits) in [(5, 300, 1), (12, 9001, 4), (1, 70, 3), (9, 0, 2)] {
        for (alpha, beta) in [(1.0, 0.0), (-0.5, 2.0), (0.0, 3.0)] {
            let case = Case { alpha, beta, ..Case::new(m, k, Layout::ROWS.padded(m)) };
            let mut problem = case.problem(1);
            if beta == 0.0 {
                problem.c.fill(f32::NAN);
            }
            let mut y = problem.c.clone();
            let column = y.view_mut().matrix_mut().unwrap();
            launch(gemm_split_reduction_fp32 { reduction: SplitReduction::scaling(beta, column).unwrap() });
            let (a, x) = (problem.a.view().matrix().unwrap(), problem.b.view().vector().unwrap());
            let gemv = SplitGemv::new(alpha, a, x, 1.0, y.view_mut().vector_mut().unwrap()).unwrap();
            launch(gemv_split_atomic_fp32 { gemv, splits: splits as u32 });
            problem.expected().check(&y).unwrap();
        }
    }
}

#[test]
fn special_values_come_out_in_their_class() {
    for a in [Layout::ROWS, Layout::COLUMNS, Layout::ROWS.padded(1), Layout::COLUMNS.padded(1)] {
        for splits in [1, 3] {
            let case = Case { splits, ..Case::new(12, 700, a) };
            let mut problem = case.problem(1);
            problem.a.set(1, 3, f32::INFINITY);
            problem.a.set(2, 699, f32::NAN);
            problem.a.set(3, 0, f32::INFINITY);
            problem.a.set(3, 600, f32::NEG_INFINITY);
            problem.b.set(3, 0, 1.0);
            problem.b.set(0, 0, 1.0);
            problem.b.set(600, 0, 1.0);
            let y = case.run(&problem);
            for row in 0..12 {
                let found = y.at(row, 0);
                match row {
                    1 => assert_eq!(found, f32::INFINITY),
                    2 | 3 => assert!(found.is_nan(), "{found}"),
                    _ => assert!(found.is_finite(), "{found}"),
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let data = vec![0.0; 64];
    let slice = GlobalSlice::new(&data);
    let (by_rows, by_cols) = (Matrix::new(slice, 8, 8, 8, 1).unwrap(), Matrix::new(slice, 8, 8, 1, 8).unwrap());
    let (x, short) = (Vector::new(slice, 8, 1).unwrap(), Vector::new(slice, 7, 1).unwrap());
    let mut result = vec![0.0; 64];
    let mut other = vec![0.0; 64];
    let y = VectorMut::new(GlobalSliceMut::new(&mut result), 8, 2).unwrap();
    let out = GlobalSliceMut::new(&mut other);
    let [partials, none, narrow] =
        [(4, 8), (0, 8), (4, 7)].map(|(rows, cols)| MatrixMut::new(out, rows, cols, 8, 1).unwrap());
    let mismatch = |result: Result<SplitGemv<'_>, ShapeError>| matches!(result, Err(ShapeError::Mismatch { .. }));
    assert!(mismatch(SplitGemv::new(1.0, by_rows, short, 0.0, y)));
    assert!(mismatch(SplitGemv::split(by_rows, x, none)));
    assert!(mismatch(SplitGemv::split(by_rows, x, narrow)));
    assert_eq!(SplitGemv::split(by_rows, x, partials).unwrap().splits(), 4);

    let gemv = |a, beta| SplitGemv::new(1.0, a, x, beta, y).unwrap();
    gemv_split_fp32 { gemv: gemv(by_rows, 0.0) }.check().unwrap();
    gemv_transposed_split_fp32 { gemv: gemv(by_cols, 0.0) }.check().unwrap();
    assert!(gemv_split_fp32 { gemv: gemv(by_cols, 0.0) }.check().is_err());
    assert!(gemv_transposed_split_fp32 { gemv: gemv(by_rows, 0.0) }.check().is_err());
    gemv_split_atomic_fp32 { gemv: gemv(by_rows, 1.0), splits: 3 }.check().unwrap();
    let refused = |gemv, splits, condition: &str| {
        let violation = gemv_split_atomic_fp32 { gemv, splits }.check().unwrap_err();
        assert!(violation.condition.contains(condition), "{violation}");
    };
    refused(gemv(by_rows, 0.0), 3, "beta");
    refused(gemv(by_rows, 1.0), 0, "splits > 0");
    refused(SplitGemv::split(by_rows, x, partials).unwrap(), 1, "splits()");
}

#[test]
fn splits_fill_a_gpu_and_no_more() {
    assert_eq!(gemv_splits(1, 2048, 1 << 20, 132), 33);
    assert_eq!(gemv_splits(1, 8192, 8192, 132), 1);
    assert_eq!(gemv_splits(1, 1 << 20, 64, 132), 1);
    assert_eq!(gemv_splits(1, 1, 1 << 28, 132), 8 * 132);
    assert_eq!(gemv_splits(1, 1, 1 << 17, 132), 53);
    assert_eq!(gemv_splits(512, 128, 160, 132), 1);
    assert_eq!(gemv_splits(1, 0, 0, 132), 1);
    assert_eq!(gemv_transposed_splits(1, 2048, 1 << 20, 132), 1056);
    assert_eq!(gemv_transposed_splits(1, 1 << 20, 64, 132), 1);
    assert_eq!(gemv_transposed_splits(1, 0, 0, 132), 1);
}
