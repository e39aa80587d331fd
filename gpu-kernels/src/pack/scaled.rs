//! Operands as pairs of fp16 numbers, each line scaled by a power of two of its own.
//!
//! ```text
//!  line_extremes_fp32           line_scales_fp16            pack_scaled_fp16
//!
//!  chunks of terms              one thread for a line       32 terms                        the next 32
//!  ┌────┬────┬────┐             ┌───────────┐               ┌─────────────┬─────────────┐   ┌────────
//!  │ min, max of  │ ──────────► │ factor    │ ────────────► │ high parts, │ low parts,  │   │
//!  │ each line    │             │ fallback? │               │ 16 words    │ 16 words    │   │
//!  └────┴────┴────┘             └───────────┘               └─────────────┴─────────────┘   └────────
//!                                                            128 bytes; zeros behind the last term
//! ```
//!
//! With s the power of two that brings the largest magnitude of the line to between 2¹⁴ and 2¹⁵, and x' = s·x, exactly:
//!
//! ```text
//!  high = fp16(x')          low = fp16((x' - high) · 2¹¹)          x' ≈ high + low · 2⁻¹¹          factor = 1 / s
//! ```
//!
//! # How exact that is
//!
//! Let 2ᵉ ≤ |x'| < 2ᵉ⁺¹. An fp16 number has 11 bits, and none below 2⁻²⁴. So `x' - high`, which is exact in fp32, is at most
//! 2ᵉ⁻¹¹ for e ≥ -14, and low at most 2ᵉ. Rounding low loses at most 2ᵉ⁻¹² (half of the last of its 11 bits), or 2⁻²⁵ (half of
//! the smallest fp16 number) where that is more; of x' that is 2⁻¹¹ as much. As a part of x':
//!
//! ```text
//!  e ≥ -13    at most 2⁻²³         e = -14    at most 2⁻²⁵ · 2⁻¹¹ / 2⁻¹⁴ = 2⁻²²         below: the same 2⁻³⁶, so more
//! ```
//!
//! Every number of a line therefore keeps 22 bits **if the smallest magnitude is at least 2⁻²⁸ of the largest**, by their
//! exponents: 2¹⁴ · 2⁻²⁸ = 2⁻¹⁴. That is what *element by element* asks for. Otherwise the error is at most 2⁻³⁶ / 2¹⁴ = 2⁻⁵⁰ of
//! the largest number of the line for those that are smaller than that: what *normwise* means.
//!
//! # What is left to the fallback
//!
//! A line with an infinite number or NaN, or whose largest magnitude is below 2⁻⁶⁰ (without being zero), or 2⁷⁸ or more: within
//! these bounds the factors are 2⁻⁷⁴ to 2⁶³, and the product of two of them is a number that fp32 has, if a subnormal one; so a
//! sum times that product is rounded once at most. Element by element, also a line with numbers that are too small beside the
//! largest. `fallback` has a word for each [`GROUP`] lines, which is not zero if one of them is left to the fallback. A product leaves the tiles of
//! such lines to a kernel that reads the operands themselves.
//!
//! Nothing here depends on the order in which blocks run. What it costs: reading every number twice, and writing as many bytes
//! as there are. 16.6 KB of shared memory; any device.
//!
//! Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
//! peak performance", IJHPCA 36 (2022), section 3, for the two parts and the factor of 2¹¹. The scaling by lines is ours.

use blocks::reduce::{Combine, combine_lanes};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::convert::{f16x2, from_f16x2};
use cuda_std::prelude::*;

use super::tile::{self, PITCH, SIDE, THREADS, Tiles, is_along_terms};
use crate::gemm::hopper::fallback::GROUP;
use crate::gemm::hopper::fp16_pairs::LOW_SCALE;
use crate::{Matrix, MatrixBatch};

/// The terms that stand together: high parts, then low parts.
pub(super) const TOGETHER: u32 = 32;
/// The words of either.
pub(super) const PAIRS: u32 = TOGETHER / 2;
/// The words from one line to the next, for lines of `terms` terms.
#[inline(always)]
pub const fn pitch(terms: u32) -> u32 {
    terms.div_ceil(TOGETHER) * TOGETHER
}

/// The factors of a matrix of so many lines.
#[inline(always)]
pub(super) fn padded(lines: u32) -> u64 {
    u64::from(lines.div_ceil(GROUP)) * u64::from(GROUP)
}

/// The words that all lines of a batch take.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn words_of(source: &MatrixBatch<'_>) -> u128 {
    let (lines, terms) = (source.first().rows(), source.first().cols());
    u128::from(source.count()) * u128::from(lines) * u128::from(pitch(terms))
}

/// By how much the low part is larger than its share.
const LOW: f32 = LOW_SCALE;
/// The exponent to which the largest number of a line is brought.
const TOP: u32 = 14;
/// The bias of an exponent of fp32.
const BIAS: u32 = 127;
/// The exponents of the largest number of a line that is fit: from 2⁻⁶⁰ to just below 2⁷⁸.
const LEAST: u32 = BIAS - 60;
const MOST: u32 = BIAS + 78;
/// By how much the exponents of a line's numbers may differ.
const SPAN: u32 = 28;
/// The bits of a number apart from its sign.
const MAGNITUDE: u32 = 0x7FFF_FFFF;

/// The lines that a block of [`line_extremes_fp32`] looks at, and its warps.
const LINES: u32 = 32;
const WARPS: u32 = THREADS / 32;
/// The numbers that a thread loads before it looks at the first.
const AT_A_TIME: u32 = 16;
/// The chunks whose extremes a thread of [`line_scales_fp16`] loads before it looks at the first.
const CHUNKS_AT_A_TIME: usize = 8;

/// Two numbers as pairs of fp16 numbers: the word of their high parts, and that of their low parts.
#[inline(always)]
pub fn split_fp16(pair: [f32; 2]) -> [u32; 2] {
    let high = f16x2(pair[0], pair[1]);
    let [first, second] = from_f16x2(high);
    [high, f16x2((pair[0] - first) * LOW, (pair[1] - second) * LOW)]
}

/// The largest magnitude seen, the smallest apart from zero, and between which terms the numbers stand that are not zero: no
/// others stand outside, but there may be zeros inside at both ends, since whole chunks or pairs are told from one another.
#[derive(Clone, Copy)]
pub(super) struct Extremes {
    /// As bits. Those of what is not finite are larger than all others.
    pub(super) largest: u32,
    /// As bits, less one, which makes zero the largest that there is.
    smallest: u32,
    /// All terms before this one are zero.
    begin: u32,
    /// All from this one on are.
    end: u32,
}

impl Extremes {
    /// How many words they are.
    pub(super) const WORDS: usize = 4;

    pub(super) const NONE: Self = Self { largest: 0, smallest: u32::MAX, begin: u32::MAX, end: 0 };

    /// Sees a number, wherever it stands.
    #[inline(always)]
    pub(super) fn see(&mut self, x: f32) {
        let bits = x.to_bits() & MAGNITUDE;
        self.largest = self.largest.max(bits);
        self.smallest = self.smallest.min(bits.wrapping_sub(1));
    }

    /// The same, where what has been seen that is not zero stands from term `begin` to `end`.
    #[inline(always)]
    pub(super) fn within(self, begin: u32, end: u32) -> Self {
        if self.largest == 0 { self } else { Self { begin, end, ..self } }
    }

    /// Writes them to words `at`, and as far behind the beginning of each further quarter.
    ///
    /// # Safety
    /// There is such a word in the first quarter, and this thread alone accesses these words.
    #[inline(always)]
    #[track_caller]
    pub(super) unsafe fn store(self, to: GlobalSliceMut<'_, u32>, at: usize) {
        let (quarter, words) = (to.len() / Self::WORDS, self.words());
        for i in 0..Self::WORDS {
            // SAFETY: the caller's promise.
            unsafe { to.set_unchecked(i * quarter + at, words[i]) };
        }
    }

    /// Reads what [`Extremes::store`] has written.
    ///
    /// # Safety
    /// There is such a word in the first quarter, and nobody writes to these words.
    #[inline(always)]
    #[track_caller]
    unsafe fn read(from: GlobalSlice<'_, u32>, at: usize) -> Self {
        let quarter = from.len() / Self::WORDS;
        // SAFETY: the caller's promise.
        Self::of_words([0, 1, 2, 3].map(|i| unsafe { from.get_unchecked(i * quarter + at) }))
    }

    /// Those of every `step`th number of a line, from `first` to `end`.
    ///
    /// # Safety
    /// There is such a line, and `end` is not beyond it.
    #[inline(always)]
    #[track_caller]
    unsafe fn of(source: &Matrix<'_>, line: u32, first: u32, end: u32, step: u32) -> Self {
        let mut seen = Self::NONE;
        let mut term = first;
        while term + (AT_A_TIME - 1) * step < end {
            // SAFETY: inside the matrix: there is such a line, and the terms are below the end.
            let values: [f32; AT_A_TIME as usize] =
                core::array::from_fn(|i| unsafe { source.at(line, term + i as u32 * step) });
            for i in 0..AT_A_TIME as usize {
                seen.see(values[i]);
            }
            term += AT_A_TIME * step;
        }
        while term < end {
            // SAFETY: as above.
            seen.see(unsafe { source.at(line, term) });
            term += step;
        }
        seen
    }

    /// What a product with a line is to be multiplied by, and whether the line is left to the fallback.
    #[inline(always)]
    pub(super) fn factor(&self, element_by_element: bool) -> (f32, bool) {
        if self.largest == 0 {
            return (1.0, false);
        }
        // The exponent of a subnormal number counts as one less than it may be, where it does not matter.
        let (top, bottom) = (self.largest >> 23, self.smallest.wrapping_add(1) >> 23);
        if !(LEAST..MOST).contains(&top) {
            return (1.0, true);
        }
        (f32::from_bits((top - TOP) << 23), element_by_element && bottom + SPAN < top)
    }
}

impl Combine<{ Extremes::WORDS }> for Extremes {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
        self.smallest = self.smallest.min(other.smallest);
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
    }

    #[inline(always)]
    fn words(self) -> [u32; Self::WORDS] {
        [self.largest, self.smallest, self.begin, self.end]
    }

    #[inline(always)]
    fn of_words([largest, smallest, begin, end]: [u32; Self::WORDS]) -> Self {
        Self { largest, smallest, begin, end }
    }
}

/// The power of two that a factor takes back.
#[inline(always)]
pub(super) fn scale(factor: f32) -> f32 {
    f32::from_bits(2 * (BIAS << 23) - factor.to_bits())
}

/// How lines are cut for [`line_extremes_fp32`]: the terms of a chunk, and the number of chunks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelParam)]
pub struct Chunks {
    /// The terms of each, but the last may have fewer.
    pub terms: u32,
    /// How many there are.
    pub count: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Chunks {
    /// Enough of them to keep a GPU busy, but not so many that they are work themselves.
    pub fn of(lines: u32, terms: u32, matrices: u32) -> Self {
        const BLOCKS: u64 = 2048;
        const MOST: u32 = 64;
        const FEWEST_TERMS: u32 = 512;
        let blocks = u64::from(lines.div_ceil(LINES)) * u64::from(matrices);
        let wanted = BLOCKS.div_ceil(blocks.max(1)).min(MOST.into()) as u32;
        let count = wanted.min(terms.div_ceil(FEWEST_TERMS)).max(1);
        let chunk = terms.div_ceil(count).next_multiple_of(32).max(32);
        Self { terms: chunk, count: terms.div_ceil(chunk) }
    }

    /// The words that the extremes of all chunks take.
    pub fn words(&self, lines: u32, matrices: u32) -> u128 {
        Extremes::WORDS as u128 * u128::from(matrices) * u128::from(self.count) * u128::from(lines)
    }

    /// Whether they cover lines of `terms` terms, and no more.
    fn cover(&self, terms: u32) -> bool {
        self.terms > 0 && self.count == terms.div_ceil(self.terms)
    }
}

/// Finds the extremes of every chunk of every line: for chunk c of line l of matrix i, the largest magnitude is word
/// `(i · chunks + c) · lines + l`. As far behind the beginnings of the second, the third and the fourth quarter, there are the
/// smallest magnitude but zero, less one, and where the terms begin and end that are not all zero: by whole chunks.
#[kernel(
    block = 256,
    min_blocks = 6,
    requires(
        chunks.cover(source.first().cols()),
        extremes.len() as u128 == chunks.words(source.first().rows(), source.count())
    )
)]
pub fn line_extremes_fp32(source: MatrixBatch<'_>, chunks: Chunks, extremes: GlobalSliceMut<'_, u32>) {
    static SEEN: Shared<[[u32; LINES as usize]; WARPS as usize * Extremes::WORDS]> = Shared::new();
    let first = source.first();
    let (lines, terms) = (first.rows(), first.cols());
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
    // SAFETY: all threads of the block come here, for the same tiles, and go the same way. A launch has checked that there is a
    // word in each quarter for every line of every chunk; each is written by one thread. A barrier separates what is written to
    // shared memory from the reads, and `for_each` has another one for the next writes. Lines and terms are inside the matrix.
    unsafe {
        Tiles::with(&source, LINES, chunks.count, chunks.terms).for_each(|place| {
            let source = source.at(place.matrix);
            let end = (place.term + chunks.terms).min(terms);
            let to = u64::from(place.matrix) * u64::from(chunks.count) + u64::from(place.across);
            let to = (to * u64::from(lines) + u64::from(place.line)) as usize;
            let write = |line: u32, seen: Extremes| seen.within(place.term, end).store(extremes, to + line as usize);
            if is_along_terms(lines, first.row_stride(), first.col_stride()) {
                // A warp has a line at a time.
                let mut line = warp;
                while line < LINES && place.line + line < lines {
                    let seen = combine_lanes(Extremes::of(&source, place.line + line, place.term + lane, end, 32), 32);
                    if lane == 0 {
                        write(line, seen);
                    }
                    line += WARPS;
                }
                return;
            }
            // A lane has a line, and the warps share its terms.
            let mut seen = Extremes::NONE;
            if place.line + lane < lines {
                seen = Extremes::of(&source, place.line + lane, place.term + warp, end, WARPS);
            }
            let (words, lane_index) = (seen.words(), lane as usize);
            for i in 0..Extremes::WORDS {
                SEEN.write([warp as usize * Extremes::WORDS + i, lane_index], words[i]);
            }
            thread::sync_threads();
            if warp == 0 && place.line + lane < lines {
                for warp in 1..WARPS as usize {
                    let word = |i: usize| SEEN.read([warp * Extremes::WORDS + i, lane_index]);
                    seen.and(Extremes::of_words([0, 1, 2, 3].map(word)));
                }
                write(lane, seen);
            }
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for line_extremes_fp32<'_> {
    fn grid(&self) -> Dim3 {
        let Chunks { terms, count } = self.chunks;
        crate::geometry::line_of_blocks(Tiles::with(&self.source, LINES, count, terms).count)
    }
}

/// From the extremes that [`line_extremes_fp32`] has found in `chunks` chunks, the factor of every line, and for each [`GROUP`]
/// lines whether any is left to the fallback, `element_by_element` if that is not zero, or normwise, and two words: where the terms begin and end
/// that are not all zero. The factors of a matrix are filled up with ones to whole groups: that of line l of matrix i is number
/// `i · ⌈lines / GROUP⌉ · GROUP + l`.
#[kernel(
    block = 256,
    requires(
        fallback.len() as u64 == u64::from(lines.div_ceil(GROUP)) * u64::from(matrices),
        factors.len() as u64 == fallback.len() as u64 * u64::from(GROUP),
        nonzero.len() == fallback.len() * 2,
        extremes.len() as u128 == Chunks { terms: 0, count: chunks }.words(lines, matrices)
    )
)]
pub fn line_scales_fp16(
    extremes: GlobalSlice<'_, u32>,
    lines: u32,
    matrices: u32,
    chunks: u32,
    factors: GlobalSliceMut<'_, f32>,
    fallback: GlobalSliceMut<'_, u32>,
    nonzero: GlobalSliceMut<'_, u32>,
    element_by_element: u32,
) {
    /// Of each warp: whether a line is left to the fallback, and where the terms begin and end that are not zero.
    static SEEN: Shared<[[u32; 3]; WARPS as usize]> = Shared::new();
    const { assert!(GROUP == THREADS, "each thread has a line of the group") };
    let thread = thread::thread_idx_x();
    let of_a_matrix = lines.div_ceil(GROUP);
    let groups = u64::from(of_a_matrix) * u64::from(matrices);
    let mut group = u64::from(thread::block_idx_x());
    while group < groups {
        let matrix = group.checked_div(of_a_matrix.into()).unwrap_or(0);
        let line = (group - matrix * u64::from(of_a_matrix)) * u64::from(GROUP) + u64::from(thread);
        // SAFETY: a launch has checked that there are words for every chunk of every line, a factor for each line, and a word
        // for each group. Each is written by one thread. All threads of the block come here for the same groups; barriers
        // separate what is written to shared memory from the reads, and the reads from the next writes.
        unsafe {
            let mut seen = Extremes::NONE;
            if line < u64::from(lines) {
                let first = (matrix * u64::from(chunks) * u64::from(lines) + line) as usize;
                let mut chunk = 0;
                while chunk < chunks {
                    // Some at a time; behind the last one, that again, which changes nothing.
                    let some: [Extremes; CHUNKS_AT_A_TIME] = core::array::from_fn(|i| {
                        let chunk = (chunk + i as u32).min(chunks - 1);
                        Extremes::read(extremes, first + chunk as usize * lines as usize)
                    });
                    for i in 0..CHUNKS_AT_A_TIME {
                        seen.and(some[i]);
                    }
                    chunk += CHUNKS_AT_A_TIME as u32;
                }
            }
            let (factor, is_unfit) = seen.factor(element_by_element != 0);
            factors.set_unchecked(group as usize * GROUP as usize + thread as usize, factor);
            let any_of_warp = warp::warp_vote_any(warp::ALL_LANES, is_unfit);
            let of_warp = combine_lanes(seen, 32);
            if warp::lane_id() == 0 {
                let warp = (thread / 32) as usize;
                SEEN.write([warp, 0], any_of_warp.into());
                SEEN.write([warp, 1], of_warp.begin);
                SEEN.write([warp, 2], of_warp.end);
            }
            thread::sync_threads();
            if thread == 0 {
                let (mut any, mut begin, mut end) = (0, u32::MAX, 0);
                for warp in 0..WARPS as usize {
                    any |= SEEN.read([warp, 0]);
                    begin = begin.min(SEEN.read([warp, 1]));
                    end = end.max(SEEN.read([warp, 2]));
                }
                fallback.set_unchecked(group as usize, any);
                nonzero.set_unchecked(2 * group as usize, begin);
                nonzero.set_unchecked(2 * group as usize + 1, end);
            }
            thread::sync_threads();
        }
        group += u64::from(thread::grid_dim_x());
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for line_scales_fp16<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(u64::from(self.lines.div_ceil(GROUP)) * u64::from(self.matrices))
    }
}

/// Writes the high and the low parts of all lines: line l of matrix i begins at word `(i · lines + l) · pitch`.
#[kernel(
    block = 256,
    min_blocks = 5,
    requires(
        factors.len() as u64 == padded(source.first().rows()) * u64::from(source.count()),
        words.len() as u128 >= words_of(&source)
    )
)]
pub fn pack_scaled_fp16(source: MatrixBatch<'_>, factors: GlobalSlice<'_, f32>, words: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    let (lines, terms) = (source.first().rows(), source.first().cols());
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
    let pitch = pitch(terms);
    // SAFETY: all threads of the block come here, for the same tiles; a barrier separates what is written to the tile in
    // shared memory from what others read of it, and `for_each` has another one. A launch has checked that there is a factor
    // for each line, and room for all; each word is of one tile, and of one lane of one warp.
    unsafe {
        Tiles::of(&source).for_each(|place| {
            tile::load(&source.at(place.matrix), place, &TILE);
            thread::sync_threads();
            let first_line = (u64::from(place.matrix) * u64::from(lines) + u64::from(place.line)) as usize;
            let first_factor = (u64::from(place.matrix) * padded(lines) + u64::from(place.line)) as usize;
            for i in 0..SIDE / WARPS {
                let line = warp + i * WARPS;
                if place.line + line >= lines {
                    continue;
                }
                let scale = scale(factors.get_unchecked(first_factor + line as usize));
                let first_word = (first_line + line as usize) * pitch as usize;
                for group in 0..SIDE / TOGETHER {
                    // Half of the lanes write high parts, the others the low parts of the same terms.
                    let (term, part) = (group * TOGETHER + lane % PAIRS * 2, lane / PAIRS);
                    let pair = [0, 1].map(|i| TILE.read([line as usize, term as usize + i]) * scale);
                    let [high, low] = split_fp16(pair);
                    let word = place.term + group * TOGETHER;
                    if word < pitch {
                        words.set_unchecked(first_word + (word + lane) as usize, if part == 0 { high } else { low });
                    }
                }
            }
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for pack_scaled_fp16<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(Tiles::of(&self.source).count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: fn(i32) -> f64 = |exponent| 2f64.powi(exponent);

    /// What two parts hold of a number.
    fn held(x: f32) -> f64 {
        let [high, low] = split_fp16([x, -x]).map(|word| from_f16x2(word)[0]);
        f64::from(high) + f64::from(low) / f64::from(LOW)
    }

    #[test]
    fn two_parts_hold_22_bits_from_2_to_the_minus_14() {
        let mut worst = [0.0f64; 2];
        for exponent in -60..15 {
            for step in 0..4000 {
                // All kinds of low bits.
                let mantissa = 1.0 + f64::from(step * 2097 + step % 7) / POWER(23);
                let x = (mantissa.min(2.0 - POWER(-23)) * POWER(exponent)) as f32;
                let error = (held(x) - f64::from(x)).abs();
                assert!(error <= POWER(-36).max(POWER(exponent - 23)), "{x:e}: {error:e}");
                if exponent >= -14 {
                    worst[0] = worst[0].max(error / f64::from(x));
                } else if exponent == -15 {
                    worst[1] = worst[1].max(error / f64::from(x));
                }
            }
        }
        // As much as allowed, and no more; one power of two below it is too much.
        assert!(worst[0] <= POWER(-22) && worst[0] > POWER(-24), "{:e}", worst[0]);
        assert!(worst[1] > POWER(-22), "{:e}", worst[1]);
    }

    #[test]
    fn a_line_is_fit_exactly_if_its_numbers_keep_22_bits() {
        let line = |numbers: &[f32]| {
            let mut seen = Extremes::NONE;
            numbers.iter().for_each(|&x| seen.see(x));
            (seen.factor(true), seen.factor(false))
        };
        let power = |exponent| POWER(exponent) as f32;
        for top in [-60, -59, -3, 0, 14, 15, 77] {
            for largest in [power(top), -(power(top + 1).next_down())] {
                let fit = ((power(top - 14), false), (power(top - 14), false));
                assert_eq!(line(&[0.0, largest, power(top - 28)]), fit);
                assert_eq!(scale(power(top - 14)), power(14 - top));
                assert!((power(14)..power(15)).contains(&(largest.abs() * scale(power(top - 14)))));
                let too_small = -(power(top - 28).next_down());
                assert_eq!(line(&[largest, too_small]), ((power(top - 14), true), (power(top - 14), false)));
            }
        }
        let all_unfit = ((1.0, true), (1.0, true));
        for largest in [f32::INFINITY, f32::NAN, f32::MAX, power(78), power(-60).next_down(), 1e-45] {
            assert_eq!(line(&[0.0, -largest]), all_unfit, "{largest:e}");
        }
        assert_eq!(line(&[1.0, f32::from_bits(0xFF80_0001), 2.0]), all_unfit);
        assert_eq!(line(&[0.0, -0.0]), ((1.0, false), (1.0, false)));
        assert_eq!(line(&[]), ((1.0, false), (1.0, false)));
        assert_eq!(line(&[1.0, 1e-45]), ((power(-14), true), (power(-14), false)));
    }

    #[test]
    fn chunks_cover_the_lines() {
        for (lines, terms, matrices) in
            [(0, 0, 0), (1, 0, 1), (1, 1, 1), (256, 524_288, 1), (2048, 8192, 1), (2048, 8192, 100), (8205, 2949, 1)]
        {
            let chunks = Chunks::of(lines, terms, matrices);
            assert!(chunks.cover(terms) && chunks.count <= 64, "{chunks:?}");
        }
        assert_eq!(Chunks::of(256, 524_288, 1), Chunks { terms: 8192, count: 64 });
        assert_eq!(Chunks::of(2048, 8192, 1), Chunks { terms: 512, count: 16 });
        assert_eq!(Chunks::of(100_000, 64, 1), Chunks { terms: 64, count: 1 });
        assert_eq!(Chunks::of(i32::MAX as u32, i32::MAX as u32, 1).count, 1);
    }
}
