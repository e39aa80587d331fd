//! Operands as integers of four digits of 8 bits, each line scaled by a power of two of its own.
//!
//! ```text
//!  words of a line     plane 0              plane 1              plane 2              plane 3
//!                      ┌──────────┬─ ─ ─┐   ┌──────────┬─ ─ ─┐   ┌─ ─               ┌─ ─
//!                      │d₀ d₀ d₀ d₀│     │   │d₁ d₁ d₁ d₁│     │   │                  │        32 words for each 128 terms,
//!                      └──────────┴─ ─ ─┘   └──────────┴─ ─ ─┘   └─ ─               └─ ─      zeros behind the last one
//!               terms   0  1  2  3            0  1  2  3
//! ```
//!
//! [`scaled`](super::scaled) finds the factor of each line, and which lines have none and are left to the fallback. With s the power of
//! two that brings the largest magnitude of the line to between 2²⁹ and 2³⁰:
//!
//! ```text
//!  s·x, rounded to an integer  =  d₀·2²⁴ + d₁·2¹⁶ + d₂·2⁸ + d₃          -128 ≤ d ≤ 127, and |d₀| ≤ 64
//! ```
//!
//! # How exact that is
//!
//! A number is rounded to a multiple of 2⁻²⁹ to 2⁻³⁰ of the largest of its line: those that are at least 2⁻⁶ of it, by their exponents, are
//! exact, since they have 24 bits. Let X and Y be the integers of a term, at most 2³⁰ each. Against (s·x)·(t·y) their product is off by
//! at most ½·|X| + ½·|Y| + ¼, about 2³⁰. Of their product, those of digits with i + j > 3 are left out:
//!
//! ```text
//!  d₁·e₃ + d₂·e₂ + d₃·e₁       3·2¹⁴ · 2¹⁶        the others: 2¹⁴ · (2·2⁸ + 1)          3.01·2³⁰ in all
//! ```
//!
//! and nothing else is lost before the sum is rounded. With the largest numbers of the row and the column at least 2²⁹ each:
//!
//! ```text
//!  |E|  ≤  2⁻²⁴·|c|  +  4.02·K·2⁻²⁸ · max|row of A| · max|column of B|           c = A·B exactly, for α = 1 and β = 0
//! ```
//!
//! That is the worst case. What is left out has either sign: on random operands it is less than the rounding of the result.
//!
//! What it costs: reading every number once more, after [`scaled`](super::scaled) has, and writing as many bytes as there are. 16.6 KB of
//! shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::convert::nearest_integer;
use cuda_std::prelude::*;

use super::scaled::{padded, scale};
use super::tile::{self, PITCH, SIDE, THREADS, Tiles};
use crate::MatrixBatch;

/// The digits of a number.
pub const DIGITS: u32 = 4;
/// The terms for each of which a plane has a byte in 128 bytes.
const TOGETHER: u32 = 128;
/// The terms of a word.
const OF_A_WORD: u32 = 4;
/// Beyond 2¹⁴, to which the factor of a line brings its largest number: 2²⁹.
const MORE: f32 = 32_768.0;
/// What makes the digits of a number those of its bytes that are not negative.
const OFFSET: u32 = 0x8080_8080;
/// The warps of a block.
const WARPS: u32 = THREADS / 32;

/// The words from one line to the next, for lines of `terms` terms: four planes.
#[inline(always)]
pub const fn pitch(terms: u32) -> u32 {
    terms.div_ceil(TOGETHER) * (TOGETHER / OF_A_WORD) * DIGITS
}

/// The digits of a number that is scaled, d₀ in the highest byte.
#[inline(always)]
pub fn digits(x: f32) -> u32 {
    // A digit of -128 to 127 is a byte of 0 to 255 less 128.
    (nearest_integer(x) as u32).wrapping_add(OFFSET) ^ OFFSET
}

/// Of four words, those of their highest bytes, the next, and so on to the lowest: the first word's in the lowest byte.
#[inline(always)]
fn planes(words: [u32; 4]) -> [u32; 4] {
    [24, 16, 8, 0].map(|shift| {
        let byte = words.map(|word| word >> shift & 0xFF);
        byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24
    })
}

/// Whether there is room for all lines of a batch.
#[cfg(not(target_arch = "nvptx64"))]
fn fits(source: &MatrixBatch<'_>, words: usize) -> bool {
    let (lines, terms) = (source.first().rows(), source.first().cols());
    u128::from(source.count()) * u128::from(lines) * u128::from(pitch(terms)) <= words as u128
}

/// Writes the digits of all lines: line l of matrix i begins at word `(i · lines + l) · pitch`.
#[kernel(
    block = 256,
    min_blocks = 5,
    requires(
        factors.len() as u64 == padded(source.first().rows()) * u64::from(source.count()),
        fits(&source, words.len())
    )
)]
pub fn pack_digits_int8(source: MatrixBatch<'_>, factors: GlobalSlice<'_, f32>, words: GlobalSliceMut<'_, u32>) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    /// The lanes that have the words of a line of a tile.
    const LANES: u32 = SIDE / OF_A_WORD;
    let (lines, terms) = (source.first().rows(), source.first().cols());
    let (row, lane) = (thread::thread_idx_x() / LANES, thread::thread_idx_x() % LANES);
    let pitch = pitch(terms);
    // SAFETY: all threads of the block come here, for the same tiles; a barrier separates what is written to the tile in
    // shared memory from what others read of it, and `for_each` has another one. A launch has checked that there is a factor
    // for each line, and room for all; the pitch has room for whole tiles, and each word is of one tile and of one thread.
    unsafe {
        Tiles::of(&source).for_each(|place| {
            tile::load(&source.at(place.matrix), place, &TILE);
            thread::sync_threads();
            // A plane ends with whole 128 terms, and there are tiles for what there is.
            let is_half = place.term % TOGETHER == 0 && place.term + SIDE >= terms;
            let first_line = u64::from(place.matrix) * u64::from(lines) + u64::from(place.line);
            let first_factor = (u64::from(place.matrix) * padded(lines) + u64::from(place.line)) as usize;
            for i in 0..SIDE / (2 * WARPS) {
                let line = row + i * 2 * WARPS;
                if place.line + line >= lines {
                    continue;
                }
                let scale = scale(factors.get_unchecked(first_factor + line as usize)) * MORE;
                let term = (lane * OF_A_WORD) as usize;
                let numbers = [0, 1, 2, 3].map(|i| digits(TILE.read([line as usize, term + i]) * scale));
                let word = (first_line + u64::from(line)) * u64::from(pitch) + u64::from(place.term / OF_A_WORD + lane);
                let planes = planes(numbers);
                for plane in 0..DIGITS {
                    let word = (word + u64::from(plane * (pitch / DIGITS))) as usize;
                    words.set_unchecked(word, planes[plane as usize]);
                    if is_half {
                        words.set_unchecked(word + LANES as usize, 0);
                    }
                }
            }
        });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for pack_digits_int8<'_> {
    fn grid(&self) -> Dim3 {
        crate::geometry::line_of_blocks(Tiles::of(&self.source).count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_nearest_integer() {
        let value = |x: f32| {
            let bytes = digits(x).to_be_bytes().map(|byte| i64::from(byte.cast_signed()));
            assert!(bytes[0].abs() <= 64, "{x}");
            bytes.iter().fold(0, |value, digit| value * 256 + digit)
        };
        let largest = ((1u32 << 30) as f32).next_down();
        for x in [0.0, 1.0, -1.0, 127.0, 128.0, -128.0, -129.0, 32_639.0, 32_640.0, 1e9, -1e9, largest, -largest] {
            assert_eq!(value(x), x as i64, "{x}");
        }
        assert_eq!([0.5, 1.5, -2.5, 2.4999, 1e-30].map(value), [0, 2, -2, 2, 0]);
        for step in 0..10_000u32 {
            let x = f32::from_bits(step.wrapping_mul(2_654_435_761) % (30 << 23) + (127 << 23))
                * if step % 2 == 0 { 1.0 } else { -1.0 };
            assert!((value(x) as f64 - f64::from(x)).abs() <= 0.5, "{x}");
        }
    }

    #[test]
    fn a_plane_has_a_byte_of_each_word() {
        assert_eq!(
            planes([0x0102_0304, 0x1112_1314, 0x2122_2324, 0x3132_3334]),
            [0x3121_1101, 0x3222_1202, 0x3323_1303, 0x3424_1404]
        );
        assert_eq!([1, 128, 129].map(pitch), [128, 128, 256]);
    }
}
