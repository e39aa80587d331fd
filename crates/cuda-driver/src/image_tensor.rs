//! Images in a GPU's memory, from which TMA loads the pixels that a convolution needs (its im2col mode).
//!
//! ```text
//!             ◀──── columns ────▶
//!            ┌───────────────────┐                        base pixels: from the lower corner, in steps, to before the
//!   lower ─► ·   ·   ·   ·       │  ▲                     upper one, which is counted from the far corner of the image;
//!            │                   │  rows                  row by row, image by image
//!            ·   ·   ·   ·  ◄──── upper                   pixels: so many, from a base pixel on, each as far from its base
//!            └───────────────────┘  ▼                     as the tap is
//! ```

use crate::tensor_map::{TensorMapFault, TiledTensor};

/// Images of pixels of channels, and what is loaded of them. Numbers of two are those of columns and of rows.
#[derive(Clone, Copy, Debug)]
pub struct ImageTensor<'a> {
    /// Four dimensions: channels, columns, rows, images. The tile of the first is the channels of a pixel that are loaded; those of the others
    /// are 1.
    pub tensor: TiledTensor<'a>,
    /// Where base pixels begin, from the first pixel of an image: -128 to 127.
    pub lower: [i32; 2],
    /// Where they end, from the end of an image: -128 to 127. There is one at least.
    pub upper: [i32; 2],
    /// From one to the next, 1 to 8.
    pub steps: [u32; 2],
    /// The pixels that are loaded: 1 to 1024.
    pub pixels: u32,
}

impl ImageTensor<'_> {
    /// Checks everything that is documented of such a map.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check(&self) -> Result<(), TensorMapFault> {
        let &Self { tensor, lower, upper, steps, pixels } = self;
        if tensor.dimensions.len() != 4 {
            return Err(TensorMapFault::ImageRank(tensor.dimensions.len()));
        }
        tensor.check()?;
        if let Some((dimension, of_pixel)) =
            (1..4).map(|at| (at, tensor.dimensions[at])).find(|(_, dimension)| dimension.tile != 1)
        {
            return Err(TensorMapFault::ImageTile { dimension, tile: of_pixel.tile });
        }
        for dimension in [1, 2] {
            let (lower, upper, step) = (lower[dimension - 1], upper[dimension - 1], steps[dimension - 1]);
            let extent = tensor.dimensions[dimension].extent;
            let is_corner = |corner: i32| (-128..128).contains(&corner);
            let has_pixels = i64::from(lower) < extent as i64 + i64::from(upper);
            if !is_corner(lower) || !is_corner(upper) || !has_pixels {
                return Err(TensorMapFault::Corners { dimension, lower, upper, extent });
            }
            if !(1..=8).contains(&step) {
                return Err(TensorMapFault::Step { dimension, step });
            }
        }
        if !(1..=1024).contains(&pixels) {
            return Err(TensorMapFault::Pixels(pixels));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor_map::{L2Promotion, TensorDimension, TensorElement, TensorSwizzle};

    /// 3 images of 20 rows of 30 pixels of 64 channels.
    const IMAGES: [TensorDimension; 4] = [
        TensorDimension { extent: 64, byte_stride: 2, tile: 64 },
        TensorDimension { extent: 30, byte_stride: 128, tile: 1 },
        TensorDimension { extent: 20, byte_stride: 30 * 128, tile: 1 },
        TensorDimension { extent: 3, byte_stride: 600 * 128, tile: 1 },
    ];

    fn check(change: impl FnOnce(&mut ImageTensor<'_>, &mut Vec<TensorDimension>)) -> Result<(), TensorMapFault> {
        let mut dimensions = IMAGES.to_vec();
        let tensor = TiledTensor {
            element: TensorElement::Bf16,
            address: 1 << 40,
            dimensions: &[],
            swizzle: TensorSwizzle::Bytes128,
            l2_promotion: L2Promotion::Bytes256,
        };
        let mut image = ImageTensor { tensor, lower: [-1; 2], upper: [-1; 2], steps: [1; 2], pixels: 128 };
        change(&mut image, &mut dimensions);
        ImageTensor { tensor: TiledTensor { dimensions: &dimensions, ..image.tensor }, ..image }.check()
    }

    #[test]
    fn takes_what_tma_takes() {
        assert_eq!(check(|_, _| {}), Ok(()));
        let most = |image: &mut ImageTensor<'_>, _: &mut Vec<TensorDimension>| {
            (image.lower, image.upper, image.steps, image.pixels) = ([-128, 127], [127, 127], [8, 1], 1024);
        };
        assert_eq!(
            check(|image, dimensions| {
                most(image, dimensions);
                dimensions[2].extent = 1;
            }),
            Ok(())
        );
        assert_eq!(check(|image, _| image.upper = [-30, -20]), Ok(()), "one base pixel in each image");
    }

    #[test]
    fn names_what_it_does_not_take() {
        use TensorMapFault::*;
        assert_eq!(check(|_, dimensions| dimensions.truncate(3)), Err(ImageRank(3)));
        assert_eq!(check(|_, dimensions| dimensions[2].tile = 2), Err(ImageTile { dimension: 2, tile: 2 }));
        assert_eq!(check(|image, _| image.tensor.address += 8), Err(Address((1 << 40) + 8)), "as of other tensor maps");
        for (lower, upper) in [(-129, 0), (128, 127), (0, 128), (0, -129), (-1, -31)] {
            let fault = Corners { dimension: 1, lower, upper, extent: 30 };
            assert_eq!(check(|image, _| (image.lower[0], image.upper[0]) = (lower, upper)), Err(fault));
        }
        for step in [0, 9] {
            assert_eq!(check(|image, _| image.steps[1] = step), Err(Step { dimension: 2, step }));
        }
        for pixels in [0, 1025] {
            assert_eq!(check(|image, _| image.pixels = pixels), Err(Pixels(pixels)));
        }
    }
}
