//! What is done to the result of a product before it is stored: [`Epilogue`].

use gpu_kernels::epilogue::{MOST_OPERANDS, MOST_STEPS, StepOperand, Steps, TooManySteps};
use gpu_kernels::{Matrix, MatrixBatch};

pub use gpu_kernels::epilogue::Activation;

use crate::{DeviceMatrix, Error};

/// Steps by which each element of `α·A·B + β·C` becomes what is stored in C: sums and products with numbers and with matrices,
/// and activations, in the order in which they are added here.
///
/// A matrix of a step has an element for each of C; where one of its extents, or the number of matrices, is 1, what it has is for all rows,
/// columns or products, as numpy and torch have it. So a bias for each column is a matrix of 1×n, and a residual one of m×n.
///
/// There can be up to 8 steps, 3 of them with matrices; a clamp is two.
///
/// Each step is rounded to fp32, and an [`Activation`] says how large its errors are. A sum with a multiple of a matrix is one fused operation.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Activation, Device, DeviceMatrix, Epilogue, Precision};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let x = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?;
/// let weights = DeviceMatrix::upload(&device, array![[1.0, -1.0], [1.0, 0.0]].view())?;
/// let bias = DeviceMatrix::upload(&device, array![[0.5, 0.0]].view())?;
///
/// let mut result = ndarray::Array2::zeros((2, 2));
/// let mut y = DeviceMatrix::unwritten(&device, result.view())?;
/// let epilogue = Epilogue::new().add(1.0, &bias).activation(Activation::Relu).scale(2.0);
/// tilewright::multiply_with(&device, Precision::Fp32, &epilogue, 1.0, &x, &weights, 0.0, &mut y)?;
/// y.download(result.view_mut())?;
/// assert_eq!(result, array![[7.0, 0.0], [15.0, 0.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Epilogue<'a> {
    steps: Vec<Step<'a>>,
}

/// A matrix of a step, or a batch of them: a [`DeviceMatrix`], or views of matrices in a device's memory.
///
/// ```
/// use tilewright::{Device, DeviceMatrix, Epilogue, EpilogueMatrix};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let bias = DeviceMatrix::upload(&device, ndarray::array![[1.0, 2.0]].view())?;
/// let [matrix, views] = [EpilogueMatrix::from(&bias), EpilogueMatrix::from(bias.batch()?)];
/// assert!(!Epilogue::new().add(1.0, matrix).multiply(views).is_empty());
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EpilogueMatrix<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Device(&'a DeviceMatrix),
    Views(MatrixBatch<'a>),
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(matrix) => write!(f, "{} of {}x{}", matrix.count(), matrix.rows(), matrix.cols()),
            Self::Views(batch) => write!(f, "{} of {}x{}", batch.count(), batch.first().rows(), batch.first().cols()),
        }
    }
}

impl<'a> From<&'a DeviceMatrix> for EpilogueMatrix<'a> {
    fn from(matrix: &'a DeviceMatrix) -> Self {
        Self(Source::Device(matrix))
    }
}

impl<'a> From<MatrixBatch<'a>> for EpilogueMatrix<'a> {
    fn from(batch: MatrixBatch<'a>) -> Self {
        Self(Source::Views(batch))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Scale(f32),
    Offset(f32),
    Add(f32, EpilogueMatrix<'a>),
    Multiply(EpilogueMatrix<'a>),
    Activation(Activation),
}

impl<'a> Epilogue<'a> {
    /// No steps: what is stored is `α·A·B + β·C`.
    ///
    /// ```
    /// assert!(tilewright::Epilogue::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no steps.
    ///
    /// ```
    /// assert!(!tilewright::Epilogue::new().scale(2.0).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    fn and(mut self, step: Step<'a>) -> Self {
        self.steps.push(step);
        self
    }

    /// And then times a number.
    ///
    /// ```
    /// let halved = tilewright::Epilogue::new().scale(0.5);
    /// assert!(!halved.is_empty());
    /// ```
    #[must_use]
    pub fn scale(self, factor: f32) -> Self {
        self.and(Step::Scale(factor))
    }

    /// And then plus a number.
    ///
    /// ```
    /// let less = tilewright::Epilogue::new().offset(-1.0);
    /// assert!(!less.is_empty());
    /// ```
    #[must_use]
    pub fn offset(self, summand: f32) -> Self {
        self.and(Step::Offset(summand))
    }

    /// And then plus `factor` times the element of a matrix: a bias, a residual.
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::{Device, DeviceMatrix, Epilogue, Precision};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
    /// let (a, b, d) = (on_device(array![[2.0]])?, on_device(array![[3.0]])?, on_device(array![[10.0]])?);
    /// let mut c = on_device(array![[0.0]])?;
    /// tilewright::multiply_with(&device, Precision::Fp32, &Epilogue::new().add(-0.5, &d), 1.0, &a, &b, 0.0, &mut c)?;
    /// let mut result = array![[0.0]];
    /// c.download(result.view_mut())?;
    /// assert_eq!(result, array![[1.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    #[must_use]
    pub fn add(self, factor: f32, matrix: impl Into<EpilogueMatrix<'a>>) -> Self {
        self.and(Step::Add(factor, matrix.into()))
    }

    /// And then times the element of a matrix.
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::{Device, DeviceMatrix, Epilogue, Precision};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
    /// let (a, b, d) = (on_device(array![[2.0]])?, on_device(array![[3.0]])?, on_device(array![[10.0]])?);
    /// let mut c = on_device(array![[0.0]])?;
    /// tilewright::multiply_with(&device, Precision::Fp32, &Epilogue::new().multiply(&d), 1.0, &a, &b, 0.0, &mut c)?;
    /// let mut result = array![[0.0]];
    /// c.download(result.view_mut())?;
    /// assert_eq!(result, array![[60.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    #[must_use]
    pub fn multiply(self, matrix: impl Into<EpilogueMatrix<'a>>) -> Self {
        self.and(Step::Multiply(matrix.into()))
    }

    /// And then an activation.
    ///
    /// ```
    /// use tilewright::{Activation, Epilogue};
    ///
    /// let hardtanh = Epilogue::new().activation(Activation::Clamp { least: -1.0, most: 1.0 });
    /// assert!(!hardtanh.is_empty());
    /// ```
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        self.and(Step::Activation(activation))
    }

    /// The steps as kernels read them, for results of so many rows and columns.
    ///
    /// # Errors
    /// [`Error::Operands`] if a matrix has another number of rows, columns or matrices, which is not 1 either; [`Error::Usage`] for too many
    /// steps; those of [`DeviceMatrix::batch`].
    pub(crate) fn steps(&self, products: usize, rows: usize, cols: usize) -> Result<Steps<'a>, Error> {
        let too_many = |error: TooManySteps| Error::Usage(error.to_string());
        let operand = |matrix: &EpilogueMatrix<'a>| repeated(matrix, products, rows, cols);
        self.steps.iter().try_fold(Steps::none(), |steps, step| {
            match step {
                Step::Scale(factor) => steps.scale(*factor),
                Step::Offset(summand) => steps.offset(*summand),
                Step::Add(factor, matrix) => steps.add(*factor, operand(matrix)?),
                Step::Multiply(matrix) => steps.multiply(operand(matrix)?),
                Step::Activation(activation) => steps.activation(*activation),
            }
            .map_err(too_many)
        })
    }
}

/// A matrix, with what it has once repeated as often as there are products, rows and columns.
fn repeated<'a>(
    matrix: &EpilogueMatrix<'a>,
    products: usize,
    rows: usize,
    cols: usize,
) -> Result<StepOperand<'a>, Error> {
    let batch = match matrix.0 {
        Source::Device(matrix) => matrix.batch()?,
        Source::Views(batch) => batch,
    };
    let first = batch.first();
    let stride = |what, has: u32, of, wants: usize, stride: u64| match has as usize {
        has if has == wants => Ok(stride as usize),
        1 => Ok(0),
        has => Err(Error::Operands { left: what, left_extent: has, right: of, right_extent: wants }),
    };
    let row = stride(
        "the number of rows of a matrix of the epilogue, not being 1,",
        first.rows(),
        "that of C",
        rows,
        first.row_stride(),
    )?;
    let col = stride(
        "the number of columns of a matrix of the epilogue, not being 1,",
        first.cols(),
        "that of C",
        cols,
        first.col_stride(),
    )?;
    let next = stride(
        "the number of matrices of the epilogue, not being 1,",
        batch.count(),
        "that of C",
        products,
        batch.stride(),
    )?;
    Ok(StepOperand::new(Matrix::new(first.data(), rows, cols, row, col)?, next, products)?)
}

const _: () = assert!(MOST_STEPS == 8 && MOST_OPERANDS == 3, "the documentation of `Epilogue` says how many");
