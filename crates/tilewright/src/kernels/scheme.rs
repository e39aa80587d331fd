//! What kernels compute (matrix or matrix-vector products), and in which arithmetic (plain fp32, 3xTF32, bf16, and so on).

use serde::{Deserialize, Serialize};

use crate::Precision;
use crate::accuracy::{Accuracy, Bounds, Wanted};

/// Which product a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `y = α·A·x + β·y`.
    Gemv,
    /// `C = α·A·B + β·C`.
    Gemm,
}

/// What a kernel makes of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// fp64 products of fp32 numbers, and fp64 sums.
    Fp32Fp64,
    /// Ten int8 products of the digits of scaled operands.
    Fp32TenInt8,
    /// Fused fp32 operations on CUDA cores.
    Fp32,
    /// Three TF32 products.
    Fp32ThreeTf32,
    /// Three fp16 products of scaled operands, where they lose nothing by that.
    Fp32ThreeFp16,
    /// Three fp16 products of scaled operands.
    Fp32ScaledFp16,
    /// One TF32 product.
    Tf32,
    /// One bf16 product.
    Bf16,
    /// One fp16 product.
    Fp16,
}

/// In which order a kernel adds up the products of an element. Kernels of one [`Scheme`] that have the same order make the same bits,
/// whatever their tiles are, on one GPU and for sums that are divided among as many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// One term after the other, each rounded.
    OneByOne,
    /// So many terms by `mma.sync`, from zero; their sums in fp32, one after the other.
    Mma {
        /// The terms.
        terms: u32,
    },
    /// 16 terms by `mma.sync`, from zero; each warp of a block adds up some of these sums in fp32, as many warps apart as there are, one after
    /// the other; then what the warps have, likewise.
    Slices {
        /// The warps.
        warps: u32,
    },
    /// So many terms by `wgmma`, from zero; their sums in fp32, one after the other.
    Wgmma {
        /// The terms.
        terms: u32,
        /// Whether products of parts come in the order in which they come in the product of the transposes.
        as_transposes: bool,
    },
    /// All terms of a block by `wgmma`.
    WgmmaAll,
    /// An order of its own, or one that depends on what else is computed with an element.
    Own,
}

impl SumOrder {
    /// The order for a product whose transposes are multiplied: `Cᵀ = Bᵀ·Aᵀ`. Terms come as they do, but a low part of A is one of `Bᵀ` then.
    #[must_use]
    pub fn of_transposes(self) -> Self {
        match self {
            Self::OneByOne => self,
            Self::Wgmma { terms, as_transposes } => Self::Wgmma { terms, as_transposes: !as_transposes },
            // No kernel has it for the transposes.
            Self::Mma { .. } | Self::Slices { .. } | Self::WgmmaAll | Self::Own => Self::Own,
        }
    }
}

impl Scheme {
    /// The precision that it is for.
    pub fn precision(self) -> Precision {
        match self {
            Self::Fp32Fp64 => Precision::Fp32Rounded,
            Self::Fp32TenInt8 => Precision::Fp32Ozaki,
            Self::Fp32 => Precision::Fp32Strict,
            Self::Fp32ThreeTf32 | Self::Fp32ThreeFp16 => Precision::Fp32,
            Self::Fp32ScaledFp16 => Precision::Fp32Normwise,
            Self::Tf32 => Precision::Tf32,
            Self::Bf16 => Precision::Bf16,
            Self::Fp16 => Precision::Fp16,
        }
    }

    /// Whether it may serve a product of this precision: what is strict fp32 is as accurate as fp32, too.
    pub fn serves(self, precision: Precision) -> bool {
        self.precision() == precision || (self == Self::Fp32 && precision == Precision::Fp32)
    }

    /// How large the error of an element of `A·B` may be, for sums of so many terms; nothing where no operands are so far apart that a
    /// bound would hold for all of them (fp16, which has not fp32's range), or where it holds against whole lines only.
    ///
    /// In units of u = 2⁻²⁴, as parts of `Σ|a||b|`:
    ///
    /// | scheme | a product | tensor cores | sums in fp32 | expected |
    /// |---|---:|---:|---:|---:|
    /// | fp64 | 2⁻²⁹ K | | 1 | the same |
    /// | fp32 | 0 | | K | 2 + 2.8 √K |
    /// | 3xTF32 | 9 | 32 | K/16 + 1 | 16 + 0.84 √K |
    /// | 3xFP16 | 13 | 44 | K/16 + 1 | 18 + 0.84 √K |
    /// | TF32 | 2¹⁴ + 8 | 32 | K | 2¹⁴ + 40 + 2 √K |
    /// | bf16 | 2¹⁷ + 512 | 32 | K | 2¹⁷ + 544 + 2 √K |
    ///
    /// **A product.** `a = high + low` exactly, with `|low| ≤ 2⁻¹¹|a|`: high has 11 bits, rounded to nearest. Cut off to 11 bits, low
    /// loses at most one unit in the last place of a, 2⁻²³|a|. So 3xTF32 is off by `low·low`, 2⁻²² = 4u, and two times 2u: with what
    /// is beyond the first order, less than 9u. 3xFP16 rounds low to fp16, of numbers that are at least 2⁻¹⁴ when they are scaled, and of
    /// the smallest of these there is twice as much lost: two times 4u, and 4u. TF32 and bf16 operands are off by
    /// 2⁻¹¹ and 2⁻⁸ each (of normal numbers).
    ///
    /// **Tensor cores** cut off. A term of an instruction loses less than 2⁻²⁵ of the largest on compute capability 9.0 (2⁻²⁴ on others),
    /// and the sum 2⁻²³ of itself: (9/2 + 2)u for 8 terms and the accumulator, (17/2 + 2)u for 16, (5 + 2)u for 4 on 8.0. Sums are
    /// promoted after 16 k of `mma.sync`, which are two instructions of 8 k, or four of 4: 28u; after 32 k of `wgmma`, four of 8 k:
    /// 26u; and after 64 k of 3xFP16, four of 16 k: 42u. Products with low parts are 2⁻¹⁰ of that. Rounded operands stay in the tensor
    /// cores, on 9.0: less than 0.82u for each k.
    ///
    /// What the tensor cores of other GPUs than the H200 keep is not ours: M. Fasi et al., "Numerical behavior of NVIDIA tensor cores",
    /// PeerJ Computer Science 7:e330 (2021), and P. Xie et al., "MMA-Sim", arXiv:2511.10909 (2025).
    ///
    /// **Sums in fp32** are rounded to nearest, as often as there are promotions: after 16 k or more. In 3xFP16, a promotion multiplies by
    /// powers of two in the same operation, which rounds once; and of each 64 terms of a line at most one is added by itself: three roundings
    /// for 64 k. Tiles that are computed again in
    /// fp32 add up 32 terms at a time. What is divided among blocks is rounded no more often.
    ///
    /// **Expected** is twice what `c₀ + c₁·√K` has to be for the largest errors of `tests::accuracy`, up to K = 4096.
    pub fn bounds(self, terms: usize) -> Option<Bounds> {
        let k = terms as f64;
        let (promotions, root) = (k / 16.0 + 1.0, k.sqrt());
        match self {
            Self::Fp32Fp64 => {
                // Before the one rounding, nothing is lost that counts.
                let guaranteed = k * 2f64.powi(-53) + 2f64.powi(-24);
                Some(Bounds { guaranteed, expected: guaranteed })
            }
            Self::Fp32 => Bounds::of_units(0.0, k, 2.0 + 2.8 * root),
            Self::Fp32ThreeTf32 => Bounds::of_units(9.0 + 32.0, promotions, 16.0 + 0.84 * root),
            Self::Fp32ThreeFp16 => Bounds::of_units(13.0 + 44.0, promotions, 18.0 + 0.84 * root),
            Self::Tf32 => Bounds::of_units(16_392.0 + 32.0, k, 16_424.0 + 2.0 * root),
            Self::Bf16 => Bounds::of_units(131_584.0 + 32.0, k, 131_616.0 + 2.0 * root),
            Self::Fp32TenInt8 | Self::Fp32ScaledFp16 | Self::Fp16 => None,
        }
    }

    /// The fp32 numbers that a partial sum is stored as: an exact one as a high and a low part.
    pub(crate) fn parts_of_sums(self) -> usize {
        if matches!(self, Self::Fp32Fp64 | Self::Fp32TenInt8) { 2 } else { 1 }
    }

    /// Whether it scales lines, so that its errors are small beside the largest elements of rows and columns only.
    pub fn scales_lines(self) -> bool {
        matches!(self, Self::Fp32TenInt8 | Self::Fp32ScaledFp16)
    }

    /// Whether it may serve a product of so many terms: one of its precision, or one that has to be no more accurate than it is.
    pub fn may_serve(self, wanted: Wanted, terms: usize) -> bool {
        match wanted {
            Wanted::Precision(precision) => self.serves(precision),
            Wanted::Accuracy(accuracy) => self.bounds(terms).is_some_and(|bounds| Accuracy::allows(accuracy, bounds)),
        }
    }

    /// What is computed, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fp32Fp64 => "fp64 products and sums on tensor cores, rounded to fp32 once",
            Self::Fp32TenInt8 => "ten int8 products of digits on tensor cores, added up exactly, rounded to fp32 once",
            Self::Fp32 => "fused fp32 operations on CUDA cores",
            Self::Fp32ThreeTf32 => "3xTF32: three TF32 products on tensor cores, fp32 promotion",
            Self::Fp32ThreeFp16 => "3xFP16: three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Fp32ScaledFp16 => "three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Tf32 => "one TF32 product on tensor cores",
            Self::Bf16 => "one bf16 product on tensor cores",
            Self::Fp16 => "one fp16 product on tensor cores",
        }
    }
}
