//! Plans on the executor: that what they compute is right, in every precision and from wherever it lies.

use cuda_std::executor::Checks;
use host::check::{Outcome, Reference};
use ndarray::{Array2, ArrayView2, ShapeBuilder};
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::{Description, GemmPlan, Options, Workspace};
use tilewright::{Device, DeviceError, DeviceMatrix, Error, Order, Precision, Sizes};

fn kernel(name: &str) -> &'static KernelInfo {
    kernels::find(name).unwrap()
}

/// How a matrix lies in a buffer of the executor.
#[derive(Clone, Copy, Debug)]
struct Lay {
    order: Order,
    /// From one neighbour to the next.
    step: usize,
    /// What the leading dimension has more than it needs.
    padding: usize,
    /// The elements before the first matrix.
    offset: usize,
}

const PLAIN: Lay = Lay { order: Order::RowMajor, step: 1, padding: 0, offset: 0 };

/// Whole and half numbers of either sign, the same for the same seed.
fn elements(count: usize, rows: usize, cols: usize, seed: usize) -> Vec<Array2<f32>> {
    let mut state = seed as u64 + 1;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| Array2::from_shape_simple_fn((rows, cols), &mut next)).collect()
}

/// Uploads matrices so that they lie as asked for. What lies between them is NaN.
fn there(device: &Device, matrices: &[Array2<f32>], lay: Lay) -> DeviceMatrix {
    let (rows, cols) = matrices.first().map_or((0, 0), Array2::dim);
    let [lines, length] = lay.order.lines(rows, cols);
    let line = length * lay.step + lay.padding;
    let strides = lay.order.strides(line, lay.step);
    let size = lines * line + 3;
    let mut memory = vec![f32::NAN; lay.offset + matrices.len() * size];
    for (index, matrix) in matrices.iter().enumerate() {
        for ((row, col), &element) in matrix.indexed_iter() {
            memory[lay.offset + index * size + row * strides[0] + col * strides[1]] = element;
        }
    }
    let matrix = DeviceMatrix::new(device.upload(&memory).unwrap(), rows, cols, strides).unwrap();
    matrix.moved_by(lay.offset).unwrap().into_batch(matrices.len(), size).unwrap()
}

/// A product on the executor, and whether it is right.
struct Trial {
    sizes: [usize; 3],
    batch: usize,
    lays: [Lay; 3],
    factors: (f32, f32),
    options: Options,
}

impl Trial {
    fn new(sizes: [usize; 3], options: impl Into<Options>) -> Self {
        Self { sizes, batch: 1, lays: [PLAIN; 3], factors: (1.0, 0.0), options: options.into() }
    }

    /// Computes it twice, and checks that the bits are the same, that they are right, and what lies around them.
    #[track_caller]
    fn run(self) -> GemmPlan {
        let device = Device::cpu(Checks::Full);
        let ([m, n, k], (alpha, beta)) = (self.sizes, self.factors);
        let (a, b, c) = (elements(self.batch, m, k, 1), elements(self.batch, k, n, 2), elements(self.batch, m, n, 3));
        let (a_there, b_there) = (there(&device, &a, self.lays[0]), there(&device, &b, self.lays[1]));
        let mut results = Vec::new();
        let mut made = None;
        for _ in 0..2 {
            let mut c_there = there(&device, &c, self.lays[2]);
            let product = Description::of(alpha, &a_there, &b_there, beta, &c_there).unwrap();
            let plan = GemmPlan::new(&device, &product, &self.options).unwrap();
            let mut workspace = plan.workspace(&device).unwrap();
            workspace.clear().unwrap();
            plan.run(&device, alpha, &a_there, &b_there, beta, &mut c_there, &mut workspace).unwrap();
            let mut memory = vec![0.0; c_there.buffer().len()];
            c_there.buffer().copy_to(&mut memory).unwrap();
            let nans = memory.iter().filter(|element| element.is_nan()).count();
            assert_eq!(nans, memory.len() - self.batch * m * n, "what is no element was written");
            let mut result = vec![Array2::zeros((m, n).f()); self.batch];
            c_there.download_all(&mut result.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>()).unwrap();
            results.push(result);
            made = Some(plan);
        }
        let plan = made.unwrap();
        for index in 0..self.batch {
            let outcome = judged(&plan, alpha, [&a[index], &b[index], &c[index]], beta, results[0][index].view());
            assert!(outcome.passed, "{}: {outcome:?}", plan.explanation());
            let bits = |it: &Array2<f32>| it.iter().map(|element| element.to_bits()).collect::<Vec<_>>();
            if plan.kernel().deterministic {
                assert_eq!(bits(&results[0][index]), bits(&results[1][index]), "{}", plan.explanation());
            }
        }
        plan
    }
}

fn judged(
    plan: &GemmPlan,
    alpha: f32,
    [a, b, c]: [&Array2<f32>; 3],
    beta: f32,
    result: ArrayView2<'_, f32>,
) -> Outcome {
    Reference::new(alpha, a.view(), b.view(), beta, c.view()).check_in(plan.precision(), result)
}

/// The precisions that the executor has kernels for.
const ON_CPU: [Precision; 6] =
    [Precision::Fp32Rounded, Precision::Fp32Strict, Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];

#[test]
fn planned_products_are_right_in_every_precision() {
    let by_columns = Lay { order: Order::ColumnMajor, ..PLAIN };
    for precision in ON_CPU {
        for lays in [[PLAIN; 3], [by_columns, PLAIN, by_columns], [PLAIN, by_columns, PLAIN]] {
            Trial { lays, ..Trial::new([33, 17, 70], precision) }.run();
        }
        Trial { factors: (-0.5, 2.0), batch: 3, ..Trial::new([5, 40, 37], precision) }.run();
        Trial { factors: (0.0, 2.0), ..Trial::new([5, 40, 37], precision) }.run();
    }
    let plan = Trial::new([8, 8, 2600], Precision::Fp32).run();
    assert_eq!(plan.kernel().name, "gemm_mma_nn_fp32_3xtf32");
}

#[test]
fn divided_sums_are_right_and_the_same_every_time() {
    for (splits, batch) in [(2, 1), (5, 1), (3, 2)] {
        for precision in ON_CPU {
            let options = Options { splits: Some(splits), ..Options::from(precision) };
            let lay = Lay { order: Order::ColumnMajor, padding: 3, ..PLAIN };
            let trial =
                Trial { batch, factors: (0.5, -1.0), lays: [PLAIN, PLAIN, lay], ..Trial::new([19, 21, 150], options) };
            let plan = trial.run();
            assert_eq!(plan.splits(), splits);
            // Sums in fp64 have two parts. C is computed as its transpose, whose rows of 19 take the place of 20.
            let bytes = if precision == Precision::Fp32Rounded { 8 } else { 4 };
            assert_eq!(plan.workspace_bytes(), bytes * 20 * 21 * batch * splits as usize, "{}", plan.explanation());
        }
    }
}

#[test]
fn vectors_are_right_from_either_side_and_with_every_kernel() {
    let by_columns = Lay { order: Order::ColumnMajor, ..PLAIN };
    for splits in [None, Some(4)] {
        for (kernel_name, lay) in [("gemv_split_fp32", PLAIN), ("gemv_transposed_split_fp32", by_columns)] {
            let options = Options { splits, ..Options::from(kernel(kernel_name)) };
            for batch in [1, 3] {
                let spread = Lay { step: 2, ..PLAIN };
                let lays = [lay, spread, Lay { padding: 2, ..spread }];
                let trial = Trial { lays, batch, factors: (2.0, 0.5), ..Trial::new([37, 1, 300], options.clone()) };
                trial.run();
            }
        }
        // A row times a matrix.
        let options = Options { splits, ..Options::from(Precision::Fp32Strict) };
        let plan = Trial { factors: (2.0, 0.5), ..Trial::new([1, 37, 300], options) }.run();
        assert_eq!(plan.kernel().name, "gemv_transposed_split_fp32");
        let atomic = Options { splits, ..Options::from(kernel("gemv_split_atomic_fp32")) };
        Trial { factors: (2.0, 0.5), ..Trial::new([37, 1, 300], atomic) }.run();
    }
}

#[test]
fn operands_with_gaps_everywhere_are_copied_and_right() {
    let spread = Lay { order: Order::RowMajor, step: 3, padding: 2, offset: 1 };
    for precision in ON_CPU {
        for lays in [[spread, PLAIN, PLAIN], [PLAIN, spread, PLAIN], [spread, spread, spread]] {
            let plan = Trial { lays, batch: 2, factors: (1.5, -0.5), ..Trial::new([18, 23, 35], precision) }.run();
            let copies = plan.explanation().steps.iter().filter(|step| step.starts_with("copy")).count();
            assert_eq!(copies, lays[..2].iter().filter(|lay| lay.step > 1).count(), "{}", plan.explanation());
        }
    }
    // Copies, divided sums and a batch that shares an operand, all in one workspace.
    let device = Device::cpu(Checks::Full);
    let (a, b) = (elements(2, 18, 40, 1), elements(1, 40, 23, 2));
    let a_there = there(&device, &a, spread);
    let b_there = there(&device, &b, spread).into_batch(2, 0).unwrap();
    let mut c_there = there(&device, &elements(2, 18, 23, 3), PLAIN);
    let product = Description::of(1.0, &a_there, &b_there, 0.0, &c_there).unwrap();
    let options = Options { splits: Some(2), ..Options::from(Precision::Fp32) };
    let plan = GemmPlan::new(&device, &product, &options).unwrap();
    let steps = &plan.explanation().steps;
    assert!(steps.len() == 4 && steps[0].contains("A, all of the batch") && steps[1].contains("B into"), "{steps:?}");
    let mut workspace = plan.workspace(&device).unwrap();
    plan.run(&device, 1.0, &a_there, &b_there, 0.0, &mut c_there, &mut workspace).unwrap();
    let mut results = vec![Array2::zeros((18, 23)); 2];
    c_there.download_all(&mut results.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>()).unwrap();
    for (a, result) in a.iter().zip(&results) {
        let c = Array2::zeros((18, 23));
        assert!(judged(&plan, 1.0, [a, &b[0], &c], 0.0, result.view()).passed);
    }
}

#[test]
fn nothing_is_computed_of_nothing() {
    for sizes in [[0, 3, 4], [3, 0, 4], [0, 0, 0], [3, 4, 0]] {
        for precision in ON_CPU {
            Trial { factors: (1.0, 2.0), ..Trial::new(sizes, precision) }.run();
        }
    }
    Trial { batch: 0, ..Trial::new([0, 0, 0], Precision::Fp32) }.run();
}

#[test]
fn a_plan_takes_only_what_it_was_made_for() {
    let device = Device::cpu(Checks::Full);
    let matrix = |rows, cols, lay| there(&device, &elements(1, rows, cols, 1), lay);
    let (a, b, mut c) = (matrix(8, 40, PLAIN), matrix(40, 9, PLAIN), matrix(8, 9, PLAIN));
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let options = Options { splits: Some(2), ..Options::from(Precision::Fp32) };
    let plan = GemmPlan::new(&device, &product, &options).unwrap();
    let mut workspace = plan.workspace(&device).unwrap();
    plan.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut workspace).unwrap();
    plan.run(&device, -2.0, &a, &b, 3.0, &mut c, &mut workspace).unwrap();

    let small = &mut Workspace::new(&device, plan.workspace_bytes() - 4).unwrap();
    let error = plan.run(&device, 1.0, &a, &b, 0.0, &mut c, small).unwrap_err();
    assert!(matches!(error, Error::WorkspaceTooSmall { .. }), "{error}");
    let foreign = &mut plan.workspace(&Device::cpu(Checks::Bounds)).unwrap();
    let error = plan.run(&device, 1.0, &a, &b, 0.0, &mut c, foreign).unwrap_err();
    assert!(matches!(error, Error::Device(DeviceError::ForeignView { .. })), "{error}");

    let mut mismatch = |alpha, a: &DeviceMatrix, b: &DeviceMatrix, part: &str| {
        let error = plan.run(&device, alpha, a, b, 0.0, &mut c, &mut workspace).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(part), "{message}");
        error
    };
    let gaps = Lay { padding: 3, ..PLAIN };
    assert!(matches!(mismatch(1.0, &matrix(8, 40, gaps), &b, "row-major, rows 43 apart"), Error::PlanMismatch { .. }));
    let unaligned = Lay { offset: 1, ..PLAIN };
    mismatch(1.0, &matrix(8, 40, unaligned), &b, "aligned to 4 bytes");
    mismatch(1.0, &matrix(8, 41, PLAIN), &matrix(41, 9, PLAIN), "k=41");
    mismatch(0.0, &a, &b, "alpha is zero");
    assert!(matches!(mismatch(1.0, &b, &b, "columns of A is 9"), Error::Operands { .. }));
}

#[test]
fn rows_of_operands_begin_anywhere_between_multiples_of_16_bytes() {
    let kernels = kernels::WGMMA_64X64_FP32_3XTF32
        .iter()
        .chain(&kernels::WGMMA_64X64_K32_FP32_3XTF32)
        .chain(&kernels::MMA_64X64_FP32_3XTF32);
    for (kernel, from) in kernels.zip((0..4).cycle()) {
        let lay = |order: Option<Order>, from: usize| Lay {
            order: order.unwrap(),
            offset: (from + 1) % 4,
            padding: (2 * from + 3) % 4,
            ..PLAIN
        };
        for more in [0, 1, 2] {
            let lays =
                [lay(kernel.a, from + more), lay(kernel.b, from + 2 * more + 1), lay(Some(Order::RowMajor), more)];
            Trial { lays, factors: (1.5, -0.5), ..Trial::new([66, 65, 101], kernel) }.run();
        }
    }
}

#[test]
fn a_matrix_lies_inside_its_buffer() {
    let device = Device::cpu(Checks::Bounds);
    let buffer = || device.allocate::<f32>(20).unwrap();
    assert!(DeviceMatrix::new(buffer(), 4, 5, [5, 1]).is_ok());
    assert!(DeviceMatrix::new(buffer(), 0, usize::MAX, [usize::MAX, usize::MAX]).is_ok());
    let outside = |result: Result<DeviceMatrix, Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::OutsideBuffer { len: 20, .. }), "{error}");
    };
    outside(DeviceMatrix::new(buffer(), 4, 5, [6, 1]));
    outside(DeviceMatrix::new(buffer(), usize::MAX, usize::MAX, [usize::MAX, usize::MAX]));
    outside(DeviceMatrix::new(buffer(), 4, 5, [5, 1]).unwrap().moved_by(1));
    outside(DeviceMatrix::new(buffer(), 2, 5, [5, 1]).unwrap().into_batch(3, 10));
    outside(DeviceMatrix::new(buffer(), 1, 1, [1, 1]).unwrap().into_batch(usize::MAX, usize::MAX));
    assert!(DeviceMatrix::new(buffer(), 2, 5, [5, 1]).unwrap().into_batch(2, 10).is_ok());
    assert!(DeviceMatrix::new(buffer(), 4, 5, [5, 1]).unwrap().into_batch(usize::MAX, 0).is_ok());
}

/// A batch of results in one buffer, of which each begins before the one before has ended.
fn batch_of_results(device: &Device, count: usize, rows: usize, cols: usize, strides: [usize; 3]) -> DeviceMatrix {
    let [of_rows, of_cols, of_matrices] = strides;
    let len = (rows - 1) * of_rows + (cols - 1) * of_cols + (count - 1) * of_matrices + 1;
    let memory = device.upload(&vec![f32::NAN; len]).unwrap();
    DeviceMatrix::new(memory, rows, cols, [of_rows, of_cols]).unwrap().into_batch(count, of_matrices).unwrap()
}

/// What plans are asked for: a precision, or a kernel whatever is faster.
fn ways() -> Vec<Options> {
    let basic = kernels::BASIC.into_iter().map(Options::from);
    basic.chain(ON_CPU.into_iter().map(Options::from)).collect()
}

#[test]
fn results_that_overlap_are_refused_by_every_kernel() {
    let device = Device::cpu(Checks::Full);
    for options in ways() {
        // The kernels for vectors have one column.
        let n = options.kernel.map_or(4, |kernel| kernel.within(Sizes { m: 1, n: 4, k: 1 }).n);
        let (a, b) = (elements(3, 4, 5, 1), elements(3, 5, n, 2));
        let (a, b) = (there(&device, &a, PLAIN), there(&device, &b, PLAIN));
        for of_matrices in [0, 8] {
            let mut c = batch_of_results(&device, 3, 4, n, [4, 1, of_matrices]);
            let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
            let plan = GemmPlan::new(&device, &product, &options).unwrap();
            let mut workspace = plan.workspace(&device).unwrap();
            let error = plan.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut workspace).expect_err(plan.kernel().name);
            let message = error.to_string();
            assert!(matches!(error, Error::Shape(_)), "{message}");
            assert!(message.contains(&format!("3 outputs of 4 x {n}")) && message.contains("same place"), "{message}");
            let mut memory = vec![0.0; c.buffer().len()];
            c.buffer().copy_to(&mut memory).unwrap();
            assert!(memory.iter().all(|element| element.is_nan()), "{}", plan.kernel().name);
        }
    }
}

#[test]
fn results_may_lie_between_the_rows_of_others() {
    let device = Device::cpu(Checks::Full);
    let (a, b) = (elements(3, 70, 40, 1), elements(3, 40, 36, 2));
    let (a_there, b_there) = (there(&device, &a, PLAIN), there(&device, &b, PLAIN));
    // By rows, and by columns: all rows 0, then all rows 1, and so on, with gaps.
    for strides in [[3 * 40, 1, 40], [1, 3 * 72, 72]] {
        for options in
            ways().into_iter().filter(|options| options.kernel.is_none_or(|it| it.family() == kernels::Family::Gemm))
        {
            let mut c = batch_of_results(&device, 3, 70, 36, strides);
            let product = Description::of(1.0, &a_there, &b_there, 0.0, &c).unwrap();
            let plan = GemmPlan::new(&device, &product, &options).unwrap();
            plan.run(&device, 1.0, &a_there, &b_there, 0.0, &mut c, &mut plan.workspace(&device).unwrap()).unwrap();
            let mut results = vec![Array2::zeros((70, 36)); 3];
            c.download_all(&mut results.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>()).unwrap();
            for ((a, b), result) in a.iter().zip(&b).zip(&results) {
                let outcome = judged(&plan, 1.0, [a, b, &Array2::zeros((70, 36))], 0.0, result.view());
                assert!(outcome.passed, "{}: {outcome:?}", plan.explanation());
            }
        }
        // Likewise what is scaled.
        let mut c = batch_of_results(&device, 3, 70, 40, [3 * 40, 1, 40]);
        tilewright::scale(&device, 2.0, None, &a_there, None, &mut c).unwrap();
        let mut results = vec![Array2::zeros((70, 40)); 3];
        c.download_all(&mut results.iter_mut().map(|it| it.view_mut()).collect::<Vec<_>>()).unwrap();
        assert!(a.iter().zip(&results).all(|(a, result)| *result == 2.0 * a));
    }
}
