//! Products with epilogues, by plans for a GPU, on it and on the executor: the same bits.
//!
//! ```text
//!  plan for the GPU, of one kernel ──┬──► GPU       ──► C ──┐
//!  operands, steps, old C            └──► executor  ──► C ──┴── compared bit by bit
//! ```

use cuda_std::executor::Checks;
use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::kernels::KernelInfo;
use tilewright::plan::{Description, DeviceFacts, Options, plan};
use tilewright::{Activation, Device, DeviceMatrix, Epilogue, Error, Order, Sizes};

use crate::invariance::upload;

/// The kernels that do the steps before they store results.
pub const KERNELS: [&str; 36] = [
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
    "gemm_wgmma_256x64_nn_fp32_3xtf32",
    "gemm_wgmma_256x64_nt_fp32_3xtf32",
    "gemm_wgmma_256x64_tn_fp32_3xtf32",
    "gemm_wgmma_256x64_tt_fp32_3xtf32",
    "gemm_wgmma_256x32_nn_fp32_3xtf32",
    "gemm_wgmma_256x32_nt_fp32_3xtf32",
    "gemm_wgmma_256x32_tn_fp32_3xtf32",
    "gemm_wgmma_256x32_tt_fp32_3xtf32",
    "gemm_wgmma_anywhere_nn_fp32_3xtf32",
    "gemm_wgmma_anywhere_nt_fp32_3xtf32",
    "gemm_wgmma_anywhere_tn_fp32_3xtf32",
    "gemm_wgmma_anywhere_tt_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x64_nn_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x64_nt_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x64_tn_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x64_tt_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x32_nn_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x32_nt_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x32_tn_fp32_3xtf32",
    "gemm_wgmma_anywhere_256x32_tt_fp32_3xtf32",
    "gemm_outer_16_fp32",
    "gemm_outer_32_fp32",
    "gemm_outer_256_fp32",
    "gemm_outer_1024_fp32",
    "gemm_whole_fp32",
    "gemm_whole_rows_fp32",
];

/// Activations that a step is for.
const ACTIVATIONS: [Activation; 9] = [
    Activation::Gelu,
    Activation::Relu,
    Activation::Silu,
    Activation::Tanh,
    Activation::GeluTanh,
    Activation::Mish,
    Activation::Sigmoid,
    Activation::LeakyRelu(0.25),
    Activation::Clamp { least: -0.5, most: 2.0 },
];

/// A product, its layout, and what is special.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: Sizes,
    batch: usize,
    orders: [Order; 3],
    gap: usize,
    factors: [f32; 2],
    /// Whether an operand has elements that leave tiles to the fallback.
    is_special: bool,
    activation: Activation,
    seed: u64,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// The products.
    pub products: usize,
    /// Those whose steps were done by the kernel.
    pub fused: usize,
    /// The elements.
    pub elements: usize,
}

/// Computes products with epilogues by a kernel on a GPU and on the executor, and compares their bits.
///
/// # Errors
/// The first element that differs, with its case, in words; those of runs.
pub fn check(gpu: &Device, kernel: &'static KernelInfo) -> Result<Compared, Error> {
    let (facts, cpu) = (DeviceFacts::of(gpu), Device::cpu(Checks::Bounds));
    let both = [Order::RowMajor, Order::ColumnMajor];
    let mut compared = Compared::default();
    let sizes = [[300, 300, 40], [513, 261, 64], [290, 516, 33], [1000, 700, 300], [37, 36, 20]];
    for index in 0..18usize {
        let [m, n, k] = sizes[index % sizes.len()];
        let case = Case {
            sizes: kernel.within(Sizes { m, n, k }),
            batch: 1 + index % 2,
            orders: [
                kernel.a.unwrap_or(both[index % 2]),
                kernel.b.unwrap_or(both[index / 2 % 2]),
                both[usize::from(index % 3 == 2)],
            ],
            gap: [0, 4, 3][index / 2 % 3],
            factors: [[1.0, 0.0], [0.7, 0.0], [1.0, -0.3], [1.0, 0.0]][index / 3 % 4],
            is_special: index % 4 == 1,
            activation: ACTIVATIONS[index % ACTIVATIONS.len()],
            seed: index as u64,
        };
        case.compare([gpu, &cpu], &facts, kernel, &mut compared)?;
    }
    Ok(compared)
}

impl Case {
    /// Adds what has been compared, unless the kernel cannot compute it.
    fn compare(
        &self,
        devices: [&Device; 2],
        facts: &DeviceFacts,
        kernel: &'static KernelInfo,
        compared: &mut Compared,
    ) -> Result<(), Error> {
        let (Sizes { m, n, k }, mut generator) = (self.sizes, StdRng::seed_from_u64(self.seed));
        let mut matrices = |rows, cols| -> Vec<Array2<f32>> {
            let mut one = || Array2::from_shape_fn((rows, cols), |_| generator.random_range(-1.0..1.0f32));
            (0..self.batch).map(|_| one()).collect()
        };
        let (mut a, b, c) = (matrices(m, k), matrices(k, n), matrices(m, n));
        if self.is_special {
            a[0][[m / 3, k / 2]] = f32::INFINITY;
            a[0][[m / 4, k / 3]] = 1e-34;
        }
        let (bias, factors, residual) = (matrices(1, n), matrices(m, 1), matrices(m, n));
        let results = devices.map(|device| {
            let there = |matrices: &[Array2<f32>], order| upload(device, matrices, order, self.gap);
            let (a, b) = (there(&a, self.orders[0])?, there(&b, self.orders[1])?);
            let mut c = there(&c, self.orders[2])?;
            let bias = there(&bias[..1], Order::RowMajor)?;
            let factors = there(&factors, Order::ColumnMajor)?;
            let residual = there(&residual, if self.seed % 3 == 1 { self.orders[2] } else { Order::RowMajor })?;
            let epilogue = match self.seed % 3 {
                0 => Epilogue::new().add(1.0, &bias).activation(self.activation),
                1 => Epilogue::new().multiply(&factors).add(-0.5, &residual).activation(self.activation),
                _ => Epilogue::new()
                    .activation(self.activation)
                    .scale(3.0)
                    .add(2.0, &bias)
                    .add(1.0, &residual)
                    .activation(Activation::Gelu)
                    .offset(0.125)
                    .multiply(&factors),
            };
            let [alpha, beta] = self.factors;
            let product = Description::of(alpha, &a, &b, beta, &c)?.with_epilogue(true);
            let plan = match plan(facts, &product, &Options::from(kernel)) {
                Ok(plan) => plan,
                Err(Error::Ineligible { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let is_fused = plan
                .explanation()
                .steps
                .iter()
                .any(|step| step.starts_with("multiply with") && step.contains("do the steps of the epilogue"));
            let mut workspace = plan.workspace(device)?;
            plan.run_with(device, &epilogue, alpha, &a, &b, beta, &mut c, &mut workspace)?;
            Ok(Some((is_fused, downloaded(&c)?)))
        });
        let [there, here] = results;
        let (Some((is_fused, there)), Some((_, here))) = (there?, here?) else { return Ok(()) };
        for (place, (there, here)) in there.iter().zip(&here).enumerate() {
            if there.to_bits() != here.to_bits() && !(there.is_nan() && here.is_nan()) {
                return Err(Error::Usage(format!(
                    "{}: {self:?}: number {place} in the memory of C is {there:e} on the GPU and {here:e} on the executor",
                    kernel.name
                )));
            }
        }
        compared.products += 1;
        compared.fused += usize::from(is_fused);
        compared.elements += m * n * self.batch;
        Ok(())
    }
}

/// All numbers in the memory of matrices: those in gaps, too, which have to be what they were.
pub(crate) fn downloaded(matrices: &DeviceMatrix) -> Result<Vec<f32>, Error> {
    let mut numbers = vec![0.0; matrices.buffer().len()];
    matrices.buffer().copy_to(&mut numbers)?;
    Ok(numbers)
}
