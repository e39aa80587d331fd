//! Makes image maps, from which TMA loads what a convolution multiplies, of images in a device's memory.
//!
//! ```text
//!  images × rows × columns × channels, side by side (NHWC)          filters × taps down × taps across × channels
//!
//!         ◀ padding ▶┌────────────┐                                 base pixel of a pixel of the result: where the filter's
//!         base pixel ·   ┌───┐    │                                 first tap is; TMA loads the pixels under one tap for many
//!                    │   │ · │ tap│                                 pixels of the result at a time
//! ```

use cuda_driver::{
    ImageTensor, L2Promotion, TensorDimension, TensorElement, TensorMapFault, TensorSwizzle, TiledTensor,
};
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

    /// How far the last tap is from the first one, unless there is none, or TMA does not reach it.
    fn reach(&self) -> Result<[u32; 2], TensorMapFault> {
        let of = |i: usize| {
            let (taps, dilation) = (self.taps[i], self.dilation[i]);
            let reach = taps.checked_sub(1).and_then(|steps| steps.checked_mul(dilation));
            let reach = reach.filter(|reach| *reach <= ImageLayout::REACH);
            reach.ok_or(TensorMapFault::Reach { dimension: i + 1, taps, dilation })
        };
        Ok([of(0)?, of(1)?])
    }

    /// What describes their memory at an address.
    fn memory<'a>(address: u64, dimensions: &'a [TensorDimension; 4], tile: &PixelTile) -> TiledTensor<'a> {
        let &PixelTile { element, swizzle, .. } = tile;
        TiledTensor { element, address, dimensions, swizzle, l2_promotion: L2Promotion::Bytes256 }
    }

    /// What is loaded of them. A corner that does not fit is one that is refused.
    fn tensor<'a>(&self, tensor: TiledTensor<'a>, tile: &PixelTile) -> Result<ImageTensor<'a>, TensorMapFault> {
        let (padding, reach) = (self.padding.map(i64::from), self.reach()?.map(i64::from));
        let corner = |corner: i64| i32::try_from(corner).unwrap_or(if corner < 0 { i32::MIN } else { i32::MAX });
        let (lower, upper) = (padding.map(|padding| corner(-padding)), [0, 1].map(|i| corner(padding[i] - reach[i])));
        let image = ImageTensor { tensor, lower, upper, steps: self.stride, pixels: tile.pixels };
        image.check().map(|()| image)
    }

    /// What a kernel's image map says of them, or why TMA cannot load them: most often corners beyond 128, filters that reach further than 255
    /// pixels, strides above 8, or channels that are not a multiple of 16 bytes.
    ///
    /// # Errors
    /// The first thing that TMA cannot do.
    pub fn layout(&self, tile: &PixelTile) -> Result<ImageLayout, TensorMapFault> {
        Ok(layout(&self.tensor(Self::memory(0, &self.dimensions(tile), tile), tile)?))
    }
}

/// What a kernel's image map says.
fn layout(image: &ImageTensor<'_>) -> ImageLayout {
    let &ImageTensor { tensor, lower, upper, steps, pixels } = image;
    let each =
        |number: fn(&TensorDimension) -> u64| std::array::from_fn(|i| tensor.dimensions.get(i).map_or(0, number));
    ImageLayout {
        element: tile_element(tensor.element),
        extents: each(|dimension| dimension.extent),
        byte_strides: each(|dimension| dimension.byte_stride),
        lower,
        upper,
        steps,
        channels: tensor.dimensions.first().map_or(0, |dimension| dimension.tile),
        pixels,
        swizzle: tile_swizzle(tensor.swizzle),
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
        let memory = ConvolvedImages::memory(view.as_ptr().addr() as u64, &dimensions, tile);
        let tensor = images.tensor(memory, tile).map_err(|fault| memory.rejected(fault))?;
        let words = match &self.inner.backend {
            Backend::Cuda(cuda) => self.gpu(cuda).encode_image_map(&tensor)?.words,
            // What TMA cannot load, that of the executor does not load either: it was checked.
            Backend::Cpu(_) => [0; 16],
        };
        let layout = layout(&tensor);
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
            assert!(images.images == 4 || images.layout(&TILE).is_err(), "{images:?}");
            device.image_map(buffer.view(), &images, &TILE).unwrap_err().to_string()
        };
        assert!(IMAGES.layout(&TILE).is_ok());
        assert!(error(ConvolvedImages { images: 4, ..IMAGES }).contains("reaches beyond its array"));
        assert!(error(ConvolvedImages { channels: 2, ..IMAGES }).contains("8 bytes apart"));
        assert!(error(ConvolvedImages { padding: [2, 129], ..IMAGES }).contains("begin at -129"));
        assert!(error(ConvolvedImages { padding: [u32::MAX, 0], ..IMAGES }).contains("begin at -2147483648"));
        assert!(error(ConvolvedImages { dilation: [1, 11], ..IMAGES }).contains("a pixel between them"));
        assert!(error(ConvolvedImages { stride: [1, 9], ..IMAGES }).contains("9 apart"));
        // Corners of 128 on both sides, which TMA has, and a filter that it does not reach.
        let far = ConvolvedImages { taps: [2, 3], dilation: [256, 1], padding: [128, 0], ..IMAGES };
        assert!(error(far).contains("2 taps, 256 apart, in dimension 1"));
        assert!(error(ConvolvedImages { taps: [0, 3], ..IMAGES }).contains("0 taps"));
        assert!(error(ConvolvedImages { taps: [u32::MAX; 2], dilation: [u32::MAX; 2], ..IMAGES }).contains("taps"));
    }
}
