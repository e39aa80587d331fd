//! Operands rounded to 16 bits, two terms to a word: for kernels that load bf16 or fp16 tiles by TMA.
//!
//! ```text
//!  line l of matrix i:     word (i · lines + l) · pitch                                    pitch words
//!  ┌─────────┬─────────┬─────────┬─ ─ ─┬───────────┬───┬───┐
//!  │ 1  │ 0  │ 3  │ 2  │ 5  │ 4  │     │ 0  │ k-1  │ 0 │ 0 │      pitch = ⌈k / 64⌉ · 32: 128 bytes for each 64 terms
//!  └─────────┴─────────┴─────────┴─ ─ ─┴───────────┴───┴───┘
//!   high  low                                                      each word: an even term in the lower half, the next
//!                                                                  one in the upper; zeros behind the last
//! ```
//!
//! Each warp writes the 128 bytes of a line of a tile at a time. What it costs: reading every number once, and writing half as
//! much. 16.6 KB of shared memory; any device.

#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::convert::{bf16x2, f16x2};
use cuda_std::prelude::*;

use super::tile::{self, PITCH, SIDE, THREADS, Tile, Tiles};
use crate::MatrixBatch;

/// The words from one line to the next, for lines of `terms` terms.
#[inline(always)]
pub const fn pitch(terms: u32) -> u32 {
    terms.div_ceil(SIDE) * (SIDE / 2)
}

/// Whether there is room for all lines of a batch.
#[cfg(not(target_arch = "nvptx64"))]
fn fits(source: &MatrixBatch<'_>, words: usize) -> bool {
    let (lines, terms) = (source.first().rows(), source.first().cols());
    u128::from(source.count()) * u128::from(lines) * u128::from(pitch(terms)) <= words as u128
}

/// The body of both kernels.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`], with a tile that nothing else uses, and room for all lines.
#[inline(always)]
unsafe fn pack(
    source: MatrixBatch<'_>,
    words: GlobalSliceMut<'_, u32>,
    tile: &'static Tile,
    round: impl Fn(f32, f32) -> u32,
) {
    let (lines, terms) = (source.first().rows(), source.first().cols());
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
    // SAFETY: all threads of the block come here, for the same tiles; a barrier separates what is written to the tile in
    // shared memory from what others read of it, and `for_each` has another one. The pitch has room for whole tiles, and
    // there is room for all lines; each word is of one tile, and of one lane of one warp.
    unsafe {
        Tiles::of(&source).for_each(|place| {
            tile::load(&source.at(place.matrix), place, tile);
            thread::sync_threads();
            let first = u64::from(place.matrix) * u64::from(lines) + u64::from(place.line);
            let first = first * u64::from(pitch(terms)) + u64::from(place.term / 2 + lane);
            for i in 0..SIDE / (THREADS / 32) {
                let line = warp + i * (THREADS / 32);
                if place.line + line < lines {
                    let [one, other] = [0, 1].map(|i| tile.read([line as usize, 2 * lane as usize + i]));
                    words
                        .set_unchecked((first + u64::from(line) * u64::from(pitch(terms))) as usize, round(one, other));
                }
            }
        });
    }
}

/// Makes the entry points.
macro_rules! entry_points {
    ($($name:ident, $round:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(block = 256, min_blocks = 5, requires(fits(&source, words.len())))]
        pub fn $name(source: MatrixBatch<'_>, words: GlobalSliceMut<'_, u32>) {
            static TILE: Shared<[[f32; PITCH]; SIDE as usize]> = Shared::new();
            // SAFETY: all threads of the block come here, the tile is theirs, and a launch has checked that there is room.
            unsafe { pack(source, words, &TILE, $round) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                crate::geometry::line_of_blocks(Tiles::of(&self.source).count)
            }
        }
    )* };
}

entry_points! {
    pack_bf16, bf16x2, "Rounds the rows of matrices to bf16, to nearest, ties to even, two terms to a word.";
    pack_fp16, f16x2, "Rounds the rows of matrices to fp16, to nearest, ties to even, two terms to a word.";
}
