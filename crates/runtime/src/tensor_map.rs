//! Makes tensor maps, from which TMA loads and to which it stores tiles, of matrices in a device's memory.
//!
//! ```text
//!        ◀ length ▶
//!       ┌──────────┬ ─ ─ ┐ ▲            dimension 0: along a line, whose elements lie side by side
//!       │ line     │ gap   lines        dimension 1: from line to line
//!       └──────────┴ ─ ─ ┘ ▼            dimension 2: from matrix to matrix
//!        ◀ line stride  ▶
//! ```
//!
//! A kernel loads tiles of one matrix each. What such a tile has outside of the matrix is zero.

use cuda_driver::{L2Promotion, TensorDimension, TensorElement, TensorSwizzle, TiledTensor};
use cuda_std::{Element, GlobalSlice, TensorMap, TileElement, TileLayout, TileSwizzle};

use crate::device::Backend;
use crate::{Device, Error};

/// The tiles that a kernel loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorTile {
    /// What the elements are.
    pub element: TensorElement,
    /// The elements along a line. They have 128 bytes if they are swizzled.
    pub length: u32,
    /// The lines, at most 256.
    pub lines: u32,
    /// How they lie in shared memory.
    pub swizzle: TensorSwizzle,
}

/// Where the matrices lie in an array. Lengths and strides are in elements of the tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// The elements of a line.
    pub length: u64,
    /// The lines of a matrix.
    pub lines: u64,
    /// From one line to the next.
    pub line_stride: u64,
    /// The matrices.
    pub matrices: u64,
    /// From one matrix to the next.
    pub matrix_stride: u64,
}

impl TensorLayout {
    /// Three dimensions also for a single matrix, because a kernel is written for one number of them.
    pub fn dimensions(&self, tile: &TensorTile) -> [TensorDimension; 3] {
        let bytes = tile.element.bytes();
        // A stride that leads to nothing may be any, but the driver looks at it.
        let stride = |stride: u64, count: u64| match count {
            1 => self.length.saturating_mul(bytes).checked_next_multiple_of(16).unwrap_or(u64::MAX).min((1 << 40) - 16),
            _ => stride.saturating_mul(bytes),
        };
        [
            TensorDimension { extent: self.length, byte_stride: bytes, tile: tile.length },
            TensorDimension { extent: self.lines, byte_stride: stride(self.line_stride, self.lines), tile: tile.lines },
            TensorDimension { extent: self.matrices, byte_stride: stride(self.matrix_stride, self.matrices), tile: 1 },
        ]
    }

    /// Checks that every element lies within `len`.
    fn check(&self, len: u64) -> Result<(), Error> {
        let last = |count: u64, stride: u64| u128::from(count.saturating_sub(1)) * u128::from(stride);
        let span = last(self.lines, self.line_stride).saturating_add(u128::from(self.length));
        let end = last(self.matrices, self.matrix_stride).saturating_add(span);
        if end <= u128::from(len) {
            return Ok(());
        }
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        Err(Error::TensorOutOfBounds { matrices: self.matrices, matrix_stride: self.matrix_stride, span, len })
    }
}

/// The elements, as a kernel's layout has them.
pub(crate) fn tile_element(element: TensorElement) -> TileElement {
    match element {
        TensorElement::Fp16 | TensorElement::Bf16 => TileElement::Bytes2,
        TensorElement::Fp32 => TileElement::Bytes4,
        TensorElement::Tf32 => TileElement::Tf32,
    }
}

/// How tiles lie, likewise.
pub(crate) fn tile_swizzle(swizzle: TensorSwizzle) -> TileSwizzle {
    match swizzle {
        TensorSwizzle::None => TileSwizzle::None,
        TensorSwizzle::Bytes128 => TileSwizzle::Bytes128,
    }
}

impl Device {
    /// A tensor map of matrices in an array, for a kernel that loads tiles of them. It lives as long as the view, and counts
    /// as one in a launch.
    ///
    /// The array's elements may be other numbers than the tiles': a packed operand of bf16 is an array of `u32`.
    ///
    /// # Errors
    /// [`Error::TensorOutOfBounds`] if a matrix is not inside the view; [`Error::Driver`] for what TMA cannot load
    /// ([`TensorMapFault`](cuda_driver::TensorMapFault) lists it: most often, lines that do not begin at multiples of 16 bytes), and on GPUs and drivers
    /// without tensor maps.
    pub fn tensor_map<'a, T: Element>(
        &self,
        view: GlobalSlice<'a, T>,
        layout: &TensorLayout,
        tile: &TensorTile,
    ) -> Result<TensorMap<'a>, Error> {
        self.tensor_map_with(view, layout, tile, 0)
    }

    /// The same of matrices whose lines begin anywhere, but multiples of 16 bytes apart: the array begins at the last multiple of 16 bytes, so many
    /// [elements before](TensorMap::elements_before) the view, and all coordinates of elements are as many further on. What a tile has before a line
    /// is not to be made use of.
    ///
    /// # Errors
    /// As for [`Device::tensor_map`].
    pub fn tensor_map_from_before<'a, T: Element>(
        &self,
        view: GlobalSlice<'a, T>,
        layout: &TensorLayout,
        tile: &TensorTile,
    ) -> Result<TensorMap<'a>, Error> {
        let before = view.as_ptr().addr() as u64 % 16 / tile.element.bytes();
        self.tensor_map_with(view, layout, tile, before)
    }

    /// A tensor map that begins so many elements before the view, at most 15 bytes.
    fn tensor_map_with<'a, T: Element>(
        &self,
        view: GlobalSlice<'a, T>,
        layout: &TensorLayout,
        tile: &TensorTile,
        before: u64,
    ) -> Result<TensorMap<'a>, Error> {
        let bytes = view.len() * size_of::<T>();
        layout.check(bytes as u64 / tile.element.bytes())?;
        let layout = TensorLayout { length: layout.length + before, ..*layout };
        let dimensions = layout.dimensions(tile);
        let tensor = TiledTensor {
            element: tile.element,
            address: view.as_ptr().addr() as u64 - before * tile.element.bytes(),
            dimensions: &dimensions,
            swizzle: tile.swizzle,
            l2_promotion: L2Promotion::Bytes256,
        };
        let words = match &self.inner.backend {
            Backend::Cuda(cuda) => self.gpu(cuda).encode_tensor_map(&tensor)?.words,
            // What TMA cannot load, that of the executor shall not load either.
            Backend::Cpu(_) => tensor.check().map(|()| [0; 16]).map_err(|fault| tensor.rejected(fault))?,
        };
        let layout = TileLayout {
            element: tile_element(tile.element),
            extents: dimensions.map(|dimension| dimension.extent),
            byte_strides: dimensions.map(|dimension| dimension.byte_stride),
            tile: dimensions.map(|dimension| dimension.tile),
            swizzle: tile_swizzle(tile.swizzle),
        };
        // SAFETY: the words say just this. Every element that they describe is inside the view, as checked above, but those before; what is
        // outside of the extents is not loaded. The view's memory is valid and not written to for its lifetime. Allocations begin at multiples of 256 bytes, so
        // that a GPU can read what is before the view in the same 16 bytes.
        Ok(unsafe {
            TensorMap::from_raw_parts(words, view.as_ptr().cast(), bytes, layout).with_elements_before(before as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;

    use super::*;

    const LAYOUT: TensorLayout = TensorLayout { length: 10, lines: 3, line_stride: 12, matrices: 2, matrix_stride: 40 };
    const TILE: TensorTile =
        TensorTile { element: TensorElement::Tf32, length: 32, lines: 128, swizzle: TensorSwizzle::Bytes128 };

    #[test]
    fn every_element_has_to_be_inside_the_array() {
        assert!(LAYOUT.check(40 + 24 + 10).is_ok());
        assert!(LAYOUT.check(40 + 24 + 9).is_err());
        let huge = TensorLayout { lines: u64::MAX, line_stride: u64::MAX, matrices: u64::MAX, ..LAYOUT };
        assert!(matches!(huge.check(u64::MAX), Err(Error::TensorOutOfBounds { span: u64::MAX, .. })));
        let extents = huge.dimensions(&TILE).map(|dimension| dimension.byte_stride);
        assert_eq!(extents, [4, u64::MAX, 160], "what does not fit is refused later, and does not wrap around");
    }

    #[test]
    fn a_single_line_or_matrix_needs_no_stride() {
        let single = TensorLayout { lines: 1, line_stride: 7, matrices: 1, matrix_stride: 3, ..LAYOUT };
        assert_eq!(single.dimensions(&TILE).map(|dimension| dimension.byte_stride), [4, 48, 48]);
        let strides = LAYOUT.dimensions(&TILE).map(|dimension| dimension.byte_stride);
        assert_eq!(strides, [4, 48, 160]);
    }

    #[test]
    fn the_cpu_takes_what_a_gpu_would_take() {
        let device = Device::cpu(Checks::Bounds);
        let buffer = device.upload(&[0.0f32; 100]).unwrap();
        let map = device.tensor_map(buffer.view(), &LAYOUT, &TILE).unwrap();
        let TileLayout { element, extents, byte_strides, tile, swizzle } = *map.layout();
        assert_eq!((element, swizzle), (TileElement::Tf32, TileSwizzle::Bytes128));
        assert_eq!((extents, byte_strides, tile), ([10, 3, 2], [4, 48, 160], [32, 128, 1]));
        let odd = TensorLayout { line_stride: 13, ..LAYOUT };
        let error = device.tensor_map(buffer.view(), &odd, &TILE).unwrap_err();
        assert!(error.to_string().contains("52 bytes apart"), "{error}");
        // One that begins in the middle of 16 bytes does not fit, but from the beginning of them on.
        // SAFETY: the view has 100 elements.
        let third = unsafe { buffer.view().from_unchecked(3) };
        assert!(device.tensor_map(third, &LAYOUT, &TILE).is_err());
        let map = device.tensor_map_from_before(third, &LAYOUT, &TILE).unwrap();
        assert_eq!((map.elements_before(), map.layout().extents), (3, [13, 3, 2]));
        let map = device.tensor_map_from_before(buffer.view(), &LAYOUT, &TILE).unwrap();
        assert_eq!((map.elements_before(), map.layout().extents), (0, [10, 3, 2]));
        let beyond = TensorLayout { matrix_stride: 72, ..LAYOUT };
        assert!(matches!(device.tensor_map(buffer.view(), &beyond, &TILE), Err(Error::TensorOutOfBounds { .. })));
    }
}
