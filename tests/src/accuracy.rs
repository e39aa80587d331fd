//! The errors of a kernel on inputs that are made to show them, against f64, for whatever device.

use host::bench::inputs::Inputs;
use host::check::Reference;
use ndarray::{Array2, ArrayView2};
use tilewright::kernels::KernelInfo;
use tilewright::plan::{Description, GemmPlan, Options};
use tilewright::{Device, DeviceMatrix, Sizes};

use crate::Error;

/// The largest `|E| / Σ|a||b|` of a product of A row-major and B column-major. Nothing if the kernel cannot compute the product.
///
/// # Errors
/// Those of planning and of the run.
pub fn largest_error(
    device: &Device,
    kernel: &'static KernelInfo,
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
    let product = Description::of(1.0, &on_a, &on_b, 0.0, &c)?;
    let plan = match GemmPlan::new(device, &product, &Options::from(kernel)) {
        Ok(plan) => plan,
        Err(tilewright::Error::Ineligible { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut workspace = plan.workspace(device)?;
    plan.run(device, 1.0, &on_a, &on_b, 0.0, &mut c, &mut workspace)?;
    let mut results = vec![0.0f32; m * n];
    c.buffer().copy_to(&mut results)?;

    let view = |shape, numbers| ArrayView2::from_shape(shape, numbers);
    let no_result = Array2::zeros((m, n));
    let reference = Reference::new(1.0, view((m, k), &a)?, view((n, k), &b)?.reversed_axes(), 0.0, no_result.view());
    Ok(Some(reference.check(view((m, n), &results)?).max_error))
}
