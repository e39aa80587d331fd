//! Small products, `C = α·A·B + β·C`, fp32-accurate by three TF32 products of `mma.sync`: their time is that of a few trips to memory.
//!
//! ```text
//!                16 k          16 k            a block: 8 (or 4) warps, a tile of 32×32 (or 16×16) elements of C; each warp has every
//!            ┌──────────┬──────────┬─ … ─┐     8th (4th) chunk of 16 k for itself, and sums for the whole tile
//!  32 rows   │  warp 0  │  warp 1  │     │
//!            └──────────┴──────────┴─ … ─┘
//!             memory ─► three chunks of ─► registers ─► tensor cores ─► 8 sums of each element, ─► added up in order ─► C
//!                       each warp, in                                   in shared memory
//!                       shared memory
//! ```
//!
//! The idea: what a small product takes is not work but waiting. So warps copy what they multiply themselves ([`chunk`](super::chunk)), from wherever it
//! lies, two chunks ahead, to a place in shared memory that is theirs alone; none waits for another one before the end. Tiles are small, so that there
//! are enough of them for all multiprocessors; since warps divide k among themselves, nothing is loaded twice by a block.
//!
//! Where there are more tiles than multiprocessors have warps for, as in batches, nothing is gained by dividing k: the kernels called `k16` have a warp for
//! each tile, and many of those on a multiprocessor, each at its own pace.
//!
//! | | what neighbouring lanes copy | lane 4g + q multiplies, of lines i = 0 … 3 (rows of A, columns of B) |
//! |---|---|---|
//! | k are neighbours | vectors of the 16 k of a line | k = 4q … 4q + 3 of lines g + 8i |
//! | lines are neighbours | vectors of all lines of a k | the same k of lines 4g + i |
//!
//! What cannot be copied by vectors, lanes load one by one, straight to their registers.
//!
//! That is a question asked at run time, of each operand: all layouts are one kernel. Which lines a lane has makes no difference for the bits.
//!
//! Operands that cannot be decomposed are noticed as in [`mma`](super::mma), and the tile is then computed again in plain fp32.
//!
//! Two blocks on a multiprocessor, four of 4 warps, 12 or more of one; any device from sm_80 on.

use blocks::block_or::BlockOr;
use blocks::epilogue::takes_vectors_of;
use blocks::named_barrier::{NamedBarrierIds, NamedBarriers};
use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::async_copy;
use cuda_std::prelude::*;

use crate::Matrix;
use crate::gemm::chunk::{CHUNK, ChunkSums, WIDTH};
use crate::gemm::fp32_tile::{self, Again, Made, Region};
use crate::gemm::scan;
use crate::gemm::tiles::{TOGETHER, Tile, TileShape, TiledGemm};

/// A tile of 16×16, by 8 warps.
pub const TILE_16: TileShape = square(16, 256);
/// A tile of 32×32, by 8 warps.
pub const TILE_32: TileShape = square(32, 256);
/// A tile of 32×32, by 4 warps.
pub const TILE_32_K64: TileShape = square(32, 128);
/// A tile of 16×16, by a warp alone.
pub const TILE_16_K16: TileShape = square(16, 32);
/// A tile of 32×32, by a warp alone.
pub const TILE_32_K16: TileShape = square(32, 32);

/// A tile whose sides are as long, and what so many threads load of it at a time.
const fn square(side: u32, threads: u32) -> TileShape {
    TileShape { m: side, n: side, k: threads / warp::LANES * CHUNK }
}

/// Where all threads of a block meet when they have written what they have computed.
const fn met<const THREADS: u32>() -> NamedBarriers<1, THREADS> {
    // SAFETY: the only one of the kernels.
    let mut ids = unsafe { NamedBarrierIds::new() };
    ids.group()
}

/// The chunks of a warp in shared memory: one that it multiplies, and those that are under way.
const RING: u32 = 3;

/// The shared memory of a block: for each warp its ring of chunks, and in the same place, when it has multiplied all, its sums; and whether a warp has
/// found operands that it cannot decompose.
struct Memory {
    of_warps: SharedArray<f32>,
    found: SharedArray<u32>,
    bytes: u32,
}

/// From one row of a tile to the next in shared memory.
const fn pitch(side: u32) -> u32 {
    side + 4
}

/// The elements of a chunk in shared memory: lines of A, and behind them of B.
const fn chunk_elements(side: u32) -> u32 {
    2 * side * CHUNK
}

/// The elements that a warp has in shared memory.
const fn warp_elements(side: u32) -> u32 {
    let (ring, sums) = (RING * chunk_elements(side), side * pitch(side));
    if ring > sums { ring } else { sums }
}

/// Where in shared memory the sum of a warp is for an element of the tile.
#[inline(always)]
const fn place(side: u32, warp: u32, row: u32, col: u32) -> usize {
    (warp * warp_elements(side) + row * pitch(side) + col) as usize
}

const fn memory<const THREADS: u32>(side: u32) -> Memory {
    let mut layout = SharedLayout::new();
    let of_warps = layout.aligned(THREADS / warp::LANES * warp_elements(side), 16);
    let found = BlockOr::<THREADS, { scan::BITS }>::words(&mut layout);
    Memory { of_warps, found, bytes: layout.bytes() }
}

/// The rows of A, or the columns of B, of a tile.
#[derive(Clone, Copy)]
struct Lines<'a> {
    /// Whose rows the lines are: A, or the transpose of B.
    matrix: Matrix<'a>,
    /// The first line of the tile.
    first: u32,
    /// Whether k are neighbours in memory, or nearer to each other than lines.
    along_k: bool,
    /// Whether all that a lane has can be loaded by vectors.
    by_vectors: bool,
}

impl<'a> Lines<'a> {
    /// Those of a matrix from line `first` on.
    #[inline(always)]
    fn new(matrix: Matrix<'a>, first: u32) -> Self {
        let (lines, k) = (matrix.row_stride(), matrix.col_stride());
        let along_k = k < lines;
        let (neighbours, pitch, count) = if along_k { (k, lines, matrix.cols()) } else { (lines, k, matrix.rows()) };
        let by_vectors = neighbours == 1 && count.is_multiple_of(4) && matrix.has_lines_of_vectors(pitch);
        Self { matrix, first, along_k, by_vectors }
    }

    /// The first line.
    #[inline(always)]
    fn first_anew(&self) -> u32 {
        anew(self.first)
    }
}

/// A number of which the compiler forgets that it does not change: what it would compute of it ahead of a loop, or keep from before one, takes
/// registers meanwhile.
#[inline(always)]
fn anew(number: u32) -> u32 {
    let mut number = [number];
    hint::pin(&mut number);
    number[0]
}

/// Where in a tile the line is that is number `i` of the `LINES` of a lane with this `g`.
#[inline(always)]
fn place_of<const LINES: usize>(along_k: bool, g: u32, i: u32) -> u32 {
    if along_k { g + 8 * i } else { LINES as u32 * g + i }
}

/// Where in shared memory an element of a chunk is whose lines are neighbours. Four lines of a k are side by side; where they are in the row of that
/// k is such that the lanes that read different k at a time meet different banks.
#[inline(always)]
fn place_by_lines<const LINES: usize>(k: u32, line: u32) -> u32 {
    let side = 8 * LINES as u32;
    // Rows of 64 bytes are in half of the banks each.
    let (row, turned) = if LINES == 4 { (k, 2 * (k / 4)) } else { (k % 4 * 4 + k / 4, 2 * (k / 8)) };
    row * side + ((line / 4) ^ turned) * 4 + line % 4
}

/// Where one is whose k are neighbours.
#[inline(always)]
fn place_by_k(k: u32, line: u32) -> u32 {
    line * CHUNK + k
}

/// How a warp copies the lines of a tile for a chunk. (Decided before the loop.)
trait Way {
    /// Begins to copy the 16 k from `k` on of all lines of a tile to `memory`, with zeros from `end` on and for lines that do not exist.
    ///
    /// # Safety
    /// All lanes of the warp come here. This is a way for the lines: each says which. `k` is a multiple of 16, and `end` is one or the
    /// number of all k, and no more than that. No other warp uses the memory, and no lane will read what it has now.
    unsafe fn copy<const LINES: usize>(lines: &Lines<'_>, memory: &SharedSlice<f32>, k: u32, end: u32);

    /// What lane 4g + q multiplies of what has been copied: k = 4q … 4q + 3 of its lines.
    ///
    /// # Safety
    /// It has been copied, all lanes have waited for their copies, and have met since then.
    unsafe fn take<const LINES: usize>(memory: &SharedSlice<f32>, g: u32, q: u32) -> [[f32; WIDTH]; LINES];
}

/// By vectors of k: where these are neighbours in memory.
struct VectorsOfK;

/// By vectors of lines: where these are neighbours.
struct VectorsOfLines;

impl Way for VectorsOfK {
    #[inline(always)]
    #[track_caller]
    unsafe fn copy<const LINES: usize>(lines: &Lines<'_>, memory: &SharedSlice<f32>, k: u32, end: u32) {
        let (matrix, first, lane) = (&lines.matrix, lines.first_anew(), anew(warp::lane_id()));
        // Four lanes have a line.
        let (line, own) = (lane / 4, lane % 4 * WIDTH as u32);
        for i in 0..LINES {
            let line = line + 8 * i as u32;
            let count = if first + line < matrix.rows() && k + own < end { WIDTH as u32 } else { 0 };
            let (to, from) = (place_by_k(own, line) as usize, matrix.offset(first + line, k + own));
            // SAFETY: the first element is inside, so all are, because the number of k is a multiple of four; aligned: `by_vectors`. The memory is the
            // warp's, and each lane has places of its own.
            unsafe { async_copy::copy_async::<WIDTH, _>(memory, to, &matrix.data(), from, count) };
        }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn take<const LINES: usize>(memory: &SharedSlice<f32>, g: u32, q: u32) -> [[f32; WIDTH]; LINES] {
        core::array::from_fn(|i| {
            let line = place_of::<LINES>(true, g, i as u32);
            // SAFETY: the caller's promise; a multiple of four.
            unsafe { memory.read4(place_by_k(q * WIDTH as u32, line) as usize) }
        })
    }
}

impl Way for VectorsOfLines {
    #[inline(always)]
    #[track_caller]
    unsafe fn copy<const LINES: usize>(lines: &Lines<'_>, memory: &SharedSlice<f32>, k: u32, end: u32) {
        let (matrix, first, lane) = (&lines.matrix, lines.first_anew(), anew(warp::lane_id()));
        // As many lanes as there are vectors in a k have one.
        let of_k = const { 2 * LINES as u32 };
        let (line, own) = (lane % of_k * 4, lane / of_k);
        for i in 0..LINES {
            let own = own + warp::LANES / of_k * i as u32;
            let count = if first + line < matrix.rows() && k + own < end { 4 } else { 0 };
            let (to, from) = (place_by_lines::<LINES>(own, line) as usize, matrix.offset(first + line, k + own));
            // SAFETY: the first element is inside, so all are, because the number of lines is a multiple of four; aligned: `by_vectors`. The memory is
            // the warp's, and each lane has places of its own.
            unsafe { async_copy::copy_async::<4, _>(memory, to, &matrix.data(), from, count) };
        }
    }

    #[inline(always)]
    #[track_caller]
    unsafe fn take<const LINES: usize>(memory: &SharedSlice<f32>, g: u32, q: u32) -> [[f32; WIDTH]; LINES] {
        let mut taken = [[0.0; WIDTH]; LINES];
        for j in 0..WIDTH {
            let place = place_by_lines::<LINES>(q * WIDTH as u32 + j as u32, place_of::<LINES>(false, g, 0)) as usize;
            // SAFETY: the caller's promise; a multiple of the lines of a lane, which are side by side.
            unsafe {
                if LINES == 4 {
                    let four = memory.read4(place);
                    for i in 0..LINES {
                        taken[i][j] = four[i];
                    }
                } else {
                    let two = memory.read2(place);
                    for i in 0..LINES {
                        taken[i][j] = two[i];
                    }
                }
            }
        }
        taken
    }
}

/// What this warp computes of a tile: `LINES` is an eighth of its side, `TILES` half of that.
///
/// # Safety
/// All lanes of the warp come here together, with the [`memory`] of the block. The ways are those for the lines of A and B of the tile.
#[inline(always)]
#[track_caller]
unsafe fn slice<const THREADS: u32, const LINES: usize, const TILES: usize, A: Way, B: Way>(
    tile: &Tile<'_>,
    [a, b]: [Lines<'_>; 2],
) -> ChunkSums<TILES, LINES> {
    let side = const { 8 * LINES as u32 };
    let (warp, lane) = (thread::thread_idx_x() / warp::LANES, warp::lane_id());
    let (g, q) = (lane / 4, lane % 4);
    let step = THREADS / warp::LANES * CHUNK;
    let own_k = tile.k_begin + warp * CHUNK;
    // SAFETY: the shared memory that the kernel names, which is large enough.
    let memory = unsafe { const { memory::<THREADS>(8 * LINES as u32) }.of_warps.slice() };
    // The lines of A, and of B, of a chunk.
    let places = |stage: u32| {
        let first = warp * warp_elements(side) + stage * chunk_elements(side);
        [first, first + chunk_elements(side) / 2].map(|first| memory.skip(first as usize))
    };
    // All lanes of a warp have as many chunks, for the sake of the tensor cores.
    let chunks = tile.k_end.saturating_sub(own_k).div_ceil(step);
    let rounds = if chunks == 0 { 0 } else { chunks + RING - 1 };
    let mut state = ChunkSums::new();
    let (mut round, mut stage) = (0, 0);
    // In each round a chunk is copied, and the one is multiplied that was copied `RING - 1` rounds before: the code of both stands here once.
    while round < rounds {
        async_copy::wait_group::<{ RING - 2 }>();
        // SAFETY: all lanes of the warp come here, and have waited for their copies of the chunk that is multiplied. The one before it, in whose place
        // the next one comes, they have read. The caller's promise; chunks and slices of k begin at multiples of 16.
        unsafe {
            warp::sync_warp(warp::ALL_LANES);
            if round < chunks {
                let (k, [of_a, of_b]) = (own_k + round * step, places(stage));
                A::copy::<LINES>(&a, &of_a, k, tile.k_end);
                B::copy::<LINES>(&b, &of_b, k, tile.k_end);
            }
            async_copy::commit_group();
            stage = if stage == RING - 1 { 0 } else { stage + 1 };
            if round >= RING - 1 {
                let [of_a, of_b] = places(stage);
                let (a, b): ([_; LINES], _) = (A::take(&of_a, g, q), B::take(&of_b, g, q));
                state.see(&a, &b);
                state.multiply(core::array::from_fn(|i| [a[2 * i], a[2 * i + 1]]), b);
            }
        }
        round = hint::keep_rolled(round + 1);
    }
    state
}

/// Loads four k, from `k` on, of the lines of a lane with this `g`, one by one, with zeros from `end` on. What is loaded of lines that do not exist may be
/// anything that the matrix has.
///
/// # Safety
/// There is a line. `k` is a multiple of 4, and `end` is no more than the number of all k.
#[inline(always)]
#[track_caller]
unsafe fn load<const LINES: usize>(lines: &Lines<'_>, g: u32, k: u32, end: u32) -> [[f32; WIDTH]; LINES] {
    let (matrix, first, mut loaded) = (&lines.matrix, lines.first_anew(), [[0.0; WIDTH]; LINES]);
    for i in 0..LINES {
        let line = first + place_of::<LINES>(lines.along_k, g, i as u32);
        let mut place = matrix.offset(line.min(matrix.rows() - 1), k);
        for j in 0..WIDTH {
            if k + (j as u32) < end {
                // SAFETY: inside, as just compared; the tile has a line.
                loaded[i][j] = unsafe { matrix.data().get_unchecked(place) };
            }
            place = place.wrapping_add(matrix.col_stride() as usize);
        }
    }
    loaded
}

/// What this warp computes of a tile, as [`slice`], of any lines: loaded one by one, straight to registers. (To copy single elements to shared memory takes twice
/// as long.)
///
/// # Safety
/// All lanes of the warp come here together.
#[inline(always)]
#[track_caller]
unsafe fn slice_of_elements<const THREADS: u32, const LINES: usize, const TILES: usize>(
    tile: &Tile<'_>,
    [a, b]: [Lines<'_>; 2],
) -> ChunkSums<TILES, LINES> {
    let (warp, lane) = (thread::thread_idx_x() / warp::LANES, warp::lane_id());
    let (g, q) = (lane / 4, lane % 4);
    let mut state = ChunkSums::new();
    let mut k = tile.k_begin + warp * CHUNK + q * WIDTH as u32;
    // All lanes of a warp have as many chunks, for the sake of the tensor cores.
    while k - q * (WIDTH as u32) < tile.k_end {
        // SAFETY: the caller's promise; chunks and slices of k begin at multiples of 16.
        unsafe {
            let (a, b): ([_; LINES], _) = (load(&a, g, k, tile.k_end), load(&b, g, k, tile.k_end));
            state.see(&a, &b);
            state.multiply(core::array::from_fn(|i| [a[2 * i], a[2 * i + 1]]), b);
        }
        k = hint::keep_rolled(k + THREADS / warp::LANES * CHUNK);
    }
    state
}

/// The body of all kernels. `LINES` is an eighth of the side of a tile, `TILES` half of that.
///
/// # Safety
/// Called by all threads of a block of `THREADS` with the [`memory`] of the side, which nothing else uses.
#[inline(always)]
unsafe fn multiply<const THREADS: u32, const LINES: usize, const TILES: usize>(gemm: TiledGemm<'_>) {
    const {
        assert!(LINES == 2 || LINES == 4, "vectors have as many elements");
        assert!(2 * TILES == LINES, "a tile of `mma.sync` has two rows of a lane");
    }
    let shape = const { square(8 * LINES as u32, THREADS) };
    let Some(tile) = gemm.tile_of_grid(shape) else { return };
    let lines = [Lines::new(tile.a, tile.row), Lines::new(tile.b.transposed(), tile.col)];
    let [a, b] = lines;
    // SAFETY: all threads of the block come here, and the ways are those for the lines, as just compared.
    unsafe {
        let state = if !(a.by_vectors && b.by_vectors) {
            slice_of_elements::<THREADS, LINES, TILES>(&tile, lines)
        } else {
            match (a.along_k, b.along_k) {
                (true, true) => slice::<THREADS, LINES, TILES, VectorsOfK, VectorsOfK>(&tile, lines),
                (true, false) => slice::<THREADS, LINES, TILES, VectorsOfK, VectorsOfLines>(&tile, lines),
                (false, true) => slice::<THREADS, LINES, TILES, VectorsOfLines, VectorsOfK>(&tile, lines),
                (false, false) => slice::<THREADS, LINES, TILES, VectorsOfLines, VectorsOfLines>(&tile, lines),
            }
        };
        // Found again rather than kept until now, which would take registers.
        if let Some(tile) = gemm.tile_of_grid(shape) {
            finish::<THREADS, LINES, TILES>(&tile, [a.along_k, b.along_k], &state, gemm.has_exact_selections());
        }
    }
}

/// Adds up what the warps have computed of a tile, and stores it.
///
/// # Safety
/// As for [`multiply`]: all threads of the block come here, each with its part of what its warp has computed.
#[inline(always)]
#[track_caller]
unsafe fn finish<const THREADS: u32, const LINES: usize, const TILES: usize>(
    tile: &Tile<'_>,
    [a_along_k, b_along_k]: [bool; 2],
    state: &ChunkSums<TILES, LINES>,
    exact_selections: bool,
) {
    let side = const { 8 * LINES as u32 };
    let (t, lane) = (anew(thread::thread_idx_x()), warp::lane_id());
    let (warp, g, q) = (t / warp::LANES, lane / 4, lane % 4);
    // SAFETY: the shared memory that the kernel names, which is large enough. All threads of the block come here. Each warp writes
    // elements of its own, which a barrier separates from what reads them. No other thread stores the elements of C that a thread does.
    unsafe {
        let memory = const { memory::<THREADS>(8 * LINES as u32) };
        let shared = memory.of_warps.slice();
        // All lanes have read the chunks whose place sums take.
        warp::sync_warp(warp::ALL_LANES);
        for i in 0..TILES {
            for element in 0..4 {
                let row = place_of::<LINES>(a_along_k, g, 2 * i as u32 + element as u32 / 2);
                for across in 0..LINES {
                    let col = place_of::<LINES>(b_along_k, 2 * q + element as u32 % 2, across as u32);
                    shared.write(place(side, warp, row, col), state.sums()[i][across][element]);
                }
            }
        }
        let found = BlockOr::<THREADS, { scan::BITS }>::new(memory.found, const { met() }.at(0));
        let found = found.arrive_and_wait(state.found());
        if let Some(again) = Again::of(tile, square(side, THREADS), found, exact_selections) {
            // Kept rolled: 16 sums at a time would take more registers than there are, for what hardly ever happens.
            let made = |row, col| {
                let (mut sum, mut warp) = (0.0, 0);
                while warp < THREADS / warp::LANES {
                    sum += shared.read(place(side, warp, row, col));
                    warp = hint::keep_rolled(warp + 1);
                }
                Made::Sum(sum)
            };
            fp32_tile::recompute(tile, Region::all_of(tile, square(side, THREADS)), t, THREADS, again, made);
        } else if takes_vectors_of(&tile.c, 4) {
            store::<THREADS, 4>(tile, &shared, side);
        } else {
            store::<THREADS, 1>(tile, &shared, side);
        }
    }
}

/// The sums of all warps, in their order, of `N` neighbours in a row of the tile.
///
/// # Safety
/// All warps have written theirs, before a barrier; `col` is a multiple of `N`, which is 1 or 4.
#[inline(always)]
unsafe fn sums_of_warps<const THREADS: u32, const N: usize>(
    shared: &SharedSlice<f32>,
    side: u32,
    row: u32,
    col: u32,
) -> [f32; N] {
    let mut sums = [0.0; N];
    for warp in 0..THREADS / warp::LANES {
        let first = place(side, warp, row, col);
        // SAFETY: the caller's promise.
        unsafe {
            if N == 4 {
                let four = shared.read4(first);
                for i in 0..N {
                    sums[i] += four[i];
                }
            } else {
                for i in 0..N {
                    sums[i] += shared.read(first + i);
                }
            }
        }
    }
    sums
}

/// Adds up what the warps have computed and stores it, `N` neighbours in a row of C at a time.
///
/// # Safety
/// As for [`sums_of_warps`], by all threads of the block; no other block stores elements of the tile.
#[inline(always)]
unsafe fn store<const THREADS: u32, const N: usize>(tile: &Tile<'_>, shared: &SharedSlice<f32>, side: u32) {
    let across = side / N as u32;
    let mut piece = thread::thread_idx_x();
    if !tile.overwrites() {
        // Several at a time, so that all that is read of C is under way before the first is stored. Those behind the last have no place.
        while piece < side * across {
            let pieces: [u32; TOGETHER] = core::array::from_fn(|i| (piece + i as u32 * THREADS).min(side * across - 1));
            let places = pieces.map(|piece| [piece / across, piece % across * N as u32]);
            // SAFETY: as below.
            unsafe {
                let sums = places.map(|[row, col]| sums_of_warps::<THREADS, N>(shared, side, row, col));
                let is_there = |i: usize| piece + (i as u32) * THREADS < side * across;
                let places = core::array::from_fn(|i| match is_there(i) {
                    true => [tile.row + places[i][0], tile.col + places[i][1]],
                    false => [u32::MAX; 2],
                });
                tile.blend::<N, TOGETHER>(places, sums, N > 1);
            }
            piece = hint::keep_rolled(piece + TOGETHER as u32 * THREADS);
        }
        return;
    }
    while piece < side * across {
        let (row, col) = (piece / across, piece % across * N as u32);
        // SAFETY: the caller's promise; each piece has one thread.
        unsafe { tile.epilogue(tile.row + row, tile.col + col, sums_of_warps::<THREADS, N>(shared, side, row, col)) };
        piece = hint::keep_rolled(piece + THREADS);
    }
}

/// The entry points: threads of a block, blocks on a multiprocessor, lines of a lane, half of them, and the tile.
macro_rules! kernels {
    ($($kernel:ident $threads:literal $min_blocks:literal $lines:literal $tiles:literal $tile:ident $doc:literal;)*) => { $(
        #[doc = $doc]
        #[kernel(
            block = $threads,
            min_blocks = $min_blocks,
            dynamic_shared = memory::<$threads>(8 * $lines).bytes,
            requires(gemm.has_grid_of_tiles($tile))
        )]
        pub fn $kernel(gemm: TiledGemm<'_>) {
            // SAFETY: all threads of a block of so many, with the shared memory that the kernel names.
            unsafe { multiply::<$threads, $lines, $tiles>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $kernel<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid_of_tiles($tile)
            }
        }
    )* };
}

kernels! {
    gemm_sliced_16x16_fp32_3xtf32 256 2 2 1 TILE_16
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 16×16, whose k 8 warps divide among themselves.";
    gemm_sliced_32x32_fp32_3xtf32 256 2 4 2 TILE_32
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 32×32, whose k 8 warps divide among themselves.";
    gemm_sliced_32x32_k64_fp32_3xtf32 128 4 4 2 TILE_32_K64
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 32×32, whose k 4 warps divide among themselves.";
    gemm_sliced_16x16_k16_fp32_3xtf32 32 20 2 1 TILE_16_K16
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 16×16, each of a warp.";
    gemm_sliced_32x32_k16_fp32_3xtf32 32 12 4 2 TILE_32_K16
        "`C = α·A·B + β·C` in fp32 by three TF32 products, by tiles of 32×32, each of a warp.";
}
