//! What inputs that are made to break a scheme may do to it: the errors of every kernel's scheme, against what the scheme guarantees.

use cuda_std::executor::Checks;
use host::bench::inputs::Inputs;
use rayon::prelude::*;
use tests::Sizes;
use tests::accuracy::largest_error;
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, kernels};

/// A kernel of each scheme and each way of adding up, for B column-major.
const KERNELS: [&str; 14] = [
    "gemm_mma_128x128_nt_fp32_fp64",
    "gemm_mma_64x64_nt_fp32_fp64",
    "gemm_register_tiled_64_nt_fp32",
    "gemm_outer_32_fp32",
    "gemm_narrow_8_nt_fp32",
    "gemv_split_fp32",
    "gemm_mma_64x64_nt_fp32_3xtf32",
    "gemm_narrow_16_nt_fp32_3xtf32",
    "gemm_wgmma_nt_fp32_3xtf32",
    "gemm_mma_nt_fp32_mixed",
    "gemm_wgmma_packed_fp32_3xfp16",
    "gemm_wgmma_nt_tf32",
    "gemm_mma_nt_bf16",
    "gemm_mma_nt_fp16",
];

/// The terms of the sums.
const TERMS: [usize; 3] = [8, 64, 640];

/// A rounding error of fp32, relative to the result.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// What an element may be off by, as a part of `Σ|a||b|`; nothing where the scheme does not say.
fn guaranteed(scheme: Scheme, inputs: Inputs, k: usize) -> Option<f64> {
    let (a, b) = match scheme {
        // The rounding of the result.
        Scheme::Fp32Fp64 => (1.0, k as f64 * 2f64.powi(-29)),
        // One sum after the other, each rounded.
        Scheme::Fp32 => (1.0, k as f64),
        // Sums of 32 terms are cut off, and then added up in fp32: K/64 + 32 is room for both.
        Scheme::Fp32ThreeTf32 | Scheme::Fp32ThreeFp16 => (9.0, k as f64 / 64.0 + 32.0),
        Scheme::Fp32Mixed => (64.0, k as f64 / 64.0 + 32.0),
        Scheme::Tf32 => (2f64.powi(14), k as f64),
        Scheme::Bf16 => (2f64.powi(17), k as f64),
        Scheme::Fp16 => {
            let is_in_range = matches!(
                inputs,
                Inputs::Uniform01
                    | Inputs::Uniform11
                    | Inputs::OneHot
                    | Inputs::OneProduct
                    | Inputs::Cancelling
                    | Inputs::Bf16Values
                    | Inputs::Integers
            );
            if !is_in_range {
                return None;
            }
            (2f64.powi(14), k as f64)
        }
        Scheme::Fp32ScaledFp16 => return None,
    };
    Some((a + b) * UNIT)
}

/// Whether the result has to be exact: sums of whole numbers; and, where operands are not decomposed, elements of B. (Two numbers of 11
/// bits and a sign hold 23 of the 24 bits.)
fn is_exact(scheme: Scheme, inputs: Inputs) -> bool {
    inputs == Inputs::Integers || (inputs == Inputs::OneHot && matches!(scheme, Scheme::Fp32 | Scheme::Fp32Fp64))
}

#[test]
fn no_inputs_break_what_a_scheme_guarantees() {
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
            let most = guaranteed(kernel.scheme, inputs, sizes.k)?;
            let most = if is_exact(kernel.scheme, inputs) { 0.0 } else { most };
            let error = largest_error(&device, kernel, inputs, sizes, 3).unwrap();
            let error = error.unwrap_or_else(|| panic!("{} has computed nothing", kernel.name));
            let text = format!("{} on {inputs}, k={k}: {error:.2e}, more than {most:.2e}", kernel.name);
            (error > most).then_some(text)
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The bits of a product of A row-major and B column-major, by a kernel.
fn bits(device: &Device, kernel: &str, a: &[f32], b: &[f32], Sizes { m, n, k }: Sizes) -> Vec<u32> {
    let matrix = |numbers: &[f32], rows, cols, strides| {
        DeviceMatrix::new(device.upload(numbers).unwrap(), rows, cols, strides).unwrap()
    };
    let (a, b) = (matrix(a, m, k, [k, 1]), matrix(b, k, n, [1, k]));
    let mut c = matrix(&vec![0.0; m * n], m, n, [n, 1]);
    let product = Description::of(1.0, &a, &b, 0.0, &c).unwrap();
    let plan = GemmPlan::new(device, &product, &Options::from(kernels::find(kernel).unwrap())).unwrap();
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
        let whole = bits(&device, "gemm_mma_128x128_nt_fp32_fp64", &a, &b, Sizes { m, n, k });
        for (kernel, first, rows) in [
            ("gemm_mma_64x64_nt_fp32_fp64", 0, m),
            ("gemm_mma_64x64_nt_fp32_fp64", 1, 1),
            ("gemm_mma_128x128_nt_fp32_fp64", m / 2, m - m / 2),
        ] {
            let part = bits(&device, kernel, &a[first * k..(first + rows) * k], &b, Sizes { m: rows, n, k });
            assert!(part == whole[first * n..(first + rows) * n], "{kernel}, rows {first} to {}", first + rows);
        }
    }
}
