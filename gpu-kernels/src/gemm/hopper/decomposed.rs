//! fp32-accurate products on tensor cores, `C = α·A·B + β·C`, in one pass over A and B.
//!
//! ```text
//!  global memory          raw places             second places         registers
//!
//!  A 256×32 ──────────► ┌──────────┐
//!            copy       │ A        │ ─────────────────────────────────► split ─┐
//!            engine     │          │              warpgroups 1, 2:             │   high·high
//!  B 32×128 ──────────► │ B        │ ─► split ─► ┌──────────┐                  ├─► high·low  ─► partial ─► sums
//!          (warps 0 to  └──────────┘   (warps    │ second   │ ─────────────────┘   low·high     sums       (fp32)
//!           3)                └─────── 0 to 3) ──│ of B     │
//!                              first of B        └──────────┘
//! ```
//!
//! A block computes a tile of 256×128 in steps of 32 terms. Its roles, each of which has a function here:
//!
//! - **load** and **convert**, warps 0 to 3: each has the copy engine fill its quarter of the raw places, and splits 32
//!   columns of B, 32×32 numbers in each step. The first part goes back to where it came from if B is K-major, otherwise to a
//!   tile of its own, transposed, because TF32 operands have to be K-major. What a warp does in a step is unrolled, so that
//!   most of its addresses are constants; how long it takes from an empty second place to a full one is what holds the kernel.
//! - **multiply**, warpgroups 1 and 2: each has 128 rows, as two halves of 64. They split A in registers, multiply, and
//!   *promote*: the tensor cores add up 32 terms, cutting off what does not fit, and these partial sums are added in fp32,
//!   rounded to nearest. Without that, the error would grow with the number of terms, all of it towards zero.
//!
//! A step takes the tensor cores 2048 clocks in the mixed scheme, 3072 with three TF32 products. They multiply a half of one
//! warpgroup while the other one promotes, loads and splits: the two take turns ([`blocks::ping_pong`]). Before they did, both came to
//! multiply at the same time, and then had nothing to multiply at the same time. The tensor pipe was active 71 % of the time in
//! a long sum (`A·B`, mixed) and 88 % in `Aᵀ·B` with 3xTF32; now 74 % and 92 % (profiled on an H200). The tile is high rather than
//! wide because only B goes through the converters.
//!
//! # Operands that cannot be split
//!
//! See [`crate::gemm::decompose`]. Sums that are not finite tell of large ones, and the block computes its tile again by
//! multiplications and additions in fp32. Small ones have to be looked for. There are two ways:
//!
//! - Without `marks`, each block looks at all its operands, and again computes its tile itself. That takes about 4 % of the
//!   time of a long product. The warps that multiply look at A, because those that convert have no time for all of it.
//! - With `marks`, the blocks that have the same rows of A share the looking at them, eight at a time, and likewise with B.
//!   Then the warps that convert look at both, in shared memory.
//!   What a block has found it writes to its mark, and [`gemm_repair_fp32`](crate::gemm::repair::gemm_repair_fp32), launched
//!   next, computes the tiles again whose operands anyone has marked. C must not be needed any more by then: β is zero.
//!
//! A launch with flags of [`Unfit`] operands computes only the tiles that need them.
//!
//! On an H200, M, N, K = 2048, 4096, 8192 took 0.753 ms for `A·Bᵀ` and 0.745 ms for `Aᵀ·B` in the mixed scheme; before, in the same
//! run, 0.795 and 0.779 ms. With 3xTF32 it took 0.989 and 0.965 ms; before, 0.976 and 1.021 ms (2026-11-21).
//!
//! Source of the roles: V. Thakkar et al., CUTLASS 3, "warp-specialized persistent" kernels; of the split,
//! [`crate::gemm::decompose`]. 168 registers at launch, of which warpgroup 0 gives up all but 40, so that the others have 232;
//! 208 to 225 KB of shared memory, one block on a multiprocessor.

use blocks::block_or::BlockOr;
use blocks::named_barrier::{NamedBarrier, NamedBarrierIds, NamedBarriers};
use blocks::ping_pong::{self, PingPong};
use blocks::ring::{Consumer, Ring};
use blocks::shared_layout::{SharedArray, SharedLayout};
use blocks::uniform::warp_number;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::hopper;
use cuda_std::prelude::*;
use cuda_std::wgmma::{self, Descriptor, Sums};

use super::converter::convert;
use super::fallback::{GROUP, Unfit};
#[cfg(not(target_arch = "nvptx64"))]
use super::operand::describes;
use super::operand::{Fragments, KMajor, Major, MnMajor, ROW, fragment_place, fragment_rows, load_fragments};
use super::scheme::{Mixed, Scheme, ThreeTf32};
use super::underflow_scan::{Looks, NOT_FINITE, are_finite};
use crate::gemm::decompose::{Extremes, split_tf32};
use crate::gemm::fp32_tile;
use crate::gemm::repair::{MARK_A, MARK_B};
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The tile of a block.
pub const TILE: TileShape = TileShape { m: 256, n: 128, k: ROW };

const _: () = assert!(THREADS == 384, "the entry points' blocks are of as many threads");
const _: () = assert!(
    GROUP.is_multiple_of(TILE.m) && GROUP.is_multiple_of(TILE.n),
    "a tile is in one group of rows and of columns"
);

/// The elements of a tile of A, as loaded.
pub(super) const A_TILE: u32 = TILE.m * ROW;
/// The elements of a tile of B.
pub(super) const B_TILE: u32 = TILE.n * ROW;
/// The elements of a raw place.
pub(super) const RAW: u32 = A_TILE + B_TILE;
/// The places for second operands.
pub(super) const SECOND_STAGES: u32 = 2;
/// The rows of C that a warpgroup computes at a time.
const HALF: u32 = 64;
/// The sums of a thread for such a half.
const SUMS: usize = 64;
/// The warps that multiply.
const MULTIPLIERS: u32 = 8;
/// The warps that load and convert, each a quarter of a tile of A and 32 columns of B.
pub(super) const CONVERTERS: u32 = TILE.n / 32;
/// What such a warp loads at a time of operands that are K-major. Of the others it is boxes of 32 rows or columns.
pub const BOXES: TileShape = TileShape { m: TILE.m / CONVERTERS, n: TILE.n / CONVERTERS, k: TILE.k };
/// The first warp that multiplies.
const FIRST_MULTIPLIER: u32 = CONVERTERS;
/// The threads of a block.
const THREADS: u32 = (CONVERTERS + MULTIPLIERS) * 32;

/// What depends on the layout of B: a B that is not K-major needs a tile for each of its two operands, which leaves room for
/// one raw place less.
const fn raw_stages(b_is_k_major: bool) -> u32 {
    if b_is_k_major { 4 } else { 3 }
}

/// The elements of a place for second operands.
pub(super) const fn second_place(b_is_k_major: bool) -> u32 {
    if b_is_k_major { B_TILE } else { 2 * B_TILE }
}

/// What the warps of a block have found, as one: [`MARK_A`], [`MARK_B`] and [`NOT_FINITE`].
type Found = BlockOr<THREADS, 3>;
const _: () = assert!(MARK_A | MARK_B | NOT_FINITE == 0b111, "these are its bits");

/// The shared memory of a kernel with so many raw places.
struct Memory<const RAW_STAGES: u32> {
    /// The raw places, then the second ones.
    places: SharedArray<f32>,
    raw: SharedArray<u64>,
    second: SharedArray<u64>,
    found: SharedArray<u32>,
    bytes: u32,
}

impl<const RAW_STAGES: u32> Memory<RAW_STAGES> {
    const fn new(b_is_k_major: bool) -> Self {
        let mut layout = SharedLayout::new();
        Self {
            places: layout.aligned(RAW_STAGES * RAW + SECOND_STAGES * second_place(b_is_k_major), 1024),
            raw: Ring::<RAW_STAGES>::barriers(&mut layout),
            second: Ring::<SECOND_STAGES>::barriers(&mut layout),
            found: Found::words(&mut layout),
            bytes: layout.bytes(),
        }
    }
}

/// The named barriers of a kernel.
struct Barriers {
    turns: NamedBarriers<2, { ping_pong::THREADS }>,
    found: NamedBarrier<THREADS>,
}

const BARRIERS: Barriers = {
    // SAFETY: the kernels have no others.
    let mut ids = unsafe { NamedBarrierIds::new() };
    Barriers { turns: ids.group(), found: ids.group::<1, THREADS>().at(0) }
};

/// What all roles of a block share.
pub(super) struct Block<'a, const RAW_STAGES: u32> {
    pub(super) gemm: TiledGemm<'a>,
    pub(super) memory: SharedSlice<f32>,
    pub(super) raw: Ring<RAW_STAGES>,
    pub(super) second: Ring<SECOND_STAGES>,
    found: Found,
    pub(super) steps: u32,
    pub(super) looks: [Looks; 2],
}

/// The body of all kernels of this module.
///
/// # Safety
/// Called by all threads of a block of 384, launched with the shared memory of [`Memory`], and with tensor maps of A and
/// of B of `gemm`, in the layouts that `A` and `B` say; `only` covers `gemm`.
#[inline(always)]
unsafe fn multiply_split<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32>(
    map_a: TensorMap<'_>,
    map_b: TensorMap<'_>,
    gemm: TiledGemm<'_>,
    marks: GlobalSliceMut<'_, u32>,
    only: Unfit<'_>,
) {
    let Some(tile) = gemm.tile(TILE, thread::block_idx_x()) else { return };
    // SAFETY: the caller's promise.
    if unsafe { !only.contains(&tile) } {
        return;
    }
    let memory = const { Memory::<RAW_STAGES>::new(B::K) };
    // SAFETY: the caller's promise.
    let block = unsafe {
        Block {
            gemm,
            memory: memory.places.slice(),
            raw: Ring::new(memory.raw),
            second: Ring::new(memory.second),
            found: Found::new(memory.found, BARRIERS.found),
            steps: (tile.k_end - tile.k_begin).div_ceil(TILE.k),
            looks: [
                Looks::new(if marks.is_empty() { 1 } else { gemm.n().div_ceil(TILE.n) }, tile.col / TILE.n),
                Looks::new(if marks.is_empty() { 1 } else { gemm.m().div_ceil(TILE.m) }, tile.row / TILE.m),
            ],
        }
    };
    let thread = thread::thread_idx_x();
    // SAFETY: one thread prepares the barriers, and all wait for it. Every role passes every place of the rings it uses, in
    // order, `steps` times.
    unsafe {
        if thread == 0 {
            block.raw.init(CONVERTERS, CONVERTERS + MULTIPLIERS);
            block.second.init(CONVERTERS, MULTIPLIERS);
            hopper::fence_barrier_init();
        }
        thread::sync_threads();
        let (mut converter, mut consumer) = (block.raw.producer_consumer(), block.raw.consumer());
        let warp = warp_number();
        if warp < FIRST_MULTIPLIER {
            hopper::release_registers::<40>();
            let found = convert::<A, B, S, RAW_STAGES>(&block, &mut converter, warp, map_a, map_b);
            block.found.arrive(found);
        } else {
            hopper::acquire_registers::<232>();
            multiply::<A, B, S, RAW_STAGES>(&block, &mut consumer, marks);
        }
    }
}

/// What a thread that multiplies keeps from step to step.
struct Multiplier {
    /// Where its part of A is, in the raw place that comes next.
    place_in_a: u32,
    /// What it has loaded of that: the first half of its rows.
    raw: Fragments<f32>,
    sums: [[f32; SUMS]; 2],
    extremes: Extremes,
    step: u32,
    turn: PingPong,
}

impl Multiplier {
    /// Multiplies 32 terms of both halves, and loads the first half of the next step.
    ///
    /// # Safety
    /// As for [`multiply_split`]; called by all lanes of a warpgroup that multiplies, when the next raw place is full.
    #[inline(always)]
    unsafe fn step<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32, const LOOK: bool>(
        &mut self,
        block: &Block<'_, RAW_STAGES>,
        raw: &mut Consumer<RAW_STAGES>,
    ) {
        let memory = block.memory;
        let second_ring = block.second.consumer_after(self.step);
        let raw_place = raw.stage() * RAW;
        let place = RAW_STAGES * RAW + second_ring.stage() * second_place(B::K);
        let first_b = Descriptor::at(memory, (if B::K { raw_place + A_TILE } else { place }) as usize);
        let second_b = Descriptor::at(memory, (if B::K { place } else { place + B_TILE }) as usize);
        // SAFETY: a place is read when it is full, and given back when the products that read it have finished. A K-major B is
        // read from the raw place to the end of the step.
        unsafe {
            let (first_a, second_a) = self.split::<S, LOOK>();
            second_ring.wait();
            let mut partial = [0f32; SUMS];
            self.turn.wait();
            wgmma::fence();
            S::multiply(&mut partial, &first_a, &second_a, first_b, second_b);
            wgmma::commit();
            self.turn.pass();
            partial.wait::<0>();
            self.raw = load_fragments::<A>(memory.skip((HALF * ROW) as usize), self.place_in_a);
            promote(&mut self.sums[0], &partial);

            let (first_a, second_a) = self.split::<S, LOOK>();
            let mut partial = [0f32; SUMS];
            self.turn.wait();
            wgmma::fence();
            S::multiply(&mut partial, &first_a, &second_a, first_b, second_b);
            wgmma::commit();
            self.turn.pass();
            if !B::K {
                raw.release(); // A is in registers, and the converters are done: nobody reads it any more
            }
            raw.advance();
            self.place_in_a =
                if raw.stage() == 0 { self.place_in_a - (RAW_STAGES - 1) * RAW } else { self.place_in_a + RAW };
            self.step += 1;
            partial.wait::<0>();
            second_ring.release(); // and where B is K-major, the raw place with it
            if self.step < block.steps {
                raw.wait();
            }
            // After the last step these are bytes of no meaning, which nobody uses: a load that is made only sometimes
            // costs registers. The executor, which has enough of them, would report it.
            if cfg!(target_arch = "nvptx64") || self.step < block.steps {
                self.raw = load_fragments::<A>(memory, self.place_in_a);
            }
            promote(&mut self.sums[1], &partial);
        }
    }

    /// Splits what has been loaded of A.
    #[inline(always)]
    fn split<S: Scheme, const LOOK: bool>(&mut self) -> (Fragments<u32>, Fragments<u32>) {
        if LOOK {
            self.extremes.see_now(&self.raw);
        }
        let (mut first, mut low) = ([0; 16], [0.0; 16]);
        for i in 0..16 {
            let (high, rest) = split_tf32(self.raw[i]);
            (first[i], low[i]) = (high.to_bits(), rest);
        }
        let mut second = S::second_of_a(&self.raw, &low);
        hint::pin(&mut first);
        hint::pin(&mut second);
        (first, second)
    }
}

/// Multiplies, promotes, and completes C.
///
/// # Safety
/// As for [`multiply_split`]; called by all lanes of the multipliers' warps.
#[inline(always)]
unsafe fn multiply<A: Major, B: Major, S: Scheme, const RAW_STAGES: u32>(
    block: &Block<'_, RAW_STAGES>,
    raw: &mut Consumer<RAW_STAGES>,
    marks: GlobalSliceMut<'_, u32>,
) {
    // SAFETY: all lanes come here.
    let place_in_a = unsafe { fragment_place::<A>(first_row(warp_number()), warp::lane_id()) };
    // SAFETY: likewise.
    let turn = unsafe { PingPong::new(BARRIERS.turns, (warp_number() - FIRST_MULTIPLIER) / 4) };
    let (sums, extremes) = ([[0.0; SUMS]; 2], Extremes::new());
    let mut multiplier = Multiplier { place_in_a, raw: [0.0; 16], sums, extremes, step: 0, turn };
    // SAFETY: all lanes of all four warps of the warpgroup come here together: the number of steps is the same for the whole
    // block.
    unsafe {
        if block.steps > 0 {
            raw.wait();
            multiplier.raw = load_fragments::<A>(block.memory, place_in_a);
        }
        if block.looks[0].shared {
            while multiplier.step < block.steps {
                multiplier.step::<A, B, S, RAW_STAGES, false>(block, raw);
            }
        } else {
            while multiplier.step < block.steps {
                multiplier.step::<A, B, S, RAW_STAGES, true>(block, raw);
            }
        }
        turn.end();
    }
    let Multiplier { sums, extremes, .. } = multiplier;
    let found = if extremes.any() { MARK_A } else { 0 } | if are_finite(&sums) { 0 } else { NOT_FINITE };
    // SAFETY: the converters tell as well, and each warp once.
    let found = unsafe { block.found.arrive_and_wait(found) };
    let mut inexact = found != 0;
    if !marks.is_empty() {
        if thread::thread_idx_x() == FIRST_MULTIPLIER * 32 {
            // SAFETY: a launch has checked that there is a mark for each block, and one thread of each writes it.
            unsafe { marks.set_unchecked(thread::block_idx_x() as usize, found & (MARK_A | MARK_B)) };
        }
        inexact = found & NOT_FINITE != 0;
    }
    // Computed again: kept through the loop, it would take registers there.
    let Some(tile) = block.gemm.tile(TILE, thread::block_idx_x()) else { return };
    if inexact {
        // SAFETY: all multipliers come here, and nobody else writes this tile of C.
        unsafe {
            fp32_tile::compute_tile(&tile, TILE, thread::thread_idx_x() - FIRST_MULTIPLIER * 32, MULTIPLIERS * 32)
        };
        return;
    }
    let lane = warp::lane_id();
    let (row, distance) = fragment_rows::<A>(lane);
    // SAFETY: all lanes come here.
    let first_row = unsafe { first_row(warp_number()) };
    let (row, col) = (tile.row + first_row + row, tile.col + 2 * (lane & 3));
    // SAFETY: rows and columns of this thread alone; columns begin at even numbers.
    unsafe {
        complete::<0>(&tile, row, col, &sums[0]);
        complete::<1>(&tile, row + distance, col, &sums[0]);
        complete::<0>(&tile, row + HALF, col, &sums[1]);
        complete::<1>(&tile, row + HALF + distance, col, &sums[1]);
    }
}

/// The first row of a warp that multiplies: a warpgroup has two halves of 64 rows, and each of its warps 16 rows of each half.
#[inline(always)]
fn first_row(warp: u32) -> u32 {
    let warp = warp - FIRST_MULTIPLIER;
    warp / 4 * 2 * HALF + warp % 4 * 16
}

/// Completes the columns of C that this thread has in one row: the first or the second of the two rows that `sums` is of.
///
/// # Safety
/// No other thread accesses these elements of C; `col` is even.
#[inline(always)]
unsafe fn complete<const SECOND_ROW: usize>(tile: &Tile<'_>, row: u32, col: u32, sums: &[f32; SUMS]) {
    let sum = |group: usize, col: usize| sums[place_of_sum(4 * group + 2 * SECOND_ROW + col)];
    let groups = core::array::from_fn(|group| [sum(group, 0), sum(group, 1)]);
    // SAFETY: the caller's promise.
    unsafe { tile.finish_groups::<2, { SUMS / 4 }>(row, col, 8, groups) }
}

/// Adds partial sums, rounding to nearest.
#[inline(always)]
fn promote(sums: &mut [f32; SUMS], partial: &[f32; SUMS]) {
    for i in 0..SUMS {
        sums[i] += partial[place_of_sum(i)];
    }
    hint::pin(sums);
}

/// Which of its sums a thread keeps the partial sum `i` in, and the other way round.
///
/// Registers come in two banks, the even and the odd ones. An addition of two that are in the same bank takes twice as long,
/// and the assembler gives both arrays registers in order, beginning with even ones. With neighbours exchanged, what is added
/// is in different banks.
#[inline(always)]
fn place_of_sum(i: usize) -> usize {
    i ^ 1
}

/// Makes the entry points: all have the same parameters and differ in types.
macro_rules! entry_points {
    ($($name:ident, $a:ident, $b:ident, $scheme:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = 384,
            min_blocks = 1,
            arch = "sm_90a",
            dynamic_shared = Memory::<{ raw_stages($b::K) }>::new($b::K).bytes,
            requires(
                gemm.blocks(TILE) <= MAX_BLOCKS,
                marks.is_empty() || marks.len() as u64 >= gemm.blocks(TILE),
                marks.is_empty() || gemm.overwrites(),
                describes::<$a>(&map_a, [gemm.m(), gemm.a().first().cols(), gemm.a().count()], BOXES.m, BOXES.k),
                describes::<$b>(&map_b, [gemm.n(), gemm.b().first().rows(), gemm.b().count()], BOXES.n, BOXES.k),
                only.covers(&gemm),
                only.is_everything() || marks.is_empty()
            )
        )]
        pub fn $name(
            map_a: TensorMap<'_>,
            map_b: TensorMap<'_>,
            gemm: TiledGemm<'_>,
            marks: GlobalSliceMut<'_, u32>,
            only: Unfit<'_>,
        ) {
            // SAFETY: the block and its shared memory are as large as the body needs, and a launch has checked what the
            // tensor maps describe, and that there are enough flags.
            unsafe { multiply_split::<$a, $b, $scheme, { raw_stages($b::K) }>(map_a, map_b, gemm, marks, only) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $name<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(TILE)
            }
        }
    )* };
}

entry_points! {
    gemm_wgmma_nn_fp32_mixed, KMajor, MnMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A and B stored by rows.";
    gemm_wgmma_nt_fp32_mixed, KMajor, KMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A stored by rows and B by columns.";
    gemm_wgmma_tn_fp32_mixed, MnMajor, MnMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A stored by columns and B by rows.";
    gemm_wgmma_tt_fp32_mixed, MnMajor, KMajor, Mixed,
        "`C = α·A·B + β·C` in fp32 by one TF32 and two bf16 products, A and B stored by columns.";
    gemm_wgmma_nn_fp32_3xtf32, KMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B stored by rows.";
    gemm_wgmma_nt_fp32_3xtf32, KMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A stored by rows and B by columns.";
    gemm_wgmma_tn_fp32_3xtf32, MnMajor, MnMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A stored by columns and B by rows.";
    gemm_wgmma_tt_fp32_3xtf32, MnMajor, KMajor, ThreeTf32,
        "`C = α·A·B + β·C` in fp32 by three TF32 products, A and B stored by columns.";
}
