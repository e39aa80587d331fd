//! fp32 and bf16 as elements of attention: how a warp's tensor cores multiply 16 words of the rows of Q and K for scores, and the weights
//! of 16 keys with V for results.

use blocks::mma_scheme::{Decomposed, ThreeTf32};
use cuda_std::mma::mma_m16n8k16_bf16;
use cuda_std::prelude::*;

/// What rows and weights are made of, and how they are multiplied.
pub(super) trait Precision {
    /// An element of Q, K, V and O.
    type Element: Element;
    /// The elements in a word of 32 bits.
    const PER_WORD: usize;
    /// The tiles of O that 32 words of V make: a lane has as many numbers in 16 bytes.
    const OF_PIECE: usize;
    /// Whether prepared operands take so many registers that none are kept for what can be computed again.
    const NEEDS_MANY_REGISTERS: bool;
    /// Fragments of two chunks of rows, of queries and of keys.
    type Queries: Copy;
    type Keys: Copy;
    /// Fragments of 16 keys, of weights and of values.
    type Weights: Copy;
    type Values: Copy;

    /// Those of two chunks of a row: of each the words `q` and `q + 4` of rows `g` and `g + 8`, as tensor cores take them.
    fn queries(chunks: [[u32; 4]; 2]) -> Self::Queries;

    /// Those of two chunks of a row of keys: words `q` and `q + 4` of each.
    fn keys(chunks: [[u32; 2]; 2]) -> Self::Keys;

    /// Those of the weights of two tiles of 8 keys.
    fn weights(tiles: [[f32; 4]; 2]) -> Self::Weights;

    /// Those of number `tile` of 16 bytes of the rows 2q, 2q + 1, 2q + 8 and 2q + 9.
    fn values(rows: [[u32; 4]; 4], tile: usize) -> Self::Values;

    /// `sums` and the products of queries with keys.
    ///
    /// # Safety
    /// The whole warp comes here together.
    unsafe fn add_scores(queries: Self::Queries, keys: Self::Keys, sums: [f32; 4]) -> [f32; 4];

    /// `sums` and the products of weights with values.
    ///
    /// # Safety
    /// The whole warp comes here together.
    unsafe fn add_values(weights: Self::Weights, values: Self::Values, sums: [f32; 4]) -> [f32; 4];

    /// 2ˣ for x that is not above 0.
    fn exp2(x: f32) -> f32;

    /// Stores the 16 bytes of elements from `place` on.
    ///
    /// # Safety
    /// They are inside, aligned, and no other thread's.
    unsafe fn store<const N: usize>(o: GlobalSliceMut<'_, Self::Element>, place: usize, values: [f32; N]);
}

/// fp32 numbers, three TF32 products each, and the exponential that has the same bits everywhere.
pub(super) struct Fp32;

impl Precision for Fp32 {
    type Element = f32;
    const PER_WORD: usize = 1;
    const OF_PIECE: usize = 4;
    const NEEDS_MANY_REGISTERS: bool = true;
    type Queries = [Decomposed<4>; 2];
    type Keys = [Decomposed<2>; 2];
    type Weights = [Decomposed<4>; 2];
    type Values = [Decomposed<2>; 2];

    #[inline(always)]
    fn queries(chunks: [[u32; 4]; 2]) -> Self::Queries {
        chunks.map(|chunk| Decomposed::of(chunk.map(f32::from_bits)))
    }

    #[inline(always)]
    fn keys(chunks: [[u32; 2]; 2]) -> Self::Keys {
        chunks.map(|chunk| Decomposed::of(chunk.map(f32::from_bits)))
    }

    #[inline(always)]
    fn weights(tiles: [[f32; 4]; 2]) -> Self::Weights {
        // Position q is key 2q, and position q + 4 is key 2q + 1, of rows g and g + 8.
        tiles.map(|[a, b, c, d]| Decomposed::of([a, c, b, d]))
    }

    #[inline(always)]
    fn values(rows: [[u32; 4]; 4], tile: usize) -> Self::Values {
        let number = |row: usize| f32::from_bits(rows[row][tile]);
        [Decomposed::of([number(0), number(1)]), Decomposed::of([number(2), number(3)])]
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_scores(queries: Self::Queries, keys: Self::Keys, sums: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        let products = unsafe {
            let first = ThreeTf32::product(queries[0], keys[0], [0.0; 4]);
            ThreeTf32::product(queries[1], keys[1], first)
        };
        core::array::from_fn(|i| sums[i] + products[i])
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_values(weights: Self::Weights, values: Self::Values, sums: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { Self::add_scores(weights, values, sums) }
    }

    #[inline(always)]
    fn exp2(x: f32) -> f32 {
        math::exp2(x)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<const N: usize>(o: GlobalSliceMut<'_, f32>, place: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { o.set_vector_unchecked(place, values) };
    }
}

/// bf16 numbers, fp32 sums, and the exponential of the hardware.
pub(super) struct Half;

impl Precision for Half {
    type Element = Bf16;
    const PER_WORD: usize = 2;
    const OF_PIECE: usize = 8;
    const NEEDS_MANY_REGISTERS: bool = false;
    type Queries = [[u32; 4]; 2];
    type Keys = [[u32; 2]; 2];
    type Weights = [u32; 4];
    type Values = [u32; 2];

    #[inline(always)]
    fn queries(chunks: [[u32; 4]; 2]) -> Self::Queries {
        chunks
    }

    #[inline(always)]
    fn keys(chunks: [[u32; 2]; 2]) -> Self::Keys {
        chunks
    }

    #[inline(always)]
    fn weights(tiles: [[f32; 4]; 2]) -> Self::Weights {
        let [[upper, lower], [next_upper, next_lower]] =
            tiles.map(|[a, b, c, d]| [convert::bf16x2(a, b), convert::bf16x2(c, d)]);
        [upper, lower, next_upper, next_lower]
    }

    #[inline(always)]
    fn values(rows: [[u32; 4]; 4], tile: usize) -> Self::Values {
        let pair = |first: usize| {
            let (upper, lower) = (rows[first + 1][tile / 2], rows[first][tile / 2]);
            if tile.is_multiple_of(2) { lower & 0xFFFF | upper << 16 } else { lower >> 16 | upper & 0xFFFF_0000 }
        };
        [pair(0), pair(2)]
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_scores(queries: Self::Queries, keys: Self::Keys, sums: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let sums = mma_m16n8k16_bf16(queries[0], keys[0], sums);
            mma_m16n8k16_bf16(queries[1], keys[1], sums)
        }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn add_values(weights: Self::Weights, values: Self::Values, sums: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { mma_m16n8k16_bf16(weights, values, sums) }
    }

    #[inline(always)]
    fn exp2(x: f32) -> f32 {
        math::fast::exp2(x)
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn store<const N: usize>(o: GlobalSliceMut<'_, Bf16>, place: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { o.set_vector_unchecked(place, values.map(Bf16::from_f32)) };
    }
}
