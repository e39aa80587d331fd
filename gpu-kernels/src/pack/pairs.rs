//! Operands as pairs of fp16 numbers, scaled by powers of two: one for each 64 terms of a line.
//!
//! ```text
//!  pack_pairs_fp16, a block for each tile of both operands         a line, packed: for each 64 terms
//!
//!       64 terms                                                    128 bytes for 32 terms           the next 32
//!     ┌──────────┐   1. loads it, whatever its strides              ┌─────────────┬─────────────┐   ┌────────
//!  64 │ 4 threads│   2. finds each line's extremes                  │ high parts, │ low parts,  │   │
//!  lines a line  │   3. scales it, splits its numbers, stores       │ 16 words    │ 16 words    │   │
//!     └──────────┘   4. notes what the tile has                     └─────────────┴─────────────┘   └────────
//!                                                                     zeros behind the last term
//!                                                                 and the factor of each line for these 64 terms
//! ```
//!
//! With s the power of two that brings the largest magnitude among 64 terms of a line, a *block* of it, to between 2¹⁴ and 2¹⁵, but at
//! most 2⁷⁴, and x' = s·x, exactly:
//!
//! ```text
//!  high = fp16(x')          low = fp16((x' - high) · 2¹¹)          x' ≈ high + low · 2⁻¹¹          factor = 1 / s
//! ```
//!
//! A block of its own has a scale of its own, so one pass does: nothing has to be known of the rest of the line. The kernel that
//! multiplies adds up 64 terms at a time anyway, and multiplies the sum by the factors when it adds it to the others.
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
//! Every number of a block therefore keeps 22 bits **if s times the smallest magnitude is at least 2⁻¹⁴**. That is what *element by
//! element* asks for: by their exponents, the smallest is at least 2⁻²⁸ of the largest, or where that is below 2⁻⁶⁰, at least 2⁻⁸⁸.
//! Otherwise the error of a number that is smaller is at most 2⁻³⁶ / 2¹⁴ = 2⁻⁵⁰ of the largest of its block, or 2⁻²² of it if that is
//! from 2⁻⁸⁸ to 2⁻⁶⁰: what *normwise* means.
//!
//! # What is not packed
//!
//! Element by element, a number that would keep less than 22 bits. If it is the only one of its tile, it is an [exception](super::exceptions): zero
//! here, and in the list of its group of 256 lines, as long as that has room.
//!
//! Left to the fallback is a line with an infinite number or NaN, or one of 2⁷⁸ or more; element by element, one with such a number
//! that is no exception, and the lines of an operand that may [select](crate::gemm::scan), whose products keep all 24;
//! normwise, one with a block whose largest is below 2⁻⁸⁸ (without being zero). Within these bounds the factors are 2⁻⁷⁴ to 2⁶³, and the
//! product of two of them is a number that fp32 has, 2⁻¹⁴⁸ to 2¹²⁶. So a sum of 64 products times two factors, added to others by one
//! fused operation, is rounded once, and overflows or vanishes only where the sum of these terms itself does. `fallback` has a word for
//! each [`GROUP`] lines, which is not zero if one of them is left to the fallback. A product leaves the tiles of such lines to a kernel
//! that reads the operands themselves.
//!
//! Nothing here depends on the order in which blocks run. What it costs: reading every number once, and writing as many bytes. 16.6 KB
//! of shared memory; any device.
//!
//! Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
//! peak performance", IJHPCA 36 (2022), section 3, for the two parts and the factor of 2¹¹. The scaling by blocks of lines is ours.

use blocks::reduce::{Combine, combine_lanes};
use blocks::uniform::this_thread;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::convert::{f16x2, from_f16x2};
use cuda_std::prelude::*;

use super::exceptions::InTile;
use super::scaled::{LEAST, MAGNITUDE, MOST, TOP, padded, scale};
use super::tile::{self, PITCH, Place, SIDE, THREADS, Tile, Tiles};
use crate::MatrixBatch;
use crate::gemm::hopper::fallback::GROUP;

/// What a low part is scaled by in addition.
pub const LOW_SCALE: f32 = 2048.0;
/// The terms that stand together: high parts, then low parts.
const TOGETHER: u32 = 32;
/// The words of either.
const PAIRS: u32 = TOGETHER / 2;
/// The terms of a block.
pub const BLOCK: u32 = SIDE;
/// The threads that have a line of a tile.
const TEAM: u32 = THREADS / SIDE;
/// The terms of [`TOGETHER`] that a thread has.
const EACH: u32 = TOGETHER / TEAM;
/// The warps of a block.
pub(super) const WARPS: usize = (THREADS / warp::LANES) as usize;
/// The bits of an fp32 number that a power of two has not.
const BELOW_ONE: u32 = (1 << 23) - 1;
/// By how much the exponents of a block's numbers may differ.
const SPAN: u32 = 28;

/// The words from one line to the next, for lines of `terms` terms.
#[inline(always)]
pub const fn pitch(terms: u32) -> u32 {
    terms.div_ceil(TOGETHER) * TOGETHER
}

/// The words that all lines of a batch take.
#[cfg(not(target_arch = "nvptx64"))]
fn words_of(source: &MatrixBatch<'_>) -> u128 {
    let (lines, terms) = (source.first().rows(), source.first().cols());
    u128::from(source.count()) * u128::from(lines) * u128::from(pitch(terms))
}

/// The words with the factors of so many matrices: for each block, one for each two lines, and room up to a whole group of lines.
pub fn factor_words(lines: u32, terms: u32, matrices: u32) -> u128 {
    u128::from(padded(lines) / 2) * u128::from(terms.div_ceil(BLOCK)) * u128::from(matrices)
}

/// The tiles of so many matrices.
pub fn tiles(lines: u32, terms: u32, matrices: u32) -> u128 {
    u128::from(lines.div_ceil(SIDE)) * u128::from(terms.div_ceil(BLOCK)) * u128::from(matrices)
}

/// Two numbers as pairs of fp16 numbers: the word of their high parts, and that of their low parts.
#[inline(always)]
pub fn split_fp16(pair: [f32; 2]) -> [u32; 2] {
    let high = f16x2(pair[0], pair[1]);
    let [first, second] = from_f16x2(high);
    [high, f16x2((pair[0] - first) * LOW_SCALE, (pair[1] - second) * LOW_SCALE)]
}

/// What a tile has, in the bits of a word.
#[derive(Clone, Copy)]
pub(super) struct Contents {
    /// A number other than zero.
    pub(super) any: bool,
    /// A line that is left to the fallback.
    pub(super) unfit: bool,
    /// Numbers that no operand has which selects.
    pub(super) other: bool,
    /// One number that is an exception.
    pub(super) exception: Option<InTile>,
}

impl Contents {
    /// The bits before the place of the exception.
    const BITS: u32 = 4;

    const NOTHING: Self = Self { any: false, unfit: false, other: false, exception: None };

    #[inline(always)]
    fn word(self) -> u32 {
        let exception = match self.exception {
            Some(InTile(place)) => 8 | place << Self::BITS,
            None => 0,
        };
        u32::from(self.any) | u32::from(self.unfit) << 1 | u32::from(self.other) << 2 | exception
    }

    #[inline(always)]
    pub(super) fn of_word(word: u32) -> Self {
        let exception = if word & 8 != 0 { Some(InTile(word >> Self::BITS)) } else { None };
        Self { any: word & 1 != 0, unfit: word & 2 != 0, other: word & 4 != 0, exception }
    }
}

/// Of two parts of a tile only one may have an exception.
impl Combine<1> for Contents {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        self.any |= other.any;
        self.unfit |= other.unfit || self.exception.is_some() && other.exception.is_some();
        self.other |= other.other;
        self.exception = self.exception.or(other.exception);
    }

    #[inline(always)]
    fn words(self) -> [u32; 1] {
        [self.word()]
    }

    #[inline(always)]
    fn of_words([word]: [u32; 1]) -> Self {
        Self::of_word(word)
    }
}

/// What becomes of a block of a line.
#[derive(Clone, Copy)]
struct Fit {
    /// What a product with these numbers is to be multiplied by.
    factor: f32,
    /// It is left to the fallback.
    unfit: bool,
    /// Numbers of an exponent below this are too small. None is, if it is zero.
    least: u32,
}

/// The largest magnitude seen, and the smallest apart from zero.
#[derive(Clone, Copy)]
struct Extremes {
    /// As bits. Those of what is not finite are larger than all others.
    largest: u32,
    /// As bits, less one, which makes zero the largest that there is.
    smallest: u32,
}

impl Extremes {
    const NONE: Self = Self { largest: 0, smallest: u32::MAX };

    #[inline(always)]
    fn see(&mut self, x: f32) {
        let bits = x.to_bits() & MAGNITUDE;
        self.largest = self.largest.max(bits);
        self.smallest = self.smallest.min(bits.wrapping_sub(1));
    }

    /// What becomes of these numbers.
    #[inline(always)]
    fn fit(self, element_by_element: bool) -> Fit {
        if self.largest == 0 {
            return Fit { factor: 0.0, unfit: false, least: 0 };
        }
        // The exponent of a subnormal number counts as one less than it may be, where it does not matter.
        let (top, bottom) = (self.largest >> 23, self.smallest.wrapping_add(1) >> 23);
        if top >= MOST {
            return Fit { factor: 1.0, unfit: true, least: 0 };
        }
        let scaled = top.max(LEAST);
        let (factor, least) = (f32::from_bits((scaled - TOP) << 23), scaled - SPAN);
        match element_by_element {
            true => Fit { factor, unfit: false, least: if bottom < least { least } else { 0 } },
            false => Fit { factor, unfit: top < least, least: 0 },
        }
    }
}

impl Combine<2> for Extremes {
    #[inline(always)]
    fn and(&mut self, other: Self) {
        self.largest = self.largest.max(other.largest);
        self.smallest = self.smallest.min(other.smallest);
    }

    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.largest, self.smallest]
    }

    #[inline(always)]
    fn of_words([largest, smallest]: [u32; 2]) -> Self {
        Self { largest, smallest }
    }
}

/// An operand that is packed, and where what is made of it goes: line l of matrix i begins at word `(i · lines + l) · pitch`. Its factor for block b
/// is in word `(i · blocks + b) · ⌈lines / GROUP⌉ · GROUP / 2 + l / 2` of `factors`, in the lower half for an even line: the upper half of an fp32
/// number, which is all of a power of two that is not zero. `contents` has a word for each tile, blocks side by side: whether there is anything
/// but zero, whether a line is left to the fallback, and where the exception is, if there is one.
///
/// All words are given as the fp32 numbers that have their bits. The factors behind those of the last line, up to a whole group, are zero, as
/// those of blocks of zeros are.
#[repr(C)]
#[derive(Clone, Copy, KernelParam)]
pub struct ToPairs<'a> {
    /// The operand, whose rows are lines.
    pub source: MatrixBatch<'a>,
    /// The lines, packed; at a multiple of 16 bytes.
    pub words: GlobalSliceMut<'a, f32>,
    /// Their factors.
    pub factors: GlobalSliceMut<'a, f32>,
    /// What the tiles have.
    pub contents: GlobalSliceMut<'a, u32>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl ToPairs<'_> {
    /// Whether there is room for everything.
    fn have_room(&self) -> bool {
        let (lines, terms, matrices) = (self.source.first().rows(), self.source.first().cols(), self.source.count());
        self.words.len() as u128 >= words_of(&self.source)
            && self.factors.len() as u128 >= factor_words(lines, terms, matrices)
            && self.contents.len() as u128 >= tiles(lines, terms, matrices)
            && self.words.as_mut_ptr().addr().is_multiple_of(16)
    }
}

/// The shared memory in which tiles are packed.
#[derive(Clone, Copy)]
struct Memory {
    tile: &'static Tile,
    found: &'static Shared<[u32; WARPS]>,
}

/// Packs the tiles of an operand from number `first` on, and then every one that is so many further on as there are blocks. Returns the first
/// number beyond the last tile. (No closure for [`Tiles::for_each`]: one that is called in two places is not inlined, and has its operand in memory.)
///
/// # Safety
/// As for [`pack_tile`], for all of these tiles.
#[inline(always)]
unsafe fn pack_tiles(operand: &ToPairs<'_>, first: u64, element_by_element: u32, memory: Memory) -> u64 {
    let tiles = Tiles::of(&operand.source);
    let mut tile = first;
    while let Some(place) = tiles.place(tile) {
        // SAFETY: the caller's promise; all threads of the block come here, for the same tiles, and a barrier is behind each.
        unsafe {
            pack_tile(operand, place, element_by_element, memory);
            thread::sync_threads(); // what has been read may be written for the next tile
        }
        tile += u64::from(thread::grid_dim_x());
    }
    tile
}

/// Packs a tile.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`] together, with memory that nothing else uses, for a tile of an operand for which there is room. No
/// other block packs this tile.
#[inline(always)]
unsafe fn pack_tile(operand: &ToPairs<'_>, place: Place, element_by_element: u32, memory: Memory) {
    let &ToPairs { source, words, factors, contents } = operand;
    let (lines, terms) = (source.first().rows(), source.first().cols());
    let thread = this_thread();
    let (line, of_team) = (thread / TEAM, thread % TEAM);
    let (pitch, blocks) = (pitch(terms), terms.div_ceil(BLOCK));
    // SAFETY: the caller's promise. Barriers separate what is written to shared memory from what others read of it. There is room for all
    // lines, their factors and the contents of their tiles. Each word, each factor and the word of a tile are of one thread; groups of
    // four words begin at multiples of four, as the pitch and the first word do.
    unsafe {
        tile::load(&source.at(place.matrix), place, memory.tile);
        thread::sync_threads();
        // Neighbouring threads read eight terms each, and lines are 65 numbers apart: all from different banks.
        let number = |half: u32, i: u32| (half * TOGETHER + of_team * EACH + i) as usize;
        let at = |half: u32, i: u32| [line as usize, number(half, i)];
        let (mut seen, mut sum_of_bits) = (Extremes::NONE, 0u32);
        for half in 0..2 {
            for i in 0..EACH {
                let x = memory.tile.read(at(half, i));
                seen.see(x);
                sum_of_bits = sum_of_bits.wrapping_add(x.to_bits() & MAGNITUDE);
            }
        }
        // Of a thread with more than one number, the sum is another one; or else, by chance, the fallback sees better.
        let other = element_by_element == 0 || sum_of_bits != seen.largest || seen.largest & BELOW_ONE != 0;
        let seen = combine_lanes(seen, TEAM);
        let Fit { factor, unfit, least } = seen.fit(element_by_element != 0);
        let mut small = Contents::NOTHING;
        if warp::warp_vote_any(warp::ALL_LANES, least != 0) {
            let mut index = 0;
            while index < 2 * EACH {
                let at = at(index / EACH, index % EACH);
                let magnitude = memory.tile.read(at).to_bits() & MAGNITUDE;
                if magnitude != 0 && magnitude >> 23 < least {
                    small.and(Contents { exception: Some(InTile::new(line, at[1] as u32)), ..Contents::NOTHING });
                    // (Each thread has its own numbers.)
                    memory.tile.write(at, 0.0);
                }
                index = hint::keep_rolled(index + 1);
            }
            small = combine_lanes(small, warp::LANES);
        }
        let any = warp::warp_vote_any(warp::ALL_LANES, seen.largest != 0);
        let unfit = warp::warp_vote_any(warp::ALL_LANES, unfit);
        let other = warp::warp_vote_any(warp::ALL_LANES, other);
        let found = Contents { any, unfit: unfit || small.unfit, other, exception: small.exception };
        if warp::lane_id() == 0 {
            memory.found.write((thread::thread_idx_x() / warp::LANES) as usize, found.word());
        }
        let matrix_block = u64::from(place.matrix) * u64::from(blocks) + u64::from(place.across);
        // The next line's is the next team's.
        let next = warp::warp_shuffle_xor(warp::ALL_LANES, factor, TEAM, warp::LANES).0;
        if of_team == 0 && line % 2 == 0 {
            let first = matrix_block * padded(lines) + u64::from(place.line);
            let word = f32::from_bits(factor.to_bits() >> 16 | next.to_bits());
            factors.set_unchecked(((first + u64::from(line)) / 2) as usize, word);
            // Behind the last tile of lines, the group has none.
            let mut behind = if lines - place.line <= SIDE { SIDE } else { GROUP };
            while behind < GROUP - place.line % GROUP {
                factors.set_unchecked(((first + u64::from(line + behind)) / 2) as usize, 0.0);
                behind = hint::keep_rolled(behind + SIDE);
            }
        }
        if place.line + line < lines {
            let scale = scale(factor);
            let of_line = u64::from(place.matrix) * u64::from(lines) + u64::from(place.line + line);
            let first = of_line * u64::from(pitch) + u64::from(place.term + of_team * (EACH / 2));
            for half in 0..2 {
                if place.term + half as u32 * TOGETHER < pitch {
                    let (mut highs, mut lows) = ([0.0; EACH as usize / 2], [0.0; EACH as usize / 2]);
                    for i in 0..EACH as usize / 2 {
                        let pair = [0, 1].map(|j| memory.tile.read(at(half as u32, (2 * i + j) as u32)) * scale);
                        let [high, low] = split_fp16(pair);
                        (highs[i], lows[i]) = (f32::from_bits(high), f32::from_bits(low));
                    }
                    let word = first as usize + half * TOGETHER as usize;
                    words.set4_unchecked(word, highs);
                    words.set4_unchecked(word + PAIRS as usize, lows);
                }
            }
        }
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            let mut all = Contents::NOTHING;
            for warp in 0..WARPS {
                all.and(Contents::of_word(memory.found.read(warp)));
            }
            let tile_rows = u64::from(place.matrix) * u64::from(lines.div_ceil(SIDE));
            let tile = (tile_rows + u64::from(place.line / SIDE)) * u64::from(blocks) + u64::from(place.across);
            contents.set_unchecked(tile as usize, all.word());
        }
    }
}

/// Packs all lines of two operands; which of them are left to the fallback depends on `element_by_element`: if that is not zero, or normwise.
#[kernel(block = 256, min_blocks = 5, requires(a.have_room(), b.have_room()))]
pub fn pack_pairs_fp16(a: ToPairs<'_>, b: ToPairs<'_>, element_by_element: u32) {
    static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
    static FOUND: Shared<[u32; WARPS]> = Shared::new();
    let memory = Memory { tile: &TILE, found: &FOUND };
    // SAFETY: all threads of the block come here, the memory is theirs, and a launch has checked that there is room. Tiles of B follow those of A in
    // number, so each is one block's.
    unsafe {
        let next = pack_tiles(&a, thread::block_idx_x().into(), element_by_element, memory);
        pack_tiles(&b, next - Tiles::of(&a.source).count, element_by_element, memory);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl crate::Grid for pack_pairs_fp16<'_> {
    fn grid(&self) -> Dim3 {
        let count = |operand: &ToPairs<'_>| Tiles::of(&operand.source).count;
        crate::geometry::line_of_blocks(count(&self.a).saturating_add(count(&self.b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: fn(i32) -> f64 = |exponent| 2f64.powi(exponent);

    /// What two parts hold of a number.
    fn held(x: f32) -> f64 {
        let [high, low] = split_fp16([x, -x]).map(|word| from_f16x2(word)[0]);
        f64::from(high) + f64::from(low) / f64::from(LOW_SCALE)
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

    /// The factors of a block, and whether it is unfit or has numbers that are too small: element by element and normwise.
    fn block(numbers: &[f32]) -> [(f32, bool); 2] {
        let mut seen = Extremes::NONE;
        numbers.iter().for_each(|&x| seen.see(x));
        [true, false].map(|element_by_element| {
            let Fit { factor, unfit, least } = seen.fit(element_by_element);
            (factor, unfit || least != 0)
        })
    }

    fn power(exponent: i32) -> f32 {
        POWER(exponent) as f32
    }

    #[test]
    fn a_block_is_fit_exactly_if_its_numbers_keep_22_bits() {
        for top in [-60, -59, -3, 0, 14, 15, 77] {
            for largest in [power(top), -(power(top + 1).next_down())] {
                let factor = power(top - 14);
                assert_eq!(block(&[0.0, largest, power(top - 28)]), [(factor, false); 2]);
                assert_eq!(scale(factor), power(14 - top));
                assert!((power(14)..power(15)).contains(&(largest.abs() * scale(factor))));
                let too_small = -(power(top - 28).next_down());
                assert_eq!(block(&[largest, too_small]), [(factor, true), (factor, false)]);
            }
        }
        for largest in [f32::INFINITY, f32::NAN, f32::MAX, power(78)] {
            assert_eq!(block(&[0.0, -largest]), [(1.0, true); 2], "{largest:e}");
        }
        assert_eq!(block(&[1.0, f32::from_bits(0xFF80_0001), 2.0]), [(1.0, true); 2]);
        assert_eq!([block(&[0.0, -0.0]), block(&[])], [[(0.0, false); 2]; 2]);
        assert_eq!(block(&[1.0, 1e-45]), [(power(-14), true), (power(-14), false)]);
    }

    #[test]
    fn small_blocks_are_scaled_no_further_than_the_product_of_two_factors_allows() {
        let factor = power(-74);
        for top in [-61, -75, -88] {
            assert_eq!(block(&[power(top), -power(-88)]), [(factor, false); 2]);
            let too_small = power(-88).next_down();
            assert_eq!(block(&[power(top), too_small]), [(factor, true), (factor, false)]);
        }
        assert_eq!(block(&[power(-89)]), [(factor, true); 2]);
        assert_eq!(block(&[1e-45]), [(factor, true); 2]);
        // The smallest that is fit still has its 22 bits.
        let least = power(-88) * scale(factor);
        assert_eq!(least, power(-14));
        // All factors that there are, and their products.
        let [least, most] = [LEAST, MOST - 1].map(|top| f32::from_bits((top - TOP) << 23));
        assert_eq!([least, most], [power(-74), power(63)]);
        assert_eq!([least * least, most * most], [power(-148), power(126)]);
    }
}
