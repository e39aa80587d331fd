//! Prepares an operand for its kernel: leaves it in place, copies it to a layout that the kernel can load, or packs it.
//!
//! ```text
//!  a b c d e · ·     rows of 5, 7 apart: a tensor map cannot       a b c d e · · ·     in the workspace: rows 8 apart,
//!  f g h i j · ·     describe them                            ──►  f g h i j · · ·     aligned to 256 bytes
//!
//!  a · b · c ·       every other element                      ──►  a b c ·             row-major, or
//!  d · e · f ·                                                     d e f ·             a d · ·  b e · ·  c f · ·
//!
//!  any strides       a kernel of packed operands              ──►  │ab│cd│e0│ …        lines of words
//! ```
//!
//! The copy costs reading and writing the operand once, which is little beside a product of large matrices. Packing is
//! [`gpu_kernels::pack`]'s. An operand that is scaled also stays readable in fp32 for the fallback kernel: in place, or in a copy of those
//! lines that it needs, which are known when both operands have been packed.

use std::ops::Range;

use cuda_std::{GlobalSliceMut, KernelFacts};
use gpu_kernels::gemm::hopper::fallback::GROUP;
use gpu_kernels::gemm::hopper::pairs_info::PairInfo;
use gpu_kernels::pack::copy::Flags;
use gpu_kernels::pack::exceptions::Exceptions;
use gpu_kernels::{Matrix, MatrixBatch, MatrixBatchMut, MatrixMut};

use super::workspace::Layout;
use crate::kernels::{
    COPY, COPY_FLAGGED, Format, KernelInfo, PackedOperand, ScaledFormat, ScaledParts, ToScale, copy_flagged,
    copy_matrices, pack_rounded, pack_scaled,
};
use crate::order::Order;
use crate::packed_matrix::PACKED_PARTS;
use crate::placement::Placement;
use crate::views::{read, words};
use crate::{Device, Error, Precision};

/// The elements at whose multiples the lines of copies begin: 16 bytes.
const LINE_ALIGNMENT: usize = 4;

/// The parts of a workspace that an operand can have.
pub(crate) const PARTS: usize = PACKED_PARTS + 1;

/// A part that there is not.
const NONE: Range<usize> = 0..0;

/// How an operand gets to the kernel that multiplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// The kernel reads it where it is.
    InPlace,
    /// It is copied into the workspace.
    Copied(Copied),
    /// It is packed into the workspace.
    Packed(Packed),
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The part of the workspace, in elements.
    part: Range<usize>,
    /// How the copies lie there.
    placement: Placement,
    /// How many matrices are copied: one where all products share it.
    count: usize,
}

/// Packed lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    format: Format,
    /// Whether the lines are the rows of the operand.
    lines_are_rows: bool,
    /// The part of the workspace that has the packed words.
    words: Range<usize>,
    /// What scaled lines have besides.
    scaled: Option<Scaled>,
    /// The elements of all matrices.
    elements: u128,
    /// Whether they have been packed before, elsewhere: then there are no parts for them, but for a copy.
    before: bool,
}

/// What goes with lines that are scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scaled {
    /// What is found on the way.
    found: Range<usize>,
    factors: Range<usize>,
    fallback_groups: Range<usize>,
    nonzero: Range<usize>,
    exceptions: Range<usize>,
    /// The operand as another kernel can multiply it, if it cannot where it is.
    copy: Option<Copied>,
}

/// An operand of the product as it is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandOfKernel {
    /// `A` or `B`.
    pub(crate) name: &'static str,
    pub(crate) placement: Placement,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) batch: usize,
    /// How the kernel needs it to be stored, if that matters.
    pub(crate) needs: Option<Order>,
    /// Whether its lines, whose terms are multiplied, are its rows.
    pub(crate) lines_are_rows: bool,
    /// The precision that it has been packed for before, if it has.
    pub(crate) packed: Option<Precision>,
}

/// An operand that is ready.
pub(crate) struct Prepared<'a> {
    /// As it is or as a copy.
    pub(crate) operand: MatrixBatch<'a>,
    /// As it is packed; nothing if it is not.
    pub(crate) packed: PackedOperand<'a>,
    /// What has yet to be scaled, and in which format: with the other operand.
    scaling: Option<(ToScale<'a>, ScaledFormat)>,
    /// Where the copy comes from and goes to, by lines, if it has yet to be made.
    pending: Option<(MatrixBatch<'a>, MatrixBatchMut<'a>)>,
}

impl Prepared<'_> {
    /// Queues what is left to do of an operand alone.
    pub(crate) fn finish_one(&self, device: &Device) -> Result<(), Error> {
        self.scaling.map_or(Ok(()), |(operand, format)| pack_scaled(device, [Some(operand), None], format))
    }

    /// Queues what is done of two operands together: scaling them, and then copies of the lines of each that the fallback needs.
    pub(crate) fn finish([a, b]: [&Self; 2], device: &Device) -> Result<(), Error> {
        let operands = [a, b].map(|operand| operand.scaling.map(|(operand, _)| operand));
        if let Some((_, format)) = a.scaling.or(b.scaling) {
            pack_scaled(device, operands, format)?;
        }
        for (operand, other) in [(a, b), (b, a)] {
            let Some((from, to)) = operand.pending else { continue };
            let [own, others] = [operand, other].map(|operand| operand.packed.scales.fallback);
            let [count, of_others] = [operand, other].map(|operand| operand.operand.distinct());
            let others_of_one =
                if count == of_others { others.len() as u32 / count.max(1) } else { others.len() as u32 };
            let flags = Flags { own, other: others, others_of_one };
            copy_flagged(device, from, to, flags)?;
        }
        Ok(())
    }
}

impl OperandOfKernel {
    /// A of a product, wherever the kernel takes it from.
    pub(super) fn left(placement: Placement, [rows, cols]: [usize; 2], batch: usize) -> Self {
        Self { name: "A", placement, rows, cols, batch, needs: None, lines_are_rows: true, packed: None }
    }

    /// B of a product, likewise.
    pub(super) fn right(placement: Placement, [rows, cols]: [usize; 2], batch: usize) -> Self {
        Self { name: "B", placement, rows, cols, batch, needs: None, lines_are_rows: false, packed: None }
    }

    /// What a kernel needs to happen to the operand, so that another one, too, can multiply it if `keep` says so. What comes of
    /// it takes parts of the layout; `None` if that is too large.
    pub(crate) fn prepare(&self, kernel: &KernelInfo, keep: bool, layout: &mut Layout) -> Option<Preparation> {
        if let Some(format) = kernel.contract.format() {
            let before = self.packed == Some(kernel.precision());
            return Some(Preparation::Packed(self.pack(format, before, keep, layout)?));
        }
        let Some(needs) = self.needs else { return Some(Preparation::InPlace) };
        let can_be_loaded = match (kernel.loads_by_tensor_maps(), kernel.contract.loads_fours()) {
            (false, _) => true,
            (true, false) => self.has_tensor_map(),
            (true, true) => {
                let is_k_major = needs == self.order_of_lines();
                self.placement.lines_of_fours(self.rows, self.cols, self.batch, is_k_major).is_some()
            }
        };
        if self.placement.order() == Some(needs) && can_be_loaded {
            return Some(Preparation::InPlace);
        }
        Some(Preparation::Copied(self.copy(needs, layout)?))
    }

    /// How the fallback kernel reads the operand: as it is stored, if a tensor map can
    /// describe it so, otherwise in a copy.
    pub(crate) fn order_of_fallback(&self) -> Order {
        self.placement.order().unwrap_or(self.order_of_lines())
    }

    /// The order in which the terms of a line are neighbours.
    fn order_of_lines(&self) -> Order {
        Order::of_transposed(!self.lines_are_rows)
    }

    fn has_tensor_map(&self) -> bool {
        self.placement.fits_tensor_map(self.rows, self.cols, self.batch)
    }

    fn copy(&self, needs: Order, layout: &mut Layout) -> Option<Copied> {
        let [lines, length] = needs.lines(self.rows, self.cols);
        let line_stride = length.next_multiple_of(LINE_ALIGNMENT);
        let count = self.placement.distinct(self.batch);
        let part = layout.part((lines as u128 * line_stride as u128).checked_mul(count as u128)?)?;
        let batch_stride = if count > 1 { lines * line_stride } else { 0 };
        let [row_stride, col_stride] = needs.strides(line_stride, 1);
        let placement = Placement { row_stride, col_stride, batch_stride, alignment: 256 };
        Some(Copied { part, placement, count })
    }

    /// `before` says whether that has been done; `keep`, whether another kernel is to be able to multiply the operand, too.
    pub(super) fn pack(&self, format: Format, before: bool, keep: bool, layout: &mut Layout) -> Option<Packed> {
        let [lines, terms] = self.order_of_lines().lines(self.rows, self.cols);
        let matrices = self.placement.distinct(self.batch);
        let all_lines = matrices as u128 * lines as u128;
        let mut part = |elements: u128| if before { Some(0..0) } else { layout.part(elements) };
        let words = part(all_lines.checked_mul(format.pitch(terms as u32).into())?)?;
        let scaled = match format {
            Format::Bf16 | Format::Fp16 => None,
            Format::Scaled(scaled) => {
                let groups = matrices as u128 * (lines as u32).div_ceil(GROUP) as u128;
                let [found, factors] = scaled.found_and_factors(lines as u32, terms as u32, matrices as u32);
                let (found, factors) = (part(found)?, part(factors)?);
                let fallback_groups = part(groups)?;
                let nonzero = part(2 * groups)?;
                let exceptions = part(scaled.exceptions(lines as u32, matrices as u32))?;
                let is_fit = self.placement.order().is_some() && self.has_tensor_map();
                let copy = match keep && !is_fit {
                    true => Some(self.copy(self.order_of_fallback(), layout)?),
                    false => None,
                };
                Some(Scaled { found, factors, fallback_groups, nonzero, exceptions, copy })
            }
        };
        let lines_are_rows = self.lines_are_rows;
        Some(Packed { format, lines_are_rows, words, scaled, elements: all_lines * terms as u128, before })
    }
}

impl Copied {
    fn bytes(&self) -> usize {
        self.part.len() * size_of::<f32>()
    }

    /// Where the matrices come from and where they go, and the operand as it is then.
    fn views<'a>(
        &self,
        operand: MatrixBatch<'a>,
        memory: GlobalSliceMut<'a, f32>,
    ) -> Result<(MatrixBatch<'a>, MatrixBatchMut<'a>, MatrixBatch<'a>), Error> {
        let Self { placement: Placement { row_stride, col_stride, batch_stride, .. }, count, .. } = *self;
        let first = operand.first();
        let (rows, cols) = (first.rows() as usize, first.cols() as usize);
        let from = MatrixBatch::new(first, operand.stride() as usize, count)?;
        let to = MatrixMut::new(memory, rows, cols, row_stride, col_stride)?;
        let copy = Matrix::new(read(memory), rows, cols, row_stride, col_stride)?;
        let copy = MatrixBatch::new(copy, batch_stride, operand.count() as usize)?;
        Ok((from, MatrixBatchMut::new(to, batch_stride, count)?, copy))
    }

    fn run<'a>(
        &self,
        device: &Device,
        operand: MatrixBatch<'a>,
        memory: GlobalSliceMut<'a, f32>,
    ) -> Result<MatrixBatch<'a>, Error> {
        let (from, to, copy) = self.views(operand, memory)?;
        copy_matrices(device, from, to)?;
        Ok(copy)
    }
}

impl Packed {
    /// The parts of memory, but for a copy.
    pub(super) fn parts(&self) -> [Range<usize>; PACKED_PARTS] {
        let words = self.words.clone();
        match &self.scaled {
            None => [words, NONE, NONE, NONE, NONE, NONE],
            Some(Scaled { found, factors, fallback_groups, nonzero, exceptions, .. }) => {
                let [found, factors] = [found, factors].map(Range::clone);
                [words, found, factors, fallback_groups.clone(), nonzero.clone(), exceptions.clone()]
            }
        }
    }

    /// Rounded lines are packed here, and scaled ones with those of the other operand. What has been packed `before` is as it is.
    fn run<'a>(
        &self,
        device: &Device,
        operand: MatrixBatch<'a>,
        [for_words, for_found, for_factors, for_fallback, for_nonzero, for_exceptions, for_copy]: [GlobalSliceMut<'a, f32>;
            PARTS],
        before: Option<PackedOperand<'a>>,
    ) -> Result<Prepared<'a>, Error> {
        let first = if self.lines_are_rows { operand.first() } else { operand.first().transposed() };
        let source = MatrixBatch::new(first, operand.stride() as usize, operand.distinct() as usize)?;
        if self.before {
            let packed = before.expect("a plan for what has been packed is run with that").with_source(source);
            return self.with_copy(operand, for_copy, Prepared { operand, packed, scaling: None, pending: None });
        }
        let packed_words = read(words(for_words));
        let Format::Scaled(format) = self.format else {
            pack_rounded(device, source, self.format == Format::Bf16, words(for_words))?;
            let packed = PackedOperand { words: packed_words, ..PackedOperand::nothing() };
            return Ok(Prepared { operand, packed, scaling: None, pending: None });
        };
        let [found, fallback_groups, nonzero, exceptions] =
            [for_found, for_fallback, for_nonzero, for_exceptions].map(words);
        let parts = ScaledParts { found, factors: for_factors, fallback_groups, nonzero, exceptions, words: for_words };
        let scaling = Some((ToScale { source, parts }, format));
        let scales = PairInfo {
            factors: read(for_factors),
            fallback: read(fallback_groups),
            nonzero: read(nonzero),
            exceptions: Exceptions { lists: read(exceptions), source },
        };
        let packed = PackedOperand { words: packed_words, scales };
        self.with_copy(operand, for_copy, Prepared { operand, packed, scaling, pending: None })
    }

    /// The same with the copy that the fallback reads, where it needs one.
    fn with_copy<'a>(
        &self,
        operand: MatrixBatch<'a>,
        memory: GlobalSliceMut<'a, f32>,
        prepared: Prepared<'a>,
    ) -> Result<Prepared<'a>, Error> {
        let Some(copy) = self.scaled.as_ref().and_then(|scaled| scaled.copy.as_ref()) else { return Ok(prepared) };
        let (from, to, operand) = copy.views(operand, memory)?;
        let pending = if self.lines_are_rows { (from, to) } else { (from.transposed(), to.transposed()) };
        Ok(Prepared { operand, pending: Some(pending), ..prepared })
    }
}

impl Preparation {
    /// Whether it was packed before, and nothing is done to it.
    pub(super) fn was_packed(&self) -> bool {
        matches!(self, Self::Packed(packed) if packed.before)
    }

    /// The kernels that two operands take, in the order in which they are launched.
    pub(crate) fn kernels_of(both: &[Self; 2]) -> Vec<KernelFacts> {
        let [a, b] = both.each_ref().map(Self::kernels);
        let b = if both[0].is_with_the_other() { &[] } else { b };
        let copies = both.iter().filter_map(|operand| operand.copied_for_fallback().map(|_| COPY_FLAGGED));
        a.iter().chain(b).copied().chain(copies).collect()
    }

    /// Whether the launches that pack it also pack the other operand, if that is packed.
    fn is_with_the_other(&self) -> bool {
        matches!(self, Self::Packed(packed) if packed.format.packs_both() && !packed.before)
    }

    /// The kernels that make of it what the multiplying kernel takes.
    fn kernels(&self) -> &'static [KernelFacts] {
        match self {
            Self::InPlace => &[],
            Self::Copied(_) => &[COPY],
            Self::Packed(packed) if packed.before => &[],
            Self::Packed(packed) => packed.format.kernels(),
        }
    }

    /// The bytes that these read and write. (Usually, nothing is copied for the fallback.)
    pub(crate) fn traffic(&self) -> f64 {
        match self {
            Self::InPlace => 0.0,
            Self::Copied(copy) => 2.0 * copy.bytes() as f64,
            Self::Packed(Packed { before: true, .. }) => 0.0,
            Self::Packed(Packed { format, words, elements, .. }) => {
                format.reads() * 4.0 * *elements as f64 + 4.0 * words.len() as f64
            }
        }
    }

    /// The copy of what the fallback needs, if it needs one.
    fn copied_for_fallback(&self) -> Option<&Copied> {
        match self {
            Self::InPlace | Self::Copied(_) => None,
            Self::Packed(packed) => packed.scaled.as_ref()?.copy.as_ref(),
        }
    }

    /// What is done to an operand of this name alone, or to it and the other one in launches for both, in words.
    /// `transposed` says whether the product is computed as the transpose.
    pub(crate) fn step(&self, name: &str, other: &Self, transposed: bool) -> Option<String> {
        let kernels = self.kernels().iter().map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
        match self {
            Self::InPlace => None,
            Self::Copied(Copied { placement, count, .. }) => {
                let all = if *count == 1 { "" } else { ", all of the batch," };
                let placement = if transposed { placement.transposed() } else { *placement };
                Some(format!("copy {name}{all} into the workspace, {placement}, with {kernels}"))
            }
            Self::Packed(packed) if packed.before => None,
            Self::Packed(packed) => {
                let together = self.is_with_the_other() && other.is_with_the_other();
                let both = if together { ", which pack A and B together" } else { "" };
                Some(format!("pack {name} into the workspace: {}, with {kernels}{both}", packed.format.words()))
            }
        }
    }

    /// What is done when both operands have been packed, in words.
    pub(crate) fn step_of_fallback(&self, name: &str, transposed: bool) -> Option<String> {
        let Copied { placement, .. } = self.copied_for_fallback()?;
        let placement = if transposed { placement.transposed() } else { *placement };
        let kernel = COPY_FLAGGED.name;
        Some(format!("copy what the fallback needs of {name} into the workspace, {placement}, with {kernel}"))
    }

    /// Why it is necessary, or is not, in words.
    pub(crate) fn notes(&self, name: &str) -> Vec<String> {
        match self {
            Self::InPlace => Vec::new(),
            Self::Copied(_) => vec![format!("{name} is copied first, because the kernel cannot load it as it lies")],
            Self::Packed(packed) => {
                let before = packed.before.then(|| format!("{name} has been packed before"));
                let copied = self.copied_for_fallback().map(|_| {
                    format!("what the fallback needs of {name} is copied, because it cannot load {name} as it lies")
                });
                before.into_iter().chain(copied).collect()
            }
        }
    }

    /// The parts of the workspace that it takes, one after the other.
    pub(crate) fn parts(&self) -> [Range<usize>; PARTS] {
        match self {
            Self::InPlace => [NONE; PARTS],
            Self::Copied(copy) => [NONE, NONE, NONE, NONE, NONE, NONE, copy.part.clone()],
            Self::Packed(packed) => {
                let [words, found, factors, fallback_groups, nonzero, exceptions] = packed.parts();
                let copy = self.copied_for_fallback().map_or(NONE, |copy| copy.part.clone());
                [words, found, factors, fallback_groups, nonzero, exceptions, copy]
            }
        }
    }

    /// Queues what has to be done of the operand alone, and gives it as the kernel takes it when [`Prepared::finish`] has queued the rest. `memory`
    /// has the parts of the workspace, `before` what has been packed, if that was planned.
    ///
    /// # Errors
    /// [`Error::Shape`], and those of [`Device::launch`].
    pub(crate) fn run<'a>(
        &self,
        device: &Device,
        operand: MatrixBatch<'a>,
        memory: [GlobalSliceMut<'a, f32>; PARTS],
        before: Option<PackedOperand<'a>>,
    ) -> Result<Prepared<'a>, Error> {
        let unpacked = PackedOperand::nothing();
        match self {
            Self::InPlace => Ok(Prepared { operand, packed: unpacked, scaling: None, pending: None }),
            Self::Copied(copy) => {
                let operand = copy.run(device, operand, memory[PARTS - 1])?;
                Ok(Prepared { operand, packed: unpacked, scaling: None, pending: None })
            }
            Self::Packed(packed) => packed.run(device, operand, memory, before),
        }
    }
}
