//! The test cases of the convolution kernels, the same convolution computed in f64, and the error bound of each element. It is compiled for the
//! host only.

use blocks::mma_scheme::ThreeTf32;
use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::KernelFacts;
use cuda_std::prelude::*;
use runtime::{TensorLayout, TensorTile};
use testkit::{
    Argument, Bits, Description, Device, Distribution, Element, Error, Expected, FP32_ROUNDING, Operation, Sizes,
    Units, Values, Views,
};

use super::hopper::{
    conv2d_128x64_wgmma_bf16, conv2d_128x128_wgmma_bf16, conv2d_128x192_wgmma_bf16, conv2d_192x256_wgmma_bf16,
    conv2d_256x2x32_wgmma_bf16, conv2d_256x4x16_wgmma_bf16, conv2d_256x128_wgmma_bf16, conv2d_256x160_wgmma_bf16,
    pixel_tile, steps, takes,
};
use super::pointwise::{self, conv2d_1x1_of_16_bf16, conv2d_1x1_of_32_bf16, conv2d_1x1_of_64_bf16};
use super::tiles::{CHANNELS, Tiles, joined, sharing, tiles};
use super::{Convolution, conv2d_any_bf16, conv2d_any_fp32_3xtf32, conv2d_bf16, conv2d_fp32_3xtf32};

/// A 2-D convolution, with the same stride, padding and dilation down and across. PyTorch's is `conv2d` of tensors that are
/// `channels_last`, with `torch.backends.cudnn.allow_tf32 = False` for [`Conv2d::FP32`].
pub struct Conv2d {
    name: &'static str,
    element: Element,
    numbers: Distribution,
    large: &'static [[usize; 11]],
    /// Whether Hopper takes its own kernels, and single taps with few channels take theirs.
    by_own_kernels: bool,
}

/// A kernel for Hopper, the most pixels and filters of its tiles, the warpgroups that share the filters, and the parts of a warpgroup's filters, which
/// may be of several groups.
#[derive(Clone, Copy)]
struct Hopper {
    facts: KernelFacts,
    most: [u32; 2],
    warpgroups: u32,
    parts: u32,
}

/// All of them.
const HOPPER: [Hopper; 8] = [
    Hopper { facts: conv2d_192x256_wgmma_bf16::FACTS, most: [192, 256], warpgroups: 2, parts: 1 },
    Hopper { facts: conv2d_256x160_wgmma_bf16::FACTS, most: [256, 160], warpgroups: 1, parts: 1 },
    Hopper { facts: conv2d_128x192_wgmma_bf16::FACTS, most: [128, 192], warpgroups: 1, parts: 1 },
    Hopper { facts: conv2d_256x128_wgmma_bf16::FACTS, most: [256, 128], warpgroups: 1, parts: 1 },
    Hopper { facts: conv2d_128x128_wgmma_bf16::FACTS, most: [128, 128], warpgroups: 1, parts: 1 },
    Hopper { facts: conv2d_128x64_wgmma_bf16::FACTS, most: [128, 64], warpgroups: 1, parts: 1 },
    Hopper { facts: conv2d_256x2x32_wgmma_bf16::FACTS, most: [256, 64], warpgroups: 1, parts: 2 },
    Hopper { facts: conv2d_256x4x16_wgmma_bf16::FACTS, most: [256, 64], warpgroups: 1, parts: 4 },
];

impl Hopper {
    /// Whether its tiles are for the filters of two or four groups. A group alone is for the others.
    fn is_for_groups(self) -> bool {
        matches!(self.parts, 2 | 4)
    }

    /// The clocks that all tiles of a convolution take, and how many pixels these have: as few as it takes for the same number of rounds. A step
    /// takes as long as its products or its loads, whichever take longer, and somewhat longer if both are alike; after each round results are
    /// stored while nothing is multiplied. (Rates and powers are fitted to times of 20 layers on an H200, each by six kernels: which one is
    /// fastest is told to 1 % in the mean, 5 % at most.)
    fn plan(self, conv: &Convolution, workers: u32) -> Option<(f64, u32)> {
        // Of a multiprocessor, for a row of a stage by TMA. The second-level cache is read by 32 bytes: where pixels are no multiple of that,
        // every other one is in a part more.
        let of_row = if conv.all_channels().is_multiple_of(16) { 2.5 } else { 5.5 };
        let groups = sharing(conv, self.parts);
        let conv = &joined(conv, groups);
        if conv.channels < LEAST_CHANNELS || (self.is_for_groups() && groups == 1) {
            return None;
        }
        let tiles_of = |pixels: u32| Tiles::new(conv, [pixels, self.most[1]], self.warpgroups);
        let most = tiles_of(self.most[0]);
        let (rounds, pixels) = (f64::from(most.rounds(workers)?), most.fewest_rows(workers)?);
        let tiles = tiles_of(pixels);
        let products = rounds * f64::from(self.most[0] * self.most[1]) / 32.0;
        let loads = of_row * f64::from(tiles.count()?) * f64::from(pixels + tiles.of_tile) / f64::from(workers);
        let of_step = (products.powi(3) + loads.powi(3)).cbrt();
        let of_stores = 1000.0 + 0.2 * f64::from(pixels * tiles.of_tile);
        Some((f64::from(steps(conv)) * of_step + rounds * of_stores, pixels))
    }
}

/// The kernels for single taps with few channels, by their steps.
const POINTWISE: [(u32, KernelFacts); 3] =
    [(1, conv2d_1x1_of_16_bf16::FACTS), (2, conv2d_1x1_of_32_bf16::FACTS), (4, conv2d_1x1_of_64_bf16::FACTS)];

/// The steps of the kernel for single taps that should take a convolution, and its blocks for the same filters: those that run at a time.
/// Many results of many filters each are Hopper's, which brings operands by TMA (measured on an H200: 10 % faster with 64 channels and 256 filters).
fn of_single_taps(device: &Device, conv: &Convolution) -> Option<(u32, u32)> {
    const MANY: u64 = 1 << 24;
    let (steps, facts) = POINTWISE.into_iter().find(|(steps, _)| pointwise::takes(conv, *steps))?;
    let results = conv
        .out()
        .into_iter()
        .fold(u64::from(conv.batch) * u64::from(conv.filters), |results, extent| results * u64::from(extent));
    if conv.channels > 32 && conv.filters > 128 && results >= MANY && crate::hopper::runs(device, &HOPPER[0].facts) {
        return None;
    }
    let at_a_time = facts.min_blocks * crate::hopper::workers(device);
    Some((steps, at_a_time.min(pointwise::most_workers(conv))))
}

/// The channels of a stage from which on Hopper's kernels are faster than those for every GPU: others leave most of it empty.
const LEAST_CHANNELS: u32 = 32;

/// The kernel for Hopper that should be fastest for a convolution, if the device runs it and it should be faster than those for every GPU, its blocks, and
/// the pixels of its tiles.
fn chosen(device: &Device, conv: &Convolution) -> Option<(Hopper, u32, u32)> {
    if !takes(conv)
        || conv.pixels().is_none()
        || conv.images().layout(&pixel_tile(HOPPER[0].most[0])).is_err()
        || conv.filters == 0
        || !crate::hopper::runs(device, &HOPPER[0].facts)
    {
        return None;
    }
    let workers = crate::hopper::workers(device);
    let plans = HOPPER.into_iter().filter_map(|it| Some((it, it.plan(conv, workers)?)));
    plans.min_by(|(_, (one, _)), (_, (other, _))| one.total_cmp(other)).map(|(it, (_, pixels))| (it, workers, pixels))
}

/// A map of filters, in tiles of 64 channels of so many filters of a tap.
fn filters<'a>(
    device: &Device,
    w: GlobalSlice<'a, Bf16>,
    conv: &Convolution,
    lines: u32,
) -> Result<TensorMap<'a>, Error> {
    let [length, filters, terms] = [conv.channels, conv.all_filters(), conv.terms()].map(u64::from);
    let layout =
        TensorLayout { length, lines: filters, line_stride: terms, matrices: terms / length, matrix_stride: length };
    let tile = TensorTile { element: TensorElement::Bf16, length: CHANNELS, lines, swizzle: TensorSwizzle::Bytes128 };
    Ok(device.tensor_map(w, &layout, &tile)?)
}

impl Conv2d {
    /// Of fp32 numbers, with the accuracy of fp32 sums.
    pub const FP32: Self = Self {
        name: "conv2d",
        element: Element::F32,
        numbers: Distribution::Normal,
        large: Self::LAYERS,
        by_own_kernels: false,
    };
    /// Of fp32 numbers of all magnitudes, so that tiny ones stand beside large ones.
    pub const WIDE: Self = Self {
        name: "conv2d-wide",
        element: Element::F32,
        numbers: Distribution::LogUniform(1e-30, 1e16),
        large: &[[2, 28, 28, 128, 128, 3, 3, 1, 1, 1, 1]],
        by_own_kernels: false,
    };
    /// Of bf16 numbers.
    pub const BF16: Self = Self {
        name: "conv2d-bf16",
        element: Element::Bf16,
        numbers: Distribution::Normal,
        large: Self::LAYERS,
        by_own_kernels: true,
    };
    /// The same by the kernels for every GPU.
    pub const BF16_MMA: Self = Self { name: "conv2d-bf16-mma", by_own_kernels: false, ..Self::BF16 };

    /// Layers of ResNet-50 with 32 images: the first one, one of 3×3 and one of 1×1 with a stride; then groups of ResNeXt, a dilated one
    /// of DeepLab, and one whose channels are no power of two. The largest comes last.
    const LAYERS: &[[usize; 11]] = &[
        [32, 224, 224, 3, 64, 7, 7, 2, 3, 1, 1],
        [32, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1],
        [32, 56, 56, 256, 512, 1, 1, 2, 0, 1, 1],
        [32, 28, 28, 256, 256, 3, 3, 1, 1, 1, 8],
        [8, 33, 33, 256, 256, 3, 3, 1, 4, 4, 1],
        [32, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1],
        [18, 50, 33, 96, 192, 3, 3, 1, 1, 1, 1],
        [32, 28, 28, 256, 256, 3, 3, 1, 1, 1, 1],
    ];

    fn convolution(sizes: &Sizes) -> Result<Convolution, Error> {
        let [batch, height, width, channels] = sizes.get_u32(["n", "h", "w", "c"])?;
        let [filters, taps_down, taps_across] = sizes.get_u32(["filters", "r", "s"])?;
        let [stride, padding, dilation, groups] = sizes.get_u32(["stride", "padding", "dilation", "groups"])?;
        Ok(Convolution {
            batch,
            height,
            width,
            channels: channels / groups,
            filters: filters / groups,
            taps_down,
            taps_across,
            stride_down: stride,
            stride_across: stride,
            padding_down: padding,
            padding_across: padding,
            dilation_down: dilation,
            dilation_across: dilation,
            groups,
        })
    }

    /// The values of the pixels of a row of the result, all filters of each.
    fn expected_row(&self, conv: &Convolution, x: &[f64], w: &[f64], row: usize) -> Vec<Expected> {
        let [down, across] = conv.out().map(|extent| extent as usize);
        let (image, row) = (row / down, row % down);
        let [height, width, pitch] = [conv.height, conv.width, conv.all_channels()].map(|extent| extent as usize);
        let (channels, filters) = (conv.channels as usize, conv.filters as usize);
        let terms = conv.terms() as usize;
        let mut expected = Vec::with_capacity(across * conv.all_filters() as usize);
        for col in 0..across {
            for filter in 0..conv.all_filters() as usize {
                let (mut sum, mut magnitude, mut operands) = (0.0, 0.0, 0.0);
                for r in 0..conv.taps_down as usize {
                    for s in 0..conv.taps_across as usize {
                        let at = |out: usize, stride: u32, padding: u32, tap: usize, dilation: u32| {
                            (out * stride as usize + tap * dilation as usize).checked_sub(padding as usize)
                        };
                        let h = at(row, conv.stride_down, conv.padding_down, r, conv.dilation_down);
                        let w_at = at(col, conv.stride_across, conv.padding_across, s, conv.dilation_across);
                        let (Some(h), Some(w_at)) = (h, w_at) else { continue };
                        if h >= height || w_at >= width {
                            continue;
                        }
                        let of_x = ((image * height + h) * width + w_at) * pitch + filter / filters * channels;
                        let of_w = filter * terms + (r * conv.taps_across as usize + s) * channels;
                        for (a, b) in x[of_x..of_x + channels].iter().zip(&w[of_w..of_w + channels]) {
                            sum += a * b;
                            magnitude += (a * b).abs();
                            operands += a.abs() + b.abs();
                        }
                    }
                }
                expected.push(self.within(sum, terms, magnitude, operands));
            }
        }
        expected
    }

    fn within(&self, sum: f64, terms: usize, magnitude: f64, operands: f64) -> Expected {
        if self.element == Element::F32 {
            return Expected::within(sum, ThreeTf32::bound(terms, 0, magnitude, operands));
        }
        // Products are exact; a sum of 16 of them and what was there before is cut off at 2⁻²³ twice; then rounded to 8 bits.
        let of_sum = (2 * terms.div_ceil(16) + 2) as f64 * 2.0 * FP32_ROUNDING * magnitude;
        Expected::within(sum, of_sum + (sum.abs() + of_sum) / 256.0 + f64::from(f32::MIN_POSITIVE) / 128.0)
    }
}

impl Operation for Conv2d {
    fn describe(&self) -> Description {
        let is_fp32 = self.element == Element::F32;
        let kernels = if is_fp32 {
            vec![conv2d_fp32_3xtf32::FACTS, conv2d_any_fp32_3xtf32::FACTS]
        } else {
            let mut kernels = vec![conv2d_bf16::FACTS, conv2d_any_bf16::FACTS];
            if self.by_own_kernels {
                kernels.extend(HOPPER.map(|it| it.facts));
                kernels.extend(POINTWISE.map(|(_, facts)| facts));
            }
            kernels
        };
        Description {
            name: self.name,
            idea: "a product with a matrix that is never built: copies gather the pixels under each tap",
            sizes: &["n", "h", "w", "c", "filters", "r", "s", "stride", "padding", "dilation", "groups"],
            kernels,
            // Nothing of each kind; one; element by element and by pieces; strides, padding, dilation, groups, and all of it; filters
            // larger than images; a step and more; several tiles of either kind; channels that
            // end in a step of Hopper; more than TMA reaches.
            small: testkit::cases(&[
                [0, 5, 5, 4, 4, 3, 3, 1, 1, 1, 1],
                [2, 3, 3, 0, 4, 3, 3, 1, 1, 1, 1],
                [1, 3, 3, 8, 0, 1, 1, 1, 0, 1, 1],
                [1, 2, 9, 8, 4, 3, 3, 1, 0, 1, 1],
                [1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1],
                [2, 7, 5, 3, 5, 3, 2, 1, 1, 1, 1],
                [1, 9, 11, 3, 9, 7, 7, 2, 3, 1, 1],
                [1, 6, 7, 8, 8, 3, 3, 1, 1, 1, 1],
                [2, 8, 9, 16, 24, 3, 3, 2, 1, 1, 2],
                [1, 11, 10, 8, 6, 3, 3, 1, 4, 4, 1],
                [1, 13, 12, 40, 33, 2, 3, 3, 2, 2, 1],
                [1, 6, 5, 12, 8, 3, 3, 1, 1, 1, 4],
                [1, 4, 4, 72, 130, 1, 1, 1, 0, 1, 1],
                [3, 10, 9, 8, 136, 1, 1, 1, 0, 1, 1],
                [1, 4, 4, 8, 8, 3, 3, 1, 5, 1, 1],
                [1, 5, 6, 64, 40, 3, 3, 1, 1, 1, 1],
                [3, 9, 11, 64, 72, 3, 2, 2, 1, 1, 1],
                [1, 12, 9, 128, 528, 3, 3, 1, 2, 2, 2],
                [1, 3, 4, 128, 6, 1, 1, 1, 0, 1, 1],
                [1, 24, 24, 72, 248, 1, 1, 1, 0, 1, 1],
                [1, 16, 24, 72, 184, 1, 1, 1, 0, 1, 1],
                [4, 12, 12, 64, 64, 3, 3, 1, 1, 1, 1],
                [2, 10, 10, 64, 8, 1, 1, 1, 0, 1, 1],
                [1, 5, 6, 40, 264, 2, 2, 1, 1, 1, 1],
                [1, 20, 5, 88, 8, 17, 1, 1, 1, 1, 1],
                [1, 1, 236, 40, 8, 1, 2, 1, 20, 255, 1],
                [1, 40, 3, 64, 16, 1, 1, 9, 0, 1, 1],
                [2, 7, 9, 64, 64, 3, 3, 1, 1, 1, 2],
                [1, 11, 12, 128, 128, 3, 3, 1, 1, 1, 8],
                [1, 6, 5, 48, 96, 3, 3, 2, 1, 1, 3],
                [3, 9, 8, 96, 176, 1, 2, 1, 0, 1, 2],
                [1, 5, 5, 64, 32, 1, 1, 1, 0, 1, 2],
                [1, 9, 20, 32, 64, 3, 3, 1, 1, 1, 2],
                [1, 6, 7, 24, 144, 1, 1, 1, 0, 1, 1],
                [2, 9, 7, 16, 16, 1, 1, 2, 0, 1, 1],
                [1, 3, 5, 48, 272, 1, 1, 1, 0, 1, 1],
            ]),
            large: testkit::cases(self.large),
            bits: Bits::Same,
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let conv = Self::convolution(sizes)?;
        let [batch, height, width, channels] = sizes.get(["n", "h", "w", "c"])?;
        let [filters, r, s] = sizes.get(["filters", "r", "s"])?;
        let [down, across] = conv.out().map(|extent| extent as usize);
        let of_group = conv.channels as usize;
        Ok(vec![
            Argument::input("x", &[batch, height, width, channels], self.numbers).of(self.element),
            Argument::input("w", &[filters, r, s, of_group], self.numbers).of(self.element),
            Argument::output("y", &[batch, down, across, filters]).of(self.element),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let conv = Self::convolution(sizes)?;
        if self.element == Element::F32 {
            let (x, w, y) = (views.read("x")?, views.read("w")?, views.write("y")?);
            if conv.has_units(4) {
                return Ok(device.launch(conv2d_fp32_3xtf32 { conv, x, w, y })?);
            }
            return Ok(device.launch(conv2d_any_fp32_3xtf32 { conv, x, w, y })?);
        }
        let (x, w, y) = (views.read("x")?, views.read("w")?, views.write("y")?);
        if let Some((steps, workers)) = of_single_taps(device, &conv).filter(|_| self.by_own_kernels) {
            match steps {
                1 => device.launch(conv2d_1x1_of_16_bf16 { conv, workers, x, w, y })?,
                2 => device.launch(conv2d_1x1_of_32_bf16 { conv, workers, x, w, y })?,
                _ => device.launch(conv2d_1x1_of_64_bf16 { conv, workers, x, w, y })?,
            }
            return Ok(());
        }
        if let Some((it, workers, pixels)) = chosen(device, &conv).filter(|_| self.by_own_kernels) {
            let of_tile = tiles(&conv, it.parts, it.most, it.warpgroups).of_tile;
            let w = filters(device, w, &conv, of_tile)?;
            let x = device.image_map(x, &conv.images(), &pixel_tile(pixels))?;
            match (it.most, it.parts) {
                (_, 2) => device.launch(conv2d_256x2x32_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                (_, 4) => device.launch(conv2d_256x4x16_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                ([_, 192], _) => device.launch(conv2d_128x192_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                ([_, 160], _) => device.launch(conv2d_256x160_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                ([256, _], _) => device.launch(conv2d_256x128_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                ([192, _], _) => device.launch(conv2d_192x256_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                ([_, 128], _) => device.launch(conv2d_128x128_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
                _ => device.launch(conv2d_128x64_wgmma_bf16 { x, w, conv, workers, pixels, y })?,
            }
            return Ok(());
        }
        if conv.has_units(8) {
            return Ok(device.launch(conv2d_bf16 { conv, x, w, y })?);
        }
        Ok(device.launch(conv2d_any_bf16 { conv, x, w, y })?)
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let (conv, x, w) = (Self::convolution(sizes)?, values.of("x")?, values.of("w")?);
        let rows = conv.batch as usize * conv.out()[0] as usize;
        Ok(vec![testkit::each_row(rows, |row| self.expected_row(&conv, x, w, row))])
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        Self::convolution(sizes).map_or(0.0, |conv| {
            let [down, across] = conv.out().map(f64::from);
            2.0 * f64::from(conv.batch) * down * across * f64::from(conv.all_filters()) * f64::from(conv.terms())
        })
    }

    fn units(&self) -> Units {
        Units::TensorCores
    }
}
