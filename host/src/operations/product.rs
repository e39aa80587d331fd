//! Products of matrices, and of matrices with vectors, as operations: one for each precision, by the kernels that the planner
//! chooses.

use std::sync::{LazyLock, Mutex};

use cuda_std::executor::{Checks, LaunchError};
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};
use ndarray::{Array2, ShapeBuilder};
use testkit::{
    Argument, Baseline, Bits, Description, Distribution, Error, Expected, Operation, Sizes, Units, Values, Views,
};
use tilewright::kernels::{self, Family, KernelInfo};
use tilewright::plan::{self, GemmPlan, Options, Placement, Refusal, Workspace};
use tilewright::{Device, DeviceError, Order, Orders, Precision};

use crate::baseline::{CuBlas, Math, Routine};
use crate::check::Reference;

/// The factors of every product.
const ALPHA: f32 = 1.5;
const BETA: f32 = -0.5;

/// The products, in the order of their precision.
pub(super) static ALL: [Product; 9] = [
    Product::new("gemv", Family::Gemv, Precision::Fp32Strict),
    Product::new("gemm-fp32-rounded", Family::Gemm, Precision::Fp32Rounded),
    Product::new("gemm-fp32-ozaki", Family::Gemm, Precision::Fp32Ozaki),
    Product::new("gemm-fp32-strict", Family::Gemm, Precision::Fp32Strict),
    Product::new("gemm-fp32", Family::Gemm, Precision::Fp32),
    Product::new("gemm-fp32-normwise", Family::Gemm, Precision::Fp32Normwise),
    Product::new("gemm-tf32", Family::Gemm, Precision::Tf32),
    Product::new("gemm-bf16", Family::Gemm, Precision::Bf16),
    Product::new("gemm-fp16", Family::Gemm, Precision::Fp16),
];

/// The same by each kernel.
static BY_KERNEL: LazyLock<Vec<Product>> = LazyLock::new(|| {
    let by_kernel = |kernel: &&'static KernelInfo| {
        let Product { family, precision, .. } = *ALL.iter().find(|product| product.is_of(kernel))?;
        let with = |beta| Product { kernel: Some(kernel), beta, ..Product::new(kernel.name, family, precision) };
        let product = with(BETA);
        // Some kernels add to nothing.
        Some(if product.describe().small.is_empty() { with(0.0) } else { product })
    };
    kernels::ALL.iter().filter_map(by_kernel).collect()
});

/// What plans are made for that need no GPU.
static EXECUTOR: LazyLock<Device> = LazyLock::new(|| Device::cpu(Checks::Bounds));

/// What there is to tune about an operation: by which kernel its products are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// The operation.
    pub name: &'static str,
    /// The precision of its products.
    pub precision: Precision,
    /// Whether they are products of matrices with vectors only.
    pub by_vectors: bool,
}

/// `C = α·op(A)·op(B) + β·C` for each product of a batch.
pub(super) struct Product {
    name: &'static str,
    family: Family,
    precision: Precision,
    /// The kernel that computes everything, in place of those that the planner chooses.
    kernel: Option<&'static KernelInfo>,
    beta: f32,
    /// The plan for the last product, so that a measurement plans once.
    last: Mutex<Option<Planned>>,
}

struct Planned {
    device: testkit::Device,
    product: plan::Description,
    plan: GemmPlan,
    workspace: Workspace,
}

/// The sizes of a case.
struct Case {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    orders: Orders,
}

impl Product {
    const fn new(name: &'static str, family: Family, precision: Precision) -> Self {
        Self { name, family, precision, kernel: None, beta: BETA, last: Mutex::new(None) }
    }

    /// What there is to tune about it.
    pub(super) fn tunable(&self) -> Tunable {
        Tunable { name: self.name, precision: self.precision, by_vectors: self.family == Family::Gemv }
    }

    /// Whether a kernel computes such products, and in this precision.
    fn is_of(&self, kernel: &KernelInfo) -> bool {
        (self.family, self.precision) == (kernel.family(), kernel.precision())
    }

    /// Whether a kernel is launched for products of these sizes. (What a GPU lacks for it, a launch there says.)
    fn is_launched_for(&self, kernel: &'static KernelInfo, sizes: &Sizes) -> Result<bool, Error> {
        let Case { batch, m, n, k, orders } = self.case(sizes)?;
        if [batch, m, n, k].contains(&0) {
            return Ok(false);
        }
        let placed = |rows: usize, cols: usize, order: Order| {
            let [row_stride, col_stride] = order.strides(order.lines(rows, cols)[1], 1);
            Placement { row_stride, col_stride, batch_stride: rows * cols, alignment: size_of::<[f32; 4]>() }
        };
        let [a, b, c] = [placed(m, k, orders.a), placed(k, n, orders.b), placed(m, n, Order::RowMajor)];
        let product =
            plan::Description::new(tilewright::Sizes { m, n, k }, batch, a, b, c).map_err(Error::operation)?;
        let options = Options { kernel: Some(kernel), ..Options::default() };
        let plan = GemmPlan::new(&EXECUTOR, &product.with_factors(ALPHA, self.beta), &options);
        Ok(plan.is_ok_and(|plan| plan.kernels().iter().any(|launched| launched.name == kernel.name)))
    }

    /// What the planner chooses. On the executor, which takes kernels that are slow to model only if they are named, the kernels of
    /// the precision are named in turn if it chooses none. A kernel that is named computes the small cases on a GPU as on the executor: in as
    /// many parts, of the same operands, and after the same copies, so that both can be compared launch by launch.
    fn plan(&self, device: &Device, product: &plan::Description, sizes: &Sizes) -> Result<GemmPlan, Error> {
        let options = match self.kernel {
            None => Options::from(self.precision),
            kernel => Options { kernel, ..Options::default() },
        };
        let on_executor = self.kernel.is_some() && self.is_small(sizes)?;
        let mut plan = GemmPlan::new(if on_executor { &EXECUTOR } else { device }, product, &options);
        if self.kernel.is_none() && device.is_cpu() && matches!(plan, Err(tilewright::Error::NoKernel { .. })) {
            for kernel in kernels::ALL.iter().filter(|kernel| kernel.precision() == self.precision) {
                plan = GemmPlan::new(device, product, &Options { kernel: Some(kernel), ..options.clone() });
                if plan.is_ok() {
                    break;
                }
            }
        }
        match plan {
            Err(tilewright::Error::Ineligible { kernel, reason, .. }) => match *reason {
                // In the words of a launch, which the limits of the device would refuse, too.
                Refusal::Excess { excess, .. } => {
                    Err(DeviceError::Executor(LaunchError::Excess { kernel, excess }).into())
                }
                reason => Err(Error::operation(reason)),
            },
            plan => plan.map_err(Error::operation),
        }
    }

    /// The small cases, whatever kernel computes them.
    fn small(&self) -> Vec<Vec<usize>> {
        let odd = [[1, 1, 1, 1], [2, 5, 7, 3], [1, 131, 68, 67], [3, 64, 36, 32]];
        let layouts = [[0, 0], [0, 1], [1, 0], [1, 1]];
        match self.family {
            Family::Gemv => testkit::every(&[&[1, 5, 130], &[0, 1, 77, 1031], &[0, 1]]),
            Family::Gemm => (odd.iter().flat_map(|odd| layouts.map(|layout| [&odd[..], &layout].concat())))
                .chain([vec![1, 3, 4, 0, 0, 0], vec![2, 0, 4, 5, 0, 0]])
                .collect(),
        }
    }

    /// Whether these are the sizes of a small case.
    fn is_small(&self, sizes: &Sizes) -> Result<bool, Error> {
        let values = match self.family {
            Family::Gemv => sizes.get(["m", "k", "trans_a"])?.to_vec(),
            Family::Gemm => sizes.get(["batch", "m", "n", "k", "trans_a", "trans_b"])?.to_vec(),
        };
        Ok(self.small().contains(&values))
    }

    fn case(&self, sizes: &Sizes) -> Result<Case, Error> {
        if self.family == Family::Gemv {
            let [m, k, trans_a] = sizes.get(["m", "k", "trans_a"])?;
            let orders = Orders { a: Order::of_transposed(trans_a != 0), b: Order::RowMajor };
            return Ok(Case { batch: 1, m, n: 1, k, orders });
        }
        let [batch, m, n, k, trans_a, trans_b] = sizes.get(["batch", "m", "n", "k", "trans_a", "trans_b"])?;
        let [a, b] = [trans_a, trans_b].map(|transposed| Order::of_transposed(transposed != 0));
        Ok(Case { batch, m, n, k, orders: Orders { a, b } })
    }
}

impl Case {
    /// A view of `batch` matrices one after the other.
    fn read<'a>(
        &self,
        views: &Views<'a>,
        name: &str,
        rows: usize,
        cols: usize,
        order: Order,
    ) -> Result<MatrixBatch<'a>, Error> {
        let [row_stride, col_stride] = order.strides(order.lines(rows, cols)[1], 1);
        let first = Matrix::new(views.read(name)?, rows, cols, row_stride, col_stride).map_err(Error::operation)?;
        MatrixBatch::new(first, rows * cols, self.batch).map_err(Error::operation)
    }

    /// A, B and C.
    fn operands<'a>(&self, views: &Views<'a>) -> Result<(MatrixBatch<'a>, MatrixBatch<'a>, MatrixBatchMut<'a>), Error> {
        let a = self.read(views, "a", self.m, self.k, self.orders.a)?;
        let b = self.read(views, "b", self.k, self.n, self.orders.b)?;
        let c = MatrixMut::new(views.write("c")?, self.m, self.n, self.n, 1).map_err(Error::operation)?;
        Ok((a, b, MatrixBatchMut::new(c, self.m * self.n, self.batch).map_err(Error::operation)?))
    }
}

/// A product by cuBLAS.
struct ByCuBlas {
    blas: CuBlas,
    math: Math,
    routine: Routine,
    case: Case,
    beta: f32,
}

impl Baseline for ByCuBlas {
    fn name(&self) -> String {
        format!("{} of cuBLAS {} ({})", self.routine.name(), self.blas.version(), self.math)
    }

    fn launch(&mut self, _: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let (a, b, c) = self.case.operands(views)?;
        let prepared = self.blas.prepare(self.routine, self.math, a, b, c).map_err(Error::operation)?;
        // SAFETY: the views are of arguments of this run, each a buffer of its own, on the device that cuBLAS was opened on.
        unsafe { prepared.run(ALPHA, a, b, self.beta, c) }.map_err(Error::operation)
    }
}

impl Operation for Product {
    fn describe(&self) -> Description {
        let kernels = kernels::of_plans(self.precision);
        let small = self.small();
        let (sizes, large): (&[&str], Vec<Vec<usize>>) = match self.family {
            Family::Gemv => (&["m", "k", "trans_a"], vec![vec![2048, 1 << 17, 0], vec![40_000, 10_001, 1]]),
            Family::Gemm => (
                &["batch", "m", "n", "k", "trans_a", "trans_b"],
                vec![vec![1, 2048, 4096, 8192, 0, 1], vec![1, 4096, 4096, 4096, 0, 0], vec![7, 777, 1001, 333, 1, 0]],
            ),
        };
        let idea = "C = α·op(A)·op(B) + β·C, by the kernel that the planner chooses";
        let mut all = Description { name: self.name, idea, sizes, kernels, small, large, bits: Bits::SameOnOneDevice };
        if let Some(kernel) = self.kernel {
            let computes = |values: &Vec<usize>| {
                let case = all.sizes_of(values).and_then(|sizes| self.is_launched_for(kernel, &sizes));
                case.expect("cases of this operation have its sizes")
            };
            let [small, large] =
                [&all.small, &all.large].map(|cases| cases.iter().filter(|it| computes(it)).cloned().collect());
            (all.small, all.large) = (small, large);
        }
        all
    }

    fn by_kernel(&self, kernel: &str) -> Option<&'static dyn Operation> {
        let is_meant = |product: &&Product| product.name == kernel && product.kernel.is_some_and(|it| self.is_of(it));
        BY_KERNEL.iter().find(is_meant).map(|product| product as &dyn Operation)
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let Case { batch, m, n, k, orders } = self.case(sizes)?;
        let numbers = Distribution::Uniform(-1.0, 1.0);
        let stored = |rows, cols, order: Order| {
            let [lines, length] = order.lines(rows, cols);
            [batch, lines, length]
        };
        Ok(vec![
            Argument::input("a", &stored(m, k, orders.a), numbers),
            Argument::input("b", &stored(k, n, orders.b), numbers),
            Argument::in_out("c", &[batch, m, n], numbers),
        ])
    }

    fn launch(&self, device: &testkit::Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let (a, b, c) = self.case(sizes)?.operands(views)?;
        let product = plan::Description::of_views(ALPHA, &a, &b, self.beta, &c).map_err(Error::operation)?;
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let of = Device::from(device.clone());
        if !last.as_ref().is_some_and(|last| last.device.is_same(device) && last.product == product) {
            let plan = self.plan(&of, &product, sizes)?;
            let workspace = plan.workspace(&of).map_err(Error::operation)?;
            *last = Some(Planned { device: device.clone(), product, plan, workspace });
        }
        let Some(Planned { plan, workspace, .. }) = &mut *last else { unreachable!("just planned") };
        plan.run_views(&of, ALPHA, a, b, self.beta, c, workspace).map_err(Error::operation)
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let Case { batch, m, n, k, orders } = self.case(sizes)?;
        let of = |name| Ok::<_, Error>(values.of(name)?.iter().map(|&value| value as f32).collect::<Vec<f32>>());
        let (a, b, c) = (of("a")?, of("b")?, of("c")?);
        let matrix = |all: &[f32], product: usize, rows: usize, cols: usize, order: Order| {
            let elements = all[product * rows * cols..][..rows * cols].to_vec();
            let stored = (rows, cols).set_f(order == Order::ColumnMajor);
            Array2::from_shape_vec(stored, elements).expect("as many elements as the shape has")
        };
        let tolerance = self.precision.tolerance(k).max;
        let mut expected = Vec::with_capacity(c.len());
        for product in 0..batch {
            let (a, b) = (matrix(&a, product, m, k, orders.a), matrix(&b, product, k, n, orders.b));
            let c = matrix(&c, product, m, n, Order::RowMajor);
            let reference = Reference::new(ALPHA, a.view(), b.view(), self.beta, c.view());
            expected
                .extend(reference.elements().map(|(value, magnitude)| Expected::within(value, tolerance * magnitude)));
        }
        Ok(vec![expected])
    }

    /// cuBLAS on the same GPU.
    fn baseline(&self, device: &testkit::Device, sizes: &Sizes) -> Result<Option<Box<dyn Baseline>>, Error> {
        if device.is_cpu() {
            return Ok(None);
        }
        let case = self.case(sizes)?;
        let blas = CuBlas::open(&device.clone().into()).map_err(Error::operation)?;
        let math = match self.precision {
            Precision::Fp32Rounded
            | Precision::Fp32Ozaki
            | Precision::Fp32Strict
            | Precision::Fp32
            | Precision::Fp32Normwise => Math::Fp32,
            // With operands of fp32 it computes in nothing less.
            Precision::Tf32 | Precision::Bf16 | Precision::Fp16 => Math::Tf32,
        };
        let routine = if self.family == Family::Gemv { Routine::Gemv } else { Routine::Gemm };
        Ok(Some(Box::new(ByCuBlas { blas, math, routine, case, beta: self.beta })))
    }

    fn units(&self) -> Units {
        if self.precision == Precision::Fp32Strict { Units::CudaCores } else { Units::TensorCores }
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        self.case(sizes).map_or(0.0, |case| 2.0 * case.batch as f64 * case.m as f64 * case.n as f64 * case.k as f64)
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::StepOptions;
    use testkit::Trial;

    use super::*;

    /// Its workspace is another's memory, and it may be more than the other offers.
    #[test]
    fn a_plan_is_of_one_device() {
        for product in &ALL[1..] {
            let sizes = product.describe().sizes_of(&[1, 33, 20, 35, 0, 0]).unwrap();
            let trial = Trial::new(product, sizes, 1).unwrap();
            for device in [testkit::Device::cpu(Checks::Bounds), testkit::Device::cpu(Checks::Bounds)] {
                trial.judge(&trial.run(&device).unwrap()).unwrap();
            }
        }
    }

    /// Of a kernel that is named, these have the executor's plan everywhere; other sizes have the device's.
    #[test]
    fn small_cases_are_told_from_others() {
        for product in &ALL {
            let described = product.describe();
            let is_small = |case: &Vec<usize>| product.is_small(&described.sizes_of(case).unwrap()).unwrap();
            assert!(described.small.iter().all(is_small) && !described.large.iter().any(is_small), "{}", product.name);
        }
    }

    #[test]
    fn every_kernel_has_cases_by_which_it_is_launched() {
        let by = |kernel: &str| ALL.iter().find_map(|product| product.by_kernel(kernel));
        for kernel in kernels::ALL.iter() {
            let operation = by(kernel.name).unwrap_or_else(|| panic!("no operation is of {}", kernel.name));
            let small = operation.describe().small;
            assert!(!small.is_empty() && !small.concat().ends_with(&[0, 4, 5, 0, 0]), "{}: {small:?}", kernel.name);
        }
        assert!(by("gemm_split_reduction_fp32").is_none() && by("gemm").is_none());
        // The planner chooses another one for it.
        let operation = by("gemm_wgmma_nt_fp32_3xtf32").unwrap();
        let sizes = operation.describe().last_case(&testkit::Device::cpu(Checks::Full)).unwrap();
        let options = StepOptions { kernel: Some("gemm_wgmma_nt_fp32_3xtf32".to_owned()), ..StepOptions::default() };
        let trace = testkit::record_steps(operation, sizes, 1, 0, options).unwrap();
        assert_eq!((&*trace.operation, &*trace.kernel), ("gemm_wgmma_nt_fp32_3xtf32", "gemm_wgmma_nt_fp32_3xtf32"));
    }
}
