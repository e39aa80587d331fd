//! Grouped products in one call.

use crate::plan::{GroupedPlan, Options};
use crate::{Device, DeviceMatrix, Error};

/// Queues `C = α·A·B + β·C` for each product of a group, and does not wait for it. `c` has a result for each pair of operands.
///
/// The products may differ in everything: m, n and k, strides, layouts. Each kernel is launched once, however many products there are. As in
/// every BLAS, no C is read if β is zero, and neither A nor B if α is zero. `options` are as for [`gemm`](crate::gemm()).
///
/// Each call chooses kernels and copies a table of the products to the device, 136 bytes for each. A [`GroupedPlan`] does that once, for
/// products that are computed again in the same memory. The memory of the table is [kept](Device#what-a-device-keeps) for the next call.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let upload = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let (row, column) = (upload(array![[1.0, 2.0]])?, upload(array![[3.0], [4.0]])?);
/// let (mut inner, mut outer) = (upload(array![[0.0]])?, upload(ndarray::Array2::zeros((2, 2)))?);
/// let (operands, mut results) = ([(&row, &column), (&column, &row)], [&mut inner, &mut outer]);
/// tilewright::multiply_grouped(&device, Precision::Fp32, 1.0, &operands, 0.0, &mut results)?;
/// let (mut one, mut four) = (array![[0.0]], ndarray::Array2::zeros((2, 2)));
/// inner.download(one.view_mut())?;
/// outer.download(four.view_mut())?;
/// assert_eq!((one, four), (array![[11.0]], array![[3.0, 6.0], [4.0, 8.0]]));
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Operands`] if there are not as many results as pairs of operands; those of [`GroupedPlan::new`] and [`GroupedPlan::run`].
pub fn multiply_grouped(
    device: &Device,
    options: impl Into<Options>,
    alpha: f32,
    operands: &[(&DeviceMatrix, &DeviceMatrix)],
    beta: f32,
    c: &mut [&mut DeviceMatrix],
) -> Result<(), Error> {
    if operands.len() != c.len() {
        let (left, right) = ("the number of pairs of operands", "the number of results");
        return Err(Error::Operands { left, left_extent: operands.len(), right, right_extent: c.len() });
    }
    let products = operands.iter().zip(c).map(|(&(a, b), c)| (a, b, &mut **c));
    let mut plan = GroupedPlan::new_in(device, |len| device.take_buffer(len), &options.into(), products)?;
    let queued = plan.run(alpha, beta);
    // Also after an error: what was queued until then runs before what is queued next.
    device.give_buffer(plan.into_tables());
    queued
}
