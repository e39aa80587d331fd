//! Products of matrices that have been packed once: the bits of those that pack their operands themselves.
//!
//! ```text
//!  A, B ──► product by one kernel ──────────────────────────────► C ──┐
//!  A packed, or B, or both ──► the same, fewer launches ────────► C ──┴── compared bit by bit, on one device
//! ```

use ndarray::Array2;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tilewright::kernels::KernelInfo;
use tilewright::plan::{Description, DeviceFacts, Options, plan};
use tilewright::{Activation, Device, Epilogue, Error, Operand, Order, PackedMatrix, Side, Sizes};

use crate::epilogue::downloaded;
use crate::invariance::upload;

/// The kernels whose operands are packed.
pub const KERNELS: [&str; 9] = [
    "gemm_wgmma_packed_fp32_3xfp16",
    "gemm_wgmma_packed_staged_fp32_3xfp16",
    "gemm_wgmma_packed_short_fp32_3xfp16",
    "gemm_wgmma_packed_short_rows_fp32_3xfp16",
    "gemm_wgmma_packed_fp32_normwise",
    "gemm_wgmma_packed_staged_fp32_normwise",
    "gemm_wgmma_packed_fp32_10xint8",
    "gemm_wgmma_packed_bf16",
    "gemm_wgmma_packed_fp16",
];

/// A product, its layout, and what is special.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: Sizes,
    batch: usize,
    orders: [Order; 3],
    gap: usize,
    factors: [f32; 2],
    /// Whether A and B have elements that leave tiles to the fallback.
    special: [bool; 2],
    has_epilogue: bool,
    seed: u64,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// The products.
    pub products: usize,
    /// The elements.
    pub elements: usize,
}

/// Computes products by a kernel for a GPU, on a device, with each of the operands packed before and not, and compares the bits of all.
///
/// # Errors
/// The first element that differs, with its case, in words, or a plan that packs again; those of runs.
pub fn check(device: &Device, gpu: &DeviceFacts, kernel: &'static KernelInfo, cases: usize) -> Result<Compared, Error> {
    let both = [Order::RowMajor, Order::ColumnMajor];
    let sizes = [[300, 300, 40], [37, 261, 64], [290, 130, 33], [513, 100, 300], [1, 36, 130], [64, 1, 64]];
    let mut compared = Compared::default();
    for index in 0..cases {
        let [m, n, k] = sizes[index % sizes.len()];
        let case = Case {
            sizes: kernel.within(Sizes { m, n, k }),
            batch: 1 + usize::from(index % 4 == 3),
            orders: [both[index % 2], both[index / 2 % 2], both[usize::from(index % 5 == 4)]],
            gap: [0, 4, 3][index % 3],
            factors: [[1.0, 0.0], [0.7, 0.0], [1.0, -0.3]][index / 2 % 3],
            special: [index % 4 == 1, index % 4 == 2],
            has_epilogue: index % 3 == 1,
            seed: index as u64,
        };
        case.compare(device, gpu, kernel, &mut compared)?;
    }
    Ok(compared)
}

impl Case {
    fn compare(
        &self,
        device: &Device,
        gpu: &DeviceFacts,
        kernel: &'static KernelInfo,
        compared: &mut Compared,
    ) -> Result<(), Error> {
        let (Sizes { m, n, k }, mut generator) = (self.sizes, StdRng::seed_from_u64(self.seed));
        let mut matrices = |rows, cols| -> Vec<Array2<f32>> {
            let mut one = || Array2::from_shape_fn((rows, cols), |_| generator.random_range(-1.0..1.0f32));
            (0..self.batch).map(|_| one()).collect()
        };
        let (mut a, mut b, c) = (matrices(m, k), matrices(k, n), matrices(m, n));
        for (matrix, is_special) in [&mut a[0], &mut b[0]].into_iter().zip(self.special) {
            if is_special {
                let (rows, cols) = matrix.dim();
                matrix[[rows / 3, cols / 2]] = f32::INFINITY;
                matrix[[rows / 4, cols / 3]] = 1e-34;
            }
        }
        let there = |matrices: &[Array2<f32>], order| upload(device, matrices, order, self.gap);
        let (plain_a, plain_b) = (there(&a, self.orders[0])?, there(&b, self.orders[1])?);
        let precision = kernel.precision();
        let packed_a = PackedMatrix::new(device, precision, Side::Left, there(&a, self.orders[0])?)?;
        // Of the transpose for the other side, packing makes the same.
        let transposed = there(&b, self.orders[1])?.transposed();
        let packed_b = PackedMatrix::new(device, precision, Side::Left, transposed)?.transposed();
        let run = |a: Operand<'_>, b: Operand<'_>| -> Result<Option<(usize, Vec<f32>)>, Error> {
            let ([alpha, beta], mut c) = (self.factors, there(&c, self.orders[2])?);
            let product = Description::of(alpha, a, b, beta, &c)?.with_epilogue(self.has_epilogue);
            let plan = match plan(gpu, &product, &Options::from(kernel)) {
                Ok(plan) => plan,
                Err(Error::Ineligible { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let packs =
                |name: &&str| plan.explanation().steps.iter().any(|step| step.contains(&format!("pack {name}")));
            for (name, operand) in [("A", a), ("B", b)] {
                if packs(&name) == operand.packed().is_some() {
                    return Err(
                        self.failed(kernel, format!("{name} is packed again, or never: {}", plan.explanation()))
                    );
                }
            }
            let epilogue = match self.has_epilogue {
                true => Epilogue::new().offset(0.25).activation(Activation::Relu),
                false => Epilogue::new(),
            };
            let mut workspace = plan.workspace(device)?;
            workspace.clear()?;
            plan.run_with(device, &epilogue, alpha, a, b, beta, &mut c, &mut workspace)?;
            Ok(Some((plan.kernels().len(), downloaded(&c)?)))
        };
        let Some((launches, expected)) = run((&plain_a).into(), (&plain_b).into())? else { return Ok(()) };
        let ways: [(&str, Operand<'_>, Operand<'_>); 3] = [
            ("A packed", (&packed_a).into(), (&plain_b).into()),
            ("B packed", (&plain_a).into(), (&packed_b).into()),
            ("both packed", (&packed_a).into(), (&packed_b).into()),
        ];
        let mut fewest = launches;
        for (what, a, b) in ways {
            let Some((launches, found)) = run(a, b)? else {
                return Err(self.failed(kernel, format!("not planned with {what}")));
            };
            fewest = launches;
            for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                if found.to_bits() != expected.to_bits() && !(found.is_nan() && expected.is_nan()) {
                    let differ = format!("number {place} of C is {found:e} with {what}, and {expected:e} otherwise");
                    return Err(self.failed(kernel, differ));
                }
            }
            compared.products += 1;
            compared.elements += found.len();
        }
        if fewest >= launches {
            return Err(self.failed(kernel, format!("{fewest} launches with both packed, and {launches} otherwise")));
        }
        Ok(())
    }

    fn failed(&self, kernel: &KernelInfo, what: String) -> Error {
        Error::Usage(format!("{}: {self:?}: {what}", kernel.name))
    }
}
