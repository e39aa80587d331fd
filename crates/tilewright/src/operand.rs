//! Copies matrices between `ndarray` views and a device's memory.
//!
//! Kernels take matrices in any layout that two non-negative strides describe. What is such a layout without gaps goes to
//! the device as it stands in memory: row-major, column-major, or with a row or a column that is repeated. Anything else is
//! packed first, row-major or column-major, whichever is nearer to how it lies in memory:
//!
//! ```text
//!  a.slice(s![.., ..;2])        a b c d          a c e g     every other column: packed, because the elements between
//!                               e f g h    ──►                are not the view's to read (someone else may be writing
//!                                                             to them), and because they would travel for nothing
//!  a.slice(s![..;-1, ..])       a b        ──►   c d a b      a negative stride: packed
//!                               c d
//! ```

use cuda_std::{GlobalSlice, GlobalSliceMut};
pub use gpu_kernels::elements_overlap;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use ndarray::{ArrayView2, ArrayViewMut2, Axis, ShapeBuilder, Slice};

use crate::Error;
use crate::device::{Buffer, Device};
use crate::placement::Placement;

/// A matrix in a device's memory, with its strides; or a batch of them, of one shape and layout, each the same distance
/// from the one before.
///
/// ```
/// # use cuda_std::executor::Checks;
/// # use ndarray::{Array2, array};
/// # use tilewright::{Device, DeviceMatrix, Error};
/// # let device = Device::cpu(Checks::Bounds);
/// let x = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
/// let matrix = DeviceMatrix::upload(&device, x.view())?;
/// let mut back = Array2::zeros((2, 3));
/// matrix.download(back.view_mut())?;
/// assert_eq!(back, x);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceMatrix {
    buffer: Buffer<f32>,
    /// The place of the first element in the buffer.
    offset: usize,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    count: usize,
    batch_stride: usize,
    packed: bool,
}

impl DeviceMatrix {
    /// Copies a matrix to the device.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// let (as_it_is, transposed) = (DeviceMatrix::upload(&device, x.view())?, DeviceMatrix::upload(&device, x.t())?);
    /// let [mut one, mut other] = [[0.0; 4]; 2];
    /// as_it_is.buffer().copy_to(&mut one)?;
    /// transposed.buffer().copy_to(&mut other)?;
    /// assert_eq!(one, other, "the same memory, with other strides");
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) where the GPU has too little free memory, or an earlier kernel has failed.
    pub fn upload(device: &Device, matrix: ArrayView2<'_, f32>) -> Result<Self, Error> {
        Self::upload_to(|len| Ok(device.allocate(len)?), matrix)
    }

    /// Copies a matrix to a buffer of as many elements as it is asked for.
    pub(crate) fn upload_to(
        buffer: impl FnOnce(usize) -> Result<Buffer<f32>, Error>,
        matrix: ArrayView2<'_, f32>,
    ) -> Result<Self, Error> {
        let copied = |elements: &[f32]| {
            let mut buffer = buffer(elements.len())?;
            buffer.copy_from(elements)?;
            Ok::<_, Error>(buffer)
        };
        match direct(matrix) {
            Some((slice, strides)) => Ok(Self::with(copied(slice)?, matrix.dim(), strides, false)),
            None => {
                let (elements, strides) = pack(matrix);
                Ok(Self::with(copied(&elements)?, matrix.dim(), strides, true))
            }
        }
    }

    /// Allocates a matrix on the device, in the layout in which `like` would be uploaded. Its elements are NaN, so that
    /// one that no kernel writes does not look like a result.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let like = Array2::<f32>::zeros((2, 3));
    /// let c = DeviceMatrix::unwritten(&device, like.view())?;
    /// assert_eq!((c.rows(), c.cols()), (2, 3));
    /// let mut elements = [0.0; 6];
    /// c.buffer().copy_to(&mut elements)?;
    /// assert!(elements.iter().all(|element| element.is_nan()));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceMatrix::upload`].
    pub fn unwritten(device: &Device, like: ArrayView2<'_, f32>) -> Result<Self, Error> {
        Self::unwritten_in(|len| Ok(device.allocate(len)?), like)
    }

    /// The same in a buffer of as many elements as it is asked for.
    pub(crate) fn unwritten_in(
        buffer: impl FnOnce(usize) -> Result<Buffer<f32>, Error>,
        like: ArrayView2<'_, f32>,
    ) -> Result<Self, Error> {
        let (len, strides, packed) = match direct(like) {
            Some((slice, strides)) => (slice.len(), strides, false),
            None => (like.len(), packed_strides(like), true),
        };
        let mut made = Self::with(buffer(len)?, like.dim(), strides, packed);
        made.clear()?;
        Ok(made)
    }

    /// Where the elements of a view would lie once uploaded.
    pub(crate) fn placement_of(matrix: ArrayView2<'_, f32>) -> Placement {
        let [row_stride, col_stride] = direct(matrix).map_or_else(|| packed_strides(matrix), |(_, strides)| strides);
        Placement { row_stride, col_stride, batch_stride: 0, alignment: 256 }
    }

    fn with(buffer: Buffer<f32>, shape: (usize, usize), strides: [usize; 2], packed: bool) -> Self {
        let ((rows, cols), [row_stride, col_stride]) = (shape, strides);
        Self { buffer, offset: 0, rows, cols, row_stride, col_stride, count: 1, batch_stride: 0, packed }
    }

    /// A matrix in a buffer, with the strides of rows and of columns in elements.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // A column-major matrix of 2×3 in memory that a kernel of one's own has written.
    /// let buffer = device.upload(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0])?;
    /// let matrix = DeviceMatrix::new(buffer, 2, 3, [1, 2])?;
    /// let mut back = Array2::zeros((2, 3));
    /// matrix.download(back.view_mut())?;
    /// assert_eq!(back, array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    ///
    /// let too_small = DeviceMatrix::new(device.upload(&[0.0; 5])?, 2, 3, [1, 2]);
    /// assert!(matches!(too_small, Err(Error::OutsideBuffer { len: 5, .. })));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if an element is not in the buffer.
    pub fn new(buffer: Buffer<f32>, rows: usize, cols: usize, strides: [usize; 2]) -> Result<Self, Error> {
        Self::with(buffer, (rows, cols), strides, false).inside()
    }

    /// A batch of `count` matrices in a buffer, each beginning `batch_stride` elements after the one before. There may be none.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // Three row-major matrices of 2×2, one behind the other.
    /// let buffer = device.upload(&[0.0; 12])?;
    /// let batch = DeviceMatrix::new_batch(buffer, [2, 2], [2, 1], 3, 4)?;
    /// assert_eq!(batch.count(), 3);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if an element is not in the buffer.
    pub fn new_batch(
        buffer: Buffer<f32>,
        [rows, cols]: [usize; 2],
        strides: [usize; 2],
        count: usize,
        batch_stride: usize,
    ) -> Result<Self, Error> {
        Self { count, batch_stride, ..Self::with(buffer, (rows, cols), strides, false) }.inside()
    }

    /// A batch of `count` matrices like this one, each beginning `stride` elements after the one before. With a stride of 0
    /// they are all the same one, which is fine for operands.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // The same matrix as the operand of eight products.
    /// let a = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?.into_batch(8, 0)?;
    /// assert_eq!((a.count(), a.buffer().len()), (8, 4));
    /// // Two rows of it as two matrices: the last one would end behind the buffer.
    /// assert!(a.into_batch(2, 2).is_err());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if an element is not in the buffer.
    pub fn into_batch(self, count: usize, stride: usize) -> Result<Self, Error> {
        Self { count, batch_stride: stride, ..self }.inside()
    }

    /// The same matrices, `distance` elements further on in the buffer.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // The second of two matrices of 2×2 in a buffer.
    /// let all = DeviceMatrix::new(device.upload(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?, 2, 2, [2, 1])?;
    /// let (second, mut back) = (all.moved_by(4)?, Array2::zeros((2, 2)));
    /// second.download(back.view_mut())?;
    /// assert_eq!(back, array![[5.0, 6.0], [7.0, 8.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if an element is not in the buffer.
    pub fn moved_by(self, distance: usize) -> Result<Self, Error> {
        let offset = self.offset.saturating_add(distance);
        Self { offset, ..self }.inside()
    }

    /// Refuses matrices with elements outside of the buffer.
    fn inside(self) -> Result<Self, Error> {
        let Self { offset, rows, cols, row_stride, col_stride, count, batch_stride, .. } = self;
        if rows == 0 || cols == 0 || count == 0 {
            return Ok(self);
        }
        let along = |extent: usize, stride: usize| (extent as u128 - 1).saturating_mul(stride as u128);
        let distances = [along(rows, row_stride), along(cols, col_stride), along(count, batch_stride)];
        let last = distances.into_iter().fold(offset as u128, u128::saturating_add);
        if last < self.buffer.len() as u128 {
            return Ok(self);
        }
        let strides = [row_stride, col_stride, batch_stride];
        Err(Error::OutsideBuffer { rows, cols, count, strides, offset, last, len: self.buffer.len() })
    }

    /// Makes every element NaN, also those in gaps between rows.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let mut c = DeviceMatrix::upload(&device, array![[1.0, 2.0]].view())?;
    /// c.clear()?; // before the next run, so that an element that it does not write is seen
    /// let mut elements = [0.0; 2];
    /// c.buffer().copy_to(&mut elements)?;
    /// assert!(elements.iter().all(|element| element.is_nan()));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) if an earlier kernel has failed.
    pub fn clear(&mut self) -> Result<(), Error> {
        Ok(self.buffer.fill_bytes(NAN_BYTE)?)
    }

    /// The first `rows` rows and `cols` columns. The rest stays in memory, as gaps: this is how a matrix with a leading
    /// dimension larger than its rows comes about.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // 2×2 of a matrix whose rows are three elements apart.
    /// let all = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].view())?;
    /// let (left, mut back) = (all.narrowed(2, 2), Array2::zeros((2, 2)));
    /// left.download(back.view_mut())?;
    /// assert_eq!(back, array![[1.0, 2.0], [4.0, 5.0]]);
    /// assert_eq!(left.placement().row_stride, 3);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the matrix has fewer rows or columns.
    pub fn narrowed(self, rows: usize, cols: usize) -> Self {
        assert!(rows <= self.rows && cols <= self.cols, "{rows} x {cols} of a {} x {} matrix", self.rows, self.cols);
        Self { rows, cols, ..self }
    }

    /// The transpose: the same memory, with the strides exchanged.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let x = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let (turned, mut back) = (DeviceMatrix::upload(&device, x.view())?.transposed(), Array2::zeros((3, 2)));
    /// turned.download(back.view_mut())?;
    /// assert_eq!(back, x.t());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// The number of rows.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::unwritten(&device, Array2::zeros((2, 5)).view())?;
    /// assert_eq!(matrix.rows(), 2);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::unwritten(&device, Array2::zeros((2, 5)).view())?;
    /// assert_eq!((matrix.cols(), matrix.transposed().cols()), (5, 2));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Whether the matrix lies differently on the device than in the view that it came from.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// # use ndarray::s;
    /// let x = Array2::zeros((4, 6));
    /// let is_packed = |view| Ok::<_, Error>(DeviceMatrix::upload(&device, view)?.is_packed());
    /// assert!(!is_packed(x.view())? && !is_packed(x.t())?);
    /// assert!(is_packed(x.slice(s![.., ..;2]))?, "every other column");
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn is_packed(&self) -> bool {
        self.packed
    }

    /// The memory, in the order in which it lies there, gaps included.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?.narrowed(2, 1);
    /// let mut elements = [0.0; 4];
    /// matrix.buffer().copy_to(&mut elements)?;
    /// assert_eq!(elements, [1.0, 2.0, 3.0, 4.0], "the gaps, too");
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn buffer(&self) -> &Buffer<f32> {
        &self.buffer
    }

    /// The memory, to be used for something else.
    pub(crate) fn into_buffer(self) -> Buffer<f32> {
        self.buffer
    }

    /// The memory, to be written.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let mut matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0]].view())?;
    /// matrix.buffer_mut().copy_from(&[7.0, 8.0])?; // new numbers in the same place
    /// let mut back = Array2::zeros((1, 2));
    /// matrix.download(back.view_mut())?;
    /// assert_eq!(back, array![[7.0, 8.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn buffer_mut(&mut self) -> &mut Buffer<f32> {
        &mut self.buffer
    }

    /// The number of matrices in the batch: 1 for one alone.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0]].view())?;
    /// assert_eq!(matrix.count(), 1);
    /// assert_eq!(matrix.into_batch(5, 0)?.count(), 5);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the elements lie, with values for those strides that mean nothing.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::upload(&device, Array2::zeros((3, 4)).t())?;
    /// assert_eq!((matrix.placement().row_stride, matrix.placement().col_stride), (1, 4), "column-major");
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn placement(&self) -> Placement {
        // What has no elements may have any offset, and is taken to be at the end.
        let alignment = Placement::alignment_of(self.buffer.view().as_ptr().addr() + self.first(0) * size_of::<f32>());
        let Self { row_stride, col_stride, batch_stride, .. } = *self;
        Placement { row_stride, col_stride, batch_stride, alignment }.canonical(self.rows, self.cols, self.count)
    }

    /// The first matrix as kernels read it.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::upload(&device, Array2::zeros((3, 4)).view())?;
    /// let argument = matrix.matrix()?; // of a kernel of one's own
    /// assert_eq!((argument.rows(), argument.cols(), argument.row_stride()), (3, 4, 4));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for more than 2³¹ − 1 rows or columns.
    pub fn matrix(&self) -> Result<Matrix<'_>, Error> {
        let Placement { row_stride, col_stride, .. } = self.placement();
        let all = self.buffer.view();
        let first = self.first(0);
        // SAFETY: the rest of the buffer from an element on that is in it, borrowed as the whole is.
        let rest = unsafe { GlobalSlice::from_raw_parts(all.as_ptr().wrapping_add(first), all.len() - first) };
        Ok(Matrix::new(rest, self.rows, self.cols, row_stride, col_stride)?)
    }

    /// The first matrix as kernels write it.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let mut c = DeviceMatrix::unwritten(&device, Array2::zeros((3, 4)).view())?;
    /// assert_eq!(c.matrix_mut()?.rows(), 3);
    /// // One row for all three: nobody can write that.
    /// let mut repeated = DeviceMatrix::new(device.upload(&[0.0; 4])?, 3, 4, [0, 1])?;
    /// assert!(matches!(repeated.matrix_mut(), Err(Error::Shape(_))));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] for more than 2³¹ − 1 rows or columns, or if elements share a place in memory.
    pub fn matrix_mut(&mut self) -> Result<MatrixMut<'_>, Error> {
        let Placement { row_stride, col_stride, .. } = self.placement();
        let (first, rows, cols) = (self.first(0), self.rows, self.cols);
        let all = self.buffer.view_mut();
        // SAFETY: the rest of the buffer from an element on that is in it, borrowed as the whole is.
        let rest = unsafe { GlobalSliceMut::from_raw_parts(all.as_mut_ptr().wrapping_add(first), all.len() - first) };
        Ok(MatrixMut::new(rest, rows, cols, row_stride, col_stride)?)
    }

    /// All matrices as kernels read them.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let a = DeviceMatrix::new_batch(device.upload(&[0.0; 12])?, [2, 2], [2, 1], 3, 4)?;
    /// assert_eq!((a.batch()?.count(), a.batch()?.stride()), (3, 4));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceMatrix::matrix`], and [`Error::Shape`] for more than 2³¹ − 1 matrices.
    pub fn batch(&self) -> Result<MatrixBatch<'_>, Error> {
        self.batch_of(self.matrix()?)
    }

    /// The transposes of all matrices as kernels read them.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let a = DeviceMatrix::new_batch(device.upload(&[0.0; 12])?, [2, 3], [3, 1], 2, 6)?;
    /// let first = a.transposed_batch()?.first();
    /// assert_eq!((first.rows(), first.cols()), (3, 2));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceMatrix::batch`].
    pub fn transposed_batch(&self) -> Result<MatrixBatch<'_>, Error> {
        self.batch_of(self.matrix()?.transposed())
    }

    fn batch_of<'a>(&self, first: Matrix<'a>) -> Result<MatrixBatch<'a>, Error> {
        Ok(MatrixBatch::new(first, self.placement().batch_stride, self.count)?)
    }

    /// All matrices as kernels write them, or their transposes.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let mut c = DeviceMatrix::new_batch(device.upload(&[0.0; 12])?, [2, 2], [2, 1], 3, 4)?;
    /// assert_eq!(c.batch_mut(false)?.count(), 3);
    /// // Matrices that share their last elements with the next one cannot be written.
    /// let mut shared = DeviceMatrix::new_batch(device.upload(&[0.0; 12])?, [2, 2], [2, 1], 3, 3)?;
    /// assert!(matches!(shared.batch_mut(false), Err(Error::Shape(_))));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`DeviceMatrix::matrix_mut`], and [`Error::Shape`] for more than 2³¹ − 1 matrices, or if elements of some
    /// share a place in memory. Matrices may lie between the rows of others.
    pub fn batch_mut(&mut self, transposed: bool) -> Result<MatrixBatchMut<'_>, Error> {
        let (stride, count) = (self.placement().batch_stride, self.count);
        let first = self.matrix_mut()?;
        Ok(MatrixBatchMut::new(if transposed { first.transposed() } else { first }, stride, count)?)
    }

    /// The place of a matrix's first element in the buffer; that of its end if the matrix has no elements.
    fn first(&self, index: usize) -> usize {
        assert!(index < self.count.max(1), "matrix {index} of {}", self.count);
        // What has elements has been found to lie inside the buffer.
        let place = index.saturating_mul(self.batch_stride).saturating_add(self.offset);
        place.min(self.buffer.len())
    }

    /// Copies the first matrix back into a view of the shape that it came from, after everything launched so far.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?;
    /// let mut turned = Array2::zeros((2, 2)).reversed_axes(); // into a view of whatever strides
    /// matrix.download(turned.view_mut())?;
    /// assert_eq!(turned, array![[1.0, 2.0], [3.0, 4.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) if a kernel has failed.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn download(&self, target: ArrayViewMut2<'_, f32>) -> Result<(), Error> {
        self.download_all(&mut [target])
    }

    /// Copies the first matrices back, one into each view, after everything launched so far.
    ///
    /// ```
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::{Array2, array};
    /// # use tilewright::{Device, DeviceMatrix, Error};
    /// # let device = Device::cpu(Checks::Bounds);
    /// let batch = DeviceMatrix::new_batch(device.upload(&[1.0, 2.0, 3.0, 4.0])?, [1, 2], [2, 1], 2, 2)?;
    /// let (mut first, mut second) = (Array2::zeros((1, 2)), Array2::zeros((1, 2)));
    /// batch.download_all(&mut [first.view_mut(), second.view_mut()])?;
    /// assert_eq!((first, second), (array![[1.0, 2.0]], array![[3.0, 4.0]]));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::Driver`](runtime::Error::Driver) if a kernel has failed.
    ///
    /// # Panics
    /// If the shapes differ, or there are more views than matrices.
    pub fn download_all(&self, targets: &mut [ArrayViewMut2<'_, f32>]) -> Result<(), Error> {
        for target in targets.iter() {
            assert_eq!(target.dim(), (self.rows, self.cols), "a matrix is copied back into a view of its own shape");
        }
        if targets.iter().all(|target| target.is_empty()) {
            return Ok(());
        }
        let strides = [self.row_stride, self.col_stride];
        if let [target] = targets {
            let as_it_stands = direct(target.view())
                .is_some_and(|(slice, target_strides)| slice.len() == self.buffer.len() && target_strides == strides);
            if as_it_stands && let Some(slice) = target.as_slice_memory_order_mut() {
                return Ok(self.buffer.copy_to(slice)?);
            }
        }
        let mut elements = vec![0.0; self.buffer.len()];
        self.buffer.copy_to(&mut elements)?;
        for (index, target) in targets.iter_mut().enumerate() {
            let shape = (self.rows, self.cols).strides(strides.into());
            let stored = ArrayView2::from_shape(shape, &elements[self.first(index)..]);
            target.assign(&stored.expect("a matrix lies within its buffer"));
        }
        Ok(())
    }
}

/// 0xFFFF_FFFF is a NaN.
const NAN_BYTE: u8 = 0xFF;

/// The elements of a matrix as they stand in memory, with the strides of rows and of columns, if kernels can take it like
/// that: no stride is negative and there are no gaps. A stride of zero, which repeats a row or a column, is fine.
fn direct(matrix: ArrayView2<'_, f32>) -> Option<(&[f32], [usize; 2])> {
    if matrix.is_empty() {
        return Some((&[], [0, 0]));
    }
    let mut distinct = matrix;
    let mut strides = [0; 2];
    for (axis, stride) in strides.iter_mut().enumerate() {
        // Along an axis of one element the stride means nothing, and ndarray leaves any number there.
        if matrix.len_of(Axis(axis)) > 1 {
            *stride = usize::try_from(matrix.strides()[axis]).ok()?;
        }
        if *stride == 0 {
            distinct.slice_axis_inplace(Axis(axis), Slice::from(..1));
        }
    }
    distinct.to_slice_memory_order().map(|slice| (slice, strides))
}

/// Whether to pack by columns: where they lie closer together in memory than rows do.
fn by_columns(matrix: ArrayView2<'_, f32>) -> bool {
    let [row_stride, col_stride] = [matrix.strides()[0].unsigned_abs(), matrix.strides()[1].unsigned_abs()];
    row_stride < col_stride
}

/// The strides of rows and of columns that [`pack`] gives a matrix.
fn packed_strides(matrix: ArrayView2<'_, f32>) -> [usize; 2] {
    let (rows, cols) = matrix.dim();
    if by_columns(matrix) { [1, rows] } else { [cols, 1] }
}

/// A copy of a matrix without gaps.
fn pack(matrix: ArrayView2<'_, f32>) -> (Vec<f32>, [usize; 2]) {
    let elements =
        if by_columns(matrix) { matrix.t().iter().copied().collect() } else { matrix.iter().copied().collect() };
    (elements, packed_strides(matrix))
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use ndarray::{Array2, s};

    use super::*;

    fn numbers(rows: usize, cols: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, cols), |(row, col)| (100 * row + col) as f32)
    }

    /// Uploads a view, says whether it was packed, and checks that what comes back, into memory of any layout, is the
    /// view's content.
    fn packed(view: ArrayView2<'_, f32>) -> bool {
        let device = Device::cpu(Checks::Bounds);
        let there = DeviceMatrix::upload(&device, view).unwrap();
        let (rows, cols) = view.dim();
        let mut by_rows = Array2::zeros((rows, cols));
        there.download(by_rows.view_mut()).unwrap();
        assert_eq!(by_rows, view);
        let mut by_columns = Array2::zeros((rows, cols).f());
        there.download(by_columns.view_mut()).unwrap();
        assert_eq!(by_columns, view);
        let mut with_gaps = Array2::from_elem((2 * rows, 3 * cols), -1.0);
        there.download(with_gaps.slice_mut(s![..;-2, 1..;3])).unwrap();
        assert_eq!(with_gaps.slice(s![..;-2, 1..;3]), view);
        assert_eq!(with_gaps.iter().filter(|&&element| element == -1.0).count(), 5 * rows * cols);
        there.is_packed()
    }

    #[test]
    fn what_kernels_can_take_goes_as_it_stands_and_the_rest_is_packed() {
        let a = numbers(6, 9);
        assert!(!packed(a.view()));
        assert!(!packed(a.t()));
        assert!(!packed(a.slice(s![2..5, ..])), "whole rows have no gaps");
        assert!(!packed(a.slice(s![3..4, 2..7])), "nor has one piece of a row");
        assert!(!packed(a.slice(s![3..3, ..])));
        assert!(!packed(a.slice(s![..1, ..]).broadcast((4, 9)).unwrap()), "a repeated row");
        assert!(!packed(numbers(9, 1).broadcast((9, 5)).unwrap()), "a repeated column");
        assert!(!packed(numbers(1, 1).broadcast((3, 5)).unwrap()));

        assert!(packed(a.slice(s![.., 2..7])), "gaps between rows");
        assert!(packed(a.slice(s![..;2, ..;3])));
        assert!(packed(a.slice(s![..;-1, ..])));
        assert!(packed(a.slice(s![.., ..;-1])));
        assert!(packed(a.slice(s![..;-1, ..;-1])));
        assert!(packed(a.t().slice(s![1..8, ..])));
        assert!(packed(a.slice(s![..;-1, ..1])));
    }

    #[test]
    fn packing_keeps_to_how_the_matrix_lies_in_memory() {
        let device = Device::cpu(Checks::Bounds);
        let a = numbers(6, 9);
        let by_rows = DeviceMatrix::upload(&device, a.slice(s![.., ..8])).unwrap();
        assert_eq!((by_rows.row_stride, by_rows.col_stride), (8, 1));
        let by_columns = DeviceMatrix::upload(&device, a.slice(s![.., ..8]).reversed_axes()).unwrap();
        assert_eq!((by_columns.row_stride, by_columns.col_stride), (1, 8));
    }

    #[test]
    fn a_broadcast_uploads_only_what_is_distinct() {
        let device = Device::cpu(Checks::Bounds);
        let row = numbers(1, 9);
        let there = DeviceMatrix::upload(&device, row.broadcast((1000, 9)).unwrap()).unwrap();
        assert_eq!((there.rows(), there.cols(), there.buffer().len()), (1000, 9, 9));
    }

    #[test]
    fn a_result_that_nobody_wrote_is_nan() {
        let device = Device::cpu(Checks::Bounds);
        let mut result = numbers(2, 3);
        DeviceMatrix::unwritten(&device, result.view()).unwrap().download(result.view_mut()).unwrap();
        assert!(result.iter().all(|element| element.is_nan()));
    }
}
