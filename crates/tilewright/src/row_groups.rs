//! Products whose rows are divided by offsets that only the device knows, in one call.

use gpu_kernels::gemm::grouped::{RowGroups, grouped_row_table};

use crate::description::Description;
use crate::device::Buffer;
use crate::kernels::GroupedKernel;
use crate::plan::{Options, grouped_kernel};
use crate::views::{doubles, read};
use crate::{Device, DeviceMatrix, Error, Sizes};

/// Queues `C[rows of i] = α·A[rows of i]·B[i] + β·C[rows of i]` for each matrix of the batch B, where the rows of the first product end
/// before row `ends[0]`, those of the second before row `ends[1]`, and so on: the experts of a mixture of experts, each with the tokens
/// that were given to it. Does not wait for it, and never reads `ends` on the host: a small kernel makes the table of the products.
///
/// A is rows×k, B is a batch of k×n, C is rows×n, and `ends` has as many numbers as B matrices. The rows behind the last end have no
/// product: there `C = β·C`, which is zero if β is. An end that is less than one before it, or negative, or more than there are rows, counts
/// as that. As in every BLAS, C is not read if β is zero, and neither A nor B if α is zero.
///
/// The grid has a block for each tile that there can be, whatever the ends are: a row of tiles more than C has, for each product. The
/// blocks that are not needed end at once. `options` are as for [`multiply_grouped`](crate::multiply_grouped()).
///
/// ```
/// use ndarray::{Array2, array};
/// use tilewright::{Device, DeviceMatrix, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let tokens = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]].view())?;
/// // Two experts of 2×1, one below the other in memory.
/// let experts = DeviceMatrix::upload(&device, array![[1.0], [1.0], [10.0], [-1.0]].view())?;
/// let experts = experts.narrowed(2, 1).into_batch(2, 2)?;
/// let ends = device.upload(&[1, 3])?;
/// let mut c = DeviceMatrix::unwritten(&device, Array2::zeros((3, 1)).view())?;
/// tilewright::multiply_row_groups(&device, Precision::Fp32, 1.0, &tokens, &experts, &ends, 0.0, &mut c)?;
/// let mut result = Array2::zeros((3, 1));
/// c.download(result.view_mut())?;
/// assert_eq!(result, array![[3.0], [26.0], [44.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if the shapes and the number of ends do not fit, or elements of C share a place in memory; [`Error::Usage`] if A or
/// C is a batch; [`Error::InGroup`] as for [`GroupedPlan::new`](crate::plan::GroupedPlan::new) if no kernel can compute it so;
/// [`DeviceError::ForeignView`](runtime::Error::ForeignView) for memory of another device,
/// [`DeviceError::OverlappingViews`](runtime::Error::OverlappingViews) if C overlaps another one; those of [`Device::launch`].
#[allow(clippy::too_many_arguments, reason = "those of a BLAS, and the ends")]
pub fn multiply_row_groups(
    device: &Device,
    options: impl Into<Options>,
    alpha: f32,
    a: &DeviceMatrix,
    b: &DeviceMatrix,
    ends: &Buffer<i32>,
    beta: f32,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    for (name, count) in [("A", a.count()), ("C", c.count())] {
        if count != 1 {
            return Err(Error::Usage(format!(
                "{name} is a batch of {count} matrices: pass one, whose rows are divided"
            )));
        }
    }
    // The mean product: how many rows each has is not known here.
    let (rows, products) = (c.rows(), b.count().max(1));
    let sizes = Sizes { m: rows.div_ceil(products), n: c.cols(), k: a.cols() };
    let mean = Description::new(sizes, 1, a.placement(), b.placement(), c.placement())?;
    let is_loaded = |kernel: &GroupedKernel| device.has_kernel(&kernel.facts).is_ok();
    let chosen = grouped_kernel(device, &mean, products, &options.into(), is_loaded)?;
    let Some((kernel, transposed)) = chosen else { return Ok(()) };
    let groups = RowGroups::new(a.matrix()?, b.batch()?, c.matrix_mut()?, ends.view(), kernel.tile, transposed)?;
    let elements = groups.words() * (size_of::<u64>() / size_of::<f32>());
    let mut buffer = device.take_buffer(elements)?;
    let table = doubles(buffer.view_mut());
    let queued = device.launch(grouped_row_table { groups, table }).and_then(|()| {
        // SAFETY: the kernel before this one on the stream writes the table, and nothing else does. It was launched with views of all the
        // memory that the table names, which is the device's and stays borrowed until this returns; buffers wait before they are freed.
        let gemm = unsafe { groups.gemm(alpha, read(table), beta) };
        kernel.launch(device, gemm)
    });
    // Also after an error: what was queued until then runs before what is queued next.
    device.give_buffer(buffer);
    queued
}
