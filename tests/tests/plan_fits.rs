//! Every plan fits its device: what its kernels need of a block, the GPU offers; and the driver that refuses what a real one
//! would refuse launches them all.

mod fake_driver;

use std::collections::{BTreeSet, HashSet};

use cuda_std::executor::{Checks, Executor};
use cuda_std::{ComputeCapability, KernelFacts, Limits};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::{self, Description, DeviceFacts, GemmPlan, Options, Placement, Refusal, Triangle, Workspace};
use tilewright::{Device, DeviceMatrix, Error, Order, Orders, Precision, Sizes};

/// GPUs that people have: name, compute capability, multiprocessors, GiB of memory.
const GPUS: [(&str, (u32, u32), u32, u64); 12] = [
    ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80),
    ("NVIDIA A10", (8, 6), 72, 24),
    ("NVIDIA GeForce RTX 3090", (8, 6), 82, 24),
    ("NVIDIA GeForce RTX 4090", (8, 9), 128, 24),
    ("NVIDIA L4", (8, 9), 58, 24),
    ("NVIDIA L40S", (8, 9), 142, 48),
    ("NVIDIA H100 80GB HBM3", (9, 0), 132, 80),
    ("NVIDIA H200", (9, 0), 132, 141),
    ("NVIDIA B200", (10, 0), 148, 180),
    ("NVIDIA GeForce RTX 5090", (12, 0), 170, 32),
    ("Jetson AGX Orin", (8, 7), 16, 64),
    ("of a generation to come", (14, 2), 200, 500),
];

fn gpus() -> impl Iterator<Item = DeviceFacts> {
    GPUS.into_iter().map(|(name, capability, count, gib)| DeviceFacts::of_gpu(name, capability, count, gib << 30))
}

/// Any product: sizes from 0 up, by orders of magnitude, all layouts, gaps, batches, parts of C, α and β.
fn product(random: &mut StdRng) -> Description {
    let extent = |random: &mut StdRng| {
        let magnitude = random.random_range(0..=18);
        random.random_range(0..=1usize << magnitude)
    };
    let [m, n, k] = [(); 3].map(|()| extent(random));
    let batch = if random.random_range(0..4) == 0 { random.random_range(0..200) } else { 1 };
    let mut placed = |rows: usize, cols: usize| {
        let gap = [0, 0, 1, 4][random.random_range(0..4)];
        let order = Order::ALL[random.random_range(0..2)];
        let pitch = order.lines(rows, cols)[1] + gap;
        let [row_stride, col_stride] = order.strides(pitch, 1);
        let alignment = [4, 16, 256][random.random_range(0..3)];
        Placement { row_stride, col_stride, batch_stride: pitch * rows.max(cols), alignment }
    };
    let (a, b, c) = (placed(m, k), placed(k, n), placed(m, n));
    let [alpha, beta] = [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-2.5, 0.5]][random.random_range(0..4)];
    let part = [Triangle::All, Triangle::All, Triangle::Upper, Triangle::Lower][random.random_range(0..4)];
    let product = Description::new(Sizes { m, n, k }, batch, a, b, c).expect("the sizes are below the limits");
    product.with_factors(alpha, beta).with_part(part)
}

/// What of a plan's kernels is too much for the device.
fn misfits(device: &DeviceFacts, kernels: &[KernelFacts]) -> Vec<String> {
    let too_much = |kernel: &KernelFacts| Some(format!("{}: {}", kernel.name, device.limits.check(kernel).err()?));
    kernels.iter().filter_map(too_much).collect()
}

#[test]
fn every_plan_fits_its_device() {
    let mut random = StdRng::seed_from_u64(17);
    let mut plans = 0;
    for _ in 0..2000 {
        let product = product(&mut random);
        for (device, precision) in gpus().flat_map(|device| Precision::ALL.map(|precision| (device.clone(), precision)))
        {
            match plan::plan(&device, &product, &Options::from(precision)) {
                Ok(plan) => {
                    let misfits = misfits(&device, &plan.kernels());
                    assert!(misfits.is_empty(), "{product} in {precision} on {device}: {misfits:?}");
                    plans += 1;
                }
                Err(error) => assert!(matches!(error, Error::NoKernel { .. }), "{product} on {device}: {error}"),
            }
        }
    }
    assert!(plans > 100_000, "{plans} plans");
}

/// What multiplies; of what comes before and after, all is listed for each.
#[test]
fn plans_of_a_precision_launch_what_is_listed_for_it_and_nothing_else() {
    let mut random = StdRng::seed_from_u64(18);
    let listed = Precision::ALL.map(kernels::of_plans);
    let mut launched = HashSet::new();
    let devices: Vec<_> =
        gpus().filter(|device| ["NVIDIA L4", "NVIDIA H200"].contains(&device.name.as_str())).collect();
    for _ in 0..400 {
        let product = product(&mut random);
        for (precision, listed) in Precision::ALL.into_iter().zip(&listed) {
            let named = kernels::ALL.iter().map(|kernel| Options::from(*kernel));
            for options in named.chain([Options::default()]) {
                let options = Options { precision: Some(precision), ..options };
                for plan in devices.iter().filter_map(|device| plan::plan(device, &product, &options).ok()) {
                    for kernel in plan.kernels() {
                        let is_listed = listed.iter().any(|it| it.name == kernel.name);
                        assert!(is_listed, "{} is not listed:\n{}", kernel.name, plan.explanation());
                        launched.insert((precision, kernel.name));
                    }
                }
            }
        }
    }
    for (precision, listed) in Precision::ALL.into_iter().zip(&listed) {
        let multiplies = |kernel: &&KernelFacts| kernels::find(kernel.name).is_ok();
        let never = listed.iter().filter(multiplies).find(|kernel| !launched.contains(&(precision, kernel.name)));
        assert!(never.is_none(), "no plan in {precision} launches {never:?}");
    }
}

/// A product without gaps, in a layout such as `NT`.
fn plain(layout: &str, size: usize) -> Description {
    let placed = |letter| if letter == "N" { Placement::row_major(size) } else { Placement::column_major(size) };
    let (a, b) = layout.split_at(1);
    Description::new(Sizes { m: size, n: size, k: size }, 1, placed(a), placed(b), Placement::row_major(size)).unwrap()
}

#[test]
fn no_large_product_ends_in_a_naive_kernel() {
    let is_basic = |kernel: &KernelInfo| kernels::BASIC.iter().any(|basic| std::ptr::eq(*basic, kernel));
    for device in gpus() {
        for precision in Precision::ALL
            .into_iter()
            .filter(|precision| !matches!(precision, Precision::Fp32Normwise | Precision::Fp32Ozaki))
        {
            for layout in ["NN", "NT", "TN", "TT"] {
                for size in [1024, 1111, 2048, 4096] {
                    let plan = plan::plan(&device, &plain(layout, size), &Options::from(precision)).unwrap();
                    let chosen = plan.kernel();
                    assert!(!is_basic(chosen), "{layout} {size} in {precision} on {device}: {}", chosen.name);
                }
            }
        }
    }
}

/// Whatever the extents, and however operands lie: where there is much to multiply, no thread computes its element alone.
#[test]
fn no_product_of_many_multiplications_ends_in_a_naive_kernel() {
    let mut random = StdRng::seed_from_u64(19);
    let naive = ["gemm_naive_1d_fp32", "gemm_naive_2d_fp32"];
    assert!(naive.iter().all(|name| kernels::find(name).is_ok()));
    let capabilities: BTreeSet<_> = gpus().map(|gpu| format!("{:?}", gpu.processor)).collect();
    for wanted in ["(8, 0)", "(8, 6)", "(8, 9)", "(9, 0)", "(10, 0)", "(12, 0)"] {
        assert!(capabilities.iter().any(|capability| capability.contains(wanted)), "{wanted}: {capabilities:?}");
    }
    let mut plans = 0;
    while plans < 4000 {
        let [m, n, k] = [(); 3].map(|()| {
            let magnitude = random.random_range(0..=17);
            random.random_range(1..=1usize << magnitude)
        });
        let batch = if random.random_range(0..3) == 0 { random.random_range(1..=256) } else { 1 };
        if m as f64 * n as f64 * k as f64 * (batch as f64) < 1e6 || m.max(n).max(k) * batch > 1 << 26 {
            continue;
        }
        let mut placed = |rows: usize, cols: usize| {
            let order = Order::ALL[random.random_range(0..2)];
            // Gaps between lines, or between all elements; or one line for all.
            let gap = [0, 0, 0, 1, 4][random.random_range(0..5)];
            let step = [1, 1, 1, 1, 2, 3][random.random_range(0..6)];
            let [lines, length] = order.lines(rows, cols);
            let [row_stride, col_stride] = order.strides((length + gap) * step, step);
            let batch_stride = lines * (length + gap) * step;
            let alignment = [256, 256, 4, 8][random.random_range(0..4)];
            Placement { row_stride, col_stride, batch_stride, alignment }
        };
        let (mut a, b, c) = (placed(m, k), placed(k, n), placed(m, n));
        if random.random_range(0..12) == 0 {
            a = Placement { row_stride: 0, col_stride: 1, ..a };
        }
        let product = Description::new(Sizes { m, n, k }, batch, a, b, c).unwrap().with_factors(1.0, 0.0);
        for device in gpus() {
            for precision in [Precision::Fp32, Precision::Fp32Strict] {
                let plan = plan::plan(&device, &product, &Options::from(precision)).unwrap();
                assert!(!naive.contains(&plan.kernel().name), "{}", plan.explanation());
            }
        }
        plans += 1;
    }
}

#[test]
fn each_family_has_an_instance_that_fits_every_gpu() {
    let fits = |kernel: &&KernelInfo| Limits::of_every_gpu().check(&kernel.facts).is_ok();
    for kernel in kernels::ALL.iter().filter(|kernel| kernel.facts.arch.is_none() && !fits(kernel)) {
        let stands_in = |other: &&&KernelInfo| {
            fits(other)
                && other.scheme == kernel.scheme
                && (other.a, other.b) == (kernel.a, kernel.b)
                && other.tile.is_some()
        };
        assert!(kernels::ALL.iter().any(|other| stands_in(&other)), "{} has no smaller instance", kernel.name);
    }
    let grouped = kernels::GROUPED.iter().map(|kernel| &kernel.facts).filter(|facts| facts.arch.is_none());
    for other in kernels::AUXILIARY.iter().chain(&kernels::SCALING).chain(grouped) {
        assert_eq!(Limits::of_every_gpu().check(other), Ok(()), "{}", other.name);
    }
}

#[test]
fn a_kernel_that_does_not_fit_is_refused_with_what_it_needs() {
    let ada = DeviceFacts::of_gpu("NVIDIA L4", (8, 9), 58, 24 << 30);
    let (name, needs) = ("gemm_register_tiled_nn_fp32", "183808");
    let options = Options::from(kernels::find(name).unwrap());
    let error = plan::plan(&ada, &plain("NN", 512), &options).unwrap_err();
    let Error::Ineligible { reason, others, .. } = &error else { panic!("{error}") };
    assert!(matches!(**reason, Refusal::Excess { .. }), "{reason}");
    let message = error.to_string();
    assert!(message.contains(needs) && message.contains("101376") && message.contains("NVIDIA L4"), "{message}");
    assert!(!others.is_empty());
}

/// The executor with the limits of a smaller GPU refuses what that would refuse, and its plans fit.
#[test]
fn the_executor_as_a_smaller_gpu_plans_for_it() {
    let limits = Limits::of(ComputeCapability::new(8, 6)).unwrap();
    let device = Device::with_executor(Executor::new(Checks::Bounds).with_limits(limits));
    let plan = GemmPlan::new(&device, &plain("NN", 300), &Options::from(Precision::Fp32Strict)).unwrap();
    assert_eq!(plan.kernel().name, "gemm_register_tiled_128_nn_fp32");
    let large = Options::from(kernels::find("gemm_register_tiled_nn_fp32").unwrap());
    assert!(matches!(GemmPlan::new(&device, &plain("NN", 300), &large), Err(Error::Ineligible { .. })));
}

/// Plans, and launches, on the driver that refuses what is more than its GPU has.
fn launch_plans() {
    let device = Device::cuda(0).unwrap();
    let (m, n, k) = (300, 200, 100);
    let mut plans = 0;
    for precision in Precision::ALL {
        for kernel in kernels::ALL.iter().filter(|kernel| kernel.scheme.serves(precision)) {
            for Orders { a, b } in Orders::ALL {
                let matrix = |order: Order, rows: usize, cols: usize| {
                    let strides = order.strides(order.lines(rows, cols)[1], 1);
                    DeviceMatrix::new(device.allocate(rows * cols).unwrap(), rows, cols, strides).unwrap()
                };
                let (a, b, mut c) = (matrix(a, m, k), matrix(b, k, n), matrix(Order::RowMajor, m, n));
                let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
                let options = Options { precision: Some(precision), ..Options::from(*kernel) };
                let Ok(plan) = GemmPlan::new(&device, &product, &options) else { continue };
                let mut workspace = Workspace::new(&device, plan.workspace_bytes()).unwrap();
                let run = plan.run(&device, 1.0, &a, &b, 0.0, &mut c, &mut workspace);
                run.unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
                plans += 1;
            }
        }
    }
    assert!(plans >= 40, "{plans} plans");
    // SAFETY: the function's type.
    let asked = unsafe { fake_driver::function::<extern "C" fn() -> u32>(c"fake_set_attributes") }();
    assert!(asked > 0, "none needed more shared memory than a block gets without asking");
}

#[test]
fn a_driver_that_refuses_what_is_too_much_launches_every_plan() {
    let test = "a_driver_that_refuses_what_is_too_much_launches_every_plan";
    for capability in ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"] {
        let variables = [("FAKE_CUDA_CAPABILITY", capability), ("FAKE_CUDA_VERSION", "13000")];
        fake_driver::isolated(test, &variables, launch_plans);
    }
}
