//! The kernels on a GPU. Where there is none, every test is listed as ignored, with "skipped: no device" as the reason.
//!
//! Needs nothing at run time but the driver: the test program can be carried to a machine without Rust.

mod gpu_faults;

use std::io::Write;
use std::sync::OnceLock;

use cuda_driver::{Error as DriverError, Gpu, Module};
use cuda_std::executor::{Checks, Executor};
use cuda_std::{GlobalSlice, GlobalSliceMut, KernelFacts};
use gpu_kernels::gemm::Gemm;
use gpu_kernels::gemm::basic::naive_2d::gemm_naive_2d_fp32;
use gpu_kernels::{Matrix, MatrixMut};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use testkit::Operation;
use tests::device_features::{self, Feature, Launcher, X, untouched};
use tests::invariance;
use tests::scaling::Scaled;
use tests::special::{self, Special};
use tests::special_values;
use tests::{Batch, Kernel, Layout, Layouts, Operand, Place, Planned, Problem, Sizes};
use tilewright::kernels::{self, KernelInfo};
use tilewright::plan::DeviceFacts;
use tilewright::{Buffer, Device, DeviceError, Error, Order, Precision};

const NO_DEVICE: &str = "skipped: no device";

/// The GPU, which is opened once; `None` if there is none. What else can be wrong fails every test.
fn device() -> Result<Option<&'static Device>, Failed> {
    static DEVICE: OnceLock<Result<Option<Device>, String>> = OnceLock::new();
    let opened = DEVICE.get_or_init(|| match Device::cuda(0) {
        Ok(device) => Ok(Some(device)),
        Err(Error::Device(DeviceError::Driver(DriverError::NoDriver { .. } | DriverError::NoDevice { .. }))) => {
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    });
    Ok(opened.as_ref()?.as_ref())
}

/// A test that needs a GPU.
fn trial(name: impl Into<String>, test: impl Fn(&Device) -> Result<Completion, Failed> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match device()? {
        Some(device) => test(device),
        None => Ok(Completion::ignored_with(NO_DEVICE)),
    })
}

/// As [`trial`], for tests that can run on every GPU.
fn test(name: impl Into<String>, test: impl Fn(&Device) -> Result<(), Failed> + Send + 'static) -> Trial {
    trial(name, move |device| test(device).map(|()| Completion::Completed))
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in Kernel::ALL {
        for layouts in Layouts::ALL {
            if kernel == Kernel::GemvBlockReduction && layouts.b.order == Order::ColumnMajor {
                continue; // a vector is its own transpose
            }
            trials.push(test(format!("{}::{}", kernel.name(), layouts.orders()), move |device| {
                products(device, kernel, layouts)
            }));
        }
        let name = |what: &str| format!("{}::{what}", kernel.name());
        trials.push(test(name("factors"), move |device| factors(device, kernel)));
        trials.push(test(name("large"), move |device| large(device, kernel)));
        trials.push(test(name("same_bits_every_time"), move |device| same_bits_every_time(device, kernel)));
        trials.push(test(name("same_bits_as_on_the_cpu"), move |device| same_bits_as_on_the_cpu(device, kernel)));
    }
    for &kernel in kernels::ALL.iter() {
        trials.push(trial(format!("few::{}", kernel.name), move |device| few_products(device, kernel)));
        let name = |what: &str| format!("planned::{}::{what}", kernel.name);
        for layouts in Layouts::ALL {
            trials.push(trial(name(layouts.orders().name()), move |device| planned_products(device, kernel, layouts)));
        }
        trials.push(trial(name("special_values"), move |device| planned_special_values(device, kernel)));
        trials.push(trial(name("factors"), move |device| planned_factors(device, kernel)));
        trials.push(trial(name("batches"), move |device| planned_batches(device, kernel)));
        trials.push(trial(name("parts"), move |device| planned_parts(device, kernel)));
        trials.push(trial(name("same_bits_every_time"), move |device| planned_same_bits(device, kernel)));
    }
    for kernel in &kernels::GROUPED {
        let checks = move |device: &Device| match not_for(device, kernel.single) {
            Some(skipped) => Ok(skipped),
            None => Ok(tests::grouped::check_kernel(device, kernel).map(|()| Completion::Completed)?),
        };
        trials.push(trial(format!("grouped::{}", kernel.name), checks));
    }
    for &kernel in kernels::ALL.iter().filter(|kernel| kernel.facts.arch.is_some()) {
        for special in Special::ALL.into_iter().filter(|special| special.suits(kernel.scheme)) {
            let name = format!("special::{}::{special:?}", kernel.name);
            trials.push(trial(name, move |device| planned_special(device, kernel, special)));
        }
    }
    trials.extend(gpu_faults::trials());
    for feature in Feature::ALL {
        let (name, _) = feature.name_and_block();
        trials.push(trial(format!("device_features::{name}"), move |_| device_feature(feature)));
    }
    let call_time = test("call_time", |device| {
        println!("{}", tests::call_time::report(device)?);
        Ok(())
    });
    trials.push(call_time.with_ignored_flag(true));
    trials.push(test("scaling::all_layouts", |device| {
        Ok(Scaled::all().iter().try_for_each(|scaled| scaled.check(device))?)
    }));
    for &operation in host::operations::ALL.iter() {
        let name = |what: &str| format!("operations::{}::{what}", operation.describe().name);
        trials.push(trial(name("check"), move |_| {
            of_operation(operation, |device| {
                let report = testkit::check(operation, device, 1)?;
                Ok((report.holds(), report.to_string()))
            })
        }));
        trials.push(trial(name("agreement"), move |_| {
            of_operation(operation, |device| {
                let agreement = testkit::agreement(operation, device, &testkit::Device::cpu(Checks::Bounds), 1..3)?;
                Ok((agreement.holds(), agreement.to_string()))
            })
        }));
    }
    for (precision, sizes) in [
        (Precision::Fp32, [130, 700]),
        (Precision::Fp32, [4096, 4096]),
        (Precision::Fp32, [3, 50_000]),
        (Precision::Fp32Strict, [1000, 500]),
        (Precision::Fp32Rounded, [300, 500]),
        (Precision::Tf32, [1000, 2000]),
        (Precision::Bf16, [1000, 2000]),
    ] {
        trials.push(test(format!("invariance::{precision}::{sizes:?}"), move |device| {
            let gpu = DeviceFacts::of(device);
            Ok((0..4).try_for_each(|seed| invariance::check(device, &gpu, precision, sizes, seed).map(|_| ()))?)
        }));
    }
    for name in tests::packed_once::KERNELS {
        trials.push(trial(format!("packed_once::{name}"), move |device| {
            tests::packed_once::check(device, &DeviceFacts::of(device), kernels::find(name)?, 24)?;
            Ok(Completion::Completed)
        }));
    }
    for name in tests::epilogue::KERNELS {
        trials.push(trial(format!("epilogue::{name}"), move |device| same_epilogues_as_on_the_cpu(device, name)));
    }
    trials.push(trial("elements_beyond_32_bit_offsets", far_elements));
    trials.push(test("errors::out_of_memory", out_of_memory));
    trials.push(test("errors::corrupt_ptx", corrupt_ptx));
    trials.push(test("errors::ptx_without_the_kernel", ptx_without_the_kernel));
    trials.push(test("errors::a_view_of_another_device", a_view_of_another_device));
    libtest_mimic::run(&arguments, trials).exit();
}

/// What has come of an operation, unless the device lacks a kernel of it that is for other GPUs.
fn of_operation(
    operation: &dyn Operation,
    test: impl FnOnce(&Device) -> Result<(bool, String), testkit::Error>,
) -> Result<Completion, Failed> {
    // Not the one that all share: which kernels an operation launches is seen by what its device has loaded.
    let device = Device::cuda(0)?;
    let runs = |kernel: &KernelFacts| !matches!(device.has_kernel(kernel), Err(DeviceError::KernelForOtherGpus { .. }));
    let is_auxiliary = |kernel: &&KernelFacts| kernels::AUXILIARY.iter().any(|auxiliary| auxiliary.name == kernel.name);
    let kernels = operation.describe().kernels;
    let (auxiliary, others): (Vec<_>, Vec<_>) = kernels.iter().partition(is_auxiliary);
    if !if others.is_empty() { auxiliary } else { others }.into_iter().any(runs) {
        return Ok(Completion::ignored_with("no kernel of it runs on this GPU"));
    }
    let (is_right, report) = test(&device)?;
    println!("{report}");
    if is_right { Ok(Completion::Completed) } else { Err(report.into()) }
}

fn check(device: &Device, kernel: Kernel, problem: &Problem) -> Result<(), Failed> {
    kernel.check(Place::Device(device), problem).map_err(|reason| format!("{problem:?}: {reason}").into())
}

/// Products with an epilogue, of which the kernel does the steps: not in plans that leave parts of C to another kernel, which a few need.
fn same_epilogues_as_on_the_cpu(device: &Device, name: &str) -> Result<Completion, Failed> {
    let kernel = kernels::find(name)?;
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let compared = tests::epilogue::check(device, kernel)?;
    println!("{name}: {compared:?}");
    match compared.fused > compared.products / 2 {
        true => Ok(Completion::Completed),
        false => Err(format!("{name}: {compared:?}: too few were computed with the steps").into()),
    }
}

/// Any kernel with a shape that it can compute.
fn shape_for(kernel: Kernel, m: usize, n: usize, k: usize) -> Sizes {
    Sizes { m, n: if kernel == Kernel::GemvBlockReduction { 1 } else { n }, k }
}

/// Odd extents, with and without gaps in memory.
fn products(device: &Device, kernel: Kernel, layouts: Layouts) -> Result<(), Failed> {
    const EXTENTS: [usize; 9] = [0, 1, 7, 15, 16, 17, 31, 32, 33];
    let mut seed = 0;
    for m in EXTENTS {
        for n in EXTENTS {
            for k in EXTENTS {
                seed += 1;
                // Vectors: the third extent stands for nothing, so it makes the sums longer.
                let k = if kernel == Kernel::GemvBlockReduction { k + 37 * n } else { k };
                let layouts = if seed % 2 == 0 { layouts } else { layouts.padded() };
                check(device, kernel, &Problem::new(shape_for(kernel, m, n, k), layouts, seed))?;
            }
        }
    }
    Ok(())
}

/// Factors that hide what they multiply, which then is NaN, and others.
fn factors(device: &Device, kernel: Kernel) -> Result<(), Failed> {
    for alpha in [0.0, 1.0, -1.0, 0.37] {
        for beta in [0.0, 1.0, -1.0, 0.37] {
            for k in [0, 40] {
                let layouts = Layouts { c: Layout::COLUMNS.padded(2), ..Layouts::ALL[0].padded() };
                let layouts = if kernel == Kernel::GemvBlockReduction { Layouts::ALL[0].padded() } else { layouts };
                let mut problem = Problem::new(shape_for(kernel, 18, 33, k), layouts, 3).scaled(alpha, beta);
                if alpha == 0.0 {
                    problem.a.fill(f32::NAN);
                    problem.b.fill(f32::NAN);
                }
                if beta == 0.0 {
                    problem.c.fill(f32::NAN);
                }
                check(device, kernel, &problem)?;
            }
        }
    }
    Ok(())
}

/// Extents that are no multiples of anything, and so many blocks that they run on all multiprocessors.
fn large(device: &Device, kernel: Kernel) -> Result<(), Failed> {
    for layouts in Layouts::ALL {
        if kernel == Kernel::GemvBlockReduction && layouts.b == Layout::COLUMNS {
            continue;
        }
        let (m, k) = if kernel == Kernel::GemvBlockReduction { (3001, 4099) } else { (701, 397) };
        check(device, kernel, &Problem::new(shape_for(kernel, m, 1033, k), layouts, 5))?;
    }
    // More rows of tiles than a grid can have along y.
    check(device, kernel, &Problem::new(shape_for(kernel, 65_535 * 32 + 33, 3, 2), Layouts::ALL[0], 5))
}

fn bits(place: Place<'_>, kernel: Kernel, problem: &Problem) -> Result<Vec<u32>, Failed> {
    let mut computed = problem.clone();
    kernel.run(place, &mut computed)?;
    Ok(computed.c.bits())
}

fn same_bits_every_time(device: &Device, kernel: Kernel) -> Result<(), Failed> {
    let problem = Problem::new(shape_for(kernel, 257, 129, 1031), Layouts::ALL[2], 7).scaled(1.5, -0.5);
    let first = bits(Place::Device(device), kernel, &problem)?;
    for run in 1..20 {
        if bits(Place::Device(device), kernel, &problem)? != first {
            return Err(format!("run {run} gives another result than the first").into());
        }
    }
    Ok(())
}

/// The executor runs the same source, and every operation of it is rounded as on a GPU: so the results are the same, bit by
/// bit, also where they are subnormal, infinite or zero. Only NaNs are of different kinds.
fn same_bits_as_on_the_cpu(device: &Device, kernel: Kernel) -> Result<(), Failed> {
    const RARE: [f32; 4] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX];
    const SMALL: [f32; 6] = [-0.0, 1e-40, -1e-45, f32::MIN_POSITIVE, -1.5e-30, 2e-20];
    let executor = Executor::new(Checks::Bounds);
    let mut problem = Problem::new(shape_for(kernel, 67, 66, 333), Layouts::ALL[3], 11);
    for special in [false, true] {
        if special {
            let replace = |operand: &mut Operand, step: usize| {
                for position in (0..operand.rows() * operand.cols()).step_by(step) {
                    let turn = position / step;
                    let value = if turn % 50 == 7 { RARE[turn / 50 % 4] } else { SMALL[turn % 6] };
                    operand.set(position / operand.cols(), position % operand.cols(), value);
                }
            };
            replace(&mut problem.a, 43);
            replace(&mut problem.b, 47);
            for l in 0..problem.a.cols() {
                problem.a.set(3, l, if l % 2 == 0 { -1e-45 } else { 3e-39 });
            }
        }
        for (alpha, beta) in [(1.0, 0.0), (-0.7, 0.3)] {
            let problem = problem.clone().scaled(alpha, beta);
            let there = bits(Place::Device(device), kernel, &problem)?;
            let here = bits(Place::Executor(&executor), kernel, &problem)?;
            for (position, (there, here)) in there.into_iter().zip(here).enumerate() {
                let (a, b) = (f32::from_bits(there), f32::from_bits(here));
                if there != here && !(a.is_nan() && b.is_nan()) {
                    return Err(format!("element {position} is {a:e} on the GPU and {b:e} on the CPU").into());
                }
            }
        }
    }
    Ok(())
}

/// Why a kernel of the registry is not tested here, if it is not: it is for other GPUs.
fn not_for(device: &Device, kernel: &KernelInfo) -> Option<Completion> {
    let error = device.has_kernel(&kernel.facts).err()?;
    Some(Completion::ignored_with(format!("skipped: {error}")))
}

/// Computes a product by a plan for a kernel; whether the kernel can.
fn check_planned(
    device: &Device,
    kernel: &'static KernelInfo,
    splits: Option<u32>,
    problem: &Problem,
) -> Result<bool, Failed> {
    Ok(Planned::check_one(device, kernel, splits, &Batch::from(problem.clone()))?)
}

/// Any product that a kernel of the registry can compute.
fn planned_shape(kernel: &KernelInfo, [m, n, k]: [usize; 3]) -> Sizes {
    kernel.within(Sizes { m, n, k })
}

/// Extents below, at and beyond those of tiles, in memory without gaps, with any gaps, and with such as tensor maps allow;
/// with the splits that the plan chooses, and with others.
fn planned_products(device: &Device, kernel: &'static KernelInfo, layouts: Layouts) -> Result<Completion, Failed> {
    const EXTENTS: [[usize; 3]; 18] = [
        [1, 1, 1],
        [7, 5, 3],
        [16, 8, 8],
        [33, 65, 31],
        [64, 64, 64],
        [65, 31, 129],
        [127, 129, 33],
        [128, 128, 32],
        [129, 257, 65],
        [256, 128, 96],
        [257, 130, 100],
        [200, 516, 61],
        [130, 260, 32],
        [300, 3, 1025],
        [3, 300, 260],
        [0, 5, 4],
        [5, 0, 4],
        [5, 4, 0],
    ];
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let mut computed = 0;
    for (seed, extents) in EXTENTS.into_iter().enumerate() {
        let shape = planned_shape(kernel, extents);
        for layouts in [layouts, layouts.padded(), layouts.aligned(shape)] {
            let problem = Problem::new(shape, layouts, seed as u64);
            for splits in [None, Some(1), Some(2), Some(5)] {
                computed += usize::from(check_planned(device, kernel, splits, &problem)?);
            }
        }
    }
    // A kernel that refuses everything is not tested.
    match computed {
        0 if layouts == own_layouts(kernel) => Err("the kernel has computed none of the products".into()),
        0 => Ok(Completion::ignored_with("skipped: the kernel computes no product in this layout")),
        _ => Ok(Completion::Completed),
    }
}

/// As little as shows most: for tools under which a kernel takes a hundred times as long.
fn few_products(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let layouts = own_layouts(kernel);
    let mut computed = 0;
    for (seed, extents) in [[7, 5, 3], [33, 65, 41], [130, 67, 70], [130, 260, 50]].into_iter().enumerate() {
        let shape = planned_shape(kernel, extents);
        for layouts in [layouts, layouts.padded(), layouts.aligned(shape)] {
            for splits in [None, Some(2)] {
                let batch = Batch::new(2, [false, true], shape, layouts, seed as u64).scaled(-0.7, 0.3);
                let one = Problem::new(shape, layouts, seed as u64);
                computed += usize::from(check_planned(device, kernel, splits, &one)?);
                computed += usize::from(Planned::check_one(device, kernel, splits, &batch)?);
            }
        }
    }
    if computed == 0 { Err("the kernel has computed none of the products".into()) } else { Ok(Completion::Completed) }
}

/// The layouts that a kernel is for, by its name; any kernel without such a name takes A and B by rows.
fn own_layouts(kernel: &KernelInfo) -> Layouts {
    let named = ["_nn_", "_nt_", "_tn_", "_tt_"].iter().position(|part| kernel.name.contains(part));
    let transposed = kernel.name.contains("_transposed_").then_some(2);
    Layouts::ALL[named.or(transposed).unwrap_or(0)]
}

/// Factors that hide what they multiply, which then is NaN, and others.
fn planned_factors(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    for (alpha, beta) in [(0.0, 0.0), (0.0, -1.5), (1.0, 0.0), (-0.7, 1.0), (0.37, -0.4)] {
        for layouts in Layouts::ALL {
            for splits in [None, Some(3)] {
                let shape = planned_shape(kernel, [130, 70, 150]);
                let mut problem = Problem::new(shape, layouts.padded(), 3).scaled(alpha, beta);
                if alpha == 0.0 {
                    problem.a.fill(f32::NAN);
                    problem.b.fill(f32::NAN);
                }
                if beta == 0.0 {
                    problem.c.fill(f32::NAN);
                }
                check_planned(device, kernel, splits, &problem)?;
            }
        }
    }
    Ok(Completion::Completed)
}

/// Batches, with an operand for each product or one that all share.
fn planned_batches(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let layouts = own_layouts(kernel);
    let mut computed = 0;
    for (seed, extents) in [[1, 1, 1], [65, 31, 129], [130, 257, 64], [130, 260, 33], [5, 4, 0]].into_iter().enumerate()
    {
        for shared in [[false, false], [true, false], [false, true], [true, true]] {
            for layouts in [layouts, layouts.padded()] {
                for (factors, splits) in [((1.0, 0.0), None), ((-0.7, 0.3), Some(1)), ((1.0, 0.0), Some(3))] {
                    let shape = planned_shape(kernel, extents);
                    let batch = Batch::new(3, shared, shape, layouts, seed as u64).scaled(factors.0, factors.1);
                    computed += usize::from(Planned::check_one(device, kernel, splits, &batch)?);
                }
            }
        }
    }
    // So many that blocks have several, where they do, and the last block is not full.
    for extents in [[4, 4, 4], [16, 16, 16], [33, 7, 21]] {
        for layouts in [layouts, layouts.padded()] {
            for count in [1, 333] {
                let batch = Batch::new(count, [false, false], planned_shape(kernel, extents), layouts, 77);
                computed += usize::from(Planned::check_one(device, kernel, None, &batch)?);
            }
        }
    }
    if computed == 0 { Err("the kernel has computed none of the batches".into()) } else { Ok(Completion::Completed) }
}

/// Parts of results, and operands that have zeros elsewhere; where the kernel knows of them, more tiles than the GPU computes at a
/// time.
fn planned_parts(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let shapes = [[40, 44, 36], [300, 500, 64], [700, 300, 640], [2100, 2200, 64]];
    let shapes = shapes.map(|extents| planned_shape(kernel, extents));
    let knows = kernel.name.contains("_packed_");
    match tests::check_parts(device, kernel, &shapes[..if knows { 4 } else { 2 }], own_layouts(kernel))? {
        0 => Err("the kernel has computed none of the products".into()),
        _ => Ok(Completion::Completed),
    }
}

/// Every kernel that does not say otherwise gives the same bits on every run, whatever the splits.
fn planned_same_bits(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    if !kernel.deterministic {
        return Ok(Completion::ignored_with("skipped: the kernel's documentation says that its results vary"));
    }
    let mut computed = 0;
    for layouts in Layouts::ALL {
        for (extents, beta, splits) in
            [([257, 129, 1031], -0.5, None), ([257, 129, 1031], -0.5, Some(4)), ([257, 260, 61], 0.0, None)]
        {
            let problem = Problem::new(planned_shape(kernel, extents), layouts, 7).scaled(1.5, beta);
            let batch = Batch::from(problem);
            let Some(mut planned) = Planned::new(device, kernel, splits, &batch)? else { continue };
            computed += 1;
            let first = planned.run()?.bits();
            for run in 1..20 {
                if planned.run()?.bits() != first {
                    return Err(format!("{batch:?}, splits {splits:?}: run {run} gives another result").into());
                }
            }
        }
    }
    if computed == 0 { Err("the kernel has computed none of the products".into()) } else { Ok(Completion::Completed) }
}

/// All special values against each other.
fn planned_special_values(device: &Device, kernel: &'static KernelInfo) -> Result<Completion, Failed> {
    match not_for(device, kernel) {
        Some(skipped) => Ok(skipped),
        None => Ok(special_values::check_all(device, kernel).map(|()| Completion::Completed)?),
    }
}

/// Operands that are not like random numbers.
fn planned_special(device: &Device, kernel: &'static KernelInfo, special: Special) -> Result<Completion, Failed> {
    if let Some(skipped) = not_for(device, kernel) {
        return Ok(skipped);
    }
    let bound = special::bound(kernel.scheme);
    let mut computed = 0;
    for (seed, layouts) in Layouts::ALL.into_iter().enumerate() {
        for (layouts, factors, splits) in
            [(layouts, (1.0, 0.0), None), (layouts.padded(), (-0.7, 0.3), Some(1)), (layouts, (1.5, -1.0), Some(3))]
        {
            for shape in special::SHAPES {
                let problem = special.problem(shape, layouts, seed as u64).scaled(factors.0, factors.1);
                let batch = Batch::from(problem.clone());
                let Some(mut planned) = Planned::new(device, kernel, splits, &batch)? else { continue };
                computed += 1;
                let results = planned.run()?;
                for result in results.iter() {
                    special::check(&problem, result, kernel.scheme, bound)
                        .map_err(|reason| format!("{problem:?}: {reason}\n{}", planned.plan().explanation()))?;
                }
            }
        }
    }
    if computed == 0 { Err("the kernel has computed none of the products".into()) } else { Ok(Completion::Completed) }
}

/// A GPU and a module on it, as something that runs its kernels.
struct OnGpu(Gpu, Module);

impl Launcher for OnGpu {
    type Error = DriverError;

    unsafe fn launch<K: cuda_std::Kernel>(&self, kernel: K, blocks: u32) -> Result<(), DriverError> {
        let facts = kernel.facts();
        let function = self.1.function(K::NAME)?;
        // SAFETY: the caller's promise. `Kernel` vouches for the arguments, which are copied before this returns.
        unsafe {
            function.launch(
                &self.0,
                [blocks, 1, 1],
                facts.block,
                facts.dynamic_shared_bytes,
                &mut kernel.param_addresses(),
            )
        }
    }
}

/// The PTX of a kernel of `fixtures/device-features`, or why there is none.
fn ptx_of_feature(name: &str) -> Result<Result<&'static str, Completion>, Failed> {
    let archs = match device_features::PTX {
        Ok(archs) => archs,
        Err(reason) => return Ok(Err(Completion::ignored_with(format!("skipped: no PTX: {reason}")))),
    };
    // For the lowest architecture, so for every GPU.
    let (_, kernels) = archs.first().ok_or("there is no PTX")?;
    let (_, ptx) = kernels.iter().find(|(kernel, _)| *kernel == name).ok_or("the kernel has no PTX")?;
    Ok(Ok(ptx))
}

/// One of the kernels of `fixtures/device-features`: gives what it does on the CPU, which is what it should.
fn device_feature(feature: Feature) -> Result<Completion, Failed> {
    let (name, _) = feature.name_and_block();
    let ptx = match ptx_of_feature(name)? {
        Ok(ptx) => ptx,
        Err(skipped) => return Ok(skipped),
    };
    let (x, mut here, mut there) = (X::new(), untouched(), untouched());
    // SAFETY: the slices are this process's, and two different ones.
    unsafe {
        feature.launch(&Executor::new(Checks::Full), GlobalSlice::new(&x.0), GlobalSliceMut::new(&mut here))?;
    }

    let gpu = Gpu::open(0)?;
    let mut x_there = gpu.allocate::<f32>(x.0.len())?;
    x_there.copy_from_host(&x.0)?;
    let mut y_there = gpu.allocate::<u64>(there.len())?;
    y_there.copy_from_host(&there)?;
    let (x_address, y_address) = (x_there.address() as usize as *const f32, y_there.address() as usize as *mut u64);
    // SAFETY: the addresses are those of two arrays of these lengths, which stay allocated until the kernel has finished:
    // the copy below waits for it. The driver aligns them to 256 bytes.
    unsafe {
        let x_view = GlobalSlice::from_raw_parts(x_address, x_there.len());
        let y_view = GlobalSliceMut::from_raw_parts(y_address, y_there.len());
        feature.launch(&OnGpu(gpu.clone(), gpu.load_ptx(ptx)?), x_view, y_view)?;
    }
    y_there.copy_to_host(&mut there)?;
    for (place, y) in [("GPU", &there), ("CPU", &here)] {
        for (position, (found, expected)) in y.iter().zip(feature.expected(&x)).enumerate() {
            if *found != expected {
                return Err(format!("element {position} is {found:#x} on the {place}, not {expected:#x}").into());
            }
        }
    }
    Ok(Completion::Completed)
}

/// A matrix of three rows that lie more than 2³¹ elements apart: written by a kernel, then read by one. In between its rows
/// are read one by one, from where they should be.
fn far_elements(device: &Device) -> Result<Completion, Failed> {
    const STRIDE: usize = (1 << 31) + 1029;
    const FAR: usize = 3;
    const NEAR: usize = 4;
    let len = (FAR - 1) * STRIDE + NEAR;
    let needed = (len * size_of::<f32>()) as u128 + (1 << 28);
    match device.free_memory()? {
        Some(free) if free.0 >= needed => {}
        _ => return Ok(Completion::ignored_with(format!("skipped: needs {needed} bytes of free GPU memory"))),
    }
    let identity: Vec<f32> = (0..NEAR * NEAR).map(|i| f32::from(u8::from(i % (NEAR + 1) == 0))).collect();
    let identity = device.upload(&identity)?;
    let identity = Matrix::new(identity.view(), NEAR, NEAR, NEAR, 1)?;
    let copy = |from: Matrix<'_>, to: MatrixMut<'_>| -> Result<(), Failed> {
        Ok(device.launch(gemm_naive_2d_fp32 { gemm: Gemm::new(1.0, from, identity, 0.0, to)? })?)
    };

    let mut far: Buffer<f32> = device.allocate(len)?;
    far.fill_bytes(0xFF)?;
    let numbers: Vec<f32> = (0..FAR * NEAR).map(|i| i as f32 + 1.0).collect();
    let numbers_there = device.upload(&numbers)?;
    let from = Matrix::new(numbers_there.view(), FAR, NEAR, NEAR, 1)?;
    copy(from, MatrixMut::new(far.view_mut(), FAR, NEAR, STRIDE, 1)?)?;

    let mut back = device.upload(&[f32::NAN; FAR * NEAR])?;
    let mut found = vec![0.0; FAR * NEAR];
    for (row, found) in found.chunks_mut(NEAR).enumerate() {
        // SAFETY: the elements of one row are a part of the buffer, which is borrowed.
        let part = unsafe { GlobalSlice::from_raw_parts(far.view().as_ptr().wrapping_add(row * STRIDE), NEAR) };
        let mut row_back = device.upload(&[f32::NAN; NEAR])?;
        copy(Matrix::new(part, 1, NEAR, NEAR, 1)?, MatrixMut::new(row_back.view_mut(), 1, NEAR, NEAR, 1)?)?;
        row_back.copy_to(found)?;
    }
    if found != numbers {
        return Err(format!("written: {found:?} for {numbers:?}").into());
    }
    copy(Matrix::new(far.view(), FAR, NEAR, STRIDE, 1)?, MatrixMut::new(back.view_mut(), FAR, NEAR, NEAR, 1)?)?;
    back.copy_to(&mut found)?;
    if found == numbers { Ok(Completion::Completed) } else { Err(format!("read: {found:?} for {numbers:?}").into()) }
}

/// Fails unless `result` is an error whose message has all `parts`.
fn expect_error<T, E: ToString>(result: Result<T, E>, parts: &[&str]) -> Result<(), Failed> {
    let Err(error) = result else { return Err("there was no error".into()) };
    let message = error.to_string();
    match parts.iter().find(|part| !message.contains(**part)) {
        Some(part) => Err(format!("{message:?} does not say {part:?}").into()),
        None => Ok(()),
    }
}

/// The device can be used after an error that it recovers from.
fn still_works(device: &Device) -> Result<(), Failed> {
    check(device, Kernel::GemmTiled16, &Problem::new(Sizes { m: 20, n: 20, k: 20 }, Layouts::ALL[0], 1))
}

fn out_of_memory(device: &Device) -> Result<(), Failed> {
    // 4 TiB, more than any GPU has.
    expect_error(device.allocate::<f32>(1 << 40), &["out of GPU memory", "4398046511104", "free", "nvidia-smi"])?;
    expect_error(device.allocate::<f32>(usize::MAX), &["more than any GPU can address"])?;
    still_works(device)
}

fn with_ptx(text: &str) -> Result<Result<Device, Error>, Failed> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    // SAFETY: none of the modules of these tests has a kernel with the name of one of the library's.
    Ok(unsafe { Device::cuda_with_ptx(0, file.path()) })
}

fn corrupt_ptx(device: &Device) -> Result<(), Failed> {
    expect_error(with_ptx("hello")?, &["is not PTX", ".version", "cargo xtask build-ptx"])?;
    let broken = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { nonsense; }\n";
    expect_error(with_ptx(broken)?, &["PTX", "line 4"])?;
    expect_error(with_ptx(&broken.replace("7.0", "99.9").replace("nonsense", "ret"))?, &["PTX", "driver"])?;
    still_works(device)
}

fn ptx_without_the_kernel(device: &Device) -> Result<(), Failed> {
    let other = with_ptx(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry other() { ret; }\n")??;
    let mut problem = Problem::new(Sizes { m: 2, n: 2, k: 2 }, Layouts::ALL[0], 1);
    let result = Kernel::GemmTiled16.run(Place::Device(&other), &mut problem);
    expect_error(result, &["gemm_tiled_16_fp32", "other"])?;
    still_works(device)
}

fn a_view_of_another_device(device: &Device) -> Result<(), Failed> {
    let cpu = Device::cpu(Checks::Bounds);
    let (here, there) = (cpu.upload(&[1.0f32; 4])?, device.upload(&[1.0f32; 4])?);
    let mut c = device.upload(&[0.0f32; 4])?;
    let a = Matrix::new(here.view(), 2, 2, 2, 1)?;
    let b = Matrix::new(there.view(), 2, 2, 2, 1)?;
    let c = MatrixMut::new(c.view_mut(), 2, 2, 2, 1)?;
    let result = device.launch(gemm_naive_2d_fp32 { gemm: Gemm::new(1.0, a, b, 0.0, c)? });
    expect_error(result, &["gemm_naive_2d_fp32", "gemm.a.data", "is not inside a buffer of CUDA device 0"])?;
    still_works(device)
}
