//! What inputs that are made to break a scheme may do to it: the errors of every kernel's scheme, against its bounds.

use cuda_std::executor::Checks;
use host::bench::inputs::Inputs;
use rayon::prelude::*;
use tests::Sizes;
use tests::accuracy::{KERNELS, UNIT, Way, largest_error};
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Bounds, Device, DeviceMatrix, Precision, kernels};

/// The terms of the sums.
const TERMS: [usize; 4] = [2, 8, 64, 640];

/// What the errors of a kernel may be on these inputs; nothing where there is no bound.
fn bounds(scheme: Scheme, inputs: Inputs, k: usize) -> Option<Bounds> {
    // No sum is off by more than the rounding of its operands, as long as fp16 has their range.
    let in_range = [
        Inputs::Uniform01,
        Inputs::Uniform11,
        Inputs::OneHot,
        Inputs::OneProduct,
        Inputs::Cancelling,
        Inputs::Bf16Values,
        Inputs::Integers,
    ];
    match scheme {
        // The bounds are for normal operands.
        Scheme::Tf32 | Scheme::Bf16 if inputs == Inputs::Subnormal => None,
        Scheme::Fp16 if in_range.contains(&inputs) => Scheme::Tf32.bounds(k),
        _ => scheme.bounds(k),
    }
}

/// Whether the result has to be exact: sums of whole numbers; and elements of B, in the precisions of fp32.
fn is_exact(scheme: Scheme, inputs: Inputs) -> bool {
    let is_fp32 = matches!(scheme.precision(), Precision::Fp32 | Precision::Fp32Strict | Precision::Fp32Rounded);
    inputs == Inputs::Integers || (inputs == Inputs::OneHot && is_fp32)
}

#[test]
fn no_inputs_break_the_bounds_of_a_scheme() {
    let device = Device::cpu(Checks::Bounds);
    let found: Vec<&'static KernelInfo> = KERNELS.iter().map(|name| kernels::find(name).unwrap()).collect();
    let cases: Vec<_> = (found.into_iter())
        .flat_map(|kernel| Inputs::ALL.into_iter().map(move |inputs| (kernel, inputs)))
        .flat_map(|(kernel, inputs)| TERMS.into_iter().map(move |k| (kernel, inputs, k)))
        .collect();
    let failures: Vec<String> = cases
        .into_par_iter()
        .filter_map(|(kernel, inputs, k)| {
            let sizes = kernel.within(Sizes { m: 24, n: 20, k });
            let Bounds { guaranteed, expected } = bounds(kernel.scheme, inputs, sizes.k)?;
            let (what, most) = if is_exact(kernel.scheme, inputs) { ("nothing", 0.0) } else { ("expected", expected) };
            // Of a seed that the expectations were not made from.
            let error = largest_error(&device, Way::Kernel(kernel), inputs, sizes, 1234).unwrap();
            let error = error.unwrap_or_else(|| panic!("{} has computed nothing", kernel.name));
            assert!(expected <= guaranteed);
            (error > most).then(|| {
                format!("{} on {inputs}, k={k}: {:.2} units, {what}: {:.2}", kernel.name, error / UNIT, most / UNIT)
            })
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The bits of a product of A row-major and B column-major, by a kernel, with sums divided among so many blocks.
fn bits(device: &Device, kernel: &str, splits: u32, a: &[f32], b: &[f32], Sizes { m, n, k }: Sizes) -> Vec<u32> {
    let matrix = |numbers: &[f32], rows, cols, strides| {
        DeviceMatrix::new(device.upload(numbers).unwrap(), rows, cols, strides).unwrap()
    };
    let (a, b) = (matrix(a, m, k, [k, 1]), matrix(b, k, n, [1, k]));
    let mut c = matrix(&vec![0.0; m * n], m, n, [n, 1]);
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let options = Options { splits: Some(splits), ..Options::from(kernels::find(kernel).unwrap()) };
    let plan = GemmPlan::new(device, &product, &options).unwrap();
    plan.run(device, 1.0, &a, &b, 0.0, &mut c, &mut plan.workspace(device).unwrap()).unwrap();
    let mut results = vec![0.0f32; m * n];
    c.buffer().copy_to(&mut results).unwrap();
    results.into_iter().map(f32::to_bits).collect()
}

/// What [`Precision::Fp32Rounded`](tilewright::Precision::Fp32Rounded) promises, also for rows beside others of which no sum is finite.
#[test]
fn a_row_of_fp64_sums_has_the_same_bits_wherever_it_is() {
    let device = Device::cpu(Checks::Bounds);
    for (seed, (m, n, k)) in [(70, 40, 33), (150, 133, 100), (3, 5, 7)].into_iter().enumerate() {
        let (mut a, b) =
            (Inputs::LogUniform.a(m, k, false, seed as u64), Inputs::LogUniform.b(n, k, false, seed as u64));
        a[(m - 1) * k] = f32::INFINITY;
        let whole = bits(&device, "gemm_mma_128x128_nt_fp32_fp64", 1, &a, &b, Sizes { m, n, k });
        for (kernel, first, rows) in [
            ("gemm_mma_64x64_nt_fp32_fp64", 0, m),
            ("gemm_mma_64x64_nt_fp32_fp64", 1, 1),
            ("gemm_mma_128x128_nt_fp32_fp64", m / 2, m - m / 2),
        ] {
            let part = bits(&device, kernel, 1, &a[first * k..(first + rows) * k], &b, Sizes { m: rows, n, k });
            assert!(part == whole[first * n..(first + rows) * n], "{kernel}, rows {first} to {}", first + rows);
        }
    }
}

/// Partial sums in fp64 keep what an fp32 number does not hold: where they are added up, few results change, and these by one unit.
#[test]
fn divided_fp64_sums_are_rounded_once() {
    let device = Device::cpu(Checks::Bounds);
    let sizes = Sizes { m: 70, n: 33, k: 500 };
    for inputs in [Inputs::LogUniform, Inputs::Uniform11, Inputs::OneHuge] {
        let (a, b) = (inputs.a(sizes.m, sizes.k, false, 5), inputs.b(sizes.n, sizes.k, false, 5));
        for kernel in ["gemm_mma_128x128_nt_fp32_fp64", "gemm_mma_64x64_nt_fp32_fp64"] {
            let whole = bits(&device, kernel, 1, &a, &b, sizes);
            for splits in [2, 7, 31] {
                let divided = bits(&device, kernel, splits, &a, &b, sizes);
                let changed = whole.iter().zip(&divided).filter(|(one, other)| one != other).count();
                assert!(
                    changed <= whole.len() / 200,
                    "{kernel} on {inputs}, {splits} splits: {changed} of {}",
                    whole.len()
                );
                assert!(whole.iter().zip(&divided).all(|(one, other)| one.abs_diff(*other) <= 1));
            }
        }
    }
}
