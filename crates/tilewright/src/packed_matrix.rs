//! [`PackedMatrix`]: a matrix that is multiplied often, beside the form of it that kernels on tensor cores read, which is made once.
//!
//! ```text
//!  DeviceMatrix ──► product                 every product scales, splits and packs the matrix before it multiplies
//!
//!  DeviceMatrix ──► PackedMatrix::new       scales, splits and packs it, once
//!       │                │
//!       └──────┬─────────┘
//!              ▼
//!        PackedMatrix ──► product           packs the other operand; where a kernel of plain matrices is faster, or is the fallback for
//!                                           numbers that cannot be scaled, the matrix itself is read
//! ```
//!
//! What products read is an [`Operand`]: a reference to either.

use std::fmt;
use std::ops::Range;

use cuda_std::GlobalSlice;

use crate::device::Buffer;
use crate::operand::DeviceMatrix;
use crate::precision::Precision;

/// The parts of packed memory: words, what was found on the way, factors, flags of the fallback, ends of zeros, exceptions.
pub(crate) const PACKED_PARTS: usize = 6;

/// On which side of a product a matrix stands: its rows are multiplied with columns, or its columns with rows.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let left = PackedMatrix::new(&device, Precision::Fp32, Side::Left, on_device(array![[2.0]])?)?;
/// let (other, mut c) = (on_device(array![[3.0]])?, on_device(array![[0.0]])?);
/// tilewright::multiply(&device, Precision::Fp32, 1.0, &left, &other, 0.0, &mut c)?;
/// let refused = tilewright::multiply(&device, Precision::Fp32, 1.0, &other, &left, 0.0, &mut c);
/// assert!(refused.unwrap_err().to_string().contains("packed for the left side"));
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// A of `A·B`.
    Left,
    /// B of `A·B`.
    Right,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Left { "left" } else { "right" })
    }
}

/// A matrix, or a batch of them, and the same numbers packed for one precision and one side of a product.
///
/// Nothing can write to the matrix as long as it is here, so that both stay equal. It takes about as much memory again: for `fp32`, 4
/// bytes for each number of lines that are filled up to multiples of 32, and 2 for each 64 of these.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let weight = on_device(array![[1.0, 2.0], [3.0, 4.0]])?;
/// let weight = PackedMatrix::new(&device, Precision::Fp32, Side::Right, weight)?;
/// let (x, mut y) = (on_device(array![[5.0, 6.0]])?, on_device(array![[0.0, 0.0]])?);
/// for _ in 0..3 {
///     tilewright::multiply(&device, Precision::Fp32, 1.0, &x, &weight, 0.0, &mut y)?;
/// }
/// let mut result = array![[0.0, 0.0]];
/// y.download(result.view_mut())?;
/// assert_eq!(result, array![[23.0, 34.0]]);
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Debug)]
pub struct PackedMatrix {
    matrix: DeviceMatrix,
    precision: Precision,
    side: Side,
    memory: Buffer<f32>,
    parts: [Range<usize>; PACKED_PARTS],
}

impl PackedMatrix {
    /// A matrix, and memory that has it packed.
    pub(crate) fn of_parts(
        matrix: DeviceMatrix,
        (precision, side): (Precision, Side),
        memory: Buffer<f32>,
        parts: [Range<usize>; PACKED_PARTS],
    ) -> Self {
        assert!(parts.iter().all(|part| part.start <= part.end && part.end <= memory.len()), "parts are in the memory");
        Self { matrix, precision, side, memory, parts }
    }

    /// The matrix as it was given.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// assert_eq!(packed.matrix().cols(), 3);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn matrix(&self) -> &DeviceMatrix {
        &self.matrix
    }

    /// The same, to be written again: what was packed is dropped.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// let mut matrix = packed.into_matrix();
    /// matrix.buffer_mut().copy_from(&[4.0, 5.0, 6.0])?; // other numbers; packed again for the next products
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn into_matrix(self) -> DeviceMatrix {
        self.matrix
    }

    /// The precision in which kernels read what is packed.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// assert_eq!(packed.precision(), Precision::Fp32);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The side of a product on which it can stand.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// assert_eq!(packed.side(), Side::Right);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn side(&self) -> Side {
        self.side
    }

    /// The memory that it takes beside that of the matrix.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// // Three columns of one number, each filled up to 32, and the rest of the parts, each at a multiple of 256 bytes.
    /// assert!(packed.packed_bytes() >= 3 * 32 * 4);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn packed_bytes(&self) -> usize {
        self.memory.len() * size_of::<f32>()
    }

    /// The memory that has what was packed.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Right, matrix)?;
    /// assert_eq!(packed.packed_memory().len() * 4, packed.packed_bytes());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn packed_memory(&self) -> &Buffer<f32> {
        &self.memory
    }

    /// The transpose, for the other side: the same memory.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// // A weight with a row for each output is multiplied as x·Wᵀ, or as W·xᵀ.
    /// let packed = PackedMatrix::new(&device, Precision::Fp32, Side::Left, matrix)?;
    /// let packed = packed.transposed();
    /// assert_eq!((packed.matrix().rows(), packed.side()), (3, Side::Right));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn transposed(self) -> Self {
        Self { matrix: self.matrix.transposed(), side: self.side.other(), ..self }
    }

    /// The parts, to be read.
    pub(crate) fn parts(&self) -> [GlobalSlice<'_, f32>; PACKED_PARTS] {
        let all = self.memory.view();
        self.parts.each_ref().map(|part| {
            // SAFETY: elements of the buffer, as `of_parts` has checked, borrowed as the whole is.
            unsafe { GlobalSlice::from_raw_parts(all.as_ptr().wrapping_add(part.start), part.len()) }
        })
    }
}

/// What a product reads: a matrix, or one that has been packed. References to either become one by themselves.
///
/// ```
/// use ndarray::array;
/// use tilewright::{Device, DeviceMatrix, Operand, PackedMatrix, Precision, Side};
///
/// /// The square of a matrix that may have been packed for the left side.
/// fn square<'a>(device: &Device, a: impl Into<Operand<'a>>, c: &mut DeviceMatrix) -> Result<(), tilewright::Error> {
///     let a = a.into();
///     tilewright::multiply(device, Precision::Fp32, 1.0, a, a.matrix(), 0.0, c)
/// }
///
/// let (device, _why_no_gpu) = Device::open()?;
/// let on_device = |matrix: ndarray::Array2<f32>| DeviceMatrix::upload(&device, matrix.view());
/// let (a, mut c) = (on_device(array![[3.0]])?, on_device(array![[0.0]])?);
/// square(&device, &a, &mut c)?;
/// square(&device, &PackedMatrix::new(&device, Precision::Fp32, Side::Left, a)?, &mut c)?;
/// # Ok::<(), tilewright::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A matrix.
    Plain(&'a DeviceMatrix),
    /// A matrix that has been packed.
    Packed(&'a PackedMatrix),
}

impl<'a> Operand<'a> {
    /// The matrix.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, Operand};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// assert_eq!(Operand::from(&matrix).matrix().cols(), 3);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn matrix(self) -> &'a DeviceMatrix {
        match self {
            Self::Plain(matrix) => matrix,
            Self::Packed(packed) => packed.matrix(),
        }
    }

    /// What has been packed, if it has.
    ///
    /// ```
    /// # use ndarray::array;
    /// # use tilewright::{Device, DeviceMatrix, Operand};
    /// # let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0, 3.0]].view())?;
    /// assert!(Operand::from(&matrix).packed().is_none());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    pub fn packed(self) -> Option<&'a PackedMatrix> {
        match self {
            Self::Plain(_) => None,
            Self::Packed(packed) => Some(packed),
        }
    }
}

impl<'a> From<&'a DeviceMatrix> for Operand<'a> {
    fn from(matrix: &'a DeviceMatrix) -> Self {
        Self::Plain(matrix)
    }
}

impl<'a> From<&'a mut DeviceMatrix> for Operand<'a> {
    fn from(matrix: &'a mut DeviceMatrix) -> Self {
        Self::Plain(matrix)
    }
}

impl<'a> From<&'a PackedMatrix> for Operand<'a> {
    fn from(packed: &'a PackedMatrix) -> Self {
        Self::Packed(packed)
    }
}
