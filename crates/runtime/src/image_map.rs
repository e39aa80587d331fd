//! Makes image maps, from which TMA loads what a convolution multiplies, of images in a device's memory.
//!
//! ```text
//!  images × rows × columns × channels, side by side (NHWC)          filters × taps down × taps across × channels
//!
//!         ◀ padding ▶┌────────────┐                                 base pixel of a pixel of the result: where the filter's
//!         base pixel ·   ┌───┐    │                                 first tap is; TMA loads the pixels under one tap for many
//!                    │   │ · │ tap│                                 pixels of the result at a time
//! ```

use cuda_driver::{ImageTensor, L2Promotion, TensorDimension, TensorElement, TensorSwizzle, TiledTensor};
use cuda_std::{Element, GlobalSlice, ImageLayout, ImageMap};

use crate::device::Backend;
use crate::tensor_map::{tile_element, tile_swizzle};
use crate::{Device, Error};

/// Images that lie one after the other without gaps, and the filter that they are convolved with. Numbers of two are those of columns and of
/// rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolvedImages {
    /// The channels of a pixel: a multiple of 16 bytes.
    pub channels: u64,
    /// The columns and rows of an image.
    pub extents: [u64; 2],
    /// The images.
    pub images: u64,
    /// The taps of the filter, one at least.
    pub taps: [u32; 2],
    /// From one tap to the next.
    pub dilation: [u32; 2],
    /// The zeros on each side of an image.
    pub padding: [u32; 2],
    /// From one pixel of the result to the next, 1 to 8.
    pub stride: [u32; 2],
}

/// The pixels that a kernel loads at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelTile {
    /// What the elements are.
    pub element: TensorElement,
    /// The channels of each. They have 128 bytes if they are swizzled.
    pub channels: u32,
    /// The pixels, at most 1024.
    pub pixels: u32,
    /// How they lie in shared memory.
    pub swizzle: TensorSwizzle,
}

impl ConvolvedImages {
    /// Channels, columns, rows, images. A product that does not fit is too large for TMA as well.
    fn dimensions(&self, tile: &PixelTile) -> [TensorDimension; 4] {
        let extents = [self.channels, self.extents[0], self.extents[1], self.images];
        let mut stride = tile.element.bytes();
        std::array::from_fn(|i| {
            let byte_stride = stride;
            stride = stride.saturating_mul(extents[i]);
            TensorDimension { extent: extents[i], byte_stride, tile: if i == 0 { tile.channels } else { 1 } }
        })
    }

    /// Where base pixels begin and end. What does not fit is refused as a corner.
    fn corners(&self) -> [[i32; 2]; 2] {
        let number = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
        let padding = |i: usize| i64::from(self.padding[i]);
        let reach = |i: usize| (i64::from(self.taps[i]) - 1) * i64::from(self.dilation[i]);
        [[0, 1].map(|i| number(-padding(i))), [0, 1].map(|i| number(padding(i) - reach(i)))]
    }

    /// Whether TMA can load them: corners of at most 128, filters that reach at most 255 pixels far, strides of at most 8, whole pieces of
    /// channels, and a pixel of the result at least.
    pub fn are_possible(&self, tile: &PixelTile) -> bool {
        let reaches = (0..2).all(|i| u64::from(self.taps[i].max(1) - 1) * u64::from(self.dilation[i]) < 256);
        let dimensions = self.dimensions(tile);
        let pieces = dimensions[1].byte_stride.is_multiple_of(16);
        reaches && pieces && self.tensor(0, &dimensions, tile).check().is_ok()
    }

    /// What describes them at an address.
    fn tensor<'a>(&self, address: u64, dimensions: &'a [TensorDimension; 4], tile: &PixelTile) -> ImageTensor<'a> {
        let &PixelTile { element, pixels, swizzle, .. } = tile;
        let [lower, upper] = self.corners();
        let tensor = TiledTensor { element, address, dimensions, swizzle, l2_promotion: L2Promotion::Bytes256 };
        ImageTensor { tensor, lower, upper, steps: self.stride, pixels }
    }
}

impl Device {
    /// An image map of images in an array, for a kernel that loads pixels of them. It lives as long as the view, and counts as one in a
    /// launch.
    ///
    /// # Errors
    /// [`Error::TensorOutOfBounds`] if the images are not inside the view; [`Error::Driver`] for what TMA cannot load
    /// ([`TensorMapFault`](cuda_driver::TensorMapFault) lists it), and on GPUs and drivers without tensor maps.
    pub fn image_map<'a, T: Element>(
        &self,
        view: GlobalSlice<'a, T>,
        images: &ConvolvedImages,
        tile: &PixelTile,
    ) -> Result<ImageMap<'a>, Error> {
        let bytes = view.len() * size_of::<T>();
        let (dimensions, len) = (images.dimensions(tile), bytes as u64 / tile.element.bytes());
        let matrix_stride = dimensions[3].byte_stride / tile.element.bytes();
        if matrix_stride.checked_mul(images.images).is_none_or(|all| all > len) {
            return Err(Error::TensorOutOfBounds { matrices: images.images, matrix_stride, span: matrix_stride, len });
        }
        let tensor = images.tensor(view.as_ptr().addr() as u64, &dimensions, tile);
        let words = match &self.inner.backend {
            Backend::Cuda(cuda) => self.gpu(cuda).encode_image_map(&tensor)?.words,
            // What TMA cannot load, that of the executor shall not load either.
            Backend::Cpu(_) => tensor.check().map(|()| [0; 16]).map_err(|fault| tensor.tensor.rejected(fault))?,
        };
        let layout = ImageLayout {
            element: tile_element(tile.element),
            extents: dimensions.map(|dimension| dimension.extent),
            byte_strides: dimensions.map(|dimension| dimension.byte_stride),
            lower: tensor.lower,
            upper: tensor.upper,
            steps: tensor.steps,
            channels: tile.channels,
            pixels: tile.pixels,
            swizzle: tile_swizzle(tile.swizzle),
        };
        // SAFETY: the words say just this. Every element that they describe is inside the view, as checked above; what is
        // outside of the extents is not loaded. The view's memory is valid and not written to for its lifetime.
        Ok(unsafe { ImageMap::from_raw_parts(words, view.as_ptr().cast(), bytes, layout) })
    }
}

#[cfg(test)]
mod tests {
    use cuda_std::executor::Checks;
    use cuda_std::{TileElement, TileSwizzle};

    use super::*;

    /// 3 images of 20 rows of 30 pixels of 16 channels, and a filter of 3 × 5.
    const IMAGES: ConvolvedImages = ConvolvedImages {
        channels: 16,
        extents: [30, 20],
        images: 3,
        taps: [5, 3],
        dilation: [1, 2],
        padding: [2, 0],
        stride: [1, 2],
    };
    const TILE: PixelTile =
        PixelTile { element: TensorElement::Fp32, channels: 32, pixels: 64, swizzle: TensorSwizzle::Bytes128 };

    #[test]
    fn the_layout_is_that_of_the_convolution() {
        let device = Device::cpu(Checks::Bounds);
        let buffer = device.upload(&[0.0f32; 3 * 20 * 30 * 16]).unwrap();
        let map = device.image_map(buffer.view(), &IMAGES, &TILE).unwrap();
        assert_eq!(
            *map.layout(),
            ImageLayout {
                element: TileElement::Bytes4,
                extents: [16, 30, 20, 3],
                byte_strides: [4, 64, 1920, 38_400],
                lower: [-2, 0],
                upper: [-2, -4],
                steps: [1, 2],
                channels: 32,
                pixels: 64,
                swizzle: TileSwizzle::Bytes128,
            }
        );
    }

    #[test]
    fn what_tma_cannot_load_is_refused() {
        let device = Device::cpu(Checks::Bounds);
        let buffer = device.upload(&[0.0f32; 3 * 20 * 30 * 16]).unwrap();
        let error = |images: ConvolvedImages| {
            assert!(images.images == 4 || !images.are_possible(&TILE), "{images:?}");
            device.image_map(buffer.view(), &images, &TILE).unwrap_err().to_string()
        };
        assert!(IMAGES.are_possible(&TILE));
        assert!(error(ConvolvedImages { images: 4, ..IMAGES }).contains("reaches beyond its array"));
        assert!(error(ConvolvedImages { channels: 2, ..IMAGES }).contains("8 bytes apart"));
        assert!(error(ConvolvedImages { padding: [2, 129], ..IMAGES }).contains("begin at -129"));
        assert!(error(ConvolvedImages { padding: [u32::MAX, 0], ..IMAGES }).contains("begin at 2147483647"));
        assert!(error(ConvolvedImages { dilation: [1, 11], ..IMAGES }).contains("a pixel between them"));
        assert!(error(ConvolvedImages { stride: [1, 9], ..IMAGES }).contains("9 apart"));
        let far = ConvolvedImages { extents: [30, 20], taps: [2, 3], dilation: [256, 1], padding: [127, 0], ..IMAGES };
        assert!(!far.are_possible(&TILE));
    }
}
