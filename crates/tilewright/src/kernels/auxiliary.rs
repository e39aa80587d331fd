//! The auxiliary kernels of a product, and their launches: packing and copying operands, the second pass of split-K, recomputing
//! tiles, clearing the other triangle of C.

use cuda_std::{Element, GlobalSlice, GlobalSliceMut, KernelFacts};
use gpu_kernels::epilogue::Steps;
use gpu_kernels::gemm::hopper::fallback::GROUP;
use gpu_kernels::gemm::hopper::pairs_info::PairInfo;
use gpu_kernels::gemm::repair::gemm_repair_fp32;
use gpu_kernels::gemm::split_k::{
    MANY_SPLITS, SplitReduction, gemm_split_reduction_fp32, gemm_split_reduction_fp64, gemm_split_reduction_many_fp32,
};
use gpu_kernels::gemm::tiles::TiledGemm;
use gpu_kernels::pack::clear::matrix_clear_outside_fp32;
use gpu_kernels::pack::copy::{Flags, matrix_copy_flagged_fp32, matrix_copy_fp32};
use gpu_kernels::pack::digits::{self, pack_digits_int8};
use gpu_kernels::pack::exceptions::{Exceptions, list_words};
use gpu_kernels::pack::group_flags::{ToFlags, group_flags_fp16};
use gpu_kernels::pack::half::{self, pack_bf16, pack_fp16};
use gpu_kernels::pack::pairs::{self, ToPairs, pack_pairs_fp16};
use gpu_kernels::pack::scaled::{Chunks, line_extremes_fp32, line_scales_fp32};
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, Triangle};

use crate::packed_matrix::PackedMatrix;
use crate::views::{read, read_words, words as as_words};
use crate::{Device, Error};

/// The kernel that adds up the partial results of split-K.
const REDUCTION: KernelFacts = gemm_split_reduction_fp32::FACTS;
/// The same for many of them.
const REDUCTION_OF_MANY: KernelFacts = gemm_split_reduction_many_fp32::FACTS;
/// The same for sums in two parts.
const REDUCTION_FP64: KernelFacts = gemm_split_reduction_fp64::FACTS;
/// The kernel that computes the tiles of a tile mask again.
pub(crate) const REPAIR: KernelFacts = gemm_repair_fp32::FACTS;
/// The kernel that copies matrices.
pub(crate) const COPY: KernelFacts = matrix_copy_fp32::FACTS;
/// The kernel that copies what the fallback needs.
pub(crate) const COPY_FLAGGED: KernelFacts = matrix_copy_flagged_fp32::FACTS;
/// The kernel that sets to zero what is not wanted of results.
pub(crate) const CLEAR: KernelFacts = matrix_clear_outside_fp32::FACTS;

/// The kernels that plans use besides those that multiply.
pub static AUXILIARY: [KernelFacts; 14] = [
    REDUCTION,
    REDUCTION_OF_MANY,
    REDUCTION_FP64,
    REPAIR,
    COPY,
    COPY_FLAGGED,
    CLEAR,
    pack_bf16::FACTS,
    pack_fp16::FACTS,
    pack_pairs_fp16::FACTS,
    group_flags_fp16::FACTS,
    line_extremes_fp32::FACTS,
    line_scales_fp32::FACTS,
    pack_digits_int8::FACTS,
];

/// What packed operands are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// bf16 numbers, two to a word.
    Bf16,
    /// fp16 numbers, two to a word.
    Fp16,
    /// Lines that are scaled by powers of two.
    Scaled(ScaledFormat),
}

impl Format {
    /// The words from one line to the next, for lines of `terms` terms.
    pub(crate) fn pitch(self, terms: u32) -> u32 {
        match self {
            Self::Bf16 | Self::Fp16 => half::pitch(terms),
            Self::Scaled(ScaledFormat::Pairs { .. }) => pairs::pitch(terms),
            Self::Scaled(ScaledFormat::Digits) => digits::pitch(terms),
        }
    }

    /// The kernels that pack an operand, in their order.
    pub(crate) fn kernels(self) -> &'static [KernelFacts] {
        match self {
            Self::Bf16 => &[pack_bf16::FACTS],
            Self::Fp16 => &[pack_fp16::FACTS],
            Self::Scaled(ScaledFormat::Pairs { .. }) => &[pack_pairs_fp16::FACTS, group_flags_fp16::FACTS],
            Self::Scaled(ScaledFormat::Digits) => {
                &[line_extremes_fp32::FACTS, line_scales_fp32::FACTS, pack_digits_int8::FACTS]
            }
        }
    }

    /// Whether these pack both operands of a product in one launch.
    pub(crate) fn packs_both(self) -> bool {
        matches!(self, Self::Scaled(ScaledFormat::Pairs { .. }))
    }

    /// How often these read each number.
    pub(crate) fn reads(self) -> f64 {
        if self == Self::Scaled(ScaledFormat::Digits) { 2.0 } else { 1.0 }
    }

    /// What is done to an operand, in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Bf16 => "round it to bf16",
            Self::Fp16 => "round it to fp16",
            Self::Scaled(ScaledFormat::Pairs { .. }) => {
                "scale its lines, 64 terms at a time, and split it into two fp16 parts"
            }
            Self::Scaled(ScaledFormat::Digits) => "scale its lines and split it into four digits of 8 bits",
        }
    }
}

/// An operand as it has been packed: its lines, and what goes with them if they are scaled.
#[derive(Clone, Copy)]
pub(crate) struct PackedOperand<'a> {
    pub(crate) words: GlobalSlice<'a, u32>,
    pub(crate) scales: PairInfo<'a>,
}

impl<'a> PackedOperand<'a> {
    /// What has been packed once, without the matrix that it was made of.
    pub(crate) fn of(packed: &'a PackedMatrix) -> Self {
        let [words, _found, factors, fallback, nonzero, lists] = packed.parts();
        let [words, fallback, nonzero, lists] = [words, fallback, nonzero, lists].map(read_words);
        let nothing = Self::nothing().scales.exceptions;
        Self { words, scales: PairInfo { factors, fallback, nonzero, exceptions: Exceptions { lists, ..nothing } } }
    }

    /// The same with the matrix, whose rows are lines.
    pub(crate) fn with_source(self, source: MatrixBatch<'a>) -> Self {
        let exceptions = Exceptions { source, ..self.scales.exceptions };
        Self { scales: PairInfo { exceptions, ..self.scales }, ..self }
    }

    /// An operand that has not been packed.
    pub(crate) fn nothing() -> Self {
        let scales = PairInfo {
            factors: GlobalSlice::new(&[]),
            fallback: GlobalSlice::new(&[]),
            nonzero: GlobalSlice::new(&[]),
            exceptions: Exceptions::nothing(),
        };
        Self { words: GlobalSlice::new(&[]), scales }
    }
}

/// The kernel that adds up partial sums of so many splits, each in so many parts.
pub(crate) const fn reduction(splits: u32, parts: usize) -> KernelFacts {
    match (splits, parts) {
        (_, 2) => REDUCTION_FP64,
        (MANY_SPLITS.., _) => REDUCTION_OF_MANY,
        _ => REDUCTION,
    }
}

/// Adds up the partial sums of a product whose sums were divided, which have so many parts.
pub(crate) fn add_partial_sums(device: &Device, reduction: SplitReduction<'_>, parts: usize) -> Result<(), Error> {
    match (reduction.splits(), parts) {
        (_, 2) => device.launch(gemm_split_reduction_fp64 { reduction }),
        (MANY_SPLITS.., _) => device.launch(gemm_split_reduction_many_fp32 { reduction }),
        _ => device.launch(gemm_split_reduction_fp32 { reduction }),
    }
}

/// The kernel that does the steps of an epilogue on results that are stored already.
pub(crate) const EPILOGUE: KernelFacts = REDUCTION;

/// Does the steps of an epilogue on results that are stored already.
pub(crate) fn apply_epilogue(device: &Device, results: MatrixBatchMut<'_>, steps: Steps<'_>) -> Result<(), Error> {
    let reduction = SplitReduction::scaling(1.0, results)?.with_steps(steps)?;
    device.launch(gemm_split_reduction_fp32 { reduction })
}

/// Computes those tiles of a product again, in fp32, that a tile mask names.
pub(crate) fn repair_tiles(
    device: &Device,
    gemm: TiledGemm<'_>,
    tile_mask: GlobalSlice<'_, u32>,
    splits: u32,
) -> Result<(), Error> {
    device.launch(gemm_repair_fp32 { gemm, tile_mask, splits })
}

/// Copies matrices.
pub(crate) fn copy_matrices(device: &Device, from: MatrixBatch<'_>, to: MatrixBatchMut<'_>) -> Result<(), Error> {
    device.launch(matrix_copy_fp32 { from, to })
}

/// Copies those groups of rows of matrices that the fallback needs, by their flags and those of the other operand.
pub(crate) fn copy_flagged(
    device: &Device,
    from: MatrixBatch<'_>,
    to: MatrixBatchMut<'_>,
    flags: Flags<'_>,
) -> Result<(), Error> {
    device.launch(matrix_copy_flagged_fp32 { from, to, flags })
}

/// Sets to zero what is outside of a part of matrices.
pub(crate) fn clear_outside(device: &Device, part: Triangle, matrices: MatrixBatchMut<'_>) -> Result<(), Error> {
    device.launch(matrix_clear_outside_fp32 { matrices, triangle: part })
}

/// Packs the rows of matrices in formats that do not scale them.
pub(crate) fn pack_rounded(
    device: &Device,
    source: MatrixBatch<'_>,
    to_bf16: bool,
    words: GlobalSliceMut<'_, u32>,
) -> Result<(), Error> {
    match to_bf16 {
        true => device.launch(pack_bf16 { source, words }),
        false => device.launch(pack_fp16 { source, words }),
    }
}

/// Where scaled operands go.
#[derive(Clone, Copy)]
pub(crate) struct ScaledParts<'a> {
    /// What is found on the way: of chunks of lines, or of tiles.
    pub(crate) found: GlobalSliceMut<'a, u32>,
    pub(crate) factors: GlobalSliceMut<'a, f32>,
    pub(crate) fallback_groups: GlobalSliceMut<'a, u32>,
    pub(crate) nonzero: GlobalSliceMut<'a, u32>,
    pub(crate) exceptions: GlobalSliceMut<'a, u32>,
    /// As the fp32 numbers that have their bits.
    pub(crate) words: GlobalSliceMut<'a, f32>,
}

/// How the numbers of scaled lines are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaledFormat {
    /// As two fp16 numbers.
    Pairs {
        /// Whether a line is left to the fallback that has elements too small beside its largest.
        element_by_element: bool,
    },
    /// As four digits of 8 bits.
    Digits,
}

impl ScaledFormat {
    /// The words of the lists of exceptions, of so many matrices.
    pub(crate) fn exceptions(self, lines: u32, matrices: u32) -> u128 {
        match self {
            Self::Pairs { .. } => list_words(lines, matrices),
            Self::Digits => 0,
        }
    }

    /// The words of what is found on the way, and the factors, of so many matrices.
    pub(crate) fn found_and_factors(self, lines: u32, terms: u32, matrices: u32) -> [u128; 2] {
        match self {
            Self::Pairs { .. } => [pairs::tiles(lines, terms, matrices), pairs::factor_words(lines, terms, matrices)],
            Self::Digits => [
                Chunks::of(lines, terms, matrices).words(lines, matrices),
                u128::from(lines.next_multiple_of(GROUP)) * u128::from(matrices),
            ],
        }
    }
}

/// An operand whose rows are scaled, and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct ToScale<'a> {
    pub(crate) source: MatrixBatch<'a>,
    pub(crate) parts: ScaledParts<'a>,
}

impl ToScale<'_> {
    /// No rows at all.
    fn nothing(self) -> Result<Self, Error> {
        let first = self.source.first();
        let none = Matrix::new(first.data(), 0, first.cols() as usize, 0, 0)?;
        let ScaledParts { found, factors, fallback_groups, nonzero, exceptions, words } = self.parts;
        let parts = ScaledParts {
            found: none_of(found),
            factors: none_of(factors),
            fallback_groups: none_of(fallback_groups),
            nonzero: none_of(nonzero),
            exceptions: none_of(exceptions),
            words: none_of(words),
        };
        Ok(Self { source: MatrixBatch::new(none, 0, 0)?, parts })
    }
}

/// No elements, at the place of these.
fn none_of<T: Element>(elements: GlobalSliceMut<'_, T>) -> GlobalSliceMut<'_, T> {
    // SAFETY: none of the elements that there are.
    unsafe { GlobalSliceMut::from_raw_parts(elements.as_mut_ptr(), 0) }
}

/// Scales the rows of matrices, those operands of a product that have yet to be packed, and splits their numbers.
pub(crate) fn pack_scaled(
    device: &Device,
    operands: [Option<ToScale<'_>>; 2],
    format: ScaledFormat,
) -> Result<(), Error> {
    match format {
        ScaledFormat::Pairs { element_by_element } => {
            let operands = match operands {
                [Some(a), Some(b)] => [a, b],
                [Some(one), None] | [None, Some(one)] => [one, one.nothing()?],
                [None, None] => return Ok(()),
            };
            let [a, b] = operands.map(|ToScale { source, parts: ScaledParts { found, factors, words, .. } }| ToPairs {
                source,
                words,
                factors,
                contents: found,
            });
            device.launch(pack_pairs_fp16 { a, b, element_by_element: element_by_element.into() })?;
            let [a, b] = operands.map(|ToScale { source, parts }| ToFlags {
                contents: read(parts.found),
                lines: source.first().rows(),
                terms: source.first().cols(),
                matrices: source.count(),
                fallback: parts.fallback_groups,
                nonzero: parts.nonzero,
                exceptions: parts.exceptions,
            });
            device.launch(group_flags_fp16 { a, b })
        }
        ScaledFormat::Digits => operands.into_iter().flatten().try_for_each(|operand| pack_digits(device, operand)),
    }
}

/// The same as digits, for one operand.
fn pack_digits(device: &Device, ToScale { source, parts }: ToScale<'_>) -> Result<(), Error> {
    let ScaledParts { found, factors, fallback_groups: fallback, nonzero, words, .. } = parts;
    let (lines, terms, matrices) = (source.first().rows(), source.first().cols(), source.count());
    let chunks = Chunks::of(lines, terms, matrices);
    device.launch(line_extremes_fp32 { source, chunks, extremes: found })?;
    device.launch(line_scales_fp32 {
        extremes: read(found),
        lines,
        matrices,
        chunks: chunks.count,
        factors,
        fallback,
        nonzero,
    })?;
    device.launch(pack_digits_int8 { source, factors: read(factors), words: as_words(words) })
}
