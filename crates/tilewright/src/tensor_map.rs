//! Makes tensor maps, the descriptions by which TMA finds tiles, of batches of matrices.

use cuda_driver::{TensorMapFault, TensorMapRejected};
use cuda_std::{TensorMap, TensorMapMut};
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut};
use runtime::{TensorLayout, TensorTile};

use crate::order::Order;
use crate::views::read;
use crate::{Device, Error};

impl Device {
    /// A tensor map of a batch of matrices whose rows, or columns, have their elements side by side. See
    /// [`Device::tensor_map`](runtime::Device::tensor_map).
    ///
    /// ```
    /// # use cuda_driver::{TensorElement, TensorSwizzle};
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::Array2;
    /// # use tilewright::{Device, DeviceMatrix, Order, device::TensorTile};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // Tiles of 8 lines of 32 elements.
    /// let tile = TensorTile { element: TensorElement::Fp32, length: 32, lines: 8, swizzle: TensorSwizzle::None };
    /// let a = DeviceMatrix::upload(&device, Array2::zeros((64, 96)).view())?;
    /// let map = device.tensor_map_of_batch(&a.batch()?, Order::RowMajor, &tile)?; // an argument of a kernel
    /// assert_eq!(map.layout().extents, [96, 64, 1]);
    /// // Its columns do not have their elements side by side.
    /// assert!(device.tensor_map_of_batch(&a.batch()?, Order::ColumnMajor, &tile).is_err());
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there; also [`DeviceError::Driver`](runtime::Error::Driver) if those elements do not lie side by side, or if the tiles' are not of 4 bytes.
    pub fn tensor_map_of_batch<'a>(
        &self,
        batch: &MatrixBatch<'a>,
        order: Order,
        tile: &TensorTile,
    ) -> Result<TensorMap<'a>, Error> {
        let first = batch.first();
        let (length, count, stride, line_stride) = match order {
            Order::RowMajor => (first.cols(), first.rows(), first.col_stride(), first.row_stride()),
            Order::ColumnMajor => (first.rows(), first.cols(), first.row_stride(), first.col_stride()),
        };
        let layout = TensorLayout {
            length: length.into(),
            lines: count.into(),
            line_stride,
            matrices: batch.distinct().into(),
            matrix_stride: batch.stride(),
        };
        let element_bytes = tile.element.bytes();
        let byte_stride = stride.saturating_mul(size_of::<f32>() as u64);
        if element_bytes != size_of::<f32>() as u64 || (stride != 1 && length > 1) {
            return Err(cuda_driver::Error::TensorMapRejected(Box::new(TensorMapRejected {
                fault: TensorMapFault::Apart { byte_stride, element_bytes },
                element: tile.element,
                address: first.data().as_ptr().addr() as u64,
                dimensions: layout.dimensions(tile).to_vec(),
            }))
            .into());
        }
        Ok(self.tensor_map(first.data(), &layout, tile)?)
    }
}

impl Device {
    /// Four tensor maps of a batch of matrices whose lines begin anywhere, one of every fourth line each: map i has lines i, i + 4, and so on. `lines_of_matrix` is how many
    /// lines further on the next matrix begins, where all lines are those of one; 0 where matrices are an extent of the maps.
    ///
    /// # Errors
    /// As for [`Device::tensor_map_of_batch`].
    pub(crate) fn tensor_maps_of_fours<'a>(
        &self,
        batch: &MatrixBatch<'a>,
        order: Order,
        lines_of_matrix: usize,
        tile: &TensorTile,
    ) -> Result<[TensorMap<'a>; 4], Error> {
        let first = batch.first();
        let (length, lines, line_stride) = match order {
            Order::RowMajor => (first.cols(), first.rows(), first.row_stride()),
            Order::ColumnMajor => (first.rows(), first.cols(), first.col_stride()),
        };
        let matrices = u64::from(batch.distinct());
        let (all, matrices) = match lines_of_matrix as u64 {
            0 => (u64::from(lines), matrices),
            apart => ((matrices - 1) * apart + u64::from(lines), 1),
        };
        let map = |number: u64| {
            // Where there are fewer lines, a map has to be of something: kernels load nothing by it.
            let number = if number < all { number } else { 0 };
            let layout = TensorLayout {
                length: length.into(),
                lines: all.saturating_sub(number).div_ceil(4),
                line_stride: 4 * line_stride,
                matrices,
                matrix_stride: batch.stride(),
            };
            let start = (number * line_stride).min(first.data().len() as u64) as usize;
            // SAFETY: not behind the end.
            let view = unsafe { first.data().from_unchecked(start) };
            self.tensor_map_from_before(view, &layout, tile)
        };
        Ok([map(0)?, map(1)?, map(2)?, map(3)?])
    }

    /// A tensor map by which a kernel stores tiles of matrices whose rows have their elements side by side, beside the view of
    /// them that it has. Otherwise as [`Device::tensor_map_of_batch`].
    ///
    /// ```
    /// # use cuda_driver::{TensorElement, TensorSwizzle};
    /// # use cuda_std::executor::Checks;
    /// # use ndarray::Array2;
    /// # use tilewright::{Device, DeviceMatrix, Order, device::TensorTile};
    /// # let device = Device::cpu(Checks::Bounds);
    /// // Tiles of 8 lines of 32 elements.
    /// let tile = TensorTile { element: TensorElement::Fp32, length: 32, lines: 8, swizzle: TensorSwizzle::None };
    /// let mut c = DeviceMatrix::unwritten(&device, Array2::zeros((64, 96)).view())?;
    /// let results = c.batch_mut(false)?;
    /// let map = device.tensor_map_of_results(&results, &tile)?; // beside `results`, as arguments of one kernel
    /// assert_eq!(map.layout().tile, [32, 8, 1]);
    /// # Ok::<(), tilewright::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn tensor_map_of_results<'a>(
        &self,
        batch: &MatrixBatchMut<'a>,
        tile: &TensorTile,
    ) -> Result<TensorMapMut<'a>, Error> {
        let first = batch.first();
        let (rows, cols) = (first.rows() as usize, first.cols() as usize);
        let strides = [first.row_stride() as usize, first.col_stride() as usize];
        let first = Matrix::new(read(first.data()), rows, cols, strides[0], strides[1])?;
        let readable = MatrixBatch::new(first, batch.stride() as usize, batch.count() as usize)?;
        let map = self.tensor_map_of_batch(&readable, Order::RowMajor, tile)?;
        // SAFETY: a launch takes it only beside a view of the same memory that may be written to.
        Ok(unsafe { TensorMapMut::new(map) })
    }
}
