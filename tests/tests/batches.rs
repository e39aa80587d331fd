//! Batches of products: one launch computes all of them, whatever their sizes, and each is what it would be alone.

mod fake_driver;
#[path = "fake_driver/log.rs"]
mod log;

use cuda_std::executor::Checks;
use log::Log;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::kernels::{self, Family, KernelInfo};
use tilewright::plan::{self, Description, DeviceFacts, GemmPlan, Options, Placement, Triangle, Workspace};
use tilewright::{Device, DeviceMatrix, Order, Precision, Sizes};

/// A matrix of each product, and where it lies.
#[derive(Clone, Copy, Debug)]
struct Stored {
    rows: usize,
    cols: usize,
    strides: [usize; 2],
    /// From one product's to the next one's; 0 if all share one.
    batch_stride: usize,
    /// The elements before the first.
    first: usize,
}

impl Stored {
    /// Without gaps, so that the matrices of a batch follow each other.
    fn dense(order: Order, rows: usize, cols: usize) -> Self {
        let strides = order.strides(order.lines(rows, cols)[1], 1);
        Self { rows, cols, strides, batch_stride: rows * cols, first: 0 }
    }

    /// So many elements after that.
    fn moved(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// One for all products.
    fn shared(self) -> Self {
        Self { batch_stride: 0, ..self }
    }

    /// With gaps between all elements.
    fn spread(self) -> Self {
        let strides = self.strides.map(|stride| 2 * stride + 1);
        Self { strides, batch_stride: 2 * self.batch_stride + self.rows * self.cols + 3, ..self }
    }

    fn at(&self, product: usize, row: usize, col: usize) -> usize {
        self.first + product * self.batch_stride + row * self.strides[0] + col * self.strides[1]
    }

    fn len(&self, products: usize) -> usize {
        self.at(products - 1, self.rows.max(1) - 1, self.cols.max(1) - 1) + 5
    }

    fn on(&self, device: &Device, products: usize, numbers: &[f32]) -> DeviceMatrix {
        let buffer = device.upload(numbers).unwrap();
        let matrix = DeviceMatrix::new(buffer, self.rows, self.cols, self.strides).unwrap();
        matrix.moved_by(self.first).unwrap().into_batch(products, self.batch_stride).unwrap()
    }

    fn placement(&self) -> Placement {
        let [row_stride, col_stride] = self.strides;
        let alignment = if self.first == 0 { 256 } else { 4 };
        Placement { row_stride, col_stride, batch_stride: self.batch_stride, alignment }
    }
}

/// What a batch is computed of.
#[derive(Clone, Copy, Debug)]
struct Case {
    products: usize,
    a: Stored,
    b: Stored,
    c: Stored,
    alpha: f32,
    beta: f32,
}

impl Case {
    fn dense(products: usize, Sizes { m, n, k }: Sizes, [a, b]: [Order; 2]) -> Self {
        let (a, b) = (Stored::dense(a, m, k), Stored::dense(b, k, n));
        Self { products, a, b, c: Stored::dense(Order::RowMajor, m, n), alpha: 1.0, beta: 0.0 }
    }

    fn product(&self) -> Description {
        let sizes = Sizes { m: self.c.rows, n: self.c.cols, k: self.a.cols };
        let [a, b, c] = [self.a, self.b, self.c].map(|stored| stored.placement());
        Description::new(sizes, self.products, a, b, c).unwrap().with_factors(self.alpha, self.beta)
    }

    /// Computes it with a kernel on the executor, with all checks. `same` compares an element of the result with its sum, of one
    /// fused operation for each k.
    fn check(&self, kernel: &'static KernelInfo, same: impl Fn(f32, f32) -> bool) {
        let device = Device::cpu(Checks::Full);
        let mut random = StdRng::seed_from_u64(5);
        let mut numbers = |stored: &Stored| -> Vec<f32> {
            (0..stored.len(self.products)).map(|_| random.random_range(-1.0..1.0)).collect()
        };
        let [a, b, before] = [self.a, self.b, self.c].map(|stored| numbers(&stored));
        let there = |stored: &Stored, numbers: &[f32]| stored.on(&device, self.products, numbers);
        let mut c = there(&self.c, &before);
        let (on_a, on_b) = (there(&self.a, &a), there(&self.b, &b));
        let product = Description::of(self.alpha, &on_a, &on_b, self.beta, &c).unwrap();
        let plan = GemmPlan::new(&device, &product, &Options::from(kernel)).unwrap();
        let mut workspace = plan.workspace(&device).unwrap();
        plan.run(&device, self.alpha, &on_a, &on_b, self.beta, &mut c, &mut workspace).unwrap();
        let mut after = before.clone();
        c.buffer().copy_to(&mut after).unwrap();

        let mut expected = before.clone();
        for product in 0..self.products {
            for (row, col) in (0..self.c.rows).flat_map(|row| (0..self.c.cols).map(move |col| (row, col))) {
                let terms = if self.alpha == 0.0 { 0 } else { self.a.cols };
                let sum = (0..terms)
                    .fold(0.0f32, |sum, l| a[self.a.at(product, row, l)].mul_add(b[self.b.at(product, l, col)], sum));
                let place = self.c.at(product, row, col);
                let old = before[place];
                expected[place] = match (terms == 0, self.beta == 0.0) {
                    (true, true) => 0.0,
                    (true, false) => self.beta * old,
                    (false, true) => self.alpha * sum,
                    (false, false) => self.beta.mul_add(old, self.alpha * sum),
                };
            }
        }
        for (place, (&is, &should)) in after.iter().zip(&expected).enumerate() {
            assert!(same(is, should), "{} at {place}: {is} for {should}, of {self:?}", kernel.name);
        }
    }
}

/// The same bits: every element is one fused operation for each k, in the order of k.
fn bits(is: f32, should: f32) -> bool {
    is.to_bits() == should.to_bits()
}

/// Nearly the same: in another order.
fn nearly(is: f32, should: f32) -> bool {
    (is - should).abs() < 1e-4
}

const LAYOUTS: [[Order; 2]; 4] = [
    [Order::RowMajor, Order::RowMajor],
    [Order::RowMajor, Order::ColumnMajor],
    [Order::ColumnMajor, Order::RowMajor],
    [Order::ColumnMajor, Order::ColumnMajor],
];

#[test]
fn small_products_are_sums_in_order_in_every_layout() {
    for kernel in &kernels::BATCHED {
        let side = kernel.tile.unwrap().m as usize;
        for layout in LAYOUTS {
            let whole = Case::dense(35, Sizes { m: side, n: side, k: side }, layout);
            whole.check(kernel, bits);
            // The last vectors of rows end within a tile; several steps, the last of which is not a whole one.
            Case::dense(3, Sizes { m: side - 1, n: side + 4, k: 2 * side + 3 }, layout).check(kernel, bits);
            // Not a vector anywhere.
            let odd = Case::dense(5, Sizes { m: side + 1, n: side - 1, k: side - 1 }, layout);
            Case { alpha: -0.5, beta: 2.0, a: odd.a.moved(1), b: odd.b.moved(3), c: odd.c.moved(2), ..odd }
                .check(kernel, bits);
            Case { beta: -1.5, a: whole.a.shared(), ..whole }.check(kernel, bits);
        }
        let case = Case::dense(7, Sizes { m: 3, n: 5, k: 6 }, LAYOUTS[0]);
        Case { a: case.a.spread(), b: case.b.spread(), c: case.c.spread(), beta: 0.5, ..case }.check(kernel, bits);
        Case { b: case.b.shared(), c: Stored::dense(Order::ColumnMajor, 3, 5), ..case }.check(kernel, bits);
        // Without terms.
        Case { alpha: 0.0, beta: 3.0, ..case }.check(kernel, bits);
        Case::dense(7, Sizes { m: 3, n: 5, k: 0 }, LAYOUTS[0]).check(kernel, bits);
    }
}

#[test]
fn sums_of_few_terms_are_in_order_in_every_layout() {
    for kernel in &kernels::OUTER {
        let tile = kernel.tile.unwrap();
        let [m, n] = [tile.m as usize, tile.n as usize];
        for layout in LAYOUTS {
            let whole = Case::dense(2, Sizes { m, n, k: 8 }, layout);
            whole.check(kernel, bits);
            // Fewer terms than there is room for, several tiles, and no vector anywhere.
            let odd = Case::dense(1, Sizes { m: m + 3, n: n + 1, k: kernel.most().k - 1 }, layout);
            Case { alpha: -0.5, beta: 2.0, a: odd.a.moved(1), b: odd.b.moved(3), c: odd.c.moved(2), ..odd }
                .check(kernel, bits);
            Case { beta: -1.5, a: whole.a.shared(), ..whole }.check(kernel, bits);
            Case::dense(3, Sizes { m: 5, n: n - 1, k: kernel.most().k }, layout).check(kernel, bits);
        }
        let case = Case::dense(3, Sizes { m: 9, n: 20, k: 1 }, LAYOUTS[0]);
        Case { a: case.a.spread(), b: case.b.spread(), c: case.c.spread(), beta: 0.5, ..case }.check(kernel, bits);
        Case { b: case.b.shared(), c: Stored::dense(Order::ColumnMajor, 9, 20), ..case }.check(kernel, bits);
        // Without terms.
        Case { alpha: 0.0, beta: 3.0, ..case }.check(kernel, bits);
        Case::dense(3, Sizes { m: 9, n: 20, k: 0 }, LAYOUTS[0]).check(kernel, bits);
    }
}

#[test]
fn whole_products_are_sums_in_order_in_every_layout() {
    for layout in LAYOUTS {
        // Fewer than a block has room for, and more; columns with and without gaps in shared memory; tiles that end at borders.
        for (products, [m, n, k]) in [
            (1, [24, 17, 8]),
            (37, [24, 17, 9]),
            (300, [4, 4, 16]),
            (9, [38, 64, 4]),
            (5, [63, 40, 24]),
            (70, [1, 5, 40]),
        ] {
            let case = Case::dense(products, Sizes { m, n, k }, layout);
            case.check(&kernels::WHOLE, bits);
            Case { alpha: -0.5, beta: 2.0, a: case.a.moved(1), b: case.b.moved(3), c: case.c.moved(2), ..case }
                .check(&kernels::WHOLE, bits);
            Case { c: Stored::dense(Order::ColumnMajor, m, n), beta: -1.5, ..case }.check(&kernels::WHOLE, bits);
        }
        // Without terms, and with terms that may not be read.
        Case::dense(30, Sizes { m: 9, n: 20, k: 0 }, layout).check(&kernels::WHOLE, bits);
        let case = Case::dense(30, Sizes { m: 9, n: 20, k: 16 }, layout);
        Case { alpha: 0.0, beta: 3.0, ..case }.check(&kernels::WHOLE, bits);
    }
}

#[test]
fn rows_of_tall_products_are_sums_in_order_in_every_layout() {
    for layout in LAYOUTS {
        // Fewer rows than a block has, and more; rows and columns that begin anywhere; the last block with one row.
        for (products, [m, n, k]) in
            [(1, [1, 1, 1]), (1, [4001, 10, 3]), (2, [2600, 7, 16]), (3, [517, 33, 40]), (1, [129, 90, 60])]
        {
            let case = Case::dense(products, Sizes { m, n, k }, layout);
            case.check(&kernels::WHOLE_ROWS, bits);
            let (a, b, c) = (case.a.moved(1), case.b.moved(3).shared(), case.c.moved(2));
            Case { alpha: -0.5, beta: 2.0, a, b, c, ..case }.check(&kernels::WHOLE_ROWS, bits);
            if layout[0] == Order::ColumnMajor {
                let [_, line] = case.a.strides;
                let a = Stored { strides: [1, line + 3], batch_stride: (line + 3) * k, ..case.a };
                Case { a, ..case }.check(&kernels::WHOLE_ROWS, bits);
            }
        }
        // Without terms, and with terms that may not be read.
        Case::dense(2, Sizes { m: 300, n: 20, k: 0 }, layout).check(&kernels::WHOLE_ROWS, bits);
        let case = Case::dense(2, Sizes { m: 300, n: 20, k: 16 }, layout);
        Case { alpha: 0.0, beta: 3.0, ..case }.check(&kernels::WHOLE_ROWS, bits);
    }
}

/// What has gaps, or no room for four rows, is refused.
#[test]
fn rows_of_tall_products_have_to_lie_without_gaps_and_to_fit() {
    let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    let options = Options::from(&kernels::WHOLE_ROWS);
    let case = Case::dense(1, Sizes { m: 900, n: 20, k: 16 }, LAYOUTS[0]);
    plan::plan(&h200, &case.product(), &options).unwrap();
    let reason = |case: Case| plan::plan(&h200, &case.product(), &options).unwrap_err().to_string();
    for gaps in [
        Case { a: case.a.spread(), ..case },
        Case { b: case.b.spread(), ..case },
        Case { c: case.c.spread(), ..case },
        Case { c: Stored::dense(Order::ColumnMajor, 900, 20), ..case },
        // Every row begins one element after the one before it.
        Case { a: Stored { strides: [1, 1], ..case.a }, ..case },
    ] {
        assert!(reason(gaps).contains("without gaps"), "{}", reason(gaps));
    }
    let large = reason(Case::dense(1, Sizes { m: 5000, n: 110, k: 110 }, LAYOUTS[0]));
    assert!(large.contains("no room for a product of m=4 n=110 k=110"), "{large}");
    // However many columns, as long as a block has rows for what it copies of B.
    let planned = |[n, k]: [usize; 2]| {
        let product = Case::dense(1, Sizes { m: 262_144, n, k }, LAYOUTS[0]).product();
        plan::plan(&h200, &product, &Options::from(Precision::Fp32)).unwrap()
    };
    assert_eq!(planned([65, 1]).kernel().name, kernels::WHOLE_ROWS.name);
    let refused =
        planned([64, 128]).explanation().candidates.iter().find(|it| it.kernel == kernels::WHOLE_ROWS.name).cloned();
    let refusal = refused.and_then(|it| it.refusal).unwrap();
    assert!(refusal.contains("a block has room for 20 rows at a time"), "{refusal}");
}

/// What has gaps, or no room, is refused.
#[test]
fn whole_products_have_to_lie_without_gaps_and_to_fit() {
    let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    let options = Options::from(&kernels::WHOLE);
    let case = Case::dense(30, Sizes { m: 9, n: 20, k: 16 }, LAYOUTS[0]);
    plan::plan(&h200, &case.product(), &options).unwrap();
    let reason = |case: Case| plan::plan(&h200, &case.product(), &options).unwrap_err().to_string();
    for gaps in
        [Case { a: case.a.spread(), ..case }, Case { b: case.b.shared(), ..case }, Case { c: case.c.spread(), ..case }]
    {
        assert!(reason(gaps).contains("without gaps"), "{}", reason(gaps));
    }
    let large = reason(Case::dense(30, Sizes { m: 64, n: 64, k: 65 }, LAYOUTS[0]));
    assert!(large.contains("no room for a product of m=64 n=64 k=65"), "{large}");
}

#[test]
fn matrices_and_vectors_in_batches_are_those_of_each_product() {
    let gemv = kernels::of(Family::Gemv).filter(|kernel| kernel.tile.is_none() && kernel.divides_sums);
    for kernel in gemv {
        let order = kernel.a.unwrap();
        for (products, m, k) in [(40, 8, 8), (9, 5, 7), (3, 70, 130), (2, 3, 2100), (17, 2, 40), (6, 300, 9)] {
            let case = Case::dense(products, Sizes { m, n: 1, k }, [order, Order::RowMajor]);
            case.check(kernel, nearly);
            Case { alpha: 0.5, beta: 2.0, b: case.b.shared(), ..case }.check(kernel, nearly);
            Case { a: case.a.shared(), b: case.b.spread(), c: case.c.spread(), ..case }.check(kernel, nearly);
            Case { a: case.a.moved(1), c: case.c.moved(3), ..case }.check(kernel, nearly);
        }
    }
}

#[test]
fn each_size_has_its_kernel() {
    let h200 = DeviceFacts::of_gpu("NVIDIA H200", (9, 0), 132, 141 << 30);
    let (dense, spread) = (false, true);
    // On tensor cores, and on CUDA cores where that is another kernel.
    for (products, [m, n, k], has_gaps, expected) in [
        // As they lie, if they lie without gaps; else by tiles.
        (100_000, [4, 4, 5], dense, ["gemm_whole_fp32"; 2]),
        (100_000, [3, 3, 3], dense, ["gemm_whole_fp32"; 2]),
        // But not if the lanes of a warp meet in banks of shared memory.
        (100_000, [4, 4, 4], dense, ["gemm_batched_4_fp32"; 2]),
        (65_536, [4, 4, 8], dense, ["gemm_batched_4_fp32"; 2]),
        (8272, [8, 8, 16], dense, ["gemm_batched_8_fp32"; 2]),
        (1000, [16, 16, 16], dense, ["gemm_sliced_16x16_k16_fp32_3xtf32", "gemm_batched_16_fp32"]),
        (10_000, [4, 4, 4], spread, ["gemm_batched_4_fp32"; 2]),
        (10_000, [8, 8, 8], spread, ["gemm_batched_8_fp32"; 2]),
        (1000, [16, 16, 16], spread, ["gemm_sliced_16x16_k16_fp32_3xtf32", "gemm_batched_16_fp32"]),
        (4096, [32, 32, 32], dense, ["gemm_sliced_32x32_k16_fp32_3xtf32", "gemm_batched_32_fp32"]),
        (128, [1, 4096, 128], dense, ["gemv_transposed_split_fp32"; 2]),
        (256, [128, 1, 4096], dense, ["gemv_split_fp32"; 2]),
        // Larger than tiles of 32x32.
        (256, [64, 64, 64], dense, ["gemm_wgmma_64x64_k32_nn_fp32_3xtf32", "gemm_register_tiled_64_nn_fp32"]),
    ] {
        let case = Case::dense(products, Sizes { m, n, k }, LAYOUTS[0]);
        let product = if has_gaps { Case { b: case.b.spread(), ..case }.product() } else { case.product() };
        for (precision, expected) in [Precision::Fp32, Precision::Fp32Strict].into_iter().zip(expected) {
            let plan = plan::plan(&h200, &product, &Options::from(precision)).unwrap();
            assert_eq!((plan.kernel().name, plan.launches()), (expected, 1), "{}", plan.explanation());
        }
    }
}

/// Any batch: sizes by orders of magnitude, layouts, gaps, shared operands, α and β.
fn batch(random: &mut StdRng) -> Description {
    let mut extent = |most: u32| {
        let magnitude = random.random_range(0..=most);
        random.random_range(1..=1usize << magnitude)
    };
    let [m, n, k] = [extent(9), extent(9), extent(10)];
    let products = 16 + extent(14);
    let [m, n] = [[m, n], [1, n], [m, 1], [m, n]][random.random_range(0..4)];
    let mut placed = |rows: usize, cols: usize, may_be_shared: bool| {
        let order = Order::ALL[random.random_range(0..2)];
        let pitch = order.lines(rows, cols)[1] + [0, 0, 1, 4][random.random_range(0..4)];
        let gap = [1, 1, 1, 2][random.random_range(0..4)];
        let [row_stride, col_stride] = order.strides(pitch, 1).map(|stride| stride * gap);
        let shared = may_be_shared && random.random_range(0..5) == 0;
        let batch_stride = if shared { 0 } else { gap * pitch * rows.max(cols) };
        Placement { row_stride, col_stride, batch_stride, alignment: [4, 16, 256][random.random_range(0..3)] }
    };
    let (a, b, c) = (placed(m, k, true), placed(k, n, true), placed(m, n, false));
    let [alpha, beta] = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-2.5, 0.5]][random.random_range(0..4)];
    let part = [Triangle::All, Triangle::All, Triangle::Upper, Triangle::Lower][random.random_range(0..4)];
    let product = Description::new(Sizes { m, n, k }, products, a, b, c).expect("the sizes are below the limits");
    product.with_factors(alpha, beta).with_part(part)
}

/// What plans of 500 batches, on GPUs of several generations, launch: no more than they have kernels.
#[test]
fn no_plan_has_a_launch_for_each_product() {
    let mut random = StdRng::seed_from_u64(23);
    let gpus = [
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80u64),
        ("NVIDIA L4", (8, 9), 58, 24),
        ("NVIDIA H200", (9, 0), 132, 141),
    ];
    let gpus = gpus.map(|(name, capability, count, gib)| DeviceFacts::of_gpu(name, capability, count, gib << 30));
    let mut plans = 0;
    for _ in 0..500 {
        let product = batch(&mut random);
        for device in gpus.iter().chain([&DeviceFacts::of(&Device::cpu(Checks::Bounds))]) {
            for precision in Precision::ALL {
                let Ok(plan) = plan::plan(device, &product, &Options::from(precision)) else { continue };
                let kernels = plan.kernels().len() as u64;
                assert!(plan.launches() <= kernels, "{} launches:\n{}", plan.launches(), plan.explanation());
                plans += 1;
            }
        }
    }
    assert!(plans > 10_000, "{plans} plans");
}

/// Runs plans on a driver that counts launches: those that the planner makes, and those of kernels that it would not choose.
fn count_launches() {
    let log = Log::of_this_process();
    (log.begin)(0, 0, 0);
    let device = Device::cuda(0).unwrap();
    let (mut plans, mut one_by_one) = (0, 0);
    for [m, n, k] in [[4, 4, 4], [16, 16, 16], [32, 32, 32], [128, 128, 64], [1, 4096, 128], [128, 1, 4096]] {
        let case = Case::dense(40, Sizes { m, n, k }, [Order::RowMajor; 2]);
        let matrix = |stored: &Stored| stored.on(&device, case.products, &vec![0.0; stored.len(case.products)]);
        let (a, b, mut c) = (matrix(&case.a), matrix(&case.b), matrix(&case.c));
        let named = kernels::BASIC.into_iter().chain(&kernels::BATCHED).map(Options::from);
        for options in Precision::ALL.map(Options::from).into_iter().chain(named) {
            let Ok(plan) = GemmPlan::new(&device, &case.product(), &options) else { continue };
            plan.load(&device).unwrap();
            let mut workspace = Workspace::new(&device, plan.workspace_bytes()).unwrap();
            let before = log.count();
            plan.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut workspace).unwrap();
            let launches = log.names(before).filter(|name| name.starts_with("cuLaunchKernel")).count() as u64;
            assert_eq!(launches, plan.launches(), "{}", plan.explanation());
            one_by_one += u32::from(launches > 16);
            plans += 1;
        }
    }
    assert!(plans >= 36 && one_by_one >= 20, "{plans} plans, {one_by_one} of them with a launch for each product");
}

#[test]
fn a_plan_says_how_often_it_launches() {
    let variables = [("FAKE_CUDA_CAPABILITY", "9.0"), ("FAKE_CUDA_VERSION", "13000")];
    fake_driver::isolated("a_plan_says_how_often_it_launches", &variables, count_launches);
}
