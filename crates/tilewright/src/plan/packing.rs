//! Packs a matrix once, for many products: makes a [`PackedMatrix`].

use super::preparation::{OperandOfKernel, Packed, Preparation};
use super::workspace::{Layout, check_room, parts_of};
use crate::device_facts::DeviceFacts;
use crate::kernels::{ALL, Format, KernelInfo};
use crate::packed_matrix::{PackedMatrix, Side};
use crate::{Buffer, Device, DeviceMatrix, Error, Precision};

/// How a matrix is packed, and which parts of memory that takes.
struct Packing {
    how: Packed,
    /// The elements of memory that takes.
    elements: usize,
}

impl Packing {
    fn of(device: &Device, precision: Precision, side: Side, matrix: &DeviceMatrix) -> Result<Self, Error> {
        let format = format_on(device, precision)?;
        let (placement, extents, batch) = (matrix.placement(), [matrix.rows(), matrix.cols()], matrix.count());
        let operand = match side {
            Side::Left => OperandOfKernel::left(placement, extents, batch),
            Side::Right => OperandOfKernel::right(placement, extents, batch),
        };
        let mut layout = Layout::default();
        // Products read the matrix itself where another kernel multiplies it, and copy it if they have to.
        let how = operand.pack(format, false, false, &mut layout);
        let how =
            how.ok_or_else(|| Error::Usage("a packed matrix would end beyond what can be addressed".to_owned()))?;
        Ok(Self { how, elements: layout.bytes().div_ceil(size_of::<f32>()) })
    }

    /// Packs a matrix into memory, if there is enough.
    fn run(self, device: &Device, matrix: &DeviceMatrix, memory: &mut Buffer<f32>) -> Result<(), Error> {
        check_room(self.elements, memory.len())?;
        if matrix.rows() == 0 || matrix.cols() == 0 || matrix.count() == 0 {
            return Ok(());
        }
        let preparation = Preparation::Packed(self.how);
        let prepared = preparation.run(device, matrix.batch()?, parts_of(memory, preparation.parts())?, None)?;
        prepared.finish_one(device)
    }
}

impl PackedMatrix {
    /// Packs a matrix, or a batch of them, for products in a precision in which it stands on a side. Queues that, and does not wait for it.
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?;
    /// let packed = PackedMatrix::new(&device, Precision::Bf16, Side::Right, matrix)?;
    /// let refused = PackedMatrix::new(&device, Precision::Fp32Strict, Side::Right, packed.into_matrix());
    /// assert!(refused.unwrap_err().to_string().contains("no kernel multiplies packed matrices in fp32-strict"));
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`] if the device has no kernel for operands that are packed in this precision; [`Error::Shape`] for more than 2³¹ − 1
    /// rows, columns or matrices; [`DeviceError`](runtime::Error) where there is too little memory, or the matrix is another device's.
    pub fn new(device: &Device, precision: Precision, side: Side, matrix: DeviceMatrix) -> Result<Self, Error> {
        let packing = Packing::of(device, precision, side, &matrix)?;
        Self::packed_in(device.allocate(packing.elements)?, packing, device, (precision, side), matrix)
    }

    /// The same in memory of at least [`PackedMatrix::bytes`], at a multiple of 256.
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0], [3.0, 4.0]].view())?;
    /// let bytes = PackedMatrix::bytes(&device, Precision::Fp32, Side::Left, &matrix)?;
    /// let memory = device.allocate(bytes / 4)?;
    /// let packed = PackedMatrix::new_in(memory, &device, Precision::Fp32, Side::Left, matrix)?;
    /// assert_eq!(packed.packed_bytes(), bytes);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`PackedMatrix::new`], and [`Error::WorkspaceTooSmall`].
    pub fn new_in(
        memory: Buffer<f32>,
        device: &Device,
        precision: Precision,
        side: Side,
        matrix: DeviceMatrix,
    ) -> Result<Self, Error> {
        let packing = Packing::of(device, precision, side, &matrix)?;
        Self::packed_in(memory, packing, device, (precision, side), matrix)
    }

    /// The same, of which it is known how.
    fn packed_in(
        mut memory: Buffer<f32>,
        packing: Packing,
        device: &Device,
        of: (Precision, Side),
        matrix: DeviceMatrix,
    ) -> Result<Self, Error> {
        let parts = packing.how.parts();
        packing.run(device, &matrix, &mut memory)?;
        Ok(Self::of_parts(matrix, of, memory, parts))
    }

    /// The memory that has been packed by [`PackedMatrix::new_in`] for a matrix of this precision, side, shape, placement and numbers.
    ///
    /// ```
    /// use ndarray::array;
    /// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, array![[1.0, 2.0]].view())?;
    /// let [of_packed, of_new] = [(); 2].map(|()| device.allocate(PackedMatrix::bytes(&device, Precision::Fp32, Side::Left, &matrix).unwrap() / 4));
    /// // Memory that somebody else keeps, such as a tensor of a framework, is packed …
    /// let packed = PackedMatrix::new_in(of_packed?, &device, Precision::Fp32, Side::Left, matrix)?;
    /// # let (mut all, mut memory) = (vec![0.0; packed.packed_bytes() / 4], of_new?);
    /// # packed.packed_memory().copy_to(&mut all)?;
    /// # memory.copy_from(&all)?;
    /// # let matrix = packed.into_matrix();
    /// // … and later it is given again, with the same matrix.
    /// // SAFETY: the memory has what was packed of this matrix.
    /// let packed = unsafe { PackedMatrix::from_packed(memory, &device, Precision::Fp32, Side::Left, matrix)? };
    /// # let (other, mut c) = (DeviceMatrix::upload(&device, array![[3.0], [4.0]].view())?, DeviceMatrix::upload(&device, array![[0.0]].view())?);
    /// # tilewright::multiply(&device, Precision::Fp32, 1.0, &packed, &other, 0.0, &mut c)?;
    /// # let mut result = array![[0.0]];
    /// # c.download(result.view_mut())?;
    /// # assert_eq!(result, array![[11.0]]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`PackedMatrix::new`], and [`Error::WorkspaceTooSmall`].
    ///
    /// # Safety
    /// That is so: kernels go by what they find in the memory.
    pub unsafe fn from_packed(
        memory: Buffer<f32>,
        device: &Device,
        precision: Precision,
        side: Side,
        matrix: DeviceMatrix,
    ) -> Result<Self, Error> {
        let packing = Packing::of(device, precision, side, &matrix)?;
        check_room(packing.elements, memory.len())?;
        Ok(Self::of_parts(matrix, (precision, side), memory, packing.how.parts()))
    }

    /// The memory that packing a matrix takes, in bytes.
    ///
    /// ```
    /// use ndarray::Array2;
    /// use tilewright::{Device, DeviceMatrix, PackedMatrix, Precision, Side};
    ///
    /// let (device, _why_no_gpu) = Device::open()?;
    /// let matrix = DeviceMatrix::upload(&device, Array2::zeros((64, 128)).view())?;
    /// let [fp32, bf16] = [Precision::Fp32, Precision::Bf16].map(|precision| PackedMatrix::bytes(&device, precision, Side::Left, &matrix));
    /// assert_eq!((bf16?, fp32? / 4096), (64 * 128 * 2, 8)); // and half a kilobyte and more for factors
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`PackedMatrix::new`].
    pub fn bytes(device: &Device, precision: Precision, side: Side, matrix: &DeviceMatrix) -> Result<usize, Error> {
        Ok(Packing::of(device, precision, side, matrix)?.elements * size_of::<f32>())
    }
}

/// The format in which kernels of a precision read packed operands, of those that a device has.
fn format_on(device: &Device, precision: Precision) -> Result<Format, Error> {
    let format = |kernel: &KernelInfo| kernel.contract.format().filter(|_| device.has_kernel(&kernel.facts).is_ok());
    let of = |precision| ALL.iter().filter(|kernel| kernel.precision() == precision).find_map(|kernel| format(kernel));
    of(precision).ok_or_else(|| {
        let others: Vec<String> =
            Precision::ALL.into_iter().filter(|&other| of(other).is_some()).map(|other| other.to_string()).collect();
        let on = DeviceFacts::of(device);
        let can = match others.is_empty() {
            true => "in none".to_owned(),
            false => format!("in {}", others.join(", ")),
        };
        Error::Usage(format!(
            "no kernel multiplies packed matrices in {precision} on {on} ({can}): multiply the matrix itself"
        ))
    })
}
