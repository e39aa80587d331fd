//! What inputs that are made to break a scheme may do to it: the errors of every kernel's scheme, against what the scheme guarantees.

use cuda_std::executor::Checks;
use host::bench::inputs::Inputs;
use rayon::prelude::*;
use tests::Sizes;
use tests::accuracy::largest_error;
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::{Device, kernels};

/// A kernel of each scheme and each way of adding up, for B column-major.
const KERNELS: [&str; 12] = [
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
    inputs == Inputs::Integers || (inputs == Inputs::OneHot && scheme == Scheme::Fp32)
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
