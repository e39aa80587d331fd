//! What kernels compute (matrix or matrix-vector products), and in which arithmetic (plain fp32, 3xTF32, bf16, and so on).

use serde::{Deserialize, Serialize};

use crate::Precision;

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
    /// Fused fp32 operations on CUDA cores.
    Fp32,
    /// One TF32 product, and two bf16 products for what TF32 leaves.
    Fp32Mixed,
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

impl Scheme {
    /// The precision that it is for.
    pub fn precision(self) -> Precision {
        match self {
            Self::Fp32Fp64 => Precision::Fp32Rounded,
            Self::Fp32 => Precision::Fp32Strict,
            Self::Fp32Mixed | Self::Fp32ThreeTf32 | Self::Fp32ThreeFp16 => Precision::Fp32,
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

    /// Whether what it adds up may be stored as fp32 numbers before all of it is added up, as where sums are divided among blocks.
    pub(crate) const fn sums_are_fp32(self) -> bool {
        !matches!(self, Self::Fp32Fp64)
    }

    /// The fewest terms for which a plan takes it unasked: below that, its error is above what the precision promises.
    pub(crate) fn fewest_terms(self) -> usize {
        if self == Self::Fp32Mixed { Precision::MIXED_FROM } else { 0 }
    }

    /// What is computed, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Fp32Fp64 => "fp64 products and sums on tensor cores, rounded to fp32 once",
            Self::Fp32 => "fused fp32 operations on CUDA cores",
            Self::Fp32Mixed => "mixed: one TF32 and two bf16 products on tensor cores, fp32 promotion",
            Self::Fp32ThreeTf32 => "3xTF32: three TF32 products on tensor cores, fp32 promotion",
            Self::Fp32ThreeFp16 => "3xFP16: three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Fp32ScaledFp16 => "three fp16 products of scaled operands on tensor cores, fp32 promotion",
            Self::Tf32 => "one TF32 product on tensor cores",
            Self::Bf16 => "one bf16 product on tensor cores",
            Self::Fp16 => "one fp16 product on tensor cores",
        }
    }
}
