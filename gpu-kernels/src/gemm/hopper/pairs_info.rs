//! What goes with an operand that has been packed as pairs of fp16 numbers, or as digits: the factors of its lines, which of them are left to the
//! fallback, and between which k there is anything but zeros.

use cuda_std::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::{TileElement, TileSwizzle};

use super::fallback::{Fallback, GROUP, flags_of};
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::LINE_BYTES;
#[cfg(not(target_arch = "nvptx64"))]
use super::pairs_frame::{ELEMENTS, TILE};
use crate::gemm::tiles::{Tile, TileShape};
use crate::pack::exceptions::Exceptions;

/// What packing knows of an operand that is stored as pairs of fp16 numbers, or as digits. Its *lines* are the rows of A, or the columns
/// of B.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct PairInfo<'a> {
    /// What a product with a line is to be multiplied by. Of digits, for each matrix of the batch, for each line. Of pairs, for each matrix, for
    /// each block of terms, for each two lines, a number that has the bits of two factors (`factors_of` in `promotion`). The lines of a matrix are filled
    /// up to a multiple of [`GROUP`].
    pub factors: GlobalSlice<'a, f32>,
    /// For each group of [`GROUP`] lines of each matrix, whether any of them is left to the fallback: not zero.
    pub fallback: GlobalSlice<'a, u32>,
    /// For each of these groups, two words: all lines are zero at every k below the first one, and from the second one on.
    pub nonzero: GlobalSlice<'a, u32>,
    /// The numbers of pairs that are left out. (Digits have none.)
    pub exceptions: Exceptions<'a>,
}

impl PairInfo<'_> {
    /// Whether there are factors of digits of `count` matrices of `lines` lines.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn are_of(&self, count: u32, lines: u32) -> bool {
        let groups = u64::from(count) * u64::from(lines.div_ceil(GROUP));
        self.factors.len() as u64 >= groups * u64::from(GROUP) && self.nonzero.len() as u64 >= groups * 2
    }

    /// Whether there are factors of pairs of `count` matrices of `lines` lines of `terms` terms.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn are_of_pairs(&self, count: u32, lines: u32, terms: u32) -> bool {
        let groups = u64::from(count) * u64::from(lines.div_ceil(GROUP));
        self.factors.len() as u128 >= crate::pack::pairs::factor_words(lines, terms, count)
            && self.nonzero.len() as u64 >= groups * 2
            && self.exceptions.are_of(count, lines, terms)
    }

    /// The words with the factors of the lines from `line` on, an even number, of matrix `product` with `lines` lines, where there is one block of
    /// terms. Those behind the last line may be anything.
    ///
    /// # Safety
    /// As for [`PairInfo::factors`].
    #[inline(always)]
    pub(super) unsafe fn factor_words(&self, product: u32, lines: u32, line: u32) -> GlobalSlice<'_, f32> {
        let first = u64::from(product) * u64::from(lines.div_ceil(GROUP) * GROUP) + u64::from(line);
        // SAFETY: a launch has checked that every two lines of every group have a word.
        unsafe { self.factors.from_unchecked((first / 2) as usize) }
    }

    /// The factors of the lines from `line` on, of matrix `product` with `lines` lines.
    ///
    /// # Safety
    /// There are such a matrix and such a line; the result is read up to the end of the line's group only.
    #[inline(always)]
    pub(super) unsafe fn factors(&self, product: u32, lines: u32, line: u32) -> GlobalSlice<'_, f32> {
        let first = u64::from(product) * u64::from(lines.div_ceil(GROUP) * GROUP) + u64::from(line);
        // SAFETY: a launch has checked that every line of every group has its factor.
        unsafe { self.factors.from_unchecked(first as usize) }
    }
}

/// The tiles that are left to the fallback. There is a flag for each group, so these are never all tiles for want of flags.
#[inline(always)]
pub(super) fn fallback<'a>([a, b]: [PairInfo<'a>; 2]) -> Fallback<'a> {
    Fallback { a: a.fallback, b: b.fallback }
}

/// The tile without the K-steps at its beginning and its end for which A or B has nothing but zeros.
///
/// # Safety
/// A launch has checked what goes with the operands; the tile is one of the product.
#[inline(always)]
pub(super) unsafe fn without_zeros<'a>(mut tile: Tile<'a>, [a, b]: [PairInfo<'_>; 2], shape: TileShape) -> Tile<'a> {
    let [group_a, group_b] = flags_of(&tile);
    // SAFETY: there are two words for each group, by the caller's promise.
    let (begin, end) = unsafe {
        let words = |info: PairInfo<'_>, group: usize| [0, 1].map(|i| info.nonzero.get_unchecked(2 * group + i));
        let (of_a, of_b) = (words(a, group_a), words(b, group_b));
        (of_a[0].max(of_b[0]), of_a[1].min(of_b[1]))
    };
    tile.k_begin = tile.k_begin.max(begin / shape.k * shape.k);
    tile.k_end = tile.k_end.min(end).max(tile.k_begin);
    tile
}

/// Whether a tensor map is of the factors of `count` packed operands of `lines` lines with `k` numbers each, in tiles of `tile_lines`
/// lines for one block.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describes_factors(map: &TensorMap<'_>, [lines, k, count]: [u32; 3], tile_lines: u32) -> bool {
    let layout = map.layout();
    layout.element == TileElement::Bytes4
        && layout.extents == [lines.div_ceil(2), k.div_ceil(TILE.k), count].map(u64::from)
        && layout.tile == [tile_lines / 2, 1, 1]
        && layout.swizzle == TileSwizzle::None
}

/// Whether a tensor map is of `count` packed operands of `lines` lines with `k` numbers each, in tiles of `tile_lines` lines.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn describes(map: &TensorMap<'_>, [lines, k, count]: [u32; 3], tile_lines: u32) -> bool {
    let elements = u64::from(k.div_ceil(ELEMENTS / 2)) * u64::from(ELEMENTS);
    map.line_bytes() == LINE_BYTES
        && map.layout().extents == [elements, u64::from(lines), u64::from(count)]
        && map.layout().tile == [ELEMENTS, tile_lines, 1]
        && map.layout().swizzle == TileSwizzle::Bytes128
}
