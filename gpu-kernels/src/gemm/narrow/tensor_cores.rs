//! Products with some tens of columns, `C = α·A·B + β·C`, fp32-accurate by three TF32 products of `mma.sync`.
//!
//! ```text
//!                16 k          16 k            a block: 8 warps, a tile of 64 rows and all (or 32) columns; each warp has
//!            ┌──────────┬──────────┬─ … ─┐     every 8th chunk of 16 k for itself, and accumulators of the whole tile
//!            │          │          │     │
//!  64 rows   │  warp 0  │  warp 1  │     │     a lane of a warp, in each chunk:   8 rows of A, 4 k of each
//!            │          │          │     │                                        n / 8 columns of B, the same 4 k
//!            └──────────┴──────────┴─ … ─┘
//!
//!  A in registers ─► high, low ─┐
//!                               ├─► low·high + high·low + high·high over 16 k ─► added to the accumulators
//!  B in registers ─► high, low ─┘
//! ```
//!
//! A lane loads 16 bytes at a time from global memory, and what it loads are the fragments that it has to have
//! ([`chunk`](crate::gemm::chunk)):
//!
//! ```text
//!  lane 4g + q       A row-major: rows g, g + 8, … g + 56, k = 4q … 4q + 3       A column-major: rows 4g … 4g + 3 and 32 more
//!                    B column-major: columns g, g + 8, …, the same k             below, k = 4q + j for j = 0 … 3
//! ```
//!
//! Both wait in shared memory, in a part that a warp has for itself: its lanes copy there what they will read, asynchronously, two chunks
//! ahead, and need neither registers nor a barrier of the block for that. In the end the warps add up their accumulators in shared memory,
//! in order.
//!
//! Operands that cannot be decomposed are noticed as in [`mma`](crate::gemm::mma), and the tile is then computed again in plain fp32.
//!
//! At most 255 registers, 96 KB of shared memory, so one block on a multiprocessor; any device from sm_80 on.

use blocks::block_or::{BlockSize, or_of_threads};
use blocks::shared_layout::{SharedArray, SharedLayout};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::Dim3;
use cuda_std::async_copy;
use cuda_std::prelude::*;

use crate::Matrix;
use crate::gemm::chunk::{CHUNK, ChunkSums, WIDTH};
use crate::gemm::fp32_tile::{self, Again, Made, Region};
use crate::gemm::narrow::{THREADS, WARPS, store_sums_of_warps, sum_of_warps};
use crate::gemm::scan;
#[cfg(not(target_arch = "nvptx64"))]
use crate::gemm::tiles::MAX_BLOCKS;
use crate::gemm::tiles::{Tile, TileShape, TiledGemm};

/// The rows of a block, and of each of its warps.
const BLOCK_ROWS: u32 = 64;
/// The rows of a lane: two of each tile of 16 rows.
const ROWS: usize = 8;
/// The tiles of 16 rows.
const TILES: usize = ROWS / 2;
/// The chunks that are under way while another one is multiplied.
const STAGES: u32 = 2;

/// The tile of a block with so many columns.
pub const fn tile_on_tensor_cores(columns: u32) -> TileShape {
    TileShape { m: BLOCK_ROWS, n: columns, k: WARPS * CHUNK }
}

/// What a lane loads of A for a chunk: its rows, two of each tile of 16 one after the other.
type Rows = [[f32; WIDTH]; ROWS];

/// The size of a block.
struct Block;

impl BlockSize for Block {
    const THREADS: u32 = THREADS;
}

/// The dynamic shared memory of a block whose tiles have so many columns: what each thread has copied of A and B for [`STAGES`] chunks,
/// and in the end the accumulators of each warp.
struct Memory {
    elements: SharedArray<f32>,
    bytes: u32,
}

impl Memory {
    const fn new(columns: u32) -> Self {
        let mut layout = SharedLayout::new();
        let elements = layout.aligned(STAGES * stage(columns / 8), 16);
        assert!(WARPS * BLOCK_ROWS * columns <= STAGES * stage(columns / 8), "accumulators take no more");
        assert!(layout.bytes() <= 99 << 10, "what every GPU has");
        Self { elements, bytes: layout.bytes() }
    }
}

/// The elements of a stage for so many tiles of 8 columns.
const fn stage(across: u32) -> u32 {
    THREADS * (ROWS as u32 + across) * WIDTH as u32
}

/// Where a piece of four elements is, in its stage, that has been copied by this lane of a warp: the pieces of all threads side by side.
#[inline(always)]
fn piece_of(lane: u32, piece: u32) -> u32 {
    (piece * THREADS + thread::thread_idx_x() / warp::LANES * warp::LANES + lane) * WIDTH as u32
}

/// What a lane reads.
#[derive(Clone, Copy)]
struct Source<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    /// The first row and column of the tile.
    row: u32,
    col: u32,
    /// The k after the last.
    end: u32,
    /// What this lane has in a fragment: row `g` of 8 and position `q` of 4.
    g: u32,
    q: u32,
    /// The same for what it copies of A. Where A is column-major, that is another lane's: eight lanes in a row copy 32 rows that are
    /// neighbours in memory.
    copied_g: u32,
    copied_q: u32,
    is_row_major: bool,
}

impl Source<'_> {
    /// The row of A that row `i` of a lane is, counted from the first of the tile, for the `g` of the lane.
    #[inline(always)]
    fn place(&self, g: u32, i: u32) -> u32 {
        if self.is_row_major { g + 8 * i } else { 32 * (i / 4) + 4 * g + i % 4 }
    }

    /// The lane that copies what this one has of A.
    #[inline(always)]
    fn copying_lane(&self) -> u32 {
        if self.is_row_major { 4 * self.g + self.q } else { 8 * self.q + self.g }
    }

    /// Issues the copies of this thread's part of A of the chunk from `k` on, `N` elements at a time, with zeros for what does not exist.
    ///
    /// # Safety
    /// What [`async_copy::copy_async`] asks for this thread's part of the stage that begins at `stage`; `N` is no more than what is
    /// [copied together](copied_together) of A.
    #[inline(always)]
    unsafe fn copy_rows<const N: usize>(&self, shared: &SharedSlice<f32>, stage: u32, k: u32) {
        let k = k + 4 * self.copied_q;
        for piece in 0..ROWS as u32 {
            // The first element of the piece, and how many from there on exist.
            let (row, k, count) = if self.is_row_major {
                let row = self.row + self.place(self.copied_g, piece);
                (row, k, if row < self.a.rows() { self.end.saturating_sub(k) } else { 0 })
            } else {
                let (row, k) = (self.row + self.place(self.copied_g, 4 * (piece / 4)), k + piece % 4);
                (row, k, if k < self.end { self.a.rows().saturating_sub(row) } else { 0 })
            };
            let first = u64::from(row) * self.a.row_stride() + u64::from(k) * self.a.col_stride();
            // SAFETY: the caller's promise; so many are elements of A.
            unsafe { copy_piece::<N>(shared, stage + piece_of(warp::lane_id(), piece), self.a.data(), first, count) };
        }
    }

    /// The same for its columns of B.
    ///
    /// # Safety
    /// As for [`Source::copy_rows`], with B for A.
    #[inline(always)]
    unsafe fn copy_columns<const N: usize, const ACROSS: usize>(&self, shared: &SharedSlice<f32>, stage: u32, k: u32) {
        let k = k + 4 * self.q;
        for tile in 0..ACROSS as u32 {
            let col = self.col + 8 * tile + self.g;
            let count = if col < self.b.cols() { self.end.saturating_sub(k) } else { 0 };
            let first = u64::from(col) * self.b.col_stride() + u64::from(k);
            // SAFETY: the caller's promise; so many are elements of B.
            unsafe {
                let place = stage + piece_of(warp::lane_id(), ROWS as u32 + tile);
                copy_piece::<N>(shared, place, self.b.data(), first, count);
            }
        }
    }

    /// Issues the copies of this thread's part of A and of B, so many elements at a time.
    ///
    /// # Safety
    /// As for [`Source::copy_rows`].
    #[inline(always)]
    unsafe fn copy<const ACROSS: usize>(&self, shared: &SharedSlice<f32>, stage: u32, k: u32, together: [u32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            match together[0] {
                4 => self.copy_rows::<WIDTH>(shared, stage, k),
                2 => self.copy_rows::<2>(shared, stage, k),
                _ => self.copy_rows::<1>(shared, stage, k),
            }
            match together[1] {
                4 => self.copy_columns::<WIDTH, ACROSS>(shared, stage, k),
                2 => self.copy_columns::<2, ACROSS>(shared, stage, k),
                _ => self.copy_columns::<1, ACROSS>(shared, stage, k),
            }
        }
    }

    /// What has been copied of A to a stage for this lane.
    ///
    /// # Safety
    /// The copies of the warp have been waited for, and its lanes have met since.
    #[inline(always)]
    unsafe fn rows(&self, shared: &SharedSlice<f32>, stage: u32) -> Rows {
        let lane = self.copying_lane();
        // SAFETY: inside the warp's part of the stage.
        let pieces: [[f32; 4]; ROWS] =
            core::array::from_fn(|piece| unsafe { shared.read4((stage + piece_of(lane, piece as u32)) as usize) });
        if self.is_row_major {
            pieces
        } else {
            core::array::from_fn(|i| core::array::from_fn(|j| pieces[i / 4 * 4 + j][i % 4]))
        }
    }
}

/// How many elements of a matrix, whose rows of memory are `pitch` elements apart, are copied together: as many of 4, 2 or 1 as all rows begin
/// at multiples of. Rows that begin anywhere are not shifted, as those of [`mma`](crate::gemm::mma) are: what a lane reads would be
/// copied by others, and read by twice as many loads.
#[inline(always)]
fn copied_together(matrix: &Matrix<'_>, pitch: u64) -> u32 {
    match matrix.shift(pitch, 0) | matrix.shift(pitch, 1) {
        0 => 4,
        2 => 2,
        _ => 1,
    }
}

/// Issues the copies of four elements, of which `count` exist, or more, from `first` on, `N` at a time.
///
/// # Safety
/// As for [`Source::copy_rows`].
#[inline(always)]
unsafe fn copy_piece<const N: usize>(
    shared: &SharedSlice<f32>,
    place: u32,
    data: GlobalSlice<'_, f32>,
    first: u64,
    count: u32,
) {
    for i in 0..(WIDTH / N) as u32 {
        let count = count.saturating_sub(i * N as u32).min(N as u32);
        let (to, from) = ((place + i * N as u32) as usize, (first + u64::from(i) * N as u64) as usize);
        // SAFETY: the caller's promise.
        unsafe { async_copy::copy_async::<N, _>(shared, to, &data, from, count) };
    }
}

/// The body of all kernels.
///
/// # Safety
/// Called by all threads of a block of [`THREADS`] with the shared memory of [`Memory`]; A is row-major or column-major, as
/// `IS_ROW_MAJOR` says, and B is column-major.
#[inline(always)]
unsafe fn multiply<const IS_ROW_MAJOR: bool, const ACROSS: usize>(gemm: TiledGemm<'_>) {
    let shape = const { tile_on_tensor_cores(8 * ACROSS as u32) };
    let Some(tile) = gemm.tile(shape, thread::block_idx_x()) else { return };
    let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
    let (warp, g, q) = (t / warp::LANES, lane / 4, lane % 4);
    let Tile { a, b, row, col, k_begin, k_end, .. } = tile;
    let [copied_g, copied_q] = if IS_ROW_MAJOR { [g, q] } else { [lane % 8, lane / 8] };
    let source = Source { a, b, row, col, end: k_end, g, q, copied_g, copied_q, is_row_major: IS_ROW_MAJOR };
    let mut state = ChunkSums::<TILES, ACROSS>::new();

    // SAFETY: the shared memory that the kernel names.
    let shared = unsafe { const { Memory::new(8 * ACROSS as u32) }.elements.slice() };
    let first_k = k_begin + warp * CHUNK;
    let chunks = k_end.saturating_sub(first_k).div_ceil(shape.k);
    let together = [
        copied_together(&a, if IS_ROW_MAJOR { a.row_stride() } else { a.col_stride() }),
        copied_together(&b, b.col_stride()),
    ];
    let stage_of = |chunk: u32| chunk % STAGES * const { stage(ACROSS as u32) };
    // Of all copies: each lane copies to places of its own, when the lanes that read there have in registers what they held before. What it
    // copies it waits for before any lane reads it, and before the block uses the memory for anything else.
    for chunk in 0..STAGES {
        if chunk < chunks {
            // SAFETY: as above.
            unsafe { source.copy::<ACROSS>(&shared, stage_of(chunk), first_k + chunk * shape.k, together) };
        }
        async_copy::commit_group();
    }
    let mut chunk = 0;
    while chunk < chunks {
        async_copy::wait_group::<{ STAGES - 1 }>();
        let stage = stage_of(chunk);
        // SAFETY: the copies of this chunk have been waited for, and a meeting of the lanes separates them from the reads of others, as
        // another one does these reads from the next copies. All lanes of a warp have as many chunks.
        unsafe {
            if !IS_ROW_MAJOR {
                warp::sync_warp(warp::ALL_LANES);
            }
            let a = source.rows(&shared, stage);
            let b: [[f32; WIDTH]; ACROSS] =
                core::array::from_fn(|tile| shared.read4((stage + piece_of(lane, (ROWS + tile) as u32)) as usize));
            state.see(&a, &b);
            if !IS_ROW_MAJOR {
                warp::sync_warp(warp::ALL_LANES);
            }
            if chunk + STAGES < chunks {
                source.copy::<ACROSS>(&shared, stage, first_k + (chunk + STAGES) * shape.k, together);
            }
            async_copy::commit_group();
            state.multiply(core::array::from_fn(|i| [a[2 * i], a[2 * i + 1]]), b);
        }
        chunk = hint::keep_rolled(chunk + 1);
    }
    async_copy::wait_group::<0>();

    // SAFETY: all threads of the block come here. Each warp writes elements of its own; the barriers of `or_of_threads` and the one below
    // separate the writes from what others did with the memory before.
    unsafe {
        let found = or_of_threads::<Block, { scan::BITS }>(&shared, state.found());
        thread::sync_threads();
        let elements = BLOCK_ROWS * shape.n;
        for i in 0..TILES {
            for half in 0..2 {
                let first = warp * elements + source.place(g, 2 * i as u32 + half) * shape.n + 2 * q;
                for tile in 0..ACROSS {
                    let [a, b, c, d] = state.sums()[i][tile];
                    let pair = if half == 0 { [a, b] } else { [c, d] };
                    shared.write((first + 8 * tile as u32) as usize, pair[0]);
                    shared.write((first + 8 * tile as u32 + 1) as usize, pair[1]);
                }
            }
        }
        if let Some(again) = Again::of(&tile, shape, found, gemm.has_exact_selections()) {
            thread::sync_threads();
            let made = |row, col| Made::Sum(sum_of_warps(&shared, shape, row * shape.n + col));
            fp32_tile::recompute(&tile, Region::all_of(&tile, shape), t, THREADS, again, made);
        } else {
            store_sums_of_warps(&tile, shape, &shared);
        }
    }
}

/// The entry points: for tiles of so many columns, with A row-major and column-major.
macro_rules! kernels {
    ($($columns:literal $nt:ident $tt:ident $nt_doc:literal $tt_doc:literal;)*) => { $(
        #[doc = $nt_doc]
        #[kernel(block = 256, min_blocks = 1, dynamic_shared = Memory::new($columns).bytes, requires(
            gemm.a().first().is_contiguous_along_rows(),
            gemm.b().first().is_contiguous_along_cols(),
            gemm.blocks(tile_on_tensor_cores($columns)) <= MAX_BLOCKS
        ))]
        pub fn $nt(gemm: TiledGemm<'_>) {
            // SAFETY: all threads of a block of 256, with the shared memory that the kernel names; the layouts are as the launch has
            // checked.
            unsafe { multiply::<true, { $columns / 8 }>(gemm) }
        }

        #[doc = $tt_doc]
        #[kernel(block = 256, min_blocks = 1, dynamic_shared = Memory::new($columns).bytes, requires(
            gemm.a().first().is_contiguous_along_cols(),
            gemm.b().first().is_contiguous_along_cols(),
            gemm.blocks(tile_on_tensor_cores($columns)) <= MAX_BLOCKS
        ))]
        pub fn $tt(gemm: TiledGemm<'_>) {
            // SAFETY: as above.
            unsafe { multiply::<false, { $columns / 8 }>(gemm) }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $nt<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_on_tensor_cores($columns))
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl crate::Grid for $tt<'_> {
            fn grid(&self) -> Dim3 {
                self.gemm.grid(tile_on_tensor_cores($columns))
            }
        }
    )* };
}

kernels! {
    16 gemm_narrow_16_nt_fp32_3xtf32 gemm_narrow_16_tt_fp32_3xtf32
        "`C = α·A·B + β·C` in fp32 by three TF32 products, 16 columns at a time, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 by three TF32 products, 16 columns at a time, with A and B column-major.";
    32 gemm_narrow_32_nt_fp32_3xtf32 gemm_narrow_32_tt_fp32_3xtf32
        "`C = α·A·B + β·C` in fp32 by three TF32 products, 32 columns at a time, with A row-major and B column-major."
        "`C = α·A·B + β·C` in fp32 by three TF32 products, 32 columns at a time, with A and B column-major.";
}
