//! Products of `ndarray` views: the whole way to a device and back in one call.

use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

use crate::device::Device;
use crate::kernels::KernelInfo;
use crate::{DeviceMatrix, Error};

/// Which operands had to be packed on their way to the device, because kernels cannot take them as they lie in memory:
/// those with negative strides, and those with gaps. Packing costs a copy on the host; results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Packed {
    /// A was packed.
    pub a: bool,
    /// B, or x, was packed.
    pub b: bool,
    /// C, or y, was packed, and unpacked on its way back.
    pub c: bool,
}

/// Computes `C = α·A·B + β·C` in fp32 on a device, for views with any strides.
///
/// A is m×k, B is k×n and C is m×n; each of m, n and k may be zero. As in every BLAS, C is not read if β is zero, and
/// neither A nor B if α is zero. Returns after C has arrived.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, kernels};
///
/// let (device, _why_no_gpu) = Device::open();
/// let a = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// let b = array![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
/// let mut c = array![[100.0, 100.0], [100.0, 100.0]];
/// tilewright::gemm(&device, &kernels::GEMM_TILED_16_FP32, 2.0, a.view(), b.view(), 0.5, c.view_mut())?;
/// assert_eq!(c, array![[58.0, 60.0], [70.0, 72.0]].mapv(|x: f32| x));
///
/// // A transpose is a view like any other: this is Aᵀ·A, read in place.
/// let mut gram = ndarray::Array2::zeros((3, 3));
/// tilewright::gemm(&device, &kernels::GEMM_NAIVE_2D_FP32, 1.0, a.t(), a.view(), 0.0, gram.view_mut())?;
/// assert_eq!(gram, a.t().dot(&a));
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if the shapes do not make a product, [`Error::Ineligible`] for a matrix–vector kernel and a B of more
/// or less than one column, [`Error::Driver`] and [`Error::Executor`] where the device fails. C is then unchanged.
pub fn gemm(
    device: &Device,
    kernel: &KernelInfo,
    alpha: f32,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
    beta: f32,
    c: ArrayViewMut2<'_, f32>,
) -> Result<Packed, Error> {
    kernel.eligible(c.nrows(), c.ncols(), a.ncols())?;
    let a = DeviceMatrix::upload(device, a)?;
    let b = DeviceMatrix::upload(device, b)?;
    let mut result =
        if beta == 0.0 { DeviceMatrix::unwritten(device, c.view())? } else { DeviceMatrix::upload(device, c.view())? };
    kernel.launch(device, alpha, &a, &b, beta, &mut result)?;
    result.download(c)?;
    Ok(Packed { a: a.is_packed(), b: b.is_packed(), c: result.is_packed() })
}

/// Computes `y = α·A·x + β·y` in fp32 on a device, for views with any strides.
///
/// A is m×k, x has k elements and y has m. Any kernel will do: to a general one, x and y are matrices of one column. For
/// zero factors and sizes, see [`gemm`].
///
/// ```
/// use ndarray::{Array1, array};
/// use tilewright::{Device, kernels};
///
/// let (device, _why_no_gpu) = Device::open();
/// let a = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// let x = array![1.0, 0.0, -1.0];
/// let mut y = Array1::zeros(2);
/// tilewright::gemv(&device, &kernels::GEMV_BLOCK_REDUCTION_FP32, 1.0, a.view(), x.view(), 0.0, y.view_mut())?;
/// assert_eq!(y, array![-2.0, -2.0]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if the shapes do not make a product, [`Error::Driver`] and [`Error::Executor`] where the device fails.
/// y is then unchanged.
pub fn gemv(
    device: &Device,
    kernel: &KernelInfo,
    alpha: f32,
    a: ArrayView2<'_, f32>,
    x: ArrayView1<'_, f32>,
    beta: f32,
    y: ArrayViewMut1<'_, f32>,
) -> Result<Packed, Error> {
    gemm(device, kernel, alpha, a, x.insert_axis(Axis(1)), beta, y.insert_axis(Axis(1)))
}
