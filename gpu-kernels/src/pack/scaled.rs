//! A power of two for each line of an operand, which brings its largest number to a given range: for
//! [`digits`](super::digits).
//!
//! ```text
//!  line_extremes_fp32           line_scales_fp32
//!
//!  chunks of terms              one thread for a line
//!  ┌────┬────┬────┐             ┌───────────┐
//!  │ the largest  │ ──────────► │ factor    │ ────────────►  the kernel that packs
//!  │ of each line │             │ fallback? │
//!  └────┴────┴────┘             └───────────┘
//! ```
//!
//! With s the power of two that brings the largest magnitude of the line to between 2¹⁴ and 2¹⁵, the factor is 1 / s: what a product
//! with the scaled line is to be multiplied by.
//!
//! # What is left to the fallback
//!
//! A line with an infinite number or NaN, or whose largest magnitude is below 2⁻⁶⁰ (without being zero), or 2⁷⁸ or more: within
//! these bounds the factors are 2⁻⁷⁴ to 2⁶³, and the product of two of them is a number that fp32 has, if a subnormal one; so a
//! sum times that product is rounded once at most. `fallback` has a word for each [`GROUP`] lines, which is not zero if one of them is
//! left to the fallback. A product leaves the tiles of such lines to a kernel that reads the operands themselves.
//!
//! Nothing here depends on the order in which blocks run. What it costs: reading every number once. Any device.

use blocks::reduce::{Combine, combine_lanes};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

use super::tile::{THREADS, Tiles, is_along_terms};
use crate::gemm::hopper::fallback::GROUP;
use crate::{Matrix, MatrixBatch};

/// The factors of a matrix of so many lines.
#[inline(always)]
pub(super) fn padded(lines: u32) -> u64 {
    u64::from(lines.div_ceil(GROUP)) * u64::from(GROUP)
}

/// The exponent to which the largest number of a line is brought.
pub(super) const TOP: u32 = 14;
/// The bias of an exponent of fp32.
pub(super) const BIAS: u32 = 127;
/// The exponents of the largest number of a line that is fit: from 2⁻⁶⁰ to just below 2⁷⁸.
pub(super) const LEAST: u32 = BIAS - 60;
pub(super) const MOST: u32 = BIAS + 78;
/// The bits of a number apart from its sign.
pub(super) const MAGNITUDE: u32 = 0x7FFF_FFFF;

/// The lines that a block of [`line_extremes_fp32`] looks at, and its warps.
const LINES: u32 = 32;
const WARPS: u32 = THREADS / 32;
/// The numbers that a thread loads before it looks at the first.
const AT_A_TIME: u32 = 16;
/// The chunks whose extremes a thread of [`line_scales_fp32`] loads before it looks at the first.
const CHUNKS_AT_A_TIME: usize = 8;

/// The largest magnitude seen, and between which terms the numbers stand that are not zero: no others stand outside, but there may be
/// zeros inside at both ends, since whole chunks are told from one another.
#[derive(Clone, Copy)]
struct Extremes {
    /// As bits. Those of what is not finite are larger than all others.
    largest: u32,
    /// All terms before this one are zero.
    begin: u32,
    /// All from this one on are.
    end: u32,
}

impl Extremes {
    /// How many words they are.
    const WORDS: usize = 3;

    const NONE: Self = Self { largest: 0, begin: u32::MAX, end: 0 };

    /// Sees a number, wherever it stands.
    #[inline(always)]
    fn see(&mut self, x: f32) {
        self.largest = self.largest.max(x.to_bits() & MAGNITUDE);
    }

    /// The same, where what has been seen that is not zero stands from term `begin` to `end`.
    #[inline(always)]
    fn within(self, begin: u32, end: u32) -> Self {
        if self.largest == 0 { self } else { Self { begin, end, ..self } }
    }

    /// Writes them to words `at`, and as far behind the beginning of each further third.
    ///
    /// # Safety
    /// There is such a word in the first third, and this thread alone accesses these words.
    #[inline(always)]
    #[track_caller]
    unsafe fn store(self, to: GlobalSliceMut<'_, u32>, at: usize) {
        let (third, words) = (to.len() / Self::WORDS, self.words());
        for i in 0..Self::WORDS {
            // SAFETY: the caller's promise.
            unsafe { to.set_unchecked(i * third + at, words[i]) };
        }
    }

    /// Reads what [`Extremes::store`] has written.
    ///
    /// # Safety
    /// There is such a word in the first third, and nobody writes to these words.
    #[inline(always)]
    #[track_caller]
    unsafe fn read(from: GlobalSlice<'_, u32>, at: usize) -> Self {
        let third = from.len() / Self::WORDS;
        // SAFETY: the caller's promise.
        Self::of_words([0, 1, 2].map(|i| unsafe { from.get_unchecked(i * third + at) }))
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
    fn factor(&self) -> (f32, bool) {
        let top = self.largest >> 23;
        match (self.largest, (LEAST..MOST).contains(&top)) {
            (0, _) => (1.0, false),
            (_, false) => (1.0, true),
            (_, true) => (f32::from_bits((top - TOP) << 23), false),
        }
    }
}

impl Combine<{ Extremes::WORDS }> for Extremes {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
    }

    #[inline(always)]
    fn words(self) -> [u32; Self::WORDS] {
        [self.largest, self.begin, self.end]
    }

    #[inline(always)]
    fn of_words([largest, begin, end]: [u32; Self::WORDS]) -> Self {
        Self { largest, begin, end }
    }
}

/// The power of two that a factor takes back.
#[inline(always)]
pub(crate) fn scale(factor: f32) -> f32 {
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
/// `(i · chunks + c) · lines + l`. As far behind the beginnings of the second and the last third, there is where the terms begin and end
/// that are not all zero: by whole chunks.
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
    // word in each third for every line of every chunk; each is written by one thread. A barrier separates what is written to
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
                    seen.and(Extremes::of_words([0, 1, 2].map(word)));
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
/// lines whether any is left to the fallback, and two words: where the terms begin and end that are not all zero. The factors of a matrix are filled up with ones to whole groups: that of line l of matrix i is number
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
pub fn line_scales_fp32(
    extremes: GlobalSlice<'_, u32>,
    lines: u32,
    matrices: u32,
    chunks: u32,
    factors: GlobalSliceMut<'_, f32>,
    fallback: GlobalSliceMut<'_, u32>,
    nonzero: GlobalSliceMut<'_, u32>,
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
            let (factor, is_unfit) = seen.factor();
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
            thread::sync_threads(); // what has been read may be written for the next group
        }
        group += u64::from(thread::grid_dim_x());
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for line_scales_fp32<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(u64::from(self.lines.div_ceil(GROUP)) * u64::from(self.matrices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fit_if_its_largest_number_can_be_scaled() {
        let line = |numbers: &[f32]| {
            let mut seen = Extremes::NONE;
            numbers.iter().for_each(|&x| seen.see(x));
            seen.factor()
        };
        let power = |exponent| 2f64.powi(exponent) as f32;
        for top in [-60, -59, -3, 0, 14, 15, 77] {
            for largest in [power(top), -(power(top + 1).next_down())] {
                assert_eq!(line(&[0.0, largest, 1e-45]), (power(top - 14), false));
                assert_eq!(scale(power(top - 14)), power(14 - top));
                assert!((power(14)..power(15)).contains(&(largest.abs() * scale(power(top - 14)))));
            }
        }
        for largest in [f32::INFINITY, f32::NAN, f32::MAX, power(78), power(-60).next_down(), 1e-45] {
            assert_eq!(line(&[0.0, -largest]), (1.0, true), "{largest:e}");
        }
        assert_eq!(line(&[1.0, f32::from_bits(0xFF80_0001), 2.0]), (1.0, true));
        assert_eq!(line(&[0.0, -0.0]), (1.0, false));
        assert_eq!(line(&[]), (1.0, false));
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
