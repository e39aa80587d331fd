//! Products with diagonal matrices and with numbers.

use gpu_kernels::Vector;
use gpu_kernels::scaling::Scaling;

use crate::kernels::{copy_matrices, scale_matrices};
use crate::{Device, DeviceMatrix, Error};

/// Queues `C = α·diag(rows)·B·diag(columns)`, for each matrix of a batch, and does not wait for it. Allocates nothing.
///
/// B and C are as many matrices of m×n, in any layout; any of m, n and their number may be zero. `rows` is one matrix of m×1, a
/// factor for each row, and `columns` one of 1×n, both for all matrices of the batch; without them, the factors are one.
///
/// Each element is multiplied in fp32, by its row's factor, by its column's, and by α, and rounded each time. Also by zero, so
/// that what is not finite leaves a NaN.
///
/// It takes as long as copying B to C, on a GPU whose memory is what limits it; twice as long where B is stored by rows and C
/// by columns, or the other way round.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let b = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].view())?;
/// let rows = DeviceMatrix::upload(&device, array![[1.0], [10.0]].view())?;
/// let columns = DeviceMatrix::upload(&device, array![[1.0, 0.0, -1.0]].view())?;
/// let mut result = ndarray::Array2::zeros((2, 3));
/// let mut c = DeviceMatrix::unwritten(&device, result.view())?;
/// tilewright::scale(&device, 0.5, Some(&rows), &b, Some(&columns), &mut c)?;
/// c.download(result.view_mut())?;
/// assert_eq!(result, array![[0.5, 0.0, -1.5], [20.0, 0.0, -30.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if B and C are not as many matrices of one shape, or there are not as many factors as rows or columns, or
/// for an extent of more than 2³¹ − 1, or if elements of C share a place in memory; [`Error::Operands`] if factors are no
/// single vector; [`DeviceError::ForeignView`](runtime::Error::ForeignView) if something is not in memory of the device; those of [`Device::launch`]. C is
/// then as it was, or a copy of B.
pub fn scale(
    device: &Device,
    alpha: f32,
    rows: Option<&DeviceMatrix>,
    b: &DeviceMatrix,
    columns: Option<&DeviceMatrix>,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    let (rows, columns) = (factors_of_rows(rows)?, factors_of_columns(columns)?);
    let (from, to) = (b.batch()?, c.batch_mut(false)?);
    let scaling = Scaling::new(alpha, rows, from, columns, to)?;
    if !scaling.is_across() {
        return scale_matrices(device, scaling);
    }
    let scaling = Scaling::in_place(alpha, rows, columns, to)?;
    copy_matrices(device, from, to)?;
    scale_matrices(device, scaling)
}

/// Queues `C = α·diag(rows)·C·diag(columns)`: as [`scale`], in place.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let mut numbers = array![[1.0, 2.0], [3.0, 4.0]];
/// let mut c = DeviceMatrix::upload(&device, numbers.view())?;
/// tilewright::scale_in_place(&device, 2.0, None, None, &mut c)?;
/// c.download(numbers.view_mut())?;
/// assert_eq!(numbers, array![[2.0, 4.0], [6.0, 8.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// As for [`scale`].
pub fn scale_in_place(
    device: &Device,
    alpha: f32,
    rows: Option<&DeviceMatrix>,
    columns: Option<&DeviceMatrix>,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    let (rows, columns) = (factors_of_rows(rows)?, factors_of_columns(columns)?);
    scale_matrices(device, Scaling::in_place(alpha, rows, columns, c.batch_mut(false)?)?)
}

fn factors_of_rows(rows: Option<&DeviceMatrix>) -> Result<Option<Vector<'_>>, Error> {
    let Some(factors) = rows else { return Ok(None) };
    let (what, needed) = ("the number of columns of the factors of rows", "that of a vector of rows");
    single(factors.count())?;
    if factors.cols() != 1 {
        return Err(Error::Operands { left: what, left_extent: factors.cols(), right: needed, right_extent: 1 });
    }
    let column = factors.matrix()?;
    Ok(Some(Vector::new(column.data(), factors.rows(), column.row_stride() as usize)?))
}

fn factors_of_columns(columns: Option<&DeviceMatrix>) -> Result<Option<Vector<'_>>, Error> {
    let Some(factors) = columns else { return Ok(None) };
    let (what, needed) = ("the number of rows of the factors of columns", "that of a vector of columns");
    single(factors.count())?;
    if factors.rows() != 1 {
        return Err(Error::Operands { left: what, left_extent: factors.rows(), right: needed, right_extent: 1 });
    }
    let row = factors.matrix()?;
    Ok(Some(Vector::new(row.data(), factors.cols(), row.col_stride() as usize)?))
}

/// Refuses a batch of vectors of factors.
fn single(count: usize) -> Result<(), Error> {
    let (left, right) = ("the number of vectors of factors", "that of all matrices of a batch");
    if count == 1 { Ok(()) } else { Err(Error::Operands { left, left_extent: count, right, right_extent: 1 }) }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use ndarray::Array2;

    use super::*;
    use crate::DeviceError;

    fn matrix(device: &Device, rows: usize, cols: usize) -> DeviceMatrix {
        DeviceMatrix::upload(device, Array2::ones((rows, cols)).view()).unwrap()
    }

    #[test]
    fn what_does_not_go_together_is_refused_and_the_result_stays() {
        let device = Device::cpu(Checks::Bounds);
        let of = |rows, cols| matrix(&device, rows, cols);
        let (b, mut c) = (of(3, 4), of(3, 4));
        let mut refused = |rows: Option<DeviceMatrix>, b: &DeviceMatrix, columns: Option<DeviceMatrix>| {
            let error = scale(&device, 2.0, rows.as_ref(), b, columns.as_ref(), &mut c).unwrap_err();
            let mut result = Array2::zeros((3, 4));
            c.download(result.view_mut()).unwrap();
            assert_eq!(result, Array2::<f32>::ones((3, 4)));
            error.to_string()
        };
        for (message, parts) in [
            (refused(None, &of(2, 4), None), ["rows of B is 2", "rows of C is 3"]),
            (refused(None, &of(3, 5), None), ["columns of B is 5", "columns of C is 4"]),
            (refused(None, &of(9, 4).narrowed(3, 4).into_batch(2, 12).unwrap(), None), ["matrices B is 2", "C is 1"]),
            (refused(Some(of(4, 1)), &b, None), ["factors of rows is 4", "rows is 3"]),
            (refused(Some(of(3, 2)), &b, None), ["columns of the factors of rows is 2", "is 1"]),
            (refused(None, &b, Some(of(1, 3))), ["factors of columns is 3", "columns is 4"]),
            (refused(None, &b, Some(of(4, 1))), ["rows of the factors of columns is 4", "is 1"]),
            (refused(Some(of(3, 1).into_batch(2, 0).unwrap()), &b, None), ["vectors of factors is 2", "is 1"]),
        ] {
            assert!(parts.into_iter().all(|part| message.contains(part)), "{message}");
        }
        let elsewhere = Device::cpu(Checks::Bounds);
        let error = scale(&device, 2.0, None, &matrix(&elsewhere, 3, 4), None, &mut c).unwrap_err();
        assert!(matches!(error, Error::Device(DeviceError::ForeignView { .. })), "{error}");
    }
}
