//! Attention, `O = softmax(Q·Kᵀ / √d) · V`, on tensor cores from sm_80 on, in fp32 or bf16. Q and O are heads × queries × d, K and V heads
//! × keys × d, with d = 64 or 128. A block has 128 queries of a head, 16 or 32 for each warp, and goes through the keys by tiles of 32 or
//! 64, so that the scores of a query are never in memory (flash attention).
//!
//! ```text
//!              K, a tile of keys in shared memory            V, the same keys in shared memory
//!             ┌───────────────┐                             ┌───────────────┐
//!             └───────┬───────┘                             └───────┬───────┘
//!  Q, 16 rows         ▼                                             ▼
//!  of a warp    S = Q·Kᵀ ──► m' = max(m, max S) ──► P = exp(S − m') ──► O = O · exp(m − m') + P·V        while the next tile is
//!  (registers)               l = l · exp(m − m') + Σ P                                                   copied to the other stage
//!                                                                        at the end O / l
//! ```
//!
//! A row's maximum m is that of the keys so far. Where a tile has a larger one, what was summed up before is scaled down to it: so no
//! exponential is above 1, however large scores are, and a row may be of any length. The difference is taken before it is scaled by
//! `log₂ e / √d`: one fused operation would be faster by an addition, and infinite where scores are beyond 2²⁴.
//!
//! **Registers.** S lies in registers as tensor cores leave it, and its tiles are the left operand of P·V as they are:
//!
//! ```text
//!  lane (g, q) has of a tile of S       row g, keys 2q and 2q + 1           row g + 8, the same
//!  bf16, left operand of 16 keys        positions 2q, 2q + 1 of one tile, then of the next: as they are
//!  TF32, left operand of 8 keys         position q is key 2q, position q + 4 is key 2q + 1: V's rows are taken in this order
//!  V, right operand                     a lane loads 16 bytes of the rows of its keys; number t of them is column g of tile t
//! ```
//!
//! So column `g` of tile `t` of O is `t` numbers behind `8·g` (bf16) or `4·g` (fp32), a lane's columns are neighbours, and V needs no
//! transpose in shared memory. Rows in shared memory are swizzled by their number mod 8: eight rows at one place, for K, and rows `2q` at
//! two places, for V, meet all banks.
//!
//! Causal attention leaves out the keys behind a query's own number, counted from the first of both, as PyTorch's `is_causal` does. Tiles of
//! keys that no query of a block sees are not loaded.
//!
//! Hopper has kernels of its own for bf16 (`hopper`), which are about twice as fast. The others serve every GPU.
//!
//! bf16 has scores and sums in fp32, and P rounded to bf16. In fp32, all products are three TF32 products, with fp32 additions every 16
//! terms ([`blocks::mma_scheme`]): their accuracy is that of fp32 sums, for numbers below 2¹¹⁵. A number that is not finite makes those
//! rows NaN that it has a part in. A row whose scores are all −∞, which only bf16 can have, is NaN, as that of [`softmax`](crate::softmax) is.
//! Without keys, O is zero.
//!
//! Sources: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867 (2018); T. Dao, "FlashAttention-2:
//! faster attention with better parallelism and work partitioning", arXiv:2307.08691 (2023).

mod hopper;
mod precision;
mod rows;

use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::this_thread;
use cuda_std::async_copy::{commit_group, copy_async, wait_group};
use cuda_std::prelude::*;
use cuda_std::{ldmatrix, math};

pub use hopper::{attention_64_wgmma_bf16, attention_128_causal_wgmma_bf16, attention_128_wgmma_bf16};
use precision::{Fp32, Half, Precision};

use crate::row::LANES;

/// The words of a copy of 16 bytes, and those of a chunk: what one product of tensor cores has of a row.
const PIECE: usize = 4;
const CHUNK: usize = 8;

/// The rows of a tile of tensor cores.
const ROWS: usize = 16;

/// Tiles of keys in shared memory at a time: one is multiplied, one is copied.
const STAGES: usize = 2;

/// log₂ e.
const LOG2_E: f32 = core::f32::consts::LOG2_E;

/// How attention is divided: `KEYS` keys in a tile, which have rows of `WORDS` words; `DOWN` tiles of 16 queries in a warp, of `WARPS`.
struct Division<const WORDS: usize, const KEYS: usize, const DOWN: usize, const WARPS: usize>;

/// The dynamic shared memory of a block: the keys of a stage, then their values, then the next stage.
struct Memory {
    stages: SharedArray<u32>,
    bytes: u32,
}

impl<const WORDS: usize, const KEYS: usize, const DOWN: usize, const WARPS: usize> Division<WORDS, KEYS, DOWN, WARPS> {
    /// The words of the keys of a tile, and of their values.
    const TILE: usize = KEYS * WORDS;
    const MEMORY: Memory = {
        assert!(WORDS.is_multiple_of(4 * CHUNK) && KEYS.is_multiple_of(ROWS), "rows of all banks, and pairs of tiles");
        let mut layout = SharedLayout::new();
        let stages = layout.aligned((STAGES * 2 * Self::TILE) as u32, 128);
        Memory { stages, bytes: layout.bytes() }
    };
    /// The queries of a block.
    const QUERIES: usize = WARPS * DOWN * ROWS;
    /// The threads of a block, and the copies of each for the keys of a tile.
    const THREADS: usize = WARPS * LANES;
    const COPIES: usize = Self::TILE / PIECE / Self::THREADS;
}

/// The blocks for so many heads and queries, one at least, if a grid can have as many.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks(heads: u32, queries: u32, of_block: usize) -> Option<u32> {
    let blocks = heads.checked_mul(queries.div_ceil(of_block as u32))?;
    (blocks <= i32::MAX as u32).then_some(blocks.max(1))
}

/// Whether arrays of so many elements are those of so many heads, queries and keys.
#[cfg(not(target_arch = "nvptx64"))]
fn fits([heads, queries, keys, size]: [u32; 4], [q, k, v, o]: [usize; 4]) -> bool {
    let len = |rows: u32| (heads as usize * rows as usize).checked_mul(size as usize);
    len(queries) == Some(q) && len(keys) == Some(k) && v == k && o == q && queries.max(keys) <= i32::MAX as u32 - 1024
}

/// A kernel for each element and each size of heads.
macro_rules! kernels {
    ($(
        $name:ident, $element:ty, $precision:ty, $size:literal, block = $block:literal, min_blocks = $min_blocks:literal,
        <$words:literal, $keys:literal, $down:literal, $warps:literal, $pairs:literal, $halves:literal, $tiles:literal, $of_half:literal>,
        $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = $min_blocks,
            grid = blocks(heads, queries, Division::<$words, $keys, $down, $warps>::QUERIES).unwrap_or(1),
            dynamic_shared = Division::<$words, $keys, $down, $warps>::MEMORY.bytes,
            requires(
                fits([heads, queries, keys, $size], [q.len(), k.len(), v.len(), o.len()]),
                blocks(heads, queries, Division::<$words, $keys, $down, $warps>::QUERIES).is_some(),
                (q.as_ptr().addr() | k.as_ptr().addr() | v.as_ptr().addr() | o.as_mut_ptr().addr()).is_multiple_of(16)
            )
        )]
        pub fn $name(
            heads: u32,
            queries: u32,
            keys: u32,
            causal: u32,
            scale: f32,
            q: GlobalSlice<'_, $element>,
            k: GlobalSlice<'_, $element>,
            v: GlobalSlice<'_, $element>,
            o: GlobalSliceMut<'_, $element>,
        ) {
            const { assert!($words * <$precision as Precision>::PER_WORD == $size && $block == $warps * LANES) };
            let shape = Shape { heads, queries, keys, causal: causal != 0, scale };
            // SAFETY: a block of as many threads as the division has, all of which come here, with its shared memory; the launch has
            // checked the rest.
            unsafe {
                Division::<$words, $keys, $down, $warps>::attend::<$precision, $pairs, $halves, $tiles, $of_half>(
                    shape, q, k, v, o,
                );
            }
        }
    )* };
}

kernels! {
    attention_64_mma_fp32_3xtf32, f32, Fp32, 64, block = 256, min_blocks = 1, <64, 32, 1, 8, 4, 2, 4, 4>,
        "Attention of heads of 64 numbers in fp32. `q` is heads × queries × 64, `k` and `v` are heads × keys × 64, `o` is as `q`. `causal` is 0 \
         or 1; scores are multiplied by `scale`.";
    attention_128_mma_fp32_3xtf32, f32, Fp32, 128, block = 256, min_blocks = 1, <128, 32, 1, 8, 8, 4, 4, 4>,
        "The same of heads of 128 numbers.";
    attention_64_mma_bf16, Bf16, Half, 64, block = 128, min_blocks = 2, <32, 64, 2, 4, 2, 1, 8, 8>,
        "The same of heads of 64 numbers of bf16.";
    attention_128_mma_bf16, Bf16, Half, 128, block = 256, min_blocks = 1, <64, 64, 1, 8, 4, 2, 8, 8>,
        "The same of heads of 128 numbers of bf16.";
}

/// What is attended to.
#[derive(Clone, Copy)]
struct Shape {
    heads: u32,
    queries: u32,
    keys: u32,
    causal: bool,
    scale: f32,
}

/// Where piece `piece` of a row is in the keys or values of a tile.
#[inline(always)]
const fn place<const WORDS: usize>(row: usize, piece: usize) -> usize {
    row * WORDS + (piece ^ (row % 8)) * PIECE
}

impl<const WORDS: usize, const KEYS: usize, const DOWN: usize, const WARPS: usize> Division<WORDS, KEYS, DOWN, WARPS> {
    /// The body of all kernels. A row has `PAIRS` pairs of chunks and `HALVES` times 32 words; a tile of keys has `TILES` tiles of 8; 32 words
    /// of V are `OF_HALF` tiles of O.
    ///
    /// # Safety
    /// All threads of a block of [`Self::THREADS`] come here, with the shared memory of [`Self::MEMORY`]; there are as many elements as the
    /// shape says, in arrays that are aligned to 16 bytes.
    #[inline(always)]
    unsafe fn attend<
        P: Precision,
        const PAIRS: usize,
        const HALVES: usize,
        const TILES: usize,
        const OF_HALF: usize,
    >(
        shape: Shape,
        q: GlobalSlice<'_, P::Element>,
        k: GlobalSlice<'_, P::Element>,
        v: GlobalSlice<'_, P::Element>,
        o: GlobalSliceMut<'_, P::Element>,
    ) {
        const {
            assert!(PAIRS * 2 * CHUNK == WORDS && HALVES * 32 == WORDS && TILES * 8 == KEYS);
            assert!(OF_HALF == P::OF_PIECE && Self::TILE.is_multiple_of(PIECE * Self::THREADS));
        }
        let me = thread::thread_idx_x() as usize;
        let (warp, g, c) = (me / LANES, me % LANES / 4, me % 4);
        let of_head = shape.queries.div_ceil(Self::QUERIES as u32).max(1);
        let heads = shape.heads.max(1);
        // With causal attention the last queries have most to do: those of all heads begin first, so that what is left for the end is short.
        let (head, number) = (thread::block_idx_x() % heads, thread::block_idx_x() / heads);
        if number >= of_head || shape.heads == 0 || shape.queries == 0 {
            return; // the same for the whole block
        }
        let first = (of_head - 1 - number) as usize * Self::QUERIES;
        let (queries, keys) = (shape.queries as usize, shape.keys as usize);
        let of_warp = first + warp * DOWN * ROWS;
        // The keys that some query of the block sees.
        let seen = if shape.causal { keys.min(first + Self::QUERIES) } else { keys };
        let tiles = seen.div_ceil(KEYS);
        // SAFETY: the same memory as words, of which rows have a whole number.
        let words = |x: GlobalSlice<'_, P::Element>, row: usize| unsafe {
            let words: GlobalSlice<'_, u32> = GlobalSlice::from_raw_parts(x.as_ptr().cast(), x.len() / P::PER_WORD);
            words.from_unchecked(head as usize * row * WORDS)
        };
        let (q, k, v) = (words(q, queries), words(k, keys), words(v, keys));
        // SAFETY: as the launch has it.
        let shared = unsafe { Self::MEMORY.stages.slice() };

        // Piece by piece, one thread beside the other along a row. Keys that are not there are zeros: those of V have to be numbers.
        let copy = |tile: usize| {
            let stage = tile % STAGES * 2 * Self::TILE;
            for i in 0..Self::COPIES {
                let piece = i * Self::THREADS + me;
                let (row, piece) = (piece / (WORDS / PIECE), piece % (WORDS / PIECE));
                let key = tile * KEYS + row;
                let (from, count) = if key < keys { (key * WORDS + piece * PIECE, PIECE as u32) } else { (0, 0) };
                let to = stage + place::<WORDS>(row, piece);
                // SAFETY: a whole piece of a row that is there, or nothing. Barriers are between these copies and the reads before and behind.
                unsafe {
                    copy_async::<PIECE, _>(&shared, to, &k, from, count);
                    copy_async::<PIECE, _>(&shared, to + Self::TILE, &v, from, count);
                }
            }
        };

        let mut of_queries = [[[[0u32; 4]; 2]; PAIRS]; DOWN];
        for i in 0..DOWN {
            for pair in 0..PAIRS {
                for chunk in 0..2 {
                    for part in 0..4 {
                        let row = of_warp + i * ROWS + g + part % 2 * 8;
                        let word = (2 * pair + chunk) * CHUNK + c + part / 2 * 4;
                        if row < queries {
                            // SAFETY: the row is there, and has such a word.
                            of_queries[i][pair][chunk][part] = unsafe { q.get_unchecked(row * WORDS + word) };
                        }
                    }
                }
            }
        }
        let mut sums = [[[[0.0f32; 4]; OF_HALF]; HALVES]; DOWN];
        // Of rows g and g + 8 of each tile of queries.
        let mut largest = [[f32::NEG_INFINITY; 2]; DOWN];
        let mut total = [[0.0f32; 2]; DOWN];
        let factor = shape.scale * LOG2_E;

        if tiles > 0 {
            copy(0);
        }
        commit_group();
        let mut tile = 0;
        while tile < tiles {
            wait_group::<0>();
            // SAFETY: all threads of the block come here as often. What a thread waited for is visible to all behind the barrier, and all have
            // read what the next copies overwrite.
            unsafe { thread::sync_threads() };
            if tile + 1 < tiles {
                copy(tile + 1);
            }
            commit_group();
            // A warp none of whose queries sees a key of the tile has nothing to do.
            if !shape.causal || tile * KEYS < of_warp + DOWN * ROWS {
                // SAFETY: the same for the whole warp; the tile was waited for, before the barrier.
                unsafe {
                    let stage = shared.skip(tile % STAGES * 2 * Self::TILE);
                    let mut scores = Self::scores::<P, PAIRS, TILES>(stage, &of_queries);
                    let end = (tile + 1) * KEYS;
                    if end > keys || shape.causal && end > of_warp + 1 {
                        Self::mask(&mut scores, [of_warp, tile * KEYS], keys, shape.causal);
                    }
                    for i in 0..DOWN {
                        let scaling = Self::weigh::<P, TILES>(&mut scores[i], &mut largest[i], &mut total[i], factor);
                        for half in 0..HALVES {
                            for of_half in 0..OF_HALF {
                                for element in 0..4 {
                                    sums[i][half][of_half][element] *= scaling[element / 2];
                                }
                            }
                        }
                    }
                    Self::add_values::<P, HALVES, TILES, OF_HALF>(stage.skip(Self::TILE), &scores, &mut sums);
                }
            }
            tile = hint::keep_rolled(tile as u32 + 1) as usize;
        }

        let mut ids = [thread::block_idx_x(), thread::thread_idx_x()];
        if P::NEEDS_MANY_REGISTERS {
            // Places are found again, rather than kept in registers all the time.
            hint::pin(&mut ids);
        }
        let [block, me] = ids;
        let (head, number, me) = (block % heads, block / heads, me as usize);
        let of_warp = (of_head - 1 - number) as usize * Self::QUERIES + me / LANES * DOWN * ROWS;
        let (g, c) = (me % LANES / 4, me % 4);
        for i in 0..DOWN {
            for half_row in 0..2 {
                // SAFETY: all lanes come here.
                let total = unsafe { of_group(total[i][half_row], |one, other| one + other) };
                let inverse = if tiles == 0 { 0.0 } else { 1.0 / total };
                let row = of_warp + i * ROWS + g + half_row * 8;
                if row < queries {
                    for half in 0..HALVES {
                        // Column 2c + e of tile t is number OF_HALF · (2c + e) + t.
                        for e in 0..2 {
                            let values: [f32; OF_HALF] =
                                core::array::from_fn(|t| sums[i][half][t][2 * half_row + e] * inverse);
                            let at = (head as usize * queries + row) * WORDS * P::PER_WORD;
                            let place = at + (half * 8 + 2 * c + e) * OF_HALF;
                            // SAFETY: the row is there, and this lane's place in it is 16 bytes that nobody else has.
                            unsafe { P::store(o, place, values) };
                        }
                    }
                }
            }
        }
    }

    /// The scores of a warp's queries with the keys of a tile, of which lane (g, q) has columns 2q and 2q + 1 of rows g and g + 8.
    ///
    /// # Safety
    /// The whole warp comes here together; the keys are written, before a barrier.
    #[inline(always)]
    unsafe fn scores<P: Precision, const PAIRS: usize, const TILES: usize>(
        keys: SharedSlice<u32>,
        queries: &[[[[u32; 4]; 2]; PAIRS]; DOWN],
    ) -> [[[f32; 4]; TILES]; DOWN] {
        let mut scores = [[[0.0; 4]; TILES]; DOWN];
        for pair in 0..PAIRS {
            // Where few registers are left, none are kept for places that can be found again.
            let thread = if P::NEEDS_MANY_REGISTERS { this_thread() } else { thread::thread_idx_x() };
            let lane = thread as usize % LANES;
            let queries = queries.each_ref().map(|of_tile| {
                let mut chunks = of_tile[pair];
                if P::NEEDS_MANY_REGISTERS {
                    // Prepared anew for every tile of keys, rather than kept so in registers all the time.
                    chunks.iter_mut().for_each(hint::pin);
                }
                P::queries(chunks)
            });
            for two in 0..TILES / 2 {
                // Matrices: tile 0 at words 0 to 3 and 4 to 7, then tile 1. Lane 8·i + g names row g of matrix i.
                let row = (2 * two + lane / 16) * 8 + lane % 8;
                let chunks: [[u32; 4]; 2] = core::array::from_fn(|chunk| {
                    let piece = (2 * pair + chunk) * 2 + lane / 8 % 2;
                    // SAFETY: the caller's promise; pieces begin at multiples of 16 bytes.
                    unsafe { ldmatrix::ldmatrix_x4(&keys, place::<WORDS>(row, piece)) }
                });
                for of_two in 0..2 {
                    let keys = P::keys(chunks.map(|words| [words[2 * of_two], words[2 * of_two + 1]]));
                    for i in 0..DOWN {
                        let sums = &mut scores[i][2 * two + of_two];
                        // SAFETY: the caller's promise.
                        *sums = unsafe { P::add_scores(queries[i], keys, *sums) };
                    }
                }
            }
        }
        scores
    }

    /// Makes the scores −∞ of keys that are not there, or that a query does not see. `first` are the warp's first query and the tile's first key.
    #[inline(always)]
    fn mask<const TILES: usize>(scores: &mut [[[f32; 4]; TILES]; DOWN], first: [usize; 2], keys: usize, causal: bool) {
        let lane = thread::thread_idx_x() as usize % LANES;
        for i in 0..DOWN {
            for tile in 0..TILES {
                for element in 0..4 {
                    let query = first[0] + i * ROWS + lane / 4 + element / 2 * 8;
                    let key = first[1] + tile * 8 + lane % 4 * 2 + element % 2;
                    if key >= keys || causal && key > query {
                        scores[i][tile][element] = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }

    /// Makes weights of the scores of a tile of queries, `exp(score − maximum)`, with the maximum so far, and adds them to this lane's part of
    /// their sum. By how much what was summed up before has to be scaled, for both rows.
    ///
    /// # Safety
    /// The whole warp comes here together.
    #[inline(always)]
    unsafe fn weigh<P: Precision, const TILES: usize>(
        scores: &mut [[f32; 4]; TILES],
        largest: &mut [f32; 2],
        total: &mut [f32; 2],
        factor: f32,
    ) -> [f32; 2] {
        core::array::from_fn(|row| {
            let mut max = largest[row];
            for tile in 0..TILES {
                max = math::max(max, math::max(scores[tile][2 * row], scores[tile][2 * row + 1]));
            }
            // SAFETY: the caller's promise.
            let max = unsafe { of_group(max, math::max) };
            // While all are −∞, there is no difference to take from it.
            let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let scaling = P::exp2((largest[row] - base) * factor);
            largest[row] = max;
            let mut sum = 0.0;
            for tile in 0..TILES {
                for element in 2 * row..2 * row + 2 {
                    let weight = P::exp2((scores[tile][element] - base) * factor);
                    scores[tile][element] = weight;
                    sum += weight;
                }
            }
            total[row] = math::fma(total[row], scaling, sum);
            scaling
        })
    }

    /// Adds the values of a tile of keys, by their weights.
    ///
    /// # Safety
    /// The whole warp comes here together; the values are written, before a barrier.
    #[inline(always)]
    unsafe fn add_values<P: Precision, const HALVES: usize, const TILES: usize, const OF_HALF: usize>(
        values: SharedSlice<u32>,
        weights: &[[[f32; 4]; TILES]; DOWN],
        sums: &mut [[[[f32; 4]; OF_HALF]; HALVES]; DOWN],
    ) {
        let lane = thread::thread_idx_x() as usize % LANES;
        let (g, c) = (lane / 4, lane % 4);
        for two in 0..TILES / 2 {
            let weights = weights.each_ref().map(|of_tile| P::weights([of_tile[2 * two], of_tile[2 * two + 1]]));
            for half in 0..HALVES {
                // Of keys 2c and 2c + 1 of both tiles.
                let rows: [[u32; 4]; 4] = core::array::from_fn(|i| {
                    let row = two * 16 + 2 * c + i % 2 + i / 2 * 8;
                    // SAFETY: the caller's promise; pieces begin at multiples of 16 bytes.
                    unsafe { values.read_vector(place::<WORDS>(row, half * 8 + g)) }
                });
                for tile in 0..OF_HALF {
                    let column = P::values(rows, tile);
                    for i in 0..DOWN {
                        let sums = &mut sums[i][half][tile];
                        // SAFETY: the caller's promise.
                        *sums = unsafe { P::add_values(weights[i], column, *sums) };
                    }
                }
            }
        }
    }
}

/// What an operation makes of a number of each of the four lanes that have a row of a tile together; all of them get it.
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
unsafe fn of_group(mut value: f32, operation: impl Fn(f32, f32) -> f32) -> f32 {
    for distance in [1, 2] {
        // SAFETY: the caller's promise.
        let other = unsafe { warp::warp_shuffle_xor(warp::ALL_LANES, value, distance, warp::LANES) }.0;
        value = operation(value, other);
    }
    value
}

#[cfg(not(target_arch = "nvptx64"))]
mod operation;

#[cfg(not(target_arch = "nvptx64"))]
pub use operation::Attention;
