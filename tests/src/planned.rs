//! The kernels of the registry, each by a plan that was made for it, in memory of a device with guard words.

use ndarray::{Array2, Axis};
use tilewright::kernels::{KernelInfo, Scheme};
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix};

use crate::{Error, MmaPrecision, Operand, Problem};

/// The rounding error of one fp32 operation, relative to its result.
const ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;

/// A plan that uses `kernel` for `C = α·A·B + β·C`, and its operands in memory of a device.
#[derive(Debug)]
pub struct Planned<'a> {
    device: &'a Device,
    plan: GemmPlan,
    problem: &'a Problem,
    a: DeviceMatrix,
    b: DeviceMatrix,
    c: DeviceMatrix,
}

/// A copy of an operand's memory on a device, guard words included.
fn upload(device: &Device, operand: &Operand) -> Result<DeviceMatrix, Error> {
    let buffer = device.upload(&operand.memory)?;
    let (rows, cols) = (operand.rows(), operand.cols());
    Ok(DeviceMatrix::new(buffer, rows, cols, operand.strides())?.moved_by(operand.extent().start)?)
}

impl<'a> Planned<'a> {
    /// Plans a product. `None` if the kernel cannot compute it.
    ///
    /// # Errors
    /// What placing the operands reports, or planning apart from a refusal.
    pub fn new(
        device: &'a Device,
        kernel: &'static KernelInfo,
        splits: Option<u32>,
        problem: &'a Problem,
    ) -> Result<Option<Self>, Error> {
        let [a, b, c] = [&problem.a, &problem.b, &problem.c].map(|operand| upload(device, operand));
        let (a, b, c) = (a?, b?, c?);
        let product = Description::of(problem.alpha, &a, &b, problem.beta, &c)?;
        let options = Options { kernel: Some(kernel), splits, ..Options::default() };
        match GemmPlan::new(device, &product, &options) {
            Ok(plan) => Ok(Some(Self { device, plan, problem, a, b, c })),
            Err(tilewright::Error::Ineligible { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &GemmPlan {
        &self.plan
    }

    /// Runs the plan on a C as it was, and looks at what is around it, and at the operands.
    ///
    /// # Errors
    /// What the plan reports, or what is wrong, in words.
    pub fn run(&mut self) -> Result<Operand, Error> {
        let Self { device, plan, problem, a, b, c } = self;
        c.buffer_mut().copy_from(&problem.c.memory)?;
        let mut workspace = plan.workspace(device)?;
        // What is read before it is written shows.
        workspace.clear()?;
        plan.run(device, problem.alpha, a, b, problem.beta, c, &mut workspace)?;
        let download = |there: &DeviceMatrix, operand: &Operand| -> Result<Operand, Error> {
            let mut copy = operand.clone();
            there.buffer().copy_to(&mut copy.memory)?;
            copy.check_surroundings()?;
            Ok(copy)
        };
        for (name, there, before) in [("A", &*a, &problem.a), ("B", &*b, &problem.b)] {
            if download(there, before)?.bits() != before.bits() {
                return Err(format!("{name} was changed").into());
            }
        }
        download(c, &problem.c)
    }

    /// Runs the plan and compares every element with the product in double precision.
    ///
    /// With T the terms of a sum, an element may be off by `(p + 4·√T·2⁻²⁴)·S`: S is `|α|·Σ|a||b| + |β||c|`, and p what the
    /// kernel's scheme does to operands.
    ///
    /// # Errors
    /// As for [`Planned::run`]; what is wrong, in words.
    pub fn check(&mut self) -> Result<(), Error> {
        let result = self.run()?.to_f64();
        let Problem { alpha, a, b, beta, c } = self.problem;
        let (alpha, beta) = (f64::from(*alpha), f64::from(*beta));
        let (mut value, mut magnitude) = (Array2::zeros(result.dim()), Array2::zeros(result.dim()));
        let scheme = self.plan.kernel().scheme;
        if alpha != 0.0 {
            let (a, b) = (a.to_f64(), b.to_f64());
            value.scaled_add(alpha, &a.dot(&b));
            magnitude.scaled_add(alpha.abs(), &magnitudes(scheme, &a).dot(&magnitudes_of_columns(scheme, &b)));
        }
        if beta != 0.0 {
            value.scaled_add(beta, &c.to_f64());
            magnitude.scaled_add(beta.abs(), &c.to_f64().mapv(f64::abs));
        }
        let terms = (self.problem.a.cols() + 2) as f64;
        let bound = loss(scheme) + 4.0 * terms.sqrt() * ROUNDING;
        for (index, &found) in result.indexed_iter() {
            let off = (found - value[index]).abs();
            if off.is_nan() || off > bound * magnitude[index] {
                return Err(format!(
                    "element {index:?} is {found} and should be {}: {:.3e} of the sum of magnitudes, beyond {bound:.3e}",
                    value[index],
                    off / magnitude[index]
                )
                .into());
            }
        }
        Ok(())
    }
}

/// What a scheme loses of the operands, as a part of `Σ|a||b|`.
fn loss(scheme: Scheme) -> f64 {
    // The tensor core truncates its sums of 32 terms: about as much as the issue allows for all, 10⁻⁶.
    let on_tensor_cores = |precision: MmaPrecision| precision.element_bound().max(1e-6);
    match scheme {
        Scheme::Fp32 => 0.0,
        Scheme::Fp32Mixed => on_tensor_cores(MmaPrecision::Fp32Mixed),
        Scheme::Fp32ThreeTf32 => on_tensor_cores(MmaPrecision::Fp32ThreeTf32),
        // Each operand keeps 22 bits: see `gpu_kernels::pack::scaled`.
        Scheme::Fp32ThreeFp16 => 1e-6,
        // Of the maxima of rows and columns: two halves of a unit in the last of 22 bits, and what two low parts give.
        Scheme::Fp32ScaledFp16 => 1e-6,
        Scheme::Tf32 => on_tensor_cores(MmaPrecision::Tf32),
        Scheme::Bf16 => on_tensor_cores(MmaPrecision::Bf16),
        Scheme::Fp16 => on_tensor_cores(MmaPrecision::Fp16),
    }
}

/// By what an error is measured: magnitudes of elements, or for schemes that scale rows, the largest of its row.
pub(crate) fn magnitudes(scheme: Scheme, a: &Array2<f64>) -> Array2<f64> {
    let mut magnitudes = a.mapv(f64::abs);
    if scheme == Scheme::Fp32ScaledFp16 {
        for mut row in magnitudes.axis_iter_mut(Axis(0)) {
            let largest = row.iter().fold(0.0, |largest: f64, &element| largest.max(element));
            row.fill(largest);
        }
    }
    magnitudes
}

/// The same for the columns of B.
pub(crate) fn magnitudes_of_columns(scheme: Scheme, b: &Array2<f64>) -> Array2<f64> {
    magnitudes(scheme, &b.t().to_owned()).reversed_axes()
}
