//! The test cases of the attention kernels, softmax(Q·Kᵀ)·V computed in f64, and the error bound of each element. It is compiled for the host
//! only.

use blocks::mma_scheme::ThreeTf32;
use cuda_driver::{TensorElement, TensorSwizzle};
use cuda_std::prelude::*;
use runtime::{TensorLayout, TensorTile};
use testkit::{
    Argument, Bits, Description, Device, Distribution, Element, Error, Expected, FP32_ROUNDING, Operation, Sizes,
    Units, Values, Views,
};

use super::hopper::{Tiles, attention_64_wgmma_bf16, attention_128_causal_wgmma_bf16, attention_128_wgmma_bf16};
use super::{
    attention_64_mma_bf16, attention_64_mma_fp32_3xtf32, attention_128_mma_bf16, attention_128_mma_fp32_3xtf32,
};

/// Attention of several heads, with scores divided by the root of their size. PyTorch's is `scaled_dot_product_attention` of tensors
/// batch × heads × length × size.
pub struct Attention {
    name: &'static str,
    element: Element,
    of_queries: Distribution,
    of_keys: Distribution,
    large: &'static [[usize; 5]],
    /// Whether Hopper takes its own kernels.
    by_wgmma: bool,
}

/// What scores of heads of this size are multiplied by.
fn scale(size: usize) -> f32 {
    (size as f64).sqrt().recip() as f32
}

/// A map of the rows of heads, in tiles of 64 numbers of so many rows.
fn map<'a>(
    device: &Device,
    x: GlobalSlice<'a, Bf16>,
    [heads, rows, size]: [u32; 3],
    lines: u32,
) -> Result<TensorMap<'a>, Error> {
    let [matrices, lines_of_head, length] = [heads, rows, size].map(u64::from);
    let layout = TensorLayout {
        length,
        lines: lines_of_head,
        line_stride: length,
        matrices,
        matrix_stride: lines_of_head * length,
    };
    let tile = TensorTile { element: TensorElement::Bf16, length: 64, lines, swizzle: TensorSwizzle::Bytes128 };
    Ok(device.tensor_map(x, &layout, &tile)?)
}

/// The heads whose tiles are taken together: as many as have their keys and values in half of the second-level cache.
fn together(device: &Device, keys: u32, size: u32) -> u32 {
    let cache = device.gpu_properties().map_or(0, |gpu| u64::from(gpu.l2_bytes));
    let of_head = 4 * u64::from(keys) * u64::from(size);
    (cache / 2 / of_head).clamp(2, 1024) as u32
}

impl Attention {
    /// Of fp32 numbers, with the accuracy of fp32 sums.
    pub const FP32: Self = Self {
        name: "attention",
        element: Element::F32,
        of_queries: Distribution::Normal,
        of_keys: Distribution::Normal,
        large: &[[32, 2048, 2048, 64, 0], [32, 2048, 2048, 64, 1], [32, 2048, 2048, 128, 0], [3, 1, 65_539, 64, 0]],
        by_wgmma: false,
    };
    /// Of fp32 numbers that make few scores so large that nothing else counts, and differences beyond what fp32 resolves.
    pub const WIDE: Self = Self {
        name: "attention-wide",
        of_queries: Distribution::LogUniform(1e-3, 1e6),
        of_keys: Distribution::LogUniform(1e-3, 1e6),
        large: Self::FEW,
        ..Self::FP32
    };
    /// Of queries that are zero: all scores are equal, and each result is a mean.
    pub const EQUAL: Self =
        Self { name: "attention-equal", of_queries: Distribution::Uniform(0.0, 0.0), large: Self::FEW, ..Self::FP32 };
    /// Of bf16 numbers.
    pub const BF16: Self = Self {
        name: "attention-bf16",
        element: Element::Bf16,
        of_queries: Distribution::Normal,
        of_keys: Distribution::Normal,
        large: &[
            [32, 2048, 2048, 64, 0],
            [32, 2048, 2048, 128, 0],
            [32, 2048, 2048, 128, 1],
            [8, 8192, 8192, 64, 1],
            [32, 4096, 4096, 64, 0],
            [16, 4096, 4096, 128, 0],
        ],
        by_wgmma: true,
    };
    /// The same by the kernels for every GPU.
    pub const BF16_MMA: Self = Self { name: "attention-bf16-mma", by_wgmma: false, ..Self::BF16 };
    /// Of bf16 numbers with such scores.
    pub const BF16_WIDE: Self =
        Self { name: "attention-bf16-wide", element: Element::Bf16, by_wgmma: true, ..Self::WIDE };

    /// Large cases of numbers that are not as they come.
    const FEW: &[[usize; 5]] = &[[2, 1000, 5000, 64, 0], [2, 1000, 1000, 128, 1]];

    /// The values of a row of a head, with a bound for what a kernel may make of it.
    ///
    /// With u = 2⁻²⁴, s the scores, m the largest and w the weights of the keys that the query sees:
    ///
    /// - a score is off by the error of its product; so a weight is off by a factor `exp(±e)`, where e is that error and the roundings of
    ///   the way from the score down from m: a difference, a factor and a product, in as many parts as there are tiles, but of the same
    ///   length together; and an exponential, and one for each tile, of 2u·2 (2 units in the last place);
    /// - a factor that all weights have in common makes no difference. So that of the largest weight counts as 1, and the others
    ///   have that of both. Then `Σ w·(exp(e) − 1)·|v − o| / Σ w·exp(−e)` is how far the weights move the result;
    /// - sums of weights, and of weighted values, have the roundings of their additions and products.
    fn expected_row(&self, q: &[f64], keys: &[f64], values: &[f64]) -> Vec<Expected> {
        let size = q.len();
        let scale = f64::from(scale(size));
        let is_fp32 = self.element == Element::F32;
        let count = keys.len() / size;
        let tiles = count.div_ceil(32) as f64 + 1.0;
        let mut scores = Vec::with_capacity(count);
        for key in keys.chunks(size) {
            let (mut sum, mut magnitude, mut operands) = (0.0, 0.0, 0.0);
            for (q, k) in q.iter().zip(key) {
                sum += q * k;
                magnitude += (q * k).abs();
                operands += q.abs() + k.abs();
            }
            let error = if is_fp32 {
                ThreeTf32::bound(size, 0, magnitude, operands)
            } else {
                // Exact products, 16 at a time, cut off twice.
                (4 * size.div_ceil(16)) as f64 * FP32_ROUNDING * magnitude
            };
            scores.push((sum * scale, error * scale));
        }
        let largest = scores.iter().map(|score| score.0).fold(f64::NEG_INFINITY, f64::max);
        // No exponent counts that makes nothing of a weight: and e^e stays a number.
        let error_of = |&(score, error): &(f64, f64)| {
            let way = 3.0 * FP32_ROUNDING * (largest - score).min(1000.0);
            (error + way + (tiles + 1.0) * 6.0 * FP32_ROUNDING).min(300.0)
        };
        let weights: Vec<f64> = scores.iter().map(|(score, _)| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let dominant = (0..count).max_by(|&one, &other| scores[one].0.total_cmp(&scores[other].0)).unwrap_or(0);
        let of_dominant = scores.get(dominant).map_or(0.0, error_of);
        let (mut moves, mut least) = (Vec::with_capacity(count), 0.0);
        for (key, (score, weight)) in scores.iter().zip(&weights).enumerate() {
            let error = if key == dominant { 0.0 } else { error_of(score) + of_dominant };
            moves.push(weight * error.exp_m1());
            least += weight * (-error).exp();
        }
        let mut sums = vec![[0.0; 3]; size];
        for (weight, row) in weights.iter().zip(values.chunks(size)) {
            for (sum, v) in sums.iter_mut().zip(row) {
                *sum = [sum[0] + weight * v, sum[1] + weight * v.abs(), sum[2] + v.abs()];
            }
        }
        let mut far = vec![[0.0f64; 2]; size];
        for (by, row) in moves.iter().zip(values.chunks(size)) {
            for ((far, v), [sum, ..]) in far.iter_mut().zip(row).zip(&sums) {
                // More than the distance of any two values of the column, no weights can move a result.
                *far = [far[0] + by * (v - sum / total).abs(), far[1].max((v - sum / total).abs())];
            }
        }
        let tiny = f64::from(f32::from_bits(1)) * 4.0 * count as f64;
        let one = |([sum, magnitude, all], [far, farthest]): (&[f64; 3], &[f64; 2])| {
            if count == 0 {
                return Expected::exact(0.0);
            }
            let (value, magnitude) = (sum / total, magnitude / total);
            // A product with the scaling for each tile, and what the sums themselves have; the total, its inverse, the result.
            let of_total = (count.div_ceil(4) as f64 + 2.0 * tiles + 8.0) * FP32_ROUNDING * magnitude;
            let of_sum = if is_fp32 {
                ThreeTf32::bound(count, tiles as usize, magnitude, 0.0) + 2f64.powi(-136) * (magnitude + count as f64)
            } else {
                (1.0 / 256.0 + (count.div_ceil(4) as f64 + tiles) * FP32_ROUNDING) * magnitude
            };
            let of_result = if is_fp32 { 0.0 } else { value.abs() / 256.0 + f64::from(f32::MIN_POSITIVE) };
            // Weights below the smallest normal number may be 0, and the largest is 1.
            let of_least = if is_fp32 { 0.0 } else { f64::from(f32::MIN_POSITIVE) * all };
            let moved = (far / least).min(*farthest);
            Expected::within(value, moved + 1.01 * (of_total + of_sum + of_result + of_least) + tiny)
        };
        sums.iter().zip(&far).map(one).collect()
    }
}

impl Operation for Attention {
    fn describe(&self) -> Description {
        let kernels = if self.element == Element::F32 {
            vec![attention_64_mma_fp32_3xtf32::FACTS, attention_128_mma_fp32_3xtf32::FACTS]
        } else {
            let mut kernels = vec![attention_64_mma_bf16::FACTS, attention_128_mma_bf16::FACTS];
            if self.by_wgmma {
                kernels.push(attention_64_wgmma_bf16::FACTS);
                kernels.push(attention_128_wgmma_bf16::FACTS);
                kernels.push(attention_128_causal_wgmma_bf16::FACTS);
            }
            kernels
        };
        // The kernels for Hopper have nothing to do with that.
        let nothing: &[[usize; 5]] =
            if self.by_wgmma { &[] } else { &[[0, 3, 5, 64, 0], [2, 0, 5, 64, 1], [1, 3, 0, 128, 0]] };
        let nothing = testkit::cases(nothing);
        Description {
            name: self.name,
            idea: "softmax(Q·Kᵀ/√d)·V by tiles of keys: scores stay in registers, and maxima are corrected as they come",
            sizes: &["heads", "queries", "keys", "size", "causal"],
            kernels,
            // Nothing of each kind; one; a tile, one more and one less; several tiles; more keys than queries, and fewer, and so many that stages come round again
            // while keys are loaded; causal of all of these.
            small: [
                nothing,
                testkit::cases(&[
                    [1, 1, 1, 64, 0],
                    [2, 5, 7, 128, 1],
                    [1, 16, 64, 64, 0],
                    [1, 33, 65, 64, 1],
                    [2, 63, 63, 64, 0],
                    [1, 130, 31, 128, 0],
                    [1, 40, 200, 64, 0],
                    [1, 150, 150, 64, 1],
                    [1, 140, 130, 128, 1],
                    [1, 200, 70, 128, 1],
                    [1, 20, 300, 128, 0],
                    [1, 5, 900, 64, 0],
                    [1, 5, 900, 128, 0],
                    [3, 300, 290, 64, 1],
                    [3, 260, 400, 128, 1],
                    [2, 400, 200, 128, 0],
                ]),
            ]
            .concat(),
            large: testkit::cases(self.large),
            bits: if self.element == Element::F32 { Bits::Same } else { Bits::SameOnOneDevice },
        }
    }

    fn arguments(&self, sizes: &Sizes) -> Result<Vec<Argument>, Error> {
        let [heads, queries, keys, size] = sizes.get(["heads", "queries", "keys", "size"])?;
        Ok(vec![
            Argument::input("q", &[heads, queries, size], self.of_queries).of(self.element),
            Argument::input("k", &[heads, keys, size], self.of_keys).of(self.element),
            Argument::input("v", &[heads, keys, size], Distribution::Normal).of(self.element),
            Argument::output("o", &[heads, queries, size]).of(self.element),
        ])
    }

    fn launch(&self, device: &Device, sizes: &Sizes, views: &Views<'_>) -> Result<(), Error> {
        let [heads, queries, keys, size, causal] = sizes.get_u32(["heads", "queries", "keys", "size", "causal"])?;
        let scale = scale(size as usize);
        if self.element == Element::F32 {
            let (q, k, v, o) = (views.read("q")?, views.read("k")?, views.read("v")?, views.write("o")?);
            if size == 64 {
                device.launch(attention_64_mma_fp32_3xtf32 { heads, queries, keys, causal, scale, q, k, v, o })?;
            } else {
                device.launch(attention_128_mma_fp32_3xtf32 { heads, queries, keys, causal, scale, q, k, v, o })?;
            }
            return Ok(());
        }
        let (q, k, v, o) = (views.read("q")?, views.read("k")?, views.read("v")?, views.write("o")?);
        if self.by_wgmma
            && heads > 0
            && queries > 0
            && keys > 0
            && crate::hopper::runs(device, &attention_64_wgmma_bf16::FACTS)
        {
            let map = |x, rows, lines| map(device, x, [heads, rows, size], lines);
            let (workers, together) = (crate::hopper::workers(device), together(device, keys, size));
            macro_rules! launch {
                ($kernel:ident) => {{
                    let [of_block, of_tile] = $kernel::TILES;
                    let (q, k, v) = (map(q, queries, of_block)?, map(k, keys, of_tile)?, map(v, keys, of_tile)?);
                    device.launch($kernel { q, k, v, heads, queries, keys, causal, scale, together, workers, o })?
                }};
            }
            match (size, causal) {
                (64, _) => launch!(attention_64_wgmma_bf16),
                (_, 0) => launch!(attention_128_wgmma_bf16),
                _ => launch!(attention_128_causal_wgmma_bf16),
            }
            return Ok(());
        }
        if size == 64 {
            device.launch(attention_64_mma_bf16 { heads, queries, keys, causal, scale, q, k, v, o })?;
        } else {
            device.launch(attention_128_mma_bf16 { heads, queries, keys, causal, scale, q, k, v, o })?;
        }
        Ok(())
    }

    fn expected(&self, sizes: &Sizes, values: &Values<'_>) -> Result<Vec<Vec<Expected>>, Error> {
        let [heads, queries, keys, size, causal] = sizes.get(["heads", "queries", "keys", "size", "causal"])?;
        let (q, k, v) = (values.of("q")?, values.of("k")?, values.of("v")?);
        Ok(vec![testkit::each_row(heads * queries, |row| {
            let (head, query) = (row / queries, row % queries);
            let seen = if causal == 0 { keys } else { keys.min(query + 1) };
            let of_head = head * keys * size..(head * keys + seen) * size;
            self.expected_row(&q[row * size..(row + 1) * size], &k[of_head.clone()], &v[of_head])
        })])
    }

    fn operations(&self, sizes: &Sizes) -> f64 {
        sizes.get(["heads", "queries", "keys", "size", "causal"]).map_or(0.0, |[heads, queries, keys, size, causal]| {
            let (queries, keys) = (queries as f64, keys as f64);
            let most = queries.min(keys);
            let pairs = if causal == 0 { queries * keys } else { most * (most + 1.0) / 2.0 + (queries - most) * keys };
            4.0 * heads as f64 * pairs * size as f64
        })
    }

    fn units(&self) -> Units {
        Units::TensorCores
    }
}
