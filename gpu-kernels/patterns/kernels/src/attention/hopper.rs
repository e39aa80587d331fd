//! Attention in bf16 on Hopper's tensor cores (`wgmma`, sm_90a): one warp has TMA load tiles of keys and values, and each of several
//! warpgroups attends with 64 queries of its own.
//!
//! ```text
//!  producer warp     Q, then K₂  K₁ V₂  K₀ V₁  V₀, into a ring of stages           the last tile of keys comes first: only the first
//!                         │                                                         ones that are multiplied have anything masked
//!  a consumer        S₂ = Q·K₂ᵀ │ S₁ = Q·K₁ᵀ         O += P₂·V₂     │ S₀ = Q·K₀ᵀ    …      tensor cores
//!  warpgroup            P₂ = softmax S₂ │ P₁ = softmax S₁ │ O ·= …     P₀ = …              everything else, meanwhile
//! ```
//!
//! Scores of the next tile are under way while those of this one become weights, and so is the product of the weights before with their
//! values. The warpgroups issue their products in turns ([`blocks::ping_pong`]), so that one has the tensor cores while others compute
//! exponentials.
//!
//! K is a right operand that is K-major, and V one that is MN-major, as both lie in memory: nothing is transposed on the way. The weights of
//! 16 keys lie in the registers of S as a left operand takes them. Weights below 2⁻¹²⁶ are 0.
//!
//! Blocks stay and go from tile to tile of queries, one block on each multiprocessor. Tiles of causal attention differ in their length. So they come
//! longest first, and every other round of blocks takes them the other way round: who had the longest of one round has the shortest of the
//! next.
//!
//! Sources: J. Shah et al., "FlashAttention-3: fast and accurate attention with asynchrony and low-precision", arXiv:2407.08608 (2024).

use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::ping_pong::{self, PingPong};
use blocks::ring::{Consumer, Producer, Ring};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::{this_thread, uniform, warp_number};
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Bf16 as OfBf16, Descriptor, MnMajor, Sums};

use super::LOG2_E;
use super::rows::{Rows, pack, store};

/// The queries of a warpgroup, and the warps of one.
const QUERIES: u32 = 64;
const WARPS: u32 = 4;
/// The numbers of a row of 128 bytes, and the words.
const ROW: u32 = 64;
const ROW_WORDS: u32 = 32;
/// The k of an instruction, and its bytes in a row.
const STEP: u32 = 16;
const STEP_BYTES: u32 = 32;

/// How attention is divided: heads of `SIZE` numbers, `KEYS` keys in a tile, `STAGES` tiles of keys or values in shared memory, `CONSUMERS`
/// warpgroups of 64 queries. So a thread has `SUMS` accumulators of O, `SCORES` of S, and the weights of `STEPS` times 16 keys. The producer's
/// warpgroup gives up registers for the others.
struct Division<
    const SIZE: u32,
    const KEYS: u32,
    const STAGES: u32,
    const SUMS: usize,
    const SCORES: usize,
    const STEPS: usize,
    const CONSUMERS: u32,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
>;

/// The dynamic shared memory of a block.
struct Memory {
    queries: SharedArray<f32>,
    stages: SharedArray<f32>,
    of_queries: SharedArray<u64>,
    ring: SharedArray<u64>,
    bytes: u32,
}

/// What is attended to, by blocks of so many queries, which take `together` heads at a time.
#[derive(Clone, Copy)]
struct Shape {
    heads: u32,
    queries: u32,
    keys: u32,
    causal: bool,
    together: u32,
    of_block: u32,
}

/// A tile of queries: of which head, and from which one on.
#[derive(Clone, Copy)]
struct Tile {
    head: u32,
    first: u32,
}

impl Shape {
    /// The tiles of a head.
    #[inline(always)]
    fn of_head(&self) -> u32 {
        self.queries.div_ceil(self.of_block)
    }

    /// That of a block in a round, if there is one.
    #[inline(always)]
    fn tile(&self, round: u32, block: u32, blocks: u32) -> Option<Tile> {
        let at = if round.is_multiple_of(2) { block } else { blocks - 1 - block };
        let (number, of_head) = (round * blocks + at, self.of_head());
        if number >= self.heads * of_head {
            return None;
        }
        let of_section = (self.together * of_head).max(1);
        let (section, number) = (number / of_section, number % of_section);
        let heads = (self.heads - section * self.together).min(self.together);
        let (row, head) = (number / heads.max(1), number % heads.max(1));
        // With causal attention the last queries have most to do.
        let row = if self.causal { of_head - 1 - row } else { row };
        Some(Tile { head: section * self.together + head, first: row * self.of_block })
    }

    /// The tiles of keys that some query of a tile sees: one at least.
    #[inline(always)]
    fn tiles(&self, tile: Tile, keys_of_tile: u32) -> u32 {
        let seen = if self.causal { self.keys.min(tile.first + self.of_block) } else { self.keys };
        seen.div_ceil(keys_of_tile)
    }
}

/// Whether a map is one of rows of so many numbers of each head, in tiles of 64 of them and of so many rows.
#[cfg(not(target_arch = "nvptx64"))]
fn describes(map: &TensorMap<'_>, [heads, rows, size]: [u32; 3], lines: u32) -> bool {
    use cuda_std::{TileElement, TileSwizzle};
    let layout = map.layout();
    let row = 2 * u64::from(size);
    let strides = [2, row, row * u64::from(rows)];
    let fits = |i: usize| layout.byte_strides[i] == strides[i] || layout.extents[i] == 1;
    layout.element == TileElement::Bytes2
        && layout.swizzle == TileSwizzle::Bytes128
        && layout.extents == [size, rows, heads].map(u64::from)
        && layout.tile == [ROW, lines, 1]
        && (0..3).all(fits)
}

/// What a launch has to give, besides.
#[cfg(not(target_arch = "nvptx64"))]
fn fits([heads, queries, keys, size, together, workers]: [u32; 6], o: usize, of_block: u32) -> bool {
    let len = (heads as usize * queries as usize).checked_mul(size as usize);
    let most = i32::MAX as u32;
    let tiles = u64::from(heads) * u64::from(queries.div_ceil(of_block));
    let rounds_up = tiles + u64::from(workers);
    [heads, queries, keys, together, workers].iter().all(|&number| number > 0)
        && len == Some(o)
        && queries.max(keys) <= most - 1024
        && rounds_up <= u64::from(most)
        && u64::from(together) * u64::from(queries.div_ceil(of_block)) <= u64::from(most)
}

/// A kernel for each size of heads, or two.
macro_rules! kernels {
    ($(
        $name:ident, block = $block:literal, queries = $of_block:literal, keys = $of_tile:literal,
        <$size:literal, $stages:literal, $sums:literal, $scores:literal, $steps:literal, $consumers:literal, $of_consumers:literal, $of_producer:literal>,
        $doc:expr;
    )*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $block,
            min_blocks = 1,
            arch = "sm_90a",
            grid = workers,
            dynamic_shared =
                Division::<$size, $of_tile, $stages, $sums, $scores, $steps, $consumers, $of_consumers, $of_producer>::MEMORY.bytes,
            requires(
                fits([heads, queries, keys, $size, together, workers], o.len(), $of_block),
                describes(&q, [heads, queries, $size], $of_block),
                describes(&k, [heads, keys, $size], $of_tile),
                describes(&v, [heads, keys, $size], $of_tile),
                o.as_mut_ptr().addr().is_multiple_of(16)
            )
        )]
        pub fn $name(
            q: TensorMap<'_>,
            k: TensorMap<'_>,
            v: TensorMap<'_>,
            heads: u32,
            queries: u32,
            keys: u32,
            causal: u32,
            scale: f32,
            together: u32,
            workers: u32,
            o: GlobalSliceMut<'_, Bf16>,
        ) {
            _ = workers; // for the grid alone
            const { assert!($block == ($consumers + 1) * WARPS * warp::LANES && $of_block == $consumers * QUERIES) };
            let shape = Shape { heads, queries, keys, causal: causal != 0, together, of_block: $of_block };
            // SAFETY: a block of as many threads as the division has, all of which come here, with its shared memory; the launch has checked
            // the rest.
            unsafe {
                Division::<$size, $of_tile, $stages, $sums, $scores, $steps, $consumers, $of_consumers, $of_producer>::attend(
                    shape, scale, [q, k, v], o,
                );
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Tiles for $name<'_> {
            const TILES: [u32; 2] = [$of_block, $of_tile];
        }
    )* };
}

/// The extents of a kernel's tiles.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) trait Tiles {
    /// The queries of a block, and the keys of a tile: the lines of the maps of Q, and of K and V.
    const TILES: [u32; 2];
}

kernels! {
    attention_64_wgmma_bf16, block = 512, queries = 192, keys = 128, <64, 8, 32, 64, 8, 3, 160, 32>,
        "Attention of heads of 64 numbers of bf16. `q` is a map of heads × queries × 64 in tiles of 192 × 64, `k` and `v` are maps of heads × keys × 64 \
         in tiles of 128 × 64, `o` is as `q`. There is one of each at least. `causal` is 0 or 1; scores are multiplied by `scale`, which is \
         not negative. `workers` blocks take `together` heads at a time.";
    attention_128_wgmma_bf16, block = 384, queries = 128, keys = 176, <128, 4, 64, 88, 11, 2, 240, 24>,
        "The same of heads of 128 numbers, in tiles of 128 × 64 and 176 × 64.";
    attention_128_causal_wgmma_bf16, block = 384, queries = 128, keys = 128, <128, 6, 64, 64, 8, 2, 240, 24>,
        "The same in tiles of 128 × 64 only, of which causal attention computes less in vain.";
}

impl<
    const SIZE: u32,
    const KEYS: u32,
    const STAGES: u32,
    const SUMS: usize,
    const SCORES: usize,
    const STEPS: usize,
    const CONSUMERS: u32,
    const CONSUMER_REGISTERS: u32,
    const PRODUCER_REGISTERS: u32,
> Division<SIZE, KEYS, STAGES, SUMS, SCORES, STEPS, CONSUMERS, CONSUMER_REGISTERS, PRODUCER_REGISTERS>
where
    [f32; SUMS]: Sums<Number = f32>,
    [f32; SCORES]: Sums<Number = f32>,
{
    /// The words of a stage, of 64 numbers of its rows, and of 64 numbers of the queries of a block.
    const STAGE: u32 = KEYS * SIZE / 2;
    const HALF: u32 = KEYS * ROW_WORDS;
    const QUERIES_OF_BLOCK: u32 = CONSUMERS * QUERIES;
    const HALF_OF_QUERIES: u32 = Self::QUERIES_OF_BLOCK * ROW_WORDS;

    /// The named barriers of a block.
    const TURNS: NamedBarriers<CONSUMERS, { ping_pong::THREADS }> = {
        // SAFETY: the kernels of this module have no other.
        let mut ids = unsafe { NamedBarrierIds::new() };
        ids.group()
    };

    const MEMORY: Memory = {
        assert!(SIZE as usize == 2 * SUMS && KEYS as usize == 2 * SCORES && KEYS as usize == 16 * STEPS);
        let mut layout = SharedLayout::new();
        let queries = layout.aligned(Self::QUERIES_OF_BLOCK * SIZE / 2, 1024);
        let stages = layout.aligned(STAGES * Self::STAGE, 1024);
        let of_queries = Ring::<1>::barriers(&mut layout);
        let ring = Ring::<STAGES>::barriers(&mut layout);
        Memory { queries, stages, of_queries, ring, bytes: layout.bytes() }
    };

    /// The body of the kernels.
    ///
    /// # Safety
    /// All threads of a block of `CONSUMERS + 1` warpgroups come here, with the shared memory of [`Self::MEMORY`]; the maps are of Q, K and V of this shape, as [`describes`]
    /// says, and there are as many elements of O.
    #[inline(always)]
    unsafe fn attend(shape: Shape, scale: f32, [q, k, v]: [TensorMap<'_>; 3], o: GlobalSliceMut<'_, Bf16>) {
        // SAFETY: all threads come here, and each role goes through all tiles and stages. The warps of a warpgroup give up and acquire
        // registers together. One thread prepares the barriers, and all wait for it.
        unsafe {
            let memory = Self::MEMORY;
            let (queries, stages) = (memory.queries.slice(), memory.stages.slice());
            let (of_queries, ring) = (Ring::<1>::new(memory.of_queries), Ring::<STAGES>::new(memory.ring));
            if thread::thread_idx_x() == 0 {
                of_queries.init(1, CONSUMERS * WARPS);
                ring.init(1, CONSUMERS * WARPS);
                hopper::fence_barrier_init();
            }
            thread::sync_threads();
            let warp = warp_number();
            let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
            if warp < WARPS {
                hopper::release_registers::<PRODUCER_REGISTERS>();
                if warp == 0 {
                    for map in [q, k, v] {
                        hopper::prefetch_tensor_map(map);
                    }
                    let (mut of_queries, mut ring) = (of_queries.producer(), ring.producer());
                    let mut round = 0;
                    while let Some(tile) = shape.tile(round, block, blocks) {
                        let [head, first, tiles] =
                            [tile.head, tile.first, shape.tiles(tile, KEYS)].map(|value| uniform(value));
                        let mut left = tiles;
                        Self::load(&mut ring, stages, k, [(left - 1) * KEYS, head]);
                        of_queries.acquire();
                        let stage = of_queries.tma_stage();
                        if hopper::elect_one() {
                            stage.commit_bytes(Self::QUERIES_OF_BLOCK * SIZE * 2);
                            for half in 0..SIZE / ROW {
                                let at = (half * Self::HALF_OF_QUERIES) as usize;
                                stage.load_tile(queries, at, q, [half * ROW, first, head]);
                            }
                        }
                        of_queries.advance();
                        while left > 1 {
                            Self::load(&mut ring, stages, k, [(left - 2) * KEYS, head]);
                            Self::load(&mut ring, stages, v, [(left - 1) * KEYS, head]);
                            left = hint::keep_rolled(left - 1);
                        }
                        Self::load(&mut ring, stages, v, [0, head]);
                        round += 1;
                    }
                }
            } else {
                hopper::acquire_registers::<CONSUMER_REGISTERS>();
                let warpgroup = warp / WARPS - 1;
                let turns = PingPong::new(Self::TURNS, warpgroup);
                let (mut of_queries, mut ring) = (of_queries.consumer(), ring.consumer());
                let mut round = 0;
                while let Some(tile) = shape.tile(round, block, blocks) {
                    let first = uniform(tile.first) + warpgroup * QUERIES;
                    let tiles = uniform(shape.tiles(tile, KEYS));
                    let memory = (queries, stages);
                    let (sums, totals) = Self::attend_to_tile(
                        shape,
                        scale,
                        [first, warpgroup, tiles],
                        turns,
                        memory,
                        (&mut of_queries, &mut ring),
                    );
                    // Found again, rather than kept in registers all the time.
                    if let Some(tile) = shape.tile(round, block, blocks) {
                        let row = tile.first + warpgroup * QUERIES + warp % WARPS * 16;
                        store::<SIZE, SUMS>(o, [tile.head, row, shape.queries], &sums, totals);
                    }
                    round += 1;
                }
                turns.end();
            }
        }
    }

    /// Issues the loads of a tile of keys, or of their values: from key `first` on, of a head.
    ///
    /// # Safety
    /// All lanes of the producer warp come here, with equal numbers.
    #[inline(always)]
    #[track_caller]
    unsafe fn load(ring: &mut Producer<STAGES>, stages: SharedSlice<f32>, map: TensorMap<'_>, [first, head]: [u32; 2]) {
        // SAFETY: the stage is acquired, and is full when all its bytes have come. One lane of the warp issues the loads, to multiples of
        // 1024 bytes.
        unsafe {
            ring.acquire();
            let (stage, at) = (ring.tma_stage(), ring.stage() * Self::STAGE);
            if hopper::elect_one() {
                stage.commit_bytes(4 * Self::STAGE);
                for half in 0..SIZE / ROW {
                    stage.load_tile(stages, (at + half * Self::HALF) as usize, map, [half * ROW, first, head]);
                }
            }
            ring.advance();
        }
    }

    /// What a warpgroup makes of its queries, `first` and 63 more: the sums of values, and this lane's parts of those of weights.
    ///
    /// # Safety
    /// All threads of the warpgroup come here, and so do those of the other ones, with as many tiles.
    #[inline(always)]
    #[track_caller]
    unsafe fn attend_to_tile(
        shape: Shape,
        scale: f32,
        [first, warpgroup, tiles]: [u32; 3],
        turns: PingPong<CONSUMERS>,
        (queries, stages): (SharedSlice<f32>, SharedSlice<f32>),
        (of_queries, ring): (&mut Consumer<1>, &mut Consumer<STAGES>),
    ) -> ([f32; SUMS], [f32; 2]) {
        let factor = scale * LOG2_E;
        let (mut sums, mut scores) = ([0.0f32; SUMS], [0.0f32; SCORES]);
        let mut rows = Rows { largest: [f32::NEG_INFINITY; 2], totals: [0.0; 2], factor };
        // Whether a query of the warpgroup does not see some key of a tile, or keys end in it.
        let needs_mask = |tile: u32| {
            let end = (tile + 1) * KEYS;
            end > shape.keys || shape.causal && end > first + 1
        };
        // SAFETY: all lanes come here. A stage is read when it is full, and released when the products that read it have finished, as have
        // accumulators, and the registers of weights, when they are touched.
        unsafe {
            let q = Descriptor::at(queries, (warpgroup * QUERIES * ROW_WORDS) as usize);
            let mut left = tiles - 1;
            of_queries.wait();
            ring.wait();
            wgmma::fence();
            Self::issue_scores(&mut scores, q, stages, ring.stage());
            wgmma::commit();
            let keys = ring.advance_holding();
            scores.wait::<0>();
            keys.release();
            if left == 0 {
                of_queries.release();
            }
            if needs_mask(left) {
                mask(&mut scores, [first, left * KEYS], shape.keys, shape.causal);
            }
            _ = rows.weigh(&mut scores);
            let mut weights: [[u32; 4]; STEPS] = pack(&scores);

            while left > 0 {
                ring.wait();
                turns.wait();
                wgmma::fence();
                Self::issue_scores(&mut scores, q, stages, ring.stage());
                wgmma::commit();
                let keys = ring.advance_holding();
                ring.wait();
                wgmma::fence();
                Self::issue_values(&mut sums, &weights, stages, ring.stage());
                wgmma::commit();
                turns.pass();
                let values = ring.advance_holding();
                scores.wait::<1>();
                keys.release();
                if left == 1 {
                    of_queries.release();
                }
                if needs_mask(left - 1) {
                    mask(&mut scores, [first, (left - 1) * KEYS], shape.keys, shape.causal);
                }
                let scaling = rows.weigh(&mut scores);
                sums.wait::<0>();
                values.release();
                // Maxima seldom change after the first tiles.
                if warp::warp_vote_any(warp::ALL_LANES, scaling[0] != 1.0 || scaling[1] != 1.0) {
                    for i in 0..SUMS {
                        sums[i] *= scaling[i / 2 % 2];
                    }
                }
                weights = pack(&scores);
                left = hint::keep_rolled(left - 1);
            }
            of_queries.advance();
            ring.wait();
            wgmma::fence();
            Self::issue_values(&mut sums, &weights, stages, ring.stage());
            wgmma::commit();
            let values = ring.advance_holding();
            sums.wait::<0>();
            values.release();
        }
        (sums, rows.totals)
    }

    /// Issues the products of a warpgroup's queries with a tile of keys.
    ///
    /// # Safety
    /// As for [`Sums::set_shared`].
    #[inline(always)]
    #[track_caller]
    unsafe fn issue_scores(scores: &mut [f32; SCORES], q: Descriptor, stages: SharedSlice<f32>, stage: u32) {
        for step in 0..SIZE / STEP {
            let (half, bytes) = (step * STEP / ROW, step % (ROW / STEP) * STEP_BYTES);
            let k = Descriptor::at(stages, (stage * Self::STAGE) as usize);
            let q = q.offset(half * Self::HALF_OF_QUERIES * 4 + bytes);
            let k = k.offset(half * Self::HALF * 4 + bytes);
            // SAFETY: the caller's promise.
            unsafe {
                if step == 0 {
                    scores.set_shared::<OfBf16>(q, k);
                } else {
                    scores.add_shared::<OfBf16>(q, k);
                }
            }
        }
    }

    /// Issues the products of weights with a tile of values.
    ///
    /// # Safety
    /// As for [`Sums::add`].
    #[inline(always)]
    #[track_caller]
    unsafe fn issue_values(sums: &mut [f32; SUMS], weights: &[[u32; 4]; STEPS], stages: SharedSlice<f32>, stage: u32) {
        let v = MnMajor::at(stages, (stage * Self::STAGE) as usize, Self::HALF * 4);
        for step in 0..STEPS {
            // SAFETY: the caller's promise.
            unsafe { sums.add::<OfBf16>(weights[step], v.skip(step as u32 * STEP)) };
        }
    }
}

/// Makes the scores −∞ of keys that are not there, or that a query does not see. `first` are the warpgroup's first query and the tile's first key.
#[inline(always)]
fn mask<const SCORES: usize>(scores: &mut [f32; SCORES], [query, key]: [u32; 2], keys: u32, causal: bool) {
    let thread = this_thread();
    let (warp, lane) = (thread / warp::LANES % WARPS, thread % warp::LANES);
    for row in 0..2 {
        let query = query + warp * 16 + lane / 4 + row * 8;
        // The keys from the tile's first one on that this row sees, from this lane's first one on.
        let end = if causal { keys.min(query + 1) } else { keys };
        let left = end.saturating_sub(key + lane % 4 * 2);
        for group in 0..SCORES as u32 / 4 {
            for column in 0..2 {
                if group * 8 + column >= left {
                    scores[(4 * group + 2 * row + column) as usize] = f32::NEG_INFINITY;
                }
            }
        }
    }
}
