//! Where the matrices of a product lie: strides, alignment, and which elements are neighbours.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::order::Order;

/// Where the elements of the matrices of a batch lie: strides in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// From one row to the next.
    pub row_stride: usize,
    /// From one column to the next.
    pub col_stride: usize,
    /// From one matrix to the next; 0 if all products share one.
    pub batch_stride: usize,
    /// The alignment of the first element, in bytes: a power of two.
    pub alignment: usize,
}

/// What addresses and strides of tensor maps are multiples of, in bytes.
const TENSOR_MAP_ALIGNMENT: usize = 16;

impl Placement {
    /// The alignment beyond which more makes no difference to any kernel.
    pub(crate) const FULL_ALIGNMENT: usize = TENSOR_MAP_ALIGNMENT;

    /// A matrix without gaps.
    pub fn dense(order: Order, rows: usize, cols: usize) -> Self {
        let [_, length] = order.lines(rows, cols);
        let [row_stride, col_stride] = order.strides(length, 1);
        Self { row_stride, col_stride, batch_stride: 0, alignment: 256 }
    }

    /// A row-major matrix without gaps, of `cols` columns, in memory that is aligned as every allocation is.
    pub fn row_major(cols: usize) -> Self {
        Self { row_stride: cols, col_stride: 1, batch_stride: 0, alignment: 256 }
    }

    /// A column-major matrix without gaps, of `rows` rows, in memory that is aligned as every allocation is.
    pub fn column_major(rows: usize) -> Self {
        Self::row_major(rows).transposed()
    }

    /// The alignment of what begins at an address, as far as it matters: allocations are aligned to 256 bytes.
    pub(crate) fn alignment_of(address: usize) -> usize {
        1 << (256 | address).trailing_zeros()
    }

    /// The transpose: the same elements.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Row-major or column-major; none if neither the elements of a row nor those of a column are neighbours.
    pub fn order(&self) -> Option<Order> {
        match (self.row_stride, self.col_stride) {
            (_, 1) => Some(Order::RowMajor),
            (1, _) => Some(Order::ColumnMajor),
            _ => None,
        }
    }

    /// The same in words.
    pub(crate) fn order_in_words(&self) -> String {
        self.order().map_or_else(|| "with gaps between all elements".to_owned(), |order| order.to_string())
    }

    /// The elements from one stored row, or column, to the next.
    pub fn leading_dimension(&self) -> usize {
        if self.order() == Some(Order::RowMajor) { self.row_stride } else { self.col_stride }
    }

    /// Whether a tensor map can describe a batch of `rows`×`cols` matrices that lie like this: neighbours in a row or a
    /// column, no two lines in the same place, everything else at multiples of 16 bytes. Of matrices that are all in one place it describes one.
    pub fn fits_tensor_map(&self, rows: usize, cols: usize, batch: usize) -> bool {
        let Some(order) = self.order() else { return false };
        let [lines, length] = order.lines(rows, cols);
        // Strides of tensor maps have 40 bits.
        let fits = |stride: usize| stride.is_multiple_of(TENSOR_MAP_ALIGNMENT / size_of::<f32>()) && stride < 1 << 38;
        self.alignment.is_multiple_of(TENSOR_MAP_ALIGNMENT)
            && (lines <= 1 || (fits(self.leading_dimension()) && self.leading_dimension() >= length))
            && (batch <= 1 || fits(self.batch_stride))
    }

    /// How many lines further on the next of a batch of matrices that lie like this begins, if four tensor maps can describe them, of every fourth line each: 0 where
    /// matrices begin at multiples of 16 bytes from one another, and are an extent of the maps. Otherwise `as_one` says whether all lines may be those of
    /// one matrix.
    pub(crate) fn lines_of_fours(&self, rows: usize, cols: usize, batch: usize, as_one: bool) -> Option<usize> {
        let [lines, length] = self.order()?.lines(rows, cols);
        let (pitch, stride) = (self.leading_dimension(), self.batch_stride);
        let fits = |stride: usize| stride < 1 << 36;
        if lines > 1 && pitch < length || !fits(pitch) || !fits(stride) {
            return None;
        }
        if batch <= 1 || stride.is_multiple_of(TENSOR_MAP_ALIGNMENT / size_of::<f32>()) {
            return Some(0);
        }
        let apart = stride / pitch.max(1);
        let is_one = as_one && lines >= 4 && stride.is_multiple_of(pitch) && apart >= lines;
        (is_one && apart.checked_mul(batch)? < 1 << 31).then_some(apart)
    }

    /// What the lines of a batch of `rows`×`cols` matrices that lie like this begin at multiples of, in bytes, at most [`Placement::FULL_ALIGNMENT`]; single
    /// elements, where none are neighbours.
    pub(crate) fn alignment_of_lines(&self, rows: usize, cols: usize, batch: usize) -> usize {
        let Some(order) = self.order() else { return size_of::<f32>() };
        let [lines, _] = order.lines(rows, cols);
        let line = if lines > 1 { self.leading_dimension() } else { 0 };
        let matrix = if batch > 1 { self.batch_stride } else { 0 };
        let elements = [Self::FULL_ALIGNMENT, self.alignment].map(|bytes| bytes / size_of::<f32>());
        size_of::<f32>() << (elements[0] | elements[1] | line | matrix).trailing_zeros()
    }

    /// How many matrices of a batch that lies like this there are in memory: one, if all products share it.
    pub(crate) fn distinct(&self, batch: usize) -> usize {
        if self.batch_stride == 0 { batch.min(1) } else { batch }
    }

    /// The same places, with values for the strides that mean nothing.
    pub(crate) fn canonical(self, rows: usize, cols: usize, batch: usize) -> Self {
        let (row_stride, col_stride) = match (rows > 1, cols > 1) {
            (true, true) => (self.row_stride, self.col_stride),
            (true, false) if self.row_stride == 1 => (1, rows),
            (true, false) => (self.row_stride, 1),
            (false, true) if self.col_stride == 1 => (cols, 1),
            (false, true) => (1, self.col_stride),
            (false, false) => (1, 1),
        };
        Self { row_stride, col_stride, batch_stride: if batch > 1 { self.batch_stride } else { 0 }, ..self }
    }

    /// Refuses what no memory can hold.
    pub(crate) fn check(&self, matrix: &'static str, rows: usize, cols: usize, batch: usize) -> Result<(), Error> {
        if !self.alignment.is_power_of_two() || self.alignment < align_of::<f32>() {
            let alignment = self.alignment;
            return Err(Error::Usage(format!(
                "the alignment of {matrix} is {alignment} bytes: it has to be a power of two, and at least 4"
            )));
        }
        if rows == 0 || cols == 0 || batch == 0 {
            return Ok(());
        }
        // No overflow: extents are below 2³¹.
        let along = |extent: usize, stride: usize| (extent as u128 - 1) * stride as u128;
        let last = along(rows, self.row_stride) + along(cols, self.col_stride) + along(batch, self.batch_stride);
        if (last + 1) * size_of::<f32>() as u128 > isize::MAX as u128 {
            let Self { row_stride, col_stride, batch_stride, .. } = *self;
            return Err(Error::PlacementOverflow { matrix, rows, cols, batch, row_stride, col_stride, batch_stride });
        }
        Ok(())
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.order() {
            Some(Order::RowMajor) => write!(f, "row-major, rows {} apart", self.row_stride)?,
            Some(Order::ColumnMajor) => write!(f, "column-major, columns {} apart", self.col_stride)?,
            None => write!(f, "with strides {} and {}", self.row_stride, self.col_stride)?,
        }
        if self.batch_stride > 0 {
            write!(f, ", matrices {} apart", self.batch_stride)?;
        }
        if self.alignment < 16 { write!(f, ", aligned to {} bytes", self.alignment) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_maps_describe_lines_that_begin_anywhere() {
        let placed =
            |pitch: usize, batch_stride| Placement { batch_stride, alignment: 4, ..Placement::row_major(pitch) };
        let fours = |placement: Placement, [rows, cols, batch]: [usize; 3], as_one| {
            placement.lines_of_fours(rows, cols, batch, as_one)
        };
        assert_eq!(fours(placed(13, 0), [6, 13, 1], true), Some(0));
        assert_eq!(fours(placed(13, 0), [6, 13, 1], false), Some(0), "one matrix is no batch");
        assert_eq!(fours(placed(13, 80), [6, 13, 3], false), Some(0), "matrices are a multiple of 16 bytes apart");
        assert_eq!(fours(placed(13, 6 * 13), [6, 13, 3], true), Some(6));
        assert_eq!(fours(placed(13, 7 * 13), [6, 13, 3], true), Some(7), "with a line between two");
        assert_eq!(fours(placed(13, 6 * 13), [6, 13, 3], false), None, "lines of the next matrix may not be loaded");
        assert_eq!(fours(placed(13, 6 * 13 + 1), [6, 13, 3], true), None, "no whole number of lines");
        assert_eq!(fours(placed(13, 3 * 13), [6, 13, 3], true), None, "matrices that share lines");
        assert_eq!(fours(placed(13, 3 * 13), [3, 13, 3], true), None, "too few lines for four maps");
        assert_eq!(fours(placed(0, 0), [6, 13, 1], true), None, "one line for all");
        assert_eq!(fours(placed(0, 0), [1, 13, 1], true), Some(0));
        let spread = Placement { col_stride: 2, ..placed(26, 0) };
        assert_eq!(fours(spread, [6, 13, 1], true), None);
        assert_eq!(fours(placed(13, 0).transposed(), [13, 6, 1], false), Some(0));
        // Strides of tensor maps have 40 bits, and coordinates 31.
        assert_eq!(fours(placed(1 << 36, 0), [6, 13, 1], true), None);
        assert_eq!(fours(placed(13, (1 << 20) * 13 + 13), [6, 13, 1 << 12], true), None);
    }
}
