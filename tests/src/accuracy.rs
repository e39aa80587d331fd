//! The errors of kernels on inputs that are made to show them, against f64, on whatever device; and a table of them.
//!
//! ```text
//!   kernel, or cuBLAS  ×  inputs  ×  terms  ──►  the largest |E| / Σ|a||b| of a small product, in units of 2⁻²⁴
//! ```

use std::fmt::Write as _;

use host::baseline::{CuBlas, Math, Routine};
use host::bench::inputs::Inputs;
use host::check::Reference;
use ndarray::{Array2, ArrayView2};
use tilewright::kernels::KernelInfo;
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, Sizes};

use crate::Error;

/// A kernel of each scheme and each way of adding up, for B column-major.
pub const KERNELS: [&str; 15] = [
    "gemm_mma_128x128_nt_fp32_fp64",
    "gemm_mma_64x64_nt_fp32_fp64",
    "gemm_register_tiled_64_nt_fp32",
    "gemm_outer_32_fp32",
    "gemm_narrow_8_nt_fp32",
    "gemv_split_fp32",
    "gemm_mma_64x64_nt_fp32_3xtf32",
    "gemm_narrow_16_nt_fp32_3xtf32",
    "gemm_wgmma_nt_fp32_3xtf32",
    "gemm_mma_nt_fp32_3xtf32",
    "gemm_wgmma_packed_fp32_3xfp16",
    "gemm_wgmma_packed_staged_fp32_3xfp16",
    "gemm_wgmma_nt_tf32",
    "gemm_mma_nt_bf16",
    "gemm_mma_nt_fp16",
];

/// A rounding error of fp32, relative to the result.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// What multiplies.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// A kernel of ours.
    Kernel(&'static KernelInfo),
    /// cuBLAS in fp32.
    CuBlas(&'a CuBlas),
}

/// The largest `|E| / Σ|a||b|` of a product of A row-major and B column-major. Nothing if the kernel cannot compute the product.
///
/// # Errors
/// Those of planning and of the run.
pub fn largest_error(
    device: &Device,
    way: Way<'_>,
    inputs: Inputs,
    Sizes { m, n, k }: Sizes,
    seed: u64,
) -> Result<Option<f64>, Error> {
    let (a, b) = (inputs.a(m, k, false, seed), inputs.b(n, k, false, seed));
    let matrix = |numbers: &[f32], [rows, cols]: [usize; 2], strides| -> Result<DeviceMatrix, Error> {
        Ok(DeviceMatrix::new(device.upload(numbers)?, rows, cols, strides)?)
    };
    let (on_a, on_b) = (matrix(&a, [m, k], [k, 1])?, matrix(&b, [k, n], [1, k])?);
    let mut c = matrix(&vec![0.0; m * n], [m, n], [n, 1])?;
    match way {
        Way::Kernel(kernel) => {
            let product = Description::of(1.0, &on_a, &on_b, 0.0, &c)?;
            let plan = match GemmPlan::new(device, &product, &Options::from(kernel)) {
                Ok(plan) => plan,
                Err(tilewright::Error::Ineligible { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            plan.run(device, 1.0, &on_a, &on_b, 0.0, &mut c, &mut plan.workspace(device)?)?;
        }
        Way::CuBlas(blas) => {
            let (a, b, c) = (on_a.batch()?, on_b.batch()?, c.batch_mut(false)?);
            let call = blas.prepare(Routine::Gemm, Math::Fp32, a, b, c)?;
            // SAFETY: three buffers of the device that cuBLAS was opened on, which live until they have been copied.
            unsafe { call.run(1.0, a, b, 0.0, c)? };
        }
    }
    let mut results = vec![0.0f32; m * n];
    c.buffer().copy_to(&mut results)?;

    let view = |shape, numbers| ArrayView2::from_shape(shape, numbers);
    let no_result = Array2::zeros((m, n));
    let reference = Reference::new(1.0, view((m, k), &a)?, view((n, k), &b)?.reversed_axes(), 0.0, no_result.view());
    Ok(Some(reference.check(view((m, n), &results)?).max_error))
}

/// The largest errors of the ways, in units of 2⁻²⁴ of `Σ|a||b|`, of some seeds, as tables in Markdown: one for each number of terms.
///
/// # Errors
/// Those of [`largest_error`].
pub fn markdown(device: &Device, ways: &[Way<'_>], terms: &[usize], seeds: u64) -> Result<String, Error> {
    let mut text = String::new();
    for &k in terms {
        let _ = write!(text, "\n## K = {k}\n\n| |");
        Inputs::ALL.iter().for_each(|inputs| text += &format!(" {inputs} |"));
        let _ = write!(text, " all |\n|---|{}\n", "---:|".repeat(Inputs::ALL.len() + 1));
        for &way in ways {
            let (name, sizes) = match way {
                Way::Kernel(kernel) => (kernel.name, kernel.within(Sizes { m: 24, n: 20, k })),
                Way::CuBlas(_) => ("cuBLAS, fp32", Sizes { m: 24, n: 20, k }),
            };
            if sizes.k != k {
                continue;
            }
            let _ = write!(text, "| {name} |");
            let mut all: f64 = 0.0;
            for inputs in Inputs::ALL {
                let mut largest: Option<f64> = None;
                for seed in 1..=seeds {
                    let error = largest_error(device, way, inputs, sizes, seed)?;
                    largest = error.map(|error| largest.map_or(error, |largest| largest.max(error))).or(largest);
                }
                match largest {
                    Some(error) => {
                        all = all.max(error);
                        let _ = write!(text, " {:.2} |", error / UNIT);
                    }
                    None => text += " – |",
                }
            }
            let _ = writeln!(text, " {:.2} |", all / UNIT);
        }
    }
    Ok(text)
}
