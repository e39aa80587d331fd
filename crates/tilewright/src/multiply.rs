//! Products in one call: of matrices on a device, and of `ndarray` views with the whole way to a device and back.

use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

use crate::plan::{Description, GemmPlan, Options, Workspace};
use crate::{Device, DeviceMatrix, Epilogue, Error, Operand, Sizes};

/// Queues `C = α·A·B + β·C` for each product of a batch of matrices on a device, and does not wait for it.
///
/// For the second product of the same sizes, strides and options, and any after it, nothing is planned or allocated, neither on
/// the device nor on the host: the device [keeps](Device#what-a-device-keeps) the [plan](Device::plan) and the workspace. What such
/// a call costs beside the launches is less than a microsecond. A [`GemmPlan`] with a workspace of one's own is for captured streams,
/// and to see what is planned.
///
/// Threads may use one handle, or clones of it, at the same time: what each has queued is computed one after the other. As in every
/// BLAS, C is not read if β is zero, and neither A nor B if α is zero. `options` are as for [`gemm`].
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let a = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?;
/// let mut power = DeviceMatrix::upload(&device, array![[1.0, 0.0], [0.0, 1.0]].view())?;
/// for _ in 0..2 {
///     let mut next = DeviceMatrix::unwritten(&device, ndarray::Array2::zeros((2, 2)).view())?;
///     tilewright::multiply(&device, Precision::Fp32, 1.0, &a, &power, 0.0, &mut next)?;
///     power = next;
/// }
/// assert_eq!(device.plans_made(), 1);
/// let mut square = ndarray::Array2::zeros((2, 2));
/// power.download(square.view_mut())?;
/// assert_eq!(square, array![[7.0, 10.0], [15.0, 22.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// Where C is a batch, A and B are as many matrices, or one that all products share, which is read where it is, and packed once if the kernel reads
/// packed operands:
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let a = DeviceMatrix::upload(&device, array![[1.0, 2.0]].view())?;
/// let b = DeviceMatrix::new_batch(device.upload(&[1.0, 1.0, 0.0, 5.0])?, [2, 1], [1, 1], 2, 2)?;
/// let mut c = DeviceMatrix::new_batch(device.upload(&[0.0; 2])?, [1, 1], [1, 1], 2, 1)?;
/// tilewright::multiply(&device, Precision::Fp32, 1.0, &a, &b, 0.0, &mut c)?;
/// let mut products = [0.0; 2];
/// c.buffer().copy_to(&mut products)?;
/// assert_eq!(products, [3.0, 10.0]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// Those of [`Device::plan`] and [`GemmPlan::run`]; [`DeviceError::Driver`](runtime::Error::Driver) or
/// [`DeviceError::NotEnoughMemory`](runtime::Error::NotEnoughMemory) where there is too little memory for a workspace.
pub fn multiply<'a>(
    device: &Device,
    options: impl Into<Options>,
    alpha: f32,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
    beta: f32,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    multiply_with(device, options, &Epilogue::new(), alpha, a, b, beta, c)
}

/// [`multiply`], with an epilogue: each element of `α·A·B + β·C` becomes what the steps of the epilogue make of it. For an example, see
/// [`Epilogue`].
///
/// The kernels of large products do the steps before they store results, and so does the second pass of split-K. After any other product,
/// another launch reads C and writes it again. The [explanation](crate::plan::Explanation) of a plan says which.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Activation, Device, DeviceMatrix, Epilogue, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let (a, b) = (on_device(array![[1.0, -2.0]])?, on_device(array![[3.0], [2.0]])?);
/// let mut c = on_device(array![[0.0]])?;
/// let relu = Epilogue::new().activation(Activation::Relu);
/// tilewright::multiply_with(&device, Precision::Fp32, &relu, 1.0, &a, &b, 0.0, &mut c)?;
/// let mut result = array![[1.0]];
/// c.download(result.view_mut())?;
/// assert_eq!(result, array![[0.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// As for [`multiply`]; [`Error::Operands`] if a matrix of the epilogue has another number of rows, columns or matrices than C, which
/// is not 1 either; [`Error::Usage`] for too many steps; [`DeviceError::OverlappingViews`](runtime::Error::OverlappingViews) if one is in
/// the memory of C.
#[allow(clippy::too_many_arguments, reason = "those of a BLAS, an epilogue, and where to run")]
pub fn multiply_with<'a>(
    device: &Device,
    options: impl Into<Options>,
    epilogue: &Epilogue<'_>,
    alpha: f32,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
    beta: f32,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    let (a, b) = (a.into(), b.into());
    let product = Description::of(alpha, a, b, beta, c)?.with_epilogue(!epilogue.is_empty());
    let plan = device.plan(&product, &options.into())?;
    run(device, &plan, epilogue, alpha, a, b, beta, c)
}

/// Runs a plan with a workspace that the device keeps.
#[allow(clippy::too_many_arguments, reason = "those of a BLAS, an epilogue, and where to run")]
fn run<'a>(
    device: &Device,
    plan: &GemmPlan,
    epilogue: &Epilogue<'_>,
    alpha: f32,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
    beta: f32,
    c: &mut DeviceMatrix,
) -> Result<(), Error> {
    let mut workspace = match plan.workspace_bytes().div_ceil(size_of::<f32>()) {
        0 => Workspace::none(),
        elements => Workspace::within(device.take_workspace(elements)?, 0..elements),
    };
    let queued = plan.run_with(device, epilogue, alpha, a, b, beta, c, &mut workspace);
    // Also after an error: what was queued until then runs before what is queued next.
    if let Some(buffer) = workspace.into_buffer() {
        device.give_workspace(buffer);
    }
    queued
}

/// Which operands had to be packed on their way to the device: those with negative strides, which kernels do not take, and
/// those with gaps. What lies in the gaps is not the view's to read (another thread may be writing there), so memory
/// cannot be copied with them. Packing costs a copy on the host; results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Packed {
    /// A was packed.
    pub a: bool,
    /// B, or x, was packed.
    pub b: bool,
    /// C, or y, was packed, and unpacked on its way back.
    pub c: bool,
}

/// Computes `C = α·A·B + β·C` on a device, for views with any strides.
///
/// A is m×k, B is k×n and C is m×n; each of m, n and k may be zero. As in every BLAS, C is not read if β is zero, and
/// neither A nor B if α is zero. Returns after C has arrived.
///
/// The device [keeps](Device#what-a-device-keeps) the plan, and the memory that it has allocated, for the next calls.
///
/// `options` says how: a [`Precision`](crate::Precision), a kernel, or both with more as [`Options`]. A
/// [plan](crate::plan) makes the rest of it.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, Precision, kernels};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let a = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// let b = array![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];
/// let mut c = array![[100.0, 100.0], [100.0, 100.0f32]];
/// tilewright::gemm(&device, Precision::Fp32, 2.0, a.view(), b.view(), 0.5, c.view_mut())?;
/// assert_eq!(c, array![[58.0, 60.0], [70.0, 72.0]]);
///
/// // A transpose is a view like any other: this is Aᵀ·A, read in place. Here by a kernel of our choice.
/// let mut gram = ndarray::Array2::zeros((3, 3));
/// tilewright::gemm(&device, &kernels::GEMM_NAIVE_2D_FP32, 1.0, a.t(), a.view(), 0.0, gram.view_mut())?;
/// assert_eq!(gram, a.t().dot(&a));
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// [`Error::Operands`] and [`Error::ExtentTooLarge`] if the shapes do not make a product that kernels can compute; those of
/// [`GemmPlan::new`] if no kernel, or not the one asked for, can compute it so; [`DeviceError::Driver`](runtime::Error::Driver) and [`DeviceError::Executor`](runtime::Error::Executor)
/// where the device fails. C is then unchanged.
pub fn gemm(
    device: &Device,
    options: impl Into<Options>,
    alpha: f32,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
    beta: f32,
    c: ArrayViewMut2<'_, f32>,
) -> Result<Packed, Error> {
    for (left, left_extent, right, right_extent) in [
        ("the number of columns of A", a.ncols(), "the number of rows of B", b.nrows()),
        ("the number of rows of A", a.nrows(), "the number of rows of C", c.nrows()),
        ("the number of columns of B", b.ncols(), "the number of columns of C", c.ncols()),
    ] {
        if left_extent != right_extent {
            return Err(Error::Operands { left, left_extent, right, right_extent });
        }
    }
    let sizes = Sizes { m: c.nrows(), n: c.ncols(), k: a.ncols() };
    let [a_placed, b_placed, c_placed] = [a, b, c.view()].map(DeviceMatrix::placement_of);
    let product = Description::new(sizes, 1, a_placed, b_placed, c_placed)?.with_factors(alpha, beta);
    let plan = device.plan(&product, &options.into())?;

    let buffer = |len| device.take_buffer(len);
    let a = DeviceMatrix::upload_to(buffer, a)?;
    let b = DeviceMatrix::upload_to(buffer, b)?;
    let mut result = match beta == 0.0 {
        true => DeviceMatrix::unwritten_in(buffer, c.view())?,
        false => DeviceMatrix::upload_to(buffer, c.view())?,
    };
    run(device, &plan, &Epilogue::new(), alpha, &a, &b, beta, &mut result)?;
    result.download(c)?;
    let packed = Packed { a: a.is_packed(), b: b.is_packed(), c: result.is_packed() };
    [a, b, result].into_iter().for_each(|matrix| device.give_buffer(matrix.into_buffer()));
    Ok(packed)
}

/// Computes `y = α·A·x + β·y` on a device, for views with any strides.
///
/// A is m×k, x has k elements and y has m. Any kernel will do: to a general one, x and y are matrices of one column. For
/// options, zero factors and sizes, see [`gemm`].
///
/// ```
/// use ndarray::{Array1, array};
/// use tilewright::{Device, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let a = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// let x = array![1.0, 0.0, -1.0];
/// let mut y = Array1::zeros(2);
/// tilewright::gemv(&device, Precision::Fp32, 1.0, a.view(), x.view(), 0.0, y.view_mut())?;
/// assert_eq!(y, array![-2.0, -2.0]);
/// # Ok::<(), tilewright::Error>(())
/// ```
///
/// # Errors
/// As for [`gemm`]. y is then unchanged.
pub fn gemv(
    device: &Device,
    options: impl Into<Options>,
    alpha: f32,
    a: ArrayView2<'_, f32>,
    x: ArrayView1<'_, f32>,
    beta: f32,
    y: ArrayViewMut1<'_, f32>,
) -> Result<Packed, Error> {
    gemm(device, options, alpha, a, x.insert_axis(Axis(1)), beta, y.insert_axis(Axis(1)))
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use ndarray::{Array1, Array2, ShapeBuilder, s};

    use super::*;
    use crate::{Precision, kernels};

    /// Small whole numbers, so that every sum is exact in fp32.
    fn numbers(rows: usize, cols: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, cols), |(row, col)| ((7 * row + 3 * col) % 11) as f32 - 5.0)
    }

    /// The rungs of the ladder for matrices, and what is planned in each precision. The tests' numbers are exact in all.
    fn ways() -> Vec<Options> {
        let rungs = kernels::BASIC.into_iter().filter(|kernel| kernel.family() == kernels::Family::Gemm);
        let precisions = [Precision::Fp32Strict, Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];
        rungs.map(Options::from).chain(precisions.map(Options::from)).collect()
    }

    /// Multiplies in every way, and compares with ndarray's product.
    fn agrees(a: ArrayView2<'_, f32>, b: ArrayView2<'_, f32>) -> Packed {
        let device = Device::cpu(Checks::Full);
        let before = numbers(a.nrows(), b.ncols());
        let expected = 2.0 * &a.dot(&b) - 3.0 * &before;
        let mut packed = Packed::default();
        for options in ways() {
            let mut c = before.clone();
            packed = gemm(&device, options.clone(), 2.0, a, b, -3.0, c.view_mut()).unwrap();
            assert_eq!(c, expected, "{options:?}");
            // A result with gaps and negative strides, whose gaps stay as they are.
            let mut c = Array2::from_elem((2 * a.nrows(), 3 * b.ncols()), 77.0);
            let mut part = c.slice_mut(s![..;-2, 2..;3]);
            part.assign(&before);
            assert!(gemm(&device, options.clone(), 2.0, a, b, -3.0, part.view_mut()).unwrap().c);
            assert_eq!(part, expected, "{options:?}");
            assert_eq!(c.iter().filter(|&&x| x == 77.0).count(), 5 * expected.len());
        }
        packed
    }

    #[test]
    fn any_strides_give_the_product_that_ndarray_gives() {
        let (a, b) = (numbers(17, 23), numbers(23, 9));
        assert_eq!(agrees(a.view(), b.view()), Packed::default());
        let (a_t, b_t) = (numbers(23, 17), numbers(9, 23));
        assert_eq!(agrees(a_t.t(), b_t.t()), Packed::default());
        let by_columns = Array2::from_shape_fn((17, 23).f(), |(row, col)| (row % 3) as f32 - (col % 4) as f32);
        assert_eq!(agrees(by_columns.view(), b.view()), Packed::default());
        let large = numbers(40, 60);
        let only_a = Packed { a: true, ..Packed::default() };
        assert_eq!(agrees(large.slice(s![2..19, 5..28]), b.view()), only_a);
        assert_eq!(agrees(large.slice(s![..34;2, ..46;2]), b.view()), only_a);
        assert_eq!(agrees(a.slice(s![..;-1, ..]), b.view()), only_a);
        let only_b = Packed { b: true, ..Packed::default() };
        assert_eq!(agrees(a.view(), b.slice(s![..;-1, ..;-1])), only_b);
        let (row, column) = (numbers(1, 23), numbers(23, 1));
        assert_eq!(agrees(row.broadcast((17, 23)).unwrap(), b.view()), Packed::default());
        assert_eq!(agrees(a.view(), column.broadcast((23, 9)).unwrap()), Packed::default());
    }

    #[test]
    fn vectors_may_be_every_other_element_or_run_backwards() {
        let device = Device::cpu(Checks::Full);
        let (a, x) = (numbers(17, 23), numbers(1, 46).remove_axis(Axis(0)));
        for kernel in kernels::BASIC {
            let x = x.slice(s![..;-2]);
            let mut y = Array1::from_elem(34, f32::NAN);
            gemv(&device, kernel, 1.0, a.view(), x, 0.0, y.slice_mut(s![1..;2])).unwrap();
            assert_eq!(y.slice(s![1..;2]), a.dot(&x), "{}", kernel.name);
        }
    }

    #[test]
    fn threads_share_a_device_and_no_memory() {
        let device = Device::cpu(Checks::Bounds);
        // Divided sums need a workspace.
        let options = Options { splits: Some(2), ..Options::from(Precision::Fp32Strict) };
        let (device, options) = (&device, &options);
        let multiply_on_a_thread = |number: usize| {
            let (m, n, k) = (20 + number, 30 - number, 40);
            let (a, b) = (numbers(m, k) + number as f32, numbers(k, n));
            let expected = a.dot(&b);
            let on_device = |matrix: &Array2<f32>| DeviceMatrix::upload(device, matrix.view()).unwrap();
            let (device_a, device_b) = (on_device(&a), on_device(&b));
            for _ in 0..10 {
                let mut c = Array2::zeros((m, n));
                gemm(device, options.clone(), 1.0, a.view(), b.view(), 0.0, c.view_mut()).unwrap();
                assert_eq!(c, expected);
                let mut result = DeviceMatrix::unwritten(device, c.view()).unwrap();
                multiply(&device.clone(), options.clone(), 1.0, &device_a, &device_b, 0.0, &mut result).unwrap();
                c.fill(0.0);
                result.download(c.view_mut()).unwrap();
                assert_eq!(c, expected);
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|number| drop(scope.spawn(move || multiply_on_a_thread(number))));
        });
        assert!(device.kept_memory().0 > 4 * 2 * 20 * 30, "the sums of each half, and matrices");
        assert!((4..=16).contains(&device.plans_made()), "{}", device.plans_made());
    }

    #[test]
    fn shapes_that_make_no_product_are_refused_and_the_result_stays() {
        let device = Device::cpu(Checks::Bounds);
        let (a, b) = (numbers(4, 5), numbers(6, 3));
        for options in ways() {
            let mut c = numbers(4, 3);
            let error = gemm(&device, options.clone(), 1.0, a.view(), b.view(), 0.0, c.view_mut()).unwrap_err();
            assert!(error.to_string().contains("the number of columns of A is 5"), "{error}");
            let error = gemm(&device, options, 1.0, a.view(), a.t(), 0.0, c.view_mut()).unwrap_err();
            assert!(error.to_string().contains("the number of columns of C is 3"), "{error}");
            assert_eq!(c, numbers(4, 3));
        }
        let mut c = numbers(4, 3);
        let b = b.slice(s![1.., ..]);
        let error = gemm(&device, &kernels::GEMV_BLOCK_REDUCTION_FP32, 1.0, a.view(), b, 0.0, c.view_mut());
        assert!(matches!(error, Err(Error::Ineligible { .. })));
    }
}
