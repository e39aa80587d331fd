//! Every kernel with epilogues, on the executor: each element shall be what the steps make, in f64, of what the same plan computes without
//! them. So a step that is left out, done twice or done in another place is seen, however the kernel rounds. And it has the bits that the steps
//! make in a launch of their own.

use cuda_std::executor::Checks;
use gpu_kernels::Matrix;
use gpu_kernels::epilogue::{StepOperand, Steps};
use gpu_kernels::gemm::split_k::{SplitReduction, gemm_split_reduction_fp32};
use rayon::prelude::*;
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Activation, Device, DeviceMatrix, Epilogue, Error, Order, Sizes};

/// Numbers between −1 and 1, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * bound as f32) as usize % bound
    }
}

/// Matrices on the host: element (row, col) of matrix `index`, and how they lie on a device.
#[derive(Clone)]
struct Matrices {
    extents: [usize; 3],
    order: Order,
    padding: usize,
    elements: Vec<f32>,
}

impl Matrices {
    fn new(extents: [usize; 3], order: Order, padding: usize, mut element: impl FnMut([usize; 3]) -> f32) -> Self {
        let [count, rows, cols] = extents;
        let all = (0..count * rows * cols).map(|i| [i / (rows * cols), i / cols.max(1) % rows.max(1), i % cols.max(1)]);
        Self { extents, order, padding, elements: all.map(&mut element).collect() }
    }

    /// The element that belongs to one of C, where an extent of 1 stands for all.
    fn at(&self, place: [usize; 3]) -> f32 {
        let [product, row, col] = std::array::from_fn(|i| if self.extents[i] == 1 { 0 } else { place[i] });
        self.elements[(product * self.extents[1] + row) * self.extents[2] + col]
    }

    fn strides(&self) -> ([usize; 2], usize) {
        let [_, rows, cols] = self.extents;
        let [lines, length] = self.order.lines(rows, cols);
        (self.order.strides(length + self.padding, 1), lines * (length + self.padding))
    }

    fn there(&self, device: &Device) -> DeviceMatrix {
        let ([count, rows, cols], (strides, stride)) = (self.extents, self.strides());
        let mut memory = vec![f32::NAN; count * stride];
        for (i, &element) in self.elements.iter().enumerate() {
            let (product, row, col) = (i / (rows * cols), i / cols % rows, i % cols);
            memory[product * stride + row * strides[0] + col * strides[1]] = element;
        }
        DeviceMatrix::new_batch(device.upload(&memory).unwrap(), [rows, cols], strides, count, stride).unwrap()
    }

    /// What is there; and nothing else may be anything but NaN.
    fn back(&self, there: &DeviceMatrix) -> Vec<f32> {
        let ([count, rows, cols], (strides, stride)) = (self.extents, self.strides());
        let mut memory = vec![0.0; there.buffer().len()];
        there.buffer().copy_to(&mut memory).unwrap();
        let elements: Vec<f32> = (0..count * rows * cols)
            .map(|i| {
                let place = i / (rows * cols) * stride + i / cols % rows * strides[0] + i % cols * strides[1];
                std::mem::replace(&mut memory[place], f32::NAN)
            })
            .collect();
        assert!(memory.iter().all(|word| word.is_nan()), "something beside C was written");
        elements
    }
}

/// A step, as the test knows it.
enum Step {
    Scale(f32),
    Offset(f32),
    Add(f32, Matrices),
    Multiply(Matrices),
    Activation(Activation),
}

impl Step {
    /// What it makes of a number in f64.
    fn of(&self, x: f64, place: [usize; 3]) -> f64 {
        match self {
            Self::Scale(factor) => x * f64::from(*factor),
            Self::Offset(summand) => x + f64::from(*summand),
            Self::Add(factor, matrices) => x + f64::from(*factor) * f64::from(matrices.at(place)),
            Self::Multiply(matrices) => x * f64::from(matrices.at(place)),
            Self::Activation(Activation::Relu) => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Activation(Activation::LeakyRelu(slope)) => {
                if x < 0.0 {
                    x * f64::from(*slope)
                } else {
                    x
                }
            }
            Self::Activation(Activation::Clamp { least, most }) => {
                let x = if x < f64::from(*least) { f64::from(*least) } else { x };
                if x > f64::from(*most) { f64::from(*most) } else { x }
            }
            Self::Activation(Activation::Tanh) => x.tanh(),
            Self::Activation(Activation::Silu) => x / (1.0 + (-x).exp()),
            Self::Activation(other) => panic!("{other:?} is none of this test's"),
        }
    }
}

/// A matrix of a step, for results of these extents.
fn operand([count, m, n]: [usize; 3], matrix: &Option<DeviceMatrix>) -> StepOperand<'_> {
    let batch = matrix.as_ref().unwrap().batch().unwrap();
    let first = batch.first();
    let stride = |has: u32, stride: u64| if has == 1 { 0 } else { stride as usize };
    let (row, col) = (stride(first.rows(), first.row_stride()), stride(first.cols(), first.col_stride()));
    let all = Matrix::new(first.data(), m, n, row, col).unwrap();
    StepOperand::new(all, stride(batch.count(), batch.stride()), count).unwrap()
}

/// Does the steps to results that are there, in a launch of their own.
fn launch_steps(device: &Device, steps: &[Step], there: &[Option<DeviceMatrix>], c: &mut DeviceMatrix) {
    let extents = [c.count(), c.rows(), c.cols()];
    let all = steps.iter().zip(there).try_fold(Steps::none(), |all, (step, there)| match step {
        Step::Scale(factor) => all.scale(*factor),
        Step::Offset(summand) => all.offset(*summand),
        Step::Add(factor, _) => all.add(*factor, operand(extents, there)),
        Step::Multiply(_) => all.multiply(operand(extents, there)),
        Step::Activation(activation) => all.activation(*activation),
    });
    let reduction = SplitReduction::scaling(1.0, c.batch_mut(false).unwrap()).unwrap();
    device.launch(gemm_split_reduction_fp32 { reduction: reduction.with_steps(all.unwrap()).unwrap() }).unwrap();
}

/// The kinds of epilogues: each has what others have not, of a product of these extents.
fn epilogue(kind: usize, [count, m, n]: [usize; 3], numbers: &mut Numbers) -> Vec<Step> {
    let mut matrices = |extents, order, padding| Matrices::new(extents, order, padding, |_| numbers.next());
    match kind {
        // A bias for each column, and what comes with it in networks.
        0 => vec![
            Step::Add(1.0, matrices([1, 1, n], Order::RowMajor, 0)),
            Step::Activation(Activation::Tanh),
            Step::Add(-0.5, matrices([count, m, n], Order::RowMajor, 3)),
            Step::Scale(3.0),
        ],
        // A factor and a bias for each row, of each product its own.
        1 => vec![
            Step::Multiply(matrices([1, m, 1], Order::ColumnMajor, 0)),
            Step::Add(2.0, matrices([count, m, 1], Order::ColumnMajor, 5)),
            Step::Activation(Activation::Relu),
        ],
        // Numbers alone.
        2 => vec![
            Step::Offset(0.25),
            Step::Activation(Activation::LeakyRelu(0.1)),
            Step::Activation(Activation::Clamp { least: -0.3, most: 2.0 }),
        ],
        // What is no bias, though it is added first; and bounds.
        3 => vec![
            Step::Add(0.75, matrices([count, m, n], Order::RowMajor, 2)),
            Step::Activation(Activation::Clamp { least: -0.5, most: 1.5 }),
        ],
        // A bias for each column of each product, bounds, and a function behind them.
        4 => vec![
            Step::Add(1.5, matrices([count, 1, n], Order::RowMajor, 1)),
            Step::Activation(Activation::Clamp { least: -0.25, most: 1.5 }),
            Step::Scale(-2.0),
        ],
        // Bounds alone, and a bias behind them.
        5 => vec![
            Step::Activation(Activation::Clamp { least: 0.125, most: 2.0 }),
            Step::Add(1.0, matrices([1, 1, n], Order::RowMajor, 0)),
        ],
        _ => vec![Step::Activation(Activation::Silu), Step::Add(1.0, matrices([count, m, n], Order::ColumnMajor, 1))],
    }
}

const KINDS: usize = 7;

/// What is special about the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbered {
    Plain,
    /// A row of A and a column of B whose numbers tensor cores cannot decompose.
    TooSmall,
    /// Columns of B with one number other than zero each.
    Selecting,
    /// Infinities and NaN.
    NotFinite,
}

/// What a plan did.
struct Ran {
    /// Whether a launch of its own did the epilogue.
    launches_more: bool,
    /// Whether the kernel did it.
    is_fused: bool,
    /// Whether there was one that computed elements again.
    repairs: bool,
    /// The results without an epilogue.
    plain: Vec<f32>,
}

/// A product with an epilogue.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: Sizes,
    batch: usize,
    orders: [Order; 3],
    padding: usize,
    factors: [f32; 2],
    splits: Option<u32>,
    kind: usize,
    numbered: Numbered,
    seed: u64,
}

impl Case {
    fn operands(&self) -> [Matrices; 3] {
        let (Sizes { m, n, k }, mut numbers) = (self.sizes, Numbers(self.seed));
        let (batch, numbered) = (self.batch, self.numbered);
        let [a, b, c] = self.orders;
        let mut number = |is_special: bool, is_alone: bool| {
            let number = numbers.next();
            match numbered {
                Numbered::TooSmall if is_special => number * 2f32.powi(-128),
                Numbered::TooSmall => number * 2f32.powi(20),
                Numbered::Selecting if !is_alone => 0.0,
                Numbered::NotFinite if is_special && is_alone => f32::NEG_INFINITY,
                _ => number,
            }
        };
        let a = Matrices::new([batch, m, k], a, self.padding, |[_, row, l]| {
            number(row == m / 2, l == k / 3 || numbered == Numbered::Selecting)
        });
        let b =
            Matrices::new([batch, k, n], b, self.padding, |[_, l, col]| number(col == n / 3, l == 11 * col % k.max(1)));
        let c = Matrices::new([batch, m, n], c, self.padding, |_| number(false, true));
        [a, b, c]
    }

    /// Compares results without an epilogue with sums in f64.
    fn compare_with_sums(&self, name: &str, plain: &[f32]) {
        let ([a, b, c], Sizes { n, k, .. }) = (self.operands(), self.sizes);
        let [alpha, beta] = self.factors.map(f64::from);
        for (i, &found) in plain.iter().enumerate() {
            let [product, row, col] = [i / (self.sizes.m * n), i / n % self.sizes.m, i % n];
            let terms = (0..k).map(|l| f64::from(a.at([product, row, l])) * f64::from(b.at([product, l, col])));
            let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()));
            let old = if beta == 0.0 { 0.0 } else { beta * f64::from(c.at([product, row, col])) };
            let expected = if alpha == 0.0 { old } else { alpha * sum + old };
            let is_right = match expected.is_finite() {
                true => (f64::from(found) - expected).abs() <= 1e-5 * (magnitude + old.abs()).max(1e-37),
                false => found.is_nan() && expected.is_nan() || f64::from(found) == expected,
            };
            assert!(is_right, "{name}: {self:?}: element {:?} is {found}, not {expected}", [product, row, col]);
        }
    }

    /// Runs it without the epilogue and with it, if the kernel can compute it.
    fn run(&self, device: &Device, kernel: &'static KernelInfo) -> Option<Ran> {
        let [a, b, c] = self.operands();
        let [a_there, b_there] = [&a, &b].map(|matrices| matrices.there(device));
        let steps = epilogue(self.kind, c.extents, &mut Numbers(self.seed + 1));
        let there: Vec<Option<DeviceMatrix>> = steps
            .iter()
            .map(|step| match step {
                Step::Add(_, matrices) | Step::Multiply(matrices) => Some(matrices.there(device)),
                _ => None,
            })
            .collect();
        let built = steps.iter().zip(&there).fold(Epilogue::new(), |built, (step, there)| match (step, there) {
            (Step::Add(factor, _), Some(there)) => built.add(*factor, there),
            (Step::Multiply(_), Some(there)) => built.multiply(there),
            (Step::Scale(factor), _) => built.scale(*factor),
            (Step::Offset(summand), _) => built.offset(*summand),
            (Step::Activation(activation), _) => built.activation(*activation),
            _ => unreachable!("each matrix is there"),
        });
        let options = Options { splits: self.splits, ..Options::from(kernel) };
        let [alpha, beta] = self.factors;
        let mut ran = Ran { launches_more: false, is_fused: false, repairs: false, plain: Vec::new() };
        let [plain, found] = [Epilogue::new(), built].map(|epilogue| {
            let mut c_there = c.there(device);
            let product = Description::of(alpha, &a_there, &b_there, beta, &c_there).unwrap();
            let product = product.with_epilogue(!epilogue.is_empty());
            let plan = match GemmPlan::new(device, &product, &options) {
                Ok(plan) => plan,
                Err(Error::Ineligible { .. } | Error::Usage(_)) => return None,
                Err(error) => panic!("{}: {self:?}: {error}", kernel.name),
            };
            let has_step = |words: &str| plan.explanation().steps.iter().any(|step| step.contains(words));
            ran = Ran {
                launches_more: has_step("do the steps of the epilogue with gemm_split_reduction_fp32"),
                is_fused: plan
                    .explanation()
                    .steps
                    .iter()
                    .any(|step| step.starts_with("multiply with") && step.contains("do the steps of the epilogue")),
                repairs: has_step("compute tiles again"),
                plain: Vec::new(),
            };
            let mut workspace = plan.workspace(device).unwrap();
            workspace.clear().unwrap();
            let ran = plan.run_with(device, &epilogue, alpha, &a_there, &b_there, beta, &mut c_there, &mut workspace);
            ran.unwrap_or_else(|error| panic!("{}: {self:?}: {error}", kernel.name));
            let results = c.back(&c_there);
            if epilogue.is_empty() {
                launch_steps(device, &steps, &there, &mut c_there);
            }
            Some((results, c.back(&c_there)))
        });
        let ((plain, by_launch), (found, _)) = (plain?, found?);
        let [_, m, n] = c.extents;
        for (i, (&plain, &found)) in plain.iter().zip(&found).enumerate() {
            let place = [i / (m * n), i / n % m, i % n];
            let expected = steps.iter().fold(f64::from(plain), |x, step| step.of(x, place));
            // What the steps round, of numbers that are not much larger than what comes of them; where additions come in no order, what is put
            // into them is not the same twice.
            let rounding = if kernel.deterministic { 1e-6 } else { 1e-4 };
            let magnitude = expected.abs().max(f64::from(plain).abs()).max(4.0);
            let is_same = (f64::from(found) - expected).abs() <= rounding * magnitude;
            assert!(
                is_same || f64::from(found) == expected || found.is_nan() && expected.is_nan(),
                "{}: {self:?}: element {place:?} is {found} and should be {expected}, of {plain}",
                kernel.name
            );
            let by_launch = by_launch[i];
            assert!(
                !kernel.deterministic || found.to_bits() == by_launch.to_bits() || found.is_nan() && by_launch.is_nan(),
                "{}: {self:?}: element {place:?} is {found:e}, and by a launch of its own {by_launch:e}",
                kernel.name
            );
        }
        ran.plain = plain;
        Some(ran)
    }
}

/// Products for a kernel: `count` of them, drawn by `seed`.
fn cases(kernel: &KernelInfo, sizes: &[[usize; 3]], count: usize, seed: u64) -> Vec<Case> {
    let mut numbers = Numbers(seed);
    let both = [Order::RowMajor, Order::ColumnMajor];
    let mut drawn = |index: usize| {
        let [m, n, k] = sizes[index % sizes.len()];
        Case {
            sizes: kernel.within(Sizes { m, n, k }),
            batch: 1 + numbers.below(2),
            // As the kernel needs them, so that nothing is copied, and C as it comes.
            orders: [
                kernel.a.unwrap_or(both[numbers.below(2)]),
                kernel.b.unwrap_or(both[numbers.below(2)]),
                both[numbers.below(2)],
            ],
            padding: [0, 4, 3][numbers.below(3)],
            factors: [[1.0, 0.0], [0.7, 0.0], [1.0, -0.3], [0.0, 1.0]][numbers.below(4)],
            splits: [None, None, Some(3)][numbers.below(3)],
            kind: index % KINDS,
            numbered: Numbered::Plain,
            seed: seed + 7 * index as u64,
        }
    };
    (0..count).map(&mut drawn).collect()
}

#[test]
fn every_kernel_does_the_steps_once_and_in_their_order() {
    let device = Device::cpu(Checks::Full);
    let sizes = [[37, 36, 20], [130, 68, 33], [5, 70, 16], [70, 3, 65], [16, 16, 0], [33, 4, 9]];
    kernels::ALL.par_iter().for_each(|kernel| {
        let computed = cases(kernel, &sizes, 12, 1).iter().filter(|case| case.run(&device, kernel).is_some()).count();
        assert!(computed >= 2, "{} has computed {computed} of the cases", kernel.name);
    });
}

#[test]
fn tiles_that_are_computed_again_have_the_steps_once() {
    let device = Device::cpu(Checks::Bounds);
    let computed: usize = kernels::ALL
        .par_iter()
        .map(|kernel| {
            let all = cases(kernel, &[[70, 68, 48]], 2, 2).into_iter();
            let of_all = |numbered| all.clone().map(move |case| Case { numbered, ..case });
            let special = [Numbered::TooSmall, Numbered::Selecting, Numbered::NotFinite];
            special.into_iter().flat_map(of_all).filter(|case| case.run(&device, kernel).is_some()).count()
        })
        .sum();
    assert!(computed > 3 * kernels::ALL.len(), "{computed}");
}

/// So many rows that several blocks have some of them as a whole, each with steps of its own rows.
#[test]
fn steps_are_those_of_the_rows_that_a_block_has() {
    let device = Device::cpu(Checks::Bounds);
    let kernel = kernels::find("gemm_whole_rows_fp32").unwrap();
    let all = cases(kernel, &[[2900, 9, 3], [2500, 8, 4]], 24, 11).into_par_iter();
    let computed = all.filter(|case| case.run(&device, kernel).is_some()).count();
    assert!(computed >= 4, "{computed}");
}

/// So many columns, and enough k, that blocks share the scan of operands, and leave elements to be computed again by a launch of its own.
#[test]
fn steps_are_done_where_tiles_are_repaired() {
    let device = Device::cpu(Checks::Bounds);
    let kernel = kernels::find("gemm_wgmma_nn_fp32_3xtf32").unwrap();
    let cases = [
        (0, Numbered::TooSmall, 1),
        (2, Numbered::TooSmall, 1),
        (1, Numbered::Selecting, 1),
        (2, Numbered::TooSmall, 2),
    ];
    cases.into_par_iter().for_each(|(kind, numbered, splits)| {
        let case = Case {
            sizes: Sizes { m: 20, n: 900, k: 1030 * splits as usize },
            batch: 1,
            orders: [Order::RowMajor; 3],
            padding: 0,
            factors: [1.0, 0.0],
            splits: Some(splits),
            kind,
            numbered,
            seed: 3,
        };
        let ran = case.run(&device, kernel).unwrap();
        assert!(ran.repairs, "{case:?}");
    });
}

/// The kernels of large products, and those whose time is that of storing: each does the steps itself, and so does the one that computes the tiles it leaves; in any order of C, and
/// with the old C.
#[test]
fn kernels_that_do_the_steps_need_no_launch_for_them() {
    let device = Device::cpu(Checks::Bounds);
    let names = [
        "gemm_wgmma_packed_fp32_3xfp16",
        "gemm_wgmma_packed_fp32_normwise",
        "gemm_wgmma_packed_staged_fp32_3xfp16",
        "gemm_wgmma_packed_staged_fp32_normwise",
        "gemm_wgmma_packed_short_fp32_3xfp16",
        "gemm_wgmma_packed_short_rows_fp32_3xfp16",
        "gemm_wgmma_nn_fp32_3xtf32",
        "gemm_wgmma_nt_fp32_3xtf32",
        "gemm_wgmma_tn_fp32_3xtf32",
        "gemm_wgmma_tt_fp32_3xtf32",
        "gemm_wgmma_256x64_nt_fp32_3xtf32",
        "gemm_wgmma_256x32_tn_fp32_3xtf32",
        "gemm_wgmma_anywhere_nn_fp32_3xtf32",
        "gemm_wgmma_anywhere_nt_fp32_3xtf32",
        "gemm_wgmma_anywhere_tn_fp32_3xtf32",
        "gemm_wgmma_anywhere_tt_fp32_3xtf32",
        "gemm_wgmma_anywhere_256x64_nt_fp32_3xtf32",
        "gemm_wgmma_anywhere_256x64_tn_fp32_3xtf32",
        "gemm_wgmma_anywhere_256x32_tn_fp32_3xtf32",
        "gemm_wgmma_anywhere_256x32_nt_fp32_3xtf32",
        "gemm_outer_32_fp32",
        "gemm_outer_256_fp32",
        "gemm_outer_1024_fp32",
        "gemm_whole_fp32",
        "gemm_whole_rows_fp32",
    ];
    // More than a group of rows and of columns that one flag is for; columns that are whole vectors, and others.
    let sizes = [[300, 300, 40], [263, 261, 70], [290, 268, 33]];
    names.into_par_iter().for_each(|name| {
        let kernel = kernels::find(name).unwrap();
        let all = cases(kernel, &sizes, 6, 5);
        let special = [Numbered::Plain, Numbered::NotFinite, Numbered::Plain, Numbered::TooSmall];
        let ran: Vec<Ran> = (all.into_iter().enumerate())
            .map(|(i, case)| Case { splits: None, numbered: special[(i + i / 4) % 4], ..case })
            .filter_map(|case| {
                let ran = case.run(&device, kernel)?;
                // (Normwise, a product is as accurate as the largest elements allow.)
                if !name.ends_with("normwise") {
                    case.compare_with_sums(name, &ran.plain);
                }
                Some(ran)
            })
            .collect();
        assert!(ran.len() >= 2, "{name} has computed {}", ran.len());
        assert!(ran.iter().all(|ran| ran.is_fused && !ran.launches_more), "{name}");
    });
}

#[test]
fn epilogues_that_do_not_fit_are_refused() {
    let device = Device::cpu(Checks::Bounds);
    let zeros = |rows, cols| DeviceMatrix::upload(&device, ndarray::Array2::zeros((rows, cols)).view()).unwrap();
    let (a, b, mut c) = (zeros(4, 5), zeros(5, 3), zeros(4, 3));
    let mut refused = |epilogue: &Epilogue<'_>| {
        let options = tilewright::Precision::Fp32;
        tilewright::multiply_with(&device, options, epilogue, 1.0, &a, &b, 0.0, &mut c).unwrap_err().to_string()
    };
    let (wide, tall) = (zeros(1, 4), zeros(3, 1));
    let error = refused(&Epilogue::new().add(1.0, &wide));
    assert!(error.contains("the number of columns of a matrix of the epilogue, not being 1, is 4"), "{error}");
    let error = refused(&Epilogue::new().multiply(&tall));
    assert!(error.contains("is 3, but that of C is 4"), "{error}");
    let many = (0..9).fold(Epilogue::new(), |epilogue, _| epilogue.scale(2.0));
    assert!(refused(&many).contains("9 steps"), "{}", refused(&many));
    let row = zeros(1, 3);
    let matrices = (0..4).fold(Epilogue::new(), |epilogue, _| epilogue.add(1.0, &row));
    assert!(refused(&matrices).contains("4 of them with a matrix"), "{}", refused(&matrices));
    // A plan for a product without an epilogue.
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let plan = GemmPlan::new(&device, &product, &Options::default()).unwrap();
    let mut workspace = plan.workspace(&device).unwrap();
    let epilogue = Epilogue::new().scale(2.0);
    let error = plan.run_with(&device, &epilogue, 1.0, &a, &b, 0.0, &mut c, &mut workspace).unwrap_err();
    assert!(matches!(error, Error::PlanMismatch { what: "the epilogue is", .. }), "{error}");
}

#[test]
fn a_kernel_that_only_adds_is_followed_by_a_launch() {
    let device = Device::cpu(Checks::Full);
    let kernel = kernels::find("gemv_split_atomic_fp32").unwrap();
    let cases = cases(kernel, &[[300, 1, 500]], 8, 4);
    let launches: Vec<bool> = cases.iter().filter_map(|case| Some(case.run(&device, kernel)?.launches_more)).collect();
    assert!(!launches.is_empty() && launches.iter().all(|&more| more), "{launches:?}");
}
