//! Pixels by TMA (im2col): those that convolutions multiply, with all elements, paddings, strides and dilations, at the borders of images and
//! behind the last one.

use cuda_driver::{ImageTensor, L2Promotion, TensorDimension, TensorElement, TensorSwizzle, TiledTensor};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::machine::{Error, Machine};
use super::outcome::{Outcome, hex};
use super::words::{Content, loaded_as_tf32};

/// A comparison of loads: images, and the convolution whose operand is loaded. Numbers of two are those of columns and of rows.
#[derive(Clone, Copy, Debug)]
pub struct Pixels {
    /// What it is called.
    pub name: &'static str,
    element: TensorElement,
    /// Channels, columns, rows, images, one after the other.
    extents: [u64; 4],
    taps: [u32; 2],
    dilation: [u32; 2],
    padding: [u32; 2],
    stride: [u32; 2],
    /// The channels and the pixels that are loaded.
    tile: [u32; 2],
    swizzle: TensorSwizzle,
}

/// Where a load begins: a channel, a pixel of the result, and a tap.
type Case = (i32, u32, [u32; 2]);

/// All comparisons.
pub fn pixels() -> Vec<Pixels> {
    let plain = Pixels {
        name: "load_pixels_bf16_swizzled",
        element: TensorElement::Bf16,
        extents: [72, 9, 7, 3],
        taps: [3, 3],
        dilation: [1, 1],
        padding: [1, 1],
        stride: [1, 1],
        tile: [64, 100],
        swizzle: TensorSwizzle::Bytes128,
    };
    vec![
        plain,
        Pixels {
            name: "load_pixels_fp16_strided",
            element: TensorElement::Fp16,
            stride: [2, 3],
            padding: [0, 2],
            ..plain
        },
        Pixels {
            name: "load_pixels_fp32_dilated",
            element: TensorElement::Fp32,
            extents: [36, 11, 13, 2],
            taps: [2, 4],
            dilation: [3, 2],
            padding: [2, 3],
            tile: [32, 64],
            ..plain
        },
        Pixels {
            name: "load_pixels_tf32_straight",
            element: TensorElement::Tf32,
            extents: [20, 8, 5, 4],
            taps: [5, 1],
            padding: [4, 0],
            stride: [8, 1],
            tile: [12, 70],
            swizzle: TensorSwizzle::None,
            ..plain
        },
        Pixels { name: "load_pixels_bf16_of_one_tap", taps: [1, 1], padding: [0, 0], tile: [64, 256], ..plain },
        Pixels {
            name: "load_pixels_bf16_far",
            extents: [8, 300, 2, 2],
            taps: [2, 2],
            dilation: [255, 128],
            padding: [127, 127],
            stride: [7, 1],
            tile: [8, 333],
            swizzle: TensorSwizzle::None,
            ..plain
        },
    ]
}

impl Pixels {
    /// The words of what is loaded.
    pub fn tile_words(&self) -> usize {
        (self.tile[0] * self.tile[1]) as usize * self.element.bytes() as usize / 4
    }

    /// The words of the images.
    pub fn words(&self) -> usize {
        (self.extents.iter().product::<u64>() * self.element.bytes() / 4) as usize
    }

    /// Calls `make` with what the driver is told, of images at an address.
    pub fn with_tensor<T>(&self, address: u64, make: impl FnOnce(&ImageTensor<'_>) -> T) -> T {
        let mut byte_stride = self.element.bytes();
        let dimensions: [TensorDimension; 4] = std::array::from_fn(|i| {
            let dimension =
                TensorDimension { extent: self.extents[i], byte_stride, tile: if i == 0 { self.tile[0] } else { 1 } };
            byte_stride *= self.extents[i];
            dimension
        });
        let tensor = TiledTensor {
            element: self.element,
            address,
            dimensions: &dimensions,
            swizzle: self.swizzle,
            l2_promotion: L2Promotion::Bytes256,
        };
        let corner = |i: usize| self.padding[i] as i32;
        let upper = |i: usize| corner(i) - ((self.taps[i] - 1) * self.dilation[i]) as i32;
        let (lower, upper) = ([-corner(0), -corner(1)], [upper(0), upper(1)]);
        make(&ImageTensor { tensor, lower, upper, steps: self.stride, pixels: self.tile[1] })
    }

    /// The columns and rows of the result.
    fn out(&self) -> [u32; 2] {
        [0, 1].map(|i| {
            let extent = self.extents[i + 1] as u32 + 2 * self.padding[i] - (self.taps[i] - 1) * self.dilation[i];
            (extent - 1) / self.stride[i] + 1
        })
    }

    /// Some pixels of the result, the first and the last ones among them, each with all taps or some.
    fn cases(&self, rng: &mut StdRng) -> Vec<Case> {
        let [across, down] = self.out();
        let (all, of_channels) = (across * down * self.extents[3] as u32, self.tile[0] as i32);
        let piece = 16 / self.element.bytes() as i32;
        let mut cases = Vec::new();
        for i in 0..60 {
            let pixel = match i {
                0 => 0,
                1 => all - 1,
                2 => across * down - 1,
                _ => rng.random_range(0..all),
            };
            let channel = [0, of_channels, piece, -piece][i % 4];
            cases.push((channel, pixel, [0, 1].map(|i| rng.random_range(0..self.taps[i]))));
        }
        cases
    }

    /// The coordinates of the first base pixel, and how far the tap is from it.
    fn coordinates(&self, (channel, pixel, tap): Case) -> [u32; 6] {
        let [across, down] = self.out();
        let base = |at: u32, i: usize| (at * self.stride[i]).wrapping_sub(self.padding[i]);
        let (column, row) = (base(pixel % across, 0), base(pixel / across % down, 1));
        [channel as u32, column, row, pixel / across / down, tap[0] * self.dilation[0], tap[1] * self.dilation[1]]
    }

    /// Where channel `place` of pixel `number` of a load is among the images' elements, if it is there: what a convolution multiplies.
    fn source(&self, (channel, pixel, tap): Case, number: u32, place: u32) -> Option<u64> {
        let [across, down] = self.out();
        let pixel = pixel + number;
        let at = [pixel % across, pixel / across % down];
        let inside = |i: usize| {
            let place = (at[i] * self.stride[i] + tap[i] * self.dilation[i]).checked_sub(self.padding[i])?;
            (u64::from(place) < self.extents[i + 1]).then_some(u64::from(place))
        };
        let image = u64::from(pixel / across / down);
        let channel = u64::try_from(i64::from(channel) + i64::from(place)).ok()?;
        let [channels, columns, rows, images] = self.extents;
        let (column, row) = (inside(0)?, inside(1)?);
        (channel < channels && image < images).then_some(((image * rows + row) * columns + column) * channels + channel)
    }

    /// What is in shared memory when it is loaded.
    fn loaded(&self, images: &[u32], case: Case) -> Vec<u32> {
        let (mut words, bytes) = (vec![0u32; self.tile_words()], self.element.bytes());
        for number in 0..self.tile[1] {
            for place in 0..self.tile[0] {
                let Some(source) = self.source(case, number, place) else { continue };
                let straight = u64::from(number * self.tile[0] + place) * bytes;
                let at = match self.swizzle {
                    TensorSwizzle::None => straight,
                    TensorSwizzle::Bytes128 => straight ^ (straight >> 7 & 7) << 4,
                };
                let word = images[(source * bytes / 4) as usize];
                let (word, shift) = match bytes {
                    2 => (word >> (16 * (source % 2)) & 0xFFFF, 8 * (at % 4)),
                    _ if self.element == TensorElement::Tf32 => (loaded_as_tf32(word), 0),
                    _ => (word, 0),
                };
                words[(at / 4) as usize] |= word << shift;
            }
        }
        words
    }

    /// Compares what both sides do; without another machine, the executor with what a convolution multiplies.
    ///
    /// # Errors
    /// What a launch reports.
    pub fn compare(&self, executor: &Machine, other: Option<&Machine>, seed: u64) -> Result<Outcome, Error> {
        let mut rng = StdRng::seed_from_u64(seed);
        let images: Vec<u32> = (0..self.words()).map(|_| rng.random()).collect();
        let cases = self.cases(&mut rng);
        let at: Vec<u32> = cases.iter().flat_map(|&case| self.coordinates(case)).collect();
        let here = executor.load_pixels(self, &images, &at)?;
        let there = match other {
            Some(other) => other.load_pixels(self, &images, &at)?,
            None => cases.iter().flat_map(|&case| self.loaded(&images, case)).collect(),
        };
        let mut outcome = Outcome::new(self.name);
        outcome.cases = cases.len();
        let words = self.tile_words();
        let content = if self.element == TensorElement::Tf32 { Content::Numbers } else { Content::Bits };
        for (i, (executor, other)) in here.into_iter().zip(there).enumerate() {
            outcome.enter(content, executor, other, || {
                let case = i / words;
                let expected = self.loaded(&images, cases[case])[i % words];
                (format!("channel, pixel and tap {:?}, word {}", cases[case], i % words), hex(&[expected]))
            });
        }
        Ok(outcome)
    }
}
