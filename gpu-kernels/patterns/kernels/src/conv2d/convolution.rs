//! The parameter of the convolution kernels: extents of images and filters, stride, padding, dilation and groups; and what follows from
//! them: the terms of a sum, pixels of the result, blocks of a launch.

#[cfg(not(target_arch = "nvptx64"))]
use blocks::mma_tile::LINES;
use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use runtime::ConvolvedImages;

/// What is convolved with what. Sizes are in elements; two numbers are those of the height and of the width.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelParam)]
pub struct Convolution {
    /// The images.
    pub batch: u32,
    /// The rows of an image.
    pub height: u32,
    /// The pixels of a row.
    pub width: u32,
    /// The channels of a group: what a filter sees of a pixel.
    pub channels: u32,
    /// The filters of a group.
    pub filters: u32,
    /// The rows of a filter.
    pub taps_down: u32,
    /// The taps of a row of a filter.
    pub taps_across: u32,
    /// From one pixel of the result to the next, in pixels of the image.
    pub stride_down: u32,
    /// Likewise in a row.
    pub stride_across: u32,
    /// The rows of zeros above and below an image.
    pub padding_down: u32,
    /// Likewise left and right.
    pub padding_across: u32,
    /// From one tap to the next, in pixels of the image.
    pub dilation_down: u32,
    /// Likewise in a row.
    pub dilation_across: u32,
    /// The groups. A pixel has the channels of all groups, and a pixel of the result has a number for each filter of all groups.
    pub groups: u32,
}

impl Convolution {
    /// The channels of a pixel.
    #[inline(always)]
    pub(super) fn all_channels(&self) -> u32 {
        self.channels * self.groups
    }

    /// The channels of a pixel of the result.
    #[inline(always)]
    pub(super) fn all_filters(&self) -> u32 {
        self.filters * self.groups
    }

    /// The terms of a sum.
    #[inline(always)]
    pub(super) fn terms(&self) -> u32 {
        self.taps_down * self.taps_across * self.channels
    }

    /// The rows and the pixels of a row of a result: nothing where a filter is larger than an image with its padding.
    #[inline(always)]
    pub(super) fn out(&self) -> [u32; 2] {
        let out = |extent: u32, taps: u32, stride: u32, padding: u32, dilation: u32| {
            let (extent, reach) = (extent + 2 * padding, dilation * (taps - 1) + 1);
            if extent < reach { 0 } else { (extent - reach) / stride.max(1) + 1 }
        };
        [
            out(self.height, self.taps_down, self.stride_down, self.padding_down, self.dilation_down),
            out(self.width, self.taps_across, self.stride_across, self.padding_across, self.dilation_across),
        ]
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Convolution {
    /// One image of a row of pixels, and filters of single taps, with so many channels and filters in each group: to be changed where another one is
    /// wanted.
    #[must_use]
    pub fn of_row(width: u32, [channels, filters]: [u32; 2], groups: u32) -> Self {
        Self {
            batch: 1,
            height: 1,
            width,
            channels,
            filters,
            taps_down: 1,
            taps_across: 1,
            stride_down: 1,
            stride_across: 1,
            padding_down: 0,
            padding_across: 0,
            dilation_down: 1,
            dilation_across: 1,
            groups,
        }
    }

    /// The product of these extents, if it is below 2³¹.
    fn product(extents: &[u32]) -> Option<u32> {
        let product = extents.iter().try_fold(1u32, |product, &extent| product.checked_mul(extent));
        product.filter(|&product| product <= i32::MAX as u32)
    }

    /// The images, as TMA sees them.
    pub(super) fn images(&self) -> ConvolvedImages {
        ConvolvedImages {
            channels: self.all_channels().into(),
            extents: [self.width.into(), self.height.into()],
            images: self.batch.into(),
            taps: [self.taps_across, self.taps_down],
            dilation: [self.dilation_across, self.dilation_down],
            padding: [self.padding_across, self.padding_down],
            stride: [self.stride_across, self.stride_down],
        }
    }

    /// What the kernels can compute: taps, strides, dilations and groups of one at least; channels, filters, images
    /// with their padding, a filter with its dilation, the terms of a sum and the pixels of all images each below 2³¹, and blocks, too.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let below = |extent: u32, others: &[u32]| {
            let sum = others.iter().try_fold(extent, |sum, &other| sum.checked_add(other));
            sum.is_some_and(|sum| sum <= i32::MAX as u32)
        };
        let reach = |taps: u32, dilation: u32| Self::product(&[taps, dilation]).is_some();
        let positive = [
            self.taps_down,
            self.taps_across,
            self.stride_down,
            self.stride_across,
            self.dilation_down,
            self.dilation_across,
            self.groups,
        ];
        positive.iter().all(|&number| number > 0)
            && Self::product(&[self.channels, self.groups]).is_some()
            && Self::product(&[self.filters, self.groups]).is_some()
            && below(self.height, &[self.padding_down, self.padding_down])
            && below(self.width, &[self.padding_across, self.padding_across])
            && reach(self.taps_down, self.dilation_down)
            && reach(self.taps_across, self.dilation_across)
            && Self::product(&[self.taps_down, self.taps_across, self.channels.max(1)])
                .is_some_and(|terms| terms <= i32::MAX as u32 - 64)
            && self.blocks().is_some()
    }

    /// The pixels of all images of the result.
    pub(super) fn pixels(&self) -> Option<u32> {
        let [down, across] = self.out();
        Self::product(&[self.batch, down, across]).filter(|&pixels| pixels <= i32::MAX as u32 - LINES)
    }

    /// The blocks, one at least.
    pub(super) fn blocks(&self) -> Option<u32> {
        let tiles = self.filters.div_ceil(LINES);
        Self::product(&[self.pixels()?.div_ceil(LINES), tiles, self.groups]).map(|blocks| blocks.max(1))
    }

    /// The elements of x, of the filters and of y.
    fn lens(&self) -> Option<[usize; 3]> {
        let len =
            |extents: &[u32]| extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent as usize));
        let [down, across] = self.out();
        Some([
            len(&[self.batch, self.height, self.width, self.channels, self.groups])?,
            len(&[self.filters, self.groups, self.taps_down, self.taps_across, self.channels])?,
            len(&[self.batch, down, across, self.filters, self.groups])?,
        ])
    }

    /// Whether it is possible, and arrays of so many elements are those of x, of the filters, and of y.
    pub(super) fn fits(&self, lens: [usize; 3]) -> bool {
        self.is_possible() && self.lens() == Some(lens)
    }

    /// The same of an array of y: maps say what x and the filters are.
    pub(super) fn fits_result(&self, y: usize) -> bool {
        self.lens().is_some_and(|[x, w, _]| self.fits([x, w, y]))
    }

    /// Whether channels of a group are multiples of so many elements, and there are fewer than 2³² times as many of x and of the filters.
    #[must_use]
    pub(super) fn has_units(&self, elements: u32) -> bool {
        let is_below = |len: usize| len / (elements as usize) < u32::MAX as usize;
        self.channels.is_multiple_of(elements) && self.lens().is_some_and(|[x, w, _]| is_below(x) && is_below(w))
    }
}
