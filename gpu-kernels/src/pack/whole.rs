//! Operands as pairs of fp16 numbers, as in [`scaled`](super::scaled), in one pass: for lines that a team of threads can hold in
//! registers from the first term to the last.
//!
//! ```text
//!  line, its terms side by side             a team: as many threads as hold it, from 8 to the 256 of a block
//!  ┌────┬────┬────┬────┬────┬────┬ ─
//!  │ t0 │ t0 │ t1 │ t1 │ t2 │ t2 │          1. each thread loads pairs of terms, `team` pairs apart
//!  └────┴────┴────┴────┴────┴────┴ ─        2. all find the line's extremes together, and with them the scale
//!    pair 0    pair 1    pair 2             3. each splits its pairs and stores them
//! ```
//!
//! [`line_scales_fp16`](super::scaled::line_scales_fp16) then finds the factors and what is left to the fallback from the extremes, as those of
//! one chunk. What it costs: every number is read once, instead of twice, and as many bytes are written. 32 numbers of each
//! thread are under way at a time; any device.

use blocks::reduce::{Combine, combine_lanes};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::prelude::*;

#[cfg(not(target_arch = "nvptx64"))]
use super::scaled::{Chunks, words_of};
use super::scaled::{Extremes, PAIRS, TOGETHER, pitch, scale, split_fp16};
use crate::{Matrix, MatrixBatch};

/// The threads of a block.
const THREADS: u32 = pack_whole_lines_fp16::BLOCK.x;
/// The warps of a block.
const WARPS: u32 = THREADS / warp::LANES;
/// The pairs that a thread holds.
const EACH: usize = 16;
/// The threads of the smallest team: together they store 32 bytes, which is what memory takes at once.
const SMALLEST: u32 = 8;
/// The terms of the longest lines.
pub const MOST_TERMS: u32 = 2 * EACH as u32 * THREADS;

/// The threads that have a line of so many terms: a power of two.
#[inline(always)]
fn team_of(terms: u32) -> u32 {
    terms.div_ceil(2 * EACH as u32).next_power_of_two().clamp(SMALLEST, THREADS)
}

/// Writes the high and the low parts of all lines, and their extremes: line l of matrix i begins at word
/// `(i · lines + l) · pitch`; its extremes are those of a line of one chunk, as
/// [`line_extremes_fp32`](super::scaled::line_extremes_fp32) writes them.
#[kernel(
    block = 256,
    min_blocks = 3,
    requires(
        source.first().cols() <= MOST_TERMS,
        extremes.len() as u128 == Chunks { terms: 1, count: 1 }.words(source.first().rows(), source.count()),
        words.len() as u128 >= words_of(&source)
    )
)]
pub fn pack_whole_lines_fp16(
    source: MatrixBatch<'_>,
    extremes: GlobalSliceMut<'_, u32>,
    words: GlobalSliceMut<'_, u32>,
) {
    static SEEN: Shared<[[u32; Extremes::WORDS]; WARPS as usize]> = Shared::new();
    let (lines, terms) = (source.first().rows(), source.first().cols());
    let team = team_of(terms);
    let (teams, of_block, of_team) = (THREADS / team, thread::thread_idx_x() / team, thread::thread_idx_x() % team);
    let all_lines = u64::from(lines) * u64::from(source.count());
    let mut first = u64::from(thread::block_idx_x()) * u64::from(teams);
    while first < all_lines {
        // Pinned: whatever follows from them for each pair would be kept from line to line, in more registers than there are.
        let mut numbers = [of_team, team, terms];
        hint::pin(&mut numbers);
        let [of_team, team, terms] = numbers;
        let number = first + u64::from(of_block);
        // A team without a line takes the last one, and writes nothing.
        let line = number.min(all_lines - 1);
        let matrix = line.checked_div(lines.into()).unwrap_or(0);
        // SAFETY: such a line is in such a matrix. All threads of the block come here; barriers separate what is written to shared
        // memory from the reads, and the reads from the next writes. A launch has checked that there is room for all lines and
        // their extremes; each word is of one thread of one team.
        unsafe {
            let row = (line - matrix * u64::from(lines)) as u32;
            let pairs = load(&source.at(matrix as u32), row, terms, of_team, team);
            let mut seen = Extremes::NONE;
            // A bit for each pair that is not zero, which takes fewer registers than where they begin and end.
            let mut filled = 0u32;
            for i in 0..EACH {
                seen.see(pairs[i][0]);
                seen.see(pairs[i][1]);
                filled |= u32::from(pairs[i] != [0.0; 2]) << i;
            }
            if filled != 0 {
                let term = |pair: u32| 2 * (of_team + pair * team);
                seen = seen.within(term(filled.trailing_zeros()), term(filled.ilog2()) + 2);
            }
            seen = combine_lanes(seen, team.min(warp::LANES));
            if team > warp::LANES {
                if warp::lane_id() == 0 {
                    let (warp, words) = ((thread::thread_idx_x() / warp::LANES) as usize, seen.words());
                    for i in 0..Extremes::WORDS {
                        SEEN.write([warp, i], words[i]);
                    }
                }
                thread::sync_threads();
                for warp in 0..WARPS as usize {
                    if warp as u32 * warp::LANES / team == of_block {
                        seen.and(Extremes::of_words([0, 1, 2, 3].map(|i| SEEN.read([warp, i]))));
                    }
                }
                thread::sync_threads();
            }
            if number < all_lines {
                if of_team == 0 {
                    seen.store(extremes, line as usize);
                }
                let scale = scale(seen.factor(false).0);
                let first_word = line as usize * pitch(terms) as usize;
                for i in 0..EACH {
                    let pair = of_team + i as u32 * team;
                    if 2 * pair < pitch(terms) {
                        let [high, low] = split_fp16([pairs[i][0] * scale, pairs[i][1] * scale]);
                        let word = first_word + (pair / PAIRS * TOGETHER + pair % PAIRS) as usize;
                        words.set_unchecked(word, high);
                        words.set_unchecked(word + PAIRS as usize, low);
                    }
                }
            }
        }
        first += u64::from(thread::grid_dim_x()) * u64::from(teams);
    }
}

/// The pairs of a line that a thread of a team has, with zeros behind the last term.
///
/// # Safety
/// There is such a line of `terms` terms, which are no more than the team can hold.
#[inline(always)]
#[track_caller]
unsafe fn load(source: &Matrix<'_>, line: u32, terms: u32, of_team: u32, team: u32) -> [[f32; 2]; EACH] {
    let mut pairs = [[0.0; 2]; EACH];
    for i in 0..EACH {
        let begin = 2 * i as u32 * team;
        // The same for all threads: shorter lines need fewer loads.
        if begin < terms {
            for j in 0..2 {
                let term = begin + 2 * of_team + j as u32;
                // Without a branch: all loads are under way before the first number is needed.
                let inside = term < terms;
                // SAFETY: inside the matrix: there is such a line, and it has terms.
                let value = unsafe { source.at(line, if inside { term } else { begin }) };
                pairs[i][j] = if inside { value } else { 0.0 };
            }
        }
    }
    pairs
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for pack_whole_lines_fp16<'_> {
    fn grid(&self) -> Dim3 {
        let first = self.source.first();
        let of_block = THREADS / team_of(first.cols());
        let lines = u64::from(first.rows()) * u64::from(self.source.count());
        crate::geometry::line_of_blocks(lines.div_ceil(of_block.into()))
    }
}
